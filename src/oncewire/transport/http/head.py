"""HTTP/1.1 messages, head and body, read strictly: what could be read in two ways is refused.

Two programs that read one head differently are how a second request is smuggled past the first of
them. So there is one line end (CR LF), one way to say how long a body is, no folded lines, no space
before a colon, no control character anywhere, and each header that decides something at most once.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable, ItemsView, Iterator, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from typing import Any, Protocol
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
        # Backwards, so that of several the first stays.
        self._first = {name.lower(): value for name, value in reversed(pairs)}

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
    # What it waits for before it sends the body; HTTP/1.0 waits for nothing (RFC 9110 10.1.1).
    expects: str


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
    framing, alive = _request_framing(headers, old=old), _keeps_alive(headers, old=old)
    expects = "" if old else headers.get("Expect", "").lower()
    return RequestHead(method, _path(target), headers, framing, alive, expects)


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
    # All names in one look, and all values in another: each is good where all together are.
    names, values = zip(*headers, strict=True)
    if "" in names or not _NAME.fullmatch("".join(names)) or _CONTROL.search("".join(values)):
        raise ValueError("a header holds a control character, or its name is none")
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    return f"{first}\r\n{lines}\r\n".encode("utf-8", "surrogateescape")


# The Date of an answer (RFC 9110 6.6.1): all that the clock which people set is asked for here.


def date_now() -> str:
    """Now, as an HTTP Date value."""
    return _date(int(time.time()))


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)


# Bodies of HTTP/1.1: cut out of what the connection brought, and kept until they are taken.
#
# A `Cutter` knows where a body ends; a `Stream` holds what was cut out until the request's
# handler reads it, and says when the connection should wait.

HELD_MAX = 64 * 1024
"""Bytes that are cut out before the connection is read no further."""

_LINE_MAX = 4096
_TRAILERS_MAX = 8190
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*")


class BadBody(Exception):
    """A body whose frame is not HTTP."""


class Cutter(Protocol):
    """Cuts a body out of a connection's bytes."""

    over: bool

    def cut(self, buffer: bytearray) -> list[bytes]:
        """The pieces of the body at the front of the buffer, which are taken out of it."""


def cutter_of(framing: Framing) -> Cutter:
    """The cutter for a head's framing."""
    if framing.chunked:
        return ChunkCutter()
    return LengthCutter(framing.length)


class LengthCutter:
    """A body of a known length; None: as long as the connection."""

    def __init__(self, length: int | None) -> None:
        self._left = length
        self.over = length == 0

    def cut(self, buffer: bytearray) -> list[bytes]:
        """See `Cutter`."""
        if self.over or not buffer:
            return []
        if self._left is None or len(buffer) <= self._left:
            piece = bytes(buffer)
            buffer.clear()
        else:
            piece = bytes(memoryview(buffer)[: self._left])
            del buffer[: self._left]
        if self._left is not None:
            self._left -= len(piece)
            self.over = self._left == 0
        return [piece]


class ChunkCutter:
    """A body in chunks (RFC 9112 7.1); what follows the last of them is read and dropped."""

    def __init__(self) -> None:
        self.over = False
        # Bytes of the chunk that are still to come; None: its first line is.
        self._left: int | None = None
        self._trailers: int | None = None

    def cut(self, buffer: bytearray) -> list[bytes]:
        """See `Cutter`."""
        pieces: list[bytes] = []
        while buffer and not self.over and self._step(buffer, pieces):
            pass
        return pieces

    def _step(self, buffer: bytearray, pieces: list[bytes]) -> bool:
        """Take the next part; False: it is not whole yet."""
        if self._trailers is not None:
            return self._trailer(buffer)
        if self._left is None:
            line = _line(buffer, _LINE_MAX)
            if line is None:
                return False
            found = _CHUNK.fullmatch(line)
            if found is None:
                raise BadBody("the size of a chunk is no number")
            self._left = int(found[1], 16)
            if self._left == 0:
                self._trailers = 0
            return True
        if self._left == 0:
            if len(buffer) < 2:
                if buffer[:1] != b"\r":
                    raise BadBody("a chunk is longer than it said")
                return False
            if buffer[:2] != b"\r\n":
                raise BadBody("a chunk is longer than it said")
            del buffer[:2]
            self._left = None
            return True
        piece = bytes(memoryview(buffer)[: self._left])
        del buffer[: len(piece)]
        self._left -= len(piece)
        pieces.append(piece)
        return True

    def _trailer(self, buffer: bytearray) -> bool:
        line = _line(buffer, _TRAILERS_MAX)
        if line is None:
            return False
        if not line:
            self.over = True
            return True
        self._trailers = (self._trailers or 0) + len(line)
        if self._trailers > _TRAILERS_MAX or not _TRAILER.fullmatch(line):
            raise BadBody("what follows the last chunk is no header")
        return True


def _line(buffer: bytearray, most: int) -> bytes | None:
    """The next line, taken out of the buffer; None: it is not whole yet."""
    end = buffer.find(b"\n", 0, most)
    if end < 0:
        if len(buffer) >= most:
            raise BadBody("a line is too long")
        return None
    if end == 0 or buffer[end - 1] != 0x0D:
        raise BadBody("a line does not end with CR LF")
    line = bytes(memoryview(buffer)[: end - 1])
    del buffer[: end + 1]
    return line


class Stream:
    """The part of a body that has arrived and was not taken yet."""

    __slots__ = ("_held", "_pieces", "_resume", "_waiter", "broken", "over")

    def __init__(self, resume: Callable[[], None]) -> None:
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._waiter: asyncio.Future[None] | None = None
        self._resume: Callable[[], None] | None = resume
        # Nothing more will come.
        self.over = False
        # Why nothing more will come although it is not whole.
        self.broken = ""

    @property
    def full(self) -> bool:
        """Whether the connection should stop reading."""
        return self._held > HELD_MAX

    def put(self, pieces: list[bytes]) -> None:
        """Add bytes that arrived."""
        for piece in pieces:
            self._pieces.append(piece)
            self._held += len(piece)
        if pieces:
            self._wake()

    def end(self, broken: str = "") -> None:
        """Note that the body has ended."""
        if not self.over:
            self.over, self.broken = True, broken
            self._resume = None
            self._wake()

    def take(self) -> bytes:
        """The next piece, if one has arrived."""
        if not self._pieces:
            return b""
        piece = self._pieces.popleft()
        was_full = self.full
        self._held -= len(piece)
        if was_full and not self.full and self._resume is not None:
            self._resume()
        return piece

    async def wait(self) -> None:
        """Wait until there is a piece, or the end."""
        if self._pieces or self.over:
            return
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
