"""The form of every answer, dialect by dialect (ACK-4..12, ERR-3..9, HOP-11)."""

import pytest
from msgspec.structs import replace

from oncewire.errors import Inconsistent, InvalidValue, TransientError, ValueNotRecognized
from oncewire.message.envelope import (
    AcknowledgmentType,
    AckRequested,
    Actor,
    DeliverySemantics,
    Message,
    MessageKind,
    MessageStatus,
    Severity,
    SignedDigest,
)
from oncewire.message.form import AckRequest, Dialect
from oncewire.message.ids import Party, PartyId, Service
from oncewire.wire import answers, codec
from oncewire.wire.drafts.blocks import ACK_SERVICE, ERROR_SERVICE
from oncewire.wire.ebms2 import blocks as ebms2_names
from oncewire.wire.parcel import PartialHeader
from tests.wire import samples
from tests.wire.samples import NOW, envelope_for, order_message


def sent(message: Message, typed: bool = False) -> Message:
    """The answer after a journey over the wire."""
    form = samples.form(message.dialect, ack_typed=typed)
    return codec.read(codec.write(message, form)).message


def received(dialect: Dialect) -> Message:
    return codec.read(samples.written(dialect)).message


@pytest.mark.requirement("ACK-3", "ACK-8")
@pytest.mark.parametrize("dialect", list(Dialect))
def test_an_acknowledgement_refers_and_is_best_effort(dialect: Dialect) -> None:
    message = received(dialect)
    answer = sent(answers.acknowledgment_for(message, envelope_for(dialect)))
    assert answer.kind is MessageKind.ACKNOWLEDGMENT
    assert answer.header.ref_to_message_id == message.header.message_id
    assert answer.header.semantics is DeliverySemantics.BEST_EFFORT
    assert answer.header.cpa_id == message.header.cpa_id
    assert answer.header.conversation_id == message.header.conversation_id
    assert answer.payloads == ()
    assert not answer.reliable


@pytest.mark.requirement("ACK-4", "ACK-5", "ACK-6", "ACK-7", "ERR-3")
@pytest.mark.parametrize("error", [False, True])
def test_answers_of_v0_078(error: bool) -> None:
    message = received(Dialect.RM_078)
    envelope = envelope_for(Dialect.RM_078)
    made = (
        answers.error_message_for(message, [Inconsistent("x", location="//x")], envelope)
        if error
        else answers.acknowledgment_for(message, envelope)
    )
    text = codec.write_envelope(made, samples.form(Dialect.RM_078))
    answer = sent(made)
    assert answer.header.from_party.ids == (samples.FIRST_HOP.receiver_id,)
    assert answer.header.to_party.ids == (samples.FIRST_HOP.sender_id,)
    assert answer.header.cpa_id == message.header.cpa_id
    assert answer.header.conversation_id == message.header.conversation_id
    assert (answer.header.service, answer.header.action) == (None, None)
    assert b"Service" not in text
    assert answer.header.semantics is DeliverySemantics.BEST_EFFORT
    assert answer.header.ref_to_message_id == message.header.message_id
    assert answer.kind is (MessageKind.ERROR if error else MessageKind.ACKNOWLEDGMENT)
    assert answer.last_hop is not None
    assert answer.last_hop.sender_id == samples.FIRST_HOP.receiver_id
    assert answer.last_hop.sequence is None


@pytest.mark.requirement("ACK-10", "ACK-11", "ACK-12")
def test_a_stand_alone_acknowledgement_of_ms09x() -> None:
    answer = sent(
        answers.acknowledgment_for(received(Dialect.MS_09X), envelope_for(Dialect.MS_09X))
    )
    assert answer.header.service == Service(ACK_SERVICE)
    assert answer.header.action == "Acknowledgment"
    assert answer.header.from_party.ids == (PartyId("http://hub.example/msh"),)
    assert answer.header.to_party.ids == (PartyId("http://alpha.example/msh"),)


