"""What can be noted: one class for each kind of journal row, with the facts it tells.

The protocol and the handler construct them (`effects.Note` says of which message and channel), the
journal keeps them, and the checker, `why` and Spark read them back. Nobody else spells a kind or
the name of a fact. The facts become the row's `detail` column, as `detail` says; which columns a
kind fills besides, `kinds` says.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from oncewire.message.instant import Instant
from oncewire.message.quick import quick
from oncewire.protocol.detail import Detail
from oncewire.protocol.kinds import Kind

# --- the node -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started(Detail):
    """A handler begins, in a process of its own."""

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
    """It ends in good order; a crash leaves no such row."""

    KIND: ClassVar[Kind] = Kind.STOPPED


# --- the sending side ---------------------------------------------------------------------

CLOCK_VERDICTS = ("in doubt", "agreed", "accepted", "corrected")
"""What may come of a clock that was set."""


@dataclass(frozen=True, slots=True)
class ClockSet(Detail):
    """Somebody set the machine's clock."""

    KIND: ClassVar[Kind] = Kind.CLOCK_SET
    by: int
    """How far the machine's clock was ahead of the time that this node lives by, microseconds."""
    verdict: str
    """in doubt: nothing expires until the clocks agree, or an operator accepts the new time;
    agreed: they do again; accepted: by the operator; corrected: so little that it was followed.
    With the last three `at` moves by that much from this row on, `mono` does not."""


@quick
@dataclass(frozen=True, slots=True)
class Submitted(Detail):
    """An application handed a message in, and it is stored."""

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
    """On a part, and on the document itself, whose own MessageId it is."""
    split_number: int | None = None
    split_total: int | None = None
    document_digest: str | None = None
    """On a document: the SHA-256 of its payload, of several the SHA-256 of all of theirs (S13)."""

    @property
    def is_part(self) -> bool:
        """Whether it is a part of a document, which somebody waits for in its place."""
        return self.split_number is not None


@dataclass(frozen=True, slots=True)
class Numbered(Detail):
    """A message entered the window of its channel and has its number."""

    KIND: ClassVar[Kind] = Kind.NUMBERED
    status: str | None = None
    """Reset or Continue; `silent` where the dialect has no status."""


@dataclass(frozen=True, slots=True)
class Sent(Detail):
    """An attempt begins; noted before the first byte leaves."""

    KIND: ClassVar[Kind] = Kind.SENT


@dataclass(frozen=True, slots=True)
class SendFailed(Detail):
    """An attempt ended without an answer that settles the message."""

    KIND: ClassVar[Kind] = Kind.SEND_FAILED
    outcome: str = "unknown"
    """refused: certainly nothing arrived. unknown: it may have. discarded: the receiver says that
    it threw a copy away because of its number; another copy may fit later (SEQ-9, SEQ-10)."""
    reason: str | None = None


@quick
@dataclass(frozen=True, slots=True)
class Acknowledged(Detail):
    """Somebody said that the message is there."""

    KIND: ClassVar[Kind] = Kind.ACKNOWLEDGED
    by: str = "ack"
    """ack, response (a RefToMessageId, RM-16), status, transport (RM-8, and the notice of a failure
    that nobody acknowledges), or parts: those of a document, the last of which is acknowledged
    when the document is whole."""
    late: bool = False
    """It came after the message had failed (DRV-7)."""
    signed: bool = False
    """Its signature was verified and it names exactly the digests that were sent."""
    hop: bool = False
    """It came from an intermediary: responsibility was taken, nothing more (HOP-8)."""
    split_id: str | None = None
    """On a document, by parts: its own SplitId, equal to the row's message_id."""

    @property
    def final(self) -> bool:
        """Whether the To Party itself said that it has the message."""
        return not self.hop and self.by != "transport"


@dataclass(frozen=True, slots=True)
class Rejected(Detail):
    """An error of the partner settled the message: it was not accepted. A best-effort message is
    settled when it is sent; of that one the row tells who refused it, and why."""

    KIND: ClassVar[Kind] = Kind.REJECTED
    code: str
    severity: str = "Error"
    description: str | None = None
    location: str | None = None
    by: str | None = None
    """The party or handler whose error it was; `peer` is the next handler on the message's way."""

    @property
    def refusal(self) -> str:
        """The error in words: its code, where in the message it points, and what it says."""
        place = f" at {self.location}" if self.location else ""
        return f"{self.code}{place}" + (f" ({self.description})" if self.description else "")


@dataclass(frozen=True, slots=True)
class Warned(Detail):
    """The partner warns about a message. After a warning of a failed delivery no acknowledgement of
    a hub counts."""

    KIND: ClassVar[Kind] = Kind.WARNED
    code: str
    location: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Ignored(Detail):
    """A signal about a message was not believed, so it changes nothing."""

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
    """The receiver cannot take anything now, and says until when."""

    KIND: ClassVar[Kind] = Kind.TRANSIENT
    until: Instant
    """Nothing goes to that receiver before this UTC instant (RTY-8)."""


@dataclass(frozen=True, slots=True)
class Exhausted(Detail):
    """The last retry over a transport went unanswered."""

    KIND: ClassVar[Kind] = Kind.EXHAUSTED


