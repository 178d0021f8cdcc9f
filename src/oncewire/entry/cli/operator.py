"""Commands of an operator: how a party is doing, what needs a decision, and the decision."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.listing import at_party, find_channel, find_id, has_store, moment
from oncewire.entry.cli.outlook import is_of_clock, next_steps
from oncewire.entry.cli.output import Json, Listing, Report
from oncewire.entry.cli.place import Config, loaded, now

if TYPE_CHECKING:
    from oncewire.entry.control.verbs import Status, Verbs
    from oncewire.entry.party.settings import Settings
    from oncewire.store.contract import Reader
    from oncewire.store.records import Refusal

CHANNELS_SHOWN = 50
REFUSALS_SHOWN = 5
REFUSALS_READ = 2_000
"""More rows than a store keeps of refused messages."""
NOTICES_COUNTED = 1000
"""More failures that nobody took note of are not counted."""
MessageIds = Annotated[
    list[str] | None, typer.Argument(help="MessageIds, or unique parts of them.")
]
Channel = Annotated[
    str, typer.Option("--channel", help="A channel as `oncewire status` names it, or part of it.")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (status, incidents, resume, resend, pause, restart, abandon, hold, release):
        app.command(command.__name__)(command)
    clock = typer.Typer(help="When the machine's clock was set.", no_args_is_help=True)
    clock.command("accept")(accept_clock)
    app.add_typer(clock, name="clock")


# --- looking -----------------------------------------------------------------------------------


def status(config: Config = None, json: Json = False) -> None:
    """Show how the party is doing: whether it runs, its messages by state, its channels."""

    def work() -> Report:
        import asyncio

        from oncewire.entry.running.assemble import open_readers

        settings = loaded(config).settings
        facts: dict[str, Any] = {"party": settings.party.name, "running": False}
        if not has_store(settings):
            hint = f"oncewire serve{at_party(settings)}"
            return Report(facts, summary="Nothing was sent or received yet.", hints=(hint,))
        found = asyncio.run(running(settings))
        with open_readers(settings).reader() as reader:
            rows = _channels(reader)
            counts, undecided = reader.counts(), reader.incidents()
            removed = reader.last_removal()
            strangers = reader.refusals(REFUSALS_READ)
            untold = len(reader.notices_owed(NOTICES_COUNTED))
        open_ones = len(undecided)
        lives = found is not None and found.running
        facts |= {"running": lives, "incidents": open_ones, "notices": untold}
        for incident in filter(is_of_clock, undecided):
            facts["clock"] = incident.reason
        if found is not None:
            facts |= {"pid": found.pid, "url": found.url, "lag_ms": found.lag_ms}
            facts |= {"stuck": found.stuck} if found.stuck else {}
        facts |= {"kept": sum(counts.values()), "last_removed": moment(removed)}
        facts |= {name: count for name, count in counts.items() if count or json}
        if strangers or json:
            facts["strangers_refused"] = sum(refusal.count for refusal in strangers)
        columns = ("channel", "direction", "epoch", "next_number", "suspended", "reason")
        hints = tuple(
            f"oncewire {verb}{at_party(settings)}"
            for verb, count in (("incidents", open_ones), ("notices", untold))
            if count
        )
        shown = rows if json else rows[:CHANNELS_SHOWN]
        listings = [Listing("channels", columns, shown)]
        if strangers:
            listings.append(_refusals(strangers if json else strangers[:REFUSALS_SHOWN]))
        return Report(facts, tuple(listings), hints=hints)

    output.answer(work, json=json)


def _refusals(strangers: list[Refusal]) -> Listing:
    """What strangers sent and nobody took, the latest first."""
    rows: list[tuple[Any, ...]] = [
        (
            refusal.code,
            refusal.address,
            refusal.count,
            moment(refusal.last_at),
            refusal.problem[:80],
        )
        for refusal in strangers
    ]
    return Listing("refused", ("code", "address", "count", "last", "problem"), rows)


ANSWERS_WITHIN = 6.0
"""Seconds within which a handler that lives says so."""


async def running(settings: Settings) -> Status | None:
    """The status of the handler that runs, or None; asked anew each time, so that one that hangs
    is not called running."""
    import asyncio

    from oncewire.entry.control.client import Remote
    from oncewire.entry.control.language import socket_path
    from oncewire.entry.control.verbs import Status
    from oncewire.entry.running.assemble import store_path
    from oncewire.entry.running.ownership import owner_of

    remote = await Remote.connect(socket_path(settings))
    if remote is None:
        return None
    try:
        return await asyncio.wait_for(remote.status(), ANSWERS_WITHIN)
    except TimeoutError:
        why = f"its process has not answered for {ANSWERS_WITHIN:.0f} seconds"
        return Status(settings.party.name, False, owner_of(store_path(settings)), stuck=why)
    finally:
        await remote.close()


def _state(reader: Reader, message_id: str) -> str:
    """Where a message stands: at its sender if that is us, else at its receiver."""
    sent = reader.outgoing(message_id)
    if sent is not None:
        return sent.outgoing.state.value
    return next((stored.incoming.state.value for stored in reader.incoming(message_id)), "")


def _channels(reader: Reader) -> list[tuple[Any, ...]]:
    """Every channel; those that wait for the operator come first."""
    sending, receiving = reader.channels()
    rows: list[tuple[Any, ...]] = [
        (
            channel.key,
            "out",
            channel.epoch,
            channel.next_number,
            channel.suspended,
            channel.suspended_reason,
        )
        for channel in sending
    ]
    rows += [
        (channel.key, "in", channel.epoch, channel.expected, False, "") for channel in receiving
    ]
    return sorted(rows, key=lambda row: not row[4])


def incidents(
    every: Annotated[bool, typer.Option("--all", help="Those that are resolved, too.")] = False,
    config: Config = None,
    json: Json = False,
) -> None:
    """List what needs a decision: messages and channels that cannot go on by themselves.

    Ends with status 1 while something is open.
    """

    def work() -> Report:
        from oncewire.entry.running.assemble import open_readers

        settings = loaded(config).settings
        columns = ("id", "opened", "problem", "message_id", "channel", "resolved")
        empty = "Nothing needs a decision."
        if not has_store(settings):
            return Report(listings=(Listing("incidents", columns, (), empty=empty),))
        with open_readers(settings).reader() as reader:
            found = reader.incidents(open_only=not every)
            undecided = [incident for incident in found if incident.resolved_at is None]
            hints = next_steps(reader, undecided, now(), at_party(settings))
        rows = [
            (
                incident.id,
                moment(incident.opened_at),
                incident.reason,
                incident.message_id,
                incident.channel,
                moment(incident.resolved_at),
            )
            for incident in found
        ]
        return Report(
            listings=(Listing("incidents", columns, rows, empty=empty),),
            summary=f"{len(undecided)} open." if undecided else "",
            hints=hints,
            exit_code=output.WRONG if undecided else output.OK,
        )

    output.answer(work, json=json)


# --- deciding ----------------------------------------------------------------------------------


def resume(
    message_ids: MessageIds = None,
    channel: Channel = "",
    config: Config = None,
    json: Json = False,
) -> None:
    """The trouble is over: go on with a message or a channel, its retries start anew."""

    async def do(verbs: Verbs, found: list[str], stream: str | None) -> None:
        if stream is not None:
            await verbs.resume(channel=stream)
        for message_id in found:
            await verbs.resume(message_id=message_id)

    output.answer(lambda: _decided(config, message_ids, channel, do, "resumed"), json=json)


def resend(message_ids: MessageIds = None, config: Config = None, json: Json = False) -> None:
    """Send messages again: the same bytes under the same MessageId, so nothing can be doubled.

    It is for messages that were not delivered or whose fate is unknown, and only within
    persistDuration, because the partner remembers ids that long.
    """

    async def do(verbs: Verbs, found: list[str], _stream: str | None) -> None:
        for message_id in found:
            await verbs.resend(message_id)

    output.answer(lambda: _decided(config, message_ids, None, do, "sent again"), json=json)


def pause(
    channel: Annotated[
        str, typer.Argument(help="A channel as `oncewire status` names it, or part of it.")
    ],
    reason: Annotated[str, typer.Option(help="Why, for whoever looks later.")] = "paused by hand",
    config: Config = None,
    json: Json = False,
) -> None:
    """Stop sending on a channel until it is resumed; arrivals are not affected."""

    async def do(verbs: Verbs, _found: list[str], stream: str | None) -> None:
        await verbs.pause(stream or "", reason)

    output.answer(lambda: _decided(config, None, channel, do, "paused"), json=json)


def restart(
    channel: Annotated[
        str, typer.Argument(help="A channel as `oncewire status` names it, or part of it.")
    ],
    config: Config = None,
    json: Json = False,
) -> None:
    """Begin the numbering of a channel anew: the next message on it says Reset.

    It is refused while a number is not settled, and before a whole window of numbers was used:
    a copy that the network kept could be taken for a message of the new numbering.
    """

    async def do(verbs: Verbs, _found: list[str], stream: str | None) -> None:
        await verbs.restart(stream or "")

    output.answer(lambda: _decided(config, None, channel, do, "restarted", later=False), json=json)


def abandon(
    message_ids: MessageIds = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Give messages up: nothing is sent any more. In a numbered channel counting starts anew."""

    async def do(verbs: Verbs, found: list[str], _stream: str | None) -> None:
        for message_id in found:
            await verbs.abandon(message_id)

    output.answer(
        lambda: _decided(config, message_ids, None, do, "given up", later=False), json=json
    )


