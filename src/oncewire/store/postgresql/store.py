"""The store on PostgreSQL: one database, one transaction for all that wait.

When a connection is lost while its commit is under way, only the server knows what became of it. So
a new connection asks, and nobody is told anything before it has the answer. Where the server stays
away (`DOUBT_SECONDS`), what is in memory cannot be relied on any more: the process ends, and the
next one goes on from what was stored.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING
from uuid import uuid4

from oncewire.errors import HandlerFailed, StoreFull, StoreGone, StoreProblem
from oncewire.journal.row import JOURNAL_VERSION
from oncewire.message.instant import Instant
from oncewire.store.bucket_spool import BucketSpool
from oncewire.store.contract import Reader
from oncewire.store.postgresql.connection import (
    check_mark,
    check_spool,
    connect,
    disconnect,
    known_migrations,
    migrate,
    own,
    place,
    read_mark,
    told_as,
)
from oncewire.store.postgresql.fellows import PostgresFellows
from oncewire.store.postgresql.reader import PostgresReaders
from oncewire.store.postgresql.session import PostgresSession
from oncewire.store.records import Space, StoreMark
from oncewire.store.spool import FileSpool
from oncewire.store.sql.backend import SqlBackend
from oncewire.store.sql.origin import NODE, known_node, new_node, replaced
from oncewire.store.transition.turns import MARK_EVERY, TransactionManager
from oncewire.store.transition.work import UnitOfWork

if TYPE_CHECKING:
    import psycopg

    from oncewire.store.sql.session import Values

DOUBT_SECONDS = 20.0
"""How long a server that went away in a commit is waited for."""

ASK_EVERY = 0.1

NEXT_WAKE = (
    "SELECT least((SELECT min(due_at) FROM outgoing WHERE due_at IS NOT NULL "
    # An array, so that the ids are looked up and the table of messages is not read through.
    "AND message NOT IN (SELECT id FROM message WHERE message_id = ANY (ARRAY("
    "SELECT message_id FROM claim WHERE kind = 'send' AND handler <> ? "
    "UNION ALL SELECT json_array_elements_text(?::json))))), "
    "(SELECT min(deadline) FROM outgoing WHERE deadline IS NOT NULL), "
    "(SELECT min(lease_until) FROM incoming "
    "WHERE state = 'handed_over' AND lease_until IS NOT NULL))"
)


class PostgresStore(TransactionManager):
    """See `contract.Store`, whose docstrings hold here."""

    def __init__(
        self,
        url: str,
        *,
        node: str | None = None,
        spool: Path,
        bucket: str = "",
        alone: bool = True,
        lease: float | None = None,
        known: StoreMark | None = None,
        note: Callable[[StoreMark], None] | None = None,
        closed: Callable[[], None] | None = None,
    ) -> None:
        """Open the store in the database at `url`.

        With `node` its tables are made if they are not there, and it is refused if it belongs to
        another node. Large payloads go to `spool`, or to `bucket` with copies there. `alone`: it is
        refused while another handler has it; otherwise those that have it alone are refused.
        `lease`: it is opened beside other handlers, as one whose lease lasts so many seconds, or as
        a guest (0). `known` and `note`: see `SqliteStore`. `closed` is called when it is closed.
        """
        super().__init__()
        self._url, self._closed = url, closed
        self._alone = alone and lease is None
        self._connection: psycopg.Connection[Values] | None = None
        self._session: PostgresSession | None = None
        # The commits that an earlier connection has seen.
        self._fence = 0
        self._readers = PostgresReaders(url)
        self._fellows = None if lease is None else PostgresFellows(url, lease)
        self.fellows = self._fellows
        # The store as we know it, and as it was noted last.
        self._known, self._noted, self._note, self._noted_at = known, known, note, 0.0
        shared = lease is not None
        self.spool = (
            BucketSpool(spool, bucket, shared=shared) if bucket else FileSpool(spool, shared=shared)
        )
        self._spool_folder, self._spool_known = spool, False
        self._connect(node)
        self._mark()
        # The first commit is noted, so that a copy from before this opening is older.
        self._noted_at = -MARK_EVERY

    # --- the contract ---

    def reader(self) -> AbstractContextManager[Reader]:
        """See `contract.Store`."""
        return self._readers.reader()

    def space(self) -> Space:
        """See `contract.Store`; free is what is left for the spool."""
        usage = shutil.disk_usage(self._spool_folder)
        connection = connect(self._url)
        try:
            with told_as(self._url):
                select = "SELECT pg_database_size(current_database())"
                size = int(str(connection.execute(select).fetchall()[0][0]))
        finally:
            disconnect(connection)
        return Space(size, self.spool.size(), usage.free, usage.total)

    def node(self) -> str:
        """See `contract.Store`."""
        return self._node

    def close(self) -> None:
        """See `contract.Store`."""
        self._open = self._lost = self._work = None
        self._readers.close()
        if self._session is not None:
            with suppress(StoreProblem):
                self._session.let_go()
                if self._fellows is not None and self._connection is not None:
                    with told_as(self._url):
                        self._fellows.leave(self._connection)
                self._mark()
        disconnect(self._connection)
        self._connection = self._session = None
        if self._closed is not None:
            self._closed()

    def next_wake(self, under_way: Collection[str] = ()) -> Instant | None:
        """See `contract.Store`. Beside others little that is in memory stays true for long: then
        the server is asked, by one question."""
        fellows = self._fellows
        if fellows is None:
            return super().next_wake(under_way)
        kept = self.pending()
        try:
            work = self._work or self._begin()
            session = self._session
            values = (fellows.name, json.dumps(sorted(under_way)))
            found = None if session is None else session.run(NEXT_WAKE, values)[0][0]
        except (StoreFull, StoreGone) as error:
            self._lose(error, kept=kept)
            raise
        instants = (found, self._earliest(work, under_way) if kept else None)
        return min((int(instant) for instant in instants if instant is not None), default=None)

    # --- for its transitions ---

    def _begin(self) -> UnitOfWork:
        return self._connect(None)

    def _commit(self, work: UnitOfWork) -> None:
        work.write()
        began = monotonic()
        try:
            work.backend.commit()
        except StoreGone:
            session = self._session
            if session is None or not self._was_committed(session):
                raise
            # All is there, and only the answer was lost.
            if self._fellows is not None:
                self._fellows.committed()
            session.abandon()
            self._work = None
        self._learn_durable(monotonic() - began)
        if self._work is not None:
            work.rest()
        head, told = self._backend.head, work.counters["journal"]
        if self._known is not None and head is not None:
            # What was told to others is there, whichever server answers next.
            self._known = StoreMark(self._known.store_id, told, head.hex())
        elif self._known is not None and self._known.journal != told:
            # A step over many rows was undone, or another handler wrote before.
            self._learn_mark()
        if monotonic() - self._noted_at > MARK_EVERY:
            self._mark()

    def _was_committed(self, session: PostgresSession) -> bool:
        """Whether the server has committed the turn of a session that was lost."""
        deadline = monotonic() + DOUBT_SECONDS
        while True:
            try:
                return self._ask_for(session)
            except StoreProblem as problem:
                if monotonic() > deadline:
                    raise HandlerFailed(
                        f"whether a commit was made cannot be found out: {problem.problem}",
                        remedy=problem.remedy,
                    ) from problem
            sleep(ASK_EVERY)

    def _ask_for(self, session: PostgresSession) -> bool:
        connection = connect(self._url)
        try:
            with told_as(self._url), connection.transaction():
                if self._known is not None:
                    check_mark(connection, self._url, self._known)
                # The lost session may be at its commit still: this waits for it.
                rows = connection.execute("SELECT fence FROM counter FOR UPDATE").fetchall()
                if rows[0][0] == session.found:
                    return False
                select = "SELECT pg_xact_status($1::xid8) = 'committed'"
                return bool(connection.execute(select, (session.transaction,)).fetchall()[0][0])
        finally:
            disconnect(connection)

    def _mark(self) -> None:
        """Note how far the store has come, by what is committed alone."""
        self._noted_at = monotonic()
        if self._learn_mark():
            self._note_known()

    def _learn_mark(self) -> bool:
        if self._connection is not None:
            with suppress(StoreProblem), told_as(self._url):
                self._known = read_mark(self._connection, self._url) or self._known
                return True
        return False

    def _note_known(self) -> None:
        if self._note is not None and self._known is not None and self._known != self._noted:
            self._noted = self._known
            self._note(self._known)

    # --- trouble ---

    def _abandon(self) -> None:
        self._work = None
        if self._session is not None:
            self._session.abandon()
        # The server that answers next may be one that lacks the last commits.
        self._note_known()
        # If it cannot be opened now, the next transition tries again and says why.
        with suppress(StoreProblem):
            self._connect(None)

    # --- connection ---

    def _connect(self, node: str | None) -> UnitOfWork:
        disconnect(self._connection)
        if self._session is not None:
            self._fence = self._session.fence
        self._connection = self._session = None
        connection = connect(self._url)
        try:
            with told_as(self._url):
                if self._known is not None:
                    check_mark(connection, self._url, self._known)
                self._prepare(connection, node)
                if self._fellows is not None:
                    self._fellows.join(connection)
            session = PostgresSession(connection, self._url, self._fellows)
            if session.fence < self._fence:
                raise replaced(
                    f"{place(self._url)} is older than what was seen of it: it has had "
                    f"{session.fence} commits, and there were {self._fence}"
                )
            self._backend = SqlBackend(session)
            work = UnitOfWork(self._backend)
        except BaseException:
            disconnect(connection)
            raise
        self._connection, self._session, self._work = connection, session, work
        return work

    def _prepare(self, connection: psycopg.Connection[Values], node: str | None) -> None:
        migrate(connection, self._url, known_migrations())
        if self._alone or self._fellows is not None:
            own(connection, self._url, alone=self._alone)
        where = place(self._url)
        found = connection.execute(NODE).fetchall()
        if not found:
            # Another handler may do the same at this moment.
            make = (
                "INSERT INTO node (id, name, journal_version, store_id) VALUES (1, $1, $2, $3) "
                "ON CONFLICT DO NOTHING"
            )
            connection.execute(make, (new_node(where, node), JOURNAL_VERSION, uuid4().hex))
            found = connection.execute(NODE).fetchall()
        self._node = known_node(where, node, found[0], "database")
        if not self._spool_known:
            make_mark = partial(self.spool.mark, node=self._node)
            check_spool(connection, self._url, self.spool.has_mark, make_mark)
            self._spool_known = True
