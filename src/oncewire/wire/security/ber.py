"""BER: the values of a CMS structure, one after the other.

Senders that stream write lengths that are not known before the end, and strings in pieces (X.690
§8.1.3.6, §8.7.3), so DER alone does not do. Nothing is built: a cursor goes over the bytes once,
and whoever knows the structure says what comes next. Whatever is not as it should be is a
ValueError.
"""

from __future__ import annotations

SEQUENCE, SET = 0x30, 0x31
INTEGER, OCTETS, OBJECT_ID = 0x02, 0x04, 0x06

_CONSTRUCTED = 0x20
_DEEPEST = 16
_END = b"\0\0"


class Cursor:
    """A place in a structure, within the elements that were entered and not left."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        # Where each of them ends; None: at a mark that comes there.
        self._ends: list[int | None] = [len(data)]

    def tag(self) -> int | None:
        """The tag of the next element; None: this one has no more."""
        end = self._ends[-1]
        if end is None:
            if self._data[self._at : self._at + 2] == _END:
                return None
        elif self._at == end:
            return None
        return self._byte(self._at)

    def enter(self, tag: int) -> None:
        """Go into the next element, which has this tag."""
        length = self._head(tag)
        if len(self._ends) > _DEEPEST:
            raise ValueError("too deep")
        self._ends.append(None if length is None else self._at + length)

    def leave(self) -> None:
        """Go behind the element that was entered last, whatever else is in it."""
        while self.tag() is not None:
            self.skip()
        if self._ends.pop() is None:
            self._at += len(_END)

    def skip(self) -> None:
        """Go behind the next element."""
        tag = self.tag()
        if tag is None:
            raise ValueError("there is nothing more")
        length = self._head(tag)
        if length is not None:
            self._at += length
            return
        if len(self._ends) > _DEEPEST:
            raise ValueError("too deep")
        self._ends.append(None)
        self.leave()

    def primitive(self, tag: int) -> bytes:
        """The content of the next element, which has this tag and no elements in it."""
        length = self._head(tag)
        if length is None or tag & _CONSTRUCTED:
            raise ValueError("it has elements in it")
        self._at += length
        return self._data[self._at - length : self._at]

    def octets(self, tag: int = OCTETS) -> bytes:
        """The octet string that comes next under this tag, whole or in pieces."""
        if self.tag() == tag:
            return self.primitive(tag)
        self.enter(tag | _CONSTRUCTED)
        pieces = []
        while self.tag() is not None:
            pieces.append(self.octets())
        self.leave()
        return b"".join(pieces)

    def finish(self) -> None:
        """Nothing may follow the whole."""
        if len(self._ends) != 1 or self._at != len(self._data):
            raise ValueError("more bytes follow")

    def _head(self, tag: int) -> int | None:
        """Go to the content of the next element; its length, None where a mark ends it."""
        if self.tag() != tag or tag & 0x1F == 0x1F:
            raise ValueError("another element is expected")
        first = self._byte(self._at + 1)
        self._at += 2
        if first == 0x80:
            if not tag & _CONSTRUCTED:
                raise ValueError("a string without a length")
            return None
        length = first
        if first > 0x80:
            count = first & 0x7F
            written = self._data[self._at : self._at + count]
            if count > 8 or len(written) != count:
                raise ValueError("a length that nobody can have")
            length, self._at = int.from_bytes(written, "big"), self._at + count
        around = next((end for end in reversed(self._ends) if end is not None), 0)
        if self._at + length > around:
            raise ValueError("it ends before it should")
        return length

    def _byte(self, at: int) -> int:
        if at >= len(self._data):
            raise ValueError("it ends before it should")
        return self._data[at]
