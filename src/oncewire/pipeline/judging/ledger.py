"""The ledger: one row and one verdict for each message.

The verdict is the fold of `oncewire.journal`, run over each message's rows where Spark has
brought them together. Nothing here decides anything about a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import BooleanType, StructField, StructType, TimestampType

from oncewire.journal.check import Judged, fold_ledger
from oncewire.journal.history_shape import DOCUMENT, ORIGIN, Anonymous, Measured
from oncewire.journal.outcome import HEADER, MessageOutcome
from oncewire.journal.predicates.context import QUARANTINE, Violation, ViolationKind
from oncewire.journal.predicates.message import Extent
from oncewire.pipeline.judging.courses import Known, Taken, divided, fact_in
from oncewire.pipeline.judging.extent import Judging, Peers, values_of
from oncewire.pipeline.lake.columns import LEDGER, OUTCOME, arrow
from oncewire.pipeline.lake.tables import batch_of, rows_of_batch
from oncewire.pipeline.tasks import Batches

if TYPE_CHECKING:
    import pyarrow as pa


# Page: ledger rows of one task, made column by column.


FOLDED = StructType([*LEDGER.fields, StructField("closed", BooleanType(), False)])
"""A ledger row, and whether nothing more is expected of the message."""

RANK = {kind.value: rank for rank, kind in enumerate(ViolationKind)}
_UNREADABLE = "unreadable"
_INSTANTS = [field.name for field in OUTCOME.fields if isinstance(field.dataType, TimestampType)]
_PEERS = ("from_peer", "to_peer")
_NOTHING = (None,) * (len(OUTCOME.fields) - 1)


class Page:
    """Ledger rows of messages, judged by themselves or by the known way that they went."""

    __slots__ = ("_known", "_peers", "_said", "_suspended", "_waiting")

    def __init__(self, judging: Judging) -> None:
        self._suspended = sorted({channel for _, channel in judging.context.suspended})
        self._peers = Peers()
        self._waiting: set[str] = set()
        self._known: list[Known] = []
        self._said: dict[str, list[Any]] = {}
        """What the known ways say, by column."""

    def note(self, batch: pa.RecordBatch) -> None:
        """Note rows whose messages will be judged."""
        import pyarrow as pa
        import pyarrow.compute as pc

        self._peers.note(batch)
        if self._suspended:
            waits = pc.is_in(batch["channel"], value_set=pa.array(self._suspended, pa.string()))
            self._waiting.update(found for (found,) in values_of(batch, waits, "message_id"))

    # --- judged by themselves ---

    def written(self, judged: list[Judged]) -> pa.RecordBatch:
        """A batch of ledger rows, one for each message."""
        values = [
            each_verdict.outcome
            or (
                next(told.message_id for told in each_verdict.violations if told.message_id),
                *_NOTHING,
            )
            for each_verdict in judged
        ]
        ids = [outcome[0] or "" for outcome in values]
        outcomes = batch_of(list(zip(*values, strict=True)), arrow(OUTCOME))
        told = [each_verdict.violations for each_verdict in judged]
        ended = _ended(outcomes)
        # The words of all outcomes, except where a promise is broken or nothing can be read.
        found: list[str | None] = outcomes["outcome"].to_pylist()
        rest = {
            "verdict": [
                verdict(word or _UNREADABLE, each_verdict.violations)
                if each_verdict.violations
                else word or _UNREADABLE
                for word, each_verdict in zip(found, judged, strict=True)
            ],
            "judgement": [each_verdict.extent.value for each_verdict in judged],
            "from_peer": [
                self._peers.of(message_id, receiver)
                for message_id, receiver in zip(ids, outcomes["receiver"].to_pylist(), strict=True)
            ],
            "to_peer": [self._peers.to(message_id) for message_id in ids],
            "findings": [found or None for found in told],
            "closed": self._closed(judged, ended.to_pylist()),
        }
        return _assembled(outcomes, ended, rest)

    def _closed(self, judged: list[Judged], ended: list[int | None]) -> list[bool]:
        """Whether nothing more is expected of each message."""
        return [
            each_verdict.outcome is not None
            and each_verdict.outcome.final
            and each_verdict.closed
            and each_verdict.extent is Extent.JUDGED
            and at is not None
            and each_verdict.outcome.message_id not in self._waiting
            and not any(found.predicate == QUARANTINE for found in each_verdict.violations)
            for each_verdict, at in zip(judged, ended, strict=True)
        ]

    # --- by the ways that are known ---

    def taken(self, taken: Taken, known: list[Known]) -> pa.RecordBatch:
        """A batch of ledger rows, one for each message that went a known way."""
        import pyarrow as pa
        import pyarrow.compute as pc

        self._hear(known)
        schema, said = arrow(OUTCOME), self._said
        outcomes = pa.RecordBatch.from_arrays(
            [
                _column(taken, said[name], name, field.type)
                for name, field in zip(MessageOutcome._fields, schema, strict=True)
            ],
            schema=schema,
        )
        ended, ways = _ended(outcomes), pa.array(taken.ways)
        final = pa.array(said["final"]).take(ways)
        rest = {
            "verdict": outcomes["outcome"],
            "judgement": pa.repeat(Extent.JUDGED.value, len(ways)),
            "from_peer": pa.array(said["from_peer"], pa.string()).take(ways),
            "to_peer": pa.array(said["to_peer"], pa.string()).take(ways),
            "findings": [None] * len(ways),
            "closed": pc.and_(pc.and_(final, pa.array(taken.closed)), ended.is_valid()),
        }
        return _assembled(outcomes, ended, rest)

    def _hear(self, known: list[Known]) -> None:
        """Take in ways that were learned since the last call, or all of them if they begin anew."""
        if known is not self._known:
            self._known, self._said = known, {}
        for name in (*MessageOutcome._fields, *_PEERS, "final"):
            said = self._said.setdefault(name, [])
            for each in known[len(said) :]:
                said.append(
                    getattr(each if name in ("from_peer", "to_peer") else each.outcome, name)
                )


def _column(taken: Taken, said: list[Any], name: str, kind: pa.DataType) -> pa.Array:
    """One fact of the outcomes: what the ways say, or what they say to look for."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if name in ("message_id", "part_of"):
        own = taken.batch["message_id"].take(pa.array(taken.begins))
        if name == "message_id":
            return own
        names = pa.array(said, kind).take(pa.array(taken.ways))
        named = pc.if_else(pc.equal(names, DOCUMENT), taken.documents, own)
        return pc.if_else(names.is_valid(), named, pa.scalar(None, kind))
    hidden = next((value for value in said if isinstance(value, Anonymous)), None)
    if hidden is None:
        return pa.array(said, kind).take(pa.array(taken.ways))
    rows = [None if value is None else value.row for value in said]
    if name in HEADER:
        fact = fact_in(_looked_up(taken, "detail", rows), name)
        return pc.if_else(pc.equal(fact, ""), pa.scalar(None, kind), fact)
    found = _looked_up(taken, hidden.column, rows)
    if isinstance(hidden, Measured) and hidden.since != ORIGIN:
        since = [None if value is None else value.since for value in said]
        found = pc.subtract(found, _looked_up(taken, hidden.column, since))
    return found.cast(kind)


