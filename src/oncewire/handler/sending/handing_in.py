"""Handing in: documents that lie elsewhere are read once, before a turn makes messages of them.

Small ones go into memory, large ones into the spool, piece by piece. A turn then only names them:
whatever an application hands in, and however slowly it comes, nobody else waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from oncewire.errors import InvalidValue
from oncewire.handler.kill import NOWHERE, KillPoints
from oncewire.handler.proofs import LONG_PIECE
from oncewire.handler.sealing.seal import SPOOL_ABOVE
from oncewire.handler.sending.submit import Accepted, Submission
from oncewire.message.payload import DistantPayload, Payload
from oncewire.store.spool_contract import Spool
from oncewire.wire.limits import DEFAULT_LIMITS


@dataclass(slots=True)
class SpooledContent:
    """See `Content`: a document that lies in the spool already, and is in use there until somebody
    takes it or gives it back."""

    spool: Spool
    name: str
    size: int
    taken: bool = False

    def open(self) -> BinaryIO:
        """See `Content`."""
        return self.spool.open(self.name)

    def give_back(self) -> None:
        """Nobody will take it any more."""
        if not self.taken:
            self.taken = True
            self.spool.give_back(self.name)


@dataclass(slots=True)
class HandedIn:
    """Submissions whose documents are at hand; the files of the spool that they name are in use
    until one says what became of them."""

    spool: Spool
    submissions: tuple[Submission, ...]
    kill: KillPoints = NOWHERE
    files: list[str] = field(default_factory=list)
    # Whether what was committed names them.
    kept: bool = False

    def read(self) -> None:
        """Have every document at hand. Blocks while they are read; what goes wrong leaves
        nothing behind."""
        try:
            self.submissions = tuple(map(self._read, self.submissions))
        except BaseException:
            self.let_go()
            raise

    def let_go(self) -> None:
        """It is over, one way or the other."""
        files, self.files = self.files, []
        for name in files:
            if self.kept:
                self.spool.let_go(name)
            else:
                self.spool.give_back(name)

    def _read(self, submission: Submission) -> Submission:
        room = SPOOL_ABOVE
        payloads = []
        for payload in submission.payloads:
            taken = self._taken(payload, room)
            room -= len(taken.data or b"")
            payloads.append(taken)
        return replace(submission, payloads=tuple(payloads))

    def _taken(self, payload: Payload, room: int) -> Payload:
        """The payload with its bytes, or where in the spool they lie; `room`: so many may be held
        in memory."""
        if not isinstance(payload, DistantPayload):
            if payload.size <= room or payload.spooled is not None:
                return payload
            with payload.open() as file:
                name, size = self._put(b"", file)
            return replace(payload, size=size, digest=name, data=None, spooled=name)
        if isinstance(payload.content, SpooledContent) and not payload.content.taken:
            payload.content.taken = True
            name, size = payload.content.name, payload.content.size
            self.files.append(name)
            made = Payload(payload.content_id, "", size, name, spooled=name)
            return self._same(payload, made)
        with payload.open() as file:
            begun = _read(file, room + 1)
            if len(begun) <= room:
                return self._same(payload, Payload.of(payload.content_id, "", begun))
            name, size = self._put(begun, file)
        made = Payload(payload.content_id, "", size, name, spooled=name)
        return self._same(payload, made)

    def _put(self, begun: bytes, file: BinaryIO) -> tuple[str, int]:
        unfinished = self.spool.begin()
        try:
            unfinished.write(begun)
            left = DEFAULT_LIMITS.document_bytes - len(begun)
            while piece := file.read(LONG_PIECE):
                left -= len(piece)
                if left < 0:
                    raise InvalidValue(
                        f"a document has more than {DEFAULT_LIMITS.document_bytes:,} bytes",
                        remedy="hand it in as several documents",
                    )
                unfinished.write(piece)
            self.kill.reach("spool before fsync")
            name, size = unfinished.finish()
            self.kill.reach("spool after fsync")
        except BaseException:
            unfinished.abandon()
            raise
        self.files.append(name)
        return name, size

    def _same(self, given: DistantPayload, made: Payload) -> Payload:
        if given.digest and given.digest != made.digest:
            raise InvalidValue(
                f"the bytes of payload {given.content_id!r} are not what its digest says",
                remedy="hand it in as it is now",
            )
        return replace(made, media_type=given.media_type, mime_headers=given.mime_headers)


def _read(file: BinaryIO, size: int) -> bytes:
    """So many bytes, or all there are: a pipe gives them as they come."""
    pieces: list[bytes] = []
    while size > 0 and (piece := file.read(min(size, LONG_PIECE))):
        if not isinstance(piece, bytes):
            raise InvalidValue("a document is a file of text", remedy="open it with mode 'rb'")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def is_at_hand(submissions: Sequence[Submission]) -> bool:
    """Whether nothing has to be read: every document is small and in memory."""
    for submission in submissions:
        size = 0
        for payload in submission.payloads:
            size += payload.size
            if size > SPOOL_ABOVE or isinstance(payload, DistantPayload):
                return False
    return True


@asynccontextmanager
async def handed_in(
    spool: Spool, submissions: Sequence[Submission], kill: KillPoints = NOWHERE
) -> AsyncIterator[HandedIn]:
    """The submissions with their documents at hand, for as long as it takes to store them; who
    stored them says `kept`."""
    handed = HandedIn(spool, tuple(submissions), kill)
    if not is_at_hand(submissions):
        reading = asyncio.ensure_future(asyncio.to_thread(handed.read))
        try:
            await asyncio.shield(reading)
        except asyncio.CancelledError:
            # The thread reads on; what it puts is nobody's.
            reading.add_done_callback(lambda _over: handed.let_go())
            raise
    try:
        yield handed
    finally:
        handed.let_go()


async def submitted(
    spool: Spool,
    submission: Submission,
    store: Callable[[Submission], Awaitable[Accepted]],
    kill: KillPoints = NOWHERE,
) -> Accepted:
    """Have a submission read, and then stored by `store`."""
    if is_at_hand((submission,)):
        return await store(submission)
    async with handed_in(spool, (submission,), kill) as handed:
        accepted = await store(handed.submissions[0])
        # What was submitted before has its own files.
        handed.kept = not accepted.repeated
        return accepted
