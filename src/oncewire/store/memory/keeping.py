"""Retention on the tables in memory: removing messages, or holding them."""

from __future__ import annotations

from dataclasses import replace

from oncewire.errors import NotAllowed
from oncewire.message.instant import Instant
from oncewire.protocol.outgoing import Outgoing
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.terms import Terms
from oncewire.store.memory.tables import IncomingKey, OutgoingRow, Tables
from oncewire.store.records import Removed
from oncewire.store.schedule import still_counts


class KeepingSteps:
    """See `contract.Transaction`, whose docstrings hold here."""

    __slots__ = ("_tables",)
    _tables: Tables

    def _known_terms(self, terms_id: str) -> Terms:
        terms = self._tables.terms.get(terms_id)
        if terms is None:
            raise NotAllowed(
                f"terms {terms_id} are not kept here", remedy="call remember_terms first"
            )
        return terms

    def _channel_of(self, outgoing: Outgoing) -> SendingChannel | None:
        return None if outgoing.channel is None else self._tables.sending.get(outgoing.channel)

    def sweep(self, now: Instant, limit: int) -> int:
        sent, received = self._tables.outgoing, self._tables.incoming
        old = sent.removable.up_to(now, len(sent.rows))
        gone = [key[-1] for key in old if not self._waited_for(sent.rows[key[-1]])][:limit]
        for message_id in gone:
            self._remove_outgoing(message_id, now)
        old = received.removable.up_to(now, len(received.rows))
        keys = [key[-1] for key in old if not self._in_trouble(key[-1][1])][: limit - len(gone)]
        for key in keys:
            self._remove_incoming(key, now)
        return len(gone) + len(keys)

    def _waited_for(self, row: OutgoingRow) -> bool:
        outgoing, ref_to = row.stored.outgoing, row.stored.facts.ref_to
        if ref_to is not None and self._tables.incoming.by_id.of(ref_to):
            return True
        if self._in_trouble(outgoing.message_id):
            return True
        terms = self._known_terms(outgoing.terms_id)
        return still_counts(outgoing, self._channel_of(outgoing), terms)

    def _in_trouble(self, message_id: str) -> bool:
        return bool(self._tables.incidents.open_by_message.of(message_id))

    def _remove_outgoing(self, message_id: str, now: Instant) -> None:
        table = self._tables.outgoing
        stored = table.rows[message_id].stored
        table.put(message_id, None)
        outgoing, sent_at = stored.outgoing, stored.outgoing.first_sent_at
        at = outgoing.submitted_at if sent_at is None else sent_at
        state = outgoing.state.value
        digest = stored.facts.digest
        self._remember(Removed(message_id, None, digest, state, at, now, stored.agreement_id))

    def _remove_incoming(self, key: IncomingKey, now: Instant) -> None:
        table = self._tables.incoming
        stored = table.rows[key].stored
        incoming = stored.incoming
        table.put(key, None)
        state, at = incoming.state.value, incoming.received_at
        sender, digest = incoming.sender, incoming.digest
        self._remember(
            Removed(incoming.message_id, sender, digest, state, at, now, stored.agreement_id)
        )

    def _remember(self, gone: Removed) -> None:
        if self._tables.journal.by_message.of(gone.message_id):
            self._tables.removed.put((gone.sender or "", gone.message_id), gone)

    def removed(self, message_id: str) -> list[Removed]:
        table = self._tables.removed
        return [table.rows[key] for _, key in table.by_id.of(message_id)]

    def hold(self, message_id: str, held: bool) -> bool:
        tables = self._tables
        keys = [key[-1] for key in tables.incoming.by_id.of(message_id)]
        for key in keys:
            tables.incoming.put(key, replace(tables.incoming.rows[key], held=held))
        row = tables.outgoing.get(message_id)
        if row is not None:
            tables.outgoing.put(message_id, replace(row, held=held))
        return row is not None or bool(keys)

    def trim_journal(self, before: Instant, up_to_seq: int) -> int:
        journal, removed = self._tables.journal, self._tables.removed
        gone = [
            seq
            for (seq,) in journal.by_seq.up_to(up_to_seq, len(journal.rows))
            if journal.rows[seq].at < before
        ]
        names = {journal.rows[seq].message_id for seq in gone}
        for seq in gone:
            journal.put(seq, None)
        for message_id in names:
            if not journal.by_message.of(message_id):
                for _, key in list(removed.by_id.of(message_id)):
                    removed.put(key, None)
        return len(gone)
