"""Views of a store on SQLite: short-lived, each on its own connection."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from oncewire.errors import StoreProblem
from oncewire.store.sql.reader import Readers, SqlReader
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


class SqliteReaders(Readers["apsw.Connection"]):
    """Views of one store, also for processes that do not own it.

    A view ends with its `with`: while it is open the write-ahead log cannot be recycled.
    """

    def __init__(self, path: Path, vfs: str | None = None) -> None:
        super().__init__(str(path), BUSY_TIMEOUT / 1000)
        self._path, self._vfs = path, vfs

    def _view(self, connection: apsw.Connection) -> SqlReader:
        return view(connection, self._path)

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

    def _end(self, connection: apsw.Connection) -> bool:
        import apsw

        try:
            connection.execute("ROLLBACK")
        except apsw.Error:
            return False
        return True

    def _disconnect(self, connection: apsw.Connection) -> None:
        disconnect(connection)
