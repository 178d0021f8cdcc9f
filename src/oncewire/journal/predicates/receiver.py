"""S2, at most once: one confirmation, and a second hand-over only where a crash excuses it.

Where neither side asked for repeats to be stopped each copy is a message of its own (C40): then
there is one confirmation, and one hand-over, for each arrival.
"""

from __future__ import annotations

from oncewire.journal.outcome import elapsed
from oncewire.journal.predicates.context import Subject, ViolationKind
from oncewire.journal.row import Row
from oncewire.journal.trace import (
    ACK_SENT,
    ACKNOWLEDGED,
    CONFIRMED,
    DUPLICATE,
    FORWARDED,
    HANDED_OVER,
    JOINED,
    PASSED_ON,
    RECEIVED,
    SENT,
    SUBMITTED,
    Trace,
)
from oncewire.protocol import notes


def judge_once(subject: Subject) -> None:
    """Over all nodes together, then on each of them; one finding tells enough."""
    confirmations = 0
    for trace in subject.traces:
        confirmations += len(trace.kinds.get(CONFIRMED, ()))
    if confirmations > 1 and confirmations > _arrivals(subject):
        subject.found(
            "S2",
            ViolationKind.TWICE,
            subject.traces[0].node,
            f"Applications confirmed it {confirmations} times.",
        )
        return
    for trace in subject.traces:
        rows = trace.kinds.get(HANDED_OVER)
        problem = _problem(subject, trace, rows) if rows is not None else None
        if problem is not None:
            subject.found("S2", ViolationKind.TWICE, trace.node, problem)
            return


def _arrivals(subject: Subject) -> int:
    """How many messages of this MessageId there are: the duplicate key is (From Party, id)
    (DRV-6), one party's message may be received by one node only, and where the terms do not ask
    for duplicates to be stopped each copy is a message too."""
    contents: set[str | None] = set()
    copies = 0
    for trace in subject.traces:
        if not trace.holds:
            continue
        for row in trace.kinds.get(RECEIVED, ()):
            if row.digest in contents and subject.context.terms_of(row).repeats_pass:
                copies += 1
            contents.add(row.digest)
    return len(contents) + copies


def _problem(subject: Subject, trace: Trace, rows: list[Row]) -> str | None:
    """One content handed over again without excuse, or after its confirmation."""
    confirmed = trace.first(CONFIRMED)
    if len(rows) == 1 and (confirmed is None or rows[0].seq < confirmed.seq):
        return None
    received = trace.kinds.get(RECEIVED, ())
    if len(received) > 1 and subject.context.terms_of(received[0]).repeats_pass:
        anew = sum(1 for row in rows if "redelivered" not in (row.detail or ""))
        return None if anew <= len(received) else "It was handed over more often than it arrived."
    latest: dict[str | None, Row] = {}
    for row in rows:
        before = latest.get(row.digest)
        if before is not None and not _excused(before, row):
            return "It was handed over again without a crash that excuses it."
        latest[row.digest] = row
    if (
        confirmed is not None
        and len(latest) == 1
        and rows[-1].seq > confirmed.seq
        and not subject.has(ViolationKind.IMPOSSIBLE_ORDER)
    ):
        return "It was handed over after the application had confirmed it."
    return None


def _excused(before: Row, row: Row) -> bool:
    """The process or the application died between hand-over and confirmation, or it failed."""
    if "redelivered" not in (row.detail or ""):
        return False
    said = notes.HandedOver.read(row.detail)
    if row.boot != before.boot:
        return said.redelivered
    return said.redelivered and (said.lease_expired or said.given_back)


# S15, given as verified: the application is given what was checked when it arrived.
#
# The digest of a hand-over is that of what the application is really given, the digest of the
# arrival that of the verified view. Whatever lies between the two (a second reading of the bytes,
# a store that rots, a key that opens something else) must not change a value or a byte. A document
# whose own message names its fragments is given as it was handed in, where that is known.


def judge_given(subject: Subject) -> None:
    """Each node that handed over what it had received."""
    for trace in subject.traces:
        received = trace.kinds.get(RECEIVED)
        if received is None:
            continue
        joined = JOINED in trace.kinds
        # What was received of a document under its own id is the message that names its fragments.
        verified = subject.submitted_digests if joined else {row.digest for row in received}
        if joined and not verified:
            continue
        for row in trace.kinds.get(HANDED_OVER, ()):
            if row.digest is not None and row.digest not in verified:
                subject.found(
                    "S15",
                    ViolationKind.ALTERED,
                    trace.node,
                    "The application was given other content than was split."
                    if joined
                    else "The application was given other content than was received and verified.",
                )
                return


# S9, same id, same content: a copy is a copy, and other content under a known id is refused.


def judge_content(subject: Subject) -> None:
    """Each node by the digests it wrote down; S15 and S1 have compared the hand-over."""
    if subject.has(ViolationKind.ALTERED):
        return
    for trace in subject.traces:
        problem = _content_problem(trace)
        if problem is not None:
            subject.found("S9", ViolationKind.ALTERED, trace.node, problem)
            return


