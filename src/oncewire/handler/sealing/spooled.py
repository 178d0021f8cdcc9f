"""Spooled: a parcel whose body lies in the spool and is fetched only by who needs all of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from oncewire.message.envelope import Message
from oncewire.store.records import SpoolSlice, StoredParcel
from oncewire.store.spool_contract import Spool
from oncewire.wire import codec
from oncewire.wire.limits import Limits
from oncewire.wire.parcel import Parcel
from oncewire.wire.received import Received

PIECE = 64 * 1024
"""Bytes that are fetched at once where only the beginning of a body is asked for."""


class SpooledParcel(Parcel):
    """A Parcel to whoever has one; most look at its headers alone."""

    __slots__ = ("_spool", "_stored")
    _spool: Spool
    _stored: StoredParcel

    def __init__(self, stored: StoredParcel, spool: Spool) -> None:
        object.__setattr__(self, "content_type", stored.content_type)
        object.__setattr__(self, "headers", stored.headers)
        object.__setattr__(self, "_stored", stored)
        object.__setattr__(self, "_spool", spool)

    @property
    def body(self) -> bytes:
        """All of it, in memory: for a hub that passes it on, and for what is encrypted."""
        return whole_body(self._spool, self._stored)

    @property
    def lies(self) -> StoredParcel:
        """Where its body lies."""
        return self._stored

    def carrying(self, received: Received) -> Received:
        """A message that was read while its body passed by, with this for its parcel."""
        return replace(received, parcel=self)


def at_hand(received: Received, message: Message, limits: Limits) -> Message:
    """The message with the bytes of its payloads, fetched where they have passed by."""
    if all(payload.data is not None for payload in message.payloads):
        return message
    again = codec.read(received.parcel, limits).message
    data = {payload.content_id: payload.data for payload in again.payloads}
    return replace(
        message,
        payloads=tuple(
            replace(each_payload, data=data.get(each_payload.content_id))
            for each_payload in message.payloads
        ),
    )


def head_of(spool: Spool, stored: StoredParcel, limits: Limits) -> Received | None:
    """What the header of a stored parcel says; no more of the body is fetched than it takes."""
    reader = codec.Reader(stored.content_type, stored.headers, limits)
    for piece in pieces_of(spool, stored):
        for event in reader.feed(piece):
            if isinstance(event, codec.HeaderRead):
                return event.received
    return None


def read_head(spool: Spool, stored: StoredParcel, limits: Limits) -> Received:
    """What a stored parcel says in its header; its payloads, where they lie in the spool, are not
    looked at."""
    found = head_of(spool, stored, limits) if stored.spooled else None
    if found is None:
        return read_stored(spool, stored, limits)
    return SpooledParcel(stored, spool).carrying(found)


def read_stored(spool: Spool, stored: StoredParcel, limits: Limits) -> Received:
    """The message in a stored parcel. Payloads of one that lies in the spool have no data: they
    pass by, and their digests are made on the way."""
    if not stored.spooled:
        body = whole_body(spool, stored)
        return codec.read(Parcel(stored.content_type, body, stored.headers), limits)
    reader = codec.Reader(stored.content_type, stored.headers, limits)
    for piece in pieces_of(spool, stored):
        reader.feed(piece)
    return SpooledParcel(stored, spool).carrying(reader.finish()[1])


def pieces_of(spool: Spool, stored: StoredParcel) -> Iterator[bytes]:
    """The body of a stored parcel, a little at a time."""
    for part in stored.body:
        if isinstance(part, bytes):
            yield part
            continue
        with spool.open(part.name) as spooled:
            spooled.seek(part.offset)
            left = part.length
            while left > 0 and (piece := spooled.read(min(PIECE, left))):
                left -= len(piece)
                yield piece


def body_slice(spool: Spool, stored: StoredParcel, offset: int, length: int) -> bytes:
    """So many bytes of a stored parcel's body from there on; no others are fetched. Fewer, where
    it has no more."""
    found = []
    for part in stored.body:
        size = part.length if isinstance(part, SpoolSlice) else len(part)
        begin, end = max(0, offset), min(size, offset + length)
        if begin < end:
            if isinstance(part, bytes):
                found.append(part[begin:end])
            else:
                with spool.open(part.name) as spooled:
                    spooled.seek(part.offset + begin)
                    found.append(spooled.read(end - begin))
        offset -= size
    return b"".join(found)


def slices_of(stored: StoredParcel, offset: int, length: int) -> tuple[bytes | SpoolSlice, ...]:
    """The same bytes where they lie, without fetching any from the spool."""
    found: list[bytes | SpoolSlice] = []
    for part in stored.body:
        size = part.length if isinstance(part, SpoolSlice) else len(part)
        begin, end = max(0, offset), min(size, offset + length)
        if begin < end:
            if isinstance(part, bytes):
                found.append(part[begin:end])
            else:
                found.append(SpoolSlice(part.name, part.offset + begin, end - begin))
        offset -= size
    return tuple(found)


def whole_body(spool: Spool, stored: StoredParcel) -> bytes:
    """The bytes of a stored parcel in one piece; for messages that fit in memory."""
    pieces = []
    for part in stored.body:
        if isinstance(part, bytes):
            pieces.append(part)
        else:
            with spool.open(part.name) as spooled:
                spooled.seek(part.offset)
                pieces.append(spooled.read(part.length))
    return b"".join(pieces)
