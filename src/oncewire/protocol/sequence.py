"""Sequence arithmetic: numbers that wrap around, and the two windows over them.

Every draft has its own range (C2), so a range is data. Positions are compared by their
forward distance modulo the size M of the range, never as plain integers: after the last
number comes the first again, and 0 may well lie after 99,999,999.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from oncewire.errors import InvalidValue


class SequenceRange(Struct, frozen=True, gc=False, array_like=True):
    """The numbers a stream may use, first to last, both included."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if self.first < 0 or self.last <= self.first:
            raise InvalidValue(
                f"sequence range {self.first}..{self.last} is empty or negative",
                remedy="give a first number of 0 or more and a larger last number",
            )

    @property
    def size(self) -> int:
        """M of the slides: how many numbers there are."""
        return self.last - self.first + 1

    def __contains__(self, number: int) -> bool:
        return self.first <= number <= self.last

    def after(self, number: int, steps: int = 1) -> int:
        """The number that many steps later (or earlier, if negative), wrapped around."""
        return self.first + (number - self.first + steps) % self.size

    def distance(self, start: int, end: int) -> int:
        """How many steps forward from start to end: 0 .. M-1."""
        return (end - start) % self.size


SLIDES_RANGE = SequenceRange(0, 99_999_999)
"""The slides' range, adopted by ebMS 2.0 (SEQ-12)."""

RM_078_RANGE = SequenceRange(1, 4_294_967_295)
"""v0-078 Table 2-2 (SEQ-2)."""

RM_080_RANGE = SequenceRange(0, 999_999_999)
"""v0-080, as the slides tell of it (C2)."""

NAMED_RANGES: dict[str, SequenceRange] = {
    "slides": SLIDES_RANGE,
    "ebms2": SLIDES_RANGE,
    "rm-0.78": RM_078_RANGE,
    "rm-0.80": RM_080_RANGE,
}


def check_window(window: int, numbers: SequenceRange) -> int:
    """W itself, if sender and receiver can tell old from new with it (gap 13: 2W <= M)."""
    if window < 1:
        raise InvalidValue(
            f"window {window} is smaller than 1", remedy="agree on a window of 1 or more"
        )
    if 2 * window > numbers.size:
        raise InvalidValue(
            f"window {window} is more than half of the {numbers.size} sequence numbers",
            remedy=f"agree on a window of at most {numbers.size // 2}",
        )
    return window


class SendingWindow(Struct, frozen=True, gc=False):
    """The numbers that may be under way at once (slides, 'Sending Window')."""

    numbers: SequenceRange
    window: int
    first_unsettled: int

    @property
    def start(self) -> int:
        """SSW: the first unacknowledged number."""
        return self.first_unsettled

    @property
    def end(self) -> int:
        """ESW = (SSW + W - 1) mod M."""
        return self.numbers.after(self.first_unsettled, self.window - 1)

    def __contains__(self, number: int) -> bool:
        return self.numbers.distance(self.first_unsettled, number) < self.window

    def __iter__(self) -> Iterator[int]:
        return _walk(self.numbers, self.start, self.window)


class DuplicationWindow(Struct, frozen=True, gc=False):
    """The numbers an arrival is tested against (slides, 'Duplication Check Window').

    EDW is the furthest number received, in window order, not the latest arrival:
    otherwise a late arrival after an early one would shrink the window (gap 13).
    """

    numbers: SequenceRange
    window: int
    furthest: int

    @property
    def start(self) -> int:
        """SDW = (EDW - W + 1 + M) mod M."""
        return self.numbers.after(self.furthest, 1 - self.window)

    @property
    def end(self) -> int:
        """EDW: the furthest number received."""
        return self.furthest

    def __contains__(self, number: int) -> bool:
        return self.numbers.distance(self.start, number) < self.window

    def is_ahead(self, number: int) -> bool:
        """Whether the number lies in EDW+1 .. EDW+W: new, and as far as a sender may go."""
        return 1 <= self.numbers.distance(self.furthest, number) <= self.window

    def __iter__(self) -> Iterator[int]:
        return _walk(self.numbers, self.start, self.window)


def _walk(numbers: SequenceRange, start: int, window: int) -> Iterator[int]:
    """The numbers of a window in order, wrapping around."""
    return (numbers.after(start, step) for step in range(window))
