"""Silver tables: facts of the journal, typed, with Spark's own columns.

Each function takes journal rows and gives the rows of one table; none needs any other row, so a
range of the journal makes a range of each table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import (
    BooleanType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from oncewire.journal.check import document_key
from oncewire.journal.predicates.context import CONTEXT_KINDS
from oncewire.journal.row import COLUMNS, Row
from oncewire.journal.survey import AT_WORK
from oncewire.pipeline.lake.tables import (
    ATTEMPTS,
    BOOTS,
    DOCUMENT_ROWS,
    JOURNAL,
    MESSAGES,
    arrow,
    batch_of,
    nullable,
    rows_of_batch,
)
from oncewire.protocol import notes
from oncewire.protocol.notes import Kind

if TYPE_CHECKING:
    import pyarrow as pa


KNOWN_BY = (Kind.SUBMITTED, Kind.RECEIVED, Kind.FORWARDED, Kind.JOINED)
ATTEMPT_KINDS = (Kind.SENT, Kind.SEND_FAILED)
_DOCUMENT_KINDS = (
    Kind.SUBMITTED,
    Kind.ACKNOWLEDGED,
    Kind.RECEIVED,
    Kind.HANDED_OVER,
    Kind.REFUSED,
)

_DETAIL_TYPES: dict[str, DataType] = {
    "str": StringType(),
    "str | None": StringType(),
    "int": LongType(),
    "int | None": LongType(),
    "Instant": LongType(),
    "Instant | None": LongType(),
    "bool": BooleanType(),
}


def detail_schema(*kinds: Kind) -> StructType:
    """The names that the details of these kinds may have, with their types."""
    found: dict[str, DataType] = {}
    for kind in kinds:
        for name, annotation in notes.DETAILS[kind].__annotations__.items():
            spelled = str(annotation)
            if spelled in _DETAIL_TYPES:
                found.setdefault(name, _DETAIL_TYPES[spelled])
    return StructType([StructField(name, kind) for name, kind in found.items()])


def messages(journal: DataFrame) -> DataFrame:
    """A message becomes known to a node."""
    said = detail_schema(*KNOWN_BY)
    rows = _of_kinds(journal, *KNOWN_BY).withColumn("said", f.from_json("detail", said))
    own = set(JOURNAL.fieldNames())
    columns = []
    for field in MESSAGES.fields:
        if field.name == "event":
            column = f.col("kind")
        elif field.name in own:
            column = f.col(field.name)
        else:
            column = f.col(f"said.{field.name}")
        if isinstance(field.dataType, TimestampType):
            column = f.timestamp_micros(column)
        if field.name == "best_effort":
            column = f.coalesce(column, f.lit(False))
        columns.append(column.alias(field.name))
    return rows.select(*columns)


def attempts(journal: DataFrame) -> DataFrame:
    """A transmission began, or failed."""
    said = detail_schema(Kind.SEND_FAILED)
    rows = _of_kinds(journal, *ATTEMPT_KINDS).withColumn("said", f.from_json("detail", said))
    event = f.when(f.col("kind") == Kind.SENT.value, f.lit("began")).otherwise(
        f.coalesce(f.col("said.outcome"), f.lit(notes.SendFailed().outcome))
    )
    made: dict[str, Column] = {
        "event": event,
        "at": f.timestamp_micros("at"),
        "reason": f.col("said.reason"),
    }
    return rows.select(
        *(made.get(field.name, f.col(field.name)).alias(field.name) for field in ATTEMPTS.fields)
    )


def context_rows(journal: DataFrame) -> DataFrame:
    """The few rows that a judge must know besides those of its own key."""
    return journal.where(f.col("kind").isin(sorted(CONTEXT_KINDS)))


def document_rows(journal: DataFrame) -> DataFrame:
    """Rows about documents, each with the SplitId it is about.

    The first condition only spares Python the rows that cannot have one; the key itself is the
    journal's own function.
    """
    may_have = (f.col("kind") == Kind.JOINED.value) | (
        f.col("kind").isin([kind.value for kind in _DOCUMENT_KINDS])
        & f.col("detail").contains("split_id")
    )
    return journal.where(may_have).mapInArrow(_with_document(), DOCUMENT_ROWS)


def _with_document() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def keyed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        schema = arrow(DOCUMENT_ROWS)
        for batch in batches:
            keys = [document_key(row) for row in rows_of_batch(batch)]
            column = pa.array(keys, pa.string())
            yield pa.RecordBatch.from_arrays([*batch.columns, column], schema=schema).filter(
                column.is_valid()
            )

    return keyed


def boots(journal: DataFrame, aside: DataFrame) -> DataFrame:
    """The runs of the handlers' processes among some rows, those that were set aside included."""
    names = ("node", "boot", "seq", "at", "kind")
    rows = journal.select(*names).unionByName(aside.select(*names))
    return (
        rows.where(f.col("node").isNotNull() & f.col("boot").isNotNull())
        .groupBy("node", "boot")
        .agg(
            f.min("seq").alias("first"),
            f.min_by("at", "seq").alias("at"),
            f.max(f.col("kind") == Kind.STARTED.value).alias("started"),
            f.max(f.col("kind").isin(sorted(AT_WORK))).alias("at_work"),
        )
        .select(*BOOTS.fieldNames())
    )


