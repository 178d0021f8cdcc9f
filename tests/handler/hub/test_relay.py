"""A hub in the middle of a synchronous exchange: what the next hop says comes back in time."""

from __future__ import annotations

import asyncio

import pytest

from oncewire.errors import SoapFault, StoreFull
from oncewire.handler.actions import Action, Post, PostOn, Relay, Submission
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.runtime.door import Connections
from oncewire.handler.runtime.engine import Engine
from oncewire.handler.sending.answer import Awaited
from oncewire.handler.sending.transmit import Transmission
from oncewire.message.envelope import MessageKind, Payload, Severity
from oncewire.message.ids import Service
from oncewire.message.instant import SECOND
from oncewire.protocol.states import OutgoingState
from oncewire.protocol.synchronous import TIMEOUT_MESSAGE
from oncewire.store.memory.store import MemoryStore
from oncewire.transport.contract import Reply
from oncewire.wire import codec, soap
from oncewire.wire.parcel import Parcel, Received
from tests.handler.hub.test_hub import CALM
from tests.handler.network import HTTP, Network, options
from tests.handler.running import Clerk, Net, journal, line
from tests.simulation.given import CPA_ID, world_of

BOTH = '[sync]\nmode = "signalsAndResponse"\n'
ACKS = '[sync]\nmode = "mshSignalsOnly"\n'
ASKED = '[ack]\nhop_request = "Unsigned"\n'

PROFILE = pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x"])
HUBS = pytest.mark.parametrize("hubs", [1, 2])
MODE = pytest.mark.parametrize(
    "mode", ["by_request", "transparent", "store_and_forward", "transient_until_forwarded"]
)


def read(reply: Reply) -> tuple[Received, ...]:
    return codec.read_all(Parcel(reply.content_type, reply.body, reply.headers))


def reply_to_buyer(net: Net) -> Reply:
    """What came back on the connection of the buyer's first request."""
    return next(reply for sender, _, _, reply in net.said if sender == "buyer")


@pytest.mark.requirement("SYNC-2", "SYNC-5", "SYNC-6", "SYNC-11", "SYNC-16", "HOP-5")
@PROFILE
@MODE
@HUBS
async def test_the_response_comes_back_through_hubs(profile: str, mode: str, hubs: int) -> None:
    clerk = Clerk()
    world = options(profile, hops=hubs + 1, hop_mode=mode, agreement=BOTH)
    async with line(world, clerk) as chain:
        # Nobody can reach the buyer: what it gets it gets on its own connection.
        chain.net.cut.add(("hub1", "buyer"))
        order = await chain.order()
        buyer = chain.handlers["buyer"]
        assert await buyer.wait(order, 20) is OutgoingState.DELIVERED
        (response,) = await buyer.take()
        assert response.header.ref_to_message_id == order
        assert response.payloads[0].data == f"accepted {order}".encode()
        rows = journal(buyer)
    assert clerk.asked == [order]
    assert sum(row.kind == "sent" and row.message_id == order for row in rows) == 1
    assert not any(row.kind in ("failed", "refused") for row in rows)


@pytest.mark.requirement("SYNC-2", "SYNC-3", "SYNC-11")
@PROFILE
@MODE
@HUBS
async def test_so_does_the_acknowledgement_alone(profile: str, mode: str, hubs: int) -> None:
    async with line(options(profile, hops=hubs + 1, hop_mode=mode, agreement=ACKS)) as chain:
        chain.net.cut.add(("hub1", "buyer"))
        order = await chain.order()
        assert await chain.handlers["buyer"].wait(order, 20) is OutgoingState.DELIVERED
        reply = reply_to_buyer(chain.net)
        assert reply.status == 200
        assert [one.message.kind for one in read(reply)] == [MessageKind.ACKNOWLEDGMENT]


@pytest.mark.requirement("SYNC-8", "HOP-12")
@PROFILE
@pytest.mark.parametrize("mode", ["by_request", "store_and_forward"])
@HUBS
async def test_acknowledgement_of_the_hop_and_response_in_one_reply(
    profile: str, mode: str, hubs: int
) -> None:
    world = options(profile, hops=hubs + 1, hop_mode=mode, agreement=BOTH + ASKED)
    async with line(world, Clerk()) as chain:
        chain.net.cut.add(("hub1", "buyer"))
        order = await chain.order()
        assert await chain.handlers["buyer"].wait(order, 20) is OutgoingState.DELIVERED
        own, response = (one.message for one in read(reply_to_buyer(chain.net)))
        assert own.kind is MessageKind.ACKNOWLEDGMENT
        # Of all intermediaries only the first one is heard.
        assert own.header.message_id.endswith("@hub1")
        assert response.kind is MessageKind.NORMAL
        assert response.header.message_id.endswith("@seller")
        assert [one.header.ref_to_message_id for one in (own, response)] == [order, order]


