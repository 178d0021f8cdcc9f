"""Taking a journal in: from a store or an export to directories of bronze and silver.

A node's rows are taken in order of `seq`, each once. The lake remembers the last row it has of
each node, so a second run reads only what is new, and a store that is not the one it was (another
one with the same name, or an older copy) is refused instead of mixed in.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from oncewire.errors import JournalProblem
from oncewire.journal.predicates.context import Hole, merged
from oncewire.journal.row import COLUMNS, JOURNAL_VERSION
from oncewire.message.instant import Instant
from oncewire.pipeline.lake import silver
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.lake.proof import chain_of, rows_in
from oncewire.pipeline.lake.tables import (
    CHECKED_JOURNAL,
    JOURNAL,
    QUARANTINE,
    arrow,
    data_path,
    nullable,
    with_problems,
)
from oncewire.pipeline.lake.version import (
    Book,
    Entry,
    Mark,
    NodeState,
    Version,
    count_rows,
    safe_name,
    write_node_file,
)
from oncewire.pipeline.sources.journal_source import check_distinct
from oncewire.pipeline.sources.oncewire import CHECKED

if TYPE_CHECKING:
    import pyarrow as pa


# Ranges: what a lake does not have of a journal, and where the journal's chain goes on there.
#
# A store that is not the one it was (another one with the same name, an older copy, one whose rows
# were changed) is refused instead of mixed in.


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


PART = "part"
"""What the rows of several ranges are divided by while they are written together."""

SMALL = 250_000
"""So many rows are not worth a job: the driver takes them in and judges them itself, in less
processor time than Spark spends on its own plans, files and workers (`bench/pipeline_runs.py`). A
row takes 3 kB of memory meanwhile."""

Edge = tuple[int, Instant | None]
"""A position and its instant."""

Progress = Callable[[str], None]
"""Told of each step as it begins."""


def quiet(step: str) -> None:
    """A `Progress` that tells nobody."""
    del step


@dataclass(frozen=True, slots=True)
class TakenIn:
    """The version with what was taken in, not published yet, and how much it was."""

    version: Version
    entries: tuple[Entry, ...] = ()
    quarantined: tuple[Entry, ...] = ()

    @property
    def rows(self) -> int:
        """Journal rows that were taken in."""
        return sum(entry.rows for entry in self.entries)

    @property
    def rows_quarantined(self) -> int:
        """Rows that were set aside."""
        return sum(entry.rows for entry in self.quarantined)


def take_in(
    spark: SparkSession,
    lake: Lake,
    version: Version,
    books: list[Book],
    tell: Progress = quiet,
    *,
    now: Instant = 0,
) -> TakenIn:
    """Everything new in some books, read at that instant of the reader's clock."""
    check_distinct(books)
    ranges = [span for book in books for span in new_ranges(version, book)]
    taken = TakenIn(version)
    rows = sum(span.end - span.start for span in ranges)
    for number, span in enumerate(ranges, 1):
        place = f"{number} of {len(ranges)}, {rows:,} rows in all"
        tell(f"taking in {span.book.node} {span.start + 1}..{span.end} ({place})")
    small = [span for span in ranges if span.end - span.start <= SMALL]
    large = [span for span in ranges if span.end - span.start > SMALL]
    if small:
        taken = take_small_ranges(lake, taken, small)
    if large:
        taken = take_ranges(lake, taken, [read_range(spark, span) for span in large], large)
    noted = read_through(taken.version, books, now) if now else taken.version
    return with_silver(spark, lake, replace(taken, version=noted))


def read_through(version: Version, books: Iterable[Book], now: Instant) -> Version:
    """The version, with the instant at which each journal was read to its end."""
    for book in books:
        state = version.nodes.get(book.node)
        if state is not None and state.seq >= book.bounds()[1]:
            version = version.with_node(book.node, replace(state, read_at=book.read_at(now)))
    return version


