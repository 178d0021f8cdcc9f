"""Offers: something is given to the application again and again until it takes it.

An application that refuses again and again needs an operator's attention: an incident says so,
once, and is closed when the thing is taken.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from oncewire.errors import OncewireError, StoreGone, StoreProblem
from oncewire.handler.actions import Decided, Notice, Refused, Submission
from oncewire.handler.context import is_told
from oncewire.handler.delivering.deliver import Application, GivenMessage
from oncewire.handler.sending.submit import handed_in
from oncewire.message.instant import Instant
from oncewire.protocol.states import ENDLESS

if TYPE_CHECKING:
    from oncewire.handler.runtime.commit_loop import CommitLoop

logger = logging.getLogger("oncewire.handler")

T = TypeVar("T")

OFFERED_MAX = 256
"""Offers that are not taken yet; beyond it the rest waits in the store."""

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
"""Seconds between two offers of what the application did not take."""

REFUSALS_MAX = 10
"""After so many refusals in a row, some three minutes, the operator is called."""

IDLE = 1.0


@dataclass(frozen=True, slots=True)
class Offer(Generic[T]):
    """One thing, how it is given, and what becomes of it."""

    message_id: str
    # What the log says when it was not taken.
    complaint: str
    # Entered for each try, and left before the pause that follows it; False: it is not to be
    # made any more.
    turn: Callable[[], AbstractAsyncContextManager[bool]]
    give: Callable[[], Awaitable[T]]
    # Stores that it was taken, with what the application said to it.
    keep: Callable[[T], Awaitable[object]]
    # Calls the operator; False when it waits for the application no more.
    refused: Callable[[str], Awaitable[bool]]
    # Set when an operator decided about it: it is given no more.
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Offers:
    """Offers to one application that are under way, and their end."""

    def __init__(self, application: Application, loop: CommitLoop) -> None:
        self._application, self._loop = application, loop
        # Of what was refused and is still offered, by MessageId: how often, when last, and what
        # the application raised then.
        self.refusals: dict[str, tuple[int, Instant, str]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Hears of the end of each offer: one that ends by a fault of ours is not the offer's.
        self.ended: Callable[[asyncio.Task[None]], None] | None = None
        self._stopping = asyncio.Event()
        # Ends what waits for its next try.
        self._waiting: set[asyncio.Event] = set()

    async def stop(self) -> None:
        """Let calls under way end; offers that wait for their next try are dropped."""
        self._stopping.set()
        for over in self._waiting:
            over.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)
        for task in self._tasks:
            task.cancel()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self.ended is not None:
            self.ended(task)

    async def _until_taken(self, offer: Offer[T]) -> None:
        """Make an offer until it is taken and that is stored."""
        pause, refusals, taken = FIRST_PAUSE, 0, False
        said: T
        while not self._stopping.is_set() and not offer.over.is_set():
            try:
                async with offer.turn() as due:
                    if due and not taken:
                        said = await offer.give()
                        taken = True
                    if due:
                        await offer.keep(said)
            except StoreProblem as problem:
                # Our own trouble, not the application's.
                self._complain(offer, str(problem), pause)
            except Exception as problem:  # noqa: BLE001  (software we do not control)
                refusals += 1
                known = isinstance(problem, OncewireError)
                reason = str(problem) if known else f"{type(problem).__name__}: {problem}"
                shown = None if known or not is_told(refusals) else _of_application(problem)
                self._complain(offer, reason, pause, shown)
                now = self._loop.engine.context.now()
                self.refusals[offer.message_id] = refusals, now, reason[:200]
                if offer.over.is_set():
                    return
                if refusals >= REFUSALS_MAX and not await self._still_waits(offer, reason):
                    return
            else:
                return
            self._waiting.add(offer.over)
            await self._wait(offer.over, pause)
            self._waiting.discard(offer.over)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _still_waits(self, offer: Offer[T], reason: str) -> bool:
        """Call the operator, who may have dealt with it by hand meanwhile."""
        try:
            return await offer.refused(reason)
        except OncewireError as problem:
            logger.warning("nobody could be called", extra={"problem": str(problem)})
            return True

    def _complain(
        self, offer: Offer[T], problem: str, pause: float, raised: Exception | None = None
    ) -> None:
        logger.warning(
            offer.complaint,
            extra={"message_id": offer.message_id, "problem": problem, "next_try_in": pause},
            exc_info=raised,
        )

    async def _wait(self, event: asyncio.Event, timeout: float) -> None:
        try:
            await asyncio.wait_for(event.wait(), timeout)
        except TimeoutError:
            return


def _of_application(problem: Exception) -> Exception:
    """What the application raised, from where its own code begins: the log keeps the beginning of a
    traceback, and how it was called is our matter."""
    own, frame = __name__.partition(".")[0], problem.__traceback__
    while frame is not None and frame.tb_next is not None:
        module = str(frame.tb_frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in {own, "asyncio", "concurrent"}:
            break
        frame = frame.tb_next
    return problem.with_traceback(frame)


# Hand-over: push what arrived to an application that is called, in order per channel.
#
# A message is handed over when the application is called with it, and not before: what waits for
# the application to be free is nobody's yet, and may still be closed. The application has `batch`
# places. Whoever has a place takes one message from the store in the commit that confirms the one
# before, so a place costs one commit for each message.
#
# A message of a channel is offered until the application takes it, and only then the next one of
# that channel; other channels go on meanwhile. After a crash the next start finds what was handed
# over and offers it again, marked `redelivered`.
#
# A message that is refused again and again holds up what comes behind it (see `offers`).


class HandOver(Offers):
    """Offers messages to one application; `ready` says that there may be more of them."""

    def __init__(self, application: Application, loop: CommitLoop, ready: asyncio.Event) -> None:
        super().__init__(application, loop)
        self._ready = ready
        self._places = asyncio.Semaphore(max(1, application.batch))
        # Of every message that is offered, by sender and MessageId: set when a person decided
        # about it.
        self._over: dict[tuple[str, str], asyncio.Event] = {}

    async def run(self) -> None:
        """Offer what is ready, as long as there are places for it, until `stop`."""
        while not self._stopping.is_set():
            # Occupy every place that is free, one at least; returns how many.
            await self._places.acquire()
            places = 1
            while not self._places.locked():
                await self._places.acquire()
                places += 1
            self._ready.clear()
            taken = await self._taken(places)
            for given in taken:
                self._spawn(self._hand_over(given))
            for _ in range(places - len(taken)):
                self._places.release()
            if not taken:
                await self._wait(self._ready, IDLE)

    async def stop(self) -> None:
        """See `Offers`."""
        self._stopping.set()
        self._ready.set()
        await super().stop()

    async def _taken(self, places: int) -> list[GivenMessage]:
        try:
            return await self._loop.do("take", lambda: self._take(places))
        except OncewireError as problem:
            logger.warning("nothing could be taken", extra={"problem": str(problem)})
            return []

    def _take(self, places: int) -> list[GivenMessage]:
        """Hand over what the application is called with right after the commit. The lease does
        not end: what is offered stays ours until a restart."""
        engine = self._loop.engine
        if self._stopping.is_set() or engine.context.drains:
            return []
        taken = engine.hand_over(places, ENDLESS, one_by_one=True)
        if engine.context.state.proofs.wanted:
            self._spawn(self._prove())
        return taken

    async def _prove(self) -> None:
        """Read the files of what was passed over; then it is given."""
        context = self._loop.engine.context
        await context.state.proofs.read(context.now())
        self._ready.set()

    def end(self, decided: Decided) -> None:
        """A person decided about a message: it is not offered again, and the next one goes on."""
        over = self._over.get((decided.sender, decided.message_id))
        if over is not None:
            over.set()

    async def _hand_over(self, taken: GivenMessage) -> None:
        """Offer one message, which comes with a place, until it is taken and that is stored."""
        engine, sender, message_id = self._loop.engine, taken.sender, taken.message_id
        # Whether this message has a place at the application, and whether it needs to be asked
        # for: right after its hand-over, and once the application has it, it need not.
        place, known = True, True
        # Whether there may be something for another place when it is over: its channel is free.
        frees = True
        over = self._over[sender, message_id] = asyncio.Event()

        @asynccontextmanager
        async def turn() -> AsyncIterator[bool]:
            nonlocal place, known
            if not place:
                await self._places.acquire()
                place = True
            try:
                yield known or (
                    not over.is_set()
                    and await self._loop.do(
                        "look", lambda: engine.still_offered(sender, message_id)
                    )
                )
            finally:
                if place:
                    place = False
                    self._places.release()

        async def give() -> Sequence[Submission]:
            nonlocal known
            fellows = engine.context.store.fellows
            if fellows is not None and not fellows.stands:
                raise StoreGone("the lease of this handler has run out")
            known = False
            said = await self._application.deliver(taken) or ()
            known = True
            return said

        async def keep(said: Sequence[Submission]) -> None:
            nonlocal place, frees
            async with handed_in(engine.context, said) as handed:
                ready = handed.submissions

                def confirm() -> tuple[bool, list[GivenMessage]]:
                    new = engine.confirm(sender, message_id, ready)
                    return new, self._following()

                handed.kept, following = await self._loop.do("confirm", confirm)
            for given in following:
                # It has the place from now on.
                place = False
                self._spawn(self._hand_over(given))
                frees = taken.channel not in (None, given.channel)

        async def refused(reason: str) -> bool:
            return await self._loop.do(
                "operate", lambda: engine.refused(sender, message_id, reason)
            )

        complaint = "the application did not take a message"
        try:
            await self._until_taken(Offer(message_id, complaint, turn, give, keep, refused, over))
        finally:
            del self._over[sender, message_id]
            engine.context.state.offering.discard((sender, message_id))
            self.refusals.pop(message_id, None)
            if frees:
                self._ready.set()

    def _following(self) -> list[GivenMessage]:
        """The message that the place of a confirmed one is for next; none where the store has
        a trouble, for that is not the confirmed one's."""
        try:
            return self._take(1)
        except OncewireError as problem:
            logger.warning("nothing could be taken", extra={"problem": str(problem)})
            return []