def kept_open(chain: Network) -> tuple[Engine, Awaited, list[Action]]:
    """The hub has the buyer's order and keeps its connection; what it lets go, it lets go."""
    chain.carrying = False
    chain.send(0)
    (_, first) = chain.kept.pop()
    hub = chain.engines["hub1"]
    hub.context.state.relaying = {("urn:sim:buyer", "order-0@buyer")}
    answer = hub.receive(whole_parcel(chain.engines["buyer"].context, first.parcel), HTTP)
    assert answer.relayed is not None
    assert answer.parcel is None
    return hub, answer.relayed, hub.commit()


@pytest.mark.requirement("SYNC-17", "SYNC-12")
@PROFILE
@MODE
def test_a_hub_whose_time_is_up_says_so(profile: str, mode: str) -> None:
    chain = Network.chain(options(profile, hops=2, hop_mode=mode, agreement=BOTH))
    hub, awaited, actions = kept_open(chain)
    (onward,) = [one for one in actions if isinstance(one, Post | PostOn)]
    assert onward.timeout < awaited.patience < 30 * SECOND
    said: list[Relay] = []
    if isinstance(onward, PostOn):
        late = Transmission(onward.message_id, 0, sent=False, reason="no response in time")
        hub.onward_over(onward, late)
        said = [one for one in hub.commit() if isinstance(one, Relay)]
        assert len(said) == 1
    answer = hub.relay(awaited, said)
    hub.commit()
    if answer.status == 503:
        # ebMS 2.0 has no Transient Error (HOP-4).
        assert (profile, mode, answer.retry_after) == ("ebms2", "transient_until_forwarded", 5)
        return
    assert answer.parcel is not None
    message = codec.read(whole_parcel(hub.context, answer.parcel)).message
    assert message.header.ref_to_message_id == "order-0@buyer"
    assert message.error_list is not None
    (error,) = message.error_list.errors
    if mode == "transient_until_forwarded":
        assert error.code == "TransientError"
    else:
        assert TIMEOUT_MESSAGE in error.description
    # Whoever may repeat the request is told that it is stored; nobody is told that it failed.
    acknowledged = message.kind is MessageKind.ACKNOWLEDGMENT
    assert acknowledged is ((profile, mode) == ("ebms2", "store_and_forward"))
    assert error.severity is Severity.WARNING


@pytest.mark.long
@pytest.mark.requirement("SYNC-17")
async def test_the_initiator_hears_of_it_before_it_leaves() -> None:
    clerk = Clerk(open_desk=False)
    soon = BOTH + 'timeout = "PT3S"\n'
    world = options("ebms2", hops=2, hop_mode="transparent", agreement=soon)
    async with line(world, clerk) as chain:
        chain.net.before = lambda sender, to: clerk.desk if to == "seller" else None
        await chain.order()
        while not chain.net.posts("buyer", "hub1"):
            await asyncio.sleep(0.01)
        (said,) = (one.message for one in read(reply_to_buyer(chain.net)))
        clerk.desk.set()
    assert said.error_list is not None
    assert TIMEOUT_MESSAGE in said.error_list.errors[0].description


@pytest.mark.requirement("HOP-9", "SYNC-12")
@PROFILE
@pytest.mark.parametrize("certain", [False, True], ids=["it may have arrived", "it did not"])
def test_what_has_failed_already_is_not_acknowledged(profile: str, certain: bool) -> None:
    chain = Network.chain(options(profile, hops=2, agreement=BOTH))
    hub, awaited, actions = kept_open(chain)
    (onward,) = [one for one in actions if isinstance(one, Post)]
    lost = Transmission(onward.message_id, 1, sent=False, certain=certain, reason="away")
    hub.transmission_over(lost)
    hub.abandon(awaited.message_id)
    hub.commit()
    answer = hub.relay(awaited, [Relay(awaited.sender, awaited.message_id)])
    hub.commit()
    assert answer.parcel is not None
    message = codec.read(whole_parcel(hub.context, answer.parcel)).message
    assert message.kind is MessageKind.ERROR
    assert message.error_list is not None
    assert message.error_list.errors[0].code == "DeliveryFailure"
    # What may have arrived is never called undelivered (ERR-9).
    assert message.error_list.errors[0].severity is (
        Severity.ERROR if certain else Severity.WARNING
    )
    assert "ack_sent" not in chain.kinds("hub1", awaited.message_id)


