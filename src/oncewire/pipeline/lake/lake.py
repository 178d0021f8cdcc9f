"""The lake: tables as plain Parquet, made safe without a table format.

    LAKE/CURRENT                        names the published version; replaced, never edited
    LAKE/versions/00000012.json         which directories make up each table in that version
    LAKE/bronze/journal/<node>/<first>-<last>/     and so on: directories that are written once

A run writes new directories, forces them to disk, and publishes by replacing one pointer file.
Readers go through the pointer, so they see a whole version or the one before, and a driver that
is killed anywhere leaves at most directories that no version names. Directories of a journal's
rows are named by their range of `seq` and replaced whole when a batch is replayed.

The lake is a folder on a file system that the driver and every executor can reach, or it is kept in
a bucket and worked on in a copy (`bucket`).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import time
import uuid
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from oncewire.errors import InvalidValue, JournalProblem
from oncewire.pipeline.lake import delta
from oncewire.pipeline.lake.columns import arrow, footer, nullable
from oncewire.pipeline.lake.storage import LAYERS, VERSIONS, Bucket, Folder, Storage, version_name
from oncewire.pipeline.lake.tables import batch_of
from oncewire.pipeline.lake.version import (
    BATCH_ROWS,
    COLUMNS_VERSION,
    CURRENT_FILE,
    Entry,
    Version,
    force,
    local_path,
    parquet_files,
    write_forced,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


# Names: which messages or documents a directory has rows of, asked without reading it.
#
# A row that comes late opens a closed message again, so every run must ask of each name that is
# new whether any directory has it already. Beside the files of a large directory lie the digests
# of its names, eight bytes each and in order: to ask costs what is new, and hardly more in a large
# lake than in a small one. They are made when a directory is written, and where they are missing
# (in an older lake, in a copy of a bucket) when it is asked for the first time. What they are made
# of is in their file's name, so those of other files are never believed.


COLUMNS = {"journal": "message_id", "ledger_closed": "message_id", "split_rows": "document"}
"""The tables that are asked for names, and the columns that have them."""

FEW = 20_000
"""Rows below which a directory is read instead of asking its index of names."""

_FILE = "_names-"
_BYTES = 8


class Names:
    """Some names to ask directories for."""

    def __init__(self, names: Iterable[str]) -> None:
        import numpy as np

        known = sorted((_digest(name), name) for name in set(names))
        self._names = [name for _, name in known]
        self._digests = np.array([digest for digest, _ in known], np.uint64)

    def among(self, root: Path, table: str, entry: Entry) -> list[str]:
        """The names that a directory of a table may have; no others need be looked for there."""
        import numpy as np

        if entry.rows < FEW or not self._names:
            return self._names
        file = _made(root / entry.path, COLUMNS[table])
        if not file.stat().st_size:
            return []  # No row of it has a name.
        known = np.memmap(file, np.uint64, "r")
        places = np.searchsorted(known, self._digests)
        found = known[np.minimum(places, len(known) - 1)] == self._digests
        return [self._names[place] for place in np.flatnonzero(found).tolist()]


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
    """A digest of the names and sizes of a directory's files, and of this machine's byte order."""
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


# A file of a table, written by one task.


ROWS_IN_GROUP = 50_000
"""Rows of a file that are read or passed over together."""

ROWS_OF_DAY = 5_000
"""Rows that are read together in a file ordered by days: a query asks for few days of it."""


class TableFile:
    """The one file of a new directory of a table.

    It is written beside its place, forced to disk and renamed: a task that dies leaves no file,
    and two attempts at one task leave one. Without any row there is no directory.
    """

    def __init__(
        self, root: Path, table: str, path: str, schema: StructType, *, days: str = ""
    ) -> None:
        """`days` names a column of dates or instants: the file is in its order, and the entry's key
        says the first and the last day."""
        self._folder, self._table, self._path, self._days = root / path, table, path, days
        self._schema, self._footer = arrow(nullable(schema)), footer(schema)
        self._held: list[pa.RecordBatch] = []
        self._rows: list[Sequence[Any]] = []
        self._writer: pq.ParquetWriter | None = None
        self._beside = self._folder / f".{uuid.uuid4().hex}.new"
        self.rows = 0

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """Add rows of plain values."""
        self._rows += rows
        if len(self._rows) >= BATCH_ROWS:
            self._add_held()

    def _add_held(self) -> None:
        if self._rows:
            rows, self._rows = self._rows, []
            self.write(batch_of(list(zip(*rows, strict=True)), self._schema))

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch of rows; columns that the table does not have are left out."""
        self._held.append(batch.select(self._schema.names))
        self.rows += len(batch)
        if not self._days and sum(map(len, self._held)) >= ROWS_IN_GROUP:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_batches(self._held).cast(self._schema)
        self._held = []
        if self._writer is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._beside, self._schema, compression="zstd")
            self._writer.add_key_value_metadata(self._footer)
        if self._days:
            table = table.sort_by(self._days)
        size = ROWS_OF_DAY if self._days else ROWS_IN_GROUP
        self._writer.write_table(table, row_group_size=size)

    def close(self) -> Entry:
        """Finish the file; returns the entry of its directory."""
        self._add_held()
        if sum(map(len, self._held)):
            self._flush()
        if self._writer is None:
            return Entry(self._path, 0)
        self._writer.close()
        force(self._beside)
        self._beside.replace(self._folder / "part-0.parquet")
        force(self._folder)
        if self._table in COLUMNS and self.rows >= FEW:
            _made(self._folder, COLUMNS[self._table])
        key = Days.of_files(self._folder, self._days).key if self._days else ""
        return Entry(self._path, self.rows, key)


