"""The receiver: what one arrival means, before anything is stored or answered.

The order of judgement is fixed (RM-17, gap 15): first the MessageId, then the time to
live, then the number. Whatever is decided is saved together with the message and its
answer in one transaction; only then does the answer leave.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import ClassVar, TypeAlias

from msgspec import Struct

from oncewire.errors import (
    DeliveryFailure,
    EbxmlError,
    Inconsistent,
    NotSupported,
    TimeToLiveExpired,
)
from oncewire.message.envelope import Actor, Error, Message, MessageKind, SequenceNumber
from oncewire.message.form import AckRequest, ReliableMessagingMethod
from oncewire.message.instant import Duration, Instant
from oncewire.protocol import notes
from oncewire.protocol.notes import Effect, Note, Raise
from oncewire.protocol.receiving import Fit, Held, ReceivingChannel
from oncewire.protocol.states import Incoming, IncomingState
from oncewire.protocol.terms import AckBundling, DuplicateAnswer, NoResponse, ReceiptProvided, Terms

SEQUENCE_LOCATION = "//SequenceNumber"


class Arrival(Struct, frozen=True, gc=False):
    """What the judgement needs to know of a message that arrived."""

    message_id: str
    digest: str
    # When it was made, by the handler that numbered it: the RoutingHeader's Timestamp where
    # numbers belong to the hop, the header's own where they belong to the whole way.
    stamp: Instant
    sequence: SequenceNumber | None = None
    expires_at: Instant | None = None


class First(Struct, frozen=True, gc=False):
    """Never seen before: store it, answer it, and hand it over when its turn comes."""

    channel: ReceivingChannel | None
    # Messages whose turn has come, in order; this one among them unless it is held.
    deliver: tuple[str, ...]
    # Stored, but an earlier number is missing.
    held: bool = False
    effects: tuple[Effect, ...] = ()
    # What the message runs under, where its epoch is older than today's terms.
    terms: Terms | None = None


class Refused(Struct, frozen=True, gc=False):
    """Answered with an error that is remembered, so that a copy gets the same. Its number, if it
    fits, is settled, and what waited for it goes on (gap 14)."""

    error: Error
    channel: ReceivingChannel | None
    deliver: tuple[str, ...] = ()
    effects: tuple[Effect, ...] = ()
    terms: Terms | None = None
    remembered: ClassVar[bool] = True


class TurnedAway(Struct, frozen=True, gc=False):
    """Answered with an error, and forgotten: the next copy is judged anew, and may fit (SEQ-9)."""

    error: Error
    channel: ReceivingChannel | None
    # The incident to open, where an operator must decide.
    effects: tuple[Effect, ...] = ()
    # Its number is not settled, so nothing goes on by it.
    deliver: ClassVar[tuple[str, ...]] = ()
    terms: ClassVar[None] = None
    remembered: ClassVar[bool] = False


Rejection: TypeAlias = Refused | TurnedAway
Judgement: TypeAlias = First | Rejection

_FITTING = (Fit.NEXT, Fit.EARLY, Fit.NEW_EPOCH)
# The two sides do not understand each other: an operator must decide (gap 15).
_ODD = (Fit.OCCUPIED, Fit.BEYOND, Fit.OUTSIDE)


def judge(
    arrival: Arrival, channel: ReceivingChannel | None, terms: Terms, now: Instant
) -> Judgement:
    """What this arrival is, which was never seen before, and what follows from it."""
    expired = _expired(arrival, terms, now)
    if expired is not None:
        return refuse(arrival, expired, channel, terms)
    if channel is None or arrival.sequence is None:
        return First(channel, (arrival.message_id,))
    return _judge_number(arrival, arrival.sequence, channel, terms)


def judge_copy(
    arrival: Arrival, digest: str, channel: ReceivingChannel | None
) -> TurnedAway | None:
    """What an arrival is whose id is known from the same party, with content of that digest.

    None: a copy, which is answered again and hands over nothing.
    """
    if arrival.digest == digest:
        return None
    # Answering it like a duplicate would lose the second content without a word (DRV-6).
    fault = Inconsistent(
        "a message with this MessageId and other content was received before",
        location="//MessageData/MessageId",
    )
    return TurnedAway(Error.of(fault), channel)


def _expired(arrival: Arrival, terms: Terms, now: Instant) -> EbxmlError | None:
    """TimeToLive, judged with the agreed accuracy of the clocks (CPA-15)."""
    if arrival.expires_at is None or now <= arrival.expires_at + terms.time_accuracy:
        return None
    return TimeToLiveExpired(
        "the message arrived after its TimeToLive", location="//MessageData/TimeToLive"
    )


def refuse(
    arrival: Arrival, fault: EbxmlError, channel: ReceivingChannel | None, terms: Terms
) -> Refused:
    """Answer with an error and settle the number, so that the stream goes on (gap 14)."""
    error = Error.of(fault)
    sequence = arrival.sequence
    if channel is None or sequence is None:
        return Refused(error, channel)
    channel = channel.widened(sequence.number, terms)
    fit = channel.fit(sequence, arrival.stamp, terms)
    if fit not in _FITTING:
        return Refused(error, channel)
    entry = Held(sequence.number, arrival.message_id, refused=True)
    after = _take(channel, entry, fit, arrival.stamp, terms)
    kept = after.channel.in_force(terms)
    return Refused(error, after.channel, after.deliver, after.effects, kept)


def _judge_number(
    arrival: Arrival, sequence: SequenceNumber, channel: ReceivingChannel, terms: Terms
) -> First | TurnedAway:
    channel = channel.widened(sequence.number, terms)
    fit = channel.fit(sequence, arrival.stamp, terms)
    if fit not in _FITTING:
        return _turn_away(sequence.number, fit, channel, terms)
    entry = Held(sequence.number, arrival.message_id)
    after = _take(channel, entry, fit, arrival.stamp, terms)
    held = arrival.message_id not in after.deliver
    kept = after.channel.in_force(terms)
    return First(after.channel, after.deliver, held, after.effects, kept)


def _turn_away(number: int, fit: Fit, channel: ReceivingChannel, terms: Terms) -> TurnedAway:
    """Why a number does not fit. The copy that fits may still come (SEQ-9), unless it is too late.

    A straggler can never be handed over in order, so its sender need not try again. The error
    names the Timestamp, not the number: a sender that resends the missing message (SEQ-10)
    would do so in vain. Nor is it a DeliveryFailure, which would take back an acknowledgement
    that was given before the receiver's memory ended.
    """
    fault: EbxmlError
    if fit is Fit.STRAGGLER:
        problem = f"the stream has moved on past number {number} of a message this old"
        fault = Inconsistent(problem, location="//MessageData/Timestamp")
    elif fit is Fit.GAP:
        problem = f"number {number} came while {channel.expected} is missing"
        fault = Inconsistent(problem, location=SEQUENCE_LOCATION)
    elif fit is Fit.OCCUPIED:
        problem = f"number {number} belongs to another message of this stream"
        fault = Inconsistent(problem, location=SEQUENCE_LOCATION)
    elif fit is Fit.BEYOND:
        # More early messages than agreed: the two sides differ about W (C4).
        window = channel.in_force(terms).window_size
        problem = f"number {number} lies beyond the window of {window} "
        problem += f"that begins at {channel.expected}"
        fault = DeliveryFailure(problem, location=SEQUENCE_LOCATION)
    else:
        # Where today's range has it, it would begin nothing, and the epoch there is has another.
        today = terms.numbers
        numbers = channel.in_force(terms).numbers if number in today else today
        problem = f"number {number} lies outside the agreed range {numbers.first}..{numbers.last}"
        fault = Inconsistent(problem, location=SEQUENCE_LOCATION)
    effects: tuple[Effect, ...] = ()
    if fit in _ODD:
        effects = (Raise(problem, channel=channel.key),)
    return TurnedAway(Error.of(fault), channel, effects)


class Released(Struct, frozen=True, gc=False):
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
    """Settle the number of a request that cannot be answered any more (SYNC-18, gap 14), or of a
    message that an operator gave up.

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


