"""How far a lake was judged: channel by channel, by whose clock, and how many messages were not.

Plain Python over small tables: only what is open can be unjudged.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from oncewire.journal.predicates.message import Extent
from oncewire.message.instant import SECOND
from oncewire.pipeline.judging import CLOSED, OWN_CLOCK, Judging
from oncewire.pipeline.lake import Lake
from oncewire.pipeline.version import Version

_COLUMNS = ["sender", "receiver", "to_peer", "from_peer", "channel", "terms_id", "extent"]


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
        """The same with more messages."""
        return Extents(
            self.messages + messages,
            self.not_yet + messages * (extent == Extent.NOT_YET),
            self.in_doubt + messages * (extent == Extent.IN_DOUBT),
        )


def judged_channels(
    lake: Lake, version: Version, before: Version, judging: Judging
) -> list[tuple[Any, ...]]:
    """The rows of the table `judged`: every way that has messages, or had some."""
    counted: dict[Way, Extents] = {}
    for row in _rows(lake.folders(before, "judged")):
        way = Way(row["sender"], row["receiver"], row["partner"], row["channel"], row["terms_id"])
        counted[way] = Extents()
    for table in ("ledger_open", "ledger_closed"):
        new = {entry.path for entry in version.tables.get(table, ())}
        if table == "ledger_closed":
            new -= {entry.path for entry in before.tables.get(table, ())}
        columns = [*_COLUMNS, "part_of"]
        for row in _rows([str(lake.root / path) for path in sorted(new)], columns):
            way = way_of(row)
            known = counted.get(way, Extents())
            # A part is nobody's message: its document is counted.
            counts = table == "ledger_open" and row["part_of"] is None
            counted[way] = known.adding(row["extent"]) if counts else known
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
    if judging.context.through == version.judged.get("through"):
        return False
    columns = [*_COLUMNS, "submitted_at", "received_at"]
    for row in _rows(lake.folders(version, "ledger_open"), columns):
        since = row["submitted_at"] or row["received_at"]
        if row["extent"] != Extent.NOT_YET or since is None:
            continue
        through, _ = horizon_of(way_of(row), judging)
        if through is None or since < through:
            return True
    return False


def _rows(folders: list[str], columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    import pyarrow.dataset as ds

    for folder in folders:
        yield from ds.dataset(folder, format="parquet").to_table(columns=columns).to_pylist()


def _order(way: Way) -> tuple[str, ...]:
    return tuple(value or "" for value in way)
