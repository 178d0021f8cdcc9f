"""A recorded exchange beside ours: what another handler answered, and what we would have.

`oncewire replay` runs this over the archive of another handler. Ids and times differ
by nature and are not compared; everything an answer says is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from oncewire.errors import EbxmlError, SoapFault
from oncewire.message.envelope import (
    ANSWERS,
    AckRequest,
    Actor,
    Dialect,
    Message,
    MessageKind,
    MessageStatus,
)
from oncewire.message.form import Form, Validation
from oncewire.message.instant import Instant
from oncewire.wire import answers, codec
from oncewire.wire.inspection.capture import Capture, CaptureKind
from oncewire.wire.limits import DEFAULT_LIMITS, Limits
from oncewire.wire.parcel import Received
from oncewire.wire.refusal import ReadFault


class AnswerKind(StrEnum):
    """What came back, or would."""

    NOTHING = "nothing"
    MESSAGE = "message"
    FAULT = "SOAP Fault"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer in the words that are compared."""

    kind: AnswerKind
    message: Message | None = None
    fault_code: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """One field on which the two answers differ."""

    field: str
    theirs: str
    ours: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """One exchange: the request's id, both answers, and where they part."""

    message_id: str | None
    theirs: Answer
    ours: Answer
    differences: tuple[Difference, ...]


def compare(
    request: Capture,
    answer: Capture | None,
    form: Form,
    *,
    now: Instant,
    limits: Limits = DEFAULT_LIMITS,
) -> Comparison:
    """Both answers to a recorded request and their differences."""
    message_id: str | None
    try:
        received = _read(request, limits, form.validation)
        message_id = received.message.header.message_id
        ours = our_answer(received.message, form, now)
    except ReadFault as fault:
        message_id = fault.known.message_id
        ours = our_refusal(fault, form, now)
    theirs = their_answer(answer, limits)
    return Comparison(message_id, theirs, ours, tuple(differences(theirs, ours)))


def _read(capture: Capture, limits: Limits, validation: Validation) -> Received:
    if capture.kind is CaptureKind.XML:
        return codec.read_header(capture.parcel.body, None, limits, validation=validation)
    return codec.read(capture.parcel, limits, validation=validation)


def our_answer(message: Message, form: Form, now: Instant) -> Answer:
    """What the form of the dialect has us answer to a message that was taken."""
    envelope = answers.Envelope("ours@replay.oncewire", now, form)
    kind = message.kind
    if kind is MessageKind.PING:
        return Answer(AnswerKind.MESSAGE, answers.pong_for(message, envelope))
    if kind is MessageKind.STATUS_REQUEST:
        # An archive has no store behind it: of no message is anything known.
        status = MessageStatus.NOT_RECOGNIZED
        return Answer(AnswerKind.MESSAGE, answers.status_response_for(message, status, envelope))
    if kind is not MessageKind.NORMAL or not message.reliable:
        return Answer(AnswerKind.NOTHING)
    # As the To Party where it is asked, else as the hop that is (§6.3.2.1).
    actor = Actor.TO_PARTY_MSH
    if message.dialect is Dialect.EBMS2 and message.asks_ack_of(actor) is AckRequest.NONE:
        actor = Actor.NEXT_MSH
    return Answer(AnswerKind.MESSAGE, answers.acknowledgment_for(message, envelope, actor=actor))


def our_refusal(fault: ReadFault, form: Form, now: Instant) -> Answer:
    """What the form has us answer to a message that was refused."""
    known = fault.known
    # Nothing answers these (ACK-9, §4.2.4).
    if known.kind in ANSWERS:
        return Answer(AnswerKind.NOTHING, problem=fault.problem)
    if not fault.answerable or known.from_party is None:
        code = fault.error.faultcode if isinstance(fault.error, SoapFault) else "Client"
        return Answer(AnswerKind.FAULT, fault_code=code, problem=fault.problem)
    envelope = answers.Envelope(
        "ours@replay.oncewire", now, form, own=known.to_party or known.from_party
    )
    answer = answers.error_message_for(known, fault.ebxml_errors, envelope)
    return Answer(AnswerKind.MESSAGE, answer, problem=fault.problem)


def their_answer(capture: Capture | None, limits: Limits = DEFAULT_LIMITS) -> Answer:
    """The recorded answer, as far as it can be read."""
    if capture is None or not capture.parcel.body.strip():
        return Answer(AnswerKind.NOTHING)
    try:
        return Answer(AnswerKind.MESSAGE, _read(capture, limits, Validation.OFF).message)
    except ReadFault as fault:
        if fault.fault is not None:
            return Answer(AnswerKind.FAULT, fault_code=fault.fault.code)
        return Answer(AnswerKind.UNREADABLE, problem=fault.problem)
    except EbxmlError as error:
        return Answer(AnswerKind.UNREADABLE, problem=error.problem)


def differences(theirs: Answer, ours: Answer) -> Iterator[Difference]:
    """Each field on which the answers differ, most telling first."""
    # Of answers of two kinds no field can be compared.
    if theirs.kind is not ours.kind:
        yield Difference("answer", theirs.kind.value, ours.kind.value)
        return
    if theirs.fault_code != ours.fault_code:
        yield Difference("faultcode", theirs.fault_code, ours.fault_code)
    if theirs.message is None or ours.message is None:
        return
    for (field, first), (_, second) in zip(
        _compared_fields(theirs.message), _compared_fields(ours.message), strict=True
    ):
        if first != second:
            yield Difference(field, first, second)


def _compared_fields(message: Message) -> Iterator[tuple[str, str]]:
    header = message.header
    yield "kind", message.kind.value
    yield "dialect", message.dialect.value
    yield "from", ", ".join(str(party_id) for party_id in header.from_party.ids)
    yield "to", ", ".join(str(party_id) for party_id in header.to_party.ids)
    yield "cpa_id", header.cpa_id
    yield "conversation_id", header.conversation_id
    yield "service", str(header.service or "")
    yield "action", header.action or ""
    yield "ref_to_message_id", header.ref_to_message_id or ""
    given = [
        f"{acknowledgment.actor.name} of {acknowledgment.ref_to_message_id}"
        for acknowledgment in message.acknowledgments
    ]
    yield "acknowledgments", ", ".join(given)
    errors = message.error_list.errors if message.error_list is not None else ()
    yield "errors", ", ".join(f"{error.code}/{error.severity.value}" for error in errors)
    yield "error_locations", ", ".join(error.location for error in errors)
    status = message.status_response
    yield "status", status.status.value if status is not None else ""
