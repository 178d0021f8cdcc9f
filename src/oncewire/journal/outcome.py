"""What became of one message: the fold of its rows to one of the honest outcomes (RM-2, OPS-4).

The rows may come from one node or from several; they are read in the order (node, seq). Two
handlers' clocks are never compared: every duration here is measured on one node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oncewire.journal import trace
from oncewire.journal.row import Row, machine_of
from oncewire.journal.trace import Trace
from oncewire.message.instant import Duration, Instant
from oncewire.protocol import notes
from oncewire.protocol.documents import part_id
from oncewire.protocol.states import Outcome
from oncewire.protocol.terms import Terms

PROXIED = trace.PASSED_ON
"""The reason of what hubs let through whose two ends' journals are not among those read."""


class MessageOutcome(NamedTuple):
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
    document: bool = False
    """A document that travels in parts: one message to its parties, however many are sent."""
    part_of: str | None = None
    """The document that it is a part of; a part is no message of its own."""
    refused_by: str | None = None
    """Whose error says that it was not accepted."""
    refusal: str | None = None
    """What that error says: its code, where in the message it points, and its words."""
    confirmed_by: str | None = None
    """The person who confirmed it by hand, in the application's place."""
    given_up_by: str | None = None
    """The person who gave it up where it had arrived: no application has it."""
    cpa_id: str | None = None
    conversation_id: str | None = None
    service: str | None = None
    action: str | None = None
    """What its header says, by the submission, else by the arrival."""

    @property
    def final(self) -> bool:
        """Whether the sender has nothing more to do for it."""
        return self.outcome is not Outcome.IN_FLIGHT

    @property
    def decided(self) -> bool:
        """Whether both sides' rows agree how it ended, so that none is waited for: its sender has
        the acknowledgement, and the receiver's application confirmed it, once."""
        both = self.sender is not None and self.receiver is not None
        acknowledged = self.outcome is Outcome.DELIVERED and self.acknowledged_at is not None
        return both and acknowledged and self.confirmed == 1


def fold_outcome(
    rows: Iterable[Row], terms: Mapping[str, Terms] | None = None
) -> MessageOutcome | None:
    """The outcome of the one message that all these rows name; None if there are no rows.

    `terms` (terms_id to Terms) settles whether it is reliable; without it the rows' own
    `best_effort` does, so that one message can be explained from its rows alone.
    """
    return outcome_of(trace.gather(rows), terms or {})


def outcome_of(traces: Sequence[Trace], terms: Mapping[str, Terms]) -> MessageOutcome | None:
    """As `fold_outcome`, from rows that are gathered already."""
    if not traces:
        return None
    sender, receiver = _sender(traces), _receiver(traces)
    source = (
        sender.first(trace.SUBMITTED)
        or receiver.first(trace.RECEIVED)
        or receiver.first(trace.JOINED)
        or sender.first(trace.FORWARDED)
    )
    numbered = sender.last(trace.NUMBERED) or receiver.first(trace.RECEIVED)
    # A hub that promised nothing knows no more of it than that it left.
    proxied = source is None and any(trace.PASSED_ON in each.kinds for each in traces)
    reliable = not proxied and (source is None or _is_reliable(source, terms))
    outcome, reason = (Outcome.SENT, PROXIED) if proxied else _verdict(sender, receiver, reliable)
    submitted, acknowledged = sender.first(trace.SUBMITTED), _acknowledged(sender)
    confirmed = receiver.confirmations
    attempts = len(sender.kinds.get(trace.SENT, ()))
    described = described_by(traces)
    header = None if described is None else _header(described)
    rejected = sender.last(trace.REJECTED)
    refused = None if rejected is None else notes.Rejected.read(rejected.detail)
    return MessageOutcome(
        message_id=traces[0].message_id,
        outcome=outcome,
        reason=reason,
        reliable=reliable,
        attempts=attempts,
        resends=max(0, attempts - 1),
        duplicates_stopped=len(receiver.kinds.get(trace.DUPLICATE, ())),
        handed_over=len(receiver.kinds.get(trace.HANDED_OVER, ())),
        confirmed=len(confirmed),
        late_ack=_is_late(sender),
        notified=trace.NOTIFIED in sender.kinds,
        submitted_at=_at(submitted),
        first_sent_at=_at(sender.first(trace.SENT)),
        acknowledged_at=_at(acknowledged),
        failed_at=_at(sender.last(trace.FAILED)),
        received_at=_at(receiver.first(trace.RECEIVED) or receiver.first(trace.JOINED)),
        handed_over_at=_at(receiver.first(trace.HANDED_OVER)),
        confirmed_at=confirmed[0].at if confirmed else None,
        latency=elapsed(submitted, acknowledged) if submitted and acknowledged else None,
        sender=sender.node or None,
        receiver=receiver.node or None,
        terms_id=source.terms_id if source else None,
        channel=numbered.channel if numbered else None,
        epoch=numbered.epoch if numbered else None,
        sequence_number=numbered.sequence_number if numbered else None,
        digest=source.digest if source else None,
        size=source.size if source else None,
        document=source is not None and _split(source) == (traces[0].message_id, None),
        part_of=_part_of(source),
        refused_by=None if refused is None else refused.by,
        refusal=None if refused is None else refused.refusal,
        confirmed_by=_confirmed_by(receiver),
        given_up_by=given_up_by(receiver),
        cpa_id=None if header is None else header.cpa_id or None,
        conversation_id=None if header is None else header.conversation_id or None,
        service=None if header is None else header.service or None,
        action=None if header is None else header.action or None,
    )


