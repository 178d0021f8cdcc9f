"""The fold over one message's rows: S1-S5, S9-S12, S14, S15, L1, L3, taken back and told."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from oncewire.errors import JournalProblem
from oncewire.journal.predicates import delivery, receiver, sender
from oncewire.journal.predicates.context import (
    EVIDENT,
    Context,
    Subject,
    TermsMissing,
    Violation,
    ViolationKind,
    unreadable,
)
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
    gather,
)

# Steps: the order in which a node says that things happened to a message can be.
#
# A step that follows from another stands behind it in the node's own journal, where positions are
# given with each commit. Where the earlier step has no row at all, other predicates say what is
# missing; here both are there, the wrong way round, or they name different numbers.


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


def judge_steps(subject: Subject) -> None:
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


PREDICATES = (
    judge_steps,
    receiver.judge_given,
    sender.judge_invention,
    receiver.judge_once,
    sender.judge_acknowledgments,
    receiver.judge_durability,
    delivery.judge_delivery,
    sender.judge_taken_back,
    sender.judge_honesty,
    sender.judge_told,
    receiver.judge_content,
    sender.judge,
    delivery.judge_hop,
    receiver.judge_authenticity,
    delivery.judge_calm,
)
"""In this order: a later one passes over what an earlier one has told already."""


class Extent(StrEnum):
    """How far a message was judged."""

    JUDGED = "judged"
    NOT_YET = "not_yet"
    """Its timers run, or a journal does not go far enough: what is missing may come."""
    IN_DOUBT = "in_doubt"
    """Rows are missing that may be its own."""


def judge_message(rows: Iterable[Row], context: Context) -> list[Violation]:
    """Every promise about one message that its rows show broken."""
    return judge_traces(gather(rows), context)


def judge_traces(traces: list[Trace], context: Context) -> list[Violation]:
    """As `judge_message`, for rows that are gathered already."""
    return judge_subject(traces, context).violations


class Sentence(NamedTuple):
    """What the judge says of one message."""

    violations: list[Violation]
    extent: Extent
    closed: bool
    """Whether nothing more can come of it: its last row, too, lies before the horizon."""


def judge_subject(traces: list[Trace], context: Context) -> Sentence:
    """The violations, and how far the message was judged."""
    if not traces:
        return Sentence([], Extent.JUDGED, closed=True)
    subject = Subject(traces[0].message_id, traces, context)
    doubted = find_violations(subject)
    found = subject.violations
    if found:
        found, left_out = _without_doubt(subject, doubted)
        doubted = doubted or left_out
    extent = Extent.JUDGED if subject.healed else Extent.NOT_YET
    closed = subject.healed and subject.is_closed()
    return Sentence(found, Extent.IN_DOUBT if doubted else extent, closed)


def find_violations(subject: Subject) -> bool:
    """Ask every predicate; the subject has what they found. Whether it is in doubt what became of
    the message, because what is said of it cannot be believed or explained."""
    context = subject.context
    doubted = subject.message_id in context.doubted
    for judge in PREDICATES:
        try:
            judge(subject)
        except TermsMissing as missing:
            doubted = True
            # They are written once, however long before: any hole may have swallowed them.
            told = missing.terms_id in context.doubted_terms
            if not told and not context.has_hole_before(missing.node, missing.seq):
                subject.tell(unreadable(str(missing), node=missing.node))
        except JournalProblem as problem:
            node = subject.traces[0].node
            subject.tell(unreadable(str(problem), message_id=subject.message_id, node=node))
    return doubted


def _without_doubt(subject: Subject, doubted: bool) -> tuple[list[Violation], bool]:
    """The findings that missing rows cannot explain, and whether there are others.

    What is missing is a finding of its own, told once.
    """
    if not doubted and not subject.has_hole():
        return subject.violations, False
    kept = [
        violation
        for violation in subject.violations
        if violation.kind in EVIDENT
        or (violation.kind == ViolationKind.UNREADABLE and violation.message_id is None)
    ]
    return kept, len(kept) < len(subject.violations)
