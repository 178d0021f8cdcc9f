"""S6, order, and S7, no silent gap: what an ordered channel hands over, on one node."""

from __future__ import annotations

from oncewire.journal.predicates.context import Context
from oncewire.journal.predicates.violation import Violation, ViolationKind
from oncewire.journal.row import Row
from oncewire.journal.trace import HANDED_OVER, RECEIVED
from oncewire.protocol.terms import Terms

REMEMBERED_MAX = 1_000
"""How many handed-over numbers are kept to recognise a number used twice, at most."""


class _Epoch:
    """The next number to hand over, and what is known of the numbers around it."""

    __slots__ = ("expected", "handed", "missing", "skipped", "waiting")

    def __init__(self, first: int) -> None:
        self.expected = first
        self.skipped: set[int] = set()
        # Received, not handed over yet.
        self.waiting: dict[int, Row] = {}
        # Numbers passed over: (from, how many, the hand-over that passed them).
        self.missing: list[tuple[int, int, Row]] = []
        # The last numbers handed over and whose they were.
        self.handed: dict[int, str | None] = {}


class ReceivingChannel:
    """One pass over RECEIVED, SKIPPED and HANDED_OVER rows; O(W) state for each open epoch."""

    __slots__ = ("_epochs", "_found")

    def __init__(self, found: list[Violation]) -> None:
        self._found = found
        self._epochs: dict[int | None, _Epoch] = {}

    def take(self, row: Row, terms: Terms, context: Context) -> None:
        """One more row of a kind in `RECEIVING`."""
        if not terms.ordered or row.sequence_number is None:
            return
        if row.detail is not None and "redelivered" in row.detail:
            # Order is judged by the first hand-over; whether a second may be is S2's matter.
            return
        epoch = self._epochs.get(row.epoch)
        if epoch is None:
            self._close_old(context)
            epoch = self._epochs[row.epoch] = _Epoch(terms.numbers.first)
        if row.kind == HANDED_OVER:
            self._handed_over(epoch, row, terms)
        elif row.kind == RECEIVED:
            epoch.waiting[row.sequence_number] = row
        else:
            self._skipped(epoch, row.sequence_number, terms)

    def _handed_over(self, epoch: _Epoch, row: Row, terms: Terms) -> None:
        number, numbers = row.sequence_number or 0, terms.numbers
        epoch.waiting.pop(number, None)
        if number == epoch.expected:
            epoch.expected = numbers.first if number == numbers.last else number + 1
            if epoch.skipped:
                _pass_skipped(epoch, terms)
        elif not self._was_late(epoch, row, number, terms):
            if numbers.distance(epoch.expected, number) > numbers.size // 2:
                self._repeated(epoch, row, number)
                return
            self._passed_over(epoch, row, number, terms)
        epoch.handed[number] = row.message_id
        if len(epoch.handed) > min(terms.window_size, REMEMBERED_MAX):
            del epoch.handed[next(iter(epoch.handed))]

    def _passed_over(self, epoch: _Epoch, row: Row, number: int, terms: Terms) -> None:
        """Remember what was passed over: a later hand-over shows disorder, none shows a gap."""
        start = epoch.expected
        for skipped in sorted(epoch.skipped, key=lambda skip: terms.numbers.distance(start, skip)):
            before = terms.numbers.distance(start, skipped)
            if before >= terms.numbers.distance(start, number):
                break
            if before:
                epoch.missing.append((start, before, row))
            epoch.skipped.discard(skipped)
            start = terms.numbers.after(skipped)
        rest = terms.numbers.distance(start, number)
        if rest:
            epoch.missing.append((start, rest, row))
        epoch.expected = terms.numbers.after(number)
        _pass_skipped(epoch, terms)

    def _was_late(self, epoch: _Epoch, row: Row, number: int, terms: Terms) -> bool:
        passed_by = _take_missing(epoch, number, terms)
        if passed_by is None:
            return False
        self._note(
            "S6",
            ViolationKind.OUT_OF_ORDER,
            row,
            f"Number {number} was handed over after number {passed_by.sequence_number}.",
        )
        return True

    def _repeated(self, epoch: _Epoch, row: Row, number: int) -> None:
        """The same message again is S2's matter; another message under the number is not."""
        owner = epoch.handed.get(number, row.message_id)
        if owner != row.message_id:
            self._note(
                "S8",
                ViolationKind.REPEATED_NUMBER,
                row,
                f"It was handed over as number {number}, as {owner} was before.",
            )

    def _skipped(self, epoch: _Epoch, number: int, terms: Terms) -> None:
        epoch.waiting.pop(number, None)
        if _take_missing(epoch, number, terms) is None:
            epoch.skipped.add(number)
            _pass_skipped(epoch, terms)

    def _close_old(self, context: Context) -> None:
        """Hand-overs of an epoch may follow the beginning of the next, but not of the one after."""
        if len(self._epochs) > 1:
            oldest = next(iter(self._epochs))
            self._close(self._epochs.pop(oldest), context, ended=True)

    def finish(self, context: Context) -> None:
        """Tell what was never handed over though a later number was."""
        for epoch in self._epochs.values():
            self._close(epoch, context, ended=False)

    def _close(self, epoch: _Epoch, context: Context, *, ended: bool) -> None:
        for start, count, row in epoch.missing:
            numbers = f"{start}" if count == 1 else f"{start} and {count - 1} after it"
            self._note(
                "S7",
                ViolationKind.GAP,
                row,
                f"Number {row.sequence_number} was handed over, but {numbers} neither was "
                "nor has a journaled skip.",
            )
        due = epoch.waiting.get(epoch.expected)
        stranded = list(epoch.waiting.values()) if ended else [due] if due is not None else []
        for row in stranded:
            # With the sender's journal at hand the message's own fold tells it.
            if context.is_healed(row.at) and not context.has_journal_of(row.peer):
                self._note(
                    "S4",
                    ViolationKind.LOST,
                    row,
                    "It was stored and its turn had come, but it was never handed over.",
                )

    def _note(self, predicate: str, kind: ViolationKind, row: Row, sentence: str) -> None:
        self._found.append(
            Violation(predicate, kind.value, row.message_id, row.channel, row.node, sentence)
        )


def _pass_skipped(epoch: _Epoch, terms: Terms) -> None:
    while epoch.expected in epoch.skipped:
        epoch.skipped.discard(epoch.expected)
        epoch.expected = terms.numbers.after(epoch.expected)


def _take_missing(epoch: _Epoch, number: int, terms: Terms) -> Row | None:
    """Take the number out of those passed over; returns the hand-over that passed it."""
    for index, (start, count, row) in enumerate(epoch.missing):
        offset = terms.numbers.distance(start, number)
        if offset < count:
            rest = []
            if offset:
                rest.append((start, offset, row))
            if offset + 1 < count:
                rest.append((terms.numbers.after(number), count - offset - 1, row))
            epoch.missing[index : index + 1] = rest
            return row
    return None
