"""What one arrival is: first, duplicate, conflict or refused; held, or handed over in order."""

import pytest
from msgspec.structs import replace

from oncewire.errors import Inconsistent, SecurityFailure
from oncewire.message.envelope import ErrorClass
from oncewire.message.instant import SECOND
from oncewire.protocol.notes import Note, Skipped
from oncewire.protocol.receiver import (
    Arrival,
    First,
    Judgement,
    Refused,
    TurnedAway,
    close_number,
    judge,
    judge_copy,
    refuse,
)
from oncewire.protocol.receiving import Held, ReceivingChannel
from oncewire.protocol.sequence import SequenceRange
from oncewire.protocol.states import Incoming, IncomingState
from oncewire.protocol.terms import FlowMode, OnGap, ResetRule, Terms
from tests.protocol.samples import (
    CONTINUE,
    NOW,
    ORDERED,
    PLAIN,
    RESET,
    STOP_AND_WAIT,
    TEN,
    arrival,
    notes,
    of_kind,
)


def after(*numbers: int, terms: Terms = ORDERED) -> ReceivingChannel:
    """The channel after these numbers of its first epoch arrived, stamped by their place."""
    channel = ReceivingChannel.open("a>b", terms)
    marked = terms.window_size if terms.reset is ResetRule.FIRST_WINDOW else 1
    for place, number in enumerate(numbers):
        status = None if terms.reset is ResetRule.SILENT else RESET if number < marked else CONTINUE
        stamp = 100 + (number if len(set(numbers)) == len(numbers) else place)
        judged = judge(arrival(number, stamp, status), channel, terms, NOW)
        assert isinstance(judged, First), judged
        assert judged.channel is not None
        channel = judged.channel
    return channel


def take(channel: ReceivingChannel | None, one: Arrival, terms: Terms = ORDERED) -> Judgement:
    return judge(one, channel, terms, NOW)


# --- duplicates ---------------------------------------------------------------------------


@pytest.mark.requirement("DUP-1", "DUP-2", "SEQ-11")
def test_a_known_id_with_equal_content_is_a_duplicate() -> None:
    channel = after(0, 1)
    judged = judge_copy(arrival(0, 100, RESET), "digest", channel)
    assert judged is None, "nothing is handed over, and nothing else happens"


@pytest.mark.requirement("DUP-1", "DUP-3", "DUP-9")
def test_a_known_id_with_other_content_is_an_error_and_no_duplicate() -> None:
    judged = judge_copy(arrival(None, 1, message_id="m"), "another digest", None)
    assert isinstance(judged, TurnedAway), "the first content stays the one that is known"
    assert judged.error.code == "Inconsistent"
    assert judged.error.location == "//MessageData/MessageId"


@pytest.mark.requirement("RM-17", "SEQ-7")
def test_the_message_id_is_judged_before_time_and_number() -> None:
    expired = arrival(7, 100, RESET, expires_at=NOW - 1)
    assert judge_copy(expired, "digest", after(0, 1)) is None


@pytest.mark.requirement("SEQ-7", "SEQ-8")
def test_one_after_one_is_decided_by_the_message_id() -> None:
    channel = after(1, terms=STOP_AND_WAIT)
    assert judge_copy(arrival(1, 101, None), "digest", channel) is None
    series = take(channel, arrival(1, 200, None), STOP_AND_WAIT)
    assert isinstance(series, First)
    assert notes(series) == ["epoch_began"]


# --- without numbers ----------------------------------------------------------------------


@pytest.mark.requirement("RM-17")
def test_a_first_message_is_handed_over() -> None:
    judged = take(None, arrival(None, 1, message_id="m"), PLAIN)
    assert isinstance(judged, First)
    assert (judged.deliver, judged.held) == (("m",), False)


def test_a_number_without_a_channel_means_nothing() -> None:
    assert take(None, arrival(5, 1, message_id="m"), PLAIN).deliver == ("m",)
    assert take(after(0), arrival(None, 1, message_id="m")).deliver == ("m",)


# --- time to live -------------------------------------------------------------------------


@pytest.mark.requirement("CPA-15", "HDR-9")
@pytest.mark.parametrize(
    ("accuracy", "late", "verdict"),
    [
        (0, 0, First),
        (0, 1, Refused),
        (5 * SECOND, 5 * SECOND, First),
        (5 * SECOND, 5 * SECOND + 1, Refused),
    ],
)
def test_time_to_live_is_judged_with_the_agreed_accuracy(
    accuracy: int, late: int, verdict: type[Judgement]
) -> None:
    terms = replace(PLAIN, time_accuracy=accuracy)
    judged = judge(arrival(None, 1, expires_at=NOW - late), None, terms, NOW)
    assert isinstance(judged, verdict)
    if isinstance(judged, Refused):
        assert judged.error.code == "TimeToLiveExpired"


# --- order --------------------------------------------------------------------------------


@pytest.mark.requirement("SEQ-5", "SW-10")
def test_the_next_number_is_handed_over() -> None:
    judged = take(after(0, 1), arrival(2, 102, RESET))
    assert judged.deliver == ("s102",)
    assert judged.channel is not None
    assert judged.channel.expected == 3


