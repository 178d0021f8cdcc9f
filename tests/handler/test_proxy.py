"""A hub that only passes on: the To Party's word finds its way back, and nothing is changed."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from oncewire.agreement.agreement import Agreements
from oncewire.message.ids import Party
from oncewire.message.instant import HOUR, SECOND
from oncewire.protocol.states import OutgoingState
from oncewire.wire import codec
from tests.handler.network import Network, TestWorld, options
from tests.simulation.given import agreements_of

PROFILES = pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x", "window", "rm-0.78"])
MODES = pytest.mark.parametrize("mode", ["by_request", "transparent"])

ROUTING = re.compile(rb"<RoutingHeaderList.*</RoutingHeaderList>|<RoutingHeader.*</RoutingHeader>")


@pytest.mark.requirement("HOP-5", "HOP-7", "ACK-12", "ACK-4", "RM-16")
@PROFILES
@MODES
@pytest.mark.parametrize("hubs", [1, 2])
def test_the_acknowledgement_of_the_to_party_comes_back(profile: str, mode: str, hubs: int) -> None:
    chain = Network.chain(options(profile, hops=hubs + 1, hop_mode=mode))
    order = chain.send(0).message_id
    assert chain.state(order) is OutgoingState.DELIVERED
    for hub in range(1, hubs + 1):
        assert chain.kinds(f"hub{hub}", order) == ["passed_on"]
        assert not any(row.kind == "refused" for row in chain.rows(at=f"hub{hub}"))
    (acknowledged,) = [
        row for row in chain.rows(at="buyer", of=order) if row.kind == "acknowledged"
    ]
    assert (acknowledged.ref_to or "").endswith("@seller")
    assert "hop" not in (acknowledged.detail or ""), "the To Party's own word, not a hub's"


@pytest.mark.requirement("RM-17", "HOP-5")
@PROFILES
def test_it_is_heard_although_only_another_agreement_leads_to_the_hub(profile: str) -> None:
    chain = Network.chain(options(profile, hops=2, hop_mode="transparent"), carrying=False)
    order = chain.send(0).message_id
    (own,) = chain.agreements["buyer"]
    other = replace(own.partner, party=Party.of("urn:sim:other"))
    while chain.kept:
        name, post = chain.kept.pop(0)
        if "buyer" in post.address:
            chain.engines["buyer"].context.agreements = Agreements(
                [replace(own, cpa_id="buyer-other", partner=other)]
            )
        chain.carry(name, post)
    assert chain.state(order) is OutgoingState.DELIVERED


@pytest.mark.requirement("HOP-5", "HOP-7")
@PROFILES
def test_what_goes_back_keeps_its_bytes_but_for_the_routing(profile: str) -> None:
    chain = Network.chain(options(profile, hops=3, hop_mode="transparent"))
    chain.send(0)
    ways = [(one.sender, one.to) for one in chain.carried]
    assert ways == [
        ("buyer", "hub1"),
        ("hub1", "hub2"),
        ("hub2", "seller"),
        ("seller", "hub2"),
        ("hub2", "hub1"),
        ("hub1", "buyer"),
    ]
    for bodies in (chain.carried[:3], chain.carried[3:]):
        assert len({ROUTING.sub(b"", one.parcel.body) for one in bodies}) == 1
    hops = codec.read(chain.carried[-1].parcel).message.routing
    if hops:
        # Each hop of the way back left its mark, or rewrote the only one (HOP-2).
        ends = [(hop.sender_uri or str(hop.sender_id)) for hop in hops]
        assert ["hub1" in end for end in ends][-1]
        assert len(hops) == (1 if profile == "rm-0.78" else 3)


@pytest.mark.requirement("HOP-7", "STO-3")
@PROFILES
def test_the_way_back_is_known_after_a_restart(profile: str) -> None:
    chain = Network.chain(options(profile, hops=2, hop_mode="transparent"), carrying=False)
    order = chain.send(0).message_id
    chain.carry(*chain.kept.pop())
    chain.carry(*chain.kept.pop())
    chain.restart("hub1")
    chain.carrying = True
    chain.carry(*chain.kept.pop())
    assert chain.state(order) is OutgoingState.DELIVERED


@pytest.mark.requirement("HOP-5")
@PROFILES
def test_a_lost_acknowledgement_comes_with_the_next_copy(profile: str) -> None:
    chain = Network.chain(options(profile, hops=2, hop_mode="transparent"), carrying=False)
    order = chain.send(0).message_id
    chain.carry(*chain.kept.pop())
    chain.carry(*chain.kept.pop())
    chain.kept.clear()
    chain.carrying = True
    chain.pass_time(options(profile).timeout)
    assert chain.state(order) is OutgoingState.DELIVERED
    assert chain.kinds("hub1", order) == ["passed_on", "passed_on"]
    assert chain.kinds("seller", order).count("received") == 1


@pytest.mark.requirement("HOP-6")
@pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x"])
def test_a_copy_goes_the_way_of_the_first_one_whatever_was_agreed_since(profile: str) -> None:
    """Nobody here has what was passed on, so nobody here may acknowledge it."""
    chain = Network.chain(options(profile, hops=2, hop_mode="transparent"), carrying=False)
    order = chain.send(0).message_id
    chain.carry(*chain.kept.pop())
    chain.kept.clear()
    since = options(profile, hops=2, hop_mode="store_and_forward")
    chain.start("hub1", Agreements(agreements_of("hub1", since)))
    chain.carrying = True
    chain.pass_time(since.timeout)
    assert chain.kinds("hub1", order) == ["passed_on", "passed_on"]
    assert chain.state(order) is OutgoingState.DELIVERED


@pytest.mark.requirement("HOP-6", "HOP-8")
@pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x"])
def test_a_copy_that_asks_for_more_is_passed_on_too(profile: str) -> None:
    """What a message asks of the next handler is no part of it, and may differ in a copy."""
    chain = Network.chain(options(profile, hops=2, hop_mode="by_request"))
    order = chain.send(0).message_id
    asked = '[ack]\nhop_request = "Unsigned"\n'
    other = Network.chain(options(profile, hops=2, hop_mode="by_request", agreement=asked))
    other.send(0)
    chain.deliver("hub1", other.carried[0].parcel)
    assert chain.kinds("hub1", order) == ["passed_on", "passed_on"]


@pytest.mark.requirement("ERR-3", "HOP-7")
@PROFILES
def test_an_error_comes_back_the_same_way(profile: str) -> None:
    chain = Network.chain(options(profile, hops=2, hop_mode="transparent"))
    world = chain.engines["seller"].context.world
    assert isinstance(world, TestWorld)
    world.time += HOUR
    order = chain.send(0, time_to_live=SECOND).message_id
    assert chain.state(order) is OutgoingState.NOT_DELIVERED
    assert [one.message_id for one in chain.notices] == [order]


@pytest.mark.requirement("ERR-3", "HOP-7")
@pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x", "window"])
def test_so_does_one_of_a_to_party_that_knows_no_agreement(profile: str) -> None:
    """It answers on the connection, for it knows nobody to post to. v0-078 has no such answers."""
    chain = Network.chain(options(profile, hops=2, hop_mode="transparent"))
    chain.start("seller", chain.engines["buyer"].context.agreements)
    order = chain.send(0).message_id
    assert chain.state(order) is OutgoingState.NOT_DELIVERED
    assert [one.message_id for one in chain.notices] == [order]


@pytest.mark.requirement("HOP-12")
@PROFILES
@pytest.mark.parametrize("mode", ["store_and_forward", "by_request"])
def test_of_all_intermediaries_the_initiator_hears_the_first(profile: str, mode: str) -> None:
    asked = '[ack]\nhop_request = "Unsigned"\n'
    chain = Network.chain(options(profile, hops=3, hop_mode=mode, agreement=asked))
    order = chain.send(0).message_id
    assert chain.state(order) is OutgoingState.DELIVERED
    heard = [
        codec.read(parcel).message.header.message_id for parcel in chain.between("hub1", "buyer")
    ]
    assert not [one for one in heard if one.endswith("@hub2")]


@pytest.mark.requirement("HOP-5")
@PROFILES
@pytest.mark.parametrize("mode", ["transparent", "store_and_forward"])
def test_the_from_party_need_not_know_where_the_to_party_listens(profile: str, mode: str) -> None:
    world = options(profile, hops=3, hop_mode=mode)
    chain = Network.chain(world)
    (known,) = agreements_of("buyer", world)
    blind = replace(known, partner=replace(known.partner, handler_uri=None, endpoints=()))
    chain.start("buyer", Agreements([blind]))
    assert chain.state(chain.send(0).message_id) is OutgoingState.DELIVERED
