"""SlottedBytes: a document as its markup and the plain texts that stand in its slots.

Two documents whose markup is the same, byte for byte, are the same tree but for the texts in their
slots: no such text has a character that could be markup, a reference, a line end or part of another
encoding. So whatever copies texts from the first document (a reader its fields, canonicalization
its octets) copies the texts in the same slots of the second. Where each text goes is found by
processing the document once with a mark in each slot. That is a template; it is used for documents
that are equal outside of the slots, and it never gives anything else than the full way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from oncewire.wire.limits import encoding_of

DOCUMENT_MAX = 16_384
"""Templates are made of documents up to this size; larger ones differ in more than a few texts."""

# A text that begins with white space is markup: it may be the white space around the root.
_TEXT = re.compile(rb">([^\s<>&\x00-\x1f\x7f-\xff][^<>&\x00-\x08\x0b-\x1f\x7f-\xff]*)<")
# What a cid: URL holds unescaped (RFC 2392).
_PART = re.compile(rb'="cid:([A-Za-z0-9@._-]+)"')
_TEXT_SLOT, _PART_SLOT = b"\x00", b"\x01"
# A start tag up to its end, with the local name of its element.
_OPEN_TAG = re.compile(rb"<(?:[^\s<>/:]+:)?([^\s<>/:]+)(?:\s[^<]*[^</]|\s*)", re.DOTALL)
# Attributes that name a part; a namespace of such a name would change what other names mean.
_NAMING = (b" URI", b":href")
# A mark is base64 too, so that it can stand for a digest.
_MARK = b"oncewireslot%04d"
_MARKED = re.compile(rb"oncewireslot(\d{4})")
_SLOTS_MAX = 1000
# Longer than any text of a slot that is matched: a signature with a key of 8192 bits.
_TEXT_MAX = 1536


class SlottedBytes(NamedTuple):
    """A document as its markup and what stands in its slots: texts, then names of parts."""

    markup: bytes
    slots: list[bytes]
    texts: int

    @property
    def key(self) -> tuple[bytes, int, int]:
        """What is equal for two documents that differ in their slots alone."""
        return self.markup, self.texts, len(self.slots)

    @property
    def document(self) -> bytes:
        """The document in one piece."""
        pieces = self.markup.split(_PART_SLOT)
        with_parts = [pieces[0]]
        for name, piece in zip(self.slots[self.texts :], pieces[1:], strict=True):
            with_parts += (b'="cid:', name, b'"', piece)
        pieces = b"".join(with_parts).split(_TEXT_SLOT)
        whole = [pieces[0]]
        for text, piece in zip(self.slots, pieces[1:], strict=False):
            whole += (b">", text, b"<", piece)
        return b"".join(whole)

    @property
    def names(self) -> list[bytes]:
        """For each slot, the element whose text it is, by local name in lower case, or the
        attribute; empty for a text that follows another element."""
        tags = [piece[piece.rfind(b"<") :] for piece in self.markup.split(_TEXT_SLOT)[:-1]]
        found = [_OPEN_TAG.fullmatch(tag) for tag in tags]
        elements = [b"" if tag is None else tag[1].lower() for tag in found]
        names = [piece.rpartition(b" ")[2] for piece in self.markup.split(_PART_SLOT)[:-1]]
        return elements + [name.rpartition(b":")[2] for name in names]

    def filled(self, texts: Mapping[int, bytes]) -> bytes:
        """The document with other texts in some of its slots."""
        slots = [texts.get(number, text) for number, text in enumerate(self.slots)]
        return self._replace(slots=slots).document

    def marked(self, fixed: Collection[int] = ()) -> bytes:
        """The document with a mark in each slot but the fixed ones."""
        numbers = range(len(self.slots))
        return self.filled({number: mark_of(number) for number in numbers if number not in fixed})

    def is_plain(self, charset: str | None = None) -> bool:
        """Whether other texts in its slots leave the rest of the document unchanged."""
        document, names = self.document, self.markup.split(_PART_SLOT)[:-1]
        return (
            len(document) <= DOCUMENT_MAX
            and len(self.slots) <= _SLOTS_MAX
            and encoding_of(document, charset)[0] == "utf-8"
            # In a comment, or between the brackets of a CDATA section, text follows other rules.
            and b"<!" not in document
            and b"<?" not in document[1:]
            and all(name.endswith(_NAMING) for name in names)
            and b"xmlns:href" not in document
            and _MARKED.search(document) is None
        )


def slotted(document: bytes) -> SlottedBytes:
    """A document with its texts and the names of its parts taken out."""
    by_text = _TEXT.split(document)
    by_part = _PART.split(_TEXT_SLOT.join(by_text[::2]))
    texts = by_text[1::2]
    return SlottedBytes(_PART_SLOT.join(by_part[::2]), texts + by_part[1::2], len(texts))


def mark_of(number: int) -> bytes:
    """What stands in a slot while a template is made."""
    return _MARK % number


def marks_in(text: bytes) -> list[int]:
    """The slots whose marks a text holds."""
    return [int(number) for number in _MARKED.findall(text)]


def slot_of(text: bytes) -> int | None:
    """The slot whose mark a text is; None for any other text."""
    found = _MARKED.fullmatch(text)
    return None if found is None else int(found.group(1))


class SlottedOctets:
    """What was made of a marked document: octets with some of its slots, in any order."""

    __slots__ = ("_order", "_pieces")

    def __init__(self, marked: bytes) -> None:
        self._pieces = _MARKED.split(marked)
        self._order = [int(number) for number in self._pieces[1::2]]

    def filled(self, slots: Sequence[bytes] | Mapping[int, bytes]) -> bytes:
        """The octets with those texts in the slots."""
        pieces = self._pieces.copy()
        pieces[1::2] = [slots[number] for number in self._order]
        return b"".join(pieces)

    def match(self, octets: bytes) -> dict[int, bytes] | None:
        """The texts in the slots of octets that are equal outside of them; None for all others,
        and where a text has the byte that ends its slot."""
        first, *rest = self._pieces[::2]
        if not octets.startswith(first):
            return None
        at, found = len(first), {}
        for number, piece in zip(self._order, rest, strict=True):
            end = octets.find(piece[:1], at, at + _TEXT_MAX)
            if end < 0 or not octets.startswith(piece, end):
                return None
            found[number] = octets[at:end]
            at = end + len(piece)
        return found if at == len(octets) else None


def octets_template(
    document: SlottedBytes, octets_of: Callable[[bytes], bytes]
) -> SlottedOctets | None:
    """What `octets_of` makes of a document, as a template; None where it does not copy texts."""
    if not document.is_plain():
        return None
    made = SlottedOctets(octets_of(document.marked()))
    return made if made.filled(document.slots) == octets_of(document.document) else None


class Template:
    """What was learned of one document. It never changes, but for when it was used last."""

    __slots__ = ("used",)

    def __init__(self) -> None:
        self.used = 0


T = TypeVar("T", bound=Template)

TEMPLATES_MAX = 4096
"""Templates of all partners together, each of some kilobytes."""

OWNER_MAX = 16
"""Templates of one partner: its requests, answers and acknowledgments, a few times over."""


class TemplateCache(Generic[T]):
    """A bounded number of templates, a few for each owner, found by what their documents have in
    common. No owner takes the room of another; the template that was used longest ago goes first.

    `enabled=False` turns templates off: nothing is learned, so nothing is found. Any thread may
    look templates up; only one may keep new ones.
    """

    def __init__(
        self, most: int = TEMPLATES_MAX, of_one: int = OWNER_MAX, *, enabled: bool = True
    ) -> None:
        self._most, self._of_one, self._enabled = most, of_one, enabled
        # By the key of their documents. Tuples are exchanged whole, so that another thread sees
        # the one or the other.
        self.by_key: dict[Hashable, tuple[T, ...]] = {}
        self._owned: dict[str, dict[T, Hashable]] = {}
        # How many documents of each owner came that no template fits.
        self._offered: dict[str, int] = {}
        self.hits = 0

    def __len__(self) -> int:
        return sum(map(len, self._owned.values()))

    def is_due(self, owner: str) -> bool:
        """Whether to make a template of an owner's document that none fits.

        Making one costs some full readings, so it is done for the first, the second, the fourth
        document and so on: an owner whose documents are never alike costs little.
        """
        offered = self._offered[owner] = self._offered.get(owner, 0) + 1
        return self._enabled and offered & (offered - 1) == 0

    def keep(self, owner: str, key: Hashable, template: T) -> None:
        """Keep a template of an owner's documents with that key."""
        everyone = [(each, of) for of, owned in self._owned.items() for each in owned]
        own = [(each, of) for each, of in everyone if of == owner]
        if len(own) >= self._of_one:
            self._forget(own)
        elif len(everyone) >= self._most:
            self._forget(everyone)
        template.used = self.hits
        self._owned.setdefault(owner, {})[template] = key
        self.by_key[key] = (*self.by_key.get(key, ()), template)

    def _forget(self, templates: list[tuple[T, str]]) -> None:
        """Forget the one of them that was used longest ago."""
        template, owner = min(templates, key=lambda each: each[0].used)
        key = self._owned[owner].pop(template)
        if not self._owned[owner]:
            del self._owned[owner]
        left = tuple(other for other in self.by_key.pop(key) if other is not template)
        if left:
            self.by_key[key] = left
