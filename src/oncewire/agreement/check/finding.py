"""What `agreement check` has to say: single dangers, and findings made of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import NamedTuple

from oncewire.agreement.agreement import Agreement


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


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The findings about one file, and the agreement if it could be read at all."""

    agreement: Agreement | None
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether the agreement can be used: no finding is an error."""
        return not any(finding.severity is Severity.ERROR for finding in self.findings)
