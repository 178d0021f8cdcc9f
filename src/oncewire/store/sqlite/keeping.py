"""Steps over many rows on SQLite: retention, refusals, and a clock that was set."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from oncewire.message.instant import Duration, Instant
from oncewire.protocol.outgoing import Outgoing
from oncewire.store.records import REFUSALS_KEPT, REFUSALS_MAX, Refusal
from oncewire.store.sqlite.loading import FROM_INCOMING, FROM_OUTGOING, OUTGOING_VALUES
from oncewire.store.sqlite.numbers import Numbers
from oncewire.store.sqlite.rows import Values, list_outgoing
from oncewire.store.sqlite.statements import Statements

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
_FORGET_DOCUMENTS = (
    "DELETE FROM document WHERE keep_until <= ? AND state NOT IN ('open', 'joining')"
)
_COUNT_REFUSAL = (
    "INSERT INTO refusal (code, address, count, first_at, last_at, problem, message_id) "
    "SELECT ?1, CASE WHEN EXISTS (SELECT 1 FROM refusal WHERE code = ?1 AND address = ?2) "
    "OR (SELECT count(*) FROM refusal) < ?8 THEN ?2 ELSE '' END, ?3, ?4, ?5, ?6, ?7 "
    "WHERE true ON CONFLICT (code, address) DO UPDATE SET count = count + excluded.count, "
    "last_at = excluded.last_at, problem = excluded.problem, message_id = excluded.message_id"
)

_SHIFT_ATTEMPTS = (
    "UPDATE outgoing SET next_attempt_at = next_attempt_at + ?1, due_at = due_at + ?1 "
    "WHERE state = 'outstanding' AND next_attempt_at IS NOT NULL"
)
_SHIFT_LEASES = (
    "UPDATE incoming SET lease_until = lease_until + ? "
    "WHERE state = 'handed_over' AND lease_until IS NOT NULL"
)
# What is due is moved with these pauses.
_SHIFT_PAUSES = "UPDATE sending_channel SET paused_until = paused_until + ? WHERE paused_until <> 0"


class Keeping(Statements):
    """See `transition.backend.Backend`, whose docstrings hold here."""

    _numbers: Numbers

    def sweep(self, still_counts: Callable[[Outgoing], bool], now: Instant, limit: int) -> int:
        sent = self._old_outgoing(still_counts, now, limit)
        received = self.run(_OLD_INCOMING, (now, limit - len(sent)))
        self.run(_FORGET_DOCUMENTS, (now,))
        if not sent and not received:
            return 0
        self.run_batches(
            [
                ("DELETE FROM outgoing WHERE position = ?", [(row[0],) for row in sent]),
                ("DELETE FROM incoming WHERE row = ?", [(row[0],) for row in received]),
            ]
        )
        gone = [row[1:] for row in (*sent, *received)]
        self.run_batches([(_REMEMBER, [(*values, now) for values in gone])])
        self._forget(values[0] for values in gone)
        return len(gone)

    def _old_outgoing(
        self, still_counts: Callable[[Outgoing], bool], now: Instant, limit: int
    ) -> list[Values]:
        """(position, message, '', digest, state, at, agreement) of those to remove; a channel
        may still need some of them."""
        found: list[Values] = []
        after = (-1, -1)
        while len(found) < limit:
            rows = self.run(_OLD_OUTGOING, (now, *after, limit))
            for row in rows:
                number, keep_until = row[-2:]
                (stored,) = list_outgoing([row[:-2]])
                outgoing = stored.outgoing
                after = (keep_until, stored.position)
                if not stored.damage and not still_counts(outgoing):
                    sent_at = outgoing.first_sent_at
                    at = outgoing.submitted_at if sent_at is None else sent_at
                    kept = (number, "", stored.facts.digest, outgoing.state, at)
                    found.append((stored.position, *kept, stored.agreement_id))
            if len(rows) < limit:
                break
        return found[:limit]

    def trim_journal(self, before: Instant, up_to_seq: int) -> int:
        bounds = (before, up_to_seq)
        numbers = self.run(
            "SELECT DISTINCT message FROM journal_row "
            "WHERE at < ? AND seq <= ? AND message IS NOT NULL",
            bounds,
        )
        self.run("DELETE FROM journal_row WHERE at < ? AND seq <= ?", bounds)
        gone = self.changed_rows()
        self.run_batches([(_UNREMEMBER, numbers)])
        self._forget(number for (number,) in numbers)
        return gone

    def _forget(self, numbers: Iterable[int]) -> None:
        self.run_batches([(_FORGET, [(number,) for number in numbers])])
        self._numbers.forget()

    # --- refusals ---

    def count_refusals(self, refusals: Iterable[Refusal]) -> None:
        counted = [
            (
                *(one.code, one.address, one.count, one.first_at, one.last_at),
                *(one.problem, one.message_id, REFUSALS_MAX),
            )
            for one in refusals
        ]
        self.run_batches([(_COUNT_REFUSAL, counted)])
        newest = max((values[4] for values in counted), default=0)
        self.run("DELETE FROM refusal WHERE last_at < ?", (newest - REFUSALS_KEPT,))

    # --- time ---

    def shift_timers(self, by: Duration) -> None:
        for statement in (_SHIFT_ATTEMPTS, _SHIFT_LEASES, _SHIFT_PAUSES):
            self.run(statement, (by,))
