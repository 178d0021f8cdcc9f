"""`oncewire pipeline`: the journal as tables on Spark. Spark is imported only when one runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.lake_place import (
    BOOK,
    LakePath,
    Stores,
    archive_at,
    book_at,
    lake_at,
    need_lake,
)
from oncewire.entry.cli.output import Json, Listing, Report
from oncewire.entry.cli.pipeline_proof import prove, sign
from oncewire.entry.cli.pipeline_reports import (
    report_of_books,
    report_of_check,
    report_of_run,
    shown,
)
from oncewire.entry.cli.spark import spark_lacks
from oncewire.entry.number import number_of
from oncewire.errors import InvalidValue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncewire.pipeline.intake import Progress

Master = Annotated[
    str, typer.Option(help="Spark's master, or a server: sc://HOST; otherwise `local[2]`.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--conf", help="A Spark setting, key=value; may be repeated.")
]
Ended = Annotated[
    bool, typer.Option("--ended", help="The books are closed: what is under way now is lost.")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(
        name="pipeline",
        help="The journal as tables on Spark: ledger, checks, reconciliation.",
        no_args_is_help=True,
    )
    commands = (run, stream, verify, reconcile, prove, sign, compact, sql, report, generate, shell)
    for command in commands:
        group.command(command.__name__)(command)
    app.add_typer(group, name="pipeline")


def run(
    lake: LakePath,
    store: Stores = None,
    archive: Annotated[
        list[Path] | None, typer.Option(help="Raw messages to read as well; may be repeated.")
    ] = None,
    ended: Ended = False,
    master: Master = "",
    conf: Settings = None,
    json: Json = False,
) -> None:
    """Take in what is new and bring every table up to date.

    What the lake has already is not read again, so it may run as often as you like. It tells
    what it finds and ends with status 0; to judge is the work of `verify`.
    """

    def work() -> Report:
        place, settings = lake_at(lake), _settings(conf)
        books = [book_at(each_place) for each_place in store or []]
        archives = [archive_at(path) for path in archive or []]
        if not books and not archives:
            need_lake(lake)
        with session(master, settings, json=json) as (spark, tell):
            from oncewire.pipeline import jobs

            done = jobs.run(
                spark,
                place,
                books,
                archives=archives,
                ended=ended,
                tell=tell,
            )
        return report_of_run(done, lake_at(lake).name)

    output.answer(work, json=json)


def stream(
    lake: LakePath,
    store: Annotated[list[Path], typer.Option("--store", help=BOOK)],
    forever: Annotated[bool, typer.Option(help="Wait for more instead of ending.")] = False,
    every: Annotated[str, typer.Option(help="How often to look, with --forever.")] = "10 seconds",
    rows_per_batch: Annotated[int, typer.Option(min=1, help="Rows of one batch.")] = 200_000,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Where the stream notes how far it is; in the lake.")
    ] = None,
    ended: Ended = False,
    master: Master = "",
    conf: Settings = None,
    json: Json = False,
) -> None:
    """The same as `run`, batch after batch; each is published by itself.

    It may be killed at any moment: the next start goes on where it was, and no row is taken
    twice. Without --forever it ends with what was there when it began.
    """

    def work() -> Report:
        lake_at(lake)
        books = [book_at(place) for place in store]
        with session(master, _settings(conf), json=json) as (spark, tell):
            from oncewire.pipeline import jobs
            from oncewire.pipeline.lake import Lake

            done = jobs.stream(
                spark,
                Lake(lake),
                books,
                forever=forever,
                every=every,
                rows_per_batch=rows_per_batch,
                checkpoint=checkpoint,
                ended=ended,
                tell=tell,
            )
        return report_of_run(done, lake_at(lake).name)

    output.answer(work, json=json)


def verify(
    lake: LakePath,
    ended: Ended = False,
    master: Master = "",
    conf: Settings = None,
    json: Json = False,
) -> None:
    """Judge every promise over every row of the lake; status 1 if one is broken.

    It believes no table but the journal. Rows that cannot be judged end it with status 1 too.
    """

    def work() -> Report:
        need_lake(lake)
        with session(master, _settings(conf), json=json) as (spark, tell):
            from oncewire.pipeline.check import judge_lake as judge
            from oncewire.pipeline.lake import Lake

            found = judge(spark, Lake(lake), ended=ended, tell=tell)
        return report_of_check(found, json=json)

    output.answer(work, json=json)


def reconcile(
    first: Annotated[
        str,
        typer.Argument(help="One party's book: its folder, store or export, or a node of --lake."),
    ],
    second: Annotated[str, typer.Argument(help="The other party's.")],
    lake: Annotated[
        Path | None, typer.Option("--lake", help="Both are nodes of this lake.")
    ] = None,
    master: Master = "",
    conf: Settings = None,
    json: Json = False,
) -> None:
    """Join two parties' books and list every disagreement; status 1 if there is one.

    Each comes with who holds which proof. Only messages between these two are
    compared, each part of a document by itself.
    """

    def work() -> Report:
        places: list[tuple[Path, str | None]]
        if lake is not None:
            need_lake(lake)
            places = [(lake, first), (lake, second)]
        else:
            places = [(book_at(Path(name)), None) for name in (first, second)]
        with session(master, _settings(conf), json=json) as (spark, tell):
            from oncewire.pipeline.books import open_book
            from oncewire.pipeline.reconcile import reconcile as join

            books = [open_book(place, node) for place, node in places]
            found = join(spark, books[0], books[1], tell=tell)
        return report_of_books(found, json=json)

    output.answer(work, json=json)


def compact(lake: LakePath, json: Json = False) -> None:
    """Write small directories together, so that readers open fewer files. It needs no Spark.

    Runs and streams do so by themselves where there are many; this does it wherever there are two.
    """

    def work() -> Report:
        need_lake(lake)
        from oncewire.pipeline.compact import compacted

        place = lake_at(lake)
        with place.writing() as before:
            made = compacted(place, before, many=2)
            version = place.publish(made) if made != before else before
        counts = [sum(map(len, either.tables.values())) for either in (before, version)]
        return Report(
            facts={"version": version.number, "directories": counts[1], "before": counts[0]},
            summary=f"{counts[0]} directories are {counts[1]} now",
        )

    output.answer(work, json=json)


def sql(
    question: Annotated[str, typer.Argument(help="A SELECT over the tables of the lake.")],
    lake: LakePath,
    rows: Annotated[int, typer.Option(min=1, help="How many rows at most.")] = 1_000,
    master: Master = "",
    conf: Settings = None,
    json: Json = False,
) -> None:
    """Ask the tables of a lake in SQL; each is a view, all of one version."""

    def work() -> Report:
        need_lake(lake)
        with session(master, _settings(conf), json=json) as (spark, tell):
            from oncewire.pipeline.sql import ask

            tell("asking")
            found = ask(spark, lake_at(lake), question, rows)
        values = [[shown(value) for value in row] for row in found.rows]
        return Report(
            facts={"version": found.version, "rows": len(values), "cut": found.cut},
            listings=(Listing("answer", found.columns, values),),
            summary=number_of(len(values), "row")
            + (" (there are more: --rows)" if found.cut else ""),
        )

    output.answer(work, json=json)


def report(
    lake: LakePath,
    out: Annotated[Path, typer.Option("--out", help="The page to write.")],
    csv: Annotated[
        Path | None, typer.Option(help="Folder for a CSV of each partner, to send to it.")
    ] = None,
    json: Json = False,
) -> None:
    """Write what the lake shows as one HTML file that needs no network, nor Spark."""

    def work() -> Report:
        need_lake(lake)
        from oncewire.pipeline import report as pages

        facts = pages.write(lake_at(lake), out, csv)
        return Report(
            facts={"page": str(out), "version": facts.version.number, "csv": str(csv or "")},
            summary=pages.sentence(facts),
        )

    output.answer(work, json=json)


def generate(
    out: Annotated[Path, typer.Option("--out", help="Folder of the new lake.")],
    messages: Annotated[int, typer.Option(min=1, help="How many messages.")] = 20_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same year.")] = 1,
    days: Annotated[int, typer.Option(min=20, max=365, help="Of how many days.")] = 365,
    violations: Annotated[
        Path | None, typer.Option(help="Where to write what was done wrong on purpose.")
    ] = None,
    envelopes: Annotated[
        int, typer.Option(min=0, help="So many of them also as raw messages, in OUT/archive.")
    ] = 0,
    master: Master = "",
    conf: Settings = None,
    json: Json = False,
) -> None:
    """Write the journals of a plausible year of business, with faults of every kind.

    Then `verify` must find exactly what --violations lists, and nothing else.
    """

    def work() -> Report:
        lake_at(out)
        with session(master, _settings(conf), json=json) as (spark, tell):
            from oncewire.pipeline.generate import generate as write
            from oncewire.pipeline.lake import Lake

            done = write(
                spark,
                Lake(out),
                messages=messages,
                seed=seed,
                days=days,
                violations=violations,
                envelopes=envelopes,
                tell=tell,
            )
        return Report(
            facts={
                "lake": str(out),
                "messages": done.messages,
                "rows": done.rows,
                "nodes": done.nodes,
                "faults": done.violations,
                "envelopes": done.envelopes,
                "seed": seed,
            },
            hints=(f"oncewire pipeline verify --lake {quote(str(out))}",),
        )

    output.answer(work, json=json)


def shell(
    context: typer.Context, master: Master = "", conf: Settings = None, json: Json = False
) -> None:
    """Run several of these commands in one session of Spark, a line each, also from a pipe.

    Spark starts once. `oncewire pipeline` may be left out of a line; `exit` ends it. The status is
    that of the first command that did not end with 0. With --json every command has it.
    """
    from oncewire.entry.cli.pipeline_shell import read_commands

    def warm() -> Report:
        with session(master, _settings(conf), json=json):
            return Report(summary="ready")

    def command(words: list[str]) -> None:
        if context.parent is not None:
            asked = [*words, "--json"] if json else words
            context.parent.command.main(asked, prog_name="oncewire pipeline")

    output.answer(warm, json=json)
    read_commands(command)


# --- the session ------------------------------------------------------------------------------


@contextmanager
def session(
    master: str, settings: Mapping[str, str], *, json: bool
) -> Iterator[tuple[SparkSession, Progress]]:
    """A Spark session with a progress line, and Spark's errors in our words."""
    lacking = spark_lacks(remote=master.startswith("sc://"))
    if lacking is not None:
        raise lacking
    from oncewire.pipeline.failure import spoken
    from oncewire.pipeline.session import is_running, open_session

    said = (
        "using the Spark that runs" if is_running() else "starting Spark, which takes some seconds"
    )
    with output.stages(said, quiet=json) as tell, spoken():
        spark = open_session(master=master or None, config=settings)
        yield spark, tell


def _settings(conf: list[str] | None) -> dict[str, str]:
    """The values of --conf."""
    found = {}
    for setting in conf or []:
        key, equals, value = setting.partition("=")
        if not equals:
            raise InvalidValue(f"--conf {setting!r} has no value", remedy="write it as key=value")
        found[key] = value
    return found
