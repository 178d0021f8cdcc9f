"""The simulated world: virtual time that jumps from event to event, and seeded chance."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

from oncewire.message.instant import Duration, Instant

START: Instant = 1_767_225_600_000_000
"""2026-01-01T00:00:00Z; any instant would do, a fixed one replays."""


class Clock:
    """Virtual time and the events still to come, in order of time and of scheduling."""

    def __init__(self, seed: int) -> None:
        self.now: Instant = START
        self.chance = random.Random(seed)
        self._queue: list[tuple[Instant, int, Callable[[], None]]] = []
        self._scheduled = 0

    def after(self, delay: Duration, event: Callable[[], None]) -> None:
        """Let the event happen that much later."""
        self._scheduled += 1
        heapq.heappush(self._queue, (self.now + max(delay, 0), self._scheduled, event))

    def at(self, instant: Instant, event: Callable[[], None]) -> None:
        """Let the event happen at that instant, or now if it has passed."""
        self.after(instant - self.now, event)

    def step(self) -> bool:
        """Go to the next event and let it happen; False when there is none."""
        if not self._queue:
            return False
        self.now, _, event = heapq.heappop(self._queue)
        event()
        return True

    def happens(self, probability: float) -> bool:
        """Draw: True with that probability."""
        return probability > 0 and self.chance.random() < probability


class NodeWorld:
    """One node's view of the world: its own boot, its own ids, the shared time."""

    def __init__(self, clock: Clock, name: str) -> None:
        self._clock = clock
        self._name = name
        self._booted = clock.now
        self._ids = 0

    def boot(self) -> None:
        """A new process: monotonic time starts again; ids are never used twice."""
        self._booted = self._clock.now

    def now(self) -> Instant:
        """Virtual UTC."""
        return self._clock.now

    def mono(self) -> Duration:
        """Virtual time since the boot."""
        return self._clock.now - self._booted

    def machine(self) -> str:
        """Every boot is one of the machine too: nothing steady is left of the one before."""
        return ""

    def new_id(self) -> str:
        """A fresh id, the same in every replay."""
        self._ids += 1
        return f"{self._name}-{self._ids}"
