"""Views of a store on PostgreSQL: short-lived, each a snapshot on its own connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncewire.errors import StoreProblem
from oncewire.store.postgresql.connection import (
    connect,
    disconnect,
    failure,
    known_migrations,
    place,
    told_as,
    version_of,
)
from oncewire.store.postgresql.session import DIALECT, native
from oncewire.store.sql.reader import Readers, SqlReader
from oncewire.store.sql.session import Values

if TYPE_CHECKING:
    import psycopg

WAIT_SECONDS = 5
VIEW_SECONDS = 60
"""How long a view may stand between two questions."""

_VIEW = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT id FROM counter"


class PostgresReaders(Readers["psycopg.Connection[Values]"]):
    """Views of one store, also for processes that do not write it."""

    def __init__(self, url: str) -> None:
        super().__init__(place(url), WAIT_SECONDS)
        self._url = url

    def _view(self, connection: psycopg.Connection[Values]) -> SqlReader:
        return SqlReader(_View(connection, self._url).run, DIALECT)

    def _begin(self) -> psycopg.Connection[Values]:
        import psycopg

        while True:
            idle = bool(self._idle)
            connection = self._idle.pop() if idle else self._connect()
            try:
                # The view is fixed by the first read, not by BEGIN.
                connection.execute(_VIEW)
            except psycopg.Error as error:
                disconnect(connection)
                if not idle:
                    raise failure(error, self._url) from error
                # The server may have been started again since it was used last.
                continue
            return connection

    def _connect(self) -> psycopg.Connection[Values]:
        connection = connect(self._url)
        try:
            with told_as(self._url):
                if version_of(connection, self._url) < known_migrations()[-1].version:
                    raise StoreProblem(
                        f"{place(self._url)} was written by an older version",
                        remedy="start its handler once: it brings the store up to date",
                    )
                connection.execute(
                    f"SET idle_in_transaction_session_timeout = '{VIEW_SECONDS}s'".encode()
                )
        except BaseException:
            disconnect(connection)
            raise
        return connection

    def _end(self, connection: psycopg.Connection[Values]) -> bool:
        import psycopg

        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:
            return False
        return True

    def _disconnect(self, connection: psycopg.Connection[Values]) -> None:
        disconnect(connection)


class _View:
    """Statements on a snapshot."""

    def __init__(self, connection: psycopg.Connection[Values], url: str) -> None:
        self._cursor, self._url = connection.cursor(binary=True), url

    def run(self, statement: str, values: Values = ()) -> list[Values]:
        with told_as(self._url):
            return self._cursor.execute(native(statement), values).fetchall()
