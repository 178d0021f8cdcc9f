"""The backend on SQL: what is loaded, found, applied and done to many rows at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import cast

from msgspec.structs import replace

from oncewire.errors import StoreDamaged, StoreFull, StoreGone
from oncewire.journal.identity import START, Head, links
from oncewire.journal.row import COLUMNS
from oncewire.message.instant import Duration, Instant
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import Outgoing
from oncewire.store.records import REFUSALS_KEPT, REFUSALS_MAX, Damage, Incident, Refusal, Removed
from oncewire.store.sql.mending import (
    BAD_BYTES,
    FINAL_STATES,
    KNOWN_STATES,
    MEND_INCOMING,
    MEND_OUTGOING,
    MEND_RECEIVING,
    MEND_SENDING,
    NO_BYTES,
    UNANSWERED,
    damaged_in,
)
from oncewire.store.sql.reader import SqlReader
from oncewire.store.sql.rows import (
    ANSWER,
    DOCUMENTS,
    FROM_INCOMING,
    FROM_OUTGOING,
    INCIDENT,
    INCOMING_VALUES,
    OUTGOING_VALUES,
    PARCEL,
    RECEIVING,
    REFUSAL,
    REMOVED,
    SENDING,
    has_state,
    list_outgoing,
    mended_incoming,
    mended_outgoing,
    read_answer_head,
    read_document,
    read_files,
    read_parcel,
    read_receiving,
    read_removed,
    read_sending,
    read_stored_incoming,
    read_stored_outgoing,
    whole,
)
from oncewire.store.sql.search_index import SearchIndex
from oncewire.store.sql.session import Each, Insert, Session, Values
from oncewire.store.sql.writing import RowCheck, names_in, writes
from oncewire.store.transition.backend import COUNTERS, Changes
from oncewire.store.transition.rows import (
    AnswerBytes,
    DocumentRow,
    IncomingBytes,
    IncomingKey,
    IncomingRow,
    OutgoingBytes,
    OutgoingRow,
)

_MESSAGE = COLUMNS.index("message_id")

# Every statement is put together from constants of this package; values are always bound.
_FILED_OUTGOING = "keep_until, due_at, deadline, entered, held"
_OUTGOING = f"SELECT {OUTGOING_VALUES}, {_FILED_OUTGOING} {FROM_OUTGOING}"
_INCOMING = f"SELECT {INCOMING_VALUES}, keep_until, held {FROM_INCOMING}"
_ONE = "WHERE message = ?"
_OUTGOING_BYTES = (
    f"SELECT {', '.join(PARCEL)}, draft FROM outgoing_bytes "  # noqa: S608
    "WHERE position = (SELECT position FROM outgoing WHERE message = ?)"
)
_INCOMING_BYTES = (
    f"SELECT {', '.join(ANSWER + PARCEL)}, view FROM incoming_bytes "  # noqa: S608
    "WHERE row = (SELECT row FROM incoming WHERE message = ? AND sender = ?)"
)
_ANSWER_BYTES = (
    f"SELECT {', '.join(ANSWER)} FROM incoming_bytes "  # noqa: S608
    "WHERE row = (SELECT row FROM incoming WHERE message = ? AND sender = ?)"
)
_INCIDENTS = f"SELECT {INCIDENT.text} FROM incident WHERE resolved_at IS NULL"  # noqa: S608

_GATHERED = (
    "SELECT count(*), coalesce(sum(size), 0) FROM document "
    "WHERE sender = ? AND state IN ('open', 'joining')"
)

# The conditions repeat those of the partial indexes word for word; otherwise SQLite would
# not use them.
_OF_CHANNEL = (
    "channel = ? AND channel IS NOT NULL AND state IN ('waiting', 'outstanding', 'suspended') "
)
_SENT = f"message_id, message {FROM_OUTGOING}"
_RECEIVED = f"sender, message_id, message {FROM_INCOMING}"
_BEYOND = "AND position > ? ORDER BY position LIMIT ?"
_SCANS = {
    "due": f"SELECT due_at, position, {_SENT} WHERE due_at <= ?1 "
    "AND (due_at, position) > (?2, ?3) ORDER BY due_at, position LIMIT ?4",
    "expiring": f"SELECT deadline, position, {_SENT} WHERE deadline <= ?1 "
    "AND (deadline, position) > (?2, ?3) ORDER BY deadline, position LIMIT ?4",
    "waiting": f"SELECT channel, position, {_SENT} WHERE {_OF_CHANNEL} "
    f"AND state = 'waiting' {_BEYOND}",
    "notices": f"SELECT position, {_SENT} WHERE notice_owed = 1 {_BEYOND}",
    "ready": f"SELECT position, {_RECEIVED} WHERE state = 'ready' {_BEYOND}",
    "answers": f"SELECT incoming.row, {_RECEIVED} WHERE answer_owed = 1 "
    "AND incoming.row > ? ORDER BY incoming.row LIMIT ?",
    "held": f"SELECT incoming.row, {_RECEIVED} WHERE state = 'held' "
    "AND incoming.row > ? ORDER BY incoming.row LIMIT ?",
}
_WHOLE_SCANS = {
    "live": f"SELECT {_SENT} WHERE {_OF_CHANNEL} AND state <> 'waiting'",
    "responses": f"SELECT {_SENT} WHERE ref_to = ? AND peer = ?",
    "parts": f"SELECT {_RECEIVED} WHERE sender = ? AND split_id = ? AND split_id IS NOT NULL "
    "AND state IN ('held', 'gathered')",
    "leases": f"SELECT {_RECEIVED} "
    "WHERE state = 'handed_over' AND lease_until IS NOT NULL AND lease_until <= ?",
}
_SMALLEST = -(2**63)
_BY_TIME = frozenset({"due", "expiring"})
_LIVE_OUTGOING = f"SELECT {_SENT} WHERE state IN ('waiting', 'outstanding', 'suspended') LIMIT ?"
_LIVE_INCOMING = (
    f"SELECT {_RECEIVED} WHERE state IN ('held', 'ready', 'gathered', 'handed_over') LIMIT ?"
)
# Without anything else: of those that are owed, most are young.
_OWED = (
    f"SELECT incoming.row, sender, message_id, received_at, terms_id {FROM_INCOMING} "
    "WHERE answer_owed = 1 AND received_at <= ? ORDER BY incoming.row"
)


_NO_INCIDENT = (
    "AND NOT EXISTS (SELECT 1 FROM incident "
    "WHERE resolved_at IS NULL AND incident.message_id = message.message_id) "
)
# Parts stay with a document under legal hold: what its receiver signed for are they. Counted are
# at most one: for NOT EXISTS, PostgreSQL would read the whole table once and join it.
_SENT_WHOLE, _RECEIVED_WHOLE = (
    "AND 0 = (SELECT count(*) FROM message AS whole "  # noqa: S608
    f"JOIN {table} AS kept ON kept.message = whole.id AND kept.held = 1{same} "
    "WHERE whole.message_id = {0}.split_id) "
    for table, same in (("outgoing", ""), ("incoming", " AND kept.sender = {0}.sender"))
)
# The conditions on state, notice, answer and hold repeat those of the partial indexes.
_OLD_OUTGOING = (
    f"SELECT {OUTGOING_VALUES}, message, keep_until {FROM_OUTGOING} "  # noqa: S608
    "WHERE keep_until <= ?1 AND (keep_until, position) > (?2, ?3) "
    "AND state IN ('delivered', 'not_delivered', 'unknown', 'sent') "
    f"AND notice_owed = 0 AND held = 0 {_NO_INCIDENT}{_SENT_WHOLE.format('outgoing')}"
    "AND 0 = (SELECT count(*) FROM message AS asked "
    "JOIN incoming ON incoming.message = asked.id WHERE asked.message_id = outgoing.ref_to) "
    "ORDER BY keep_until, position LIMIT ?4"
)
_OLD_INCOMING = (
    f"SELECT row, message, sender, digest, state, received_at, agreement_id {FROM_INCOMING} "
    "WHERE keep_until <= ? AND state IN ('confirmed', 'forwarded', 'refused', 'closed') "
    f"AND answer_owed = 0 AND held = 0 {_NO_INCIDENT}{_RECEIVED_WHOLE.format('incoming')}"
    "ORDER BY keep_until, row LIMIT ?"
)
_REMEMBER = (
    "INSERT INTO removed (message, sender, digest, state, at, agreement_id, removed_at) "
    "SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE EXISTS (SELECT 1 FROM journal_row WHERE message = ?1) "
    "ON CONFLICT (message, sender) DO UPDATE SET digest = excluded.digest, state = excluded.state, "
    "at = excluded.at, agreement_id = excluded.agreement_id, removed_at = excluded.removed_at"
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
    "DELETE FROM document WHERE keep_until <= ? AND state NOT IN ('open', 'joining') "  # noqa: S608
    f"{_SENT_WHOLE.format('document')}{_RECEIVED_WHOLE.format('document')}"
)
_COUNT_REFUSAL = (
    f"INSERT INTO refusal ({REFUSAL.text}) "  # noqa: S608
    "SELECT ?1, CASE WHEN EXISTS (SELECT 1 FROM refusal WHERE code = ?1 AND address = ?2) "
    "OR (SELECT count(*) FROM refusal) < ?8 THEN ?2 ELSE '' END, ?3, ?4, ?5, ?6, ?7 "
    "WHERE true ON CONFLICT (code, address) DO UPDATE SET count = refusal.count + excluded.count, "
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


class SqlBackend:
    """See `transition.backend.Backend`, whose docstrings hold here."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._run, self._write = session.run, session.write
        self.begin_turn, self.let_go = session.begin_turn, session.let_go
        self.begin_steps, self.keep_steps = session.begin_steps, session.keep_steps
        self.applied = session.applied
        reader = SqlReader(session.run, session.dialect)
        self.terms, self.agreement = reader.terms, reader.agreement
        self._numbers = MessageNumbers(session)
        self._checks = RowCheck(session.columns)
        self._index = SearchIndex(session)
        # The head of the journal's chain; None: it is to be read.
        self.head: Head | None = None

    @property
    def failure(self) -> StoreFull | StoreGone | None:
        """How its session failed, if it did."""
        return self.session.failure

    # --- transactions ---

    def changed_elsewhere(self) -> bool:
        changed = self.session.changed_elsewhere()
        if changed:
            self._forget_known()
        return changed

    def undo_steps(self) -> None:
        self.session.undo_steps()
        self._forget_known()

    def commit(self) -> None:
        self.session.commit()
        self._numbers.bound()

    def _forget_known(self) -> None:
        """Forget remembered numbers after rows were undone, or written by another connection."""
        self._numbers.forget()
        self._index.forget()
        self.head = None

    # --- small tables ---

    def counters(self) -> dict[str, int]:
        select = f"SELECT {', '.join(COUNTERS)} FROM counter WHERE id = 1"  # noqa: S608
        return dict(zip(COUNTERS, self._run(select)[0], strict=True))

    def sending_channel(self, key: str) -> SendingChannel | None:
        select = f"SELECT {', '.join(SENDING)} FROM sending_channel WHERE key = ?"  # noqa: S608
        rows = self._run(select, (key,))
        return read_sending(rows[0]) if rows else None

    def receiving_channel(self, key: str) -> ReceivingChannel | None:
        select = f"SELECT {RECEIVING.text} FROM receiving_channel WHERE key = ?"  # noqa: S608
        rows = self._run(select, (key,))
        return read_receiving(rows[0]) if rows else None

    def incidents(self) -> list[Incident]:
        return [Incident(*row) for row in self._run(_INCIDENTS)]

    # --- documents ---

    def document(self, key: IncomingKey) -> DocumentRow | None:
        rows = self._run(f"{DOCUMENTS} WHERE sender = ? AND split_id = ?", key)
        return DocumentRow(read_document(rows[0][:-1]), rows[0][-1]) if rows else None

    def open_documents(self) -> list[DocumentRow]:
        rows = self._run(f"{DOCUMENTS} WHERE state IN ('open', 'joining') AND sender <> ''")
        found = []
        for row in rows:
            # One that is damaged hides none of the others.
            with suppress(StoreDamaged):
                found.append(DocumentRow(read_document(row[:-1]), row[-1]))
        return found

    def gathered(self, sender: str) -> tuple[int, int]:
        ((count, size),) = self._run(_GATHERED, (sender,))
        return int(count), int(size)

    # --- messages ---

    def _of(self, select: str, message_ids: Sequence[str]) -> list[Values]:
        """The rows of these messages; an id without a number has none."""
        numbers = self._numbers.of(message_ids)
        if not numbers:
            return []
        if len(numbers) == 1:
            return self._run(select + _ONE, (numbers[0],))
        some = f"WHERE message {self.session.dialect.numbers}"
        return self._run(select + some, (json.dumps(numbers),))

    def outgoing(self, message_ids: Sequence[str]) -> list[OutgoingRow]:
        return [_outgoing_row(row) for row in self._of(_OUTGOING, message_ids)]

    def incoming(self, message_ids: Sequence[str]) -> list[IncomingRow]:
        return [_incoming_row(row) for row in self._of(_INCOMING, message_ids)]

    def removed(self, message_ids: Sequence[str]) -> list[Removed]:
        rows = self._of(REMOVED, message_ids)
        return sorted(map(read_removed, rows), key=lambda gone: gone.sender or "")

    def outgoing_bytes(self, message_id: str) -> OutgoingBytes | None:
        for number in self._numbers.of((message_id,)):
            for row in self._run(_OUTGOING_BYTES, (number,)):
                with whole(message_id):
                    files = read_files(row[2]) if row[0] is None and row[2] else ()
                    return OutgoingBytes(read_parcel(row[:4]), row[4], files)
        return None

    def incoming_bytes(self, key: IncomingKey) -> tuple[IncomingBytes, AnswerBytes]:
        for number in self._numbers.of((key[1],)):
            for row in self._run(_INCOMING_BYTES, (number, key[0])):
                with whole(key[1]):
                    content = IncomingBytes(read_parcel(row[4:8]), row[8])
                return content, _answer_bytes(key, row[:4])
        return IncomingBytes(None, None), AnswerBytes(None)

    def answer_bytes(self, key: IncomingKey) -> AnswerBytes:
        for number in self._numbers.of((key[1],)):
            for row in self._run(_ANSWER_BYTES, (number, key[0])):
                return _answer_bytes(key, row)
        return AnswerBytes(None)

    # --- scan ---

    def scan(self, index: str, bounds: Values, after: Values | None, limit: int) -> list[Values]:
        if index in _WHOLE_SCANS:
            group = bounds[0] if index in ("responses", "parts") else bounds
            rows = self._numbered(_WHOLE_SCANS[index], group)
            return [(row[0],) if len(row) == 1 else (row,) for row in rows]
        if index in _BY_TIME:
            place = (after or (_SMALLEST, 0))[:2]
            return self._numbered(_SCANS[index], (*bounds, *place, limit))
        start = _SMALLEST
        if after is not None:
            start = after[min(1 if index == "waiting" else 0, len(after) - 1)]
        found = self._numbered(_SCANS[index], (*bounds, start, limit))
        if index in ("waiting", "notices"):
            return found
        return [(row[0], row[1:]) for row in found]

    def _numbered(self, statement: str, values: Values) -> list[Values]:
        """Rows that end with a MessageId and its number. Loading those messages then
        needs no look-up of the number, which is on another page that can be damaged."""
        rows = self._run(statement, values)
        self._numbers.learn((row[-2], row[-1]) for row in rows)
        return [row[:-1] for row in rows]

    def live(self, limit: int) -> tuple[list[str], list[IncomingKey]]:
        sent = [row[0] for row in self._numbered(_LIVE_OUTGOING, (limit,))]
        sent += [row[-1] for row in self.scan("notices", (), None, limit)]
        received = [(row[0], row[1]) for row in self._numbered(_LIVE_INCOMING, (limit,))]
        received += [row[-1] for row in self.scan("answers", (), None, limit)]
        return sent, received

    def owed(self, now: Instant) -> list[tuple[int, IncomingKey, Instant, str]]:
        rows = self._run(_OWED, (now,))
        return [(row[0], (row[1], row[2]), row[3], row[4]) for row in rows]

    # --- writing ---

    def check(
        self,
        added: Sequence[OutgoingRow | IncomingRow],
        saved: Sequence[OutgoingRow | IncomingRow],
        journal: Sequence[Values],
    ) -> None:
        self._checks.check(added, saved, journal)
        # Whom a row names must be found before the commit, too: only this transition fails.
        if added or saved or journal:
            named = {values[_MESSAGE] for values in journal}
            named.discard(None)
            self._numbers.find(named)

    def apply(self, changes: Changes) -> None:
        if not any(changes):
            return
        numbers = self._numbers.give(names_in(changes))
        heads = links(self._last_head(), changes.journal) if changes.journal else []
        head = heads[-1] if heads else self.head
        self._write(writes(changes, numbers, heads, head))
        self.head = head
        if changes.counters:
            self._index.follow(changes.counters)

    def _last_head(self) -> Head:
        if self.head is None:
            self.head = self._run("SELECT head FROM counter WHERE id = 1")[0][0] or START
        return self.head

    # --- steps over many rows: retention, refusals, and a clock that was set ---

    def sweep(self, still_counts: Callable[[Outgoing], bool], now: Instant, limit: int) -> int:
        sent = self._old_outgoing(still_counts, now, limit)
        received = self._run(_OLD_INCOMING, (now, limit - len(sent)))
        self.session.change(_FORGET_DOCUMENTS, (now,))
        if not sent and not received:
            return 0
        self._index.remove([row[0] for row in sent], [row[0] for row in received])
        gone = [row[1:] for row in (*sent, *received)]
        self._write(
            [
                Each("DELETE FROM outgoing WHERE position = ?", [(row[0],) for row in sent]),
                Each("DELETE FROM incoming WHERE row = ?", [(row[0],) for row in received]),
                Each(_REMEMBER, [(*values, now) for values in gone]),
            ]
        )
        self._forget(values[0] for values in gone)
        return len(gone)

    def index(self) -> bool:
        return self._index.file_next()

    def _old_outgoing(
        self, still_counts: Callable[[Outgoing], bool], now: Instant, limit: int
    ) -> list[Values]:
        """(position, message, '', digest, state, at, agreement) of those to remove; a channel
        may still need some of them."""
        found: list[Values] = []
        after = (-1, -1)
        while len(found) < limit:
            rows = self._run(_OLD_OUTGOING, (now, *after, limit))
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
        numbers = self._run(
            "SELECT DISTINCT message FROM journal_row "
            "WHERE at < ? AND seq <= ? AND message IS NOT NULL",
            bounds,
        )
        gone = self.session.change("DELETE FROM journal_row WHERE at < ? AND seq <= ?", bounds)
        self._write([Each(_UNREMEMBER, numbers)])
        self._forget(number for (number,) in numbers)
        return gone

    def _forget(self, numbers: Iterable[int]) -> None:
        self._write([Each(_FORGET, [(number,) for number in numbers])])
        self._numbers.forget()

    # --- refusals ---

    def count_refusals(self, refusals: Iterable[Refusal]) -> None:
        counted = [(*REFUSAL.values(one), REFUSALS_MAX) for one in refusals]
        self._write([Each(_COUNT_REFUSAL, counted)])
        newest = max((values[4] for values in counted), default=0)
        self.session.change("DELETE FROM refusal WHERE last_at < ?", (newest - REFUSALS_KEPT,))

    # --- time ---

    def shift_timers(self, by: Duration) -> None:
        for statement in (_SHIFT_ATTEMPTS, _SHIFT_LEASES, _SHIFT_PAUSES):
            self.session.change(statement, (by,))

    # --- repair ---

    def mend(self, message_id: str) -> bool:
        mended = 0
        for number in self._numbers.of((message_id,)):
            for statement in (MEND_OUTGOING, MEND_INCOMING):
                mended += self.session.change(statement, (number,))
            try:
                for row in self.incoming((message_id,)):
                    self.incoming_bytes((row.stored.incoming.sender, message_id))
            except StoreDamaged:
                # Neither the bytes nor the answer can be had any more, if any is damaged.
                for place in self._run(BAD_BYTES, (number,)):
                    self.session.change(NO_BYTES, place)
                    self.session.change(UNANSWERED, place)
                mended += 1
        return mended > 0

    def mend_channel(self, key: str) -> bool:
        mended = False
        for read, statement in (
            (self.sending_channel, MEND_SENDING),
            (self.receiving_channel, MEND_RECEIVING),
        ):
            try:
                read(key)
            except StoreDamaged:
                self.session.change(statement, (key,))
                mended = True
        return mended

    def damaged(self) -> list[Damage]:
        found: list[Damage] = []
        for table, key in (("outgoing", "position"), ("incoming", "row")):
            states = {row[0] for row in self._run(f"SELECT DISTINCT state FROM {table}")}  # noqa: S608
            for state in sorted(states - FINAL_STATES[table]):
                unknown = state not in KNOWN_STATES[table]
                for place, message_id, gone in self._run(damaged_in(table, key), (state, unknown)):
                    why = "its bytes are gone" if gone else "its kind cannot be read"
                    if message_id is None:
                        why = f"it has lost its MessageId (row {place})"
                    if unknown:
                        why = f"its state is {state[:40]!r}"
                    found.append(Damage(why, message_id, table == "outgoing"))
        return found


