"""Books: what the sender and the receiver of a message wrote down of it is the same.

A digest is compared by S1, S9 and S15. These are the facts beside it that people and reports go by,
and that a digest does not show to be wrong in a book: header facts and sizes, which way the message
and its acknowledgement went, and under which terms.
"""

from __future__ import annotations

from oncewire.journal.predicates.context import Violation, ViolationKind, of_journal
from oncewire.journal.predicates.subject import Subject
from oncewire.journal.row import Row
from oncewire.journal.trace import (
    ACK_SENT,
    ACKNOWLEDGED,
    DUPLICATE,
    EXHAUSTED,
    FAILED,
    FORWARDED,
    JOINED,
    NUMBERED,
    PASSED_ON,
    RECEIVED,
    REFUSED,
    RESUMED,
    SEND_FAILED,
    SENT,
    SUBMITTED,
    Trace,
)
from oncewire.message.envelope import is_trial
from oncewire.protocol import notes
from oncewire.protocol.terms import Terms

COMPARED = ("cpa_id", "service", "action", "conversation_id", "from_party", "to_party")
"""Facts of a header that both books have."""

AGREED = (
    "reliable", "method", "flow", "window", "numbers", "scope", "on_gap", "reset",
    "timeout", "retries", "retry_interval", "retries_counted", "persist_duration",
)  # fmt: skip
"""Terms that both parties take from their agreement. The others a message asks for itself, or a
handler has for itself."""

_ON_ITS_WAY = (SENT, SEND_FAILED, NUMBERED, EXHAUSTED, FAILED, FORWARDED, PASSED_ON)
"""Kinds whose `peer` is the next handler on the way."""


def judge_facts(subject: Subject) -> None:
    """Each arrival beside the submission, where both are here."""
    submitted = subject.submitted
    if submitted is None or subject.has(ViolationKind.ALTERED):
        return
    problem = _problem_of_to(subject, submitted)
    if problem is not None:
        subject.found(ViolationKind.CONTRADICTION, submitted.node, problem)
        return
    for trace in subject.traces:
        for row in trace.kinds.get(RECEIVED, ()):
            problem = _problem_of_facts(submitted, row)
            if problem is not None:
                subject.found(ViolationKind.CONTRADICTION, trace.node, problem)
                return


def _problem_of_to(subject: Subject, submitted: Row) -> str | None:
    """A message is handed in for the party that its header names. A name that its attempts have,
    too, may be another one of that party."""
    to_party = notes.Submitted.read(submitted.detail).to_party
    attempts = [row for trace in subject.traces for row in trace.kinds.get(SENT, ())]
    names = {None, to_party, *(row.peer for row in attempts if row.node == submitted.node)}
    if to_party is not None and submitted.peer not in names:
        return f"It was submitted for {submitted.peer}, and its To Party is {to_party}."
    return None


def _problem_of_facts(submitted: Row, received: Row) -> str | None:
    if submitted.digest != received.digest:
        return None  # Another message of that id, which is told elsewhere.
    sent, came = notes.Submitted.read(submitted.detail), notes.Received.read(received.detail)
    for name in COMPARED:
        was, now = getattr(sent, name), getattr(came, name)
        # A failure notice has no service of its own.
        if was and now and was != now:
            return f"It was submitted with {name} {was}, and received with {name} {now}."
    was, now = submitted.size, received.size
    # A shape has no sizes: it is learned only of messages whose sizes agree.
    if isinstance(was, int) and isinstance(now, int) and was != now:
        return f"It was submitted with {was} bytes, and received with {now}."
    return None


# --- the way it went --------------------------------------------------------------------------


def judge_ways(subject: Subject) -> None:
    """Each node by itself, then each arrival beside the handler that it came from; whose word
    counts, and who must have the message, is told by S10 and S3."""
    if any(found.predicate in ("S3", "S10") for found in subject.violations):
        return
    for trace in subject.traces:
        problem = (
            _problem_of_next(trace)
            or _problem_of_transports(subject, trace)
            or _problem_of_arrival(subject, trace)
            or _problem_of_carrier(subject, trace)
            or _problem_of_acknowledgements(subject, trace)
        )
        if problem is not None:
            subject.found(ViolationKind.CONTRADICTION, trace.node, problem)
            return