def _of_kinds(journal: DataFrame, *kinds: Kind) -> DataFrame:
    return journal.where(f.col("kind").isin([kind.value for kind in kinds]))


def union(frames: list[DataFrame]) -> DataFrame:
    """All rows of frames with equal columns."""
    return reduce(DataFrame.unionByName, frames)


# Silver tables of few rows, made by the driver itself: the same rows as `silver` makes with Spark.
#
# A test holds the two against each other, column by column.


_KNOWN_BY = frozenset(kind.value for kind in KNOWN_BY)
_ATTEMPTS = frozenset(kind.value for kind in ATTEMPT_KINDS)
_OWN = set(JOURNAL.fieldNames())


def tables(folders: list[str], aside: list[str]) -> dict[str, pa.Table]:
    """The tables of some directories of a journal, and of rows that were set aside."""
    import pyarrow.dataset as ds

    rows = [
        row
        for folder in folders
        for batch in ds.dataset(folder, format="parquet").to_batches(columns=list(COLUMNS))
        for row in rows_of_batch(batch)
    ]
    held = [
        values
        for folder in aside
        for values in ds.dataset(folder, format="parquet").to_table(
            columns=["node", "boot", "seq", "at", "kind"]
        ).to_pylist()
    ]  # fmt: skip
    keyed = [(*row, key) for row in rows if (key := document_key(row)) is not None]
    return {
        "context": _table([row for row in rows if row.kind in CONTEXT_KINDS], JOURNAL),
        "boots": _table(_boots(rows, held), BOOTS),
        "documents": _table(keyed, DOCUMENT_ROWS),
        "messages": _table([_message(row) for row in rows if row.kind in _KNOWN_BY], MESSAGES),
        "attempts": _table([_attempt(row) for row in rows if row.kind in _ATTEMPTS], ATTEMPTS),
    }


def _table(rows: list[Any], schema: StructType) -> pa.Table:
    import pyarrow as pa

    columns = arrow(nullable(schema))
    if not rows:
        return columns.empty_table()
    return pa.Table.from_batches([batch_of(list(zip(*rows, strict=True)), columns)])


def _boots(rows: list[Row], aside: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    found: dict[tuple[str, str], list[Any]] = {}
    facts: list[tuple[Any, ...]] = [
        *((row.node, row.boot, row.seq, row.at, row.kind) for row in rows),
        *(tuple(copy.values()) for copy in aside),
    ]
    for node, boot, seq, at, kind in facts:
        if node is None or boot is None:
            continue
        known = found.setdefault((node, boot), [seq, at, False, False])
        if seq < known[0]:
            known[:2] = [seq, at]
        known[2] = known[2] or kind == Kind.STARTED.value
        known[3] = known[3] or kind in AT_WORK
    return [(*key, *facts) for key, facts in found.items()]


def _message(row: Row) -> tuple[Any, ...]:
    said = _said(row)
    values: list[Any] = []
    for field in MESSAGES.fields:
        name = field.name
        if name == "event":
            values.append(row.kind)
        elif name in _OWN:
            values.append(getattr(row, name))
        elif name == "best_effort":
            values.append(bool(said.get(name)))
        else:
            values.append(said.get(name))
    return tuple(values)


def _attempt(row: Row) -> tuple[Any, ...]:
    said = _said(row)
    event = "began"
    if row.kind == Kind.SEND_FAILED.value:
        event = said.get("outcome") or notes.SendFailed().outcome
    made = {"event": event, "reason": said.get("reason")}
    return tuple(
        made[field.name] if field.name in made else getattr(row, field.name)
        for field in ATTEMPTS.fields
    )


def _said(row: Row) -> dict[str, Any]:
    return json.loads(row.detail) if row.detail is not None else {}
