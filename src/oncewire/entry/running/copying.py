"""Copying a party's store to a database server, or back into a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from oncewire.entry.running.assemble import find_replaced, store_path, store_versions
from oncewire.errors import NotAllowed, NotHere
from oncewire.store.postgresql import connection as postgresql
from oncewire.store.postgresql.session import PostgresSession
from oncewire.store.sql.copying import Tally, copy
from oncewire.store.sql.session import Session
from oncewire.store.sqlite import connection as sqlite
from oncewire.store.sqlite.session import SqliteSession

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings


def is_server(place: str) -> bool:
    """Whether a store is named by the address of a database server, and not by a file."""
    return place.startswith(("postgresql://", "postgres://"))


def copy_store(settings: Settings, to: str) -> dict[str, Tally]:
    """Copy the party's store into an empty database; returns what each table holds. No handler can
    run meanwhile. The files of the spool stay where they are: both stores name the same."""
    replaced = find_replaced(settings)
    if replaced is not None:
        raise replaced
    if store_versions(settings) == (0, 0):
        raise NotHere("there is no store to copy yet", remedy="send or receive something")
    path = store_path(settings)
    if not is_server(to) and Path(to).exists():
        raise NotAllowed(f"{to} is there already", remedy="name a file that is not there yet")
    owner = sqlite.Owner(path)
    try:
        with (
            _session(settings.store.url or str(path)) as source,
            _session(to) as target,
        ):
            return copy(source, target)
    finally:
        owner.release()


@contextmanager
def _session(place: str) -> Iterator[Session]:
    """A session of the database there, with the tables of this version."""
    if is_server(place):
        server = postgresql.connect(place)
        try:
            with postgresql.told_as(place):
                postgresql.migrate(server, place, postgresql.known_migrations())
                # Handlers on other machines, too, must have ended.
                postgresql.own(server, place, alone=True)
            yield PostgresSession(server, place)
        finally:
            postgresql.disconnect(server)
        return
    file = Path(place)
    # Other users may not read the messages.
    os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = sqlite.connect(file, None)
    try:
        sqlite.migrate(connection, sqlite.known_migrations())
        yield SqliteSession(connection, file)
    finally:
        sqlite.disconnect(connection)
