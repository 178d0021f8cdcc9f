"""A year of a million messages: is exactly found what was planted, and what does one per cent cost?

    python -m bench.pipeline_year [messages] [folder]

Generates the year (unless the folder has it), takes 99 per cent of its rows by time into a lake and
then the rest; then a tenth and three tenths into new ones, to see what a row costs in each size.
Judges the whole with `verify`, and compares both verdicts with the answer key. Prints the processor
time of each step and the most that a process held until then. Ends with status 1 where anything is
missed, invented or too dear.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from bench.pipeline import Spent, timed
from bench.pipeline_runs import AIM_MORE
from oncewire.journal.row import JOURNAL_VERSION
from oncewire.lab.sample_year.generate import generate
from oncewire.pipeline import jobs
from oncewire.pipeline.judging.check import judge_lake
from oncewire.pipeline.lake.columns import JOURNAL
from oncewire.pipeline.lake.lake import ROWS_IN_GROUP, Lake
from oncewire.pipeline.lake.version import write_node_file
from oncewire.pipeline.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES, SEED = 1_000_000, 6
SHARES = (0.01, 0.1, 0.3, 0.99, 1.0)
"""Of the rows by time: how far journals go. The first is for the session to get warm."""
WARM, TENTH, THIRD, MOST, WHOLE = range(5)

Key = Counter[tuple[str, str | None]]


def year_of(spark: SparkSession, folder: Path, messages: int) -> tuple[Lake, Key]:
    """A year and its answer key; one that is there already is taken as it is."""
    lake, answers = Lake(folder / f"year-of-{messages}"), folder / f"key-of-{messages}.json"
    if not lake.exists:
        took = timed(
            lambda: generate(spark, lake, messages=messages, seed=SEED, violations=answers)
        )
        print(f"generated {lake.current().rows('journal'):,} rows in {took}", flush=True)
    said = json.loads(answers.read_text(encoding="utf-8"))
    return lake, Counter((found["kind"], found["message_id"]) for found in said)


def peaks() -> dict[str, float]:
    """The most that any process below this one ever held, in megabytes, by kind of process."""
    parents, held, names = {}, {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "status").read_text()
            command = (folder / "cmdline").read_text()
        except OSError:
            continue  # It ended meanwhile.
        process = int(folder.name)
        fields = dict(line.split(":", 1) for line in status.splitlines())
        parents[process] = int(fields["PPid"])
        held[process] = float(fields.get("VmHWM", "0 kB").split()[0]) / 1e3
        names[process] = "java" if "java" in command.split("\0")[0] else "worker"
    found = {"driver": held[os.getpid()]}
    for process in parents:
        above = parents.get(process)
        while above is not None and above != os.getpid():
            above = parents.get(above)
        if above is not None:
            found[names[process]] = max(found.get(names[process], 0), held[process])
    return found


def same(what: str, found: Key, planted: Key) -> bool:
    missed, invented = planted - found, found - planted
    print(
        f"{what}: {found.total():,} findings, {missed.total()} missed, {invented.total()} invented",
        flush=True,
    )
    told, meant = (Counter(kind for kind, _ in key.elements()) for key in (found, planted))
    for kind in sorted({*told, *meant}):
        print(f"  {kind}: {told[kind]} of {meant[kind]}", flush=True)
    return not missed and not invented


def gold(lake: Lake) -> Key:
    """What the table `violations` has."""
    import pyarrow.dataset as ds

    found: Key = Counter()
    for folder in lake.folders(lake.current(), "violations"):
        for row in ds.dataset(folder, format="parquet").to_table().to_pylist():
            found[row["kind"], row["message_id"]] += 1
    return found


def tell(step: str) -> None:
    if not step.startswith("taking in"):
        print(f"  {step}; held {shown(peaks())}", flush=True)


def shown(held: dict[str, float]) -> str:
    return ", ".join(f"{name} {size:,.0f} MB" for name, size in held.items())


def divide(year: Path, aside: Path) -> list[int]:
    """Write the journals of a year in pieces by time, node by node, because one is held whole, and
    in groups of rows as runs write them; until when each piece goes."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    lake = Lake(year)
    found = {
        entry.key: ds.dataset(lake.root / entry.path, format="parquet")
        for entry in lake.current().journal
    }
    instants = pa.concat_tables([one.to_table(columns=["at"]) for one in found.values()])["at"]
    until: list[int] = pc.quantile(instants, SHARES, interpolation="lower").to_pylist()
    for node, one in found.items():
        rows, start = one.to_table(columns=JOURNAL.fieldNames()).sort_by("seq"), 0
        for number, last in enumerate(until):
            # A journal is in the order of its positions, whatever its clock did.
            count = pc.sum(pc.less_equal(rows["at"], last)).as_py()
            end = len(rows) if number == len(until) - 1 else count
            if end > start:
                folder = aside / str(number) / node
                folder.mkdir(parents=True)
                pq.write_table(
                    rows.slice(start, end - start),
                    folder / f"part-{number}.parquet",
                    row_group_size=ROWS_IN_GROUP,
                )
            start = max(start, end)
    return until


