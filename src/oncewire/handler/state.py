"""ProcessState and Caches: what a handler holds in memory beside its store.

Each field says whether another process of the same party, working on the same database, would
need it. "Own" means that each process has its own. "Shared" means that the processes would have to
agree on it, by the database or by a message between them.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from oncewire.agreement.agreement import Agreement
from oncewire.handler.actions import Action
from oncewire.handler.contacts import Contacts
from oncewire.handler.refusals import Refusals
from oncewire.handler.spool_reading import Proofs, ReadingRoom
from oncewire.handler.world import Timeline
from oncewire.message.envelope import Message
from oncewire.message.instant import HOUR, MINUTE, Duration, Instant
from oncewire.protocol.terms import Terms
from oncewire.wire.templates.signature import Templates

IN_FLIGHT_MAX = 256
"""Transmissions under way at once; the rest wait their turn without a timer running."""

NEVER: Instant = 2**62
"""Later than anything that is due."""

KEYS_MAX = 4096
"""Names that a Tally counts apart; beyond that they are counted together."""

FORGOTTEN_AFTER: Duration = HOUR
"""A name that was not counted for so long makes room for another."""

LOOKED_THROUGH_EACH: Duration = MINUTE
"""How often at most a full Tally looks for names to forget, since that reads all of them."""


class Tally:
    """Counts by name, within a bound, of what anybody can make happen."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, Instant]] = {}
        self._forgotten_at: Instant = 0

    def __len__(self) -> int:
        return len(self._counts)

    def count(self, name: str, now: Instant) -> int:
        """Count one more of that name; returns how many there are."""
        if name not in self._counts and len(self._counts) >= KEYS_MAX:
            if not self._forgotten_at or now - self._forgotten_at >= LOOKED_THROUGH_EACH:
                self._forgotten_at = now
                self._counts = {
                    known: (counted, at)
                    for known, (counted, at) in self._counts.items()
                    if now - at < FORGOTTEN_AFTER
                }
            if len(self._counts) >= KEYS_MAX:
                name = ""
        counted = self._counts.get(name, (0, now))[0] + 1
        self._counts[name] = counted, now
        return counted


def is_told(count: int) -> bool:
    """Whether this one is written down: the first, the second, the fourth, ..."""
    return count & (count - 1) == 0


@dataclass(slots=True)
class Trial:
    """A message of ours that tries an agreement out, while it is under way."""

    # How many of its acknowledgements are treated as lost.
    lose: int = 0
    # MessageIds of the acknowledgements that came, in order, the lost ones too.
    heard: list[str] = field(default_factory=list)

    def overlooks(self, message: Message) -> bool:
        """Note an answer; whether it is treated as lost."""
        self.heard.append(message.header.message_id)
        lost = self.lose > 0
        self.lose -= lost
        return lost


