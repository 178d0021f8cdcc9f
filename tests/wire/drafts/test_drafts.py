"""The drafts of 2000 and 2001: their own words written, every spelling read
(docs/explanation/decisions.md#drafts-on-the-wire)."""

import pytest
from msgspec.structs import replace

from oncewire.errors import EbxmlError
from oncewire.message.envelope import (
    AcknowledgmentType,
    Actor,
    DeliverySemantics,
    Error,
    ErrorClass,
    ErrorList,
    MessageKind,
    MessageStatus,
    SequenceNumber,
    SequenceStatus,
    Severity,
    Split,
)
from oncewire.message.form import AckRequest, Dialect, ReliableMessagingMethod, SyncReplyMode
from oncewire.message.ids import PartyId, Service
from oncewire.message.instant import parse_instant
from oncewire.wire import codec
from oncewire.wire.codec import Parcel, ReadFault, Received
from oncewire.wire.drafts.blocks import ERROR_SERVICE
from tests.wire import samples

# Examples of both dialects, word for word where it matters.
REQUEST = """<ebXMLHeader xmlns="http://www.ebxml.org/namespaces/messageHeader" version="0.93"
    xmlns:xlink="http://www.w3.org/1999/xlink">
 <Manifest><Reference xlink:type="simple" xlink:href="mid:order-1@alpha.example"/></Manifest>
 <Header>
  <From><PartyId type="DUNS">006998397</PartyId></From>
  <To><PartyId type="DUNS">123456789</PartyId></To>
  <CPAId>alpha-beta-1</CPAId>
  <ConversationId>conv-77</ConversationId>
  <Service>urn:ex:orders</Service>
  <Action>PlaceOrder</Action>
  <MessageData>
   <MessageId>m-1001@alpha.example</MessageId>
   <Timestamp>2001-02-12T10:00:00Z</Timestamp>
   <TimeToLive>2001-02-13T10:00:00Z</TimeToLive>
  </MessageData>
  <QualityOfServiceInfo deliverySemantics="OnceAndOnlyOnce"/>
  <SynchronousMessagingInfo syncReplyMode="AcksOnly"/>
 </Header>
 <RoutingHeaderList>
  <RoutingHeader ackRequested="Unsigned" reliableMessagingMethod="ebXML">
   <SenderURI>http://alpha.example/msh</SenderURI>
   <ReceiverURI>http://hub.example/msh</ReceiverURI>
   <Timestamp>2001-02-12T10:00:00Z</Timestamp>
   <SequenceNumber Status="Reset">0</SequenceNumber>
  </RoutingHeader>
  <RoutingHeader ackRequested="Unsigned" reliableMessagingMethod="ebXML">
   <SenderURI>http://hub.example/msh</SenderURI>
   <ReceiverURI>http://beta.example/msh</ReceiverURI>
   <Timestamp>2001-02-12T10:00:03Z</Timestamp>
   <SequenceNumber Status="Continue">4711</SequenceNumber>
  </RoutingHeader>
 </RoutingHeaderList>
</ebXMLHeader>"""
ACK_078 = """<ebXMLHeader version="0.21" MessageType="Acknowledgement">
 <Header>
  <From><PartyId context="DUNS">123456789</PartyId></From>
  <To><PartyId context="DUNS">006998397</PartyId></To>
  <TPAInfo><TPAId>alpha-beta-1</TPAId><ConversationID>conv-77</ConversationID></TPAInfo>
  <MessageData><MessageId>a-1@beta</MessageId><TimeStamp>20000922T100001Z</TimeStamp>
   <RefToMessageId>m-1001@alpha</RefToMessageId></MessageData>
  <ReliableMessagingInfo DeliverySemantics="Unspecified"/>
 </Header>
 <RoutingHeader><SenderID context="DUNS">123456789</SenderID>
  <ReceiverID context="DUNS">006998397</ReceiverID></RoutingHeader>
</ebXMLHeader>"""


def read(text: str) -> Received:
    return codec.read(Parcel("application/vnd.eb+xml", text.encode()))


