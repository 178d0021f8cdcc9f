"""Delta's logs and the plain folders beside them: many versions, and tables without rows."""

import json
import os
import time
from datetime import UTC, date, datetime
from pathlib import Path

import deltalake
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DateType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from oncewire.pipeline.lake import delta
from oncewire.pipeline.lake.columns import VIOLATIONS, arrow, nullable
from oncewire.pipeline.lake.lake import Lake, TableFile
from oncewire.pipeline.lake.tables import OPEN, data_path
from oncewire.pipeline.lake.version import READABLE_FOR, Entry, Version
from tests.pipeline.books import write_rows

SHAPE = arrow(nullable(VIOLATIONS))


def rows_of(number: int) -> pa.Table:
    """A table whose one row says in which version it came."""
    row = dict.fromkeys(SHAPE.names) | {"kind": f"k{number}"}
    return pa.Table.from_pylist([row], schema=SHAPE)


def written(lake: Lake, number: int, name: str) -> Entry:
    path = data_path("violations", name)
    return write_rows(lake, "violations", path, rows_of(number), VIOLATIONS)


def follow(lake: Lake, before: Version, *numbers: int, keep: float = READABLE_FOR) -> Version:
    """Versions that replace the row of the last and leave that of the first."""
    first = written(lake, 0, "first")
    for number in numbers:
        made = written(lake, number, f"v{number:08d}")
        version = Version(number=number, readable_for=keep)
        version = version.with_table("violations", [first, made])
        delta.follow(lake.root, version, before, number * 1_000_000)
        before = version
    return before


def kinds(path: str, version: int | None = None) -> list[str]:
    found = deltalake.DeltaTable(path, version=version).to_pyarrow_table()
    return sorted(found["kind"].to_pylist())


def aged(log: Path, seconds: float) -> None:
    """As if all of a log had been written so long ago."""
    for file in log.iterdir():
        os.utime(file, (time.time() - seconds,) * 2)


def test_a_log_of_many_versions_is_read_from_a_checkpoint(tmp_path: Path) -> None:
    """What lies before it goes when versions of that time cannot be read any more."""
    lake, every = Lake(tmp_path), delta.CHECKPOINT_EVERY
    path = tmp_path / "gold/violations"
    before = follow(lake, Version(), *range(1, 2 * every - 1))
    aged(path / delta.LOG, 2 * READABLE_FOR)
    last = 5 * every // 2
    follow(lake, before, *range(2 * every - 1, last))
    files = sorted(file.name for file in (path / delta.LOG).glob("[0-9]*.json"))
    assert len(files) < 2 * every
    assert kinds(str(path)) == ["k0", f"k{last - 1}"]
    assert sorted(pl.read_delta(str(path))["kind"]) == ["k0", f"k{last - 1}"]
    pointed = json.loads((path / delta.LOG / delta.LAST_CHECKPOINT).read_text())
    assert pointed["version"] == 2 * every - 1
    table = deltalake.DeltaTable(str(path))
    assert table.version() == last - 2
    assert json.loads(table.schema().to_json()) == json.loads(nullable(VIOLATIONS).json())
    # A reader that began with the checkpoint before finds all that it leads to.
    for number in (every, 2 * every):
        assert kinds(str(path), number) == ["k0", f"k{number + 1}"]


def test_versions_stay_in_the_log_as_long_as_the_lake_keeps_them(tmp_path: Path) -> None:
    lake, every = Lake(tmp_path), delta.CHECKPOINT_EVERY
    path = tmp_path / "gold/violations"
    before = follow(lake, Version(), *range(1, every - 1), keep=7 * 86_400.0)
    aged(path / delta.LOG, 6 * 86_400.0)
    follow(lake, before, *range(every - 1, every + 3), keep=7 * 86_400.0)
    assert kinds(str(path), 3) == ["k0", "k4"]
    table = deltalake.DeltaTable(str(path))
    assert table.metadata().configuration == {delta.RETENTION: "interval 604800 seconds"}
    # It is told otherwise.
    follow(lake, Version(), every + 3)
    table = deltalake.DeltaTable(str(path))
    assert table.metadata().configuration == {delta.RETENTION: "interval 60 seconds"}


