"""Each silver and gold table as a Delta table by its path, over the very files of the lake.

What a lake publishes is switched for all tables at once by its pointer, which no table format
does. Beside that each table has Delta's log, so that DuckDB, Polars, pandas, Trino or Power BI
read one whole version of it while a run publishes, and older versions by number. Nothing is copied.
A log follows the pointer: where a run was killed between the two, the log is one version behind
until the next run begins, and never ahead.

The library `deltalake` makes a log, reads it, sums it up in checkpoints and clears away what lies
before them. Only the commit itself is written here: the library's own either appends or replaces
every file, and one that stays would be added and removed in one commit, which Delta's protocol
forbids because the actions of a commit have no order.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from oncewire.pipeline.lake.columns import arrow, footer, nullable
from oncewire.pipeline.lake.tables import OPEN, Table
from oncewire.pipeline.lake.version import Entry, Version, force, parquet_files, write_forced

if TYPE_CHECKING:
    from deltalake import DeltaTable


LOG = "_delta_log"
VERSION = "oncewire.version"
"""The fact of a commit: which version of the lake it shows."""

CHECKPOINT_EVERY = 50
"""Commits after which the log gets a checkpoint."""

CHECKPOINT = ".checkpoint.parquet"
LAST_CHECKPOINT = "_last_checkpoint"
RETENTION = "delta.logRetentionDuration"


def follow(lake: Path, version: Version, before: Version, now: int) -> None:
    """Bring every table's log from the version before up to a published one."""
    retention = f"interval {round(version.readable_for)} seconds"
    for table in OPEN.values():
        root, entries = lake / table.root, table.entries(version)
        same = before.number and before.columns == version.columns
        if same and entries == table.entries(before) and (root / LOG).is_dir():
            continue
        wanted = dict(_files(lake, root, entries))
        log = _log_of(root, table, wanted, version.number, retention)
        known = {quote(path, safe=_PLAIN) for path in _paths(log)}
        added = {path: file for path, file in wanted.items() if path not in known}
        removed = [path for path in known if path not in wanted]
        metadata = _metadata(log, table, retention)
        if added or removed or metadata:
            millis = now // 1_000
            said = {"operation": "WRITE", "operationParameters": {"mode": "Overwrite"}}
            actions: list[dict[str, Any]] = [
                {"commitInfo": {"timestamp": millis, **said, VERSION: version.number}}
            ]
            if metadata is not None:
                actions.append({"metaData": metadata})
            actions += [
                {"remove": {"path": path, "deletionTimestamp": millis, "dataChange": True}}
                for path in removed
            ]
            actions += [_add(path, file) for path, file in added.items()]
            text = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
            write_forced(root / LOG / f"{(log.version() + 1):020d}.json", text)
            log.update_incremental()
        # Of a commit that is there already too: a run may have been killed right behind it.
        if (log.version() + 1) % CHECKPOINT_EVERY == 0 and _last_summed(root) != log.version():
            # A checkpoint sums up commits, which are cleared away once their time is over.
            log.create_checkpoint()
            for name in (f"{log.version():020d}{CHECKPOINT}", LAST_CHECKPOINT, ""):
                force(root / LOG / name)
            log.cleanup_metadata()


def _log_of(
    root: Path, table: Table, wanted: dict[str, Path], number: int, retention: str
) -> DeltaTable:
    """The log of a table; one that is not there, or cannot be read, is made of a version."""
    from deltalake import DeltaTable, Schema
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import AddAction, CommitProperties, create_table_with_add_actions

    try:
        return DeltaTable(root)
    except DeltaError:
        shutil.rmtree(root / LOG, ignore_errors=True)
    root.mkdir(parents=True, exist_ok=True)
    added = [_add(path, file)["add"] for path, file in wanted.items()]
    create_table_with_add_actions(
        str(root),
        Schema.from_json(nullable(table.schema).json()),
        [
            AddAction(each["path"], each["size"], {}, each["modificationTime"], True, each["stats"])
            for each in added
        ],
        name=table.name,
        configuration={RETENTION: retention},
        commit_properties=CommitProperties(custom_metadata={VERSION: number}),
    )
    for path in (*(root / LOG).iterdir(), root / LOG):
        force(path)
    return DeltaTable(root)


def _paths(log: DeltaTable) -> list[str]:
    """The files that a log shows in the end."""
    import pyarrow as pa

    found: list[str] = pa.table(log.get_add_actions())["path"].to_pylist()
    return [unquote(path) for path in found]


