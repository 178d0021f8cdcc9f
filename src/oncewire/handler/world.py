"""The world outside: time and chance. The only module that reads a clock.

Everything else is told what time it is and which id to use, so the simulator puts its own
world in this one's place and one seed replays one run.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Protocol

from oncewire.message.instant import Duration, Instant

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class World(Protocol):
    """What a node may ask of the outside."""

    def now(self) -> Instant:
        """UTC, in microseconds; may jump when somebody sets the clock."""

    def mono(self) -> Duration:
        """Steady microseconds; never jumps, and counts on while the machine sleeps (DRV-8)."""

    def machine(self) -> str:
        """Which boot of which machine `mono` counts in; empty: it counts in this process only."""

    def new_id(self) -> str:
        """A word nobody has used before; later ones sort after earlier ones."""


class RealWorld:
    """The machine's clocks and its source of randomness."""

    def __init__(self) -> None:
        # Linux alone has a clock that also counts the time a machine was asleep, and a name for
        # each of its boots. Elsewhere a restart of the process starts the count anew.
        self._clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        self._machine = _boot_of_the_machine() if hasattr(time, "CLOCK_BOOTTIME") else ""
        self._started = 0 if self._machine else time.clock_gettime_ns(self._clock)

    def now(self) -> Instant:
        """UTC from the machine's clock."""
        return time.time_ns() // 1_000

    def mono(self) -> Duration:
        """Microseconds since the machine was booted, or since this object was made."""
        return (time.clock_gettime_ns(self._clock) - self._started) // 1_000

    def machine(self) -> str:
        """The kernel's name of this boot."""
        return self._machine

    def new_id(self) -> str:
        """Time first, then 80 random bits: an index on ids grows at its end."""
        return f"{time.time_ns() // 1_000:014x}-{os.urandom(10).hex()}"


def _boot_of_the_machine() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip().replace("-", "")
    except (OSError, UnicodeDecodeError):
        return ""
