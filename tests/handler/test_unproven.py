"""Words that prove nothing end, settle and undo nothing, and nobody signs an answer to them."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec import structs

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml
from oncewire.errors import Inconsistent
from oncewire.handler import authentication
from oncewire.handler.actions import Post, PostAnswer, Source, replied
from oncewire.handler.context import HandlerContext, Keys
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.receiving import signals
from oncewire.handler.sending.seal import signer_for
from oncewire.handler.sending.transmit import Transmission
from oncewire.handler.spool_reading import SPOOL_ABOVE
from oncewire.journal.history import explain, ladder
from oncewire.journal.row import Row
from oncewire.message.envelope import Actor, Error, Message, MessageStatus
from oncewire.message.form import Dialect, Form
from oncewire.message.ids import Party
from oncewire.message.instant import MINUTE, SECOND
from oncewire.protocol.notes import Ignored
from oncewire.protocol.states import OutgoingState, Proof
from oncewire.wire import answers, codec, soap
from oncewire.wire.answers import Envelope
from oncewire.wire.parcel import Parcel
from tests.handler.network import Network, agreement_text, options
from tests.handler.running import FAST, free_port, order, post, serving, stored_bytes
from tests.handler.test_signed import chain_of, pem
from tests.wire.security.keys import alpha, mallory

PEOPLE = {"alpha": alpha("rsa"), "beta": mallory("rsa")}
KEYS = {name: Keys(one.certificate, one.key) for name, one in PEOPLE.items()}
ORDER = "order-1@alpha"
DIALECTS = {"ebms2": Dialect.EBMS2, "window": Dialect.MS_09X, "rm-0.78": Dialect.RM_078}
WEB = Source("http", can_answer=True)
MAIL = Source("smtp")


def signing(partner: str) -> str:
    """The table of an agreement that asks the partner for signatures."""
    certificate = pem(PEOPLE[partner].certificate).replace("\n", "\\n")
    return (
        "[security]\nsign = true\nrequire_signature = true\n"
        f'partner_certificates = ["{certificate}"]\n'
    )


def signed(profile: str) -> Network:
    """Two handlers that sign, under one of the dialects."""
    pair = Network.pair(profile)
    for own, partner in (("alpha", "beta"), ("beta", "alpha")):
        node = pair.engines[own].context
        text = agreement_text(own, partner, profile, signing(partner))
        node.agreements = Agreements([read_toml(text)])
        node.keys = KEYS[own]
    return pair


def sent(pair: Network) -> Parcel:
    """What alpha has sent; the network lost it."""
    pair.lose_request = lambda post: True
    pair.send()
    pair.lose_request = lambda post: False
    return pair.sent(ORDER)


def unsigned(parcel: Parcel) -> Parcel:
    """The same message without its signature, as anybody may write it."""
    body, count = re.subn(rb"<ds:Signature.*?</ds:Signature>", b"", parcel.body, flags=re.DOTALL)
    assert count == 1
    return Parcel(parcel.content_type, body, tuple(
        header for header in parcel.headers if header[0].lower() != "content-digest"
    ))  # fmt: skip


def rows(pair: Network, message_id: str, name: str = "alpha") -> list[Row]:
    with pair.engines[name].context.store.reader() as reader:
        return reader.journal_of(message_id)


def ignored(pair: Network) -> list[dict[str, object]]:
    """What alpha's journal says of signals about its order that changed nothing."""
    return [json.loads(row.detail or "") for row in rows(pair, ORDER) if row.kind == "ignored"]


# --- row 2: nobody makes us sign for him -------------------------------------------------------


