"""`oncewire send`: a document goes to a partner, once and only once."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

from oncewire.entry.cli import output
from oncewire.entry.cli.completion import complete_partner
from oncewire.entry.cli.output import (
    Config,
    Json,
    Listing,
    Report,
    at_party,
    loaded,
    now,
)
from oncewire.entry.files import number_of
from oncewire.entry.messages.outlook import outlook, tries
from oncewire.entry.party.names import names_of
from oncewire.errors import InvalidValue
from oncewire.journal.history import explain
from oncewire.journal.outcome import fold_outcome

if TYPE_CHECKING:
    from oncewire.entry.control.verbs import Verbs
    from oncewire.entry.messages.submitting import SendOptions
    from oncewire.entry.party.settings import Settings
    from oncewire.handler.actions import Accepted, Submission


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("send")(send)


@output.answers
def send(
    files: Annotated[
        list[str],
        typer.Argument(
            help="The document: FILE or 'FILE;media/type', - is standard input. Several: several "
            "payloads."
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="The partner: its name or its PartyId; without it the only one there is.",
            autocompletion=complete_partner,
        ),
    ] = "",
    cpa: Annotated[str, typer.Option("--cpa", help="Or the agreement, by its CPAId.")] = "",
    service: Annotated[
        str, typer.Option(help="The service, if the agreement has several; its type is found.")
    ] = "",
    action: Annotated[str, typer.Option(help="The action, likewise.")] = "",
    conversation: Annotated[
        str,
        typer.Option(
            help="ConversationId; without it the one that all messages to the partner share."
        ),
    ] = "",
    message_id: Annotated[
        str, typer.Option(help="MessageId; repeating the command with it cannot send twice.")
    ] = "",
    ref_to: Annotated[str, typer.Option(help="The MessageId that this one responds to.")] = "",
    time_to_live: Annotated[str, typer.Option(help="Worthless after, e.g. PT1H.")] = "",
    each: Annotated[
        bool, typer.Option("--each", help="One message for each file instead of one for all.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait until the outcome is known.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0, help="Wait no longer than so many seconds.")
    ] = 60.0,
    config: Config = None,
    json: Json = False,
) -> Report:
    """Send a document to a partner, once and only once.

    When this command ends well, the message is stored: it will be delivered, or you are told.
    If no handler runs, it leaves when `oncewire serve` is started; with --wait a handler runs
    for as long as it takes. Example: oncewire send order.xml --to globex --wait
    """

    from oncewire.entry.messages.submitting import SendOptions

    if each and len(files) > 1 and message_id:
        raise InvalidValue("several messages cannot share a MessageId", remedy="leave it out")
    options = SendOptions(
        service,
        action,
        conversation,
        message_id,
        ref_to,
        time_to_live or None,
    )
    settings = loaded(config).settings
    submissions = _submissions(settings, files, to, cpa, options, each=each)
    return _sent(settings, submissions, timeout if wait else None, quiet=json)


def _submissions(
    settings: Settings, files: list[str], to: str, cpa: str, options: SendOptions, *, each: bool
) -> list[Submission]:
    from oncewire.entry.control.verbs import user_name
    from oncewire.entry.messages.submitting import find_agreement, payload_of, submission_of
    from oncewire.entry.party.agreements import load_readable

    if sum(name.partition(";")[0] == "-" for name in files) > 1:
        raise InvalidValue("standard input is named more than once", remedy="it is one document")
    agreement = find_agreement(load_readable(settings), to, cpa)
    if each:
        groups = [[payload_of(name, 1)] for name in files]
    else:
        groups = [[payload_of(name, number) for number, name in enumerate(files, 1)]]
    there, by = settings.transports, user_name()
    return [submission_of(agreement, payloads, options, there, by) for payloads in groups]


def _sent(
    settings: Settings, submissions: list[Submission], timeout: float | None, *, quiet: bool
) -> Report:
    """Submit, and wait for outcomes if a time-out is given."""
    import asyncio

    from oncewire.entry.control.client import Remote
    from oncewire.entry.logs import only_errors
    from oncewire.entry.running.open_party import reach, reach_running

    async def run() -> tuple[list[tuple[str, str, bool]], bool]:
        door = reach(settings) if timeout is None else reach_running(settings)
        async with door as verbs:
            with output.bytes_progress(
                "handing in",
                sum(payload.size for submission in submissions for payload in submission.payloads),
                quiet=quiet,
            ) as heard:
                accepted = [await verbs.send(_counted(one, heard)) for one in submissions]
            with output.progress("sending", len(submissions), quiet=quiet) as advance:
                rows = await _outcomes(verbs, accepted, timeout, advance)
            return rows, not isinstance(verbs, Remote)

    with only_errors():
        rows, at_rest = asyncio.run(run())
    return _sent_report(settings, rows, waited=timeout is not None, at_rest=at_rest)


def _counted(submission: Submission, heard: output.Advance) -> Submission:
    """The submission; what is read of its documents is told."""
    from oncewire.entry.messages.documents import counted

    payloads = tuple(counted(payload, heard) for payload in submission.payloads)
    return replace(submission, payloads=payloads)


async def _outcomes(
    verbs: Verbs, accepted: list[Accepted], timeout: float | None, advance: output.Advance
) -> list[tuple[str, str, bool]]:
    """(MessageId, state or empty, repeated) of each, in order."""
    import asyncio

    if timeout is None:
        return [
            (each_accepted.message_id, "", each_accepted.repeated) for each_accepted in accepted
        ]

    async def outcome(message_id: str) -> str:
        state = await verbs.wait(message_id, timeout)
        advance(1)
        return "" if state is None else state.value

    states = await asyncio.gather(
        *(outcome(each_accepted.message_id) for each_accepted in accepted)
    )
    return [
        (each_accepted.message_id, state, each_accepted.repeated)
        for each_accepted, state in zip(accepted, states, strict=True)
    ]


def _sent_report(
    settings: Settings, rows: list[tuple[str, str, bool]], *, waited: bool, at_rest: bool
) -> Report:
    from oncewire.entry.running.assemble import open_readers

    table: list[tuple[Any, ...]] = []
    sentence = ""
    name = names_of(settings)
    readers = open_readers(settings)
    for message_id, state, repeated in rows:
        with readers.reader() as reader:
            journal, stored = reader.journal_of(message_id), reader.outgoing(message_id)
            if len(rows) == 1:
                then = outlook(reader, message_id, now(), settings, at_party(settings))
                sentence = explain(journal, outlook=then)
        outcome = fold_outcome(journal)
        latency = None if outcome is None or outcome.latency is None else outcome.latency // 1000
        # Named also where the caller did not say whom it is for, and there is only one.
        to = "" if stored is None else name(stored.facts.to_party, stored.facts.cpa_id)
        tried: int | None = 0 if outcome is None else outcome.attempts
        if stored is not None and tries(stored) is None:
            tried = None
        table.append((message_id, to, state or "stored", tried, latency, repeated))
    readers.close()
    good = sum(1 for row in table if row[2] in ("delivered", "sent"))
    if not waited:
        what = number_of(len(rows), "message", "is")
        summary = f"{what} stored and will be sent."
        if at_rest:
            start = f"start `oncewire serve{at_party(settings)}` to have it sent"
            summary = f"{what} stored. No handler runs: {start}."
    elif len(rows) == 1:
        summary = sentence
    else:
        summary = f"{good} of {len(rows)} messages are delivered."
    if waited and at_rest and any(not state for _, state, _ in rows):
        # The handler of this command ended with it, and so did the timers that it shows.
        summary += " No handler runs now: nothing more happens until "
        summary += f"`oncewire serve{at_party(settings)}` is started."
    columns = ("message_id", "to", "state", "tries", "milliseconds", "repeated")
    shown = rows[0][0] if len(rows) == 1 else "MESSAGE_ID"
    return Report(
        listings=(Listing("messages", columns, table),),
        summary=summary,
        hints=(f"oncewire why {quote(shown)}{at_party(settings)}",),
        exit_code=output.WRONG if waited and good < len(rows) else output.OK,
    )
