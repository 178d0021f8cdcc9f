"""The bytes of a message as the store keeps them, for whoever does not own the store."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from oncewire.entry.files import WHOLE_FILE_MAX, read_bytes
from oncewire.errors import NotAllowed, NotHere
from oncewire.handler.sealing.intact import is_of_pieces, with_digest
from oncewire.message.instant import format_instant
from oncewire.store.records import SpoolSlice
from oncewire.store.spool import check_name
from oncewire.wire.parcel import Parcel

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings
    from oncewire.message.payload import Payload
    from oncewire.store.contract import Reader
    from oncewire.store.records import StoredParcel


def stored_parcel(settings: Settings, reader: Reader, message_id: str) -> Parcel:
    """The exact bytes that were sent under that id or, if none were, that arrived.

    Raises NotHere or NotAllowed, which say why there are none.
    """
    found = reader.outgoing_parcel(message_id)
    if found is not None:
        _check_is_message(
            found,
            message_id,
            f"`oncewire outbox --parts` lists its parts; "
            f"`oncewire show --raw 1-of-N.{message_id}` has the first",
        )
        return whole(settings, found)
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
            return whole(settings, stored.parcel)
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


def documents_of(reader: Reader, message_id: str) -> list[tuple[str, str, int]]:
    """Name, media type and size of each document of a message, as far as that is written down
    without its bytes; what was sent is read where it is small."""
    from oncewire.errors import EbxmlError, InvalidValue, StoreProblem
    from oncewire.handler.delivering.view import read_view
    from oncewire.wire import codec
    from oncewire.wire.refusal import ReadFault

    payloads: tuple[Payload, ...] = ()
    with contextlib.suppress(EbxmlError, InvalidValue, ReadFault, StoreProblem):
        sent = reader.outgoing_parcel(message_id)
        if sent is not None:
            lengths = [part.length for part in sent.body if isinstance(part, SpoolSlice)]
            inline = b"".join(part for part in sent.body if isinstance(part, bytes))
            found = codec.read(Parcel(sent.content_type, inline, sent.headers)).message.payloads
            # Where a file belongs nothing stands here.
            return [
                (each.file_name, each.media_type, each.size or (lengths.pop(0) if lengths else 0))
                for each in found
            ]
        for stored in reader.incoming(message_id):
            if stored.view is not None:
                payloads = read_view(stored.view).message.payloads
    return [(payload.file_name, payload.media_type, payload.size) for payload in payloads]


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
    than anybody should have in memory."""
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
        pieces.append(content[part.offset : part.offset + part.length])
    parcel = Parcel(stored.content_type, b"".join(pieces), stored.headers)
    return with_digest(parcel) if is_of_pieces(stored) else parcel
