"""CommitLoop: the engine in an event loop. Many callers, one commit for all that wait.

Callers put verbs into a queue. Each turn of the loop runs every verb that waits, commits
once, and only then gives results to their callers and lets actions leave. So one fsync
serves all callers, and none hears of anything that is not durable.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from oncewire.errors import HandlerFailed, OncewireError, StoreProblem
from oncewire.handler.actions import Action
from oncewire.handler.context import KillPoints
from oncewire.message.instant import SECOND, Duration
from oncewire.store.spool_contract import OnItsWay

if TYPE_CHECKING:
    from oncewire.handler.runtime.engine import Engine

logger = logging.getLogger("oncewire.handler")

T = TypeVar("T")

TURN_MAX = 512
"""Verbs run before a commit; more would make the first of them wait too long."""

TURN_SECONDS = 0.1
"""Seconds after which no further verb of a turn begins: whoever sends many that each take long
must not keep the loop from everybody else, nor from finding that he is over his budget."""

TURN_FEW, TURN_COMMITS = 16, 16
"""A turn need not have more verbs than that, nor take longer than that many times what its commit
takes to become durable: what it ran may leave then, and the partner works on it while we go on.
Turns of all that waits would have two handlers wait for each other by turns."""

ASIDE_SECONDS = 0.02
"""Seconds of a turn after which no further verb begins that stands aside for the others."""

SUBMIT = "submit"
"""The step that makes a message."""

IDLE = 1.0
"""Seconds between looks at the timers when nothing else happens."""

SOON = 0.02
"""Seconds until the next look when something is due but still under way."""


@dataclass(slots=True)
class _Work:
    step: str
    verb: Callable[[], Any]
    future: asyncio.Future[Any]
    # MessageIds that it will probably ask for.
    names: Sequence[str] = ()
    result: Any = field(default=None)


AGAIN = 60.0
"""Seconds until the same trouble is told again, with how often it came meanwhile."""

KINDS_MAX = 64


class Outages:
    """Tells of each kind of trouble at once, and of its repeats in one line a minute."""

    def __init__(self, said: str, now: Callable[[], float] = monotonic) -> None:
        self._said, self._now = said, now
        self._told: dict[str, tuple[float, int]] = {}

    def say(self, problem: OncewireError) -> None:
        """Log it, unless it was just logged."""
        # One for each kind: a text may name another message each time.
        kind, now = type(problem).__name__, self._now()
        at, repeats = self._told.get(kind, (-AGAIN, 0))
        if now - at < AGAIN:
            self._told[kind] = at, repeats + 1
            return
        if len(self._told) >= KINDS_MAX:
            self._told.clear()
        self._told[kind] = now, 0
        logger.error(self._said, extra={"problem": str(problem), "repeats": repeats})


class CommitLoop:
    """Runs the engine's verbs in turns; `perform` gets every action after its commit."""

    def __init__(
        self, engine: Engine, perform: Callable[[Action], None], kill: KillPoints | None = None
    ) -> None:
        self.engine = engine
        self._perform = perform
        self._kill = kill or KillPoints()
        self._queue: deque[_Work] = deque()
        # Those of senders we do not know: whatever else waits goes first.
        self._aside: deque[_Work] = deque()
        self._awake = asyncio.Event()
        self._outages = Outages("the store does not answer")
        # Hears why the store kept nothing of a turn, or could not be asked.
        self.not_stored: Callable[[StoreProblem], None] = lambda _problem: None
        # How many verbs the last turn had.
        self._ran = 0
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        # What went wrong beside a turn, so that nothing in memory can be relied on.
        self._broken: MemoryError | None = None
        # Why no turn will be taken any more.
        self.failed: HandlerFailed | None = None

    def start(self, ended: Callable[[asyncio.Task[None]], None] | None = None) -> None:
        """Begin to take turns; `ended` hears when there will be no more, and why."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="oncewire turns")
        if ended is not None:
            self._task.add_done_callback(ended)

    async def stop(self) -> None:
        """Run what waits, then stop."""
        self._stopping = True
        self._awake.set()
        if self._task is not None:
            # Why it ended is told by `failed`; here only that it did.
            await asyncio.gather(self._task, return_exceptions=True)

    async def do(
        self, step: str, verb: Callable[[], T], *, names: Sequence[str] = (), aside: bool = False
    ) -> T:
        """Run a verb; returns its result once it is durable, or raises why it is not. `names`:
        MessageIds that it will probably ask for. `aside`: after all others that wait, and a few
        of its like in each turn."""
        while True:
            if self.failed is not None:
                raise self.failed
            future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            (self._aside if aside else self._queue).append(_Work(step, verb, future, names))
            self._awake.set()
            try:
                return await future
            except OnItsWay as file:
                # What became of it the verb hears when it asks again.
                with contextlib.suppress(OncewireError):
                    await asyncio.wrap_future(file.coming)

    async def operate(self, decide: Callable[[Engine], T], step: str = "operate") -> T:
        """`do` for a decision of an operator or a program about the engine."""
        return await self.do(step, lambda: decide(self.engine))

    def look(self, verb: Callable[[], T]) -> T:
        """What a verb says that changes nothing: between turns there is nothing in the store but
        what is durable, so no caller need wait for one."""
        if self.failed is not None:
            raise self.failed
        try:
            return verb()
        except MemoryError as problem:
            # It may have struck anywhere.
            self._broken = problem
            self._awake.set()
            raise

    async def _run(self) -> None:
        try:
            await self._take_turns()
        except BaseException as problem:
            # No caller may wait for a turn that never comes.
            self.fail(problem)
            raise

    def fail(self, problem: BaseException) -> None:
        """Take no more turns, and tell everybody who waits for one."""
        if self.failed is None:
            self.failed = HandlerFailed(
                f"the handler failed: {type(problem).__name__}: {problem}"[:300],
                remedy="it ends and is to be started again; nothing that was stored is lost",
            )
        works = [*self._queue, *self._aside]
        self._queue.clear()
        self._aside.clear()
        self._fail(works, self.failed)

    async def _take_turns(self) -> None:
        while self.failed is None:
            if not self._waits and not self._stopping:
                rest = self._rest()
                timeout = IDLE if rest is None else min(max(rest / SECOND, SOON), IDLE)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(timeout):
                        await self._awake.wait()
            self._awake.clear()
            if self._broken is not None:
                raise self._broken
            self.turn()
            fellows = self.engine.context.store.fellows
            if fellows is not None and fellows.lost is not None:
                raise fellows.lost
            if self._stopping and not self._waits:
                return
            # Let the callers of this turn, and arrivals, have theirs before the next.
            await asyncio.sleep(0)

    @property
    def _waits(self) -> bool:
        return bool(self._queue or self._aside)

    def turn(self) -> None:
        """Run what waits, commit once, give out results and actions."""
        begun: list[_Work] = []
        try:
            if len(self._queue) > 1:
                self._expect()
            done = [work for work in self._works(begun) if self._attempt(work)]
            self._ran = len(begun)
            rest = self._rest()
            steps = [work.step for work in done]
            if rest is not None and rest <= 0:
                steps.append("tick")
                self._tick()
            actions = self._commit(steps) if self._kill.armed else self.engine.commit()
        except StoreProblem as problem:
            logger.error("nothing was stored", extra={"problem": str(problem)})
            self.not_stored(problem)
            self._fail(done, problem)
            return
        except Exception as problem:
            # It is unknown what the store has of it: the callers are told, and no turn follows.
            self._fail(begun, problem)
            raise
        for work in done:
            if not work.future.done():
                work.future.set_result(work.result)
        for action in actions:
            try:
                self._perform(action)
            except Exception:
                # One action's trouble is its own: what else was committed must leave too.
                logger.exception("an action failed", extra={"action": type(action).__name__})
        if self._queue or self._aside:
            self._awake.set()

    def _commit(self, steps: list[str]) -> list[Action]:
        """Commit between the kill points of these steps, if there is something to keep."""
        durable = steps if self.engine.context.store.pending() else []
        for step in durable:
            self._kill.reach(f"{step} before commit")
        actions = self.engine.commit()
        for step in durable:
            self._kill.reach(f"{step} after commit")
        return actions

    def _expect(self) -> None:
        """Have the store find at once what the verbs of this turn will ask for one by one."""
        # As many as will probably be run: what is found for the others is let go.
        waiting = list(islice(self._queue, max(TURN_FEW, self._ran)))
        names = [name for work in waiting for name in work.names]
        submissions = sum(work.step == SUBMIT for work in waiting)
        if len(names) + submissions > 1:
            try:
                self.engine.expect(names, submissions)
            except StoreProblem as problem:
                # The verb that asks for it is told.
                logger.error("nothing was found ahead", extra={"problem": str(problem)})

    def _works(self, begun: list[_Work]) -> Iterator[_Work]:
        """The verbs of one turn, in the order in which they came; `begun` is told of each."""
        began = monotonic()
        durable = self.engine.context.store.durable_seconds
        enough = min(TURN_SECONDS, TURN_COMMITS * durable)
        for queue, seconds in ((self._queue, TURN_SECONDS), (self._aside, ASIDE_SECONDS)):
            # One at least: who stands aside is not forgotten, however many others there are.
            first = True
            while queue and len(begun) < TURN_MAX and (first or monotonic() < began + seconds):
                if not first and len(begun) >= TURN_FEW and monotonic() > began + enough:
                    break
                work = queue.popleft()
                first = False
                begun.append(work)
                yield work

    def _rest(self) -> Duration | None:
        """How long the timers want no attention; a store that cannot be asked is asked again
        soon."""
        try:
            return self.engine.rest()
        except StoreProblem as problem:
            self._outages.say(problem)
            self.not_stored(problem)
            return None

    def _attempt(self, work: _Work) -> bool:
        """Run one verb; its own trouble is its caller's alone."""
        try:
            work.result = work.verb()
        except OncewireError as problem:
            self._fail([work], problem)
            return False
        except Exception as problem:
            self._fail([work], problem)
            if isinstance(problem, MemoryError):
                # It may have struck anywhere, in the middle of an undo too.
                raise
            logger.exception("a step failed", extra={"step": work.step})
            return False
        return True

    def _tick(self) -> None:
        try:
            self.engine.tick()
        except OncewireError as problem:
            logger.error("the timers could not be served", extra={"problem": str(problem)})

    def _fail(self, works: list[_Work], problem: Exception) -> None:
        """Tell the callers of these that nothing of them happened."""
        for work in works:
            if not work.future.done():
                work.future.set_exception(problem)


