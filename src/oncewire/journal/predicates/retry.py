"""S11, the retry law: never early, never too often, never after the end, and never given up early.

Gaps are monotonic within one boot and UTC across boots; deadlines are UTC instants (DRV-8). All
counts begin anew with each resume (RTY-13) and, where so agreed, on each transport (C21).
"""

from __future__ import annotations

from operator import itemgetter

from oncewire.journal.outcome import elapsed
from oncewire.journal.predicates.context import ALWAYS, ViolationKind
from oncewire.journal.predicates.subject import Subject
from oncewire.journal.row import Row
from oncewire.journal.trace import (
    ABANDONED,
    ACKNOWLEDGED,
    EXHAUSTED,
    EXPIRED,
    FAILED,
    FORWARDED,
    REJECTED,
    RESUMED,
    SEND_FAILED,
    SENT,
    SUBMITTED,
    TRANSIENT,
    Trace,
)
from oncewire.message.header import AckRequest
from oncewire.message.instant import Instant
from oncewire.protocol import notes
from oncewire.protocol.terms import RetryCount, Terms


def judge(subject: Subject) -> None:
    """Each node that transmits the message, by itself: a hub's attempts are its own."""
    for trace in subject.traces:
        kinds = trace.kinds
        sends = kinds.get(SENT)
        if sends is not None:
            terms = subject.sending_terms(trace)
            _judge_deadlines(subject, trace, terms, sends)
            if len(sends) > 1:
                _judge_attempts(subject, trace, terms, sends)
                _judge_ends(subject, trace, terms, sends)
        # What a hub was told to give up before it could send it has no retries to be judged.
        begun = trace.sends or ABANDONED not in kinds
        if begun and (EXHAUSTED in kinds or FAILED in kinds):
            _judge_giving_up(subject, trace, subject.sending_terms(trace))


def attempts_allowed(terms: Terms) -> int:
    """How many attempts one transport and one resume may make, the first included."""
    return 1 + terms.resends


def _way(terms: Terms, row: Row) -> str | None:
    """What the attempts are counted by: the transport, or nothing when all count together."""
    return row.transport if terms.retries_counted is RetryCount.PER_TRANSPORT else None


def _judge_attempts(subject: Subject, trace: Trace, terms: Terms, sends: list[Row]) -> None:
    allowed = attempts_allowed(terms)
    before: dict[str | None, tuple[int, Row]] = {}
    resumed = trace.kinds.get(RESUMED, [])[::-1]
    for row in sends:
        while resumed and resumed[-1].seq < row.seq:
            resumed.pop()
            before.clear()
        way = _way(terms, row)
        count, previous = before.get(way, (0, row))
        before[way] = (count + 1, row)
        if count >= allowed:
            subject.found(
                "S11",
                ViolationKind.TOO_MANY_RETRIES,
                trace.node,
                f"Attempt {count + 1} was made where {allowed} were agreed.",
            )
            return
        wait = terms.timeout if count == 1 else terms.retry_interval
        if count and elapsed(previous, row) < wait:
            subject.found(
                "S11",
                ViolationKind.EARLY_RETRY,
                trace.node,
                f"Attempt {count + 1} came {elapsed(previous, row)} us after the one before; "
                f"{wait} us were agreed.",
            )
            return


def _judge_deadlines(subject: Subject, trace: Trace, terms: Terms, sends: list[Row]) -> None:
    latest = sends[-1]
    deadline = _time_to_live(trace)
    if deadline is not None and latest.at > deadline:
        problem = "It was sent after its TimeToLive."
    elif (
        terms.runs_protocol and len(sends) > 1 and latest.at - sends[0].at > terms.persist_duration
    ):
        problem = "It was sent again after persistDuration."
    else:
        return
    subject.found("S11", ViolationKind.LATE_SEND, trace.node, problem)


def _time_to_live(trace: Trace) -> Instant | None:
    """As this node wrote it down; another node's clock has no say."""
    submitted = trace.first(SUBMITTED)
    if submitted is not None:
        text = submitted.detail
        if text is not None and "time_to_live" in text:
            return notes.Submitted.read(text).time_to_live
        return None
    forwarded = trace.first(FORWARDED)
    if forwarded is not None and "time_to_live" in (forwarded.detail or ""):
        return notes.Forwarded.read(forwarded.detail).time_to_live
    return None


