"""Rows and values: how SQLite's columns become records, and records columns.

The order of fields here is the order of columns in every statement. A test compares it
with the values' own fields, so that a field added there cannot be forgotten here.

What is read may have been damaged since it was written. Where a message is acted upon, that is
an error of its own (StoreDamaged). Where messages are listed it must hide none of the others, so
a value that cannot be read is shown as one that lets nobody act on the message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeAlias

from msgspec.structs import replace

from oncewire.errors import StoreDamaged
from oncewire.message.envelope import MessageKind
from oncewire.message.header import SequenceStatus
from oncewire.protocol.documents import DocumentState, SplitDocument
from oncewire.protocol.receiving import Held, ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.sequence import SequenceRange
from oncewire.protocol.states import Incoming, IncomingState, Outgoing, OutgoingState, Phase, Proof
from oncewire.store.records import (
    MessageFacts,
    SpoolSlice,
    StoredAnswer,
    StoredIncoming,
    StoredOutgoing,
    StoredParcel,
)
from oncewire.store.transition.rows import AnswerHead

Values: TypeAlias = tuple[Any, ...]

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode

# Looking a member up in a dictionary is several times cheaper than calling the class.
_OUTGOING_STATES = {state.value: state for state in OutgoingState}
_INCOMING_STATES = {state.value: state for state in IncomingState}
_STATUSES = {None: None} | {status.value: status for status in SequenceStatus}
_PROOFS = {None: None} | {proof.value: proof for proof in Proof}
STATUS_WORDS = tuple(status.value for status in SequenceStatus)
_KINDS = {kind.value: kind for kind in MessageKind}

# --- what the statements name -------------------------------------------------------------

OUTGOING_STATE = (
    *("terms_id", "submitted_at", "channel", "state", "epoch", "number", "status"),
    *("attempts", "attempts_here", "attempts_lost", "transport", "resumes"),
    *("first_sent_at", "last_sent_at", "next_attempt_at", "expires_at"),
    *("reason", "notice_owed", "late", "failures", "repeats", "proved_by"),
    "taken_back",
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
DOCUMENT = (
    *("sender", "split_id", "total", "terms_id", "begun_at", "state", "released", "done"),
    *("size", "latest_at", "position", "last_part", "channel", "about"),
)
PHASE = ("ending", "alone")
"""The columns of `SendingChannel.phase`."""
RENAMED = {"previous_stamp": "oldest_stamp"}
"""Columns keep the names that they were made with: which field such a one holds."""
PARCEL = ("content_type", "headers", "layout", "body")

INCOMING_FACTS = tuple("facts_digest" if name == "digest" else name for name in FACTS)
"""The received message's own digest has that column name already."""

outgoing_state = attrgetter(*OUTGOING_STATE)
incoming_state = attrgetter(*INCOMING_STATE)
facts_values = attrgetter(*FACTS)

# --- messages -----------------------------------------------------------------------------

_OUT, _IN, _FACTS = len(OUTGOING_STATE), len(INCOMING_STATE), len(FACTS)


_UNREADABLE = (KeyError, ValueError, TypeError, IndexError, AttributeError, RecursionError)
"""What comes of values that nobody here wrote."""


@contextmanager
def whole(message_id: str) -> Iterator[None]:
    """Say of which message it is that something cannot be read."""
    try:
        yield
    except _UNREADABLE as error:
        raise StoreDamaged(
            f"the stored message {message_id} is damaged: {type(error).__name__} {error}",
            message_id=message_id,
            remedy="put its row back from a backup, or give it up with `oncewire abandon`",
        ) from error


def read_outgoing(message_id: str, values: Sequence[Any]) -> Outgoing:
    """The protocol's state of a sent message from its columns."""
    fields: list[Any] = [message_id, *values]
    fields[4] = _OUTGOING_STATES[fields[4]]
    fields[7] = _STATUSES[fields[7]]
    fields[18], fields[19] = bool(fields[18]), bool(fields[19])
    fields[22] = _PROOFS[fields[22]]
    fields[23] = bool(fields[23])
    return Outgoing(*fields)


def read_stored_outgoing(row: Values) -> StoredOutgoing:
    """From `message_id, position, peer, relayed_from, hop, agreement_id`, the state and the
    facts."""
    message_id, position, peer, *rest = row[:6]
    with whole(message_id):
        outgoing = read_outgoing(message_id, row[6 : 6 + _OUT])
        return StoredOutgoing(outgoing, _facts(row[6 + _OUT :]), peer, position, *rest)


def list_outgoing(rows: Sequence[Values]) -> list[StoredOutgoing]:
    """The same for many: one that is damaged says so and hides none of the others."""
    found = []
    for row in rows:
        try:
            found.append(read_stored_outgoing(row))
        except StoreDamaged as problem:
            mended = read_stored_outgoing(mended_outgoing(row))
            found.append(replace(mended, damage=problem.problem))
    return found


