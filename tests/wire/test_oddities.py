"""Odd messages and rare paths: each is either taken with a note or refused with a reason."""

import pytest
from msgspec.structs import replace

from oncewire.errors import EbxmlError, InvalidValue, OtherXml, SoapFault
from oncewire.message.envelope import (
    AckRequested,
    Actor,
    Compression,
    DeliverySemantics,
    Error,
    ErrorList,
    MessageKind,
    Payload,
    Reference,
    RoutingHeader,
    SequenceNumber,
    SequenceStatus,
    Severity,
)
from oncewire.message.form import Dialect, Extension, Form
from oncewire.message.ids import Party, PartyId
from oncewire.wire import answers, codec, inspection, splice
from oncewire.wire.codec import Parcel, ReadFault
from oncewire.wire.limits import DEFAULT_LIMITS
from oncewire.wire.xml import exact_bytes, parse, spans
from tests.wire import samples
from tests.wire.drafts.test_drafts import REQUEST
from tests.wire.drafts.test_drafts import refused as draft_refused
from tests.wire.roots import envelope_of
from tests.wire.samples import ACK_REQUESTED, MESSAGE_HEADER, soap


def read(envelope: bytes) -> codec.Received:
    return codec.read(Parcel("text/xml", envelope))


def refused(envelope: bytes) -> EbxmlError:
    with pytest.raises(ReadFault) as caught:
        read(envelope)
    assert isinstance(caught.value.error, EbxmlError)
    return caught.value.error


ORDER = '<eb:MessageOrder SOAP:mustUnderstand="1" eb:version="2.0">{}</eb:MessageOrder>'
FROM = '<eb:From><eb:PartyId eb:type="urn:ex:org">alpha</eb:PartyId></eb:From>'


_LONG = "x" * 300
_MH = "//Header/MessageHeader"
_HUGE = ORDER.format("<eb:SequenceNumber>4294967296</eb:SequenceNumber>")
_RARE = {
    ("</eb:From>", f"</eb:From>{FROM}"): f"{_MH}/From",
    (">alpha<", "><eb:x/>alpha<"): f"{_MH}/From/PartyId",
    (">alpha<", f">{_LONG}<"): f"{_MH}/From/PartyId",
    ("</eb:From>", f"<eb:Role>{_LONG}</eb:Role></eb:From>"): f"{_MH}/From/Role",
    ("<eb:Service>", f'<eb:Service eb:type="{_LONG}">'): f"{_MH}/Service",
    ("</eb:MessageHeader>", f"</eb:MessageHeader>{ACK_REQUESTED}{ORDER.format('')}"): (
        "//Header/MessageOrder"
    ),
    ("</eb:MessageHeader>", f"</eb:MessageHeader>{ACK_REQUESTED}{_HUGE}"): "//Header/MessageOrder",
    ("<eb:DuplicateElimination/>", '<r:Split xmlns:r="urn:oncewire:ext:1"/>'): f"{_MH}/Split",
    ("</eb:Timestamp>", f"</eb:Timestamp><eb:RefToMessageId>{_LONG}</eb:RefToMessageId>"): (
        f"{_MH}/MessageData/RefToMessageId"
    ),
}


@pytest.mark.parametrize(("change", "location"), list(_RARE.items()))
def test_faults_that_are_rare(change: tuple[str, str], location: str) -> None:
    old, new = change
    assert old in MESSAGE_HEADER
    assert refused(soap(MESSAGE_HEADER.replace(old, new, 1))).location == location


def test_what_is_missing_and_harmless_is_noted() -> None:
    sync = '<eb:SyncReply SOAP:mustUnderstand="1" eb:version="2.0"/>'
    silent = ACK_REQUESTED.replace('eb:signed="false" ', "")
    received = read(soap(MESSAGE_HEADER + sync + silent))
    assert received.message.header.sync_reply_as_agreed
    assert received.message.ack_requested == (AckRequested(Actor.TO_PARTY_MSH),)
    assert len(received.notes) == 2
    assert len(received.schema_problems) == 2
    bodiless = soap(MESSAGE_HEADER).replace(b"<SOAP:Body></SOAP:Body>", b"")
    assert "the SOAP Envelope has no Body" in read(bodiless).notes


