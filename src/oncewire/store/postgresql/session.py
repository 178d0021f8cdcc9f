"""Turns on PostgreSQL, as a backend takes them.

The row of the counters is the turn: whoever has locked it writes, and whoever else wants to, in
this process or in another, waits until that turn is committed or over. So what a turn has read
stays true until its commit, numbers and the rows of the journal are committed in their order, and
no two turns can block each other by rows. `fence` counts the commits: where it is what it was
after our last one, what we hold in memory is still true, and nothing is read again.

A turn makes two round trips: one locks the row, the other carries every statement and the commit.
A process that stands still in its turn loses it (`HELD_SECONDS`), and its commit fails.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from oncewire.errors import StoreCorrupt, StoreFull, StoreGone
from oncewire.store.postgresql.connection import failure, place
from oncewire.store.sql.session import (
    Columns,
    Dialect,
    Insert,
    Update,
    Values,
    Write,
    cannot_be_kept,
    on_conflict,
)

if TYPE_CHECKING:
    import psycopg

    from oncewire.store.postgresql.fellows import PostgresFellows

DIALECT = Dialect(
    "= ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(?::json)))",
    "= ANY (ARRAY(SELECT value FROM json_array_elements_text(?::json)))",
)
_KINDS = {"bigint": "INTEGER", "text": "TEXT", "bytea": "BLOB"}
_COLUMNS = (
    "SELECT relname::text, attname::text, format_type(atttypid, NULL), attnotnull "
    "FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "
    "WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' "
    "AND attnum > 0 AND NOT attisdropped"
)
# Three statements of one round trip. The last one sees what was committed while the one before it
# waited.
_TURN = (
    "BEGIN; SELECT fence FROM counter FOR UPDATE; "
    "SELECT fence, pg_current_xact_id()::text, EXISTS (SELECT 1 FROM handler WHERE name = '{}') "
    "FROM counter"
)
_FENCE = "SELECT fence FROM counter"
_MARK = re.compile(r"\?(\d*)")


@cache
def native(statement: str) -> str:
    """The statement with the server's own marks for its values."""
    count = 0

    def mark(found: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return f"${found[1] or count}"

    return _MARK.sub(mark, statement)


class PostgresSession:
    """See `sql.session.Session`, whose docstrings hold here."""

    dialect = DIALECT

    def __init__(
        self,
        connection: psycopg.Connection[Values],
        url: str,
        fellows: PostgresFellows | None = None,
    ) -> None:
        import psycopg

        self._error = psycopg.Error
        server = (psycopg.IntegrityError, psycopg.DataError, psycopg.ProgrammingError)
        self._refused = (*server, OverflowError, UnicodeError, TypeError)
        self._connection, self._url, self._fellows = connection, url, fellows
        if fellows is not None:
            # What was committed while there was no connection is unknown.
            fellows.forget()
        # What is asked has a cursor of its own: in a pipeline, one would give its first answer.
        self._cursor, self._writer = connection.cursor(binary=True), connection.cursor()
        self._in_turn = False
        self._lost = psycopg.errors.InFailedSqlTransaction
        self.failure: StoreFull | StoreGone | None = None
        # Round trips since it was opened.
        self.count = 0
        # What is to be written, and was not sent yet.
        self._queue: list[tuple[str, Sequence[Any]]] = []
        # How many writes the turn has made, and had made when its steps began.
        self._changes = self._before_steps = 0
        # The commits so far, as this session knows them and as the database had them last.
        self.fence = self.found = self._commits()
        # The transaction of the turn, by which it can be told later whether it was committed.
        self.transaction = ""
        self._tables: dict[str, dict[str, tuple[str, bool]]] = {}
        for table, name, kind, needed in self.run(_COLUMNS):
            self._tables.setdefault(table, {})[name] = (_KINDS[kind], bool(needed))

    # --- statements ---

    def run(self, statement: str, values: Values = ()) -> list[Values]:
        self._send(native(statement), values)
        return self._cursor.fetchall() if self._cursor.description else []

    def change(self, statement: str, values: Values = ()) -> int:
        self._send(native(statement), values)
        changed = max(0, self._cursor.rowcount)
        self._changes += bool(changed)
        return changed

    def write(self, writes: Sequence[Write]) -> None:
        for write in writes:
            if write.rows:
                self._changes += 1
                self._queue += self._statements(write)

    def _statements(self, write: Write) -> list[tuple[str, Sequence[Any]]]:
        if isinstance(write, Insert):
            columns = self._arrays(write.table, write.columns, write.rows)
            return [(_insert(write.table, write.columns, write.key, columns[0]), columns[1])]
        if isinstance(write, Update):
            names = (*write.columns, write.key)
            columns = self._arrays(write.table, names, write.rows)
            return [(_update(write.table, write.columns, write.key, columns[0]), columns[1])]
        statement = native(write.statement)
        return [(statement, row) for row in write.rows]

    def _arrays(
        self, table: str, names: tuple[str, ...], rows: Sequence[Values]
    ) -> tuple[tuple[str, ...], list[Any]]:
        """The types of some columns, and the values of each."""
        from oncewire.store.postgresql.values import KINDS

        columns = self.columns(table)
        kinds = [KINDS[columns[name][0]] for name in names]
        values = [
            kind(column) for (kind, _), column in zip(kinds, zip(*rows, strict=True), strict=True)
        ]
        return tuple([written for _, written in kinds]), values

    def _send(self, statement: str, values: Sequence[Any]) -> None:
        """Run what waits and then this statement; what ends a turn, in one round trip.

        Within a turn they are not sent together: of a client that stands still after a pipeline
        the server does not notice that it is idle.
        """
        self.count += 1
        queue, self._queue = self._queue, []
        try:
            if statement != "COMMIT":
                for queued, given in queue:
                    self._writer.execute(queued, given)
                self._cursor.execute(statement, values)
                return
            with self._connection.pipeline():
                for queued, given in queue:
                    self._writer.execute(queued, given)
                self._cursor.execute(statement, values)
        except Exception as error:
            raise self._trouble(error) from error

    def _trouble(self, error: Exception) -> Exception:
        refused = isinstance(error, self._refused)
        if refused and not isinstance(error, self._lost) and not self._connection.broken:
            return cannot_be_kept(error)
        if isinstance(error, self._error):
            self.failure = failure(error, self._url)
            return self.failure
        return error

    def columns(self, table: str) -> Columns:
        return self._tables[table]

    # --- turns ---

    def begin_turn(self) -> None:
        if not self._in_turn:
            self._in_turn = True
            fellows = self._fellows
            self.found, self.transaction, is_member = self._lock_turn(
                _TURN.format("" if fellows is None else fellows.name)
            )
            if fellows is not None:
                if self.found != self.fence:
                    fellows.forget()
                fellows.began(self.run, is_member=is_member)

    def _lock_turn(self, statement: str) -> Values:
        self.count += 1
        try:
            self._writer.execute(statement.encode())
            while self._writer.nextset():
                pass
            return self._only(self._writer.fetchall())
        except Exception as error:
            raise self._trouble(error) from error

    def _commits(self) -> int:
        return int(self._only(self.run(_FENCE))[0])

    def _only(self, rows: list[Values]) -> Values:
        """The row of the counters."""
        if not rows:
            self.failure = StoreCorrupt(
                f"the database {place(self._url)} is damaged: its row of counters is gone",
                remedy="stop the handlers, and restore the database from a backup",
            )
            raise self.failure
        return rows[0]

    def let_go(self) -> None:
        if self._in_turn:
            self._in_turn = False
            if self._fellows is not None:
                self._fellows.undone(failed=False)
            self._queue.clear()
            self._send("ROLLBACK", ())

    def changed_elsewhere(self) -> bool:
        if not self._in_turn:
            self.found = self._commits()
        before, self.fence = self.fence, self.found
        return before != self.found

    def applied(self) -> bool:
        return self._changes > 0

    def begin_steps(self) -> None:
        self._send("SAVEPOINT steps", ())
        self._before_steps = self._changes

    def keep_steps(self) -> None:
        self._send("RELEASE steps", ())

    def undo_steps(self) -> None:
        self._queue = [("ROLLBACK TO steps", ())]
        self._send("RELEASE steps", ())
        self._changes = self._before_steps

    def commit(self) -> None:
        if not self._in_turn:
            return
        if self._fellows is not None:
            self._queue += self._fellows.statements()
        self._queue.append(("UPDATE counter SET fence = fence + 1", ()))
        self._send("COMMIT", ())
        if self._cursor.statusmessage != "COMMIT":
            self.failure = StoreGone("the turn was undone by the server")
            raise self.failure
        self._in_turn, self._changes = False, 0
        self.fence += 1
        if self._fellows is not None:
            self._fellows.committed()

    def abandon(self) -> None:
        """End the turn after a failure; the connection is not used any more."""
        self._in_turn, self._changes = False, 0
        self._queue.clear()
        if self._fellows is not None:
            self._fellows.undone(failed=True)
        with suppress(self._error):
            self._connection.close()


@cache
def _insert(
    table: str, columns: tuple[str, ...], key: tuple[str, ...], types: tuple[str, ...]
) -> str:
    arrays = ", ".join(f"${place}::{kind}" for place, kind in enumerate(types, 1))
    names, conflict = ", ".join(columns), on_conflict(columns, key)
    return f"INSERT INTO {table} ({names}) SELECT * FROM unnest({arrays}){conflict}"  # noqa: S608


@cache
def _update(table: str, columns: tuple[str, ...], key: str, types: tuple[str, ...]) -> str:
    arrays = ", ".join(f"${place}::{kind}" for place, kind in enumerate(types, 1))
    names = ", ".join((*columns, key))
    settings = ", ".join(f"{name} = new.{name}" for name in columns)
    return (
        f"UPDATE {table} SET {settings} FROM unnest({arrays}) AS new ({names}) "  # noqa: S608
        f"WHERE {table}.{key} = new.{key}"
    )
