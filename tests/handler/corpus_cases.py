"""The corpus as cases: each message file, where it belongs, and what must come of it.

The expectations are those of the corpus' index, in the words of this project: what comes back
on the connection, what leaves on a connection of its own, what the application gets, and, for
files that answer a message of ours, where that message then stands.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.certificates import to_pem
from oncewire.handler.actions import Source
from oncewire.handler.context import Keys
from oncewire.message.envelope import MessageKind
from oncewire.protocol.states import OutgoingState
from oncewire.wire.parcel import Parcel
from tests.handler.network import HTTP, MAIL, Network
from tests.handler.samples import SOAP_ACTION, cpa, filled, recorded, soap_parcel, toml
from tests.wire.samples import corpus_bytes
from tests.wire.security.keys import alpha

ACK, ERROR = MessageKind.ACKNOWLEDGMENT, MessageKind.ERROR
SYNC_CPA = "ebms-core/cpa/cpaStubEBF.rm.http.unsigned.sync.xml"
ORDER_CPA = "hermes/cpa/ebIOT-CPAT5-4.CECID.I3T.xml"

DIGIPOORT = {
    "partyType": "urn:osb:oin",
    "fromPartyId": "00000000000000000000",
    "fromRole": "DIGIPOORT",
    "toPartyId": "00000000000000000001",
    "toRole": "OVERHEID",
    "cpaId": "cpaStubEBF.rm.http.unsigned.sync",
    "serviceType": "urn:osb:services",
    "service": "osb:afleveren:1.1$1.0",
    "action": "afleveren",
    "uuid": "c0ffee",
    "refToMessageId": "c0ffee",
    "timestamp": "2026-01-05T10:00:00Z",
    "timeToLive": "2026-01-06T10:00:00Z",
}
"""What the templates of ebms-core say under the CPA they belong to."""

BUYER = DIGIPOORT | {
    "partyType": "ebIOT",
    "fromPartyId": "CECID",
    "fromRole": "Buyer",
    "toPartyId": "I3T",
    "toRole": "Seller",
    "cpaId": "ebIOT-CPAT5-4.CECID.I3T",
    "serviceType": "anyURI",
    "service": "urn:ebIOT-TestService:order",
    "action": "Order",
    "timestamp": "2009-06-01T10:00:00Z",
    "timeToLive": "2009-06-02T10:00:00Z",
}
"""The same under the ebIOT agreement whose messages are ordered."""


def overheid(corpus: Path, **over: object) -> Agreement:
    """The receiver's side of the synchronous CPA, as strict as the peer it was made for."""
    strict = {"wire__soap_action_check": "strict", "wire__unknown_ref": "error"}
    return cpa(corpus / SYNC_CPA, 1, **(strict | over))


def nhs(own: str, partner: str, profile: str = "nhs-async-reliable", extra: str = "") -> Agreement:
    """A Spine contract; its CPAId is a key of the directory, so any is taken."""
    kind = "urn:nhs:names:partyType:ocs+serviceInstance"

    def party(value: str) -> str:
        return f'[{{value = "{value}", type = "{kind}"}}]'

    return toml(profile, party(own), party(partner), "spine", extra, any_cpa_id=True)


def phinms(own: str, partner: str, cpa_id: str) -> Agreement:
    """An agreement as CDC's handlers have it."""
    return toml(
        "phinms", f'[{{value = "{own}", type = "zz"}}]', f'[{{value = "{partner}", type = "zz"}}]',
        cpa_id, any_cpa_id=True,
    )  # fmt: skip


def norway(own: str, partner: str, cpa_id: str, pinned: bytes | None, extra: str = "") -> Agreement:
    """Mail with signatures; `pinned` is the certificate the partner signs with."""
    security = "[security]\nsign = false\nrequire_signature = false\n"
    if pinned is not None:
        pem = to_pem(pinned)
        security = f"[security]\nsign = true\npartner_certificates = ['''{pem}''']\n"
    return toml("norway-smtp", own, partner, cpa_id, security + extra)


