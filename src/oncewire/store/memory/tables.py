"""Tables in memory that can take back what was done to them.

Every change goes through `Table.put`, which notes the value before it in one log for all
tables. Undoing a transition, a failed commit or a crash is the same thing: putting the
noted values back, newest first. Rows are immutable, so nothing is ever copied for it.
Indexes follow the rows through `_index_keys`, forwards and backwards alike.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from oncewire.journal.row import Row
from oncewire.message.instant import Instant
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import FINAL_OUTGOING, IncomingState, OutgoingState
from oncewire.protocol.terms import Terms
from oncewire.store.records import (
    Incident,
    Refusal,
    Removed,
    StoredIncoming,
    StoredOutgoing,
    StoredParcel,
)
from oncewire.store.schedule import FINAL_INCOMING, LIVE

K = TypeVar("K")
R = TypeVar("R")
Change = tuple["Table[Any, Any]", Any, Any]
IncomingKey = tuple[str, str]


def without_bytes(stored: StoredIncoming) -> StoredIncoming:
    """A received message as lists show it."""
    answered = stored.answer is not None
    return replace(stored, parcel=None, answer=None, view=None, answered=answered)


class Sorted:
    """Keys in order. Inserting near the end and reading from the front are the usual steps."""

    __slots__ = ("keys",)

    def __init__(self) -> None:
        self.keys: list[Any] = []

    def add(self, key: Any) -> None:
        """Insert where it belongs."""
        keys = self.keys
        if not keys or key > keys[-1]:
            keys.append(key)
        else:
            insort(keys, key)

    def remove(self, key: Any) -> None:
        """Remove a key that is there."""
        del self.keys[bisect_left(self.keys, key)]

    def up_to(self, bound: Instant, limit: int) -> list[Any]:
        """Keys (tuples that begin with an instant) at most `bound`, at most `limit` of them."""
        keys = self.keys
        return keys[: min(bisect_left(keys, (bound + 1,)), limit)]

    @property
    def first(self) -> Any:
        """The smallest key, or None."""
        return self.keys[0] if self.keys else None


class Groups:
    """Sorted keys per group, without empty groups; what is added begins with the group."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[Any, Sorted] = {}

    def add(self, key: Any) -> None:
        """Insert into the group that the key begins with."""
        self._groups.setdefault(key[0], Sorted()).add(key)

    def remove(self, key: Any) -> None:
        """Remove from the group that the key begins with."""
        members = self._groups[key[0]]
        members.remove(key)
        if not members.keys:
            del self._groups[key[0]]

    def of(self, group: Any) -> list[Any]:
        """The group's keys in order; do not change the list."""
        members = self._groups.get(group)
        return members.keys if members is not None else []


class Table(Generic[K, R]):
    """Rows by key, with a note of what was there before each change."""

    def __init__(self, log: list[Change]) -> None:
        self.rows: dict[K, R] = {}
        self._log = log
        self._indexes: tuple[Sorted | Groups, ...] = ()

    def get(self, key: K) -> R | None:
        """The row, or None."""
        return self.rows.get(key)

    def put(self, key: K, row: R | None) -> None:
        """Insert, replace or (None) remove."""
        before = self.rows.get(key)
        self._log.append((self, key, before))
        self._set(key, before, row)

    def restore(self, key: K, before: R | None) -> None:
        """Take one change back."""
        self._set(key, self.rows.get(key), before)

    def _set(self, key: K, old: R | None, new: R | None) -> None:
        if new is None:
            del self.rows[key]
        else:
            self.rows[key] = new
        nowhere = (None,) * len(self._indexes)
        out_of = nowhere if old is None else self._index_keys(key, old)
        into = nowhere if new is None else self._index_keys(key, new)
        for index, leaves, enters in zip(self._indexes, out_of, into, strict=True):
            if leaves != enters:
                if leaves is not None:
                    index.remove(leaves)
                if enters is not None:
                    index.add(enters)

    def _index_keys(self, _key: K, _row: R) -> tuple[Any, ...]:
        """The row's key in each index, None where it does not belong; here are no indexes."""
        return ()


