"""The trail of a message over hubs: each hop with its own times and its own acknowledgement."""

from __future__ import annotations

import pytest

from oncewire.journal.history import explain, ladder, trail
from tests.handler.network import Network, TestWorld, options

NODES = ["buyer", "hub1", "hub2", "seller"]


@pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x", "rm-0.78"])
@pytest.mark.parametrize("skewed", [False, True])
def test_three_hops_are_told_in_order_whatever_the_clocks_say(profile: str, skewed: bool) -> None:
    chain = Network.chain(options(profile, hops=3))
    if skewed:
        for number, name in enumerate(reversed(NODES)):
            world = chain.engines[name].context.world
            assert isinstance(world, TestWorld)
            world.time += number * 60_000_000
    order = chain.send(0).message_id
    rows = [row for name in NODES for row in chain.rows(at=name, of=order)]
    hops = trail(rows)
    assert [(hop.number, hop.node) for hop in hops] == [(1, "buyer"), (2, "hub1"), (3, "hub2")]
    for hop in hops:
        assert hop.sent_at is not None
        assert hop.received_at is not None
        assert hop.attempts == 1
        assert hop.acknowledged_at is not None or hop.standing == "passed on, nothing promised"
    assert hops[0].standing.startswith("acknowledged by")


def test_one_journal_alone_tells_its_own_hop() -> None:
    chain = Network.chain(options("ebms2", hops=2))
    order = chain.send(0).message_id
    (hop,) = trail(chain.rows(at="buyer", of=order))
    assert (hop.node, hop.received_at) == ("buyer", None)
    assert trail(chain.rows(at="seller", of=order)) == []
    assert trail([]) == []


@pytest.mark.requirement("HOP-8")
@pytest.mark.parametrize("profile", ["ms-0.9x", "rm-0.78"])
def test_what_only_a_hub_acknowledged_is_not_called_delivered(profile: str) -> None:
    chain = Network.chain(options(profile, hops=2, hop_mode="store_and_forward"))
    order = chain.send(0).message_id
    told = explain(chain.rows(at="buyer", of=order))
    assert told == (
        "Taken over by urn:sim:hub1 on attempt 1, acknowledged 0 ms after submission: it answers "
        "for it from there, and the To Party itself has not said that it has it."
    )
    # The To Party's own journal knows.
    both = [*chain.rows(at="buyer", of=order), *chain.rows(at="seller", of=order)]
    assert explain(both) == (
        "Taken over by urn:sim:hub1 on attempt 1, acknowledged 0 ms after submission: it answers "
        "for it from there. The To Party has told us nothing; by the journal of seller it has the "
        "message: the application does not have it yet."
    )


def test_what_failed_and_what_waits_is_said() -> None:
    chain = Network.chain(options("ebms2", hops=1), carrying=False)
    order = chain.send(0).message_id
    (hop,) = trail(chain.rows(at="buyer", of=order))
    assert hop.standing == "waits for its acknowledgement"
    chain.engines["buyer"].abandon(order)
    chain.settle("buyer")
    (hop,) = trail(chain.rows(at="buyer", of=order))
    assert hop.standing.startswith("unknown: ")


@pytest.mark.requirement("HOP-7", "OPS-3")
@pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x"])
def test_a_hub_that_promises_nothing_tells_each_time_that_it_passed_a_message_on(
    profile: str,
) -> None:
    chain = Network.chain(options(profile, hops=2, hop_mode="transparent"))
    order = chain.send(0).message_id
    copy = chain.to("hub1")[0].parcel
    for _ in range(6):
        chain.deliver("hub1", copy)
    rows = chain.rows(at="hub1", of=order)
    assert [row.kind for row in rows] == ["passed_on"] * 7
    (hop,) = trail(rows)
    assert (hop.attempts, hop.sent_at) == (7, rows[0].at)
    nothing = "and nothing promised: what became of it is known at its ends."
    assert explain(rows) == f"Passed on 7 times, {nothing}"
    assert explain(rows[:1]) == f"Passed on, {nothing}"
    assert sum("passed on" in step.text for step in ladder(rows)) == 7
