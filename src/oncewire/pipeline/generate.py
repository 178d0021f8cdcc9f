"""Generate: the journals and messages of a plausible year, written in parallel by Spark.

Each stream of the year is one unit of work, so the result does not depend on how the units are
divided among tasks. Positions are given afterwards: rows are sorted within (node, day), and each
day's first position follows from how many rows came before it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StructField, StructType

from oncewire.errors import NotAllowed
from oncewire.journal.row import JOURNAL_VERSION
from oncewire.message.instant import DAY
from oncewire.pipeline.book import write_node_file
from oncewire.pipeline.files import safe_name
from oncewire.pipeline.intake import Progress, TakenIn, quiet, with_silver
from oncewire.pipeline.lake import Lake
from oncewire.pipeline.rows import batch_of
from oncewire.pipeline.sample_year.journals import units, write_unit
from oncewire.pipeline.sample_year.parcels import write_parcels
from oncewire.pipeline.sample_year.plan import YEAR, YEAR_START, Plan, make_plan
from oncewire.pipeline.schemas import JOURNAL, arrow, nullable
from oncewire.pipeline.session import cores_of
from oncewire.pipeline.version import Entry, NodeState, Version

if TYPE_CHECKING:
    import pyarrow as pa

DRAFTS = StructType(
    [
        StructField("true_at", LongType(), True),
        StructField("unit", LongType(), True),
        StructField("ordinal", LongType(), True),
        *nullable(JOURNAL).fields[1:],
    ]
)
"""Rows without their position, and what orders them."""

PLACED = StructType([*nullable(JOURNAL).fields, StructField("day", LongType(), True)])
ROWS_PER_BATCH = 10_000
WORK = "gold/work/drafts"


@dataclass(frozen=True, slots=True)
class Generated:
    """What was written."""

    messages: int
    rows: int
    nodes: int
    violations: int
    envelopes: int


def generate(
    spark: SparkSession,
    lake: Lake,
    *,
    messages: int,
    seed: int,
    days: int = YEAR,
    violations: Path | None = None,
    envelopes: int = 0,
    tell: Progress = quiet,
) -> Generated:
    """Write a year of so many messages into a new lake, and the answer key beside it.

    `envelopes` of the messages are also written as raw messages, into `LAKE/archive`.
    """
    if lake.exists:
        raise NotAllowed(f"there is a lake at {lake.root} already", remedy="name a new folder")
    plan = make_plan(messages, seed, days)
    if violations is not None:
        key = [{"kind": kind, "message_id": message_id} for kind, message_id in plan.violations]
        violations.write_text(json.dumps(key, indent=1) + "\n", encoding="utf-8")
    with lake.writing() as empty:
        tell(f"writing a year of {messages:,} messages in {len(plan.streams):,} streams")
        drafts = _drafts(spark, lake, plan)
        tell("giving positions")
        version = lake.publish(_journals(spark, lake, empty, drafts))
        shutil.rmtree(lake.root / WORK, ignore_errors=True)
    written = 0
    if envelopes:
        tell("writing raw messages")
        written = write_parcels(spark, lake.root / "archive", plan, envelopes)
    return Generated(
        messages, version.rows("journal"), len(version.nodes), len(plan.violations), written
    )


def _drafts(spark: SparkSession, lake: Lake, plan: Plan) -> DataFrame:
    """Every row of the year, on disk, in no order."""
    count = units(plan)
    # Units differ in size, so there are more tasks than cores, and not one for each unit.
    tasks = max(1, min(count, max(cores_of(spark) * 4, count // 40)))
    frame = spark.range(0, count, 1, tasks).mapInArrow(
        _write(plan.messages, plan.seed, plan.days), DRAFTS
    )
    lake.write(frame, WORK)
    return lake.read_folders(spark, DRAFTS, [str(lake.root / WORK)])


def _write(
    messages: int, seed: int, days: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan, schema = make_plan(messages, seed, days), arrow(DRAFTS)
        pending: list[tuple[Any, ...]] = []
        for batch in batches:
            for unit in batch.column(0).to_pylist():
                pending += write_unit(plan, unit)
                if len(pending) >= ROWS_PER_BATCH:
                    yield batch_of(list(zip(*pending, strict=True)), schema)
                    pending = []
        if pending:
            yield batch_of(list(zip(*pending, strict=True)), schema)

    return write


def _journals(spark: SparkSession, lake: Lake, version: Version, drafts: DataFrame) -> Version:
    """The journals in order, one directory for each node, and the silver tables they make."""
    day = f.floor((f.col("true_at") - YEAR_START) / DAY).cast("long")
    dated = drafts.withColumn("day", day)
    offsets, ends = _offsets(dated)
    rows = sum(ends.values())
    tasks = max(cores_of(spark), -(-rows // 250_000))
    placed = (
        dated.repartition(tasks, "node", "day")
        .sortWithinPartitions("node", "day", "true_at", "unit", "ordinal")
        .mapInArrow(_place(offsets), PLACED)
    )
    taken = TakenIn(version)
    for entry in lake.write_divided(placed.drop("day"), "bronze/journal/year", "node"):
        node = unquote(entry.key)
        moved = _moved(lake, entry, node, ends[node])
        taken = TakenIn(taken.version.adding("journal", moved), (*taken.entries, moved))
    return _with_ends(spark, lake, with_silver(spark, lake, taken).version)


def _with_ends(spark: SparkSession, lake: Lake, version: Version) -> Version:
    """The last row of each node, as the lake remembers it."""
    last = f.max_by(f.struct("seq", "at", "boot"), "seq").alias("last")
    rows = lake.read(spark, version, JOURNAL, "journal").groupBy("node").agg(last).collect()
    for row in rows:
        version = version.with_node(row["node"], NodeState(*row["last"]))
    return version


def _offsets(dated: DataFrame) -> tuple[dict[tuple[str, int], int], dict[str, int]]:
    """How many rows each node has before each day, and in all."""
    offsets: dict[tuple[str, int], int] = {}
    ends: dict[str, int] = {}
    counts = dated.groupBy("node", "day").count().orderBy("node", "day").collect()
    for row in counts:
        offsets[row["node"], row["day"]] = ends.get(row["node"], 0)
        ends[row["node"]] = ends.get(row["node"], 0) + row["count"]
    return offsets, ends


def _place(
    offsets: dict[tuple[str, int], int],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def place(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        schema = arrow(PLACED)
        current, position = ("", -1), 0
        for batch in batches:
            positions = []
            keys = zip(batch["node"].to_pylist(), batch["day"].to_pylist(), strict=True)
            for key in keys:
                if key != current:
                    current, position = key, offsets[key]
                position += 1
                positions.append(position)
            columns = [pa.array(positions, pa.int64())]
            columns += [batch[name] for name in schema.names[1:]]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return place


def _moved(lake: Lake, entry: Entry, node: str, end: int) -> Entry:
    """A node's directory under the name that a journal's rows have in every lake."""
    path = f"bronze/journal/{safe_name(node)}/1-{end}"
    target: Path = lake.root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    (lake.root / entry.path).rename(target)
    write_node_file(target.parent, node, JOURNAL_VERSION)
    return Entry(path, entry.rows, node, 1, end)
