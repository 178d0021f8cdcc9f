"""Taking a journal in: from a store or an export to directories of bronze and silver.

A node's rows are taken in order of `seq`, each once. The lake remembers the last row it has of
each node, so a second run reads only what is new, and a store that is not the one it was (another
one with the same name, or an older copy) is refused instead of mixed in.

Spark's tasks read and write; the driver only names what they wrote. The chain of a journal is
sequential, so a range without kept heads is one task, from the head that the lake has.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from oncewire.errors import JournalProblem
from oncewire.journal.check import AT_WORK, document_key
from oncewire.journal.identity import START, last_head
from oncewire.journal.predicates.context import (
    CONTEXT_KINDS,
    JUMPS_MAX,
    RESTARTS_MAX,
    Hole,
    Jump,
    Restart,
    jump_between,
    merged,
    restart_between,
)
from oncewire.journal.row import COLUMNS, JOURNAL_VERSION, Row
from oncewire.message.instant import Instant
from oncewire.pipeline.lake import version as crash
from oncewire.pipeline.lake.columns import ATTEMPTS, HOPS, JOURNAL, MESSAGES, QUARANTINE, SILVER
from oncewire.pipeline.lake.lake import Lake, TableFile
from oncewire.pipeline.lake.tables import ALWAYS_THERE, OPEN, data_path, problem_in, rows_of_batch
from oncewire.pipeline.lake.version import (
    BATCH_ROWS,
    COLUMNS_VERSION,
    Book,
    Entry,
    Mark,
    NodeState,
    Version,
    in_parts,
    safe_name,
    write_node_file,
)
from oncewire.pipeline.sources.journal_source import check_distinct, is_database, open_books
from oncewire.pipeline.sources.oncewire import is_local, store_out_of_reach
from oncewire.pipeline.tasks import run_each
from oncewire.protocol import notes
from oncewire.protocol.notes import Kind

# Ranges: what a lake does not have of a journal, and where the journal's chain goes on there.
#
# A store that is not the one it was (another one with the same name, an older copy, one whose rows
# were changed) is refused instead of mixed in.


HOLES_LOOKED_AT = 100
"""Holes of a journal for which each run looks for rows that came late."""


@dataclass(frozen=True, slots=True)
class Range:
    """Rows `(start, end]` of a book that the lake does not have."""

    book: Book
    start: int
    end: int
    fills: bool = False
    """Whether they lie in a hole of what was taken in before: a file that came late."""
    since: str = ""
    head: str = ""
    """The heads of the chain before and behind them: the first as its node kept it or as the lake
    made it of what it has, the second only as its node kept it."""

    @property
    def name(self) -> str:
        """The directory of its rows, below that of the table."""
        return f"{safe_name(self.book.node)}/{self.start + 1}-{self.end}"


def new_ranges(version: Version, book: Book) -> list[Range]:
    """What the lake does not have of a book: its end, and what holes of it can be filled."""
    start, end = new_range(version, book)
    found = where_chained(version, book, start, end) if end > start else []
    state = version.nodes.get(book.node)
    holes = () if state is None else state.holes[:HOLES_LOOKED_AT]
    late = [hole for hole in holes if book.count(hole.first - 1, hole.last)]
    return [
        *found,
        *(_range(version, book, hole.first - 1, hole.last, fills=True) for hole in late),
    ]


def where_chained(version: Version, book: Book, start: int, end: int) -> list[Range]:
    """A range, cut where the node began to chain its rows, and where it is long and the node kept
    a head: each piece is a task's, and leads from one head to the next."""
    cuts = [last for _, last in book.splits(start, end, ROWS_PER_TASK) if start < last < end]
    cuts = [cut for cut in cuts if book.head(cut) is not None]
    began = book.chained_from() - 1
    if start < began < end and book.head(start) is None and book.head(end) is not None:
        cuts.append(began)
    edges = [start, *sorted(set(cuts)), end]
    return [_range(version, book, first, last) for first, last in pairwise(edges)]


