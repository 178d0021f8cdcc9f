"""The gold tables brought up to date by the driver itself, where what is new and open is little.

The same folds as on Spark, and the same tables: a test holds the two against each other. A job of
Spark costs seconds before it has looked at a row, so an hour's messages would cost as much as a
month's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from oncewire.journal.check import document_key, fold_documents, told_once
from oncewire.journal.outcome import Outcome
from oncewire.journal.predicates.context import Violation
from oncewire.journal.row import COLUMNS, Row
from oncewire.pipeline.judging import channels, extent
from oncewire.pipeline.judging.extent import Judging, rules_digest
from oncewire.pipeline.judging.ledger import FOLDED, RANK, ledger_fold, verdict
from oncewire.pipeline.lake.lake import COLUMNS as NAMED_BY
from oncewire.pipeline.lake.lake import Days, Lake, Names, divided
from oncewire.pipeline.lake.tables import (
    DOCUMENT_ROWS,
    FINDINGS_OF,
    JOURNAL,
    JUDGED,
    LEDGER,
    PARTNER_SERVICE,
    SEQUENCE_GAPS,
    VIOLATIONS,
    arrow,
    batch_of,
    data_path,
    nullable,
    rows_of_batch,
)
from oncewire.pipeline.lake.version import Entry, Version

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from oncewire.pipeline.lake.lake import Lake
    from oncewire.pipeline.lake.version import Entry


# Partner service of few messages, counted by the driver: what `partner_service` does on Spark.


SERVICE_COLUMNS = [
    "part_of", "outcome", "reliable", "sender", "receiver", "to_peer", "from_peer",
    "submitted_at", "received_at", "handed_over_at", "latency", "size", "violations", "resends",
    "duplicates_stopped", "late_ack",
]  # fmt: skip
"""What is asked of a ledger row."""

_INSTANTS = ("submitted_at", "received_at")
_SECOND = 1_000_000
_OUTCOMES = (Outcome.DELIVERED, Outcome.NOT_DELIVERED, Outcome.UNKNOWN, Outcome.IN_FLIGHT)

Key = tuple[str | None, str, str | None, datetime]


def partner_service(
    ledger: Iterable[dict[str, Any]], days: Collection[date] | None = None
) -> list[tuple[Any, ...]]:
    """One row for each node, direction, partner and hour; with days, of those days alone."""
    groups: dict[Key, list[tuple[dict[str, Any], float | None]]] = {}
    for row in ledger:
        for key, waited in _sides(row):
            if days is None or key[3].date() in days:
                groups.setdefault(key, []).append((row, waited))
    return [(*key, *_counted(group)) for key, group in groups.items()]


def changed_days(now: pa.Table, before: pa.Table) -> set[date]:
    """The days of ledger rows that are not as they were. What is open is judged again in every
    run, and mostly nothing has come of it: its day need not be counted again."""
    old = dict(_told(before))
    changed = [(row, old.get(message_id)) for message_id, row in _told(now)]
    return {
        at.date()
        for row, known in changed
        if row != known
        for each_row in (row, known)
        if each_row is not None
        for at in each_row[:2]
        if at is not None
    }


def _told(ledger: pa.Table) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """What is counted of each message, its two instants first."""
    others = [name for name in SERVICE_COLUMNS if name not in (*_INSTANTS, "violations")]
    columns = [ledger[name].to_pylist() for name in (*_INSTANTS, *others)]
    columns.append(ledger["violations"].is_valid().to_pylist())
    return zip(ledger["message_id"].to_pylist(), zip(*columns, strict=True), strict=True)


def other_days(
    lake: Lake, entries: Iterable[Entry], days: Collection[date] | None
) -> tuple[list[Entry], pa.Table]:
    """What stays of partner service when some days are counted again, or all of them: whole
    directories, and rows of other days that lie in one directory with them."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    shape = arrow(nullable(PARTNER_SERVICE))
    kept: list[Entry] = []
    beside = [shape.empty_table()]
    for entry in entries if days is not None else ():
        if not Days.of_entry(entry).touch(days or ()):
            kept.append(entry)
            continue
        table = ds.dataset(lake.root / entry.path, format="parquet", schema=shape).to_table()
        counted_again = pc.is_in(
            table["hour"].cast(pa.date32()), value_set=pa.array(sorted(days or ()), pa.date32())
        )
        beside.append(table.filter(pc.invert(counted_again)))
    return kept, pa.concat_tables(beside)


