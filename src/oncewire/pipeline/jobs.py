"""The jobs, source to tables: the same functions for the command line, `spark-submit` and tests.

Each takes a session and paths and hands back values; what it does meanwhile it tells `tell`.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from typing import NamedTuple

from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from oncewire.errors import InvalidValue, JournalProblem
from oncewire.message.instant import SECOND, Duration, Instant
from oncewire.pipeline.judging.gold import count_verdicts
from oncewire.pipeline.judging.refresh import refresh
from oncewire.pipeline.judging.together import union
from oncewire.pipeline.lake import version as crash
from oncewire.pipeline.lake.columns import ENVELOPES
from oncewire.pipeline.lake.lake import Lake, TableFile
from oncewire.pipeline.lake.summary import write_summary
from oncewire.pipeline.lake.tables import OPEN
from oncewire.pipeline.lake.version import OF_AN_ARCHIVE, Book, Entry, Version, local_path
from oncewire.pipeline.session import AS_PLANNED, pinned
from oncewire.pipeline.sources.ingest import (
    Progress,
    Surveyed,
    quiet,
    survey,
    survey_batch,
    take_in,
)
from oncewire.pipeline.tasks import (
    RESULT,
    Batches,
    Spent,
    counting,
    is_remote,
    results,
    returning,
    run_each,
)

CONTENT = ("file", "member", "position", "sha256")
"""Columns that identify a message of an archive, also when its file was only touched."""


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
    spark_jobs: int | None = None
    spark_tasks: int | None = None
    """What Spark ran for this run, by its own count."""


def run(
    spark: SparkSession,
    lake: Lake,
    stores: Sequence[str | Path | Book] = (),
    *,
    archives: Sequence[str | Path] = (),
    ended: bool = False,
    keep: Duration | None = None,
    now: Instant | None = None,
    tell: Progress = quiet,
) -> Done:
    """Take in what is new in the stores and archives, bring every table up to date, publish.

    `keep` is how long versions can be read once they are replaced; the lake remembers it.
    """
    # Without any input there is nothing to do, except for a lake that waits to be judged.
    if not stores and not archives and not lake.exists:
        raise JournalProblem(
            f"nothing is named that could be taken into {lake.root}",
            remedy="name a journal with --store, or raw messages with --archive",
        )
    with counting(spark, Spent()) as spent, pinned(spark, AS_PLANNED), lake.writing() as before:
        surveyed = survey(spark, before, stores) if stores else []
        taken = take_in(spark, lake, before, surveyed, tell, now=now or _now())
        version, read = taken.version, []
        for archive in archives:
            tell(f"reading {archive}")
            version, counts = _take_archive(spark, lake, version, str(archive))
            read.append(counts)
        made = refresh(spark, lake, version, ended=ended, tell=tell)
        if keep is not None and made.readable_for != keep / SECOND:
            made = replace(made, readable_for=keep / SECOND)
        # That a journal was read again is noted when there is anything else to say.
        changed = made is not version or taken.rows or taken.rows_quarantined or any(map(sum, read))
        published = lake.publish(made) if changed else before
        done = _done(spark, lake, published, taken.rows, taken.rows_quarantined, read)
        write_summary(lake, published, done.verdicts, now or _now())
    return replace(done, spark_jobs=spent.jobs, spark_tasks=spent.tasks)


def stream(
    spark: SparkSession,
    lake: Lake,
    stores: Sequence[str | Path | Book],
    *,
    forever: bool = False,
    every: str = "10 seconds",
    rows_per_batch: int = 200_000,
    checkpoint: str | Path | None = None,
    ended: bool = False,
    tell: Progress = quiet,
) -> Done:
    """Do what `run` does as a stream: batch after batch, each published by itself.

    Without `forever` it ends when everything that was there at the beginning is taken in. A batch
    that is played again after a crash finds its rows in the lake and adds nothing.
    """
    if is_remote(spark):
        return _run_again(
            spark, lake, stores, every=every if forever else "", ended=ended, tell=tell
        )
    rows, spent = Counter[str](), Spent()
    with pinned(spark, AS_PLANNED), lake.writing() as version:
        with counting(spark, spent):
            books = [each.book for each in survey(spark, version, stores)]
        frames = [
            _streamed(spark, version, number, book, rows_per_batch)
            for number, book in enumerate(books)
        ]
        writer = (
            union(frames)
            .writeStream.foreachBatch(_batch(lake, books, rows, spent, ended, tell))
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
        published = lake.current_or_new()
        done = _done(spark, lake, published, rows["taken"], rows["aside"])
        write_summary(lake, published, done.verdicts, _now())
    return replace(done, spark_jobs=spent.jobs, spark_tasks=spent.tasks)


def _run_again(
    spark: SparkSession,
    lake: Lake,
    stores: Sequence[str | Path | Book],
    *,
    every: str,
    ended: bool,
    tell: Progress,
) -> Done:
    """A stream over Spark Connect, as runs one after another, because its batches would run far
    from the lake. The lake knows how far each journal was taken in."""
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


def _streamed(
    spark: SparkSession, version: Version, number: int, book: Book, rows_per_batch: int
) -> DataFrame:
    """The positions of a journal as they come; the rows themselves are read by the tasks that take
    them in."""
    state = version.nodes.get(book.node)
    rows = (
        spark.readStream.format("oncewire")
        .option("node", book.node)
        .option("columns", "seq")
        .option("startingSeq", str(0 if state is None else state.seq))
        .option("maxRowsPerBatch", str(rows_per_batch))
        .options(**book.options)
        .load()
    )
    return rows.select(f.lit(number).alias("book"), "seq")


def _batch(
    lake: Lake, books: list[Book], counted: Counter[str], spent: Spent, ended: bool, tell: Progress
) -> Callable[[DataFrame, int], None]:
    """The function that takes one batch in; `counted` and `spent` add up."""

    def take(frame: DataFrame, batch: int) -> None:
        spark = frame.sparkSession
        with counting(spark, spent):
            version = lake.current_or_new()
            surveyed = _surveyed(frame, version, books)
            for each in surveyed:
                span = f"{each.ranges[0].start + 1}..{each.ranges[-1].end}"
                tell(f"batch {batch}: {each.book.node} {span}")
            if surveyed:
                taken = take_in(spark, lake, version, surveyed, now=_now())
                counted.update(taken=taken.rows, aside=taken.rows_quarantined)
                made = refresh(spark, lake, taken.version, ended=ended, tell=tell)
                # A stream may run for months: what no version refers to any more goes with it.
                lake.sweep(lake.publish(made))
        crash.reached("before_commit_log")

    return take


def _surveyed(frame: DataFrame, version: Version, books: list[Book]) -> list[Surveyed]:
    """The ranges of a batch, asked by the tasks that see where it begins and ends."""

    def work(batches: Batches) -> list[Surveyed]:
        return [
            each
            for batch in batches
            for row in batch.to_pylist()
            for each in survey_batch(version, books[row["book"]], row["first"], row["last"])
        ]

    ends = frame.groupBy("book").agg(f.min("seq").alias("first"), f.max("seq").alias("last"))
    found = results(ends.coalesce(1).mapInArrow(returning(work), RESULT))
    return sorted((each for some in found for each in some), key=lambda each: each.book.node)


def _take_archive(
    spark: SparkSession, lake: Lake, version: Version, archive: str
) -> tuple[Version, Counts]:
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
    path = f"bronze/envelopes/{version.number + 1:08d}-{number:04d}"
    lake.clear(path)
    written = results(
        frame.select(*ENVELOPES.fieldNames()).mapInArrow(
            returning(partial(_write_envelopes, lake.root, path)), RESULT
        )
    )
    version = version.adding("envelopes", *(entry for entry, _ in written))
    return version, Counts(*map(sum, zip(*(counts for _, counts in written), strict=True)))


class Counts(NamedTuple):
    """How many envelopes were read, cannot be read, or may lack their end."""

    envelopes: int = 0
    unreadable: int = 0
    cut_off: int = 0


def _write_envelopes(root: Path, path: str, batches: Batches) -> tuple[Entry, Counts]:
    """The task that writes what it read of an archive."""
    import pyarrow.compute as pc

    part = TaskContext.get().partitionId()  # type: ignore[union-attr]
    file = TableFile(root, "envelopes", f"{path}/{part}", ENVELOPES)
    unreadable = cut_off = 0
    for batch in batches:
        readable = batch["readable"]
        open_ended = pc.and_(readable, pc.invert(batch["closed"].fill_null(True)))
        unreadable += pc.sum(pc.invert(readable)).as_py() or 0
        cut_off += pc.sum(open_ended).as_py() or 0
        file.write(batch)
    entry = file.close()
    return entry, Counts(entry.rows, unreadable, cut_off)


def _done(
    spark: SparkSession,
    lake: Lake,
    version: Version,
    rows: int,
    quarantined: int,
    read: Sequence[Counts] = (),
) -> Done:
    counted = dict(version.judged.get("verdicts", {}))
    missing = [entry.path for entry in OPEN["ledger"].entries(version) if entry.path not in counted]
    for made in run_each(spark, [partial(count_verdicts, lake.root, path) for path in missing]):
        counted |= made.verdicts
    verdicts: Counter[str] = Counter()
    for counts in counted.values():
        verdicts.update(counts)
    envelopes, unreadable, cut_off = map(sum, zip(Counts(), *read, strict=True))
    return Done(
        version=version.number,
        rows=rows,
        quarantined=quarantined,
        envelopes=envelopes,
        unreadable=unreadable,
        cut_off=cut_off,
        messages=sum(verdicts.values()),
        verdicts=dict(sorted(verdicts.items())),
        violations=version.rows("violations"),
    )


def _now() -> Instant:
    return time.time_ns() // 1_000
