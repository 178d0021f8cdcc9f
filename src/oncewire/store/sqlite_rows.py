"""Rows and values: how SQLite's columns become records, and records columns.

The order of fields here is the order of columns in every statement. A test compares it
with the values' own fields, so that a field added there cannot be forgotten here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeAlias

from oncewire.message.envelope import MessageKind
from oncewire.message.sequence import SequenceStatus
from oncewire.protocol.incoming import Incoming
from oncewire.protocol.outgoing import Outgoing
from oncewire.protocol.receiving import Held, ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.sequence import SequenceRange
from oncewire.protocol.states import IncomingState, OutgoingState, Proof
from oncewire.store.records import (
    MessageFacts,
    SpoolSlice,
    StoredAnswer,
    StoredIncoming,
    StoredOutgoing,
    StoredParcel,
)

Values: TypeAlias = tuple[Any, ...]

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode

# Looking a member up in a dictionary is several times cheaper than calling the class.
_OUTGOING_STATES = {state.value: state for state in OutgoingState}
_INCOMING_STATES = {state.value: state for state in IncomingState}
_STATUSES = {None: None} | {status.value: status for status in SequenceStatus}
_PROOFS = {None: None} | {proof.value: proof for proof in Proof}
_KINDS = {kind.value: kind for kind in MessageKind}

# --- what the statements name -------------------------------------------------------------

OUTGOING_STATE = (
    *("terms_id", "submitted_at", "channel", "state", "epoch", "number", "status"),
    *("attempts", "attempts_here", "attempts_lost", "transport", "resumes"),
    *("first_sent_at", "last_sent_at", "next_attempt_at", "expires_at"),
    *("reason", "notice_owed", "late", "failures", "proved_by"),
)
INCOMING_STATE = (
    *("digest", "terms_id", "received_at", "state", "channel", "epoch", "number"),
    *("hand_overs", "lease_until", "confirmed_at"),
)
FACTS = (
    *("cpa_id", "conversation_id", "from_party", "to_party", "service", "action"),
    *("timestamp", "ref_to", "kind", "digest", "size"),
    *("split_id", "split_number", "split_total"),
)
SENDING = (
    *("key", "epoch", "next_number", "first_unsettled", "settled", "used", "ending", "alone"),
    *("suspended", "suspended_reason", "suspended_by", "paused_until", "last_stamp", "numbers"),
)
RECEIVING = (
    *("key", "epoch", "expected", "passed", "furthest", "held"),
    *("newest_stamp", "previous_stamp", "numbers", "widest"),
)
PARCEL = ("content_type", "headers", "layout", "body")

INCOMING_FACTS = tuple("facts_digest" if name == "digest" else name for name in FACTS)
"""The received message's own digest has that column name already."""

outgoing_state = attrgetter(*OUTGOING_STATE)
incoming_state = attrgetter(*INCOMING_STATE)
facts_values = attrgetter(*FACTS)

# --- messages -----------------------------------------------------------------------------

_OUT, _IN, _FACTS = len(OUTGOING_STATE), len(INCOMING_STATE), len(FACTS)


def read_outgoing(message_id: str, values: Sequence[Any]) -> Outgoing:
    """The protocol's state of a sent message from its columns."""
    fields: list[Any] = [message_id, *values]
    fields[4] = _OUTGOING_STATES[fields[4]]
    fields[7] = _STATUSES[fields[7]]
    fields[18], fields[19] = bool(fields[18]), bool(fields[19])
    fields[21] = _PROOFS[fields[21]]
    return Outgoing(*fields)


def read_stored_outgoing(row: Values) -> StoredOutgoing:
    """From `message_id, position, peer, relayed_from, hop, agreement_id`, the state and the
    facts."""
    message_id, position, peer, *rest = row[:6]
    outgoing = read_outgoing(message_id, row[6 : 6 + _OUT])
    return StoredOutgoing(outgoing, _facts(row[6 + _OUT :]), peer, position, *rest)


def read_stored_incoming(row: Values) -> StoredIncoming:
    """From `message_id, sender, row, position, peer, transport, hop, agreement_id`, the state
    and the facts, and, where they were asked for, the answer's three columns, the parcel and
    its parcel."""
    message_id, sender, number, position, peer, transport, hop, agreement_id = row[:8]
    fields: list[Any] = [sender, message_id, *row[8 : 8 + _IN]]
    fields[5] = _INCOMING_STATES[fields[5]]
    incoming = Incoming(*fields)
    facts = _facts(row[8 + _IN : 8 + _IN + _FACTS])
    parcel: StoredParcel | None = None
    answer: StoredAnswer | None = None
    bytes_of = row[8 + _IN + _FACTS :]
    if bytes_of:
        parcel = read_parcel(bytes_of[3:7])
        answer = _answer(bytes_of[:3], bytes_of[7:])
    placed = (position, hop, number, agreement_id)
    return StoredIncoming(incoming, facts, peer, transport, parcel, answer, *placed)


