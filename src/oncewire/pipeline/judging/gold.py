"""What tasks do for the gold tables: fold what came together by key, and write the files.

Each task writes one directory of each table that it has rows for, and returns their entries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType

from oncewire.journal.check import fold_documents, told_once
from oncewire.journal.predicates.context import Violation, ViolationKind
from oncewire.pipeline.judging.channels import fold_channel
from oncewire.pipeline.judging.extent import (
    Extents,
    Judging,
    Way,
    add_ways,
    gather,
    has_come_due,
    judged_ways,
    ways_of,
)
from oncewire.pipeline.judging.ledger import judged_batches, with_findings
from oncewire.pipeline.judging.together import (
    CHANNEL,
    FINDING,
    GAP,
    ROW,
    SERVICE_COLUMNS,
    STATE,
    TOLD,
    Fed,
    by_fold,
    fed_rows,
    rows_by_key,
)
from oncewire.pipeline.lake.columns import BY_DAYS, GOLD, LEDGER, SEQUENCE_GAPS, arrow, nullable
from oncewire.pipeline.lake.lake import Lake, Names, TableFile, count_in
from oncewire.pipeline.lake.tables import data_path
from oncewire.pipeline.lake.version import COLUMNS_VERSION, Entry, Version
from oncewire.pipeline.tasks import Batches

if TYPE_CHECKING:
    import pyarrow as pa

OF_CHANNELS = (
    "channel_findings", "sequence_gaps", "channel_states", "channel_rows", "document_findings",
)  # fmt: skip
"""The tables that are made of channels and documents."""

WORK = "gold/work"
"""Directories that only the run itself reads."""

NAMES = StructType([StructField("name", StringType())])
"""Messages or documents, in a directory of a run's own."""

Days = set[date]


@dataclass(frozen=True, slots=True)
class Setting:
    """The facts that every task of a run needs."""

    root: Path
    name: str
    """The name of the run's directories."""
    before: Version
    """The lake with the rows that were taken in, and the gold tables as they were."""
    new: frozenset[str]
    """The directories of the journal that gold does not know yet."""

    def path(self, table: str, below: str) -> str:
        """Where a task writes a table."""
        return data_path(table, f"{self.name}/{below}")

    def file(self, table: str, below: str) -> TableFile:
        """The file of a task for a table."""
        path = self.path(table, below)
        return TableFile(self.root, table, path, GOLD[table], days=BY_DAYS.get(table, ""))

    def folders(self, *tables: str) -> list[str]:
        """The directories of tables as they were."""
        return [
            str(self.root / entry.path)
            for table in tables
            for entry in self.before.tables.get(table, ())
        ]


@dataclass(slots=True)
class Made:
    """What a task made."""

    tables: dict[str, list[Entry]] = field(default_factory=dict)
    opened: set[str] = field(default_factory=set)
    """Directories of `ledger_closed` that lose messages, because these are judged again."""
    having: dict[str, set[str]] = field(default_factory=dict)
    """Directories of a table that have earlier rows of what is judged again."""
    verdicts: dict[str, dict[str, int]] = field(default_factory=dict)
    """How often each verdict occurs in a directory."""
    ways: dict[Way, Extents] = field(default_factory=dict)
    days: Days = field(default_factory=set)
    """Days on which a message is not as it was."""
    restored: set[Violation] = field(default_factory=set)
    """Findings about stores that were put back to an earlier state."""

    def put(self, table: str, file: TableFile) -> None:
        """Note a file that is complete."""
        self.tables.setdefault(table, []).append(file.close())


def _read(
    folders: Iterable[str], columns: list[str] | None = None, wanted: Any = None
) -> Iterator[pa.Table]:
    import pyarrow.dataset as ds

    for folder in folders:
        yield ds.dataset(folder, format="parquet").to_table(columns=columns, filter=wanted)


# --- before anything is judged ----------------------------------------------------------------


def look_around(root: Path, version: Version, ended: bool) -> tuple[Judging, bool]:
    """The context of the run, and whether something is to be judged without any new row."""
    lake = Lake(root)
    judging = gather(lake, version, ended=ended)
    known = bool(version.judged) and version.columns == COLUMNS_VERSION
    return judging, known and has_come_due(lake, version, judging)


