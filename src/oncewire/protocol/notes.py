"""What can be noted: one class for each kind of journal row, with the facts it tells.

The protocol and the handler construct them (`effects.Note` says of which message and channel), the
journal keeps them, and the checker, `why` and Spark read them back. Nobody else spells a kind or
the name of a fact. The facts become the row's `detail` column: `write()` makes the compact JSON
text (None when there is nothing to say) and `read(text)` gives the value back. Fields at their
default are left out of the text, and a name that is not known here is passed over: facts may be
added without a new version. What people wrote is cut after `TEXT_MAX` characters.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, TypeVar

from oncewire.errors import JournalProblem, OncewireError
from oncewire.message.instant import Instant
from oncewire.protocol.kinds import Kind
from oncewire.protocol.terms import Terms

D = TypeVar("D", bound="Detail")

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_decode = json.JSONDecoder().decode
TEXT_MAX = 300
"""Characters of a sentence that a row keeps: enough to know what was meant."""

_SENTENCES = frozenset({"problem", "reason", "description", "location"})
_REMEDY = "read the journal with the version of Oncewire that wrote it"


@dataclass(frozen=True, slots=True)
class Detail:
    """What all details share: written as JSON without defaults, read with checked types."""

    KIND: ClassVar[Kind]

    def write(self) -> str | None:
        """The text for the column, or None when every field has its default."""
        said = {}
        for name, default, _ in _shape(type(self)):
            value = getattr(self, name)
            if value != default:
                said[name] = value[:TEXT_MAX] if name in _SENTENCES else value
        return _encode(said) if said else None

    @classmethod
    def read(cls: type[D], text: str | None) -> D:
        """The value that `write` was called on; anything else is a JournalProblem."""
        values = _object(text, cls.KIND)
        known: dict[str, Any] = {}
        for name, default, allowed in _shape(cls):
            value = values.get(name, default)
            if value is MISSING or (value is not default and type(value) not in allowed):
                raise JournalProblem(
                    f"the detail of a {cls.KIND.value!r} row says {name}={values.get(name)!r}",
                    remedy=_REMEDY,
                )
            known[name] = tuple(value) if type(value) is list else value
        return cls(**known)


# --- the node -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started(Detail):
    KIND: ClassVar[Kind] = Kind.STARTED
    version: str
    """Of Oncewire."""
    # A row that does not say was written by version 1; later writers say.
    journal_version: int = 1
    parties: tuple[str, ...] = ()
    """Names by which other rows' `peer` may mean this node: its parties and itself. They tell
    the checker whose journals it has before it, so that it does not miss what it cannot see."""


@dataclass(frozen=True, slots=True)
class Stopped(Detail):
    KIND: ClassVar[Kind] = Kind.STOPPED


# --- the sending side ---------------------------------------------------------------------

CLOCK_VERDICTS = ("in doubt", "agreed", "accepted", "corrected")
"""What may come of a clock that was set."""


@dataclass(frozen=True, slots=True)
class ClockSet(Detail):
    KIND: ClassVar[Kind] = Kind.CLOCK_SET
    by: int
    """How far the machine's clock was ahead of the time that this node lives by, microseconds."""
    verdict: str
    """in doubt: nothing expires until the clocks agree, or an operator accepts the new time;
    agreed: they do again; accepted: by the operator; corrected: so little that it was followed.
    With the last three `at` moves by that much from this row on, `mono` does not."""


@dataclass(frozen=True, slots=True)
class Submitted(Detail):
    KIND: ClassVar[Kind] = Kind.SUBMITTED
    from_party: str | None = None
    to_party: str | None = None
    cpa_id: str | None = None
    conversation_id: str | None = None
    service: str | None = None
    action: str | None = None
    time_to_live: Instant | None = None
    best_effort: bool = False
    """The outcome of such a message is `sent` and no more (OPS-4)."""
    notice: bool = False
    """A delivery failure notice: the receiving handler itself consumes it, and its own failure
    is an incident, never a second notice (C33)."""
    split_id: str | None = None
    split_number: int | None = None
    split_total: int | None = None
    document_digest: str | None = None
    """SHA-256 of the whole document, on each of its parts (S13)."""


@dataclass(frozen=True, slots=True)
class Numbered(Detail):
    KIND: ClassVar[Kind] = Kind.NUMBERED
    status: str | None = None
    """Reset or Continue; `silent` where the dialect has no status."""


@dataclass(frozen=True, slots=True)
class Sent(Detail):
    KIND: ClassVar[Kind] = Kind.SENT


