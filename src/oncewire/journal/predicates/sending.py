"""S8, sequence: the numbers a sender gives and the window it keeps, one channel on one node."""

from __future__ import annotations

from oncewire.journal import detail
from oncewire.journal.predicates.context import Context
from oncewire.journal.predicates.violation import Violation, ViolationKind
from oncewire.journal.row import Row
from oncewire.journal.trace import EPOCH_ENDED, FAILED, NUMBERED, RESUMED, SENT, TRANSIENT
from oncewire.message.instant import Instant
from oncewire.protocol.terms import ResetRule, Terms


class SendingChannel:
    """The epoch, the next number, and the numbers that are given and not settled: O(W) state."""

    __slots__ = (
        "_epoch",
        "_expected",
        "_first",
        "_found",
        "_paused_at",
        "_paused_by",
        "_paused_until",
        "_unsettled",
        "_used",
    )

    def __init__(self, found: list[Violation]) -> None:
        self._found = found
        self._epoch: int | None = None
        self._expected = 0
        self._first = 0
        self._used = 0
        self._unsettled: dict[int, str | None] = {}
        self._paused_until: Instant = 0
        self._paused_by: str | None = None
        self._paused_at = 0

    def take(self, row: Row, terms: Terms, context: Context) -> None:
        """One more row of a kind in `SENDING`."""
        kind = row.kind
        if kind == NUMBERED:
            self._numbered(row, terms)
        elif kind == SENT:
            self._sent(row, terms, context)
        elif kind == EPOCH_ENDED:
            self._settle_message(row, terms)
        elif kind == TRANSIENT:
            if self._unsettled.get(_number(row)) == row.message_id:
                until = detail.Transient.read(row.detail).until
                if until > self._paused_until:
                    self._paused_until, self._paused_by = until, row.message_id
                    self._paused_at = row.seq
        elif kind == RESUMED:
            self._paused_until = 0
        elif kind != FAILED or not terms.numbered:
            # A failure settles nothing while the receiver may still wait for the number.
            self._settle(row, terms)

    def _numbered(self, row: Row, terms: Terms) -> None:
        number, numbers = _number(row), terms.numbers
        if row.epoch != self._epoch:
            if self._unsettled:
                self._note(
                    row,
                    ViolationKind.EARLY_RESET,
                    f"Epoch {row.epoch} began while {len(self._unsettled)} numbers of epoch "
                    f"{self._epoch} were unsettled.",
                )
            self._epoch, self._expected, self._first = row.epoch, numbers.first, numbers.first
            self._used = 0
            self._unsettled.clear()
        if number not in numbers:
            self._note(
                row,
                ViolationKind.GAP,
                f"Number {number} lies outside {numbers.first}..{numbers.last}.",
            )
            return
        if number != self._expected:
            self._unexpected(row, number, terms)
        if (number - self._first) % numbers.size >= terms.window_size:
            self._note(
                row,
                ViolationKind.WINDOW_EXCEEDED,
                f"Number {number} lies beyond the window of {terms.window_size} that begins "
                f"at {self._first}.",
            )
        self._judge_status(row, terms)
        self._unsettled[number] = row.message_id
        self._expected = numbers.first if number == numbers.last else number + 1
        self._used += 1

    def _unexpected(self, row: Row, number: int, terms: Terms) -> None:
        ahead = terms.numbers.distance(self._expected, number) <= terms.numbers.size // 2
        kind = ViolationKind.GAP if ahead else ViolationKind.REPEATED_NUMBER
        self._note(row, kind, f"Number {number} was given where {self._expected} was next.")
        if ahead and not self._unsettled:
            self._first = number

    def _judge_status(self, row: Row, terms: Terms) -> None:
        if terms.reset is ResetRule.SILENT:
            return
        marked = terms.window_size if terms.reset is ResetRule.FIRST_WINDOW else 1
        is_reset = row.detail is not None and '"Reset"' in row.detail
        if is_reset != (self._used < marked):
            due = "Continue" if is_reset else "Reset"
            self._note(
                row,
                ViolationKind.WRONG_STATUS,
                f"Number {row.sequence_number} should have carried {due}.",
            )

    def _sent(self, row: Row, terms: Terms, context: Context) -> None:
        paused = row.at < self._paused_until and row.message_id != self._paused_by
        # An operator ends the pause of a receiver, and with it that of every channel to it.
        if paused and not context.is_lifted(row, self._paused_at):
            self._note(
                row,
                ViolationKind.EARLY_RETRY,
                "It was sent before the pause that the receiver asked for was over.",
                predicate="S11",
            )
        number = row.sequence_number
        if number is None or row.epoch is None:
            return
        if self._epoch is None or row.epoch > self._epoch:
            self._note(
                row, ViolationKind.GAP, f"It was sent with number {number}, which was never given."
            )
        elif row.epoch < self._epoch:
            return  # A number of an ended epoch is settled: S11 tells of the send.
        elif number in self._unsettled:
            owner = self._unsettled[number]
            if owner != row.message_id:
                self._note(
                    row,
                    ViolationKind.REPEATED_NUMBER,
                    f"It was sent with number {number}, which was given to {owner}.",
                )
        elif terms.numbers.distance(self._expected, number) < terms.numbers.size // 2:
            self._note(
                row,
                ViolationKind.GAP,
                f"It was sent with number {number}, which was not given yet.",
            )

    def _settle(self, row: Row, terms: Terms) -> None:
        if row.epoch != self._epoch or row.sequence_number is None:
            return
        number = row.sequence_number
        if self._unsettled.get(number) != row.message_id:
            return
        del self._unsettled[number]
        self._slide(terms)

    def _settle_message(self, row: Row, terms: Terms) -> None:
        """The number given up with the end of the epoch is its message's (gap 14)."""
        for number, message_id in self._unsettled.items():
            if message_id == row.message_id:
                del self._unsettled[number]
                self._slide(terms)
                return

    def _slide(self, terms: Terms) -> None:
        """Move SSW to the first unsettled number, or to the next one to be given (SW-5)."""
        first, last = self._first, terms.numbers.last
        while first != self._expected and first not in self._unsettled:
            first = terms.numbers.first if first == last else first + 1
        self._first = first

    def _note(self, row: Row, kind: ViolationKind, sentence: str, *, predicate: str = "S8") -> None:
        self._found.append(
            Violation(predicate, kind.value, row.message_id, row.channel, row.node, sentence)
        )


def _number(row: Row) -> int:
    """The number of a row that must have one; -1 lies outside every range."""
    return -1 if row.sequence_number is None else row.sequence_number
