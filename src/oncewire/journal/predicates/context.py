"""Context: what a predicate must know besides the rows that it judges.

It is gathered from a few rows of every node (`CONTEXT_KINDS`), is small, and can be sent to
where the folds run. It never holds an instant of one node for comparison with another's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from oncewire.errors import JournalProblem
from oncewire.journal.row import JOURNAL_VERSION, Row, machine_of
from oncewire.journal.trace import (
    ABANDONED,
    CLOCK_SET,
    EPOCH_ENDED,
    FORWARDED,
    INCIDENT,
    RESOLVED,
    RESUMED,
    STARTED,
    SUSPENDED,
    TERMS,
    Trace,
)
from oncewire.message.instant import DAY, SECOND, Duration, Instant, format_instant
from oncewire.protocol import notes
from oncewire.protocol.notes import read_terms
from oncewire.protocol.sequence import SequenceRange
from oncewire.protocol.terms import Terms, terms_id_of

# Violation: one broken promise, named for the predicate of the guarantee it breaks.


class ViolationKind(StrEnum):
    """What went wrong, in the ledger's words, gravest first for a message's verdict.

    One cause is reported under one of them.
    """

    LOST = "lost"  # neither confirmed nor was anyone told
    TWICE = "twice"  # handed over or confirmed more often than once
    OUT_OF_ORDER = "out_of_order"  # handed over after a later number
    ALTERED = "altered"  # the content differs from what was submitted or first received
    UNNOTIFIED = "unnotified"  # failed, and the From Party was not told
    UNTOLD = "untold"  # recorded as told, but its application never took the notice
    UNCONFIRMED = "unconfirmed"  # handed over, but no application ever confirmed it
    GAP = "gap"  # a number is missing and no skip says why
    REPEATED_NUMBER = "repeated_number"  # one number, two messages
    WINDOW_EXCEEDED = "window_exceeded"  # more than W unsettled
    WRONG_STATUS = "wrong_status"  # Reset where Continue is due, or the other way round
    EARLY_RESET = "early_reset"  # a new epoch while numbers of the old one were unsettled
    EARLY_RETRY = "early_retry"  # sooner than Timeout, RetryInterval or a pause allow
    TOO_MANY_RETRIES = "too_many_retries"  # more attempts than 1 + Retries
    LATE_SEND = "late_send"  # after the end: acknowledged, failed, TimeToLive, persistDuration
    GAVE_UP_EARLY = "gave_up_early"  # fewer attempts than agreed
    ACK_WITHOUT_STORE = "ack_without_store"  # acknowledged, but not in the store
    FORGOTTEN = "forgotten"  # stored a second time as if it were new
    INVENTED = "invented"  # handed over, but never submitted or never received
    WRONG_OUTCOME = "wrong_outcome"  # the outcome told is not the one that happened
    TAKEN_BACK = "taken_back"  # failed after the To Party itself had acknowledged it
    NEEDLESS_NOTICE = "needless_notice"  # a failure notice about a failure notice
    UNMATCHED_ACK = "unmatched_ack"  # an acknowledgement of nothing that was outstanding
    UNSIGNED = "unsigned"  # a signature was agreed and does not cover what was used
    INCOMPLETE = "incomplete"  # a document without all its parts
    UNFINISHED = "unfinished"  # all timers ran out, and the sender has no outcome
    IMPOSSIBLE_ORDER = "impossible_order"  # a step stands before the one it follows from
    CONTRADICTION = "contradiction"  # rows of one message contradict each other
    # What follows is wrong with the journal itself: quarantined, no promise is known to be broken.
    HOLE = "hole"  # rows are missing in the middle of a journal
    TRIMMED = "trimmed"  # rows are missing at its beginning, and something depends on them
    CUT_OFF = "cut_off"  # it ends before things that others have its word on
    UNSTARTED = "unstarted"  # a handler was at work, and no row says that it was started
    OTHER_TERMS = "other_terms"  # not what their id stands for, or other than the partner's
    COPIED = "copied"  # one journal under two names
    RESTORED = "restored"  # it was put back to an earlier state, and went on from there
    CLOCK = "clock"  # a clock of its node jumps, and no row says that it was set
    UNCHAINED = "unchained"  # rows are not those that their node had chained
    UNREADABLE = "unreadable"  # rows that break the contract, or that nothing explains


class Violation(NamedTuple):
    """A finding. `predicate` is S1..S15, L1, L3, or one that has a name of its own (`taken back`,
    `told`, `steps`, `books`); `journal` marks what is wrong with the journal itself."""

    predicate: str
    kind: str
    message_id: str | None
    channel: str | None
    node: str | None
    sentence: str


QUARANTINE = "journal"
"""The `predicate` of what is wrong with the journal itself, so that promises cannot be judged."""

EVIDENT: frozenset[str] = frozenset(
    {ViolationKind.TWICE, ViolationKind.ALTERED, ViolationKind.UNSIGNED}
)
"""Kinds that the rows which are there prove, whatever rows are missing."""

MISSING: frozenset[str] = frozenset(
    {
        ViolationKind.LOST,
        ViolationKind.UNNOTIFIED,
        ViolationKind.UNCONFIRMED,
        ViolationKind.UNFINISHED,
    }
)
"""Kinds that rows at the end of a journal would have kept from being told."""


def of_journal(kind: ViolationKind, node: str | None, sentence: str) -> Violation:
    """A finding about a node's whole journal: what promises were kept there cannot be judged."""
    return Violation(QUARANTINE, kind.value, None, None, node, sentence)