@pytest.mark.parametrize("profile", DIALECTS)
@pytest.mark.parametrize("source", [WEB, MAIL], ids=["web", "mail"])
@pytest.mark.parametrize("flaw", ["unsigned", "broken", "unreadable"])
def test_an_unproven_message_gets_no_signed_answer(profile: str, source: Source, flaw: str) -> None:
    pair = signed(profile)
    forged = sent(pair)
    if flaw != "broken":
        forged = unsigned(forged)
    if flaw == "broken":
        forged = structs.replace(
            forged, body=forged.body.replace(b"order 1", b"order 2"), headers=()
        )
    if flaw == "unreadable":
        forged = structs.replace(
            forged, body=re.sub(rb"<(\w*:?)CPAId>[^<]*<", rb"<\1CPAId><", forged.body)
        )
    answer = pair.beta.receive(forged, source)
    left = pair.beta.commit()
    assert [one for one in left if hasattr(one, "parcel")] == []
    back = None if answer.parcel is None else whole_parcel(pair.beta.context, answer.parcel)
    if source is MAIL:
        assert back is None
    if back is not None:
        assert b"<ds:Signature" not in back.body
        # Whoever got it hands it on to alpha, on its connection or apart.
        pair.alpha.transmission_over(Transmission(ORDER, 1, sent=True), back)
        pair.settle("alpha")
        pair.deliver("alpha", back)
        assert ignored(pair)
    assert pair.state(ORDER) is OutgoingState.OUTSTANDING
    pair.pass_time(10 * MINUTE)
    assert pair.state(ORDER) is OutgoingState.DELIVERED
    assert pair.take() == [ORDER]
    assert pair.verify().clean


def test_who_proves_himself_is_told_what_is_wrong_in_signed_words() -> None:
    """An action that is not agreed, in a message that its partner did sign."""
    pair = signed("ebms2")
    text = agreement_text("beta", "alpha", "ebms2", signing("alpha"))
    text = text.replace("[own]", "listed_only = true\n[own]", 1)
    text += '[[actions]]\nservice = "urn:test:bills"\naction = "New"\ndirection = "receive"\n'
    pair.beta.context.agreements = Agreements([read_toml(text)])
    pair.send()
    assert pair.state(ORDER) is OutgoingState.NOT_DELIVERED
    (rejected,) = [row for row in rows(pair, ORDER) if row.kind == "rejected"]
    assert "ValueNotRecognized" in (rejected.detail or "")


# --- claims about a message of ours ------------------------------------------------------------


def _claimed(about: Parcel, make: Callable[[Message, Envelope], Message]) -> Parcel:
    message = codec.read(about).message
    form = Form(dialect=message.dialect)
    own = message.header.to_party
    said = make(message, Envelope("claim@beta", message.header.timestamp, form, own=own))
    return codec.write(said, form)


def _status(message: Message, envelope: Envelope) -> Message:
    question = answers.ask_status(message, structs.replace(envelope, own=message.header.from_party))
    received_at = message.header.timestamp
    return answers.status_response_for(
        question, MessageStatus.PROCESSED, envelope, received_at=received_at
    )


CLAIMS: dict[str, Callable[[Parcel], Parcel]] = {
    "acknowledgement": lambda about: _claimed(
        about, lambda message, envelope: answers.acknowledgment_for(message, envelope)
    ),
    "error": lambda about: _claimed(
        about,
        lambda message, envelope: answers.error_message_for(
            message, (Inconsistent("no", location="//x"),), envelope
        ),
    ),
    "notice": lambda about: _claimed(
        about,
        lambda message, envelope: answers.error_message_for(
            message, (Error("DeliveryFailure", description="gone"),), envelope
        ),
    ),
    "status": lambda about: _claimed(about, _status),
    "fault": lambda about: soap.write_fault(Inconsistent("go away", location="//x")),
}
CASES = [
    (profile, claim)
    for profile in DIALECTS
    for claim in CLAIMS
    # September 2000 has no status question.
    if (profile, claim) != ("rm-0.78", "status")
]


def say(pair: Network, claim: Parcel, *, here: bool) -> None:
    """On the connection of alpha's own attempt, or apart."""
    if here:
        pair.alpha.transmission_over(Transmission(ORDER, 1, sent=True), claim)
        pair.settle("alpha")
    else:
        pair.deliver("alpha", claim)


@pytest.mark.parametrize(("profile", "claim"), CASES)
@pytest.mark.parametrize("here", [True, False], ids=["here", "apart"])
def test_a_claim_that_proves_nothing_changes_nothing(
    profile: str, claim: str, here: bool, caplog: pytest.LogCaptureFixture
) -> None:
    pair = signed(profile)
    word = CLAIMS[claim](sent(pair))
    with caplog.at_level(logging.WARNING, "oncewire.handler"):
        say(pair, word, here=here)
    assert pair.state(ORDER) is OutgoingState.OUTSTANDING
    if claim == "fault" and not here:
        # It names no message: only a connection says what it is about.
        return
    (trace,) = ignored(pair)
    assert trace["claim"] in (claim, "error")
    assert [one.message for one in caplog.records] == ["a signal was ignored"]
    story = explain(rows(pair, ORDER))
    assert "a signal was ignored" in story
    assert any(step.text.startswith("ignored: ") for step in ladder(rows(pair, ORDER)))
    # And the matter goes on as if nobody had spoken.
    pair.pass_time(10 * MINUTE)
    assert pair.state(ORDER) is OutgoingState.DELIVERED
    assert pair.verify(healed=False).clean


