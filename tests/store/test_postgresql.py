"""The store on PostgreSQL: turns of several processes, lost connections, and its schema."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from oncewire.errors import (
    HandlerFailed,
    NotAllowed,
    StoreCorrupt,
    StoreGone,
    StoreProblem,
    StoreReplaced,
)
from oncewire.lab.bench import growth
from oncewire.protocol.sending import SendingChannel
from oncewire.store.postgresql import connection as connecting
from oncewire.store.postgresql.connection import check_address, place
from oncewire.store.postgresql.reader import PostgresReaders
from oncewire.store.postgresql.session import native
from oncewire.store.postgresql.store import NEXT_WAKE, PostgresStore
from oncewire.store.records import Refusal, StoreMark
from oncewire.store.sql.backend import _OLD_INCOMING, _OLD_OUTGOING
from oncewire.store.sql.origin import Migration
from oncewire.store.sqlite import connection as sqlite
from tests.examples import examples
from tests.postgres import Server
from tests.store.backends import PostgresBackend
from tests.store.samples import OUTSTANDING, add, everything, prepare, received, row, sent
from tests.store.test_side_by_side import SideBySide
from tests.waiting import wait_until

pytestmark = pytest.mark.process

STORE = Path(sqlite.__file__).parent.parent


@pytest.fixture
def backend(postgres: Server, tmp_path: Path) -> Iterator[PostgresBackend]:
    made = PostgresBackend(postgres, tmp_path)
    prepare(made.store)
    yield made
    made.close()


@pytest.fixture
def both(postgres: Server, tmp_path: Path) -> Iterator[tuple[PostgresStore, PostgresStore]]:
    """Two processes' stores in one database."""
    url, spool = postgres.new_schema(), tmp_path / "spool"
    one = PostgresStore(url, node="node", spool=spool, alone=False)
    prepare(one)
    other = PostgresStore(url, spool=spool, alone=False)
    yield one, other
    one.close()
    other.close()


# --- turns of several processes ---


def test_what_one_process_commits_the_other_decides_by(
    both: tuple[PostgresStore, PostgresStore],
) -> None:
    for number in range(6):
        mine, theirs = both[number % 2], both[1 - number % 2]
        # Both hold it in memory as it was before.
        for store in both:
            with store.transition() as tx:
                known = tx.sending_channel("c") or SendingChannel("c")
                assert known.used == number
        with mine.transition() as tx:
            add(tx, sent(f"m{number}", state=OUTSTANDING, next_attempt_at=number))
            assert tx.add_incoming(received(f"i{number}")) is None
            tx.save_sending_channel(SendingChannel("c", used=number + 1))
            tx.journal([row("submitted", f"m{number}")])
        mine.commit()
        with theirs.transition() as tx:
            known = tx.add_incoming(received(f"i{number}"))
            assert known is not None
            assert known.row == number + 1
            with pytest.raises(NotAllowed, match="submitted before"):
                add(tx, sent(f"m{number}"))
        assert theirs.next_wake() == 0
        assert not theirs.pending()
    with both[0].reader() as reader:
        assert [one.seq for one in reader.journal_since(0, 100)] == list(range(1, 7))
        assert [one.position for one in reader.outgoing_list()] == list(range(6, 0, -1))
        assert reader.counts()["in.ready"] == 6


