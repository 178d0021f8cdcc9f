"""Tables in memory that can take back what was done to them.

Every change goes through `Table.put`, which notes the value before it in one log for all
tables. Undoing a transition, a failed commit or a crash is the same thing: putting the
noted values back, newest first. Rows are immutable, so nothing is ever copied for it.
Indexes follow the rows through `_index_keys`, forwards and backwards alike.

A row that is None is known not to be there.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from oncewire.message.instant import Instant
from oncewire.protocol.documents import UNFINISHED
from oncewire.protocol.states import IncomingState, OutgoingState
from oncewire.store.records import Incident
from oncewire.store.transition.rows import (
    LIVE,
    AnswerBytes,
    DocumentRow,
    IncomingBytes,
    IncomingKey,
    IncomingRow,
    OutgoingBytes,
    OutgoingRow,
)

# Keys in order, for rows that are found by something else than their own key.


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

    def up_to(self, bound: Instant, limit: int | None = None) -> list[Any]:
        """Keys (tuples that begin with an instant) at most `bound`, at most `limit` of them."""
        end = bisect_left(self.keys, (bound + 1,))
        return self.keys[: end if limit is None else min(end, limit)]

    def beyond(self, bound: Instant) -> list[Any]:
        """Keys (tuples that begin with an instant) later than `bound`."""
        return self.keys[bisect_left(self.keys, (bound + 1,)) :]

    def after(self, number: int, limit: int) -> list[Any]:
        """Keys (tuples that begin with a number) beyond that number, at most `limit` of them."""
        start = bisect_left(self.keys, (number + 1,))
        return self.keys[start : start + limit]

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
        members = self._groups.get(key[0])
        if members is None:
            members = self._groups[key[0]] = Sorted()
        members.add(key)

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


K = TypeVar("K")
R = TypeVar("R")
Change = tuple["Table[Any, Any]", Any, Any, bool]

UNJOINED = frozenset({IncomingState.HELD, IncomingState.GATHERED})
"""States of a part whose document is not whole yet."""

UNKNOWN = object()
"""Stands for a row of which nothing was known: that is no more known when its change is undone."""


class Table(Generic[K, R]):
    """Rows by key, with a note of what was there before each change."""

    def __init__(self, log: list[Change]) -> None:
        self.rows: dict[K, R | None] = {}
        # What the rows were that changed since the last time everything was written down.
        self.before: dict[K, R | None] = {}
        self._log = log
        self._indexes: Sequence[Sorted | Groups] = ()
        self._filed: dict[K, tuple[Any, ...]] = {}

    def get(self, key: K) -> R | None:
        """The row, or None: it is not there, or nothing is known of it."""
        return self.rows.get(key)

    def row(self, key: K) -> R:
        """A row that is there."""
        row = self.rows[key]
        if row is None:
            raise KeyError(key)
        return row

    def present(self) -> list[tuple[K, R]]:
        """Every row that is there."""
        return [(key, row) for key, row in self.rows.items() if row is not None]

    def put(self, key: K, row: R | None) -> None:
        """Insert, replace or (None) remove."""
        old = self.rows.get(key, UNKNOWN)
        first = key not in self.before
        self._log.append((self, key, old, first))
        if first:
            self.before[key] = None if old is UNKNOWN else old  # type: ignore[assignment]
        if self._indexes:
            self._set(key, row)
        else:
            self.rows[key] = row

    def restore(self, key: K, old: Any, first: bool) -> None:
        """Take one change back."""
        if first:
            del self.before[key]
        if old is UNKNOWN:
            self.forget(key)
        else:
            self._set(key, old)

    def learn(self, key: K, row: R | None) -> None:
        """Set a row as the backend has it; this is no change."""
        self._set(key, row)

    def forget(self, key: K) -> None:
        """Forget the row, so that it is loaded from the backend when it is needed."""
        if self._indexes and self.rows.get(key) is not None:
            self._set(key, None)
        self.rows.pop(key, None)

    def filed_under(self, index: Sorted | Groups, place: tuple[Any, ...]) -> bool:
        """Whether a row is in the index at that place; the place ends with the row's key."""
        filed = self._filed.get(place[-1])
        return filed is not None and filed[self._indexes.index(index)] == place

    def _set(self, key: K, row: R | None) -> None:
        self.rows[key] = row
        if not self._indexes:
            return
        nowhere: tuple[Any, ...] = (None,) * len(self._indexes)
        filed = self._filed
        out_of = filed.pop(key, nowhere)
        into = nowhere
        if row is not None:
            into = filed[key] = self._index_keys(key, row)
        for index, leaves, enters in zip(self._indexes, out_of, into, strict=True):
            if leaves != enters:
                if leaves is not None:
                    index.remove(leaves)
                if enters is not None:
                    index.add(enters)

    def _index_keys(self, _key: K, _row: R) -> tuple[Any, ...]:
        """The row's key in each index, None where it does not belong; here are no indexes."""
        return ()


