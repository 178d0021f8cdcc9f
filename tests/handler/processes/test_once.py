"""Once and only once between real processes, over a network that loses, cuts, delays, repeats."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from tests.handler.processes.plays import MODES, two_parties
from tests.handler.processes.proxy import BAD, FATES
from tests.handler.processes.stage import Stage


def exchange(
    stage: Stage, mode: str, orders: int, *, both_ways: bool = False, batch: int = 4
) -> None:
    """Let everything be sent, and judge it."""
    began = time.monotonic()
    two_parties(stage, mode, orders, luck=BAD, both_ways=both_ways, batch=batch)
    ways = [("alpha", "beta"), ("beta", "alpha")][: 2 if both_ways else 1]
    for name in ("beta", "alpha"):
        stage.start(name)
    for _, receiver in ways:
        stage.settle(receiver, orders)
    stage.stop()
    verdict = stage.verdict()
    faults = Counter[str]()
    for proxy in stage.proxies.values():
        faults += proxy.faults
    print(
        f"{mode}: {orders} orders in {time.monotonic() - began:.1f} s,"
        f" {verdict.count('sent')} attempts, {verdict.count('duplicate')} copies stopped,"
        f" {dict(faults)}"
    )
    for sender, receiver in ways:
        # Nobody died, so nothing was given to the application a second time.
        assert verdict.assert_once(sender, receiver, orders) == 0
        assert verdict.count("duplicate", receiver) > 0
        if mode == "window":
            verdict.assert_in_order(receiver)
    responses = orders if mode == "responding" else 0
    assert verdict.report.outcomes == {"delivered": orders * len(ways) + responses}
    if responses:
        verdict.assert_answered("alpha", orders)
    # The network was as bad as it was meant to be.
    assert all(faults[fate] for fate in FATES), faults


@pytest.mark.requirement("DUP-2", "DUP-10", "RM-13", "RM-18", "TRN-1")
@pytest.mark.parametrize("mode", MODES)
def test_three_hundred_orders_over_a_bad_network(stage: Stage, mode: str) -> None:
    exchange(stage, mode, 300)


@pytest.mark.requirement("DUP-2", "SW-10")
def test_orders_in_both_directions_at_once(stage: Stage) -> None:
    exchange(stage, "window", 100, both_ways=True)


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
def test_ten_thousand_orders_over_a_bad_network(stage: Stage, mode: str) -> None:
    exchange(stage, mode, 10_000, batch=50)
