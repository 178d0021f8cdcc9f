"""The receiving side of one stream: arrivals are judged by the protocol, answered, handed over."""

from __future__ import annotations

from collections.abc import Callable

from oncewire.errors import TransientError, ValueNotRecognized
from oncewire.lab.sample_year.sending_side import Journey, ack_of
from oncewire.lab.sample_year.world import REFUSED, TRANSIENT, Letter, Stream, World, other_digest
from oncewire.message.envelope import Error
from oncewire.message.instant import MILLISECOND, MINUTE, SECOND, Instant
from oncewire.protocol import notes
from oncewire.protocol.notes import Detail, Effect, Note
from oncewire.protocol.receiver import (
    Arrival,
    Duplicate,
    First,
    Refused,
    Remembered,
    TurnedAway,
    give_up_gap,
    hold_deadline,
    judge,
    refuse,
)
from oncewire.protocol.receiving import ReceivingChannel

# The same for all messages; what RECEIVED tells is written once for a stream.
_RECEIVED, _ACK_SENT, _CONFIRMED = notes.Received(), notes.AckSent(), notes.Confirmed()


class ReceivingSide:
    """The handler of the To Party, for one stream."""

    def __init__(self, world: World, stream: Stream) -> None:
        self._world, self._handler = world, stream.receiver
        self.terms, self.terms_id = stream.terms, stream.terms.terms_id
        self._hop = 1 if stream.hub is None else 2
        self._peer = (stream.hub or stream.sender).party
        self._key = stream.channel
        self._channel = None if self._key is None else ReceivingChannel.open(self._key, self.terms)
        self._known: dict[str, Remembered] = {}
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
        now = when + self._handler.skew
        if known is None and answer == REFUSED:
            fault = ValueNotRecognized("the year says so", location="//Service")
            self._refuse(when, journey, refuse(arrival, fault, self._channel, self.terms))
            return
        judged = judge(arrival, known, self._channel, self.terms, now)
        if isinstance(judged, First):
            self._store(when, letter, judged, digest)
            if self.gather is not None:
                self.gather(when, journey)
            else:
                self.acknowledge(when, journey)
        elif isinstance(judged, Duplicate):
            what = notes.Duplicate(self.terms.duplicate_answer.value)
            self.write(when, Note(what, letter.message_id, channel=self._key), digest)
            self.acknowledge(when, journey)
        else:
            self._refuse(when, journey, judged)

    def arrive_plainly(self, when: Instant, letter: Letter) -> None:
        """The only attempt of a message gets through that belongs to no order."""
        arrival = Arrival(letter.message_id, letter.digest, letter.stamp)
        judged = judge(arrival, None, None, self.terms, when + self._handler.skew)
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
        self._known[letter.message_id] = Remembered(letter.message_id, digest)
        self._letters[letter.message_id] = letter
        if judged.channel is not None:
            letter.epoch = judged.channel.epoch
        if judged.held:
            waits = hold_deadline(when, self.terms)
            self._world.at(waits, self._give_up_gap, letter)
        received = Note(*self._place(_RECEIVED, letter), transport="http")
        self._world.writer.note(
            self._handler,
            when,
            received,
            terms_id=self.terms_id,
            hop=self._hop,
            peer=self._peer,
            digest=digest,
            size=letter.size,
            detail=letter.received,
        )

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
                self._world.writer.note(self._handler, when, effect, terms_id=self.terms_id)

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
    ) -> None:
        """Write a row of the receiving node."""
        self._world.writer.note(
            self._handler,
            when,
            note,
            terms_id=self.terms_id,
            hop=self._hop,
            peer=self._peer,
            digest=digest,
            size=size,
        )
