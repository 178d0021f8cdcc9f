"""Signatures: made as ebMS 2.0 §4.1.3 asks, and verified, with the tree from which to read.

`verify` hands back what was signed as a tree of its own, parsed from the very octets whose digest
was checked: a reader of that tree cannot read anything the signature does not cover, whatever
else the received bytes hold. The hop blocks, which the standard leaves unsigned, come beside it.

Certificates and the instant arrive as arguments; no clock is read and nothing is fetched.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from cryptography import x509
from lxml import etree

from oncewire.errors import SecurityFailure
from oncewire.message.envelope import SignedDigest
from oncewire.wire.security import algorithms, certificates, references, wrapping
from oncewire.wire.security import references as nodeset
from oncewire.wire.security.algorithms import SAFE, AlgorithmPolicy, SigningKey
from oncewire.wire.security.certificates import Trust
from oncewire.wire.security.references import DS, Exclusion, PartDigests, SignedReference

if TYPE_CHECKING:
    from oncewire.wire.security.wrapping import ShapedDocument

Parts = Sequence[PartDigests] | Callable[[Sequence[SignedReference]], Sequence[PartDigests]]
"""The digests of the parts, or how they are found for the references that were signed: it is asked
once it is known who signed them."""

# --- reading a signature -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Signature:
    """A ds:Signature taken apart: every piece in the one form it may have."""

    octets: bytes
    name: str
    canonicalization: str
    value: bytes
    references: tuple[SignedReference, ...]
    key_info: tuple[bytes, ...]

    @property
    def envelope_reference(self) -> SignedReference:
        """What is signed of the envelope itself."""
        # Two references to the envelope could leave out different things; which one was read from
        # would be a guess.
        found = [reference for reference in self.references if reference.uri == ""]
        if len(found) != 1:
            raise SecurityFailure(f"the signature covers the envelope {len(found)} times, not once")
        return found[0]


@dataclass(frozen=True, slots=True)
class Standing(Signature):
    """A signature where it stands in a tree."""

    element: etree._Element


def read_signature(header: etree._Element) -> Standing:
    """The first ds:Signature of the header, which is the From Party's (§4.1.1), in parts."""
    # In the SOAP Header and nowhere else (§4.1.1): a signature in a payload is the payload's.
    element = header.find(f"{{{DS}}}Signature")
    if element is None:
        raise SecurityFailure(
            "the message is not signed",
            location="//Header/Signature",
            remedy="the agreement requires a signature",
        )
    # No ds:Object: nothing that is accepted here could refer to one.
    names = [child.tag for child in element]
    expected = [f"{{{DS}}}SignedInfo", f"{{{DS}}}SignatureValue", f"{{{DS}}}KeyInfo"]
    if names not in (expected, expected[:2]):
        raise SecurityFailure("the Signature holds more or less than its three elements")
    # SignedInfo is canonicalised where it stands: inclusive C14N shows the namespaces around it.
    alone = nodeset.standing_alone(element[0])
    # A comment splits a text in two, and parsers differ on which half is the digest.
    if next(alone.iter(etree.Comment, etree.ProcessingInstruction), None) is not None:
        raise SecurityFailure("the SignedInfo holds a comment or a processing instruction")
    inner = [child.tag for child in alone]
    if inner[:2] != [f"{{{DS}}}CanonicalizationMethod", f"{{{DS}}}SignatureMethod"] or any(
        name != f"{{{DS}}}Reference" for name in inner[2:]
    ):
        raise SecurityFailure("the SignedInfo has an unexpected form")
    # An HMACOutputLength of a few bits makes any signature fit (CVE-2009-0217).
    if len(alone[1]):
        raise SecurityFailure("the signature method has parameters")
    canonicalization, prefixes = references.read_canonicalization(alone[0])
    signed = references.read_references(alone)
    return Standing(
        element=element,
        octets=nodeset.element_octets(element[0], alone, canonicalization, prefixes),
        name=algorithms.signature_name(alone[1].get("Algorithm", "")),
        canonicalization=canonicalization,
        value=references.decode_base64(element[1], "SignatureValue"),
        references=signed,
        key_info=certificates.key_info_ders(element[2]) if len(element) == 3 else (),
    )


