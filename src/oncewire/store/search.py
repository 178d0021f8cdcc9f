"""Search: what a message can be looked for by, and the numbers that an index files it under.

An index knows terms, not texts: a term is a short number made of a text, so that a row of the index
is small whatever partners write. Different texts may share a term; what is found by one
is compared by its text. A MessageId has terms for pieces of five characters, one at every fourth
place: any eight characters of it hold one of these pieces whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar
from zlib import crc32

from msgspec import Struct

from oncewire.message.instant import Instant
from oncewire.protocol.states import Outgoing
from oncewire.store.records import MessageFacts, Word

M = TypeVar("M")

PART_LEAST = 8
"""Characters of a MessageId by which it is found wherever they stand in it; fewer are its
beginning."""

TAKEN_OVER = "taken_over"
"""In lists, the state of what is delivered by the word of a hub or a reliable transport alone."""

LOOKED_AT = 20_000
"""How many messages one call looks at, at most, for those that are meant."""

MARKED = 10_000
"""Rows of one message that are looked at, at most, for how often each kind is among them."""

ID_SEARCHED = 256
"""In so many characters of a MessageId, before its `@`, what is looked for has to begin. What
stands behind the `@` names a handler, and is the same in all of its ids."""

_PIECE, _STEP = 5, 4
WORD_MAX = 200
"""Characters of a file's name or of a value in a document by which its message is found."""
WORDS_MAX = 32
"""How many of them a message has."""


def kept_words(words: Iterable[Word]) -> tuple[Word, ...]:
    """Those that can be kept, each once: not too long, not too many, of printable characters."""
    found: dict[Word, None] = {}
    for word in words:
        if len(found) == WORDS_MAX:
            break
        if 0 < len(word.text) <= WORD_MAX and word.text.isprintable():
            found[word] = None
    return tuple(found)


def listed_state(outgoing: Outgoing) -> str:
    """The state of a sent message as lists have it: what a hub took over is told apart from what
    its receiver has."""
    return TAKEN_OVER if outgoing.taken_over else outgoing.state.value


class Place(Struct, frozen=True, gc=False, array_like=True):
    """Where a list goes on: after the message of that instant and number."""

    at: Instant
    number: int


class Search(Struct, frozen=True):
    """What is looked for: all that is given has to hold."""

    # The beginning of a MessageId or any eight characters of it, a ConversationId, a file's name,
    # or a value in a document.
    text: str = ""
    # PartyIds as listings have them, of which one is the other side's.
    partners: tuple[str, ...] = ()
    conversation_id: str = ""
    service: str = ""
    action: str = ""
    # In the words of lists, `listed_state`.
    states: tuple[str, ...] = ()
    since: Instant | None = None
    # This instant is left out.
    until: Instant | None = None
    file_name: str = ""
    value: str = ""
    # Parts of documents, too.
    parts: bool = False
    # Only what was sent more than once, and what arrived of which copies were stopped.
    again: bool = False

    @property
    def is_part(self) -> bool:
        """Whether the text may stand anywhere in a MessageId, and not at its beginning alone."""
        return len(self.text.partition("@")[0]) >= PART_LEAST

    def terms(self) -> frozenset[int]:
        """Terms of which every message that is meant has one; none: no index helps."""
        for text in (self.value, self.file_name, self.conversation_id):
            if text:
                return frozenset((_of_text(text),))
        if not self.text:
            return frozenset()
        found = {_of_text(self.text)}
        if self.is_part:
            found.update(_of_piece(self.text[at : at + _PIECE]) for at in range(_STEP))
        return frozenset(found)

    def holds(
        self,
        message_id: str,
        facts: MessageFacts,
        partner: str,
        state: str,
        at: Instant,
        words: tuple[Word, ...],
    ) -> bool:
        """Whether a message is meant, apart from parts and from how often it came."""
        return (
            (not self.text or self._is_in(message_id, facts, words))
            and (not self.partners or partner in self.partners)
            and self.conversation_id in ("", facts.conversation_id)
            and self.service in ("", facts.service)
            and self.action in ("", facts.action)
            and (not self.states or state in self.states)
            and (self.since is None or at >= self.since)
            and (self.until is None or at < self.until)
            and (not self.file_name or Word("", self.file_name) in words)
            and (not self.value or any(word.text == self.value for word in words if word.path))
        )

    def _is_in(self, message_id: str, facts: MessageFacts, words: tuple[Word, ...]) -> bool:
        found = message_id.find(self.text)
        last = (len(_searched(message_id)) if self.is_part else 1) - 1
        return (
            0 <= found <= last
            or self.text == facts.conversation_id
            or any(word.text == self.text for word in words)
        )


class Mark(Struct, frozen=True, gc=False):
    """Rows of one kind about one message: how many, and when the first and the last was."""

    count: int
    first: Instant
    last: Instant


class Tally(Struct, frozen=True):
    """How many messages are meant, by their state; `whole`: whether all were looked at."""

    states: dict[str, int]
    whole: bool = True


class Found(Struct, Generic[M], frozen=True):
    """What a call found, newest first, and where the next one goes on; None: that was all."""

    messages: tuple[M, ...]
    after: Place | None = None


def terms_of(message_id: str, conversation_id: str, words: Iterable[str]) -> set[int]:
    """The terms that a message is filed under."""
    local = message_id.partition("@")[0] or message_id
    starts = range(0, min(len(local) - _PIECE + 1, ID_SEARCHED + _STEP - 1), _STEP)
    if local.isascii():
        # Nearly every id: encoded once, and not piece by piece.
        octets = local.encode()
        found = {crc32(octets[at : at + _PIECE], _OF_PIECE) for at in starts}
    else:
        found = {_of_piece(message_id[at : at + _PIECE]) for at in starts}
    found.add(_of_text(conversation_id))
    found.update(map(_of_text, words))
    return found


def _searched(message_id: str) -> str:
    return (message_id.partition("@")[0] or message_id)[:ID_SEARCHED]


_OF_PIECE = crc32(b"i")


def _of_piece(text: str) -> int:
    return crc32(text.encode("utf-8", "surrogatepass"), _OF_PIECE)


def _of_text(text: str) -> int:
    return crc32(b"t" + text.encode("utf-8", "surrogatepass"))
