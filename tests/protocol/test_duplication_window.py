"""The duplication check window decides what a number means, with and without order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from oncewire.errors import Inconsistent
from oncewire.message.envelope import ErrorClass
from oncewire.protocol.notes import Note, Raise
from oncewire.protocol.receiver import First, Judgement, TurnedAway, judge, refuse
from oncewire.protocol.receiving import Fit, Held, ReceivingChannel
from oncewire.protocol.sequence import SequenceRange
from oncewire.protocol.terms import Terms
from tests.protocol.samples import CONTINUE, NOW, ORDERED, RESET, arrival, of_kind

WIDE = replace(ORDERED, numbers=SequenceRange(0, 99))
"""W = 4 of a hundred numbers, so that there is room behind the window."""

LOOSE = replace(WIDE, ordered=False)
"""Numbered, and handed over as it comes."""


class Receiver:
    """The receiver's side of one channel; a message is named by its number."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.channel = ReceivingChannel.open("a>b", terms)
        self.handed: list[str] = []
        self.skipped: list[int | None] = []

    def get(self, *numbers: int) -> Judgement:
        for number in numbers:
            status = RESET if number < self.terms.window_size else CONTINUE
            judged = judge(
                arrival(number, NOW + number, status, f"m{number}"), self.channel, self.terms, NOW
            )
            self.note(judged)
        return judged

    def note(self, judged: Judgement) -> None:
        assert judged.channel is not None
        self.channel = judged.channel
        self.handed += () if isinstance(judged, TurnedAway) else judged.deliver
        self.skipped += [
            note.number for note in of_kind(judged.effects, Note) if note.kind == "skipped"
        ]

    def stranger(self, number: int, stamp: int = 2 * NOW) -> Judgement:
        """A message of another id, as new as can be."""
        late = arrival(number, stamp, CONTINUE, "stranger")
        return judge(late, self.channel, self.terms, NOW)


# --- the window, with order ------------------------------------------------------------------


@pytest.mark.requirement("SW-7", "SW-8")
def test_a_number_inside_the_window_under_another_id_is_invalid() -> None:
    receiver = Receiver(WIDE)
    receiver.get(*range(20))
    window = receiver.channel.window(WIDE)
    assert window is not None
    assert list(window) == [16, 17, 18, 19]
    for number in window:
        judged = receiver.stranger(number)
        assert isinstance(judged, TurnedAway)
        assert judged.error.error_class is ErrorClass.SEQUENCE
        assert "belongs to another message" in of_kind(judged.effects, Raise)[0].reason


@pytest.mark.requirement("SW-7")
def test_a_number_behind_the_window_is_stale_whatever_its_timestamp_says() -> None:
    receiver = Receiver(WIDE)
    receiver.get(*range(20))
    for number in (0, 9, 15):
        judged = receiver.stranger(number)
        assert isinstance(judged, TurnedAway)
        assert judged.error.location == "//MessageData/Timestamp"
        assert judged.effects == (), "nobody is called about a straggler"


@pytest.mark.requirement("SW-8", "SW-9")
def test_the_window_slides_to_the_furthest_number_and_the_missing_one_still_fits() -> None:
    receiver = Receiver(WIDE)
    receiver.get(0, 1, 4, 3)
    assert receiver.channel.furthest == 4, "a late arrival does not shrink the window (gap 13)"
    fits = {number: receiver.channel.fit(_of(number), 2 * NOW, WIDE) for number in range(9)}
    assert fits == {
        0: Fit.STRAGGLER,
        1: Fit.OCCUPIED,
        2: Fit.NEXT,
        3: Fit.OCCUPIED,
        4: Fit.OCCUPIED,
        5: Fit.EARLY,
        # Ahead of the window, but then more than W would be held.
        6: Fit.BEYOND,
        7: Fit.BEYOND,
        8: Fit.BEYOND,
    }


def test_the_whole_window_ahead_fits_and_no_more() -> None:
    receiver = Receiver(WIDE)
    receiver.get(*range(6))
    fits = [receiver.channel.fit(_of(number), 2 * NOW, WIDE) for number in (6, 7, 8, 9, 10)]
    assert fits == [Fit.NEXT, Fit.EARLY, Fit.EARLY, Fit.EARLY, Fit.BEYOND]


def test_what_would_lie_before_the_first_number_was_never_received() -> None:
    receiver = Receiver(WIDE)
    receiver.get(1)
    window = receiver.channel.window(WIDE)
    assert window is not None
    assert 98 in window
    assert receiver.channel.fit(_of(98), 2 * NOW, WIDE) is Fit.BEYOND


