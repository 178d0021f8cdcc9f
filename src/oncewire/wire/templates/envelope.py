"""EnvelopeTemplate: a header that a partner sent, by which the next ones are read without a tree.

The fields of a message that differ from one to the next (ids, moments, numbers, names of parts,
digests) are the slots of the template. It is made by the full reader: of the header with a mark in
each of these slots, the reader says where each mark comes to stand in the message. It is kept only
if the full reader agrees with it on the header itself, and on two others, in which every slot holds
another value and in which all hold the same. What a template reads is checked by the constructors
and rules that the full reader uses.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from msgspec import structs

from oncewire.errors import EbxmlError, InvalidValue
from oncewire.message import Message, Payload, SequenceStatus
from oncewire.message.form import Validation
from oncewire.message.ids import ID_LENGTH_MAX
from oncewire.wire import header
from oncewire.wire.ebms2 import writer as ebms2_rules
from oncewire.wire.header import HeaderReading
from oncewire.wire.limits import Limits, count_exactly
from oncewire.wire.parcel import Received
from oncewire.wire.refusal import ReadFault
from oncewire.wire.templates.slotted import (
    SlottedBytes,
    SlottedOctets,
    Template,
    TemplateCache,
    mark_of,
    slotted,
)
from oncewire.wire.xml.source import read_moment

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
        found = template.learn(read(marked).message, examples)
        names = {document.names[slot] for slot in forms.keys() - found}
        # No other header would have the same id, or the same signature.
        if not template.has_own_id or (base.signed and b"signaturevalue" not in names):
            return None
        # Every other slot is part of the signature.
        if not names <= (_SIGNATURE if base.signed else set()):
            return None
        alike = document.filled({slot: form.example(1) for slot, form in forms.items()})
        trials = (envelope, marked, alike)
        same = all(template.read(trial, limits) == read(trial) for trial in trials)
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
