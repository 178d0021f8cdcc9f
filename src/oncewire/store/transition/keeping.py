"""Incidents, retention and repair: the part of a transition that is rarely needed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from oncewire.errors import NotAllowed, StoreDamaged
from oncewire.message.instant import Duration, Instant
from oncewire.protocol.outgoing import Outgoing
from oncewire.store.records import Damage, Incident, Refusal, Removed
from oncewire.store.schedule import still_counts
from oncewire.store.transition.documents import DocumentSteps


class KeepingSteps(DocumentSteps):
    """See `contract.Transaction`, whose docstrings hold here."""

    __slots__ = ()

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

    def _still_counts(self, outgoing: Outgoing) -> bool:
        try:
            terms = self.known_terms(outgoing.terms_id)
            return still_counts(outgoing, self.channel_of(outgoing), terms)
        except (StoreDamaged, NotAllowed):
            # Nobody can tell, so it stays.
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