def test_turns_of_two_processes_at_once_lose_no_number(
    both: tuple[PostgresStore, PostgresStore],
) -> None:
    def work(store: PostgresStore) -> None:
        for _ in range(20):
            with store.transition() as tx:
                before = tx.sending_channel("c") or SendingChannel("c")
                tx.save_sending_channel(SendingChannel("c", used=before.used + 1))
                tx.journal([row("submitted"), row("sent")])
            store.commit()

    threads = [threading.Thread(target=work, args=(store,)) for store in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with both[0].transition() as tx:
        assert tx.sending_channel("c") == SendingChannel("c", used=40)
    with both[1].reader() as reader:
        rows = reader.journal_since(0, 100)
    assert [one.seq for one in rows] == list(range(1, 81))
    # Those of one turn stand together.
    assert [one.kind for one in rows] == ["submitted", "sent"] * 40


def test_a_process_that_stands_still_in_its_turn_loses_it(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "HELD_SECONDS", 1)
    url = postgres.new_schema()
    still = PostgresStore(url, node="node", spool=tmp_path / "spool", alone=False)
    prepare(still)
    quick = PostgresStore(url, spool=tmp_path / "spool", alone=False)
    with still.transition() as tx:
        add(tx, sent("still"))
    # It waits for the other's turn, which the server ends.
    with quick.transition() as tx:
        add(tx, sent("quick"))
    quick.commit()
    with pytest.raises(StoreGone):
        still.commit()
    with still.transition() as tx:
        assert tx.outgoing("still") is None
        assert tx.outgoing("quick") is not None
        add(tx, sent("again"))
    still.commit()
    with quick.reader() as reader:
        assert [one.outgoing.message_id for one in reader.outgoing_list()] == ["again", "quick"]
    still.close()
    quick.close()


def test_a_turn_that_only_looks_holds_nobody_up(both: tuple[PostgresStore, PostgresStore]) -> None:
    with both[0].transition() as tx:
        assert tx.outgoing("a") is None
    assert both[0].next_wake() is None
    session = both[0]._session
    with both[1].transition() as tx:
        add(tx, sent("a"))
    both[1].commit()
    with both[0].transition() as tx:
        assert tx.outgoing("a") is not None
    # The server had no reason to end it.
    assert both[0]._session is session


def test_looks_of_one_turn_see_no_commit_between_them(
    both: tuple[PostgresStore, PostgresStore],
) -> None:
    looks, writes = both
    done = threading.Event()

    def write() -> None:
        with writes.transition() as tx:
            add(tx, sent("a"))
        writes.commit()
        done.set()

    writer = threading.Thread(target=write)
    assert looks._session is not None
    with looks.one_turn():
        before = looks._session.count
        for number in range(5):
            with looks.transition() as tx:
                assert tx.outgoing("a") is None
            if not number:
                writer.start()
        assert not done.wait(0.2)
    writer.join()
    # One to lock the row, one for the message, one to let go.
    assert looks._session.count == before + 3
    with looks.transition() as tx:
        assert tx.outgoing("a") is not None


def test_a_turn_is_two_round_trips_however_much_is_in_it(backend: PostgresBackend) -> None:
    store = backend.postgres
    names = [f"m{number}" for number in range(64)]
    for step in range(3):
        with store.transition() as tx:
            tx.expect(names)
        assert store._session is not None
        before = store._session.count
        for name in names:
            with store.transition() as tx:
                if step == 0:
                    add(tx, sent(name, state=OUTSTANDING))
                    tx.add_incoming(received(name))
                else:
                    tx.save_outgoing(sent(name, state=OUTSTANDING, attempts=step).outgoing)
                tx.journal([row("sent", name)])
        store.commit()
        if step:
            assert store._session.count - before == 2
    with store.reader() as reader:
        assert reader.counts()["out.outstanding"] == 64


def test_the_next_wake_is_found_without_reading_all_messages(backend: PostgresBackend) -> None:
    with psycopg.connect(backend.url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO message SELECT n, 'm' || n FROM generate_series(1, 20000) n"
        )
        connection.execute("ANALYZE")
        asked = f"EXPLAIN {NEXT_WAKE.replace('?', '%s')}".encode()
        plan = "\n".join(str(line) for (line,) in connection.execute(asked, ("one", '["m7"]')))
    assert "message_message_id_key" in plan
    assert "Seq Scan on message" not in plan


@pytest.mark.parametrize("statement", [_OLD_OUTGOING, _OLD_INCOMING])
def test_what_may_go_is_found_without_reading_all_messages(
    backend: PostgresBackend, statement: str
) -> None:
    with backend.store.transition() as tx:
        add(tx, sent("a"))
        tx.add_incoming(received("b"))
    backend.store.commit()
    with psycopg.connect(backend.url, autocommit=True) as connection:
        for table in ("message", "outgoing", "incoming"):
            described = connection.execute(f"SELECT * FROM {table} LIMIT 0").description or ()
            columns = [column.name for column in described]
            values = growth.copied(columns, growth.NUMBERED[table], dict.fromkeys(growth.KEYS, 2))
            connection.execute(
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)} "
                f"FROM generate_series(1, 5000) AS copy(n) CROSS JOIN {table}"
            )
        for table, state in (("outgoing", "delivered"), ("incoming", "confirmed")):
            ended = f"state = '{state}', keep_until = 10 * message"
            connection.execute(f"UPDATE {table} SET {ended}")
        connection.execute("ANALYZE")
        connection.execute("SET plan_cache_mode = force_generic_plan")
        connection.execute(f"PREPARE old AS {native(statement)}".encode())
        given = ", ".join("1" for _ in set(re.findall(r"\$\d", native(statement))))
        found = connection.execute(f"EXPLAIN EXECUTE old ({given})".encode())
        plan = "\n".join(str(line) for (line,) in found)
    assert "_keep on" in plan
    assert "Seq Scan on" not in plan.replace("Seq Scan on incident", "")


