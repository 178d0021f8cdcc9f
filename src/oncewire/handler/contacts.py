"""Contacts: whether each partner answers, as far as this process has tried or heard.

A partner is silent from the first attempt that failed until anything of it is heard: an arrival
that is believed, an attempt that it took, a probe that got through. The log has one line when a
partner falls silent and one when it is back, and a partner that comes and goes each second has
none. What could not be sent meanwhile is remembered, so that it is tried again at once.

All of it is in memory: after a restart a partner counts as heard until an attempt fails.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from oncewire.message.instant import MINUTE, SECOND, Duration, Instant

logger = logging.getLogger("oncewire.handler")

SILENT_AFTER: Duration = 5 * SECOND
"""How long nothing gets through before the log tells of it: a connection that breaks once is no
outage."""

TOLD_EACH: Duration = MINUTE
"""How often at most the log tells of one partner, however often it comes and goes."""

HURRIED_EACH: Duration = 10 * SECOND
"""How often at most what could not be sent is tried again at once: a partner that answers every
other attempt is overloaded, and more attempts do not help it."""

UNSENT_MAX = 1_000
"""Messages to one partner that are tried again at once; the others wait for their own timers."""


class Outcome(StrEnum):
    """How an attempt ended, in the words of metrics."""

    SENT = "sent"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    LATER = "later"


@dataclass(slots=True)
class Contact:
    """One partner."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    # Arrivals of it that were believed.
    arrivals: int = 0
    heard_at: Instant = 0
    # Since when attempts fail and nothing is heard; 0: it is not silent.
    silent_since: Instant = 0
    # Attempts that failed since then, and why the last of them did.
    failures: int = 0
    reason: str = ""
    # Whether the log was told of the silence, and when it was last told of one.
    told: bool = False
    told_at: Instant | None = None
    # Messages whose last attempt failed, the earliest first.
    unsent: dict[str, None] = field(default_factory=dict)
    hurried_at: Instant | None = None

    @property
    def tell_at(self) -> Instant:
        """When the log is to be told that it is silent."""
        due = self.silent_since + SILENT_AFTER
        return due if self.told_at is None else max(due, self.told_at + TOLD_EACH)


class Contacts:
    """Every partner that was tried or heard, by the label of its handler."""

    def __init__(self) -> None:
        self._known: dict[str, Contact] = {}
        # Those that are silent, and of which the log was not told.
        self._untold: set[str] = set()
        # Partners that are heard again, with messages that could not be sent: when they are tried.
        self.returned: dict[str, Instant] = {}

    def __getitem__(self, peer: str) -> Contact:
        found = self._known.get(peer)
        if found is None:
            found = self._known[peer] = Contact()
        return found

    def all(self) -> Iterable[tuple[str, Contact]]:
        """Every one, by its label."""
        return self._known.items()

    def sent(self, peer: str, message_id: str, now: Instant) -> None:
        """An attempt got through."""
        contact = self[peer]
        contact.outcomes[Outcome.SENT] += 1
        contact.unsent.pop(message_id, None)
        self._heard(peer, contact, now)

    def later(self, peer: str, message_id: str, now: Instant) -> None:
        """It answered that it takes nothing for a while: it is there."""
        contact = self[peer]
        contact.outcomes[Outcome.LATER] += 1
        contact.unsent.pop(message_id, None)
        self._heard(peer, contact, now)

    def failed(
        self, peer: str, message_id: str, now: Instant, reason: str, *, certain: bool
    ) -> None:
        """An attempt did not get through, or it is unknown whether it did."""
        contact = self[peer]
        contact.outcomes[Outcome.REFUSED if certain else Outcome.UNKNOWN] += 1
        if not contact.silent_since:
            contact.silent_since, contact.failures = now, 0
            self._untold.add(peer)
        contact.failures += 1
        contact.reason = reason[:200]
        if len(contact.unsent) < UNSENT_MAX:
            contact.unsent[message_id] = None

    def arrived(self, peer: str, now: Instant) -> None:
        """A message of it came and was believed."""
        contact = self[peer]
        contact.arrivals += 1
        self._heard(peer, contact, now)

    def answered(self, peer: str, now: Instant) -> None:
        """A probe got through to it."""
        self._heard(peer, self[peer], now)

    def _heard(self, peer: str, contact: Contact, now: Instant) -> None:
        contact.heard_at = now
        if not contact.silent_since:
            return
        if contact.told:
            facts = {"peer": peer, "silent_seconds": (now - contact.silent_since) // SECOND}
            logger.warning("a partner is back", extra={**facts, "failures": contact.failures})
        contact.silent_since, contact.told = 0, False
        self._untold.discard(peer)
        if contact.unsent:
            again = contact.hurried_at
            self.returned[peer] = now if again is None else max(now, again + HURRIED_EACH)

    def returning(self, now: Instant, limit: int) -> list[str]:
        """Messages that may be tried again at once, of partners that are heard again."""
        found: list[str] = []
        for peer in [peer for peer, due in self.returned.items() if due <= now]:
            contact = self[peer]
            if contact.silent_since:
                # It fell silent again meanwhile.
                del self.returned[peer]
                continue
            contact.hurried_at = now
            while contact.unsent and len(found) < limit:
                message_id = next(iter(contact.unsent))
                del contact.unsent[message_id]
                found.append(message_id)
            if not contact.unsent:
                del self.returned[peer]
        return found

    def tell(self, now: Instant) -> None:
        """Log those that have been silent for long enough."""
        for peer in sorted(self._untold):
            contact = self._known[peer]
            if contact.tell_at <= now:
                self._untold.discard(peer)
                contact.told, contact.told_at = True, now
                logger.warning(
                    "a partner is silent",
                    extra={"peer": peer, "failures": contact.failures, "problem": contact.reason},
                )

    @property
    def due_at(self) -> Instant | None:
        """When there is something to tell or to try again; None: there is nothing."""
        if not self.returned and not self._untold:
            return None
        return min((*self.returned.values(), *(self._known[peer].tell_at for peer in self._untold)))

    def longest_silent(self, limit: int) -> frozenset[str]:
        """Those that are silent now, at most so many."""
        silent = [
            (contact.silent_since, peer)
            for peer, contact in self._known.items()
            if contact.silent_since
        ]
        return frozenset(peer for _, peer in sorted(silent)[:limit])

    def shift(self, by: Duration) -> None:
        """The clock was set."""
        for contact in self._known.values():
            contact.heard_at += by if contact.heard_at else 0
            contact.silent_since += by if contact.silent_since else 0
            contact.told_at = None if contact.told_at is None else contact.told_at + by
            contact.hurried_at = None if contact.hurried_at is None else contact.hurried_at + by
        self.returned = {peer: due + by for peer, due in self.returned.items()}
