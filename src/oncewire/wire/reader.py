"""Reader: a message read while it arrives, header first, payloads passed on piece by piece.

The header is judged before the first payload byte is kept anywhere, so the handler can look
up the agreement, apply its limits and choose where the payloads go.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from msgspec import structs

from oncewire.errors import EbxmlError, InvalidValue, MimeProblem, SoapFault
from oncewire.message.envelope import Payload
from oncewire.message.form import Validation
from oncewire.wire import header
from oncewire.wire.limits import DEFAULT_LIMITS, Limits, beyond
from oncewire.wire.mime.multipart import (
    IDENTITY,
    Decoder,
    PartHeaders,
    bare_id,
    decoder,
    header_lines,
    parameters,
    resolve_references,
)
from oncewire.wire.parcel import Parcel, PartialHeader, PartPlace, ReadFault, Received
from oncewire.wire.security.references import digest_names

if TYPE_CHECKING:
    from oncewire.wire.templates.envelope import EnvelopeTemplates

# --- a multipart: bytes in, parts out ------------------------------------------------------------
#
# A part's content is passed on as soon as it cannot be the beginning of a boundary any more, so a
# payload of any size goes through.

BOUNDARY_MAX = 256
"""Characters of a boundary. RFC 2046 allows 70; a few senders write more."""
# Spaces after a boundary, which gateways add (RFC 2046 §5.1.1); bounded, so that a line without end
# is not buffered.
_PADDING_MAX = 256
_PIECE = 65_536
_RETURN = 13


class PartSink(Protocol):
    """Takes the parts of a multipart."""

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


def find_boundary(buffer: bytes, delimiter: bytes, *, final: bool) -> Boundary | None:
    """The next boundary line; text that merely begins like one is content."""
    start = 0
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


# What stands before the first boundary and after the last is to be ignored (RFC 2046 §5.1.1).
class _State(Enum):
    PREAMBLE = 1
    HEADERS = 2
    BODY = 3
    EPILOGUE = 4


# The two headers that every part has, in the usual order, and nothing that needs a second look.
# Only their names are of any capitals: to look at the values so too takes longer.
_USUAL = re.compile(
    rb"\r\n(?i:Content-ID): <([!-;=?-~]{1,255})>"
    rb"\r\n(?i:Content-Type): ([!-~](?:[ -~]*[!-~])?)\r\n\r\n"
)


class MultipartReader:
    """One multipart, read as it arrives; nested ones are readers of their own, fed with a part's
    content."""

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
        # None where the content travels as it is.
        self._decoder: Decoder | None = None
        self._nested: MultipartReader | None = None
        self._preamble = 0
        self._bare = False
        self.unclosed = False

    def read(self, body: bytes) -> None:
        """Take the whole body; a small one at once, where nothing in it is unusual."""
        parts = self._usual_parts(body) if len(body) <= _PIECE else None
        if parts is None:
            self.feed(body)
            return
        self._state = _State.EPILOGUE
        for headers, begin, end in parts:
            self._sink.part_started(headers)
            self._sink.part_data(body[begin:end])
            self._sink.part_ended(begin, end)

    def _usual_parts(self, body: bytes) -> list[tuple[PartHeaders, int, int]] | None:
        """The headers of each part, and from where to where its content goes; None where that
        takes a second look."""
        boundary, framed = b"\r" + self._delimiter, b"\r\n" + body
        before, *pieces = framed.split(boundary)
        # A bare line feed may end a boundary line too.
        if before or framed.count(self._delimiter) != len(pieces):
            return None
        if not pieces or pieces.pop() not in (b"--\r\n", b"--") or len(pieces) > self._limits.parts:
            return None
        parts, at = [], -2
        for piece in pieces:
            usual = _USUAL.match(piece)
            if usual is None or usual.end() > self._limits.part_header_bytes:
                return None
            content_type, at = usual[2].decode(), at + len(boundary)
            media_type, params = parameters(content_type)
            if media_type.startswith("multipart/"):
                return None
            name = usual[1].decode()
            headers = PartHeaders(media_type, content_type, params, name, "binary", None, ())
            parts.append((headers, at + usual.end(), at + len(piece)))
            at += len(piece)
        return parts

    def feed(self, data: bytes) -> None:
        """Take the next piece of the body."""
        # Each step copies what is left of its piece, so a piece is kept small.
        for start in range(0, len(data), _PIECE):
            # Nothing after the closing boundary is read or kept, however long.
            if self._state is _State.EPILOGUE:
                return
            self._buffer += data[start : start + _PIECE]
            self._advance(final=False)
            self.work.hold(len(self._buffer))

    def finish(self) -> None:
        """The body is over; a missing closing boundary is forgiven and flagged."""
        self._advance(final=True)
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

    def _advance(self, *, final: bool) -> None:
        """Read on, up to what could be the beginning of a boundary or of a header line."""
        while self._state is not _State.EPILOGUE:
            if self._state is _State.HEADERS:
                if not self._read_headers(final=final):
                    return
                continue
            # Content and preamble: everything up to the next boundary line.
            buffer = self._buffer
            found = find_boundary(buffer, self._delimiter, final=final)
            if found is None:
                if not final:
                    # A boundary cut in two begins with a line feed near the end of the piece.
                    newline = buffer.rfind(b"\n", max(0, len(buffer) - len(self._delimiter) - 1))
                    self._pass(newline if newline >= 0 else len(buffer))
                return
            if found.undecided:
                self._pass(found.at)
                return
            if self._state is _State.BODY:
                end = found.at
                # The line end before a boundary belongs to the boundary (RFC 2046 §5.1.1); one byte
                # too many and every digest of the part is wrong.
                if not self._bare and end > self._skip and buffer[end - 1] == _RETURN:
                    end -= 1
                self._emit(buffer[self._skip : end])
                self._end_part(max(end, self._skip))
            self._bare = found.bare
            self._buffer = buffer[found.line_end + 1 :]
            self._at += found.line_end + 1
            self._skip = 0
            self._lines = []
            self._line_bytes = 0
            self._state = _State.EPILOGUE if found.closing else _State.HEADERS
        self._buffer = b""

    def _pass(self, cut: int) -> None:
        """Pass on what cannot belong to a boundary any more: all before `cut`, but for a carriage
        return there."""
        if cut and self._buffer[cut - 1] == _RETURN:
            cut -= 1
        piece = self._buffer[self._skip : cut]
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
        """Remove the first bytes of the buffer, which are processed."""
        self._buffer = self._buffer[size:]
        self._at += size

    def _read_headers(self, *, final: bool) -> bool:
        """Read the next line of a part's headers; whether there was one."""
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
            self._start_part(PartHeaders.of(header_lines(self._lines)), newline)
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

    def _start_part(self, headers: PartHeaders, blank: int) -> None:
        """Begin the content of a part, whose headers end with the line end at `blank`."""
        # That line end serves as the one before an immediate boundary.
        self._buffer = b"\n" + self._buffer[blank + 1 :]
        self._at += blank
        self._skip = 1
        self.work.parts += 1
        if self.work.parts > self._limits.parts:
            raise beyond("the message has too many parts", "parts", self._limits.parts, mime=True)
        # A multipart with an encoding of its own is against RFC 2045 §6.4, but decoding it first
        # costs nothing.
        plain = headers.transfer_encoding in IDENTITY
        self._decoder = None if plain else decoder(headers.transfer_encoding)
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
                begin=self._part_begin if self._placed and plain else None,
            )

    def _emit(self, piece: bytes) -> None:
        data = piece if self._decoder is None else self._decoder.feed(piece)
        if self._nested is not None:
            self._nested.feed(data)
        elif data:
            self._sink.part_data(data)

    def _end_part(self, end: int) -> None:
        if self._decoder is not None:
            undo, self._decoder = self._decoder, None
            self._emit(undo.finish())
            self.work.foreign = self.work.foreign or undo.foreign
        if self._nested is not None:
            self._nested.finish()
            self.unclosed = self.unclosed or self._nested.unclosed
            self._nested = None
        else:
            self._sink.part_ended(self._part_begin if self._placed else None, self._at + end)