# Acknowledgements owed, and the answer a duplicate gets.
#
# Whether an acknowledgement is owed follows from the message being reliable, not from its asking
# for one; asking decides only whether the Acknowledgment *element* is in it, and whether it is
# signed (C11).


class AckOwed(Struct, frozen=True, gc=False):
    """What the acknowledgement of one message must contain."""

    owed: bool
    # What was asked of the To Party's handler and of the next handler.
    receipt: AckRequest = AckRequest.NONE
    hop_receipt: AckRequest = AckRequest.NONE

    @property
    def signed(self) -> bool:
        """Whether any of them must be signed."""
        return AckRequest.SIGNED in (self.receipt, self.hop_receipt)

    @property
    def element(self) -> bool:
        """Whether an Acknowledgment element was asked for at all (ACK-14, ACK-15)."""
        return self.receipt is not AckRequest.NONE or self.hop_receipt is not AckRequest.NONE


NOTHING_OWED = AckOwed(False)


def ack_owed(message: Message, terms: Terms, *, final: bool) -> AckOwed:
    """What this handler owes for a message; `final`: it acts for the To Party.

    Nothing is ever owed for an acknowledgement or another signal (ACK-9), nor where the
    transport was trusted with the reliability (RM-7). Whether the message is reliable is for
    the terms to say: they hold what header and agreement make of it together (CPA-8).
    """
    if message.kind is not MessageKind.NORMAL and message.kind is not MessageKind.ERROR:
        return NOTHING_OWED
    if not terms.runs_protocol:
        return NOTHING_OWED
    hop = message.last_hop
    if hop is not None and hop.method is ReliableMessagingMethod.TRANSPORT:
        return NOTHING_OWED
    receipt = message.asks_ack_of(Actor.TO_PARTY_MSH) if final else AckRequest.NONE
    return AckOwed(True, receipt, message.asks_ack_of(Actor.NEXT_MSH))


