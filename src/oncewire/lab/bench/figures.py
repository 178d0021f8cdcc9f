"""Figures: what a benchmark found, each beside its limit, with how far its repeats lie apart."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any
from xml.sax.saxutils import escape

from oncewire import __version__
from oncewire.entry.files import make_folder
from oncewire.message.instant import Instant, format_instant


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
    # Other figures by name, those that were measured.
    more: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of_times(cls, what: str, times: Sequence[float], limits: Sequence[float]) -> Figure:
        """Of work that is measured in microseconds, as its limit is."""
        more = {"us": round(min(times), 1), "limit_us": round(min(limits), 1)}
        rates, of_limit = ([1e6 / time for time in each] for each in (times, limits))
        return cls(what, tuple(rates), tuple(of_limit), more)

    @property
    def rate(self) -> float:
        """Messages a second: the median of the repeats."""
        return median(self.rates)

    @property
    def ratios(self) -> tuple[float, ...]:
        """The rate of each repeat, divided by the limit measured beside it."""
        return tuple(
            rate / limit for rate, limit in zip(self.rates, self.limits, strict=True) if limit
        )

    @property
    def ratio(self) -> float:
        """The median of `ratios`; 0.0 where no limit was measured."""
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
        """Messages a second."""
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
        """The rate of the first figure."""
        return self.figures[0].rate if self.messages is None else self.messages


HISTORY = "history.jsonl"
HISTORY_MAX = 200
"""Runs that are remembered; the oldest goes first."""

_KEPT = (
    "sender_us",
    "receiver_us",
    "statements",
    "rows",
    "fsyncs",
    "us",
    "times_stop_and_wait",
    "retries",
)
"""Further facts that the history keeps."""

_WIDTH, _BAR, _LEFT, _TOP = 900, 22, 430, 60
_FONT = 'font-family="sans-serif" font-size="11"'
_HIGH = f'height="{_BAR}"'
_COLOURS = {"ours": "#2a6f97", "default": "#61a5c2", "limit": "#c9c9c9", "peer": "#bc6c25"}


def save(folder: Path, outcomes: Sequence[Outcome], now: Instant) -> list[Path]:
    """Add a line to the history and draw each benchmark; the files that were written."""
    make_folder(folder)
    files = [folder / HISTORY]
    known = files[0].read_text(encoding="utf-8").splitlines() if files[0].is_file() else []
    known += [json.dumps(line_of(outcome, now), ensure_ascii=False) for outcome in outcomes]
    files[0].write_text("\n".join(known[-HISTORY_MAX:]) + "\n", encoding="utf-8")
    for outcome in outcomes:
        files.append(folder / f"{outcome.name}.svg")
        files[-1].write_text(picture(outcome), encoding="utf-8")
    return files


def line_of(outcome: Outcome, now: Instant) -> dict[str, Any]:
    """What the history keeps of a benchmark."""
    first = outcome.figures[0]
    return {
        "at": format_instant(now),
        "version": __version__,
        "machine": machine(),
        "benchmark": outcome.name,
        "what": first.what,
        "messages_per_second": round(outcome.messages_per_second, 1),
        "ratio_to_limit": round(first.ratio, 4),
        **{name: first.more[name] for name in _KEPT if name in first.more},
        "default_ratio": None if outcome.default is None else round(outcome.default.ratio, 4),
        "peers": {peer.name: round(peer.rate, 1) for peer in outcome.peers if peer.rate},
    }


def machine() -> dict[str, Any]:
    """What the figures were taken on, and how busy that was: of a busy machine, only processor
    time can be compared."""
    return {
        "kind": platform.machine(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }


def picture(outcome: Outcome) -> str:
    """Bars of everything that was measured in one run, as SVG."""
    first = outcome.figures[0]
    bars = [("limit", "limit", sum(first.limits) / len(first.limits))]
    bars += [("ours", figure.what, figure.rate) for figure in outcome.figures]
    if outcome.default is not None:
        bars.append(("default", f"default: {outcome.default.what}", outcome.default.rate))
    bars += [("peer", peer.name, peer.rate) for peer in outcome.peers if peer.rate is not None]
    most = max(rate for _, _, rate in bars) or 1.0
    height = _TOP + len(bars) * (_BAR + 6) + 10
    title = f"{outcome.name}: {outcome.unit} in a second"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" {_FONT}>',
        f'<text x="10" y="24" font-size="16">{escape(title)}</text>',
        f'<text x="10" y="44" fill="#666">limit: {escape(outcome.limit)}</text>',
    ]
    for place, (kind, what, rate) in enumerate(bars):
        top = _TOP + place * (_BAR + 6)
        name = escape(what if len(what) <= 72 else what[:71] + "…")
        wide = max(1.0, rate / most * (_WIDTH - _LEFT - 90))
        lines += [
            f'<text x="{_LEFT - 8}" y="{top + 15}" text-anchor="end">{name}</text>',
            f'<rect x="{_LEFT}" y="{top}" width="{wide:.1f}" {_HIGH} fill="{_COLOURS[kind]}"/>',
            f'<text x="{_LEFT + wide + 5:.1f}" y="{top + 15}">{rate:,.0f}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


IN_FLIGHT_MAX = 256


@dataclass(frozen=True, slots=True)
class Configuration:
    """How two parties of a benchmark talk; every figure says its own."""

    # The acknowledgement comes in the reply to the message, or on a connection of its own.
    in_reply: bool = True
    ordered: bool = False
    signed: bool = False
    tls: bool = False
    # Bytes of the document.
    size: int = 2048
    in_flight: int = 64
    # Whether the documents come from another program, through the control socket.
    by_socket: bool = False
    # Whether the receiver's program takes and confirms them while others arrive.
    taken: bool = False
    # Messages that may be under way on an ordered channel; 1 is stop-and-wait.
    window: int = 64

    @property
    def default(self) -> Configuration:
        """These documents between two parties as `oncewire init` and `partner add` make them."""
        return replace(self, in_reply=False, ordered=False, signed=True, tls=True)

    def __post_init__(self) -> None:
        # The standard answers ordered messages asynchronously (§9.1.2).
        if self.ordered and self.in_reply:
            object.__setattr__(self, "in_reply", False)

    def agreed(self) -> dict[str, str]:
        """What the agreement says of it, beyond its profile."""
        said = {
            # Long: what is measured is the exchange, not its repetition. But an endpoint that is
            # late sends strangers away, and who does not sign is one.
            "delivery.timeout": '"PT10S"',
            "delivery.retry_interval": '"PT10S"',
            "delivery.retries": "30",
        }
        if self.in_reply:
            said["sync.mode"] = '"mshSignalsOnly"'
        if self.ordered:
            stop_and_wait = self.window == 1
            said["flow.mode"] = '"stop-and-wait"' if stop_and_wait else '"window"'
            if not stop_and_wait:
                said["flow.window"] = str(self.window)
        return said

    def words(self) -> str:
        """The configuration in words, for people."""
        said = [
            "TLS" if self.tls else "no TLS",
            "signed" if self.signed else "unsigned",
            "ordered" if self.ordered else "unordered",
            f"{self.size:,} bytes",
            f"{self.in_flight} in flight",
            "acknowledged in the reply" if self.in_reply else "acknowledged on its own connection",
        ]
        if self.ordered:
            said.append("stop-and-wait" if self.window == 1 else f"window {self.window}")
        if self.by_socket:
            said.append("through the control socket")
        if self.taken:
            said.append("taken and confirmed")
        return ", ".join(said)
