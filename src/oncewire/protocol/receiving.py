"""ReceivingChannel: one numbered stream at its receiver, and what a number means there.

The MessageId is judged before anything here is asked, so a late copy of a known message
never reaches this module. What arrives here is a message never seen before, and the
question is whether its number fits: next, early, of a new epoch, too late, or impossible.

The slides' duplication check window is the first test (SW-7, gap 13). A number inside it was
received already, unless it is one of those that are missing; one beyond it by at most W is
new; any other that lies behind is stale. Where order is agreed a new number is also bounded
by the first missing one, for what is early is held (SW-9). Where it is not, nothing is held:
a number is handed over as it comes, and one that the window slides past was never sent.

Numbers repeat, in the next epoch and after a wrap-around, so a number alone cannot say
whether a straggler belongs to the past. Timestamps can: the sender's rise strictly along
the stream, whatever its clock does. Three rules follow, and together with the opener that
travels alone (see `sending`) they leave no case open:

1. Nothing of an epoch is older than its first number. Once an epoch has begun by a
   restart, a message older than its opener is a straggler of an epoch that is over.
2. A mark of beginning (Reset, or the first number where restarts are silent) at a place
   where this epoch has none belongs to another epoch: to a new one if the message is newer
   than all of this one, else to one that is over.
3. A number behind the expected one is a straggler if the message is older than the newest
   one here, and a mistake of the sender if it is not. Behind the duplication window no
   sender has anything left to say: there it is a straggler whatever it claims.

Rule 1 says nothing of the very first epoch, so a partner whose timestamps do not rise is not hurt
by it. It need not: the sender gives no second number before its opener is settled, so the only
strangers in the first epoch are openers that were given up, and rule 2 knows them.

An agreement may change while messages are under way. An epoch keeps the range it began with,
and its window does not shrink; what is agreed today holds from the next epoch on (C2, C7).
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto

from msgspec import Struct
from msgspec.structs import replace

from oncewire.errors import NotAllowed
from oncewire.message.envelope import SequenceNumber, SequenceStatus
from oncewire.message.instant import Instant
from oncewire.protocol.sequence import DuplicationWindow, SequenceRange
from oncewire.protocol.terms import FlowMode, OnGap, ResetRule, Terms


class Fit(StrEnum):
    """How a number fits its channel."""

    NEXT = "next"  # the expected one
    EARLY = "early"  # inside the window, but something before it is missing
    NEW_EPOCH = "new epoch"  # the sender restarted its numbering
    GAP = "gap"  # early, and the agreement rejects gaps
    OCCUPIED = "occupied"  # the number belongs to another message: the sender is mistaken
    STRAGGLER = "straggler"  # too late: its number was skipped, or its epoch is over
    BEYOND = "beyond"  # further ahead than the window allows
    OUTSIDE = "outside"  # no number of this stream at all


class Epoch(Enum):
    """Which epoch a message belongs to."""

    THIS = auto()
    NEXT = auto()  # its sender began anew
    OVER = auto()  # one that is over


class Place(Enum):
    """Where a number lies in the epoch there is."""

    FREE = auto()  # not given yet, and it may come now
    HELD = auto()  # its message came and waits for an earlier one
    BEHIND = auto()  # before the expected one, and inside the duplication window
    FORGOTTEN = auto()  # before the expected one, and behind the window
    TOO_FAR = auto()  # further ahead than anything that may come now


class Held(Struct, frozen=True, gc=False):
    """A number that came before an earlier one, and the stored message that waits with it."""

    number: int
    message_id: str
    # A refused number is settled, but there is nothing to hand over.
    refused: bool = False
    # No order was agreed, so the message was handed over when it came.
    handed: bool = False


class ReceivingChannel(Struct, frozen=True, gc=False):
    """State of one stream; `held` never grows beyond W entries (SW-9)."""

    key: str
    epoch: int = 0
    # The next number to hand over, and how many numbers of this epoch are behind it.
    expected: int = 0
    passed: int = 0
    # EDW: the furthest number received, None before the first.
    furthest: int | None = None
    held: tuple[Held, ...] = ()
    newest_stamp: Instant = -1
    # Anything older belongs to an epoch before this one.
    oldest_stamp: Instant = -1
    # The range of this epoch and the largest W in it; None and 0: not noted.
    numbers: SequenceRange | None = None
    widest: int = 0

    @classmethod
    def open(cls, key: str, terms: Terms) -> ReceivingChannel:
        """A channel that has received nothing yet."""
        return cls(key, expected=terms.numbers.first)

    def in_force(self, terms: Terms) -> Terms:
        """The terms as the messages of this epoch have them, whatever was agreed since."""
        if self.furthest is None:
            return terms
        numbers = self.numbers or terms.numbers
        if numbers != terms.numbers:
            fitting = min(terms.window, numbers.size // 2)
            terms = replace(terms, numbers=numbers, window=fitting)
        if self.widest <= terms.window_size or terms.reset is ResetRule.SILENT:
            return terms
        # A sender with several messages under way sends some of them early.
        return replace(terms, flow=FlowMode.WINDOW, window=self.widest, on_gap=OnGap.BUFFER)

    def widened(self, number: int, terms: Terms) -> ReceivingChannel:
        """This epoch in today's range, where its sender never counted in a narrower one.

        The opener may be under way while the range is narrowed, and arrive under what is agreed
        then; its sender goes on as it began. If the range is wide again, a number that only
        today's has tells so, as long as the narrow one was not used a second time.
        """
        kept, today = self.numbers, terms.numbers
        if kept is None or number in kept or number not in today:
            return self
        if kept.first != today.first or self.passed > kept.size:
            return self
        return replace(self, numbers=today, expected=today.first + self.passed)

    def window(self, terms: Terms) -> DuplicationWindow | None:
        """SDW and EDW as the slides define them; None before the first arrival."""
        if self.furthest is None:
            return None
        return DuplicationWindow(terms.numbers, terms.window_size, self.furthest)

    def fit(self, sequence: SequenceNumber, stamp: Instant, terms: Terms) -> Fit:
        """How the number of a message never seen before fits.

        `terms` are today's; they hold for the epoch that the number may begin.
        """
        kept = self.in_force(terms)
        epoch = self._epoch_of(sequence, stamp, kept, terms)
        if epoch is Epoch.OVER:
            return Fit.STRAGGLER
        if epoch is Epoch.NEXT:
            # How a number fits that begins an epoch: any of the first window may be the first to
            # come.
            number = sequence.number
            if number not in terms.numbers:
                return Fit.OUTSIDE
            offset = terms.numbers.distance(terms.numbers.first, number)
            return Fit.NEW_EPOCH if offset < terms.window_size else Fit.BEYOND
        if sequence.number not in kept.numbers:
            return Fit.OUTSIDE
        ahead = kept.numbers.distance(self.expected, sequence.number)
        place = self._place_of(sequence.number, ahead, kept)
        if place is Place.FREE:
            return Fit.NEXT if ahead == 0 else Fit.EARLY
        if place is Place.TOO_FAR:
            return Fit.GAP if kept.on_gap is OnGap.REJECT else Fit.BEYOND
        if place is Place.FORGOTTEN or (place is Place.BEHIND and stamp < self.newest_stamp):
            return Fit.STRAGGLER
        return Fit.OCCUPIED

    def goes_on(self, sequence: SequenceNumber, stamp: Instant, terms: Terms) -> bool:
        """Whether a message belongs to the epoch there is."""
        return self._epoch_of(sequence, stamp, self.in_force(terms), terms) is Epoch.THIS

    def _epoch_of(
        self, sequence: SequenceNumber, stamp: Instant, kept: Terms, terms: Terms
    ) -> Epoch:
        """Which epoch a message is of, by its timestamp (rule 1) and its mark (rule 2)."""
        if self.furthest is None:
            return Epoch.THIS
        if stamp < self.oldest_stamp:
            return Epoch.OVER
        first = sequence.number == terms.numbers.first
        silent = terms.reset is ResetRule.SILENT
        marked = first if silent else sequence.status is SequenceStatus.RESET
        if not marked or self._awaits_mark(sequence.number, stamp, kept, terms):
            return Epoch.THIS
        return Epoch.NEXT if stamp >= self.newest_stamp else Epoch.OVER

    def _awaits_mark(self, number: int, stamp: Instant, kept: Terms, terms: Terms) -> bool:
        """Whether this epoch too has a mark of beginning at this place, and it may be this one."""
        if number not in kept.numbers:
            return False
        ahead = kept.numbers.distance(self.expected, number)
        marked = kept.window_size if terms.reset is ResetRule.FIRST_WINDOW else 1
        if self.passed + ahead >= marked or self._holds(number):
            return False
        # The first number is missing, yet this one was made after messages that follow it: the
        # missing one was given up, and this is its successor.
        return number != terms.numbers.first or stamp <= self.newest_stamp

    def _place_of(self, number: int, ahead: int, kept: Terms) -> Place:
        """Where a number of this epoch's range lies, by the duplication check window."""
        window = self.window(kept)
        if window is None:
            return Place.FREE if ahead < kept.window_size else Place.TOO_FAR
        if window.is_ahead(number):
            # Unordered it is bounded by the window alone, for it is not held.
            reached = ahead < kept.window_size or not kept.ordered
            return Place.FREE if reached else Place.TOO_FAR
        inside = number in window
        if inside and ahead < kept.window_size:
            return Place.HELD if self._holds(number) else Place.FREE
        behind = kept.numbers.distance(number, self.expected)
        if behind > min(self.passed, kept.numbers.size // 2):
            return Place.TOO_FAR
        return Place.BEHIND if inside else Place.FORGOTTEN

    def _holds(self, number: int) -> bool:
        return any(held.number == number for held in self.held)

    def begin_epoch(self, terms: Terms) -> tuple[ReceivingChannel, tuple[Held, ...], list[int]]:
        """The next epoch; what the old one still held, in order, and what it never got.

        Held messages were acknowledged, so they are handed over; the numbers missing
        between them were given up by the sender and are skipped.
        """
        kept = self.in_force(terms)
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
            number = kept.numbers.after(number)
        fresh = ReceivingChannel(
            self.key,
            epoch=self.epoch + 1,
            expected=terms.numbers.first,
            oldest_stamp=self.newest_stamp,
        )
        return fresh, tuple(released), skipped

    def take(
        self, entry: Held, stamp: Instant, terms: Terms
    ) -> tuple[ReceivingChannel, tuple[Held, ...], list[int]]:
        """Note a number that fits; what may now be handed over, in order, and what the
        window slid past."""
        kept = self.in_force(terms)
        released: list[Held] = []
        if not kept.ordered and not entry.refused:
            released.append(entry)
            entry = replace(entry, handed=True)
        held = {waiting.number: waiting for waiting in self.held}
        held[entry.number] = entry
        number, passed = self.expected, self.passed
        # The first number of an epoch that another one came before is its oldest message.
        follows = self.epoch > 1 or self.oldest_stamp >= 0
        opens = follows and passed == 0 and entry.number == number
        skipped: list[int] = []
        window = self.window(kept)
        further = window is None or window.is_ahead(entry.number)
        outrun = self._outrun(entry.number, kept) if further else 0
        while number in held or outrun > 0:
            if number in held:
                released.append(held.pop(number))
            else:
                skipped.append(number)
            number, passed, outrun = kept.numbers.after(number), passed + 1, outrun - 1
        channel = replace(
            self,
            epoch=max(self.epoch, 1),
            expected=number,
            passed=passed,
            furthest=entry.number if further else self.furthest,
            held=tuple(held.values()),
            newest_stamp=max(self.newest_stamp, stamp),
            oldest_stamp=stamp if opens else self.oldest_stamp,
            numbers=kept.numbers,
            widest=kept.window_size,
        )
        return channel, tuple(released), skipped

    def _outrun(self, number: int, terms: Terms) -> int:
        """How many places the first missing number lies behind the window that this one ends.

        Never where order is agreed: there a number fits only within W of the missing one.
        """
        if self.furthest is None:
            return 0
        lag = terms.numbers.distance(self.expected, self.furthest)
        if lag >= terms.window_size:
            # Nothing is missing: the furthest number is the one before the expected.
            lag = -1
        lag += terms.numbers.distance(self.furthest, number)
        return max(0, lag - terms.window_size + 1)

    def refuse_held(self, message_id: str) -> ReceivingChannel:
        """A message that waits here will not be handed over: its number is settled, and
        passed when its turn comes."""
        held = tuple(
            replace(entry, refused=True) if entry.message_id == message_id else entry
            for entry in self.held
        )
        return replace(self, held=held)

    def skip_to(
        self, number: int, terms: Terms
    ) -> tuple[ReceivingChannel, tuple[Held, ...], list[int]]:
        """Stop waiting for what is missing before a held number; what may now be handed
        over, in order, and what is skipped."""
        held = {waiting.number: waiting for waiting in self.held}
        if number not in held:
            raise NotAllowed(
                f"channel {self.key} holds no message with number {number}",
                remedy="name the number of a message that is held",
            )
        kept = self.in_force(terms)
        released: list[Held] = []
        skipped: list[int] = []
        expected, passed, reached = self.expected, self.passed, False
        while not reached or expected in held:
            reached = reached or expected == number
            entry = held.pop(expected, None)
            if entry is None:
                skipped.append(expected)
            else:
                released.append(entry)
            expected, passed = kept.numbers.after(expected), passed + 1
        channel = replace(self, expected=expected, passed=passed, held=tuple(held.values()))
        return channel, tuple(released), skipped
