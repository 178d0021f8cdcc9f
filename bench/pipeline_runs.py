"""What a run costs when little is new, as ratios within one run.

    python -m bench.pipeline_runs [rows] [folder]

Takes a year (of 200,000 rows unless said otherwise) apart by time, and takes it into lakes again:
one per cent more against the whole; 400 and 10,000 rows more on 100,000, against one Spark job with
one shuffle; 200 messages; batches of a stream; many small runs, and what they leave for `verify`;
one channel with nine tenths of the messages against ten equal ones.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.pipeline import Spent, counting, middle, processor_seconds, spend, timed, year
from oncewire.journal.row import JOURNAL_VERSION, Row
from oncewire.lab.sample_year.generate import rows_of_year
from oncewire.lab.sample_year.plan import Plan, make_plan
from oncewire.pipeline import jobs
from oncewire.pipeline.judging.check import judge_lake
from oncewire.pipeline.lake.columns import JOURNAL, arrow, nullable
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.lake.tables import batch_of
from oncewire.pipeline.lake.version import write_node_file
from oncewire.pipeline.session import open_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

ROWS = 200_000
RUNS, PASSES = 150, 9
BATCH, BATCHES = 400, 12
SKEWED = 20_000
BEFORE, FEW, FEW_PASSES = 100_000, (400, 10_000), 5
AIM_MORE, AIM_LITTLE, AIM_VERIFY, AIM_BATCH, AIM_HOT = 0.05, 10.0, 1.3, 5.0, 1.8
AIM_FEW = 4.0


class Journals:
    """The journals of several nodes, which grow by one file each."""

    def __init__(self, folder: Path, nodes: dict[str, pa.Table]) -> None:
        self.folder, self._nodes = folder, nodes
        self._taken = dict.fromkeys(nodes, 0)
        self.until = 0
        """The last instant that they tell of: whoever reads them reads them then."""
        self.written: list[Path] = []
        self.newest: list[Path] = []
        """Their files, and those of the last time that they grew."""
        self._files = count()
        for node in nodes:
            (folder / node).mkdir(parents=True)
            write_node_file(folder / node, node, JOURNAL_VERSION)

    @classmethod
    def of_lake(cls, lake: Lake, folder: Path) -> Journals:
        """Those of a lake."""
        import pyarrow.dataset as ds

        version = lake.current()
        found = {}
        for entry in version.journal:
            rows = ds.dataset(lake.root / entry.path, format="parquet").to_table()
            found[entry.key] = rows.select(JOURNAL.fieldNames()).sort_by("seq")
        return cls(folder, found)

    @classmethod
    def of_rows(cls, rows: Iterable[Row], folder: Path) -> Journals:
        """Those that rows make."""
        import pyarrow as pa

        nodes: dict[str, list[Row]] = {}
        for row in rows:
            nodes.setdefault(row.node, []).append(row)
        shape = arrow(nullable(JOURNAL))
        return cls(
            folder,
            {
                node: pa.Table.from_batches([batch_of(list(zip(*some, strict=True)), shape)])
                for node, some in nodes.items()
            },
        )

    def grow(self, share: float) -> None:
        """Let each journal go as far as such a share of all rows, by time."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        instants = pa.concat_arrays(
            [chunk for rows in self._nodes.values() for chunk in rows["at"].chunks]
        )
        until = pc.quantile(instants, share, interpolation="lower")[0].as_py()
        self.until, self.newest = until, []
        for node, rows in self._nodes.items():
            start = self._taken[node]
            # A journal is in the order of its positions, whatever its clock did.
            end = pc.sum(pc.less_equal(rows["at"], until)).as_py() if share < 1 else len(rows)
            if end > start:
                file = self.folder / node / f"part-{next(self._files):05d}.parquet"
                pq.write_table(rows.slice(start, end - start), file)
                self.newest.append(file)
                self._taken[node] = end
        self.written += self.newest