@pytest.mark.requirement("SW-9", "SW-10")
def test_an_early_message_waits_until_the_gap_is_filled() -> None:
    channel = after(0)
    for number in (3, 2, 4):
        judged = take(channel, arrival(number, 100 + number, CONTINUE if number > 3 else RESET))
        assert isinstance(judged, First)
        assert judged.held
        assert judged.deliver == ()
        assert judged.channel is not None
        channel = judged.channel
    judged = take(channel, arrival(1, 101, RESET))
    assert judged.deliver == ("s101", "s102", "s103", "s104")
    assert not judged.held


@pytest.mark.requirement("SW-9")
def test_no_more_than_a_window_is_held() -> None:
    channel = after(0, 2, 3, 4)
    assert len(channel.held) == 3
    judged = take(channel, arrival(5, 105))
    assert isinstance(judged, TurnedAway)
    assert judged.error.error_class is ErrorClass.MESSAGING


@pytest.mark.requirement("SW-7", "SW-8")
def test_the_duplication_window_ends_at_the_furthest_number() -> None:
    assert ReceivingChannel.open("a>b", ORDERED).window(ORDERED) is None
    channel = after(*range(10), 0, 1, 2)
    window = channel.window(ORDERED)
    assert window is not None
    assert list(window) == [9, 0, 1, 2]


def test_a_late_arrival_does_not_shrink_the_duplication_window() -> None:
    window = after(0, 3, 1).window(ORDERED)
    assert window is not None
    assert window.end == 3


@pytest.mark.requirement("SEQ-14", "SW-10")
def test_order_holds_across_the_wrap_around() -> None:
    channel = after(*range(9))
    for number, stamp in ((1, 111), (0, 110)):
        judged = take(channel, arrival(number, stamp))
        assert judged.held
        assert judged.channel is not None
        channel = judged.channel
    judged = take(channel, arrival(9, 109))
    assert judged.deliver == ("s109", "s110", "s111")
    assert judged.channel is not None
    assert (judged.channel.expected, judged.channel.epoch) == (2, 1)


@pytest.mark.parametrize("first", [0, 1, 3])
def test_a_range_begins_where_it_begins(first: int) -> None:
    terms = replace(ORDERED, numbers=SequenceRange(first, first + 9))
    channel = ReceivingChannel.open("a>b", terms)
    assert take(channel, arrival(first, 1, RESET), terms).deliver == ("s1",)
    assert take(channel, arrival(first + 1, 1, RESET), terms).held


# --- gaps rejected (v0-078) ---------------------------------------------------------------


@pytest.mark.requirement("SEQ-9", "SEQ-6")
@pytest.mark.parametrize("number", [2, 4, 5, 9])
def test_any_other_number_is_invalid_in_stop_and_wait(number: int) -> None:
    channel = after(1, 2, terms=STOP_AND_WAIT)
    judged = take(channel, arrival(number, 200, None), STOP_AND_WAIT)
    assert isinstance(judged, TurnedAway)
    assert judged.channel is channel, "discarded"
    assert judged.error.error_class is ErrorClass.SEQUENCE
    assert "SequenceNumber" in judged.error.location


@pytest.mark.requirement("SEQ-9")
def test_a_stream_that_does_not_begin_at_its_beginning_is_a_gap() -> None:
    fresh = ReceivingChannel.open("a>b", STOP_AND_WAIT)
    judged = take(fresh, arrival(3, 1, None), STOP_AND_WAIT)
    assert isinstance(judged, TurnedAway | Refused)
    assert "1 is missing" in judged.error.description


@pytest.mark.requirement("SEQ-8")
def test_the_first_number_after_another_starts_a_new_series() -> None:
    channel = after(1, 2, 3, terms=STOP_AND_WAIT)
    judged = take(channel, arrival(1, 200, None), STOP_AND_WAIT)
    assert judged.deliver == ("s200",)
    assert judged.channel is not None
    assert (judged.channel.expected, judged.channel.epoch) == (2, 2)


# --- refusals settle their number (gap 14) ------------------------------------------------


def _refused(channel: ReceivingChannel | None, one: Arrival, terms: Terms = ORDERED) -> Refused:
    return refuse(one, Inconsistent("not like this", location="//Action"), channel, terms)


@pytest.mark.requirement("SW-10")
def test_a_refused_number_does_not_block_the_stream() -> None:
    judged = _refused(after(0, 2), arrival(1, 101, RESET))
    assert isinstance(judged, Refused)
    assert judged.deliver == ("s102",)
    assert judged.channel is not None
    assert judged.channel.expected == 3
    skip = of_kind(judged.effects, Note)[0]
    assert (skip.kind, skip.number, skip.message_id) == ("skipped", 1, "s101")


def test_a_refused_early_number_is_skipped_when_its_turn_comes() -> None:
    judged = _refused(after(0), arrival(2, 102, RESET))
    assert judged.deliver == ()
    assert judged.effects == ()
    assert judged.channel is not None
    assert judged.channel.held == (Held(2, "s102", refused=True),)
    judged = take(judged.channel, arrival(1, 101, RESET))
    assert judged.deliver == ("s101",)
    assert notes(judged) == ["skipped"]
    assert judged.channel is not None
    assert judged.channel.expected == 3