def _outgoing_row(values: Values) -> OutgoingRow:
    *columns, keep_until, due_at, deadline, entered, held = values
    row = tuple(columns)
    try:
        stored = read_stored_outgoing(row)
    except StoreDamaged as problem:
        mended = replace(read_stored_outgoing(mended_outgoing(row)), damage=problem.problem)
        lost = not has_state(row, sent=True)
        return OutgoingRow(mended, keep_until, due_at, deadline, entered, bool(held), problem, lost)
    return OutgoingRow(stored, keep_until, due_at, deadline, entered, bool(held))


def _incoming_row(values: Values) -> IncomingRow:
    *columns, keep_until, held = values
    row = tuple(columns)
    problem, lost = None, False
    try:
        stored = read_stored_incoming(row)
    except StoreDamaged as damage:
        problem, lost = damage, not has_state(row, sent=False)
        stored = read_stored_incoming(mended_incoming(row))
    head = read_answer_head(row[-3:])
    return IncomingRow(stored, head, keep_until, bool(held), problem, lost)


def _answer_bytes(key: IncomingKey, row: Values) -> AnswerBytes:
    try:
        with whole(key[1]):
            return AnswerBytes(read_parcel(row))
    except StoreDamaged as problem:
        return AnswerBytes(None, problem)


