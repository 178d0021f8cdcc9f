"""Once and only once between real processes, over a network that loses, cuts, delays, repeats."""

from __future__ import annotations

import time

import pytest

from tests.handler.processes.plays import MODES, two_parties
from tests.handler.processes.proxy import BAD, FATES
from tests.handler.processes.stage import Stage


def exchange(stage: Stage, mode: str, orders: int, **more: object) -> None:
    """Let everything be sent, and judge it."""
    began = time.monotonic()
    two_parties(stage, mode, orders, luck=BAD, **more)  # type: ignore[arg-type]
    for name in ("beta", "alpha"):
        stage.start(name)
    stage.settle("beta", orders)
    stage.stop()
    verdict = stage.verdict()
    faults = sum(
        (proxy.faults for proxy in stage.proxies.values()),
        start=stage.proxies["alpha"].faults.__class__(),
    )
    print(
        f"{mode}: {orders} orders in {time.monotonic() - began:.1f} s,"
        f" {verdict.count('sent')} attempts, {verdict.count('duplicate')} copies stopped,"
        f" {dict(faults)}"
    )
    # Nobody died, so nothing was given to the application a second time.
    assert verdict.assert_once("alpha", "beta", orders) == 0
    assert verdict.report.outcomes == {"delivered": orders}
    if mode == "window":
        verdict.assert_in_order("beta")
    # The network was as bad as it was meant to be.
    assert all(faults[fate] for fate in FATES), faults
    assert verdict.count("duplicate", "beta") > 0


@pytest.mark.requirement("DUP-2", "DUP-10", "RM-13", "RM-18", "TRN-1")
@pytest.mark.parametrize("mode", MODES)
def test_three_hundred_orders_over_a_bad_network(stage: Stage, mode: str) -> None:
    exchange(stage, mode, 300)


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
def test_ten_thousand_orders_over_a_bad_network(stage: Stage, mode: str) -> None:
    exchange(stage, mode, 10_000, batch=50)
