"""Subject: one message under judgement, with what several predicates ask of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from oncewire.errors import JournalProblem
from oncewire.journal.predicates.context import Context, Violation, ViolationKind, homes_of
from oncewire.journal.row import Row
from oncewire.journal.trace import (
    ABANDONED,
    ACKNOWLEDGED,
    FORWARDED,
    INCIDENT,
    NOTIFIED,
    NUMBERED,
    PASSED_ON,
    RECEIVED,
    SENT,
    SUBMITTED,
    Trace,
)
from oncewire.protocol import notes
from oncewire.protocol.terms import Terms

_NAMING = (SUBMITTED, SENT, FORWARDED, RECEIVED, PASSED_ON, ACKNOWLEDGED)
"""Kinds whose `peer` takes part in the message's way."""

_UNDER_TERMS = (SUBMITTED, RECEIVED, FORWARDED)

_ARRIVALS: tuple[tuple[str, type[notes.Submitted] | type[notes.Received]], ...] = (
    (SUBMITTED, notes.Submitted),
    (RECEIVED, notes.Received),
)


class Subject:
    """The traces of one message, its submission, and the findings so far."""

    def __init__(
        self,
        message_id: str,
        traces: Sequence[Trace],
        context: Context,
        *,
        healed: bool | None = None,
    ) -> None:
        """`healed` is for who knows it; else the instants of the rows tell."""
        self.message_id = message_id
        self.traces = traces
        self.context = context
        self.violations: list[Violation] = []
        # The promise that is judged now; see `message.PREDICATES`.
        self.predicate = ""
        self.submitted: Row | None = None
        self.submitted_digests: set[str] = set()
        for trace in traces:
            rows = trace.kinds.get(SUBMITTED)
            if rows is not None:
                self.submitted = self.submitted or rows[0]
                self.submitted_digests.update(row.digest for row in rows if row.digest is not None)
        if healed is None:
            healed = context.healed or context.is_healed(self.since.at, self.nodes, self.terms)
        self.healed = healed

    @property
    def since(self) -> Row:
        """The row from which on its timers run; without a submission there is no instant of the
        From Party to go by."""
        return self.submitted or next(iter(self.traces[0].kinds.values()))[0]

    @cached_property
    def nodes(self) -> set[str]:
        """The nodes that it concerns: those that wrote of it, and those that they name."""
        peers = {
            row.peer
            for trace in self.traces
            for kind in _NAMING
            for row in trace.kinds.get(kind, ())
        }
        context = self.context
        nodes = {*(trace.node for trace in self.traces), *homes_of(peers, context.homes)}
        if any(peer is not None and peer not in context.homes for peer in peers):
            # A node that no row gives a party's name to may be the one that is meant.
            nodes.update(node for node in context.holes if node not in context.named)
        return nodes

    @property
    def terms(self) -> Terms | None:
        """The terms of its submission, or of its arrival, where they are known."""
        for trace in self.traces:
            for kind in _UNDER_TERMS:
                row = trace.first(kind)
                if row is not None and row.terms_id in self.context.terms:
                    return self.context.terms[row.terms_id]
        return None

    def is_closed(self) -> bool:
        """Whether every timer has run out since the last thing that happened to it."""
        if self.context.healed:
            return True
        last = max(row.at for trace in self.traces for rows in trace.kinds.values() for row in rows)
        return self.context.is_healed(last, self.nodes, self.terms)

    def has_hole(self) -> bool:
        """Whether rows of this message may be missing in a hole."""
        context = self.context
        if not context.holes:
            return False
        instants = [
            row.at for trace in self.traces for rows in trace.kinds.values() for row in rows
        ]
        return context.has_hole(self.nodes, min(instants), max(instants))

    def found_by_clock(
        self, kind: ViolationKind, trace: Trace, sentence: str, *, by_instant: bool = False
    ) -> None:
        """Note that a node was too early or too late (S11); if its clock jumps between its rows
        about this message, that is the finding. By an instant that others named it is so from
        the jump on."""
        jump = None
        if self.context.jumps:
            positions = [row.seq for rows in trace.kinds.values() for row in rows]
            since = 0 if by_instant else min(positions)
            jump = self.context.jump(trace.node, since, max(positions))
        if jump is None:
            self.found(kind, trace.node, sentence)
        else:
            self.tell(jump)

    def sending_terms(self, trace: Trace) -> Terms:
        """The terms under which a node transmits the message."""
        row = trace.first(SUBMITTED) or trace.first(FORWARDED) or trace.last(NUMBERED, SENT)
        if row is None:
            raise JournalProblem(
                f"node {trace.node} has no row that says under which terms it sends",
                remedy="read the journal from its beginning",
            )
        return self.context.terms_of(row)

    @property
    def is_notice(self) -> bool:
        """Whether the message is itself the notice of a failure."""
        return any(
            "notice" in (row.detail or "") and kind.read(row.detail).notice
            for trace in self.traces
            for name, kind in _ARRIVALS
            for row in trace.kinds.get(name, ())
        )

    def was_told(self, trace: Trace) -> bool:
        """Whether a party was told that the message failed on a node: its From Party, or of a
        notice the operator (C33)."""
        if NOTIFIED in trace.kinds:
            return True
        return (INCIDENT in trace.kinds or ABANDONED in trace.kinds) and self.is_notice

    def found(
        self, kind: ViolationKind, node: str, sentence: str, *, predicate: str | None = None
    ) -> None:
        """Note a violation of this message, by default of the promise that is judged now."""
        channel = self.submitted.channel if self.submitted is not None else None
        broken = predicate or self.predicate
        self.violations.append(
            Violation(broken, kind.value, self.message_id, channel, node, sentence)
        )

    def tell(self, found: Violation | None) -> None:
        """Note a finding that is not about this message alone; it is told once for all."""
        if found is not None and found not in self.violations:
            self.violations.append(found)

    def has(self, kind: ViolationKind) -> bool:
        """Whether this is among the findings already, so that one cause is told once."""
        return any(violation.kind == kind for violation in self.violations)
