"""Tally: how often things happened that anybody can make happen, within a bound."""

from __future__ import annotations

from oncewire.message.instant import HOUR, MINUTE, Duration, Instant

KEYS_MAX = 4096
"""Things counted apart; beyond that they are counted together."""

FORGOTTEN_AFTER: Duration = HOUR
"""What has not happened for so long makes room for something else."""

LOOKED_THROUGH_EACH: Duration = MINUTE
"""How often at most: whoever fills the table must not make every call look through it."""


class Tally:
    """Counts by name. Whoever writes a line for every power of two writes few lines, however
    often somebody makes a thing happen."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, Instant]] = {}
        self._forgotten_at: Instant = 0

    def __len__(self) -> int:
        return len(self._counts)

    def count(self, name: str, now: Instant) -> int:
        """One more; how many there are of that name now."""
        if name not in self._counts and len(self._counts) >= KEYS_MAX:
            self._forget(now)
        if name not in self._counts and len(self._counts) >= KEYS_MAX:
            name = ""
        counted = self._counts.get(name, (0, now))[0] + 1
        self._counts[name] = counted, now
        return counted

    def _forget(self, now: Instant) -> None:
        if self._forgotten_at and now - self._forgotten_at < LOOKED_THROUGH_EACH:
            return
        self._forgotten_at = now
        kept = self._counts.items()
        self._counts = {
            name: (counted, at) for name, (counted, at) in kept if now - at < FORGOTTEN_AFTER
        }


def is_told(count: int) -> bool:
    """Whether this one is told of: the first, the second, the fourth, ..."""
    return count & (count - 1) == 0
