"""The writing connection to SQLite, as a backend uses it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncewire.errors import StoreFull, StoreGone
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
from oncewire.store.sqlite.connection import damaged_page, failure

if TYPE_CHECKING:
    import apsw

DIALECT = Dialect(*["IN (SELECT value FROM json_each(?))"] * 2)

_AT_ONCE = (64, 16, 4, 1)


@cache
def _insert(table: str, columns: tuple[str, ...], key: tuple[str, ...], size: int) -> str:
    """The statement that inserts that many rows."""
    marks = f"({', '.join('?' * len(columns))})"
    names, rows = ", ".join(columns), ", ".join([marks] * size)
    return f"INSERT INTO {table} ({names}) VALUES {rows}{on_conflict(columns, key)}"  # noqa: S608


@cache
def _update(table: str, key: str, columns: tuple[str, ...]) -> str:
    """The statement that saves these columns; there are few different ones."""
    settings = ", ".join(f"{name} = ?" for name in columns)
    return f"UPDATE {table} SET {settings} WHERE {key} = ?"  # noqa: S608


class SqliteSession:
    """See `sql.session.Session`, whose docstrings hold here.

    Once SQLite has failed, nothing since the last commit can be relied on.
    """

    dialect = DIALECT

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        import apsw

        self._error, self._corrupt = apsw.Error, apsw.CorruptError
        faults = (apsw.ConstraintError, apsw.SQLError, OverflowError, UnicodeError, TypeError)
        self._refused = faults
        self._connection, self._path = connection, path
        self.cursor = connection.cursor()
        self.failure: StoreFull | StoreGone | None = None
        # How many were run since it was opened; one for many rows is one.
        self.count = 0
        # What SQLite counted when the transaction began, and the steps in it.
        self._unchanged = self._before_steps = 0
        # Pages of the log, as of the last commit.
        self.pages = 0
        connection.set_wal_hook(self._count_pages)
        self._version = self._data_version()

    def _count_pages(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self.pages = pages
        return 0

    # --- statements ---

    def run(self, statement: str, values: Values = ()) -> list[Values]:
        self.count += 1
        try:
            return self.cursor.execute(statement, values).fetchall()
        except Exception as error:
            raise self._trouble(statement, error) from error

    def change(self, statement: str, values: Values = ()) -> int:
        self.run(statement, values)
        return self._connection.changes()

    def write(self, writes: Sequence[Write]) -> None:
        self._begin()
        for write in writes:
            if write.rows:
                self.count += 1
                try:
                    if isinstance(write, Insert):
                        self._insert(write)
                    elif isinstance(write, Update):
                        statement = _update(write.table, write.key, write.columns)
                        self.cursor.executemany(statement, write.rows)
                    else:
                        self.cursor.executemany(write.statement, write.rows)
                except Exception as error:
                    raise self._trouble("", error) from error

    def _insert(self, write: Insert) -> None:
        """Insert many rows with one statement, which costs less than one statement each."""
        rows = write.rows
        done, left = 0, len(rows)
        for size in _AT_ONCE:
            while left >= size:
                some = rows[done : done + size]
                statement = _insert(write.table, write.columns, write.key, size)
                self.cursor.execute(statement, list(chain.from_iterable(some)))
                done, left = done + size, left - size

    def _trouble(self, statement: str, error: Exception) -> Exception:
        if isinstance(error, self._refused):
            return cannot_be_kept(error)
        if isinstance(error, self._corrupt) and statement.startswith(("SELECT", "WITH")):
            # The transaction stands: only this question has no answer.
            return damaged_page(error, self._path)
        if isinstance(error, self._error):
            self.failure = failure(error, self._path)
            return self.failure
        return error

    def columns(self, table: str) -> Columns:
        found = self.run(f"PRAGMA table_info({table})")
        return {name: (kind, bool(needed)) for _, name, kind, needed, *_ in found}

    # --- transactions ---

    def begin_turn(self) -> None:
        """Nothing: one process owns the file."""

    def let_go(self) -> None:
        """Nothing: one process owns the file."""

    def _data_version(self) -> Any:
        return self.run("PRAGMA data_version")[0][0]

    def changed_elsewhere(self) -> bool:
        before, self._version = self._version, self._data_version()
        return bool(before != self._version)

    def _begin(self) -> None:
        """Begin a transaction, if none is open."""
        if not self._connection.in_transaction:
            self.run("BEGIN IMMEDIATE")
            self._unchanged = self._connection.total_changes()

    def applied(self) -> bool:
        connection = self._connection
        return connection.in_transaction and connection.total_changes() != self._unchanged

    def begin_steps(self) -> None:
        self._begin()
        self.run("SAVEPOINT steps")
        self._before_steps = self._connection.total_changes()

    def keep_steps(self) -> None:
        self.run("RELEASE steps")
        self._end_if_unchanged()

    def undo_steps(self) -> None:
        self.run("ROLLBACK TO steps")
        self.run("RELEASE steps")
        # SQLite counts what was undone too.
        self._unchanged += self._connection.total_changes() - self._before_steps
        self._end_if_unchanged()

    def _end_if_unchanged(self) -> None:
        if not self.applied():
            self.run("ROLLBACK")

    def commit(self) -> None:
        if self._connection.in_transaction:
            self.run("COMMIT")

    def abandon(self) -> None:
        """End the transaction after a failure, if SQLite has not done so itself."""
        with suppress(StoreFull, StoreGone):
            if self._connection.in_transaction:
                self.run("ROLLBACK")
