"""The gold tables, brought up to date with the rows that came since they were made.

A message whose rows are complete is `closed` and kept by its closing day; all others are `open`,
few, and folded again with what is new. A row that comes late for a closed message opens it again.
Everything is folded anew when what is known of the nodes has changed, because that can change
any verdict.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import date
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from oncewire.journal.predicates.context import MISSING, QUARANTINE, Violation, ViolationKind
from oncewire.pipeline.judging import channels, extent, ledger
from oncewire.pipeline.judging.channels import fold_documents
from oncewire.pipeline.judging.extent import Judging, gather, has_come_due, rules_digest, tasks_for
from oncewire.pipeline.judging.partner_service import partner_service
from oncewire.pipeline.judging.small_refresh import SmallRefresh, new_entries, other_days
from oncewire.pipeline.lake.lake import Lake, Names, begins, count_in, divided
from oncewire.pipeline.lake.silver import union
from oncewire.pipeline.lake.tables import (
    DOCUMENT_ROWS,
    FINDING,
    FINDINGS_OF,
    JOURNAL,
    JUDGED,
    LEDGER,
    SEQUENCE_GAPS,
    data_path,
)
from oncewire.pipeline.lake.version import Entry, Version, local_path
from oncewire.pipeline.session import cores_of
from oncewire.pipeline.sources.ingest import SMALL, Progress, forgetting, quiet

BY_CHANNEL = ["node", "channel"]

WORK = "gold/work"
"""Directories that only the run itself reads."""

GOLD = (
    "ledger_closed", "ledger_open", "open_rows", "message_findings", "channel_findings",
    "document_findings", "channel_states", "channel_rows", "sequence_gaps", "partner_service",
    "violations", "judged",
)  # fmt: skip

OF_OTHERS = ("channel_findings", "document_findings")
"""Findings that are not of a message's own rows."""

DAYS_MAX = 200
"""More days than this are not looked for one by one."""


def refresh(
    spark: SparkSession,
    lake: Lake,
    version: Version,
    *,
    ended: bool = False,
    tell: Progress = quiet,
) -> Version:
    """The version with gold tables that know every row of its journal; not published yet."""
    judging = gather(lake, version, ended=ended)
    given = version
    if not _stands(judging, version):
        version = _forgetting(version)
    little = _is_little(lake, version)
    fresh: SmallRefresh | _Refresh = (
        SmallRefresh(lake, version, judging) if little else _Refresh(spark, lake, version, judging)
    )
    if not fresh.new_rows and version.judged and not has_come_due(lake, version, judging):
        return given
    new, kept = fresh.new_rows, version.rows
    tell(f"1 of 4: judging channels, {new:,} new rows and {kept('channel_rows'):,} unsettled ones")
    fresh.channels()
    tell(f"2 of 4: judging documents, among {kept('documents'):,} rows")
    fresh.documents()
    tell(f"3 of 4: judging messages, {new:,} new rows and {kept('open_rows'):,} of open ones")
    fresh.messages()
    tell(f"4 of 4: counting what partners got, {len(version.nodes):,} nodes")
    fresh.service()
    return fresh.finished()


def _is_little(lake: Lake, version: Version) -> bool:
    """Whether what must be folded is not worth a job."""
    rows = sum(entry.rows for entry in new_entries(version))
    rows += sum(version.rows(table) for table in ("open_rows", "channel_rows"))
    return rows <= SMALL and rows + _unsettled(lake, version) <= SMALL


