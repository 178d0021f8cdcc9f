"""What the store keeps of a message besides the protocol's own state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from oncewire.journal.identity import START
from oncewire.message.envelope import MessageKind
from oncewire.message.instant import SECOND, Duration, Instant
from oncewire.protocol.states import Incoming, IncomingState, Outgoing, OutgoingState


class StoreMark(Struct, frozen=True, gc=False):
    """The identity of a store and how far its journal has come: enough to recognise it."""

    # Given once, when the store is made; empty: that there was a store is all that is known.
    store_id: str
    # Rows that its journal has had, removed ones too.
    journal: int
    # The head of the chain behind the last of them, in hex.
    head: str

    @classmethod
    def read(cls, rows: Sequence[Sequence[object]]) -> StoreMark | None:
        """Of a row with the store's id, its journal's last row and the head of its chain."""
        for store_id, journal, head in rows:
            return cls(str(store_id or ""), int(str(journal)), cls.head_of(head))
        return None

    @staticmethod
    def head_of(head: object) -> str:
        """The head of a chain, as a mark has it."""
        return (head if isinstance(head, bytes) else START).hex()


class JournalSpan(NamedTuple):
    """Where a journal lies, and how many rows a range of it has."""

    first: int
    last: int
    """The first and the last row that are there; 0 where there is none."""
    chained_from: int
    """The first row there that was chained to the one before; 0 where there is none."""
    rows: int


class SpoolSlice(Struct, frozen=True, gc=False, array_like=True):
    """Part of a file in the spool; a large payload is never copied into a row."""

    name: str
    offset: int
    length: int


class StoredParcel(Struct, frozen=True, gc=False):
    """The exact bytes of a message: sent, resent and verified from here and nowhere else."""

    content_type: str
    headers: tuple[tuple[str, str], ...]
    # In order; their concatenation is the body.
    body: tuple[bytes | SpoolSlice, ...]

    @property
    def size(self) -> int:
        """Length of the body in bytes."""
        lengths = [part.length if isinstance(part, SpoolSlice) else len(part) for part in self.body]
        return sum(lengths)

    @property
    def spooled(self) -> tuple[str, ...]:
        """Names of the spool files it is made of."""
        return tuple([part.name for part in self.body if isinstance(part, SpoolSlice)])


class MessageFacts(Struct, frozen=True, gc=False):
    """What listings and queries show of a message without parsing its bytes."""

    cpa_id: str
    conversation_id: str
    from_party: str
    to_party: str
    service: str
    action: str
    timestamp: Instant
    ref_to: str | None
    kind: MessageKind
    digest: str
    size: int
    split_id: str | None = None
    # Document parts: ordinal and total.
    split_number: int | None = None
    split_total: int | None = None


class Word(Struct, frozen=True, gc=False):
    """A text by which a message is found: a file's name, or a value in one of its documents."""

    # Where in a document the value stands, as the agreement writes it; empty: a file's name.
    path: str
    text: str


class StoredOutgoing(Struct, frozen=True, gc=False):
    """One outgoing message. Its bytes come separately: most steps do not need them.

    While it waits for a place in the window it has a draft (its values, from which the
    bytes are built once the number is known); from then on it has a parcel.
    """

    outgoing: Outgoing
    facts: MessageFacts
    # The hop's receiver: whose answers settle it and whose duplicates it answers.
    peer: str
    # Order of submission; the store gives it.
    position: int = 0
    # For a hub's onward copy: the sender of the message it relays (HOP-8), else None.
    relayed_from: str | None = None
    hop: int = 0
    # The agreement it was accepted under; None: by a version that did not keep them.
    agreement_id: str | None = None
    # What of it cannot be read any more; listed like this, it goes nowhere.
    damage: str = ""


class StoredAnswer(Struct, frozen=True, gc=False):
    """The answer first given to a message; a duplicate gets these bytes again."""

    answer_id: str
    kind: MessageKind
    parcel: StoredParcel
    # A new connection must still carry it to `peer`; False once it left.
    owed: bool = False

    def delivered(self) -> StoredAnswer:
        """The answer, no longer owed."""
        return replace(self, owed=False)


class StoredReceipt(Struct, frozen=True, gc=False):
    """The signed acknowledgement that proved the receipt of a message of ours, as it came."""

    # MessageId of the acknowledgement.
    receipt_id: str
    received_at: Instant
    parcel: StoredParcel