@pytest.mark.parametrize("unwritten", ["create_checkpoint", "cleanup_metadata"])
def test_a_log_that_a_killed_run_did_not_sum_up_is_summed_up_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unwritten: str
) -> None:
    """Killed after the commit, before its checkpoint; or before what it sums up is cleared away."""
    lake, every = Lake(tmp_path), delta.CHECKPOINT_EVERY

    def killed(table: deltalake.DeltaTable) -> None:
        raise KeyboardInterrupt

    before = follow(lake, Version(), *range(1, every))
    with monkeypatch.context() as dying:
        dying.setattr(deltalake.DeltaTable, unwritten, killed)
        with pytest.raises(KeyboardInterrupt):
            follow(lake, before, every)
    # The next run finds that its version was not shown.
    kept = [Entry(data_path("violations", name), 1) for name in ("first", f"v{every:08d}")]
    version = Version(number=every).with_table("violations", kept)
    delta.follow(lake.root, version, Version(), 1)
    path = tmp_path / "gold/violations"
    pointed = json.loads((path / delta.LOG / delta.LAST_CHECKPOINT).read_text())
    assert pointed["version"] == every - 1
    assert deltalake.DeltaTable(str(path)).version() == every - 1
    follow(lake, version, every + 1)
    assert kinds(str(path)) == ["k0", f"k{every + 1}"]


def test_no_commit_adds_and_removes_one_file(tmp_path: Path) -> None:
    """Delta's protocol forbids it: readers may apply the actions of a commit in any order."""
    follow(Lake(tmp_path), Version(), 1, 2, 3)
    for commit in (tmp_path / "gold/violations" / delta.LOG).glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        paths = [
            each[name]["path"] for each in actions for name in ("add", "remove") if name in each
        ]
        assert len(paths) == len(set(paths))


@pytest.mark.parametrize("name", OPEN)
def test_plain_readers_find_an_empty_table_empty(tmp_path: Path, name: str) -> None:
    delta.switch(tmp_path, Version(number=1), Version())
    path = tmp_path / OPEN[name].root
    found = pd.read_parquet(path)
    assert len(found) == 0
    assert list(found.columns) == OPEN[name].schema.fieldNames()
    files = f"read_parquet('{path}/current/*.parquet')"
    assert duckdb.sql(f"SELECT count(*) FROM {files}").fetchall() == [(0,)]


# --- what a log says of its table -------------------------------------------------------------


def test_columns_that_are_added_later_are_seen_and_the_table_stays_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, path = Lake(tmp_path), str(tmp_path / "gold/violations")
    before = follow(lake, Version(), 1, 2)
    table = deltalake.DeltaTable(path)
    wider = StructType([*VIOLATIONS.fields, StructField("count", LongType())])
    monkeypatch.setitem(delta.OPEN, "violations", OPEN["violations"]._replace(schema=wider))
    follow(lake, before, 3)
    later = deltalake.DeltaTable(path)
    assert later.metadata().id == table.metadata().id
    assert [field.name for field in later.schema().fields] == wider.fieldNames()
    found = later.to_pyarrow_table()
    assert found["count"].to_pylist() == [None, None]
    assert sorted(found["kind"].to_pylist()) == ["k0", "k3"]


def test_each_table_of_each_lake_has_an_id_of_its_own(tmp_path: Path) -> None:
    ids = set()
    for name in ("one", "other"):
        follow(Lake(tmp_path / name), Version(), *range(1, delta.CHECKPOINT_EVERY + 3))
        path = str(tmp_path / name / "gold/violations")
        every = {
            deltalake.DeltaTable(path, version=number).metadata().id
            for number in (0, delta.CHECKPOINT_EVERY, delta.CHECKPOINT_EVERY + 1)
        }
        assert len(every) == 1
        ids |= every
    assert len(ids) == 2


def test_a_log_that_cannot_be_read_is_made_anew(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    before = follow(lake, Version(), 1, 2)
    path = tmp_path / "gold/violations"
    (path / delta.LOG / f"{0:020d}.json").write_text("{")
    follow(lake, before, 3)
    assert kinds(str(path)) == ["k0", "k3"]


def test_a_log_says_what_lies_in_each_file(tmp_path: Path) -> None:
    """Readers pass over files by the least and greatest value of a column."""
    shape = StructType(
        [
            StructField("message_id", StringType()),
            StructField("size", LongType()),
            StructField("at", TimestampType()),
            StructField("closed_on", DateType()),
            StructField("late", BooleanType()),
            StructField("violations", ArrayType(VIOLATIONS)),
        ]
    )
    at = datetime(2025, 3, 1, 12, 0, 0, 1, UTC)
    rows = [("b", 5, at, date(2025, 3, 1), True, None), ("a", None, None, None, False, [])]
    file = TableFile(tmp_path, "ledger", "gold/ledger/_data/1", shape)
    file.add(rows)
    path = tmp_path / file.close().path / "part-0.parquet"
    assert delta.statistics_of(path) == {
        "numRecords": 2,
        "minValues": {
            "message_id": "a", "size": 5, "at": "2025-03-01T12:00:00.000Z",
            "closed_on": "2025-03-01",
        },
        "maxValues": {
            "message_id": "b", "size": 5, "at": "2025-03-01T12:00:00.001Z",
            "closed_on": "2025-03-01",
        },
        "nullCount": {"message_id": 0, "size": 1, "at": 1, "closed_on": 1, "late": 0},
    }  # fmt: skip
