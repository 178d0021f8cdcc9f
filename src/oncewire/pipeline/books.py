"""Books at a place: which journals a store, an export or a published lake holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oncewire.errors import JournalProblem
from oncewire.pipeline.book import CURRENT_FILE, NODE_FILE, Book

SQLITE_MAGIC = b"SQLite format 3\0"


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
