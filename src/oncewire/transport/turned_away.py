"""Turned away: who was told to come back later, and why, said once and then now and then.

Strangers are sent away all day long, and nobody need get up for that: a line of the log tells of
them. A partner that is sent away is one whose documents wait, so whoever looks after the handler
is called.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from oncewire.transport.budget import address_of
from oncewire.transport.contract import Peer

log = logging.getLogger("oncewire.transport.listener")

AGAIN = 60.0
"""Seconds until the same is told again, with how often it came meanwhile."""

PROBLEMS_MAX = 64

Call = Callable[[str], None]
"""Hears why partners are sent away."""


@runtime_checkable
class TurnsAway(Protocol):
    """A transport whose listener may send partners away."""

    def on_turned_away(self, call: Call) -> None:
        """Have somebody called when it does."""


class Seldom:
    """What strangers can cause at will, told at most once a minute."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._told: dict[object, tuple[float, int]] = {}

    def again(self, what: object) -> int | None:
        """It happened once more. How often it was not told since the last time; None: it is not
        told this time either."""
        now = self._now()
        at, repeats = self._told.get(what, (now - AGAIN, 0))
        if now - at < AGAIN:
            self._told[what] = at, repeats + 1
            return None
        if len(self._told) >= PROBLEMS_MAX:
            self._told.clear()
        self._told[what] = now, 0
        return repeats


class TurnedAway:
    """Counts them, and tells of each reason at most once a minute."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._seldom = Seldom(now)
        # Who is called for partners; nobody: the log alone tells of them.
        self.call: Call | None = None

    def count(self, peer: Peer, problem: str, *, known: bool) -> None:
        """One more was sent away."""
        repeats = self._seldom.again((known, problem))
        if repeats is None:
            return
        facts = {"problem": problem, "address": address_of(peer), "repeats": repeats}
        if not known:
            log.warning("strangers are sent away for a while", extra=facts)
            return
        log.error("partners are sent away for a while", extra=facts)
        if self.call is not None:
            self.call(f"partners are sent away: {problem}; the last from {address_of(peer)}")
