"""Kinds of settings: how a value is read from TOML or from text, checked, and shown."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from oncewire.errors import InvalidValue
from oncewire.message.instant import format_duration, parse_duration

_YES = ("true", "yes", "on", "1")
_NO = ("false", "no", "off", "0")
# Above it an integer no longer fits where it is used (ports, sizes, counts).
_LARGEST = 2**62


@dataclass(frozen=True, slots=True)
class SettingKind:
    """How one kind of setting is read and shown. `read` takes TOML values and plain text."""

    read: Callable[[Any], Any]
    show: Callable[[Any], str]
    # How it is written in oncewire.toml.
    write: Callable[[Any], str]


def _text(raw: Any) -> str:
    if not isinstance(raw, str):
        raise InvalidValue(f"{raw!r} is not a text", remedy="put it in quotes")
    if any(char < " " for char in raw):
        raise InvalidValue("it holds a control character", remedy="use printable characters")
    return raw


def _number(raw: Any) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int | str):
        raise InvalidValue(f"{raw!r} is not a number", remedy="write a whole number")
    try:
        number = int(raw)
    except ValueError:
        raise InvalidValue(f"{raw!r} is not a number", remedy="write a whole number") from None
    if not 0 <= number < _LARGEST:
        raise InvalidValue(f"{number} is out of range", remedy="write a number from 0 up")
    return number


def _flag(raw: Any) -> bool:
    if isinstance(raw, bool):
        return raw
    word = str(raw).strip().lower()
    if word not in _YES + _NO:
        raise InvalidValue(f"{raw!r} is neither true nor false", remedy="write true or false")
    return word in _YES


def _list(raw: Any) -> tuple[str, ...]:
    items = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(items, list | tuple):
        raise InvalidValue(f"{raw!r} is not a list", remedy='write ["one", "two"]')
    return tuple(_text(item).strip() for item in items if _text(item).strip())


def _path(raw: Any) -> Path:
    text = _text(raw)
    if not text or "\0" in text:
        raise InvalidValue("the path is empty", remedy="name a file or folder")
    return Path(text).expanduser()


def _duration(raw: Any) -> int:
    if isinstance(raw, bool):
        raise InvalidValue(
            f"{raw!r} is not a duration", remedy="write PT30S or a number of seconds"
        )
    duration = parse_duration(str(raw))
    if duration <= 0:
        raise InvalidValue("the duration is zero", remedy="write PT30S, PT5M or seconds")
    return duration


def quoted(value: object) -> str:
    """A TOML string."""
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _choice(words: type[StrEnum]) -> SettingKind:
    def read(raw: Any) -> StrEnum:
        try:
            return words(str(raw).strip().lower())
        except ValueError:
            listed = ", ".join(member.value for member in words)
            raise InvalidValue(f"{raw!r} is not known", remedy=f"use one of {listed}") from None

    return SettingKind(read, lambda value: str(value.value), lambda value: quoted(value.value))


TEXT_KIND = SettingKind(_text, str, quoted)
NUMBER_KIND = SettingKind(_number, str, str)
FLAG_KIND = SettingKind(_flag, lambda value: str(value).lower(), lambda value: str(value).lower())
LIST_KIND = SettingKind(_list, ", ".join, lambda value: f"[{', '.join(map(quoted, value))}]")
FILE_KIND = SettingKind(_path, str, quoted)
OPTIONAL_FILE_KIND = SettingKind(_path, lambda value: str(value) if value else "", quoted)
DURATION_KIND = SettingKind(
    _duration, format_duration, lambda value: quoted(format_duration(value))
)


def kind_of(section: type[Any], name: str) -> SettingKind:
    """The kind of a section's field, by its annotation."""
    annotation = str(section.__annotations__[name])
    if annotation.startswith("Annotated[Duration"):
        # An alias of int to the type checker, but a length of time to whoever writes it.
        return DURATION_KIND
    hint = get_type_hints(section)[name]
    if get_origin(hint) in (Union, types.UnionType) and Path in get_args(hint):
        return OPTIONAL_FILE_KIND
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _choice(hint)
    plain: dict[Any, SettingKind] = {
        str: TEXT_KIND,
        int: NUMBER_KIND,
        bool: FLAG_KIND,
        Path: FILE_KIND,
        tuple[str, ...]: LIST_KIND,
    }
    return plain[hint]
