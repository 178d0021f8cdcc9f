"""The receiver: S2, at most once: one confirmation, and a hand-over again only after a crash.

Where neither side asked for repeats to be stopped each copy is a message of its own (C40): then
there is one confirmation, and one hand-over, for each arrival.
"""

from __future__ import annotations

from oncewire.journal.outcome import elapsed, given_up_by
from oncewire.journal.predicates.context import ViolationKind
from oncewire.journal.predicates.subject import Subject
from oncewire.journal.row import Row
from oncewire.journal.trace import (
    ABANDONED,
    ACK_SENT,
    ACKNOWLEDGED,
    CONFIRMED,
    DUPLICATE,
    EXHAUSTED,
    EXPIRED,
    FAILED,
    FORWARDED,
    HANDED_OVER,
    INCIDENT,
    JOINED,
    NOTIFIED,
    PASSED_ON,
    RECEIVED,
    REFUSED,
    REJECTED,
    RESUMED,
    SEND_FAILED,
    SENT,
    SUBMITTED,
    SUSPENDED,
    Trace,
)
from oncewire.protocol import notes
from oncewire.protocol.terms import HopMode


def judge_once(subject: Subject) -> None:
    """Over all nodes together, then on each of them; one finding tells enough."""
    confirmations = 0
    for trace in subject.traces:
        confirmations += len(trace.kinds.get(CONFIRMED, ()))
    if confirmations > 1 and confirmations > _arrivals(subject):
        subject.found(
            ViolationKind.TWICE,
            subject.traces[0].node,
            f"Applications confirmed it {confirmations} times.",
        )
        return
    for trace in subject.traces:
        rows = trace.kinds.get(HANDED_OVER)
        problem = _problem(subject, trace, rows) if rows is not None else None
        if problem is not None:
            subject.found(ViolationKind.TWICE, trace.node, problem)
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
            subject.found(ViolationKind.ALTERED, trace.node, problem)
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
                    ViolationKind.UNSIGNED,
                    trace.node,
                    "It was handed over, but its signature does not cover all that was used.",
                )
                return


# S3, acknowledged means durable: first the store, then the answer, and the store remembers.


STORED = frozenset({RECEIVED, FORWARDED, DUPLICATE})
"""Kinds that show a node has, or had, the message in its store."""