@pytest.mark.requirement("ACK-11", "ACK-19", "HOP-11")
@pytest.mark.parametrize(
    ("actor", "kind"),
    [
        (Actor.TO_PARTY_MSH, AcknowledgmentType.DELIVERY_RECEIPT),
        (Actor.NEXT_MSH, AcknowledgmentType.INTERMEDIATE_ACK),
    ],
)
def test_a_typed_acknowledgement_repeats_its_type(actor: Actor, kind: AcknowledgmentType) -> None:
    envelope = envelope_for(
        Dialect.MS_09X, form=samples.form(Dialect.MS_09X, ack_typed=True), own=samples.BETA
    )
    made = answers.acknowledgment_for(received(Dialect.MS_09X), envelope, actor=actor)
    answer = sent(made, typed=True)
    assert answer.header.action == kind.value
    assert answer.acknowledgments[0].type is kind
    assert answer.acknowledgments[0].actor is actor


@pytest.mark.requirement("ACK-14", "ACK-17")
@pytest.mark.parametrize(
    ("asked", "elements", "signed"),
    [(AckRequest.NONE, 0, False), (AckRequest.UNSIGNED, 1, False), (AckRequest.SIGNED, 1, True)],
)
def test_the_element_is_there_when_it_was_asked_for(
    asked: AckRequest, elements: int, signed: bool
) -> None:
    message = order_message(Dialect.MS_09X)
    message = replace(message, routing=(replace(samples.FIRST_HOP, ack_requested=asked),))
    answer = sent(answers.acknowledgment_for(sent(message), envelope_for(Dialect.MS_09X, now=NOW)))
    assert len(answer.acknowledgments) == elements
    for one in answer.acknowledgments:
        assert one.signed is signed
        assert one.timestamp == NOW


@pytest.mark.requirement("HOP-11")
def test_a_hop_acknowledges_with_the_ends_of_the_hop() -> None:
    envelope = envelope_for(Dialect.MS_09X, own=Party.of("hub", "urn:ex:org"))
    answer = sent(
        answers.acknowledgment_for(received(Dialect.MS_09X), envelope, actor=Actor.NEXT_MSH)
    )
    assert answer.header.from_party.ids == (PartyId("http://hub.example/msh"),)
    assert answer.header.to_party.ids == (PartyId("http://alpha.example/msh"),)
    assert answer.header.service == Service(ACK_SERVICE)
    assert answer.header.action == "Acknowledgment"
    assert answer.header.semantics is DeliverySemantics.BEST_EFFORT
    assert answer.acknowledgments[0].from_party == Party.of("hub", "urn:ex:org")


def test_an_acknowledgement_of_ebms2() -> None:
    message = received(Dialect.EBMS2)
    answer = sent(answers.acknowledgment_for(message, envelope_for(Dialect.EBMS2, now=NOW)))
    assert answer.header.service == Service(ebms2_names.SIGNAL_SERVICE)
    assert answer.header.action == "Acknowledgment"
    assert answer.header.from_party == message.header.to_party
    assert answer.header.to_party == message.header.from_party
    (one,) = answer.acknowledgments
    assert (one.actor, one.ref_to_message_id) == (Actor.TO_PARTY_MSH, message.header.message_id)
    assert one.from_party == Party(message.header.to_party.ids)
    assert one.timestamp == NOW


def test_an_answer_stays_in_its_conversation_and_agreement() -> None:
    message, envelope = received(Dialect.EBMS2), envelope_for(Dialect.EBMS2)
    asked, ping = answers.ask_status(message, envelope), answers.ping_like(message, envelope)
    for about, answer in (
        (message, answers.acknowledgment_for(message, envelope)),
        (message, answers.error_message_for(message, (Inconsistent("wrong"),), envelope)),
        (ping, answers.pong_for(ping, envelope)),
        (asked, answers.status_response_for(asked, MessageStatus.RECEIVED, envelope)),
    ):
        written = sent(answer).header
        assert written.conversation_id == about.header.conversation_id
        assert written.cpa_id == about.header.cpa_id
        assert written.ref_to_message_id == about.header.message_id


def test_a_hop_of_ebms2_names_itself() -> None:
    hub = Party.of("hub", "urn:ex:org")
    message = received(Dialect.EBMS2)
    envelope = envelope_for(Dialect.EBMS2, own=hub)
    answer = sent(answers.acknowledgment_for(message, envelope, actor=Actor.NEXT_MSH))
    assert answer.header.from_party == hub
    assert answer.acknowledgments[0].actor is Actor.NEXT_MSH
    assert answer.acknowledgments[0].from_party == hub