def opened_by_rows(setting: Setting, paths: Collection[str], below: str) -> Made:
    """Which closed messages some directories of the journal have rows of."""
    folders = [str(setting.root / path) for path in paths]
    ids = {name for table in _read(folders, ["message_id"]) for name in _unique(table)}
    return _opened(setting, ids, below)


def _opened(setting: Setting, ids: Collection[str], below: str) -> Made:
    """Which of some messages are closed: they are noted, with where they are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    made, found = Made(), set[str]()
    names = Names(ids)
    for entry in setting.before.tables.get("ledger_closed", ()):
        some = names.among(setting.root, "ledger_closed", entry)
        if some:
            wanted = pc.field("message_id").isin(pa.array(some, pa.string()))
            folder = str(setting.root / entry.path)
            there = {
                name for each in _read([folder], ["message_id"], wanted) for name in _unique(each)
            }
            found |= there
            if there:
                made.opened.add(entry.path)
    if found:
        _note_names(setting, "messages", below, found)
        made.having["journal"] = _having(setting, "journal", found) - setting.new
    return made


def touched_documents(setting: Setting, new: Collection[str]) -> Made:
    """Which documents have rows in new directories or may still get some, and which of the others
    have earlier rows of them."""
    import pyarrow.compute as pc

    made, settled = Made(), setting.before.judged.get("settled_before")
    every = {entry.path for entry in setting.before.tables.get("split_rows", ())}
    folders = [str(setting.root / path) for path in sorted(every & set(new))]
    touched = {name for table in _read(folders, ["document"]) for name in _unique(table)}
    if settled is not None:
        old = [str(setting.root / path) for path in sorted(every - set(new))]
        unsettled = pc.field("at") >= settled
        touched |= {
            name for table in _read(old, ["document"], unsettled) for name in _unique(table)
        }
    made.having["split_rows"] = _having(setting, "split_rows", touched) - set(new)
    if made.having["split_rows"]:
        _note_names(setting, "documents", "0", touched)
    return made


def _having(setting: Setting, table: str, names: Collection[str]) -> set[str]:
    asked = Names(names)
    return {
        entry.path
        for entry in setting.before.tables.get(table, ())
        if asked.among(setting.root, table, entry)
    }


def _note_names(setting: Setting, kind: str, below: str, names: Iterable[str]) -> None:
    file = TableFile(setting.root, "work", f"{WORK}/{setting.name}/{kind}/{below}", NAMES)
    file.add((name,) for name in sorted(names))
    file.close()


def _unique(table: pa.Table) -> set[str]:
    return {name for name in table.column(0).unique().to_pylist() if name is not None}


# --- channels and documents -------------------------------------------------------------------


def judge_channels(setting: Setting, judging: Judging, rules: str) -> Callable[[Batches], Made]:
    """The task that judges channels and documents."""

    def work(batches: Batches) -> Made:
        task = _task()
        files = {table: setting.file(table, task) for table in OF_CHANNELS}
        changed: set[str] = set()
        for fold, some in by_fold(batches):
            judge = _judge_channel if fold == CHANNEL else _judge_document
            for key, group in rows_by_key(some):
                changed |= judge(key, group, files, judging, rules)
        made = _opened(setting, changed, f"told-{task}")
        for table, file in files.items():
            made.put(table, file)
        return made

    return work


def _judge_channel(
    key: str, group: Iterator[Fed], files: Mapping[str, TableFile], judging: Judging, rules: str
) -> set[str]:
    """Judge one channel on one node; returns the messages whose findings changed."""
    before: list[Violation] = []
    gaps: list[tuple[Any, ...]] = []
    state: Fed | None = None
    for each in group:
        if each.what == FINDING:
            before.append(_violation(each))
        elif each.what == GAP:
            gaps.append(tuple(each.said.get(name) for name in SEQUENCE_GAPS.fieldNames()))
        elif each.what == STATE:
            state = each
        else:
            break
    else:
        # No row beyond the state: all of it stays.
        files["channel_findings"].add((*found, key) for found in before)
        files["sequence_gaps"].add(gaps)
        if state is not None:
            row = state.row
            files["channel_states"].add([(row.node, row.channel, row.seq, rules, state.state)])
        return set()
    node, channel = each.row.node, each.row.channel
    known = [(state.row, state.state)] if state is not None else []
    rows = ((row.row, None) for row in chain([each], group))
    folded = fold_channel(chain(known, rows), judging, resumable=True)
    files["channel_findings"].add((*found, key) for found in folded.findings)
    files["sequence_gaps"].add((node, channel, *gap) for gap in folded.gaps)
    if folded.state is not None:
        seq, kept = folded.state
        files["channel_states"].add([(node, channel, seq, rules, kept)])
    files["channel_rows"].add(folded.beyond)
    return _changed(before, folded.findings)


def _judge_document(
    key: str, group: Iterator[Fed], files: Mapping[str, TableFile], judging: Judging, rules: str
) -> set[str]:
    """Judge one document; returns the messages whose findings changed."""
    del key, rules
    every = list(group)
    before = [_violation(each) for each in every if each.what == FINDING]
    rows = [each.row for each in every if each.what == ROW]
    found = list(fold_documents(rows, judging.context)) if rows else before
    files["document_findings"].add(found)
    return _changed(before, found)


def _changed(before: list[Violation], found: list[Violation]) -> set[str]:
    old, new = Counter(before), Counter(found)
    return {each.message_id for each in (old - new) + (new - old) if each.message_id is not None}


def _violation(each: Fed) -> Violation:
    values: list[Any] = [each.said.get(name) for name in Violation._fields]
    return Violation(*values)


# --- messages ---------------------------------------------------------------------------------


def judge_messages(setting: Setting, judging: Judging) -> Callable[[Batches], Made]:
    """The task that judges messages and writes their ledger rows."""
    return lambda batches: _Messages(setting, judging, _task()).judge(batches)


def _task() -> str:
    """The number of the task in its pass."""
    context = TaskContext.get()
    return str(context.partitionId() if context is not None else 0)


class _Messages:
    def __init__(self, setting: Setting, judging: Judging, task: str) -> None:
        self._judging, self._made = judging, Made()
        tables = ("ledger_closed", "ledger_open", "open_rows", "message_findings")
        self._files = {table: setting.file(table, task) for table in tables}
        self._told: dict[str, list[Violation]] = {}
        self._own: dict[str, list[Violation]] = {}
        self._was: dict[str, dict[str, Any]] = {}
        self._verdicts: dict[str, Counter[str]] = {}

    def judge(self, batches: Batches) -> Made:
        for rows, made in judged_batches(self._rows(batches), self._judging):
            for message_id in rows["message_id"].unique().to_pylist() if self._own else ():
                self._own.pop(message_id, None)
            for each in made:
                self._write(rows, each)
        for message_id, found in self._own.items():
            # Of messages that were not judged again.
            self._files["message_findings"].add((*each, message_id) for each in found)
        for table, file in self._files.items():
            self._made.put(table, file)
            if table in self._verdicts:
                path = self._made.tables[table][0].path
                self._made.verdicts[path] = dict(self._verdicts[table])
        return self._made

    def _rows(self, batches: Batches) -> Batches:
        """The journal rows, after noting what else came with their messages."""
        import pyarrow.compute as pc

        for _, some in by_fold(batches):
            for batch in some:
                is_row = pc.equal(batch["what"], ROW)
                for each in fed_rows([batch.filter(pc.invert(is_row))]):
                    if each.what == TOLD:
                        self._told.setdefault(each.key, []).append(_violation(each))
                    elif each.what == FINDING:
                        self._own.setdefault(each.key, []).append(_violation(each))
                    else:
                        self._was[each.key] = each.said
                yield batch.filter(is_row)

    def _write(self, rows: pa.RecordBatch, own: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        findings = own.filter(own["findings"].is_valid())
        for message_id, found in zip(
            findings["message_id"].to_pylist(), findings["findings"].to_pylist(), strict=True
        ):
            told = [Violation(*(each[name] for name in Violation._fields)) for each in found]
            self._files["message_findings"].add((*each, message_id) for each in told)
            self._made.restored |= {each for each in told if each.kind == ViolationKind.RESTORED}
        made = with_findings(own, self._told)
        self._note_days(made)
        for table, mask in (
            ("ledger_closed", made["closed"]),
            ("ledger_open", pc.invert(made["closed"])),
        ):
            some = made.filter(mask)
            if not len(some):
                continue
            self._files[table].write(some)
            whole = some.filter(some["part_of"].is_null())
            self._verdicts.setdefault(table, Counter()).update(whole["verdict"].to_pylist())
            add_ways(self._made.ways, ways_of(some, is_open=table == "ledger_open"))
            if table == "ledger_open":
                mine = pc.is_in(rows["message_id"], value_set=some["message_id"])
                self._files["open_rows"].write(rows.filter(mine))

    def _note_days(self, made: pa.RecordBatch) -> None:
        """Days on which a message is not as it was. What is open is judged again in every run, and
        mostly nothing has come of it: its day need not be counted again."""
        if not self._was:
            for name in ("submitted_at", "received_at"):
                days = made[name].cast("date32").unique().to_pylist()
                self._made.days |= {day for day in days if day is not None}
            return
        now = _counted(made)
        for message_id, values in zip(made["message_id"].to_pylist(), now, strict=True):
            was = self._was.get(message_id)
            if was is None or any(was.get(name) != value for name, value in values.items()):
                for each in (values, was or {}):
                    self._made.days |= set(_days(each))


def _counted(made: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """What partner service counts of each message, instants as integers."""
    import pyarrow as pa

    columns = {}
    for name in SERVICE_COLUMNS:
        column = made[name]
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        columns[name] = column.to_pylist()
    columns["findings"] = made["findings"].is_valid().to_pylist()
    return (
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    )


def _days(values: Mapping[str, Any]) -> Iterator[date]:
    for name in ("submitted_at", "received_at"):
        at = values.get(name)
        if at is not None:
            yield date.fromordinal(_EPOCH + at // 86_400_000_000)


_EPOCH = date(1970, 1, 1).toordinal()


def without_opened(setting: Setting, path: str, below: str) -> Made:
    """A directory of closed messages, written again without those that are judged again."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    made, file = Made(), setting.file("ledger_closed", f"rewritten-{below}")
    noted = setting.root / WORK / setting.name / "messages"
    gone = {name for table in _read([str(noted)]) for name in _unique(table)}
    stays = ~pc.field("message_id").isin(pa.array(sorted(gone), pa.string()))
    schema = arrow(nullable(LEDGER))
    found = ds.dataset(setting.root / path, format="parquet", schema=schema)
    for batch in found.to_batches(filter=stays):
        file.write(batch)
    made.put("ledger_closed", file)
    for entry in made.tables["ledger_closed"]:
        if entry.rows:
            made.verdicts |= count_verdicts(setting.root, entry.path).verdicts
    return made


