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

from oncewire.errors import JournalProblem

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

NODE_FILE = "_node.json"
"""Stands beside an export's files: whose journal it is, and of which version."""

CURRENT_FILE = "CURRENT"
"""The pointer of a published lake (`oncewire.pipeline.lake`)."""

BATCH_ROWS = 10_000
"""Rows of one Arrow batch, and of one query: a reader must not hold a store's log for long."""

SQLITE_MAGIC = b"SQLite format 3\0"


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

    def splits(self, start: int, end: int, rows: int) -> list[tuple[int, int]]:
        """Ranges that together are `(start, end]`, each with at most about that many rows."""

    def count(self, start: int, end: int) -> int:
        """How many rows lie in `(start, end]`."""

    def batches(
        self, start: int, end: int, columns: Sequence[str], filters: Sequence[Filter]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of `(start, end]` that pass the filters, each once."""


def open_books(path: str | Path, node: str | None = None) -> list[Book]:
    """Every book at a place; with `node`, only that node's."""
    from oncewire.pipeline.export_book import ExportBook, lake_books
    from oncewire.pipeline.sqlite_book import SqliteBook

    place = Path(path)
    books: list[Book]
    if not place.exists():
        raise JournalProblem(
            f"there is no store, export or lake at {place}", remedy="give the path of one"
        )
    if place.is_file():
        if place.open("rb").read(len(SQLITE_MAGIC)) != SQLITE_MAGIC:
            raise JournalProblem(
                f"{place} is not a store", remedy="give a SQLite store, an export or a lake"
            )
        books = [SqliteBook(place)]
    elif (place / CURRENT_FILE).is_file():
        books = list(lake_books(place))
    elif (place / NODE_FILE).is_file():
        books = [ExportBook.of_folder(place)]
    else:
        books = [ExportBook.of_folder(found.parent) for found in sorted(place.glob("*/_node.json"))]
    chosen = [book for book in books if node is None or book.node == node]
    if not chosen:
        raise JournalProblem(
            f"{place} holds no journal" + (f" of node {node}" if node else ""),
            remedy=f"an export is a folder of Parquet files with a {NODE_FILE} beside them",
        )
    return chosen


def open_book(path: str | Path, node: str | None = None) -> Book:
    """The one book at a place."""
    books = open_books(path, node)
    if len(books) > 1:
        names = ", ".join(book.node for book in books)
        raise JournalProblem(
            f"{path} holds the journals of {names}", remedy="say which with option node"
        )
    return books[0]


def check_distinct(books: Sequence[Book]) -> None:
    """Refuse two stores that call themselves by one name: their rows could not be told apart."""
    seen: dict[str, str] = {}
    for book in books:
        if book.node in seen:
            raise JournalProblem(
                f"two stores call themselves {book.node}: {seen[book.node]} and {book.path}",
                remedy="give each handler a node name of its own, and each its own lake until then",
            )
        seen[book.node] = book.path


def write_node_file(folder: Path, node: str, version: int) -> None:
    """Say whose journal a folder holds."""
    text = json.dumps({"node": node, "journal_version": version})
    (folder / NODE_FILE).write_text(text + "\n", encoding="utf-8")
