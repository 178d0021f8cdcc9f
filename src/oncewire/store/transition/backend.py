"""What a backend is: it loads rows by their keys, finds keys by an index, and writes changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from oncewire.errors import StoreFull, StoreGone
from oncewire.message.instant import Duration, Instant
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import Outgoing
from oncewire.protocol.terms import Terms
from oncewire.store.records import Damage, Incident, Refusal, Removed
from oncewire.store.transition.rows import (
    AnswerBytes,
    DocumentRow,
    IncomingBytes,
    IncomingKey,
    IncomingRow,
    OutgoingBytes,
    OutgoingRow,
    ReceiptRow,
    WordsRow,
)

R = TypeVar("R")
Values = tuple[Any, ...]

COUNTERS = ("journal", "outgoing", "entered", "incoming", "ready", "incident")
"""The kinds of numbers that a store gives."""

FOR_EVER: Instant = 2**62
"""Later than any instant that is kept."""


class Changes(NamedTuple):
    """What the transitions since the last commit did: each key with its row before (None: there
    was none) and its row now, where bytes are concerned only the row now."""

    counters: dict[str, int]
    # Rows of the journal with their seq, in order.
    journal: list[Values]
    terms: list[tuple[str, Terms]]
    agreements: list[tuple[str, str]]
    sending: list[SendingChannel]
    receiving: list[ReceivingChannel]
    outgoing: list[tuple[OutgoingRow | None, OutgoingRow]]
    outgoing_bytes: dict[str, OutgoingBytes]
    incoming: list[tuple[IncomingRow | None, IncomingRow]]
    incoming_bytes: dict[IncomingKey, IncomingBytes]
    answers: dict[IncomingKey, AnswerBytes]
    receipts: dict[str, ReceiptRow]
    incidents: list[tuple[Incident | None, Incident]]
    documents: list[DocumentRow]
    # Of sent messages under the sender "".
    words: dict[IncomingKey, WordsRow]


class Backend(Protocol):
    """Rows of one node. Loading and scanning see what was applied, committed or not.

    Any question raises StoreFull or StoreGone when the backend fails, and StoreDamaged where what
    it would answer with cannot be read.
    """

    @property
    def failure(self) -> StoreFull | StoreGone | None:
        """How it failed, if it did: nothing since the last commit can be relied on then."""

    def changed_elsewhere(self) -> bool:
        """Whether another process has written since this was asked last; then nothing that was read
        before holds."""

    def begin_turn(self) -> None:
        """Keep others from writing until the commit, or until `let_go`."""

    def let_go(self) -> None:
        """Let others write: the turn has changed nothing."""

    # --- load ---

    def counters(self) -> dict[str, int]:
        """The last number given of each kind."""

    def terms(self, terms_id: str) -> Terms | None:
        """Terms by their id."""

    def agreement(self, agreement_id: str) -> str | None:
        """An agreement's text by its id."""

    def sending_channel(self, key: str) -> SendingChannel | None:
        """A stream at its sender."""

    def receiving_channel(self, key: str) -> ReceivingChannel | None:
        """A stream at its receiver."""

    def outgoing(self, message_ids: Sequence[str]) -> list[OutgoingRow]:
        """The sent messages among these; a damaged one has its problem."""

    def incoming(self, message_ids: Sequence[str]) -> list[IncomingRow]:
        """Every sender's messages with these ids; a damaged one has its problem."""

    def outgoing_bytes(self, message_id: str) -> OutgoingBytes | None:
        """The bytes of a sent message."""

    def incoming_bytes(self, key: IncomingKey) -> tuple[IncomingBytes, AnswerBytes]:
        """The bytes of a received message and of its answer; nothing where there are none."""

    def answer_bytes(self, key: IncomingKey) -> AnswerBytes:
        """The bytes of its answer alone."""

    def removed(self, message_ids: Sequence[str]) -> list[Removed]:
        """What is remembered of removed messages with these ids: sent ones first, by sender."""

    def incidents(self) -> list[Incident]:
        """Those that are open."""

    def document(self, key: IncomingKey) -> DocumentRow | None:
        """How far a document is, by sender and SplitId."""

    def open_documents(self) -> list[DocumentRow]:
        """Received ones that are open."""

    def gathered(self, sender: str) -> tuple[int, int]:
        """How many of them are a sender's, and their bytes."""

    # --- scan ---

    def scan(self, index: str, bounds: Values, after: Values | None, limit: int) -> list[Values]:
        """Keys of an index, in its order, beyond the key `after`. Each ends with the row's key.

        `due`, `expiring`, `leases`: up to the instant in `bounds`; `waiting`, `live`: of the
        channel in it; `responses`: of (MessageId, peer); `notices`, `answers`, `ready`, `held`:
        all; `parts`: HELD and GATHERED ones of (sender, SplitId). `live`, `responses`, `leases` and
        `parts` are given whole.
        """

    def live(self, limit: int) -> tuple[list[str], list[IncomingKey]]:
        """Keys of the sent and the received messages that are live, at most `limit` of each."""

    def owed(self, now: Instant) -> list[tuple[int, IncomingKey, Instant, str]]:
        """(row, key, received_at, terms_id) of those received until now with an owed answer."""

    # --- apply ---

    def check(
        self,
        added: Sequence[OutgoingRow | IncomingRow],
        saved: Sequence[OutgoingRow | IncomingRow],
        journal: Sequence[Values],
    ) -> None:
        """Raise StoreProblem if a row cannot be kept as it is, before it fails a whole turn. Of
        those that are only saved, the state alone can have changed."""

    def apply(self, changes: Changes) -> None:
        """Write changes; they are durable after `commit`."""

    def commit(self) -> None:
        """Make durable what was applied."""

    def applied(self) -> bool:
        """Whether anything was applied that is not committed yet."""

    # --- steps over many rows, done where the rows are; `begin_steps` and one of the others
    # --- enclose those of one transition, which is undone alone like any other

    def begin_steps(self) -> None:
        """Begin steps that can be undone together."""

    def keep_steps(self) -> None:
        """Keep the steps since `begin_steps`."""

    def undo_steps(self) -> None:
        """Undo the steps since `begin_steps`."""

    def sweep(self, still_counts: Callable[[Outgoing], bool], now: Instant, limit: int) -> int:
        """See `Transaction.sweep`; `still_counts`: its channel waits for a decision about it."""

    def index(self) -> bool:
        """See `Transaction.index`."""

    def trim_journal(self, before: Instant, up_to_seq: int) -> int:
        """See `Transaction.trim_journal`."""

    def shift_timers(self, by: Duration) -> None:
        """See `Transaction.shift_timers`."""

    def count_refusals(self, refusals: Iterable[Refusal]) -> None:
        """See `Transaction.count_refusals`."""

    def mend(self, message_id: str) -> bool:
        """See `Transaction.mend`."""

    def mend_channel(self, key: str) -> bool:
        """See `Transaction.mend_channel`."""

    def damaged(self) -> list[Damage]:
        """See `Transaction.damaged`."""