def _facts(values: Values) -> MessageFacts:
    fields: list[Any] = list(values)
    fields[8] = _KINDS[fields[8]]
    return MessageFacts(*fields)


def _answer(columns: Values, parcel: Values) -> StoredAnswer | None:
    answer_id, kind, owed = columns
    content = read_parcel(parcel)
    if answer_id is None or content is None:
        return None
    return StoredAnswer(answer_id, _KINDS[kind], content, bool(owed))


# --- parcels ------------------------------------------------------------------------------

NO_PARCEL: Values = (None, None, None, None)


# A partner's messages have the same few headers again and again.
@lru_cache(maxsize=256)
def _headers_text(headers: tuple[tuple[str, str], ...]) -> str:
    return _encode(headers)


@lru_cache(maxsize=256)
def _headers(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in json.loads(text))


def parcel_values(parcel: StoredParcel | None) -> Values:
    """The columns of PARCEL."""
    if parcel is None:
        return NO_PARCEL
    headers = _headers_text(parcel.headers)
    parts = parcel.body
    if len(parts) == 1 and isinstance(parts[0], bytes):
        return parcel.content_type, headers, None, parts[0]
    layout = [
        [part.name, part.offset, part.length] if isinstance(part, SpoolSlice) else len(part)
        for part in parts
    ]
    inline = b"".join(part for part in parts if isinstance(part, bytes))
    return parcel.content_type, headers, _encode(layout), inline


def read_parcel(values: Values) -> StoredParcel | None:
    """The parcel of those columns, cut as it was."""
    content_type, headers, layout, body = values
    if content_type is None:
        return None
    pairs = _headers(headers)
    if layout is None:
        return StoredParcel(content_type, pairs, (body,))
    parts: list[bytes | SpoolSlice] = []
    start = 0
    for piece in json.loads(layout):
        if isinstance(piece, int):
            parts.append(body[start : start + piece])
            start += piece
        else:
            parts.append(SpoolSlice(*piece))
    return StoredParcel(content_type, pairs, tuple(parts))


def spool_names(layout: str) -> set[str]:
    """The files that a parcel with this layout is made of."""
    return {piece[0] for piece in json.loads(layout) if not isinstance(piece, int)}


# --- channels -----------------------------------------------------------------------------

_sending_values = attrgetter(*SENDING)
_receiving_values = attrgetter(*RECEIVING)
_SETTLED, _HELD = SENDING.index("settled"), RECEIVING.index("held")
_SENT_IN, _RECEIVED_IN = SENDING.index("numbers"), RECEIVING.index("numbers")
_FLAGS = tuple(SENDING.index(name) for name in ("ending", "alone", "suspended"))


def sending_values(channel: SendingChannel) -> Values:
    """The columns of SENDING."""
    values = list(_sending_values(channel))
    values[_SETTLED] = _encode(sorted(channel.settled))
    values[_SENT_IN] = _range_text(channel.numbers)
    return tuple(values)


def read_sending(row: Values) -> SendingChannel:
    """The channel of those columns."""
    fields: list[Any] = list(row)
    fields[_SETTLED] = frozenset(json.loads(fields[_SETTLED]))
    for flag in _FLAGS:
        fields[flag] = bool(fields[flag])
    fields[_SENT_IN] = _range(fields[_SENT_IN])
    return SendingChannel(*fields)


def receiving_values(channel: ReceivingChannel) -> Values:
    """The columns of RECEIVING."""
    values = list(_receiving_values(channel))
    values[_HELD] = _encode([_held_values(entry) for entry in channel.held])
    values[_RECEIVED_IN] = _range_text(channel.numbers)
    return tuple(values)


_REFUSED, _HANDED = 1, 2
"""What the third value of a held number says; most have none."""


def _held_values(entry: Held) -> Values:
    mark = _REFUSED if entry.refused else _HANDED if entry.handed else 0
    return (entry.number, entry.message_id, mark) if mark else (entry.number, entry.message_id)


def read_receiving(row: Values) -> ReceivingChannel:
    """The channel of those columns."""
    fields: list[Any] = list(row)
    fields[_HELD] = tuple(
        Held(number, message_id, refused=_REFUSED in mark, handed=_HANDED in mark)
        for number, message_id, *mark in json.loads(fields[_HELD])
    )
    fields[_RECEIVED_IN] = _range(fields[_RECEIVED_IN])
    return ReceivingChannel(*fields)


def _range_text(numbers: SequenceRange | None) -> str | None:
    return None if numbers is None else _encode((numbers.first, numbers.last))


@lru_cache(maxsize=64)
def _range(text: str | None) -> SequenceRange | None:
    return None if text is None else SequenceRange(*json.loads(text))