def _looked_up(taken: Taken, name: str, rows: list[int | None]) -> pa.Array:
    """What stands in a column, in that row of each message that its way names."""
    import pyarrow as pa
    import pyarrow.compute as pc

    places = pa.array(rows, pa.int64()).take(pa.array(taken.ways))
    return taken.batch[name].take(pc.add(places, pa.array(taken.begins)))


def _ended(outcomes: pa.RecordBatch) -> pa.Array:
    """The last thing that is known to have happened to each message, on any node."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.max_element_wise(*(outcomes[name].cast(pa.int64()) for name in _INSTANTS))


def _assembled(outcomes: pa.RecordBatch, ended: pa.Array, rest: dict[str, Any]) -> pa.RecordBatch:
    import pyarrow as pa

    schema = arrow(FOLDED)
    rest["closed_on"] = ended.cast(pa.timestamp("us")).cast(pa.date32())
    made = [
        rest[field.name]
        if isinstance(rest[field.name], pa.Array)
        else pa.array(rest[field.name], field.type)
        for field in list(schema)[len(OUTCOME.fields) :]
    ]
    return pa.RecordBatch.from_arrays([*outcomes.columns, *made], schema=schema)


def verdict(outcome: str, violations: list[Violation]) -> str:
    """The outcome, or the gravest violation: the first in the order of `ViolationKind`."""
    broken = [found.kind for found in violations if found.predicate != QUARANTINE]
    return min(broken, key=RANK.__getitem__) if broken else outcome


MESSAGES_PER_BATCH = 5_000


def judged_batches(
    batches: Batches, judging: Judging
) -> Iterator[tuple[pa.RecordBatch, list[pa.RecordBatch]]]:
    """Rows that are sorted by message, and the ledger rows of all messages among them, with their
    own violations only."""
    page = Page(judging)
    for taken, known, rest in divided(batches, judging):
        made = [page.taken(taken, known)] if len(taken.begins) else []
        page.note(rest)
        judged = (
            each
            for each in fold_ledger(rows_of_batch(rest), judging.context)
            if each.is_message or each.violations
        )
        while some := list(islice(judged, MESSAGES_PER_BATCH)):
            made.append(page.written(some))
        yield taken.batch, made


def with_findings(made: pa.RecordBatch, told: Mapping[str, list[Violation]]) -> pa.RecordBatch:
    """Ledger rows with what channels and documents show of their messages."""
    import pyarrow as pa

    ids = made["message_id"].to_pylist()
    if not any(message_id in told for message_id in ids):
        return made
    verdicts, findings = made["verdict"].to_pylist(), made["findings"].to_pylist()
    for index, message_id in enumerate(ids):
        found = told.get(message_id)
        if not found:
            continue
        # Sorted, because the order in which they were found must not show; empty comes first.
        ordered = sorted(
            found, key=lambda finding: tuple((value is not None, value or "") for value in finding)
        )
        findings[index] = [*(findings[index] or ()), *(each._asdict() for each in ordered)]
        gravest = verdict("", found)
        if gravest and RANK[gravest] < RANK.get(verdicts[index], len(RANK)):
            verdicts[index] = gravest
    for name, values in (("verdict", verdicts), ("findings", findings)):
        position = made.schema.get_field_index(name)
        field = made.schema.field(position)
        made = made.set_column(position, field, pa.array(values, field.type))
    return made
