"""A book: one node's journal, read-only and in bounded ranges, wherever it is kept.

A SQLite store is a book, and so is a folder of Parquet files with a `_node.json` beside them
(an export). A published lake holds one book for each of its nodes. Whatever the form, rows are
asked for by the journal's own `seq`, in ranges `(start, end]`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

NODE_FILE = "_node.json"
"""Stands beside an export's files: whose journal it is, and of which version."""

CURRENT_FILE = "CURRENT"
"""The pointer of a published lake (`oncewire.pipeline.lake`)."""

BATCH_ROWS = 10_000
"""Rows of one Arrow batch, and of one query: a reader must not hold a store's log for long."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A row by which a journal is recognised again: no other store has the same one."""

    seq: int
    at: int
    boot: str


class Book(Protocol):
    """One node's journal."""

    node: str
    path: str
    local_only: bool
    """Whether it can be read only where it lies, by the process that opened it."""

    def read_at(self, now: int) -> int:
        """Until when what the node did is in the book, as far as its reader knows at that
        instant; 0: only its own rows say so."""

    def bounds(self) -> tuple[int, int]:
        """The first and the last `seq` that are there; (0, 0) when there is none."""

    def next_seq(self, start: int) -> int | None:
        """The smallest `seq` above `start`."""

    def mark(self, seq: int) -> Mark | None:
        """The row with that `seq`, or None when it is not there (any more)."""

    def head(self, seq: int) -> str | None:
        """The head of the journal's chain behind that row, as its node kept it, also where the row
        itself was trimmed; "" where the chain begins behind it, None if nobody knows."""

    def chained_from(self) -> int:
        """The first row that its node chained; 0 if there is none."""

    def splits(self, start: int, end: int, rows: int) -> list[tuple[int, int]]:
        """Ranges that together are `(start, end]`, each with at most about that many rows."""

    def count(self, start: int, end: int) -> int:
        """How many rows lie in `(start, end]`."""

    def batches(
        self, start: int, end: int, columns: Sequence[str], filters: Sequence[Filter]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of `(start, end]` that pass the filters, each once."""


def write_node_file(folder: Path, node: str, version: int) -> None:
    """Say whose journal a folder holds."""
    text = json.dumps({"node": node, "journal_version": version})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NODE_FILE).write_text(text + "\n", encoding="utf-8")
