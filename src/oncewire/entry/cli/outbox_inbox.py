"""`oncewire send`, `find`, `outbox` and `inbox`: a document goes to a partner, what was sent, what
arrived, and taking it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import structs

from oncewire.entry.cli import output
from oncewire.entry.cli.finding import (
    complete_incoming,
    complete_message,
    complete_outgoing,
    complete_partner,
    find_id,
)
from oncewire.entry.cli.operator import ask
from oncewire.entry.cli.output import Config, Json, Listing, Party, Report, now
from oncewire.entry.control.verbs import MEANINGS, TABLE, Verbs, user_name
from oncewire.entry.files import make_folder, number_of
from oncewire.entry.messages.outlook import outlook, tries
from oncewire.entry.party.names import names_of
from oncewire.errors import InvalidValue, UnknownMessage
from oncewire.journal.history import explain
from oncewire.journal.outcome import fold_outcome
from oncewire.message.instant import moment
from oncewire.protocol.states import IncomingState

if TYPE_CHECKING:
    from oncewire.entry.delivery.received_message import ReceivedMessage
    from oncewire.entry.messages.listing import Asked, ListedMessage
    from oncewire.entry.party.settings import Settings
    from oncewire.handler.actions import Submission

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="At most so many.")]


# --- lists -------------------------------------------------------------------------------------


def _command(name: str, work: Callable[[Path | None, Asked, int], Report]) -> Callable[..., None]:
    """The command of a verb that lists messages, with an option for each of its arguments."""

    def run(*, config: Path | None, json: bool, csv: bool, **given: Any) -> None:
        limit = given.pop("limit")
        output.answer(lambda: work(config, _asked(**given), limit), json=json, csv=csv)

    run.__name__, run.__doc__ = work.__name__, work.__doc__
    parameters = []
    for argument in TABLE[name].arguments:
        said = MEANINGS[argument.name].help
        if argument.name in ("after", "tally"):
            # A command shows as many as are wanted, and says how many there are.
            continue
        if argument.name == "limit":
            parameters.append(output.parameter("limit", Limit, argument.default))
        elif argument.name == "text" and name == "find":
            parameters.append(
                output.parameter("text", Annotated[str, typer.Argument(help=said)], "")
            )
        elif argument.name == "state":
            option = typer.Option("--state", "-s", help=said, autocompletion=_COMPLETE[name])
            parameters.append(output.parameter("state", Annotated[list[str] | None, option], None))
        elif argument.name == "partner":
            names = ("--partner", "-p", *(("--to",) if name == "outbox" else ()))
            option = typer.Option(*names, help=said, autocompletion=complete_partner)
            parameters.append(output.parameter("partner", Annotated[str, option], ""))
        else:
            kind, usual = (bool, False) if argument.type == "bool" else (str, "")
            option = typer.Option(f"--{argument.name}", help=said)
            parameters.append(output.parameter(argument.name, Annotated[kind, option], usual))
    forms = (("config", Config, None), ("json", Json, False), ("csv", output.Csv, False))
    return output.with_parameters(run, [*parameters, *(output.parameter(*form) for form in forms)])


_COMPLETE = {
    "find": lambda incomplete: [*complete_outgoing(incomplete), *complete_incoming(incomplete)],
    "outbox": complete_outgoing,
    "inbox": complete_incoming,
}


def _asked(**given: Any) -> Asked:
    from oncewire.entry.messages.listing import Asked

    return Asked(**given | {"state": ",".join(given["state"] or ())})


def _found(
    settings: Settings, asked: Asked, directions: tuple[str, ...], limit: int
) -> tuple[list[ListedMessage], dict[str, int], dict[str, int]]:
    """The messages, and how many there are of each state, and of parts."""
    from oncewire.entry.messages.listing import every_page, understood
    from oncewire.entry.party.store import reading

    names, now = names_of(settings), output.now()
    if not output.has_store(settings):
        understood(asked, names, directions, now)
        return [], {}, {}
    with reading(settings) as reader:
        found, _ = every_page(reader, names, asked, directions, now, limit)
        return found, reader.counts(), reader.parts_counted()


def find(config: Path | None, asked: Asked, limit: int) -> Report:
    """Find messages, sent and received, newest first.

    TEXT is the beginning of a MessageId or any 8 characters of it, a ConversationId, a file's name,
    or a value in a document that the agreement names as searchable (payload.index). All options
    that are given have to hold; outbox and inbox have the same.

    Examples: oncewire find 4f2a91c0, oncewire find --partner globex --since 2d --state unknown
    """
    settings = output.loaded(config).settings
    found, _, _ = _found(settings, asked, ("out", "in"), limit)
    rows = Listing.of(
        "messages",
        "at=at@ direction message_id partner action state bytes=size reason",
        found,
        empty=_NOTHING,
    )
    summary = f"{number_of(len(found), 'message')}." if found else ""
    if len(found) == limit:
        summary = f"The newest {number_of(len(found), 'message')}; --limit shows more."
    hints = (
        (f"oncewire why {quote(found[0].message_id)}{output.at_party(settings)}",) if found else ()
    )
    return Report(listings=(rows,), summary=summary, hints=hints if len(found) == 1 else ())


def outbox(config: Path | None, asked: Asked, limit: int) -> Report:
    """List what we sent, newest first, and what became of it."""
    settings = output.loaded(config).settings
    found, counts, behind = _found(settings, asked, ("out",), limit)
    summary = _summary(counts, behind, "out.", asked, None if asked.parts else len(found))
    columns = "submitted=at@ message_id to=partner action state tries bytes=size reason"
    empty = _none("Nothing was sent.", asked, summary)
    return Report(listings=(Listing.of("messages", columns, found, empty=empty),), summary=summary)


def listed(config: Path | None, asked: Asked, limit: int) -> Report:
    """List what arrived, newest first; `take` hands it over, `confirm` says that you have it."""
    settings = output.loaded(config).settings
    found, counts, behind = _found(settings, asked, ("in",), limit)
    # A party whose application is called does not take by hand what the application is given.
    pulls = settings.application.way == "pull"
    ready = pulls and counts.get("in.ready", 0) + counts.get("in.handed_over", 0)
    summary = _summary(counts, behind, "in.", asked, None if asked.parts else len(found))
    columns = "received=at@ message_id from=partner action state bytes=size"
    empty = _none("Nothing has arrived.", asked, summary)
    return Report(
        listings=(Listing.of("messages", columns, found, empty=empty),),
        summary=summary,
        hints=(f"oncewire inbox take --output FOLDER{output.at_party(settings)}",) if ready else (),
    )


def _states_of(asked: Asked) -> list[str]:
    return [word.strip().lower() for word in asked.state.split(",") if word.strip()]


def _is_narrow(asked: Asked) -> bool:
    """Whether more is asked for than states, of which it is known how many messages they have."""
    from oncewire.entry.messages.listing import Asked

    return asked != Asked(state=asked.state, parts=asked.parts)


_NOTHING = (
    "Nothing is found. A MessageId is found by its beginning or by 8 characters in a row before "
    "its @; a ConversationId, a file name or a value in a document by all of it; as it is written."
)


def _none(at_all: str, asked: Asked, summary: str) -> str:
    """Nothing at all, or nothing of the kind that was asked for; then the summary follows."""
    if _is_narrow(asked):
        return _NOTHING
    states = _states_of(asked)
    return f"Nothing is {' or '.join(states)}; in all:" if states and summary else at_all


def _summary(
    counts: dict[str, int], behind: dict[str, int], prefix: str, asked: Asked, shown: int | None
) -> str:
    """How many messages there are, and how many parts stand behind documents: all of them where
    they are listed (`shown` is None), else those that wait for a document. Where more is asked for
    than states, how many are shown."""
    if _is_narrow(asked):
        return f"{number_of(shown, 'message')}." if shown else ""
    states = _states_of(asked)
    said = [_counted(counts, prefix, states, shown)]
    waiting = behind.get(f"{prefix}{_GATHERED}", 0)
    if shown is None:
        parts = _counted(behind, prefix, states, None)
        said.append(parts and f"Of parts of documents: {parts}")
    elif waiting and (not states or _GATHERED in states):
        many = number_of(waiting, "part", "waits")
        said.append(f"{many} for the rest of their documents: --parts shows them.")
    return " ".join(filter(None, said))


_GATHERED = "gathered"


def _counted(counts: dict[str, int], prefix: str, states: Sequence[str], shown: int | None) -> str:
    """How many there are in each state that was asked for, and whether fewer are shown. Where
    none is in those states, how many there are in all."""
    found = {
        name.removeprefix(prefix): count
        for name, count in counts.items()
        if name.startswith(prefix) and count
    }
    if shown != 0 and states:
        found = {state: count for state, count in found.items() if state in states}
    said = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in found.items())
    if not said:
        return ""
    if shown and shown < sum(found.values()):
        newest = "The newest is" if shown == 1 else f"The newest {shown} are"
        return f"{said}. {newest} shown; --limit shows more."
    return f"{said}."


# --- inbox -------------------------------------------------------------------------------------


@output.answers
def take(
    settings: Party,
    out: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write messages into this folder, and confirm them."),
    ] = None,
    limit: Limit = 100,
    confirmed: Annotated[
        bool, typer.Option("--confirm/--no-confirm", help="With --output: confirm what is written.")
    ] = True,
    json: Json = False,
) -> Report:
    """Take messages that wait. With --output they become files; without, they are shown.

    What is shown but not confirmed is handed out again after a minute, marked `redelivered`.
    """

    from asyncio import to_thread

    folder, name = None if out is None else make_folder(out), names_of(settings)

    async def take_all(verbs: Verbs) -> tuple[list[tuple[Any, ...]], list[tuple[str, ...]]]:
        rows: list[tuple[Any, ...]] = []
        contents: list[tuple[str, ...]] = []
        for message in await verbs.take(limit, by=user_name()):
            files: tuple[Path, ...] = ()
            if folder is not None:
                # Confirmed only when the files are on the disk: a crash in between repeats.
                files = await to_thread(_written, folder, message, quiet=json)
                if confirmed:
                    await verbs.confirm(message.sender, message.message_id)
            else:
                contents += _shown(message)
            party, done = name(message.from_party, message.cpa_id), bool(folder and confirmed)
            named = (message.message_id, party, message.action, message.redelivered, done)
            rows.append((*named, [output.here(path) for path in files]))
        return rows, contents

    (rows, contents), _ = ask(settings, take_all)
    shown = ("message_id", "file_name", "media_type", "content")
    columns = ("message_id", "from", "action", "redelivered", "confirmed", "files")
    hints = (
        ()
        if out or not rows
        else (f"oncewire inbox confirm MESSAGE_ID{output.at_party(settings)}",)
    )
    into = "" if out is None else f" into {output.here(out)}"
    taken = f"{number_of(len(rows), 'message')} taken{into}."
    return Report(
        listings=(
            Listing("messages", columns, rows, empty="Nothing waits."),
            *([Listing("contents", shown, contents)] if contents else []),
        ),
        summary=taken if rows else _handed_out(settings),
        hints=hints,
    )


def _handed_out(settings: Settings) -> str:
    """What somebody took and did not confirm yet: it waits for nobody, and is not done with."""
    from oncewire.entry.party.store import reading

    with reading(settings) as reader:
        count = reader.counts()["in.handed_over"]
        found = reader.incoming_list(states=(IncomingState.HANDED_OVER,), limit=100_000)
    if not count:
        return ""
    what = number_of(count, "message", "is")
    ends = [
        stored.incoming.lease_ends for stored in found if stored.incoming.lease_ends is not None
    ]
    if not ends:
        return f"{what} handed out and not confirmed."
    when = f"at {moment(min(ends))}"
    again = f"it comes again {when}" if count == 1 else f"the first comes again {when}"
    return f"{what} handed out and not confirmed; {again}."


def _written(folder: Path, message: ReceivedMessage, *, quiet: bool) -> tuple[Path, ...]:
    """Write the files of a message, and tell how far it is if that takes time."""
    from oncewire.entry.delivery.directory import put_message
    from oncewire.entry.messages.documents import counted

    size = sum(payload.size for payload in message.payloads)
    with output.bytes_progress("taking", size, quiet=quiet) as heard:
        payloads = tuple(counted(payload, heard) for payload in message.payloads)
        return put_message(folder, replace(message, payloads=payloads))


def _shown(message: ReceivedMessage) -> list[tuple[str, str, str, str]]:
    """Payloads as far as they can be shown."""
    found = []
    for payload in message.payloads:
        with payload.open() as file:
            data = file.read(4096)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text = f"({payload.size} bytes)"
        if payload.size > 4096:
            text += f"... ({payload.size} bytes; --output writes all of them)"
        found.append((message.message_id, payload.file_name, payload.media_type, text))
    return found


@output.answers
def confirm(
    settings: Party,
    message_ids: Annotated[
        list[str],
        typer.Argument(
            help="MessageIds, or unique parts of them.", autocompletion=complete_message
        ),
    ],
    by: Annotated[
        str, typer.Option(help="Who says so; without it, your user name in the operating system.")
    ] = "",
) -> Report:
    """Say that you have a message: it will not be handed out again. Saying it twice is harmless.

    The journal keeps that a person confirmed it, and who. What nobody has is given up instead:
    `oncewire abandon`.
    """

    from oncewire.entry.party.store import reading

    with reading(settings) as reader:
        ids = {find_id(reader, wanted_id) for wanted_id in message_ids}
        senders = [
            (stored.incoming.sender, stored.incoming.message_id)
            for stored in reader.incoming_list(limit=100_000)
            if stored.incoming.message_id in ids
        ]
    if missing := ids - {message_id for _, message_id in senders}:
        raise UnknownMessage(
            f"message {min(missing)} did not arrive here", remedy="`oncewire inbox` lists what did"
        )
    name, who = names_of(settings), by or user_name()

    async def confirm_all(verbs: Verbs) -> list[tuple[str, str, bool]]:
        return [
            (message_id, name(sender), await verbs.confirm(sender, message_id, who))
            for sender, message_id in senders
        ]

    rows, _ = ask(settings, confirm_all)
    return Report(
        listings=(Listing("confirmed", ("message_id", "from", "first"), rows),),
        summary="Confirmed.",
    )


# --- send --------------------------------------------------------------------------------------


@output.answers
def send(
    settings: Party,
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
    options = SendOptions(service, action, conversation, message_id, ref_to, time_to_live or None)
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
    submissions = [submission_of(agreement, payloads, options, there, by) for payloads in groups]
    return _sent(settings, submissions, timeout if wait else None, quiet=json)


def _sent(
    settings: Settings, submissions: list[Submission], timeout: float | None, *, quiet: bool
) -> Report:
    """Submit, and wait for outcomes if a time-out is given."""
    import asyncio

    async def run(verbs: Verbs) -> list[tuple[str, str, bool]]:
        size = sum(payload.size for each in submissions for payload in each.payloads)
        with output.bytes_progress("handing in", size, quiet=quiet) as heard:
            accepted = [await verbs.send(_heard(one, heard)) for one in submissions]
        with output.progress("sending", len(submissions), quiet=quiet) as advance:

            async def outcome(message_id: str) -> str:
                """Its state; empty: it has no outcome yet, or that was not waited for."""
                state = None if timeout is None else await verbs.wait(message_id, timeout)
                advance(1)
                return "" if state is None else state.value

            states = await asyncio.gather(*(outcome(each.message_id) for each in accepted))
        return [
            (each.message_id, state, each.repeated)
            for each, state in zip(accepted, states, strict=True)
        ]

    rows, at_rest = ask(settings, run, running=timeout is not None)
    return _sent_report(settings, rows, waited=timeout is not None, at_rest=at_rest)


def _heard(submission: Submission, heard: output.Advance) -> Submission:
    """The submission; what is read of its documents is told."""
    from oncewire.entry.messages.documents import counted

    payloads = tuple(counted(payload, heard) for payload in submission.payloads)
    return structs.replace(submission, payloads=payloads)


def _sent_report(
    settings: Settings, rows: list[tuple[str, str, bool]], *, waited: bool, at_rest: bool
) -> Report:
    from oncewire.entry.party.store import open_readers

    table: list[tuple[Any, ...]] = []
    sentence = ""
    name = names_of(settings)
    readers = open_readers(settings)
    for message_id, state, repeated in rows:
        with readers.reader() as reader:
            journal, stored = reader.journal_of(message_id), reader.outgoing(message_id)
            if len(rows) == 1:
                then = outlook(reader, message_id, now(), settings, output.at_party(settings))
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
            start = f"start `oncewire serve{output.at_party(settings)}` to have it sent"
            summary = f"{what} stored. No handler runs: {start}."
    elif len(rows) == 1:
        summary = sentence
    else:
        summary = f"{good} of {len(rows)} messages are delivered."
    if waited and at_rest and any(not state for _, state, _ in rows):
        # The handler of this command ended with it, and so did the timers that it shows.
        summary += " No handler runs now: nothing more happens until "
        summary += f"`oncewire serve{output.at_party(settings)}` is started."
    columns = ("message_id", "to", "state", "tries", "milliseconds", "repeated")
    shown = rows[0][0] if len(rows) == 1 else "MESSAGE_ID"
    return Report(
        listings=(Listing("messages", columns, table),),
        summary=summary,
        hints=(f"oncewire why {quote(shown)}{output.at_party(settings)}",),
        exit_code=output.WRONG if waited and good < len(rows) else output.OK,
    )


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("find")(_command("find", find))
    app.command("outbox")(_command("outbox", outbox))
    says, itself = "What arrived: list it, take it, confirm it.", _command("inbox", listed)
    output.add_group(app, "inbox", says, {"take": take, "confirm": confirm}, itself=itself)
    app.command("send")(send)
