"""What every judge must know, gathered from the whole lake once per run.

The journal's `Context` is made of a few rows of every node. To it belongs how far the books are
settled: for an archive that still grows, the absence of a row proves something only once every
timer has run out.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any, NamedTuple

import oncewire.journal
from oncewire.journal import check
from oncewire.journal.outcome import MessageOutcome
from oncewire.journal.predicates.context import Context, restored
from oncewire.journal.predicates.message import Extent
from oncewire.journal.row import COLUMNS, Row
from oncewire.journal.trace import JOINED, RECEIVED, RESUMED, STARTED, SUBMITTED, TERMS
from oncewire.message.instant import DAY, SECOND, Duration, Instant
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.lake.tables import rows_of_batch
from oncewire.pipeline.lake.version import NodeState, Version

if TYPE_CHECKING:
    import pyarrow as pa


CLOCKS_DIFFER: Duration = DAY
"""How far the clocks of the reader and of a node may differ before a journal counts as silent."""

OWN_CLOCK, TIME_OF_READING, CLOSED = "its own clock", "time of reading", "the books are closed"

ROWS_PER_TASK = 200_000
"""Rows that a fold's task sorts and holds; with more it spills to disk."""

ROWS_WORTH_A_TASK = 20_000
"""Fewer rows are not divided among cores."""


