"""Loading and scanning on SQLite: rows by their keys, and keys by an index."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from oncewire.errors import StoreDamaged, StoreFull, StoreGone, StoreProblem
from oncewire.message.instant import Instant
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.terms import Terms
from oncewire.store.records import Incident, Removed
from oncewire.store.sqlite.connection import damaged_page, failure
from oncewire.store.sqlite.rows import (
    DOCUMENT,
    FACTS,
    INCOMING_FACTS,
    INCOMING_STATE,
    OUTGOING_STATE,
    PARCEL,
    RECEIVING,
    SENDING,
    Values,
    mended_incoming,
    mended_outgoing,
    read_answer_head,
    read_document,
    read_files,
    read_parcel,
    read_receiving,
    read_sending,
    read_stored_incoming,
    read_stored_outgoing,
    state_of_incoming,
    state_of_outgoing,
    whole,
)
from oncewire.store.transition.backend import COUNTERS
from oncewire.store.transition.rows import (
    AnswerBytes,
    DocumentRow,
    IncomingBytes,
    IncomingKey,
    IncomingRow,
    OutgoingBytes,
    OutgoingRow,
)

if TYPE_CHECKING:
    import apsw


# Statements on one SQLite connection, and what their failures mean.


_ONE_ROW = "?)"
"""How a statement ends that inserts its values as a row."""
_AT_ONCE = (64, 16, 4, 1)


@cache
def _many(statement: str, size: int) -> str:
    """The statement that inserts so many rows."""
    start = statement.rindex("(")
    return statement[:start] + ", ".join([statement[start:]] * size)


class Statements:
    """Runs statements. Once SQLite has failed, nothing since the last commit can be relied on."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        import apsw

        self._error, self._corrupt = apsw.Error, apsw.CorruptError
        faults = (apsw.ConstraintError, apsw.SQLError, OverflowError, UnicodeError, TypeError)
        self._refused = faults
        self._connection, self._path = connection, path
        self._cursor = connection.cursor()
        self.failure: StoreFull | StoreGone | None = None
        # How many were run since it was opened; one for many rows is one.
        self.count = 0
        # What SQLite counted when the transaction began, and the steps in it.
        self._unchanged = self._before_steps = 0
        # Pages of the log, as of the last commit.
        self.pages = 0
        connection.set_wal_hook(self._count_pages)
        self._version = self._data_version()

    def _count_pages(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self.pages = pages
        return 0

    # --- statements ---

    def run(self, statement: str, values: Values = ()) -> list[Values]:
        """Run one statement to its end. SQLite's trouble becomes StoreFull or StoreGone."""
        self.count += 1
        try:
            return self._cursor.execute(statement, values).fetchall()
        except Exception as error:
            raise self._trouble(statement, error) from error

    def run_batches(self, batches: Sequence[tuple[str, Sequence[Values]]]) -> None:
        """Run each statement for every row of its values; not at all where there are none."""
        for statement, rows in batches:
            if rows:
                self.count += 1
                try:
                    if statement.endswith(_ONE_ROW):
                        self._insert(statement, rows)
                    else:
                        self._cursor.executemany(statement, rows)
                except Exception as error:
                    raise self._trouble(statement, error) from error

    def _insert(self, statement: str, rows: Sequence[Values]) -> None:
        """Insert many rows at a time: what a statement costs is paid once for all of them."""
        done, left = 0, len(rows)
        for size in _AT_ONCE:
            while left >= size:
                some = rows[done : done + size]
                self._cursor.execute(_many(statement, size), list(chain.from_iterable(some)))
                done, left = done + size, left - size

    def _trouble(self, statement: str, error: Exception) -> Exception:
        if isinstance(error, self._refused):
            return StoreProblem(
                f"a value cannot be kept: {error}", remedy="this is a fault of Oncewire: report it"
            )
        if isinstance(error, self._corrupt) and statement.startswith(("SELECT", "WITH")):
            # The transaction stands: only this question has no answer.
            return damaged_page(error, self._path)
        if isinstance(error, self._error):
            self.failure = failure(error, self._path)
            return self.failure
        return error

    def changed_rows(self) -> int:
        """How many rows the last statement changed."""
        return self._connection.changes()

    def columns(self, table: str) -> dict[str, tuple[str, bool]]:
        """The kind of each column, and whether it needs a value."""
        found = self.run(f"PRAGMA table_info({table})")
        return {name: (kind, bool(needed)) for _, name, kind, needed, *_ in found}

    # --- transactions ---

    def begin(self) -> None:
        """Begin a transaction, if none is open."""
        if not self._connection.in_transaction:
            self.run("BEGIN IMMEDIATE")
            self._unchanged = self._connection.total_changes()

    def commit(self) -> None:
        """Commit what is open."""
        if self._connection.in_transaction:
            self.run("COMMIT")

    def applied(self) -> bool:
        """Whether a transaction is open that changed anything."""
        connection = self._connection
        return connection.in_transaction and connection.total_changes() != self._unchanged

    def begin_steps(self) -> None:
        """What follows can be undone."""
        self.begin()
        self.run("SAVEPOINT steps")
        self._before_steps = self._connection.total_changes()

    def keep_steps(self) -> None:
        """It is kept."""
        self.run("RELEASE steps")
        self._end_if_unchanged()

    def undo_steps(self) -> None:
        """It is undone."""
        self.run("ROLLBACK TO steps")
        self.run("RELEASE steps")
        # SQLite counts what was undone too.
        self._unchanged += self._connection.total_changes() - self._before_steps
        self._end_if_unchanged()

    def _end_if_unchanged(self) -> None:
        if not self.applied():
            self.run("ROLLBACK")

    def abandon(self) -> None:
        """End the transaction after a failure, if SQLite has not done so itself."""
        with suppress(StoreFull, StoreGone):
            if self._connection.in_transaction:
                self.run("ROLLBACK")

    # --- others ---

    def _data_version(self) -> Any:
        return self.run("PRAGMA data_version")[0][0]

    def changed_elsewhere(self) -> bool:
        """Whether another connection has written since this was asked last."""
        before, self._version = self._version, self._data_version()
        return bool(before != self._version)


# The numbers that the tables know MessageIds by.


REMEMBERED = 50_000
"""How many MessageIds are remembered at most; beyond it, all are read anew."""

_FIND = "SELECT id FROM message WHERE message_id = ?"
_FIND_SOME = (
    "SELECT message_id, id FROM message WHERE message_id IN (SELECT value FROM json_each(?))"
)


class Numbers:
    """Numbers by MessageId; None: it has none yet."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements
        self._known: dict[str, int | None] = {}
        self._last: int | None = None

    def of(self, message_ids: Sequence[str]) -> list[int]:
        """The numbers of those that have one."""
        self.find(message_ids)
        found = map(self._known.__getitem__, message_ids)
        return [number for number in found if number is not None]

    def learn(self, numbers: Iterable[tuple[str, int]]) -> None:
        """These were found with something else."""
        self._known.update(numbers)

    def give(self, message_ids: Iterable[str]) -> Mapping[str, int]:
        """The numbers of all of them, given here to those that have none."""
        wanted = list(dict.fromkeys(message_ids))
        self.find(wanted)
        new = [message_id for message_id in wanted if self._known[message_id] is None]
        if not new:
            return cast(dict[str, int], self._known)
        if self._last is None:
            self._last = int(self._statements.run("SELECT ifnull(max(id), 0) FROM message")[0][0])
        rows = list(enumerate(new, self._last + 1))
        insert = "INSERT INTO message (id, message_id) VALUES (?, ?)"
        self._statements.run_batches([(insert, rows)])
        self._last += len(rows)
        self._known.update((message_id, number) for number, message_id in rows)
        return cast(dict[str, int], self._known)

    def find(self, message_ids: Iterable[str]) -> None:
        """Know which of them have one."""
        known = self._known
        missing = [message_id for message_id in message_ids if message_id not in known]
        if not missing:
            return
        if len(missing) == 1:
            rows = self._statements.run(_FIND, (missing[0],))
            known[missing[0]] = rows[0][0] if rows else None
            return
        known.update(dict.fromkeys(missing))
        given = json.dumps(missing, ensure_ascii=False)
        known.update(self._statements.run(_FIND_SOME, (given,)))

    def forget(self) -> None:
        """Numbers were given, taken or removed otherwise; what is remembered may not hold."""
        self._known.clear()
        self._last = None

    def bound(self) -> None:
        """Remember no more than fits."""
        if len(self._known) > REMEMBERED:
            self._known.clear()


# Every statement is put together from constants of this package; values are always bound.
ANSWER = tuple(f"answer_{name}" for name in PARCEL)
OUTGOING_VALUES = (
    "message_id, position, peer, relayed_from, hop, agreement_id, "
    f"{', '.join(OUTGOING_STATE)}, {', '.join(FACTS)}"
)
"""What `read_stored_outgoing` reads."""
FROM_OUTGOING = "FROM outgoing JOIN message ON message.id = outgoing.message "
INCOMING_VALUES = (
    "message_id, sender, incoming.row, position, peer, transport, hop, agreement_id, "
    f"{', '.join(INCOMING_STATE)}, {', '.join(INCOMING_FACTS)}, "
    "answer_id, answer_kind, answer_owed"
)
"""What `read_stored_incoming` reads of a message without its bytes."""
FROM_INCOMING = "FROM incoming JOIN message ON message.id = incoming.message "
WHOLE_INCOMING = (
    f"SELECT {INCOMING_VALUES}, {', '.join(PARCEL + ANSWER)}, view "
    # Bytes that are gone must not hide that the message is there.
    f"{FROM_INCOMING} LEFT JOIN incoming_bytes ON incoming_bytes.row = incoming.row "
)
"""The same with parcel, answer and view."""
TERMS = "SELECT content FROM terms WHERE terms_id = ?"
"""What `read_terms` reads."""
REMOVED = (
    "SELECT message_id, sender, digest, state, at, removed_at, agreement_id "
    "FROM removed JOIN message ON message.id = removed.message "
)
"""What `read_removed` reads."""

_FILED_OUTGOING = "keep_until, due_at, deadline, entered, held"
_OUTGOING = f"SELECT {OUTGOING_VALUES}, {_FILED_OUTGOING} {FROM_OUTGOING}"
_INCOMING = f"SELECT {INCOMING_VALUES}, keep_until, held {FROM_INCOMING}"
_ONE = "WHERE message = ?"
_SOME = "WHERE message IN (SELECT value FROM json_each(?))"
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
_INCIDENTS = (
    "SELECT id, opened_at, reason, message_id, channel FROM incident WHERE resolved_at IS NULL"
)

DOCUMENTS = f"SELECT {', '.join(DOCUMENT)}, keep_until FROM document "  # noqa: S608
"""What `read_document` reads, and until when it is kept."""
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


def read_removed(row: Values) -> Removed:
    """From the columns of REMOVED."""
    message_id, sender, *rest = row
    return Removed(message_id, sender or None, *rest)


class Loading(Statements):
    """See `transition.backend.Backend`, whose docstrings hold here."""

    _numbers: Numbers

    # --- small tables ---

    def counters(self) -> dict[str, int]:
        select = f"SELECT {', '.join(COUNTERS)} FROM counter WHERE id = 1"  # noqa: S608
        return dict(zip(COUNTERS, self.run(select)[0], strict=True))

    def terms(self, terms_id: str) -> Terms | None:
        rows = self.run(TERMS, (terms_id,))
        return read_terms(terms_id, rows[0][0]) if rows else None

    def agreement(self, agreement_id: str) -> str | None:
        select = "SELECT content FROM agreement WHERE agreement_id = ?"
        rows = self.run(select, (agreement_id,))
        return str(rows[0][0]) if rows else None

    def sending_channel(self, key: str) -> SendingChannel | None:
        select = f"SELECT {', '.join(SENDING)} FROM sending_channel WHERE key = ?"  # noqa: S608
        rows = self.run(select, (key,))
        return read_sending(rows[0]) if rows else None

    def receiving_channel(self, key: str) -> ReceivingChannel | None:
        select = f"SELECT {', '.join(RECEIVING)} FROM receiving_channel WHERE key = ?"  # noqa: S608
        rows = self.run(select, (key,))
        return read_receiving(rows[0]) if rows else None

    def incidents(self) -> list[Incident]:
        return [Incident(*row) for row in self.run(_INCIDENTS)]

    # --- documents ---

    def document(self, key: IncomingKey) -> DocumentRow | None:
        rows = self.run(f"{DOCUMENTS} WHERE sender = ? AND split_id = ?", key)
        return DocumentRow(read_document(rows[0][:-1]), rows[0][-1]) if rows else None

    def open_documents(self) -> list[DocumentRow]:
        rows = self.run(f"{DOCUMENTS} WHERE state IN ('open', 'joining') AND sender <> ''")
        found = []
        for row in rows:
            # One that is damaged hides none of the others.
            with suppress(StoreDamaged):
                found.append(DocumentRow(read_document(row[:-1]), row[-1]))
        return found

    def gathered(self, sender: str) -> tuple[int, int]:
        ((count, size),) = self.run(_GATHERED, (sender,))
        return int(count), int(size)

    # --- messages ---

    def _of(self, select: str, message_ids: Sequence[str]) -> list[Values]:
        """The rows of these messages; an id without a number has none."""
        numbers = self._numbers.of(message_ids)
        if not numbers:
            return []
        if len(numbers) == 1:
            return self.run(select + _ONE, (numbers[0],))
        return self.run(select + _SOME, (json.dumps(numbers),))

    def outgoing(self, message_ids: Sequence[str]) -> list[OutgoingRow]:
        return [_outgoing_row(row) for row in self._of(_OUTGOING, message_ids)]

    def incoming(self, message_ids: Sequence[str]) -> list[IncomingRow]:
        return [_incoming_row(row) for row in self._of(_INCOMING, message_ids)]

    def removed(self, message_ids: Sequence[str]) -> list[Removed]:
        rows = self._of(REMOVED, message_ids)
        return sorted(map(read_removed, rows), key=lambda gone: gone.sender or "")

    def outgoing_bytes(self, message_id: str) -> OutgoingBytes | None:
        for number in self._numbers.of((message_id,)):
            for row in self.run(_OUTGOING_BYTES, (number,)):
                with whole(message_id):
                    files = read_files(row[2]) if row[0] is None and row[2] else ()
                    return OutgoingBytes(read_parcel(row[:4]), row[4], files)
        return None

    def incoming_bytes(self, key: IncomingKey) -> tuple[IncomingBytes, AnswerBytes]:
        for number in self._numbers.of((key[1],)):
            for row in self.run(_INCOMING_BYTES, (number, key[0])):
                with whole(key[1]):
                    content = IncomingBytes(read_parcel(row[4:8]), row[8])
                return content, _answer_bytes(key, row[:4])
        return IncomingBytes(None, None), AnswerBytes(None)

    def answer_bytes(self, key: IncomingKey) -> AnswerBytes:
        for number in self._numbers.of((key[1],)):
            for row in self.run(_ANSWER_BYTES, (number, key[0])):
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
        """Rows that end with a MessageId and its number. Whoever loads those messages then need
        not find the number by the id, which is another page that can be damaged."""
        rows = self.run(statement, values)
        self._numbers.learn((row[-2], row[-1]) for row in rows)
        return [row[:-1] for row in rows]

    def live(self, limit: int) -> tuple[list[str], list[IncomingKey]]:
        sent = [row[0] for row in self._numbered(_LIVE_OUTGOING, (limit,))]
        sent += [row[-1] for row in self.scan("notices", (), None, limit)]
        received = [(row[0], row[1]) for row in self._numbered(_LIVE_INCOMING, (limit,))]
        received += [row[-1] for row in self.scan("answers", (), None, limit)]
        return sent, received

    def owed(self, now: Instant) -> list[tuple[int, IncomingKey, Instant, str]]:
        rows = self.run(_OWED, (now,))
        return [(row[0], (row[1], row[2]), row[3], row[4]) for row in rows]


def _outgoing_row(values: Values) -> OutgoingRow:
    *columns, keep_until, due_at, deadline, entered, held = values
    row = tuple(columns)
    try:
        stored = read_stored_outgoing(row)
    except StoreDamaged as problem:
        mended = replace(read_stored_outgoing(mended_outgoing(row)), damage=problem.problem)
        lost = not state_of_outgoing(row)
        return OutgoingRow(mended, keep_until, due_at, deadline, entered, bool(held), problem, lost)
    return OutgoingRow(stored, keep_until, due_at, deadline, entered, bool(held))


def _incoming_row(values: Values) -> IncomingRow:
    *columns, keep_until, held = values
    row = tuple(columns)
    problem, lost = None, False
    try:
        stored = read_stored_incoming(row)
    except StoreDamaged as damage:
        problem, lost = damage, not state_of_incoming(row)
        stored = read_stored_incoming(mended_incoming(row))
    head = read_answer_head(row[-3:])
    return IncomingRow(stored, head, keep_until, bool(held), problem, lost)


def _answer_bytes(key: IncomingKey, row: Values) -> AnswerBytes:
    try:
        with whole(key[1]):
            return AnswerBytes(read_parcel(row))
    except StoreDamaged as problem:
        return AnswerBytes(None, problem)


def read_terms(terms_id: str, content: str) -> Terms:
    """The kept terms, or StoreDamaged where they are not those that were kept."""
    try:
        terms = Terms.from_dict(json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged_terms(terms_id, str(error)) from error
    if terms.terms_id != terms_id:
        raise _damaged_terms(terms_id, "they say something else than when they were kept")
    return terms


def _damaged_terms(terms_id: str, why: str) -> StoreDamaged:
    return StoreDamaged(
        f"the stored terms {terms_id} are damaged: {why}"[:300],
        remedy="put their row back from a backup, or give the messages under them up with "
        "`oncewire abandon`",
    )
