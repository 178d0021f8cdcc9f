"""Configuration: how two parties of a benchmark talk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

IN_FLIGHT_MAX = 256


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to exchange documents; every figure says its own."""

    # The acknowledgement comes in the reply to the message, or on a connection of its own.
    in_reply: bool = True
    ordered: bool = False
    signed: bool = False
    tls: bool = False
    # Bytes of the document.
    size: int = 2048
    in_flight: int = 64
    # Whether the documents come from another program, through the control socket.
    by_socket: bool = False
    # Whether the receiver's program takes and confirms them while others arrive.
    taken: bool = False
    # Messages that may be under way on an ordered channel; 1 is stop-and-wait.
    window: int = 64

    @property
    def default(self) -> Configuration:
        """The same documents between two parties as `oncewire init` and `partner add` make them."""
        return replace(self, in_reply=False, ordered=False, signed=True, tls=True)

    def __post_init__(self) -> None:
        # The standard answers ordered messages asynchronously (§9.1.2).
        if self.ordered and self.in_reply:
            object.__setattr__(self, "in_reply", False)

    def agreed(self) -> dict[str, str]:
        """What the agreement says of it, beyond its profile."""
        said = {
            # Long: what is measured is the exchange, not its repetition. But an endpoint that is
            # late sends strangers away, and who does not sign is one.
            "delivery.timeout": '"PT10S"',
            "delivery.retry_interval": '"PT10S"',
            "delivery.retries": "30",
        }
        if self.in_reply:
            said["sync.mode"] = '"mshSignalsOnly"'
        if self.ordered:
            stop_and_wait = self.window == 1
            said["flow.mode"] = '"stop-and-wait"' if stop_and_wait else '"window"'
            if not stop_and_wait:
                said["flow.window"] = str(self.window)
        return said

    def words(self) -> str:
        """For people."""
        said = [
            "TLS" if self.tls else "no TLS",
            "signed" if self.signed else "unsigned",
            "ordered" if self.ordered else "unordered",
            f"{self.size:,} bytes",
            f"{self.in_flight} in flight",
            "acknowledged in the reply" if self.in_reply else "acknowledged on its own connection",
        ]
        if self.ordered:
            said.append("stop-and-wait" if self.window == 1 else f"window {self.window}")
        if self.by_socket:
            said.append("through the control socket")
        if self.taken:
            said.append("taken and confirmed")
        return ", ".join(said)

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}
