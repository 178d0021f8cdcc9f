"""A version of the lake: the directories of every table, and where each journal stands."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from oncewire.journal.predicates.hole import Hole
from oncewire.journal.row import JOURNAL_VERSION
from oncewire.journal.schema import check_version


@dataclass(frozen=True, slots=True)
class Entry:
    """One directory of a table."""

    path: str
    """Relative to the lake."""
    rows: int
    key: str = ""
    """What the table is divided by: a node, or the first and the last day; see `days`."""
    first: int = 0
    last: int = 0
    """The range of `seq` that it holds, where it holds a node's rows."""
    since: str = ""
    chain: str = ""
    """The heads of the journal's chain before and behind these rows; see `proof`. No head before
    them: it begins here. None behind them: nobody noted it."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """How far a node's journal was taken in."""

    seq: int
    at: int
    boot: str
    folded: int = 0
    """How far its rows are in the gold tables."""
    read_at: int = 0
    """When its journal was last read, by the reader's clock; 0: nobody noted it."""
    holes: tuple[Hole, ...] = ()
    """What is missing in it, so far as it was taken in."""
    chain: str = ""
    """The head that the node itself kept behind that row; none if it keeps no chain."""


@dataclass(frozen=True, slots=True)
class Version:
    """What is published: the directories of every table, and where each journal stands."""

    number: int = 0
    journal_version: int = JOURNAL_VERSION
    nodes: dict[str, NodeState] = field(default_factory=dict)
    tables: dict[str, tuple[Entry, ...]] = field(default_factory=dict)
    judged: dict[str, Any] = field(default_factory=dict)
    """Under which circumstances the gold tables were judged; see `judging`."""

    @property
    def journal(self) -> tuple[Entry, ...]:
        """The directories of the journal; an entry's key is its node."""
        return self.tables.get("journal", ())

    @property
    def paths(self) -> set[str]:
        """All its directories."""
        return {entry.path for entries in self.tables.values() for entry in entries}

    def rows(self, table: str) -> int:
        """How many rows a table has."""
        return sum(entry.rows for entry in self.tables.get(table, ()))

    def with_table(self, table: str, entries: Iterable[Entry]) -> Version:
        """The same with other directories for one table; empty ones are left out."""
        kept = tuple(entry for entry in entries if entry.rows)
        return replace(self, tables={**self.tables, table: kept})

    def adding(self, table: str, *entries: Entry) -> Version:
        """The same with more directories for one table; an equal path is replaced."""
        paths = {entry.path for entry in entries}
        old = (
            each_entry for each_entry in self.tables.get(table, ()) if each_entry.path not in paths
        )
        return self.with_table(table, (*old, *entries))

    def with_node(self, node: str, state: NodeState) -> Version:
        """The same with another standing of one node."""
        return replace(self, nodes={**self.nodes, node: state})

    def as_text(self) -> str:
        """The version as its file has it."""
        return json.dumps(asdict(self), indent=1, sort_keys=True, default=list) + "\n"

    @classmethod
    def of_text(cls, text: str) -> Version:
        """The version that a file describes; one of another journal is refused."""
        values = json.loads(text)
        check_version(values["journal_version"])
        return cls(
            number=values["number"],
            journal_version=values["journal_version"],
            nodes={name: _state(state) for name, state in values["nodes"].items()},
            tables={
                table: tuple(Entry(**_known(Entry, entry)) for entry in entries)
                for table, entries in values["tables"].items()
            },
            judged=values["judged"],
        )


def _state(values: dict[str, Any]) -> NodeState:
    holes = tuple(Hole(*hole_values) for hole_values in values.get("holes", ()))
    return NodeState(**{**_known(NodeState, values), "holes": holes})


def _known(kind: type[Entry | NodeState], values: dict[str, Any]) -> dict[str, Any]:
    """Without what earlier lakes kept: digests that prove nothing about a chain."""
    names = {each_field.name for each_field in fields(kind)}
    return {name: value for name, value in values.items() if name in names}
