"""Partner service: what each partner got and gave, hour by hour, from the ledger.

A document counts as the one message that it is; what its parts took (resends, copies) and what is
wrong with them counts too.

Spark's own columns throughout: none of this is a rule of the protocol.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from oncewire.journal.outcome import Outcome
from oncewire.pipeline.lake.tables import PARTNER_SERVICE

_SECOND = 1_000_000


def partner_service(ledger: DataFrame) -> DataFrame:
    """One row for each node, direction, partner and hour."""
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
    return _by_hour(sent.unionByName(received))


def _by_hour(messages: DataFrame) -> DataFrame:
    # Exact, because an approximation would depend on how the rows were divided.
    whole = f.col("part_of").isNull()
    waited = f.when(whole, f.col("waited"))
    shares = f.percentile(waited, f.array(f.lit(0.5), f.lit(0.95), f.lit(0.99)))
    counted = messages.groupBy("node", "direction", "partner", "hour").agg(
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
    return counted.select(*PARTNER_SERVICE.fieldNames())


_OUTCOMES = (Outcome.DELIVERED, Outcome.NOT_DELIVERED, Outcome.UNKNOWN, Outcome.IN_FLIGHT)


def _count(condition: Column) -> Column:
    return f.count(f.when(condition, 1))
