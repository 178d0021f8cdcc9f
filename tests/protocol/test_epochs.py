"""Epochs are told apart: no straggler of the past is taken for a message of the present.

Each test is one story in which a number alone would mislead the receiver. `world.py` looks for
more of them by chance.
"""

import pytest
from msgspec.structs import replace

from oncewire.errors import NotAllowed, TimeToLiveExpired
from oncewire.message.envelope import Error, ErrorClass, SequenceNumber
from oncewire.message.instant import DAY
from oncewire.protocol import sender
from oncewire.protocol.notes import Raise
from oncewire.protocol.receiver import (
    First,
    Judgement,
    TurnedAway,
    give_up_gap,
    hold_deadline,
    judge,
    refuse,
)
from oncewire.protocol.receiving import Fit, ReceivingChannel
from oncewire.protocol.sequence import SequenceRange
from oncewire.protocol.states import OutgoingState, Phase
from oncewire.protocol.terms import FlowMode, OnGap, ResetRule, Terms
from tests.protocol.samples import (
    CONTINUE,
    NOW,
    ORDERED,
    RESET,
    STOP_AND_WAIT,
    Stream,
    arrival,
    notes,
    of_kind,
)


class Receiver:
    """The receiver's side of one channel; a message is named by its stamp."""

    def __init__(self, terms: Terms = ORDERED) -> None:
        self.terms = terms
        self.channel = ReceivingChannel.open("a>b", terms)
        self.handed: list[str] = []

    def get(self, number: int, stamp: int, status: object = CONTINUE) -> Judgement:
        judged = judge(arrival(number, stamp, status), self.channel, self.terms, NOW)  # type: ignore[arg-type]
        assert judged.channel is not None
        self.channel = judged.channel
        if isinstance(judged, First):
            self.handed += judged.deliver
        return judged

    def fit(self, number: int, stamp: int, status: object = CONTINUE) -> Fit:
        return self.channel.fit(SequenceNumber(number, status), stamp, self.terms)  # type: ignore[arg-type]


# --- stragglers ---------------------------------------------------------------------------


def test_a_given_up_number_does_not_fit_the_next_epoch() -> None:
    # 0 and 1 arrive, 2 (made at 3) is delayed and abandoned, the numbering restarts.
    receiver = Receiver()
    receiver.get(0, 1, RESET)
    receiver.get(1, 2, RESET)
    receiver.get(0, 10, RESET)
    # Newer than anything that arrived of its own epoch, and its number would be welcome.
    assert receiver.fit(2, 3, RESET) is Fit.STRAGGLER
    assert receiver.fit(2, 12, RESET) is Fit.EARLY


def test_a_straggler_is_refused_for_good() -> None:
    receiver = Receiver()
    receiver.get(0, 1, RESET)
    receiver.get(0, 10, RESET)
    judged = receiver.get(1, 5, RESET)
    assert isinstance(judged, TurnedAway)
    # Resending would be in vain, and an acknowledgement given long ago is not taken back.
    assert judged.error.error_class is ErrorClass.MESSAGING
    assert judged.error.code == "Inconsistent"
    assert of_kind(judged.effects, Raise) == []


def test_an_old_opener_does_not_fit_after_a_wrap_around() -> None:
    # The receiver never saw epoch 1 (opener made at 1, given up); numbers then wrap.
    terms = replace(ORDERED, window=2, numbers=SequenceRange(0, 3), reset=ResetRule.FIRST_MESSAGE)
    receiver = Receiver(terms)
    receiver.get(0, 10, RESET)
    for number, stamp in ((1, 11), (2, 12), (3, 13)):
        receiver.get(number, stamp)
    assert receiver.fit(0, 1, RESET) is Fit.STRAGGLER
    assert receiver.fit(0, 14, CONTINUE) is Fit.NEXT


@pytest.mark.requirement("SEQ-8")
def test_an_old_first_number_does_not_fit_after_a_silent_wrap_around() -> None:
    terms = replace(STOP_AND_WAIT, numbers=SequenceRange(1, 3))
    receiver = Receiver(terms)
    for number, stamp in ((1, 10), (2, 11), (3, 12)):
        receiver.get(number, stamp, None)
    assert receiver.fit(1, 5, None) is Fit.STRAGGLER
    # The same number from a newer message is a new series, or the wrap-around: both are fine.
    assert receiver.fit(1, 13, None) is Fit.NEW_EPOCH


