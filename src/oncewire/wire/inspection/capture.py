"""A file's bytes to a Parcel: bare XML, a multipart, a mail, or a recorded HTTP exchange."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from oncewire.errors import MimeProblem, SoapFault
from oncewire.wire.limits import DEFAULT_LIMITS, Limits, beyond
from oncewire.wire.mime.multipart import header_lines
from oncewire.wire.parcel import Parcel
from oncewire.wire.refusal import ReadFault

# Bounded, so that no file makes a pattern look far.
_REQUEST = re.compile(rb"[A-Z]{3,10} \S{1,4096} HTTP/\d(?:\.\d)?\r?\n")
_RESPONSE = re.compile(rb"HTTP/\d(?:\.\d)? (\d{3})[^\n]{0,256}\n")
_HEADER_LINE = re.compile(rb"[!-9;-~]{1,128}:")


class CaptureKind(StrEnum):
    """What the file turned out to be."""

    XML = "xml"
    MULTIPART = "multipart"
    MAIL = "mail"
    HTTP_REQUEST = "http request"
    HTTP_RESPONSE = "http response"


@dataclass(frozen=True, slots=True)
class Capture:
    """A parcel and what it was recorded as."""

    kind: CaptureKind
    parcel: Parcel
    # Of an HTTP response.
    status: int | None = None


def open_capture(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Capture:
    """The parcel in a file; ReadFault when it is none of the known kinds."""
    try:
        return _open(data, limits)
    except MimeProblem as error:
        raise ReadFault((error,)) from None


def _open(data: bytes, limits: Limits) -> Capture:
    # From the most telling beginning to the least: a status line cannot be anything else, a header
    # line nearly anything.
    response = _RESPONSE.match(data)
    if response is not None:
        parcel = _http(data[response.end() :], limits)
        return Capture(CaptureKind.HTTP_RESPONSE, parcel, int(response.group(1)))
    request = _REQUEST.match(data)
    if request is not None:
        return Capture(CaptureKind.HTTP_REQUEST, _http(data[request.end() :], limits))
    start = data[:64].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start[:1] == b"<" or data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return Capture(CaptureKind.XML, Parcel("text/xml", data))
    if start[:2] == b"--":
        return Capture(CaptureKind.MULTIPART, _bare_multipart(data))
    if _HEADER_LINE.match(data):
        headers, body = _head(data, limits)
        return Capture(CaptureKind.MAIL, _parcel(headers, body))
    raise ReadFault(
        (
            SoapFault(
                "Client",
                "the content is neither XML nor MIME",
                remedy="send an ebXML message",
            ),
        )
    )


def _bare_multipart(data: bytes) -> Parcel:
    """A multipart whose Content-Type was not recorded: its first line is the boundary."""
    body = data.lstrip(b"\r\n")
    line = body[:512].split(b"\n", 1)[0].rstrip(b"\r \t")
    # Quoted for the Content-Type that is made of it here (RFC 2045 §5.1).
    boundary = line[2:].decode("latin-1").replace("\\", "\\\\").replace('"', '\\"')
    return Parcel(f'multipart/related; type="text/xml"; boundary="{boundary}"', body)


def _head(data: bytes, limits: Limits) -> tuple[list[tuple[str, str]], bytes]:
    lines: list[bytes] = []
    position = 0
    while True:
        newline = data.find(b"\n", position)
        line = data[position : newline if newline >= 0 else len(data)].rstrip(b"\r")
        position = newline + 1 if newline >= 0 else len(data)
        if not line:
            return header_lines(lines), data[position:]
        lines.append(line)
        # A mail has passed many servers, and each has signed its name.
        if len(lines) > 4 * limits.part_header_lines or len(line) > limits.part_header_bytes:
            raise beyond(
                "the message has too many header lines",
                "part_header_lines",
                4 * limits.part_header_lines,
                mime=True,
            )
        if newline < 0:
            return header_lines(lines), b""


def _parcel(headers: list[tuple[str, str]], body: bytes) -> Parcel:
    content_type = ""
    others = []
    for name, value in headers:
        if name.lower() == "content-type" and not content_type:
            content_type = value
        else:
            others.append((name, value))
    # A saved body of a POST has lost its Content-Type.
    return Parcel(content_type or "text/xml", body, tuple(others))


def _http(data: bytes, limits: Limits) -> Parcel:
    headers, body = _head(data, limits)
    parcel = _parcel(headers, body)
    encoding = parcel.header("transfer-encoding") or ""
    # Recorded on the wire, before the server put it together (RFC 2616 §3.6.1).
    if "chunked" in encoding.lower():
        parcel = Parcel(parcel.content_type, _dechunked(body), parcel.headers)
    return parcel


def _dechunked(data: bytes) -> bytes:
    pieces: list[bytes] = []
    position = 0
    while True:
        newline = data.find(b"\n", position, position + 256)
        digits = data[position : max(newline, position)].split(b";", 1)[0].strip()
        if newline < 0 or not re.fullmatch(rb"[0-9A-Fa-f]{1,15}", digits):
            raise MimeProblem(
                "the recorded chunks are damaged",
                location="Transfer-Encoding",
                remedy="record the exchange again",
            )
        size = int(digits, 16)
        position = newline + 1
        if size == 0:
            return b"".join(pieces)
        pieces.append(data[position : position + size])
        position += size
        if data[position : position + 1] == b"\r":
            position += 1
        if data[position : position + 1] == b"\n":
            position += 1