def signer_of(envelope: bytes) -> bytes:
    """DER of the certificate that an envelope's own KeyInfo shows."""
    shown = re.search(rb"<X509Certificate>([^<]+)<", envelope)
    assert shown is not None
    return base64.b64decode(shown[1])


def inntekt_signer(corpus: Path) -> bytes:
    """The certificate of the Norwegian mails' sender, which one of them hides in base64."""
    data = (corpus / "nav-smtp-transport/ebxml_no_cpaid.eml").read_bytes()
    return signer_of(data)


def ours() -> Keys:
    """A key of our own, for answers that must be signed."""
    pair = alpha("rsa")
    return Keys(pair.certificate, pair.key)


# --- messages that arrive ----------------------------------------------------------------------


@dataclass(frozen=True)
class Arrives:
    """A file that somebody sends us, and what comes of it."""

    desk: Callable[[Path], Network]
    # On the connection: status, kind of message, and its first error's code and location.
    status: int = 200
    kind: MessageKind | None = None
    error: tuple[str, str] | None = None
    # faultcode of a SOAP Fault.
    fault: str | None = None
    # The same on a connection of its own.
    posted: MessageKind | None = None
    posted_error: tuple[str, str] | None = None
    # Sizes of the payloads the application gets; None: it gets nothing.
    taken: tuple[int, ...] | None = None
    source: Source = HTTP
    # It is refused, and nobody is told: whoever sent it did not prove to be the partner.
    silent: bool = False


def _core(corpus: Path) -> Network:
    return Network.single(overheid(corpus), at="2026-01-05T10:00:01Z")


def _psis(corpus: Path) -> Network:
    return Network.single(nhs("A91424-9199121", "YES-0000806"), at="2019-05-04T20:55:20Z")


def _psis_silent(corpus: Path) -> Network:
    extra = '[duplicate]\nelimination = "always"\n[sync]\nmode = "mshSignalsOnly"\n'
    agreement = nhs("A91424-9199121", "YES-0000806", "nhs-express", extra)
    return Network.single(agreement, at="2019-05-04T20:55:20Z")


def _pds(corpus: Path) -> Network:
    return Network.single(nhs("YEA-0000806", "TESTGEN-201324"), at="2012-03-15T06:51:10Z")


def _gp2gp(corpus: Path) -> Network:
    agreement = nhs("YGMYW-822993", "5EP-807264", "nhs-forward-reliable")
    return Network.single(agreement, at="2023-08-25T15:00:00Z")


def _hermes(corpus: Path) -> Network:
    own, partner = "toPartyId", "fromPartyId"
    agreement = toml(
        "ebms2",
        f'[{{value = "{own}", type = "toPartyType"}}]',
        f'[{{value = "{partner}", type = "fromPartyType"}}]',
        "cpaid",
    )
    return Network.single(agreement, at="2008-07-21T07:26:53Z")


def _nav(corpus: Path) -> Network:
    own = '[{value = "889640782", type = "orgnummer"}]'
    partner = '[{value = "979543883", type = "orgnummer"}]'
    agreement = norway(own, partner, "nav:qass:34961", inntekt_signer(corpus))
    return Network.single(agreement, at="2026-02-12T12:00:40Z", keys=ours())


def _phinms(corpus: Path) -> Network:
    return Network.single(phinms("SLHW0224", "slhw0008", "self"), at="2010-11-22T14:11:02Z")


def _phinms_pinged(corpus: Path) -> Network:
    agreement = phinms("slhw0008", "SLHW0224", "slhw0008.SLHW0224")
    return Network.single(agreement, at="2010-11-17T12:54:25Z")


def _phinms_template(corpus: Path) -> Network:
    return Network.single(phinms("TOPARTYID", "FROMPARTYID", "x"), at="2010-11-17T12:54:25Z")


_SOAP = "ebms-core/soap/EbMSMessage"
_NHS = "nhs-mhs/test_messages/"
_GOLD = "nhs-mhs/expected_messages/"
_MH = "//Header/MessageHeader"
_HL7 = "cid:C614484E-4B10-499A-9ACD-5D645CFACF61@spine.nhs.uk"