@pytest.mark.requirement("SEQ-15")
def test_a_late_reset_copy_restarts_nothing() -> None:
    receiver = Receiver()
    receiver.get(0, 10, RESET)
    receiver.get(1, 11, RESET)
    assert receiver.fit(0, 9, RESET) is Fit.STRAGGLER
    assert receiver.channel.epoch == 1


def test_the_newest_message_counts_and_not_the_latest_arrival() -> None:
    receiver = Receiver()
    for number, stamp in ((0, 10), (2, 30), (1, 20)):
        receiver.get(number, stamp, RESET)
    assert receiver.fit(0, 25, RESET) is Fit.STRAGGLER


def test_a_lost_first_number_is_replaced_by_its_successor() -> None:
    # A partner whose opener does not travel alone: 1 and 2 arrive, 0 was given up.
    receiver = Receiver()
    receiver.get(1, 2, RESET)
    receiver.get(2, 3, RESET)
    judged = receiver.get(0, 4, RESET)
    assert judged.deliver == ("s2", "s3", "s4")
    assert notes(judged) == ["skipped", "epoch_began"]
    # Had it been made before them, it would be the missing one itself.
    other = Receiver()
    other.get(1, 2, RESET)
    assert other.get(0, 1, RESET).deliver == ("s1", "s2")
    assert other.channel.epoch == 1


@pytest.mark.requirement("SEQ-15")
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_any_message_of_the_first_window_restarts(order: tuple[int, ...]) -> None:
    receiver = Receiver()
    for number in range(7):
        receiver.get(number, number, RESET if number < 4 else CONTINUE)
    for number in order:
        receiver.get(number, 20 + number, RESET)
    assert receiver.handed[-3:] == ["s20", "s21", "s22"]
    assert receiver.channel.epoch == 2


def test_numbers_of_a_partner_whose_clock_stepped_back_still_fit() -> None:
    # Timestamps decide only where a restart is in play: here there was none.
    receiver = Receiver()
    receiver.get(0, 1_000, RESET)
    assert receiver.get(1, 5, RESET).deliver == ("s5",)
    assert receiver.get(2, 3, RESET).deliver == ("s3",)


def test_a_late_opener_of_the_first_epoch_makes_no_message_too_old() -> None:
    # Its clock stepped back after the opener, which arrives second: nothing was restarted.
    receiver = Receiver()
    receiver.get(1, 9, RESET)
    assert receiver.get(0, 8, RESET).deliver == ("s8", "s9")
    assert receiver.get(2, 5, RESET).deliver == ("s5",)
    assert receiver.channel.epoch == 1


def test_the_first_message_of_a_stream_restarts_nothing() -> None:
    receiver = Receiver()
    assert receiver.fit(0, 1, RESET) is Fit.NEXT
    assert notes(receiver.get(0, 1, RESET)) == []
    assert receiver.channel.epoch == 1


def test_a_mark_of_beginning_behind_the_first_window_is_of_another_epoch() -> None:
    receiver = Receiver()
    for number in range(3):
        receiver.get(number, number, RESET)
    assert receiver.fit(3, 9, RESET) is Fit.NEXT, "the last that is marked"
    assert receiver.fit(4, 9, RESET) is Fit.BEYOND
    assert receiver.fit(5, 9, RESET) is Fit.BEYOND
    receiver.get(3, 3, RESET)
    assert receiver.fit(4, 9, RESET) is Fit.BEYOND
    assert receiver.fit(4, 9, CONTINUE) is Fit.NEXT
    # Where the first message alone is marked, the second begins nothing.
    receiver = Receiver(replace(ORDERED, reset=ResetRule.FIRST_MESSAGE))
    receiver.get(0, 1, RESET)
    assert receiver.fit(1, 9, RESET) is Fit.NEW_EPOCH


def test_a_first_number_as_old_as_what_follows_it_is_the_missing_one() -> None:
    # A clock of whole seconds stamped both: nothing shows that the first was given up.
    receiver = Receiver()
    receiver.get(1, 5, RESET)
    assert receiver.get(0, 5, RESET).deliver == ("s5", "s5")
    assert receiver.channel.epoch == 1


def test_a_restart_within_one_tick_of_the_partners_clock_is_a_restart() -> None:
    # Many handlers stamp whole seconds: what was made in the same one has the same stamp.
    receiver = Receiver()
    receiver.get(0, 10, RESET)
    assert receiver.fit(0, 10, RESET) is Fit.NEW_EPOCH
    receiver.get(0, 10, RESET)
    assert receiver.channel.epoch == 2
    assert receiver.fit(1, 10, RESET) is Fit.NEXT, "as old as its opener, and no older"


