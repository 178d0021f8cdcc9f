"""The tables that people read: what a row of each is, where it lies, of which directories it is
made. Their columns are in `columns`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from oncewire.errors import JournalProblem
from oncewire.journal.row import COLUMNS, SCHEMA, Row, problem_of, rows_from_columns
from oncewire.pipeline.lake.columns import (
    ATTEMPTS,
    DOCUMENTS,
    ENVELOPES,
    EVIDENCE,
    HOPS,
    JOURNAL,
    JUDGED,
    LEDGER,
    MESSAGES,
    PARTNER_SERVICE,
    QUARANTINE,
    RETENTION,
    SEQUENCE_GAPS,
    SILVER,
    VIOLATIONS,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from oncewire.pipeline.lake.version import Entry, Version


DATA = "_data"
"""Where a table's files lie below it. Readers of a folder pass over names that begin so: a table
has directories of more than one version, and only together with the version they are a table."""


class Table(NamedTuple):
    """One table."""

    name: str
    layer: str
    """bronze, silver or gold."""
    schema: StructType
    says: str
    """What it is a table of."""
    stored: tuple[str, ...]
    """The names under which a version keeps its directories."""

    @property
    def root(self) -> str:
        """Its folder, relative to the lake."""
        return f"{self.layer}/{self.name}"

    def entries(self, version: Version) -> list[Entry]:
        """Its directories in a version."""
        return [entry for name in self.stored for entry in version.tables.get(name, ())]


def _table(name: str, layer: str, schema: StructType, says: str, *stored: str) -> Table:
    return Table(name, layer, schema, says, stored or (name,))


OPEN: dict[str, Table] = {
    each_table.name: each_table
    for each_table in (
        _table(
            "messages",
            "silver",
            MESSAGES,
            "A message becomes known to a node: it was submitted, received, forwarded or joined "
            "there.",
        ),
        _table("attempts", "silver", ATTEMPTS, "A transmission began, or failed."),
        _table(
            "hops",
            "silver",
            HOPS,
            "An intermediary sends a message on to the next handler on its way.",
        ),
        _table(
            "documents",
            "silver",
            DOCUMENTS,
            "A document that a party sent or received, whole or in parts, and whether its store "
            "still has it as it was, by the last `oncewire pipeline documents`. Its bytes are in "
            "no table.",
            # Lakes of the first version call other rows `documents`.
            "documents_checked",
        ),
        _table(
            "ledger",
            "gold",
            LEDGER,
            "One row and one verdict for each message, over the journals of all nodes in the lake; "
            "best effort too. Trials are in no table of gold. A document that travels in parts has "
            "a row and a verdict of its own, and each part has one.",
            "ledger_closed",
            "ledger_open",
        ),
        _table(
            "sequence_gaps",
            "gold",
            SEQUENCE_GAPS,
            "Numbers that an epoch of a channel passed over, modulo its range, one row for each "
            "run of them.",
        ),
        _table(
            "partner_service", "gold", PARTNER_SERVICE, "What a partner got and gave, by hours."
        ),
        _table("violations", "gold", VIOLATIONS, "Every finding, told once."),
        _table(
            "judged",
            "gold",
            JUDGED,
            "How far the lake was judged. What is missing is told only when every timer has run "
            "out on the nodes that a message concerns, so each channel has an instant of its own, "
            "and one quiet node does not delay the others.",
        ),
        _table(
            "retention",
            "gold",
            RETENTION,
            "Which messages may be removed from the store that each is in, and what the others "
            "wait for, as of the instant of the last `oncewire pipeline retention`. A store also "
            "knows of legal holds, open incidents and answers that are owed: its handler decides, "
            "and it alone removes.",
        ),
        _table(
            "evidence",
            "gold",
            EVIDENCE,
            "What the raw messages of an archive prove: from the digests of a message's documents "
            "to the acknowledgement that its receiver signed, verified by the last `oncewire "
            "pipeline evidence`.",
        ),
    )
}
"""Tables that any tool reads, by Delta's log and by their folder `current`."""

EVERY: dict[str, Table] = {
    **OPEN,
    **{
        each_table.name: each_table
        for each_table in (
            _table("journal", "bronze", JOURNAL, "The journals as they came, row by row."),
            _table(
                "quarantine",
                "bronze",
                QUARANTINE,
                "Journal rows that break the contract, each with the reason.",
            ),
            _table(
                "envelopes",
                "bronze",
                ENVELOPES,
                "Each message in an archive, ours or another handler's.",
            ),
        )
    },
}
"""The tables of OPEN and bronze, which Spark reads through the lake."""


def data_path(table: str, name: str) -> str:
    """Where a directory of a table is written."""
    layer = "silver" if table in (*SILVER, "documents") else "gold"
    owner, kind = _PARTS.get(table, (table, ""))
    return f"{layer}/{owner}/{DATA}/{kind}{name}"


_PARTS = {"ledger_closed": ("ledger", "closed/"), "ledger_open": ("ledger", "open/")}


# Rows between Arrow and plain Python: batches in, `Row` values out, and back.
#
# Everything here is plain Python and Arrow; nothing asks Spark.


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """The journal rows of a stream of batches; other columns are passed over."""
    for batch in batches:
        yield from rows_of_batch(batch)


def rows_of_batch(batch: pa.RecordBatch) -> Iterator[Row]:
    """The journal rows of one batch."""
    return rows_from_columns(
        {
            name: column.to_pylist()
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
            if name in _NAMES
        }
    )


_NAMES = frozenset(COLUMNS)


def problem_in(row: Row, node: str) -> str | None:
    """What breaks the contract of a row of that node's journal; types are the reader's matter, but
    not what is empty."""
    for name, value in zip(ALWAYS_THERE, row, strict=False):
        if value is None:
            return f"{name} is missing"
    return f"it is a row of node {row.node}" if row.node != node else problem_of(row)


ALWAYS_THERE = tuple(column.name for column in SCHEMA if not column.nullable)
"""Columns that no row leaves empty."""


def batch_of(columns: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """A batch of values that are held by column."""
    import pyarrow as pa

    try:
        arrays = [
            pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)
        ]
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise JournalProblem(
            f"a value does not fit its column: {error}",
            remedy="look for rows that another program wrote",
        ) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def batches_of(
    rows: Iterable[Sequence[Any]], schema: pa.Schema, size: int = 10_000
) -> Iterator[pa.RecordBatch]:
    """Batches of at most `size` rows from values that come row by row."""
    pending: list[Sequence[Any]] = []
    for row in rows:
        pending.append(row)
        if len(pending) >= size:
            yield batch_of(list(zip(*pending, strict=True)), schema)
            pending = []
    if pending:
        yield batch_of(list(zip(*pending, strict=True)), schema)