def test_a_signed_acknowledgement_carries_the_digests() -> None:
    message = replace(
        received(Dialect.EBMS2), ack_requested=(AckRequested(Actor.TO_PARTY_MSH, signed=True),)
    )
    digest = SignedDigest("", "http://www.w3.org/2001/04/xmlenc#sha256", b"\x01" * 32)
    made = answers.acknowledgment_for(message, envelope_for(Dialect.EBMS2), references=(digest,))
    (one,) = sent(made).acknowledgments
    assert one.signed
    assert one.references[0].digest_value == b"\x01" * 32


@pytest.mark.requirement("ACK-16")
@pytest.mark.parametrize("dialect", [Dialect.EBMS2, Dialect.MS_09X])
def test_an_acknowledgement_rides_on_a_response(dialect: Dialect) -> None:
    request = received(dialect)
    response = order_message(dialect)
    response = replace(
        response,
        header=replace(
            response.header,
            message_id="r-1",
            action="Confirm",
            ref_to_message_id=request.header.message_id,
        ),
        acknowledgments=(answers.acknowledgment_of(request, envelope_for(dialect)),),
    )
    together = sent(response)
    assert together.kind is MessageKind.NORMAL
    assert together.header.action == "Confirm"
    assert together.header.service == response.header.service
    assert together.header.ref_to_message_id == request.header.message_id
    assert together.acknowledgments[0].ref_to_message_id == request.header.message_id
    assert together.payloads == response.payloads


@pytest.mark.parametrize(
    ("dialect", "service", "action"),
    [
        (Dialect.EBMS2, ebms2_names.SIGNAL_SERVICE, "MessageError"),
        (Dialect.MS_09X, ERROR_SERVICE, "MessageError"),
    ],
)
def test_an_error_message(dialect: Dialect, service: str, action: str) -> None:
    problems = [Inconsistent("first", location="//a"), ValueNotRecognized("second", location="//b")]
    answer = sent(answers.error_message_for(received(dialect), problems, envelope_for(dialect)))
    assert answer.kind is MessageKind.ERROR
    assert answer.header.service == Service(service)
    assert answer.header.action == action
    assert answer.error_list is not None
    assert [(one.code, one.location, one.description) for one in answer.error_list.errors] == [
        ("Inconsistent", "//a", "first"),
        ("ValueNotRecognized", "//b", "second"),
    ]
    assert answer.ack_requested == ()
    assert answer.failed


@pytest.mark.requirement("ERR-4")
@pytest.mark.parametrize("dialect", list(Dialect))
def test_a_transient_error_message(dialect: Dialect) -> None:
    answer = sent(
        answers.error_message_for(
            received(dialect), [TransientError("busy", min_retry_secs=30)], envelope_for(dialect)
        )
    )
    assert answer.error_list is not None
    assert answer.error_list.errors[0].min_retry_secs == 30
    assert answer.error_list.highest_severity is Severity.WARNING


def test_an_error_message_from_what_little_is_known() -> None:
    known = PartialHeader(
        dialect=Dialect.EBMS2,
        kind=MessageKind.NORMAL,
        from_party=samples.ALPHA,
        message_id="m-9",
    )
    envelope = envelope_for(Dialect.EBMS2, own=samples.BETA)
    answer = sent(answers.error_message_for(known, [Inconsistent("x", location="//x")], envelope))
    assert answer.header.cpa_id == answers.UNKNOWN_CPA
    assert answer.header.conversation_id == "m-9"
    assert answer.header.from_party == samples.BETA
    nameless = replace(known, from_party=None)
    by_agreement = replace(envelope, peer=samples.ALPHA)
    problem = [Inconsistent("x", location="//x")]
    found = answers.error_message_for(nameless, problem, by_agreement)
    assert found.header.to_party == samples.ALPHA
    with pytest.raises(InvalidValue, match="parties"):
        answers.error_message_for(nameless, problem, envelope)
    with pytest.raises(InvalidValue, match="MessageId"):
        answers.error_message_for(replace(known, message_id=None), problem, envelope)