def test_a_fault_beside_a_header_is_refused() -> None:
    fault = (
        "<SOAP:Fault><faultcode>SOAP:Server</faultcode><faultstring>x</faultstring></SOAP:Fault>"
    )
    with pytest.raises(ReadFault) as caught:
        read(soap(MESSAGE_HEADER, fault))
    assert isinstance(caught.value.error, SoapFault)
    assert caught.value.fault is not None


def test_a_fault_that_gives_two_codes_is_taken_as_one_that_may_be_tried_again() -> None:
    """Neither the first nor the last may end a message for good."""
    fault = (
        "<SOAP:Fault><faultcode>SOAP:Server</faultcode><faultcode>SOAP:Client</faultcode>"
        "<faultstring>x</faultstring></SOAP:Fault>"
    )
    codes = []
    for said in (fault, fault.replace("Server", "Client")):
        with pytest.raises(ReadFault) as caught:
            read(soap(MESSAGE_HEADER, said))
        assert caught.value.fault is not None
        codes.append(caught.value.fault.code)
    assert codes == ["Server", "Client"]


def test_an_unreadable_hop_is_left_out_of_the_trail() -> None:
    trail = (
        '<r:RoutingHeaderList xmlns:r="urn:oncewire:ext:1"><r:Other/><r:RoutingHeader/>'
        "<r:RoutingHeader><r:SenderURI>http://a</r:SenderURI>"
        "<r:ReceiverURI>http://b</r:ReceiverURI></r:RoutingHeader></r:RoutingHeaderList>"
    )
    received = read(soap(MESSAGE_HEADER + trail))
    assert [hop.sender_uri for hop in received.message.routing] == ["http://a"]
    assert any("left out" in note for note in received.notes)


def test_a_number_without_a_trail_belongs_to_the_parties() -> None:
    number = '<r:HopSequence xmlns:r="urn:oncewire:ext:1" status="Reset">3</r:HopSequence>'
    (hop,) = read(soap(MESSAGE_HEADER + number)).message.routing
    assert hop.sender_id == PartyId("alpha", "urn:ex:org")
    assert hop.sequence == SequenceNumber(3, SequenceStatus.RESET)


def test_a_damaged_digest_of_an_acknowledgement_is_refused() -> None:
    ack = (
        '<eb:Acknowledgment SOAP:mustUnderstand="1" eb:version="2.0">'
        "<eb:Timestamp>2026-01-05T10:00:01Z</eb:Timestamp><eb:RefToMessageId>m</eb:RefToMessageId>"
        '<ds:Reference xmlns:ds="http://www.w3.org/2000/09/xmldsig#" URI="">'
        "<ds:DigestValue>???</ds:DigestValue></ds:Reference></eb:Acknowledgment>"
    )
    assert refused(soap(MESSAGE_HEADER + ack)).location.endswith("DigestValue")


@pytest.mark.requirement("ERR-10", "SYNC-7")
@pytest.mark.parametrize("dialect", [Dialect.EBMS2, Dialect.MS_09X])
def test_a_response_an_acknowledgement_and_a_warning_share_a_message(dialect: Dialect) -> None:
    request = codec.read(samples.written(dialect)).message
    response = samples.order_message(dialect)
    element = answers.acknowledgment_of(request, samples.envelope_for(dialect))
    together = replace(
        response,
        header=replace(response.header, ref_to_message_id=request.header.message_id),
        acknowledgments=(element,),
        error_list=ErrorList((Error("NotSupported", Severity.WARNING, "//x", "asynchronous"),)),
    )
    again = codec.read(codec.write(together, samples.form(dialect))).message
    assert again.kind is MessageKind.NORMAL
    assert again.payloads == response.payloads
    assert len(again.acknowledgments) == 1
    assert again.error_list == together.error_list
    assert not again.failed


# What writers refuse


_NAMED = RoutingHeader(sender_id=PartyId("u:a"), receiver_id=PartyId("u:b"))
_TWICE = Party((PartyId("a", "t"), PartyId("b", "t")))


