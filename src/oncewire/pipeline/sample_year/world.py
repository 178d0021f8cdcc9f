"""The world of one stream: what happens in it, in the order of true time."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

from oncewire.message.instant import MILLISECOND, Duration, Instant
from oncewire.pipeline.sample_year.letter import Letter
from oncewire.pipeline.sample_year.row_writer import RowWriter


class World:
    """A queue of events until the end of the year, the rows they leave, and chance."""

    def __init__(self, writer: RowWriter, rng: Random, end: Instant) -> None:
        self.writer, self.rng = writer, rng
        self._end = end
        self._events: list[tuple[Instant, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def at(self, when: Instant, happens: Callable[..., None], *of: Any) -> None:
        """Something happens then; it is told when that is, and of what."""
        self._count += 1
        heappush(self._events, (when, self._count, happens, of))

    def run(self) -> None:
        """Let everything happen."""
        while self._events:
            when, _, happens, of = heappop(self._events)
            if when > self._end:
                return
            happens(when, *of)

    def latency(self, letter: Letter) -> Duration:
        """One way over the network. Neighbours of a fault do not overtake each other."""
        if letter.force is not None:
            return 50 * MILLISECOND
        return self.between(20 * MILLISECOND, 90 * MILLISECOND)

    def between(self, least: Duration, most: Duration) -> Duration:
        """Any duration from one to the other."""
        return least + int(self.rng.random() * (most - least))
