"""The fold over one channel's rows: S6, S7, S8, and the pauses that concern a whole channel.

Nothing here crosses nodes: the sender's rows and the receiver's are each judged in the order of
their own node. So rows may be divided by (channel, node) as well as by channel.
"""

from __future__ import annotations

from oncewire.errors import JournalProblem
from oncewire.journal.predicates.context import (
    Context,
    TermsMissing,
    Violation,
    ViolationKind,
    unreadable,
)
from oncewire.journal.predicates.receiving_channel import ReceivingChannelFold
from oncewire.journal.row import Row
from oncewire.journal.trace import (
    ABANDONED,
    ACKNOWLEDGED,
    EPOCH_ENDED,
    FAILED,
    FORWARDED,
    HANDED_OVER,
    INCIDENT,
    NUMBERED,
    RECEIVED,
    REJECTED,
    RESOLVED,
    RESUMED,
    SENT,
    SKIPPED,
    TRANSIENT,
)
from oncewire.message.instant import Instant
from oncewire.protocol import notes
from oncewire.protocol.terms import ResetRule, Terms

# S8, sequence: the numbers a sender gives and the window it keeps, one channel on one node.


TOLD_MAX = 100
"""How many messages whose number was told as wrong are remembered, at most."""


class SendingChannelFold:
    """The epoch, the next number, and the numbers that are given and not settled: O(W) state.

    After a break it takes up from what the rows show, so that one cause is told once: the next
    number is right whether it goes on from the wrong one or from the one that was due.
    """

    def __init__(self, found: list[Violation]) -> None:
        self._found = found
        self._epoch: int | None = None
        # That of the last number given, where it is another one than the epoch that it goes on.
        self._other_epoch: int | None = None
        self._expected = 0
        self._first = 0
        self._used = 0
        self._unsettled: dict[int, str | None] = {}
        self._paused_until: Instant = 0
        self._paused_by: str | None = None
        self._paused_at = 0
        # After a break: what would be next if the row that broke had had the number due.
        self._due: int | None = None
        # Messages whose number was told as wrong: their other rows tell nothing new.
        self._told: dict[str | None, None] = {}
        # After a hole: nothing is known of the epoch yet; then, not all of it.
        self._taking_up = False
        self._partial = False

    def take_up(self) -> None:
        """Rows are missing here: what they gave and settled is not known."""
        self._unsettled.clear()
        self._paused_until = 0
        self._taking_up = self._partial = True

    def take(self, row: Row, terms: Terms, context: Context) -> None:
        """One more row of a kind in `SENDING`."""
        kind = row.kind
        if kind == NUMBERED:
            self._numbered(row, terms)
        elif kind == SENT:
            self._sent(row, terms, context)
        elif kind == EPOCH_ENDED:
            self._settle_message(row)
        elif kind == TRANSIENT:
            if self._unsettled.get(_number(row)) == row.message_id:
                until = notes.Transient.read(row.detail).until
                if until > self._paused_until:
                    self._paused_until, self._paused_by = until, row.message_id
                    self._paused_at = row.seq
        elif kind == RESUMED:
            self._paused_until = 0
        elif kind != FAILED or not terms.numbered:
            # A failure settles nothing while the receiver may still wait for the number.
            self._settle(row)

    def _numbered(self, row: Row, terms: Terms) -> None:
        number, numbers = _number(row), terms.numbers
        if self._taking_up:
            self._epoch, self._expected, self._first = row.epoch, number, number
            self._taking_up = False
        elif row.epoch == self._epoch:
            self._other_epoch = None
        elif not self._goes_on(row, terms):
            self._begin(row, terms)
        if number not in numbers:
            self._tell(
                row,
                ViolationKind.GAP,
                f"Number {number} lies outside {numbers.first}..{numbers.last}.",
            )
            # Whatever it should have been, it used one up.
            self._expected = numbers.after(self._expected)
            self._slide()
            return
        if not self._is_due(number, terms):
            ahead = terms.numbers.distance(self._expected, number) <= terms.numbers.size // 2
            kind = ViolationKind.GAP if ahead else ViolationKind.REPEATED_NUMBER
            self._tell(row, kind, f"Number {number} was given where {self._expected} was next.")
        elif self._beyond(number, terms):
            self._note(
                row,
                ViolationKind.WINDOW_EXCEEDED,
                f"Number {number} lies beyond the window of {terms.window_size} that begins "
                f"at {self._first}.",
            )
        while self._unsettled and self._beyond(number, terms):
            # The sender went on as if the first of them were settled, and so does the fold.
            del self._unsettled[next(iter(self._unsettled))]
            self._slide()
        if not self._unsettled:
            self._first = number
        self._judge_status(row, terms)
        self._unsettled[number] = row.message_id
        self._expected = numbers.after(number)
        self._used += 1

    def _goes_on(self, row: Row, terms: Terms) -> bool:
        """Whether a row with another epoch has the number that is next in this one: then only the
        epoch is wrong, and the numbers that follow are believed in either."""
        number, first = row.sequence_number, terms.numbers.first
        if self._epoch is None or number == first or number not in (self._expected, self._due):
            return False
        if self._other_epoch == row.epoch:
            # The second in a row: the sender counts on in it.
            self._epoch, self._other_epoch = row.epoch, None
            return True
        self._other_epoch = row.epoch
        self._note(
            row,
            ViolationKind.CONTRADICTION,
            f"Number {number} was given in epoch {row.epoch}, and epoch {self._epoch} goes on with "
            "it.",
            predicate="steps",
        )
        return True

    def _begin(self, row: Row, terms: Terms) -> None:
        """A new epoch."""
        if self._unsettled:
            self._note(
                row,
                ViolationKind.EARLY_RESET,
                f"Epoch {row.epoch} began while {len(self._unsettled)} numbers of epoch "
                f"{self._epoch} were unsettled.",
            )
        self._epoch, self._expected = row.epoch, terms.numbers.first
        self._other_epoch = None
        self._first = terms.numbers.first
        self._used = 0
        self._partial = False
        self._due = None
        self._unsettled.clear()

    def _beyond(self, number: int, terms: Terms) -> bool:
        return (number - self._first) % terms.numbers.size >= terms.window_size

    def _is_due(self, number: int, terms: Terms) -> bool:
        """Whether the number goes on from the last one, or from before a break."""
        due, self._due = self._due, None
        if number == self._expected:
            return True
        if number == due:
            # The wrong number was that of the one before.
            wrong = terms.numbers.after(self._expected, -1)
            if wrong in self._unsettled:
                owner = self._unsettled.pop(wrong)
                self._unsettled[terms.numbers.after(number, -1)] = owner
            self._first = next(iter(self._unsettled), number)
            return True
        self._due = terms.numbers.after(self._expected)
        return False

    def _tell(self, row: Row, kind: ViolationKind, sentence: str) -> None:
        """Note that a message has a wrong number, once for all its rows."""
        if row.message_id in self._told:
            return
        self._told[row.message_id] = None
        if len(self._told) > TOLD_MAX:
            del self._told[next(iter(self._told))]
        self._note(row, kind, sentence)

    def _judge_status(self, row: Row, terms: Terms) -> None:
        if terms.reset is ResetRule.SILENT or self._partial:
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
        paused = paused and not context.is_lifted(row, self._paused_at)
        jump = context.jump(row.node, 0, row.seq) if paused else None
        if jump is not None:
            self._found.append(jump)
        elif paused:
            self._note(
                row,
                ViolationKind.EARLY_RETRY,
                "It was sent before the pause that the receiver asked for was over.",
                predicate="S11",
            )
        number = row.sequence_number
        if number is None or row.epoch is None or self._taking_up:
            return
        if number in self._unsettled and row.epoch == self._epoch:
            owner = self._unsettled[number]
            if owner != row.message_id:
                self._tell(
                    row,
                    ViolationKind.REPEATED_NUMBER,
                    f"It was sent with number {number}, which was given to {owner}.",
                )
        elif self._partial:
            return  # It may have been given, and settled, by a row that is missing.
        elif self._epoch is None or row.epoch > self._epoch:
            self._tell(
                row, ViolationKind.GAP, f"It was sent with number {number}, which was never given."
            )
        elif row.epoch < self._epoch:
            # A number of an ended epoch is settled, and S11 tells of the send.
            if self._unsettled.get(number) == row.message_id:
                self._tell(
                    row,
                    ViolationKind.GAP,
                    f"It was sent in epoch {row.epoch}, and its number is of epoch {self._epoch}.",
                )
        elif terms.numbers.distance(self._expected, number) < terms.numbers.size // 2:
            self._tell(
                row,
                ViolationKind.GAP,
                f"It was sent with number {number}, which was not given yet.",
            )

    def _settle(self, row: Row) -> None:
        if row.epoch != self._epoch or row.sequence_number is None:
            return
        number = row.sequence_number
        if self._unsettled.get(number) == row.message_id:
            del self._unsettled[number]
            self._slide()
        elif row.message_id in self._told:
            self._settle_message(row)

    def _settle_message(self, row: Row) -> None:
        """The number given up with the end of the epoch is its message's (gap 14)."""
        for number, message_id in self._unsettled.items():
            if message_id == row.message_id:
                del self._unsettled[number]
                self._slide()
                return

    def _slide(self) -> None:
        """Move SSW to the first unsettled number, or to the next one to be given (SW-5).

        They were given in order, so the first of them is the one that waits longest.
        """
        self._first = next(iter(self._unsettled), self._expected)

    def _note(self, row: Row, kind: ViolationKind, sentence: str, *, predicate: str = "S8") -> None:
        self._found.append(
            Violation(predicate, kind.value, row.message_id, row.channel, row.node, sentence)
        )


