"""Counting: what a process asks of SQLite and of the disk, whatever the store is made of.

It costs time, so what is counted is never what is timed.
"""

from __future__ import annotations

from typing import Any

import apsw

_TROUBLES = (
    "SELECT ifnull(sum(kind = 'sent' AND attempt > 1), 0), "
    "ifnull(sum(kind IN ('send_failed', 'transient')), 0) FROM journal_row"
)


def _troubles(connection: apsw.Connection) -> tuple[int, int]:
    """Attempts that were not the first, and those that came to nothing, by the journal."""
    try:
        retries, failed = next(iter(connection.execute(_TROUBLES)))
    except apsw.SQLError:
        # It is no store's.
        return 0, 0
    return int(retries), int(failed)


class Counting:
    """Statements, rows written and commits of every connection that is opened from now on.

    A commit is an fsync: the log is written through at each of them (`synchronous=FULL`).
    """

    def __init__(self) -> None:
        self._statements = self._commits = 0
        self._connections: list[apsw.Connection] = []
        apsw.connection_hooks.append(self._connections.append)

    def begin(self) -> None:
        """Count statements and commits from now on."""
        for connection in self._open():
            connection.trace_v2(apsw.SQLITE_TRACE_STMT, self._statement)
            connection.set_commit_hook(self._commit)

    def totals(self) -> dict[str, int]:
        """Everything so far."""
        rows = sum(connection.total_changes() for connection in self._open())
        troubles = [_troubles(connection) for connection in self._open()]
        return {
            "statements": self._statements,
            "rows": rows,
            "fsyncs": self._commits,
            "retries": sum(found[0] for found in troubles),
            "failed_attempts": sum(found[1] for found in troubles),
        }

    def _open(self) -> list[apsw.Connection]:
        found = []
        for connection in self._connections:
            try:
                connection.total_changes()
            except apsw.ConnectionClosedError:
                continue
            found.append(connection)
        return found

    def _statement(self, _: dict[str, Any]) -> None:
        self._statements += 1

    def _commit(self) -> bool:
        self._commits += 1
        return False
