"""The fold over one message's rows: S1-S5, S9-S12, S14, S15, L1, L3, taken back, told, books."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from oncewire.errors import JournalProblem
from oncewire.journal.predicates import books, receiver, sender
from oncewire.journal.predicates.context import (
    EVIDENT,
    Context,
    TermsMissing,
    Violation,
    ViolationKind,
    unreadable,
)
from oncewire.journal.predicates.subject import Subject
from oncewire.journal.row import Row
from oncewire.journal.trace import (
    ABANDONED,
    ACK_SENT,
    ACKNOWLEDGED,
    CONFIRMED,
    DUPLICATE,
    EXHAUSTED,
    FAILED,
    FORWARDED,
    HANDED_OVER,
    JOINED,
    NUMBERED,
    RECEIVED,
    REFUSED,
    REJECTED,
    RESUMED,
    SEND_FAILED,
    SENT,
    SUBMITTED,
    WARNED,
    Trace,
    gather,
)
from oncewire.message.instant import Instant
from oncewire.protocol import notes

# Steps: the order in which a node says that things happened to a message can be.
#
# A step that follows from another stands behind it in the node's own journal, where positions are
# given with each commit. Where the earlier step has no row at all, other predicates say what is
# missing; here both are there, the wrong way round, or they name different numbers.


FOLLOWS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (HANDED_OVER, (RECEIVED, JOINED)),
    (CONFIRMED, (HANDED_OVER,)),
    (DUPLICATE, (RECEIVED, FORWARDED)),
    (FORWARDED, (RECEIVED,)),
    (NUMBERED, (SUBMITTED,)),
    (SENT, (SUBMITTED,)),
    (SEND_FAILED, (SUBMITTED,)),
    (EXHAUSTED, (SENT,)),
)
"""A step, and those of which one stands before it if any of them is there at all."""


def judge_steps(subject: Subject) -> None:
    """Each node by itself."""
    for trace in subject.traces:
        problem = _problem_of_order(trace)
        if problem is not None:
            subject.found(ViolationKind.IMPOSSIBLE_ORDER, trace.node, problem)


def _problem_of_order(trace: Trace) -> str | None:
    kinds = trace.kinds
    for step, earlier in FOLLOWS:
        rows = kinds.get(step)
        if rows is None:
            continue
        before = [kinds[kind][0].seq for kind in earlier if kind in kinds]
        if before and rows[0].seq < min(before):
            return (
                f"Its row {step!r} stands before the row {' or '.join(map(repr, earlier))} that "
                "it follows from."
            )
    return None


def _arrival(trace: Trace) -> Row | None:
    """The row by which a message arrived, where there is one alone."""
    received = trace.kinds.get(RECEIVED, ())
    return received[0] if len(received) == 1 else None


def judge_arrival(subject: Subject) -> None:
    """What each node writes of a message behind its arrival is of the message that arrived."""
    if subject.has(ViolationKind.CONTRADICTION) or subject.has(ViolationKind.ALTERED):
        return
    for trace in subject.traces:
        arrival = _arrival(trace)
        # What arrives of a document under its own id is the message that names its parts.
        if arrival is None or JOINED in trace.kinds:
            continue
        for kind in (HANDED_OVER, CONFIRMED, FORWARDED, DUPLICATE):
            for row in trace.kinds.get(kind, ()):
                problem = _problem_of_arrived(subject, arrival, row)
                if problem is not None:
                    subject.found(ViolationKind.CONTRADICTION, trace.node, problem)
                    return


def _problem_of_arrived(subject: Subject, arrival: Row, row: Row) -> str | None:
    kind = row.kind
    was, now = arrival.size, row.size
    # A shape has no sizes: it is learned only of messages whose sizes agree.
    if isinstance(was, int) and isinstance(now, int) and was != now:
        return f"It arrived with {was} bytes, and its row {kind!r} has {now}."
    # What is forwarded goes to another peer, and what a hub brought is of the party behind it.
    if kind != FORWARDED and row.peer is not None and row.peer != arrival.peer:
        homes, submitted = subject.context.homes, subject.submitted
        if submitted is None or submitted.node not in homes.get(arrival.peer or "", ()):
            return None
        # A node has several names: each PartyId of its own, with the type and without.
        if submitted.node not in homes.get(row.peer, ()):
            return f"It arrived from {arrival.peer}, and its row {kind!r} names {row.peer}."
    return None


ONCE = {
    SUBMITTED: "digest", FORWARDED: "digest", ACK_SENT: "ref_to", EXHAUSTED: "transport",
    FAILED: "detail",
}  # fmt: skip
"""Steps that a node takes once for each peer, and the column by which two rows are of one step."""

KEPT: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (SUBMITTED, ("terms_id", "hop"), (NUMBERED, SENT, SEND_FAILED, ACKNOWLEDGED, EXHAUSTED)),
    (FORWARDED, ("terms_id", "hop"), (NUMBERED, SENT, SEND_FAILED, ACKNOWLEDGED, EXHAUSTED)),
    (RECEIVED, ("terms_id", "hop"), (ACK_SENT, DUPLICATE, HANDED_OVER, CONFIRMED)),
    (RECEIVED, ("channel", "epoch"), (DUPLICATE, HANDED_OVER, CONFIRMED, FORWARDED)),
    (RECEIVED, ("sequence_number", "digest"), (HANDED_OVER, CONFIRMED, FORWARDED)),
)
"""A step, and columns that have its value in the steps behind it. An agreement that is replaced
changes nothing for a message that is under way."""


_TOLD = (
    ViolationKind.LATE_SEND, ViolationKind.EARLY_RETRY, ViolationKind.TOO_MANY_RETRIES,
    ViolationKind.GAVE_UP_EARLY, ViolationKind.UNMATCHED_ACK, ViolationKind.CONTRADICTION,
    ViolationKind.ALTERED,
)  # fmt: skip
"""What may have the same cause."""


def judge_kept(subject: Subject) -> None:
    """Each node takes its steps once, by what the first of them says, and counts its attempts
    upwards one by one, from the beginning again where it was resumed."""
    for trace in subject.traces:
        if any(subject.has(kind) for kind in _TOLD):
            return
        problem = next(_problems_of_kept(subject, trace), None)
        if problem is not None:
            subject.found(ViolationKind.CONTRADICTION, trace.node, problem)


def _problems_of_kept(subject: Subject, trace: Trace) -> Iterator[str]:
    kinds = trace.kinds
    for kind, column in ONCE.items():
        again = (RESUMED, REJECTED, WARNED, ACKNOWLEDGED) if kind in (EXHAUSTED, FAILED) else ()
        for before, row in pairwise(kinds.get(kind, ())):
            of_one = row.peer == before.peer and getattr(row, column) == getattr(before, column)
            # A copy that was taken for a message of its own has an answer of its own.
            if (of_one and (kind != ACK_SENT or _arrival(trace) is not None)) and not any(
                trace.between(other, before.seq, row.seq) for other in again
            ):
                yield f"It has its row {kind!r} twice."
    sends = kinds.get(SENT, [])
    for index, row in enumerate(sends):
        counted = sends[index - 1].attempt if index else 0
        resumed = index and trace.between(RESUMED, sends[index - 1].seq, row.seq)
        if counted is not None and row.attempt not in (None, counted + 1) and not resumed:
            yield f"Its attempt {row.attempt} stands behind {counted or 'no'} attempts."
    for row in (*kinds.get(SEND_FAILED, ()), *kinds.get(ACKNOWLEDGED, ())):
        began = {sent.attempt for sent in sends if sent.seq < row.seq}
        # Without one: no address was found, or it is not known which attempt arrived.
        if row.attempt and row.attempt not in began:
            yield f"Its row {row.kind!r} is of attempt {row.attempt}, which had not begun."
    went = {row.channel for kind in (NUMBERED, SENT) for row in kinds.get(kind, ())}
    channels = {row.channel for row in kinds.get(SUBMITTED, ())} - {None}
    # One that is wrong among those of its way is told by the numbers of that channel.
    if went and channels.isdisjoint(went) and channels:
        yield "It was submitted on another channel than it went on."
    # A copy of what retention removed is judged and answered by itself, as it came.
    answers = {notes.Duplicate.read(row.detail).answer for row in kinds.get(DUPLICATE, ())}
    anew = (DUPLICATE, ACK_SENT) if answers & {"new_ack", "nothing"} else ()
    for step, columns, behind in KEPT:
        # What a person gave up may be kept under other terms from then on, and what arrives of a
        # document under its own id is the message that names its parts.
        if step not in kinds or ABANDONED in kinds or JOINED in kinds:
            continue
        for column in columns:
            was = {getattr(row, column) for row in kinds[step]}
            for row in (row for kind in behind if kind not in anew for row in kinds.get(kind, ())):
                now = getattr(row, column)
                # Terms that nothing explains are a finding already.
                known = column != "terms_id" or was | {now} <= subject.context.terms.keys()
                if None not in was and now is not None and now not in was and known:
                    yield f"Its row {row.kind!r} has another {column} than its row {step!r}."


PREDICATES = (
    ("steps", judge_steps),
    ("S15", receiver.judge_given),
    ("S1", sender.judge_invention),
    ("S2", receiver.judge_once),
    ("S10", sender.judge_acknowledgments),
    ("S3", receiver.judge_durability),
    ("S4", receiver.judge_delivery),
    ("taken back", sender.judge_taken_back),
    ("S5", sender.judge_honesty),
    ("told", sender.judge_told),
    ("S9", receiver.judge_content),
    ("books", books.judge_facts),
    ("books", books.judge_ways),
    ("books", books.judge_terms),
    ("S11", sender.judge),
    ("steps", judge_arrival),
    ("steps", judge_kept),
    ("S12", receiver.judge_hop),
    ("S14", receiver.judge_authenticity),
    ("L3", receiver.judge_calm),
    ("books", books.judge_restored),
)
"""The promises and who judges them, in this order: a later judge passes over what an earlier one
has told already."""


class Extent(StrEnum):
    """How far a message was judged."""

    JUDGED = "judged"
    NOT_YET = "not_yet"
    """Its timers run, or a journal does not go far enough: what is missing may come."""
    IN_DOUBT = "in_doubt"
    """Rows are missing that may be its own."""


def judge_message(rows: Iterable[Row], context: Context) -> list[Violation]:
    """Every promise about one message that its rows show broken."""
    return judge_traces(gather(rows), context)


def judge_traces(traces: list[Trace], context: Context) -> list[Violation]:
    """As `judge_message`, for rows that are gathered already."""
    return judge_subject(traces, context).violations


class Sentence(NamedTuple):
    """What the judge says of one message."""

    violations: list[Violation]
    extent: Extent
    closed: bool
    """Whether nothing more can come of it: its last row, too, lies before the horizon."""


def judge_subject(traces: list[Trace], context: Context) -> Sentence:
    """The violations, and how far the message was judged."""
    if not traces:
        return Sentence([], Extent.JUDGED, closed=True)
    subject = Subject(traces[0].message_id, traces, context)
    doubted = find_violations(subject)
    found = subject.violations
    if found:
        found, left_out = _without_doubt(subject, doubted)
        doubted = doubted or left_out
    extent = Extent.JUDGED if subject.healed else Extent.NOT_YET
    closed = subject.healed and subject.is_closed()
    return Sentence(found, Extent.IN_DOUBT if doubted else extent, closed)


def find_violations(subject: Subject) -> bool:
    """Ask every predicate; the subject has what they found. Whether it is in doubt what became of
    the message, because what is said of it cannot be believed or explained."""
    context = subject.context
    doubted = subject.message_id in context.doubted
    for subject.predicate, judge in PREDICATES:
        try:
            judge(subject)
        except TermsMissing as missing:
            doubted = True
            # They are written once, however long before: any hole may have swallowed them.
            told = missing.terms_id in context.doubted_terms
            if not told and not context.has_hole_before(missing.node, missing.seq):
                subject.tell(unreadable(str(missing), node=missing.node))
        except JournalProblem as problem:
            node = subject.traces[0].node
            subject.tell(unreadable(str(problem), message_id=subject.message_id, node=node))
    return doubted


SHOWN_BY_ARCHIVES = EVIDENT | {ViolationKind.CONTRADICTION.value}
"""Kinds that raw messages prove, though nothing is known of what their handler did with them."""


def _without_doubt(subject: Subject, doubted: bool) -> tuple[list[Violation], bool]:
    """The findings that missing rows cannot explain, and whether there are others.

    What is missing is a finding of its own, told once.
    """
    archives = subject.context.archives
    if not doubted and not subject.has_hole():
        kept = [
            violation
            for violation in subject.violations
            if violation.node not in archives or violation.kind in SHOWN_BY_ARCHIVES
        ]
        return kept, len(kept) < len(subject.violations)
    kept = [
        violation
        for violation in subject.violations
        if violation.kind in EVIDENT
        or (violation.kind == ViolationKind.UNREADABLE and violation.message_id is None)
    ]
    return kept, len(kept) < len(subject.violations)


# S13, split: a document is handed over whole, once, from all its parts, and equal to the original.
#
# The key is the SplitId. Its rows are the parts' SUBMITTED and RECEIVED rows and their
# HANDED_OVER to the document (all name it in their detail), and the document's own SUBMITTED,
# ACKNOWLEDGED by its parts, JOINED, HANDED_OVER and, where its receiver gave it up, REFUSED.


@dataclass(slots=True)
class _Joining:
    """What one node did with the parts of one document."""

    node: str
    since: Instant
    until: Instant
    parts: dict[int | None, set[str | None]] = field(default_factory=dict)
    parts_handed: set[str | None] = field(default_factory=set)
    total: int | None = None
    joined: Row | None = None
    joins: int = 0
    whole: bool = False
    given_up: bool = False
    # What its sender submitted of it: parts by their number, None for the document itself.
    submitted: set[int | None] = field(default_factory=set)


class DocumentFold:
    """Feed the rows of one SplitId in order of (node, seq), then finish."""

    def __init__(self, context: Context, split_id: str) -> None:
        self._context = context
        self._split_id = split_id
        self._found: list[Violation] = []
        self._nodes: dict[str, _Joining] = {}
        self._digest: str | None = None
        # Of each part, by its content: which one it is, of how many.
        self._places: dict[tuple[str | None, str | None], tuple[int | None, int | None]] = {}
        # Which of their rows contradict each other.
        self._contradiction: tuple[_Joining, str] | None = None
        # The sender says that it arrived, by the word of its receiver.
        self._arrived = False

    def feed(self, row: Row) -> None:
        """One more row of the document."""
        node = self._nodes.get(row.node)
        if node is None:
            node = self._nodes[row.node] = _Joining(row.node, row.at, row.at)
        node.until = row.at
        try:
            self._take(node, row)
        except JournalProblem as problem:
            self._found.append(unreadable(str(problem), message_id=row.message_id, node=row.node))

    def _take(self, node: _Joining, row: Row) -> None:
        if row.kind == SUBMITTED:
            said = notes.Submitted.read(row.detail)
            node.submitted.add(said.split_number)
            self._place(node, row, said)
            digest = said.document_digest or self._digest
            if self._digest not in (None, digest):
                self._contradiction = node, "Its parts were submitted with several digests of it."
            self._digest = digest
        elif row.kind == ACKNOWLEDGED:
            if 1 in node.submitted and None not in node.submitted:
                # Both are of one commit, so none of them was cleared away alone.
                sentence = "Its parts were submitted and it arrived, but it was never submitted."
                self._note(node, ViolationKind.INVENTED, sentence)
            self._arrived = self._arrived or not notes.Acknowledged.read(row.detail).hop
        elif row.kind == RECEIVED:
            part = notes.Received.read(row.detail)
            self._place(node, row, part)
            node.total = part.split_total
            node.parts.setdefault(part.split_number, set()).add(row.message_id)
        elif row.kind == JOINED:
            self._joined(node, row)
        elif row.kind == REFUSED:
            if node.joined is not None:
                self._note(node, ViolationKind.TWICE, "It was joined, and given up after that.")
            node.given_up = True
        elif row.message_id != self._split_id:
            node.parts_handed.add(row.message_id)
            number = notes.HandedOver.read(row.detail).split_number
            if number is not None:
                node.parts.setdefault(number, set()).add(row.message_id)
            if not any(row.message_id in ids for ids in node.parts.values()):
                sentence = f"It was given {row.message_id}, which is no part of it."
                self._note(node, ViolationKind.INVENTED, sentence)
        else:
            if node.joined is None:
                self._note(node, ViolationKind.INCOMPLETE, "It was handed over, but not joined.")
            node.whole = True

    def _place(self, node: _Joining, row: Row, said: notes.Submitted | notes.Received) -> None:
        """A part is the same one of as many at both ends; the message that names the parts of its
        document counts as one where it arrived."""
        place = said.split_number, said.split_total
        known = self._places.setdefault((row.message_id, row.digest), place)
        if known != place and row.message_id != self._split_id:
            sentence = f"Its part {row.message_id} is, by number and total, {place} and {known}."
            self._contradiction = node, sentence

    def _joined(self, node: _Joining, row: Row) -> None:
        node.joins += 1
        node.joined = row
        if node.joins > 1:
            self._note(node, ViolationKind.TWICE, "It was joined twice.")
            return
        total = notes.Joined.read(row.detail).total
        missing = [number for number in range(1, total + 1) if number not in node.parts]
        if missing or total != (node.total or total):
            self._note(
                node,
                ViolationKind.INCOMPLETE,
                f"It was joined from {len(node.parts)} of {node.total or total} parts.",
            )
        waiting = sorted(
            number or 0
            for number, ids in node.parts.items()
            if not ids & {*node.parts_handed, self._split_id}
        )
        if waiting and not missing:
            sentence = f"It was joined before the turn of its part {waiting[0]} had come."
            self._note(node, ViolationKind.INCOMPLETE, sentence)
        repeated = sorted(number or 0 for number, ids in node.parts.items() if len(ids) > 1)
        if repeated:
            self._note(node, ViolationKind.TWICE, f"Part {repeated[0]} was counted more than once.")

    def finish(self) -> list[Violation]:
        """Every promise about this document that its rows show broken."""
        if self._contradiction is not None:
            # What such rows make of the whole is no finding of its own.
            others = (ViolationKind.INCOMPLETE, ViolationKind.TWICE)
            self._found = [found for found in self._found if found.kind not in others]
            self._note(self._contradiction[0], ViolationKind.CONTRADICTION, self._contradiction[1])
        for node in self._nodes.values():
            joined = node.joined
            wrong = joined is not None and self._digest not in (None, joined.digest)
            if wrong and self._contradiction is None:
                self._note(
                    node, ViolationKind.ALTERED, "The joined document differs from the one split."
                )
            if not self._context.is_healed(node.since, (node.node,)) or node.whole:
                continue
            if node.given_up:
                continue
            if joined is not None:
                self._note(node, ViolationKind.LOST, "It was joined, but never handed over.")
            elif self._arrived and node.parts_handed:
                sentence = "Its sender was told that it arrived, but it was never joined."
                self._note(node, ViolationKind.LOST, sentence)
            elif node.total is not None and len(node.parts_handed) >= node.total:
                self._note(node, ViolationKind.LOST, "All its parts came, but it was never joined.")
        return self._found

    def _note(self, node: _Joining, kind: ViolationKind, sentence: str) -> None:
        if kind.value not in EVIDENT and self._is_doubted(node):
            return
        self._found.append(Violation("S13", kind.value, self._split_id, None, node.node, sentence))

    def _is_doubted(self, node: _Joining) -> bool:
        """Whether a row that is missing, or was set aside, may be one of the document's."""
        context = self._context
        known = {
            self._split_id,
            *node.parts_handed,
            *(message_id for ids in node.parts.values() for message_id in ids),
        }
        return (
            node.node in context.archives
            or context.has_hole((node.node,), node.since, node.until)
            or bool(context.doubted & known)
        )