@given(st.lists(st.integers(0, 11), max_size=30), st.integers(1, 4), st.booleans())
def test_the_window_agrees_with_a_receiver_that_remembers_everything(
    order: list[int], size: int, ordered: bool
) -> None:
    """Numbers of one long epoch in any order: each is taken once, and none beyond its bound."""
    terms = replace(WIDE, window=size, ordered=ordered)
    receiver = Receiver(terms)
    came: set[int] = set()
    for place in order:
        before = receiver.channel
        # Without the mark of a beginning, so that a repeated number begins nothing.
        judged = judge(arrival(place, NOW, CONTINUE), before, terms, NOW)
        receiver.note(judged)
        missing = next(n for n in range(100) if n not in came)
        if isinstance(judged, First):
            assert place not in came
            assert ordered is False or place < missing + size
            came |= {place, *(n for n in receiver.skipped if n is not None)}
        else:
            assert receiver.channel == before
        assert len(receiver.channel.held) < size or not ordered
    assert receiver.skipped == sorted(receiver.skipped)  # type: ignore[type-var]
    assert not (ordered and receiver.skipped)


def _of(number: int):  # type: ignore[no-untyped-def]
    sequence = arrival(number, 0).sequence
    assert sequence is not None
    return sequence


# --- the window, without order ---------------------------------------------------------------


@pytest.mark.requirement("SW-8")
def test_without_order_a_message_is_handed_over_when_it_comes() -> None:
    receiver = Receiver(LOOSE)
    receiver.get(0, 2, 3)
    assert receiver.handed == ["m0", "m2", "m3"]
    assert not receiver.get(1).held
    assert receiver.handed == ["m0", "m2", "m3", "m1"]
    assert receiver.channel.expected == 4
    assert receiver.channel.held == ()
    assert receiver.skipped == []


def test_without_order_numbers_are_judged_all_the_same() -> None:
    receiver = Receiver(LOOSE)
    receiver.get(0, 1, 2, 3, 5)
    assert receiver.channel.held == (Held(5, "m5", handed=True),)
    assert isinstance(receiver.stranger(5), TurnedAway), "the number is known"
    assert isinstance(receiver.stranger(3), TurnedAway)
    assert receiver.stranger(0).error.location == "//MessageData/Timestamp"  # type: ignore[union-attr]
    beyond = receiver.stranger(10)
    assert beyond.error is not None
    assert "window of 4" in beyond.error.description
    assert isinstance(receiver.stranger(4), First)
    assert isinstance(receiver.stranger(9), First)


def test_without_order_a_number_that_is_never_sent_holds_nobody_up() -> None:
    # A sender that gives a number up and goes on without a word of it.
    receiver = Receiver(LOOSE)
    receiver.get(*(number for number in range(60) if number % 10 != 1))
    assert receiver.handed == [f"m{number}" for number in range(60) if number % 10 != 1]
    assert receiver.skipped == [1, 11, 21, 31, 41, 51]
    assert isinstance(receiver.stranger(31), TurnedAway)


def test_without_order_the_far_end_of_the_window_is_reached_in_one_step() -> None:
    terms = replace(LOOSE, numbers=SequenceRange(0, 7))
    receiver = Receiver(terms)
    receiver.get(1, 2, 3)
    receiver.get(7)
    assert receiver.handed == ["m1", "m2", "m3", "m7"]
    assert receiver.skipped == [0]
    assert (receiver.channel.expected, receiver.channel.furthest) == (4, 7)
    receiver.get(4, 5, 6)
    assert receiver.channel.expected == 0
    assert receiver.channel.held == ()


def test_without_order_a_refused_number_is_settled_and_not_handed_over() -> None:
    receiver = Receiver(LOOSE)
    receiver.get(0)
    bad = arrival(2, NOW + 2, RESET, "bad")
    receiver.note(refuse(bad, Inconsistent("no"), receiver.channel, LOOSE))
    receiver.get(1)
    assert receiver.handed == ["m0", "m1"]
    assert receiver.skipped == [2]
    assert receiver.channel.expected == 3


def test_without_order_the_end_of_an_epoch_hands_over_nothing_twice() -> None:
    receiver = Receiver(LOOSE)
    receiver.get(0, 1, 3, 4)
    opener = arrival(0, 2 * NOW, RESET, "opener")
    receiver.note(judge(opener, receiver.channel, LOOSE, NOW))
    assert receiver.handed == ["m0", "m1", "m3", "m4", "opener"]
    assert receiver.skipped == [2]
    assert receiver.channel.epoch == 2
