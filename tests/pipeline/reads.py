"""The tools that read a lake, and reading with all of them while runs publish."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice, product
from pathlib import Path
from typing import NamedTuple

import deltalake
import duckdb
import pandas as pd
import polars as pl
import pyarrow.dataset as ds

from oncewire.pipeline import jobs
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.lake.tables import OPEN
from tests.pipeline.books import make_stores, small_year

SHOWN = {
    "ledger": ["message_id", "verdict", "judgement", "attempts"],
    "sequence_gaps": ["node", "channel", "side", "first_missing", "missing_count", "state"],
    "partner_service": ["node", "direction", "messages", "delivered_count", "arrived_count"],
    "violations": ["predicate", "kind"],
    "judged": ["clock", "open_count", "not_yet_count", "in_doubt_count"],
    "messages": ["node", "message_id", "event"],
    "attempts": ["node", "message_id", "event"],
    "hops": ["node", "message_id", "event"],
}
"""The tables that each run brings up to date, and columns of each that are never empty: every tool
has its own nothing."""

GONE = ("No such file", "not found", "NotFound", "does not exist", "No files found", "FAILED_READ")
"""What tools say of a file that is not there any more."""

Content = frozenset[tuple[tuple[object, ...], int]]
"""The rows of a table, and how often each is there."""


def content_of(rows: Iterable[tuple[object, ...]]) -> Content:
    return frozenset(Counter(tuple(row) for row in rows).items())


class Reader:
    """One tool, and how often its version was gone before it had read it."""

    def __init__(
        self, name: str, read: Callable[[str, list[str]], Iterable[tuple[object, ...]]]
    ) -> None:
        self.name, self._read = name, read
        self.gone = 0

    def content(self, table: str) -> Content:
        """A table as it reads it."""
        for _ in range(20):
            try:
                return content_of(self._read(table, SHOWN[table]))
            except Exception as error:
                if not any(word in str(error) for word in GONE):
                    raise
                self.gone += 1
        raise AssertionError(f"{self.name} never came to the end of a version")


def readers(spark, lake: Lake) -> list[Reader]:
    def folder(table: str) -> Path:
        return lake.root / OPEN[table].root

    def by_duckdb(table: str, columns: list[str]) -> list[tuple[object, ...]]:
        files = f"read_parquet('{folder(table)}/current/*.parquet')"
        with duckdb.connect() as connection:
            return connection.execute(f"SELECT {', '.join(columns)} FROM {files}").fetchall()

    def by_pandas(table: str, columns: list[str]) -> Iterable[tuple[object, ...]]:
        return pd.read_parquet(folder(table), columns=columns).itertuples(index=False, name=None)

    def by_delta(table: str, columns: list[str]) -> Iterable[tuple[object, ...]]:
        found = deltalake.DeltaTable(str(folder(table))).to_pandas(columns=columns)
        return found.itertuples(index=False, name=None)

    def by_polars(table: str, columns: list[str]) -> list[tuple[object, ...]]:
        # Without pyarrow it looks for `a%20lake`, in tables of any writer.
        return pl.read_delta(str(folder(table)), use_pyarrow=True).select(columns).rows()

    def by_spark(table: str, columns: list[str]) -> list[tuple[object, ...]]:
        found = spark.read.format("oncewire").option("table", table).load(str(lake.root))
        return found.select(*columns).collect()

    return [
        Reader("DuckDB", by_duckdb),
        Reader("pandas", by_pandas),
        Reader("pandas through Delta", by_delta),
        Reader("Polars", by_polars),
        Reader("Spark", by_spark),
    ]


class Read(NamedTuple):
    """What one read found."""

    tool: str
    table: str
    content: Content
    first: int
    last: int
    """The versions that were current when it began and when it ended."""


class Meanwhile(NamedTuple):
    """Reads, and the versions that were published while they went on."""

    reads: list[Read]
    versions: int
    gone: Counter[str]
    """How often each tool found its version gone, and read again."""

    def reads_of(self, tool: str) -> list[Read]:
        return [read for read in self.reads if read.tool == tool]

    def across(self) -> int:
        """Reads in the middle of which another version was published."""
        return sum(read.first != read.last for read in self.reads)


class Publishing:
    """A year that is taken in step by step, and what each version has in its tables."""

    def __init__(self, spark, folder: Path, messages: int, steps: int) -> None:
        _, self._nodes = small_year(messages, 7)
        self._spark, self._folder, self._steps = spark, folder, steps
        self.lake = Lake(folder / "a lake")
        self.versions: dict[tuple[str, Content], list[int]] = {}
        """By table and content: the versions that have it."""

    def step(self, step: int) -> None:
        # The first is half of the year, so that there is something to read from the beginning.
        start, end, last = (self._steps + step - 1 if step else 0), self._steps + step, self._last
        part = {
            node: rows[len(rows) * start // last : len(rows) * end // last]
            for node, rows in self._nodes.items()
        }
        jobs.run(self._spark, self.lake, make_stores(self._folder / "stores", part))
        self._note()

    def until(self, over: threading.Event) -> None:
        """Publish on, and never come to the end of the year before the reads do."""
        for step in range(1, self._steps):
            if over.is_set():
                return
            self.step(step)
        assert over.is_set(), "all was published before all was read: this needs more steps"

    @property
    def _last(self) -> int:
        return 2 * self._steps - 1

    def _note(self) -> None:
        """The tables of the current version, by its own list of directories."""
        version = self.lake.current()
        for table, columns in SHOWN.items():
            files = self.lake.files(version, OPEN[table].entries(version))
            found = [ds.dataset(file, format="parquet").to_table(columns=columns) for file in files]
            content = content_of(tuple(row.values()) for rows in found for row in rows.to_pylist())
            self.versions.setdefault((table, content), []).append(version.number)


def read_meanwhile(spark, folder: Path, *, messages: int, steps: int, reads: int) -> Meanwhile:
    """Read the tables with every tool by turns, while runs publish without a pause: so often,
    and on until a version was published in the middle of a read."""
    publishing = Publishing(spark, folder, messages, steps)
    publishing.step(0)
    lake, over = publishing.lake, threading.Event()
    tools, found = readers(spark, lake), list[Read]()
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(publishing.until, over)
        try:
            for table, tool in islice(cycle(product(SHOWN, tools)), 100 * reads):
                if len(found) >= reads and any(read.first != read.last for read in found):
                    break
                first = lake.current().number
                content = tool.content(table)
                found.append(Read(tool.name, table, content, first, lake.current().number))
        finally:
            over.set()
        writer.result()
    for read in found:
        check_version(read, publishing.versions)
    published = found[-1].last - found[0].first
    return Meanwhile(found, published, Counter({tool.name: tool.gone for tool in tools}))


def check_version(read: Read, versions: dict[tuple[str, Content], list[int]]) -> None:
    """It is one version, whole, and none that was out of date: what other tools see follows the
    pointer, so it may be one behind."""
    numbers = versions.get((read.table, read.content), [])
    assert numbers, f"{read.tool} read a {read.table} that was never published"
    assert any(read.first - 1 <= number <= read.last for number in numbers), (
        f"{read.tool} read {read.table} of version {numbers}, while {read.first} to {read.last} "
        "were current"
    )
