"""Trace: one node's rows about one message, sorted by kind, ready to be asked.

The outcome and every predicate about a message read traces. Gathering them is the one pass over
the rows, and the only work done for each row, so it stays small.
"""

from __future__ import annotations

from collections.abc import Iterable

from oncewire.journal.row import Row
from oncewire.protocol.notes import Kind

# The kinds as plain strings: rows hold plain strings, and looking up an enum's member for each
# row would cost more than the rest of the gathering.
STARTED = Kind.STARTED.value
TERMS = Kind.TERMS.value
CLOCK_SET = Kind.CLOCK_SET.value
SUBMITTED = Kind.SUBMITTED.value
NUMBERED = Kind.NUMBERED.value
SENT = Kind.SENT.value
SEND_FAILED = Kind.SEND_FAILED.value
ACKNOWLEDGED = Kind.ACKNOWLEDGED.value
REJECTED = Kind.REJECTED.value
WARNED = Kind.WARNED.value
IGNORED = Kind.IGNORED.value
TRANSIENT = Kind.TRANSIENT.value
EXHAUSTED = Kind.EXHAUSTED.value
EXPIRED = Kind.EXPIRED.value
FAILED = Kind.FAILED.value
NOTIFIED = Kind.NOTIFIED.value
SUSPENDED = Kind.SUSPENDED.value
RESUMED = Kind.RESUMED.value
ABANDONED = Kind.ABANDONED.value
EPOCH_ENDED = Kind.EPOCH_ENDED.value
RECEIVED = Kind.RECEIVED.value
DUPLICATE = Kind.DUPLICATE.value
REFUSED = Kind.REFUSED.value
SKIPPED = Kind.SKIPPED.value
WARNING_SENT = Kind.WARNING_SENT.value
ACK_SENT = Kind.ACK_SENT.value
HANDED_OVER = Kind.HANDED_OVER.value
CONFIRMED = Kind.CONFIRMED.value
JOINED = Kind.JOINED.value
FORWARDED = Kind.FORWARDED.value
PASSED_ON = Kind.PASSED_ON.value
HOLD_SET = Kind.HOLD_SET.value
HOLD_LIFTED = Kind.HOLD_LIFTED.value
INCIDENT = Kind.INCIDENT.value
RESOLVED = Kind.RESOLVED.value


class Trace:
    """What one node wrote about one message: its rows by kind, each list in order of `seq`."""

    __slots__ = ("kinds", "node")

    def __init__(self, node: str) -> None:
        self.node = node
        self.kinds: dict[str, list[Row]] = {}

    def first(self, kind: str) -> Row | None:
        """The earliest row of the kind."""
        rows = self.kinds.get(kind)
        return None if rows is None else rows[0]

    def last(self, *kinds: str) -> Row | None:
        """The latest row of any of the kinds."""
        latest = None
        get = self.kinds.get
        for kind in kinds:
            rows = get(kind)
            if rows is not None and (latest is None or rows[-1].seq > latest.seq):
                latest = rows[-1]
        return latest

    def between(self, kind: str, after: int, before: int) -> bool:
        """Whether a row of the kind lies between two positions of this node."""
        return any(after < row.seq < before for row in self.kinds.get(kind, ()))

    @property
    def message_id(self) -> str:
        """The message that the rows are about."""
        return next(iter(self.kinds.values()))[0].message_id or ""

    @property
    def sends(self) -> bool:
        """Whether this node transmits the message: the From Party's handler or a hub."""
        kinds = self.kinds
        return SUBMITTED in kinds or FORWARDED in kinds or SENT in kinds

    @property
    def holds(self) -> bool:
        """Whether this node has the message for its own application."""
        kinds = self.kinds
        return FORWARDED not in kinds and (
            RECEIVED in kinds or HANDED_OVER in kinds or JOINED in kinds
        )

    @property
    def confirmations(self) -> list[Row]:
        """Confirmations by the application; a part is confirmed by joining its document."""
        rows = self.kinds.get(CONFIRMED)
        if rows is not None:
            return rows
        return [
            row
            for row in self.kinds.get(HANDED_OVER, ())
            if row.detail is not None and "split_id" in row.detail and JOINED not in self.kinds
        ]

    @property
    def standing(self) -> Row | None:
        """The row that says where the sender stands: the last of ACKNOWLEDGED, FAILED, RESUMED.

        A resumed message is under way again; an acknowledgement after the failure counts (S5).
        """
        kinds = self.kinds
        if FAILED not in kinds and RESUMED not in kinds:
            rows = kinds.get(ACKNOWLEDGED)
            return None if rows is None else rows[-1]
        return self.last(ACKNOWLEDGED, FAILED, RESUMED)

    @property
    def suspended(self) -> bool:
        """Whether it waits for the operator."""
        latest = self.last(SUSPENDED, RESUMED, ACKNOWLEDGED, ABANDONED)
        return latest is not None and latest.kind == SUSPENDED

    @property
    def called(self) -> bool:
        """Whether an operator was called because of it, and what is to become of it is open."""
        latest = self.last(INCIDENT, RESOLVED, ABANDONED)
        return latest is not None and latest.kind == INCIDENT


def gather(rows: Iterable[Row]) -> list[Trace]:
    """The traces of one message, one for each node; each node's rows come in order of `seq`."""
    traces: dict[str, Trace] = {}
    node, kinds = None, {}
    for row in rows:
        if row.node != node:
            node = row.node
            trace = traces.get(node)
            if trace is None:
                trace = traces[node] = Trace(node)
            kinds = trace.kinds
        kind = row.kind
        found = kinds.get(kind)
        if found is None:
            kinds[kind] = [row]
        else:
            found.append(row)
    return list(traces.values())
