"""The backend on SQLite: what is loaded, found, applied and done to many rows at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import astuple

from oncewire.errors import StoreProblem
from oncewire.journal.identity import START, Head, links
from oncewire.journal.row import COLUMNS
from oncewire.message.instant import Duration, Instant
from oncewire.protocol.states import Outgoing
from oncewire.store.records import REFUSALS_KEPT, REFUSALS_MAX, Refusal
from oncewire.store.sqlite.loading import (
    ANSWER,
    FROM_INCOMING,
    FROM_OUTGOING,
    OUTGOING_VALUES,
    Numbers,
    Statements,
)
from oncewire.store.sqlite.mending import Mending
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
    document_values,
    facts_values,
    incoming_state,
    list_outgoing,
    outgoing_state,
    outgoing_values,
    parcel_values,
    receiving_values,
    sending_values,
)
from oncewire.store.transition.backend import COUNTERS, Changes
from oncewire.store.transition.rows import IncomingRow, OutgoingRow, ReceiptRow

if TYPE_CHECKING:
    import apsw


# Checking on SQLite: whether a row can be kept, before a whole turn depends on it.


_LARGEST = 2**63 - 1
_CHECKED_MESSAGE = COLUMNS.index("message_id")
_TYPES: dict[str, tuple[type, ...]] = {"INTEGER": (int,), "TEXT": (str,)}
Kinds = list[tuple[str, str, bool]]
Pick = Callable[[Values], Values]
"""Takes some of a row's values out of it."""


class Checking(Statements):
    """See `transition.backend.Backend.check`."""

    _numbers: Numbers

    def _learn_columns(self) -> None:
        """Ask which values each column takes."""
        columns = self.columns
        outgoing = columns("outgoing")
        self._outgoing_kinds = _kinds(outgoing, OUTGOING_STATE)
        self._facts_kinds = _kinds(outgoing, FACTS)
        self._incoming_kinds = _kinds(columns("incoming"), INCOMING_STATE)
        journal = columns("journal_row")
        journal["message_id"] = ("TEXT", False)
        self._journal_kinds = _kinds(journal, COLUMNS)
        # Types of rows that were found good, and how texts and numbers are taken out of such a
        # row; there are few different ones.
        self._good: dict[tuple[type, ...], tuple[Pick, Pick]] = {}

    def check(
        self,
        added: Sequence[OutgoingRow | IncomingRow],
        saved: Sequence[OutgoingRow | IncomingRow],
        journal: Sequence[Values],
    ) -> None:
        texts: list[str] = []
        numbers: list[int] = []
        for row in added:
            self._sort_state(row, texts, numbers)
            self._sort(self._facts_kinds, facts_values(row.stored.facts), texts, numbers)
        for row in saved:
            self._sort_state(row, texts, numbers)
        for written in journal:
            self._sort(self._journal_kinds, written, texts, numbers)
        if texts or numbers:
            _check_sizes(texts, numbers)
            # Whom a row names must be found before the commit, too: only this transition fails.
            named = {values[_CHECKED_MESSAGE] for values in journal}
            named.discard(None)
            self._numbers.find(named)

    def _sort_state(
        self, row: OutgoingRow | IncomingRow, texts: list[str], numbers: list[int]
    ) -> None:
        if isinstance(row, OutgoingRow):
            outgoing = row.stored.outgoing
            self._sort(self._outgoing_kinds, outgoing_state(outgoing), texts, numbers)
            texts += (outgoing.message_id, row.stored.peer)
        else:
            incoming = row.stored.incoming
            self._sort(self._incoming_kinds, incoming_state(incoming), texts, numbers)
            texts += (incoming.message_id, incoming.sender, row.stored.peer)

    def _sort(self, kinds: Kinds, values: Values, texts: list[str], numbers: list[int]) -> None:
        """Add the texts and the numbers among values, if each is of a type that its column
        takes."""
        signature = tuple(map(type, values))
        known = self._good.get(signature)
        if known is None:
            _check_types(kinds, values)
            known = self._good[signature] = (
                _pick([place for place, kind in enumerate(signature) if issubclass(kind, str)]),
                _pick([place for place, kind in enumerate(signature) if kind is int]),
            )
        texts += known[0](values)
        numbers += known[1](values)


