"""The fold over one message's rows: S1-S5, S9-S12, S14, S15, L1, L3, taken back and told."""

from __future__ import annotations

from collections.abc import Iterable

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
    taken_back,
    told,
)
from oncewire.journal.predicates.context import Context
from oncewire.journal.predicates.subject import Subject
from oncewire.journal.predicates.violation import Violation, unreadable
from oncewire.journal.row import Row
from oncewire.journal.trace import Trace, gather

PREDICATES = (
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


class MessageFold:
    """Feed the rows of one message in order of (node, seq), then finish."""

    __slots__ = ("_context", "_rows")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._rows: list[Row] = []

    def feed(self, row: Row) -> None:
        """One more row of the message."""
        self._rows.append(row)

    def finish(self) -> list[Violation]:
        """Every promise about this message that its rows show broken."""
        return judge_message(self._rows, self._context)


def judge_message(rows: Iterable[Row], context: Context) -> list[Violation]:
    """The same for rows that are at hand."""
    return judge_traces(gather(rows), context)


def judge_traces(traces: list[Trace], context: Context) -> list[Violation]:
    """The same for rows that are gathered already."""
    if not traces:
        return []
    message_id = traces[0].message_id
    subject = Subject(message_id, traces, context)
    for judge in PREDICATES:
        try:
            judge(subject)
        except JournalProblem as problem:
            found = unreadable(str(problem), message_id=message_id, node=traces[0].node)
            if found not in subject.violations:
                subject.violations.append(found)
    return subject.violations
