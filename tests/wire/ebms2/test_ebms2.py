"""ebMS 2.0 read tolerantly and judged strictly: each fault has its code and its place."""

import pytest
from msgspec.structs import replace

from oncewire.errors import EbxmlError, InvalidValue, SoapFault
from oncewire.message.envelope import (
    Actor,
    DeliverySemantics,
    Error,
    ErrorList,
    MessageKind,
    SequenceNumber,
    SequenceStatus,
    Severity,
)
from oncewire.message.form import Dialect, Form
from oncewire.wire import codec
from oncewire.wire.codec import Parcel, ReadFault
from tests.wire import samples
from tests.wire.samples import ACK_REQUESTED, MESSAGE_HEADER, soap

_MH = "//Header/MessageHeader"
SYNC = (
    '<eb:SyncReply SOAP:mustUnderstand="1" eb:version="2.0" '
    'SOAP:actor="http://schemas.xmlsoap.org/soap/actor/next"/>'
)
ORDER = (
    '<eb:MessageOrder SOAP:mustUnderstand="1" eb:version="2.0">'
    '<eb:SequenceNumber eb:status="Continue">7</eb:SequenceNumber></eb:MessageOrder>'
)
ERRORS = (
    '<eb:ErrorList SOAP:mustUnderstand="1" eb:version="2.0" eb:highestSeverity="Error">'
    '<eb:Error eb:errorCode="Inconsistent" eb:severity="Error" eb:location="//x"/></eb:ErrorList>'
)
ACK = (
    '<eb:Acknowledgment SOAP:mustUnderstand="1" eb:version="2.0" '
    'SOAP:actor="urn:oasis:names:tc:ebxml-msg:actor:toPartyMSH">'
    "<eb:Timestamp>2026-01-05T10:00:01Z</eb:Timestamp>"
    "<eb:RefToMessageId>m-0</eb:RefToMessageId></eb:Acknowledgment>"
)
MANIFEST = (
    '<eb:Manifest eb:version="2.0"><eb:Reference xlink:href="http://elsewhere/x"/></eb:Manifest>'
)
STATUS_REQUEST = (
    '<eb:StatusRequest eb:version="2.0"><eb:RefToMessageId>m-0</eb:RefToMessageId>'
    "</eb:StatusRequest>"
)
STATUS_RESPONSE = (
    '<eb:StatusResponse eb:version="2.0" eb:messageStatus="Received">'
    "<eb:RefToMessageId>m-0</eb:RefToMessageId></eb:StatusResponse>"
)


def read(envelope: bytes) -> codec.Received:
    return codec.read(Parcel("text/xml", envelope))


def refused(envelope: bytes) -> ReadFault:
    with pytest.raises(ReadFault) as caught:
        read(envelope)
    return caught.value


def signal(action: str, ref_to: str | None = "m-0") -> str:
    reference = f"<eb:RefToMessageId>{ref_to}</eb:RefToMessageId>" if ref_to else ""
    return (
        MESSAGE_HEADER.replace("urn:ex:orders", "urn:oasis:names:tc:ebxml-msg:service")
        .replace("PlaceOrder", action)
        .replace("</eb:Timestamp></eb:MessageData>", f"</eb:Timestamp>{reference}</eb:MessageData>")
        .replace("<eb:DuplicateElimination/>", "")
    )


