"""ReceivingChannel: one numbered stream at its receiver, and what a number means there.

The MessageId is judged before anything here is asked, so a late copy of a known message
never reaches this module. What arrives here is a message never seen before, and the
question is whether its number fits: next, early, of a new epoch, or impossible.

Within an epoch, later numbers carry later timestamps. That decides the two cases the
drafts leave open: a Reset-marked number that also fits the old epoch, and a straggler of
an old epoch that would fit the new one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from oncewire.message.instant import Instant
from oncewire.message.sequence import SequenceNumber, SequenceStatus
from oncewire.protocol.sequence import DuplicationWindow
from oncewire.protocol.terms import OnGap, ResetRule, Terms


class Fit(StrEnum):
    """How a number fits its channel."""

    NEXT = "next"  # the expected one
    EARLY = "early"  # inside the window, but something before it is missing
    NEW_EPOCH = "new epoch"  # the sender restarted its numbering
    GAP = "gap"  # early, and the agreement rejects gaps
    TAKEN = "taken"  # the number belongs to another message, or is older than the window
    BEYOND = "beyond"  # further ahead than the window allows


@dataclass(frozen=True, slots=True)
class Held:
    """A stored message that waits for an earlier number, or a number that was refused."""

    number: int
    message_id: str
    # A refused number is settled, but there is nothing to hand over.
    refused: bool = False


@dataclass(frozen=True, slots=True)
class ReceivingChannel:
    """State of one stream; `held` never grows beyond W entries (SW-9)."""

    key: str
    epoch: int = 0
    # The next number to hand over, and how many numbers of this epoch are behind it.
    expected: int = 0
    passed: int = 0
    # EDW: the furthest number received, None before the first.
    furthest: int | None = None
    held: tuple[Held, ...] = ()
    # The newest timestamp of this epoch and of the one before.
    newest_stamp: Instant = -1
    previous_stamp: Instant = -1

    @classmethod
    def open(cls, key: str, terms: Terms) -> ReceivingChannel:
        """A channel that has received nothing yet."""
        return cls(key, expected=terms.numbers.first)

    def window(self, terms: Terms) -> DuplicationWindow | None:
        """SDW and EDW as the slides define them; None before the first arrival."""
        if self.furthest is None:
            return None
        return DuplicationWindow(terms.numbers, terms.window_size, self.furthest)

    def fit(self, sequence: SequenceNumber, stamp: Instant, terms: Terms) -> Fit:
        """How the number of a message never seen before fits."""
        number = terms.numbers.check(sequence.number)
        if self.furthest is not None and stamp < self.previous_stamp:
            # A straggler of an epoch that is over; its number means nothing any more.
            return Fit.TAKEN
        if terms.on_gap is OnGap.REJECT:
            return self._fit_strictly(number, stamp, terms)
        if self.furthest is not None and self._restarts(sequence, stamp, terms):
            return self._fit_new_epoch(number, terms)
        ahead = terms.numbers.distance(self.expected, number)
        if ahead < terms.window_size:
            if any(held.number == number for held in self.held):
                return Fit.TAKEN
            return Fit.NEXT if ahead == 0 else Fit.EARLY
        behind = terms.numbers.distance(number, self.expected)
        if self.passed and behind <= terms.numbers.size // 2:
            return Fit.TAKEN
        return Fit.BEYOND

    def _fit_new_epoch(self, number: int, terms: Terms) -> Fit:
        offset = terms.numbers.distance(terms.numbers.first, number)
        return Fit.NEW_EPOCH if offset < terms.window_size else Fit.BEYOND

    def _restarts(self, sequence: SequenceNumber, stamp: Instant, terms: Terms) -> bool:
        """Whether a number announces a new epoch (SEQ-14, SEQ-15, gap 15)."""
        number = sequence.number
        if terms.reset is ResetRule.SILENT:
            announced = number == terms.numbers.first
        else:
            announced = sequence.status is SequenceStatus.RESET
        if not announced or stamp < self.newest_stamp:
            return False
        ahead = terms.numbers.distance(self.expected, number)
        marked = terms.window_size if terms.reset is ResetRule.FIRST_WINDOW else 1
        if ahead >= terms.window_size or self.passed + ahead >= marked:
            # No message of the present epoch carries the mark at this place.
            return True
        if any(held.number == number for held in self.held):
            return True
        # The first number is missing, yet this one was made after messages that follow it:
        # the missing one was given up, and this is its successor in a new epoch.
        return number == terms.numbers.first and bool(self.held) and stamp > self.newest_stamp

    def _fit_strictly(self, number: int, stamp: Instant, terms: Terms) -> Fit:
        """v0-078 §2.5: one above the previous, or a new series; anything else is invalid."""
        if number == self.expected:
            return Fit.NEXT
        if self.furthest is None:
            return Fit.GAP
        if number == terms.numbers.first:
            return Fit.NEW_EPOCH if stamp >= self.newest_stamp else Fit.TAKEN
        return Fit.TAKEN if number == self.furthest else Fit.GAP

    def begin_epoch(self, terms: Terms) -> tuple[ReceivingChannel, tuple[Held, ...], list[int]]:
        """The next epoch; what the old one still held, in order, and what it never got.

        Held messages were acknowledged, so they are handed over; the numbers missing
        between them were given up by the sender and are skipped.
        """
        released: list[Held] = []
        skipped: list[int] = []
        held = {entry.number: entry for entry in self.held}
        number = self.expected
        while held:
            entry = held.pop(number, None)
            if entry is None:
                skipped.append(number)
            else:
                released.append(entry)
            number = terms.numbers.after(number)
        fresh = ReceivingChannel(
            self.key,
            epoch=self.epoch + 1,
            expected=terms.numbers.first,
            previous_stamp=self.newest_stamp,
        )
        return fresh, tuple(released), skipped

    def take(
        self, entry: Held, stamp: Instant, terms: Terms
    ) -> tuple[ReceivingChannel, tuple[Held, ...]]:
        """Note a number that fits; returns what may now be handed over, in order."""
        held = {waiting.number: waiting for waiting in self.held}
        held[entry.number] = entry
        number, passed = self.expected, self.passed
        released = []
        while number in held:
            released.append(held.pop(number))
            number, passed = terms.numbers.after(number), passed + 1
        channel = replace(
            self,
            epoch=max(self.epoch, 1),
            expected=number,
            passed=passed,
            furthest=self._further(entry.number, terms),
            held=tuple(held.values()),
            newest_stamp=max(self.newest_stamp, stamp),
        )
        return channel, tuple(released)

    def _further(self, number: int, terms: Terms) -> int:
        """EDW after this arrival: the further one in window order (gap 13)."""
        if self.furthest is None:
            return number
        ahead = terms.numbers.distance(self.furthest, number)
        return number if ahead <= terms.numbers.size // 2 else self.furthest
