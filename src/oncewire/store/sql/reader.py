"""Queries: what a view of committed state answers."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Generic, TypeVar

from oncewire.errors import StoreDamaged, StoreGone
from oncewire.journal.row import COLUMNS, Row
from oncewire.message.envelope import TRIAL_MARK, TRIAL_SERVICE
from oncewire.message.instant import Instant
from oncewire.protocol.documents import SplitDocument
from oncewire.protocol.notes import Kind
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import IncomingState, OutgoingState
from oncewire.protocol.terms import Terms
from oncewire.store.records import (
    Incident,
    JournalSpan,
    Refusal,
    Removed,
    StoredIncoming,
    StoredOutgoing,
    StoredParcel,
    StoredReceipt,
    Unsettled,
)
from oncewire.store.search import MARKED, Found, Mark, Place, Search, Tally
from oncewire.store.sql.rows import (
    DOCUMENTS,
    FROM_INCOMING,
    FROM_OUTGOING,
    INCIDENT,
    INCOMING_VALUES,
    OUTGOING_VALUES,
    PARCEL,
    RECEIVING,
    REFUSAL,
    REMOVED,
    SENDING,
    TERMS,
    WHOLE_INCOMING,
    list_incoming,
    list_outgoing,
    read_document,
    read_parcel,
    read_receiving,
    read_removed,
    read_sending,
    read_terms,
    spool_names,
    whole,
)
from oncewire.store.sql.search_index import RECEIVED, SENT, Finding, Run
from oncewire.store.sql.session import Dialect, Values
from oncewire.store.transition.rows import LIVE_OUTGOING, STORED_INCOMING

T = TypeVar("T")
C = TypeVar("C")

READERS = 8
"""How many views may be open at once; more wait for their turn."""

_ROW = ", ".join(COLUMNS)
_NEWEST_HEAD = "SELECT journal + 1, head FROM counter"
_SPAN = (
    "SELECT coalesce((SELECT seq FROM journal ORDER BY seq LIMIT 1), 0), "
    "coalesce((SELECT seq FROM journal ORDER BY seq DESC LIMIT 1), 0), "
    "coalesce((SELECT seq FROM journal_row WHERE since IS NOT NULL ORDER BY seq LIMIT 1), 0), "
    "(SELECT count(*) FROM journal WHERE seq > ? AND seq <= ?)"
)
_SEQS = "SELECT seq FROM journal_row WHERE message = (SELECT id FROM message WHERE message_id = ?)"
_MARKS = (
    "SELECT kind, count(*), min(at), max(at) FROM (SELECT kind, at FROM journal_row WHERE message "
    "= (SELECT id FROM message WHERE message_id = ?) LIMIT ?) AS rows_of_it GROUP BY kind"
)
_SENDING = f"SELECT {', '.join(SENDING)} FROM sending_channel"  # noqa: S608
_RECEIVING = f"SELECT {RECEIVING.text} FROM receiving_channel"  # noqa: S608
_PARCEL = (
    f"SELECT {', '.join(PARCEL)} FROM outgoing_bytes JOIN outgoing USING (position) "  # noqa: S608
    "JOIN message ON message.id = outgoing.message WHERE message_id = ?"
)
_RECEIPT = (
    f"SELECT receipt_id, received_at, {', '.join(PARCEL)} FROM receipt "  # noqa: S608
    "JOIN outgoing USING (position) JOIN message ON message.id = outgoing.message "
    "WHERE message_id = ?"
)
_OWED = (
    f"SELECT {OUTGOING_VALUES} {FROM_OUTGOING} "
    "WHERE notice_owed = 1 AND position > ? ORDER BY position LIMIT ?"
)
_ON_HOLD = (
    "WITH meant AS (SELECT id FROM message WHERE message_id = ?) SELECT "
    "EXISTS (SELECT 1 FROM outgoing WHERE message = (SELECT id FROM meant) AND held = 1) "
    "OR EXISTS (SELECT 1 FROM incoming WHERE message = (SELECT id FROM meant) AND held = 1)"
)
_TRIALS = (
    "SELECT state, count(*) FROM message JOIN {0} ON {0}.message = message.id "  # noqa: S608
    f"WHERE message_id >= '{TRIAL_MARK}' AND message_id < '{TRIAL_MARK}~' GROUP BY state"
)
"""Trials by state; they are few, and the index of ids finds them."""
_REFUSED_IDS = (
    "SELECT message_id FROM (SELECT id, message_id FROM message ORDER BY id DESC LIMIT ?) newest "  # noqa: S608
    f"WHERE instr(message_id, ?) > 0 AND instr(message_id, '{TRIAL_MARK}') <> 1 AND EXISTS "
    f"(SELECT 1 FROM journal_row WHERE message = newest.id AND kind = '{Kind.REFUSED.value}') "
    "ORDER BY newest.id DESC"
)
"""Ids are numbered by arrival; only ids that contain the text are looked up in the journal."""
_PARTS = {
    "outgoing": "SELECT state, count(*) FROM outgoing "
    "WHERE split_number IS NOT NULL AND relayed_from IS NULL GROUP BY state",
    "incoming": "SELECT state, count(*) FROM incoming "
    "WHERE split_number IS NOT NULL AND state = 'confirmed' GROUP BY state "
    "UNION ALL SELECT state, count(*) FROM incoming "
    "WHERE split_number IS NOT NULL AND state = 'gathered' GROUP BY state",
}
"""Parts whose document is counted, or will be; each query has an index of its own."""
LAYOUTS = (
    "SELECT layout FROM outgoing_bytes WHERE layout IS NOT NULL "
    "UNION ALL SELECT layout FROM incoming_bytes WHERE layout IS NOT NULL "
    "UNION ALL SELECT answer_layout FROM incoming_bytes WHERE answer_layout IS NOT NULL "
    "UNION ALL SELECT layout FROM receipt WHERE layout IS NOT NULL"
)
"""Layouts of all stored bodies: they name the files of the spool."""


_OLDEST = (
    "SELECT peer, channel, submitted_at FROM outgoing WHERE state = ? ORDER BY position LIMIT ?"
)
"""The index of states has the positions of each in order."""


class SqlReader:
    """See `contract.Reader`, whose docstrings hold here. `run` runs a statement on its view."""

    def __init__(self, run: Run, dialect: Dialect) -> None:
        self._run, self._dialect = run, dialect

    def journal_since(self, seq: int, limit: int) -> list[Row]:
        statement = f"SELECT {_ROW} FROM journal WHERE seq > ? ORDER BY seq LIMIT ?"  # noqa: S608
        return [Row(*row) for row in self._run(statement, (seq, limit))]

    def journal_heads(self, seq: int, limit: int) -> dict[int, bytes]:
        statement = "SELECT seq, since FROM journal_row WHERE seq > ? ORDER BY seq LIMIT ?"
        heads = [*self._run(statement, (seq, limit)), *self._run(_NEWEST_HEAD, ())]
        return {number: bytes(head) for number, head in heads if head is not None}

    def journal_span(self, after: int, through: int) -> JournalSpan:
        return JournalSpan(*self._run(_SPAN, (after, through))[0])

    def journal_of(self, message_id: str) -> list[Row]:
        statement = f"SELECT {_ROW} FROM journal WHERE message_id = ? ORDER BY seq"  # noqa: S608
        return [Row(*row) for row in self._run(statement, (message_id,))]

    def journal_ends(self, message_id: str, most: int) -> tuple[list[Row], int]:
        # Of a message with many copies the index alone is gone through.
        seqs = sorted(seq for (seq,) in self._run(_SEQS, (message_id,)))
        between = max(0, len(seqs) - 2 * most)
        kept = seqs[:most] + seqs[most + between :]
        numbers = self._dialect.numbers
        statement = f"SELECT {_ROW} FROM journal WHERE seq {numbers} ORDER BY seq"  # noqa: S608
        return [Row(*row) for row in self._run(statement, (json.dumps(kept),))], between

    def journal_marks(self, message_id: str) -> dict[str, Mark]:
        return {kind: Mark(*values) for kind, *values in self._run(_MARKS, (message_id, MARKED))}

    def terms(self, terms_id: str) -> Terms | None:
        rows = self._run(TERMS, (terms_id,))
        return read_terms(terms_id, str(rows[0][0])) if rows else None

    def agreement(self, agreement_id: str) -> str | None:
        select = "SELECT content FROM agreement WHERE agreement_id = ?"
        rows = self._run(select, (agreement_id,))
        return str(rows[0][0]) if rows else None

    def outgoing(self, message_id: str) -> StoredOutgoing | None:
        select = f"SELECT {OUTGOING_VALUES} {FROM_OUTGOING} WHERE message_id = ?"
        rows = self._run(select, (message_id,))
        found = list_outgoing(rows)
        return found[0] if found else None

    def outgoing_parcel(self, message_id: str) -> StoredParcel | None:
        rows = self._run(_PARCEL, (message_id,))
        with whole(message_id):
            return read_parcel(rows[0]) if rows else None

    def receipt(self, message_id: str) -> StoredReceipt | None:
        for receipt_id, received_at, *columns in self._run(_RECEIPT, (message_id,)):
            with whole(message_id):
                parcel = read_parcel(tuple(columns))
                return None if parcel is None else StoredReceipt(receipt_id, received_at, parcel)
        return None

    def incoming(self, message_id: str) -> list[StoredIncoming]:
        tail = "WHERE message_id = ? ORDER BY incoming.row"
        try:
            return list_incoming(self._run(WHOLE_INCOMING + tail, (message_id,)))
        except StoreDamaged:
            # Its bytes are damaged; its state can still be shown.
            select = f"SELECT {INCOMING_VALUES} {FROM_INCOMING}"
            return list_incoming(self._run(select + tail, (message_id,)))

    def document(self, sender: str, split_id: str) -> SplitDocument | None:
        rows = self._run(f"{DOCUMENTS} WHERE sender = ? AND split_id = ?", (sender, split_id))
        return read_document(rows[0][:-1]) if rows else None

    def on_hold(self, message_id: str) -> bool:
        return bool(self._run(_ON_HOLD, (message_id,))[0][0])

    def notices_owed(self, limit: int, after: int = 0) -> list[StoredOutgoing]:
        return list_outgoing(self._run(_OWED, (after, limit)))

    def removed(self, message_id: str) -> list[Removed]:
        tail = "WHERE message_id = ? ORDER BY sender"
        return [read_removed(row) for row in self._run(REMOVED + tail, (message_id,))]

    def last_removal(self) -> Instant | None:
        found = self._run("SELECT max(removed_at) FROM removed", ())[0][0]
        return None if found is None else int(found)

    def last_seq(self) -> int:
        return int(self._run("SELECT journal FROM counter", ())[0][0])

    def outgoing_list(
        self, *, states: Sequence[OutgoingState] = (), limit: int = 100, before: int | None = None
    ) -> list[StoredOutgoing]:
        select = f"SELECT {OUTGOING_VALUES} {FROM_OUTGOING}"
        rows = self._newest(select, "position", states, limit, before)
        return list_outgoing(rows)

    def incoming_list(
        self, *, states: Sequence[IncomingState] = (), limit: int = 100, before: int | None = None
    ) -> list[StoredIncoming]:
        select = f"SELECT {INCOMING_VALUES} {FROM_INCOMING}"
        rows = self._newest(select, "row", states, limit, before)
        return list_incoming(rows)

    def _newest(
        self, select: str, key: str, states: Sequence[StrEnum], limit: int, before: int | None
    ) -> list[Values]:
        """Newest rows of the states; each state is read by its index, so rare ones come quickly."""
        end = 2**63 - 1 if before is None else before
        tail = f"{key} < ? AND service <> '{TRIAL_SERVICE}' ORDER BY {key} DESC LIMIT ?"
        if not states:
            return self._run(f"{select} WHERE {tail}", (end, limit))
        chosen = sorted(set(states))
        part = f"SELECT * FROM ({select} WHERE state = ? AND {tail}) AS part"  # noqa: S608
        parts = " UNION ALL ".join(part for _ in chosen)
        values = [value for state in chosen for value in (state, end, limit)]
        statement = f"SELECT * FROM ({parts}) AS parts ORDER BY {key} DESC LIMIT ?"  # noqa: S608
        return self._run(statement, (*values, limit))

    def oldest_unsettled(self, limit: int) -> list[Unsettled]:
        return [
            Unsettled(str(peer), channel, state, int(submitted_at))
            for state in LIVE_OUTGOING
            for peer, channel, submitted_at in self._run(_OLDEST, (state.value, limit))
        ]

    def find_sent(
        self, search: Search, limit: int, after: Place | None = None
    ) -> Found[StoredOutgoing]:
        rows, on = Finding(self._run, self._dialect, SENT, search).page(limit, after)
        return Found(tuple(list_outgoing(rows)), on)

    def find_received(
        self, search: Search, limit: int, after: Place | None = None
    ) -> Found[StoredIncoming]:
        rows, on = Finding(self._run, self._dialect, RECEIVED, search).page(limit, after)
        return Found(tuple(list_incoming(rows)), on)

    def count_sent(self, search: Search, most: int) -> Tally:
        return Finding(self._run, self._dialect, SENT, search).tally(most)

    def count_received(self, search: Search, most: int) -> Tally:
        return Finding(self._run, self._dialect, RECEIVED, search).tally(most)

    def counts(self) -> dict[str, int]:
        counts = {f"out.{state.value}": 0 for state in OutgoingState}
        counts.update({f"in.{state.value}": 0 for state in STORED_INCOMING})
        for prefix, table in (("out", "outgoing"), ("in", "incoming")):
            statement = f"SELECT state, count(*) FROM {table} GROUP BY state"  # noqa: S608
            counts.update(
                {f"{prefix}.{state}": number for state, number in self._run(statement, ())}
            )
            for state, number in self._run(_TRIALS.format(table), ()):
                counts[f"{prefix}.{state}"] -= number
        for name, number in self.parts_counted().items():
            counts[name] -= number
        return counts

    def parts_counted(self) -> dict[str, int]:
        return {
            f"{prefix}.{state}": int(str(number))
            for prefix, table in (("out", "outgoing"), ("in", "incoming"))
            for state, number in self._run(_PARTS[table], ())
        }

    def incidents(self, *, open_only: bool = True) -> list[Incident]:
        # By the sum: in the order of ids SQLite would pass over every incident that is resolved.
        end = "WHERE resolved_at IS NULL ORDER BY id + 0" if open_only else "ORDER BY id"
        statement = f"SELECT {INCIDENT.text} FROM incident {end}"  # noqa: S608
        return [Incident(*row) for row in self._run(statement, ())]

    def refusals(self, limit: int = 100) -> list[Refusal]:
        statement = (
            f"SELECT {REFUSAL.text} "  # noqa: S608
            "FROM refusal ORDER BY last_at DESC, code, address LIMIT ?"
        )
        return [Refusal(*row) for row in self._run(statement, (limit,))]

    def refused_ids(self, part: str, limit: int) -> list[str]:
        return [str(row[0]) for row in self._run(_REFUSED_IDS, (limit, part))]

    def channels(self, limit: int = 2**62) -> tuple[list[SendingChannel], list[ReceivingChannel]]:
        tail = " ORDER BY key LIMIT ?"
        return (
            list(_readable(read_sending, self._run(_SENDING + tail, (limit,)))),
            list(_readable(read_receiving, self._run(_RECEIVING + tail, (limit,)))),
        )

    def sending_channel(self, key: str) -> SendingChannel | None:
        found = self._run(f"{_SENDING} WHERE key = ?", (key,))
        return next(_readable(read_sending, found), None)

    def receiving_channel(self, key: str) -> ReceivingChannel | None:
        found = self._run(f"{_RECEIVING} WHERE key = ?", (key,))
        return next(_readable(read_receiving, found), None)

    def spooled(self) -> set[str]:
        names: set[str] = set()
        for (layout,) in self._run(LAYOUTS, ()):
            names |= spool_names(layout)
        return names


def _readable(read: Callable[[Values], T], rows: Iterable[Values]) -> Iterator[T]:
    """The rows that can be read; a damaged one hides no other, and an incident names it."""
    for row in rows:
        with suppress(StoreDamaged):
            yield read(row)


class Readers(ABC, Generic[C]):
    """Views of one store, each on a connection of its own."""

    def __init__(self, where: str, wait_seconds: float) -> None:
        self._where, self._wait_seconds = where, wait_seconds
        self._idle: list[C] = []
        self._turns = threading.BoundedSemaphore(READERS)
        self._closed = False

    @abstractmethod
    def _begin(self) -> C:
        """A connection, idle or new, with a view that has begun."""

    @abstractmethod
    def _view(self, connection: C) -> SqlReader: ...

    @abstractmethod
    def _end(self, connection: C) -> bool:
        """End its view; False: the connection is of no use any more."""

    @abstractmethod
    def _disconnect(self, connection: C) -> None: ...

    @contextmanager
    def reader(self) -> Iterator[SqlReader]:
        """A consistent view of committed state."""
        if not self._turns.acquire(timeout=self._wait_seconds):
            raise StoreGone(
                f"{READERS} views of {self._where} are open",
                remedy="close one of them; a view is for one short question",
            )
        try:
            connection = self._begin()
            try:
                yield self._view(connection)
            finally:
                if self._end(connection) and not self._closed:
                    self._idle.append(connection)
                else:
                    self._disconnect(connection)
        finally:
            self._turns.release()

    def close(self) -> None:
        """Close every connection, those in use as soon as their view ends."""
        self._closed = True
        while self._idle:
            self._disconnect(self._idle.pop())
