"""The store on SQLite: one file, one writing process, one fsync for all that wait.

Transitions change what is in memory (`store/transition`); `commit()` writes all of it in one
transaction. When a commit fails, nothing of it may come back, but SQLite's log
may hold it whole, for instance if only its fsync failed. So a new connection is opened and
a small commit of our own is written over it before anything else is done; only then is the
old connection closed, because without any connection SQLite would read the log anew and
take the failed commit for a good one. A failed fsync is never repeated on the same handle:
the second one may succeed without the data being on the disk.

One doubt is left to the disk: if it refuses the small commit too and the process dies then,
the next start may find the failed commit in the log. It is there whole or not at all, and
a sender that was refused tries again and meets a duplicate.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from oncewire.errors import StoreProblem, StoreReplaced
from oncewire.journal.row import JOURNAL_VERSION
from oncewire.store.contract import Reader
from oncewire.store.records import Space, StoreMark
from oncewire.store.spool import FileSpool
from oncewire.store.sql.backend import SqlBackend
from oncewire.store.sql.origin import NODE, known_node, new_node
from oncewire.store.sqlite.connection import (
    Owner,
    check_mark,
    connect,
    disconnect,
    failure,
    known_migrations,
    migrate,
    read_mark,
)
from oncewire.store.sqlite.reader import SqliteReaders
from oncewire.store.sqlite.session import SqliteSession
from oncewire.store.transition.turns import MARK_EVERY, TransactionManager
from oncewire.store.transition.work import UnitOfWork

if TYPE_CHECKING:
    import apsw

CHECKPOINT_PAGES = 4_000
"""Pages of the write-ahead log (16 MB) after which they are copied into the database."""

_MAKE_NODE = "INSERT INTO node VALUES (1, ?, ?, lower(hex(randomblob(16))))"


def file_id(path: Path) -> tuple[int, int] | None:
    """Which file lies at a path, by its device and inode; None: there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


class SqliteStore(TransactionManager):
    """See `contract.Store`, whose docstrings hold here."""

    def __init__(
        self,
        path: Path,
        *,
        node: str | None = None,
        spool: Path | None = None,
        vfs: str | None = None,
        known: StoreMark | None = None,
        note: Callable[[StoreMark], None] | None = None,
    ) -> None:
        """Open the store at `path` as its only writer.

        With `node` it is made if it is not there, and refused if it belongs to another
        node. Large payloads go to `spool`, by default a folder beside the file. `known` is the
        mark that was noted last: StoreReplaced where this is not that store, or is older. `note`
        is given each mark that is to be noted, when what it tells of is durable.
        """
        if node is None and not path.exists():
            raise StoreProblem(f"there is no store at {path}", remedy="make one with `init`")
        super().__init__()
        self._path, self._vfs = path, vfs
        self._connection: apsw.Connection | None = None
        self._distrusted: apsw.Connection | None = None
        self._fence_needed = False
        self._pages_copied = 0
        self._readers = SqliteReaders(path, vfs)
        self._known, self._note, self._noted_at = known, note, 0.0
        self._owner = Owner(path)
        try:
            if known is None:
                # Other users may not read the messages; SQLite gives its log the same mode.
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._connect(node)
            self.spool = FileSpool(spool or path.with_name(path.name + ".spool"))
            self._mark()
        except BaseException:
            self._owner.release()
            raise
        # The first commit is noted, so that a copy from before this opening is older.
        self._noted_at = -MARK_EVERY

    # --- the contract ---

    def reader(self) -> AbstractContextManager[Reader]:
        """See `contract.Store`."""
        return self._readers.reader()

    def space(self) -> Space:
        """See `contract.Store`."""
        usage = shutil.disk_usage(self._path.parent)
        files = (self._path, Path(f"{self._path}-wal"))
        database = sum(file.stat().st_size for file in files if file.exists())
        return Space(database, self.spool.size(), usage.free, usage.total)

    def node(self) -> str:
        """See `contract.Store`."""
        return self._node

    def close(self) -> None:
        """See `contract.Store`."""
        self._open = self._lost = self._work = None
        self._readers.close()
        if self._connection is None:
            with suppress(StoreProblem):
                self._connect(None)
        self._work = None
        self._mark()
        for connection in (self._connection, self._distrusted):
            disconnect(connection)
        self._connection = self._distrusted = None
        self._owner.release()

    # --- for its transitions ---

    def _begin(self) -> UnitOfWork:
        return self._connect(None)

    def _commit(self, work: UnitOfWork) -> None:
        # Raise an error unless the open database still lies at its path. SQLite writes on into a
        # file that was deleted or moved away, and what is committed there is lost.
        if file_id(self._path) != self._file:
            raise StoreReplaced(
                f"{self._path} was removed or replaced while the handler ran",
                remedy="stop the handler and restore the party (docs/howto/backup.md)",
            )
        self._fence_needed = True
        work.write()
        began = monotonic()
        work.backend.commit()
        self._learn_durable(monotonic() - began)
        self._fence_needed = False
        work.rest()
        self._checkpoint()
        if monotonic() - self._noted_at > MARK_EVERY:
            self._mark()

    def _mark(self) -> None:
        """Note how far the store has come, by what is committed alone: the mark is never ahead of
        the store, wherever either of them is stopped."""
        import apsw

        self._noted_at = monotonic()
        if self._note is None or self._connection is None or self._connection.in_transaction:
            return
        with suppress(apsw.Error):
            found = read_mark(self._connection)
            if found is not None and found != self._known:
                self._known = found
                self._note(found)

    # --- trouble ---

    def _abandon(self) -> None:
        self._work = None
        self._session.abandon()
        self._distrust()
        # If it cannot be opened now, the next transition tries again and says why.
        with suppress(StoreProblem):
            self._connect(None)

    def _distrust(self) -> None:
        """Stop using the connection, but keep it until another one is safely open."""
        if self._connection is not None:
            self._distrusted, self._connection = self._connection, None
        self._work = None

    # --- connection ---

    def _connect(self, node: str | None) -> UnitOfWork:
        import apsw

        try:
            if self._known is not None:
                check_mark(self._path, self._known, self._vfs)
            connection = connect(self._path, self._vfs)
            try:
                self._prepare(connection, node)
                session = SqliteSession(connection, self._path)
                work = UnitOfWork(SqlBackend(session))
            except BaseException:
                disconnect(connection)
                raise
        except apsw.Error as error:
            raise failure(error, self._path) from error
        disconnect(self._distrusted)
        self._connection, self._distrusted = connection, None
        self._session, self._work = session, work
        self._file = file_id(self._path)
        return work

    def _prepare(self, connection: apsw.Connection, node: str | None) -> None:
        migrate(connection, known_migrations())
        found = connection.execute(NODE).fetchall()
        if not found:
            connection.execute(_MAKE_NODE, (new_node(self._path, node), JOURNAL_VERSION))
            found = connection.execute(NODE).fetchall()
        self._node = known_node(self._path, node, found[0], "file")
        if self._fence_needed:
            connection.execute("UPDATE counter SET fence = fence + 1")
            self._fence_needed = False
        self._pages_copied = 0

    def _checkpoint(self) -> None:
        """Copy the log into the database when it has grown. What is committed stays so even
        if this fails; but then the handle is not trusted with another fsync."""
        pages = self._session.pages
        if pages < self._pages_copied:
            # The log was started anew.
            self._pages_copied = 0
        if self._connection is None or pages - self._pages_copied < CHECKPOINT_PAGES:
            return
        import apsw

        # A view may hold back a part of it; then the next try comes after as many pages again.
        self._pages_copied = pages
        try:
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error:
            self._distrust()
