"""Each silver and gold table as a Delta table by its path, over the very files of the lake.

What a lake publishes is switched for all tables at once by its pointer, which no table format
does. Beside that each table has Delta's log, so that DuckDB, Polars, pandas, Trino or Power BI
read one whole version of it while a run publishes, and older versions by number. The log is made
of small JSON files; nothing is copied. From time to time it is summed up in a checkpoint, so that
no reader reads all of it, and what lies before the checkpoint before is removed. A log follows the
pointer: where a run was killed between the two, the log is one version behind until the next run
begins, and never ahead.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

from oncewire.pipeline.lake.tables import OPEN, Table, arrow, nullable
from oncewire.pipeline.lake.version import Entry, Version, parquet_files, write_forced

if TYPE_CHECKING:
    import pyarrow as pa


LOG = "_delta_log"
VERSION, TABLE, COLUMNS = "oncewire.version", "oncewire.table", "oncewire.columns"
"""The facts of a commit: which version of the lake it shows, the table's own id, and a digest of
its columns. Where the last commit says others, or an earlier lake none, the next has metaData."""

CHECKPOINT_EVERY = 50
"""Commits after which the log gets a checkpoint."""

CHECKPOINT = ".checkpoint.parquet"
LAST_CHECKPOINT = "_last_checkpoint"


def follow(lake: Path, version: Version, before: Version, now: int) -> None:
    """Bring every table's log from the version before up to a published one."""
    for table in OPEN.values():
        root = lake / table.root
        commits = _commits(root)
        new, old = table.entries(version), table.entries(before)
        said = _said(commits[-1]) if commits else {}
        if before.number and VERSION in said:
            if new == old:
                continue
            added = dict(_files(lake, root, [entry for entry in new if entry not in old]))
            removed = dict(_files(lake, root, [entry for entry in old if entry not in new]))
        else:
            # Nothing is known of the log: what it shows is compared with what there is.
            known, wanted = _live(root, commits), dict(_files(lake, root, new))
            added = {path: file for path, file in wanted.items() if path not in known}
            removed = {path: root for path in known if path not in wanted}
        number = _number(commits[-1]) if commits else -1
        if not commits or added or removed:
            number += 1
            said = _commit(root, table, version, number, added, list(removed), now, said)
        # Of a commit that is there already too: a run may have been killed right behind it.
        if (number + 1) % CHECKPOINT_EVERY == 0 and _last_summed(root) != number:
            _sum_up(root, table, number, now, str(said[TABLE]))


def _commit(
    root: Path,
    table: Table,
    version: Version,
    number: int,
    added: dict[str, Path],
    removed: list[str],
    now: int,
    said: dict[str, Any],
) -> dict[str, Any]:
    """Write a commit behind one that said so; returns what this one says."""
    millis = now // 1_000
    columns = hashlib.sha256(nullable(table.schema).json().encode()).hexdigest()[:16]
    facts = {VERSION: version.number, TABLE: said.get(TABLE) or str(uuid4()), COLUMNS: columns}
    actions: list[dict[str, Any]] = [
        {
            "commitInfo": {
                "timestamp": millis,
                "operation": "WRITE",
                "operationParameters": {"mode": "Overwrite"},
                **facts,
            }
        }
    ]
    if said.get(COLUMNS) != columns:
        actions += _beginning(table, millis, str(facts[TABLE]))[bool(number) :]
    actions += [
        {"remove": {"path": path, "deletionTimestamp": millis, "dataChange": True}}
        for path in removed
    ]
    actions += [_add(path, file) for path, file in added.items()]
    (root / LOG).mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
    write_forced(root / LOG / f"{number:020d}.json", text)
    return facts


def _beginning(table: Table, millis: int, table_id: str) -> list[dict[str, Any]]:
    """The protocol and metaData actions of a table's first commit."""
    schema = nullable(table.schema)
    return [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": table_id,
                "name": table.name,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": schema.json(),
                "partitionColumns": [],
                "configuration": {},
                "createdTime": millis,
            }
        },
    ]


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
                low, high = (_millis(at) for at in (low, high + timedelta(microseconds=999)))
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