def _metadata(log: DeltaTable, table: Table, retention: str) -> dict[str, Any] | None:
    """The metaData action of a table that has other columns than its log, or another retention."""
    known, schema = log.metadata(), nullable(table.schema)
    if (
        json.loads(log.schema().to_json()) == json.loads(schema.json())
        and known.configuration.get(RETENTION) == retention
    ):
        return None
    return {
        "id": known.id,
        "name": table.name,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema.json(),
        "partitionColumns": [],
        "configuration": {**known.configuration, RETENTION: retention},
        "createdTime": known.created_time,
    }


def _last_summed(root: Path) -> int | None:
    """The commit of the checkpoint that is named as the last."""
    file = root / LOG / LAST_CHECKPOINT
    if not file.is_file():
        return None
    said: int = json.loads(file.read_text(encoding="utf-8"))["version"]
    return said


def _add(path: str, file: Path) -> dict[str, Any]:
    seen = file.stat()
    return {
        "add": {
            "path": path,
            "partitionValues": {},
            "size": seen.st_size,
            "modificationTime": seen.st_mtime_ns // 1_000_000,
            "dataChange": True,
            "stats": json.dumps(statistics_of(file)),
        }
    }


def statistics_of(file: Path) -> dict[str, Any]:
    """What a file's footer says of its columns, so that readers pass over files: how many rows, and
    of each number, text, day and instant the least, the greatest, and how many are empty."""
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(file)
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    empty: dict[str, int] = {}
    for number, field in enumerate(metadata.schema.to_arrow_schema()):
        if field.type.num_fields:
            break  # What is nested comes last, and takes several columns of the file.
        found = [
            metadata.row_group(at).column(number).statistics
            for at in range(metadata.num_row_groups)
        ]
        if not found or any(each is None or not each.has_null_count for each in found):
            continue
        empty[field.name] = sum(each.null_count for each in found)
        bounds = [each for each in found if each.has_min_max]
        # A group without bounds must be empty: otherwise nothing is known of its values.
        if bounds and all(each.has_min_max or not each.num_values for each in found):
            low, high = min(each.min for each in bounds), max(each.max for each in bounds)
            if isinstance(low, datetime):
                # Delta's instants are of milliseconds: the greatest is rounded up.
                low, high = (
                    at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
                    for at in (low, high + timedelta(microseconds=999))
                )
            elif isinstance(low, date):
                low, high = low.isoformat(), high.isoformat()
            elif isinstance(low, bool) or not isinstance(low, int | str):
                continue
            least[field.name], most[field.name] = low, high
    return {
        "numRecords": metadata.num_rows,
        "minValues": least,
        "maxValues": most,
        "nullCount": empty,
    }


def _files(lake: Path, root: Path, entries: Iterable[Entry]) -> Iterator[tuple[str, Path]]:
    """Every file of some directories, by its path below the table as a log writes it."""
    for entry in entries:
        for file in parquet_files(lake / entry.path):
            relative = os.path.relpath(file, root)
            yield quote(relative, safe=_PLAIN), file


_PLAIN = "/=._-"
"""What a log writes as it is in a path."""


# Each table as a plain folder of files, one version of it, for tools that know only Parquet.
#
#     LAKE/gold/ledger/current/*.parquet
#
# `current` is a link that is replaced whole, so a reader that lists it sees one version's files.
# They are the lake's own files under second names; nothing is copied. A table without rows has one
# file without any, because no such tool takes a folder without files for an empty table. A reader
# that has listed the folder and opens a file after the link was replaced may find it gone, and is
# told so: it never sees a mixture, because no two files of a table ever have one name.


FOLDER = "shown"
"""Where the links point to: outside the tables, and by names that no reader passes over."""

LINK = "current"
EMPTY = "empty.parquet"


def switch(lake: Path, version: Version, before: Version) -> None:
    """Show a published version of every table that is not the one before."""
    for table in OPEN.values():
        link = lake / table.root / LINK
        same = before.columns == version.columns
        if not link.is_symlink() or not same or table.entries(version) != table.entries(before):
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
        import pyarrow.parquet as pq

        columns = arrow(nullable(table.schema)).with_metadata(footer(table.schema))
        pq.write_table(columns.empty_table(), folder / EMPTY)
    beside = root / f".{LINK}.new"
    beside.unlink(missing_ok=True)
    beside.symlink_to(os.path.relpath(folder, root))
    old = link.readlink().name if link.is_symlink() else ""
    beside.replace(link)
    for path in folder.parent.iterdir():
        # A reader that listed the folder before may still be at work.
        if path.name not in (folder.name, old):
            shutil.rmtree(path, ignore_errors=True)


def _same(file: Path, name: Path) -> None:
    """Make a second name for a file: a hard link, or a symbolic one where there are none."""
    try:
        os.link(file, name)
    except OSError:
        name.symlink_to(os.path.relpath(file, name.parent))
