"""Gaps: which numbers an epoch passed over, counted modulo the range, one channel on one node.

This is an inventory, not a judgement: whether a gap breaks a promise is said by the predicates.
The arithmetic is that of `oncewire.protocol.sequence`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from oncewire.journal.row import Row
from oncewire.journal.trace import NUMBERED, RECEIVED, SKIPPED
from oncewire.protocol.terms import Terms

SENDING, RECEIVING = "sending", "receiving"

# The states of a gap.
NEVER_GIVEN = "never_given"  # the sender left the numbers out
MISSING = "missing"  # they never arrived, and no skip says why
OPEN = "open"  # they may still come: the epoch goes on
SKIP = "skipped"  # the receiver passed over them and said so


class Gap(NamedTuple):
    """A run of numbers."""

    epoch: int | None
    side: str
    first_missing: int
    missing: int
    after_message_id: str | None
    before_message_id: str | None
    state: str


class _Run:
    """Numbers that are missing so far, and the messages on both sides of them."""

    __slots__ = ("after", "before", "count", "first")

    def __init__(self, first: int, count: int, after: str | None, before: str | None) -> None:
        self.first, self.count, self.after, self.before = first, count, after, before


class _Epoch:
    __slots__ = ("expected", "found", "last", "number", "runs")

    def __init__(self, number: int | None, first: int) -> None:
        self.number = number
        self.expected = first
        self.last: str | None = None
        self.runs: list[_Run] = []
        self.found: list[Gap] = []


class GapFold:
    """Feed NUMBERED, RECEIVED and SKIPPED rows of one channel and node in order, then finish."""

    __slots__ = ("_done", "_given", "_taken")

    def __init__(self) -> None:
        self._given: _Epoch | None = None
        self._taken: _Epoch | None = None
        self._done: list[Gap] = []

    def feed(self, row: Row, terms: Terms) -> None:
        """One more row; rows of other kinds are passed over."""
        number = row.sequence_number
        if number is None or number not in terms.numbers:
            return
        if row.kind == NUMBERED:
            self._give(row, number, terms)
        elif row.kind in (RECEIVED, SKIPPED):
            self._take(row, number, terms)

    def _give(self, row: Row, number: int, terms: Terms) -> None:
        epoch = self._given
        if epoch is None or epoch.number != row.epoch:
            epoch = self._given = _Epoch(row.epoch, terms.numbers.first)
        ahead = terms.numbers.distance(epoch.expected, number)
        if 0 < ahead <= terms.numbers.size // 2:
            gap = Gap(
                row.epoch, SENDING, epoch.expected, ahead, epoch.last, row.message_id, NEVER_GIVEN
            )
            self._done.append(gap)
        if ahead <= terms.numbers.size // 2:
            epoch.expected = terms.numbers.after(number)
            epoch.last = row.message_id

    def _take(self, row: Row, number: int, terms: Terms) -> None:
        epoch = self._taken
        if epoch is None or (row.epoch or 0) > (epoch.number or 0):
            if epoch is not None:
                self._done += _closed(epoch, MISSING)
            epoch = self._taken = _Epoch(row.epoch, terms.numbers.first)
        if row.epoch != epoch.number:
            return  # A late word about an epoch that is over: its gaps are told already.
        ahead = terms.numbers.distance(epoch.expected, number)
        if ahead <= terms.numbers.size // 2:
            if ahead:
                epoch.runs.append(_Run(epoch.expected, ahead, epoch.last, row.message_id))
            epoch.expected = terms.numbers.after(number)
            epoch.last = row.message_id
        else:
            _fill(epoch, number, terms)
        if row.kind == SKIPPED:
            epoch.found.append(Gap(epoch.number, RECEIVING, number, 1, row.message_id, None, SKIP))

    def finish(self) -> Iterator[Gap]:
        """Every gap so far; those of an epoch that goes on may still close."""
        yield from self._done
        if self._taken is not None:
            yield from _closed(self._taken, OPEN)


def _closed(epoch: _Epoch, state: str) -> list[Gap]:
    return [
        *epoch.found,
        *(
            Gap(epoch.number, RECEIVING, run.first, run.count, run.after, run.before, state)
            for run in epoch.runs
        ),
    ]


def _fill(epoch: _Epoch, number: int, terms: Terms) -> None:
    """A number that was missing has come; what is left of its run stays missing."""
    for index, run in enumerate(epoch.runs):
        offset = terms.numbers.distance(run.first, number)
        if offset >= run.count:
            continue
        left = []
        if offset:
            left.append(_Run(run.first, offset, run.after, run.before))
        if offset + 1 < run.count:
            rest = run.count - offset - 1
            left.append(_Run(terms.numbers.after(number), rest, run.after, run.before))
        epoch.runs[index : index + 1] = left
        return


def values(node: str, channel: str, gap: Gap) -> tuple[Any, ...]:
    """A row of the table `sequence_gaps`."""
    return (node, channel, *gap)
