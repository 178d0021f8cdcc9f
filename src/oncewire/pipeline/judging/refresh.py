"""The gold tables, brought up to date with the rows that came since they were made.

A message whose rows are complete is `closed` and kept by its closing day; all others are `open`,
few, and folded again with what is new. A row that comes late for a closed message opens it again.
Everything is folded anew when what is known of the nodes has changed, because that can change
any verdict.

Four passes of Spark: what must be known (the context; what is opened again), channels and
documents, messages with what those show of them, and what is said of all (partner service,
violations, how far it was judged). The driver reads no table: tasks return what they wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import date, timedelta
from functools import partial, reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType, TimestampType

from oncewire.journal.predicates.context import Violation, restored
from oncewire.pipeline.judging import gold
from oncewire.pipeline.judging.extent import (
    ROWS_PER_TASK,
    Extents,
    Judging,
    Way,
    add_ways,
    rules_digest,
    tasks_for,
)
from oncewire.pipeline.judging.gold import OF_CHANNELS, WORK, Made, Setting
from oncewire.pipeline.judging.together import (
    AS_JSON,
    BY_CHANNEL,
    CHANNEL,
    DOCUMENT,
    FINDING,
    GAP,
    MESSAGE,
    SERVICE_COLUMNS,
    STATE,
    TOLD,
    WAS,
    fed,
    rows_of_channels,
    rows_of_messages,
    together,
    without_copies,
)
from oncewire.pipeline.lake.columns import GOLD, JOURNAL, LEDGER, PARTNER_SERVICE, SPLIT_ROWS
from oncewire.pipeline.lake.compact import applied, merges
from oncewire.pipeline.lake.lake import Days, Lake
from oncewire.pipeline.lake.tables import OPEN
from oncewire.pipeline.lake.version import Entry, Version, in_parts
from oncewire.pipeline.session import cores_of
from oncewire.pipeline.sources.ingest import Progress, forgetting, quiet
from oncewire.pipeline.tasks import RESULT, each, results, returning, run_each
from oncewire.protocol.states import Outcome

OF_OTHERS = ("channel_findings", "document_findings")
"""Findings that are not of a message's own rows."""

EPOCH = date(1970, 1, 1).toordinal()

DAYS_MAX = 200
"""More days than this are not looked for one by one."""

CLOCKS_DIFFER = timedelta(days=2)
"""How long before its submission a message may be closed, because clocks differ."""


def refresh(
    spark: SparkSession,
    lake: Lake,
    version: Version,
    *,
    ended: bool = False,
    tell: Progress = quiet,
) -> Version:
    """The version with gold tables that know every row of its journal; not published yet."""
    new = new_entries(version)
    setting = _setting(lake, version, new)
    lake.clear(WORK)
    (judging, is_due), *found = run_each(spark, _questions(lake, setting, new, ended))
    given = version
    if not (judging.stands(version.judged) and version.judged.get("rules") == rules_digest()):
        version = _without_gold(version)
        new, found, is_due = new_entries(version), [], True
    if not new and not is_due:
        return given
    fresh = _Refresh(spark, lake, _setting(lake, version, new), judging, found)
    rows, kept = fresh.new_rows, version.rows
    tell(
        f"1 of 3: judging channels and documents, {rows:,} new rows and "
        f"{kept('channel_rows'):,} unsettled ones"
    )
    fresh.channels()
    tell(f"2 of 3: judging messages, {rows:,} new rows and {kept('open_rows'):,} of open ones")
    fresh.messages()
    if judging.context.forget(fresh.restored):
        # All that these stores forgot is judged once more, as what cannot be judged.
        return refresh(spark, lake, _forgetful(version, fresh.restored), ended=ended, tell=tell)
    tell(f"3 of 3: counting what partners got, {len(version.nodes):,} nodes")
    return fresh.finished()


def _forgetful(version: Version, findings: Collection[Violation]) -> Version:
    """The version that says which stores were put back to an earlier state, and where."""
    for node, state in version.nodes.items():
        forgot = [each.seq for each in state.restarts if restored(node, each) in findings]
        version = version.with_node(
            node, replace(state, forgot=tuple(sorted({*state.forgot, *forgot})))
        )
    return _without_gold(version)


def _without_gold(version: Version) -> Version:
    """A copy that is judged again from the first row on, into empty tables."""
    return reduce(lambda made, table: made.with_table(table, ()), GOLD, forgetting(version))


def new_entries(version: Version) -> list[Entry]:
    """The directories of the journal that gold does not know yet."""
    return [
        entry
        for entry in version.journal
        if entry.rows and entry.last > version.nodes[entry.key].folded
    ]


