"""Message: everything one message says, in no particular wire format."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from oncewire.message.header import (
    AckRequest,
    DeliverySemantics,
    Header,
    RoutingHeader,
    SequenceNumber,
)
from oncewire.message.payload import Payload, Reference
from oncewire.message.signals import (
    Acknowledgment,
    AckRequested,
    Actor,
    ErrorList,
    Severity,
    StatusRequest,
    StatusResponse,
)


class Dialect(StrEnum):
    """The three wire formats. Only `wire/` acts on it; elsewhere it is a label."""

    EBMS2 = "ebms2"
    MS_09X = "ms-0.9x"
    RM_078 = "rm-0.78"


class MessageKind(StrEnum):
    """What a message is for. Everything but NORMAL is a signal between handlers."""

    NORMAL = "Normal"
    ACKNOWLEDGMENT = "Acknowledgment"
    ERROR = "MessageError"
    STATUS_REQUEST = "StatusRequest"
    STATUS_RESPONSE = "StatusResponse"
    PING = "Ping"
    PONG = "Pong"


ANSWERS = frozenset(
    {
        MessageKind.ACKNOWLEDGMENT,
        MessageKind.ERROR,
        MessageKind.STATUS_RESPONSE,
        MessageKind.PONG,
    }
)
"""What only answers another message: nothing is ever sent in reply to it, an error least of all
(ACK-9). A failure notice that is itself reliable is an ERROR and acknowledged all the same."""


class Message(Struct, frozen=True):
    """One message as values. The bytes it came in or goes out as are kept beside it."""

    dialect: Dialect
    kind: MessageKind
    header: Header
    # Oldest hop first; the last one describes the hop just made (HDR-5).
    routing: tuple[RoutingHeader, ...] = ()
    # ebMS 2.0 MessageOrder: a number for the whole way, not for one hop.
    order: SequenceNumber | None = None
    ack_requested: tuple[AckRequested, ...] = ()
    acknowledgments: tuple[Acknowledgment, ...] = ()
    error_list: ErrorList | None = None
    status_request: StatusRequest | None = None
    status_response: StatusResponse | None = None
    manifest: tuple[Reference, ...] = ()
    payloads: tuple[Payload, ...] = ()

    @property
    def last_hop(self) -> RoutingHeader | None:
        """The RoutingHeader of the hop just made, if the dialect has one."""
        return self.routing[-1] if self.routing else None

    @property
    def sequence(self) -> SequenceNumber | None:
        """The number that orders this message: of the conversation, else of the hop."""
        if self.order is not None:
            return self.order
        return self.routing[-1].sequence if self.routing else None

    @property
    def reliable(self) -> bool:
        """Whether this message runs the reliable protocol (RM-4, RM-5; ebMS 2.0 §6.6).

        In ebMS 2.0 that is any message that asks for an acknowledgement.
        """
        if self.kind is not MessageKind.NORMAL and self.kind is not MessageKind.ERROR:
            return False
        if self.header.semantics is DeliverySemantics.ONCE_AND_ONLY_ONCE:
            return True
        return bool(self.ack_requested)

    def asks_ack_of(self, actor: Actor) -> AckRequest:
        """What kind of Acknowledgment element the message asks of that handler."""
        for request in self.ack_requested:
            if request.actor is actor:
                return AckRequest.SIGNED if request.signed else AckRequest.UNSIGNED
        if actor is Actor.NEXT_MSH and self.routing:
            return self.routing[-1].ack_requested
        if actor is Actor.TO_PARTY_MSH and self.header.delivery_receipt_requested is not None:
            return self.header.delivery_receipt_requested
        return AckRequest.NONE

    @property
    def failed(self) -> bool:
        """Whether the message reports an error of severity Error."""
        return self.error_list is not None and self.error_list.highest_severity is Severity.ERROR
