"""Steps: the order in which a node says that things happened to a message can be.

A step that follows from another stands behind it in the node's own journal, where positions are
given with each commit. Where the earlier step has no row at all, other predicates say what is
missing; here both are there, the wrong way round, or they name different numbers.
"""

from __future__ import annotations

from oncewire.journal.predicates.subject import Subject
from oncewire.journal.predicates.violation import ViolationKind
from oncewire.journal.row import Row
from oncewire.journal.trace import (
    CONFIRMED,
    DUPLICATE,
    EXHAUSTED,
    FORWARDED,
    HANDED_OVER,
    JOINED,
    NUMBERED,
    RECEIVED,
    SEND_FAILED,
    SENT,
    SUBMITTED,
    Trace,
)

FOLLOWS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (HANDED_OVER, (RECEIVED, JOINED)),
    (CONFIRMED, (HANDED_OVER,)),
    (DUPLICATE, (RECEIVED, FORWARDED)),
    (FORWARDED, (RECEIVED,)),
    (NUMBERED, (SUBMITTED,)),
    (SENT, (SUBMITTED,)),
    (SEND_FAILED, (SUBMITTED,)),
    (EXHAUSTED, (SENT,)),
)
"""A step, and those of which one stands before it if any of them is there at all."""


def judge(subject: Subject) -> None:
    """Each node by itself."""
    for trace in subject.traces:
        problem = _problem_of_order(trace)
        if problem is not None:
            subject.found("steps", ViolationKind.IMPOSSIBLE_ORDER, trace.node, problem)
        problem = _problem_of_numbers(trace)
        if problem is not None:
            subject.found("steps", ViolationKind.CONTRADICTION, trace.node, problem)


def _problem_of_order(trace: Trace) -> str | None:
    kinds = trace.kinds
    for step, earlier in FOLLOWS:
        rows = kinds.get(step)
        if rows is None:
            continue
        before = [kinds[kind][0].seq for kind in earlier if kind in kinds]
        if before and rows[0].seq < min(before):
            return (
                f"Its row {step!r} stands before the row {' or '.join(map(repr, earlier))} that "
                "it follows from."
            )
    return None


def _problem_of_numbers(trace: Trace) -> str | None:
    """What a receiver hands over has the number that it arrived with."""
    received = trace.kinds.get(RECEIVED)
    if received is None or len(received) > 1 or received[0].sequence_number is None:
        return None
    arrived = _place(received[0])
    for kind in (HANDED_OVER, CONFIRMED):
        for row in trace.kinds.get(kind, ()):
            if row.sequence_number is not None and _place(row) != arrived:
                return (
                    f"It arrived as number {arrived[2]} of epoch {arrived[1]}, but its row "
                    f"{kind!r} has number {row.sequence_number} of epoch {row.epoch}."
                )
    return None


def _place(row: Row) -> tuple[str | None, int | None, int | None]:
    return row.channel, row.epoch, row.sequence_number