def _sides(row: dict[str, Any]) -> Iterator[tuple[Key, float | None]]:
    """The sender's hour and the receiver's."""
    if row["outcome"] is None:
        return
    sent, received, handed = row["submitted_at"], row["received_at"], row["handed_over_at"]
    if sent is not None:
        latency = row["latency"]
        waited = None if latency is None else latency / _SECOND
        yield (row["sender"], "out", row["to_peer"], _hour(sent)), waited
    if received is not None:
        waited = None if handed is None else _micros(handed, received) / _SECOND
        yield (row["receiver"], "in", row["from_peer"], _hour(received)), waited


def _hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def _micros(later: datetime, earlier: datetime) -> int:
    between = later - earlier
    return (between.days * 86_400 + between.seconds) * _SECOND + between.microseconds


def _counted(group: list[tuple[dict[str, Any], float | None]]) -> tuple[Any, ...]:
    every = [row for row, _ in group]
    rows = [row for row in every if row["part_of"] is None]
    sizes = [row["size"] for row in rows if row["size"] is not None]
    best_effort = [row for row in rows if row["reliable"] is False]
    waits = sorted(waited for row, waited in group if waited is not None and row["part_of"] is None)
    return (
        len(rows),
        sum(sizes) if sizes else None,
        *(sum(row["outcome"] == outcome.value for row in rows) for outcome in _OUTCOMES),
        len(best_effort),
        sum(row["received_at"] is not None for row in best_effort),
        sum(row["violations"] is not None for row in every),
        sum(row["resends"] for row in every),
        sum(row["duplicates_stopped"] for row in every),
        sum(bool(row["late_ack"]) for row in rows),
        *(_percentile(waits, share) for share in (0.5, 0.95, 0.99)),
    )


def _percentile(ordered: list[float], share: float) -> float | None:
    """Exact, and between two values as Spark takes it."""
    if not ordered:
        return None
    position = (len(ordered) - 1) * share
    lower = int(position)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (ordered[upper] - ordered[lower]) * (position - lower)


DAYS_MAX = 200
COUNTED = ["message_id", *SERVICE_COLUMNS]
CLOCKS_DIFFER = timedelta(days=2)
"""A message may be closed on a day before that of its submission by so much: clocks differ."""


def new_entries(version: Version) -> list[Entry]:
    """The directories of the journal that gold does not know yet."""
    return [
        entry
        for entry in version.journal
        if entry.rows and entry.last > version.nodes[entry.key].folded
    ]