def _setting(lake: Lake, version: Version, new: list[Entry]) -> Setting:
    name = f"v{version.number + 1:08d}"
    return Setting(lake.root, name, version, frozenset(entry.path for entry in new))


def _questions(
    lake: Lake, setting: Setting, new: list[Entry], ended: bool
) -> list[Callable[[], Any]]:
    """What must be known before anything is judged."""
    version = setting.before
    questions: list[Callable[[], Any]] = [partial(gold.look_around, lake.root, version, ended)]
    if version.tables.get("ledger_closed"):
        parts = in_parts(new, lambda entry: entry.rows, ROWS_PER_TASK)
        questions += [
            partial(gold.opened_by_rows, setting, [entry.path for entry in part], str(number))
            for number, part in enumerate(parts)
        ]
    if version.judged and version.tables.get("split_rows"):
        known = {entry.path for entry in lake.current_or_new().tables.get("split_rows", ())}
        added = [entry.path for entry in version.tables["split_rows"] if entry.path not in known]
        questions.append(partial(gold.touched_documents, setting, added))
    return questions


class _Refresh:
    """One run over the gold tables."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        setting: Setting,
        judging: Judging,
        found: Iterable[Made],
    ) -> None:
        self._spark, self._lake, self._judging = spark, lake, judging
        self._setting = setting
        self._version = self._before = setting.before
        self._cores = cores_of(spark)
        self.new_rows = sum(
            entry.rows for entry in self._before.journal if entry.path in setting.new
        )
        self._new = without_copies(self._paths(JOURNAL, setting.new), judging)
        self._opened: set[str] = set()
        self._having: dict[str, set[str]] = {"journal": set(), "split_rows": set()}
        self._ways: dict[Way, Extents] = {}
        self._days: set[date] = set()
        self.restored: set[Violation] = set()
        self._verdicts: dict[str, dict[str, int]] = dict(self._before.judged.get("verdicts", {}))
        for made in found:
            self._take(made)

    # --- reading, and what tasks made ---

    def _paths(self, schema: StructType, paths: Iterable[str]) -> DataFrame:
        folders = [str(self._lake.root / path) for path in sorted(paths)]
        return self._lake.read_folders(self._spark, schema, folders)

    def _read(self, *tables: str, schema: StructType | None = None) -> DataFrame:
        """Tables as they are by now."""
        shape = schema or GOLD[tables[0]]
        return self._lake.read(self._spark, self._version, shape, *tables)

    def _named(self, kind: str) -> DataFrame:
        """The messages or documents that tasks noted."""
        return self._spark.read.schema(gold.NAMES).parquet(
            str(self._lake.root / WORK / self._setting.name / kind / "*")
        )

    def _take(self, made: Made) -> None:
        """Note what a task made."""
        self._opened |= made.opened
        for table, paths in made.having.items():
            self._having[table] |= paths
        self._verdicts |= made.verdicts
        self._days |= made.days
        self.restored |= made.restored
        add_ways(self._ways, made.ways)

    def _judge(
        self, frames: list[DataFrame], rows: int, work: Callable[[Any], Made], *more: Any
    ) -> list[Made]:
        """Run one pass: what tasks make of rows that come together by key, and of more calls."""
        fold = together(frames, tasks_for(rows, self._cores)).mapInArrow(returning(work), RESULT)
        found = results(fold, *([each(self._spark, more)] if more else []))
        made: list[Made] = []
        for value in found:
            made += value if isinstance(value, list) else [value]
        for one in made:
            self._take(one)
        return made

    def _clear(self, *tables: str) -> None:
        """Remove what a killed run left where tasks write now."""
        self._lake.clear(*(self._setting.path(table, "").rstrip("/") for table in tables))

    # --- channels and documents ---

    def channels(self) -> None:
        """Findings, gaps and states of every channel and document that has new rows."""
        states = self._read("channel_states")
        findings, gaps = self._read("channel_findings"), self._read("sequence_gaps")
        of_documents = self._read("document_findings")
        rows = rows_of_channels(self._new).unionByName(self._read("channel_rows"))
        frames = [
            fed(rows, CHANNEL, BY_CHANNEL),
            fed(states, CHANNEL, BY_CHANNEL, STATE),
            fed(findings, CHANNEL, "of", FINDING, AS_JSON),
            fed(gaps, CHANNEL, BY_CHANNEL, GAP, AS_JSON),
            fed(self._documents(), DOCUMENT, "document"),
            fed(of_documents, DOCUMENT, "message_id", FINDING, AS_JSON),
        ]
        self._clear(*OF_CHANNELS)
        work = gold.judge_channels(self._setting, self._judging, rules_digest())
        expected = self.new_rows + self._before.rows("channel_rows")
        made = self._judge(frames, expected, work)
        for table in OF_CHANNELS:
            self._replace(table, made)

    def _replace(self, table: str, made: Iterable[Made]) -> None:
        entries = [entry for one in made for entry in one.tables.get(table, ())]
        self._version = self._version.with_table(table, entries)

    def _documents(self) -> DataFrame:
        """The rows of every document that has new ones, or may still get some."""
        every = {entry.path for entry in self._before.tables.get("split_rows", ())}
        if self._before.judged:
            every -= {
                entry.path for entry in self._lake.current_or_new().tables.get("split_rows", ())
            }
        rows = self._paths(SPLIT_ROWS, every)
        having = self._having["split_rows"]
        if having:
            old, names = self._paths(SPLIT_ROWS, having), self._named("documents")
            touched = old["document"] == names["name"]
            rows = rows.unionByName(old.join(names, touched, "left_semi"))
        return without_copies(rows, self._judging)

    # --- messages ---

    def messages(self) -> None:
        """The ledger rows of every message that is open, has new rows, or was told of."""
        told = self._read(*OF_OTHERS, schema=GOLD["violations"]).where(
            f.col("message_id").isNotNull()
        )
        own, was = self._read("message_findings"), self._read("ledger_open")
        rows = self._new.unionByName(self._read("open_rows"))
        if self._opened:
            history = without_copies(self._paths(JOURNAL, self._having["journal"]), self._judging)
            rows = rows.unionByName(self._of_opened(history))
            was = was.unionByName(self._of_opened(self._paths(LEDGER, self._opened)))
        frames = [
            rows_of_messages(rows),
            fed(told, MESSAGE, "message_id", TOLD, AS_JSON),
            fed(own, MESSAGE, "of", FINDING, AS_JSON),
            fed(was, MESSAGE, "message_id", WAS, _as_counted()),
        ]
        self._clear("ledger_closed", "ledger_open", "open_rows", "message_findings")
        again = [
            partial(gold.without_opened, self._setting, path, str(number))
            for number, path in enumerate(sorted(self._opened))
        ]
        expected = self.new_rows + self._before.rows("open_rows")
        work = gold.judge_messages(self._setting, self._judging)
        made = self._judge(frames, expected, work, *again)
        for table in ("ledger_open", "open_rows", "message_findings"):
            self._replace(table, made)
        closed = self._before.tables.get("ledger_closed", ())
        kept = [entry for entry in closed if entry.path not in self._opened]
        new = [entry for one in made for entry in one.tables.get("ledger_closed", ())]
        self._version = self._version.with_table("ledger_closed", [*kept, *new])

    def _of_opened(self, rows: DataFrame) -> DataFrame:
        names = self._named("messages")
        return rows.join(names, rows["message_id"] == names["name"], "left_semi")

    # --- what is said of all of it ---

    def finished(self) -> Version:
        """The version with everything that this run made."""
        self._version = replace(
            self._version,
            nodes={
                name: replace(state, folded=state.seq)
                for name, state in self._version.nodes.items()
            },
        )
        small = merges(self._version)
        service, kept = self._service()
        self._clear("violations", "judged", "partner_service")
        self._lake.clear(*(merge.path for merge in small))
        frames = [
            each(
                self._spark,
                [*self._last_words(), *(partial(merge.write, self._lake.root) for merge in small)],
            )
        ]
        if service is not None:
            frames.append(service.mapInArrow(returning(gold.write_service(self._setting)), RESULT))
        made, written = [], []
        for value in results(*frames):
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, Made):
                    self._take(one)
                    made.append(one)
                else:
                    written.append(one)
        for table in ("violations", "judged"):
            self._replace(table, made)
        counted = [entry for one in made for entry in one.tables.get("partner_service", ())]
        version = self._version.with_table("partner_service", [*kept, *counted])
        judged = {
            **self._judging.as_dict(),
            "rules": rules_digest(),
            "verdicts": {
                entry.path: self._verdicts[entry.path] for entry in OPEN["ledger"].entries(version)
            },
        }
        self._lake.clear(WORK)
        return applied(replace(version, judged=judged), written)

    def _last_words(self) -> list[Callable[[], Made]]:
        """What one task each says of all: the violations, how far it was judged; and of directories
        that an earlier lake did not count, their verdicts."""
        setting, version = self._setting, self._version
        findings = [
            entry.path
            for table in ("message_findings", *OF_OTHERS)
            for entry in version.tables.get(table, ())
        ]
        problems = self._judging.context.problems
        return [
            partial(gold.write_violations, setting, findings, problems),
            partial(gold.write_judged, setting, self._ways, self._judging),
            *(
                partial(gold.count_verdicts, setting.root, entry.path)
                for entry in OPEN["ledger"].entries(version)
                if entry.path not in self._verdicts
            ),
        ]

    def _service(self) -> tuple[DataFrame | None, list[Entry]]:
        """Partner service for the days on which any message changed, and what stays of it."""
        old = self._before.tables.get("partner_service", ())
        closed = self._version.tables.get("ledger_closed", ())
        days = self._days if old and len(self._days) <= DAYS_MAX else None
        kept: list[Entry] = []
        if days is not None:
            if not days:
                return None, list(old)
            first = str(min(days) - CLOCKS_DIFFER)
            closed = tuple(entry for entry in closed if Days.of_entry(entry).last >= first)
            together = {
                date.fromordinal(EPOCH + span * SPAN_DAYS + day)
                for span in {(each_day.toordinal() - EPOCH) // SPAN_DAYS for each_day in days}
                for day in range(SPAN_DAYS)
            }
            kept = [entry for entry in old if not Days.of_entry(entry).touch(together)]
        entries = [*closed, *self._version.tables.get("ledger_open", ())]
        tasks = tasks_for(sum(entry.rows for entry in entries), self._cores)
        rows = self._paths(LEDGER, (entry.path for entry in entries))
        if days is None:
            return partner_service(rows, None, tasks), kept
        chosen = sorted(days)
        rows = rows.where(_on("submitted_at", chosen) | _on("received_at", chosen))
        others = self._paths(
            PARTNER_SERVICE, (entry.path for entry in old if entry not in kept)
        ).where(~f.to_date("hour").isin(chosen))
        every = partner_service(rows, days, tasks).unionByName(
            others.withColumn("span", span_of(f.col("hour")))
        )
        # What is written as one directory comes to one task.
        return every.coalesce(1) if tasks == 1 else every.repartition(tasks, "span"), kept


def _on(instant: str, days: list[date]) -> Column:
    """Whether an instant is on one of some days, which are in order. Parquet passes over rows by
    what it knows of the instants, and knows nothing of days."""
    begin, end = (f.lit(day).cast("timestamp") for day in (days[0], days[-1] + timedelta(1)))
    return f.col(instant).between(begin, end) & f.to_date(instant).isin(days)


def _as_counted() -> str:
    """What partner service counts of a ledger row, as JSON; instants are integers."""
    instants = {x.name for x in LEDGER.fields if isinstance(x.dataType, TimestampType)}
    columns = [
        f"unix_micros({name}) AS {name}" if name in instants else name for name in SERVICE_COLUMNS
    ]
    return f"to_json(struct({', '.join(columns)}, findings IS NOT NULL AS findings))"


# Partner service: what each partner got and gave, hour by hour, from the ledger.
#
# A document counts as the one message that it is; what its parts took (resends, copies) and what is
# wrong with them counts too. It is made with Spark's own columns: no rule of the protocol is in it.


SPAN_DAYS = 28
"""Days of partner service in one directory."""


def span_of(hour: Column) -> Column:
    """Which span of days an hour is in: where one day changes, its whole span is written again."""
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
        f.col("latency_us").cast("double").alias("waited"),
        "*",
    )
    received = messages.where(f.col("received_at").isNotNull()).select(
        f.col("receiver").alias("node"),
        f.lit("in").alias("direction"),
        f.col("from_peer").alias("partner"),
        f.date_trunc("hour", "received_at").alias("hour"),
        # Here it is the way from the store to the application, on the receiver's clock.
        (f.unix_micros("handed_over_at") - f.unix_micros("received_at"))
        .cast("double")
        .alias("waited"),
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
        f.sum(f.when(whole, f.col("size_bytes"))).alias("size_bytes"),
        *(
            _count(whole & (f.col("outcome") == outcome.value)).alias(f"{outcome.value}_count")
            for outcome in _OUTCOMES
        ),
        # No part is sent with best effort.
        _count(~f.col("reliable")).alias("best_effort_count"),
        _count(~f.col("reliable") & f.col("received_at").isNotNull()).alias("arrived_count"),
        _count(f.col("findings").isNotNull()).alias("with_findings_count"),
        f.sum("resends").alias("resends"),
        f.sum("duplicates_stopped").alias("duplicates_stopped"),
        _count(whole & f.col("late_ack")).alias("late_acks"),
        shares.alias("shares"),
    )
    for position, name in enumerate(("latency_p50_us", "latency_p95_us", "latency_p99_us")):
        counted = counted.withColumn(name, f.col("shares")[position])
    return counted.select(*PARTNER_SERVICE.fieldNames(), "span")


_OUTCOMES = (Outcome.DELIVERED, Outcome.NOT_DELIVERED, Outcome.UNKNOWN, Outcome.IN_FLIGHT)


def _count(condition: Column) -> Column:
    return f.count(f.when(condition, 1))
