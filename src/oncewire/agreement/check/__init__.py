"""What is wrong or dangerous in an agreement, as the judges in `dangers` and `exposure` say it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from typing import NamedTuple


class Severity(StrEnum):
    """How bad it is, worst first."""

    ERROR = "error"
    DANGER = "danger"
    HINT = "hint"


class Danger(NamedTuple):
    """One judge's word: how bad, which key, what is the matter, what to do."""

    severity: Severity
    key: str
    sentence: str
    fix: str


error = partial(Danger, Severity.ERROR)
danger = partial(Danger, Severity.DANGER)
hint = partial(Danger, Severity.HINT)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to say about an agreement."""

    severity: Severity
    key: str
    sentence: str
    fix: str
    cpa_id: str = ""
    # The directions and actions it concerns; none means the whole agreement.
    scopes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """The finding as JSON has it."""
        plain: dict[str, object] = asdict(self)
        return plain | {"severity": self.severity.value, "scopes": list(self.scopes)}