def _range(version: Version, book: Book, start: int, end: int, *, fills: bool = False) -> Range:
    since = book.head(start)
    if since is None:
        made = [
            entry.chain
            for entry in version.journal
            if entry.key == book.node and entry.last == start
        ]
        since = made[0] if made else ""
    return Range(book, start, end, fills, since, book.head(end) or "")


def new_range(version: Version, book: Book) -> tuple[int, int]:
    """What follows the rows that the lake has of a book: the rows `(start, end]`."""
    state = version.nodes.get(book.node)
    first, last = book.bounds()
    if state is None:
        return (first - 1 if first else 0), last
    mark = book.mark(state.seq)
    if mark is not None and mark != Mark(state.seq, state.at, state.boot):
        raise JournalProblem(
            f"{book.path} calls itself {book.node}, but it is not the store that the lake knows "
            f"by that name: their rows {state.seq} differ",
            remedy="give each handler a node name of its own; a new store needs a new name",
        )
    kept = book.head(state.seq)
    if state.chain and kept is not None and kept != state.chain:
        raise JournalProblem(
            f"rows of {book.path} up to {state.seq} are not those that the lake took in: they make "
            f"another chain",
            remedy="see which: `oncewire pipeline prove --lake LAKE --store STORE`",
        )
    if not last and state.chain and kept == state.chain:
        return state.seq, state.seq  # All of it was trimmed.
    if last < state.seq:
        raise JournalProblem(
            f"{book.path} ends with row {last}, but the lake has row {state.seq} of {book.node}",
            remedy="an older copy was restored: take it into a new lake, and keep this one",
        )
    if mark is None and book.next_seq(state.seq) not in (None, state.seq + 1):
        raise JournalProblem(
            f"rows {state.seq + 1}.. of {book.node} were removed before the lake took them",
            remedy="take journals in before they are trimmed; take what is left into a new lake",
        )
    return state.seq, last


ROWS_PER_TASK = 200_000
"""Rows of consecutive ranges that one task takes in."""

ROWS_AT_ONCE = 20_000
"""Rows that a task holds of a book that is read by position."""

Edge = tuple[int, Instant | None]
"""A position and its instant."""

Run = tuple[Edge, Edge]
"""The first and the last of positions without a gap."""

Progress = Callable[[str], None]
"""Called with each step as it begins."""


def quiet(step: str) -> None:
    """A `Progress` that drops what it is told."""
    del step


