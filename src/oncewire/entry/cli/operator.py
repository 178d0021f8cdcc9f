"""What an operator looks at: how a party is doing, and what needs a decision. The decisions are
commands made from the table of verbs, see `verbs`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.completion import complete_partner
from oncewire.entry.cli.output import (
    LOOKED_AT,
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
    now,
)
from oncewire.entry.control.verbs import Status, user_name
from oncewire.entry.messages.outlook import advice, is_of_clock, troubles
from oncewire.entry.party.names import names_of
from oncewire.errors import InvalidValue, OncewireError, StoreProblem
from oncewire.message.instant import moment
from oncewire.protocol.states import OutgoingState

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings
    from oncewire.store.records import Refusal


CHANNELS_SHOWN = 50
REFUSALS_SHOWN = 5
REFUSALS_READ = 2_000
"""More rows than a store keeps of refused messages."""
NOTICES_COUNTED = 1000
"""More failures that were not taken note of are not counted."""


@output.answers
def status(config: Config = None, json: Json = False) -> Report:
    """Show how the party is doing: whether it runs, its messages by state, its channels.

    `kept` are the messages that are here, sent and received, until retention removes them. A
    document that travels in parts is one of them, and trials are none. `parts` are those of
    documents, whether they are sent, were joined, or wait for the rest of their document.

    Ends with status 6 if no handler runs or it does not work, else with 1 if an incident is open.
    """

    import asyncio

    from oncewire.entry.running.assemble import find_replaced, find_restored, reading

    settings = loaded(config).settings
    facts: dict[str, Any] = {"party": settings.party.name, "running": False}
    restored = find_restored(settings)
    facts |= {} if restored is None else {"restored": str(restored)}
    found, replaced = asyncio.run(running(settings)), find_replaced(settings)
    if replaced is not None:
        # What it holds is not what the party did: nothing of it is shown as that.
        facts["store"] = replaced.problem
        if found is not None:
            facts |= {"running": True, "pid": found.pid}
        # What a handler does now is kept nowhere.
        steps = ("doctor",) if found is None else ("stop", "doctor")
        todo = tuple(f"oncewire {step}{at_party(settings)}" for step in steps)
        code = output.NOT_RUNNING if found is None else output.WRONG
        return Report(facts, summary=f"{replaced}.", hints=todo, exit_code=code)
    if not has_store(settings):
        hint = f"oncewire serve{at_party(settings)}"
        summary = "Nothing was sent or received yet."
        lives = found is not None and found.running
        code = output.OK if lives else output.NOT_RUNNING
        return Report(facts | {"running": lives}, summary=summary, hints=(hint,), exit_code=code)
    with reading(settings) as reader:
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
        # Those that wait for the operator come first.
        rows.sort(key=lambda row: not row[4])
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
        facts |= {"admin": found.admin} if found.admin else {}
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
    if settings.store.url:
        listings.append(_handlers(settings.store.url))
    if strangers:
        listings.append(_refusals(strangers if json else strangers[:REFUSALS_SHOWN]))
    works = found is not None and lives and not found.stuck
    code = output.WRONG if open_ones or (found is not None and found.admin) else output.OK
    code = code if works else output.NOT_RUNNING
    return Report(facts, tuple(listings), hints=hints, exit_code=code)


def _handlers(url: str) -> Listing:
    """The handlers beside each other on one database: what each is busy with, how long its lease
    lasts, and how long ago it was heard of, in milliseconds."""
    from oncewire.store.postgresql.fellows import fellows_of

    rows: list[tuple[Any, ...]] = []
    for one in fellows_of(url):
        state = "ended" if one.ended else "draining" if one.draining else "running"
        left = (one.leased_until - one.now) // 1000
        work = ", ".join(f"{kind} {count}" for kind, count in sorted(one.claims.items()))
        state = "gone" if left <= 0 and not one.ended else state
        seen = (one.now - one.seen_at) // 1000
        rows.append((one.host, one.pid, moment(one.started_at), state, left, seen, work))
    columns = ("host", "pid", "started", "state", "lease_ms", "lag_ms", "work")
    return Listing("handlers", columns, rows)


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
    from oncewire.entry.running.assemble import owner_of, store_path

    remote = await Remote.connect(socket_path(settings))
    if remote is None:
        return None
    try:
        return await asyncio.wait_for(remote.status(), ANSWERS_WITHIN)
    except TimeoutError:
        why = f"its process has not answered for {ANSWERS_WITHIN:.0f} seconds"
        return Status(settings.party.name, False, owner_of(store_path(settings)), stuck=why)
    except StoreProblem as problem:
        # It answers, though not from its store: that was replaced or removed under it.
        pid = owner_of(store_path(settings))
        return Status(settings.party.name, True, pid, stuck=problem.problem)
    finally:
        await remote.close()


@output.lists
def incidents(
    every: Annotated[bool, typer.Option("--all", help="Those that are resolved, too.")] = False,
    config: Config = None,
) -> Report:
    """List what needs a decision: messages and channels that cannot go on by themselves.

    What failed for one partner and of one cause is one entry, with how many messages it is about.
    Ends with status 1 while something is open.
    """

    from oncewire.entry.running.assemble import reading

    settings = loaded(config).settings
    columns = ("id", "opened", "count", "partner", "problem", "message_id", "channel", "resolved")
    empty = "Nothing needs a decision."
    if not has_store(settings):
        return Report(listings=(Listing("incidents", columns, (), empty=empty),))
    with reading(settings) as reader:
        found = reader.incidents(open_only=not every)
        told = troubles(reader, names_of(settings), found)
        undecided = [incident for incident in found if incident.resolved_at is None]
        hints = advice(reader, told, undecided, now(), at_party(settings))
    rows = [
        (
            one.id,
            moment(one.opened_at),
            one.count,
            one.partner,
            one.problem,
            one.message_id,
            one.channel,
            moment(one.resolved_at),
        )
        for one in told
    ]
    still = sum(one.resolved_at is None for one in told)
    about = "" if still == len(undecided) else f", about {len(undecided)} messages and channels"
    return Report(
        listings=(Listing("incidents", columns, rows, empty=empty),),
        summary=f"{still} open{about}." if undecided else "",
        hints=hints,
        exit_code=output.WRONG if undecided else output.OK,
    )


# `oncewire notices`: failures that were not told yet, and taking note of them.

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="At most so many.")]
_EMPTY = "No failure waits to be told."


def listed(
    context: typer.Context,
    limit: Limit = 50,
    config: Config = None,
    json: Json = False,
    csv: Csv = False,
) -> None:
    """List messages that failed and of which the application was not told yet, oldest first."""
    if context.invoked_subcommand is not None:
        return

    def work() -> Report:
        from oncewire.entry.running.assemble import reading
        from oncewire.handler.delivering.notices import notice_of

        settings = loaded(config).settings
        columns = ("submitted", "notice_id", "to", "action", "outcome", "reason")
        if not has_store(settings):
            return Report(listings=(Listing("notices", columns, (), empty=_EMPTY),))
        with reading(settings) as reader:
            found = reader.notices_owed(limit)
        name = names_of(settings)
        rows = [
            (
                moment(stored.outgoing.submitted_at),
                notice_of(stored.outgoing).notice_id,
                name(stored.facts.to_party, stored.facts.cpa_id),
                stored.facts.action,
                stored.outgoing.state,
                stored.outgoing.reason,
            )
            for stored in found
        ]
        hint = f"oncewire notices confirm NOTICE_ID{at_party(settings)}"
        return Report(
            listings=(Listing("notices", columns, rows, empty=_EMPTY),),
            hints=(hint,) if rows else (),
        )

    output.answer(work, json=json, csv=csv)


@output.answers
def take(
    out: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write notices into this folder, and confirm them."),
    ] = None,
    limit: Limit = 100,
    config: Config = None,
) -> Report:
    """Take notices. With --output they become files and are confirmed; without, they are shown.

    What is not confirmed is shown again the next time.
    """

    import asyncio

    settings = loaded(config).settings
    rows = asyncio.run(_take(settings, limit, out))
    columns = ("notice_id", "message_id", "outcome", "severity", "reason", "confirmed", "file")
    what = "1 notice" if len(rows) == 1 else f"{len(rows)} notices"
    taken = f"{what} taken{'' if out is None else f' into {here(out)}'}."
    hint = f"oncewire notices confirm NOTICE_ID{at_party(settings)}"
    return Report(
        listings=(Listing("notices", columns, rows, empty=_EMPTY),),
        summary=taken if rows else "",
        hints=(hint,) if rows and out is None else (),
    )


async def _take(settings: Settings, limit: int, out: Path | None) -> list[tuple[Any, ...]]:
    from oncewire.entry.delivery.directory import put_notice
    from oncewire.entry.delivery.received_message import notice_facts
    from oncewire.entry.files import make_folder
    from oncewire.entry.running.open_party import reach

    folder = None if out is None else make_folder(out)
    rows: list[tuple[Any, ...]] = []
    async with reach(settings) as verbs:
        for notice in await verbs.notices(limit):
            file = ""
            if folder is not None:
                # Confirmed only when the file is on the disk: a crash in between repeats.
                file = here(put_notice(folder, notice))
                await verbs.confirm_notice(notice.notice_id)
            rows.append((*notice_facts(notice).values(), folder is not None, file))
    return rows


@output.answers
def confirm(
    notice_ids: Annotated[
        list[str], typer.Argument(help="Notices as `oncewire notices` names them, or parts.")
    ],
    config: Config = None,
) -> Report:
    """Say that you know of a failure: nobody is told of it again. Saying it twice is harmless."""

    import asyncio

    settings = loaded(config).settings
    rows = asyncio.run(_confirm(settings, notice_ids))
    return Report(
        listings=(Listing("confirmed", ("notice_id", "first"), rows),), summary="Confirmed."
    )


async def _confirm(settings: Settings, wanted: list[str]) -> list[tuple[str, bool]]:
    from oncewire.entry.running.assemble import reading
    from oncewire.entry.running.open_party import reach
    from oncewire.handler.delivering.notices import notice_of

    with reading(settings) as reader:
        owed = [notice_of(stored.outgoing).notice_id for stored in reader.notices_owed(LOOKED_AT)]
    async with reach(settings) as verbs:
        found = [_meant(message_id, owed) for message_id in wanted]
        by = user_name()
        return [(message_id, await verbs.confirm_notice(message_id, by)) for message_id in found]


def _meant(wanted: str, owed: list[str]) -> str:
    """The notice that is meant: the only one that waits and has the text in its id, else itself."""
    found = [message_id for message_id in owed if wanted in message_id]
    return found[0] if len(found) == 1 else wanted


# `oncewire resend`: send messages again that failed, by their ids or all of a partner's.

AT_MOST = 100_000
"""Messages that one command sends again."""


@output.answers
def resend(
    message_id: Annotated[
        list[str] | None, typer.Argument(help="MessageIds, or unique parts of them.")
    ] = None,
    failed: Annotated[
        bool,
        typer.Option("--failed", help="All that were not delivered or whose fate is unknown."),
    ] = False,
    to: Annotated[
        str,
        typer.Option(
            "--to", help="With --failed: only to this partner.", autocompletion=complete_partner
        ),
    ] = "",
    config: Config = None,
) -> Report:
    """Send messages again: the same bytes under the same MessageId, so nothing can be doubled.

    It is for messages that were not delivered or whose fate is unknown, and only within
    persistDuration, because the partner remembers ids that long. After an outage:
    oncewire resend --to globex --failed
    """

    from oncewire.entry.running.assemble import reading

    if not message_id and not failed:
        raise InvalidValue("it is not said what is meant", remedy="name messages, or say --failed")
    if to and not failed:
        raise InvalidValue("--to goes with --failed", remedy="say --failed too")
    settings = loaded(config).settings
    with reading(settings) as reader:
        wanted = [find_id(reader, each_id) for each_id in message_id or ()]
        if failed:
            # What failed, in the order in which it was submitted.
            states = (OutgoingState.NOT_DELIVERED, OutgoingState.UNKNOWN)
            name = names_of(settings)
            found = reader.outgoing_list(states=states, limit=AT_MOST)
            wanted += [
                stored.outgoing.message_id
                for stored in reversed(found)
                if not to
                or to in (stored.facts.to_party, stored.facts.cpa_id)
                or to == name(stored.facts.to_party, stored.facts.cpa_id)
            ]
    return _sent_again(settings, list(dict.fromkeys(wanted)), all_at_once=failed)


def _sent_again(settings: Settings, wanted: list[str], *, all_at_once: bool) -> Report:
    import asyncio

    from oncewire.entry.control.client import OfflineStore
    from oncewire.entry.logs import only_errors
    from oncewire.entry.running.open_party import reach

    async def run() -> tuple[list[tuple[str, str]], bool]:
        rows = []
        async with reach(settings) as verbs:
            for each_id in wanted:
                try:
                    await verbs.resend(each_id, user_name())
                    rows.append((each_id, ""))
                except OncewireError as problem:
                    if not all_at_once:
                        raise
                    # One that cannot be sent any more keeps no other back.
                    rows.append((each_id, problem.problem))
            return rows, isinstance(verbs, OfflineStore)

    with only_errors():
        rows, at_rest = asyncio.run(run()) if wanted else ([], False)
    again = sum(not problem for _, problem in rows)
    said = f"{again} of {len(rows)} sent again." if rows else "Nothing has failed."
    later = " No handler runs: it takes effect with `oncewire serve`." if again and at_rest else ""
    return Report(
        {"resent": again, "refused": len(rows) - again},
        (Listing("done", ("what", "problem"), rows),),
        summary=said + later,
        exit_code=output.OK if again == len(rows) else output.WRONG,
    )


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("status")(status)
    app.command("incidents")(incidents)
    notices = typer.Typer(
        help="Failures of what we sent that the application was not told of: take note of them.",
        invoke_without_command=True,
    )
    notices.callback()(listed)
    notices.command("take")(take)
    notices.command("confirm")(confirm)
    app.add_typer(notices, name="notices")
    app.command("resend")(resend)
