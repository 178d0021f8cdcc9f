"""Multipart MIME: headers, transfer encodings, how a Manifest names parts, and how it is written.

Hand-written scanning: the standard library's parser is 25 to 300 times slower and falls to bombs.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias
from urllib.parse import quote, unquote

from msgspec import Struct
from msgspec.structs import replace

from oncewire.errors import InvalidValue, MimeProblem
from oncewire.message.envelope import Message, Payload
from oncewire.message.ids import check_id
from oncewire.wire.parcel import Parcel

# MIME headers: a block of lines to names and values, and a Content-Type to its parameters.
#
# Lenient where partners are: parameters without quotes, boundaries with odd characters, `start`
# without angle brackets (docs/explanation/decisions.md#real-partners).


def parameters(value: str) -> tuple[str, dict[str, str]]:
    """The media type in lower case, and its parameters; the first of a name counts."""
    head, _, rest = value.partition(";")
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
        # RFC 2045 §5.2 says text/plain. Bytes of unknown kind are safer: no reader changes their
        # line ends.
        content_type = content_type or "application/octet-stream"
        media_type, params = parameters(content_type)
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


# Three words for bytes as they are (RFC 2045 §6.2); none is a promise that is checked.
IDENTITY = frozenset({"", "7bit", "8bit", "binary"})
# A line of quoted-printable is at most 76 characters; far longer ones are cut anywhere safe.
_LINE_HELD = 4096
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_FOREIGN = bytes(set(range(256)) - set(_ALPHABET))


class Decoder(Protocol):
    """Takes encoded pieces, gives decoded ones; `foreign`: some of what it took was skipped."""

    foreign: bool

    def feed(self, data: bytes) -> bytes:
        """Decode as much as possible of the input so far."""

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
        # Padding ends the data (RFC 2045 §6.8): what follows was joined on.
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
    if encoding in IDENTITY:
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
    return encoding in IDENTITY


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


# Whether every reference of the Manifest finds its part (ebMS 2.0 §3.2.2).


# What RFC 2392 lets stand unescaped in a cid: URL, and the slash some handlers write.
_SAFE = "@!$&'()*+,;=:/~-._"
_PLAIN_ID = re.compile(r"[A-Za-z0-9@._-]+\Z")


def reference_to(content_id: str) -> str:
    """The cid: URL of a part."""
    if _PLAIN_ID.match(content_id):
        return "cid:" + content_id
    return "cid:" + quote(content_id, safe=_SAFE)


def part_of(href_id: str, content_ids: list[str] | tuple[str, ...]) -> str | None:
    """The Content-ID that a cid: URL (without its scheme) names, escaped or not."""
    # As written first: a Content-ID may itself hold a percent sign.
    if href_id in content_ids:
        return href_id
    plain = unquote(href_id)
    return plain if plain in content_ids else None


def resolve_references(message: Message, content_ids: list[str], notes: list[str]) -> None:
    """Refuse a cid: that names no part; note parts and references that go elsewhere."""
    named = set()
    for reference in message.manifest:
        wanted = reference.content_id
        if wanted is None:
            # §3.2.2 leaves other schemes open; the application may resolve them (NHS uses mid:).
            notes.append(f"the reference {reference.href[:128]!r} lies outside this message")
            continue
        found = wanted if wanted in content_ids else part_of(wanted, content_ids)
        if found is None:
            raise MimeProblem(
                f"the Manifest names {reference.href[:128]!r}, but no part has that Content-ID",
                location=reference.href,
                remedy="send the part, or leave the reference out",
            )
        named.add(found)
    notes.extend(
        f"the part {content_id[:64]!r} is not named in the Manifest"
        for content_id in content_ids
        if content_id not in named
    )


BUNDLE_TYPE = "multipart/mixed"
"""The media type of several messages in one body (SYNC-8, C30)."""


# Writing multipart MIME: small messages as bytes, large ones as pieces that never meet.
#
# Payload bytes go out exactly as they are; only mail, which cannot carry eight bits safely, gets
# base64, and a payload that says so of itself.

_READ = 65_536
_BOUNDARY = re.compile(r"[A-Za-z0-9'()+_,./:=?-]{1,70}")

TRANSFER = ("Content-Transfer-Encoding", "base64")
"""What a payload has among its headers that is to travel as base64."""


class Readable(Protocol):
    """A file or anything that reads like one."""

    def read(self, size: int, /) -> bytes:
        """Up to that many bytes; empty at the end."""


Source: TypeAlias = bytes | Readable | Iterable[bytes]
"""Where a payload's bytes come from."""


