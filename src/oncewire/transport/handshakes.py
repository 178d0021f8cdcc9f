"""Handshakes: connections that never came to be, told of once for each address and hour.

Who cannot agree with us on TLS never gets to say who he is. It may be a partner whose certificate
has run out, so somebody should hear of it; it may be a scanner, so he should not hear of it often.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from oncewire.transport.budget import address_of
from oncewire.transport.contract import Peer

log = logging.getLogger("oncewire.transport.listener")

HOUR = 3600.0

ADDRESSES_MAX = 256
"""Addresses that are told apart; those that come after them in an hour are told of as one."""

_OTHERS = "others"


@dataclass(slots=True)
class _Told:
    at: float
    since: int = 0


class Handshakes:
    """Counts those that failed."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._told: dict[str, _Told] = {}

    def failed(self, peer: Peer, error: BaseException) -> None:
        """One more came to nothing."""
        now, address = self._now(), address_of(peer)
        if address not in self._told and len(self._told) >= ADDRESSES_MAX:
            self._told = {one: told for one, told in self._told.items() if now - told.at < HOUR}
            if len(self._told) >= ADDRESSES_MAX:
                address = _OTHERS
        told = self._told.get(address)
        if told is not None and now - told.at < HOUR:
            told.since += 1
            return
        self._told[address] = _Told(now)
        repeats = told.since if told is not None else 0
        facts = {"address": address, "problem": _reason(error), "repeats": repeats}
        log.warning("a connection failed before it was made: no TLS with the peer", extra=facts)


def _reason(error: BaseException) -> str:
    """What OpenSSL calls it, or what kind of error it was; nothing of what the peer sent."""
    # Not every error that has these types has been through OpenSSL, and only that fills them in.
    refused = getattr(error, "verify_message", "")
    if refused:
        return f"its certificate is not accepted: {refused}"[:200]
    reason = str(getattr(error, "reason", None) or type(error).__name__)
    return reason.lower().replace("_", " ")[:200]
