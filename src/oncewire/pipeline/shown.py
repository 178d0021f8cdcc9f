"""Each table as a plain folder of files, one version of it, for tools that know only Parquet.

    LAKE/gold/ledger/current/*.parquet

`current` is a link that is replaced whole, so whoever lists it sees the files of one version.
They are the lake's own files under second names; nothing is copied. A table without rows has one
file without any, because no such tool takes a folder without files for an empty table. A reader
that has listed the folder and opens a file after the link was replaced may find it gone, and is
told so: it never sees a mixture, because no two files of a table ever have one name.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from oncewire.pipeline.files import parquet_files
from oncewire.pipeline.schemas import arrow, nullable
from oncewire.pipeline.tables import OPEN, Table
from oncewire.pipeline.version import Version

FOLDER = "shown"
"""Where the links point to: outside the tables, and by names that no reader passes over."""

LINK = "current"
EMPTY = "empty.parquet"


def switch(lake: Path, version: Version, before: Version) -> None:
    """Show a published version of every table that is not the one before."""
    for table in OPEN.values():
        link = lake / table.root / LINK
        if not link.is_symlink() or table.entries(version) != table.entries(before):
            _show(lake, version, table, link)


def _show(lake: Path, version: Version, table: Table, link: Path) -> None:
    root = lake / table.root
    folder = lake / FOLDER / table.name / f"{version.number:08d}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    root.mkdir(parents=True, exist_ok=True)
    for entry in table.entries(version):
        for file in parquet_files(lake / entry.path):
            name = os.path.relpath(file, root).removeprefix("_data/").replace("/", "~")
            _same(file, folder / name)
    if not any(folder.iterdir()):
        _write_empty(table, folder / EMPTY)
    beside = root / f".{LINK}.new"
    beside.unlink(missing_ok=True)
    beside.symlink_to(os.path.relpath(folder, root))
    old = link.readlink().name if link.is_symlink() else ""
    beside.replace(link)
    for path in folder.parent.iterdir():
        # Whoever listed the one before may still be at work.
        if path.name not in (folder.name, old):
            shutil.rmtree(path, ignore_errors=True)


def _write_empty(table: Table, file: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(arrow(nullable(table.schema)).empty_table(), file)


def _same(file: Path, name: Path) -> None:
    """A second name for a file; where there are none, a link to it."""
    try:
        os.link(file, name)
    except OSError:
        name.symlink_to(os.path.relpath(file, name.parent))