def check_receipt(message: Message, terms: Terms) -> None:
    """Refuse a receipt the agreement says we cannot give (CPA-14)."""
    asked = message.header.delivery_receipt_requested
    if asked is None or asked is AckRequest.NONE:
        return
    provided = terms.receipt_provided
    if provided is ReceiptProvided.BOTH or provided.value == asked.value:
        return
    raise NotSupported(
        f"a delivery receipt of kind {asked.value} is asked for, {provided.value} is provided",
        location="//deliveryReceiptRequested",
    )


def ride_patience(terms: Terms) -> Duration:
    """How long the acknowledgement of a message waits for a response to ride on (ACK-16, C13).

    0: it leaves at once. It never waits so long that its sender would resend meanwhile; by
    itself `auto` waits only as long as was agreed, `piggyback` as long as it can.
    """
    if not terms.runs_protocol or terms.ack_bundling is AckBundling.STANDALONE:
        return 0
    longest = terms.timeout // 2
    if terms.ack_bundling is AckBundling.PIGGYBACK and not terms.ack_wait:
        return longest
    return min(terms.ack_wait, longest)


class DuplicateReply(StrEnum):
    """What to send in answer to a duplicate (C14, C16)."""

    STORED_ANSWER = "the answer first given"
    FIRST_RESPONSE = "the response first sent"
    LATEST_RESPONSE = "the most recent response"
    NEW_ACK = "a new acknowledgement"
    NOTHING = "nothing"


def answer_duplicate(
    terms: Terms, *, answered: bool, responded: bool, owed: bool, kept: bool = False
) -> DuplicateReply:
    """Choose the reply. `answered`: an answer is stored with the message, be it an
    acknowledgement or the response that carried it; `responded`: business responses to it
    were sent; `owed`: an acknowledgement is owed at all; `kept`: an answer is stored, though
    it may be a response that failed and is not said again."""
    if terms.duplicate_answer is DuplicateAnswer.MOST_RECENT and responded:
        return DuplicateReply.LATEST_RESPONSE
    if answered:
        # v0-078's "an ack again" is the stored one too: its bytes are the acknowledgement.
        return DuplicateReply.STORED_ANSWER
    if responded and not kept:
        return DuplicateReply.FIRST_RESPONSE
    # What is agreed for want of a response (C16) is not meant for one that may not be sent: the
    # acknowledgement that it carried is given without it.
    if owed and (kept or terms.duplicate_no_response is NoResponse.ACK):
        return DuplicateReply.NEW_ACK
    return DuplicateReply.NOTHING
