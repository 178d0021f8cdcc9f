"""The world outside: time and chance. The only module that reads a clock.

Everything else is told what time it is and which id to use, so the simulator puts its own
world in this one's place and one seed replays one run.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from oncewire.journal.row import Row, machine_of
from oncewire.message.instant import MILLISECOND, SECOND, Duration, Instant

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class World(Protocol):
    """What a node may ask of the outside."""

    def now(self) -> Instant:
        """UTC, in microseconds; may jump when the clock is set."""

    def mono(self) -> Duration:
        """Steady microseconds; never jumps, and counts on while the machine sleeps (DRV-8)."""

    def machine(self) -> str:
        """Which boot of which machine `mono` counts in; empty: it counts in this process only."""

    def new_id(self) -> str:
        """A word that was never used before; later ones sort after earlier ones."""


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


# Timeline: the time a node lives by, which cannot be set.
#
# Two clocks tell the time. The one people read is UTC, and anybody may set it; the steady one never
# jumps and knows no date. The timeline is the steady clock with a date: what UTC was when it was
# last believed, plus the steady time since. Every timer, timestamp and journal row of a node is an
# instant of it, so a wait lasts as long as was agreed whatever becomes of the machine's clock.
#
# The two clocks are compared at every reading. A small difference is a correction and is followed:
# the line moves, and the caller moves every timer with it. A large one means that one of the two
# times is wrong, and the node cannot tell which: the clock is in doubt until both agree again or
# an operator accepts the new time. Meanwhile the line goes on as before, and nothing may be
# declared expired.
#
# After a restart the line goes on where the last journal row left it, if the machine has not been
# booted since. If it has, only UTC is left, and it cannot be earlier than the last row.


CLOCK_SET: Duration = SECOND
"""A difference between the clocks that is more than the time between two looks at them."""

CORRECTION: Duration = 10 * SECOND
"""The largest difference that is taken for a correction: time services that step a clock instead of
slewing it do so by less, unless it was wrong."""

DRIFT = 1_000
"""Clocks that are slewed, or never set right, may part by one second in so many."""

_GLANCE: Duration = 100 * MILLISECOND
"""Looks at two clocks that lie further apart do not tell of one moment."""


@dataclass(frozen=True, slots=True)
class _State:
    """What a commit keeps or takes back."""

    # What UTC was, as far as we believe it, when the steady clock showed zero.
    origin: Instant
    # The incident of the present doubt is open.
    told: bool = False
    # After a boot of the machine under a clock that had gone back, the line began with the last
    # journal row: any later time may be the right one.
    earliest: bool = False
    # After a boot of the machine while the clock was in doubt: only an operator knows.
    unknown: bool = False


class Timeline:
    """One node's time."""

    def __init__(self, world: World) -> None:
        self._agreed_at, utc = world.mono(), world.now()
        self._state = self._committed = _State(utc - self._agreed_at)
        # How far UTC lies ahead of the line, as of the last reading, and how far it may.
        self.ahead: Duration = 0
        self._room: Duration = CORRECTION

    def begin(self, world: World, last: Row | None, told: bool) -> None:
        """Go on where an earlier run left off. `told`: its clock was in doubt."""
        mono, utc = world.mono(), world.now()
        state = replace(self._state, origin=utc - mono, told=told)
        machine = world.machine()
        if last is not None and machine and machine_of(last.boot) == machine:
            state = replace(state, origin=last.at - last.mono)
        elif last is not None and utc < last.at - CLOCK_SET:
            state = replace(state, origin=last.at - mono, earliest=True)
        else:
            state = replace(state, unknown=told)
        self._state = self._committed = state
        self._agreed_at = mono
        self.read(world)

    def read(self, world: World) -> tuple[Instant, Duration]:
        """UTC as the line has it, and steady time, of one instant."""
        mono, utc, after = world.mono(), world.now(), world.mono()
        if after - mono > _GLANCE:
            # The process was put aside between the looks. It may be so again, but not for ever.
            mono, utc, after = world.mono(), world.now(), world.mono()
        at = self._state.origin + mono
        # What passed between the looks is no difference.
        self.ahead = utc - at - min(max(utc - at, 0), after - mono)
        if abs(self.ahead) <= CORRECTION:
            self._agreed_at = mono
        self._room = CORRECTION + (mono - self._agreed_at) // DRIFT
        return at, mono

    @property
    def in_doubt(self) -> bool:
        """Whether the clocks tell two times and no operator said yet which is right."""
        state = self._state
        if state.unknown:
            return True
        if state.earliest:
            return self.ahead < -CORRECTION
        return abs(self.ahead) > (CORRECTION if state.told else self._room)

    @property
    def told(self) -> bool:
        """Whether the operator was called because of the clock."""
        return self._state.told

    @property
    def restless(self) -> bool:
        """Whether there is something to write down: a doubt, the end of one, a correction."""
        doubt, told = self.in_doubt, self._state.told
        if doubt or told:
            return doubt != told
        return abs(self.ahead) > CLOCK_SET or self._state.earliest

    def doubt(self) -> None:
        """The operator is called in this transition."""
        self._state = replace(self._state, told=True)

    def follow(self) -> Duration:
        """Take UTC for the time in this transition; returns by how much the line moved."""
        moved, self.ahead = self.ahead, 0
        self._state = _State(self._state.origin + moved)
        return moved

    def keep(self) -> None:
        """What changed since the last commit is durable."""
        self._committed = self._state

    def undo(self) -> None:
        """What changed since the last commit was not stored."""
        self._state = self._committed