@pytest.mark.parametrize("claim", ["error", "notice", "fault"])
def test_a_claim_takes_nothing_back(claim: str) -> None:
    pair = signed("ebms2")
    word = CLAIMS[claim](sent(pair))
    pair.pass_time(10 * MINUTE)
    assert pair.state(ORDER) is OutgoingState.DELIVERED
    for here in (True, False):
        say(pair, word, here=here)
    assert pair.state(ORDER) is OutgoingState.DELIVERED
    assert pair.notices == []


@pytest.mark.parametrize("claim", ["acknowledgement", "status", "error", "notice", "fault"])
def test_a_claim_settles_no_unknown_outcome(claim: str) -> None:
    pair = signed("ebms2")
    word = CLAIMS[claim](sent(pair))
    pair.lose_answer = lambda count: True
    pair.lose_request = lambda post: False
    pair.pass_time(*[10 * MINUTE] * 30)
    assert pair.state(ORDER) is OutgoingState.UNKNOWN
    told = len(pair.notices)
    for here in (True, False):
        say(pair, word, here=here)
    assert pair.state(ORDER) is OutgoingState.UNKNOWN
    assert len(pair.notices) == told


def test_the_trace_of_claims_is_bounded() -> None:
    pair = signed("ebms2")
    word = CLAIMS["acknowledgement"](sent(pair))
    for _ in range(1_000):
        say(pair, word, here=False)
    told = [row.detail for row in rows(pair, ORDER) if row.kind == "ignored"]
    counts = [Ignored.read(detail).count for detail in told]
    assert counts == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert "512 signals were ignored" in explain(rows(pair, ORDER))


def test_an_acknowledgement_beside_a_signature_counts_for_nothing_else() -> None:
    """The standard leaves what is addressed to the next hop outside the signature (§4.1.3)."""
    pair = signed("ebms2")
    text = agreement_text("alpha", "beta", "ebms2", signing("beta") + '[ack]\nactor = "nextMSH"\n')
    pair.alpha.context.agreements = Agreements([read_toml(text)])
    about = sent(pair)
    block = codec.read(
        _claimed(
            about,
            lambda message, envelope: answers.acknowledgment_for(
                message, envelope, actor=Actor.NEXT_MSH
            ),
        )
    ).envelope
    element = re.search(rb"<eb:Acknowledgment .*</eb:Acknowledgment>", block, re.DOTALL)
    assert element is not None
    # A message of beta's about something else, which somebody on the way writes into.
    message = codec.read(about).message
    header = structs.replace(
        message.header,
        from_party=message.header.to_party,
        to_party=message.header.from_party,
        message_id="news@beta",
        conversation_id="news",
    )
    security = pair.beta.context.agreements.by_cpa_id("alpha-beta")[0].sending.security
    news = codec.write(
        structs.replace(message, header=header, ack_requested=()),
        Form(),
        signer=signer_for(pair.beta.context, security),
    )
    body = news.body.replace(b"</SOAP:Header>", element[0] + b"</SOAP:Header>")
    assert body != news.body
    pair.deliver("alpha", Parcel(news.content_type, body, ()))
    assert len(pair.alpha.hand_over(10, SECOND)) == 1
    assert pair.state(ORDER) is OutgoingState.OUTSTANDING
    (trace,) = ignored(pair)
    assert "outside the signature" in str(trace["problem"])


