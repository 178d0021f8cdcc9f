"""Parts: what the journal of its sender tells of those in which a document travels.

The document itself is never sent, so its own rows say nothing of attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from oncewire.journal import trace
from oncewire.journal.outcome import fold_outcome
from oncewire.journal.row import Row
from oncewire.message.instant import Instant
from oncewire.protocol import notes
from oncewire.protocol.documents import part_id


@dataclass(frozen=True, slots=True)
class Parts:
    """All parts of a document together."""

    total: int
    acknowledged: int
    attempts: int
    first_sent_at: Instant | None

    def __str__(self) -> str:
        return f"in {self.total} parts, {self.acknowledged} acknowledged"


def parts_total(rows: Iterable[Row]) -> int | None:
    """In how many parts a document was sent, or of how many it was joined; None: it is none."""
    for row in rows:
        if row.kind == trace.JOINED:
            return notes.Joined.read(row.detail).total
        if row.kind == trace.SUBMITTED:
            submitted = notes.Submitted.read(row.detail)
            if submitted.split_id == row.message_id and not submitted.is_part:
                return submitted.split_total
    return None


def parts_of(rows: list[Row], journal_of: Callable[[str], list[Row]]) -> Parts | None:
    """How far the parts of a document are that was submitted here; `rows` are the document's."""
    submitted = next((row for row in rows if row.kind == trace.SUBMITTED), None)
    total = None if submitted is None else parts_total([submitted])
    if submitted is None or total is None or submitted.message_id is None:
        return None
    names = (part_id(submitted.message_id, number, total) for number in range(1, total + 1))
    known = [found for name in names if (found := fold_outcome(journal_of(name))) is not None]
    return Parts(
        total,
        sum(part.acknowledged_at is not None for part in known),
        sum(part.attempts for part in known),
        min((part.first_sent_at for part in known if part.first_sent_at is not None), default=None),
    )