def refused(text: str) -> EbxmlError:
    with pytest.raises(ReadFault) as caught:
        read(text)
    assert isinstance(caught.value.error, EbxmlError)
    return caught.value.error


@pytest.mark.requirement("HDR-5", "HDR-6", "HDR-8", "HDR-9")
def test_the_printed_request_is_read() -> None:
    received = read(REQUEST)
    message = received.message
    assert message.dialect is Dialect.MS_09X
    assert received.schema_problems == ()
    header = message.header
    assert header.semantics is DeliverySemantics.ONCE_AND_ONLY_ONCE
    assert header.time_to_live == parse_instant("2001-02-13T10:00:00Z")[0]
    assert header.sync_reply is SyncReplyMode.MSH_SIGNALS_ONLY
    last = message.last_hop
    assert last is not None
    assert (last.sender_uri, last.receiver_uri) == (
        "http://hub.example/msh",
        "http://beta.example/msh",
    )
    assert last.timestamp == parse_instant("2001-02-12T10:00:03Z")[0]
    assert last.sequence == SequenceNumber(4711, SequenceStatus.CONTINUE)
    assert message.routing[0].sequence == SequenceNumber(0, SequenceStatus.RESET)


@pytest.mark.requirement("HDR-1", "HDR-2", "HDR-3", "ACK-5", "ACK-6", "ACK-7", "ACK-8")
def test_the_printed_acknowledgement_of_v0_078_is_read() -> None:
    message = read(ACK_078).message
    assert message.dialect is Dialect.RM_078
    assert message.kind is MessageKind.ACKNOWLEDGMENT
    assert message.header.service is None
    assert message.header.action is None
    assert message.header.semantics is DeliverySemantics.BEST_EFFORT
    assert message.header.ref_to_message_id == "m-1001@alpha"
    assert (message.header.cpa_id, message.header.conversation_id) == ("alpha-beta-1", "conv-77")
    assert message.last_hop is not None
    assert message.last_hop.sender_id == PartyId("123456789", "DUNS")
    assert message.last_hop.sequence is None
    assert message.header.timestamp == parse_instant("2000-09-22T10:00:01Z")[0]


@pytest.mark.requirement("HDR-1", "HDR-3", "HDR-4", "RM-4")
def test_v0_078_writes_its_own_words() -> None:
    message = samples.order_message(Dialect.RM_078)
    hop = replace(samples.FIRST_HOP, msh_id="msh-2", sequence=SequenceNumber(5, None))
    text = codec.write_envelope(
        replace(message, routing=(hop,)), samples.form(Dialect.RM_078)
    ).decode()
    assert 'MessageType="Normal"' in text
    assert '<ReliableMessagingInfo DeliverySemantics="AtMostOnce"/>' in text
    assert "<TPAInfo><TPAId>alpha-beta-1</TPAId><ConversationID>conv-77</ConversationID>" in text
    assert "<ServiceInterface>urn:ex:orders</ServiceInterface><Action>PlaceOrder</Action>" in text
    assert '<PartyId context="urn:ex:org">alpha</PartyId>' in text
    assert (
        '<RoutingHeader><SenderID context="DUNS">006998397</SenderID>'
        '<ReceiverID context="DUNS">123456789</ReceiverID>'
        "<MessageServiceId>msh-2</MessageServiceId><SequenceNumber>5</SequenceNumber>"
        "</RoutingHeader>"
    ) in text
    assert "<TimeStamp>20260105T100000Z</TimeStamp>" in text
    assert "xmlns=" not in text


