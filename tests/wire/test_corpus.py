"""Every message file of the corpus does what its index says a conforming handler should do.

What needs an agreement (CPAId, parties, `always`) is judged by others; here stand the facts
they judge, and the faults that need no agreement.
"""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from oncewire.errors import EbxmlError, SoapFault
from oncewire.message.envelope import AckRequested, Actor, DeliverySemantics, MessageKind, Severity
from oncewire.message.form import Dialect, Validation
from oncewire.wire import codec, inspection
from oncewire.wire.inspection import CaptureKind, open_capture
from oncewire.wire.parcel import ReadFault, Received
from oncewire.wire.reader import PayloadData, Reader
from tests.wire.samples import corpus_bytes, corpus_messages

TO_PARTY = (AckRequested(Actor.TO_PARTY_MSH, signed=False),)
TO_PARTY_SIGNED = (AckRequested(Actor.TO_PARTY_MSH, signed=True),)
NEXT = (AckRequested(Actor.NEXT_MSH, signed=False),)
ONCE = DeliverySemantics.ONCE_AND_ONLY_ONCE
BEST = DeliverySemantics.BEST_EFFORT


@dataclass(frozen=True)
class Read:
    """The file is a message; what it says."""

    kind: MessageKind = MessageKind.NORMAL
    semantics: DeliverySemantics | None = ONCE
    asks: tuple[AckRequested, ...] = ()
    sizes: tuple[int, ...] = ()
    signed: bool = False
    valid: bool = True
    notes: tuple[str, ...] = ()
    facts: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Refused:
    """The file is refused; with what."""

    code: str
    location: str = ""
    answerable: bool = True
    valid: bool | None = None


_SOAP = "ebms-core/soap/EbMSMessage"
_NHS = "nhs-mhs/test_messages/"
_NHS_GOLD = "nhs-mhs/expected_messages/"
_MH = "//Header/MessageHeader"
NO_ZONE = "has no time zone"