class SmallRefresh:
    """One run over the gold tables."""

    def __init__(self, lake: Lake, version: Version, judging: Judging) -> None:
        self._lake, self._judging = lake, judging
        self._version = self._before = version
        self._name = f"v{version.number + 1:08d}"
        entries = new_entries(version)
        self.new_rows = sum(entry.rows for entry in entries)
        self._new = self._rows(entry.path for entry in entries)
        self._opened: dict[str, str] = {}
        self._were_closed: list[pa.Table] = []
        self._folded: pa.Table | None = None

    # --- reading and writing ---

    def _table(
        self,
        paths: Iterable[str],
        schema: StructType,
        columns: list[str] | None = None,
        where: pc.Expression | None = None,
    ) -> pa.Table:
        """The rows of some directories."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        shape = arrow(nullable(schema))
        found = [
            ds.dataset(self._lake.root / path, format="parquet", schema=shape).to_table(
                columns=columns, filter=where
            )
            for path in paths
        ]
        if not found:
            return shape.empty_table().select(columns or shape.names)
        return pa.concat_tables(found)

    def _read(self, table: str, schema: StructType, version: Version | None = None) -> pa.Table:
        """A table as it was before this run, or as a version has it."""
        entries = (version or self._before).tables.get(table, ())
        return self._table((entry.path for entry in entries), schema)

    def _about(
        self,
        table: str,
        names: Names,
        schema: StructType,
        columns: list[str] | None = None,
        besides: Collection[str] = (),
    ) -> Iterator[tuple[Entry, pa.Table]]:
        """The rows about some names in the directories that have any; the others are not read."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for entry in self._before.tables.get(table, ()):
            some = [] if entry.path in besides else names.among(self._lake.root, table, entry)
            if some:
                wanted = pc.field(NAMED_BY[table]).isin(pa.array(some, pa.string()))
                yield entry, self._table([entry.path], schema, columns, wanted)

    def _rows(self, paths: Iterable[str]) -> list[Row]:
        return self._rows_of(self._table(paths, JOURNAL, list(COLUMNS)))

    def _rows_of(self, table: pa.Table) -> list[Row]:
        copies = self._judging.copies
        return [
            row
            for batch in table.to_batches()
            for row in rows_of_batch(batch)
            if row.node not in copies
        ]

    def _write(self, table: str, rows: Sequence[Any], schema: StructType) -> None:
        self._put(table, _made(rows, schema), data_path(table, self._name))

    def _put(self, table: str, made: pa.Table, path: str) -> None:
        self._version = self._version.with_table(table, [self._lake.write_table(made, path)])

    def _divided(self, made: pa.Table, path: str, by: str) -> list[Entry]:
        """Directories of neighbouring days."""
        return [
            self._lake.write_table(some, f"{path}/part={days.first}", key=days.key)
            for days, some in divided(made, by)
        ]

    def _findings(self, version: Version, *tables: str) -> list[Violation]:
        names = list(Violation._fields)
        return [
            Violation(**row)
            for table in tables
            for row in self._read(table, VIOLATIONS, version).select(names).to_pylist()
        ]

    # --- channels ---

    def channels(self) -> None:
        """Findings, gaps and states of every channel that has rows beyond its state."""
        rows = [row for row in self._new if channels.is_of_channel(row)]
        old = self._before.tables.get("channel_rows", ())
        rows += self._rows(entry.path for entry in old)
        touched = {(row.node, row.channel) for row in rows}
        states = self._read("channel_states", channels.CHANNEL_STATES).to_pylist()
        fed: list[tuple[Row, bytes | None]] = [(row, None) for row in rows]
        fed += [
            (_stand_in(each_state), each_state["state"])
            for each_state in states
            if (each_state["node"], each_state["channel"]) in touched
        ]
        fed.sort(key=lambda pair: (pair[0].channel, pair[0].node, pair[0].seq))
        findings, gaps, kept = [], [], []
        reached: dict[tuple[str, str], int] = {}
        for node, channel, found, gap, seq, state in channels.folded(
            fed, self._judging, resumable=True
        ):
            if found is not None:
                findings.append((*found, f"{node} {channel}"))
            elif gap is not None:
                gaps.append(gap)
            else:
                reached[node, channel] = seq
                kept.append((node, channel, seq, rules_digest(), state))
        keys = {f"{node} {channel}" for node, channel in touched}
        findings += [
            tuple(finding.values())
            for finding in self._read("channel_findings", FINDINGS_OF).to_pylist()
            if finding["of"] not in keys
        ]
        gaps += [
            tuple(values.values())
            for values in self._read("sequence_gaps", SEQUENCE_GAPS).to_pylist()
            if (values["node"], values["channel"]) not in touched
        ]
        kept += [
            tuple(each_state.values())
            for each_state in states
            if (each_state["node"], each_state["channel"]) not in touched
        ]
        self._write("channel_findings", findings, FINDINGS_OF)
        self._write("sequence_gaps", gaps, SEQUENCE_GAPS)
        self._write("channel_states", kept, channels.CHANNEL_STATES)
        beyond = [row for row in rows if row.seq > reached.get((row.node, row.channel or ""), 0)]
        self._write("channel_rows", beyond, JOURNAL)

    # --- documents ---

    def documents(self) -> None:
        """Findings of every document that is not settled yet or has new rows."""
        import pyarrow.compute as pc

        paths = [entry.path for entry in self._before.tables.get("documents", ())]
        touched = {document_key(row) for row in self._new} - {None}
        settled = self._before.judged.get("settled_before")
        if settled is not None:
            unsettled = pc.field("at") >= settled
            found_in = self._table(paths, DOCUMENT_ROWS, ["document"], unsettled)
            touched.update(found_in["document"].to_pylist())
        some = [
            (values.pop("document"), Row(**values))
            for _, table in self._about("documents", Names(filter(None, touched)), DOCUMENT_ROWS)
            for values in table.to_pylist()
            if values["node"] not in self._judging.copies
        ]
        some.sort(key=lambda pair: (pair[0], pair[1].node, pair[1].seq))
        found = [
            tuple(violation)
            for violation in fold_documents((row for _, row in some), self._judging.context)
        ]
        found += [
            tuple(violation)
            for violation in self._findings(self._before, "document_findings")
            if violation.message_id not in touched
        ]
        self._write("document_findings", found, VIOLATIONS)

    # --- messages ---

    def messages(self) -> None:
        """The ledger rows of every message that is open, has new rows, or was told of."""
        of_others = ("channel_findings", "document_findings")
        told = self._findings(self._version, *of_others)
        rows = self._rows_to_fold(told, self._findings(self._before, *of_others))
        rows.sort(key=lambda row: (row.message_id or "", row.node, row.seq))
        made = self._judged(rows, told)
        self._folded = made
        closed, still_open = (
            made.filter(mask).select(LEDGER.fieldNames())
            for mask in (made["closed"], _inverse(made["closed"]))
        )
        days = self._divided(closed, data_path("ledger", f"closed/{self._name}"), "closed_on")
        again = set(self._opened.values())
        rewritten = self._without_opened(again)
        old = self._before.tables.get("ledger_closed", ())
        kept = [entry for entry in old if entry.path not in again]
        self._version = self._version.with_table("ledger_closed", [*kept, *rewritten, *days])
        self._put("ledger_open", still_open, data_path("ledger", f"open/{self._name}"))
        ids = set(still_open["message_id"].to_pylist())
        self._write("open_rows", [row for row in rows if row.message_id in ids], JOURNAL)

    def _rows_to_fold(self, told: list[Violation], before: list[Violation]) -> list[Row]:
        """New rows, rows of open messages, and all rows of closed ones that are opened again."""
        rows = [row for row in self._new if row.message_id is not None]
        rows += self._rows(entry.path for entry in self._before.tables.get("open_rows", ()))
        changed = (Counter(told) - Counter(before)) + (Counter(before) - Counter(told))
        ids = {row.message_id for row in self._new}
        ids |= {violation.message_id for violation in changed}
        closed = list(self._about("ledger_closed", Names(filter(None, ids)), LEDGER, COUNTED))
        self._were_closed = [table for _, table in closed]
        self._opened = {
            message_id: entry.path
            for entry, table in closed
            for message_id in table["message_id"].to_pylist()
        }
        if self._opened:
            new = {entry.path for entry in new_entries(self._before)}
            names = Names(self._opened)
            for _, table in self._about("journal", names, JOURNAL, list(COLUMNS), new):
                rows += self._rows_of(table)
        return rows

    def _judged(self, rows: list[Row], told: list[Violation]) -> pa.Table:
        """Ledger rows with all findings, and whether each is closed; message findings are kept."""
        import pyarrow as pa

        schema = arrow(nullable(JOURNAL))
        batches = [batch_of(list(zip(*rows, strict=True)), schema)] if rows else []
        folded = list(ledger_fold(self._judging)(iter(batches)))
        made = pa.Table.from_batches(folded, arrow(FOLDED))
        ids, own = made["message_id"].to_pylist(), made["violations"].to_pylist()
        findings = [
            (*(value[name] for name in Violation._fields), message_id)
            for message_id, some in zip(ids, own, strict=True)
            for value in some or ()
        ]
        known = set(ids)
        findings += [
            tuple(finding.values())
            for finding in self._read("message_findings", FINDINGS_OF).to_pylist()
            if finding["of"] not in known
        ]
        self._write("message_findings", findings, FINDINGS_OF)
        more: dict[str, list[Violation]] = {}
        for violation in told:
            if violation.message_id in known:
                more.setdefault(violation.message_id or "", []).append(violation)
        return _with_findings(made, ids, own, more) if more else made

    def _without_opened(self, paths: set[str]) -> list[Entry]:
        """The directories that lost messages, written again without them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        gone = pa.array(sorted(self._opened), pa.string())
        kept = self._table(sorted(paths), LEDGER, None, ~pc.field("message_id").isin(gone))
        return self._divided(
            kept, data_path("ledger", f"closed/{self._name}-rewritten"), "closed_on"
        )

    # --- service ---

    def service(self) -> None:
        """Partner service for the days on which any message changed."""
        import pyarrow as pa

        days = self._changed_days()
        closed = self._version.tables.get("ledger_closed", ())
        if days is not None:
            first = str(min(days) - CLOCKS_DIFFER) if days else "9999"
            closed = tuple(entry for entry in closed if Days.of_entry(entry).last >= first)
        entries = (*closed, *self._version.tables.get("ledger_open", ()))
        rows = self._table(
            (entry.path for entry in entries),
            LEDGER,
            SERVICE_COLUMNS,
            None if days is None else _on(days),
        )
        made = _made(partner_service(rows.to_pylist(), days), PARTNER_SERVICE)
        old = self._before.tables.get("partner_service", ())
        kept, beside = other_days(self._lake, old, days)
        new = self._divided(
            pa.concat_tables([beside, made]), data_path("partner_service", self._name), "hour"
        )
        self._version = self._version.with_table("partner_service", [*kept, *new])

    def _changed_days(self) -> set[date] | None:
        """The days whose hours must be counted again; None: all of them."""
        import pyarrow as pa

        if self._folded is None or not self._before.tables.get("partner_service"):
            return None
        entries = self._before.tables.get("ledger_open", ())
        was_open = self._table((entry.path for entry in entries), LEDGER, COUNTED)
        found = changed_days(self._folded, pa.concat_tables([was_open, *self._were_closed]))
        return None if len(found) > DAYS_MAX else found

    # --- the end ---

    def finished(self) -> Version:
        """The version with everything that this run made."""
        tables = ("message_findings", "channel_findings", "document_findings")
        every = [*self._findings(self._version, *tables), *self._judging.context.problems]
        self._write("violations", [tuple(violation) for violation in told_once(every)], VIOLATIONS)
        far = extent.judged_channels(self._lake, self._version, self._before, self._judging)
        self._write("judged", far, JUDGED)
        nodes = {
            name: replace(state, folded=state.seq) for name, state in self._version.nodes.items()
        }
        judged = {**self._judging.as_dict(), "rules": rules_digest()}
        return replace(self._version, nodes=nodes, judged=judged)


def _made(rows: Sequence[Any], schema: StructType) -> pa.Table:
    import pyarrow as pa

    shape = arrow(nullable(schema))
    if not rows:
        return shape.empty_table()
    return pa.Table.from_batches([batch_of(list(zip(*rows, strict=True)), shape)])


def _stand_in(state: dict[str, Any]) -> Row:
    """A row in whose place a channel's state stands."""
    return Row(state["seq"], 0, 0, "", state["node"], "", channel=state["channel"])


