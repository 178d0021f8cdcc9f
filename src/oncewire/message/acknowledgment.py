"""Asking for an acknowledgement, and the acknowledgement itself."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from oncewire.message.ids import Party, check_id
from oncewire.message.instant import Instant
from oncewire.message.quick import quick


class Actor(StrEnum):
    """Which handler a request or an acknowledgement concerns (ebMS 2.0 §6.3)."""

    TO_PARTY_MSH = "urn:oasis:names:tc:ebxml-msg:actor:toPartyMSH"
    NEXT_MSH = "urn:oasis:names:tc:ebxml-msg:actor:nextMSH"


class AcknowledgmentType(StrEnum):
    """The typed variant's two kinds (ACK-19); missing means DeliveryReceipt."""

    DELIVERY_RECEIPT = "DeliveryReceipt"
    INTERMEDIATE_ACK = "IntermediateAck"


@quick
@dataclass(frozen=True, slots=True)
class AckRequested:
    """One request: from whom, and whether it must be signed."""

    actor: Actor = Actor.TO_PARTY_MSH
    signed: bool = False


@dataclass(frozen=True, slots=True)
class SignedDigest:
    """One ds:Reference of a signed message, repeated in a signed acknowledgement.

    `xml` keeps the element's own bytes when it was received: a copy must stay a copy.
    """

    uri: str
    digest_method: str
    digest_value: bytes
    xml: bytes = b""


@quick
@dataclass(frozen=True, slots=True)
class Acknowledgment:
    """The receiving handler has the message in its store; says nothing of the business."""

    timestamp: Instant
    ref_to_message_id: str
    from_party: Party | None = None
    actor: Actor = Actor.TO_PARTY_MSH
    signed: bool = False
    type: AcknowledgmentType | None = None
    references: tuple[SignedDigest, ...] = ()

    def __post_init__(self) -> None:
        check_id(self.ref_to_message_id, "Acknowledgment RefToMessageId")
