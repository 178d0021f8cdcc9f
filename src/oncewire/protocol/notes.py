"""Effects: what a transition asks of the outside world, and one class for each kind of note.

The protocol and the handler construct them (`Note` says of which message and channel), the
journal keeps them, and the checker, `why` and Spark read them back. No other module spells a kind
or the name of a fact. The facts become the row's `detail` column; the comments of `Kind` say which
columns a kind fills besides.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from msgspec import MsgspecError, Struct
from msgspec.json import Decoder, encode
from msgspec.structs import replace

from oncewire.errors import JournalProblem, OncewireError, StoreProblem
from oncewire.message.envelope import Severity
from oncewire.message.instant import Instant
from oncewire.protocol.terms import Terms

if TYPE_CHECKING:
    from oncewire.protocol.states import Incoming, Outgoing

# The kinds of journal rows: everything that can happen to a message, a channel or a node.
#
# The protocol and the handler note what happened, the journal keeps it, and its readers (the
# checker, `why`, Spark, an auditor) go by these kinds; their meaning changes only with the
# journal's version. Each kind's comment says which columns it fills beyond `seq, at, mono, boot,
# node, kind`. Channel facts are `channel, epoch, sequence_number`: once a message has a number on
# a node, every later row of it on that node carries them, so that a channel can be judged from its
# own rows. What a kind tells beyond columns is its class in `protocol/notes.py`.


class Kind(StrEnum):
    """What happened, in the past tense."""

    # --- the node ---
    STARTED = "started"  # boot; detail: version
    STOPPED = "stopped"  # a graceful stop; a crash leaves none
    TERMS = "terms"  # terms_id; detail: the terms in full, once per node and terms_id
    CLOCK_SET = "clock_set"  # the machine's clock was set; detail: by, verdict
    TRIMMED = "trimmed"  # the beginning of the journal was removed; detail: rows, through, by

    # --- the sending side ---
    SUBMITTED = (
        "submitted"  # terms_id, channel?, peer=To, digest, size, ref_to?; detail: header facts
    )
    NUMBERED = "numbered"  # terms_id, channel facts; detail: status
    SENT = "sent"  # attempt begins (committed first): attempt, transport, peer, hop; channel facts
    SEND_FAILED = (
        "send_failed"  # attempt, transport; detail: outcome refused|unknown|discarded, reason
    )
    ACKNOWLEDGED = "acknowledged"  # ref_to=the ack's id; peer; detail: by, late?, signed?, hop?
    REJECTED = "rejected"  # an error answer settled it; ref_to=its id; detail: code, severity
    WARNED = "warned"  # a warning about it came; ref_to=what carried it
    IGNORED = "ignored"  # a signal about it changed nothing: ref_to?=its id, peer?; detail: why
    TRANSIENT = "transient"  # a Transient Error came: channel?; detail: until
    EXHAUSTED = "exhausted"  # the last retry on `transport` went unanswered
    EXPIRED = "expired"  # detail: by=TimeToLive|persistDuration
    FAILED = "failed"  # outcome set; detail: outcome not_delivered|unknown, reason
    NOTIFIED = (
        "notified"  # the From Party took the notice of the failure, ref_to?; detail: severity
    )
    SUSPENDED = "suspended"  # channel?; detail: reason
    RESUMED = "resumed"  # by the operator; retry counters start at zero again
    ABANDONED = "abandoned"  # by the operator or by policy: the number is given up
    EPOCH_ENDED = "epoch_ended"  # channel, epoch: the next number carries Reset

    # --- the receiving side ---
    RECEIVED = "received"  # first copy stored: terms_id, channel facts, peer=From, digest, size
    DUPLICATE = "duplicate"  # a repeat: digest; detail: answer
    REFUSED = "refused"  # not accepted: digest?; detail: code, location, problem
    SKIPPED = "skipped"  # channel, epoch, sequence_number: will not be handed over; detail: reason
    EPOCH_BEGAN = "epoch_began"  # channel, epoch: the sender restarted its numbering
    WARNING_SENT = "warning_sent"  # accepted, and its sender is warned; ref_to=what carries it
    ACK_SENT = "ack_sent"  # released after the commit; ref_to=the ack's id, peer
    HANDED_OVER = (
        "handed_over"  # to the application: terms_id, channel facts, digest; detail: redelivered?
    )
    CONFIRMED = "confirmed"  # by the application
    JOINED = "joined"  # message_id=SplitId, digest and size of the whole document

    # --- an intermediary ---
    FORWARDED = (
        "forwarded"  # the next hop is ours: its terms_id, peer and hop; channel facts it came with
    )
    PASSED_ON = "passed_on"  # sent on, and nothing promised: ref_to?, peer, hop

    # --- operation ---
    HOLD_SET = "hold_set"  # a legal hold; channel facts; detail: by
    HOLD_LIFTED = "hold_lifted"  # channel facts; detail: by
    INCIDENT = "incident"  # opened; detail: id, what an operator must resolve
    RESOLVED = "resolved"  # detail: id


# Detail: what all notes share, written as the JSON text of a row's `detail` column and read back.
#
# `write()` makes the compact JSON text (None when there is nothing to say) and `read(text)` gives
# the value back. Fields at their default are left out of the text, and a name that is not known
# here is passed over: facts may be added without a new version. What people wrote is cut after
# `TEXT_MAX` characters. The classes themselves, one for each kind of row, are in `notes`.


D = TypeVar("D", bound="Detail")

_decoder = cache(Decoder)
_decode_terms = Decoder(dict[str, Any]).decode
TEXT_MAX = 300
"""Characters of a sentence that a row keeps: enough to know what was meant."""

_SENTENCES = ("problem", "reason", "description", "location")
_REMEDY = "read the journal with the version of Oncewire that wrote it"


class Detail(Struct, frozen=True, gc=False, omit_defaults=True):
    """What all details share: written as JSON without defaults, read with checked types."""

    KIND: ClassVar[Kind]

    def write(self) -> str | None:
        """The text for the column, or None when every field has its default."""
        try:
            text = encode(self)
            if len(text) > TEXT_MAX:
                said = {name: getattr(self, name, None) for name in _SENTENCES}
                cut = {name: value[:TEXT_MAX] for name, value in said.items() if value is not None}
                text = encode(replace(self, **cut))
        except UnicodeEncodeError as error:
            raise StoreProblem(
                f"a {self.KIND.value!r} row has a text that is no Unicode ({error.reason})",
                remedy="leave surrogates out of names and reasons",
            ) from None
        return None if text == b"{}" else text.decode()

    @classmethod
    def read(cls: type[D], text: str | None) -> D:
        """The value that `write` was called on; anything else is a JournalProblem."""
        try:
            read: D = _decoder(cls).decode("{}" if text is None else text)
            return read
        except (MsgspecError, UnicodeError, RecursionError) as error:
            raise JournalProblem(
                f"the detail of a {cls.KIND.value!r} row cannot be read ({error}): {text!r:.80}",
                remedy=_REMEDY,
            ) from None


def write_terms(terms: Terms) -> str:
    """The detail of a TERMS row: every value of the terms."""
    return encode(terms.as_dict()).decode()


def read_terms(text: str | None) -> Terms:
    """The terms of a TERMS row."""
    try:
        return Terms.from_dict(_decode_terms("{}" if text is None else text))
    except (OncewireError, MsgspecError, UnicodeError, RecursionError) as error:
        raise JournalProblem(f"a terms row cannot be read: {error}", remedy=_REMEDY) from None


# --- the node -----------------------------------------------------------------------------


class Started(Detail, frozen=True, gc=False):
    """A handler begins, in a process of its own."""

    KIND: ClassVar[Kind] = Kind.STARTED
    version: str
    """The version of Oncewire."""
    # A row that does not say was written by version 1; later writers say.
    journal_version: int = 1
    parties: tuple[str, ...] = ()
    """Names by which other rows' `peer` may mean this node: its parties and itself. They tell
    the checker whose journals it has before it, so that it does not miss what it cannot see."""
    archive: bool = False
    """The rows were made of raw messages that another handler left: what travelled is in them, and
    nothing that happened inside of it, so that a row that is missing proves nothing."""


class Stopped(Detail, frozen=True, gc=False):
    """A handler ends in good order; a crash leaves no such row."""

    KIND: ClassVar[Kind] = Kind.STOPPED


# --- the sending side ---------------------------------------------------------------------

CLOCK_VERDICTS = ("in doubt", "agreed", "accepted", "corrected")
"""What may come of a clock that was set."""


class ClockSet(Detail, frozen=True, gc=False):
    """The machine's clock was set."""

    KIND: ClassVar[Kind] = Kind.CLOCK_SET
    by: int
    """How far the machine's clock was ahead of the time that this node lives by, microseconds."""
    verdict: str
    """in doubt: nothing expires until the clocks agree, or an operator accepts the new time;
    agreed: they do again; accepted: by the operator; corrected: so little that it was followed.
    With the last three `at` moves by that much from this row on, `mono` does not."""
    accepted_by: str | None = None
    """The person or token that accepted the new time."""