# --- the opener ---------------------------------------------------------------------------


@pytest.mark.parametrize("reset", [ResetRule.FIRST_WINDOW, ResetRule.FIRST_MESSAGE])
def test_the_opener_travels_alone(reset: ResetRule) -> None:
    stream = Stream(replace(ORDERED, reset=reset))
    stream.enter("a")
    assert stream.channel.places(stream.terms) == 0
    with pytest.raises(NotAllowed, match="full"):
        stream.enter("b")
    stream.ack("a")
    assert stream.channel.places(stream.terms) == 4


def test_every_epoch_has_its_opener() -> None:
    stream = Stream()
    stream.enter("a")
    stream.ack("a")
    stream.enter("b", "c")
    stream.abandon("b")
    assert stream.channel.places(stream.terms) == 0, "c is still under way"
    stream.ack("c")
    assert stream.channel.places(stream.terms) == 1
    stream.enter("d")
    assert (stream.number("d"), stream.channel.epoch) == (0, 2)
    assert stream.channel.places(stream.terms) == 0


def test_where_numbers_are_not_sent_nobody_travels_alone() -> None:
    limited = replace(ORDERED, numbered=False, ordered=False)
    stream = Stream(limited)
    stream.enter("a", "b", "c", "d")
    assert stream.channel.places(limited) == 0
    stream.abandon("a")
    assert stream.channel.places(limited) == 1, "a given-up place ends no epoch"


def test_an_error_to_the_opener_ends_its_epoch() -> None:
    # An intermediary may have refused it: then the receiver has not begun the epoch.
    stream = Stream()
    stream.enter("a")
    error = Error("TimeToLiveExpired")
    stream.step("a", sender.error_arrived, stream.terms, NOW, error=error, error_id="e")
    assert stream.channel.phase is Phase.ENDING
    stream.enter("b")
    assert (stream.number("b"), stream.channel.epoch) == (0, 2)


@pytest.mark.parametrize("code", ["SecurityFailure", "TimeToLiveExpired", "DeliveryFailure"])
def test_no_error_proves_that_the_number_was_noted(code: str) -> None:
    # Whoever raised it may have done so before the number was judged, or on the way.
    stream = Stream()
    stream.enter("a")
    stream.ack("a")
    stream.enter("b")
    step = stream.step(
        "b", sender.error_arrived, stream.terms, NOW, error=Error(code), error_id="e"
    )
    assert stream.channel.phase is Phase.ENDING
    assert "epoch_ended" in notes(step)
    assert stream.state("b") is OutgoingState.NOT_DELIVERED


# --- gaps that nobody closes --------------------------------------------------------------


def _with_gap() -> Receiver:
    receiver = Receiver()
    receiver.get(0, 1, RESET)
    receiver.get(2, 3, RESET)
    receiver.get(3, 4, RESET)
    return receiver


def test_a_held_message_does_not_wait_for_ever() -> None:
    receiver = _with_gap()
    assert receiver.handed == ["s1"]
    done = give_up_gap(receiver.channel, 2, receiver.terms)
    assert done.deliver == ("s3", "s4")
    assert notes(done) == ["skipped"]
    assert done.channel.expected == 4
    assert done.channel.held == ()


def test_waiting_ends_when_the_sender_of_the_missing_number_has_stopped() -> None:
    assert hold_deadline(NOW, replace(ORDERED, persist_duration=DAY)) == NOW + DAY


def test_a_gap_behind_the_named_number_is_still_waited_for() -> None:
    terms = replace(ORDERED, window=5)
    receiver = Receiver(terms)
    for number in (1, 3, 4):
        receiver.get(number, number, RESET)
    done = give_up_gap(receiver.channel, 1, terms)
    assert done.deliver == ("s1",)
    assert [held.number for held in done.channel.held] == [3, 4]


def test_refused_numbers_in_a_given_up_gap_are_skipped_too() -> None:
    receiver = _with_gap()
    refused = refuse(arrival(4, 5), TimeToLiveExpired("late"), receiver.channel, receiver.terms)
    assert refused.channel is not None
    done = give_up_gap(refused.channel, 4, receiver.terms)
    assert done.deliver == ("s3", "s4")
    assert notes(done) == ["skipped", "skipped"]


