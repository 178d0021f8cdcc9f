"""Documents: each that a party sent or received, held against the bytes that its store has.

The journals in the lake say which documents there are, in how many parts, and with which digest.
What a store has of them is read by Spark's tasks through a `Shelf`, which the caller gives: it is
the code by which a party reads its own store. A document is streamed through its digest and not
held, unless its bytes are asked for, and then no more of them than is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from oncewire.errors import JournalProblem, NotAllowed, OncewireError
from oncewire.journal.identity import document_digest
from oncewire.message.envelope import TRIAL_MARK
from oncewire.message.instant import SECOND, Instant
from oncewire.pipeline.lake import columns
from oncewire.pipeline.lake.columns import DOCUMENTS, arrow, nullable
from oncewire.pipeline.lake.lake import Lake, TableFile
from oncewire.pipeline.lake.tables import batch_of, data_path
from oncewire.pipeline.lake.version import Entry, Version
from oncewire.pipeline.session import cores_of, pinned
from oncewire.pipeline.sources.oncewire import is_local
from oncewire.pipeline.tasks import RESULT, Batches, results, returning, sentence

DATA_MAX = 16 * 1024 * 1024
"""Bytes of a message's documents that are given where nothing else is said, and about the bytes
of one batch."""

_KEY = ("node", "direction", "message_id", "partner")


class Asked(NamedTuple):
    """A message whose documents are looked for in a store."""

    message_id: str
    partner: str
    sent: bool
    joined: bool
    """It was received in parts, and they were joined."""
    digest: str | None
    """Of what travelled in parts: the `document_digest` that the journal has."""
    parts: list[str]
    """MessageIds of its parts that are known here, in their order."""
    known: Mapping[str, Any]
    """What the lake says of it, by columns."""


class Kept(NamedTuple):
    """What a store says of one document without reading it, in the columns of the table."""

    verdict: str = "whole"
    problem: str | None = None
    media_type: str | None = None
    file_name: str | None = None
    compression: str | None = None
    size_bytes: int | None = None
    document_bytes: int | None = None
    sha256_announced: str | None = None
    open: Callable[[], BinaryIO] | None = None
    """Reads it; None: there is nothing to read."""


Shelf = Callable[[Iterable[Asked]], Iterator[tuple[Asked, Sequence[Kept]]]]
"""Reads a party's store, in a task: of each message what is kept of its documents."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What stores have of the documents that a lake knows."""

    version: int
    documents: int
    verdicts: dict[str, int]


def check_documents(
    spark: SparkSession,
    lake: Lake,
    shelves: Mapping[str, Shelf],
    now: Instant,
    *,
    data: Path | None = None,
    data_max: int = DATA_MAX,
) -> Checked:
    """Make the table `documents` of some nodes' stores, and publish it. `data`: a new folder for
    the same rows as Parquet, with the bytes of the documents, but no more of one message's than
    `data_max`."""
    if data is not None and data.exists():
        raise NotAllowed(f"{data} is there already", remedy="name a new folder")
    if not is_local(spark.conf.get("spark.master", "") or ""):
        raise NotAllowed(
            "the spool of a party is on this machine, and the tasks of this session are not",
            remedy="use a local master",
        )
    with pinned(spark), lake.writing():
        version = lake.shown()
        most = None if data is None else data_max
        schema = DOCUMENTS if data is None else columns.DOCUMENTS_WITH_DATA
        work = partial(_look, dict(shelves), datetime.fromtimestamp(now / SECOND, UTC), most)
        rows = _known(spark, lake, version, shelves).mapInArrow(work, nullable(schema))
        if data is not None:
            data.mkdir(0o700, parents=True)
            rows.write.mode("append").parquet(str(data))
            rows = spark.read.parquet(str(data)).drop("data")
        name = f"v{version.number + 1:08d}"
        lake.clear(data_path("documents", name))
        written = results(rows.mapInArrow(returning(partial(_write, lake.root, name)), RESULT))
        entries = [entry for entry, _ in written]
        published = lake.publish(version.with_table("documents_checked", entries))
    verdicts = sum((counts for _, counts in written), Counter[str]())
    return Checked(published.number, verdicts.total(), dict(sorted(verdicts.items())))


def _known(spark: SparkSession, lake: Lake, version: Version, nodes: Iterable[str]) -> DataFrame:
    """What the journals say of each document of some nodes and of its parts, brought together."""
    strange = sorted(set(nodes) - version.nodes.keys())
    if strange:
        raise JournalProblem(
            f"the lake has no journal of {', '.join(strange)}",
            remedy="take it in first: `oncewire pipeline run --store STORE`",
        )
    split = lake.read(spark, version, columns.SPLIT_ROWS, "split_rows")
    told = "get_json_object(detail, '$.document_digest') AS told"
    digests = split.where("kind = 'submitted'").selectExpr("node", "message_id", told)
    return (
        lake.read(spark, version, columns.MESSAGES, "messages")
        .where("event IN ('submitted', 'received', 'joined')")
        .where(f.col("node").isin(*nodes) & ~f.col("message_id").startswith(TRIAL_MARK))
        .join(digests, ["node", "message_id"], "left")
        .selectExpr(
            "node",
            "if(event = 'submitted', 'out', 'in') AS direction",
            "coalesce(split_id, message_id) AS message_id",
            "if(event = 'submitted', peer, coalesce(from_party, peer)) AS partner",
            "if(event = 'joined', digest, told) AS told",
            *("message_id AS own_id", "event", "at", "split_number", "split_total"),
        )
        .repartition(cores_of(spark), *_KEY)
        .sortWithinPartitions(*_KEY, "split_number", "event", "at")
    )


