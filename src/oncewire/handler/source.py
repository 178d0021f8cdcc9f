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
