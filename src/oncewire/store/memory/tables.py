"""The tables of the store in memory: those of a transition, and what only a backend has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from oncewire.journal.row import Row
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import FINAL_OUTGOING
from oncewire.protocol.terms import Terms
from oncewire.store.records import Refusal, Removed
from oncewire.store.schedule import FINAL_INCOMING
from oncewire.store.transition.indexes import Groups, Sorted
from oncewire.store.transition.rows import (
    AnswerBytes,
    DocumentRow,
    IncomingBytes,
    IncomingKey,
    IncomingRow,
    OutgoingBytes,
    OutgoingRow,
    ReceiptRow,
)
from oncewire.store.transition.tables import (
    Change,
    IncidentTable,
    IncomingTable,
    OutgoingTable,
    Table,
)


class KeptOutgoing(OutgoingTable):
    """Sent messages, also by what lists and the sweep ask for."""

    def __init__(self, log: list[Change]) -> None:
        super().__init__(log)
        self.by_position, self.by_state, self.removable = Sorted(), Groups(), Sorted()
        self._indexes = (*self._indexes, self.by_position, self.by_state, self.removable)

    def _index_keys(self, key: str, row: OutgoingRow) -> tuple[Any, ...]:
        outgoing, position = row.stored.outgoing, row.stored.position
        removable = outgoing.state in FINAL_OUTGOING and not (row.held or outgoing.notice_owed)
        return (
            *super()._index_keys(key, row),
            (position, key),
            (outgoing.state, position, key),
            (row.keep_until, position, key) if removable else None,
        )


class KeptIncoming(IncomingTable):
    """Received messages, also by what lists and the sweep ask for."""

    def __init__(self, log: list[Change]) -> None:
        super().__init__(log)
        self.by_row, self.by_state, self.removable = Sorted(), Groups(), Sorted()
        self._indexes = (*self._indexes, self.by_row, self.by_state, self.removable)

    def _index_keys(self, key: IncomingKey, row: IncomingRow) -> tuple[Any, ...]:
        number, state = row.stored.row, row.stored.incoming.state
        removable = state in FINAL_INCOMING and not (row.held or row.owed)
        return (
            *super()._index_keys(key, row),
            (number, key),
            (state, number, key),
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
    outgoing: KeptOutgoing = field(init=False)
    outgoing_bytes: Table[str, OutgoingBytes] = field(init=False)
    incoming: KeptIncoming = field(init=False)
    incoming_bytes: Table[IncomingKey, IncomingBytes] = field(init=False)
    answers: Table[IncomingKey, AnswerBytes] = field(init=False)
    receipts: Table[str, ReceiptRow] = field(init=False)
    removed: RemovedTable = field(init=False)
    incidents: IncidentTable = field(init=False)
    refusals: Table[tuple[str, str], Refusal] = field(init=False)
    documents: Table[IncomingKey, DocumentRow] = field(init=False)
    counters: Table[str, int] = field(init=False)

    def __post_init__(self) -> None:
        log = self.log
        self.journal, self.terms, self.agreements = JournalTable(log), Table(log), Table(log)
        self.sending, self.receiving = Table(log), Table(log)
        self.outgoing, self.outgoing_bytes = KeptOutgoing(log), Table(log)
        self.incoming, self.incoming_bytes = KeptIncoming(log), Table(log)
        self.answers, self.receipts, self.removed = Table(log), Table(log), RemovedTable(log)
        self.incidents, self.refusals, self.counters = IncidentTable(log), Table(log), Table(log)
        self.documents = Table(log)

    def undo_to(self, mark: int) -> None:
        """Take back every change after the mark, newest first."""
        log = self.log
        while len(log) > mark:
            table, key, old, first = log.pop()
            table.restore(key, old, first)

    def commit(self) -> None:
        """What was done so far stays."""
        for table, key, _, _ in self.log:
            table.before.clear()
            if table.get(key) is None:
                table.forget(key)
        self.log.clear()

    def committed(self) -> Tables:
        """A copy of what is committed; for readers while something is not."""
        copy = Tables()
        for mine, theirs in zip(self._all(), copy._all(), strict=True):
            for key, row in {**mine.rows, **mine.before}.items():
                if row is not None:
                    theirs.learn(key, row)
        return copy

    def _all(self) -> Iterable[Table[Any, Any]]:
        yield from (self.journal, self.terms, self.agreements, self.sending, self.receiving)
        yield from (self.outgoing, self.outgoing_bytes, self.incoming, self.incoming_bytes)
        yield from (self.answers, self.receipts, self.removed, self.incidents, self.refusals)
        yield from (self.counters, self.documents)
