"""Books at a place: which journals a store, an export or a published lake holds."""

from __future__ import annotations

import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from oncewire.errors import JournalProblem, StoreGone
from oncewire.journal.identity import START
from oncewire.journal.row import COLUMNS, SCHEMA, check_version
from oncewire.pipeline.lake.columns import JOURNAL, STORED_MESSAGES, arrow, nullable, only
from oncewire.pipeline.lake.tables import batch_of
from oncewire.pipeline.lake.version import (
    BATCH_ROWS,
    CURRENT_FILE,
    DATABASES,
    NODE_FILE,
    Book,
    Mark,
    Version,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql.types import StructType


SQLITE_MAGIC = b"SQLite format 3\0"


def is_database(place: str | Path) -> bool:
    """Whether a place is the address of a database, and no file or folder."""
    scheme, mark, _ = str(place).partition("://")
    return bool(mark) and scheme in DATABASES


def open_books(path: str | Path | Book, node: str | None = None) -> list[Book]:
    """Every book at a place; with `node`, only that node's. A book that is open stands for
    itself."""

    books: list[Book]
    if not isinstance(path, str | Path):
        return _chosen([path], path.path, node)
    if is_database(path):
        book = PostgresBook(str(path))
        return _chosen([book], book.path, node)
    place = Path(path)
    if not place.exists():
        raise JournalProblem(
            f"there is no store, export or lake at {place}", remedy="give the path of one"
        )
    if place.is_file():
        if place.open("rb").read(len(SQLITE_MAGIC)) != SQLITE_MAGIC:
            raise JournalProblem(
                f"{place} is not a store", remedy="give a SQLite store, an export or a lake"
            )
        books = [SqliteBook(place)]
    elif (place / CURRENT_FILE).is_file():
        books = list(lake_books(place))
    elif (place / NODE_FILE).is_file():
        books = [ExportBook.of_folder(place)]
    else:
        books = [ExportBook.of_folder(found.parent) for found in sorted(place.glob("*/_node.json"))]
    return _chosen(books, str(place), node)


def _chosen(books: Sequence[Book], place: str, node: str | None) -> list[Book]:
    chosen = [book for book in books if node is None or book.node == node]
    if not chosen:
        there = ", ".join(sorted(book.node for book in books))
        raise JournalProblem(
            f"{place} holds no journal" + (f" of node {node}" if node else ""),
            remedy=f"it has the journals of {there}"
            if there
            else f"give a lake, an export (Parquet files with a {NODE_FILE} beside them) or a "
            f"store; a party's folder has its own at {place}/data/oncewire.db",
        )
    return chosen


def open_book(path: str | Path | Book, node: str | None = None) -> Book:
    """The one book at a place."""
    books = open_books(path, node)
    if len(books) > 1:
        names = ", ".join(book.node for book in books)
        raise JournalProblem(
            f"{path} holds the journals of {names}", remedy="say which with option node"
        )
    return books[0]


def check_distinct(books: Sequence[Book]) -> None:
    """Refuse two stores that call themselves by one name: their rows could not be told apart."""
    seen: dict[str, str] = {}
    for book in books:
        if book.node in seen:
            raise JournalProblem(
                f"two stores call themselves {book.node}: {seen[book.node]} and {book.path}",
                remedy="give each handler a node name of its own, and each its own lake until then",
            )
        seen[book.node] = book.path


def ranges_from(first: int, start: int, end: int, rows: int) -> list[tuple[int, int]]:
    """Ranges that together are `(start, end]`, from the first row that is there: what was trimmed
    leaves a hole of any size, and no ranges are made of it."""
    begin = max(start, first - 1)
    return [(low, min(low + rows, end)) for low in range(begin, end, rows)]


# The journal and the messages of a store, read-only.
#
# Each query is short and finished before its rows are handed on: a reader that stayed open would
# keep the handler's write-ahead log from being recycled, or the server from cleaning up. Executors
# have no apsw; the standard library reads a file of SQLite as well.
#
# On PostgreSQL a turn gives its rows their `seq` under a lock that it keeps until its commit. So
# whatever a reader sees of the journal has no gap that will be filled later, however long a turn
# stays open and whichever handler takes it: to go by `seq` is to go by the order of commits.


BUSY_SECONDS = 10.0

# Which column of the state tables each column of STORED_MESSAGES is, where the names differ.
_OUTGOING = {
    "direction": "'out'", "node": "node.name", "message_id": "message.message_id",
    "sequence_number": "number", "since": "submitted_at",
}  # fmt: skip
_INCOMING = {
    "position": "row", "direction": "'in'", "node": "node.name",
    "message_id": "message.message_id", "sequence_number": "number",
    "attempts": "CAST(NULL AS bigint)", "since": "received_at",
}  # fmt: skip
_HEAD = (
    "SELECT coalesce((SELECT since FROM journal_row WHERE seq = ? + 1), "
    "(SELECT head FROM counter WHERE journal = ?))"
)
_CHAINED_FROM = "SELECT seq FROM journal_row WHERE since IS NOT NULL ORDER BY seq LIMIT 1"
_STATE_TABLES = {"outgoing": (_OUTGOING, "position"), "incoming": (_INCOMING, "row")}


class SqlBook(ABC):
    """One node's store; see `Book`, whose docstrings hold here."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.unreadable: dict[int, str] = {}
        rows = self._run("SELECT name, journal_version FROM node")
        if not rows:
            raise self._no_store("its table `node` is empty")
        self.node = str(rows[0][0])
        check_version(rows[0][1])
        self._chained = "since" in self._columns("journal_row")
        missing = sorted(set(COLUMNS) - self._columns("journal"))
        if missing:
            raise JournalProblem(
                f"the journal of {self.path} lacks {', '.join(missing)}",
                remedy="read it with the version of Oncewire that wrote it",
            )

    @property
    def options(self) -> dict[str, str]:
        return {"path": self.path}

    def read_at(self, now: int) -> int:
        return now

    def bounds(self) -> tuple[int, int]:
        first = self._run("SELECT seq FROM journal ORDER BY seq LIMIT 1")
        last = self._run("SELECT seq FROM journal ORDER BY seq DESC LIMIT 1")
        return (first[0][0], last[0][0]) if first else (0, 0)

    def next_seq(self, start: int) -> int | None:
        rows = self._run("SELECT seq FROM journal WHERE seq > ? ORDER BY seq LIMIT 1", (start,))
        return rows[0][0] if rows else None

    def mark(self, seq: int) -> Mark | None:
        rows = self._run("SELECT seq, at, boot FROM journal WHERE seq = ?", (seq,))
        return Mark(*rows[0]) if rows else None

    def head(self, seq: int) -> str | None:
        found = self._run(_HEAD, (seq, seq))[0][0] if self._chained else None
        return None if found is None else "" if found == START else found.hex()

    def chained_from(self) -> int:
        rows = self._run(_CHAINED_FROM) if self._chained else ()
        return int(rows[0][0]) if rows else 0

    def splits(self, start: int, end: int, rows: int) -> list[tuple[int, int]]:
        return ranges_from(self.bounds()[0], start, end, rows)

    def count(self, start: int, end: int) -> int:
        statement = "SELECT count(*) FROM journal WHERE seq > ? AND seq <= ?"
        return int(self._run(statement, (start, end))[0][0])

    def batches(self, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        select = f"SELECT seq, {', '.join(columns)} FROM journal"  # noqa: S608
        yield from self._pages(select, "seq", start, end, only(JOURNAL, list(columns)))

    # --- the state tables ---

    def message_bounds(self, table: str) -> tuple[int, int]:
        """The first and last key of `outgoing` or `incoming`; (0, 0) when it is empty."""
        key = _STATE_TABLES[table][1]
        rows = self._run(f"SELECT min({key}), max({key}) FROM {table}")  # noqa: S608
        return (rows[0][0], rows[0][1]) if rows[0][0] is not None else (0, 0)

    def message_batches(
        self, table: str, start: int, end: int, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Rows of STORED_MESSAGES from one of the two state tables."""
        names, key = _STATE_TABLES[table]
        inner = ", ".join(
            f"{names.get(field.name, f'{table}.{field.name}')} AS {field.name}"
            for field in STORED_MESSAGES.fields
        )
        source = (
            f"(SELECT {table}.{key} AS page_key, {inner} FROM {table} "  # noqa: S608
            f"JOIN message ON message.id = {table}.message, node) AS stored"
        )
        select = f"SELECT page_key, {', '.join(columns)} FROM {source}"  # noqa: S608
        schema = only(STORED_MESSAGES, list(columns))
        yield from self._pages(select, "page_key", start, end, schema)

    # --- queries ---

    def _pages(
        self, select: str, key: str, start: int, end: int, schema: StructType
    ) -> Iterator[pa.RecordBatch]:
        """Page by page: the key comes first in each row and says where to go on."""
        statement = f"{select} WHERE {key} > ? AND {key} <= ? ORDER BY {key} LIMIT ?"
        columns = arrow(nullable(schema))
        while True:
            rows = self._run(statement, (start, end, BATCH_ROWS))
            self.unreadable |= {
                row[0]: name
                for row in rows
                for name, value in zip(columns.names, row[1:], strict=True)
                if isinstance(value, NotText)
            }
            if rows:
                yield batch_of(list(zip(*rows, strict=True))[1:], columns)
            if len(rows) < BATCH_ROWS:
                return
            start = rows[-1][0]

    @abstractmethod
    def _columns(self, table: str) -> set[str]:
        """The names of a table's columns."""

    @abstractmethod
    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Every row that a statement finds; `?` stands for a value."""

    @abstractmethod
    def _no_store(self, why: str) -> JournalProblem:
        """The refusal of a database that is no store."""


class SqliteBook(SqlBook):
    """A store in a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))

    def _columns(self, table: str) -> set[str]:
        return {str(row[1]) for row in self._run(f"PRAGMA table_info({table})")}

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        uri = f"file:{quote(self.path)}?mode=ro"
        try:
            with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)) as connection:
                connection.text_factory = _text
                return connection.execute(statement, values).fetchall()
        except sqlite3.OperationalError as error:
            if "no such" in str(error):
                raise self._no_store(str(error)) from None
            raise StoreGone(
                f"{self.path} cannot be read: {error}",
                remedy="see that the file is readable and its folder too (SQLite needs its log)",
            ) from None
        except sqlite3.DatabaseError as error:
            raise JournalProblem(
                f"{self.path} is damaged: {error}", remedy="restore it from a backup"
            ) from None

    def _no_store(self, why: str) -> JournalProblem:
        return JournalProblem(
            f"{self.path} is a SQLite file, but no store of Oncewire: {why}",
            remedy="give the path of a handler's store",
        )


