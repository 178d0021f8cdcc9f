"""Neighbouring days lie in one directory, as long as they are little."""

import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from oncewire.errors import JournalProblem
from oncewire.pipeline.judging.small_refresh import other_days
from oncewire.pipeline.lake.compact import compacted
from oncewire.pipeline.lake.lake import Days, Lake, begins, divided
from oncewire.pipeline.lake.tables import PARTNER_SERVICE, arrow, nullable
from oncewire.pipeline.lake.version import Entry, Version

FIRST = date(2025, 3, 1)


def day(number: int) -> date:
    return FIRST + timedelta(number)


def hours(numbers: list[int]) -> pa.Table:
    """One row of partner service at noon of each of some days."""
    schema = arrow(nullable(PARTNER_SERVICE))
    noon = [datetime(2025, 3, 1, 12, tzinfo=UTC) + timedelta(number) for number in numbers]
    values = {"hour": noon, "node": ["acme"] * len(noon), "messages": [1] * len(noon)}
    columns = [pa.array(values.get(field.name, [None] * len(noon)), field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def days_in(lake: Lake, version: Version) -> list[str]:
    """The days of all rows of partner service."""
    import pyarrow.dataset as ds

    found = []
    for entry in version.tables["partner_service"]:
        rows = ds.dataset(lake.root / entry.path, format="parquet").to_table()["hour"].to_pylist()
        own = Days.of_entry(entry)
        assert (own.first, own.last) == (str(min(rows))[:10], str(max(rows))[:10])
        found += [str(hour)[:10] for hour in rows]
    return sorted(found)


def test_days_are_put_together_until_they_are_enough() -> None:
    rows = {day(0): 3, day(1): 3, day(5): 3, day(6): 100, day(7): 1}
    assert begins(rows, enough=6) == [day(0), day(5), day(6), day(7)]
    assert begins(rows, enough=1_000) == [day(0)]
    assert begins({}) == []


def test_a_key_says_the_first_and_the_last_day() -> None:
    both = Days("2025-03-01", "2025-03-09")
    assert Days.of_entry(Entry("p", 1, both.key)) == both
    assert Days.of_entry(Entry("p", 1, "2025-03-01")) == ("2025-03-01", "2025-03-01")
    assert both.touch([day(8)])
    assert not both.touch([day(9), date(2025, 2, 28)])


def test_no_row_is_lost_where_a_table_is_divided() -> None:
    table = hours([0, 0, 3, 4, 4, 4, 9])
    parts = divided(table, "hour", enough=4)
    assert [own for own, _ in parts] == [
        ("2025-03-01", "2025-03-04"),
        ("2025-03-05", "2025-03-10"),
    ]
    assert pa.concat_tables([some for _, some in parts]).sort_by("hour").equals(table)
    assert divided(table.slice(0, 0), "hour") == []


def test_a_day_that_is_counted_again_leaves_its_neighbours(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    together = lake.write_table(hours([0, 1, 2]), "gold/a", key="2025-03-01..2025-03-03")
    apart = lake.write_table(hours([7, 8]), "gold/b", key="2025-03-08..2025-03-09")
    kept, beside = other_days(lake, [together, apart], {day(1), day(5)})
    assert kept == [apart]
    assert beside.equals(hours([0, 2]))
    assert other_days(lake, [together, apart], None)[0] == []


def test_many_small_directories_of_days_become_few(tmp_path: Path) -> None:
    """Days that came in any order, twice, and over each other; none is lost, none is twice."""
    lake = Lake(tmp_path)
    parts = [[number % 7, number] for number in range(40)]
    entries = [
        lake.write_table(
            hours(some),
            f"gold/partner_service/_data/{number}",
            key=Days(str(day(min(some))), str(day(max(some)))).key,
        )
        for number, some in enumerate(parts)
    ]
    before = Version(tables={"partner_service": tuple(entries)})
    after = compacted(lake, before)
    assert len(after.tables["partner_service"]) == 1
    assert days_in(lake, after) == days_in(lake, before)
    assert compacted(lake, after) == after


def test_what_is_gone_from_a_lake_is_not_written_together_as_if_it_had_never_been(
    tmp_path: Path,
) -> None:
    lake = Lake(tmp_path)
    entries = [
        lake.write_table(hours([number]), f"gold/partner_service/_data/{number}", key=str(number))
        for number in range(20)
    ]
    shutil.rmtree(tmp_path / entries[7].path)
    with pytest.raises(JournalProblem, match="19 of 20 rows"):
        compacted(lake, Version(tables={"partner_service": tuple(entries)}))