def test_a_number_that_was_skipped_is_too_late_and_its_sender_is_told() -> None:
    receiver = _with_gap()
    receiver.channel = give_up_gap(receiver.channel, 3, receiver.terms).channel
    judged = receiver.get(1, 2, RESET)
    assert isinstance(judged, TurnedAway)
    stream = Stream()
    stream.enter("a")
    stream.ack("a")
    stream.enter("b")
    stream.step("b", sender.error_arrived, stream.terms, NOW, error=judged.error, error_id="e")
    assert stream.state("b") is OutgoingState.NOT_DELIVERED
    assert stream.channel.unsettled(stream.terms) == 0


def test_a_skipped_number_without_a_mark_is_too_late_as_well() -> None:
    terms = replace(ORDERED, reset=ResetRule.FIRST_MESSAGE)
    receiver = Receiver(terms)
    receiver.get(0, 1, RESET)
    receiver.get(2, 3)
    receiver.channel = give_up_gap(receiver.channel, 2, terms).channel
    assert receiver.fit(1, 2) is Fit.STRAGGLER
    assert receiver.fit(1, 4) is Fit.OCCUPIED, "newer than all: its sender is mistaken"


def test_a_number_that_was_skipped_counts_as_passed() -> None:
    # 0 was handed over, 1 and 2 never came: the fifth message no longer begins the epoch.
    terms = replace(ORDERED, window=3)
    receiver = Receiver(terms)
    receiver.get(0, 1, RESET)
    receiver.get(3, 4)
    receiver.channel = give_up_gap(receiver.channel, 3, terms).channel
    assert receiver.channel.passed == 4
    assert receiver.fit(1, 2, RESET) is Fit.STRAGGLER
    assert receiver.fit(4, 5, RESET) is Fit.BEYOND, "marked as a beginning where none is due"


def test_only_a_held_number_ends_the_wait() -> None:
    receiver = _with_gap()
    with pytest.raises(NotAllowed, match="holds no message with number 1") as caught:
        give_up_gap(receiver.channel, 1, receiver.terms)
    assert caught.value.remedy


# --- mistakes of the other side -----------------------------------------------------------


def test_a_used_number_on_a_newer_message_is_an_incident() -> None:
    receiver = Receiver()
    receiver.get(0, 1, RESET)
    receiver.get(1, 2, RESET)
    judged = receiver.get(1, 9, CONTINUE)
    assert isinstance(judged, TurnedAway)
    assert "belongs to another message" in of_kind(judged.effects, Raise)[0].reason
    assert judged.error.error_class is ErrorClass.SEQUENCE


def test_a_held_number_is_taken() -> None:
    receiver = Receiver()
    receiver.get(0, 1, RESET)
    receiver.get(2, 3, RESET)
    assert receiver.fit(2, 9, CONTINUE) is Fit.OCCUPIED
    assert receiver.fit(2, 2, CONTINUE) is Fit.OCCUPIED, "however old: it is not behind"
    # With the mark of a beginning it can only be of a new epoch, or of one that is over.
    assert receiver.fit(2, 9, RESET) is Fit.NEW_EPOCH
    assert receiver.fit(2, 2, RESET) is Fit.STRAGGLER


def test_a_number_outside_the_range_is_an_incident() -> None:
    judged = Receiver().get(57, 1, RESET)
    assert isinstance(judged, TurnedAway)
    assert "0..9" in of_kind(judged.effects, Raise)[0].reason
    assert Receiver().fit(57, 1) is Fit.OUTSIDE


def test_a_first_number_beyond_the_window_names_the_window() -> None:
    judged = Receiver().get(7, 1, RESET)
    assert isinstance(judged, TurnedAway)
    assert "window of 4" in judged.error.description
    assert of_kind(judged.effects, Raise)
    # A restart that begins beyond the window is no less odd.
    receiver = Receiver()
    receiver.get(0, 1, RESET)
    assert receiver.fit(5, 9, RESET) is Fit.BEYOND


def test_a_silent_restart_needs_one_message_at_a_time() -> None:
    terms = replace(STOP_AND_WAIT, flow=FlowMode.WINDOW, window=1, on_gap=OnGap.BUFFER)
    receiver = Receiver(terms)
    receiver.get(1, 1, None)
    receiver.get(2, 2, None)
    assert receiver.get(1, 3, None).deliver == ("s3",)
    assert receiver.channel.epoch == 2
