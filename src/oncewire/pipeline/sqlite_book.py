"""The journal and the messages of a SQLite store, read-only, with the standard library.

Each query is short and finished before its rows are handed on: a reader that stayed open would
keep the handler's write-ahead log from being recycled. Executors have no apsw, and none is
needed to read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from oncewire.errors import JournalProblem, StoreGone
from oncewire.journal.chain import START
from oncewire.journal.row import COLUMNS
from oncewire.journal.schema import check_version
from oncewire.pipeline.book import BATCH_ROWS, Mark
from oncewire.pipeline.filters import where
from oncewire.pipeline.rows import batch_of
from oncewire.pipeline.schemas import JOURNAL, STORED_MESSAGES, arrow, nullable, only

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

BUSY_SECONDS = 10.0

# Which column of the state tables each column of STORED_MESSAGES is, where the names differ.
_OUTGOING = {
    "direction": "'out'", "node": "node.name", "message_id": "message.message_id",
    "sequence_number": "number", "since": "submitted_at",
}  # fmt: skip
_INCOMING = {
    "position": "row", "direction": "'in'", "node": "node.name",
    "message_id": "message.message_id", "sequence_number": "number", "attempts": "NULL",
    "since": "received_at",
}  # fmt: skip
_HEAD = (
    "SELECT coalesce((SELECT since FROM journal_row WHERE seq = ?1 + 1), "
    "(SELECT head FROM counter WHERE journal = ?1))"
)
_CHAINED_FROM = "SELECT seq FROM journal_row WHERE since IS NOT NULL ORDER BY seq LIMIT 1"
_STATE_TABLES = {"outgoing": (_OUTGOING, "position"), "incoming": (_INCOMING, "row")}


class SqliteBook:
    """One node's store; see `Book`, whose docstrings hold here."""

    local_only = True

    def __init__(self, path: Path) -> None:
        self.path = str(path)
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
        found = self._run(_HEAD, (seq,))[0][0] if self._chained else None
        return None if found is None else "" if found == START else found.hex()

    def chained_from(self) -> int:
        rows = self._run(_CHAINED_FROM) if self._chained else ()
        return int(rows[0][0]) if rows else 0

    def splits(self, start: int, end: int, rows: int) -> list[tuple[int, int]]:
        # What was trimmed leaves a hole of any size, and no ranges are made of it.
        begin = max(start, self.bounds()[0] - 1)
        return [(first, min(first + rows, end)) for first in range(begin, end, rows)]

    def count(self, start: int, end: int) -> int:
        statement = "SELECT count(*) FROM journal WHERE seq > ? AND seq <= ?"
        return int(self._run(statement, (start, end))[0][0])

    def batches(
        self, start: int, end: int, columns: Sequence[str], filters: Sequence[Filter]
    ) -> Iterator[pa.RecordBatch]:
        select = f"SELECT seq, {', '.join(columns)} FROM journal"  # noqa: S608
        yield from self._pages(select, "seq", start, end, only(JOURNAL, list(columns)), filters)

    # --- the state tables ---

    def message_bounds(self, table: str) -> tuple[int, int]:
        """The first and last key of `outgoing` or `incoming`; (0, 0) when it is empty."""
        key = _STATE_TABLES[table][1]
        rows = self._run(f"SELECT min({key}), max({key}) FROM {table}")  # noqa: S608
        return (rows[0][0], rows[0][1]) if rows[0][0] is not None else (0, 0)

    def message_batches(
        self,
        table: str,
        start: int,
        end: int,
        columns: Sequence[str],
        filters: Sequence[Filter],
    ) -> Iterator[pa.RecordBatch]:
        """Rows of STORED_MESSAGES from one of the two state tables."""
        names, key = _STATE_TABLES[table]
        inner = ", ".join(
            f"{names.get(field.name, f'{table}.{field.name}')} AS {field.name}"
            for field in STORED_MESSAGES.fields
        )
        source = (
            f"(SELECT {table}.{key} AS page_key, {inner} FROM {table} "  # noqa: S608
            f"JOIN message ON message.id = {table}.message, node)"
        )
        select = f"SELECT page_key, {', '.join(columns)} FROM {source}"  # noqa: S608
        schema = only(STORED_MESSAGES, list(columns))
        yield from self._pages(select, "page_key", start, end, schema, filters)

    # --- queries ---

    def _pages(
        self,
        select: str,
        key: str,
        start: int,
        end: int,
        schema: StructType,
        filters: Sequence[Filter],
    ) -> Iterator[pa.RecordBatch]:
        """Page by page: the key comes first in each row and says where to go on."""
        condition, values = where(filters)
        statement = f"{select} WHERE {key} > ? AND {key} <= ?{condition} ORDER BY {key} LIMIT ?"
        columns = arrow(nullable(schema))
        while True:
            rows = self._run(statement, (start, end, *values, BATCH_ROWS))
            if rows:
                yield batch_of(list(zip(*rows, strict=True))[1:], columns)
            if len(rows) < BATCH_ROWS:
                return
            start = rows[-1][0]

    def _columns(self, table: str) -> set[str]:
        return {str(row[1]) for row in self._run(f"PRAGMA table_info({table})")}

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        uri = f"file:{quote(self.path)}?mode=ro"
        try:
            with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)) as connection:
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