def hold(message_ids: MessageIds = None, config: Config = None, json: Json = False) -> None:
    """Keep messages, sent or received, for legal reasons: retention leaves them until `release`.

    Without a hold a message is kept for persistDuration and what the agreement adds to it
    (delivery.keep), and always until everybody is done with it.
    """

    async def do(verbs: Verbs, found: list[str], _stream: str | None) -> None:
        for message_id in found:
            await verbs.hold(message_id, True)

    output.answer(lambda: _decided(config, message_ids, None, do, "held", later=False), json=json)


def release(message_ids: MessageIds = None, config: Config = None, json: Json = False) -> None:
    """Lift the legal hold of messages: retention removes them when their time is over."""

    async def do(verbs: Verbs, found: list[str], _stream: str | None) -> None:
        for message_id in found:
            await verbs.hold(message_id, False)

    output.answer(
        lambda: _decided(config, message_ids, None, do, "released", later=False), json=json
    )


def accept_clock(config: Config = None, json: Json = False) -> None:
    """The machine's clock was set and is right: go on by it, and let things expire again.

    While it is in doubt, what waits goes on waiting by the steady clock, and nothing is declared
    expired or cleared away. Set the clock right instead if it is wrong: that ends it by itself.
    """

    def work() -> Report:
        import asyncio

        from oncewire.entry.running.reach import reach

        settings = loaded(config).settings

        async def run() -> None:
            async with reach(settings) as verbs:
                await verbs.accept_clock()

        asyncio.run(run())
        return Report(summary="Accepted: the machine's clock is right.")

    output.answer(work, json=json)


