"""Reconcile: two parties' books joined, and every disagreement with who holds which proof."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StructField, StructType

from oncewire.errors import JournalProblem
from oncewire.journal.outcome import MessageOutcome, fold_outcome
from oncewire.journal.predicates.context import CONTEXT_KINDS, Context
from oncewire.journal.row import COLUMNS, Row
from oncewire.journal.trace import (
    ACK_SENT,
    ACKNOWLEDGED,
    JOINED,
    NOTIFIED,
    RECEIVED,
    REFUSED,
    REJECTED,
    SUBMITTED,
)
from oncewire.message.envelope import is_trial
from oncewire.pipeline.judging.extent import tasks_for
from oncewire.pipeline.lake.columns import RECONCILIATION, arrow, nullable
from oncewire.pipeline.lake.tables import batches_of, rows_of_batch
from oncewire.pipeline.lake.version import Book
from oncewire.pipeline.session import cores_of
from oncewire.pipeline.sources.ingest import Progress, quiet, read_book
from oncewire.protocol import notes
from oncewire.protocol.states import Outcome

if TYPE_CHECKING:
    import pyarrow as pa


# Statement: what one party's own books say of a message, and which proof it holds.
#
# Plain Python. The outcome is the fold of `oncewire.journal`; two standings are then compared, and
# where they disagree it is said who holds what.


class Disagreement(StrEnum):
    """How two books differ about one message."""

    NOT_RECEIVED = "not_received"  # the sender has an acknowledgement, the receiver no message
    REFUSED = "refused"  # the sender has an acknowledgement, the receiver refused it
    DELIVERED = "delivered"  # the sender does not know, or says no; the receiver has it
    NOT_SUBMITTED = "not_submitted"  # the receiver has it, the sender never sent it
    CONTENT = "content"  # both have it, but not the same
    NUMBER = "number"  # both have it, under different numbers
    ACKNOWLEDGEMENT = "acknowledgement"  # accepted there, never given here
    UNREADABLE = "unreadable"  # rows that say nothing certain


@dataclass(frozen=True, slots=True)
class Statement:
    """One party's word on one message."""

    outcome: MessageOutcome | None
    rows: tuple[Row, ...]

    def has(self, kind: str) -> bool:
        """Whether a row of that kind is there."""
        return any(row.kind == kind for row in self.rows)

    def first(self, kind: str) -> Row | None:
        """The first row of that kind."""
        return next((row for row in self.rows if row.kind == kind), None)

    @property
    def sent(self) -> bool:
        """Whether this party submitted it."""
        return self.has(SUBMITTED)

    @property
    def received(self) -> bool:
        """Whether this party has it; a document in parts, when it is whole. What it closed
        unanswered it does not have, what a person gave up there it had."""
        said = self.outcome
        closed = said is not None and said.outcome is Outcome.NOT_DELIVERED and not said.given_up_by
        return (self.has(RECEIVED) or self.has(JOINED)) and not closed


def statement_of(rows: Sequence[Row], context: Context) -> Statement:
    """What the rows of one party say; rows that cannot be read leave no outcome."""
    try:
        outcome = fold_outcome(rows, context.terms)
    except JournalProblem:
        outcome = None
    return Statement(outcome, tuple(rows))


@dataclass(frozen=True, slots=True)
class Compared:
    """One message in two books; `disagreement` is None where they agree."""

    disagreement: Disagreement | None
    sender_says: str = ""
    receiver_says: str = ""
    sender_proof: str = ""
    receiver_proof: str = ""
    sentence: str = ""


def compare(sender: Statement, receiver: Statement) -> Compared:
    """What the party that sent and the party that should have received say of one message."""
    try:
        found, sentence = _difference(sender, receiver)
        if found is None:
            return Compared(None)
        if found is Disagreement.UNREADABLE:
            return Compared(found, sentence=sentence)
        return Compared(
            found,
            _sender_says(sender),
            _receiver_says(receiver),
            _sender_proof(sender),
            _receiver_proof(receiver),
            sentence,
        )
    except JournalProblem as problem:
        return Compared(Disagreement.UNREADABLE, sentence=str(problem))


