"""Header block: the headers of a parcel as lines, where a transport keeps them beside its body."""

from __future__ import annotations

import re
from collections.abc import Iterable

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


def read_block(block: bytes) -> dict[str, str]:
    """The headers by their names in lower case; MimeProblem where they cannot be told apart."""
    lines = [line for line in block.split(b"\r\n") if line]
    if len(block) > BLOCK_MAX or len(lines) > HEADERS_MAX:
        raise MimeProblem("the headers are too many or too long", location="MIME")
    headers: dict[str, str] = {}
    for name, value in header_lines(lines):
        known = name.lower()
        if known in headers and known in _ONCE:
            raise MimeProblem(f"the header {known} stands twice", location="MIME")
        headers.setdefault(known, value)
    return headers
