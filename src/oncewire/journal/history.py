"""The ladder of one message: what happened, rung by rung, and one plain sentence of cause.

Rungs of several nodes are put in an order that the message itself proves: nothing is received
before it was sent, no acknowledgement is accepted before it left. Where the message proves
nothing, the nodes' clocks decide the picture and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from shlex import quote

from oncewire.journal import trace
from oncewire.journal.outcome import PROXIED, MessageOutcome, fold_outcome
from oncewire.journal.row import Row
from oncewire.journal.trace import Trace, gather
from oncewire.message.instant import MILLISECOND, MINUTE, SECOND, Duration, Instant
from oncewire.protocol import notes
from oncewire.protocol.notes import Detail
from oncewire.protocol.sender import is_id_taken
from oncewire.protocol.states import Outcome


class Direction(StrEnum):
    """Where the arrow of a rung points, seen from its node."""

    OUT = "out"
    IN = "in"
    HERE = "here"


@dataclass(frozen=True, slots=True)
class Step:
    """One rung."""

    at: Instant
    node: str
    kind: str
    direction: Direction
    peer: str | None
    text: str
    """What happened, in words."""
    seq: int
    ref_to: str | None = None
    """The signal that it is about."""


_OUT = {trace.SENT, trace.ACK_SENT, trace.WARNING_SENT, trace.FORWARDED, trace.PASSED_ON}
_IN = {
    trace.RECEIVED,
    trace.DUPLICATE,
    trace.REFUSED,
    trace.ACKNOWLEDGED,
    trace.REJECTED,
    trace.WARNED,
    trace.IGNORED,
    trace.TRANSIENT,
}
_ARRIVALS = {trace.RECEIVED, trace.DUPLICATE, trace.REFUSED}


def ladder(rows: Iterable[Row]) -> list[Step]:
    """The rungs of one message, in an order in which they can have happened."""
    return [_step(row) for row in in_causal_order(rows)]


def in_causal_order(rows: Iterable[Row]) -> list[Row]:
    """The rows of one message on any nodes, in an order in which they can have been written."""
    nodes: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.seq, reverse=True):
        nodes.setdefault(row.node, []).append(row)
    acks_sent = {
        row.ref_to for each in nodes.values() for row in each if row.kind == trace.ACK_SENT
    }
    ordered: list[Row] = []
    senders: set[str] = set()
    acks: set[str | None] = set()
    while nodes:
        fronts = [each[-1] for each in nodes.values()]
        # Rows may be missing; then the earliest front goes on rather than nothing at all.
        free = [
            row for row in fronts if not _waits(row, senders, acks_sent - acks, len(nodes))
        ] or fronts
        row = min(free, key=lambda front: (front.at, front.node))
        ordered.append(row)
        if row.kind == trace.SENT:
            senders.add(row.node)
        elif row.kind == trace.ACK_SENT:
            acks.add(row.ref_to)
        nodes[row.node].pop()
        if not nodes[row.node]:
            del nodes[row.node]
    return ordered


def _waits(row: Row, senders: set[str], acks_to_come: set[str | None], open_nodes: int) -> bool:
    """Whether a row of another node must come first."""
    if row.kind in _ARRIVALS:
        return not senders - {row.node} and open_nodes > 1
    return row.kind == trace.ACKNOWLEDGED and row.ref_to in acks_to_come


def _step(row: Row) -> Step:
    direction = Direction.HERE
    if row.kind in _OUT:
        direction = Direction.OUT
    elif row.kind in _IN:
        direction = Direction.IN
    said = _event_text(row)
    return Step(row.at, row.node, row.kind, direction, row.peer, said, row.seq, row.ref_to)


_TEXTS = {
    trace.SUBMITTED: "submitted{to}",
    trace.NUMBERED: "entered the window as number {row.sequence_number} of epoch {row.epoch}",
    trace.SENT: "attempt {row.attempt} over {row.transport}",
    trace.SEND_FAILED: "attempt {row.attempt} failed: {said.reason}",
    trace.ACKNOWLEDGED: "acknowledgement accepted{by} ({said.by})",
    trace.REJECTED: "answered with the error {said.refusal}",
    trace.WARNED: "a warning came{by}: {said.code}{about}",
    trace.IGNORED: "ignored: {said.claim}{by}, {said.code}: {said.problem}",
    trace.TRANSIENT: "the receiver asked for a pause",
    trace.EXHAUSTED: "the retries over {row.transport} are used up",
    trace.EXPIRED: "{said.by} has passed",
    trace.FAILED: "given up as {said.outcome}: {said.reason}",
    trace.NOTIFIED: "the From Party was told with severity {said.severity}",
    trace.SUSPENDED: "suspended until an operator decides",
    trace.RESUMED: "resumed{who}; the retries start anew",
    trace.ABANDONED: "abandoned",
    trace.EPOCH_ENDED: "its number was given up, the next one starts a new epoch",
    trace.RECEIVED: "received and stored",
    trace.DUPLICATE: "a copy arrived and was stopped",
    trace.REFUSED: "refused with {said.code}{about}",
    trace.SKIPPED: "number {row.sequence_number} will not be handed over",
    trace.WARNING_SENT: "its sender is warned: {said.code}{about}",
    trace.ACK_SENT: "acknowledgement sent",
    trace.HANDED_OVER: "handed over to the application",
    trace.CONFIRMED: "confirmed by the application",
    trace.JOINED: "joined from {said.total} parts",
    trace.FORWARDED: "taken for the next hop{to}",
    trace.PASSED_ON: "passed on{to}, nothing promised",
    trace.HOLD_SET: "put under legal hold{who}",
    trace.HOLD_LIFTED: "its legal hold was lifted{who}",
    trace.INCIDENT: "incident: {said.problem}",
    trace.RESOLVED: "incident resolved",
}


def _event_text(row: Row) -> str:
    text = _TEXTS.get(row.kind, row.kind.replace("_", " "))
    if row.kind == trace.SEND_FAILED and row.attempt is None:
        text = "not tried over {row.transport}: {said.reason}"
    cls = next((cls for kind, cls in notes.DETAILS.items() if kind == row.kind), None)
    said = cls.read(row.detail) if cls is not None else None
    to, by = (f" {word} {row.peer}" if row.peer else "" for word in ("to", "from"))
    who = f" by {said.by}" if isinstance(said, notes.ACTS) and said.by is not None else ""
    text = text.format(row=row, said=said, to=to, by=by, about=_about(said), who=who)
    if isinstance(said, notes.Acknowledged) and said.late:
        text += ", after it had been given up"
    if isinstance(said, notes.Abandoned) and said.by is not None:
        text = f"given up by {said.by}" + (f": {said.reason}" if said.reason else "")
    if isinstance(said, notes.Confirmed) and said.by is not None:
        text = f"confirmed by hand by {said.by}"
    if isinstance(said, notes.HandedOver) and said.redelivered:
        text += " again"
    if isinstance(said, notes.Ignored) and said.count > 1:
        text += f" ({said.count} so far)"
    return text


def _about(said: Detail | None) -> str:
    """Where in the message an error or a warning points, and what it says."""
    if isinstance(said, notes.Refused):
        place, words = said.location, said.problem
    elif isinstance(said, notes.Warned | notes.WarningSent):
        place, words = said.location, said.description
    else:
        return ""
    return (f" at {place}" if place else "") + (f" ({words})" if words else "")


# --- one sentence -------------------------------------------------------------------------


def explain(rows: Iterable[Row], *, outlook: str = "", copies: int | None = None) -> str:
    """Why the message is where it is, in one sentence for people.

    `outlook` is what the journal cannot tell: what has to happen before a message that is under
    way goes on, and of a document that failed, which part did and why. `copies`: how many were
    stopped, where not all rows are given.
    """
    told = list(rows)
    outcome = fold_outcome(told)
    if outcome is None:
        return "Nothing is known of this message."
    if copies is not None:
        outcome = outcome._replace(duplicates_stopped=copies)
    where = ""
    if copies is None and len({row.node for row in told}) > 1:
        stopped = Counter(row.node for row in told if row.kind == trace.DUPLICATE)
        outcome = outcome._replace(duplicates_stopped=stopped.total())
        where = ", ".join(f"{count} at {node}" for node, count in sorted(stopped.items()))
    failure = last_failure(told, outcome.sender)
    why = sentence(outcome, failure=failure, outlook=outlook, stopped_at=where)
    if outcome.reason == PROXIED:
        passes = passes_of(told)
        times = f" {passes} times" if passes > 1 else ""
        why = f"Passed on{times}, and nothing promised: what became of it is known at its ends."
    if outcome.outcome is Outcome.DELIVERED:
        why = _taken_over(told, outcome, where) or why
    if outcome.outcome is Outcome.NOT_DELIVERED and _id_is_taken(told, outcome.sender):
        why = (
            f"{why} Its receiver has a message of this id with other content; "
            f"`oncewire ask {quote(outcome.message_id)}` asks what became of that one."
        )
    warnings = dict.fromkeys(
        f"{said.code}{_about(said)}"
        for said in (notes.Warned.read(row.detail) for row in told if row.kind == trace.WARNED)
    )
    if warnings:
        why = f"{why} Its receiver warned: {'; '.join(warnings)}."
    changed = _changed_way(told, outcome.sender)
    return f"{why}{changed}{_ignored(told)}{_called(told, outcome.receiver)}"


def _taken_over(rows: Iterable[Row], outcome: MessageOutcome, stopped_at: str) -> str:
    """What is said where a hub or a reliable transport alone has acknowledged it (HOP-8); empty:
    its receiver has. The receiver's own journal, where that is here too, may know more."""
    heard = [row for row in rows if row.kind == trace.ACKNOWLEDGED and row.node == outcome.sender]
    said = [notes.Acknowledged.read(row.detail) for row in heard]
    if not said or any(each.final for each in said):
        return ""
    by = "the transport" if said[-1].by == "transport" else heard[-1].peer or "the next handler"
    delivered = _delivered(outcome, stopped_at).removeprefix("Delivered").removesuffix(".")
    told, _, known = delivered.partition("; ")
    taken = f"Taken over by {by}{told}: it answers for it from there"
    if outcome.receiver is None:
        stopped = f"; {known}" if known else ""
        return f"{taken}, and the To Party itself has not said that it has it{stopped}."
    return (
        f"{taken}. The To Party has told us nothing; by the journal of {outcome.receiver} it has "
        f"the message: {known}."
    )