# --- in the tasks -----------------------------------------------------------------------------


def _look(
    shelves: Mapping[str, Shelf], now: datetime, data_max: int | None, batches: Batches
) -> Batches:
    """The documents of the messages that came to this task."""
    schema = arrow(nullable(DOCUMENTS if data_max is None else columns.DOCUMENTS_WITH_DATA))
    rows = (row for batch in batches for row in batch.to_pylist())
    pending: list[list[Any]] = []
    held = 0
    for node, some in groupby(rows, itemgetter("node")):
        asked = (_asked(list(group)) for _, group in groupby(some, itemgetter(*_KEY)))
        for each, kept in shelves[node](asked):
            for said in _judged(each, kept, data_max):
                said["checked_at"] = now
                pending.append([said.get(name) for name in schema.names])
                held += len(said.get("data") or b"")
            if held >= DATA_MAX or len(pending) >= 1_000:
                yield batch_of(list(zip(*pending, strict=True)), schema)
                pending, held = [], 0
    if pending:
        yield batch_of(list(zip(*pending, strict=True)), schema)


def _asked(rows: Sequence[Mapping[str, Any]]) -> Asked:
    """The message that some rows of the journal are about: its own, and those of its parts."""
    parts = {row["split_number"]: row["own_id"] for row in rows if row["split_number"] is not None}
    joined = [row for row in rows if row["event"] == "joined"]
    first = (joined or rows)[0]  # Rows of parts are behind that of the whole.
    total = max(row["split_total"] or 0 for row in rows)
    known = {name: first[name] for name in (*_KEY, "at")}
    if total or not joined:
        known |= {"parts": total or 1, "parts_here": len(parts) if total else 1}
    sent, in_order = first["direction"] == "out", [parts[number] for number in sorted(parts)]
    name, partner = first["message_id"], first["partner"]
    return Asked(name, partner, sent, bool(joined), first["told"], in_order, known)


def _judged(asked: Asked, kept: Sequence[Kept], data_max: int | None) -> list[dict[str, Any]]:
    """The rows of a message's documents, each read once."""
    rows: list[dict[str, Any]] = []
    for number, each in enumerate(kept, 1):
        row = {**each._asdict(), **asked.known, "sha256_stored": None, "data": None}
        if each.open is not None:
            row |= {"number": number, **_digested(each.open, data_max)}
            data_max = None if data_max is None else data_max - len(row["data"] or b"")
        rows.append(row)
    stored = [row["sha256_stored"] for row in rows]
    if len(rows) == 1 and kept[0].open is not None:
        rows[0]["sha256_announced"] = asked.digest or rows[0]["sha256_announced"]
    strange = None not in (*stored, asked.digest) and document_digest(stored) != asked.digest
    for row in rows:
        if row["verdict"] == "whole":
            row["sha256_announced"] = row["sha256_announced"] or row["sha256_stored"]
            if strange or row["sha256_announced"] != row["sha256_stored"]:
                row |= {"verdict": "altered", "problem": "Its bytes have another digest."}
        row["data"] = row["data"] if row["verdict"] == "whole" else None
    return rows


def _digested(read: Callable[[], BinaryIO], data_max: int | None) -> dict[str, Any]:
    digest, size, held = sha256(), 0, list[bytes]()
    try:
        with read() as file:
            while piece := file.read(1024 * 1024):
                digest.update(piece)
                size += len(piece)
                if size <= (data_max or 0):
                    held.append(piece)
    except (OncewireError, OSError) as failure:
        return {"verdict": "altered", "problem": sentence(failure), "data": None}
    given = data_max is not None and size <= data_max
    return {"sha256_stored": digest.hexdigest(), "data": b"".join(held) if given else None}


def _write(root: Path, name: str, batches: Batches) -> tuple[Entry, Counter[str]]:
    """The task that writes what came to it; returns how many documents have each verdict."""
    part = TaskContext.get().partitionId()  # type: ignore[union-attr]
    file = TableFile(root, "documents", data_path("documents", f"{name}/{part}"), DOCUMENTS)
    verdicts: Counter[str] = Counter()
    for batch in batches:
        verdicts.update(batch["verdict"].to_pylist())
        file.write(batch)
    return file.close(), verdicts