@pytest.mark.requirement("HDR-5", "HDR-6", "HDR-8", "ACK-13", "SEQ-13")
def test_ms09x_writes_its_own_words_in_order() -> None:
    message = samples.order_message(Dialect.MS_09X)
    message = replace(
        message,
        header=replace(
            message.header,
            sync_reply=SyncReplyMode.SIGNALS_AND_RESPONSE,
            delivery_receipt_requested=AckRequest.SIGNED,
            foreign=(b'<x:Y xmlns:x="urn:x"/>',),
        ),
    )
    text = codec.write_envelope(message, samples.form(Dialect.MS_09X)).decode()
    places = [
        text.index(f"<{name}")
        for name in (
            "Manifest", "Header>", "From>", "To>", "CPAId>", "ConversationId>", "Service>",
            "Action>", "MessageData>", "QualityOfServiceInfo", "SynchronousMessagingInfo", "x:Y",
            "RoutingHeaderList>",
        )
    ]  # fmt: skip
    assert places == sorted(places)
    assert 'deliverySemantics="OnceAndOnlyOnce" deliveryReceiptRequested="Signed"' in text
    assert '<SynchronousMessagingInfo syncReplyMode="AcksAndResponse"/>' in text
    assert '<RoutingHeader ackRequested="Unsigned">' in text
    assert '<SequenceNumber Status="Continue">1</SequenceNumber>' in text


# Spellings (A.3)


def _one(text: str, old: str, new: str) -> Received:
    assert old in text
    return read(text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (' xmlns="http://www.ebxml.org/namespaces/messageHeader"', ""),
        ("MessageId>", "MessageID>"),
        ("ConversationId>", "ConversationID>"),
        ("Timestamp>", "TimeStamp>"),
        ("QualityOfServiceInfo", "QualityOfService"),
        ("QualityOfServiceInfo", "ReliableMessagingInfo"),
        ("OnceAndOnlyOnce", "AtMostOnce"),
        ("OnceAndOnlyOnce", "ExactlyOnce"),
        ("ackRequested=", "IntermediateAckRequested="),
        ("ackRequested=", "AckRequested="),
        (
            '<QualityOfServiceInfo deliverySemantics="OnceAndOnlyOnce"/>',
            "<QualityOfService><deliverySemantics>OnceAndOnlyOnce</deliverySemantics></QualityOfService>",
        ),
        (
            '<RoutingHeader ackRequested="Unsigned" reliableMessagingMethod="ebXML">',
            "<RoutingHeader><ackRequested>Unsigned</ackRequested>",
        ),
        ('type="DUNS"', 'context="DUNS"'),
    ],
)
def test_every_spelling_says_the_same(old: str, new: str) -> None:
    assert _one(REQUEST, old, new).message == read(REQUEST).message


@pytest.mark.requirement("HDR-9")
def test_a_time_to_live_inside_the_reliability_info_is_read() -> None:
    moved = REQUEST.replace("<TimeToLive>2001-02-13T10:00:00Z</TimeToLive>", "").replace(
        '<QualityOfServiceInfo deliverySemantics="OnceAndOnlyOnce"/>',
        '<ReliableMessagingInfo deliverySemantics="OnceAndOnlyOnce">'
        "<TimeToLive>2001-02-13T10:00:00Z</TimeToLive></ReliableMessagingInfo>",
    )
    assert read(moved).message.header.time_to_live is not None


@pytest.mark.parametrize(
    ("words", "semantics"),
    [("BestEffort", DeliverySemantics.BEST_EFFORT), ("Unspecified", DeliverySemantics.BEST_EFFORT)],
)
@pytest.mark.requirement("HDR-8")
def test_unreliable_words(words: str, semantics: DeliverySemantics) -> None:
    assert _one(REQUEST, "OnceAndOnlyOnce", words).message.header.semantics is semantics


@pytest.mark.requirement("ACK-13")
@pytest.mark.parametrize(
    ("word", "asked"),
    [("Signed", AckRequest.SIGNED), ("Unsigned", AckRequest.UNSIGNED), ("None", AckRequest.NONE)],
)
def test_ack_requested_has_three_values(word: str, asked: AckRequest) -> None:
    received = _one(REQUEST, 'ackRequested="Unsigned"', f'ackRequested="{word}"')
    assert received.message.asks_ack_of(Actor.NEXT_MSH) is asked


