"""The store's contract: every step the handler takes in one transaction.

These docstrings bind every backend, and one suite of tests holds each of them to it.

A handler opens a `transition()`, reads and writes through the `Transaction` it gets, and
leaves it. Leaving normally keeps the transition's changes for the next `commit()`;
leaving by an exception undoes exactly this transition. `commit()` makes everything kept
since the last commit durable, all or nothing: after it returns, a crash loses none of
it; when it raises, none of it happened, and every caller whose transition was in it must
be told so. Nothing may leave the process between a transition and its commit.

One transition is open at a time; opening another inside it, or committing inside it, raises
NotAllowed. When the store itself fails inside a transition (StoreFull, StoreGone), what was kept
since the last commit is undone with it; if there was anything, `pending()` stays true and
transitions are refused until `commit()` has raised the failure, so that every caller is told.
Saving a message that is not there raises UnknownMessage. A message is filed under its terms, so
they are remembered first: adding or saving one whose terms are not kept raises NotAllowed. The same
holds for its agreement, where it names one.

What was stored may be damaged when it is read. Asked for by its key, that thing raises
StoreDamaged, which says whose trouble it is and undoes nothing else. A list never raises for one
of many: a damaged sent message is in it with its `damage`, a received one in its place, and
a step that reads it whole gets the error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from oncewire.errors import HandlerFailed
from oncewire.journal.row import Row
from oncewire.message.instant import Duration, Instant
from oncewire.protocol.documents import SplitDocument
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import Incoming, IncomingState, Outgoing, OutgoingState
from oncewire.protocol.terms import Terms
from oncewire.store.records import (
    Damage,
    Fellow,
    Incident,
    JournalSpan,
    Refusal,
    Removed,
    Space,
    SpoolSlice,
    StoredAnswer,
    StoredIncoming,
    StoredOutgoing,
    StoredParcel,
    StoredReceipt,
    Unsettled,
    Word,
)
from oncewire.store.search import Found, Mark, Place, Search, Tally
from oncewire.store.spool_contract import Spool


class Transaction(Protocol):
    """One transition. It sees its own changes and those of transitions before it."""

    def expect(self, message_ids: Sequence[str]) -> None:
        """Load messages with these ids that may be asked for before the next commit, by one query a
        table for all of them."""

    # --- journal, terms and agreements ---

    def journal(self, rows: Iterable[Row]) -> None:
        """Append rows in order. The store sets `seq`; the rows' own is ignored."""

    def remember_terms(self, terms: Terms) -> bool:
        """Keep terms under their id; True when they were not kept before."""

    def terms(self, terms_id: str) -> Terms | None:
        """Terms by their id. Damaged ones are mended when they are remembered again."""

    def remember_agreement(self, agreement_id: str, content: str) -> bool:
        """Keep an agreement's text under its id; True when it was not kept before."""

    def agreement(self, agreement_id: str) -> str | None:
        """The text of an agreement by its id."""

    def mend_agreement(self, agreement_id: str, content: str) -> None:
        """Replace the damaged text that is kept under this id by the original one."""

    # --- channels ---

    def sending_channel(self, key: str) -> SendingChannel | None:
        """The stream's state at its sender, or None if it was never used."""

    def save_sending_channel(self, channel: SendingChannel) -> None:
        """Insert or replace."""

    def receiving_channel(self, key: str) -> ReceivingChannel | None:
        """The stream's state at its receiver, or None if it was never used."""

    def save_receiving_channel(self, channel: ReceivingChannel) -> None:
        """Insert or replace."""

    # --- documents that travel in parts ---

    def document(self, sender: str, split_id: str) -> SplitDocument | None:
        """How far a document is; the sender of one that is sent from here is empty."""

    def save_document(self, document: SplitDocument) -> None:
        """Insert or replace. Raises NotAllowed when its terms are not kept."""

    def open_documents(self) -> list[SplitDocument]:
        """Received documents that are neither whole nor given up, in order of their beginning,
        then of their key."""

    def gathered(self, sender: str) -> tuple[int, int]:
        """How many documents of that sender `open_documents` has, and the bytes of their parts
        that are stored; told without a look at each."""

    def parts(self, sender: str, split_id: str) -> list[StoredIncoming]:
        """HELD and GATHERED messages that are parts of a received document, by ordinal; listed,
        without their bytes."""

    # --- damage ---

    def mend(self, message_id: str) -> bool:
        """Give harmless values to what cannot be read of the messages with that id, so that an
        operator can end them; False when nothing was damaged."""

    def mend_channel(self, key: str) -> bool:
        """Make a damaged stream readable: it forgets what it noted of single numbers, and its epoch
        ends at its sender; False when nothing was damaged."""

    def damaged(self) -> list[Damage]:
        """Unfinished messages that no list can find or that have lost their bytes.
        Asked at a start."""

    # --- outgoing ---

    def add_outgoing(
        self,
        stored: StoredOutgoing,
        *,
        parcel: StoredParcel | None,
        draft: bytes | None,
        files: tuple[SpoolSlice, ...] = (),
        words: tuple[Word, ...] = (),
    ) -> StoredOutgoing:
        """Insert; exactly one of parcel and draft is given, else InvalidValue is raised. Returns it
        with its position. `files` are those of the spool that a draft speaks of: they stay with it.
        `words` are what it is found by besides its header, for as long as it is kept; those that
        `search.kept_words` leaves out are not kept.
        Raises NotAllowed when the MessageId is there already: an id is used once.
        """

    def outgoing(self, message_id: str) -> StoredOutgoing | None:
        """One outgoing message, without its bytes."""

    def outgoing_parcel(self, message_id: str) -> StoredParcel | None:
        """The bytes to transmit, or None while it waits for its number."""

    def draft(self, message_id: str) -> bytes | None:
        """The values a waiting message is built from."""

    def save_outgoing(self, outgoing: Outgoing, *, parcel: StoredParcel | None = None) -> None:
        """Replace the protocol state; a parcel, when given, takes the draft's place."""

    def keep_receipt(self, message_id: str, receipt: StoredReceipt) -> None:
        """Keep the bytes that prove its receipt, in the place of those that did before; they go
        when the message goes."""

    def waiting(self, channel: str, limit: int) -> list[StoredOutgoing]:
        """Messages of the channel that wait for a place, in order of submission."""

    def live(self, channel: str) -> list[StoredOutgoing]:
        """Messages of the channel that are outstanding or suspended, in order of their
        epoch and of their entry into the window: the order in which they first became
        outstanding, which numbers cannot tell because they wrap around."""

    def due(self, now: Instant, limit: int) -> list[str]:
        """Ids of outstanding messages whose next attempt is due and whose channel, if they have
        one, is neither suspended nor paused beyond `now`; earliest first (a message of a paused
        channel counts from the end of the pause), and in order of submission among equals."""

    def expired(self, now: Instant, limit: int) -> list[str]:
        """Ids of messages not final yet whose deadline (`save_outgoing` keeps
        `Outgoing.deadline` beside the state) is `now` or earlier; earliest first."""

    def notices_owed(self, limit: int, after: int = 0) -> list[StoredOutgoing]:
        """Messages whose failure the From Party was not told of yet, in order of
        submission; `after` is the position to go on from (it is left out)."""

    def responses_to(self, message_id: str, peer: str) -> list[StoredOutgoing]:
        """Outgoing messages that answer this one to that peer, in order of their first
        sending as the store saw it, whatever the clock said then (C15); those not sent yet
        come last, in order of submission."""

    # --- incoming ---

    def add_incoming(
        self, stored: StoredIncoming, words: tuple[Word, ...] = ()
    ) -> StoredIncoming | None:
        """Insert; None when it was inserted, else the row that was there before. `words`: see
        `add_outgoing`.

        The unique key (sender, message_id) is the judge of duplicates, so two copies in
        two transitions cannot both be first (DRV-2). Every row gets its `row` number in
        order of arrival, a READY one its position too, unless it has the one that
        `take_place` gave. ARRIVING means not stored yet and is refused with InvalidValue.
        """

    def incoming(self, sender: str, message_id: str) -> StoredIncoming | None:
        """The received message with that key of duplicates."""

    def incoming_by_id(self, message_id: str) -> list[StoredIncoming]:
        """Every sender's message with that id, first received first (status requests,
        `show`)."""

    def save_incoming(self, incoming: Incoming, *, forget: bool = False) -> None:
        """Replace the protocol state. A row that becomes READY for the first time gets
        its position: deliveries follow positions. `forget`: its parcel and view go, its answer
        stays."""

    def take_place(self) -> int:
        """The next position in the order of delivery, for a message that is not there yet."""

    def save_answer(self, sender: str, message_id: str, answer: StoredAnswer) -> None:
        """Set or replace the answer, or mark it no longer owed."""

    def answer(self, sender: str, message_id: str) -> StoredAnswer | None:
        """The answer of a message, without the message's own bytes."""

    def answer_left(self, sender: str, message_id: str) -> None:
        """Mark the answer no longer owed, whatever its bytes are."""

    # Lists of received messages hold neither parcel, view nor answer: there may be many, and their
    # bodies large. `answered` says whether there is an answer.

    def answers_owed(self, limit: int, after: int = 0) -> list[StoredIncoming]:
        """Messages whose answer must still be carried over a connection of its own, first
        received first; `after` is the `row` to go on from (it is left out)."""

    def answers_overdue(self, now: Instant, limit: int) -> list[StoredIncoming]:
        """Those of them that were received persistDuration ago or earlier, first received
        first: such an answer is not awaited any more."""

    def ready(self, now: Instant, limit: int) -> list[StoredIncoming]:
        """READY messages, and HANDED_OVER ones whose lease has run out (`lease_until` is
        `now` or earlier; without one it never does), all by position."""

    def given(self, now: Instant) -> list[StoredIncoming]:
        """HANDED_OVER messages that their takers own: the lease runs out later than `now`."""

    def held(self, limit: int) -> list[StoredIncoming]:
        """HELD messages, first received first: they wait for an earlier number."""

    # --- incidents ---

    def open_incident(
        self, at: Instant, reason: str, message_id: str | None, channel: str | None
    ) -> int:
        """Open one, or return the id of the open one for the same message and channel."""

    def resolve_incidents(
        self, at: Instant, message_id: str | None, channel: str | None
    ) -> list[int]:
        """Resolve the open ones of this message, or of this channel; returns their ids in
        order. With neither given, the open ones that name neither."""

    def has_incident(self, message_id: str | None, channel: str | None) -> bool:
        """Whether one is open for just this message and channel."""

    def count_refusals(self, refusals: Iterable[Refusal]) -> None:
        """Add to what is known of refused messages, by code and address. At most REFUSALS_MAX
        addresses have rows; what comes from another is counted under its code and address "".
        Rows whose last refusal is REFUSALS_KEPT before the newest one are forgotten."""

    # --- time ---

    def shift_timers(self, by: Duration) -> None:
        """The clock was set by so much: move every instant that something waits for (next
        attempts, pauses of channels, leases), so that what was left to wait stays. Deadlines,
        and instants at which something happened, stay where they are."""

    # --- keeping ---

    def sweep(self, now: Instant, limit: int) -> int:
        """Remove messages that are final, past their keep-until instant and not under
        legal hold; at most `limit`, outgoing before incoming, earliest first. Journal rows
        are not touched. Returns how many were removed.

        Keep-until is arrival or first send (submission where nothing was sent) +
        persistDuration + keep. Final incoming is CONFIRMED, FORWARDED, REFUSED or CLOSED.
        What is still needed stays: an owed notice, an owed answer, a number that
        its channel has not settled, the message that suspended its channel, whatever an open
        incident names. So does a response while the message it answers is kept: a duplicate
        may ask for it (STO-9). So do the parts of a document under legal hold.

        Of each message a `Removed` remains for as long as the journal names the message. How far
        documents were is forgotten twice persistDuration + keep after they began, if they are
        neither open nor under legal hold; that is not counted.
        """

    def index(self) -> bool:
        """File a batch of messages under what they are found by, if many are not filed yet, as in
        the store of an earlier version; False when there are none. They are found before, too,
        but by a look at each."""

    def removed(self, message_id: str) -> list[Removed]:
        """What is remembered of removed messages with that id: the sent one first, then by
        sender. A message that was added again since is still remembered here."""

    def hold(self, message_id: str, held: bool) -> bool:
        """Set or lift a legal hold on every message with that id, sent or received; False
        when there is no such message."""

    def on_hold(self, message_id: str) -> bool:
        """Whether any message with that id is under legal hold."""

    def trim_journal(self, before: Instant, up_to_seq: int) -> int:
        """Remove rows older than `before` whose seq is at most `up_to_seq`; returns how
        many. A seq is never used again. What is remembered of removed messages goes with
        the last row that names them."""


