"""Rows between Arrow and plain Python: batches in, `Row` values out, and back.

Everything here is plain Python and Arrow; nothing asks Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from oncewire.errors import JournalProblem
from oncewire.journal.row import COLUMNS, Row
from oncewire.journal.schema import rows_from_columns

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
