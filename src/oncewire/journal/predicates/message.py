"""The fold over one message's rows: S1-S5, S9-S12, S14, S15, L1, L3, taken back and told."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from oncewire.errors import JournalProblem
from oncewire.journal.predicates import (
    acknowledgment,
    authenticity,
    calm,
    content,
    delivery,
    durability,
    given,
    honesty,
    hop,
    invention,
    once,
    retry,
    steps,
    taken_back,
    told,
)
from oncewire.journal.predicates.context import Context, TermsMissing
from oncewire.journal.predicates.subject import Subject
from oncewire.journal.predicates.violation import (
    EVIDENT,
    Violation,
    ViolationKind,
    unreadable,
)
from oncewire.journal.row import Row
from oncewire.journal.trace import Trace, gather

PREDICATES = (
    steps.judge,
    given.judge,
    invention.judge,
    once.judge,
    acknowledgment.judge,
    durability.judge,
    delivery.judge,
    taken_back.judge,
    honesty.judge,
    told.judge,
    content.judge,
    retry.judge,
    hop.judge,
    authenticity.judge,
    calm.judge,
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
    """The same for rows that are gathered already."""
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
