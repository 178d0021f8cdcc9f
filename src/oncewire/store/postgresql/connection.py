"""Connections to PostgreSQL: how they are opened, how the schema is made, and what an error of the
server means to a handler."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING
from uuid import uuid4

from oncewire.errors import SpoolElsewhere, StoreCorrupt, StoreFull, StoreGone, StoreProblem
from oncewire.store.records import StoreMark
from oncewire.store.spool import MARK
from oncewire.store.sql.origin import Migration, check_known, compare, migrations_of

if TYPE_CHECKING:
    import psycopg

CONNECT_SECONDS = 5
"""How long a server that does not answer is waited for."""

HELD_SECONDS = 5
"""A process that stops in the middle of its turn loses it after so long: the server ends its
session, and with it all that the turn had done."""

LOCK_SECONDS = 10
"""How long a turn waits for those of others. It is more than one of them can be held."""

MIGRATING_TRIES = 5

OWNER_SECONDS = 2
"""How long a store that another handler has is waited for."""

_OLDEST = 140_000
"""The oldest server that will do: 14."""


_HOST = r"(?:\[[0-9A-Fa-f:.%]*\]|[^][@/?:,]*)(?::\d*)?"
_ADDRESS = re.compile(
    rf"(postgres(?:ql)?)://(?:[^@/]*@)?({_HOST}(?:,{_HOST})*)(/[^@/?]*)?(?:\?.*)?"
)
"""An address that can be read in one way only."""


def connect(url: str) -> psycopg.Connection[tuple[object, ...]]:
    """A connection whose commits are durable when they return, outside of any transaction."""
    try:
        import psycopg
    except ImportError as error:
        raise StoreProblem(
            "what PostgreSQL needs is not installed", remedy="pip install 'oncewire[postgres]'"
        ) from error
    check_address(url)
    try:
        connection = psycopg.connect(
            url,
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
            cursor_factory=psycopg.RawCursor,
            fallback_application_name="oncewire",
        )
    except psycopg.Error as error:
        raise failure(error, url) from error
    try:
        _settle(connection, url)
    except BaseException as error:
        connection.close()
        if isinstance(error, psycopg.Error):
            raise failure(error, url) from error
        raise
    return connection


def _settle(connection: psycopg.Connection[tuple[object, ...]], url: str) -> None:
    """Have the session do what a store relies on, whatever the server does by default."""
    from oncewire.store.postgresql.values import register

    if connection.info.server_version < _OLDEST:
        raise StoreProblem(
            f"{place(url)} is PostgreSQL {connection.info.server_version // 10_000}",
            remedy="use PostgreSQL 14 or newer",
        )
    register(connection.adapters)
    # Two uses of a statement are enough to prepare it: the same few are run all the time.
    connection.prepare_threshold = 1
    wanted = {
        # An acknowledgement leaves after the commit, so the commit has to be on the disk.
        "synchronous_commit": "on",
        "idle_in_transaction_session_timeout": f"{HELD_SECONDS}s",
        "lock_timeout": f"{LOCK_SECONDS}s",
        "default_transaction_isolation": "read committed",
        # Plans for any value of a statement: there are indexes for all that is asked.
        "plan_cache_mode": "force_generic_plan",
        "client_min_messages": "warning",
    }
    settings = ", ".join(
        f"set_config('{name}', '{value}', false)" for name, value in wanted.items()
    )
    rows = connection.execute(f"SELECT current_setting('fsync'), {settings}".encode()).fetchall()
    if rows[0][0] != "on":
        raise StoreProblem(
            f"{place(url)} does not write to its disk before it says so (fsync is off)",
            remedy="set fsync = on in its postgresql.conf, and start it again",
        )


def check_address(url: str) -> None:
    """Refuse an address that the driver would take for another one, or cite when it complains of
    it: in both ways a part of a password that is not written as it must be would be shown."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    readable = _ADDRESS.fullmatch(url) is not None
    if readable:
        try:
            conninfo_to_dict(url)
        except ProgrammingError:
            readable = False
    if not readable:
        raise StoreProblem(
            "the address of the database cannot be read",
            remedy="write it as postgresql://USER:PASSWORD@HOST/DATABASE, with %40 for @, %2F for "
            "/, %3A for : and %25 for % in a password",
        )