def judge_durability(subject: Subject) -> None:
    """Each node by itself, then each acknowledgement against the node that gave it; that a node
    has it from nowhere is S1's finding already."""
    if subject.has(ViolationKind.INVENTED):
        return
    for trace in subject.traces:
        kinds = trace.kinds
        if ACK_SENT in kinds:
            acknowledged = trace.kinds[ACK_SENT][0]
            stored = trace.first(RECEIVED) or trace.first(FORWARDED)
            if stored is None or stored.seq > acknowledged.seq:
                subject.found(
                    ViolationKind.ACK_WITHOUT_STORE,
                    trace.node,
                    "Its acknowledgement left before the message was stored.",
                )
        if len(kinds.get(RECEIVED, ())) > 1:
            _judge_memory(subject, trace)
        if ACKNOWLEDGED in kinds and subject.healed:
            for row in kinds[ACKNOWLEDGED]:
                _judge_acknowledged(subject, trace, row)


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
    if row.detail is not None and notes.Acknowledged.read(row.detail).by not in ("ack", "response"):
        return
    peer = row.peer
    if peer is None:
        sent = trace.last(SENT)
        peer = sent.peer if sent is not None else None
    silent = _without_it(subject, peer)
    if silent is not None and not _is_cut_off(subject, silent, row):
        subject.found(
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


# S4, nothing lost, and L1, nothing for ever under way: judged once every timer has run out.


def judge_delivery(subject: Subject) -> None:
    """Each handler that was given the message to deliver: where does it stand at the end?"""
    for trace in subject.traces:
        if ABANDONED in trace.kinds:
            _judge_given_up(subject, trace)
    if not subject.healed:
        return
    for trace in subject.traces:
        submitted = trace.first(SUBMITTED)
        if submitted is not None and subject.context.terms_of(submitted).reliable:
            standing = trace.standing
            if standing is not None and standing.kind == ACKNOWLEDGED:
                if not arrived(subject) and not subject.is_notice:
                    _judge_acknowledged_delivery(subject, trace, submitted)
            elif standing is not None and standing.kind == FAILED:
                if not (subject.was_told(trace) or arrived(subject) or _is_part(submitted)):
                    subject.found(
                        ViolationKind.UNNOTIFIED,
                        trace.node,
                        "It failed, and its From Party was not told.",
                    )
            else:
                judge_open(subject, trace, submitted)
    if subject.submitted is None:
        for trace in subject.traces:
            if (ACK_SENT in trace.kinds or JOINED in trace.kinds) and trace.holds:
                _judge_promised(subject, trace)


def _is_part(submitted: Row) -> bool:
    """Whether its From Party is told of its document instead, which is judged by itself."""
    detail = submitted.detail
    return "split_number" in (detail or "") and notes.Submitted.read(detail).is_part


def _judge_promised(subject: Subject, trace: Trace) -> None:
    """Seen from the receiver alone: what it acknowledged or joined it hands over.

    On an ordered channel an earlier number may be missing, and only the channel's own fold can
    tell whose turn it is.
    """
    received = trace.first(RECEIVED)
    if received is not None:
        terms = subject.context.terms_of(received)
        said = received.detail or ""
        notice = "notice" in said and notes.Received.read(said).notice
        if notice or not terms.reliable or (terms.ordered and HANDED_OVER not in trace.kinds):
            return
    elif HANDED_OVER not in trace.kinds:
        return  # A document that was joined and not handed over is S13's matter.
    _judge_receiver(subject, trace)


def _judge_acknowledged_delivery(subject: Subject, trace: Trace, submitted: Row) -> None:
    """The To Party's handler has it and must hand it over; a hub's promise is S12's matter."""
    if NOTIFIED in trace.kinds:
        return
    # On an ordered channel it may be held behind a number that waits for the operator.
    held = subject.context.waits_for_operator(trace, submitted)
    for receiver in subject.traces:
        if receiver.holds and not (held and HANDED_OVER not in receiver.kinds):
            _judge_receiver(subject, receiver)


def _judge_given_up(subject: Subject, trace: Trace) -> None:
    """What a person gave up where it had arrived is lost, whenever that is asked: nothing that may
    still come changes it."""
    by = given_up_by(trace)
    received = trace.first(RECEIVED)
    promised = ACK_SENT in trace.kinds or JOINED in trace.kinds or subject.submitted is not None
    reliable = received is None or subject.context.terms_of(received).reliable
    if by is None or trace.confirmations or not (promised and reliable):
        return
    subject.found(
        ViolationKind.LOST,
        trace.node,
        f"It was given up by {by} where it had arrived: no application has it.",
    )


def _judge_receiver(subject: Subject, trace: Trace) -> None:
    if given_up_by(trace) is not None:
        return  # It is told already.
    if HANDED_OVER not in trace.kinds:
        received = trace.first(RECEIVED)
        if trace.called or (received is not None and subject.context.is_held_up(received)):
            return  # It, or one before it, is there and cannot go on: a person was told.
        # Whether this is a hub whose operator gave the message up before it went on (HOP-9).
        given_up = trace.kinds.keys() >= {ABANDONED, FAILED} and SUBMITTED not in trace.kinds
        if given_up and subject.was_told(trace):
            # A notice that gets lost is judged by itself, as it is where the message went on.
            return
        subject.found(
            ViolationKind.LOST, trace.node, "It was acknowledged and stored, but never handed over."
        )
    elif not trace.confirmations:
        subject.found(
            ViolationKind.UNCONFIRMED,
            trace.node,
            "It was handed over, but no application ever confirmed it.",
        )


def judge_open(subject: Subject, trace: Trace, row: Row) -> None:
    """No acknowledgement and no failure: excused only while the operator is waited for."""
    if subject.context.waits_for_operator(trace, row):
        return
    if arrived(subject):
        subject.found(
            ViolationKind.UNFINISHED,
            trace.node,
            "It arrived and all its timers have run out, but its sender has no outcome for it.",
            predicate="L1",
        )
    else:
        was = "sent" if SENT in trace.kinds else "taken for delivery, never sent"
        subject.found(
            ViolationKind.LOST,
            trace.node,
            f"It was {was}, no application has it, and nobody was told.",
            predicate="S12" if FORWARDED in trace.kinds else "S4",
        )


def arrived(subject: Subject) -> bool:
    """Whether an application has it, or the document that it is a part of."""
    return any(trace.confirmations for trace in subject.traces)


# L3, calm: where nothing goes wrong every message arrives, and no failure is told.
#
# Judged only where the world says of itself that it was calm: no journal can prove that. Every
# other promise is kept by a handler that fails each message and says so; this one is not.


ALARMS = (FAILED, NOTIFIED, REJECTED, REFUSED, EXHAUSTED, EXPIRED, SUSPENDED, ABANDONED, INCIDENT)
"""Kinds that tell of trouble, the plainest first."""


def judge_calm(subject: Subject) -> None:
    """Each message, and each signal that was refused."""
    if not subject.context.calm:
        return
    for alarm in ALARMS:
        for trace in subject.traces:
            if alarm in trace.kinds and not subject.has(ViolationKind.WRONG_OUTCOME):
                subject.found(
                    ViolationKind.WRONG_OUTCOME,
                    trace.node,
                    f"Nothing went wrong in this world, and it has a row {alarm!r}.",
                )
    if subject.submitted is None or arrived(subject) or subject.has(ViolationKind.LOST):
        return
    subject.found(
        ViolationKind.LOST,
        subject.submitted.node,
        "Nothing went wrong in this world, and no application has it.",
    )


# S12, hops: an intermediary that took responsibility forwards the message or reports it, and what
# reports it arrives or is the operator's to know of (C33).
#
# A notice that is reliable is judged like any message (S4). One that is sent with best effort, as
# earlier versions did under ebMS 2.0, and one that only passes a hub are judged here.


def judge_hop(subject: Subject) -> None:
    """Each hub on the way, once every timer has run out."""
    if not subject.healed:
        return
    for trace in subject.traces:
        if FORWARDED in trace.kinds:
            # Its acknowledgement is the promise (HOP-8); storing and forwarding is one by itself.
            terms = subject.context.terms_of(trace.kinds[FORWARDED][0])
            promised = ACK_SENT in trace.kinds or terms.hop_mode is HopMode.STORE_AND_FORWARD
            if promised and terms.reliable:
                standing = trace.standing
                if standing is None or standing.kind == RESUMED:
                    judge_open(subject, trace, trace.kinds[FORWARDED][0])
                elif standing.kind == FAILED and not subject.was_told(trace):
                    subject.found(
                        ViolationKind.UNNOTIFIED,
                        trace.node,
                        "This hub took responsibility, failed, and did not tell the From Party.",
                    )
        elif SENT in trace.kinds and not _is_known_of(trace):
            _judge_notice(subject, trace)


def _is_known_of(trace: Trace) -> bool:
    """Whether what this node sent was acknowledged, or its operator knows that it was not."""
    return any(kind in trace.kinds for kind in (ACKNOWLEDGED, INCIDENT, ABANDONED))


def _judge_notice(subject: Subject, trace: Trace) -> None:
    submitted = trace.first(SUBMITTED)
    if submitted is None:
        # Of what passes, only a report is stored and repeated.
        owed = PASSED_ON in trace.kinds
    elif not subject.is_notice or subject.context.terms_of(submitted).reliable:
        return
    else:
        # Sent once: the last that is known of it is that no transport took it.
        last = trace.last(SENT, SEND_FAILED)
        owed = last is not None and last.kind == SEND_FAILED
    if owed:
        subject.found(
            ViolationKind.UNNOTIFIED,
            trace.node,
            "It tells the From Party of a failure, nobody took it, and the operator was not told.",
        )
