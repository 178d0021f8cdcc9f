"""`oncewire show` and `why`: what is known of a message, and why it is where it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
from oncewire.entry.files import number_of
from oncewire.entry.messages.outlook import outlook, resolving
from oncewire.entry.party.agreements import names_of
from oncewire.message.instant import moment

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings
    from oncewire.journal.outcome import MessageOutcome, Parts
    from oncewire.journal.row import Row
    from oncewire.message.instant import Instant
    from oncewire.store.contract import Reader
    from oncewire.store.records import MessageFacts


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

    from oncewire.entry.running.assemble import open_readers

    settings = loaded(config).settings
    with open_readers(settings).reader() as reader:
        found = find_id(reader, message_id)
        if raw or out is not None:
            return _raw(settings, reader, found, out, json=json)
        return _known(settings, reader, found, others or [])


def _known(settings: Settings, reader: Reader, found: str, others: list[Path]) -> Report:
    from oncewire.entry.messages.stored import documents_of
    from oncewire.journal.history import explain
    from oncewire.journal.outcome import fold_outcome, parts_of

    rows = reader.journal_of(found)
    outcome = fold_outcome(rows)
    if outcome is None:
        return Report({"message_id": found})
    parts = parts_of(rows, reader.journal_of)
    known: dict[str, Any] = {
        "message_id": found,
        "outcome": outcome.outcome,
        "reason": _reason(outcome, parts),
        "refused_by": outcome.refused_by,
        "refusal": outcome.refusal,
        "confirmed_by": outcome.confirmed_by,
        "given_up_by": outcome.given_up_by,
        **_stored(reader, found),
        **_parts(rows, parts),
        "attempts": _tried(rows, outcome, parts),
        "duplicates_stopped": outcome.duplicates_stopped,
        "channel": outcome.channel,
        "epoch": outcome.epoch,
        "sequence_number": outcome.sequence_number,
        "submitted": moment(outcome.submitted_at),
        "first_sent": moment(_first_sent(outcome, parts)),
        "acknowledged": moment(outcome.acknowledged_at),
        "failed": moment(outcome.failed_at),
        "received": moment(outcome.received_at),
        "handed_over": moment(outcome.handed_over_at),
        "confirmed": moment(outcome.confirmed_at),
        "size": outcome.size,
        "identity_digest": _identity(outcome),
        "terms": outcome.terms_id,
        "legal_hold": reader.on_hold(found),
        "removed": moment(
            max((removed.removed_at for removed in reader.removed(found)), default=None)
        ),
    }
    place = at_party(settings)
    told = explain(rows, outlook=outlook(reader, found, now(), settings, place))
    hops = _trail(rows + _rows_elsewhere(found, others), parts)
    hints = [f"oncewire why {quote(found)}{place}"]
    if "parts" in known:
        hints.append(f"oncewire {'inbox' if parts is None else 'outbox'} --parts{place}")
    columns = ("file_name", "media_type", "bytes", "sha256")
    documents = Listing("documents", columns, documents_of(reader, found))
    shown = tuple(listing for listing in (documents, hops) if listing.rows)
    return Report(known, shown, summary=told, hints=tuple(hints), sparse=True)


def _parts(rows: list[Row], parts: Parts | None) -> dict[str, int]:
    """Of a document in parts: how many they are and, where it is sent from, how many arrived."""
    from oncewire.journal.outcome import parts_total

    total = parts_total(rows)
    if total is None:
        return {}
    return {"parts": total} | ({} if parts is None else {"parts_acknowledged": parts.acknowledged})


def _identity(outcome: MessageOutcome) -> str | None:
    """What was joined of parts came as no message: the digest of its row is the document's."""
    return None if outcome.document and outcome.sender is None else outcome.digest


def _reason(outcome: MessageOutcome, parts: Parts | None) -> str:
    """Of a document that is under way by its parts, what is said of any message that left."""
    left = parts is not None and parts.first_sent_at is not None
    return "waiting" if left and outcome.reason == "queued" else outcome.reason


def _tried(rows: list[Row], outcome: MessageOutcome, parts: Parts | None) -> int | None:
    """How often it was sent, by its parts where those travel; only its sender knows. A hub that
    promised nothing knows how often it passed it on."""
    from oncewire.journal.history import passes_of
    from oncewire.journal.outcome import PROXIED

    if outcome.reason == PROXIED:
        return passes_of(rows)
    if outcome.sender is None:
        return None
    return outcome.attempts + (0 if parts is None else parts.attempts)


def _first_sent(outcome: MessageOutcome, parts: Parts | None) -> Instant | None:
    if parts is None or parts.first_sent_at is None:
        return outcome.first_sent_at
    return parts.first_sent_at


def _trail(rows: list[Row], parts: Parts | None) -> Listing:
    """Each hop. A document in parts leaves its sender by them: the first hop is theirs."""
    from oncewire.journal.history import trail

    columns = ("hop", "node", "to", "sent", "attempts", "received", "acknowledged", "standing")
    found = trail(rows)
    if found and parts is not None:
        first, sent_at = found[0], found[0].sent_at or parts.first_sent_at
        standing = str(parts) if first.acknowledged_at is None else f"{first.standing}, {parts}"
        attempts = first.attempts + parts.attempts
        found[0] = replace(first, sent_at=sent_at, attempts=attempts, standing=standing)
    hops = [
        (
            *(hop.number, hop.node, hop.peer or "", moment(hop.sent_at), hop.attempts),
            *(moment(hop.received_at), moment(hop.acknowledged_at), hop.standing),
        )
        for hop in found
    ]
    return Listing("trail", columns, hops)