def count_verdicts(root: Path, path: str) -> Made:
    """How often each verdict occurs in a directory of the ledger; parts are no messages."""
    return Made(verdicts={path: count_in([str(root / path)], "verdict", empty="part_of")})


# --- what is said of all of it ----------------------------------------------------------------


def write_service(setting: Setting) -> Callable[[Batches], Made]:
    """The task that writes partner service, a directory for each span of days."""

    def work(batches: Batches) -> Made:
        import pyarrow.compute as pc

        files: dict[int, TableFile] = {}
        for batch in batches:
            for span in pc.unique(batch["span"]).to_pylist():
                if span not in files:
                    files[span] = setting.file("partner_service", str(span))
                files[span].write(batch.filter(pc.equal(batch["span"], span)))
        made = Made()
        for file in files.values():
            made.put("partner_service", file)
        return made

    return work


def write_violations(setting: Setting, paths: Collection[str], problems: list[Violation]) -> Made:
    """The table `violations`: all findings, each told once."""
    names = list(Violation._fields)
    folders = [str(setting.root / path) for path in paths]
    every = [Violation(**row) for table in _read(folders, names) for row in table.to_pylist()]
    made, file = Made(), setting.file("violations", "0")
    file.add(told_once([*every, *problems]))
    made.put("violations", file)
    return made


def write_judged(setting: Setting, ways: Mapping[Way, Extents], judging: Judging) -> Made:
    """The table `judged`: how far each channel was judged."""
    made, file = Made(), setting.file("judged", "0")
    file.add(judged_ways(setting.folders("judged"), ways, judging))
    made.put("judged", file)
    return made