def read_range(spark: SparkSession, span: Range) -> DataFrame:
    """The rows of a range through `format("oncewire")`, each with what breaks its contract."""
    return (
        spark.read.format("oncewire")
        .option("table", CHECKED)
        .option("node", span.book.node)
        .option("startingSeq", str(span.start))
        .option("endingSeq", str(span.end))
        .load(span.book.path)
    )


def read_book(spark: SparkSession, book: Book, start: int, end: int) -> DataFrame:
    """The rows `(start, end]` of a book as they are."""
    return (
        spark.read.format("oncewire")
        .option("node", book.node)
        .option("startingSeq", str(start))
        .option("endingSeq", str(end))
        .load(book.path)
    )


def take_ranges(
    lake: Lake, taken: TakenIn, frames: Sequence[DataFrame], ranges: Sequence[Range]
) -> TakenIn:
    """Write the rows of some ranges, all of them in one job."""
    parts = [
        frame.withColumn(
            PART,
            f.when(f.col("problem").isNull(), f.lit(f"{index}-rows")).otherwise(
                f.lit(f"{index}-aside")
            ),
        )
        for index, frame in enumerate(frames)
    ]
    folder = _landing(lake, taken, ranges)
    silver.union(parts).write.mode("overwrite").partitionBy(PART).parquet(str(folder))
    return _place_all(lake, taken, ranges, folder)


def take_small_ranges(lake: Lake, taken: TakenIn, ranges: Sequence[Range]) -> TakenIn:
    """The same for ranges of few rows: the driver reads and writes them itself, in the time that
    it would take to plan a job."""
    import pyarrow as pa

    checked = (
        list(with_problems(span.book.batches(span.start, span.end, COLUMNS, ()), span.book.node))
        for span in ranges
    )
    empty = arrow(nullable(CHECKED_JOURNAL)).empty_table()
    tables = (pa.Table.from_batches(batches) if batches else empty for batches in checked)
    return take_tables(lake, taken, tables, ranges)


