"""Several handlers of one party beside each other on one PostgreSQL, behind a balancer."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.handler.processes.balancer import Balancer
from tests.handler.processes.conftest import SEED
from tests.handler.processes.party import FAILED
from tests.handler.processes.plays import two_parties
from tests.handler.processes.proxy import Luck
from tests.handler.processes.stage import Stage, Verdict
from tests.ports import free_port
from tests.postgres import Server
from tests.waiting import wait_until

LEASE = 5.0

ROUGH = Luck(lose=0.04, lose_answer=0.04, cut_request=0.04, cut_answer=0.04, repeat=0.08)
"""A bad network that holds nothing up, so that its book says when each transmission was made."""


class Company:
    """Two parties, each of several handlers behind a balancer."""

    def __init__(
        self, stage: Stage, server: Server, mode: str, orders: int, count: int = 3
    ) -> None:
        self.stage, self.orders = stage, orders
        two_parties(stage, mode, orders, luck=ROUGH, called=True, batch=8)
        self._balancers = []
        self.ports: dict[str, list[int]] = {}
        # When which party lost a handler.
        self._fallen: list[tuple[str, int]] = []
        for name, settings in stage.parties.items():
            (stage.folder / f"{name}.url").write_text(server.new_schema())
            ports = self.ports[name] = [free_port() for _ in range(count)]
            file = stage.folder / f"{name}.cfg"
            self._balancers.append(Balancer(file, settings.listen, ports))
            stage.parties[name] = replace(settings, lease=LEASE)
        for name, ports in self.ports.items():
            for port in ports:
                stage.start_beside(name, port)

    def run_of(self, name: str) -> str:
        """The key of a handler of that party which has started and lives."""
        wait_until(lambda: self._running(name), lambda: f"no handler of {name} starts")
        return self._running(name)[0]

    def _running(self, name: str) -> list[str]:
        self._tend()
        runs = self.stage.runs.items()
        return [
            key
            for key, run in runs
            if key.startswith(f"{name} ") and run.started and run.code is None
        ]

    def _all_started(self) -> bool:
        self._tend()
        return all(run.started for run in self.stage.runs.values())

    def _tend(self) -> None:
        """Start a handler again that stood still for so long in its first turn that it lost it, as
        a service manager does."""
        for key, run in list(self.stage.runs.items()):
            if run.code == 1 and not run.started:
                said = (self.stage.folder / f"{key.split()[0]}.log").read_text()
                assert "idle-in-transaction timeout" in said, said[-3000:]
                print(f"{key} lost its first turn and is started again")
                self.again(key)

    def wait_for(self, confirmed: int) -> None:
        """Until so many orders have reached the application."""
        run = self.stage.runs[self.run_of("beta")]
        run.wait("some more", lambda: run.counts.get("in.confirmed", 0) >= confirmed)

    def falls(self, key: str) -> None:
        """Note that a handler stops working now."""
        self._fallen.append((key.split()[0], time.time_ns() // 1000))

    def _failovers(self, verdict: Verdict) -> list[float]:
        """For each handler that fell: seconds until the last message that its party was sending or
        handing over at that time went on, by any handler; so also the time that the network's
        losses took."""
        taken = []
        for node, fell in self._fallen:
            begun, gone_on = set[str](), dict[str, int]()
            for row in verdict.rows:
                if row.node != node or row.message_id is None:
                    continue
                if row.at > fell:
                    gone_on.setdefault(row.message_id, row.at)
                elif row.kind in ("sent", "handed_over"):
                    begun.add(row.message_id)
                else:
                    begun.discard(row.message_id)
            # One that has no row afterwards was settled by what was discarded above.
            waits = [gone_on[name] - fell for name in begun if name in gone_on]
            taken.append(max(waits, default=0) / 1e6)
        return taken

    def again(self, key: str) -> None:
        """Start a handler anew that has ended."""
        name, port = key.split()
        self.stage.start_beside(name, int(port))

    def finish(self) -> Verdict:
        """Until all is settled; then judge it."""
        stage = self.stage
        wait_until(self._all_started, lambda: {key: run.code for key, run in stage.runs.items()})
        stage.settle(self.run_of("beta"), self.orders)
        stage.stop()
        verdict = stage.verdict()
        redelivered = verdict.assert_once("alpha", "beta", self.orders)
        twice = {name: proxy.at_once() for name, proxy in stage.proxies.items()}
        assert not any(twice.values()), twice
        boots = {row.node: set[str]() for row in verdict.rows}
        for row in verdict.rows:
            boots[row.node].add(row.boot)
        print(
            f"{self.orders} orders, {verdict.count('sent')} attempts, "
            f"{verdict.count('duplicate')} copies stopped, {redelivered} redelivered, "
            f"lives: { {name: len(found) for name, found in boots.items()} }, "
            f"failovers: {[round(taken, 2) for taken in self._failovers(verdict)]} s"
        )
        return verdict

    def close(self) -> None:
        for balancer in self._balancers:
            balancer.close()


@pytest.fixture
def companies() -> Iterator[list[Company]]:
    made: list[Company] = []
    yield made
    for company in made:
        company.close()


LONG = pytest.mark.soak


@pytest.mark.parametrize(
    "mode", ["responding", pytest.param("window", marks=LONG), pytest.param("parts", marks=LONG)]
)
def test_three_handlers_do_the_work_of_one(
    stage: Stage, postgres: Server, companies: list[Company], mode: str
) -> None:
    orders = 60
    companies.append(Company(stage, postgres, mode, orders))
    verdict = companies[0].finish()
    if mode == "responding":
        verdict.assert_answered("alpha", orders)
    if mode != "responding":
        verdict.assert_in_order("beta")
    for name in ("alpha", "beta"):
        # One is not enough for all; on a busy machine the third may begin when all is done.
        kinds = ("sent",) if name == "alpha" else ("received",)
        boots = {row.boot for row in verdict.rows if row.node == name and row.kind in kinds}
        assert len(boots) >= 2


@pytest.mark.parametrize("deaths", [3, pytest.param(30, marks=LONG)])
def test_one_is_killed_at_random_and_others_go_on(
    stage: Stage, postgres: Server, companies: list[Company], deaths: int
) -> None:
    chance = random.Random(SEED)
    company = Company(stage, postgres, "window", 20 * (deaths + 1))
    companies.append(company)
    for death in range(1, deaths + 1):
        company.wait_for(death * 20)
        key = chance.choice([key for key, run in stage.runs.items() if run.code is None])
        company.falls(key)
        stage.kill(key)
        company.again(key)
    company.finish().assert_in_order("beta")


@pytest.mark.parametrize(
    "names", [("alpha",), pytest.param(("alpha", "beta") * 3, marks=LONG)], ids=len
)
def test_one_that_stood_still_for_longer_than_its_lease_ends(
    stage: Stage, postgres: Server, companies: list[Company], names: tuple[str, ...]
) -> None:
    company = Company(stage, postgres, "window", 60 * (len(names) + 1))
    companies.append(company)
    for number, name in enumerate(names, 1):
        company.wait_for(number * 40)
        key = company.run_of(name)
        company.falls(key)
        stage.runs[key].signal(signal.SIGSTOP)
        time.sleep(3 * LEASE)
        stage.runs[key].signal(signal.SIGCONT)
        assert stage.runs[key].wait_for_end() == FAILED
        company.again(key)
    company.finish().assert_in_order("beta")


@pytest.mark.parametrize("stops", [1, pytest.param(20, marks=LONG)])
def test_a_server_that_is_stopped_and_started_takes_no_work_from_them(
    stage: Stage, postgres: Server, companies: list[Company], stops: int
) -> None:
    company = Company(stage, postgres, "window", 30 * (stops + 1))
    companies.append(company)
    for stop in range(1, stops + 1):
        company.wait_for(stop * 30)
        postgres.stop((signal.SIGINT, signal.SIGQUIT)[stop % 2])
        time.sleep(1.5 * LEASE)
        postgres.start()
    assert all(run.code is None for run in stage.runs.values())
    company.finish().assert_in_order("beta")