class Reader(Protocol):
    """Queries for people and pipelines; they change nothing and see committed state."""

    def journal_since(self, seq: int, limit: int) -> list[Row]:
        """Rows with a greater seq, in order."""

    def journal_heads(self, seq: int, limit: int) -> dict[int, bytes]:
        """For rows with a greater seq, as `journal_since` gives them, the head of the chain before
        each, by its seq; behind the newest row of all the head there, by the seq that would be
        next. A row that was not chained has none."""

    def journal_span(self, after: int, through: int) -> JournalSpan:
        """Where the journal lies, and how many rows it has in `(after, through]`."""

    def journal_of(self, message_id: str) -> list[Row]:
        """Rows that name the message, in order."""

    def journal_ends(self, message_id: str, most: int) -> tuple[list[Row], int]:
        """The first rows that name the message and the last ones, at most so many of each, in
        order; and how many lie between them."""

    def journal_marks(self, message_id: str) -> dict[str, Mark]:
        """The kinds of the rows that name the message; the first `search.MARKED` of them count."""

    def terms(self, terms_id: str) -> Terms | None:
        """See `Transaction.terms`."""

    def agreement(self, agreement_id: str) -> str | None:
        """See `Transaction.agreement`."""

    def outgoing(self, message_id: str) -> StoredOutgoing | None:
        """The message that was sent from here under that id."""

    def outgoing_parcel(self, message_id: str) -> StoredParcel | None:
        """Its bytes, or None while it waits for its number."""

    def receipt(self, message_id: str) -> StoredReceipt | None:
        """The signed acknowledgement that proved its receipt, if one did."""

    def incoming(self, message_id: str) -> list[StoredIncoming]:
        """Every sender's message with that id, with parcel and answer, first received first."""

    def document(self, sender: str, split_id: str) -> SplitDocument | None:
        """See `Transaction.document`."""

    def on_hold(self, message_id: str) -> bool:
        """See `Transaction.on_hold`."""

    def notices_owed(self, limit: int, after: int = 0) -> list[StoredOutgoing]:
        """See `Transaction.notices_owed`."""

    def removed(self, message_id: str) -> list[Removed]:
        """See `Transaction.removed`."""

    def last_removal(self) -> Instant | None:
        """When the retention sweep last removed something that is still remembered."""

    def last_seq(self) -> int:
        """The newest seq ever committed, even if it was trimmed since; 0 before the first."""

    def outgoing_list(
        self, *, states: Sequence[OutgoingState] = (), limit: int = 100, before: int | None = None
    ) -> list[StoredOutgoing]:
        """Newest first, without trials; `before` is the position to go on from (it is left out)."""

    def incoming_list(
        self, *, states: Sequence[IncomingState] = (), limit: int = 100, before: int | None = None
    ) -> list[StoredIncoming]:
        """Newest received first, without trials, and each without parcel, view and answer;
        `before` is the `row` to go on from (it is left out)."""

    def oldest_unsettled(self, limit: int) -> list[Unsettled]:
        """Messages without an outcome, of each state those that were submitted first, at most
        `limit`; no other message is looked at."""

    def find_sent(
        self, search: Search, limit: int, after: Place | None = None
    ) -> Found[StoredOutgoing]:
        """Sent messages that are meant, without trials: the latest submitted first, then the one
        with the greatest position; `after` is the place to go on from (it is left out).

        However many are kept, at most `search.LOOKED_AT` are looked at. Where that ends a call
        before its `limit`, what it found has the place to go on from."""

    def find_received(
        self, search: Search, limit: int, after: Place | None = None
    ) -> Found[StoredIncoming]:
        """The same of received messages, by when they were received and their `row`; without
        parcel, view and answer."""

    def count_sent(self, search: Search, most: int) -> Tally:
        """How many sent messages are meant, in each state that there is; so many are looked at, at
        most."""

    def count_received(self, search: Search, most: int) -> Tally:
        """The same of received messages."""

    def counts(self) -> dict[str, int]:
        """How many messages, but for trials, are in each state: `out.delivered`,
        `in.confirmed`, ...; every state a stored message can have is there, with 0 where there
        is none. A document is counted, and not its parts: those that we send as its sender, those
        that it was joined of, and those that wait for the others."""

    def parts_counted(self) -> dict[str, int]:
        """How many parts of documents `counts` leaves out, in each state that there is."""

    def incidents(self, *, open_only: bool = True) -> list[Incident]:
        """Incidents, oldest first."""

    def refusals(self, limit: int = 100) -> list[Refusal]:
        """Refused messages of strangers, the latest first."""

    def refused_ids(self, part: str, limit: int) -> list[str]:
        """MessageIds with `part` in them, but for trials, that the journal calls refused, newest
        first; only the newest `limit` ids of all that are known here are looked at."""

    def channels(self, limit: int = 2**62) -> tuple[list[SendingChannel], list[ReceivingChannel]]:
        """The state of streams, by key, the first so many of each direction."""

    def sending_channel(self, key: str) -> SendingChannel | None:
        """The state of a stream that we send."""

    def receiving_channel(self, key: str) -> ReceivingChannel | None:
        """The state of a stream that we receive."""

    def spooled(self) -> set[str]:
        """Names of the spool files that any parcel, answer or receipt is made of."""


