"""The ledger: one row and one verdict for each message.

The verdict is the fold of `oncewire.journal`, run over each message's rows where Spark has
brought them together. Nothing here decides anything about a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, BooleanType, StructField, StructType, TimestampType

from oncewire.journal.check import Judged, fold_ledger
from oncewire.journal.outcome import MessageOutcome
from oncewire.journal.predicates.message import Extent
from oncewire.journal.predicates.violation import QUARANTINE, Violation, ViolationKind
from oncewire.journal.trace import JOINED, RECEIVED, SUBMITTED
from oncewire.pipeline.extents import Way
from oncewire.pipeline.judging import Judging
from oncewire.pipeline.rows import batch_of, rows_of
from oncewire.pipeline.schemas import FINDING, LEDGER, OUTCOME, arrow

if TYPE_CHECKING:
    import pyarrow as pa

Fold = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]

FOLDED = StructType([*LEDGER.fields, StructField("closed", BooleanType(), False)])
"""A ledger row, and whether nothing more is expected of the message."""

MESSAGES_PER_BATCH = 5_000

RANK = {kind.value: rank for rank, kind in enumerate(ViolationKind)}
_UNREADABLE = "unreadable"
_INSTANTS = [field.name for field in OUTCOME.fields if isinstance(field.dataType, TimestampType)]
_NOTHING = (None,) * (len(OUTCOME.fields) - 1)
_NOWHERE: dict[str, str | None] = {}


def by_message(rows: DataFrame, tasks: int) -> DataFrame:
    """Each message's rows together, in order of node and position."""
    return (
        rows.where(f.col("message_id").isNotNull())
        .repartition(tasks, "message_id")
        .sortWithinPartitions("message_id", "node", "seq")
    )


def fold_messages(rows: DataFrame, judging: Judging, tasks: int) -> DataFrame:
    """The ledger rows of all messages among the rows, with their own violations only."""
    return by_message(rows, tasks).mapInArrow(ledger_fold(judging), FOLDED)


def ledger_fold(judging: Judging) -> Fold:
    """The fold that each task runs."""

    def fold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        page = _Page(judging)
        judged = fold_ledger(rows_of(page.noting(batches)), judging.context)
        while some := list(islice(judged, MESSAGES_PER_BATCH)):
            yield page.written(some)

    return fold


