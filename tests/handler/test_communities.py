"""The communities' profiles at work: between two of our handlers, and against their samples."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from msgspec import structs

from oncewire.handler.actions import Join, Submission
from oncewire.handler.runtime.upkeep import join_at_once
from oncewire.message.envelope import (
    AckRequested,
    Actor,
    DeliverySemantics,
    Message,
    MessageKind,
    Payload,
)
from oncewire.message.ids import Service
from oncewire.protocol.states import OutgoingState
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel
from oncewire.wire.soap import action_of
from tests.handler.corpus_cases import ANSWERING, ARRIVING, nhs, norway, ours, parcel_of, signer_of
from tests.handler.network import MAIL, Network
from tests.handler.running import free_port, order, serving
from tests.handler.samples import recorded

GOLD = "nhs-mhs/expected_messages/"
SPINE = "nhs-mhs/test_messages/"


def sent_by(pair: Network, message_id: str) -> tuple[Message, Parcel]:
    """What alpha put on the wire."""
    parcel = pair.sent(message_id)
    return codec.read(parcel).message, parcel


def answers_of(pair: Network) -> list[Message]:
    return [codec.read(recorded(body)).message for body in pair.answers]


# --- between two of our handlers ---------------------------------------------------------------


def test_nhs_forward_reliable_is_acknowledged_by_the_next_handler() -> None:
    pair = Network.pair("nhs-forward-reliable")
    sent = pair.send()
    message, parcel = sent_by(pair, sent.message_id)
    assert message.ack_requested == (AckRequested(Actor.NEXT_MSH),)
    assert message.header.duplicate_elimination
    assert not message.header.sync_reply_as_agreed
    assert parcel.header("SOAPAction") == "urn:test:orders/New"
    (ack,) = answers_of(pair)
    assert [one.actor for one in ack.acknowledgments] == [Actor.NEXT_MSH]
    # Nothing came back on the connection: the acknowledgement is a POST of its own.
    assert "ack_sent" in pair.kinds("beta")
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    assert pair.take() == [sent.message_id]
    assert pair.verify().clean


@pytest.mark.parametrize("losses", [1, 2])
def test_nhs_forward_reliable_survives_lost_acknowledgements(losses: int) -> None:
    pair = Network.pair("nhs-forward-reliable", lose_answer=lambda count: count <= losses)
    sent = pair.send()
    for _ in range(losses):
        assert pair.state(sent.message_id) is OutgoingState.OUTSTANDING
        pair.pass_time()
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    assert len(set(pair.answers)) == 1
    assert pair.take() == [sent.message_id]
    assert pair.verify().clean


@pytest.mark.requirement("SYNC-1", "SYNC-3")
def test_nhs_async_reliable_is_acknowledged_in_the_response() -> None:
    pair = Network.pair("nhs-async-reliable")
    sent = pair.send()
    message, _ = sent_by(pair, sent.message_id)
    assert message.ack_requested == (AckRequested(Actor.TO_PARTY_MSH),)
    assert message.header.sync_reply_as_agreed
    (ack,) = answers_of(pair)
    assert [one.actor for one in ack.acknowledgments] == [Actor.TO_PARTY_MSH]
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    assert pair.take() == [sent.message_id]
    assert pair.verify().clean


@pytest.mark.requirement("OPS-4")
@pytest.mark.parametrize("profile", ["nhs-express", "digikoppeling-osb-be"])
def test_best_effort_is_sent_once_and_never_acknowledged(profile: str) -> None:
    pair = Network.pair(profile)
    sent = pair.send()
    message, _ = sent_by(pair, sent.message_id)
    assert message.ack_requested == ()
    assert not message.header.duplicate_elimination
    assert pair.answers == []
    assert pair.state(sent.message_id) is OutgoingState.SENT
    assert pair.take() == [sent.message_id]
    assert pair.verify().clean


def test_at_most_once_without_acknowledgements() -> None:
    """Combination 4 of ebMS 2.0 §6.6: copies are dropped, nothing is acknowledged."""
    pair = Network.pair("nhs-express", '[duplicate]\nelimination = "always"\n')
    sent = pair.send()
    message, parcel = sent_by(pair, sent.message_id)
    assert message.header.duplicate_elimination
    assert pair.take() == [sent.message_id]
    assert pair.deliver("beta", parcel).parcel is None
    assert pair.take() == []
    assert pair.answers == []
    assert pair.verify().clean


@pytest.mark.requirement("TRN-1", "TRN-2")
def test_digikoppeling_osb_rm_acknowledges_in_messages_of_their_own() -> None:
    pair = Network.pair("digikoppeling-osb-rm")
    sent = pair.send()
    message, parcel = sent_by(pair, sent.message_id)
    assert message.ack_requested == (AckRequested(Actor.TO_PARTY_MSH),)
    assert message.header.duplicate_elimination
    assert not message.header.sync_reply_as_agreed
    assert parcel.header("SOAPAction") == '"ebXML"'
    (ack,) = answers_of(pair)
    assert ack.kind is MessageKind.ACKNOWLEDGMENT
    assert ack.header.service == Service("urn:oasis:names:tc:ebxml-msg:service")
    assert not ack.manifest
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    assert pair.take() == [sent.message_id]
    # Its partners are strict about the SOAPAction, ourselves included.
    bare = structs.replace(parcel, headers=())
    assert pair.deliver("beta", bare).status == 500
    assert pair.verify().clean


def test_digikoppeling_refuses_what_asks_the_next_handler() -> None:
    pair = Network.pair("digikoppeling-osb-rm", lose_request=lambda post: True)
    sent = pair.send()
    message, _ = sent_by(pair, sent.message_id)
    asks = (*message.ack_requested, AckRequested(Actor.NEXT_MSH))
    form = pair.alpha.context.agreements.by_cpa_id("alpha-beta")[0].form
    pair.deliver("beta", codec.write(structs.replace(message, ack_requested=asks), form))
    (refusal,) = answers_of(pair)
    assert refusal.error_list is not None
    assert refusal.error_list.errors[0].code == "NotSupported"
    assert pair.take() == []


@pytest.mark.parametrize("actor", ["toPartyMSH", "nextMSH"])
@pytest.mark.parametrize("elimination", ["always", "never", "perMessage"])
@pytest.mark.parametrize("ack", ["always", "never"])
def test_every_combination_arrives_as_it_was_submitted(
    ack: str, elimination: str, actor: str
) -> None:
    """ebMS 2.0 §6.6: whatever is asked, both sides speak of the same message."""
    extra = (
        f'[ack]\nrequest = "{ack}"\nactor = "{actor}"\n[duplicate]\nelimination = "{elimination}"\n'
    )
    pair = Network.pair("ebms2", extra)
    sent = pair.send()
    expected = OutgoingState.DELIVERED if ack == "always" else OutgoingState.SENT
    assert pair.state(sent.message_id) is expected
    assert pair.take() == [sent.message_id]
    assert pair.verify().violations == ()


@pytest.mark.requirement("ACK-15")
def test_a_reference_alone_acknowledges() -> None:
    pair = Network.pair("ms-0.9x", lose_answer=lambda count: True)
    sent = pair.send()
    (lost,) = answers_of(pair)
    assert pair.state(sent.message_id) is OutgoingState.OUTSTANDING
    form = pair.alpha.context.agreements.by_cpa_id("alpha-beta")[0].form
    pair.deliver("alpha", codec.write(structs.replace(lost, acknowledgments=()), form))
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED


# --- against their samples ---------------------------------------------------------------------


def _facts(message: Message) -> dict[str, object]:
    """Everything a golden message says but ids and moments of its own."""
    header = message.header
    return {
        "kind": message.kind,
        "parties": (header.from_party, header.to_party),
        "names": (header.cpa_id, header.conversation_id, header.service, header.action),
        "ref": header.ref_to_message_id,
        "asks": (message.ack_requested, header.duplicate_elimination, header.sync_reply_as_agreed),
        "acks": [
            (one.actor, one.ref_to_message_id, one.from_party, one.signed)
            for one in message.acknowledgments
        ],
        "manifest": [one.href for one in message.manifest],
        "payloads": [(one.content_id, one.media_type, one.data) for one in message.payloads],
    }


def test_our_acknowledgement_says_what_spine_s_does(corpus: Path) -> None:
    """The golden one answers a request from YEA-0000806; so ours is made to be one."""
    golden = codec.read(parcel_of(corpus, f"{GOLD}ebxml_ack.xml")).message
    request = parcel_of(corpus, f"{GOLD}ebxml_request_one_attachment.xml")
    body = request.body.replace(b"TESTGEN-201324", b"someone").replace(
        b"YEA-0000806", b"TESTGEN-201324"
    )
    body = body.replace(b"someone", b"YEA-0000806").replace(
        b"<eb:MessageId>5BB171D4-53B2-4986-90CF-428BE6D157F5",
        b"<eb:MessageId>0CDBA95F-74DA-47E9-8383-7B8E9167D146",
    )
    desk = Network.single(nhs("TESTGEN-201324", "YEA-0000806"), at="2012-03-15T06:51:08Z")
    reply = desk.hand_in(structs.replace(request, body=body))
    assert reply.message is not None
    assert _facts(reply.message) == _facts(golden)


def test_our_request_says_what_spine_s_does(corpus: Path) -> None:
    golden = codec.read(parcel_of(corpus, f"{GOLD}ebxml_request_one_attachment.xml")).message
    agreement = nhs("TESTGEN-201324", "YEA-0000806")
    desk = Network.single(replace(agreement, cpa_id="S1001A1630"), at="2012-03-15T06:51:08Z")
    post = desk.submit(
        Submission(
            "S1001A1630",
            Service("urn:nhs:names:services:pdsquery"),
            "QUPA_IN000006UK02",
            tuple(
                Payload.of(one.content_id, one.media_type, one.data or b"")
                for one in golden.payloads
            ),
            conversation_id="79F49A34-9798-404C-AEC4-FD38DD81C138",
            message_id="5BB171D4-53B2-4986-90CF-428BE6D157F5",
        )
    )
    ours_ = codec.read(desk.parcel(post)).message
    assert _facts(ours_) == _facts(golden)
    assert ours_.header.timestamp == golden.header.timestamp
    assert ours_.header.semantics is DeliverySemantics.ONCE_AND_ONLY_ONCE
    action = desk.parcel(post).header("SOAPAction")
    assert action == "urn:nhs:names:services:pdsquery/QUPA_IN000006UK02"
    assert action == action_of(
        ours_, desk.engine.context.agreements.by_cpa_id("S1001A1630")[0].form
    )


def test_our_refusal_has_the_shape_of_spine_s(corpus: Path) -> None:
    golden = codec.read(parcel_of(corpus, f"{GOLD}ebxml_nack.xml")).message
    name = f"{SPINE}ebxml_request_no_soap_actor.msg"
    parcel = parcel_of(corpus, name)
    wrong = parcel.body.replace(b"A91424-9199121", b"FROM_PARTY_ID")
    desk = Network.single(
        nhs("FROM_PARTY_ID", "YES-0000806", "nhs-express"), at="2019-05-04T20:55:20Z"
    )
    reply = desk.hand_in(structs.replace(parcel, body=wrong))
    assert reply.message is not None
    assert _facts(reply.message) == _facts(golden)
    assert reply.message.error_list is not None
    assert golden.error_list is not None
    assert reply.message.error_list.highest_severity is golden.error_list.highest_severity


def test_a_reference_to_a_part_in_another_message_is_kept(corpus: Path) -> None:
    name = f"{SPINE}ebxml_request_one_external_attachment.msg"
    desk = ARRIVING[name].desk(corpus)
    desk.hand_in(parcel_of(corpus, name))
    (taken,) = desk.given()
    assert [one.href for one in taken.references] == [
        "cid:C614484E-4B10-499A-9ACD-5D645CFACF61@spine.nhs.uk",
        "mid:8F1D7DE1-02AB-48D7-A797-A947B09F347F@spine.nhs.uk",
    ]
    assert "LargeAttachment=No" in taken.references[1].descriptions[0][1]


def test_a_part_in_another_message_is_joined_where_that_is_agreed(corpus: Path) -> None:
    name, fragment = (
        f"{SPINE}ebxml_request_one_external_attachment.msg",
        (f"{SPINE}ebxml_request_one_attachment_text_plain_content_compressed_fragment.msg"),
    )
    agreement = nhs("A91424-9199121", "YES-0000806", extra='[payload]\nparts = "mid"\n')
    desk = Network.single(agreement, at="2019-05-04T20:55:20Z")
    desk.hand_in(parcel_of(corpus, name))
    assert desk.given() == []
    # The other sample is no fragment of it: here it is made one, by its id.
    parcel = parcel_of(corpus, fragment)
    before, after = (
        b"<eb:MessageId>C614484E-4B10-499A-9ACD-5D645CFACF61",
        (b"<eb:MessageId>8F1D7DE1-02AB-48D7-A797-A947B09F347F@spine.nhs.uk"),
    )
    said = b"Filename=&quot;8F1D7DE1.txt&quot; Compressed=No"
    body = parcel.body.replace(before, after).replace(b"Some description", said)
    desk.hand_in(structs.replace(parcel, body=body))
    (join,) = desk.seen(Join)
    join_at_once(desk.engine, join)
    desk.settle()
    (taken,) = desk.given()
    assert taken.message_id == "C614484E-4B10-499A-9ACD-5D645CFACF61"
    assert [payload.size for payload in taken.payloads] == [51, 269]


def test_a_frame_made_whole_gives_its_bytes_unchanged(corpus: Path) -> None:
    """The multi-byte sample names an attachment that its frame lacks; here it is added."""
    name = f"{SPINE}ebxml_request_multibyte_character.msg"
    parcel = parcel_of(corpus, name)
    attachment = (
        b"----=_MIME-Boundary\r\nContent-Id: <Attachment1@e-mis.com/EMISWeb/GP2GP2.2A>\r\n"
        b"Content-Type: image/png\r\n\r\n\x89PNG\r\n\x00\r\n----=_MIME-Boundary--"
    )
    whole = structs.replace(parcel, body=parcel.body.replace(b"----=_MIME-Boundary--", attachment))
    desk = ARRIVING[name].desk(corpus)
    assert desk.hand_in(whole).status == 204
    (ack,) = desk.signals()
    assert [one.actor for one in ack.acknowledgments] == [Actor.NEXT_MSH]
    (taken,) = desk.given()
    assert [one.data for one in taken.payloads] == [
        "<xml>¬ ❤️ 🧸</xml>".encode(),
        b"\x89PNG\r\n\x00",
    ]


def test_a_fragment_of_a_gzip_stream_typed_as_text_stays_binary(corpus: Path) -> None:
    name = f"{SPINE}ebxml_request_one_attachment_text_plain_content_compressed_fragment.msg"
    desk = ARRIVING[name].desk(corpus)
    desk.hand_in(parcel_of(corpus, name))
    (taken,) = desk.given()
    data = taken.payloads[1].data or b""
    assert base64.encodebytes(data)[:60] in parcel_of(corpus, name).body
    with pytest.raises(UnicodeDecodeError):
        data.decode()


# --- Norway ------------------------------------------------------------------------------------


def security_failure(desk: Network) -> str | None:
    """Where the refused mail fails; its sender is told nothing, for he is not known."""
    (refused,) = desk.rows("refused")
    said = json.loads(refused.detail or "")
    assert said["code"] == "SecurityFailure"
    assert desk.posted == []
    location: str | None = said.get("location")
    return location


def test_a_stripped_signature_is_a_security_failure(corpus: Path) -> None:
    name = "nav-smtp-transport/ebxml_no_cpaid.eml"
    desk = ARRIVING[name].desk(corpus)
    body = (corpus / name).read_bytes()
    start, end = body.index(b"<Signature"), body.index(b"</Signature>") + len(b"</Signature>")
    named = body[:start] + body[end:]
    named = named.replace(
        b"<eb:ConversationId>", b"<eb:CPAId>nav:qass:34961</eb:CPAId><eb:ConversationId>", 1
    )
    desk.hand_in(recorded(named), MAIL)
    assert security_failure(desk) == "//Header/Signature"
    assert desk.given() == []


def test_a_signature_by_somebody_else_is_a_security_failure(corpus: Path) -> None:
    """The mail's own KeyInfo proves nothing: only the agreed certificate does."""
    name = "nav-smtp-transport/inntektsforesporsel.eml"
    stranger = (corpus / "nav-ebxml-processor/certs/cert_selfsigned.pem").read_text()
    own, partner = (f'[{{value = "{one}", type = "orgnummer"}}]' for one in
                    ("889640782", "979543883"))  # fmt: skip
    agreement = norway(own, partner, "nav:qass:34961", None)
    security = structs.replace(
        agreement.receiving.security,
        require_signature=True,
        partner_certificates=(_der(stranger),),
    )
    agreement = replace(agreement, receiving=replace(agreement.receiving, security=security))
    desk = Network.single(agreement, at="2026-02-12T12:00:40Z")
    desk.hand_in(parcel_of(corpus, name), MAIL)
    assert security_failure(desk) is None
    assert desk.given() == []


