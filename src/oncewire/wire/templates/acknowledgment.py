"""AckTemplate: the acknowledgements of one partner, which differ in four values alone.

One is written with marks in place of these values; what stands around the marks stands in all of
them. A stencil is only kept if it gives, byte for byte, what the writer gives for other values too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from oncewire.errors import InvalidValue
from oncewire.message.instant import Instant
from oncewire.wire.parcel import Parcel
from oncewire.wire.xml.source import identifier, written_moment


class AckFields(NamedTuple):
    """What differs in each: its own id, the message that it acknowledges and its conversation, and
    the moment."""

    message_id: str
    ref_to_message_id: str
    conversation_id: str
    now: Instant

    def texts(self) -> tuple[bytes, ...]:
        """The values as they are written; InvalidValue for one that cannot be."""
        return (
            identifier(self.message_id).encode(),
            identifier(self.ref_to_message_id).encode(),
            identifier(self.conversation_id).encode(),
            written_moment(self.now).encode(),
        )


_MARKS = AckFields("mark-7b1e@own", "mark-7b1e@other", "mark-7b1e-talk", 981_173_106_789_012)
_TRIAL = AckFields("a<b>&c@own", "d]]>e@other", "f'\"g talk", 1_000_000_000_000_000)

_MARK = re.compile(b"(" + b"|".join(map(re.escape, _MARKS.texts())) + b")")


class AckTemplate:
    """A parcel with blanks."""

    __slots__ = ("_order", "_parcel", "_pieces")

    def __init__(self, marked: Parcel) -> None:
        pieces, marks = _MARK.split(marked.body), _MARKS.texts()
        self._parcel = marked
        self._pieces = pieces
        # At each second place one of the values stands: which one.
        self._order = [(place, marks.index(pieces[place])) for place in range(1, len(pieces), 2)]

    def filled(self, blanks: AckFields) -> Parcel:
        """The parcel with these values."""
        texts, pieces = blanks.texts(), self._pieces.copy()
        for place, which in self._order:
            pieces[place] = texts[which]
        return Parcel(self._parcel.content_type, b"".join(pieces), self._parcel.headers)


def stencil_of(write: Callable[[AckFields], Parcel], first: AckFields) -> AckTemplate | None:
    """The stencil of what a writer writes; None where it writes more than these values otherwise.
    `first` are values that it is to be tried with."""
    try:
        stencil = AckTemplate(write(_MARKS))
        sound = all(stencil.filled(blanks) == write(blanks) for blanks in (first, _TRIAL))
    except InvalidValue:
        # Whoever writes it himself is told.
        return None
    return stencil if sound else None
