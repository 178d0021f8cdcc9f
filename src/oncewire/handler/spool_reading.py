"""Spool reading: whether files of the spool are still what arrived, and threads that read them.

What an application is given must be what was accepted (S15), and to know that of a large body it
has to be read. A handler that runs does it in threads: a message that is not proved yet is passed
over for the moment, and given in a later turn. Who has no event loop reads it on the spot.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import thread_time
from typing import Any, TypeVar

from oncewire.errors import MimeProblem, OncewireError, StoreDamaged, StoreProblem
from oncewire.message.instant import MINUTE, Duration, Instant
from oncewire.store.spool_contract import Spool
from oncewire.wire.parcel import ReadFault, Received

SPOOL_ABOVE = 1024 * 1024
"""Bodies up to this size live in their row; larger ones in a file of the spool."""


LONG_PIECE = 1024 * 1024
"""Bytes that are fetched at once where all of a file is read."""

FRESH: Duration = MINUTE
"""How long a file that this process has just written needs no other proof."""

FRESH_MAX = 1000
"""How many of those are remembered."""

LOOK_AGAIN: Duration = MINUTE
"""How long a file that has changed is left alone; then it may have been put back."""


def check_file(spool: Spool, name: str, heard: Callable[[bytes], object] | None = None) -> None:
    """Refuse a file of the spool that has changed: it is named by its digest. Blocks while it is
    read; `heard` is given all of it."""
    if spool.name_of(_pieces(spool, name, heard)) != name:
        raise StoreDamaged(
            f"the spool file {name} has changed",
            remedy="put it back from a backup, or give its message up with `oncewire abandon`",
        )


def _pieces(spool: Spool, name: str, heard: Callable[[bytes], object] | None) -> Iterator[bytes]:
    with spool.open(name) as spooled:
        while piece := spooled.read(LONG_PIECE):
            if heard is not None:
                heard(piece)
            yield piece


class NotProved(Exception):
    """A message cannot be given yet: its files have to be read."""


class Proofs:
    """What is known of files, and which are to be read. A proof is good for one hand-over."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        # Files are read beside the turns; otherwise the caller waits.
        self.beside = False
        # Files that were asked for and are not read yet.
        self.wanted: set[str] = set()
        self._reading: set[str] = set()
        self._good: set[str] = set()
        self._fresh: dict[str, Instant] = {}
        self._bad: dict[str, Instant] = {}

    def fresh(self, names: Collection[str], now: Instant) -> None:
        """These were written just now, and digested as they were."""
        for name in names:
            self._fresh[name] = now + FRESH
            if len(self._fresh) > FRESH_MAX:
                del self._fresh[next(iter(self._fresh))]

    def hold(self, names: Collection[str], now: Instant, *, at_once: bool = False) -> bool:
        """Whether all of these are what they were; NotProved: that is not known yet, unless it
        has to be known at once."""
        if any(now < self._bad.get(name, 0) for name in names):
            return False
        fresh = {name for name in names if now < self._fresh.pop(name, 0)}
        missing = set(names) - self._good - fresh
        if missing and self.beside and not at_once:
            self.wanted |= missing - self._reading
            raise NotProved
        good = all(self._is_good(name) for name in missing)
        self._good.difference_update(names)
        return good

    async def read(self, now: Instant) -> bool:
        """Read what is wanted, in a thread; whether there was anything."""
        names, self.wanted = self.wanted, set()
        self._reading |= names
        try:
            for name in names:
                if await asyncio.to_thread(self._is_good, name):
                    self._good.add(name)
                else:
                    self._bad[name] = now + LOOK_AGAIN
        finally:
            self._reading -= names
        return bool(names)

    def _is_good(self, name: str) -> bool:
        try:
            check_file(self._spool, name)
        except StoreProblem:
            return False
        return True


# Reading: what is long to read is read beside the event loop, under a deadline.
#
# Who sends a large body must not keep the others waiting. So it is read by a few threads of their
# own, a piece at a time, and a piece is small enough that its time is bounded; whatever takes
# longer all the same is given up, and its sender asked to come again.


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
    was agreed, so only the partner hears of it."""

    @classmethod
    def of(cls, fault: ReadFault) -> RefusedByTerms:
        """A refusal that the agreement is the reason of."""
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
            # The thread cannot be stopped; what comes of it is not awaited any more.
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
    """Its error is not asked for; asyncio would complain of one that is never looked at."""
    if not done.cancelled():
        done.exception()
