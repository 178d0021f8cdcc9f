"""Received messages on SQLite: the part of a transition that concerns them."""

from __future__ import annotations

from functools import cache

from oncewire.errors import InvalidValue, NotAllowed, StoreDamaged
from oncewire.message.instant import Instant
from oncewire.protocol.incoming import Incoming
from oncewire.protocol.states import IncomingState
from oncewire.store.records import StoredAnswer, StoredIncoming
from oncewire.store.schedule import answer_owed_until, incoming_keep_until
from oncewire.store.sqlite.outgoing import unknown
from oncewire.store.sqlite.rows import (
    INCOMING_FACTS,
    INCOMING_STATE,
    PARCEL,
    Values,
    facts_values,
    incoming_state,
    list_incoming,
    parcel_values,
    read_answer,
    read_stored_incoming,
    whole,
)
from oncewire.store.sqlite.writer import SqliteWriter

# Every statement is put together from constants of this package; values are always bound.
_STATE = ", ".join(INCOMING_STATE)
_ANSWER = tuple(f"answer_{name}" for name in PARCEL)
_COLUMNS = (
    f"row, message, sender, {_STATE}, position, keep_until, answer_id, answer_kind, answer_owed, "
    f"{', '.join(INCOMING_FACTS)}, peer, transport, hop, agreement_id"
)
# The unique key decides; a look-up before it would be a guess.
_INSERT = (
    f"INSERT INTO incoming ({_COLUMNS}) VALUES ({', '.join('?' * len(_COLUMNS.split(',')))}) "  # noqa: S608
    "ON CONFLICT (message, sender) DO NOTHING"
)
_INSERT_BYTES = (
    f"INSERT INTO incoming_bytes (row, {', '.join(PARCEL + _ANSWER)}, view) "  # noqa: S608
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_SAVED = (*INCOMING_STATE, "keep_until", "position")
_UPDATE_ANSWER = (
    "UPDATE incoming SET answer_id = ?, answer_kind = ?, answer_owed = ? "
    "WHERE message = ? AND sender = ? RETURNING row"
)
_ANSWER_LEFT = "UPDATE incoming SET answer_owed = 0 WHERE message = ? AND sender = ?"
# Nothing is written when the bytes are there already and only `owed` changes.
_UPDATE_ANSWER_BYTES = (
    f"UPDATE incoming_bytes SET ({', '.join(_ANSWER)}) = (?1, ?2, ?3, ?4) WHERE row = ?5 "  # noqa: S608
    f"AND ({', '.join(_ANSWER)}) IS NOT (?1, ?2, ?3, ?4)"
)

VALUES = (
    f"message_id, sender, incoming.row, position, peer, transport, hop, agreement_id, {_STATE}, "
    f"{', '.join(INCOMING_FACTS)}, answer_id, answer_kind, answer_owed"
)
"""What `read_stored_incoming` reads of a message without its bytes."""
FROM = "FROM incoming JOIN message ON message.id = incoming.message "
SELECT = (
    f"SELECT {VALUES}, {', '.join(PARCEL + _ANSWER)}, view "
    # Bytes that are gone must not hide that the message is there.
    f"{FROM} LEFT JOIN incoming_bytes ON incoming_bytes.row = incoming.row "
)
"""The same with parcel, answer and view."""
_LIST = f"SELECT {VALUES} {FROM}"
_SELECT_ONE = SELECT + "WHERE message = ? AND sender = ?"
_SELECT_ANSWER = (
    f"SELECT answer_id, answer_kind, answer_owed, {', '.join(_ANSWER)} FROM incoming "  # noqa: S608
    "LEFT JOIN incoming_bytes ON incoming_bytes.row = incoming.row "
    "WHERE message = ? AND sender = ?"
)
# Without the bytes: of those that are owed, most are young.
_OWED = (
    "SELECT row, received_at, terms_id FROM incoming "
    "WHERE answer_owed = 1 AND received_at <= ? ORDER BY row"
)


@cache
def _update(columns: tuple[str, ...]) -> str:
    """The statement that saves these columns; there are few different ones."""
    settings = ", ".join(f"{name} = ?" for name in columns)
    return f"UPDATE incoming SET {settings} WHERE row = ?"  # noqa: S608


class IncomingSteps:
    """See `contract.Transaction`, whose docstrings hold here."""

    _writer: SqliteWriter
    # What this transition knows of its messages, so that saving one writes what changed.
    _known_incoming: dict[tuple[str, str], tuple[int, int, Incoming]]

    def add_incoming(self, stored: StoredIncoming) -> StoredIncoming | None:
        incoming, writer, answer = stored.incoming, self._writer, stored.answer
        if incoming.state is IncomingState.ARRIVING:
            raise InvalidValue(
                f"message {incoming.message_id} is still arriving",
                remedy="judge it first, then store it in the state it got",
            )
        terms = writer.known_terms(incoming.terms_id)
        writer.check_agreement(stored.agreement_id)
        number, row = writer.number_of(incoming.message_id), writer.next("incoming")
        ready = incoming.state is IncomingState.READY
        position = writer.next("ready") if ready else 0
        values = (
            *(row, number, incoming.sender, *incoming_state(incoming)),
            *(position, incoming_keep_until(incoming, terms)),
            *((None, None, 0) if answer is None else _answered(answer)),
            *facts_values(stored.facts),
            *(stored.peer, stored.transport, stored.hop, stored.agreement_id),
        )
        reply = parcel_values(None if answer is None else answer.parcel)
        content = (row, *parcel_values(stored.parcel), *reply, stored.view)
        writer.run(_INSERT, values)
        if not writer.changed_rows():
            return self.incoming(incoming.sender, incoming.message_id)
        writer.count("incoming")
        if ready:
            writer.count("ready")
        writer.run(_INSERT_BYTES, content)
        return None

    def incoming(self, sender: str, message_id: str) -> StoredIncoming | None:
        number = self._writer.find_number(message_id)
        rows = self._writer.run(_SELECT_ONE, (number, sender))
        if not rows:
            return None
        stored = read_stored_incoming(rows[0])
        self._known_incoming[sender, message_id] = stored.row, stored.position, stored.incoming
        return stored

    def incoming_by_id(self, message_id: str) -> list[StoredIncoming]:
        number = self._writer.find_number(message_id)
        tail = "WHERE message = ? ORDER BY incoming.row"
        rows = self._writer.run(SELECT + tail, (number,))
        return [read_stored_incoming(row) for row in rows]

    def save_incoming(self, incoming: Incoming) -> None:
        writer, key = self._writer, (incoming.sender, incoming.message_id)
        terms = writer.known_terms(incoming.terms_id)
        if key not in self._known_incoming and self.incoming(*key) is None:
            raise unknown(incoming.message_id)
        row, position, known = self._known_incoming[key]
        # Filed anew where its terms were what cannot be read.
        same = known.terms_id == incoming.terms_id
        keep_until = incoming_keep_until(incoming, terms)
        kept_until = incoming_keep_until(known, terms) if same else None
        before = (*incoming_state(known), kept_until, position)
        if position == 0 and incoming.state is IncomingState.READY:
            position = writer.count("ready")
        after = (*incoming_state(incoming), keep_until, position)
        # SQLite refiles a row in every index that a statement names a column of, changed or not.
        columns = [name for name, was, now in zip(_SAVED, before, after, strict=True) if was != now]
        values = [now for was, now in zip(before, after, strict=True) if was != now]
        if columns:
            writer.run(_update(tuple(columns)), (*values, row))
        self._known_incoming[key] = row, position, incoming

    def save_answer(self, sender: str, message_id: str, answer: StoredAnswer) -> None:
        writer = self._writer
        key = (writer.find_number(message_id), sender)
        rows = writer.run(_UPDATE_ANSWER, (*_answered(answer), *key))
        if not rows:
            raise unknown(message_id)
        writer.run(_UPDATE_ANSWER_BYTES, (*parcel_values(answer.parcel), rows[0][0]))

    def answer(self, sender: str, message_id: str) -> StoredAnswer | None:
        number = self._writer.find_number(message_id)
        rows = self._writer.run(_SELECT_ANSWER, (number, sender))
        with whole(message_id):
            return read_answer(rows[0][:3], rows[0][3:]) if rows else None

    def answer_left(self, sender: str, message_id: str) -> None:
        key = (self._writer.find_number(message_id), sender)
        self._writer.run(_ANSWER_LEFT, key)

    def answers_owed(self, limit: int, after: int = 0) -> list[StoredIncoming]:
        tail = "WHERE answer_owed = 1 AND incoming.row > ? ORDER BY incoming.row LIMIT ?"
        return list_incoming(self._writer.run(_LIST + tail, (after, limit)))

    def answers_overdue(self, now: Instant, limit: int) -> list[StoredIncoming]:
        writer = self._writer
        late = [
            (row,)
            for row, received_at, terms_id in writer.run(_OWED, (now,))
            if self._is_overdue(received_at, terms_id, now)
        ]
        tail = "WHERE incoming.row = ?"
        found = [row for key in late[:limit] for row in writer.run(_LIST + tail, key)]
        return list_incoming(found)

    def _is_overdue(self, received_at: Instant, terms_id: str, now: Instant) -> bool:
        try:
            terms = self._writer.known_terms(terms_id)
        except (StoreDamaged, NotAllowed):
            # How long it is owed is not known any more, and it harms nobody to owe it.
            return False
        return answer_owed_until(received_at, terms) <= now

    def ready(self, now: Instant, limit: int) -> list[StoredIncoming]:
        tail = "WHERE state = 'ready' ORDER BY position LIMIT ?"
        found = self._writer.run(_LIST + tail, (limit,))
        tail = "WHERE state = 'handed_over' AND lease_until <= ? ORDER BY position LIMIT ?"
        lost = self._writer.run(_LIST + tail, (now, limit))
        if not lost:
            return list_incoming(found)
        both = sorted(list_incoming([*found, *lost]), key=lambda stored: stored.position)
        return both[:limit]

    def held(self, limit: int) -> list[StoredIncoming]:
        tail = "WHERE state = 'held' ORDER BY incoming.row LIMIT ?"
        return list_incoming(self._writer.run(_LIST + tail, (limit,)))


def _answered(answer: StoredAnswer) -> Values:
    return answer.answer_id, answer.kind, answer.owed
