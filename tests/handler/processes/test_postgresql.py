"""Once and only once between real processes whose stores are on PostgreSQL."""

from __future__ import annotations

import signal
import zlib

import pytest

from tests.handler.processes.conftest import SEED
from tests.handler.processes.deaths import Case, play
from tests.handler.processes.plays import MODES, two_parties
from tests.handler.processes.proxy import BAD
from tests.handler.processes.stage import Nursery, Stage
from tests.handler.processes.test_kill import deaths
from tests.handler.processes.test_once import exchange
from tests.postgres import Server


@pytest.fixture
def on_server(stage: Stage, postgres: Server) -> Stage:
    """A stage whose parties keep their messages on the server, each in a schema of its own."""
    for name in ("alpha", "beta", "hub"):
        (stage.folder / f"{name}.url").write_text(postgres.new_schema())
    return stage


DEATHS = deaths(2)


@pytest.mark.requirement("STO-1", "STO-3")
@pytest.mark.parametrize("one", DEATHS[::9], ids=str)
def test_a_party_that_dies_there_finishes_after_a_restart(on_server: Stage, one: Case) -> None:
    on_server.seed = SEED + zlib.crc32(str(one).encode())
    play(on_server, one)


@pytest.mark.soak
@pytest.mark.parametrize("one", DEATHS, ids=str)
def test_a_death_at_every_point(on_server: Stage, one: Case) -> None:
    on_server.seed = SEED + zlib.crc32(str(one).encode())
    play(on_server, one)


@pytest.mark.parametrize("mode", ["window", "responding"])
def test_orders_over_a_bad_network(on_server: Stage, mode: str) -> None:
    exchange(on_server, mode, 300)


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
def test_ten_thousand_orders_over_a_bad_network(on_server: Stage, mode: str) -> None:
    exchange(on_server, mode, 10_000, batch=50)


def test_a_server_that_is_stopped_and_started_under_load(
    on_server: Stage, postgres: Server, nursery: Nursery
) -> None:
    orders = 400
    two_parties(on_server, "window", orders, luck=BAD, called=True)
    for name in ("beta", "alpha"):
        on_server.start(name)
    arrived = on_server.runs["beta"]
    for stop in range(1, 5):
        more = stop * 40
        arrived.wait("some more", lambda more=more: arrived.counts.get("in.confirmed", 0) >= more)
        # By turns without waiting for its clients, and at once as in a crash.
        postgres.stop((signal.SIGINT, signal.SIGQUIT)[stop % 2])
        postgres.start()
    on_server.settle("beta", orders)
    on_server.stop()
    verdict = on_server.verdict()
    verdict.assert_once("alpha", "beta", orders)
    verdict.assert_in_order("beta")
