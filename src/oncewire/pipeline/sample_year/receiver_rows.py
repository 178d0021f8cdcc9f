"""What the receiving side writes: arrivals, answers, hand-overs, in the order of the numbers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from random import Random

from oncewire.message.instant import MILLISECOND, MINUTE, SECOND, Instant
from oncewire.pipeline.sample_year.row_writer import NOWHERE, Place, RowWriter
from oncewire.pipeline.sample_year.sender_rows import ack_of
from oncewire.pipeline.sample_year.stream import Force, Stream
from oncewire.protocol import notes
from oncewire.protocol.kinds import Kind


@dataclass(slots=True)
class Arrived:
    """One message as its receiver sees it."""

    message_id: str
    digest: str
    size: int
    received: str | None
    """The detail of the RECEIVED row."""
    epoch: int = 0
    number: int | None = None
    arrivals: list[Instant] = field(default_factory=list)
    """When its copies come; empty if none ever does."""
    refused: str = ""
    """The code it is refused with."""
    force: Force = field(default_factory=Force)
    split_id: str | None = None

    @property
    def taken(self) -> bool:
        """Whether it arrived at all, and was not refused."""
        return bool(self.arrivals) and not self.refused


class Receiver:
    """Plays the receiver of one stream, once all that arrives is known."""

    def __init__(self, writer: RowWriter, rng: Random, stream: Stream) -> None:
        self._writer, self._rng, self._stream = writer, rng, stream
        self._terms_id = stream.terms.terms_id
        self._peer = stream.hub.party if stream.hub is not None else stream.sender.party
        self._hop = 2 if stream.hub is not None else 1
        # Where numbers wrap around within minutes, an old one handed over again looks new.
        self._redelivers = not stream.terms.ordered or stream.terms.numbers.size > 1_000

    def play(self, messages: list[Arrived]) -> None:
        """Write every arrival, then hand over: by number where order is agreed."""
        for arrived in messages:
            self._arrive(arrived)
        if not self._stream.terms.ordered:
            for arrived in messages:
                if arrived.taken and arrived.split_id is None:
                    wait = self._rng.randrange(MILLISECOND, 3 * SECOND)
                    self._hand_over(arrived, arrived.arrivals[0] + wait)
            return
        epochs: dict[int, list[Arrived]] = {}
        for arrived in messages:
            epochs.setdefault(arrived.epoch, []).append(arrived)
        cursor = 0
        for epoch in sorted(epochs):
            cursor = self._hand_over_epoch(epochs[epoch], self._opened(epochs, epoch + 1), cursor)

    @staticmethod
    def _opened(epochs: dict[int, list[Arrived]], epoch: int) -> Instant | None:
        """When the first message of an epoch arrives."""
        found = [arrived.arrivals[0] for arrived in epochs.get(epoch, ()) if arrived.arrivals]
        return min(found, default=None)

    # --- arriving ---

    def _place(self, arrived: Arrived) -> Place:
        if arrived.number is None:
            return NOWHERE
        return Place(self._stream.channel, arrived.epoch, arrived.number)

    def _place_given(self, arrived: Arrived) -> Place:
        """The place that a hand-over names."""
        if arrived.force.misbehaviour != "other_number" or arrived.number is None:
            return self._place(arrived)
        return Place(self._stream.channel, arrived.epoch, arrived.number + 1)

    def _arrive(self, arrived: Arrived) -> None:
        if not arrived.arrivals:
            return
        first = arrived.arrivals[0]
        if arrived.refused:
            self._refuse(arrived, first)
            return
        if arrived.force.misbehaviour == "ack_before_store":
            self._acknowledge(arrived, first - 3)
        self._receive(arrived, first)
        if arrived.force.misbehaviour == "forgotten":
            self._receive(arrived, first + 20 * SECOND)
        if arrived.force.misbehaviour != "ack_before_store":
            self._acknowledge(arrived, first + 2 * MILLISECOND)
        for again in arrived.arrivals[1:]:
            self._duplicate(arrived, again)

    def _receive(self, arrived: Arrived, when: Instant) -> None:
        self._writer.write(
            self._stream.receiver,
            when,
            Kind.RECEIVED,
            arrived.message_id,
            terms_id=self._terms_id,
            place=self._place(arrived),
            hop=self._hop,
            peer=self._peer,
            transport="http",
            digest=arrived.digest,
            size=arrived.size,
            detail=arrived.received,
        )

    def _acknowledge(self, arrived: Arrived, when: Instant) -> None:
        self._writer.write(
            self._stream.receiver,
            when,
            Kind.ACK_SENT,
            arrived.message_id,
            ref_to=ack_of(arrived.message_id, self._stream.receiver),
            hop=self._hop,
            peer=self._peer,
        )

    def _duplicate(self, arrived: Arrived, when: Instant) -> None:
        self._writer.write(
            self._stream.receiver,
            when,
            Kind.DUPLICATE,
            arrived.message_id,
            place=Place(self._stream.channel),
            hop=self._hop,
            peer=self._peer,
            digest=arrived.digest,
            detail=notes.Duplicate(self._stream.terms.duplicate_answer.value).write(),
        )
        self._acknowledge(arrived, when + MILLISECOND)

    def _refuse(self, arrived: Arrived, when: Instant) -> None:
        self._writer.write(
            self._stream.receiver,
            when,
            Kind.REFUSED,
            arrived.message_id,
            peer=self._peer,
            digest=arrived.digest,
            detail=notes.Refused(arrived.refused, problem="the year says so").write(),
        )
        if arrived.number is not None and arrived.force.misbehaviour != "no_skip":
            self._skip(arrived, when + 1, "refused")

    def _skip(self, arrived: Arrived, when: Instant, reason: str) -> None:
        self._writer.write(
            self._stream.receiver,
            when,
            Kind.SKIPPED,
            arrived.message_id if arrived.refused else None,
            terms_id=self._terms_id,
            place=self._place(arrived),
            detail=notes.Skipped(reason).write(),
        )

    # --- handing over ---

    def _hand_over_epoch(
        self, messages: list[Arrived], next_opened: Instant | None, cursor: Instant
    ) -> Instant:
        """In order of the numbers; what never came is skipped once that is known."""
        if messages[0].epoch > 0 and messages[0].arrivals:
            self._writer.write(
                self._stream.receiver,
                messages[0].arrivals[0] - 1,
                Kind.EPOCH_BEGAN,
                place=Place(self._stream.channel, messages[0].epoch),
            )
        late: Arrived | None = None
        for index, arrived in enumerate(messages):
            if not arrived.arrivals:
                cursor = self._pass_missing(arrived, messages[index + 1 :], next_opened, cursor)
                continue
            if arrived.refused:
                cursor = max(cursor, arrived.arrivals[0] + 2)
                continue
            if arrived.force.misbehaviour == "after_the_next":
                late = arrived
                continue
            ready = arrived.arrivals[0] + self._rng.randrange(4 * MILLISECOND, 15 * MILLISECOND)
            cursor = max(cursor + 2, ready)
            self._hand_over(arrived, cursor)
            if late is not None:
                # Late, but not before it has come.
                cursor = max(cursor + 2, late.arrivals[0] + 4 * MILLISECOND)
                self._hand_over(late, cursor)
                late = None
        return cursor

    def _pass_missing(
        self, arrived: Arrived, later: list[Arrived], next_opened: Instant | None, cursor: Instant
    ) -> Instant:
        waiting = [held.arrivals[0] for held in later if held.arrivals]
        if not waiting:
            return cursor
        known = min(waiting) + self._stream.terms.persist_duration
        if next_opened is not None:
            known = min(known, next_opened - 2)
        when = max(cursor + 1, known)
        self._skip(arrived, when, "given up" if next_opened is not None else "never came")
        return when

    def _hand_over(self, arrived: Arrived, when: Instant) -> None:
        misbehaviour = arrived.force.misbehaviour
        if misbehaviour == "never_handed_over":
            return
        if misbehaviour == "handed_over_first":
            when = arrived.arrivals[0] - 2
        self._handed_over(arrived, when)
        if misbehaviour == "never_confirmed":
            return
        confirmed = when + self._rng.randrange(MILLISECOND, 30 * MILLISECOND)
        if not misbehaviour and self._redelivers and self._rng.random() < 0.01:
            confirmed = self._redeliver(arrived, when)
        self._confirm(arrived, confirmed)
        if misbehaviour == "handed_over_twice":
            self._handed_over(arrived, confirmed + SECOND)
            self._confirm(arrived, confirmed + 2 * SECOND)

    def _redeliver(self, arrived: Arrived, when: Instant) -> Instant:
        """The application died with it: its lease runs out, or the handler is started again."""
        handler = self._stream.receiver
        boot = handler.boot_at(when)
        starts = handler.boots[boot + 1] if boot + 1 < len(handler.boots) else None
        if starts is not None and starts - when < 20 * MINUTE:
            again, said = starts + SECOND, notes.HandedOver(redelivered=True)
        else:
            again = when + 15 * MINUTE
            said = notes.HandedOver(redelivered=True, lease_expired=True)
        self._handed_over(arrived, again, said)
        return again + SECOND

    def _handed_over(
        self, arrived: Arrived, when: Instant, said: notes.HandedOver | None = None
    ) -> None:
        self._writer.write(
            self._stream.receiver,
            when,
            Kind.HANDED_OVER,
            arrived.message_id,
            terms_id=self._terms_id,
            place=self._place_given(arrived),
            peer=self._peer,
            digest=_given(arrived),
            size=arrived.size,
            detail=None if said is None else said.write(),
        )

    def _confirm(self, arrived: Arrived, when: Instant) -> None:
        self._writer.write(self._stream.receiver, when, Kind.CONFIRMED, arrived.message_id)

    # --- documents ---

    def join(self, split_id: str, parts: list[Arrived], digest: str) -> None:
        """Hand a document over once its parts are there."""
        here = [arrived for arrived in parts if arrived.taken]
        if len(here) < len(parts) and not any(
            arrived.force.misbehaviour == "missing_part" for arrived in parts
        ):
            return  # A part is missing, and an honest handler waits for it.
        when = max(arrived.arrivals[0] for arrived in here) + 10 * MILLISECOND
        stream = self._stream
        self._writer.write(
            stream.receiver,
            when,
            Kind.JOINED,
            split_id,
            terms_id=self._terms_id,
            peer=self._peer,
            digest=digest,
            size=sum(arrived.size for arrived in parts),
            detail=notes.Joined(len(parts)).write(),
        )
        said = notes.HandedOver(split_id=split_id)
        for offset, arrived in enumerate(here):
            self._handed_over(arrived, when + 1 + offset, said)
        whole = Arrived(split_id, digest, sum(arrived.size for arrived in parts), None)
        self._handed_over(whole, when + 50, said)
        self._confirm(whole, when + 20 * MILLISECOND)


def document_digest(split_id: str) -> str:
    """The digest of a document of the year."""
    return hashlib.sha256(split_id.encode()).hexdigest()


def _given(arrived: Arrived) -> str:
    """The digest of what the application is given."""
    if arrived.force.misbehaviour != "given_otherwise":
        return arrived.digest
    return hashlib.sha256(arrived.digest.encode()).hexdigest()
