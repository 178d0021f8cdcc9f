"""The tables that people read: where each lies, of which directories it is made, its columns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from oncewire.errors import JournalProblem
from oncewire.journal.outcome import MessageOutcome
from oncewire.journal.predicates.context import Violation
from oncewire.journal.row import COLUMNS, SCHEMA, Row, problem_of, rows_from_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from oncewire.pipeline.lake.version import Entry, Version


# Every table's columns, as Spark types, in one place.
#
# The journal's own columns are taken from `oncewire.journal.row` and the ledger's from
# `MessageOutcome`, so a fact that is added there is a column here. Tables that show the journal
# itself keep instants as integers, as the contract says; tables made for people and SQL have
# timestamps, which in Spark are microseconds in UTC too.


_LONG, _TEXT, _FLAG, _TIME = LongType(), StringType(), BooleanType(), TimestampType()


def _schema_table(*columns: tuple[str, DataType] | tuple[str, DataType, bool]) -> StructType:
    """Columns as (name, type[, may it be empty]); empty is allowed unless said otherwise."""
    return StructType(
        [StructField(column[0], column[1], column[2] if len(column) > 2 else True)
         for column in columns]
    )  # fmt: skip


# --- bronze: what came, unchanged -----------------------------------------------------------

JOURNAL: Final = StructType(
    [
        StructField(column.name, _LONG if column.type is int else _TEXT, column.nullable)
        for column in SCHEMA
    ]
)
"""The journal as every backend has it: `oncewire.journal.row`."""

QUARANTINE: Final = _schema_table(
    ("source", _TEXT, False),
    ("node", _TEXT),
    ("seq", _LONG),
    ("problem", _TEXT, False),
    ("raw", _TEXT, False),
    ("at", _LONG),
    ("boot", _TEXT),
    ("kind", _TEXT),
    ("message_id", _TEXT),
    ("channel", _TEXT),
    ("terms_id", _TEXT),
)
"""Journal rows that break the contract, as JSON, each with the reason: kept, not judged."""

BOOTS: Final = _schema_table(
    ("node", _TEXT, False),
    ("boot", _TEXT, False),
    ("first", _LONG, False),
    ("at", _LONG, False),
    ("started", _FLAG, False),
    ("at_work", _FLAG, False),
)
"""The runs of the handlers' processes, as far as one range of a journal shows them."""

DOCUMENT_ROWS: Final = StructType([*JOURNAL.fields, StructField("document", _TEXT)])
"""Journal rows about a split document, with its SplitId."""

PAYLOAD: Final = _schema_table(
    ("content_id", _TEXT, False),
    ("media_type", _TEXT, False),
    ("size", _LONG, False),
    ("digest", _TEXT, False),
    ("data", BinaryType()),
)

ENVELOPES: Final = _schema_table(
    # Where it was found.
    ("file", _TEXT, False),
    ("member", _TEXT),
    ("position", IntegerType(), False),
    ("file_size", _LONG, False),
    ("modified", _LONG, False),
    ("size", _LONG),
    ("sha256", _TEXT),
    ("capture", _TEXT),
    # What is wrong with it, if anything is.
    ("readable", _FLAG, False),
    ("code", _TEXT),
    ("location", _TEXT),
    ("problem", _TEXT),
    # What it says.
    ("dialect", _TEXT),
    ("kind", _TEXT),
    ("message_id", _TEXT),
    ("ref_to", _TEXT),
    ("conversation_id", _TEXT),
    ("cpa_id", _TEXT),
    ("from_party", _TEXT),
    ("from_role", _TEXT),
    ("to_party", _TEXT),
    ("to_role", _TEXT),
    ("service", _TEXT),
    ("action", _TEXT),
    ("sent_at", _TIME),
    ("time_to_live", _TIME),
    ("semantics", _TEXT),
    ("reliable", _FLAG),
    ("sequence_number", _LONG),
    ("sequence_status", _TEXT),
    ("hops", IntegerType()),
    ("split_id", _TEXT),
    ("split_number", _LONG),
    ("split_total", _LONG),
    ("ack_requested", _FLAG),
    ("acknowledges", _TEXT),
    ("errors", ArrayType(_TEXT)),
    ("signed", _FLAG),
    ("closed", _FLAG),
    ("payload_count", IntegerType()),
    ("payload_bytes", _LONG),
    ("digest", _TEXT),
    ("schema_problems", IntegerType()),
    ("notes", ArrayType(_TEXT)),
)
"""Raw messages of an archive, one row each; `readable` is false where one could not be read."""

ENVELOPES_WITH_PAYLOADS: Final = StructType(
    [*ENVELOPES.fields, StructField("payloads", ArrayType(PAYLOAD))]
)


# --- silver: one fact a row, typed ------------------------------------------------------------