def test_an_acknowledgement_beside_a_signature_is_its_signers_whatever_name_it_gives() -> None:
    pair = signed("ebms2")
    text = agreement_text("alpha", "beta", "ebms2", signing("beta") + '[ack]\nactor = "nextMSH"\n')
    pair.alpha.context.agreements = Agreements([read_toml(text)])
    about = sent(pair)
    said = _claimed(
        about,
        lambda message, envelope: answers.acknowledgment_for(
            message, envelope, actor=Actor.NEXT_MSH
        ),
    )
    message = codec.read(said).message
    (ack,) = message.acknowledgments
    named = structs.replace(ack, from_party=Party.of("urn:test:somebody"))
    security = pair.beta.context.agreements.by_cpa_id("alpha-beta")[0].sending.security
    parcel = codec.write(
        structs.replace(message, acknowledgments=(named,)),
        Form(),
        signer=signer_for(pair.beta.context, security),
    )
    pair.deliver("alpha", parcel)
    with pair.alpha.context.store.reader() as reader:
        stored = reader.outgoing(ORDER)
    assert stored is not None
    assert stored.outgoing.state is OutgoingState.DELIVERED
    assert stored.outgoing.proved_by is Proof.TO_PARTY


def test_a_signed_acknowledgement_is_compared_with_the_header_that_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever repeats one must not make us fetch a large body each time."""
    pair = signed("ebms2")
    proof = '[ack]\nrequest = "always"\nsignature = "always"\n'
    for own, partner in (("alpha", "beta"), ("beta", "alpha")):
        text = agreement_text(own, partner, "ebms2", proof + signing(partner))
        pair.engines[own].context.agreements = Agreements([read_toml(text)])
    pair.lose_answer = lambda count: True
    pair.send(1, b"x" * (SPOOL_ABOVE + 1))
    (ack,) = pair.answers

    def fetched(*_args: object) -> Parcel:
        raise AssertionError("the whole body was fetched")

    monkeypatch.setattr(signals, "read_stored", fetched)
    assert b"<ds:Reference" in ack.split(b"<eb:Acknowledgment")[1]
    parcel = Parcel("text/xml", ack, (("SOAPAction", '"ebXML"'),))
    changed = structs.replace(
        parcel, body=ack.replace(b"order-1@alpha</eb:RefTo", b"order-2@alpha</eb:RefTo")
    )
    pair.deliver("alpha", changed)
    assert pair.state(ORDER) is OutgoingState.OUTSTANDING
    for _ in range(2):
        pair.deliver("alpha", parcel)
        assert pair.state(ORDER) is OutgoingState.DELIVERED


# --- a partner that is known by its connection -------------------------------------------------

DER = PEOPLE["beta"].certificate.public_bytes(Encoding.DER)
PRINT = hashlib.sha256(DER).hexdigest()


def connected(more: str = "") -> Network:
    """alpha's handler; it knows beta by a TLS certificate and by nothing else."""
    text = agreement_text("alpha", "beta", "ebms2", more).replace("http://", "https://")
    text = text.replace("[partner]\n", f'[partner]\nclient_certificates = ["{PRINT}"]\n')
    return Network.single(read_toml(text), at="2026-01-01T00:00:00Z")


def asked(desk: Network) -> Parcel:
    return desk.parcel(desk.submit(order(1, message_id=ORDER)))


@pytest.mark.parametrize("claim", ["acknowledgement", "error", "fault"])
def test_a_reply_counts_where_the_connection_was_the_partners(claim: str) -> None:
    for address, counts in (("http://beta/msh", False), ("https://beta/msh", True)):
        desk = connected()
        word = CLAIMS[claim](asked(desk))
        ended = Transmission(ORDER, 1, sent=True, address=address)
        desk.engine.transmission_over(ended, word)
        desk.settle()
        assert (desk.state(ORDER) is not OutgoingState.OUTSTANDING) is counts, address
        assert bool(desk.rows("ignored")) is not counts


@pytest.mark.parametrize("shown", [DER, b"another", None])
def test_a_signal_apart_counts_with_the_agreed_certificate(shown: bytes | None) -> None:
    desk = connected()
    word = CLAIMS["acknowledgement"](asked(desk))
    reply = desk.hand_in(word, Source("http", can_answer=True, certificate=shown))
    assert reply.message is None
    if shown == DER:
        assert desk.state(ORDER) is OutgoingState.DELIVERED
        return
    assert desk.state(ORDER) is OutgoingState.OUTSTANDING
    (row,) = desk.rows("ignored")
    assert row.message_id == ORDER
    assert "certificate" in (row.detail or "")


def test_mail_shows_no_certificate() -> None:
    desk = connected()
    word = CLAIMS["acknowledgement"](asked(desk))
    desk.hand_in(word, MAIL)
    assert desk.state(ORDER) is OutgoingState.OUTSTANDING
    assert len(desk.rows("ignored")) == 1