@dataclass(frozen=True, slots=True)
class SendFailed(Detail):
    KIND: ClassVar[Kind] = Kind.SEND_FAILED
    outcome: str = "unknown"
    """refused: certainly nothing arrived. unknown: it may have. discarded: the receiver says that
    it threw a copy away because of its number; another copy may fit later (SEQ-9, SEQ-10)."""
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Acknowledged(Detail):
    KIND: ClassVar[Kind] = Kind.ACKNOWLEDGED
    by: str = "ack"
    """ack, response (a RefToMessageId, RM-16), status, or transport (RM-8)."""
    late: bool = False
    """It came after the message had failed (DRV-7)."""
    signed: bool = False
    """Its signature was verified and it names exactly the digests that were sent."""
    hop: bool = False
    """It came from an intermediary: responsibility was taken, nothing more (HOP-8)."""

    @property
    def final(self) -> bool:
        """Whether the To Party itself said that it has the message."""
        return not self.hop and self.by != "transport"


@dataclass(frozen=True, slots=True)
class Rejected(Detail):
    KIND: ClassVar[Kind] = Kind.REJECTED
    code: str
    severity: str = "Error"
    description: str | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True)
class Warned(Detail):
    KIND: ClassVar[Kind] = Kind.WARNED
    code: str
    location: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Ignored(Detail):
    KIND: ClassVar[Kind] = Kind.IGNORED
    claim: str
    """acknowledgement, error, fault, status, message or pong."""
    code: str
    problem: str | None = None
    """Why it does not count."""
    count: int = 1
    """How many signals about this message were ignored so far; a row is written for the first,
    the second, the fourth and so on."""


@dataclass(frozen=True, slots=True)
class Transient(Detail):
    KIND: ClassVar[Kind] = Kind.TRANSIENT
    until: Instant
    """Nothing goes to that receiver before this UTC instant (RTY-8)."""


@dataclass(frozen=True, slots=True)
class Exhausted(Detail):
    KIND: ClassVar[Kind] = Kind.EXHAUSTED


@dataclass(frozen=True, slots=True)
class Expired(Detail):
    KIND: ClassVar[Kind] = Kind.EXPIRED
    by: str
    """TimeToLive or persistDuration."""


@dataclass(frozen=True, slots=True)
class Failed(Detail):
    KIND: ClassVar[Kind] = Kind.FAILED
    outcome: str
    """not_delivered: never transmitted, or refused. unknown: transmitted, never acknowledged."""
    reason: str
    """exhausted, rejected, expired or abandoned; another word where none of them fits."""


@dataclass(frozen=True, slots=True)
class Notified(Detail):
    KIND: ClassVar[Kind] = Kind.NOTIFIED
    severity: str
    """Error: certainly not delivered. Warning: sent, but never acknowledged (ERR-9)."""


@dataclass(frozen=True, slots=True)
class Suspended(Detail):
    KIND: ClassVar[Kind] = Kind.SUSPENDED
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Resumed(Detail):
    KIND: ClassVar[Kind] = Kind.RESUMED
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Abandoned(Detail):
    KIND: ClassVar[Kind] = Kind.ABANDONED
    by: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class EpochEnded(Detail):
    KIND: ClassVar[Kind] = Kind.EPOCH_ENDED
    reason: str | None = None


# --- the receiving side -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Received(Detail):
    KIND: ClassVar[Kind] = Kind.RECEIVED
    from_party: str | None = None
    to_party: str | None = None
    cpa_id: str | None = None
    conversation_id: str | None = None
    service: str | None = None
    action: str | None = None
    best_effort: bool = False
    notice: bool = False
    """A delivery failure notice, which this handler consumes itself."""
    signature_required: bool = False
    """The agreement asks for a signature on this message."""
    signature: str = "none"
    """verified: every header value and part used lies in the verified node-set. partial: some
    does not. none: there is no signature (S14)."""
    split_id: str | None = None
    split_number: int | None = None
    split_total: int | None = None


@dataclass(frozen=True, slots=True)
class Duplicate(Detail):
    KIND: ClassVar[Kind] = Kind.DUPLICATE
    answer: str | None = None
    """Which stored answer went back: original, most_recent, fresh_ack, ack, error or none."""


@dataclass(frozen=True, slots=True)
class Refused(Detail):
    KIND: ClassVar[Kind] = Kind.REFUSED
    code: str
    severity: str = "Error"
    location: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Skipped(Detail):
    KIND: ClassVar[Kind] = Kind.SKIPPED
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class EpochBegan(Detail):
    KIND: ClassVar[Kind] = Kind.EPOCH_BEGAN


