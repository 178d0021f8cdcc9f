"""What the sending side of one message writes: its attempts and its end.

`transmit` plays the attempts of one hop by the terms; the functions below it write one ending
each. They return when the sender is done with the message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from oncewire.journal.outcome import Outcome
from oncewire.journal.predicates.retry import attempts_allowed
from oncewire.message.header import AckRequest
from oncewire.message.instant import MILLISECOND, MINUTE, SECOND, Duration, Instant
from oncewire.pipeline.sample_year.row_writer import NOWHERE, Place, RowWriter
from oncewire.pipeline.sample_year.stream import Handler
from oncewire.protocol import notes
from oncewire.protocol.detail import Detail
from oncewire.protocol.kinds import Kind
from oncewire.protocol.terms import RetryCount, Terms

NEVER = 1_000
"""More attempts than any terms allow."""


@dataclass(slots=True)
class Hop:
    """One handler's work on one message: who sends it to whom, under which terms."""

    writer: RowWriter
    rng: Random
    handler: Handler
    to: Handler
    terms: Terms
    message_id: str
    hop: int = 1
    place: Place = NOWHERE
    sent: int = 0
    arrivals: list[Instant] = field(default_factory=list)

    def note(self, when: Instant, kind: Kind, said: Detail | None = None) -> None:
        """A row without columns of its own."""
        self.writer.write(
            self.handler,
            when,
            kind,
            self.message_id,
            place=self.place,
            detail=None if said is None else said.write(),
        )

    def latency(self) -> Duration:
        """One way over the network."""
        return self.rng.randrange(20 * MILLISECOND, 90 * MILLISECOND)

    def send(self, when: Instant, way: str) -> None:
        """One attempt begins."""
        self.sent += 1
        self.writer.write(
            self.handler,
            when,
            Kind.SENT,
            self.message_id,
            place=self.place,
            attempt=self.sent,
            hop=self.hop,
            peer=self.to.party,
            transport=way,
        )

    def send_failed(self, when: Instant, way: str, outcome: str, reason: str) -> None:
        """The transport reports that the attempt failed."""
        self.writer.write(
            self.handler,
            when,
            Kind.SEND_FAILED,
            self.message_id,
            place=self.place,
            attempt=self.sent,
            transport=way,
            detail=notes.SendFailed(outcome, reason).write(),
        )


@dataclass(frozen=True, slots=True)
class Transmitted:
    """How the attempts ended: the instant an acknowledgement came, or that none will."""

    when: Instant
    acknowledged: bool


def attempts(terms: Terms, start: Instant, rng: Random) -> Iterator[tuple[Instant, str, bool]]:
    """Each attempt's instant and transport; True marks that a transport is used up."""
    ways = terms.transports
    if terms.retries_counted is RetryCount.TOTAL:
        ways = ways[:1]
    when = start
    for way in ways:
        for made in range(attempts_allowed(terms)):
            yield when, way, False
            wait = terms.timeout if made == 0 else terms.retry_interval
            # Never early; a busy handler is a little late.
            when += wait + rng.randrange(2 * SECOND)
        yield when, way, True
        when += 1


def transmit(
    hop: Hop,
    start: Instant,
    *,
    lost: int = 0,
    acks_lost: int = 0,
    refused: bool = False,
    until: Instant | None = None,
    ack_after: Duration = 0,
) -> Transmitted:
    """Send until an acknowledgement comes back, or all attempts (or the time) are used up.

    The first `lost` attempts do not arrive, and the first `acks_lost` of those that do are
    answered in vain.
    """
    end = start
    for when, way, used_up in attempts(hop.terms, start, hop.rng):
        if until is not None and when >= until:
            return Transmitted(until, acknowledged=False)
        end = when
        if used_up:
            hop.writer.write(
                hop.handler,
                when,
                Kind.EXHAUSTED,
                hop.message_id,
                place=hop.place,
                transport=way,
            )
            continue
        hop.send(when, way)
        if hop.sent <= lost:
            if refused:
                hop.send_failed(when + hop.latency(), way, "refused", "connection refused")
            elif hop.rng.random() < 0.3:
                hop.send_failed(when + 5 * SECOND, way, "unknown", "connection reset")
            continue
        arrived = when + hop.latency()
        hop.arrivals.append(arrived)
        if len(hop.arrivals) > acks_lost:
            return Transmitted(arrived + 5 * MILLISECOND + hop.latency() + ack_after, True)
    return Transmitted(end, acknowledged=False)