class OutgoingTable(Table[str, OutgoingRow]):
    """Sent messages by MessageId."""

    def __init__(self, log: list[Change]) -> None:
        super().__init__(log)
        self.due, self.expiring, self.notices = Sorted(), Sorted(), Sorted()
        self.waiting, self.live, self.responses = Groups(), Groups(), Groups()
        self._indexes = (
            self.due,
            self.expiring,
            self.notices,
            self.waiting,
            self.live,
            self.responses,
        )

    def _index_keys(self, key: str, row: OutgoingRow) -> tuple[Any, ...]:
        stored, outgoing = row.stored, row.stored.outgoing
        position, state, channel = stored.position, outgoing.state, outgoing.channel
        ref_to, sent = stored.facts.ref_to, outgoing.first_sent_at
        waits = lives = None
        if channel is not None and not row.stateless:
            if state is OutgoingState.WAITING:
                waits = (channel, position, key)
            elif state in LIVE:
                epoch = -1 if outgoing.epoch is None else outgoing.epoch
                lives = (channel, epoch, row.entered, key)
        answers = None
        if ref_to is not None:
            place = (True, 0, 0) if sent is None else (False, row.entered, sent)
            answers = ((ref_to, stored.peer), *place, position, key)
        return (
            None if row.due_at is None else (row.due_at, position, key),
            None if row.expires_at is None else (row.expires_at, position, key),
            (position, key) if outgoing.notice_owed else None,
            waits,
            lives,
            answers,
        )


class IncomingTable(Table[IncomingKey, IncomingRow]):
    """Received messages by (sender, MessageId)."""

    def __init__(self, log: list[Change]) -> None:
        super().__init__(log)
        self.by_id = Groups()
        self.answers, self.ready, self.leases, self.held = Sorted(), Sorted(), Sorted(), Sorted()
        self.parts = Groups()
        self._indexes = (self.by_id, self.answers, self.ready, self.leases, self.held, self.parts)

    def _index_keys(self, key: IncomingKey, row: IncomingRow) -> tuple[Any, ...]:
        stored, incoming = row.stored, row.stored.incoming
        number, lease = stored.row, incoming.lease_until
        state = None if row.stateless else incoming.state
        leased = state is IncomingState.HANDED_OVER and lease is not None
        split = (incoming.sender, stored.facts.split_id)
        ordinal = stored.facts.split_number if state in UNJOINED else None
        return (
            (incoming.message_id, number, key),
            (number, key) if row.owed else None,
            (stored.position, key) if state is IncomingState.READY else None,
            (lease, stored.position, key) if leased else None,
            (number, key) if state is IncomingState.HELD else None,
            None if ordinal is None else (split, ordinal, key),
        )


