"""Restarts with much under way, and deaths at no point in particular."""

from __future__ import annotations

import random
import time

import pytest

from tests.handler.processes.plays import FAST, MODES, two_parties
from tests.handler.processes.proxy import BAD
from tests.handler.processes.stage import Stage

PATIENT = FAST.replace("PT0.3S", "PT5S")
WINDOW = PATIENT + '[flow]\nmode = "window"\nwindow = 32\n'


def restart(stage: Stage, mode: str, orders: int, *, away: bool) -> None:
    """Kill a sender with everything unacknowledged, and let it finish."""
    extra = WINDOW if mode == "window" else PATIENT
    two_parties(stage, mode, orders, extra=extra, batch=100, take=100)
    # Either the receiver has them all and its acknowledgements are lost, or nobody is there.
    stage.proxies["alpha"].down = True
    alpha = stage.start("alpha")
    if not away:
        stage.start("beta")
    alpha.wait("all submitted", lambda: alpha.state.get("submitted") == orders)
    if not away and mode != "window":
        beta = stage.runs["beta"]
        beta.wait("all there", lambda: beta.counts.get("in.confirmed") == orders)
    unsettled = alpha.counts.get("out.outstanding", 0) + alpha.counts.get("out.waiting", 0)
    stage.kill("alpha")
    stage.proxies["alpha"].down = False
    if away:
        stage.start("beta")
    began = time.monotonic()
    stage.start("alpha")
    stage.settle("beta", orders)
    took = time.monotonic() - began
    stage.stop()
    verdict = stage.verdict()
    print(
        f"{mode}: {unsettled} unsettled at the death, all settled {took:.1f} s after it,"
        f" {verdict.count('sent')} attempts in all"
    )
    assert unsettled == orders
    assert verdict.assert_once("alpha", "beta", orders) == 0


LOST, NOBODY = "acknowledgements lost", "nobody there"


@pytest.mark.requirement("STO-3", "DUP-2", "RM-13")
@pytest.mark.parametrize(("mode", "trouble"), [("asynchronous", LOST), ("window", NOBODY)])
def test_restart_with_two_thousand_unacknowledged(stage: Stage, mode: str, trouble: str) -> None:
    restart(stage, mode, 2_000, away=trouble == NOBODY)


@pytest.mark.soak
@pytest.mark.parametrize("trouble", [LOST, NOBODY])
@pytest.mark.parametrize("mode", ["asynchronous", "window"])
def test_restart_with_twenty_thousand_unacknowledged(stage: Stage, mode: str, trouble: str) -> None:
    restart(stage, mode, 20_000, away=trouble == NOBODY)


def random_deaths(stage: Stage, mode: str, orders: int, kills: int) -> None:
    """Kill one or the other, whatever it is doing, while the orders go through."""
    chance = random.Random(f"{stage.seed} {mode}")
    two_parties(stage, mode, orders, luck=BAD, batch=2, take=2)
    for name in ("beta", "alpha"):
        stage.start(name)
    for _ in range(kills):
        time.sleep(chance.random() * 0.5)
        name = chance.choice(["alpha", "beta"])
        stage.kill(name)
        stage.start(name)
    stage.settle("beta", orders)
    stage.stop()
    verdict = stage.verdict()
    again = verdict.assert_once("alpha", "beta", orders)
    if mode == "window":
        verdict.assert_in_order("beta")
    print(f"{mode}: {orders} orders, {kills} kills, {again} hand-overs repeated")


@pytest.mark.requirement("STO-3", "DUP-2")
@pytest.mark.parametrize("mode", MODES)
def test_deaths_at_any_moment(stage: Stage, mode: str) -> None:
    random_deaths(stage, mode, 100, 12)


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
def test_many_deaths_at_any_moment(stage: Stage, mode: str) -> None:
    random_deaths(stage, mode, 5_000, 500)