def _der(pem: str) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    return x509.load_pem_x509_certificate(pem.encode()).public_bytes(Encoding.DER)


def test_a_signed_acknowledgement_of_something_else_proves_nothing(corpus: Path) -> None:
    """Its signature holds, but it names digests of another message than ours."""
    name = "nav-smtp-transport/acknowledgment_no_from.eml"
    case = ANSWERING[name]
    (plain,) = case.desk(corpus).engine.context.agreements
    (certificate,) = plain.receiving.security.partner_certificates
    own, partner = '[{value = "79768", type = "HER"}]', '[{value = "92239", type = "HER"}]'
    agreement = norway(own, partner, case.cpa_id, certificate)
    desk = Network.single(agreement, at="2023-11-21T14:45:47Z", keys=ours())
    submission = Submission(case.cpa_id, Service("urn:x"), "A", message_id=case.message_id)
    desk.hear(desk.submit(submission), None)
    desk.hand_in(parcel_of(corpus, name), MAIL)
    assert desk.state(case.message_id) is OutgoingState.OUTSTANDING
    (ignored,) = desk.rows("ignored")
    assert ignored.message_id == case.message_id
    assert "SecurityFailure" in (ignored.detail or "")
    assert desk.posted == []


def test_an_altered_acknowledgement_is_not_believed(corpus: Path) -> None:
    name = "nav-smtp-transport/acknowledgment_no_from.eml"
    case = ANSWERING[name]
    desk = case.desk(corpus)
    submission = Submission(case.cpa_id, Service("urn:x"), "A", message_id="another-message")
    desk.hear(desk.submit(submission), None)
    envelope = codec.read(parcel_of(corpus, name)).envelope
    altered = envelope.replace(case.message_id.encode(), b"another-message")
    assert altered != envelope
    assert signer_of(altered)
    desk.hand_in(Parcel("text/xml", altered), MAIL)
    assert desk.state("another-message") is OutgoingState.OUTSTANDING
    (ignored,) = desk.rows("ignored")
    assert ignored.message_id == "another-message"
    assert "SecurityFailure" in (ignored.detail or "")