@dataclass(frozen=True, slots=True)
class OutgoingRow:
    """A sent message with everything it is filed under."""

    stored: StoredOutgoing
    parcel: StoredParcel | None
    draft: bytes | None
    keep_until: Instant
    due_at: Instant | None
    expires_at: Instant | None
    # Order of entry into the window, 0 before it.
    entered: int = 0
    held: bool = False


@dataclass(frozen=True, slots=True)
class IncomingRow:
    """A received message with everything it is filed under."""

    stored: StoredIncoming
    keep_until: Instant
    held: bool = False


class OutgoingTable(Table[str, OutgoingRow]):
    """Sent messages by MessageId."""

    def __init__(self, log: list[Change]) -> None:
        super().__init__(log)
        self.by_position, self.by_state = Sorted(), Groups()
        self.due, self.expiring, self.notices, self.removable = (Sorted() for _ in range(4))
        self.waiting, self.live, self.responses = (Groups() for _ in range(3))
        self._indexes = (
            self.by_position,
            self.by_state,
            self.due,
            self.expiring,
            self.notices,
            self.removable,
            self.waiting,
            self.live,
            self.responses,
        )

    def _index_keys(self, key: str, row: OutgoingRow) -> tuple[Any, ...]:
        stored, outgoing = row.stored, row.stored.outgoing
        position, state, channel = stored.position, outgoing.state, outgoing.channel
        owed, ref_to, sent = outgoing.notice_owed, stored.facts.ref_to, outgoing.first_sent_at
        removable = state in FINAL_OUTGOING and not (row.held or owed)
        waits = channel is not None and state is OutgoingState.WAITING
        lives = channel is not None and state in LIVE
        epoch = -1 if outgoing.epoch is None else outgoing.epoch
        place = (sent is None, 0 if sent is None else row.entered)
        return (
            (position, key),
            (state, position, key),
            None if row.due_at is None else (row.due_at, position, key),
            None if row.expires_at is None else (row.expires_at, position, key),
            (position, key) if owed else None,
            (row.keep_until, position, key) if removable else None,
            (channel, position, key) if waits else None,
            (channel, epoch, row.entered, key) if lives else None,
            None if ref_to is None else ((ref_to, stored.peer), *place, sent, position, key),
        )

    def owed(self, limit: int, after: int) -> list[StoredOutgoing]:
        """Those whose notice is owed, beyond a position."""
        keys = self.notices.keys
        start = bisect_left(keys, (after + 1,))
        return [self.rows[key[-1]].stored for key in keys[start : start + limit]]


class IncomingTable(Table[IncomingKey, IncomingRow]):
    """Received messages by (sender, MessageId)."""

    def __init__(self, log: list[Change]) -> None:
        super().__init__(log)
        self.by_row, self.by_state, self.by_id = Sorted(), Groups(), Groups()
        self.answers, self.ready, self.leases, self.removable = (Sorted() for _ in range(4))
        self._indexes = (
            self.by_row,
            self.by_state,
            self.by_id,
            self.answers,
            self.ready,
            self.leases,
            self.removable,
        )

    def _index_keys(self, key: IncomingKey, row: IncomingRow) -> tuple[Any, ...]:
        stored, incoming = row.stored, row.stored.incoming
        number, state, lease = stored.row, incoming.state, incoming.lease_until
        owed = stored.answer is not None and stored.answer.owed
        leased = state is IncomingState.HANDED_OVER and lease is not None
        removable = state in FINAL_INCOMING and not (row.held or owed)
        return (
            (number, key),
            (state, number, key),
            (incoming.message_id, number, key),
            (number, key) if owed else None,
            (stored.position, key) if state is IncomingState.READY else None,
            (lease, stored.position, key) if leased else None,
            (row.keep_until, number, key) if removable else None,
        )


