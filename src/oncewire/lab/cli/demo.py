"""`oncewire demo`: see it work, over a network that does not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.lake import by_spark, session, spark_lacks
from oncewire.entry.cli.output import Json, Listing, Problem, Report, here, typed
from oncewire.errors import OncewireError

if TYPE_CHECKING:
    from oncewire.lab.demo.play import Books, DemoResult, Plan, Progress, Watch

SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class Unread:
    """Why there are no books by Spark."""

    problem: Problem
    # Whether the demo may end well all the same.
    excused: bool
    # They were not asked for: that is no trouble.
    unwanted: bool = False


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("demo")(demo)


@output.answers
def demo(
    folder: Annotated[
        Path, typer.Argument(help="Where everything is kept; made anew by each run.")
    ] = Path("demo"),
    messages: Annotated[int, typer.Option(min=2, max=100_000, help="How many orders.")] = 200,
    seed: Annotated[int, typer.Option(help="Chooses the network's bad luck.")] = 1,
    fair: Annotated[bool, typer.Option("--fair", help="A network without faults.")] = False,
    kill: Annotated[
        bool,
        typer.Option(
            "--kill/--no-kill", help="Kill the hub, or the receiver, half-way with kill -9."
        ),
    ] = True,
    limit: Annotated[
        float, typer.Option(min=1, help="End after so many seconds, whatever was reached.")
    ] = 60.0,
    transport: Annotated[
        str, typer.Option(help="http, smtp, sftp, nats, or fallback: by mail while HTTP is down.")
    ] = "http",
    hub: Annotated[
        bool | None,
        typer.Option(
            "--hub/--no-hub",
            help="Through a hub, which is killed instead of the receiver; over http by default.",
        ),
    ] = None,
    store: Annotated[
        str,
        typer.Option(
            help="postgresql: every party on a server that is started here; postgresql://...: on "
            "one that runs."
        ),
    ] = "",
    keep: Annotated[
        bool, typer.Option("--keep", help="Go on when all is settled, until Ctrl-C.")
    ] = False,
    chaos: Annotated[
        bool, typer.Option("--chaos", help="Break something in the demo that goes on in FOLDER.")
    ] = False,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Let Spark read both stores at the end.")
    ] = True,
    json: Json = False,
) -> Report:
    """Buyer, hub and seller over a network that loses, repeats, delays and reorders; one is killed.

    A buyer sends orders to a seller through a hub, each of them a process of its own. At the end
    all journals are judged, and Spark computes the ledger and the reconciliation of both parties'
    stores. The command ends with status 0 only if every order was delivered once, in order,
    and none was lost, and if Spark finds the same. Where Spark cannot run, that is said and
    the journals' verdict stands alone; with CI=true in the environment it is a failure.

    The first lines have a link to the console of the buyer. `--keep` leaves the demo running, and
    `oncewire demo --chaos` in another terminal breaks something in it.
    """

    import asyncio
    import signal

    from oncewire.lab.demo.play import Demo, Plan, break_more
    from oncewire.lab.demo.stores import stores_called
    from oncewire.lab.demo.ways import FAIR, STORM

    # As Ctrl-C does: the handlers of the demo end with it.
    with suppress(ValueError):
        signal.signal(signal.SIGTERM, signal.default_int_handler)

    if chaos:
        break_more(folder)
        return Report({"folder": str(folder)}, summary="The demo breaks something now.")
    through = transport == "http" if hub is None else hub
    weather = FAIR if fair else STORM
    kept_in = stores_called(store)
    plan = Plan(folder, messages, seed, weather, kill, limit, transport, through, keep, kept_in)
    warming = _warm_up() if spark else None
    if not json:
        _announce(plan)

    def books_of(outcome: DemoResult) -> Report:
        if warming is not None:
            warming.join()
        books = (
            _ask_spark(outcome, json=json)
            if spark
            else Unread(Problem("Spark was left out"), excused=True, unwanted=True)
        )
        verdict, totals = outcome.verdict, outcome.verdict.totals
        facts: dict[str, Any] = {
            "sent": totals.sent,
            "delivered_once": totals.delivered_once,
            "resends": totals.resends,
            "duplicates_stopped": totals.duplicates_stopped,
            "out_of_order": verdict.count("out_of_order"),
            "twice": verdict.count("twice"),
            "lost": verdict.count("lost"),
            "violations": len(verdict.report.violations) + len(verdict.report.quarantined),
            "orders_in_directory": outcome.files,
            f"{outcome.plan.victim}_killed": outcome.killed,
            "network": dict(sorted(outcome.network.items())),
            "journal_rows": verdict.report.rows,
            "seconds": round(outcome.seconds, 1),
            "seed": outcome.plan.seed,
        }
        if kept_in.schemas:
            facts["schemas"] = list(kept_in.schemas)
        if isinstance(books, Unread):
            facts["spark"] = books.problem.problem
        else:
            facts |= {
                "spark": "read both stores",
                **output.facts_of(
                    books.ledger,
                    "ledger_violations=violations ledger_quarantined=quarantined spark_jobs "
                    "spark_tasks",
                ),
            }
        found = [*verdict.report.violations, *verdict.report.quarantined][:SHOWN_MAX]
        rows = [
            (violation.predicate, violation.kind, violation.message_id or "", violation.sentence)
            for violation in found
        ]
        fine = books.excused if isinstance(books, Unread) else books.clean(outcome.plan.messages)
        order = f"PO-{outcome.plan.messages // 2:04} -c {typed(outcome.plan.folder / 'buyer')}"
        hub, seller = (typed(outcome.plan.folder / name) for name in ("hub", "seller"))
        hints = [
            # What tells an order's whole way.
            f"oncewire show {order} --with {hub} --with {seller}"
            if outcome.plan.hub
            else f"oncewire why {order} --with {seller}",
            f"oncewire outbox -c {typed(outcome.plan.folder / 'buyer')}",
        ]
        if not kept_in.stay and not keep:
            # Its server has stopped: who wants to ask the parties leaves the demo running.
            hints = [f"oncewire demo {typed(folder)} --store postgresql --keep"]
        if not isinstance(books, Unread):
            hints.append(
                f"oncewire pipeline verify --lake {typed(outcome.plan.folder / 'lake')} --ended"
            )
        return Report(
            facts,
            (
                Listing("found", ("predicate", "kind", "message_id", "sentence"), rows),
                *_spark_listings(books),
            ),
            problems=(books.problem,) if isinstance(books, Unread) and not books.unwanted else (),
            summary=_summary(outcome, books),
            hints=(*hints, f"rm -r {typed(outcome.plan.folder)}"),
            exit_code=output.OK if outcome.good and fine else output.WRONG,
        )

    def settled(outcome: DemoResult) -> None:
        output.show(books_of(outcome), json=json)
        if not json:
            output.console().print("It goes on, with an order a second. Stop it with Ctrl-C.")

    def tell_link(link: str) -> None:
        if not json:
            output.console().print(f"console  {link}", soft_wrap=True)

    with closing(kept_in):
        with _live(quiet=json) as watch:
            outcome = asyncio.run(Demo(plan, watch).run(tell_link, settled))
        if keep:
            return Report({"folder": str(folder)}, summary="Stopped.")
        return books_of(outcome)


def _warm_up() -> Thread | None:
    """Start Spark while the orders travel; whoever needs it waits for that."""
    if spark_lacks() is not None:
        return None

    def start() -> None:
        from oncewire.pipeline.session import BRIEF, open_session, spoken

        with suppress(OncewireError), spoken():
            open_session(config=BRIEF)

    found = Thread(target=start, daemon=True)
    found.start()
    return found


def _ask_spark(outcome: DemoResult, *, json: bool) -> Books | Unread:
    """What Spark finds in both stores, or why it found nothing."""
    lacking = spark_lacks()
    if lacking is not None:
        # On a user's machine Spark may be missing; on a build server it would go unnoticed.
        return Unread(output.problem_of(lacking), excused=os.environ.get("CI") != "true")
    from oncewire.lab.demo.play import read_books
    from oncewire.pipeline.session import BRIEF

    if not json:
        output.console().print("Spark reads both stores (some seconds).")
    try:
        with session("", BRIEF, json=json) as (spark, tell):
            return read_books(spark, outcome.plan.folder, outcome.stores, tell)
    except OncewireError as error:
        return Unread(output.problem_of(error, "Spark, over both stores"), excused=False)


def _announce(plan: Plan) -> None:
    out = output.console()
    place = here(plan.folder)
    way = " through a hub" if plan.hub else ""
    out.print(f"A buyer sends {plan.messages} orders to a seller{way}. Everything is in ./{place}.")
    weather = plan.weather
    if plan.transport != "http":
        out.print(f"They go by {plan.transport}; what that needs is started and stopped here.")
    elif weather.lost:
        out.print(
            f"The network loses {weather.lost:.0%} of what is sent and "
            f"{weather.answer_lost:.0%} of the answers, repeats {weather.repeated:.0%}, "
            f"cuts {weather.cut:.0%}, and lets others overtake."
        )
    if plan.kept_in.told:
        out.print(plan.kept_in.told)
    if plan.kill:
        out.print(f"Half-way the {plan.victim} is killed with kill -9.")


# --- while it runs -----------------------------------------------------------------------------


@contextmanager
def _live(*, quiet: bool) -> Iterator[Watch]:
    """A table that changes for a terminal, a line now and then for a file."""
    if quiet:
        yield lambda _progress: None
        return
    if not sys.stdout.isatty():
        # One line whenever the phase changes, and every few seconds.
        told, told_at = "", -10.0

        def tell(progress: Progress) -> None:
            nonlocal told, told_at
            if progress.phase != told or progress.seconds - told_at >= 3:
                told, told_at = progress.phase, progress.seconds
                sys.stdout.write(f"{told_at:5.1f} s  {_line(progress)}  [{told}]\n")
                sys.stdout.flush()

        yield tell
        return
    from rich.live import Live

    with Live(console=output.console(), refresh_per_second=8) as live:
        yield lambda progress: live.update(_picture(progress))


def _line(progress: Progress) -> str:
    under_way = progress.submitted - progress.delivered
    return (
        f"sent {progress.submitted}  delivered {progress.delivered}  under way {under_way}  "
        f"resends {progress.resends}  duplicates stopped {progress.duplicates}"
    )


def _picture(progress: Progress) -> Any:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    faults = {
        name: count
        for name, count in progress.network.items()
        if count and name not in ("passed", "late")
    }
    words = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in faults.items())
    grid.add_row("orders", _line(progress))
    grid.add_row("network", words or "quiet")
    grid.add_row("now", Text(f"{progress.phase}  ({progress.seconds:.1f} s)", style="bold"))
    bar = ProgressBar(total=progress.messages, completed=progress.delivered, width=60)
    return Group(grid, bar)


# --- at the end --------------------------------------------------------------------------------


def _spark_listings(books: Books | Unread) -> tuple[Listing, ...]:
    if isinstance(books, Unread):
        return ()
    done, joined = books.ledger, books.joined
    told = ("message_id", "disagreement", "sender_says", "receiver_says", "sentence")
    different = [
        [disagreement[name] for name in told] for disagreement in joined.disagreements[:SHOWN_MAX]
    ]
    counted = (*joined.parties, joined.compared, joined.agreed, len(joined.disagreements))
    return (
        Listing(
            "ledger",
            ("verdict", "messages"),
            list(done.verdicts.items()),
            f"Ledger {by_spark(done.spark_jobs, done.spark_tasks)}",
        ),
        Listing(
            "reconciliation",
            ("party", "partner", "compared", "agreed", "disagreements"),
            [counted],
            "Reconciliation by Spark",
        ),
        Listing("disagreements", told, different),
    )


def _summary(outcome: DemoResult, books: Books | Unread) -> str:
    wanted, totals = outcome.plan.messages, outcome.verdict.totals
    if not outcome.settled:
        return (
            f"The time was up: {totals.delivered_once} of {wanted} orders were delivered. "
            "Give it longer with --limit."
        )
    if not outcome.good:
        return f"Something is wrong: replay it with --seed {outcome.plan.seed}."
    said = (
        f"All {wanted} orders were delivered once and in order: 0 lost, 0 twice, "
        f"0 out of order, in {outcome.verdict.report.rows} journal rows of both parties."
    )
    if isinstance(books, Unread):
        return f"{said} That is the journals' word alone: {books.problem.problem}."
    joined, (ours, theirs) = books.joined, books.joined.parties
    agreed = f"{ours} and {theirs} agree on {joined.agreed} of {joined.compared}"
    if books.clean(wanted):
        return f"{said} Spark's ledger says the same, and {agreed}."
    return f"The journals look good, but the ledger that Spark computed does not; {agreed}."