class Trimmed(Detail, frozen=True, gc=False):
    """Rows at the beginning of this journal were removed; a lake has them."""

    KIND: ClassVar[Kind] = Kind.TRIMMED
    rows: int
    through: int
    """The position of the last of them."""
    by: str | None = None


class Submitted(Detail, frozen=True, gc=False):
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
    by: str | None = None
    """The person or token that handed it in, where that is known."""

    @property
    def is_part(self) -> bool:
        """Whether it is a part of a document; its outcome is the document's."""
        return self.split_number is not None


class Numbered(Detail, frozen=True, gc=False):
    """A message entered the window of its channel and has its number."""

    KIND: ClassVar[Kind] = Kind.NUMBERED
    status: str | None = None
    """Reset or Continue; `silent` where the dialect has no status."""


class Sent(Detail, frozen=True, gc=False):
    """An attempt begins; noted before the first byte leaves."""

    KIND: ClassVar[Kind] = Kind.SENT


NO_MESSAGE = "the reply is no message"
"""What the reason of an attempt says that something answered which is no handler, or not as one."""


class SendFailed(Detail, frozen=True, gc=False):
    """An attempt ended without an answer that settles the message."""

    KIND: ClassVar[Kind] = Kind.SEND_FAILED
    outcome: str = "unknown"
    """refused: certainly nothing arrived. unknown: it may have. discarded: the receiver says that
    it threw a copy away because of its number; another copy may fit later (SEQ-9, SEQ-10)."""
    reason: str | None = None


