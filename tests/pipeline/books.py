"""Books for tests: stores with a journal, exports of it, and tables as sorted rows."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from oncewire.journal.predicates.context import ViolationKind
from oncewire.journal.row import JOURNAL_VERSION, Row
from oncewire.lab.sample_year.generate import rows_of_year
from oncewire.lab.sample_year.plan import Plan, make_plan
from oncewire.pipeline import jobs
from oncewire.pipeline.lake.columns import JOURNAL, arrow, nullable
from oncewire.pipeline.lake.lake import Lake, TableFile
from oncewire.pipeline.lake.tables import EVERY, batch_of
from oncewire.pipeline.lake.version import Book, Entry, Version, write_node_file
from oncewire.pipeline.sources.ingest import placed, survey_place, write_ranges
from oncewire.store.sqlite.store import SqliteStore

SEED = 20250101

OF_JOURNALS = frozenset(
    {
        ViolationKind.HOLE,
        ViolationKind.TRIMMED,
        ViolationKind.CUT_OFF,
        ViolationKind.UNSTARTED,
        ViolationKind.OTHER_TERMS,
        ViolationKind.COPIED,
        ViolationKind.RESTORED,
        ViolationKind.CLOCK,
        ViolationKind.UNCHAINED,
        ViolationKind.UNREADABLE,
    }
)
"""Kinds of what is wrong with a journal itself."""

PROMISES = {kind.value for kind in ViolationKind} - OF_JOURNALS
"""Every kind of violation that can be planted."""


@dataclass(frozen=True)
class Year:
    lake: Lake
    planted: list[tuple[str, str]]
    rows: int


@cache
def small_year(
    messages: int = 200, seed: int = 7, days: int = 20
) -> tuple[Plan, dict[str, list[Row]]]:
    """The rows of each node of a small and short year."""
    plan = make_plan(messages, seed, days)
    nodes: dict[str, list[Row]] = {}
    for row in rows_of_year(plan):
        nodes.setdefault(row.node, []).append(row)
    return plan, nodes


def make_store(path: Path, node: str, rows: Iterable[Row]) -> Path:
    """A store whose journal has these rows; it is closed, so that others may write on."""
    store = SqliteStore(path, node=node)
    with store.transition() as tx:
        tx.journal(rows)
    store.commit()
    store.close()
    return path


def make_stores(folder: Path, nodes: dict[str, list[Row]]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    return [make_store(folder / f"{node}.db", node, rows) for node, rows in sorted(nodes.items())]


def lake_of(spark: Any, folder: Path, nodes: dict[str, list[Row]]) -> Lake:
    """The lake that the pipeline makes of their stores."""
    made = Lake(folder / "lake")
    jobs.run(spark, made, make_stores(folder / "stores", nodes))
    return made


def files_with(text: str, folder: Path) -> list[Path]:
    """Where that stands in a file, whatever it is."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if text.encode() in path.read_bytes()]


def take_in_here(lake: Lake, version: Version, *places: Path | Book) -> Version:
    """What tasks do when they take journals in, done in this process and without Spark."""
    ranges = [
        span for place in places for each in survey_place(version, place) for span in each.ranges
    ]
    written = [write_ranges(lake.root, ranges)] if ranges else []
    return placed(lake, version, written).version


def write_rows(lake: Lake, table: str, path: str, rows: pa.Table, schema: StructType) -> Entry:
    """A directory of a table, as a task writes it."""
    file = TableFile(lake.root, table, path, schema)
    for batch in rows.to_batches():
        file.write(batch)
    return file.close()


def make_export(folder: Path, node: str, rows: Iterable[Row], *, per_file: int = 100) -> Path:
    """The same as Parquet files with several row groups."""
    folder.mkdir(parents=True)
    write_node_file(folder, node, JOURNAL_VERSION)
    every = list(rows)
    for start in range(0, len(every), per_file):
        chunk = every[start : start + per_file]
        batch = batch_of(list(zip(*chunk, strict=True)), arrow(nullable(JOURNAL)))
        pq.write_table(
            pa.Table.from_batches([batch]), folder / f"part-{start:06d}.parquet", row_group_size=40
        )
    return folder


COMPARED = (
    "journal", "messages", "attempts", "ledger", "sequence_gaps", "partner_service", "violations",
)  # fmt: skip
"""Tables that are the same however the runs were cut, killed or divided."""


def tables(spark, lake: Lake) -> dict[str, list[Any]]:
    """The tables of COMPARED, as sorted rows."""
    version = lake.current()
    found = {}
    for name in COMPARED:
        rows = lake.read(spark, version, EVERY[name].schema, *EVERY[name].stored).collect()
        found[name] = sorted((plain(row) for row in rows), key=repr)
    return found


def plain(value: Any) -> Any:
    """A Spark row as nested tuples."""
    if isinstance(value, tuple):
        return tuple(plain(one) for one in value)
    if isinstance(value, list):
        return tuple(plain(one) for one in value)
    return value


def differences(one: dict[str, list[Any]], other: dict[str, list[Any]]) -> dict[str, str]:
    """Which tables differ, and by which rows: empty when none does."""
    found = {}
    for name in one:
        if one[name] != other[name]:
            left = [row for row in one[name] if row not in set(other[name])]
            right = [row for row in other[name] if row not in set(one[name])]
            counts = f"{len(one[name])} and {len(other[name])} rows"
            found[name] = f"{counts}; only left {left[:2]}; only right {right[:2]}"
    return found


def assert_hard_places(spark, lake: Lake) -> None:
    """What could be mistaken for a fault is there too: wrap-around, resets, several nodes."""
    journal = lake.read(spark, lake.current(), JOURNAL, "journal")
    assert journal.select("node").distinct().count() >= 4
    numbered = journal.where("kind = 'numbered'")
    epochs = numbered.groupBy("channel").agg(f.countDistinct("epoch").alias("epochs"))
    assert epochs.where("epochs > 1").count() > 5
    # In one epoch a number comes again: the range was gone through, all of it.
    again = numbered.groupBy("channel", "epoch", "sequence_number").count().where("count > 1")
    assert again.select("channel").distinct().count() > 5
    assert journal.where("kind = 'forwarded'").count() > 0
    assert journal.where("kind = 'resumed'").count() > 0


def executions(spark: Any) -> int:
    """How many SQL executions Spark has begun, by the id of the last: it keeps only a thousand."""
    kept = spark._jsparkSession.sharedState().statusStore().executionsList()
    return int(kept.last().executionId()) + 1 if kept.size() else 0