@pytest.mark.parametrize(
    ("dialect", "change", "words"),
    [
        (Dialect.MS_09X, {"order": SequenceNumber(1)}, "MessageOrder"),
        (Dialect.RM_078, {"order": SequenceNumber(1)}, "MessageOrder"),
        (Dialect.RM_078, {"routing": ()}, "RoutingHeader"),
        (Dialect.RM_078, {"kind": MessageKind.ACKNOWLEDGMENT}, "payload"),
        (Dialect.MS_09X, {"routing": (RoutingHeader("u:a", "u:b"),)}, "Timestamp"),
        (Dialect.MS_09X, {"routing": (_NAMED,)}, "URI"),
        (Dialect.EBMS2, {"routing": (_NAMED,)}, "URI"),
        (Dialect.EBMS2, {"ack_requested": (AckRequested(), AckRequested())}, "actor"),
        (Dialect.EBMS2, {"header": samples.header(to_party=_TWICE)}, "one type"),
    ],
)
def test_a_writer_refuses_what_it_cannot_say(
    dialect: Dialect, change: dict[str, object], words: str
) -> None:
    message = replace(samples.order_message(dialect), **change)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match=words):
        codec.write(message, samples.form(dialect))


def test_a_compressed_payload_travels_only_where_it_is_agreed() -> None:
    payload = Payload.of("z@x", "application/xml", b"...")
    message = replace(
        samples.order_message(Dialect.EBMS2),
        payloads=(payload,),
        manifest=(Reference("cid:z@x", compression=Compression("gzip", 100)),),
    )
    with pytest.raises(InvalidValue, match="compression"):
        codec.write(message, Form())
    agreed = Form(extensions=frozenset({Extension.COMPRESSION}))
    assert codec.read(codec.write(message, agreed)).message.manifest == message.manifest


def test_an_id_that_is_no_xml_name_becomes_one() -> None:
    message = replace(
        samples.order_message(Dialect.EBMS2),
        manifest=(Reference("cid:order-1@alpha.example", id="8F1D"), Reference("mid:x", id="a b")),
    )
    manifest = codec.read(codec.write(message, Form())).message.manifest
    assert [one.id for one in manifest] == ["_8F1D", None]


def test_a_description_in_no_language_is_english() -> None:
    message = samples.order_message(Dialect.EBMS2)
    message = replace(message, header=replace(message.header, descriptions=(("?!", "x"),)))
    assert codec.read(codec.write(message, Form())).message.header.descriptions == (("en", "x"),)


def test_a_header_line_with_a_line_end_is_refused() -> None:
    payload = replace(samples.ORDER, media_type="text/plain\r\nX-Evil: yes")
    message = replace(samples.order_message(Dialect.EBMS2), payloads=(payload,))
    with pytest.raises(InvalidValue, match="line end"):
        codec.write(message, Form())


# Exact bytes


def test_a_foreign_element_takes_the_names_it_leans_on_along() -> None:
    header = MESSAGE_HEADER.replace(
        "</eb:MessageHeader>", '<x:Y a="eb:q">z</x:Y><Bare xmlns="urn:b"/></eb:MessageHeader>'
    )
    envelope = soap(header, root=' xmlns:x="urn:x" xmlns:unused="urn:u"')
    first, second = read(envelope).message.header.foreign
    assert first.startswith(b'<x:Y xmlns:eb="http://www.oasis-open.org/')
    assert b'xmlns:x="urn:x"' in first
    assert b"unused" not in first
    assert second == b'<Bare xmlns="urn:b"/>'


def test_a_default_namespace_is_taken_along_only_where_it_is_used() -> None:
    inner = '<x:Y xmlns:x="urn:x"><Plain/></x:Y>'
    text = REQUEST.replace(" </Header>", f"{inner}</Header>")
    (foreign,) = codec.read_header(text.encode()).message.header.foreign
    assert foreign.startswith(b'<x:Y xmlns="http://www.ebxml.org/namespaces/messageHeader"')
    plain = REQUEST.replace(" </Header>", '<x:Y xmlns:x="urn:x"/></Header>')
    assert codec.read_header(plain.encode()).message.header.foreign == (b'<x:Y xmlns:x="urn:x"/>',)


def test_positions_need_well_formed_bytes() -> None:
    with pytest.raises(OtherXml):
        spans(b"<a><b></a>", None, [0])
    assert exact_bytes(b"<a/>", None, parse(b"<a/>", None, DEFAULT_LIMITS), []) == []