class Acknowledged(Detail, frozen=True, gc=False):
    """The receiver, or a hub, said that the message is there."""

    KIND: ClassVar[Kind] = Kind.ACKNOWLEDGED
    by: str = "ack"
    """ack, response (a RefToMessageId, RM-16), status, transport (RM-8, and the notice of a
    failure, which is never acknowledged), or parts: those of a document, the last of which is
    acknowledged when the document is whole."""
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


class Rejected(Detail, frozen=True, gc=False):
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


class Warned(Detail, frozen=True, gc=False):
    """The partner warns about a message. After a warning of a failed delivery no acknowledgement of
    a hub counts."""

    KIND: ClassVar[Kind] = Kind.WARNED
    code: str
    location: str | None = None
    description: str | None = None


class Ignored(Detail, frozen=True, gc=False):
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


class Transient(Detail, frozen=True, gc=False):
    """The receiver cannot take anything now, and says until when."""

    KIND: ClassVar[Kind] = Kind.TRANSIENT
    until: Instant
    """Nothing goes to that receiver before this UTC instant (RTY-8)."""


class Exhausted(Detail, frozen=True, gc=False):
    """The last retry over a transport went unanswered."""

    KIND: ClassVar[Kind] = Kind.EXHAUSTED


class Expired(Detail, frozen=True, gc=False):
    """The message's time is over."""

    KIND: ClassVar[Kind] = Kind.EXPIRED
    by: str
    """TimeToLive or persistDuration."""


class Failed(Detail, frozen=True, gc=False):
    """The message has its outcome, and that is not delivery."""

    KIND: ClassVar[Kind] = Kind.FAILED
    outcome: str
    """not_delivered: never transmitted, or refused. unknown: transmitted, never acknowledged."""
    reason: str
    """exhausted, rejected, expired or abandoned; part, of a document of which a part failed;
    another word where none of them fits."""


