"""Writing: whether a row can be kept, and a turn's changes as what is written of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

from oncewire.journal.identity import Head
from oncewire.journal.row import COLUMNS
from oncewire.store.sql.rows import (
    ANSWER,
    DOCUMENT,
    FACTS,
    INCIDENT,
    INCOMING,
    INCOMING_FACTS,
    OUTGOING,
    PARCEL,
    RECEIVING,
    SENDING,
    outgoing_values,
    parcel_values,
    sending_values,
)
from oncewire.store.sql.session import Columns, Each, Insert, Update, Values, Write, cannot_be_kept
from oncewire.store.transition.backend import COUNTERS, Changes
from oncewire.store.transition.rows import IncomingRow, OutgoingRow, ReceiptRow

_LARGEST = 2**63 - 1
_TYPES: dict[str, tuple[type, ...]] = {"INTEGER": (int,), "TEXT": (str,)}
Kinds = list[tuple[str, str, bool]]
Pick = Callable[[Values], Values]
"""Takes some of a row's values out of it."""


class RowCheck:
    """Finds a value that its column does not take, before a whole turn depends on it.

    `columns` tells of a table the kind of each column, and whether it needs a value.
    """

    def __init__(self, columns: Callable[[str], Columns]) -> None:
        outgoing = columns("outgoing")
        self._outgoing_kinds = _kinds(outgoing, OUTGOING.names)
        self._facts_kinds = _kinds(outgoing, FACTS.names)
        self._incoming_kinds = _kinds(columns("incoming"), INCOMING.names)
        journal = {**columns("journal_row"), "message_id": ("TEXT", False)}
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
        """See `transition.backend.Backend.check`."""
        texts: list[str] = []
        numbers: list[int] = []
        for row in added:
            self._sort_state(row, texts, numbers)
            self._sort(self._facts_kinds, FACTS.values(row.stored.facts), texts, numbers)
        for row in saved:
            self._sort_state(row, texts, numbers)
        for written in journal:
            self._sort(self._journal_kinds, written, texts, numbers)
        if numbers and (max(numbers) > _LARGEST or min(numbers) < -_LARGEST):
            raise cannot_be_kept("a number is too large")
        text = "".join(texts)
        if "\0" in text:
            # PostgreSQL keeps none, and what one store keeps the other must be able to take over.
            raise cannot_be_kept("a text has a character 0 in it")
        if not text.isascii():
            try:
                text.encode()
            except UnicodeError as error:
                raise cannot_be_kept(str(error)) from error

    def _sort_state(
        self, row: OutgoingRow | IncomingRow, texts: list[str], numbers: list[int]
    ) -> None:
        if isinstance(row, OutgoingRow):
            outgoing = row.stored.outgoing
            self._sort(self._outgoing_kinds, OUTGOING.values(outgoing), texts, numbers)
            texts += (outgoing.message_id, row.stored.peer)
        else:
            incoming = row.stored.incoming
            self._sort(self._incoming_kinds, INCOMING.values(incoming), texts, numbers)
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


def _check_types(kinds: Kinds, values: Values) -> None:
    for (name, kind, needed), value in zip(kinds, values, strict=True):
        good = not needed if value is None else isinstance(value, _TYPES[kind])
        if not good:
            raise cannot_be_kept(f"{name} is {value!r}"[:100])


def _kinds(columns: Columns, names: Sequence[str]) -> Kinds:
    return [(name, *columns[name]) for name in names]


_SAVED_OUTGOING = (*OUTGOING.names, "deadline", "due_at", "keep_until", "entered", "held")
_SAVED_INCOMING = (
    *(*INCOMING.names, "position", "keep_until", "held"),
    *("answer_id", "answer_kind", "answer_owed"),
)
_ADDED_OUTGOING = (
    *(*_SAVED_OUTGOING, *FACTS.names),
    *("peer", "relayed_from", "hop", "agreement_id", "position", "message"),
)
_ADDED_INCOMING = (
    *(*_SAVED_INCOMING, *INCOMING_FACTS.names),
    *("peer", "transport", "hop", "agreement_id", "sender", "row", "message"),
)
_MESSAGE = COLUMNS.index("message_id")
_JOURNAL = (*COLUMNS[:_MESSAGE], "message", *COLUMNS[_MESSAGE + 1 :], "since")

# Every statement is put together from constants of this package; values are always bound.
_FORGET_INCOMING_BYTES = (
    f"UPDATE incoming_bytes SET {', '.join(f'{name} = NULL' for name in (*PARCEL, 'view'))} "  # noqa: S608
    "WHERE row = ?"
)
# Nothing is written when the bytes are there already and only `owed` changes.
_UPDATE_ANSWER_BYTES = (
    f"UPDATE incoming_bytes SET ({', '.join(ANSWER)}) = (?1, ?2, ?3, ?4) WHERE row = ?5 "  # noqa: S608
    f"AND ({', '.join(ANSWER)}) IS DISTINCT FROM (?1, ?2, ?3, ?4)"
)
_UPDATE_COUNTERS = (
    f"UPDATE counter SET {', '.join(f'{name} = ?' for name in COUNTERS)}, "  # noqa: S608
    "head = coalesce(?, head) WHERE id = 1"
)