def test_wide_encodings_have_positions_too() -> None:
    text = '<?xml version="1.0" encoding="utf-16"?><a x="/>"><b y="1"/>t<c>></c></a>'
    for encoding in ("utf-16", "utf-16-be"):
        data = text.encode(encoding)
        data = data if encoding == "utf-16" else b"\xfe\xff" + data
        found = spans(data, None, [0, 1, 2])
        cut = [data[start:end].decode("utf-16-le" if encoding == "utf-16" else "utf-16-be")
               for start, end in (found[number] for number in range(3))]  # fmt: skip
        assert cut == ['<a x="/>"><b y="1"/>t<c>></c></a>', '<b y="1"/>', "<c>></c>"]


# Bodies and captures


def test_a_bare_header_is_its_own_root_part() -> None:
    parcel = Parcel("text/xml", b"<a/>")
    assert envelope_of(parcel) == b"<a/>"
    assert splice.with_envelope(parcel, b"<b/>").body == b"<b/>"


@pytest.mark.parametrize("body", [b"--B--", b"", b"--B\r\nX: y"])
def test_a_body_without_root_cannot_be_spliced(body: bytes) -> None:
    with pytest.raises(EbxmlError):
        envelope_of(Parcel("multipart/related; boundary=B", body))


def test_a_mail_without_body_is_refused_when_read() -> None:
    opened = inspection.open_capture(b"Subject: x\r\nContent-Type: text/xml")
    assert opened.parcel.body == b""
    assert inspection.describe_bytes(b"Subject: x\r\nContent-Type: text/xml")["fault"]["code"] == (
        "OtherXml"
    )


def test_best_effort_is_answered_with_nothing() -> None:
    message = samples.order_message(Dialect.MS_09X)
    message = replace(
        message, header=replace(message.header, semantics=DeliverySemantics.BEST_EFFORT)
    )
    answer = inspection.our_answer(message, Form(Dialect.MS_09X), samples.NOW)
    assert answer.kind is inspection.AnswerKind.NOTHING


def test_a_refused_error_is_answered_with_nothing() -> None:
    broken = soap(
        MESSAGE_HEADER.replace("urn:ex:orders", "urn:oasis:names:tc:ebxml-msg:service").replace(
            "PlaceOrder", "MessageError"
        )
    )
    opened = inspection.Capture(inspection.CaptureKind.HTTP_REQUEST, Parcel("text/xml", broken))
    found = inspection.compare(opened, None, Form(), now=samples.NOW)
    assert found.ours.kind is inspection.AnswerKind.NOTHING
    assert found.differences == ()


def test_fault_codes_are_compared() -> None:
    theirs = inspection.Answer(inspection.AnswerKind.FAULT, fault_code="Server")
    ours = inspection.Answer(inspection.AnswerKind.FAULT, fault_code="Client")
    (difference,) = inspection.differences(theirs, ours)
    assert (difference.field, difference.theirs, difference.ours) == (
        "faultcode",
        "Server",
        "Client",
    )


@pytest.mark.parametrize(
    ("old", "new", "location"),
    [
        ("<MessageData>", "<Odd>", "//Header/MessageData"),
        ("</ConversationId>", "</ConversationId><ConversationId>a</ConversationId>",
         "//Header/ConversationId"),
        ("<Service>", f'<Service type="{"t" * 300}">', "//Header/Service"),
        ("<Service>urn:ex:orders</Service>", "<Service/>", "//Header/Service"),
        ("mid:order-1@alpha.example", "", "//Manifest/Reference/@href"),
        ('<Reference xlink:type="simple" xlink:href="mid:order-1@alpha.example"/>', "",
         "//Manifest/Reference"),
        (">006998397<", ">" + "9" * 300 + "<", "//Header/From/PartyId"),
        ("2001-02-13T10:00:00Z", "tomorrow", "//Header/MessageData/TimeToLive"),
    ],
)  # fmt: skip
def test_rare_faults_of_a_draft(old: str, new: str, location: str) -> None:
    text = REQUEST.replace(old, new)
    if "<Odd>" in new:
        text = text.replace("</MessageData>", "</Odd>")
    assert draft_refused(text).location == location


def test_a_type_child_of_the_root_tells_the_dialect_too() -> None:
    text = REQUEST.replace("<Header>", "<MessageType>Normal</MessageType><Header>", 1)
    assert codec.read_header(text.encode()).message.dialect is Dialect.RM_078