def more(spark: SparkSession, source: Lake, folder: Path) -> None:
    """One per cent more rows, against the whole."""
    journals = Journals.of_lake(source, folder / "more")
    lake = Lake(folder / "more-lake")
    journals.grow(0.99)
    whole = timed(lambda: jobs.run(spark, lake, [journals.folder]))
    rows = lake.current().rows("journal")
    journals.grow(1)
    little = timed(lambda: jobs.run(spark, lake, [journals.folder]))
    added = lake.current().rows("journal") - rows
    print(
        f"run: {rows:,} rows {whole}, {added:,} more {little}: "
        f"{little.cpu / whole.cpu:.3f} of the processor time (aim <= {AIM_MORE})",
        flush=True,
    )


def few(spark: SparkSession, source: Lake, folder: Path) -> None:
    """Some rows more on many, each time beside one job with one shuffle: of these, and of all."""
    journals = Journals.of_lake(source, folder / "few")
    lake, every = Lake(folder / "few-lake"), source.current().rows("journal")
    took: dict[tuple[int, str], list[Spent]] = {}
    taken = BEFORE
    journals.grow(taken / every)
    jobs.run(spark, lake, [journals.folder], now=journals.until)
    # The first pass of each size warms.
    for number, rows in [(number, rows) for number in range(FEW_PASSES + 1) for rows in FEW]:
        taken += rows
        journals.grow(taken / every)
        found = {
            "run": timed(lambda: jobs.run(spark, lake, [journals.folder], now=journals.until)),
            "floor": timed(lambda: one_shuffle(spark, lake, journals.newest)),
            "floor of all": timed(lambda: one_shuffle(spark, lake, journals.written)),
        }
        for name, spent in found.items() if number else ():
            took.setdefault((rows, name), []).append(spent)
    for rows in FEW:
        run, floor, of_all = (middle(took[rows, name]) for name in found)
        print(
            f"{rows:,} rows more on {BEFORE:,}: {run}; one job with one shuffle of them {floor}, "
            f"of all {of_all}: wall {run.wall / floor.wall:.1f} and {run.wall / of_all.wall:.1f} "
            f"(aim <= {AIM_FEW}), processor {run.cpu / floor.cpu:.1f} and "
            f"{run.cpu / of_all.cpu:.1f}",
            flush=True,
        )


def one_shuffle(spark: SparkSession, lake: Lake, files: Sequence[Path]) -> None:
    """One job: rows of journals, by message, through a fold that only counts."""
    rows = lake.read_folders(spark, JOURNAL, list(map(str, files)))
    by_message = rows.repartition(2, "message_id").sortWithinPartitions("message_id")
    spend(by_message.mapInArrow(counting("message_id"), "keys long"))


def many(spark: SparkSession, source: Lake, folder: Path) -> None:
    """Many small runs, and what `verify` costs then against a lake of one run."""
    journals = Journals.of_lake(source, folder / "many")
    lake, fresh = Lake(folder / "many-lake"), Lake(folder / "fresh-lake")
    journals.grow(0.6)
    jobs.run(spark, lake, [journals.folder])
    spent = []
    for number in range(RUNS):
        journals.grow(0.6 + 0.4 * (number + 1) / RUNS)
        spent.append(timed(lambda: jobs.run(spark, lake, [journals.folder])))
    jobs.run(spark, fresh, [journals.folder])
    found = [judge_lake(spark, one) for one in (lake, fresh)]  # Warm, and the same.
    if found[0].violations != found[1].violations or found[0].rows != found[1].rows:
        raise SystemExit("many runs and one do not find the same")
    # By turns, because what else the machine does hits both alike, and the middle one counts.
    passes = [
        [timed(lambda: judge_lake(spark, one)) for one in (lake, fresh)]  # noqa: B023
        for _ in range(PASSES)
    ]
    old, new = (middle([both[index] for both in passes]) for index in (0, 1))
    ratios = sorted(both[0].cpu / both[1].cpu for both in passes)
    fifth = RUNS // 5
    begin, end = (median(run.cpu for run in some) for some in (spent[:fifth], spent[-fifth:]))
    print(
        f"{RUNS} runs: the first {begin:.2f} s of processor each, the last {end:.2f}; "
        f"verify {old}, of one run {new}: wall {old.wall / new.wall:.2f}, "
        f"processor {old.cpu / new.cpu:.2f} (aim <= {AIM_VERIFY}; "
        f"single passes {ratios[0]:.2f} to {ratios[-1]:.2f}, median {median(ratios):.2f})",
        flush=True,
    )


