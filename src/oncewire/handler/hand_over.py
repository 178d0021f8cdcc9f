"""Hand-over: push what arrived to an application that is called, in order per channel.

A message of a channel is offered until the application takes it, and only then the next one
of that channel; other channels go on meanwhile. What is offered stays leased to this process:
after a crash the next start finds it and offers it again, marked `redelivered`.

An application that refuses a message again and again holds up what comes behind it, and needs
somebody to look at it: an incident says so, once, and is closed when the message is taken.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from oncewire.errors import OncewireError, StoreProblem
from oncewire.handler.application import Application, Taken
from oncewire.handler.submit import Submission

logger = logging.getLogger("oncewire.handler")

OFFERED_MAX = 256
"""Messages offered and not taken yet; beyond it the rest waits in the store."""

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
"""Seconds between two offers of a message that the application did not take."""

REFUSALS_MAX = 10
"""After so many refusals in a row, some three minutes, the operator is called."""

IDLE = 1.0

Take = Callable[[int], Awaitable[list[Taken]]]
Confirm = Callable[[Taken, Sequence[Submission]], Awaitable[None]]
Refused = Callable[[Taken, str], Awaitable[bool]]
"""Calls the operator; False when the message waits for the application no more."""


class HandOver:
    """Offers messages to one application; `ready` says that there may be more of them."""

    def __init__(
        self,
        application: Application,
        take: Take,
        confirm: Confirm,
        refused: Refused,
        ready: asyncio.Event,
    ) -> None:
        self._application, self._take, self._confirm = application, take, confirm
        self._refused = refused
        self._ready = ready
        self._streams: dict[str, deque[Taken]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(max(1, application.batch))
        self._offered = 0
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Offer what is ready until `stop`."""
        while not self._stopping.is_set():
            self._ready.clear()
            room = OFFERED_MAX - self._offered
            taken = await self._taken(room) if room > 0 else []
            for one in taken:
                self._offer(one)
            if not taken:
                await self._wait(self._ready, IDLE)

    async def stop(self) -> None:
        """Let calls under way end; offers that wait for their next try are dropped."""
        self._stopping.set()
        self._ready.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)
        for task in self._tasks:
            task.cancel()

    async def _taken(self, room: int) -> list[Taken]:
        try:
            return await self._take(min(room, max(1, self._application.batch)))
        except OncewireError as problem:
            logger.warning("nothing could be taken", extra={"problem": str(problem)})
            return []

    def _offer(self, taken: Taken) -> None:
        # A message without a channel has no order to keep: it is a stream of its own.
        stream = taken.channel or f"{taken.sender}\0{taken.message_id}"
        self._offered += 1
        queue = self._streams.get(stream)
        if queue is not None:
            queue.append(taken)
            return
        self._streams[stream] = deque([taken])
        task = asyncio.get_running_loop().create_task(self._drain(stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drain(self, stream: str) -> None:
        queue = self._streams[stream]
        try:
            while queue and not self._stopping.is_set():
                await self._hand_over(queue[0])
                queue.popleft()
                self._offered -= 1
        finally:
            self._offered -= len(queue)
            del self._streams[stream]
            self._ready.set()

    async def _hand_over(self, taken: Taken) -> None:
        """Offer one message until it is taken and that is stored."""
        pause, refusals = FIRST_PAUSE, 0
        responses: Sequence[Submission] | None = None
        while not self._stopping.is_set():
            try:
                if responses is None:
                    async with self._turns:
                        responses = await self._application.deliver(taken) or ()
                await self._confirm(taken, responses)
            except StoreProblem as problem:
                # Our own trouble, not the application's.
                self._complain(taken, str(problem), pause)
            except Exception as problem:  # noqa: BLE001  (software we do not control)
                refusals += 1
                known = isinstance(problem, OncewireError)
                reason = str(problem) if known else f"{type(problem).__name__}: {problem}"
                self._complain(taken, reason, pause)
                if refusals >= REFUSALS_MAX and not await self._still_waits(taken, reason):
                    return
            else:
                return
            await self._wait(self._stopping, pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _still_waits(self, taken: Taken, reason: str) -> bool:
        """Call the operator, who may have confirmed the message by hand meanwhile."""
        try:
            return await self._refused(taken, reason)
        except OncewireError as problem:
            logger.warning("nobody could be called", extra={"problem": str(problem)})
            return True

    def _complain(self, taken: Taken, problem: str, pause: float) -> None:
        logger.warning(
            "the application did not take a message",
            extra={"message_id": taken.message_id, "problem": problem, "next_try_in": pause},
        )

    async def _wait(self, event: asyncio.Event, timeout: float) -> None:
        try:
            await asyncio.wait_for(event.wait(), timeout)
        except TimeoutError:
            return