def mended_outgoing(row: Values) -> Values:
    """The row with harmless values for those that cannot be read: whoever sees it sends nothing
    and calls nothing delivered; the operator decides."""
    values = list(row)
    for index, known, harmless in (
        (6 + 3, _OUTGOING_STATES, OutgoingState.SUSPENDED.value),
        (6 + 6, _STATUSES, None),
        (6 + _OUT - 2, _PROOFS, None),
        (6 + _OUT + 8, _KINDS, MessageKind.NORMAL.value),
    ):
        if values[index] not in known:
            values[index] = harmless
    return tuple(values)


def read_stored_incoming(row: Values) -> StoredIncoming:
    """From `message_id, sender, row, position, peer, transport, hop, agreement_id`, the state,
    the facts and the answer's three columns, and, where they were asked for, the parcel, the
    answer's and the view."""
    with whole(row[0]):
        return _stored_incoming(row)


def _stored_incoming(row: Values) -> StoredIncoming:
    message_id, sender, number, position, peer, transport, hop, agreement_id = row[:8]
    fields: list[Any] = [sender, message_id, *row[8 : 8 + _IN]]
    fields[5] = _INCOMING_STATES[fields[5]]
    incoming = Incoming(*fields)
    facts = _facts(row[8 + _IN : 8 + _IN + _FACTS])
    parcel: StoredParcel | None = None
    answer: StoredAnswer | None = None
    view: bytes | None = None
    answered, bytes_of = row[8 + _IN + _FACTS :][:3], row[8 + _IN + _FACTS + 3 :]
    if bytes_of:
        parcel = read_parcel(bytes_of[:4])
        with suppress(*_UNREADABLE):
            # Without it the message is answered anew; it must not take the message with it.
            answer = read_answer(answered, bytes_of[4:8])
        view = bytes_of[8]
    placed = (position, hop, number, agreement_id, view, answered[0] is not None)
    return StoredIncoming(incoming, facts, peer, transport, parcel, answer, *placed)


def list_incoming(rows: Sequence[Values]) -> list[StoredIncoming]:
    """Messages without their bytes, to find and to order them. Whoever acts on one reads it
    whole, and is told then if it is damaged."""
    return [read_stored_incoming(mended_incoming(row)) for row in rows]


def mended_incoming(row: Values) -> Values:
    """The row with harmless values for those that cannot be read."""
    values = list(row)
    for index, known, harmless in (
        (8 + 3, _INCOMING_STATES, IncomingState.HELD.value),
        (8 + _IN + 8, _KINDS, MessageKind.NORMAL.value),
    ):
        if values[index] not in known:
            values[index] = harmless
    return tuple(values)


def _facts(values: Values) -> MessageFacts:
    fields: list[Any] = list(values)
    fields[8] = _KINDS[fields[8]]
    return MessageFacts(*fields)


def state_of_outgoing(row: Values) -> OutgoingState | None:
    """The state in the columns that `read_stored_outgoing` reads, if it is one."""
    return _OUTGOING_STATES.get(row[6 + 3])


def state_of_incoming(row: Values) -> IncomingState | None:
    """The state in the columns that `read_stored_incoming` reads, if it is one."""
    return _INCOMING_STATES.get(row[8 + 3])


def read_answer_head(columns: Values) -> AnswerHead | None:
    """From `answer_id, answer_kind, answer_owed`; of a damaged kind nothing is told."""
    answer_id, kind, owed = columns
    if answer_id is None or kind not in _KINDS:
        return None
    return AnswerHead(answer_id, _KINDS[kind], bool(owed))


def read_answer(columns: Values, parcel: Values) -> StoredAnswer | None:
    """From `answer_id, answer_kind, answer_owed` and the answer's parcel."""
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


def outgoing_values(parcel: StoredParcel | None, files: tuple[SpoolSlice, ...]) -> Values:
    """The same of what is sent; a draft has no parcel yet, and may have files."""
    if parcel is not None or not files:
        return parcel_values(parcel)
    return None, None, _encode([[file.name, file.offset, file.length] for file in files]), None


def read_files(layout: str) -> tuple[SpoolSlice, ...]:
    """The files of a draft."""
    return tuple(SpoolSlice(*piece) for piece in json.loads(layout))


def read_parcel(values: Values) -> StoredParcel | None:
    """The parcel of those columns, cut as it was."""
    content_type, headers, layout, body = values
    if content_type is None:
        return None
    if not isinstance(body, bytes):
        raise TypeError("there is no body")
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


_SPOOL_NAME = re.compile(r"[0-9a-f]{64}")