# --- replies on real connections ---------------------------------------------------------------

Answering = Callable[[str], tuple[int, bytes]]


@asynccontextmanager
async def spine(port: int, answering: Answering) -> AsyncIterator[list[str]]:
    """A partner that answers every POST with a status and a body of the corpus."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        parcel = Parcel(request.headers["Content-Type"], await request.read())
        message_id = codec.read(parcel).message.header.message_id
        asked.append(message_id)
        status, body = answering(message_id)
        return web.Response(status=status, body=body, content_type="text/xml")

    app = web.Application()
    app.router.add_post("/msh", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield asked
    finally:
        await runner.cleanup()


EVERY = '[delivery]\ntimeout = "PT0.2S"\nretry_interval = "PT0.2S"\nretries = 2\n'


async def test_an_acknowledgement_in_a_202_is_read(corpus: Path, tmp_path: Path) -> None:
    golden = (corpus / f"{GOLD}ebxml_ack.xml").read_text()
    golden = golden.replace(' eb:type="urn:nhs:names:partyType:ocs+serviceInstance"', "")
    golden = golden.replace("TESTGEN-201324", "urn:test:beta").replace(
        "YEA-0000806", "urn:test:alpha"
    )
    golden = golden.replace("S1001A1630", "alpha-beta")

    def accepted(message_id: str) -> tuple[int, bytes]:
        return 202, golden.replace("0CDBA95F-74DA-47E9-8383-7B8E9167D146", message_id).encode()

    ports = {"alpha": free_port(), "beta": free_port()}
    async with (
        spine(ports["beta"], accepted) as asked,
        serving(
            tmp_path, "alpha", "beta", ports, profile="nhs-async-reliable", extra=EVERY
        ) as alpha,
    ):
        sent = await alpha.send(order(1))
        assert await alpha.wait(sent.message_id, 20) is OutgoingState.DELIVERED
    assert asked == [sent.message_id]


@pytest.mark.parametrize(
    ("name", "attempts", "state"),
    [
        ("soapfault_response_empty.xml", 1, OutgoingState.NOT_DELIVERED),
        ("soapfault_response_single_error_300.xml", 1, OutgoingState.NOT_DELIVERED),
        # Tried again until the retries are used up; whether it arrived nobody knows.
        ("soapfault_response_single_error.xml", 3, OutgoingState.UNKNOWN),
        ("soapfault_response_single_error_208.xml", 3, OutgoingState.UNKNOWN),
    ],
)
async def test_a_soap_fault_ends_the_message_unless_its_code_means_try_again(
    corpus: Path, tmp_path: Path, name: str, attempts: int, state: OutgoingState
) -> None:
    fault = (corpus / SPINE / name).read_bytes()
    ports = {"alpha": free_port(), "beta": free_port()}
    async with (
        spine(ports["beta"], lambda _: (500, fault)) as asked,
        serving(
            tmp_path, "alpha", "beta", ports, profile="nhs-async-reliable", extra=EVERY
        ) as alpha,
    ):
        sent = await alpha.send(order(1))
        assert await alpha.wait(sent.message_id, 30) is state
    assert asked == [sent.message_id] * attempts


@pytest.mark.parametrize(
    ("code", "attempts"), [("Client", 1), ("MustUnderstand", 1), ("Server", 3)]
)
async def test_elsewhere_only_a_fault_of_the_server_is_tried_again(
    corpus: Path, tmp_path: Path, code: str, attempts: int
) -> None:
    fault = (corpus / SPINE / "soapfault_response_empty.xml").read_text()
    body = fault.replace("SOAP:Server", f"SOAP:{code}").encode()
    ports = {"alpha": free_port(), "beta": free_port()}
    async with (
        spine(ports["beta"], lambda _: (500, body)) as asked,
        serving(tmp_path, "alpha", "beta", ports, extra=EVERY) as alpha,
    ):
        sent = await alpha.send(order(1))
        assert await alpha.wait(sent.message_id, 30) is not None
    assert asked == [sent.message_id] * attempts