def _difference(sender: Statement, receiver: Statement) -> tuple[Disagreement | None, str]:
    if (sender.rows and sender.outcome is None) or (receiver.rows and receiver.outcome is None):
        return Disagreement.UNREADABLE, "Rows of it cannot be read, so nothing certain can be said."
    if receiver.received and not sender.sent:
        return Disagreement.NOT_SUBMITTED, "The receiver has it, but the sender never submitted it."
    acknowledged = sender.outcome is not None and sender.outcome.outcome is Outcome.DELIVERED
    if receiver.received:
        if len(set(_contents(sender, receiver))) > 1:
            return Disagreement.CONTENT, "The content received is not the content submitted."
        numbers = _number(sender), _number(receiver)
        if None not in numbers and numbers[0] != numbers[1]:
            return (
                Disagreement.NUMBER,
                f"It was sent as number {numbers[0]}, received as {numbers[1]}.",
            )
        if not acknowledged and sender.outcome is not None and not sender.outcome.reliable:
            return None, ""  # Best effort: its sender claims no more than that it was sent.
        if not acknowledged:
            return (
                Disagreement.DELIVERED,
                "The receiver has it, and the sender may take it as delivered.",
            )
        strange = _strange_acks(sender, receiver)
        if strange:
            return (
                Disagreement.ACKNOWLEDGEMENT,
                f"The sender accepted {strange[0]}, which the receiver never gave.",
            )
        return None, ""
    if not acknowledged:
        return None, ""  # Neither claims that it arrived.
    if receiver.has(REFUSED):
        return Disagreement.REFUSED, "The sender holds an acknowledgement of what was refused."
    return (
        Disagreement.NOT_RECEIVED,
        "The sender holds an acknowledgement, but the receiver's books do not have the message.",
    )


def _contents(sender: Statement, receiver: Statement) -> list[str]:
    """The digests that both told: of a document, of what was split and what was joined."""
    submitted, received = sender.first(SUBMITTED), receiver.first(RECEIVED)
    joined = receiver.first(JOINED)
    sent = None if submitted is None else submitted.digest
    if received is None and joined is not None and submitted is not None:
        received, sent = joined, notes.Submitted.read(submitted.detail).document_digest
    found = (sent, None if received is None else received.digest)
    return [digest for digest in found if digest is not None]


def _number(statement: Statement) -> int | None:
    return None if statement.outcome is None else statement.outcome.sequence_number


def _strange_acks(sender: Statement, receiver: Statement) -> list[str]:
    """Acknowledgements of the To Party that it did not give; a hub's are no matter here."""
    given = {row.ref_to for row in receiver.rows if row.kind == ACK_SENT}
    found = []
    for row in sender.rows:
        if row.kind != ACKNOWLEDGED or row.ref_to is None or row.ref_to in given:
            continue
        said = notes.Acknowledged.read(row.detail)
        if said.by == "ack" and not said.hop and given:
            found.append(row.ref_to)
    return found


# --- in words ---------------------------------------------------------------------------------


def _sender_says(sender: Statement) -> str:
    if not sender.sent:
        return "nothing"
    if sender.outcome is None:
        return "unreadable"
    return sender.outcome.outcome.value


def _receiver_says(receiver: Statement) -> str:
    outcome = receiver.outcome
    if not receiver.rows:
        return "nothing"
    if receiver.received and outcome is not None:
        if outcome.confirmed:
            return "confirmed"
        if outcome.given_up_by is not None:
            return "given_up"
        return "handed_over" if outcome.handed_over else "received"
    refused = receiver.first(REFUSED)
    return "refused" if refused is not None else "nothing"


def _sender_proof(sender: Statement) -> str:
    acknowledged = [row for row in sender.rows if row.kind == ACKNOWLEDGED]
    if acknowledged:
        row = acknowledged[-1]
        said = notes.Acknowledged.read(row.detail)
        how = "signed acknowledgement" if said.signed else "acknowledgement"
        return f"{how} {row.ref_to or ''} of {row.peer or 'the receiver'}".strip()
    if sender.has(REJECTED):
        return "the receiver's error message"
    if sender.has(NOTIFIED):
        return "a failure notice of its own"
    return f"its own record of {len(sender.rows)} rows" if sender.rows else ""


def _receiver_proof(receiver: Statement) -> str:
    received = receiver.first(RECEIVED)
    if received is not None:
        said = notes.Received.read(received.detail)
        signed = "signed message" if said.signature == "verified" else "message"
        return f"the {signed} with digest {(received.digest or '')[:16]}"
    joined = receiver.first(JOINED)
    if joined is not None:
        return f"the document with digest {(joined.digest or '')[:16]}"
    refused = receiver.first(REFUSED)
    if refused is not None:
        return f"its refusal with {notes.Refused.read(refused.detail).code}"
    return ""


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
    frames = [
        read_book(spark, book, 0, book.bounds()[1]).select(*COLUMNS) for book in (ours, theirs)
    ]
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


def _sides(frames: list[DataFrame], nodes: tuple[str, str]) -> _Sides:
    names, together = [], Context()
    for frame, node in zip(frames, nodes, strict=True):
        few = frame.where(f.col("kind").isin(sorted(CONTEXT_KINDS))).toArrow().sort_by("seq")
        rows = [row for batch in few.to_batches() for row in rows_of_batch(batch)]
        context = Context.gather(rows, healed=True)
        names.append(frozenset({node, *context.homes}.union(*context.archives.values())))
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
