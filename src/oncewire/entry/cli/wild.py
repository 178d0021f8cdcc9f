"""`oncewire simulate --wild`: worlds drawn whole from their seeds, and what is left of one that
broke a promise when everything is taken away that need not be there."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from oncewire.entry.cli import output
from oncewire.entry.cli.output import Listing, Report
from oncewire.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncewire.simulation.wild.plan import Plan
    from oncewire.simulation.wild.tally import Tally
    from oncewire.simulation.wild.world import Result

SHRUNK_MAX = 3
"""Worlds that are made small; the others are named by their seeds."""

SHOWN_MAX = 20


def run_wild(
    seeds: range, jobs: int, only_messages: str, only_events: str, *, quiet: bool
) -> Report:
    """Run every seed, shrink what broke, and say what was tried."""
    from oncewire.simulation.wild.tally import Tally

    tally = Tally()
    if only_messages or only_events:
        from oncewire.simulation.wild.draw import draw
        from oncewire.simulation.wild.world import run

        tally.add(run(_chosen(draw(seeds[0]), only_messages, only_events)))
        return _report(tally, tally.broken, seeds)
    for result in _results(seeds, jobs, quiet=quiet):
        tally.add(result)
    return _report(tally, _shrunk(tally), seeds)


def run_seed(seed: int) -> Result:
    """Draw and run one world, in whichever process."""
    from oncewire.simulation.wild.draw import draw
    from oncewire.simulation.wild.world import run

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


def _results(seeds: range, jobs: int, *, quiet: bool) -> Iterator[Result]:
    """One result after the other, in the order of the seeds, with a line that tells where we
    are."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("worlds"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with ExitStack() as stack:
        progress = Progress(*columns, console=output.console(sys.stderr), disable=quiet)
        task = stack.enter_context(progress).add_task("worlds", total=len(seeds))
        found: Iterator[Result]
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


def _shrunk(tally: Tally) -> list[Result]:
    """The first worlds that broke a promise, each as small as it gets; then the rest."""
    from oncewire.simulation.wild.draw import draw
    from oncewire.simulation.wild.shrink import shrink

    broken = tally.broken
    first = [
        shrink(draw(result.plan.seed), result.violations[:1]) for result in broken[:SHRUNK_MAX]
    ]
    return first + broken[SHRUNK_MAX:]


def _report(tally: Tally, broken: list[Result], seeds: range) -> Report:
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
