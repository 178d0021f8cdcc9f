"""Signed messages and signed acknowledgements between two handlers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec.structs import replace

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml
from oncewire.handler.authentication import proves_receipt, references_sent
from oncewire.handler.context import Keys
from oncewire.handler.encryption import whole_parcel
from oncewire.lab.simulation.plan import Options
from oncewire.message.instant import HOUR
from oncewire.protocol.states import OutgoingState
from oncewire.store.records import SpoolSlice, StoredParcel
from oncewire.wire import codec
from tests.handler.network import HTTP, Network, agreement_text, options
from tests.simulation.given import agreements_of
from tests.wire.security.keys import Identity, alpha, issue, mallory


def pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def signed_pair(
    *,
    signed_acks: bool = False,
    encrypt: bool = False,
    actor: str = "toPartyMSH",
    sign: bool = True,
    more: str = "",
    profile: str = "ebms2",
    people: Mapping[str, Identity] | None = None,
) -> Network:
    """alpha and beta with keys of their own, each pinning the other's certificate."""
    pair = Network.pair(profile)
    people = people or {"alpha": alpha("rsa"), "beta": mallory("rsa")}
    for own, partner in (("alpha", "beta"), ("beta", "alpha")):
        certificate = pem(people[partner].certificate).replace("\n", "\\n")
        extra = (
            f"[security]\nsign = {str(sign).lower()}\nrequire_signature = {str(sign).lower()}\n"
            f'partner_certificates = ["{certificate}"]\n'
        )
        if encrypt:
            extra += "encrypt = true\n"
        if signed_acks:
            extra += '[ack]\nrequest = "always"\nsignature = "always"\n'
            extra += f'actor = "{actor}"\n'
        agreement = read_toml(agreement_text(own, partner, profile, extra + more))
        node = pair.engines[own].context
        node.agreements = Agreements([agreement])
        node.keys = Keys(people[own].certificate, people[own].key)
    return pair


@pytest.mark.parametrize("sign", [True, False])
def test_a_header_whose_charset_stands_in_mime_alone_is_verified_and_signed_for(sign: bool) -> None:
    pair = signed_pair(sign=sign, signed_acks=True)
    pair.carrying = False
    post = pair.submit(pair.submission(conversation_id="y\u00e9ar"))
    parcel = whole_parcel(pair.alpha.context, post.parcel)
    declared, _, header = codec.read(parcel).envelope.partition(b"?>")
    body = parcel.body.replace(declared + b"?>" + header, header.decode().encode("iso-8859-1"))
    body = body.replace(b"charset=UTF-8", b"charset=iso-8859-1", 1)
    headers = tuple(each for each in parcel.headers if each[0] != "Content-Digest")
    pair.beta.receive(replace(parcel, body=body, headers=headers), HTTP)
    pair.settle("beta")
    (said,) = pair.signals()
    assert [len(ack.references) for ack in said.acknowledgments] == [2]
    assert pair.take() == [post.message_id]


@pytest.mark.requirement("ACK-14")
@pytest.mark.parametrize("signed_acks", [False, True])
def test_the_signed_acknowledgement_that_proved_receipt_is_kept_as_it_came(
    signed_acks: bool,
) -> None:
    pair = signed_pair(signed_acks=signed_acks)
    sent = pair.send()
    with pair.alpha.context.store.reader() as reader:
        kept = reader.receipt(sent.message_id)
    if not signed_acks:
        assert kept is None, "nobody signed anything"
        return
    assert kept is not None
    assert b"".join(part for part in kept.parcel.body if isinstance(part, bytes)) == pair.answers[0]
    received = codec.read(whole_parcel(pair.alpha.context, kept.parcel))
    assert received.message.header.message_id == kept.receipt_id
    with pair.beta.context.store.reader() as reader:
        (arrived,) = reader.incoming(sent.message_id)
    assert arrived.answer is not None
    assert arrived.answer.answer_id == kept.receipt_id, "both sides hold the same proof"
    assert arrived.answer.parcel.body == kept.parcel.body


@pytest.mark.requirement("ACK-14")
def test_who_has_a_key_of_another_kind_than_agreed_says_so() -> None:
    people = {"alpha": alpha("rsa"), "beta": mallory("p256")}
    pair = signed_pair(sign=False, signed_acks=True, people=people)
    sent = pair.send()
    assert pair.state(sent.message_id) is OutgoingState.NOT_DELIVERED
    (notice,) = pair.notices
    assert "there is no key to sign with as agreed" in notice.reason
    assert pair.take() == []


