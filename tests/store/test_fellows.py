"""Handlers beside each other on one PostgreSQL: leases, claims, words, and who takes over whom."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncewire.errors import HandlerFailed, StoreGone, StoreProblem
from oncewire.store.postgresql import fellows as fellowship
from oncewire.store.postgresql.store import PostgresStore
from oncewire.store.spool import SHARED_AGE, FileSpool
from tests.postgres import Server
from tests.store.samples import OUTSTANDING, add, prepare, row, sent
from tests.waiting import wait_until

pytestmark = pytest.mark.process

LEASE = 100.0


class Clock:
    """The steady clock of this process and the server's, both moved by hand."""

    def __init__(self, server: Server, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._server, self._url, self.now = server, url, 1000.0
        monkeypatch.setattr(fellowship, "monotonic", lambda: self.now)

    def move(self, seconds: float) -> None:
        """Time passes, for everybody."""
        self.now += seconds
        schema = self._url.rpartition("%3D")[2]
        self._server.ask(
            f"CREATE OR REPLACE FUNCTION {schema}.lease_time() RETURNS bigint LANGUAGE sql "
            f"VOLATILE RETURN {int(self.now * 1_000_000)}::bigint"
        )


@pytest.fixture
def url(postgres: Server, tmp_path: Path) -> str:
    found = postgres.new_schema()
    PostgresStore(found, node="node", spool=tmp_path / "spool").close()
    return found


@pytest.fixture
def clock(postgres: Server, url: str, monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock(postgres, url, monkeypatch)
    made.move(0)
    return made


@pytest.fixture
def pair(url: str, clock: Clock, tmp_path: Path) -> Iterator[tuple[PostgresStore, PostgresStore]]:
    made = tuple(
        PostgresStore(url, node="node", spool=tmp_path / "spool", lease=LEASE) for _ in range(2)
    )
    prepare(made[0])
    yield made[0], made[1]
    for store in made:
        store.close()


def hold(store: PostgresStore, *message_ids: str) -> None:
    """Have a handler claim to send these."""
    assert store.fellows is not None
    store.fellows.hold({"send": [("", message_id) for message_id in message_ids]})
    store.commit()


def elsewhere(store: PostgresStore) -> set[str]:
    """What others claim to send, as a turn of this one sees it."""
    assert store.fellows is not None
    with store.transition():
        return {message_id for _, message_id in store.fellows.elsewhere("send")}


def takes_over(store: PostgresStore) -> int:
    """How many others it takes over, in a turn of its own."""
    assert store.fellows is not None
    with store.transition():
        gone = store.fellows.take_over()
    store.commit()
    return gone


def test_what_one_claims_the_others_see_from_its_commit_on(
    pair: tuple[PostgresStore, PostgresStore], url: str, tmp_path: Path
) -> None:
    one, other = pair
    assert one.fellows is not None
    assert other.fellows is not None
    hold(one, "a", "b")
    assert elsewhere(other) == {"a", "b"}
    assert elsewhere(one) == set()
    one.fellows.hold({"send": [("", "b"), ("", "c")]})
    assert one.fellows.wants_turn
    assert elsewhere(other) == {"a", "b"}
    one.commit()
    assert elsewhere(other) == {"b", "c"}
    shown = other.fellows.all()
    assert [fellow.claims for fellow in shown] == [{"send": 2}, {}]
    guest = PostgresStore(url, spool=tmp_path / "spool", lease=0)
    assert elsewhere(guest) == {"b", "c"}
    hold(guest, "d")
    assert elsewhere(other) == {"b", "c"}
    guest.close()
    assert len(other.fellows.all()) == 2


def test_what_is_under_way_wakes_nobody(pair: tuple[PostgresStore, PostgresStore]) -> None:
    one, other = pair
    with one.transition() as tx:
        for number, name in enumerate("abc"):
            add(tx, sent(name, state=OUTSTANDING, next_attempt_at=number))
    one.commit()
    assert other.next_wake() == 0
    hold(one, "a")
    assert other.next_wake() == 1
    # What it claims itself it may be asked about again, unless it is under way.
    assert one.next_wake() == 0
    assert one.next_wake({"a"}) == 1
    assert other.next_wake({"b", "c"}) is None
    hold(one)
    assert other.next_wake() == 0


def test_a_claim_that_was_not_committed_is_none(
    pair: tuple[PostgresStore, PostgresStore], postgres: Server
) -> None:
    one, other = pair
    assert one._connection is not None
    with one.transition() as tx:
        add(tx, sent("m"))
    pid = one._connection.info.backend_pid
    postgres.ask(f"SELECT pg_terminate_backend({pid}, 10000)")
    with pytest.raises(StoreGone):
        hold(one, "m")
    assert elsewhere(other) == set()
    # The next commit claims it.
    one.commit()
    assert elsewhere(other) == {"m"}
    # Nor does one that lost its connection miss what was claimed meanwhile.
    hold(other, "n")
    assert elsewhere(one) == {"n"}
    one._abandon()
    hold(other, "o")
    one._abandon()
    assert elsewhere(one) == {"o"}


def test_a_lease_that_ran_out_is_taken_over_once_and_its_handler_ends(
    pair: tuple[PostgresStore, PostgresStore], clock: Clock
) -> None:
    one, other = pair
    assert one.fellows is not None
    hold(one, "a")
    clock.move(LEASE / 2)
    other.commit()
    assert one.fellows.stands
    # It stops before it can be taken over.
    clock.move(LEASE * 0.4)
    assert not one.fellows.stands
    assert takes_over(other) == 0
    clock.move(LEASE * 0.2)
    assert takes_over(other) == 1
    assert takes_over(other) == 0
    assert elsewhere(other) == set()
    with pytest.raises(StoreGone, match="taken over"), one.transition() as tx:
        add(tx, sent("late"))
    assert isinstance(one.fellows.lost, HandlerFailed)
    with other.reader() as reader:
        assert reader.outgoing("late") is None


def test_a_take_over_that_is_undone_took_nothing(
    pair: tuple[PostgresStore, PostgresStore], clock: Clock
) -> None:
    one, other = pair
    assert other.fellows is not None
    hold(one, "a")
    for _ in range(3):
        clock.move(LEASE / 2)
        other.commit()
    with other.transition():
        assert other.fellows.take_over() == 1
        assert not other.fellows.elsewhere("send")
    # It is lost before its commit.
    other._abandon()
    assert elsewhere(other) == {"a"}
    assert takes_over(other) == 1


def test_a_server_that_was_away_takes_no_work_from_anybody(
    pair: tuple[PostgresStore, PostgresStore], clock: Clock
) -> None:
    one, other = pair
    hold(one, "a")
    # Neither could renew its lease.
    clock.move(10 * LEASE)
    assert takes_over(other) == 0
    clock.move(LEASE / 2)
    assert takes_over(other) == 0
    one.commit()
    clock.move(LEASE * 0.6)
    other.commit()
    assert takes_over(other) == 0
    assert elsewhere(other) == {"a"}


def test_a_process_that_is_gone_from_this_machine_is_over_at_once(
    pair: tuple[PostgresStore, PostgresStore], url: str, tmp_path: Path
) -> None:
    code = (
        "from pathlib import Path; from oncewire.store.postgresql.store import PostgresStore as P\n"
        f"store = P({url!r}, spool=Path({str(tmp_path / 'spool')!r}), lease=100)\n"
        "store.fellows.hold({'send': [('', 'theirs')]}); store.commit(); print(1, flush=True)\n"
        "input()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        assert elsewhere(pair[0]) == {"theirs"}
        assert takes_over(pair[0]) == 0
        process.kill()
    assert takes_over(pair[0]) == 1
    assert elsewhere(pair[0]) == set()


def test_one_that_ended_leaves_its_work_to_the_next(
    pair: tuple[PostgresStore, PostgresStore],
) -> None:
    one, other = pair
    hold(one, "a")
    one.close()
    assert elsewhere(other) == {"a"}
    assert takes_over(other) == 1


def test_what_a_commit_says_the_others_hear(pair: tuple[PostgresStore, PostgresStore]) -> None:
    one, other = pair
    assert one.fellows is not None
    assert other.fellows is not None
    heard = [store.fellows.listen() for store in pair if store.fellows is not None]
    words = [("settled", f"m{number}", "delivered" * 100) for number in range(30)]
    one.fellows.tell([*words, ("large", "x" * 9000), *words])
    # A turn that changes nothing says nothing, and forgets nothing.
    with one.transition():
        pass
    with one.transition() as tx:
        tx.journal([row("submitted", "m1")])
    assert not other.fellows.heard()
    one.commit()
    assert select.select([heard[1]], [], [], 10)[0]
    found: list[tuple[str, ...]] = []
    hear = other.fellows.heard

    def all_heard() -> bool:
        found.extend(hear())
        return len(found) >= len(words)

    wait_until(all_heard)
    assert found == words
    assert not one.fellows.heard()


def test_a_store_that_is_had_alone_is_shared_with_none(
    pair: tuple[PostgresStore, PostgresStore],
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oncewire.store.postgresql.connection.OWNER_SECONDS", 1)
    with pytest.raises(StoreProblem, match="in use by another handler"):
        PostgresStore(url, spool=tmp_path / "spool")
    for store in pair:
        store.close()
    alone = PostgresStore(url, spool=tmp_path / "spool")
    with pytest.raises(StoreProblem, match="in use by another handler"):
        PostgresStore(url, spool=tmp_path / "spool", lease=1)
    alone.close()


def test_no_row_of_the_journal_is_missed_while_a_turn_stays_open(url: str, tmp_path: Path) -> None:
    """A reader goes on from the last seq it saw, while turns of three handlers are open for long
    and others commit as soon as they can."""
    code = (
        "import sys, time; from pathlib import Path\n"
        "from oncewire.store.postgresql.store import PostgresStore as P\n"
        "from tests.store.samples import row\n"
        f"store = P({url!r}, spool=Path({str(tmp_path / 'spool')!r}), lease=100)\n"
        "pause = float(sys.argv[1])\n"
        "for number in range(int(sys.argv[2])):\n"
        "    with store.transition() as tx:\n"
        "        tx.journal([row('submitted'), row('sent')]); time.sleep(pause)\n"
        "    store.commit(); time.sleep(0.002)\n"
    )
    turns = (("1.5", "3"), ("0", "300"), ("0", "300"))
    processes = [subprocess.Popen([sys.executable, "-c", code, *given]) for given in turns]
    reading = PostgresStore(url, spool=tmp_path / "spool", lease=0)
    seen: list[int] = []

    def all_read() -> bool:
        over = all(process.poll() is not None for process in processes)
        with reading.reader() as reader:
            rows = reader.journal_since(seen[-1] if seen else 0, 1000)
        seen.extend(one.seq for one in rows)
        return over

    wait_until(all_read)
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert seen == list(range(1, 2 * 603 + 1))
    reading.close()


def test_a_file_that_another_process_may_be_about_to_name_stays(tmp_path: Path) -> None:
    one, other = (FileSpool(tmp_path, shared=True) for _ in range(2))
    unfinished = one.begin()
    unfinished.write(b"half")
    name, _ = one.put([b"whole"])
    one.let_go(name)
    assert other.remove_unreferenced(set()) == 0
    FileSpool(tmp_path, shared=True)
    other_name, _ = other.put([b"whole"])
    other.give_back(other_name)
    assert unfinished.finish()[1] == 4
    path = one.path(name)
    assert path is not None
    assert path.exists()
    old = path.stat().st_mtime - SHARED_AGE - 1
    os.utime(path, (old, old))
    other.use(name)
    one.let_go(name)
    assert one.remove_unreferenced(set()) == 0
    other.let_go(name)
    os.utime(path, (old, old))
    assert one.remove_unreferenced(set()) == 1
