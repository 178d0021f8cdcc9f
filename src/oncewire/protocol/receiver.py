"""The receiver: what one arrival means, before anything is stored or answered.

The order of judgement is fixed (RM-17, gap 15): first the MessageId, then the time to
live, then the number. Whatever is decided is saved together with the message and its
answer in one transaction; only then does the answer leave.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from oncewire.errors import DeliveryFailure, EbxmlError, Inconsistent, TimeToLiveExpired
from oncewire.message.fault import Error
from oncewire.message.instant import Instant
from oncewire.message.sequence import SequenceNumber
from oncewire.protocol import notes
from oncewire.protocol.effects import Effect, Note, Raise
from oncewire.protocol.incoming import Incoming
from oncewire.protocol.receiving import Fit, Held, ReceivingChannel
from oncewire.protocol.states import IncomingState
from oncewire.protocol.terms import Terms

SEQUENCE_LOCATION = "//SequenceNumber"


class Verdict(StrEnum):
    """What an arrival is."""

    FIRST = "first"  # never seen: store it, answer it, hand it over when its turn comes
    DUPLICATE = "duplicate"  # known: answer again, hand over nothing
    CONFLICT = "conflict"  # a known id with other content (DRV-6)
    REFUSED = "refused"  # answered with an error


@dataclass(frozen=True, slots=True)
class Arrival:
    """What the judgement needs to know of a message that arrived."""

    message_id: str
    digest: str
    # When it was made, by the handler that numbered it: the RoutingHeader's Timestamp where
    # numbers belong to the hop, the header's own where they belong to the whole way.
    stamp: Instant
    sequence: SequenceNumber | None = None
    expires_at: Instant | None = None


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the store remembers of an earlier arrival with the same id from the same party."""

    message_id: str
    digest: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict, the channel after it, and what is to be done."""

    verdict: Verdict
    channel: ReceivingChannel | None = None
    # Stored, but an earlier number is missing.
    held: bool = False
    # Other messages whose turn has come, in order; this one included if not held.
    deliver: tuple[str, ...] = ()
    error: Error | None = None
    # The refusal is remembered with the number, so that a copy gets the same answer.
    remember: bool = True
    effects: tuple[Effect, ...] = ()
    # What the message runs under, where its epoch is older than today's terms.
    terms: Terms | None = None


def judge(
    arrival: Arrival,
    known: Remembered | None,
    channel: ReceivingChannel | None,
    terms: Terms,
    now: Instant,
) -> Judgement:
    """What this arrival is and what follows from it."""
    if known is not None:
        return _judge_known(arrival, known, channel)
    expired = _expired(arrival, terms, now)
    if expired is not None:
        return refuse(arrival, expired, channel, terms)
    if channel is None or arrival.sequence is None:
        return Judgement(Verdict.FIRST, channel, deliver=(arrival.message_id,))
    return _judge_number(arrival, arrival.sequence, channel, terms)


def _judge_known(
    arrival: Arrival, known: Remembered, channel: ReceivingChannel | None
) -> Judgement:
    if arrival.digest == known.digest:
        return Judgement(Verdict.DUPLICATE, channel)
    # Answering it like a duplicate would lose the second content without a word.
    error = Error.of(
        Inconsistent(
            "a message with this MessageId and other content was received before",
            location="//MessageData/MessageId",
        )
    )
    return Judgement(Verdict.CONFLICT, channel, error=error, remember=False)


def _expired(arrival: Arrival, terms: Terms, now: Instant) -> EbxmlError | None:
    """TimeToLive, judged with the agreed accuracy of the clocks (CPA-15)."""
    if arrival.expires_at is None or now <= arrival.expires_at + terms.time_accuracy:
        return None
    return TimeToLiveExpired(
        "the message arrived after its TimeToLive", location="//MessageData/TimeToLive"
    )


def refuse(
    arrival: Arrival, fault: EbxmlError, channel: ReceivingChannel | None, terms: Terms
) -> Judgement:
    """Answer with an error and settle the number, so that the stream goes on (gap 14)."""
    error = Error.of(fault)
    sequence = arrival.sequence
    if channel is None or sequence is None:
        return Judgement(Verdict.REFUSED, channel, error=error)
    channel = channel.widened(sequence.number, terms)
    fit = channel.fit(sequence, arrival.stamp, terms)
    if fit not in (Fit.NEXT, Fit.EARLY, Fit.NEW_EPOCH):
        return Judgement(Verdict.REFUSED, channel, error=error)
    entry = Held(sequence.number, arrival.message_id, refused=True)
    taken = _take(channel, entry, fit, arrival.stamp, terms)
    return Judgement(
        Verdict.REFUSED,
        taken.channel,
        deliver=taken.deliver,
        error=error,
        effects=taken.effects,
        terms=taken.channel.in_force(terms),
    )


def _judge_number(
    arrival: Arrival, sequence: SequenceNumber, channel: ReceivingChannel, terms: Terms
) -> Judgement:
    channel = channel.widened(sequence.number, terms)
    fit = channel.fit(sequence, arrival.stamp, terms)
    if fit is Fit.OUTSIDE:
        numbers = terms.numbers
        if sequence.number in numbers:
            # It would begin nothing, and the epoch there is has another range.
            numbers = channel.in_force(terms).numbers
        return _odd_number(
            channel,
            f"number {sequence.number} lies outside the agreed range "
            f"{numbers.first}..{numbers.last}",
        )
    if fit is Fit.BEYOND:
        return _beyond(sequence, channel, channel.in_force(terms))
    if fit is Fit.STRAGGLER:
        return _too_late(sequence, channel)
    if fit is Fit.OCCUPIED:
        return _odd_number(
            channel, f"number {sequence.number} belongs to another message of this stream"
        )
    if fit is Fit.GAP:
        return _refuse_number(
            channel, f"number {sequence.number} came while {channel.expected} is missing"
        )
    entry = Held(sequence.number, arrival.message_id)
    taken = _take(channel, entry, fit, arrival.stamp, terms)
    return Judgement(
        Verdict.FIRST,
        taken.channel,
        held=arrival.message_id not in taken.deliver,
        deliver=taken.deliver,
        effects=taken.effects,
        terms=taken.channel.in_force(terms),
    )


@dataclass(frozen=True, slots=True)
class Released:
    """The channel after numbers were passed, and what may be handed over, in order."""

    channel: ReceivingChannel
    deliver: tuple[str, ...]
    effects: tuple[Effect, ...]


def hold_deadline(received_at: Instant, terms: Terms) -> Instant:
    """When a held message has waited long enough for the numbers before it.

    They were first sent before it was, so by then their sender has stopped (RTY-17). Most
    often a new epoch ends the wait much earlier; but the sender of an abandoned number
    may have nothing more to say, and an acknowledged message must not be held for ever.
    """
    return received_at + terms.persist_duration


def give_up_gap(channel: ReceivingChannel, number: int, terms: Terms) -> Released:
    """Hand over the held message with this number; what is missing before it is skipped.

    For `hold_deadline`, or the word of an operator. A skipped message that comes after
    all is refused: it would be out of order.
    """
    epoch = channel.epoch
    channel, released, skipped = channel.skip_to(number, terms)
    effects = [_skip(channel.key, epoch, missing, None, "never came") for missing in skipped]
    effects += _skips(released, channel.key, epoch)
    return Released(channel, _to_deliver(released), tuple(effects))


def close_number(
    incoming: Incoming, channel: ReceivingChannel, why: str = "not answered in time"
) -> tuple[ReceivingChannel, tuple[Effect, ...]]:
    """Settle the number of a request that nobody can answer any more (SYNC-18, gap 14).

    While it is held its number is passed when its turn comes. Once its turn has come the
    number is behind the expected one already, so the skip is told now, unless the
    application was given it before.
    """
    if incoming.state is IncomingState.HELD:
        return channel.refuse_held(incoming.message_id), ()
    if incoming.hand_overs or incoming.number is None or incoming.epoch is None:
        return channel, ()
    skip = _skip(channel.key, incoming.epoch, incoming.number, incoming.message_id, why)
    return channel, (skip,)


def _take(
    channel: ReceivingChannel, entry: Held, fit: Fit, stamp: Instant, terms: Terms
) -> Released:
    """Note a fitting number, after ending the old epoch where it begins a new one."""
    effects: list[Effect] = []
    released: list[Held] = []
    if fit is Fit.NEW_EPOCH:
        old_epoch = channel.epoch
        channel, leftover, skipped = channel.begin_epoch(terms)
        released.extend(leftover)
        effects += [_skip(channel.key, old_epoch, number, None, "given up") for number in skipped]
        effects += _skips(leftover, channel.key, old_epoch)
        effects.append(Note(notes.EpochBegan(), channel=channel.key, epoch=channel.epoch))
    channel, in_turn, outrun = channel.take(entry, stamp, terms)
    effects += [_skip(channel.key, channel.epoch, number, None, "never came") for number in outrun]
    effects += _skips(in_turn, channel.key, channel.epoch)
    released.extend(in_turn)
    return Released(channel, _to_deliver(released), tuple(effects))


def _to_deliver(entries: Iterable[Held]) -> tuple[str, ...]:
    return tuple(entry.message_id for entry in entries if not (entry.refused or entry.handed))


def _skips(entries: tuple[Held, ...], key: str, epoch: int) -> list[Effect]:
    return [
        _skip(key, epoch, entry.number, entry.message_id, "refused")
        for entry in entries
        if entry.refused
    ]


def _skip(key: str, epoch: int, number: int, message_id: str | None, reason: str) -> Effect:
    return Note(notes.Skipped(reason), message_id, channel=key, epoch=epoch, number=number)


def _refuse_number(channel: ReceivingChannel, problem: str, *effects: Effect) -> Judgement:
    """Answer an error and store nothing; the copy that fits may still come (SEQ-9)."""
    error = Error.of(Inconsistent(problem, location=SEQUENCE_LOCATION))
    return Judgement(Verdict.REFUSED, channel, error=error, remember=False, effects=effects)


def _odd_number(channel: ReceivingChannel, problem: str) -> Judgement:
    """The two sides do not understand each other: somebody must look at it (gap 15)."""
    return _refuse_number(channel, problem, Raise(problem, channel=channel.key))


def _too_late(sequence: SequenceNumber, channel: ReceivingChannel) -> Judgement:
    """A straggler that can never be handed over in order: its sender need not try again.

    The error names the Timestamp, not the number: a sender that resends the missing
    message (SEQ-10) would do so in vain. Nor is it a DeliveryFailure, which would take
    back an acknowledgement that was given before the receiver's memory ended.
    """
    error = Error.of(
        Inconsistent(
            f"the stream has moved on past number {sequence.number} of a message this old",
            location="//MessageData/Timestamp",
        )
    )
    return Judgement(Verdict.REFUSED, channel, error=error, remember=False)


def _beyond(sequence: SequenceNumber, channel: ReceivingChannel, terms: Terms) -> Judgement:
    """More early messages than agreed: the two sides differ about W (C4, gap 15)."""
    problem = (
        f"number {sequence.number} lies beyond the window of {terms.window_size} "
        f"that begins at {channel.expected}"
    )
    error = Error.of(DeliveryFailure(problem, location=SEQUENCE_LOCATION))
    return Judgement(
        Verdict.REFUSED,
        channel,
        error=error,
        remember=False,
        effects=(Raise(problem, channel=channel.key),),
    )
