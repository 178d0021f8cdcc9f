"""Messages through intermediaries: what each hop does, says and leaves alone."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from msgspec import structs

from oncewire.agreement.agreement import Agreements
from oncewire.handler.actions import Post, PostAnswer, StatusTold
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.route import envelope_for
from oncewire.handler.sending.answer import signal_route
from oncewire.journal.outcome import fold_outcome
from oncewire.lab.simulation.plan import Options
from oncewire.lab.simulation.world import World
from oncewire.message.envelope import MessageKind, MessageStatus
from oncewire.message.ids import Party, PartyId
from oncewire.message.instant import SECOND
from oncewire.protocol.states import IncomingState, Outcome, OutgoingState
from oncewire.protocol.terms import HopMode
from oncewire.wire import answers, codec
from tests.handler.network import Network, options
from tests.simulation.given import world_of

CALM = {
    "loss": 0.0,
    "duplicate": 0.0,
    "reorder": 0.0,
    "corrupt": 0.0,
    "crash": 0.0,
    "partition": 0.0,
    "disk_full": 0.0,
}


def calm(**more: object) -> World:
    """A world without faults."""
    simulation = world_of(Options(messages=5, **(CALM | more)), seed=1)  # type: ignore[arg-type]
    result = simulation.run()
    assert not result.violations, result.violations[:3]
    assert result.delivered == 5
    return simulation


@pytest.mark.requirement("HOP-2", "HOP-3", "OPS-3", "RM-9", "HDR-5")
def test_every_hop_leaves_its_routing_header_and_nothing_else() -> None:
    simulation = calm(hops=3)
    seller, buyer = simulation.machine("seller"), simulation.machine("buyer")
    with seller.store.transition() as tx:
        (arrived,) = tx.incoming_by_id("order-0@buyer")
    with buyer.store.transition() as tx:
        left = tx.outgoing_parcel("order-0@buyer")
    assert arrived.parcel is not None
    assert left is not None
    first = codec.read(whole_parcel(buyer.engine.context, left)).message
    last = codec.read(whole_parcel(seller.engine.context, arrived.parcel)).message
    assert last.header == first.header
    assert last.payloads == first.payloads
    hops = [(hop.sender_uri, hop.receiver_uri) for hop in last.routing]
    names = ["buyer", "hub1", "hub2", "seller"]
    uris = [f"http://{name}/msh" for name in names]
    assert hops == list(itertools.pairwise(uris))
    # The journals tell the same way, hop by hop.
    way = [
        (row.node, row.hop, row.peer)
        for row in simulation.rows()
        if row.message_id == "order-0@buyer" and row.kind in ("sent", "received")
    ]
    assert ("hub1", 2, "urn:sim:hub2") in way
    assert ("hub2", 3, "urn:sim:seller") in way


@pytest.mark.requirement("HOP-12", "HOP-8", "HOP-11")
def test_only_the_first_intermediary_acknowledges_to_the_initiator() -> None:
    simulation = calm(hops=3)
    acknowledged = [
        row
        for row in simulation.machine("buyer").rows()
        if row.kind == "acknowledged" and row.message_id == "order-0@buyer"
    ]
    assert len(acknowledged) == 1
    assert (acknowledged[0].ref_to or "").endswith("@hub1")


@pytest.mark.requirement("HOP-4")
def test_with_transient_errors_the_acknowledgement_means_the_seller_has_it() -> None:
    simulation = calm(hops=2, hop_mode="transient_until_forwarded", retries=30)
    rows = simulation.rows()
    at_buyer = min(row.at for row in rows if row.node == "buyer" and row.kind == "acknowledged")
    at_seller = min(row.at for row in rows if row.node == "seller" and row.kind == "received")
    assert at_seller < at_buyer
    assert any(row.kind == "transient" and row.node == "buyer" for row in rows)


@pytest.mark.requirement("HOP-4")
def test_the_word_to_come_back_later_is_not_the_answer_that_is_owed() -> None:
    """If it were, one that leaves late would take the acknowledgement for sent."""
    chain = Network.chain(
        options("window", hops=2, hop_mode="transient_until_forwarded"), carrying=False
    )
    chain.send(0)
    ((_, order),) = chain.kept
    chain.kept.clear()
    chain.carry("buyer", order)
    (later,) = [post for name, post in chain.kept if isinstance(post, PostAnswer)]
    said = codec.read(whole_parcel(chain.engines["hub1"].context, later.parcel)).message
    assert said.error_list is not None
    assert said.error_list.errors[0].code == "TransientError"
    assert (later.sender, later.message_id) == ("", "")


def test_a_hub_keeps_no_message_for_itself() -> None:
    simulation = calm(hops=2)
    with simulation.machine("hub1").store.reader() as reader:
        counts = reader.counts()
    assert counts.get(f"in.{IncomingState.FORWARDED.value}") == 5
    assert not counts.get(f"in.{IncomingState.READY.value}")


EBMS2 = {"profile": "ebms2", "flow": "unrestricted", "hops": 2}
"""Only the To Party's handler is asked to acknowledge."""


