"""What the ledger costs on Spark, as ratios within one run.

    python -m bench.pipeline [rows] [folder] [ledger] [archive] [driver]

Generates two years, the smaller with a tenth of the rows (10,000,000 unless said otherwise), and
measures: the ledger against the same shuffles and sorts with a fold that only counts; how its time
grows from the small year to the large one; DuckDB over the part of it that is plain SQL; an archive
read through Spark against the codec alone; and the driver's memory on separate executors. With a
folder the years are kept there and found again, and single parts can be chosen.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from oncewire.lab.sample_year.generate import generate, write_parcels
from oncewire.lab.sample_year.plan import make_plan
from oncewire.message.form import Validation
from oncewire.pipeline.judging.check import judge_lake
from oncewire.pipeline.judging.extent import tasks_for
from oncewire.pipeline.judging.refresh import refresh
from oncewire.pipeline.judging.together import (
    BY_CHANNEL,
    CHANNEL,
    fed,
    rows_of_channels,
    rows_of_messages,
    together,
)
from oncewire.pipeline.lake.columns import JOURNAL
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.session import cores_of, open_session
from oncewire.pipeline.sources.archive import contents, pieces
from oncewire.pipeline.sources.ingest import forgetting
from oncewire.wire import codec
from oncewire.wire.inspection import open_capture

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_MESSAGE = 8.2
FEW_ENVELOPES, ENVELOPES = 8_000, 40_000
ARCHIVE_PASSES = 7
PARTS = ["ledger", "archive", "driver"]
AIM_RATIO, AIM_GROWTH, AIM_ARCHIVE = 2.0, 11.0, 0.7


class Spent(NamedTuple):
    """Seconds by the clock, and seconds of processor that this process and all below it used."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.1f} s ({self.cpu:.0f} of processor)"


def timed(work: Callable[[], object]) -> Spent:
    """Both, because on a busy machine only the processor's seconds say what the work costs."""
    used, begin = processor_seconds(), time.perf_counter()
    work()
    return Spent(time.perf_counter() - begin, processor_seconds() - used)


class Process(NamedTuple):
    """What the system says of a process."""

    parent: int
    began: int
    ticks: int
    """Of itself, and of those of its own that ended and that it waited for."""
    is_worker: bool = False
    """Whether Spark's Python daemon made it, which waits for none of its own."""


def processes() -> dict[int, Process]:
    """This process and everything below it: the JVM, and Python's workers below that."""
    found, daemons = {}, set()
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
            command = (file.parent / "cmdline").read_text()
        except OSError:
            continue  # It ended meanwhile.
        process, ticks = int(file.parent.name), sum(int(fields[at]) for at in (11, 12, 13, 14))
        found[process] = Process(int(fields[1]), int(fields[19]), ticks)
        if "pyspark.daemon" in command:
            daemons.add(process)
    for process in daemons:
        # A worker is a copy of the daemon that made it.
        found[process] = found[process]._replace(is_worker=found[process].parent in daemons)
    return {process: one for process, one in found.items() if _is_below(process, found)}


def _is_below(process: int, found: dict[int, Process]) -> bool:
    above: int | None = process
    while above is not None and above != os.getpid():
        above = found[above].parent if above in found else None
    return above is not None


class Workers:
    """The processor time of Spark's Python workers, those that ended included.

    A worker that had nothing to do for a minute is ended, and no process waits for it: the system
    forgets what it used, and a run would seem the cheaper the longer it took.
    """

    def __init__(self) -> None:
        self._used: dict[tuple[int, int], int] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def ticks(self) -> int:
        """Of all of them until now."""
        return self.look(processes())

    def look(self, found: dict[int, Process]) -> int:
        """The same, where the processes are known."""
        with self._lock:
            for process, one in found.items():
                if one.is_worker:
                    self._used[process, one.began] = one.ticks
            return sum(self._used.values())

    def _watch(self) -> None:
        while True:
            time.sleep(5)
            self.ticks()


WORKERS = Workers()


def processor_seconds() -> float:
    """Of this process and everything it started."""
    found = processes()
    others = sum(one.ticks for one in found.values() if not one.is_worker)
    return (others + WORKERS.look(found)) / os.sysconf("SC_CLK_TCK")


def spend(frame: DataFrame) -> None:
    """Compute every row and keep none."""
    frame.write.format("noop").mode("overwrite").save()


