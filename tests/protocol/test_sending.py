"""One numbered stream at its sender: numbers at window entry, settled numbers, epochs."""

import pytest
from msgspec.structs import replace

from oncewire.errors import NotAllowed
from oncewire.message.form import ReliableMessagingMethod
from oncewire.protocol.notes import Admit
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.sequence import RM_078_RANGE, RM_080_RANGE, SLIDES_RANGE, SequenceRange
from oncewire.protocol.terms import FlowMode, ResetRule
from tests.protocol.samples import (
    CONTINUE,
    NOW,
    ORDERED,
    RESET,
    STOP_AND_WAIT,
    TEN,
    Stream,
    of_kind,
)


def walked(stream: Stream, count: int) -> Stream:
    """The stream after that many messages were sent and acknowledged one by one."""
    for index in range(count):
        stream.enter(f"w{index}")
        stream.ack(f"w{index}")
    return stream


# --- numbers ------------------------------------------------------------------------------


@pytest.mark.requirement("SEQ-1", "SEQ-3", "SEQ-5")
@pytest.mark.parametrize("terms", [ORDERED, STOP_AND_WAIT], ids=["window", "stop-and-wait"])
def test_numbers_begin_at_the_first_and_rise_by_one(terms: object) -> None:
    stream = walked(Stream(terms), 5)  # type: ignore[arg-type]
    first = stream.terms.numbers.first
    assert [stream.number(f"w{n}") for n in range(5)] == [first + n for n in range(5)]


@pytest.mark.requirement("SEQ-1")
def test_two_channels_count_on_their_own() -> None:
    http, smtp = walked(Stream(), 3), Stream()
    smtp.enter("x")
    assert (http.channel.next_number, smtp.number("x")) == (3, 0)


@pytest.mark.requirement("SEQ-2", "SEQ-12", "SEQ-14")
@pytest.mark.parametrize("numbers", [SLIDES_RANGE, RM_078_RANGE, RM_080_RANGE, TEN], ids=str)
def test_numbers_wrap_around_with_continue(numbers: SequenceRange) -> None:
    stream = walked(Stream(replace(ORDERED, numbers=numbers)), 1)
    near_the_end = replace(
        stream.channel, next_number=numbers.last, first_unsettled=numbers.last, used=10
    )
    stream.channel = near_the_end
    stream.enter("a", "b", "c")
    assert [stream.number(m) for m in "abc"] == [numbers.last, numbers.first, numbers.first + 1]
    assert {stream.messages[m].status for m in "abc"} == {CONTINUE}
    stream.ack("b", "a", "c")
    assert stream.channel.unsettled(stream.terms) == 0


@pytest.mark.requirement("SW-3", "SW-5", "SW-6")
def test_the_window_slides_as_the_slides_show() -> None:
    stream = walked(Stream(), 8)
    stream.enter("8", "9", "0", "1")
    assert list(stream.channel.window(stream.terms)) == [8, 9, 0, 1]
    assert stream.under_way == [8, 9, 0, 1]
    stream.ack("8", "9")
    assert list(stream.channel.window(stream.terms)) == [0, 1, 2, 3]


# --- flow control -------------------------------------------------------------------------


@pytest.mark.requirement("SW-4", "SW-11")
def test_nothing_is_sent_beyond_the_window() -> None:
    stream = walked(Stream(), 1)
    stream.enter("a", "b", "c", "d")
    assert stream.channel.places(stream.terms) == 0
    with pytest.raises(NotAllowed, match="full") as caught:
        stream.enter("e")
    assert "settled" in caught.value.remedy


@pytest.mark.requirement("SW-5")
def test_a_later_acknowledgement_does_not_move_the_start() -> None:
    stream = walked(Stream(), 1)
    stream.enter("a", "b", "c", "d")
    stream.ack("c", "b")
    assert stream.channel.window(stream.terms).start == 1
    assert stream.channel.places(stream.terms) == 0
    assert stream.channel.settled == {2, 3}
    stream.ack("a")
    assert stream.channel.window(stream.terms).start == 4
    assert stream.channel.settled == frozenset()
    assert stream.last is not None
    assert of_kind(stream.last, Admit)
    assert stream.channel.places(stream.terms) == 3


@pytest.mark.requirement("SW-1")
def test_stop_and_wait_has_one_message_under_way() -> None:
    stream = Stream(STOP_AND_WAIT)
    stream.enter("a")
    assert stream.channel.places(stream.terms) == 0
    stream.ack("a")
    assert stream.channel.places(stream.terms) == 1


