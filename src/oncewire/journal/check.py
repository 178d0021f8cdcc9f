"""The checker: every predicate over the rows of any number of nodes.

`verify` is the plain form for simulations, tests and one machine. On Spark the rows are divided
and sorted by key, and `fold_messages`, `fold_channels` and `fold_documents` run over each
partition: the same folds, so no rule is written twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from oncewire.errors import JournalProblem
from oncewire.journal.outcome import MessageOutcome, is_signal, outcome_of
from oncewire.journal.predicates.channel import ChannelFold
from oncewire.journal.predicates.context import (
    MISSING,
    QUARANTINE,
    Context,
    Violation,
    ViolationKind,
    unreadable,
)
from oncewire.journal.predicates.document import DocumentFold
from oncewire.journal.predicates.message import Extent, judge_subject, judge_traces
from oncewire.journal.row import Row
from oncewire.journal.survey import doubts, survey
from oncewire.journal.trace import (
    ACKNOWLEDGED,
    HANDED_OVER,
    JOINED,
    RECEIVED,
    REFUSED,
    SUBMITTED,
    gather,
)
from oncewire.message.envelope import is_trial
from oncewire.message.instant import Instant
from oncewire.protocol import notes

# --- keys ---------------------------------------------------------------------------------


def message_key(row: Row) -> str | None:
    """The key of `fold_messages`; a row without one concerns no message."""
    return row.message_id


def channel_key(row: Row) -> str | None:
    """The key of `fold_channels`; rows may be divided by (channel, node) as well."""
    return row.channel


def document_key(row: Row) -> str | None:
    """The SplitId that a row is about, or None: the key of `fold_documents`."""
    if row.kind == JOINED:
        return row.message_id
    if row.detail is None or "split_id" not in row.detail:
        return None
    try:
        if row.kind == SUBMITTED:
            return notes.Submitted.read(row.detail).split_id
        if row.kind == RECEIVED:
            return notes.Received.read(row.detail).split_id
        if row.kind == HANDED_OVER:
            return notes.HandedOver.read(row.detail).split_id
        if row.kind == REFUSED:
            return notes.Refused.read(row.detail).split_id
        if row.kind == ACKNOWLEDGED:
            return notes.Acknowledged.read(row.detail).split_id
    except JournalProblem:
        return row.message_id  # The fold says what is wrong with it.
    return None


# --- folds over sorted rows ---------------------------------------------------------------

# The keys as C functions: a call into Python for each of millions of rows is too slow.
_BY_MESSAGE = attrgetter("message_id")
_BY_CHANNEL = attrgetter("channel")


class Judged(NamedTuple):
    """What was found of one message, and how far it was judged.

    The outcome is None where the rows cannot be read; a quarantine entry then says why.
    """

    outcome: MessageOutcome | None
    violations: list[Violation]
    extent: Extent
    closed: bool = True
    is_message: bool = True
    """False: a refused signal, whose violations are told and whose delivery is not awaited."""


def fold_ledger(rows: Iterable[Row], context: Context) -> Iterator[Judged]:
    """For rows sorted by (message_id, node, seq): each message's outcome and violations. Trials
    carry no business: no ledger has them, and no later rows of them are waited for."""
    for message_id, group in groupby(rows, _BY_MESSAGE):
        if message_id is None or is_trial(message_id):
            continue
        traces = gather(group)
        violations, extent, closed = judge_subject(traces, context)
        try:
            outcome, is_message = outcome_of(traces, context.terms), not is_signal(traces)
            yield Judged(outcome, violations, extent, closed, is_message)
        except JournalProblem as problem:
            found = unreadable(str(problem), message_id=message_id, node=traces[0].node)
            told = violations if found in violations else [*violations, found]
            yield Judged(None, told, Extent.IN_DOUBT, closed=False)


def fold_messages(rows: Iterable[Row], context: Context) -> Iterator[Violation]:
    """S1-S5, S9-S12, S14, S15, L1 and L3 for rows sorted by (message_id, node, seq)."""
    for message_id, group in groupby(rows, _BY_MESSAGE):
        if message_id is not None:
            yield from judge_traces(gather(group), context)


def fold_channels(rows: Iterable[Row], context: Context) -> Iterator[Violation]:
    """S6, S7, S8 and channel-wide pauses for rows sorted by (channel, node, seq)."""
    for channel, group in groupby(rows, _BY_CHANNEL):
        if channel is not None:
            fold = ChannelFold(context)
            feed = fold.feed
            for row in group:
                feed(row)
            yield from fold.finish()


def fold_documents(rows: Iterable[Row], context: Context) -> Iterator[Violation]:
    """S13 for rows sorted by (document_key, node, seq)."""
    for split_id, group in groupby(rows, document_key):
        if split_id is not None:
            fold = DocumentFold(context, split_id)
            for row in group:
                fold.feed(row)
            yield from fold.finish()


# --- everything at once -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JournalReport:
    """What the checker found, and how much it looked at."""

    violations: tuple[Violation, ...]
    quarantined: tuple[Violation, ...]
    """Rows that cannot be judged, with reasons; no promise is known to be broken there."""
    rows: int
    nodes: int
    messages: int
    """A document is one of them, its parts are none."""
    outcomes: Counter[str] = field(default_factory=Counter)
    extents: Counter[str] = field(default_factory=Counter)
    """How many messages were judged, not yet, or could not be because rows are missing."""
    parts: int = 0
    """How many parts of documents were judged beside the messages."""

    @property
    def clean(self) -> bool:
        """No violation, and nothing that could not be judged."""
        return not self.violations and not self.quarantined

    @property
    def kinds(self) -> Counter[str]:
        """How many violations of each kind."""
        return Counter(violation.kind for violation in self.violations)


def check_journal(
    rows: Iterable[Row],
    *,
    healed: bool,
    healed_before: Instant | None = None,
    calm: bool = False,
) -> JournalReport:
    """Judge rows of any number of nodes, in any order.

    `healed` says that the run is over: the network works again and every timer has run out, so
    that what is missing now is lost. For an archive that still grows, give `healed_before`.
    `calm` says that nothing went wrong in the world that wrote them: then L3 is judged too.
    """
    every, findings = _in_order(rows)
    found = survey(every)
    ordered = found.rows
    context = Context.gather(ordered, healed=healed, healed_before=healed_before)
    context.calm = calm
    context.homes.update({row.node: {row.node} for row in ordered if row.node not in context.homes})
    doubts(context, found)
    findings += [*found.findings, *context.problems]
    outcomes: Counter[str] = Counter()
    extents: Counter[str] = Counter()
    messages = parts = 0
    for outcome, violations, extent, _, is_message in fold_ledger(
        _grouped(ordered, message_key), context
    ):
        findings += violations
        if not is_message:
            continue
        if outcome is not None and outcome.part_of is not None:
            parts += 1
            continue
        messages += 1
        # Its timers may run on, and change nothing any more.
        decided = extent is Extent.NOT_YET and outcome is not None and outcome.decided
        extents[Extent.JUDGED.value if decided else extent.value] += 1
        if outcome is not None:
            outcomes[outcome.outcome.value] += 1
    # Counted nowhere, and judged all the same.
    trials = [row for row in ordered if row.message_id is not None and is_trial(row.message_id)]
    findings += fold_messages(_grouped(trials, message_key), context)
    findings += fold_channels(_grouped(ordered, channel_key), context)
    findings += fold_documents(_grouped(ordered, document_key), context)
    findings = told_once(findings)
    return JournalReport(
        violations=tuple(found for found in findings if found.predicate != QUARANTINE),
        quarantined=tuple(found for found in findings if found.predicate == QUARANTINE),
        rows=len(every),
        nodes=len({row.node for row in every}),
        messages=messages,
        outcomes=outcomes,
        extents=extents,
        parts=parts,
    )


def told_once(findings: Iterable[Violation]) -> list[Violation]:
    """What is wrong with a journal is come upon by many folds, and is one finding; what its end
    would have told is not called missing."""
    every = list(findings)
    cut_off = {found.node for found in every if found.kind == ViolationKind.CUT_OFF}
    seen: set[Violation] = set()
    kept = []
    for found in every:
        if found.predicate == QUARANTINE:
            if found in seen:
                continue
            seen.add(found)
        elif found.kind in MISSING and found.node in cut_off:
            continue
        kept.append(found)
    return kept


def _in_order(rows: Iterable[Row]) -> tuple[list[Row], list[Violation]]:
    """Sorted by (node, seq), each row once; two journals under one name are told."""
    ordered: list[Row] = []
    findings: list[Violation] = []
    clashing: set[str] = set()
    for row in sorted(rows, key=attrgetter("node", "seq")):
        if ordered and (ordered[-1].node, ordered[-1].seq) == (row.node, row.seq):
            if ordered[-1] == row:
                continue
            if row.node not in clashing:
                clashing.add(row.node)
                findings.append(
                    unreadable(
                        f"two different journals call themselves {row.node}: both have a row "
                        f"{row.seq}",
                        node=row.node,
                    )
                )
        ordered.append(row)
    return ordered, findings


def _grouped(ordered: list[Row], key: Callable[[Row], str | None]) -> list[Row]:
    """Rows that have the key, sorted by it; a stable sort keeps (node, seq) within it."""
    return sorted((row for row in ordered if key(row) is not None), key=key)  # type: ignore[arg-type]