def _refused(error: str, location: str) -> Arrives:
    return Arrives(_core, kind=ERROR, error=(error, location))


_LACKS_PARTS = Arrives(_psis, kind=ERROR, error=("MimeProblem", _HL7))
"""A header without the parts that its Manifest names."""

ARRIVING: dict[str, Arrives] = {
    f"{_SOAP}.xml": Arrives(_core, kind=ACK, taken=()),
    f"{_SOAP}MissingManifest.xml": Arrives(_core, kind=ACK, taken=()),
    f"{_SOAP}InvalidAckRequestedActor.xml": _refused(
        "Inconsistent", "//Header/AckRequested/@actor"
    ),
    f"{_SOAP}InvalidAckRequestedSigned.xml": _refused(
        "Inconsistent", "//Header/AckRequested/@signed"
    ),
    f"{_SOAP}InvalidAckRequestedVersion.xml": _refused(
        "Inconsistent", "//Header/AckRequested/@version"
    ),
    f"{_SOAP}InvalidManifestVersion.xml": _refused("Inconsistent", "//Body/Manifest/@version"),
    f"{_SOAP}InvalidMessageHeaderVersion.xml": _refused("Inconsistent", f"{_MH}/@version"),
    f"{_SOAP}InvalidRefToMessageId.xml": _refused(
        "ValueNotRecognized", f"{_MH}/MessageData/RefToMessageId"
    ),
    f"{_SOAP}InvalidToPartyType.xml": _refused("Inconsistent", f"{_MH}/To/PartyId"),
    f"{_SOAP}MessageOrder.xml": _refused("Inconsistent", "//Header/MessageOrder"),
    f"{_SOAP}MissingAckRequested.xml": _refused("Inconsistent", "//Header/AckRequested"),
    f"{_SOAP}MissingDuplicateElimination.xml": _refused(
        "Inconsistent", f"{_MH}/DuplicateElimination"
    ),
    f"{_SOAP}MissingFromPartyId.xml": _refused("Inconsistent", f"{_MH}/From/PartyId"),
    f"{_SOAP}MissingReference.xml": _refused("Inconsistent", "//Body/Manifest/Reference"),
    f"{_SOAP}Status.xml": Arrives(_core, kind=MessageKind.STATUS_RESPONSE),
    "hermes/msg/test2.msg": Arrives(_hermes, 204, taken=(1500,)),
    "hermes/msg/test4.msg": Arrives(
        _hermes, 204, posted=ERROR, posted_error=("Inconsistent", f"{_MH}/MessageData/TimeToLive")
    ),
    "nav-smtp-transport/ebxml_no_cpaid.eml": Arrives(_nav, 204, source=MAIL, silent=True),
    "nav-smtp-transport/inntektsforesporsel.eml": Arrives(_nav, 204, source=MAIL, silent=True),
    f"{_GOLD}ebxml_request_one_attachment.xml": Arrives(_pds, kind=ACK, taken=(62, 12)),
    f"{_GOLD}ebxml_request_one_attachment_with_document_id.xml": Arrives(
        _pds, kind=ACK, taken=(62, 12)
    ),
    f"{_NHS}ebxml_header_empty.xml": Arrives(_psis, 500, fault="Client"),
    # Its frame lacks a part that its Manifest names; test_a_frame_made_whole adds it.
    f"{_NHS}ebxml_request_multibyte_character.msg": Arrives(
        _gp2gp,
        204,
        posted=ERROR,
        posted_error=("MimeProblem", "cid:Attachment1@e-mis.com/EMISWeb/GP2GP2.2A"),
    ),
    f"{_NHS}ebxml_request_multibyte_character.ebxml": Arrives(
        _gp2gp,
        204,
        posted=ERROR,
        posted_error=("MimeProblem", "cid:Content1@e-mis.com/EMISWeb/GP2GP2.2A"),
    ),
    f"{_NHS}ebxml_request_no_ack_requested.msg": Arrives(_psis_silent, 204, taken=(51,)),
    f"{_NHS}ebxml_request_no_ack_requested.ebxml": _LACKS_PARTS,
    f"{_NHS}ebxml_request_no_header.msg": Arrives(_psis, 500, fault="Client"),
    f"{_NHS}ebxml_request_no_soap_actor.msg": Arrives(_psis, kind=ACK, taken=(51,)),
    f"{_NHS}ebxml_request_no_soap_actor.ebxml": _LACKS_PARTS,
    f"{_NHS}ebxml_request_one_attachment_application_xml_content_type_no_description.msg": Arrives(
        _psis, kind=ACK, taken=(51, 12)
    ),
    f"{_NHS}ebxml_request_one_attachment_application_xml_content_type_no_description.ebxml": (
        _LACKS_PARTS
    ),
    f"{_NHS}ebxml_request_one_attachment_text_plain_content_compressed_fragment.msg": Arrives(
        _psis, kind=ACK, taken=(51, 269)
    ),
    f"{_NHS}ebxml_request_one_attachment_text_plain_content_compressed_fragment.ebxml": (
        _LACKS_PARTS
    ),
    f"{_NHS}ebxml_request_one_external_attachment.msg": Arrives(_psis, kind=ACK, taken=(51,)),
    f"{_NHS}ebxml_request_one_external_attachment.ebxml": _LACKS_PARTS,
    f"{_NHS}ebxml_request_payload_defect.msg": Arrives(
        _psis, kind=ERROR, error=("MimeProblem", "MIME")
    ),
    f"{_NHS}ebxml_request_payload_defect.ebxml": _LACKS_PARTS,
    f"{_NHS}soap_request_with_defect.msg": Arrives(_psis, 500, fault="Client"),
    "phinms-phineas/examples/ping.txt": Arrives(_phinms_pinged, kind=MessageKind.PONG),
    "phinms-phineas/examples/ping.xml": Arrives(_phinms_pinged, kind=MessageKind.PONG),
    "phinms-phineas/examples/request.xml": Arrives(_phinms, kind=ACK, taken=(11,)),
    # No message at all: the application's part, standing alone.
    "phinms-phineas/examples/response.xml": Arrives(_phinms, 500, fault="Client"),
    "phinms-phineas/examples/soap_defaults.xml": Arrives(_phinms_template, kind=ACK, taken=(11,)),
}