class DocumentTable(Table[IncomingKey, DocumentRow]):
    """Documents by (sender, SplitId). Those that wait for their parts are counted as they change:
    every arriving part asks for it."""

    def __init__(self, log: list[Change]) -> None:
        super().__init__(log)
        # By sender: how many documents, and their bytes; of senders that were asked for.
        self.gathered: dict[str, tuple[int, int]] = {}

    def count_gathered(self, sender: str, written: tuple[int, int]) -> None:
        """Begin to count a sender's documents; `written` is the count in the backend."""
        count, size = written
        for key, before in self.before.items():
            if key[0] == sender:
                was, now = _gathered(before), _gathered(self.rows[key])
                count, size = count + now[0] - was[0], size + now[1] - was[1]
        self.gathered[sender] = count, size

    def put(self, key: IncomingKey, row: DocumentRow | None) -> None:
        self._recount(key, row)
        super().put(key, row)

    def restore(self, key: IncomingKey, old: Any, first: bool) -> None:
        """See `Table`; what is counted goes back with it."""
        self._recount(key, old)
        super().restore(key, old, first)

    def _recount(self, key: IncomingKey, row: Any) -> None:
        known = self.gathered.pop(key[0], None)
        if known is None or row is UNKNOWN or key not in self.rows:
            # The next question counts anew.
            return
        was, now = _gathered(self.rows[key]), _gathered(row)
        self.gathered[key[0]] = known[0] + now[0] - was[0], known[1] + now[1] - was[1]


def _gathered(row: DocumentRow | None) -> tuple[int, int]:
    if row is None or row.document.state not in UNFINISHED:
        return 0, 0
    return 1, row.document.size


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


# Bytes of messages held in memory: those of a turn, and of live messages while they fit.


BYTES_MAX = 32 * 1024 * 1024
"""Most bytes held between turns; beyond it, those held longest are read back when needed."""

LARGE = 64 * 1024
"""Bytes of a body that is not held after it was read."""


class HeldBytes:
    """The bytes of messages and answers in memory, and their total size."""

    def __init__(self, log: list[Change]) -> None:
        self.outgoing: Table[str, OutgoingBytes] = Table(log)
        self.incoming: Table[IncomingKey, IncomingBytes] = Table(log)
        self.answers: Table[IncomingKey, AnswerBytes] = Table(log)
        self._sizes: dict[tuple[Table[Any, Any], Any], int] = {}
        self._total = 0

    def learn(self, table: Table[Any, Any], key: Any, content: Any) -> None:
        """Hold bytes that were read, if they are few."""
        size = _size(content)
        if size <= LARGE:
            table.learn(key, content)
            self._note(table, key, size)

    def written(self) -> None:
        """Note that changed bytes are in the backend: from now on they may be dropped."""
        tables: tuple[Table[Any, Any], ...] = (self.outgoing, self.incoming, self.answers)
        for table in tables:
            for key in table.before:
                content = table.rows[key]
                self._note(table, key, 0 if content is None else _size(content))
            table.before.clear()

    def forget_outgoing(self, message_id: str) -> None:
        """Drop the bytes of a sent message that is finished."""
        self._forget(self.outgoing, message_id)

    def forget_incoming(self, key: IncomingKey) -> None:
        """Drop the bytes of a received message that is finished, and of its answer."""
        self._forget(self.incoming, key)
        self._forget(self.answers, key)

    def bound(self) -> None:
        """Drop the bytes held longest, until the rest fits into BYTES_MAX."""
        while self._total > BYTES_MAX and self._sizes:
            self._forget(*next(iter(self._sizes)))

    def _note(self, table: Table[Any, Any], key: Any, size: int) -> None:
        self._total += size - self._sizes.pop((table, key), 0)
        self._sizes[table, key] = size

    def _forget(self, table: Table[Any, Any], key: Any) -> None:
        self._total -= self._sizes.pop((table, key), 0)
        table.forget(key)


def _size(content: OutgoingBytes | IncomingBytes | AnswerBytes) -> int:
    body = () if content.parcel is None else content.parcel.body
    size = sum([len(part) for part in body if isinstance(part, bytes)])
    if isinstance(content, OutgoingBytes):
        return size + len(content.draft or b"")
    return size + len(content.view or b"") if isinstance(content, IncomingBytes) else size
