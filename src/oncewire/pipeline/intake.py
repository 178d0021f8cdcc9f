"""Taking a journal in: from a store or an export to directories of bronze and silver.

A node's rows are taken in order of `seq`, each once. The lake remembers the last row it has of
each node, so a second run reads only what is new, and a store that is not the one it was (another
one with the same name, or an older copy) is refused instead of mixed in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from oncewire.errors import JournalProblem
from oncewire.journal.row import JOURNAL_VERSION
from oncewire.pipeline import silver
from oncewire.pipeline.book import Book, Mark, check_distinct, write_node_file
from oncewire.pipeline.lake import Entry, Lake, NodeState, Version, safe_name
from oncewire.pipeline.schemas import JOURNAL, QUARANTINE

Progress = Callable[[str], None]
"""Told of each step as it begins."""


def quiet(step: str) -> None:
    """A `Progress` that tells nobody."""
    del step


@dataclass(frozen=True, slots=True)
class Taken:
    """The version with what was taken in, not published yet, and how much it was."""

    version: Version
    entries: tuple[Entry, ...] = ()
    quarantined: int = 0

    @property
    def rows(self) -> int:
        """Journal rows that were taken in."""
        return sum(entry.rows for entry in self.entries)


def take_in(
    spark: SparkSession, lake: Lake, version: Version, books: list[Book], tell: Progress = quiet
) -> Taken:
    """Everything new in some books."""
    check_distinct(books)
    taken = Taken(version)
    for book in books:
        start, end = new_range(taken.version, book)
        if end > start:
            tell(f"taking in {book.node} {start + 1}..{end}")
            frame = read_book(spark, book, start, end)
            taken = take_range(lake, taken, frame, book, start, end)
    return with_silver(spark, lake, taken)


def read_book(spark: SparkSession, book: Book, start: int, end: int) -> DataFrame:
    """The rows `(start, end]` of a book through `format("oncewire")`."""
    return (
        spark.read.format("oncewire")
        .option("node", book.node)
        .option("startingSeq", str(start))
        .option("endingSeq", str(end))
        .load(book.path)
    )


def new_range(version: Version, book: Book) -> tuple[int, int]:
    """What the lake does not have of a book: the rows `(start, end]`."""
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
    if last < state.seq:
        raise JournalProblem(
            f"{book.path} ends with row {last}, but the lake has row {state.seq} of {book.node}",
            remedy="an older copy was restored: take it in under a new node name",
        )
    if mark is None and book.next_seq(state.seq) not in (None, state.seq + 1):
        raise JournalProblem(
            f"rows {state.seq + 1}.. of {book.node} were removed before the lake took them",
            remedy="raise journal.keep, and take in what is left under a new lake",
        )
    return state.seq, last


def take_range(
    lake: Lake, taken: Taken, frame: DataFrame, book: Book, start: int, end: int
) -> Taken:
    """Write the rows `(start, end]` of one book."""
    name = f"{safe_name(book.node)}/{start + 1}-{end}"
    problem = silver.problem_of_row(book.node)
    good = frame.where(problem.isNull()).select(*JOURNAL.fieldNames())
    entry = lake.write(good, f"bronze/journal/{name}", key=book.node, first=start + 1, last=end)
    write_node_file((lake.root / entry.path).parent, book.node, JOURNAL_VERSION)
    expected = book.count(start, end)
    version, quarantined = taken.version.adding("journal", entry), 0
    if entry.rows < expected:
        bad = _quarantine(frame, problem, book)
        held = lake.write(bad, f"bronze/quarantine/{name}", key=book.node)
        version, quarantined = version.adding("quarantine", held), held.rows
    if entry.rows + quarantined != expected:
        raise JournalProblem(
            f"{expected} rows of {book.node} were to be taken in, and {entry.rows + quarantined} "
            f"arrived",
            remedy="run again; if it stays so, another program changes the journal",
        )
    _check_unique(frame.sparkSession, lake, entry, book)
    return Taken(
        _advanced(version, book, end), (*taken.entries, entry), taken.quarantined + quarantined
    )


def with_silver(spark: SparkSession, lake: Lake, taken: Taken) -> Taken:
    """The tables that are made from new ranges of journals alone."""
    if not taken.rows:
        return taken
    name = silver_name(taken.entries)
    folders = [str(lake.root / entry.path) for entry in taken.entries]
    rows = lake.read_folders(spark, JOURNAL, folders)
    version = taken.version
    for table, frame in (
        ("context", silver.context_rows(rows)),
        ("documents", silver.document_rows(rows)),
        ("messages", silver.messages(rows)),
        ("attempts", silver.attempts(rows)),
    ):
        version = version.adding(table, lake.write(frame, f"silver/{table}/{name}"))
    return replace(taken, version=version)


def silver_name(entries: Sequence[Entry]) -> str:
    """A name that follows from the ranges alone, so that a replay takes the same place."""
    ranges = sorted(entry.path.removeprefix("bronze/journal/") for entry in entries)
    if len(ranges) == 1:
        return ranges[0]
    digest = hashlib.sha256("\n".join(ranges).encode()).hexdigest()[:16]
    return f"{len(ranges)}-nodes/{digest}"


def _advanced(version: Version, book: Book, end: int) -> Version:
    """The lake now stands at the last row that it has."""
    mark = book.mark(end)
    before = version.nodes.get(book.node)
    if mark is None:
        # The last rows of the range are quarantined or were removed; the range is taken anyway.
        mark = Mark(end, before.at if before else 0, before.boot if before else "")
    state = NodeState(mark.seq, mark.at, mark.boot)
    return version.with_node(
        book.node, replace(state, folded=before.folded) if before is not None else state
    )


def _quarantine(frame: DataFrame, problem: Column, book: Book) -> DataFrame:
    values = {
        "source": f.lit(book.path),
        "problem": problem,
        "raw": f.to_json(f.struct(*JOURNAL.fieldNames())),
    }
    bad = frame.where(problem.isNotNull())
    return bad.select(
        *(values.get(name, f.col(name)).alias(name) for name in QUARANTINE.fieldNames())
    )


def _check_unique(spark: SparkSession, lake: Lake, entry: Entry, book: Book) -> None:
    """Two journals that were put into one export under one name."""
    if book.local_only:
        return  # A store's own key sees to it.
    rows = lake.read_folders(spark, JOURNAL, [str(lake.root / entry.path)])
    twice = rows.groupBy("seq").count().where("count > 1").orderBy("seq").limit(1).collect()
    if twice:
        raise JournalProblem(
            f"{book.path} has two rows {twice[0]['seq']} of {book.node}",
            remedy="two stores call themselves by one name: export each to a folder of its own",
        )