def _pick(places: list[int]) -> Pick:
    # One alone would not be given as a row.
    if len(places) > 1:
        return itemgetter(*places)
    return lambda row: tuple([row[place] for place in places])


def _check_sizes(texts: Sequence[str], numbers: Sequence[int]) -> None:
    if numbers and (max(numbers) > _LARGEST or min(numbers) < -_LARGEST):
        raise _cannot("a number is too large")
    text = "".join(texts)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeError as error:
            raise _cannot(str(error)) from error


def _check_types(kinds: Kinds, values: Values) -> None:
    for (name, kind, needed), value in zip(kinds, values, strict=True):
        good = not needed if value is None else isinstance(value, _TYPES[kind])
        if not good:
            raise _cannot(f"{name} is {value!r}"[:100])


def _kinds(columns: dict[str, tuple[str, bool]], names: Sequence[str]) -> Kinds:
    return [(name, *columns[name]) for name in names]


def _cannot(why: str) -> StoreProblem:
    return StoreProblem(
        f"a value cannot be kept: {why}", remedy="this is a fault of Oncewire: report it"
    )


# Applying on SQLite: a turn's changes become rows, one statement for all rows alike.


# Every statement is put together from constants of this package; values are always bound.
_SAVED_OUTGOING = (*OUTGOING_STATE, "deadline", "due_at", "keep_until", "entered", "held")
_SAVED_INCOMING = (
    *(*INCOMING_STATE, "position", "keep_until", "held"),
    *("answer_id", "answer_kind", "answer_owed"),
)


def _insert(table: str, columns: Iterable[str], how: str = "INSERT") -> str:
    names = tuple(columns)
    marks = ", ".join("?" * len(names))
    return f"{how} INTO {table} ({', '.join(names)}) VALUES ({marks})"


_INSERT_OUTGOING = _insert(
    "outgoing",
    (
        *_SAVED_OUTGOING,
        *FACTS,
        "peer",
        "relayed_from",
        "hop",
        "agreement_id",
        "position",
        "message",
    ),
)
_INSERT_OUTGOING_BYTES = _insert("outgoing_bytes", (*PARCEL, "draft", "position"))
_UPDATE_OUTGOING_BYTES = (
    f"UPDATE outgoing_bytes SET {', '.join(f'{name} = ?' for name in PARCEL)}, draft = ? "  # noqa: S608
    "WHERE position = ?"
)
_INSERT_INCOMING = _insert(
    "incoming",
    (
        *(*_SAVED_INCOMING, *INCOMING_FACTS),
        *("peer", "transport", "hop", "agreement_id", "sender", "row", "message"),
    ),
)
_INSERT_INCOMING_BYTES = _insert("incoming_bytes", (*PARCEL, "view", *ANSWER, "row"))
_FORGET_INCOMING_BYTES = (
    f"UPDATE incoming_bytes SET {', '.join(f'{name} = NULL' for name in (*PARCEL, 'view'))} "  # noqa: S608
    "WHERE row = ?"
)
# Nothing is written when the bytes are there already and only `owed` changes.
_UPDATE_ANSWER_BYTES = (
    f"UPDATE incoming_bytes SET ({', '.join(ANSWER)}) = (?1, ?2, ?3, ?4) WHERE row = ?5 "  # noqa: S608
    f"AND ({', '.join(ANSWER)}) IS NOT (?1, ?2, ?3, ?4)"
)
_KEEP_RECEIPT = _insert(
    "receipt", ("position", "receipt_id", "received_at", *PARCEL), "INSERT OR REPLACE"
)
_KEEP_TERMS = (
    "INSERT INTO terms (terms_id, content) VALUES (?, ?) "
    "ON CONFLICT (terms_id) DO UPDATE SET content = excluded.content"
)
_KEEP_AGREEMENT = (
    "INSERT INTO agreement (agreement_id, content) VALUES (?, ?) "
    "ON CONFLICT (agreement_id) DO UPDATE SET content = excluded.content"
)
_SAVE_SENDING = _insert("sending_channel", SENDING, "INSERT OR REPLACE")
_SAVE_RECEIVING = _insert("receiving_channel", RECEIVING, "INSERT OR REPLACE")
_SAVE_INCIDENT = _insert(
    "incident",
    ("id", "opened_at", "reason", "message_id", "channel", "resolved_at"),
    "INSERT OR REPLACE",
)
_SAVE_DOCUMENT = _insert("document", (*DOCUMENT, "keep_until"), "INSERT OR REPLACE")
_INSERT_ROW = f"INSERT INTO journal_row VALUES ({', '.join('?' * 20)})"  # noqa: S608
_MESSAGE = 6
"""The place of the MessageId in a row of the journal."""
_UPDATE_COUNTERS = (
    f"UPDATE counter SET {', '.join(f'{name} = ?' for name in COUNTERS)}, "  # noqa: S608
    "head = ifnull(?, head) WHERE id = 1"
)


