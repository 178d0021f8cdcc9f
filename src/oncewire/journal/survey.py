"""Survey: what each journal shows as a whole, before any of its promises is judged.

Which rows break the contract, which positions are missing, which runs of a handler have no
beginning, and which journals are copies of one another. All of it is one pass over the rows, or
over small facts that were gathered from them (`Boot`), so that Spark's judge says the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from oncewire.journal.predicates.context import (
    QUARANTINE,
    Context,
    Hole,
    Violation,
    ViolationKind,
    finding,
    missing,
    unreadable,
)
from oncewire.journal.row import Row, problem_of
from oncewire.journal.trace import (
    ACK_SENT,
    ACKNOWLEDGED,
    DUPLICATE,
    FORWARDED,
    PASSED_ON,
    RECEIVED,
    SENT,
    STARTED,
    TERMS,
)
from oncewire.message.instant import Instant

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
        _note_boot(boots, row)
        problem = problem_of(row)
        if problem is None:
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


def _note_boot(boots: dict[tuple[str, str], Boot], row: Row) -> None:
    key = row.node, row.boot
    known = boots.get(key)
    if known is None:
        boots[key] = Boot(
            row.node, row.boot, row.seq, row.at, row.kind == STARTED, row.kind in AT_WORK
        )
    elif (row.kind == STARTED and not known.started) or (row.kind in AT_WORK and not known.at_work):
        boots[key] = known._replace(
            started=known.started or row.kind == STARTED,
            at_work=known.at_work or row.kind in AT_WORK,
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
            Violation(
                QUARANTINE,
                ViolationKind.UNSTARTED.value,
                None,
                None,
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
        Violation(
            QUARANTINE,
            ViolationKind.COPIED.value,
            None,
            None,
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


def place(
    context: Context,
    aside: Iterable[Aside],
    holes: Mapping[str, list[Hole]],
    ends: Mapping[str, tuple[int, Instant]],
    copies: set[str],
) -> None:
    """As `doubts`, from the parts of a survey."""
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
