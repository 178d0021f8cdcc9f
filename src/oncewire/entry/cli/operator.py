"""What an operator looks at: how a party is doing, and what needs a decision. The decisions are
commands made from the table of verbs, see `verbs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.listing import at_party, has_store, moment
from oncewire.entry.cli.outlook import is_of_clock, next_steps
from oncewire.entry.cli.output import Json, Listing, Report
from oncewire.entry.cli.place import Config, loaded, now

if TYPE_CHECKING:
    from oncewire.entry.control.verbs import Status
    from oncewire.entry.party.settings import Settings
    from oncewire.store.contract import Reader
    from oncewire.store.records import Refusal

CHANNELS_SHOWN = 50
REFUSALS_SHOWN = 5
REFUSALS_READ = 2_000
"""More rows than a store keeps of refused messages."""
NOTICES_COUNTED = 1000
"""More failures that nobody took note of are not counted."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("status")(status)
    app.command("incidents")(incidents)


# --- looking -----------------------------------------------------------------------------------


def status(config: Config = None, json: Json = False) -> None:
    """Show how the party is doing: whether it runs, its messages by state, its channels.

    `kept` are the messages that are here, sent and received, until retention removes them. A
    document that travels in parts is one of them, and trials are none. `parts` are those of
    documents, whether they are sent, were joined, or wait for the rest of their document.
    """

    def work() -> Report:
        import asyncio

        from oncewire.entry.running.assemble import open_readers
        from oncewire.entry.running.restored import find_restored
        from oncewire.entry.running.store_record import find_replaced

        settings = loaded(config).settings
        facts: dict[str, Any] = {"party": settings.party.name, "running": False}
        restored = find_restored(settings)
        facts |= {} if restored is None else {"restored": str(restored)}
        replaced = find_replaced(settings)
        if replaced is not None:
            # What it holds is not what the party did: nothing of it is shown as that.
            hint = f"oncewire doctor{at_party(settings)}"
            facts["store"] = replaced.problem
            return Report(facts, summary=f"{replaced}.", hints=(hint,), exit_code=output.WRONG)
        if not has_store(settings):
            hint = f"oncewire serve{at_party(settings)}"
            return Report(facts, summary="Nothing was sent or received yet.", hints=(hint,))
        found = asyncio.run(running(settings))
        with open_readers(settings).reader() as reader:
            rows = _channels(reader)
            counts, undecided = reader.counts(), reader.incidents()
            parts = sum(reader.parts_counted().values())
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
        facts |= {"parts": parts} if parts or json else {}
        if strangers or json:
            facts["strangers_refused"] = sum(refusal.count for refusal in strangers)
        columns = ("channel", "direction", "epoch", "next_number", "suspended", "reason")
        hints = tuple(
            f"oncewire {verb}{at_party(settings)}"
            for verb, told in (
                ("incidents", open_ones),
                ("notices", untold),
                ("doctor", restored),
            )
            if told
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