Deed = Callable[["Verbs", list[str], str | None], Awaitable[None]]


def _decided(
    config: Any,
    wanted: list[str] | None,
    channel: str | None,
    do: Deed,
    done: str,
    *,
    later: bool = True,
) -> Report:
    """Find what is meant, do it through whoever has the store, and show what it is now.

    `channel` is None where a decision is about messages only. `later`: without a handler it takes
    effect only when one runs.
    """
    import asyncio

    from oncewire.entry.control.verbs import AtRest
    from oncewire.entry.running.assemble import open_readers
    from oncewire.entry.running.reach import reach
    from oncewire.errors import InvalidValue

    settings = loaded(config).settings
    if not wanted and not channel:
        either = "" if channel is None else ", or a channel with --channel"
        raise InvalidValue("it is not said what is meant", remedy=f"name messages{either}")
    readers = open_readers(settings)
    with readers.reader() as reader:
        ids = [find_id(reader, message_id) for message_id in wanted or ()]
        stream = find_channel(reader, channel) if channel else None

    async def run() -> bool:
        async with reach(settings) as verbs:
            await do(verbs, ids, stream)
            return isinstance(verbs, AtRest)

    at_rest = asyncio.run(run())
    with readers.reader() as reader:
        rows = [(message_id, _state(reader, message_id)) for message_id in ids] + (
            [(stream, "")] if stream else []
        )
    readers.close()
    waits = at_rest and later
    note = " No handler runs: it takes effect with `oncewire serve`." if waits else ""
    return Report(
        listings=(Listing("done", ("what", "state"), rows),), summary=f"{done.capitalize()}.{note}"
    )