def place(url: str) -> str:
    """Where the database is, without the secrets of its address."""
    found = _ADDRESS.fullmatch(url)
    return f"{found[1]}://{found[2]}{found[3] or ''}" if found is not None else "postgresql://"


def failure(error: psycopg.Error, url: str) -> StoreFull | StoreGone:
    """What the server's error means: no space, or no database that can be relied on."""
    import psycopg

    said = " ".join(str(error).split())[:300]
    if isinstance(error, psycopg.errors.DiskFull):
        return StoreFull(
            f"there is no space left for {place(url)}", remedy="free space on the server's disk"
        )
    if isinstance(error, psycopg.errors.DataCorrupted | psycopg.errors.IndexCorrupted):
        return StoreCorrupt(
            f"the database {place(url)} is damaged: {said}",
            remedy="stop the handlers, and restore the database from a backup",
        )
    return StoreGone(
        f"the database {place(url)} fails: {said}",
        remedy="check the server; the handler goes on by itself when it is there again",
    )


@contextmanager
def told_as(url: str) -> Iterator[None]:
    """Raise the driver's errors as the store's."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise failure(error, url) from error


def disconnect(connection: psycopg.Connection[tuple[object, ...]] | None) -> None:
    """Close the connection and ignore its errors: what is committed does not depend on it."""
    if connection is not None:
        import psycopg

        with suppress(psycopg.Error):
            connection.close()


@contextmanager
def opened(url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A connection for as long as the block lasts, whose errors are raised as the store's."""
    connection = connect(url)
    try:
        with told_as(url):
            yield connection
    finally:
        disconnect(connection)


# --- the schema ---


@cache
def known_migrations() -> tuple[Migration, ...]:
    """The steps this version of Oncewire knows, in order."""
    return migrations_of("oncewire.store.postgresql")


