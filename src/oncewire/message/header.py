"""The header that the From Party's handler writes and no hub may change."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from oncewire.errors import InvalidValue
from oncewire.message.ids import Party, PartyId, Service, check_id
from oncewire.message.instant import Instant

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


class Split(Struct, frozen=True, gc=False):
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


class Header(Struct, frozen=True, gc=False):
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


# SequenceNumber: a message's place in its stream, and whether the stream was restarted.

SEQUENCE_NUMBER_MAX = 4_294_967_295
"""The largest number any dialect knows (v0-078 Table 2-2); the agreed range is narrower."""


class SequenceStatus(StrEnum):
    """Whether this number belongs to the first window after a reset (slides, SEQ-13)."""

    RESET = "Reset"
    CONTINUE = "Continue"


class SequenceNumber(Struct, frozen=True, gc=False):
    """A number and its status. The rm-0.78 dialect has no status: `None` there."""

    number: int
    status: SequenceStatus | None = SequenceStatus.CONTINUE

    def __post_init__(self) -> None:
        if not 0 <= self.number <= SEQUENCE_NUMBER_MAX:
            raise InvalidValue(
                f"SequenceNumber {self.number} lies outside 0..{SEQUENCE_NUMBER_MAX}",
                remedy="use a number of the agreed sequence range",
            )


# RoutingHeader: one hop of a message's way, the only part that differs between hops.


class RoutingHeader(Struct, frozen=True, gc=False):
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


# Trials: messages between handlers that try an agreement out and carry no business.
#
# They have a service of their own, and a MessageId that says the same, so that a count of messages
# needs only the id. One without the other is refused, and so is a trial in parts, or a document
# whose SplitId is such an id: no business hides behind a trial's name.

TRIAL_SERVICE = Service("urn:oncewire:trial")
TRIAL_ACTION = "Trial"
TRIAL_MARK = "oncewire-trial-"
"""How the MessageId of a trial begins."""

PROBE_MARK = "oncewire-probe-"
"""How the MessageId of a Ping begins that no handler waits for: a command of the same party sent
it, and its Pong may come to the handler."""


def is_trial(message_id: str) -> bool:
    """Whether a message of that id is a trial."""
    return message_id.startswith(TRIAL_MARK)


def is_named_rightly(message_id: str, service: Service | None) -> bool:
    """Whether id and service agree on what a message is."""
    return is_trial(message_id) is (service == TRIAL_SERVICE)
