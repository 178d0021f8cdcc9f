"""Reading a message whose bytes are all at hand: the short way for what is regular.

Most messages are small, closed, and have the header first. For these the parts are cut out
in one pass, and every value is made once. Anything else (nested parts, a missing closing
boundary, a root that is not first, any fault in the frame) is left to `Reader`, which reads
the same bytes with the same rules and knows what to say.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from oncewire.errors import EbxmlError, InvalidValue, MimeProblem
from oncewire.message import Payload
from oncewire.wire.limits import DEFAULT_LIMITS, Limits, beyond
from oncewire.wire.mime.multipart import (
    MultipartReader,
    PartHeaders,
    bare_id,
    base64_lines,
    content_end,
    decoded,
    delimiter_of,
    find_boundary,
    header_lines,
    is_identity,
    parameters,
    usual_parameters,
)
from oncewire.wire.parcel import Parcel, PartPlace
from oncewire.wire.refusal import ReadFault

SMALL = 262_144
"""Larger bodies go through `Reader`, which does not copy them."""


class Whole(NamedTuple):
    """The parts of a regular message."""

    envelope: bytes
    charset: str | None
    payloads: tuple[Payload, ...]
    places: tuple[PartPlace, ...] = ()


def cut(parcel: Parcel, limits: Limits) -> Whole | None:
    """The parts, or None when the message is not regular."""
    if len(parcel.body) > SMALL:
        return None
    stated = parcel.content_type
    # A boundary is nearly always in quotes, and in each message another.
    media_type, params = parameters(stated) if '"' in stated else usual_parameters(stated)
    if not media_type.startswith("multipart/"):
        return _bare(parcel, params)
    try:
        parts = _parts(parcel.body, params.get("boundary", ""), limits)
        if not parts:
            return None
        root, envelope, _ = parts[0]
        start = bare_id(params.get("start"))
        # The root may be any part (RFC 2387 §3.2); `Reader` can wait for it.
        if start and root.content_id != start:
            return None
        payloads = tuple([_payload(headers, content) for headers, content, _ in parts[1:]])
    except (EbxmlError, InvalidValue):
        return None
    # Every bound of `Reader` holds here, or a small message could do what a large one may not.
    if len(envelope) > limits.header_bytes:
        return None
    if len(payloads) > 1 and len({one.content_id for one in payloads}) != len(payloads):
        return None
    bound = limits.payload_bytes
    if bound is not None and any(payload.size > bound for payload in payloads):
        return None
    places = tuple([place for _, _, place in parts[1:]])
    return Whole(envelope, root.params.get("charset"), payloads, places)


def _bare(parcel: Parcel, params: dict[str, str]) -> Whole | None:
    body = parcel.body
    encoding = (parcel.header("content-transfer-encoding") or "").strip().lower()
    # A header over HTTP that still says base64 and is plain XML.
    if body[:1] != b"<" and not is_identity(encoding):
        return None
    return Whole(body, params.get("charset"), ())


_Part = tuple[PartHeaders, bytes, PartPlace]


def _parts(body: bytes, boundary: str, limits: Limits) -> list[_Part] | None:
    """Cut at the boundaries, all lines ended as RFC 2046 says; None for any other frame."""
    delimiter = delimiter_of(boundary)
    line_end = b"\r" + delimiter
    # The body itself has no line end before its first boundary.
    at = len(delimiter) - 1
    if not body.startswith(delimiter[1:]):
        return None
    parts: list[_Part] = []
    while (end := body.find(line_end, at)) >= 0:
        part = _part(body, at, end, limits) if len(parts) < limits.parts else None
        if part is None:
            return None
        parts.append(part)
        at = end + len(line_end)
    # A line feed alone before the boundary makes one too, and would have been missed.
    regular = body.count(delimiter) == len(parts)
    closed = body[at : at + 4] == b"--\r\n" or body[at:] == b"--"
    return parts if regular and closed else None


def _part(body: bytes, at: int, end: int, limits: Limits) -> _Part | None:
    """The part between two boundaries, if it is regular and no multipart."""
    blank = body.find(b"\r\n\r\n", at, min(at + limits.part_header_bytes, end))
    if blank < 0 or not body.startswith(b"\r\n", at):
        return None
    block = body[at + 2 : blank]
    headers = PartHeaders.usual(block)
    if headers is None:
        lines = block.split(b"\r\n") if blank > at else []
        if len(lines) > limits.part_header_lines or any(map(_ODD_LINE.search, lines)):
            return None
        headers = PartHeaders.of(header_lines(lines))
    # A container of payloads, or a payload that is a multipart: the manifest decides, and `Reader`
    # asks it.
    if headers.media_type.startswith("multipart/"):
        return None
    content = body[blank + 4 : end]
    place = PartPlace(blank + 4, len(content), headers.transfer_encoding)
    if not is_identity(headers.transfer_encoding):
        content = decoded(headers.transfer_encoding, content)
    return headers, content, place


# A line that ends otherwise, or seems to.
_ODD_LINE = re.compile(rb"[\r\n]")


def _payload(headers: PartHeaders, content: bytes) -> Payload:
    return Payload(
        # An empty name is refused here, and `Reader` gives the part one.
        headers.content_id,
        headers.content_type,
        len(content),
        hashlib.sha256(content).hexdigest(),
        content,
        None,
        headers.content_encoding,
        headers.others,
    )


# Several messages in one body: multipart/mixed of whole messages (SYNC-8, C30).
#
# The sync paper lets an acknowledgement and a response come back together, merged into one header
# or one after the other. Merged is what we write by default; this is the other form.


BUNDLE_TYPE = "multipart/mixed"
"""The media type of several messages in one body."""

# By content: some send a header as text/xml, some as application/xml, some with no type.
_SNIFF = 4096
_ENVELOPES = (b":Envelope", b"<Envelope", b"ebXMLHeader")


class _Collector:
    """Keeps each part whole, multiparts included."""

    def __init__(self) -> None:
        self.parts: list[tuple[PartHeaders, list[bytes]]] = []

    def part_started(self, headers: PartHeaders) -> bool:
        self.parts.append((headers, []))
        # A multipart/related inside is one whole message, and is read as such later.
        return False

    def part_data(self, data: bytes) -> None:
        self.parts[-1][1].append(data)

    def part_ended(self, _begin: int | None, _end: int) -> None:
        return


def unbundle(parcel: Parcel, limits: Limits) -> tuple[Parcel, ...]:
    """The parcels of a concatenation, or the parcel itself when it is one message."""
    media_type, params = parameters(parcel.content_type)
    if media_type != BUNDLE_TYPE:
        return (parcel,)
    collector = _Collector()
    try:
        reader = MultipartReader(params.get("boundary", ""), collector, limits)
        reader.feed(parcel.body)
        reader.finish()
    except EbxmlError as error:
        raise ReadFault((error,)) from None
    parts = [(headers, b"".join(pieces)) for headers, pieces in collector.parts]
    whole = [
        headers.media_type == "multipart/related" or _is_header(content)
        for headers, content in parts
    ]
    # Two headers at least, or one that is a multipart of its own: anything less is one message.
    alone = len(whole) == 1 or whole.count(True) < 2
    if not whole or not all(whole) or (alone and parts[0][0].media_type != "multipart/related"):
        # One header and its payloads under the wrong subtype: mail gateways do that.
        return (parcel,)
    if len(parts) > limits.bundled:
        many = beyond(
            f"{len(parts)} messages come as one body", "bundled", limits.bundled, mime=True
        )
        raise ReadFault((many,))
    return tuple(
        Parcel(headers.content_type, content, headers.others) for headers, content in parts
    )


def _is_header(content: bytes) -> bool:
    start = content[:_SNIFF]
    return start.lstrip()[:1] == b"<" and any(mark in start for mark in _ENVELOPES)


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


# Putting another header into received bytes of a whole multipart, the rest left alone.


def root_part(parcel: Parcel, limits: Limits = DEFAULT_LIMITS) -> tuple[int, int, str]:
    """Where the root part's content lies in the body, and its transfer encoding."""
    media_type, params = parameters(parcel.content_type)
    if not media_type.startswith("multipart/"):
        # A bare header with an encoding it does not have, as the reader forgives it.
        encoding = (parcel.header("content-transfer-encoding") or "").strip().lower()
        return 0, len(parcel.body), "" if parcel.body[:1] == b"<" else encoding
    delimiter = delimiter_of(params.get("boundary", ""))
    # So that a boundary at the very beginning has a line end before it, as every other.
    body = b"\n" + parcel.body
    wanted = bare_id(params.get("start"))
    found = find_boundary(body, delimiter, 0, final=True)
    for _ in range(limits.parts):
        if found is None or found.closing:
            break
        following = find_boundary(body, delimiter, found.line_end, final=True)
        begin, headers = _content_start(body, found.line_end + 1)
        end = len(body)
        if following is not None:
            end = content_end(body, begin, following.at, bare=found.bare)
        # The root is what `start` names, else the first part (RFC 2387 §3.2).
        if not wanted or headers.content_id == wanted:
            # Positions are those of the body without the line end put before it.
            return begin - 1, max(begin, end) - 1, headers.transfer_encoding
        found = following
    raise MimeProblem(
        "the root part was not found", location="start", remedy="only a message that was read fits"
    )