HEADER = ("cpa_id", "conversation_id", "service", "action")
"""The facts of a header that an outcome has."""


def described_by(traces: Sequence[Trace]) -> Row | None:
    """The row that has the facts of a message's header."""
    return _sender(traces).first(trace.SUBMITTED) or _receiver(traces).first(trace.RECEIVED)


def _header(row: Row) -> notes.Submitted | notes.Received:
    kind = notes.Submitted if row.kind == trace.SUBMITTED else notes.Received
    return kind.read(row.detail)


def _confirmed_by(receiver: Trace) -> str | None:
    row = receiver.first(trace.CONFIRMED)
    return None if row is None or row.detail is None else notes.Confirmed.read(row.detail).by


def given_up_by(receiver: Trace) -> str | None:
    """Who gave a message up where it had arrived; None: it was not, or a hub told its From Party
    that it will not go on."""
    row = receiver.last(trace.ABANDONED)
    if row is None or not receiver.holds or receiver.sends or trace.FAILED in receiver.kinds:
        return None
    return notes.Abandoned.read(row.detail).by or "the operator"


def is_signal(traces: Sequence[Trace]) -> bool:
    """Whether this is no message at all: all that is known of it is that it said something about
    one, and was refused."""
    return all(
        len(each.kinds) == 1
        and all(
            "signal" in (row.detail or "") and notes.Refused.read(row.detail).signal is not None
            for row in each.kinds.get(trace.REFUSED, (_NO_ROW,))
        )
        for each in traces
    )


_NO_ROW = Row(0, 0, 0, "", "", "")
_NO_TRACE = Trace("")


def _sender(traces: Sequence[Trace]) -> Trace:
    """The From Party's handler if its rows are here, else an intermediary, else an empty trace."""
    found = _NO_TRACE
    for each in traces:
        if trace.SUBMITTED in each.kinds:
            return each
        if each.sends and found is _NO_TRACE:
            found = each
    return found


def _receiver(traces: Sequence[Trace]) -> Trace:
    """The To Party's handler: it has the message and does not pass it on; else who refused it."""
    found = _NO_TRACE
    for each in traces:
        if each.holds:
            return each
        if trace.REFUSED in each.kinds or trace.DUPLICATE in each.kinds:
            found = each
    return found


def _verdict(sender: Trace, receiver: Trace, reliable: bool) -> tuple[Outcome, str]:
    """The sender's word, except that a receiver who has the message settles what it left open, and
    one that gives it to no application is believed."""
    standing, withheld, failed = sender.standing, _withheld(receiver), None
    if standing is not None and standing.kind == trace.FAILED:
        failed = notes.Failed.read(standing.detail)
        if failed.outcome == Outcome.NOT_DELIVERED:
            return Outcome.NOT_DELIVERED, failed.reason
    if withheld and (reliable or sender is _NO_TRACE):
        return Outcome.NOT_DELIVERED, withheld
    if failed is not None:
        if receiver.holds:
            return Outcome.DELIVERED, "received"
        return Outcome.UNKNOWN, failed.reason
    if standing is not None and standing.kind == trace.ACKNOWLEDGED:
        text = standing.detail
        return Outcome.DELIVERED, "ack" if text is None else notes.Acknowledged.read(text).by
    if sender is not _NO_TRACE and not reliable:
        if trace.SENT not in sender.kinds:
            return Outcome.IN_FLIGHT, "queued"
        return Outcome.SENT, "rejected" if trace.REJECTED in sender.kinds else "best_effort"
    if receiver.holds:
        return Outcome.DELIVERED, "received"
    refused = receiver.last(trace.REFUSED)
    if sender is _NO_TRACE and refused is not None:
        return Outcome.NOT_DELIVERED, notes.Refused.read(refused.detail).code
    if sender.suspended:
        return Outcome.IN_FLIGHT, "suspended"
    return Outcome.IN_FLIGHT, "waiting" if trace.SENT in sender.kinds else "queued"


