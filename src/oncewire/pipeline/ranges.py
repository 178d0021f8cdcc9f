"""Ranges: what a lake does not have of a journal, and where the journal's chain goes on there.

A store that is not the one it was (another one with the same name, an older copy, one whose rows
were changed) is refused instead of mixed in.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncewire.errors import JournalProblem
from oncewire.pipeline.book import Book, Mark
from oncewire.pipeline.files import safe_name
from oncewire.pipeline.version import Version

HOLES_LOOKED_AT = 100
"""So many holes of a journal are tried in each run, whether rows for them came late."""


@dataclass(frozen=True, slots=True)
class Range:
    """Rows `(start, end]` of a book that the lake does not have."""

    book: Book
    start: int
    end: int
    fills: bool = False
    """Whether they lie in a hole of what was taken in before: a file that came late."""

    @property
    def name(self) -> str:
        """The directory of its rows, below that of the table."""
        return f"{safe_name(self.book.node)}/{self.start + 1}-{self.end}"


def new_ranges(version: Version, book: Book) -> list[Range]:
    """What the lake does not have of a book: its end, and what holes of it can be filled."""
    start, end = new_range(version, book)
    found = where_chained(book, start, end) if end > start else []
    state = version.nodes.get(book.node)
    holes = () if state is None else state.holes[:HOLES_LOOKED_AT]
    late = [hole for hole in holes if book.count(hole.first - 1, hole.last)]
    return [
        *found,
        *(Range(book, each_hole.first - 1, each_hole.last, fills=True) for each_hole in late),
    ]


def where_chained(book: Book, start: int, end: int) -> list[Range]:
    """A range, in two where the node began to chain its rows only within it."""
    if book.head(end) is not None and book.head(start) is None:
        cut = book.chained_from() - 1
        if start < cut < end:
            return [Range(book, start, cut), Range(book, cut, end)]
    return [Range(book, start, end)]


def new_range(version: Version, book: Book) -> tuple[int, int]:
    """What follows the rows that the lake has of a book: the rows `(start, end]`."""
    state = version.nodes.get(book.node)
    first, last = book.bounds()
    if state is None:
        return (first - 1 if first else 0), last
    mark = book.mark(state.seq)
    if mark is not None and mark != Mark(state.seq, state.at, state.boot):
        raise JournalProblem(
            f"{book.path} calls itself {book.node}, but it is not the store that the lake knows "
            f"by that name: their rows {state.seq} differ",
            remedy="give each handler a node name of its own; a new store needs a new name",
        )
    kept = book.head(state.seq)
    if state.chain and kept is not None and kept != state.chain:
        raise JournalProblem(
            f"rows of {book.path} up to {state.seq} are not those that the lake took in: they make "
            f"another chain",
            remedy="see which: `oncewire pipeline prove --lake LAKE --store STORE`",
        )
    if not last and state.chain and kept == state.chain:
        return state.seq, state.seq  # All of it was trimmed.
    if last < state.seq:
        raise JournalProblem(
            f"{book.path} ends with row {last}, but the lake has row {state.seq} of {book.node}",
            remedy="an older copy was restored: take it into a new lake, and keep this one",
        )
    if mark is None and book.next_seq(state.seq) not in (None, state.seq + 1):
        raise JournalProblem(
            f"rows {state.seq + 1}.. of {book.node} were removed before the lake took them",
            remedy="take journals in before they are trimmed; take what is left into a new lake",
        )
    return state.seq, last


def since_of(version: Version, span: Range) -> str:
    """The head before a range: as its node kept it, or as the lake made it of what it has."""
    kept = span.book.head(span.start)
    if kept is not None:
        return kept
    return next(
        (
            entry.chain
            for entry in version.journal
            if entry.key == span.book.node and entry.last == span.start
        ),
        "",
    )