def two_connected() -> Network:
    """alpha's handler knows beta and gamma by their TLS certificates, and by nothing else."""
    found = []
    for name, shown in (("beta", PRINT), ("gamma", "00" * 32)):
        text = agreement_text("alpha", name, "ebms2").replace("http://", "https://")
        text = text.replace('cpa_id = "alpha-beta"', f'cpa_id = "{name}"')
        text = text.replace("[partner]\n", f'[partner]\nclient_certificates = ["{shown}"]\n')
        found.append(read_toml(text))
    return Network.single(*found, at="2026-01-01T00:00:00Z")


@pytest.mark.requirement("RM-14")
@pytest.mark.parametrize("claim", ["acknowledgement", "error", "notice", "status"])
@pytest.mark.parametrize("beside", ["a message", "a signal"])
def test_a_reply_of_one_partner_says_nothing_for_another(claim: str, beside: str) -> None:
    """gamma's own connection proves that gamma is there, whoever's name stands in its reply."""
    desk = two_connected()
    about = desk.parcel(desk.submit(structs.replace(order(1, message_id=ORDER), cpa_id="beta")))
    other = desk.submit(structs.replace(order(2, message_id="other@alpha"), cpa_id="gamma"))
    word = CLAIMS[claim](about)
    if beside == "a message":
        ended = Transmission("other@alpha", 1, sent=True, address=other.address)
        desk.engine.transmission_over(ended, word)
    else:
        asked = PostAnswer("http", other.address, other.parcel)
        desk.engine.answer_left(asked, sent=True, reply=word)
    desk.settle()
    assert other.address == "https://gamma/msh"
    assert desk.state(ORDER) is OutgoingState.OUTSTANDING
    assert [row.message_id for row in desk.rows("ignored")] == [ORDER]
    # On beta's own it counts.
    desk.engine.transmission_over(
        Transmission(ORDER, 1, sent=True, address="https://beta/msh"), word
    )
    desk.settle()
    assert desk.state(ORDER) is not OutgoingState.OUTSTANDING


def test_a_reply_of_one_partner_brings_no_document_of_another() -> None:
    desk = two_connected()
    about = codec.read(desk.parcel(desk.submit(structs.replace(order(1), cpa_id="beta")))).message
    other = desk.submit(structs.replace(order(2, message_id="other@alpha"), cpa_id="gamma"))
    header = structs.replace(
        about.header,
        from_party=about.header.to_party,
        to_party=about.header.from_party,
        message_id="forged@beta",
    )
    forged = codec.write(structs.replace(about, header=header), Form())
    ended = Transmission("other@alpha", 1, sent=True, address=other.address)
    desk.engine.transmission_over(ended, forged)
    desk.settle()
    assert desk.given() == []
    assert desk.refused == 1


def test_what_a_reply_proves() -> None:
    desk = connected()
    (agreement,) = desk.engine.context.agreements
    node = desk.engine.context
    assert authentication.is_authentic(node, agreement, replied("https://beta/msh"))
    assert not authentication.is_authentic(node, agreement, replied("http://beta/msh"))
    assert not authentication.is_authentic(node, agreement, MAIL)
    plain = read_toml(agreement_text("alpha", "beta", "ebms2"))
    assert authentication.is_authentic(node, plain, replied("http://beta/msh"))
    bound = replace(plain, partner=replace(plain.partner, client_certificates=(PRINT,)))
    assert not authentication.is_authentic(node, bound, replied("http://beta/msh"))
    signs = read_toml(agreement_text("alpha", "beta", "ebms2", signing("beta")))
    assert not authentication.is_authentic(node, signs, replied("https://beta/msh"))


# --- over sockets ------------------------------------------------------------------------------


async def test_an_unsigned_post_ends_nothing_over_sockets(tmp_path: Path) -> None:
    ports = {"alpha": free_port(), "beta": free_port()}
    extra = {one: FAST + signing(other) for one, other in (("alpha", "beta"), ("beta", "alpha"))}
    async with serving(
        tmp_path, "alpha", "beta", ports, extra=extra["alpha"], keys=KEYS["alpha"]
    ) as sender:
        # beta is not there yet: the message is pending.
        accepted = await sender.send(order(1))
        forged = unsigned(stored_bytes(sender, accepted.message_id))
        async with serving(
            tmp_path, "beta", "alpha", ports, extra=extra["beta"], keys=KEYS["beta"]
        ) as receiver:
            for _ in range(20):
                status, media_type, body = await post(
                    ports["beta"], forged.body, forged.content_type
                )
                assert b"<ds:Signature" not in body
                await post(ports["alpha"], body, media_type or "text/xml")
            assert status in (200, 204)
            state = await sender.wait(accepted.message_id, 30)
            assert state is OutgoingState.DELIVERED
            taken = await receiver.take(10)
            assert [one.message_id for one in taken] == [accepted.message_id]


