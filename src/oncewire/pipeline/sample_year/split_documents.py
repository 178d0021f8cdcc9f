"""Documents of the year that travel in parts: cut at one end, put together at the other."""

from __future__ import annotations

from dataclasses import replace

from oncewire.message.fault import Severity
from oncewire.message.instant import MILLISECOND, Instant
from oncewire.pipeline.sample_year.letter import Letter
from oncewire.pipeline.sample_year.receiving_side import ReceivingSide
from oncewire.pipeline.sample_year.sending_side import Journey, SendingSide
from oncewire.pipeline.sample_year.world import World
from oncewire.protocol import notes
from oncewire.protocol.documents import (
    DocumentState,
    SplitDocument,
    part_failed,
    part_id,
    parts_arrived,
)
from oncewire.protocol.effects import Note, Notify
from oncewire.protocol.outgoing import Outgoing
from oncewire.protocol.sender import SenderStep, enter_window
from oncewire.protocol.states import OutgoingState, Proof

PARTS = 4
"""Parts of every split document of the year."""


class DocumentsSent:
    """The documents of one stream at their sender: each has the outcome that its parts give it."""

    def __init__(self, side: SendingSide) -> None:
        self._side = side
        self._documents: dict[str, tuple[SplitDocument, Outgoing]] = {}
        side.tell = self._part_told
        side.heard = self._part_ended

    def submit(self, when: Instant, whole: Letter, parts: list[Letter]) -> None:
        """All parts go at once: there are few."""
        now, terms = when + self._side.handler.skew, self._side.terms
        waiting = Outgoing(whole.message_id, self._side.terms_id, now, expires_at=whole.expires_at)
        entered = enter_window(waiting, None, terms, now).outgoing
        document = SplitDocument("", whole.message_id, len(parts), self._side.terms_id, now)
        self._documents[whole.message_id] = document, entered
        for part in parts:
            self._side.submit(when, part)

    def _part_told(self, when: Instant, journey: Journey, severity: Severity) -> None:
        """Nobody is told of a part."""

    def _part_ended(self, when: Instant, journey: Journey) -> None:
        split_id, number = journey.letter.document or "", journey.letter.part or 0
        document, whole = self._documents[split_id]
        state = journey.outgoing.state
        if state is OutgoingState.DELIVERED:
            document = document.add(number)
            self._documents[split_id] = document, whole
            if document.complete and document.state is not DocumentState.WHOLE:
                done = document.moved(DocumentState.WHOLE)
                self._end(when, done, parts_arrived(whole, Proof.TO_PARTY))
        elif document.state is DocumentState.OPEN:
            certain = state is OutgoingState.NOT_DELIVERED
            step = part_failed(whole, journey.outgoing.reason, certain=certain)
            self._end(when, document.moved(DocumentState.FAILED), step)

    def _end(self, when: Instant, document: SplitDocument, step: SenderStep) -> None:
        self._documents[document.split_id] = document, step.outgoing
        for effect in step.effects:
            if isinstance(effect, Note):
                self._side.write(when, effect)
            elif isinstance(effect, Notify):
                told = notes.Notified(effect.severity.value)
                self._side.write(when + 2 * MILLISECOND, Note(told, document.split_id))


class DocumentsReceived:
    """The documents of one stream at their receiver: each is handed over when it is whole."""

    def __init__(self, world: World, side: ReceivingSide) -> None:
        self._world, self._side = world, side
        self._documents: dict[str, SplitDocument] = {}
        self.wholes: dict[str, Letter] = {}
        """The documents as they were cut, by their id."""
        side.gather = self._gather

    def _gather(self, when: Instant, journey: Journey) -> None:
        """A part is stored. The last one is acknowledged when the document is whole."""
        letter, side = journey.letter, self._side
        whole = self.wholes[letter.document or ""]
        split_id = whole.message_id
        document = self._documents.get(split_id)
        if document is None:
            document = SplitDocument(split_id, split_id, PARTS, side.terms_id, when)
            self._world.at(when + side.terms.persist_duration, self._give_up, split_id)
        document = replace(document.add(letter.part or 0, letter.size), latest_at=when)
        side.give_to_document(when, letter)
        missing = 1 if whole.does("missing_part") else 0
        if document.count + missing < document.total:
            self._documents[split_id] = document
            side.write_ack(when, letter)
            side.acknowledge(when, journey)
            return
        self._documents[split_id] = document.moved(DocumentState.WHOLE)
        joined = when + 10 * MILLISECOND
        note = Note(notes.Joined(document.total), split_id)
        side.write(joined, note, whole.digest, whole.size)
        side.write_ack(joined, letter)
        side.acknowledge(joined, journey)
        side.hand_over(joined + MILLISECOND, whole, split_id)

    def _give_up(self, when: Instant, split_id: str) -> None:
        """No part came for persistDuration, and one is missing."""
        document, persist = self._documents[split_id], self._side.terms.persist_duration
        if document.state is not DocumentState.OPEN:
            return
        if document.latest_at + persist > when:
            self._world.at(document.latest_at + persist, self._give_up, split_id)
            return
        self._documents[split_id] = document.moved(DocumentState.FAILED)
        problem = f"{document.total - document.count} of its parts never came"
        what = notes.Refused(
            "DeliveryFailure", location="//SplitId", problem=problem, split_id=split_id
        )
        self._side.write(when, Note(what, split_id))


def cut(whole: Letter, details: tuple[str, str]) -> list[Letter]:
    """The parts of a document; `details`: what rows of a part tell, but for its number."""
    submitted, received = details
    parts = []
    for number in range(1, PARTS + 1):
        name = part_id(whole.message_id, number, PARTS)
        said = f',"split_id":"{whole.message_id}","split_number":{number},"split_total":{PARTS}}}'
        part = Letter(
            name,
            f"{number:02x}{whole.digest[2:]}",
            whole.size // PARTS,
            f"{submitted[:-1]}{said}",
            f"{received[:-1]}{said}",
            document=whole.message_id,
            part=number,
        )
        part.expires_at = whole.expires_at
        parts.append(part)
    return parts
