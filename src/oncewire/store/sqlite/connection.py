"""Connections to the SQLite file: how they are opened, who owns the writing one, and what
an error of SQLite means to a handler."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from oncewire.errors import StoreCorrupt, StoreDamaged, StoreFull, StoreGone, StoreProblem
from oncewire.store.records import StoreMark
from oncewire.store.spool import GOES_ON
from oncewire.store.sql.origin import Migration, check_known, compare, migrations_of, once, replaced

if TYPE_CHECKING:
    import apsw


BUSY_TIMEOUT = 5_000
"""Milliseconds to wait for another process's short lock, such as a checkpoint's."""

STATEMENTS = 512
"""How many statements stay prepared: all of ours, with room to spare."""

_KEEP_LOG = 64 * 1024 * 1024
_FIXED = ((3, 51, 3), (3, 52, 0), (3, 53, 0))


def connect(path: Path, vfs: str | None) -> apsw.Connection:
    """The writing connection: durable at every commit, and nothing written before it."""
    import apsw

    check_version(apsw.sqlite_lib_version())
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    connection = apsw.Connection(str(path), flags=flags, vfs=vfs, statementcachesize=STATEMENTS)
    try:
        _settle_plans(connection)
        connection.set_busy_timeout(BUSY_TIMEOUT)
        mode = connection.pragma("journal_mode", "wal")
        if mode != "wal":
            raise StoreProblem(
                f"{path} cannot use a write-ahead log (it is in mode {mode})",
                remedy="keep the store on a local disk, not on a network share",
            )
        # With NORMAL an acknowledgement could leave before its message is on the disk.
        connection.pragma("synchronous", "FULL")
        connection.pragma("foreign_keys", 1)
        # Undoing a transition uses temporary pages; they need not touch the disk.
        connection.pragma("temp_store", "MEMORY")
        # Nothing is written before the commit, so only the commit can fail for want of space.
        connection.pragma("cache_spill", 0)
        connection.pragma("cache_size", -32_768)
        connection.pragma("journal_size_limit", _KEEP_LOG)
        # The writer itself decides when to checkpoint, so that it sees a failure of it.
        connection.wal_autocheckpoint(0)
    except BaseException:
        disconnect(connection)
        raise
    return connection


def connect_reader(path: Path, vfs: str | None) -> apsw.Connection:
    """A connection that cannot write."""
    import apsw

    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs=vfs)
    _settle_plans(connection)
    connection.set_busy_timeout(BUSY_TIMEOUT)
    return connection


def disconnect(connection: apsw.Connection | None) -> None:
    """Close the connection and ignore its errors: what is committed does not depend on it."""
    if connection is not None:
        import apsw

        with suppress(apsw.Error):
            connection.close(True)


def _settle_plans(connection: apsw.Connection) -> None:
    """Plan a statement once. Left alone, SQLite plans many anew for each value bound to them,
    which costs ten times what running them costs."""
    import apsw

    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def check_version(text: str) -> None:
    """Refuse a SQLite that can damage a write-ahead log when it starts it anew.

    The fault is corrected in 3.51.3 and from 3.53.0 on.
    """
    version = tuple(int(part) for part in text.split(".")[:3])
    first, unsafe, again = _FIXED
    if version < first or unsafe <= version < again:
        raise StoreProblem(
            f"SQLite {text} can damage its write-ahead log",
            remedy="install apsw with SQLite 3.53.0 or newer",
        )


def failure(error: apsw.Error, path: Path) -> StoreFull | StoreGone:
    """What SQLite's error means: no space, or no database that can be relied on, now or ever."""
    import apsw

    if isinstance(error, apsw.FullError):
        return StoreFull(f"there is no space left for {path}", remedy=f"free space on {GOES_ON}")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return StoreCorrupt(
            f"the database {path} is damaged: {error}",
            remedy="stop the handler and restore the party from a backup (docs/howto/backup.md)",
        )
    return StoreGone(f"the database {path} fails: {error}", remedy=f"check {GOES_ON}")


def damaged_page(error: apsw.Error, path: Path) -> StoreDamaged:
    """The error for a damaged page; queries of other pages may still work."""
    return StoreDamaged(
        f"a page of {path} cannot be read: {error}",
        remedy="`oncewire doctor` says what is damaged; restore the party from a backup",
    )


