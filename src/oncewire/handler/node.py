"""Node: what every verb of the handler works with, and how it writes the journal."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from oncewire.agreement.agreements import Agreements
from oncewire.errors import StoreProblem
from oncewire.handler.actions import Action
from oncewire.handler.keys import Keys
from oncewire.handler.kill import KillPoints
from oncewire.handler.world import World
from oncewire.journal.detail import write_terms
from oncewire.journal.row import Kind, Row
from oncewire.message.instant import SECOND, Duration, Instant
from oncewire.protocol.effects import Note
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Store, Transaction
from oncewire.wire.limits import DEFAULT_LIMITS, Limits

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode

BODY_MAX = 256 * 1024 * 1024
"""The largest body taken unless the configuration says otherwise; one is held in memory."""


IN_FLIGHT_MAX = 256
"""Transmissions under way at once; the rest wait their turn without a timer running."""

NEVER: Instant = 2**62
"""Later than anything that is due."""

CLOCK_SET: Duration = SECOND
"""A difference between the two clocks that means that somebody set the one people read."""


class Node:
    """One handler's tools: its store, its agreements, its world, and its released actions."""

    def __init__(
        self,
        name: str,
        store: Store,
        agreements: Agreements,
        world: World,
        *,
        keys: Keys | None = None,
        limits: Limits = DEFAULT_LIMITS,
        body_max: int = BODY_MAX,
        at_rest: bool = False,
    ) -> None:
        self.name = name
        self.store = store
        self.agreements = agreements
        self.world = world
        self.boot = world.new_id()
        self.keys = keys
        self.limits = limits
        self.body_max = body_max
        # Nothing can be sent from here: what is submitted is due when a handler runs.
        self.at_rest = at_rest
        # The application is called, so a connection can wait for what it says; one that comes
        # for its messages may come at any time, and nothing waits for it.
        self.application_called = False
        # Requests, by sender and MessageId, whose connection waits for their response now.
        self.replying: Collection[tuple[str, str]] = ()
        # The same at a hub, whose next hop gives the reply.
        self.relaying: Collection[tuple[str, str]] = ()
        # A digest of thirty values is not made anew for every message.
        self._terms_ids: dict[Terms, str] = {}
        # Collected by transitions, given out by the commit.
        self.actions: list[Action] = []
        # Messages whose fate is to be asked of their receiver (C37).
        self.status_questions: list[str] = []
        # Messages that failed, whose From Parties are to be told with the next commit.
        self.failed: list[str] = []
        # Acknowledgements that wait for a response to ride on, the earliest due first.
        self.acks_waiting: list[tuple[Instant, str, str]] = []
        # When held messages are looked at next.
        self.gaps_due_at: Instant = 0
        # When messages that nobody needs any more are looked for, and then their files.
        self.sweep_due_at: Instant = NEVER
        self.clean_due_at: Instant = NEVER
        # Files that were put into the spool by transitions that are not committed yet.
        self.spooled: list[str] = []
        # Pings that left and were not answered yet, by their MessageId.
        self.pings: set[str] = set()
        # Messages whose transmission is under way in this process.
        self.in_flight: set[str] = set()
        # Where a test wants this process to die; nowhere, unless its handler says so.
        self.kill = KillPoints()
        # What UTC was when the monotonic clock began.
        self._began: Instant = world.now() - world.mono()
        # The instant of the transition that is open, on both clocks.
        self._moment: tuple[Instant, Duration] | None = None

    @property
    def room(self) -> int:
        """How many more attempts may begin now. One that had to wait for its turn after it was
        begun would be sent again as soon as it was sent."""
        return 0 if self.at_rest else max(0, IN_FLIGHT_MAX - len(self.in_flight))

    @contextmanager
    def transition(self) -> Iterator[Transaction]:
        """A transition of the store that happens at one instant.

        Its timers and its journal rows must tell the same time: a row that is stamped later
        than the timer it explains was set makes the next attempt look too early.
        """
        self._moment = self._read_clocks()
        try:
            with self.store.transition() as tx:
                yield tx
        finally:
            self._moment = None

    def now(self) -> Instant:
        """UTC now."""
        return (self._moment or self._read_clocks())[0]

    def _read_clocks(self) -> tuple[Instant, Duration]:
        """UTC and monotonic time of one instant.

        Between two readings the process may be put aside for any time, so there is one, of
        the monotonic clock, and UTC follows it until somebody sets UTC.
        """
        mono, utc = self.world.mono(), self.world.now()
        set_by = utc - self._began - mono
        if abs(set_by) > CLOCK_SET:
            self._began += set_by
            # What is done now and then keeps its pace: a clock that is set forward by mistake
            # leaves the time to mend it before retention believes it, and one that is set back
            # does not put everything off.
            self.gaps_due_at += set_by
            self.sweep_due_at += set_by
            self.clean_due_at += set_by
        return self._began + mono, mono

    def new_message_id(self) -> str:
        """A MessageId nobody has used before."""
        return f"{self.world.new_id()}@{self.name}"

    def acts_for(self, party: str) -> bool:
        """Whether a party, by the name listings use, is ours under any agreement."""
        return any(
            party == str(party_id)
            for agreement in self.agreements
            for party_id in agreement.own.party.ids
        )

    def write(
        self,
        tx: Transaction,
        notes: Iterable[Note],
        *,
        terms_id: str | None = None,
        hop: int | None = None,
        peer: str | None = None,
        digest: str | None = None,
        size: int | None = None,
    ) -> None:
        """Journal notes of the protocol; the keywords fill columns it does not know."""
        at, mono = self._moment or self._read_clocks()
        tx.journal(
            Row(
                0,
                at,
                mono,
                self.boot,
                self.name,
                note.kind,
                note.message_id,
                note.ref_to,
                terms_id,
                note.channel,
                note.epoch,
                note.number,
                note.attempt,
                hop,
                peer,
                note.transport,
                digest,
                size,
                _encode(note.detail) if note.detail else None,
            )
            for note in notes
        )

    def keep_terms(self, tx: Transaction, terms: Terms) -> str:
        """Keep terms and journal them once, so that rows can refer to them by id."""
        terms_id = self._terms_ids.get(terms)
        if terms_id is None:
            terms_id = self._terms_ids[terms] = terms.terms_id
        if tx.remember_terms(terms):
            at, mono = self._moment or self._read_clocks()
            row = Row(0, at, mono, self.boot, self.name, Kind.TERMS.value, terms_id=terms_id)
            tx.journal([row._replace(detail=write_terms(terms))])
        return terms_id

    def terms_of(self, tx: Transaction, terms_id: str) -> Terms:
        """Terms that a stored message runs under, whatever the agreement says today."""
        terms = tx.terms(terms_id)
        if terms is None:
            raise StoreProblem(
                f"the terms {terms_id} of a stored message are missing",
                remedy="restore the store from a backup; its terms table is incomplete",
            )
        return terms
