"""The world outside: time and chance. The only module that reads a clock.

Everything else is told what time it is and which id to use, so the simulator puts its own
world in this one's place and one seed replays one run.
"""

from __future__ import annotations

import os
import time
from typing import Protocol

from oncewire.message.instant import Duration, Instant


class World(Protocol):
    """What a node may ask of the outside."""

    def now(self) -> Instant:
        """UTC, in microseconds; may jump when somebody sets the clock."""

    def mono(self) -> Duration:
        """Microseconds since this process began; never jumps (DRV-8)."""

    def new_id(self) -> str:
        """A word nobody has used before; later ones sort after earlier ones."""


class RealWorld:
    """The machine's clocks and its source of randomness."""

    def __init__(self) -> None:
        self._started = time.monotonic_ns()

    def now(self) -> Instant:
        """UTC from the machine's clock."""
        return time.time_ns() // 1_000

    def mono(self) -> Duration:
        """Microseconds since this object was made."""
        return (time.monotonic_ns() - self._started) // 1_000

    def new_id(self) -> str:
        """Time first, then 80 random bits: an index on ids grows at its end."""
        return f"{time.time_ns() // 1_000:014x}-{os.urandom(10).hex()}"
