"""Messages for people to look at: taken from files, told in plain values, held beside another's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from oncewire.errors import EbxmlError, MimeProblem, SoapFault
from oncewire.message.envelope import (
    ANSWERS,
    Acknowledgment,
    Actor,
    Error,
    Header,
    Message,
    MessageKind,
    MessageStatus,
    Reference,
    RoutingHeader,
    SequenceNumber,
)
from oncewire.message.form import AckRequest, Dialect, Form, Validation
from oncewire.message.ids import Party
from oncewire.message.instant import Instant, format_instant
from oncewire.wire import answers, codec
from oncewire.wire.limits import DEFAULT_LIMITS, beyond
from oncewire.wire.mime.multipart import header_lines
from oncewire.wire.parcel import Parcel, PartialHeader, ReadFault, Received
from oncewire.wire.security import signature
from oncewire.wire.security.references import signature_parts

# A file's bytes to a Parcel: bare XML, a multipart, a mail, or a recorded HTTP exchange.

# Bounded, so that no file makes a pattern look far.
_REQUEST = re.compile(rb"[A-Z]{3,10} \S{1,4096} HTTP/\d(?:\.\d)?\r?\n")
_RESPONSE = re.compile(rb"HTTP/\d(?:\.\d)? (\d{3})[^\n]{0,256}\n")
_HEADER_LINE = re.compile(rb"[!-9;-~]{1,128}:")


class CaptureKind(StrEnum):
    """What the file turned out to be."""

    XML = "xml"
    MULTIPART = "multipart"
    MAIL = "mail"
    HTTP_REQUEST = "http request"
    HTTP_RESPONSE = "http response"


@dataclass(frozen=True, slots=True)
class Capture:
    """A parcel and what it was recorded as."""

    kind: CaptureKind
    parcel: Parcel
    # Of an HTTP response.
    status: int | None = None


def open_capture(data: bytes) -> Capture:
    """The parcel in a file; ReadFault when it is none of the known kinds."""
    try:
        return _open(data)
    except MimeProblem as error:
        raise ReadFault((error,)) from None


def _open(data: bytes) -> Capture:
    # From the most telling beginning to the least: a status line cannot be anything else, a header
    # line nearly anything.
    response = _RESPONSE.match(data)
    if response is not None:
        parcel = _http(data[response.end() :])
        return Capture(CaptureKind.HTTP_RESPONSE, parcel, int(response.group(1)))
    request = _REQUEST.match(data)
    if request is not None:
        return Capture(CaptureKind.HTTP_REQUEST, _http(data[request.end() :]))
    start = data[:64].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start[:1] == b"<" or data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return Capture(CaptureKind.XML, Parcel("text/xml", data))
    if start[:2] == b"--":
        return Capture(CaptureKind.MULTIPART, _bare_multipart(data))
    if _HEADER_LINE.match(data):
        headers, body = _head(data)
        return Capture(CaptureKind.MAIL, _parcel(headers, body))
    raise ReadFault(
        (
            SoapFault(
                "Client", "the content is neither XML nor MIME", remedy="send an ebXML message"
            ),
        )
    )


def _bare_multipart(data: bytes) -> Parcel:
    """A multipart whose Content-Type was not recorded: its first line is the boundary."""
    body = data.lstrip(b"\r\n")
    line = body[:512].split(b"\n", 1)[0].rstrip(b"\r \t")
    # Quoted for the Content-Type that is made of it here (RFC 2045 §5.1).
    boundary = line[2:].decode("latin-1").replace("\\", "\\\\").replace('"', '\\"')
    return Parcel(f'multipart/related; type="text/xml"; boundary="{boundary}"', body)


def _head(data: bytes) -> tuple[list[tuple[str, str]], bytes]:
    lines: list[bytes] = []
    position = 0
    while True:
        newline = data.find(b"\n", position)
        line = data[position : newline if newline >= 0 else len(data)].rstrip(b"\r")
        position = newline + 1 if newline >= 0 else len(data)
        if not line:
            return header_lines(lines), data[position:]
        lines.append(line)
        # A mail has passed many servers, and each has signed its name.
        if (
            len(lines) > 4 * DEFAULT_LIMITS.part_header_lines
            or len(line) > DEFAULT_LIMITS.part_header_bytes
        ):
            raise beyond(
                "the message has too many header lines",
                "part_header_lines",
                4 * DEFAULT_LIMITS.part_header_lines,
                mime=True,
            )
        if newline < 0:
            return header_lines(lines), b""


def _parcel(headers: list[tuple[str, str]], body: bytes) -> Parcel:
    content_type = ""
    others = []
    for name, value in headers:
        if name.lower() == "content-type" and not content_type:
            content_type = value
        else:
            others.append((name, value))
    # A saved body of a POST has lost its Content-Type.
    return Parcel(content_type or "text/xml", body, tuple(others))


def _http(data: bytes) -> Parcel:
    headers, body = _head(data)
    parcel = _parcel(headers, body)
    encoding = parcel.header("transfer-encoding") or ""
    # Recorded on the wire, before the server put it together (RFC 2616 §3.6.1).
    if "chunked" in encoding.lower():
        parcel = Parcel(parcel.content_type, _dechunked(body), parcel.headers)
    return parcel


def _dechunked(data: bytes) -> bytes:
    pieces: list[bytes] = []
    position = 0
    while True:
        newline = data.find(b"\n", position, position + 256)
        digits = data[position : max(newline, position)].split(b";", 1)[0].strip()
        if newline < 0 or not re.fullmatch(rb"[0-9A-Fa-f]{1,15}", digits):
            raise MimeProblem(
                "the recorded chunks are damaged",
                location="Transfer-Encoding",
                remedy="record the exchange again",
            )
        size = int(digits, 16)
        position = newline + 1
        if size == 0:
            return b"".join(pieces)
        pieces.append(data[position : position + size])
        position += size
        if data[position : position + 1] == b"\r":
            position += 1
        if data[position : position + 1] == b"\n":
            position += 1


Values: TypeAlias = dict[str, Any]


def describe_bytes(
    data: bytes, *, validation: Validation = Validation.REPORT, signature_state: str | None = None
) -> Values:
    """Everything a file of any known kind says, or the fault it would be answered with.

    `signature_state` is the verdict by the agreement's certificates.
    """
    try:
        capture = open_capture(data)
    except ReadFault as fault:
        return describe_fault(fault)
    values = describe(capture, validation=validation, signature_state=signature_state)
    return {"recorded_as": capture.kind.value, **values}


def describe(
    capture: Capture,
    *,
    validation: Validation = Validation.REPORT,
    signature_state: str | None = None,
) -> Values:
    """Everything an opened capture says; several messages in one body are listed."""
    try:
        if capture.kind is CaptureKind.XML:
            # A bare header: its payloads were never in this file.
            received = codec.read_header(capture.parcel.body, None, validation=validation)
            return describe_received(received, signature_state)
        found = codec.read_all(capture.parcel, validation=validation)
    except ReadFault as fault:
        return describe_fault(fault)
    if len(found) == 1:
        return describe_received(found[0], signature_state)
    return {
        "messages": [describe_received(each_received, signature_state) for each_received in found]
    }


def describe_received(received: Received, signature_state: str | None = None) -> Values:
    """One message that was read."""
    return {
        **describe_message(received.message),
        "signature": signature_state or signature_of(received),
        "complete": received.complete,
        "schema_problems": list(received.schema_problems),
        "notes": list(received.notes),
    }


def signature_of(received: Received) -> str:
    """How a signature looks without the certificates of the agreement.

    `none`; `present` where parts are missing to judge; `intact` when every digest and the
    value fit the certificate the message itself shows; `broken` when one does not.
    """
    if not received.signed:
        return "none"
    if not received.complete:
        return "present"
    try:
        report = signature.inspect(received.octets, signature_parts(received))
    except EbxmlError:
        return "broken"
    intact = report.value_good and all(good for _, good in report.references)
    return "intact" if intact else "broken"


def describe_message(message: Message) -> Values:
    """Every value of a message."""
    return {
        "dialect": message.dialect.value,
        "kind": message.kind.value,
        **_header(message.header),
        "reliable": message.reliable,
        "sequence": _sequence(message),
        "ack_requested": [
            {"actor": _actor(request.actor), "signed": request.signed}
            for request in message.ack_requested
        ],
        "acknowledgments": [
            _acknowledgment(acknowledgment) for acknowledgment in message.acknowledgments
        ],
        "errors": [_error(error) for error in message.error_list.errors]
        if message.error_list is not None
        else [],
        "status_request": message.status_request.ref_to_message_id
        if message.status_request is not None
        else None,
        "status_response": {
            "ref_to_message_id": message.status_response.ref_to_message_id,
            "status": message.status_response.status.value,
            "timestamp": _instant(message.status_response.timestamp),
        }
        if message.status_response is not None
        else None,
        "routing": [_hop(hop) for hop in message.routing],
        "manifest": [_reference(reference) for reference in message.manifest],
        "parts": [
            {
                "content_id": payload.content_id,
                "media_type": payload.media_type,
                "size": payload.size,
                "sha256": payload.digest,
                "content_encoding": payload.content_encoding,
            }
            for payload in message.payloads
        ],
    }


def _actor(actor: Actor) -> str:
    return actor.value.rpartition(":")[2]


def _instant(value: Instant | None) -> str | None:
    return None if value is None else format_instant(value)


def _party(party: Party | None) -> Values | None:
    if party is None:
        return None
    ids = [{"value": party_id.value, "type": party_id.type} for party_id in party.ids]
    return {"ids": ids, "role": party.role}


def _header(header: Header) -> Values:
    service = header.service
    return {
        "message_id": header.message_id,
        "ref_to_message_id": header.ref_to_message_id,
        "conversation_id": header.conversation_id,
        "cpa_id": header.cpa_id,
        "from": _party(header.from_party),
        "to": _party(header.to_party),
        "service": {"value": service.value, "type": service.type} if service else None,
        "action": header.action,
        "timestamp": _instant(header.timestamp),
        "time_to_live": _instant(header.time_to_live),
        "semantics": header.semantics.value if header.semantics else None,
        "duplicate_elimination": header.duplicate_elimination,
        "delivery_receipt_requested": header.delivery_receipt_requested.value
        if header.delivery_receipt_requested
        else None,
        "sync_reply": header.sync_reply.value
        if header.sync_reply
        else ("as agreed" if header.sync_reply_as_agreed else None),
        "split": {
            "split_id": header.split.split_id,
            "number": header.split.number,
            "total": header.split.total,
        }
        if header.split
        else None,
        "descriptions": [{"lang": lang, "text": words} for lang, words in header.descriptions],
        "foreign": [element.decode("utf-8", "replace") for element in header.foreign],
    }


def _number(sequence: SequenceNumber | None) -> Values | None:
    if sequence is None:
        return None
    status = sequence.status.value if sequence.status else None
    return {"number": sequence.number, "status": status}


def _sequence(message: Message) -> Values | None:
    number = _number(message.sequence)
    if number is None:
        return None
    return {**number, "scope": "conversation" if message.order is not None else "hop"}


def _acknowledgment(acknowledgment: Acknowledgment) -> Values:
    return {
        "ref_to_message_id": acknowledgment.ref_to_message_id,
        "timestamp": _instant(acknowledgment.timestamp),
        "actor": _actor(acknowledgment.actor),
        "type": acknowledgment.type.value if acknowledgment.type else None,
        "from": _party(acknowledgment.from_party),
        "signed": acknowledgment.signed,
        "digests": [
            {"uri": digest.uri, "method": digest.digest_method, "value": digest.digest_value.hex()}
            for digest in acknowledgment.references
        ],
    }


def _error(error: Error) -> Values:
    return {
        "code": error.code,
        "severity": error.severity.value,
        "location": error.location,
        "message": error.description,
        "code_context": error.code_context,
        "min_retry_secs": error.min_retry_secs,
    }


def _hop(hop: RoutingHeader) -> Values:
    sender = hop.sender_uri or (str(hop.sender_id) if hop.sender_id else None)
    receiver = hop.receiver_uri or (str(hop.receiver_id) if hop.receiver_id else None)
    return {
        "sender": sender,
        "receiver": receiver,
        "timestamp": _instant(hop.timestamp),
        "error_uri": hop.error_uri,
        "ack_requested": hop.ack_requested.value,
        "method": None if hop.method is None else hop.method.value,
        "sequence": _number(hop.sequence),
        "msh_id": hop.msh_id,
    }


def _reference(reference: Reference) -> Values:
    return {
        "href": reference.href,
        "role": reference.role,
        "id": reference.id,
        "descriptions": [words for _, words in reference.descriptions],
        "compression": reference.compression.encoding if reference.compression else None,
    }


def describe_fault(fault: ReadFault) -> Values:
    """The error a refused message would be answered with, and what could be read of it."""
    values: Values = {
        "fault": _answer(fault.error),
        "faults": [_answer(error) for error in fault.errors],
        # An ErrorList where the sender is known, else SOAP's own Fault (§4.2).
        "answered_with": "ErrorList" if fault.answerable else "SOAP Fault",
        "known": _known(fault.known),
        "notes": list(fault.notes),
    }
    if fault.fault is not None:
        values["soap_fault"] = {
            "code": fault.fault.code,
            "string": fault.fault.string,
            "details": [
                {"code": entry.code, "severity": entry.severity, "description": entry.description}
                for entry in fault.fault.details
            ],
        }
    return values


def _answer(error: EbxmlError | SoapFault) -> Values:
    if isinstance(error, SoapFault):
        code, severity, location = error.faultcode, "Error", ""
    else:
        code, severity, location = error.code, error.severity, error.location
    return {
        "code": code,
        "severity": severity,
        "location": location,
        "message": error.problem,
        "remedy": error.remedy,
    }


def _known(known: PartialHeader) -> Values:
    return {
        "dialect": known.dialect.value if known.dialect else None,
        "kind": known.kind.value if known.kind else None,
        "message_id": known.message_id,
        "ref_to_message_id": known.ref_to_message_id,
        "conversation_id": known.conversation_id,
        "cpa_id": known.cpa_id,
        "from": _party(known.from_party),
        "to": _party(known.to_party),
        "service": known.service.value if known.service else None,
        "action": known.action,
    }


# A recorded exchange beside ours: what another handler answered, and what we would have.
#
# `oncewire replay` runs this over the archive of another handler. Ids and times differ by nature
# and are not compared; everything an answer says is.


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


def compare(request: Capture, answer: Capture | None, form: Form, *, now: Instant) -> Comparison:
    """Both answers to a recorded request and their differences."""
    message_id: str | None
    try:
        received = _read(request, form.validation)
        message_id = received.message.header.message_id
        ours = our_answer(received.message, form, now)
    except ReadFault as fault:
        message_id = fault.known.message_id
        ours = our_refusal(fault, form, now)
    theirs = their_answer(answer)
    return Comparison(message_id, theirs, ours, tuple(differences(theirs, ours)))


def _read(capture: Capture, validation: Validation) -> Received:
    if capture.kind is CaptureKind.XML:
        return codec.read_header(capture.parcel.body, None, validation=validation)
    return codec.read(capture.parcel, validation=validation)


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


def their_answer(capture: Capture | None) -> Answer:
    """The recorded answer, as far as it can be read."""
    if capture is None or not capture.parcel.body.strip():
        return Answer(AnswerKind.NOTHING)
    try:
        return Answer(AnswerKind.MESSAGE, _read(capture, Validation.OFF).message)
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
