"""`oncewire outbox` and `oncewire inbox`: what was sent, what arrived, and taking it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.listing import (
    Names,
    at_party,
    complete_incoming,
    complete_outgoing,
    find_id,
    has_store,
    moment,
    newest_received,
    newest_sent,
)
from oncewire.entry.cli.outlook import held_up, progress, tries
from oncewire.entry.cli.output import Json, Listing, Report, here
from oncewire.entry.cli.place import Config, loaded
from oncewire.entry.number import number_of

if TYPE_CHECKING:
    from oncewire.entry.delivery.received_message import ReceivedMessage
    from oncewire.entry.party.settings import Settings

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="At most so many.")]
Parts = Annotated[bool, typer.Option("--parts", help="The parts of documents, too.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("outbox")(outbox)
    inbox = typer.Typer(
        help="What arrived: list it, take it, confirm it.", invoke_without_command=True
    )
    inbox.callback()(listed)
    inbox.command("take")(take)
    inbox.command("confirm")(confirm)
    app.add_typer(inbox, name="inbox")


# --- outbox ------------------------------------------------------------------------------------


def outbox(
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            "-s",
            help="Only these: waiting, outstanding, unknown, ...",
            autocompletion=complete_outgoing,
        ),
    ] = None,
    limit: Limit = 50,
    parts: Parts = False,
    config: Config = None,
    json: Json = False,
) -> None:
    """List what we sent, newest first, and what became of it."""

    def work() -> Report:
        from oncewire.entry.running.assemble import open_readers
        from oncewire.protocol.states import OutgoingState

        settings = loaded(config).settings
        states = [_state(OutgoingState, word) for word in state or ()]
        columns = ("submitted", "message_id", "to", "action", "state", "tries", "bytes", "reason")
        if not has_store(settings):
            return Report(listings=(Listing("messages", columns, (), empty="Nothing was sent."),))
        with open_readers(settings).reader() as reader:
            found = newest_sent(reader, states, limit, parts=parts)
            ways = {one.outgoing.message_id: progress(reader, one) for one in found}
            suspended = {
                channel.key: channel for channel in reader.channels()[0] if channel.suspended
            }
            counts, behind = reader.counts(), reader.parts_counted()
        name = Names(settings)
        rows = [
            (
                moment(stored.outgoing.submitted_at),
                stored.outgoing.message_id,
                name(stored.facts.to_party, stored.facts.cpa_id),
                stored.facts.action,
                stored.outgoing.state,
                tries(stored),
                stored.facts.size,
                held_up(stored, suspended) or ways[stored.outgoing.message_id],
            )
            for stored in found
        ]
        return Report(
            listings=(
                Listing("messages", columns, rows, empty=_none("Nothing was sent.", states)),
            ),
            summary=_summary(counts, behind, "out.", states, None if parts else len(rows)),
        )

    output.answer(work, json=json)


def _state(states: Any, word: str) -> Any:
    from oncewire.errors import InvalidValue

    try:
        return states(word.lower())
    except ValueError:
        known = ", ".join(state.value for state in states)
        raise InvalidValue(f"there is no state {word!r}", remedy=f"use one of {known}") from None


def _none(at_all: str, states: Sequence[str]) -> str:
    """Nothing at all, or nothing of the kind that was asked for."""
    return f"Nothing is {' or '.join(states)}; in all:" if states else at_all


def _summary(
    counts: dict[str, int],
    behind: dict[str, int],
    prefix: str,
    states: Sequence[str],
    shown: int | None,
) -> str:
    """How many messages there are, and how many parts stand behind documents: all of them where
    they are listed (`shown` is None), else those that wait for a document."""
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


def listed(
    context: typer.Context,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            "-s",
            help="Only these: ready, handed_over, confirmed, ...",
            autocompletion=complete_incoming,
        ),
    ] = None,
    limit: Limit = 50,
    parts: Parts = False,
    config: Config = None,
    json: Json = False,
) -> None:
    """List what arrived, newest first; `take` hands it over, `confirm` says that you have it."""
    if context.invoked_subcommand is not None:
        return

    def work() -> Report:
        from oncewire.entry.running.assemble import open_readers
        from oncewire.protocol.states import IncomingState

        settings = loaded(config).settings
        states = [_state(IncomingState, word) for word in state or ()]
        columns = ("received", "message_id", "from", "action", "state", "bytes")
        if not has_store(settings):
            nothing = Listing("messages", columns, (), empty="Nothing has arrived.")
            return Report(listings=(nothing,))
        with open_readers(settings).reader() as reader:
            found = newest_received(reader, states, limit, parts=parts)
            counts, behind = reader.counts(), reader.parts_counted()
        name = Names(settings)
        rows = [
            (
                moment(stored.incoming.received_at),
                stored.incoming.message_id,
                name(stored.facts.from_party, stored.facts.cpa_id),
                stored.facts.action,
                stored.incoming.state,
                stored.facts.size,
            )
            for stored in found
        ]
        ready = counts["in.ready"] + counts["in.handed_over"]
        return Report(
            listings=(
                Listing("messages", columns, rows, empty=_none("Nothing has arrived.", states)),
            ),
            summary=_summary(counts, behind, "in.", states, None if parts else len(rows)),
            hints=(f"oncewire inbox take --out FOLDER{at_party(settings)}",) if ready else (),
        )

    output.answer(work, json=json)


def take(
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write each message into this folder, then confirm it."),
    ] = None,
    limit: Limit = 100,
    confirmed: Annotated[
        bool, typer.Option("--confirm/--no-confirm", help="With --out: confirm what is written.")
    ] = True,
    config: Config = None,
    json: Json = False,
) -> None:
    """Take messages that wait. With --out they become files; without, they are shown.

    What is shown but not confirmed is handed out again after a minute, marked `redelivered`.
    """

    def work() -> Report:
        import asyncio

        settings = loaded(config).settings
        rows, shown = asyncio.run(_take(settings, limit, out, confirmed=confirmed, quiet=json))
        columns = ("message_id", "from", "action", "redelivered", "confirmed", "files")
        hints = (
            () if out or not rows else (f"oncewire inbox confirm MESSAGE_ID{at_party(settings)}",)
        )
        taken = (
            f"{number_of(len(rows), 'message')} taken{'' if out is None else f' into {here(out)}'}."
        )
        return Report(
            listings=(Listing("messages", columns, rows, empty="Nothing waits."), *shown),
            summary=taken if rows else _handed_out(settings),
            hints=hints,
        )

    output.answer(work, json=json)


def _handed_out(settings: Settings) -> str:
    """What somebody took and did not confirm yet: it waits for nobody, and is not done with."""
    from oncewire.entry.running.assemble import open_readers
    from oncewire.protocol.states import IncomingState

    with open_readers(settings).reader() as reader:
        count = reader.counts()["in.handed_over"]
        found = reader.incoming_list(states=(IncomingState.HANDED_OVER,), limit=100_000)
    if not count:
        return ""
    what = number_of(count, "message", "is")
    ends = [
        stored.incoming.lease_until for stored in found if stored.incoming.lease_until is not None
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

    from oncewire.entry.files import make_folder
    from oncewire.entry.running.reach import reach

    folder = None if out is None else make_folder(out)
    name = Names(settings)
    rows: list[tuple[Any, ...]] = []
    contents: list[tuple[str, str, str, str]] = []
    async with reach(settings) as verbs:
        for message in await verbs.take(limit):
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
    from dataclasses import replace

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
            text += f"... ({payload.size} bytes; --out writes all of them)"
        found.append((message.message_id, payload.file_name, payload.media_type, text))
    return found


def confirm(
    message_ids: Annotated[list[str], typer.Argument(help="MessageIds, or unique parts of them.")],
    by: Annotated[
        str, typer.Option(help="Who says so; without it, your user name in the operating system.")
    ] = "",
    config: Config = None,
    json: Json = False,
) -> None:
    """Say that you have a message: it will not be handed out again. Saying it twice is harmless.

    The journal keeps that a person confirmed it, and who. What nobody has is given up instead:
    `oncewire abandon`.
    """

    def work() -> Report:
        import asyncio

        from oncewire.entry.control.verbs import user_name

        settings = loaded(config).settings
        rows = asyncio.run(_confirm(settings, message_ids, by or user_name()))
        return Report(
            listings=(Listing("confirmed", ("message_id", "from", "first"), rows),),
            summary="Confirmed.",
        )

    output.answer(work, json=json)


async def _confirm(settings: Settings, wanted: list[str], by: str) -> list[tuple[str, str, bool]]:
    from oncewire.entry.running.assemble import open_readers
    from oncewire.entry.running.reach import reach

    readers = open_readers(settings)
    with readers.reader() as reader:
        ids = {find_id(reader, wanted_id) for wanted_id in wanted}
        senders = [
            (stored.incoming.sender, stored.incoming.message_id)
            for stored in reader.incoming_list(limit=100_000)
            if stored.incoming.message_id in ids
        ]
    readers.close()
    missing = ids - {message_id for _, message_id in senders}
    if missing:
        from oncewire.errors import UnknownMessage

        raise UnknownMessage(
            f"message {min(missing)} did not arrive here",
            remedy="`oncewire inbox` lists what did",
        )
    name = Names(settings)
    async with reach(settings) as verbs:
        return [
            (message_id, name(sender), await verbs.confirm(sender, message_id, by))
            for sender, message_id in senders
        ]
