"""Handing in: documents are read and compressed in a thread, before a turn makes messages of them.

Small ones go into memory, large ones into the spool, piece by piece. A turn then only names them:
whatever an application hands in, and however slowly it comes, nobody else waits for it. Every
submission comes this way: of a command, of a program, and of an application that answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import BinaryIO

from msgspec.structs import replace

from oncewire.errors import InvalidValue, OncewireError
from oncewire.handler.context import NOWHERE, HandlerContext, KillPoints
from oncewire.handler.route import Route
from oncewire.handler.sending.seal import SPOOL_ABOVE
from oncewire.handler.sending.splitting import (
    check_splittable,
    compressed_key,
    needs_parts,
    write_contents,
)
from oncewire.handler.sending.submit import agreement_called, route_to_send
from oncewire.handler.spool_reading import LONG_PIECE
from oncewire.handler.submission import Submission
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
        """Release the spool files: to the stored messages, or for removal."""
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
        with payload.content.open() as file:
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
    """Read `size` bytes, or all there are: a pipe gives them as they come."""
    pieces: list[bytes] = []
    while size > 0 and (piece := file.read(min(size, LONG_PIECE))):
        if not isinstance(piece, bytes):
            raise InvalidValue("a document is a file of text", remedy="open it with mode 'rb'")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _is_at_hand(submission: Submission) -> bool:
    """Whether every document is small and in memory."""
    size = 0
    for payload in submission.payloads:
        size += payload.size
        if size > SPOOL_ABOVE or isinstance(payload, DistantPayload):
            return False
    return True


def is_ready(context: HandlerContext, submission: Submission) -> bool:
    """Whether a turn can take a submission as it is: nothing is to be read or compressed."""
    if not submission.payloads:
        return True
    return _is_at_hand(submission) and _to_compress(context, submission) is None


@asynccontextmanager
async def handed_in(
    context: HandlerContext, submissions: Sequence[Submission]
) -> AsyncIterator[HandedIn]:
    """The submissions with their documents at hand, and compressed where that is agreed, for as
    long as it takes to store them; the caller sets `kept` once they are stored."""
    handed = HandedIn(context.store.spool, tuple(submissions), context.kill)
    if not all(map(_is_at_hand, submissions)):
        reading = asyncio.ensure_future(asyncio.to_thread(handed.read))
        try:
            await asyncio.shield(reading)
        except asyncio.CancelledError:
            # The thread cannot be cancelled; its files are released when it ends.
            reading.add_done_callback(lambda _over: handed.let_go())
            raise
    try:
        async with AsyncExitStack() as compressing:
            for submission in handed.submissions:
                await compressing.enter_async_context(_compressed(context, submission))
            yield handed
    finally:
        handed.let_go()


@asynccontextmanager
async def _compressed(context: HandlerContext, submission: Submission) -> AsyncIterator[None]:
    """A submission has its compressed form at hand for as long as it takes to store it."""
    payloads = submission.payloads
    route = _to_compress(context, submission)
    if route is None:
        yield
        return
    check_splittable(payloads, route)
    contents = await asyncio.to_thread(write_contents, context, payloads, route)
    key = compressed_key(payloads, route)
    waiting = context.state.compressed.setdefault(key, [])
    waiting.append(contents)
    try:
        yield
    finally:
        # What the turn did not take, because it was refused or known, is nobody's.
        if contents in waiting:
            waiting.remove(contents)
            for content in contents:
                context.store.spool.give_back(content.name)
        if not waiting:
            context.state.compressed.pop(key, None)


def _to_compress(context: HandlerContext, submission: Submission) -> Route | None:
    """The route of a submission that is compressed before its turn, since that takes long; None:
    it is not, or nothing is agreed for it, which its turn says."""
    try:
        agreement = agreement_called(context, submission.cpa_id)
        route = route_to_send(agreement, submission)
    except OncewireError:
        return None
    terms = route.terms
    compressed = terms.compress_encoding is not None and needs_parts(submission.payloads, terms)
    return route if compressed else None
