"""Directories of closed messages say which days they have; many small ones become few."""

import shutil
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from oncewire.errors import JournalProblem
from oncewire.pipeline.lake.columns import LEDGER, arrow, nullable
from oncewire.pipeline.lake.compact import compacted
from oncewire.pipeline.lake.lake import ROWS_OF_DAY, Days, Lake, TableFile
from oncewire.pipeline.lake.tables import data_path
from oncewire.pipeline.lake.version import Entry, Version

FIRST = date(2025, 3, 1)


def day(number: int) -> date:
    return FIRST + timedelta(number)


def closed_on(numbers: list[int]) -> pa.RecordBatch:
    """One message that was closed on each of some days."""
    schema = arrow(nullable(LEDGER))
    values = {"closed_on": [day(number) for number in numbers], "verdict": ["sent"] * len(numbers)}
    columns = [pa.array(values.get(f.name, [None] * len(numbers)), f.type) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def write(lake: Lake, name: str, numbers: list[int], table: str = "ledger_closed") -> Entry:
    days = "closed_on" if table == "ledger_closed" else ""
    file = TableFile(lake.root, table, data_path(table, name), LEDGER, days=days)
    file.write(closed_on(numbers))
    return file.close()


def days_in(lake: Lake, version: Version) -> list[str]:
    """The days of all closed messages."""
    found = []
    for entry in version.tables["ledger_closed"]:
        rows = ds.dataset(lake.root / entry.path, format="parquet").to_table()["closed_on"]
        values = rows.to_pylist()
        own = Days.of_entry(entry)
        assert (own.first, own.last) == (str(min(values)), str(max(values)))
        assert values == sorted(values)
        found += map(str, values)
    return sorted(found)


def test_a_key_says_the_first_and_the_last_day() -> None:
    both = Days("2025-03-01", "2025-03-09")
    assert Days.of_entry(Entry("p", 1, both.key)) == both
    assert Days.of_entry(Entry("p", 1, "2025-03-01")) == ("2025-03-01", "2025-03-01")
    assert both.touch([day(8)])
    assert not both.touch([day(9), date(2025, 2, 28)])


def test_a_file_is_in_the_order_of_days_and_one_day_is_read_in_part(tmp_path: Path) -> None:
    numbers = [number % 40 for number in range(4 * ROWS_OF_DAY)]
    entry = write(Lake(tmp_path), "1", numbers)
    assert Days.of_entry(entry) == (str(day(0)), str(day(39)))
    (fragment,) = ds.dataset(tmp_path / entry.path, format="parquet").get_fragments()
    of_day = fragment.split_by_row_group(ds.field("closed_on") == day(3))
    assert len(of_day) == 1
    assert len(fragment.row_groups) == 4


def test_a_task_that_is_tried_twice_leaves_one_file(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    dies = TableFile(tmp_path, "ledger_closed", "gold/ledger/_data/closed/1", LEDGER)
    dies.write(closed_on([0] * 60_000))
    entries = [write(lake, "1", [3, 1, 2]) for _ in range(2)]
    assert entries[0] == entries[1]
    files = [file.name for file in (tmp_path / entries[0].path).glob("*.parquet")]
    assert files == ["part-0.parquet"]
    assert write(lake, "2", []) == Entry("gold/ledger/_data/closed/2", 0)
    assert not (tmp_path / "gold/ledger/_data/closed/2").exists()


def test_many_small_directories_of_days_become_few(tmp_path: Path) -> None:
    """Days that came in any order, twice, and over each other; none is lost, none is twice."""
    lake = Lake(tmp_path)
    entries = [write(lake, str(number), [number % 7, number]) for number in range(40)]
    counts = {entry.path: {"sent": 2} for entry in entries}
    before = Version(tables={"ledger_closed": tuple(entries)}, judged={"verdicts": counts})
    after = compacted(lake, before)
    (entry,) = after.tables["ledger_closed"]
    assert after.judged["verdicts"] == {entry.path: {"sent": 80}}
    assert days_in(lake, after) == days_in(lake, before)
    assert compacted(lake, after) == after


def test_what_many_tasks_left_open_is_one_directory(tmp_path: Path) -> None:
    """Each run reads all of it again, and a file costs as much as thousands of rows."""
    lake = Lake(tmp_path)
    entries = [write(lake, str(number), [number], "ledger_open") for number in range(40)]
    counts = {entry.path: {"sent": 1} for entry in entries}
    before = Version(tables={"ledger_open": tuple(entries)}, judged={"verdicts": counts})
    (entry,) = (after := compacted(lake, before)).tables["ledger_open"]
    assert entry.path.startswith("gold/ledger/_data/open/")
    assert after.judged["verdicts"] == {entry.path: {"sent": 40}}
    rows = ds.dataset(tmp_path / entry.path, format="parquet").to_table()
    assert sorted(rows["closed_on"].to_pylist()) == [day(number) for number in range(40)]
    assert compacted(lake, after) == after


def test_what_is_gone_from_a_lake_is_not_written_together_as_if_it_had_never_been(
    tmp_path: Path,
) -> None:
    lake = Lake(tmp_path)
    entries = [write(lake, str(number), [number]) for number in range(20)]
    shutil.rmtree(tmp_path / entries[7].path)
    with pytest.raises(JournalProblem, match="19 of 20 rows"):
        compacted(lake, Version(tables={"ledger_closed": tuple(entries)}))
