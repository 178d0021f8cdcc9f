"""Whether a received message is what its partner signed, and the tree from which to read it.

`verify` hands back what was signed as a tree of its own, parsed from the very octets whose digest
was checked: a reader of that tree cannot read anything the signature does not cover, whatever
else the received bytes hold. The hop blocks, which the standard leaves unsigned, come beside it.

Certificates and the instant arrive as arguments; no clock is read and nothing is fetched.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cryptography import x509
from lxml import etree

from oncewire.errors import SecurityFailure
from oncewire.message.envelope import SignedDigest
from oncewire.wire.security import algorithms, certificates, references, wrapping
from oncewire.wire.security import references as nodeset
from oncewire.wire.security.algorithms import SAFE, AlgorithmPolicy
from oncewire.wire.security.certificates import Trust
from oncewire.wire.security.references import DS, PartDigests, SignedReference

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
    envelope: bytes,
    parts: Parts,
    trust: Trust,
    now: int,
    policy: AlgorithmPolicy = SAFE,
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
