"""Sent messages on SQLite: the part of a transition that concerns them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from oncewire.errors import InvalidValue, NotAllowed, StoreDamaged, UnknownMessage
from oncewire.message.instant import Instant
from oncewire.protocol.outgoing import Outgoing
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import OutgoingState
from oncewire.store.records import StoredOutgoing, StoredParcel
from oncewire.store.schedule import (
    due_at,
    expires_at,
    has_entered,
    outgoing_keep_until,
    sends_from,
)
from oncewire.store.sqlite.rows import (
    FACTS,
    OUTGOING_STATE,
    PARCEL,
    Values,
    facts_values,
    list_outgoing,
    outgoing_state,
    parcel_values,
    read_parcel,
    read_stored_outgoing,
    whole,
)
from oncewire.store.sqlite.writer import SqliteWriter

# Every statement is put together from constants of this package; values are always bound.
_STATE = ", ".join(OUTGOING_STATE)
_SAVED = (*OUTGOING_STATE, "deadline", "due_at", "keep_until")
_COLUMNS = (
    f"position, message, {', '.join(_SAVED)}, entered, {', '.join(FACTS)}, "
    "peer, relayed_from, hop, agreement_id"
)
_INSERT = f"INSERT INTO outgoing ({_COLUMNS}) VALUES ({', '.join('?' * len(_COLUMNS.split(',')))})"  # noqa: S608
_INSERT_BYTES = (
    f"INSERT INTO outgoing_bytes (position, draft, {', '.join(PARCEL)}) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608
)
_UPDATE_BYTES = (
    f"UPDATE outgoing_bytes SET draft = NULL, {', '.join(f'{name} = ?' for name in PARCEL)} "  # noqa: S608
    "WHERE position = ?"
)

VALUES = (
    f"message_id, position, peer, relayed_from, hop, agreement_id, {_STATE}, {', '.join(FACTS)}"
)
"""What `read_stored_outgoing` reads."""
FROM = "FROM outgoing JOIN message ON message.id = outgoing.message "
_SELECT = f"SELECT {VALUES} {FROM}"
_SELECT_ONE = _SELECT + "WHERE message = ?"
SELECT_OWED = _SELECT + "WHERE notice_owed = 1 AND position > ? ORDER BY position LIMIT ?"

# The conditions repeat those of the partial indexes word for word; otherwise SQLite would
# not use them.
_OF_CHANNEL = (
    "WHERE channel = ? AND channel IS NOT NULL "
    "AND state IN ('waiting', 'outstanding', 'suspended') "
)
_BYTES = (
    f"SELECT {', '.join(PARCEL)}, draft FROM outgoing_bytes "  # noqa: S608
    "WHERE position = (SELECT position FROM outgoing WHERE message = ?)"
)
_REFILE = (
    f"UPDATE outgoing SET due_at = max(next_attempt_at, ?) {_OF_CHANNEL} "  # noqa: S608
    "AND state = 'outstanding'"
)
_DUE = (
    "SELECT message_id FROM outgoing JOIN message ON message.id = outgoing.message "
    "WHERE due_at <= ? ORDER BY due_at, position LIMIT ?"
)
_EXPIRED = (
    "SELECT message_id FROM outgoing JOIN message ON message.id = outgoing.message "
    "WHERE deadline <= ? ORDER BY deadline, position LIMIT ?"
)


@cache
def _update(columns: tuple[str, ...]) -> str:
    """The statement that saves these columns; there are few different ones."""
    settings = ", ".join(
        # A message keeps the place it first had in the window.
        f"{name} = iif({name} = 0, ?, {name})" if name == "entered" else f"{name} = ?"
        for name in columns
    )
    return f"UPDATE outgoing SET {settings} WHERE position = ?"  # noqa: S608


class OutgoingSteps:
    """See `contract.Transaction`, whose docstrings hold here."""

    _writer: SqliteWriter
    # What this transition knows of its messages, so that saving one writes what changed.
    _known_outgoing: dict[str, tuple[int, Outgoing]]

    def _channel_changed(self, before: SendingChannel | None, channel: SendingChannel) -> None:
        """Refile what waits for its next attempt when the channel stands, or goes on."""
        start = sends_from(channel)
        if start == sends_from(before):
            return
        # In SQLite, max() with NULL is NULL: a channel that stands has nothing due.
        self._writer.run(_REFILE, (start, channel.key))

    def add_outgoing(
        self, stored: StoredOutgoing, *, parcel: StoredParcel | None, draft: bytes | None
    ) -> StoredOutgoing:
        outgoing, writer = stored.outgoing, self._writer
        if (parcel is None) == (draft is None):
            raise InvalidValue(
                f"message {outgoing.message_id} needs a parcel or a draft",
                remedy="give exactly one of them",
            )
        number = writer.number_of(outgoing.message_id)
        if writer.run("SELECT 1 FROM outgoing WHERE message = ?", (number,)):
            raise NotAllowed(
                f"message {outgoing.message_id} was submitted before",
                remedy="use a new MessageId, or ask for the state of the first",
            )
        writer.check_agreement(stored.agreement_id)
        filed, content = self._index_values(outgoing), parcel_values(parcel)
        # Only ever compared, so a number that is not needed is no loss.
        entered = writer.count("entered") if has_entered(outgoing) else 0
        position = writer.count("outgoing")
        writer.run(
            _INSERT,
            (
                *(position, number, *outgoing_state(outgoing), *filed, entered),
                *(*facts_values(stored.facts), stored.peer, stored.relayed_from, stored.hop),
                stored.agreement_id,
            ),
        )
        writer.run(_INSERT_BYTES, (position, draft, *content))
        self._known_outgoing[outgoing.message_id] = position, outgoing
        return replace(stored, position=position)

    def _index_values(self, outgoing: Outgoing) -> tuple[Instant | None, Instant | None, Instant]:
        writer = self._writer
        terms = writer.known_terms(outgoing.terms_id)
        channel = None
        if outgoing.channel is not None and outgoing.state is OutgoingState.OUTSTANDING:
            channel = writer.sending.get(outgoing.channel)
        due, keep_until = due_at(outgoing, channel), outgoing_keep_until(outgoing, terms)
        return expires_at(outgoing, terms), due, keep_until

    def _index_values_before(
        self, known: Outgoing
    ) -> tuple[Instant | None, Instant | None, Instant]:
        try:
            return self._index_values(known)
        except (StoreDamaged, NotAllowed):
            # Its terms or its stream may be what cannot be read: it is filed anew.
            return -1, -1, -1

    def outgoing(self, message_id: str) -> StoredOutgoing | None:
        number = self._writer.find_number(message_id)
        rows = self._writer.run(_SELECT_ONE, (number,))
        if not rows:
            return None
        stored = read_stored_outgoing(rows[0])
        self._known_outgoing[message_id] = stored.position, stored.outgoing
        return stored

    def outgoing_parcel(self, message_id: str) -> StoredParcel | None:
        row = self._bytes(message_id)
        with whole(message_id):
            return None if row is None else read_parcel(row[:4])

    def draft(self, message_id: str) -> bytes | None:
        row = self._bytes(message_id)
        return None if row is None else row[4]

    def _bytes(self, message_id: str) -> Values | None:
        number = self._writer.find_number(message_id)
        rows = self._writer.run(_BYTES, (number,))
        return rows[0] if rows else None

    def save_outgoing(self, outgoing: Outgoing, *, parcel: StoredParcel | None = None) -> None:
        after = (*outgoing_state(outgoing), *self._index_values(outgoing))
        message_id = outgoing.message_id
        if message_id not in self._known_outgoing and self.outgoing(message_id) is None:
            raise unknown(message_id)
        position, known = self._known_outgoing[message_id]
        before = (*outgoing_state(known), *self._index_values_before(known))
        # SQLite refiles a row in every index that a statement names a column of, changed or not.
        columns = [name for name, was, now in zip(_SAVED, before, after, strict=True) if was != now]
        values = [now for was, now in zip(before, after, strict=True) if was != now]
        if has_entered(outgoing) and not has_entered(known):
            columns.append("entered")
            values.append(self._writer.count("entered"))
        if columns:
            self._writer.run(_update(tuple(columns)), (*values, position))
        if parcel is not None:
            self._writer.run(_UPDATE_BYTES, (*parcel_values(parcel), position))
        self._known_outgoing[message_id] = position, outgoing

    def waiting(self, channel: str, limit: int) -> list[StoredOutgoing]:
        tail = _OF_CHANNEL + "AND state = 'waiting' ORDER BY position LIMIT ?"
        return list_outgoing(self._writer.run(_SELECT + tail, (channel, limit)))

    def live(self, channel: str) -> list[StoredOutgoing]:
        tail = _OF_CHANNEL + "AND state <> 'waiting' ORDER BY epoch, entered"
        return list_outgoing(self._writer.run(_SELECT + tail, (channel,)))

    def due(self, now: Instant, limit: int) -> list[str]:
        return [row[0] for row in self._writer.run(_DUE, (now, limit))]

    def expired(self, now: Instant, limit: int) -> list[str]:
        return [row[0] for row in self._writer.run(_EXPIRED, (now, limit))]

    def notices_owed(self, limit: int, after: int = 0) -> list[StoredOutgoing]:
        return list_outgoing(self._writer.run(SELECT_OWED, (after, limit)))

    def responses_to(self, message_id: str, peer: str) -> list[StoredOutgoing]:
        tail = (
            "WHERE ref_to = ? AND peer = ? ORDER BY first_sent_at IS NULL, "
            "iif(first_sent_at IS NULL, 0, entered), first_sent_at, position"
        )
        return list_outgoing(self._writer.run(_SELECT + tail, (message_id, peer)))


def unknown(message_id: str) -> UnknownMessage:
    """The error for saving what is not there."""
    return UnknownMessage(f"message {message_id} is not kept here", remedy="add it first")
