"""Verify: every promise, judged over every row of a lake, whatever its gold tables say."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from oncewire.journal.check import fold_documents, fold_ledger, told_once
from oncewire.journal.outcome import MessageOutcome
from oncewire.journal.predicates.context import QUARANTINE, Violation
from oncewire.journal.predicates.message import Extent
from oncewire.pipeline.judging.channels import fold_channel
from oncewire.pipeline.judging.courses import divided
from oncewire.pipeline.judging.extent import (
    Extents,
    Judging,
    Peers,
    Way,
    row_of,
    rules_digest,
    tasks_for,
    way_of_peers,
)
from oncewire.pipeline.judging.gold import look_around
from oncewire.pipeline.judging.together import (
    BY_CHANNEL,
    CHANNEL,
    DOCUMENT,
    MESSAGE,
    by_fold,
    fed,
    rows_by_key,
    rows_of_channels,
    rows_of_documents,
    rows_of_messages,
    together,
    without_copies,
)
from oncewire.pipeline.lake.columns import FINDING, JOURNAL, JUDGED, arrow
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.lake.proof import Difference, unchained
from oncewire.pipeline.lake.tables import batches_of, rows_of_batch
from oncewire.pipeline.lake.version import Version
from oncewire.pipeline.session import AS_PLANNED, cores_of, pinned
from oncewire.pipeline.sources.ingest import Progress, quiet
from oncewire.pipeline.tasks import Batches, Spent, counting, run_each

COUNTED = StructType(
    [
        *(StructField(name, StringType()) for name in Way._fields),
        StructField("outcome", StringType()),
        StructField("extent", StringType()),
        StructField("part", BooleanType()),
        StructField("messages", LongType()),
    ]
)
"""How many messages of one task went one way, to one outcome, and how far they were judged."""

CHECKED = StructType([*FINDING.fields, StructField("counted", COUNTED)])
"""A finding, or a count."""

_NO_FINDING = (None,) * len(FINDING.fields)


@dataclass(frozen=True, slots=True)
class Verification:
    """What was judged, and what was found."""

    rows: int
    nodes: int
    messages: int
    outcomes: dict[str, int] = field(default_factory=dict)
    violations: tuple[Violation, ...] = ()
    quarantined: tuple[Violation, ...] = ()
    """What cannot be judged, with reasons; no promise is known to be broken there."""
    rows_quarantined: int = 0
    judged: tuple[dict[str, Any], ...] = ()
    """How far each channel was judged, by what clock: rows of the table `judged`."""
    extents: dict[str, int] = field(default_factory=dict)
    """How many messages were judged, not yet, or are in doubt because rows are missing."""
    rules: str = ""
    """Which rules judged: the digest of all that a verdict depends on."""
    parts: int = 0
    """How many parts of documents were judged beside the messages: a document is one of those."""
    unchained: tuple[Difference, ...] = ()
    """Ranges whose rows are not those that their node had chained: see `proof`."""
    spark_jobs: int | None = None
    spark_tasks: int | None = None
    """What Spark ran for it, by its own count."""

    @property
    def clean(self) -> bool:
        """Whether everything that can be judged by now was, and every promise was kept."""
        aside = self.quarantined or self.rows_quarantined or self.unchained
        return not self.violations and not aside

    @property
    def kinds(self) -> dict[str, int]:
        """How many violations of each kind."""
        return dict(Counter(found.kind for found in self.violations))


def judge_lake(
    spark: SparkSession, lake: Lake, *, ended: bool = False, tell: Progress = quiet
) -> Verification:
    """Judge the whole journal of a lake.

    `ended` says that the books are closed: what is still under way now is lost. Otherwise only
    what should be settled by now is judged for being missing.
    """
    with counting(spark, Spent()) as spent, pinned(spark, AS_PLANNED):
        version = lake.current()
        ((judging, _),) = run_each(spark, [partial(look_around, lake.root, version, ended)])
        found = _judge_by(spark, lake, version, judging, tell)
        if judging.context.forget(found.quarantined):
            judging = replace(judging, run=uuid.uuid4().hex)
            found = _judge_by(spark, lake, version, judging, tell)
    return replace(found, spark_jobs=spent.jobs, spark_tasks=spent.tasks)


def _judge_by(
    spark: SparkSession, lake: Lake, version: Version, judging: Judging, tell: Progress
) -> Verification:
    tell(f"judging {version.rows('journal'):,} rows of {len(version.nodes)} nodes")
    tasks = tasks_for(version.rows("journal"), cores_of(spark))
    journal = without_copies(lake.read(spark, version, JOURNAL, "journal"), judging)
    rows = [
        fed(rows_of_channels(journal), CHANNEL, BY_CHANNEL),
        fed(rows_of_documents(journal), DOCUMENT, "document"),
        rows_of_messages(journal),
    ]
    found = together(rows, tasks).mapInArrow(_fold(judging), CHECKED)
    violations: list[Violation] = list(judging.context.problems)
    outcomes: Counter[str] = Counter()
    extents: Counter[str] = Counter()
    ways: dict[Way, Extents] = {}
    parts = 0
    # All tasks at once: an iterator over the partitions would run them one after the other.
    for row in found.toArrow().to_pylist():
        counted = row["counted"]
        if counted is None:
            violations.append(Violation(*(row[name] for name in Violation._fields)))
            continue
        way = Way(*(counted[name] for name in Way._fields))
        known = ways.setdefault(way, Extents())
        if counted["part"]:
            parts += counted["messages"]
            continue
        outcomes[counted["outcome"]] += counted["messages"]
        extents[counted["extent"]] += counted["messages"]
        ways[way] = known.adding(counted["extent"], counted["messages"])
    told = sorted(told_once(violations), key=_order)
    far = [
        dict(zip(JUDGED.fieldNames(), row_of(way, ways[way], judging), strict=True))
        for way in sorted(ways, key=_order)
    ]
    return Verification(
        rows=version.rows("journal"),
        nodes=len(version.nodes),
        messages=sum(outcomes.values()),
        outcomes=dict(sorted(outcomes.items())),
        violations=tuple(violation for violation in told if violation.predicate != QUARANTINE),
        quarantined=tuple(violation for violation in told if violation.predicate == QUARANTINE),
        rows_quarantined=version.rows("quarantine"),
        judged=tuple(far),
        extents=dict(sorted(extents.items())),
        rules=rules_digest(),
        parts=parts,
        unchained=tuple(unchained(version)),
    )


def _fold(judging: Judging) -> Callable[[Batches], Batches]:
    """The task: all findings of its channels, documents and messages, and how many messages came
    to which outcome."""

    def fold(batches: Batches) -> Batches:
        found = (each for kind, some in by_fold(batches) for each in _folded(kind, some, judging))
        return batches_of(found, arrow(CHECKED), 1_000)

    return fold


def _folded(kind: str, batches: Batches, judging: Judging) -> Iterator[tuple[Any, ...]]:
    if kind == MESSAGE:
        yield from _messages(batches, judging)
        return
    for _, group in rows_by_key(batches):
        rows = (each.row for each in group)
        if kind == CHANNEL:
            found = fold_channel(((row, None) for row in rows), judging).findings
        else:
            found = list(fold_documents(rows, judging.context))
        yield from ((*violation, None) for violation in found)


def _messages(batches: Batches, judging: Judging) -> Iterator[tuple[Any, ...]]:
    counts: Counter[tuple[str | bool | None, ...]] = Counter()
    peers = Peers()
    for taken, known, rest in divided(batches, judging):
        for number, count in Counter(taken.ways.tolist()).items():
            each = known[number]
            way = way_of_peers(each.outcome, each.from_peer, each.to_peer)
            counts[_key(way, each.outcome, Extent.JUDGED)] += count
        peers.note(rest)
        for judged in fold_ledger(rows_of_batch(rest), judging.context):
            way = peers.way(judged.outcome)
            if judged.is_message:
                counts[_key(way, judged.outcome, judged.extent)] += 1
            for violation in judged.violations:
                yield *violation, None
    for key, count in counts.items():
        yield *_NO_FINDING, (*key, count)


def _key(way: Way, outcome: MessageOutcome | None, extent: Extent) -> tuple[str | bool | None, ...]:
    """The key by which a message is counted."""
    if outcome is None:
        return *way, "unreadable", extent.value, False
    return *way, outcome.outcome.value, extent.value, outcome.part_of is not None


def _order(found: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(value or "" for value in found)
