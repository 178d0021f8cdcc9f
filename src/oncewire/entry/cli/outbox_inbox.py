"""`oncewire outbox` and `oncewire inbox`: what was sent, what arrived, and taking it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.output import (
    LOOKED_AT,
    Config,
    Json,
    Listing,
    Names,
    Report,
    at_party,
    complete_incoming,
    complete_outgoing,
    find_id,
    has_store,
    here,
    loaded,
    moment,
    newest_received,
    newest_sent,
)
from oncewire.entry.files import number_of
from oncewire.message.instant import SECOND

if TYPE_CHECKING:
    from oncewire.entry.delivery.received_message import ReceivedMessage
    from oncewire.entry.party.settings import Settings
    from oncewire.message.instant import Instant
    from oncewire.protocol.sending import SendingChannel
    from oncewire.store.contract import Reader
    from oncewire.store.records import Incident, StoredOutgoing


# Outlook: what has to happen before something goes on, and the command that makes it happen.
#
# The journal tells what became of a message; whether its channel stands still, and when its timer
# runs out, only the state rows know.

SOON = 30 * SECOND
"""Nobody need be told how not to wait for what comes sooner."""


def outlook(reader: Reader, message_id: str, now: Instant, settings: Settings) -> str:
    """What must happen before a message that we send goes on; empty when nothing has to. Of one
    that is over, the reason that its notice gives.
    """
    from oncewire.entry.messages.stored import outworn
    from oncewire.handler.perform import receiver_key
    from oncewire.protocol.states import FINAL_OUTGOING, OutgoingState

    stored = reader.outgoing(message_id)
    if stored is None:
        return ""
    sent, place = stored.outgoing, at_party(settings)
    if sent.state in FINAL_OUTGOING:
        return sent.reason
    channels = {each_channel.key: each_channel for each_channel in reader.channels()[0]}
    channel = channels.get(sent.channel or "")
    if channel is not None and channel.suspended:
        return (
            f"its channel {channel.key} is suspended ({channel.suspended_reason}) until "
            f"`{resume_channel(channel.key, place)}`"
        )
    trouble = [
        incident.reason for incident in reader.incidents() if incident.message_id == message_id
    ]
    if trouble and sent.state is not OutgoingState.SUSPENDED:
        return f"{trouble[0]}; it is looked at again every minute while a handler runs"
    parts = progress(reader, stored)
    if parts:
        return f"it travels in parts: {parts}{_parts_that_wait(reader, stored, now, place)}"
    if sent.state is OutgoingState.WAITING:
        return "it waits for a place in the window of its channel"
    if sent.next_attempt_at is None:
        return ""
    receiver = channels.get(receiver_key(stored.peer))
    due = max(sent.next_attempt_at, 0 if receiver is None else receiver.paused_until)
    terms = reader.terms(sent.terms_id)
    if terms is not None and terms.never_repeated and sent.attempts_here:
        at = (
            f"while a handler runs (`oncewire serve{place}`)" if due <= now else f"at {moment(due)}"
        )
        return f"it is not sent again (sync.retries = none), and its outcome is known {at}"
    if due <= now:
        return f"it is due now, and leaves while a handler runs (`oncewire serve{place}`)"
    if sent.attempts == 0:
        return f"the first try is at {moment(due)}"
    sooner = "" if due - now < SOON else f"; `oncewire resume {quote(message_id)}{place}` tries now"
    said = f"the next try (or, after the last one, the verdict) is at {moment(due)}{sooner}"
    if old := outworn(settings, reader, message_id, now):
        named = f"{quote(message_id)}{place}"
        return (
            f"{said}; {old}, and whoever does not believe that any more refuses it: ask "
            f"(`oncewire ask {named}`), and if it is not known there give it up (`oncewire abandon "
            f"{named}`) and send the document as a new message"
        )
    return said


def _parts_that_wait(reader: Reader, stored: StoredOutgoing, now: Instant, place: str) -> str:
    """How many parts under way failed, and when the first of them is tried again."""
    from oncewire.protocol.states import OutgoingState

    message_id = stored.outgoing.message_id
    waiting = [
        part.outgoing.next_attempt_at
        for part in reader.outgoing_list(states=(OutgoingState.OUTSTANDING,), limit=LOOKED_AT)
        if part.facts.split_id == message_id
        and part.outgoing.attempts_lost
        and part.outgoing.next_attempt_at is not None
    ]
    if not waiting:
        return ""
    many = "1 part failed" if len(waiting) == 1 else f"{len(waiting)} parts failed"
    said = f"; {many}, the next try is at {moment(min(waiting))}"
    if min(waiting) - now < SOON:
        return said
    return f"{said}; `oncewire resume {quote(message_id)}{place}` tries now"


def progress(reader: Reader, stored: StoredOutgoing) -> str:
    """How far a document is that is sent in parts; empty where it is none, or over."""
    from oncewire.protocol.states import FINAL_OUTGOING

    facts, sent = stored.facts, stored.outgoing
    if facts.split_id != sent.message_id or sent.state in FINAL_OUTGOING:
        return ""
    document = reader.document("", sent.message_id)
    if document is None:
        return ""
    share = document.count * 100 // document.total
    return f"{document.count} of {document.total} parts are there ({share} %)"


def tries(stored: StoredOutgoing) -> int | None:
    """How often a message was tried; None of a document of which only the parts travel."""
    from oncewire.handler.sending.outgoing_document import is_whole

    return None if is_whole(stored) else stored.outgoing.attempts


def resume_channel(key: str, place: str = "") -> str:
    """The command that lets a channel go on; a key has characters that a shell would read."""
    return f"oncewire resume --channel {quote(key)}{place}"


def held_up(stored: StoredOutgoing, suspended: dict[str, SendingChannel]) -> str:
    """In a word, why a message stands where it does: its own reason, else its channel's."""
    from oncewire.protocol.states import FINAL_OUTGOING

    sent = stored.outgoing
    if sent.reason or sent.state in FINAL_OUTGOING:
        return sent.reason
    channel = suspended.get(sent.channel or "")
    if channel is not None:
        return f"channel suspended: {channel.suspended_reason}"
    if sent.attempts and sent.attempts == sent.attempts_lost:
        return "cannot be reached"
    return ""


