"""Parcel: one message as a transport carries it, and what comes of reading it: the message as it
was received, or the fault that refuses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from msgspec import Struct

from oncewire.errors import (
    EbxmlError,
    Inconsistent,
    InvalidValue,
    OncewireError,
    SoapFault,
    ValueNotRecognized,
)
from oncewire.message.envelope import (
    ANSWERS,
    DeliverySemantics,
    Message,
    MessageKind,
    RoutingHeader,
)
from oncewire.message.form import Dialect
from oncewire.message.ids import Party, Service
from oncewire.wire.limits import encoding_of


class Parcel(Struct, frozen=True):
    """What a POST, a mail or a file holds: a Content-Type, a body, and other headers.

    `headers` are the transport's own (SOAPAction, MIME-Version, Subject). Content-Type is
    kept apart because nothing can be read without it.
    """

    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()

    def header(self, name: str) -> str | None:
        """The first header of that name, whatever its case."""
        wanted = name.lower()
        for key, value in self.headers:
            if key.lower() == wanted:
                return value
        return None


def as_file(parcel: Parcel, *, bare: bool = False) -> bytes:
    """The parcel as a file that `message decode` reads: with its headers, or the body alone."""
    if bare:
        return parcel.body
    lines = [f"Content-Type: {parcel.content_type}"]
    lines += [f"{name}: {value}" for name, value in parcel.headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + parcel.body


# Received: one message as it came, the values and the bytes side by side.


class PartPlace(NamedTuple):
    """Where in the body the content of a part lies, still encoded as it travelled."""

    offset: int
    length: int
    # Its Content-Transfer-Encoding.
    encoding: str = ""


class Received(Struct, frozen=True):
    """What a reader hands over. Hops are spliced into `envelope`, byte for byte."""

    message: Message
    parcel: Parcel
    # The root part, decoded, byte for byte.
    envelope: bytes
    dialect: Dialect
    # Oddities that were tolerated, in words.
    notes: tuple[str, ...] = ()
    # Where the header breaks the official schema; empty when it does not or is not checked.
    schema_problems: tuple[str, ...] = ()
    # Whether a ds:Signature is present; whether it holds is another module's question.
    signed: bool = False
    # Charset of the root part, when its MIME headers name one.
    charset: str | None = None
    # False while payloads are still arriving.
    complete: bool = True
    # False when the closing boundary was missing: the end may have been cut off.
    closed: bool = True
    # Characters that do not belong into base64 were skipped: whether they may be is agreed.
    odd_base64: bool = False
    # Content-ID, algorithm and digest of parts that passed by, where a signature names an
    # algorithm other than SHA-256.
    extra_digests: tuple[tuple[str, str, bytes], ...] = ()
    # Where each payload as it came lies in the parcel's body, in their order; None where it is
    # nowhere in one piece (a part of a container that is itself encoded).
    places: tuple[PartPlace | None, ...] = ()
    # Whether its header was read by a template; it says the same either way.
    by_template: bool = False

    @property
    def octets(self) -> bytes:
        """The root part for readers that do not know its charset, as those of signatures: these
        cover what is written, however that is encoded (Canonical XML §1.1)."""
        encoding, declared = encoding_of(self.envelope, self.charset)
        if declared or encoding == "utf-8":
            return self.envelope
        return self.envelope.decode(encoding, "replace").encode()


# ReadFault: a message that cannot be taken, and all that could still be read of it.
#
# An answer needs the parties, the agreement and the id of the message it answers. A reader that
# stopped at the first fault would know none of them, so it goes on, keeps what it can, and raises
# one `ReadFault` at the end that carries the faults and the facts.


# Fault: what a received SOAP Fault says.


@dataclass(frozen=True, slots=True)
class FaultDetail:
    """One error inside a Fault's detail, as NHS Spine writes them."""

    code: str
    severity: str = ""
    description: str = ""
    code_context: str = ""
    location: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """A received Fault: `code` is one of the four of SOAP 1.1 §4.4.1, without prefix."""

    code: str
    string: str
    actor: str | None = None
    details: tuple[FaultDetail, ...] = ()


