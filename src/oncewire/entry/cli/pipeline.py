"""`oncewire pipeline`: the journal as tables on Spark. Spark is imported only when one runs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.output import OK, WRONG, Config, Json, Listing, Report, loaded
from oncewire.entry.cli.spark import Master, Settings, by_spark, session, settings_of
from oncewire.entry.files import number_of
from oncewire.entry.party.settings import FILE
from oncewire.errors import InvalidValue, NotAllowed, NotHere, OncewireError
from oncewire.handler.world import RealWorld
from oncewire.message.instant import parse_duration

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings as PartySettings
    from oncewire.pipeline.jobs import Done
    from oncewire.pipeline.judging.check import Verification
    from oncewire.pipeline.lake.lake import Lake
    from oncewire.pipeline.lake.proof import Difference, Proven
    from oncewire.pipeline.lake.version import NodeState
    from oncewire.pipeline.reports.reconcile import Reconciliation

# Which lake and which books a command is about.


LakePath = Annotated[Path, typer.Option("--lake", help="Folder of the tables.")]
BOOK = "A party's folder, its store, an export, or another lake; may be repeated."
Stores = Annotated[list[Path] | None, typer.Option("--store", help=BOOK)]


def book_at(path: Path) -> Path | str:
    """Where a book is: a party's folder stands for the store that its settings name, a file or the
    address of a database, and a lake in a bucket for the copy of it."""
    from oncewire.pipeline.lake.lake import input_at

    path = input_at(path)
    if path.name != FILE and not (path / FILE).is_file():
        return there(path, "store, export or lake")
    settings = loaded(path).settings
    return settings.store.url or there(settings.path(settings.store.path), "store, export or lake")


def there(path: Path, what: str) -> Path:
    """The path, if something is there: Spark takes long to start, and is not needed to know."""
    if not path.exists():
        raise NotHere(f"there is no {what} at {path}", remedy="give the path of one")
    return path


def archive_at(path: Path) -> Path:
    """Where raw messages are; nothing but files is read."""
    from oncewire.pipeline.lake.version import OF_AN_ARCHIVE, local_path

    return there(local_path(path, OF_AN_ARCHIVE), "archive")


def lake_at(path: Path) -> Lake:
    """The lake of that name; a place that cannot hold one is refused before Spark starts."""
    from oncewire.pipeline.lake.lake import Lake

    return Lake(path)


def need_lake(lake: Path) -> None:
    """Refuse a place where nothing was published."""
    if not lake_at(lake).exists:
        raise NotHere(
            f"there is no lake at {lake}",
            remedy=f"make one with `oncewire pipeline run --store STORE --lake {lake}`",
        )


# What the commands of `oncewire pipeline` answer, as reports for people and programs.


SHOWN_MAX = 20
"""Rows of a table for people; `--json` has all of them."""


def report_of_run(done: Done, lake: str) -> Report:
    """What a run of the pipeline did."""
    return Report(
        facts={
            "lake": str(lake),
            "version": done.version,
            "rows": done.rows,
            "quarantined": done.quarantined,
            "envelopes": done.envelopes,
            "unreadable": done.unreadable,
            "cut_off": done.cut_off,
            "messages": done.messages,
            "violations": done.violations,
            "spark_jobs": done.spark_jobs,
            "spark_tasks": done.spark_tasks,
        },
        listings=(
            Listing("verdicts", ("verdict", "messages"), list(done.verdicts.items()), "Ledger"),
        ),
        summary=f"{number_of(done.messages, 'message')} in the ledger, "
        f"{number_of(done.violations, 'violation')}, {by_spark(done.spark_jobs, done.spark_tasks)}",
        hints=(f"oncewire pipeline verify --lake {quote(str(lake))}",),
    )


def report_of_check(found: Verification, *, json: bool) -> Report:
    """Which promises the journals show broken, and how far they were judged."""
    facts: dict[str, Any] = {
        "clean": found.clean,
        "messages": found.messages,
        "parts": found.parts,
        "rows": found.rows,
        "nodes": found.nodes,
        "outcomes": found.outcomes,
        "kinds": found.kinds,
        "rows_quarantined": found.rows_quarantined,
        "extents": found.extents,
        "not_judged_yet": found.extents.get("not_yet", 0),
        "in_doubt": found.extents.get("in_doubt", 0),
        "rules": found.rules,
        "unchained": len(found.unchained),
        "spark_jobs": found.spark_jobs,
        "spark_tasks": found.spark_tasks,
    }
    columns = ("kind", "message_id", "predicate", "node", "channel", "sentence")
    every = [_values(violation, columns) for violation in (*found.violations, *found.quarantined)]
    listings = [
        Listing("findings", columns, every if json else every[:SHOWN_MAX]),
        _extents_of_check(found, json=json),
    ]
    if found.unchained:
        listings.append(Listing("unchained", *_differences(found.unchained)))
    if json:
        short = ("kind", "message_id")
        listings.insert(
            0,
            Listing(
                "violations", short, [_values(violation, short) for violation in found.violations]
            ),
        )
    unjudged, unchained = len(found.quarantined), len(found.unchained)
    waiting, doubted = (found.extents.get(name, 0) for name in ("not_yet", "in_doubt"))
    return Report(
        facts=facts,
        listings=tuple(listings),
        summary=f"{number_of(len(found.violations), 'violation')} in "
        f"{number_of(found.messages, 'message')}"
        + (f" and {number_of(found.parts, 'part')} of documents" if found.parts else "")
        + (f", {number_of(unchained, 'range')} of rows unchained" if unchained else "")
        + (f", {number_of(unjudged, 'thing')} wrong with the journals" if unjudged else "")
        + (f", {number_of(waiting, 'message')} {_NOT_YET}" if waiting else "")
        + (f", {doubted:,} in doubt" if doubted else "")
        + f", {by_spark(found.spark_jobs, found.spark_tasks)}",
        exit_code=OK if found.clean else WRONG,
    )


_NOT_YET = "not judged yet, for what is missing of them may still come by their agreements"


def _extents_of_check(found: Verification, *, json: bool) -> Listing:
    """How far each channel was judged, those furthest behind first."""
    columns = {
        "sender": "sender", "receiver": "receiver", "partner": "partner", "channel": "channel",
        "through": "through_at", "clock": "clock", "messages": "open_count",
        "not_yet": "not_yet_count", "in_doubt": "in_doubt_count",
    }  # fmt: skip
    ordered = sorted(
        found.judged,
        key=lambda row: (-row["not_yet_count"], str(row["through_at"]), str(row["channel"])),
    )
    rows = [[shown(row[name]) for name in columns.values()] for row in ordered]
    return Listing("judged", tuple(columns), rows if json else rows[:SHOWN_MAX], "Judged through")


def shown(value: Any) -> Any:
    """A value of a table as JSON can carry it."""
    return value.isoformat() if hasattr(value, "isoformat") else value


def report_of_proof(
    found: Sequence[Proven], nodes: Mapping[str, NodeState], *, signed: bool | None = None
) -> Report:
    """What is not as it was taken in; and whether the version has the signature it must have."""
    differences = [difference for proven in found for difference in proven.differences]
    count = sum(proven.rows for proven in found)
    shown = {} if signed is None else {"signed": signed}
    return Report(
        facts={
            **shown,
            "unchanged": not differences,
            "rows": count,
            "heads": {name: state.chain for name, state in sorted(nodes.items())},
        },
        listings=(Listing("differences", *_differences(differences)),),
        summary=f"{number_of(len(differences), 'difference')} in {number_of(count, 'row')}"
        + ("; the signature is of another version, or by another key" if signed is False else ""),
        exit_code=WRONG if differences or signed is False else OK,
    )


def _differences(found: Sequence[Difference]) -> tuple[tuple[str, ...], list[list[Any]]]:
    columns = ("node", "seq", "what", "sentence")
    return columns, [_values(difference, columns) for difference in found]


def report_of_books(found: Reconciliation, *, json: bool) -> Report:
    """Where the books of two parties disagree."""
    columns = (
        "message_id", "disagreement", "sender", "receiver", "sender_says", "receiver_says",
        "sender_proof", "receiver_proof", "sentence",
    )  # fmt: skip
    rows = [[disagreement[name] for name in columns] for disagreement in found.disagreements]
    ours, theirs = found.parties
    return Report(
        facts={
            "parties": list(found.parties),
            "compared": found.compared,
            "agreed": found.agreed,
            "kinds": found.kinds,
        },
        listings=(Listing("disagreements", columns, rows if json else rows[:SHOWN_MAX]),),
        summary=f"{ours} and {theirs} agree on {found.agreed:,} of "
        f"{number_of(found.compared, 'message')}",
        exit_code=OK if not found.disagreements else WRONG,
    )


def _values(found: Any, columns: tuple[str, ...]) -> list[Any]:
    return [getattr(found, name) for name in columns]


# `oncewire pipeline prove | sign`: has anything changed since, and who says so. Without Spark.


@output.answers
def prove(
    lake: LakePath,
    store: Stores = None,
    certificate: Annotated[
        Path | None, typer.Option(help="Whoever holds it must have signed the version.")
    ] = None,
) -> Report:
    """Show that journals are as they were taken in: the lake's, and with --store the store's.

    Status 1 if a row was changed, added or taken away since, or if rows are not those that their
    node chained. It needs no Spark.
    """

    need_lake(lake)
    from oncewire.pipeline.lake.proof import check_book, check_lake
    from oncewire.pipeline.sources.journal_source import open_books

    place = lake_at(lake)
    version = place.current()
    signed = None
    if certificate is not None:
        from oncewire.entry.files import read_bytes
        from oncewire.pipeline.lake.proof import is_signed_by
        from oncewire.wire.security.certificates import load_certificate

        shown = load_certificate(read_bytes(certificate, "certificate"))
        signed = is_signed_by(place, version, shown)
    found = [check_lake(place, version)]
    for each_place in store or []:
        found += [check_book(place, version, book) for book in open_books(book_at(each_place))]
    return report_of_proof(found, version.nodes, signed=signed)


@output.answers
def trim(
    lake: LakePath,
    keep: Annotated[
        str, typer.Option(help="Keep rows since: a time, a day, or how long ago, such as 365d.")
    ],
    config: Config = None,
) -> Report:
    """Remove from the party's journal what the lake has and nobody needs here any more.

    A row goes when it is older than --keep, the lake has it as it is in the store, and its message
    is not kept any more; the first row that has to stay keeps all that follow. A handler that runs
    goes on meanwhile. What goes cannot be brought back, and `oncewire why` tells of it no more: the
    lake does. It needs no Spark.
    """

    need_lake(lake)
    from oncewire.pipeline.lake.proof import check_book, check_lake
    from oncewire.pipeline.sources.journal_source import open_books

    settings = loaded(config).settings
    place = lake_at(lake)
    version = place.current()
    (book,) = open_books(book_at(settings.folder))
    taken = version.nodes.get(book.node)
    if taken is None:
        raise NotAllowed(
            f"the lake has nothing of {book.node}",
            remedy="take its journal in first: `oncewire pipeline run`",
        )
    checked = (check_lake(place, version), check_book(place, version, book))
    differences = [each for proven in checked for each in proven.differences]
    if differences:
        raise NotAllowed(
            f"the lake does not have the rows of {book.node} as they are: "
            f"{differences[0].sentence}",
            remedy="`oncewire pipeline prove` with --store names each of them",
        )
    removed = _trimmed(settings, keep, taken.seq)
    return Report(
        facts={"node": book.node, "rows": removed},
        summary=f"{number_of(removed, 'row')} of {book.node} removed",
    )


def _trimmed(settings: PartySettings, keep: str, through: int) -> int:
    import asyncio

    from oncewire.entry.control.verbs import user_name
    from oncewire.entry.logs import only_errors
    from oncewire.entry.running.open_party import reach

    async def run() -> int:
        async with reach(settings) as verbs:
            return await verbs.trim_journal(keep, through, user_name())

    with only_errors():
        return asyncio.run(run())


@output.answers
def sign(lake: LakePath, config: Config = None) -> Report:
    """Sign the lake's current version with the party's key, so that others can rely on it."""

    need_lake(lake)
    from oncewire.entry.running.assemble import keys_of
    from oncewire.pipeline.lake.proof import sign_version

    keys = keys_of(loaded(config).settings)
    if keys is None:
        raise NotHere("the party has no key to sign with", remedy="`oncewire init` makes one")
    place = lake_at(lake)
    version = place.current()
    beside = sign_version(place, version, keys.signing_key)
    return Report(
        facts={"version": version.number, "signature": str(beside)},
        summary=f"version {version.number} is signed",
        hints=(f"oncewire pipeline prove --lake {quote(str(lake))} --certificate CERTIFICATE",),
    )


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
    commands = (
        run, stream, verify, reconcile, prove, trim, sign, compact, evidence, retention, sql,
        report, shell,
    )  # fmt: skip
    for command in commands:
        group.command(command.__name__)(command)
    app.add_typer(group, name="pipeline")


@output.answers
def run(
    lake: LakePath,
    store: Stores = None,
    archive: Annotated[
        list[Path] | None, typer.Option(help="Raw messages to read as well; may be repeated.")
    ] = None,
    ended: Ended = False,
    keep: Annotated[
        str | None,
        typer.Option(help="How long replaced versions can be read, as P7D; the lake remembers it."),
    ] = None,
    master: Master = "",
    conf: Settings = None,
    json: Json = False,
) -> Report:
    """Take in what is new and bring every table up to date.

    What the lake has already is not read again, so it may run as often as you like. It tells
    what it finds and ends with status 0; to judge is the work of `verify`.
    """

    place, settings = lake_at(lake), settings_of(conf)
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
            keep=None if keep is None else parse_duration(keep),
            tell=tell,
        )
    return report_of_run(done, lake_at(lake).name)


@output.answers
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
) -> Report:
    """The same as `run`, batch after batch; each is published by itself.

    It may be killed at any moment: the next start goes on where it was, and no row is taken
    twice. Without --forever it ends with what was there when it began.
    """

    lake_at(lake)
    books = [book_at(place) for place in store]
    with session(master, settings_of(conf), json=json) as (spark, tell):
        from oncewire.pipeline import jobs
        from oncewire.pipeline.lake.lake import Lake

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


@output.answers
def verify(
    lake: LakePath,
    ended: Ended = False,
    master: Master = "",
    conf: Settings = None,
    json: Json = False,
) -> Report:
    """Judge every promise over every row of the lake; status 1 if one is broken.

    It believes no table but the journal. Rows that cannot be judged end it with status 1 too.
    """

    need_lake(lake)
    with session(master, settings_of(conf), json=json) as (spark, tell):
        from oncewire.pipeline.judging.check import judge_lake as judge
        from oncewire.pipeline.lake.lake import Lake

        found = judge(spark, Lake(lake), ended=ended, tell=tell)
    return report_of_check(found, json=json)


@output.answers
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
) -> Report:
    """Join two parties' books and list every disagreement; status 1 if there is one.

    Each comes with who holds which proof. Only messages between these two are
    compared, each part of a document by itself.
    """

    places: list[tuple[Path | str, str | None]]
    if lake is not None:
        need_lake(lake)
        places = [(lake, first), (lake, second)]
    else:
        places = [(book_at(Path(name)), None) for name in (first, second)]
    with session(master, settings_of(conf), json=json) as (spark, tell):
        from oncewire.pipeline.reports.reconcile import reconcile as join
        from oncewire.pipeline.sources.journal_source import open_book

        books = [open_book(place, node) for place, node in places]
        found = join(spark, books[0], books[1], tell=tell)
    return report_of_books(found, json=json)


@output.answers
def compact(lake: LakePath) -> Report:
    """Write small directories together, so that readers open fewer files. It needs no Spark.

    Runs and streams do so by themselves where there are many; this does it wherever there are two.
    """

    need_lake(lake)
    from oncewire.pipeline.lake.compact import compacted

    place = lake_at(lake)
    place.shown()
    with place.writing() as before:
        made = compacted(place, before, many=2)
        version = place.publish(made) if made != before else before
    counts = [sum(map(len, either.tables.values())) for either in (before, version)]
    return Report(
        facts={"version": version.number, "directories": counts[1], "before": counts[0]},
        summary=f"{counts[0]} directories are {counts[1]} now",
    )


@output.answers
def evidence(
    lake: LakePath,
    archive: Annotated[
        list[Path], typer.Option(help="Messages and acknowledgements, raw; may be repeated.")
    ],
    certificate: Annotated[
        list[str] | None, typer.Option(help="Of a party, as PARTY=FILE; may be repeated.")
    ] = None,
    master: Master = "",
    conf: Settings = None,
    json: Json = False,
) -> Report:
    """Verify which messages of an archive their receivers have signed for.

    It makes the table `evidence`, which says of each message what is wrong where nothing proves
    its receipt. Status 1 if there is such a message.
    """

    need_lake(lake)
    lake_at(lake).shown()
    archives, signers = [archive_at(path) for path in archive], _signers(certificate or [])
    with session(master, settings_of(conf), json=json) as (spark, tell):
        from oncewire.pipeline.judging.evidence import Signers, prove_archive

        tell("verifying")
        found = prove_archive(spark, lake_at(lake), archives, Signers(signers))
    return Report(
        facts=asdict(found),
        summary=f"the receipt of {found.proven:,} of {number_of(found.messages, 'message')} is "
        "proven",
        exit_code=OK if found.proven == found.messages else WRONG,
    )


def _signers(said: Sequence[str]) -> dict[str, tuple[bytes, ...]]:
    """The certificates of each party."""
    from oncewire.entry.files import read_bytes

    found: dict[str, tuple[bytes, ...]] = {}
    for each in said:
        party, equals, file = each.rpartition("=")
        if not equals:
            raise InvalidValue(f"--certificate {each!r} names no party", remedy="say PARTY=FILE")
        found[party] = (*found.get(party, ()), read_bytes(Path(file), "certificate"))
    return found


@output.answers
def retention(
    lake: LakePath, master: Master = "", conf: Settings = None, json: Json = False
) -> Report:
    """Say which messages may be removed from the stores that they are in; nothing is removed.

    It makes the table `retention`. A handler removes by itself, and knows of legal holds too.
    """

    need_lake(lake)
    lake_at(lake).shown()
    with session(master, settings_of(conf), json=json) as (spark, tell):
        from oncewire.pipeline.reports.retention import report_retention

        tell("looking what may go")
        found = report_retention(spark, lake_at(lake), RealWorld().now())
    return Report(
        facts=asdict(found),
        summary=f"{found.removable:,} of {number_of(found.messages, 'stored message')} may be "
        f"removed, {found.removable_bytes:,} bytes",
    )


@output.answers
def sql(
    question: Annotated[str, typer.Argument(help="A SELECT over the tables of the lake.")],
    lake: LakePath,
    rows: Annotated[int, typer.Option(min=1, help="How many rows at most.")] = 1_000,
    columns: Annotated[
        str, typer.Option(help="v1: the names that columns had in the first version.")
    ] = "",
    master: Master = "",
    conf: Settings = None,
    json: Json = False,
) -> Report:
    """Ask the tables of a lake in SQL; each is a view, all of one version."""

    need_lake(lake)
    lake_at(lake).shown()
    if columns not in ("", "v1"):
        raise InvalidValue(f"there are no columns {columns!r}", remedy="say v1, or nothing")
    with session(master, settings_of(conf), json=json) as (spark, tell):
        from oncewire.pipeline.reports.sql import ask

        tell("asking")
        found = ask(spark, lake_at(lake), question, rows, v1=columns == "v1")
    values = [[shown(value) for value in row] for row in found.rows]
    return Report(
        facts={"version": found.version, "rows": len(values), "cut": found.cut},
        listings=(Listing("answer", found.columns, values),),
        summary=number_of(len(values), "row") + (" (there are more: --rows)" if found.cut else ""),
    )


@output.answers
def report(
    lake: LakePath,
    out: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")],
    csv: Annotated[
        Path | None, typer.Option(help="Folder for a CSV of each partner, to send to it.")
    ] = None,
) -> Report:
    """Write what the lake shows as one HTML file that needs no network, nor Spark."""

    need_lake(lake)
    from oncewire.pipeline.reports import report as pages

    facts = pages.write(lake_at(lake), out, csv)
    return Report(
        facts={"page": str(out), "version": facts.version.number, "csv": str(csv or "")},
        summary=pages.sentence(facts),
    )


def shell(
    context: typer.Context, master: Master = "", conf: Settings = None, json: Json = False
) -> None:
    """Run several of these commands in one session of Spark, a line each, also from a pipe.

    Spark starts once. `oncewire pipeline` may be left out of a line; `exit` ends it. The status is
    that of the first command that did not end with 0. With --json every command has it.
    """

    def warm() -> Report:
        with session(master, settings_of(conf), json=json):
            return Report(summary="ready")

    def command(words: list[str]) -> None:
        if context.parent is not None:
            asked = [*words, "--json"] if json else words
            context.parent.command.main(asked, prog_name="oncewire pipeline")

    output.answer(warm, json=json)
    read_commands(command)


# `oncewire pipeline shell`: commands of the pipeline line by line, in one session of Spark.


PROMPT = "pipeline> "
ENDS = ("exit", "quit")

Run = Callable[[list[str]], None]


def read_commands(run: Run) -> None:
    """Run what stands on stdin, line by line; a command that fails does not keep the next from
    running. Ends with the status of the first one that did not end well."""
    ended = output.OK
    for line in _lines():
        if line.split(maxsplit=1)[:1] in [[word] for word in ENDS]:
            break
        status = _status(line, run)
        ended = ended or status
    raise typer.Exit(ended)


def _lines() -> Iterator[str]:
    """Each line as it comes: a pipe's reader sees the answer before the next one is written."""
    prompts = sys.stdin.isatty()
    while True:
        if prompts:
            sys.stderr.write(PROMPT)
            sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            return
        yield line


def _status(line: str, run: Run) -> int:
    """What the command of a line would have ended with by itself."""
    try:
        words = _words(line)
        if words:
            run(words)
    except OncewireError as error:
        try:
            output.fail(error)
        except typer.Exit as ended:
            return ended.exit_code
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else output.OK
    return output.OK


def _words(line: str) -> list[str]:
    """The words of a line, without what it would begin with elsewhere; a comment has none."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        problem = f"{line.strip()!r} cannot be read: {error}"
        raise InvalidValue(problem, remedy="close what is quoted") from None
    for word in ("oncewire", "pipeline"):
        if words and words[0] == word:
            words = words[1:]
    if words and words[0] == "shell":
        raise NotAllowed("this is a shell already", remedy="give one of its commands; --help")
    return words
