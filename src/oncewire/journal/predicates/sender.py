"""S5, honest outcome: what the From Party is told is what its handler can know (ERR-9)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from oncewire.journal.outcome import Outcome
from oncewire.journal.predicates.context import Violation, ViolationKind
from oncewire.journal.predicates.subject import Subject
from oncewire.journal.row import Row
from oncewire.journal.trace import (
    ACK_SENT,
    ACKNOWLEDGED,
    CONFIRMED,
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
    WARNED,
    Trace,
)
from oncewire.message.header import AckRequest
from oncewire.protocol import notes

SEVERITY = {Outcome.NOT_DELIVERED.value: "Error", Outcome.UNKNOWN.value: "Warning"}
"""The severity of the notice for each failure (ERR-9)."""


def judge_honesty(subject: Subject) -> None:
    """Each sending node whose message failed, or was said to; no other can break this."""
    for trace in subject.traces:
        kinds = trace.kinds
        if not kinds.keys() & {FAILED, NOTIFIED, WARNED}:
            continue
        if subject.has(ViolationKind.TAKEN_BACK):
            return
        submitted = notes.Submitted() if SUBMITTED not in kinds else _submitted(trace)
        if submitted.is_part and NOTIFIED in kinds:
            sentence = "Its From Party was told of a part, and not of its document."
            subject.found("S5", ViolationKind.WRONG_OUTCOME, trace.node, sentence)
            continue
        whole = submitted.split_id is not None and not submitted.is_part
        problem = (
            (None if whole else _problem_of_failures(trace))
            or _problem_of_acknowledgements(trace)
            or _problem_of_notices(trace)
            or _problem_of_delivery(subject, trace)
        )
        if problem is not None:
            subject.found("S5", ViolationKind.WRONG_OUTCOME, trace.node, problem)


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
        failed = _last_before(trace, FAILED, row.seq)
        if (
            failed is not None
            and not trace.between(RESUMED, failed.seq, row.seq)
            and not notes.Acknowledged.read(row.detail).late
        ):
            return "An acknowledgement came after the failure and is not marked as late."
    return _problem_of_hops(trace)


def _problem_of_hops(trace: Trace) -> str | None:
    """Once a handler on the way has reported that it could not deliver it, no hub's
    acknowledgement says that it arrived (HOP-9)."""
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
                "told",
                ViolationKind.NEEDLESS_NOTICE,
                trace.node,
                "It is the notice of a failure itself, and its own failure was told by another.",
            )
        elif _told_too_often(trace):
            subject.found(
                "told",
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
                    "taken back",
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
                    "S1",
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
            "S1",
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
        subject.found("S1", kind, trace.node, f"It was handed over, {problem}.")


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
    subject.found("S10", ViolationKind.UNMATCHED_ACK, trace.node, problem)
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
            "S10",
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
            "S10",
            ViolationKind.UNSIGNED,
            trace.node,
            "A signed acknowledgement was agreed; the accepted one is not, or signs other content.",
        )