def spool_names(layout: str) -> set[str]:
    """The files that a parcel with this layout is made of."""
    try:
        return {str(piece[0]) for piece in json.loads(layout) if not isinstance(piece, int)}
    except _UNREADABLE:
        # What is left of it may still be mended, if its file is kept.
        return set(_SPOOL_NAME.findall(layout))


# --- channels -----------------------------------------------------------------------------

_sending_values = attrgetter(*(name for name in SENDING if name not in PHASE), "phase")
_receiving_values = attrgetter(*(RENAMED.get(name, name) for name in RECEIVING))
_SETTLED, _HELD = SENDING.index("settled"), RECEIVING.index("held")
_EPOCH = SENDING.index("epoch")
_SENT_IN, _RECEIVED_IN = SENDING.index("numbers"), RECEIVING.index("numbers")
_PHASE, _SUSPENDED = SENDING.index(PHASE[0]), SENDING.index("suspended")


def sending_values(channel: SendingChannel) -> Values:
    """The columns of SENDING."""
    *values, phase = _sending_values(channel)
    values[_PHASE:_PHASE] = (phase is Phase.ENDING, phase is Phase.OPENING)
    values[_SETTLED] = _encode(sorted(channel.settled))
    values[_SENT_IN] = _range_text(channel.numbers)
    return tuple(values)


@contextmanager
def _whole_channel(key: str) -> Iterator[None]:
    try:
        yield
    except _UNREADABLE as error:
        raise StoreDamaged(
            f"the stored channel {key} is damaged: {type(error).__name__} {error}",
            channel=key,
            remedy="put its row back from a backup, or have it made anew from its messages with "
            f"`oncewire resume --channel '{key}'`",
        ) from error


POSSIBLE = 2**56
"""No instant and no count of ours is as large."""
MEASURES = ("last_stamp", "paused_until", "newest_stamp", "previous_stamp", "widest")


def _check_possible(names: Sequence[str], values: Sequence[Any]) -> None:
    for name, value in zip(names, values, strict=True):
        if name in MEASURES and not -POSSIBLE < value < POSSIBLE:
            raise ValueError(f"{name} is {value}")


def read_sending(row: Values) -> SendingChannel:
    """The channel of those columns."""
    fields: list[Any] = list(row)
    with _whole_channel(row[0]):
        fields[_SETTLED] = frozenset(int(number) for number in json.loads(fields[_SETTLED]))
        fields[_SUSPENDED] = bool(fields[_SUSPENDED])
        fields[_SENT_IN] = _range(fields[_SENT_IN])
        _check_possible(SENDING, fields)
        ending, alone = fields[_PHASE : _PHASE + len(PHASE)]
        fields[_PHASE : _PHASE + len(PHASE)] = [_phase(fields[_EPOCH], ending, alone)]
        return SendingChannel(*fields)


def _phase(epoch: int, ending: Any, alone: Any) -> Phase:
    """A stream that was mended may have both marks: what is under way is waited for either way."""
    if epoch == 0:
        return Phase.UNBEGUN
    return Phase.ENDING if ending else Phase.OPENING if alone else Phase.RUNNING


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
    with _whole_channel(row[0]):
        fields[_HELD] = tuple(
            Held(int(number), message_id, refused=_REFUSED in mark, handed=_HANDED in mark)
            for number, message_id, *mark in json.loads(fields[_HELD])
        )
        fields[_RECEIVED_IN] = _range(fields[_RECEIVED_IN])
        _check_possible(RECEIVING, fields)
        return ReceivingChannel(*fields)


def _range_text(numbers: SequenceRange | None) -> str | None:
    return None if numbers is None else _encode((numbers.first, numbers.last))


@lru_cache(maxsize=64)
def _range(text: str | None) -> SequenceRange | None:
    return None if text is None else SequenceRange(*json.loads(text))


# --- documents ----------------------------------------------------------------------------

_document_values = attrgetter(*DOCUMENT)
_STATE, _DONE, _ABOUT = map(DOCUMENT.index, ("state", "done", "about"))


def document_values(document: SplitDocument) -> Values:
    """The columns of DOCUMENT."""
    values = list(_document_values(document))
    values[_DONE], values[_ABOUT] = _encode(document.done), _encode(document.about)
    return tuple(values)


def read_document(row: Values) -> SplitDocument:
    """The document of those columns."""
    fields: list[Any] = list(row)
    with whole(row[1]):
        fields[_STATE] = DocumentState(fields[_STATE])
        fields[_DONE] = tuple((int(first), int(last)) for first, last in json.loads(fields[_DONE]))
        fields[_ABOUT] = tuple(map(str, json.loads(fields[_ABOUT])))
        return SplitDocument(*fields)
