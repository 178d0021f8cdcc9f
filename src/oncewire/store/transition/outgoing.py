"""Sent messages: the part of a transition that concerns them."""

from __future__ import annotations

from oncewire.errors import InvalidValue, NotAllowed, UnknownMessage
from oncewire.message.instant import Instant
from oncewire.protocol.outgoing import Outgoing
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import OutgoingState
from oncewire.protocol.terms import Terms
from oncewire.store.records import SpoolSlice, StoredOutgoing, StoredParcel, StoredReceipt
from oncewire.store.schedule import (
    due_at,
    expires_at,
    has_entered,
    not_kept,
    outgoing_keep_until,
    sends_from,
)
from oncewire.store.transition.rows import OutgoingBytes, OutgoingRow, ReceiptRow
from oncewire.store.transition.work import Work, not_kept_terms


class OutgoingSteps:
    """See `contract.Transaction`, whose docstrings hold here."""

    __slots__ = ("_work",)
    _work: Work

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

    def _check_agreement(self, agreement_id: str | None) -> None:
        if agreement_id is not None and self.agreement(agreement_id) is None:
            raise not_kept(agreement_id)

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
        """What waits for its next attempt stands with its channel, and goes on with it."""
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
        self._check_agreement(stored.agreement_id)
        terms = self.known_terms(stored.outgoing.terms_id)
        placed = StoredOutgoing(
            stored.outgoing,
            stored.facts,
            stored.peer,
            work.count("outgoing"),
            stored.relayed_from,
            stored.hop,
            stored.agreement_id,
        )
        work.outgoing.put(message_id, self._row(placed, terms, None))
        work.bytes.outgoing.put(message_id, OutgoingBytes(parcel, draft, files))
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
        stored = row.stored
        saved = StoredOutgoing(
            outgoing,
            stored.facts,
            stored.peer,
            stored.position,
            stored.relayed_from,
            stored.hop,
            stored.agreement_id,
        )
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


def unknown(message_id: str) -> UnknownMessage:
    """The error for saving what is not there."""
    return UnknownMessage(f"message {message_id} is not kept here", remedy="add it first")