@pytest.mark.requirement("ACK-13")
def test_ack_requested_is_none_when_absent_and_nothing_else() -> None:
    received = _one(REQUEST, ' ackRequested="Unsigned"', "")
    assert received.message.asks_ack_of(Actor.NEXT_MSH) is AckRequest.NONE
    error = refused(REQUEST.replace('ackRequested="Unsigned"', 'ackRequested="Maybe"'))
    assert (error.code, error.location) == (
        "ValueNotRecognized",
        "//RoutingHeader/@ackRequested",
    )


@pytest.mark.requirement("RM-5")
def test_the_method_is_ebxml_when_absent() -> None:
    hop = _one(REQUEST, ' reliableMessagingMethod="ebXML"', "").message.last_hop
    assert hop is not None
    assert hop.method is ReliableMessagingMethod.EBXML
    transport = _one(REQUEST, '"ebXML"', '"Transport"').message.last_hop
    assert transport is not None
    assert transport.method is ReliableMessagingMethod.TRANSPORT


# SynchronousMessagingInfo


@pytest.mark.requirement("SYNC-15")
@pytest.mark.parametrize(
    ("word", "mode", "as_agreed"),
    [
        ("AcksOnly", SyncReplyMode.MSH_SIGNALS_ONLY, False),
        ("ResponseOnly", SyncReplyMode.RESPONSE_ONLY, False),
        ("AcksAndResponse", SyncReplyMode.SIGNALS_AND_RESPONSE, False),
        ("True", None, True),
        ("False", SyncReplyMode.NONE, False),
    ],
)
def test_sync_reply_modes(word: str, mode: SyncReplyMode | None, as_agreed: bool) -> None:
    header = _one(REQUEST, "AcksOnly", word).message.header
    assert (header.sync_reply, header.sync_reply_as_agreed) == (mode, as_agreed)


@pytest.mark.requirement("SYNC-15")
@pytest.mark.parametrize(
    ("old", "new", "location"),
    [
        ("AcksOnly", "Whatever", "//Header/SynchronousMessagingInfo/@syncReplyMode"),
        (' syncReplyMode="AcksOnly"', "", "//Header/SynchronousMessagingInfo/@syncReplyMode"),
        (
            '<SynchronousMessagingInfo syncReplyMode="AcksOnly"/>',
            '<SynchronousMessagingInfo syncReplyMode="AcksOnly"/>' * 2,
            "//Header/SynchronousMessagingInfo",
        ),
    ],
)
def test_sync_reply_is_one_element_with_one_of_three_values(
    old: str, new: str, location: str
) -> None:
    assert refused(REQUEST.replace(old, new)).location == location


@pytest.mark.requirement("SYNC-15", "HDR-6")
def test_what_is_out_of_place_is_reported() -> None:
    full = _one(
        REQUEST,
        '<SynchronousMessagingInfo syncReplyMode="AcksOnly"/>',
        '<SynchronousMessagingInfo syncReplyMode="AcksOnly">x</SynchronousMessagingInfo>',
    )
    assert any("not empty" in problem for problem in full.schema_problems)


def test_elements_out_of_order_are_read_and_reported() -> None:
    moved = REQUEST.replace("<CPAId>alpha-beta-1</CPAId>", "").replace(
        "</MessageData>", "</MessageData><CPAId>alpha-beta-1</CPAId>"
    )
    received = read(moved)
    assert received.message.header.cpa_id == "alpha-beta-1"
    assert any("too late" in problem for problem in received.schema_problems)


@pytest.mark.requirement("HDR-7")
def test_foreign_elements_are_accepted_and_kept() -> None:
    foreign = '<x:Odd xmlns:x="urn:x" a="1"><x:In/></x:Odd>'
    received = _one(REQUEST, " </Header>", f"{foreign} </Header>")
    assert received.message.header.foreign == (foreign.encode(),)
    assert received.schema_problems == ()


# Acknowledgments


