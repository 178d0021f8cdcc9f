"""What a real handler writes into the headers of business messages, and what it takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncewire.handler.actions import Source
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.sending.answer import Answer
from oncewire.lab.simulation.plan import Options
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel
from tests.handler.hub.test_hub import CALM
from tests.handler.network import Crossing, Network
from tests.handler.wiretap import find, names
from tests.simulation.given import world_of

FOREIGN = b'<x:Note xmlns:x="urn:somebody:else" level="7"><x:Text>keep me</x:Text></x:Note>'


def sent(profile: str, extra: str = "", **more: object) -> Crossing:
    """One message as it arrived."""
    pair = Network.pair(profile, extra)
    pair.send(**more)
    return pair.to("beta")[0]


@pytest.mark.requirement("HDR-1", "HDR-2", "HDR-3", "RM-6")
@pytest.mark.parametrize(
    ("best_effort", "children"),
    [(False, ["SenderID", "ReceiverID", "SequenceNumber"]), (True, ["SenderID", "ReceiverID"])],
    ids=["reliable", "best effort"],
)
def test_every_leg_of_v0_078_names_both_handlers(best_effort: bool, children: list[str]) -> None:
    hop = find(sent("rm-0.78", best_effort=best_effort).envelope, "RoutingHeader")
    assert hop is not None
    assert names(hop) == children
    assert [hop[0].text, hop[1].text] == ["urn:test:alpha", "urn:test:beta"]


@pytest.mark.requirement("HDR-8", "RM-4", "RM-5", "RM-12")
@pytest.mark.parametrize(
    ("profile", "element", "reliable", "not_reliable"),
    [
        ("rm-0.78", "ReliableMessagingInfo", "AtMostOnce", "Unspecified"),
        ("ms-0.9x", "QualityOfServiceInfo", "OnceAndOnlyOnce", "BestEffort"),
    ],
)
def test_the_semantics_stand_where_the_dialect_has_them(
    profile: str, element: str, reliable: str, not_reliable: str
) -> None:
    pair = Network.pair(profile)
    pair.send(1)
    pair.send(2, best_effort=True)
    words = []
    for crossing in pair.to("beta"):
        quality = find(crossing.envelope, "Header", element)
        assert quality is not None
        words.append({name.lower(): word for name, word in quality.attrib.items()})
    assert [one["deliverysemantics"] for one in words] == [reliable, not_reliable]
    # Both sides treat the first as reliable and the second as not: one acknowledgement.
    assert len(pair.to("alpha")) == 1
    assert pair.to("alpha")[0].message.header.ref_to_message_id == "order-1@alpha"


@pytest.mark.requirement("HDR-5", "RM-12")
def test_the_hop_of_2001_names_both_ends_and_its_time() -> None:
    hop = find(sent("ms-0.9x").envelope, "RoutingHeaderList", "RoutingHeader")
    assert hop is not None
    assert names(hop) == ["SenderURI", "ReceiverURI", "Timestamp"]
    assert [hop[0].text, hop[1].text] == ["http://alpha/msh", "http://beta/msh"]


@pytest.mark.requirement("HDR-6", "SYNC-15", "SYNC-9")
def test_the_children_of_the_header_stand_in_their_order() -> None:
    crossing = sent("ms-0.9x", '[sync]\nmode = "AcksOnly"\n')
    header = find(crossing.envelope, "Header")
    assert header is not None
    assert names(header) == [
        "From",
        "To",
        "CPAId",
        "ConversationId",
        "Service",
        "Action",
        "MessageData",
        "QualityOfServiceInfo",
        "SynchronousMessagingInfo",
    ]
    wish = header[-1]
    assert (dict(wish.attrib), len(wish), wish.text) == ({"syncReplyMode": "AcksOnly"}, 0, None)
    # The wish stands in the header alone, so every transport carries it.
    assert not [name for name, _ in crossing.parcel.headers if "sync" in name.lower()]


def _with_foreign(parcel: Parcel) -> Parcel:
    body = parcel.body.replace(b"</Header>", FOREIGN + b"</Header>")
    assert body != parcel.body
    return Parcel(parcel.content_type, body)


@pytest.mark.requirement("HDR-7")
def test_a_foreign_element_is_taken_without_knowing_it() -> None:
    pair = Network.pair("ms-0.9x", lose_request=lambda post: True)
    pair.send()
    pair.deliver("beta", _with_foreign(pair.sent("order-1@alpha")))
    assert pair.take() == ["order-1@alpha"]
    with pair.beta.context.store.transition() as tx:
        (arrived,) = tx.incoming_by_id("order-1@alpha")
    assert arrived.parcel is not None
    kept = codec.read(whole_parcel(pair.beta.context, arrived.parcel)).message
    assert kept.header.foreign == (FOREIGN,)


@pytest.mark.requirement("HDR-7", "RM-9")
def test_a_hub_passes_a_foreign_element_on_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = world_of(Options(messages=1, hops=2, **CALM), seed=1)  # type: ignore[arg-type]
    hub, seller = simulation.machine("hub1"), simulation.machine("seller")
    arrive = hub.door.arrive

    def slipped_in(parcel: Parcel, source: Source, respond: Callable[[Answer], None]) -> None:
        business = b"<MessageId>order-0@buyer" in parcel.body
        arrive(_with_foreign(parcel) if business else parcel, source, respond)

    monkeypatch.setattr(hub.door, "arrive", slipped_in)
    assert simulation.run().delivered == 1
    with seller.store.transition() as tx:
        (arrived,) = tx.incoming_by_id("order-0@buyer")
    assert arrived.parcel is not None
    last = codec.read(whole_parcel(seller.engine.context, arrived.parcel))
    assert last.message.header.foreign == (FOREIGN,)
    assert FOREIGN in last.envelope
