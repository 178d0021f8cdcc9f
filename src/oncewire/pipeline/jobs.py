"""The jobs, source to tables: the same functions for the command line, `spark-submit` and tests.

Each takes a session and paths and hands back values; what it does meanwhile it tells `tell`.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from oncewire.errors import InvalidValue, JournalProblem
from oncewire.message.instant import Instant
from oncewire.pipeline.judging.refresh import refresh
from oncewire.pipeline.lake import version as crash
from oncewire.pipeline.lake.compact import compacted
from oncewire.pipeline.lake.lake import Lake, count_in
from oncewire.pipeline.lake.silver import union
from oncewire.pipeline.lake.tables import ENVELOPES, OPEN
from oncewire.pipeline.lake.version import OF_AN_ARCHIVE, Book, Entry, Version, local_path
from oncewire.pipeline.session import is_remote, pinned
from oncewire.pipeline.sources.ingest import (
    SMALL,
    Progress,
    Range,
    TakenIn,
    new_range,
    opened,
    quiet,
    read_through,
    take_in,
    where_chained,
    with_silver,
)
from oncewire.pipeline.sources.journal_source import check_distinct, open_books
from oncewire.pipeline.sources.oncewire import CHECKED

CONTENT = ("file", "member", "position", "sha256")
"""What tells a message of an archive from every other one, however often its file is touched."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a run did."""

    version: int
    rows: int
    """Journal rows taken in."""
    quarantined: int
    envelopes: int
    unreadable: int
    """Envelopes among them that cannot be read; each is a row with its reason."""
    cut_off: int
    """Envelopes that can be read, but whose end may be missing."""
    messages: int
    """Messages in the ledger now; a document is one, its parts are none."""
    verdicts: dict[str, int] = field(default_factory=dict)
    violations: int = 0


def run(
    spark: SparkSession,
    lake: Lake,
    stores: Sequence[str | Path] = (),
    *,
    archives: Sequence[str | Path] = (),
    ended: bool = False,
    now: Instant | None = None,
    tell: Progress = quiet,
) -> Done:
    """Take in what is new in the stores and archives, bring every table up to date, publish."""
    books = [book for store in stores for book in open_books(store)]
    _need_input(lake, books, archives)
    with pinned(spark), lake.writing() as before:
        taken = take_in(spark, lake, before, books, tell, now=now or _now())
        version, entries = taken.version, []
        for archive in archives:
            tell(f"reading {archive}")
            entries.append(_take_archive(spark, lake, version, str(archive)))
            version = version.adding("envelopes", entries[-1])
        made = refresh(spark, lake, version, ended=ended, tell=tell)
        # That a journal was read again is noted when there is anything else to say.
        changed = made is not version or taken.entries or entries
        published = (
            lake.publish(_counted(lake, compacted(lake, made), before)) if changed else before
        )
        return _done(spark, lake, published, taken.rows, taken.rows_quarantined, entries)


def stream(
    spark: SparkSession,
    lake: Lake,
    stores: Sequence[str | Path],
    *,
    forever: bool = False,
    every: str = "10 seconds",
    rows_per_batch: int = 200_000,
    checkpoint: str | Path | None = None,
    ended: bool = False,
    tell: Progress = quiet,
) -> Done:
    """The same as a stream: batch after batch, each published by itself.

    Without `forever` it ends when everything that was there at the beginning is taken in. A batch
    that is played again after a crash finds its rows in the lake and adds nothing.
    """
    books = [book for store in stores for book in open_books(store)]
    check_distinct(books)
    if is_remote(spark):
        return _run_again(
            spark, lake, stores, every=every if forever else "", ended=ended, tell=tell
        )
    counted = [0, 0]
    with pinned(spark), lake.writing() as version:
        frames = [_streamed(spark, version, book, rows_per_batch) for book in books]
        few = rows_per_batch * len(books) <= SMALL
        take = _batch(spark, lake, books, counted, few, ended, tell)
        writer = (
            union(frames)
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(checkpoint or lake.root / "checkpoint"))
        )
        timed = (
            writer.trigger(processingTime=every) if forever else writer.trigger(availableNow=True)
        )
        query = timed.start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return _done(spark, lake, lake.current_or_new(), counted[0], counted[1])


def _run_again(
    spark: SparkSession,
    lake: Lake,
    stores: Sequence[str | Path],
    *,
    every: str,
    ended: bool,
    tell: Progress,
) -> Done:
    """A stream over Spark Connect, whose batches would be taken in far from the lake: runs, one
    after another. The lake itself knows how far each journal was taken in."""
    done = run(spark, lake, stores, ended=ended, tell=tell)
    while every:
        time.sleep(_seconds(every))
        done = run(spark, lake, stores, ended=ended, tell=tell)
    return done


def _seconds(every: str) -> int:
    """`10 seconds`, as Spark writes it."""
    number, _, unit = every.strip().partition(" ")
    length = {"second": 1, "minute": 60, "hour": 3_600}.get(unit.strip().rstrip("s"))
    if not number.isdigit() or length is None:
        raise InvalidValue(f"{every!r} is no interval", remedy="say it as `10 seconds`")
    return int(number) * length


def _streamed(spark: SparkSession, version: Version, book: Book, rows_per_batch: int) -> DataFrame:
    start, _ = new_range(version, book)
    return (
        spark.readStream.format("oncewire")
        .option("table", CHECKED)
        .option("node", book.node)
        .option("startingSeq", str(start))
        .option("maxRowsPerBatch", str(rows_per_batch))
        .load(book.path)
    )