class Packaging(Struct, frozen=True, gc=False):
    """How the parts are put together; `type` and `start` are those of RFC 2387 §3."""

    # application/vnd.eb+xml in the drafts, text/xml in ebMS 2.0.
    root_type: str
    # The parameters after `multipart/related; `, without boundary.
    related_params: str
    root_id: str
    # The drafts have one payload container: several payloads are nested in it
    # (docs/explanation/decisions.md#drafts-on-the-wire).
    nest_payloads: bool = False
    base64: bool = False


def boundary_for(envelope: bytes, payloads: tuple[Payload, ...]) -> str:
    """A boundary derived from the content, so that the same message has the same bytes.

    It is a digest of what it separates: no payload can contain it by chance or by malice.
    """
    digest = hashlib.sha256(envelope)
    for payload in payloads:
        digest.update(payload.digest.encode())
    return f"=_{digest.hexdigest()[:40]}"


def content_type(frame: Packaging, boundary: str) -> str:
    """The Content-Type of the whole."""
    return f'multipart/related; {frame.related_params}; boundary="{boundary}"'


def check_boundary(boundary: str, payloads: tuple[Payload, ...], envelope: bytes) -> None:
    """Refuse a boundary that occurs in what it separates."""
    # RFC 2046 §5.1.1, without the space that it allows inside.
    if _BOUNDARY.fullmatch(boundary) is None:
        raise InvalidValue(
            f"{boundary[:80]!r} cannot be a MIME boundary",
            remedy="use up to 70 letters, digits or any of '()+_,-./:=?",
        )
    # At a line's beginning alone it would end a part; refused anywhere, which is easier to be sure
    # of.
    mark = b"--" + boundary.encode()
    if mark in envelope or any(payload.data and mark in payload.data for payload in payloads):
        raise InvalidValue(
            "the boundary occurs inside a part", remedy="choose another, or none at all"
        )


def laid_out(
    envelope: bytes, payloads: tuple[Payload, ...], frame: Packaging, boundary: str
) -> list[bytes | Payload]:
    """The body in order; where the content of a payload belongs stands the payload itself."""
    mark = f"--{boundary}\r\n".encode()
    encoding = "Content-Transfer-Encoding: base64\r\n" if frame.base64 else ""
    root = f"Content-ID: <{frame.root_id}>\r\nContent-Type: {frame.root_type}\r\n{encoding}\r\n"
    # The last line end is the boundary's (RFC 2046 §5.1.1).
    content = base64_lines(envelope)[:-2] if frame.base64 else envelope
    body: list[bytes | Payload] = [mark + root.encode(), content]
    nested = frame.nest_payloads and len(payloads) > 1
    inner = boundary
    if nested:
        # Another boundary inside than outside (RFC 2046 §5.1.2), and at most 70 characters.
        inner = f"{boundary[:60]}_in"
        body.append(
            f"\r\n--{boundary}\r\n"
            f'Content-Type: multipart/mixed; boundary="{inner}"\r\n\r\n'.encode()
        )
    for number, payload in enumerate(payloads):
        # Inside the container the first boundary opens a line of its own already.
        start = b"" if nested and number == 0 else b"\r\n"
        coded = _is_coded(payload, frame)
        body.append(start + f"--{inner}\r\n".encode() + _part_headers(payload, base64=coded))
        body.append(payload)
    if nested:
        body.append(f"\r\n--{inner}--".encode())
    # The closing one says that nothing was cut off.
    body.append(f"\r\n--{boundary}--\r\n".encode())
    return body


def body(envelope: bytes, payloads: tuple[Payload, ...], frame: Packaging, boundary: str) -> bytes:
    """The body as one, of payloads whose data is at hand."""
    found: list[bytes] = []
    for piece in laid_out(envelope, payloads, frame, boundary):
        if isinstance(piece, bytes):
            found.append(piece)
        else:
            found += _content(piece, None, base64=_is_coded(piece, frame))
    return b"".join(found)


def pieces(
    envelope: bytes,
    payloads: tuple[Payload, ...],
    sources: Mapping[str, Source],
    frame: Packaging,
    boundary: str,
) -> Iterator[bytes]:
    """The body, piece by piece; payload bytes are read only when their turn comes."""
    for piece in laid_out(envelope, payloads, frame, boundary):
        if isinstance(piece, bytes):
            yield piece
        else:
            coded = _is_coded(piece, frame)
            yield from _content(piece, sources.get(piece.content_id), base64=coded)


