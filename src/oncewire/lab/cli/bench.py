"""`oncewire bench`: how fast it is on this machine, beside what this machine can do at most."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.output import Listing, Report, here
from oncewire.errors import InvalidValue

if TYPE_CHECKING:
    from oncewire.lab.bench.figures import Configuration, Figure, Outcome, Plan


class Benchmark(enum.StrEnum):
    """The benchmarks there are."""

    EXCHANGE = "exchange"
    WINDOW = "window"
    CODEC = "codec"
    SIGNATURE = "signature"
    STORE = "store"
    RESTART = "restart"
    GROWTH = "growth"
    DOCUMENT = "document"


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("bench")(bench)


Seconds = Annotated[float, typer.Option(min=0.01, help="How long each measurement lasts.")]
Repeats = Annotated[int, typer.Option(min=1, max=100, help="How often each is repeated.")]
InFlight = Annotated[
    list[int] | None, typer.Option(help="Messages under way at once, 1 to 256; may be repeated.")
]
Size = Annotated[list[int] | None, typer.Option(help="Bytes of a document; may be repeated.")]
OwnConnection = Annotated[
    bool, typer.Option("--own-connection", help="Acknowledge on a connection of its own.")
]
Ordered = Annotated[bool, typer.Option("--ordered", help="Deliver in the order of sending.")]
Signed = Annotated[bool, typer.Option("--signed", help="Sign messages and answers.")]
Tls = Annotated[bool, typer.Option("--tls", help="Travel over TLS, both with certificates.")]
ControlSocket = Annotated[bool, typer.Option("--control-socket", help="Push from another program.")]
Taken = Annotated[
    bool, typer.Option("--taken", help="The receiver's program takes and confirms them.")
]
Every = Annotated[
    bool, typer.Option("--every", help="Every one of these beside the first configuration.")
]
Messages = Annotated[
    int, typer.Option(min=1, max=10_000_000, help="Messages outstanding at a restart, or kept.")
]
Peers = Annotated[
    bool, typer.Option("--peers/--no-peers", help="Measure others too, where installed.")
]
Default = Annotated[
    bool, typer.Option("--default/--no-default", help="Measure the default configuration too.")
]
Results = Annotated[Path | None, typer.Option(help="Keep a history and pictures in this folder.")]


@output.answers
def bench(
    benchmark: Annotated[
        Benchmark | None, typer.Argument(help="Which one; all of them, if none is named.")
    ] = None,
    seconds: Seconds = 3.0,
    repeats: Repeats = 3,
    in_flight: InFlight = None,
    size: Size = None,
    own_connection: OwnConnection = False,
    ordered: Ordered = False,
    signed: Signed = False,
    tls: Tls = False,
    control_socket: ControlSocket = False,
    taken: Taken = False,
    every: Every = False,
    messages: Messages = 100_000,
    peers: Peers = True,
    default: Default = True,
    results: Results = None,
) -> Report:
    """Measure speed, each figure as a ratio to its limit in the same run.

    Two handlers, each a process of its own, exchange documents on this machine; the limit is the
    same bytes through a thin HTTP stack and one commit on each side. Beside every figure stands
    that of two parties as `oncewire init` makes them, with TLS and signatures.
    """

    from oncewire.lab.bench.figures import Configuration, Plan

    base = Configuration(
        in_reply=not own_connection,
        ordered=ordered,
        signed=signed,
        tls=tls,
        by_socket=control_socket,
        taken=taken,
    )
    configurations = _configurations(base, in_flight or [64], size or [2048], every=every)
    plan = Plan(seconds, repeats, peers, messages, default, _tell)
    chosen = list(Benchmark) if benchmark is None else [benchmark]
    found = []
    for each in chosen:
        _tell(each.value)
        found.append(_run(each, configurations, plan))
    saved: tuple[str, ...] = ()
    if results is not None:
        from oncewire.handler.world import RealWorld
        from oncewire.lab.bench.figures import save

        files = save(results, found, RealWorld().now())
        saved = (f"look at {', '.join(here(file) for file in files)}",)
    reports = tuple(_report(each) for each in found)
    brief = Listing("table", ("what", "limit", "ours", "ratio", "it_means"), _table(found))
    if len(reports) == 1:
        return replace(reports[0], hints=saved, brief=brief)
    return Report(parts=("benchmarks", reports), hints=saved, brief=brief)


def _tell(stage: str) -> None:
    """Say what is measured now, for it takes long; on stderr, beside the figures."""
    sys.stderr.write(f"measuring: {stage}\n")
    sys.stderr.flush()


def _configurations(
    base: Configuration, in_flight: Sequence[int], sizes: Sequence[int], *, every: bool
) -> list[Configuration]:
    from oncewire.lab.bench.figures import IN_FLIGHT_MAX

    for count in in_flight:
        if not 1 <= count <= IN_FLIGHT_MAX:
            raise InvalidValue(
                f"{count} in flight cannot be measured", remedy=f"choose 1 to {IN_FLIGHT_MAX}"
            )
    found = [replace(base, in_flight=count, size=size) for size in sizes for count in in_flight]
    if every:
        first = found[0]
        found += [replace(first, in_flight=count) for count in (1, 16, 256)]
        found += [replace(first, **change) for change in _CHANGES]
    return list(dict.fromkeys(found))


_CHANGES: tuple[dict[str, Any], ...] = (
    {"size": 20_480},
    {"in_reply": False},
    {"ordered": True},
    {"signed": True},
    {"tls": True},
    {"by_socket": True},
    {"taken": True},
)
"""Changes of the configuration; each is measured alone, beside the first configuration."""


def _run(which: Benchmark, configurations: list[Configuration], plan: Plan) -> Outcome:
    """Import and run one benchmark; some need packages that others do not."""
    from oncewire.lab.bench import codec, document, exchange, growth, store

    first = configurations[0]
    works: dict[Benchmark, Callable[[], Outcome]] = {
        Benchmark.EXCHANGE: lambda: exchange.run(configurations, plan),
        Benchmark.WINDOW: lambda: growth.run_window(first, plan),
        Benchmark.CODEC: lambda: codec.run(plan),
        Benchmark.SIGNATURE: lambda: codec.run_signature(plan),
        Benchmark.STORE: lambda: store.run(plan),
        Benchmark.RESTART: lambda: growth.run_restart(first, plan),
        Benchmark.GROWTH: lambda: growth.run(first, plan),
        Benchmark.DOCUMENT: lambda: document.run(first, plan, document.size_of(first)),
    }
    return works[which]()


def _table(outcomes: Sequence[Outcome]) -> list[tuple[object, ...]]:
    """Every figure and every peer in a line: how many a second the limit does, how many we do."""
    rows: list[tuple[object, ...]] = []
    for outcome in outcomes:
        for figure in (*outcome.figures, *([outcome.default] if outcome.default else [])):
            limit = median(figure.limits) if figure.limits else None
            default = "default: " if figure is outcome.default else ""
            what = f"{outcome.name}: {default}{figure.what}"
            means = "there is no limit beside it"
            if figure.ratio >= 1:
                means = "as quick as the limit"
            elif figure.ratio > 0:
                means = f"takes {1 / figure.ratio:.3g} times as long as the limit"
            ratio = f"{figure.ratio:.3g}" if limit else None
            rows.append((what, _rate(limit), _rate(figure.rate), ratio, means))
        ours = outcome.figures[0].rate
        for peer in outcome.peers:
            ratio = f"{ours / peer.rate:.3g}" if peer.rate else None
            means = "ours to that peer" if peer.rate else peer.remark
            rows.append((f"peer: {peer.name}", _rate(peer.rate), _rate(ours), ratio, means))
    return rows


def _rate(rate: float | None) -> str | None:
    return None if rate is None else f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"


def _report(outcome: Outcome) -> Report:
    from oncewire.lab.bench.figures import machine

    first = outcome.figures[0]
    figures = [*outcome.figures, *([outcome.default] if outcome.default else [])]
    names = list(dict.fromkeys(name for figure in figures for name in figure.more))
    facts = {
        "benchmark": outcome.name,
        "unit": f"{outcome.unit} in a second",
        "limit": outcome.limit,
        "machine": machine(),
        "messages_per_second": round(outcome.messages_per_second, 1),
        "ratio_to_limit": round(first.ratio, 4),
        "default_configuration": None
        if outcome.default is None
        else {
            "messages_per_second": round(outcome.default.rate, 1),
            "ratio_to_limit": round(outcome.default.ratio, 4),
        },
    }
    rows = [_row(figure, names, default=figure is outcome.default) for figure in figures]
    listings = [Listing("figures", ("what", "rate", "limit", "ratio", "spread", *names), rows)]
    peers: list[tuple[object, ...]] = [
        (
            peer.name,
            peer.rate if peer.rate is None else round(peer.rate, 1),
            round(first.rate / peer.rate, 2) if peer.rate else None,
            peer.remark,
        )
        for peer in outcome.peers
    ]
    columns = ("name", "messages_per_second", "ours_to_it", "remark")
    listings.append(Listing("peers", columns, peers, "in the same run"))
    return Report(facts, tuple(listings), summary="; ".join(outcome.findings))


def _row(figure: Figure, names: list[str], *, default: bool) -> tuple[object, ...]:
    limit = sum(figure.limits) / len(figure.limits) if figure.limits else None
    return (
        f"default: {figure.what}" if default else figure.what,
        round(figure.rate, 1),
        None if limit is None else round(limit, 1),
        round(figure.ratio, 4),
        figure.spread,
        *(figure.more.get(name) for name in names),
    )
