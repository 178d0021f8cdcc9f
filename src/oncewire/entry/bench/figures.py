"""Figures: what a benchmark found, each beside its limit, with how far its repeats lie apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    seconds: float = 3.0
    repeats: int = 3
    # Whether others that do a similar job are measured too, where they are installed.
    peers: bool = True
    # Messages outstanding at a restart, or kept where growth is measured.
    messages: int = 100_000
    # Whether a party as `oncewire init` makes it is measured beside the first configuration.
    default: bool = True
    # Hears of each stage before it begins.
    tell: Callable[[str], None] = field(default=lambda _stage: None, compare=False)

    @property
    def warming(self) -> float:
        """Seconds of each work before it counts."""
        return min(1.0, self.seconds / 3)


@dataclass(frozen=True, slots=True)
class Figure:
    """Rates of the repeats, and the limit as it was beside each of them."""

    what: str
    rates: tuple[float, ...]
    limits: tuple[float, ...]
    # Whatever else was found, by its name; what nobody measured is not there.
    more: dict[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """In a second; the one in the middle."""
        return median(self.rates)

    @property
    def ratios(self) -> tuple[float, ...]:
        """Of each repeat to the limit beside it."""
        return tuple(
            rate / limit for rate, limit in zip(self.rates, self.limits, strict=True) if limit
        )

    @property
    def ratio(self) -> float:
        """To the limit."""
        return median(self.ratios) if self.ratios else 0.0

    @property
    def spread(self) -> str:
        """The smallest and the largest ratio."""
        found = self.ratios or (0.0,)
        return f"{min(found):.3g}-{max(found):.3g}"


@dataclass(frozen=True, slots=True)
class PeerFigure:
    """Another product in the same run, or why it is not there."""

    name: str
    rates: tuple[float, ...] = ()
    # What it does, in words; or why it was not measured.
    remark: str = ""

    @property
    def rate(self) -> float | None:
        """Messages in a second."""
        return median(self.rates) if self.rates else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One benchmark; its first figure is the one it is known by."""

    name: str
    # What is counted, and what the limit is.
    unit: str
    limit: str
    figures: tuple[Figure, ...]
    # How a party as `oncewire init` makes it does, where that is another figure.
    default: Figure | None = None
    peers: tuple[PeerFigure, ...] = ()
    # Sentences of what else was found.
    findings: tuple[str, ...] = ()
    # Messages in a second, where the figures count something else.
    messages: float | None = None

    @property
    def messages_per_second(self) -> float:
        """Of the first figure."""
        return self.figures[0].rate if self.messages is None else self.messages