def unreadable(
    sentence: str,
    *,
    message_id: str | None = None,
    channel: str | None = None,
    node: str | None = None,
) -> Violation:
    """A finding about rows that cannot be judged."""
    return Violation(
        QUARANTINE, ViolationKind.UNREADABLE.value, message_id, channel, node, sentence
    )


# Hole: rows of a node's journal that are not there, or not to be believed.
#
# What a hole swallowed is unknown. So no promise is called broken where a row in the hole may
# have kept it: the hole itself is the finding, and what could not be judged because of it is
# counted. Which messages it may concern is bounded by time: those that were under way on one of
# their nodes while the missing rows were written.


HOLES_MAX = 1_000
"""More holes than this in one journal are told, and taken, as fewer and larger ones."""


class Hole(NamedTuple):
    """Positions `first` to `last` of one node, and the instants of the rows on both sides."""

    first: int
    last: int
    before: Instant | None
    """None: it is the journal's beginning that is missing."""
    after: Instant

    @property
    def is_head(self) -> bool:
        """Whether the journal begins behind it."""
        return self.before is None

    def touches(self, since: Instant, until: Instant) -> bool:
        """Whether something that was under way in that time may have rows in it."""
        if self.before is None:
            return since <= self.after
        # The clock may have been set meanwhile.
        return min(self.before, self.after) <= until and since <= max(self.before, self.after)


def missing(positions: Iterable[tuple[int, Instant]]) -> list[Hole]:
    """The holes before and between positions, which come in order, each with its instant."""
    found: list[Hole] = []
    expected, before = 1, None
    for seq, at in positions:
        if seq > expected:
            found.append(Hole(expected, seq - 1, before, at))
        expected, before = seq + 1, at
    return merged(found)