def acknowledge(hop: Hop, when: Instant, said: notes.Acknowledged, *, ack_id: str = "") -> Instant:
    """The acknowledgement is accepted."""
    hop.writer.write(
        hop.handler,
        when,
        Kind.ACKNOWLEDGED,
        hop.message_id,
        ref_to=ack_id or ack_of(hop.message_id, hop.to),
        place=hop.place,
        peer=hop.to.party,
        detail=said.write(),
    )
    return when


def acknowledge_as_agreed(hop: Hop, when: Instant, *, late: bool = False) -> Instant:
    """The same, signed where the terms ask for that."""
    signed = hop.terms.ack_requested is AckRequest.SIGNED
    return acknowledge(hop, when, notes.Acknowledged(late=late, signed=signed))


def ack_of(message_id: str, by: Handler) -> str:
    """The MessageId of an acknowledgement."""
    return f"ack-{message_id.partition('@')[0]}@{by.name}"


def fail(hop: Hop, when: Instant, outcome: Outcome, reason: str, *, told: bool = True) -> Instant:
    """The honest end of a message that was not acknowledged, and its application's word that
    it took the notice of it."""
    hop.note(when + 1, Kind.FAILED, notes.Failed(outcome.value, reason))
    if told:
        severity = "Error" if outcome is Outcome.NOT_DELIVERED else "Warning"
        hop.note(when + 2 * MILLISECOND, Kind.NOTIFIED, notes.Notified(severity))
    return when + 1


def give_up_number(hop: Hop, when: Instant) -> Instant:
    """The number may never have been seen: the epoch ends with it (gap 14)."""
    if hop.place.number is not None:
        hop.writer.write(
            hop.handler,
            when,
            Kind.EPOCH_ENDED,
            hop.message_id,
            place=Place(hop.place.channel, hop.place.epoch),
        )
    return when


def suspend(hop: Hop, when: Instant) -> Instant:
    """The channel stops and the operator is called; returns when it goes on."""
    problem = f"no acknowledgement after {hop.sent} attempts"
    number = f"{hop.message_id[:8]}"
    channel = Place(hop.place.channel)
    hop.writer.write(
        hop.handler,
        when + 1,
        Kind.SUSPENDED,
        hop.message_id,
        place=channel,
        detail=notes.Suspended(problem).write(),
    )
    hop.note(when + 2, Kind.INCIDENT, notes.Incident(number, problem, "see why, then resume"))
    resumed = when + hop.rng.randrange(5 * MINUTE, 60 * MINUTE)
    if channel.channel is not None:
        hop.writer.write(hop.handler, resumed, Kind.RESUMED, place=channel)
    hop.note(resumed + 1, Kind.RESUMED, notes.Resumed("operator"))
    hop.note(resumed + 2, Kind.RESOLVED, notes.Resolved(number, "operator"))
    return resumed + 3


def rejected(hop: Hop, when: Instant, code: str) -> Instant:
    """An error answer settles it: certainly not delivered."""
    hop.writer.write(
        hop.handler,
        when,
        Kind.REJECTED,
        hop.message_id,
        ref_to=f"err-{hop.message_id.partition('@')[0]}@{hop.to.name}",
        place=hop.place,
        peer=hop.to.party,
        detail=notes.Rejected(code).write(),
    )
    return fail(hop, when, Outcome.NOT_DELIVERED, "rejected")
