"""Forms: what may stand in a gap, for each kind of field, and the value it has.

Only what means the same to every parser passes: no character that could be markup, a reference, a
line end or part of another encoding, and no moment or number that two rules could judge apart.
Whatever else a field may rightly hold is for the full reader.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from oncewire.errors import InvalidValue
from oncewire.message.ids import ID_LENGTH_MAX
from oncewire.wire.differential.gaps import Field
from oncewire.wire.xml.moments import read_moment

Value: TypeAlias = str | int | bytes
"""What a gap holds: an id or a reference, a moment or a number, or base64 as it is written."""


class Form(NamedTuple):
    """How the values of a gap are written: the value of some bytes or None, and bytes that try
    it out, one for every number."""

    read: Callable[[bytes], Value | None]
    example: Callable[[int], str]


# Without the equals sign, of which the limits count how many there are, and without quotes.
_ID = bytes(code for code in range(0x21, 0x7F) if chr(code) not in "<>&\"'=")
# What a cid: URL holds unescaped (RFC 2392), and a schema takes for a part of any URI.
_PART = re.compile(rb"[A-Za-z0-9@._-]+")
# No leap second and no hour 24: our reader rolls them over, a schema may call them invalid.
_TIME = r"([01]\d|2[0-3]){0}[0-5]\d{0}[0-5]\d"
_FRACTION = r"\.\d{1,6}"


def _id(value: bytes) -> str | None:
    plain = 0 < len(value) <= ID_LENGTH_MAX and not value.translate(None, _ID)
    return value.decode("ascii") if plain else None


def _part(value: bytes) -> str | None:
    plain = len(value) <= ID_LENGTH_MAX and _PART.fullmatch(value) is not None
    return "cid:" + value.decode("ascii") if plain else None


def _number(value: bytes) -> int | None:
    # As many digits as the largest number of any dialect has; its own check says the rest.
    return int(value) if value.isdigit() and len(value) <= 10 else None


def _moment_form(pattern: str, example: str) -> Form:
    known = re.compile(pattern.encode(), re.ASCII)

    def read(value: bytes) -> int | None:
        if known.fullmatch(value) is None:
            return None
        try:
            return read_moment(value.decode("ascii"))[0]
        except InvalidValue:
            return None

    return Form(read, lambda number: example.format(number % 60))


def _base64_form(padding: bytes, example: str) -> Form:
    # With as many equals signs as the learned one: the limits count them.
    last = rb"[A-Za-z0-9+/]" * (-len(padding) % 4) + padding
    known = re.compile(rb"(?:[A-Za-z0-9+/]{4})+" + last)
    return Form(lambda value: value if known.fullmatch(value) else None, example.format)


_IDS = (Form(_id, "oncewire-{}".format),)
_PARTS = (Form(_part, "oncewire-{}@example".format),)
_NUMBERS = (Form(_number, str),)
# With a fraction and without, as XML Schema and as v0-078 write it: a partner keeps to one.
_MOMENTS = tuple(
    _moment_form(rf"\d{{4}}{day}\d\d{day}\d\dT{_TIME.format(hour)}{fraction}Z", example)
    for day, hour, fraction, example in (
        ("-", ":", "", "2001-02-03T04:05:{:02d}Z"),
        ("-", ":", _FRACTION, "2001-02-03T04:05:06.0{:02d}Z"),
        ("", "", "", "20010203T0405{:02d}Z"),
        ("", "", _FRACTION, "20010203T040506.0{:02d}Z"),
    )
)
# The digits of an example stand before what is padding, where every one of them counts.
_BASE64 = (
    _base64_form(b"", "T25jZXdpcmUtb25jZXdp{:04d}"),
    _base64_form(b"=", "T25jZXdpcmUtb25jZXdp{:04d}T2U="),
    _base64_form(b"==", "T25jZXdpcmUtb25jZXdp{:04d}TQ=="),
)
_FORMS: dict[Field, tuple[Form, ...]] = {
    Field.CONVERSATION_ID: _IDS,
    Field.MESSAGE_ID: _IDS,
    Field.REF_TO_MESSAGE_ID: _IDS,
    Field.ACK_REF_TO: _IDS,
    Field.TIMESTAMP: _MOMENTS,
    Field.TIME_TO_LIVE: _MOMENTS,
    Field.HOP_TIMESTAMP: _MOMENTS,
    Field.ACK_TIMESTAMP: _MOMENTS,
    Field.ORDER: _NUMBERS,
    Field.HOP_NUMBER: _NUMBERS,
    Field.HREF: _PARTS,
    Field.ACK_PART: _PARTS,
    Field.SIGNED_PART: _PARTS,
    Field.ACK_DIGEST: _BASE64,
    Field.SIGNED_DIGEST: _BASE64,
    Field.SIGNATURE_VALUE: _BASE64,
}


def form_of(field: Field, written: bytes) -> Form | None:
    """The form in which a field is written; None for any that is read by the full reader alone."""
    for form in _FORMS[field]:
        if form.read(written) is not None:
            return form
    return None
