"""`oncewire simulate`: real handlers in a world that loses, repeats, damages and crashes."""

from __future__ import annotations

import sys
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.output import Json, Listing, Report
from oncewire.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oncewire.lab.simulation.plan import Options
    from oncewire.lab.simulation.world import Result, Tally

SHRUNK_MAX = 3
"""Wild worlds that are made small; the others are named by their seeds."""
SHOWN_MAX = 20
"""Violations listed; the command that replays them shows the rest."""

Crash = Annotated[float, typer.Option(min=0, max=1, help="Chance of a crash at each durable step.")]
Abandon = Annotated[
    float, typer.Option(min=0, max=1, help="0: incidents are resumed; 1: messages given up.")
]
AgreementFile = Annotated[
    Path | None, typer.Option(help="Policies of this agreement file instead.")
]
Wild = Annotated[
    bool, typer.Option("--wild", help="Draw everything from the seed, agreements too.")
]
OnlyMessages = Annotated[str, typer.Option(help="With --wild: these messages of the seed alone.")]
OnlyEvents = Annotated[str, typer.Option(help="With --wild: these faults of the seed alone.")]
WITH_WILD = frozenset({"seed", "seeds", "wild", "jobs", "only_messages", "only_events", "json"})
"""Options that a wild world heeds; its seed draws what the others say."""

ONLY_WILD = frozenset({"jobs", "only_messages", "only_events"})


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("simulate")(simulate)


@output.answers
def simulate(
    context: typer.Context,
    seed: Annotated[int, typer.Option(help="One run; the same seed gives the same run.")] = 1,
    seeds: Annotated[str, typer.Option(help="Many runs: A..B, both included, or A:B.")] = "",
    wild: Wild = False,
    jobs: Annotated[int, typer.Option(min=1, help="With --wild: processes at work.")] = 1,
    only_messages: OnlyMessages = "",
    only_events: OnlyEvents = "",
    messages: Annotated[int, typer.Option(min=1, help="Messages the buyer sends.")] = 200,
    hops: Annotated[int, typer.Option(min=1, help="1: no hub; 3: two hubs between.")] = 1,
    loss: Annotated[float, typer.Option(min=0, max=1, help="Share of transfers lost.")] = 0.2,
    duplicate: Annotated[float, typer.Option(min=0, max=1, help="Share repeated.")] = 0.1,
    reorder: Annotated[float, typer.Option(min=0, max=1, help="Share much delayed.")] = 0.2,
    corrupt: Annotated[float, typer.Option(min=0, max=1, help="Share damaged.")] = 0.01,
    crash: Crash = 0.005,
    partition: Annotated[float, typer.Option(min=0, max=1, help="Chance of a cut link.")] = 0.002,
    disk_full: Annotated[float, typer.Option(min=0, max=1, help="Chance of a full disk.")] = 0.002,
    window: Annotated[int, typer.Option(min=1, help="W of the sliding window.")] = 8,
    flow: Annotated[str, typer.Option(help="window, stop-and-wait or unrestricted.")] = "window",
    profile: Annotated[str, typer.Option(help="Profile of the agreements.")] = "window",
    hop_mode: Annotated[str, typer.Option(help="What hubs promise.")] = "store_and_forward",
    timeout: Annotated[str, typer.Option(help="Wait before the first resend.")] = "PT5S",
    retry_interval: Annotated[str, typer.Option(help="Wait between resends.")] = "PT5S",
    retries: Annotated[int, typer.Option(min=0, help="Resends before giving up.")] = 8,
    persist_duration: Annotated[str, typer.Option(help="How long ids are kept.")] = "PT2H",
    abandon: Abandon = 0.0,
    agreement: AgreementFile = None,
    agreement_text: Annotated[str, typer.Option(hidden=True)] = "",
    json: Json = False,
) -> Report:
    """Run handlers over a simulated network, disk and clock, and check every promise.

    Days of traffic take seconds. Any broken promise ends with status 1 and the command that replays
    the run exactly; of a wild world, with the fewest messages and faults that break it.
    """

    from oncewire.entry.files import read_text
    from oncewire.lab.simulation.plan import Options, faults_of
    from oncewire.message.instant import parse_duration

    _refuse_idle(context, wild=wild)
    wanted = _wanted(seed, seeds)
    if wild:
        return _run_wild(wanted, jobs, only_messages, only_events, quiet=json)
    options = Options(
        messages=messages,
        hops=hops,
        loss=loss,
        duplicate=duplicate,
        reorder=reorder,
        corrupt=corrupt,
        crash=crash,
        partition=partition,
        disk_full=disk_full,
        window=window,
        flow=flow,
        profile=profile,
        hop_mode=hop_mode,
        agreement=agreement_text if agreement is None else read_text(agreement, "agreement"),
        timeout=parse_duration(timeout),
        retry_interval=parse_duration(retry_interval),
        retries=retries,
        persist_duration=parse_duration(persist_duration),
        abandon=abandon,
    )
    began = time.perf_counter()
    results = list(_results(partial(run_options, options), wanted, quiet=json))
    happened: Counter[str] = Counter()
    for result in results:
        happened.update(result.happened)
    broken = [result for result in results if result.violations]
    kinds = Counter(found.kind for result in broken for found in result.violations)
    facts: dict[str, object] = {"seed": wanted[0]}
    if seeds:
        facts["seeds"] = list(wanted)
    facts |= {
        "messages": sum(result.messages for result in results),
        "delivered": sum(result.delivered for result in results),
        "notified": sum(result.notified for result in results),
        "lost": kinds["lost"],
        "duplicated": kinds["twice"],
        "misordered": kinds["out_of_order"],
        "violations": kinds.total(),
        "faults": faults_of(happened),
        "crash_points": {
            name: count for name, count in sorted(happened.items()) if name.startswith("crash ")
        },
        "transitions": sum(result.transitions for result in results),
        "simulated_seconds": round(sum(result.simulated_seconds for result in results), 3),
        "wall_seconds": round(time.perf_counter() - began, 3),
    }
    return _ended(facts, broken, len(results), "run(s)")


