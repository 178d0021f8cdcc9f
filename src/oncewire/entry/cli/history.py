"""`oncewire show` and `why`: what is known of a message, and why it is where it is."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import structs

from oncewire.entry.cli import output
from oncewire.entry.cli.completion import complete_message
from oncewire.entry.cli.output import (
    Config,
    Json,
    Listing,
    Report,
    at_party,
    find_id,
    here,
    loaded,
    now,
    placed,
    typed,
)
from oncewire.entry.files import PRIVATE, number_of, write_new
from oncewire.entry.messages.outlook import held_for, outlook, resolving
from oncewire.entry.party.names import names_of
from oncewire.message.instant import moment

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings
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
    message_id: MessageId,
    raw: Annotated[
        bool, typer.Option("--raw", help="Write the stored message itself: headers and body.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--output", "-o", help="With --raw: a file instead of stdout.")
    ] = None,
    others: Others = None,
    config: Config = None,
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

    from oncewire.entry.running.assemble import reading

    settings = loaded(config).settings
    with reading(settings) as reader:
        found = find_id(reader, message_id)
        if raw or out is not None:
            return _raw(settings, reader, found, out, json=json)
        from oncewire.entry.messages.details import details_of

        place = at_party(settings)
        elsewhere = _rows_elsewhere(found, others or [])
        details = details_of(reader, found, now(), settings, elsewhere, place)
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
    from oncewire.entry.messages.submitting import as_file

    parcel = intact_parcel(settings, reader, found)
    data = as_file(parcel)
    facts: dict[str, Any] = {
        "message_id": found,
        "content_type": parcel.content_type,
        "size": len(data),
    }
    if out is not None:
        write_new(out, data, PRIVATE)
        hint = f"oncewire message decode {typed(out)}"
        facts["file"] = str(out)
        return Report(facts, summary=f"Written to {here(out)}.", hints=(hint,))
    if json:
        return Report(facts | {"base64": b64encode(data).decode("ascii")})
    sys.stdout.buffer.write(data)
    return Report()


# --- why ---------------------------------------------------------------------------------------


@output.answers
def why(message_id: MessageId, others: Others = None, config: Config = None) -> Report:
    """Say in one sentence why a message is where it is, and where its time went; then show every
    step it took."""

    from oncewire.entry.messages.story import kept_of, tell, time_of
    from oncewire.entry.running.assemble import reading

    settings = loaded(config).settings
    names = names_of(settings)
    with reading(settings) as reader:
        found, place = find_id(reader, message_id), at_party(settings)
        rows = reader.journal_of(found)
        then = outlook(reader, found, now(), settings, place)
        steps = resolving(reader, found, now(), place)
        kept = kept_of(reader, found)
        timing = time_of(reader, names, kept, now(), {})
        held = "" if kept.arrived is None else held_for(reader, kept.arrived)
    rows += _rows_elsewhere(found, others or [])
    story = tell(found, rows, names, then, steps)
    rungs = [
        (moment(step.at), step.node, step.direction, step.peer, step.what) for step in story.steps
    ]
    columns = ("at", "node", "direction", "peer", "what")
    sentence = placed(story.why + held)
    # The sentence comes first: it is what was asked for.
    facts: dict[str, Any] = {"message_id": found, "why": sentence}
    if timing is not None and timing.said:
        facts["time"] = timing.said
    facts["cpa_id"] = story.cpa_id
    kinds = {row.kind for row in rows}
    if then or ("handed_over" in kinds and not kinds & {"confirmed", "abandoned"}):
        live, said = _live(settings, found, at_party(settings))
        facts |= {"why": sentence + said} | live
    return Report(facts, (Listing("ladder", columns, rungs),), hints=steps)


def _live(settings: Settings, message_id: str, place: str) -> tuple[dict[str, Any], str]:
    """What only a handler that runs knows of a message: how far a large one is that leaves now;
    what the application raised when it was offered one. As facts, and as a sentence."""
    import asyncio

    from oncewire.entry.cli.operator import running
    from oncewire.entry.messages.story import refused_words

    status = asyncio.run(running(settings))
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
    from oncewire.entry.running.assemble import reading

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
    message_id: MessageId,
    out: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file; otherwise evidence-ID.zip.")
    ] = None,
    config: Config = None,
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
    from oncewire.entry.running.assemble import reading

    settings = loaded(config).settings
    with reading(settings) as reader:
        found = find_id(reader, message_id)
        made = evidence_for(settings, reader, found)
    # A MessageId may hold what a file's name must not.
    file = out or Path(f"evidence-{re.sub(r'[^A-Za-z0-9._-]+', '_', found)[:80]}.zip")
    write_new(file, made.as_zip(), PRIVATE)
    files = f"{number_of(len(made.files), 'file')}; `unzip -l {typed(file)}` lists them"
    facts = {
        "message_id": found,
        "file": str(file),
        "signed_for": made.signed_for,
        "taken_over": made.taken_over,
        "files": sorted(made.files) if json or len(made.files) <= FILES_SHOWN else files,
    }
    hints = (f"unzip {typed(file)} -d evidence && sh evidence/verify.sh",)
    proved = output.NOT_FOUND if made.taken_over else output.WRONG
    return Report(
        facts,
        summary=made.proves,
        hints=hints,
        exit_code=output.OK if made.signed_for else proved,
    )


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("show")(show)
    app.command("why")(why)
    app.command("evidence")(evidence)
