"""Moments as the wire writes them: the usual forms fast, every other form by the general way."""

from __future__ import annotations

import functools
import re
from datetime import UTC, datetime, timedelta

from oncewire.message.instant import SECOND, Instant, format_instant, parse_instant

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
# Beyond the year 9999 the general way says what is wrong.
_FAR = 250_000_000_000 * SECOND
# A second in UTC as XML Schema writes it, and as v0-078 does. Leap seconds and the hour 24 are for
# the general way.
_USUAL = re.compile(r"(?:[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}|[0-9]{8}T[0-9]{6})")


@functools.lru_cache(maxsize=256)
def _second_of(text: str) -> Instant | None:
    """The instant of a whole second in one of the usual forms; None for anything else."""
    # Messages come by the hundred in one second, so each second is looked at once.
    if _USUAL.fullmatch(text) is None:
        return None
    try:
        return (datetime.fromisoformat(text + "Z") - _EPOCH) // _SECOND * SECOND
    except ValueError:
        return None


def read_moment(text: str) -> tuple[Instant, bool]:
    """The instant a dateTime names, and whether it named its zone, as `parse_instant` says."""
    if text[-1:] == "Z":
        whole, dot, fraction = text[:-1].partition(".")
        second = _second_of(whole) if len(whole) < 20 else None
        if second is not None:
            if not dot:
                return second, True
            if len(fraction) <= 6 and fraction.isascii() and fraction.isdigit():
                return second + int(fraction.ljust(6, "0")), True
    return parse_instant(text)


@functools.lru_cache(maxsize=256)
def _written_second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).isoformat()[:19]


def written_moment(instant: Instant) -> str:
    """The instant as xsd:dateTime in UTC, as `format_instant` says."""
    if not 0 <= instant < _FAR:
        return format_instant(instant)
    second, rest = divmod(instant, SECOND)
    if rest:
        return f"{_written_second(second)}.{rest:06d}".rstrip("0") + "Z"
    return _written_second(second) + "Z"


def written_basic_moment(instant: Instant) -> str:
    """The instant in ISO 8601's basic form, as the rm-0.78 dialect writes TimeStamp."""
    return written_moment(instant).replace("-", "").replace(":", "")
