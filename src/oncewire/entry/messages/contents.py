"""Contents: the documents of a stored message, sent or received, read piece by piece from where
they lie, by a process that does not own the store."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from oncewire.entry.messages.stored import laid_out, why_not_kept
from oncewire.errors import NotAllowed, NotHere, StoreDamaged
from oncewire.handler.delivering.view import JoinedContent, PartContent, read_view
from oncewire.handler.encryption import is_closed, slices_of
from oncewire.handler.sending.outgoing_document import OutgoingDocument, is_whole
from oncewire.message.payload import DistantPayload, Payload, distant
from oncewire.store.records import SpoolSlice
from oncewire.store.spool import check_name
from oncewire.wire.mime.multipart import is_identity

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from oncewire.entry.party.settings import Settings
    from oncewire.store.contract import Reader
    from oncewire.store.records import StoredIncoming, StoredParcel
    from oncewire.wire.parcel import PartPlace

_AT_ONCE = 1024 * 1024


def contents_of(
    settings: Settings, reader: Reader, message_id: str, sender: str | None = None
) -> list[Payload]:
    """The documents of a message, in order; `sender` says whose it is where two partners used one
    id. NotHere or NotAllowed say why there are none."""
    spool = settings.path(settings.store.spool)
    sent = None if sender else reader.outgoing(message_id)
    if sent is not None:
        parcel = reader.outgoing_parcel(message_id)
        if parcel is None:
            raise NotAllowed(
                f"message {message_id} waits for its number: its bytes are made when it gets one",
                remedy="wait until the messages before it are acknowledged",
            )
        if is_whole(sent):
            return _in_parts(spool, parcel, message_id)
        return [_sent(spool, parcel, payload) for payload in laid_out(parcel).message.payloads]
    arrived = reader.incoming(message_id)
    for stored in arrived:
        if sender in (None, stored.incoming.sender) and stored.parcel is not None:
            return _received(spool, stored, stored.parcel)
    raise why_not_kept(reader, message_id, refused=bool(arrived))


def nth_content(
    settings: Settings, reader: Reader, message_id: str, number: int, sender: str | None = None
) -> Payload:
    """One document of a message; the first is 1."""
    found = contents_of(settings, reader, message_id, sender)
    if not 1 <= number <= len(found):
        raise NotHere(
            f"message {message_id} has no payload {number}",
            remedy=f"it has {len(found)}; the first is 1",
        )
    return found[number - 1]


def open_at(payload: Payload, start: int) -> BinaryIO:
    """The document as a file, from a byte of it on. Read from its beginning, its digest is
    proved."""
    content = payload.content if isinstance(payload, DistantPayload) else None
    if not start or not isinstance(content, JoinedContent):
        file = payload.open()
        while start and (passed := file.read(min(start, _AT_ONCE))):
            start -= len(passed)
        return file
    pieces = []
    for piece in content.pieces:
        skipped = min(start, piece.length)
        start -= skipped
        pieces.append(replace(piece, offset=piece.offset + skipped, length=piece.length - skipped))
    return JoinedContent(tuple(pieces)).open()


def _received(spool: Path, stored: StoredIncoming, parcel: StoredParcel) -> list[Payload]:
    """The payloads of a message that arrived."""
    if stored.view is None:
        raise NotAllowed(
            f"message {stored.incoming.message_id} is kept encrypted",
            remedy="take it: what is handed over is decrypted",
        )
    return [
        distant(payload, _placed(spool, slices_of(parcel, place.offset, place.length), place))
        for payload, place in read_view(stored.view).parts()
    ]


def _placed(
    spool: Path, slices: Sequence[bytes | SpoolSlice], place: PartPlace
) -> PartContent | JoinedContent:
    """A part of a message, of the pieces that it lies in."""
    if is_identity(place.encoding):
        return JoinedContent(tuple(_piece(spool, each) for each in slices))
    if len(slices) == 1:
        return replace(_piece(spool, slices[0]), encoding=place.encoding)
    # An encoded part is decoded as one; it is as small as what is parsed in memory.
    data = b"".join(_bytes(_piece(spool, each)) for each in slices)
    return PartContent(partial(io.BytesIO, data), 0, len(data), place.encoding)


def _bytes(piece: PartContent) -> bytes:
    with piece.open() as file:
        return file.read()


def _piece(spool: Path, lies: bytes | SpoolSlice) -> PartContent:
    """One piece, in memory or in a file of the spool."""
    if isinstance(lies, bytes):
        return PartContent(partial(io.BytesIO, lies), 0, len(lies))
    return PartContent(partial(_opened, spool / check_name(lies.name)), lies.offset, lies.length)


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise StoreDamaged(
            f"the spool file {path.name} cannot be opened: {error.strerror}",
            remedy="put it back from a copy of the spool directory",
        ) from None


def _sent(spool: Path, parcel: StoredParcel, payload: Payload) -> Payload:
    """A payload of ours; the name of its file of the spool stands in its place."""
    if is_closed(payload):
        raise NotAllowed(
            f"payload {payload.content_id} left encrypted, and is kept so",
            remedy="read it where it was handed in",
        )
    for piece in parcel.body:
        if isinstance(piece, SpoolSlice) and piece.name.encode() == payload.data:
            found = Payload(
                payload.content_id,
                payload.media_type,
                piece.length,
                piece.name,
                mime_headers=payload.mime_headers,
            )
            return distant(found, JoinedContent((_piece(spool, piece),)))
    return payload


def _in_parts(spool: Path, parcel: StoredParcel, message_id: str) -> list[Payload]:
    """The payloads of a document that travels in parts."""
    found: list[Payload] = []
    for number, content in enumerate(OutgoingDocument.read(parcel, message_id).contents, 1):
        if content.encoding is not None:
            raise NotAllowed(
                f"payload {number} of {message_id} was compressed to be sent",
                remedy="read it where it was handed in",
            )
        lies = _piece(spool, SpoolSlice(content.name, 0, content.length))
        payload = Payload(
            content.content_id,
            content.media_type,
            content.size,
            content.name,
            mime_headers=content.mime_headers,
        )
        found.append(distant(payload, JoinedContent((lies,))))
    return found
