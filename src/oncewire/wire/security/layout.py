"""Layout: an unsigned envelope as far as its signature depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from lxml import etree

from oncewire.errors import SecurityFailure
from oncewire.wire.security import nodeset, wrapping
from oncewire.wire.security.nodeset import Exclusion
from oncewire.wire.security.references import DS
from oncewire.wire.security.wrapping import ShapedDocument

_XML = "{http://www.w3.org/XML/1998/namespace}"


@dataclass(frozen=True, slots=True)
class Laid:
    """An unsigned envelope as far as its signature depends on it."""

    octets: bytes
    # The `cid:` references of its Manifest.
    manifest: tuple[str, ...]
    exclusion: Exclusion
    # What is in force in its header, and where a signature goes in.
    context: str
    insert_at: int


def laid_out(envelope: bytes, canonicalization: str) -> Laid:
    """What a signature of the envelope depends on."""
    root = nodeset.parse(envelope)
    frame = wrapping.frame_of(root)
    # The first signature is read as the From Party's (§4.1.1): a second of ours would be nobody's.
    if frame.header.find(f"{{{DS}}}Signature") is not None:
        raise SecurityFailure("the envelope is signed already")
    # The context is taken before the tree is taken apart for its digest.
    context, insert_at = _context(frame.header), _header_end(envelope, frame.header)
    return lay(root, frame, canonicalization, context, insert_at)


def lay(
    root: etree._Element, frame: ShapedDocument, canonicalization: str, context: str, insert_at: int
) -> Laid:
    """Takes the tree apart. What our own verifier would refuse is not signed in the first place."""
    wrapping.check_blocks(root, frame)
    left_out = frame.shape.exclusion.subtrees(root)
    wrapping.check_left_out(left_out, frame)
    manifest = tuple(wrapping.manifest_uris(root, frame.shape.manifest))
    octets = nodeset.document_octets(root, left_out, canonicalization)
    return Laid(octets, manifest, frame.shape.exclusion, context, insert_at)


def envelope_octets(envelope: bytes, canonicalization: str = "c14n") -> bytes:
    """The octets of an unsigned envelope that the first of those references digests."""
    root = nodeset.parse(envelope)
    left_out = wrapping.frame_of(root).shape.exclusion.subtrees(root)
    return nodeset.document_octets(root, left_out, canonicalization)


def info_octets(document: bytes, method: str) -> bytes:
    """The octets of a SignedInfo in its Signature, whose document has what is in force there."""
    element = nodeset.parse(document)[0][0]
    return nodeset.element_octets(element, nodeset.standing_alone(element), method)


def _context(header: etree._Element) -> str:
    """The header's place as an empty start tag: its namespaces and inherited `xml:` attributes.

    Inclusive canonicalization shows both on SignedInfo, so it must be read where it will stand.
    """
    bound = [
        f"xmlns{':' + prefix if prefix else ''}={quoteattr(uri)}"
        for prefix, uri in header.nsmap.items()
    ]
    inherited: dict[str, str] = {}
    for element in (header, *header.iterancestors()):
        for name, value in element.items():
            if str(name).startswith(_XML):
                inherited.setdefault(str(name)[len(_XML) :], str(value))
    kept = [f"xml:{name}={quoteattr(value)}" for name, value in inherited.items()]
    return " ".join([*bound, *kept])


def _header_end(envelope: bytes, header: etree._Element) -> int:
    """Where the header's end tag begins in the bytes."""
    encoding = header.getroottree().docinfo.encoding or "UTF-8"
    # The signature is inserted as bytes, and its bytes are ASCII.
    if encoding.upper().startswith(("UTF-16", "UTF-32", "UCS")):
        raise SecurityFailure(f"cannot sign an envelope in {encoding}", remedy="write it in UTF-8")
    name = etree.QName(header).localname
    tag = f"</{header.prefix}:{name}" if header.prefix else f"</{name}"
    # A well-formed document has that end tag, so if the text stands there once, this is it; only
    # a comment or a CDATA section could hold it again, and then the slower way finds out.
    if envelope.count(tag.encode("utf-8")) == 1:
        return envelope.index(tag.encode("utf-8"))
    return _end_by_expat(envelope, depth=sum(1 for _ in header.iterancestors()))


def _end_by_expat(envelope: bytes, depth: int) -> int:
    """The byte position of the first end tag at this depth: expat counts bytes, lxml does not."""
    parser = expat.ParserCreate()
    level = 0
    found = -1

    def start(_name: str, _attributes: dict[str, str]) -> None:
        nonlocal level
        level += 1

    def end(_name: str) -> None:
        nonlocal level, found
        level -= 1
        if level == depth and found < 0:
            found = parser.CurrentByteIndex

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    try:
        parser.Parse(envelope, True)
    except expat.ExpatError as trouble:
        raise SecurityFailure(f"the envelope is not well-formed: {trouble}") from trouble
    return found