# --- verifying -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Covered:
    """What a signature covers, and the only octets from which its message may be read."""

    references: tuple[SignedReference, ...]
    # The signed octets: no comment, no signature, nothing addressed to a hop.
    octets: bytes
    # The signed octets with the hop blocks back in the header, for a reader of whole envelopes.
    # Such a reader must treat those blocks as unsigned; the checks have made sure that no block of
    # the sender can be among them.
    readable: bytes
    # Names of header blocks that the standard leaves unsigned, because every hop may write them
    # anew.
    hop_blocks: tuple[str, ...]
    # Content-IDs of received parts that nothing signs; they are not to be read.
    unsigned_parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verified(Covered):
    """What a good signature proves: the agreed partner signed what it covers."""

    certificate: x509.Certificate
    signature_name: str


def verify_signature(
    envelope: bytes, parts: Parts, trust: Trust, now: int, policy: AlgorithmPolicy = SAFE
) -> Verified:
    """What the signature on these received bytes proves, or SecurityFailure saying why not."""
    root = nodeset.parse(envelope)
    frame = wrapping.frame_of(root)
    signature = read_signature(frame.header)
    # Cheap checks first: the sender is not known yet, and keys and digests cost.
    check_policy(signature, policy)
    covering = signature.envelope_reference
    wrapping.check_blocks(root, frame)
    # The value before the digests, both of which XML Signature §3.2 asks for: only digests that the
    # partner signed are worth computing.
    certificate = signer_of(signature, trust, now, policy)
    shown = _cover(root, frame, signature, covering, part_digests(signature, parts))
    return Verified(
        shown.references,
        shown.octets,
        shown.readable,
        shown.hop_blocks,
        shown.unsigned_parts,
        certificate,
        signature.name,
    )


def covered(envelope: bytes, parts: Parts) -> Covered:
    """What the signature on these bytes covers, without verifying it: for bytes that were verified
    when they arrived, under certificates that may have expired since."""
    root = nodeset.parse(envelope)
    frame = wrapping.frame_of(root)
    signature = read_signature(frame.header)
    wrapping.check_blocks(root, frame)
    found = part_digests(signature, parts)
    return _cover(root, frame, signature, signature.envelope_reference, found)


def part_digests(signature: Signature, parts: Parts) -> Sequence[PartDigests]:
    """The digests of the parts that a signature is compared with."""
    return parts(signature.references) if callable(parts) else parts


def _cover(
    root: etree._Element,
    frame: wrapping.ShapedDocument,
    signature: Standing,
    covering: SignedReference,
    parts: Sequence[PartDigests],
) -> Covered:
    """The signed octets, whose digests must be the signed ones, and what lies beside them."""
    left_out = (covering.exclusion or nodeset.NOTHING).subtrees(root)
    # Before the octets are made, because the tree is taken apart for them.
    wrapping.check_left_out(left_out, frame)
    octets = covered_octets(root, signature, left_out)
    if not covering.same_digest(algorithms.digest(covering.digest_name, octets)):
        raise SecurityFailure("the envelope was changed: its digest is not the signed one")
    check_part_digests(signature.references, parts)
    # What is seen is what was signed (XML Signature §8.1.3): everything below reads this tree, not
    # the received one.
    view = nodeset.parse(octets)
    manifest = wrapping.manifest_uris(view, frame.shape.manifest)
    unsigned = wrapping.check_parts(
        [references.content_id_of(uri) or "" for uri in manifest],
        signature.references,
        [part.content_id for part in parts],
    )
    tags = tuple(str(block.tag) for block in left_out)
    return Covered(signature.references, octets, readable(octets, view, left_out), tags, unsigned)


