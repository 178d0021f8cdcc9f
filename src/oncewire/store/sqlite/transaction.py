"""One transition on SQLite."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from oncewire.errors import StoreDamaged
from oncewire.journal.row import Row
from oncewire.message.instant import Duration, Instant
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.terms import Terms
from oncewire.store.records import REFUSALS_KEPT, REFUSALS_MAX, Refusal
from oncewire.store.schedule import id_of
from oncewire.store.sqlite.keeping import KeepingSteps
from oncewire.store.sqlite.mending import MendingSteps
from oncewire.store.sqlite.writer import SqliteWriter

_INSERT_ROW = f"INSERT INTO journal_row VALUES ({', '.join('?' * len(Row._fields))})"  # noqa: S608
_MESSAGE = Row._fields.index("message_id")

_SAME_INCIDENT = (
    "SELECT id FROM incident WHERE resolved_at IS NULL AND message_id IS ? AND channel IS ?"
)

_COUNT_REFUSAL = (
    "INSERT INTO refusal (code, address, count, first_at, last_at, problem, message_id) "
    "SELECT ?1, CASE WHEN EXISTS (SELECT 1 FROM refusal WHERE code = ?1 AND address = ?2) "
    "OR (SELECT count(*) FROM refusal) < ?8 THEN ?2 ELSE '' END, ?3, ?4, ?5, ?6, ?7 "
    "WHERE true ON CONFLICT (code, address) DO UPDATE SET count = count + excluded.count, "
    "last_at = excluded.last_at, problem = excluded.problem, message_id = excluded.message_id"
)

_PAUSED = "SELECT key FROM sending_channel WHERE paused_until <> 0"
_SHIFT_ATTEMPTS = (
    "UPDATE outgoing SET next_attempt_at = next_attempt_at + ?1, due_at = due_at + ?1 "
    "WHERE state = 'outstanding' AND next_attempt_at IS NOT NULL"
)
_SHIFT_LEASES = (
    "UPDATE incoming SET lease_until = lease_until + ? "
    "WHERE state = 'handed_over' AND lease_until IS NOT NULL"
)


class SqliteTransaction(MendingSteps, KeepingSteps):
    """See `contract.Transaction`, whose docstrings hold here."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer
        self._known_outgoing = {}
        self._known_incoming = {}

    # --- journal, terms and agreements ---

    def journal(self, rows: Iterable[Row]) -> None:
        writer = self._writer
        for row in rows:
            values = [writer.count("journal"), *row[1:]]
            if row.message_id is not None:
                values[_MESSAGE] = writer.number_of(row.message_id)
            writer.run(_INSERT_ROW, tuple(values))

    def remember_terms(self, terms: Terms) -> bool:
        terms_id = id_of(terms)
        try:
            known = self._writer.terms(terms_id) is not None
        except StoreDamaged:
            # They are mended, but they are not new.
            self._writer.remember_terms(terms_id, terms)
            return False
        if not known:
            self._writer.remember_terms(terms_id, terms)
        return not known

    def terms(self, terms_id: str) -> Terms | None:
        return self._writer.terms(terms_id)

    def remember_agreement(self, agreement_id: str, content: str) -> bool:
        if self._writer.keeps_agreement(agreement_id):
            return False
        self._writer.remember_agreement(agreement_id, content)
        return True

    def agreement(self, agreement_id: str) -> str | None:
        return self._writer.agreement(agreement_id)

    def mend_agreement(self, agreement_id: str, content: str) -> None:
        self._writer.run(
            "UPDATE agreement SET content = ? WHERE agreement_id = ?", (content, agreement_id)
        )

    # --- channels ---

    def sending_channel(self, key: str) -> SendingChannel | None:
        return self._writer.sending.get(key)

    def save_sending_channel(self, channel: SendingChannel) -> None:
        before = self._writer.sending.save(channel)
        self._channel_changed(before, channel)

    def receiving_channel(self, key: str) -> ReceivingChannel | None:
        return self._writer.receiving.get(key)

    def save_receiving_channel(self, channel: ReceivingChannel) -> None:
        self._writer.receiving.save(channel)

    # --- incidents ---

    def open_incident(
        self, at: Instant, reason: str, message_id: str | None, channel: str | None
    ) -> int:
        writer = self._writer
        found = writer.run(_SAME_INCIDENT, (message_id, channel))
        if found:
            return int(found[0][0])
        number = writer.count("incident")
        writer.run(
            "INSERT INTO incident VALUES (?, ?, ?, ?, ?, NULL)",
            (number, at, reason, message_id, channel),
        )
        return number

    def resolve_incidents(
        self, at: Instant, message_id: str | None, channel: str | None
    ) -> list[int]:
        found: set[int] = set()
        if message_id is None and channel is None:
            found.update(row[0] for row in self._writer.run(_SAME_INCIDENT, (None, None)))
        for name, value in (("message_id", message_id), ("channel", channel)):
            if value is not None:
                rows = self._writer.run(
                    f"SELECT id FROM incident WHERE resolved_at IS NULL AND {name} = ?",  # noqa: S608
                    (value,),
                )
                found.update(row[0] for row in rows)
        for number in found:
            self._writer.run("UPDATE incident SET resolved_at = ? WHERE id = ?", (at, number))
        return sorted(found)

    def has_incident(self, message_id: str | None, channel: str | None) -> bool:
        return bool(self._writer.run(_SAME_INCIDENT, (message_id, channel)))

    def count_refusals(self, refusals: Iterable[Refusal]) -> None:
        writer = self._writer
        newest = 0
        for refusal in refusals:
            rest = (
                refusal.count,
                refusal.first_at,
                refusal.last_at,
                refusal.problem,
                refusal.message_id,
            )
            writer.run(_COUNT_REFUSAL, (refusal.code, refusal.address, *rest, REFUSALS_MAX))
            newest = max(newest, refusal.last_at)
        writer.run("DELETE FROM refusal WHERE last_at < ?", (newest - REFUSALS_KEPT,))

    # --- time ---

    def shift_timers(self, by: Duration) -> None:
        writer = self._writer
        for statement in (_SHIFT_ATTEMPTS, _SHIFT_LEASES):
            writer.run(statement, (by,))
        self._known_outgoing.clear()
        self._known_incoming.clear()
        paused = {row[0] for row in writer.run(_PAUSED)} | writer.sending.unwritten
        for key in sorted(paused):
            channel = writer.sending.get(key)
            if channel is not None and channel.paused_until:
                # What is due was moved above, with this pause.
                writer.sending.save(replace(channel, paused_until=channel.paused_until + by))
