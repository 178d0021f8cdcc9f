"""The bytes of a message as the store keeps them, for whoever does not own the store."""

from __future__ import annotations

import contextlib
from hashlib import sha256
from typing import TYPE_CHECKING

from oncewire.entry.files import WHOLE_FILE_MAX, read_bytes
from oncewire.errors import NotAllowed, NotHere, StoreDamaged
from oncewire.handler.documents.original import Original, is_whole
from oncewire.handler.sealing.intact import (
    changed,
    check_kept,
    is_intact,
    is_of_pieces,
    with_digest,
)
from oncewire.message.file_name import name_in
from oncewire.message.instant import format_instant
from oncewire.store.records import SpoolSlice
from oncewire.store.spool import check_name
from oncewire.wire.parcel import Parcel

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings
    from oncewire.store.contract import Reader
    from oncewire.store.records import StoredParcel


def intact_parcel(settings: Settings, reader: Reader, message_id: str) -> Parcel:
    """The same as `stored_parcel`, or StoreDamaged if they have another digest by now. Of what
    came without one, each document still has its own."""
    found, view = _found(reader, message_id)
    check_kept(found, message_id)
    parcel = whole(settings, found)
    if not is_intact(parcel) or (view is not None and not _has_documents(parcel, view)):
        raise changed(message_id)
    return parcel


def _has_documents(parcel: Parcel, view: bytes) -> bool:
    from oncewire.handler.delivering.accepted import part_data
    from oncewire.handler.delivering.view import read_view

    return all(
        part_data(payload, place, parcel.body[place.offset : place.offset + place.length])
        is not None
        for payload, place in read_view(view).parts()
    )


def stored_parcel(settings: Settings, reader: Reader, message_id: str) -> Parcel:
    """The bytes that were sent under that id or, if none were, that arrived, as they are now.

    Raises NotHere or NotAllowed, which say why there are none.
    """
    return whole(settings, _found(reader, message_id)[0])


def _found(reader: Reader, message_id: str) -> tuple[StoredParcel, bytes | None]:
    """What is stored, and the view of it if it arrived."""
    found = reader.outgoing_parcel(message_id)
    if found is not None:
        _check_is_message(
            found,
            message_id,
            f"`oncewire outbox --parts` lists its parts; "
            f"`oncewire show --raw 1-of-N.{message_id}` has the first",
        )
        return found, None
    if reader.outgoing(message_id) is not None:
        raise NotAllowed(
            f"message {message_id} waits for its number: its bytes are made when it gets one",
            remedy="wait until the messages before it are acknowledged",
        )
    arrived = reader.incoming(message_id)
    for stored in arrived:
        if stored.parcel is not None:
            remedy = (
                "`oncewire inbox --parts` lists its parts; `oncewire inbox take` gives it whole"
            )
            _check_is_message(stored.parcel, message_id, remedy)
            return stored.parcel, stored.view
    raise _reason(reader, message_id, refused=bool(arrived))


def _check_is_message(stored: StoredParcel, message_id: str, remedy: str) -> None:
    """Refuse the row of a document in parts: no message ever had its bytes."""
    from oncewire.handler.arriving.joined import CONTENT_TYPE as JOINED
    from oncewire.handler.documents.original import CONTENT_TYPE as SPLIT

    if stored.content_type in (JOINED, SPLIT):
        raise NotAllowed(
            f"message {message_id} is a document that travels in parts: each of them is a message, "
            "it is none",
            remedy=remedy,
        )


def documents_of(reader: Reader, message_id: str) -> list[tuple[str, str, int, str]]:
    """Name, media type, size and SHA-256 of each document of a message, as far as that is written
    down without its bytes; what was sent is read where it is small."""
    from oncewire.errors import EbxmlError, InvalidValue, StoreProblem
    from oncewire.handler.delivering.view import read_view
    from oncewire.wire.refusal import ReadFault

    with contextlib.suppress(EbxmlError, InvalidValue, ReadFault, StoreProblem):
        stored, parcel = reader.outgoing(message_id), reader.outgoing_parcel(message_id)
        if stored is not None and parcel is not None:
            if is_whole(stored):
                return _in_parts(Original.read(parcel, message_id))
            return _sent(parcel, part=stored.facts.split_number is not None)
        for arrived in reader.incoming(message_id):
            if arrived.view is not None:
                return [
                    (payload.file_name, payload.media_type, payload.size, payload.digest)
                    for payload in read_view(arrived.view).message.payloads
                ]
    return []


def _sent(parcel: StoredParcel, *, part: bool) -> list[tuple[str, str, int, str]]:
    """Of a message as it was laid out. No file of the spool is read: its name, which is its
    digest, stands in its place. What is encrypted, and what a part carries, is not the file that
    was handed in."""
    from oncewire.handler.sealing.confide import is_closed
    from oncewire.wire import codec

    files = {piece.name.encode(): piece for piece in parcel.body if isinstance(piece, SpoolSlice)}
    body = b"".join(
        piece if isinstance(piece, bytes) else piece.name.encode() for piece in parcel.body
    )
    found = []
    for payload in codec.read(Parcel(parcel.content_type, body, parcel.headers)).message.payloads:
        file = files.get(payload.data or b"")
        size, digest = (payload.size, payload.digest) if file is None else (file.length, file.name)
        known = not part and not is_closed(payload)
        found.append((payload.file_name, payload.media_type, size, digest if known else ""))
    return found


def _in_parts(original: Original) -> list[tuple[str, str, int, str]]:
    """Of a document that travels in parts; a file that was compressed has another digest."""
    return [
        (
            name_in(content.mime_headers, content.media_type),
            content.media_type,
            content.size,
            content.name if content.encoding is None else "",
        )
        for content in original.contents
    ]


def _reason(reader: Reader, message_id: str, *, refused: bool) -> NotHere:
    story = f"`oncewire why {message_id}` still tells its story"
    if refused:
        return NotHere(f"message {message_id} was refused: its bytes are not kept", remedy=story)
    for gone in reader.removed(message_id):
        when = format_instant(gone.removed_at)
        return NotHere(
            f"the bytes of {message_id} were removed by retention on {when}",
            remedy=f"{story}; `oncewire hold` keeps messages longer, and so does delivery.keep",
        )
    return NotHere(f"no bytes of {message_id} are kept", remedy=story)


def whole(settings: Settings, stored: StoredParcel) -> Parcel:
    """A stored parcel with all its bytes, those in the spool too; NotAllowed where they are more
    than anybody should have in memory, StoreDamaged where the spool has others."""
    if stored.size > WHOLE_FILE_MAX:
        raise NotAllowed(
            f"its {stored.size:,} bytes are too many to be shown whole",
            remedy="have its documents with `oncewire inbox take --out FOLDER`",
        )
    folder = settings.path(settings.store.spool)
    pieces = []
    for part in stored.body:
        if isinstance(part, bytes):
            pieces.append(part)
            continue
        # Only looked at: opening the spool as its owner does would clear away what is half
        # written by the handler that runs.
        content = read_bytes(folder / check_name(part.name), "spool file")
        if sha256(content).hexdigest() != part.name:
            raise StoreDamaged(
                f"spool file {part.name} has changed",
                remedy="put it back from a copy of the spool directory",
            )
        pieces.append(content[part.offset : part.offset + part.length])
    parcel = Parcel(stored.content_type, b"".join(pieces), stored.headers)
    return with_digest(parcel) if is_of_pieces(stored) else parcel
