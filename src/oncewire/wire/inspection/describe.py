"""A message as plain values for people and programs: what `message decode --json` prints."""

from __future__ import annotations

from typing import Any, TypeAlias

from oncewire.errors import EbxmlError, SoapFault
from oncewire.message.envelope import (
    Acknowledgment,
    Actor,
    Error,
    Header,
    Message,
    RoutingHeader,
    SequenceNumber,
)
from oncewire.message.form import Validation
from oncewire.message.ids import Party
from oncewire.message.instant import Instant, format_instant
from oncewire.message.payload import Reference
from oncewire.wire import codec
from oncewire.wire.inspection.capture import Capture, CaptureKind, open_capture
from oncewire.wire.limits import DEFAULT_LIMITS, Limits
from oncewire.wire.parcel import Received
from oncewire.wire.refusal import PartialHeader, ReadFault
from oncewire.wire.security import signature
from oncewire.wire.security.references import signature_parts

Values: TypeAlias = dict[str, Any]


def describe_bytes(
    data: bytes,
    limits: Limits = DEFAULT_LIMITS,
    *,
    validation: Validation = Validation.REPORT,
    signature_state: str | None = None,
) -> Values:
    """Everything a file of any known kind says, or the fault it would be answered with.

    `signature_state` is the verdict by the agreement's certificates.
    """
    try:
        capture = open_capture(data, limits)
    except ReadFault as fault:
        return describe_fault(fault)
    values = describe(capture, limits, validation=validation, signature_state=signature_state)
    return {"recorded_as": capture.kind.value, **values}


def describe(
    capture: Capture,
    limits: Limits = DEFAULT_LIMITS,
    *,
    validation: Validation = Validation.REPORT,
    signature_state: str | None = None,
) -> Values:
    """Everything an opened capture says; several messages in one body are listed."""
    try:
        if capture.kind is CaptureKind.XML:
            # A bare header: its payloads were never in this file.
            received = codec.read_header(capture.parcel.body, None, limits, validation=validation)
            return describe_received(received, signature_state)
        found = codec.read_all(capture.parcel, limits, validation=validation)
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
        report = signature.inspect(received.envelope, signature_parts(received))
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