def counting(key: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The trivial fold: one pass over the keys, and a number at the end."""

    def fold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        before, keys = None, 0
        for batch in batches:
            for value in batch[key].to_pylist():
                if value != before:
                    before, keys = value, keys + 1
        yield pa.RecordBatch.from_pydict({"keys": [keys]})

    return fold


def floor(rows: DataFrame, tasks: int) -> None:
    """The shuffles and sorts that the ledger needs, and nothing else."""
    of_channels = fed(rows_of_channels(rows), CHANNEL, BY_CHANNEL)
    for frame in (rows_of_messages(rows), of_channels):
        spend(together([frame], tasks).mapInArrow(counting("key"), "keys long"))


def whole_ledger(spark: SparkSession, lake: Lake) -> None:
    """All gold tables, as a first run over the lake makes them; they are not published."""
    refresh(spark, lake, forgetting(lake.current()))


class Measured(NamedTuple):
    """One lake: the floor before and after the ledger, as other work hits them alike."""

    rows: int
    before: Spent
    ledger: Spent
    after: Spent

    def ratio(self) -> tuple[float, float]:
        """Ledger to floor, by the clock and by the processor."""
        wall = 2 * self.ledger.wall / (self.before.wall + self.after.wall)
        return wall, 2 * self.ledger.cpu / (self.before.cpu + self.after.cpu)


def measure(spark: SparkSession, lake: Lake) -> Measured:
    version = lake.current()
    rows = lake.read(spark, version, JOURNAL, "journal")
    tasks = tasks_for(version.rows("journal"), cores_of(spark))
    return Measured(
        version.rows("journal"),
        timed(lambda: floor(rows, tasks)),
        timed(lambda: whole_ledger(spark, lake)),
        timed(lambda: floor(rows, tasks)),
    )


def duckdb_seconds(lake: Lake) -> Spent:
    """The counts of the ledger as plain SQL, on the same files and cores."""
    import duckdb

    files = [f"{folder}/*.parquet" for folder in lake.folders(lake.current(), "journal")]
    query = """
        SELECT message_id, count(*) FILTER (kind = 'sent') AS attempts,
               count(*) FILTER (kind = 'duplicate') AS duplicates,
               count(*) FILTER (kind = 'handed_over') AS handed_over,
               count(*) FILTER (kind = 'confirmed') AS confirmed,
               min("at") FILTER (kind = 'submitted') AS submitted_at,
               min("at") FILTER (kind = 'acknowledged') AS acknowledged_at,
               max("at") FILTER (kind = 'failed') AS failed_at,
               any_value(digest) FILTER (kind = 'submitted') AS digest
        FROM read_parquet($files) WHERE message_id IS NOT NULL GROUP BY message_id
    """
    with duckdb.connect(config={"threads": 2}) as connection:
        return timed(
            lambda: connection.execute(f"SELECT count(attempts), count(digest) FROM ({query})",
                                       {"files": files}).fetchall()
        )  # fmt: skip


class Archive(NamedTuple):
    """An archive read through Spark in two sizes, and the codec alone."""

    few: Spent
    many: Spent
    codec: float
    """Seconds of processor for one message."""

    @property
    def message(self) -> float:
        """The same through Spark: what more of them cost more."""
        return (self.many.cpu - self.few.cpu) / (ENVELOPES - FEW_ENVELOPES)

    @property
    def start(self) -> float:
        """What a pass costs whatever it reads: plan, tasks, workers, Java."""
        return self.few.cpu - FEW_ENVELOPES * self.message


def archive_costs(spark: SparkSession, folder: Path) -> Archive:
    """Both sizes and the codec by turns; the middle pass of each counts, since the machine is
    shared."""
    frames = [_archive(spark, folder, count) for count in (FEW_ENVELOPES, ENVELOPES)]
    found = (one for piece in pieces(str(folder / "archive-few")) for one in contents(piece))
    some = [one.data for one in islice(found, 2_000)]

    def alone() -> None:
        for data in some:
            codec.read_all(open_capture(data).parcel, validation=Validation.REPORT)

    for frame in frames:
        spend(frame)  # Workers start and import on the first pass.
    passes = [
        (timed_here(alone), *(timed(lambda: spend(frame)) for frame in frames))  # noqa: B023
        for _ in range(ARCHIVE_PASSES)
    ]
    by_codec, few, many = (middle(took) for took in zip(*passes, strict=True))
    return Archive(few, many, by_codec.cpu / len(some))


def _archive(spark: SparkSession, folder: Path, count: int) -> DataFrame:
    archive = folder / ("archive-few" if count == FEW_ENVELOPES else "archive")
    if not archive.is_dir():
        write_parcels(spark, archive, make_plan(count, 1), count)
    return spark.read.format("ebxml").load(str(archive))


def middle(took: Sequence[Spent]) -> Spent:
    """What a pass takes, whatever hit single ones."""
    return Spent(median(one.wall for one in took), median(one.cpu for one in took))


def timed_here(work: Callable[[], object]) -> Spent:
    """The same for work in this process alone."""
    used, begin = time.process_time(), time.perf_counter()
    work()
    return Spent(time.perf_counter() - begin, time.process_time() - used)


def driver_memory(lake: Path) -> dict[str, float]:
    """What the driver of a cluster holds after judging a lake, in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-m", "bench.pipeline", "--driver", str(lake)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return found


def peak_mb() -> float:
    """The most this process ever held. `getrusage` would say what its parent held, where that
    is more: its peak survives the start of another program."""
    status = Path("/proc/self/status").read_text()
    return float(status.split("VmHWM:")[1].split()[0]) / 1e3


def drive(lake: Path) -> None:
    spark = open_session("bench", master="local-cluster[2,1,1024]")
    found = judge_lake(spark, Lake(lake))
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    runtime = jvm.java.lang.Runtime.getRuntime()
    for _ in range(3):
        runtime.gc()
    held = {
        "rows": found.rows,
        "heap_mb": (runtime.totalMemory() - runtime.freeMemory()) / 1e6,
        "python_mb": peak_mb(),
    }
    print(json.dumps(held), flush=True)


def report(small: Measured, large: Measured, duck: Spent) -> None:
    for one in (small, large):
        print(
            f"{one.rows:>12,} rows: floor {one.before}, ledger {one.ledger}, floor {one.after}; "
            "ledger / floor {:.2f} (processor {:.2f}, aim <= {})".format(*one.ratio(), AIM_RATIO)
        )
    fold = 10 * small.rows / large.rows
    print(
        f"10 x rows: {fold * large.ledger.wall / small.ledger.wall:.2f} x time "
        f"(processor {fold * large.ledger.cpu / small.ledger.cpu:.2f}, aim <= {AIM_GROWTH})"
    )
    print(f"DuckDB, plain SQL part of it: {duck}", flush=True)


def year(spark: SparkSession, folder: Path, rows: int) -> Lake:
    """A year of about so many rows; one that is there already is taken as it is."""
    lake = Lake(folder / f"year-{rows}")
    if not lake.exists:
        messages = max(1, round(rows / ROWS_PER_MESSAGE))
        took = timed(lambda: generate(spark, lake, messages=messages, seed=1))
        print(f"generated {lake.current().rows('journal'):,} rows in {took}", flush=True)
    return lake


def bench(rows: int, folder: Path, chosen: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    spark = open_session("bench", master="local[2]")
    small, large = folder / f"year-{rows // 10}", folder / f"year-{rows}"
    if "ledger" in chosen:
        years = [year(spark, folder, count) for count in (rows // 10, rows)]
        measure(spark, years[0])  # Workers start, and the JVM compiles what is hot.
        report(measure(spark, years[0]), measure(spark, years[1]), duckdb_seconds(years[1]))
    if "archive" in chosen:
        costs = archive_costs(spark, folder)
        print(
            f"archive: {FEW_ENVELOPES:,} messages {costs.few}, {ENVELOPES:,} {costs.many}: "
            f"{costs.message * 1e6:.0f} us of processor a message and {costs.start:.2f} s a pass; "
            f"codec alone {costs.codec * 1e6:.0f} us: {costs.codec / costs.message:.2f}, with the "
            f"pass {costs.codec * ENVELOPES / costs.many.cpu:.2f} (aim >= {AIM_ARCHIVE})",
            flush=True,
        )
    spark.stop()
    for lake in (small, large) if "driver" in chosen else ():
        held = driver_memory(lake)
        print(
            f"driver after {held['rows']:>12,.0f} rows: heap {held['heap_mb']:.0f} MB, "
            f"Python {held['python_mb']:.0f} MB (aim: no growth)",
            flush=True,
        )


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--driver"]:
        drive(Path(arguments[1]))
        return
    rows = int(arguments[0]) if arguments else 10_000_000
    if len(arguments) > 1:
        bench(rows, Path(arguments[1]), arguments[2:] or PARTS)
        return
    with tempfile.TemporaryDirectory(prefix="oncewire-bench-") as folder:
        bench(rows, Path(folder), PARTS)


if __name__ == "__main__":
    main(sys.argv[1:])
