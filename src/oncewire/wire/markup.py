"""Writing text into XML: escaping, and the few attributes every writer needs."""

from __future__ import annotations

import re

from oncewire.errors import InvalidValue

_SPECIAL_TEXT = re.compile(r"[&<>\r]")
_SPECIAL_ATTRIBUTE = re.compile(r'[&<>"\r\n\t]')
# A bare carriage return would be read back as a line feed, so it travels as a reference.
_TEXT = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})
_ATTRIBUTE = str.maketrans(
    {
        "&": "&amp;",
        "<": "&lt;",
        ">": "&gt;",
        '"': "&quot;",
        "\r": "&#13;",
        "\n": "&#10;",
        "\t": "&#9;",
    }
)


def text(value: str) -> str:
    """The value as element content."""
    return value.translate(_TEXT) if _SPECIAL_TEXT.search(value) else value


def identifier(value: str) -> str:
    """An id as element content; readers drop outer spaces, so it must have none."""
    if value[0] in " \t" or value[-1] in " \t":
        raise InvalidValue(
            f"{value[:64]!r} begins or ends with a space",
            remedy="readers drop outer spaces and would see another id; remove them",
        )
    return value.translate(_TEXT) if _SPECIAL_TEXT.search(value) else value


def attribute(value: str) -> str:
    """The value between double quotes."""
    return value.translate(_ATTRIBUTE) if _SPECIAL_ATTRIBUTE.search(value) else value


def optional_attribute(name: str, value: str | None) -> str:
    """` name="value"`, or nothing."""
    return "" if value is None else f' {name}="{attribute(value)}"'


def boolean(value: bool) -> str:
    """As XML Schema writes it."""
    return "true" if value else "false"
