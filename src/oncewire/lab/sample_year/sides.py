"""The two sides of one hop: the sender's messages and window, and the receiver, by the protocol.

Every event is a step of `protocol.sender`; the notes of the step become rows, and what it asks for
is done: a transmission reaches the network, a notice the application, an incident the operator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cached_property

from msgspec.structs import replace

from oncewire.errors import TransientError, ValueNotRecognized
from oncewire.lab.sample_year.world import (
    PLAIN,
    REFUSED,
    TRANSIENT,
    Handler,
    Letter,
    Place,
    Stream,
    Trouble,
    World,
    other_digest,
)
from oncewire.message.envelope import Error, SequenceNumber, Severity
from oncewire.message.form import AckRequest
from oncewire.message.instant import MILLISECOND, MINUTE, SECOND, Instant
from oncewire.protocol import notes
from oncewire.protocol.notes import (
    Admit,
    Detail,
    Effect,
    Note,
    Notify,
    Pause,
    Raise,
    Resolve,
    Transmit,
)
from oncewire.protocol.receiver import (
    Arrival,
    First,
    Judgement,
    Refused,
    TurnedAway,
    give_up_gap,
    hold_deadline,
    judge,
    judge_copy,
    refuse,
)
from oncewire.protocol.receiving import ReceivingChannel
from oncewire.protocol.sender import (
    OPEN,
    SenderStep,
    Way,
    abandon,
    ack_arrived,
    attempt_due,
    enter_window,
    error_arrived,
    resume,
    transmission_failed,
)
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import FINAL_OUTGOING, Outgoing, OutgoingState, Phase, Proof
from oncewire.protocol.terms import Terms

RESTART_EVERY = 90
"""An idle stream is restarted on purpose after about so many numbers (SEQ-4)."""

_WAITING = (OutgoingState.OUTSTANDING, OutgoingState.SUSPENDED)


class Journey:
    """One letter on one hop, as its sending side sees it."""

    __slots__ = ("arrived", "letter", "outgoing", "side", "terms", "trouble", "wakes_at")

    def __init__(self, side: SendingSide, letter: Letter, outgoing: Outgoing) -> None:
        self.side, self.letter, self.outgoing = side, letter, outgoing
        twist = letter.twist
        self.terms = side.terms if twist is None else twist.terms(side.terms)
        self.trouble: Trouble = letter.troubles.get(side.hop, PLAIN)
        self.arrived = 0
        """How many attempts the other end has seen."""
        self.wakes_at: Instant | None = None


def ack_of(message_id: str, by: Handler) -> str:
    """The MessageId of an acknowledgement."""
    return f"ack-{message_id.partition('@')[0]}@{by.name}"


def _notes(*effects: Effect) -> tuple[Note, ...]:
    return tuple(effect for effect in effects if isinstance(effect, Note))


class SendingSide:
    """One handler that sends the messages of one stream to one other."""

    def __init__(
        self,
        world: World,
        handler: Handler,
        to: Handler,
        terms: Terms,
        *,
        hop: int = 1,
        channel: str | None = None,
    ) -> None:
        self._world, self.handler, self._to = world, handler, to
        self.terms, self.hop = terms, hop
        self.terms_id, self._signed = terms.terms_id, terms.ack_requested is AckRequest.SIGNED
        self._place, self._key = Place(handler, self.terms_id, hop, to.party), channel
        self._channel = None if channel is None else SendingChannel.open(channel, terms)
        self._waiting: deque[Journey] = deque()
        self._asleep: list[Journey] = []
        self._incidents: dict[str | None, str] = {}
        self._way = Way()
        self.deliver: Callable[[Instant, Journey], None]
        """What an attempt meets at the other end."""
        self.tell: Callable[[Instant, Journey, Severity], None] = self.notify
        """How it is told that a message failed."""
        self.heard: Callable[[Instant, Journey], None] | None = None
        """Told of every message that has come to an end."""

    # --- events ---

    def submit(self, when: Instant, letter: Letter) -> None:
        """A message is handed in: it is sent at once, or waits for a place in the window."""
        outgoing = Outgoing(
            letter.message_id,
            self.terms_id,
            when + self.handler.skew,
            self._key,
            expires_at=letter.expires_at,
        )
        journey = Journey(self, letter, outgoing)
        if self._channel is None:
            self._enter(when, journey)
            return
        self._waiting.append(journey)
        self._restart(when, self._channel, letter)
        self._admit(when)

    def goes_plainly(self, when: Instant, letter: Letter) -> bool:
        """Whether nothing but its id and its moments tells a message from others of its stream."""
        free = self._channel is None and self._way.paused_until <= when + self.handler.skew
        return free and letter.force is None and letter.troubles[self.hop] is PLAIN

    def send_plainly(self, when: Instant, letter: Letter) -> None:
        """Write the rows of a message that is sent and acknowledged without trouble, as most of a
        year are: the protocol makes them once, and each message gets a copy with its own ids."""
        for note in self._course[0]:
            self.write(when, replace(note, message_id=letter.message_id))

    def acknowledge_plainly(self, when: Instant, letter: Letter) -> None:
        """Write the rows of the acknowledgement of a message that `send_plainly` sent."""
        ack_id = ack_of(letter.message_id, self._to)
        for note in self._course[1]:
            self.write(when, replace(note, message_id=letter.message_id, ref_to=ack_id))

    @cached_property
    def _course(self) -> tuple[tuple[Note, ...], tuple[Note, ...]]:
        entered = enter_window(Outgoing("", self.terms_id, 0), None, self.terms, 0)
        sent = attempt_due(entered.outgoing, None, self.terms, 0)
        heard = ack_arrived(sent.outgoing, None, self.terms, ack_id="", signed=self._signed)
        return _notes(*entered.effects, *sent.effects), _notes(*heard.effects)

    def acknowledged(
        self, when: Instant, journey: Journey, by: Handler | None = None, *, hop: bool = False
    ) -> None:
        """Take an acknowledgement; `hop`: of a hub, which answers for the rest of the way."""
        message_id = journey.letter.message_id
        step = ack_arrived(
            journey.outgoing,
            self._channel,
            journey.terms,
            ack_id=ack_of(message_id, by or self._to),
            signed=self._signed and not hop,
            proof=Proof.HOP if hop else Proof.TO_PARTY,
        )
        self._perform(when, journey, step)
        if journey.letter.does("taken_back"):
            # Its sender believes a stranger more than the receiver.
            journey.outgoing = replace(journey.outgoing, proved_by=Proof.HOP)
            report = Error("DeliveryFailure", Severity.WARNING, "", "it did not get through")
            self._world.at(when + SECOND, self.refused, journey, report)

    def refused(self, when: Instant, journey: Journey, error: Error) -> None:
        """Take an error about a message."""
        error_id = f"err-{journey.letter.message_id}"
        step = error_arrived(
            journey.outgoing,
            self._channel,
            journey.terms,
            when + self.handler.skew,
            error=error,
            error_id=error_id,
        )
        self._perform(when, journey, step)

    def notify(self, when: Instant, journey: Journey, severity: Severity) -> None:
        """Let the application take the notice of a failure."""
        note = Note(notes.Notified(severity.value), journey.letter.message_id)
        self.write(when + 2 * MILLISECOND, note)

    # --- the window ---

    def _restart(self, when: Instant, channel: SendingChannel, letter: Letter) -> None:
        """An operator uses a quiet hour; faults count on their neighbours' numbers."""
        terms = self.terms
        quiet = letter.force is None and len(self._waiting) == 1 and not channel.suspended
        often = max(RESTART_EVERY, terms.window_size)
        if not quiet or channel.used < often or channel.unsettled(terms):
            return
        if channel.phase is Phase.RUNNING:
            self._channel = channel.restart(terms)
            ended = notes.EpochEnded("restarted by the operator")
            self.write(when, Note(ended, channel=channel.key, epoch=channel.epoch))

    def _admit(self, when: Instant) -> None:
        while self._waiting:
            journey, channel = self._waiting[0], self._channel
            if channel is None or (journey.letter.waits and channel.unsettled(self.terms)):
                return
            channel = self._miscounted(channel, journey.letter)
            if not channel.places(journey.terms):
                return
            self._waiting.popleft()
            self._channel, journey.letter.stamp = channel.stamp(when + self.handler.skew)
            self._enter(when, journey)

    def _miscounted(self, channel: SendingChannel, letter: Letter) -> SendingChannel:
        """The stream as a sender has it that counts wrongly here."""
        after, following = self.terms.numbers.after, channel.next_number
        if letter.does("number_left_out"):
            return replace(channel, next_number=after(following), first_unsettled=after(following))
        if letter.does("number_again"):
            return replace(channel, next_number=after(following, -1))
        if letter.does("early_reset"):
            settled: frozenset[int] = frozenset()
            ending = Phase.ENDING
            return replace(channel, phase=ending, first_unsettled=following, settled=settled)
        return channel

    def _enter(self, when: Instant, journey: Journey) -> None:
        now, terms = when + self.handler.skew, journey.terms
        entered = enter_window(journey.outgoing, self._channel, terms, now)
        if entered.outgoing.number is not None:
            number, status = entered.outgoing.number, entered.outgoing.status
            journey.letter.sequence = SequenceNumber(number, status)
        way = self._way_of(journey)
        step = attempt_due(entered.outgoing, entered.channel, terms, now, way)
        self._perform(when, journey, step, entered.effects)

    # --- what a step asks for ---

    def _perform(
        self, when: Instant, journey: Journey, step: SenderStep, before: tuple[Effect, ...] = ()
    ) -> None:
        journey.outgoing = step.outgoing
        lifted = False
        if step.channel is not None:
            lifted = self._channel is not None and self._channel.suspended
            self._channel = step.channel
            lifted = lifted and not step.channel.suspended
        admits = False
        for effect in (*before, *step.effects):
            if isinstance(effect, Note):
                self.write(when, effect)
            elif isinstance(effect, Transmit):
                world, trouble = self._world, journey.trouble
                if effect.attempt > trouble.lost:
                    world.at(when + world.latency(journey.letter), self.deliver, journey)
                elif trouble.certain:
                    known = when + world.latency(journey.letter)
                    world.at(known, self._failed, journey, effect.attempt, "connection refused")
                elif journey.letter.twist is None and world.rng.random() < 0.3:
                    known = when + 5 * SECOND
                    world.at(known, self._failed, journey, effect.attempt, "connection reset")
            elif isinstance(effect, Admit):
                admits = True
            else:
                self._do(when, journey, effect)
        if step.outgoing.state in FINAL_OUTGOING:
            if self.heard is not None and step.effects:
                self.heard(when, journey)
        elif journey.trouble is not PLAIN or not step.outgoing.attempts_here:
            # What goes plainly is answered long before any timer.
            self._set_timer(when, journey)
        if lifted:
            asleep, self._asleep = self._asleep, []
            for other in asleep:
                other.wakes_at = when
                self._world.at(when, self._wake, other, when)
        if admits:
            self._admit(when)

    def _do(self, when: Instant, journey: Journey, effect: Effect) -> None:
        """What does not happen to every message."""
        message_id = journey.letter.message_id
        if isinstance(effect, Notify):
            if journey.outgoing.state is OutgoingState.SENT:
                # The application is owed no news of a best-effort message (C34).
                return
            self.tell(when, journey, effect.severity)
            if journey.trouble.late:
                late = when + self._world.between(MINUTE, 30 * MINUTE)
                self._world.at(late, self.acknowledged, journey)
        elif isinstance(effect, Raise) and message_id not in self._incidents:
            number = self._incidents[message_id] = message_id[:8]
            incident = notes.Incident(number, effect.reason, "see why, then resume")
            self.write(when, Note(incident, message_id, channel=effect.channel))
            looked_at = when + self._world.between(5 * MINUTE, 60 * MINUTE)
            self._world.at(looked_at, self._operate, journey)
        elif isinstance(effect, Resolve):
            self._resolve(when, journey, effect.channel)
        elif isinstance(effect, Pause):
            self._way = Way(paused_until=max(effect.until, self._way.paused_until))

    def _resolve(self, when: Instant, journey: Journey, channel: str | None = None) -> None:
        number = self._incidents.pop(journey.letter.message_id, None)
        if number is not None:
            resolved = notes.Resolved(number, "operator")
            self.write(when, Note(resolved, journey.letter.message_id, channel=channel))

    def _operate(self, when: Instant, journey: Journey) -> None:
        """Let the operator resume: the trouble behind the incident is over."""
        outgoing, channel = journey.outgoing, self._channel
        if outgoing.state is OutgoingState.SUSPENDED:
            journey.trouble = PLAIN
            now = when + self.handler.skew
            self._perform(when, journey, resume(outgoing, channel, journey.terms, now))
        elif channel is not None and channel.suspended_by == outgoing.message_id:
            self._perform(when, journey, abandon(outgoing, channel, journey.terms))
        else:
            self._resolve(when, journey)

    def write(self, when: Instant, note: Note) -> None:
        """Write a row of the sending node."""
        self._world.writer.note(self._place, when, note)

    # --- the network and the clock ---

    def _failed(self, when: Instant, journey: Journey, attempt: int, reason: str) -> None:
        step = transmission_failed(
            journey.outgoing,
            self._channel,
            journey.terms,
            when + self.handler.skew,
            attempt=attempt,
            certain=journey.trouble.certain,
            reason=reason,
        )
        self._perform(when, journey, step)

    def _set_timer(self, when: Instant, journey: Journey) -> None:
        outgoing = journey.outgoing
        wakes_at, twist = outgoing.next_attempt_at, journey.letter.twist
        if wakes_at is None or (twist is not None and not twist.timers):
            return
        deadline = outgoing.deadline(journey.terms)
        if deadline is not None and deadline < wakes_at:
            wakes_at = deadline
        if wakes_at != journey.wakes_at:
            journey.wakes_at = wakes_at
            # Never early; a busy handler is a little late.
            late = self._world.between(0, 2 * SECOND)
            due = max(when, wakes_at - self.handler.skew + late)
            self._world.at(due, self._wake, journey, wakes_at)

    def _wake(self, when: Instant, journey: Journey, wakes_at: Instant) -> None:
        if journey.wakes_at != wakes_at or journey.outgoing.state not in _WAITING:
            return
        journey.wakes_at = None
        channel = self._channel
        if channel is not None and channel.suspended:
            self._asleep.append(journey)
            return
        now = when + self.handler.skew
        way = self._way_of(journey)
        step = attempt_due(journey.outgoing, channel, journey.terms, now, way)
        self._perform(when, journey, step)

    def _way_of(self, journey: Journey) -> Way:
        """A pause that another message brought about does not undo what is done wrong here."""
        return self._way if journey.letter.twist is None else OPEN


