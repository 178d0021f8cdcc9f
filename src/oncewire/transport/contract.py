"""The contract of a transport: carry a parcel to an address, hand in what arrives.

A transport knows nothing of messages. An attempt to send ends in one of three outcomes
and never in a bare exception: `SENT`, `REFUSED` (it certainly did not get across) or
`UNKNOWN` (it may have). Recovery that belongs to the transport (a stale connection of its
pool, say) happens inside it (RTY-5); everything else is the protocol's.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from oncewire.errors import MimeProblem, TransportProblem
from oncewire.wire.mime.multipart import header_lines


class OutcomeKind(StrEnum):
    """What is known of an attempt."""

    SENT = "sent"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Cargo:
    """What goes out: the exact stored bytes, in pieces so that large ones can stream."""

    content_type: str
    headers: tuple[tuple[str, str], ...]
    size: int
    # Yields the body's bytes in order; may be called again for a retry by the transport.
    chunks: Callable[[], AsyncIterator[bytes]]
    # By what a transport that answers for the delivery knows it again when it is handed in once
    # more; empty: each time it is another one.
    once: str = ""
    # All of the bytes, where they are at hand; a transport may take these instead of the chunks.
    whole: bytes | None = None
    # Seconds after which nothing of it may leave any more that has not begun to; None: the timeout
    # of the attempt alone counts.
    begin_within: float | None = None
    # Asked right before the first byte leaves: whether it still may. None: it may.
    may_leave: Callable[[], bool] | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back on the same connection, or what goes back on it."""

    status: int
    content_type: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    # Seconds after which the sender may come back; only with 429 and 503.
    retry_after: int | None = None
    # Whether the sender proved to be a partner, as far as its agreement asks for proof, with a
    # message that is no repetition: a stranger may have recorded and replayed that.
    known: bool = False
    # Whether the request was refused: it had no effect, and a stranger may have sent it.
    refused: bool = False


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """How an attempt ended. A reply with a body is handed to the handler to read."""

    kind: OutcomeKind
    reason: str = ""
    reply: Reply | None = None
    # A 503 or its like: the receiver asks to come back after so many seconds.
    retry_after: int | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is on the other end, as far as the transport knows."""

    address: str = ""
    # DER of the TLS client certificate, when there was one.
    certificate: bytes | None = None


class Allowance(Protocol):
    """What one request may take of this machine; the transport gives it and takes it back.

    A count beyond the budget raises an error of the transport. The handler lets it pass, and the
    transport answers the request with it.
    """

    @property
    def is_strangers(self) -> bool:
        """Whether the peer is a stranger, not a known partner: partners go first."""

    def hold(self, count: int, /) -> bool:
        """Count bytes that are kept in memory; a negative count gives them back. False: memory
        is short, so move to the disk what can go there."""

    def spool(self, count: int, /) -> None:
        """Count bytes that are written to the disk."""

    def spend(self, seconds: float, /) -> None:
        """Count processor time that the request took."""


class Unlimited:
    """The allowance of a transport that only this process can reach: no limits."""

    is_strangers = False

    def hold(self, _count: int) -> bool:
        """See `Allowance`."""
        return True

    def spool(self, _count: int) -> None:
        """See `Allowance`."""

    def spend(self, _seconds: float) -> None:
        """See `Allowance`."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One parcel that arrived; its body streams, so that limits bite before it is whole."""

    transport: str
    content_type: str
    headers: Mapping[str, str]
    body: AsyncIterator[bytes]
    # Announced length of the body, when the transport knows it.
    length: int | None = None
    peer: Peer = field(default_factory=Peer)
    # Whether the reply can go back on the same connection (TRN-5).
    can_answer: bool = False
    allowance: Allowance = field(default_factory=Unlimited)
    # Done when the peer has hung up before its reply; None: the transport cannot know.
    gone: asyncio.Future[None] | None = None


OnDelivery = Callable[[Delivery], Awaitable[Reply]]
"""The handler's door. It never raises: whatever is wrong becomes a reply."""


class Verdict(StrEnum):
    """What became of a delivery, for transports that keep it until they know."""

    TAKEN = "taken"  # it is stored, or needs no storing: let go of it
    LATER = "later"  # not now: keep it and hand it in again
    REFUSED = "refused"  # it will never be taken: do not hand it in again


_SOON = frozenset({408, 429, 502, 503, 504})


def verdict_of(reply: Reply) -> Verdict:
    """The verdict that a reply gives. Transports that cannot answer have no other use for it.

    A bare 500 is a fault of ours, so what it is about is kept; a 500 that says something is the
    answer to what is no message.
    """
    if 200 <= reply.status < 300:
        return Verdict.TAKEN
    if reply.status in _SOON or (reply.status == 500 and not reply.body):
        return Verdict.LATER
    return Verdict.REFUSED


class Transport(Protocol):
    """One way to travel."""

    name: str
    # Whether a reply can come back on the connection that carried the request.
    can_answer: bool

    async def start(self, on_delivery: OnDelivery) -> None:
        """Begin to listen, if this transport listens; raises TransportProblem if it cannot."""

    async def send(self, cargo: Cargo, address: str, *, timeout: float) -> AttemptOutcome:
        """Carry the cargo to the address. Never raises for trouble on the way."""

    async def probe(self, address: str, *, timeout: float) -> AttemptOutcome:
        """Whether the way to the address is open, without carrying anything: SENT says that it
        is. Never raises for trouble on the way."""

    async def stop(self) -> None:
        """Stop listening, finish what is under way within reason, release everything."""


# Header block: the headers of a parcel as lines, where a transport keeps them beside its body.


LINE_MAX = 998
"""Characters of one line without its end: what mail can carry (RFC 5321 §4.5.3.1.6)."""

BLOCK_MAX = 256 * 1024
HEADERS_MAX = 500

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_VALUE = re.compile(r"[ -~\t]*")
# Headers that decide what a parcel is. Of two with one name, two readers may take different ones
# and so read different messages: each may be there once.
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
        # A line end in the value would begin another header, or the body.
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


# Outage: the log tells of a server of ours when it goes away and when it is back.
#
# The transport that waits for the server retries often; a line for each attempt would fill the log.


class Outage:
    """Whether the log was told that one server is away."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._since: float | None = None

    def begins(self, words: str, **facts: str) -> None:
        """Log that the server is away, unless that was logged already."""
        if self._since is None:
            self._since = time.monotonic()
            self._logger.warning(words, extra=facts)

    def ends(self, words: str) -> None:
        """Log that the server is back, if it was away."""
        if self._since is not None:
            away, self._since = time.monotonic() - self._since, None
            self._logger.warning(f"{words} after {away:.0f} s")