# --- a message ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HeaderRead:
    """The header is complete and sound; payloads are still to come."""

    received: Received


@dataclass(frozen=True, slots=True)
class PayloadStarted:
    """A payload part begins; its size is not known yet."""

    content_id: str
    media_type: str
    content_encoding: str | None


@dataclass(frozen=True, slots=True)
class PayloadData:
    """The next decoded bytes of the payload that began last."""

    data: bytes


@dataclass(frozen=True, slots=True)
class PayloadEnded:
    """The payload is complete: size and digest are known. `data` is None, it passed by."""

    payload: Payload


Event: TypeAlias = HeaderRead | PayloadStarted | PayloadData | PayloadEnded


class _Part:
    """A payload on its way."""

    __slots__ = ("content_id", "data", "digest", "headers", "others", "size")

    def __init__(self, content_id: str, headers: PartHeaders, others: tuple[str, ...]) -> None:
        self.content_id = content_id
        self.headers = headers
        self.size = 0
        self.data: list[bytes] = []
        self.digest = hashlib.sha256()
        # Signatures of the past name SHA-1; it is computed only for those.
        self.others = {name: hashlib.new(name, usedforsecurity=False) for name in others}


class Reader:
    """Feed it the body as it arrives; take the events; `finish` gives the whole."""

    def __init__(
        self,
        content_type: str,
        headers: tuple[tuple[str, str], ...] = (),
        limits: Limits = DEFAULT_LIMITS,
        *,
        validation: Validation = Validation.REPORT,
        templates: EnvelopeTemplates | None = None,
        whole: Parcel | None = None,
    ) -> None:
        # Where the whole body is at hand, the payloads keep their data.
        self._whole = whole is not None
        self._parcel = whole or Parcel(content_type, b"", headers)
        self._templates = templates
        self._limits = limits
        self._validation = validation
        self._events: list[Event] = []
        self._root: list[bytes] = []
        self._root_size = 0
        self._in_root = False
        self._charset: str | None = None
        self._received: Received | None = None
        self._part: _Part | None = None
        self._payloads: list[Payload] = []
        self._places: list[PartPlace | None] = []
        self._content_ids: list[str] = []
        self._notes: list[str] = []
        self._extra_digests: list[tuple[str, str, bytes]] = []
        self._extra_names: tuple[str, ...] = ()
        # Parts that came before the root part, held until it is read.
        # An end says from where to where in the body the content went.
        self._held: list[PartHeaders | bytes | tuple[int | None, int]] = []
        self._held_bytes = 0
        self._multipart: MultipartReader | None = None
        # Of a header that is no part of a multipart; None where it travels as it is.
        self._decoder: Decoder | None = None
        self.work = Work()
        media_type, params = parameters(content_type)
        # NHS Spine leaves the brackets out (docs/explanation/decisions.md#real-partners).
        self._start = bare_id(params["start"]) if "start" in params else ""
        try:
            if media_type.startswith("multipart/"):
                boundary = params.get("boundary", "")
                self._multipart = MultipartReader(boundary, self, limits, work=self.work)
                return
            encoding = (self._parcel.header("content-transfer-encoding") or "").strip().lower()
            self._decoder = None if encoding in IDENTITY else decoder(encoding)
        except MimeProblem as error:
            raise self.refuse(error) from None
        # §2.1.3.2; the XML declaration wins over it where they differ.
        self._charset = params.get("charset")
        self._in_root = True

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next bytes; the events they complete."""
        try:
            # A body that is no multipart is a header alone, as acknowledgements are (§2.1.2).
            if self._multipart is not None:
                (self._multipart.read if self._whole else self._multipart.feed)(chunk)
            else:
                if not self._root and chunk[:1] == b"<":
                    # A header over HTTP may still say base64; the bytes show it is not.
                    self._decoder = None
                self.part_data(chunk if self._decoder is None else self._decoder.feed(chunk))
        except (EbxmlError, SoapFault) as error:
            raise self.refuse(error) from None
        events, self._events = self._events, []
        return events

    def finish(self) -> tuple[list[Event], Received]:
        """The body is over: the last events, and the whole message.

        Its payloads have no `data`, unless the whole body was at hand; they passed by as events.
        """
        try:
            if self._multipart is not None:
                self._multipart.finish()
            else:
                if self._decoder is not None:
                    self.part_data(self._decoder.finish())
                    self.work.foreign = self._decoder.foreign
                self.part_ended(None, 0)
            received = self._complete()
        except (EbxmlError, SoapFault) as error:
            raise self.refuse(error) from None
        events, self._events = self._events, []
        return events, received

    def limit_payloads(self, size: int) -> None:
        """From here on no payload may have more bytes: the agreement is known."""
        self._limits = replace(self._limits, payload_bytes=size)

    # What the MIME reader calls (PartSink).

    def part_started(self, headers: PartHeaders) -> bool:
        """A part begins: the root part, a container, or a payload."""
        if headers.media_type.startswith("multipart/") and not self._is_referenced(headers):
            # A container is not a payload; one that the Manifest names is (it may be signed).
            return True
        if self._received is not None:
            self._start_payload(headers)
        elif not self._start or headers.content_id == self._start:
            # Without `start` the first part is the root (RFC 2387 §3.2).
            self._in_root = True
            self._charset = headers.params.get("charset")
        else:
            # `start` may name a later part; what comes before it waits, within a bound.
            self._held.append(headers)
        return False

    def part_data(self, data: bytes) -> None:
        """Content of the part that began last."""
        if not data:
            return
        if self._in_root:
            self._root_size += len(data)
            self.work.hold(self._root_size)
            if self._root_size > self._limits.header_bytes:
                raise beyond(
                    f"the header has more than {self._limits.header_bytes:,} bytes",
                    "header_bytes",
                    self._limits.header_bytes,
                )
            self._root.append(data)
        elif self._received is None:
            self._held_bytes += len(data)
            self.work.hold(self._held_bytes)
            if self._held_bytes > self._limits.before_root_bytes:
                raise beyond(
                    "payloads stand before the root part",
                    "before_root_bytes",
                    self._limits.before_root_bytes,
                    mime=True,
                )
            self._held.append(data)
        else:
            self._payload_data(data)

    def part_ended(self, begin: int | None, end: int) -> None:
        """The part that began last is complete."""
        if self._in_root:
            self._in_root = False
            self._read_header(b"".join(self._root))
            held, self._held = self._held, []
            for item in held:
                if isinstance(item, PartHeaders):
                    self._start_payload(item)
                elif isinstance(item, bytes):
                    self._payload_data(item)
                else:
                    self._end_payload(*item)
        elif self._received is None:
            self._held.append((begin, end))
        else:
            self._end_payload(begin, end)

    # Root part

    def _is_referenced(self, headers: PartHeaders) -> bool:
        if self._received is None or not headers.content_id:
            return False
        # A container that the Manifest does not name is only packaging.
        return any(
            reference.content_id == headers.content_id
            for reference in self._received.message.manifest
        )

    def _read_header(self, envelope: bytes) -> None:
        asked = envelope, self._charset, self._limits, self._validation
        known = self._templates.read(*asked) if self._templates is not None else None
        reading = known or header.read(*asked)
        self.work.tags = envelope.count(b"<")
        self._notes.extend(reading.notes)
        self._received = Received(
            message=reading.message,
            parcel=self._parcel,
            envelope=envelope,
            dialect=reading.message.dialect,
            notes=tuple(self._notes),
            schema_problems=reading.schema_problems,
            signed=reading.signed,
            charset=self._charset,
            complete=False,
            by_template=known is not None,
        )
        if not self._whole:
            # Asked for now, because the parts pass by only once.
            self._extra_names = digest_names(envelope) if reading.signed else ()
            self._events.append(HeaderRead(self._received))

    # Payloads

    def _start_payload(self, headers: PartHeaders) -> None:
        content_id = headers.content_id
        # Nothing can refer to it (§2.1.4), but a gateway may have dropped the header; the
        # application still gets it.
        if not content_id:
            content_id = f"part-{len(self._content_ids) + 1}"
            self._notes.append(f"a part without Content-ID is called {content_id}")
        # Which of the two the Manifest and the signature mean cannot be known.
        if content_id in self._content_ids:
            raise MimeProblem(
                f"two parts have the Content-ID {content_id[:64]!r}",
                location=f"cid:{content_id}",
                remedy="give every part an id of its own",
            )
        self._content_ids.append(content_id)
        self._part = _Part(content_id, headers, self._extra_names)
        if not self._whole:
            self._events.append(
                PayloadStarted(content_id, headers.content_type, headers.content_encoding)
            )

    def _payload_data(self, data: bytes) -> None:
        part = self._part
        if part is None:
            return
        # Counted decoded, as the agreement counts (BIG-1).
        part.size += len(data)
        bound = self._limits.payload_bytes
        if bound is not None and part.size > bound:
            raise beyond("a payload is too large", "payload_bytes", bound, mime=True)
        part.digest.update(data)
        for other in part.others.values():
            other.update(data)
        if self._whole:
            part.data.append(data)
        else:
            self._events.append(PayloadData(data))

    def _end_payload(self, begin: int | None, end: int) -> None:
        part, self._part = self._part, None
        if part is None:
            return
        try:
            payload = Payload(
                content_id=part.content_id,
                media_type=part.headers.content_type,
                size=part.size,
                digest=part.digest.hexdigest(),
                data=b"".join(part.data) if self._whole else None,
                content_encoding=part.headers.content_encoding,
                mime_headers=part.headers.others,
            )
        except InvalidValue as problem:
            raise MimeProblem(problem.problem, location="MIME", remedy=problem.remedy) from None
        self._payloads.append(payload)
        encoding = part.headers.transfer_encoding
        self._places.append(None if begin is None else PartPlace(begin, end - begin, encoding))
        self._extra_digests.extend(
            (part.content_id, name, other.digest()) for name, other in part.others.items()
        )
        if not self._whole:
            self._events.append(PayloadEnded(payload))

    # The end

    def _complete(self) -> Received:
        received = self._received
        # Nothing of the message is known, so no answer can be addressed: a MIME error (§2.1.6).
        if received is None:
            raise MimeProblem(
                f"no part is the root: none has the Content-ID {self._start[:64]!r}"
                if self._start
                else "the message has no parts",
                location="start",
                remedy="let `start` name the header part",
            )
        closed = self._multipart is None or not self._multipart.unclosed
        # Only noted: some senders forget it. Whether the end was cut off the transport knows, by
        # its length.
        if not closed:
            self._notes.append("the closing boundary is missing")
        if self.work.foreign:
            self._notes.append("characters that do not belong into base64 were skipped")
        message = received.message
        if message.manifest or self._content_ids:
            resolve_references(message, self._content_ids, self._notes)
            message = structs.replace(message, payloads=tuple(self._payloads))
        return structs.replace(
            received,
            message=message,
            notes=tuple(self._notes),
            complete=True,
            closed=closed,
            odd_base64=self.work.foreign,
            extra_digests=tuple(self._extra_digests),
            places=tuple(self._places),
        )

    def refuse(self, error: EbxmlError | SoapFault) -> ReadFault:
        """The fault of this message, with all that is known of it."""
        if self._received is None:
            return ReadFault((error,), envelope=b"", notes=tuple(self._notes))
        return ReadFault(
            (error,),
            PartialHeader.of(self._received.message),
            self._received.envelope,
            tuple(self._notes),
        )


__all__ = ["Event", "HeaderRead", "PayloadData", "PayloadEnded", "PayloadStarted", "Reader"]
