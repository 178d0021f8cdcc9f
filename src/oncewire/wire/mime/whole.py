"""Reading a message whose bytes are all at hand: the short way for what is regular.

Most messages are small, closed, and have the header first. For these the parts are cut out
in one pass, and every value is made once. Anything else (nested parts, a missing closing
boundary, a root that is not first, any fault in the frame) is left to `Reader`, which reads
the same bytes with the same rules and knows what to say.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from oncewire.errors import EbxmlError, InvalidValue
from oncewire.message import Payload
from oncewire.wire.limits import Limits
from oncewire.wire.mime.headers import (
    PartHeaders,
    bare_id,
    header_lines,
    parameters,
    usual_parameters,
)
from oncewire.wire.mime.multipart import delimiter_of
from oncewire.wire.mime.transfer import decoded, is_identity
from oncewire.wire.parcel import Parcel
from oncewire.wire.received import PartPlace

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
