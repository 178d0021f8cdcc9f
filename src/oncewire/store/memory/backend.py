"""The backend in memory: rows in dictionaries."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from oncewire.errors import StoreFull, StoreGone
from oncewire.journal.row import Row
from oncewire.message.instant import Instant
from oncewire.protocol.documents import UNFINISHED
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.terms import Terms
from oncewire.store.memory.steps import MemorySteps
from oncewire.store.memory.tables import Tables
from oncewire.store.records import Incident, Removed
from oncewire.store.transition.backend import COUNTERS, Changes, Values
from oncewire.store.transition.indexes import Groups
from oncewire.store.transition.rows import (
    LIVE_INCOMING,
    LIVE_OUTGOING,
    AnswerBytes,
    DocumentRow,
    IncomingBytes,
    IncomingKey,
    IncomingRow,
    OutgoingBytes,
    OutgoingRow,
)

_OF_INCOMING = frozenset({"answers", "ready", "leases", "held", "parts"})
_UP_TO = frozenset({"due", "expiring", "leases"})
_NOTHING = IncomingBytes(None, None)
_NO_ANSWER = AnswerBytes(None)


class MemoryBackend(MemorySteps):
    """See `transition.backend.Backend`, whose docstrings hold here."""

    def __init__(self, tables: Tables, changing: Callable[[], None]) -> None:
        self.failure: StoreFull | StoreGone | None = None
        self._tables = tables
        # Whom to tell before what is committed changes.
        self._changing = changing
        self._mark = 0

    def changed_elsewhere(self) -> bool:
        return False

    # --- load ---

    def counters(self) -> dict[str, int]:
        return {name: self._tables.counters.get(name) or 0 for name in COUNTERS}

    def terms(self, terms_id: str) -> Terms | None:
        return self._tables.terms.get(terms_id)

    def agreement(self, agreement_id: str) -> str | None:
        return self._tables.agreements.get(agreement_id)

    def sending_channel(self, key: str) -> SendingChannel | None:
        return self._tables.sending.get(key)

    def receiving_channel(self, key: str) -> ReceivingChannel | None:
        return self._tables.receiving.get(key)

    def outgoing(self, message_ids: Sequence[str]) -> list[OutgoingRow]:
        found = map(self._tables.outgoing.get, message_ids)
        return [row for row in found if row is not None]

    def incoming(self, message_ids: Sequence[str]) -> list[IncomingRow]:
        table = self._tables.incoming
        return [table.row(key[-1]) for name in message_ids for key in table.by_id.of(name)]

    def outgoing_bytes(self, message_id: str) -> OutgoingBytes | None:
        return self._tables.outgoing_bytes.get(message_id)

    def incoming_bytes(self, key: IncomingKey) -> tuple[IncomingBytes, AnswerBytes]:
        return self._tables.incoming_bytes.get(key) or _NOTHING, self.answer_bytes(key)

    def answer_bytes(self, key: IncomingKey) -> AnswerBytes:
        return self._tables.answers.get(key) or _NO_ANSWER

    def removed(self, message_ids: Sequence[str]) -> list[Removed]:
        table = self._tables.removed
        return [table.row(key) for name in message_ids for _, key in table.by_id.of(name)]

    def incidents(self) -> list[Incident]:
        found = self._tables.incidents.present()
        return [incident for _, incident in found if incident.resolved_at is None]

    def document(self, key: IncomingKey) -> DocumentRow | None:
        return self._tables.documents.get(key)

    def open_documents(self) -> list[DocumentRow]:
        rows = (row for _, row in self._tables.documents.present())
        return [row for row in rows if row.document.sender and row.document.state in UNFINISHED]

    def gathered(self, sender: str) -> tuple[int, int]:
        sizes = [
            row.document.size for row in self.open_documents() if row.document.sender == sender
        ]
        return len(sizes), sum(sizes)

    # --- scan ---

    def scan(self, index: str, bounds: Values, after: Values | None, limit: int) -> list[Values]:
        table = self._tables.incoming if index in _OF_INCOMING else self._tables.outgoing
        place = getattr(table, index)
        keys: list[Values] = place.of(bounds[0]) if isinstance(place, Groups) else place.keys
        start = 0
        if after is not None:
            start = bisect_right(keys, after, key=lambda key: key[: len(after)])
        end = len(keys)
        if index in _UP_TO:
            end = bisect_right(keys, bounds[0], key=lambda key: key[0])
        if index in ("live", "responses", "leases", "parts"):
            return keys[:end]
        return keys[start : min(end, start + limit)]

    def live(self, limit: int) -> tuple[list[str], list[IncomingKey]]:
        sent, received = self._tables.outgoing, self._tables.incoming
        ours = [key[-1] for state in LIVE_OUTGOING for key in sent.by_state.of(state)]
        ours += [key for _, key in sent.notices.keys]
        theirs = [key[-1] for state in LIVE_INCOMING for key in received.by_state.of(state)]
        theirs += [key for _, key in received.answers.keys]
        return ours[:limit], theirs[:limit]

    def owed(self, now: Instant) -> list[tuple[int, IncomingKey, Instant, str]]:
        table = self._tables.incoming
        found = ((number, key, table.row(key)) for number, key in table.answers.keys)
        states = ((number, key, row.stored.incoming) for number, key, row in found)
        return [
            (number, key, incoming.received_at, incoming.terms_id)
            for number, key, incoming in states
            if incoming.received_at <= now
        ]

    # --- apply ---

    def check(self, added: object, saved: object, journal: object) -> None:
        """Whatever it is, it can be kept."""

    def apply(self, changes: Changes) -> None:
        self._changing()
        tables = self._tables
        for name, value in changes.counters.items():
            tables.counters.put(name, value)
        for values in changes.journal:
            tables.journal.put(values[0], Row(*values))
        for terms_id, terms in changes.terms:
            tables.terms.put(terms_id, terms)
        for agreement_id, text in changes.agreements:
            tables.agreements.put(agreement_id, text)
        for sending in changes.sending:
            tables.sending.put(sending.key, sending)
        for receiving in changes.receiving:
            tables.receiving.put(receiving.key, receiving)
        for _, sent in changes.outgoing:
            tables.outgoing.put(sent.stored.outgoing.message_id, sent)
        for message_id, content in changes.outgoing_bytes.items():
            tables.outgoing_bytes.put(message_id, content)
        for _, received in changes.incoming:
            incoming = received.stored.incoming
            tables.incoming.put((incoming.sender, incoming.message_id), received)
        for key, arrived in changes.incoming_bytes.items():
            tables.incoming_bytes.put(key, arrived)
        for key, answer in changes.answers.items():
            tables.answers.put(key, answer)
        for message_id, proved in changes.receipts.items():
            tables.receipts.put(message_id, proved)
        for _, incident in changes.incidents:
            tables.incidents.put(incident.id, incident)
        for row in changes.documents:
            tables.documents.put(row.document.key, row)

    def commit(self) -> None:
        self._tables.commit()

    def applied(self) -> bool:
        return bool(self._tables.log)

    # --- steps over many rows ---

    def begin_steps(self) -> None:
        self._changing()
        self._mark = len(self._tables.log)

    def keep_steps(self) -> None:
        self._mark = 0

    def undo_steps(self) -> None:
        self._tables.undo_to(self._mark)