MESSAGES: Final = _schema_table(
    ("node", _TEXT, False),
    ("seq", _LONG, False),
    ("event", _TEXT, False),
    ("at", _TIME, False),
    ("message_id", _TEXT),
    ("ref_to", _TEXT),
    ("terms_id", _TEXT),
    ("peer", _TEXT),
    ("channel", _TEXT),
    ("epoch", _LONG),
    ("sequence_number", _LONG),
    ("hop", _LONG),
    ("digest", _TEXT),
    ("size", _LONG),
    ("from_party", _TEXT),
    ("to_party", _TEXT),
    ("cpa_id", _TEXT),
    ("conversation_id", _TEXT),
    ("service", _TEXT),
    ("action", _TEXT),
    ("time_to_live", _TIME),
    ("best_effort", _FLAG),
    ("signature", _TEXT),
    ("split_id", _TEXT),
    ("split_number", _LONG),
    ("split_total", _LONG),
)
"""A message becomes known to a node: it was submitted, received, forwarded or joined there."""

ATTEMPTS: Final = _schema_table(
    ("node", _TEXT, False),
    ("seq", _LONG, False),
    ("event", _TEXT, False),
    ("at", _TIME, False),
    ("message_id", _TEXT),
    ("attempt", _LONG),
    ("transport", _TEXT),
    ("peer", _TEXT),
    ("hop", _LONG),
    ("channel", _TEXT),
    ("epoch", _LONG),
    ("sequence_number", _LONG),
    ("reason", _TEXT),
)
"""A transmission `began`, or was `refused` (nothing arrived), or its end is `unknown`."""

STORED_MESSAGES: Final = _schema_table(
    ("position", _LONG, False),
    ("direction", _TEXT, False),
    ("node", _TEXT, False),
    ("message_id", _TEXT, False),
    ("state", _TEXT, False),
    ("peer", _TEXT),
    ("terms_id", _TEXT),
    ("channel", _TEXT),
    ("epoch", _LONG),
    ("sequence_number", _LONG),
    ("attempts", _LONG),
    ("since", _LONG, False),
    ("from_party", _TEXT),
    ("to_party", _TEXT),
    ("cpa_id", _TEXT),
    ("conversation_id", _TEXT),
    ("service", _TEXT),
    ("action", _TEXT),
    ("timestamp", _LONG),
    ("ref_to", _TEXT),
    ("kind", _TEXT),
    ("digest", _TEXT),
    ("size", _LONG),
    ("split_id", _TEXT),
    ("split_number", _LONG),
    ("split_total", _LONG),
    ("hop", _LONG),
)
"""`format("oncewire")`, table `messages`: what a store holds now, its state rows' facts."""


SILVER: Final = {
    "context": JOURNAL,
    "boots": BOOTS,
    "documents": DOCUMENT_ROWS,
    "messages": MESSAGES,
    "attempts": ATTEMPTS,
}
"""The tables that are made of single rows of the journal: a range of it makes a range of each."""


# --- gold: what it tells us -------------------------------------------------------------------

FINDING: Final = StructType([StructField(name, _TEXT, True) for name in Violation._fields])
"""One violation, in the words of `oncewire.journal.predicates.context`."""

VIOLATIONS: Final = FINDING

FINDINGS_OF: Final = StructType([*FINDING.fields, StructField("of", _TEXT, True)])
"""Findings with the message or channel whose rows showed them, which is not always the one that
they are about: it is what they are replaced by when those rows are folded again."""


def _spelled(annotation: Any) -> str:
    """An annotation as it was written: an Instant is an int, but not every int is one."""
    return getattr(annotation, "__forward_arg__", None) or str(annotation)


_OUTCOME_TYPES: dict[str, DataType] = {
    "str": _TEXT,
    "str | None": _TEXT,
    "Outcome": _TEXT,
    "bool": _FLAG,
    "int": _LONG,
    "int | None": _LONG,
    "Instant | None": _TIME,
    "Duration | None": _LONG,
}

OUTCOME: Final = StructType(
    [
        StructField(name, _OUTCOME_TYPES[_spelled(annotation)], name != "message_id")
        for name, annotation in MessageOutcome.__annotations__.items()
    ]
)
"""`oncewire.journal.outcome.MessageOutcome`, field by field."""

LEDGER: Final = StructType(
    [
        *OUTCOME.fields,
        StructField("verdict", _TEXT, False),
        StructField("extent", _TEXT, False),
        StructField("from_peer", _TEXT),
        StructField("to_peer", _TEXT),
        StructField("closed_on", DateType()),
        StructField("violations", ArrayType(FINDING)),
    ]
)
"""One row and one verdict for each message."""

