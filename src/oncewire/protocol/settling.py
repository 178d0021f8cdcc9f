"""Settling: what every end of an outgoing message has in common.

A step of the sender is a `Sent`. A message that ends settles its number, lifts the
suspension it caused and lets the next messages in; the events that lead there are in
`attempts` (timers and transports), `answers` (what the receiver said) and `operating`.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncewire.message.fault import Severity
from oncewire.protocol import notes
from oncewire.protocol.effects import Admit, Effect, Note, Notify, Raise, Resolve
from oncewire.protocol.notes import Detail
from oncewire.protocol.outgoing import Outgoing
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import OutgoingEvent, OutgoingState
from oncewire.protocol.terms import OnExhausted, Terms


@dataclass(frozen=True, slots=True)
class Sent:
    """One step of the sender."""

    outgoing: Outgoing
    channel: SendingChannel | None = None
    effects: tuple[Effect, ...] = ()


def settle(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    effects: tuple[Effect, ...],
) -> Sent:
    """Settle the message's number, if it has one, and let the next messages in."""
    if channel is None:
        return Sent(outgoing, None, effects)
    number = outgoing.number
    if number is not None and channel.is_unsettled(outgoing.epoch, number, terms):
        channel = channel.settle(number, terms)
    return reopen(outgoing, channel, terms, effects)


def give_up_number(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    effects: tuple[Effect, ...],
) -> Sent:
    """Settle a number the receiver may never have seen: the epoch ends (gap 14)."""
    number = outgoing.number
    if channel is None or number is None or not terms.numbered:
        return settle(outgoing, channel, terms, effects)
    if not channel.is_unsettled(outgoing.epoch, number, terms):
        return reopen(outgoing, channel, terms, effects)
    note = Note(notes.EpochEnded(), outgoing.message_id, channel=channel.key, epoch=channel.epoch)
    return reopen(outgoing, channel.abandon(number, terms), terms, (*effects, note))


def reopen(
    outgoing: Outgoing, channel: SendingChannel, terms: Terms, effects: tuple[Effect, ...]
) -> Sent:
    """Trouble with this message is over: lift the suspension it caused, admit the next."""
    if channel.suspended and channel.suspended_by == outgoing.message_id:
        channel = channel.resume()
        effects = (*effects, Resolve(outgoing.message_id, channel.key))
    places = channel.places(terms)
    if places:
        effects = (*effects, Admit(channel.key, places))
    return Sent(outgoing, channel, effects)


_WHY = {
    OutgoingEvent.TRANSMISSION_FAILED: "transport",
    OutgoingEvent.DEADLINE_PASSED: "expired",
    OutgoingEvent.RETRIES_EXHAUSTED: "exhausted",
}


def fail(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    event: OutgoingEvent,
    reason: str,
    effects: tuple[Effect, ...],
) -> Sent:
    """Set the honest outcome: not delivered if it never left, else unknown (S5)."""
    to = OutgoingState.UNKNOWN if outgoing.transmitted else OutgoingState.NOT_DELIVERED
    failed = outgoing.failed(event, to, reason)
    severity = Severity.WARNING if outgoing.transmitted else Severity.ERROR
    effects = (*effects, *failure(failed, severity, _WHY[event]))
    if channel is not None and terms.on_exhausted is OnExhausted.SUSPEND_CHANNEL:
        number = failed.number
        if number is not None and channel.is_unsettled(failed.epoch, number, terms):
            # Whether later messages may pass this one is for the operator to say (C22). It
            # can never be sent again under its id (C37), so its number is given up at once:
            # what is left to decide must not hang on a number that nobody can settle.
            return _suspend_without(failed, number, channel, terms, effects)
    return give_up_number(failed, channel, terms, (*effects, Raise(reason, failed.message_id)))


def _suspend_without(
    failed: Outgoing,
    number: int,
    channel: SendingChannel,
    terms: Terms,
    effects: tuple[Effect, ...],
) -> Sent:
    """Give the number up and stop the channel until the operator has looked at it."""
    if not terms.numbered:
        return suspend(failed, channel.settle(number, terms), failed.reason, effects)
    note = Note(notes.EpochEnded(), failed.message_id, channel=channel.key, epoch=channel.epoch)
    ended = channel.abandon(number, terms)
    return suspend(failed, ended, failed.reason, (*effects, note))


def suspend(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    reason: str,
    effects: tuple[Effect, ...],
) -> Sent:
    """Stop the channel and call the operator; the first trouble is the one that is named."""
    key = outgoing.channel
    if channel is not None and not channel.suspended:
        channel = channel.suspend(reason, outgoing.message_id)
    note = Note(notes.Suspended(reason), outgoing.message_id, channel=key)
    return Sent(outgoing, channel, (*effects, note, Raise(reason, outgoing.message_id, key)))


def failure(outgoing: Outgoing, severity: Severity, why: str) -> tuple[Effect, ...]:
    """Record the failure and tell the From Party of it."""
    note = Note(
        notes.Failed(outgoing.state.value, why),
        outgoing.message_id,
        channel=outgoing.channel,
        epoch=outgoing.epoch,
        number=outgoing.number,
    )
    return (note, Notify(outgoing.message_id, severity, outgoing.reason))


def note_of(
    what: Detail, outgoing: Outgoing, *, transport: str | None = None, ref_to: str | None = None
) -> Note:
    """A journal row about this message as it stands."""
    return Note(
        what,
        outgoing.message_id,
        ref_to,
        channel=outgoing.channel,
        epoch=outgoing.epoch,
        number=outgoing.number,
        attempt=outgoing.attempts or None,
        transport=transport,
    )