class PostgresBook(SqlBook):
    """A store on PostgreSQL; `path` is where it is, without the secrets of its address."""

    def __init__(self, url: str) -> None:
        from oncewire.store.postgresql.connection import place

        self.url = url
        super().__init__(place(url))

    @property
    def options(self) -> dict[str, str]:
        return {"url": self.url}

    def _columns(self, table: str) -> set[str]:
        statement = (
            "SELECT column_name FROM information_schema.columns "
            "WHERE table_schema = current_schema() AND table_name = ?"
        )
        return {str(row[0]) for row in self._run(statement, (table,))}

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        from psycopg.errors import UndefinedColumn, UndefinedTable

        from oncewire.store.postgresql.connection import opened
        from oncewire.store.postgresql.session import native

        try:
            with opened(self.url) as connection:
                return connection.execute(native(statement).encode(), values).fetchall()
        except StoreGone as error:
            if isinstance(error.__cause__, UndefinedTable | UndefinedColumn):
                raise self._no_store(str(error.__cause__).partition("\n")[0]) from None
            raise

    def _no_store(self, why: str) -> JournalProblem:
        return JournalProblem(
            f"{self.path} holds no store of Oncewire: {why}",
            remedy="give the address of a handler's store, with its schema",
        )


class NotText(str):
    """A text that is not UTF-8, with its odd bytes written out."""

    __slots__ = ()


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return NotText(value.decode(errors="backslashreplace"))