def _content_problem(trace: Trace) -> str | None:
    kinds = trace.kinds
    submissions = kinds.get(SUBMITTED)
    if submissions is not None and len(submissions) > 1 and len(_digests(submissions)) > 1:
        return "Two messages with different content were submitted under one MessageId."
    received = kinds.get(RECEIVED)
    if received is None:
        return None
    digests = _digests(received)
    if len(received) > 1 and len(digests) > len({row.peer for row in received}):
        return "One party's MessageId was accepted twice, with different content."
    for row in kinds.get(DUPLICATE, ()):
        if row.digest is not None and row.digest not in digests:
            return "Other content under a known MessageId was taken for a copy instead of refused."
    return None


def _digests(rows: list[Row]) -> set[str | None]:
    return {row.digest for row in rows}


# S14, authentic: on a signed agreement, what is handed over lies in the verified node-set.


def judge_authenticity(subject: Subject) -> None:
    """Each node that handed over what it received."""
    for trace in subject.traces:
        if HANDED_OVER not in trace.kinds:
            continue
        for row in trace.kinds.get(RECEIVED, ()):
            if row.detail is None or "signature_required" not in row.detail:
                continue
            said = notes.Received.read(row.detail)
            if said.signature_required and said.signature != "verified":
                subject.found(
                    "S14",
                    ViolationKind.UNSIGNED,
                    trace.node,
                    "It was handed over, but its signature does not cover all that was used.",
                )
                return


# S3, acknowledged means durable: first the store, then the answer, and the store remembers.


STORED = frozenset({RECEIVED, FORWARDED, DUPLICATE})
"""Kinds that show a node has, or had, the message in its store."""


def judge_durability(subject: Subject) -> None:
    """Each node by itself, then each acknowledgement against the node that gave it."""
    for trace in subject.traces:
        kinds = trace.kinds
        if ACK_SENT in kinds:
            _judge_ack_sent(subject, trace)
        if len(kinds.get(RECEIVED, ())) > 1:
            _judge_memory(subject, trace)
        if ACKNOWLEDGED in kinds and subject.healed:
            for row in kinds[ACKNOWLEDGED]:
                _judge_acknowledged(subject, trace, row)


def _judge_ack_sent(subject: Subject, trace: Trace) -> None:
    acknowledged = trace.kinds[ACK_SENT][0]
    stored = trace.first(RECEIVED) or trace.first(FORWARDED)
    if stored is None or stored.seq > acknowledged.seq:
        subject.found(
            "S3",
            ViolationKind.ACK_WITHOUT_STORE,
            trace.node,
            "Its acknowledgement left before the message was stored.",
        )


def _judge_memory(subject: Subject, trace: Trace) -> None:
    """A first copy is first only once while the id is remembered (DRV-4).

    A message handed over twice for this very reason is S2's finding already.
    """
    if subject.has(ViolationKind.TWICE):
        return
    first: dict[tuple[str | None, str | None], Row] = {}
    for row in trace.kinds[RECEIVED]:
        before = first.setdefault((row.peer, row.digest), row)
        terms = subject.context.terms_of(before)
        if before is row or not terms.reliable or terms.repeats_pass:
            continue
        if elapsed(before, row) <= terms.persist_duration:
            subject.found(
                "S3",
                ViolationKind.FORGOTTEN,
                trace.node,
                "A copy was stored as if it were the first: the node had forgotten the message.",
            )
            return


def _judge_acknowledged(subject: Subject, trace: Trace, row: Row) -> None:
    """The receiver that acknowledged must have it; a status answer or a transport's report is no
    acknowledgement.

    An acknowledgement that should not have been accepted at all is S10's finding already.
    """
    if subject.has(ViolationKind.UNMATCHED_ACK):
        return
    if row.detail is not None and notes.Acknowledged.read(row.detail).by not in (
        "ack",
        "response",
    ):
        return
    peer = row.peer
    if peer is None:
        sent = trace.last(SENT)
        peer = sent.peer if sent is not None else None
    silent = _without_it(subject, peer)
    if silent is not None and not _is_cut_off(subject, silent, row):
        subject.found(
            "S3",
            ViolationKind.ACK_WITHOUT_STORE,
            trace.node,
            f"{silent} acknowledged it, but its journal does not have it.",
        )


def _is_cut_off(subject: Subject, silent: str, row: Row) -> bool:
    """Whether the journal of who gave the acknowledgement ends before it: that is told instead."""
    context = subject.context
    ends = [context.ended_before(node, row.at) for node in sorted(context.homes[silent])]
    if None in ends:
        return False
    subject.tell(ends[0])
    return True


def _without_it(subject: Subject, peer: str | None) -> str | None:
    """Who must have given the acknowledgement and does not have the message; None: there is
    none, or its journal is not here.

    A hub that passed the message on promises nothing and acknowledges nothing: the word came
    through it, from the handler it passed the message on to.
    """
    asked: set[str] = set()
    while peer is not None and peer not in asked:
        asked.add(peer)
        homes = subject.context.homes.get(peer)
        if homes is None:
            return None
        here = [trace for trace in subject.traces if trace.node in homes]
        if any(not STORED.isdisjoint(trace.kinds) for trace in here):
            return None
        passed = [row for trace in here for row in trace.kinds.get(PASSED_ON, ())]
        if not passed:
            return peer
        peer = passed[0].peer
    return None
