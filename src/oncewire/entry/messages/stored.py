"""The bytes of a message as the store keeps them, for whoever does not own the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncewire.entry.files import read_bytes
from oncewire.errors import NotAllowed, NotHere
from oncewire.message.instant import format_instant
from oncewire.store.spool import check_name
from oncewire.wire.parcel import Parcel

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings
    from oncewire.store.contract import Reader
    from oncewire.store.records import StoredParcel

_SPOOLED_MAX = 16 * 1024**3


def stored_parcel(settings: Settings, reader: Reader, message_id: str) -> Parcel:
    """The exact bytes that were sent under that id or, if none were, that arrived.

    Raises NotHere or NotAllowed, which say why there are none.
    """
    found = reader.outgoing_parcel(message_id)
    if found is not None:
        return whole(settings, found)
    if reader.outgoing(message_id) is not None:
        raise NotAllowed(
            f"message {message_id} waits for its number: its bytes are made when it gets one",
            remedy="wait until the messages before it are acknowledged",
        )
    arrived = reader.incoming(message_id)
    for stored in arrived:
        if stored.parcel is not None:
            return whole(settings, stored.parcel)
    raise _reason(reader, message_id, refused=bool(arrived))


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
    """A stored parcel with all its bytes, those in the spool too."""
    folder = settings.path(settings.store.spool)
    pieces = []
    for part in stored.body:
        if isinstance(part, bytes):
            pieces.append(part)
            continue
        # Only looked at: opening the spool as its owner does would clear away what is half
        # written by the handler that runs.
        content = read_bytes(folder / check_name(part.name), "spool file", _SPOOLED_MAX)
        pieces.append(content[part.offset : part.offset + part.length])
    return Parcel(stored.content_type, b"".join(pieces), stored.headers)
