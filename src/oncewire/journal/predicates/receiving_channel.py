"""S6, order, and S7, no silent gap: the numbers an ordered channel uses up, on one node.

A number is used up when its message is handed over, or, at a hub, when it is forwarded: then the
hub's own copy carries on, and the stream it came on goes on behind it. A hub's stream may hold
messages for several To Parties, its own application among them. What waits for one of them does
not hold up another's, so order is kept among the messages for each.

Numbers repeat, and an application may be slow: while it still has the end of one lap before it,
the receiver may be in the next lap, or in the next epoch. So each row's number is placed first:
its place counts from 0 at the epoch's beginning and never repeats.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from oncewire.journal.predicates.context import Context, Violation, ViolationKind
from oncewire.journal.row import Row
from oncewire.journal.trace import FORWARDED, HANDED_OVER, INCIDENT, RECEIVED, SKIPPED
from oncewire.message.envelope import is_trial
from oncewire.protocol import notes
from oncewire.protocol.sequence import SequenceRange
from oncewire.protocol.terms import Terms

REMEMBERED_MAX = 1_000
"""How many used numbers are kept to recognise one that is used twice, at most."""

EPOCHS_MAX = 1_000
"""How many epochs may wait for a slow application at once; rows of a broken journal must not
make the fold grow for ever."""


@dataclass(slots=True)
class _Epoch:
    """The next place to use up, and what is known of the places around it."""

    first: int
    size: int
    expected: int = 0
    # Behind the furthest place that anything is known of.
    reached: int = 0
    skipped: set[int] = field(default_factory=set)
    # Received, not used up yet, by MessageId.
    waiting: dict[str | None, tuple[int, Row]] = field(default_factory=dict)
    # Those of them that messages for another To Party have passed, in order, by To Party.
    behind: dict[str, dict[int, None]] = field(default_factory=dict)
    # Places passed over: (from, how many, the row that passed them).
    missing: list[tuple[int, int, Row]] = field(default_factory=list)
    # The last places used up and whose they were.
    handed: dict[int, str | None] = field(default_factory=dict)
    # After a hole: where the rows that follow take up is not known yet, nor where what
    # arrives meanwhile lies.
    loose: bool = False
    unplaced: dict[str | None, Row] = field(default_factory=dict)
    # After a break: the place that is next if the row that broke had had the place due.
    due: int | None = None
    # And the place behind one that was told as late or repeated: a run of them is one cause.
    follow: int | None = None
    # Behind an arrival further ahead than a window: believed when the next one is there too.
    jumped: int | None = None

    def __contains__(self, number: int) -> bool:
        """Whether it has the number. A skip names no terms, and those of the row before it may be
        the next epoch's, with another range."""
        return self.first <= number < self.first + self.size

    def renumber(self, numbers: SequenceRange) -> None:
        """The agreement has another range now. In the first lap places stay what they are; later
        ones count laps that are of another length."""
        first_lap = numbers.first == self.first and self.reached <= min(self.size, numbers.size)
        self.first, self.size = numbers.first, numbers.size
        if not first_lap:
            self.take_up()

    def take_up(self) -> None:
        """Rows are missing here: in which lap the next ones lie is not known, nor what was used."""
        self.loose = True
        for known in (self.waiting, self.unplaced, self.behind, self.handed):
            known.clear()
        self.skipped.clear()
        self.missing.clear()
        self.due = self.follow = self.jumped = None

    def begin_at(self, place: int) -> None:
        """The first place used up behind a hole; what arrived since lies ahead of it."""
        self.loose, self.expected, self.reached = False, place, place + 1
        for message_id, row in self.unplaced.items():
            ahead = ((row.sequence_number or 0) - self.first - place) % self.size
            self.waiting[message_id] = place + ahead, row
            self.reached = max(self.reached, place + ahead + 1)
        self.unplaced.clear()

    def place_of_arrival(self, number: int, window: int) -> int:
        """Where a number lies that arrived or was skipped: within W of the furthest one."""
        place = self.reached + (number - self.first - self.reached) % self.size
        earlier = place - self.size
        if 2 * (place - self.reached) >= self.size and earlier >= 0:
            place = earlier
        if place < self.reached + window or place == self.jumped:
            self.reached = max(self.reached, place + 1)
        self.jumped = place + 1
        return place

    def place_of_use(self, row: Row, number: int) -> tuple[int, Row | None]:
        """Where a number lies that is used up now: where it arrived (the row is given back, too),
        else near the expected one."""
        arrived = self.waiting.pop(row.message_id, None)
        self.unplaced.pop(row.message_id, None)
        if arrived is not None and arrived[1].sequence_number == number:
            return arrived
        if self.loose:
            return number - self.first, None
        place = self.expected + (number - self.first - self.expected) % self.size
        earlier = place - self.size
        if place - self.expected > self.size // 2 or any(
            start <= earlier < start + count for start, count, _ in self.missing
        ):
            place = earlier
        if arrived is not None and place != self.expected:
            return arrived  # The fold over the message tells that its number is another one.
        self.reached = max(self.reached, place + 1)
        return place, None

    def waiting_for_others(self, end: int, to_party: str | None) -> dict[int, str]:
        """The other To Parties of messages that wait before a place."""
        found: dict[int, str] = {}
        for place, received in self.waiting.values():
            if to_party is not None and self.expected <= place < end:
                other = _to_party(received)
                if other is not None and other != to_party:
                    found[place] = other
        return found

    def leaves_behind(self, place: int, to_party: str | None) -> bool:
        """Take a place out of those that others have passed; False: it is none of them."""
        waiting = self.behind.get(to_party or "", {})
        if place not in waiting:
            return False
        del waiting[place]
        if not waiting:
            del self.behind[to_party or ""]
        return True

    def is_behind(self, place: int) -> bool:
        """Whether messages for others have passed it while it waits."""
        return any(place in waiting for waiting in self.behind.values())

    def pass_skipped(self) -> None:
        """Go on behind what was skipped."""
        while self.expected in self.skipped:
            self.skipped.discard(self.expected)
            self.expected += 1

    def take_missing(self, place: int) -> Row | None:
        """Take a place out of those passed over; returns the row that passed it."""
        for index, (start, count, row) in enumerate(self.missing):
            offset = place - start
            if 0 <= offset < count:
                rest = []
                if offset:
                    rest.append((start, offset, row))
                if offset + 1 < count:
                    rest.append((place + 1, count - offset - 1, row))
                self.missing[index : index + 1] = rest
                return row
        return None


