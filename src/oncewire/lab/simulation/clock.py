"""Clock: virtual time that jumps from event to event, and what each node takes for the time."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from oncewire.message.instant import Duration, Instant

START: Instant = 1_767_225_600_000_000
"""2026-01-01T00:00:00Z; any instant would do, a fixed one replays."""


class Clock:
    """Virtual time and the events still to come, in order of time and of scheduling."""

    def __init__(self) -> None:
        self.now: Instant = START
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


class NodeWorld:
    """The `World` of one node's handler: its own boot, its own ids, and a clock that may be wrong.

    On a `steady` machine monotonic time goes on while the process starts again, as on Linux.
    """

    def __init__(self, clock: Clock, name: str, *, steady: bool) -> None:
        self._clock, self._name, self._steady = clock, name, steady
        self._booted = clock.now
        self._ids = 0
        self.offset: Duration = 0

    def boot(self) -> None:
        """A new process begins; ids of the one before are not used again."""
        if not self._steady:
            self._booted = self._clock.now

    def now(self) -> Instant:
        """What this node takes for UTC."""
        return self._clock.now + self.offset

    def mono(self) -> Duration:
        """Monotonic time."""
        return self._clock.now - self._booted

    def machine(self) -> str:
        """Which boot of which machine the monotonic time belongs to; empty where none is known."""
        return f"machine-of-{self._name}" if self._steady else ""

    def new_id(self) -> str:
        """A fresh id, the same in every replay."""
        self._ids += 1
        return f"{self._name}-{self._ids}"