def _batch(
    spark: SparkSession,
    lake: Lake,
    books: list[Book],
    counted: list[int],
    few: bool,
    ended: bool,
    tell: Progress,
) -> Callable[[DataFrame, int], None]:
    """What is done with each batch; `counted` adds up rows and quarantined rows."""

    def take(frame: DataFrame, batch: int) -> None:
        with opened(frame, few=few) as rows:
            bounds = rows.bounds()
            taken = TakenIn(lake.current_or_new())
            ranges: list[Range] = []
            for book in books:
                if book.node not in bounds:
                    continue
                known = taken.version.nodes.get(book.node)
                begin = known.seq if known is not None else None
                first, last = bounds[book.node]
                if begin is not None and last <= begin:
                    continue  # Played again: the lake has it.
                start = _start(book, begin, first)
                ranges += where_chained(book, start, last)
                tell(f"batch {batch}: {book.node} {start + 1}..{last}")
            if ranges:
                taken = rows.take_in(lake, taken, ranges)
                counted[0] += taken.rows
                counted[1] += taken.rows_quarantined
                version = read_through(with_silver(spark, lake, taken).version, books, _now())
                # A stream may run for months: what no version refers to any more goes with it.
                made = refresh(spark, lake, version, ended=ended, tell=tell)
                counts = _counted(lake, compacted(lake, made), version)
                lake.sweep(lake.publish(counts))
        crash.reached("before_commit_log")

    return take


def _start(book: Book, begin: int | None, first: int) -> int:
    """Where a batch goes on; rows between the lake's last and the batch's first must not exist."""
    if begin is None:
        return first - 1
    following = book.next_seq(begin)
    if following is not None and following < first:
        raise JournalProblem(
            f"the stream is at row {first} of {book.node}, but the lake wants row {following} next",
            remedy="the checkpoint belongs to another lake: remove it, the lake knows where it is",
        )
    return begin


def _need_input(lake: Lake, books: Sequence[Book], archives: Sequence[str | Path]) -> None:
    """Without any input there is nothing to do, except for a lake that waits to be judged."""
    if not books and not archives and not lake.exists:
        raise JournalProblem(
            f"nothing is named that could be taken into {lake.root}",
            remedy="name a journal with --store, or raw messages with --archive",
        )


def _take_archive(spark: SparkSession, lake: Lake, version: Version, archive: str) -> Entry:
    """What an archive has that the table `envelopes` has not.

    Files that are there unchanged are not read. What was only touched is read, and known by its
    content.
    """
    known = lake.folders(version, "envelopes")
    place = str(local_path(archive, OF_AN_ARCHIVE).resolve())
    frame = spark.read.format("ebxml").option("known", json.dumps(known)).load(place)
    if known:
        old = lake.read_folders(spark, ENVELOPES, known)
        same = reduce(Column.__and__, (frame[name].eqNullSafe(old[name]) for name in CONTENT))
        frame = frame.join(old, same, "left_anti")
    number = len(version.tables.get("envelopes", ())) + 1
    stamp = f"{version.number + 1:08d}-{number:04d}"
    return lake.write(frame.select(*ENVELOPES.fieldNames()), f"bronze/envelopes/{stamp}")


def _done(
    spark: SparkSession,
    lake: Lake,
    version: Version,
    rows: int,
    quarantined: int,
    archived: Sequence[Entry] = (),
) -> Done:
    verdicts: Counter[str] = Counter()
    for counts in _verdicts(lake, version, version).values():
        verdicts.update(counts)
    unreadable, cut_off = _doubtful(spark, lake, archived)
    return Done(
        version=version.number,
        rows=rows,
        quarantined=quarantined,
        envelopes=sum(entry.rows for entry in archived),
        unreadable=unreadable,
        cut_off=cut_off,
        messages=sum(verdicts.values()),
        verdicts=dict(sorted(verdicts.items())),
        violations=version.rows("violations"),
    )


def _counted(lake: Lake, version: Version, before: Version) -> Version:
    """The version with how often each verdict occurs in each directory of its ledger, so that no
    run reads the whole ledger to say what it comes to."""
    verdicts = _verdicts(lake, version, before)
    return replace(version, judged={**version.judged, "verdicts": verdicts})


def _verdicts(lake: Lake, version: Version, before: Version) -> dict[str, dict[str, int]]:
    """Of directories that were counted before it is known; none of them ever changes."""
    known = before.judged.get("verdicts", {})
    return {
        entry.path: known.get(entry.path)
        or count_in([str(lake.root / entry.path)], "verdict", empty="part_of")
        for entry in OPEN["ledger"].entries(version)
    }


def _doubtful(spark: SparkSession, lake: Lake, archived: Sequence[Entry]) -> tuple[int, int]:
    """How many envelopes cannot be read, and of how many the end may be missing."""
    folders = [str(lake.root / entry.path) for entry in archived if entry.rows]
    if not folders:
        return 0, 0
    readable, closed = f.col("readable"), f.col("closed")
    (counted,) = (
        lake.read_folders(spark, ENVELOPES, folders)
        .agg(f.count_if(~readable), f.count_if(readable & ~closed))
        .collect()
    )
    return counted[0], counted[1]


def _now() -> Instant:
    return time.time_ns() // 1_000
