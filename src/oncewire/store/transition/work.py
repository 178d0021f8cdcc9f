"""UnitOfWork: what a turn has in memory of the store, and what it changed there.

Whatever is asked for is loaded once and from then on read here. What changed is here alone until
the commit writes it. Rows of unfinished messages stay after it, so that most turns
have nothing to load; the others go. Where all that are live are here, no list asks the backend;
where they are too many, a list first loads what it lacks.

What is here differs from the backend by the noted changes alone: one process owns a store, and when
another process has written to it all the same, everything here is forgotten and read anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from oncewire.errors import NotAllowed, StoreProblem
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.terms import Terms
from oncewire.store.records import Removed
from oncewire.store.transition.backend import Backend, Changes, Values
from oncewire.store.transition.rows import (
    IncomingKey,
    IncomingRow,
    OutgoingRow,
    ReceiptRow,
    WordsRow,
)
from oncewire.store.transition.tables import (
    Change,
    DocumentTable,
    Groups,
    HeldBytes,
    IncidentTable,
    IncomingTable,
    OutgoingTable,
    Sorted,
    Table,
)

K = TypeVar("K")
R = TypeVar("R")

LIVE_MAX = 20_000
"""How many live messages of each direction are held between turns; beyond it they are read back."""

REMEMBERED = 20_000
"""How many channels, terms and agreements are held between turns."""

PAGE = 32
"""How many keys more than it needs a list asks for: some may have changed meanwhile."""

LOADED_MAX = 4_096
"""How many finished messages are held where no commit lets them go."""

LOOK_AGAIN = 1_000
"""Commits after which the work checks again whether all live messages fit."""


class UnitOfWork:
    """The rows in memory, each table with what its rows were before."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._crowded = 0
        # Whether something was kept before the transition that is open.
        self.kept = False
        # Whether it has made a step over many rows, in the backend.
        self._stepped = False
        # Whether the backend has applied anything that is not committed.
        self.applied = False
        self.clear()

    def clear_rows(self) -> None:
        """Forget all rows in memory, because a step over many rows changed them in the backend."""
        stepped = self._stepped
        self.clear()
        self._stepped = stepped

    def clear(self) -> None:
        """Forget everything."""
        self.log: list[Change] = []
        self.journal: list[Values] = []
        self.counters = self.backend.counters()
        self._counted = dict(self.counters)
        self._begun = (0, 0, self._counted)
        self._stepped = False
        self.terms: Table[str, Terms] = Table(self.log)
        self.agreements: Table[str, str] = Table(self.log)
        self.sending: Table[str, SendingChannel] = Table(self.log)
        self.receiving: Table[str, ReceivingChannel] = Table(self.log)
        self.outgoing = OutgoingTable(self.log)
        self.incoming = IncomingTable(self.log)
        self.bytes = HeldBytes(self.log)
        self.receipts: Table[str, ReceiptRow] = Table(self.log)
        self.words: Table[IncomingKey, WordsRow] = Table(self.log)
        self.incidents = IncidentTable(self.log)
        self.documents = DocumentTable(self.log)
        # Those without bytes, which have a bound of their own.
        self._tables: tuple[Table[Any, Any], ...] = (
            *(self.terms, self.agreements, self.sending, self.receiving, self.words),
            *(self.outgoing, self.incoming, self.incidents, self.receipts, self.documents),
        )
        self.removed: dict[str, list[Removed]] = {}
        # Every live message is here.
        self.complete = False
        self._incidents_known = False
        # What was loaded for this turn alone, unless it is unfinished.
        self._loaded_outgoing: list[str] = []
        self._loaded_incoming: list[IncomingKey] = []
        # Groups of an index of which every member is here.
        self._filled: set[Values] = set()

    # --- numbers ---

    def count(self, name: str) -> int:
        """The next number of a kind; the numbers of an undone transition are given again."""
        value = self.counters[name] = self.counters[name] + 1
        return value

    # --- rows by key ---

    def look_up(self, table: Table[K, R], key: K, load: Any) -> R | None:
        """A row of a small table."""
        if key not in table.rows:
            table.learn(key, load(key))
        return table.rows[key]

    def sent(self, message_id: str) -> OutgoingRow | None:
        """A sent message, damaged or not."""
        rows = self.outgoing.rows
        if message_id not in rows:
            self.load_outgoing((message_id,))
        return rows[message_id]

    def received(self, key: IncomingKey) -> IncomingRow | None:
        """A received message, damaged or not."""
        rows = self.incoming.rows
        if key not in rows and ("by_id", key[1]) not in self._filled:
            self.load_incoming((key[1],))
        return rows.get(key)

    def received_as(self, message_id: str) -> list[IncomingRow]:
        """Every sender's message with that id."""
        if ("by_id", message_id) not in self._filled:
            self.load_incoming((message_id,))
        return [self.incoming.row(key[-1]) for key in self.incoming.by_id.of(message_id)]

    def load_outgoing(self, message_ids: Sequence[str]) -> None:
        """Load sent messages, or note that there are none."""
        table = self.outgoing
        missing = [message_id for message_id in message_ids if message_id not in table.rows]
        if not missing:
            return
        for row in self.backend.outgoing(missing):
            table.learn(row.stored.outgoing.message_id, row)
        for message_id in missing:
            table.rows.setdefault(message_id, None)
        self._loaded_outgoing += missing

    def load_incoming(self, message_ids: Sequence[str]) -> None:
        """Load every sender's messages with these ids."""
        missing = [name for name in message_ids if ("by_id", name) not in self._filled]
        if not missing:
            return
        table = self.incoming
        for row in self.backend.incoming(missing):
            key = (row.stored.incoming.sender, row.stored.incoming.message_id)
            if key not in table.rows:
                table.learn(key, row)
                self._loaded_incoming.append(key)
        self._filled.update(("by_id", name) for name in missing)

    def load_removed(self, message_ids: Sequence[str]) -> None:
        """Load what is remembered of removed messages with these ids."""
        missing = [name for name in message_ids if name not in self.removed]
        if not missing:
            return
        for name in missing:
            self.removed[name] = []
        for gone in self.backend.removed(missing):
            self.removed[gone.message_id].append(gone)

    def load_incidents(self) -> None:
        """Load the open incidents: they are few, because an operator resolves them."""
        if not self._incidents_known:
            for incident in self.backend.incidents():
                if incident.id not in self.incidents.rows:
                    self.incidents.learn(incident.id, incident)
            self._incidents_known = True

    # --- rows by an index ---

    def fill_outgoing(
        self, index: str, bounds: Values = (), limit: int = 1, after: int = 0
    ) -> None:
        """Load the first `limit` sent messages of an index beyond a number."""
        if not self.complete or index == "responses":
            start = (after,) if after else None
            self._fill(index, bounds, limit, self.outgoing, self._load_sent, start)

    def fill_incoming(
        self, index: str, bounds: Values = (), limit: int = 1, after: int = 0
    ) -> None:
        """Load the first `limit` received messages of an index beyond a number."""
        if not self.complete:
            start = (after,) if after else None
            self._fill(index, bounds, limit, self.incoming, self._load_received, start)

    def _load_sent(self, keys: Iterable[str]) -> None:
        self.load_outgoing(list(keys))

    def _load_received(self, keys: Iterable[IncomingKey]) -> None:
        self.load_incoming([message_id for _, message_id in keys])

    def _fill(
        self,
        index: str,
        bounds: Values,
        limit: int,
        table: Table[Any, Any],
        load: Any,
        after: Values | None = None,
    ) -> None:
        """Load what the backend has in an index, in its order, until there are `limit` of which
        this is still so: then whatever the backend has besides comes after them."""
        place: Sorted | Groups = getattr(table, index)
        if (index, *bounds) in self._filled:
            return
        found = 0
        whole = index in ("live", "responses", "leases", "parts")
        while found < limit or whole:
            size = limit + PAGE
            keys = self.backend.scan(index, bounds, after, size)
            load([key[-1] for key in keys if key[-1] not in table.rows])
            found += sum(table.filed_under(place, key) for key in keys)
            if whole or len(keys) < size:
                if after is None:
                    self._filled.add((index, *bounds))
                return
            after = keys[-1]

    @property
    def full(self) -> bool:
        """Whether much was loaded for the turn alone."""
        loaded = len(self._loaded_outgoing) + len(self._loaded_incoming)
        return loaded + len(self.removed) + len(self._filled) > LOADED_MAX

    # --- what is live ---

    def hold_live(self) -> None:
        """Load every live message, unless there are too many."""
        if self.complete or self._crowded:
            return
        sent, received = self.backend.live(LIVE_MAX + 1)
        if len(sent) > LIVE_MAX or len(received) > LIVE_MAX:
            self._crowded = LOOK_AGAIN
            return
        self.load_outgoing(sent)
        self.load_incoming([message_id for _, message_id in received])
        self.complete = True

    # --- transitions ---

    def begin(self) -> None:
        """Begin a transition."""
        self._begun = len(self.log), len(self.journal), dict(self.counters)
        self._stepped = False
        self.kept = bool(self.log or self.journal or self.applied)

    def keep(self) -> None:
        """Keep the transition; undo it and raise StoreProblem if a row of it cannot be kept."""
        rows: list[OutgoingRow | IncomingRow] = []
        added: list[OutgoingRow | IncomingRow] = []
        for table, key, _, _ in self.log[self._begun[0] :]:
            row = table.rows[key]
            if row is not None and (table is self.outgoing or table is self.incoming):
                (added if table.before.get(key) is None else rows).append(row)
        try:
            self.backend.check(added, rows, self.journal[self._begun[1] :])
        except StoreProblem:
            self.undo()
            raise
        if self._stepped:
            self.backend.keep_steps()
            self.applied = self.backend.applied()

    def undo(self) -> None:
        """Undo the transition and nothing else."""
        if self._stepped:
            self.backend.undo_steps()
            self.applied = self.backend.applied()
            self.clear()
        else:
            self._take_back()

    def _take_back(self) -> None:
        """Take back every change of the transition, newest first."""
        log, (changes, rows, counters) = self.log, self._begun
        while len(log) > changes:
            table, key, old, first = log.pop()
            table.restore(key, old, first)
        del self.journal[rows:]
        self.counters = dict(counters)

    def step_over(self) -> Backend:
        """The backend for a step over many rows, with all changes so far applied, and a savepoint
        so that the transition can still be undone alone. Rows in memory may be outdated
        afterwards."""
        if not self._stepped:
            changes, rows, _ = self._begun
            mine = {(table, key): table.rows[key] for table, key, _, _ in self.log[changes:]}
            journal, counters = self.journal[rows:], self.counters
            self._take_back()
            self.write()
            self.backend.begin_steps()
            self._stepped = True
            for (table, key), row in mine.items():
                table.put(key, row)
            self.journal, self.counters = journal, counters
        self.write()
        return self.backend

    # --- the commit ---

    def changes(self) -> Changes:
        """Everything that changed since it was last written."""
        counters = {} if self.counters == self._counted else dict(self.counters)
        held, changed = self.bytes, {}
        for table in (*self._tables, held.outgoing, held.incoming, held.answers):
            changed[table] = [
                (key, old, row)
                for key, old in table.before.items()
                if (row := table.rows[key]) is not None and row is not old
            ]
        return Changes(
            counters,
            self.journal,
            [(key, row) for key, _, row in changed[self.terms]],
            [(key, row) for key, _, row in changed[self.agreements]],
            [row for _, _, row in changed[self.sending]],
            [row for _, _, row in changed[self.receiving]],
            [(old, row) for _, old, row in changed[self.outgoing]],
            {key: row for key, _, row in changed[held.outgoing]},
            [(old, row) for _, old, row in changed[self.incoming]],
            {key: row for key, _, row in changed[held.incoming]},
            {key: row for key, _, row in changed[held.answers]},
            {key: row for key, _, row in changed[self.receipts]},
            [(old, row) for _, old, row in changed[self.incidents]],
            [row for _, _, row in changed[self.documents]],
            {key: row for key, _, row in changed[self.words]},
        )

    def write(self) -> None:
        """Have the backend apply the changes, which then equal the rows in memory."""
        if not self.log and not self.journal:
            return
        self.backend.apply(self.changes())
        self.applied = True
        for table in self._tables:
            table.before.clear()
        self.bytes.written()
        self._counted = dict(self.counters)
        self.journal = []

    def rest(self) -> None:
        """End the turn: forget finished messages."""
        self.applied = False
        sent, received = self.outgoing, self.incoming
        touched_sent: set[str] = set(self._loaded_outgoing)
        touched_received: set[IncomingKey] = set(self._loaded_incoming)
        for table, key, _, _ in self.log:
            if table is sent:
                touched_sent.add(key)
            elif table is received:
                touched_received.add(key)
        self.log.clear()
        for message_id in touched_sent:
            row = sent.rows.get(message_id)
            if row is None or not row.live:
                sent.forget(message_id)
                self.bytes.forget_outgoing(message_id)
        for pair in touched_received:
            arrived = received.rows.get(pair)
            if arrived is None or not arrived.live:
                received.forget(pair)
                self.bytes.forget_incoming(pair)
        for proved in list(self.receipts.rows):
            self.receipts.forget(proved)
        for found_by in list(self.words.rows):
            self.words.forget(found_by)
        self._loaded_outgoing.clear()
        self._loaded_incoming.clear()
        self._filled.clear()
        self.removed.clear()
        self._bound()

    def _bound(self) -> None:
        """Forget rows beyond the bounds."""
        self._crowded = max(0, self._crowded - 1)
        small: tuple[Table[Any, Any], ...] = (self.terms, self.agreements, self.sending)
        for table in (*small, self.receiving, self.incidents, self.documents):
            if len(table.rows) > REMEMBERED:
                self._incidents_known = False
                for key in list(table.rows):
                    table.forget(key)
        if len(self.documents.gathered) > REMEMBERED:
            self.documents.gathered.clear()
        while len(self.outgoing.rows) > LIVE_MAX:
            self.complete = False
            oldest = next(iter(self.outgoing.rows))
            self.outgoing.forget(oldest)
            self.bytes.forget_outgoing(oldest)
        while len(self.incoming.rows) > LIVE_MAX:
            self.complete = False
            first = next(iter(self.incoming.rows))
            self.incoming.forget(first)
            self.bytes.forget_incoming(first)
        self.bytes.bound()


def not_kept_terms(terms_id: str) -> NotAllowed:
    """The error for filing a message under terms that are not there."""
    return NotAllowed(f"terms {terms_id} are not kept here", remedy="call remember_terms first")
