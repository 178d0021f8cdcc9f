"""Hole: rows of a node's journal that are not there, or not to be believed.

What a hole swallowed nobody knows. So no promise is called broken where a row in the hole may
have kept it: the hole itself is the finding, and what could not be judged because of it is
counted. Which messages it may concern is bounded by time: those that were under way on one of
their nodes while the missing rows were written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from oncewire.journal.predicates.violation import QUARANTINE, Violation, ViolationKind
from oncewire.message.instant import Instant, format_instant

HOLES_MAX = 1_000
"""More holes than this in one journal are told, and taken, as fewer and larger ones."""


class Hole(NamedTuple):
    """Positions `first` to `last` of one node, and the instants of the rows on both sides."""

    first: int
    last: int
    before: Instant | None
    """None: it is the journal's beginning that is missing."""
    after: Instant

    @property
    def is_head(self) -> bool:
        """Whether the journal begins behind it."""
        return self.before is None

    def touches(self, since: Instant, until: Instant) -> bool:
        """Whether something that was under way in that time may have rows in it."""
        if self.before is None:
            return since <= self.after
        # Somebody may have set the clock meanwhile.
        return min(self.before, self.after) <= until and since <= max(self.before, self.after)


def missing(positions: Iterable[tuple[int, Instant]]) -> list[Hole]:
    """The holes before and between positions, which come in order, each with its instant."""
    found: list[Hole] = []
    expected, before = 1, None
    for seq, at in positions:
        if seq > expected:
            found.append(Hole(expected, seq - 1, before, at))
        expected, before = seq + 1, at
    return merged(found)


def merged(holes: list[Hole]) -> list[Hole]:
    """The same holes, the closest ones taken together while there are too many."""
    if len(holes) <= HOLES_MAX:
        return holes
    step = -(-len(holes) // (HOLES_MAX - 1))
    head, rest = holes[:1], holes[1:]
    groups = [rest[start : start + step] for start in range(0, len(rest), step)]
    return [
        *head,
        *(
            Hole(group[0].first, group[-1].last, group[0].before, group[-1].after)
            for group in groups
        ),
    ]


def finding(node: str, hole: Hole) -> Violation:
    """What is told of a hole."""
    if hole.is_head:
        return Violation(
            QUARANTINE,
            ViolationKind.TRIMMED.value,
            None,
            None,
            node,
            f"Its journal begins with row {hole.last + 1}: what depends on earlier rows cannot be "
            "judged.",
        )
    rows = f"Row {hole.first}" if hole.first == hole.last else f"Rows {hole.first} to {hole.last}"
    return Violation(
        QUARANTINE,
        ViolationKind.HOLE.value,
        None,
        None,
        node,
        f"{rows} of its journal, between {_instant(hole.before)} and {_instant(hole.after)}, "
        f"{'is' if hole.first == hole.last else 'are'} missing: what they told cannot be judged.",
    )


def _instant(at: Instant | None) -> str:
    return "the beginning" if at is None else format_instant(at)
