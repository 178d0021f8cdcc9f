"""The head of an HTTP/1.1 message, read strictly: whatever could be read in two ways is refused.

Two programs that read one head differently are how a second request is smuggled past the first of
them. So there is one line end (CR LF), one way to say how long a body is, no folded lines, no space
before a colon, no control character anywhere, and each header that decides something at most once.
"""

from __future__ import annotations

import re
import time
from collections.abc import ItemsView, Iterator, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit

HEAD_END = b"\r\n\r\n"
# RFC 9110 5.6.2: a name, or a method.
_WORD = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST = re.compile(rf"({_WORD}) ([!-~\x80-\udfff]+) HTTP/([0-9])\.([0-9])")
_STATUS = re.compile(r"HTTP/(1)\.([01]) ([1-9][0-9][0-9])(?: ([^\x00-\x08\x0a-\x1f\x7f]*))?")
_LENGTH = re.compile(r"[0-9]{1,18}")
_LONE_LINE_END = re.compile(rb"(?<!\r)\n|\r(?!\n|$)")
_FIELDS = re.compile(rf"(?:{_WORD}:[^\x00-\x08\x0a-\x1f\x7f]*\r\n)*")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_NAME = re.compile(_WORD)

# Said twice, each of these would leave it open which one counts.
_ONCE = (
    "content-length", "content-type", "content-encoding", "transfer-encoding", "host", "expect",
)  # fmt: skip


class BadHead(Exception):
    """A head that is not HTTP, or could be understood in two ways; `status` answers it."""

    def __init__(self, problem: str, status: int = 400) -> None:
        super().__init__(problem)
        self.status = status


@dataclass(frozen=True, slots=True)
class HeadLimits:
    """How much a head may hold."""

    line: int
    field: int
    fields: int

    @property
    def whole(self) -> int:
        """Most bytes of a head that has not ended yet."""
        return min(self.line + self.field * self.fields, 64 * 1024)


class Headers(Mapping[str, str]):
    """Headers by name, in any case of letters; of several the first, as they were written."""

    __slots__ = ("_first", "pairs")

    def __init__(self, pairs: tuple[tuple[str, str], ...]) -> None:
        self.pairs = pairs
        self._first: dict[str, str] = {}
        for name, value in pairs:
            self._first.setdefault(name.lower(), value)

    def __getitem__(self, name: str) -> str:
        return self._first[name.lower()]

    def __iter__(self) -> Iterator[str]:
        seen = set()
        for name, _ in self.pairs:
            if name.lower() not in seen:
                seen.add(name.lower())
                yield name

    def get(self, name: str, default: Any = None) -> Any:
        """The value of the first header with that name."""
        return self._first.get(name.lower(), default)

    def items(self) -> ItemsView[str, str]:
        """Names and values; where no name occurs twice, without comparing any."""
        return dict(self.pairs).items() if len(self._first) == len(self.pairs) else super().items()

    def __len__(self) -> int:
        return len(self._first)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._first


@dataclass(frozen=True, slots=True)
class Framing:
    """Where the body ends: after so many bytes, with its last chunk, or with the connection."""

    length: int | None = 0
    chunked: bool = False


@dataclass(frozen=True, slots=True)
class RequestHead:
    """What a client wants."""

    method: str
    # Without the query; None: no path of ours at all.
    path: str | None
    headers: Headers
    framing: Framing
    keeps_alive: bool


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """What a server says."""

    status: int
    phrase: str
    headers: Headers
    framing: Framing
    keeps_alive: bool


def find_end(buffer: bytearray, limits: HeadLimits) -> int:
    """Where the head ends in what came so far; -1: not yet. BadHead where it cannot any more."""
    while buffer[:2] == b"\r\n":
        # An empty line before a request is ignored (RFC 9112 2.2).
        del buffer[:2]
    end = buffer.find(HEAD_END, 0, limits.whole)
    if end < 0:
        if len(buffer) >= limits.whole:
            raise BadHead("the head is too long")
        if _LONE_LINE_END.search(buffer):
            raise BadHead("a line does not end with CR LF")
    return end


