"""The world of one stream: what happens in it, in the order of true time."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from heapq import heappop, heappush
from itertools import accumulate
from operator import methodcaller
from random import Random
from typing import Any, NamedTuple

from msgspec.structs import replace

from oncewire.journal.row import Row
from oncewire.message.envelope import SequenceNumber, SequenceStatus
from oncewire.message.instant import MILLISECOND, MINUTE, SECOND, Duration, Instant
from oncewire.protocol import notes
from oncewire.protocol.notes import Kind, Note, write_terms
from oncewire.protocol.terms import OnExhausted, RetryCount, Terms

# A stream of the year: the messages of one agreement in one direction, and its two nodes.


@dataclass(frozen=True, slots=True)
class Force:
    """What is fixed for one message instead of left to chance."""

    misbehaviour: str = ""
    """What its handlers do wrong; empty for a neighbour that goes plainly."""
    gap: Duration | None = None
    """How long after the message before it it is submitted, at most."""
    ack_after: Duration = 0
    """How much longer than usual its acknowledgement takes."""


@dataclass(frozen=True)
class Handler:
    """One node: its name, its party, its clock's error and the instants it was started."""

    name: str
    skew: Duration
    boots: tuple[Instant, ...]

    @cached_property
    def party(self) -> str:
        """Its PartyId."""
        return f"urn:party:{self.name}"

    @cached_property
    def boot_names(self) -> tuple[str, ...]:
        """What its journal calls its boots."""
        return tuple(f"{self.name}-{boot + 1}" for boot in range(len(self.boots)))

    def boot_at(self, instant: Instant) -> int:
        """Which of its boots was running."""
        return (bisect_right(self.boots, instant) or 1) - 1


@dataclass(frozen=True, slots=True)
class Stream:
    """All messages of one agreement in one direction."""

    index: int
    sender: Handler
    receiver: Handler
    hub: Handler | None
    terms: Terms
    signed: bool
    split: bool
    count: int
    forces: dict[int, Force] = field(default_factory=dict)
    """What is done wrong, by the message's index."""

    @property
    def channel(self) -> str | None:
        """The numbered stream's name."""
        if not self.terms.numbered:
            return None
        return f"{self.sender.name}>{self.receiver.name}/{self.index}"

    @property
    def cpa_id(self) -> str:
        """The agreement that its messages name."""
        return f"cpa-{self.sender.name}-{self.receiver.name}-{self.index}"


# What handlers do wrong on purpose: each twist breaks one promise about one message.
#
# A twisted message runs through the same protocol as all others. Its sender goes by other terms
# than were agreed, the network has something in store for it, or its rows tell something else.

NEVER = 1_000
"""More attempts than any terms allow."""
AGREED = -1

Columns = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Twist:
    """How one message differs from an honest one."""

    terms: Callable[[Terms], Terms] = lambda terms: terms
    """The terms that its sender goes by."""
    lost: int = 0
    """How many attempts do not arrive; AGREED: as many as were agreed."""
    acks_lost: int = 0
    answer: str = ""
    """What its receiver answers, if that is no acknowledgement."""
    timers: bool = True
    """Whether its sender ever looks at it again."""
    drops: frozenset[Kind] = frozenset()
    repeats: Mapping[Kind, Duration] = field(default_factory=dict)
    """Rows that are told once more, so much later."""
    moves: Mapping[Kind, Duration] = field(default_factory=dict)
    says: Mapping[Kind, Callable[[Columns], Columns]] = field(default_factory=dict)
    """What else some columns of a row say."""

    def rows(self, when: Instant, kind: Kind, told: Columns) -> Iterator[tuple[Instant, Columns]]:
        """The rows that stand in the place of an honest one."""
        if kind in self.drops:
            return
        if kind in self.says:
            told = {**told, **self.says[kind](told)}
        yield when + self.moves.get(kind, 0), told
        if kind in self.repeats:
            yield when + self.repeats[kind], told