class StoredIncoming(Struct, frozen=True, gc=False):
    """One incoming message and the answer it got, in one row."""

    incoming: Incoming
    facts: MessageFacts
    peer: str
    transport: str
    parcel: StoredParcel | None
    answer: StoredAnswer | None = None
    # Order of delivery among ready messages; the store gives it. 0: not ready yet.
    position: int = 0
    hop: int = 0
    # Order of arrival; the store gives it, and listings go on from it.
    row: int = 0
    # The agreement it was judged under, by which its copies are judged too.
    agreement_id: str | None = None
    # What was accepted of its bytes, as the handler wrote it down; None: they must be read.
    view: bytes | None = None
    # Whether it has an answer, also where it is listed without its bytes.
    answered: bool = False

    @property
    def stands_behind(self) -> bool:
        """Whether it is a part whose document is looked at in its place: one that was joined, or
        that waits for the other parts. Others are messages like any."""
        behind = (IncomingState.CONFIRMED, IncomingState.GATHERED)
        return self.facts.split_number is not None and self.incoming.state in behind

    @property
    def passed_on(self) -> bool:
        """Whether a hub sent it on and promised nothing: its bytes are not kept (HOP-7)."""
        return self.incoming.state is IncomingState.FORWARDED and self.parcel is None


class Removed(Struct, frozen=True, gc=False):
    """What is remembered of a message that the retention sweep removed."""

    message_id: str
    # The From Party, by the key of duplicates; None: it was sent from here.
    sender: str | None
    digest: str
    # The outcome at its sender, or where it stood at its receiver.
    state: str
    # When it was received, or first sent (submitted where nothing was sent).
    at: Instant
    removed_at: Instant
    agreement_id: str | None = None


REFUSALS_MAX = 1000
"""Rows of refusals that a store keeps; what comes from more addresses is counted together."""

REFUSALS_KEPT: Duration = 30 * 24 * 3600 * SECOND
"""How long a refusal is remembered after the last of its kind."""


class Refusal(Struct, frozen=True, gc=False):
    """Refused messages of unknown senders, of one kind and from one address ('': from many)."""

    code: str
    address: str
    count: int
    first_at: Instant
    last_at: Instant
    # Of the last of them.
    problem: str = ""
    message_id: str | None = None

    def __add__(self, later: Refusal) -> Refusal:
        """This refusal with the count and the sample of later ones added."""
        return Refusal(
            self.code,
            self.address,
            self.count + later.count,
            self.first_at,
            later.last_at,
            later.problem,
            later.message_id,
        )


class Incident(Struct, frozen=True, gc=False):
    """Something an operator must resolve."""

    id: int
    opened_at: Instant
    reason: str
    message_id: str | None = None
    channel: str | None = None
    resolved_at: Instant | None = None


class Unsettled(Struct, frozen=True, gc=False):
    """A message that was sent from here and has no outcome yet, as far as a watcher looks."""

    peer: str
    channel: str | None
    state: OutgoingState
    submitted_at: Instant


class Space(Struct, frozen=True, gc=False):
    """What a store takes of its disk, in bytes, and what is left there."""

    # The database with its log, and the files of the spool.
    database: int = 0
    spool: int = 0
    # None: it lies on no disk.
    free: int | None = None
    total: int | None = None


class Damage(Struct, frozen=True, gc=False):
    """A stored message that no list can find, or that has lost its bytes."""

    problem: str
    # None: not even that is left.
    message_id: str | None = None
    # It was sent from here; otherwise it was received.
    sent: bool = False


class Claim(NamedTuple):
    """Something that one handler does and no other of the same store may do meanwhile, or that a
    connection waits for at it."""

    kind: str
    # Empty where the MessageId alone says it.
    sender: str
    message_id: str


class Fellow(Struct, frozen=True, gc=False):
    """A handler among those that work with one store, as the store knows it. Its instants are those
    of the store's own clock."""

    name: str
    host: str
    pid: int
    started_at: Instant
    # When it was heard of last, how long it may do what it claims, and what time it is there.
    seen_at: Instant
    leased_until: Instant
    now: Instant
    draining: bool
    ended: bool
    # How many things it claims, of each kind.
    claims: dict[str, int]