def go_on(aside: Path, numbers: Iterable[int], journals: Path) -> None:
    """Let journals have these pieces more."""
    for number in numbers:
        for part in sorted((aside / str(number)).glob("*/*.parquet")):
            folder = journals / part.parent.name
            if not folder.is_dir():
                folder.mkdir(parents=True)
                write_node_file(folder, part.parent.name, JOURNAL_VERSION)
            (folder / part.name).hardlink_to(part)


def bench(messages: int, folder: Path) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    spark = open_session("bench", master="local[2]")
    source, planted = year_of(spark, folder, messages)
    print(f"held {shown(peaks())}", flush=True)
    with tempfile.TemporaryDirectory(prefix="oncewire-bench-", dir=folder) as made:
        aside = Path(made) / "pieces"
        # In a process of its own, so that what the driver held is what runs need.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            until = pool.submit(divide, source.root, aside).result()

        def run(name: str, begin: int, end: int) -> tuple[Lake, Spent]:
            """Take these pieces in; each name is a lake."""
            lake, journals = Lake(Path(made) / name), Path(made) / f"journals of {name}"
            go_on(aside, range(begin, end + 1), journals)
            rows = lake.current_or_new().rows("journal")
            # Read months later, what waited at the end of the year would be lost by then.
            took = timed(lambda: jobs.run(spark, lake, [journals], now=until[end], tell=tell))
            added = lake.current().rows("journal") - rows
            print(
                f"run: {added:,} rows more than {rows:,} in {took}: "
                f"{took.cpu / added * 1e6:.0f} us of processor a row; held {shown(peaks())}",
                flush=True,
            )
            return lake, took

        run("warm", 0, WARM)
        lake, most = run("year", 0, MOST)
        _, rest = run("year", WHOLE, WHOLE)
        ratio = rest.cpu / most.cpu
        print(f"{ratio:.3f} of the processor time (aim <= {AIM_MORE})", flush=True)
        right = same("gold", gold(lake), planted)
        run("tenth", 0, TENTH)
        run("third", 0, THIRD)
        judged = []
        took = timed(lambda: judged.append(judge_lake(spark, lake, tell=tell)))
        print(f"verify: {judged[0].rows:,} rows in {took}; held {shown(peaks())}", flush=True)
        found = Counter((one.kind, one.message_id) for one in judged[0].violations)
        right = same("verify", found, planted) and right and ratio <= AIM_MORE
    spark.stop()
    return right


def main(arguments: list[str]) -> int:
    messages = int(arguments[0]) if arguments else MESSAGES
    if len(arguments) > 1:
        return 0 if bench(messages, Path(arguments[1])) else 1
    with tempfile.TemporaryDirectory(prefix="oncewire-bench-") as folder:
        return 0 if bench(messages, Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