def _refuse_idle(context: typer.Context, *, wild: bool) -> None:
    """Refuse options that would have no effect."""
    given = {
        name
        for name in context.params
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    }
    idle = sorted(given - WITH_WILD if wild else given & ONLY_WILD)
    if not idle:
        return
    named = ", ".join("--" + name.replace("_", "-") for name in idle)
    if wild:
        raise InvalidValue(
            f"{named} would count for nothing: the seed draws it",
            remedy="leave it away, or say it without --wild",
        )
    raise InvalidValue(
        f"{named} would count for nothing: it is about wild worlds",
        remedy="say --wild too; --messages says how many there are",
    )


def _wanted(seed: int, seeds: str) -> range:
    """One seed, `A..B` with both ends, or `A:B` without the last, as Python counts."""
    if not seeds:
        return range(seed, seed + 1)
    mark = ".." if ".." in seeds else ":"
    first, found, last = seeds.partition(mark)
    if found and first.isdigit() and last.isdigit():
        wanted = range(int(first), int(last) + (mark == ".."))
        if wanted:
            return wanted
    raise InvalidValue(f"{seeds!r} is no range of seeds", remedy="write it as 1..50 or 0:50")


def run_seed(seed: int) -> Result:
    """Draw and run one wild world."""
    from oncewire.lab.simulation.draw import draw
    from oncewire.lab.simulation.world import run

    return run(draw(seed))


def run_options(options: Options, seed: int) -> Result:
    """Run the world of these options and this seed."""
    from oncewire.lab.simulation.plan import plan_of
    from oncewire.lab.simulation.world import run

    return run(plan_of(options, seed))