def passes_of(rows: Iterable[Row]) -> int:
    """How often hubs let the message through without a promise of their own."""
    return sum(row.kind == trace.PASSED_ON for row in rows)


def _id_is_taken(rows: Iterable[Row], sender: str | None) -> bool:
    """Whether the refusal that the sender heard was about the id alone."""
    said = [
        notes.Rejected.read(row.detail)
        for row in rows
        if row.kind == trace.REJECTED and row.node == sender
    ]
    return bool(said) and is_id_taken(said[-1].refusal)


def _changed_way(rows: Iterable[Row], sender: str | None) -> str:
    """How the sender's attempts went from one transport to another, if they did."""
    own = sorted((row for row in rows if row.node == sender), key=lambda row: row.seq)
    used = list(dict.fromkeys(row.transport for row in own if row.kind == trace.SENT))
    spent = {row.transport for row in own if row.kind == trace.EXHAUSTED}
    passed = [row.transport for row in own if row.kind == trace.SEND_FAILED and row.attempt is None]
    if len(used) > 1 and spent:
        return f" It went from {' to '.join(map(str, used))} when the retries were used up."
    if used and passed:
        without = ", ".join(dict.fromkeys(map(str, passed)))
        return f" It went over {used[0]}, because nothing got across over {without}."
    return ""


