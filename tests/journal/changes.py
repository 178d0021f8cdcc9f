"""Ways to spoil a history: drop, repeat, change or add rows, and number them anew."""

from __future__ import annotations

from typing import Any

from oncewire.journal.check import JournalReport, check_journal
from oncewire.journal.row import Row
from oncewire.protocol.notes import Detail, Kind


def find(
    rows: list[Row], kind: Kind, message_id: str | None = None, node: str | None = None
) -> list[Row]:
    """Rows of the kind, in order; there must be one, or the test would change nothing."""
    found = [
        row
        for row in rows
        if row.kind == kind
        and (message_id is None or row.message_id == message_id)
        and (node is None or row.node == node)
    ]
    assert found, f"no {kind} row of {message_id}"
    return found


def drop(rows: list[Row], *gone: Row) -> list[Row]:
    return [row for row in rows if row not in gone]


def change(rows: list[Row], old: Row, **columns: Any) -> list[Row]:
    said = columns.pop("said", None)
    if isinstance(said, Detail):
        columns["detail"] = said.write()
    return [row._replace(**columns) if row is old else row for row in rows]


def insert(rows: list[Row], after: Row, new: Row) -> list[Row]:
    """The rows with a new one right after another of the same node; positions follow."""
    changed: list[Row] = []
    for row in rows:
        changed.append(row)
        if row is after:
            changed.append(new._replace(node=after.node))
    return numbered(changed)


def repeat(rows: list[Row], again: Row, **columns: Any) -> list[Row]:
    """The row once more, right after itself."""
    return insert(rows, again, again._replace(**columns))


def move(rows: list[Row], moved: Row, after: Row) -> list[Row]:
    return insert(drop(rows, moved), after, moved._replace(at=after.at, mono=after.mono))


def numbered(rows: list[Row]) -> list[Row]:
    """Positions 1, 2, 3, ... on each node, in the order of the list."""
    positions: dict[str, int] = {}
    changed = []
    for row in rows:
        positions[row.node] = positions.get(row.node, 0) + 1
        position = positions[row.node]
        changed.append(row if row.seq == position else row._replace(seq=position))
    return changed


def judged(rows: list[Row], **circumstances: Any) -> JournalReport:
    """The checker's word on rows as a handler would have written them: no position is missing."""
    return check_journal(numbered(rows), **circumstances)


def delayed(rows: list[Row], first: Row, by: int) -> list[Row]:
    """A row, and what its node wrote after it, by so much later on both clocks."""
    return [
        row._replace(at=row.at + by, mono=row.mono + by)
        if row.node == first.node and row.seq >= first.seq
        else row
        for row in rows
    ]
