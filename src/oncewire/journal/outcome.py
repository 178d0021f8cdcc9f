"""What became of one message: the fold of its rows to one of the honest outcomes (RM-2, OPS-4).

The rows may come from one node or from several; they are read in the order (node, seq). Two
handlers' clocks are never compared: every duration here is measured on one node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from oncewire.journal import detail
from oncewire.journal.row import Kind, Row
from oncewire.message.instant import Duration, Instant
from oncewire.protocol.terms import Terms


class Outcome(StrEnum):
    """Delivered, not delivered and unknown are final for a reliable message; `sent` is all that
    can be said of a best-effort one; in flight is not an end."""

    DELIVERED = "delivered"
    NOT_DELIVERED = "not_delivered"
    UNKNOWN = "unknown"
    IN_FLIGHT = "in_flight"
    SENT = "sent"


@dataclass(frozen=True, slots=True)
class MessageOutcome:
    """One message, one verdict, and the figures a ledger and a person ask for."""

    message_id: str
    outcome: Outcome
    reason: str
    """One word why: how it was acknowledged, why it failed, or what it waits for."""
    reliable: bool = True
    attempts: int = 0
    """Transmissions by the From Party's handler, the first one included."""
    resends: int = 0
    duplicates_stopped: int = 0
    """Copies that the To Party's handler recognised and did not hand over."""
    handed_over: int = 0
    confirmed: int = 0
    late_ack: bool = False
    notified: bool = False
    submitted_at: Instant | None = None
    first_sent_at: Instant | None = None
    acknowledged_at: Instant | None = None
    failed_at: Instant | None = None
    received_at: Instant | None = None
    handed_over_at: Instant | None = None
    confirmed_at: Instant | None = None
    latency: Duration | None = None
    """From submission to acknowledgement, on the sender's monotonic clock where one boot saw
    both, else on its UTC clock."""
    sender: str | None = None
    """The node whose word on sending this is: the From Party's handler, else a hub."""
    receiver: str | None = None
    """The node of the To Party, where its rows are among those given."""
    terms_id: str | None = None
    channel: str | None = None
    epoch: int | None = None
    sequence_number: int | None = None
    digest: str | None = None
    size: int | None = None

    @property
    def final(self) -> bool:
        """Whether the sender has nothing more to do for it."""
        return self.outcome is not Outcome.IN_FLIGHT


@dataclass(slots=True)
class _Node:
    """What one node's rows say about the message, gathered in their order."""

    name: str | None
    submitted: Row | None = None
    forwarded: Row | None = None
    numbered: Row | None = None
    received: Row | None = None
    refused: Row | None = None
    sent: Row | None = None
    acknowledged: Row | None = None
    failed: Row | None = None
    handed_over: Row | None = None
    confirmed: Row | None = None
    attempts: int = 0
    duplicates: int = 0
    hand_overs: int = 0
    confirmations: int = 0
    late_ack: bool = False
    suspended: bool = False
    notified: bool = False

    @property
    def sends(self) -> bool:
        return (self.submitted or self.forwarded or self.sent) is not None

    @property
    def has_it(self) -> bool:
        return self.forwarded is None and (self.received or self.handed_over) is not None

    def take(self, row: Row) -> None:
        """The sending side's rows; what is left goes to the receiving side's."""
        kind = row.kind
        if kind == Kind.SENT:
            self.sent = self.sent or row
            self.attempts += 1
        elif kind == Kind.ACKNOWLEDGED:
            # A hub's acknowledgement gives way to the To Party's, never the other way round. One
            # that comes after the failure turns it into a delivery (S5).
            if self.acknowledged is None or '"hop":true' in (self.acknowledged.detail or ""):
                self.acknowledged = row
            self.late_ack = self.late_ack or self.failed is not None
            self.failed = None
        elif kind == Kind.SUBMITTED:
            self.submitted = self.submitted or row
        elif kind == Kind.NUMBERED:
            self.numbered = row
        elif kind == Kind.FAILED:
            self.failed = row
        elif kind == Kind.NOTIFIED:
            self.notified = True
        elif kind == Kind.SUSPENDED:
            self.suspended = True
        elif kind == Kind.RESUMED:
            self.suspended, self.failed = False, None
        elif kind == Kind.FORWARDED:
            self.forwarded = self.forwarded or row
        else:
            self._take_received(row)

    def _take_received(self, row: Row) -> None:
        kind = row.kind
        if kind in (Kind.RECEIVED, Kind.JOINED):
            self.received = self.received or row
        elif kind == Kind.HANDED_OVER:
            self.handed_over = self.handed_over or row
            self.hand_overs += 1
        elif kind == Kind.CONFIRMED:
            self.confirmed = self.confirmed or row
            self.confirmations += 1
        elif kind == Kind.DUPLICATE:
            self.duplicates += 1
        elif kind == Kind.REFUSED:
            self.refused = row


