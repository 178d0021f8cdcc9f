"""Carrier: stored bytes go out over the transports, as they were stored or not at all."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import BinaryIO

from oncewire.errors import StoreDamaged
from oncewire.handler.content_digest import is_of_pieces, stated_digest, with_body_digest
from oncewire.handler.encryption import pieces_of
from oncewire.handler.spool_reading import check_file
from oncewire.store.records import SpoolSlice, StoredParcel
from oncewire.store.spool_contract import Spool
from oncewire.transport.contract import AttemptOutcome, Cargo, OutcomeKind, Transport
from oncewire.wire.parcel import Parcel

CHUNK = 256 * 1024


def check_files(spool: Spool, parcel: StoredParcel) -> StoredParcel:
    """The parcel as it is sent. A file of the spool is named by its digest: what has changed is
    not sent. The digest of a body that is made of pieces is made as they are checked. Of a range
    of a document's file the parcel says the digest itself: it is its own, not the document's."""
    stated = stated_digest(Parcel(parcel.content_type, b"", parcel.headers))
    if len(parcel.body) > 1 and stated is not None:
        _check_ranges(spool, parcel, stated)
        return parcel
    body = hashlib.sha256() if is_of_pieces(parcel) else None
    for part in parcel.body:
        if isinstance(part, SpoolSlice):
            check_file(spool, part.name, None if body is None else _of_range(part, body.update))
        elif body is not None:
            body.update(part)
    return parcel if body is None else with_body_digest(parcel, body.digest())


def _of_range(part: SpoolSlice, take: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Gives on, of a file that is read from its beginning, what lies in that range."""
    position = 0

    def look(piece: bytes) -> None:
        nonlocal position
        begin = max(0, part.offset - position)
        end = max(0, part.offset + part.length - position)
        take(piece[begin:end])
        position += len(piece)

    return look


def _check_ranges(spool: Spool, parcel: StoredParcel, stated: str) -> None:
    digest = hashlib.sha256()
    for piece in pieces_of(spool, parcel):
        digest.update(piece)
    if base64.b64encode(digest.digest()).decode() != stated:
        raise StoreDamaged(
            f"the spool file {', '.join(parcel.spooled)} has changed",
            remedy="put it back from a backup, or give its message up with `oncewire abandon`",
        )


class _ReadAhead:
    """A file that is read in a thread, a piece further than whoever takes the pieces is."""

    def __init__(self, file: BinaryIO, length: int) -> None:
        self._file, self._left = file, length
        self._reading: asyncio.Future[bytes] | None = None
        self._begin()

    def _begin(self) -> None:
        if self._left > 0:
            wanted = asyncio.to_thread(self._file.read, min(CHUNK, self._left))
            self._reading = asyncio.ensure_future(wanted)

    async def next(self) -> bytes:
        """The next piece; none after the last one, or where the file ends too soon."""
        if self._reading is None:
            return b""
        # Whoever stops waiting does not stop the thread.
        piece = await asyncio.shield(self._reading)
        self._reading = None
        self._left -= len(piece)
        if piece:
            self._begin()
        return piece

    async def end(self) -> None:
        """Until no thread reads it: only then may it be closed."""
        if self._reading is not None:
            await asyncio.wait((self._reading,))
            # What came of it nobody asks any more.
            if not self._reading.cancelled():
                self._reading.exception()


class Carrier:
    """Carries parcels whose bytes lie in rows and in the spool."""

    def __init__(self, spool: Spool, transports: Mapping[str, Transport]) -> None:
        self._spool, self._transports = spool, transports
        # Large messages on their way: bytes that were given to the transport, and of how many.
        self.transfers: dict[str, tuple[int, int]] = {}

    def use(self, parcel: StoredParcel) -> None:
        """Its files stay until it has left, even if its message goes first: a proxy keeps
        none at all, and the last attempt of one may last longer than its retention."""
        for name in parcel.spooled:
            self._spool.use(name)

    def let_go(self, parcel: StoredParcel) -> None:
        """Release the files of a parcel that has left."""
        for name in parcel.spooled:
            self._spool.let_go(name)

    async def carry(
        self,
        name: str,
        address: str,
        parcel: StoredParcel,
        timeout: float,
        once: str = "",
        message_id: str = "",
        begin_within: float | None = None,
    ) -> AttemptOutcome:
        """Send a parcel; `once` and `begin_within` are the cargo's. Raises StoreDamaged when its
        files are not what they were. How far a large one is stands in `transfers`, under its
        MessageId."""
        transport = self._transports.get(name)
        if transport is None:
            return AttemptOutcome(OutcomeKind.REFUSED, f"this handler has no transport {name}")
        if parcel.spooled:
            parcel = await asyncio.to_thread(check_files, self._spool, parcel)
        first = parcel.body[0] if len(parcel.body) == 1 else None
        whole = first if isinstance(first, bytes) else None
        size, chunks = parcel.size, partial(self._chunks, parcel, message_id)
        cargo = Cargo(parcel.content_type, parcel.headers, size, chunks, once, whole, begin_within)
        try:
            if parcel.spooled and message_id:
                self.transfers[message_id] = 0, size
            return await transport.send(cargo, address, timeout=timeout)
        finally:
            self.transfers.pop(message_id, None)

    async def _chunks(self, parcel: StoredParcel, message_id: str) -> AsyncIterator[bytes]:
        """The stored bytes, piece by piece; a large payload is read from the spool."""
        for part in parcel.body:
            if not isinstance(part, SpoolSlice):
                self._note(message_id, len(part))
                yield part
                continue
            with self._spool.open(part.name) as spooled:
                spooled.seek(part.offset)
                ahead = _ReadAhead(spooled, part.length)
                try:
                    while chunk := await ahead.next():
                        self._note(message_id, len(chunk))
                        yield chunk
                finally:
                    await ahead.end()

    def _note(self, message_id: str, count: int) -> None:
        """Count bytes of a message that leave."""
        if message_id in self.transfers:
            sent, size = self.transfers[message_id]
            self.transfers[message_id] = sent + count, size
