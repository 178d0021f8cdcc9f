"""SendingChannel: one numbered stream at its sender, and the window over it.

A number is given when a message enters the window and is settled by an acknowledgement,
an error answer or an abandon (gap 14). Only an acknowledgement proves that the receiver has
noted the number; any other end may leave a gap there that is never closed, so it ends the
epoch: when everything else is settled, the numbering restarts.

The opener of an epoch travels alone until it is settled, and nothing follows it unless it
was acknowledged. That makes a restart unambiguous for the receiver without any mark the
drafts do not have: nothing else of the epoch can arrive before the receiver has noted the
opener, and the opener's timestamp is later than anything of the epochs before. It holds for
the first epoch as well: the receiver may remember a stream that this sender has forgotten.

An agreement may change the range while numbers are under way. They keep theirs: the first
message of the new range waits until all of the old one are settled and begins an epoch (C2).
"""

from __future__ import annotations

from enum import Enum, auto

from msgspec import Struct
from msgspec.structs import replace

from oncewire.errors import NotAllowed
from oncewire.message.envelope import SequenceNumber, SequenceStatus, Severity
from oncewire.message.instant import Instant
from oncewire.protocol import notes
from oncewire.protocol.notes import Admit, Detail, Effect, Note, Notify, Raise, Resolve
from oncewire.protocol.sequence import SendingWindow, SequenceRange
from oncewire.protocol.states import (
    CHANNEL,
    ChannelEvent,
    Outgoing,
    OutgoingEvent,
    OutgoingState,
    Phase,
    move,
)
from oncewire.protocol.terms import OnExhausted, ResetRule, Terms


class SendingChannel(Struct, frozen=True, gc=False):
    """State of one stream; `settled` holds numbers beyond the first unsettled one only."""

    key: str
    epoch: int = 0
    # The number the next message gets, and SSW, the first unsettled one.
    next_number: int = 0
    first_unsettled: int = 0
    settled: frozenset[int] = frozenset()
    # How many numbers this epoch has given.
    used: int = 0
    phase: Phase = Phase.UNBEGUN
    # Nothing enters and nothing is sent, whatever the phase, until an operator resumes it.
    suspended: bool = False
    suspended_reason: str = ""
    # The message whose trouble suspended the channel, if it was one.
    suspended_by: str | None = None
    # A Transient Error pauses the channel until then (RTY-8).
    paused_until: Instant = 0
    # Timestamps rise strictly along the stream: they tell one epoch's numbers from another's.
    last_stamp: Instant = 0
    # The range of this epoch; None: written by a version that did not note it.
    numbers: SequenceRange | None = None

    @classmethod
    def open(cls, key: str, terms: Terms) -> SendingChannel:
        """A channel that has not numbered anything yet."""
        first = terms.numbers.first
        return cls(key, epoch=0, next_number=first, first_unsettled=first)

    def _numbers(self, terms: Terms) -> SequenceRange:
        """The range that this epoch's numbers are counted in."""
        return self.numbers or terms.numbers

    def _phase_under(self, terms: Terms) -> Phase:
        """The phase that a message under these terms meets: another range ends the epoch."""
        if self.phase is not Phase.RUNNING:
            return self.phase
        numbers = self._numbers(terms)
        # Most often it is the very same value, and asking that costs nothing.
        same = numbers is terms.numbers or numbers == terms.numbers
        goes_on = same and self.next_number in terms.numbers
        return Phase.RUNNING if goes_on else Phase.ENDING

    def span(self, terms: Terms) -> int:
        """How many numbers lie between SSW and the next one to give."""
        if self.next_number == self.first_unsettled:
            return 0
        return self._numbers(terms).distance(self.first_unsettled, self.next_number)

    def unsettled(self, terms: Terms) -> int:
        """How many given numbers are not settled."""
        return self.span(terms) - len(self.settled)

    def places(self, terms: Terms) -> int:
        """How many messages may enter the window now."""
        phase = self._phase_under(terms)
        if self.suspended or phase is Phase.OPENING:
            return 0
        if phase is Phase.RUNNING:
            return max(0, terms.window_size - self.span(terms))
        return 1 if self.unsettled(terms) == 0 else 0

    def window(self, terms: Terms) -> SendingWindow:
        """SSW and ESW as the slides define them."""
        return SendingWindow(self._numbers(terms), terms.window_size, self.first_unsettled)

    def stamp(self, now: Instant) -> tuple[SendingChannel, Instant]:
        """A timestamp for a new message that is later than any given before."""
        stamp = max(now, self.last_stamp + 1)
        return replace(self, last_stamp=stamp), stamp

    def enter(self, terms: Terms) -> tuple[SendingChannel, SequenceNumber]:
        """Give the next number; the caller has made sure that there is a place."""
        if self.places(terms) < 1:
            raise NotAllowed(
                f"the window of channel {self.key} is full",
                remedy="wait until its first unsettled number is settled",
            )
        begins = self._phase_under(terms) is not Phase.RUNNING
        channel = self._next_epoch(terms) if begins else self
        number = channel.next_number
        opens = begins and terms.numbered
        event = ChannelEvent.OPENER_ENTERED if opens else ChannelEvent.MESSAGE_ENTERED
        entered = replace(
            channel,
            next_number=terms.numbers.after(number),
            used=channel.used + 1,
            phase=move(CHANNEL, self.phase, event),
            numbers=terms.numbers,
        )
        return entered, SequenceNumber(number, channel.status(terms))

    def _next_epoch(self, terms: Terms) -> SendingChannel:
        first = terms.numbers.first
        return replace(
            self,
            epoch=self.epoch + 1,
            next_number=first,
            first_unsettled=first,
            settled=frozenset(),
            used=0,
        )

    def status(self, terms: Terms) -> SequenceStatus | None:
        """What the next number says of the epoch: Reset on its first window or message."""
        if terms.reset is ResetRule.SILENT:
            return None
        marked = terms.window_size if terms.reset is ResetRule.FIRST_WINDOW else 1
        return SequenceStatus.RESET if self.used < marked else SequenceStatus.CONTINUE

    def is_unsettled(self, epoch: int | None, number: int | None, terms: Terms) -> bool:
        """Whether this number of this epoch was given and is not settled."""
        if number is None or epoch != self.epoch or number in self.settled:
            return False
        return self._numbers(terms).distance(self.first_unsettled, number) < self.span(terms)

    def settle(self, number: int, terms: Terms) -> SendingChannel:
        """Mark the number settled and slide SSW past everything settled (SW-5)."""
        settled = set(self.settled)
        settled.add(number)
        first = self.first_unsettled
        while first in settled:
            settled.discard(first)
            first = self._numbers(terms).after(first)
        phase = move(CHANNEL, self.phase, ChannelEvent.NUMBER_SETTLED)
        return replace(self, first_unsettled=first, settled=frozenset(settled), phase=phase)

    def abandon(self, number: int, terms: Terms) -> SendingChannel:
        """Give the number up: settled here, unknown at the receiver, so the epoch ends."""
        return self.settle(number, terms).end_epoch()

    def end_epoch(self) -> SendingChannel:
        """Begin another epoch with the next message, once every number is settled."""
        return replace(self, phase=move(CHANNEL, self.phase, ChannelEvent.EPOCH_ENDED))

    def restart(self, terms: Terms) -> SendingChannel:
        """Restart the numbering on purpose (SEQ-4); refused where it would confuse (gap 15)."""
        if self.unsettled(terms):
            raise NotAllowed(
                f"channel {self.key} has {self.unsettled(terms)} unsettled numbers",
                remedy="wait until they are acknowledged, or abandon them",
            )
        if 0 < self.used < terms.window_size:
            raise NotAllowed(
                f"channel {self.key} has used {self.used} of its first {terms.window_size} numbers",
                remedy="a restart is safe once the first window is used up",
            )
        return self if self.phase is Phase.UNBEGUN else self.end_epoch()

    def suspend(self, reason: str, by: str | None = None) -> SendingChannel:
        """Stop sending on this channel until an operator resumes it (RTY-12)."""
        return replace(self, suspended=True, suspended_reason=reason, suspended_by=by)

    def resume(self) -> SendingChannel:
        """Send again."""
        return replace(
            self, suspended=False, suspended_reason="", suspended_by=None, paused_until=0
        )

    def pause(self, until: Instant) -> SendingChannel:
        """Send nothing before `until`; a shorter pause does not cut a longer one short."""
        return replace(self, paused_until=max(self.paused_until, until))


