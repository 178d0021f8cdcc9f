"""Retention: which messages of which stores may be removed, and what the others wait for.

Spark reports, the handler deletes: a store knows what a journal does not tell (a legal hold, an
open incident, an answer that is owed), so what is removable here may still be kept there, and
nothing is removed by this.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from oncewire.message.envelope import TRIAL_MARK
from oncewire.message.instant import SECOND, Instant
from oncewire.pipeline.judging.gold import look_around
from oncewire.pipeline.lake.columns import LEDGER, MESSAGES, RETENTION
from oncewire.pipeline.lake.lake import Lake, TableFile
from oncewire.pipeline.lake.tables import OPEN, data_path
from oncewire.pipeline.lake.version import Entry, Version
from oncewire.pipeline.session import pinned
from oncewire.pipeline.tasks import RESULT, Batches, results, returning, run_each
from oncewire.protocol.states import Outcome
from oncewire.protocol.terms import Terms

_FAILED = f"outcome IN ('{Outcome.NOT_DELIVERED.value}', '{Outcome.UNKNOWN.value}')"

WAITS_FOR = f"""
CASE
  WHEN kept_us IS NULL THEN 'Its terms are not in the lake.'
  WHEN outcome IS NULL THEN 'Nothing can be said of its outcome.'
  WHEN event IN ('submitted', 'forwarded') AND outcome = '{Outcome.IN_FLIGHT.value}'
    THEN 'It has no outcome yet.'
  WHEN event = 'submitted' AND reliable AND NOT notified AND {_FAILED}
    THEN 'The notice of its failure was not taken.'
  WHEN event IN ('received', 'joined') AND confirmed_count = 0 AND given_up_by IS NULL
    THEN 'No application has confirmed it.'
  WHEN keep_until_at > as_of_at THEN 'It is kept for as long as was agreed.'
END
"""
"""Why a message stays; empty where nothing that a journal tells keeps it."""


@dataclass(frozen=True, slots=True)
class Removable:
    """What a lake says of the messages in its nodes' stores."""

    version: int
    messages: int
    removable: int
    removable_bytes: int


def report_retention(spark: SparkSession, lake: Lake, now: Instant) -> Removable:
    """Make the table `retention` as of an instant, and publish it."""
    with pinned(spark), lake.writing():
        version = lake.shown()
        ((judging, _),) = run_each(spark, [partial(look_around, lake.root, version, False)])
        rows = retention(spark, lake, version, judging.context.terms, now)
        name = f"v{version.number + 1:08d}"
        lake.clear(data_path("retention", name))
        written = results(rows.mapInArrow(returning(partial(_write, lake.root, name)), RESULT))
        entries = [entry for entry, _, _ in written]
        published = lake.publish(version.with_table("retention", entries))
    removable, size = (sum(each[at] for each in written) for at in (1, 2))
    return Removable(published.number, sum(entry.rows for entry in entries), removable, size)


def retention(
    spark: SparkSession, lake: Lake, version: Version, terms: dict[str, Terms], now: Instant
) -> DataFrame:
    """A row for each message in each store, as of an instant."""
    kept = [(name, each.persist_duration + each.keep) for name, each in terms.items()]
    agreed = spark.createDataFrame(kept, "terms_id string, kept_us long")
    ledger = lake.read(spark, version, LEDGER, *OPEN["ledger"].stored)
    # A part is confirmed by joining its document.
    outcomes = ledger.select(
        "message_id", "outcome", "reliable", "notified", "given_up_by", "first_sent_at",
        "confirmed_count",
    )  # fmt: skip
    own = f.col("event") == "submitted"
    rows = lake.read(spark, version, MESSAGES, "messages")
    return (
        rows.where(~f.col("message_id").startswith(TRIAL_MARK))
        .join(outcomes, "message_id", "left")
        .join(f.broadcast(agreed), "terms_id", "left")
        .withColumn("as_of_at", f.lit(datetime.fromtimestamp(now / SECOND, UTC)))
        .withColumn("began", f.when(own, f.coalesce("first_sent_at", "at")).otherwise(f.col("at")))
        .withColumn("keep_until_at", f.expr("timestamp_micros(unix_micros(began) + kept_us)"))
        .withColumn("direction", f.when(own, "out").otherwise("in"))
        .withColumn("waits_for", f.expr(WAITS_FOR))
        .withColumn("removable", f.col("waits_for").isNull())
        .select(
            *(f.col({"partner": "peer"}.get(name, name)).alias(name)
              for name in RETENTION.fieldNames())
        )
    )  # fmt: skip


def _write(root: Any, name: str, batches: Batches) -> tuple[Entry, int, int]:
    """The task that writes what came to it; returns how many are removable, and their bytes."""
    import pyarrow.compute as pc

    part = TaskContext.get().partitionId()  # type: ignore[union-attr]
    file = TableFile(root, "retention", data_path("retention", f"{name}/{part}"), RETENTION)
    count = size = 0
    for batch in batches:
        gone = batch.filter(batch["removable"])
        count, size = count + len(gone), size + (pc.sum(gone["size_bytes"]).as_py() or 0)
        file.write(batch)
    return file.close(), count, size
