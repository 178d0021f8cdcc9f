"""Rows: a message with everything that it is filed under, apart from its bytes.

The bytes have rows of their own: most steps do not need them, and they may be large.
"""

from __future__ import annotations

from typing import NamedTuple

from oncewire.errors import StoreDamaged
from oncewire.message.envelope import MessageKind
from oncewire.message.instant import Instant
from oncewire.protocol.documents import SplitDocument
from oncewire.protocol.states import FINAL_OUTGOING, IncomingState, OutgoingState
from oncewire.store.records import (
    SpoolSlice,
    StoredAnswer,
    StoredIncoming,
    StoredOutgoing,
    StoredParcel,
    StoredReceipt,
)
from oncewire.store.schedule import FINAL_INCOMING

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
    # What of it cannot be read; nobody gets it by its key then.
    problem: StoreDamaged | None = None
    # Not even its state can be read, so no list by state finds it.
    stateless: bool = False

    @property
    def live(self) -> bool:
        """Whether anybody waits for something of it."""
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
        """Whether anybody waits for something of it."""
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


def listed(
    stored: StoredIncoming, *, position: int | None = None, row: int | None = None
) -> StoredIncoming:
    """A received message as lists show it: without its bytes."""
    return StoredIncoming(
        stored.incoming,
        stored.facts,
        stored.peer,
        stored.transport,
        None,
        None,
        stored.position if position is None else position,
        stored.hop,
        stored.row if row is None else row,
        stored.agreement_id,
        None,
        stored.answered or stored.answer is not None,
    )


def whole(row: IncomingRow, content: IncomingBytes, answer: AnswerBytes) -> StoredIncoming:
    """A received message with its bytes and its answer, if that can be read."""
    stored, head = row.stored, row.answer
    answered = None
    if head is not None and answer.parcel is not None and answer.problem is None:
        answered = StoredAnswer(head.answer_id, head.kind, answer.parcel, head.owed)
    return StoredIncoming(
        stored.incoming,
        stored.facts,
        stored.peer,
        stored.transport,
        content.parcel,
        answered,
        stored.position,
        stored.hop,
        stored.row,
        stored.agreement_id,
        content.view,
        stored.answered,
    )