# --- at a hub ----------------------------------------------------------------------------------


@pytest.mark.parametrize("proven", [True, False])
def test_what_passes_through_a_hub_settles_its_copy_only_if_it_is_proven(proven: bool) -> None:
    people = {"buyer": PEOPLE["alpha"], "hub1": PEOPLE["alpha"], "seller": PEOPLE["beta"]}
    chain = chain_of(people, "ebms2", hops=2)
    chain.carrying = False
    message_id = chain.send(0).message_id
    chain.carry(*chain.kept.pop())
    ((_, onward),) = [one for one in chain.kept if one[0] == "hub1" and isinstance(one[1], Post)]
    parcel = whole_parcel(chain.engines["hub1"].context, onward.parcel)
    assert chain.state(message_id, "hub1") is OutgoingState.OUTSTANDING
    message = codec.read(parcel).message
    envelope = Envelope("ack@seller", message.header.timestamp, Form(), own=message.header.to_party)
    word = answers.acknowledgment_for(message, envelope)
    security = (
        chain.engines["seller"].context.agreements.by_cpa_id(message.header.cpa_id)[0].sending
    )
    signer = signer_for(chain.engines["seller"].context, security.security) if proven else None
    chain.deliver("hub1", codec.write(word, Form(), signer=signer))
    state = OutgoingState.DELIVERED if proven else OutgoingState.OUTSTANDING
    assert chain.state(message_id, "hub1") is state


def test_a_hub_takes_nothing_upon_itself_in_a_neighbours_name() -> None:
    """An unsigned message under a pending id would make a copy of the real one."""
    certificates = json.dumps([pem(PEOPLE["alpha"].certificate)])
    agreement = (
        "[security]\nsign = true\nrequire_signature = true\n"
        f"partner_certificates = {certificates}\n"
    )
    chain = Network.chain(options("ebms2", hops=2, agreement=agreement))
    for engine in chain.engines.values():
        engine.context.keys = KEYS["alpha"]
    chain.carrying = False
    message_id = chain.send(0).message_id
    ((_, post),) = chain.kept
    forged = unsigned(whole_parcel(chain.engines["buyer"].context, post.parcel))
    body = forged.body.replace(b"order 0", b"order 7")
    answer = chain.deliver("hub1", Parcel(forged.content_type, body))
    assert answer.parcel is not None
    back = whole_parcel(chain.engines["hub1"].context, answer.parcel)
    assert b"<ds:Signature" not in back.body
    assert chain.kinds("hub1", message_id) == ["refused"]
    chain.carrying = True
    chain.carry(*chain.kept.pop(0))
    assert "received" in chain.kinds("seller", message_id)


async def test_an_acknowledgement_without_the_certificate_leaves_a_trace_over_sockets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ports = {"alpha": free_port(), "beta": free_port()}

    def bind(node: HandlerContext) -> None:
        text = agreement_text("alpha", "beta", "ebms2", FAST, ports)
        text = text.replace("[partner]\n", f'[partner]\nclient_certificates = ["{PRINT}"]\n')
        node.agreements = Agreements([read_toml(text)])

    async with serving(tmp_path, "alpha", "beta", ports, change=bind) as sender:
        accepted = await sender.send(order(1, message_id=ORDER))
        word = CLAIMS["acknowledgement"](stored_bytes(sender, accepted.message_id))
        with caplog.at_level(logging.WARNING, "oncewire.handler"):
            status, _, body = await post(ports["alpha"], word.body, word.content_type)
        assert (status, body) == (204, b"")
        with sender.engine.context.store.reader() as reader:
            told = reader.journal_of(ORDER)
        assert "a signal was ignored: acknowledgement" in explain(told)
        assert "a signal was ignored" in [one.message for one in caplog.records]
        (line,) = [one for one in caplog.records if one.message == "a signal was ignored"]
        assert line.message_id == ORDER  # type: ignore[attr-defined]