# --- messages that answer one of ours ----------------------------------------------------------


@dataclass(frozen=True)
class Answers:
    """A file that answers a message of ours, and where that message then stands."""

    desk: Callable[[Path], Network]
    # What it answers: the message's agreement and id.
    cpa_id: str
    message_id: str
    state: OutgoingState
    # Whether the answer came with a 2xx; a SOAP Fault comes with a 500.
    sent: bool = True
    # A word of the reason that the application is told.
    reason: str = ""
    # Whether the message is sent again when its interval is over.
    resent: bool = False
    source: Source = HTTP
    taken: tuple[int, ...] | None = None


def _nack(corpus: Path) -> Network:
    return Network.single(nhs("YES-0000806", "FROM_PARTY_ID"), at="2019-05-04T20:55:16Z")


def _two_errors(corpus: Path) -> Network:
    return Network.single(nhs("RHM-810292", "YEA-801248"), at="2013-10-24T15:08:07Z")


def _frikort(corpus: Path) -> Network:
    own, partner = '[{value = "987654321", type = "HER"}]', '[{value = "79768", type = "HER"}]'
    agreement = norway(own, partner, "nav:qass:1", None, '[ack]\nsignature = "never"\n')
    return Network.single(agreement, at="2014-06-07T19:42:20Z")


def _apotek(corpus: Path) -> Network:
    """The acknowledgement's signature holds; whether it proves receipt is another test."""
    data = corpus_bytes(corpus, "nav-smtp-transport/acknowledgment_no_from.eml")
    envelope = base64.b64decode(recorded(data).body)
    own, partner = '[{value = "79768", type = "HER"}]', '[{value = "92239", type = "HER"}]'
    plain = '[ack]\nsignature = "never"\n[business]\nnon_repudiation_of_receipt = false\n'
    agreement = norway(own, partner, "nav:qass:30500", signer_of(envelope), plain)
    return Network.single(agreement, at="2023-11-21T14:45:47Z", keys=ours())


