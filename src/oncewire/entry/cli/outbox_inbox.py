"""`oncewire find`, `outbox` and `inbox`: what was sent, what arrived, and taking it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.completion import (
    complete_incoming,
    complete_message,
    complete_outgoing,
    complete_partner,
)
from oncewire.entry.cli.output import (
    Config,
    Csv,
    Json,
    Listing,
    Report,
    at_party,
    find_id,
    has_store,
    here,
    loaded,
)
from oncewire.entry.files import make_folder, number_of
from oncewire.entry.party.names import names_of
from oncewire.errors import UnknownMessage
from oncewire.message.instant import moment

if TYPE_CHECKING:
    from oncewire.entry.delivery.received_message import ReceivedMessage
    from oncewire.entry.messages.listing import Asked, ListedMessage
    from oncewire.entry.party.settings import Settings

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="At most so many.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("find")(_command("find", find))
    app.command("outbox")(_command("outbox", outbox))
    inbox = typer.Typer(
        help="What arrived: list it, take it, confirm it.", invoke_without_command=True
    )
    inbox.callback()(_command("inbox", listed))
    inbox.command("take")(take)
    inbox.command("confirm")(confirm)
    app.add_typer(inbox, name="inbox")


# --- lists -------------------------------------------------------------------------------------


def _command(name: str, work: Callable[[Path | None, Asked, int], Report]) -> Callable[..., None]:
    """The command of a verb that lists messages, with an option for each of its arguments."""
    from oncewire.entry.control.verbs import MEANINGS, TABLE

    def run(
        *, context: typer.Context, config: Path | None, json: bool, csv: bool, **given: Any
    ) -> None:
        if context.invoked_subcommand is not None:
            return
        limit = given.pop("limit")
        output.answer(lambda: work(config, _asked(**given), limit), json=json, csv=csv)

    parameters: list[tuple[str, Any, Any]] = [("context", typer.Context, inspect.Parameter.empty)]
    for argument in TABLE[name].arguments:
        said = MEANINGS[argument.name].help
        if argument.name in ("after", "tally"):
            # A command shows as many as are wanted, and says how many there are.
            continue
        if argument.name == "limit":
            parameters.append(("limit", Limit, argument.default))
        elif argument.name == "text" and name == "find":
            parameters.append(("text", Annotated[str, typer.Argument(help=said)], ""))
        elif argument.name == "state":
            option = typer.Option("--state", "-s", help=said, autocompletion=_COMPLETE[name])
            parameters.append(("state", Annotated[list[str] | None, option], None))
        elif argument.name == "partner":
            names = ("--partner", "-p", *(("--to",) if name == "outbox" else ()))
            option = typer.Option(*names, help=said, autocompletion=complete_partner)
            parameters.append(("partner", Annotated[str, option], ""))
        else:
            option = typer.Option(f"--{argument.name}", help=said)
            if argument.type == "bool":
                parameters.append((argument.name, Annotated[bool, option], False))
            else:
                parameters.append((argument.name, Annotated[str, option], ""))
    parameters += [("config", Config, None), ("json", Json, False), ("csv", Csv, False)]
    kind = inspect.Parameter.KEYWORD_ONLY
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(each, kind, default=default, annotation=annotation)
            for each, annotation, default in parameters
        ]
    )
    run.__annotations__ = {each: annotation for each, annotation, _ in parameters}
    run.__name__, run.__doc__ = work.__name__, work.__doc__
    return run


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
    from oncewire.entry.running.assemble import reading

    names, now = names_of(settings), output.now()
    if not has_store(settings):
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
    settings = loaded(config).settings
    found, _, _ = _found(settings, asked, ("out", "in"), limit)
    columns = ("at", "direction", "message_id", "partner", "action", "state", "bytes", "reason")
    rows = [
        (
            moment(one.at),
            one.direction,
            one.message_id,
            one.partner,
            one.action,
            one.state,
            one.size,
            one.reason,
        )
        for one in found
    ]
    summary = f"{number_of(len(rows), 'message')}." if rows else ""
    if len(rows) == limit:
        summary = f"The newest {number_of(len(rows), 'message')}; --limit shows more."
    hints = (f"oncewire why {quote(found[0].message_id)}{at_party(settings)}",) if found else ()
    return Report(
        listings=(Listing("messages", columns, rows, empty=_NOTHING),),
        summary=summary,
        hints=hints if len(found) == 1 else (),
    )


def outbox(config: Path | None, asked: Asked, limit: int) -> Report:
    """List what we sent, newest first, and what became of it."""
    settings = loaded(config).settings
    columns = ("submitted", "message_id", "to", "action", "state", "tries", "bytes", "reason")
    found, counts, behind = _found(settings, asked, ("out",), limit)
    rows = [
        (
            moment(one.at),
            one.message_id,
            one.partner,
            one.action,
            one.state,
            one.tries,
            one.size,
            one.reason,
        )
        for one in found
    ]
    summary = _summary(counts, behind, "out.", asked, None if asked.parts else len(rows))
    empty = _none("Nothing was sent.", asked, summary)
    return Report(listings=(Listing("messages", columns, rows, empty=empty),), summary=summary)


def listed(config: Path | None, asked: Asked, limit: int) -> Report:
    """List what arrived, newest first; `take` hands it over, `confirm` says that you have it."""
    settings = loaded(config).settings
    columns = ("received", "message_id", "from", "action", "state", "bytes")
    found, counts, behind = _found(settings, asked, ("in",), limit)
    rows = [
        (moment(one.at), one.message_id, one.partner, one.action, one.state, one.size)
        for one in found
    ]
    # A party whose application is called does not take by hand what the application is given.
    pulls = settings.application.way == "pull"
    ready = pulls and counts.get("in.ready", 0) + counts.get("in.handed_over", 0)
    summary = _summary(counts, behind, "in.", asked, None if asked.parts else len(rows))
    empty = _none("Nothing has arrived.", asked, summary)
    return Report(
        listings=(Listing("messages", columns, rows, empty=empty),),
        summary=summary,
        hints=(f"oncewire inbox take --output FOLDER{at_party(settings)}",) if ready else (),
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
    out: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write messages into this folder, and confirm them."),
    ] = None,
    limit: Limit = 100,
    confirmed: Annotated[
        bool, typer.Option("--confirm/--no-confirm", help="With --output: confirm what is written.")
    ] = True,
    config: Config = None,
    json: Json = False,
) -> Report:
    """Take messages that wait. With --output they become files; without, they are shown.

    What is shown but not confirmed is handed out again after a minute, marked `redelivered`.
    """

    import asyncio

    settings = loaded(config).settings
    rows, shown = asyncio.run(_take(settings, limit, out, confirmed=confirmed, quiet=json))
    columns = ("message_id", "from", "action", "redelivered", "confirmed", "files")
    hints = () if out or not rows else (f"oncewire inbox confirm MESSAGE_ID{at_party(settings)}",)
    taken = f"{number_of(len(rows), 'message')} taken{'' if out is None else f' into {here(out)}'}."
    return Report(
        listings=(Listing("messages", columns, rows, empty="Nothing waits."), *shown),
        summary=taken if rows else _handed_out(settings),
        hints=hints,
    )


def _handed_out(settings: Settings) -> str:
    """What somebody took and did not confirm yet: it waits for nobody, and is not done with."""
    from oncewire.entry.running.assemble import reading
    from oncewire.protocol.states import IncomingState

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


async def _take(
    settings: Settings, limit: int, out: Path | None, *, confirmed: bool, quiet: bool
) -> tuple[list[tuple[Any, ...]], tuple[Listing, ...]]:
    import asyncio

    from oncewire.entry.control.verbs import user_name
    from oncewire.entry.running.open_party import reach

    folder = None if out is None else make_folder(out)
    name = names_of(settings)
    rows: list[tuple[Any, ...]] = []
    contents: list[tuple[str, str, str, str]] = []
    async with reach(settings) as verbs:
        for message in await verbs.take(limit, by=user_name()):
            files: tuple[Path, ...] = ()
            done = False
            if folder is not None:
                # Confirmed only when the files are on the disk: a crash in between repeats.
                files = await asyncio.to_thread(_written, folder, message, quiet=quiet)
                if confirmed:
                    await verbs.confirm(message.sender, message.message_id)
                    done = True
            else:
                contents += _shown(message)
            party = name(message.from_party, message.cpa_id)
            names = [here(path) for path in files]
            rows.append(
                (message.message_id, party, message.action, message.redelivered, done, names)
            )
    columns = ("message_id", "file_name", "media_type", "content")
    listing = Listing("contents", columns, contents)
    return rows, (listing,) if contents else ()


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
    message_ids: Annotated[
        list[str],
        typer.Argument(
            help="MessageIds, or unique parts of them.", autocompletion=complete_message
        ),
    ],
    by: Annotated[
        str, typer.Option(help="Who says so; without it, your user name in the operating system.")
    ] = "",
    config: Config = None,
) -> Report:
    """Say that you have a message: it will not be handed out again. Saying it twice is harmless.

    The journal keeps that a person confirmed it, and who. What nobody has is given up instead:
    `oncewire abandon`.
    """

    import asyncio

    from oncewire.entry.control.verbs import user_name

    settings = loaded(config).settings
    rows = asyncio.run(_confirm(settings, message_ids, by or user_name()))
    return Report(
        listings=(Listing("confirmed", ("message_id", "from", "first"), rows),),
        summary="Confirmed.",
    )


async def _confirm(settings: Settings, wanted: list[str], by: str) -> list[tuple[str, str, bool]]:
    from oncewire.entry.running.assemble import reading
    from oncewire.entry.running.open_party import reach

    with reading(settings) as reader:
        ids = {find_id(reader, wanted_id) for wanted_id in wanted}
        senders = [
            (stored.incoming.sender, stored.incoming.message_id)
            for stored in reader.incoming_list(limit=100_000)
            if stored.incoming.message_id in ids
        ]
    missing = ids - {message_id for _, message_id in senders}
    if missing:
        raise UnknownMessage(
            f"message {min(missing)} did not arrive here",
            remedy="`oncewire inbox` lists what did",
        )
    name = names_of(settings)
    async with reach(settings) as verbs:
        return [
            (message_id, name(sender), await verbs.confirm(sender, message_id, by))
            for sender, message_id in senders
        ]