# What executors are asked before anything is taken in: which journals there are, what is new.


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A book, and what a lake does not have of it."""

    book: Book
    ranges: tuple[Range, ...]
    last: int
    """The last position that it has."""


def survey(
    spark: SparkSession, version: Version, places: Sequence[str | Path | Book]
) -> list[Surveyed]:
    """Every book at some places, by one task for each place."""
    check_reach(spark, places)
    calls = [partial(survey_place, version, place) for place in places]
    found = [book for some in run_each(spark, calls) for book in some]
    check_distinct([each.book for each in found])
    return found


def check_reach(spark: SparkSession, places: Sequence[str | Path | Book]) -> None:
    """Refuse a SQLite store where tasks run on other machines, before anything is read."""
    master = spark.conf.get("spark.master", "") or ""
    for place in places:
        if not isinstance(place, str | Path) or is_database(place):
            continue
        if Path(place).is_file() and not is_local(master):
            raise store_out_of_reach(place, master)


def survey_place(version: Version, place: str | Path | Book) -> list[Surveyed]:
    """The books at one place."""
    return [
        Surveyed(book, tuple(new_ranges(version, book)), book.bounds()[1])
        for book in open_books(place)
    ]


def survey_batch(version: Version, book: Book, first: int, last: int) -> list[Surveyed]:
    """One batch of a stream: rows of a book from one position to another."""
    known = version.nodes.get(book.node)
    start = first - 1
    if known is not None:
        if last <= known.seq:
            return []  # Played again: the lake has it.
        start, following = known.seq, book.next_seq(known.seq)
        # Rows between the lake's last and the batch's first must not exist.
        if following is not None and following < first:
            raise JournalProblem(
                f"the stream is at row {first} of {book.node}, but the lake wants row {following} "
                f"next",
                remedy="the checkpoint belongs to another lake: remove it, the lake knows where "
                "it is",
            )
    ranges = where_chained(version, book, start, last)
    return [Surveyed(book, tuple(ranges), book.bounds()[1])]


# What a task takes in: rows checked, chained, written as bronze and silver.


class Part(NamedTuple):
    """One range as it was taken in."""

    span: Range
    entry: Entry
    aside: Entry
    mark: Mark | None
    """Its last row."""
    runs: tuple[Run, ...]
    jumps: tuple[Jump, ...]
    """Where the clocks of its node jump."""
    restarts: tuple[Restart, ...]


class Written(NamedTuple):
    """What one task took in."""

    parts: list[Part]
    silver: dict[str, Entry]


def take_in(
    spark: SparkSession,
    lake: Lake,
    version: Version,
    surveyed: Sequence[Surveyed],
    tell: Progress = quiet,
    *,
    now: Instant = 0,
) -> TakenIn:
    """Everything new in some books, read at that instant of the reader's clock."""
    ranges = [span for each in surveyed for span in each.ranges]
    rows = sum(span.end - span.start for span in ranges)
    for number, span in enumerate(ranges, 1):
        place = f"{number} of {len(ranges)}, {rows:,} rows in all"
        tell(f"taking in {span.book.node} {span.start + 1}..{span.end} ({place})")
    parts = in_parts(ranges, lambda span: span.end - span.start, ROWS_PER_TASK)
    lake.clear(*(path for part in parts for path in _paths(part)))
    calls = [partial(write_ranges, lake.root, part) for part in parts]
    again = [] if version.columns == COLUMNS_VERSION else _calls_again(lake, version)
    written = run_each(spark, [*calls, *again])
    if version.columns != COLUMNS_VERSION:
        version = _made_again(version, written[len(calls) :])
    taken = placed(lake, version, written[: len(calls)])
    for each in surveyed if now else ():
        state = taken.version.nodes.get(each.book.node)
        if state is not None and state.seq >= each.last:
            # All of the journal was read now.
            noted = replace(state, read_at=each.book.read_at(now))
            taken = replace(taken, version=taken.version.with_node(each.book.node, noted))
    return taken


def _paths(part: Sequence[Range]) -> Iterator[str]:
    """Where a task writes."""
    name = silver_name(span.name for span in part)
    yield from (data_path(table, name) for table in SILVER)
    for span in part:
        yield from (f"bronze/journal/{span.name}", f"bronze/quarantine/{span.name}")


def write_ranges(root: Path, spans: Sequence[Range]) -> Written:
    """Take some ranges in; this is what a task does."""
    silver = Silver(root, silver_name(span.name for span in spans))
    parts = [_write_range(root, span, silver) for span in spans]
    return Written(parts, silver.close())


def _write_range(root: Path, span: Range, silver: Silver) -> Part:
    """One range, in the order of its positions: each row is chained to the one before."""
    import pyarrow as pa
    import pyarrow.compute as pc

    book = span.book
    journal = TableFile(root, "journal", f"bronze/journal/{span.name}", JOURNAL)
    quarantine = TableFile(root, "quarantine", f"bronze/quarantine/{span.name}", QUARANTINE)
    head = bytes.fromhex(span.since) if span.since else START
    runs: list[Run] = []
    jumps: list[Jump] = []
    restarts: list[Restart] = []
    before: Row | None = None
    for start, end in book.splits(span.start, span.end, ROWS_AT_ONCE):
        found = list(book.batches(start, end, COLUMNS))
        if not found:
            continue
        for batch in pa.Table.from_batches(found).sort_by("seq").to_batches(BATCH_ROWS):
            crash.reached("mid_task")
            rows = list(rows_of_batch(batch))
            head = last_head(head, rows)
            _note_runs(runs, rows, book)
            problems = [
                f"its {book.unreadable[row.seq]} is not UTF-8"
                if row.seq in book.unreadable
                else problem_in(row, book.node)
                for row in rows
            ]
            pairs = list(zip(rows, problems, strict=True))
            aside = [(row, problem) for row, problem in pairs if problem is not None]
            if aside:
                quarantine.add(_set_aside(row, problem, book.path) for row, problem in aside)
                batch = batch.filter(pc.is_null(pa.array(problems, pa.string())))  # noqa: PLW2901
            for row, problem in pairs:
                if problem is None:
                    if row.seq == span.start + 1:
                        before = _row_before(book, row)
                    if before is not None:
                        jump, restart = jump_between(before, row), restart_between(before, row)
                        jumps += [] if jump is None else [jump]
                        restarts += [] if restart is None else [restart]
                    before = row
            journal.write(batch)
            silver.add(
                (row for row, problem in pairs if problem is None), (row for row, _ in aside)
            )
    entry, held = journal.close(), quarantine.close()
    expected = book.count(span.start, span.end)
    if entry.rows + held.rows != expected:
        raise JournalProblem(
            f"{expected} rows of {book.node} were to be taken in, and {entry.rows + held.rows} "
            f"arrived",
            remedy="run again; if it stays so, another program changes the journal",
        )
    entry = replace(entry, key=book.node, first=span.start + 1, last=span.end)
    entry = replace(entry, since=span.since, chain=head.hex())
    mark = book.mark(span.end)
    return Part(
        span, entry, replace(held, key=book.node), mark, tuple(runs), tuple(jumps), tuple(restarts)
    )


