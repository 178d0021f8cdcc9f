"""The sending window of one stream of the year: when each message enters, and with which number."""

from __future__ import annotations

from oncewire.message.instant import MILLISECOND, Instant
from oncewire.message.sequence import SequenceStatus
from oncewire.pipeline.sample_year.row_writer import Place, RowWriter
from oncewire.pipeline.sample_year.stream import Force, Stream
from oncewire.protocol import notes
from oncewire.protocol.kinds import Kind
from oncewire.protocol.terms import ResetRule

RESTART_EVERY = 90
"""An idle stream is restarted on purpose after about so many numbers (SEQ-4)."""


class Numbering:
    """Messages enter in order of submission; settlements are known when the next one enters."""

    def __init__(self, writer: RowWriter, stream: Stream) -> None:
        self._writer, self._stream = writer, stream
        self._epoch = 0
        self._first = stream.terms.numbers.first
        self._next = self._first
        # For each number of the epoch in turn: the latest settlement up to it.
        self._settled: list[Instant] = []
        self._used = 0
        self._entered: Instant = 0
        self._ends: Instant | None = None
        self._blocked: tuple[Instant, Instant] = (0, 0)
        self._position = -1

    def enter(self, message_id: str, when: Instant, force: Force) -> tuple[Instant, Place, Place]:
        """Give the next number: when, and the place at the sender and at the receiver."""
        terms = self._stream.terms
        self._position += 1
        when = max(when, self._entered + 2)
        if force.misbehaviour != "beyond_window":
            when = max(when, self._free())
        if self._begins_region and self._settled:
            # What is in trouble before a fault could fill the window or end the epoch within it.
            when = max(when, self._settled[-1] + 1)
        if force.misbehaviour == "number_left_out" and self._settled:
            # In a full window it would lie beyond the window as well.
            when = max(when, self._settled[-1] + 1)
        if self._blocked[0] <= when <= self._blocked[1]:
            when = self._blocked[1] + MILLISECOND
        if self._must_restart(when, force):
            when = self._restart(when, force)
        number = self._number(force)
        self._writer.write(
            self._stream.sender,
            when,
            Kind.NUMBERED,
            message_id,
            terms_id=terms.terms_id,
            place=Place(self._stream.channel, self._epoch, number),
            detail=notes.Numbered(self._status(force)).write(),
        )
        self._entered = when
        self._used += 1
        self._next = terms.numbers.after(number)
        # A receiver counts epochs by itself, from 0.
        return (
            when + 1,
            Place(self._stream.channel, self._epoch, number),
            Place(self._stream.channel, self._epoch - 1, number),
        )

    @property
    def _begins_region(self) -> bool:
        """Whether this message is the first of those that a fault needs to go plainly."""
        forces = self._stream.forces
        return self._position in forces and self._position - 1 not in forces

    @property
    def opening(self) -> bool:
        """Whether the message that entered last is the first of its epoch."""
        return self._used == 1

    def settled(self, when: Instant) -> None:
        """The message that entered last is settled then."""
        if self._stream.terms.numbered:
            self._settled.append(max(when, self._settled[-1] if self._settled else 0))

    def given_up(self, when: Instant) -> None:
        """Its number is given up, and the epoch ends."""
        self._ends = when if self._ends is None else min(when, self._ends)

    def suspended(self, start: Instant, end: Instant) -> None:
        """Nothing enters between these instants."""
        self._blocked = (start, end)

    def _free(self) -> Instant:
        """When there is a place in the window; the opener of an epoch travels alone."""
        window = self._stream.terms.window_size
        if len(self._settled) == 1:
            return self._settled[0] + 1
        if len(self._settled) >= window:
            return self._settled[len(self._settled) - window] + 1
        return 0

    def _must_restart(self, when: Instant, force: Force) -> bool:
        if self._epoch == 0 or force.misbehaviour == "early_reset":
            return True
        if self._ends is not None:
            return self._ends <= when
        idle = bool(self._settled) and self._settled[-1] < when
        # Faults count on their neighbours' numbers.
        quiet = not any(
            index in self._stream.forces for index in (self._position, self._position + 1)
        )
        window = self._stream.terms.window_size
        return idle and quiet and self._used >= max(RESTART_EVERY, window)

    def _restart(self, when: Instant, force: Force) -> Instant:
        if self._settled and force.misbehaviour != "early_reset":
            when = max(when, self._settled[-1] + 2)
        if self._epoch and self._ends is None:
            self._writer.write(
                self._stream.sender,
                when - 1,
                Kind.EPOCH_ENDED,
                place=Place(self._stream.channel, self._epoch),
                detail=notes.EpochEnded("restarted by the operator").write(),
            )
        self._epoch += 1
        self._next, self._used = self._first, 0
        self._settled, self._ends = [], None
        return when

    def _number(self, force: Force) -> int:
        numbers = self._stream.terms.numbers
        if force.misbehaviour == "number_left_out":
            return numbers.after(self._next)
        if force.misbehaviour == "number_again":
            return numbers.after(self._next, -1)
        return self._next

    def _status(self, force: Force) -> str | None:
        terms = self._stream.terms
        if terms.reset is ResetRule.SILENT:
            return None
        marked = terms.window_size if terms.reset is ResetRule.FIRST_WINDOW else 1
        is_reset = (self._used < marked) != (force.misbehaviour == "wrong_status")
        return (SequenceStatus.RESET if is_reset else SequenceStatus.CONTINUE).value
