"""Channels: the folds over one numbered stream on one node, resumable from run to run.

What a channel showed before the horizon cannot change any more, so the folds' state at that point
is kept in the lake, and a later run goes on from it with the rows that follow. The state is only a
shortcut: made by other code it is thrown away, and the channel is folded again from its first row.
"""

from __future__ import annotations

import inspect
import io
import pickle
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from oncewire.journal.predicates import channel as sending
from oncewire.journal.predicates import receiving_channel as receiving
from oncewire.journal.predicates.channel import ChannelFold
from oncewire.journal.predicates.context import Context, Violation
from oncewire.journal.row import Row
from oncewire.journal.trace import FORWARDED, NUMBERED, RECEIVED, SKIPPED
from oncewire.message.instant import Instant
from oncewire.pipeline.judging.extent import Judging
from oncewire.protocol.terms import Terms

# Gaps: which numbers an epoch passed over, counted modulo the range, one channel on one node.
#
# This is an inventory, not a judgement: whether a gap breaks a promise is said by the predicates.
# The arithmetic is that of `oncewire.protocol.sequence`.


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
        """Feed one row; rows of other kinds are passed over."""
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
    """Take a number out of its run of missing numbers, because its message has come."""
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


class Folded(NamedTuple):
    """What one channel on one node shows."""

    findings: list[Violation]
    gaps: list[Gap]
    state: tuple[int, bytes] | None
    """The position up to which it is settled, and the state to go on from there."""
    beyond: list[Row]
    """The rows behind that position."""


def fold_channel(
    pairs: Iterable[tuple[Row, bytes | None]], judging: Judging, *, resumable: bool = False
) -> Folded:
    """Judge one channel on one node; a row with a state stands for all rows up to its `seq`."""
    both = _Both(judging.context)
    kept: tuple[int, bytes] | None = None
    settled, last = True, 0
    horizon: Instant | None = None
    beyond: list[Row] = []
    for row, state in pairs:
        if last == 0:
            horizon = judging.horizon(row.node)
        if state is not None:
            both.restore(state, judging.context)
            last = row.seq
            continue
        if resumable and settled and horizon is not None and row.at >= horizon:
            settled = False
            kept = (last, both.dump()) if last else None
        if not settled:
            beyond.append(row)
        both.feed(row)
        last = row.seq
    if resumable and settled and last:
        kept = (last, both.dump())
    found, gap_list = both.finish()
    return Folded(found, gap_list, kept, beyond)


class _Both:
    """The predicates' fold and the inventory of gaps, fed the same rows."""

    __slots__ = ("_context", "_folds", "_terms")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._folds = (ChannelFold(context), GapFold())
        self._terms: Terms | None = None

    def feed(self, row: Row) -> None:
        predicates, inventory = self._folds
        predicates.feed(row)
        if row.terms_id is not None and row.kind != FORWARDED:
            self._terms = self._context.terms.get(row.terms_id)
        if self._terms is not None:
            inventory.feed(row, self._terms)

    def finish(self) -> tuple[list[Violation], list[Gap]]:
        predicates, inventory = self._folds
        return predicates.finish(), list(inventory.finish())

    def dump(self) -> bytes:
        """The state so far; context and terms are left out, they come with each run."""
        target = io.BytesIO()
        _Pickler(target, self._context).dump((self._folds, self._terms))
        return target.getvalue()

    def restore(self, state: bytes, context: Context) -> None:
        """Go on from a state."""
        self._folds, self._terms = _Unpickler(io.BytesIO(state), context).load()


# --- states as bytes --------------------------------------------------------------------------

_CLASSES = {
    (cls.__module__, cls.__qualname__): cls
    for cls in (
        ChannelFold,
        sending.SendingChannelFold,
        receiving.ReceivingChannelFold,
        *(member for _, member in inspect.getmembers(receiving, inspect.isclass)
          if member.__module__ == receiving.__name__),
        *(member for _, member in inspect.getmembers(sending, inspect.isclass)
          if member.__module__ == sending.__name__),
        Gap,
        GapFold,
        _Epoch,
        _Run,
        Violation,
        Row,
    )
}  # fmt: skip
"""The only classes a state may be made of: a file in a lake must not be able to run code."""


class _Pickler(pickle.Pickler):
    def __init__(self, target: io.BytesIO, context: Context) -> None:
        super().__init__(target, protocol=5)
        self._context = context
        self._terms = {id(value): terms_id for terms_id, value in context.terms.items()}

    def persistent_id(self, obj: Any) -> tuple[str, str] | None:
        if obj is self._context:
            return "context", ""
        if type(obj) is Terms:
            return "terms", self._terms[id(obj)]
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, source: io.BytesIO, context: Context) -> None:
        super().__init__(source)
        self._context = context

    def persistent_load(self, pid: tuple[str, str]) -> Any:
        return self._context if pid[0] == "context" else self._context.terms[pid[1]]

    def find_class(self, module_name: str, global_name: str) -> Any:
        try:
            return _CLASSES[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"a channel's state names {module_name}.{global_name}"
            ) from None
