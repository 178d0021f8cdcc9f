"""Verify: every promise, judged over every row of a lake, whatever its gold tables say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from oncewire.journal.check import fold_ledger, told_once
from oncewire.journal.outcome import MessageOutcome
from oncewire.journal.predicates.context import QUARANTINE, Violation
from oncewire.journal.predicates.message import Extent
from oncewire.pipeline.judging import channels
from oncewire.pipeline.judging.channels import fold_documents
from oncewire.pipeline.judging.courses import divided
from oncewire.pipeline.judging.extent import (
    Extents,
    Judging,
    Peers,
    Way,
    gather,
    row_of,
    rules_digest,
    tasks_for,
    way_of_peers,
)
from oncewire.pipeline.judging.ledger import by_message
from oncewire.pipeline.judging.refresh import without_copies
from oncewire.pipeline.lake import silver
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.lake.proof import Difference, unchained
from oncewire.pipeline.lake.tables import FINDING, JOURNAL, JUDGED, arrow, batches_of, rows_of_batch
from oncewire.pipeline.session import cores_of, pinned
from oncewire.pipeline.sources.ingest import Progress, quiet

if TYPE_CHECKING:
    import pyarrow as pa

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
    """What was looked at, and what was found."""

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

    @property
    def clean(self) -> bool:
        """Everything that can be judged by now was, and every promise was kept."""
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
    version = lake.current()
    judging = gather(lake, version, ended=ended)
    tell(f"judging {version.rows('journal'):,} rows of {len(version.nodes)} nodes")
    tasks, few = (
        tasks_for(version.rows(table), cores_of(spark)) for table in ("journal", "documents")
    )
    journal = without_copies(lake.read(spark, version, JOURNAL, "journal"), judging)
    found = findings(journal, judging, tasks, few)
    violations: list[Violation] = list(judging.context.problems)
    outcomes: Counter[str] = Counter()
    extents: Counter[str] = Counter()
    ways: dict[Way, Extents] = {}
    parts = 0
    # All tasks at once: an iterator over the partitions would run them one after the other.
    with pinned(spark):
        every = found.toArrow().to_pylist()
    for row in every:
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


def findings(journal: DataFrame, judging: Judging, tasks: int, few: int) -> DataFrame:
    """All findings of a journal, and how many messages came to which outcome.

    Documents are divided into `few` tasks, everything else into `tasks`.
    """
    messages = by_message(journal, tasks).mapInArrow(_message_fold(judging), CHECKED)
    of_channels = channels.findings_of(
        channels.fold_channels(
            channels.without_state(channels.rows_of_channels(journal)),
            judging,
            tasks,
            resumable=False,
        )
    )
    of_documents = fold_documents(silver.document_rows(journal), judging, few)
    return silver.union([messages, _checked(of_channels), _checked(of_documents)])


def _checked(found: DataFrame) -> DataFrame:
    return found.select(*FINDING.fieldNames(), f.lit(None).cast(COUNTED).alias("counted"))


def _message_fold(
    judging: Judging,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def fold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches_of(_judged(batches), arrow(CHECKED), 1_000)

    def _judged(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
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

    return fold


def _key(way: Way, outcome: MessageOutcome | None, extent: Extent) -> tuple[str | bool | None, ...]:
    """What a message is counted by."""
    if outcome is None:
        return *way, "unreadable", extent.value, False
    return *way, outcome.outcome.value, extent.value, outcome.part_of is not None


def _order(found: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(value or "" for value in found)
