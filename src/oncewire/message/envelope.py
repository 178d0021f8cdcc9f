"""Message: everything one message says, header and signals, in no particular wire format."""

from __future__ import annotations

import hashlib
import io
from enum import StrEnum
from typing import BinaryIO

from msgspec import Struct

from oncewire.errors import EBXML_ERRORS, EbxmlError, InvalidValue, TransientError
from oncewire.message.file_name import disposition, name_in
from oncewire.message.form import AckRequest, Dialect, ReliableMessagingMethod, SyncReplyMode
from oncewire.message.ids import Party, PartyId, Service, check_id, check_ids, check_text
from oncewire.message.instant import Instant

# ErrorList: what went wrong with a message, in the codes of the specifications.


class Severity(StrEnum):
    """Warning: the message may still live. Error: it does not."""

    WARNING = "Warning"
    ERROR = "Error"


class ErrorClass(StrEnum):
    """The four kinds of v0-078 §2.6.1, by which the sender recovers (ERR-1).

    `SEQUENCE` is the ebXML Messaging Error that names an invalid SequenceNumber: it is
    the one error to which the sender answers by sending the missing message (SEQ-10).
    """

    COMMUNICATION = "Communication Protocol Errors"
    MESSAGING = "ebXML Messaging Errors"
    TIMEOUT = "Timeout"
    TRANSIENT = "Transient Errors"
    SEQUENCE = "Invalid Sequence Number"


CODE_CONTEXT = "urn:oasis:names:tc:ebxml-msg:service:errors"
SEQUENCE_LOCATION = "SequenceNumber"
COMMUNICATION_CODE = "CommunicationProtocolError"


class Error(Struct, frozen=True, gc=False):
    """One Error element (ebMS 2.0 §4.2.3.2): code, severity, where, and in words."""

    code: str
    severity: Severity = Severity.ERROR
    location: str = ""
    description: str = ""
    code_context: str = CODE_CONTEXT
    min_retry_secs: int | None = None

    def __post_init__(self) -> None:
        check_id(self.code, "errorCode")
        check_text(self.location, "Error location")
        check_text(self.description, "Error description")
        if self.min_retry_secs is not None and self.min_retry_secs < 0:
            raise InvalidValue(
                f"MinRetrySecs {self.min_retry_secs} is negative",
                remedy="give the seconds to pause, 0 or more",
            )

    @classmethod
    def of(cls, error: EbxmlError) -> Error:
        """The element that answers a raised error."""
        return cls(
            code=error.code,
            severity=Severity(error.severity),
            location=error.location[:4096],
            description=error.problem[:1024],
            min_retry_secs=error.min_retry_secs if isinstance(error, TransientError) else None,
        )

    @property
    def error_class(self) -> ErrorClass:
        """The class of the error, by which the sender recovers."""
        if self.code == TransientError.code:
            return ErrorClass.TRANSIENT
        if self.code == COMMUNICATION_CODE:
            return ErrorClass.COMMUNICATION
        if self.code == "Inconsistent" and SEQUENCE_LOCATION in self.location:
            return ErrorClass.SEQUENCE
        return ErrorClass.MESSAGING

    @property
    def known(self) -> bool:
        """Whether the code is one of the nine of ebMS 2.0."""
        return self.code in EBXML_ERRORS


class ErrorList(Struct, frozen=True, gc=False):
    """All errors of one report; its severity is that of the worst (ebMS 2.0 §4.2.3.1)."""

    errors: tuple[Error, ...]

    def __post_init__(self) -> None:
        if not self.errors:
            raise InvalidValue("an ErrorList is empty", remedy="report at least one Error")

    @property
    def highest_severity(self) -> Severity:
        """Error if any error is one, else Warning."""
        if any(error.severity is Severity.ERROR for error in self.errors):
            return Severity.ERROR
        return Severity.WARNING


# Asking for an acknowledgement, and the acknowledgement itself.


class Actor(StrEnum):
    """Which handler a request or an acknowledgement concerns (ebMS 2.0 §6.3)."""

    TO_PARTY_MSH = "urn:oasis:names:tc:ebxml-msg:actor:toPartyMSH"
    NEXT_MSH = "urn:oasis:names:tc:ebxml-msg:actor:nextMSH"


class AcknowledgmentType(StrEnum):
    """The typed variant's two kinds (ACK-19); missing means DeliveryReceipt."""

    DELIVERY_RECEIPT = "DeliveryReceipt"
    INTERMEDIATE_ACK = "IntermediateAck"


class AckRequested(Struct, frozen=True, gc=False):
    """One request: from whom, and whether it must be signed."""

    actor: Actor = Actor.TO_PARTY_MSH
    signed: bool = False


class SignedDigest(Struct, frozen=True, gc=False):
    """One ds:Reference of a signed message, repeated in a signed acknowledgement.

    `xml` keeps the element's own bytes when it was received: a copy must stay a copy.
    """

    uri: str
    digest_method: str
    digest_value: bytes
    xml: bytes = b""


class Acknowledgment(Struct, frozen=True, gc=False):
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


# The Message Status service: what became of a message, asked of the other handler.


class MessageStatus(StrEnum):
    """The five answers of ebMS 2.0 §7.1.2: the other handler does not tell us; it does not know
    the message; it has it; its application has it too; it passed it on."""

    UNAUTHORIZED = "UnAuthorized"
    NOT_RECOGNIZED = "NotRecognized"
    RECEIVED = "Received"
    PROCESSED = "Processed"
    FORWARDED = "Forwarded"


class StatusRequest(Struct, frozen=True, gc=False):
    """Asks for the status of one message."""

    ref_to_message_id: str

    def __post_init__(self) -> None:
        check_id(self.ref_to_message_id, "StatusRequest RefToMessageId")


