"""Results: what is kept of benchmarks, a line for each run and a picture of the last ones."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from oncewire import __version__
from oncewire.entry.bench.figures import Outcome
from oncewire.entry.files import make_folder
from oncewire.message.instant import Instant, format_instant

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
"""Of everything else that was found, what the history keeps."""

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
        wide = max(1.0, rate / most * (_WIDTH - _LEFT - 90))
        lines += [
            f'<text x="{_LEFT - 8}" y="{top + 15}" text-anchor="end">{escape(_short(what))}</text>',
            f'<rect x="{_LEFT}" y="{top}" width="{wide:.1f}" {_HIGH} fill="{_COLOURS[kind]}"/>',
            f'<text x="{_LEFT + wide + 5:.1f}" y="{top + 15}">{rate:,.0f}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _short(text: str) -> str:
    return text if len(text) <= 72 else text[:71] + "…"
