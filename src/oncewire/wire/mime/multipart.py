"""Reading multipart MIME piece by piece: bytes in, parts out, nothing held that can pass.

Hand-written scanning with `bytes.find`: the standard library's parser is 25 to 300 times
slower and falls to bombs. A part's content is passed on as soon as it cannot be
the beginning of a boundary any more, so a payload of any size goes through.
"""

from __future__ import annotations

import binascii
import functools
import re
from enum import Enum
from typing import NamedTuple, Protocol

from oncewire.errors import InvalidValue, MimeProblem
from oncewire.message.ids import check_id
from oncewire.wire.limits import Limits, beyond

# MIME headers: a block of lines to names and values, and a Content-Type to its parameters.
#
# Lenient where partners are: parameters without quotes, boundaries with odd characters, `start`
# without angle brackets (docs/decisions.md#real-partners).


# A type and parameters in plain quotes, as nearly everybody writes them, without their values.
_PLAIN = re.compile(r'[\w./+-]+(?:; ?[\w-]+="")+', re.ASCII)
_PARAMETER = re.compile(r'; ?([\w-]+)=""', re.ASCII)
# Longer ones are looked at each time, so that nobody fills memory with them.
_SHAPE_MAX = 256


def parameters(value: str) -> tuple[str, dict[str, str]]:
    """The media type in lower case, and its parameters; the first of a name counts."""
    # Every message has another boundary, and all of a sender are alike but for such values: what
    # stands around the quotes is looked at once.
    pieces = value.split('"')
    shape = '""'.join(pieces[::2])
    plain = _plain_names(shape) if len(shape) <= _SHAPE_MAX and "\\" not in value else None
    # The last value must have its closing quote.
    if plain is not None and len(pieces) % 2:
        media_type, names = plain
        return media_type, dict(zip(names, pieces[-2::-2], strict=True))
    head, _, rest = value.partition(";")
    return _odd_parameters(head, rest)


@functools.lru_cache(maxsize=256)
def _plain_names(shape: str) -> tuple[str, tuple[str, ...]] | None:
    """The media type and the parameters' names, the last first, of a Content-Type whose values were
    taken out of their quotes; None where it is written in another way."""
    if _PLAIN.fullmatch(shape) is None:
        return None
    names = _PARAMETER.findall(shape)
    return shape.partition(";")[0].lower(), tuple(name.lower() for name in reversed(names))


def _odd_parameters(head: str, rest: str) -> tuple[str, dict[str, str]]:
    # RFC 2045 §5.1: the type and parameter names in any capitals, values as they are, a value in
    # quotes or bare.
    found: dict[str, str] = {}
    position = 0
    size = len(rest)
    while position < size:
        # From equals sign to equals sign rather than by token: bare boundaries hold characters that
        # RFC 2045 wants in quotes.
        equals = rest.find("=", position)
        if equals < 0:
            break
        name = rest[position:equals].strip(" \t;\r\n").lower()
        position = equals + 1
        while position < size and rest[position] in " \t":
            position += 1
        if position < size and rest[position] == '"':
            text, position = _quoted(rest, position + 1)
        else:
            end = rest.find(";", position)
            end = size if end < 0 else end
            text, position = rest[position:end].strip(), end
        # Two boundaries in one Content-Type: the first counts, for every reader of ours alike.
        found.setdefault(name, text)
        semicolon = rest.find(";", position)
        position = size if semicolon < 0 else semicolon + 1
    return head.strip().lower(), found


# Parts, and bodies that are a header alone, repeat a handful of types; what a cache hands out is
# never changed.
usual_parameters = functools.lru_cache(maxsize=256)(parameters)


def _quoted(text: str, position: int) -> tuple[str, int]:
    end = text.find('"', position)
    if end < 0:
        return text[position:], len(text)
    # A backslash takes the next character's meaning away (RFC 2822 §3.2.2).
    if "\\" not in text[position:end]:
        return text[position:end], end + 1
    kept = []
    while position < len(text) and text[position] != '"':
        if text[position] == "\\" and position + 1 < len(text):
            position += 1
        kept.append(text[position])
        position += 1
    return "".join(kept), position + 1