def take_tables(
    lake: Lake, taken: TakenIn, tables: Iterable[pa.Table], ranges: Sequence[Range]
) -> TakenIn:
    """The same for rows that are at hand, each with what breaks its contract."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    folder = _landing(lake, taken, ranges)
    shutil.rmtree(folder, ignore_errors=True)
    for index, table in enumerate(tables):
        rows = table.cast(arrow(nullable(CHECKED_JOURNAL)))
        good = pc.is_null(rows["problem"])
        for name, mask in (("rows", good), ("aside", pc.invert(good))):
            some = rows.filter(mask)
            if some.num_rows:
                target = folder / f"{PART}={index}-{name}"
                target.mkdir(parents=True)
                pq.write_table(some, target / "part-0.parquet", compression="zstd")
    return _place_all(lake, taken, ranges, folder)


def _landing(lake: Lake, taken: TakenIn, ranges: Sequence[Range]) -> Path:
    """Where the rows of several ranges are written together, before each has its own place."""
    digest = _digest(span.name for span in ranges)
    return lake.root / f"bronze/landing/v{taken.version.number + 1:08d}-{digest}"


def _place_all(lake: Lake, taken: TakenIn, ranges: Sequence[Range], folder: Path) -> TakenIn:
    for index, span in enumerate(ranges):
        taken = _placed(lake, taken, span, folder, index)
    shutil.rmtree(folder, ignore_errors=True)
    return taken


def _placed(lake: Lake, taken: TakenIn, span: Range, landing: Path, index: int) -> TakenIn:
    """The rows of one range at their place in bronze, counted and looked over."""
    book, version = span.book, taken.version
    entry = _moved(lake, landing / f"{PART}={index}-rows", f"bronze/journal/{span.name}")
    entry = replace(entry, key=book.node, first=span.start + 1, last=span.end)
    aside = _set_aside(lake, landing / f"{PART}={index}-aside", span)
    write_node_file((lake.root / entry.path).parent, book.node, JOURNAL_VERSION)
    expected = book.count(span.start, span.end)
    if entry.rows + aside.rows != expected:
        raise JournalProblem(
            f"{expected} rows of {book.node} were to be taken in, and {entry.rows + aside.rows} "
            f"arrived",
            remedy="run again; if it stays so, another program changes the journal",
        )
    before = version.nodes.get(book.node)
    state = before if span.fills and before is not None else _state_at(book, span.end, before)
    holes = _holes(lake, span, (entry, aside), before)
    entry = replace(entry, since=since_of(version, span))
    entry = replace(entry, chain=chain_of(entry.since, rows_in(lake, entry)))
    if not span.fills:
        state = replace(state, chain=book.head(span.end) or "")
    version = version.adding("journal", entry).with_node(book.node, replace(state, holes=holes))
    if aside.rows:
        version = version.adding("quarantine", aside)
    if span.fills:
        version = forgetting(version)
    return TakenIn(
        version,
        (*taken.entries, entry),
        (*taken.quarantined, aside) if aside.rows else taken.quarantined,
    )


def _set_aside(lake: Lake, found: Path, span: Range) -> Entry:
    """The few rows that break the contract, as the table `quarantine` has them."""
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    path = f"bronze/quarantine/{span.name}"
    shutil.rmtree(lake.root / path, ignore_errors=True)
    if not found.is_dir():
        return Entry(path, 0, span.book.node)
    rows = ds.dataset(found, format="parquet").to_table()
    whole = rows.select(JOURNAL.fieldNames())
    values = {
        "source": pa.array([span.book.path] * rows.num_rows, pa.string()),
        "raw": pa.array(
            [json.dumps({k: v for k, v in row.items() if v is not None}, ensure_ascii=False)
             for row in whole.to_pylist()],
            pa.string(),
        ),
    }  # fmt: skip
    table = pa.table(
        [values[name] if name in values else rows[name] for name in QUARANTINE.fieldNames()],
        schema=arrow(nullable(QUARANTINE)),
    )
    (lake.root / path).mkdir(parents=True)
    pq.write_table(table, lake.root / path / "part-0.parquet", compression="zstd")
    return Entry(path, table.num_rows, span.book.node)


def forgetting(version: Version) -> Version:
    """The same, to be judged from the first row on: rows came where none were."""
    nodes = {name: replace(state, folded=0) for name, state in version.nodes.items()}
    return replace(version, nodes=nodes, judged={})


def _moved(lake: Lake, found: Path, path: str) -> Entry:
    """A directory at its place, instead of what a killed run may have left there."""
    target = lake.root / path
    shutil.rmtree(target, ignore_errors=True)
    if not found.is_dir():
        return Entry(path, 0)
    target.parent.mkdir(parents=True, exist_ok=True)
    found.rename(target)
    return Entry(path, count_rows(target))


def _holes(
    lake: Lake, span: Range, entries: Sequence[Entry], before: NodeState | None
) -> tuple[Hole, ...]:
    """What is missing of a node after a range was taken in.

    Mostly nothing is. A store's own key sees to it that no position is there twice, so there the
    number of rows says so; an export may hold anything.
    """
    known = () if before is None else before.holes
    filled = next((hole for hole in known if span.fills and hole.first == span.start + 1), None)
    kept = [hole for hole in known if hole is not filled]
    start = 0 if before is None else span.start
    rows = sum(entry.rows for entry in entries)
    if span.book.local_only and rows == span.end - start:
        return tuple(kept)
    runs = _runs([lake.root / entry.path for entry in entries if entry.rows], span.book)
    last = (span.end + 1, runs[-1][1][1] if runs else 0)
    first: Edge = (start, None if before is None else before.at)
    if filled is not None:
        first, last = (span.start, filled.before), (span.end + 1, filled.after)
    ends = [first, *(run[1] for run in runs)]
    begins = [*(run[0] for run in runs), last]
    found = [
        Hole(end[0] + 1, begin[0] - 1, end[1], begin[1] or 0)
        for end, begin in zip(ends, begins, strict=True)
        if begin[0] - end[0] > 1
    ]
    return tuple(sorted((*kept, *merged(found))))


def _runs(folders: Sequence[Path], book: Book) -> list[tuple[Edge, Edge]]:
    """The first and the last row of each run of positions without a gap, in order."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    tables = [
        ds.dataset(path, format="parquet").to_table(columns=["seq", "at"]) for path in folders
    ]
    if not tables:
        return []
    rows = pa.concat_tables(tables).sort_by("seq")
    seq, at = rows["seq"].combine_chunks(), rows["at"].combine_chunks()
    steps = pc.subtract(seq.slice(1), seq.slice(0, len(seq) - 1))
    twice = pc.index(steps, pa.scalar(0, pa.int64())).as_py()
    if twice >= 0:
        raise JournalProblem(
            f"{book.path} has two rows {seq[twice].as_py()} of {book.node}",
            remedy="two stores call themselves by one name: export each to a folder of its own",
        )
    cuts = pc.indices_nonzero(pc.greater(steps, 1)).to_pylist()
    begins, ends = [0, *(cut + 1 for cut in cuts)], [*cuts, len(seq) - 1]
    return [
        ((seq[begin].as_py(), at[begin].as_py()), (seq[end].as_py(), at[end].as_py()))
        for begin, end in zip(begins, ends, strict=True)
    ]


