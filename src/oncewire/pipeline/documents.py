"""Documents: the fold over the parts of one split document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from oncewire.journal.check import fold_documents as fold_rows
from oncewire.pipeline.judging import Judging
from oncewire.pipeline.rows import batches_of, rows_of
from oncewire.pipeline.schemas import FINDING, arrow

if TYPE_CHECKING:
    import pyarrow as pa


def fold_documents(rows: DataFrame, judging: Judging, tasks: int) -> DataFrame:
    """The violations of all documents among rows of the table `documents`."""
    return (
        rows.repartition(tasks, "document")
        .sortWithinPartitions("document", "node", "seq")
        .mapInArrow(_fold(judging), FINDING)
    )


def _fold(judging: Judging) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def fold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches_of(fold_rows(rows_of(batches), judging.context), arrow(FINDING))

    return fold
