"""RoutingHeader: one hop of a message's way, the only part that differs between hops."""

from __future__ import annotations

from dataclasses import dataclass

from oncewire.errors import InvalidValue
from oncewire.message.header import AckRequest, ReliableMessagingMethod
from oncewire.message.ids import PartyId, check_id
from oncewire.message.instant import Instant
from oncewire.message.quick import quick
from oncewire.message.sequence import SequenceNumber


@quick
@dataclass(frozen=True, slots=True)
class RoutingHeader:
    """Sender and receiver of one hop, by URI (2001) or by PartyID (v0-078), or both (C25)."""

    sender_uri: str | None = None
    receiver_uri: str | None = None
    sender_id: PartyId | None = None
    receiver_id: PartyId | None = None
    timestamp: Instant | None = None
    error_uri: str | None = None
    ack_requested: AckRequest = AckRequest.NONE
    # None: the format has no word for it, as ebMS 2.0 has none.
    method: ReliableMessagingMethod | None = ReliableMessagingMethod.EBXML
    sequence: SequenceNumber | None = None
    # MessageServiceId: which instance acts for the party (HDR-4).
    msh_id: str | None = None

    def __post_init__(self) -> None:
        if self.sender_uri is not None:
            check_id(self.sender_uri, "SenderURI")
        if self.receiver_uri is not None:
            check_id(self.receiver_uri, "ReceiverURI")
        if self.error_uri is not None:
            check_id(self.error_uri, "ErrorURI")
        if self.msh_id is not None:
            check_id(self.msh_id, "MessageServiceId")
        if (self.sender_uri or self.sender_id) is None:
            raise InvalidValue(
                "a RoutingHeader names no sender", remedy="give SenderURI or SenderID"
            )
        if (self.receiver_uri or self.receiver_id) is None:
            raise InvalidValue(
                "a RoutingHeader names no receiver", remedy="give ReceiverURI or ReceiverID"
            )
