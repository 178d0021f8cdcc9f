"""The ledger: one row and one verdict for each message.

The verdict is the fold of `oncewire.journal`, run over each message's rows where Spark has
brought them together. Nothing here decides anything about a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType

from oncewire.journal.check import fold_ledger
from oncewire.journal.predicates.violation import QUARANTINE
from oncewire.pipeline.courses import divided
from oncewire.pipeline.judging import Judging
from oncewire.pipeline.page import FOLDED, RANK, Page
from oncewire.pipeline.rows import rows_of_batch
from oncewire.pipeline.schemas import FINDING

if TYPE_CHECKING:
    import pyarrow as pa

Fold = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]

MESSAGES_PER_BATCH = 5_000


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
        page = Page(judging)
        for taken, known, rest in divided(batches, judging):
            if len(taken.begins):
                yield page.taken(taken, known)
            page.note(rest)
            judged = (
                each
                for each in fold_ledger(rows_of_batch(rest), judging.context)
                if each.is_message or each.violations
            )
            while some := list(islice(judged, MESSAGES_PER_BATCH)):
                yield page.written(some)

    return fold


def with_findings(ledger: DataFrame, findings: DataFrame) -> DataFrame:
    """Ledger rows with what channels and documents show of their messages."""
    ranks = f.create_map(*(f.lit(value) for pair in RANK.items() for value in pair))
    broken = f.when(
        f.col("predicate") != QUARANTINE, f.struct(ranks[f.col("kind")].alias("rank"), "kind")
    )
    # What can be worked out of the findings is not worked out of every message, which are many.
    told = (
        findings.where(f.col("message_id").isNotNull())
        .select(
            f.col("message_id").alias("of"),
            f.struct(*FINDING.fieldNames()).alias("finding"),
            broken.alias("broken"),
        )
        .groupBy("of")
        # Sorted, because the order in which tasks finish must not show.
        .agg(f.sort_array(f.collect_list("finding")).alias("more"), f.min("broken").alias("worst"))
    )
    joined = ledger.join(told, ledger["message_id"] == told["of"], "left")
    # Beyond the first, what a message has of its own and of its channel is one list.
    every = f.when(
        f.col("more").isNotNull(),
        f.concat(f.coalesce(f.col("violations"), f.array().cast(_FINDINGS)), f.col("more")),
    ).otherwise(f.col("violations"))
    own = f.coalesce(ranks[f.col("verdict")], f.lit(len(RANK)))
    final = (
        f.when(f.col("worst").isNull(), f.col("verdict"))
        .when(own <= f.col("worst.rank"), f.col("verdict"))
        .otherwise(f.col("worst.kind"))
    )
    return joined.select(
        *(
            {"violations": every, "verdict": final}.get(name, f.col(name)).alias(name)
            for name in ledger.columns
        )
    )


_FINDINGS = ArrayType(FINDING)
