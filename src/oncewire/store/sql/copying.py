"""Copying a store from one database to another: every row of every table, and the proof of it.

The tables that are copied are the same on SQLite and on PostgreSQL. What is copied is read back and
compared, by the number of rows of each table and a digest over them. The node that the store is of
is written last: a copy that was cut off is no store, and nothing opens it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from oncewire.errors import StoreProblem
from oncewire.store.sql.session import Insert, Session, Values

PAGE = 500
"""Rows that are read and written at a time."""

TABLES = {
    "terms": ("terms_id",),
    "agreement": ("agreement_id",),
    "message": ("id",),
    "sending_channel": ("key",),
    "receiving_channel": ("key",),
    "outgoing": ("position",),
    "outgoing_bytes": ("position",),
    "outgoing_word": ("position", "path", "text"),
    "outgoing_term": ("slot", "position"),
    "receipt": ("position",),
    "incoming": ("row",),
    "incoming_bytes": ("row",),
    "incoming_word": ("row", "path", "text"),
    "incoming_term": ("slot", "row"),
    "document": ("sender", "split_id"),
    "journal_row": ("seq",),
    "removed": ("message", "sender"),
    "incident": ("id",),
    "refusal": ("code", "address"),
    "counter": ("id",),
    "node": ("id",),
}
"""Every table with its key, those first that others refer to."""


class Tally(NamedTuple):
    """What a table holds."""

    rows: int
    digest: str


def tally_of(session: Session, table: str) -> Tally:
    """Count the rows of a table, and digest them in the order of their keys."""
    rows, digest = 0, hashlib.sha256()
    for page in _pages(session, table):
        rows += len(page)
        for row in page:
            digest.update(repr(row).encode("utf-8", "surrogatepass"))
    return Tally(rows, digest.hexdigest())


def copy(source: Session, target: Session) -> dict[str, Tally]:
    """Copy all tables; returns what each of them holds. Raises StoreProblem where the target holds
    something already, or something else than the source afterwards."""
    for table in TABLES:
        if table != "counter" and target.run(f"SELECT 1 FROM {table} LIMIT 1"):  # noqa: S608
            raise StoreProblem(
                "there is a store already where the copy is to be",
                remedy="name a database that is empty",
            )
    found = {}
    for table, key in TABLES.items():
        for page in _pages(source, table):
            target.begin_turn()
            # The counters of a new store are there, and all 0.
            known = key if table == "counter" else ()
            target.write([Insert(table, _columns(source, table), page, known)])
            target.commit()
        found[table] = tally_of(source, table)
        if tally_of(target, table) != found[table]:
            raise StoreProblem(
                f"the copy of the table {table} is not what was copied",
                remedy="this is a fault of Oncewire: report it; the store itself is as it was",
            )
    return found


def _columns(session: Session, table: str) -> tuple[str, ...]:
    # How many commits a database has seen is its own affair.
    return tuple(sorted(name for name in session.columns(table) if name != "fence"))


def _pages(session: Session, table: str) -> Iterator[list[Values]]:
    """The rows of a table in the order of their keys."""
    names, key = _columns(session, table), TABLES[table]
    keys, places = ", ".join(key), [names.index(name) for name in key]
    select = f"SELECT {', '.join(names)} FROM {table}"  # noqa: S608
    order = f"ORDER BY {keys} LIMIT {PAGE}"
    beyond = f"WHERE ({keys}) > ({', '.join('?' * len(key))})"
    page = session.run(f"{select} {order}")
    while page:
        yield page
        last = page[-1]
        page = session.run(f"{select} {beyond} {order}", tuple(last[place] for place in places))