def _withheld(receiver: Trace) -> str:
    """Why no application is given what arrived: a synchronous request was closed unanswered
    (SYNC-18), or a person gave it up. Empty where one has it, or may still have it."""
    last = receiver.last(trace.RECEIVED, trace.JOINED, trace.REFUSED)
    if last is None or not receiver.holds or receiver.confirmations:
        return ""
    by = given_up_by(receiver)
    if by is not None:
        return f"given up by {by}"
    refused = notes.Refused.read(last.detail) if last.kind == trace.REFUSED else None
    if refused is None or refused.code != "DeliveryFailure":
        # Any other refusal is of another message that came under the same id.
        return ""
    return refused.problem or refused.code


def _acknowledged(sender: Trace) -> Row | None:
    """The acknowledgement that counts: the To Party's first one, else a hub's first one."""
    rows = sender.kinds.get(trace.ACKNOWLEDGED)
    if rows is None or len(rows) == 1:
        return None if rows is None else rows[0]
    return next((row for row in rows if '"hop":true' not in (row.detail or "")), rows[0])


def _is_late(sender: Trace) -> bool:
    """Whether an acknowledgement came after the message had failed."""
    failed = sender.first(trace.FAILED)
    if failed is None:
        return False
    acknowledged = sender.last(trace.ACKNOWLEDGED)
    return (
        acknowledged is not None
        and acknowledged.seq > failed.seq
        and not sender.between(trace.RESUMED, failed.seq, acknowledged.seq)
    )


def _split(row: Row) -> tuple[str | None, int | None]:
    """SplitId and number; a document has no number, and its own id."""
    if row.kind == trace.JOINED:
        return row.message_id, None
    if row.detail is None or "split_id" not in row.detail:
        return None, None
    if row.kind == trace.SUBMITTED:
        submitted = notes.Submitted.read(row.detail)
        return submitted.split_id, submitted.split_number
    if row.kind == trace.RECEIVED:
        received = notes.Received.read(row.detail)
        # The message that names a document's fragments is the document's own.
        own = received.split_id == row.message_id
        return received.split_id, None if own else received.split_number
    return None, None


def _part_of(row: Row | None) -> str | None:
    split_id, number = (None, None) if row is None else _split(row)
    return None if number is None else split_id


def _at(row: Row | None) -> Instant | None:
    return None if row is None else row.at


def _is_reliable(row: Row, terms: Mapping[str, Terms]) -> bool:
    known = terms.get(row.terms_id) if row.terms_id else None
    if known is not None:
        return known.reliable
    return row.detail is None or '"best_effort":true' not in row.detail


def elapsed(earlier: Row, later: Row) -> Duration:
    """Time between two rows of one node: monotonic within a boot, UTC across boots (DRV-8).

    The boot that counts is the machine's, where the rows say which it was.
    """
    machine = machine_of(earlier.boot)
    if earlier.boot == later.boot or (machine and machine == machine_of(later.boot)):
        return later.mono - earlier.mono
    return later.at - earlier.at


# Parts: what the journal of its sender tells of those in which a document travels.
#
# The document itself is never sent, so its own rows say nothing of attempts.


@dataclass(frozen=True, slots=True)
class Parts:
    """All parts of a document together."""

    total: int
    acknowledged: int
    attempts: int
    first_sent_at: Instant | None

    def __str__(self) -> str:
        return f"in {self.total} parts, {self.acknowledged} acknowledged"


def parts_total(rows: Iterable[Row]) -> int | None:
    """In how many parts a document was sent, or of how many it was joined; None: it is none."""
    for row in rows:
        if row.kind == trace.JOINED:
            return notes.Joined.read(row.detail).total
        if row.kind == trace.SUBMITTED:
            submitted = notes.Submitted.read(row.detail)
            if submitted.split_id == row.message_id and not submitted.is_part:
                return submitted.split_total
    return None


def parts_of(rows: list[Row], journal_of: Callable[[str], list[Row]]) -> Parts | None:
    """How far the parts of a document are that was submitted here; `rows` are the document's."""
    submitted = next((row for row in rows if row.kind == trace.SUBMITTED), None)
    total = None if submitted is None else parts_total([submitted])
    if submitted is None or total is None or submitted.message_id is None:
        return None
    names = (part_id(submitted.message_id, number, total) for number in range(1, total + 1))
    known = [found for name in names if (found := fold_outcome(journal_of(name))) is not None]
    return Parts(
        total,
        sum(part.acknowledged_at is not None for part in known),
        sum(part.attempts for part in known),
        min((part.first_sent_at for part in known if part.first_sent_at is not None), default=None),
    )