@cache
def _update(table: str, key: str, columns: tuple[str, ...]) -> str:
    """The statement that saves these columns; there are few different ones."""
    settings = ", ".join(f"{name} = ?" for name in columns)
    return f"UPDATE {table} SET {settings} WHERE {key} = ?"  # noqa: S608


Batch = tuple[str, list[Values]]
"""A statement, and the rows to run it for."""


class Applying(Checking):
    """See `transition.backend.Backend`, whose docstrings hold here."""

    _numbers: Numbers
    _head: Head | None = None
    """The head of the journal's chain; None: it is to be read."""

    def apply(self, changes: Changes) -> None:
        if not any(changes):
            return
        self.begin()
        numbers = self._numbers.give(list(_names(changes)))
        heads = links(self._last_head(), changes.journal) if changes.journal else []
        head = heads[-1] if heads else self._head
        counted = bool(changes.counters)
        terms = [(key, _text(terms.as_dict())) for key, terms in changes.terms]
        self.run_batches(
            [
                # Those that were damaged are replaced: the id is the digest of what they say.
                (_KEEP_TERMS, terms),
                (_KEEP_AGREEMENT, changes.agreements),
                (_SAVE_SENDING, [sending_values(channel) for channel in changes.sending]),
                (_SAVE_RECEIVING, [receiving_values(channel) for channel in changes.receiving]),
                *_outgoing(changes, numbers),
                *_incoming(changes, numbers),
                (_KEEP_RECEIPT, [_receipt_values(row) for row in changes.receipts.values()]),
                (_SAVE_INCIDENT, [astuple(incident) for _, incident in changes.incidents]),
                (
                    _SAVE_DOCUMENT,
                    [(*document_values(row.document), row.keep_until) for row in changes.documents],
                ),
                (
                    _INSERT_ROW,
                    [
                        _journal_values(row, numbers, since)
                        for row, since in zip(changes.journal, heads, strict=False)
                    ],
                ),
                (_UPDATE_COUNTERS, [(*changes.counters.values(), head)] if counted else []),
            ]
        )
        self._head = head

    def _last_head(self) -> Head:
        if self._head is None:
            self._head = self.run("SELECT head FROM counter WHERE id = 1")[0][0] or START
        return self._head

    def forget_head(self) -> None:
        """Rows were undone, or written by another: what is remembered may not hold."""
        self._head = None


def _journal_values(row: Values, numbers: Mapping[str, int], since: Head) -> Values:
    message_id = row[_MESSAGE]
    if message_id is None:
        return (*row, since)
    return (*row[:_MESSAGE], numbers[message_id], *row[_MESSAGE + 1 :], since)


def _outgoing(changes: Changes, numbers: Mapping[str, int]) -> list[Batch]:
    added: list[Values] = []
    content: list[Values] = []
    saved: dict[tuple[str, ...], list[Values]] = {}
    rebuilt: list[Values] = []
    for before, row in changes.outgoing:
        stored, position = row.stored, row.stored.position
        message_id = stored.outgoing.message_id
        kept = changes.outgoing_bytes.get(message_id)
        if kept is not None:
            body = (*outgoing_values(kept.parcel, kept.files), kept.draft, position)
            (content if before is None else rebuilt).append(body)
        if before is None:
            own = (stored.peer, stored.relayed_from, stored.hop, stored.agreement_id)
            key = (position, numbers[message_id])
            added.append((*_outgoing_values(row), *facts_values(stored.facts), *own, *key))
        else:
            _note(saved, _SAVED_OUTGOING, _outgoing_values(before), _outgoing_values(row), position)
    updates = [(_update("outgoing", "position", names), rows) for names, rows in saved.items()]
    first = [(_INSERT_OUTGOING, added), (_INSERT_OUTGOING_BYTES, content)]
    return [*first, *updates, (_UPDATE_OUTGOING_BYTES, rebuilt)]