def _request(number: int | None, state: IncomingState, hand_overs: int = 0) -> Incoming:
    stored = Incoming("urn:a", f"s{100 + (number or 0)}", "digest", "terms", NOW)
    epoch = None if number is None else 1
    return replace(stored, state=state, epoch=epoch, number=number, hand_overs=hand_overs)


@pytest.mark.requirement("SYNC-18", "SEQ-5")
def test_a_held_request_that_nobody_can_answer_is_passed_when_its_turn_comes() -> None:
    channel, effects = close_number(_request(2, IncomingState.HELD), after(0, 2, 3))
    assert effects == ()
    assert [(entry.number, entry.refused) for entry in channel.held] == [(2, True), (3, False)]
    judged = take(channel, arrival(1, 101, RESET))
    assert judged.deliver == ("s101", "s103")
    (skip,) = of_kind(judged.effects, Note)
    assert (skip.kind, skip.number, skip.message_id) == ("skipped", 2, "s102")


@pytest.mark.requirement("SYNC-18")
def test_a_ready_request_that_nobody_can_answer_is_skipped_at_once() -> None:
    channel = after(0, 1)
    same, (skip,) = close_number(_request(1, IncomingState.READY), channel)
    assert same is channel
    assert isinstance(skip, Note)
    assert (skip.kind, skip.channel, skip.epoch, skip.number) == ("skipped", "a>b", 1, 1)


@pytest.mark.parametrize(
    "request_",
    [_request(1, IncomingState.READY, hand_overs=1), _request(None, IncomingState.READY)],
)
def test_what_was_handed_over_once_or_has_no_number_is_not_skipped(request_: Incoming) -> None:
    channel = after(0, 1)
    assert close_number(request_, channel) == (channel, ())


def test_a_refused_opener_begins_its_epoch() -> None:
    judged = _refused(after(0, 1), arrival(0, 200, RESET))
    assert judged.channel is not None
    assert (judged.channel.epoch, judged.channel.expected) == (2, 1)
    assert notes(judged) == ["epoch_began", "skipped"]


def test_a_refusal_whose_number_does_not_fit_leaves_the_stream_alone() -> None:
    channel = after(0, 1)
    assert _refused(channel, arrival(7, 200)).channel is channel
    assert _refused(channel, arrival(57, 200)).channel is channel
    assert _refused(channel, arrival(None, 200)).channel is channel


def test_a_refusal_without_a_channel_is_only_answered() -> None:
    judged = refuse(arrival(1, 1), SecurityFailure("bad signature"), None, PLAIN)
    assert judged.channel is None
    assert isinstance(judged, TurnedAway | Refused)
    assert judged.error.code == "SecurityFailure"


# --- the end of an epoch ------------------------------------------------------------------


def test_what_an_epoch_still_held_is_handed_over_when_it_ends() -> None:
    channel = after(0, 2, 4)
    refused = _refused(channel, arrival(3, 103, RESET))
    assert refused.channel is not None
    judged = take(refused.channel, arrival(0, 200, RESET))
    assert judged.deliver == ("s102", "s104", "s200")
    skips = [
        (note.number, note.epoch, note.what.reason)
        for note in of_kind(judged.effects, Note)
        if isinstance(note.what, Skipped)
    ]
    assert skips == [(1, 1, "given up"), (3, 1, "refused")]


@pytest.mark.requirement("SEQ-15")
def test_the_second_epoch_orders_like_the_first() -> None:
    judged = take(after(0, 1, 2, 3, 4), arrival(0, 200, RESET))
    assert judged.channel is not None
    judged = take(judged.channel, arrival(2, 202, RESET))
    assert judged.held
    assert judged.channel is not None
    assert take(judged.channel, arrival(1, 201, RESET)).deliver == ("s201", "s202")


@pytest.mark.parametrize("reset", [ResetRule.FIRST_WINDOW, ResetRule.FIRST_MESSAGE])
def test_a_restart_is_seen_under_every_announcement(reset: ResetRule) -> None:
    terms = replace(ORDERED, reset=reset)
    assert take(after(0, 1, terms=terms), arrival(0, 200, RESET), terms).deliver == ("s200",)


def test_unrestricted_flow_holds_what_comes_early() -> None:
    terms = replace(ORDERED, flow=FlowMode.UNRESTRICTED, numbers=TEN)
    judged = take(after(0, terms=terms), arrival(4, 104, RESET), terms)
    assert judged.held


def test_rejecting_gaps_is_a_policy_of_the_terms() -> None:
    assert STOP_AND_WAIT.on_gap is OnGap.REJECT
    buffered = replace(STOP_AND_WAIT, on_gap=OnGap.BUFFER)
    judged = take(after(1, terms=buffered), arrival(4, 200, None), buffered)
    # One at a time was agreed: a number further on is beyond the window, and an incident.
    assert isinstance(judged, TurnedAway | Refused)
    assert "window of 1" in judged.error.description