NOT_DATA = "_delta_log"
"""A folder of a table that is not its data."""
SIGNATURE = ".sig"
"""How the name of a version's signature ends, which stands beside it."""
SHOWN = "SHOWN"
"""Beside the versions: the last one that other tools see."""


class Lake:
    """One lake; `root` is the folder in which its files are, `name` what people call it."""

    def __init__(self, place: Path | str) -> None:
        self.storage = storage_of(place)
        self.root, self.name = self.storage.root, self.storage.name
        escape = re.search("%[0-9A-Fa-f]{2}", str(self.root.resolve()))
        if escape is not None:
            raise InvalidValue(
                f"the lake's path has {escape[0]} in it, which writers of Delta read as an escape",
                remedy="give the lake a folder without a percent sign and two digits in its path",
            )
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

    def shown(self, number: int | None = None) -> Version:
        """The published version, or one by its number, whose tables have the columns of today."""
        version = self.current() if number is None else self.version(number)
        if version.columns != COLUMNS_VERSION:
            raise JournalProblem(
                f"version {version.number} of the lake at {self.name} has the columns of an "
                "earlier release",
                remedy=f"`oncewire pipeline run --lake {self.name}` makes its tables anew, once",
            )
        return version

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
        """Be the only writer, from the published version on."""
        with self.storage.claimed():
            version = self.current_or_new()
            # A run may have been killed after it had published.
            file = self.root / VERSIONS / SHOWN
            # One with other columns is about to be made anew.
            if (
                version.number
                and version.columns == COLUMNS_VERSION
                and (
                    not file.is_file()
                    or file.read_text(encoding="utf-8").strip() != str(version.number)
                )
            ):
                self._show(version, Version())
            self.sweep(version)
            yield version

    def clear(self, *paths: str) -> None:
        """Remove what a killed run may have left where tasks are about to write."""
        for path in paths:
            shutil.rmtree(self.root / path, ignore_errors=True)

    def publish(self, version: Version) -> Version:
        """Make a version the current one: all of it, or nothing."""
        before = self.current_or_new()
        published = replace(version, number=before.number + 1)
        self.storage.publish(published, before)
        self._show(published, before)
        return published

    def _show(self, version: Version, before: Version) -> None:
        """Show other tools what is published: Delta's logs and the folders `current`."""
        now = time.time_ns() // 1_000
        delta.follow(self.root, version, before, now)
        delta.switch(self.root, version, before)
        write_forced(self.root / VERSIONS / SHOWN, f"{version.number}\n")
        self.storage.shown()

    def sweep(self, version: Version) -> int:
        """Remove directories that no readable version refers to; returns how many.

        Readable are this version, the one before, and each that was replaced a short while ago.
        """
        # The files of old versions go first: a version whose file exists still has all of its
        # directories.
        for file in self._outdated(version):
            file.unlink(missing_ok=True)
            file.with_suffix(SIGNATURE).unlink(missing_ok=True)
        kept = version.paths.union(*self._paths_before(version))
        above = {path[: end.start()] for path in kept for end in re.finditer("/", path)}
        removed = sum(self._sweep_folder(layer, kept, above) for layer in LAYERS)
        self.storage.sweep(version)
        return removed

    def _outdated(self, version: Version) -> list[Path]:
        """The files of versions that are no longer readable, or that never were published."""
        files = sorted((self.root / VERSIONS).glob("*.json"))
        found = [file for file in files if int(file.stem) > version.number]
        now = time.time()
        for file, following in pairwise(files):
            lately = 0 <= now - following.stat().st_mtime < version.readable_for
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
            # A version file that cannot be read protects no directory.
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

    return Bucket(found.group(1), (found.group(2) or "").strip("/"))


def _in_bucket(place: Path | str) -> re.Match[str] | None:
    return re.fullmatch(r"s3:/{1,2}([^/]+)(?:/(.*))?", str(place))


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
    """How often each value of a column occurs in some directories of a table."""
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