def _phinms_sender(corpus: Path) -> Network:
    return Network.single(phinms("slhw0008", "SLHW0224", "self"), at="2010-11-18T14:32:47Z")


_REFUSED, _DELIVERED = OutgoingState.NOT_DELIVERED, OutgoingState.DELIVERED
_WAITING = OutgoingState.OUTSTANDING
_SPINE_ID = "C614484E-4B10-499A-9ACD-5D645CFACF61"

ANSWERING: dict[str, Answers] = {
    f"{_GOLD}ebxml_ack.xml": Answers(
        _pds, "spine", "0CDBA95F-74DA-47E9-8383-7B8E9167D146", _DELIVERED
    ),
    f"{_GOLD}ebxml_nack.xml": Answers(
        _nack, "spine", _SPINE_ID, _REFUSED, reason="501314:Invalid To Party Type attribute"
    ),
    f"{_NHS}ebxml_response_error_multiple.xml": Answers(
        _two_errors,
        "spine",
        "19D02203-3CBE-11E3-9D44-9D223D2F4DB0",
        _REFUSED,
        reason="501319:Unknown eb:CPAId",
    ),
    f"{_NHS}soapfault_response_empty.xml": Answers(
        _nack, "spine", _SPINE_ID, _REFUSED, sent=False, reason="Application Exception"
    ),
    f"{_NHS}soapfault_response_single_error.xml": Answers(
        _nack, "spine", _SPINE_ID, _WAITING, sent=False, resent=True
    ),
    f"{_NHS}soapfault_response_single_error_208.xml": Answers(
        _nack, "spine", _SPINE_ID, _WAITING, sent=False, resent=True
    ),
    f"{_NHS}soapfault_response_single_error_300.xml": Answers(
        _nack, "spine", _SPINE_ID, _REFUSED, sent=False, reason="300 System failure"
    ),
    "nav-ebxml-processor/signaltest/messageerror.xml": Answers(
        _frikort,
        "nav:qass:1",
        "autotest_tc_2_2_15",
        _REFUSED,
        reason="invalid CpaId [unknown]",
        source=MAIL,
    ),
    "nav-smtp-transport/acknowledgment_no_from.eml": Answers(
        _apotek,
        "nav:qass:30500",
        "20231121-154526-99398@qa.ebxml.nav.no",
        _DELIVERED,
        source=MAIL,
    ),
    "phinms-phineas/examples/response.txt": Answers(
        _phinms_sender, "self", "1290090765105@phineas.us", _DELIVERED, taken=(125,)
    ),
}


# --- their bytes -------------------------------------------------------------------------------

PLAIN = b"<document/>"


def parcel_of(corpus: Path, name: str) -> Parcel:
    """A corpus file as its transport would hand it in."""
    data = (corpus / name).read_bytes()
    if name.startswith("ebms-core/soap/"):
        return soap_parcel(filled(data, DIGIPOORT))
    if name.endswith("soap_defaults.xml"):
        data = data.replace(b"ENTRYDATE", b"2010-11-17T12:54:24")
        return framed(data, "EPOCHSHORT_EPOCHPLUS@ORGNAME.messaging.com", PLAIN)
    if name.endswith("examples/request.xml"):
        return framed(data, "tests/test/AllTests.java@phineas.us", PLAIN)
    if name.endswith("no_header.msg"):
        return soap_parcel(data)
    return recorded(corpus_bytes(corpus, name))


def framed(envelope: bytes, content_id: str, payload: bytes) -> Parcel:
    """An envelope that was kept alone, with the part that its Manifest names beside it."""
    head = b"--frame\r\nContent-ID: <%s>\r\nContent-Type: %s\r\n\r\n"
    body = b"\r\n".join(
        (
            head % (b"root", b"text/xml") + envelope,
            head % (content_id.encode(), b"application/octet-stream") + payload,
            b"--frame--\r\n",
        )
    )
    kind = 'multipart/related; type="text/xml"; boundary="frame"; start="<root>"'
    return Parcel(kind, body, SOAP_ACTION)
