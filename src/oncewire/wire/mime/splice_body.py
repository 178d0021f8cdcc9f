"""Putting another header into received bytes of a whole multipart, the rest left alone."""

from __future__ import annotations

from oncewire.errors import MimeProblem
from oncewire.wire.limits import DEFAULT_LIMITS, Limits
from oncewire.wire.mime.headers import PartHeaders, bare_id, header_lines, parameters
from oncewire.wire.mime.multipart import content_end, delimiter_of, find_boundary
from oncewire.wire.mime.transfer import base64_lines, is_identity
from oncewire.wire.parcel import Parcel


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
