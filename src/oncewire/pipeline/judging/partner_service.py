"""Partner service: what each partner got and gave, hour by hour, from the ledger.

A document counts as the one message that it is; what its parts took (resends, copies) and what is
wrong with them counts too.

Spark's own columns throughout: none of this is a rule of the protocol.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from oncewire.journal.outcome import Outcome
from oncewire.pipeline.lake.tables import PARTNER_SERVICE

_SECOND = 1_000_000


SPAN_DAYS = 28
"""So many days of partner service lie in one directory."""


def span_of(hour: Column) -> Column:
    """The number of the span of days that an hour is in; one day changes, and its span is written
    again."""
    return f.floor(f.unix_date(f.to_date(hour)) / SPAN_DAYS).cast("int")


def partner_service(ledger: DataFrame, days: Collection[date] | None, tasks: int) -> DataFrame:
    """One row for each node, direction, partner and hour, with its span; with days, of those days
    alone. The hours of a span are counted by one task."""
    messages = ledger.where(f.col("outcome").isNotNull())
    sent = messages.where(f.col("submitted_at").isNotNull()).select(
        f.col("sender").alias("node"),
        f.lit("out").alias("direction"),
        f.col("to_peer").alias("partner"),
        f.date_trunc("hour", "submitted_at").alias("hour"),
        (f.col("latency") / _SECOND).alias("waited"),
        "*",
    )
    received = messages.where(f.col("received_at").isNotNull()).select(
        f.col("receiver").alias("node"),
        f.lit("in").alias("direction"),
        f.col("from_peer").alias("partner"),
        f.date_trunc("hour", "received_at").alias("hour"),
        # Here it is the way from the store to the application, on the receiver's clock.
        ((f.unix_micros("handed_over_at") - f.unix_micros("received_at")) / _SECOND).alias(
            "waited"
        ),
        "*",
    )
    both = sent.unionByName(received)
    if days is not None:
        both = both.where(f.to_date("hour").isin(sorted(days)))
    both = both.withColumn("span", span_of(f.col("hour")))
    return _by_hour(both.coalesce(1) if tasks == 1 else both.repartition(tasks, "span"))


def _by_hour(messages: DataFrame) -> DataFrame:
    # Exact, because an approximation would depend on how the rows were divided.
    whole = f.col("part_of").isNull()
    waited = f.when(whole, f.col("waited"))
    shares = f.percentile(waited, f.array(f.lit(0.5), f.lit(0.95), f.lit(0.99)))
    counted = messages.groupBy("span", "node", "direction", "partner", "hour").agg(
        _count(whole).alias("messages"),
        f.sum(f.when(whole, f.col("size"))).alias("bytes"),
        *(
            _count(whole & (f.col("outcome") == outcome.value)).alias(outcome.value)
            for outcome in _OUTCOMES
        ),
        # No part is sent with best effort.
        _count(~f.col("reliable")).alias("best_effort"),
        _count(~f.col("reliable") & f.col("received_at").isNotNull()).alias("arrived"),
        _count(f.col("violations").isNotNull()).alias("violations"),
        f.sum("resends").alias("resends"),
        f.sum("duplicates_stopped").alias("duplicates_stopped"),
        _count(whole & f.col("late_ack")).alias("late_acks"),
        shares.alias("shares"),
    )
    for position, name in enumerate(("latency_p50", "latency_p95", "latency_p99")):
        counted = counted.withColumn(name, f.col("shares")[position])
    return counted.select(*PARTNER_SERVICE.fieldNames(), "span")


_OUTCOMES = (Outcome.DELIVERED, Outcome.NOT_DELIVERED, Outcome.UNKNOWN, Outcome.IN_FLIGHT)


def _count(condition: Column) -> Column:
    return f.count(f.when(condition, 1))