class JournalTable(Table[int, Row]):
    """Journal rows by seq."""

    def __init__(self, log: list[Change]) -> None:
        super().__init__(log)
        self.by_seq, self.by_message = Sorted(), Groups()
        self._indexes = (self.by_seq, self.by_message)

    def _index_keys(self, key: int, row: Row) -> tuple[Any, ...]:
        return ((key,), None if row.message_id is None else (row.message_id, key))


class IncidentTable(Table[int, Incident]):
    """Incidents by their id; what is open is found by what it names."""

    def __init__(self, log: list[Change]) -> None:
        super().__init__(log)
        self.open_by_message, self.open_by_channel = Groups(), Groups()
        self._indexes = (self.open_by_message, self.open_by_channel)

    def _index_keys(self, key: int, row: Incident) -> tuple[Any, ...]:
        if row.resolved_at is not None:
            return (None, None)
        return ((row.message_id, key), (row.channel, key))


class RemovedTable(Table[IncomingKey, Removed]):
    """What is remembered of removed messages, by (sender, MessageId); "": sent from here."""

    def __init__(self, log: list[Change]) -> None:
        super().__init__(log)
        self.by_id, self.by_time = Groups(), Sorted()
        self._indexes = (self.by_id, self.by_time)

    def _index_keys(self, key: IncomingKey, row: Removed) -> tuple[Any, ...]:
        return ((row.message_id, key), (row.removed_at, key))


@dataclass(slots=True)
class Tables:
    """Everything one node keeps, and the log of what is not committed yet."""

    log: list[Change] = field(default_factory=list)
    journal: JournalTable = field(init=False)
    terms: Table[str, Terms] = field(init=False)
    agreements: Table[str, str] = field(init=False)
    sending: Table[str, SendingChannel] = field(init=False)
    receiving: Table[str, ReceivingChannel] = field(init=False)
    outgoing: OutgoingTable = field(init=False)
    incoming: IncomingTable = field(init=False)
    removed: RemovedTable = field(init=False)
    incidents: IncidentTable = field(init=False)
    refusals: Table[tuple[str, str], Refusal] = field(init=False)
    counters: Table[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.journal = JournalTable(self.log)
        self.terms = Table(self.log)
        self.agreements = Table(self.log)
        self.sending = Table(self.log)
        self.receiving = Table(self.log)
        self.outgoing = OutgoingTable(self.log)
        self.incoming = IncomingTable(self.log)
        self.removed = RemovedTable(self.log)
        self.incidents = IncidentTable(self.log)
        self.refusals = Table(self.log)
        self.counters = Table(self.log)

    def count(self, name: str, steps: int = 1) -> int:
        """Raise a counter; the numbers it gave are given again only if it is undone."""
        value = (self.counters.get(name) or 0) + steps
        self.counters.put(name, value)
        return value

    def undo_to(self, mark: int) -> None:
        """Take back every change after the mark, newest first."""
        log = self.log
        while len(log) > mark:
            table, key, before = log.pop()
            table.restore(key, before)

    def committed(self) -> Tables:
        """A copy of what is committed; for readers while something is not."""
        before: dict[tuple[int, Any], Any] = {}
        for table, key, old in self.log:
            before.setdefault((id(table), key), old)
        copy = Tables()
        for mine, theirs in zip(self._all(), copy._all(), strict=True):
            rows = dict(mine.rows)
            rows.update({key: old for (table, key), old in before.items() if table == id(mine)})
            for key, row in rows.items():
                if row is not None:
                    theirs.put(key, row)
        copy.log.clear()
        return copy

    def _all(self) -> Iterable[Table[Any, Any]]:
        yield self.journal
        yield self.terms
        yield self.agreements
        yield self.sending
        yield self.receiving
        yield self.outgoing
        yield self.incoming
        yield self.removed
        yield self.incidents
        yield self.refusals
        yield self.counters
