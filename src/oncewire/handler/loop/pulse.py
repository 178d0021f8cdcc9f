"""Pulse: how late the event loop is, so that a handler that hangs is not called running."""

from __future__ import annotations

import asyncio
from collections import deque

BEAT = 0.25
"""Seconds between two beats."""

REMEMBERED = 60.0
"""Seconds that a late beat counts."""


class Pulse:
    """Beats while the loop turns, and remembers its latest beats."""

    def __init__(self) -> None:
        self._late: deque[tuple[float, float]] = deque(maxlen=int(REMEMBERED / BEAT))

    @property
    def lag(self) -> float:
        """The longest that anything had to wait for its turn within the last minute, in seconds."""
        return max((late for _, late in self._late), default=0.0)

    async def run(self) -> None:
        """Beat for ever."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + BEAT
            await asyncio.sleep(BEAT)
            self.note(loop.time(), loop.time() - due)

    def note(self, now: float, late: float) -> None:
        """A beat came that much late."""
        while self._late and self._late[0][0] < now - REMEMBERED:
            self._late.popleft()
        self._late.append((now, max(0.0, late)))