def bare_id(value: str | None) -> str:
    """A Content-ID without its angle brackets."""
    # Brackets belong to the header and not to the id (RFC 2045 §7), and a cid: URL has none (RFC
    # 2392).
    text = (value or "").strip()
    if text[:1] == "<":
        text = text[1:]
    return text[:-1] if text[-1:] == ">" else text


def header_lines(lines: list[bytes]) -> list[tuple[str, str]]:
    """Unfolded lines as names and values."""
    headers: list[tuple[str, str]] = []
    for line in lines:
        text = _decoded(line)
        # A folded line goes on (RFC 2822 §2.2.3).
        if text[0] in " \t":
            if not headers:
                raise _broken("the first line of a part is indented")
            name, value = headers[-1]
            headers[-1] = (name, f"{value} {text.strip()}")
            continue
        name, colon, value = text.partition(":")
        name = name.rstrip()
        # No header line, so the blank line was forgotten, and content would be taken for headers.
        if not colon or not name or " " in name:
            raise _broken("a part has no blank line between its headers and its content")
        headers.append((name, value.strip()))
    return headers


def _decoded(text: bytes) -> str:
    # Headers are ASCII by right; senders that write more write UTF-8 or Latin-1.
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text.decode("latin-1")


def _broken(problem: str) -> MimeProblem:
    return MimeProblem(
        problem, location="MIME", remedy="end the headers of each part with a blank line"
    )


# The two headers that every part has, in the usual order, and nothing that needs a second look.
# Only their names are of any capitals: to look at the values so too takes longer.
_USUAL = re.compile(
    rb"(?i:Content-ID): <([!-;=?-~]{1,255})>\r\n(?i:Content-Type): ([!-~](?:[ -~]*[!-~])?)"
)


class PartHeaders(NamedTuple):
    """What the headers of one part say."""

    media_type: str
    content_type: str
    params: dict[str, str]
    content_id: str
    transfer_encoding: str
    content_encoding: str | None
    others: tuple[tuple[str, str], ...]

    @classmethod
    def usual(cls, block: bytes) -> PartHeaders | None:
        """What a block of the usual two headers says; None for any other block."""
        match = _USUAL.fullmatch(block)
        if match is None:
            return None
        content_type = match[2].decode()
        media_type, params = usual_parameters(content_type)
        return cls(media_type, content_type, params, match[1].decode(), "binary", None, ())

    @classmethod
    def of(cls, headers: list[tuple[str, str]]) -> PartHeaders:
        """Sort the headers; one that decides what the part is may stand only once."""
        content_type = content_id = transfer_encoding = content_encoding = None
        others: list[tuple[str, str]] = []
        for name, value in headers:
            lowered = name.lower()
            if lowered == "content-type":
                content_type = _only(content_type, value, lowered)
            elif lowered == "content-id":
                content_id = _only(content_id, value, lowered)
            elif lowered == "content-transfer-encoding":
                transfer_encoding = _only(transfer_encoding, value.lower(), lowered)
            elif lowered == "content-encoding":
                content_encoding = _only(content_encoding, value.lower(), lowered)
            else:
                others.append((name, value))
        # RFC 2045 §5.2 says text/plain. Bytes of unknown kind are safer: nobody changes their line
        # ends.
        content_type = content_type or "application/octet-stream"
        media_type, params = usual_parameters(content_type)
        name = bare_id(content_id)
        # It becomes a payload's name in the store, the journal and the log, so it obeys the rule of
        # all ids.
        if name:
            try:
                check_id(name, "Content-ID")
            except InvalidValue as problem:
                raise MimeProblem(problem.problem, location="MIME", remedy=problem.remedy) from None
        if content_encoding == "identity":
            content_encoding = None
        return cls(
            media_type,
            content_type,
            params,
            name,
            # The RFC's default is 7bit (RFC 2045 §6.1); neither changes a byte.
            transfer_encoding or "binary",
            content_encoding or None,
            tuple(others),
        )