SEQUENCE_GAPS: Final = _schema_table(
    ("node", _TEXT, False),
    ("channel", _TEXT, False),
    ("epoch", _LONG),
    ("side", _TEXT, False),
    ("first_missing", _LONG, False),
    ("missing", _LONG, False),
    ("after_message_id", _TEXT),
    ("before_message_id", _TEXT),
    ("state", _TEXT, False),
)
"""Numbers that an epoch passed over, one row for each run of them."""

PARTNER_SERVICE: Final = _schema_table(
    ("node", _TEXT, False),
    ("direction", _TEXT, False),
    ("partner", _TEXT),
    ("hour", _TIME),
    ("messages", _LONG, False),
    ("bytes", _LONG),
    ("delivered", _LONG, False),
    ("not_delivered", _LONG, False),
    ("unknown", _LONG, False),
    ("in_flight", _LONG, False),
    ("best_effort", _LONG, False),
    ("arrived", _LONG, False),
    ("violations", _LONG, False),
    ("resends", _LONG, False),
    ("duplicates_stopped", _LONG, False),
    ("late_acks", _LONG, False),
    ("latency_p50", DoubleType()),
    ("latency_p95", DoubleType()),
    ("latency_p99", DoubleType()),
)
"""What a partner gets and gives, by the hour of submission (or arrival); latency in seconds."""

JUDGED: Final = _schema_table(
    ("sender", _TEXT),
    ("receiver", _TEXT),
    ("partner", _TEXT),
    ("channel", _TEXT),
    ("terms_id", _TEXT),
    ("through", _TIME),
    ("clock", _TEXT, False),
    ("messages", _LONG, False),
    ("not_yet", _LONG, False),
    ("in_doubt", _LONG, False),
)
"""How far each channel was judged, by whose clock, and how many messages were not."""

RECONCILIATION: Final = _schema_table(
    ("message_id", _TEXT, False),
    ("disagreement", _TEXT, False),
    ("sender", _TEXT),
    ("receiver", _TEXT),
    ("sender_says", _TEXT),
    ("receiver_says", _TEXT),
    ("sender_proof", _TEXT),
    ("receiver_proof", _TEXT),
    ("sentence", _TEXT, False),
)
"""Where two parties' books disagree about a message, and who holds which proof."""


@cache
def _arrow(columns: str) -> pa.Schema:
    return to_arrow_schema(StructType.fromJson(json.loads(columns)), timezone="UTC")


def arrow(schema: StructType) -> pa.Schema:
    """The columns as an Arrow schema."""
    return _arrow(schema.json())


def only(schema: StructType, names: list[str]) -> StructType:
    """Some columns of a table, in the table's order."""
    wanted = set(names)
    return StructType([field for field in schema.fields if field.name in wanted])


def nullable(schema: StructType) -> StructType:
    """The columns, each of them nullable: a reader of others' files cannot promise values."""
    return StructType([StructField(column.name, column.dataType, True) for column in schema.fields])


DATA = "_data"
"""Where a table's files lie below it. Readers of a folder pass over names that begin so: a table
has directories of more than one version, and only together with the version they are a table."""


class Table(NamedTuple):
    """One table."""

    name: str
    root: str
    """Its folder, relative to the lake."""
    stored: tuple[str, ...]
    """The names under which a version keeps its directories."""
    schema: StructType

    def entries(self, version: Version) -> list[Entry]:
        """Its directories in a version."""
        return [entry for name in self.stored for entry in version.tables.get(name, ())]


def _table(name: str, layer: str, schema: StructType, *stored: str) -> Table:
    return Table(name, f"{layer}/{name}", stored or (name,), schema)


OPEN: dict[str, Table] = {
    each_entry.name: each_entry
    for each_entry in (
        _table("messages", "silver", MESSAGES),
        _table("attempts", "silver", ATTEMPTS),
        _table("ledger", "gold", LEDGER, "ledger_closed", "ledger_open"),
        _table("sequence_gaps", "gold", SEQUENCE_GAPS),
        _table("partner_service", "gold", PARTNER_SERVICE),
        _table("violations", "gold", VIOLATIONS),
        _table("judged", "gold", JUDGED),
    )
}
"""Tables that any tool reads, by Delta's log and by their folder `current`."""

EVERY: dict[str, Table] = {
    **OPEN,
    **{
        each_entry.name: each_entry
        for each_entry in (
            _table("journal", "bronze", JOURNAL),
            _table("quarantine", "bronze", QUARANTINE),
            _table("envelopes", "bronze", ENVELOPES),
        )
    },
}
"""The tables of OPEN and bronze, which Spark reads through the lake."""


def data_path(table: str, name: str) -> str:
    """Where a directory of a table is written."""
    return f"{'silver' if table in SILVER else 'gold'}/{table}/{DATA}/{name}"


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
