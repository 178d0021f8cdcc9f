"""Kinds of values that only settings have, and which kind a field of the settings is."""

from __future__ import annotations

import types
from enum import StrEnum
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from oncewire.errors import InvalidValue
from oncewire.message import kinds
from oncewire.message.instant import Duration, format_duration
from oncewire.message.kinds import ValueKind, kind

HIDDEN = object()
"""Marks a setting whose value is never shown."""


def _read_line(raw: object) -> str:
    """A line of text, which may be empty: then nothing is said."""
    if raw == "":
        return ""
    if isinstance(raw, str) and not raw.isprintable():
        raise InvalidValue("it holds a control character", remedy="use printable characters")
    return kinds.read_text(raw)


def _read_list(raw: object) -> tuple[str, ...]:
    """A list, or in a variable the items with commas between them."""
    if not isinstance(raw, str | list | tuple):
        raise kinds.wrong(raw, "a list of texts")
    items = raw.split(",") if isinstance(raw, str) else raw
    read = kinds.listed(items, lambda item: _read_line(item).strip(), "a list of texts")
    return tuple(item for item in read if item)


def _read_path(raw: object) -> Path:
    text = _read_line(raw)
    if not text:
        raise InvalidValue("the path is empty", remedy="name a file or folder")
    return Path(text).expanduser()


def _read_period(raw: object) -> Duration:
    duration = kinds.read_duration(raw)
    if not duration:
        raise InvalidValue("the duration is zero", remedy="write PT30S, PT5M or seconds")
    return duration


_PLAIN: dict[Any, ValueKind] = {
    str: kind("text between quotes", _read_line),
    # More would not fit where it is used (sizes, counts).
    int: kinds.whole(0, kinds.SIZE_MAX),
    bool: kinds.BOOL,
    Path: kind("a file or folder", _read_path, str),
    tuple[str, ...]: kind("a list of texts", _read_list, list),
}
_PORT = kinds.whole(0, 65535)
_MAYBE_PATH = kind("a file", _read_path, lambda path: str(path) if path else "")
_PERIOD = kind("a duration such as PT30S", _read_period, format_duration)


def kind_of(section: type[Any], name: str) -> ValueKind:
    """The kind of a section's field, by its annotation."""
    annotation = str(section.__annotations__[name])
    if annotation.startswith("Annotated[Duration"):
        # An alias of int to the type checker, but a length of time to whoever writes it.
        return _PERIOD
    if name == "port" or name.endswith("_port"):
        return _PORT
    hint = get_type_hints(section)[name]
    if get_origin(hint) in (Union, types.UnionType) and Path in get_args(hint):
        return _MAYBE_PATH
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return kinds.choice(hint)
    return _PLAIN[hint]
