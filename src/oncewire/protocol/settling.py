"""Settling: what every end of an outgoing message has in common.

Where a message ends, or is stuck, two things are decided: what becomes of its number (`Fate`), and
whether its stream goes on (`go_on`) or waits for the operator (`stop`). The events that lead there
are in `attempts` (timers and transports), `answers` (what the receiver said) and `operating`:

| event | its number | its stream |
|---|---|---|
| acknowledged; best effort, once sent | settled | goes on |
| refused, abandoned, failed | given up | goes on |
| failed, where the agreement suspends | given up | stops |
| retries used up, where the agreement suspends | kept | stops |
| resumed | kept | goes on |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from oncewire.message.fault import Severity
from oncewire.protocol import notes
from oncewire.protocol.detail import Detail
from oncewire.protocol.effects import Admit, Effect, Note, Notify, Raise, Resolve
from oncewire.protocol.outgoing import Outgoing
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import OutgoingEvent, OutgoingState
from oncewire.protocol.terms import OnExhausted, Terms


@dataclass(frozen=True, slots=True)
class SenderStep:
    """One step of the sender."""

    outgoing: Outgoing
    channel: SendingChannel | None = None
    effects: tuple[Effect, ...] = ()


class Fate(Enum):
    """What becomes of the number that a message has, if it has one."""

    KEPT = auto()  # the message is sent again with it
    SETTLED = auto()  # the receiver has noted it, or nobody waits for it there
    GIVEN_UP = auto()  # the receiver may never have seen it, so the epoch ends (gap 14)


def go_on(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    effects: tuple[Effect, ...],
    fate: Fate,
) -> SenderStep:
    """The stream goes on: a suspension that this message caused is lifted, the next may enter."""
    if channel is None:
        return SenderStep(outgoing, None, effects)
    channel, effects = _part_with_number(outgoing, channel, terms, effects, fate)
    if channel.suspended and channel.suspended_by == outgoing.message_id:
        channel = channel.resume()
        effects = (*effects, Resolve(outgoing.message_id, channel.key))
    places = channel.places(terms)
    if places:
        effects = (*effects, Admit(channel.key, places))
    return SenderStep(outgoing, channel, effects)


def stop(
    outgoing: Outgoing,
    channel: SendingChannel | None,
    terms: Terms,
    effects: tuple[Effect, ...],
    fate: Fate,
) -> SenderStep:
    """The stream stops, and the operator is called; the first trouble is the one that is named."""
    key, reason = outgoing.channel, outgoing.reason
    if channel is not None:
        channel, effects = _part_with_number(outgoing, channel, terms, effects, fate)
        if not channel.suspended:
            channel = channel.suspend(reason, outgoing.message_id)
    note = Note(notes.Suspended(reason), outgoing.message_id, channel=key)
    return SenderStep(outgoing, channel, (*effects, note, Raise(reason, outgoing.message_id, key)))


def _part_with_number(
    outgoing: Outgoing,
    channel: SendingChannel,
    terms: Terms,
    effects: tuple[Effect, ...],
    fate: Fate,
) -> tuple[SendingChannel, tuple[Effect, ...]]:
    number = outgoing.number
    if fate is Fate.KEPT or number is None:
        return channel, effects
    if not channel.is_unsettled(outgoing.epoch, number, terms):
        return channel, effects
    if fate is Fate.SETTLED or not terms.numbered:
        return channel.settle(number, terms), effects
    ended = Note(notes.EpochEnded(), outgoing.message_id, channel=channel.key, epoch=channel.epoch)
    return channel.abandon(number, terms), (*effects, ended)


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
) -> SenderStep:
    """Nothing was heard of the message, and it is never sent again."""
    failed = outgoing.failed(event, outgoing.unheard, reason)
    effects = (*effects, *failure(failed, _WHY[event]))
    in_the_way = channel is not None and channel.is_unsettled(failed.epoch, failed.number, terms)
    if in_the_way and terms.on_exhausted is OnExhausted.SUSPEND_CHANNEL:
        # Whether later messages may pass this one is for the operator to say (C22). It
        # can never be sent again under its id (C37), so its number is given up at once:
        # what is left to decide must not hang on a number that nobody can settle.
        return stop(failed, channel, terms, effects, Fate.GIVEN_UP)
    effects = (*effects, Raise(reason, failed.message_id))
    return go_on(failed, channel, terms, effects, Fate.GIVEN_UP)


def failure(outgoing: Outgoing, why: str) -> tuple[Effect, ...]:
    """Record the failure and tell the From Party of it: an Error where it was not delivered for
    certain, else a Warning (ERR-9)."""
    certain = outgoing.state is OutgoingState.NOT_DELIVERED
    severity = Severity.ERROR if certain else Severity.WARNING
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
