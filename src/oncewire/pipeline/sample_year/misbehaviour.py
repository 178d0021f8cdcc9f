"""What a sender does wrong on purpose: each function breaks one promise about one message.

They return when the sender is done with the message, as an honest exchange would.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from oncewire.journal.outcome import Outcome
from oncewire.journal.predicates.retry import attempts_allowed
from oncewire.message.instant import SECOND, Instant
from oncewire.pipeline.sample_year.receiver_rows import Arrived
from oncewire.pipeline.sample_year.sender_rows import (
    NEVER,
    Hop,
    acknowledge,
    acknowledge_as_agreed,
    fail,
    transmit,
)
from oncewire.protocol import notes
from oncewire.protocol.kinds import Kind

Twist = Callable[[Hop, Instant, Arrived], Instant]


def _plainly(hop: Hop, start: Instant, arrived: Arrived) -> Instant:
    done = transmit(hop, start)
    arrived.arrivals = hop.arrivals
    return acknowledge_as_agreed(hop, done.when)


def _in_vain(hop: Hop, start: Instant, arrived: Arrived) -> Instant:
    done = transmit(hop, start, lost=NEVER)
    arrived.arrivals = []
    return done.when


def early_retry(hop: Hop, start: Instant, arrived: Arrived) -> Instant:
    """The second attempt comes before Timeout."""
    way = hop.terms.transports[0]
    hop.send(start, way)
    again = start + hop.terms.timeout // 2
    hop.send(again, way)
    arrived.arrivals = [again + hop.latency()]
    return acknowledge_as_agreed(hop, arrived.arrivals[0] + hop.latency())


def one_more_retry(hop: Hop, start: Instant, arrived: Arrived) -> Instant:
    """One attempt more than agreed."""
    terms, when, last = hop.terms, start, start
    for made in range(attempts_allowed(terms) + 1):
        hop.send(when, terms.transports[0])
        last = when
        when += terms.timeout if made == 0 else terms.retry_interval
    arrived.arrivals = [last + hop.latency()]
    return acknowledge_as_agreed(hop, arrived.arrivals[0] + hop.latency())


def sent_after_ack(hop: Hop, start: Instant, arrived: Arrived) -> Instant:
    """It is sent again though it is acknowledged."""
    settled = _plainly(hop, start, arrived)
    again = start + hop.terms.timeout + SECOND
    hop.send(again, hop.terms.transports[0])
    arrived.arrivals = [*hop.arrivals, again + hop.latency()]
    return settled


def gave_up_early(hop: Hop, start: Instant, arrived: Arrived) -> Instant:
    """Its retries are called used up after the first attempt."""
    way = hop.terms.transports[0]
    hop.send(start, way)
    when = start + hop.terms.timeout
    hop.writer.write(hop.handler, when, Kind.EXHAUSTED, hop.message_id, transport=way)
    arrived.arrivals = []
    return fail(hop, when, Outcome.UNKNOWN, "exhausted")


def no_word(hop: Hop, start: Instant, arrived: Arrived) -> Instant:
    """It is sent in vain, and its sender leaves it at that."""
    hop.send(start, hop.terms.transports[0])
    arrived.arrivals = []
    return start


def no_end(hop: Hop, start: Instant, arrived: Arrived) -> Instant:
    """It is delivered, but its sender never comes to an end with it."""
    hop.send(start, hop.terms.transports[0])
    arrived.arrivals = [start + hop.latency()]
    return start


def not_notified(hop: Hop, start: Instant, arrived: Arrived) -> Instant:
    """It fails, and nobody is told."""
    return fail(hop, _in_vain(hop, start, arrived), Outcome.UNKNOWN, "exhausted", told=False)


def told_again(hop: Hop, start: Instant, arrived: Arrived) -> Instant:
    """It fails once and is recorded as told twice."""
    when = fail(hop, _in_vain(hop, start, arrived), Outcome.UNKNOWN, "exhausted")
    hop.note(when + SECOND, Kind.NOTIFIED, notes.Notified("Warning"))
    return when


def notice_of_notice(hop: Hop, start: Instant, arrived: Arrived) -> Instant:
    """It is a notice itself, and that it was never acknowledged is told by another."""
    done = transmit(hop, start, acks_lost=NEVER)
    arrived.arrivals = hop.arrivals
    arrived.received = (
        (arrived.received or "{}").replace("{", '{"notice":true,', 1).replace(",}", "}")
    )
    return fail(hop, done.when, Outcome.UNKNOWN, "exhausted")


def taken_back(hop: Hop, start: Instant, arrived: Arrived) -> Instant:
    """Its receiver has acknowledged it, and a report of somebody else makes it unknown."""
    when = _plainly(hop, start, arrived) + SECOND
    hop.note(when, Kind.REJECTED, notes.Rejected("DeliveryFailure", "Warning"))
    return fail(hop, when, Outcome.UNKNOWN, "rejected")


def wrong_outcome(hop: Hop, start: Instant, arrived: Arrived) -> Instant:
    """It is called not delivered, though it may well have been."""
    return fail(hop, _in_vain(hop, start, arrived), Outcome.NOT_DELIVERED, "exhausted")


def missing_part(hop: Hop, start: Instant, arrived: Arrived) -> Instant:
    """A part never arrives; its receiver joins the document all the same. Nobody is told of a
    part."""
    return fail(hop, _in_vain(hop, start, arrived), Outcome.UNKNOWN, "exhausted", told=False)


def second_ack(hop: Hop, start: Instant, arrived: Arrived) -> Instant:
    """A second acknowledgement is accepted."""
    return acknowledge_as_agreed(hop, _plainly(hop, start, arrived) + SECOND)


def unsigned_ack(hop: Hop, start: Instant, arrived: Arrived) -> Instant:
    """An acknowledgement without the agreed signature is accepted."""
    done = transmit(hop, start)
    arrived.arrivals = hop.arrivals
    return acknowledge(hop, done.when, notes.Acknowledged())


def ack_of_nothing(hop: Hop, start: Instant, arrived: Arrived) -> Instant:
    """The receiver acknowledges what it does not have."""
    settled = _plainly(hop, start, arrived)
    arrived.arrivals = []
    return settled


def altered(hop: Hop, start: Instant, arrived: Arrived) -> Instant:
    """Other content arrives than was submitted."""
    arrived.digest = hashlib.sha256(arrived.digest.encode()).hexdigest()
    return _plainly(hop, start, arrived)


def unverified(hop: Hop, start: Instant, arrived: Arrived) -> Instant:
    """Its signature does not cover all that is used."""
    arrived.received = (arrived.received or "").replace('"verified"', '"partial"')
    return _plainly(hop, start, arrived)


MISBEHAVIOURS: dict[str, Twist] = {
    misbehaviour.__name__: misbehaviour
    for misbehaviour in (
        early_retry, one_more_retry, sent_after_ack, gave_up_early, no_word, no_end, not_notified,
        told_again, notice_of_notice, taken_back, wrong_outcome, missing_part, second_ack,
        unsigned_ack, ack_of_nothing, altered, unverified,
    )
}  # fmt: skip
"""By the name that `faults` uses."""
