"""Who a message is from: the agreement's partner, whatever ids its header gives."""

from __future__ import annotations

import itertools
import json

import pytest
from msgspec.structs import replace

from oncewire.handler.actions import Post
from oncewire.handler.context import Keys
from oncewire.handler.encryption import whole_parcel
from oncewire.journal.row import Row
from oncewire.message.envelope import Message
from oncewire.message.form import Dialect, Form
from oncewire.message.ids import Party, PartyId
from oncewire.message.instant import SECOND
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel
from oncewire.wire.security import signature
from oncewire.wire.security.references import PartDigests
from oncewire.wire.security.signature import SigningChoice
from tests.handler.network import Network, options
from tests.handler.samples import toml
from tests.handler.test_exchange import OTHER
from tests.handler.test_signed import signed_pair
from tests.wire.security.keys import alpha

ALPHA = PartyId("urn:test:alpha")
STRANGER = PartyId("urn:test:stranger")
GAMMA = PartyId("urn:test:gamma")
DUNS = PartyId("123456789", "urn:duns")


def signed_by_alpha(parcel: Parcel, *ids: PartyId, to: tuple[PartyId, ...] = ()) -> Parcel:
    """The message of alpha's with these ids in its From, signed anew with alpha's key."""
    read = codec.read(parcel).message
    sender = Party(ids, read.header.from_party.role)
    receiver = Party(to, read.header.to_party.role) if to else read.header.to_party
    message = replace(read, header=replace(read.header, from_party=sender, to_party=receiver))
    keys = Keys(alpha("rsa").certificate, alpha("rsa").key)

    def sign(envelope: bytes, payloads: tuple[object, ...]) -> bytes:
        parts = [PartDigests.of(one.content_id, one.data, "sha256") for one in read.payloads]  # type: ignore[arg-type]
        choice = SigningChoice("rsa-sha256")
        return signature.sign(envelope, parts, keys.signing_key, keys.certificate, choice).envelope

    return codec.write(message, Form(), signer=sign)


def of_alpha(pair: Network) -> Parcel:
    """A message of alpha's that the network lost."""
    pair.lose_request = lambda post: True
    sent = pair.send()
    return pair.sent(sent.message_id)


def rows(pair: Network, kind: str) -> list[Row]:
    with pair.beta.context.store.reader() as reader:
        return [row for row in reader.journal_since(0, 10_000) if row.kind == kind]


@pytest.mark.requirement("DUP-1")
@pytest.mark.parametrize("ids", list(itertools.permutations((ALPHA, STRANGER, GAMMA))))
def test_the_sender_is_the_partner_who_signed(ids: tuple[PartyId, ...]) -> None:
    pair = signed_pair()
    pair.deliver("beta", signed_by_alpha(of_alpha(pair), *ids))
    (taken,) = pair.beta.hand_over(10, 30 * SECOND)
    pair.settle("beta")
    assert taken.sender == "urn:test:alpha"
    assert str(taken.header.from_party) == "urn:test:alpha"
    assert taken.header.from_party.ids == (ALPHA,)
    (received,) = rows(pair, "received")
    assert json.loads(received.detail or "")["from_party"] == "urn:test:alpha"
    (given,) = rows(pair, "handed_over")
    assert given.peer == "urn:test:alpha"
    with pair.beta.context.store.reader() as reader:
        (listed,) = reader.incoming_list()
        assert (listed.incoming.sender, listed.facts.from_party) == (taken.sender,) * 2
    assert given.digest == received.digest


@pytest.mark.requirement("DUP-1")
def test_one_message_id_with_its_ids_in_any_order_is_delivered_once() -> None:
    pair = signed_pair()
    original = of_alpha(pair)
    for ids in itertools.permutations((ALPHA, STRANGER, GAMMA)):
        pair.deliver("beta", signed_by_alpha(original, *ids))
    pair.deliver("beta", original)
    assert pair.take() == ["order-1@alpha"]
    assert len(rows(pair, "received")) == 1
    assert len(rows(pair, "handed_over")) == 1


def test_the_receiver_is_we_by_the_agreements_name() -> None:
    pair = signed_pair()
    beta = PartyId("urn:test:beta")
    pair.deliver("beta", signed_by_alpha(of_alpha(pair), ALPHA, to=(STRANGER, GAMMA, beta)))
    (taken,) = pair.beta.hand_over(10, 30 * SECOND)
    assert str(taken.header.to_party) == "urn:test:beta"
    (received,) = rows(pair, "received")
    assert json.loads(received.detail or "")["to_party"] == "urn:test:beta"