class Notified(Detail, frozen=True, gc=False):
    """The From Party knows that its message failed."""

    KIND: ClassVar[Kind] = Kind.NOTIFIED
    severity: str
    """Error: certainly not delivered. Warning: sent, but never acknowledged (ERR-9)."""
    by: str | None = None
    """The person or token that took the notice, where that is known."""


class Suspended(Detail, frozen=True, gc=False):
    """Sending stops, on a channel or of a message, until an operator resumes it."""

    KIND: ClassVar[Kind] = Kind.SUSPENDED
    reason: str | None = None
    by: str | None = None
    """The person or token that paused it; None: the handler did."""


class Resumed(Detail, frozen=True, gc=False):
    """A channel or a message goes on, with fresh counters of retries."""

    KIND: ClassVar[Kind] = Kind.RESUMED
    by: str | None = None


class Abandoned(Detail, frozen=True, gc=False):
    """A message was given up, and with it its number: by its sender, or by its receiver, who has
    acknowledged it and does not hand it over."""

    KIND: ClassVar[Kind] = Kind.ABANDONED
    by: str | None = None
    """The person who decided it: a name that was given, or the user's in the operating system."""
    reason: str | None = None


class EpochEnded(Detail, frozen=True, gc=False):
    """The numbering of a channel ends; the next number begins a new one."""

    KIND: ClassVar[Kind] = Kind.EPOCH_ENDED
    reason: str | None = None
    by: str | None = None
    """The person or token that restarted the numbering; None: the handler did."""


# --- the receiving side -------------------------------------------------------------------


class Received(Detail, frozen=True, gc=False):
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


class Duplicate(Detail, frozen=True, gc=False):
    """A further copy came; it is not handed over."""

    KIND: ClassVar[Kind] = Kind.DUPLICATE
    answer: str | None = None
    """stored_answer, first_response, latest_response, new_ack, nothing or awaited."""


class Refused(Detail, frozen=True, gc=False):
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
    on. Its delivery is not awaited."""


class Skipped(Detail, frozen=True, gc=False):
    """A number will not be handed over any more, and the stream goes on without it."""

    KIND: ClassVar[Kind] = Kind.SKIPPED
    reason: str | None = None


class EpochBegan(Detail, frozen=True, gc=False):
    """The sender began its numbering anew."""

    KIND: ClassVar[Kind] = Kind.EPOCH_BEGAN


class WarningSent(Detail, frozen=True, gc=False):
    """A message was accepted, and its sender is warned."""

    KIND: ClassVar[Kind] = Kind.WARNING_SENT
    code: str
    location: str | None = None
    description: str | None = None


class AckSent(Detail, frozen=True, gc=False):
    """An acknowledgement may leave, for what it says is committed."""

    KIND: ClassVar[Kind] = Kind.ACK_SENT
    signed: bool = False
    hop: bool = False


class HandedOver(Detail, frozen=True, gc=False):
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
    by: str | None = None
    """The person or token that took it, where that is known."""


class Confirmed(Detail, frozen=True, gc=False):
    """The application has it, or a person says so in its place."""

    KIND: ClassVar[Kind] = Kind.CONFIRMED
    by: str | None = None
    """The person who confirmed it by hand; None: the application itself."""


class Joined(Detail, frozen=True, gc=False):
    """All parts of a document are here, and it is whole."""

    KIND: ClassVar[Kind] = Kind.JOINED
    total: int
    """How many parts the document was rebuilt from."""


# --- an intermediary ----------------------------------------------------------------------


class Forwarded(Detail, frozen=True, gc=False):
    """A hub has taken a message, and answers for its next hop."""

    KIND: ClassVar[Kind] = Kind.FORWARDED
    from_party: str | None = None
    to_party: str | None = None
    time_to_live: Instant | None = None
    onward: str | None = None
    """The channel of the next hop. The row's own channel facts are those of the stream that the
    message came on: forwarding uses its number up there (S7)."""


class PassedOn(Detail, frozen=True, gc=False):
    """A hub sent a message on and promised nothing."""

    KIND: ClassVar[Kind] = Kind.PASSED_ON


# --- operation ----------------------------------------------------------------------------


class HoldSet(Detail, frozen=True, gc=False):
    """Retention leaves a message, for legal or business reasons."""

    KIND: ClassVar[Kind] = Kind.HOLD_SET
    by: str | None = None


class HoldLifted(Detail, frozen=True, gc=False):
    """Retention removes a message again when its time is over."""

    KIND: ClassVar[Kind] = Kind.HOLD_LIFTED
    by: str | None = None


class Incident(Detail, frozen=True, gc=False):
    """Something waits for an operator's decision."""

    KIND: ClassVar[Kind] = Kind.INCIDENT
    id: str
    problem: str
    remedy: str | None = None