class Owner:
    """The lock that makes one process the writer of a store; it ends with the process."""

    def __init__(self, path: Path) -> None:
        lock = path.with_name(path.name + ".owner")
        try:
            self._handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreProblem(
                f"{path} cannot be opened: {error.strerror}",
                remedy="name a file in a folder that exists and may be written",
            ) from error
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(self._handle, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(self._handle)
            raise StoreProblem(
                f"{path} is in use by another handler (process {holder})",
                remedy="stop that process, or ask it through its API",
            ) from None
        os.truncate(self._handle, 0)
        os.write(self._handle, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        """Let another process open the store; may be called more than once."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


APPLICATION_ID = 0x4F4E4357
"""Says of a SQLite file that it is a store of ours ("ONCW")."""


@cache
def known_migrations() -> tuple[Migration, ...]:
    """The steps this version of Oncewire knows, in order."""
    return migrations_of("oncewire.store.sqlite")


def migrate(connection: apsw.Connection, migrations: tuple[Migration, ...]) -> int:
    """Bring the database to the newest version; returns how many steps were needed."""
    application, version = check_origin(connection, migrations)
    if application != APPLICATION_ID:
        connection.pragma("application_id", APPLICATION_ID)
    steps = [step for step in migrations if step.version > version]
    for step in steps:
        # Either the whole step and its number are there afterwards, or nothing of it.
        with connection:
            connection.execute(step.script)
            connection.pragma("user_version", step.version)
    return len(steps)


def check_origin(connection: apsw.Connection, migrations: tuple[Migration, ...]) -> tuple[int, int]:
    """Application id and version, if the database is empty or a store we understand."""
    application = int(connection.pragma("application_id"))
    version = int(connection.pragma("user_version"))
    empty = connection.execute("SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)").get
    if application != APPLICATION_ID and not empty:
        raise StoreProblem(
            f"{connection.filename} is a database of another program",
            remedy="name another file for the store",
        )
    newest = migrations[-1].version
    check_known(connection.filename, version, newest)
    return application, version


def versions_at(path: Path) -> tuple[int, int]:
    """The version of the store that lies there, and the newest that this Oncewire knows."""
    connection = connect_reader(path, None)
    try:
        return check_origin(connection, known_migrations())[1], known_migrations()[-1].version
    finally:
        disconnect(connection)


def read_mark(connection: apsw.Connection) -> StoreMark | None:
    """The mark of the store as it is committed; None: there is nothing in it."""
    node, counter = _columns(connection, "node"), _columns(connection, "counter")
    # Stores of earlier versions have no id and no chain yet.
    chosen = ("store_id" if "store_id" in node else "''", "head" if "head" in counter else "NULL")
    if not node or not counter:
        return None
    rows = connection.execute(
        f"SELECT {chosen[0]}, journal, {chosen[1]} FROM node, counter"  # noqa: S608
    ).fetchall()
    return StoreMark.read(rows)


def check_mark(path: Path, known: StoreMark, vfs: str | None = None) -> None:
    """See that the store is the one that was marked, as it was then or further on. Nothing is made
    or changed, so that whatever lies there can be looked at and put right."""
    try:
        empty = not path.stat().st_size
    except FileNotFoundError:
        raise replaced(f"{path} is gone, and {once(known)}") from None
    except OSError as error:
        raise StoreGone(f"{path}: {error.strerror}", remedy="check its disk") from None
    found, head = (None, "") if empty else _look(path, known, vfs)
    compare(path, known, found, head)


def _look(path: Path, known: StoreMark, vfs: str | None) -> tuple[StoreMark | None, str]:
    """The mark of the store that lies there, and its chain head at the row of the known mark."""
    connection = connect_reader(path, vfs)
    try:
        check_origin(connection, known_migrations())
        found = read_mark(connection)
        return found, "" if found is None else _head_at(connection, known.journal, found)
    finally:
        disconnect(connection)


def _head_at(connection: apsw.Connection, seq: int, found: StoreMark) -> str:
    """The head behind a row; empty where that cannot be known any more."""
    if found.journal == seq:
        return found.head
    if "since" not in _columns(connection, "journal_row"):
        return ""
    rows = connection.execute("SELECT since FROM journal_row WHERE seq = ?", (seq + 1,)).fetchall()
    return StoreMark.head_of(rows[0][0]) if rows and rows[0][0] is not None else ""


def _columns(connection: apsw.Connection, table: str) -> set[str]:
    rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
    return {str(name) for (name,) in rows}
