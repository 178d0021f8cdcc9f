"""What only SQLite has: its owner, its settings, its connections and its file."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from oncewire.errors import JournalProblem, StoreGone, StoreProblem
from oncewire.journal.row import COLUMNS, JOURNAL_VERSION
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import Incoming, Outgoing
from oncewire.store.sql import backend as sql_backend
from oncewire.store.sql import reader as sql_reader
from oncewire.store.sql.rows import (
    DOCUMENT,
    FACTS,
    INCIDENT,
    INCOMING,
    INCOMING_FACTS,
    OUTGOING,
    RECEIVING,
    REFUSAL,
    SENDING,
)
from oncewire.store.sqlite import reader as sqlite_reader
from oncewire.store.sqlite import store as sqlite
from oncewire.store.sqlite.connection import check_version
from oncewire.store.sqlite.reader import SqliteReaders
from oncewire.store.sqlite.store import SqliteStore
from oncewire.store.transition import tables, work
from tests.house_rules import modules_pulled
from tests.parts import ROOT
from tests.store.samples import (
    CONFIRMED,
    DELIVERED,
    add,
    everything,
    parcel,
    prepare,
    received,
    row,
    sent,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def _connection(store: SqliteStore) -> apsw.Connection:
    assert store._connection is not None
    return store._connection


# --- opening ---


def test_a_store_belongs_to_one_node(path: Path) -> None:
    SqliteStore(path, node="a").close()
    with pytest.raises(StoreProblem, match="belongs to node a, not to b"):
        SqliteStore(path, node="b")
    store = SqliteStore(path)
    assert store.node() == "a"
    store.close()


def test_without_a_name_no_store_is_made(path: Path) -> None:
    with pytest.raises(StoreProblem, match="no store at"):
        SqliteStore(path)
    assert list(path.parent.iterdir()) == []
    path.touch()
    with pytest.raises(StoreProblem, match="no node yet"):
        SqliteStore(path)
    SqliteStore(path, node="a").close()


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreProblem, match="cannot be opened") as caught:
        SqliteStore(tmp_path / "missing" / "store.db", node="a")
    assert "folder that exists" in caught.value.remedy


@pytest.mark.process
def test_one_process_owns_the_writer(path: Path) -> None:
    store = SqliteStore(path, node="a")
    with pytest.raises(StoreProblem, match=f"process {os.getpid()}") as caught:
        SqliteStore(path, node="a")
    assert "stop that process" in caught.value.remedy
    program = (
        "import sys, pathlib\n"
        "from oncewire.store.sqlite.store import SqliteStore\n"
        "SqliteStore(pathlib.Path(sys.argv[1]), node='a')\n"
    )
    other = subprocess.run(
        [sys.executable, "-c", program, str(path)], cwd=ROOT, capture_output=True, text=True
    )
    assert other.returncode == 1
    assert f"in use by another handler (process {os.getpid()})" in other.stderr
    store.close()
    store.close()
    SqliteStore(path, node="a").close()


def test_a_failed_opening_frees_the_store(path: Path) -> None:
    SqliteStore(path, node="a").close()
    for _ in range(2):
        with pytest.raises(StoreProblem, match="belongs"):
            SqliteStore(path, node="b")
    SqliteStore(path, node="a").close()


def test_nobody_else_may_read_the_files(path: Path) -> None:
    store = SqliteStore(path, node="a")
    prepare(store)
    store.spool.put([b"x"])
    for file in path.parent.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file
    store.close()


def test_the_spool_may_lie_elsewhere(path: Path, tmp_path: Path) -> None:
    store = SqliteStore(path, node="a", spool=tmp_path / "elsewhere")
    name, _ = store.spool.put([b"x"])
    assert (tmp_path / "elsewhere" / name).exists()
    store.close()


@pytest.mark.requirement("STO-1", "STO-2")
def test_the_writer_is_durable_at_every_commit(path: Path) -> None:
    store = SqliteStore(path, node="a")
    connection = _connection(store)
    assert connection.pragma("journal_mode") == "wal"
    assert connection.pragma("synchronous") == 2
    assert connection.pragma("foreign_keys") == 1
    assert connection.pragma("cache_spill") == 0
    store.close()


def test_a_log_that_cannot_be_used_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The name is also that of a file beside it.
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreProblem, match="write-ahead log"):
        SqliteStore(Path(":memory:"), node="a")


@pytest.mark.parametrize("text", ["3.40.1", "3.51.2", "3.52.0", "3.52.9"])
def test_a_sqlite_that_can_damage_its_log_is_refused(text: str) -> None:
    with pytest.raises(StoreProblem, match="can damage"):
        check_version(text)


@pytest.mark.parametrize("text", ["3.51.3", "3.51.10", "3.53.0", "3.54.1", "4.0.0"])
def test_a_sqlite_without_that_fault_is_taken(text: str) -> None:
    check_version(text)


def test_a_journal_of_another_version_is_refused(path: Path) -> None:
    SqliteStore(path, node="a").close()
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE node SET journal_version = 99")
    connection.close()
    with pytest.raises(JournalProblem, match="99"):
        SqliteStore(path, node="a")


# --- columns ---


def _columns(connection: apsw.Connection, table: str) -> list[str]:
    return [name for _, name, *_ in connection.execute(f"PRAGMA table_info('{table}')")]


def test_no_field_of_a_value_is_forgotten(path: Path) -> None:
    assert OUTGOING.names == Outgoing.__struct_fields__[1:]
    assert INCOMING.names == Incoming.__struct_fields__[2:]
    store = SqliteStore(path, node="a")
    connection = _connection(store)
    assert {*OUTGOING.names, *FACTS.names} < {*_columns(connection, "outgoing")}
    assert {*INCOMING.names, *INCOMING_FACTS.names} < {*_columns(connection, "incoming")}
    assert list(SENDING) == _columns(connection, "sending_channel")
    assert list(RECEIVING.names) == _columns(connection, "receiving_channel")
    assert list(INCIDENT.names) == _columns(connection, "incident")
    assert list(REFUSAL.names) == _columns(connection, "refusal")
    assert {*DOCUMENT.names, "keep_until"} == {*_columns(connection, "document")}
    assert list(COLUMNS) == _columns(connection, "journal")
    store.close()


def test_the_journal_can_be_read_with_any_sqlite(path: Path) -> None:
    store = SqliteStore(path, node="a")
    with store.transition() as transaction:
        transaction.journal([row("started"), row("submitted", "m1", at=5)])
    store.commit()
    other = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    rows = other.execute(f"SELECT {', '.join(COLUMNS)} FROM journal ORDER BY seq").fetchall()
    with store.reader() as reader:
        assert rows == [tuple(one) for one in reader.journal_since(0, 10)]
    assert other.execute("SELECT name, journal_version FROM node").fetchall() == [
        ("a", JOURNAL_VERSION)
    ]
    other.close()
    store.close()


def test_nothing_that_is_asked_often_scans_or_sorts(path: Path) -> None:
    store = SqliteStore(path, node="a")
    prepare(store)
    asked: dict[str, Any] = {}
    connection = _connection(store)

    def note(_cursor: Any, statement: str, bindings: Any) -> bool:
        if statement.startswith(("SELECT", "DELETE", "UPDATE")):
            asked[statement] = bindings
        return True

    store._session.cursor.exec_trace = note
    with store.transition() as transaction:
        transaction.due(1, 10)
        transaction.expired(1, 10)
        transaction.waiting("c", 10)
        transaction.notices_owed(10)
        transaction.answers_owed(10)
        transaction.answers_overdue(1, 10)
        transaction.journal([row("received", "a")])
        transaction.removed("a")
        transaction.responses_to("a", "b")
        transaction.outgoing("a")
        transaction.incoming("b", "a")
        transaction.sweep(1, 10)
        transaction.ready(1, 10)
        transaction.trim_journal(1, 1)
        transaction.save_sending_channel(SendingChannel("c").suspend("trouble"))
        transaction.resolve_incidents(1, "a", "c")
        transaction.hold("a", True)
    store.next_wake()
    store._session.cursor.exec_trace = None
    with store.reader() as reader:
        reader._run.args[0].exec_trace = note  # type: ignore[attr-defined]
        reader.journal_since(0, 10)
        reader.journal_of("a")
        reader.incoming_list(states=[CONFIRMED])
        reader.outgoing_list(states=[DELIVERED])
        reader.outgoing("a")
        reader.outgoing_parcel("a")
        reader.incoming("a")
        reader.on_hold("a")
        reader.removed("a")
        reader.last_removal()
        reader.spooled()
    assert len(asked) > 20
    for statement, bindings in asked.items():
        steps = connection.execute(f"EXPLAIN QUERY PLAN {statement}", bindings).fetchall()
        plan = " / ".join(str(step[3]) for step in steps)
        # A subquery of a list reads its own few rows, an index of spooled files or of open
        # incidents only those, and the counter is one row.
        few = "\\(subquery|\\w+ USING COVERING INDEX \\w+_spooled|CONSTANT ROW|json_each|counter"
        few = f"(?!{few}|parts?\\b|incident USING INDEX incident_)"
        assert not re.search(f"SCAN {few}", plan), f"{statement}\n{plan}"
    store.close()


# --- connections ---


def test_a_process_that_does_not_own_the_store_can_read_it(path: Path) -> None:
    store = SqliteStore(path, node="a")
    prepare(store)
    readers = SqliteReaders(path)
    with readers.reader() as reader:
        assert reader.last_seq() == 0
    with store.transition() as transaction:
        transaction.journal([row("started")])
    store.commit()
    with readers.reader() as reader:
        assert reader.last_seq() == 1
        with pytest.raises(StoreGone, match="readonly"):
            reader._run("DELETE FROM journal_row", ())  # type: ignore[attr-defined]
    store.close()
    with readers.reader() as reader:
        assert reader.last_seq() == 1
    readers.close()


def test_there_is_nothing_to_read_where_no_store_is(path: Path) -> None:
    with pytest.raises(StoreGone), SqliteReaders(path).reader():
        pass


def test_views_are_few_and_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_reader, "READERS", 2)
    monkeypatch.setattr(sqlite_reader, "BUSY_TIMEOUT", 10)
    store = SqliteStore(path, node="a")
    views = [store.reader(), store.reader()]
    for view in views:
        view.__enter__()
    with pytest.raises(StoreGone, match="2 views"), store.reader():
        pass
    for view in views:
        view.__exit__(None, None, None)
    with store.reader(), store.reader():
        pass
    assert len(store._readers._idle) == 2
    view = store.reader()
    view.__enter__()
    store.close()
    # A view that outlives the store closes its own connection.
    view.__exit__(None, None, None)
    assert store._readers._idle == []


def test_the_log_is_copied_into_the_database_when_it_has_grown(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "CHECKPOINT_PAGES", 20)
    store = SqliteStore(path, node="a")
    prepare(store)
    log = path.with_name("store.db-wal")

    def write(name: str) -> None:
        with store.transition() as transaction:
            add(transaction, sent(name))
        store.commit()

    for number in range(40):
        write(f"a{number}")
    assert log.stat().st_size < 80 * 4200
    # A view holds it back; afterwards it is recycled again.
    with store.reader() as reader:
        for number in range(40):
            write(f"b{number}")
        held_back = log.stat().st_size
        assert held_back > 40 * 4200
        assert len(reader.outgoing_list()) == 40
    for number in range(40):
        write(f"c{number}")
    # Its file does not shrink at once, but it is written from the beginning again.
    assert log.stat().st_size < held_back + 20 * 4200
    assert store._session.pages < 60
    assert everything(store)["counts"]["out.waiting"] == 120
    store.close()


@pytest.mark.long
def test_a_writer_outside_is_waited_for_and_then_refused(path: Path) -> None:
    store = SqliteStore(path, node="a")
    prepare(store)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    _connection(store).set_busy_timeout(0)
    with store.transition() as transaction:
        add(transaction, sent("a"))
    with pytest.raises(StoreGone, match="locked"):
        store.commit()
    other.execute("ROLLBACK")
    with store.transition() as transaction:
        add(transaction, sent("a"))
    store.commit()
    other.close()
    store.close()


# --- what is remembered ---


def test_a_value_that_cannot_be_kept_undoes_its_transition_only(path: Path) -> None:
    store = SqliteStore(path, node="a")
    prepare(store)
    with store.transition() as transaction:
        add(transaction, sent("a"))
    for odd in (2**70, "text", None):
        with pytest.raises(StoreProblem, match="cannot be kept"), store.transition() as transaction:
            add(transaction, sent("b", submitted_at=100, attempts=odd))
    with pytest.raises(StoreProblem, match="cannot be kept"), store.transition() as transaction:
        transaction.journal([row("started", "\ud800")])
    store.commit()
    assert everything(store)["counts"]["out.waiting"] == 1
    store.close()


def test_memory_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REMEMBERED", "LIVE_MAX"):
        monkeypatch.setattr(work, name, 3)
    monkeypatch.setattr(sql_backend, "REMEMBERED", 3)
    monkeypatch.setattr(tables, "BYTES_MAX", 3_000)
    store = SqliteStore(path, node="a")
    prepare(store)
    for number in range(10):
        with store.transition() as transaction:
            transaction.add_outgoing(sent(f"m{number}"), parcel=parcel(bytes(1_000)), draft=None)
            transaction.add_incoming(received(f"r{number}", body=parcel(bytes(1_000))))
            transaction.save_sending_channel(SendingChannel(f"c{number}"))
            transaction.save_receiving_channel(ReceivingChannel(f"c{number}"))
        store.commit()
    held = store._work
    assert held is not None
    for table in (held.outgoing, held.incoming, held.sending, held.receiving):
        assert 0 < len(table.rows) <= 3
    assert len(store._work.backend._numbers._known) <= 3
    assert len(held.bytes.outgoing.rows) + len(held.bytes.incoming.rows) <= 3
    with store.transition() as transaction:
        assert transaction.outgoing("m0") is not None
        assert transaction.outgoing_parcel("m0") == parcel(bytes(1_000))
        assert len(transaction.ready(1, 100)) == 10
        assert transaction.sending_channel("c0") == SendingChannel("c0")
        assert transaction.receiving_channel("c0") == ReceivingChannel("c0")
    store.close()


def test_a_name_goes_when_nothing_has_it_any_more(path: Path) -> None:
    store = SqliteStore(path, node="a")
    prepare(store)
    with store.transition() as transaction:
        add(transaction, sent("a", state=DELIVERED))
        transaction.add_incoming(received("b", state=CONFIRMED))
        transaction.journal([row("submitted", "a"), row("received", "b"), row("refused", "c")])
    store.commit()

    def names() -> list[str]:
        rows = _connection(store).execute("SELECT message_id FROM message ORDER BY 1")
        return [str(name) for (name,) in rows]

    assert names() == ["a", "b", "c"]
    with store.transition() as transaction:
        transaction.trim_journal(10, 10)
    assert names() == ["a", "b"]
    with store.transition() as transaction:
        transaction.sweep(10**18, 10)
    assert names() == []
    store.commit()
    store.close()


# --- imports ---


@pytest.mark.process
def test_the_contract_needs_no_database() -> None:
    modules = "contract, records, memory.store, spool, sqlite.store, sqlite.reader"
    code = "\n".join(f"import oncewire.store.{name.strip()}" for name in modules.split(","))
    assert modules_pulled(code, {"apsw", "psycopg", "sqlite3"}) == set()
