"""Views of a store on SQLite: short-lived, each on its own connection."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from oncewire.errors import StoreGone, StoreProblem
from oncewire.store.contract import Reader
from oncewire.store.sql.reader import SqlReader
from oncewire.store.sql.session import Values
from oncewire.store.sqlite.connection import (
    BUSY_TIMEOUT,
    check_origin,
    connect_reader,
    damaged_page,
    disconnect,
    failure,
    known_migrations,
)
from oncewire.store.sqlite.session import DIALECT

if TYPE_CHECKING:
    import apsw

READERS = 8
"""How many views may be open at once; more wait for their turn."""


def view(connection: apsw.Connection, path: Path) -> SqlReader:
    """What the connection sees of the store at that path."""
    return SqlReader(partial(_run, connection, path), DIALECT)


def _run(connection: apsw.Connection, path: Path, statement: str, values: Values) -> list[Values]:
    import apsw

    try:
        return connection.execute(statement, values).fetchall()
    except apsw.CorruptError as error:
        raise damaged_page(error, path) from error
    except apsw.Error as error:
        raise failure(error, path) from error


class SqliteReaders:
    """Views of one store, also for processes that do not own it.

    A view ends with its `with`: while it is open the write-ahead log cannot be recycled.
    """

    def __init__(self, path: Path, vfs: str | None = None) -> None:
        self._path, self._vfs = path, vfs
        self._idle: list[apsw.Connection] = []
        self._turns = threading.BoundedSemaphore(READERS)
        self._closed = False

    @contextmanager
    def reader(self) -> Iterator[Reader]:
        """A consistent view of committed state."""
        if not self._turns.acquire(timeout=BUSY_TIMEOUT / 1000):
            raise StoreGone(
                f"{READERS} views of {self._path} are open",
                remedy="close one of them; a view is for one short question",
            )
        try:
            connection = self._begin()
            try:
                yield view(connection, self._path)
            finally:
                self._end(connection)
        finally:
            self._turns.release()

    def _begin(self) -> apsw.Connection:
        import apsw

        connection: apsw.Connection | None = None
        try:
            connection = self._idle.pop() if self._idle else self._connect()
            connection.execute("BEGIN")
            # The view is fixed by the first read, not by BEGIN.
            connection.execute("SELECT id FROM counter").fetchall()
        except apsw.Error as error:
            disconnect(connection)
            raise failure(error, self._path) from error
        return connection

    def _connect(self) -> apsw.Connection:
        connection = connect_reader(self._path, self._vfs)
        migrations = known_migrations()
        try:
            _, version = check_origin(connection, migrations)
            if version < migrations[-1].version:
                raise StoreProblem(
                    f"{self._path} was written by an older version",
                    remedy="start its handler once: it brings the store up to date",
                )
        except BaseException:
            disconnect(connection)
            raise
        return connection

    def _end(self, connection: apsw.Connection) -> None:
        import apsw

        try:
            connection.execute("ROLLBACK")
            usable = not self._closed
        except apsw.Error:
            usable = False
        if usable:
            self._idle.append(connection)
        else:
            disconnect(connection)

    def close(self) -> None:
        """Close every connection, those in use as soon as their view ends."""
        self._closed = True
        while self._idle:
            disconnect(self._idle.pop())