def _only(before: str | None, value: str, name: str) -> str:
    if before is not None:
        raise MimeProblem(
            f"a part has two {name} headers",
            location="MIME",
            remedy="readers differ in which one they take; send one",
        )
    return value


# Content-Transfer-Encoding, undone and done piece by piece.


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


BOUNDARY_MAX = 256
"""RFC 2046 allows 70 characters; a few senders write more, nobody writes hundreds."""
# Spaces after a boundary, which gateways add (RFC 2046 §5.1.1); bounded, so that a line without end
# keeps nobody waiting.
_PADDING_MAX = 256
_PIECE = 65_536
_RETURN = 13


class PartSink(Protocol):
    """Who takes the parts."""

    def part_started(self, headers: PartHeaders) -> bool:
        """A part begins; True asks that a multipart inside it be taken apart too."""

    def part_data(self, data: bytes) -> None:
        """Decoded content of the part that began last."""

    def part_ended(self, begin: int | None, end: int) -> None:
        """That part is complete, and its content lay from `begin` to `end` of the body, as it
        travelled; None: it lay nowhere in one piece."""


class Work:
    """What reading has cost so far; tests hold it against bounds."""

    __slots__ = ("buffered", "foreign", "parts", "tags")

    def __init__(self) -> None:
        # Something was skipped that does not belong into its transfer encoding.
        self.foreign = False
        self.buffered = 0
        self.parts = 0
        # Tags of the header: its tree has at most as many nodes of each kind.
        self.tags = 0

    def hold(self, size: int) -> None:
        """Bytes kept waiting right now; the most ever kept is remembered."""
        self.buffered = max(self.buffered, size)


class Boundary(NamedTuple):
    """A boundary line: where its line end before it and its own line end stand."""

    at: int
    line_end: int
    closing: bool
    # Whether its line ends in a bare line feed. Then so does the frame, and a carriage return
    # before the next boundary is the content's.
    bare: bool = False
    # Whether it is one depends on bytes that have not come yet.
    undecided: bool = False


def delimiter_of(boundary: str) -> bytes:
    """What a boundary line begins with, the line end before it included."""
    if not boundary or len(boundary) > BOUNDARY_MAX or not boundary.isprintable():
        raise MimeProblem(
            "the multipart has no usable boundary",
            location="boundary",
            remedy="name the boundary in the Content-Type",
        )
    # By the line feed alone: the carriage return before it is looked at afterwards, for some
    # senders write none.
    return b"\n--" + boundary.encode("latin-1", "replace")


def find_boundary(buffer: bytes, delimiter: bytes, start: int, *, final: bool) -> Boundary | None:
    """The next boundary line; text that merely begins like one is content."""
    while True:
        at = buffer.find(delimiter, start)
        if at < 0:
            return None
        after = at + len(delimiter)
        # The whole line must be the boundary: a longer boundary may begin with this one, as a
        # nested one often does.
        line_end = buffer.find(b"\n", after, after + _PADDING_MAX)
        if line_end < 0 and len(buffer) < after + _PADDING_MAX:
            if not final:
                return Boundary(at, at, closing=False, undecided=True)
            line_end = len(buffer)
        if line_end >= 0:
            rest = buffer[after:line_end].strip(b" \t\r")
            if rest in (b"", b"--"):
                bare = buffer[line_end - 1 : line_end] != b"\r"
                return Boundary(at, line_end, rest == b"--", bare)
        start = after


def content_end(buffer: bytes, start: int, at: int, *, bare: bool) -> int:
    """Where content ends before the boundary found at `at`: its line end is the boundary's."""
    # The line end before a boundary belongs to the boundary (RFC 2046 §5.1.1); one byte too many
    # and every digest of the part is wrong.
    return at - 1 if not bare and at > start and buffer[at - 1] == _RETURN else at


# What stands before the first boundary and after the last is to be ignored (RFC 2046 §5.1.1).
class _State(Enum):
    PREAMBLE = 1
    HEADERS = 2
    BODY = 3
    EPILOGUE = 4


