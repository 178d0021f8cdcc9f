"""SequenceNumber: a message's place in its stream, and whether the stream was restarted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from oncewire.errors import InvalidValue
from oncewire.message.quick import quick

SEQUENCE_NUMBER_MAX = 4_294_967_295
"""The largest number any dialect knows (v0-078 Table 2-2); the agreed range is narrower."""


class SequenceStatus(StrEnum):
    """Whether this number belongs to the first window after a reset (slides, SEQ-13)."""

    RESET = "Reset"
    CONTINUE = "Continue"


@quick
@dataclass(frozen=True, slots=True)
class SequenceNumber:
    """A number and its status. The rm-0.78 dialect has no status: `None` there."""

    number: int
    status: SequenceStatus | None = SequenceStatus.CONTINUE

    def __post_init__(self) -> None:
        if not 0 <= self.number <= SEQUENCE_NUMBER_MAX:
            raise InvalidValue(
                f"SequenceNumber {self.number} lies outside 0..{SEQUENCE_NUMBER_MAX}",
                remedy="use a number of the agreed sequence range",
            )
