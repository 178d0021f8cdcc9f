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

from oncewire.journal.predicates.context import Context
from oncewire.journal.row import COLUMNS, Row
from oncewire.journal.trace import STARTED, TERMS
from oncewire.message.instant import DAY, Duration, Instant
from oncewire.pipeline.lake import Lake, Version
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


def gather(lake: Lake, version: Version, *, ended: bool) -> Judging:
    """The context of all nodes of a version, from its table `context`."""
    found = Context.gather(_few(lake.folders(version, "context")), healed=ended)
    for node in version.nodes:
        found.homes.setdefault(node, set()).add(node)
    if not ended:
        found.healed_before = _settled_before(version, found)
    return Judging(found, ended)


def _few(folders: list[str]) -> list[Row]:
    """The rows that make the context, each node's in order.

    Every boot says the same as the one before unless it says something new, and of a channel
    only its last word counts. So they stay few, however long the journal is.
    """
    import pyarrow.dataset as ds

    said: dict[tuple[str, str, str, str], Row] = {}
    last: dict[tuple[str, str], Row] = {}
    for folder in folders:
        for batch in ds.dataset(folder, format="parquet").to_batches(columns=list(COLUMNS)):
            for row in rows_of_batch(batch):
                if row.kind in (STARTED, TERMS):
                    said.setdefault((row.node, row.kind, row.terms_id or "", row.detail or ""), row)
                elif row.channel is not None:
                    before = last.setdefault((row.node, row.channel), row)
                    if before.seq < row.seq:
                        last[row.node, row.channel] = row
    return sorted((*said.values(), *last.values()), key=lambda row: (row.node, row.seq))


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
