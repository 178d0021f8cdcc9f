"""The checker: what rows of any number of nodes are there, and every predicate over them.

`verify` is the plain form for simulations, tests and one machine. On Spark the rows are divided
and sorted by key, and `fold_messages`, `fold_channels` and `fold_documents` run over each
partition: the same folds, so no rule is written twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
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
    Hole,
    Jump,
    Restart,
    Violation,
    ViolationKind,
    finding,
    jump_between,
    jumping,
    missing,
    of_journal,
    restart_between,
    unreadable,
)
from oncewire.journal.predicates.message import DocumentFold, Extent, judge_subject, judge_traces
from oncewire.journal.row import Row, problem_of
from oncewire.journal.trace import (
    ACK_SENT,
    ACKNOWLEDGED,
    DUPLICATE,
    FORWARDED,
    HANDED_OVER,
    JOINED,
    PASSED_ON,
    RECEIVED,
    REFUSED,
    SENT,
    STARTED,
    SUBMITTED,
    TERMS,
    gather,
)
from oncewire.message.envelope import is_trial
from oncewire.message.instant import Instant
from oncewire.protocol import notes

# Survey: what each journal shows as a whole, before any of its promises is judged.
#
# Which rows break the contract, which positions are missing, which runs of a handler have no
# beginning, and which journals are copies of one another. All of it is one pass over the rows, or
# over small facts that were gathered from them (`Boot`), so that Spark's judge says the same.

AT_WORK: frozenset[str] = frozenset(
    {SENT, ACKNOWLEDGED, RECEIVED, DUPLICATE, ACK_SENT, FORWARDED, PASSED_ON}
)
"""Kinds that only a handler writes which was started; an operator's command writes others."""


_APART: frozenset[str] = frozenset({STARTED, TERMS})
"""Kinds that no message and no channel misses."""


class Boot(NamedTuple):
    """One run of a handler's process: where its rows lie, and what they show."""

    node: str
    boot: str
    first: int
    """Position of its first row."""
    at: Instant
    """Instant of that row."""
    started: bool
    """Whether a row says that it was started."""
    at_work: bool
    """Whether a row shows a handler that was."""


class Aside(NamedTuple):
    """A row that was set aside, as far as it can be placed."""

    node: str
    seq: int
    at: Instant
    kind: str
    message_id: str | None
    channel: str | None
    terms_id: str | None
    problem: str


@dataclass(slots=True)
class Survey:
    """The rows to be judged, and what is wrong with the rest."""

    rows: list[Row] = field(default_factory=list)
    findings: list[Violation] = field(default_factory=list)
    aside: list[Aside] = field(default_factory=list)
    holes: dict[str, list[Hole]] = field(default_factory=dict)
    ends: dict[str, tuple[int, Instant]] = field(default_factory=dict)
    jumps: dict[str, list[Jump]] = field(default_factory=dict)
    restarts: dict[str, list[Restart]] = field(default_factory=dict)
    copies: set[str] = field(default_factory=set)
    """Nodes whose journal is a copy of another one's: they are not judged."""


def survey(ordered: Iterable[Row]) -> Survey:
    """Look over rows of all nodes, sorted by (node, seq), each once."""
    found = Survey()
    positions: dict[str, list[tuple[int, Instant]]] = {}
    boots: dict[tuple[str, str], Boot] = {}
    for row in ordered:
        positions.setdefault(row.node, []).append((row.seq, row.at))
        found.ends[row.node] = row.seq, row.at
        key = row.node, row.boot
        known = boots.get(key)
        if known is None:
            boots[key] = Boot(
                row.node, row.boot, row.seq, row.at, row.kind == STARTED, row.kind in AT_WORK
            )
        elif (row.kind == STARTED and not known.started) or (
            row.kind in AT_WORK and not known.at_work
        ):
            boots[key] = known._replace(
                started=known.started or row.kind == STARTED,
                at_work=known.at_work or row.kind in AT_WORK,
            )
        problem = problem_of(row)
        if problem is None:
            before = found.rows[-1] if found.rows else None
            if before is not None and before.node == row.node:
                jump, restart = jump_between(before, row), restart_between(before, row)
                if jump is not None:
                    found.jumps.setdefault(row.node, []).append(jump)
                if restart is not None:
                    found.restarts.setdefault(row.node, []).append(restart)
            found.rows.append(row)
        else:
            found.aside.append(set_aside(row, problem))
    for node, every in positions.items():
        holes = missing(every)
        if holes:
            found.holes[node] = holes
    found.copies = copies(boots.values(), found.ends)
    found.rows = [row for row in found.rows if row.node not in found.copies]
    found.findings = [
        *copied(boots.values(), found.copies),
        *unstarted(boots.values(), found.holes, found.copies),
        *(told(aside) for aside in found.aside if aside.node not in found.copies),
    ]
    return found


def set_aside(row: Row, problem: str) -> Aside:
    """What is kept in mind of a row that is not believed."""
    return Aside(
        row.node, row.seq, row.at, row.kind, row.message_id, row.channel, row.terms_id, problem
    )


def told(aside: Aside) -> Violation:
    """The finding about a row that was set aside."""
    return unreadable(
        f"row {aside.seq} of node {aside.node}: {aside.problem}",
        message_id=aside.message_id,
        channel=aside.channel,
        node=aside.node,
    )