class Peers:
    """Whom messages went to and came from, noted as their batches pass by.

    A few facts of a message are not kept by its outcome. They are taken from whole columns, and
    forgotten when they are asked for.
    """

    __slots__ = ("_from_peer", "_to_peer")

    def __init__(self) -> None:
        self._to_peer: dict[str, str | None] = {}
        self._from_peer: dict[str, dict[str, str | None]] = {}

    def noting(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches."""
        for batch in batches:
            self.note(batch)
            yield batch

    def note(self, batch: pa.RecordBatch) -> None:
        """One more batch."""
        import pyarrow.compute as pc

        kinds = batch["kind"]
        self._to_peer.update(_values(batch, pc.equal(kinds, SUBMITTED), "message_id", "peer"))
        # A document is received when it is joined.
        came = pc.or_(pc.equal(kinds, RECEIVED), pc.equal(kinds, JOINED))
        received = _values(batch, came, "message_id", "node", "peer")
        for message_id, node, peer in received:
            self._from_peer.setdefault(message_id, {})[node] = peer

    def to(self, message_id: str) -> str | None:
        """Whom it was submitted for."""
        return self._to_peer.pop(message_id, None)

    def of(self, message_id: str, receiver: str | None) -> str | None:
        """Whom the receiver has it from."""
        return self._from_peer.pop(message_id, _NOWHERE).get(receiver or "")

    def way(self, outcome: MessageOutcome | None) -> Way:
        """The way of a message."""
        if outcome is None:
            return Way(None, None, None, None, None)
        to = self.to(outcome.message_id)
        of = self.of(outcome.message_id, outcome.receiver)
        partner = to if outcome.sender else of
        return Way(outcome.sender, outcome.receiver, partner, outcome.channel, outcome.terms_id)


class _Page:
    """Ledger rows of one task, made column by column."""

    __slots__ = ("_judging", "_peers", "_suspended", "_waiting")

    def __init__(self, judging: Judging) -> None:
        self._judging = judging
        self._suspended = sorted({channel for _, channel in judging.context.suspended})
        self._peers = Peers()
        self._waiting: set[str] = set()

    def noting(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches."""
        import pyarrow as pa
        import pyarrow.compute as pc

        suspended = pa.array(self._suspended, pa.string())
        for batch in batches:
            self._peers.note(batch)
            if len(suspended):
                waits = pc.is_in(batch["channel"], value_set=suspended)
                waiting = _values(batch, waits, "message_id")
                self._waiting.update(message_id for (message_id,) in waiting)
            yield batch

    def written(self, judged: list[Judged]) -> Any:
        """A batch of ledger rows, one for each message."""
        import pyarrow as pa
        import pyarrow.compute as pc

        schema = arrow(FOLDED)
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
        told = [found for _, found, _, _ in judged]
        # The last thing that is known to have happened to it, on any node.
        ended = pc.max_element_wise(*(outcomes[name].cast(pa.int64()) for name in _INSTANTS))
        rest = {
            "verdict": _verdicts(judged, outcomes["outcome"]),
            "extent": [each_verdict.extent.value for each_verdict in judged],
            "from_peer": [
                self._peers.of(message_id, receiver)
                for message_id, receiver in zip(ids, outcomes["receiver"].to_pylist(), strict=True)
            ],
            "to_peer": [self._peers.to(message_id) for message_id in ids],
            "closed_on": ended.cast(pa.timestamp("us")).cast(pa.date32()),
            "violations": [found or None for found in told],
            "closed": self._closed(judged, ended.to_pylist()),
        }
        made = [
            rest[field.name] if isinstance(rest[field.name], pa.Array)
            else pa.array(rest[field.name], field.type)
            for field in list(schema)[len(OUTCOME.fields) :]
        ]  # fmt: skip
        return pa.RecordBatch.from_arrays([*outcomes.columns, *made], schema=schema)

    def _closed(
        self,
        judged: list[Judged],
        ended: list[int | None],
    ) -> list[bool]:
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


def _values(batch: pa.RecordBatch, mask: pa.Array, *names: str) -> Iterator[tuple[Any, ...]]:
    """Some columns of the rows that a mask chooses."""
    return zip(*(batch[name].filter(mask).to_pylist() for name in names), strict=True)


def _verdicts(judged: list[Judged], outcomes: pa.Array) -> list[str]:
    """The words of all outcomes, except where a promise is broken or nothing can be read."""
    found: list[str | None] = outcomes.to_pylist()
    return [
        (word or _UNREADABLE) if not violations else verdict(word or _UNREADABLE, violations)
        for word, (_, violations, _, _) in zip(found, judged, strict=True)
    ]


def verdict(outcome: str, violations: list[Violation]) -> str:
    """The outcome, or the gravest violation: the first in the order of `ViolationKind`."""
    broken = [found.kind for found in violations if found.predicate != QUARANTINE]
    return min(broken, key=RANK.__getitem__) if broken else outcome


def with_findings(ledger: DataFrame, findings: DataFrame) -> DataFrame:
    """Ledger rows with what channels and documents show of their messages."""
    names = FINDING.fieldNames()
    told = (
        findings.where(f.col("message_id").isNotNull())
        .select(f.col("message_id").alias("of"), f.struct(*names).alias("finding"))
        .groupBy("of")
        # Sorted, because the order in which tasks finish must not show.
        .agg(f.sort_array(f.collect_list("finding")).alias("more"))
    )
    joined = ledger.join(told, ledger["message_id"] == told["of"], "left")
    # Beyond the first, what a message has of its own and of its channel is one list.
    every = f.when(
        f.col("more").isNotNull(),
        f.concat(f.coalesce(f.col("violations"), f.array().cast(_FINDINGS)), f.col("more")),
    ).otherwise(f.col("violations"))
    ranks = f.create_map(*(f.lit(value) for pair in RANK.items() for value in pair))
    gravest = f.array_min(
        f.transform(
            f.filter("more", lambda column: column["predicate"] != QUARANTINE),
            lambda column: f.struct(
                ranks[column["kind"]].alias("rank"), column["kind"].alias("kind")
            ),
        )
    )
    own = f.struct(
        f.coalesce(ranks[f.col("verdict")], f.lit(len(RANK))).alias("rank"),
        f.col("verdict").alias("kind"),
    )
    final = f.when(gravest.isNotNull(), f.least(own, gravest)["kind"]).otherwise(f.col("verdict"))
    return joined.select(
        *(
            {"violations": every, "verdict": final}.get(name, f.col(name)).alias(name)
            for name in ledger.columns
        )
    )


_FINDINGS = ArrayType(FINDING)