def _row_before(book: Book, row: Row) -> Row | None:
    """The row before a range's first, if it is there, keeps the contract, and the clocks tell of
    anything between both. To find a row in Parquet is to read its whole group, so first of the
    columns that tell."""
    before: Row | None = None
    for columns in (ALWAYS_THERE, COLUMNS):
        batches = book.batches(row.seq - 2, row.seq - 1, columns)
        before = next((found for batch in batches for found in rows_of_batch(batch)), None)
        if before is None or None in before[: len(ALWAYS_THERE)]:
            return None
        if not (jump_between(before, row) or restart_between(before, row)):
            return None
    return before if before and problem_in(before, book.node) is None else None


def _set_aside(row: Row, problem: str, source: str) -> tuple[Any, ...]:
    """A row that breaks the contract, as the table `quarantine` has it."""
    said = {name: value for name, value in row._asdict().items() if value is not None}
    own = {"source": source, "problem": problem, "raw": json.dumps(said, ensure_ascii=False)}
    return tuple(own[name] if name in own else getattr(row, name) for name in _QUARANTINED)


_QUARANTINED = QUARANTINE.fieldNames()


def _note_runs(runs: list[Run], rows: Sequence[Row], book: Book) -> None:
    """Add positions, which are in order, to the runs without a gap."""
    for row in rows:
        edge = (row.seq, row.at)
        last = runs[-1][1][0] if runs else None
        if last == row.seq:
            raise JournalProblem(
                f"{book.path} has two rows {row.seq} of {book.node}",
                remedy="two stores call themselves by one name: export each to a folder of its own",
            )
        if last is not None and row.seq == last + 1:
            runs[-1] = (runs[-1][0], edge)
        else:
            runs.append((edge, edge))


# Silver: facts of the journal, typed. The task that takes rows in has each of them at hand.


_KNOWN_BY = frozenset(
    kind.value for kind in (Kind.SUBMITTED, Kind.RECEIVED, Kind.FORWARDED, Kind.JOINED)
)
_ATTEMPTS = frozenset((Kind.SENT.value, Kind.SEND_FAILED.value))
_HOPS = frozenset((Kind.FORWARDED.value, Kind.PASSED_ON.value))
_OWN = set(JOURNAL.fieldNames())


