"""A year of a million messages: is exactly found what was planted, and what does one per cent cost?

    python -m bench.pipeline_year [messages] [folder]

Generates the year (unless the folder has it), takes 99 per cent of its rows by time into a lake and
then the rest, judges it with `verify`, and compares both verdicts with the answer key. Prints the
processor time of each step, what the longest of the processes held, and how much was read and
written by the second run. Ends with status 1 where anything is missed, invented or too dear.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from bench.pipeline import Spent, timed
from bench.pipeline_runs import AIM_MORE, Journals
from oncewire.lab.sample_year.generate import generate
from oncewire.pipeline import jobs
from oncewire.pipeline.judging.check import judge_lake
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES, SEED = 1_000_000, 6

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


def bench(messages: int, folder: Path) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    spark = open_session("bench", master="local[2]")
    source, planted = year_of(spark, folder, messages)
    with tempfile.TemporaryDirectory(prefix="oncewire-bench-", dir=folder) as aside:
        journals, lake = Journals.of_lake(source, Path(aside) / "more"), Lake(Path(aside) / "lake")
        spent: list[Spent] = []
        for share in (0.99, 1):
            journals.grow(share)
            rows = lake.current_or_new().rows("journal")
            # Read months later, what waited at the end of the year would be lost by then.
            spent.append(
                timed(
                    lambda: jobs.run(spark, lake, [journals.folder], now=journals.until, tell=tell)
                )
            )
            added = lake.current().rows("journal") - rows
            print(f"run: {added:,} rows more than {rows:,} in {spent[-1]}", flush=True)
        ratio = spent[1].cpu / spent[0].cpu
        print(f"{ratio:.3f} of the processor time (aim <= {AIM_MORE})", flush=True)
        right = same("gold", gold(lake), planted)
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