@pytest.mark.requirement("ACK-14")
@pytest.mark.parametrize("signed_acks", [False, True])
def test_signed_messages_are_believed(signed_acks: bool) -> None:
    pair = signed_pair(signed_acks=signed_acks)
    sent = pair.send()
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    assert pair.take() == [sent.message_id]
    assert pair.verify().clean


def test_a_changed_payload_is_refused() -> None:
    pair = signed_pair(signed_acks=False)
    pair.lose_request = lambda post: True
    sent = pair.send()
    parcel = pair.sent(sent.message_id)
    changed = codec.Parcel(parcel.content_type, parcel.body.replace(b"order 1", b"order 2"))
    pair.deliver("beta", changed)
    assert pair.take() == []
    assert "refused" in pair.kinds("beta")


def test_a_signed_acknowledgement_of_other_digests_settles_nothing() -> None:
    pair = signed_pair(signed_acks=True)
    pair.lose_answer = lambda count: True
    sent = pair.send()
    assert pair.state(sent.message_id) is OutgoingState.OUTSTANDING
    digest = codec.read(codec.Parcel("text/xml", pair.answers[0])).message.acknowledgments[0]
    wrong = replace(
        digest,
        references=tuple(replace(one, digest_value=b"\0" * 32) for one in digest.references),
    )
    with pair.alpha.context.store.transition() as tx:
        stored = tx.outgoing_parcel(sent.message_id)
    assert stored is not None
    received = codec.read(whole_parcel(pair.alpha.context, stored))
    assert proves_receipt(received, digest)
    assert not proves_receipt(received, wrong)
    assert not proves_receipt(received, replace(digest, references=()))
    assert len(digest.references) == 2, "the envelope and its payload"
    # What the signature covers is found without reading the rest.
    covered = references_sent(pair.alpha.context, stored)
    assert covered is not None
    assert proves_receipt(covered, digest)
    assert not proves_receipt(covered, wrong)
    for left_out in digest.references:
        some = tuple(one for one in digest.references if one is not left_out)
        assert not proves_receipt(received, replace(digest, references=some))


def test_nobody_is_asked_to_sign_that_a_best_effort_message_came() -> None:
    """Where only a header's words count, its receiver may take it for a reliable one."""
    more = '[ack]\nrequest = "whenStated"\nsignature = "always"\nhop_request = "Signed"\n'
    more += '[duplicate]\nelimination = "always"\n[delivery]\nheader_conflict = "b"\n'
    pair = signed_pair(more=more)
    sent = pair.send(best_effort=True)
    assert pair.state(sent.message_id) is OutgoingState.SENT
    assert "ack_sent" in pair.kinds("beta")
    assert "ignored" not in pair.kinds("alpha")


def test_encrypted_payloads_travel_closed_and_arrive_open() -> None:
    pair = signed_pair(encrypt=True)
    sent = pair.send()
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    body = pair.sent(sent.message_id).body
    assert b"order 1" not in body
    assert b"EncryptedData" in body
    (taken,) = pair.beta.hand_over(1, 10**9)
    assert taken.payloads[0].data == b"order 1"
    assert taken.payloads[0].media_type == "text/plain"
    pair.beta.confirm(taken.sender, taken.message_id)
    pair.settle("beta")
    assert pair.verify().clean


def test_a_plain_payload_where_encryption_is_agreed_is_refused() -> None:
    pair = signed_pair(encrypt=True)
    plain = signed_pair()
    plain.lose_request = lambda post: True
    sent = plain.send()
    pair.deliver("beta", plain.sent(sent.message_id))
    assert pair.take() == []
    assert "refused" in pair.kinds("beta")


def detail_of(pair: Network, kind: str) -> str:
    """What alpha's only row of that kind says."""
    with pair.alpha.context.store.reader() as reader:
        (row,) = [row for row in reader.journal_since(0, 1_000_000) if row.kind == kind]
    return row.detail or ""


@pytest.mark.requirement("ACK-14")
def test_a_signed_acknowledgement_of_the_next_handler_is_noted_as_one() -> None:
    pair = signed_pair(signed_acks=True, actor="nextMSH")
    sent = pair.send()
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    assert '"signed":true' in detail_of(pair, "acknowledged")
    assert pair.take() == [sent.message_id]
    assert pair.verify().clean


def test_one_of_the_next_handler_that_proves_nothing_settles_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oncewire.handler.sending.answer.receipt_references", lambda *_: ())
    pair = signed_pair(signed_acks=True, actor="nextMSH")
    sent = pair.send()
    assert pair.state(sent.message_id) is OutgoingState.OUTSTANDING
    assert "does not name the digests" in detail_of(pair, "ignored")


