"""Reconcile: two parties' books joined, and every disagreement with who holds which proof."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StructField, StructType

from oncewire.errors import JournalProblem
from oncewire.journal.predicates.context import CONTEXT_KINDS, Context
from oncewire.journal.row import COLUMNS, Row
from oncewire.journal.trace import RECEIVED, SUBMITTED
from oncewire.message.trial import is_trial
from oncewire.pipeline.book import Book
from oncewire.pipeline.intake import Progress, quiet, read_book
from oncewire.pipeline.judging import tasks_for
from oncewire.pipeline.rows import batches_of, rows_of_batch
from oncewire.pipeline.schemas import RECONCILIATION, arrow, nullable
from oncewire.pipeline.session import cores_of
from oncewire.pipeline.statement import compare, statement_of
from oncewire.protocol import notes

if TYPE_CHECKING:
    import pyarrow as pa

COMPARED = StructType([*nullable(RECONCILIATION).fields, StructField("compared", LongType())])
"""A disagreement, or how many messages one task compared."""

_NOTHING = (None,) * len(RECONCILIATION.fields)


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What two parties' books say of the messages between them."""

    parties: tuple[str, str]
    compared: int
    disagreements: tuple[dict[str, Any], ...] = field(default_factory=tuple)

    @property
    def agreed(self) -> int:
        """Messages on which both books say the same."""
        return self.compared - len(
            {disagreement["message_id"] for disagreement in self.disagreements}
        )

    @property
    def kinds(self) -> dict[str, int]:
        """How many disagreements of each kind."""
        return dict(Counter(disagreement["disagreement"] for disagreement in self.disagreements))


@dataclass(frozen=True, slots=True)
class _Sides:
    """Who is who: the names of each party's handlers, and the terms of both."""

    names: tuple[frozenset[str], frozenset[str]]
    context: Context


def reconcile(
    spark: SparkSession, ours: Book, theirs: Book, *, tell: Progress = quiet
) -> Reconciliation:
    """Join two books message by message."""
    if ours.node == theirs.node:
        raise JournalProblem(
            f"both books are of node {ours.node}", remedy="give the books of two parties"
        )
    rows = sum(book.count(0, book.bounds()[1]) for book in (ours, theirs))
    tell(f"1 of 2: reading both books, {rows:,} rows")
    frames = [_whole(spark, book) for book in (ours, theirs)]
    sides = _sides(frames, (ours.node, theirs.node))
    tell(f"2 of 2: comparing {ours.node} with {theirs.node}")
    found = compared_messages(frames[0], frames[1], sides, tasks_for(rows, cores_of(spark)))
    compared, disagreements = 0, []
    # All tasks at once: an iterator over the partitions would run them one after the other.
    for row in found.toArrow().to_pylist():
        if row["compared"] is not None:
            compared += row["compared"]
        else:
            disagreements.append({name: row[name] for name in RECONCILIATION.fieldNames()})
    disagreements.sort(key=lambda each_row: (each_row["disagreement"], each_row["message_id"]))
    return Reconciliation((ours.node, theirs.node), compared, tuple(disagreements))


def compared_messages(ours: DataFrame, theirs: DataFrame, sides: _Sides, tasks: int) -> DataFrame:
    """Disagreements, and how many messages were compared."""
    both = ours.withColumn("book", f.lit(0)).unionByName(theirs.withColumn("book", f.lit(1)))
    return (
        both.where(f.col("message_id").isNotNull())
        .repartition(tasks, "message_id")
        .sortWithinPartitions("message_id", "book", "node", "seq")
        .mapInArrow(_fold(sides), COMPARED)
    )


def _whole(spark: SparkSession, book: Book) -> DataFrame:
    return read_book(spark, book, 0, book.bounds()[1]).select(*COLUMNS)


def _sides(frames: list[DataFrame], nodes: tuple[str, str]) -> _Sides:
    names, together = [], Context()
    for frame, node in zip(frames, nodes, strict=True):
        few = frame.where(f.col("kind").isin(sorted(CONTEXT_KINDS))).orderBy("seq").toArrow()
        rows = [row for batch in few.to_batches() for row in rows_of_batch(batch)]
        context = Context.gather(rows, healed=True)
        names.append(frozenset({node, *context.homes}))
        together.terms.update(context.terms)
    return _Sides((names[0], names[1]), together)


def _fold(sides: _Sides) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def fold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches_of(_compared(_booked(batches), sides), arrow(COMPARED), 1_000)

    return fold


def _booked(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Row, int]]:
    for batch in batches:
        yield from zip(rows_of_batch(batch), batch["book"].to_pylist(), strict=True)


def _compared(booked: Iterator[tuple[Row, int]], sides: _Sides) -> Iterator[tuple[Any, ...]]:
    compared = 0
    for message_id, group in groupby(booked, lambda pair: pair[0].message_id):
        books: tuple[list[Row], list[Row]] = ([], [])
        for row, book in group:
            books[book].append(row)
        sender = _sender_of(books, sides)
        if sender is None or is_trial(message_id or ""):
            continue
        compared += 1
        receiver = 1 - sender
        result = compare(
            statement_of(books[sender], sides.context), statement_of(books[receiver], sides.context)
        )
        if result.disagreement is not None:
            yield (
                message_id,
                result.disagreement.value,
                _node_of(books[sender]),
                _node_of(books[receiver]),
                result.sender_says,
                result.receiver_says,
                result.sender_proof,
                result.receiver_proof,
                result.sentence,
                None,
            )
    yield *_NOTHING, compared


def _sender_of(books: tuple[list[Row], list[Row]], sides: _Sides) -> int | None:
    """Which of the two sent it to the other; None if it is no matter between them."""
    for book in (0, 1):
        for row in books[book]:
            if row.kind == SUBMITTED and row.peer in sides.names[1 - book]:
                return book
    for book in (0, 1):
        for row in books[book]:
            if row.kind == RECEIVED and _from_party(row) in sides.names[1 - book]:
                return 1 - book
    return None


def _from_party(row: Row) -> str | None:
    """Whom a received message is from: behind a hub the detail knows, not the peer."""
    try:
        return notes.Received.read(row.detail).from_party or row.peer
    except JournalProblem:
        return row.peer


def _node_of(rows: list[Row]) -> str | None:
    return rows[0].node if rows else None
