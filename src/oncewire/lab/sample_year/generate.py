"""Generate: the journals and messages of a plausible year, written in parallel by Spark.

Each stream of the year is one unit of work, so the result does not depend on how the units are
divided among tasks. Positions are given afterwards: rows are sorted within (node, day), and each
day's first position follows from how many rows came before it.
"""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StructField, StructType

from oncewire import __version__
from oncewire.errors import NotAllowed
from oncewire.journal.row import COLUMNS, JOURNAL_VERSION, Row
from oncewire.lab.sample_year.exchange import write_stream
from oncewire.lab.sample_year.plan import YEAR, YEAR_START, Plan, make_plan
from oncewire.lab.sample_year.world import KEYS, Draft, Place, RowWriter
from oncewire.message.envelope import (
    AckRequested,
    DeliverySemantics,
    Header,
    Message,
    MessageKind,
    Payload,
)
from oncewire.message.form import Dialect, Form
from oncewire.message.ids import Party, Service
from oncewire.message.instant import DAY
from oncewire.pipeline.lake.columns import JOURNAL, arrow, nullable
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.lake.tables import batch_of, rows_of_batch
from oncewire.pipeline.lake.version import Entry, NodeState, Version, safe_name, write_node_file
from oncewire.pipeline.session import cores_of
from oncewire.pipeline.sources.ingest import Progress, Silver, quiet
from oncewire.pipeline.tasks import run_each
from oncewire.protocol import notes
from oncewire.protocol.notes import Note
from oncewire.wire import codec

if TYPE_CHECKING:
    import pyarrow as pa


# Raw messages of the year: some of its messages as a handler would have archived them.

PER_BUNDLE = 5_000
_FORM = Form(dialect=Dialect.EBMS2)


