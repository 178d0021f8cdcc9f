"""Partner service of few messages, counted by the driver: what `partner_service` does on Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from oncewire.journal.outcome import Outcome
from oncewire.pipeline.days import Days
from oncewire.pipeline.schemas import PARTNER_SERVICE, arrow, nullable

if TYPE_CHECKING:
    import pyarrow as pa

    from oncewire.pipeline.lake import Lake
    from oncewire.pipeline.version import Entry

SERVICE_COLUMNS = [
    "part_of", "outcome", "reliable", "sender", "receiver", "to_peer", "from_peer",
    "submitted_at", "received_at", "handed_over_at", "latency", "size", "violations", "resends",
    "duplicates_stopped", "late_ack",
]  # fmt: skip
"""What is asked of a ledger row."""

_INSTANTS = ("submitted_at", "received_at")
_SECOND = 1_000_000
_OUTCOMES = (Outcome.DELIVERED, Outcome.NOT_DELIVERED, Outcome.UNKNOWN, Outcome.IN_FLIGHT)

Key = tuple[str | None, str, str | None, datetime]


def partner_service(
    ledger: Iterable[dict[str, Any]], days: Collection[date] | None = None
) -> list[tuple[Any, ...]]:
    """One row for each node, direction, partner and hour; with days, of those days alone."""
    groups: dict[Key, list[tuple[dict[str, Any], float | None]]] = {}
    for row in ledger:
        for key, waited in _sides(row):
            if days is None or key[3].date() in days:
                groups.setdefault(key, []).append((row, waited))
    return [(*key, *_counted(group)) for key, group in groups.items()]


def changed_days(now: pa.Table, before: pa.Table) -> set[date]:
    """The days of ledger rows that are not as they were. What is open is judged again in every
    run, and mostly nothing has come of it: its day need not be counted again."""
    old = dict(_told(before))
    changed = [(row, old.get(message_id)) for message_id, row in _told(now)]
    return {
        at.date()
        for row, known in changed
        if row != known
        for each_row in (row, known)
        if each_row is not None
        for at in each_row[:2]
        if at is not None
    }


def _told(ledger: pa.Table) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """What is counted of each message, its two instants first."""
    others = [name for name in SERVICE_COLUMNS if name not in (*_INSTANTS, "violations")]
    columns = [ledger[name].to_pylist() for name in (*_INSTANTS, *others)]
    columns.append(ledger["violations"].is_valid().to_pylist())
    return zip(ledger["message_id"].to_pylist(), zip(*columns, strict=True), strict=True)


def other_days(
    lake: Lake, entries: Iterable[Entry], days: Collection[date] | None
) -> tuple[list[Entry], pa.Table]:
    """What stays of partner service when some days are counted again, or all of them: whole
    directories, and rows of other days that lie in one directory with them."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    shape = arrow(nullable(PARTNER_SERVICE))
    kept: list[Entry] = []
    beside = [shape.empty_table()]
    for entry in entries if days is not None else ():
        if not Days.of_entry(entry).touch(days or ()):
            kept.append(entry)
            continue
        table = ds.dataset(lake.root / entry.path, format="parquet", schema=shape).to_table()
        counted_again = pc.is_in(
            table["hour"].cast(pa.date32()), value_set=pa.array(sorted(days or ()), pa.date32())
        )
        beside.append(table.filter(pc.invert(counted_again)))
    return kept, pa.concat_tables(beside)


def _sides(row: dict[str, Any]) -> Iterator[tuple[Key, float | None]]:
    """The sender's hour and the receiver's."""
    if row["outcome"] is None:
        return
    sent, received, handed = row["submitted_at"], row["received_at"], row["handed_over_at"]
    if sent is not None:
        latency = row["latency"]
        waited = None if latency is None else latency / _SECOND
        yield (row["sender"], "out", row["to_peer"], _hour(sent)), waited
    if received is not None:
        waited = None if handed is None else _micros(handed, received) / _SECOND
        yield (row["receiver"], "in", row["from_peer"], _hour(received)), waited


def _hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def _micros(later: datetime, earlier: datetime) -> int:
    between = later - earlier
    return (between.days * 86_400 + between.seconds) * _SECOND + between.microseconds


def _counted(group: list[tuple[dict[str, Any], float | None]]) -> tuple[Any, ...]:
    every = [row for row, _ in group]
    rows = [row for row in every if row["part_of"] is None]
    sizes = [row["size"] for row in rows if row["size"] is not None]
    best_effort = [row for row in rows if row["reliable"] is False]
    waits = sorted(waited for row, waited in group if waited is not None and row["part_of"] is None)
    return (
        len(rows),
        sum(sizes) if sizes else None,
        *(sum(row["outcome"] == outcome.value for row in rows) for outcome in _OUTCOMES),
        len(best_effort),
        sum(row["received_at"] is not None for row in best_effort),
        sum(row["violations"] is not None for row in every),
        sum(row["resends"] for row in every),
        sum(row["duplicates_stopped"] for row in every),
        sum(bool(row["late_ack"]) for row in rows),
        *(_percentile(waits, share) for share in (0.5, 0.95, 0.99)),
    )


def _percentile(ordered: list[float], share: float) -> float | None:
    """Exact, and between two values as Spark takes it."""
    if not ordered:
        return None
    position = (len(ordered) - 1) * share
    lower = int(position)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (ordered[upper] - ordered[lower]) * (position - lower)