# Settling: what every end of an outgoing message has in common.
#
# Where a message ends, or is stuck, two things are decided: what becomes of its number (`Fate`),
# and whether its stream goes on (`go_on`) or waits for the operator (`stop`). The events that lead
# there are in `protocol/sender.py`:
#
# | event | its number | its stream |
# |---|---|---|
# | acknowledged; best effort, once sent | settled | goes on |
# | refused, abandoned, failed | given up | goes on |
# | failed, where the agreement suspends | given up | stops |
# | retries used up, where the agreement suspends | kept | stops |
# | resumed | kept | goes on |


class SenderStep(Struct, frozen=True, gc=False):
    """One step of the sender."""

    outgoing: Outgoing
    channel: SendingChannel | None = None
    effects: tuple[Effect, ...] = ()


class Fate(Enum):
    """What becomes of the number that a message has, if it has one."""

    KEPT = auto()  # the message is sent again with it
    SETTLED = auto()  # the receiver has noted it, or does not wait for it
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
    if channel.places(terms):
        effects = (*effects, Admit(channel.key))
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
        # what is left to decide must not hang on a number that cannot be settled.
        return stop(failed, channel, terms, effects, Fate.GIVEN_UP)
    effects = (*effects, Raise(reason, failed.message_id))
    return go_on(failed, channel, terms, effects, Fate.GIVEN_UP)


def failure(outgoing: Outgoing, why: str) -> tuple[Effect, ...]:
    """Record the failure and tell the From Party of it: an Error where it was not delivered for
    certain, else a Warning (ERR-9)."""
    certain = outgoing.state is OutgoingState.NOT_DELIVERED
    severity = Severity.ERROR if certain else Severity.WARNING
    note = Note.about(outgoing, notes.Failed(outgoing.state.value, why))
    return (note, Notify(severity))


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
