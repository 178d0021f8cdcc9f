"""Large documents: compress first, split only if it is still too large, join once.

(Slides, 'Transfer of Large Documents'.) The plan speaks of offsets and lengths only, so a
document of any size is planned without being read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from oncewire.errors import DeliveryFailure, Inconsistent, InvalidValue
from oncewire.message.header import SPLIT_TOTAL_MAX, Split
from oncewire.protocol.terms import Terms


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a document: which bytes of it travel in which message."""

    number: int
    total: int
    offset: int
    length: int


def should_compress(size: int, terms: Terms) -> bool:
    """Compression comes first, where it is agreed and the document is too large (BIG-2)."""
    return (
        terms.compress_encoding is not None and terms.max_size is not None and size > terms.max_size
    )


def plan_split(size: int, terms: Terms) -> tuple[Part, ...]:
    """The parts of a document of this (compressed) size; one part: it travels whole."""
    if size < 0:
        raise InvalidValue(f"document size {size} is negative", remedy="give its size in bytes")
    limit = terms.max_size
    if limit is None or size <= limit:
        return (Part(1, 1, 0, size),)
    total = -(-size // limit)
    if total > SPLIT_TOTAL_MAX:
        raise DeliveryFailure(
            f"a document of {size} bytes needs {total} parts of at most {limit} bytes",
            remedy="agree on a larger MaxSize",
        )
    return tuple(
        Part(number, total, (number - 1) * limit, min(limit, size - (number - 1) * limit))
        for number in range(1, total + 1)
    )


@dataclass(frozen=True, slots=True)
class Joining:
    """The parts of one SplitId that have arrived, each counted once."""

    split_id: str
    total: int
    # Ordinal and MessageId of each part, in order of arrival.
    parts: tuple[tuple[int, str], ...] = ()
    joined: bool = False

    @classmethod
    def begin(cls, split: Split) -> Joining:
        """No part noted yet."""
        return cls(split.split_id, split.total)

    def add(self, split: Split, message_id: str) -> Joining:
        """Note a part. Two messages that claim one ordinal, or two totals, are an error."""
        if split.total != self.total:
            raise Inconsistent(
                f"part {split.number} says Total {split.total}, earlier parts {self.total}",
                location="//SplitNumber/@Total",
            )
        known = dict(self.parts)
        if split.number in known:
            if known[split.number] == message_id:
                return self
            raise Inconsistent(
                f"part {split.number} of document {self.split_id} came in two messages",
                location="//SplitNumber",
            )
        return replace(self, parts=(*self.parts, (split.number, message_id)))

    @property
    def complete(self) -> bool:
        """Whether every part is there."""
        return len(self.parts) == self.total

    @property
    def missing(self) -> Iterable[int]:
        """Ordinals that have not arrived."""
        known = {number for number, _ in self.parts}
        return (number for number in range(1, self.total + 1) if number not in known)

    def in_order(self) -> tuple[str, ...]:
        """MessageIds of the parts by ordinal, whatever their arrival order (BIG-6)."""
        return tuple(message_id for _, message_id in sorted(self.parts))