# The receiving side of one stream: arrivals are judged by the protocol, answered, handed over.

# The same for all messages; what RECEIVED tells is written once for a stream.
_RECEIVED, _ACK_SENT, _CONFIRMED = notes.Received(), notes.AckSent(), notes.Confirmed()


class ReceivingSide:
    """The handler of the To Party, for one stream."""

    def __init__(self, world: World, stream: Stream) -> None:
        self._world, self._handler = world, stream.receiver
        self.terms, self.terms_id = stream.terms, stream.terms.terms_id
        hop, peer = (1, stream.sender) if stream.hub is None else (2, stream.hub)
        self._here = Place(stream.receiver, self.terms_id)
        self._on_hop = Place(stream.receiver, self.terms_id, hop, peer.party)
        self._key = stream.channel
        self._channel = None if self._key is None else ReceivingChannel.open(self._key, self.terms)
        self._known: dict[str, str] = {}
        self._letters: dict[str, Letter] = {}
        self._late: Letter | None = None
        self._handed_at: Instant = 0
        # Where numbers wrap around within minutes, an old one handed over again looks new.
        self._redelivers = not self.terms.ordered or self.terms.numbers.size > 1_000
        self.gather: Callable[[Instant, Journey], None] | None = None
        """What becomes of parts."""

    # --- arriving ---

    def arrive(self, when: Instant, journey: Journey) -> None:
        """Judge an attempt that gets through."""
        letter, answer = journey.letter, journey.trouble.answer
        journey.arrived += 1
        if answer == TRANSIENT and journey.arrived == 1 and self.terms.reliable:
            later = TransientError("busy", min_retry_secs=self.terms.timeout // SECOND + 60)
            self._send_error(when, journey, Error.of(later))
            return
        digest = other_digest(letter.digest) if letter.does("altered") else letter.digest
        # A repeated number is let through, or it would be the receiver's fault too.
        sequence = None if letter.does("number_again") else letter.sequence
        arrival = Arrival(letter.message_id, digest, letter.stamp, sequence, letter.expires_at)
        known = self._known.get(letter.message_id)
        judged: Judgement | None
        if known is None and answer == REFUSED:
            fault = ValueNotRecognized("the year says so", location="//Service")
            self._refuse(when, journey, refuse(arrival, fault, self._channel, self.terms))
            return
        if known is not None:
            judged = judge_copy(arrival, known, self._channel)
        else:
            judged = judge(arrival, self._channel, self.terms, when + self._handler.skew)
        if isinstance(judged, First):
            self._store(when, letter, judged, digest)
            if self.gather is not None:
                self.gather(when, journey)
            else:
                self.acknowledge(when, journey)
        elif judged is None:
            what = notes.Duplicate(self.terms.duplicate_answer.value)
            self.write(when, Note(what, letter.message_id, channel=self._key), digest)
            self.acknowledge(when, journey)
        else:
            self._refuse(when, journey, judged)

    def arrive_plainly(self, when: Instant, letter: Letter) -> None:
        """The only attempt of a message gets through that belongs to no order."""
        arrival = Arrival(letter.message_id, letter.digest, letter.stamp)
        judged = judge(arrival, None, self.terms, when + self._handler.skew)
        if isinstance(judged, First):
            self._store(when, letter, judged, letter.digest)

    def _store(self, when: Instant, letter: Letter, judged: First, digest: str) -> None:
        self._take(when, letter, judged, digest)
        self._follow(when, judged.channel, judged.effects)
        if self.gather is not None:
            return
        if self.terms.reliable:
            self.write_ack(when, letter)
        self._deliver(when, judged.deliver)

    def _take(self, when: Instant, letter: Letter, judged: First, digest: str) -> None:
        """Store the first copy of a message."""
        self._known[letter.message_id] = digest
        self._letters[letter.message_id] = letter
        if judged.channel is not None:
            letter.epoch = judged.channel.epoch
        if judged.held:
            waits = hold_deadline(when, self.terms)
            self._world.at(waits, self._give_up_gap, letter)
        received = Note(*self._place(_RECEIVED, letter), transport="http")
        self.write(when, received, digest, letter.size, letter.received)

    def invent(self, when: Instant, letter: Letter) -> None:
        """Receive a message that was never submitted."""
        self._store(when, letter, First(None, (letter.message_id,)), letter.digest)

    def _refuse(self, when: Instant, journey: Journey, judged: Refused | TurnedAway) -> None:
        letter, error = journey.letter, judged.error
        what = notes.Refused(
            error.code, error.severity.value, error.location or None, error.description or None
        )
        self.write(when, Note(what, letter.message_id, channel=self._key), letter.digest)
        self._follow(when, judged.channel, judged.effects)
        self._send_error(when, journey, error)
        self._deliver(when, judged.deliver)

    def _follow(
        self, when: Instant, channel: ReceivingChannel | None, effects: tuple[Effect, ...]
    ) -> None:
        self._channel = channel
        for effect in effects:
            if isinstance(effect, Note):
                self._world.writer.note(self._here, when, effect)

    def _give_up_gap(self, when: Instant, letter: Letter) -> None:
        """Stop waiting for a number that was given up."""
        channel, sequence = self._channel, letter.sequence
        if channel is None or sequence is None:
            return
        if any(held.message_id == letter.message_id for held in channel.held):
            freed = give_up_gap(channel, sequence.number, self.terms)
            self._follow(when, freed.channel, freed.effects)
            self._deliver(when, freed.deliver)

    # --- answering ---

    def write_ack(self, when: Instant, letter: Letter) -> None:
        """Write the row that an acknowledgement may leave."""
        ack_id = ack_of(letter.message_id, self._handler)
        self.write(when, Note(_ACK_SENT, letter.message_id, ack_id))

    def acknowledge(self, when: Instant, journey: Journey) -> None:
        """Send the acknowledgement, which arrives or not."""
        trouble = journey.trouble
        if journey.arrived <= trouble.acks_lost or not self.terms.reliable:
            return
        back = when + 5 * MILLISECOND + self._world.latency(journey.letter) + trouble.ack_after
        self._world.at(back, journey.side.acknowledged, journey)

    def _send_error(self, when: Instant, journey: Journey, error: Error) -> None:
        back = when + self._world.latency(journey.letter)
        self._world.at(back, journey.side.refused, journey, error)

    # --- handing over ---

    def _deliver(self, when: Instant, message_ids: tuple[str, ...]) -> None:
        """Deliver in order where that is agreed, else at once."""
        between = self._world.between
        for message_id in message_ids:
            letter = self._letters.pop(message_id)
            if letter.does("handed_over_first"):
                self.hand_over(when - 2, letter)
            elif not self.terms.ordered:
                self.hand_over(when + between(MILLISECOND, 3 * SECOND), letter)
            elif letter.does("after_the_next"):
                self._late = letter
            else:
                ready = when + between(4 * MILLISECOND, 15 * MILLISECOND)
                self._in_turn(ready, letter)
                if self._late is not None:
                    late, self._late = self._late, None
                    self._in_turn(ready, late)

    def _in_turn(self, when: Instant, letter: Letter) -> None:
        self._handed_at = max(self._handed_at + 2, when)
        self.hand_over(self._handed_at, letter)

    def hand_over(self, when: Instant, letter: Letter, document: str | None = None) -> None:
        """Hand a message to the application, which mostly confirms it at once."""
        self._hand_over(when, letter, notes.HandedOver(split_id=document))
        confirmed = when + self._world.between(MILLISECOND, 30 * MILLISECOND)
        honest = letter.twist is None and document is None and self._redelivers
        if honest and self._world.rng.random() < 0.01:
            again, said = self._redelivery(when)
            self._hand_over(again, letter, said)
            confirmed = again + SECOND
        self.write(confirmed, Note(_CONFIRMED, letter.message_id))

    def _hand_over(self, when: Instant, letter: Letter, what: notes.HandedOver) -> None:
        digest = other_digest(letter.digest) if letter.does("altered") else letter.digest
        self.write(when, Note(*self._place(what, letter)), digest, letter.size)

    def give_to_document(self, when: Instant, letter: Letter) -> None:
        """A part is its document's: that is its hand-over, and its confirmation too."""
        self._hand_over(when, letter, notes.HandedOver(split_id=letter.document))

    def _redelivery(self, when: Instant) -> tuple[Instant, notes.HandedOver]:
        """The application died with it: its lease runs out, or the handler is started again."""
        handler = self._handler
        boot = handler.boot_at(when)
        starts = handler.boots[boot + 1] if boot + 1 < len(handler.boots) else None
        if starts is not None and starts - when < 20 * MINUTE:
            return starts + SECOND, notes.HandedOver(redelivered=True)
        return when + 15 * MINUTE, notes.HandedOver(redelivered=True, lease_expired=True)

    # --- rows ---

    def _place(
        self, what: Detail, letter: Letter
    ) -> tuple[Detail, str, None, str | None, int | None, int | None]:
        number = None if letter.sequence is None else letter.sequence.number
        return what, letter.message_id, None, self._key, letter.epoch, number

    def write(
        self,
        when: Instant,
        note: Note,
        digest: str | None = None,
        size: int | None = None,
        detail: str | None = None,
    ) -> None:
        """Write a row of the receiving node; `detail`: what it tells, where that was written."""
        self._world.writer.note(self._on_hop, when, note, digest, size, detail)
