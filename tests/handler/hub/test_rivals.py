"""A hub's neighbour that is not on a message's way has no say in what becomes of it."""

from __future__ import annotations

import hashlib

import pytest

from oncewire.agreement.agreement import Agreement, Agreements
from oncewire.handler.actions import Source
from oncewire.message.envelope import (
    Acknowledgment,
    Error,
    ErrorList,
    Header,
    Message,
    MessageKind,
    MessageStatus,
    StatusResponse,
)
from oncewire.message.form import Dialect, Form
from oncewire.message.ids import Party, PartyId, Service
from oncewire.protocol.states import OutgoingState
from oncewire.wire import codec
from oncewire.wire.ebms2.blocks import SIGNAL_SERVICE
from oncewire.wire.parcel import Parcel
from tests.handler.network import START, Network, options
from tests.replacing import replace
from tests.simulation.given import CPA_ID


def bound(agreement: Agreement, name: str) -> Agreement:
    """The same, with a partner that is known by its certificate."""
    known = (hashlib.sha256(name.encode()).hexdigest(),)
    return replace(agreement, partner=replace(agreement.partner, client_certificates=known))


def with_rival(chain: Network) -> None:
    """The hub knows its neighbours by their certificates, and has one more."""
    node = chain.engines["hub1"].context
    before, after = node.agreements
    buyer = Party((*before.partner.party.ids, PartyId("urn:sim:buyer-too")))
    before = replace(before, partner=replace(before.partner, party=buyer))
    rival = replace(after.partner, party=Party((PartyId("urn:sim:mallory"),)))
    third = replace(after, cpa_id="hub1-mallory", partner=rival)
    agreements = [bound(before, "buyer"), bound(after, "seller"), bound(third, "mallory")]
    node.agreements = Agreements(agreements)


def claim(kind: MessageKind, about: str, to: str, cpa_id: str, said_by: str = "mallory") -> Parcel:
    """What is said of a message of the buyer's to the seller."""
    header = Header(
        from_party=Party.of(f"urn:sim:{said_by}"),
        to_party=Party.of(f"urn:sim:{to}"),
        cpa_id=cpa_id,
        conversation_id="year",
        service=Service(SIGNAL_SERVICE),
        action=kind.value,
        message_id=f"claim@{said_by}",
        timestamp=START,
        ref_to_message_id=about,
    )
    message = Message(Dialect.EBMS2, kind, header)
    if kind is MessageKind.ERROR:
        message = replace(message, error_list=ErrorList((Error("DeliveryFailure"),)))
    elif kind is MessageKind.ACKNOWLEDGMENT:
        element = Acknowledgment(START, about, Party.of("urn:sim:seller"))
        message = replace(message, acknowledgments=(element,))
    else:
        told = StatusResponse(about, MessageStatus.PROCESSED, START)
        message = replace(message, status_response=told)
    return codec.write(message, Form())


def forwarded(mode: str) -> tuple[Network, str]:
    """An order of the buyer's that the hub has, and the seller not yet."""
    chain = Network.chain(options("ebms2", hops=2, hop_mode=mode), carrying=False)
    order = chain.send(0).message_id
    ((_, post),) = chain.kept
    chain.carry("buyer", post)
    with_rival(chain)
    chain.kept.clear()
    return chain, order


def say(chain: Network, parcel: Parcel, shown: str) -> list[str]:
    """Say it to the hub, which is carried on; returns where the hub sent something."""
    source = Source("http", can_answer=True, certificate=shown.encode())
    answer = chain.engines["hub1"].receive(parcel, source)
    assert answer.parcel is None
    chain.settle("hub1")
    posts = list(chain.kept)
    for name, post in posts:
        chain.carry(name, post)
    return [post.address for _, post in posts]


KINDS = [MessageKind.ERROR, MessageKind.ACKNOWLEDGMENT, MessageKind.STATUS_RESPONSE]
MODES = ["transparent", "store_and_forward"]


@pytest.mark.requirement("HOP-5", "ERR-5")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("said_by", ["mallory", "seller"])
@pytest.mark.parametrize("to", ["buyer", "buyer-too"])
@pytest.mark.parametrize("cpa_id", [CPA_ID, "hub1-mallory", "hub1-seller", "nobody's"])
def test_what_it_says_goes_to_nobody(
    kind: MessageKind, mode: str, said_by: str, to: str, cpa_id: str
) -> None:
    chain, order = forwarded(mode)
    before = chain.state(order), chain.state(order, "hub1")
    assert say(chain, claim(kind, order, to, cpa_id, said_by), "mallory") == []
    assert (chain.state(order), chain.state(order, "hub1")) == before
    assert before[0] is OutgoingState.OUTSTANDING


@pytest.mark.requirement("HOP-5", "ERR-5")
@pytest.mark.parametrize("kind", KINDS)
def test_what_the_seller_says_goes_to_the_buyer(kind: MessageKind) -> None:
    chain, order = forwarded("store_and_forward")
    parcel = claim(kind, order, "buyer", CPA_ID, "seller")
    assert "http://buyer/msh" in say(chain, parcel, "seller")
    assert chain.state(order) is not OutgoingState.OUTSTANDING


@pytest.mark.requirement("HOP-5")
def test_the_operator_of_the_hub_reads_who_spoke_of_it() -> None:
    chain, order = forwarded("store_and_forward")
    say(chain, claim(MessageKind.ERROR, order, "buyer", CPA_ID), "mallory")
    (row,) = [row for row in chain.rows(at="hub1", of=order) if row.kind == "ignored"]
    assert (row.peer, row.ref_to) == ("urn:sim:mallory", "claim@mallory")
    assert f"{order} did not go to urn:sim:mallory" in (row.detail or "")
