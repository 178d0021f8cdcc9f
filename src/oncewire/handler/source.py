"""Source: where a parcel came from, as far as its transport knows."""

from __future__ import annotations

from dataclasses import dataclass

REPLY = "reply"
"""The transport of what comes back on a connection of our own; it belongs to no stream."""


@dataclass(frozen=True, slots=True)
class Source:
    """The transport, whether it can carry an answer back, and who is on the other end."""

    transport: str
    can_answer: bool = False
    address: str = ""
    # DER of the TLS client certificate, when there was one.
    certificate: bytes | None = None
    # Only for a reply: our own connection was one with TLS, so the peer proved that it is the one
    # at the agreed address (or the agreed certificate's owner) before a byte was sent.
    secured: bool = False


def replied(address: str) -> Source:
    """What came back on a connection that we opened to this address."""
    return Source(REPLY, address=address, secured=address.lower().startswith("https:"))
