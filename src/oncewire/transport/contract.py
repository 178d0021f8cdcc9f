"""The contract of a transport: carry a parcel to an address, hand in what arrives.

A transport knows nothing of messages. An attempt to send ends in one of three outcomes
and never in a bare exception: `SENT`, `REFUSED` (it certainly did not get across) or
`UNKNOWN` (it may have). Recovery that belongs to the transport (a stale connection of its
pool, say) happens inside it (RTY-5); everything else is the protocol's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


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


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back on the same connection, or what goes back on it."""

    status: int
    content_type: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    # Seconds after which the sender may come back; only with 429 and 503.
    retry_after: int | None = None
    # Whether a partner is there: what it sent is its own, as far as its agreement lets that be
    # known, and no repetition of what anybody may have recorded.
    known: bool = False
    # Whether the request was refused: nothing came of it, and it could be anybody's.
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

    Whoever counts more than there is gets an error of the transport, lets it pass, and the
    transport answers for it.
    """

    @property
    def is_strangers(self) -> bool:
        """Whether nobody knows who it is: partners go first."""

    def hold(self, count: int, /) -> bool:
        """So many more bytes are kept in memory; less, where the count is negative. False:
        memory is short, what can go to the disk should."""

    def spool(self, count: int, /) -> None:
        """So many more bytes are written to the disk."""

    def spend(self, seconds: float, /) -> None:
        """So much time of a processor went into it."""


class Unlimited:
    """The allowance of a transport that nobody but we ourselves can reach."""

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
    REFUSED = "refused"  # it will never be taken: nobody needs to try again


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
