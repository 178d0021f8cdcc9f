"""`oncewire pipeline`: the journal as tables on Spark. Spark is imported only when one runs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.lake import (
    BOOK,
    Ca,
    Conf,
    LakePath,
    Master,
    Spark,
    Stores,
    TokenFiles,
    archive_at,
    book_at,
    books_at,
    by_spark,
    compact,
    lake_at,
    listing_of_differences,
    need_lake,
    prove,
    report,
    session,
    settings_of,
    sign,
    trim,
)
from oncewire.entry.cli.output import Config, Json, Listing, Report
from oncewire.entry.files import number_of, read_bytes
from oncewire.errors import InvalidValue, NotAllowed, OncewireError
from oncewire.message.instant import SECOND, parse_duration

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings as PartySettings
    from oncewire.pipeline.jobs import Done
    from oncewire.pipeline.judging.check import Verification
    from oncewire.pipeline.reports.advise import Advice

# What the commands of `oncewire pipeline` answer, as reports for people and programs.


SHOWN_MAX = 20
"""Rows of a table for people; `--json` has all of them."""


_RUN = (
    "version rows quarantined envelopes unreadable cut_off messages violations spark_jobs "
    "spark_tasks"
)


def report_of_run(done: Done, lake: str) -> Report:
    """What a run of the pipeline did."""
    return Report(
        facts={"lake": str(lake), **output.facts_of(done, _RUN)},
        listings=(
            Listing("verdicts", ("verdict", "messages"), list(done.verdicts.items()), "Ledger"),
        ),
        summary=f"{number_of(done.messages, 'message')} in the ledger, "
        f"{number_of(done.violations, 'violation')}, {by_spark(done.spark_jobs, done.spark_tasks)}",
        hints=(f"oncewire pipeline verify --lake {quote(str(lake))}",),
    )


def report_of_check(found: Verification, *, json: bool) -> Report:
    """Which promises the journals show broken, and how far they were judged."""
    facts = {
        **output.facts_of(
            found, "clean messages parts rows nodes outcomes kinds rows_quarantined extents"
        ),
        "not_judged_yet": found.extents.get("not_yet", 0),
        "in_doubt": found.extents.get("in_doubt", 0),
        "rules": found.rules,
        "unchained": len(found.unchained),
        **output.facts_of(found, "spark_jobs spark_tasks"),
    }
    columns = ("kind", "message_id", "predicate", "node", "channel", "sentence")
    every = list(map(attrgetter(*columns), (*found.violations, *found.quarantined)))
    listings = [
        Listing("findings", columns, every if json else every[:SHOWN_MAX]),
        _extents_of_check(found, json=json),
    ]
    if found.unchained:
        listings.append(listing_of_differences("unchained", found.unchained))
    if json:
        short = ("kind", "message_id")
        rows = list(map(attrgetter(*short), found.violations))
        listings.insert(0, Listing("violations", short, rows))
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
        + (f", {number_of(waiting, 'message')} {_not_yet(found)}" if waiting else "")
        + (f", {doubted:,} in doubt" if doubted else "")
        + f", {by_spark(found.spark_jobs, found.spark_tasks)}",
        exit_code=output.OK if found.clean else output.WRONG,
    )


def _not_yet(found: Verification) -> str:
    """What is awaited of messages, and which are old enough to be judged for it."""
    ends = [row["through_at"] for row in found.judged if row["not_yet_count"]]
    before = f" before {shown(min(filter(None, ends)))}" if any(ends) else " long enough ago"
    return (
        "not judged yet: an acknowledgement or a confirmation may still come by their agreements; "
        f"it is called missing only of what began{before}"
    )


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


Ended = Annotated[
    bool, typer.Option("--ended", help="The books are closed: what is under way now is lost.")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    commands = (
        run, stream, verify, reconcile, prove, trim, sign, compact, evidence, retention, sql,
        report, shell, advise, journal, documents,
    )  # fmt: skip
    says = "The journal as tables on Spark: ledger, checks, reconciliation."
    output.add_group(app, "pipeline", says, {each.__name__: each for each in commands})


@output.answers
def run(
    on: Spark,
    lake: LakePath,
    store: Stores = None,
    token_file: TokenFiles = None,
    ca: Ca = None,
    archive: Annotated[
        list[Path] | None, typer.Option(help="Raw messages to read as well; may be repeated.")
    ] = None,
    ended: Ended = False,
    keep: Annotated[
        str | None,
        typer.Option(help="How long replaced versions can be read, as P7D; the lake remembers it."),
    ] = None,
) -> Report:
    """Take in what is new and bring every table up to date.

    What the lake has already is not read again, so it may run as often as you like. It tells
    what it finds and ends with status 0; to judge is the work of `verify`.
    """

    place = lake_at(lake)
    books = books_at(store, token_file, ca)
    archives = [archive_at(path) for path in archive or []]
    if not books and not archives:
        need_lake(lake)
    with on() as (spark, tell):
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
    return report_of_run(done, place.name)


@output.answers
def stream(
    on: Spark,
    lake: LakePath,
    store: Annotated[list[Path], typer.Option("--store", help=BOOK)],
    token_file: TokenFiles = None,
    ca: Ca = None,
    forever: Annotated[bool, typer.Option(help="Wait for more instead of ending.")] = False,
    every: Annotated[str, typer.Option(help="How often to look, with --forever.")] = "10 seconds",
    rows_per_batch: Annotated[int, typer.Option(min=1, help="Rows of one batch.")] = 200_000,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Where the stream notes how far it is; in the lake.")
    ] = None,
    ended: Ended = False,
) -> Report:
    """The same as `run`, batch after batch; each is published by itself.

    It may be killed at any moment: the next start goes on where it was, and no row is taken
    twice. Without --forever it ends with what was there when it began.
    """

    place, books = lake_at(lake), books_at(store, token_file, ca)
    with on() as (spark, tell):
        from oncewire.pipeline import jobs

        done = jobs.stream(
            spark,
            place,
            books,
            forever=forever,
            every=every,
            rows_per_batch=rows_per_batch,
            checkpoint=checkpoint,
            ended=ended,
            tell=tell,
        )
    return report_of_run(done, place.name)


@output.answers
def verify(on: Spark, lake: LakePath, ended: Ended = False, json: Json = False) -> Report:
    """Judge every promise over every row of the lake; status 1 if one is broken.

    It believes no table but the journal. Rows that cannot be judged end it with status 1 too.
    """

    place = need_lake(lake)
    with on() as (spark, tell):
        from oncewire.pipeline.judging.check import judge_lake as judge

        found = judge(spark, place, ended=ended, tell=tell)
    return report_of_check(found, json=json)


@output.answers
def reconcile(
    on: Spark,
    first: Annotated[
        str,
        typer.Argument(help="One party's book: its folder, store or export, or a node of --lake."),
    ],
    second: Annotated[str, typer.Argument(help="The other party's.")],
    lake: Annotated[
        Path | None, typer.Option("--lake", help="Both are nodes of this lake.")
    ] = None,
    json: Json = False,
) -> Report:
    """Join two parties' books and list every disagreement; status 1 if there is one.

    Each comes with who holds which proof. Only messages between these two are
    compared, each part of a document by itself.
    """

    places: list[tuple[Path | str, str | None]]
    if lake is not None:
        need_lake(lake)
        places = [(book_at(lake), node) for node in (first, second)]
    else:
        places = [(book_at(Path(name)), None) for name in (first, second)]
    with on() as (spark, tell):
        from oncewire.pipeline.reports.reconcile import reconcile as join
        from oncewire.pipeline.sources.journal_source import open_book

        books = [open_book(place, node) for place, node in places]
        found = join(spark, books[0], books[1], tell=tell)
    columns = (
        "message_id", "disagreement", "sender", "receiver", "sender_says", "receiver_says",
        "sender_proof", "receiver_proof", "sentence",
    )  # fmt: skip
    rows = [[disagreement[name] for name in columns] for disagreement in found.disagreements]
    ours, theirs = found.parties
    return Report(
        facts={"parties": list(found.parties), **output.facts_of(found, "compared agreed kinds")},
        listings=(Listing("disagreements", columns, rows if json else rows[:SHOWN_MAX]),),
        summary=f"{ours} and {theirs} agree on {found.agreed:,} of "
        f"{number_of(found.compared, 'message')}",
        exit_code=output.OK if not found.disagreements else output.WRONG,
    )


@output.answers
def evidence(
    on: Spark,
    lake: LakePath,
    archive: Annotated[
        list[Path], typer.Option(help="Messages and acknowledgements, raw; may be repeated.")
    ],
    certificate: Annotated[
        list[str] | None, typer.Option(help="Of a party, as PARTY=FILE; may be repeated.")
    ] = None,
) -> Report:
    """Verify which messages of an archive their receivers have signed for.

    It makes the table `evidence`, which says of each message what is wrong where nothing proves
    its receipt. Status 1 if there is such a message.
    """

    place = need_lake(lake)
    place.shown()
    signers: dict[str, tuple[bytes, ...]] = {}
    for each in certificate or []:
        party, equals, file = each.rpartition("=")
        if not equals:
            raise InvalidValue(f"--certificate {each!r} names no party", remedy="say PARTY=FILE")
        signers[party] = (*signers.get(party, ()), read_bytes(Path(file), "certificate"))
    archives = [archive_at(path) for path in archive]
    with on() as (spark, tell):
        from oncewire.pipeline.judging.evidence import Signers, prove_archive

        tell("verifying")
        found = prove_archive(spark, place, archives, Signers(signers))
    return Report(
        facts=asdict(found),
        summary=f"the receipt of {found.proven:,} of {number_of(found.messages, 'message')} is "
        "proven",
        exit_code=output.OK if found.proven == found.messages else output.WRONG,
    )


@output.answers
def documents(
    on: Spark,
    lake: LakePath,
    store: Annotated[
        list[Path], typer.Option("--store", help="A party's folder; may be repeated.")
    ],
    data: Annotated[
        Path | None,
        typer.Option("--bytes", help="New folder for the same rows with the documents' bytes."),
    ] = None,
    most: Annotated[
        int,
        typer.Option("--bytes-max", min=0, max=2**28, help="Bytes of a message that are given."),
    ] = 2**24,
) -> Report:
    """Check that parties' stores have every document as it was sent or received.

    It makes the table `documents`: parts are joined, what is compressed is decompressed, and the
    digest of each document is made again. Status 1 if one is altered or missing.
    """

    place = need_lake(lake)
    place.shown()
    parties = [output.loaded(path).settings for path in store if book_at(path)]
    with on() as (spark, tell):
        from oncewire.entry.running.kept import kept_of
        from oncewire.pipeline.reports.documents import check_documents

        tell("reading documents")
        shelves = {party.party.name: partial(kept_of, party) for party in parties}
        found = check_documents(spark, place, shelves, output.now(), data=data, data_max=most)
    wrong = sum(found.verdicts.get(name, 0) for name in ("altered", "missing"))
    return Report(
        facts=asdict(found),
        summary=f"Whole: {found.verdicts.get('whole', 0):,} of "
        + number_of(found.documents, "document")
        + (f"; {wrong:,} altered or missing" if wrong else ""),
        exit_code=output.WRONG if wrong else output.OK,
    )


@output.answers
def retention(on: Spark, lake: LakePath) -> Report:
    """Say which messages may be removed from the stores that they are in; nothing is removed.

    It makes the table `retention`. A handler removes by itself, and knows of legal holds too.
    """

    place = need_lake(lake)
    place.shown()
    with on() as (spark, tell):
        from oncewire.pipeline.reports.retention import report_retention

        tell("looking what may go")
        found = report_retention(spark, place, output.now())
    return Report(
        facts=asdict(found),
        summary=f"{found.removable:,} of {number_of(found.messages, 'stored message')} may be "
        f"removed, {found.removable_bytes:,} bytes",
    )


@output.answers
def sql(
    on: Spark,
    question: Annotated[str, typer.Argument(help="A SELECT over the tables of the lake.")],
    lake: LakePath,
    rows: Annotated[int, typer.Option(min=1, help="How many rows at most.")] = 1_000,
    columns: Annotated[
        str, typer.Option(help="v1: the names that columns had in the first version.")
    ] = "",
) -> Report:
    """Ask the tables of a lake in SQL; each is a view, all of one version."""

    place = need_lake(lake)
    place.shown()
    if columns not in ("", "v1"):
        raise InvalidValue(f"there are no columns {columns!r}", remedy="say v1, or nothing")
    with on() as (spark, tell):
        from oncewire.pipeline.reports.sql import ask

        tell("asking")
        found = ask(spark, place, question, rows, v1=columns == "v1")
    values = [[shown(value) for value in row] for row in found.rows]
    return Report(
        facts={"version": found.version, "rows": len(values), "cut": found.cut},
        listings=(Listing("answer", found.columns, values),),
        summary=number_of(len(values), "row") + (" (there are more: --rows)" if found.cut else ""),
    )


@output.answers
def journal(
    on: Spark,
    archive: Annotated[
        list[Path],
        typer.Argument(help="Raw messages: folders, tar and zip bundles, mailboxes, files."),
    ],
    party: Annotated[
        list[str],
        typer.Option(help="Whose archive it is: a PartyId, a handler's address; may be repeated."),
    ],
    to: Annotated[Path, typer.Option("--to", help="New folder for the journal.")],
    node: Annotated[
        str | None, typer.Option(help="What the handler is called; otherwise the first --party.")
    ] = None,
    json: Json = False,
) -> Report:
    """Make a journal of the raw messages that another handler left, of whatever vendor.

    `run` and `reconcile` take it as a book: --store FOLDER. It has what messages show: who sent
    what to whom, when, how often, and what was acknowledged or refused. What cannot be read is
    named, and the rest goes on.
    """

    archives = [archive_at(path) for path in archive]
    with on() as (spark, tell):
        from oncewire.pipeline.sources import archived

        found = archived.journal(spark, archives, to, party, node=node, tell=tell)
    kinds = {
        "submitted": "submitted", "sent": "sent", "received": "received",
        "duplicates": "duplicate", "acknowledged": "acknowledged",
        "acknowledgements_sent": "ack_sent", "rejected": "rejected", "refused": "refused",
    }  # fmt: skip
    unread = list(found.unreadable)
    return Report(
        facts={
            "node": found.node,
            "journal": str(to),
            "rows": found.rows,
            "messages": found.messages,
            **{name: found.kinds.get(kind, 0) for name, kind in kinds.items()},
            **output.facts_of(
                found, "between_others=strange about_no_message=other unreadable=unread"
            ),
        },
        listings=(
            Listing(
                "unread", ("file", "problem"), unread if json else unread[:SHOWN_MAX], "Unreadable"
            ),
        ),
        summary=f"{number_of(found.messages, 'message')} of {found.node} in "
        f"{number_of(found.rows, 'row')}"
        + (f", {number_of(found.unread, 'file')} could not be read" if found.unread else ""),
        hints=(f"oncewire pipeline run --store {quote(str(to))} --lake LAKE",),
    )


@output.answers
def advise(
    on: Spark,
    lake: LakePath,
    partner: Annotated[str, typer.Option(help="Only the party that rows name so.")] = "",
    out: Annotated[
        Path | None, typer.Option("--output", "-o", help="A page with a picture of each partner.")
    ] = None,
    config: Config = None,
) -> Report:
    """Say which timeout, interval, retries and window agreements should have, and why.

    From the latency, the losses and the copies that the journals show of each partner. With
    --config the values are also held against `agreement check`, with that party's agreements.
    """

    place = need_lake(lake)
    settings = None if config is None else output.loaded(config).settings
    with on() as (spark, tell):
        from oncewire.pipeline.reports import advise as advising

        found = advising.advise_lake(spark, place, partner=partner, tell=tell)
    if out is not None:
        from oncewire.pipeline.lake.version import write_forced

        write_forced(out, advising.render(found))
    return report_of_advice(found, settings, out)


def report_of_advice(
    found: Sequence[Advice], settings: PartySettings | None, page: Path | None
) -> Report:
    """What agreements should say, and what `agreement check` says of that."""
    columns = ("node", "partner", "key", "today", "advised", "reason")
    measured_columns = (
        "node", "partner", "messages", "first_time", "loss", "duplicates", "wait_seconds",
        "expected_wait_seconds", "problem",
    )  # fmt: skip
    values = [
        (each.measured.node, each.measured.partner, *value)
        for each in found
        for value in each.values
    ]
    measured = [
        (
            each.measured.node,
            each.measured.partner,
            each.measured.messages,
            each.measured.first_time,
            round(each.measured.loss, 4),
            each.measured.duplicates,
            *(
                (None if wait is None else round(wait / SECOND, 3))
                for wait in each.waits or (None, None)
            ),
            each.problem,
        )
        for each in found
    ]
    checked = [] if settings is None else _held_against_check(found, settings)
    changes = sum(value.changes for each in found for value in each.values)
    return Report(
        facts={
            "partners": len(found),
            "changes": changes,
            "page": str(page or ""),
            "toml": {each.measured.partner: each.as_toml() for each in found if each.values},
        },
        listings=(
            Listing("measured", measured_columns, measured, "Measured"),
            Listing("values", columns, values, "Advice"),
            Listing(
                "findings",
                ("partner", "severity", "key", "sentence", "fix"),
                checked,
                empty="`agreement check` has nothing to say against the new values.",
            ),
        )[: 3 if settings is not None else 2],
        summary=f"{number_of(changes, 'value')} of {number_of(len(found), 'partner')} should be "
        "another one",
    )


def _held_against_check(found: Sequence[Advice], settings: PartySettings) -> list[tuple[str, ...]]:
    """What `agreement check` says of agreements with the new values, and not of today's."""
    from msgspec.structs import replace as with_values

    from oncewire.agreement.check.dangers import check
    from oncewire.entry.party.agreements import able, load_all

    abilities = able(settings)
    told: list[tuple[str, ...]] = []
    for kept in load_all(settings):
        agreement = kept.agreement
        names = {str(party_id) for party_id in agreement.partner.party.ids}
        for each in found:
            if each.measured.partner not in names or not each.values:
                continue
            keys = ("timeout", "retry_interval", "retries", "window")
            terms = with_values(
                agreement.sending.terms, **{key: getattr(each.terms, key) for key in keys}
            )
            # The agreement then says them itself.
            sending = replace(agreement.sending, terms=terms, values=())
            known = {
                (finding.key, finding.sentence)
                for finding in check(agreement, now=output.now(), abilities=abilities)
            }
            told += [
                (each.measured.partner, finding.severity.value, finding.key, finding.sentence,
                 finding.fix)
                for finding in check(
                    replace(agreement, sending=sending), now=output.now(), abilities=abilities
                )
                if (finding.key, finding.sentence) not in known
            ]  # fmt: skip
    return told


def shell(
    context: typer.Context, master: Master = "", conf: Conf = None, json: Json = False
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
