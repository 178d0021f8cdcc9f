"""SignatureTemplate: a signed envelope, by which the next ones need no tree.

A signature is good if three things hold: its value was made by the agreed key over the SignedInfo,
and the digests in that are those of the envelope's signed octets and of the parts. All three are
checked here for every message, by the functions that check any other, and so are the certificate,
the algorithms and what the Manifest names. A template only says how the octets follow from the
bytes, and what follows from the markup: which blocks stand where, what is left out, how the
references are made. Texts that say how something is signed (the XPath expression, the certificates)
stay in the template: they must be equal.

Nothing is refused here. A signature that is not good by its template is judged by its tree, which
also says why. So a partner's envelopes can teach nothing wrong, and they help with no other's.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from cryptography import x509
from lxml import etree

from oncewire.errors import SecurityFailure
from oncewire.wire.security import algorithms, references, signature, signing, wrapping
from oncewire.wire.security.algorithms import SAFE, AlgorithmPolicy, SigningKey
from oncewire.wire.security.certificates import Trust
from oncewire.wire.security.references import DS, PartDigests, SignedReference
from oncewire.wire.security.signature import Covered, Parts, Signature, Verified
from oncewire.wire.security.signing import Signed, SigningChoice, Unsigned
from oncewire.wire.templates.envelope import EnvelopeTemplates
from oncewire.wire.templates.slotted import (
    DOCUMENT_MAX,
    SlottedBytes,
    SlottedOctets,
    Template,
    TemplateCache,
    marks_in,
    octets_template,
    slot_of,
    slotted,
)


class SignatureTemplate(Template):
    """What was learned of one signed envelope."""

    __slots__ = (
        "_base", "_envelope", "_fixed", "_hop_blocks", "_info", "_manifest",
        "_readable", "_references", "_value",
    )  # fmt: skip

    def __init__(self, document: SlottedBytes) -> None:
        super().__init__()
        fixed = _fixed_slots(document)
        self._fixed = [(number, document.slots[number]) for number in sorted(fixed)]
        root = references.parse(document.marked(fixed))
        frame = wrapping.frame_of(root)
        base = signature.read_signature(frame.header)
        wrapping.check_blocks(root, frame)
        left_out = (base.envelope_reference.exclusion or references.NOTHING).subtrees(root)
        wrapping.check_left_out(left_out, frame)
        octets = signature.covered_octets(root, base, left_out)
        view = references.parse(octets)
        self._base = base
        self._value = slot_of(base64.b64encode(base.value))
        # For each reference, the slots of its part's name and of its digest.
        self._references = [
            (each, _slot_of_uri(each.uri), slot_of(base64.b64encode(each.digest)))
            for each in base.references
        ]
        self._manifest = [
            (references.content_id_of(uri) or "", _slot_of_uri(uri))
            for uri in wrapping.manifest_uris(view, frame.shape.manifest)
        ]
        self._hop_blocks = tuple(str(block.tag) for block in left_out)
        self._envelope, self._info = SlottedOctets(octets), SlottedOctets(base.octets)
        self._readable = SlottedOctets(signature.readable(octets, view, left_out))

    def signature(self, slots: Sequence[bytes]) -> Signature | None:
        """The signature of an envelope with those slots; None where it has to be read."""
        if self._value is None or any(slots[number] != text for number, text in self._fixed):
            return None
        base = self._base
        try:
            value = _decoded(slots[self._value])
            signed = tuple(
                [
                    SignedReference(
                        each.uri if name is None else "cid:" + slots[name].decode("ascii"),
                        each.digest_name,
                        each.digest if digest is None else _decoded(slots[digest]),
                        each.exclusion,
                        each.canonicalization,
                        each.prefixes,
                    )
                    for each, name, digest in self._references
                ]
            )
        except binascii.Error:
            return None
        octets = self._info.filled(slots)
        return Signature(octets, base.name, base.canonicalization, value, signed, base.key_info)

    def shows(self, slots: Sequence[bytes], truth: Covered) -> bool:
        """Whether the octets of an envelope with those slots are the true ones."""
        made = self._envelope.filled(slots), self._readable.filled(slots), self._hop_blocks
        return made == (truth.octets, truth.readable, truth.hop_blocks)

    def verify(
        self, slots: Sequence[bytes], parts: Parts, trust: Trust, now: int, policy: AlgorithmPolicy
    ) -> Verified | None:
        """What the signature proves; None where its tree has to be asked."""
        found = self.signature(slots)
        if found is None:
            return None
        try:
            signature.check_policy(found, policy)
            certificate = signature.signer_of(found, trust, now, policy)
            octets, covering = self._envelope.filled(slots), found.envelope_reference
            if not covering.same_digest(algorithms.digest(covering.digest_name, octets)):
                return None
            digests = signature.part_digests(found, parts)
            signature.check_part_digests(found.references, digests)
            unsigned = wrapping.check_parts(
                [
                    content_id if slot is None else slots[slot].decode("ascii")
                    for content_id, slot in self._manifest
                ],
                found.references,
                [part.content_id for part in digests],
            )
        except SecurityFailure:
            return None
        return Verified(
            found.references,
            octets,
            self._readable.filled(slots),
            self._hop_blocks,
            unsigned,
            certificate,
            found.name,
        )


def signature_template(
    envelope: bytes, document: SlottedBytes, truth: Covered
) -> SignatureTemplate | None:
    """The template of a signed envelope; None where none can be made, or it says something else
    than its tree, which found the `truth`."""
    if not document.is_plain():
        return None
    try:
        template = SignatureTemplate(document)
        read = signature.read_signature(wrapping.frame_of(references.parse(envelope)).header)
    except SecurityFailure:
        return None
    said = (
        read.octets, read.name, read.canonicalization, read.value, truth.references, read.key_info
    )  # fmt: skip
    same = template.signature(document.slots) == Signature(*said)
    return template if same and template.shows(document.slots, truth) else None


def _fixed_slots(document: SlottedBytes) -> set[int]:
    """The slots of a signature that say how something is signed, and not what is."""
    header = wrapping.frame_of(references.parse(document.marked())).header
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
    return {slot for text in said for slot in marks_in(text.encode())}


def _slot_of_uri(uri: str) -> int | None:
    return slot_of(uri.removeprefix("cid:").encode())


def _decoded(text: bytes) -> bytes:
    return base64.b64decode(b"".join(text.split()), validate=True)


class UnsignedTemplate(Template):
    """What was learned of one envelope that we signed."""

    __slots__ = ("_end_tag", "_first", "_manifest", "_octets")

    def __init__(self, first: Unsigned, marked: Unsigned, end_tag: bytes) -> None:
        super().__init__()
        self._first, self._end_tag = first, end_tag
        self._octets = SlottedOctets(marked.octets)
        self._manifest = [(uri, _slot_of_uri(uri)) for uri in marked.manifest]

    def filled(self, envelope: bytes, slots: Sequence[bytes]) -> Unsigned:
        """What is to be signed of another envelope with the same markup."""
        first = self._first
        manifest = [
            uri if slot is None else "cid:" + slots[slot].decode("ascii")
            for uri, slot in self._manifest
        ]
        # No text can hold the end tag.
        at = envelope.index(self._end_tag)
        octets = self._octets.filled(slots)
        return Unsigned(octets, tuple(manifest), first.exclusion, first.context, at)


def unsigned_template(
    document: SlottedBytes, first: Unsigned, method: str
) -> UnsignedTemplate | None:
    """The template of an envelope that is to be signed; None where none can be made, or it says
    something else than its tree."""
    envelope = document.document
    end_tag = envelope[first.insert_at :].partition(b">")[0] + b">"
    if not document.is_plain() or envelope.count(end_tag) != 1:
        return None
    template = UnsignedTemplate(first, signing.unsigned(document.marked(), method), end_tag)
    return template if template.filled(envelope, document.slots) == first else None


class InfoTemplate(Template):
    """How a SignedInfo that we made becomes octets."""

    __slots__ = ("octets",)

    def __init__(self, octets: SlottedOctets) -> None:
        super().__init__()
        self.octets = octets


KINDS_MAX = 256
"""Kinds of envelopes that we send, to all partners together: only their markup counts."""

LATEST = 256
"""Envelopes whose references are remembered: as many as may be under way."""


class SignatureTemplates:
    """The templates of the signatures that one handler checks and makes, and what the last of them
    signed."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._checked: TemplateCache[SignatureTemplate] = TemplateCache(enabled=enabled)
        self._made: TemplateCache[UnsignedTemplate] = TemplateCache(
            of_one=KINDS_MAX, enabled=enabled
        )
        self._infos: TemplateCache[InfoTemplate] = TemplateCache(of_one=KINDS_MAX, enabled=enabled)
        self._latest: dict[bytes, tuple[SignedReference, ...]] = {}

    def __len__(self) -> int:
        return len(self._checked) + len(self._made) + len(self._infos)

    @property
    def hits(self) -> int:
        """How many signatures were checked by a template."""
        return self._checked.hits

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
        # The owner of a large one has not proved yet that it is worth a look.
        if len(envelope) > DOCUMENT_MAX:
            return signature.verify_signature(envelope, parts, trust, now, policy)
        document = slotted(envelope)
        key = owner, document.key
        verified: Verified | None = None
        for template in self._checked.by_key.get(key, ()):
            verified = template.verify(document.slots, parts, trust, now, policy)
            if verified is not None:
                self._checked.hits += 1
                template.used = self._checked.hits
                break
        if verified is None:
            verified = signature.verify_signature(envelope, parts, trust, now, policy)
            if self._checked.is_due(owner):
                made = signature_template(envelope, document, verified)
                if made is not None:
                    self._checked.keep(owner, key, made)
        self._remember(envelope, verified.references)
        return verified

    def sign(
        self,
        envelope: bytes,
        parts: Sequence[PartDigests],
        key: SigningKey,
        certificate: x509.Certificate,
        choice: SigningChoice,
    ) -> Signed:
        """The signed envelope, as `signing.sign` makes it."""
        signed = signing.sign(
            envelope, parts, key, certificate, choice, self._unsigned, self._info_octets
        )
        self._remember(signed.envelope, signed.references)
        return signed

    def references(self, envelope: bytes) -> tuple[SignedReference, ...] | None:
        """What the signature on an envelope, ours or a partner's, says of each thing that it
        covers; None where that has to be read."""
        return self._latest.get(envelope)

    def _remember(self, envelope: bytes, signed: tuple[SignedReference, ...]) -> None:
        if len(envelope) > DOCUMENT_MAX:
            return
        if len(self._latest) >= LATEST:
            self._latest.pop(next(iter(self._latest)))
        self._latest[envelope] = signed

    def _unsigned(self, envelope: bytes, method: str) -> Unsigned:
        document = slotted(envelope)
        key = method, document.key
        for template in self._made.by_key.get(key, ()):
            return template.filled(envelope, document.slots)
        first = signing.unsigned(envelope, method)
        if self._made.is_due(method):
            made = unsigned_template(document, first, method)
            if made is not None:
                self._made.keep(method, key, made)
        return first

    def _info_octets(self, info: bytes, method: str) -> bytes:
        document = slotted(info)
        key = method, document.key
        for template in self._infos.by_key.get(key, ()):
            return template.octets.filled(document.slots)
        if self._infos.is_due(method):
            made = octets_template(document, lambda other: signing.info_octets(other, method))
            if made is not None:
                self._infos.keep(method, key, InfoTemplate(made))
        return signing.info_octets(info, method)


class Templates:
    """All templates of one handler; `enabled=False` turns every kind of them off."""

    def __init__(self, *, enabled: bool = True) -> None:
        self.envelopes = EnvelopeTemplates(TemplateCache(enabled=enabled))
        self.signatures = SignatureTemplates(enabled=enabled)