class Silver:
    """The silver tables of some ranges of a journal, as one task writes them."""

    def __init__(self, root: Path, name: str, tables: Iterable[str] = tuple(SILVER)) -> None:
        self._files = {
            table: TableFile(root, table, data_path(table, name), SILVER[table]) for table in tables
        }
        self._boots: dict[tuple[str, str], list[Any]] = {}

    def add(self, rows: Iterable[Row], aside: Iterable[Row] = ()) -> None:
        """What some rows say; of those that were set aside only which run wrote them."""
        said: dict[str, list[Sequence[Any]]] = {table: [] for table in SILVER}
        for row in rows:
            self._note_boot(row)
            if row.kind in CONTEXT_KINDS:
                said["context"].append(row)
            if row.kind in _KNOWN_BY:
                said["messages"].append(_message(row))
            elif row.kind in _ATTEMPTS:
                said["attempts"].append(_attempt(row))
            if row.kind in _HOPS:
                said["hops"].append(_hop(row))
            document = document_key(row)
            if document is not None:
                said["split_rows"].append((*row, document))
        for row in aside:
            self._note_boot(row)
        for table, file in self._files.items():
            file.add(said[table])

    def _note_boot(self, row: Row) -> None:
        # A row that was set aside may lack anything.
        key: tuple[Any, Any] = (row.node, row.boot)
        if None in key:
            return
        known = self._boots.setdefault(key, [row.seq, row.at, False, False])
        if row.seq < known[0]:
            known[:2] = [row.seq, row.at]
        known[2] = known[2] or row.kind == Kind.STARTED.value
        known[3] = known[3] or row.kind in AT_WORK

    def close(self) -> dict[str, Entry]:
        """The directories that were written."""
        if "boots" in self._files:
            self._files["boots"].add((*key, *facts) for key, facts in self._boots.items())
        return {table: file.close() for table, file in self._files.items()}


def _message(row: Row) -> tuple[Any, ...]:
    """A message becomes known to a node."""
    said = _said(row)
    said["event"], said["best_effort"] = row.kind, bool(said.get("best_effort"))
    said["size_bytes"], said["time_to_live_at"] = row.size, said.get("time_to_live")
    return tuple(
        getattr(row, field.name) if field.name in _OWN else said.get(field.name)
        for field in MESSAGES.fields
    )


def _hop(row: Row) -> tuple[Any, ...]:
    """An intermediary sent a message on."""
    said = _said(row)
    said["event"], said["onward_channel"] = row.kind, said.get("onward")
    said["time_to_live_at"] = said.get("time_to_live")
    return tuple(
        getattr(row, field.name) if field.name in _OWN else said.get(field.name)
        for field in HOPS.fields
    )


def _attempt(row: Row) -> tuple[Any, ...]:
    """A transmission began, or failed."""
    said = _said(row)
    event = "began"
    if row.kind == Kind.SEND_FAILED.value:
        event = said.get("outcome") or notes.SendFailed().outcome
    made = {"event": event, "reason": said.get("reason")}
    return tuple(
        made[field.name] if field.name in made else getattr(row, field.name)
        for field in ATTEMPTS.fields
    )


def _said(row: Row) -> dict[str, Any]:
    return json.loads(row.detail) if row.detail is not None else {}


# What the driver makes of it: a version that names what the tasks wrote.


@dataclass(frozen=True, slots=True)
class TakenIn:
    """The version with what was taken in, not published yet, and how much it was."""

    version: Version
    rows: int = 0
    rows_quarantined: int = 0


def placed(lake: Lake, version: Version, written: Iterable[Written]) -> TakenIn:
    """The version with what some tasks took in."""
    every = list(written)
    parts = [part for each in every for part in each.parts]
    for part in sorted(parts, key=lambda part: (part.span.fills, part.span.start)):
        span, node = part.span, part.span.book.node
        write_node_file((lake.root / part.entry.path).parent, node, JOURNAL_VERSION)
        before = version.nodes.get(node)
        state = before if span.fills and before is not None else _state_at(part, before)
        known = before or state
        jumps = tuple(sorted({*known.jumps, *part.jumps}))[:JUMPS_MAX]
        restarts = tuple(sorted({*known.restarts, *part.restarts}))[-RESTARTS_MAX:]
        state = replace(state, holes=_holes(part, before), jumps=jumps, restarts=restarts)
        version = version.adding("journal", part.entry).with_node(node, state)
        if part.aside.rows:
            version = version.adding("quarantine", part.aside)
        if span.fills:
            version = forgetting(version)
    for each in every:
        for table, entry in each.silver.items():
            version = version.adding(table, entry)
    aside = sum(part.aside.rows for part in parts)
    return TakenIn(version, sum(part.entry.rows for part in parts), aside)


