"""Steps over many rows in memory: retention, refusals, and a clock that was set."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from oncewire.message.instant import Duration, Instant
from oncewire.protocol.documents import UNFINISHED
from oncewire.protocol.outgoing import Outgoing
from oncewire.protocol.states import IncomingState, OutgoingState
from oncewire.store.memory.tables import Tables
from oncewire.store.records import REFUSALS_KEPT, REFUSALS_MAX, Damage, Refusal, Removed
from oncewire.store.transition.rows import IncomingKey, OutgoingRow


class MemorySteps:
    """See `transition.backend.Backend`, whose docstrings hold here."""

    _tables: Tables

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
            self._remove_outgoing(message_id, now)
        late = [key[-1] for key in received.removable.up_to(now)]
        keys = [key for key in late if not self._in_trouble(key[1])][: limit - len(gone)]
        for key in keys:
            self._remove_incoming(key, now)
        for name, row in self._tables.documents.present():
            if row.keep_until <= now and row.document.state not in UNFINISHED:
                self._tables.documents.put(name, None)
        return len(gone) + len(keys)

    def _waited_for(self, row: OutgoingRow) -> bool:
        ref_to = row.stored.facts.ref_to
        if ref_to is not None and self._tables.incoming.by_id.of(ref_to):
            return True
        return self._in_trouble(row.stored.outgoing.message_id)

    def _in_trouble(self, message_id: str) -> bool:
        return bool(self._tables.incidents.open_by_message.of(message_id))

    def _remove_outgoing(self, message_id: str, now: Instant) -> None:
        stored = self._tables.outgoing.row(message_id).stored
        self._tables.outgoing.put(message_id, None)
        self._tables.outgoing_bytes.put(message_id, None)
        self._tables.receipts.put(message_id, None)
        outgoing, sent_at = stored.outgoing, stored.outgoing.first_sent_at
        at = outgoing.submitted_at if sent_at is None else sent_at
        state = outgoing.state.value
        digest = stored.facts.digest
        self._remember(Removed(message_id, None, digest, state, at, now, stored.agreement_id))

    def _remove_incoming(self, key: IncomingKey, now: Instant) -> None:
        stored = self._tables.incoming.row(key).stored
        incoming = stored.incoming
        self._tables.incoming.put(key, None)
        self._tables.incoming_bytes.put(key, None)
        self._tables.answers.put(key, None)
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
