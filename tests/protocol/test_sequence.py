"""Numbers that wrap around, and the two windows of the slides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncewire.errors import InvalidValue
from oncewire.protocol.sequence import (
    NAMED_RANGES,
    RM_078_RANGE,
    RM_080_RANGE,
    SLIDES_RANGE,
    DuplicationWindow,
    SendingWindow,
    SequenceRange,
    check_window,
)
from tests.protocol.samples import TEN

RANGES = [SLIDES_RANGE, RM_078_RANGE, RM_080_RANGE, TEN, SequenceRange(3, 4)]


@st.composite
def ranges(draw: st.DrawFn) -> SequenceRange:
    first = draw(st.integers(0, 5))
    return draw(
        st.sampled_from(RANGES)
        | st.integers(1, 30).map(lambda size: SequenceRange(first, first + size))
    )


# --- ranges -------------------------------------------------------------------------------


@pytest.mark.requirement("SEQ-2")
def test_v0_078_counts_from_1_and_returns_to_1() -> None:
    assert (RM_078_RANGE.first, RM_078_RANGE.last) == (1, 4_294_967_295)
    assert RM_078_RANGE.after(4_294_967_295) == 1
    assert 0 not in RM_078_RANGE


@pytest.mark.requirement("SEQ-12")
def test_the_slides_count_modulo_a_hundred_million() -> None:
    assert SLIDES_RANGE.size == 100_000_000
    assert SLIDES_RANGE.after(99_999_999) == 0
    # Twice the largest distance still fits a signed 32-bit integer.
    assert 2 * SLIDES_RANGE.size < 2**31


def test_v0_080_has_a_billion_numbers() -> None:
    assert (RM_080_RANGE.first, RM_080_RANGE.last) == (0, 999_999_999)


def test_ranges_have_names() -> None:
    assert NAMED_RANGES["rm-0.78"] is RM_078_RANGE
    assert NAMED_RANGES["slides"] is NAMED_RANGES["ebms2"] is SLIDES_RANGE


@given(ranges(), st.data())
def test_steps_and_distances_agree_around_the_end(
    numbers: SequenceRange, data: st.DataObject
) -> None:
    number = data.draw(st.integers(numbers.first, numbers.last))
    steps = data.draw(st.integers(0, numbers.size - 1))
    later = numbers.after(number, steps)
    assert later in numbers
    assert numbers.distance(number, later) == steps
    assert numbers.after(later, -steps) == number
    assert (numbers.distance(later, number) + steps) % numbers.size == 0


@pytest.mark.parametrize("numbers", RANGES, ids=str)
def test_after_the_last_comes_the_first(numbers: SequenceRange) -> None:
    assert numbers.after(numbers.last) == numbers.first
    assert numbers.distance(numbers.last, numbers.first) == 1


@pytest.mark.parametrize("bounds", [(-1, 5), (5, 5), (6, 5)])
def test_an_empty_or_negative_range_is_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(InvalidValue, match="empty or negative") as caught:
        SequenceRange(*bounds)
    assert caught.value.remedy


@pytest.mark.parametrize("window", [0, -1])
def test_a_window_below_one_is_refused(window: int) -> None:
    with pytest.raises(InvalidValue, match="smaller than 1"):
        check_window(window, TEN)


def test_a_window_of_more_than_half_the_range_is_refused() -> None:
    assert check_window(5, TEN) == 5
    with pytest.raises(InvalidValue, match="more than half") as caught:
        check_window(6, TEN)
    assert "at most 5" in caught.value.remedy


# --- the sending window -------------------------------------------------------------------


@pytest.mark.requirement("SW-3", "SW-6")
def test_the_slides_sending_window() -> None:
    window = SendingWindow(TEN, 4, 8)
    assert list(window) == [8, 9, 0, 1]
    assert (window.start, window.end) == (8, 1)
    assert list(SendingWindow(TEN, 4, 0)) == [0, 1, 2, 3]


@given(ranges(), st.data())
def test_a_sending_window_holds_exactly_its_numbers(
    numbers: SequenceRange, data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, min(numbers.size // 2, 20)))
    window = SendingWindow(numbers, size, data.draw(st.integers(numbers.first, numbers.last)))
    inside = list(window)
    assert len(inside) == size
    assert inside[-1] == window.end
    assert all(number in window for number in inside)
    assert numbers.after(window.end) not in window
    assert numbers.after(window.start, -1) not in window


# --- the duplication check window ---------------------------------------------------------


@pytest.mark.requirement("SW-7", "SW-8")
def test_the_slides_duplication_window() -> None:
    window = DuplicationWindow(TEN, 4, 2)
    assert list(window) == [9, 0, 1, 2]
    assert (window.start, window.end) == (9, 2)


@pytest.mark.requirement("SW-8")
def test_a_new_number_slides_it_by_one_to_w() -> None:
    window = DuplicationWindow(TEN, 4, 2)
    assert [number for number in range(10) if window.is_ahead(number)] == [3, 4, 5, 6]
    assert list(DuplicationWindow(TEN, 4, 6)) == [3, 4, 5, 6]


@given(ranges(), st.data())
def test_old_new_and_stale_numbers_are_told_apart(
    numbers: SequenceRange, data: st.DataObject
) -> None:
    # 2W <= M is what keeps the three apart (gap 13).
    size = data.draw(st.integers(1, min(numbers.size // 2, 20)))
    window = DuplicationWindow(numbers, size, data.draw(st.integers(numbers.first, numbers.last)))
    number = data.draw(st.integers(numbers.first, numbers.last))
    assert not (number in window and window.is_ahead(number))
    assert window.end in window
    assert window.start in window
    assert window.is_ahead(numbers.after(window.end))
