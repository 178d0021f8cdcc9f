"""Kinds of values that people write into files: how each is read, written and shown.

A kind turns what a file, a variable, a profile or a CPA says into a checked Python value, and back
into the plain value that TOML and JSON can carry. Reading back what was written gives the same.
Agreements and settings are tables of keys of such kinds (`key.py`).
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from typing import Any

from oncewire.errors import InvalidValue, OncewireError
from oncewire.message.ids import check_id, check_text
from oncewire.message.instant import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    Duration,
    Instant,
    format_duration,
    parse_duration,
    parse_instant,
)

DURATION_MAX: Duration = 100 * 366 * DAY
"""A longer wait is a slip of the pen, and would not fit the store's columns for ever."""

COUNT_MAX = 1_000_000
SIZE_MAX = 2**62
LIST_MAX = 1_000

_SHORT_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|m|h|d)\Z", re.ASCII)
_UNITS = {"ms": 1_000, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
# A variable of the environment has no true and false of its own.
_YES = ("true", "yes", "on", "1")
_NO = ("false", "no", "off", "0")


KEY_DEPTH = 32
"""Names between dots in one key of TOML: its reader needs memory by their square."""

_NAME = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_DEEP_KEY = re.compile(rf"(?<![\w-]){_NAME}(?:[ \t]*+\.[ \t]*+{_NAME}){{{KEY_DEPTH}}}", re.ASCII)


def read_toml(text: str) -> dict[str, Any]:
    """The table that a TOML text describes; whatever its reader stumbles over is told in words."""
    if _DEEP_KEY.search(text):
        raise InvalidValue(
            f"this is not TOML that is read here: more than {KEY_DEPTH} names between dots",
            remedy="write its keys in tables that are not so deep",
        )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problem, remedy = str(error)[:200], "correct that line"
    except RecursionError:
        problem, remedy = "it is nested too deeply", "write its values without so many brackets"
    except ValueError:
        # Python converts no more than some thousands of digits.
        problem, remedy = "a number is too long", "write a shorter one"
    raise InvalidValue(f"this is not TOML: {problem}", remedy=remedy)


@dataclass(frozen=True, slots=True)
class ValueKind:
    """One kind: what it looks like in words, how to read it, how to write it plainly."""

    looks: str
    read: Callable[[object], Any]
    write: Callable[[Any], Any]
    show: Callable[[Any], str]

    def literal(self, value: Any) -> str:
        """The value as it stands in a TOML file."""
        return literal(self.write(value))


def kind(
    looks: str,
    read: Callable[[object], Any],
    write: Callable[[Any], Any] = lambda value: value,
    show: Callable[[Any], str] | None = None,
) -> ValueKind:
    """A kind; what is written plainly is also how it is shown, unless `show` says otherwise."""
    return ValueKind(looks, read, write, show or (lambda value: _plain_text(write(value))))


def _plain_text(plain: Any) -> str:
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, list):
        return ", ".join(_plain_text(item) for item in plain) or "none"
    return str(plain)


def literal(plain: Any) -> str:
    """A TOML literal of a plain value."""
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, int):
        return str(plain)
    if isinstance(plain, list):
        return "[" + ", ".join(literal(item) for item in plain) + "]"
    return quoted(str(plain))


def quoted(text: str) -> str:
    """A TOML string: every character that needs it is escaped."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    escaped = "".join(
        f"\\{char}" if char in '"\\'
        else char if " " <= char <= "~" or char > "\x9f"
        else "\\n" if char == "\n"
        else f"\\u{ord(char):04X}"
        for char in text
    )  # fmt: skip
    return f'"{escaped}"'


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
    word = str(raw).strip().lower()
    if isinstance(raw, bool | str) and word in _YES + _NO:
        return word in _YES
    raise wrong(raw, "true or false")


def read_whole(raw: object, least: int, most: int, looks: str = "") -> int:
    """A whole number of that range."""
    looks = looks or f"a whole number from {least} to {most}"
    if isinstance(raw, str) and re.fullmatch(r"\d{1,18}", raw.strip(), re.ASCII):
        raw = int(raw.strip())
    if isinstance(raw, bool) or not isinstance(raw, int) or not least <= raw <= most:
        raise wrong(raw, looks)
    return raw


def whole(least: int, most: int, looks: str = "") -> ValueKind:
    """Whole numbers of that range."""
    words = looks or f"a whole number from {least} to {most}"
    return kind(words, lambda raw: read_whole(raw, least, most, words))


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

    return kind(looks, read, lambda option: option.value)


def listed(raw: object, read_item: Callable[[object], Any], looks: str) -> tuple[Any, ...]:
    """Each item once; a single one need not stand in a list."""
    items = raw if isinstance(raw, list | tuple) else [raw]
    if len(items) > LIST_MAX:
        raise InvalidValue(f"a list of {len(items)} is too long", remedy=f"write {looks}")
    return tuple(dict.fromkeys(read_item(item) for item in items))


def optional(of: ValueKind) -> ValueKind:
    """The kind, or the word `none`."""

    def read(raw: object) -> Any:
        return None if isinstance(raw, str) and raw.strip() == "none" else of.read(raw)

    return ValueKind(
        f"{of.looks}, or none",
        read,
        lambda value: "none" if value is None else of.write(value),
        lambda value: "none" if value is None else of.show(value),
    )


BOOL = kind("true or false", _read_bool)
COUNT = whole(0, COUNT_MAX)
WINDOW = whole(1, 2**31, "a whole number, 1 or more")
SIZE = whole(1, SIZE_MAX, "a number of bytes without a unit, such as 500000")
TEXT = kind("text between quotes", read_text)
DURATION = kind("a duration such as PT30S", read_duration, format_duration)
NAMES = kind("a list of names", lambda raw: listed(raw, read_id, "a list of names"), list)


# NamedKey: one name in a file that people write, with the kind of its value.
#
# Agreements and settings are tables of keys. A value that is not of its kind is refused with the
# key's name, and an unknown name with the nearest known one.


@dataclass(frozen=True, slots=True)
class NamedKey:
    """One key: `name` is section.key."""

    name: str
    kind: ValueKind

    def read(self, raw: object, origin: str = "") -> Any:
        """The checked value, or an error that names the key and who said it."""
        try:
            return self.kind.read(raw)
        except InvalidValue as error:
            place = f"{self.name} ({origin})" if origin else self.name
            raise self.refusal(f"{place}: {error.problem}", error.remedy) from None

    def refusal(self, problem: str, remedy: str) -> OncewireError:
        """The error for a value that is not of its kind."""
        return InvalidValue(problem, remedy=remedy)


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that the reader most likely meant, or nothing."""
    choices = list(known)
    section, _, tail = name[:128].rpartition(".")
    found = difflib.get_close_matches(name[:128], choices, n=1, cutoff=0.6)
    if not found or not section:
        # `retrys` alone means `delivery.retries`: compare the last words, first key first.
        tails: dict[str, str] = {}
        for choice_name in choices:
            tails.setdefault(choice_name.rpartition(".")[2], choice_name)
        close = difflib.get_close_matches(tail, tails, n=1, cutoff=0.6)
        found = [tails[word] for word in close] or found
    return found[0] if found else ""


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """The remedy for an unknown name: the nearest known one, or `otherwise`."""
    close = nearest(name, known)
    return f"did you mean {close}?" if close else otherwise
