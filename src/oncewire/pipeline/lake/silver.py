"""Silver tables: facts of the journal, typed. A range of the journal makes a range of each table.

The task that takes rows in writes them: it has each row at hand, and no row needs any other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from oncewire.journal.check import document_key
from oncewire.journal.predicates.context import CONTEXT_KINDS
from oncewire.journal.row import Row
from oncewire.journal.survey import AT_WORK
from oncewire.pipeline.lake.lake import TableFile
from oncewire.pipeline.lake.tables import (
    ATTEMPTS,
    BOOTS,
    DOCUMENT_ROWS,
    JOURNAL,
    MESSAGES,
    data_path,
)
from oncewire.pipeline.lake.version import Entry
from oncewire.protocol import notes
from oncewire.protocol.notes import Kind

SILVER = {
    "context": JOURNAL,
    "boots": BOOTS,
    "documents": DOCUMENT_ROWS,
    "messages": MESSAGES,
    "attempts": ATTEMPTS,
}

_KNOWN_BY = frozenset(
    kind.value for kind in (Kind.SUBMITTED, Kind.RECEIVED, Kind.FORWARDED, Kind.JOINED)
)
_ATTEMPTS = frozenset((Kind.SENT.value, Kind.SEND_FAILED.value))
_OWN = set(JOURNAL.fieldNames())


class Silver:
    """The silver tables of some ranges of a journal, as one task writes them."""

    def __init__(self, root: Path, name: str) -> None:
        self._files = {
            table: TableFile(root, table, data_path(table, name), schema)
            for table, schema in SILVER.items()
        }
        self._boots: dict[tuple[str, str], list[Any]] = {}

    def add(self, rows: Iterable[Row], aside: Iterable[Row] = ()) -> None:
        """What some rows say; of those that were set aside only which run wrote them."""
        said: dict[str, list[Sequence[Any]]] = {table: [] for table in self._files}
        for row in rows:
            self._note_boot(row)
            if row.kind in CONTEXT_KINDS:
                said["context"].append(row)
            if row.kind in _KNOWN_BY:
                said["messages"].append(_message(row))
            elif row.kind in _ATTEMPTS:
                said["attempts"].append(_attempt(row))
            document = document_key(row)
            if document is not None:
                said["documents"].append((*row, document))
        for row in aside:
            self._note_boot(row)
        for table, file in self._files.items():
            file.add(said[table])

    def _note_boot(self, row: Row) -> None:
        # A row that was set aside may lack anything.
        key: tuple[Any, Any] = (row.node, row.boot)
        if None in key:
            return
        known = self._boots.setdefault(key, [row.seq, row.at, False, False])
        if row.seq < known[0]:
            known[:2] = [row.seq, row.at]
        known[2] = known[2] or row.kind == Kind.STARTED.value
        known[3] = known[3] or row.kind in AT_WORK

    def close(self) -> dict[str, Entry]:
        """The directories that were written."""
        self._files["boots"].add((*key, *facts) for key, facts in self._boots.items())
        return {table: file.close() for table, file in self._files.items()}


def _message(row: Row) -> tuple[Any, ...]:
    """A message becomes known to a node."""
    said = _said(row)
    said["event"], said["best_effort"] = row.kind, bool(said.get("best_effort"))
    return tuple(
        getattr(row, field.name) if field.name in _OWN else said.get(field.name)
        for field in MESSAGES.fields
    )


def _attempt(row: Row) -> tuple[Any, ...]:
    """A transmission began, or failed."""
    said = _said(row)
    event = "began"
    if row.kind == Kind.SEND_FAILED.value:
        event = said.get("outcome") or notes.SendFailed().outcome
    made = {"event": event, "reason": said.get("reason")}
    return tuple(
        made[field.name] if field.name in made else getattr(row, field.name)
        for field in ATTEMPTS.fields
    )


def _said(row: Row) -> dict[str, Any]:
    return json.loads(row.detail) if row.detail is not None else {}
