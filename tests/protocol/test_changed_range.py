"""An agreement that changes its numbers leaves those that are under way alone (C2, C7)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from oncewire.protocol import sender
from oncewire.protocol.notes import Admit, Raise
from oncewire.protocol.receiver import First, TurnedAway, give_up_gap, judge
from oncewire.protocol.receiving import Fit, ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.sequence import SequenceRange
from oncewire.protocol.states import Phase
from oncewire.protocol.terms import FlowMode, OnGap, Terms
from tests.protocol.samples import (
    CONTINUE,
    NOW,
    ORDERED,
    RESET,
    STOP_AND_WAIT,
    Stream,
    arrival,
    of_kind,
)

WIDE = replace(ORDERED, numbers=SequenceRange(0, 99), window=2)
NARROW = replace(WIDE, numbers=SequenceRange(0, 3))
SHIFTED = replace(WIDE, numbers=SequenceRange(200, 299))


def _stream_at(count: int, terms: Terms = WIDE) -> Stream:
    stream = Stream(terms)
    for number in range(count):
        stream.enter(f"m{number}")
        stream.ack(f"m{number}")
    return stream


def _receiver_at(count: int, terms: Terms = WIDE) -> ReceivingChannel:
    channel = ReceivingChannel.open("a>b", terms)
    for number in range(count):
        status = RESET if number < terms.window_size else CONTINUE
        judged = judge(arrival(number, NOW + number, status), channel, terms, NOW)
        assert isinstance(judged, First)
        assert judged.channel is not None
        channel = judged.channel
    return channel


# --- the sender ------------------------------------------------------------------------------


@pytest.mark.parametrize("terms", [NARROW, SHIFTED])
def test_an_idle_stream_goes_on_in_the_new_range_with_a_reset(terms: Terms) -> None:
    stream = _stream_at(6)
    stream.terms = terms
    assert stream.channel.places(terms) == 1
    stream.enter("new")
    assert stream.number("new") == terms.numbers.first
    assert stream.messages["new"].status is RESET
    assert stream.channel.epoch == 2
    assert stream.channel.numbers == terms.numbers


def test_the_new_range_waits_until_the_old_numbers_are_settled() -> None:
    stream = _stream_at(6)
    stream.enter("old-1", "old-2")
    assert stream.channel.places(NARROW) == 0
    stream.ack("old-2")
    assert stream.channel.places(NARROW) == 0, "number 6 is still under way, and counted in 0..99"
    done = stream.step("old-1", sender.ack_arrived, WIDE, ack_id="ack")
    assert of_kind(done, Admit)
    assert stream.channel.places(NARROW) == 1
    assert not stream.channel.is_unsettled(1, 6, NARROW)


def test_a_channel_that_noted_no_range_takes_that_of_its_next_message() -> None:
    # A store from before ranges were noted.
    channel = SendingChannel(
        "a>b", epoch=1, next_number=2, first_unsettled=2, used=2, phase=Phase.RUNNING
    )
    entered, sequence = channel.enter(NARROW)
    assert (sequence.number, entered.epoch, entered.numbers) == (2, 1, NARROW.numbers)
    outgrown = replace(channel, next_number=50, first_unsettled=50)
    entered, sequence = outgrown.enter(NARROW)
    assert (sequence.number, sequence.status, entered.epoch) == (0, RESET, 2)


# --- the receiver ----------------------------------------------------------------------------


@pytest.mark.parametrize("terms", [NARROW, SHIFTED])
def test_what_was_under_way_still_fits_and_a_reset_brings_the_new_range(terms: Terms) -> None:
    channel = _receiver_at(6)
    late = judge(arrival(6, NOW + 6), channel, terms, NOW)
    assert isinstance(late, First)
    assert late.terms is not None
    assert late.terms.numbers == WIDE.numbers, "it runs under the range of its epoch"
    assert late.channel is not None
    opener = arrival(terms.numbers.first, NOW + 7, RESET)
    began = judge(opener, late.channel, terms, NOW)
    assert isinstance(began, First)
    assert began.terms == terms
    assert began.channel is not None
    assert (began.channel.epoch, began.channel.numbers) == (2, terms.numbers)
    # A straggler of the old range is one of an epoch that is over, and nobody is called.
    straggler = judge(arrival(8, NOW + 5), began.channel, terms, NOW)
    assert isinstance(straggler, TurnedAway)
    assert of_kind(straggler.effects, Raise) == []


def test_a_gap_of_the_old_range_is_given_up_in_the_old_range() -> None:
    channel = _receiver_at(6)
    early = judge(arrival(7, NOW + 7), channel, NARROW, NOW)
    assert early.held
    assert early.channel is not None
    freed = give_up_gap(early.channel, 7, NARROW)
    assert freed.deliver == (early.channel.held[0].message_id,)
    assert freed.channel.expected == 8
    opener = judge(arrival(0, NOW + 9, RESET), early.channel, NARROW, NOW)
    assert opener.deliver == (early.channel.held[0].message_id, f"s{NOW + 9}")


def test_a_number_of_neither_range_names_the_one_it_misses() -> None:
    channel = _receiver_at(2)
    for number, status, named in (
        (150, CONTINUE, "200..299"),
        (150, RESET, "200..299"),
        (250, CONTINUE, "0..99"),
        (50, RESET, "200..299"),
    ):
        judged = judge(arrival(number, NOW + 9, status), channel, SHIFTED, NOW)
        assert isinstance(judged, TurnedAway)
        assert named in of_kind(judged.effects, Raise)[0].reason


def test_a_window_does_not_shrink_under_what_is_under_way() -> None:
    terms = replace(WIDE, window=8)
    channel = _receiver_at(10, terms)
    single = replace(terms, flow=FlowMode.STOP_AND_WAIT)
    for smaller in (replace(terms, window=2), single, replace(single, on_gap=OnGap.REJECT)):
        assert channel.fit(_of(17), NOW + 17, smaller) is Fit.EARLY
        assert channel.fit(_of(18), NOW + 18, smaller) is Fit.BEYOND
        opener = judge(arrival(0, NOW + 20, RESET), channel, smaller, NOW)
        assert opener.channel is not None
        assert opener.channel.widest == smaller.window_size


def test_a_window_grows_at_once_but_not_beyond_half_of_the_old_range() -> None:
    channel = _receiver_at(2, NARROW)
    larger = replace(WIDE, window=40)
    assert channel.in_force(larger).window_size == 2
    assert _receiver_at(2).in_force(larger).window_size == 40


def test_gaps_that_are_rejected_are_rejected_all_along() -> None:
    strict = replace(WIDE, flow=FlowMode.STOP_AND_WAIT, on_gap=OnGap.REJECT)
    assert _receiver_at(2, strict).fit(_of(3), NOW + 9, strict) is Fit.GAP


def test_silent_restarts_stay_one_message_at_a_time() -> None:
    channel = replace(
        _receiver_at(3, replace(WIDE, window=4)), numbers=STOP_AND_WAIT.numbers, expected=4
    )
    assert channel.in_force(STOP_AND_WAIT) == STOP_AND_WAIT
    assert STOP_AND_WAIT.on_gap is OnGap.REJECT


def _of(number: int):  # type: ignore[no-untyped-def]
    sequence = arrival(number, 0).sequence
    assert sequence is not None
    return sequence


@pytest.mark.parametrize("used", [3, 4])
def test_a_number_that_only_todays_wider_range_has(used: int) -> None:
    judged = judge(arrival(4, NOW + 50, CONTINUE), _receiver_at(used, NARROW), WIDE, NOW)
    assert isinstance(judged, First)
    assert judged.channel is not None
    assert judged.channel.numbers == WIDE.numbers


def test_a_narrow_range_that_was_used_a_second_time_is_the_one_both_count_in() -> None:
    channel = _receiver_at(4, NARROW)
    again = judge(arrival(0, NOW + 10, CONTINUE), channel, NARROW, NOW)
    assert again.channel is not None
    for number in (4, 5):
        judged = judge(arrival(number, NOW + 50, CONTINUE), again.channel, WIDE, NOW)
        assert isinstance(judged, TurnedAway)


def test_a_restart_in_another_range_is_seen_while_the_first_number_is_missing() -> None:
    # Only the second of the first window came; the sender gave up and began in another range.
    channel = ReceivingChannel.open("a>b", WIDE)
    early = judge(arrival(1, NOW, RESET), channel, WIDE, NOW)
    assert early.channel is not None
    for number in (200, 201):
        restart = arrival(number, NOW + 50, RESET).sequence
        assert restart is not None
        assert early.channel.fit(restart, NOW + 50, SHIFTED) is Fit.NEW_EPOCH


def test_a_range_that_begins_elsewhere_is_no_wider_one() -> None:
    channel = _receiver_at(4, NARROW)
    judged = judge(arrival(204, NOW + 50, CONTINUE), channel, SHIFTED, NOW)
    assert isinstance(judged, TurnedAway)
