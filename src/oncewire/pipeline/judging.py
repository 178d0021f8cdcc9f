"""What every judge must know, gathered from the whole lake once per run.

The journal's `Context` is made of a few rows of every node. To it belongs how far the books are
settled: for an archive that still grows, the absence of a row proves something only once every
timer has run out.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from statistics import median_low
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from oncewire.journal.predicates.context import Context
from oncewire.journal.trace import STARTED, SUSPENDED, TERMS
from oncewire.message.instant import DAY, Duration, Instant
from oncewire.pipeline.lake import Version
from oncewire.pipeline.rows import rows_of_batch

SILENT_AFTER: Duration = 30 * DAY
"""A node that wrote nothing for so long, while most others did, is not waited for."""

ROWS_PER_TASK = 200_000
"""So many rows a fold's task sorts and holds; more only make it spill."""


@dataclass(frozen=True, slots=True)
class Judging:
    """The context of one run, ready to be sent to where the folds run."""

    context: Context
    ended: bool

    @property
    def horizon(self) -> Instant | None:
        """Rows before this instant are settled; None: all of them are."""
        return None if self.context.healed else self.context.healed_before

    def as_dict(self) -> dict[str, Any]:
        """What must be equal for an earlier judgement to stand."""
        homes = sorted((name, sorted(nodes)) for name, nodes in self.context.homes.items())
        text = json.dumps([homes, self.context.declared, self.ended])
        return {
            "circumstances": hashlib.sha256(text.encode()).hexdigest(),
            "healed_before": self.context.healed_before,
            "ended": self.ended,
        }

    def stands(self, judged: dict[str, Any]) -> bool:
        """Whether what was judged then need not be judged again.

        A journal that joins the lake can show what none could show before: that the node it
        belongs to does not have a message.
        """
        return bool(judged) and judged["circumstances"] == self.as_dict()["circumstances"]


def gather(rows: DataFrame, version: Version, *, ended: bool) -> Judging:
    """The context of all nodes of a version, from the rows of its table `context`."""
    found = Context.gather(_few(rows), healed=ended)
    for node in version.nodes:
        found.homes.setdefault(node, set()).add(node)
    if not ended:
        found.healed_before = _settled_before(version, found)
    return Judging(found, ended)


def _few(rows: DataFrame) -> list[Any]:
    """Of each channel only its last word counts, and only if it is that it is suspended."""
    always = rows.where(f.col("kind").isin([STARTED, TERMS]))
    of_channels = rows.where(~f.col("kind").isin([STARTED, TERMS]) & f.col("channel").isNotNull())
    last = Window.partitionBy("node", "channel").orderBy(f.col("seq").desc())
    suspended = (
        of_channels.withColumn("nth", f.row_number().over(last))
        .where((f.col("nth") == 1) & (f.col("kind") == SUSPENDED))
        .drop("nth")
    )
    # Every boot says the same as the one before, unless it says something new.
    said = always.groupBy("node", "kind", "terms_id", "detail").agg(f.min("seq").alias("seq"))
    first = always.join(said.select("node", "seq"), ["node", "seq"], "left_semi")
    table = first.unionByName(suspended).orderBy("node", "seq").toArrow()
    return [row for batch in table.to_batches() for row in rows_of_batch(batch)]


def _settled_before(version: Version, context: Context) -> Instant:
    """The instant before which every timer of every message has run out, on every node.

    Each node's last row says how far its journal goes. A single clock that runs ahead is not
    believed, neither against ours nor against most others: it would call everything late.
    """
    now = time.time_ns() // 1_000
    reached = [min(state.at, now) for state in version.nodes.values()]
    if not reached:
        return 0
    usual = median_low(reached)
    return min(at for at in reached if usual - at < SILENT_AFTER) - longest_wait(context)


def longest_wait(context: Context) -> Duration:
    """How long after its submission a message may be under way.

    A sender stops at persistDuration, and then a hub may begin with its own.
    """
    longest = max((terms.persist_duration for terms in context.terms.values()), default=DAY)
    return 2 * longest


def tasks_for(rows: int, cores: int) -> int:
    """Into how many tasks a fold over so many rows is divided."""
    return max(cores, min(2_000, -(-rows // ROWS_PER_TASK)))