# Telling: the application hears of its messages that failed, each failure until it took it.
#
# The store knows what is owed, so that after a crash everything that was not taken is told again.
# Notices keep no order, and one that is refused holds up no other.


class Telling(Offers):
    """Tells one application; `due` says that there may be more to tell."""

    def __init__(self, application: Application, loop: CommitLoop) -> None:
        super().__init__(application, loop)
        self._turns = asyncio.Semaphore(max(1, application.batch))
        self._offered: set[str] = set()
        self.due = asyncio.Event()

    async def run(self) -> None:
        """Tell what is owed until `stop`."""
        while not self._stopping.is_set():
            self.due.clear()
            for notice in await self._owed():
                self._offered.add(notice.notice_id)
                self._spawn(self._tell(notice))
            await self._wait(self.due, IDLE)

    async def stop(self) -> None:
        """See `Offers`."""
        self._stopping.set()
        self.due.set()
        await super().stop()

    async def _owed(self) -> list[Notice]:
        found: list[Notice] = []
        context = self._loop.engine.context
        try:
            await self._loop.do("look", lambda: self._find(found))
        except OncewireError as problem:
            logger.warning("nothing could be told", extra={"problem": str(problem)})
            context.state.telling.difference_update(notice.notice_id for notice in found)
            return []
        return found

    def _find(self, found: list[Notice]) -> None:
        """Find what is owed and told by none yet; the commit claims it."""
        engine = self._loop.engine
        if engine.context.drains:
            return
        owed = engine.notices(OFFERED_MAX)
        with engine.context.transition():
            elsewhere = engine.context.elsewhere("notice")
        for notice in owed:
            notice_id = notice.notice_id
            if notice_id not in self._offered and ("", notice_id) not in elsewhere:
                engine.context.state.telling.add(notice_id)
                found.append(notice)

    def tell_of(self, refused: Refused) -> None:
        """Tell of a best-effort message that was refused, until the application takes it, has
        refused to `REFUSALS_MAX` times, or this process ends: it is not owed (C34)."""
        notice = refused.notice
        if notice.notice_id in self._offered or len(self._offered) >= OFFERED_MAX:
            return
        self._offered.add(notice.notice_id)
        self._spawn(self._tell_of(notice))

    async def _tell_of(self, notice: Notice) -> None:
        @asynccontextmanager
        async def turn() -> AsyncIterator[bool]:
            async with self._turns:
                yield True

        async def give() -> None:
            await self._application.notify(notice)

        async def keep(_said: None) -> None:
            """There is nothing to store."""

        async def refused(_reason: str) -> bool:
            return False

        complaint = "the application did not take the news of a refusal"
        try:
            await self._until_taken(Offer(notice.message_id, complaint, turn, give, keep, refused))
        finally:
            self._offered.discard(notice.notice_id)
            self.refusals.pop(notice.message_id, None)

    async def _tell(self, notice: Notice) -> None:
        engine, notice_id = self._loop.engine, notice.notice_id

        @asynccontextmanager
        async def turn() -> AsyncIterator[bool]:
            async with self._turns:
                # While it was refused the message may have been acknowledged, or sent again.
                yield await self._loop.do("look", lambda: engine.owes(notice_id))

        async def give() -> None:
            await self._application.notify(notice)

        async def keep(_said: None) -> None:
            await self._loop.do("told", lambda: engine.confirm_notice(notice_id))

        async def refused(reason: str) -> bool:
            return await self._loop.do("operate", lambda: engine.notice_refused(notice_id, reason))

        complaint = "the application did not take the notice of a failure"
        try:
            await self._until_taken(Offer(notice.message_id, complaint, turn, give, keep, refused))
        finally:
            self._offered.discard(notice_id)
            engine.context.state.telling.discard(notice_id)
            self.refusals.pop(notice.message_id, None)
            self.due.set()