TABLE: dict[str, Read | Refused] = {
    f"{_SOAP}.xml": Read(asks=TO_PARTY, facts={"sync_reply_as_agreed": True}),
    f"{_SOAP}MissingManifest.xml": Read(asks=TO_PARTY),
    f"{_SOAP}InvalidAckRequestedActor.xml": Refused("Inconsistent", "//Header/AckRequested/@actor"),
    # Against the agreement, not against itself: the signed wish is read as it is.
    f"{_SOAP}InvalidAckRequestedSigned.xml": Read(asks=TO_PARTY_SIGNED),
    f"{_SOAP}InvalidAckRequestedVersion.xml": Refused(
        "Inconsistent", "//Header/AckRequested/@version"
    ),
    f"{_SOAP}InvalidManifestVersion.xml": Refused("Inconsistent", "//Body/Manifest/@version"),
    f"{_SOAP}InvalidMessageHeaderVersion.xml": Refused("Inconsistent", f"{_MH}/@version"),
    f"{_SOAP}InvalidRefToMessageId.xml": Read(
        asks=TO_PARTY, facts={"ref_to_message_id": "@localhost"}
    ),
    f"{_SOAP}InvalidToPartyType.xml": Read(asks=TO_PARTY, facts={"to": ("type", "toPartyId")}),
    f"{_SOAP}MessageOrder.xml": Refused("Inconsistent", "//Header/MessageOrder"),
    f"{_SOAP}MissingAckRequested.xml": Read(semantics=None),
    f"{_SOAP}MissingDuplicateElimination.xml": Read(semantics=None, asks=TO_PARTY),
    f"{_SOAP}MissingFromPartyId.xml": Refused("Inconsistent", f"{_MH}/From/PartyId", valid=False),
    f"{_SOAP}MissingReference.xml": Refused(
        "Inconsistent", "//Body/Manifest/Reference", valid=False
    ),
    f"{_SOAP}Status.xml": Read(MessageKind.STATUS_REQUEST, BEST),
    "hermes/msg/test2.msg": Read(semantics=BEST, sizes=(1500,)),
    "hermes/msg/test4.msg": Refused("Inconsistent", f"{_MH}/MessageData/TimeToLive", valid=False),
    "nav-ebxml-processor/signaltest/messageerror.xml": Read(
        MessageKind.ERROR, BEST, facts={"ref_to_message_id": "autotest_tc_2_2_15"}
    ),
    "nav-smtp-transport/acknowledgment_no_from.eml": Read(
        MessageKind.ACKNOWLEDGMENT, BEST, signed=True, valid=False
    ),
    "nav-smtp-transport/ebxml_no_cpaid.eml": Refused("Inconsistent", f"{_MH}/CPAId", valid=False),
    "nav-smtp-transport/inntektsforesporsel.eml": Read(
        asks=TO_PARTY_SIGNED, sizes=(93,), signed=True, notes=(NO_ZONE,)
    ),
    f"{_NHS_GOLD}ebxml_ack.xml": Read(MessageKind.ACKNOWLEDGMENT, BEST),
    f"{_NHS_GOLD}ebxml_nack.xml": Read(MessageKind.ERROR, BEST, valid=False),
    f"{_NHS_GOLD}ebxml_request_one_attachment.xml": Read(asks=TO_PARTY, sizes=(62, 12)),
    f"{_NHS_GOLD}ebxml_request_one_attachment_with_document_id.xml": Read(
        asks=TO_PARTY, sizes=(62, 12)
    ),
    f"{_NHS}ebxml_header_empty.xml": Refused(
        "Inconsistent", f"{_MH}/From/PartyId", answerable=False, valid=False
    ),
    # Its frame lacks a part that the Manifest names; the part that is there stays unchanged.
    f"{_NHS}ebxml_request_multibyte_character.msg": Refused(
        "MimeProblem", "cid:Attachment1@e-mis.com/EMISWeb/GP2GP2.2A", valid=True
    ),
    f"{_NHS}ebxml_request_multibyte_character.ebxml": Read(semantics=None, asks=NEXT),
    f"{_NHS}ebxml_request_no_ack_requested.msg": Read(semantics=None, sizes=(51,)),
    f"{_NHS}ebxml_request_no_ack_requested.ebxml": Read(semantics=None),
    f"{_NHS}ebxml_request_no_header.msg": Refused("Client", answerable=False),
    f"{_NHS}ebxml_request_no_soap_actor.msg": Read(asks=TO_PARTY, sizes=(51,)),
    f"{_NHS}ebxml_request_no_soap_actor.ebxml": Read(asks=TO_PARTY),
    f"{_NHS}ebxml_request_one_attachment_application_xml_content_type_no_description.msg": Read(
        asks=TO_PARTY, sizes=(51, 12), valid=False
    ),
    f"{_NHS}ebxml_request_one_attachment_application_xml_content_type_no_description.ebxml": Read(
        asks=TO_PARTY, valid=False
    ),
    f"{_NHS}ebxml_request_one_attachment_text_plain_content_compressed_fragment.msg": Read(
        asks=TO_PARTY, sizes=(51, 269)
    ),
    f"{_NHS}ebxml_request_one_attachment_text_plain_content_compressed_fragment.ebxml": Read(
        asks=TO_PARTY
    ),
    f"{_NHS}ebxml_request_one_external_attachment.msg": Read(
        asks=TO_PARTY, sizes=(51,), valid=False, notes=("closing boundary", "mid:")
    ),
    f"{_NHS}ebxml_request_one_external_attachment.ebxml": Read(asks=TO_PARTY, valid=False),
    f"{_NHS}ebxml_request_payload_defect.msg": Refused("MimeProblem", "MIME", valid=True),
    f"{_NHS}ebxml_request_payload_defect.ebxml": Read(asks=TO_PARTY),
    f"{_NHS}ebxml_response_error_multiple.xml": Read(MessageKind.ERROR, BEST, notes=(NO_ZONE,)),
    f"{_NHS}soap_request_with_defect.msg": Refused("Client", answerable=False),
    f"{_NHS}soapfault_response_empty.xml": Refused("Client", answerable=False),
    f"{_NHS}soapfault_response_single_error.xml": Refused("Client", answerable=False),
    f"{_NHS}soapfault_response_single_error_208.xml": Refused("Client", answerable=False),
    f"{_NHS}soapfault_response_single_error_300.xml": Refused("Client", answerable=False),
    "phinms-phineas/examples/ping.txt": Read(
        MessageKind.PING, None, asks=TO_PARTY, notes=(NO_ZONE,)
    ),
    "phinms-phineas/examples/ping.xml": Read(
        MessageKind.PING, None, asks=TO_PARTY, notes=(NO_ZONE,)
    ),
    "phinms-phineas/examples/request.xml": Read(semantics=None, asks=TO_PARTY, notes=(NO_ZONE,)),
    "phinms-phineas/examples/response.txt": Read(
        MessageKind.ACKNOWLEDGMENT,
        BEST,
        sizes=(125,),
        valid=False,
        notes=("no To PartyId", "more than one RefToMessageId"),
        # The one of two RefToMessageIds that the Acknowledgment names.
        facts={"ref_to_message_id": "1290090765105@phineas.us"},
    ),
    "phinms-phineas/examples/response.xml": Refused("OtherXml", "header", answerable=False),
    "phinms-phineas/examples/soap_defaults.xml": Refused(
        "Inconsistent", f"{_MH}/MessageData/Timestamp", valid=False
    ),
}


