"""Named points at which a test may kill the process, to see what a crash there leaves.

In production nobody is set to be killed and `reach` does nothing. A test names a point and
a count; when the point is reached for that time, the process leaves a mark and dies as by
`kill -9`: no clean-up, no flush, no goodbye.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

POINTS = (
    # Every handler: taking up what the last run left, an operator's word, a graceful end.
    "start before commit",
    "start after commit",
    "operate before commit",
    "operate after commit",
    "stop before commit",
    "stop after commit",
    # The sender: a submission, an attempt, and the answer that settles it.
    "submit before commit",
    "submit after commit",
    "post before send",
    "post after send",
    "outcome before commit",
    "outcome after commit",
    "tick before commit",
    "tick after commit",
    # The receiver: an arrival, its answer, and the hand-over to the application.
    "read before body",
    "read after body",
    "spool before fsync",
    "spool after fsync",
    "receive before commit",
    "receive after commit",
    "join before work",
    "join after work",
    "join before commit",
    "join after commit",
    "answer before send",
    "answer after send",
    "answer left before commit",
    "answer left after commit",
    "take before commit",
    "take after commit",
    "confirm before commit",
    "confirm after commit",
)
"""Before and after each durable step and each departure of bytes."""


class KillPoints:
    """Where this process is to die; by default nowhere."""

    def __init__(self, point: str = "", count: int = 1, mark: str = "") -> None:
        if point and point not in POINTS:
            raise ValueError(f"there is no kill point {point!r}")
        self._point, self._count, self._mark = point, count, mark
        self._reached: Counter[str] = Counter()
        # Whether there is one at all: in production nobody need name the points.
        self.armed = bool(point)

    @classmethod
    def from_environment(cls) -> KillPoints:
        """ONCEWIRE_KILL_AT="point:count" and ONCEWIRE_KILL_MARK=file; for tests only."""
        point, _, count = os.environ.get("ONCEWIRE_KILL_AT", "").partition(":")
        return cls(point, int(count or 1), os.environ.get("ONCEWIRE_KILL_MARK", ""))

    def reach(self, point: str) -> None:
        """Say that a point is reached; does not return if this was the time to die."""
        if point != self._point:
            return
        self._reached[point] += 1
        if self._reached[point] == self._count:
            if self._mark:
                Path(self._mark).write_text(point)
            os.kill(os.getpid(), signal.SIGKILL)


NOWHERE = KillPoints()
"""Of those whom no test kills."""
