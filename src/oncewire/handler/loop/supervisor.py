"""Supervisor: the tasks of a handler, none of which may end unnoticed.

A loop that ended by a fault would leave a handler that listens and does nothing. So a fault that
nobody foresaw is said once, everybody who waits is told, and whoever runs the handler ends the
process: the next one takes up what was stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from oncewire.errors import HandlerFailed
from oncewire.handler.loop.pulse import Pulse
from oncewire.handler.loop.shell import Shell

logger = logging.getLogger("oncewire.handler")


class Supervisor:
    """Starts tasks, sees how they end, and knows whether the handler takes turns."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._tasks: set[asyncio.Task[None]] = set()
        self._pulse = Pulse()
        self._loops: list[asyncio.Task[None]] = []
        self._failed = asyncio.Event()

    def start(self) -> None:
        """Begin to take turns."""
        self._shell.start(self.ended)
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
            self._shell.fail(problem)
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
        return self._shell.failed or HandlerFailed("the handler failed")

    async def probe(self, timeout: float) -> float:
        """See that the handler takes turns; returns how late its loop was within the last minute,
        in seconds. HandlerFailed or TimeoutError if it does not."""
        await asyncio.wait_for(self._shell.do("look", lambda: None), timeout)
        return self._pulse.lag
