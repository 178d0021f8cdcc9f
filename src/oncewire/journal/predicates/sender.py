"""The sender: S5, the From Party is told what its handler can know (ERR-9), and its retries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import itemgetter

from oncewire.journal.outcome import elapsed
from oncewire.journal.predicates.context import ALWAYS, Violation, ViolationKind
from oncewire.journal.predicates.subject import Subject
from oncewire.journal.row import Row
from oncewire.journal.trace import (
    ABANDONED,
    ACK_SENT,
    ACKNOWLEDGED,
    CONFIRMED,
    EXHAUSTED,
    EXPIRED,
    FAILED,
    FORWARDED,
    HANDED_OVER,
    JOINED,
    NOTIFIED,
    PASSED_ON,
    RECEIVED,
    REJECTED,
    RESUMED,
    SEND_FAILED,
    SENT,
    SUBMITTED,
    TRANSIENT,
    WARNED,
    Trace,
)
from oncewire.message.form import AckRequest
from oncewire.message.instant import Instant
from oncewire.protocol import notes
from oncewire.protocol.states import Outcome
from oncewire.protocol.terms import RetryCount, Terms

SEVERITY = {Outcome.NOT_DELIVERED.value: "Error", Outcome.UNKNOWN.value: "Warning"}
"""The severity of the notice for each failure (ERR-9)."""


def judge_honesty(subject: Subject) -> None:
    """Each sending node whose message failed, or was said to; no other can break this."""
    for trace in subject.traces:
        kinds = trace.kinds
        late = any("late" in (row.detail or "") for row in kinds.get(ACKNOWLEDGED, ()))
        if not late and not kinds.keys() & {FAILED, NOTIFIED, WARNED}:
            continue
        if subject.has(ViolationKind.TAKEN_BACK):
            return
        submitted = notes.Submitted() if SUBMITTED not in kinds else _submitted(trace)
        if submitted.is_part and NOTIFIED in kinds:
            sentence = "Its From Party was told of a part, and not of its document."
            subject.found(ViolationKind.WRONG_OUTCOME, trace.node, sentence)
            continue
        whole = submitted.split_id is not None and not submitted.is_part
        problem = (
            (None if whole else _problem_of_failures(trace))
            or _problem_of_acknowledgements(trace)
            or _problem_of_notices(trace)
            or _problem_of_delivery(subject, trace)
        )
        if problem is not None:
            subject.found(ViolationKind.WRONG_OUTCOME, trace.node, problem)


def _submitted(trace: Trace) -> notes.Submitted:
    detail = trace.kinds[SUBMITTED][0].detail
    return notes.Submitted.read(detail) if "split_id" in (detail or "") else notes.Submitted()


def _problem_of_failures(trace: Trace) -> str | None:
    for failed in trace.kinds.get(FAILED, ()):
        outcome = notes.Failed.read(failed.detail).outcome
        if outcome not in SEVERITY:
            return f"It failed as {outcome!r}, which is not an outcome of a failure."
        acknowledged = _last_before(trace, ACKNOWLEDGED, failed.seq)
        if acknowledged is not None and not (
            trace.between(REJECTED, acknowledged.seq, failed.seq)
            or trace.between(RESUMED, acknowledged.seq, failed.seq)
        ):
            return "It was set to failed after it had been acknowledged."
        if outcome == Outcome.UNKNOWN and not _transmitted(trace, failed.seq):
            return "It is called unknown, but no attempt can have reached the receiver."
        rejected = _last_before(trace, REJECTED, failed.seq) is not None
        if outcome == Outcome.NOT_DELIVERED and _transmitted(trace, failed.seq) and not rejected:
            return "It is called not delivered, but an attempt may have reached the receiver."
    return None


def _problem_of_acknowledgements(trace: Trace) -> str | None:
    """One that comes after the failure is told as late (DRV-7)."""
    for row in trace.kinds.get(ACKNOWLEDGED, ()):
        late = notes.Acknowledged.read(row.detail).late
        failed = _last_before(trace, FAILED, row.seq)
        if failed is None and late:
            return "An acknowledgement is marked as late, and no failure had come before it."
        if failed is not None and not (late or trace.between(RESUMED, failed.seq, row.seq)):
            return "An acknowledgement came after the failure and is not marked as late."
    # Once a handler on the way has reported that it could not deliver it, no hub's acknowledgement
    # says that it arrived (HOP-9).
    reports = [
        row.seq
        for kind, detail in ((WARNED, notes.Warned), (REJECTED, notes.Rejected))
        for row in trace.kinds.get(kind, ())
        if detail.read(row.detail).code == "DeliveryFailure"
    ]
    for row in trace.kinds.get(ACKNOWLEDGED, ()) if reports else ():
        if notes.Acknowledged.read(row.detail).hop and row.seq > min(reports):
            return "A hub's acknowledgement counts, although its failure had been reported."
    return None


def _problem_of_notices(trace: Trace) -> str | None:
    for row in trace.kinds.get(NOTIFIED, ()):
        due = {
            SEVERITY.get(notes.Failed.read(failed.detail).outcome)
            for failed in trace.kinds.get(FAILED, ())
            if failed.seq < row.seq
        }
        if not due:
            return "Its From Party was told of a failure that had not happened."
        severity = notes.Notified.read(row.detail).severity
        if severity not in due:
            return (
                f"Its From Party was told with severity {severity!r}, which is not its outcome's."
            )
    return None


def _problem_of_delivery(subject: Subject, trace: Trace) -> str | None:
    """Told as not delivered, yet an application has it: the business would send it again."""
    standing = trace.standing
    if (
        SUBMITTED in trace.kinds
        and standing is not None
        and standing.kind == FAILED
        and notes.Failed.read(standing.detail).outcome == Outcome.NOT_DELIVERED
        and any(HANDED_OVER in other.kinds for other in subject.traces)
    ):
        return "It is called not delivered, but it was handed over."
    return None


def _transmitted(trace: Trace, before: int) -> bool:
    """Whether an attempt before that position may have reached the receiver."""
    attempts = {row.attempt for row in trace.kinds.get(SENT, ()) if row.seq < before}
    refused = {
        row.attempt
        for row in trace.kinds.get(SEND_FAILED, ())
        if row.seq < before and notes.SendFailed.read(row.detail).outcome == "refused"
    }
    return not attempts <= refused


def _last_before(trace: Trace, kind: str, position: int) -> Row | None:
    rows = [row for row in trace.kinds.get(kind, ()) if row.seq < position]
    return rows[-1] if rows else None


# Told: what is journaled as told was taken by an application, and notices cause no notices.
#
# The journal shows that a failure was told, and how often. Whether the application took it only
# the application knows: where its own record is at hand (in the simulator, in tests with real
# processes) `untold` compares the two.


def judge_told(subject: Subject) -> None:
    """Each node that told of a failure."""
    for trace in subject.traces:
        if NOTIFIED not in trace.kinds:
            continue
        if subject.is_notice:
            subject.found(
                ViolationKind.NEEDLESS_NOTICE,
                trace.node,
                "It is the notice of a failure itself, and its own failure was told by another.",
            )
        elif _told_too_often(trace):
            subject.found(
                ViolationKind.UNTOLD,
                trace.node,
                "It is recorded as told more often than it failed.",
            )


def _told_too_often(trace: Trace) -> bool:
    return len(trace.kinds[NOTIFIED]) > len(trace.kinds.get(FAILED, ())) > 0


def untold(rows: Iterable[Row], taken: Mapping[str, Collection[str]]) -> Iterator[Violation]:
    """What the nodes call told and their applications never took.

    `taken` holds for each node the MessageIds of the failures that its application knows of. A
    row that names the notice of a hub (`ref_to`) is that message's matter.
    """
    for row in rows:
        known = taken.get(row.node)
        if row.kind != NOTIFIED or row.ref_to is not None or known is None:
            continue
        if row.message_id not in known:
            yield Violation(
                "told",
                ViolationKind.UNTOLD.value,
                row.message_id,
                row.channel,
                row.node,
                "It is recorded as told, but its application never took the notice.",
            )


# Taken back: an outcome that the To Party's own acknowledgement proved is final.
#
# A hub that acknowledged took responsibility and may have to give it back (HOP-9). The To Party
# said that it has the message; no other handler can undo that.


def judge_taken_back(subject: Subject) -> None:
    """Each sending node that called a message failed and had been told that it arrived."""
    for trace in subject.traces:
        failed = trace.last(FAILED)
        if failed is None:
            continue
        for row in trace.kinds.get(ACKNOWLEDGED, ()):
            if row.seq < failed.seq and notes.Acknowledged.read(row.detail).final:
                subject.found(
                    ViolationKind.TAKEN_BACK,
                    trace.node,
                    "It was set to failed although the To Party itself had acknowledged it.",
                )
                break


# S1, no invention: what is handed over was submitted, with the same content, at its From Party.


_PASSING = {FORWARDED, PASSED_ON}


def judge_invention(subject: Subject) -> None:
    """Each node that handed the message over, against the submissions of its From Party."""
    for trace in subject.traces:
        rows = trace.kinds.get(HANDED_OVER)
        if rows is None:
            if CONFIRMED in trace.kinds:
                subject.found(
                    ViolationKind.INVENTED,
                    trace.node,
                    "It was confirmed, but it was never handed over.",
                )
            continue
        if JOINED in trace.kinds:
            continue
        received = trace.kinds.get(RECEIVED)
        if received is None:
            _judge_unreceived(subject, trace, rows[0])
            continue
        for row in rows:
            # The digest covers the From Party, so an equal one is of the right submission.
            if row.digest not in subject.submitted_digests:
                _judge_origin(subject, trace, row, received)


def _judge_unreceived(subject: Subject, trace: Trace, row: Row) -> None:
    """Best-effort messages need no store (RM-6); all others are stored first (RM-18)."""
    if "split_id" in (row.detail or "") and (
        notes.HandedOver.read(row.detail).split_id == row.message_id
    ):
        return  # A whole document: S13 asks for its parts.
    source = row if row.terms_id is not None else subject.submitted
    if source is None or subject.context.terms_of(source).reliable:
        subject.found(
            ViolationKind.INVENTED,
            trace.node,
            "It was handed over, but this node never received it.",
        )


def _judge_origin(subject: Subject, trace: Trace, row: Row, received: list[Row]) -> None:
    """No submission has this content: was there another, or none at all?"""
    context = subject.context
    arrival = next((each for each in received if each.digest == row.digest), received[0])
    digest = row.digest or arrival.digest
    peer = _origin(subject, arrival.peer)
    if context.declared:
        # Another partner may use the same MessageId; only the From Party's own word counts.
        homes = context.homes.get(peer or "", set())
        digests = {
            submitted.digest
            for each in subject.traces
            if each.node in homes
            for submitted in each.kinds.get(SUBMITTED, ())
        }
    else:
        digests = {*subject.submitted_digests}
    if digests and digest not in digests:
        kind, problem = ViolationKind.ALTERED, "with other content than was submitted"
    elif not digests and subject.healed and context.has_journal_of(peer):
        kind, problem = ViolationKind.INVENTED, f"but {peer} never submitted it"
    else:
        return
    if not subject.has(kind):
        subject.found(kind, trace.node, f"It was handed over, {problem}.")


def _origin(subject: Subject, peer: str | None) -> str | None:
    """Who must have submitted what came from a peer: behind a hub, whom the hub has it from."""
    asked: set[str] = set()
    while peer is not None and peer not in asked:
        asked.add(peer)
        homes = subject.context.homes.get(peer, set())
        hubs = [
            each
            for each in subject.traces
            if each.node in homes and SUBMITTED not in each.kinds and _PASSING & each.kinds.keys()
        ]
        if not hubs:
            return peer
        arrivals = hubs[0].kinds.get(RECEIVED)
        peer = arrivals[0].peer if arrivals else None
    return peer


# S10, ack integrity: an accepted acknowledgement answers something that was outstanding.


_PLAIN = notes.Acknowledged()


def judge_acknowledgments(subject: Subject) -> None:
    """Each acknowledgement that a sending node accepted."""
    for trace in subject.traces:
        rows = trace.kinds.get(ACKNOWLEDGED)
        if rows is None:
            continue
        settled: Row | None = None
        for row in rows:
            said = _PLAIN if row.detail is None else notes.Acknowledged.read(row.detail)
            if said.by == "parts":
                # A document: it was never sent itself, and its parts are judged by themselves.
                continue
            if _judge_match(subject, trace, row, settled):
                _judge_given(subject, trace, row, said)
            _judge_signature(subject, trace, said)
            if said.final:
                settled = row


def _judge_match(subject: Subject, trace: Trace, row: Row, settled: Row | None) -> bool:
    sent = trace.first(SENT)
    if sent is None or sent.seq > row.seq:
        problem = "An acknowledgement was accepted before the message was sent."
    elif settled is not None and not _reopened(trace, settled.seq, row.seq):
        problem = "An acknowledgement was accepted though the message was settled already."
    elif row.peer not in (None, sent.peer) and not _answers(subject, trace, row.peer or ""):
        problem = f"An acknowledgement of {row.peer} was accepted, who was never sent the message."
    else:
        return True
    subject.found(ViolationKind.UNMATCHED_ACK, trace.node, problem)
    return False


def _judge_given(subject: Subject, trace: Trace, row: Row, said: notes.Acknowledged) -> None:
    """Who is said to have given it, and has the message, gave one by that id.

    Where no acknowledgements of it are here, nothing is known of their ids.
    """
    if row.ref_to is None or said.by != "ack" or subject.has(ViolationKind.UNMATCHED_ACK):
        return
    given = {
        ack.ref_to
        for other in subject.traces
        if other.node != trace.node
        for ack in other.kinds.get(ACK_SENT, ())
    }
    homes = subject.context.homes.get(row.peer or "", set())
    has_it = any(
        ACK_SENT in other.kinds for other in subject.traces if other.node in homes - {trace.node}
    )
    if has_it and row.ref_to not in given:
        subject.found(
            ViolationKind.UNMATCHED_ACK,
            trace.node,
            f"The acknowledgement {row.ref_to} was accepted, which {row.peer} never gave.",
        )


def _reopened(trace: Trace, after: int, before: int) -> bool:
    """A hub may take its acknowledgement back (HOP-9), an operator may resume."""
    return any(trace.between(kind, after, before) for kind in (FAILED, RESUMED))


def _answers(subject: Subject, trace: Trace, peer: str) -> bool:
    """Whether the peer is one the message went to; unknown names are given the benefit of doubt,
    because one party may have several ids."""
    homes = subject.context.homes
    if peer not in homes:
        return True
    asked = {
        row.peer
        for kind in (SENT, SUBMITTED, FORWARDED)
        for row in trace.kinds.get(kind, ())
        if row.peer is not None
    }
    return (
        not asked
        or peer in asked
        or any(name not in homes or homes[name] & homes[peer] for name in asked)
    )


def _judge_signature(subject: Subject, trace: Trace, said: notes.Acknowledged) -> None:
    if said.signed or said.by not in ("ack", "response"):
        return
    terms = subject.sending_terms(trace)
    wanted = terms.hop_ack_requested if said.hop else terms.ack_requested
    if wanted is AckRequest.SIGNED:
        subject.found(
            ViolationKind.UNSIGNED,
            trace.node,
            "A signed acknowledgement was agreed; the accepted one is not, or signs other content.",
        )


# S11, the retry law: never early, never too often, never after the end, and never given up early.
#
# Gaps are monotonic within one boot and UTC across boots; deadlines are UTC instants (DRV-8). All
# counts begin anew with each resume (RTY-13) and, where so agreed, on each transport (C21).


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
                ViolationKind.TOO_MANY_RETRIES,
                trace.node,
                f"Attempt {count + 1} was made where {allowed} were agreed.",
            )
            return
        wait = terms.timeout if count == 1 else terms.retry_interval
        if count and elapsed(previous, row) < wait:
            subject.found_by_clock(
                ViolationKind.EARLY_RETRY,
                trace,
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
    subject.found_by_clock(ViolationKind.LATE_SEND, trace, problem, by_instant=True)


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
    asked = 0
    for seq, sent, until in sorted(marks, key=itemgetter(0)):
        if sent is None:
            # An operator who resumes it ends what was before.
            quiet_until = max(quiet_until, until) if until else 0
            asked = seq
        elif quiet_until == ALWAYS:
            subject.found(
                ViolationKind.LATE_SEND,
                trace.node,
                "It was sent again after it had been acknowledged or had failed.",
            )
            return
        elif sent.at < quiet_until and not subject.context.is_lifted(sent, asked):
            subject.found_by_clock(
                ViolationKind.EARLY_RETRY,
                trace,
                "It was sent again before the pause that the receiver asked for was over.",
                by_instant=True,
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
        subject.found(ViolationKind.GAVE_UP_EARLY, trace.node, problem)


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
