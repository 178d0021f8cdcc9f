"""Compact: many small directories of a table become few large ones, with the same rows.

Every run adds directories, and a reader pays for each of them. So what many runs left is written
together from time to time: a node's ranges that follow one another, a silver table's, those of days
that are neighbours. The new directories are published like any others, and the old ones go when no
version names them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from oncewire.errors import JournalProblem
from oncewire.pipeline.lake.columns import BY_DAYS, GOLD, JOURNAL, SILVER, arrow, nullable
from oncewire.pipeline.lake.lake import Days, Lake, TableFile
from oncewire.pipeline.lake.tables import data_path
from oncewire.pipeline.lake.version import Entry, Version, in_parts, parquet_files

MANY = 16
"""Number of directories of one kind that is too many."""

FEW = 4
"""Number of ranges of about one size, at the end of a journal, that are merged at once."""

ENOUGH = 500_000
"""Rows from which on a directory is not written again."""

ENOUGH_DAYS = 50_000
"""Neighbouring days of closed messages are merged until they have this many rows; all of them are
written again when one message is reopened."""

SCHEMAS = {"journal": JOURNAL, **SILVER, **GOLD}


class Merge(NamedTuple):
    """Directories of a table that become one, with the same rows."""

    table: str
    entries: tuple[Entry, ...]
    path: str

    def write(self, root: Path) -> tuple[Merge, Entry]:
        """Write the merged directory, in a task or (`oncewire pipeline compact`) without Spark."""
        import pyarrow.dataset as ds

        schema = SCHEMAS[self.table]
        file = TableFile(root, self.table, self.path, schema, days=BY_DAYS.get(self.table, ""))
        for entry in self.entries:
            files = parquet_files(root / entry.path)
            found = ds.dataset(files, format="parquet", schema=arrow(nullable(schema)))
            for batch in found.to_batches() if files else ():
                file.write(batch)
        made = file.close()
        # What is gone from a lake must not be published as if it had never been there.
        published = sum(entry.rows for entry in self.entries)
        if made.rows != published:
            raise JournalProblem(
                f"the directories from {self.entries[0].path} to {self.entries[-1].path} have "
                f"{made.rows} of {published} rows that were published",
                remedy="bring them back from a copy of the lake, or make the lake anew",
            )
        if self.table == "journal":
            first, last = self.entries[0], self.entries[-1]
            made = replace(made, key=first.key, first=first.first, last=last.last)
            made = replace(made, since=first.since, chain=last.chain)
        return self, made


def merges(version: Version, many: int = MANY) -> list[Merge]:
    """What is to be written together, where there are too many directories."""
    name = f"v{version.number + 1:08d}-compact"
    found = _journals(version, many)
    for table in (*SILVER, *GOLD):
        small = [entry for entry in version.tables.get(table, ()) if entry.rows < ENOUGH]
        if len(small) >= many and table not in BY_DAYS:
            found.append(Merge(table, tuple(small), data_path(table, name)))
    return [*found, *_days(version, many, data_path("ledger_closed", name))]


def compacted(lake: Lake, version: Version, many: int = MANY) -> Version:
    """The version with fewer directories where there were too many; itself where there were not."""
    found = merges(version, many)
    lake.clear(*(merge.path for merge in found))
    return applied(version, [merge.write(lake.root) for merge in found])


def applied(version: Version, written: Iterable[tuple[Merge, Entry]]) -> Version:
    """The version with new directories in place of the many."""
    verdicts = dict(version.judged.get("verdicts", {}))
    for merge, made in written:
        kept = [entry for entry in version.tables[merge.table] if entry not in merge.entries]
        version = version.with_table(merge.table, [*kept, made])
        counted = [verdicts.pop(entry.path, None) for entry in merge.entries]
        if merge.table.startswith("ledger") and None not in counted:
            verdicts[made.path] = dict(sum(map(Counter, counted), Counter()))
    if verdicts:
        version = replace(version, judged={**version.judged, "verdicts": verdicts})
    return version


def _journals(version: Version, many: int) -> list[Merge]:
    """The ranges of each node, where gold knows them already and none of their rows is aside."""
    held = {entry.path.split("/", 2)[2] for entry in version.tables.get("quarantine", ())}
    found = []
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
            if len(run) >= min(many, FEW):
                folder = run[0].path.rsplit("/", 1)[0]
                path = f"{folder}/{run[0].first}-{run[-1].last}"
                found.append(Merge("journal", tuple(run), path))
    return found


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


def _days(version: Version, many: int, path: str) -> Iterator[Merge]:
    """Neighbouring days, until they are worth a directory; a table of few is left alone."""
    entries = sorted(version.tables.get("ledger_closed", ()), key=Days.of_entry)
    small = [entry for entry in entries if entry.rows < ENOUGH_DAYS]
    if len(small) >= many:
        runs = in_parts(small, lambda entry: entry.rows, ENOUGH_DAYS)
        for number, run in enumerate(runs):
            if len(run) > 1:
                yield Merge("ledger_closed", tuple(run), f"{path}/{number}")
