"""Detail: what all notes share, written as the JSON text of a row's `detail` column and read back.

`write()` makes the compact JSON text (None when there is nothing to say) and `read(text)` gives the
value back. Fields at their default are left out of the text, and a name that is not known here is
passed over: facts may be added without a new version. What people wrote is cut after `TEXT_MAX`
characters. The classes themselves, one for each kind of row, are in `notes`.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, fields
from json.encoder import encode_basestring
from typing import Any, ClassVar, TypeVar

from oncewire.errors import JournalProblem, OncewireError
from oncewire.protocol.kinds import Kind
from oncewire.protocol.terms import Terms

D = TypeVar("D", bound="Detail")

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_decode = json.JSONDecoder().decode
TEXT_MAX = 300
"""Characters of a sentence that a row keeps: enough to know what was meant."""

_SENTENCES = frozenset({"problem", "reason", "description", "location"})
_REMEDY = "read the journal with the version of Oncewire that wrote it"


@dataclass(frozen=True, slots=True)
class Detail:
    """What all details share: written as JSON without defaults, read with checked types."""

    KIND: ClassVar[Kind]

    def write(self) -> str | None:
        """The text for the column, or None when every field has its default."""
        said = []
        for name, default, _ in _shape(type(self)):
            value = getattr(self, name)
            if value != default:
                said.append(f'"{name}":{_value(value[:TEXT_MAX] if name in _SENTENCES else value)}')
        return f"{{{','.join(said)}}}" if said else None

    @classmethod
    def read(cls: type[D], text: str | None) -> D:
        """The value that `write` was called on; anything else is a JournalProblem."""
        values = _object(text, cls.KIND)
        known: dict[str, Any] = {}
        for name, default, allowed in _shape(cls):
            value = values.get(name, default)
            if value is MISSING or (value is not default and type(value) not in allowed):
                raise JournalProblem(
                    f"the detail of a {cls.KIND.value!r} row says {name}={values.get(name)!r}",
                    remedy=_REMEDY,
                )
            known[name] = tuple(value) if type(value) is list else value
        return cls(**known)


def _value(value: Any) -> str:
    """One value as `_encode` writes it, which takes longer to begin than to write a text."""
    return encode_basestring(value) if type(value) is str else _encode(value)


def write_terms(terms: Terms) -> str:
    """The detail of a TERMS row: every value of the terms."""
    return _encode(terms.as_dict())


def read_terms(text: str | None) -> Terms:
    """The terms of a TERMS row."""
    values = _object(text, Kind.TERMS)
    try:
        return Terms.from_dict(values)
    except (OncewireError, TypeError) as error:
        raise JournalProblem(f"a terms row cannot be read: {error}", remedy=_REMEDY) from None


def _object(text: str | None, kind: Kind) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        value = _decode(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise JournalProblem(
            f"the detail of a {kind.value!r} row is not a JSON object: {text[:80]!r}",
            remedy=_REMEDY,
        )
    return value


# What JSON gives for each annotation that the classes of `notes` use.
_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "str | None": (str, type(None)),
    "int": (int,),
    "int | None": (int, type(None)),
    "Instant": (int,),
    "Instant | None": (int, type(None)),
    "bool": (bool,),
    "tuple[str, ...]": (list,),
}


_shapes: dict[type[Detail], tuple[tuple[str, Any, tuple[type, ...]], ...]] = {}


def _shape(cls: type[Detail]) -> tuple[tuple[str, Any, tuple[type, ...]], ...]:
    """(name, default or MISSING, JSON types) of each field, worked out once per class."""
    shape = _shapes.get(cls)
    if shape is None:
        shape = _shapes[cls] = tuple(
            (field.name, field.default, _JSON_TYPES[str(field.type)]) for field in fields(cls)
        )
    return shape
