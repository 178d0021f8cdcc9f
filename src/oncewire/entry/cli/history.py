"""`oncewire show`, `why`, `evidence` and `verify`: what is known of a message, why it is where it
is, what proves it, and whether every promise was kept."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import structs

from oncewire.entry.cli import output
from oncewire.entry.cli.finding import complete_message, find_id
from oncewire.entry.cli.output import Config, Json, Listing, Party, Report
from oncewire.entry.files import PRIVATE, number_of, write_new
from oncewire.entry.messages.outlook import held_for, outlook, resolving
from oncewire.entry.party.names import names_of
from oncewire.message.instant import moment
from oncewire.protocol.states import Outcome

if TYPE_CHECKING:
    from oncewire.entry.doctor.judging import Verdict
    from oncewire.entry.party.settings import Settings
    from oncewire.journal.predicates.context import Violation
    from oncewire.journal.row import Row
    from oncewire.store.contract import Reader

MessageId = Annotated[
    str,
    typer.Argument(
        help="The MessageId, or any part of it that is unique.", autocompletion=complete_message
    ),
]
Others = Annotated[
    list[Path] | None,
    typer.Option("--with", help="Another party's folder: its side of the story, joined."),
]


@output.answers
def show(
    settings: Party,
    message_id: MessageId,
    raw: Annotated[
        bool, typer.Option("--raw", help="Write the stored message itself: headers and body.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--output", "-o", help="With --raw: a file instead of stdout.")
    ] = None,
    others: Others = None,
    json: Json = False,
) -> Report:
    """Show what is known of one message: parties, state, number, times, size, documents, and its
    trail: each hop with its times and its acknowledgement. Name the folders of other parties
    (`--with`) whose journals are at hand, such as those of the hubs on its way.

    `sha256` is that of each document, as sha256sum has it of the file. `identity_digest` is over
    the header and all documents: by it a copy of a message is told from another one.

    With --raw the exact bytes that were sent or that arrived, in the form that
    `oncewire message decode` reads, for as long as they are kept.
    """

    from oncewire.entry.party.store import reading

    with reading(settings) as reader:
        found = find_id(reader, message_id)
        if raw or out is not None:
            return _raw(settings, reader, found, out, json=json)
        from oncewire.entry.messages.story import details_of

        place = output.at_party(settings)
        elsewhere = _rows_elsewhere(found, others or [])
        details = details_of(reader, found, output.now(), settings, elsewhere, place)
        if not details.why:
            return Report({"message_id": found})
        hints = [f"oncewire why {quote(found)}{place}"]
        if "parts" in details.facts:
            box = "outbox" if details.facts.get("direction") == "out" else "inbox"
            hints.append(f"oncewire {box} --parts{place}")
        columns = ("file_name", "media_type", "bytes", "sha256")
        documents = [structs.astuple(each) for each in details.documents]
        hops = [structs.astuple(each) for each in details.trail]
        names = ("hop", "node", "to", "sent", "attempts", "received", "acknowledged", "standing")
        listings = (Listing("documents", columns, documents), Listing("trail", names, hops))
        shown = tuple(listing for listing in listings if listing.rows)
        return Report(details.facts, shown, summary=details.why, hints=tuple(hints), sparse=True)


def _raw(settings: Settings, reader: Reader, found: str, out: Path | None, *, json: bool) -> Report:
    """The stored bytes: into a file, or bare on stdout; in JSON as base64."""
    from base64 import b64encode

    from oncewire.entry.messages.stored import intact_parcel
    from oncewire.wire.parcel import as_file

    parcel = intact_parcel(settings, reader, found)
    data = as_file(parcel)
    facts: dict[str, Any] = {
        "message_id": found,
        "content_type": parcel.content_type,
        "size": len(data),
    }
    if out is not None:
        write_new(out, data, PRIVATE)
        hint = f"oncewire message decode {output.typed(out)}"
        facts["file"] = str(out)
        return Report(facts, summary=f"Written to {output.here(out)}.", hints=(hint,))
    if json:
        return Report(facts | {"base64": b64encode(data).decode("ascii")})
    sys.stdout.buffer.write(data)
    return Report()


# --- why ---------------------------------------------------------------------------------------


@output.answers
def why(settings: Party, message_id: MessageId, others: Others = None) -> Report:
    """Say in one sentence why a message is where it is, and where its time went; then show every
    step it took."""

    from oncewire.entry.messages.story import kept_of, tell, time_of
    from oncewire.entry.party.store import reading

    names = names_of(settings)
    with reading(settings) as reader:
        found, place = find_id(reader, message_id), output.at_party(settings)
        rows = reader.journal_of(found)
        then = outlook(reader, found, output.now(), settings, place)
        steps = resolving(reader, found, output.now(), place)
        kept = kept_of(reader, found)
        timing = time_of(reader, names, kept, output.now(), {})
        held = "" if kept.arrived is None else held_for(reader, kept.arrived)
    rows += _rows_elsewhere(found, others or [])
    story = tell(found, rows, names, then, steps)
    rungs = [
        (moment(step.at), step.node, step.direction, step.peer, step.what) for step in story.steps
    ]
    columns = ("at", "node", "direction", "peer", "what")
    sentence = output.placed(story.why + held)
    # The sentence comes first: it is what was asked for.
    facts: dict[str, Any] = {"message_id": found, "why": sentence}
    if timing is not None and timing.said:
        facts["time"] = timing.said
    facts["cpa_id"] = story.cpa_id
    kinds = {row.kind for row in rows}
    if then or ("handed_over" in kinds and not kinds & {"confirmed", "abandoned"}):
        live, said = _live(settings, found, output.at_party(settings))
        facts |= {"why": sentence + said} | live
    return Report(facts, (Listing("ladder", columns, rungs),), hints=steps)


def _live(settings: Settings, message_id: str, place: str) -> tuple[dict[str, Any], str]:
    """What only a handler that runs knows of a message: how far a large one is that leaves now;
    what the application raised when it was offered one. As facts, and as a sentence."""
    from oncewire.entry.cli.operator import running
    from oncewire.entry.messages.story import refused_words

    status = running(settings)
    if status is not None and message_id in status.transfers:
        sent, size = status.transfers[message_id]
        return {"bytes_sent": sent, "bytes_in_all": size}, ""
    if status is None or message_id not in status.refusals:
        return {}, ""
    count, at, raised = told = status.refusals[message_id]
    facts = {"refusals": count, "last_refusal": moment(at), "raised": raised}
    return facts, refused_words(message_id, told, place)


def _rows_elsewhere(message_id: str, others: list[Path]) -> list[Row]:
    """What the journals of other parties, whose folders are at hand, tell of a message."""
    from oncewire.entry.party.settings import load
    from oncewire.entry.party.store import reading

    rows: list[Row] = []
    for folder in others:
        with reading(load(folder, environ={}).settings) as reader:
            rows += reader.journal_of(message_id)
    return rows


# `oncewire evidence`: what proves that a message was received, in a file for others.

FILES_SHOWN = 20
"""More are told as a number: a document may have travelled in hundreds of parts."""


@output.answers
def evidence(
    settings: Party,
    message_id: MessageId,
    out: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file; otherwise evidence-ID.zip.")
    ] = None,
    json: Json = False,
) -> Report:
    """Write a zip that proves what was sent and that it was received, for others to check.

    In it are the message, the signed acknowledgement, the certificates, their digests, a page in
    plain words, and how to check it with openssl, xmlsec1 and xmllint alone. It can be had of
    what we sent and of what we received, as long as the message is kept (`oncewire hold`). Where
    nobody signed for it, or the kept bytes are not what was signed, the page says so and the
    command ends with 1; where a hub on the way alone signed that it took it over, with 3.

    Example: oncewire evidence 3f2a --output dispute.zip
    """

    from oncewire.entry.messages.stored import evidence_for
    from oncewire.entry.party.store import reading

    with reading(settings) as reader:
        found = find_id(reader, message_id)
        made = evidence_for(settings, reader, found)
    # A MessageId may hold what a file's name must not.
    file = out or Path(f"evidence-{re.sub(r'[^A-Za-z0-9._-]+', '_', found)[:80]}.zip")
    write_new(file, made.as_zip(), PRIVATE)
    files = f"{number_of(len(made.files), 'file')}; `unzip -l {output.typed(file)}` lists them"
    facts = {
        "message_id": found,
        "file": str(file),
        "signed_for": made.signed_for,
        "taken_over": made.taken_over,
        "files": sorted(made.files) if json or len(made.files) <= FILES_SHOWN else files,
    }
    hints = (f"unzip {output.typed(file)} -d evidence && sh evidence/verify.sh",)
    proved = output.NOT_FOUND if made.taken_over else output.WRONG
    return Report(
        facts, summary=made.proves, hints=hints, exit_code=output.OK if made.signed_for else proved
    )


# `oncewire verify`: the checker over the journals of one party or of several.

SHOWN_MAX = 50


@output.answers
def verify(
    parties: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of parties, whose journals are joined; none: this party."),
    ] = None,
    ended: Annotated[
        bool, typer.Option("--ended", help="Nothing more will come: what is under way is lost.")
    ] = False,
    config: Config = None,
    json: Json = False,
) -> Report:
    """Check every promise against the journal: nothing lost, nothing twice, nothing out of order.

    With several parties' folders both ends are compared; one that has no journal yet is named as
    such (`nothing_yet`), and the others are judged. Ends with status 1 if a promise is
    broken. `messages` are all that the journals tell of, those that retention removed too; one
    that two journals tell of is one. What is still here `oncewire status` counts as `kept`.
    """

    from oncewire.entry.doctor.judging import journal_rows, judge, with_inboxes
    from oncewire.entry.party.settings import load

    if parties:
        chosen = [load(folder, environ={}).settings for folder in parties]
    else:
        chosen = [output.loaded(config).settings]
    fresh = [party.party.name for party in chosen if not output.has_store(party)]
    if len(fresh) < len(chosen):
        # What the others have is judged; where none has anything the first of them says so.
        chosen = [party for party in chosen if output.has_store(party)]
    with output.progress("reading journals", None, quiet=json) as advance:
        altered: list[Violation] = []
        rows = [row for party in chosen for row in journal_rows(party, advance, altered)]
    verdict = with_inboxes(judge(rows, ended=ended, now=output.now(), altered=altered), chosen)
    hints = _steps(verdict, chosen, "".join(f" {output.typed(folder)}" for folder in parties or ()))
    return _report(verdict, ended=ended, hints=hints, fresh=fresh)


def _steps(verdict: Verdict, parties: list[Settings], named: str) -> tuple[str, ...]:
    """What to run so that more is judged: somebody takes what waits, or says that all is over."""
    if verdict.waiting:
        return tuple(
            f"oncewire inbox take --output FOLDER{output.at_party(settings)}"
            for settings in parties
            if verdict.inboxes.get(settings.party.name) and settings.application.way == "pull"
        )
    if verdict.not_yet and verdict.through is not None:
        place = "" if named else output.at_party(parties[0])
        return (f"oncewire verify{named} --ended{place}",)
    return ()


def _report(verdict: Verdict, *, ended: bool, hints: tuple[str, ...], fresh: list[str]) -> Report:
    """The checker's word for people and programs; `fresh` parties have no journal yet."""
    report, totals = verdict.report, verdict.totals
    found = [*report.violations, *report.quarantined]
    facts: dict[str, Any] = {
        "journals": list(verdict.nodes),
        "nothing_yet": fresh,
        **output.facts_of(report, "rows messages parts"),
        "submitted": totals.sent,
        **{name.value: verdict.outcomes.get(name.value, 0) for name in Outcome},
        **output.facts_of(
            totals, "confirmed_once=delivered_once resends duplicates_stopped redelivered"
        ),
        "restarts": totals.restarts,
        **{name: verdict.count(name) for name in ("lost", "twice", "out_of_order")},
        "violations": len(report.violations),
        "unreadable": len(report.quarantined),
        "ended": ended,
        "judged_through": moment(verdict.through),
        "not_judged_yet": verdict.not_yet,
        "open_until": moment(verdict.until) if verdict.not_yet else "",
        "waiting_in_inbox": verdict.waiting,
        "in_doubt": verdict.in_doubt,
    }
    columns = ("predicate", "kind", "node", "message_id", "sentence")
    rows = [
        (each.predicate, each.kind, each.node, each.message_id or "", each.sentence)
        for each in found[:SHOWN_MAX]
    ]
    problems: tuple[output.Problem, ...] = ()
    if len(found) > SHOWN_MAX:
        step = "`oncewire pipeline` lists all of them: docs/howto/pipeline.md, the table violations"
        problems = (output.Problem(f"{len(found) - SHOWN_MAX} more are not shown", next=step),)
    verb = "has" if len(fresh) == 1 else "have"
    return Report(
        facts,
        (Listing("found", columns, rows),),
        problems=problems,
        summary=_summary(verdict)
        + (f" {', '.join(fresh)} {verb} sent and received nothing yet." if fresh else ""),
        hints=hints,
        exit_code=output.OK if verdict.clean else output.WRONG,
    )


def _summary(verdict: Verdict) -> str:
    """What was found, and of how much it was not judged whether something is missing."""
    report, waiting = verdict.report, verdict.waiting
    parts = f" and {number_of(report.parts, 'part')} of documents" if report.parts else ""
    violations = number_of(len(report.violations), "violation")
    said = f"{violations} in {number_of(report.messages, 'message')}{parts}."
    if verdict.not_yet and verdict.until is not None:
        whose = "its agreement" if verdict.not_yet == 1 else "their agreements"
        said += (
            f" Of {verdict.not_yet:,} it is too early to say that something is missing: by {whose} "
            f"it may still come until {moment(verdict.until)}. Run it again when each journal has "
            "a row after that, or with --ended if nothing more will come."
        )
    if waiting:
        said += f" {number_of(waiting, 'message', 'waits')} in the inbox for the application."
    if verdict.in_doubt:
        said += f" {verdict.in_doubt} are in doubt, for rows are missing."
    return said


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("show")(show)
    app.command("why")(why)
    app.command("evidence")(evidence)
    app.command("verify")(verify)
