"""The Message Status service: what became of a message, asked of the other handler."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from oncewire.message.ids import check_id
from oncewire.message.instant import Instant


class MessageStatus(StrEnum):
    """The five answers of ebMS 2.0 §7.1.2: the other handler does not tell us; it does not know
    the message; it has it; its application has it too; it passed it on."""

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
    """What the other handler says of a message of ours.

    `ref_to_message_id`: the message. `status`: what became of it.
    `timestamp`: when it was received, in microseconds since 1970; None when it was not.
    """

    ref_to_message_id: str
    status: MessageStatus
    timestamp: Instant | None = None

    def __post_init__(self) -> None:
        check_id(self.ref_to_message_id, "StatusResponse RefToMessageId")