class ReceivingChannelFold:
    """One pass over RECEIVED, SKIPPED, HANDED_OVER and FORWARDED rows; for each open epoch O(W)
    state and what was received and not used up. INCIDENT and RESOLVED rows say of which of that
    an operator was told."""

    def __init__(self, found: list[Violation]) -> None:
        self._found = found
        self._called: set[str | None] = set()
        self._epochs: dict[int | None, _Epoch] = {}
        self._loose = False
        self._unnumbered = False

    def take_up(self) -> None:
        """Rows are missing here: what they received and used up is not known."""
        self._loose = True
        for epoch in self._epochs.values():
            epoch.take_up()

    def call(self, row: Row) -> None:
        """An operator is called because of a message of the stream, or has met what it was."""
        if row.kind == INCIDENT:
            self._called.add(row.message_id)
        else:
            self._called.discard(row.message_id)

    def take(self, row: Row, terms: Terms, context: Context) -> None:
        """One more row of a kind in `RECEIVING`."""
        number, kind = row.sequence_number, row.kind
        if not terms.ordered:
            if number is not None:
                # An agreement that is changed to an ordered one goes on behind numbers whose
                # order is not judged.
                self._epoch_of(row, terms, context).take_up()
            return
        known = self._epochs.get(row.epoch) if kind == SKIPPED else None
        if number is None or number not in (terms.numbers if known is None else known):
            self._out_of_range(row, terms)
            return
        if kind == HANDED_OVER and row.detail is not None and "redelivered" in row.detail:
            # Order is judged by the first hand-over; whether a second may be is S2's matter.
            return
        epoch = None if kind in (RECEIVED, SKIPPED) else self._arrived_in(row)
        epoch = epoch or self._epoch_of(row, terms, context)
        if kind == RECEIVED and (epoch.first, epoch.size) != (
            terms.numbers.first,
            terms.numbers.size,
        ):
            epoch.renumber(terms.numbers)
        if epoch.loose and kind in (RECEIVED, SKIPPED):
            if kind == RECEIVED:
                epoch.unplaced[row.message_id] = row
        elif kind == RECEIVED:
            place = epoch.place_of_arrival(number, terms.window_size)
            epoch.waiting[row.message_id] = place, row
        elif kind == SKIPPED:
            self._skipped(epoch, row, number, terms)
        else:
            self._used(epoch, row, number, terms)

    def _epoch_of(self, row: Row, terms: Terms, context: Context) -> _Epoch:
        """The epoch that a row belongs to, which begins with its first row."""
        epoch = self._epochs.get(row.epoch)
        if epoch is None:
            self._close_old(context)
            epoch = self._epochs[row.epoch] = _Epoch(terms.numbers.first, terms.numbers.size)
            # It may have begun in the hole.
            epoch.loose, self._loose = self._loose, False
        return epoch

    def _arrived_in(self, row: Row) -> _Epoch | None:
        """The epoch in which a message arrived whose use names an epoch that is not known, or has
        another number next: the fold over the message tells that they differ."""
        named = self._epochs.get(row.epoch)
        if named is not None and (
            row.message_id in named.waiting
            or (row.sequence_number or 0) - named.first == named.expected % named.size
        ):
            return named
        return next(
            (epoch for epoch in self._epochs.values() if row.message_id in epoch.waiting), named
        )

    def _out_of_range(self, row: Row, terms: Terms) -> None:
        """A number that cannot be, or none: told once for a channel, and one is used up by it."""
        if row.kind == RECEIVED and not self._unnumbered:
            self._unnumbered = True
            self._note(
                "S7",
                ViolationKind.GAP,
                row,
                f"It is ordered, and from row {row.seq} on there are arrivals without a number of "
                f"{terms.numbers.first}..{terms.numbers.last}.",
            )
        epoch = self._epochs.get(row.epoch)
        if epoch is not None and row.kind in (HANDED_OVER, FORWARDED):
            epoch.waiting.pop(row.message_id, None)
            epoch.expected += 1
            epoch.pass_skipped()

    def _used(self, epoch: _Epoch, row: Row, number: int, terms: Terms) -> None:
        place, received = epoch.place_of_use(row, number)
        if epoch.loose:
            epoch.begin_at(place)
        if epoch.due is not None:
            self._go_on(epoch, place)
        if place == epoch.expected and not epoch.behind:
            epoch.expected += 1
            if epoch.skipped:
                epoch.pass_skipped()
        elif not self._used_otherwise(epoch, row, place, _to_party(received)):
            return
        epoch.handed[place] = row.message_id
        if len(epoch.handed) > min(terms.window_size, REMEMBERED_MAX):
            del epoch.handed[next(iter(epoch.handed))]

    def _used_otherwise(self, epoch: _Epoch, row: Row, place: int, to_party: str | None) -> bool:
        """Not the plain next one: False if it was used up before."""
        if place >= epoch.expected:
            due = epoch.expected + 1
            self._passed_over(epoch, row, place, to_party)
            if any(start == due - 1 for start, _, _ in epoch.missing):
                epoch.due = due
        elif not epoch.leaves_behind(place, to_party) and not self._was_late(epoch, row, place):
            if self._repeated(epoch, row, place):
                epoch.due = epoch.expected + 1
            return False
        # What still waits for the same To Party from before was passed by this one.
        behind = epoch.behind.get(to_party or "", {})
        for earlier in [number for number in behind if number < place]:
            epoch.leaves_behind(earlier, to_party)
            epoch.missing.append((earlier, 1, row))
        return True

    def _go_on(self, epoch: _Epoch, place: int) -> None:
        """After a break: the rows go on as if the one before had had the place that was due."""
        due, epoch.due = epoch.due, None
        if due is None or place != due:
            return
        for index, (start, _, row) in enumerate(epoch.missing):
            if start == due - 1:
                epoch.missing[index:] = [(start, 1, row)]
                break
        epoch.expected = due

    def _passed_over(self, epoch: _Epoch, row: Row, place: int, to_party: str | None) -> None:
        """Remember what was passed over: its own later row shows disorder, none shows a gap."""
        start = epoch.expected
        others = epoch.waiting_for_others(place, to_party)
        for known in sorted({*others, *(number for number in epoch.skipped if number < place)}):
            if known > start:
                epoch.missing.append((start, known - start, row))
            if known in others:
                epoch.behind.setdefault(others[known], {})[known] = None
            epoch.skipped.discard(known)
            start = known + 1
        if place > start:
            epoch.missing.append((start, place - start, row))
        epoch.expected = place + 1
        epoch.pass_skipped()

    def _was_late(self, epoch: _Epoch, row: Row, place: int) -> bool:
        passed_by = epoch.take_missing(place)
        if passed_by is None:
            return False
        followed, epoch.follow = epoch.follow == place, place + 1
        if followed:
            return True  # The whole run was passed at once, and that is told.
        self._note(
            "S6",
            ViolationKind.OUT_OF_ORDER,
            row,
            f"Number {row.sequence_number} was {_deed(row)} after number "
            f"{passed_by.sequence_number}.",
        )
        return True

    def _repeated(self, epoch: _Epoch, row: Row, place: int) -> bool:
        """A number handed over twice; a repeat of the same message is S2's matter."""
        owner = epoch.handed.get(place, row.message_id)
        followed, epoch.follow = epoch.follow == place, place + 1
        if owner == row.message_id:
            return False
        if not followed:
            self._note(
                "S8",
                ViolationKind.REPEATED_NUMBER,
                row,
                f"It was {_deed(row)} as number {row.sequence_number}, as {owner} was before.",
            )
        return True

    def _skipped(self, epoch: _Epoch, row: Row, number: int, terms: Terms) -> None:
        arrived = epoch.waiting.pop(row.message_id, None)
        window = terms.window_size
        place = epoch.place_of_arrival(number, window) if arrived is None else arrived[0]
        if place >= epoch.expected:
            epoch.skipped.add(place)
            epoch.pass_skipped()
        elif arrived is None or not epoch.leaves_behind(place, _to_party(arrived[1])):
            epoch.take_missing(place)

    def _close_old(self, context: Context) -> None:
        """End the epochs that nothing more can come of, now that another one begins.

        What an epoch still holds may be handed over long after: its application has not come
        for it yet. The skips of the last one are told when the next one has begun.
        """
        for number in list(self._epochs)[:-1]:
            if not self._epochs[number].waiting or len(self._epochs) > EPOCHS_MAX:
                self._close(self._epochs.pop(number), context, ended=True)

    def finish(self, context: Context) -> None:
        """Tell what was never used up though a later number was."""
        last = next(reversed(self._epochs), None)
        for number, epoch in self._epochs.items():
            self._close(epoch, context, ended=number != last)

    def _close(self, epoch: _Epoch, context: Context, *, ended: bool) -> None:
        for start, count, row in epoch.missing:
            first = epoch.first + start % epoch.size
            told = f"{first}" if count == 1 else f"{first} and {count - 1} after it"
            self._note(
                "S7",
                ViolationKind.GAP,
                row,
                f"Number {row.sequence_number} was {_deed(row)}, but {told} neither was "
                "nor has a journaled skip.",
            )
        for place, row in epoch.waiting.values():
            # With the sender's journal at hand the message's own fold tells it.
            due = ended or place == epoch.expected or epoch.is_behind(place)
            if row.message_id in self._called or context.is_held_up(row):
                continue  # It, or one before it, cannot go on: a person was told, and decides.
            healed = context.is_healed(row.at, (row.node,))
            if due and healed and not context.has_journal_of(row.peer):
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


def _to_party(received: Row | None) -> str | None:
    """Whom a message is for, as its arrival says: the To Party's application, or its handler,
    which takes trials and the notice of a failure itself and at once, whatever the application
    has yet to come for (ERR-5), and gathers the parts of each document in their order."""
    if received is None or received.detail is None:
        return None
    said = notes.Received.read(received.detail)
    if said.split_id is not None:
        return f"{said.to_party} (document {said.split_id})"
    ours = said.notice or is_trial(received.message_id or "")
    return f"{said.to_party} (its handler)" if ours else said.to_party


def _deed(row: Row) -> str:
    return "forwarded" if row.kind == FORWARDED else "handed over"
