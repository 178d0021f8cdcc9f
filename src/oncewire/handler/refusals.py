"""Refusals: what anybody may send and nobody takes is counted, and a sample of it kept.

One row of the journal for each would let strangers fill the disk. So whoever no agreement names
gets no row at all; who does name one, and proves nothing, gets a few, for an operator to see what
his partner's handler complains of. All of them are counted in one small table. The counts of the
last moments are in memory, and a crash may lose these: nothing else depends on them.
"""

from __future__ import annotations

from msgspec.structs import replace

from oncewire.message.instant import SECOND, Duration, Instant
from oncewire.store.contract import Transaction
from oncewire.store.records import Refusal

KEPT_MAX = 256
"""Kinds of refusal that are told apart between two writes."""

WRITE_EVERY: Duration = 5 * SECOND

JOURNALED_MAX = 100
"""Refusals that are journaled one by one before there is a pause ..."""
JOURNALED_EVERY: Duration = 6 * SECOND
"""... and after which time there may be one more."""

_TEXT_MAX = 300


class Refusals:
    """What was refused since the last write."""

    def __init__(self) -> None:
        self._counted: dict[tuple[str, str], Refusal] = {}
        self._due_at: Instant | None = None
        # How many there were since this process began.
        self.total = 0
        # Until when the rows of the journal are spoken for.
        self._journaled_until: Instant = 0

    @property
    def counted(self) -> tuple[Refusal, ...]:
        """What is not written yet."""
        return tuple(self._counted.values())

    @property
    def due_at(self) -> Instant | None:
        """When the counts are to be written; None: there are none."""
        return self._due_at

    def count(
        self, code: str, address: str, problem: str, message_id: str | None, now: Instant
    ) -> None:
        """Count one."""
        self.total += 1
        key = (code, address)
        if key not in self._counted and len(self._counted) >= KEPT_MAX:
            key = (code, "")
        before = self._counted.get(key)
        first, count = (now, 0) if before is None else (before.first_at, before.count)
        self._counted[key] = Refusal(
            *key, count + 1, first, now, problem[:_TEXT_MAX], message_id and message_id[:_TEXT_MAX]
        )
        if self._due_at is None:
            self._due_at = now + WRITE_EVERY

    def may_journal(self, now: Instant) -> bool:
        """Whether one more of them may have a row of the journal."""
        begin = max(self._journaled_until, now - JOURNALED_MAX * JOURNALED_EVERY)
        if begin + JOURNALED_EVERY > now:
            return False
        self._journaled_until = begin + JOURNALED_EVERY
        return True

    def write(self, tx: Transaction, now: Instant) -> None:
        """Put the counts into the table, and begin anew."""
        # Should the store refuse them, they are tried again, and not at once.
        self._due_at = now + WRITE_EVERY
        tx.count_refusals(tuple(self._counted.values()))
        self._counted.clear()
        self._due_at = None

    def shift(self, by: Duration) -> None:
        """The clock was set."""
        self._journaled_until += by
        if self._due_at is not None:
            self._due_at += by
        self._counted = {
            key: replace(refusal, first_at=refusal.first_at + by, last_at=refusal.last_at + by)
            for key, refusal in self._counted.items()
        }
