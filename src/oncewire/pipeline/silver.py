"""Silver tables: facts of the journal, typed, with Spark's own columns.

Each function takes journal rows and gives the rows of one table; none needs any other row, so a
range of the journal makes a range of each table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import TYPE_CHECKING

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
from oncewire.journal.survey import AT_WORK
from oncewire.pipeline.rows import rows_of_batch
from oncewire.pipeline.schemas import ATTEMPTS, BOOTS, DOCUMENT_ROWS, JOURNAL, MESSAGES, arrow
from oncewire.protocol import notes
from oncewire.protocol.kinds import Kind

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