@pytest.mark.requirement("SYNC-11", "HOP-7")
@pytest.mark.parametrize("status", [503, 500])
def test_a_status_and_a_fault_go_back_as_they_are(status: int) -> None:
    chain = Network.chain(options("ebms2", hops=2, hop_mode="transparent", agreement=BOTH))
    hub, awaited, actions = kept_open(chain)
    (onward,) = [one for one in actions if isinstance(one, PostOn)]
    fault = soap.write_fault(SoapFault("Server", "out of order")) if status == 500 else None
    wait = 9 if status == 503 else None
    refused = Transmission(onward.message_id, 0, sent=False, reason="no", retry_after=wait)
    hub.onward_over(onward, refused, fault)
    answer = hub.relay(awaited, [one for one in hub.commit() if isinstance(one, Relay)])
    assert (answer.status, answer.retry_after) == (status, wait)
    assert (answer.parcel is not None) is (fault is not None)


@pytest.mark.requirement("HOP-9", "SYNC-12")
@pytest.mark.parametrize("certain", [False, True], ids=["it may have arrived", "it did not"])
def test_a_copy_of_what_has_failed_already_waits_for_nobody(certain: bool) -> None:
    chain = Network.chain(options("ebms2", hops=2, agreement=BOTH))
    hub, awaited, actions = kept_open(chain)
    (onward,) = [one for one in actions if isinstance(one, Post)]
    hub.transmission_over(Transmission(onward.message_id, 1, sent=False, certain=certain))
    hub.abandon(awaited.message_id)
    hub.commit()
    with chain.engines["buyer"].context.store.reader() as reader:
        parcel = reader.outgoing_parcel(awaited.message_id)
    assert parcel is not None
    answer = hub.receive(whole_parcel(hub.context, parcel), HTTP)
    assert answer.relayed is None
    assert answer.parcel is not None
    (said,) = codec.read_all(whole_parcel(hub.context, answer.parcel))
    assert said.message.kind is MessageKind.ERROR


@pytest.mark.requirement("SYNC-11", "HOP-7")
def test_a_next_hop_that_takes_it_and_says_nothing_is_no_failure() -> None:
    chain = Network.chain(options("ebms2", hops=2, hop_mode="transparent", agreement=BOTH))
    hub, awaited, actions = kept_open(chain)
    (onward,) = [one for one in actions if isinstance(one, PostOn)]
    hub.onward_over(onward, Transmission(onward.message_id, 0, sent=True))
    answer = hub.relay(awaited, [one for one in hub.commit() if isinstance(one, Relay)])
    assert (answer.status, answer.parcel) == (204, None)


@pytest.mark.requirement("SYNC-17")
def test_one_that_only_passes_on_has_no_word_of_its_own_when_time_is_up() -> None:
    """204 would say that the next handler has taken the message."""
    chain = Network.chain(options("ebms2", hops=2, hop_mode="transparent", agreement=BOTH))
    hub, awaited, _ = kept_open(chain)
    assert hub.relay(awaited, []).status == 504


@pytest.mark.requirement("HOP-7")
@PROFILE
async def test_a_next_hop_that_is_away_is_reported_on_the_connection(profile: str) -> None:
    world = options(profile, hops=2, hop_mode="transparent", agreement=BOTH)
    async with line(world) as chain:
        chain.net.cut.add(("hub1", "seller"))
        order = await chain.order()
        while not chain.net.posts("buyer", "hub1"):
            await asyncio.sleep(0.01)
        (said,) = (one.message for one in read(reply_to_buyer(chain.net)))
        assert said.error_list is not None
        assert "connection refused" in said.error_list.errors[0].description
        with chain.handlers["buyer"].engine.context.store.reader() as reader:
            stored = reader.outgoing(order)
        # Another copy may have passed, so it is not called undelivered.
        assert stored is not None
        never = stored.outgoing.state is OutgoingState.UNKNOWN
        assert never or stored.outgoing.state is OutgoingState.OUTSTANDING
        # The drafts repeat no synchronous request, so nothing else will be known of it.
        assert never is (profile == "ms-0.9x")


