"""The tools that read a lake, and reading with all of them while runs publish."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import cycle, islice
from pathlib import Path

import deltalake
import duckdb
import pandas as pd
import polars as pl
import pyarrow.dataset as ds

from oncewire.pipeline import jobs
from oncewire.pipeline.lake import Lake
from oncewire.pipeline.tables import OPEN
from tests.pipeline.books import make_stores, small_year

COLUMNS = ["message_id", "verdict", "extent", "attempts"]
GONE = ("No such file", "not found", "NotFound", "does not exist", "No files found", "FAILED_READ")
"""What tools say of a file that is not there any more."""

Content = frozenset[tuple[object, ...]]


class Reader:
    """One tool, and how often its version was gone before it had read it."""

    def __init__(self, name: str, read: Callable[[], Iterable[tuple[object, ...]]]) -> None:
        self.name, self._read = name, read
        self.gone = 0

    def content(self) -> Content:
        """The ledger as it reads it; a row that comes twice is none."""
        for _ in range(20):
            try:
                rows = [tuple(row) for row in self._read()]
            except Exception as error:
                if not any(word in str(error) for word in GONE):
                    raise
                self.gone += 1
                continue
            assert len(rows) == len(set(rows)), self.name
            return frozenset(rows)
        raise AssertionError(f"{self.name} never came to the end of a version")


def readers(spark, lake: Lake) -> list[Reader]:
    path = str(lake.root / "gold/ledger")
    names = ", ".join(COLUMNS)

    def by_duckdb() -> list[tuple[object, ...]]:
        files = f"read_parquet('{path}/current/*.parquet')"
        with duckdb.connect() as connection:
            return connection.execute(f"SELECT {names} FROM {files}").fetchall()

    def by_pandas() -> Iterable[tuple[object, ...]]:
        return pd.read_parquet(path, columns=COLUMNS).itertuples(index=False, name=None)

    def by_delta() -> Iterable[tuple[object, ...]]:
        found = deltalake.DeltaTable(path).to_pandas(columns=COLUMNS)
        return found.itertuples(index=False, name=None)

    def by_polars() -> list[tuple[object, ...]]:
        # Without pyarrow it looks for `a%20lake`, in tables of any writer.
        return pl.read_delta(path, use_pyarrow=True).select(COLUMNS).rows()

    def by_spark() -> list[tuple[object, ...]]:
        table = spark.read.format("oncewire").option("table", "ledger").load(str(lake.root))
        return table.select(*COLUMNS).collect()

    return [
        Reader("DuckDB", by_duckdb),
        Reader("pandas", by_pandas),
        Reader("pandas through Delta", by_delta),
        Reader("Polars", by_polars),
        Reader("Spark", by_spark),
    ]


def published(lake: Lake) -> Content:
    """The ledger of the current version, by its own list of directories."""
    folders = [str(lake.root / entry.path) for entry in OPEN["ledger"].entries(lake.current())]
    found = [ds.dataset(folder, format="parquet").to_table(columns=COLUMNS) for folder in folders]
    return frozenset(tuple(row.values()) for table in found for row in table.to_pylist())


def read_meanwhile(spark, folder: Path, *, messages: int, steps: int, reads: int) -> Counter[str]:
    """Publish until all is read; how many versions each tool saw."""
    _, nodes = small_year(messages, 7)
    lake = Lake(folder / "a lake")
    versions: list[Content] = []
    over = threading.Event()

    def publish(step: int) -> None:
        # The first is half of the year: readers of plain files find none in an empty table.
        start, end = (steps + step - 1 if step else 0), steps + step
        part = {
            node: rows[len(rows) * start // (2 * steps - 1) : len(rows) * end // (2 * steps - 1)]
            for node, rows in nodes.items()
        }
        jobs.run(spark, lake, make_stores(folder / "stores", part))
        versions.append(published(lake))

    def publish_on() -> None:
        for step in range(1, steps):
            if over.is_set():
                return
            publish(step)

    publish(0)
    writer = threading.Thread(target=publish_on)
    writer.start()
    every = readers(spark, lake)
    seen: list[tuple[str, Content]] = []
    try:
        seen.extend((reader.name, reader.content()) for reader in islice(cycle(every), reads))
    finally:
        over.set()
        writer.join()
    known = set(versions)
    for name, content in seen:
        assert content in known, f"{name} read what was never published"
    assert len(seen) == reads
    return Counter({name: len({c for n, c in seen if n == name}) for name, _ in seen})