def _content_start(body: bytes, position: int) -> tuple[int, PartHeaders]:
    lines: list[bytes] = []
    while True:
        newline = body.find(b"\n", position)
        if newline < 0:
            raise MimeProblem("a part has no content", location="MIME")
        line = body[position:newline].rstrip(b"\r")
        position = newline + 1
        if not line:
            return position, PartHeaders.of(header_lines(lines))
        lines.append(line)


def with_envelope(parcel: Parcel, envelope: bytes, limits: Limits = DEFAULT_LIMITS) -> Parcel:
    """The parcel with that header in place of its own; every other byte is equal."""
    front, end = front_with(parcel, envelope, limits)
    return Parcel(parcel.content_type, front + parcel.body[end:], parcel.headers)


def front_with(
    parcel: Parcel, envelope: bytes, limits: Limits = DEFAULT_LIMITS
) -> tuple[bytes, int]:
    """What stands before the end of the root part with that header in it, and where in the body
    that end lies; so much of a long body must be there, and a little more."""
    start, end, encoding = root_part(parcel, limits)
    written = envelope
    if not is_identity(encoding):
        # quoted-printable gives way to base64 only in name of the same part's header, which
        # stays; so what was base64 is base64 again, and quoted-printable is escaped whole.
        written = base64_lines(envelope) if encoding == "base64" else _quoted(envelope)
    return parcel.body[:start] + written, end


def _quoted(data: bytes) -> bytes:
    """Every byte but plain letters and digits escaped: line ends survive as they are."""
    # Lines of at most 76 characters with soft line ends between them (RFC 2045 §6.7): 24 bytes make
    # 72.
    lines = []
    for start in range(0, len(data), 24):
        piece = data[start : start + 24]
        lines.append("".join(f"={byte:02X}" for byte in piece).encode())
    return b"=\r\n".join(lines)