@pytest.mark.requirement("HOP-5", "HOP-8")
def test_the_to_partys_acknowledgement_settles_the_copies_of_the_hubs_it_passes() -> None:
    simulation = calm(**EBMS2)
    with simulation.machine("hub1").store.reader() as reader:
        assert reader.counts().get("out.delivered") == 5
        assert not reader.incidents()
    rows = simulation.machine("hub1").rows()
    assert sum(row.kind == "acknowledged" for row in rows) == 5
    assert not any(row.kind in ("failed", "notified") for row in rows)


@pytest.mark.requirement("RM-2", "HOP-9")
def test_a_hub_sends_no_more_what_it_tells_the_from_party_was_refused() -> None:
    """The next hub has lost its agreement for a while; the From Party hears its refusal."""
    chain = Network.chain(options("ebms2", hops=3, hop_mode="transient_until_forwarded"))
    known = chain.engines["hub2"].context.agreements
    chain.engines["hub2"].context.agreements = Agreements()
    order = chain.send(0).message_id
    assert chain.state(order) is OutgoingState.NOT_DELIVERED
    chain.engines["hub2"].context.agreements = known
    chain.pass_time(*[60 * SECOND] * 20)
    assert not chain.kinds("seller", order)


@pytest.mark.long
@pytest.mark.requirement("HOP-5")
def test_a_lost_acknowledgement_of_the_to_party_is_asked_for_through_the_hub() -> None:
    """The hub stops the sender's copies, and it alone cannot say what the To Party said."""
    options = Options(messages=30, **(CALM | EBMS2 | {"loss": 0.35, "retries": 60}))  # type: ignore[arg-type]
    again = 0
    for seed in range(1, 4):
        simulation = world_of(options, seed)
        result = simulation.run()
        assert not result.violations, (result.plan.command, result.violations[:3])
        orders = {order.message_id for order in simulation.plan.orders}
        acknowledged = orders & {
            row.message_id
            for row in simulation.machine("buyer").rows()
            if row.kind == "acknowledged"
        }
        assert len(acknowledged) == result.delivered == 30, result.plan.command
        assert not any(row.kind == "failed" for row in simulation.rows()), result.plan.command
        again += sum(
            row.kind == "passed_on" and (row.message_id or "").startswith("order-")
            for row in simulation.machine("hub1").rows()
        )
    assert again > 0


def test_a_copy_of_what_is_still_under_way_is_not_sent_on_beside_it() -> None:
    chain = Network.chain(options("ebms2", hops=2, hop_mode="store_and_forward"), carrying=False)
    chain.send(0)
    ((_, order),) = chain.kept
    chain.kept.clear()
    for _ in range(2):
        chain.carry("buyer", order)
    onward = [post for name, post in chain.kept if "seller" in post.address]
    assert [isinstance(one, Post) for one in onward] == [True]
    assert "passed_on" not in chain.kinds("hub1", order.message_id)


def test_what_a_hub_only_passed_on_is_not_under_way_for_ever() -> None:
    simulation = calm(**EBMS2)
    signals = [row for row in simulation.machine("hub1").rows() if row.kind == "passed_on"]
    assert signals
    for row in signals:
        outcome = fold_outcome([row])
        assert outcome is not None
        assert (outcome.outcome, outcome.reason, outcome.reliable) == (
            Outcome.SENT,
            "passed_on",
            False,
        )


@pytest.mark.requirement("HOP-1")
@pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x", "window", "rm-0.78"])
def test_the_next_hop_begins_when_the_previous_one_is_complete(profile: str) -> None:
    chain = Network.chain(options(profile, hops=2), carrying=False)
    order = chain.send(0).message_id
    chain.carry(*chain.kept.pop())
    kinds = chain.kinds("hub1", order)
    assert kinds.index("ack_sent") < kinds.index("forwarded") < kinds.index("sent")
    back, onward = (action for _, action in chain.kept)
    assert isinstance(back, PostAnswer)
    assert isinstance(onward, Post)


@pytest.mark.requirement("HOP-6", "HOP-8", "ACK-14")
@pytest.mark.parametrize("mode", ["by_request", "store_and_forward", "transient_until_forwarded"])
@pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x"])
def test_a_hub_that_cannot_sign_says_so_and_does_nothing_else(profile: str, mode: str) -> None:
    signed = '[ack]\nhop_request = "Signed"\n'
    chain = Network.chain(options(profile, hops=2, hop_mode=mode, agreement=signed))
    order = chain.send(0).message_id
    assert chain.kinds("hub1", order) == ["refused"]
    assert chain.rows(at="seller", of=order) == []
    assert chain.state(order) is OutgoingState.NOT_DELIVERED
    (notice,) = chain.notices
    assert "no key to sign with" in notice.reason


