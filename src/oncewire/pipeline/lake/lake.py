"""The lake: tables as plain Parquet, made safe without a table format.

    LAKE/CURRENT                        names the published version; replaced, never edited
    LAKE/versions/00000012.json         which directories make up each table in that version
    LAKE/bronze/journal/<node>/<first>-<last>/     and so on: directories that are written once

A run writes new directories, forces them to disk, and publishes by replacing one pointer file.
Readers go through the pointer, so they see a whole version or the one before, and a driver that
is killed anywhere leaves at most directories that nobody refers to. Directories of a journal's
rows are named by their range of `seq` and replaced whole when a batch is replayed.

The lake is a folder on a file system that the driver and every executor can reach, or it is kept in
a bucket and worked on in a copy (`bucket`).
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import shutil
import sys
import time
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from oncewire.errors import JournalProblem
from oncewire.pipeline.lake.storage import (
    LAYERS,
    READABLE_FOR,
    VERSIONS,
    Folder,
    Storage,
    version_name,
)
from oncewire.pipeline.lake.version import (
    CURRENT_FILE,
    Entry,
    Version,
    count_rows,
    local_path,
    parquet_files,
    write_forced,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from oncewire.pipeline.lake.version import Entry


# Names: which messages or documents a directory has rows of, asked without reading it.
#
# A row that comes late opens a closed message again, so every run must ask of each name that is
# new whether any directory has it already. Beside the files of a large directory lie the digests
# of its names, eight bytes each and in order: to ask costs what is new, and hardly more in a large
# lake than in a small one. They are made when a directory is published, and where they are missing
# (in an older lake, in a copy of a bucket) when it is asked for the first time. What they are made
# of is in their file's name, so those of other files are never believed.


COLUMNS = {"journal": "message_id", "ledger_closed": "message_id", "documents": "document"}
"""The tables that are asked for names, and the columns that have them."""

FEW = 20_000
"""A directory of fewer rows is read as quickly as it is asked."""

_FILE = "_names-"
_BYTES = 8


class Names:
    """Some names to ask directories for."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = sorted((_digest(name), name) for name in set(names))

    def among(self, root: Path, table: str, entry: Entry) -> list[str]:
        """Those of them that a directory of a table may have; only these need be looked for."""
        if entry.rows < FEW or not self._names:
            return [name for _, name in self._names]
        file = _made(root / entry.path, COLUMNS[table])
        if not file.stat().st_size:
            return []  # No row of it has a name.
        with (
            file.open("rb") as opened,
            mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as raw,
            raw.cast("Q") as known,
        ):
            return self._found_in(known)

    def _found_in(self, known: Sequence[int]) -> list[str]:
        found, place = [], 0
        for digest, name in self._names:
            place = bisect_left(known, digest, place)
            if place == len(known):
                break
            if known[place] == digest:
                found.append(name)
        return found


def note(root: Path, version: Version, before: Version) -> None:
    """Note the names of the directories that a version has and the one before has not."""
    for table, column in COLUMNS.items():
        old = {entry.path for entry in before.tables.get(table, ())}
        for entry in version.tables.get(table, ()):
            if entry.path not in old and entry.rows >= FEW:
                _made(root / entry.path, column)


def _made(folder: Path, column: str) -> Path:
    """The file of a directory's names, which is made if it is not there."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    files = parquet_files(folder)
    file = folder / f"{_FILE}{_digest_of(folder, files)}"
    if file.is_file():
        return file
    for stale in folder.glob(f"{_FILE}*"):
        stale.unlink()
    names: Any = pc.unique(ds.dataset(files, format="parquet").to_table(columns=[column])[column])
    digests = sorted({_digest(name) for name in names.to_pylist() if name is not None})
    write_forced(file, array("Q", digests).tobytes())
    return file


def _digest_of(folder: Path, files: Iterable[Path]) -> str:
    """Of the names and sizes of a directory's files, and of the order of bytes on this machine."""
    said = [f"{file.relative_to(folder)} {file.stat().st_size}" for file in files]
    return hashlib.sha256("\n".join([sys.byteorder, *said]).encode()).hexdigest()[:16]


