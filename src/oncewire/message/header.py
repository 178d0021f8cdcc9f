"""The header that the From Party's handler writes and nobody on the way may change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from oncewire.errors import InvalidValue
from oncewire.message.ids import Party, Service, check_id
from oncewire.message.instant import Instant
from oncewire.message.quick import quick

SPLIT_TOTAL_MAX = 1_000_000
"""More parts than this is a mistake or an attack: a part is at least kilobytes."""


class DeliverySemantics(StrEnum):
    """What the From Party asks of the two handlers (C1: one meaning, four spellings).

    `ONCE_AND_ONLY_ONCE` is v0-078's AtMostOnce and the chapters' OnceAndOnlyOnce;
    `BEST_EFFORT` is Unspecified and BestEffort. The words on the wire are the dialect's.
    """

    ONCE_AND_ONLY_ONCE = "OnceAndOnlyOnce"
    BEST_EFFORT = "BestEffort"


class SyncReplyMode(StrEnum):
    """What comes back on the same connection (C31): the five values of CPPA 2.0.

    The sync paper's AcksOnly, ResponseOnly and AcksAndResponse are the second, fourth
    and fifth of them.
    """

    NONE = "none"
    MSH_SIGNALS_ONLY = "mshSignalsOnly"
    SIGNALS_ONLY = "signalsOnly"
    RESPONSE_ONLY = "responseOnly"
    SIGNALS_AND_RESPONSE = "signalsAndResponse"


class AckRequest(StrEnum):
    """Whether an Acknowledgment element is asked for, and of which kind (ACK-13)."""

    NONE = "None"
    UNSIGNED = "Unsigned"
    SIGNED = "Signed"


class ReliableMessagingMethod(StrEnum):
    """Who provides the reliability: this protocol or the transport (RM-5, RM-7)."""

    EBXML = "ebXML"
    TRANSPORT = "Transport"


@dataclass(frozen=True, slots=True)
class Split:
    """This message carries one part of a larger document (slides; BIG-4, BIG-5)."""

    split_id: str
    number: int
    total: int

    def __post_init__(self) -> None:
        check_id(self.split_id, "SplitId")
        if not 1 <= self.total <= SPLIT_TOTAL_MAX:
            raise InvalidValue(
                f"SplitNumber Total {self.total} lies outside 1..{SPLIT_TOTAL_MAX}",
                remedy="split into fewer, larger parts",
            )
        if not 1 <= self.number <= self.total:
            raise InvalidValue(
                f"SplitNumber {self.number} lies outside 1..{self.total}",
                remedy="number the parts from 1 to Total",
            )


@quick
@dataclass(frozen=True, slots=True)
class Header:
    """Header and MessageData in one value; None where the message does not say.

    Service and Action are missing only on rm-0.78 acknowledgements and errors (ACK-6).
    """

    from_party: Party
    to_party: Party
    cpa_id: str
    conversation_id: str
    service: Service | None
    action: str | None
    message_id: str
    timestamp: Instant
    ref_to_message_id: str | None = None
    time_to_live: Instant | None = None
    # None means the header is silent and the agreement decides (CPA-8).
    semantics: DeliverySemantics | None = None
    # ebMS 2.0 tells duplicate elimination apart from acknowledgement; drafts do not.
    duplicate_elimination: bool = False
    delivery_receipt_requested: AckRequest | None = None
    sync_reply: SyncReplyMode | None = None
    # SyncReply (2.0) and True (v0.91) ask for "what the agreement says" (C31).
    sync_reply_as_agreed: bool = False
    split: Split | None = None
    descriptions: tuple[tuple[str, str], ...] = ()
    # Foreign elements at the end of the header, as their exact bytes (HDR-7).
    foreign: tuple[bytes, ...] = ()

    @property
    def asks_sync_reply(self) -> bool:
        """Whether it says anything of what is to come back on its connection (SYNC-9)."""
        return self.sync_reply is not None or self.sync_reply_as_agreed

    def __post_init__(self) -> None:
        check_id(self.cpa_id, "CPAId")
        check_id(self.conversation_id, "ConversationId")
        check_id(self.message_id, "MessageId")
        if self.action is not None:
            check_id(self.action, "Action")
        if self.ref_to_message_id is not None:
            check_id(self.ref_to_message_id, "RefToMessageId")