@pytest.mark.requirement("ERR-5", "ERR-6", "ERR-7", "ERR-8", "ERR-9")
@pytest.mark.parametrize(
    ("transmitted", "severity"), [(False, Severity.ERROR), (True, Severity.WARNING)]
)
def test_a_failure_notice_of_ms09x(transmitted: bool, severity: Severity) -> None:
    failed = received(Dialect.MS_09X)
    hub = Party.of("hub", "urn:ex:org")
    envelope = envelope_for(Dialect.MS_09X, own=hub, hop=samples.NEXT_HOP)
    notice = sent(
        answers.delivery_failure_for(
            failed, envelope, transmitted=transmitted, description="no answer"
        )
    )
    assert notice.kind is MessageKind.ERROR
    assert notice.header.from_party == hub
    assert notice.header.to_party == failed.header.from_party
    assert notice.header.service == Service(ERROR_SERVICE)
    assert notice.header.action == "MessageError"
    assert notice.header.semantics is failed.header.semantics
    assert notice.header.ref_to_message_id == failed.header.message_id
    assert notice.error_list is not None
    (error,) = notice.error_list.errors
    assert (error.code, error.severity) == ("DeliveryFailure", severity)
    assert notice.reliable


@pytest.mark.requirement("ERR-8")
def test_a_failure_notice_of_a_best_effort_message_is_best_effort() -> None:
    failed = order_message(Dialect.MS_09X)
    failed = replace(failed, header=replace(failed.header, semantics=DeliverySemantics.BEST_EFFORT))
    notice = answers.delivery_failure_for(
        failed, envelope_for(Dialect.MS_09X, own=samples.BETA), transmitted=True
    )
    assert notice.header.semantics is DeliverySemantics.BEST_EFFORT


@pytest.mark.requirement("ERR-9")
@pytest.mark.parametrize("dialect", [Dialect.EBMS2, Dialect.RM_078])
def test_a_failure_notice_of_the_other_dialects(dialect: Dialect) -> None:
    failed = received(dialect)
    envelope = envelope_for(dialect, own=samples.BETA)
    notice = sent(answers.delivery_failure_for(failed, envelope, transmitted=True))
    assert notice.error_list is not None
    assert notice.error_list.errors[0].code == "DeliveryFailure"
    assert notice.error_list.highest_severity is Severity.WARNING
    assert notice.header.to_party.ids == failed.header.from_party.ids
    # An error of ebMS 2.0 never asks to be acknowledged.
    assert notice.ack_requested == ()


def test_a_failure_notice_needs_somebody_to_send_it_to() -> None:
    with pytest.raises(InvalidValue):
        answers.delivery_failure_for(
            PartialHeader(dialect=Dialect.EBMS2, message_id="m"),
            envelope_for(Dialect.EBMS2),
            transmitted=True,
        )


@pytest.mark.requirement("OPS-2")
@pytest.mark.parametrize("dialect", [Dialect.EBMS2, Dialect.MS_09X])
@pytest.mark.parametrize("status", list(MessageStatus))
def test_status_is_asked_and_answered(dialect: Dialect, status: MessageStatus) -> None:
    envelope = envelope_for(dialect, hop=samples.FIRST_HOP)
    question = sent(answers.ask_status(order_message(dialect), envelope))
    assert question.kind is MessageKind.STATUS_REQUEST
    assert question.status_request is not None
    assert question.status_request.ref_to_message_id == "m-1001@alpha.example"
    answer = sent(
        answers.status_response_for(
            question, status, envelope_for(dialect, message_id="s-1"), received_at=NOW
        )
    )
    assert answer.kind is MessageKind.STATUS_RESPONSE
    assert answer.status_response is not None
    assert answer.status_response.status is status
    silent = status in (MessageStatus.UNAUTHORIZED, MessageStatus.NOT_RECOGNIZED)
    assert answer.status_response.timestamp == (None if silent else NOW)
    assert answer.header.ref_to_message_id == question.header.message_id


@pytest.mark.parametrize("dialect", [Dialect.EBMS2, Dialect.MS_09X])
def test_ping_and_pong(dialect: Dialect) -> None:
    ping = sent(answers.ping_like(order_message(dialect), envelope_for(dialect)))
    assert ping.kind is MessageKind.PING
    pong = sent(answers.pong_for(ping, envelope_for(dialect, message_id="p-2")))
    assert pong.kind is MessageKind.PONG
    assert pong.header.ref_to_message_id == ping.header.message_id
    assert pong.header.to_party == ping.header.from_party


def test_only_a_status_request_is_answered_with_a_status() -> None:
    with pytest.raises(InvalidValue):
        answers.status_response_for(
            order_message(Dialect.EBMS2), MessageStatus.RECEIVED, envelope_for(Dialect.EBMS2)
        )