def read_request(head: bytes, limits: HeadLimits) -> RequestHead:
    """A request's head without the empty line at its end."""
    first, headers = _read(head, limits)
    found = _REQUEST.fullmatch(first)
    if found is None:
        raise BadHead("the request line is none")
    method, target, major, minor = found.groups()
    if (major, minor) not in (("1", "0"), ("1", "1")):
        raise BadHead("this endpoint speaks HTTP/1.1", 505)
    old = minor == "0"
    framing = _request_framing(headers, old=old)
    return RequestHead(method, _path(target), headers, framing, _keeps_alive(headers, old=old))


def read_response(head: bytes, limits: HeadLimits) -> ResponseHead:
    """The same for a response's head."""
    first, headers = _read(head, limits)
    found = _STATUS.fullmatch(first)
    if found is None:
        raise BadHead("the answer is no HTTP")
    _, minor, status, phrase = found.groups()
    old = minor == "0"
    framing = _response_framing(headers, int(status))
    alive = _keeps_alive(headers, old=old)
    return ResponseHead(int(status), phrase or "", headers, framing, alive)


def _read(head: bytes, limits: HeadLimits) -> tuple[str, Headers]:
    # Text that is not UTF-8 cannot be stored: a header must not be able to fail a whole commit.
    first, _, rest = f"{head.decode('utf-8', 'replace')}\r\n".partition("\r\n")
    if len(first) > limits.line:
        raise BadHead("the first line is too long")
    if _FIELDS.fullmatch(rest) is None:
        raise BadHead("a header is none")
    lines = rest.split("\r\n")[:-1]
    if len(lines) > limits.fields:
        raise BadHead("there are too many headers")
    pairs = []
    for line in lines:
        if len(line) > limits.field:
            raise BadHead("a header is too long")
        name, _, value = line.partition(":")
        pairs.append((name, value.strip(" \t")))
    headers = Headers(tuple(pairs))
    if len(headers) != len(pairs):
        names = [name.lower() for name, _ in pairs]
        if any(names.count(name) > 1 for name in _ONCE):
            raise BadHead("a header that may stand once stands twice")
    return first, headers


def _path(target: str) -> str | None:
    """The path of a target in origin form, or in absolute form (RFC 9112 3.2)."""
    if "#" in target:
        raise BadHead("the target has a fragment")
    if target.startswith("/"):
        return unquote(target.partition("?")[0])
    try:
        split = urlsplit(target)
    except ValueError:
        return None
    return unquote(split.path) if split.scheme in ("http", "https") and split.netloc else None


def _request_framing(headers: Headers, *, old: bool) -> Framing:
    coding = headers.get("transfer-encoding")
    if coding is None:
        return Framing(_length(headers) or 0)
    if "content-length" in headers:
        raise BadHead("a body has either a length or chunks")
    if old or coding.lower() != "chunked":
        raise BadHead("the only transfer coding is chunked")
    return Framing(None, chunked=True)


def _response_framing(headers: Headers, status: int) -> Framing:
    if status < 200 or status in (204, 304):
        return Framing(0)
    coding = headers.get("transfer-encoding")
    if coding is None:
        return Framing(_length(headers))
    if "content-length" in headers:
        raise BadHead("a body has either a length or chunks")
    if coding.lower() != "chunked":
        raise BadHead("the only transfer coding is chunked")
    return Framing(None, chunked=True)


def _length(headers: Headers) -> int | None:
    text = headers.get("content-length")
    if text is None:
        return None
    if not _LENGTH.fullmatch(text):
        raise BadHead("the length of the body is no number")
    return int(text)


def _keeps_alive(headers: Headers, *, old: bool) -> bool:
    """Whether another message may follow. HTTP/1.0 had no way to say so that all agreed on."""
    if old or "connection" not in headers:
        return not old
    said = [value for name, value in headers.pairs if name.lower() == "connection"]
    return "close" not in {word.strip().lower() for text in said for word in text.split(",")}


def write_headers(first: str, headers: list[tuple[str, str]]) -> bytes:
    """A head as bytes; ValueError where a header would not be one."""
    lines = [first]
    for name, value in headers:
        if not _NAME.fullmatch(name) or _CONTROL.search(value):
            raise ValueError("a header holds a control character, or its name is none")
        lines.append(f"{name}: {value}")
    return "\r\n".join((*lines, "", "")).encode("utf-8", "surrogateescape")


# The Date of an answer (RFC 9110 6.6.1): all that the clock which people set is asked for here.


def date_now() -> str:
    """Now, as an HTTP Date value."""
    return _date(int(time.time()))


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)