def readable(octets: bytes, view: etree._Element, left_out: Sequence[etree._Element]) -> bytes:
    """The signed octets, of which `view` is the tree, with the hop blocks back in the header."""
    if not left_out:
        return octets
    header = wrapping.frame_of(view).header
    for block in left_out:
        # At the end: where they stood among the signed blocks means nothing, and their order is
        # kept.
        header.append(copy.deepcopy(block))
    return etree.tostring(view.getroottree(), encoding="utf-8", xml_declaration=False)


def check_policy(signature: Signature, policy: AlgorithmPolicy) -> None:
    """Refuse a signature that is made otherwise than the agreement allows."""
    policy.check_signature(signature.name)
    policy.check_canonicalization(signature.canonicalization)
    # Digests too: a strong signature over a weak digest signs whatever else has that digest.
    for reference in signature.references:
        policy.check_digest(reference.digest_name)
        if reference.canonicalization is not None:
            policy.check_canonicalization(reference.canonicalization)


def signer_of(
    signature: Signature, trust: Trust, now: int, policy: AlgorithmPolicy
) -> x509.Certificate:
    """The agreed certificate whose key made the signature value; it must be good now."""
    trouble: SecurityFailure | None = None
    for certificate in certificates.candidates(signature.key_info, trust):
        try:
            certificates.check(certificate, trust, now, signature.key_info)
            good = algorithms.verify_octets(
                certificate, signature.name, signature.octets, signature.value, policy.min_rsa_bits
            )
        except SecurityFailure as failure:
            # With two pins good at once, the first may have expired while the second signed.
            trouble = failure
            continue
        if good:
            return certificate
    raise trouble or SecurityFailure(
        "the signature value was not made with the agreed certificate's key",
        location="//Header/Signature/SignatureValue",
    )


def covered_octets(
    root: etree._Element, signature: Standing, left_out: Sequence[etree._Element]
) -> bytes:
    """The octets that the reference to the envelope means; takes the tree apart."""
    covering = signature.envelope_reference
    return nodeset.document_octets(
        root,
        # This signature alone goes (XML Signature §6.6.4): one that another party added is signed
        # content.
        [*left_out, signature.element],
        covering.canonicalization or "c14n",
        covering.prefixes,
    )


def check_part_digests(signed: Sequence[SignedReference], parts: Sequence[PartDigests]) -> None:
    """Refuse parts that are not what was signed of them."""
    # Of decoded content: a gateway may change the transfer encoding, and the signature must survive
    # it.
    received = {references.bare_content_id(part.content_id): part for part in parts}
    for reference in signed:
        content_id = reference.content_id
        if content_id is None:
            continue
        part = received.get(content_id)
        location = f"cid:{content_id[:120]}"
        if part is None:
            raise SecurityFailure(
                f"signed part {content_id[:120]!r} did not arrive", location=location
            )
        if not reference.same_digest(part.digests.get(reference.digest_name)):
            raise SecurityFailure(
                f"part {content_id[:120]!r} was changed: its digest is not the signed one",
                location=location,
            )


# --- looking without believing -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SignatureReport:
    """How each piece of a signature stands by itself, for a person who looks into a message."""

    signature_name: str
    # The certificate the message itself shows, and whether the value was made with its key.
    certificate: x509.Certificate | None
    value_good: bool
    # Each reference's URI, and whether what it names has the signed digest.
    references: tuple[tuple[str, bool], ...]
    # The octets of the envelope that the signature covers, if their digest is good.
    octets: bytes


def signed_references(envelope: bytes) -> tuple[SignedReference, ...]:
    """What the signature of an envelope says of each thing that it covers, believed or not."""
    return read_signature(wrapping.frame_of(nodeset.parse(envelope)).header).references


