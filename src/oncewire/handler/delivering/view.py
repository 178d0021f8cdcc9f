"""View: what was accepted of a message, written down so that handing it over parses nothing.

It holds the values that were believed, read from what is signed where there is a signature, and
where in the stored body each part lies, with its size and digest. The parts themselves stay in the
body: whoever takes a message cuts them out and checks them (`accepted`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from oncewire.errors import InvalidValue, StoreProblem
from oncewire.message.envelope import Dialect, Message, MessageKind
from oncewire.message.fault import Error, ErrorList, Severity
from oncewire.message.header import AckRequest, DeliverySemantics, Header, Split, SyncReplyMode
from oncewire.message.ids import Party, PartyId, Service
from oncewire.message.payload import Compression, Payload, Reference, Stretch
from oncewire.wire.received import PartPlace, Received

_FORMAT = 1
_DIGEST = hashlib.sha256().digest_size
_encode = json.JSONEncoder(separators=(",", ":")).encode

# The order of fields here is the order of values in what is written. A test compares it with the
# values' own fields, so that a field added there cannot be forgotten here.
HEADER = (
    *("from_party", "to_party", "cpa_id", "conversation_id", "service", "action", "message_id"),
    *("timestamp", "ref_to_message_id", "time_to_live", "semantics", "duplicate_elimination"),
    *("delivery_receipt_requested", "sync_reply", "sync_reply_as_agreed", "split"),
    *("descriptions", "foreign"),
)
REFERENCE = ("href", "role", "id", "schemas", "descriptions", "compression", "foreign", "stretch")
ERROR = ("code", "severity", "location", "description", "code_context", "min_retry_secs")
PAYLOAD = ("content_id", "media_type", "size", "digest", "content_encoding", "mime_headers")
"""Its bytes are where its place says."""

_header_values = attrgetter(*HEADER)
_reference_values = attrgetter(*REFERENCE)
_error_values = attrgetter(*ERROR)
_payload_values = attrgetter(*PAYLOAD)


@dataclass(frozen=True, slots=True)
class View:
    """What was accepted; its payloads have no data, and a place each."""

    message: Message
    places: tuple[PartPlace, ...]

    def parts(self) -> Iterator[tuple[Payload, PartPlace]]:
        """Each payload, and where it lies."""
        return zip(self.message.payloads, self.places, strict=True)


def view_of(message: Message, received: Received) -> bytes | None:
    """What an application will be given of a message that was accepted; None: its bytes have to
    be read again for that.

    `received`: the same as it came. A payload that was decrypted is not in its bytes, and a part
    of an encoded container not in one piece. Failure notices are for the handler itself, which
    wants more of them than this.
    """
    if message.kind is MessageKind.ERROR:
        return None
    came = zip(received.message.payloads, received.places, strict=False)
    lies = {(payload.content_id, payload.digest): place for payload, place in came}
    places = []
    for payload in message.payloads:
        place = lies.get((payload.content_id, payload.digest))
        if place is None:
            return None
        places.append(place)
    return write_view(View(message, tuple(places)))


def write_view(view: View) -> bytes:
    """The view as it is stored, after a digest of it: what no identity covers is not to change
    unnoticed either."""
    message = view.message
    errors = None if message.error_list is None else message.error_list.errors
    text = _encode(
        (
            _FORMAT,
            message.dialect,
            message.kind,
            _header_list(message.header),
            [_reference_list(reference) for reference in message.manifest],
            None if errors is None else [_error_values(error) for error in errors],
            [(*_payload_values(payload), *place) for payload, place in view.parts()],
        )
    ).encode()
    return hashlib.sha256(text).digest() + text


def read_view(stored: bytes) -> View:
    """The view that was stored, or the error that it is damaged."""
    digest, text = stored[:_DIGEST], stored[_DIGEST:]
    if hashlib.sha256(text).digest() != digest:
        raise _damaged("it is not what was written")
    try:
        return _view(json.loads(text))
    except (ValueError, TypeError, IndexError, KeyError, InvalidValue) as problem:
        raise _damaged(f"{type(problem).__name__} {problem}") from problem


def _damaged(problem: str) -> StoreProblem:
    return StoreProblem(
        f"what was accepted of the message is damaged: {problem}",
        remedy="put its row back from a backup, or give it up with `oncewire abandon`",
    )


def _view(values: list[Any]) -> View:
    form, dialect, kind, header, manifest, errors, parts = values
    if form != _FORMAT:
        raise ValueError(f"its format is {form}")
    size = len(PAYLOAD)
    message = Message(
        Dialect(dialect),
        MessageKind(kind),
        _header(header),
        error_list=None if errors is None else ErrorList(tuple(map(_error, errors))),
        manifest=tuple(map(_reference, manifest)),
        payloads=tuple(_payload(part[:size]) for part in parts),
    )
    return View(message, tuple(PartPlace(*part[size:]) for part in parts))


# --- values ------------------------------------------------------------------------------------


def _header_list(header: Header) -> list[Any]:
    values = list(_header_values(header))
    values[0], values[1] = _party_list(header.from_party), _party_list(header.to_party)
    if header.service is not None:
        values[4] = (header.service.value, header.service.type)
    if header.split is not None:
        values[15] = (header.split.split_id, header.split.number, header.split.total)
    values[17] = _text(header.foreign)
    return values


def _header(values: list[Any]) -> Header:
    values[:2] = (
        Party(tuple(PartyId(*party_id) for party_id in ids), role) for ids, role in values[:2]
    )
    values[4] = None if values[4] is None else Service(*values[4])
    values[10] = None if values[10] is None else DeliverySemantics(values[10])
    values[12] = None if values[12] is None else AckRequest(values[12])
    values[13] = None if values[13] is None else SyncReplyMode(values[13])
    values[15] = None if values[15] is None else Split(*values[15])
    values[16] = _pairs(values[16])
    values[17] = _bytes(values[17])
    return Header(*values)


def _party_list(party: Party) -> tuple[Any, ...]:
    return [(party_id.value, party_id.type) for party_id in party.ids], party.role


def _reference_list(reference: Reference) -> list[Any]:
    values = list(_reference_values(reference))
    if reference.compression is not None:
        values[5] = (reference.compression.encoding, reference.compression.original_size)
    values[6] = _text(reference.foreign)
    if reference.stretch is not None:
        values[7] = (reference.stretch.offset, reference.stretch.size, reference.stretch.digest)
    return values


def _reference(values: list[Any]) -> Reference:
    # Versions before documents were split wrote no stretch.
    href, role, own_id, schemas, descriptions, compression, foreign, *stretch = values
    return Reference(
        href,
        role,
        own_id,
        _pairs(schemas),
        _pairs(descriptions),
        None if compression is None else Compression(*compression),
        _bytes(foreign),
        Stretch(*stretch[0]) if stretch and stretch[0] is not None else None,
    )


def _error(values: list[Any]) -> Error:
    code, severity, *rest = values
    return Error(code, Severity(severity), *rest)


def _payload(values: list[Any]) -> Payload:
    content_id, media_type, size, digest, content_encoding, headers = values
    return Payload(
        content_id,
        media_type,
        size,
        digest,
        content_encoding=content_encoding,
        mime_headers=_pairs(headers),
    )


def _pairs(values: list[list[Any]]) -> tuple[tuple[Any, Any], ...]:
    return tuple((first, second) for first, second in values)


# Latin-1 gives each byte one character.


def _text(elements: tuple[bytes, ...]) -> list[str]:
    return [element.decode("latin-1") for element in elements]


def _bytes(elements: list[str]) -> tuple[bytes, ...]:
    return tuple(element.encode("latin-1") for element in elements)
