"""Rows between Arrow and plain Python: batches in, `Row` values out, and back.

Everything here is plain Python and Arrow; nothing asks Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from oncewire.errors import JournalProblem
from oncewire.journal.contract import problem_of
from oncewire.journal.row import COLUMNS, Row
from oncewire.journal.schema import SCHEMA, rows_from_columns

if TYPE_CHECKING:
    import pyarrow as pa


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """The journal rows of a stream of batches; other columns are passed over."""
    for batch in batches:
        yield from rows_of_batch(batch)


def rows_of_batch(batch: pa.RecordBatch) -> Iterator[Row]:
    """The journal rows of one batch."""
    return rows_from_columns(
        {
            name: column.to_pylist()
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
            if name in _NAMES
        }
    )


_NAMES = frozenset(COLUMNS)


def with_problems(batches: Iterable[pa.RecordBatch], node: str) -> Iterator[pa.RecordBatch]:
    """The same rows of a node, each with what breaks its contract."""
    import pyarrow as pa

    for batch in batches:
        problems = pa.array([_problem(row, node) for row in rows_of_batch(batch)], pa.string())
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, problems], names=[*batch.schema.names, "problem"]
        )


def _problem(row: Row, node: str) -> str | None:
    """A row's own problem; types are the reader's matter, but not what is empty."""
    for name, value in zip(ALWAYS_THERE, row, strict=False):
        if value is None:
            return f"{name} is missing"
    return f"it is a row of node {row.node}" if row.node != node else problem_of(row)


ALWAYS_THERE = tuple(column.name for column in SCHEMA if not column.nullable)
"""Columns that no row leaves empty."""


def batch_of(columns: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """A batch of values that are held by column."""
    import pyarrow as pa

    try:
        arrays = [
            pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)
        ]
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise JournalProblem(
            f"a value does not fit its column: {error}",
            remedy="look for rows that another program wrote",
        ) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def batches_of(
    rows: Iterable[Sequence[Any]], schema: pa.Schema, size: int = 10_000
) -> Iterator[pa.RecordBatch]:
    """Batches of at most `size` rows from values that come row by row."""
    pending: list[Sequence[Any]] = []
    for row in rows:
        pending.append(row)
        if len(pending) >= size:
            yield batch_of(list(zip(*pending, strict=True)), schema)
            pending = []
    if pending:
        yield batch_of(list(zip(*pending, strict=True)), schema)