def read(corpus: Path, name: str, validation: Validation = Validation.REPORT) -> Received:
    capture = open_capture(corpus_bytes(corpus, name))
    if capture.kind is CaptureKind.XML:
        return codec.read_header(capture.parcel.body, validation=validation)
    return codec.read(capture.parcel, validation=validation)


def test_the_table_names_every_message_of_the_corpus(corpus: Path) -> None:
    assert set(corpus_messages(corpus)) == set(TABLE)


@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if isinstance(row, Read)])
def test_it_is_read(corpus: Path, name: str) -> None:
    row = TABLE[name]
    assert isinstance(row, Read)
    received = read(corpus, name)
    message = received.message
    assert message.dialect is Dialect.EBMS2
    assert message.kind is row.kind
    assert message.header.semantics is row.semantics
    assert message.ack_requested == row.asks
    assert tuple(payload.size for payload in message.payloads) == row.sizes
    assert received.signed is row.signed
    assert (received.schema_problems == ()) is row.valid
    for words in row.notes:
        assert any(words in note for note in received.notes), received.notes
    facts = dict(row.facts)
    to = facts.pop("to", None)
    if to is not None:
        assert to == (message.header.to_party.ids[0].type, message.header.to_party.ids[0].value)
    for attribute, value in facts.items():
        assert getattr(message.header, attribute) == value


@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if isinstance(row, Refused)])
def test_it_is_refused(corpus: Path, name: str) -> None:
    row = TABLE[name]
    assert isinstance(row, Refused)
    with pytest.raises(ReadFault) as caught:
        read(corpus, name)
    fault = caught.value
    error = fault.error
    if isinstance(error, SoapFault):
        assert error.faultcode == row.code
    else:
        assert (error.code, error.location) == (row.code, row.location)
        assert error.severity == Severity.ERROR.value
    assert fault.answerable is row.answerable
    assert error.problem
    if row.answerable:
        assert fault.known.message_id
        assert fault.known.conversation_id


@pytest.mark.parametrize("name", list(TABLE))
def test_decode_shows_it(corpus: Path, name: str) -> None:
    row = TABLE[name]
    values = inspection.describe_bytes(corpus_bytes(corpus, name))
    if isinstance(row, Refused):
        assert values["fault"]["code"] == row.code
        assert values["fault"]["location"] == row.location
        assert values["fault"]["severity"] == "Error"
    else:
        assert values["kind"] == row.kind.value
        assert [part["size"] for part in values["parts"]] == list(row.sizes)
        assert all(len(part["sha256"]) == 64 for part in values["parts"])


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, row in TABLE.items()
        if row.valid is False and not name.endswith(("response.txt", ".ebxml"))
    ],
)
def test_a_partner_held_to_the_schema_gets_a_soap_fault(corpus: Path, name: str) -> None:
    with pytest.raises(ReadFault) as caught:
        read(corpus, name, Validation.ENFORCE)
    assert isinstance(caught.value.error, SoapFault)
    assert caught.value.error.faultcode == "Client"
    assert "schema" in caught.value.error.problem