class PartialHeader(Struct, frozen=True, gc=False):
    """The facts an answer is built from; None where they could not be read."""

    dialect: Dialect | None = None
    kind: MessageKind | None = None
    from_party: Party | None = None
    to_party: Party | None = None
    cpa_id: str | None = None
    conversation_id: str | None = None
    service: Service | None = None
    action: str | None = None
    message_id: str | None = None
    ref_to_message_id: str | None = None
    semantics: DeliverySemantics | None = None
    # Whether the sender waits for the answer on the same connection.
    sync_reply: bool = False
    last_hop: RoutingHeader | None = None

    @classmethod
    def of(cls, message: Message) -> PartialHeader:
        """The facts of a message that was read whole."""
        header = message.header
        return cls(
            message.dialect,
            message.kind,
            header.from_party,
            header.to_party,
            header.cpa_id,
            header.conversation_id,
            header.service,
            header.action,
            header.message_id,
            header.ref_to_message_id,
            header.semantics,
            header.asks_sync_reply,
            message.last_hop,
        )

    @property
    def answerable(self) -> bool:
        """Whether an error message can be addressed, and may be sent at all.

        Nothing answers an answer, and no error an error (ACK-9, §4.2.4): two handlers would go on
        for ever.
        """
        # An error must say which message it is about (§4.2.4, ERR-3).
        if self.dialect is None or self.message_id is None:
            return False
        if self.kind in ANSWERS:
            return False
        # With the agreement's name alone, the agreement says who to answer.
        known = (self.from_party, self.last_hop, self.cpa_id)
        return any(party is not None for party in known)


class ReadFault(OncewireError):
    """The message is refused; `error` is the first reason, `errors` are all of them.

    `known` is what could be read, `envelope` the header's bytes when they were complete,
    `fault` the SOAP Fault when the "message" was one.
    """

    def __init__(
        self,
        errors: tuple[EbxmlError | SoapFault, ...],
        known: PartialHeader | None = None,
        envelope: bytes = b"",
        notes: tuple[str, ...] = (),
        fault: Fault | None = None,
    ) -> None:
        super().__init__(errors[0].problem, remedy=errors[0].remedy)
        self.errors = errors
        self.fault = fault
        self.known = known if known is not None else PartialHeader()
        self.envelope = envelope
        self.notes = notes

    @property
    def error(self) -> EbxmlError | SoapFault:
        """The first fault found: the one the answer leads with."""
        return self.errors[0]

    @property
    def ebxml_errors(self) -> tuple[EbxmlError, ...]:
        """The faults that an ErrorList can report."""
        return tuple(error for error in self.errors if isinstance(error, EbxmlError))

    @property
    def answerable(self) -> bool:
        """Whether an ErrorList answers it; otherwise it is a SOAP Fault or an HTTP status."""
        return isinstance(self.error, EbxmlError) and self.known.answerable


class Findings:
    """One reading of one header: the message, or faults to answer and facts to keep.

    Facts are class attributes until they are found, which makes a reading cheap to begin.
    """

    dialect: Dialect | None = None
    kind: MessageKind | None = None
    from_party: Party | None = None
    to_party: Party | None = None
    cpa_id: str | None = None
    conversation_id: str | None = None
    service: Service | None = None
    action: str | None = None
    message_id: str | None = None
    ref_to_message_id: str | None = None
    semantics: DeliverySemantics | None = None
    sync_reply: bool = False
    last_hop: RoutingHeader | None = None
    # The message without its payloads, once it is whole, and whether a signature is there.
    message: Message | None = None
    signed: bool = False

    def __init__(self) -> None:
        self.faults: list[EbxmlError | SoapFault] = []
        self.notes: list[str] = []

    def fault(self, error: EbxmlError | SoapFault) -> None:
        """Keep a fault and go on reading."""
        self.faults.append(error)

    def inconsistent(self, problem: str, location: str, remedy: str = "") -> None:
        """Two things of the message, or a thing and its rule, contradict each other."""
        self.faults.append(Inconsistent(problem, location=location, remedy=remedy))

    def not_recognized(self, problem: str, location: str, remedy: str = "") -> None:
        """A value is unknown here."""
        self.faults.append(ValueNotRecognized(problem, location=location, remedy=remedy))

    def invalid(self, problem: InvalidValue, location: str) -> None:
        """A value that breaks its own rule becomes a fault of the message at that place."""
        self.inconsistent(problem.problem, location, problem.remedy)

    def twice(self, name: str, location: str) -> None:
        """An element stands more often than it may, so that it is unknown which one is meant."""
        location = location[:256]
        # Said once, however often it stands there, and however often that is found.
        told = {getattr(fault, "location", "") for fault in self.faults}
        if location not in told:
            remedy = f"send one {name[:64]}"
            self.inconsistent(f"{name[:64]} stands more than once", location, remedy)

    def note(self, oddity: str) -> None:
        """Keep an oddity that was tolerated."""
        self.notes.append(oddity)

    def known(self) -> PartialHeader:
        """The facts so far, as a value."""
        return PartialHeader(*[getattr(self, name) for name in PartialHeader.__struct_fields__])

    def refusal(self, envelope: bytes = b"") -> ReadFault:
        """The one error that carries every fault and every fact."""
        return ReadFault(tuple(self.faults), self.known(), envelope, tuple(self.notes))