class Fellows(Protocol):
    """The handlers that work with one store beside each other, seen by one of them.

    What a handler does outside of its turns and no other may do meanwhile it claims, in the commit
    that decides about it. Claims hold for as long as its lease, which its commits renew.
    """

    lost: HandlerFailed | None
    """Why this one is no handler of the store any more: its lease ran out and others have taken
    over. Its process is to be ended."""
    draining: bool
    """It takes no new work, and ends when it has done what it claims."""

    others: int
    """How many others there were when it last looked who is over."""

    @property
    def stands(self) -> bool:
        """Whether its lease holds, by the steady clock of this process. A byte that belongs to a
        claim may leave only while it does."""

    @property
    def wants_turn(self) -> bool:
        """Whether a commit is to be made although no transition changed anything: to renew the
        lease, to write claims, or to tell the others something."""

    @property
    def takes_over(self) -> bool:
        """Whether a transition since the last commit drops handlers."""

    def hold(self, claims: Mapping[str, Iterable[tuple[str, str]]]) -> None:
        """What is claimed from the next commit on, and nothing else: of each kind the (sender,
        MessageId)."""

    def elsewhere(self, kind: str) -> Collection[tuple[str, str]]:
        """What the others claim of a kind; to be asked in a transition."""

    @property
    def leads(self) -> bool:
        """Whether it is the eldest of them; to be asked in a transition."""

    def take_over(self) -> int:
        """Drop handlers that are over, with their claims, as a step of the open transition; returns
        how many they were. What they left is to be taken up."""

    def tell(self, words: Iterable[tuple[str, ...]]) -> None:
        """Let the others know, with the next commit. It is a hint that may be lost."""

    def listen(self) -> int:
        """Begin to hear what the others tell; returns the file descriptor that something comes
        in on."""

    def heard(self) -> list[tuple[str, ...]]:
        """What they told since this was asked last; StoreGone: it must be listened anew."""

    def all(self) -> list[Fellow]:
        """Every handler of the store, in order of their beginnings."""