def _peers(trace: Trace, *kinds: str) -> list[str]:
    """The peers that rows of these kinds name, each once."""
    named = (row.peer for kind in kinds for row in trace.kinds.get(kind, ()))
    return list(dict.fromkeys(peer for peer in named if peer is not None))


def _problem_of_next(trace: Trace) -> str | None:
    """A handler sends a message to one next handler, whatever happens to it."""
    way = _peers(trace, *_ON_ITS_WAY)
    if len(way) > 1:
        return f"Its rows say that it goes to {way[0]}, and to {way[1]}."
    return None


def _problem_of_acknowledgements(subject: Subject, trace: Trace) -> str | None:
    """A handler hears of a message from the one that it sent it to, or through that one from the To
    Party; it acknowledges to the one that it has it from, or to the From Party behind that one."""
    homes = subject.context.homes
    way, to_party = _peers(trace, SENT), _peers(trace, SUBMITTED)
    for peer in _peers(trace, ACKNOWLEDGED) if way and to_party else ():
        # A name that a handler uses for another one is known only where that one has declared it.
        stranger = peer not in homes and way[0] in homes and peer not in to_party
        # While a run goes on, the journal of a hub in between may not have been read yet.
        direct = subject.healed and way[0] not in homes and _is_named(subject, trace, RECEIVED)
        if peer not in way and (stranger or (direct and peer in to_party)):
            return f"It was sent to {way[0]}, and {peer} acknowledged it."
    came = _peers(trace, RECEIVED, DUPLICATE)
    known = subject.healed and _is_named(subject, trace, SENT)
    for peer in _peers(trace, ACK_SENT) if came and known else ():
        behind = _passed(subject) and peer in homes and came[0] in homes
        if peer not in came and not behind:
            return f"It came from {came[0]}, and was acknowledged to {peer}."
    return None


def _problem_of_transports(subject: Subject, trace: Trace) -> str | None:
    """Attempts go over transports that were agreed on, and fail where they began."""
    rows = trace.kinds.get(SENT)
    if rows is None or not (SUBMITTED in trace.kinds or FORWARDED in trace.kinds):
        return None
    agreed = subject.sending_terms(trace).transports
    # A message that is resumed begins with its first transport, and counts its attempts anew.
    ends = (*trace.kinds.get(SEND_FAILED, ()), *trace.kinds.get(RESUMED, ()))
    began: dict[int | None, str | None] = {}
    for row in sorted((*rows, *ends), key=lambda row: row.seq):
        if row.kind == RESUMED:
            began.clear()
        elif row.kind == SENT:
            if row.transport not in agreed:
                return f"It was sent over {row.transport}, and agreed is {', '.join(agreed)}."
            began[row.attempt] = row.transport
        elif row.transport and (over := began.get(row.attempt)) not in (None, row.transport):
            return f"Attempt {row.attempt} began over {over}, and failed over {row.transport}."
    return None


def _problem_of_arrival(subject: Subject, trace: Trace) -> str | None:
    """What comes from a handler was sent here by it, or to another that passes it on. Whether there
    was a hub in between, the receiver may not know."""
    homes = subject.context.homes
    if _passed(subject):
        return None
    for peer in _peers(trace, RECEIVED):
        for other in subject.traces:
            for way in _peers(other, SENT) if other is not trace else ():
                here, there = trace.node in homes.get(way, ()), other.node in homes.get(peer, ())
                if (here and trace.node in homes.get(peer, ())) or (
                    there and not here and way in homes and subject.healed
                ):
                    return f"{other.node} sent it to {way}, but {trace.node} has it from {peer}."
    return None


_REPLY = "reply"  # what came as the answer on a connection of the node's own
_FOLDER = {"ftp", "sftp"}  # ways to one folder, if its server has both


def _problem_of_carrier(subject: Subject, trace: Trace) -> str | None:
    """What comes straight from a handler comes over a transport over which that one sent it. A
    response that is stored, or was refused, comes again by the way of a copy of its request."""
    homes, archives, kinds = subject.context.homes, subject.context.archives, trace.kinds
    if any(row.ref_to for kind in (RECEIVED, REFUSED) for row in kinds.get(kind, ())):
        return None
    for row in (*kinds.get(RECEIVED, ()), *kinds.get(DUPLICATE, ())) if subject.healed else ():
        over = {
            sent.transport
            for other in subject.traces
            # Of one that ends in the middle, more may follow.
            if other is not trace and other.kinds.keys() & {ACKNOWLEDGED, FAILED}
            for sent in other.kinds.get(SENT, ())
            if other.node in homes.get(row.peer or "", ())
            and trace.node in homes.get(sent.peer or "", ())
            and {trace.node, other.node}.isdisjoint(archives)
        }
        ways = over | _FOLDER if over & _FOLDER else over
        if over and row.transport not in (None, _REPLY, *ways):
            return f"It was sent over {', '.join(map(str, over))}, and came over {row.transport}."
    return None