def fold_outcome(
    rows: Iterable[Row], terms: Mapping[str, Terms] | None = None
) -> MessageOutcome | None:
    """The outcome of the one message that all these rows name; None if there are no rows.

    `terms` (terms_id to Terms) settles whether it is reliable; without it the rows' own
    `best_effort` does, so that one message can be explained from its rows alone.
    """
    nodes: dict[str, _Node] = {}
    message_id = None
    for row in rows:
        message_id = row.message_id
        node = nodes.get(row.node)
        if node is None:
            node = nodes[row.node] = _Node(row.node)
        node.take(row)
    if message_id is None:
        return None
    return _combine(message_id, _sender(nodes.values()), _receiver(nodes.values()), terms or {})


def _sender(nodes: Iterable[_Node]) -> _Node:
    """The From Party's handler if its rows are here, else an intermediary, else nobody."""
    found = _Node(None)
    for node in nodes:
        if node.submitted is not None:
            return node
        if node.sends and found.name is None:
            found = node
    return found


def _receiver(nodes: Iterable[_Node]) -> _Node:
    """The To Party's handler: it has the message and does not pass it on; else who refused it."""
    found = _Node(None)
    for node in nodes:
        if node.has_it:
            return node
        if node.refused is not None or node.duplicates:
            found = node
    return found


def _combine(
    message_id: str, sender: _Node, receiver: _Node, terms: Mapping[str, Terms]
) -> MessageOutcome:
    source = sender.submitted or receiver.received or sender.forwarded
    numbered = sender.numbered or receiver.received
    reliable = source is None or _is_reliable(source, terms)
    outcome, reason = _verdict(sender, receiver, reliable)
    submitted, acknowledged = sender.submitted, sender.acknowledged
    return MessageOutcome(
        message_id=message_id,
        outcome=outcome,
        reason=reason,
        reliable=reliable,
        attempts=sender.attempts,
        resends=max(0, sender.attempts - 1),
        duplicates_stopped=receiver.duplicates,
        handed_over=receiver.hand_overs,
        confirmed=receiver.confirmations,
        late_ack=sender.late_ack,
        notified=sender.notified,
        submitted_at=_at(submitted),
        first_sent_at=_at(sender.sent),
        acknowledged_at=_at(acknowledged),
        failed_at=_at(sender.failed),
        received_at=_at(receiver.received),
        handed_over_at=_at(receiver.handed_over),
        confirmed_at=_at(receiver.confirmed),
        latency=elapsed(submitted, acknowledged) if submitted and acknowledged else None,
        sender=sender.name,
        receiver=receiver.name,
        terms_id=source.terms_id if source else None,
        channel=numbered.channel if numbered else None,
        epoch=numbered.epoch if numbered else None,
        sequence_number=numbered.sequence_number if numbered else None,
        digest=source.digest if source else None,
        size=source.size if source else None,
    )


def _verdict(sender: _Node, receiver: _Node, reliable: bool) -> tuple[Outcome, str]:
    """The sender's word, except that a receiver who has the message settles what it left open."""
    if sender.failed is not None:
        failed = detail.Failed.read(sender.failed.detail)
        if failed.outcome == Outcome.NOT_DELIVERED:
            return Outcome.NOT_DELIVERED, failed.reason
        return (
            (Outcome.DELIVERED, "received") if receiver.has_it else (Outcome.UNKNOWN, failed.reason)
        )
    if sender.acknowledged is not None:
        return Outcome.DELIVERED, detail.Acknowledged.read(sender.acknowledged.detail).by
    if sender.name is not None and not reliable:
        return (Outcome.SENT, "best_effort") if sender.sent else (Outcome.IN_FLIGHT, "queued")
    if receiver.has_it:
        return Outcome.DELIVERED, "received"
    if sender.name is None and receiver.refused is not None:
        return Outcome.NOT_DELIVERED, detail.Refused.read(receiver.refused.detail).code
    if sender.suspended:
        return Outcome.IN_FLIGHT, "suspended"
    return Outcome.IN_FLIGHT, "waiting" if sender.sent else "queued"


def _at(row: Row | None) -> Instant | None:
    return None if row is None else row.at


def _is_reliable(row: Row, terms: Mapping[str, Terms]) -> bool:
    known = terms.get(row.terms_id) if row.terms_id else None
    if known is not None:
        return known.reliable
    return row.detail is None or '"best_effort":true' not in row.detail


def elapsed(earlier: Row, later: Row) -> Duration:
    """Time between two rows of one node: monotonic within a boot, UTC across boots (DRV-8)."""
    if earlier.boot == later.boot:
        return later.mono - earlier.mono
    return later.at - earlier.at
