"""A handler that fails ends and says so; one that hangs is not called running."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncewire.entry.running.open_party import open_party_blocking
from tests.entry.driven import Driven, Manager, ask
from tests.entry.served import Served
from tests.waiting import wait_until

pytestmark = pytest.mark.process

Start = Callable[..., Driven]


@pytest.fixture
def start(pair: Path) -> Iterator[Start]:
    """Starts the handler of a party, by its name."""
    found: list[Driven] = []

    def begin(name: str, fault: str = "", **environ: str) -> Driven:
        found.append(Driven(pair / name, fault, **environ))
        return found[-1]

    yield begin
    for one in found:
        one.close()


IN_A_LOOP = {
    "the timers": """
        from oncewire.handler.runtime.engine import Engine
        looks = []
        real = Engine.tick
        def tick(self):
            looks.append(1)
            if len(looks) > 2:
                raise {fault}
            real(self)
        Engine.tick = tick
        Engine.rest = lambda self: 0
    """,
    "a commit": """
        from oncewire.handler.runtime.engine import Engine
        commits = []
        real = Engine.commit
        def commit(self):
            commits.append(1)
            if len(commits) == 8:
                raise {fault}
            return real(self)
        Engine.commit = commit
        Engine.rest = lambda self: 0
    """,
    "a loop beside": """
        from oncewire.handler.runtime import commit_loop as pulse
        async def run(self):
            import asyncio
            await asyncio.sleep(1)
            raise {fault}
        pulse.Pulse.run = run
    """,
}


@pytest.mark.parametrize(
    ("where", "fault"),
    [
        ("the timers", "MemoryError()"),
        ("a commit", "KeyError('a fault of ours')"),
        ("a loop beside", "MemoryError()"),
    ],
)
def test_a_fault_in_a_loop_ends_the_process_with_an_incident(
    start: Start, pair: Path, where: str, fault: str
) -> None:
    driven = start("acme", IN_A_LOOP[where].format(fault=fault))
    assert driven.ended() == 70
    # Once, with its trace, and nothing of it is raw.
    (said,) = driven.lines("critical")
    assert fault.partition("(")[0] in said["error"]
    found = ask(pair / "acme", "incidents")["incidents"]
    assert [one["channel"] for one in found] == ["handler failed"]
    assert "the handler failed" in found[0]["problem"]
    # The next one takes it up, and the operator takes note.
    again = start("acme")
    again.ready()
    ask(pair / "acme", "resume", "--channel", "handler failed")
    assert ask(pair / "acme", "incidents")["incidents"] == []


def test_one_that_fails_in_the_background_leaves_a_log_that_can_be_read(start: Start) -> None:
    fault = IN_A_LOOP["a loop beside"].format(fault="MemoryError()")
    driven = start("acme", f"{fault}\n        sys.argv.append('--detached')\n")
    driven.ready()
    assert driven.ended() == 70
    (said,) = driven.lines("critical")
    assert "MemoryError" in said["error"]
    assert driven.lines("info")[0]["event"] == "ready"
    assert not [line for line in driven.lines("info") if line["logger"] == "oncewire.printed"]


HANGS = """
from oncewire.handler.runtime.engine import Engine
import time, pathlib
real = Engine.tick
def tick(self):
    real(self)
    if pathlib.Path({mark!r}).exists():
        pathlib.Path({hung!r}).touch()
        time.sleep(300)
