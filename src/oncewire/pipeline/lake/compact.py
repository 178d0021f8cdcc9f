"""Compact: many small directories of a table become few large ones, with the same rows.

Every run adds directories, and a reader pays for each of them. So what many runs left is written
together from time to time: a node's ranges that follow one another, a silver table's, those of days
that are neighbours. The new directories are published like any others, and the old ones go when no
version names them.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace

from oncewire.errors import JournalProblem
from oncewire.pipeline.lake import lake as days
from oncewire.pipeline.lake.lake import Days, Lake
from oncewire.pipeline.lake.tables import data_path
from oncewire.pipeline.lake.version import Entry, Version, parquet_files

MANY = 16
"""So many directories of one kind are too many."""

FEW = 4
"""So many ranges at the end of a journal, of about one size, are written together at once."""

ENOUGH = 500_000
"""A directory with so many rows is not written again."""

BY_NODE = "journal"
WHOLE = ("messages", "attempts", "context", "boots", "documents")
BY_DAY = {"ledger_closed": ("ledger", "closed"), "partner_service": ("partner_service", "")}


def compacted(lake: Lake, version: Version, many: int = MANY) -> Version:
    """The version with fewer directories where there were too many; itself where there were not."""
    name = f"v{version.number + 1:08d}-compact"
    version = _journals(lake, version, many)
    for table in WHOLE:
        entries = version.tables.get(table, ())
        small = [entry for entry in entries if entry.rows < ENOUGH]
        if len(small) >= many:
            made = _together(lake, small, data_path(table, name))
            large = [entry for entry in entries if entry.rows >= ENOUGH]
            version = version.with_table(table, [*large, made])
    for table, (owner, below) in BY_DAY.items():
        version = _days(lake, version, table, data_path(owner, f"{below}/{name}".strip("/")), many)
    return version


def _journals(lake: Lake, version: Version, many: int) -> Version:
    """The ranges of each node, where gold knows them already and none of their rows is aside."""
    held = {entry.path.split("/", 2)[2] for entry in version.tables.get("quarantine", ())}
    kept = list(version.journal)
    for node, state in version.nodes.items():
        ranges = [
            entry
            for entry in version.journal
            if entry.key == node
            and 0 < entry.rows < ENOUGH
            and entry.last <= state.folded
            and entry.path.split("/", 2)[2] not in held
        ]
        for every in _following(sorted(ranges, key=lambda entry: entry.first)):
            run = every if len(every) >= many else _newest(every)
            if len(run) < min(many, FEW):
                continue
            first, last = run[0].first, run[-1].last
            folder = run[0].path.rsplit("/", 1)[0]
            made = _together(lake, run, f"{folder}/{first}-{last}")
            made = replace(made, key=node, first=first, last=last)
            made = replace(made, since=run[0].since, chain=run[-1].chain)
            kept = [*(each_entry for each_entry in kept if each_entry not in run), made]
    return version if kept == list(version.journal) else version.with_table("journal", kept)


def _following(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Ranges that follow one another without a gap, together no larger than enough."""
    run: list[Entry] = []
    for entry in entries:
        if run and (
            entry.first != run[-1].last + 1
            or entry.since != run[-1].chain
            or sum(each_entry.rows for each_entry in run) + entry.rows > ENOUGH
        ):
            yield run
            run = []
        run.append(entry)
    if run:
        yield run


def _newest(run: list[Entry]) -> list[Entry]:
    """Those at the end of which none has more than twice the rows of all that follow it.

    Each node has its own ranges and every reading of a journal opens all of them, so there must be
    fewer than of other tables; and what is large is not written again for a little that is new.
    """
    rows, start = run[-1].rows, len(run) - 1
    while start and run[start - 1].rows <= 2 * rows:
        start -= 1
        rows += run[start].rows
    return run[start:]


def _days(lake: Lake, version: Version, table: str, path: str, many: int) -> Version:
    """Neighbouring days, until they are worth a directory; a table of few is left alone."""
    entries = sorted(version.tables.get(table, ()), key=Days.of_entry)
    small = [entry for entry in entries if entry.rows < days.ENOUGH]
    if len(small) < many:
        return version
    runs: list[list[Entry]] = []
    for entry in small:
        if runs and sum(each_entry.rows for each_entry in (*runs[-1], entry)) <= days.ENOUGH:
            runs[-1].append(entry)
        else:
            runs.append([entry])
    kept = [entry for entry in entries if entry.rows >= days.ENOUGH]
    for number, run in enumerate(runs):
        spans = [Days.of_entry(entry) for entry in run]
        key = Days(spans[0].first, max(span.last for span in spans)).key
        kept.append(
            replace(_together(lake, run, f"{path}/{number}"), key=key) if len(run) > 1 else run[0]
        )
    return version.with_table(table, kept)


def _together(lake: Lake, entries: list[Entry], path: str) -> Entry:
    """One directory with the rows of several."""
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    files = [file for entry in entries for file in parquet_files(lake.root / entry.path)]
    # A killed run may have left something there; what is published is never written over.
    digest = hashlib.sha256("\n".join(map(str, files)).encode()).hexdigest()[:8]
    folder = lake.root / path
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rows = 0
    schema = ds.dataset(files[0], format="parquet").schema
    with pq.ParquetWriter(folder / f"part-{digest}.parquet", schema, compression="zstd") as writer:
        for file in files:
            table = ds.dataset(file, format="parquet", schema=schema).to_table()
            writer.write_table(table)
            rows += table.num_rows
    _check_whole(entries, rows)
    return Entry(path, rows)


def _check_whole(entries: list[Entry], rows: int) -> None:
    """What is gone from a lake must not be published as if it had never been there."""
    published = sum(entry.rows for entry in entries)
    if rows != published:
        raise JournalProblem(
            f"the directories from {entries[0].path} to {entries[-1].path} have {rows} of "
            f"{published} rows that were published",
            remedy="bring them back from a copy of the lake, or make the lake anew",
        )