@pytest.mark.requirement("RM-7", "RM-8")
@pytest.mark.parametrize("mode", ["by_request", "store_and_forward", "transient_until_forwarded"])
def test_a_hub_that_owes_no_acknowledgement_sends_nobody_away(mode: str) -> None:
    by_transport = '[delivery]\nmethod = "Transport"\n[ack]\nactor = "nextMSH"\n'
    chain = Network.chain(options("ebms2", hops=2, hop_mode=mode, agreement=by_transport))
    chain.carrying = False
    order = chain.send(0).message_id
    ((_, post),) = chain.kept
    assert chain.carry("buyer", post).status == 204
    # A copy that the network made is no reason for one either.
    assert chain.carry("buyer", post).status == 204
    assert "ack_sent" not in chain.kinds("hub1", order)


@pytest.mark.requirement("HOP-7")
def test_one_that_only_passes_on_passes_the_wish_on_too() -> None:
    signed = '[ack]\nhop_request = "Signed"\n'
    chain = Network.chain(options("ms-0.9x", hops=2, hop_mode="transparent", agreement=signed))
    order = chain.send(0).message_id
    assert chain.kinds("hub1", order) == ["passed_on"]
    assert chain.kinds("seller", order) == ["refused"]
    assert chain.state(order) is OutgoingState.NOT_DELIVERED


WORLDS = [
    pytest.param(profile, mode, hubs, sync, marks=pytest.mark.long if hubs == 2 else ())
    for profile, sync in [
        *itertools.product(
            ["ebms2", "ms-0.9x", "window"], ["none", "mshSignalsOnly", "signalsAndResponse"]
        ),
        # v0-078 has no synchronous replies.
        ("rm-0.78", "none"),
    ]
    for mode in HopMode
    for hubs in (1, 2)
]


@pytest.mark.requirement("HOP-5", "HOP-7", "HOP-8", "SYNC-11")
@pytest.mark.parametrize(("profile", "mode", "hubs", "sync"), WORLDS)
def test_calm_worlds(profile: str, mode: HopMode, hubs: int, sync: str) -> None:
    """Every message arrives, its sender knows it, and nobody hears of anything else."""
    said = "" if sync == "none" else f'[sync]\nmode = "{sync}"\n'
    world = options(profile, hops=hubs + 1, hop_mode=mode.value, agreement=said, messages=2, **CALM)
    simulation = world_of(world, seed=1)
    result = simulation.run()
    assert not result.violations
    assert (result.delivered, result.notified) == (2, 0)
    with simulation.machine("buyer").store.reader() as reader:
        assert reader.counts()["out.delivered"] == 2
    bad = ("refused", "rejected", "failed", "notified", "incident", "send_failed")
    if mode is HopMode.TRANSIENT_UNTIL_FORWARDED:
        bad = bad[:-1]
    assert not [row for row in simulation.rows() if row.kind in bad]


@pytest.mark.requirement("OPS-2")
def test_a_neighbour_is_told_what_became_of_what_it_sent_on() -> None:
    chain = Network.chain(options("ms-0.9x", hops=3))
    order = chain.send(0).message_id
    node = chain.engines["hub1"].context
    with node.store.reader() as reader:
        parcel = reader.outgoing_parcel(order)
    assert parcel is not None
    asked = codec.read(whole_parcel(node, parcel)).message
    (onward,) = node.agreements.by_cpa_id("hub1-hub2")
    own = structs.replace(
        asked.header,
        from_party=onward.own.party,
        to_party=onward.partner.party,
        cpa_id=onward.cpa_id,
    )
    envelope = envelope_for(node, signal_route(onward, MessageKind.STATUS_REQUEST))
    question = answers.ask_status(structs.replace(asked, header=own), envelope)
    before = len(chain.carried)
    chain.deliver("hub2", codec.write(question, onward.form))
    (answer,) = chain.carried[before:]
    assert (answer.sender, answer.to) == ("hub2", "hub1")
    told = answer.message.status_response
    assert told is not None
    assert (told.ref_to_message_id, told.status) == (order, MessageStatus.FORWARDED)