def _incoming(changes: Changes, numbers: Mapping[str, int]) -> list[Batch]:
    added: list[Values] = []
    content: list[Values] = []
    saved: dict[tuple[str, ...], list[Values]] = {}
    answered: list[Values] = []
    forgotten: list[Values] = []
    for before, row in changes.incoming:
        stored, incoming, number = row.stored, row.stored.incoming, row.stored.row
        key = (incoming.sender, incoming.message_id)
        answer = changes.answers.get(key)
        reply = parcel_values(None if answer is None else answer.parcel)
        if before is None:
            own = (stored.peer, stored.transport, stored.hop, stored.agreement_id)
            place = (incoming.sender, number, numbers[incoming.message_id])
            added.append((*_incoming_values(row), *facts_values(stored.facts), *own, *place))
            kept = changes.incoming_bytes[key]
            content.append((*parcel_values(kept.parcel), kept.view, *reply, number))
            continue
        if answer is not None:
            answered.append((*reply, number))
        if key in changes.incoming_bytes:
            forgotten.append((number,))
        _note(saved, _SAVED_INCOMING, _incoming_values(before), _incoming_values(row), number)
    updates = [(_update("incoming", "row", names), rows) for names, rows in saved.items()]
    first = [(_INSERT_INCOMING, added), (_INSERT_INCOMING_BYTES, content)]
    last = [(_UPDATE_ANSWER_BYTES, answered), (_FORGET_INCOMING_BYTES, forgotten)]
    return [*first, *updates, *last]


def _receipt_values(row: ReceiptRow) -> Values:
    position, receipt = row
    return position, receipt.receipt_id, receipt.received_at, *parcel_values(receipt.parcel)


def _outgoing_values(row: OutgoingRow) -> Values:
    filed = (row.expires_at, row.due_at, row.keep_until, row.entered, row.held)
    return (*outgoing_state(row.stored.outgoing), *filed)


def _incoming_values(row: IncomingRow) -> Values:
    filed = (row.stored.position, row.keep_until, row.held)
    return (*incoming_state(row.stored.incoming), *filed, *(row.answer or (None, None, False)))


def _note(
    saved: dict[tuple[str, ...], list[Values]],
    names: tuple[str, ...],
    before: Values,
    after: Values,
    key: int,
) -> None:
    """SQLite refiles a row in every index that a statement names a column of, changed or not: so
    only what changed is named."""
    places = [place for place, value in enumerate(after) if value != before[place]]
    if places:
        columns = tuple([names[place] for place in places])
        saved.setdefault(columns, []).append((*[after[place] for place in places], key))


def _names(changes: Changes) -> Iterable[str]:
    """Every MessageId that a new row names."""
    for before, row in changes.outgoing:
        if before is None:
            yield row.stored.outgoing.message_id
    for arrived, received in changes.incoming:
        if arrived is None:
            yield received.stored.incoming.message_id
    for values in changes.journal:
        if values[_MESSAGE] is not None:
            yield values[_MESSAGE]


def _text(content: object) -> str:
    return json.dumps(content, separators=(",", ":"))


# Steps over many rows on SQLite: retention, refusals, and a clock that was set.


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


class SqliteBackend(Mending, Applying, Keeping):
    """See `transition.backend.Backend`, whose docstrings hold here."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        super().__init__(connection, path)
        self._numbers = Numbers(self)
        self._learn_columns()

    def commit(self) -> None:
        super().commit()
        self._numbers.bound()

    def changed_elsewhere(self) -> bool:
        """Whether somebody else has written; then nothing that was read holds."""
        changed = super().changed_elsewhere()
        if changed:
            self._numbers.forget()
            self.forget_head()
        return changed

    def undo_steps(self) -> None:
        super().undo_steps()
        self._numbers.forget()
        self.forget_head()