ACK_09 = """<ebXMLHeader xmlns="http://www.ebxml.org/namespaces/messageHeader" version="0.93">
 <Header>
  <From><PartyId>http://beta.example/msh</PartyId></From>
  <To><PartyId>http://hub.example/msh</PartyId></To>
  <CPAId>alpha-beta-1</CPAId><ConversationId>conv-77</ConversationId>
  <Service>http://www.ebxml.org/namespaces/messageService/MessageAcknowledgment</Service>
  <Action>Acknowledgment</Action>
  <MessageData><MessageId>a-1@beta.example</MessageId><Timestamp>2001-02-12T10:00:04Z</Timestamp>
   <RefToMessageId>m-1001@alpha.example</RefToMessageId></MessageData>
  <QualityOfServiceInfo deliverySemantics="BestEffort"/>
 </Header>
 <Acknowledgment signed="false"><Timestamp>2001-02-12T10:00:04Z</Timestamp></Acknowledgment>
</ebXMLHeader>"""
ELEMENT = (
    '<Acknowledgment signed="false"><Timestamp>2001-02-12T10:00:04Z</Timestamp></Acknowledgment>'
)


@pytest.mark.requirement("ACK-3", "ACK-8", "ACK-10", "ACK-11", "ACK-17", "ACK-18")
def test_the_printed_acknowledgement_is_read() -> None:
    message = read(ACK_09).message
    assert message.kind is MessageKind.ACKNOWLEDGMENT
    (answer,) = message.acknowledgments
    assert answer.ref_to_message_id == message.header.ref_to_message_id == "m-1001@alpha.example"
    assert answer.timestamp == parse_instant("2001-02-12T10:00:04Z")[0]
    assert answer.from_party is None
    assert not answer.signed
    assert message.header.semantics is DeliverySemantics.BEST_EFFORT


@pytest.mark.requirement("ACK-15")
def test_a_message_that_only_refers_is_an_acknowledgement() -> None:
    message = _one(ACK_09, ELEMENT, "").message
    assert message.kind is MessageKind.ACKNOWLEDGMENT
    assert message.acknowledgments == ()
    assert message.header.ref_to_message_id == "m-1001@alpha.example"


@pytest.mark.requirement("ACK-17")
def test_an_acknowledgement_element_needs_its_time() -> None:
    error = refused(ACK_09.replace(ELEMENT, '<Acknowledgment signed="false"/>'))
    assert error.location == "//Acknowledgment"


@pytest.mark.requirement("ACK-17", "ACK-18")
def test_an_acknowledgement_may_say_who_gave_it_and_that_it_is_signed() -> None:
    element = (
        '<Acknowledgment id="x" signed="true"><Timestamp>2001-02-12T10:00:04Z</Timestamp>'
        '<From><PartyId type="DUNS">9</PartyId></From></Acknowledgment>'
    )
    (answer,) = _one(ACK_09, ELEMENT, element).message.acknowledgments
    assert answer.signed
    assert answer.from_party is not None
    assert answer.from_party.ids == (PartyId("9", "DUNS"),)


@pytest.mark.requirement("ACK-19")
@pytest.mark.parametrize(
    ("word", "kind", "actor"),
    [
        ("DeliveryReceipt", AcknowledgmentType.DELIVERY_RECEIPT, Actor.TO_PARTY_MSH),
        ("deliveryReceipt", AcknowledgmentType.DELIVERY_RECEIPT, Actor.TO_PARTY_MSH),
        ("IntermediateAck", AcknowledgmentType.INTERMEDIATE_ACK, Actor.NEXT_MSH),
        ("IntermediateAcknowledgement", AcknowledgmentType.INTERMEDIATE_ACK, Actor.NEXT_MSH),
        ("IntemediateAcknowledgment", AcknowledgmentType.INTERMEDIATE_ACK, Actor.NEXT_MSH),
    ],
)
def test_types_of_acknowledgement(word: str, kind: AcknowledgmentType, actor: Actor) -> None:
    text = ACK_09.replace('signed="false"', f'signed="false" type="{word}"')
    (answer,) = read(text).message.acknowledgments
    assert (answer.type, answer.actor) == (kind, actor)


@pytest.mark.requirement("ACK-19")
def test_a_missing_type_is_a_delivery_receipt_and_an_odd_one_is_refused() -> None:
    (answer,) = read(ACK_09).message.acknowledgments
    assert (answer.type, answer.actor) == (None, Actor.TO_PARTY_MSH)
    error = refused(ACK_09.replace('signed="false"', 'type="Odd"'))
    assert error.location == "//Acknowledgment/@type"


