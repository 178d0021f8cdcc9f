"""Names: which messages or documents a directory has rows of, asked without reading it.

A row that comes late opens a closed message again, so every run must ask of each name that is new
whether any directory has it already. Beside the files of a large directory lie the digests of its
names, eight bytes each and in order: to ask costs what is new, and hardly more in a large lake than
in a small one. They are made when a directory is published, and where they are missing (in an older
lake, in a copy of a bucket) when it is asked for the first time. What they are made of is in their
file's name, so those of other files are never believed.
"""

from __future__ import annotations

import hashlib
import mmap
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from oncewire.pipeline.files import parquet_files, write_forced
from oncewire.pipeline.version import Entry, Version

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
