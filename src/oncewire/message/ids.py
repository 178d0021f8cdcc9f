"""Names that messages and parties carry, and the checks every one of them passes.

An id travels into file names' digests, log lines, SQL parameters and other handlers'
headers, so the rules are the same for all: not empty, at most 255 characters, no control
characters. They are plain strings afterwards; the check happens where they enter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Self, cast

from msgspec import Struct

from oncewire.errors import InvalidValue
from oncewire.message.form import ID_LENGTH_MAX

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
# RFC 3986's scheme followed by something; enough to tell a URI from a bare word.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:[^\s]+\Z")


def check_id(value: str, what: str) -> str:
    """The value itself, if it may serve as an id; `what` names it in the error."""
    # Nearly every one passes here: what is printable has no control character.
    if type(value) is str and 0 < len(value) <= ID_LENGTH_MAX and value.isprintable():
        if not value.isspace():
            return value
    else:
        _check_is_text(value, what)
    if not value.strip():
        raise InvalidValue(f"{what} is empty", remedy=f"give {what} a value")
    if len(value) > ID_LENGTH_MAX:
        raise InvalidValue(
            f"{what} has {len(value)} characters, more than {ID_LENGTH_MAX}",
            remedy=f"shorten {what}",
        )
    if _CONTROL.search(value):
        raise InvalidValue(
            f"{what} contains a control character", remedy=f"use printable characters in {what}"
        )
    return value


def check_ids(names: Sequence[str], values: Sequence[str | None], *, needed: int) -> None:
    """Check several ids at once, `names` naming them in errors; those after the first `needed`
    may be missing."""
    for place, value in enumerate(values):
        # What is text of a fair length and printable needs no second look, unless it is blank.
        if type(value) is str and 0 < len(value) <= ID_LENGTH_MAX and value.isprintable():
            if not value.isspace():
                continue
        elif value is None and place >= needed:
            continue
        check_id(cast(str, value), names[place])


def check_text(value: str, what: str, length_max: int = 4096) -> str:
    """Free text of a header: bounded, and without characters that XML cannot carry."""
    if type(value) is str and len(value) <= length_max and value.isprintable():
        return value
    _check_is_text(value, what)
    if len(value) > length_max:
        raise InvalidValue(
            f"{what} has {len(value)} characters, more than {length_max}", remedy=f"shorten {what}"
        )
    for char in value:
        if (
            (char < " " and char not in "\t\n\r")
            or "\ud800" <= char <= "\udfff"
            or char in "\ufffe\uffff"
        ):
            raise InvalidValue(
                f"{what} contains a character that XML cannot carry",
                remedy=f"remove control characters from {what}",
            )
    return value


def _check_is_text(value: object, what: str) -> None:
    # Programs and other processes give what they like, whatever the annotation says.
    if not isinstance(value, str):
        raise InvalidValue(f"{what} is no text: {repr(value)[:32]}", remedy=f"give {what} as text")


def is_uri(value: str) -> bool:
    """Whether the text has the form of an absolute URI."""
    return _URI.match(value) is not None


class TypedName(Struct, frozen=True, gc=False):
    """A name and the type (context) that gives it meaning.

    Without a type the value must be a URI (ebMS 2.0 §3.1.1.1, §3.1.4.1); that is a rule of the
    message, judged where the message is read, so that the fault is answered and not lost.
    """

    value: str
    type: str | None = None

    def __post_init__(self) -> None:
        check_id(self.value, self.__class__.__name__)
        if self.type is not None:
            check_id(self.type, f"{self.__class__.__name__} type")

    @classmethod
    def read(cls, text: str) -> Self:
        """The name that people write as `value` or `type|value`."""
        kind, _, value = text.rpartition("|")
        return cls(value, kind) if kind else cls(text)

    @property
    def spelled(self) -> str:
        """The name as `read` takes it: no URI has a bar in it, so the type can be told apart."""
        return f"{self.type}|{self.value}" if self.type else self.value

    def __str__(self) -> str:
        """The name as listings of messages and the journal have it."""
        return f"{self.type}:{self.value}" if self.type else self.value


class PartyId(TypedName, frozen=True, gc=False):
    """One identifier of a party."""


class Service(TypedName, frozen=True, gc=False):
    """The service that acts on a message (ebMS 2.0 §3.1.4).

    `value`: its name. `type`: what kind of name that is; without one it must be a URI.
    """


class Party(Struct, frozen=True, gc=False):
    """Who sends or receives: one or more ids of the same party, and the role it plays."""

    ids: tuple[PartyId, ...]
    role: str | None = None

    def __post_init__(self) -> None:
        if not self.ids:
            raise InvalidValue("a party has no PartyId", remedy="name the party by a PartyId")
        if self.role is not None:
            check_id(self.role, "Role")

    @classmethod
    def of(cls, value: str, type: str | None = None, role: str | None = None) -> Party:
        """The common case: a party with one id."""
        return cls((PartyId(value, type),), role)

    def shares_id_with(self, other: Party) -> bool:
        """Whether any id names both: several PartyIds of one party are equivalent."""
        return any(party_id in other.ids for party_id in self.ids)

    def acting_as(self, role: str | None) -> Party:
        """The party in that role, where one is named (ebMS 2.0 §3.1.1.2)."""
        return self if role is None else Party(self.ids, role)

    def __str__(self) -> str:
        return str(self.ids[0])