def test_the_other_spelling_of_the_element_and_the_service_of_ms_1_0() -> None:
    text = ACK_09.replace("<Acknowledgment ", "<Acknowledgement ").replace(
        "</Acknowledgment>", "</Acknowledgement>"
    )
    assert len(read(text).message.acknowledgments) == 1
    later = ACK_09.replace(
        "http://www.ebxml.org/namespaces/messageService/MessageAcknowledgment",
        "uri:www.ebxml.org/messageService/",
    )
    assert read(later).message.kind is MessageKind.ACKNOWLEDGMENT


# Errors and status


@pytest.mark.requirement("ERR-4")
@pytest.mark.parametrize("dialect", [Dialect.MS_09X, Dialect.RM_078])
def test_a_transient_error_says_how_long_to_pause(dialect: Dialect) -> None:
    message = samples.order_message(dialect, ())
    error = Error("TransientError", Severity.WARNING, description="busy", min_retry_secs=120)
    message = replace(
        message,
        kind=MessageKind.ERROR,
        header=replace(message.header, ref_to_message_id="m-0"),
        error_list=ErrorList((error,)),
    )
    if dialect is Dialect.MS_09X:
        message = replace(
            message,
            header=replace(message.header, service=Service(ERROR_SERVICE), action="MessageError"),
        )
    written = codec.write_envelope(message, samples.form(dialect))
    assert b"<MinRetrySecs>120</MinRetrySecs>" in written
    read_back = codec.read_header(written).message
    assert read_back.kind is MessageKind.ERROR
    assert read_back.error_list == ErrorList((error,))
    assert read_back.error_list.errors[0].error_class is ErrorClass.TRANSIENT


@pytest.mark.requirement("ERR-4")
def test_the_printed_transient_error_is_read() -> None:
    text = ACK_09.replace(
        "namespaces/messageService/MessageAcknowledgment", "namespaces/messageService/MessageError"
    ).replace(
        ELEMENT,
        '<ErrorList highestSeverity="Warning"><Error errorCode="TransientError" '
        'severity="Warning" errorMessage="onward hop unavailable"/>'
        "<MinRetrySecs>120</MinRetrySecs></ErrorList>",
    )
    message = read(text).message
    assert message.kind is MessageKind.ERROR
    assert message.error_list is not None
    (error,) = message.error_list.errors
    assert (error.code, error.severity, error.min_retry_secs, error.description) == (
        "TransientError",
        Severity.WARNING,
        120,
        "onward hop unavailable",
    )


def test_status_data_asks_and_answers() -> None:
    asked = ACK_09.replace("MessageAcknowledgment", "MessageStatus").replace(
        "<Action>Acknowledgment", "<Action>StatusRequest"
    )
    request = read(
        asked.replace(ELEMENT, "<StatusData><RefToMessageId>m-0</RefToMessageId></StatusData>")
    ).message
    assert request.kind is MessageKind.STATUS_REQUEST
    assert request.status_request is not None
    response = read(
        asked.replace("StatusRequest", "StatusResponse").replace(
            ELEMENT,
            '<StatusData messageStatus="Received"><RefToMessageId>m-0</RefToMessageId>'
            "<Timestamp>2001-02-12T10:00:04Z</Timestamp></StatusData>",
        )
    ).message
    assert response.status_response is not None
    assert response.status_response.status is MessageStatus.RECEIVED
    odd = asked.replace(
        ELEMENT,
        '<StatusData messageStatus="Odd"><RefToMessageId>m-0</RefToMessageId></StatusData>',
    )
    assert refused(odd).location == "//StatusData/@messageStatus"


# Split


