"""Applying on SQLite: a turn's changes become rows, one statement for all rows alike."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple
from functools import cache

from oncewire.journal.chain import START, Head, links
from oncewire.store.sqlite.checking import Checking
from oncewire.store.sqlite.loading import ANSWER
from oncewire.store.sqlite.numbers import Numbers
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
    outgoing_state,
    outgoing_values,
    parcel_values,
    receiving_values,
    sending_values,
)
from oncewire.store.transition.backend import COUNTERS, Changes
from oncewire.store.transition.rows import IncomingRow, OutgoingRow, ReceiptRow

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