def _stored(reader: Reader, message_id: str) -> dict[str, Any]:
    """What the state rows add, for as long as they are kept."""
    sent = reader.outgoing(message_id)
    if sent is not None:
        facts = {"direction": "out", "state": sent.outgoing.state, **_header(sent.facts)}
        facts["next_attempt"] = moment(sent.outgoing.next_attempt_at)
        facts["expires"] = moment(sent.outgoing.expires_at)
        return facts
    for arrived in reader.incoming(message_id):
        facts = {"direction": "in", "state": arrived.incoming.state, **_header(arrived.facts)}
        facts["hand_overs"] = arrived.incoming.hand_overs
        facts["lease_until"] = moment(arrived.incoming.lease_ends)
        return facts
    return {}


def _raw(settings: Settings, reader: Reader, found: str, out: Path | None, *, json: bool) -> Report:
    """The stored bytes: into a file, or bare on stdout; in JSON as base64."""
    import sys
    from base64 import b64encode

    from oncewire.entry.files import PRIVATE, write_new
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


def _header(facts: MessageFacts) -> dict[str, Any]:
    return {
        "kind": facts.kind,
        "from": facts.from_party,
        "to": facts.to_party,
        "cpa_id": facts.cpa_id,
        "conversation_id": facts.conversation_id,
        "service": facts.service,
        "action": facts.action,
        "timestamp": moment(facts.timestamp),
        "ref_to": facts.ref_to,
    }


# --- why ---------------------------------------------------------------------------------------


@output.answers
def why(message_id: MessageId, others: Others = None, config: Config = None) -> Report:
    """Say in one sentence why a message is where it is; then show every step it took."""

    from oncewire.entry.messages.outlook import tell

    settings = loaded(config).settings
    found, rows, then, steps = _rows_of(settings, message_id, others or [])
    story = tell(found, rows, names_of(settings), then, steps)
    rungs = [
        (moment(step.at), step.node, step.direction, step.peer, step.what) for step in story.steps
    ]
    columns = ("at", "node", "direction", "peer", "what")
    sentence = placed(story.why)
    # The sentence comes first: it is what was asked for.
    facts: dict[str, Any] = {"message_id": found, "why": sentence, "cpa_id": story.cpa_id}
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

    status = asyncio.run(running(settings))
    if status is not None and message_id in status.transfers:
        sent, size = status.transfers[message_id]
        return {"bytes_sent": sent, "bytes_in_all": size}, ""
    if status is None or message_id not in status.refusals:
        return {}, ""
    count, at, raised = status.refusals[message_id]
    often = "once" if count == 1 else f"{count} times"
    return {"refusals": count, "last_refusal": moment(at), "raised": raised}, (
        f" The application refused it {often}, the last time at {moment(at)}: {raised}. Mend the "
        "application: it is offered it until it takes it; what it can never take "
        f"`oncewire abandon {quote(message_id)}{place}` gives up."
    )


def _rows_of(
    settings: Settings, message_id: str, others: list[Path]
) -> tuple[str, list[Row], str, tuple[str, ...]]:
    """The message that is meant, its rows in all journals, its outlook in ours, and the commands
    that resolve its incidents."""
    from oncewire.entry.running.assemble import open_readers

    with open_readers(settings).reader() as reader:
        found, place = find_id(reader, message_id), at_party(settings)
        rows = reader.journal_of(found)
        then = outlook(reader, found, now(), settings, place)
        steps = resolving(reader, found, now(), place)
    return found, rows + _rows_elsewhere(found, others), then, steps


def _rows_elsewhere(message_id: str, others: list[Path]) -> list[Row]:
    """What the journals of other parties, whose folders are at hand, tell of a message."""
    from oncewire.entry.party.settings import load
    from oncewire.entry.running.assemble import open_readers

    rows: list[Row] = []
    for folder in others:
        with open_readers(load(folder, environ={}).settings).reader() as reader:
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
    nobody signed for it, or the kept bytes are not what was signed, the page says so.

    Example: oncewire evidence 3f2a --output dispute.zip
    """

    import re

    from oncewire.entry.files import PRIVATE, write_new
    from oncewire.entry.messages.evidence import evidence_of, evidence_of_parts
    from oncewire.entry.messages.stored import held_of, parts_of
    from oncewire.entry.running.assemble import open_readers

    settings = loaded(config).settings
    with open_readers(settings).reader() as reader:
        found = find_id(reader, message_id)
        parts, total = parts_of(reader, found)
        if parts:
            kept = [held_of(settings, reader, part) for part in parts]
            made = evidence_of_parts(found, kept, total)
        else:
            made = evidence_of(held_of(settings, reader, found))
    # A MessageId may hold what a file's name must not.
    file = out or Path(f"evidence-{re.sub(r'[^A-Za-z0-9._-]+', '_', found)[:80]}.zip")
    write_new(file, made.as_zip(), PRIVATE)
    files = f"{number_of(len(made.files), 'file')}; `unzip -l {typed(file)}` lists them"
    facts = {
        "message_id": found,
        "file": str(file),
        "signed_for": made.signed_for,
        "files": sorted(made.files) if json or len(made.files) <= FILES_SHOWN else files,
    }
    hints = (f"unzip {typed(file)} -d evidence && sh evidence/verify.sh",)
    return Report(facts, summary=made.proves, hints=hints)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("show")(show)
    app.command("why")(why)
    app.command("evidence")(evidence)