def unstarted(
    boots: Iterable[Boot], holes: Mapping[str, list[Hole]], copies: set[str]
) -> list[Violation]:
    """Runs in which a handler was at work and no row says that it was started."""
    found = []
    for boot in boots:
        if boot.started or not boot.at_work or boot.node in copies:
            continue
        if any(hole.last + 1 == boot.first for hole in holes.get(boot.node, ())):
            continue  # The row may be among those that are missing.
        found.append(
            of_journal(
                ViolationKind.UNSTARTED,
                boot.node,
                f"From its row {boot.first} on a handler was at work, but no row says that it was "
                "started, and for which parties.",
            )
        )
    return found


def copies(boots: Iterable[Boot], ends: Mapping[str, tuple[int, Instant]]) -> set[str]:
    """The nodes whose journals are copies: they share a run of a process with another name's.

    The one that goes furthest is taken for the original.
    """
    found: set[str] = set()
    for names in _shared(boots).values():
        original = max(names, key=lambda node: (ends.get(node, (0, 0))[0], _reversed(node)))
        found |= names - {original}
    return found


def copied(boots: Iterable[Boot], copies: set[str]) -> list[Violation]:
    """One finding for each copy."""
    of = {
        copy: ", ".join(sorted(names - {copy}))
        for names in _shared(boots).values()
        for copy in names & copies
    }
    return [
        of_journal(
            ViolationKind.COPIED,
            copy,
            f"Its journal is a copy of that of {of[copy]}: they share a run of one process. It is "
            "not judged.",
        )
        for copy in sorted(copies)
    ]


def _shared(boots: Iterable[Boot]) -> dict[tuple[str, int, Instant], set[str]]:
    """The names that share a run: the same process, position and instant."""
    names: dict[tuple[str, int, Instant], set[str]] = {}
    for boot in boots:
        names.setdefault((boot.boot, boot.first, boot.at), set()).add(boot.node)
    return {key: nodes for key, nodes in names.items() if len(nodes) > 1}


def _reversed(text: str) -> tuple[int, ...]:
    """Sorts names backwards, so that of two equal journals the first name is the original."""
    return tuple(-ord(letter) for letter in text)


def doubts(context: Context, found: Survey) -> None:
    """Tell a context what is missing and what was set aside."""
    place(context, found.aside, found.holes, found.ends, found.copies)
    place_clocks(context, found.jumps, found.restarts, found.copies)


def place(
    context: Context,
    aside: Iterable[Aside],
    holes: Mapping[str, list[Hole]],
    ends: Mapping[str, tuple[int, Instant]],
    copies: set[str],
) -> None:
    """As `doubts`, from the parts of a survey."""
    for archived in context.archives:
        # A peer of that name is one whose journal is not here.
        context.homes.get(archived, set()).discard(archived)
    context.homes = {name: nodes for name, nodes in context.homes.items() if nodes}
    context.ends = {node: end for node, end in ends.items() if node not in copies}
    context.holes = {node: list(some) for node, some in holes.items() if node not in copies}
    for each_aside in aside:
        if each_aside.node in copies:
            continue
        if each_aside.message_id is not None:
            context.doubted.add(each_aside.message_id)
        # Without a channel it may be any one's.
        if each_aside.channel is not None or each_aside.kind not in _APART:
            context.aside.setdefault((each_aside.node, each_aside.channel or ""), []).append(
                each_aside.seq
            )
        if each_aside.kind == TERMS and each_aside.terms_id is not None:
            context.doubted_terms.add(each_aside.terms_id)
        if each_aside.message_id is None and each_aside.kind not in _APART:
            # It may be any message's.
            context.holes.setdefault(each_aside.node, []).append(
                Hole(each_aside.seq, each_aside.seq, each_aside.at, each_aside.at)
            )
    for node, some in holes.items():
        if node not in copies:
            context.problems += [finding(node, hole) for hole in some]


def place_clocks(
    context: Context,
    jumps: Mapping[str, Iterable[Jump]],
    restarts: Mapping[str, Iterable[Restart]],
    copies: set[str],
) -> None:
    """Tell a context where clocks jump, and where handlers were started again."""
    context.jumps = {node: list(some) for node, some in jumps.items() if node not in copies}
    context.restarts = {node: list(some) for node, some in restarts.items() if node not in copies}
    for node, some in context.jumps.items():
        if any(jump.is_wrong for jump in some):
            context.problems.append(jumping(node, some))


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
            settled = outcome is not None and outcome.decided and len(traces) == 2
            if extent is Extent.NOT_YET and settled:
                # Their timers may run on, and change nothing any more; those of a hub may.
                extent = Extent.JUDGED
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
    rows: Iterable[Row], *, healed: bool, healed_before: Instant | None = None, calm: bool = False
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
    judged = _judge(ordered, context)
    if context.forget(judged.violations):
        judged = _judge(ordered, context)
    findings = told_once([*findings, *found.findings, *context.problems, *judged.violations])
    return replace(
        judged,
        violations=tuple(found for found in findings if found.predicate != QUARANTINE),
        quarantined=tuple(found for found in findings if found.predicate == QUARANTINE),
        rows=len(every),
        nodes=len({row.node for row in every}),
    )


def _judge(ordered: list[Row], context: Context) -> JournalReport:
    """What the folds show together, with all that was found in one place."""
    findings: list[Violation] = []
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
        extents[extent.value] += 1
        if outcome is not None:
            outcomes[outcome.outcome.value] += 1
    # Counted nowhere, and judged all the same.
    trials = [row for row in ordered if row.message_id is not None and is_trial(row.message_id)]
    findings += fold_messages(_grouped(trials, message_key), context)
    findings += fold_channels(_grouped(ordered, channel_key), context)
    findings += fold_documents(_grouped(ordered, document_key), context)
    return JournalReport(tuple(findings), (), len(ordered), 0, messages, outcomes, extents, parts)


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
