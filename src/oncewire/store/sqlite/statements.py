"""Statements on one SQLite connection, and what their failures mean."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncewire.errors import StoreFull, StoreGone, StoreProblem
from oncewire.store.sqlite.connection import damaged_page, failure
from oncewire.store.sqlite.rows import Values

if TYPE_CHECKING:
    import apsw


_ONE_ROW = "?)"
"""How a statement ends that inserts its values as a row."""
_AT_ONCE = (64, 16, 4, 1)


@cache
def _many(statement: str, size: int) -> str:
    """The statement that inserts so many rows."""
    start = statement.rindex("(")
    return statement[:start] + ", ".join([statement[start:]] * size)


class Statements:
    """Runs statements. Once SQLite has failed, nothing since the last commit can be relied on."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        import apsw

        self._error, self._corrupt = apsw.Error, apsw.CorruptError
        faults = (apsw.ConstraintError, apsw.SQLError, OverflowError, UnicodeError, TypeError)
        self._refused = faults
        self._connection, self._path = connection, path
        self._cursor = connection.cursor()
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
        """Run one statement to its end. SQLite's trouble becomes StoreFull or StoreGone."""
        self.count += 1
        try:
            return self._cursor.execute(statement, values).fetchall()
        except Exception as error:
            raise self._trouble(statement, error) from error

    def run_batches(self, batches: Sequence[tuple[str, Sequence[Values]]]) -> None:
        """Run each statement for every row of its values; not at all where there are none."""
        for statement, rows in batches:
            if rows:
                self.count += 1
                try:
                    if statement.endswith(_ONE_ROW):
                        self._insert(statement, rows)
                    else:
                        self._cursor.executemany(statement, rows)
                except Exception as error:
                    raise self._trouble(statement, error) from error

    def _insert(self, statement: str, rows: Sequence[Values]) -> None:
        """Insert many rows at a time: what a statement costs is paid once for all of them."""
        done, left = 0, len(rows)
        for size in _AT_ONCE:
            while left >= size:
                some = rows[done : done + size]
                self._cursor.execute(_many(statement, size), list(chain.from_iterable(some)))
                done, left = done + size, left - size

    def _trouble(self, statement: str, error: Exception) -> Exception:
        if isinstance(error, self._refused):
            return StoreProblem(
                f"a value cannot be kept: {error}", remedy="this is a fault of Oncewire: report it"
            )
        if isinstance(error, self._corrupt) and statement.startswith(("SELECT", "WITH")):
            # The transaction stands: only this question has no answer.
            return damaged_page(error, self._path)
        if isinstance(error, self._error):
            self.failure = failure(error, self._path)
            return self.failure
        return error

    def changed_rows(self) -> int:
        """How many rows the last statement changed."""
        return self._connection.changes()

    def columns(self, table: str) -> dict[str, tuple[str, bool]]:
        """The kind of each column, and whether it needs a value."""
        found = self.run(f"PRAGMA table_info({table})")
        return {name: (kind, bool(needed)) for _, name, kind, needed, *_ in found}

    # --- transactions ---

    def begin(self) -> None:
        """Begin a transaction, if none is open."""
        if not self._connection.in_transaction:
            self.run("BEGIN IMMEDIATE")
            self._unchanged = self._connection.total_changes()

    def commit(self) -> None:
        """Commit what is open."""
        if self._connection.in_transaction:
            self.run("COMMIT")

    def applied(self) -> bool:
        """Whether a transaction is open that changed anything."""
        connection = self._connection
        return connection.in_transaction and connection.total_changes() != self._unchanged

    def begin_steps(self) -> None:
        """What follows can be undone."""
        self.begin()
        self.run("SAVEPOINT steps")
        self._before_steps = self._connection.total_changes()

    def keep_steps(self) -> None:
        """It is kept."""
        self.run("RELEASE steps")
        self._end_if_unchanged()

    def undo_steps(self) -> None:
        """It is undone."""
        self.run("ROLLBACK TO steps")
        self.run("RELEASE steps")
        # SQLite counts what was undone too.
        self._unchanged += self._connection.total_changes() - self._before_steps
        self._end_if_unchanged()

    def _end_if_unchanged(self) -> None:
        if not self.applied():
            self.run("ROLLBACK")

    def abandon(self) -> None:
        """End the transaction after a failure, if SQLite has not done so itself."""
        with suppress(StoreFull, StoreGone):
            if self._connection.in_transaction:
                self.run("ROLLBACK")

    # --- others ---

    def _data_version(self) -> Any:
        return self.run("PRAGMA data_version")[0][0]

    def changed_elsewhere(self) -> bool:
        """Whether another connection has written since this was asked last."""
        before, self._version = self._version, self._data_version()
        return bool(before != self._version)