class MultipartReader:
    """One multipart; nested ones are readers of their own, fed with a part's content."""

    def __init__(
        self,
        boundary: str,
        sink: PartSink,
        limits: Limits,
        *,
        depth: int = 1,
        work: Work | None = None,
        begin: int | None = 0,
    ) -> None:
        if depth > limits.nesting:
            raise beyond("multiparts are nested too deep", "nesting", limits.nesting, mime=True)
        self._delimiter = delimiter_of(boundary)
        self._sink = sink
        self._limits = limits
        self._depth = depth
        self.work = work if work is not None else Work()
        # A boundary may stand at the very beginning: pretend a line end came before it.
        self._buffer = b"\n"
        self._skip = 1
        # Where in the body the buffer begins; not known where it holds what was decoded.
        self._at = (begin or 0) - 1
        self._placed = begin is not None
        self._part_begin = 0
        self._state = _State.PREAMBLE
        self._lines: list[bytes] = []
        self._line_bytes = 0
        self._decoder: Decoder | None = None
        self._nested: MultipartReader | None = None
        self._preamble = 0
        self._bare = False
        self.unclosed = False

    def feed(self, data: bytes) -> None:
        """Take the next piece of the body."""
        if len(data) > _PIECE:
            # Each step copies what is left of its piece, so a piece is kept small.
            for start in range(0, len(data), _PIECE):
                self._take(data[start : start + _PIECE])
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        # Nothing after the closing boundary is read or kept, however long.
        if self._state is _State.EPILOGUE:
            return
        self._buffer = self._buffer + data if self._buffer else data
        while self._step(final=False):
            pass
        self.work.hold(len(self._buffer))

    def finish(self) -> None:
        """The body is over; a missing closing boundary is forgiven and flagged."""
        while self._step(final=True):
            pass
        # With no boundary at all there is no part, and no header to answer.
        if self._state is _State.PREAMBLE:
            raise MimeProblem(
                "no boundary was found: this is not the multipart it says it is",
                location="boundary",
                remedy="separate the parts by the boundary of the Content-Type",
            )
        if self._state is _State.HEADERS:
            # Cut off: half a part's headers may lack the very one that matters.
            if self._lines or self._buffer.strip():
                raise MimeProblem(
                    "the message ends within the headers of a part",
                    location="MIME",
                    remedy="send the message again, whole",
                )
            self.unclosed = True
        elif self._state is _State.BODY:
            self._emit(self._buffer[self._skip :])
            self._end_part(len(self._buffer))
            self.unclosed = True
        self._buffer = b""
        self._state = _State.EPILOGUE

    def _step(self, *, final: bool) -> bool:
        if self._state is _State.HEADERS:
            return self._read_header_line(final=final)
        if self._state is _State.EPILOGUE:
            self._buffer = b""
            return False
        return self._seek_boundary(final=final)

    # Content and preamble: everything up to the next boundary line.

    def _seek_boundary(self, *, final: bool) -> bool:
        found = find_boundary(self._buffer, self._delimiter, 0, final=final)
        if found is None:
            self._keep_tail(final=final)
            return False
        if found.undecided:
            # A carriage return before it may be part of the boundary's line end.
            self._pass(found.at - 1 if found.at else 0)
            return False
        self._boundary(found, final=final)
        return True

    def _boundary(self, found: Boundary, *, final: bool) -> None:
        buffer = self._buffer
        if self._state is _State.BODY:
            end = content_end(buffer, self._skip, found.at, bare=self._bare)
            self._emit(buffer[self._skip : end])
            self._end_part(max(end, self._skip))
        self._bare = found.bare
        self._drop(found.line_end + 1)
        self._skip = 0
        self._lines = []
        self._line_bytes = 0
        self._state = _State.EPILOGUE if found.closing else _State.HEADERS
        if final and found.closing:
            self._buffer = b""

    def _keep_tail(self, *, final: bool) -> None:
        """Pass on all that cannot belong to a boundary any more."""
        if final:
            return
        buffer = self._buffer
        # A boundary cut in two by the piece's end begins with a line feed within this distance of
        # it.
        keep = len(self._delimiter) + 1
        newline = buffer.rfind(b"\n", max(0, len(buffer) - keep))
        cut = newline if newline >= 0 else len(buffer)
        if cut and buffer[cut - 1 : cut] == b"\r":
            cut -= 1
        self._pass(cut)

    def _pass(self, cut: int) -> None:
        if cut <= 0:
            return
        piece = self._buffer[self._skip : cut] if cut > self._skip else b""
        if self._state is _State.BODY:
            self._emit(piece)
        else:
            self._preamble += len(piece)
            if self._preamble > self._limits.preamble_bytes:
                raise beyond(
                    "much stands before the first boundary",
                    "preamble_bytes",
                    self._limits.preamble_bytes,
                    mime=True,
                )
        self._skip = max(0, self._skip - cut)
        self._drop(cut)

    def _drop(self, size: int) -> None:
        """The first bytes of the buffer are done with."""
        self._buffer = self._buffer[size:]
        self._at += size

    # Headers of a part.

    def _read_header_line(self, *, final: bool) -> bool:
        buffer = self._buffer
        newline = buffer.find(b"\n")
        if newline < 0:
            if self._line_bytes + len(buffer) > self._limits.part_header_bytes:
                raise self._headers_beyond()
            if not final or not buffer:
                return False
            newline = len(buffer)
        line = buffer[:newline].rstrip(b"\r")
        # A boundary among the headers: what follows would be taken for content of the wrong part.
        if line.startswith(self._delimiter[1:]):
            raise MimeProblem(
                "a part has no blank line between its headers and its content",
                location="MIME",
                remedy="end the headers of each part with a blank line",
            )
        if not line:
            # The blank line's end serves as the line end before an immediate boundary.
            self._buffer = b"\n" + buffer[newline + 1 :]
            self._at += newline
            self._skip = 1
            self._start_part()
            return True
        self._drop(newline + 1)
        self._lines.append(line)
        self._line_bytes += len(line)
        if len(self._lines) > self._limits.part_header_lines:
            raise beyond(
                "a part has too many header lines",
                "part_header_lines",
                self._limits.part_header_lines,
                mime=True,
            )
        if self._line_bytes > self._limits.part_header_bytes:
            raise self._headers_beyond()
        return True

    def _headers_beyond(self) -> MimeProblem:
        error = beyond(
            "the headers of a part are too long",
            "part_header_bytes",
            self._limits.part_header_bytes,
            mime=True,
        )
        return MimeProblem(error.problem, location=error.location, remedy=error.remedy)

    def _start_part(self) -> None:
        self.work.parts += 1
        if self.work.parts > self._limits.parts:
            raise beyond("the message has too many parts", "parts", self._limits.parts, mime=True)
        headers = PartHeaders.of(header_lines(self._lines))
        # A multipart with an encoding of its own is against RFC 2045 §6.4, but decoding it first
        # costs nothing.
        self._decoder = decoder(headers.transfer_encoding)
        self._state = _State.BODY
        self._part_begin = self._at + self._skip
        descend = self._sink.part_started(headers)
        if descend and headers.media_type.startswith("multipart/"):
            self._nested = MultipartReader(
                headers.params.get("boundary", ""),
                self._sink,
                self._limits,
                depth=self._depth + 1,
                work=self.work,
                begin=self._part_begin if self._is_plain(headers) else None,
            )

    def _is_plain(self, headers: PartHeaders) -> bool:
        return self._placed and is_identity(headers.transfer_encoding)

    def _emit(self, piece: bytes) -> None:
        if not piece or self._decoder is None:
            return
        self._deliver(self._decoder.feed(piece))

    def _deliver(self, data: bytes) -> None:
        if not data:
            return
        if self._nested is not None:
            self._nested.feed(data)
        else:
            self._sink.part_data(data)

    def _end_part(self, end: int) -> None:
        if self._decoder is None:
            return
        self._deliver(self._decoder.finish())
        self.work.foreign = self.work.foreign or self._decoder.foreign
        self._decoder = None
        if self._nested is not None:
            self._nested.finish()
            self.unclosed = self.unclosed or self._nested.unclosed
            self._nested = None
        else:
            self._sink.part_ended(self._part_begin if self._placed else None, self._at + end)