@pytest.mark.requirement("OPS-2")
@pytest.mark.parametrize(
    ("profile", "hubs", "told", "state"),
    [
        ("ebms2", 1, MessageStatus.RECEIVED, OutgoingState.DELIVERED),
        ("ms-0.9x", 1, MessageStatus.RECEIVED, OutgoingState.DELIVERED),
        # The next hub may only have passed it on: nobody has said that it arrived.
        ("ebms2", 2, MessageStatus.FORWARDED, OutgoingState.OUTSTANDING),
        ("ms-0.9x", 2, MessageStatus.FORWARDED, OutgoingState.OUTSTANDING),
    ],
)
def test_a_hub_that_asks_what_became_of_its_copy_hears_the_answer(
    profile: str, hubs: int, told: MessageStatus, state: OutgoingState
) -> None:
    chain = Network.chain(
        options(profile, hops=hubs + 1, hop_mode="store_and_forward"), carrying=False
    )
    order = chain.send(0).message_id
    ((_, post),) = chain.kept
    chain.carry("buyer", post)
    (onward,) = [one for name, one in chain.kept if name == "hub1" and isinstance(one, Post)]
    chain.carry("hub1", onward)
    # Every answer is lost on its way.
    chain.kept.clear()
    chain.carrying = True
    chain.engines["hub1"].ask_status(order)
    chain.settle("hub1")
    assert [one.response.status for one in chain.seen(StatusTold, "hub1")] == [told]
    assert chain.state(order, "hub1") is state


@pytest.mark.requirement("ACK-9")
@pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x"])
@pytest.mark.parametrize("kind", [MessageKind.STATUS_RESPONSE, MessageKind.PONG])
def test_nothing_answers_an_answer_that_has_no_place_here(profile: str, kind: MessageKind) -> None:
    chain = Network.chain(options(profile, hops=2))
    chain.send(0)
    node = chain.engines["seller"].context
    (agreement,) = node.agreements
    order = codec.read(chain.carried[0].parcel).message
    envelope = envelope_for(node, signal_route(agreement, kind))
    question = answers.ask_status(order, structs.replace(envelope, message_id="asked@buyer"))
    if kind is MessageKind.STATUS_RESPONSE:
        answer = answers.status_response_for(question, MessageStatus.RECEIVED, envelope)
    else:
        answer = answers.pong_for(structs.replace(question, status_request=None), envelope)
    nobody = Party((PartyId("urn:sim:nobody"),))
    header = structs.replace(answer.header, cpa_id="nobody-agreed", to_party=nobody)
    stray = structs.replace(answer, header=header)
    before = len(chain.carried)
    said = chain.deliver("hub1", codec.write(stray, agreement.form))
    assert (said.parcel, chain.carried[before:]) == (None, [])


@pytest.mark.requirement("HOP-5")
def test_an_answer_goes_back_only_if_it_came_over_the_agreed_connection() -> None:
    chain = Network.chain(options("ebms2", hops=2, hop_mode="transparent"), carrying=False)
    order = chain.send(0).message_id
    ((_, post),) = chain.kept
    chain.carry("buyer", post)
    (onward,) = [one for name, one in chain.kept if name == "hub1"]
    chain.carry("hub1", onward)
    (answer,) = [one for name, one in chain.kept if name == "seller"]
    # Whoever answers for the seller shows its certificate.
    node = chain.engines["hub1"].context
    before, after = node.agreements
    partner = replace(after.partner, client_certificates=("ab" * 32,))
    node.agreements = Agreements([before, replace(after, partner=partner)])
    chain.kept.clear()
    chain.carry("seller", answer)
    assert not [one for name, one in chain.kept if name == "hub1" and "buyer" in one.address]
    assert chain.state(order) is OutgoingState.OUTSTANDING


@pytest.mark.requirement("HOP-5")
@pytest.mark.parametrize("mode", ["transparent", "store_and_forward"])
def test_a_neighbour_that_is_known_by_its_certificate_shows_it_for_what_lies_behind(
    mode: str,
) -> None:
    chain = Network.chain(options("ebms2", hops=3, hop_mode=mode), carrying=False)
    order = chain.send(0).message_id
    ((_, post),) = chain.kept
    chain.carry("buyer", post)
    (onward,) = [one for name, one in chain.kept if name == "hub1" and "hub2" in one.address]
    node = chain.engines["hub2"].context
    before, after = node.agreements
    partner = replace(before.partner, client_certificates=("ab" * 32,))
    node.agreements = Agreements([replace(before, partner=partner), after])
    chain.kept.clear()
    chain.carry("hub1", onward)
    assert not [one for name, one in chain.kept if name == "hub2" and "seller" in one.address]
    assert "received" not in chain.kinds("hub2", order)


@pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x", "window"])
def test_a_partner_behind_a_hub_answers_whoever_asked(profile: str) -> None:
    chain = Network.chain(options(profile, hops=2))
    buyer = chain.engines["buyer"]
    message_id = chain.send().message_id
    ping_id = buyer.ping(chain.order_of["cpa_id"])
    chain.settle("buyer")
    buyer.ask_status(message_id)
    chain.settle("buyer")
    assert [one.message_id for one in chain.ponged] == [ping_id]
    assert chain.told
    assert not buyer.context.state.refusals.counted