def merged(holes: list[Hole]) -> list[Hole]:
    """Holes with the closest ones merged until they are few enough."""
    if len(holes) <= HOLES_MAX:
        return holes
    step = -(-len(holes) // (HOLES_MAX - 1))
    head, rest = holes[:1], holes[1:]
    groups = [rest[start : start + step] for start in range(0, len(rest), step)]
    return [
        *head,
        *(
            Hole(group[0].first, group[-1].last, group[0].before, group[-1].after)
            for group in groups
        ),
    ]


def finding(node: str, hole: Hole) -> Violation:
    """What is told of a hole."""
    if hole.is_head:
        return of_journal(
            ViolationKind.TRIMMED,
            node,
            f"Its journal begins with row {hole.last + 1}: what depends on earlier rows cannot be "
            "judged.",
        )
    rows = f"Row {hole.first}" if hole.first == hole.last else f"Rows {hole.first} to {hole.last}"
    return of_journal(
        ViolationKind.HOLE,
        node,
        f"{rows} of its journal, between {_instant(hole.before)} and {_instant(hole.after)}, "
        f"{'is' if hole.first == hole.last else 'are'} missing: what they told cannot be judged.",
    )


def _instant(at: Instant | None) -> str:
    return "the beginning" if at is None else format_instant(at)


# Jump: a clock of a node that goes elsewhere between two rows.
#
# What a handler did by that clock was right by it, so what was too early or too late across a jump
# is not told: the clock is the finding then, one for each node, with the number of its jumps.


CLOCKS_APART: Duration = 60 * SECOND
"""How far a machine's two clocks may drift apart between two rows."""

ZONE: Duration = 15 * 60 * SECOND
ZONES_APART: Duration = 26 * 60 * 60 * SECOND
"""Time zones differ by multiples of the first, and by no more than the second."""

JUMPS_MAX = 1_000
"""More jumps of one node are not kept."""


BETWEEN, STEADY, WITHIN = range(3)
"""Which clock jumps: that of one run beside that of another; the steady one; the other one of one
run, while the steady one goes on."""


class Jump(NamedTuple):
    """A jump right before a row."""

    seq: int
    by: Duration
    clock: int

    @property
    def is_wrong(self) -> bool:
        """Whether it is a finding by itself. Handlers that share a journal have clocks of their
        own, and a step forwards may be the sleep of a machine: those are told where something was
        too early or too late because of them."""
        return self.clock != BETWEEN and self.by < -CLOCKS_APART


def jump_between(before: Row, row: Row) -> Jump | None:
    """The jump between two rows of a node that follow one another; what was cleared away between
    others may have told of it."""
    if row.seq != before.seq + 1:
        return None
    passed, machine = row.at - before.at, machine_of(row.boot)
    drift, clock = min(0, passed), BETWEEN
    if row.boot == before.boot or (machine is not None and machine == machine_of(before.boot)):
        steady = row.mono - before.mono
        if steady < 0:
            return Jump(row.seq, steady, STEADY)
        drift, clock = passed - steady, WITHIN if row.boot == before.boot else BETWEEN
    if abs(drift) <= CLOCKS_APART or CLOCK_SET in (before.kind, row.kind):
        return None
    zones = (abs(drift) + CLOCKS_APART) % ZONE <= 2 * CLOCKS_APART and abs(drift) <= ZONES_APART
    if drift > 0 and not zones:
        return None  # Time passed of which the steady clock knows nothing: a machine was asleep.
    return Jump(row.seq, drift, clock)


def jumping(node: str, jumps: Sequence[Jump]) -> Violation:
    """The finding about a node's clocks."""
    first = jumps[0]
    clock = "steady clock goes back" if first.clock == STEADY else "clock jumps"
    count = "once" if len(jumps) == 1 else f"{len(jumps)} times, first"
    return of_journal(
        ViolationKind.CLOCK,
        node,
        f"Its {clock} {count} before row {first.seq}, by {first.by // SECOND} seconds, and no row "
        "says that it was set: what was too early or too late across that is not judged.",
    )


# Restart: where another run of a handler goes on.
#
# A store that was put back to an earlier state has no hole: its positions are given anew. But
# others have its word on things of the time between its last row and the start, in which it did
# nothing by its own account. Where that is so, what it forgot is a hole, and the one finding.


RESTARTS_MAX = 1_000
"""Of more restarts of one node the last ones are kept."""


class Restart(NamedTuple):
    """The first row of a run, and the instants of the rows on both sides."""

    seq: int
    before: Instant
    after: Instant

    @property
    def hole(self) -> Hole:
        """What is missing if the store was put back there."""
        return Hole(self.seq - 1, self.seq, self.before, self.after)


def restart_between(before: Row, row: Row) -> Restart | None:
    """The restart between two rows of a node that follow one another."""
    if row.boot == before.boot or row.seq != before.seq + 1 or row.at <= before.at:
        return None
    return Restart(row.seq, before.at, row.at)


def restored(node: str, restart: Restart) -> Violation:
    """The finding about a store that was put back to an earlier state."""
    return of_journal(
        ViolationKind.RESTORED,
        node,
        f"It went on with row {restart.seq} at {format_instant(restart.after)} from where it stood "
        f"at {format_instant(restart.before)}, but others have its word on messages between: an "
        "older copy of its store was restored, and what it forgot cannot be judged.",
    )


CONTEXT_KINDS: frozenset[str] = frozenset(
    {STARTED, TERMS, SUSPENDED, RESUMED, ABANDONED, EPOCH_ENDED, INCIDENT, RESOLVED}
)
"""The kinds that `Context.gather` reads; all other rows may be left out."""


ALWAYS: Instant = 2**63
"""Later than any instant that a row can name."""


class TermsMissing(JournalProblem):
    """Rows name terms that no row explains: one cause, however many messages it leaves open."""

    def __init__(self, row: Row) -> None:
        super().__init__(
            f"no terms row explains the terms {row.terms_id!r} that node {row.node} names",
            remedy="read the journal from its beginning, or add the terms rows of that node",
        )
        self.node, self.terms_id, self.seq = row.node, row.terms_id, row.seq


@dataclass(slots=True)
class Context:
    """Terms by id, whose journals are here and how far they go, and what is missing in them.

    While a run is still going (`healed` false) the absence of a row on another node proves
    nothing: the message may be under way, or that node's rows not yet read. Only what the rows
    do say is judged then. For archives whose end is still moving, `through` says for each node
    until when all that it did is here, and a message is healed when its timers have run out by
    then on every node that it concerns. `healed_before` is the same for all nodes at once.
    """

    healed: bool = True
    healed_before: Instant | None = None
    terms: dict[str, Terms] = field(default_factory=dict)
    explained: dict[str, set[str]] = field(default_factory=dict)
    """For each node the terms that its own rows explain."""
    homes: dict[str, set[str]] = field(default_factory=dict)
    """For each name that `peer` may hold: the nodes that act for it."""
    declared: bool = False
    """Whether any node said which parties it acts for."""
    named: set[str] = field(default_factory=set)
    """The nodes that said so."""
    suspended: set[tuple[str, str]] = field(default_factory=set)
    """(node, channel) that wait for the operator at the end."""
    withheld: dict[tuple[str, str | None], Row] = field(default_factory=dict)
    """For each (node, message) that arrived there and cannot go on: the row that says that an
    operator was told, with its place in its stream."""
    lifted: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """For each (node, peer): the positions at which an operator ended the peer's pause."""
    through: dict[str, Instant] = field(default_factory=dict)
    ends: dict[str, tuple[int, Instant]] = field(default_factory=dict)
    """For each node the position and the instant of its last row."""
    holes: dict[str, list[Hole]] = field(default_factory=dict)
    """For each node what is missing in its journal."""
    jumps: dict[str, list[Jump]] = field(default_factory=dict)
    """For each node where its clocks jump."""
    restarts: dict[str, list[Restart]] = field(default_factory=dict)
    """For each node where another run goes on."""
    archives: dict[str, frozenset[str]] = field(default_factory=dict)
    """Nodes whose rows were made of raw messages, and their parties."""
    aside: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """For each (node, channel) the positions of rows that were set aside; "" is any channel."""
    doubted: set[str] = field(default_factory=set)
    """Messages of which a row was set aside."""
    doubted_terms: set[str] = field(default_factory=set)
    """Terms whose row cannot be believed, which is told already."""
    problems: list[Violation] = field(default_factory=list)
    calm: bool = False
    """Whether the world says of itself that nothing went wrong in it (L3)."""
    _longest: tuple[int, Duration] = field(default=(0, DAY), repr=False, compare=False)
    """The longest persistDuration of all terms, and of how many they were."""

    @classmethod
    def gather(
        cls, rows: Iterable[Row], *, healed: bool, healed_before: Instant | None = None
    ) -> Context:
        """Read every node's rows of `CONTEXT_KINDS`; each node's come in order of `seq`."""
        context = cls(healed, healed_before)
        for row in rows:
            if row.kind in CONTEXT_KINDS:
                try:
                    context._take(row)
                except JournalProblem as problem:
                    context.problems.append(unreadable(str(problem), node=row.node))
        return context

    def _take(self, row: Row) -> None:
        self.homes.setdefault(row.node, set()).add(row.node)
        kind = row.kind
        if kind == TERMS:
            self._take_terms(row)
        elif kind == STARTED:
            started = notes.Started.read(row.detail)
            if started.journal_version != JOURNAL_VERSION:
                raise JournalProblem(
                    f"node {row.node} wrote a journal of version {started.journal_version}, "
                    f"this is version {JOURNAL_VERSION}",
                    remedy="check it with the version of Oncewire that wrote it",
                )
            self.named.add(row.node)
            if started.archive:
                # Nobody is held to what an archive does not have.
                self.archives[row.node] = frozenset(started.parties)
                return
            for party in started.parties:
                self.declared = True
                self.homes.setdefault(party, set()).add(row.node)
        elif kind == INCIDENT:
            if row.sequence_number is not None:
                self.withheld[row.node, row.message_id] = row
        else:
            self._take_decision(row)

    def _take_decision(self, row: Row) -> None:
        """Something waits for the operator, or does so no more."""
        kind = row.kind
        if kind in (RESOLVED, ABANDONED):
            self.withheld.pop((row.node, row.message_id), None)
        if row.channel is not None:
            if kind == SUSPENDED:
                self.suspended.add((row.node, row.channel))
            else:
                # Resumed, abandoned, or settled by a late answer: the incident is resolved.
                self.suspended.discard((row.node, row.channel))
        elif kind == RESUMED and row.message_id is None and row.peer is not None:
            self.lifted.setdefault((row.node, row.peer), []).append(row.seq)

    def _take_terms(self, row: Row) -> None:
        """Terms are believed by their content: their id is its digest."""
        terms_id = row.terms_id
        if terms_id is None:
            return
        if terms_digest(row.detail) != terms_id:
            self.doubted_terms.add(terms_id)
            self.problems.append(
                of_journal(
                    ViolationKind.OTHER_TERMS,
                    row.node,
                    f"Its row {row.seq} explains the terms {terms_id} by other values than that "
                    "id stands for: they are not believed.",
                )
            )
            return
        self.explained.setdefault(row.node, set()).add(terms_id)
        if terms_id not in self.terms:
            self.terms[terms_id] = read_terms(row.detail)

    def is_lifted(self, row: Row, since: int) -> bool:
        """Whether an operator ended the pause of a row's receiver after that position."""
        lifted = self.lifted.get((row.node, row.peer or ""), ())
        return any(since < seq < row.seq for seq in lifted)

    def has_journal_of(self, peer: str | None) -> bool:
        """Whether the rows of the node that acts for this peer are among those given."""
        return peer in self.homes

    def terms_of(self, row: Row) -> Terms:
        """The terms a row names."""
        terms = self.terms.get(row.terms_id) if row.terms_id is not None else None
        if terms is None:
            raise TermsMissing(row)
        return terms

    # --- how far it is judged ---

    def is_healed(
        self, since: Instant, nodes: Iterable[str] = (), terms: Terms | None = None
    ) -> bool:
        """Whether every timer of a message first seen at that instant has run out, on the nodes
        that it concerns."""
        until = self.healed_until(nodes, terms)
        return until is not None and since < until

    def healed_until(self, nodes: Iterable[str], terms: Terms | None) -> Instant | None:
        """Every timer of what was first seen before this instant on these nodes has run out;
        None: of nothing."""
        if self.healed:
            return ALWAYS
        known = [
            instant
            for instant in (self.healed_before, self.horizon(nodes, terms))
            if instant is not None
        ]
        return max(known, default=None)

    def horizon(self, nodes: Iterable[str], terms: Terms | None) -> Instant | None:
        """Until when messages between these nodes are judged for what is missing."""
        reached = [self.through[node] for node in nodes if node in self.through]
        if not reached:
            return None
        return min(reached) - self.wait_of(terms)

    def wait_of(self, terms: Terms | None) -> Duration:
        """How long after its submission a message may be under way: its sender stops at
        persistDuration, and then a hub may begin with its own."""
        known, longest = self._longest
        if known != len(self.terms):
            # Terms are added and never changed; asked of all for each message, many agreements
            # would cost more than all rows.
            longest = max(each_terms.persist_duration for each_terms in self.terms.values())
            self._longest = len(self.terms), longest
        return (longest if terms is None else terms.persist_duration) + longest

    # --- what is missing ---

    def has_hole(self, nodes: Iterable[str], since: Instant, until: Instant) -> bool:
        """Whether a hole may hold rows of something under way in that time on these nodes."""
        wait = self.wait_of(None)
        return any(
            hole.touches(since - wait, until + wait)
            for node in nodes
            for hole in self.holes.get(node, ())
        )

    def has_hole_before(self, node: str, position: int) -> bool:
        """Whether rows are missing before a position of a node."""
        return any(hole.first < position for hole in self.holes.get(node, ()))

    def is_broken(self, node: str, channel: str | None, after: int, before: int) -> bool:
        """Whether rows are missing, or were set aside, between two positions of a channel."""
        if node in self.archives:
            return True
        holes = self.holes.get(node)
        if holes and any(after < hole.last and hole.first < before for hole in holes):
            return True
        return bool(self.aside) and any(
            after < seq < before
            for name in (channel or "", "")
            for seq in self.aside.get((node, name), ())
        )

    def restored_at(self, node: str, at: Instant) -> Violation | None:
        """The finding that a node was restored, if it did nothing at an instant at which others
        have its word."""
        for restart in self.restarts.get(node, ()):
            if restart.before < at < restart.after and restart.hole not in self.holes.get(node, ()):
                return restored(node, restart)
        return None

    def forget(self, findings: Iterable[Violation]) -> bool:
        """Take what restored stores forgot for holes; whether there are any that were not known."""
        told = {found for found in findings if found.kind == ViolationKind.RESTORED}
        new = [
            (node, restart.hole)
            for node, restarts in self.restarts.items()
            for restart in restarts
            if restored(node, restart) in told and restart.hole not in self.holes.get(node, ())
        ]
        for node, hole in new:
            self.holes.setdefault(node, []).append(hole)
        self.problems += told if new else ()
        return bool(new)

    def jump(self, node: str, after: int, until: int) -> Violation | None:
        """The finding about a clock of a node that jumps between two positions."""
        jumps = self.jumps.get(node, [])
        if any(after < jump.seq <= until for jump in jumps):
            return jumping(node, jumps)
        return None

    def ended_before(self, node: str, at: Instant) -> Violation | None:
        """The finding that a node's journal ends before something that others know of it."""
        end = self.ends.get(node)
        if end is None or at <= end[1]:
            return None
        return of_journal(
            ViolationKind.CUT_OFF,
            node,
            f"Its journal ends with row {end[0]}, at {format_instant(end[1])}, but others hold its "
            "word on messages after that: an older copy was read, or its end was never stored.",
        )

    def is_held_up(self, received: Row) -> bool:
        """Whether a message that arrived for this node's own application stands behind another
        of its ordered stream that cannot go on, of which an operator was told."""
        terms = self.terms_of(received)
        if not self.withheld or not terms.ordered or received.sequence_number is None:
            return False
        to_party = notes.Received.read(received.detail).to_party
        if to_party is not None and received.node not in self.homes.get(to_party, {received.node}):
            # A hub sends on to each To Party by itself.
            return False
        return any(
            _stands_before(other, received, terms.numbers)
            for other in self.withheld.values()
            if (other.node, other.channel) == (received.node, received.channel)
        )

    def waits_for_operator(self, trace: Trace, row: Row) -> bool:
        """Whether the message, or the channel it is sent on, is suspended at the end."""
        channel = row.channel
        if row.kind == FORWARDED and row.detail is not None:
            # Its own channel is the one that the message came on.
            channel = notes.Forwarded.read(row.detail).onward or channel
        return trace.suspended or (channel is not None and (trace.node, channel) in self.suspended)


def _stands_before(one: Row, other: Row, numbers: SequenceRange) -> bool:
    if one.epoch != other.epoch:
        return (one.epoch or 0) < (other.epoch or 0)
    first, second = one.sequence_number or 0, other.sequence_number or 0
    # Numbers wrap around: what is nearer ahead than behind comes later.
    return 0 < numbers.distance(first, second) <= numbers.size // 2


def terms_digest(text: str | None) -> str | None:
    """The id that belongs to the values of a TERMS row; None where they are no values."""
    try:
        return terms_id_of(json.loads(text or ""))
    except (ValueError, RecursionError):
        return None


def homes_of(peers: Iterable[str | None], homes: Mapping[str, set[str]]) -> set[str]:
    """The nodes that act for these names, where their journals are here."""
    return {node for peer in peers if peer is not None for node in homes.get(peer, ())}