class Store(Protocol):
    """A store of one node."""

    @property
    def fellows(self) -> Fellows | None:
        """The handlers beside this one; None: there can be none."""

    @property
    def spool(self) -> Spool:
        """Where large payloads lie."""

    def transition(self) -> AbstractContextManager[Transaction]:
        """A transition, undone alone if it raises."""

    def one_turn(self) -> AbstractContextManager[None]:
        """Transitions within it see no commit of another handler between them, and take less time
        than each alone. Others wait until it ends, so it is for steps that do not stand still."""

    def commit(self) -> None:
        """Make all transitions since the last commit durable, or raise StoreFull or
        StoreGone and undo all of them."""

    def pending(self) -> bool:
        """Whether there is anything to commit."""

    durable_seconds: float
    """How long it took lately until a commit was durable, apart from writing what is in it."""

    def next_wake(self, under_way: Collection[str] = ()) -> Instant | None:
        """The earliest instant at which `due`, `expired` or, by a lease that runs out,
        `ready` will find something; None when no timer runs. READY messages need no
        wake-up: they are there. Attempts `under_way`, by MessageId, and those that another handler
        claims need none either: their end is a turn of its own."""

    def reader(self) -> AbstractContextManager[Reader]:
        """A consistent view of committed state, cheap to open and short-lived."""

    def space(self) -> Space:
        """What it takes of its disk. It looks at every file of the spool, and may be called in
        any thread."""

    def node(self) -> str:
        """The name of the handler this store belongs to, written when it was made."""

    def close(self) -> None:
        """Release everything; uncommitted transitions are undone."""
