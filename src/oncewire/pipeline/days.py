"""Days: neighbouring days lie together in one directory, as long as little happened on them.

A table that is divided by day can be changed without writing it whole. But a directory for each day
of a quiet year is hundreds of files of some dozen rows, and to open a file costs as much as to read
thousands of rows. So a directory holds as many days as make it worth a file, and its entry's key
says which: the first and the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from oncewire.pipeline.files import parquet_files

if TYPE_CHECKING:
    import pyarrow as pa

    from oncewire.pipeline.version import Entry

ENOUGH = 50_000
"""Days are put together until they have so many rows; so much is written again where one row
changes."""

_BETWEEN = ".."


class Days(NamedTuple):
    """The first and the last day of a directory, as ISO 8601 writes them, which is in order."""

    first: str
    last: str

    @classmethod
    def of_entry(cls, entry: Entry) -> Days:
        """What an entry's key says."""
        first, _, last = entry.key.partition(_BETWEEN)
        return cls(first, last or first)

    @classmethod
    def of_files(cls, folder: Path, column: str) -> Days:
        """What the footers of a directory's files say of a column of dates or timestamps."""
        import pyarrow.parquet as pq

        found: list[str] = []
        for file in parquet_files(folder):
            metadata = pq.read_metadata(file)
            position = metadata.schema.to_arrow_schema().get_field_index(column)
            for group in range(metadata.num_row_groups):
                statistics = metadata.row_group(group).column(position).statistics
                found += [str(statistics.min)[:10], str(statistics.max)[:10]]
        return cls(min(found), max(found))

    @property
    def key(self) -> str:
        """The key of an entry with these days."""
        return self.first if self.first == self.last else f"{self.first}{_BETWEEN}{self.last}"

    def touch(self, days: Iterable[date]) -> bool:
        """Whether any of some days may be among them."""
        return any(self.first <= str(day) <= self.last for day in days)


def begins(rows: Mapping[date, int], enough: int = ENOUGH) -> list[date]:
    """The first day of each directory, for so many rows on each day."""
    found: list[date] = []
    held = enough
    for day in sorted(rows):
        if held + rows[day] > enough:
            found.append(day)
            held = 0
        held += rows[day]
    return found


def divided(table: pa.Table, column: str, enough: int = ENOUGH) -> list[tuple[Days, pa.Table]]:
    """The rows of a table, as its directories have them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    days = table[column].cast(pa.date32())
    counted: list[dict[str, Any]] = pc.value_counts(days).to_pylist()
    begun = begins({each_day["values"]: each_day["counts"] for each_day in counted}, enough)
    made = []
    for number, first in enumerate(begun):
        mask = pc.greater_equal(days, first)
        if number + 1 < len(begun):
            mask = pc.and_(mask, pc.less(days, begun[number + 1]))
        last = pc.max(days.filter(mask)).as_py()
        made.append((Days(str(first), str(last)), table.filter(mask)))
    return made
