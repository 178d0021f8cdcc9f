"""Reading: what is long to read is read beside the event loop, under a deadline.

Who sends a large body must not keep the others waiting. So it is read by a few threads of their
own, a piece at a time, and a piece is small enough that its time is bounded; whatever takes longer
all the same is given up, and its sender asked to come again.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import thread_time
from typing import Any, TypeVar

from oncewire.errors import MimeProblem, OncewireError
from oncewire.wire.received import Received
from oncewire.wire.refusal import ReadFault

T = TypeVar("T")

THREADS = 2
"""More would only take the interpreter from each other and from the event loop."""

SWITCH = 0.0005
"""Seconds that a thread keeps the interpreter while the event loop waits for it. The usual time is
ten times as long, and would be paid again for each step of everybody's messages."""

DEADLINE = 20.0
"""Seconds until a piece of work must be done, those before it in the queue included."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A body that was read before its turn came: the message, or why there is none."""

    # None only for a body that is not intact.
    found: Received | ReadFault | None
    # Whether it is what its sender's digest says; True where none was given.
    intact: bool = True

    def message(self) -> Received:
        """The message, or the ReadFault that says why there is none."""
        if isinstance(self.found, Received):
            return self.found
        raise self.found or ReadFault((MimeProblem("the body was damaged on its way"),))


class RefusedByTerms(ReadFault):
    """A message that can be read, and that an agreement refuses: what is wrong with it says what
    was agreed, so nobody hears of it but the partner."""

    @classmethod
    def of(cls, fault: ReadFault) -> RefusedByTerms:
        """The same refusal, for a reason of the agreement's."""
        return cls(fault.errors, fault.known, fault.envelope, fault.notes, fault.fault)


class TooLong(OncewireError):
    """Reading took longer than anything that is meant to be read."""


class ReadingRoom:
    """The threads, which begin with the first body that needs them."""

    def __init__(self, threads: int = THREADS, deadline: float = DEADLINE) -> None:
        self._threads = threads
        self._deadline = deadline
        self._pool: ThreadPoolExecutor | None = None

    async def do(self, work: Callable[[], T]) -> tuple[T, float]:
        """Do it in a thread; what it gave, and the seconds of a processor it took."""
        if self._pool is None:
            sys.setswitchinterval(min(SWITCH, sys.getswitchinterval()))
            self._pool = ThreadPoolExecutor(self._threads, "oncewire reading")

        def measured() -> tuple[T, float]:
            began = thread_time()
            done = work()
            return done, thread_time() - began

        doing = asyncio.get_running_loop().run_in_executor(self._pool, measured)
        try:
            return await asyncio.wait_for(asyncio.shield(doing), self._deadline)
        except TimeoutError:
            # The thread cannot be stopped; whatever comes of it nobody waits for any more.
            doing.add_done_callback(_heard)
            raise TooLong(
                "the body took too long to read", remedy="send it again later, or in parts"
            ) from None
        except asyncio.CancelledError:
            doing.add_done_callback(_heard)
            raise

    def close(self) -> None:
        """Take no more work; what is under way ends by itself."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


def _heard(done: asyncio.Future[Any]) -> None:
    """Its error is nobody's; asyncio would complain of one that is never looked at."""
    if not done.cancelled():
        done.exception()
