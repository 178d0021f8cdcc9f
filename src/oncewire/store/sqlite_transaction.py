"""One transition on SQLite."""

from __future__ import annotations

from collections.abc import Iterable

from oncewire.journal.row import Row
from oncewire.message.instant import Instant
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.terms import Terms
from oncewire.store.schedule import id_of, still_counts
from oncewire.store.sqlite_incoming import IncomingSteps
from oncewire.store.sqlite_outgoing import FROM as FROM_OUTGOING
from oncewire.store.sqlite_outgoing import VALUES as OUTGOING_VALUES
from oncewire.store.sqlite_outgoing import OutgoingSteps
from oncewire.store.sqlite_rows import Values, read_stored_outgoing
from oncewire.store.sqlite_writer import SqliteWriter

_INSERT_ROW = f"INSERT INTO journal_row VALUES ({', '.join('?' * len(Row._fields))})"  # noqa: S608
_MESSAGE = Row._fields.index("message_id")

_OLD_OUTGOING = (
    f"SELECT {OUTGOING_VALUES}, message, keep_until {FROM_OUTGOING} "
    "WHERE keep_until <= ?1 AND (keep_until, position) > (?2, ?3) "
    "AND state IN ('delivered', 'not_delivered', 'unknown', 'sent') "
    "AND notice_owed = 0 AND held = 0 ORDER BY keep_until, position LIMIT ?4"
)
_OLD_INCOMING = (
    "SELECT row, message FROM incoming WHERE keep_until <= ? "
    "AND state IN ('confirmed', 'forwarded', 'refused', 'closed') "
    "AND answer_owed = 0 AND held = 0 ORDER BY keep_until, row LIMIT ?"
)
# A MessageId goes when nothing names it any more.
_FORGET = (
    "DELETE FROM message WHERE id = ?1 "
    "AND NOT EXISTS (SELECT 1 FROM journal_row WHERE message = ?1) "
    "AND NOT EXISTS (SELECT 1 FROM outgoing WHERE message = ?1) "
    "AND NOT EXISTS (SELECT 1 FROM incoming WHERE message = ?1)"
)
_SAME_INCIDENT = (
    "SELECT id FROM incident WHERE resolved_at IS NULL AND message_id IS ? AND channel IS ?"
)


class SqliteTransaction(OutgoingSteps, IncomingSteps):
    """See `contract.Transaction`, whose docstrings hold here."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer
        self._known_outgoing = {}
        self._known_incoming = {}

    # --- journal and terms ---

    def journal(self, rows: Iterable[Row]) -> None:
        writer = self._writer
        for row in rows:
            values = [writer.count("journal"), *row[1:]]
            if row.message_id is not None:
                values[_MESSAGE] = writer.number_of(row.message_id)
            writer.run(_INSERT_ROW, tuple(values))

    def remember_terms(self, terms: Terms) -> bool:
        terms_id = id_of(terms)
        if self._writer.terms(terms_id) is not None:
            return False
        self._writer.remember_terms(terms_id, terms)
        return True

    def terms(self, terms_id: str) -> Terms | None:
        return self._writer.terms(terms_id)

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

    # --- keeping ---

    def sweep(self, now: Instant, limit: int) -> int:
        sent = self._old_outgoing(now, limit)
        received = self._writer.run(_OLD_INCOMING, (now, limit - len(sent)))
        self._writer.run_all("DELETE FROM outgoing WHERE position = ?", ((key,) for key, _ in sent))
        self._writer.run_all("DELETE FROM incoming WHERE row = ?", ((key,) for key, _ in received))
        self._forget(number for _, number in (*sent, *received))
        return len(sent) + len(received)

    def _old_outgoing(self, now: Instant, limit: int) -> list[Values]:
        """(position, message) of those to remove; a channel may still need some of them."""
        writer = self._writer
        found: list[Values] = []
        after = (-1, -1)
        while len(found) < limit:
            rows = writer.run(_OLD_OUTGOING, (now, *after, limit))
            for row in rows:
                number, keep_until = row[-2:]
                stored = read_stored_outgoing(row[:-2])
                outgoing = stored.outgoing
                after = (keep_until, stored.position)
                channel = None if outgoing.channel is None else writer.sending.get(outgoing.channel)
                if not still_counts(outgoing, channel, writer.known_terms(outgoing.terms_id)):
                    found.append((stored.position, number))
            if len(rows) < limit:
                break
        return found[:limit]

    def hold(self, message_id: str, held: bool) -> bool:
        number = self._writer.find_number(message_id)
        known = False
        for table in ("outgoing", "incoming"):
            self._writer.run(f"UPDATE {table} SET held = ? WHERE message = ?", (held, number))  # noqa: S608
            known = bool(self._writer.changed_rows()) or known
        return known

    def trim_journal(self, before: Instant, up_to_seq: int) -> int:
        numbers = self._writer.run(
            "SELECT DISTINCT message FROM journal_row "
            "WHERE at < ? AND seq <= ? AND message IS NOT NULL",
            (before, up_to_seq),
        )
        self._writer.run("DELETE FROM journal_row WHERE at < ? AND seq <= ?", (before, up_to_seq))
        gone = self._writer.changed_rows()
        self._forget(number for (number,) in numbers)
        return gone

    def _forget(self, numbers: Iterable[int]) -> None:
        self._writer.run_all(_FORGET, ((number,) for number in numbers))
        self._writer.forget_numbers()
