"""View: what was accepted of a message, written down so that handing it over parses nothing.

It holds the values that were believed, read from what is signed where there is a signature, and
where in the stored body each part lies, with its size and digest. The parts themselves stay in the
body: the taker of a message cuts them out and checks them (`accepted`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct
from msgspec.json import decode, encode
from msgspec.structs import replace

from oncewire.agreement.agreement import Direction, receiver_of, sender_of
from oncewire.agreement.resolve import find_binding
from oncewire.errors import (
    EbxmlError,
    InvalidValue,
    MimeProblem,
    OncewireError,
    StoreDamaged,
    StoreProblem,
)
from oncewire.handler.context import HandlerContext
from oncewire.handler.encryption import Opening, body_slice, slices_of, whole_parcel
from oncewire.handler.route import agreement_for
from oncewire.handler.spool_reading import SPOOL_ABOVE
from oncewire.journal.identity import identity_digest
from oncewire.message.envelope import (
    Compression,
    DeliverySemantics,
    Error,
    ErrorList,
    Header,
    Message,
    MessageKind,
    Payload,
    Reference,
    Severity,
    Split,
    Stretch,
)
from oncewire.message.form import AckRequest, Dialect, Security, SyncReplyMode
from oncewire.message.ids import Party, PartyId, Service
from oncewire.message.payload import Content, as_file, distant
from oncewire.store.records import StoredIncoming, StoredParcel
from oncewire.store.spool_contract import Spool
from oncewire.wire import codec
from oncewire.wire.codec import read_verified
from oncewire.wire.mime.multipart import decoded, decoder, is_identity
from oncewire.wire.parcel import PartPlace, Received
from oncewire.wire.security import signature

_FORMAT = 1
_DIGEST = hashlib.sha256().digest_size

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


class View(Struct, frozen=True):
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
    text = encode(
        (
            _FORMAT,
            message.dialect,
            message.kind,
            _header_list(message.header),
            [_reference_list(reference) for reference in message.manifest],
            None if errors is None else [_error_values(error) for error in errors],
            [
                (*_payload_values(payload), *place)
                for payload, place in zip(message.payloads, view.places, strict=True)
            ],
        )
    )
    return hashlib.sha256(text).digest() + text


def read_view(stored: bytes) -> View:
    """The view that was stored, or the error that it is damaged."""
    digest, text = stored[:_DIGEST], stored[_DIGEST:]
    if hashlib.sha256(text).digest() != digest:
        raise _damaged("it is not what was written")
    try:
        return _view(decode(text))
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
    values[17] = _text(header.foreign) if header.foreign else ()
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
    values[6] = _text(reference.foreign) if reference.foreign else ()
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


# Part content: the bytes of one part of a stored message, read from the file they lie in.


BUFFER = 1024 * 1024
"""Bytes that are fetched at once."""


@dataclass(frozen=True, slots=True)
class PartContent:
    """See `message.payload.Content`. The part lies in a file, still encoded as it travelled."""

    file: Callable[[], BinaryIO]
    offset: int
    length: int
    # Its Content-Transfer-Encoding.
    encoding: str = ""
    # Where the file lies, for other processes of the same user; None: nowhere but in memory.
    path: Path | None = None

    def open(self) -> BinaryIO:
        """See `message.payload.Content`."""
        file = self.file()
        return as_file(self.read(file), file.close)

    def read(self, file: BinaryIO) -> Iterator[bytes]:
        """The bytes of the part in its file, decoded; at their end the file is closed."""
        undo = None if is_identity(self.encoding) else decoder(self.encoding)
        with file:
            file.seek(self.offset)
            left = self.length
            while left > 0:
                piece = file.read(min(BUFFER, left))
                if not piece:
                    raise StoreDamaged(
                        f"a file of the spool ends {left:,} bytes too soon",
                        remedy="put it back from a backup",
                    )
                left -= len(piece)
                yield piece if undo is None else undo.feed(piece)
        if undo is not None:
            yield undo.finish()


@dataclass(frozen=True, slots=True)
class JoinedContent:
    """See `message.payload.Content`. A payload that lies in several files, one part behind the
    other: a document that came in parts."""

    pieces: tuple[PartContent, ...]

    def open(self) -> BinaryIO:
        """See `message.payload.Content`."""
        # No more than one of the files is open.
        pieces = (data for each in self.pieces for data in each.read(each.file()))
        return as_file(pieces, pieces.close)


# Accepted: a stored message as it was accepted.
#
# The store keeps the bytes as they travelled. Accepted was a view of them: what the signature
# covers, and decrypted. The view was stored with its bytes where its parts lie in them (`view`);
# then they are cut out, and nothing is parsed. Otherwise the bytes are read again. Either way its
# identity digest was stored with it, so a reader of them knows which view that was, whatever has
# become of certificates and agreements since.


def accepted(context: HandlerContext, stored: StoredIncoming, *, at_once: bool = False) -> Message:
    """The view that was accepted, or the error that there is none any more. NotProved: a large
    one has to be read first, unless it is to be read at once."""
    if stored.parcel is None:
        raise StoreProblem(
            f"message {stored.incoming.message_id} has no bytes",
            remedy="restore the store from a backup",
        )
    if stored.view is not None:
        if not _is_proved(context, stored.parcel, at_once=at_once):
            raise _changed(stored, "put its bytes back from a backup")
        return _cut_out(context, stored, stored.parcel, read_view(stored.view))
    received = codec.read(whole_parcel(context, stored.parcel), context.limits)
    opening = Opening(context, received, _security_of(context, received.message, stored))
    for message in map(opening.plain, _views(context, opening)):
        if _is_accepted(message, stored):
            return message
    raise _changed(
        stored, "put back the agreement and the key it arrived under, or its bytes from a backup"
    )


def _cut_out(
    context: HandlerContext, stored: StoredIncoming, parcel: StoredParcel, view: View
) -> Message:
    """The message of its view, with the parts that lie in its bytes: they and it must be what was
    accepted, and it the message of its row. Of a large body no more than a little is held."""
    payloads: list[Payload] = []
    room = SPOOL_ABOVE
    for payload, place in view.parts():
        lies = None if payload.size <= room else _part_content(context.store.spool, parcel, place)
        if lies is not None:
            payloads.append(distant(payload, lies))
            continue
        room -= payload.size
        travelled = body_slice(context.store.spool, parcel, place.offset, place.length)
        data = part_data(payload, place, travelled)
        if data is None:
            raise _changed(stored, "put its bytes back from a backup")
        payloads.append(replace(payload, data=data))
    message = replace(view.message, payloads=tuple(payloads))
    if not _is_accepted(message, stored):
        raise _changed(stored, "put its row back from a backup")
    return message


def part_data(payload: Payload, place: PartPlace, travelled: bytes) -> bytes | None:
    """What a part carries, of what lies in its place; None: it is not what was accepted."""
    try:
        data = decoded(place.encoding, travelled, lenient=True)
    except MimeProblem:
        return None
    same = len(data) == payload.size and hashlib.sha256(data).hexdigest() == payload.digest
    return data if same else None


def _is_proved(context: HandlerContext, parcel: StoredParcel, *, at_once: bool) -> bool:
    """Whether the files of a parcel are what they were."""
    files = parcel.spooled
    return not files or context.state.proofs.hold(files, context.now(), at_once=at_once)


def _part_content(spool: Spool, parcel: StoredParcel, place: PartPlace) -> Content | None:
    """Where in files of the spool a part lies; None: some of it lies elsewhere."""
    found = []
    for piece in slices_of(parcel, place.offset, place.length):
        if isinstance(piece, bytes):
            return None
        opened = partial(spool.open, piece.name)
        path = spool.path(piece.name)
        found.append(PartContent(opened, piece.offset, piece.length, place.encoding, path))
    if len(found) == 1:
        return found[0]
    # What is encoded cannot be undone piece by piece; a document in parts is not.
    return JoinedContent(tuple(found)) if found and is_identity(place.encoding) else None


def _changed(stored: StoredIncoming, remedy: str) -> StoreProblem:
    message_id = stored.incoming.message_id
    return StoreProblem(
        f"the bytes of message {message_id} no longer say what was accepted", remedy=remedy
    )


def digest_of_copy(
    context: HandlerContext, stored: StoredIncoming, copy: Message, digest: str
) -> str:
    """The identity digest by which a signed copy is judged: its own, or that of the first one
    if it differs from it in nothing that is signed.

    Media types stand outside a signature (§4.1.3). A handler on the way changed them in one of
    the two, and must not make its sender believe that the message was refused (S9).
    """
    first = stored.incoming.digest
    if digest == first or stored.parcel is None:
        return digest
    try:
        # What was written down says it; no byte of a payload is needed.
        first_one = (
            accepted(context, stored) if stored.view is None else read_view(stored.view).message
        )
        types = [payload.media_type for payload in first_one.payloads]
    except OncewireError:
        return digest
    if len(types) != len(copy.payloads):
        return digest
    given = zip(copy.payloads, types, strict=True)
    alike = tuple(replace(payload, media_type=name) for payload, name in given)
    return first if identity_digest(replace(copy, payloads=alike)) == first else digest


def as_agreed(context: HandlerContext, stored: StoredIncoming, header: Header) -> Header:
    """The header with its parties as the agreement names them: whoever reads the first id of a
    sender reads the one that was proved, and not one that was written before it."""
    agreement = context.agreement_accepted(stored)
    if agreement is None:
        # Accepted by a version that kept none.
        return header
    return replace(
        header,
        from_party=sender_of(agreement, header.from_party),
        to_party=receiver_of(agreement.own, header.to_party),
    )


def _is_accepted(message: Message, stored: StoredIncoming) -> bool:
    """Whether it is what was accepted, and the message that the row names."""
    named = message.header.message_id == stored.incoming.message_id
    return named and identity_digest(message) == stored.incoming.digest


def _views(context: HandlerContext, opening: Opening) -> Iterator[Message]:
    """What a signature covers comes first: the rest of a message is anybody's word."""
    received = opening.received
    if received.signed:
        try:
            covered = signature.covered(received.octets, opening.parts)
        except EbxmlError:
            # Signatures of this sender are not checked here, and this one is not for us.
            pass
        else:
            believed = read_verified(opening.received, covered, context.limits).message
            yield believed
            # Versions before this one left the parts in the order in which they came.
            places = [payload.content_id for payload in received.message.payloads]
            order = sorted(believed.payloads, key=lambda payload: places.index(payload.content_id))
            yield replace(believed, payloads=tuple(order))
    yield opening.received.message


def _security_of(context: HandlerContext, message: Message, stored: StoredIncoming) -> Security:
    """By what its payloads were closed: as was agreed when it was accepted."""
    agreement = context.agreement_accepted(stored)
    if agreement is None:
        agreement = agreement_for(context, stored.facts.cpa_id, stored.peer)
    if agreement is None:
        return Security()
    return find_binding(agreement, Direction.RECEIVE, message).security
