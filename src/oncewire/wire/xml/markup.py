"""Writing text into XML: escaping, and the few attributes every writer needs."""

from __future__ import annotations

import re

from oncewire.errors import InvalidValue

# What XML 1.0 cannot carry in any form, not even as a character reference.
_ILLEGAL = r"\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff"
_SPECIAL_TEXT = re.compile(rf"[&<>\r{_ILLEGAL}]")
# A parser turns line ends and tabs in attributes into spaces (XML 1.0 §3.3.3), so they travel as
# references.
_SPECIAL_ATTRIBUTE = re.compile(rf'[&<>"\r\n\t{_ILLEGAL}]')
_NEVER = re.compile(f"[{_ILLEGAL}]")
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
    # Nearly every value passes here untouched.
    if value.isprintable() and "&" not in value and "<" not in value and ">" not in value:
        return value
    return _escaped(value, _TEXT) if _SPECIAL_TEXT.search(value) else value


def _escaped(value: str, table: dict[int, str]) -> str:
    """The value by the table. What XML cannot carry is refused and not dropped: an id without its
    control character is another id."""
    if _NEVER.search(value):
        raise InvalidValue(
            f"{value[:64]!r} contains a character that XML cannot carry",
            remedy="remove control characters",
        )
    return value.translate(table)


def identifier(value: str) -> str:
    """An id as element content; readers drop outer spaces, so it must have none."""
    if value[0] in " \t" or value[-1] in " \t":
        raise InvalidValue(
            f"{value[:64]!r} begins or ends with a space",
            remedy="readers drop outer spaces and would see another id; remove them",
        )
    return text(value)


def attribute(value: str) -> str:
    """The value between double quotes."""
    return _escaped(value, _ATTRIBUTE) if _SPECIAL_ATTRIBUTE.search(value) else value


def optional_attribute(name: str, value: str | None) -> str:
    """` name="value"`, or nothing."""
    return "" if value is None else f' {name}="{attribute(value)}"'


def boolean(value: bool) -> str:
    """As XML Schema writes it."""
    return "true" if value else "false"