def _ignored(rows: Iterable[Row]) -> str:
    """What was said about the message and did not count, by the last of it."""
    said = [notes.Ignored.read(row.detail) for row in rows if row.kind == trace.IGNORED]
    if not said:
        return ""
    last = said[-1]
    signals = "a signal was" if last.count == 1 else f"{last.count} signals were"
    return f" Of those about it {signals} ignored: {last.claim}, {last.problem or last.code}."


def _called(rows: Iterable[Row], receiver: str | None) -> str:
    """Why an operator was called for what arrived, while that is open."""
    own = gather(row for row in rows if row.node == receiver)
    row = own[0].last(trace.INCIDENT) if own and own[0].holds and own[0].called else None
    problem = None if row is None else notes.Incident.read(row.detail).problem
    return f" An incident is open: {problem}." if problem else ""


def failure_reason(rows: Iterable[Row]) -> str:
    """What its sender's transport said of the latest attempt, if that failed, in its words."""
    told = list(rows)
    outcome = fold_outcome(told)
    row = None if outcome is None else _last_failed(told, outcome.sender)
    return "" if row is None else notes.SendFailed.read(row.detail).reason or ""


def last_failure(rows: Iterable[Row], sender: str | None) -> str:
    """How the sender's latest attempt failed; empty if it did not, or that is not known."""
    row = _last_failed(rows, sender)
    return "" if row is None else _event_text(row)


def _last_failed(rows: Iterable[Row], sender: str | None) -> Row | None:
    attempt: int | None = None
    failures: dict[int | None, Row] = {}
    for row in sorted((row for row in rows if row.node == sender), key=lambda row: row.seq):
        if row.kind == trace.SENT:
            attempt = row.attempt
        elif row.kind == trace.SEND_FAILED:
            failures[row.attempt] = row
    # The report on an earlier attempt may come after the next one has begun.
    return failures.get(attempt)


