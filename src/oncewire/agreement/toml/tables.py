"""Single words, flags and files of an agreement's TOML, each checked as it is taken out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from oncewire.agreement.keys import unknown_key
from oncewire.errors import AgreementProblem, InvalidValue
from oncewire.message import kinds
from oncewire.message.ids import check_id

Load: TypeAlias = Callable[[str], bytes]
"""How the caller reads a file that the agreement names; this package opens none."""

Table: TypeAlias = dict[str, Any]

STATUS = ("proposed", "agreed", "signed")
"""CPPA's words for how far a negotiation has come."""


def known_only(place: str, table: Table, known: tuple[str, ...]) -> None:
    """Refuses a key of a small table that is not one of those known."""
    for key in table:
        if key not in known:
            raise unknown_key(f"{place}.{key}", [f"{place}.{name}" for name in known])


def section(table: Table, name: str, *, needed: bool = True) -> Table:
    """The section of that name; an empty one where it may be missing."""
    raw = table.get(name)
    if raw is None and not needed:
        return {}
    if not isinstance(raw, dict):
        raise AgreementProblem(
            f"[{name}] is missing" if raw is None else f"{name} is not a section",
            key=name,
            remedy=f"write [{name}] and its keys below it",
        )
    return raw


def needed(table: Table, key: str) -> object:
    """The value of a key that must be there."""
    if key not in table:
        raise AgreementProblem(f"{key} is missing", key=key, remedy=f'write {key} = "..."')
    return table[key]


def word(key: str, raw: object) -> str:
    """A name or an address, or an error that names the key."""
    try:
        return check_id(kinds.read_id(raw), key)
    except InvalidValue as error:
        raise AgreementProblem(f"{key}: {error.problem}", key=key, remedy=error.remedy) from None


def flag(table: Table, key: str) -> bool:
    """True or false; false when it is not there."""
    raw = table.get(key, False)
    if not isinstance(raw, bool):
        raise AgreementProblem(f"{key} is not true or false", key=key, remedy="write true or false")
    return raw


def status(table: Table) -> str:
    """How far the negotiation has come; a file that people write is agreed."""
    stated = word("status", table.get("status", "agreed"))
    if stated not in STATUS:
        raise AgreementProblem(
            f"status {stated!r} is not known", key="status", remedy="one of " + ", ".join(STATUS)
        )
    return stated


def moment(table: Table, key: str) -> int | None:
    """An instant, if the key is there."""
    try:
        return kinds.read_instant(table[key]) if key in table else None
    except InvalidValue as error:
        raise AgreementProblem(f"{key}: {error.problem}", key=key, remedy=error.remedy) from None


def aliases(table: Table) -> tuple[str, ...]:
    """Other CPAIds that mean the same agreement."""
    raw = table.get("also_known_as", [])
    return tuple(word("also_known_as", item) for item in (raw if isinstance(raw, list) else [raw]))


def contents(key: str, raw: object, load: Load | None) -> list[object]:
    """The certificates a key holds: PEM text as it is, a file name as the file's bytes."""
    items = raw if isinstance(raw, list) else [raw]
    return [
        load_file(item, load, key) if isinstance(item, str) and "-----BEGIN" not in item else item
        for item in items
    ]


def load_file(name: str, load: Load | None, key: str) -> bytes:
    """The bytes of a file, through the caller's own reader."""
    if load is None:
        raise AgreementProblem(
            f"{key} names the file {name[:128]!r}, and no files can be read here",
            key=key,
            remedy="write its PEM text into the agreement",
        )
    try:
        return load(name)
    except (OSError, ValueError) as error:
        raise AgreementProblem(
            f"{key}: the file {name[:128]!r} cannot be read: {str(error)[:200]}",
            key=key,
            remedy="correct the file's name, seen from the agreement's folder",
        ) from None
