"""Records and their columns in SQL.

The columns of a record are made from its fields: their names, their order in every statement, and
how a value is written and read, by the field's type. Migrations make the tables; a test compares
each table with its record.

What is read may have been damaged since it was written. Where a message is acted upon, that is
an error of its own (StoreDamaged). Where messages are listed it must hide none of the others, so
a value that cannot be read is shown as one with which no step acts on the message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from operator import attrgetter
from typing import Any, Generic, TypeVar, get_args

from msgspec import Struct
from msgspec.json import Decoder, Encoder, decode
from msgspec.structs import astuple, fields, replace

from oncewire.errors import StoreDamaged
from oncewire.message.envelope import MessageKind, SequenceStatus
from oncewire.protocol.documents import SplitDocument
from oncewire.protocol.receiving import Held, ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.sequence import SequenceRange
from oncewire.protocol.states import Incoming, IncomingState, Outgoing, OutgoingState, Phase, Proof
from oncewire.protocol.terms import Terms
from oncewire.store.records import (
    Incident,
    MessageFacts,
    Refusal,
    Removed,
    SpoolSlice,
    StoredAnswer,
    StoredIncoming,
    StoredOutgoing,
    StoredParcel,
)
from oncewire.store.sql.session import Values
from oncewire.store.transition.rows import AnswerHead

R = TypeVar("R", bound=Struct)

_encoder = Encoder(order="deterministic")


def _encode(value: object) -> str:
    """Compact JSON; a set in order, so that equal ones have one text."""
    return _encoder.encode(value).decode()


def _members(*kinds: type[Enum]) -> dict[str | None, Any]:
    """The members of an enumeration by their values. Looking one up in a dictionary is several
    times cheaper than calling the class."""
    return {member.value: member for kind in kinds for member in kind}


def _reader(kind: Any) -> Callable[[Any], Any] | None:
    """The function that turns a column's value into a field of that type; None: they are equal."""
    choices = get_args(kind) if type(None) in get_args(kind) else (kind,)
    enumerations = [each for each in choices if isinstance(each, type) and issubclass(each, Enum)]
    if enumerations:
        known = _members(*enumerations)
        return (known | {None: None} if len(choices) > 1 else known).__getitem__
    if kind is bool:
        return bool
    if {int, str} & set(choices):
        return None
    decode = Decoder(kind).decode
    return lambda text: None if text is None else decode(text)


def _writer(kind: Any) -> Callable[[Any], Any] | None:
    """The function that turns a field's value into a column's; None: they are equal."""
    if kind == SequenceRange | None:
        return lambda numbers: None if numbers is None else _encode(astuple(numbers))
    containers = (tuple, frozenset)
    return _encode if getattr(kind, "__origin__", None) in containers else None


class Columns(Generic[R]):
    """The columns of a record, or of the fields of it that are not its key.

    `key`: the first fields, which stand in other columns. `renamed`: columns keep the names that
    they were made with. `read`, `write`: of fields whose column is made in a way of its own.
    """

    def __init__(
        self,
        record: type[R],
        *,
        key: int = 0,
        renamed: Mapping[str, str] | None = None,
        read: Mapping[str, Callable[[Any], Any]] | None = None,
        write: Mapping[str, Callable[[Any], Any]] | None = None,
    ) -> None:
        kept = fields(record)[key:]
        read, write, renamed = read or {}, write or {}, renamed or {}
        self._record = record
        self.names = tuple(renamed.get(field.name, field.name) for field in kept)
        self.text = ", ".join(self.names)
        readers = [read.get(field.name) or _reader(field.type) for field in kept]
        writers = [write.get(field.name) or _writer(field.type) for field in kept]
        self._readers = [(key + place, each) for place, each in enumerate(readers) if each]
        self._writers = [(place, each) for place, each in enumerate(writers) if each]
        self._get = attrgetter(*(field.name for field in kept))
        # The columns' values of a record; most records need no call into Python for them.
        self.values: Callable[[R], Values] = self._written if self._writers else self._get

    def _written(self, record: R) -> Values:
        values = list(self._get(record))
        for place, write in self._writers:
            values[place] = write(values[place])
        return tuple(values)

    def read(self, *values: Any) -> R:
        """The record of its key and the columns' values."""
        given = list(values)
        for place, read in self._readers:
            given[place] = read(given[place])
        return self._record(*given)


