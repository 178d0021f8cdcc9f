"""`oncewire simulate`: real handlers in a world that loses, repeats, damages and crashes."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.output import Json, Listing, Report
from oncewire.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oncewire.lab.simulation.network import Options
    from oncewire.lab.simulation.run import Result
    from oncewire.lab.wild.coverage import Tally
    from oncewire.lab.wild.plan import Plan
    from oncewire.lab.wild.world import Result as WildResult


# `oncewire simulate --wild`: worlds drawn whole from their seeds, and what is left of one that
# broke a promise when everything is taken away that need not be there.

SHRUNK_MAX = 3
"""Worlds that are made small; the others are named by their seeds."""


def run_wild(
    seeds: range, jobs: int, only_messages: str, only_events: str, *, quiet: bool
) -> Report:
    """Run every seed, shrink what broke, and say what was tried."""
    from oncewire.lab.wild.coverage import Tally

    tally = Tally()
    if only_messages or only_events:
        from oncewire.lab.wild.draw import draw
        from oncewire.lab.wild.world import run

        tally.add(run(_chosen(draw(seeds[0]), only_messages, only_events)))
        return _wild_report(tally, tally.broken, seeds)
    for result in _results(seeds, jobs, quiet=quiet):
        tally.add(result)
    return _wild_report(tally, _shrunk(tally), seeds)


def run_seed(seed: int) -> WildResult:
    """Draw and run one world, in whichever process."""
    from oncewire.lab.wild.draw import draw
    from oncewire.lab.wild.world import run

    return run(draw(seed))


def _chosen(plan: Plan, messages: str, events: str) -> Plan:
    return plan.only(
        _places(messages, len(plan.orders), "messages"),
        _places(events, len(plan.events), "events"),
    )


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


def _results(seeds: range, jobs: int, *, quiet: bool) -> Iterator[WildResult]:
    """One result after the other, in the order of the seeds, with a line that tells where we
    are."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("worlds"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with ExitStack() as stack:
        progress = Progress(*columns, console=output.console(sys.stderr), disable=quiet)
        task = stack.enter_context(progress).add_task("worlds", total=len(seeds))
        found: Iterator[WildResult]
        if jobs == 1:
            found = map(run_seed, seeds)
        else:
            import multiprocessing
            from concurrent.futures import ProcessPoolExecutor

            context = multiprocessing.get_context("spawn")
            pool = stack.enter_context(ProcessPoolExecutor(jobs, mp_context=context))
            found = pool.map(run_seed, seeds, chunksize=10)
        for result in found:
            progress.advance(task)
            yield result


def _shrunk(tally: Tally) -> list[WildResult]:
    """The first worlds that broke a promise, each as small as it gets; then the rest."""
    from oncewire.lab.wild.coverage import shrink
    from oncewire.lab.wild.draw import draw

    broken = tally.broken
    first = [
        shrink(draw(result.plan.seed), result.violations[:1]) for result in broken[:SHRUNK_MAX]
    ]
    return first + broken[SHRUNK_MAX:]


