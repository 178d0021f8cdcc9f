"""The rows of one batch of a stream: at hand where they are few, kept by Spark where they are not.

A batch of a stream costs what its jobs cost, long before its rows do. Few rows come to the driver
in the one job that reads them; what is many is read once too, and counted and written where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from oncewire.pipeline.intake import TakenIn, take_ranges, take_tables
from oncewire.pipeline.lake import Lake
from oncewire.pipeline.ranges import Range

if TYPE_CHECKING:
    import pyarrow as pa


class Batch(Protocol):
    """The rows of a batch, each with what breaks its contract."""

    def bounds(self) -> dict[str, tuple[int, int]]:
        """The first and the last position of each node."""

    def take_in(self, lake: Lake, taken: TakenIn, ranges: Sequence[Range]) -> TakenIn:
        """Write the rows of some ranges into a lake."""


@contextmanager
def opened(frame: DataFrame, *, few: bool) -> Iterator[Batch]:
    """The rows of a frame, which is read once."""
    if few:
        yield _AtHand(frame.toArrow())
        return
    held = frame.persist()
    try:
        yield _InSpark(held)
    finally:
        held.unpersist()


class _AtHand:
    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows.sort_by([("node", "ascending"), ("seq", "ascending")])

    def bounds(self) -> dict[str, tuple[int, int]]:
        found = self._rows.group_by("node").aggregate([("seq", "min"), ("seq", "max")])
        return {row["node"]: (row["seq_min"], row["seq_max"]) for row in found.to_pylist()}

    def take_in(self, lake: Lake, taken: TakenIn, ranges: Sequence[Range]) -> TakenIn:
        import pyarrow.compute as pc

        tables = (
            self._rows.filter(
                (pc.field("node") == span.book.node)
                & (pc.field("seq") > span.start)
                & (pc.field("seq") <= span.end)
            )
            for span in ranges
        )
        return take_tables(lake, taken, tables, ranges)


class _InSpark:
    def __init__(self, rows: DataFrame) -> None:
        self._rows = rows

    def bounds(self) -> dict[str, tuple[int, int]]:
        of_nodes = self._rows.groupBy("node")
        seen = of_nodes.agg(f.min("seq").alias("first"), f.max("seq").alias("last"))
        return {row["node"]: (row["first"], row["last"]) for row in seen.collect()}

    def take_in(self, lake: Lake, taken: TakenIn, ranges: Sequence[Range]) -> TakenIn:
        frames = [
            self._rows.where(
                (f.col("node") == span.book.node) & f.col("seq").between(span.start + 1, span.end)
            )
            for span in ranges
        ]
        return take_ranges(lake, taken, frames, ranges)
