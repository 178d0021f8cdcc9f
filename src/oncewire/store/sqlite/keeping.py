"""Retention on SQLite: the part of a transition that removes messages, or holds them."""

from __future__ import annotations

from collections.abc import Iterable

from oncewire.errors import NotAllowed, StoreDamaged
from oncewire.message.instant import Instant
from oncewire.protocol.outgoing import Outgoing
from oncewire.store.records import Removed
from oncewire.store.schedule import still_counts
from oncewire.store.sqlite.incoming import FROM as FROM_INCOMING
from oncewire.store.sqlite.outgoing import FROM as FROM_OUTGOING
from oncewire.store.sqlite.outgoing import VALUES as OUTGOING_VALUES
from oncewire.store.sqlite.rows import Values, list_outgoing
from oncewire.store.sqlite.writer import SqliteWriter

_NO_INCIDENT = (
    "AND NOT EXISTS (SELECT 1 FROM incident "
    "WHERE resolved_at IS NULL AND incident.message_id = message.message_id) "
)
# The conditions on state, notice, answer and hold repeat those of the partial indexes.
_OLD_OUTGOING = (
    f"SELECT {OUTGOING_VALUES}, message, keep_until {FROM_OUTGOING} "  # noqa: S608
    "WHERE keep_until <= ?1 AND (keep_until, position) > (?2, ?3) "
    "AND state IN ('delivered', 'not_delivered', 'unknown', 'sent') "
    f"AND notice_owed = 0 AND held = 0 {_NO_INCIDENT}"
    "AND (ref_to IS NULL OR NOT EXISTS (SELECT 1 FROM message AS asked "
    "JOIN incoming ON incoming.message = asked.id WHERE asked.message_id = outgoing.ref_to)) "
    "ORDER BY keep_until, position LIMIT ?4"
)
_OLD_INCOMING = (
    f"SELECT row, message, sender, digest, state, received_at, agreement_id {FROM_INCOMING} "
    "WHERE keep_until <= ? AND state IN ('confirmed', 'forwarded', 'refused', 'closed') "
    f"AND answer_owed = 0 AND held = 0 {_NO_INCIDENT} ORDER BY keep_until, row LIMIT ?"
)
_REMEMBER = (
    "INSERT OR REPLACE INTO removed "
    "(message, sender, digest, state, at, agreement_id, removed_at) "
    "SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE EXISTS (SELECT 1 FROM journal_row WHERE message = ?1)"
)
_UNREMEMBER = (
    "DELETE FROM removed WHERE message = ?1 "
    "AND NOT EXISTS (SELECT 1 FROM journal_row WHERE message = ?1)"
)
# A MessageId goes when nothing names it any more.
_FORGET = (
    "DELETE FROM message WHERE id = ?1 "
    "AND NOT EXISTS (SELECT 1 FROM journal_row WHERE message = ?1) "
    "AND NOT EXISTS (SELECT 1 FROM outgoing WHERE message = ?1) "
    "AND NOT EXISTS (SELECT 1 FROM incoming WHERE message = ?1)"
)
REMOVED = (
    "SELECT message_id, sender, digest, state, at, removed_at, agreement_id "
    "FROM removed JOIN message ON message.id = removed.message "
    "WHERE message_id = ? ORDER BY sender"
)
"""What `read_removed` reads."""


def read_removed(row: Values) -> Removed:
    """From the columns of REMOVED."""
    message_id, sender, *rest = row
    return Removed(message_id, sender or None, *rest)


class KeepingSteps:
    """See `contract.Transaction`, whose docstrings hold here."""

    _writer: SqliteWriter

    def sweep(self, now: Instant, limit: int) -> int:
        writer = self._writer
        sent = self._old_outgoing(now, limit)
        received = writer.run(_OLD_INCOMING, (now, limit - len(sent)))
        if not sent and not received:
            return 0
        writer.run_all("DELETE FROM outgoing WHERE position = ?", ((row[0],) for row in sent))
        writer.run_all("DELETE FROM incoming WHERE row = ?", ((row[0],) for row in received))
        gone = [row[1:] for row in (*sent, *received)]
        writer.run_all(_REMEMBER, ((*values, now) for values in gone))
        self._forget(values[0] for values in gone)
        return len(gone)

    def _old_outgoing(self, now: Instant, limit: int) -> list[Values]:
        """(position, message, '', digest, state, at, agreement) of those to remove; a channel
        may still need some of them."""
        writer = self._writer
        found: list[Values] = []
        after = (-1, -1)
        while len(found) < limit:
            rows = writer.run(_OLD_OUTGOING, (now, *after, limit))
            for row in rows:
                number, keep_until = row[-2:]
                (stored,) = list_outgoing([row[:-2]])
                outgoing = stored.outgoing
                after = (keep_until, stored.position)
                if not stored.damage and not self._still_counts(outgoing):
                    sent_at = outgoing.first_sent_at
                    at = outgoing.submitted_at if sent_at is None else sent_at
                    kept = (number, "", stored.facts.digest, outgoing.state, at)
                    found.append((stored.position, *kept, stored.agreement_id))
            if len(rows) < limit:
                break
        return found[:limit]

    def _still_counts(self, outgoing: Outgoing) -> bool:
        writer = self._writer
        try:
            channel = None if outgoing.channel is None else writer.sending.get(outgoing.channel)
            return still_counts(outgoing, channel, writer.known_terms(outgoing.terms_id))
        except (StoreDamaged, NotAllowed):
            # Nobody can tell, so it stays.
            return True

    def removed(self, message_id: str) -> list[Removed]:
        # Of an id that nobody has named yet nothing can be known: most arrivals end here.
        if self._writer.find_number(message_id) is None:
            return []
        return [read_removed(row) for row in self._writer.run(REMOVED, (message_id,))]

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
        self._writer.run_all(_UNREMEMBER, numbers)
        self._forget(number for (number,) in numbers)
        return gone

    def _forget(self, numbers: Iterable[int]) -> None:
        self._writer.run_all(_FORGET, ((number,) for number in numbers))
        self._writer.forget_numbers()
