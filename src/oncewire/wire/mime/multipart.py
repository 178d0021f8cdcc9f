"""Reading multipart MIME piece by piece: bytes in, parts out, nothing held that can pass.

Hand-written scanning with `bytes.find`: the standard library's parser is 25 to 300 times
slower and falls to bombs. A part's content is passed on as soon as it cannot be
the beginning of a boundary any more, so a payload of any size goes through.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from oncewire.errors import MimeProblem
from oncewire.wire.limits import Limits, beyond
from oncewire.wire.mime.headers import PartHeaders, header_lines
from oncewire.wire.mime.transfer import Decoder, decoder, is_identity

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