def _digest(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=_BYTES).digest())


# Days: neighbouring days lie together in one directory, as long as little happened on them.
#
# A table that is divided by day can be changed without writing it whole. But a directory for each
# day of a quiet year is hundreds of files of some dozen rows, and to open a file costs as much as
# to read thousands of rows. So a directory holds as many days as make it worth a file, and its
# entry's key says which: the first and the last.


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


NOT_DATA = "_delta_log"
"""A folder of a table that is not its data."""
SIGNATURE = ".sig"
"""How the name of a version's signature ends, which stands beside it."""
SHOWN = "SHOWN"
"""Beside the versions: the last one that other tools see."""

ROW_GROUPS = {"parquet.block.row.count.limit": "50000"}
"""So that what is in order can be read in part."""


class Lake:
    """One lake; `root` is the folder in which its files are, `name` what people call it."""

    def __init__(self, place: Path | str) -> None:
        self.storage = storage_of(place)
        self.root, self.name = self.storage.root, self.storage.name
        self._paths: dict[tuple[str, int], set[str]] = {}

    # --- reading ---

    @property
    def exists(self) -> bool:
        """Whether anything was published here."""
        self.storage.refresh()
        return (self.root / CURRENT_FILE).is_file()

    def current(self) -> Version:
        """The published version."""
        self.storage.refresh()
        try:
            name = (self.root / CURRENT_FILE).read_text(encoding="utf-8").strip()
            return Version.of_text((self.root / VERSIONS / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise JournalProblem(
                f"there is no lake at {self.name}",
                remedy="make one with `oncewire pipeline run --store STORE --lake LAKE`",
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise JournalProblem(
                f"the lake at {self.name} cannot be read: {error}",
                remedy="its CURRENT file names a version; see that the file is there and whole",
            ) from None

    def version(self, number: int) -> Version:
        """A version by its number, as long as it is kept."""
        file = self.root / VERSIONS / f"{number:08d}.json"
        if not file.is_file():
            kept = ", ".join(sorted(str(int(path.stem)) for path in file.parent.glob("*.json")))
            raise JournalProblem(
                f"the lake at {self.name} does not keep version {number}",
                remedy=f"choose one of {kept}",
            )
        return Version.of_text(file.read_text(encoding="utf-8"))

    def current_or_new(self) -> Version:
        """The published version, or an empty one."""
        return self.current() if self.exists else Version()

    def folders(self, version: Version, table: str, key: str | None = None) -> list[str]:
        """The directories of a table, as full paths: for DuckDB, pandas or anything else."""
        return [
            str(self.root / entry.path)
            for entry in version.tables.get(table, ())
            if key is None or entry.key == key
        ]

    def files(self, version: Version, entries: Iterable[Entry]) -> list[Path]:
        """The files of some directories of a version: all of them, or an error."""
        found: list[Path] = []
        for entry in entries:
            files = parquet_files(self.root / entry.path)
            if not files:
                self._check_kept(version)
                raise JournalProblem(
                    f"{entry.path} of version {version.number} is gone from {self.name}",
                    remedy="bring it back from a copy of the lake, or make the lake anew",
                )
            found += files
        self._check_kept(version)
        return found

    def _check_kept(self, version: Version) -> None:
        if not (self.root / VERSIONS / version_name(version)).is_file():
            raise JournalProblem(
                f"version {version.number} of the lake at {self.name} is not kept any more",
                remedy="read again: others have taken its place meanwhile",
            )

    def read(
        self, spark: SparkSession, version: Version, schema: StructType, *tables: str
    ) -> DataFrame:
        """Tables of a version as one DataFrame; without any directory it has no rows."""
        folders = [folder for table in tables for folder in self.folders(version, table)]
        return self.read_folders(spark, schema, folders)

    def read_folders(
        self, spark: SparkSession, schema: StructType, folders: list[str]
    ) -> DataFrame:
        """The rows of some directories."""
        if not folders:
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).parquet(*folders)

    # --- writing ---

    @contextmanager
    def writing(self) -> Iterator[Version]:
        """The only writer, from the published version on."""
        with self.storage.claimed():
            version = self.current_or_new()
            self._show_if_behind(version)
            self.sweep(version)
            yield version

    def write(
        self, frame: DataFrame, path: str, *, key: str = "", first: int = 0, last: int = 0
    ) -> Entry:
        """Write a directory whole, in place of what a killed run may have left there."""
        folder = self.root / path
        frame.write.mode("overwrite").options(**ROW_GROUPS).parquet(str(folder))
        return Entry(path, count_rows(folder), key, first, last)

    def write_table(self, table: pa.Table, path: str, *, key: str = "") -> Entry:
        """The same for rows that are at hand; without any there is no directory."""
        import pyarrow.parquet as pq

        folder = self.root / path
        shutil.rmtree(folder, ignore_errors=True)
        if not table.num_rows:
            return Entry(path, 0, key)
        folder.mkdir(parents=True)
        pq.write_table(table, folder / "part-0.parquet", compression="zstd")
        return Entry(path, table.num_rows, key)

    def write_divided(
        self, frame: DataFrame, path: str, by: str, begun: list[date] | None = None
    ) -> list[Entry]:
        """Write one directory for each value of a column, which stays in the files too.

        With the first days of directories the column is of days or hours, and each directory has
        those that follow.
        """
        folder = self.root / path
        part = _begin_of(frame[by], begun) if begun else frame[by]
        divided = frame.withColumn("part", part)
        divided.repartition("part").write.mode("overwrite").partitionBy("part").parquet(str(folder))
        return [
            Entry(
                f"{path}/{each_path.name}",
                count_rows(each_path),
                each_path.name.removeprefix("part=")
                if begun is None
                else Days.of_files(each_path, by).key,
            )
            for each_path in sorted(folder.glob("part=*"))
        ]

    def publish(self, version: Version) -> Version:
        """Make a version the current one: all of it, or nothing."""
        before = self.current_or_new()
        published = replace(version, number=before.number + 1)
        note(self.root, published, before)
        self.storage.publish(published, before)
        self._show(published, before)
        return published

    def _show(self, version: Version, before: Version) -> None:
        """Let other tools see what is published: Delta's logs and the folders `current`."""
        from oncewire.pipeline.lake import delta

        now = time.time_ns() // 1_000
        delta.follow(self.root, version, before, now)
        delta.switch(self.root, version, before)
        write_forced(self.root / VERSIONS / SHOWN, f"{version.number}\n")
        self.storage.shown()

    def _show_if_behind(self, version: Version) -> None:
        """A run that was killed after it had published did not come to show it."""
        file = self.root / VERSIONS / SHOWN
        if version.number and (
            not file.is_file() or file.read_text(encoding="utf-8").strip() != str(version.number)
        ):
            self._show(version, Version())

    def sweep(self, version: Version) -> int:
        """Remove directories that no version refers to which somebody may still read.

        That is this one, the one before, and each that lost its place a short while ago. Returns
        how many directories were removed.
        """
        # A version's own file goes first: whoever finds it afterwards has listed all of it.
        for file in self._outdated(version):
            file.unlink(missing_ok=True)
            file.with_suffix(SIGNATURE).unlink(missing_ok=True)
        kept = version.paths.union(*self._paths_before(version))
        above = {path[: end.start()] for path in kept for end in re.finditer("/", path)}
        removed = sum(self._sweep_folder(layer, kept, above) for layer in LAYERS)
        self.storage.sweep(version)
        return removed

    def _outdated(self, version: Version) -> list[Path]:
        """The files of versions that nobody need read any more, or that never were published."""
        files = sorted((self.root / VERSIONS).glob("*.json"))
        found = [file for file in files if int(file.stem) > version.number]
        now = time.time()
        for file, following in pairwise(files):
            lately = 0 <= now - following.stat().st_mtime < READABLE_FOR
            if int(file.stem) < version.number - 1 and not lately:
                found.append(file)
        return found

    def _paths_before(self, version: Version) -> list[set[str]]:
        """The directories of each version that is kept besides one."""
        files = {
            (file.name, file.stat().st_mtime_ns): file
            for file in (self.root / VERSIONS).glob("*.json")
            if int(file.stem) != version.number
        }
        # A stream sweeps with every batch: what it has read of them it need not read again.
        self._paths = {key: paths for key, paths in self._paths.items() if key in files}
        for key in files.keys() - self._paths.keys():
            # Of one that cannot be read nobody reads anything.
            with suppress(JournalProblem, ValueError, KeyError, TypeError):
                self._paths[key] = Version.of_text(files[key].read_text(encoding="utf-8")).paths
        return list(self._paths.values())

    def _sweep_folder(self, path: str, kept: set[str], above: set[str]) -> int:
        """`above` are the directories in which kept ones lie."""
        folder = self.root / path
        if path in kept or not folder.is_dir():
            return 0
        removed, has_data = 0, False
        with os.scandir(folder) as found:
            for each in list(found):
                if each.is_symlink() or each.name == NOT_DATA:
                    continue
                if each.is_dir() and each.name != "_temporary":
                    removed += self._sweep_folder(f"{path}/{each.name}", kept, above)
                elif each.name.endswith(".parquet") or each.name in ("_temporary", "_SUCCESS"):
                    has_data = True
        if has_data and path not in above:
            shutil.rmtree(folder, ignore_errors=True)
            return removed + 1
        if not any(folder.iterdir()):
            folder.rmdir()
        return removed


def storage_of(place: Path | str) -> Storage:
    """The storage that a place names; any other kind is refused, and no folder is made of it."""
    found = _in_bucket(place)
    if found is None:
        return Folder(local_path(place))
    from oncewire.pipeline.lake.storage import Bucket

    return Bucket(found.group(1), (found.group(2) or "").strip("/"))


def _in_bucket(place: Path | str) -> re.Match[str] | None:
    return re.fullmatch(r"s3:/{1,2}([^/]+)(?:/(.*))?", str(place))


def _begin_of(day: Column, begun: list[date]) -> Column:
    """The first day of the directory that a day belongs to; nothing is before the first."""
    from pyspark.sql import functions as f

    # Sorted, so the last that is not after the day; one expression, however many there are.
    firsts = f.array(*(f.lit(first) for first in begun))
    before = f.filter(firsts, lambda first: first <= day)
    return f.coalesce(f.array_max(before), f.lit(begun[0]))


def input_at(place: Path | str) -> Path:
    """Where a book is read: of a lake in a bucket the copy, which is brought up to date first."""
    if _in_bucket(place) is None:
        return local_path(place)
    lake = Lake(place)
    lake.current()
    return lake.root


def count_values(
    lake: Lake, version: Version, column: str, *tables: str, empty: str | None = None
) -> dict[Any, int]:
    """How often each value of a column occurs in some tables, in rows where another is empty;
    only these columns are read."""
    folders = [folder for table in tables for folder in lake.folders(version, table)]
    return count_in(folders, column, empty)


def count_in(folders: Iterable[str], column: str, empty: str | None = None) -> dict[Any, int]:
    """The same for some directories."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    found: Counter[Any] = Counter()
    for folder in folders:
        there = ds.dataset(folder, format="parquet")
        # An earlier version may have made it, which knew no such column.
        known = empty is not None and empty in there.schema.names
        chosen = pc.field(empty).is_null() if known else None
        values = there.to_table(columns=[column], filter=chosen)[column]
        found.update({row["values"]: row["counts"] for row in values.value_counts().to_pylist()})
    return dict(found)
