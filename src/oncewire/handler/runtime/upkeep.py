"""Upkeep: what a handler does beside its turns. It joins documents whose parts are all stored,
probes transports that messages have left and partners that are silent, and closes the incidents of
outages that are over.

Documents are joined one at a time: the disk is what takes long, and two at once take longer than
one after the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING

from oncewire.errors import EbxmlError, OncewireError, StoreProblem
from oncewire.handler.actions import Join
from oncewire.handler.receiving.joining import made_files, put_together
from oncewire.handler.sending.transmit import LeftWay, left_ways, take_again, take_up
from oncewire.message.instant import SECOND, Duration, Instant
from oncewire.store.spool_contract import Spool
from oncewire.transport.contract import OutcomeKind, Transport

if TYPE_CHECKING:
    from oncewire.handler.runtime.commit_loop import CommitLoop
    from oncewire.handler.runtime.engine import Engine

logger = logging.getLogger("oncewire.handler")


def join_at_once(engine: Engine, wanted: Join) -> None:
    """Put a document together where nothing else has to wait for that."""
    plan = engine.join_plan(wanted)
    if plan is None:
        return
    try:
        joined = put_together(engine.context.store.spool, plan.contents, plan.limits)
    except EbxmlError as error:
        engine.not_joined(wanted, error)
        return
    except StoreProblem as problem:
        engine.trouble(problem, wanted.split_id)
        return
    engine.joined(plan, joined, made_files(joined, plan.contents))


class Joining:
    """Joins documents beside a running handler, in a thread."""

    def __init__(self, loop: CommitLoop) -> None:
        self._loop = loop
        self._turn = asyncio.Lock()
        # Those that wait for their turn, or have it.
        self._wanted: set[Join] = set()

    async def join(self, wanted: Join) -> None:
        """Put one document together; what cannot be done now is done after the next start."""
        if wanted in self._wanted:
            return
        self._wanted.add(wanted)
        try:
            async with self._turn:
                await self._join(wanted)
        finally:
            self._wanted.discard(wanted)

    async def _join(self, wanted: Join) -> None:
        engine, loop = self._loop.engine, self._loop
        context = engine.context
        try:
            plan = await loop.do("join", lambda: engine.join_plan(wanted))
            if plan is None:
                return
            context.kill.reach("join before work")
            joined = await asyncio.to_thread(
                put_together, context.store.spool, plan.contents, plan.limits
            )
            made = made_files(joined, plan.contents)
            context.kill.reach("join after work")
            await loop.do("join", lambda: engine.joined(plan, joined, made))
        except EbxmlError as error:
            refused = error
            await loop.do("join", lambda: engine.not_joined(wanted, refused))
        except StoreProblem as problem:
            trouble = problem
            await loop.do("join", lambda: engine.trouble(trouble, wanted.split_id))
        except OncewireError:
            logger.exception("a document is not joined", extra={"message_id": wanted.split_id})


# Probing: transports that messages have left, and partners that are silent, are tried again with
# nothing on board.


PROBE_EVERY: Duration = 30 * SECOND
_TIMEOUT = 20.0


class Probing:
    """Probes what was left until it works again."""

    def __init__(
        self, loop: CommitLoop, transports: Mapping[str, Transport], every: Duration
    ) -> None:
        self._loop, self._transports, self._every = loop, transports, every

    async def run(self) -> None:
        """For as long as the handler lives."""
        context, knows = self._loop.engine.context, False
        while True:
            try:
                if not knows:
                    await self._loop.do("look", lambda: take_up(context))
                    knows = True
                await asyncio.sleep(self._every / SECOND)
                ways = await self._loop.do("look", lambda: left_ways(context))
            except StoreProblem as problem:
                # Whoever else was in that turn is told too; the next look may find the store there.
                logger.warning("nothing is probed", extra={"problem": str(problem)})
                await asyncio.sleep(self._every / SECOND)
                continue
            await asyncio.gather(*map(self._probe, ways))

    async def _probe(self, way: LeftWay) -> None:
        transport = self._transports.get(way.transport)
        if transport is None:
            return
        try:
            outcome = await transport.probe(way.address, timeout=_TIMEOUT)
        except Exception:
            # Of this probe alone: the next one may find another answer.
            logger.exception("a probe failed", extra={"transport": way.transport})
            return
        if outcome.kind is not OutcomeKind.SENT:
            return
        context = self._loop.engine.context
        left = (way.peer, way.transport) in context.state.left
        if left:
            said = {"peer": way.peer, "transport": way.transport}
            logger.info("a transport works again", extra=said)
        try:
            await self._loop.do("probe", lambda: take_again(context, way))
        except OncewireError as problem:
            # The incident stays open; the next probe brings it up again.
            logger.warning("a step was not stored", extra={"problem": str(problem)})
            if left:
                context.state.left.add((way.peer, way.transport))


# The end of an outage: an incident that stays open when its cause has ended is one that operators
# learn to pass over.


QUIET = 60.0
"""Seconds without trouble of the store after which it is tried: twice what senders are asked to
wait, so that those who were sent away have come back."""

LOOK_EVERY = 5.0
"""Seconds between two looks whether it is over."""

ROOM = 16
"""Megabytes that the disk must take before it is called free again. That a small row can be kept,
such as that of an incident, proves nothing of a body."""


class OutageIncident:
    """The incident of a trouble that ends by itself: closed when the trouble has not come for a
    while and `works` raises nothing."""

    def __init__(
        self, loop: CommitLoop, channel: str, quiet: float, works: Callable[[], None] = lambda: None
    ) -> None:
        self._loop, self._channel, self._quiet, self._works = loop, channel, quiet, works
        self._came = monotonic()
        self._open = False
        # Since when, and what: a store that is full cannot keep its incident, and is asked of here.
        self.trouble: tuple[Instant, str] | None = None

    def came(self, problem: OncewireError) -> None:
        """The trouble is there, and so will be its incident, if the store can keep one."""
        self._came, self._open = monotonic(), True
        since = self.trouble[0] if self.trouble else self._loop.engine.context.now()
        self.trouble = since, str(problem)

    async def run(self) -> None:
        """For as long as the handler lives; what an earlier run left open is its business too."""
        try:
            if await self._loop.operate(lambda engine: engine.is_called(self._channel)):
                self._open = True
        except OncewireError:
            self._open = True
        while True:
            await asyncio.sleep(min(LOOK_EVERY, self._quiet))
            came = self._came
            if not self._open or monotonic() - came < self._quiet:
                continue
            try:
                await asyncio.to_thread(self._works)
                if came == self._came:
                    await self._loop.operate(lambda engine: engine.resume(channel=self._channel))
                    self._open = came != self._came
                    self.trouble = self.trouble if self._open else None
            except OncewireError as problem:
                logger.debug("it is not over", extra={"problem": str(problem)})


def try_spool(spool: Spool) -> None:
    """Write a large file and take it back; raises StoreFull or StoreGone."""
    name, _ = spool.put(bytes(1024 * 1024) for _ in range(ROOM))
    spool.give_back(name)
