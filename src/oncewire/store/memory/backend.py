"""The backend in memory: rows in dictionaries."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from oncewire.errors import StoreFull, StoreGone
from oncewire.journal.row import Row
from oncewire.message.instant import Duration, Instant
from oncewire.protocol.documents import UNFINISHED
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import FINAL_OUTGOING, IncomingState, Outgoing, OutgoingState
from oncewire.protocol.terms import Terms
from oncewire.store.records import REFUSALS_KEPT, REFUSALS_MAX, Damage, Incident, Refusal, Removed
from oncewire.store.transition.backend import COUNTERS, Changes, Values
from oncewire.store.transition.rows import (
    FINAL_INCOMING,
    LIVE_INCOMING,
    LIVE_OUTGOING,
    AnswerBytes,
    DocumentRow,
    IncomingBytes,
    IncomingKey,
    IncomingRow,
    OutgoingBytes,
    OutgoingRow,
    ReceiptRow,
    WordsRow,
)
from oncewire.store.transition.tables import (
    Change,
    Groups,
    IncidentTable,
    IncomingTable,
    OutgoingTable,
    Sorted,
    Table,
)

# The tables of the store in memory: those of a transition, and what only a backend has.


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
    words: Table[IncomingKey, WordsRow] = field(init=False)
    counters: Table[str, int] = field(init=False)

    def __post_init__(self) -> None:
        log = self.log
        self.journal, self.terms, self.agreements = JournalTable(log), Table(log), Table(log)
        self.sending, self.receiving = Table(log), Table(log)
        self.outgoing, self.outgoing_bytes = KeptOutgoing(log), Table(log)
        self.incoming, self.incoming_bytes = KeptIncoming(log), Table(log)
        self.answers, self.receipts, self.removed = Table(log), Table(log), RemovedTable(log)
        self.incidents, self.refusals, self.counters = IncidentTable(log), Table(log), Table(log)
        self.documents, self.words = Table(log), Table(log)

    def undo_to(self, mark: int) -> None:
        """Take back every change after the mark, newest first."""
        log = self.log
        while len(log) > mark:
            table, key, old, first = log.pop()
            table.restore(key, old, first)

    def commit(self) -> None:
        """Keep the changes so far: they cannot be undone any more."""
        for table, key, _, _ in self.log:
            table.before.clear()
            if table.get(key) is None:
                table.forget(key)
        self.log.clear()

    def committed(self) -> Tables:
        """A copy of what is committed, for readers while there are uncommitted changes."""
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
        yield from (self.counters, self.documents, self.words)


def _held(whole: OutgoingRow | IncomingRow | None) -> bool:
    """Whether a document is under legal hold: then its parts stay."""
    return whole is not None and whole.held


_OF_INCOMING = frozenset({"answers", "ready", "leases", "held", "parts"})
_UP_TO = frozenset({"due", "expiring", "leases"})
_NOTHING = IncomingBytes(None, None)
_NO_ANSWER = AnswerBytes(None)


class MemoryBackend:
    """See `transition.backend.Backend`, whose docstrings hold here."""

    def __init__(self, tables: Tables, changing: Callable[[], None]) -> None:
        self.failure: StoreFull | StoreGone | None = None
        self._tables = tables
        # Whom to tell before what is committed changes.
        self._changing = changing
        self._mark = 0

    def changed_elsewhere(self) -> bool:
        return False

    def begin_turn(self) -> None:
        """Nothing: the tables have one owner."""

    def let_go(self) -> None:
        """Nothing: the tables have one owner."""

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
        """Accept every row: a dictionary can keep any value."""

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
        for key, found_by in changes.words.items():
            tables.words.put(key, found_by)

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

    # --- retention ---

    def sweep(self, still_counts: Callable[[Outgoing], bool], now: Instant, limit: int) -> int:
        sent, received = self._tables.outgoing, self._tables.incoming
        old = [key[-1] for key in sent.removable.up_to(now)]
        rows = ((key, sent.row(key)) for key in old)
        gone = [
            key
            for key, row in rows
            if not (self._waited_for(row) or still_counts(row.stored.outgoing))
        ][:limit]
        for message_id in gone:
            stored = self._tables.outgoing.row(message_id).stored
            self._tables.outgoing.put(message_id, None)
            self._tables.outgoing_bytes.put(message_id, None)
            self._tables.receipts.put(message_id, None)
            self._tables.words.put(("", message_id), None)
            outgoing, sent_at = stored.outgoing, stored.outgoing.first_sent_at
            at = outgoing.submitted_at if sent_at is None else sent_at
            state = outgoing.state.value
            digest = stored.facts.digest
            self._remember(Removed(message_id, None, digest, state, at, now, stored.agreement_id))
        late = [key[-1] for key in received.removable.up_to(now)]
        keys = [key for key in late if not self._asked_for(key)][: limit - len(gone)]
        for key in keys:
            self._remove_incoming(key, now)
        for name, row in self._tables.documents.present():
            over = row.keep_until <= now and row.document.state not in UNFINISHED
            if over and not (_held(received.get(name)) or _held(sent.get(name[1]))):
                self._tables.documents.put(name, None)
        return len(gone) + len(keys)

    def index(self) -> bool:
        """Everything is found as it is."""
        return False

    def _waited_for(self, row: OutgoingRow) -> bool:
        facts = row.stored.facts
        if facts.ref_to is not None and self._tables.incoming.by_id.of(facts.ref_to):
            return True
        is_held = _held(self._tables.outgoing.get(facts.split_id or ""))
        return is_held or self._in_trouble(row.stored.outgoing.message_id)

    def _asked_for(self, key: IncomingKey) -> bool:
        received = self._tables.incoming
        whole = received.get((key[0], received.row(key).stored.facts.split_id or ""))
        return _held(whole) or self._in_trouble(key[1])

    def _in_trouble(self, message_id: str) -> bool:
        return bool(self._tables.incidents.open_by_message.of(message_id))

    def _remove_incoming(self, key: IncomingKey, now: Instant) -> None:
        stored = self._tables.incoming.row(key).stored
        incoming = stored.incoming
        self._tables.incoming.put(key, None)
        self._tables.incoming_bytes.put(key, None)
        self._tables.answers.put(key, None)
        self._tables.words.put(key, None)
        state, at = incoming.state.value, incoming.received_at
        sender, digest = incoming.sender, incoming.digest
        self._remember(
            Removed(incoming.message_id, sender, digest, state, at, now, stored.agreement_id)
        )

    def _remember(self, gone: Removed) -> None:
        if self._tables.journal.by_message.of(gone.message_id):
            self._tables.removed.put((gone.sender or "", gone.message_id), gone)

    def trim_journal(self, before: Instant, up_to_seq: int) -> int:
        journal, removed = self._tables.journal, self._tables.removed
        gone = [seq for (seq,) in journal.by_seq.up_to(up_to_seq) if journal.row(seq).at < before]
        names = {journal.row(seq).message_id for seq in gone}
        for seq in gone:
            journal.put(seq, None)
        for message_id in names:
            if not journal.by_message.of(message_id):
                for _, key in list(removed.by_id.of(message_id)):
                    removed.put(key, None)
        return len(gone)

    # --- refusals ---

    def count_refusals(self, refusals: Iterable[Refusal]) -> None:
        table = self._tables.refusals
        newest = 0
        for refusal in refusals:
            place = (refusal.code, refusal.address)
            if table.get(place) is None and len(table.present()) >= REFUSALS_MAX:
                place = (refusal.code, "")
            before = table.get(place)
            counted = replace(refusal, address=place[1])
            table.put(place, counted if before is None else before + counted)
            newest = max(newest, refusal.last_at)
        for place, known in table.present():
            if known.last_at < newest - REFUSALS_KEPT:
                table.put(place, None)

    # --- time ---

    def shift_timers(self, by: Duration) -> None:
        tables = self._tables
        for key, channel in tables.sending.present():
            if channel.paused_until:
                tables.sending.put(key, replace(channel, paused_until=channel.paused_until + by))
        for message_id, row in tables.outgoing.present():
            outgoing = row.stored.outgoing
            timer = outgoing.next_attempt_at
            if outgoing.state is OutgoingState.OUTSTANDING and timer is not None:
                moved = replace(outgoing, next_attempt_at=timer + by)
                due = None if row.due_at is None else row.due_at + by
                stored = replace(row.stored, outgoing=moved)
                tables.outgoing.put(message_id, row._replace(stored=stored, due_at=due))
        for sender_and_id, arrived in tables.incoming.present():
            incoming = arrived.stored.incoming
            lease = incoming.lease_until
            if incoming.state is IncomingState.HANDED_OVER and lease is not None:
                leased = replace(incoming, lease_until=lease + by)
                again = replace(arrived.stored, incoming=leased)
                tables.incoming.put(sender_and_id, arrived._replace(stored=again))

    # --- damage: nothing here can be changed from elsewhere ---

    def mend(self, message_id: str) -> bool:  # noqa: ARG002
        return False

    def mend_channel(self, key: str) -> bool:  # noqa: ARG002
        return False

    def damaged(self) -> list[Damage]:
        return []