def _is_named(subject: Subject, trace: Trace, kind: str) -> bool:
    """Whether another node says that it has sent the message to this one, or has it from it."""
    homes = subject.context.homes
    return any(
        trace.node in homes.get(peer, ())
        for other in subject.traces
        for peer in (_peers(other, kind) if other is not trace else ())
    )


def _passed(subject: Subject) -> bool:
    """Whether a hub has the message, as far as journals are here."""
    return any(FORWARDED in trace.kinds or PASSED_ON in trace.kinds for trace in subject.traces)


# --- restored ---------------------------------------------------------------------------------


def judge_restored(subject: Subject) -> None:
    """Where something is wrong already: whether a node does not have what others have from it, of a
    time in which it did nothing."""
    context = subject.context
    if not subject.violations or not context.restarts:
        return
    by_node = {trace.node: trace.kinds for trace in subject.traces}
    for trace in subject.traces:
        for kind, needed in ((ACKNOWLEDGED, _HAS_IT), (RECEIVED, _SENT_IT)):
            for row in trace.kinds.get(kind, ()):
                for node in context.homes.get(row.peer or "", set()) - {trace.node}:
                    if needed.isdisjoint(by_node.get(node, ())):
                        subject.tell(context.restored_at(node, row.at))


_HAS_IT = frozenset({RECEIVED, FORWARDED, DUPLICATE, PASSED_ON, JOINED})
_SENT_IT = frozenset({SENT, PASSED_ON})


# --- the terms --------------------------------------------------------------------------------


def judge_terms(subject: Subject) -> None:
    """Each arrival that came from the From Party itself: a hub has agreements of its own. What
    differs because one of them has changed its agreement first is in both books, sooner or
    later: each value by itself, since an agreement may change several times, and not always at both
    ends."""
    submitted, context = subject.submitted, subject.context
    if submitted is None or subject.is_notice or not subject.healed:
        return
    # Trials have timers of their own, whatever is agreed.
    if is_trial(submitted.message_id or ""):
        return
    for trace in subject.traces:
        for row in trace.kinds.get(RECEIVED, ()):
            if row.terms_id == submitted.terms_id or submitted.node not in context.homes.get(
                row.peer or "", ()
            ):
                continue
            ours, theirs = context.terms_of(submitted), context.terms_of(row)
            different = tuple(
                name
                for name in _differences(ours, theirs)
                if not _has_had(subject, submitted.node, theirs, name)
                and not _has_had(subject, trace.node, ours, name)
            )
            if different and _is_for(subject, row):
                subject.tell(_other_terms(submitted, row, different))


def _is_for(subject: Subject, row: Row) -> bool:
    """Whether a message is for a party of the node itself, which then is no hub."""
    to_party = notes.Received.read(row.detail).to_party
    return row.node in subject.context.homes.get(to_party or "", ())


def _differences(ours: Terms, theirs: Terms) -> tuple[str, ...]:
    # Only a reliable message says by which method it is so.
    without = () if ours.reliable and theirs.reliable else ("method",)
    return tuple(
        name
        for name in AGREED
        if name not in without and getattr(ours, name) != getattr(theirs, name)
    )


def _has_had(subject: Subject, node: str, terms: Terms, name: str) -> bool:
    """Whether a node has ever had terms with this value, whatever else its messages were: one
    agreement serves reliable and best-effort messages."""
    known = subject.context.terms
    return any(
        getattr(known[terms_id], name) == getattr(terms, name)
        for terms_id in subject.context.explained.get(node, ())
        if terms_id in known
    )


def _other_terms(submitted: Row, received: Row, different: tuple[str, ...]) -> Violation:
    return of_journal(
        ViolationKind.OTHER_TERMS,
        received.node,
        f"It takes messages of {submitted.node} under the terms {received.terms_id}, and they are "
        f"sent under {submitted.terms_id}: other values of {', '.join(different)}.",
    )
