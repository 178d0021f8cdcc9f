"""Templates: a header that a partner sent, signed or not, by which the next ones are read without
a tree.

The fields of a message that differ from one to the next (ids, moments, numbers, names of parts,
digests) are the slots of the template. It is made by the full reader: of the header with a mark in
each of these slots, the reader says where each mark comes to stand in the message. It is kept only
if the full reader agrees with it on the header itself, and on two others, in which every slot holds
another value and in which all hold the same. What a template reads is checked by the constructors
and rules that the full reader uses.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from cryptography import x509
from lxml import etree
from msgspec import structs

from oncewire.errors import EbxmlError, InvalidValue, SecurityFailure
from oncewire.message.envelope import Message, Payload, SequenceStatus
from oncewire.message.form import ID_LENGTH_MAX, Validation
from oncewire.wire import header
from oncewire.wire.ebms2 import blocks as ebms2_rules
from oncewire.wire.header import HeaderReading
from oncewire.wire.limits import Limits, count_exactly
from oncewire.wire.parcel import ReadFault, Received
from oncewire.wire.security import algorithms, references, signature, wrapping
from oncewire.wire.security.algorithms import SAFE, AlgorithmPolicy, SigningKey
from oncewire.wire.security.certificates import Trust
from oncewire.wire.security.references import DS, PartDigests, SignedReference
from oncewire.wire.security.signature import (
    Covered,
    Parts,
    Signature,
    Signed,
    SigningChoice,
    Unsigned,
    Verified,
)
from oncewire.wire.templates.slotted import (
    DOCUMENT_MAX,
    SlottedBytes,
    SlottedOctets,
    Template,
    TemplateCache,
    mark_of,
    marks_in,
    octets_template,
    slot_of,
    slotted,
)
from oncewire.wire.xml import read_moment

# --- what may stand in a slot --------------------------------------------------------------------


class Form(NamedTuple):
    """How the values of a slot are written: the value of a text, or None where the full reader
    must be asked; and an example for the slot of that number."""

    read: Callable[[bytes], str | int | bytes | None]
    example: Callable[[int], bytes]


# Without the equals sign, which the limits count, and without quotes.
_ID = bytes(code for code in range(0x21, 0x7F) if chr(code) not in "<>&\"'=")
# What a cid: URL holds unescaped (RFC 2392), and a schema takes for a part of any URI.
_PART = re.compile(rb"[A-Za-z0-9@._-]+")
# No leap second and no hour 24: our reader rolls them over, a schema may call them invalid.
_TIME = r"([01]\d|2[0-3]){0}[0-5]\d{0}[0-5]\d"


def _id(value: bytes) -> str | None:
    plain = 0 < len(value) <= ID_LENGTH_MAX and not value.translate(None, _ID)
    return value.decode("ascii") if plain else None


def _part(value: bytes) -> str | None:
    plain = len(value) <= ID_LENGTH_MAX and _PART.fullmatch(value) is not None
    return "cid:" + value.decode("ascii") if plain else None


def _number(value: bytes) -> int | None:
    # As many digits as the largest number of any dialect has; its own check says the rest.
    return int(value) if value.isdigit() and len(value) <= 10 else None


def _moment_form(day: str, hour: str, fraction: str, example: bytes) -> Form:
    pattern = rf"\d{{4}}{day}\d\d{day}\d\dT{_TIME.format(hour)}{fraction}Z"
    known = re.compile(pattern.encode(), re.ASCII)

    def read(value: bytes) -> int | None:
        if known.fullmatch(value) is None:
            return None
        try:
            return read_moment(value.decode("ascii"))[0]
        except InvalidValue:
            return None

    return Form(read, lambda number: example % divmod(number, 60))


def _base64_form(padding: bytes, end: bytes) -> Form:
    # With as many equals signs as the first one had: the limits count them.
    last = rb"[A-Za-z0-9+/]" * (-len(padding) % 4) + padding
    known = re.compile(rb"(?:[A-Za-z0-9+/]{4})+" + last)
    return Form(
        lambda value: base64.b64decode(value) if known.fullmatch(value) else None,
        lambda number: mark_of(number) + end,
    )


_IDS = Form(_id, mark_of)
_PARTS = Form(_part, mark_of)
_BASE64 = (_base64_form(b"", b""), _base64_form(b"=", b"T2U="), _base64_form(b"==", b"TQ=="))
_TEXTS = (
    Form(_number, lambda number: b"%d" % (number + 1)),
    # With a fraction and without, as XML Schema and as v0-078 write it: a partner keeps to one.
    _moment_form("-", ":", "", b"2001-02-03T04:%02d:%02dZ"),
    _moment_form("-", ":", r"\.\d{1,6}", b"2001-02-03T04:05:06.0%d%02dZ"),
    _moment_form("", "", "", b"20010203T04%02d%02dZ"),
    _moment_form("", "", r"\.\d{1,6}", b"20010203T040506.0%d%02dZ"),
    *_BASE64,
    _IDS,
)

# --- where it stands in a message ----------------------------------------------------------------

Place: TypeAlias = tuple[str | int, ...]
"""The way to a value of a message: names of fields, and numbers within a tuple."""

_FIELDS: tuple[Place, ...] = (
    ("header", "cpa_id"),
    ("header", "conversation_id"),
    ("header", "message_id"),
    ("header", "timestamp"),
    ("header", "ref_to_message_id"),
    ("header", "time_to_live"),
    ("order", "number"),
    ("routing", "*", "timestamp"),
    ("routing", "*", "sequence", "number"),
    ("acknowledgments", "*", "timestamp"),
    ("acknowledgments", "*", "ref_to_message_id"),
    ("acknowledgments", "*", "references", "*", "uri"),
    ("acknowledgments", "*", "references", "*", "digest_value"),
    ("status_request", "ref_to_message_id"),
    ("status_response", "ref_to_message_id"),
    ("status_response", "timestamp"),
    ("manifest", "*", "href"),
)
"""The values that may differ: the reader copies them, and they decide nothing about the others."""

_XML: Place = ("acknowledgments", "*", "references", "*", "xml")
# Elements and attributes of a signature, of which a message says nothing (`wire/security` does).
_SIGNATURE = {b"signaturevalue", b"digestvalue", b"URI"}

Plan: TypeAlias = dict[str, Any]
"""Which fields of a value are taken from which slot: a number of a slot, octets with slots, the
plan of a value within, or a list of them."""


def _values_at(value: object, place: Place, at: Place = ()) -> Iterator[tuple[Place, Any]]:
    """The values of a message at a place, in which `*` stands for each of a tuple."""
    if value is None:
        return
    if not place:
        yield at, value
    elif place[0] == "*" and isinstance(value, tuple):
        for number, each in enumerate(value):
            yield from _values_at(each, place[1:], (*at, number))
    else:
        name = str(place[0])
        yield from _values_at(getattr(value, name), place[1:], (*at, name))


def _put(plan: Plan, place: Place, slot: int | SlottedOctets) -> None:
    """Note in a plan which slot a place is taken from."""
    name, rest = str(place[0]), place[1:]
    if not rest:
        plan[name] = slot
    elif isinstance(rest[0], int):
        plans: dict[int, Plan] = plan.setdefault(name, {})
        _put(plans.setdefault(rest[0], {}), rest[1:], slot)
    else:
        _put(plan.setdefault(name, {}), rest, slot)


def _changes(
    base: Any, plan: Plan, values: Mapping[int, Any], slots: Mapping[int, bytes]
) -> dict[str, Any]:
    """The fields of a value like `base` that its plan takes from the slots."""
    changes: dict[str, Any] = {}
    for name, part in plan.items():
        if isinstance(part, int):
            changes[name] = values[part]
        elif isinstance(part, SlottedOctets):
            changes[name] = part.filled(slots)
        elif isinstance(inner := getattr(base, name), tuple):
            changes[name] = tuple(
                [
                    structs.replace(each, **_changes(each, part[number], values, slots))
                    if number in part
                    else each
                    for number, each in enumerate(inner)
                ]
            )
        else:
            changes[name] = structs.replace(inner, **_changes(inner, part, values, slots))
    return changes


# --- one template --------------------------------------------------------------------------------


class EnvelopeTemplate(Template):
    """What was learned of one header."""

    __slots__ = ("_base", "_document", "_forms", "_limits", "_plan")

    def __init__(
        self, document: SlottedBytes, forms: dict[int, Form], base: HeaderReading, limits: Limits
    ) -> None:
        super().__init__()
        self._document = SlottedOctets(document.filled({slot: mark_of(slot) for slot in forms}))
        self._forms = [(slot, form.read) for slot, form in forms.items()]
        self._base, self._limits = base, limits
        self._plan: Plan = {}

    def read(
        self, envelope: bytes, limits: Limits, payloads: tuple[Payload, ...] = ()
    ) -> HeaderReading | None:
        """What the full reader says of an envelope; None where it must be asked."""
        if limits is not self._limits or len(envelope) > limits.header_bytes:
            return None
        slots = self._document.match(envelope)
        if slots is None:
            return None
        values: dict[int, Any] = {}
        for slot, value_of in self._forms:
            value = values[slot] = value_of(slots[slot])
            if value is None:
                return None
        try:
            changes = _changes(self._base.message, self._plan, values, slots)
            message = structs.replace(self._base.message, payloads=payloads, **changes)
        except InvalidValue:
            return None
        # A number may be one that the rules between elements do not let pass.
        if "order" in self._plan and next(ebms2_rules.broken(message), None) is not None:
            return None
        base = self._base
        return HeaderReading(message, base.signed, list(base.notes), base.schema_problems)

    def learn(self, marked: Message, examples: Mapping[int, bytes]) -> set[int]:
        """Find where the values of the slots stand in a message with those examples; the slots
        that were found."""
        by_value = {value_of(examples[slot]): slot for slot, value_of in self._forms}
        found = set()
        for field in _FIELDS:
            for place, value in _values_at(marked, field):
                slot = by_value.get(value)
                if slot is not None:
                    _put(self._plan, place, slot)
                    found.add(slot)
        # A message keeps such an element as it was written, with the examples in it.
        for place, xml in _values_at(marked, _XML):
            with_marks = xml
            for slot, example in examples.items():
                if example.startswith(mark_of(slot)):
                    with_marks = with_marks.replace(example, mark_of(slot))
            _put(self._plan, place, SlottedOctets(with_marks))
        return found

    @property
    def has_own_id(self) -> bool:
        """Whether its messages may have other ids."""
        return "message_id" in self._plan.get("header", {})


def learned(
    envelope: bytes, charset: str | None, limits: Limits, validation: Validation
) -> EnvelopeTemplate | None:
    """The template of a header; None where the full reader refuses it, or none can be made."""
    document = slotted(envelope)
    # A tighter bound than that of all ids is looked at by the full reader.
    if not document.is_plain(charset) or limits.id_length < ID_LENGTH_MAX:
        return None

    def read(other: bytes) -> HeaderReading:
        return header.read(other, charset, limits, validation)

    try:
        base = read(envelope)
        # The limits may count another header of this form exactly, where they only estimated this
        # one: it must pass either way.
        count_exactly(envelope, None, limits)
        forms = _forms_of(document, base)
        examples = {slot: form.example(slot) for slot, form in forms.items()}
        template = EnvelopeTemplate(document, forms, base, limits)
        marked = document.filled(examples)
        read_marked = read(marked)
        found = template.learn(read_marked.message, examples)
        names = {document.names[slot] for slot in forms.keys() - found}
        # No other header would have the same id, or the same signature.
        if not template.has_own_id or (base.signed and b"signaturevalue" not in names):
            return None
        # Every other slot is part of the signature.
        if not names <= (_SIGNATURE if base.signed else set()):
            return None
        alike = document.filled({slot: form.example(1) for slot, form in forms.items()})
        same = (
            template.read(envelope, limits) == base
            and template.read(marked, limits) == read_marked
            and template.read(alike, limits) == read(alike)
        )
    except (ReadFault, EbxmlError):
        return None
    return template if same else None


def _forms_of(document: SlottedBytes, base: HeaderReading) -> dict[int, Form]:
    """The slots in which something stands that may differ, and how it is written."""
    said = {value for field in _FIELDS for _, value in _values_at(base.message, field)}
    order = base.message.order
    if order is not None and order.status is SequenceStatus.RESET:
        # A reset has one number alone (§9.1.1).
        said.remove(order.number)
    forms: dict[int, Form] = {}
    for slot, (text, name) in enumerate(zip(document.slots, document.names, strict=True)):
        of_signature = base.signed and name in _SIGNATURE
        if slot >= document.texts:
            possible: tuple[Form, ...] = (_PARTS,)
        else:
            possible = _BASE64 if of_signature else _TEXTS
        for form in possible:
            value = form.read(text)
            if value is not None and (of_signature or value in said):
                forms[slot] = form
                break
    return forms


# --- all templates -------------------------------------------------------------------------------

# From the first party to the agreement's name: whose message it is, in every dialect.
_PARTIES, _AGREEMENT = b"PartyI", b"PAId"
_PARTIES_MAX = 2048


class EnvelopeTemplates:
    """The templates of the headers that partners sent. A template is made of a header that a
    partner has proved to be its own, and no stranger's; it reads what the full reader reads, so
    that a partner can teach nothing wrong."""

    def __init__(self, cache: TemplateCache[EnvelopeTemplate] | None = None) -> None:
        self._cache = TemplateCache() if cache is None else cache

    def __len__(self) -> int:
        return len(self._cache)

    @property
    def hits(self) -> int:
        """How many headers were read by a template."""
        return self._cache.hits

    def read(
        self,
        envelope: bytes,
        charset: str | None,
        limits: Limits,
        validation: Validation,
        payloads: tuple[Payload, ...] = (),
    ) -> HeaderReading | None:
        """What the full reader says of the envelope; None where it must be asked."""
        templates = self._cache.by_key.get((_parties_of(envelope), charset, validation), ())
        for template in templates:
            reading = template.read(envelope, limits, payloads)
            if reading is not None:
                self._cache.hits += 1
                template.used = self._cache.hits
                return reading
        return None

    def learn(
        self,
        received: Received,
        owner: str,
        limits: Limits,
        validation: Validation = Validation.REPORT,
    ) -> None:
        """Learn of a message that `owner` has proved to be its own, unless a template read it."""
        if not received.by_template:
            self.learn_envelope(received.envelope, received.charset, owner, limits, validation)

    def learn_envelope(
        self,
        envelope: bytes,
        charset: str | None,
        owner: str,
        limits: Limits,
        validation: Validation,
    ) -> None:
        """Learn of an envelope that no template has read."""
        parties = _parties_of(envelope)
        if not self._cache.is_due(owner) or not parties:
            return
        template = learned(envelope, charset, limits, validation)
        if template is not None:
            self._cache.keep(owner, (parties, charset, validation), template)


def _parties_of(envelope: bytes) -> bytes:
    """The bytes of an envelope that say whose it is; empty where they are not found."""
    begin = envelope.find(_PARTIES)
    end = envelope.find(_AGREEMENT, begin, begin + _PARTIES_MAX) if begin >= 0 else -1
    return envelope[begin:end] if end >= 0 else b""


# SignatureTemplate: a signed envelope, by which the next ones need no tree.
#
# A signature is good if three things hold: its value was made by the agreed key over the
# SignedInfo, and the digests in that are those of the envelope's signed octets and of the parts.
# All three are checked here for every message, by the functions that check any other, and so are
# the certificate, the algorithms and what the Manifest names. A template only says how the octets
# follow from the bytes, and what follows from the markup: which blocks stand where, what is left
# out, how the references are made. Texts that say how something is signed (the XPath expression,
# the certificates) stay in the template: they must be equal.
#
# Nothing is refused here. A signature that is not good by its template is judged by its tree, which
# also says why. So a partner's envelopes can teach nothing wrong, and they help with no other's.


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
    template = UnsignedTemplate(first, signature.unsigned(document.marked(), method), end_tag)
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
        signed = signature.sign(
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
        first = signature.unsigned(envelope, method)
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
            made = octets_template(document, lambda other: signature.info_octets(other, method))
            if made is not None:
                self._infos.keep(method, key, InfoTemplate(made))
        return signature.info_octets(info, method)


class Templates:
    """All templates of one handler; `enabled=False` turns every kind of them off."""

    def __init__(self, *, enabled: bool = True) -> None:
        self.envelopes = EnvelopeTemplates(TemplateCache(enabled=enabled))
        self.signatures = SignatureTemplates(enabled=enabled)