Engine.tick = tick
Engine.rest = lambda self: 0
"""


def test_a_loop_that_hangs_is_not_called_running_and_feeds_no_watchdog(
    start: Start, pair: Path, tmp_path: Path
) -> None:
    manager, mark, hung = Manager(tmp_path), tmp_path / "hang", tmp_path / "hung"
    fault = HANGS.format(mark=str(mark), hung=str(hung))
    driven = start("acme", fault, NOTIFY_SOCKET=str(manager.path), WATCHDOG_USEC="600000")
    driven.ready()
    assert manager.word() == "READY=1"
    assert manager.word() == manager.word() == "WATCHDOG=1"
    good = ask(pair / "acme", "status")
    assert good["running"] is True
    assert good["lag_ms"] < 60_000
    mark.touch()
    wait_until(hung.exists)
    while not manager.silent(1.0):
        pass
    bad = ask(pair / "acme", "status")
    assert (bad["running"], bad["pid"]) == (False, driven.process.pid)
    assert "not answered" in bad["stuck"]
    manager.close()


def test_the_signals_of_a_service_manager(start: Start, pair: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        driven = start("acme")
        driven.ready()
        driven.signal(signal.SIGHUP)
        driven.wait_for("read anew")
        assert ask(pair / "acme", "status")["running"] is True
        driven.signal(number)
        assert driven.ended() == 0
        assert "Traceback" not in driven.log.read_text()
        assert driven.lines("error") == driven.lines("critical") == []


def test_one_bad_agreement_stops_nobody_else(start: Start, pair: Path) -> None:
    bad = pair / "acme" / "agreements" / "other.toml"
    bad.write_text("cpa_id = ")
    start("globex").ready()
    driven = start("acme")
    driven.ready()
    (found,) = ask(pair / "acme", "incidents")["incidents"]
    assert "other.toml" in found["problem"]
    document = pair / "order.xml"
    document.write_text("<order/>")
    sent = ask(pair / "acme", "send", str(document), "--to", "globex", "--wait")
    assert sent["messages"][0]["state"] == "delivered"
    bad.unlink()
    driven.signal(signal.SIGHUP)
    driven.wait_for("read anew")
    assert ask(pair / "acme", "incidents")["incidents"] == []


def test_a_damaged_page_is_logged_and_named(start: Start, pair: Path, served: Served) -> None:
    document = pair / "order.xml"
    document.write_text("<order/>")
    ask(pair / "acme", "send", str(document), "--to", "globex", "--wait")
    served.stop("globex")
    _spoil(pair / "globex" / "data" / "oncewire.db", "sqlite_autoindex_message_1")
    driven = start("globex")
    driven.ready()
    ask(pair / "acme", "send", str(document), "--to", "globex")
    driven.wait_for("senders are sent away")
    assert len([one for one in driven.lines("error") if "sent away" in one["event"]]) == 1
    found = ask(pair / "globex", "incidents")["incidents"]
    assert any("page" in one["problem"] for one in found), found


def _spoil(path: Path, name: str) -> None:
    """Write rubbish over the first page of an index."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (page,) = connection.execute(query, (name,)).fetchone()
    connection.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xa5" * size)


def test_one_unreadable_message_blocks_nobody_else(pair: Path, served: Served) -> None:
    """A file of the spool is gone: the others are taken, it is named, and it can be given up."""
    with open_party_blocking(pair / "acme") as party:
        for number in range(6):
            order = b"<order/>".ljust(1_200_000 if number == 2 else 20)
            party.wait(party.send("globex", order).message_id, 30)
    served.stop("globex")
    (file,) = (pair / "globex" / "data" / "spool").iterdir()
    file.unlink()
    served.start("globex")
    taken = ask(pair / "globex", "inbox", "take", "--output", str(pair / "received"))
    assert len(taken["messages"]) == 5
    (found,) = ask(pair / "globex", "incidents")["incidents"]
    assert "oncewire abandon" in found["problem"]
    ask(pair / "globex", "abandon", found["message_id"], "--yes")
    assert ask(pair / "globex", "incidents")["incidents"] == []
    assert ask(pair / "globex", "status")["in.closed"] == 1


def test_a_change_that_cannot_be_read_ends_nothing(start: Start, pair: Path) -> None:
    agreement = pair / "acme" / "agreements" / "globex.toml"
    good = agreement.read_text()
    driven = start("acme")
    driven.ready()
    for bad in ("cpa_id = ", good.replace("partners/globex.crt", "partners/nobody.crt")):
        agreement.write_text(bad)
        driven.signal(signal.SIGHUP)
    driven.wait_for("files are not taken over")
    assert ask(pair / "acme", "status")["running"] is True
    agreement.write_text(good)


def test_one_whose_database_was_removed_is_called_running_and_its_store_gone(
    pair: Path, start: Start
) -> None:
    globex = start("globex")
    globex.ready()
    for file in (pair / "globex" / "data").glob("oncewire.db*"):
        if not file.name.endswith(".owner"):
            file.unlink()
    found = ask(pair / "globex", "status")
    assert "is gone" in found["store"]
    assert (found["running"], found["pid"]) == (True, globex.process.pid)
    assert found["next"][0].startswith("oncewire stop")
    ask(pair / "globex", "stop")
    globex.ended()
    assert ask(pair / "globex", "status")["running"] is False


def test_one_that_lost_its_database_and_the_record_of_it_is_called_running(
    pair: Path, start: Start
) -> None:
    """An operator who follows the advice to remove the record, and stops nothing before."""
    globex = start("globex")
    globex.ready()
    (pair / "globex" / "data" / "oncewire.db").unlink()
    advice = ask(pair / "globex", "status")["summary"]
    assert "(stop the handler, then put the right file back" in advice
    (pair / "globex" / "store.json").unlink()
    found = ask(pair / "globex", "status")
    assert (found["running"], found["pid"]) == (True, globex.process.pid)
    assert "oncewire.db is gone, and its handler runs" in found["store"]
    assert found["next"][0].startswith("oncewire stop")
    ask(pair / "globex", "stop")
    globex.ended()
    found = ask(pair / "globex", "status")
    assert (found["running"], found["summary"]) == (False, "Nothing was sent or received yet.")