@dataclass(frozen=True, slots=True)
class WarningSent(Detail):
    KIND: ClassVar[Kind] = Kind.WARNING_SENT
    code: str
    location: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class AckSent(Detail):
    KIND: ClassVar[Kind] = Kind.ACK_SENT
    signed: bool = False
    hop: bool = False


@dataclass(frozen=True, slots=True)
class HandedOver(Detail):
    KIND: ClassVar[Kind] = Kind.HANDED_OVER
    redelivered: bool = False
    """It was handed over before, and never confirmed (S2)."""
    lease_expired: bool = False
    """Handed over again because the application did not confirm within its lease."""
    given_back: bool = False
    """Handed over again because the last hand-over failed or the application gave it back.
    Without one of these two a second hand-over happens only after a restart of the handler."""
    split_id: str | None = None
    """On a part: the document it was handed to, which is the part's confirmation too. On a
    document: its own SplitId, equal to the row's message_id."""


@dataclass(frozen=True, slots=True)
class Confirmed(Detail):
    KIND: ClassVar[Kind] = Kind.CONFIRMED


@dataclass(frozen=True, slots=True)
class Joined(Detail):
    KIND: ClassVar[Kind] = Kind.JOINED
    total: int
    """How many parts the document was rebuilt from."""


# --- an intermediary ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Forwarded(Detail):
    KIND: ClassVar[Kind] = Kind.FORWARDED
    from_party: str | None = None
    to_party: str | None = None
    time_to_live: Instant | None = None
    onward: str | None = None
    """The channel of the next hop. The row's own channel facts are those of the stream that the
    message came on: forwarding uses its number up there (S7)."""


@dataclass(frozen=True, slots=True)
class PassedOn(Detail):
    KIND: ClassVar[Kind] = Kind.PASSED_ON


# --- operation ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Incident(Detail):
    KIND: ClassVar[Kind] = Kind.INCIDENT
    id: str
    problem: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class Resolved(Detail):
    KIND: ClassVar[Kind] = Kind.RESOLVED
    id: str
    by: str | None = None


NOTES: dict[Kind, type[Detail]] = {
    cls.KIND: cls
    for cls in (
        Started, Stopped, ClockSet, Submitted, Numbered, Sent, SendFailed, Acknowledged, Rejected,
        Warned, Ignored, Transient, Exhausted, Expired, Failed, Notified, Suspended, Resumed,
        Abandoned, EpochEnded, Received, Duplicate, Refused, Skipped, EpochBegan, WarningSent,
        AckSent, HandedOver, Confirmed, Joined, Forwarded, PassedOn, Incident, Resolved,
    )
}  # fmt: skip
"""Every kind but TERMS, whose detail is the terms themselves."""

DETAILS = {kind: cls for kind, cls in NOTES.items() if fields(cls)}
"""Those that tell more than their columns."""


def write_terms(terms: Terms) -> str:
    """The detail of a TERMS row: every value of the terms."""
    return _encode(terms.as_dict())


def read_terms(text: str | None) -> Terms:
    """The terms of a TERMS row."""
    values = _object(text, Kind.TERMS)
    try:
        return Terms.from_dict(values)
    except (OncewireError, TypeError) as error:
        raise JournalProblem(f"a terms row cannot be read: {error}", remedy=_REMEDY) from None


def _object(text: str | None, kind: Kind) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        value = _decode(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise JournalProblem(
            f"the detail of a {kind.value!r} row is not a JSON object: {text[:80]!r}",
            remedy=_REMEDY,
        )
    return value


# What JSON gives for each annotation that the classes above use.
_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "str | None": (str, type(None)),
    "int": (int,),
    "int | None": (int, type(None)),
    "Instant": (int,),
    "Instant | None": (int, type(None)),
    "bool": (bool,),
    "tuple[str, ...]": (list,),
}


_shapes: dict[type[Detail], tuple[tuple[str, Any, tuple[type, ...]], ...]] = {}


def _shape(cls: type[Detail]) -> tuple[tuple[str, Any, tuple[type, ...]], ...]:
    """(name, default or MISSING, JSON types) of each field, worked out once per class."""
    shape = _shapes.get(cls)
    if shape is None:
        shape = _shapes[cls] = tuple(
            (field.name, field.default, _JSON_TYPES[str(field.type)]) for field in fields(cls)
        )
    return shape
