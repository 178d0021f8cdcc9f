"""What every judge must know, gathered from the whole lake once per run.

The journal's `Context` is made of a few rows of every node. To it belongs how far the books are
settled: for an archive that still grows, the absence of a row proves something only once every
timer has run out.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass, field
from typing import Any

from oncewire.journal import survey
from oncewire.journal.predicates.context import Context
from oncewire.journal.row import COLUMNS, Row
from oncewire.journal.trace import RESUMED, STARTED, TERMS
from oncewire.message.instant import DAY, Duration, Instant
from oncewire.pipeline.lake import Lake
from oncewire.pipeline.rows import rows_of_batch
from oncewire.pipeline.version import NodeState, Version

CLOCKS_DIFFER: Duration = DAY
"""By so much the reader's clock and a node's may differ before silence is called silence."""

OWN_CLOCK, TIME_OF_READING, CLOSED = "its own clock", "time of reading", "the books are closed"

ROWS_PER_TASK = 200_000
"""So many rows a fold's task sorts and holds; more only make it spill."""


@dataclass(frozen=True, slots=True)
class Judging:
    """The context of one run, ready to be sent to where the folds run."""

    context: Context
    ended: bool
    copies: frozenset[str] = frozenset()
    """Nodes whose journals are copies of others': their rows are left out."""
    clocks: dict[str, str] = field(default_factory=dict)
    """For each node by which clock it is known how far its journal goes."""
    run: str | None = None
    """The same in all tasks that judge by this very context: what one learns the next knows."""

    def horizon(self, node: str) -> Instant | None:
        """Rows of a node before this instant are settled; None: all of them are."""
        if self.context.healed:
            return None
        reached = self.context.through.get(node)
        return None if reached is None else reached - self.context.wait_of(None)

    @property
    def settled_before(self) -> Instant | None:
        """Rows of any node before this instant are settled; None: all of them are."""
        if self.context.healed:
            return None
        reached = self.context.through.values()
        return min(reached, default=0) - self.context.wait_of(None)

    def as_dict(self) -> dict[str, Any]:
        """What must be equal for an earlier judgement to stand."""
        homes = sorted((name, sorted(nodes)) for name, nodes in self.context.homes.items())
        doubts = [
            sorted(
                (node, [list(hole) for hole in some]) for node, some in self.context.holes.items()
            ),
            sorted(self.context.doubted),
            sorted(self.context.doubted_terms),
            sorted(self.copies),
        ]
        text = json.dumps([homes, self.context.declared, self.ended, doubts])
        return {
            "circumstances": hashlib.sha256(text.encode()).hexdigest(),
            "settled_before": self.settled_before,
            "through": self.context.through,
            "ended": self.ended,
        }

    def stands(self, judged: dict[str, Any]) -> bool:
        """Whether what was judged then need not be judged again.

        A journal that joins the lake can show what none could show before: that the node it
        belongs to does not have a message.
        """
        return bool(judged) and judged["circumstances"] == self.as_dict()["circumstances"]


def gather(lake: Lake, version: Version, *, ended: bool) -> Judging:
    """The context of all nodes of a version, from its small tables."""
    boots = _boots(lake.folders(version, "boots"))
    aside = _aside(lake.folders(version, "quarantine"))
    ends = {name: (state.seq, state.at) for name, state in version.nodes.items()}
    holes = {name: list(state.holes) for name, state in version.nodes.items() if state.holes}
    copies = survey.copies(boots, ends)
    few = [row for row in _few(lake.folders(version, "context")) if row.node not in copies]
    found = Context.gather(few, healed=ended)
    for node in version.nodes:
        if node not in copies:
            found.homes.setdefault(node, set()).add(node)
    survey.place(found, aside, holes, ends, copies)
    found.problems = [
        *survey.copied(boots, copies),
        *survey.unstarted(boots, holes, copies),
        *(survey.told(each_aside) for each_aside in aside if each_aside.node not in copies),
        *found.problems,
    ]
    if not ended:
        reached = {name: _reached(state) for name, state in version.nodes.items()}
        found.through = {name: at for name, (at, _) in reached.items() if name not in copies}
    return Judging(found, ended, frozenset(copies), _clocks(version), uuid.uuid4().hex)


def _reached(state: NodeState) -> tuple[Instant, str]:
    """Until when all that a node did is here, and by which clock.

    Its last row says so; where it is silent, the time at which its journal was read does. A clock
    that runs ahead of the reader's is not believed: it would call everything late.
    """
    own = min(state.at, state.read_at) if state.read_at else state.at
    read = state.read_at - CLOCKS_DIFFER
    return (read, TIME_OF_READING) if read > own else (own, OWN_CLOCK)


def _clocks(version: Version) -> dict[str, str]:
    return {name: _reached(state)[1] for name, state in version.nodes.items()}


def _boots(folders: list[str]) -> list[survey.Boot]:
    """The runs of all processes; one that lies in several ranges is put together."""
    import pyarrow.dataset as ds

    found: dict[tuple[str, str], survey.Boot] = {}
    for folder in folders:
        for values in ds.dataset(folder, format="parquet").to_table().to_pylist():
            known_boot = survey.Boot(**values)
            known = found.get((known_boot.node, known_boot.boot))
            if known is not None:
                first = min(known, known_boot, key=lambda boot: boot.first)
                known_boot = first._replace(
                    started=known.started or known_boot.started,
                    at_work=known.at_work or known_boot.at_work,
                )
            found[known_boot.node, known_boot.boot] = known_boot
    return sorted(found.values(), key=lambda each_boot: (each_boot.node, each_boot.first))


def _aside(folders: list[str]) -> list[survey.Aside]:
    """The rows that were set aside, as far as they can be placed."""
    import pyarrow.dataset as ds

    names = list(survey.Aside._fields)
    found = [
        survey.Aside(**{**values, "node": values["node"] or "", "at": values["at"] or 0})
        for folder in folders
        for values in ds.dataset(folder, format="parquet").to_table(columns=names).to_pylist()
    ]
    return sorted(found, key=lambda aside: (aside.node, aside.seq))


def _few(folders: list[str]) -> list[Row]:
    """The rows that make the context, each node's in order.

    Every boot says the same as the one before unless it says something new, and of a channel
    only its last word counts. So they stay few, however long the journal is.
    """
    import pyarrow.dataset as ds

    said: dict[tuple[str, str, str, str], Row] = {}
    last: dict[tuple[str, str], Row] = {}
    for folder in folders:
        for batch in ds.dataset(folder, format="parquet").to_batches(columns=list(COLUMNS)):
            for row in rows_of_batch(batch):
                if row.kind in (STARTED, TERMS):
                    said.setdefault((row.node, row.kind, row.terms_id or "", row.detail or ""), row)
                elif row.channel is not None:
                    before = last.setdefault((row.node, row.channel), row)
                    if before.seq < row.seq:
                        last[row.node, row.channel] = row
                elif row.kind == RESUMED:
                    said[row.node, row.kind, row.peer or "", str(row.seq)] = row
    return sorted((*said.values(), *last.values()), key=lambda row: (row.node, row.seq))


def tasks_for(rows: int, cores: int) -> int:
    """Into how many tasks a fold over so many rows is divided."""
    return max(cores, min(2_000, -(-rows // ROWS_PER_TASK)))
