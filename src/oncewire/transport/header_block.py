"""Header block: the headers of a parcel as lines, where a transport keeps them beside its body."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable

from oncewire.errors import MimeProblem, TransportProblem
from oncewire.wire.mime.headers import header_lines

LINE_MAX = 998
"""Characters of one line without its end: what mail can carry (RFC 5321 §4.5.3.1.6)."""

BLOCK_MAX = 256 * 1024
HEADERS_MAX = 500

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_VALUE = re.compile(r"[ -~\t]*")
# Headers that decide what a parcel is: whoever reads the other one reads another message.
_ONCE = frozenset(
    {"content-type", "content-transfer-encoding", "content-length", "content-digest",
     "message-id", "soapaction"}
)  # fmt: skip


def write_block(headers: Iterable[tuple[str, str]]) -> bytes:
    """The headers, a line each, without the empty line after them; TransportProblem where one
    would not stay one line."""
    return b"".join(_line(name, value) for name, value in headers)


def _line(name: str, value: str) -> bytes:
    written = f"{name}: {value}"
    if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value) or len(written) > LINE_MAX:
        # A line end in it would begin a header, or a body, that nobody wrote.
        raise TransportProblem(
            f"the header {name[:64]!r} cannot be sent",
            remedy="a header is one line of visible ASCII",
        )
    return written.encode("ascii") + b"\r\n"


async def gather_block(pieces: AsyncIterator[bytes]) -> tuple[bytes | None, bytes]:
    """The bytes before the first empty line, None where there is none, and what was read behind
    it. MimeProblem as soon as there are more than headers may have: lines are counted as they
    come, and taken apart afterwards."""
    head = bytearray()
    lines = 0
    async for piece in pieces:
        # The empty line may have begun in the piece before.
        since = max(0, len(head) - 3)
        head += piece
        if head.startswith(b"\r\n"):
            return b"", bytes(head[2:])
        end = head.find(b"\r\n\r\n", since)
        if end >= 0:
            return bytes(head[:end]), bytes(head[end + 4 :])
        lines += piece.count(b"\n")
        if lines > HEADERS_MAX or len(head) > BLOCK_MAX:
            raise _too_much()
    return None, bytes(head)


def read_block(block: bytes) -> dict[str, str]:
    """The headers by their names in lower case; MimeProblem where they cannot be told apart."""
    if len(block) > BLOCK_MAX or block.count(b"\n") > HEADERS_MAX:
        raise _too_much()
    lines = [line for line in block.split(b"\r\n") if line]
    headers: dict[str, str] = {}
    for name, value in header_lines(lines):
        known = name.lower()
        if known in headers and known in _ONCE:
            raise MimeProblem(f"the header {known} stands twice", location="MIME")
        headers.setdefault(known, value)
    return headers


def _too_much() -> MimeProblem:
    return MimeProblem(
        "the headers are too many or too long",
        location="MIME",
        remedy=f"send at most {HEADERS_MAX} lines of headers, {BLOCK_MAX} bytes in all",
    )
