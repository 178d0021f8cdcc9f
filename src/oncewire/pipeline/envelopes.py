"""Rows of the table `envelopes`: what a raw message says, or why it cannot be read.

Plain Python: bytes in, values out. Whatever is in a file, it becomes at least one row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from oncewire.errors import EbxmlError, SoapFault
from oncewire.journal.identity import identity_digest
from oncewire.message import Message
from oncewire.message.form import Validation
from oncewire.pipeline.archive import Content
from oncewire.pipeline.schemas import ENVELOPES
from oncewire.wire import codec
from oncewire.wire.inspection.capture import CaptureKind, open_capture
from oncewire.wire.received import Received
from oncewire.wire.refusal import PartialHeader, ReadFault

Values = tuple[Any, ...]

UNREADABLE = "Unreadable"
"""The code of what is no message at all: a file that cannot be opened, a damaged bundle."""

_EMPTY: dict[str, Any] = dict.fromkeys(ENVELOPES.fieldNames())
_TEXT_MAX = 1_000


def rows_of_content(
    content: Content, *, payloads: bool = False, validation: Validation = Validation.REPORT
) -> Iterator[Values]:
    """One row for each message in the bytes, or one that says what is wrong with them."""
    row = _where(content)
    if content.problem:
        yield _values(row | _fault(UNREADABLE, "", content.problem), payloads)
        return
    found: tuple[Received, ...]
    try:
        capture = open_capture(content.data)
        row["capture"] = capture.kind.value
        if capture.kind is CaptureKind.XML:
            # A bare header: its payloads were never in this file.
            found = (codec.read_header(capture.parcel.body, None, validation=validation),)
        else:
            found = codec.read_all(capture.parcel, validation=validation)
    except ReadFault as fault:
        yield _values(row | _of_fault(fault), payloads)
        return
    except Exception as error:  # noqa: BLE001 - an archive holds anything, and no file may stop a job
        problem = f"{type(error).__name__}: {error}"
        yield _values(row | _fault(UNREADABLE, "", problem), payloads)
        return
    for position, received in enumerate(found):
        yield _values(row | {"position": position} | _of_received(received), payloads, received)


def _where(content: Content) -> dict[str, Any]:
    found = content.found
    return _EMPTY | {
        "file": found.path,
        "member": content.member,
        "position": 0,
        "file_size": found.size,
        "modified": found.modified,
        "size": len(content.data),
        "sha256": hashlib.sha256(content.data).hexdigest(),
        "readable": False,
    }


def _fault(code: str, location: str, problem: str) -> dict[str, Any]:
    return {"code": code, "location": location or None, "problem": problem[:_TEXT_MAX]}


def _of_fault(fault: ReadFault) -> dict[str, Any]:
    error = fault.error
    return (
        _fault(_code(error), getattr(error, "location", ""), error.problem)
        | _of_known(fault.known)
        | {"notes": list(fault.notes), "errors": [_code(each_error) for each_error in fault.errors]}
    )


def _code(error: EbxmlError | SoapFault) -> str:
    return error.faultcode if isinstance(error, SoapFault) else error.code


def _of_known(known: PartialHeader) -> dict[str, Any]:
    return {
        "dialect": known.dialect.value if known.dialect else None,
        "kind": known.kind.value if known.kind else None,
        "message_id": known.message_id,
        "ref_to": known.ref_to_message_id,
        "conversation_id": known.conversation_id,
        "cpa_id": known.cpa_id,
        "from_party": str(known.from_party) if known.from_party else None,
        "to_party": str(known.to_party) if known.to_party else None,
        "service": str(known.service) if known.service else None,
        "action": known.action,
    }


def _of_received(received: Received) -> dict[str, Any]:
    message = received.message
    header, split, sequence = message.header, message.header.split, message.sequence
    return {
        "readable": True,
        "dialect": message.dialect.value,
        "kind": message.kind.value,
        "message_id": header.message_id,
        "ref_to": header.ref_to_message_id,
        "conversation_id": header.conversation_id,
        "cpa_id": header.cpa_id,
        "from_party": str(header.from_party),
        "from_role": header.from_party.role,
        "to_party": str(header.to_party),
        "to_role": header.to_party.role,
        "service": str(header.service) if header.service else None,
        "action": header.action,
        "sent_at": header.timestamp,
        "time_to_live": header.time_to_live,
        "semantics": header.semantics.value if header.semantics else None,
        "reliable": message.reliable,
        "sequence_number": sequence.number if sequence else None,
        "sequence_status": sequence.status.value if sequence and sequence.status else None,
        "hops": len(message.routing),
        "split_id": split.split_id if split else None,
        "split_number": split.number if split else None,
        "split_total": split.total if split else None,
        "ack_requested": bool(message.ack_requested),
        "acknowledges": _acknowledges(message),
        "errors": [error.code for error in message.error_list.errors] if message.error_list else [],
        "signed": received.signed,
        "closed": received.closed,
        "payload_count": len(message.payloads),
        "payload_bytes": sum(payload.size for payload in message.payloads),
        # Without its payloads a bare header cannot say what makes the message itself.
        "digest": identity_digest(message) if received.complete else None,
        "schema_problems": len(received.schema_problems),
        "notes": list(received.notes),
    }


def _acknowledges(message: Message) -> str | None:
    return message.acknowledgments[0].ref_to_message_id if message.acknowledgments else None


def _values(row: dict[str, Any], payloads: bool, received: Received | None = None) -> Values:
    values = tuple(row.values())
    if not payloads:
        return values
    found = received.message.payloads if received is not None else ()
    return (
        *values,
        [
            (payload.content_id, payload.media_type, payload.size, payload.digest, payload.data)
            for payload in found
        ],
    )
