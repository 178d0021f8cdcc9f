"""Outages: why senders are sent away, said once in the log and then now and then.

A store that cannot be written fails for every arrival. Each of them says so would fill the log;
none of them would leave nobody the wiser.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from oncewire.errors import OncewireError

logger = logging.getLogger("oncewire.handler")

AGAIN = 60.0
"""Seconds until the same trouble is told again, with how often it came meanwhile."""

KINDS_MAX = 64


class Outages:
    """Tells of each kind of trouble at once, and of its repeats in one line a minute."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._told: dict[str, tuple[float, int]] = {}

    def say(self, problem: OncewireError) -> None:
        """Log it, unless it was just logged."""
        # One for each kind: a text may name another message each time.
        kind, now = type(problem).__name__, self._now()
        at, repeats = self._told.get(kind, (-AGAIN, 0))
        if now - at < AGAIN:
            self._told[kind] = at, repeats + 1
            return
        if len(self._told) >= KINDS_MAX:
            self._told.clear()
        self._told[kind] = now, 0
        logger.error(
            "senders are sent away: the store cannot take or give what they need",
            extra={"problem": str(problem), "repeats": repeats},
        )
