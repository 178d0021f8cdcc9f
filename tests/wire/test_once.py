"""What may stand once is refused when it stands twice, whatever it is and wherever it stands."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
from lxml import etree

from oncewire.errors import Inconsistent
from oncewire.message.form import Dialect
from oncewire.wire import codec
from oncewire.wire.codec import Parcel, ReadFault
from oncewire.wire.drafts.blocks import canonical_tag
from oncewire.wire.ebms2 import blocks as n
from oncewire.wire.ebms2.blocks import STRUCTURE
from oncewire.wire.xml import Element, local_name
from tests.wire import samples
from tests.wire.drafts.test_drafts import ACK_078, REQUEST
from tests.wire.ebms2.test_ebms2 import ACK, ERRORS, ORDER, STATUS_REQUEST, SYNC, signal
from tests.wire.samples import ACK_REQUESTED, MESSAGE_HEADER, soap
from tests.wire.strategies import some_messages

RMX = ' xmlns:rmx="urn:oncewire:ext:1" xmlns:ds="http://www.w3.org/2000/09/xmldsig#"'
ROLE = "</eb:PartyId><eb:Role>buyer</eb:Role>"
BUSINESS = (
    MESSAGE_HEADER.replace("</eb:PartyId>", ROLE)
    .replace(
        "</eb:Timestamp></eb:MessageData>",
        "</eb:Timestamp><eb:TimeToLive>2027-01-05T10:00:00Z</eb:TimeToLive></eb:MessageData>",
    )
    .replace(
        "</eb:MessageHeader>",
        '<eb:Description xml:lang="en">a</eb:Description>'
        '<eb:Description xml:lang="en">b</eb:Description>'
        '<rmx:Split><rmx:SplitId>s</rmx:SplitId><rmx:SplitNumber Total="2">1</rmx:SplitNumber>'
        "</rmx:Split></eb:MessageHeader>",
    )
)
ROUTING = (
    '<rmx:HopSequence status="Continue">4</rmx:HopSequence><rmx:RoutingHeaderList>'
    "<rmx:RoutingHeader><rmx:SenderURI>http://a/</rmx:SenderURI>"
    "<rmx:ReceiverURI>http://b/</rmx:ReceiverURI><rmx:ErrorURI>http://c/</rmx:ErrorURI>"
    "<rmx:Timestamp>2026-01-05T10:00:00Z</rmx:Timestamp></rmx:RoutingHeader>"
    "</rmx:RoutingHeaderList>"
)
MANIFEST = (
    '<eb:Manifest eb:version="2.0"><eb:Reference xlink:href="http://elsewhere/x">'
    '<eb:Schema eb:location="http://x/"/><eb:Description xml:lang="en">d</eb:Description>'
    '<rmx:Compression encoding="gzip" originalSize="9"/></eb:Reference></eb:Manifest>'
)
PROOF = (
    '<eb:From><eb:PartyId eb:type="urn:ex:org">beta</eb:PartyId><eb:Role>r</eb:Role></eb:From>'
    '<ds:Reference URI=""><ds:DigestMethod Algorithm="urn:d"/>'
    "<ds:DigestValue>AAAA</ds:DigestValue></ds:Reference></eb:Acknowledgment>"
)
REPORT = ERRORS.replace(
    'eb:location="//x"/>',
    'eb:location="//x"><eb:Description xml:lang="en">d</eb:Description>'
    "<rmx:MinRetrySecs>3</rmx:MinRetrySecs></eb:Error>",
)
RESPONSE = (
    '<eb:StatusResponse eb:version="2.0" eb:messageStatus="Received">'
    "<eb:RefToMessageId>m-0</eb:RefToMessageId>"
    "<eb:Timestamp>2026-01-05T10:00:00Z</eb:Timestamp></eb:StatusResponse>"
)
EBMS2 = {
    "business": soap(BUSINESS + ACK_REQUESTED + ORDER + ROUTING, MANIFEST, RMX),
    "synchronous": soap(MESSAGE_HEADER + ACK_REQUESTED + SYNC, "", RMX),
    "acknowledgement": soap(
        signal("Acknowledgment") + ACK.replace("</eb:Acknowledgment>", PROOF), "", RMX
    ),
    "error": soap(signal("MessageError") + REPORT, "", RMX),
    "question": soap(signal("StatusRequest", None), STATUS_REQUEST, RMX),
    "status": soap(signal("StatusResponse"), RESPONSE, RMX),
}
SPLIT = '<SplitId>s</SplitId><SplitNumber Total="2">1</SplitNumber></MessageData>'
RECEIPT = (
    "<Acknowledgment><Timestamp>2001-02-12T10:00:00Z</Timestamp>"
    '<From><PartyId type="DUNS">1</PartyId></From></Acknowledgment>'
)
STATUS = (
    '<StatusData messageStatus="Received"><RefToMessageId>m</RefToMessageId>'
    "<Timestamp>2001-02-12T10:00:00Z</Timestamp></StatusData>"
)
TROUBLE = (
    '<ErrorList><MinRetrySecs>3</MinRetrySecs><Error errorCode="Inconsistent" severity="Error">'
    "<ErrorMessage>m</ErrorMessage></Error></ErrorList>"
)
END = "</ebXMLHeader>"
DRAFTS = {
    "ms-0.9x": REQUEST.replace("</MessageData>", SPLIT).encode(),
    "ms-0.9x, all beside": REQUEST.replace(
        "</MessageData>", "<RefToMessageId>m-0</RefToMessageId></MessageData>"
    )
    .replace(END, f"{STATUS}{TROUBLE}{RECEIPT}{END}")
    .encode(),
    "rm-0.78": ACK_078.encode(),
}
LISTS = frozenset(
    ["partyid", "routingheader", "reference", "error", "acknowledgment", "schema", "description"]
)


def read(envelope: bytes) -> codec.Received:
    kind = "text/xml" if b"SOAP:" in envelope else "application/vnd.eb+xml"
    return codec.read(Parcel(kind, envelope))


def refusal(root: Element) -> Inconsistent:
    with pytest.raises(ReadFault) as caught:
        read(etree.tostring(root))
    found = [error for error in caught.value.errors if "more than once" in error.problem]
    assert found, caught.value.errors
    assert isinstance(found[0], Inconsistent)
    return found[0]


def doubled(root: Element, may_repeat: Callable[[Element], bool]) -> Iterator[tuple[str, Element]]:
    """The tree with one element standing twice, for each that may not."""
    for number, element in enumerate(root.iter()):
        parent = element.getparent()
        if parent is None or may_repeat(element):
            continue
        made = copy.deepcopy(root)
        here = list(made.iter())[number]
        again = copy.deepcopy(here)
        # What differs is what an attack would be for; what is equal is refused all the same.
        if number % 2 and again.text and again.text.strip() and len(again.text) > 1:
            again.text = again.text[:-1] + "9"
        here.addnext(again)
        yield f"{local_name(parent)}/{local_name(element)}", made


def repeats_in_ebms2(element: Element) -> bool:
    parent = element.getparent()
    assert parent is not None
    if element.tag in (n.HEADER, n.BODY, n.ACK_REQUESTED, n.ACKNOWLEDGMENT, n.ROUTING_HEADER):
        return True
    if parent.tag.startswith(f"{{{n.EB}}}") and element.tag.startswith(f"{{{n.EB}}}"):
        words = STRUCTURE[local_name(parent)][0].split()
        return any(f"{local_name(element)}{mark}" in words for mark in "*+")
    return element.tag == n.DS_REFERENCE


@pytest.mark.parametrize("name", EBMS2)
def test_an_element_of_ebms2_that_may_stand_once_is_refused_twice(name: str) -> None:
    envelope = EBMS2[name]
    assert read(envelope).message
    found = 0
    for what, made in doubled(etree.fromstring(envelope), repeats_in_ebms2):
        if (what, name) == ("MessageData/RefToMessageId", "acknowledgement"):
            continue
        error = refusal(made)
        assert error.location.endswith(f"/{what}"), error.location
        assert error.location.startswith(("//Header/", "//Body/"))
        found += 1
    assert found >= 12


def test_every_element_of_the_tables_was_tried() -> None:
    tried = {
        (element.getparent().tag, element.tag)  # type: ignore[union-attr]
        for envelope in EBMS2.values()
        for element in etree.fromstring(envelope).iter()
        if element.getparent() is not None
    }
    for name, (content, _) in STRUCTURE.items():
        for word in content.split() if not content.startswith("=") else ():
            if word.rstrip("?*+") not in ("other", "ds"):
                tag = f"{{{n.EB}}}{word.rstrip('?*+')}"
                assert (f"{{{n.EB}}}{name}", tag) in tried, (name, word)


def test_every_element_that_we_write_was_tried() -> None:
    """A new element belongs into the envelopes above, so that it is sent twice."""
    tried, written = set(), set()
    for envelope in EBMS2.values():
        tried |= {element.tag for element in etree.fromstring(envelope).iter()}
    for message in some_messages(Dialect.EBMS2):
        envelope = codec.write_envelope(message, samples.form(Dialect.EBMS2))
        written |= {element.tag for element in etree.fromstring(envelope).iter()}
    assert [tag for tag in written - tried if "urn:foreign:" not in tag] == []


@pytest.mark.parametrize("name", DRAFTS)
def test_an_element_of_the_drafts_that_may_stand_once_is_refused_twice(name: str) -> None:
    envelope = DRAFTS[name]
    assert read(envelope).message
    found = 0
    for what, made in doubled(
        etree.fromstring(envelope), lambda one: canonical_tag(one.tag) in LISTS
    ):
        error = refusal(made)
        assert error.location.endswith(what.removeprefix("ebXMLHeader")), error.location
        found += 1
    assert found >= 10


@pytest.mark.parametrize(
    ("old", "new", "location"),
    [
        # An attribute and an element say the same thing in the drafts.
        ("<SenderURI>", "<AckRequested>Signed</AckRequested><SenderURI>", "AckRequested"),
        (
            'deliverySemantics="OnceAndOnlyOnce"',
            'deliverySemantics="OnceAndOnlyOnce" DeliverySemantics="BestEffort"',
            "@deliverysemantics",
        ),
        # A group, or beside it; here or there; by one name or another.
        ("<CPAId>", "<TPAInfo><TPAId>other</TPAId></TPAInfo><CPAId>", "CPAId"),
        ("<CPAId>", "<TPAId>other</TPAId><CPAId>", "CPAId"),
        ("<Action>", "<TPAInfo><Action>Other</Action></TPAInfo><Action>", "Action"),
        (
            'deliverySemantics="OnceAndOnlyOnce"/>',
            'deliverySemantics="OnceAndOnlyOnce" TimeToLive="2001-02-14T10:00:00Z"/>',
            "TimeToLive",
        ),
    ],
)
def test_two_spellings_of_one_thing_are_two(old: str, new: str, location: str) -> None:
    text = REQUEST.replace(old, new, 1)
    assert text != REQUEST
    error = refusal(etree.fromstring(text))
    assert error.location.endswith(location)


def test_two_references_are_taken_where_the_acknowledgement_tells_which_is_meant() -> None:
    two = signal("Acknowledgment", "m-9</eb:RefToMessageId><eb:RefToMessageId>m-0")
    assert read(soap(two + ACK)).message.header.ref_to_message_id == "m-0"
    with pytest.raises(ReadFault, match="RefToMessageId stands more than once"):
        read(soap(two + ACK.replace("m-0", "m-1")))
    with pytest.raises(ReadFault, match="RefToMessageId stands more than once"):
        read(soap(two.replace("Acknowledgment", "Pong")))
