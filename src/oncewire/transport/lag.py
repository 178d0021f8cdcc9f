"""Lag: how far the event loop is behind, and how many strangers come in while it is.

Each step of a request waits for its turn in the loop, behind whatever everybody else wants of it.
So when the loop is late, a partner's message is late by ten times that; and most of what a stranger
costs is his connection, before there is a request that a budget could count. While the loop is
late, strangers are sent away as they come, all but a few: one of them may be a partner who is not
known yet, and the machine may be slow for other reasons than these.
"""

from __future__ import annotations

import asyncio

BEAT = 0.05
"""Seconds between two looks."""

FEW = 20.0
"""Strangers that come in each second however late it is."""


class Lag:
    """Looks at the clock again and again; the looks that come late tell."""

    def __init__(self, late: float) -> None:
        # Seconds beyond its time after which a look says that the loop is late.
        self._bound = late
        self._beat: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._late = 0.0
        self._few = FEW
        self._counted_at = 0.0

    def start(self) -> None:
        """Begin to look."""
        self._counted_at = asyncio.get_running_loop().time()
        self._wait()

    def stop(self) -> None:
        """Look no more."""
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.time() + BEAT
        self._beat = loop.call_at(self._due, self._look)

    def _look(self) -> None:
        self.saw(asyncio.get_running_loop().time() - self._due)
        self._wait()

    def saw(self, late: float) -> None:
        """A look came so late. One that came in time does not mean that the next one will."""
        self._late = max(late, self._late / 2)

    @property
    def is_late(self) -> bool:
        """Whether whoever waits for the loop waits too long."""
        return self._late > self._bound

    def takes_stranger(self, now: float) -> bool:
        """Whether one more stranger may come in now."""
        self._few = min(FEW, self._few + max(0.0, now - self._counted_at) * FEW)
        self._counted_at = now
        if self._few >= 1.0:
            self._few -= 1.0
            return True
        return not self.is_late