FAULTS: list[tuple[str, bytes, str, str]] = [
    ("actor", soap(MESSAGE_HEADER + ACK_REQUESTED.replace("toPartyMSH", "x")),
     "Inconsistent", "//Header/AckRequested/@actor"),
    ("signed", soap(MESSAGE_HEADER + ACK_REQUESTED.replace('"false"', '"perhaps"')),
     "Inconsistent", "//Header/AckRequested/@signed"),
    ("ack version", soap(MESSAGE_HEADER + ACK_REQUESTED.replace("2.0", "1.0")),
     "Inconsistent", "//Header/AckRequested/@version"),
    ("two acks of one actor", soap(MESSAGE_HEADER + ACK_REQUESTED * 2),
     "Inconsistent", "//Header/AckRequested"),
    ("sync actor", soap(MESSAGE_HEADER + SYNC.replace("actor/next", "actor/x")),
     "Inconsistent", "//Header/SyncReply/@actor"),
    ("sync version", soap(MESSAGE_HEADER + SYNC.replace("2.0", "1.0")),
     "Inconsistent", "//Header/SyncReply/@version"),
    ("two syncs", soap(MESSAGE_HEADER + SYNC * 2), "Inconsistent", "//Header/SyncReply"),
    ("order with sync", soap(MESSAGE_HEADER + ACK_REQUESTED + SYNC + ORDER),
     "Inconsistent", "//Header/MessageOrder"),
    ("order without ack", soap(MESSAGE_HEADER + ORDER), "Inconsistent", "//Header/MessageOrder"),
    ("order beyond", soap(MESSAGE_HEADER + ACK_REQUESTED + ORDER.replace(">7<", ">100000000<")),
     "Inconsistent", "//Header/MessageOrder"),
    ("reset not at 0", soap(MESSAGE_HEADER + ACK_REQUESTED + ORDER.replace("Continue", "Reset")),
     "Inconsistent", "//Header/MessageOrder"),
    ("order of words", soap(MESSAGE_HEADER + ACK_REQUESTED + ORDER.replace(">7<", ">seven<")),
     "Inconsistent", "//Header/MessageOrder"),
    ("odd status", soap(MESSAGE_HEADER + ACK_REQUESTED + ORDER.replace("Continue", "Odd")),
     "Inconsistent", "//Header/MessageOrder"),
    ("header version", soap(MESSAGE_HEADER.replace("2.0", "2.1")),
     "Inconsistent", f"{_MH}/@version"),
    ("header with actor", soap(MESSAGE_HEADER.replace(
        'eb:version="2.0"', f'eb:version="2.0" SOAP:actor="{Actor.NEXT_MSH.value}"')),
     "Inconsistent", f"{_MH}/@actor"),
    ("two headers", soap(MESSAGE_HEADER * 2), "Inconsistent", _MH),
    ("untyped party", soap(MESSAGE_HEADER.replace(' eb:type="urn:ex:org">alpha', ">alpha")),
     "Inconsistent", f"{_MH}/From/PartyId"),
    ("repeated type", soap(MESSAGE_HEADER.replace(
        "</eb:From>", '<eb:PartyId eb:type="urn:ex:org">a2</eb:PartyId></eb:From>')),
     "Inconsistent", f"{_MH}/From/PartyId/@type"),
    ("no party", soap(MESSAGE_HEADER.replace(
        '<eb:PartyId eb:type="urn:ex:org">beta</eb:PartyId>', "")),
     "Inconsistent", f"{_MH}/To/PartyId"),
    ("untyped service", soap(MESSAGE_HEADER.replace("urn:ex:orders", "orders")),
     "Inconsistent", f"{_MH}/Service"),
    ("no action", soap(MESSAGE_HEADER.replace("<eb:Action>PlaceOrder</eb:Action>", "")),
     "Inconsistent", f"{_MH}/Action"),
    ("empty action", soap(MESSAGE_HEADER.replace("PlaceOrder", " ")),
     "Inconsistent", f"{_MH}/Action"),
    ("no time", soap(MESSAGE_HEADER.replace("2026-01-05T10:00:00Z", "yesterday")),
     "Inconsistent", f"{_MH}/MessageData/Timestamp"),
    ("a 13th month", soap(MESSAGE_HEADER.replace("2026-01-05", "2026-13-05")),
     "Inconsistent", f"{_MH}/MessageData/Timestamp"),
    ("week date", soap(MESSAGE_HEADER.replace("2026-01-05T10:00:00Z", "2026-W01-1T10:00:00Z")),
     "Inconsistent", f"{_MH}/MessageData/Timestamp"),
    ("two ids", soap(MESSAGE_HEADER.replace(
        "</eb:MessageId>", "</eb:MessageId><eb:MessageId>m-2</eb:MessageId>")),
     "Inconsistent", f"{_MH}/MessageData/MessageId"),
    ("id with elements", soap(MESSAGE_HEADER.replace("m-1@", "m<eb:x/>-1@")),
     "Inconsistent", f"{_MH}/MessageData/MessageId"),
    ("long id", soap(MESSAGE_HEADER.replace("conv-77", "c" * 256)),
     "Inconsistent", f"{_MH}/ConversationId"),
    ("id with control character", soap(MESSAGE_HEADER.replace("conv-77", "c&#9;d")),
     "Inconsistent", f"{_MH}/ConversationId"),
    ("unknown signal", soap(signal("Invented")), "Inconsistent", f"{_MH}/Action"),
    ("errors with manifest", soap(MESSAGE_HEADER + ERRORS, MANIFEST),
     "Inconsistent", "//Header/ErrorList"),
    ("errors with status", soap(signal("StatusResponse") + ERRORS, STATUS_RESPONSE),
     "Inconsistent", "//Header/ErrorList"),
    ("warning with request", soap(signal("StatusRequest") + ERRORS.replace(
        '"Error"', '"Warning"'), STATUS_REQUEST),
     "Inconsistent", "//Header/ErrorList"),
    ("errors without error", soap(signal("MessageError") + ERRORS.replace(
        '<eb:Error eb:errorCode="Inconsistent" eb:severity="Error" eb:location="//x"/>', "")),
     "Inconsistent", "//Header/ErrorList/Error"),
    ("odd severity", soap(signal("MessageError") + ERRORS.replace('r" eb:l', 's" eb:l')),
     "Inconsistent", "//Header/ErrorList/Error/@severity"),
    ("request with manifest", soap(signal("StatusRequest"), STATUS_REQUEST + MANIFEST),
     "Inconsistent", "//Body/StatusRequest"),
    ("request and response", soap(signal("StatusRequest"), STATUS_REQUEST + STATUS_RESPONSE),
     "Inconsistent", "//Body/StatusRequest"),
    ("request of nothing", soap(signal("StatusRequest")), "Inconsistent", "//Body/StatusRequest"),
    ("odd status word", soap(signal("StatusResponse"), STATUS_RESPONSE.replace("Received", "Lost")),
     "ValueNotRecognized", "//Body/StatusResponse/@messageStatus"),
    ("error of nothing", soap(signal("MessageError", None) + ERRORS),
     "Inconsistent", f"{_MH}/MessageData/RefToMessageId"),
    ("two manifests", soap(MESSAGE_HEADER, MANIFEST * 2), "Inconsistent", "//Body/Manifest"),
    ("manifest version", soap(MESSAGE_HEADER, MANIFEST.replace("2.0", "1.0")),
     "Inconsistent", "//Body/Manifest/@version"),
    ("empty manifest", soap(MESSAGE_HEADER, '<eb:Manifest eb:version="2.0"/>'),
     "Inconsistent", "//Body/Manifest/Reference"),
    ("reference to nothing", soap(MESSAGE_HEADER, MANIFEST.replace("http://elsewhere/x", "")),
     "Inconsistent", "//Body/Manifest/Reference/@href"),
    ("missing part", soap(MESSAGE_HEADER, MANIFEST.replace("http://elsewhere/x", "cid:gone@x")),
     "MimeProblem", "cid:gone@x"),
    ("ack without time", soap(signal("Acknowledgment") + ACK.replace(
        "<eb:Timestamp>2026-01-05T10:00:01Z</eb:Timestamp>", "")),
     "Inconsistent", "//Header/Acknowledgment/Timestamp"),
    ("ack of nothing", soap(signal("Acknowledgment") + ACK.replace(
        "<eb:RefToMessageId>m-0</eb:RefToMessageId>", "")),
     "Inconsistent", "//Header/Acknowledgment/RefToMessageId"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("envelope", "code", "location"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS]
)
def test_a_fault_has_its_code_and_its_place(envelope: bytes, code: str, location: str) -> None:
    fault = refused(envelope)
    error = fault.error
    assert isinstance(error, EbxmlError)
    assert (error.code, error.location, error.severity) == (code, location, "Error")
    assert error.problem


@pytest.mark.parametrize(
    ("envelope", "location"), [(row[1], row[3]) for row in FAULTS], ids=[row[0] for row in FAULTS]
)
def test_a_fault_keeps_every_other_fact(envelope: bytes, location: str) -> None:
    known = refused(envelope).known
    assert known.dialect is Dialect.EBMS2
    expected = {
        "message_id": "m-1@alpha.example",
        "conversation_id": "conv-77",
        "cpa_id": "alpha-beta-1",
    }
    names = {"message_id": "MessageId", "conversation_id": "ConversationId", "cpa_id": "CPAId"}
    for attribute, value in expected.items():
        if not location.endswith(names[attribute]):
            assert getattr(known, attribute) == value
    if "/To/" not in location:
        assert known.to_party is not None
    if "/From/" not in location:
        assert known.from_party is not None


def test_every_fault_is_told_not_only_the_first() -> None:
    envelope = soap(
        MESSAGE_HEADER.replace("2.0", "9").replace("orders", "or ders")
        + ACK_REQUESTED.replace("toPartyMSH", "x")
    )
    locations = [error.location for error in refused(envelope).ebxml_errors]
    assert locations == [f"{_MH}/@version", f"{_MH}/Service", "//Header/AckRequested/@actor"]


UNKNOWN = '<SOAP:Header><x:Y xmlns:x="urn:x" SOAP:mustUnderstand="1"/>'
UNKNOWN_TO_NEXT = UNKNOWN.replace('"1"', f'"true" SOAP:actor="{Actor.NEXT_MSH.value}"')


@pytest.mark.parametrize(
    ("old", "new", "faultcode"),
    [
        ("schemas.xmlsoap.org/soap/envelope/", "www.w3.org/2003/05/soap-envelope",
         "VersionMismatch"),
        ("<SOAP:Header>", UNKNOWN, "MustUnderstand"),
        ("<SOAP:Header>", UNKNOWN_TO_NEXT, "MustUnderstand"),
        ('eb:MessageHeader SOAP:mustUnderstand="1"', "eb:MessageHeader2", "Client"),
        ("SOAP:Header", "SOAP:Heeder", "Client"),
        ("<SOAP:Body></SOAP:Body>", "<SOAP:Body/><SOAP:Body/>", "Client"),
    ],
)  # fmt: skip
def test_soap_itself_has_faults_of_its_own(old: str, new: str, faultcode: str) -> None:
    text = soap(MESSAGE_HEADER).decode().replace(old, new)
    fault = refused(
        text.replace("</eb:MessageHeader>", "</eb:MessageHeader2>").encode()
        if "MessageHeader2" in new
        else text.encode()
    )
    assert isinstance(fault.error, SoapFault)
    assert fault.error.faultcode == faultcode
    assert not fault.answerable


@pytest.mark.parametrize(
    "block",
    [
        '<x:Y xmlns:x="urn:x" SOAP:mustUnderstand="0"/>',
        '<x:Y xmlns:x="urn:x"/>',
        '<x:Y xmlns:x="urn:x" SOAP:mustUnderstand="1" SOAP:actor="urn:somebody:else"/>',
    ],
)
def test_what_need_not_be_understood_is_passed_over(block: str) -> None:
    received = read(soap(MESSAGE_HEADER + block))
    assert any("not known" in note for note in received.notes)


def test_no_error_answers_an_error_or_an_acknowledgement() -> None:
    broken_error = refused(soap(signal("MessageError") + ERRORS.replace("2.0", "1.0")))
    assert broken_error.known.kind is MessageKind.ERROR
    assert not broken_error.answerable
    broken_ack = refused(soap(signal("Acknowledgment") + ACK.replace("2.0", "1.0")))
    assert not broken_ack.answerable


def test_the_semantics_are_those_of_the_combination() -> None:
    def semantics(*blocks: str, eliminate: bool) -> DeliverySemantics | None:
        header = MESSAGE_HEADER
        if not eliminate:
            header = header.replace("<eb:DuplicateElimination/>", "")
        return read(soap(header + "".join(blocks))).message.header.semantics

    once, best = DeliverySemantics.ONCE_AND_ONLY_ONCE, DeliverySemantics.BEST_EFFORT
    hop = ACK_REQUESTED.replace("toPartyMSH", "nextMSH")
    assert semantics(ACK_REQUESTED, hop, eliminate=True) is once
    assert semantics(ACK_REQUESTED, eliminate=True) is once
    assert semantics(hop, eliminate=True) is None
    assert semantics(eliminate=True) is None
    assert semantics(ACK_REQUESTED, hop, eliminate=False) is None
    assert semantics(ACK_REQUESTED, eliminate=False) is None
    assert semantics(hop, eliminate=False) is None
    assert semantics(eliminate=False) is best


def test_order_is_read() -> None:
    message = read(soap(MESSAGE_HEADER + ACK_REQUESTED + ORDER)).message
    assert message.order == SequenceNumber(7, SequenceStatus.CONTINUE)
    plain = ORDER.replace(' eb:status="Continue"', "")
    assert read(soap(MESSAGE_HEADER + ACK_REQUESTED + plain)).message.order == message.order


def test_white_space_and_comments_around_values_are_no_part_of_them() -> None:
    header = MESSAGE_HEADER.replace("conv-77", "\n  con<!-- x -->v<?pi y?>-77\t")
    assert read(soap(header)).message.header.conversation_id == "conv-77"


def test_cdata_is_text() -> None:
    header = MESSAGE_HEADER.replace("conv-77", "<![CDATA[a<b&c]]>")
    assert read(soap(header)).message.header.conversation_id == "a<b&c"


def test_an_acknowledgement_that_asks_to_be_acknowledged_is_not_obeyed() -> None:
    received = read(soap(signal("Acknowledgment") + ACK + ACK_REQUESTED))
    assert received.message.ack_requested == ()
    assert any("ignored" in note for note in received.notes)


def test_a_highest_severity_that_lies_is_noted() -> None:
    received = read(
        soap(
            signal("MessageError")
            + ERRORS.replace('highestSeverity="Error"', 'highestSeverity="Warning"')
        )
    )
    assert received.message.error_list is not None
    assert received.message.error_list.highest_severity is Severity.ERROR
    assert any("highestSeverity" in note for note in received.notes)


def test_an_acknowledgement_rides_on_business() -> None:
    message = read(soap(MESSAGE_HEADER + ACK)).message
    assert message.kind is MessageKind.NORMAL
    assert message.acknowledgments[0].actor is Actor.TO_PARTY_MSH
    assert message.acknowledgments[0].from_party is None


def test_the_writer_obeys_the_rules_it_judges_by() -> None:
    message = read(soap(MESSAGE_HEADER + ACK_REQUESTED + ORDER)).message
    wrong = replace(message, order=SequenceNumber(3, SequenceStatus.RESET))
    with pytest.raises(InvalidValue, match="Reset"):
        codec.write(wrong, Form())


def test_a_transient_error_travels_only_where_it_is_agreed() -> None:
    message = read(soap(signal("MessageError") + ERRORS)).message
    transient = replace(
        message,
        error_list=ErrorList((Error("TransientError", Severity.WARNING, min_retry_secs=120),)),
    )
    with pytest.raises(InvalidValue, match="transient_error"):
        codec.write(transient, Form())
    again = codec.read(codec.write(transient, samples.form(Dialect.EBMS2))).message
    assert again.error_list is not None
    assert again.error_list.errors[0].min_retry_secs == 120
