"""What an operator is told of a store that fails, of files and of partners, and that it is over."""

from __future__ import annotations

import time
from pathlib import Path

import apsw
import pytest

from oncewire.entry.cli import output
from oncewire.entry.party.settings import load
from oncewire.entry.running import serving
from oncewire.entry.running.open_party import open_party_blocking
from oncewire.entry.running.serving import record_failure
from oncewire.entry.watching import snapshot
from oncewire.errors import HandlerFailed, StoreFull
from oncewire.handler.runtime import handler as handler_module
from oncewire.store.records import Incident
from oncewire.store.sqlite.store import SqliteStore
from oncewire.transport.contract import Peer
from oncewire.transport.http.transport import HttpTransport
from tests.entry.running.test_store_record import database, exchange
from tests.entry.served import Served
from tests.entry.terminal import run, run_json


def open_ones() -> dict[str, str]:
    found = run_json("incidents", exit_code=None)["incidents"]
    return {incident["channel"]: incident["problem"] for incident in found}


def until_over() -> None:
    end = time.monotonic() + 10
    while open_ones():
        assert time.monotonic() < end
        time.sleep(0.05)


def spoil(path: Path, table: str | None) -> None:
    """Write over the first page of a table, or over the head of the file."""
    place = 0
    if table is not None:
        connection = apsw.Connection(str(path))
        root = "SELECT rootpage FROM sqlite_schema WHERE name = ?"
        place = (connection.execute(root, (table,)).get - 1) * 4096
        connection.close()
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"\xff" * 200)


@pytest.mark.parametrize("table", [None, "counter", "journal_row"])
def test_nobody_is_told_to_wait_for_a_damaged_store(
    pair: Path, served: Served, table: str | None
) -> None:
    exchange(pair)
    served.stop("acme")
    spoil(database(pair, "acme"), table)
    for words in (("serve",), ("status",), ("incidents",), ("doctor", "--no-partners")):
        result = run(*words, exit_code=None)
        said = " ".join((result.output + result.stderr).split())
        assert "goes on" not in said, (words, said)
        if result.exit_code == output.TROUBLE or words == ("doctor", "--no-partners"):
            assert "backup" in said, (words, said)


def test_a_damage_that_a_handler_meets_is_told_with_the_way_to_a_restore(
    pair: Path, served: Served
) -> None:
    exchange(pair)
    served.stop("globex")
    spoil(database(pair), "incoming")
    running = served.start("globex")
    with open_party_blocking(pair / "acme") as party:
        party.send("globex", b"<order/>")
    end = time.monotonic() + 10
    found: list[Incident] = []
    while not found and time.monotonic() < end:
        with running.handler.engine.context.store.reader() as reader:
            found = reader.incidents()
    assert [incident.channel for incident in found] == ["handler damaged"]
    assert "docs/howto/backup.md" in found[0].reason
    assert "goes on" not in found[0].reason
    steps = run_json("incidents", "-c", pair / "globex", exit_code=output.WRONG)["next"]
    assert steps == [f"oncewire doctor -c {pair / 'globex'}"]


def test_a_file_that_was_mended_while_nobody_ran_is_nobodys_trouble(
    pair: Path, served: Served
) -> None:
    served.stop("acme")
    file = pair / "acme" / "agreements" / "globex.toml"
    good = file.read_text()
    file.write_text("[")
    served.start("acme")
    assert list(open_ones()) == ["handler agreement globex.toml"]
    served.stop("acme")
    file.write_text(good)
    served.start("acme")
    assert open_ones() == {}


def test_partners_that_are_not_sent_away_any_more_are_nobodys_trouble(
    pair: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "QUIET", 0.5)
    served.stop("acme")
    running = served.start("acme")
    (http,) = [
        transport
        for transport in running.handler.transports.values()
        if isinstance(transport, HttpTransport)
    ]
    away = http._server.turned_away
    served.loop.call_soon_threadsafe(lambda: away.count(Peer("192.0.2.1"), "too much", known=True))
    end = time.monotonic() + 10
    while "handler budget" not in open_ones():
        assert time.monotonic() < end
    until_over()


def test_a_full_store_that_can_keep_no_incident_is_told_by_the_handler(
    pair: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.stop("acme")
    monkeypatch.setattr(handler_module, "QUIET", 0.5)
    running = served.start("acme")
    store = running.handler.engine.context.store
    assert isinstance(store, SqliteStore)
    assert store._connection is not None
    store._connection.pragma("max_page_count", 1)
    with open_party_blocking(pair / "acme") as party:
        with pytest.raises(StoreFull):
            party.send("globex", b"<order/>" * 4096)
        assert [trouble.channel for trouble in party.incidents()] == ["handler store"]
        assert party.status().incidents == 1
        assert not snapshot.readiness(running.handler).ready
    told = run_json("status", exit_code=output.WRONG)
    assert told["incidents"] == 1
    assert "no space left" in told["store"]
    assert "no space left" in open_ones()["handler store"]
    run("incidents", exit_code=output.WRONG)
    store._connection.pragma("max_page_count", 2**30)
    until_over()
    run("status", exit_code=output.OK)


def test_a_failure_is_told_beside_a_full_disk(pair: Path, served: Served) -> None:
    served.stop("acme")
    settings = load(pair / "acme", environ={}).settings
    engine = serving.make_engine(settings)
    engine.trouble(StoreFull("no space", remedy="free some"))
    engine.commit()
    engine.context.store.close()
    record_failure(settings, HandlerFailed("the handler failed: KeyError"))
    assert sorted(open_ones()) == ["handler failed", "handler store"]
    run("resume", "--channel", "handler failed")
    assert list(open_ones()) == ["handler store"]
