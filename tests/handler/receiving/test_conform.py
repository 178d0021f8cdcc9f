"""What an agreement asks of a message's form takes effect in the handler, on corpus messages."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.cppa.reader import read_cpa
from oncewire.agreement.toml import read_toml
from oncewire.errors import InvalidValue
from oncewire.handler.actions import Submission
from oncewire.handler.encryption import whole_parcel
from oncewire.message.envelope import MessageKind, MessageStatus, Severity
from oncewire.message.form import Dialect, Form, UnknownCpa
from oncewire.message.ids import Party, PartyId, Service
from oncewire.protocol.states import OutgoingState
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel
from tests.handler.corpus_cases import (
    ACK,
    ARRIVING,
    BUYER,
    DIGIPOORT,
    ERROR,
    ORDER_CPA,
    PLAIN,
    framed,
    nhs,
    ours,
    overheid,
    parcel_of,
)
from tests.handler.network import MAIL, Network, agreement_text
from tests.handler.samples import cpa, filled, soap_parcel, toml
from tests.wire.samples import order_message

NOW = "2026-01-05T10:00:01Z"
TEMPLATE = "ebms-core/soap/EbMSMessage"


def message(corpus: Path, kind: str = "", **values: str) -> Parcel:
    """A template of ebms-core under its CPA; any value can be exchanged."""
    return soap_parcel(filled((corpus / f"{TEMPLATE}{kind}.xml").read_bytes(), DIGIPOORT | values))


def without_action(parcel: Parcel, *headers: tuple[str, str]) -> Parcel:
    return Parcel(parcel.content_type, parcel.body, headers)


# --- acknowledged on the connection, and again -------------------------------------------------


@pytest.mark.requirement("SYNC-1", "DUP-2", "DUP-5", "ACK-3")
def test_a_second_copy_gets_the_same_acknowledgement_and_no_second_delivery(corpus: Path) -> None:
    desk = Network.single(overheid(corpus), at=NOW)
    first = desk.hand_in(message(corpus))
    desk.world().time += 5_000_000
    second = desk.hand_in(message(corpus))
    assert (first.status, second.status) == (200, 200)
    assert first.message is not None
    assert second.message is not None
    assert first.message.header.message_id == second.message.header.message_id
    assert first.message.header.timestamp == second.message.header.timestamp
    assert first.message.header.ref_to_message_id == "c0ffee@localhost"
    assert first.parcel == second.parcel
    assert [one.message_id for one in desk.given()] == ["c0ffee@localhost"]
    third = desk.hand_in(message(corpus))
    assert third.parcel == first.parcel
    assert desk.given() == []


@pytest.mark.requirement("DUP-2", "DUP-5")
def test_a_second_copy_of_a_refused_message_gets_the_same_error(corpus: Path) -> None:
    desk = Network.single(overheid(corpus), at=NOW)
    late = message(corpus, timeToLive="2026-01-05T10:00:00Z")
    first, second = desk.hand_in(late), desk.hand_in(late)
    assert first.error[0] == "TimeToLiveExpired"
    assert first.parcel == second.parcel
    assert desk.given() == []


def test_what_arrives_after_its_time_to_live_is_not_delivered(corpus: Path) -> None:
    for now, code in (("2026-01-06T10:00:00Z", None), ("2026-01-06T10:00:01Z", "Expired")):
        desk = Network.single(overheid(corpus), at=now)
        reply = desk.hand_in(message(corpus))
        assert reply.status == 200
        if code is None:
            assert len(desk.given()) == 1
        else:
            assert reply.error == ("TimeToLiveExpired", "//MessageData/TimeToLive", "Error")
            assert desk.given() == []


@pytest.mark.requirement("SYNC-10", "TRN-5")
def test_over_mail_the_same_message_is_acknowledged_by_itself_with_a_warning(corpus: Path) -> None:
    desk = Network.single(overheid(corpus), at=NOW)
    assert desk.hand_in(message(corpus), MAIL).status == 204
    (answer,) = desk.signals()
    assert answer.kind is ACK
    assert answer.error_list is not None
    assert [(one.code, one.severity) for one in answer.error_list.errors] == [
        ("NotSupported", Severity.WARNING)
    ]
    assert len(desk.given()) == 1


@pytest.mark.requirement("SYNC-12", "SYNC-13")
def test_a_synchronous_wish_that_was_not_agreed_is_refused_at_once(corpus: Path) -> None:
    desk = Network.single(cpa(corpus / ORDER_CPA, 1), at="2009-06-01T10:00:01Z")
    asking = filled((corpus / f"{TEMPLATE}.xml").read_bytes(), BUYER)
    reply = desk.hand_in(soap_parcel(asking))
    assert (reply.status, reply.error) == (200, ("Inconsistent", "//Header/SyncReply", "Error"))
    assert desk.posted == []
    assert desk.given() == []


def test_a_signed_acknowledgement_that_nobody_can_sign_is_refused(corpus: Path) -> None:
    desk = Network.single(overheid(corpus, ack__signature="perMessage"), at=NOW)
    reply = desk.hand_in(message(corpus, "InvalidAckRequestedSigned"))
    assert reply.error == ("Inconsistent", "//Header/AckRequested/@signed", "Error")
    signing = Network.single(overheid(corpus, ack__signature="perMessage"), at=NOW, keys=ours())
    reply = signing.hand_in(message(corpus, "InvalidAckRequestedSigned"))
    assert reply.parcel is not None
    assert codec.read(reply.parcel).signed


@pytest.mark.requirement("CPA-10", "CPA-11")
@pytest.mark.parametrize("policy", ["b", "c"])
def test_a_difference_that_is_borne_is_told_with_the_acknowledgement(
    corpus: Path, policy: str
) -> None:
    desk = Network.single(overheid(corpus, delivery__header_conflict=policy), at=NOW)
    reply = desk.hand_in(message(corpus, "MissingDuplicateElimination"))
    assert reply.message is not None
    assert reply.message.kind is ACK
    assert reply.error == (
        "Inconsistent", "//Header/MessageHeader/DuplicateElimination", "Warning",
    )  # fmt: skip
    assert len(desk.given()) == 1


# --- SOAPAction --------------------------------------------------------------------------------


@pytest.mark.parametrize("stated", [None, '""', '"urn:other"'], ids=["none", "empty", "other"])
def test_a_strict_partner_must_send_the_agreed_soap_action(
    corpus: Path, stated: str | None
) -> None:
    said = () if stated is None else (("SOAPAction", stated),)
    desk = Network.single(overheid(corpus), at=NOW)
    reply = desk.hand_in(without_action(message(corpus), *said))
    assert reply.status == 500
    assert reply.fault is not None
    assert reply.fault.code == "Client"
    assert "SOAPAction" in reply.fault.string
    assert desk.given() == []
    assert len(desk.rows("refused")) == 1
    lenient = Network.single(overheid(corpus, wire__soap_action_check="any"), at=NOW)
    assert lenient.hand_in(without_action(message(corpus), *said)).status == 200


@pytest.mark.parametrize("stated", ['"ebXML"', "ebXML", ' "ebXML" '])
def test_quotes_around_it_carry_no_meaning(corpus: Path, stated: str) -> None:
    desk = Network.single(overheid(corpus), at=NOW)
    assert desk.hand_in(without_action(message(corpus), ("soapaction", stated))).status == 200
    assert len(desk.given()) == 1


def test_spine_names_service_and_action_in_it(corpus: Path) -> None:
    strict = nhs("A91424-9199121", "YES-0000806", extra='[wire]\nsoap_action_check = "strict"\n')
    parcel = parcel_of(corpus, "nhs-mhs/test_messages/ebxml_request_no_soap_actor.msg")
    for action, status in (
        ("urn:nhs:names:services:psis/MCCI_IN010000UK13", 200),
        ("urn:nhs:names:services:psis/QUPA_IN000006UK02", 500),
        ('"ebXML"', 500),
    ):
        desk = Network.single(strict, at="2019-05-04T20:55:20Z")
        said = without_action(parcel, ("SOAPAction", f'"{action}"'))
        assert desk.hand_in(said).status == status


def test_a_reply_on_our_own_connection_needs_none(corpus: Path) -> None:
    strict = nhs("YEA-0000806", "TESTGEN-201324", extra='[wire]\nsoap_action_check = "strict"\n')
    desk = Network.single(strict, at="2013-04-16T07:52:08Z")
    reference = "0CDBA95F-74DA-47E9-8383-7B8E9167D146"
    post = desk.submit(Submission("spine", Service("urn:x"), "A", message_id=reference))
    ack = parcel_of(corpus, "nhs-mhs/expected_messages/ebxml_ack.xml")
    assert ack.header("SOAPAction") is None
    desk.hear(post, ack)
    assert desk.state(reference) is OutgoingState.DELIVERED


# --- the agreement's name ----------------------------------------------------------------------


def unknown_cpa(answer: str, whose: str, corpus: Path) -> Network:
    """`answer` is said by the agreement with that partner, or by the handler for strangers."""
    if whose == "partner":
        return Network.single(overheid(corpus, wire__unknown_cpa=answer), at=NOW)
    form = Form(unknown_cpa=UnknownCpa(answer))
    return Network.single(nhs("somebody", "else"), at=NOW, form=form)


@pytest.mark.parametrize("whose", ["partner", "handler"])
def test_an_unknown_cpa_id_is_a_fault_or_an_error_as_agreed(corpus: Path, whose: str) -> None:
    stray = message(corpus, cpaId="nobody-knows")
    desk = unknown_cpa("fault", whose, corpus)
    reply = desk.hand_in(stray)
    assert reply.status == 500
    assert reply.fault is not None
    assert reply.fault.code == "Client"
    desk = unknown_cpa("error", whose, corpus)
    reply = desk.hand_in(stray)
    assert reply.status == 200
    assert reply.error == ("ValueNotRecognized", "//Header/MessageHeader/CPAId", "Error")
    assert desk.given() == []


def test_who_says_neither_who_he_is_nor_under_what_gets_a_fault(corpus: Path) -> None:
    """An error message could be addressed to nobody."""
    desk = Network.single(overheid(corpus), at=NOW)
    reply = desk.hand_in(message(corpus, "MissingFromPartyId", cpaId="nobody-knows"))
    assert reply.status == 500
    assert reply.fault is not None
    assert (reply.fault.code, reply.fault.string) == ("Client", "From/PartyId is missing")
    assert desk.refused == 1
    assert desk.rows("refused") == []


# --- references --------------------------------------------------------------------------------


def test_an_unknown_reference_may_be_ignored(corpus: Path) -> None:
    desk = Network.single(overheid(corpus, wire__unknown_ref="ignore"), at=NOW)
    reply = desk.hand_in(message(corpus, "InvalidRefToMessageId"))
    assert reply.message is not None
    assert reply.message.kind is ACK
    assert len(desk.given()) == 1


@pytest.mark.requirement("RM-16")
def test_a_reference_to_a_message_of_ours_is_known_and_settles_it(corpus: Path) -> None:
    desk = Network.single(overheid(corpus), at=NOW)
    service = Service("osb:afleveren:1.1$1.0", "urn:osb:services")
    post = desk.submit(
        Submission("cpaStubEBF.rm.http.unsigned.sync", service, "bevestigAfleveren", (),
                   message_id="@localhost")
    )  # fmt: skip
    desk.hear(post, None)
    reply = desk.hand_in(message(corpus, "InvalidRefToMessageId"))
    assert reply.message is not None
    assert reply.message.kind is ACK
    assert desk.state("@localhost") is OutgoingState.DELIVERED


def test_a_reference_to_an_earlier_message_of_the_same_partner_is_known(corpus: Path) -> None:
    desk = Network.single(overheid(corpus), at=NOW)
    desk.hand_in(message(corpus, uuid="first"))
    template = (corpus / f"{TEMPLATE}InvalidRefToMessageId.xml").read_bytes()
    following = filled(template, DIGIPOORT).replace(b">@localhost<", b">first@localhost<")
    reply = desk.hand_in(soap_parcel(following))
    assert reply.message is not None
    assert reply.message.kind is ACK


def test_a_known_message_stays_known_when_what_it_refers_to_is_forgotten(corpus: Path) -> None:
    """A copy is a copy: its reference was judged when it first came."""
    desk = Network.single(overheid(corpus, wire__unknown_ref="ignore"), at=NOW)
    first = desk.hand_in(message(corpus, "InvalidRefToMessageId"))
    desk.engine.context.agreements = type(desk.engine.context.agreements)([overheid(corpus)])
    assert desk.hand_in(message(corpus, "InvalidRefToMessageId")).parcel == first.parcel


# --- the schema --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["MissingFromPartyId", "MissingReference"])
def test_a_partner_held_to_the_schema_gets_a_soap_fault(corpus: Path, kind: str) -> None:
    desk = Network.single(overheid(corpus, wire__validation="enforce"), at=NOW)
    reply = desk.hand_in(message(corpus, kind))
    assert reply.status == 500
    assert reply.fault is not None
    assert reply.fault.code == "Client"
    assert "schema" in reply.fault.string
    assert "schema" in (desk.rows("refused")[0].detail or "")


NO_DESCRIPTION = (
    "nhs-mhs/test_messages/"
    "ebxml_request_one_attachment_application_xml_content_type_no_description.msg"
)


@pytest.mark.parametrize("validation", ["enforce", "report", "off"])
def test_what_can_be_read_but_is_not_valid_is_taken_unless_the_schema_is_enforced(
    corpus: Path, validation: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "oncewire.handler")
    extra = f'[wire]\nvalidation = "{validation}"\n'
    desk = Network.single(
        nhs("A91424-9199121", "YES-0000806", extra=extra), at="2019-05-04T20:55:20Z"
    )
    reply = desk.hand_in(parcel_of(corpus, NO_DESCRIPTION))
    assert reply.status == (500 if validation == "enforce" else 200)
    assert len(desk.given()) == (0 if validation == "enforce" else 1)
    reported = [one for one in caplog.records if "schema" in one.getMessage()]
    assert bool(reported) is (validation == "report")


def test_a_valid_message_passes_where_the_schema_is_enforced(corpus: Path) -> None:
    desk = Network.single(overheid(corpus, wire__validation="enforce"), at=NOW)
    assert desk.hand_in(message(corpus)).status == 200
    assert len(desk.given()) == 1


def test_another_dialect_than_the_agreed_one_is_refused_in_its_own_words(corpus: Path) -> None:
    party = '[{{value = "{}", type = "urn:ex:org"}}]'
    agreement = toml("ebms2", party.format("beta"), party.format("alpha"), "alpha-beta-1")
    desk = Network.single(agreement, at=NOW)
    spoken = codec.write(order_message(Dialect.MS_09X), Form(dialect=Dialect.MS_09X))
    assert desk.hand_in(spoken).status == 204
    (answer,) = desk.signals()
    assert answer.dialect is Dialect.MS_09X
    assert answer.error_list is not None
    assert answer.error_list.errors[0].code == "NotSupported"
    assert desk.given() == []


# --- order -------------------------------------------------------------------------------------


def ordered(corpus: Path, number: int) -> Parcel:
    """The MessageOrder template without its SyncReply, numbered."""
    template = (corpus / f"{TEMPLATE}MessageOrder.xml").read_bytes()
    text = filled(template, BUYER | {"uuid": "talk"}).decode()
    start = text.index("<eb:SyncReply")
    text = text[:start] + text[text.index("<eb:MessageOrder") :]
    status = "Reset" if number == 0 else "Continue"
    text = text.replace(
        "<eb:SequenceNumber>00000001", f'<eb:SequenceNumber eb:status="{status}">{number:08d}'
    )
    return soap_parcel(text.replace("talk@localhost", f"{number}@localhost").encode())


def test_ordered_messages_are_acknowledged_as_they_come_and_handed_over_in_order(
    corpus: Path,
) -> None:
    desk = Network.single(cpa(corpus / ORDER_CPA, 1), at="2009-06-01T10:00:01Z")
    for number in (2, 1):
        assert desk.hand_in(ordered(corpus, number)).status == 204
        assert desk.given() == []
    assert [one.kind for one in desk.signals()] == [ACK, ACK]
    desk.hand_in(ordered(corpus, 0))
    assert [one.message_id for one in desk.given()] == [f"{n}@localhost" for n in range(3)]
    desk.hand_in(ordered(corpus, 1))
    assert desk.given() == []


def test_the_same_agreement_makes_our_sender_number_its_messages(corpus: Path) -> None:
    buyer = Network.single(cpa(corpus / ORDER_CPA, 0), at="2009-06-01T10:00:00Z")
    seller = Network.single(cpa(corpus / ORDER_CPA, 1), at="2009-06-01T10:00:00Z")
    service = Service("urn:ebIOT-TestService:order", "anyURI")
    for number in range(3):
        submission = Submission(
            "ebIOT-CPAT5-4.CECID.I3T", service, "Order", conversation_id="talk",
            message_id=f"order-{number}",
        )  # fmt: skip
        buyer.submit(submission)
    # The message that resets the numbers goes alone; the window opens with its acknowledgement.
    (opening,) = buyer.posts
    seller.hand_in(buyer.parcel(opening))
    buyer.hand_in(whole_parcel(seller.engine.context, seller.posted[0].parcel))
    assert [post.message_id for post in buyer.posts] == ["order-0", "order-1", "order-2"]
    for post in reversed(buyer.posts[1:]):
        seller.hand_in(buyer.parcel(post))
    assert [one.message_id for one in seller.given()] == ["order-0", "order-1", "order-2"]


# --- status ------------------------------------------------------------------------------------


def status(desk: Network, corpus: Path, about: str) -> MessageStatus:
    asking = message(corpus, "Status", refToMessageId=about, uuid=f"ask-{about}")
    reply = desk.hand_in(asking)
    assert reply.status == 200
    assert reply.message is not None
    assert reply.message.kind is MessageKind.STATUS_RESPONSE
    response = reply.message.status_response
    assert response is not None
    assert response.ref_to_message_id == f"{about}@localhost"
    known = response.status in (MessageStatus.RECEIVED, MessageStatus.PROCESSED)
    assert (response.timestamp is not None) is known
    return response.status


@pytest.mark.requirement("OPS-2")
def test_the_status_of_a_message_follows_it(corpus: Path) -> None:
    desk = Network.single(overheid(corpus), at=NOW)
    assert status(desk, corpus, "c0ffee") is MessageStatus.NOT_RECOGNIZED
    desk.hand_in(message(corpus))
    assert status(desk, corpus, "c0ffee") is MessageStatus.RECEIVED
    desk.given()
    assert status(desk, corpus, "c0ffee") is MessageStatus.PROCESSED
    desk.hand_in(message(corpus, uuid="late", timeToLive="2026-01-05T10:00:00Z"))
    assert status(desk, corpus, "late") is MessageStatus.NOT_RECOGNIZED


def test_nobody_is_warned_of_a_wish_he_did_not_have(corpus: Path) -> None:
    """PHINMS answers on the connection unasked; over mail it just answers."""
    name = "phinms-phineas/examples/request.xml"
    desk = ARRIVING[name].desk(corpus)
    assert desk.hand_in(parcel_of(corpus, name), MAIL).status == 204
    (answer,) = desk.signals()
    assert answer.kind is ACK
    assert answer.error_list is None


# --- PHINMS' own agreement ---------------------------------------------------------------------


def test_the_loopback_cpa_of_phinms_serves_its_request(corpus: Path) -> None:
    """Its parties have no names and it ended in 2002: the names are given, and it is 2001."""
    agreement = read_cpa(
        (corpus / "phinms-phineas/cpa/loopback.xml").read_bytes(),
        own=1,
        own_party=Party((PartyId("SLHW0224", "zz"),)),
        partner_party=Party((PartyId("slhw0008", "zz"),)),
        any_cpa_id=True,
    )
    desk = Network.single(agreement, at="2001-06-01T00:00:00Z")
    envelope = (corpus / "phinms-phineas/examples/request.xml").read_bytes()
    reply = desk.hand_in(framed(envelope, "tests/test/AllTests.java@phineas.us", PLAIN))
    assert reply.message is not None
    assert reply.message.kind is ACK
    assert [one.payloads[0].data for one in desk.given()] == [PLAIN]
    over = Network.single(agreement, at="2010-11-22T14:11:02Z")
    refused = over.hand_in(framed(envelope, "tests/test/AllTests.java@phineas.us", PLAIN))
    assert refused.message is not None
    assert refused.message.kind is ERROR
    assert refused.error[:2] == ("Inconsistent", "//Header/MessageHeader/CPAId")


# --- sizes -------------------------------------------------------------------------------------


def test_a_payload_that_is_larger_than_agreed_is_not_accepted_from_the_application() -> None:
    pair = Network.pair(extra="[payload]\nmax_size = 100\n")
    pair.send(1, b"x" * 100)
    with pytest.raises(InvalidValue, match="has 101 bytes, and no more than 100 are agreed"):
        pair.send(2, b"x" * 101)
    assert pair.take() == ["order-1@alpha"]
    assert pair.verify().violations == ()


def test_a_payload_that_is_larger_than_agreed_is_refused_by_its_receiver() -> None:
    """Whatever its size: a small body is read whole, a large one as it comes."""
    pair = Network.pair()
    agreement = agreement_text("beta", "alpha", "ebms2", "[payload]\nmax_size = 100\n")
    pair.beta.context.agreements = Agreements([read_toml(agreement)])
    pair.send(1, b"x" * 100)
    pair.send(2, b"x" * 101)
    assert pair.take() == ["order-1@alpha"]
    (notice,) = pair.notices
    assert notice.message_id == "order-2@alpha"
    assert "MimeProblem" in notice.reason
    assert pair.verify().violations == ()


@pytest.mark.parametrize("profile", ["ebms2", "nhs-async-reliable", "nhs-forward-reliable"])
def test_foreign_characters_in_base64_are_damage_or_decoration_as_agreed(profile: str) -> None:
    """Real messages of Spine have quotation marks there; RFC 2045 lets a reader skip them."""
    pair = Network.pair(profile, lose_request=lambda post: True)
    sent = pair.send()
    parcel = pair.sent(sent.message_id)
    odd = parcel.body.replace(
        b"\r\n\r\norder 1", b'\r\nContent-Transfer-Encoding: base64\r\n\r\n"b3Jk"ZXIg MQ=="'
    )
    kept = tuple(header for header in parcel.headers if header[0] != "Content-Digest")
    pair.deliver("beta", replace(parcel, body=odd, headers=kept))
    taken = pair.beta.hand_over(1, 10**9)
    if profile == "ebms2":
        assert taken == []
        assert "refused" in pair.kinds("beta")
        return
    given = taken[0]
    assert given.payloads[0].data == b"order 1"
