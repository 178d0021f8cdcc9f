"""Delta's logs and the plain folders beside them: many versions, and tables without rows."""

import json
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
from oncewire.pipeline.lake.lake import Lake, TableFile
from oncewire.pipeline.lake.tables import OPEN, VIOLATIONS, arrow, data_path, nullable
from oncewire.pipeline.lake.version import Entry, Version
from tests.pipeline.books import write_rows

SHAPE = arrow(nullable(VIOLATIONS))


def rows_of(number: int) -> pa.Table:
    """A table whose one row says in which version it came."""
    row = dict.fromkeys(SHAPE.names) | {"kind": f"k{number}"}
    return pa.Table.from_pylist([row], schema=SHAPE)


def written(lake: Lake, number: int, name: str) -> Entry:
    path = data_path("violations", name)
    return write_rows(lake, "violations", path, rows_of(number), VIOLATIONS)


def follow(lake: Lake, before: Version, *numbers: int) -> Version:
    """Versions that replace the row of the last and leave that of the first."""
    first = written(lake, 0, "first")
    for number in numbers:
        made = written(lake, number, f"v{number:08d}")
        version = Version(number=number).with_table("violations", [first, made])
        delta.follow(lake.root, version, before, number * 1_000_000)
        before = version
    return before


def kinds(path: str, version: int | None = None) -> list[str]:
    found = deltalake.DeltaTable(path, version=version).to_pyarrow_table()
    return sorted(found["kind"].to_pylist())


def test_a_log_of_many_versions_is_read_from_a_checkpoint(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    last = 5 * delta.CHECKPOINT_EVERY // 2
    follow(lake, Version(), *range(1, last + 1))
    path = tmp_path / "gold/violations"
    files = sorted(file.name for file in (path / delta.LOG).iterdir())
    assert len(files) < 2 * delta.CHECKPOINT_EVERY + 5
    assert kinds(str(path)) == ["k0", f"k{last}"]
    assert sorted(pl.read_delta(str(path))["kind"]) == ["k0", f"k{last}"]
    pointed = json.loads((path / delta.LOG / "_last_checkpoint").read_text())
    assert pointed == {"version": 2 * delta.CHECKPOINT_EVERY - 1, "size": 4}
    table = deltalake.DeltaTable(str(path))
    assert table.version() == last - 1
    assert table.schema().to_arrow() == deltalake.Schema.from_arrow(SHAPE).to_arrow()
    # A reader that began with the checkpoint before finds all that it leads to.
    for number in (delta.CHECKPOINT_EVERY, 2 * delta.CHECKPOINT_EVERY):
        assert kinds(str(path), number) == ["k0", f"k{number + 1}"]


def test_a_log_whose_first_commits_are_gone_goes_on(tmp_path: Path) -> None:
    """A run that was killed before it showed its version compares the log with what there is."""
    lake = Lake(tmp_path)
    last = 2 * delta.CHECKPOINT_EVERY + 3
    before = follow(lake, Version(), *range(1, last))
    assert not (tmp_path / "gold/violations" / delta.LOG / f"{0:020d}.json").exists()
    delta.follow(lake.root, before, Version(), 1)
    path = str(tmp_path / "gold/violations")
    assert deltalake.DeltaTable(path).version() == last - 2
    follow(lake, Version(), last)
    assert kinds(path) == ["k0", f"k{last}"]


@pytest.mark.parametrize("unwritten", [delta.CHECKPOINT, delta.LAST_CHECKPOINT])
def test_a_log_that_a_killed_run_did_not_sum_up_is_summed_up_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unwritten: str
) -> None:
    """Killed after the commit: before its checkpoint is written, or before that is named."""
    lake, every, real = Lake(tmp_path), delta.CHECKPOINT_EVERY, delta.write_forced

    def killed(path: Path, content: str | bytes) -> None:
        if path.name.endswith(unwritten):
            raise KeyboardInterrupt
        real(path, content)

    before = follow(lake, Version(), *range(1, every))
    with monkeypatch.context() as dying:
        dying.setattr(delta, "write_forced", killed)
        with pytest.raises(KeyboardInterrupt):
            follow(lake, before, every)
    # The next run finds that its version was not shown.
    kept = [Entry(data_path("violations", name), 1) for name in ("first", f"v{every:08d}")]
    version = Version(number=every).with_table("violations", kept)
    delta.follow(lake.root, version, Version(), 1)
    path = tmp_path / "gold/violations"
    pointed = json.loads((path / delta.LOG / delta.LAST_CHECKPOINT).read_text())
    assert pointed["version"] == every - 1
    follow(lake, version, *range(every + 1, 2 * every + 1))
    # Whoever began there is led on, although the beginning has gone.
    assert not (path / delta.LOG / f"{0:020d}.json").exists()
    assert kinds(str(path), every + 1) == ["k0", f"k{every + 2}"]


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


def test_a_log_of_an_earlier_release_gets_an_id_with_its_next_commit(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    before = follow(lake, Version(), 1)
    (commit,) = (tmp_path / "gold/violations/_delta_log").glob("*.json")
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for name in (delta.TABLE, delta.COLUMNS):
        del lines[0]["commitInfo"][name]
    lines[2]["metaData"]["id"] = "the one id of every lake"
    commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
    follow(lake, before, 2)
    path = str(tmp_path / "gold/violations")
    assert deltalake.DeltaTable(path).metadata().id != "the one id of every lake"
    assert kinds(path) == ["k0", "k2"]


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