# The numbers that the tables know MessageIds by.


REMEMBERED = 50_000
"""How many MessageIds are remembered at most; beyond it, all are read anew."""

_FIND = "SELECT id FROM message WHERE message_id = ?"
_FIND_SOME = "SELECT message_id, id FROM message WHERE message_id"


class MessageNumbers:
    """The row numbers of MessageIds, remembered; None: the id has no number yet."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[str, int | None] = {}
        self._last: int | None = None

    def of(self, message_ids: Sequence[str]) -> list[int]:
        """The numbers of those ids that have one."""
        self.find(message_ids)
        found = map(self._known.__getitem__, message_ids)
        return [number for number in found if number is not None]

    def learn(self, numbers: Iterable[tuple[str, int]]) -> None:
        """Remember numbers that another query found."""
        self._known.update(numbers)

    def give(self, message_ids: Iterable[str]) -> Mapping[str, int]:
        """The numbers of all these ids; those without one get the next numbers."""
        wanted = list(dict.fromkeys(message_ids))
        self.find(wanted)
        new = [message_id for message_id in wanted if self._known[message_id] is None]
        if not new:
            return cast(dict[str, int], self._known)
        if self._last is None:
            self._last = int(self._session.run("SELECT coalesce(max(id), 0) FROM message")[0][0])
        rows = list(enumerate(new, self._last + 1))
        self._session.write([Insert("message", ("id", "message_id"), rows)])
        self._last += len(rows)
        self._known.update((message_id, number) for number, message_id in rows)
        return cast(dict[str, int], self._known)

    def find(self, message_ids: Iterable[str]) -> None:
        """Look up which of these ids have a number."""
        known = self._known
        missing = [message_id for message_id in message_ids if message_id not in known]
        if not missing:
            return
        if len(missing) == 1:
            rows = self._session.run(_FIND, (missing[0],))
            known[missing[0]] = rows[0][0] if rows else None
            return
        known.update(dict.fromkeys(missing))
        given = json.dumps(missing, ensure_ascii=False)
        select = f"{_FIND_SOME} {self._session.dialect.texts}"
        known.update(self._session.run(select, (given,)))

    def forget(self) -> None:
        """Forget all numbers, because rows were undone or removed."""
        self._known.clear()
        self._last = None

    def bound(self) -> None:
        """Forget all numbers when there are more than REMEMBERED."""
        if len(self._known) > REMEMBERED:
            self._known.clear()