def test_multibyte_payload_bytes_pass_unchanged(corpus: Path) -> None:
    data = corpus_bytes(corpus, f"{_NHS}ebxml_request_multibyte_character.msg")
    parcel = open_capture(data).parcel
    reader = Reader(parcel.content_type)
    pieces = [event.data for event in reader.feed(parcel.body) if isinstance(event, PayloadData)]
    assert b"".join(pieces) == "<xml>¬ ❤️ 🧸</xml>".encode()
    with pytest.raises(ReadFault):
        reader.finish()


def test_a_compressed_fragment_typed_as_text_is_not_decoded_as_text(corpus: Path) -> None:
    name = f"{_NHS}ebxml_request_one_attachment_text_plain_content_compressed_fragment.msg"
    data = read(corpus, name).message.payloads[1].data
    assert data is not None
    assert data[:4] == bytes.fromhex("8e3d8b9f")
    with pytest.raises(UnicodeDecodeError):
        data.decode()


def test_both_errors_are_reported(corpus: Path) -> None:
    message = read(corpus, f"{_NHS}ebxml_response_error_multiple.xml").message
    assert message.error_list is not None
    assert [error.description[:6] for error in message.error_list.errors] == ["501319", "501320"]
    assert {error.code for error in message.error_list.errors} == {"ValueNotRecognized"}
    assert message.failed


@pytest.mark.parametrize(("name", "codes"), [("", ["200"]), ("_208", ["208"]), ("_300", ["300"])])
def test_a_spine_fault_gives_its_codes(corpus: Path, name: str, codes: list[str]) -> None:
    with pytest.raises(ReadFault) as caught:
        read(corpus, f"{_NHS}soapfault_response_single_error{name}.xml")
    fault = caught.value.fault
    assert fault is not None
    assert fault.code == "Server"
    assert [detail.code for detail in fault.details] == codes


def test_a_fault_without_detail_is_a_fault(corpus: Path) -> None:
    with pytest.raises(ReadFault) as caught:
        read(corpus, f"{_NHS}soapfault_response_empty.xml")
    assert caught.value.fault is not None
    assert caught.value.fault.details == ()


def test_several_party_ids_and_a_description_in_json_are_kept(corpus: Path) -> None:
    header = read(corpus, "nav-smtp-transport/inntektsforesporsel.eml").message.header
    assert [one.type for one in header.from_party.ids] == ["commonname", "orgnummer", "DN"]
    assert header.from_party.role == "Fordringshaver"
    assert header.descriptions[0][0] == "NO"
    assert "MSH-system" in header.descriptions[0][1]


def test_a_signed_acknowledgement_keeps_the_digests_it_was_sent_with(corpus: Path) -> None:
    received = read(corpus, "nav-smtp-transport/acknowledgment_no_from.eml")
    (answer,) = received.message.acknowledgments
    (digest,) = answer.references
    assert digest.uri == ""
    assert len(digest.digest_value) == 32
    assert digest.xml in received.envelope


def test_foreign_children_of_a_reference_are_kept_with_their_namespace(corpus: Path) -> None:
    manifest = read(corpus, f"{_NHS}ebxml_request_no_soap_actor.msg").message.manifest
    assert manifest[0].schemas == (("http://www.nhsia.nhs.uk/schemas/HL7-Message.xsd", "1.0"),)
    (payload,) = manifest[0].foreign
    assert payload.startswith(b"<hl7ebxml:Payload xmlns:hl7ebxml=")


def test_an_acknowledgement_without_mail_from_is_taken(corpus: Path) -> None:
    capture = open_capture(corpus_bytes(corpus, "nav-smtp-transport/acknowledgment_no_from.eml"))
    assert capture.kind is CaptureKind.MAIL
    assert capture.parcel.header("from") is None
    assert codec.read(capture.parcel).message.kind is MessageKind.ACKNOWLEDGMENT


def test_a_lenient_reader_answers_a_missing_party_by_the_agreement(corpus: Path) -> None:
    with pytest.raises(ReadFault) as caught:
        read(corpus, f"{_SOAP}MissingFromPartyId.xml")
    assert caught.value.known.from_party is None
    assert caught.value.known.cpa_id == "cpaId"
    assert all(isinstance(error, EbxmlError) for error in caught.value.errors)