def _wild_report(tally: Tally, broken: list[WildResult], seeds: range) -> Report:
    coverage = tally.coverage()
    missing = coverage.missing()
    facts: dict[str, object] = {
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
    if not broken:
        return Report(facts, summary=f"0 violations in {tally.worlds} wild world(s).")
    facts["replay"] = [result.plan.command for result in broken]
    rows = [
        (result.plan.seed, told.predicate, told.kind, told.message_id or "", told.sentence)
        for result in broken
        for told in result.violations
    ]
    listing = Listing(
        "found", ("seed", "predicate", "kind", "message_id", "sentence"), rows[:SHOWN_MAX]
    )
    summary = (
        f"{len(broken)} wild world(s) broke a promise. Replay the first with: "
        f"{broken[0].plan.command}"
    )
    return Report(facts, (listing,), summary=summary, exit_code=output.WRONG)


Crash = Annotated[float, typer.Option(min=0, max=1, help="Chance of a crash at each durable step.")]
Abandon = Annotated[float, typer.Option(min=0, max=1, help="Share of incidents met by giving up.")]
AgreementFile = Annotated[
    Path | None, typer.Option(help="Policies of this agreement file instead.")
]
Wild = Annotated[
    bool, typer.Option("--wild", help="Draw everything from the seed, agreements too.")
]
OnlyMessages = Annotated[str, typer.Option(help="With --wild: these messages of the seed alone.")]
OnlyEvents = Annotated[str, typer.Option(help="With --wild: these faults of the seed alone.")]
SHOWN_MAX = 20
"""Violations listed; the command that replays them shows the rest."""

WITH_WILD = frozenset({"seed", "seeds", "wild", "jobs", "only_messages", "only_events", "json"})
"""Options that say something of a wild world; whatever else there is, its seed draws."""

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

    Days of traffic take seconds. Any broken promise ends with status 1 and the command
    that replays the run exactly; of a wild world, with the fewest messages and faults
    that break it.
    """

    from oncewire.lab.simulation.network import Options
    from oncewire.message.instant import parse_duration

    _check_counts(context, wild=wild)
    if wild:
        return run_wild(_wanted(seed, seeds), jobs, only_messages, only_events, quiet=json)
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
        agreement=_policies(agreement, agreement_text),
        timeout=parse_duration(timeout),
        retry_interval=parse_duration(retry_interval),
        retries=retries,
        persist_duration=parse_duration(persist_duration),
        abandon=abandon,
    )
    return _report(list(_runs(options, _wanted(seed, seeds), quiet=json)), many=bool(seeds))


def _check_counts(context: typer.Context, *, wild: bool) -> None:
    """Refuse what would count for nothing."""
    from oncewire.errors import InvalidValue

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


def _policies(file: Path | None, text: str) -> str:
    from oncewire.entry.files import read_text

    return text if file is None else read_text(file, "agreement")


def _wanted(seed: int, seeds: str) -> range:
    """One seed, `A..B` with both ends, or `A:B` without the last, as Python counts."""
    from oncewire.errors import InvalidValue

    if not seeds:
        return range(seed, seed + 1)
    mark = ".." if ".." in seeds else ":"
    first, found, last = seeds.partition(mark)
    if found and first.isdigit() and last.isdigit():
        wanted = range(int(first), int(last) + (mark == ".."))
        if wanted:
            return wanted
    raise InvalidValue(f"{seeds!r} is no range of seeds", remedy="write it as 1..50 or 0:50")


def _runs(options: Options, seeds: range, *, quiet: bool) -> Iterable[Result]:
    """One result after the other, with a line that tells where we are."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from oncewire.lab.simulation.run import simulate as run_one

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=output.console(sys.stderr), disable=quiet) as progress:
        task = progress.add_task("runs", total=len(seeds))
        delivered = broken = 0
        for seed in seeds:
            result = run_one(options, seed)
            delivered += result.delivered
            broken += len(result.violations)
            progress.update(
                task, advance=1, description=f"delivered {delivered}  violations {broken}"
            )
            yield result


def _report(results: list[Result], *, many: bool) -> Report:
    faults: Counter[str] = Counter()
    for result in results:
        faults.update(result.faults)
    dicts = [result.as_dict() for result in results]

    def total(name: str) -> int:
        return sum(int(str(facts[name])) for facts in dicts)

    facts: dict[str, object] = {"seed": results[0].seed}
    if many:
        facts["seeds"] = [result.seed for result in results]
    for name in ("messages", "delivered", "notified", "lost", "duplicated", "misordered"):
        facts[name] = total(name)
    facts["violations"] = total("violations")
    facts["faults"] = {name: count for name, count in sorted(faults.items()) if " " not in name}
    facts["crash_points"] = {name: count for name, count in sorted(faults.items()) if " " in name}
    facts["transitions"] = total("transitions")
    facts["simulated_seconds"] = round(sum(run.simulated_seconds for run in results), 3)
    facts["wall_seconds"] = round(sum(run.wall_seconds for run in results), 3)
    broken = [result for result in results if result.violations]
    rows = [
        (
            result.seed,
            violation.predicate,
            violation.kind,
            violation.message_id or "",
            violation.sentence,
        )
        for result in broken
        for violation in result.violations
    ]
    listing = Listing(
        "found", ("seed", "predicate", "kind", "message_id", "sentence"), rows[:SHOWN_MAX]
    )
    if not broken:
        summary = f"0 violations in {len(results)} run(s)."
        return Report(facts, summary=summary)
    facts["replay"] = [result.replay for result in broken]
    summary = f"{len(broken)} run(s) broke a promise. Replay the first with: {broken[0].replay}"
    return Report(facts, (listing,), summary=summary, exit_code=output.WRONG)