def body_size(
    envelope: bytes, payloads: tuple[Payload, ...], frame: Packaging, boundary: str
) -> int:
    """The size of the body that `pieces` makes, from the payloads' sizes alone."""
    empty = tuple(replace(each, size=0, data=b"", spooled=None) for each in payloads)
    size = sum(len(piece) for piece in pieces(envelope, empty, {}, frame, boundary))
    for payload in payloads:
        coded = _is_coded(payload, frame)
        size += base64_size(payload.size) - 2 if coded and payload.size else 0
        size += 0 if coded else payload.size
    return size


def plain(payload: Payload) -> Payload:
    """The payload without its wish to travel as base64."""
    if TRANSFER not in payload.mime_headers:
        return payload
    kept = tuple(pair for pair in payload.mime_headers if pair != TRANSFER)
    return replace(payload, mime_headers=kept)


def _is_coded(payload: Payload, frame: Packaging) -> bool:
    return frame.base64 or TRANSFER in payload.mime_headers


def _part_headers(payload: Payload, *, base64: bool) -> bytes:
    # The Content-ID is what the manifest and the signature refer to (RFC 2392).
    lines = f"Content-ID: <{payload.content_id}>\nContent-Type: {payload.media_type}\n"
    count = 2
    if payload.content_encoding:
        lines += f"Content-Encoding: {payload.content_encoding}\n"
        count += 1
    for name, value in payload.mime_headers:
        if (name, value) == TRANSFER:
            continue
        lines += f"{name}: {value}\n"
        count += 1
    # A line end in a value would begin another header, or the content.
    if lines.count("\n") != count or "\r" in lines:
        raise InvalidValue(
            "a MIME header of a payload contains a line end",
            remedy="remove line ends from its Content-Type and its other headers",
        )
    if base64:
        lines += "Content-Transfer-Encoding: base64\n"
    return (lines + "\n").replace("\n", "\r\n").encode()


def _content(payload: Payload, source: Source | None, *, base64: bool) -> Iterator[bytes]:
    if source is None:
        source = payload.data
    if isinstance(source, bytes) and not base64 and len(source) == payload.size:
        yield source
        return
    if source is None:
        raise InvalidValue(
            f"the bytes of payload {payload.content_id!r} are not at hand",
            remedy="hand in their source",
        )
    count = 0
    pending = b""
    for piece in _read(source):
        count += len(piece)
        if not base64:
            yield piece
            continue
        pending += piece
        whole = len(pending) - len(pending) % BASE64_LINE
        if whole < len(pending) or whole == len(pending):
            # Whole lines leave at once; the last one waits, it must not end in a line end.
            whole -= BASE64_LINE if whole == len(pending) and whole else 0
            if whole:
                yield base64_lines(pending[:whole])
                pending = pending[whole:]
    if pending:
        yield base64_lines(pending)[:-2]
    # A size that was announced is kept: the transport has said Content-Length already.
    if count != payload.size:
        raise InvalidValue(
            f"payload {payload.content_id!r} has {count:,} bytes, its header says {payload.size:,}",
            remedy="the source changed after the message was built; build it again",
        )


def _read(source: Source) -> Iterator[bytes]:
    if isinstance(source, bytes):
        if source:
            yield source
        return
    if hasattr(source, "read"):
        while piece := source.read(_READ):
            yield piece
        return
    yield from source


def bundle(parcels: Sequence[Parcel]) -> Parcel:
    """Whole messages one after the other in one body."""
    digest = hashlib.sha256(b"\x00".join(parcel.body for parcel in parcels)).hexdigest()[:40]
    boundary = f"=_{digest}_all"
    pieces: list[bytes] = []
    for parcel in parcels:
        # Each message's own transport headers go along as MIME headers: SOAPAction stays with its
        # message.
        others = "".join(f"{name}: {value}\r\n" for name, value in parcel.headers)
        head = f"--{boundary}\r\nContent-Type: {parcel.content_type}\r\n{others}\r\n"
        pieces.extend((head.encode(), parcel.body, b"\r\n"))
    pieces.append(f"--{boundary}--\r\n".encode())
    return Parcel(f'{BUNDLE_TYPE}; boundary="{boundary}"', b"".join(pieces))