def chain_of(people: Mapping[str, Identity], profile: str, more: str = "", **world: Any) -> Network:
    """A chain on which everybody signs with the key of his own, and knows all the others."""
    certificates = json.dumps([pem(one.certificate) for one in people.values()])
    agreement = (
        "[security]\nsign = true\nrequire_signature = true\n"
        f"partner_certificates = {certificates}\n{more}"
    )
    keys = {name: Keys(one.certificate, one.key) for name, one in people.items()}
    return Network.chain(options(profile, agreement=agreement, **world), keys=keys)


def signing_chain(profile: str, hubs: int) -> Network:
    """Signed receipts of the To Party, unsigned acknowledgements of the hubs on the way."""
    people = {"buyer": alpha("rsa"), "seller": mallory("rsa")}
    people |= {f"hub{number}": alpha("rsa") for number in range(1, hubs + 1)}
    receipts = '[ack]\nsignature = "always"\nhop_request = "Unsigned"\n'
    return chain_of(people, profile, receipts, hops=hubs + 1)


@pytest.mark.requirement("HOP-12", "ACK-18")
@pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x"])
def test_a_signed_receipt_of_the_to_party_comes_back_through_a_hub(profile: str) -> None:
    chain = signing_chain(profile, 1)
    order = chain.send(0).message_id
    assert chain.state(order) is OutgoingState.DELIVERED
    (row,) = [row for row in chain.rows(at="buyer", of=order) if row.kind == "acknowledged"]
    assert '"signed":true' in (row.detail or "")
    assert '"hop"' not in (row.detail or "")


@pytest.mark.requirement("HOP-12")
@pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x"])
def test_a_hub_is_done_when_the_next_one_took_it_whatever_the_to_party_must_sign(
    profile: str,
) -> None:
    chain = signing_chain(profile, 2)
    order = chain.send(0).message_id
    assert chain.state(order) is OutgoingState.DELIVERED
    for hub in ("hub1", "hub2"):
        assert "acknowledged" in {row.kind for row in chain.rows(at=hub, of=order)}, hub


@pytest.mark.requirement("HOP-12", "ACK-18")
def test_a_receipt_that_is_signed_for_the_last_hop_comes_back_through_two_hubs() -> None:
    """The From Party asked for no signature, the hops do. The first hub does not know the
    seller's certificate: what the seller signed is for the buyer to judge."""
    people = {"buyer": alpha("rsa"), "seller": mallory("rsa")}
    people |= {"hub1": issue("hub1", "rsa"), "hub2": issue("hub2", "rsa")}

    def world(*partners: str) -> Options:
        certificates = json.dumps([pem(people[one].certificate) for one in partners])
        asked = (
            "[security]\nsign = true\nrequire_signature = true\n"
            f"partner_certificates = {certificates}\n"
            '[ack]\nsignature = "never"\nhop_request = "Signed"\n'
        )
        return Options(
            hops=3, profile="ms-0.9x-typed", flow="unrestricted", agreement=asked,
            persist_duration=HOUR,
        )  # fmt: skip

    chain = Network.chain(world("buyer", "seller", "hub1", "hub2"))
    papers = {
        "buyer": agreements_of("buyer", world("seller", "hub1")),
        "seller": agreements_of("seller", world("buyer", "hub2")),
        "hub1": [agreements_of("hub1", world("buyer"))[0], agreements_of("hub1", world("hub2"))[1]],
        "hub2": [
            agreements_of("hub2", world("hub1"))[0],
            agreements_of("hub2", world("seller"))[1],
        ],
    }
    for name, one in people.items():
        node = chain.engines[name].context
        node.agreements = Agreements(papers[name])
        node.keys = Keys(one.certificate, one.key)
    order = chain.send(0).message_id
    assert chain.state(order) is OutgoingState.DELIVERED
    (row,) = [row for row in chain.rows(at="buyer", of=order) if row.kind == "acknowledged"]
    assert (row.ref_to or "").endswith("@seller"), "the To Party's own word"
    assert not any(row.kind == "refused" for row in chain.rows(at="hub1"))


def test_what_covers_nothing_or_lies_elsewhere_is_read_whole() -> None:
    node, envelope = Network.pair().alpha.context, b"<SOAP:Envelope/>"
    for body in ((envelope,), (SpoolSlice("0" * 64, 0, 9),), (b"", SpoolSlice("0" * 64, 0, 9))):
        assert references_sent(node, StoredParcel("text/xml", (), body)) is None