def writes(
    changes: Changes, numbers: Mapping[str, int], heads: Sequence[Head], head: Head | None
) -> list[Write]:
    """What writes changes. `numbers`: of the MessageIds that they name; `heads`: of the journal's
    chain before each of its rows; `head`: the one behind the last."""
    terms = [
        (key, json.dumps(terms.as_dict(), separators=(",", ":"))) for key, terms in changes.terms
    ]
    journal = [
        _journal_values(row, numbers, since)
        for row, since in zip(changes.journal, heads, strict=False)
    ]
    documents = [(*DOCUMENT.values(row.document), row.keep_until) for row in changes.documents]
    return [
        # Terms that were damaged are replaced: their id is the digest of what they say.
        Insert("terms", ("terms_id", "content"), terms, ("terms_id",)),
        Insert("agreement", ("agreement_id", "content"), changes.agreements, ("agreement_id",)),
        Insert("sending_channel", SENDING, [*map(sending_values, changes.sending)], ("key",)),
        Insert(
            "receiving_channel",
            RECEIVING.names,
            [*map(RECEIVING.values, changes.receiving)],
            ("key",),
        ),
        *_outgoing(changes, numbers),
        *_incoming(changes, numbers),
        Insert(
            "receipt",
            ("position", "receipt_id", "received_at", *PARCEL),
            [_receipt_values(row) for row in changes.receipts.values()],
            ("position",),
        ),
        Insert(
            "incident",
            INCIDENT.names,
            [INCIDENT.values(incident) for _, incident in changes.incidents],
            ("id",),
        ),
        Insert("document", (*DOCUMENT.names, "keep_until"), documents, ("sender", "split_id")),
        *_words(changes),
        Insert("journal_row", _JOURNAL, journal),
        Each(_UPDATE_COUNTERS, [(*changes.counters.values(), head)] if changes.counters else []),
    ]


def _journal_values(row: Values, numbers: Mapping[str, int], since: Head) -> Values:
    message_id = row[_MESSAGE]
    if message_id is None:
        return (*row, since)
    return (*row[:_MESSAGE], numbers[message_id], *row[_MESSAGE + 1 :], since)


def _outgoing(changes: Changes, numbers: Mapping[str, int]) -> list[Write]:
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
            added.append((*_outgoing_values(row), *FACTS.values(stored.facts), *own, *key))
        else:
            _note(saved, _SAVED_OUTGOING, _outgoing_values(before), _outgoing_values(row), position)
    names = (*PARCEL, "draft")
    return [
        Insert("outgoing", _ADDED_OUTGOING, added),
        Insert("outgoing_bytes", (*names, "position"), content),
        *[Update("outgoing", changed, "position", rows) for changed, rows in saved.items()],
        Update("outgoing_bytes", names, "position", rebuilt),
    ]


def _incoming(changes: Changes, numbers: Mapping[str, int]) -> list[Write]:
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
            added.append((*_incoming_values(row), *FACTS.values(stored.facts), *own, *place))
            kept = changes.incoming_bytes[key]
            content.append((*parcel_values(kept.parcel), kept.view, *reply, number))
            continue
        if answer is not None:
            answered.append((*reply, number))
        if key in changes.incoming_bytes:
            forgotten.append((number,))
        _note(saved, _SAVED_INCOMING, _incoming_values(before), _incoming_values(row), number)
    return [
        Insert("incoming", _ADDED_INCOMING, added),
        Insert("incoming_bytes", (*PARCEL, "view", *ANSWER, "row"), content),
        *[Update("incoming", changed, "row", rows) for changed, rows in saved.items()],
        Each(_UPDATE_ANSWER_BYTES, answered),
        Each(_FORGET_INCOMING_BYTES, forgotten),
    ]


def _words(changes: Changes) -> list[Write]:
    sent: list[Values] = []
    received: list[Values] = []
    for (sender, _), row in changes.words.items():
        into = received if sender else sent
        into += [(row.number, word.path, word.text) for word in row.words]
    return [
        Insert("outgoing_word", ("position", "path", "text"), sent),
        Insert("incoming_word", ("row", "path", "text"), received),
    ]


def _receipt_values(row: ReceiptRow) -> Values:
    position, receipt = row
    return position, receipt.receipt_id, receipt.received_at, *parcel_values(receipt.parcel)


def _outgoing_values(row: OutgoingRow) -> Values:
    filed = (row.expires_at, row.due_at, row.keep_until, row.entered, row.held)
    return (*OUTGOING.values(row.stored.outgoing), *filed)


def _incoming_values(row: IncomingRow) -> Values:
    filed = (row.stored.position, row.keep_until, row.held)
    return (*INCOMING.values(row.stored.incoming), *filed, *(row.answer or (None, None, False)))


def _note(
    saved: dict[tuple[str, ...], list[Values]],
    names: tuple[str, ...],
    before: Values,
    after: Values,
    key: int,
) -> None:
    """SQLite refiles a row in every index that a statement names a column of, changed or not, and
    PostgreSQL in every index if it names one of any: so only what changed is named."""
    places = [place for place, value in enumerate(after) if value != before[place]]
    if places:
        columns = tuple([names[place] for place in places])
        saved.setdefault(columns, []).append((*[after[place] for place in places], key))


def names_in(changes: Changes) -> list[str]:
    """Every MessageId that a new row names."""
    names = [row.stored.outgoing.message_id for old, row in changes.outgoing if old is None]
    names += [row.stored.incoming.message_id for old, row in changes.incoming if old is None]
    return names + [row[_MESSAGE] for row in changes.journal if row[_MESSAGE] is not None]
