"""Schema versions: a migrated store is a fresh one, and a half-done step leaves no trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from oncewire.errors import StoreGone, StoreProblem
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import OutgoingState, Phase, Proof
from oncewire.store.records import SpoolSlice, StoredParcel
from oncewire.store.sqlite import connection as migrate_module
from oncewire.store.sqlite import reader as sqlite_reader
from oncewire.store.sqlite import store as sqlite
from oncewire.store.sqlite.connection import (
    APPLICATION_ID,
    Migration,
    connect,
    known_migrations,
    migrate,
)
from oncewire.store.sqlite.reader import SqliteReaders
from oncewire.store.sqlite.store import SqliteStore
from tests.store.empty_store import migrate_or_copy
from tests.store.samples import add, everything, prepare, received, row, sent

FIRST = known_migrations()[-1].version
NEXT = Migration(
    FIRST + 1,
    "next",
    """
    CREATE TABLE note (id INTEGER PRIMARY KEY, words TEXT NOT NULL) STRICT;
    ALTER TABLE outgoing ADD COLUMN colour TEXT NOT NULL DEFAULT 'plain';
    CREATE INDEX outgoing_colour ON outgoing (colour) WHERE colour <> 'plain';
    INSERT INTO note (words) SELECT message_id FROM journal ORDER BY seq;
    """,
)
"""A step that does not exist, from a version that is thus an older one."""


def _schema(connection: apsw.Connection) -> list[Any]:
    tables = [
        (name, connection.execute(f"PRAGMA table_xinfo('{name}')").fetchall())
        for (name,) in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') ORDER BY name"
        )
    ]
    parts = connection.execute("SELECT type, name, tbl_name FROM sqlite_schema ORDER BY 1, 2, 3")
    return [*tables, *parts, connection.pragma("user_version"), connection.pragma("application_id")]


def test_versions_are_numbered_without_gaps() -> None:
    migrations = known_migrations()
    assert [step.version for step in migrations] == list(range(1, len(migrations) + 1))
    assert all(step.name.startswith(f"{step.version:03d}_") for step in migrations)


def test_the_copy_that_tests_open_is_a_migrated_store(tmp_path: Path) -> None:
    migrated, copied = (connect(tmp_path / name, None) for name in ("migrated.db", "copied.db"))
    assert migrate(migrated, known_migrations()) == FIRST
    assert migrate_or_copy(copied, known_migrations()) == FIRST
    assert _schema(copied) == _schema(migrated)
    assert copied.pragma("journal_mode") == "wal"
    assert migrate_or_copy(copied, known_migrations()) == 0
    # What is not the whole way from nothing goes the real one.
    assert migrate_or_copy(copied, (*known_migrations(), NEXT)) == 1
    copied.close()
    migrated.close()


@pytest.mark.long
def test_every_older_version_becomes_a_fresh_one(tmp_path: Path) -> None:
    steps = (*known_migrations(), NEXT)
    fresh = apsw.Connection(str(tmp_path / "fresh.db"))
    assert migrate(fresh, steps) == len(steps)
    for older in range(len(steps)):
        connection = apsw.Connection(str(tmp_path / f"{older}.db"))
        if older:
            migrate(connection, steps[:older])
        assert connection.pragma("user_version") == older
        assert migrate(connection, steps) == len(steps) - older
        assert _schema(connection) == _schema(fresh)
        assert migrate(connection, steps) == 0


def test_an_older_store_keeps_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path, node="node")
    prepare(store)
    with store.transition() as transaction:
        add(transaction, sent("a"))
        transaction.add_incoming(received("b"))
        transaction.journal([row("submitted", "a"), row("received", "b")])
    store.commit()
    before = everything(store)
    store.close()
    for module in (sqlite, sqlite_reader):
        monkeypatch.setattr(module, "known_migrations", lambda: (*known_migrations(), NEXT))
    # A process that only reads cannot bring it up to date.
    with pytest.raises(StoreProblem, match="older version"), SqliteReaders(path).reader():
        pass
    store = SqliteStore(path, node="node")
    assert everything(store) == before
    assert store._connection is not None
    words = store._connection.execute("SELECT words FROM note ORDER BY id").fetchall()
    assert words == [("a",), ("b",)]
    store.close()


def as_of(version: int, newer: Path, older: Path) -> None:
    """A store of an older version with the content of a newer one, as far as it has place."""
    connection = apsw.Connection(str(older))
    migrate(connection, known_migrations()[:version])
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("ATTACH ? AS newer", (str(newer),))
    tables = connection.execute("SELECT name FROM main.sqlite_schema WHERE type = 'table'")
    for (table,) in tables.fetchall():
        columns = connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
        names = ", ".join(f'"{name}"' for (name,) in columns)
        connection.execute(f"DELETE FROM main.{table}")
        connection.execute(f"INSERT INTO main.{table} ({names}) SELECT {names} FROM newer.{table}")
    connection.close()


def test_a_store_of_the_first_version_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    large = StoredParcel("text/xml", (), (b"head", SpoolSlice("a" * 64, 0, 9)))
    store = SqliteStore(tmp_path / "newer.db", node="node")
    prepare(store)
    with store.transition() as transaction:
        done = sent("a", state=OutgoingState.DELIVERED)
        transaction.add_outgoing(done, parcel=large, draft=None)
        transaction.add_incoming(received("b", body=large))
        transaction.save_sending_channel(SendingChannel("c", epoch=2, phase=Phase.RUNNING))
        transaction.save_receiving_channel(ReceivingChannel("c", epoch=2))
        transaction.journal([row("submitted", "a"), row("received", "b")])
    store.commit()
    store.close()
    as_of(1, tmp_path / "newer.db", path)
    store = SqliteStore(path, node="node")
    with store.reader() as reader:
        # What this version did not note yet is not made up.
        proved = replace(done.outgoing, proved_by=Proof.TO_PARTY)
        assert reader.outgoing("a") == replace(done, outgoing=proved, position=1)
        assert [one.agreement_id for one in reader.incoming("b")] == [None]
        assert reader.channels() == (
            [SendingChannel("c", epoch=2, phase=Phase.RUNNING)],
            [ReceivingChannel("c", epoch=2)],
        )
    with store.reader() as reader:
        assert reader.outgoing_parcel("a") == large
        assert reader.spooled() == {"a" * 64}
    with store.transition() as transaction:
        assert transaction.sweep(10**18, 10) == 1
        assert [one.message_id for one in transaction.removed("a")] == ["a"]
    store.commit()
    store.close()


@pytest.mark.requirement("HOP-9")
def test_a_store_that_did_not_ask_who_proved_an_outcome_learns_it_from_its_journal(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path / "newer.db", node="node")
    prepare(store)
    told = {"a": '{"by":"ack"}', "b": '{"by":"ack","hop":true}', "c": '{"by":"transport"}'}
    with store.transition() as transaction:
        for name, detail in told.items():
            add(transaction, sent(name, state=OutgoingState.DELIVERED))
            transaction.journal([row("acknowledged", name)._replace(detail=detail)])
        add(transaction, sent("d", state=OutgoingState.DELIVERED))
        add(transaction, sent("e", state=OutgoingState.UNKNOWN))
        add(transaction, sent("f"))
    store.commit()
    store.close()
    as_of(2, tmp_path / "newer.db", tmp_path / "store.db")
    store = SqliteStore(tmp_path / "store.db", node="node")
    with store.transition() as transaction:
        found = {name: transaction.outgoing(name) for name in "abcdef"}
    proofs = {name: one and one.outgoing.proved_by for name, one in found.items()}
    hop, to_party = Proof.HOP, Proof.TO_PARTY
    assert proofs == {"a": to_party, "b": hop, "c": hop, "d": to_party, "e": None, "f": None}
    assert [one and one.outgoing.failures for one in found.values()] == [0, 0, 0, 0, 1, 0]
    store.close()


@pytest.mark.requirement("HOP-9")
def test_a_store_that_did_not_note_reports_learns_of_them_from_its_journal(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "newer.db", node="node")
    prepare(store)
    reports = {"a": "warned", "b": "rejected", "c": "acknowledged", "d": "warned", "e": "warned"}
    with store.transition() as transaction:
        for name, kind in reports.items():
            code = "OtherXml" if name == "d" else "DeliveryFailure"
            transaction.journal([row(kind, name)._replace(detail=f'{{"code":"{code}"}}')])
        for name in "abcd":
            add(transaction, sent(name))
        proved = sent("e", state=OutgoingState.DELIVERED)
        proved = replace(proved, outgoing=replace(proved.outgoing, proved_by=Proof.TO_PARTY))
        add(transaction, proved)
    store.commit()
    store.close()
    as_of(11, tmp_path / "newer.db", tmp_path / "store.db")
    store = SqliteStore(tmp_path / "store.db", node="node")
    with store.transition() as transaction:
        found = [transaction.outgoing(name) for name in "abcde"]
    assert [one and one.outgoing.taken_back for one in found] == [True, True, False, False, False]
    store.close()


def test_a_step_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "store.db"))
    migrate(connection, known_migrations())
    before = _schema(connection)
    broken = Migration(FIRST + 1, "broken", NEXT.script + "CREATE TABLE note (id);")
    with pytest.raises(apsw.SQLError):
        migrate(connection, (*known_migrations(), broken))
    assert _schema(connection) == before


def test_a_store_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    SqliteStore(path, node="node").close()
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", FIRST + 1)
    connection.close()
    with pytest.raises(StoreProblem, match=f"version {FIRST + 1}"):
        SqliteStore(path, node="node")
    with pytest.raises(StoreProblem, match=f"version {FIRST + 1}"), SqliteReaders(path).reader():
        pass


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    with pytest.raises(StoreProblem, match="another program"):
        SqliteStore(path, node="node")
    connection = apsw.Connection(str(path))
    assert connection.pragma("application_id") == 0
    assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_bytes(b"Dear customer, " * 1000)
    with pytest.raises(StoreGone, match="not a database"):
        SqliteStore(path, node="node")
    assert path.read_bytes() == b"Dear customer, " * 1000


def test_the_file_says_whose_it_is(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    SqliteStore(path, node="node").close()
    assert path.read_bytes()[68:72] == APPLICATION_ID.to_bytes(4, "big") == b"ONCW"
    assert migrate_module.APPLICATION_ID == APPLICATION_ID