def other_digest(digest: str) -> str:
    """A digest that is not the message's."""
    return hashlib.sha256(digest.encode()).hexdigest()


def _failing(terms: Terms) -> Terms:
    return replace(terms, on_exhausted=OnExhausted.FAIL_MESSAGE)


def _other_status(told: Columns) -> Columns:
    reset, goes_on = SequenceStatus.RESET.value, SequenceStatus.CONTINUE.value
    said = notes.Numbered.read(told["detail"]).status
    return {"detail": notes.Numbered(goes_on if said == reset else reset).write()}


def _notice(told: Columns) -> Columns:
    return {"detail": told["detail"].replace("{", '{"notice":true,', 1)}


K = Kind
_RECEIVER = frozenset({K.RECEIVED, K.ACK_SENT, K.HANDED_OVER, K.CONFIRMED})

TWISTS: dict[str, Twist] = {
    "never_handed_over": Twist(drops=frozenset({K.HANDED_OVER, K.CONFIRMED})),
    "never_sent": Twist(lost=NEVER, timers=False, drops=frozenset({K.SENT})),
    "no_word": Twist(lost=NEVER, timers=False),
    "no_end": Twist(acks_lost=NEVER, timers=False),
    "not_passed_on": Twist(),
    "never_confirmed": Twist(drops=frozenset({K.CONFIRMED})),
    "handed_over_twice": Twist(repeats={K.HANDED_OVER: SECOND, K.CONFIRMED: 2 * SECOND}),
    "handed_over_first": Twist(),
    "after_the_next": Twist(),
    "altered": Twist(),
    "given_otherwise": Twist(
        says={K.HANDED_OVER: lambda told: {"digest": other_digest(told["digest"])}}
    ),
    "other_number": Twist(
        says={K.HANDED_OVER: lambda told: {"sequence_number": told["sequence_number"] + 1}}
    ),
    "not_notified": Twist(terms=_failing, lost=NEVER, drops=frozenset({K.NOTIFIED})),
    "told_again": Twist(terms=_failing, lost=NEVER, repeats={K.NOTIFIED: SECOND}),
    "notice_of_notice": Twist(
        terms=_failing,
        acks_lost=NEVER,
        says={K.RECEIVED: _notice},
    ),
    "taken_back": Twist(),
    "wrong_outcome": Twist(
        terms=_failing,
        lost=NEVER,
        says={
            K.FAILED: lambda _: {"detail": notes.Failed("not_delivered", "exhausted").write()},
            K.NOTIFIED: lambda _: {"detail": notes.Notified("Error").write()},
        },
    ),
    "number_left_out": Twist(),
    "number_again": Twist(),
    "early_reset": Twist(),
    "beyond_window": Twist(terms=lambda terms: replace(terms, window=terms.window + 1)),
    "wrong_status": Twist(says={K.NUMBERED: _other_status}),
    "no_skip": Twist(answer="refused", drops=frozenset({K.SKIPPED})),
    "early_retry": Twist(terms=lambda terms: replace(terms, timeout=terms.timeout // 2), lost=1),
    "one_more_retry": Twist(
        terms=lambda terms: replace(terms, retries=terms.retries + 1), lost=AGREED
    ),
    "gave_up_early": Twist(terms=lambda terms: replace(_failing(terms), retries=0), lost=NEVER),
    # Later than any Timeout of the year, so that it is nothing else than too late.
    "sent_after_ack": Twist(repeats={K.SENT: 6 * MINUTE}),
    "second_ack": Twist(repeats={K.ACKNOWLEDGED: SECOND}),
    "unsigned_ack": Twist(
        says={K.ACKNOWLEDGED: lambda _: {"detail": notes.Acknowledged().write()}}
    ),
    "unverified": Twist(
        says={
            K.RECEIVED: lambda told: {"detail": told["detail"].replace('"verified"', '"partial"')}
        }
    ),
    "ack_of_nothing": Twist(drops=_RECEIVER),
    "ack_before_store": Twist(moves={K.ACK_SENT: -3}),
    "forgotten": Twist(repeats={K.RECEIVED: 20 * SECOND}),
    "invented": Twist(),
    "missing_part": Twist(),
}
"""By the name that `faults` uses. What cannot be said by these values is done by name where the
message is sent or received."""


# A letter: one message of the year on its way, and what the network has in store for it.


REFUSED, TRANSIENT = "refused", "transient"
"""What a receiver may answer that is no acknowledgement."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What happens to the attempts of one message on one hop."""

    lost: int = 0
    """How many attempts do not arrive."""
    acks_lost: int = 0
    """How many acknowledgements of attempts that arrive are lost."""
    certain: bool = False
    """Whether the connection was refused, so that its sender knows that nothing arrived."""
    answer: str = ""
    late: bool = False
    """An acknowledgement comes when its sender no longer waits for it."""
    ack_after: Duration = 0
    """How much longer than usual an acknowledgement takes."""


PLAIN = Trouble()
SILENT = Trouble(lost=NEVER)

_SHARE_OF = {
    "plain": 900,
    "resend": 35,
    "lost_ack": 35,
    "unknown": 6,
    "late_ack": 5,
    "no_connection": 4,
    "refused": 7,
    "transient": 4,
    "expired": 4,
}
_WAYS, _SHARES = tuple(_SHARE_OF), tuple(accumulate(_SHARE_OF.values()))


def draw_way(rng: Random) -> str:
    """What happens to a message that nothing is planned for."""
    return _WAYS[bisect_right(_SHARES, rng.random() * _SHARES[-1])]


def trouble_of(way: str, terms: Terms, rng: Random) -> Trouble:
    """The trouble that a message meets which goes this way."""
    ways = len(terms.transports) if terms.retries_counted is RetryCount.PER_TRANSPORT else 1
    more = ways * (1 + terms.resends) - 1
    if way == "plain" or (way in ("resend", "lost_ack") and not (more or not terms.reliable)):
        return PLAIN
    some = 1 + rng.randrange(more) if more else 1
    return {
        "resend": Trouble(lost=some),
        "lost_ack": Trouble(acks_lost=some),
        "unknown": SILENT,
        "late_ack": Trouble(acks_lost=NEVER, late=True),
        "no_connection": Trouble(lost=NEVER, certain=True),
        "refused": Trouble(answer=REFUSED),
        "transient": Trouble(answer=TRANSIENT),
        "expired": SILENT,
    }[way]


class Letter:
    """What both ends and the network know of one message."""

    __slots__ = (
        "digest", "document", "epoch", "expires_at", "force", "message_id", "part", "received",
        "sequence", "size", "stamp", "submitted", "troubles", "twist", "waits",
    )  # fmt: skip

    def __init__(
        self,
        message_id: str,
        digest: str,
        size: int,
        submitted: str,
        received: str,
        *,
        force: Force | None = None,
        document: str | None = None,
        part: int | None = None,
    ) -> None:
        self.message_id, self.digest, self.size = message_id, digest, size
        self.submitted, self.received = submitted, received
        """The details of its SUBMITTED and RECEIVED rows."""
        self.force, self.document, self.part = force, document, part
        self.twist: Twist | None = None
        if force is not None and force.misbehaviour:
            self.twist = TWISTS[force.misbehaviour]
        self.troubles: dict[int, Trouble] = {}
        """By hop; none: it goes plainly."""
        self.waits = False
        """Whether everything before it is settled when it enters the window."""
        self.expires_at: Instant | None = None
        self.stamp: Instant = 0
        self.sequence: SequenceNumber | None = None
        self.epoch: int | None = None
        """Of its receiver."""

    def does(self, misbehaviour: str) -> bool:
        """Whether this is what is done wrong with it."""
        return self.force is not None and self.force.misbehaviour == misbehaviour


# The writer: notes become journal rows of any node, on the clock and in the boot of that node.
#
# What a handler does wrong on purpose is done here where it only has to be told: rows that a
# twisted message leaves out, repeats, tells too early or tells otherwise.

Draft = tuple[Any, ...]
"""(true instant, unit, ordinal, at, mono, boot, node, kind, ..., detail): a row without its seq,
and what orders it among the rows of its node."""

KEYS = 3
"""How many values of a draft only say its order."""

_COLUMNS = Row._fields[Row._fields.index("kind") + 1 :]


_text = lru_cache(maxsize=4_096)(methodcaller("write"))
"""The text of a detail, cached: most notes say what others said."""


class Place(NamedTuple):
    """Where a row is written, and what it says of the message's way."""

    handler: Handler
    terms_id: str | None = None
    hop: int | None = None
    peer: str | None = None


class RowWriter:
    """Collects what one stream leaves in the journals of its nodes."""

    __slots__ = ("_end", "_unit", "rows", "twists")

    def __init__(self, unit: int, end: Instant) -> None:
        self._unit, self._end = unit, end
        self.rows: list[Draft] = []
        self.twists: dict[str | None, Twist] = {}
        """What is told otherwise, by the message's id."""

    def note(
        self,
        place: Place,
        when: Instant,
        note: Note,
        digest: str | None = None,
        size: int | None = None,
        detail: str | None = None,
    ) -> None:
        """The row of a note; `detail` is what the note tells, where that was written before."""
        handler, terms_id, hop, peer = place
        message_id, what = note.message_id, note.what
        told = (
            message_id, note.ref_to, terms_id, note.channel, note.epoch, note.number, note.attempt,
            hop, peer, note.transport, digest, size, detail or _text(what),
        )  # fmt: skip
        twist = self.twists.get(message_id) if self.twists else None
        if twist is None:
            self._keep(handler, when, what.KIND, told)
            return
        columns = dict(zip(_COLUMNS, told, strict=True))
        for moment, said in twist.rows(when, what.KIND, columns):
            self._keep(handler, moment, what.KIND, tuple(said.values()))

    def terms(self, handler: Handler, when: Instant, terms: Terms) -> None:
        """The row that tells once what other rows mean by the id of these terms."""
        said = {"terms_id": terms.terms_id, "detail": write_terms(terms)}
        self._keep(handler, when, Kind.TERMS, tuple(map(said.get, _COLUMNS)))

    def _keep(self, handler: Handler, when: Instant, kind: Kind, told: tuple[Any, ...]) -> None:
        """One row; the books are closed at the end of the year, whatever is under way."""
        if when > self._end:
            return
        boot = handler.boot_at(when)
        self.rows.append(
            (
                when, self._unit, len(self.rows), when + handler.skew, when - handler.boots[boot],
                handler.boot_names[boot], handler.name, kind.value, *told,
            )
        )  # fmt: skip


class World:
    """A queue of events until the end of the year, the rows they leave, and chance."""

    def __init__(self, writer: RowWriter, rng: Random, end: Instant) -> None:
        self.writer, self.rng = writer, rng
        self._end = end
        self._events: list[tuple[Instant, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def at(self, when: Instant, happens: Callable[..., None], *of: Any) -> None:
        """Schedule a call at an instant; it gets that instant and these arguments."""
        self._count += 1
        heappush(self._events, (when, self._count, happens, of))

    def run(self) -> None:
        """Run all events."""
        while self._events:
            when, _, happens, of = heappop(self._events)
            if when > self._end:
                return
            happens(when, *of)

    def latency(self, letter: Letter) -> Duration:
        """One way over the network. Neighbours of a fault do not overtake each other."""
        if letter.force is not None:
            return 50 * MILLISECOND
        return self.between(20 * MILLISECOND, 90 * MILLISECOND)

    def between(self, least: Duration, most: Duration) -> Duration:
        """A random duration between the two."""
        return least + int(self.rng.random() * (most - least))
