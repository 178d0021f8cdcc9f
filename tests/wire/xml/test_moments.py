"""The fast way to read and write a moment says what the general way says."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oncewire.errors import InvalidValue
from oncewire.message.instant import format_instant, parse_instant
from oncewire.wire.xml import read_moment, written_basic_moment, written_moment
from tests.wire.strategies import EARLIEST, LATEST


@given(
    st.integers(EARLIEST, LATEST).map(lambda one: one - one % 1_000_000)
    | st.integers(EARLIEST, LATEST)
)
@example(0)
@example(-1_000_000)
def test_written_and_read_as_always(instant: int) -> None:
    text = written_moment(instant)
    assert text == format_instant(instant)
    assert read_moment(text) == parse_instant(text) == (instant, True)
    basic = written_basic_moment(instant)
    assert basic == text.replace("-", "").replace(":", "")
    assert read_moment(basic) == parse_instant(basic) == (instant, True)


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-05T10:00:00Z", "2026-01-05T24:00:00Z", "2026-01-05T10:00:60Z",
        "2026-01-05T10:00:00", "2026-01-05T10:00+01Z", "20260105T100000.00Z.",
        "2026-W01-1T10:00:00Z", "2026-13-05T10:00:00Z", "2026-01-05T10:00:0 Z", "",
        "２026-01-05T10:00:00Z", "2026-01-05T10:00:00.5Z", "2026-01-05T10:00:00.1234567Z",
        "20260105T100000Z", "20260105T100000.25Z", "2026-01-05T10:00:00,5Z",
        "2026-01-05T10:00:00.Z", "2026-01-05T10:00:00.٣Z", "0000-01-01T00:00:00Z",
        "2026-02-29T10:00:00Z", " 2026-01-05T10:00:00Z", "2026-01-05T10:00:00.5Z ", "Z", ".Z",
    ],
)  # fmt: skip
def test_odd_texts_have_the_same_verdict(text: str) -> None:
    def verdict(read: object) -> object:
        try:
            return read(text)  # type: ignore[operator]
        except InvalidValue as problem:
            return str(problem)

    assert verdict(read_moment) == verdict(parse_instant)


def test_a_moment_outside_the_calendar_is_refused() -> None:
    with pytest.raises(InvalidValue):
        written_moment(10**18)
