"""Proofs: whether files of the spool are still what arrived, before their messages are given.

What an application is given must be what was accepted (S15), and to know that of a large body it
has to be read. A handler that runs does it in threads: a message that is not proved yet is passed
over for the moment, and given in a later turn. Who has no event loop reads it on the spot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator

from oncewire.errors import StoreDamaged, StoreProblem
from oncewire.message.instant import MINUTE, Duration, Instant
from oncewire.store.spool_contract import Spool

LONG_PIECE = 1024 * 1024
"""Bytes that are fetched at once where all of a file is read."""

FRESH: Duration = MINUTE
"""How long a file that this process has just written needs no other proof."""

FRESH_MAX = 1000
"""How many of those are remembered."""

LOOK_AGAIN: Duration = MINUTE
"""How long a file that has changed is left alone; then somebody may have put it back."""


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
        # Files are read beside the turns; otherwise whoever asks waits.
        self.beside = False
        # Files that somebody asked for and that nobody reads yet.
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
