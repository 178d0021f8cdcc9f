"""The values a message is made of: what they accept, refuse and answer."""

import copy
import hashlib
import pickle

import pytest
from msgspec.structs import replace

from oncewire.errors import (
    EBXML_ERRORS,
    EbxmlError,
    InvalidValue,
    TimeToLiveExpired,
    TransientError,
)
from oncewire.message.envelope import (
    SEQUENCE_NUMBER_MAX,
    Acknowledgment,
    AcknowledgmentType,
    AckRequested,
    Actor,
    DeliverySemantics,
    Error,
    ErrorList,
    MessageKind,
    MessageStatus,
    Payload,
    Reference,
    RoutingHeader,
    SequenceNumber,
    SequenceStatus,
    Severity,
    Split,
    StatusRequest,
    StatusResponse,
)
from oncewire.message.form import AckRequest, Form, ReliableMessagingMethod, Security
from oncewire.message.ids import PartyId
from oncewire.message.kinds import read_toml
from oncewire.protocol.notes import Submitted
from oncewire.protocol.sequence import SequenceRange
from oncewire.protocol.states import Outgoing, OutgoingState
from oncewire.protocol.terms import Terms
from tests.protocol.samples import NOW, header, hop, message

# --- header -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "field", ["cpa_id", "conversation_id", "message_id", "action", "ref_to_message_id"]
)
def test_every_id_of_a_header_is_checked(field: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        header(**{field: "a\nb"})
    assert caught.value.remedy


@pytest.mark.requirement("ACK-6")
def test_service_and_action_may_be_missing() -> None:
    assert header(service=None, action=None).action is None


@pytest.mark.requirement("RM-9")
def test_values_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        header().message_id = "other"  # type: ignore[misc]


@pytest.mark.requirement("BIG-4", "BIG-5")
@pytest.mark.parametrize(
    ("split_id", "number", "total"),
    [("", 1, 1), ("d", 0, 1), ("d", 2, 1), ("d", 1, 0), ("d", 1, 1_000_001)],
)
def test_an_impossible_part_is_refused(split_id: str, number: int, total: int) -> None:
    with pytest.raises(InvalidValue) as caught:
        Split(split_id, number, total)
    assert caught.value.remedy


@pytest.mark.requirement("SEQ-13")
def test_a_sequence_number_has_a_status() -> None:
    assert [status.value for status in SequenceStatus] == ["Reset", "Continue"]
    assert SequenceNumber(0).status is SequenceStatus.CONTINUE
    assert SequenceNumber(SEQUENCE_NUMBER_MAX, None).status is None


@pytest.mark.requirement("SEQ-2")
@pytest.mark.parametrize("number", [-1, SEQUENCE_NUMBER_MAX + 1])
def test_a_number_no_dialect_knows_is_refused(number: int) -> None:
    with pytest.raises(InvalidValue, match="lies outside") as caught:
        SequenceNumber(number)
    assert "sequence range" in caught.value.remedy


# --- routing ------------------------------------------------------------------------------


@pytest.mark.requirement("HDR-1", "HDR-2", "HDR-5")
def test_a_hop_names_its_two_ends_by_uri_or_by_party() -> None:
    assert hop().sender_uri == "http://a.example"
    by_party = RoutingHeader(sender_id=PartyId("a"), receiver_id=PartyId("b"))
    assert by_party.sequence is None


@pytest.mark.requirement("HDR-1")
@pytest.mark.parametrize(
    "ends", [{}, {"sender_uri": "urn:a"}, {"receiver_uri": "urn:b"}, {"sender_id": PartyId("a")}]
)
def test_a_hop_without_an_end_is_refused(ends: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match="names no") as caught:
        RoutingHeader(**ends)  # type: ignore[arg-type]
    assert caught.value.remedy


@pytest.mark.requirement("HDR-4")
@pytest.mark.parametrize("field", ["sender_uri", "receiver_uri", "error_uri", "msh_id"])
def test_the_names_of_a_hop_are_checked(field: str) -> None:
    with pytest.raises(InvalidValue):
        hop(**{field: ""})
    assert hop(msh_id="msh-2").msh_id == "msh-2"


@pytest.mark.requirement("RM-5")
def test_an_absent_method_counts_as_ebxml() -> None:
    assert hop().method is ReliableMessagingMethod.EBXML


# --- the whole message --------------------------------------------------------------------


@pytest.mark.requirement("RM-4", "RM-5", "RM-6")
@pytest.mark.parametrize(
    ("semantics", "asks", "reliable"),
    [
        (DeliverySemantics.ONCE_AND_ONLY_ONCE, False, True),
        (DeliverySemantics.BEST_EFFORT, False, False),
        (None, False, False),
        (None, True, True),
    ],
)
def test_a_message_is_reliable_by_its_semantics_or_by_asking(
    semantics: DeliverySemantics | None, asks: bool, reliable: bool
) -> None:
    asked = (AckRequested(),) if asks else ()
    assert message(ack_requested=asked, semantics=semantics).reliable is reliable


@pytest.mark.requirement("ACK-8")
def test_a_signal_is_never_reliable_but_a_failure_notice_may_be() -> None:
    assert message(MessageKind.ERROR).reliable
    assert not message(MessageKind.PING).reliable


@pytest.mark.requirement("HDR-5")
def test_the_last_routing_header_is_the_hop_just_made() -> None:
    first, last = hop(), hop(sender_uri="http://hub.example")
    assert message(routing=(first, last)).last_hop is last
    assert message().last_hop is None


@pytest.mark.requirement("HDR-3")
def test_the_number_is_the_conversations_or_else_the_hops() -> None:
    routed = message(routing=(hop(sequence=SequenceNumber(7)),))
    assert routed.sequence == SequenceNumber(7)
    assert replace(routed, order=SequenceNumber(3)).sequence == SequenceNumber(3)
    assert message().sequence is None


@pytest.mark.requirement("ACK-13")
def test_ack_requested_has_three_values_and_absence_means_none() -> None:
    assert {value.value for value in AckRequest} == {"Unsigned", "Signed", "None"}
    assert hop().ack_requested is AckRequest.NONE
    assert message(routing=(hop(),)).asks_ack_of(Actor.NEXT_MSH) is AckRequest.NONE
    assert message().asks_ack_of(Actor.NEXT_MSH) is AckRequest.NONE
    assert message().asks_ack_of(Actor.TO_PARTY_MSH) is AckRequest.NONE


def test_each_actor_is_asked_on_its_own() -> None:
    both = message(
        ack_requested=(AckRequested(Actor.NEXT_MSH), AckRequested(Actor.TO_PARTY_MSH, signed=True))
    )
    assert both.asks_ack_of(Actor.NEXT_MSH) is AckRequest.UNSIGNED
    assert both.asks_ack_of(Actor.TO_PARTY_MSH) is AckRequest.SIGNED


@pytest.mark.requirement("ERR-10")
def test_a_warning_beside_a_response_is_no_failure() -> None:
    warned = replace(message(), error_list=ErrorList((Error("Unknown", Severity.WARNING),)))
    assert not warned.failed
    assert replace(message(), error_list=ErrorList((Error("Unknown"),))).failed
    assert not message().failed


# --- acknowledgements, status -------------------------------------------------------------


@pytest.mark.requirement("ACK-3", "ACK-17", "ACK-18")
def test_an_acknowledgment_refers_to_a_message_and_may_name_its_party() -> None:
    given = Acknowledgment(NOW, "m@buyer")
    assert (given.from_party, given.signed, given.references) == (None, False, ())
    with pytest.raises(InvalidValue, match="RefToMessageId"):
        Acknowledgment(NOW, "")


@pytest.mark.requirement("ACK-19")
def test_the_typed_variant_has_two_kinds_and_the_latest_none() -> None:
    assert [kind.value for kind in AcknowledgmentType] == ["DeliveryReceipt", "IntermediateAck"]
    assert Acknowledgment(NOW, "m").type is None


@pytest.mark.requirement("OPS-2")
def test_a_status_answer_says_when_the_message_was_received() -> None:
    answer = StatusResponse("m", MessageStatus.RECEIVED, NOW)
    assert answer.timestamp == NOW
    for make in (lambda: StatusRequest(""), lambda: StatusResponse("", MessageStatus.RECEIVED)):
        with pytest.raises(InvalidValue):
            make()


# --- errors -------------------------------------------------------------------------------


@pytest.mark.requirement("ERR-4")
def test_a_transient_error_carries_the_seconds_to_pause() -> None:
    error = Error.of(TransientError("full", min_retry_secs=30))
    assert (error.code, error.severity, error.min_retry_secs) == (
        "TransientError",
        Severity.WARNING,
        30,
    )
    assert Error.of(TransientError("full")).min_retry_secs is None
    with pytest.raises(InvalidValue, match="MinRetrySecs -1 is negative"):
        Error("TransientError", min_retry_secs=-1)


def test_a_raised_error_becomes_the_element_that_answers_it() -> None:
    error = Error.of(TimeToLiveExpired("too late", location="//TimeToLive"))
    assert (error.code, error.location, error.description) == (
        "TimeToLiveExpired",
        "//TimeToLive",
        "too late",
    )
    assert error.known
    assert not Error("HouseRule").known
    assert error.min_retry_secs is None


def test_a_long_problem_is_cut_to_fit_the_element() -> None:
    error = Error.of(EbxmlError("x" * 5_000, location="y" * 9_000))
    assert (len(error.description), len(error.location)) == (1_024, 4_096)


@pytest.mark.parametrize(
    "bad", [{"code": ""}, {"code": "x", "location": "\x00"}, {"code": "x", "description": "\x00"}]
)
def test_an_error_that_cannot_be_written_is_refused(bad: dict[str, str]) -> None:
    with pytest.raises(InvalidValue):
        Error(**bad)  # type: ignore[arg-type]


def test_a_list_is_as_bad_as_its_worst_error() -> None:
    warning, error = Error("Unknown", Severity.WARNING), Error("Unknown")
    assert ErrorList((warning,)).highest_severity is Severity.WARNING
    assert ErrorList((warning, error)).highest_severity is Severity.ERROR
    with pytest.raises(InvalidValue, match="empty"):
        ErrorList(())


def test_the_nine_codes_of_ebms2_are_known() -> None:
    assert len(EBXML_ERRORS) == 9
    assert all(EBXML_ERRORS[code].code == code for code in EBXML_ERRORS)


# --- payloads -----------------------------------------------------------------------------


def test_a_payload_knows_its_size_and_digest() -> None:
    payload = Payload.of("part-1", "text/xml", b"<order/>")
    assert payload.size == 8
    assert payload.digest == hashlib.sha256(b"<order/>").hexdigest()


@pytest.mark.parametrize(
    "bad", [{"content_id": ""}, {"media_type": "\x00"}, {"size": -1}], ids=lambda bad: str(bad)
)
def test_an_impossible_payload_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(InvalidValue) as caught:
        replace(Payload.of("part-1", "text/xml", b""), **bad)  # type: ignore[arg-type]
    assert caught.value.remedy


def test_a_reference_names_a_part_or_a_place_elsewhere() -> None:
    assert Reference("cid:part-1").content_id == "part-1"
    assert Reference("CID:part-1").content_id == "part-1"
    assert Reference("http://example.com/x").content_id is None
    with pytest.raises(InvalidValue, match="no xlink:href"):
        Reference("")


def test_the_form_and_the_security_of_messages_have_cautious_defaults() -> None:
    assert not Form().extensions
    assert not Security().allow_sha1


CARRIED = [
    header(),
    Payload.of("order", "text/plain", b"an order", "order.txt"),
    Submitted("a", "b", "c", "d", "e", "f"),
    Outgoing("m", "t", 5, state=OutgoingState.OUTSTANDING),
    Terms(numbers=SequenceRange(1, 9)),
]


@pytest.mark.parametrize("value", CARRIED, ids=lambda value: type(value).__name__)
def test_values_are_copied_and_carried_to_other_processes(value: object) -> None:
    """Spark's executors get terms and notes by pickling."""
    assert copy.copy(value) == copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value
    assert hash(pickle.loads(pickle.dumps(value))) == hash(value)


def test_a_changed_copy_is_checked_as_any_other_value() -> None:
    with pytest.raises(InvalidValue, match="MessageId"):
        replace(header(), message_id="")
    with pytest.raises(TypeError, match="colour"):
        replace(header(), colour="blue")


DEEP = 2_000


@pytest.mark.parametrize(
    "text",
    [
        "a" + ".a" * DEEP + " = 1",
        "x = { " + "a . " * DEEP + "a = 1 }",
        "[" + '"a".' * DEEP + "a]",
        "[[" + "'a'." * DEEP + "a]]",
        "a." * DEEP + '"a\\".b".c = 1',
    ],
    ids=["key", "inline", "table", "tables", "quoted"],
)
def test_a_name_of_very_many_names_is_refused_before_it_is_read(text: str) -> None:
    with pytest.raises(InvalidValue, match="names between dots"):
        read_toml(text)


def test_long_texts_are_no_names() -> None:
    parts = ", ".join(f'"https://host-{number}.example.org/msh"' for number in range(500))
    assert len(read_toml(f"addresses = [{parts}]")["addresses"]) == 500
    assert read_toml("a.b.c.d = 1 # " + "." * 5_000) == {"a": {"b": {"c": {"d": 1}}}}
    # However long, it is looked through once.
    for hostile in ("a" * 1_000_000, "a." * 20 + "a" * 1_000_000, '"' * 1_000_000, "a . " * 20):
        with pytest.raises(InvalidValue):
            read_toml(f"x = {hostile}\n" * 3)