# --- what the statements name -------------------------------------------------------------

OUTGOING = Columns(Outgoing, key=1)
INCOMING = Columns(Incoming, key=2)
FACTS = Columns(MessageFacts)
INCOMING_FACTS = Columns(MessageFacts, renamed={"digest": "facts_digest"})
"""Column names of the facts; `digest` is renamed, because the received message has that column."""
DOCUMENT = Columns(SplitDocument)
INCIDENT = Columns(Incident)
REFUSAL = Columns(Refusal)
PARCEL = ("content_type", "headers", "layout", "body")
ANSWER = tuple(f"answer_{name}" for name in PARCEL)

# Every statement is put together from constants of this package; values are always bound.
_SENT = ("message_id", "position", "peer", "relayed_from", "hop", "agreement_id")
_OUTGOING_VALUES = (*_SENT, *OUTGOING.names, *FACTS.names)
OUTGOING_VALUES = ", ".join(_OUTGOING_VALUES)
"""What `read_stored_outgoing` reads."""
FROM_OUTGOING = "FROM outgoing JOIN message ON message.id = outgoing.message "
_RECEIVED = (
    *("message_id", "sender", "incoming.row", "position", "peer", "transport", "hop"),
    "agreement_id",
)
_ANSWERED = ("answer_id", "answer_kind", "answer_owed")
_INCOMING_VALUES = (*_RECEIVED, *INCOMING.names, *INCOMING_FACTS.names, *_ANSWERED)
INCOMING_VALUES = ", ".join(_INCOMING_VALUES)
"""What `read_stored_incoming` reads of a message without its bytes."""
FROM_INCOMING = "FROM incoming JOIN message ON message.id = incoming.message "
WHOLE_INCOMING = (
    f"SELECT {INCOMING_VALUES}, {', '.join(PARCEL + ANSWER)}, view "
    # Bytes that are gone must not hide that the message is there.
    f"{FROM_INCOMING} LEFT JOIN incoming_bytes ON incoming_bytes.row = incoming.row "
)
"""The columns of INCOMING_VALUES, with parcel, answer and view."""
TERMS = "SELECT content FROM terms WHERE terms_id = ?"
"""What `read_terms` reads."""
REMOVED = (
    "SELECT message_id, sender, digest, state, at, removed_at, agreement_id "
    "FROM removed JOIN message ON message.id = removed.message "
)
"""What `read_removed` reads."""
DOCUMENTS = f"SELECT {DOCUMENT.text}, keep_until FROM document "  # noqa: S608
"""What `read_document` reads, and until when it is kept."""

# --- messages -----------------------------------------------------------------------------

_STATE_OUT = len(_SENT)
_FACTS_OUT = _STATE_OUT + len(OUTGOING.names)
_STATE_IN = len(_RECEIVED)
_FACTS_IN = _STATE_IN + len(INCOMING.names)
_ANSWER_IN = _FACTS_IN + len(FACTS.names)
_BYTES_IN = _ANSWER_IN + len(_ANSWERED)

_KINDS = _members(MessageKind)
_HARMLESS_OUTGOING = [
    (_OUTGOING_VALUES.index("state"), _members(OutgoingState), OutgoingState.SUSPENDED.value),
    (_OUTGOING_VALUES.index("status"), _members(SequenceStatus) | {None: None}, None),
    (_OUTGOING_VALUES.index("proved_by"), _members(Proof) | {None: None}, None),
    (_OUTGOING_VALUES.index("kind"), _KINDS, MessageKind.NORMAL.value),
]
_HARMLESS_INCOMING = [
    (_INCOMING_VALUES.index("state"), _members(IncomingState), IncomingState.HELD.value),
    (_INCOMING_VALUES.index("kind"), _KINDS, MessageKind.NORMAL.value),
]
"""Columns of enumerated values, and what is shown for a value that cannot be read."""


_UNREADABLE = (KeyError, ValueError, TypeError, IndexError, AttributeError, RecursionError)
"""What decoding a damaged value raises."""


@contextmanager
def whole(message_id: str) -> Iterator[None]:
    """Name the message in the error when something of it cannot be read."""
    try:
        yield
    except _UNREADABLE as error:
        raise StoreDamaged(
            f"the stored message {message_id} is damaged: {type(error).__name__} {error}",
            message_id=message_id,
            remedy="put its row back from a backup, or give it up with `oncewire abandon`",
        ) from error