def sentence(
    outcome: MessageOutcome, *, failure: str = "", outlook: str = "", stopped_at: str = ""
) -> str:
    """As `explain`, from an outcome alone; `stopped_at`: where copies were stopped."""
    if outcome.outcome is Outcome.DELIVERED:
        return _delivered(outcome, stopped_at)
    tries = f"{outcome.attempts} time{'' if outcome.attempts == 1 else 's'}"
    told = "; its From Party was told" if outcome.notified else ""
    reason = outlook or "a part of it failed" if outcome.reason == "part" else outcome.reason
    if outcome.outcome is Outcome.NOT_DELIVERED:
        return _not_delivered(outcome, _in_full(outcome, reason, failure), told)
    if outcome.outcome is Outcome.UNKNOWN:
        in_parts = outcome.document and not outcome.attempts
        sent = f"{tries}, never acknowledged ({_in_full(outcome, reason, failure)})"
        if outcome.refusal is not None:
            sent = f"{tries}, answered with {outcome.refusal}"
        if in_parts:
            sent = f"in parts, not all of them acknowledged ({reason})"
        whose = "the status of its parts" if in_parts else "its status"
        return f"Unknown: sent {sent}{told}; ask for {whose} or reconcile to settle it."
    if outcome.outcome is Outcome.SENT:
        if outcome.refusal is not None:
            who = outcome.refused_by or "its receiver"
            return f"Sent once with best effort; {who} refused it: {outcome.refusal}."
        return "Sent once with best effort: more cannot be known."
    if outcome.reason == "suspended":
        return f"Suspended after {tries} without an answer: an operator must resume or abandon it."
    then = f"; {outlook}" if outlook else ""
    if outcome.reason == "waiting":
        so_far = failure or f"sent {tries}, its acknowledgement is awaited"
        return f"Under way: {so_far}{then}."
    if outcome.document and outlook:
        return f"Under way: {outlook}."
    return f"Queued: it was not sent yet{then}."


def _in_full(outcome: MessageOutcome, reason: str | None, failure: str) -> str | None:
    """The reason, where the journal has a word for it alone, with what failed last."""
    if reason != "exhausted":
        return reason
    tries = "its one attempt" if outcome.attempts == 1 else f"each of {outcome.attempts} attempts"
    return f"{tries} was in vain; {failure}" if failure else f"{tries} went unanswered"


def _not_delivered(outcome: MessageOutcome, reason: str | None, told: str) -> str:
    if outcome.given_up_by is not None:
        return (
            f"Lost: it arrived, and {outcome.given_up_by} gave it up there; no application has "
            "confirmed it, and its sender takes it for delivered."
        )
    if outcome.sender is not None or outcome.document or outcome.received_at is None:
        return f"Not delivered: {reason}{told}."
    given = "is not given it again" if outcome.handed_over else "is never given it"
    return f"Not delivered: it arrived, but the application {given}: {outcome.reason}."


def _delivered(outcome: MessageOutcome, stopped_at: str = "") -> str:
    parts = ["Delivered"]
    if outcome.late_ack:
        parts.append(" after all: the acknowledgement came after the message was given up")
    elif outcome.acknowledged_at is not None:
        # A document is sent by its parts alone.
        parts.append(f" on attempt {outcome.attempts}" if outcome.attempts else " in parts")
        if outcome.latency is not None:
            parts.append(f", acknowledged {in_words(outcome.latency)} after submission")
    elif outcome.sender is not None:
        parts.append(": the receiver has it, though no acknowledgement came back")
    if outcome.receiver is not None:
        if outcome.confirmed_by is not None:
            parts.append(f"; {outcome.confirmed_by} confirmed it by hand")
        elif outcome.confirmed:
            parts.append("; the application confirmed it")
        elif outcome.handed_over:
            parts.append("; it was handed to the application, which has not confirmed it yet")
        else:
            parts.append("; the application does not have it yet")
    if outcome.duplicates_stopped:
        copies = outcome.duplicates_stopped
        where = f" ({stopped_at})" if stopped_at else ""
        parts.append(f"; {copies} cop{'y was' if copies == 1 else 'ies were'} stopped{where}")
    return "".join(parts) + "."


def in_words(duration: Duration) -> str:
    """A duration as people say it."""
    # What would be rounded to a thousand milliseconds is a second.
    if duration < SECOND - MILLISECOND // 2:
        return f"{duration / MILLISECOND:.3g} ms"
    if duration < 2 * MINUTE:
        return f"{duration / SECOND:.3g} s"
    return f"{duration / MINUTE:.0f} min"