def _number(row: Row) -> int:
    """The number of a row that must have one; -1 lies outside every range."""
    return -1 if row.sequence_number is None else row.sequence_number


SENDING = frozenset(
    {NUMBERED, SENT, ACKNOWLEDGED, REJECTED, ABANDONED, FAILED, EPOCH_ENDED, TRANSIENT, RESUMED}
)
RECEIVING = frozenset({RECEIVED, SKIPPED, HANDED_OVER, FORWARDED})
CALLING = frozenset({INCIDENT, RESOLVED})
KINDS = SENDING | RECEIVING | CALLING
"""The kinds that the fold looks at; of all others only the terms that they name."""


class ChannelFold:
    """Feed the rows of one channel in order of (node, seq), then finish."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._found: list[Violation] = []
        self._open("")

    def _open(self, node: str) -> None:
        self._node = node
        self._terms: Terms | None = None
        self._unknown = False
        self._last = 0
        self._sending = SendingChannelFold(self._found)
        self._receiving = ReceivingChannelFold(self._found)

    def feed(self, row: Row) -> None:
        """One more row of the channel."""
        if row.node != self._node:
            self._receiving.finish(self._context)
            self._open(row.node)
        context = self._context
        if (context.holes or context.aside or context.archives) and context.is_broken(
            row.node, row.channel, self._last, row.seq
        ):
            # What the missing rows told is not known: both take up from what the next ones show.
            self._sending.take_up()
            self._receiving.take_up()
        self._last = row.seq
        kind = row.kind
        terms = self._terms
        if row.terms_id is not None and kind != FORWARDED:
            # A hub forwards under the terms of the next hop; the numbers are of the last one.
            terms = self._terms = self._context.terms.get(row.terms_id)
        if kind not in KINDS:
            return
        if kind in CALLING:
            self._receiving.call(row)
            return
        if kind == FORWARDED and row.sequence_number is None:
            return  # It came on no stream; the one it goes on with has rows of its own.
        if terms is None:
            self._quarantine(row)
            return
        try:
            if kind in SENDING:
                self._sending.take(row, terms, self._context)
            else:
                self._receiving.take(row, terms, self._context)
        except JournalProblem as problem:
            self._found.append(
                unreadable(
                    str(problem), message_id=row.message_id, channel=row.channel, node=row.node
                )
            )

    def _quarantine(self, row: Row) -> None:
        context = self._context
        if self._unknown or row.terms_id in context.doubted_terms:
            return
        self._unknown = True
        missing = unreadable(str(TermsMissing(row)), node=row.node)
        if row.terms_id is None:
            missing = unreadable(
                f"no terms row explains the numbers of channel {row.channel} on node "
                f"{row.node}, from row {row.seq} on",
                channel=row.channel,
                node=row.node,
            )
        # They are written once, however long before: any hole may have swallowed them.
        if not context.has_hole_before(row.node, row.seq):
            self._found.append(missing)

    def finish(self) -> list[Violation]:
        """Every promise about this channel that its rows show broken."""
        self._receiving.finish(self._context)
        return self._found