def with_silver(spark: SparkSession, lake: Lake, taken: TakenIn) -> TakenIn:
    """The tables that are made from new ranges of journals alone."""
    if not taken.rows and not taken.quarantined:
        return taken
    name = silver_name((*taken.entries, *taken.quarantined))
    folders = [str(lake.root / entry.path) for entry in taken.entries if entry.rows]
    held = [str(lake.root / entry.path) for entry in taken.quarantined]
    version = taken.version
    if taken.rows <= SMALL:
        tables = silver.tables(folders, held)
        for table, made in tables.items():
            version = version.adding(table, lake.write_table(made, data_path(table, name)))
        return replace(taken, version=version)
    rows = lake.read_folders(spark, JOURNAL, folders)
    for table, frame in (
        ("context", silver.context_rows(rows)),
        ("boots", silver.boots(rows, lake.read_folders(spark, QUARANTINE, held))),
        # In order, because a run looks for those that are not settled yet.
        ("documents", silver.document_rows(rows).sortWithinPartitions("at")),
        ("messages", silver.messages(rows)),
        ("attempts", silver.attempts(rows)),
    ):
        version = version.adding(table, lake.write(frame, data_path(table, name)))
    return replace(taken, version=version)


def silver_name(entries: Sequence[Entry]) -> str:
    """A name that follows from the ranges alone, so that a replay takes the same place."""
    ranges = sorted({entry.path.split("/", 2)[2] for entry in entries})
    if len(ranges) == 1:
        return ranges[0]
    return f"{len(ranges)}-nodes/{_digest(ranges)}"


def _state_at(book: Book, end: int, before: NodeState | None) -> NodeState:
    """The lake now stands at the last row that it has."""
    mark = book.mark(end)
    if mark is None:
        # The last rows of the range are quarantined or were removed; the range is taken anyway.
        mark = Mark(end, before.at if before else 0, before.boot if before else "")
    state = NodeState(mark.seq, mark.at or 0, mark.boot or "")
    if before is None:
        return state
    return replace(state, folded=before.folded, read_at=before.read_at)


def _digest(names: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:16]


# The rows of one batch of a stream: at hand where they are few, kept by Spark where they are not.
#
# A batch of a stream costs what its jobs cost, long before its rows do. Few rows come to the
# driver in the one job that reads them; what is many is read once too, and counted and written
# where it is.


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
