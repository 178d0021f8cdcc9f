"""Content-Transfer-Encoding, undone and done piece by piece."""

from __future__ import annotations

import binascii
from typing import Protocol

from oncewire.errors import MimeProblem

# Three words for bytes as they are (RFC 2045 §6.2); none is a promise that anybody checks.
_IDENTITY = frozenset({"", "7bit", "8bit", "binary"})
# A line of quoted-printable is at most 76 characters; far longer ones are cut anywhere safe.
_LINE_HELD = 4096
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_FOREIGN = bytes(set(range(256)) - set(_ALPHABET))


class Decoder(Protocol):
    """Takes encoded pieces, gives decoded ones; `foreign`: some of what it took was skipped."""

    foreign: bool

    def feed(self, data: bytes) -> bytes:
        """Decode what can be decoded so far."""

    def finish(self) -> bytes:
        """Decode the rest; refuse what was cut off."""


class Identity:
    """7bit, 8bit and binary: nothing to undo."""

    __slots__ = ("foreign",)

    def __init__(self) -> None:
        self.foreign = False

    def feed(self, data: bytes) -> bytes:
        """The bytes themselves."""
        return data

    def finish(self) -> bytes:
        """Nothing is held back."""
        return b""


class Base64:
    """base64, and whether it had to be taken leniently: `foreign` tells that there were characters
    outside of its alphabet.

    RFC 2045 §6.8 lets a decoder skip those, and real NHS messages have quotation marks there. An
    unsigned payload that was damaged would arrive changed, so whether they may be skipped is agreed
    (`wire.base64`). Padding inside, or a single character left over, is damage in any case.
    """

    __slots__ = ("_closed", "_held", "foreign")

    def __init__(self) -> None:
        self._held = b""
        self._closed = False
        self.foreign = False

    def feed(self, data: bytes) -> bytes:
        """Decode whole groups of four."""
        text = self._held + data.translate(None, b" \t\r\n")
        if self._closed:
            text = self._known(text)
        if not text:
            return b""
        self._check_open()
        return self._groups(text)

    def finish(self) -> bytes:
        """Some encoders drop the padding; a single character is damage."""
        held, self._held = self._held, b""
        if self._closed or held.translate(None, _ALPHABET):
            held = self._known(held)
        if not held:
            return b""
        self._check_open()
        if len(held) == 1:
            raise _damaged("base64 is damaged")
        return self._decode(held + b"=" * (4 - len(held)))

    def _groups(self, text: bytes) -> bytes:
        whole = len(text) - len(text) % 4
        if text[:whole].translate(None, _ALPHABET):
            return self._groups(self._known(text))
        self._held = text[whole:]
        return self._decode(text[:whole])

    def _known(self, text: bytes) -> bytes:
        """The text without foreign characters."""
        known = text.translate(None, _FOREIGN)
        self.foreign = self.foreign or known != text
        return known

    def _check_open(self) -> None:
        if self._closed:
            raise _damaged("base64 is damaged")

    def _decode(self, text: bytes) -> bytes:
        if not text:
            return b""
        try:
            data = binascii.a2b_base64(text, strict_mode=True)
        except binascii.Error:
            # What is wrong with it depends on the pieces in which it came; that it is wrong
            # does not.
            raise _damaged("base64 is damaged") from None
        # Padding ends the data (RFC 2045 §6.8): what follows was joined on by somebody.
        self._closed = text.endswith(b"=")
        return data


class QuotedPrintable:
    """quoted-printable (RFC 2045 §6.7); line ends stay as they were sent."""

    __slots__ = ("_held", "foreign")

    def __init__(self) -> None:
        self._held = b""
        self.foreign = False

    def feed(self, data: bytes) -> bytes:
        """Decode whole lines; a very long line up to where no escape is cut."""
        text = self._held + data
        cut = text.rfind(b"\n") + 1
        if cut == 0 and len(text) > _LINE_HELD:
            # An escape has three characters; none may be cut in two.
            cut = len(text) - 3
            equals = text.rfind(b"=", max(0, cut - 3), cut)
            cut = cut if equals < 0 else equals
        self._held = text[cut:]
        return binascii.a2b_qp(text[:cut]) if cut else b""

    def finish(self) -> bytes:
        """Decode the last line."""
        rest, self._held = self._held, b""
        return binascii.a2b_qp(rest) if rest else b""


def decoder(encoding: str) -> Decoder:
    """The decoder of a Content-Transfer-Encoding."""
    if encoding in _IDENTITY:
        return Identity()
    if encoding == "base64":
        return Base64()
    if encoding == "quoted-printable":
        return QuotedPrintable()
    # It cannot be undone, and what was not undone is not the payload.
    raise MimeProblem(
        f"Content-Transfer-Encoding {encoding[:32]!r} is not known",
        location="MIME",
        remedy="use binary, base64 or quoted-printable",
    )


def decoded(encoding: str, data: bytes, *, lenient: bool = False) -> bytes:
    """All of a part's content, with its Content-Transfer-Encoding undone; `lenient`: what does not
    belong there may be skipped, for its digest tells what was meant."""
    undo = decoder(encoding)
    content = undo.feed(data) + undo.finish()
    if undo.foreign and not lenient:
        raise _damaged("base64 is damaged")
    return content


def is_identity(encoding: str) -> bool:
    """Whether the bytes travel as they are."""
    return encoding in _IDENTITY


def _damaged(problem: str) -> MimeProblem:
    return MimeProblem(problem, location="MIME", remedy="send the part again, whole")


BASE64_LINE = 57
"""Source bytes of one base64 line of 76 characters (RFC 2045)."""


def base64_lines(data: bytes) -> bytes:
    """The data as base64 lines that mail can carry."""
    encoded = binascii.b2a_base64(data, newline=False)
    return b"".join(encoded[start : start + 76] + b"\r\n" for start in range(0, len(encoded), 76))


def base64_size(size: int) -> int:
    """How many bytes `base64_lines` makes of that many."""
    encoded = 4 * ((size + 2) // 3)
    return encoded + 2 * ((encoded + 75) // 76)
