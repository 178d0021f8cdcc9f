"""Connections to the SQLite file: how they are opened, who owns the writing one, and what
an error of SQLite means to a handler."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from oncewire.errors import StoreCorrupt, StoreDamaged, StoreFull, StoreGone, StoreProblem
from oncewire.store.spool import GOES_ON

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
    """Close it, whatever it says: nothing that was committed depends on it any more."""
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
            remedy="stop the handler and restore the party from a backup (docs/backup.md)",
        )
    return StoreGone(f"the database {path} fails: {error}", remedy=f"check {GOES_ON}")


def damaged_page(error: apsw.Error, path: Path) -> StoreDamaged:
    """A question met a page that is not what SQLite wrote. Others may well be answered."""
    return StoreDamaged(
        f"a page of {path} cannot be read: {error}",
        remedy="`oncewire doctor` says what is damaged; restore the party from a backup",
    )


class Owner:
    """The lock that makes one process the writer of a store; the kernel ends it with it."""

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
        """Let another process open the store; once is enough."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