class Resolved(Detail, frozen=True, gc=False):
    """An incident was decided by an operator, or settled by itself."""

    KIND: ClassVar[Kind] = Kind.RESOLVED
    id: str
    by: str | None = None


ACTS = (
    Trimmed, Submitted, Notified, Suspended, Resumed, EpochEnded, HandedOver, HoldSet, HoldLifted,
    Resolved,
)  # fmt: skip
"""What a person or a program may do: `by` says who did, if whoever asked for it said so."""

NOTES: dict[Kind, type[Detail]] = {
    cls.KIND: cls
    for cls in (
        Started, Stopped, ClockSet, Trimmed, Submitted, Numbered, Sent, SendFailed, Acknowledged,
        Rejected, Warned, Ignored, Transient, Exhausted, Expired, Failed, Notified, Suspended,
        Resumed, Abandoned, EpochEnded, Received, Duplicate, Refused, Skipped, EpochBegan,
        WarningSent, AckSent, HandedOver, Confirmed, Joined, Forwarded, PassedOn, Incident,
        Resolved, HoldSet, HoldLifted,
    )
}  # fmt: skip
"""Every kind but TERMS, whose detail is the terms themselves."""

DETAILS = {kind: cls for kind, cls in NOTES.items() if cls.__struct_fields__}
"""The kinds that tell more than their columns."""


# What a transition asks of the outside world, as values in the imperative.
#
# State is saved first, in one transaction; effects are performed afterwards. All of them can be
# found again from the saved state after a crash, and each is safe to repeat.


class Note(Struct, frozen=True, gc=False):
    """Write a journal row that tells what happened."""

    what: Detail
    message_id: str | None = None
    ref_to: str | None = None
    channel: str | None = None
    epoch: int | None = None
    number: int | None = None
    attempt: int | None = None
    transport: str | None = None

    @classmethod
    def about(
        cls,
        message: Outgoing | Incoming,
        what: Detail,
        ref_to: str | None = None,
        transport: str | None = None,
    ) -> Note:
        """A row about a message, with its place in its stream."""
        place = (message.channel, message.epoch, message.number)
        return cls(what, message.message_id, ref_to, *place, transport=transport)

    @property
    def kind(self) -> Kind:
        """The kind of the row."""
        return self.what.KIND


class Transmit(Struct, frozen=True, gc=False):
    """Send the stored bytes of this message over this transport."""

    message_id: str
    attempt: int
    transport: str


class Notify(Struct, frozen=True, gc=False):
    """Tell the From Party how its message ended (ERR-9: Error never sent, Warning unacked), or
    that one sent with best effort was refused (ERR-2)."""

    severity: Severity


class Raise(Struct, frozen=True, gc=False):
    """Open an incident that an operator must resolve."""

    reason: str
    message_id: str | None = None
    channel: str | None = None


class Resolve(Struct, frozen=True, gc=False):
    """The incident of this message or channel is over."""

    message_id: str | None = None
    channel: str | None = None


class Admit(Struct, frozen=True, gc=False):
    """The window has places again: bring in the next waiting messages of the channel."""

    channel: str


class Pause(Struct, frozen=True, gc=False):
    """Send nothing more to the receiver of this message before then (RTY-8)."""

    until: Instant
    # Why an operator must know of it; empty: it is as agreed.
    problem: str = ""


class Leave(Struct, frozen=True, gc=False):
    """Let messages that begin now take another transport to this receiver, until a probe of this
    one gets through (RTY-15)."""

    transport: str


class AskStatus(Struct, frozen=True, gc=False):
    """Ask the receiver what became of a message that must not be resent (C37)."""

    message_id: str


Effect: TypeAlias = Note | Transmit | Notify | Raise | Resolve | Admit | Pause | Leave | AskStatus
