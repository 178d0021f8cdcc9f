"""Context: what a predicate must know besides the rows of its own key.

It is gathered from a few rows of every node (`CONTEXT_KINDS`), is small, and can be sent to
where the folds run. It never holds an instant of one node for comparison with another's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from oncewire.errors import JournalProblem
from oncewire.journal import detail
from oncewire.journal.predicates.violation import Violation, unreadable
from oncewire.journal.row import JOURNAL_VERSION, Row
from oncewire.journal.trace import (
    ABANDONED,
    EPOCH_ENDED,
    FORWARDED,
    RESOLVED,
    RESUMED,
    STARTED,
    SUSPENDED,
    TERMS,
    Trace,
)
from oncewire.message.instant import Instant
from oncewire.protocol.terms import Terms

CONTEXT_KINDS: frozenset[str] = frozenset(
    {STARTED, TERMS, SUSPENDED, RESUMED, ABANDONED, EPOCH_ENDED, RESOLVED}
)
"""The kinds that `Context.gather` reads; all other rows may be left out."""


@dataclass(slots=True)
class Context:
    """Terms by id, whose journals are here, and whether time enough has passed.

    While a run is still going (`healed` false) the absence of a row on another node proves
    nothing: the message may be under way, or that node's rows not yet read. Only what the rows
    do say is judged then. `healed_before` judges messages submitted before that instant as
    healed, for archives whose end is still moving.
    """

    healed: bool = True
    healed_before: Instant | None = None
    terms: dict[str, Terms] = field(default_factory=dict)
    homes: dict[str, set[str]] = field(default_factory=dict)
    """For each name that `peer` may hold: the nodes that act for it."""
    declared: bool = False
    """Whether any node said which parties it acts for."""
    suspended: set[tuple[str, str]] = field(default_factory=set)
    """(node, channel) that wait for the operator at the end."""
    lifted: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """For each (node, peer): the positions at which an operator ended the peer's pause."""
    problems: list[Violation] = field(default_factory=list)
    calm: bool = False
    """Whether the world says of itself that nothing went wrong in it (L3)."""

    @classmethod
    def gather(
        cls, rows: Iterable[Row], *, healed: bool, healed_before: Instant | None = None
    ) -> Context:
        """Read every node's rows of `CONTEXT_KINDS`; each node's come in order of `seq`."""
        context = cls(healed, healed_before)
        for row in rows:
            if row.kind in CONTEXT_KINDS:
                try:
                    context._take(row)
                except JournalProblem as problem:
                    context.problems.append(unreadable(str(problem), node=row.node))
        return context

    def _take(self, row: Row) -> None:
        self.homes.setdefault(row.node, set()).add(row.node)
        kind = row.kind
        if kind == TERMS:
            if row.terms_id is not None and row.terms_id not in self.terms:
                self.terms[row.terms_id] = detail.read_terms(row.detail)
        elif kind == STARTED:
            started = detail.Started.read(row.detail)
            if started.journal_version != JOURNAL_VERSION:
                raise JournalProblem(
                    f"node {row.node} wrote a journal of version {started.journal_version}, "
                    f"this is version {JOURNAL_VERSION}",
                    remedy="check it with the version of Oncewire that wrote it",
                )
            for party in started.parties:
                self.declared = True
                self.homes.setdefault(party, set()).add(row.node)
        elif row.channel is not None:
            if kind == SUSPENDED:
                self.suspended.add((row.node, row.channel))
            else:
                # Resumed, abandoned, or settled by a late answer: the incident is resolved.
                self.suspended.discard((row.node, row.channel))
        elif kind == RESUMED and row.message_id is None and row.peer is not None:
            self.lifted.setdefault((row.node, row.peer), []).append(row.seq)

    def is_lifted(self, row: Row, since: int) -> bool:
        """Whether an operator ended the pause of a row's receiver after that position."""
        lifted = self.lifted.get((row.node, row.peer or ""), ())
        return any(since < seq < row.seq for seq in lifted)

    def has_journal_of(self, peer: str | None) -> bool:
        """Whether the rows of the node that acts for this peer are among those given."""
        return peer in self.homes

    def terms_of(self, row: Row) -> Terms:
        """The terms a row names."""
        terms = self.terms.get(row.terms_id) if row.terms_id is not None else None
        if terms is None:
            raise JournalProblem(
                f"no terms row explains terms {row.terms_id!r} of the {row.kind} row {row.seq} "
                f"of node {row.node}",
                remedy="read the journal from its beginning, or add the terms rows of that node",
            )
        return terms

    def is_healed(self, since: Instant) -> bool:
        """Whether every timer of a message first seen at that instant has run out."""
        return self.healed or (self.healed_before is not None and since < self.healed_before)

    def waits_for_operator(self, trace: Trace, row: Row) -> bool:
        """Whether the message, or the channel it is sent on, is suspended at the end."""
        channel = row.channel
        if row.kind == FORWARDED and row.detail is not None:
            # Its own channel is the one that the message came on.
            channel = detail.Forwarded.read(row.detail).onward or channel
        return trace.suspended or (channel is not None and (trace.node, channel) in self.suspended)
