"""What is judged, brought together by key in one shuffle: rows, and what earlier runs kept of them.

A journal row goes to its channel, to its document and to its message. With the rows of a key goes
what the lake has about it: the state to go on from, earlier findings and gaps, the ledger row that
was. So one task has all of a key at hand, and nothing is joined afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from oncewire.journal.check import document_key
from oncewire.journal.predicates.channel import KINDS
from oncewire.journal.row import COLUMNS, Row
from oncewire.pipeline.judging.extent import Judging
from oncewire.pipeline.lake.columns import JOURNAL, SPLIT_ROWS, arrow, nullable
from oncewire.pipeline.lake.tables import rows_of_batch
from oncewire.pipeline.tasks import Batches
from oncewire.protocol.notes import Kind

if TYPE_CHECKING:
    import pyarrow as pa

CHANNEL, DOCUMENT, MESSAGE = "channel", "document", "message"
"""What a key is of; tasks come upon them in this order."""

FINDING, TOLD, GAP, WAS, STATE, ROW = range(6)
"""What a row of a key is, in the order in which a task comes upon them: a finding that was made of
the key's own rows, one that others made about it, a gap, the ledger row that was, the state to go
on from, a row of the journal."""

SERVICE_COLUMNS = (
    "part_of", "outcome", "reliable", "sender", "receiver", "to_peer", "from_peer",
    "submitted_at", "received_at", "handed_over_at", "latency_us", "size_bytes", "resends",
    "duplicates_stopped", "late_ack",
)  # fmt: skip
"""What partner service asks of a ledger row, besides whether it has findings."""

FED = StructType(
    [
        StructField("fold", StringType()),
        StructField("key", StringType()),
        StructField("what", IntegerType()),
        *nullable(JOURNAL).fields,
        StructField("state", BinaryType()),
        StructField("kept", StringType()),
    ]
)

_DOCUMENT_KINDS = (Kind.SUBMITTED, Kind.ACKNOWLEDGED, Kind.RECEIVED, Kind.HANDED_OVER, Kind.REFUSED)


def fed(
    frame: DataFrame, fold: str, key: str, what: int = ROW, kept: str | None = None
) -> DataFrame:
    """Some rows under a key, as they are shuffled; `kept` is what else there is, as JSON. Both are
    SQL: a column of Python's is several calls to Java, and these are many."""
    own = {"fold": f"'{fold}'", "key": key, "what": str(what)}
    if kept is not None:
        own["kept"] = kept
    given = set(frame.columns) if kept is None else set()
    return frame.selectExpr(
        *(
            f"CAST({own.get(name, name if name in given else 'NULL')} AS {kind}) AS {name}"
            for name, kind in _TYPES.items()
        )
    )


_TYPES = {field.name: field.dataType.simpleString() for field in FED.fields}

BY_CHANNEL = "concat_ws(' ', node, channel)"
"""The key of a channel on a node."""


def rows_of_channels(rows: DataFrame) -> DataFrame:
    """The rows that the folds look at; others, without terms of their own, change nothing."""
    return rows.where(
        f.col("channel").isNotNull()
        & (f.col("kind").isin(sorted(KINDS)) | f.col("terms_id").isNotNull())
    )


def rows_of_messages(rows: DataFrame) -> DataFrame:
    """The rows that are about a message, under its id."""
    return fed(rows.where(f.col("message_id").isNotNull()), MESSAGE, "message_id")


def rows_of_documents(journal: DataFrame) -> DataFrame:
    """Rows about documents, each with the SplitId it is about.

    The condition only spares Python the rows that cannot have one; the key itself is the journal's
    own function.
    """
    may_have = (f.col("kind") == Kind.JOINED.value) | (
        f.col("kind").isin([kind.value for kind in _DOCUMENT_KINDS])
        & f.col("detail").contains("split_id")
    )

    def keyed(batches: Batches) -> Batches:
        import pyarrow as pa

        schema = arrow(SPLIT_ROWS)
        for batch in batches:
            column = pa.array([document_key(row) for row in rows_of_batch(batch)], pa.string())
            yield pa.RecordBatch.from_arrays([*batch.columns, column], schema=schema).filter(
                column.is_valid()
            )

    return journal.where(may_have).mapInArrow(keyed, SPLIT_ROWS)


AS_JSON = "to_json(struct(*))"
"""A row of a small table, to travel as `kept`."""


def union(frames: list[DataFrame]) -> DataFrame:
    """All rows of frames with equal columns."""
    return reduce(DataFrame.unionByName, frames)


def together(frames: list[DataFrame], tasks: int) -> DataFrame:
    """All rows of a key in one task, sorted; where there is one task nothing is shuffled."""
    rows = union(frames)
    divided = rows.coalesce(1) if tasks == 1 else rows.repartition(tasks, "fold", "key")
    return divided.sortWithinPartitions("fold", "key", "what", "node", "seq")


def without_copies(rows: DataFrame, judging: Judging) -> DataFrame:
    """Rows of all journals but those that are copies of others."""
    if not judging.copies:
        return rows
    return rows.where(~f.col("node").isin(sorted(judging.copies)))


# --- in the tasks -----------------------------------------------------------------------------


class Fed(NamedTuple):
    """One row of a key."""

    key: str
    what: int
    row: Row
    state: bytes | None
    kept: str | None

    @property
    def said(self) -> dict[str, Any]:
        """What travelled as JSON."""
        found: dict[str, Any] = json.loads(self.kept or "{}")
        return found


def by_fold(batches: Batches) -> Iterator[tuple[str, Batches]]:
    """What is of channels, of documents and of messages, one after the other."""
    for fold, pieces in groupby(_pieces(batches), lambda piece: piece[0]):
        yield fold, (batch for _, batch in pieces)


def _pieces(batches: Batches) -> Iterator[tuple[str, pa.RecordBatch]]:
    import pyarrow.compute as pc

    for batch in batches:
        folds = batch["fold"]
        for fold in pc.unique(folds).to_pylist():
            yield fold, batch.filter(pc.equal(folds, fold))


def rows_by_key(batches: Batches) -> Iterator[tuple[str, Iterator[Fed]]]:
    """The rows of each key, one key after the other."""
    return groupby(fed_rows(batches), lambda each: each.key)


def fed_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Fed]:
    """The rows of some batches."""
    for batch in batches:
        columns = {name: batch[name].to_pylist() for name in batch.schema.names}
        rows = map(Row._make, zip(*(columns[name] for name in COLUMNS), strict=True))
        yield from map(
            Fed, columns["key"], columns["what"], rows, columns["state"], columns["kept"]
        )