def write_parcels(spark: SparkSession, folder: Path, plan: Plan, wanted: int) -> int:
    """Write that many messages into tar bundles; returns how many were written."""
    wanted = min(wanted, plan.messages)
    folder.mkdir(parents=True, exist_ok=True)
    bundles = -(-wanted // PER_BUNDLE)
    frame = spark.range(0, bundles, 1, bundles).mapInArrow(
        _bundles(str(folder), (plan.messages, plan.seed, plan.days), wanted), "written long"
    )
    return int(frame.agg(f.sum("written")).collect()[0][0])


def _bundles(
    folder: str, made_from: tuple[int, int, int], wanted: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        plan = make_plan(*made_from)
        for batch in batches:
            for bundle in batch.column(0).to_pylist():
                first = bundle * PER_BUNDLE
                last = min(first + PER_BUNDLE, wanted)
                _write_bundle(Path(folder) / f"messages-{bundle:05d}.tar", plan, first, last)
                yield pa.RecordBatch.from_pydict({"written": [last - first]})

    return write


def _write_bundle(path: Path, plan: Plan, first: int, last: int) -> None:
    beside = path.with_name(f".{path.name}.new")
    with tarfile.open(beside, "w") as bundle:
        for number in range(first, last):
            data = parcel(plan, number)
            entry = tarfile.TarInfo(f"{number:09d}.mime")
            entry.size = len(data)
            entry.mtime = YEAR_START // 1_000_000
            bundle.addfile(entry, io.BytesIO(data))
    beside.replace(path)


def parcel(plan: Plan, number: int) -> bytes:
    """The number-th message of the year, as the bytes of a mail."""
    stream = plan.streams[number % len(plan.streams)]
    index = number // len(plan.streams)
    message_id = plan.message_id(stream.index, index)
    content = f"<order id='{message_id}'>{'<line/>' * (5 + number % 200)}</order>".encode()
    message = Message(
        Dialect.EBMS2,
        MessageKind.NORMAL,
        Header(
            from_party=Party.of(stream.sender.party, role="buyer"),
            to_party=Party.of(stream.receiver.party, role="seller"),
            cpa_id=stream.cpa_id,
            conversation_id=f"c-{message_id[:10]}",
            service=Service("urn:service:orders"),
            action="NewOrder",
            message_id=message_id,
            timestamp=YEAR_START + number * 1_000_000,
            semantics=DeliverySemantics.ONCE_AND_ONLY_ONCE,
            duplicate_elimination=True,
        ),
        ack_requested=(AckRequested(),),
        payloads=(Payload.of(f"order-{number}@oncewire", "application/xml", content),),
    )
    written = codec.write(message, _FORM)
    head = f"MIME-Version: 1.0\r\nContent-Type: {written.content_type}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in written.headers)
    return head.encode() + b"\r\n" + written.body


# The journals of the year: every stream's rows, what nodes write about themselves, positions.


def units(plan: Plan) -> int:
    """How many pieces the year is written in: one for each stream, and one for the nodes."""
    return len(plan.streams) + 1


def write_unit(plan: Plan, unit: int) -> list[Draft]:
    """The rows of one piece."""
    if unit < len(plan.streams):
        return write_stream(plan, plan.streams[unit])
    return _write_nodes(plan, unit)


def _write_nodes(plan: Plan, unit: int) -> list[Draft]:
    """Boots, terms, and the end of the year."""
    writer = RowWriter(unit, plan.end)
    terms = {
        handler.name: {
            stream.terms.terms_id: stream.terms
            for stream in plan.streams
            if handler in (stream.sender, stream.receiver, stream.hub)
        }
        for handler in plan.handlers
    }
    for handler in plan.handlers:
        said = notes.Started(__version__, JOURNAL_VERSION, (handler.party,))
        place = Place(handler)
        for boot in handler.boots:
            writer.note(place, boot, Note(said))
        first = handler.boots[0] + 1
        for _, values in sorted(terms[handler.name].items()):
            writer.terms(handler, first, values)
        writer.note(place, plan.end, Note(notes.Stopped()))
    return writer.rows


def rows_of_year(plan: Plan, streams: Sequence[int] | None = None) -> Iterator[Row]:
    """All journals, node by node, in plain Python: what Spark writes in parallel.

    With some streams only: as if nothing else had happened in the year.
    """
    chosen = range(units(plan)) if streams is None else [*streams, units(plan) - 1]
    drafts = [draft for unit in chosen for draft in write_unit(plan, unit)]
    node = KEYS + 3
    drafts.sort(key=lambda draft: (draft[node], *draft[:KEYS]))
    seq, current = 0, ""
    for draft in drafts:
        seq = seq + 1 if draft[node] == current else 1
        current = draft[node]
        yield Row(seq, *draft[KEYS:])


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
        # Every row of the year, on disk, in no order.
        count = units(plan)
        # Units differ in size, so there are more tasks than cores, and not one for each unit.
        tasks = max(1, min(count, max(cores_of(spark) * 4, count // 40)))
        frame = spark.range(0, count, 1, tasks).mapInArrow(
            _write(plan.messages, plan.seed, plan.days), DRAFTS
        )
        frame.write.mode("overwrite").parquet(str(lake.root / WORK))
        drafts = lake.read_folders(spark, DRAFTS, [str(lake.root / WORK)])
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
    folder = lake.root / "bronze/journal/year"
    divided = placed.drop("day").withColumn("part", f.col("node")).repartition("part")
    divided.write.mode("overwrite").partitionBy("part").parquet(str(folder))
    entries = [
        _moved(lake, part, unquote(part.name.removeprefix("part=")), ends)
        for part in sorted(folder.glob("part=*"))
    ]
    calls = [partial(_write_silver, lake.root, entry.path) for entry in entries]
    for tables in run_each(spark, calls):
        for table, entry in tables.items():
            version = version.adding(table, entry)
    version = version.adding("journal", *entries)
    # The last row of each node, as the lake remembers it.
    last = f.max_by(f.struct("seq", "at", "boot"), "seq").alias("last")
    for row in lake.read(spark, version, JOURNAL, "journal").groupBy("node").agg(last).collect():
        version = version.with_node(row["node"], NodeState(*row["last"]))
    return version


def _write_silver(root: Path, path: str) -> dict[str, Entry]:
    """The silver tables of one node's journal."""
    import pyarrow.dataset as ds

    silver = Silver(root, path.removeprefix("bronze/journal/"))
    for batch in ds.dataset(root / path, format="parquet").to_batches(columns=list(COLUMNS)):
        silver.add(rows_of_batch(batch))
    return silver.close()


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


def _moved(lake: Lake, part: Path, node: str, ends: dict[str, int]) -> Entry:
    """A node's directory under the name that a journal's rows have in every lake."""
    rows = ends[node]
    path = f"bronze/journal/{safe_name(node)}/1-{rows}"
    target: Path = lake.root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    part.rename(target)
    write_node_file(target.parent, node, JOURNAL_VERSION)
    return Entry(path, rows, node, 1, rows)
