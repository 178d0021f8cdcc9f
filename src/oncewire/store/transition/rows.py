"""Rows: a message with everything that it is filed under, apart from its bytes.

The bytes have rows of their own: most steps do not need them, and they may be large.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from oncewire.errors import NotAllowed, StoreDamaged
from oncewire.message.envelope import MessageKind
from oncewire.message.instant import Instant
from oncewire.protocol.documents import SplitDocument
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import (
    FINAL_OUTGOING,
    Incoming,
    IncomingState,
    Outgoing,
    OutgoingState,
)
from oncewire.protocol.terms import Terms
from oncewire.store.records import (
    SpoolSlice,
    StoredAnswer,
    StoredIncoming,
    StoredOutgoing,
    StoredParcel,
    StoredReceipt,
    Word,
)

# Under which instants a store files a message: one place for every backend.
#
# A backend keeps these values as columns or sorted keys beside the protocol's state, so that
# finding what is due never looks at a message that is not.


FINAL_INCOMING = frozenset(
    {IncomingState.CONFIRMED, IncomingState.FORWARDED, IncomingState.REFUSED, IncomingState.CLOSED}
)
"""The message is finished; its row is kept to recognise duplicates."""

STORED_INCOMING = tuple(state for state in IncomingState if state is not IncomingState.ARRIVING)
"""The states a stored message can have."""

LIVE = frozenset({OutgoingState.OUTSTANDING, OutgoingState.SUSPENDED})
"""The message has its place in the window and is not settled."""


def has_entered(outgoing: Outgoing) -> bool:
    """Whether the message has had its place: from then on it has a number in the store's own
    order of sending, which no clock decides (C15)."""
    return outgoing.state in LIVE or outgoing.first_sent_at is not None


def sends_from(channel: SendingChannel | None) -> Instant | None:
    """From when the channel lets messages out; None: not before an operator resumes it."""
    if channel is None:
        return 0
    return None if channel.suspended else channel.paused_until


def due_at(outgoing: Outgoing, channel: SendingChannel | None) -> Instant | None:
    """From when the next attempt may be made; None: no timer runs, or the channel stands."""
    if outgoing.state is not OutgoingState.OUTSTANDING or outgoing.next_attempt_at is None:
        return None
    start = sends_from(channel)
    return None if start is None else max(outgoing.next_attempt_at, start)


def expires_at(outgoing: Outgoing, terms: Terms) -> Instant | None:
    """When a message that is not final yet reaches its deadline, if it has one."""
    return None if outgoing.state in FINAL_OUTGOING else outgoing.deadline(terms)


def outgoing_keep_until(outgoing: Outgoing, terms: Terms) -> Instant:
    """Until when the sender's copy is kept (STO-7, STO-8)."""
    begin = outgoing.submitted_at if outgoing.first_sent_at is None else outgoing.first_sent_at
    return begin + terms.persist_duration + terms.keep


def incoming_keep_until(incoming: Incoming, terms: Terms) -> Instant:
    """Until when the receiver's copy and its answer are kept (STO-7, STO-8)."""
    return incoming.received_at + terms.persist_duration + terms.keep


def document_keep_until(document: SplitDocument, terms: Terms) -> Instant:
    """Until when the state of a document is kept: its last part may come persistDuration after the
    latest that came, and is kept as long as any message."""
    latest = max(document.begun_at, document.latest_at)
    return latest + 2 * terms.persist_duration + terms.keep


def answer_owed_until(received_at: Instant, terms: Terms) -> Instant:
    """Until when the sender may still take an answer; afterwards it has forgotten the message, or
    has told its application that the outcome is unknown."""
    return received_at + terms.persist_duration


def not_kept(agreement_id: str) -> NotAllowed:
    """The error for filing a message under an agreement that is not there."""
    return NotAllowed(
        f"agreement {agreement_id} is not kept here", remedy="call remember_agreement first"
    )


def still_counts(outgoing: Outgoing, channel: SendingChannel | None, terms: Terms) -> bool:
    """Whether the channel still waits for a decision about this message.

    Its number may be unsettled although its outcome is known: the operator abandons or
    resumes it by its id, so removing it would leave the channel standing for ever.
    """
    if channel is None:
        return False
    return channel.suspended_by == outgoing.message_id or channel.is_unsettled(
        outgoing.epoch, outgoing.number, terms
    )


IncomingKey = tuple[str, str]
"""(sender, MessageId): the key of duplicates."""


class OutgoingRow(NamedTuple):
    """A sent message."""

    stored: StoredOutgoing
    keep_until: Instant
    due_at: Instant | None
    expires_at: Instant | None
    # Order of entry into the window, 0 before it.
    entered: int = 0
    held: bool = False
    # What of it cannot be read; asking for it by its key raises this.
    problem: StoreDamaged | None = None
    # Not even its state can be read, so no list by state finds it.
    stateless: bool = False

    @property
    def live(self) -> bool:
        """Whether it is unfinished."""
        outgoing = self.stored.outgoing
        return outgoing.state not in FINAL_OUTGOING or outgoing.notice_owed


class OutgoingBytes(NamedTuple):
    """What is sent, or what it is made of while it waits for its number."""

    parcel: StoredParcel | None
    draft: bytes | None
    # Files of the spool that the draft speaks of.
    files: tuple[SpoolSlice, ...] = ()


class ReceiptRow(NamedTuple):
    """What proved the receipt of the sent message at that position; it is only written here."""

    position: int
    receipt: StoredReceipt


class WordsRow(NamedTuple):
    """What a message is found by besides its header; it is only written here."""

    # Of a sent one its position, of a received one its row.
    number: int
    words: tuple[Word, ...]


class AnswerHead(NamedTuple):
    """An answer without its bytes."""

    answer_id: str
    kind: MessageKind
    owed: bool


class IncomingRow(NamedTuple):
    """A received message; `stored` has neither parcel, view nor answer."""

    stored: StoredIncoming
    answer: AnswerHead | None
    keep_until: Instant
    held: bool = False
    problem: StoreDamaged | None = None
    stateless: bool = False

    @property
    def owed(self) -> bool:
        """Whether its answer must still be carried to its sender."""
        return self.answer is not None and self.answer.owed

    @property
    def live(self) -> bool:
        """Whether it is unfinished."""
        return self.stored.incoming.state not in FINAL_INCOMING or self.owed


class DocumentRow(NamedTuple):
    """How far a document is."""

    document: SplitDocument
    keep_until: Instant


class IncomingBytes(NamedTuple):
    """What was received, and what was accepted of it."""

    parcel: StoredParcel | None
    view: bytes | None


class AnswerBytes(NamedTuple):
    """What was answered."""

    parcel: StoredParcel | None
    problem: StoreDamaged | None = None


LIVE_OUTGOING = tuple(state for state in OutgoingState if state not in FINAL_OUTGOING)
LIVE_INCOMING = (
    IncomingState.HELD,
    IncomingState.READY,
    IncomingState.GATHERED,
    IncomingState.HANDED_OVER,
)


def whole(row: IncomingRow, content: IncomingBytes, answer: AnswerBytes) -> StoredIncoming:
    """A received message with its bytes and its answer, if that can be read."""
    stored, head = row.stored, row.answer
    answered = None
    if head is not None and answer.parcel is not None and answer.problem is None:
        answered = StoredAnswer(head.answer_id, head.kind, answer.parcel, head.owed)
    return replace(stored, parcel=content.parcel, answer=answered, view=content.view)
