"""Subject: one message under judgement, with what several predicates ask of it."""

from __future__ import annotations

from collections.abc import Sequence

from oncewire.errors import JournalProblem
from oncewire.journal.predicates.context import Context
from oncewire.journal.predicates.violation import Violation, ViolationKind
from oncewire.journal.row import Row
from oncewire.journal.trace import FORWARDED, NUMBERED, SENT, SUBMITTED, Trace
from oncewire.protocol.terms import Terms


class Subject:
    """The traces of one message, its submission, and the findings so far."""

    __slots__ = (
        "context",
        "healed",
        "message_id",
        "submitted",
        "submitted_digests",
        "traces",
        "violations",
    )

    def __init__(self, message_id: str, traces: Sequence[Trace], context: Context) -> None:
        self.message_id = message_id
        self.traces = traces
        self.context = context
        self.violations: list[Violation] = []
        self.submitted: Row | None = None
        self.submitted_digests: set[str] = set()
        for trace in traces:
            rows = trace.kinds.get(SUBMITTED)
            if rows is not None:
                self.submitted = self.submitted or rows[0]
                self.submitted_digests.update(row.digest for row in rows if row.digest is not None)
        # Without a submission there is no instant of the From Party to go by.
        since = self.submitted or next(iter(traces[0].kinds.values()))[0]
        self.healed = context.is_healed(since.at)

    def sending_terms(self, trace: Trace) -> Terms:
        """The terms under which a node transmits the message."""
        row = trace.first(SUBMITTED) or trace.first(FORWARDED) or trace.last(NUMBERED, SENT)
        if row is None:
            raise JournalProblem(
                f"node {trace.node} has no row that says under which terms it sends",
                remedy="read the journal from its beginning",
            )
        return self.context.terms_of(row)

    def found(self, predicate: str, kind: ViolationKind, node: str, sentence: str) -> None:
        """Note a violation of this message."""
        channel = self.submitted.channel if self.submitted is not None else None
        self.violations.append(
            Violation(predicate, kind.value, self.message_id, channel, node, sentence)
        )

    def has(self, kind: ViolationKind) -> bool:
        """Whether this is among the findings already, so that one cause is told once."""
        return any(violation.kind == kind for violation in self.violations)
