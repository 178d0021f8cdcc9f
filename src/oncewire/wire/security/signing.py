"""Signing an envelope and its parts, as ebMS 2.0 §4.1.3 asks.

The given bytes are written into and none of them changes: the signature is inserted before the end
of the header. Keys and certificates arrive as arguments.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from cryptography import x509
from lxml import etree

from oncewire.errors import SecurityFailure
from oncewire.wire.security import algorithms, certificates, references, wrapping
from oncewire.wire.security.algorithms import SigningKey
from oncewire.wire.security.references import DS, Exclusion, PartDigests, SignedReference

if TYPE_CHECKING:
    from oncewire.wire.security.wrapping import ShapedDocument

_XML = "{http://www.w3.org/XML/1998/namespace}"


@dataclass(frozen=True, slots=True)
class Unsigned:
    """An unsigned envelope as far as its signature depends on it."""

    octets: bytes
    # The `cid:` references of its Manifest.
    manifest: tuple[str, ...]
    exclusion: Exclusion
    # What is in force in its header, and where a signature goes in.
    context: str
    insert_at: int


def unsigned(envelope: bytes, canonicalization: str) -> Unsigned:
    """What a signature of the envelope depends on."""
    root = references.parse(envelope)
    frame = wrapping.frame_of(root)
    # The first signature is read as the From Party's (§4.1.1), so a second one would not count.
    if frame.header.find(f"{{{DS}}}Signature") is not None:
        raise SecurityFailure("the envelope is signed already")
    # The context is taken before the tree is taken apart for its digest.
    context, insert_at = _context(frame.header), _header_end(envelope, frame.header)
    return _unsigned(root, frame, canonicalization, context, insert_at)


def _unsigned(
    root: etree._Element, frame: ShapedDocument, canonicalization: str, context: str, insert_at: int
) -> Unsigned:
    """Takes the tree apart. What our own verifier would refuse is not signed in the first place."""
    wrapping.check_blocks(root, frame)
    left_out = frame.shape.exclusion.subtrees(root)
    wrapping.check_left_out(left_out, frame)
    manifest = tuple(wrapping.manifest_uris(root, frame.shape.manifest))
    octets = references.document_octets(root, left_out, canonicalization)
    return Unsigned(octets, manifest, frame.shape.exclusion, context, insert_at)


def envelope_octets(envelope: bytes, canonicalization: str = "c14n") -> bytes:
    """The octets of an unsigned envelope that the first of those references digests."""
    root = references.parse(envelope)
    left_out = wrapping.frame_of(root).shape.exclusion.subtrees(root)
    return references.document_octets(root, left_out, canonicalization)


def info_octets(document: bytes, method: str) -> bytes:
    """The octets of a SignedInfo in its Signature, whose document has what is in force there."""
    element = references.parse(document)[0][0]
    return references.element_octets(element, references.standing_alone(element), method)


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


@dataclass(frozen=True, slots=True)
class SigningChoice:
    """The algorithms the agreement names for what we sign, by short name."""

    signature: str = "rsa-sha256"
    digest: str = "sha256"
    # What §4.1.3 names; a partner of 2002 may know no other.
    canonicalization: str = "c14n"


@dataclass(frozen=True, slots=True)
class Signed:
    """A signed envelope, and the digests a signed acknowledgment of it must carry."""

    envelope: bytes
    references: tuple[SignedReference, ...]


def sign(
    envelope: bytes,
    parts: Sequence[PartDigests],
    key: SigningKey,
    certificate: x509.Certificate,
    choice: SigningChoice = SigningChoice(),  # noqa: B008  (frozen)
    unsigned_of: Callable[[bytes, str], Unsigned] = unsigned,
    octets_of: Callable[[bytes, str], bytes] = info_octets,
) -> Signed:
    """The envelope with a ds:Signature over itself and over every part.

    Each part brings its digest by the chosen algorithm, so that its content need not be at hand.
    Templates give the same as the two functions, sooner.
    """
    method = choice.canonicalization
    given = unsigned_of(envelope, method)
    signed = _references(given, parts, choice.digest, method)
    canonical = algorithms.CANONICAL_URIS[method]
    signed_info = (
        "<ds:SignedInfo>"
        f'<ds:CanonicalizationMethod Algorithm="{canonical}"/>'
        f'<ds:SignatureMethod Algorithm="{algorithms.SIGNATURE_URIS[choice.signature]}"/>'
        f"{''.join(references.reference_xml(reference) for reference in signed)}"
        "</ds:SignedInfo>"
    )
    opened = f'<ds:Signature xmlns:ds="{DS}">{signed_info}'
    # Canonicalised as its verifier will see it, in the header with all that is in force there.
    octets = octets_of(f"<r {given.context}>{opened}</ds:Signature></r>".encode(), method)
    value = base64.b64encode(algorithms.sign_octets(key, choice.signature, octets)).decode("ascii")
    signature = (
        f"{opened}<ds:SignatureValue>{value}</ds:SignatureValue>"
        f"{_key_info_xml(certificate)}</ds:Signature>"
    ).encode()
    at = given.insert_at
    return Signed(envelope[:at] + signature + envelope[at:], signed)


def computed_references(
    envelope: bytes, parts: Sequence[PartDigests], digest: str, canonicalization: str = "c14n"
) -> tuple[SignedReference, ...]:
    """The references a signature of this unsigned message would carry.

    A signed acknowledgment of an unsigned message carries them as its proof of receipt, and the
    sender computes them from what it sent to check that proof.
    """
    root = references.parse(envelope)
    given = _unsigned(root, wrapping.frame_of(root), canonicalization, "", -1)
    return _references(given, parts, digest, canonicalization)


def _references(
    given: Unsigned, parts: Sequence[PartDigests], digest: str, canonicalization: str
) -> tuple[SignedReference, ...]:
    """The digests of envelope and parts."""
    uris = _uris_of_parts(given.manifest, parts)
    made = algorithms.digest(digest, given.octets)
    first = SignedReference("", digest, made, given.exclusion, canonicalization)
    rest = [
        SignedReference(uri, digest, _digest_of(part, digest))
        for uri, part in zip(uris, parts, strict=True)
    ]
    return (first, *rest)


def _uris_of_parts(manifest: Sequence[str], parts: Sequence[PartDigests]) -> list[str]:
    """The URI of each part as the Manifest writes it: the standard wants both equal."""
    # §4.1.3: the reference has the URI of the Manifest; an equal part under another spelling is
    # another text.
    written = {references.content_id_of(uri): uri for uri in manifest}
    named = [references.bare_content_id(part.content_id) for part in parts]
    missing = sorted(str(content_id) for content_id in written.keys() - set(named))
    if missing:
        raise SecurityFailure(f"part {missing[0][:120]!r} of the Manifest has no digest to sign")
    if len(set(named)) != len(named):
        raise SecurityFailure("two parts have one Content-ID")
    return [written.get(content_id, f"cid:{content_id}") for content_id in named]


def _digest_of(part: PartDigests, name: str) -> bytes:
    found = part.digests.get(name)
    if found is None:
        raise SecurityFailure(f"part {part.content_id[:120]!r} comes without its {name} digest")
    return found


@functools.lru_cache(maxsize=64)
def _key_info_xml(certificate: x509.Certificate) -> str:
    encoded = base64.b64encode(certificates.der_of(certificate)).decode("ascii")
    return (
        f"<ds:KeyInfo><ds:X509Data><ds:X509Certificate>{encoded}</ds:X509Certificate>"
        "</ds:X509Data></ds:KeyInfo>"
    )