@pytest.mark.requirement("SYNC-11", "HOP-8")
@PROFILE
def test_a_response_for_which_nobody_waits_any_more_goes_its_own_way(profile: str) -> None:
    """The hub has stored the response and answers for it; its connection is of no importance."""
    chain = Network.chain(options(profile, hops=2, agreement=BOTH + 'retries = "same_message"\n'))
    hub = answered_by_the_seller(chain)
    relayed = [one for one in hub.commit() if isinstance(one, Relay)]
    assert len(relayed) == 1
    # On the connection and off it: the same bytes, and the hub knows that it has to send them.
    instead = relayed[0].instead
    assert isinstance(instead, Post)
    assert instead.message_id == "response@seller"
    assert instead.parcel == relayed[0].parcel
    assert chain.state("response@seller", "hub1") is OutgoingState.OUTSTANDING
    assert hub.context.state.in_flight == {"response@seller"}


def test_a_response_that_a_hub_could_not_store_is_not_under_way() -> None:
    chain = Network.chain(options("ebms2", hops=2, agreement=BOTH + 'retries = "same_message"\n'))
    hub = answered_by_the_seller(chain)
    assert isinstance(hub.context.store, MemoryStore)
    hub.context.store.fail_next_commit(StoreFull("full"))
    with pytest.raises(StoreFull):
        hub.commit()
    assert hub.context.state.in_flight == set()


def answered_by_the_seller(chain: Network) -> Engine:
    """The hub has the seller's response to a request whose connection waits; not committed."""
    hub, _, actions = kept_open(chain)
    seller = chain.engines["seller"]
    seller.context.application_called = True
    seller.context.state.replying = {("urn:sim:buyer", "order-0@buyer")}
    (onward,) = [one for one in actions if isinstance(one, Post)]
    asked = seller.receive(whole_parcel(hub.context, onward.parcel), HTTP).awaited
    seller.commit()
    assert asked is not None
    seller.hand_over(1, SECOND)
    response = Submission(
        CPA_ID,
        Service("urn:sim:orders"),
        "Accepted",
        (Payload.of("response", "text/plain", b"accepted"),),
        conversation_id="year",
        message_id="response@seller",
        ref_to_message_id="order-0@buyer",
    )
    seller.confirm(asked.sender, asked.message_id, (response,))
    seller.commit()
    reply = seller.reply_to(asked)
    assert reply is not None
    assert reply.parcel is not None
    sent = Transmission(onward.message_id, onward.attempt, sent=True)
    hub.transmission_over(sent, whole_parcel(seller.context, reply.parcel))
    return hub


@pytest.mark.long
@pytest.mark.requirement("STO-3", "SYNC-11")
@pytest.mark.parametrize("sync", [BOTH, ACKS], ids=["both", "acks"])
@PROFILE
@MODE
def test_a_hub_that_dies_in_between_loses_nothing(profile: str, mode: str, sync: str) -> None:
    """Crashes around every durable step, the hub's two turns of an exchange among them."""
    again = sync + 'retries = "same_message"\n'
    bad = CALM | {"crash": 0.05, "loss": 0.1}
    world = options(profile, hops=2, hop_mode=mode, agreement=again, messages=10, retries=60, **bad)
    simulation = world_of(world, seed=7)
    result = simulation.run()
    assert not result.violations, (result.plan.command, result.violations[:3])
    assert result.delivered == 10
    assert not any(row.kind == "failed" for row in simulation.machine("buyer").rows())


def test_copies_wait_together_and_leave_alone() -> None:
    connections, woken = Connections(), []
    awaited = Awaited("buyer", "order", SECOND)
    first = connections.open(awaited, lambda: woken.append(1))
    second = connections.open(awaited, lambda: woken.append(2))
    relay = Relay("buyer", "order")
    assert connections.give(relay)
    assert (first.said, second.said, woken) == ([relay], [relay], [1, 2])
    assert connections.close(first)
    assert not connections.close(first)
    assert ("buyer", "order") in connections.requests
    connections.close(second)
    assert not connections.requests
    assert not connections.give(relay)
