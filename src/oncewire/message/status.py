"""The Message Status service: what became of a message, asked of the other handler."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from oncewire.message.ids import check_id
from oncewire.message.instant import Instant


class MessageStatus(StrEnum):
    """The five answers of ebMS 2.0 §7.1.2."""

    UNAUTHORIZED = "UnAuthorized"
    NOT_RECOGNIZED = "NotRecognized"
    RECEIVED = "Received"
    PROCESSED = "Processed"
    FORWARDED = "Forwarded"


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """Asks for the status of one message."""

    ref_to_message_id: str

    def __post_init__(self) -> None:
        check_id(self.ref_to_message_id, "StatusRequest RefToMessageId")


@dataclass(frozen=True, slots=True)
class StatusResponse:
    """The answer; `timestamp` is when the message was received, absent when it was not."""

    ref_to_message_id: str
    status: MessageStatus
    timestamp: Instant | None = None

    def __post_init__(self) -> None:
        check_id(self.ref_to_message_id, "StatusResponse RefToMessageId")
