"""Received messages: the part of a transition that concerns them."""

from __future__ import annotations

from oncewire.errors import InvalidValue, NotAllowed, StoreDamaged
from oncewire.message.instant import Instant
from oncewire.protocol.incoming import Incoming
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.states import IncomingState
from oncewire.store.records import StoredAnswer, StoredIncoming
from oncewire.store.schedule import answer_owed_until, incoming_keep_until
from oncewire.store.transition.backend import FOR_EVER
from oncewire.store.transition.outgoing import OutgoingSteps, unknown
from oncewire.store.transition.rows import (
    AnswerBytes,
    AnswerHead,
    IncomingBytes,
    IncomingKey,
    IncomingRow,
    listed,
    whole,
)


class IncomingSteps(OutgoingSteps):
    """See `contract.Transaction`, whose docstrings hold here."""

    __slots__ = ()

    def receiving_channel(self, key: str) -> ReceivingChannel | None:
        work = self._work
        if key in work.receiving.rows:
            return work.receiving.rows[key]
        return work.look_up(work.receiving, key, work.backend.receiving_channel)

    def save_receiving_channel(self, channel: ReceivingChannel) -> None:
        self.receiving_channel(channel.key)
        self._work.receiving.put(channel.key, channel)

    # --- one message ---

    def add_incoming(self, stored: StoredIncoming) -> StoredIncoming | None:
        work, incoming, answer = self._work, stored.incoming, stored.answer
        if incoming.state is IncomingState.ARRIVING:
            raise InvalidValue(
                f"message {incoming.message_id} is still arriving",
                remedy="judge it first, then store it in the state it got",
            )
        terms = self.known_terms(incoming.terms_id)
        self._check_agreement(stored.agreement_id)
        key = (incoming.sender, incoming.message_id)
        if work.received(key) is not None:
            return self.incoming(*key)
        number = work.count("incoming")
        placed = listed(stored, position=self._position(incoming, stored.position), row=number)
        head = None if answer is None else AnswerHead(answer.answer_id, answer.kind, answer.owed)
        keep_until = incoming_keep_until(incoming, terms)
        work.incoming.put(key, IncomingRow(placed, head, keep_until))
        work.bytes.incoming.put(key, IncomingBytes(stored.parcel, stored.view))
        work.bytes.answers.put(key, AnswerBytes(None if answer is None else answer.parcel))
        return None

    def _position(self, incoming: Incoming, before: int) -> int:
        if before or incoming.state is not IncomingState.READY:
            return before
        return self._work.count("ready")

    def incoming(self, sender: str, message_id: str) -> StoredIncoming | None:
        rows, key = self._work.incoming.rows, (sender, message_id)
        row = rows[key] if key in rows else self._work.received(key)
        return None if row is None else self._whole(row)

    def incoming_by_id(self, message_id: str) -> list[StoredIncoming]:
        return [self._whole(row) for row in self._work.received_as(message_id)]

    def _whole(self, row: IncomingRow) -> StoredIncoming:
        if row.problem is not None:
            raise row.problem
        work, incoming = self._work, row.stored.incoming
        key = (incoming.sender, incoming.message_id)
        content, answer = work.bytes.incoming.get(key), work.bytes.answers.get(key)
        if content is None or answer is None:
            read, answered = work.backend.incoming_bytes(key)
            if content is None:
                content = read
                work.bytes.learn(work.bytes.incoming, key, read)
            if answer is None:
                answer = answered
                work.bytes.learn(work.bytes.answers, key, answered)
        return whole(row, content, answer)

    def _received(self, sender: str, message_id: str) -> IncomingRow:
        rows, key = self._work.incoming.rows, (sender, message_id)
        row = rows[key] if key in rows else self._work.received(key)
        if row is None:
            raise unknown(message_id)
        return row

    def take_place(self) -> int:
        return self._work.count("ready")

    def save_incoming(self, incoming: Incoming, *, forget: bool = False) -> None:
        terms = self.known_terms(incoming.terms_id)
        row = self._received(incoming.sender, incoming.message_id)
        if row.problem is not None:
            raise row.problem
        stored = row.stored
        saved = StoredIncoming(
            incoming,
            stored.facts,
            stored.peer,
            stored.transport,
            None,
            None,
            self._position(incoming, stored.position),
            stored.hop,
            stored.row,
            stored.agreement_id,
            None,
            stored.answered,
        )
        self._work.incoming.put(
            (incoming.sender, incoming.message_id),
            IncomingRow(saved, row.answer, incoming_keep_until(incoming, terms), row.held),
        )
        if forget:
            key = (incoming.sender, incoming.message_id)
            self._work.bytes.incoming.put(key, IncomingBytes(None, None))

    # --- answers ---

    def save_answer(self, sender: str, message_id: str, answer: StoredAnswer) -> None:
        work, key = self._work, (sender, message_id)
        row = self._received(sender, message_id)
        head = AnswerHead(answer.answer_id, answer.kind, answer.owed)
        self._put_answer(key, row, head)
        held = work.bytes.answers.get(key)
        if held is None or held.parcel != answer.parcel:
            work.bytes.answers.put(key, AnswerBytes(answer.parcel))

    def _put_answer(self, key: IncomingKey, row: IncomingRow, head: AnswerHead) -> None:
        stored = listed(row.stored)
        if not stored.answered:
            stored = StoredIncoming(
                stored.incoming,
                stored.facts,
                stored.peer,
                stored.transport,
                None,
                None,
                stored.position,
                stored.hop,
                stored.row,
                stored.agreement_id,
                None,
                True,
            )
        self._work.incoming.put(key, row._replace(stored=stored, answer=head))

    def answer(self, sender: str, message_id: str) -> StoredAnswer | None:
        work, key = self._work, (sender, message_id)
        row = work.received(key)
        if row is None or row.answer is None:
            return None
        held = work.bytes.answers.get(key)
        if held is None:
            held = work.backend.answer_bytes(key)
            work.bytes.learn(work.bytes.answers, key, held)
        if held.problem is not None:
            raise held.problem
        if held.parcel is None:
            return None
        return StoredAnswer(row.answer.answer_id, row.answer.kind, held.parcel, row.answer.owed)

    def answer_left(self, sender: str, message_id: str) -> None:
        row = self._work.received((sender, message_id))
        if row is not None and row.owed and row.answer is not None:
            self._put_answer((sender, message_id), row, row.answer._replace(owed=False))

    # --- lists ---

    def answers_owed(self, limit: int, after: int = 0) -> list[StoredIncoming]:
        self._work.fill_incoming("answers", (), limit, after)
        return self._listed(self._work.incoming.answers.after(after, limit))

    def answers_overdue(self, now: Instant, limit: int) -> list[StoredIncoming]:
        table = self._work.incoming
        late = [
            (number, key)
            for number, key in table.answers.keys
            if self._is_overdue(table.row(key).stored.incoming, now)
        ]
        if not self._work.complete:
            beyond = [
                (number, key)
                for number, key, received_at, terms_id in self._work.backend.owed(now)
                if key not in table.rows and self._is_late(received_at, terms_id, now)
            ]
            late = sorted([*late, *beyond])[:limit]
            self._work.load_incoming([key[1] for _, key in late])
        return self._listed(late[:limit])

    def _is_overdue(self, incoming: Incoming, now: Instant) -> bool:
        return self._is_late(incoming.received_at, incoming.terms_id, now)

    def _is_late(self, received_at: Instant, terms_id: str, now: Instant) -> bool:
        try:
            terms = self.known_terms(terms_id)
        except (StoreDamaged, NotAllowed):
            # How long it is owed is not known any more, and it harms nobody to owe it.
            return False
        return answer_owed_until(received_at, terms) <= now

    def ready(self, now: Instant, limit: int) -> list[StoredIncoming]:
        table = self._work.incoming
        self._work.fill_incoming("ready", (), limit)
        self._work.fill_incoming("leases", (now,))
        found = table.ready.keys[:limit]
        lost = table.leases.up_to(now)
        if lost:
            found = sorted([*found, *(key[1:] for key in lost)])[:limit]
        return self._listed(found)

    def given(self, now: Instant) -> list[StoredIncoming]:
        table = self._work.incoming
        self._work.fill_incoming("leases", (FOR_EVER,))
        return self._listed([key[1:] for key in table.leases.beyond(now)])

    def parts(self, sender: str, split_id: str) -> list[StoredIncoming]:
        self._work.fill_incoming("parts", ((sender, split_id),))
        row = self._work.incoming.row
        found = self._work.incoming.parts.of((sender, split_id))
        return [row(key).stored for _, _, key in found]

    def held(self, limit: int) -> list[StoredIncoming]:
        self._work.fill_incoming("held", (), limit)
        return self._listed(self._work.incoming.held.keys[:limit])

    def _listed(self, keys: list[tuple[int, IncomingKey]]) -> list[StoredIncoming]:
        row = self._work.incoming.row
        return [row(key).stored for _, key in keys]