# Pulse: how late the event loop is, so that a handler that hangs is not called running.


BEAT = 0.25
"""Seconds between two beats."""

REMEMBERED = 60.0
"""Seconds that a late beat counts."""


class Pulse:
    """Beats while the loop turns, and remembers its latest beats."""

    def __init__(self) -> None:
        self._late: deque[tuple[float, float]] = deque(maxlen=int(REMEMBERED / BEAT))

    @property
    def lag(self) -> float:
        """The longest that anything had to wait for its turn within the last minute, in seconds."""
        return max((late for _, late in self._late), default=0.0)

    async def run(self) -> None:
        """Beat for ever."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + BEAT
            await asyncio.sleep(BEAT)
            self.note(loop.time(), loop.time() - due)

    def note(self, now: float, late: float) -> None:
        """A beat came that much late."""
        while self._late and self._late[0][0] < now - REMEMBERED:
            self._late.popleft()
        self._late.append((now, max(0.0, late)))


# Supervisor: the tasks of a handler, none of which may end unnoticed.
#
# A loop that ended by a fault would leave a handler that listens and does nothing. So a fault that
# nobody foresaw is said once, everybody who waits is told, and whoever runs the handler ends the
# process: the next one takes up what was stored.


class Supervisor:
    """Starts tasks, sees how they end, and knows whether the handler takes turns."""

    def __init__(self, loop: CommitLoop) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()
        self._pulse = Pulse()
        self._loops: list[asyncio.Task[None]] = []
        self._failed = asyncio.Event()

    @property
    def lag(self) -> float:
        """How late the event loop was within the last minute, in seconds."""
        return self._pulse.lag

    def start(self) -> None:
        """Begin to take turns."""
        self._loop.start(self.ended)
        self.keep(self._pulse.run())

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Do some work beside, that will come to an end."""
        self._tasks.add(self._start(work))

    def keep(self, work: Coroutine[None, None, None]) -> None:
        """Do some work for as long as the handler lives."""
        self._loops.append(self._start(work))

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self.ended)
        return task

    def ended(self, task: asyncio.Task[None]) -> None:
        """A task is over; it should not be so by an exception."""
        self._tasks.discard(task)
        problem = None if task.cancelled() else task.exception()
        if problem is not None and not self._failed.is_set():
            logger.critical("the handler failed and ends", exc_info=problem)
            self._loop.fail(problem)
            self._failed.set()

    async def finish(self, seconds: float) -> None:
        """Let what is under way end, for a while."""
        for task in self._loops:
            task.cancel()
        pending = list(self._tasks)
        if pending:
            await asyncio.wait(pending, timeout=seconds)
        for task in pending:
            task.cancel()

    async def failed(self) -> HandlerFailed:
        """Wait until the handler has failed; returns why. Its process is to be ended then."""
        await self._failed.wait()
        return self._loop.failed or HandlerFailed("the handler failed")

    async def probe(self, timeout: float) -> float:
        """See that the handler takes turns; returns how late its loop was within the last minute,
        in seconds. HandlerFailed or TimeoutError if it does not."""
        await asyncio.wait_for(self._loop.do("look", lambda: None), timeout)
        return self._pulse.lag