def forgetting(version: Version) -> Version:
    """A copy that is judged again from the first row on: rows filled a hole, or rules changed."""
    nodes = {name: replace(state, folded=0) for name, state in version.nodes.items()}
    return replace(version, nodes=nodes, judged={})


def _holes(part: Part, before: NodeState | None) -> tuple[Hole, ...]:
    """What is missing of a node after a range was taken in."""
    span = part.span
    known = () if before is None else before.holes
    filled = next((hole for hole in known if span.fills and hole.first == span.start + 1), None)
    kept = [hole for hole in known if hole is not filled]
    first: Edge = (0, None) if before is None else (span.start, before.at)
    last: Edge = (span.end + 1, part.runs[-1][1][1] if part.runs else 0)
    if filled is not None:
        first, last = (span.start, filled.before), (span.end + 1, filled.after)
    ends = [first, *(run[1] for run in part.runs)]
    begins = [*(run[0] for run in part.runs), last]
    found = [
        Hole(end[0] + 1, begin[0] - 1, end[1], begin[1] or 0)
        for end, begin in zip(ends, begins, strict=True)
        if begin[0] - end[0] > 1
    ]
    return tuple(sorted((*kept, *merged(found))))


def _state_at(part: Part, before: NodeState | None) -> NodeState:
    """The state of a node after a range was taken in: the lake ends at its last row."""
    # Without a mark the last rows of the range were removed meanwhile; it is taken anyway.
    at, boot = (before.at, before.boot) if before else (0, "")
    if part.mark is not None:
        at, boot = part.mark.at or 0, part.mark.boot or ""
    state = NodeState(part.span.end, at, boot, chain=part.span.head)
    if before is None:
        return state
    return replace(state, folded=before.folded, read_at=before.read_at, forgot=before.forgot)


def silver_name(ranges: Iterable[str]) -> str:
    """A name that follows from the ranges alone, so that a replay takes the same place."""
    names = sorted(ranges)
    if len(names) == 1:
        return names[0]
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
    return f"{len(names)}-nodes/{digest}"


# A lake of an earlier release: its silver tables, made again of its journal with today's columns.


AGAIN = tuple(table for table in SILVER if table in OPEN)
"""The silver tables that people read; others have the columns of the journal."""


def _calls_again(lake: Lake, version: Version) -> list[Callable[[], dict[str, Entry]]]:
    parts = list(in_parts(version.journal, lambda entry: entry.rows, ROWS_PER_TASK))
    names = [f"columns-{COLUMNS_VERSION}/{number}" for number in range(len(parts))]
    lake.clear(*(data_path(table, name) for table in AGAIN for name in names))
    return [
        partial(write_again, lake.root, name, [entry.path for entry in part])
        for name, part in zip(names, parts, strict=True)
    ]


def write_again(root: Path, name: str, paths: Sequence[str]) -> dict[str, Entry]:
    """The silver tables of some directories of the journal; this is what a task does."""
    import pyarrow.dataset as ds

    silver = Silver(root, name, AGAIN)
    for path in paths:
        for batch in ds.dataset(root / path, format="parquet").to_batches(batch_size=BATCH_ROWS):
            silver.add(rows_of_batch(batch))
    return silver.close()


def _made_again(version: Version, written: Iterable[dict[str, Entry]]) -> Version:
    """The version with silver tables of today's columns; its gold tables are to be judged again."""
    every = list(written)
    for table in AGAIN:
        version = version.with_table(table, [entries[table] for entries in every])
    tables = dict(version.tables)
    tables["split_rows"] = tables.pop("documents", ())
    return replace(forgetting(version), tables=tables, columns=COLUMNS_VERSION)


def read_book(spark: SparkSession, book: Book, start: int, end: int) -> DataFrame:
    """The rows `(start, end]` of a book as they are."""
    return (
        spark.read.format("oncewire")
        .option("node", book.node)
        .option("startingSeq", str(start))
        .option("endingSeq", str(end))
        .options(**book.options)
        .load()
    )
