"""Offers: something is given to the application again and again until it takes it.

An application that refuses again and again needs somebody to look at it: an incident says so,
once, and is closed when the thing is taken.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from oncewire.errors import OncewireError, StoreProblem

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
    # Set when somebody decided about it: it is given no more.
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Offers:
    """Offers to one application that are under way, and their end."""

    def __init__(self) -> None:
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
                self._complain(offer, reason, pause)
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

    def _complain(self, offer: Offer[T], problem: str, pause: float) -> None:
        logger.warning(
            offer.complaint,
            extra={"message_id": offer.message_id, "problem": problem, "next_try_in": pause},
        )

    async def _wait(self, event: asyncio.Event, timeout: float) -> None:
        try:
            await asyncio.wait_for(event.wait(), timeout)
        except TimeoutError:
            return