@dataclass(frozen=True, slots=True)
class Expired(Detail):
    """The message's time is over."""

    KIND: ClassVar[Kind] = Kind.EXPIRED
    by: str
    """TimeToLive or persistDuration."""


@dataclass(frozen=True, slots=True)
class Failed(Detail):
    """The message has its outcome, and that is not delivery."""

    KIND: ClassVar[Kind] = Kind.FAILED
    outcome: str
    """not_delivered: never transmitted, or refused. unknown: transmitted, never acknowledged."""
    reason: str
    """exhausted, rejected, expired or abandoned; part, of a document of which a part failed;
    another word where none of them fits."""


@dataclass(frozen=True, slots=True)
class Notified(Detail):
    """The From Party knows that its message failed."""

    KIND: ClassVar[Kind] = Kind.NOTIFIED
    severity: str
    """Error: certainly not delivered. Warning: sent, but never acknowledged (ERR-9)."""


@dataclass(frozen=True, slots=True)
class Suspended(Detail):
    """Sending stops, on a channel or of a message, until somebody resumes it."""

    KIND: ClassVar[Kind] = Kind.SUSPENDED
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Resumed(Detail):
    """It goes on, with fresh counters of retries."""

    KIND: ClassVar[Kind] = Kind.RESUMED
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Abandoned(Detail):
    """A message was given up, and with it its number: by its sender, or by its receiver, who has
    acknowledged it and hands it to nobody."""

    KIND: ClassVar[Kind] = Kind.ABANDONED
    by: str | None = None
    """The person who decided it: a name that was given, or the user's in the operating system."""
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class EpochEnded(Detail):
    """The numbering of a channel ends; the next number begins a new one."""

    KIND: ClassVar[Kind] = Kind.EPOCH_ENDED
    reason: str | None = None


# --- the receiving side -------------------------------------------------------------------


@quick
@dataclass(frozen=True, slots=True)
class Received(Detail):
    """The first copy of a message is stored."""

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
    """A further copy came; nobody is handed it."""

    KIND: ClassVar[Kind] = Kind.DUPLICATE
    answer: str | None = None
    """Which stored answer went back: original, most_recent, fresh_ack, ack, error or none."""


@dataclass(frozen=True, slots=True)
class Refused(Detail):
    """A message was not accepted."""

    KIND: ClassVar[Kind] = Kind.REFUSED
    code: str
    severity: str = "Error"
    location: str | None = None
    problem: str | None = None
    split_id: str | None = None
    """Of a document that was given up: its own SplitId, equal to the row's message_id."""
    signal: str | None = None
    """Of what is no message but says something about one: acknowledgement, error, status and so
    on. Nobody waits for it to be delivered."""


@dataclass(frozen=True, slots=True)
class Skipped(Detail):
    """A number will not be handed over any more, and the stream goes on without it."""

    KIND: ClassVar[Kind] = Kind.SKIPPED
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class EpochBegan(Detail):
    """The sender began its numbering anew."""

    KIND: ClassVar[Kind] = Kind.EPOCH_BEGAN


@dataclass(frozen=True, slots=True)
class WarningSent(Detail):
    """A message was accepted, and its sender is warned."""

    KIND: ClassVar[Kind] = Kind.WARNING_SENT
    code: str
    location: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class AckSent(Detail):
    """An acknowledgement may leave, for what it says is committed."""

    KIND: ClassVar[Kind] = Kind.ACK_SENT
    signed: bool = False
    hop: bool = False


@dataclass(frozen=True, slots=True)
class HandedOver(Detail):
    """The application was given a message."""

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
    split_number: int | None = None
    """On a fragment that came before the message which names it: the ordinal that it has there."""


@dataclass(frozen=True, slots=True)
class Confirmed(Detail):
    """The application has it, or a person says so in its place."""

    KIND: ClassVar[Kind] = Kind.CONFIRMED
    by: str | None = None
    """The person who confirmed it by hand; None: the application itself."""


@dataclass(frozen=True, slots=True)
class Joined(Detail):
    """All parts of a document are here, and it is whole."""

    KIND: ClassVar[Kind] = Kind.JOINED
    total: int
    """How many parts the document was rebuilt from."""


# --- an intermediary ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Forwarded(Detail):
    """A hub has taken a message, and answers for its next hop."""

    KIND: ClassVar[Kind] = Kind.FORWARDED
    from_party: str | None = None
    to_party: str | None = None
    time_to_live: Instant | None = None
    onward: str | None = None
    """The channel of the next hop. The row's own channel facts are those of the stream that the
    message came on: forwarding uses its number up there (S7)."""


@dataclass(frozen=True, slots=True)
class PassedOn(Detail):
    """A hub sent a message on and promised nothing."""

    KIND: ClassVar[Kind] = Kind.PASSED_ON


# --- operation ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Incident(Detail):
    """Something waits for an operator's decision."""

    KIND: ClassVar[Kind] = Kind.INCIDENT
    id: str
    problem: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class Resolved(Detail):
    """It was decided, or settled itself."""

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