def read_stored_outgoing(row: Values) -> StoredOutgoing:
    """From the columns of OUTGOING_VALUES."""
    message_id, position, peer, *rest = row[:_STATE_OUT]
    with whole(message_id):
        outgoing = OUTGOING.read(message_id, *row[_STATE_OUT:_FACTS_OUT])
        facts = FACTS.read(*row[_FACTS_OUT:])
        return StoredOutgoing(outgoing, facts, peer, position, *rest)


def list_outgoing(rows: Sequence[Values]) -> list[StoredOutgoing]:
    """Sent messages; one that is damaged says so and hides none of the others."""
    found = []
    for row in rows:
        try:
            found.append(read_stored_outgoing(row))
        except StoreDamaged as problem:
            mended = read_stored_outgoing(mended_outgoing(row))
            found.append(replace(mended, damage=problem.problem))
    return found


def mended_outgoing(row: Values) -> Values:
    """The row with harmless values for those that cannot be read: such a message is neither sent
    nor called delivered, and an operator decides about it."""
    return _mended(row, _HARMLESS_OUTGOING)


def _mended(
    row: Values, harmless: Sequence[tuple[int, dict[str | None, Any], str | None]]
) -> Values:
    values = list(row)
    for place, known, instead in harmless:
        if values[place] not in known:
            values[place] = instead
    return tuple(values)


def read_stored_incoming(row: Values) -> StoredIncoming:
    """From the columns of INCOMING_VALUES, or of WHOLE_INCOMING."""
    message_id, sender, number, position, peer, transport, hop, agreement_id = row[:_STATE_IN]
    with whole(message_id):
        incoming = INCOMING.read(sender, message_id, *row[_STATE_IN:_FACTS_IN])
        facts = INCOMING_FACTS.read(*row[_FACTS_IN:_ANSWER_IN])
        parcel: StoredParcel | None = None
        answer: StoredAnswer | None = None
        view: bytes | None = None
        answered, content = row[_ANSWER_IN:_BYTES_IN], row[_BYTES_IN:]
        if content:
            parcel = read_parcel(content[:4])
            with suppress(*_UNREADABLE):
                # Without it the message is answered anew; it must not take the message with it.
                answer = read_answer(answered, content[4:8])
            view = content[8]
        placed = (position, hop, number, agreement_id, view, answered[0] is not None)
        return StoredIncoming(incoming, facts, peer, transport, parcel, answer, *placed)


def list_incoming(rows: Sequence[Values]) -> list[StoredIncoming]:
    """Messages without their bytes, to find and to order them. A step that acts on one reads it
    whole, and is told then if it is damaged."""
    return [read_stored_incoming(mended_incoming(row)) for row in rows]


def mended_incoming(row: Values) -> Values:
    """The row with harmless values for those that cannot be read."""
    return _mended(row, _HARMLESS_INCOMING)


def has_state(row: Values, *, sent: bool) -> bool:
    """Whether the state in a row of OUTGOING_VALUES (`sent`) or INCOMING_VALUES can be read."""
    place, known, _ = (_HARMLESS_OUTGOING if sent else _HARMLESS_INCOMING)[0]
    return row[place] in known


def read_removed(row: Values) -> Removed:
    """From the columns of REMOVED."""
    message_id, sender, *rest = row
    return Removed(message_id, sender or None, *rest)


def read_terms(terms_id: str, content: str) -> Terms:
    """The kept terms, or StoreDamaged where they are not those that were kept."""
    try:
        terms = Terms.from_dict(decode(content))
    except _UNREADABLE as error:
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


_headers = Decoder(tuple[tuple[str, str], ...]).decode


def parcel_values(parcel: StoredParcel | None) -> Values:
    """The columns of PARCEL."""
    if parcel is None:
        return NO_PARCEL
    headers = _encode(parcel.headers)
    parts = parcel.body
    if len(parts) == 1 and isinstance(parts[0], bytes):
        return parcel.content_type, headers, None, parts[0]
    layout = [astuple(part) if isinstance(part, SpoolSlice) else len(part) for part in parts]
    inline = b"".join(part for part in parts if isinstance(part, bytes))
    return parcel.content_type, headers, _encode(layout), inline


