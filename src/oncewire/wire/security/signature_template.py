"""SignatureTemplate: a signed envelope of a kind that was seen before, checked without its tree.

A signature is good if three things hold: its value was made by the agreed key over the SignedInfo,
and the digests in that are those of the envelope's signed octets and of the parts. All three are
checked here for every message, by the same functions as for any other, and so are the certificate,
the algorithms and what the Manifest names. What is learned is only how the octets follow from the
bytes (`pattern`), and what follows from the markup alone: which blocks stand where, what is left
out, how the references are made. Texts that say how something is signed (the XPath expression, the
certificates) are not holes: they must be the learned ones.

Nothing is refused here. What is not good in this way is judged by `signature`, which also says why.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from lxml import etree

from oncewire.errors import SecurityFailure
from oncewire.wire.security import algorithms, references, signature, wrapping
from oncewire.wire.security import references as nodeset
from oncewire.wire.security.algorithms import SAFE, AlgorithmPolicy
from oncewire.wire.security.certificates import Trust
from oncewire.wire.security.references import DS, SignedReference
from oncewire.wire.security.signature import Covered, Parts, Signature, Verified
from oncewire.wire.security.signing import Layouts
from oncewire.wire.templates.pattern import (
    DOCUMENT_MAX,
    BoundedCache,
    Pattern,
    SlottedBytes,
    hole_of,
    holes_in,
    perforated,
)


class SignatureTemplate:
    """What was learned of one signed envelope."""

    __slots__ = (
        "_base", "_envelope", "_fixed", "_hop_blocks", "_info", "_manifest",
        "_readable", "_references", "_value",
    )  # fmt: skip

    def __init__(self, document: SlottedBytes) -> None:
        fixed = _fixed_holes(document)
        self._fixed = [(number, document.holes[number]) for number in sorted(fixed)]
        root = nodeset.parse(document.marked(fixed))
        frame = wrapping.frame_of(root)
        base = signature.read_signature(frame.header)
        wrapping.check_blocks(root, frame)
        covering = base.envelope_reference
        left_out = (covering.exclusion or nodeset.NOTHING).subtrees(root)
        wrapping.check_left_out(left_out, frame)
        octets = signature.covered_octets(root, base, left_out)
        view = nodeset.parse(octets)
        self._base = base
        self._value = _hole_of_base64(base.value)
        # Of each reference: the holes of its part's name and of its digest.
        self._references = [
            (each, _hole_of_uri(each.uri), _hole_of_base64(each.digest)) for each in base.references
        ]
        self._manifest = [
            (references.content_id_of(uri) or "", _hole_of_uri(uri))
            for uri in wrapping.manifest_uris(view, frame.shape.manifest)
        ]
        self._hop_blocks = tuple(str(block.tag) for block in left_out)
        self._envelope, self._info = Pattern(octets), Pattern(base.octets)
        self._readable = Pattern(signature.readable(octets, view, left_out))

    def references(self, holes: Sequence[bytes]) -> tuple[SignedReference, ...] | None:
        """What an envelope of this kind signs; None where that has to be read."""
        if any(holes[number] != text for number, text in self._fixed):
            return None
        try:
            return tuple(
                [
                    SignedReference(
                        base.uri if name is None else "cid:" + holes[name].decode("ascii"),
                        base.digest_name,
                        base.digest if digest is None else _decoded(holes[digest]),
                        base.exclusion,
                        base.canonicalization,
                        base.prefixes,
                    )
                    for base, name, digest in self._references
                ]
            )
        except binascii.Error:
            return None

    def signature(self, holes: Sequence[bytes]) -> Signature | None:
        """The signature of an envelope of this kind; None where it has to be read."""
        signed, base = self.references(holes), self._base
        if signed is None or self._value is None:
            return None
        try:
            value = _decoded(holes[self._value])
        except binascii.Error:
            return None
        info = self._info.octets(holes)
        return Signature(info, base.name, base.canonicalization, value, signed, base.key_info)

    def shows(self, holes: Sequence[bytes], truth: Covered) -> bool:
        """Whether the octets of an envelope of this kind are those."""
        made = self._envelope.octets(holes), self._readable.octets(holes), self._hop_blocks
        return made == (truth.octets, truth.readable, truth.hop_blocks)

    def verify(
        self, holes: Sequence[bytes], parts: Parts, trust: Trust, now: int, policy: AlgorithmPolicy
    ) -> Verified | None:
        """What the signature proves; None where that has to be found out otherwise."""
        found = self.signature(holes)
        if found is None:
            return None
        try:
            signature.check_policy(found, policy)
            certificate = signature.signer_of(found, trust, now, policy)
            octets, covering = self._envelope.octets(holes), found.envelope_reference
            if not covering.same_digest(algorithms.digest(covering.digest_name, octets)):
                return None
            digests = signature.part_digests(found, parts)
            signature.check_part_digests(found.references, digests)
            unsigned = wrapping.check_parts(
                [
                    content_id if hole is None else holes[hole].decode("ascii")
                    for content_id, hole in self._manifest
                ],
                found.references,
                [part.content_id for part in digests],
            )
        except SecurityFailure:
            return None
        return Verified(
            found.references,
            octets,
            self._readable.octets(holes),
            self._hop_blocks,
            unsigned,
            certificate,
            found.name,
        )


def known_of(envelope: bytes, document: SlottedBytes, truth: Covered) -> SignatureTemplate | None:
    """What can be learned of a signed envelope; None where it is no use, or says otherwise than was
    found by its tree, which is the `truth`."""
    if not document.is_plain:
        return None
    try:
        known = SignatureTemplate(document)
        written = signature.read_signature(wrapping.frame_of(nodeset.parse(envelope)).header)
    except SecurityFailure:
        return None
    said = (
        written.octets, written.name, written.canonicalization, written.value, truth.references,
        written.key_info,
    )  # fmt: skip
    same = known.signature(document.holes) == Signature(*said)
    return known if same and known.shows(document.holes, truth) else None


def _fixed_holes(document: SlottedBytes) -> set[int]:
    """The holes of a signature that say how something is signed, and not what was."""
    header = wrapping.frame_of(nodeset.parse(document.marked())).header
    found = header.find(f"{{{DS}}}Signature")
    if found is None:
        raise SecurityFailure("the message is not signed")
    varying = {
        *found.findall(f"{{{DS}}}SignedInfo/{{{DS}}}Reference/{{{DS}}}DigestValue"),
        *found.findall(f"{{{DS}}}SignatureValue"),
    }
    naming = set(found.findall(f"{{{DS}}}SignedInfo/{{{DS}}}Reference"))
    said: list[str] = []
    for element in found.iter(etree.Element):
        if element not in varying:
            said.append(element.text or "")
        said += [
            str(value) for name, value in element.items() if name != "URI" or element not in naming
        ]
        if element is not found:
            said.append(element.tail or "")
    return {hole for text in said for hole in holes_in(text.encode())}


def _hole_of_uri(uri: str) -> int | None:
    return hole_of(uri.removeprefix("cid:").encode())


def _hole_of_base64(value: bytes) -> int | None:
    return hole_of(base64.b64encode(value))


def _decoded(text: bytes) -> bytes:
    return base64.b64decode(b"".join(text.split()), validate=True)


# Learned: the bounded table of what is known of signed envelopes, each partner's.
#
# Of a partner only what its signature proved is learned, and it has a few places of its own:
# nobody else can take them. What is learned there helps with nobody else's messages. Poisoning it
# is impossible by construction, for every signature is checked all the same (`known`).


LATEST = 256
"""Envelopes whose references are remembered: as many as may be under way."""


class SignatureTemplateCache:
    """What one handler has learned of the signatures it checks, and of those it makes."""

    def __init__(self) -> None:
        self._known: BoundedCache[SignatureTemplate] = BoundedCache()
        self._latest: dict[bytes, tuple[SignedReference, ...]] = {}
        self.layouts = Layouts()
        # How many signatures were checked without a tree, and how many with one.
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._known)

    def verify(
        self,
        owner: str,
        envelope: bytes,
        parts: Parts,
        trust: Trust,
        now: int,
        policy: AlgorithmPolicy = SAFE,
    ) -> Verified:
        """What the signature proves of its `owner`, as `signature.verify_signature` says it.

        The digests of the parts may be asked for twice.
        """
        if len(envelope) > DOCUMENT_MAX:
            # Nothing is learned of it, and nobody has proved yet that it is worth a look.
            return signature.verify_signature(envelope, parts, trust, now, policy)
        document = perforated(envelope)
        known = self._known.find(owner, document)
        if known is not None:
            found = known.verify(document.holes, parts, trust, now, policy)
            if found is not None:
                self.hits += 1
                self.remember(envelope, found.references)
                return found
        self.misses += 1
        verified = signature.verify_signature(envelope, parts, trust, now, policy)
        if self._known.is_due(owner):
            self._learn(owner, envelope, document, verified)
        self.remember(envelope, verified.references)
        return verified

    def remember(self, envelope: bytes, references: tuple[SignedReference, ...]) -> None:
        """What an envelope signs, ours or a partner's, will soon be asked for once more."""
        if len(envelope) > DOCUMENT_MAX:
            return
        if len(self._latest) >= LATEST:
            self._latest.pop(next(iter(self._latest)))
        self._latest[envelope] = references

    def references(self, envelope: bytes) -> tuple[SignedReference, ...] | None:
        """What the signature on an envelope says of each thing that it covers; None where that has
        to be read."""
        return self._latest.get(envelope)

    def _learn(self, owner: str, envelope: bytes, document: SlottedBytes, truth: Covered) -> None:
        known = known_of(envelope, document, truth)
        if known is not None:
            self._known.keep(owner, document, known)
