"""One transition on the tables in memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace

from oncewire.errors import InvalidValue, NotAllowed, UnknownMessage
from oncewire.journal.row import Row
from oncewire.message.instant import Duration, Instant
from oncewire.protocol.incoming import Incoming
from oncewire.protocol.outgoing import Outgoing
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import IncomingState, OutgoingState
from oncewire.protocol.terms import Terms
from oncewire.store.memory.keeping import KeepingSteps
from oncewire.store.memory.tables import IncomingRow, OutgoingRow, Tables, without_bytes
from oncewire.store.records import (
    REFUSALS_KEPT,
    REFUSALS_MAX,
    Damage,
    Incident,
    Refusal,
    StoredAnswer,
    StoredIncoming,
    StoredOutgoing,
    StoredParcel,
)
from oncewire.store.schedule import (
    answer_owed_until,
    due_at,
    expires_at,
    has_entered,
    id_of,
    incoming_keep_until,
    not_kept,
    outgoing_keep_until,
    sends_from,
)


class MemoryTransaction(KeepingSteps):
    """See `contract.Transaction`, whose docstrings hold here."""

    __slots__ = ()

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    # --- journal, terms and agreements ---

    def journal(self, rows: Iterable[Row]) -> None:
        tables = self._tables
        for row in rows:
            seq = tables.count("journal")
            tables.journal.put(seq, Row(seq, *row[1:]))

    def remember_terms(self, terms: Terms) -> bool:
        terms_id = id_of(terms)
        if self._tables.terms.get(terms_id) is not None:
            return False
        self._tables.terms.put(terms_id, terms)
        return True

    def terms(self, terms_id: str) -> Terms | None:
        return self._tables.terms.get(terms_id)

    def remember_agreement(self, agreement_id: str, content: str) -> bool:
        if self._tables.agreements.get(agreement_id) is not None:
            return False
        self._tables.agreements.put(agreement_id, content)
        return True

    def agreement(self, agreement_id: str) -> str | None:
        return self._tables.agreements.get(agreement_id)

    def mend_agreement(self, agreement_id: str, content: str) -> None:
        self._tables.agreements.put(agreement_id, content)

    def _check_agreement(self, agreement_id: str | None) -> None:
        if agreement_id is not None and self.agreement(agreement_id) is None:
            raise not_kept(agreement_id)

    # --- channels ---

    def sending_channel(self, key: str) -> SendingChannel | None:
        return self._tables.sending.get(key)

    def save_sending_channel(self, channel: SendingChannel) -> None:
        tables = self._tables
        before = tables.sending.get(channel.key)
        tables.sending.put(channel.key, channel)
        if sends_from(before) == sends_from(channel):
            return
        for *_, message_id in list(tables.outgoing.live.of(channel.key)):
            row = tables.outgoing.rows[message_id]
            tables.outgoing.put(
                message_id, replace(row, due_at=due_at(row.stored.outgoing, channel))
            )

    def receiving_channel(self, key: str) -> ReceivingChannel | None:
        return self._tables.receiving.get(key)

    def save_receiving_channel(self, channel: ReceivingChannel) -> None:
        self._tables.receiving.put(channel.key, channel)

    # --- outgoing ---

    def add_outgoing(
        self, stored: StoredOutgoing, *, parcel: StoredParcel | None, draft: bytes | None
    ) -> StoredOutgoing:
        if (parcel is None) == (draft is None):
            raise InvalidValue(
                f"message {stored.outgoing.message_id} needs a parcel or a draft",
                remedy="give exactly one of them",
            )
        if self._tables.outgoing.get(stored.outgoing.message_id) is not None:
            raise NotAllowed(
                f"message {stored.outgoing.message_id} was submitted before",
                remedy="use a new MessageId, or ask for the state of the first",
            )
        self._check_agreement(stored.agreement_id)
        stored = replace(stored, position=self._tables.count("outgoing"))
        self._put_outgoing(stored, parcel, draft, None)
        return stored

    def _put_outgoing(
        self,
        stored: StoredOutgoing,
        parcel: StoredParcel | None,
        draft: bytes | None,
        before: OutgoingRow | None,
    ) -> None:
        outgoing = stored.outgoing
        terms = self._known_terms(outgoing.terms_id)
        entered = 0 if before is None else before.entered
        if not entered and has_entered(outgoing):
            entered = self._tables.count("entered")
        row = OutgoingRow(
            stored,
            parcel,
            draft,
            keep_until=outgoing_keep_until(outgoing, terms),
            due_at=due_at(outgoing, self._channel_of(outgoing)),
            expires_at=expires_at(outgoing, terms),
            entered=entered,
            held=before is not None and before.held,
        )
        self._tables.outgoing.put(outgoing.message_id, row)

    def outgoing(self, message_id: str) -> StoredOutgoing | None:
        row = self._tables.outgoing.get(message_id)
        return None if row is None else row.stored

    def outgoing_parcel(self, message_id: str) -> StoredParcel | None:
        row = self._tables.outgoing.get(message_id)
        return None if row is None else row.parcel

    def draft(self, message_id: str) -> bytes | None:
        row = self._tables.outgoing.get(message_id)
        return None if row is None else row.draft

    def save_outgoing(self, outgoing: Outgoing, *, parcel: StoredParcel | None = None) -> None:
        self._known_terms(outgoing.terms_id)
        row = self._tables.outgoing.get(outgoing.message_id)
        if row is None:
            raise _unknown(outgoing.message_id)
        draft = row.draft if parcel is None else None
        stored = replace(row.stored, outgoing=outgoing)
        self._put_outgoing(stored, parcel or row.parcel, draft, row)

    def waiting(self, channel: str, limit: int) -> list[StoredOutgoing]:
        return self._stored(key[-1] for key in self._tables.outgoing.waiting.of(channel)[:limit])

    def live(self, channel: str) -> list[StoredOutgoing]:
        return self._stored(key[-1] for key in self._tables.outgoing.live.of(channel))

    def due(self, now: Instant, limit: int) -> list[str]:
        return [key[-1] for key in self._tables.outgoing.due.up_to(now, limit)]

    def expired(self, now: Instant, limit: int) -> list[str]:
        return [key[-1] for key in self._tables.outgoing.expiring.up_to(now, limit)]

    def notices_owed(self, limit: int, after: int = 0) -> list[StoredOutgoing]:
        return self._tables.outgoing.owed(limit, after)

    def responses_to(self, message_id: str, peer: str) -> list[StoredOutgoing]:
        found = self._tables.outgoing.responses.of((message_id, peer))
        return self._stored(key[-1] for key in found)

    def _stored(self, message_ids: Iterable[str]) -> list[StoredOutgoing]:
        rows = self._tables.outgoing.rows
        return [rows[message_id].stored for message_id in message_ids]

    # --- incoming ---

    def add_incoming(self, stored: StoredIncoming) -> StoredIncoming | None:
        incoming = stored.incoming
        if incoming.state is IncomingState.ARRIVING:
            raise InvalidValue(
                f"message {incoming.message_id} is still arriving",
                remedy="judge it first, then store it in the state it got",
            )
        key = (incoming.sender, incoming.message_id)
        terms = self._known_terms(incoming.terms_id)
        self._check_agreement(stored.agreement_id)
        known = self._tables.incoming.get(key)
        if known is not None:
            return known.stored
        stored = replace(
            stored,
            row=self._tables.count("incoming"),
            position=self._position(incoming, 0),
            answered=stored.answer is not None,
        )
        self._tables.incoming.put(key, IncomingRow(stored, incoming_keep_until(incoming, terms)))
        return None

    def _position(self, incoming: Incoming, before: int) -> int:
        if before or incoming.state is not IncomingState.READY:
            return before
        return self._tables.count("ready")

    def incoming(self, sender: str, message_id: str) -> StoredIncoming | None:
        row = self._tables.incoming.get((sender, message_id))
        return None if row is None else row.stored

    def incoming_by_id(self, message_id: str) -> list[StoredIncoming]:
        rows = self._tables.incoming.rows
        return [rows[key[-1]].stored for key in self._tables.incoming.by_id.of(message_id)]

    def _incoming_row(self, sender: str, message_id: str) -> IncomingRow:
        row = self._tables.incoming.get((sender, message_id))
        if row is None:
            raise _unknown(message_id)
        return row

    def save_incoming(self, incoming: Incoming) -> None:
        terms = self._known_terms(incoming.terms_id)
        row = self._incoming_row(incoming.sender, incoming.message_id)
        position = self._position(incoming, row.stored.position)
        stored = replace(row.stored, incoming=incoming, position=position)
        self._tables.incoming.put(
            (incoming.sender, incoming.message_id),
            IncomingRow(stored, incoming_keep_until(incoming, terms), row.held),
        )

    def save_answer(self, sender: str, message_id: str, answer: StoredAnswer) -> None:
        row = self._incoming_row(sender, message_id)
        stored = replace(row.stored, answer=answer, answered=True)
        self._tables.incoming.put((sender, message_id), replace(row, stored=stored))

    def answer(self, sender: str, message_id: str) -> StoredAnswer | None:
        row = self._tables.incoming.get((sender, message_id))
        return None if row is None else row.stored.answer

    def answer_left(self, sender: str, message_id: str) -> None:
        row = self._tables.incoming.get((sender, message_id))
        if row is not None and row.stored.answer is not None:
            self.save_answer(sender, message_id, row.stored.answer.delivered())

    def answers_owed(self, limit: int, after: int = 0) -> list[StoredIncoming]:
        keys = self._tables.incoming.answers.keys
        start = bisect_left(keys, (after + 1,))
        return self._listed(key for _, key in keys[start : start + limit])

    def answers_overdue(self, now: Instant, limit: int) -> list[StoredIncoming]:
        rows = self._tables.incoming.rows
        owed = (key for _, key in self._tables.incoming.answers.keys)
        late = [key for key in owed if self._answer_is_late(rows[key].stored.incoming, now)]
        return self._listed(late[:limit])

    def _listed(self, keys: Iterable[tuple[str, str]]) -> list[StoredIncoming]:
        rows = self._tables.incoming.rows
        return [without_bytes(rows[key].stored) for key in keys]

    def _answer_is_late(self, incoming: Incoming, now: Instant) -> bool:
        terms = self._known_terms(incoming.terms_id)
        return answer_owed_until(incoming.received_at, terms) <= now

    def ready(self, now: Instant, limit: int) -> list[StoredIncoming]:
        table = self._tables.incoming
        lost = table.leases.up_to(now, len(table.leases.keys))
        found = table.ready.keys[:limit]
        if lost:
            found = sorted([*found, *(key[1:] for key in lost)])[:limit]
        return self._listed(key for _, key in found)

    def held(self, limit: int) -> list[StoredIncoming]:
        table = self._tables.incoming
        found = table.by_state.of(IncomingState.HELD)[:limit]
        return self._listed(key for _, _, key in found)

    # --- damage: nothing here can be changed from elsewhere ---

    def mend(self, message_id: str) -> bool:  # noqa: ARG002
        return False

    def mend_channel(self, key: str) -> bool:  # noqa: ARG002
        return False

    def damaged(self) -> list[Damage]:
        return []

    # --- incidents ---

    def open_incident(
        self, at: Instant, reason: str, message_id: str | None, channel: str | None
    ) -> int:
        table = self._tables.incidents
        for _, number in table.open_by_message.of(message_id):
            if table.rows[number].channel == channel:
                return int(number)
        number = self._tables.count("incidents")
        table.put(number, Incident(number, at, reason, message_id, channel))
        return number

    def resolve_incidents(
        self, at: Instant, message_id: str | None, channel: str | None
    ) -> list[int]:
        table = self._tables.incidents
        of_message = {number for _, number in table.open_by_message.of(message_id)}
        of_channel = {number for _, number in table.open_by_channel.of(channel)}
        if message_id is None and channel is None:
            found = of_message & of_channel
        elif message_id is None:
            found = of_channel
        else:
            found = of_message if channel is None else of_message | of_channel
        for number in found:
            table.put(number, replace(table.rows[number], resolved_at=at))
        return sorted(found)

    def has_incident(self, message_id: str | None, channel: str | None) -> bool:
        table = self._tables.incidents
        return any(
            table.rows[number].channel == channel
            for _, number in table.open_by_message.of(message_id)
        )

    def count_refusals(self, refusals: Iterable[Refusal]) -> None:
        table = self._tables.refusals
        newest = 0
        for refusal in refusals:
            place = (refusal.code, refusal.address)
            if table.get(place) is None and len(table.rows) >= REFUSALS_MAX:
                place = (refusal.code, "")
            before = table.get(place)
            counted = replace(refusal, address=place[1])
            table.put(place, counted if before is None else before + counted)
            newest = max(newest, refusal.last_at)
        for place, known in list(table.rows.items()):
            if known.last_at < newest - REFUSALS_KEPT:
                table.put(place, None)

    # --- time ---

    def shift_timers(self, by: Duration) -> None:
        tables = self._tables
        for key, channel in list(tables.sending.rows.items()):
            if channel.paused_until:
                tables.sending.put(key, replace(channel, paused_until=channel.paused_until + by))
        for message_id, row in list(tables.outgoing.rows.items()):
            outgoing = row.stored.outgoing
            timer = outgoing.next_attempt_at
            if outgoing.state is OutgoingState.OUTSTANDING and timer is not None:
                moved = replace(outgoing, next_attempt_at=timer + by)
                due = None if row.due_at is None else row.due_at + by
                tables.outgoing.put(
                    message_id, replace(row, stored=replace(row.stored, outgoing=moved), due_at=due)
                )
        for sender_and_id, arrived in list(tables.incoming.rows.items()):
            incoming = arrived.stored.incoming
            lease = incoming.lease_until
            if incoming.state is IncomingState.HANDED_OVER and lease is not None:
                leased = replace(incoming, lease_until=lease + by)
                tables.incoming.put(
                    sender_and_id, replace(arrived, stored=replace(arrived.stored, incoming=leased))
                )


def _unknown(message_id: str) -> UnknownMessage:
    return UnknownMessage(f"message {message_id} is not kept here", remedy="add it first")