@dataclass(frozen=True, slots=True)
class Judging:
    """The context of one run, in a form that is sent to the tasks."""

    context: Context
    ended: bool
    copies: frozenset[str] = frozenset()
    """Nodes whose journals are copies of others': their rows are left out."""
    clocks: dict[str, str] = field(default_factory=dict)
    """For each node by which clock it is known how far its journal goes."""
    run: str | None = None
    """Names the run: all tasks that judge by this context share what they learn."""

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
        """The facts that must be equal for an earlier judgement to stand."""
        homes = sorted((name, sorted(nodes)) for name, nodes in self.context.homes.items())
        doubts = [
            sorted(
                (node, [list(hole) for hole in some]) for node, some in self.context.holes.items()
            ),
            sorted(self.context.doubted),
            sorted(self.context.doubted_terms),
            sorted(self.copies),
            sorted(self.context.archives),
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
    copies = check.copies(boots, ends)
    few = [row for row in _few(lake.folders(version, "context")) if row.node not in copies]
    found = Context.gather(few, healed=ended)
    for node in version.nodes:
        if node not in copies:
            found.homes.setdefault(node, set()).add(node)
    check.place(found, aside, holes, ends, copies)
    jumps = {name: state.jumps for name, state in version.nodes.items() if state.jumps}
    restarts = {name: state.restarts for name, state in version.nodes.items() if state.restarts}
    check.place_clocks(found, jumps, restarts, copies)
    found.forget(
        restored(name, restart)
        for name, state in version.nodes.items()
        for restart in state.restarts
        if restart.seq in state.forgot
    )
    found.problems = [
        *check.copied(boots, copies),
        *check.unstarted(boots, holes, copies),
        *(check.told(each_aside) for each_aside in aside if each_aside.node not in copies),
        *found.problems,
    ]
    reached = {name: _reached(state) for name, state in version.nodes.items()}
    if not ended:
        found.through = {name: at for name, (at, _) in reached.items() if name not in copies}
    clocks = {name: clock for name, (_, clock) in reached.items()}
    return Judging(found, ended, frozenset(copies), clocks, uuid.uuid4().hex)


def _reached(state: NodeState) -> tuple[Instant, str]:
    """Until when all that a node did is here, and by which clock.

    Its last row says so; where it is silent, the time at which its journal was read does. A clock
    that runs ahead of the reader's is not believed: it would call everything late.
    """
    own = min(state.at, state.read_at) if state.read_at else state.at
    read = state.read_at - CLOCKS_DIFFER
    return (read, TIME_OF_READING) if read > own else (own, OWN_CLOCK)


def _boots(folders: list[str]) -> list[check.Boot]:
    """The runs of all processes; one that lies in several ranges is put together."""
    import pyarrow.dataset as ds

    found: dict[tuple[str, str], check.Boot] = {}
    for folder in folders:
        for values in ds.dataset(folder, format="parquet").to_table().to_pylist():
            known_boot = check.Boot(**values)
            known = found.get((known_boot.node, known_boot.boot))
            if known is not None:
                first = min(known, known_boot, key=lambda boot: boot.first)
                known_boot = first._replace(
                    started=known.started or known_boot.started,
                    at_work=known.at_work or known_boot.at_work,
                )
            found[known_boot.node, known_boot.boot] = known_boot
    return sorted(found.values(), key=lambda each_boot: (each_boot.node, each_boot.first))


def _aside(folders: list[str]) -> list[check.Aside]:
    """The rows that were set aside, as far as they can be placed."""
    import pyarrow.dataset as ds

    names = list(check.Aside._fields)
    found = [
        check.Aside(**{**values, "node": values["node"] or "", "at": values["at"] or 0})
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
    """Into how many tasks a fold over so many rows is divided: a task costs what some thousand rows
    cost, and one of too many rows spills."""
    worth = min(cores, -(-rows // ROWS_WORTH_A_TASK))
    return max(1, worth, min(2_000, -(-rows // ROWS_PER_TASK)))


# How far a lake was judged: channel by channel, by whose clock, and how many messages were not.
#
# Plain Python over small tables: only what is open can be unjudged.


_COLUMNS = ["sender", "receiver", "to_peer", "from_peer", "channel", "terms_id", "judgement"]


class Way(NamedTuple):
    """What messages go by: from whom to whom, on which channel, under which terms."""

    sender: str | None
    receiver: str | None
    partner: str | None
    channel: str | None
    terms_id: str | None


class Extents(NamedTuple):
    """How many messages of a way are open, not judged yet, or in doubt."""

    messages: int = 0
    not_yet: int = 0
    in_doubt: int = 0

    def adding(self, extent: str | None, messages: int = 1) -> Extents:
        """These counts with more messages."""
        return Extents(
            self.messages + messages,
            self.not_yet + messages * (extent == Extent.NOT_YET),
            self.in_doubt + messages * (extent == Extent.IN_DOUBT),
        )


def add_ways(ways: dict[Way, Extents], more: Mapping[Way, Extents]) -> None:
    """Count more messages of some ways."""
    for way, counted in more.items():
        known = ways.get(way, Extents())
        ways[way] = Extents(*map(sum, zip(known, counted, strict=True)))


def ways_of(made: pa.RecordBatch, *, is_open: bool) -> dict[Way, Extents]:
    """The ways of some ledger rows; only what is open can be unjudged."""
    import pyarrow as pa

    table = pa.table({name: made[name] for name in _COLUMNS})
    table = table.append_column("part", made["part_of"].is_valid())
    counted = table.group_by(table.schema.names).aggregate([([], "count_all")])
    ways: dict[Way, Extents] = {}
    for row in counted.to_pylist():
        known = ways.setdefault(way_of(row), Extents())
        # A part does not count as a message: its document does.
        if is_open and not row["part"]:
            ways[way_of(row)] = known.adding(row["judgement"], row["count_all"])
    return ways


def judged_ways(
    before: list[str], ways: Mapping[Way, Extents], judging: Judging
) -> list[tuple[Any, ...]]:
    """The rows of the table `judged`: every way that has messages, or had some in its directories
    before."""
    counted: dict[Way, Extents] = {}
    for row in _rows(before):
        counted[Way(*(row[name] for name in Way._fields))] = Extents()
    add_ways(counted, ways)
    return [row_of(way, counted[way], judging) for way in sorted(counted, key=_order)]


def way_of(row: dict[str, Any]) -> Way:
    """The way of a ledger row."""
    partner = row["to_peer"] if row["sender"] else row["from_peer"]
    return Way(row["sender"], row["receiver"], partner, row["channel"], row["terms_id"])


def row_of(way: Way, extents: Extents, judging: Judging) -> tuple[Any, ...]:
    """A row of the table `judged`."""
    through, clock = horizon_of(way, judging)
    return (*way, through, clock, *extents)


def horizon_of(way: Way, judging: Judging) -> tuple[datetime | None, str]:
    """Until when messages that went this way are judged for what is missing, and by what clock."""
    context = judging.context
    if context.healed:
        return None, CLOSED
    nodes = {node for node in (way.sender, way.receiver) if node is not None}
    nodes |= context.homes.get(way.partner or "", set())
    known = [node for node in sorted(nodes) if node in context.through]
    horizon = context.horizon(known, context.terms.get(way.terms_id or ""))
    if horizon is None:
        return None, OWN_CLOCK
    last = min(known, key=lambda node: context.through[node])
    return datetime.fromtimestamp(horizon // SECOND, UTC), f"{last}: {judging.clocks[last]}"


def has_come_due(lake: Lake, version: Version, judging: Judging) -> bool:
    """Whether a message that was not judged yet can be judged now, without any new row.

    A partner that is silent is judged by the time of reading, which goes on.
    """
    known = version.judged.get("through", {})
    if judging.context.through == known:
        return False
    then = replace(judging, context=replace(judging.context, through=known))
    columns = [*_COLUMNS, "submitted_at", "received_at"]
    for row in _rows(lake.folders(version, "ledger_open"), columns):
        since, way = row["submitted_at"] or row["received_at"], way_of(row)
        if row["judgement"] == Extent.IN_DOUBT or since is None or not _is_due(way, since, judging):
            continue
        # What both sides agree on is judged before, and more may be found of it.
        if row["judgement"] == Extent.NOT_YET or not _is_due(way, since, then):
            return True
    return False


def _is_due(way: Way, since: datetime, judging: Judging) -> bool:
    through, _ = horizon_of(way, judging)
    return through is None or since < through


def _rows(folders: list[str], columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    import pyarrow.dataset as ds

    for folder in folders:
        yield from ds.dataset(folder, format="parquet").to_table(columns=columns).to_pylist()


def _order(way: Way) -> tuple[str, ...]:
    return tuple(value or "" for value in way)


# The rules that a verdict depends on, as one digest: other rules may judge otherwise.
#
# It covers the source of every module that decides anything: the journal's own, the protocol's and
# the message's values that they read, and what is computed from them here. A verdict carries it,
# and what other rules judged is judged again.


OUTSIDE = (
    "oncewire.message.envelope",
    "oncewire.message.form",
    "oncewire.message.instant",
    "oncewire.protocol.notes",
    "oncewire.protocol.sequence",
    "oncewire.protocol.states",
    "oncewire.protocol.terms",
    "oncewire.pipeline.judging.channels",
    "oncewire.pipeline.judging.courses",
    "oncewire.pipeline.judging.extent",
    "oncewire.pipeline.judging.gold",
    "oncewire.pipeline.judging.ledger",
    "oncewire.pipeline.judging.refresh",
    "oncewire.pipeline.judging.together",
    "oncewire.pipeline.lake.columns",
    "oncewire.pipeline.lake.tables",
    "oncewire.pipeline.sources.ingest",
)
"""Modules outside `oncewire.journal` that a verdict depends on."""


def modules() -> list[str]:
    """The names of all modules that the digest covers."""
    inside = [
        module.name for module in walk_packages(oncewire.journal.__path__, "oncewire.journal.")
    ]
    return sorted((*inside, *OUTSIDE))


@cache
def rules_digest() -> str:
    """The digest of the source of all modules that a verdict depends on."""
    made = hashlib.sha256()
    for name in modules():
        made.update(f"{name}\n{inspect.getsource(import_module(name))}\n".encode())
    return made.hexdigest()[:16]


# Peers: whom messages went to and came from, noted as their batches pass by.


_NOWHERE: dict[str, str | None] = {}


class Peers:
    """A few facts of a message that its outcome does not keep.

    They are taken from whole columns, and forgotten when they are asked for.
    """

    __slots__ = ("_from_peer", "_to_peer")

    def __init__(self) -> None:
        self._to_peer: dict[str, str | None] = {}
        self._from_peer: dict[str, dict[str, str | None]] = {}

    def note(self, batch: pa.RecordBatch) -> None:
        """Note the peers in one more batch."""
        import pyarrow.compute as pc

        kinds = batch["kind"]
        self._to_peer.update(values_of(batch, pc.equal(kinds, SUBMITTED), "message_id", "peer"))
        # A document is received when it is joined.
        came = pc.or_(pc.equal(kinds, RECEIVED), pc.equal(kinds, JOINED))
        for message_id, node, peer in values_of(batch, came, "message_id", "node", "peer"):
            self._from_peer.setdefault(message_id, {})[node] = peer

    def to(self, message_id: str) -> str | None:
        """The party that the message was submitted for."""
        return self._to_peer.pop(message_id, None)

    def of(self, message_id: str, receiver: str | None) -> str | None:
        """The party that the receiver has it from."""
        return self._from_peer.pop(message_id, _NOWHERE).get(receiver or "")

    def way(self, outcome: MessageOutcome | None) -> Way:
        """The way of a message."""
        if outcome is None:
            return Way(None, None, None, None, None)
        to = self.to(outcome.message_id)
        return way_of_peers(outcome, self.of(outcome.message_id, outcome.receiver), to)


def way_of_peers(outcome: MessageOutcome, from_peer: str | None, to_peer: str | None) -> Way:
    """The way of a message whose peers are known."""
    partner = to_peer if outcome.sender else from_peer
    return Way(outcome.sender, outcome.receiver, partner, outcome.channel, outcome.terms_id)


def values_of(batch: pa.RecordBatch, mask: pa.Array, *names: str) -> Iterator[tuple[Any, ...]]:
    """Some columns of the rows that a mask chooses."""
    return zip(*(batch[name].filter(mask).to_pylist() for name in names), strict=True)