class StatusResponse(Struct, frozen=True, gc=False):
    """What the other handler says of a message of ours.

    `ref_to_message_id`: the message. `status`: what became of it.
    `timestamp`: when it was received, in microseconds since 1970; None when it was not.
    """

    ref_to_message_id: str
    status: MessageStatus
    timestamp: Instant | None = None

    def __post_init__(self) -> None:
        check_id(self.ref_to_message_id, "StatusResponse RefToMessageId")


# The header that the From Party's handler writes and no hub may change.

SPLIT_TOTAL_MAX = 1_000_000
"""More parts than this is a mistake or an attack: a part is at least kilobytes."""


class DeliverySemantics(StrEnum):
    """What the From Party asks of the two handlers (C1: one meaning, four spellings).

    `ONCE_AND_ONLY_ONCE` is v0-078's AtMostOnce and the chapters' OnceAndOnlyOnce;
    `BEST_EFFORT` is Unspecified and BestEffort. The words on the wire are the dialect's.
    """

    ONCE_AND_ONLY_ONCE = "OnceAndOnlyOnce"
    BEST_EFFORT = "BestEffort"


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
        ids = (self.cpa_id, self.conversation_id, self.message_id)
        check_ids(_HEADER_IDS, (*ids, self.action, self.ref_to_message_id), needed=3)


_HEADER_IDS = ("CPAId", "ConversationId", "MessageId", "Action", "RefToMessageId")


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
        uris = (self.sender_uri, self.receiver_uri, self.error_uri)
        check_ids(_HOP_IDS, (*uris, self.msh_id), needed=0)
        if (self.sender_uri or self.sender_id) is None:
            raise InvalidValue(
                "a RoutingHeader names no sender", remedy="give SenderURI or SenderID"
            )
        if (self.receiver_uri or self.receiver_id) is None:
            raise InvalidValue(
                "a RoutingHeader names no receiver", remedy="give ReceiverURI or ReceiverID"
            )


_HOP_IDS = ("SenderURI", "ReceiverURI", "ErrorURI", "MessageServiceId")


# Payloads, and the Manifest that names them.


class Compression(Struct, frozen=True, gc=False):
    """How a payload document was compressed, and its size before (BIG-1;
    docs/explanation/decisions.md#extensions)."""

    encoding: str
    original_size: int | None = None


class Stretch(Struct, frozen=True, gc=False):
    """Which bytes of a payload a part of a split document has (BIG-3;
    docs/explanation/decisions.md#large-documents). What counts are the bytes that travel:
    compressed ones, where the payload is; size and digest are those of the whole."""

    offset: int
    size: int
    digest: str


class Reference(Struct, frozen=True, gc=False):
    """One entry of the Manifest. `href` is `cid:` for a part of this message."""

    href: str
    role: str | None = None
    id: str | None = None
    # (location, version) of each Schema element.
    schemas: tuple[tuple[str, str | None], ...] = ()
    descriptions: tuple[tuple[str, str], ...] = ()
    compression: Compression | None = None
    # Foreign children, as their exact bytes.
    foreign: tuple[bytes, ...] = ()
    stretch: Stretch | None = None

    def __post_init__(self) -> None:
        check_text(self.href, "Reference href", 1024)
        if not self.href:
            raise InvalidValue("a Reference has no xlink:href", remedy="name the part it refers to")

    @property
    def content_id(self) -> str | None:
        """The Content-ID it names, without brackets; None for another kind of URI."""
        return self.href[4:] if self.href[:4].lower() == "cid:" else None


class Payload(Struct, frozen=True):
    """One payload part. Its bytes are never changed, only carried.

    `content_id`: its name within the message.
    `media_type`: what it is: `application/xml`.
    `size`, `digest`: of the decoded bytes; the digest is a SHA-256 in hex.
    `data`: its bytes. An application always has them, and `open` reads them piece by piece;
    inside a handler a large one lies in the store's spool under `spooled`, and only size and
    digest are held in memory.
    `content_encoding`, `mime_headers`: what its part says besides, kept for the reader.
    """

    content_id: str
    media_type: str
    size: int
    digest: str
    data: bytes | None = None
    spooled: str | None = None
    content_encoding: str | None = None
    mime_headers: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        check_id(self.content_id, "Content-ID")
        check_text(self.media_type, "Content-Type of a payload", 1024)
        if self.size < 0:
            raise InvalidValue(
                f"payload size {self.size} is negative", remedy="give the decoded size in bytes"
            )

    @classmethod
    def of(cls, content_id: str, media_type: str, data: bytes, file_name: str = "") -> Payload:
        """A payload whose bytes are at hand; `file_name` is what its receiver may call it."""
        if not isinstance(data, bytes):
            raise InvalidValue(
                f"the content of payload {content_id!r} is no bytes: {repr(data)[:32]}",
                remedy="give its bytes; a text has to be encoded first",
            )
        digest = hashlib.sha256(data).hexdigest()
        headers = disposition(file_name) if file_name else ()
        return cls(content_id, media_type, len(data), digest, data, mime_headers=headers)

    @property
    def file_name(self) -> str:
        """What its sender calls it, safe to be a file's name; empty where it has no name. No
        signature covers it."""
        return name_in(self.mime_headers, self.media_type)

    def open(self) -> BinaryIO:
        """Its bytes as a file that is open for reading, from their beginning."""
        if self.data is None:
            raise InvalidValue(
                f"the bytes of payload {self.content_id!r} are not at hand",
                remedy="read them from the store's spool",
            )
        return io.BytesIO(self.data)


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
    {MessageKind.ACKNOWLEDGMENT, MessageKind.ERROR, MessageKind.STATUS_RESPONSE, MessageKind.PONG}
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