def lock_key(schema: str, purpose: str) -> int:
    """The number of an advisory lock: of one store for one purpose."""
    digest = hashlib.sha256(f"oncewire {purpose} {schema}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def schema_of(connection: psycopg.Connection[tuple[object, ...]]) -> str:
    """The schema that the tables are in: the first of the search path."""
    rows = connection.execute("SELECT current_schema()").fetchall()
    if rows[0][0] is None:
        raise StoreProblem(
            "the schema that the address names is not there", remedy="create it, or name another"
        )
    return str(rows[0][0])


def version_of(connection: psycopg.Connection[tuple[object, ...]], url: str) -> int:
    """The version of the store that is there; 0: there is none. One that a newer Oncewire has made
    will do, unless a step of it says that this one cannot live with it."""
    rows = connection.execute(
        "SELECT to_regclass('migration') IS NOT NULL, to_regclass('counter') IS NOT NULL"
    ).fetchall()
    if rows[0] == (False, True):
        raise StoreProblem(
            f"{place(url)} holds the tables of another program",
            remedy="name another database or schema for the store",
        )
    if not rows[0][0]:
        return 0
    found = connection.execute("SELECT coalesce(max(version), 0) FROM migration").fetchall()
    version, newest = int(str(found[0][0])), known_migrations()[-1].version
    if version > newest:
        breaking = "SELECT 1 FROM migration WHERE version > $1 AND breaking IS NOT NULL"
        if connection.execute(breaking, (newest,)).fetchall():
            check_known(place(url), version, newest)
    return version


def migrate(
    connection: psycopg.Connection[tuple[object, ...]], url: str, migrations: tuple[Migration, ...]
) -> int:
    """Bring the schema to the newest version; returns how many steps were needed. Two that come at
    once do it one after the other, and the second finds it done. Handlers of an older version work
    on meanwhile, unless a step is breaking: that one is refused while they run."""
    import psycopg

    if version_of(connection, url) >= migrations[-1].version:
        return 0
    for _ in range(MIGRATING_TRIES - 1):
        # Views hold tables in any order.
        with suppress(psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable):
            return _migrate(connection, url, migrations)
    return _migrate(connection, url, migrations)


def _migrate(
    connection: psycopg.Connection[tuple[object, ...]], url: str, migrations: tuple[Migration, ...]
) -> int:
    key = lock_key(schema_of(connection), "migration")
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock($1)", (key,))
        version = version_of(connection, url)
        steps = [step for step in migrations if step.version > version]
        if version:
            for step in steps:
                if step.breaking:
                    _need_alone(connection, url, step)
            # No turn is under way then, which would hold tables that a step wants.
            connection.execute("SELECT fence FROM counter FOR UPDATE")
        else:
            connection.execute("CREATE TABLE IF NOT EXISTS migration (version bigint PRIMARY KEY)")
        for step in steps:
            # Without values, a script of many statements is run whole.
            connection.execute(step.script.encode())
            connection.execute("INSERT INTO migration (version) VALUES ($1)", (step.version,))
            if step.breaking:
                note = "UPDATE migration SET breaking = $1 WHERE version = $2"
                connection.execute(note, (step.breaking, step.version))
    return len(steps)


def _need_alone(
    connection: psycopg.Connection[tuple[object, ...]], url: str, step: Migration
) -> None:
    """Refuse a breaking step while anybody has the store: whoever has it is of an older version."""
    import psycopg

    key = lock_key(schema_of(connection), "owner")
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = '{OWNER_SECONDS}s'".encode())
            connection.execute("SELECT pg_advisory_xact_lock($1)", (key,))
    except psycopg.errors.LockNotAvailable:
        raise StoreProblem(
            f"{place(url)} is in use by handlers of an older version, which cannot live with the "
            f"next step of its schema ({step.name}): {step.breaking}",
            remedy="end all of them (`oncewire serve --drain`), then start this version",
        ) from None


# --- the owners ---


def own(connection: psycopg.Connection[tuple[object, ...]], url: str, *, alone: bool) -> None:
    """Be the only one that has the store, or one of those beside each other; that ends with the
    connection."""
    import psycopg

    lock = "pg_advisory_lock" if alone else "pg_advisory_lock_shared"
    key = lock_key(schema_of(connection), "owner")
    try:
        with connection.transaction():
            # The server needs a moment to notice that a process was killed.
            connection.execute(f"SET LOCAL lock_timeout = '{OWNER_SECONDS}s'".encode())
            connection.execute(f"SELECT {lock}($1)".encode(), (key,))
    except psycopg.errors.LockNotAvailable:
        raise StoreProblem(
            f"{place(url)} is in use by another handler",
            remedy="stop that handler, or ask it through its API",
        ) from None


# --- the spool ---


def check_spool(
    connection: psycopg.Connection[tuple[object, ...]],
    url: str,
    has_mark: Callable[[str], bool],
    make_mark: Callable[[str], None] | None = None,
) -> None:
    """See that a spool is the store's. With `make_mark` the first one that comes is made its own;
    the file is there before the store says so, and a store that says nothing takes any."""
    select = "SELECT mark FROM spool"
    found = connection.execute(select).fetchall()
    if not found and make_mark is not None:
        mark = f"{MARK}{uuid4().hex}"
        make_mark(mark)
        # Another handler may do the same at this moment.
        make = "INSERT INTO spool (id, mark) VALUES (1, $1) ON CONFLICT DO NOTHING"
        connection.execute(make, (mark,))
        found = connection.execute(select).fetchall()
    if found and not has_mark(str(found[0][0])):
        raise SpoolElsewhere(
            f"the spool of this handler is not the one that {place(url)} has its documents in: "
            f"there is no file {found[0][0]} in it",
            remedy="set store.spool, or store.bucket, to the spool of the party's other handlers; "
            "if all files were moved, put an empty one of that name beside them",
        )


# --- the mark ---


def read_mark(connection: psycopg.Connection[tuple[object, ...]], url: str) -> StoreMark | None:
    """The mark of the store as it is committed; None: there is nothing in it."""
    if not version_of(connection, url):
        return None
    rows = connection.execute("SELECT store_id, journal, head FROM node, counter").fetchall()
    return StoreMark.read(rows)


def check_mark(
    connection: psycopg.Connection[tuple[object, ...]], url: str, known: StoreMark
) -> None:
    """See that the store is the one that was marked, as it was then or further on."""
    found = read_mark(connection, url)
    head = ""
    if found is not None:
        head = found.head
        if found.journal != known.journal:
            rows = connection.execute(
                "SELECT since FROM journal_row WHERE seq = $1", (known.journal + 1,)
            ).fetchall()
            head = StoreMark.head_of(rows[0][0]) if rows and rows[0][0] is not None else ""
    compare(place(url), known, found, head)