def _millis(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _files(lake: Path, root: Path, entries: Iterable[Entry]) -> Iterator[tuple[str, Path]]:
    """Every file of some directories, by its path below the table as a log writes it."""
    for entry in entries:
        for file in parquet_files(lake / entry.path):
            relative = os.path.relpath(file, root)
            yield quote(relative, safe="/=._-"), file


def _commits(root: Path) -> list[Path]:
    return sorted((root / LOG).glob("[0-9]*.json"))


def _number(file: Path) -> int:
    return int(file.name.partition(".")[0])


def _live(root: Path, commits: list[Path]) -> dict[str, dict[str, Any]]:
    """The files that the log shows in the end, each with what was said when it was added."""
    found: dict[str, dict[str, Any]] = {}
    summed = sorted((root / LOG).glob(f"[0-9]*{CHECKPOINT}"))
    if summed:
        found = _summed(summed[-1])
    for commit in commits:
        if summed and _number(commit) <= _number(summed[-1]):
            continue
        for line in commit.read_text(encoding="utf-8").splitlines():
            action = json.loads(line)
            if "remove" in action:
                found.pop(action["remove"]["path"], None)
            elif "add" in action:
                found[action["add"]["path"]] = action["add"]
    return found


def _summed(checkpoint: Path) -> dict[str, dict[str, Any]]:
    import pyarrow.parquet as pq

    added = pq.read_table(checkpoint, columns=["add"])["add"].to_pylist()
    return {
        each["path"]: {**each, "partitionValues": dict(each["partitionValues"])}
        for each in added
        if each is not None
    }


def _last_summed(root: Path) -> int | None:
    """The commit of the checkpoint that is named as the last."""
    file = root / LOG / LAST_CHECKPOINT
    if not file.is_file():
        return None
    said: int = json.loads(file.read_text(encoding="utf-8"))["version"]
    return said


def _sum_up(root: Path, table: Table, number: int, now: int, table_id: str) -> None:
    """Write a checkpoint of the log up to a commit, and remove what no reader needs: one that began
    with the checkpoint before is led on from there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    actions = _beginning(table, now // 1_000, table_id)
    actions += [{"add": file} for file in _live(root, _commits(root)).values()]
    written = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(actions, schema=_checkpoint_schema()), written)
    write_forced(root / LOG / f"{number:020d}{CHECKPOINT}", written.getvalue())
    said = json.dumps({"version": number, "size": len(actions)})
    write_forced(root / LOG / LAST_CHECKPOINT, said)
    for file in (root / LOG).glob("[0-9]*"):
        if _number(file) < number - CHECKPOINT_EVERY:
            file.unlink()


def _checkpoint_schema() -> pa.Schema:
    """As Delta's protocol has it, so far as these tables need it."""
    import pyarrow as pa

    text, long, whole = pa.string(), pa.int64(), pa.int32()
    texts = pa.map_(text, text)
    kind = pa.struct([("provider", text), ("options", texts)])
    protocol = [("minReaderVersion", whole), ("minWriterVersion", whole)]
    metadata = [
        ("id", text), ("name", text), ("format", kind), ("schemaString", text),
        ("partitionColumns", pa.list_(text)), ("configuration", texts), ("createdTime", long),
    ]  # fmt: skip
    add = [
        ("path", text), ("partitionValues", texts), ("size", long), ("modificationTime", long),
        ("dataChange", pa.bool_()), ("stats", text),
    ]  # fmt: skip
    parts = {"protocol": protocol, "metaData": metadata, "add": add}
    return pa.schema([(name, pa.struct(fields)) for name, fields in parts.items()])


def _said(commit: Path) -> dict[str, Any]:
    """The facts of a commit."""
    with commit.open(encoding="utf-8") as opened:
        found: dict[str, Any] = json.loads(opened.readline()).get("commitInfo", {})
    return found


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
        # A reader that listed the folder before may still be at work.
        if path.name not in (folder.name, old):
            shutil.rmtree(path, ignore_errors=True)


def _write_empty(table: Table, file: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(arrow(nullable(table.schema)).empty_table(), file)


def _same(file: Path, name: Path) -> None:
    """Make a second name for a file: a hard link, or a symbolic one where there are none."""
    try:
        os.link(file, name)
    except OSError:
        name.symlink_to(os.path.relpath(file, name.parent))
