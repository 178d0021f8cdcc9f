"""Inbound: a body that streams in. Small ones are kept in memory, large ones never are.

A large body goes into the spool as it comes. Its header is read first, and who is not expected
under any agreement is refused there: the rest of it costs nobody anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from oncewire.errors import OncewireError
from oncewire.handler.arriving.expected import Expected
from oncewire.handler.arriving.intake import Intake
from oncewire.handler.node import Node
from oncewire.handler.reading import Reading
from oncewire.handler.sealing.intact import is_intact
from oncewire.handler.sealing.seal import SPOOL_ABOVE
from oncewire.store.records import StoredParcel
from oncewire.transport.contract import Delivery
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel
from oncewire.wire.received import Received
from oncewire.wire.refusal import ReadFault

T = TypeVar("T")

READ_AT_ONCE = 64 * 1024
"""Bodies up to this size are read in their turn: that is quicker than handing them to a thread."""

BATCH = 1024 * 1024
"""Bytes that are handed to a thread together: of a large body one batch is heard, one is read and
one is on its way to the disk, and no more is in memory."""

Expects = Callable[[Received], Awaitable[Expected]]
"""Asks the agreements about a header, before the rest of its message is taken."""


class TooLarge(OncewireError):
    """The body is larger than this handler takes."""


@dataclass(frozen=True, slots=True)
class Inbound:
    """A body that arrived: its bytes, or where in the spool they lie.

    Its file is in use; whoever took the body in lets it go, or gives it back.
    """

    parcel: Parcel
    stored: StoredParcel
    # What it says, where that was read as it came.
    reading: Reading | None = None


async def take_in(node: Node, delivery: Delivery, expects: Expects | None = None) -> Inbound:
    """Read the body to its end, or to where it is refused. Nothing of it is believed yet."""
    if delivery.length is not None and delivery.length > node.body_max:
        raise TooLarge(f"a body of {delivery.length} bytes is more than {node.body_max}")
    pieces: list[bytes] = []
    size = 0
    bounded = _Bounded(delivery, node.body_max)
    async for chunk in bounded:
        roomy = delivery.allowance.hold(len(chunk))
        pieces.append(chunk)
        size += len(chunk)
        if size > (SPOOL_ABOVE if roomy else READ_AT_ONCE):
            return await _Streaming(node, delivery, expects).take(pieces, bounded)
    node.kill.reach("read after body")
    content_type, headers = _told(delivery)
    body = b"".join(pieces)
    parcel = Parcel(content_type, body, headers)
    stored = StoredParcel(parcel.content_type, headers, (body,))
    if size <= READ_AT_ONCE:
        return Inbound(parcel, stored)
    reading, seconds = await node.reading_room.do(lambda: _read(node, parcel))
    delivery.allowance.spend(seconds)
    return Inbound(parcel, stored, reading)


def _told(delivery: Delivery) -> tuple[str, tuple[tuple[str, str], ...]]:
    """What stands around a body, as it can be stored: not every transport knows what its bytes
    mean, and one header must not spoil the commit of everybody's messages."""
    headers = tuple((_text(name), _text(value)) for name, value in delivery.headers.items())
    return _text(delivery.content_type), headers


def _text(said: str) -> str:
    return said if said.isascii() else said.encode("utf-8", "replace").decode("utf-8")


class _Bounded(AsyncIterator[bytes]):
    """A body, as far as it is not too large. No generator: the event loop keeps an account of
    each of those, which costs as much as a small body."""

    __slots__ = ("_body", "_left", "_most")

    def __init__(self, delivery: Delivery, most: int) -> None:
        self._body = aiter(delivery.body)
        self._left = self._most = most

    async def __anext__(self) -> bytes:
        chunk = await anext(self._body)
        self._left -= len(chunk)
        if self._left < 0:
            raise TooLarge(f"the body has more than {self._most} bytes")
        return chunk


def _read(node: Node, parcel: Parcel) -> Reading:
    if not is_intact(parcel):
        return Reading(None, intact=False)
    try:
        return Reading(codec.read(parcel, node.limits, moulds=node.moulds))
    except ReadFault as fault:
        fault.__traceback__ = None
        return Reading(fault)


class _Streaming:
    """A body that is too large to be held."""

    def __init__(self, node: Node, delivery: Delivery, expects: Expects | None) -> None:
        self._node = node
        self._delivery = delivery
        self._expects = expects
        content_type, headers = _told(delivery)
        self._intake = Intake(node.store.spool, content_type, headers, node.limits)
        self._asked = False
        # Bytes of the last batch: they may still be on their way to the disk.
        self._unwritten = 0

    async def take(self, pieces: list[bytes], rest: AsyncIterator[bytes]) -> Inbound:
        """Read on, a batch at a time, until the end or a refusal."""
        node, intake = self._node, self._intake
        try:
            await self._do(intake.begin)
            await self._feed(pieces)
            await self._hear(rest)
            node.kill.reach("read after body")
            node.kill.reach("spool before fsync")
            stored, reading, parcel = await self._do(intake.finish)
            self._wrote(0)
            node.kill.reach("spool after fsync")
            node.proofs.fresh(stored.spooled, node.now())
        except BaseException:
            # It waits for what is on its way to the disk, and must not do so in the loop; whoever
            # is called off a second time does not wait for it either.
            await asyncio.shield(asyncio.to_thread(intake.abandon))
            raise
        return Inbound(parcel, stored, reading)

    async def _hear(self, rest: AsyncIterator[bytes]) -> None:
        """What else comes: while a thread takes one batch, the next is heard."""
        pieces: list[bytes] = []
        held = 0
        feeding: asyncio.Future[None] | None = None
        try:
            async for chunk in rest:
                if feeding is not None and feeding.done():
                    feeding.result()
                if self._intake.over:
                    break
                roomy = self._delivery.allowance.hold(len(chunk))
                pieces.append(chunk)
                held += len(chunk)
                if held >= BATCH or not roomy:
                    if feeding is not None:
                        await feeding
                    feeding = asyncio.ensure_future(self._feed(pieces))
                    pieces, held = [], 0
                    if not roomy:
                        await feeding
            if feeding is not None:
                await feeding
        finally:
            # Whoever leaves in the middle waits for no thread; what came of it nobody asks.
            if feeding is not None and not feeding.cancel() and not feeding.cancelled():
                feeding.exception()
        await self._feed(pieces)

    async def _feed(self, pieces: list[bytes]) -> None:
        batch, size = tuple(pieces), sum(map(len, pieces))
        pieces.clear()
        if self._intake.fault is None:
            self._delivery.allowance.spool(size)
        await self._do(lambda: self._intake.feed(batch))
        self._wrote(size)
        header = self._intake.header
        if header is None or self._asked or self._expects is None:
            return
        self._asked = True
        expected = await self._expects(header)
        error = expected.error
        if error is not None:
            await self._do(lambda: self._intake.refuse(error))
        elif expected.max_size is not None:
            self._intake.limit_payloads(expected.max_size)

    def _wrote(self, following: int) -> None:
        """A batch is not held any more when the one that follows it was taken."""
        self._delivery.allowance.hold(-self._unwritten)
        self._unwritten = following

    async def _do(self, work: Callable[[], T]) -> T:
        spool = self._node.store.spool

        def measured() -> tuple[T, float]:
            began = spool.worked()
            done = work()
            return done, spool.worked() - began

        (done, seconds), _ = await self._node.reading_room.do(measured)
        self._delivery.allowance.spend(seconds)
        return done