def _results(
    run_one: Callable[[int], Result], seeds: range, jobs: int = 1, *, quiet: bool
) -> Iterator[Result]:
    """One result after the other, in the order of the seeds, with a line of progress."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with ExitStack() as stack:
        progress = Progress(*columns, console=output.console(sys.stderr), disable=quiet)
        task = stack.enter_context(progress).add_task("worlds", total=len(seeds))
        found: Iterator[Result]
        if jobs == 1:
            found = map(run_one, seeds)
        else:
            import multiprocessing
            from concurrent.futures import ProcessPoolExecutor

            context = multiprocessing.get_context("spawn")
            pool = stack.enter_context(ProcessPoolExecutor(jobs, mp_context=context))
            found = pool.map(run_one, seeds, chunksize=10)
        delivered = broken = 0
        for result in found:
            delivered += result.delivered
            broken += len(result.violations)
            description = f"delivered {delivered}  violations {broken}"
            progress.update(task, advance=1, description=description)
            yield result


def _ended(facts: dict[str, object], broken: list[Result], worlds: int, what: str) -> Report:
    """The facts, and where a promise was broken the violations and how to see them again."""
    if not broken:
        return Report(facts, summary=f"0 violations in {worlds} {what}.")
    facts["replay"] = [result.plan.command for result in broken]
    rows = [
        (result.plan.seed, found.predicate, found.kind, found.message_id or "", found.sentence)
        for result in broken
        for found in result.violations
    ]
    columns = ("seed", "predicate", "kind", "message_id", "sentence")
    summary = (
        f"{len(broken)} {what} broke a promise. Replay the first with: {broken[0].plan.command}"
    )
    listing = Listing("found", columns, rows[:SHOWN_MAX])
    return Report(facts, (listing,), summary=summary, exit_code=output.WRONG)


# --- wild worlds --------------------------------------------------------------------------------


def _run_wild(
    seeds: range, jobs: int, only_messages: str, only_events: str, *, quiet: bool
) -> Report:
    """Run every seed, shrink the first worlds that broke a promise, and say what was tried."""
    from oncewire.lab.simulation.draw import draw
    from oncewire.lab.simulation.world import Tally, run, shrink

    tally = Tally()
    if only_messages or only_events:
        plan = draw(seeds[0])
        orders = _places(only_messages, len(plan.orders), "messages")
        tally.add(run(plan.only(orders, _places(only_events, len(plan.events), "events"))))
        return _ended(_wild_facts(tally, seeds), tally.broken, 1, "wild world(s)")
    for result in _results(run_seed, seeds, jobs, quiet=quiet):
        tally.add(result)
    broken = tally.broken
    first = [
        shrink(draw(result.plan.seed), result.violations[:1]) for result in broken[:SHRUNK_MAX]
    ]
    told = first + broken[SHRUNK_MAX:]
    return _ended(_wild_facts(tally, seeds), told, tally.worlds, "wild world(s)")


def _places(text: str, count: int, what: str) -> tuple[int, ...]:
    """`3,5`; nothing said means all of them, `none` means none."""
    if not text:
        return tuple(range(count))
    if text == "none":
        return ()
    words = text.split(",")
    if not all(word.isdigit() and int(word) < count for word in words):
        raise InvalidValue(
            f"{text!r} does not choose among the {count} {what} of this seed",
            remedy=f"give places from 0 to {count - 1}, with commas, or none",
        )
    return tuple(sorted({int(word) for word in words}))


def _wild_facts(tally: Tally, seeds: range) -> dict[str, object]:
    coverage = tally.coverage()
    missing = coverage.missing()
    return {
        "seeds": f"{seeds[0]}..{seeds[-1]}",
        "worlds": tally.worlds,
        "messages": tally.messages,
        "delivered": tally.delivered,
        "notified": tally.notified,
        "violations": sum(len(result.violations) for result in tally.broken),
        "options": dict(sorted(tally.options.items())),
        "happened": dict(sorted(tally.happened.items())),
        "terms": coverage.terms,
        "values": coverage.values,
        "pairs": len(coverage.covered),
        "pairs_missing": len(missing),
        "pairs_contradicting": len(coverage.conceivable - coverage.covered) - len(missing),
        "simulated_seconds": round(tally.simulated_seconds, 3),
        "cpu_seconds": round(tally.cpu_seconds, 3),
    }
