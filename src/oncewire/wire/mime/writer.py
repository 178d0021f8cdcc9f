"""Writing multipart MIME: small messages as bytes, large ones as pieces that never meet.

Payload bytes go out exactly as they are; only mail, which cannot carry eight bits safely, gets
base64, and a payload that says so of itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from oncewire.errors import InvalidValue
from oncewire.message import Payload
from oncewire.wire.mime.multipart import BASE64_LINE, BUNDLE_TYPE, base64_lines, base64_size
from oncewire.wire.parcel import Parcel

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
    # (docs/decisions.md#drafts-on-the-wire).
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