def is_of_clock(incident: Incident) -> bool:
    """Whether it is about the machine's clock: that belongs to no message and no channel."""
    return incident.message_id is None and incident.channel is None


def next_steps(
    reader: Reader, incidents: Iterable[Incident], now: Instant, place: str
) -> tuple[str, ...]:
    """What to run about open incidents: one command of each kind, for the first that needs it."""
    from oncewire.handler.delivering.notices import is_about_a_notice

    found: dict[str, str] = {}
    for incident in incidents:
        if incident.message_id is None:
            if is_of_clock(incident):
                found.setdefault("clock", f"oncewire clock accept{place}")
            if incident.channel is not None:
                kind, command = _of_channel(incident.channel, place)
                found.setdefault(kind, command)
            continue
        named = f"{quote(incident.message_id)}{place}"
        found.setdefault("why", f"oncewire why {named}")
        if is_about_a_notice(incident.reason):
            found.setdefault("notices", f"oncewire notices{place}")
            continue
        verb = _verb(reader, incident.message_id, now)
        if verb:
            found.setdefault(verb, f"oncewire {verb} {named}")
    return tuple(found.values())


def resolving(reader: Reader, message_id: str, now: Instant, place: str) -> tuple[str, ...]:
    """What to run about the open incidents of one message, whose `why` was asked already."""
    named = [incident for incident in reader.incidents() if incident.message_id == message_id]
    steps = next_steps(reader, named, now, place)[1:]
    if not steps and any("`oncewire abandon" in incident.reason for incident in named):
        # The application is what is to be mended; what it can never take is given up.
        return (f"oncewire abandon {quote(message_id)}{place}",)
    return steps


def _of_channel(channel: str, place: str) -> tuple[str, str]:
    """What helps a channel on, and of which kind that is. What is about files, a way, an address or
    the store is closed when they are right again: to resume it would only silence it."""
    from oncewire.entry.running.reloading import AGREEMENT, FILES
    from oncewire.handler.perform import DAMAGED, STORE, WAY
    from oncewire.handler.sending.answer import ANSWER_CHANNEL

    if channel.startswith((AGREEMENT, ANSWER_CHANNEL)):
        return "agreement", f"oncewire agreement check{place}"
    if channel in (FILES, STORE, DAMAGED) or channel.startswith(WAY):
        return "doctor", f"oncewire doctor{place}"
    return "channel", resume_channel(channel, place)


def _verb(reader: Reader, message_id: str, now: Instant) -> str:
    """What an operator may do about a message; empty: no command helps. What arrived is the
    application's to take, so that is what is mended, unless it stands here because its way on is
    gone; what cannot be sent again under its id (C37) can only be given up."""
    from oncewire.handler.runtime.operate import can_resume
    from oncewire.protocol.states import IncomingState
    from oncewire.store.transition.rows import FINAL_INCOMING

    stored = reader.outgoing(message_id)
    arrived = [] if stored is not None else reader.incoming(message_id)
    if any(kept.incoming.state is IncomingState.HELD for kept in arrived):
        return "resume"
    if arrived and any(kept.incoming.state not in FINAL_INCOMING for kept in arrived):
        return ""
    return "resume" if stored is None or can_resume(reader, stored, now) else "abandon"


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


@output.answers
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
) -> Report:
    """List what we sent, newest first, and what became of it."""

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
        suspended = {channel.key: channel for channel in reader.channels()[0] if channel.suspended}
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
        listings=(Listing("messages", columns, rows, empty=_none("Nothing was sent.", states)),),
        summary=_summary(counts, behind, "out.", states, None if parts else len(rows)),
    )


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
        # Whoever has its application called does not take by hand what the application is given.
        pulls = settings.application.way == "pull"
        ready = pulls and counts["in.ready"] + counts["in.handed_over"]
        return Report(
            listings=(
                Listing("messages", columns, rows, empty=_none("Nothing has arrived.", states)),
            ),
            summary=_summary(counts, behind, "in.", states, None if parts else len(rows)),
            hints=(f"oncewire inbox take --out FOLDER{at_party(settings)}",) if ready else (),
        )

    output.answer(work, json=json)


@output.answers
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
) -> Report:
    """Take messages that wait. With --out they become files; without, they are shown.

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
    from oncewire.entry.running.assemble import open_readers
    from oncewire.protocol.states import IncomingState

    with open_readers(settings).reader() as reader:
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
    from oncewire.entry.files import make_folder
    from oncewire.entry.running.open_party import reach

    folder = None if out is None else make_folder(out)
    name = Names(settings)
    rows: list[tuple[Any, ...]] = []
    contents: list[tuple[str, str, str, str]] = []
    async with reach(settings) as verbs:
        for message in await verbs.take(limit, user_name()):
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


@output.answers
def confirm(
    message_ids: Annotated[list[str], typer.Argument(help="MessageIds, or unique parts of them.")],
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
    from oncewire.entry.running.assemble import open_readers
    from oncewire.entry.running.open_party import reach

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
