"""What the last handler says to a hub counts there, and goes no further than it was asked to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncewire.agreement.agreement import Agreements
from oncewire.handler.actions import Post
from oncewire.journal.row import Row
from oncewire.lab.simulation.plan import Options
from oncewire.message.instant import HOUR
from oncewire.protocol.states import OutgoingState
from oncewire.wire.parcel import Parcel
from tests.handler.network import Network, options
from tests.simulation.given import agreements_of

ASKED = '[ack]\nhop_request = "Unsigned"\n'
MODE = pytest.mark.parametrize("mode", ["store_and_forward", "by_request"])


def typed(**more: object) -> Options:
    """Acknowledgements say of which kind they are: of the hop, or of the To Party."""
    profile, flow = "ms-0.9x-typed", "unrestricted"
    return Options(profile=profile, flow=flow, persist_duration=HOUR, agreement=ASKED, **more)  # type: ignore[arg-type]


def given_up(world: Options) -> tuple[Network, str]:
    """The second hub has the order; the seller does not. Now the hub is about to give it up."""
    chain = Network.chain(world, carrying=False)
    order = chain.send(0).message_id
    while chain.kept:
        name, post = chain.kept.pop(0)
        if "seller" not in post.address:
            chain.carry(name, post)
    chain.carrying = True
    return chain, order


def notice_about(chain: Network, order: str) -> str:
    chain.engines["hub2"].abandon(order)
    chain.settle("hub2")
    (told,) = [row for row in chain.rows(at="hub2", of=order) if row.kind == "notified"]
    assert told.ref_to is not None
    return told.ref_to


def ignored(chain: Network, name: str) -> list[Row]:
    return [row for row in chain.rows(at=name) if row.kind == "ignored"]


@pytest.mark.requirement("HOP-8", "HOP-12", "ACK-19")
@MODE
def test_of_a_notice_only_the_hop_is_acknowledged(mode: str) -> None:
    """A notice asks no receipt of the To Party, whatever the hub's agreement asks for others."""
    chain, order = given_up(typed(hops=3, hop_mode=mode))
    notice = notice_about(chain, order)
    assert chain.kinds("hub1", notice)[-1] == "acknowledged"
    assert chain.state(notice, "hub1") is OutgoingState.DELIVERED
    # The first intermediary's is the only one that the hub which gave the notice hears.
    heard = [row.ref_to for row in chain.rows(at="hub2", of=notice) if row.kind == "acknowledged"]
    assert [(one or "").partition("@")[2] for one in heard] == ["hub1"]
    assert ignored(chain, "hub2") == []


@pytest.mark.requirement("HOP-7", "ACK-12", "RM-16")
def test_a_hub_hears_what_comes_back_to_it_about_its_own_notice() -> None:
    """The next hub only passes on: what the To Party says names the two ends of a hop which the
    hub that gave the notice is no part of, and the agreement of the ends."""
    world = typed(hops=3, hop_mode="store_and_forward")
    chain, order = given_up(world)
    passing = agreements_of("hub1", replace(world, hop_mode="transparent"))
    chain.start("hub1", Agreements(passing))
    notice = notice_about(chain, order)
    assert chain.kinds("hub1", notice) == ["passed_on"]
    assert ignored(chain, "hub2") == []
    assert chain.state(notice, "hub2") is OutgoingState.DELIVERED


@pytest.mark.requirement("HOP-5", "HOP-8", "RM-16")
@pytest.mark.parametrize("gone", ["buyer-hub1", "hub1"])
def test_the_to_partys_word_goes_back_though_the_way_is_gone(gone: str) -> None:
    """What was taken under it is answered for under it, and our own copy has arrived anyway."""
    chain = Network.chain(options("ebms2", hops=2, hop_mode="store_and_forward"), carrying=False)
    order = chain.send(0).message_id
    (buyers,) = chain.kept
    chain.kept.clear()
    chain.carry(*buyers)
    (sellers,) = [one for one in chain.kept if isinstance(one[1], Post)]
    chain.kept.clear()
    chain.restart("hub1", gone)
    chain.carrying = True
    chain.carry(*sellers)
    assert ignored(chain, "hub1") == []
    assert chain.state(order, "hub1") is OutgoingState.DELIVERED
    assert chain.state(order) is OutgoingState.DELIVERED


@pytest.mark.requirement("HOP-5")
def test_nothing_else_goes_where_no_agreement_leads_any_more() -> None:
    chain = Network.chain(options("ebms2", hops=2, hop_mode="store_and_forward"))
    chain.send(0)
    chain.restart("hub1", "hub1")
    answers = chain.between("seller", "hub1")
    before = len(chain.carried)
    other = answers[0].body.replace(b"urn:sim:buyer", b"urn:sim:other")
    assert other != answers[0].body
    chain.deliver("hub1", Parcel(answers[0].content_type, other))
    assert chain.carried[before:] == []
    assert [row.message_id for row in ignored(chain, "hub1")] == ["order-0@buyer"]
