"""Proof: has a journal changed since it was taken in, in its store or in the lake?

With each range of a journal the version keeps a digest of its rows, and for each node a chain over
them: whoever edits a store can hide it from the store, but not from the lake that holds the rows
and from the versions that hold their digests. Rows that a store has trimmed since prove nothing
against it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from oncewire.journal.row import COLUMNS, Row
from oncewire.pipeline.book import Book
from oncewire.pipeline.lake import Lake
from oncewire.pipeline.rows import rows_of_batch
from oncewire.pipeline.version import Entry, Version

ROWS_AT_ONCE = 100_000

CHANGED, GONE, ADDED, REWRITTEN = "changed", "gone", "added", "rewritten"


class Difference(NamedTuple):
    """One row, or one directory, that is not as it was taken in."""

    node: str
    seq: int
    what: str
    sentence: str


class Proven(NamedTuple):
    """What was looked at, and what is not as it was."""

    rows: int
    ranges: int
    differences: tuple[Difference, ...]

    @property
    def unchanged(self) -> bool:
        """Whether everything is as it was taken in."""
        return not self.differences


def digest_of(rows: Iterable[Row]) -> str:
    """The digest of rows in the order of their positions, each written so that none is another."""
    made = hashlib.sha256()
    for row in rows:
        text = json.dumps(list(row), ensure_ascii=False, separators=(",", ":"))
        made.update(f"{len(text)}:{text}".encode())
    return made.hexdigest()


def chained(head: str, digest: str) -> str:
    """The head of a node's chain behind one more range."""
    return hashlib.sha256(f"{head}\n{digest}".encode()).hexdigest()


def rows_in(lake: Lake, entry: Entry) -> Iterator[Row]:
    """The rows of a range as the lake has them, those that were set aside too, in order."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    folder, aside = lake.root / entry.path, _aside(lake, entry)
    for start in range(entry.first - 1, entry.last, ROWS_AT_ONCE):
        end = min(start + ROWS_AT_ONCE, entry.last)
        some = [row for row in aside if start < row.seq <= end]
        if folder.is_dir():
            between = (pc.field("seq") > start) & (pc.field("seq") <= end)
            table = ds.dataset(folder, format="parquet").to_table(
                columns=list(COLUMNS), filter=between
            )
            some += [row for batch in table.to_batches() for row in rows_of_batch(batch)]
        yield from sorted(some, key=lambda row: row.seq)


def _aside(lake: Lake, entry: Entry) -> list[Row]:
    import pyarrow.dataset as ds

    folder = lake.root / entry.path.replace("bronze/journal/", "bronze/quarantine/", 1)
    if not folder.is_dir():
        return []
    texts = ds.dataset(folder, format="parquet").to_table(columns=["raw"])["raw"].to_pylist()
    return [Row(*(json.loads(text).get(name) for name in COLUMNS)) for text in texts]


def check_lake(lake: Lake, version: Version) -> Proven:
    """Whether the lake's own rows are those that the version has digests of."""
    found: list[Difference] = []
    looked = 0
    for entry in version.journal:
        if not entry.proof:
            continue
        looked += 1
        if digest_of(rows_in(lake, entry)) != entry.proof:
            found.append(
                Difference(
                    entry.key,
                    entry.first,
                    REWRITTEN,
                    f"rows {entry.first} to {entry.last} are not those that were taken in",
                )
            )
    return Proven(version.rows("journal"), looked, tuple(found))


def check_book(lake: Lake, version: Version, book: Book) -> Proven:
    """Whether a store still has the rows that were taken in from it."""
    found: list[Difference] = []
    looked = ranges = 0
    first = book.bounds()[0]
    for entry in version.journal:
        if entry.key != book.node:
            continue
        ranges += 1
        for start in range(entry.first - 1, entry.last, ROWS_AT_ONCE):
            end = min(start + ROWS_AT_ONCE, entry.last)
            part = Entry(entry.path, entry.rows, entry.key, start + 1, end)
            kept = {row.seq: row for row in rows_in(lake, part)}
            there = {
                row.seq: row
                for batch in book.batches(start, end, COLUMNS, ())
                for row in rows_of_batch(batch)
            }
            looked += len(there)
            found += _compared(book.node, kept, there, first)
    return Proven(looked, ranges, tuple(found))


def _compared(
    node: str, kept: dict[int, Row], there: dict[int, Row], first: int
) -> Iterator[Difference]:
    for seq in sorted({*kept, *there}):
        old, new = kept.get(seq), there.get(seq)
        if old == new:
            continue
        if old is None:
            yield Difference(node, seq, ADDED, f"row {seq} was not there when it was taken in")
        elif new is None:
            if seq >= first > 0:
                yield Difference(node, seq, GONE, f"row {seq} ({old.kind}) is gone")
        else:
            names = [name for name in COLUMNS if getattr(old, name) != getattr(new, name)]
            yield Difference(
                node, seq, CHANGED, f"row {seq} ({old.kind}) has another {', '.join(names)}"
            )