def _on(days: set[date]) -> pc.Expression:
    """Which ledger rows were submitted or received on some days."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pa.array(sorted(days), pa.date32())
    submitted, received = (
        pc.field(name).cast(pa.date32()).isin(wanted) for name in ("submitted_at", "received_at")
    )
    return submitted | received


def _inverse(mask: Any) -> Any:
    import pyarrow.compute as pc

    return pc.invert(mask)


def _with_findings(
    made: pa.Table,
    ids: list[str],
    own: list[list[dict[str, Any]] | None],
    more: dict[str, list[Violation]],
) -> pa.Table:
    """Ledger rows with what channels and documents show of their messages."""
    import pyarrow as pa

    verdicts = made["verdict"].to_pylist()
    violations: list[Any] = list(own)
    for index, message_id in enumerate(ids):
        found = more.get(message_id)
        if not found:
            continue
        # Sorted, because the order in which they were found must not show; empty comes first.
        ordered = sorted(
            found, key=lambda finding: tuple((value is not None, value or "") for value in finding)
        )
        violations[index] = [*(own[index] or ()), *(violation._asdict() for violation in ordered)]
        gravest = verdict("", found)
        known = RANK.get(verdicts[index], len(RANK))
        if gravest and RANK[gravest] < known:
            verdicts[index] = gravest
    for name, values in (("verdict", verdicts), ("violations", violations)):
        position = made.schema.get_field_index(name)
        field = made.schema.field(position)
        made = made.set_column(position, field, pa.array(values, field.type))
    return made
