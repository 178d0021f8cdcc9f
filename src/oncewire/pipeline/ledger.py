"""The ledger: one row and one verdict for each reliable message.

The verdict is the fold of `oncewire.journal`, run over each message's rows where Spark has
brought them together. Nothing here decides anything about a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, BooleanType, StructField, StructType

from oncewire.journal.check import fold_ledger
from oncewire.journal.outcome import MessageOutcome
from oncewire.journal.predicates.violation import QUARANTINE, Violation, ViolationKind
from oncewire.journal.row import Row
from oncewire.journal.trace import JOINED, RECEIVED, SUBMITTED
from oncewire.pipeline.judging import Judging
from oncewire.pipeline.rows import batch_of, rows_of
from oncewire.pipeline.schemas import FINDING, LEDGER, OUTCOME, arrow

if TYPE_CHECKING:
    import pyarrow as pa

Fold = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]

FOLDED = StructType([*LEDGER.fields, StructField("closed", BooleanType(), False)])
"""A ledger row, and whether nothing more is expected of the message."""

MESSAGES_PER_BATCH = 5_000

_outcome_values = attrgetter(*OUTCOME.fieldNames())
_RANK = {kind.value: rank for rank, kind in enumerate(ViolationKind)}
_EPOCH = date(1970, 1, 1)
_DAY = 86_400_000_000


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
    context = judging.context
    suspended = {channel for _, channel in context.suspended}

    def fold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = arrow(FOLDED)
        seen = _Seen(suspended)
        pending: list[tuple[Any, ...]] = []
        for outcome, violations in fold_ledger(seen.passing(rows_of(batches)), context):
            pending.append(_ledger_row(outcome, violations, seen, judging))
            if len(pending) >= MESSAGES_PER_BATCH:
                yield batch_of(list(zip(*pending, strict=True)), schema)
                pending = []
        if pending:
            yield batch_of(list(zip(*pending, strict=True)), schema)

    return fold


class _Seen:
    """Facts of a message that its outcome does not keep, noted as its rows pass by."""

    __slots__ = ("_suspended", "documents", "from_peer", "to_peer", "waiting")

    def __init__(self, suspended: set[str]) -> None:
        self._suspended = suspended
        self.to_peer: dict[str | None, str | None] = {}
        self.from_peer: dict[str | None, dict[str, str | None]] = {}
        self.documents: set[str | None] = set()
        self.waiting: set[str | None] = set()

    def passing(self, rows: Iterator[Row]) -> Iterator[Row]:
        suspended = self._suspended
        for row in rows:
            kind = row.kind
            if kind == SUBMITTED:
                self.to_peer[row.message_id] = row.peer
            elif kind == RECEIVED:
                self.from_peer.setdefault(row.message_id, {})[row.node] = row.peer
            elif kind == JOINED:
                self.documents.add(row.message_id)
            if suspended and row.channel in suspended:
                self.waiting.add(row.message_id)
            yield row


def _ledger_row(
    outcome: MessageOutcome | None, violations: list[Violation], seen: _Seen, judging: Judging
) -> tuple[Any, ...]:
    if outcome is None:
        message_id = violations[-1].message_id
        values = (message_id, *(None,) * (len(OUTCOME.fields) - 1))
        final, ended = False, None
    else:
        message_id = outcome.message_id
        values = _outcome_values(outcome)
        ended = _ended_at(outcome)
        final = outcome.final
    unjudged = any(violation.predicate == QUARANTINE for violation in violations)
    waits = message_id in seen.waiting
    closed = (
        final and not unjudged and not waits
        and ended is not None and judging.context.is_healed(ended)
    )  # fmt: skip
    seen.waiting.discard(message_id)
    is_document = message_id in seen.documents
    seen.documents.discard(message_id)
    received_of = seen.from_peer.pop(message_id, {})
    receiver = outcome.receiver if outcome is not None else None
    return (
        *values,
        verdict(outcome.outcome.value if outcome else "unreadable", violations),
        is_document,
        received_of.get(receiver) if receiver is not None else None,
        seen.to_peer.pop(message_id, None),
        None if ended is None else _EPOCH + timedelta(days=ended // _DAY),
        violations or None,
        closed,
    )


def verdict(outcome: str, violations: list[Violation]) -> str:
    """The outcome, or the gravest violation: the first in the order of `ViolationKind`."""
    broken = [found.kind for found in violations if found.predicate != QUARANTINE]
    return min(broken, key=_RANK.__getitem__) if broken else outcome


def _ended_at(outcome: MessageOutcome) -> int | None:
    """The last thing that is known to have happened to it, on any node."""
    return max(
        (
            at
            for at in (
                outcome.submitted_at, outcome.first_sent_at, outcome.acknowledged_at,
                outcome.failed_at, outcome.received_at, outcome.handed_over_at,
                outcome.confirmed_at,
            )
            if at is not None
        ),
        default=None,
    )  # fmt: skip


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
    ranks = f.create_map(*(f.lit(value) for pair in _RANK.items() for value in pair))
    gravest = f.array_min(
        f.transform(
            f.filter("more", lambda one: one["predicate"] != QUARANTINE),
            lambda one: f.struct(ranks[one["kind"]].alias("rank"), one["kind"].alias("kind")),
        )
    )
    own = f.struct(
        f.coalesce(ranks[f.col("verdict")], f.lit(len(_RANK))).alias("rank"),
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


def reliable(ledger: DataFrame) -> DataFrame:
    """Only messages whose delivery was promised, and those that cannot be read."""
    return ledger.where(f.col("reliable") | f.col("reliable").isNull())
