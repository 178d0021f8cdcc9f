"""What may stand where in a signed message, so that what is read is what was signed.

The ebMS 2.0 transform leaves out *any* element that carries actor next or nextMSH, so a second
MessageHeader with that attribute would ride along under a good signature. Here is the list of what
may be left out, and the rule that every block stands once and in its own place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lxml import etree

from oncewire.errors import SecurityFailure
from oncewire.wire.security import references as nodeset
from oncewire.wire.security.references import (
    ACTOR,
    SOAP,
    Exclusion,
    SignedReference,
    bare_content_id,
    content_id_of,
)

EB = "http://www.oasis-open.org/committees/ebxml-msg/schema/msg-header-2_0.xsd"
EXT = "urn:oncewire:ext:1"
XLINK_HREF = "{http://www.w3.org/1999/xlink}href"
TO_PARTY_MSH = "urn:oasis:names:tc:ebxml-msg:actor:toPartyMSH"
# eb:id, xml:id, wsu:Id and the Id of XML Signature: nothing here follows one, but a document in
# which one name means two elements was not made by an honest sender.
_WSU = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd"
_XML = "http://www.w3.org/XML/1998/namespace"
_IDS = frozenset({"id", "Id", "ID", f"{{{_XML}}}id", f"{{{EB}}}id", f"{{{_WSU}}}Id"})


@dataclass(frozen=True, slots=True)
class Shape:
    """What one kind of document holds: where each block stands and what a hop may change."""

    # Each block that may stand in the document, and the one place it may have.
    places: Mapping[str, str]
    # The block that must stand exactly once, and those that every hop rewrites.
    required: str
    hop_blocks: frozenset[str]
    # What the standard's transform leaves out of this kind of document.
    exclusion: Exclusion
    manifest: str


@dataclass(frozen=True, slots=True)
class ShapedDocument:
    """A document with its shape: the elements that its places mean."""

    shape: Shape
    # The element that carries the blocks and the signature.
    header: etree._Element
    elements: Mapping[str, etree._Element | None]


EBMS2 = Shape(
    # A block of the right name in the wrong place is how a signature is kept good while another
    # block is read.
    places={
        f"{{{SOAP}}}Envelope": "nowhere",
        f"{{{SOAP}}}Header": "root",
        f"{{{SOAP}}}Body": "root",
        f"{{{EB}}}MessageHeader": "header",
        f"{{{EB}}}MessageOrder": "header",
        f"{{{EB}}}AckRequested": "header",
        f"{{{EB}}}Acknowledgment": "header",
        f"{{{EB}}}SyncReply": "header",
        f"{{{EB}}}ErrorList": "header",
        f"{{{EXT}}}HopSequence": "header",
        f"{{{EXT}}}RoutingHeaderList": "header",
        f"{{{EB}}}Manifest": "body",
        f"{{{EB}}}StatusRequest": "body",
        f"{{{EB}}}StatusResponse": "body",
    },
    required=f"{{{EB}}}MessageHeader",
    # What §4.1.3 means to leave out, and no more: these may carry the hop's actor.
    hop_blocks=frozenset(
        {
            f"{{{EB}}}AckRequested",
            f"{{{EB}}}Acknowledgment",
            f"{{{EB}}}SyncReply",
            f"{{{EXT}}}HopSequence",
            f"{{{EXT}}}RoutingHeaderList",
        }
    ),
    exclusion=nodeset.EBMS2,
    manifest=f"{{{EB}}}Manifest",
)


def frame_of(root: etree._Element) -> ShapedDocument:
    """The frame of the document, or SecurityFailure where there is none that can be signed."""
    if root.tag == f"{{{SOAP}}}Envelope":
        children = list(root.iterchildren(etree.Element))
        # SOAP 1.1 §4: Header first, then Body. Elements after the Body are allowed there; we do not
        # read them.
        names = [child.tag for child in children]
        if names[:1] != [f"{{{SOAP}}}Header"] or names.count(f"{{{SOAP}}}Header") != 1:
            raise SecurityFailure("the envelope does not begin with exactly one SOAP Header")
        if names[1:2] != [f"{{{SOAP}}}Body"] or names.count(f"{{{SOAP}}}Body") != 1:
            raise SecurityFailure("the SOAP Header is not followed by exactly one SOAP Body")
        header, body = children[:2]
        return ShapedDocument(
            EBMS2, header, {"nowhere": None, "root": root, "header": header, "body": body}
        )
    name = etree.QName(root)
    if name.localname == "ebXMLHeader":
        return _draft_frame(root, name.namespace)
    raise SecurityFailure(f"{str(root.tag)[:120]} is neither a SOAP envelope nor an ebXMLHeader")


def _draft_frame(root: etree._Element, namespace: str | None) -> ShapedDocument:
    """Drafts up to 0.93: the blocks stand in ebXMLHeader itself; a hop rewrites its routing.

    The drafts' own signature section is lost; this follows MS 1.0, whose transform leaves out by
    name what a hop rewrites. September 2000 has a single RoutingHeader where 0.9x has a list.
    """
    space = f"{{{namespace}}}" if namespace else ""
    # Only the one that it has is the hop's; the other, should it stand there too, must be signed.
    single = root.find(f"{space}RoutingHeader") is not None
    hop = f"{space}RoutingHeader" if single else f"{space}RoutingHeaderList"
    places = {f"{space}{name}": "root" for name in _DRAFT_BLOCKS} | {hop: "root"}
    shape = Shape(
        places=places | {str(root.tag): "nowhere"},
        required=f"{space}Header",
        hop_blocks=frozenset({hop}),
        exclusion=Exclusion(elements=frozenset({hop})),
        manifest=f"{space}Manifest",
    )
    return ShapedDocument(shape, root, {"nowhere": None, "root": root})


_DRAFT_BLOCKS = (
    "Manifest",
    "Header",
    "RoutingHeaderList",
    "StatusData",
    "ErrorList",
    "Acknowledgment",
    "Acknowledgement",
)


def check_blocks(root: etree._Element, frame: ShapedDocument) -> None:
    """Every block once per actor and in its own place, and no id given twice, signed or not."""
    _check_ids(root)
    shape = frame.shape
    seen: set[tuple[str, str]] = set()
    # Anywhere in the document, however deep: wrapped copies hide in foreign elements.
    for element in root.iter(*shape.places):
        tag = str(element.tag)
        if element.getparent() is not frame.elements[shape.places[tag]]:
            raise SecurityFailure(f"{_local_name(tag)} stands where the standard has none of it")
        # An absent actor means the To Party, so both spellings are one block given twice.
        actor = element.get(ACTOR, TO_PARTY_MSH) if tag in shape.hop_blocks else ""
        if (tag, actor) in seen:
            raise SecurityFailure(
                f"{_local_name(tag)} stands twice", location=f"//{_local_name(tag)}"
            )
        seen.add((tag, actor))
    if (shape.required, "") not in seen:
        raise SecurityFailure(f"the message has no {_local_name(shape.required)}")


def _check_ids(root: etree._Element) -> None:
    """One look at each attribute: a stranger may have written them, and many."""
    given: set[str] = set()
    for element in root.iter(etree.Element):
        for name, value in element.items():
            if name not in _IDS:
                continue
            text = str(value)
            if text in given:
                raise SecurityFailure(f"the id {text[:120]!r} is given to two elements")
            given.add(text)


def check_left_out(subtrees: Iterable[etree._Element], frame: ShapedDocument) -> None:
    """Refuse a signature that leaves out anything but the blocks a hop may rewrite."""
    for element in subtrees:
        tag = str(element.tag)
        if element.getparent() is not frame.header or tag not in frame.shape.hop_blocks:
            raise SecurityFailure(
                f"{_local_name(tag)} is addressed to the next hop, so no signature covers it",
                location=f"//{_local_name(tag)}/@actor",
                remedy="only AckRequested, Acknowledgment, SyncReply and hop blocks may be",
            )


def check_parts(
    manifest_ids: Sequence[str], references: Sequence[SignedReference], received: Sequence[str]
) -> tuple[str, ...]:
    """Every part of the Manifest is signed, each Content-ID once; hands back the unsigned parts."""
    signed: set[str] = set()
    # Two references to one part could hold two digests, of which one fits.
    for reference in references:
        content_id = reference.content_id
        if content_id is None:
            continue
        if content_id in signed:
            raise SecurityFailure(f"the signature refers to part {content_id[:120]!r} twice")
        signed.add(content_id)
    known: set[str] = set()
    for content_id in received:
        bare = bare_content_id(content_id)
        if not bare:
            continue  # nothing can refer to a part without a name, so nothing is read from it
        if bare in known:
            raise SecurityFailure(
                f"two parts have the Content-ID {bare[:120]!r}", location=f"cid:{bare[:120]}"
            )
        known.add(bare)
    # The Manifest is signed, so a part that it names without a signature of its own was replaced,
    # or left out by the signer's mistake.
    for content_id in manifest_ids:
        if content_id not in signed:
            raise SecurityFailure(
                f"part {content_id[:120]!r} of the Manifest is not signed",
                location=f"cid:{content_id[:120]}",
            )
    return tuple(sorted(known - signed))


def manifest_uris(root: etree._Element, manifest: str) -> list[str]:
    """The `cid:` references of the Manifest, as they are written."""
    return [
        href
        for block in root.iter(manifest)
        for element in block.iter(etree.Element)
        if (href := element.get(XLINK_HREF)) is not None and content_id_of(href) is not None
    ]


def _local_name(tag: str) -> str:
    """A Clark name as a reader says it: without its namespace."""
    return tag.rpartition("}")[2][:120]
