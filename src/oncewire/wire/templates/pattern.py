"""Pattern: how a document becomes octets, learned of one and held over the next ones of its kind.

Documents of one partner differ in texts and in the names of parts. Two of them whose markup is the
same byte for byte, with plain text in the same places, are the same tree but for those texts: no
text here holds a character that could be markup, a reference, a line end or part of another
encoding. Canonicalization copies such text as it is. So what was made of the first document, with
the texts of the second in its holes, is what would be made of the second; where the texts go is
found by making the octets once of a document whose texts are all different.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Generic, NamedTuple, TypeVar

from oncewire.wire.limits import encoding_of

DOCUMENT_MAX = 16_384
"""A larger one has more in it that differs, and would be held in memory."""

# A text that begins with white space is markup to us: it may be the white space around the root.
_TEXT = re.compile(rb">([^\s<>&\x00-\x1f\x7f-\xff][^<>&\x00-\x08\x0b-\x1f\x7f-\xff]*)<")
# What a cid: URL holds unescaped (RFC 2392).
_PART = re.compile(rb'="cid:([A-Za-z0-9@._-]+)"')
_TEXT_GAP, _PART_GAP = b"\x00", b"\x01"
# Attributes that name a part; a namespace of such a name would change what other names mean.
_NAMING = (b" URI", b":href")
# Base64 too, so that it can stand for a digest.
_MARK = b"oncewirehole%04d"
_MARKED = re.compile(rb"oncewirehole(\d{4})")
_HOLES_MAX = 1000


class SlottedBytes(NamedTuple):
    """A document in two: its markup, and what stands in the holes, texts before names of parts."""

    markup: bytes
    holes: list[bytes]
    texts: int

    @property
    def document(self) -> bytes:
        """The document again."""
        pieces = self.markup.split(_PART_GAP)
        with_parts = [pieces[0]]
        for name, piece in zip(self.holes[self.texts :], pieces[1:], strict=True):
            with_parts += (b'="cid:', name, b'"', piece)
        pieces = b"".join(with_parts).split(_TEXT_GAP)
        whole = [pieces[0]]
        for text, piece in zip(self.holes, pieces[1:], strict=False):
            whole += (b">", text, b"<", piece)
        return b"".join(whole)

    def marked(self, fixed: Collection[int] = ()) -> bytes:
        """The document with a mark in each hole but the fixed ones."""
        holes = [
            hole if number in fixed else mark_of(number) for number, hole in enumerate(self.holes)
        ]
        return self._replace(holes=holes).document

    @property
    def is_plain(self) -> bool:
        """Whether its holes can hold other text and the rest of it stays what it is."""
        document, names = self.document, self.markup.split(_PART_GAP)[:-1]
        return (
            len(document) <= DOCUMENT_MAX
            and len(self.holes) <= _HOLES_MAX
            and encoding_of(document, None)[0] in ("utf-8", "utf8")
            # In a comment, or between the brackets of a CDATA section, text follows other rules.
            and b"<!" not in document
            and b"<?" not in document[1:]
            and all(name.endswith(_NAMING) for name in names)
            and b"xmlns:href" not in document
            and _MARKED.search(document) is None
        )


def perforated(document: bytes) -> SlottedBytes:
    """A document with its texts and names of parts taken out. Whether two have the same markup is
    told by the markup and by how many holes of each kind there are."""
    by_text = _TEXT.split(document)
    by_part = _PART.split(_TEXT_GAP.join(by_text[::2]))
    texts = by_text[1::2]
    return SlottedBytes(_PART_GAP.join(by_part[::2]), texts + by_part[1::2], len(texts))


def mark_of(number: int) -> bytes:
    """What stands in a hole while it is looked for."""
    return _MARK % number


def holes_in(text: bytes) -> list[int]:
    """The holes whose marks a text has in it."""
    return [int(number) for number in _MARKED.findall(text)]


def hole_of(text: bytes) -> int | None:
    """The hole whose mark a text is; None for any other text."""
    found = _MARKED.fullmatch(text)
    return None if found is None else int(found.group(1))


class Pattern:
    """Octets with holes in them."""

    __slots__ = ("_order", "_pieces")

    def __init__(self, marked: bytes) -> None:
        self._pieces = _MARKED.split(marked)
        self._order = [int(number) for number in self._pieces[1::2]]

    def octets(self, holes: Sequence[bytes]) -> bytes:
        """The octets with those texts in the holes."""
        pieces = self._pieces.copy()
        pieces[1::2] = [holes[number] for number in self._order]
        return b"".join(pieces)


def pattern_of(document: SlottedBytes, octets_of: Callable[[bytes], bytes]) -> Pattern | None:
    """What is made of a document by `octets_of`, as a pattern; None where it cannot be one."""
    if not document.is_plain:
        return None
    made = Pattern(octets_of(document.marked()))
    return made if made.octets(document.holes) == octets_of(document.document) else None


# Places: where something is kept that was learned of documents, by their markup.


OWNERS_MAX = 1024
OWNER_MAX = 16
"""Kinds of envelopes of one partner, each of some kilobytes."""

T = TypeVar("T")


class BoundedCache(Generic[T]):
    """What was learned of documents by their markup, a few for each owner. Who never sends alike
    costs little: only the first, the second, the fourth document and so on is learned of."""

    def __init__(self, owners: int = OWNERS_MAX, of_one: int = OWNER_MAX) -> None:
        self._owners, self._of_one = owners, of_one
        self._found: dict[str, dict[tuple[bytes, int, int], T]] = {}
        self._offered: dict[str, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._found.values()))

    def find(self, owner: str, document: SlottedBytes) -> T | None:
        """What is known of documents with that markup."""
        places = self._found.get(owner)
        return None if places is None else places.get(_key(document))

    def is_due(self, owner: str) -> bool:
        """Whether it is time to learn of another one."""
        offered = self._offered[owner] = self._offered.get(owner, 0) + 1
        return offered & (offered - 1) == 0

    def keep(self, owner: str, document: SlottedBytes, learned: T) -> None:
        """Learn it; the oldest go where there is no room."""
        if owner not in self._found and len(self._found) >= self._owners:
            self._found.pop(next(iter(self._found)))
        places = self._found.setdefault(owner, {})
        if len(places) >= self._of_one:
            places.pop(next(iter(places)))
        places[_key(document)] = learned


def _key(document: SlottedBytes) -> tuple[bytes, int, int]:
    return document.markup, document.texts, len(document.holes)
