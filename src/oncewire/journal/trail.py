"""The trail of a message: each hop with its times and its acknowledgement, from any journals.

Every time is of the node that wrote it. Clocks of two nodes are never compared, so the hops are
ordered by what they tell of each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oncewire.journal import trace
from oncewire.journal.history import in_causal_order
from oncewire.journal.row import Row
from oncewire.journal.trace import Trace, gather
from oncewire.message.instant import Instant
from oncewire.protocol import notes

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