def test_one_handler_has_the_store(
    backend: PostgresBackend, monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr("oncewire.store.postgresql.connection.OWNER_SECONDS", 1)
    with pytest.raises(StoreProblem, match="in use by another handler"):
        PostgresStore(backend.url, spool=tmp_path)
    # That ends with the handler, however it ends.
    backend.crash()


# --- lost connections ---


def test_a_commit_whose_answer_is_lost_is_found_to_be_there(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = backend.postgres._session
    assert session is not None
    send = session._send

    def lose(statement: str, values: Any) -> None:
        send(statement, values)
        if statement == "COMMIT":
            backend.cut()
            send("SELECT 1", ())

    monkeypatch.setattr(session, "_send", lose)
    with backend.store.transition() as tx:
        add(tx, sent("a"))
    backend.store.commit()
    with backend.store.transition() as tx:
        assert tx.outgoing("a") is not None
        add(tx, sent("b"))
    backend.store.commit()
    assert [one.position for one in everything(backend.store)["outgoing"]] == [2, 1]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_a_server_that_was_away_is_used_again(
    backend: PostgresBackend, postgres: Server, how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    with backend.store.transition() as tx:
        add(tx, sent("kept"))
    backend.store.commit()
    with backend.store.reader() as reader:
        assert reader.last_seq() == 0
    with backend.store.transition() as tx:
        add(tx, sent("lost"))
    postgres.stop(how)
    monkeypatch.setattr("oncewire.store.postgresql.store.DOUBT_SECONDS", 0.2)
    with pytest.raises(HandlerFailed, match="check the server"):
        backend.store.commit()
    with pytest.raises(StoreGone), backend.store.transition():
        pass
    with pytest.raises(StoreGone), backend.store.reader():
        pass
    postgres.start()
    with backend.store.transition() as tx:
        assert tx.outgoing("lost") is None
        add(tx, sent("new"))
    backend.store.commit()
    found = [one.outgoing.message_id for one in everything(backend.store)["outgoing"]]
    assert found == ["new", "kept"]


def test_a_commit_waits_for_a_server_that_comes_back(
    backend: PostgresBackend, postgres: Server
) -> None:
    with backend.store.transition() as tx:
        add(tx, sent("lost"))
    postgres.stop()
    starting = threading.Thread(target=postgres.start)
    starting.start()
    with pytest.raises(StoreGone):
        backend.store.commit()
    starting.join()
    assert everything(backend.store)["outgoing"] == []


def test_an_address_is_told_without_its_password() -> None:
    store = "postgresql://me:secret@127.0.0.1:1/acme"
    with pytest.raises(StoreGone) as told:
        PostgresStore(store, node="node", spool=Path("spool"))
    assert "secret" not in str(told.value)
    assert "127.0.0.1:1/acme" in str(told.value)


@pytest.mark.parametrize("password", ["sec@ret", "sec/ret", "1/ret", "sec%ret"])
def test_a_password_that_is_written_wrongly_is_not_shown_either(password: str) -> None:
    with pytest.raises(StoreProblem, match="cannot be read") as told:
        PostgresStore(
            f"postgresql://me:{password}@127.0.0.1:1/acme", node="node", spool=Path("spool")
        )
    assert "sec" not in str(told.value)
    assert "ret" not in str(told.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://", "postgresql://"),
        ("postgres://me:a%40b@db/acme?sslmode=require", "postgres://db/acme"),
        ("postgresql://me:sec?ret@db/acme", "postgresql://db/acme"),
        ("postgresql://me@one:5432,two:5433/acme", "postgresql://one:5432,two:5433/acme"),
        ("postgresql://me:secret@[::1]:5432/acme", "postgresql://[::1]:5432/acme"),
        ("postgresql:///acme?host=/run/db&password=a@b", "postgresql:///acme"),
    ],
)
def test_what_is_shown_of_an_address(address: str, shown: str) -> None:
    check_address(address)
    assert place(address) == shown


# --- what cannot be kept ---


@pytest.mark.parametrize("bad", ["nul\0", "half \ud800", 2**63])
def test_a_value_that_cannot_be_kept_undoes_its_transition_only(
    backend: PostgresBackend, bad: Any
) -> None:
    with backend.store.transition() as tx:
        add(tx, sent("good"))
    with pytest.raises(StoreProblem), backend.store.transition() as tx:
        add(tx, sent("bad", **({"reason": bad} if isinstance(bad, str) else {"attempts": bad})))
    backend.store.commit()
    found = everything(backend.store)["outgoing"]
    assert [one.outgoing.message_id for one in found] == ["good"]


# --- the schema ---


def test_the_tables_are_those_of_sqlite(backend: PostgresBackend) -> None:
    made = apsw.Connection(":memory:")
    sqlite.migrate(made, sqlite.known_migrations())
    names = made.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    session = backend.postgres._session
    assert session is not None
    for (table,) in names:
        columns = made.execute(f"PRAGMA table_info({table})").fetchall()
        keyed = {name: (kind, bool(needed or key)) for _, name, kind, needed, _, key in columns}
        assert dict(session.columns(str(table))) == keyed, table
    assert set(session._tables) - {"journal", "migration", "handler", "claim", "spool"} == {
        name for (name,) in names
    }
    ours = session.run("SELECT indexname FROM pg_indexes WHERE schemaname = current_schema()")
    theirs = made.execute("SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")
    assert {name for (name,) in theirs.fetchall()} <= {name for (name,) in ours}


def test_two_that_migrate_at_once_do_it_once(postgres: Server) -> None:
    url = postgres.new_schema()
    steps: list[int] = []

    def migrate() -> None:
        connection = connecting.connect(url)
        steps.append(connecting.migrate(connection, url, connecting.known_migrations()))
        connection.close()

    threads = [threading.Thread(target=migrate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(steps) == [0, 0, 0, len(connecting.known_migrations())]


def test_a_store_of_a_newer_version_is_refused(backend: PostgresBackend) -> None:
    backend.store.close()
    with psycopg.connect(backend.url, autocommit=True) as beside:
        beside.execute("INSERT INTO migration VALUES (999, 'whatever it is')")
    with pytest.raises(StoreProblem, match="999"):
        PostgresStore(backend.url, spool=backend.postgres._spool_folder)
    with pytest.raises(StoreProblem, match="999"), PostgresReaders(backend.url).reader():
        pass
    # One that does not break what is here will do.
    with psycopg.connect(backend.url, autocommit=True) as beside:
        beside.execute("UPDATE migration SET breaking = NULL WHERE version = 999")
    PostgresStore(backend.url, spool=backend.postgres._spool_folder).close()
    with PostgresReaders(backend.url).reader() as reader:
        assert reader.journal_since(0, 1) == []
    with psycopg.connect(backend.url, autocommit=True) as beside:
        beside.execute("DELETE FROM migration WHERE version = 999")


def _next(script: str) -> tuple[Migration, ...]:
    """The steps that a next version would know."""
    known = connecting.known_migrations()
    return (*known, Migration(known[-1].version + 1, "099_next.sql", script))


def _migrated(url: str, migrations: tuple[Migration, ...]) -> int:
    connection = connecting.connect(url)
    try:
        return connecting.migrate(connection, url, migrations)
    finally:
        connection.close()


def test_a_step_that_adds_is_taken_while_handlers_work(postgres: Server, tmp_path: Path) -> None:
    url = postgres.new_schema()
    store = PostgresStore(url, node="node", spool=tmp_path, lease=60)
    prepare(store)
    with store.transition() as tx:
        add(tx, sent("before"))
    store.commit()
    new = "ALTER TABLE outgoing ADD COLUMN colour text; ALTER TABLE counter ADD COLUMN more bigint;"
    assert _migrated(url, _next(new)) == 1
    with store.transition() as tx:
        add(tx, sent("after"))
        assert tx.outgoing("before") is not None
    store.commit()
    # Also after it has lost its connection.
    postgres.ask(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    )
    with pytest.raises(StoreGone), store.transition() as tx:
        add(tx, sent("again"))
    with store.transition() as tx:
        add(tx, sent("again"))
    store.commit()
    found = [one.outgoing.message_id for one in everything(store)["outgoing"]]
    assert sorted(found) == ["after", "again", "before"]
    store.close()


def test_a_step_that_breaks_waits_until_nobody_of_an_older_version_is_there(
    postgres: Server, tmp_path: Path
) -> None:
    url = postgres.new_schema()
    store = PostgresStore(url, node="node", spool=tmp_path, lease=60)
    prepare(store)
    new = _next("-- Breaking: colours are needed\nALTER TABLE outgoing RENAME COLUMN held TO hold;")
    with pytest.raises(StoreProblem, match=r"older version.*099_next.*colours are needed"):
        _migrated(url, new)
    with store.transition() as tx:
        add(tx, sent("working"))
    store.commit()
    store.close()
    assert _migrated(url, new) == 1
    with pytest.raises(StoreProblem, match="this Oncewire knows up to"):
        PostgresStore(url, spool=tmp_path, lease=60)


def test_a_step_takes_its_turn_among_turns(postgres: Server, tmp_path: Path) -> None:
    """A turn that has begun is not torn from its tables."""
    url = postgres.new_schema()
    store = PostgresStore(url, node="node", spool=tmp_path, lease=60)
    prepare(store)
    with store.transition() as tx:
        tx.journal([row("sent")])
        done: list[int] = []
        new = _next("ALTER TABLE outgoing ADD COLUMN colour text; TABLE counter;")
        step = threading.Thread(target=lambda: done.append(_migrated(url, new)))
        step.start()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        wait_until(lambda: postgres.ask(waiting) != [(0,)])
        assert tx.outgoing("nothing") is None
        add(tx, sent("in the middle"))
    store.commit()
    step.join()
    assert done == [1]
    assert len(everything(store)["outgoing"]) == 1
    store.close()


def test_tables_of_others_are_left_alone(postgres: Server, tmp_path: Path) -> None:
    url = postgres.new_schema()
    with psycopg.connect(url, autocommit=True) as beside:
        beside.execute("CREATE TABLE counter (visitors bigint)")
    with pytest.raises(StoreProblem, match="another program"):
        PostgresStore(url, node="node", spool=tmp_path)


def test_a_store_that_is_not_the_marked_one_is_refused(postgres: Server, tmp_path: Path) -> None:
    noted: list[StoreMark] = []
    urls = [postgres.new_schema() for _ in range(2)]
    for url in urls:
        store = PostgresStore(url, node="node", spool=tmp_path, note=noted.append)
        with store.transition() as tx:
            tx.journal([row("started")])
        store.commit()
        store.close()
    known = noted[-1]
    assert known.journal == 1
    PostgresStore(urls[1], spool=tmp_path, known=known).close()
    with pytest.raises(StoreReplaced, match="another store"):
        PostgresStore(urls[0], spool=tmp_path, known=known)
    with pytest.raises(StoreReplaced, match="is empty"):
        PostgresStore(postgres.new_schema(), spool=tmp_path, known=known)


def put_back(server: Server, kept: Path) -> None:
    """Have the server be as when its files were copied, as a standby is that lags behind."""
    server.stop()
    shutil.rmtree(server._data)
    kept.rename(server._data)
    server.start()


def keep_files(server: Server) -> Path:
    """Copy the files of the server."""
    kept = server._data.with_name("kept")
    server.stop()
    subprocess.run(["cp", "-a", server._data, kept], check=True)
    server.start()
    return kept


def write(store: PostgresStore, kind: str = "started") -> None:
    """Commit a row of the journal."""
    with store.transition() as tx:
        tx.journal([row(kind)])
    store.commit()


@pytest.mark.parametrize("other_wrote_on", [False, True])
def test_a_server_that_lacks_the_last_commits_is_refused_by_who_made_them(
    postgres: Server, tmp_path: Path, *, other_wrote_on: bool
) -> None:
    noted: list[StoreMark] = []
    url, spool = postgres.new_schema(), tmp_path / "spool"
    store = PostgresStore(url, node="node", spool=spool, note=noted.append, lease=15)
    write(store)
    kept = keep_files(postgres)
    with pytest.raises(StoreGone):
        write(store)
    for _ in range(3):
        write(store)
    put_back(postgres, kept)
    if other_wrote_on:
        other = PostgresStore(url, spool=spool, alone=False)
        for _ in range(5):
            write(other, "stopped")
        other.close()
    with pytest.raises(StoreGone):
        write(store)
    # Whoever starts it again is refused too, however young its last commits were.
    assert noted[-1].journal == 4
    said = "another history" if other_wrote_on else "older than what was done"
    for _ in range(2):
        with pytest.raises(StoreReplaced, match=said):
            write(store)
    with pytest.raises(StoreReplaced, match=said):
        PostgresStore(url, spool=spool, known=noted[-1])
    store.close()


def test_a_server_that_lacks_what_a_handler_saw_of_others_is_refused(
    postgres: Server, both: tuple[PostgresStore, PostgresStore]
) -> None:
    one, other = both
    kept = keep_files(postgres)
    for store in both:
        with pytest.raises(StoreGone):
            write(store)
    write(one)
    with other.transition():
        pass
    put_back(postgres, kept)
    with pytest.raises(StoreGone):
        write(other)
    with pytest.raises(StoreReplaced, match="older than what was seen of it"):
        write(other)


def test_the_mark_is_of_the_last_commit_though_a_step_over_many_rows_was_undone(
    postgres: Server, tmp_path: Path
) -> None:
    noted: list[StoreMark] = []
    url, spool = postgres.new_schema(), tmp_path / "spool"
    store = PostgresStore(url, node="node", spool=spool, note=noted.append)
    write(store)
    with store.transition() as tx:
        tx.journal([row("stopped")])
    with suppress(ValueError), store.transition() as tx:
        tx.count_refusals([Refusal("OtherXml", "192.0.2.1", 1, 1, 1)])
        raise ValueError
    store.commit()
    store._connection.close()  # type: ignore[union-attr]
    with pytest.raises(StoreGone):
        write(store)
    assert noted[-1].journal == 2
    store.close()


def test_a_store_without_its_counters_is_damaged(
    backend: PostgresBackend, postgres: Server
) -> None:
    backend.postgres._connection.execute("DELETE FROM counter")  # type: ignore[union-attr]
    with pytest.raises(StoreCorrupt, match="row of counters is gone"):
        write(backend.postgres)


def test_a_server_that_does_not_write_to_its_disk_is_refused(
    postgres: Server, tmp_path: Path
) -> None:
    url = postgres.new_schema()
    postgres.ask("ALTER SYSTEM SET fsync = off")
    postgres.ask("SELECT pg_reload_conf()")
    wait_until(lambda: postgres.ask("SELECT current_setting('fsync')") == [("off",)])
    try:
        with pytest.raises(StoreProblem, match="fsync is off"):
            PostgresStore(url, node="node", spool=tmp_path)
    finally:
        postgres.ask("ALTER SYSTEM RESET fsync")
        postgres.ask("SELECT pg_reload_conf()")
        wait_until(lambda: postgres.ask("SELECT current_setting('fsync')") == [("on",)])


def test_without_its_driver_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreProblem, match=re.escape("pip install 'oncewire[postgres]'")):
        PostgresStore("postgresql:///acme", node="node", spool=tmp_path)


def test_no_statement_reads_a_clock() -> None:
    clock = re.compile(
        r"\b(now|clock_timestamp|statement_timestamp|datetime|strftime|unixepoch)\s*\("
        r"|\bcurrent_(time|date|timestamp)\b|\blocaltime(stamp)?\b",
        re.IGNORECASE,
    )
    files = [path for path in STORE.rglob("*") if path.suffix in (".py", ".sql")]
    assert len(files) > 30
    # Leases alone run by the server's clock, which one function tells.
    found = {path.name: len(clock.findall(path.read_text())) for path in files}
    assert {name: count for name, count in found.items() if count} == {"002_beside.sql": 1}


# --- the same as the store in memory ---


def test_it_does_what_the_store_in_memory_does(postgres: Server) -> None:
    class Beside(SideBySide):
        def __init__(self) -> None:
            super().__init__()
            self.backends[1].close()
            self.backends[1] = PostgresBackend(postgres, self.folder)

    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    run_state_machine_as_test(
        Beside,
        settings=settings(
            max_examples=examples(8), stateful_step_count=20, suppress_health_check=slow
        ),
    )