def inspect(
    envelope: bytes, parts: Sequence[PartDigests], known: Sequence[x509.Certificate] = ()
) -> SignatureReport:
    """A report on the signature; it trusts nothing and therefore proves nothing. Where it shows no
    certificate, the first of those that are known is taken whose key made it."""
    root = nodeset.parse(envelope)
    signature = read_signature(wrapping.frame_of(root).header)
    shown = [certificates.from_der(der) for der in signature.key_info[:1]]
    # No bound on the key: this reports and does not judge.
    makers = [
        certificate
        for certificate in shown or known
        if algorithms.verify_octets(
            certificate, signature.name, signature.octets, signature.value, 0
        )
    ]
    covering = signature.envelope_reference
    left_out = (covering.exclusion or nodeset.NOTHING).subtrees(root)
    octets = covered_octets(root, signature, left_out)
    received = {references.bare_content_id(part.content_id): part.digests for part in parts}
    states = []
    for reference in signature.references:
        content_id = reference.content_id
        found = (
            algorithms.digest(reference.digest_name, octets)
            if content_id is None
            else received.get(content_id, {}).get(reference.digest_name)
        )
        states.append((reference.uri, reference.same_digest(found)))
    certificate = next(iter([*makers, *shown]), None)
    return SignatureReport(signature.name, certificate, bool(makers), tuple(states), octets)


def acknowledged_digests(signed: tuple[SignedReference, ...]) -> tuple[SignedDigest, ...]:
    """The references of a signature as an acknowledgement carries them (§6.3.2.5)."""
    return tuple(
        SignedDigest(
            reference.uri,
            algorithms.DIGEST_URIS[reference.digest_name],
            reference.digest,
            references.reference_xml(reference)
            .replace("<ds:Reference ", f'<ds:Reference xmlns:ds="{DS}" ', 1)
            .encode(),
        )
        for reference in signed
    )


# Signing an envelope and its parts, as ebMS 2.0 §4.1.3 asks.
#
# The given bytes are written into and none of them changes: the signature is inserted before the
# end of the header. Keys and certificates arrive as arguments.

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


def envelope_octets(envelope: bytes) -> bytes:
    """The octets of an unsigned envelope that the first of those references digests."""
    root = references.parse(envelope)
    left_out = wrapping.frame_of(root).shape.exclusion.subtrees(root)
    return references.document_octets(root, left_out, "c14n")


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
    # The URI of each part as the Manifest writes it: the standard wants both equal. §4.1.3: the
    # reference has the URI of the Manifest; an equal part under another spelling is another text.
    written = {references.content_id_of(uri): uri for uri in given.manifest}
    named = [references.bare_content_id(part.content_id) for part in parts]
    missing = sorted(str(content_id) for content_id in written.keys() - set(named))
    if missing:
        raise SecurityFailure(f"part {missing[0][:120]!r} of the Manifest has no digest to sign")
    if len(set(named)) != len(named):
        raise SecurityFailure("two parts have one Content-ID")
    uris = [written.get(content_id, f"cid:{content_id}") for content_id in named]
    made = algorithms.digest(digest, given.octets)
    first = SignedReference("", digest, made, given.exclusion, canonicalization)
    rest = [
        SignedReference(uri, digest, _digest_of(part, digest))
        for uri, part in zip(uris, parts, strict=True)
    ]
    return (first, *rest)


def _digest_of(part: PartDigests, name: str) -> bytes:
    found = part.digests.get(name)
    if found is None:
        raise SecurityFailure(f"part {part.content_id[:120]!r} comes without its {name} digest")
    return found


def _key_info_xml(certificate: x509.Certificate) -> str:
    encoded = base64.b64encode(certificates.der_of(certificate)).decode("ascii")
    return (
        f"<ds:KeyInfo><ds:X509Data><ds:X509Certificate>{encoded}</ds:X509Certificate>"
        "</ds:X509Data></ds:KeyInfo>"
    )
