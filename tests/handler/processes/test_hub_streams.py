"""Large messages through a hub that stores and forwards: each lies there once."""

from __future__ import annotations

import pytest

from tests.handler.processes.plays import three_parties
from tests.handler.processes.stage import Stage

SIZE, ORDERS = 2_000_000, 12


@pytest.mark.long
@pytest.mark.requirement("HOP-8")
def test_what_a_hub_forwards_lies_in_the_file_that_it_received(stage: Stage) -> None:
    # More than its window: some wait there, without their next number.
    three_parties(stage, ORDERS, size=SIZE)
    for name in ("hub", "alpha"):
        stage.start(name)
    hub = stage.runs["hub"]
    # beta is not there yet, so all of them have to be kept.
    hub.wait("all at the hub", lambda: hub.counts.get("in.forwarded", 0) >= ORDERS)
    stage.kill("hub")
    spool = stage.folder / "hub.db.spool"
    kept = sum(file.stat().st_size for file in spool.iterdir())
    assert ORDERS * SIZE <= kept < 1.1 * ORDERS * SIZE
    for name in ("hub", "beta"):
        stage.start(name)
    stage.settle("beta", ORDERS)
    stage.stop()
    verdict = stage.verdict()
    verdict.assert_once("alpha", "beta", ORDERS, SIZE)
