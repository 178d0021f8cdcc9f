"""Moments and lengths of time, as the drafts write them and as we compute with them.

An instant is an integer count of microseconds since the Unix epoch in UTC, a duration an
integer count of microseconds. Integers compare and add exactly on every machine, so one
seed replays one run everywhere, and Spark's timestamps have the same grain.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from oncewire.errors import InvalidValue

Instant: TypeAlias = int
Duration: TypeAlias = int

MILLISECOND: Duration = 1_000
SECOND: Duration = 1_000_000
MINUTE: Duration = 60 * SECOND
HOUR: Duration = 60 * MINUTE
DAY: Duration = 24 * HOUR

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# xsd:dateTime, and the basic form of ISO 8601 that the September 2000 draft prints.
_DATETIME = re.compile(
    r"(\d{4})-?(\d\d)-?(\d\d)T(\d\d):?(\d\d):?(\d\d)(?:[.,](\d{1,12}))?"
    r"(Z|[+-]\d\d:?\d\d)?\Z",
    re.ASCII,
)
_DURATION = re.compile(
    r"(-)?P(?:(\d{1,9})Y)?(?:(\d{1,9})M)?(?:(\d{1,9})D)?"
    r"(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})(?:\.(\d{1,9}))?S)?)?\Z",
    re.ASCII,
)
# Calendar parts of a duration have no fixed length; XML Schema lets us choose, and an
# agreement is easier to reason about with the longest month and year than the shortest.
_MONTH = 31 * DAY
_YEAR = 366 * DAY


def seconds(count: float) -> Duration:
    """A duration of that many seconds, rounded to the microsecond."""
    return round(count * SECOND)


def parse_instant(text: str) -> tuple[Instant, bool]:
    """The instant a dateTime names, and whether it named its zone.

    A time without a zone is taken as UTC and flagged: real partners send them
    (docs/explanation/decisions.md#real-partners), and refusing would lose the message.
    """
    match = _DATETIME.match(text.strip())
    if match is None:
        raise InvalidValue(
            f"{text[:64]!r} is not a dateTime", remedy="write it as 2026-01-05T10:00:00Z"
        )
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction, zone = match.group(7), match.group(8)
    # 24:00:00 and a leap second are legal in XML Schema; both roll over to the next unit.
    carry = 0
    if hour == 24 and minute == 0 and second == 0:
        hour, carry = 0, DAY
    if second == 60:
        second, carry = 59, carry + SECOND
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        raise InvalidValue(
            f"{text[:64]!r} is not a dateTime: {error}", remedy="correct the calendar date"
        ) from None
    instant = _whole_microseconds(moment - _EPOCH) + carry
    if fraction:
        instant += int(fraction[:6].ljust(6, "0"))
    if zone and zone != "Z":
        sign = -1 if zone[0] == "+" else 1
        digits = zone[1:].replace(":", "")
        instant += sign * (int(digits[:2]) * HOUR + int(digits[2:]) * MINUTE)
    return instant, zone is not None


def format_instant(instant: Instant) -> str:
    """The instant as xsd:dateTime in UTC, with a fraction only where there is one."""
    try:
        moment = _EPOCH + timedelta(microseconds=instant)
    except OverflowError:
        raise InvalidValue(
            f"instant {instant} lies outside the years 1 to 9999",
            remedy="use microseconds since 1970-01-01T00:00:00Z",
        ) from None
    text = moment.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    if moment.microsecond:
        text += f".{moment.microsecond:06d}".rstrip("0")
    return text + "Z"


def parse_duration(text: str) -> Duration:
    """An XML Schema duration, or a plain number of seconds (C19, CPA-4..6)."""
    value = text.strip()
    if re.fullmatch(r"\d{1,12}", value, re.ASCII):
        return int(value) * SECOND
    match = _DURATION.match(value)
    if match is None or not any(match.groups()[1:]) or value.endswith("T"):
        raise InvalidValue(
            f"{text[:64]!r} is not a duration", remedy="write it as PT30S, PT5M, P1D or seconds"
        )
    if match.group(1):
        raise InvalidValue(
            f"{text[:64]!r} is a negative duration", remedy="durations run forwards; drop the minus"
        )
    years, months, days, hours, minutes, whole = (int(g or 0) for g in match.groups()[1:7])
    fraction = int((match.group(8) or "")[:6].ljust(6, "0"))
    return (
        years * _YEAR
        + months * _MONTH
        + days * DAY
        + hours * HOUR
        + minutes * MINUTE
        + whole * SECOND
        + fraction
    )


def format_duration(duration: Duration) -> str:
    """The duration as XML Schema writes it, in days, hours, minutes and seconds."""
    if duration < 0:
        raise InvalidValue(f"duration {duration} is negative", remedy="durations run forwards")
    days, rest = divmod(duration, DAY)
    hours, rest = divmod(rest, HOUR)
    minutes, rest = divmod(rest, MINUTE)
    whole, fraction = divmod(rest, SECOND)
    day_part = f"{days}D" if days else ""
    time_part = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    if whole or fraction or not (day_part or time_part):
        digits = f".{fraction:06d}".rstrip("0") if fraction else ""
        time_part += f"{whole}{digits}S"
    return "P" + day_part + ("T" + time_part if time_part else "")


def _whole_microseconds(delta: timedelta) -> int:
    return (delta.days * 86_400 + delta.seconds) * SECOND + delta.microseconds


def moment(instant: Instant | None) -> str:
    """An instant to the millisecond, in UTC; always as long, so that columns line up."""
    if instant is None:
        return ""
    whole = format_instant(instant // SECOND * SECOND).removesuffix("Z")
    return f"{whole}.{instant % SECOND // MILLISECOND:03}Z"
