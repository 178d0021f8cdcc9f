"""Kinds of values an agreement may hold: how each is read, written and shown.

A kind turns what TOML, a profile or a CPA says into a checked Python value, and back into
the plain value that TOML and JSON can carry. Reading back what was written gives the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from typing import Any

from oncewire.agreement.agreement import Requested
from oncewire.agreement.certificates import fingerprint, read_certificates, to_pem
from oncewire.errors import InvalidValue
from oncewire.message.form import Extension
from oncewire.message.header import SyncReplyMode
from oncewire.message.ids import check_id, check_text
from oncewire.message.instant import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    Duration,
    Instant,
    format_duration,
    format_instant,
    parse_duration,
    parse_instant,
)
from oncewire.protocol.sequence import NAMED_RANGES, SequenceRange

DURATION_MAX: Duration = 100 * 366 * DAY
"""A longer wait is a slip of the pen, and would not fit the store's columns for ever."""

COUNT_MAX = 1_000_000
SIZE_MAX = 2**62
LIST_MAX = 1_000

_SHORT_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|m|h|d)\Z", re.ASCII)
_UNITS = {"ms": 1_000, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
_ACCURACY = re.compile(r"(\d{1,4}):([0-5]\d)\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class ValueKind:
    """One kind: what it looks like in words, how to read it, how to write it plainly."""

    looks: str
    read: Callable[[object], Any]
    write: Callable[[Any], Any]
    show: Callable[[Any], str]


def _kind(
    looks: str,
    read: Callable[[object], Any],
    write: Callable[[Any], Any] = lambda value: value,
    show: Callable[[Any], str] | None = None,
) -> ValueKind:
    return ValueKind(looks, read, write, show or (lambda value: _plain_text(write(value))))


def _plain_text(plain: Any) -> str:
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, list):
        return ", ".join(_plain_text(item) for item in plain) or "none"
    return str(plain)


def wrong(raw: object, looks: str) -> InvalidValue:
    """The error for a value that is not of its kind."""
    return InvalidValue(f"{_brief(raw)} is not {looks}", remedy=f"write {looks}")


def _brief(raw: object) -> str:
    if isinstance(raw, dict):
        return "a table"
    if isinstance(raw, list):
        return "a list"
    try:
        text = repr(raw)
    except ValueError:
        # Python refuses to print integers of thousands of digits.
        return "this number"
    return text if len(text) <= 60 else text[:60] + "..."


# --- single values -----------------------------------------------------------------------------


def _read_bool(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and raw.strip() in ("true", "false", "1", "0"):
        return raw.strip() in ("true", "1")
    raise wrong(raw, "true or false")


def _read_whole(raw: object, least: int, most: int) -> int:
    looks = f"a whole number from {least} to {most}"
    if isinstance(raw, str) and re.fullmatch(r"\d{1,18}", raw.strip(), re.ASCII):
        raw = int(raw.strip())
    if isinstance(raw, bool) or not isinstance(raw, int) or not least <= raw <= most:
        raise wrong(raw, looks)
    return raw


def read_text(raw: object, length_max: int = 1024) -> str:
    """A line of text without characters that XML cannot carry."""
    if not isinstance(raw, str) or not raw.strip():
        raise wrong(raw, "text between quotes")
    return check_text(raw, "the text", length_max)


def read_id(raw: object) -> str:
    """A name or address: at most 255 printable characters."""
    if not isinstance(raw, str):
        raise wrong(raw, "text between quotes")
    return check_id(raw, "the value")


def read_duration(raw: object) -> Duration:
    """`PT30S`, `"30s"`, `30` and `0.5` (seconds) all work (C19)."""
    looks = 'a duration: PT30S, "30s", "5m", "2h", "1d" or a number of seconds'
    duration: Duration | None = None
    if isinstance(raw, bool):
        pass
    elif isinstance(raw, int | float):
        # Compared before the multiplication, so that no huge number is ever made; nan and
        # the infinities fail the comparison.
        if 0 <= raw <= DURATION_MAX // SECOND:
            duration = round(raw * SECOND)
    elif isinstance(raw, str):
        short = _SHORT_DURATION.match(raw.strip())
        if short is not None:
            duration = round(float(short.group(1)) * _UNITS[short.group(2)])
        else:
            duration = parse_duration(raw)
    if duration is None:
        raise wrong(raw, looks)
    if duration > DURATION_MAX:
        raise InvalidValue(
            f"{_brief(raw)} is longer than 100 years", remedy="write a shorter duration"
        )
    return duration


def _read_accuracy(raw: object) -> Duration:
    """mshTimeAccuracy is written mm:ss (CPA-15); a duration is taken as well."""
    if isinstance(raw, str):
        match = _ACCURACY.match(raw.strip())
        if match is not None:
            return int(match.group(1)) * MINUTE + int(match.group(2)) * SECOND
    return read_duration(raw)


def read_instant(raw: object) -> Instant:
    """A dateTime as text, or a TOML date or time; without a zone it is UTC."""
    if isinstance(raw, datetime):
        moment = raw if raw.tzinfo is not None else raw.replace(tzinfo=UTC)
        return _since_epoch(moment)
    if isinstance(raw, date):
        return _since_epoch(datetime.combine(raw, time(), tzinfo=UTC))
    if isinstance(raw, str):
        return parse_instant(raw)[0]
    raise wrong(raw, "a time such as 2026-01-05T10:00:00Z")


def _since_epoch(moment: datetime) -> Instant:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _read_range(raw: object) -> SequenceRange:
    names = ", ".join(sorted(NAMED_RANGES))
    looks = f"a sequence range: one of {names}, or [first, last]"
    if isinstance(raw, str) and raw in NAMED_RANGES:
        return NAMED_RANGES[raw]
    if isinstance(raw, list | tuple) and len(raw) == 2:
        first, last = (_read_whole(item, 0, 4_294_967_295) for item in raw)
        return SequenceRange(first, last)
    raise wrong(raw, looks)


def _write_range(numbers: SequenceRange) -> object:
    for name, known in NAMED_RANGES.items():
        if known == numbers:
            return name
    return [numbers.first, numbers.last]


# --- choices and lists -------------------------------------------------------------------------


def choice(options: type[Enum], aliases: dict[object, Enum] | None = None) -> ValueKind:
    """One of an enumeration's words, in any mixture of capitals."""
    words = {str(option.value).lower(): option for option in options}
    others = aliases or {}
    looks = "one of " + ", ".join(str(option.value) for option in options)

    def read(raw: object) -> Enum:
        if isinstance(raw, options):
            return raw
        if isinstance(raw, bool | str) and raw in others:
            return others[raw]
        if isinstance(raw, str) and raw.strip().lower() in words:
            return words[raw.strip().lower()]
        raise wrong(raw, looks)

    return _kind(looks, read, lambda option: option.value)


def _listed(raw: object, read_item: Callable[[object], Any], looks: str) -> tuple[Any, ...]:
    items = raw if isinstance(raw, list | tuple) else [raw]
    if len(items) > LIST_MAX:
        raise InvalidValue(f"a list of {len(items)} is too long", remedy=f"write {looks}")
    return tuple(dict.fromkeys(read_item(item) for item in items))


def optional(kind: ValueKind) -> ValueKind:
    """The kind, or the word `none`."""

    def read(raw: object) -> Any:
        return None if isinstance(raw, str) and raw.strip() == "none" else kind.read(raw)

    return ValueKind(
        f"{kind.looks}, or none",
        read,
        lambda value: "none" if value is None else kind.write(value),
        lambda value: "none" if value is None else kind.show(value),
    )


def _read_extensions(raw: object) -> frozenset[Extension]:
    return frozenset(_listed(raw, EXTENSION.read, "a list of extensions"))


def _read_ders(raw: object) -> tuple[bytes, ...]:
    found = _listed(raw, read_certificates, "a list of certificates")
    return tuple(dict.fromkeys(der for several in found for der in several))


def _show_ders(ders: tuple[bytes, ...]) -> str:
    return ", ".join(f"sha256:{fingerprint(der)[:16]}" for der in ders) or "none"


BOOL = _kind("true or false", _read_bool)
COUNT = _kind(f"a whole number from 0 to {COUNT_MAX}", lambda raw: _read_whole(raw, 0, COUNT_MAX))
WINDOW = _kind("a whole number, 1 or more", lambda raw: _read_whole(raw, 1, 2**31))
SIZE = _kind("a size in bytes, 1 or more", lambda raw: _read_whole(raw, 1, SIZE_MAX))
TEXT = _kind("text between quotes", read_text)
DURATION = _kind("a duration such as PT30S", read_duration, format_duration)
ACCURACY = _kind("mm:ss, or a duration such as PT30S", _read_accuracy, format_duration)
INSTANT = _kind("a time such as 2026-01-05T10:00:00Z", read_instant, format_instant)
RANGE = _kind("the name of a sequence range, or [first, last]", _read_range, _write_range)
NAMES = _kind("a list of names", lambda raw: _listed(raw, read_id, "a list of names"), list)
EXTENSION = choice(Extension)
EXTENSIONS = _kind(
    "a list of " + ", ".join(extension.value for extension in Extension),
    _read_extensions,
    lambda chosen: sorted(item.value for item in chosen),
)
CERTIFICATES = _kind(
    "a certificate file or PEM text, or a list of them",
    _read_ders,
    lambda ders: [to_pem(der) for der in ders],
    _show_ders,
)
REVOCATION_LISTS = _kind(
    "a revocation list file or PEM text, or a list of them",
    _read_ders,
    lambda ders: [to_pem(der, "X509 CRL") for der in ders],
    _show_ders,
)
REQUESTED = choice(Requested, {True: Requested.ALWAYS, False: Requested.NEVER})
SYNC_MODE = choice(
    SyncReplyMode,
    # The sync paper's three words, and v0.91's False (C31).
    {
        "AcksOnly": SyncReplyMode.MSH_SIGNALS_ONLY,
        "ResponseOnly": SyncReplyMode.RESPONSE_ONLY,
        "AcksAndResponse": SyncReplyMode.SIGNALS_AND_RESPONSE,
        False: SyncReplyMode.NONE,
    },
)
