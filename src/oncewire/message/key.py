"""NamedKey: one name in a file that people write, with the kind of its value.

Agreements and settings are tables of keys. A value that is not of its kind is refused with the
key's name, and a name that nobody knows with the nearest one that is known.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from oncewire.errors import InvalidValue, OncewireError
from oncewire.message.kinds import ValueKind


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
    """What to do about a name that nobody knows."""
    close = nearest(name, known)
    return f"did you mean {close}?" if close else otherwise