def _unsettled(lake: Lake, version: Version) -> int:
    """How many rows of documents may still be followed by others, so far as gold knows them."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    settled = version.judged.get("settled_before")
    if settled is None:
        return 0
    return sum(
        ds.dataset(folder, format="parquet").count_rows(filter=pc.field("at") >= settled)
        for folder in lake.folders(version, "documents")
    )


def _stands(judging: Judging, version: Version) -> bool:
    return judging.stands(version.judged) and version.judged.get("rules") == rules_digest()


def _forgetting(version: Version) -> Version:
    """The same without gold: everything is judged from the first row on."""
    for table in GOLD:
        version = version.with_table(table, ())
    return forgetting(version)


class _Refresh:
    """One run over the gold tables."""

    def __init__(self, spark: SparkSession, lake: Lake, version: Version, judging: Judging) -> None:
        self._spark, self._lake, self._judging = spark, lake, judging
        self._version = self._before = version
        self._name = f"v{version.number + 1:08d}"
        self._cores = cores_of(spark)
        entries = new_entries(version)
        self.new_rows = sum(entry.rows for entry in entries)
        rows = lake.read_folders(spark, JOURNAL, [str(lake.root / entry.path) for entry in entries])
        self._new = without_copies(rows, judging)
        self._folded: DataFrame | None = None
        self._reopened: list[Entry] = []

    # --- reading and writing ---

    def _read(self, table: str, schema: StructType) -> DataFrame:
        """A table as it was before this run."""
        return self._lake.read(self._spark, self._before, schema, table)

    def _write(self, table: str, frame: DataFrame, path: str | None = None) -> None:
        """A table that is written whole in every run."""
        target = path or data_path(table, self._name)
        self._version = self._version.with_table(table, [self._lake.write(frame, target)])

    def _aside(self, name: str, frame: DataFrame) -> DataFrame:
        """Computed once, read several times."""
        path = f"{WORK}/{name}-{self._name}"
        self._lake.write(frame, path)
        return self._lake.read_folders(self._spark, frame.schema, [str(self._lake.root / path)])

    def _findings(self, version: Version, table: str) -> DataFrame:
        """The findings of a table, whatever else it keeps of them."""
        return self._lake.read(self._spark, version, FINDING, table)

    def _tasks(self, *tables: str) -> int:
        rows = self.new_rows + sum(self._before.rows(table) for table in tables)
        return tasks_for(rows, self._cores)

    # --- channels ---

    def channels(self) -> None:
        """Findings, gaps and states of every channel that has rows beyond its state."""
        rows = channels.rows_of_channels(self._new).unionByName(self._read("channel_rows", JOURNAL))
        states = self._read("channel_states", channels.CHANNEL_STATES)
        touched = rows.select("node", "channel").distinct()
        used = states.join(touched, ["node", "channel"], "left_semi")
        fed = channels.without_state(rows).unionByName(channels.as_rows(used))
        folded = self._aside(
            "channels",
            channels.fold_channels(fed, self._judging, self._tasks("channel_rows"), resumable=True),
        )
        of = f.concat_ws(" ", "node", "channel")
        touched_keys = touched.select(of.alias("of"))
        for table, schema, found, keys, by in (
            ("channel_findings", FINDINGS_OF, channels.findings_of(folded), touched_keys, ["of"]),
            ("sequence_gaps", SEQUENCE_GAPS, channels.gaps_of(folded), touched, BY_CHANNEL),
            (
                "channel_states",
                channels.CHANNEL_STATES,
                channels.states_of(folded),
                touched,
                BY_CHANNEL,
            ),
        ):
            kept = self._read(table, schema).join(keys, by, "left_anti")
            self._write(table, found.unionByName(kept.select(*found.columns)).coalesce(self._cores))
        reached = folded.where(f.col("state").isNotNull()).select(
            "node", "channel", f.col("seq").alias("reached")
        )
        beyond = rows.join(reached, ["node", "channel"], "left").where(
            f.col("reached").isNull() | (f.col("seq") > f.col("reached"))
        )
        self._write("channel_rows", beyond.select(*JOURNAL.fieldNames()))

    # --- documents ---

    def documents(self) -> None:
        """Findings of every document that is not settled yet or has new rows."""
        rows = without_copies(self._read("documents", DOCUMENT_ROWS), self._judging)
        settled = self._before.judged.get("settled_before")
        touched = self._is_new()
        if settled is not None:
            touched |= f.col("at") >= settled
        documents = rows.where(touched).select("document").distinct()
        found = fold_documents(
            rows.join(documents, "document", "left_semi"),
            self._judging,
            tasks_for(self._before.rows("documents"), self._cores),
        )
        old = self._read("document_findings", FINDING)
        kept = old.join(documents, old["message_id"] == documents["document"], "left_anti")
        self._write("document_findings", found.unionByName(kept).coalesce(self._cores))

    def _is_new(self) -> Column:
        """Whether a row came since the last run."""
        if not self._before.nodes:
            return f.lit(False)
        # One map, however many nodes: a condition for each would be too deep for Spark.
        reached = [
            f.lit(x) for name, state in self._before.nodes.items() for x in (name, state.folded)
        ]
        return f.col("seq") > f.coalesce(f.create_map(*reached)[f.col("node")], f.lit(0))

    # --- messages ---

    def messages(self) -> None:
        """The ledger rows of every message that is open, has new rows, or was told of."""
        told = union([self._findings(self._version, table) for table in OF_OTHERS])
        rows = self._rows_to_fold(told)
        tasks = self._tasks("open_rows")
        folded = self._aside("messages", ledger.fold_messages(rows, self._judging, tasks))
        self._folded = folded
        self._write_findings(folded)
        judged = ledger.with_findings(folded, told)
        closed = judged.where("closed").select(*LEDGER.fieldNames())
        still_open = judged.where(~f.col("closed")).select(*LEDGER.fieldNames())
        days = self._lake.write_divided(
            closed,
            data_path("ledger", f"closed/{self._name}"),
            "closed_on",
            self._begun([str(self._lake.root / f"{WORK}/messages-{self._name}")]),
        )
        rewritten = self._without_reopened()
        old = [
            entry
            for entry in self._before.tables.get("ledger_closed", ())
            if entry not in self._reopened
        ]
        self._version = self._version.with_table("ledger_closed", [*old, *rewritten, *days])
        self._write(
            "ledger_open",
            still_open.coalesce(self._cores),
            data_path("ledger", f"open/{self._name}"),
        )
        # The few that are open, from their own small table: so that no journal row must move.
        ids = self._lake.read(self._spark, self._version, LEDGER, "ledger_open")
        self._write(
            "open_rows",
            rows.join(ids, "message_id", "left_semi").select(*JOURNAL.fieldNames()),
        )

    def _rows_to_fold(self, told: DataFrame) -> DataFrame:
        """New rows, rows of open messages, and all rows of closed ones that are opened again."""
        rows = self._new.where(f.col("message_id").isNotNull()).unionByName(
            self._read("open_rows", JOURNAL)
        )
        if not self._before.tables.get("ledger_closed"):
            return rows
        before = union([self._findings(self._before, table) for table in OF_OTHERS])
        changed = told.exceptAll(before).unionByName(before.exceptAll(told))
        ids = (
            self._new.select("message_id")
            .unionByName(changed.select("message_id"))
            .where(f.col("message_id").isNotNull())
            .distinct()
        )
        closed = self._read("ledger_closed", LEDGER).select(
            "message_id", f.col("_metadata.file_path").alias("file")
        )
        opened = self._aside("reopened", closed.join(ids, "message_id", "left_semi"))
        found = opened.collect()
        files = {local_path(unquote(row["file"])) for row in found}
        # Spark names them as they were given, and a lake may lie behind a link.
        folders = {file.parent.resolve() for file in files}
        self._reopened = [
            entry
            for entry in self._before.tables["ledger_closed"]
            if (self._lake.root / entry.path).resolve() in folders
        ]
        if not self._reopened:
            return rows
        names = Names(row["message_id"] for row in found)
        having = [
            str(self._lake.root / entry.path)
            for entry in self._before.journal
            if names.among(self._lake.root, "journal", entry)
        ]
        every = self._lake.read_folders(self._spark, JOURNAL, having)
        history = without_copies(every, self._judging).where(~self._is_new())
        return rows.unionByName(history.join(opened, "message_id", "left_semi"))

    def _without_reopened(self) -> list[Entry]:
        """The directories that lost messages, written again without them."""
        if not self._reopened:
            return []
        opened = self._lake.read_folders(
            self._spark,
            LEDGER,
            [str(self._lake.root / f"{WORK}/reopened-{self._name}")],
        ).select("message_id")
        touched = [str(self._lake.root / entry.path) for entry in self._reopened]
        kept = self._lake.read_folders(self._spark, LEDGER, touched).join(
            opened, "message_id", "left_anti"
        )
        path = data_path("ledger", f"closed/{self._name}-rewritten")
        begun = self._begun(touched)
        return self._lake.write_divided(kept.select(*LEDGER.fieldNames()), path, "closed_on", begun)

    def _begun(self, folders: list[str]) -> list[date]:
        """The first days of directories for as many ledger rows on each day as these have."""
        counted = count_in(folders, "closed_on")
        return begins({day: rows for day, rows in counted.items() if day is not None})

    def _write_findings(self, folded: DataFrame) -> None:
        old = self._read("message_findings", FINDINGS_OF)
        kept = old.join(folded.select(f.col("message_id").alias("of")), "of", "left_anti")
        found = folded.where(f.col("violations").isNotNull()).select(
            f.explode("violations").alias("one"), f.col("message_id").alias("of")
        )
        self._write(
            "message_findings",
            found.select("one.*", "of").unionByName(kept.select(*FINDINGS_OF.fieldNames())),
        )

    # --- service ---

    def service(self) -> None:
        """Partner service for the days on which any message changed."""
        if self._folded is None:
            return
        days = self._changed_days()
        current = self._lake.read(
            self._spark, self._version, LEDGER, "ledger_closed", "ledger_open"
        )
        rows = current
        if days is not None:
            rows = rows.where(
                f.to_date("submitted_at").isin(days) | f.to_date("received_at").isin(days)
            )
        made = partner_service(rows)
        if days is not None:
            made = made.where(f.to_date("hour").isin(days))
        # An hour of a partner has one message at least, so the ledger says how many there may be.
        begun = self._begun(
            [
                folder
                for table in ("ledger_closed", "ledger_open")
                for folder in self._lake.folders(self._version, table)
            ]
        )
        path = data_path("partner_service", self._name)
        entries = self._lake.write_divided(made, path, "hour", begun)
        old = self._before.tables.get("partner_service", ())
        kept, beside = other_days(self._lake, old, days)
        for own, some in divided(beside, "hour"):
            place = f"{path}-kept/part={own.first}"
            kept.append(self._lake.write_table(some, place, key=own.key))
        self._version = self._version.with_table("partner_service", [*kept, *entries])

    def _changed_days(self) -> list[date] | None:
        """The days whose hours must be counted again; None: all of them."""
        if self._folded is None or not self._before.tables.get("partner_service"):
            return None
        days = (
            self._folded.select(f.to_date("submitted_at").alias("day"))
            .unionByName(self._folded.select(f.to_date("received_at").alias("day")))
            .where(f.col("day").isNotNull())
            .distinct()
            .limit(DAYS_MAX + 1)
            .collect()
        )
        return None if len(days) > DAYS_MAX else [row["day"] for row in days]

    # --- the end ---

    def finished(self) -> Version:
        """The version with everything that this run made."""
        tables = ("message_findings", *OF_OTHERS)
        every = [self._findings(self._version, table) for table in tables]
        problems: list[Violation] = self._judging.context.problems
        every.append(
            self._spark.createDataFrame([tuple(violation) for violation in problems], FINDING)
        )
        self._write("violations", told_once(union(every)).coalesce(1))
        far = extent.judged_channels(self._lake, self._version, self._before, self._judging)
        self._write("judged", self._spark.createDataFrame(far, JUDGED).coalesce(1))
        nodes = {
            name: replace(state, folded=state.seq) for name, state in self._version.nodes.items()
        }
        judged = {**self._judging.as_dict(), "rules": rules_digest()}
        shutil.rmtree(self._lake.root / WORK, ignore_errors=True)
        return replace(self._version, nodes=nodes, judged=judged)


def told_once(findings: DataFrame) -> DataFrame:
    """The same as `oncewire.journal.check.told_once`, over all findings of a lake."""
    cut_off = (
        findings.where(f.col("kind") == ViolationKind.CUT_OFF.value)
        .select(f.col("node").alias("cut"))
        .distinct()
    )
    of_journals = findings.where(f.col("predicate") == QUARANTINE).distinct()
    others = findings.where(f.col("predicate") != QUARANTINE)
    excused = (others["node"] == cut_off["cut"]) & others["kind"].isin(sorted(MISSING))
    return others.join(cut_off, excused, "left_anti").unionByName(of_journals)


def without_copies(rows: DataFrame, judging: Judging) -> DataFrame:
    """Rows of all journals but those that are copies of others."""
    if not judging.copies:
        return rows
    return rows.where(~f.col("node").isin(sorted(judging.copies)))