@dataclass(slots=True)
class ProcessState:
    """What only this process knows: gone with it, and found again from the store at a start."""

    # Own: the time this process lives by.
    timeline: Timeline
    # Own: which spool files this process has read and found whole.
    proofs: Proofs
    # Own: the instant of the open transition, on both clocks.
    moment: tuple[Instant, Duration] | None = None
    # Own: who asked for the open transition, where that is known.
    by: str | None = None

    # --- collected by transitions, given out by the commit ---

    # Own: what leaves after the commit.
    actions: list[Action] = field(default_factory=list)
    # Own: messages whose receiver is asked for their status (C37).
    status_questions: list[str] = field(default_factory=list)
    # Own: failed messages whose From Parties are told in the commit.
    failed: list[str] = field(default_factory=list)
    # Own: ended parts of documents of ours, followed up in the commit.
    parts_ended: list[str] = field(default_factory=list)
    # Own: channels that may have a place for a waiting message, in the order they were named.
    admissions: dict[str, None] = field(default_factory=dict)
    # Own: documents without a window that may have room for another part.
    releasing: dict[str, None] = field(default_factory=dict)
    # Own: acknowledgments that waited for a response and leave with this commit.
    acks_leaving: list[tuple[Instant, str, str]] = field(default_factory=list)
    # Own: messages whose trouble ended in this turn.
    relieved: list[str] = field(default_factory=list)
    # Own: spool files written in this turn.
    spooled: list[str] = field(default_factory=list)
    # Own: partners without an address for an answer, and what the answer was.
    unaddressed: dict[str, str] = field(default_factory=dict)

    # --- messages under way ---

    # Shared: messages whose transmission is under way; two processes must not send one at once.
    in_flight: set[str] = field(default_factory=set)
    # Shared: messages with an incident, and when each is looked at again; 0: it may go on now.
    troubled: dict[str, Instant] = field(default_factory=dict)
    # Own: messages whose timer cannot be set, passed over until the next start.
    stuck: set[str] = field(default_factory=set)
    # Shared: messages that a reliable transport was asked about again after a restart.
    taken_up: set[str] = field(default_factory=set)
    # Shared: receiver labels and transports that messages have left, until a probe gets through.
    left: set[tuple[str, str]] = field(default_factory=set)
    # Own: channels on which a part of a document entered last; a whole message goes next.
    part_went: set[str] = field(default_factory=set)
    # Shared: documents that are being joined, with their channel and their place in its order.
    joining: dict[tuple[str, str], tuple[str | None, int]] = field(default_factory=dict)
    # Own: documents compressed in a thread, until their turn, by `splitting.compressed_key`.
    compressed: dict[tuple[object, ...], list[Any]] = field(default_factory=dict)

    # --- who waits here ---

    # Own: requests, by sender and MessageId, whose connection waits for their response.
    replying: Collection[tuple[str, str]] = ()
    # Own: the same at a hub, whose next hop gives the reply.
    relaying: Collection[tuple[str, str]] = ()
    # Shared: acknowledgments that wait for a response to ride on, the earliest due first.
    acks_waiting: list[tuple[Instant, str, str]] = field(default_factory=list)
    # Shared: MessageIds of unanswered Pings; the Pong may reach another process.
    pings: set[str] = field(default_factory=set)
    # Shared: status questions about messages unknown here, by CPAId and MessageId.
    asked: set[tuple[str, str]] = field(default_factory=set)
    # Shared: trials that a caller waits for, by their MessageId.
    trials: dict[str, Trial] = field(default_factory=dict)

    # --- timers ---

    # Shared: when held messages are looked at next.
    gaps_due_at: Instant = 0
    # Shared: when retention removes messages, and then their files.
    sweep_due_at: Instant = NEVER
    clean_due_at: Instant = NEVER
    # Shared: the row after which answers of an earlier run are still to be posted.
    repost_after: int | None = None
    # Own: when the timers were served last.
    ticked_at: Instant = 0

    # --- partners ---

    # Shared: whether each partner answers; what one process hears concerns the attempts of all.
    contacts: Contacts = field(default_factory=Contacts)

    # --- strangers ---

    # Own: ignored signals, by the message they are about.
    ignored: Tally = field(default_factory=Tally)
    # Own: refused messages that are counted and not yet written down.
    refusals: Refusals = field(default_factory=Refusals)
    # Own: the threads that read large bodies.
    reading_room: ReadingRoom = field(default_factory=ReadingRoom)

    def shift(self, by: Duration) -> None:
        """Move every timer with the clock, so that no wait becomes longer or shorter."""
        self.gaps_due_at += by
        self.sweep_due_at += by
        self.clean_due_at += by
        self.ticked_at += by
        self.refusals.shift(by)
        self.contacts.shift(by)
        self.acks_waiting = [
            (due + by, sender, message_id) for due, sender, message_id in self.acks_waiting
        ]
        self.troubled = {subject: until and until + by for subject, until in self.troubled.items()}


@dataclass(slots=True)
class Caches:
    """What can be computed again. Own: every process fills its own."""

    # Ids of terms: a digest of thirty values.
    terms_ids: dict[Terms, str] = field(default_factory=dict)
    # Agreements as they are stored, by `id(agreement)`; the agreement is kept alive with it.
    written: dict[int, tuple[Agreement, str, str]] = field(default_factory=dict)
    # Agreements that stored messages were accepted under, by their id in the store.
    kept: dict[str, Agreement] = field(default_factory=dict)
    # MessageIds made ahead of the messages they are for.
    fresh_ids: deque[str] = field(default_factory=deque)
    # Templates of headers and signatures. ONCEWIRE_TEMPLATES=off turns them off, for tests: they
    # change how long a message takes and nothing else.
    templates: Templates = field(
        default_factory=lambda: Templates(enabled=os.environ.get("ONCEWIRE_TEMPLATES") != "off")
    )
