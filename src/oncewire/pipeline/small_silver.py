"""Silver tables of few rows, made by the driver itself: the same rows as `silver` makes with Spark.

A test holds the two against each other, column by column.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from oncewire.journal.check import document_key
from oncewire.journal.predicates.context import CONTEXT_KINDS
from oncewire.journal.row import COLUMNS, Row
from oncewire.journal.survey import AT_WORK
from oncewire.pipeline.rows import batch_of, rows_of_batch
from oncewire.pipeline.schemas import (
    ATTEMPTS,
    BOOTS,
    DOCUMENT_ROWS,
    JOURNAL,
    MESSAGES,
    arrow,
    nullable,
)
from oncewire.pipeline.silver import ATTEMPT_KINDS, KNOWN_BY
from oncewire.protocol import notes
from oncewire.protocol.kinds import Kind

if TYPE_CHECKING:
    import pyarrow as pa

_KNOWN_BY = frozenset(kind.value for kind in KNOWN_BY)
_ATTEMPTS = frozenset(kind.value for kind in ATTEMPT_KINDS)
_OWN = set(JOURNAL.fieldNames())


def tables(folders: list[str], aside: list[str]) -> dict[str, pa.Table]:
    """The tables of some directories of a journal, and of rows that were set aside."""
    import pyarrow.dataset as ds

    rows = [
        row
        for folder in folders
        for batch in ds.dataset(folder, format="parquet").to_batches(columns=list(COLUMNS))
        for row in rows_of_batch(batch)
    ]
    held = [
        values
        for folder in aside
        for values in ds.dataset(folder, format="parquet").to_table(
            columns=["node", "boot", "seq", "at", "kind"]
        ).to_pylist()
    ]  # fmt: skip
    keyed = [(*row, key) for row in rows if (key := document_key(row)) is not None]
    return {
        "context": _table([row for row in rows if row.kind in CONTEXT_KINDS], JOURNAL),
        "boots": _table(_boots(rows, held), BOOTS),
        "documents": _table(keyed, DOCUMENT_ROWS),
        "messages": _table([_message(row) for row in rows if row.kind in _KNOWN_BY], MESSAGES),
        "attempts": _table([_attempt(row) for row in rows if row.kind in _ATTEMPTS], ATTEMPTS),
    }


def _table(rows: list[Any], schema: StructType) -> pa.Table:
    import pyarrow as pa

    columns = arrow(nullable(schema))
    if not rows:
        return columns.empty_table()
    return pa.Table.from_batches([batch_of(list(zip(*rows, strict=True)), columns)])


def _boots(rows: list[Row], aside: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    found: dict[tuple[str, str], list[Any]] = {}
    facts: list[tuple[Any, ...]] = [
        *((row.node, row.boot, row.seq, row.at, row.kind) for row in rows),
        *(tuple(copy.values()) for copy in aside),
    ]
    for node, boot, seq, at, kind in facts:
        if node is None or boot is None:
            continue
        known = found.setdefault((node, boot), [seq, at, False, False])
        if seq < known[0]:
            known[:2] = [seq, at]
        known[2] = known[2] or kind == Kind.STARTED.value
        known[3] = known[3] or kind in AT_WORK
    return [(*key, *facts) for key, facts in found.items()]


def _message(row: Row) -> tuple[Any, ...]:
    said = _said(row)
    values: list[Any] = []
    for field in MESSAGES.fields:
        name = field.name
        if name == "event":
            values.append(row.kind)
        elif name in _OWN:
            values.append(getattr(row, name))
        elif name == "best_effort":
            values.append(bool(said.get(name)))
        else:
            values.append(said.get(name))
    return tuple(values)


def _attempt(row: Row) -> tuple[Any, ...]:
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