def agreement_of(rows: Iterable[Row]) -> str:
    """The CPAId that a message was submitted or received under; empty where no row tells it."""
    for row in rows:
        if row.kind == trace.SUBMITTED:
            return notes.Submitted.read(row.detail).cpa_id or ""
        if row.kind == trace.RECEIVED:
            return notes.Received.read(row.detail).cpa_id or ""
    return ""


# The trail of a message: each hop with its times and its acknowledgement, from any journals.
#
# Every time is of the node that wrote it. Clocks of two nodes are never compared, so the hops are
# ordered by what they tell of each other.

_LAST = 1 << 30


@dataclass(frozen=True, slots=True)
class Hop:
    """From one handler to the next."""

    number: int
    node: str
    # Whom it was sent to, as this node calls it.
    peer: str | None
    sent_at: Instant | None
    attempts: int
    # When the next handler stored it, by its own clock; None: its journal is not among those read.
    received_at: Instant | None
    acknowledged_at: Instant | None
    # How it stands, in words.
    standing: str


def trail(rows: Iterable[Row]) -> list[Hop]:
    """The hops of the one message that all rows are about, the From Party's first."""
    ordered = in_causal_order(rows)
    first = {row.node: place for place, row in reversed(list(enumerate(ordered)))}
    traces = gather(sorted(ordered, key=lambda row: (row.node, row.seq)))
    along: list[Trace] = []
    left = sorted(traces, key=lambda each: (_place(each), first[each.node]))
    while left:
        along.append(_next(along[-1], left) if along else left[0])
        left.remove(along[-1])
    return [
        _hop(number, each, along[number:])
        for number, each in enumerate(along, 1)
        if each.sends or trace.PASSED_ON in each.kinds
    ]


def _next(before: Trace, left: Sequence[Trace]) -> Trace:
    """The node after another: one whose acknowledgement came there, a hub rather than the To
    Party, whose word may have come through all of them. Where none tells, the first that is left,
    but not one which has the message from whom it was sent to: that one lies beyond."""
    heard = {
        row.ref_to
        for kind in (trace.ACKNOWLEDGED, trace.IGNORED)
        for row in before.kinds.get(kind, ())
    }
    for each in left:
        said = any(row.ref_to in heard for row in each.kinds.get(trace.ACK_SENT, ()))
        if said and not each.holds:
            return each
    sent, onward = before.first(trace.SENT), [each for each in left if not each.holds]
    near = [each for each in onward if sent is None or _from_whom(each) != sent.peer]
    return (near or onward or list(left))[0]


def _from_whom(each: Trace) -> str | None:
    received = each.first(trace.RECEIVED)
    return None if received is None else received.peer


def _place(each: Trace) -> int:
    """Where on the way a node stands, as far as its own rows tell."""
    if trace.SUBMITTED in each.kinds:
        return 0
    if not (each.sends or trace.PASSED_ON in each.kinds):
        return _LAST
    onward = each.first(trace.FORWARDED) or each.first(trace.PASSED_ON)
    return 1 if onward is None or onward.hop is None else onward.hop


def _hop(number: int, each: Trace, beyond: Sequence[Trace]) -> Hop:
    begun = each.first(trace.SUBMITTED) or each.first(trace.FORWARDED)
    sent = each.first(trace.SENT) or each.first(trace.PASSED_ON)
    peer = next((row.peer for row in (sent, begun) if row is not None and row.peer), None)
    stored = beyond[0].first(trace.RECEIVED) if beyond else None
    acknowledged = each.first(trace.ACKNOWLEDGED)
    return Hop(
        number,
        each.node,
        peer,
        None if sent is None else sent.at,
        # A hub passes on what it keeps no place for, and each copy of it that comes.
        len(each.kinds.get(trace.SENT, ())) + len(each.kinds.get(trace.PASSED_ON, ())),
        None if stored is None else stored.at,
        None if acknowledged is None else acknowledged.at,
        _standing(each),
    )


def _standing(each: Trace) -> str:
    standing = each.standing
    if standing is not None and standing.kind == trace.ACKNOWLEDGED:
        said = notes.Acknowledged.read(standing.detail)
        whose = "by the next handler" if said.hop else "by the To Party"
        return f"acknowledged {whose}" + (", signed" if said.signed else "")
    if standing is not None and standing.kind == trace.FAILED:
        failed = notes.Failed.read(standing.detail)
        return f"{failed.outcome}: {failed.reason}"
    if trace.PASSED_ON in each.kinds:
        return "passed on, nothing promised"
    return "waits for its acknowledgement" if trace.SENT in each.kinds else "not sent yet"
