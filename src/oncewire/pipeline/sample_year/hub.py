"""An intermediary of the year: it takes responsibility at once, and carries on by itself."""

from __future__ import annotations

from oncewire.message.fault import Error, Severity
from oncewire.message.instant import MILLISECOND, SECOND, Instant
from oncewire.pipeline.sample_year.letter import Letter
from oncewire.pipeline.sample_year.sending_side import Journey, SendingSide, ack_of
from oncewire.pipeline.sample_year.stream import Handler, Stream
from oncewire.pipeline.sample_year.world import World
from oncewire.protocol import notes
from oncewire.protocol.effects import Note
from oncewire.protocol.states import OutgoingState


class Hub:
    """One hub between the two ends of one stream."""

    def __init__(self, world: World, stream: Stream, handler: Handler) -> None:
        self._world, self._stream, self._handler = world, stream, handler
        self._terms_id = stream.terms.terms_id
        self._journeys: dict[str, Journey] = {}
        self.onward = SendingSide(world, handler, stream.receiver, stream.terms, hop=2)
        self.onward.tell = self._report
        self.onward.heard = self._relay

    def arrive(self, when: Instant, journey: Journey) -> None:
        """An attempt of the From Party's handler gets through."""
        letter = journey.letter
        journey.arrived += 1
        if letter.message_id in self._journeys:
            what = notes.Duplicate(self._stream.terms.duplicate_answer.value)
            self._write(when, Note(what, letter.message_id), letter, hop=1)
        else:
            self._journeys[letter.message_id] = journey
            self._take(when, letter)
        if journey.arrived > journey.trouble.acks_lost:
            back = when + 5 * MILLISECOND + self._world.latency(letter)
            self._world.at(back, self._acknowledged, journey)

    def _acknowledged(self, when: Instant, journey: Journey) -> None:
        journey.side.acknowledged(when, journey, hop=True)

    def _take(self, when: Instant, letter: Letter) -> None:
        sender, receiver = self._stream.sender.party, self._stream.receiver.party
        received = Note(notes.Received(), letter.message_id, transport="http")
        self._write(when, received, letter, hop=1, detail=letter.received)
        ack_id = ack_of(letter.message_id, self._handler)
        acked = Note(notes.AckSent(hop=True), letter.message_id, ack_id)
        self._write(when, acked, None, hop=1)
        forwarded = notes.Forwarded(sender, receiver, letter.expires_at)
        self._write(when, Note(forwarded, letter.message_id), letter, hop=2)
        if not letter.does("not_passed_on"):
            self.onward.submit(when, letter)

    def _report(self, when: Instant, onward: Journey, severity: Severity) -> None:
        """The From Party, whose handler had its word, is told that it was in vain (HOP-9)."""
        self.onward.notify(when, onward, severity)
        journey = self._journeys[onward.letter.message_id]
        report = Error("DeliveryFailure", severity, "", onward.outgoing.reason)
        self._world.at(when + SECOND, journey.side.refused, journey, report)

    def _relay(self, when: Instant, onward: Journey) -> None:
        """The receipt of the To Party itself travels back through the hub."""
        if onward.outgoing.state is OutgoingState.DELIVERED:
            journey = self._journeys[onward.letter.message_id]
            back = when + 50 * MILLISECOND
            self._world.at(back, journey.side.acknowledged, journey, self._stream.receiver)

    def _write(
        self,
        when: Instant,
        note: Note,
        letter: Letter | None,
        *,
        hop: int,
        detail: str | None = None,
    ) -> None:
        peer = self._stream.sender.party if hop == 1 else self._stream.receiver.party
        self._world.writer.note(
            self._handler,
            when,
            note,
            terms_id=self._terms_id,
            hop=hop,
            peer=peer,
            digest=None if letter is None else letter.digest,
            size=None if letter is None else letter.size,
            detail=detail,
        )
