"""What a hub sends on is the message, not the connection it came on."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from msgspec import structs

from oncewire.agreement.agreement import Agreements
from oncewire.handler.actions import Post, PostAnswer, Source, Submission
from oncewire.handler.content_digest import is_intact, stated_digest
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.runtime.engine import Engine
from oncewire.lab.simulation.plan import Options
from oncewire.message.envelope import Payload
from oncewire.message.ids import Service
from oncewire.message.instant import DAY
from oncewire.wire import codec
from tests.handler.network import HTTP, START, Network, TestWorld, options
from tests.simulation.given import CPA_ID, world_of


def posts(engine: Engine) -> list[Post]:
    return [action for action in engine.commit() if isinstance(action, Post)]


@pytest.mark.requirement("HOP-5", "HOP-8")
def test_headers_of_the_connection_stay_behind() -> None:
    simulation = world_of(Options(hops=2), seed=1)
    buyer, hub = simulation.machine("buyer").engine, simulation.machine("hub1").engine
    document = Payload.of("order", "text/plain", b"order")
    buyer.submit(Submission(CPA_ID, Service("urn:sim:orders"), "PlaceOrder", (document,)))
    (first,) = posts(buyer)
    parcel = whole_parcel(buyer.context, first.parcel)
    came_with = (
        *parcel.headers,
        ("Host", "hub1"),
        ("Content-Length", str(len(parcel.body))),
        ("Authorization", "Basic c2VjcmV0"),
        ("SOAPAction", '"ebXML"'),
    )
    hub.receive(structs.replace(parcel, headers=came_with), Source("http", can_answer=True))
    (onward,) = posts(hub)
    assert len(whole_parcel(hub.context, onward.parcel).body) > len(parcel.body)
    names = [name for name, _ in onward.parcel.headers]
    assert sorted(names) == ["Content-Digest", "SOAPAction"]


@pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x", "rm-0.78"])
@pytest.mark.parametrize("charset", ["iso-8859-1", "latin-1", "utf8"])
def test_a_header_whose_charset_stands_in_mime_alone_goes_on_as_it_came(
    profile: str, charset: str
) -> None:
    chain = Network.chain(options(profile, hops=2))
    chain.carrying = False
    buyer, hub = chain.engines["buyer"], chain.engines["hub1"]
    chain.send(0)
    (order,) = [post for _, post in chain.kept if isinstance(post, Post)]
    parcel = whole_parcel(buyer.context, order.parcel)
    envelope = codec.read(parcel).envelope
    written = ">y\u00e9ar<".encode(charset)
    named = re.sub(rb"<\?xml.*?\?>\n", b"", envelope).replace(b">year<", written)
    body = parcel.body.replace(envelope, named)
    said = f"charset={charset}".encode()
    body = re.sub(rb'charset="?utf-8"?', said, body, count=1, flags=re.IGNORECASE)
    headers = tuple(each for each in parcel.headers if each[0] != "Content-Digest")
    hub.receive(structs.replace(parcel, body=body, headers=headers), HTTP)
    (onward,) = posts(hub)
    gone_on = codec.read(whole_parcel(hub.context, onward.parcel))
    assert written in gone_on.envelope
    assert gone_on.message.header.conversation_id == "y\u00e9ar"


@pytest.mark.parametrize("what", ["a stranger's message", "no message"])
def test_what_is_refused_on_the_spot_is_answered_with_a_digest(what: str) -> None:
    """Damage could make a message for the application of an error that nothing protects."""
    chain = Network.chain(options("ebms2", hops=2))
    chain.carrying = False
    buyer, hub = chain.engines["buyer"], chain.engines["hub1"]
    chain.send(0)
    (order,) = [post for _, post in chain.kept if isinstance(post, Post)]
    parcel = whole_parcel(buyer.context, order.parcel)
    body = parcel.body
    hub.context.agreements = Agreements([])
    if what == "no message":
        body = body.replace(b"eb:MessageHeader", b"eb:MessageFooter")
    answer = hub.receive(structs.replace(parcel, body=body, headers=()), HTTP)
    assert answer.parcel is not None
    said = whole_parcel(hub.context, answer.parcel)
    assert (b"ErrorList" in said.body) == (what != "no message")
    assert stated_digest(said) is not None
    assert is_intact(said)


@pytest.mark.requirement("HOP-1", "SEQ-5")
def test_what_waits_at_a_hub_goes_before_what_comes_in_the_same_turn() -> None:
    chain = Network.chain(options("window", hops=2))
    chain.send(0)
    hub, seller = chain.engines["hub1"], chain.engines["seller"]
    before, after = hub.context.agreements
    terms = structs.replace(after.sending.terms, window=1)
    narrow = replace(after, sending=replace(after.sending, terms=terms))
    hub.context.agreements = Agreements([before, narrow])
    chain.carrying = False
    chain.send_all((1, 2, 3))
    orders = [post for _, post in chain.kept]
    chain.kept.clear()
    for order in orders[:2]:
        chain.carry("buyer", order)
    (first,) = [post for _, post in chain.kept if isinstance(post, Post)]
    seller.receive(whole_parcel(hub.context, first.parcel), HTTP)
    (ack,) = [one for one in seller.commit() if isinstance(one, PostAnswer)]
    # Order 1 makes room for order 2; before that is committed, order 3 arrives.
    hub.receive(whole_parcel(seller.context, ack.parcel), HTTP)
    hub.receive(whole_parcel(chain.engines["buyer"].context, orders[2].parcel), HTTP)
    hub.commit()
    numbered = [row.message_id for row in chain.rows(at="hub1") if row.kind == "numbered"]
    assert numbered == ["order-0@buyer", "order-1@buyer", "order-2@buyer"]
    # The hop's timestamps rise, although no time has passed and one of them waited.
    stamps = []
    with hub.context.store.reader() as reader:
        for message_id in numbered:
            parcel = reader.outgoing_parcel(message_id or "")
            assert parcel is not None
            hop = codec.read(whole_parcel(hub.context, parcel)).message.last_hop
            assert hop is not None
            stamps.append(hop.timestamp or 0)
    assert stamps == sorted(set(stamps))


@pytest.mark.requirement("HOP-9", "SEQ-8")
@pytest.mark.parametrize("profile", ["window", "rm-0.78"])
def test_a_hubs_notices_follow_each_other_though_its_clock_was_set_back(profile: str) -> None:
    """In v0-078 the receiver reads the message's own timestamp, else that of the hop."""
    chain = Network.chain(options(profile, hops=2), hears=True)

    def give_up(message_id: str) -> str:
        chain.engines["hub1"].abandon(message_id)
        chain.settle("hub1")
        return chain.rows("notified", at="hub1")[-1].ref_to or ""

    chain.lose_request = lambda post: "seller" in post.address
    chain.world("hub1").time += DAY
    give_up(chain.send(1).message_id)
    chain.start("hub1", world=TestWorld("set", START)).accept_clock()
    order = chain.send(2).message_id
    chain.lose_request = lambda post: True
    # Given up as well, it ends the epoch that the first notice began.
    give_up(give_up(order))
    chain.lose_request = lambda post: "seller" in post.address
    give_up(chain.send(3).message_id)
    told = [notice.message_id for notice in chain.notices]
    assert told == ["order-1@buyer", "order-3@buyer"]