def outgoing_values(parcel: StoredParcel | None, files: tuple[SpoolSlice, ...]) -> Values:
    """The columns of PARCEL of a sent message; a draft has no parcel yet, and may have files."""
    if parcel is not None or not files:
        return parcel_values(parcel)
    return None, None, _encode([astuple(file) for file in files]), None


_layout = Decoder(tuple[int | SpoolSlice, ...]).decode
"""Decodes the pieces of a body: a number of bytes of its own, or part of a spool file."""
read_files = Decoder(tuple[SpoolSlice, ...]).decode
"""The files of a draft, from its layout."""


def read_parcel(values: Values) -> StoredParcel | None:
    """The parcel in those columns, in the pieces of its layout."""
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
    for piece in _layout(layout):
        if isinstance(piece, SpoolSlice):
            parts.append(piece)
        else:
            parts.append(body[start : start + piece])
            start += piece
    return StoredParcel(content_type, pairs, tuple(parts))


_SPOOL_NAME = re.compile(r"[0-9a-f]{64}")


def spool_names(layout: str) -> set[str]:
    """The files that a parcel with this layout is made of."""
    try:
        return {piece.name for piece in _layout(layout) if isinstance(piece, SpoolSlice)}
    except _UNREADABLE:
        # What is left of it may still be mended, if its file is kept.
        return set(_SPOOL_NAME.findall(layout))


# --- channels -----------------------------------------------------------------------------


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
"""Larger than any instant or count of ours; a larger value is damage."""
MEASURES = ("last_stamp", "paused_until", "newest_stamp", "previous_stamp", "widest")


def _possible(value: Any) -> Any:
    if not -POSSIBLE < value < POSSIBLE:
        raise ValueError(f"a measure is {value}")
    return value


_REFUSED, _HANDED = 1, 2
"""Marks of a held number, as the third value of its entry; most entries have none."""


def _held_text(held: tuple[Held, ...]) -> str:
    marks = (_REFUSED if entry.refused else _HANDED if entry.handed else 0 for entry in held)
    return _encode(
        [
            (entry.number, entry.message_id, mark) if mark else (entry.number, entry.message_id)
            for entry, mark in zip(held, marks, strict=True)
        ]
    )


def _read_held(text: str) -> tuple[Held, ...]:
    return tuple(
        Held(int(number), message_id, refused=_REFUSED in mark, handed=_HANDED in mark)
        for number, message_id, *mark in decode(text)
    )


_SENDING = Columns(SendingChannel, read={"phase": Phase} | dict.fromkeys(MEASURES, _possible))
_PHASE = _SENDING.names.index("phase")
SENDING = (*_SENDING.names[:_PHASE], "ending", "alone", *_SENDING.names[_PHASE + 1 :])
"""Columns of a sending channel; the phase has two of them."""
RECEIVING = Columns(
    ReceivingChannel,
    renamed={"oldest_stamp": "previous_stamp"},
    read={"held": _read_held, "oldest_stamp": _possible} | dict.fromkeys(MEASURES, _possible),
    write={"held": _held_text},
)


def sending_values(channel: SendingChannel) -> Values:
    """The columns of SENDING."""
    values = _SENDING.values(channel)
    marks = (channel.phase is Phase.ENDING, channel.phase is Phase.OPENING)
    return (*values[:_PHASE], *marks, *values[_PHASE + 1 :])


def read_sending(row: Values) -> SendingChannel:
    """From the columns of SENDING. A stream that was mended may have both marks of its phase:
    what is under way is waited for either way."""
    key, epoch = row[:2]
    ending, alone = row[_PHASE : _PHASE + 2]
    phase = Phase.ENDING if ending else Phase.OPENING if alone else Phase.RUNNING
    with _whole_channel(key):
        began = phase if epoch else Phase.UNBEGUN
        return _SENDING.read(*row[:_PHASE], began, *row[_PHASE + 2 :])


def read_receiving(row: Values) -> ReceivingChannel:
    """From the columns of RECEIVING."""
    with _whole_channel(row[0]):
        return RECEIVING.read(*row)


# --- documents ----------------------------------------------------------------------------


def read_document(row: Values) -> SplitDocument:
    """From the columns of DOCUMENT."""
    with whole(row[1]):
        return DOCUMENT.read(*row)