# A journal as a folder of Parquet files: what a cluster reads, and what a lake keeps.
#
# Beside the files stands `_node.json`, which says whose journal it is and of which version. Files
# appear whole (renamed into place) and are never changed, so their footers tell which rows they
# hold without reading them.


@dataclass(frozen=True, slots=True)
class _Piece:
    """One row group of one file, and the range of `seq` it holds."""

    file: str
    group: int
    rows: int
    first: int
    last: int


class ExportBook:
    """One node's journal in Parquet; see `Book`, whose docstrings hold here."""

    def __init__(
        self,
        path: str,
        node: str,
        folders: Sequence[Path],
        read_at: int | None = None,
        heads: Mapping[int, str] | None = None,
    ) -> None:
        self.path, self.node = path, node
        self.unreadable: dict[int, str] = {}
        self._read_at = read_at
        self._heads = dict(heads or {})
        self._folders = list(folders)
        # Names that begin with a dot or an underscore are work in progress, as Spark reads them.
        self._pieces = sorted(
            (
                piece
                for folder in self._folders
                for file in sorted(folder.rglob("*.parquet"))
                if not any(part[0] in "._" for part in file.relative_to(folder).parts)
                for piece in _pieces(file)
            ),
            key=lambda piece: (piece.first, piece.last, piece.file, piece.group),
        )

    @classmethod
    def of_folder(cls, folder: Path) -> ExportBook:
        """The export in a folder; its `_node.json` is asked first."""
        file = folder / NODE_FILE
        try:
            said = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise JournalProblem(
                f"{file} cannot be read: {error}", remedy="export the journal again"
            ) from None
        if not isinstance(said, dict) or not isinstance(said.get("node"), str):
            raise JournalProblem(
                f"{file} does not say whose journal it is",
                remedy='write {"node": ..., "journal_version": ...} there',
            )
        check_version(said.get("journal_version"))
        return cls(str(folder), str(said.get("node")), [folder])

    @property
    def options(self) -> dict[str, str]:
        return {"path": self.path}

    def read_at(self, now: int) -> int:
        return now if self._read_at is None else self._read_at

    def bounds(self) -> tuple[int, int]:
        if not self._pieces:
            return 0, 0
        return self._pieces[0].first, max(piece.last for piece in self._pieces)

    def next_seq(self, start: int) -> int | None:
        for piece in self._overlapping(start, self.bounds()[1]):
            if piece.first > start:
                return piece.first
            found = self._column(piece, "seq", start, piece.last)
            if found:
                return int(min(found))
        return None

    def mark(self, seq: int) -> Mark | None:
        for batch in self.batches(seq - 1, seq, ["seq", "at", "boot"]):
            for row in batch.to_pylist():
                return Mark(row["seq"], row["at"], row["boot"])
        return None

    def head(self, seq: int) -> str | None:
        return self._heads.get(seq)

    def chained_from(self) -> int:
        return min(self._heads, default=-1) + 1

    def splits(self, start: int, end: int, rows: int) -> list[tuple[int, int]]:
        """Cut where row groups end, so that no group is read by two tasks."""
        found: list[tuple[int, int]] = []
        begun, held = start, 0
        for piece in self._overlapping(start, end):
            last = min(piece.last, end)
            held += piece.rows
            if held >= rows and last > begun:
                found.append((begun, last))
                begun, held = last, 0
        if begun < end:
            found.append((begun, end))
        return found

    def count(self, start: int, end: int) -> int:
        whole = 0
        for piece in self._overlapping(start, end):
            if start < piece.first and piece.last <= end:
                whole += piece.rows
            else:
                whole += len(self._column(piece, "seq", start, end))
        return whole

    def batches(self, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc

        condition = (pc.field("seq") > start) & (pc.field("seq") <= end)
        groups: dict[str, list[int]] = {}
        for piece in self._overlapping(start, end):
            groups.setdefault(piece.file, []).append(piece.group)
        for file, some in groups.items():
            yield from self._read(file, some, columns, condition)

    def _read(
        self, file: str, groups: list[int], columns: Sequence[str], condition: pc.Expression
    ) -> Iterator[pa.RecordBatch]:
        """Some row groups of a file, which is opened once for all of them."""
        import pyarrow.dataset as ds

        schema = arrow(nullable(only(JOURNAL, list(columns))))
        fragment = next(iter(ds.dataset(file, format="parquet").get_fragments()))
        table = fragment.subset(row_group_ids=groups).to_table(
            columns=list(schema.names), filter=condition
        )
        mended = self._mended(table.cast(schema))
        yield from mended.to_batches(max_chunksize=BATCH_ROWS)

    def _mended(self, table: pa.Table) -> pa.Table:
        """The table with every text as UTF-8; a text that was not is noted."""
        import pyarrow as pa

        try:
            table.validate(full=True)
            return table
        except pa.ArrowInvalid:
            pass
        for number, field in enumerate(table.schema):
            if not pa.types.is_string(field.type):
                continue
            values = [
                None if value is None else _text(value)
                for value in table[field.name].cast(pa.binary()).to_pylist()
            ]
            if "seq" in table.schema.names:
                positions = zip(table["seq"].to_pylist(), values, strict=True)
                odd = {seq: field.name for seq, value in positions if isinstance(value, NotText)}
                self.unreadable |= odd
            table = table.set_column(number, field, pa.array(values, field.type))
        return table

    def _overlapping(self, start: int, end: int) -> list[_Piece]:
        return [piece for piece in self._pieces if piece.last > start and piece.first <= end]

    def _column(self, piece: _Piece, name: str, start: int, end: int) -> list[Any]:
        import pyarrow.compute as pc

        condition = (pc.field("seq") > start) & (pc.field("seq") <= end)
        return [
            value
            for batch in self._read(piece.file, [piece.group], [name], condition)
            for value in batch.column(0).to_pylist()
        ]


def lake_books(lake: Path) -> Iterator[ExportBook]:
    """One book for each node of a published lake, of published directories only."""
    from oncewire.pipeline.lake.lake import Lake

    version = Lake(lake).current()
    for node in sorted({entry.key for entry in version.journal}):
        folders = [lake / entry.path for entry in version.journal if entry.key == node]
        # Another lake's reader read it then; to read the lake is not to read the journal.
        state = version.nodes[node]
        yield ExportBook(str(lake), node, folders, state.read_at, _heads(version, node))


def _heads(version: Version, node: str) -> dict[int, str]:
    """The heads that a node kept itself, from where it began to."""
    state, heads = version.nodes[node], dict[int, str]()
    if not state.chain:
        return heads
    entries = [entry for entry in version.journal if entry.key == node]
    for entry in sorted(entries, key=lambda entry: entry.first):
        if not entry.since:
            heads.clear()
        heads[entry.first - 1] = entry.since
    return {**heads, state.seq: state.chain}


def _pieces(file: Path) -> Iterator[_Piece]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(file)
    except (OSError, pa.ArrowInvalid) as error:
        raise JournalProblem(
            f"{file} cannot be read: {error}",
            remedy="a file must be renamed into place when it is whole; export it again",
        ) from None
    schema = metadata.schema.to_arrow_schema()
    _check_columns(file, schema)
    position = schema.get_field_index("seq")
    for group in range(metadata.num_row_groups):
        found = metadata.row_group(group)
        statistics = found.column(position).statistics
        if found.num_rows == 0:
            continue
        if statistics is None or not statistics.has_min_max:
            raise JournalProblem(
                f"{file} has no statistics of seq",
                remedy="write Parquet with statistics, as every common writer does",
            )
        if statistics.null_count:
            raise JournalProblem(
                f"{file} has {statistics.null_count} rows without seq",
                remedy="export the journal again; a row without its position cannot be placed",
            )
        yield _Piece(str(file), group, found.num_rows, statistics.min, statistics.max)


def _check_columns(file: Path, schema: pa.Schema) -> None:
    import pyarrow as pa

    present = dict(zip(schema.names, schema.types, strict=True))
    missing = [column.name for column in SCHEMA if column.name not in present]
    if missing:
        raise JournalProblem(
            f"{file} lacks the journal's {', '.join(missing)}",
            remedy="export the journal again, with all its columns",
        )
    for column in SCHEMA:
        found = present[column.name]
        fits = pa.types.is_int64(found) if column.type is int else _is_text(found)
        if not fits and not pa.types.is_null(found):
            raise JournalProblem(
                f"column {column.name} of {file} is {found}, not {column.type.__name__}",
                remedy="export the journal again; instants are integer microseconds",
            )


def _is_text(found: pa.DataType) -> bool:
    import pyarrow as pa

    value = found.value_type if pa.types.is_dictionary(found) else found
    return bool(pa.types.is_string(value) or pa.types.is_large_string(value))