def test_ids_that_are_not_the_partners_are_refused() -> None:
    pair = signed_pair()
    pair.deliver("beta", signed_by_alpha(of_alpha(pair), STRANGER, GAMMA))
    assert pair.take() == []
    (refused,) = rows(pair, "refused")
    assert json.loads(refused.detail or "")["code"] == "Inconsistent"


PARTNER = '[{ value = "urn:test:alpha" }, { value = "123456789", type = "urn:duns" }]'


def from_alpha(*ids: PartyId, name: str = "m@alpha") -> Parcel:
    """An unsigned message of alpha's to own, under an agreement that knows two ids of alpha's."""
    desk = Network.single(
        toml("ebms2", '"urn:test:alpha"', '"urn:test:own"', "a"), at="2026-01-01T00:00:00Z"
    )
    post = desk.submit(replace(OTHER, cpa_id="a", message_id=name))
    message: Message = codec.read(desk.parcel(post)).message
    header = replace(message.header, from_party=Party(ids))
    return codec.write(replace(message, header=header), Form())


@pytest.mark.parametrize("ids", [(DUNS,), (DUNS, ALPHA), (ALPHA, DUNS), (ALPHA,), (STRANGER, DUNS)])
def test_every_id_of_a_partner_means_the_same_sender(ids: tuple[PartyId, ...]) -> None:
    desk = Network.single(toml("ebms2", '"urn:test:own"', PARTNER, "a"), at="2026-01-01T00:00:00Z")
    desk.hand_in(from_alpha(*ids))
    (taken,) = desk.given()
    assert (taken.sender, str(taken.header.from_party)) == ("urn:test:alpha", "urn:test:alpha")


def test_a_known_type_with_another_value_is_another_party() -> None:
    desk = Network.single(toml("ebms2", '"urn:test:own"', PARTNER, "a"), at="2026-01-01T00:00:00Z")
    reply = desk.hand_in(from_alpha(ALPHA, PartyId("987654321", "urn:duns")))
    assert desk.given() == []
    # Whoever else it is, he is not told who the parties are.
    assert reply.error[0] == "ValueNotRecognized"
    assert [one.code for one in desk.engine.context.state.refusals.counted] == ["Inconsistent"]


def test_a_message_that_was_filed_under_another_of_its_ids_is_a_copy() -> None:
    """Versions before filed a message under the id that stood first in its header."""
    desk = Network.single(toml("ebms2", '"urn:test:own"', PARTNER, "a"), at="2026-01-01T00:00:00Z")
    desk.hand_in(from_alpha(DUNS, ALPHA))
    with desk.engine.context.store.transition() as tx:
        (stored,) = tx.incoming_by_id("m@alpha")
    older = Network.single(toml("ebms2", '"urn:test:own"', PARTNER, "a"), at="2026-01-01T00:00:00Z")
    node = older.engine.context
    with node.transition() as tx:
        terms = node.agreements.by_cpa_id("a")[0].receiving.terms
        kept = replace(stored.incoming, sender=str(DUNS), terms_id=node.keep_terms(tx, terms))
        node.keep_agreement(tx, node.agreements.by_cpa_id("a")[0])
        tx.add_incoming(replace(stored, incoming=kept))
    older.hand_in(from_alpha(DUNS, ALPHA))
    assert len(older.take()) == 1
    assert len(older.rows("duplicate")) == 1


def test_a_hub_knows_a_copy_by_whom_it_is_from() -> None:
    """The ids in front of the one by which the hub knows the sender are not its name."""
    chain = Network.chain(options(hops=2))
    chain.carrying = False
    chain.send(0)
    ((_, post),) = chain.kept
    parcel = whole_parcel(chain.engines["buyer"].context, post.parcel)
    message = codec.read(parcel).message
    chain.kept.clear()
    sender = message.header.from_party.ids
    for ids in ((STRANGER, *sender), (*sender, STRANGER), sender):
        header = replace(message.header, from_party=Party(ids))
        again = codec.write(replace(message, header=header), Form(dialect=Dialect.MS_09X))
        chain.deliver("hub1", again)
    received = [row for row in chain.rows(at="hub1") if row.kind == "received"]
    assert [json.loads(row.detail or "")["from_party"] for row in received] == [str(sender[0])]
    onward = [one for name, one in chain.kept if name == "hub1" and isinstance(one, Post)]
    assert len(onward) == 1
