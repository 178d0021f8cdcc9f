"""One transition on what a turn has in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from oncewire.errors import InvalidValue, NotAllowed, StoreDamaged, UnknownMessage
from oncewire.journal.row import Row
from oncewire.message.instant import Duration, Instant
from oncewire.protocol.documents import UNFINISHED, SplitDocument
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import Incoming, IncomingState, Outgoing, OutgoingState
from oncewire.protocol.terms import Terms
from oncewire.store.records import (
    Damage,
    Incident,
    Refusal,
    Removed,
    SpoolSlice,
    StoredAnswer,
    StoredIncoming,
    StoredOutgoing,
    StoredParcel,
    StoredReceipt,
    Word,
)
from oncewire.store.search import kept_words
from oncewire.store.transition.backend import FOR_EVER
from oncewire.store.transition.rows import (
    AnswerBytes,
    AnswerHead,
    DocumentRow,
    IncomingBytes,
    IncomingKey,
    IncomingRow,
    OutgoingBytes,
    OutgoingRow,
    ReceiptRow,
    WordsRow,
    answer_owed_until,
    document_keep_until,
    due_at,
    expires_at,
    has_entered,
    incoming_keep_until,
    not_kept,
    outgoing_keep_until,
    sends_from,
    still_counts,
    whole,
)
from oncewire.store.transition.work import UnitOfWork, not_kept_terms


class WorkTransaction:
    """See `contract.Transaction`, whose docstrings hold here."""

    __slots__ = ("_work",)

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def expect(self, message_ids: Sequence[str]) -> None:
        work = self._work
        work.load_outgoing(message_ids)
        work.load_incoming(message_ids)
        work.load_removed(message_ids)

    # --- journal, terms and agreements ---

    def journal(self, rows: Iterable[Row]) -> None:
        work = self._work
        number = work.counters["journal"]
        for row in rows:
            number += 1
            work.journal.append((number, *row[1:]))
        work.counters["journal"] = number

    def remember_terms(self, terms: Terms) -> bool:
        terms_id = terms.terms_id
        try:
            known = self.terms(terms_id) is not None
        except StoreDamaged:
            # They are mended, but they are not new.
            self._work.terms.put(terms_id, terms)
            return False
        if not known:
            self._work.terms.put(terms_id, terms)
        return not known

    def remember_agreement(self, agreement_id: str, content: str) -> bool:
        if self.agreement(agreement_id) is not None:
            return False
        self._work.agreements.put(agreement_id, content)
        return True

    def mend_agreement(self, agreement_id: str, content: str) -> None:
        if self.agreement(agreement_id) is not None:
            self._work.agreements.put(agreement_id, content)

    # --- what a message is filed under ---

    def terms(self, terms_id: str) -> Terms | None:
        work = self._work
        if terms_id in work.terms.rows:
            return work.terms.rows[terms_id]
        return work.look_up(work.terms, terms_id, work.backend.terms)

    def known_terms(self, terms_id: str) -> Terms:
        """Terms that a message is filed under."""
        terms = self.terms(terms_id)
        if terms is None:
            raise not_kept_terms(terms_id)
        return terms

    def agreement(self, agreement_id: str) -> str | None:
        work = self._work
        if agreement_id in work.agreements.rows:
            return work.agreements.rows[agreement_id]
        return work.look_up(work.agreements, agreement_id, work.backend.agreement)

    # --- channels ---

    def sending_channel(self, key: str) -> SendingChannel | None:
        work = self._work
        if key in work.sending.rows:
            return work.sending.rows[key]
        return work.look_up(work.sending, key, work.backend.sending_channel)

    def save_sending_channel(self, channel: SendingChannel) -> None:
        before = self.sending_channel(channel.key)
        self._work.sending.put(channel.key, channel)
        if sends_from(before) != sends_from(channel):
            self._refile(channel)

    def _refile(self, channel: SendingChannel) -> None:
        """Update when messages of a channel are due, after it was stopped or resumed."""
        work = self._work
        work.fill_outgoing("live", (channel.key,))
        for *_, message_id in list(work.outgoing.live.of(channel.key)):
            row = work.outgoing.row(message_id)
            due = due_at(row.stored.outgoing, channel)
            work.outgoing.put(message_id, row._replace(due_at=due))

    def channel_of(self, outgoing: Outgoing) -> SendingChannel | None:
        """The channel a message runs on, if it has one."""
        return None if outgoing.channel is None else self.sending_channel(outgoing.channel)

    # --- one message ---

    def add_outgoing(
        self,
        stored: StoredOutgoing,
        *,
        parcel: StoredParcel | None,
        draft: bytes | None,
        files: tuple[SpoolSlice, ...] = (),
        words: tuple[Word, ...] = (),
    ) -> StoredOutgoing:
        work, message_id = self._work, stored.outgoing.message_id
        if (parcel is None) == (draft is None):
            raise InvalidValue(
                f"message {message_id} needs a parcel or a draft", remedy="give exactly one of them"
            )
        if work.sent(message_id) is not None:
            raise NotAllowed(
                f"message {message_id} was submitted before",
                remedy="use a new MessageId, or ask for the state of the first",
            )
        if stored.agreement_id is not None and self.agreement(stored.agreement_id) is None:
            raise not_kept(stored.agreement_id)
        terms = self.known_terms(stored.outgoing.terms_id)
        placed = replace(stored, position=work.count("outgoing"), damage="")
        work.outgoing.put(message_id, self._row(placed, terms, None))
        work.bytes.outgoing.put(message_id, OutgoingBytes(parcel, draft, files))
        if words:
            work.words.put(("", message_id), WordsRow(placed.position, kept_words(words)))
        return placed

    def _row(self, stored: StoredOutgoing, terms: Terms, before: OutgoingRow | None) -> OutgoingRow:
        outgoing = stored.outgoing
        entered = 0 if before is None else before.entered
        if not entered and has_entered(outgoing):
            entered = self._work.count("entered")
        due = None
        if outgoing.state is OutgoingState.OUTSTANDING:
            due = due_at(outgoing, self.channel_of(outgoing))
        return OutgoingRow(
            stored,
            outgoing_keep_until(outgoing, terms),
            due,
            expires_at(outgoing, terms),
            entered,
            before is not None and before.held,
        )

    def outgoing(self, message_id: str) -> StoredOutgoing | None:
        rows = self._work.outgoing.rows
        row = rows[message_id] if message_id in rows else self._work.sent(message_id)
        if row is None:
            return None
        if row.problem is not None:
            raise row.problem
        return row.stored

    def outgoing_parcel(self, message_id: str) -> StoredParcel | None:
        content = self._outgoing_bytes(message_id)
        return None if content is None else content.parcel

    def draft(self, message_id: str) -> bytes | None:
        content = self._outgoing_bytes(message_id)
        return None if content is None else content.draft

    def _outgoing_bytes(self, message_id: str) -> OutgoingBytes | None:
        work = self._work
        held = work.bytes.outgoing.get(message_id)
        if held is None and work.sent(message_id) is not None:
            held = work.backend.outgoing_bytes(message_id)
            if held is not None:
                work.bytes.learn(work.bytes.outgoing, message_id, held)
        return held

    def save_outgoing(self, outgoing: Outgoing, *, parcel: StoredParcel | None = None) -> None:
        work, message_id = self._work, outgoing.message_id
        terms = self.known_terms(outgoing.terms_id)
        rows = work.outgoing.rows
        row = rows[message_id] if message_id in rows else work.sent(message_id)
        if row is None:
            raise unknown(message_id)
        if row.problem is not None:
            raise row.problem
        saved = replace(row.stored, outgoing=outgoing)
        work.outgoing.put(message_id, self._row(saved, terms, row))
        if parcel is not None:
            work.bytes.outgoing.put(message_id, OutgoingBytes(parcel, None))

    def keep_receipt(self, message_id: str, receipt: StoredReceipt) -> None:
        row = self._work.sent(message_id)
        if row is None:
            raise unknown(message_id)
        if row.problem is not None:
            raise row.problem
        self._work.receipts.put(message_id, ReceiptRow(row.stored.position, receipt))

    # --- lists ---

    def waiting(self, channel: str, limit: int) -> list[StoredOutgoing]:
        self._work.fill_outgoing("waiting", (channel,), limit)
        return self._stored(self._work.outgoing.waiting.of(channel)[:limit])

    def live(self, channel: str) -> list[StoredOutgoing]:
        self._work.fill_outgoing("live", (channel,))
        return self._stored(self._work.outgoing.live.of(channel))

    def due(self, now: Instant, limit: int) -> list[str]:
        self._work.fill_outgoing("due", (now,), limit)
        return [key[-1] for key in self._work.outgoing.due.up_to(now, limit)]

    def expired(self, now: Instant, limit: int) -> list[str]:
        self._work.fill_outgoing("expiring", (now,), limit)
        return [key[-1] for key in self._work.outgoing.expiring.up_to(now, limit)]

    def notices_owed(self, limit: int, after: int = 0) -> list[StoredOutgoing]:
        self._work.fill_outgoing("notices", (), limit, after)
        return self._stored(self._work.outgoing.notices.after(after, limit))

    def responses_to(self, message_id: str, peer: str) -> list[StoredOutgoing]:
        self._work.fill_outgoing("responses", ((message_id, peer),))
        return self._stored(self._work.outgoing.responses.of((message_id, peer)))

    def _stored(self, keys: list[tuple[object, ...]]) -> list[StoredOutgoing]:
        row = self._work.outgoing.row
        return [row(str(key[-1])).stored for key in keys]

    # --- received messages ---

    def receiving_channel(self, key: str) -> ReceivingChannel | None:
        work = self._work
        if key in work.receiving.rows:
            return work.receiving.rows[key]
        return work.look_up(work.receiving, key, work.backend.receiving_channel)

    def save_receiving_channel(self, channel: ReceivingChannel) -> None:
        self.receiving_channel(channel.key)
        self._work.receiving.put(channel.key, channel)

    # --- one message ---

    def add_incoming(
        self, stored: StoredIncoming, words: tuple[Word, ...] = ()
    ) -> StoredIncoming | None:
        work, incoming, answer = self._work, stored.incoming, stored.answer
        if incoming.state is IncomingState.ARRIVING:
            raise InvalidValue(
                f"message {incoming.message_id} is still arriving",
                remedy="judge it first, then store it in the state it got",
            )
        terms = self.known_terms(incoming.terms_id)
        if stored.agreement_id is not None and self.agreement(stored.agreement_id) is None:
            raise not_kept(stored.agreement_id)
        key = (incoming.sender, incoming.message_id)
        if work.received(key) is not None:
            return self.incoming(*key)
        number = work.count("incoming")
        placed = replace(
            stored,
            position=self._position(incoming, stored.position),
            row=number,
            parcel=None,
            answer=None,
            view=None,
            answered=stored.answered or answer is not None,
        )
        head = None if answer is None else AnswerHead(answer.answer_id, answer.kind, answer.owed)
        keep_until = incoming_keep_until(incoming, terms)
        work.incoming.put(key, IncomingRow(placed, head, keep_until))
        work.bytes.incoming.put(key, IncomingBytes(stored.parcel, stored.view))
        work.bytes.answers.put(key, AnswerBytes(None if answer is None else answer.parcel))
        if words:
            work.words.put(key, WordsRow(number, kept_words(words)))
        return None

    def _position(self, incoming: Incoming, before: int) -> int:
        if before or incoming.state is not IncomingState.READY:
            return before
        return self._work.count("ready")

    def incoming(self, sender: str, message_id: str) -> StoredIncoming | None:
        row = self._found(sender, message_id)
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

    def _found(self, sender: str, message_id: str) -> IncomingRow | None:
        rows, key = self._work.incoming.rows, (sender, message_id)
        return rows[key] if key in rows else self._work.received(key)

    def _received(self, sender: str, message_id: str) -> IncomingRow:
        row = self._found(sender, message_id)
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
        position = self._position(incoming, row.stored.position)
        saved = replace(row.stored, incoming=incoming, position=position)
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
        stored = replace(row.stored, answered=True)
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
        late = []
        for number, key in table.answers.keys:
            incoming = table.row(key).stored.incoming
            if self._is_late(incoming.received_at, incoming.terms_id, now):
                late.append((number, key))
        if not self._work.complete:
            beyond = [
                (number, key)
                for number, key, received_at, terms_id in self._work.backend.owed(now)
                if key not in table.rows and self._is_late(received_at, terms_id, now)
            ]
            late = sorted([*late, *beyond])[:limit]
            self._work.load_incoming([key[1] for _, key in late])
        return self._listed(late[:limit])

    def _is_late(self, received_at: Instant, terms_id: str, now: Instant) -> bool:
        try:
            terms = self.known_terms(terms_id)
        except (StoreDamaged, NotAllowed):
            # How long it is owed is not known any more, and owing it does no harm.
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

    # --- documents that travel in parts ---

    def document(self, sender: str, split_id: str) -> SplitDocument | None:
        work, key = self._work, (sender, split_id)
        row = work.look_up(work.documents, key, work.backend.document)
        return None if row is None else row.document

    def save_document(self, document: SplitDocument) -> None:
        terms = self.known_terms(document.terms_id)
        self.document(*document.key)
        row = DocumentRow(document, document_keep_until(document, terms))
        self._work.documents.put(document.key, row)

    def gathered(self, sender: str) -> tuple[int, int]:
        table = self._work.documents
        if sender not in table.gathered:
            table.count_gathered(sender, self._work.backend.gathered(sender))
        return table.gathered[sender]

    def open_documents(self) -> list[SplitDocument]:
        table = self._work.documents
        for row in self._work.backend.open_documents():
            if row.document.key not in table.rows:
                table.learn(row.document.key, row)
        found = [row.document for _, row in table.present()]
        live = [each for each in found if each.sender and each.state in UNFINISHED]
        return sorted(live, key=lambda document: (document.begun_at, document.key))

    # --- incidents ---

    def open_incident(
        self, at: Instant, reason: str, message_id: str | None, channel: str | None
    ) -> int:
        known = self._same(message_id, channel)
        if known is not None:
            return known
        number = self._work.count("incident")
        self._work.incidents.put(number, Incident(number, at, reason, message_id, channel))
        return number

    def _same(self, message_id: str | None, channel: str | None) -> int | None:
        self._work.load_incidents()
        table = self._work.incidents
        for _, number in table.open_by_message.of(message_id):
            if table.row(number).channel == channel:
                return int(number)
        return None

    def resolve_incidents(
        self, at: Instant, message_id: str | None, channel: str | None
    ) -> list[int]:
        self._work.load_incidents()
        table = self._work.incidents
        of_message = {number for _, number in table.open_by_message.of(message_id)}
        of_channel = {number for _, number in table.open_by_channel.of(channel)}
        if message_id is None and channel is None:
            found = of_message & of_channel
        elif message_id is None:
            found = of_channel
        else:
            found = of_message if channel is None else of_message | of_channel
        for number in found:
            table.put(number, replace(table.row(number), resolved_at=at))
        return sorted(found)

    def has_incident(self, message_id: str | None, channel: str | None) -> bool:
        return self._same(message_id, channel) is not None

    # --- single messages ---

    def removed(self, message_id: str) -> list[Removed]:
        work = self._work
        if message_id not in work.removed:
            work.load_removed((message_id,))
        return list(work.removed[message_id])

    def on_hold(self, message_id: str) -> bool:
        sent, received = self._work.sent(message_id), self._work.received_as(message_id)
        return (sent is not None and sent.held) or any(row.held for row in received)

    def hold(self, message_id: str, held: bool) -> bool:
        work = self._work
        received = work.received_as(message_id)
        for row in received:
            incoming = row.stored.incoming
            work.incoming.put((incoming.sender, message_id), row._replace(held=held))
        sent = work.sent(message_id)
        if sent is not None:
            work.outgoing.put(message_id, sent._replace(held=held))
        return sent is not None or bool(received)

    # --- steps over many rows ---

    def shift_timers(self, by: Duration) -> None:
        self._work.step_over().shift_timers(by)
        self._work.clear_rows()

    def sweep(self, now: Instant, limit: int) -> int:
        gone = self._work.step_over().sweep(self._still_counts, now, limit)
        if gone:
            self._work.clear_rows()
        for key in list(self._work.documents.rows):
            self._work.documents.forget(key)
        return gone

    def index(self) -> bool:
        return self._work.step_over().index()

    def _still_counts(self, outgoing: Outgoing) -> bool:
        try:
            terms = self.known_terms(outgoing.terms_id)
            return still_counts(outgoing, self.channel_of(outgoing), terms)
        except (StoreDamaged, NotAllowed):
            # Without its terms that cannot be decided, so it stays.
            return True

    def trim_journal(self, before: Instant, up_to_seq: int) -> int:
        gone = self._work.step_over().trim_journal(before, up_to_seq)
        self._work.clear_rows()
        return gone

    def count_refusals(self, refusals: Iterable[Refusal]) -> None:
        self._work.step_over().count_refusals(refusals)

    def mend(self, message_id: str) -> bool:
        mended = self._work.step_over().mend(message_id)
        if mended:
            self._work.clear_rows()
        return mended

    def mend_channel(self, key: str) -> bool:
        mended = self._work.step_over().mend_channel(key)
        if mended:
            self._work.clear_rows()
        return mended

    def damaged(self) -> list[Damage]:
        return self._work.step_over().damaged()


def unknown(message_id: str) -> UnknownMessage:
    """The error for saving what is not there."""
    return UnknownMessage(f"message {message_id} is not kept here", remedy="add it first")