def _judge_ends(subject: Subject, trace: Trace, terms: Terms, sends: list[Row]) -> None:
    """Nothing is sent once the message is settled, nor while the receiver asked for a pause."""
    marks: list[tuple[int, Row | None, Instant]] = [
        *((row.seq, row, 0) for row in sends),
        *((row.seq, None, ALWAYS) for row in _ends(trace, terms)),
        *((row.seq, None, 0) for row in trace.kinds.get(RESUMED, ())),
        *(
            (row.seq, None, max(1, notes.Transient.read(row.detail).until))
            for row in trace.kinds.get(TRANSIENT, ())
        ),
    ]
    # One pass in order: until when nothing may be sent, as far as the rows have told.
    quiet_until: Instant = 0
    for _, sent, until in sorted(marks, key=itemgetter(0)):
        if sent is None:
            # An operator who resumes it ends what was before.
            quiet_until = max(quiet_until, until) if until else 0
        elif quiet_until == ALWAYS:
            subject.found(
                "S11",
                ViolationKind.LATE_SEND,
                trace.node,
                "It was sent again after it had been acknowledged or had failed.",
            )
            return
        elif sent.at < quiet_until:
            subject.found(
                "S11",
                ViolationKind.EARLY_RETRY,
                trace.node,
                "It was sent again before the pause that the receiver asked for was over.",
            )
            return


def _ends(trace: Trace, terms: Terms) -> list[Row]:
    """Rows after which nothing more may be sent. A hub's acknowledgement is not one where the
    To Party's is still awaited."""
    kinds = trace.kinds
    ends = [*kinds.get(FAILED, ()), *kinds.get(EXPIRED, ()), *kinds.get(REJECTED, ())]
    for row in kinds.get(ACKNOWLEDGED, ()):
        hop = row.detail is not None and notes.Acknowledged.read(row.detail).hop
        if not hop or terms.ack_requested is AckRequest.NONE:
            ends.append(row)
    return ends


def _judge_giving_up(subject: Subject, trace: Trace, terms: Terms) -> None:
    """RTY-18: while attempts are left, the message is resent and not given up."""
    if not terms.runs_protocol:
        return
    problem = None
    for row in trace.kinds.get(EXHAUSTED, ()):
        problem = problem or _problem_of_exhausted(trace, terms, row)
    for row in trace.kinds.get(FAILED, ()):
        problem = problem or _problem_of_failed(trace, terms, row)
    if problem is not None:
        subject.found("S11", ViolationKind.GAVE_UP_EARLY, trace.node, problem)


def _problem_of_exhausted(trace: Trace, terms: Terms, row: Row) -> str | None:
    start, allowed = _resumed_before(trace, row), attempts_allowed(terms)
    made = sum(
        start < sent.seq < row.seq and _way(terms, sent) == _way(terms, row)
        for sent in trace.kinds.get(SENT, ())
    )
    if made >= allowed:
        return None
    return f"Its retries were called exhausted after {made} of {allowed} attempts."


def _problem_of_failed(trace: Trace, terms: Terms, row: Row) -> str | None:
    start = _resumed_before(trace, row)
    if notes.Failed.read(row.detail).reason == "part":
        # A document, whose attempts are those of its parts.
        return None
    if any(trace.between(kind, start, row.seq) for kind in (EXPIRED, REJECTED, ABANDONED)):
        return None
    tried = {
        _way(terms, exhausted)
        for exhausted in trace.kinds.get(EXHAUSTED, ())
        if start < exhausted.seq < row.seq
    }
    if not tried:
        return "It was given up though no row says that its retries were used up."
    if terms.retries_counted is RetryCount.PER_TRANSPORT:
        # A transport without an address for the receiver was no way, and that is written down.
        closed = {
            each_row.transport
            for each_row in trace.kinds.get(SEND_FAILED, ())
            if not each_row.attempt
        }
        for transport in terms.transports:
            if transport not in tried | closed:
                return f"It was given up without trying {transport}, which the agreement offers."
    return None


def _resumed_before(trace: Trace, row: Row) -> int:
    """Position of the last resume before the row; 0 if there was none."""
    return max(
        (resumed.seq for resumed in trace.kinds.get(RESUMED, ()) if resumed.seq < row.seq),
        default=0,
    )