def little(spark: SparkSession, folder: Path) -> None:
    """200 messages in a warm session."""
    journals = Journals.of_rows(rows_of_year(make_plan(200, 7, 20)), folder / "little")
    journals.grow(1)
    lake = Lake(folder / "little-lake")

    def both() -> None:
        jobs.run(spark, lake, [journals.folder])
        judge_lake(spark, lake)

    print(f"200 messages, run and verify: {timed(both)} (aim <= {AIM_LITTLE} s)", flush=True)


def stream(spark: SparkSession, source: Lake, folder: Path) -> None:
    """Batches of a stream."""
    every = Journals.of_lake(source, folder / "every")
    node, rows = max(every._nodes.items(), key=lambda pair: len(pair[1]))
    journals = Journals(folder / "stream", {node: rows.slice(0, BATCH * BATCHES)})
    journals.grow(1)
    begun: list[tuple[float, float]] = []

    def tell(step: str) -> None:
        if step.startswith("batch"):
            begun.append((time.perf_counter(), processor_seconds()))

    lake = Lake(folder / "stream-lake")
    jobs.stream(spark, lake, [journals.folder], rows_per_batch=BATCH, tell=tell)
    begun.append((time.perf_counter(), processor_seconds()))
    took = [Spent(later[0] - one[0], later[1] - one[1]) for one, later in pairwise(begun[2:])]
    print(f"stream: a batch of {BATCH} rows {middle(took)} (aim <= {AIM_BATCH} s)", flush=True)


def skewed(messages: int, shares: Sequence[float]) -> Plan:
    """A year of ordered channels alone, each with its share of the messages, and no faults."""
    plain = make_plan(messages, 5)
    (pattern,) = [stream for stream in plain.streams if stream.terms.ordered][:1]
    companies = plain.handlers
    streams = tuple(
        replace(
            pattern,
            index=index,
            sender=companies[index % len(companies)],
            receiver=companies[(index + 1) % len(companies)],
            count=round(messages * share),
            forces={},
        )
        for index, share in enumerate(shares)
    )
    return replace(plain, streams=streams, violations=())


def hot(spark: SparkSession, folder: Path) -> None:
    """One channel with nine tenths of the messages, against ten that have as many each."""
    found: dict[str, list[Spent]] = {}
    lakes = {}
    for name, shares in (("even", [0.1] * 10), ("hot", [0.9] + [0.1 / 9] * 9)):
        journals = Journals.of_rows(rows_of_year(skewed(SKEWED, shares)), folder / name)
        journals.grow(1)
        lakes[name] = Lake(folder / f"{name}-lake")
        jobs.run(spark, lakes[name], [journals.folder])
    for number in range(4):
        for name, lake in lakes.items():
            took = timed(lambda: judge_lake(spark, lake))  # noqa: B023
            if number:
                found.setdefault(name, []).append(took)
    one, ten = min(found["hot"]), min(found["even"])
    print(
        f"a hot channel: verify {one}, ten equal ones {ten}: wall {one.wall / ten.wall:.2f} "
        f"(aim <= {AIM_HOT}), processor {one.cpu / ten.cpu:.2f}",
        flush=True,
    )


def bench(rows: int, folder: Path, chosen: Sequence[str] = ()) -> None:
    spark = open_session("bench", master="local[2]")
    source = year(spark, folder, rows)
    judge_lake(spark, source)  # Workers start, and the JVM compiles what is hot.
    with tempfile.TemporaryDirectory(prefix="oncewire-bench-") as aside:
        parts = {
            "more": lambda: more(spark, source, Path(aside)),
            "few": lambda: few(spark, source, Path(aside)),
            "little": lambda: little(spark, Path(aside)),
            "stream": lambda: stream(spark, source, Path(aside)),
            "many": lambda: many(spark, source, Path(aside)),
            "hot": lambda: hot(spark, Path(aside)),
        }
        for name, part in parts.items():
            if not chosen or name in chosen:
                part()
    spark.stop()


def main(arguments: list[str]) -> None:
    rows = int(arguments[0]) if arguments else ROWS
    if len(arguments) > 1:
        bench(rows, Path(arguments[1]), arguments[2:])
        return
    with tempfile.TemporaryDirectory(prefix="oncewire-bench-") as folder:
        bench(rows, Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
