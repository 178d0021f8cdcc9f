"""Moments and lengths of time, as the drafts write them and as we compute with them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncewire.errors import InvalidValue
from oncewire.message.instant import (
    DAY,
    HOUR,
    MILLISECOND,
    MINUTE,
    SECOND,
    format_duration,
    format_instant,
    parse_duration,
    parse_instant,
    seconds,
)

MOMENT = 978_307_200 * SECOND
"""2001-01-01T00:00:00Z"""

FIRST = -62_135_596_800 * SECOND
LAST = 253_402_300_799 * SECOND + SECOND - 1


# --- instants -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "instant", "zoned"),
    [
        ("2001-01-01T00:00:00Z", MOMENT, True),
        ("20010101T000000Z", MOMENT, True),
        ("  2001-01-01T00:00:00Z\n", MOMENT, True),
        ("2001-01-01T02:00:00+02:00", MOMENT, True),
        ("2000-12-31T19:30:00-0430", MOMENT, True),
        ("2001-01-01T00:00:00", MOMENT, False),
        ("2001-01-01T00:00:00.5Z", MOMENT + SECOND // 2, True),
        ("2001-01-01T00:00:00,123456789Z", MOMENT + 123_456, True),
        ("2000-12-31T24:00:00Z", MOMENT, True),
        ("2000-12-31T23:59:60Z", MOMENT, True),
        ("1970-01-01T00:00:00Z", 0, True),
        ("1969-12-31T23:59:59Z", -SECOND, True),
    ],
)
def test_a_date_time_names_an_instant(text: str, instant: int, zoned: bool) -> None:
    assert parse_instant(text) == (instant, zoned)


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2001-01-01", "2001-13-01T00:00:00Z", "2001-02-30T00:00:00Z",
     "2001-01-01T25:00:00Z", "2001-01-01T24:00:01Z", "2001-01-01T00:00:00ZZ",
     "٢٠٠١-01-01T00:00:00Z", "2001-01-01T00:61:00Z", "9" * 5000],
)  # fmt: skip
def test_nonsense_is_no_date_time(text: str) -> None:
    with pytest.raises(InvalidValue, match="is not a dateTime") as caught:
        parse_instant(text)
    assert caught.value.remedy
    assert len(str(caught.value)) < 300


@given(st.integers(FIRST, LAST))
def test_an_instant_is_read_as_it_was_written(instant: int) -> None:
    assert parse_instant(format_instant(instant)) == (instant, True)


@given(st.datetimes(timezones=st.just(UTC)))
def test_an_instant_agrees_with_the_calendar(moment: datetime) -> None:
    expected = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert parse_instant(moment.isoformat()) == (expected, True)


def test_a_fraction_is_written_only_where_there_is_one() -> None:
    assert format_instant(MOMENT) == "2001-01-01T00:00:00Z"
    assert format_instant(MOMENT + 250 * MILLISECOND) == "2001-01-01T00:00:00.25Z"


@pytest.mark.parametrize("instant", [FIRST - 1, LAST + 1, 10**30])
def test_an_instant_outside_the_calendar_is_refused(instant: int) -> None:
    with pytest.raises(InvalidValue, match="outside the years 1 to 9999"):
        format_instant(instant)


# --- durations ----------------------------------------------------------------------------


@pytest.mark.requirement("CPA-4", "CPA-5", "CPA-6")
@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("30", 30 * SECOND),
        ("0", 0),
        ("PT30S", 30 * SECOND),
        ("PT5M", 5 * MINUTE),
        ("PT3H", 3 * HOUR),
        ("P1D", DAY),
        ("P1DT2H3M4.5S", DAY + 2 * HOUR + 3 * MINUTE + 4 * SECOND + SECOND // 2),
        ("P1M", 31 * DAY),
        ("P1Y", 366 * DAY),
        (" PT0.000001S ", 1),
        ("PT1.1234567S", SECOND + 123_456),
    ],
)
def test_a_duration_is_seconds_or_an_xml_schema_duration(text: str, duration: int) -> None:
    assert parse_duration(text) == duration


@pytest.mark.requirement("CPA-4", "CPA-6")
@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "-5", "1.5", "PT5", "5S", "P1H", "1234567890123", "PT.5S"]
)
def test_nonsense_is_no_duration(text: str) -> None:
    with pytest.raises(InvalidValue, match="is not a duration") as caught:
        parse_duration(text)
    assert "PT30S" in caught.value.remedy


def test_a_negative_duration_is_refused() -> None:
    with pytest.raises(InvalidValue, match="negative duration"):
        parse_duration("-PT5S")
    with pytest.raises(InvalidValue, match="negative"):
        format_duration(-1)


@given(st.integers(0, 10_000 * DAY))
def test_a_duration_is_read_as_it_was_written(duration: int) -> None:
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(
    ("duration", "text"),
    [(0, "PT0S"), (DAY, "P1D"), (HOUR + SECOND, "PT1H1S"), (MINUTE, "PT1M"), (1, "PT0.000001S")],
)
def test_a_duration_is_written_briefly(duration: int, text: str) -> None:
    assert format_duration(duration) == text


def test_seconds_are_rounded_to_the_microsecond() -> None:
    assert seconds(1.5) == 1_500_000
    assert seconds(0.0000004) == 0