@pytest.mark.requirement("SW-2")
def test_unrestricted_flow_goes_on_without_waiting() -> None:
    stream = walked(Stream(replace(ORDERED, flow=FlowMode.UNRESTRICTED, numbers=SLIDES_RANGE)), 1)
    stream.enter(*(f"m{n}" for n in range(200)))
    assert stream.channel.unsettled(stream.terms) == 200
    assert stream.channel.places(stream.terms) == 50_000_000 - 200


def test_a_limit_without_numbers_counts_messages_under_way() -> None:
    terms = replace(
        ORDERED, numbered=False, ordered=False, method=ReliableMessagingMethod.TRANSPORT
    )
    stream = Stream(terms)
    stream.enter("a", "b", "c", "d")
    assert stream.channel.places(terms) == 0


# --- restarts -----------------------------------------------------------------------------


@pytest.mark.requirement("SEQ-13", "SEQ-14", "SEQ-15")
@pytest.mark.parametrize(
    ("reset", "marks"),
    [
        (ResetRule.FIRST_WINDOW, [RESET, RESET, RESET, RESET, CONTINUE, CONTINUE]),
        (ResetRule.FIRST_MESSAGE, [RESET, CONTINUE, CONTINUE, CONTINUE, CONTINUE, CONTINUE]),
    ],
)
def test_a_restart_is_announced(reset: ResetRule, marks: list[object]) -> None:
    stream = walked(Stream(replace(ORDERED, reset=reset)), 6)
    assert [stream.messages[f"w{n}"].status for n in range(6)] == marks


@pytest.mark.requirement("SEQ-3")
def test_a_silent_restart_is_the_first_number_itself() -> None:
    stream = walked(Stream(STOP_AND_WAIT), 4)
    stream.channel = stream.channel.restart(stream.terms)
    stream.enter("a")
    assert (stream.number("a"), stream.messages["a"].status) == (1, None)


@pytest.mark.requirement("SEQ-4", "SEQ-14")
def test_the_sender_may_restart_once_everything_is_settled() -> None:
    stream = walked(Stream(), 4)
    stream.channel = stream.channel.restart(stream.terms)
    assert stream.channel.places(stream.terms) == 1
    stream.enter("a")
    assert (stream.number("a"), stream.messages["a"].status) == (0, RESET)
    assert stream.channel.epoch == 2


def test_no_restart_while_a_number_is_unsettled() -> None:
    stream = walked(Stream(), 4)
    stream.enter("a")
    with pytest.raises(NotAllowed, match="1 unsettled") as caught:
        stream.channel.restart(stream.terms)
    assert "abandon" in caught.value.remedy


def test_no_restart_before_the_first_window_is_used_up() -> None:
    stream = walked(Stream(), 3)
    with pytest.raises(NotAllowed, match="used 3 of its first 4"):
        stream.channel.restart(stream.terms)


def test_a_channel_that_was_never_used_has_nothing_to_restart() -> None:
    fresh = SendingChannel.open("a>b", ORDERED)
    assert fresh.restart(ORDERED) == fresh


# --- timestamps, pauses, suspensions ------------------------------------------------------


def test_timestamps_rise_whatever_the_clock_does() -> None:
    channel = SendingChannel.open("a>b", ORDERED)
    stamps = []
    for now in (NOW, NOW, NOW - 5, NOW + 1, NOW + 100):
        channel, stamp = channel.stamp(now)
        stamps.append(stamp)
    assert stamps == [NOW, NOW + 1, NOW + 2, NOW + 3, NOW + 100]


@pytest.mark.requirement("RTY-12")
def test_a_suspended_channel_has_no_places() -> None:
    channel = walked(Stream(), 2).channel
    assert channel.places(ORDERED) == 4
    assert channel.suspend("trouble").places(ORDERED) == 0


def test_resuming_lifts_suspension_and_pause() -> None:
    channel = SendingChannel.open("a>b", ORDERED).pause(NOW).suspend("trouble", "m")
    assert (channel.suspended_reason, channel.suspended_by) == ("trouble", "m")
    assert channel.resume() == SendingChannel.open("a>b", ORDERED)


def test_a_number_of_another_epoch_is_not_unsettled() -> None:
    stream = walked(Stream(), 1)
    stream.enter("a")
    channel, terms = stream.channel, stream.terms
    assert channel.is_unsettled(1, 1, terms)
    assert not channel.is_unsettled(2, 1, terms)
    assert not channel.is_unsettled(1, None, terms)
    assert not channel.is_unsettled(1, 0, terms)
    assert not channel.is_unsettled(1, 2, terms)
