"""ErrorList: what went wrong with a message, in the codes of the specifications."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from oncewire.errors import EBXML_ERRORS, EbxmlError, InvalidValue, TransientError
from oncewire.message.ids import Party, check_id, check_text
from oncewire.message.instant import Instant


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