@pytest.mark.requirement("BIG-5", "BIG-4")
@pytest.mark.parametrize("dialect", list(Dialect))
def test_a_part_of_a_document_says_which(dialect: Dialect) -> None:
    message = samples.order_message(dialect)
    message = replace(message, header=replace(message.header, split=Split("s-55", 3, 5)))
    written = codec.write_envelope(message, samples.form(dialect))
    assert b'SplitNumber Total="5">3<' in written
    if dialect is not Dialect.EBMS2:
        data = written[written.index(b"<MessageData>") : written.index(b"</MessageData>")]
        assert b"<SplitId>s-55</SplitId>" in data
        assert b'<SplitNumber Total="5">3</SplitNumber>' in data
    assert codec.read_header(written).message.header.split == Split("s-55", 3, 5)


@pytest.mark.requirement("BIG-5")
@pytest.mark.parametrize(
    "number", ['Total="5">6', 'Total="5">0', 'Total="x">1', ">1", 'Total="0">0']
)
def test_a_split_number_outside_its_total_is_refused(number: str) -> None:
    text = REQUEST.replace(
        "</MessageData>", f"<SplitId>s</SplitId><SplitNumber {number}</SplitNumber></MessageData>"
    )
    assert refused(text).location == "//Header/MessageData/SplitNumber"


# Faults


@pytest.mark.parametrize(
    ("old", "new", "code", "location"),
    [
        ('type="DUNS">006998397', ">006998397", "Inconsistent", "//Header/From/PartyId"),
        ("<CPAId>alpha-beta-1</CPAId>", "", "Inconsistent", "//Header/CPAId"),
        ("<Action>PlaceOrder</Action>", "", "Inconsistent", "//Header/Action"),
        ("m-1001@alpha.example<", " <", "Inconsistent", "//Header/MessageData/MessageId"),
        ("10:00:00Z</Timestamp>\n   <TimeToLive", "25:00:00Z</Timestamp>\n   <TimeToLive",
         "Inconsistent", "//Header/MessageData/Timestamp"),
        ("OnceAndOnlyOnce", "Sometimes", "ValueNotRecognized",
         "//Header/QualityOfServiceInfo/@deliverySemantics"),
        (">4711<", ">many<", "Inconsistent", "//RoutingHeader"),
        ('"Continue"', '"Odd"', "ValueNotRecognized", "//RoutingHeader"),
        (">4711<", ">4294967296<", "Inconsistent", "//RoutingHeader"),
        ("<SenderURI>http://hub.example/msh</SenderURI>", "", "Inconsistent", "//RoutingHeader"),
        ('reliableMessagingMethod="ebXML"', 'reliableMessagingMethod="Odd"', "ValueNotRecognized",
         "//RoutingHeader/@reliableMessagingMethod"),
        ('xlink:href="mid:order-1@alpha.example"', 'xlink:href="cid:gone"', "MimeProblem",
         "cid:gone"),
        ("<Header>", "<Header/><Header>", "Inconsistent", "//Header"),
    ],
)  # fmt: skip
def test_faults_of_a_draft_header(old: str, new: str, code: str, location: str) -> None:
    assert old in REQUEST
    error = refused(REQUEST.replace(old, new))
    assert (error.code, error.location) == (code, location)


def test_an_odd_message_type_is_refused() -> None:
    error = refused(ACK_078.replace('"Acknowledgement"', '"Gossip"'))
    assert (error.code, error.location) == ("ValueNotRecognized", "/ebXMLHeader/@MessageType")


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        (REQUEST, Dialect.MS_09X),
        (ACK_078, Dialect.RM_078),
        (ACK_078.replace(' MessageType="Acknowledgement"', ""), Dialect.RM_078),
        (REQUEST.replace("CPAId", "TPAId"), Dialect.RM_078),
    ],
)
def test_the_dialect_is_told_by_content(text: str, dialect: Dialect) -> None:
    with_service = text.replace(
        "</TPAInfo>", "<ServiceInterface>urn:s</ServiceInterface><Action>a</Action></TPAInfo>"
    )
    assert read(with_service).message.dialect is dialect


@pytest.mark.parametrize("text", ["<note/>", "<a><ebXMLHeader/></a>", "<ebXMLHeader/>"])
def test_what_is_no_header_is_refused(text: str) -> None:
    assert refused(text).code == "OtherXml"
