"""What an operator looks at and decides: how a party is doing, what needs a decision, and the
commands that are made from the table of verbs.

Of a verb what is meant is found, it is done by whoever has the store, and what became of it is
shown."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.finding import (
    LOOKED_AT,
    complete_message,
    complete_partner,
    find_channel,
    find_id,
)
from oncewire.entry.cli.output import Config, Json, Listing, Party, Report
from oncewire.entry.control.verb import Command, Need, Told, Verb
from oncewire.entry.control.verbs import MEANINGS, TABLE, Status, Verbs, user_name
from oncewire.entry.messages.outlook import Trouble, advice, incidents_of, is_of_clock, troubles
from oncewire.entry.party.names import names_of
from oncewire.errors import InvalidValue, NotAllowed, OncewireError, StoreProblem, UnknownMessage
from oncewire.message.instant import moment
from oncewire.protocol.states import OutgoingState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from inspect import Parameter

    from oncewire.entry.party.settings import Settings
    from oncewire.store.contract import Reader
    from oncewire.store.records import StoredOutgoing

CHANNELS_SHOWN = 50
REFUSALS_SHOWN = 5
REFUSALS_READ = 2_000
"""More rows than a store keeps of refused messages."""
NOTICES_COUNTED = 1000
"""More failures that were not taken note of are not counted."""


@output.answers
def status(settings: Party, json: Json = False) -> Report:
    """Show how the party is doing: whether it runs, its messages by state, its channels.

    `kept` are the messages that are here, sent and received, until retention removes them. A
    document that travels in parts is one of them, and trials are none. `parts` are those of
    documents, whether they are sent, were joined, or wait for the rest of their document.

    Ends with status 6 if no handler runs or it does not work, else with 1 if an incident is open.
    """

    from oncewire.entry.party.store import find_replaced, find_restored, reading

    facts: dict[str, Any] = {"party": settings.party.name, "running": False}
    restored = find_restored(settings)
    facts |= {} if restored is None else {"restored": str(restored)}
    found, replaced = running(settings), find_replaced(settings)
    if replaced is not None:
        # What it holds is not what the party did: nothing of it is shown as that.
        facts["store"] = replaced.problem
        if found is not None:
            facts |= {"running": True, "pid": found.pid}
        # What a handler does now is kept nowhere.
        steps = ("doctor",) if found is None else ("stop", "doctor")
        todo = tuple(f"oncewire {step}{output.at_party(settings)}" for step in steps)
        code = output.NOT_RUNNING if found is None else output.WRONG
        return Report(facts, summary=f"{replaced}.", hints=todo, exit_code=code)
    if not output.has_store(settings):
        hint = f"oncewire serve{output.at_party(settings)}"
        summary = "Nothing was sent or received yet."
        lives = found is not None and found.running
        code = output.OK if lives else output.NOT_RUNNING
        return Report(facts | {"running": lives}, summary=summary, hints=(hint,), exit_code=code)
    with reading(settings) as reader:
        sending, receiving = reader.channels()
        rows: list[tuple[Any, ...]] = [
            (each.key, "out", each.epoch, each.next_number, each.suspended, each.suspended_reason)
            for each in sending
        ]
        rows += [(each.key, "in", each.epoch, each.expected, False, "") for each in receiving]
        # Those that wait for the operator come first.
        rows.sort(key=lambda row: not row[4])
        counts = reader.counts()
        undecided = incidents_of(reader, None if found is None else found.outage)
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
        facts |= {"store": found.outage[1]} if found.outage else {}
    facts |= {"kept": sum(counts.values()), "last_removed": moment(removed)}
    facts |= {name: count for name, count in counts.items() if count or json}
    facts |= {"parts": parts} if parts or json else {}
    if strangers or json:
        facts["strangers_refused"] = sum(refusal.count for refusal in strangers)
    columns = ("channel", "direction", "epoch", "next_number", "suspended", "reason")
    hints = tuple(
        f"oncewire {verb}{output.at_party(settings)}"
        for verb, told in (("incidents", open_ones), ("notices", untold), ("doctor", restored))
        if told
    )
    shown = rows if json else rows[:CHANNELS_SHOWN]
    listings = [Listing("channels", columns, shown)]
    if settings.store.url:
        listings.append(_handlers(settings.store.url))
    if strangers:
        latest = strangers if json else strangers[:REFUSALS_SHOWN]
        columns_told = ("code", "address", "count", "last", "problem")
        told = [
            (one.code, one.address, one.count, moment(one.last_at), one.problem[:80])
            for one in latest
        ]
        listings.append(Listing("refused", columns_told, told))
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


ANSWERS_WITHIN = 6.0
"""Seconds within which a handler that lives says so."""


def running(settings: Settings) -> Status | None:
    """The status of the handler that runs, or None; asked anew each time, so that one that hangs
    is not called running."""
    import asyncio

    from oncewire.entry.control.client import Remote
    from oncewire.entry.party.store import owner_of, socket_path, store_path

    async def asked() -> Status | None:
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

    return asyncio.run(asked())


@output.lists
def incidents(
    settings: Party,
    every: Annotated[bool, typer.Option("--all", help="Those that are resolved, too.")] = False,
) -> Report:
    """List what needs a decision: messages and channels that cannot go on by themselves.

    What failed for one partner and of one cause is one entry, with how many messages it is about.
    Ends with status 1 while something is open.
    """

    from oncewire.entry.party.store import reading

    empty = "Nothing needs a decision."
    told: list[Trouble] = []
    hints: tuple[str, ...] = ()
    undecided = 0
    if output.has_store(settings):
        handler = running(settings)
        with reading(settings) as reader:
            outage = None if handler is None else handler.outage
            found = incidents_of(reader, outage, every=every)
            told = troubles(reader, names_of(settings), found)
            left = [incident for incident in found if incident.resolved_at is None]
            hints, undecided = (
                advice(reader, told, left, output.now(), output.at_party(settings)),
                len(left),
            )
    columns = "id opened=opened_at@ count partner problem message_id channel resolved=resolved_at@"
    still = sum(one.resolved_at is None for one in told)
    about = "" if still == undecided else f", about {undecided} messages and channels"
    return Report(
        listings=(Listing.of("incidents", columns, told, empty=empty),),
        summary=f"{still} open{about}." if undecided else "",
        hints=hints,
        exit_code=output.WRONG if undecided else output.OK,
    )


# `oncewire notices`: failures that were not told yet, and taking note of them.

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="At most so many.")]
_EMPTY = "No failure waits to be told."


@output.lists
def listed(settings: Party, limit: Limit = 50) -> Report:
    """List messages that failed and of which the application was not told yet, oldest first."""
    from oncewire.entry.party.store import reading
    from oncewire.handler.delivering.notices import notice_of

    columns = ("submitted", "notice_id", "to", "action", "outcome", "reason")
    found: Sequence[StoredOutgoing] = ()
    if output.has_store(settings):
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
    hint = f"oncewire notices confirm NOTICE_ID{output.at_party(settings)}"
    return Report(
        listings=(Listing("notices", columns, rows, empty=_EMPTY),), hints=(hint,) if rows else ()
    )


@output.answers
def take(
    settings: Party,
    out: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write notices into this folder, and confirm them."),
    ] = None,
    limit: Limit = 100,
) -> Report:
    """Take notices. With --output they become files and are confirmed; without, they are shown.

    What is not confirmed is shown again the next time.
    """

    from oncewire.entry.delivery.directory import put_notice
    from oncewire.entry.delivery.received_message import notice_facts
    from oncewire.entry.files import make_folder

    folder = None if out is None else make_folder(out)

    async def take_all(verbs: Verbs) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for notice in await verbs.notices(limit):
            file = ""
            if folder is not None:
                # Confirmed only when the file is on the disk: a crash in between repeats.
                file = output.here(put_notice(folder, notice))
                await verbs.confirm_notice(notice.notice_id)
            rows.append((*notice_facts(notice).values(), folder is not None, file))
        return rows

    rows, _ = ask(settings, take_all)
    columns = ("notice_id", "message_id", "outcome", "severity", "reason", "confirmed", "file")
    what = "1 notice" if len(rows) == 1 else f"{len(rows)} notices"
    taken = f"{what} taken{'' if out is None else f' into {output.here(out)}'}."
    hint = f"oncewire notices confirm NOTICE_ID{output.at_party(settings)}"
    return Report(
        listings=(Listing("notices", columns, rows, empty=_EMPTY),),
        summary=taken if rows else "",
        hints=(hint,) if rows and out is None else (),
    )


@output.answers
def confirm(
    settings: Party,
    notice_ids: Annotated[
        list[str], typer.Argument(help="Notices as `oncewire notices` names them, or parts.")
    ],
) -> Report:
    """Say that you know of a failure: nobody is told of it again. Saying it twice is harmless."""

    from oncewire.entry.party.store import reading
    from oncewire.handler.delivering.notices import notice_of

    with reading(settings) as reader:
        owed = [notice_of(stored.outgoing).notice_id for stored in reader.notices_owed(LOOKED_AT)]

    async def confirm_all(verbs: Verbs) -> list[tuple[str, bool]]:
        rows = []
        for wanted in notice_ids:
            # The only one that waits and has the text in its id is meant, else the id itself.
            found = [notice_id for notice_id in owed if wanted in notice_id]
            notice_id = found[0] if len(found) == 1 else wanted
            rows.append((notice_id, await verbs.confirm_notice(notice_id, user_name())))
        return rows

    rows, _ = ask(settings, confirm_all)
    return Report(
        listings=(Listing("confirmed", ("notice_id", "first"), rows),), summary="Confirmed."
    )


# `oncewire resend`: send messages again that failed, by their ids or all of a partner's.

AT_MOST = 100_000
"""Messages that one command sends again."""


@output.answers
def resend(
    settings: Party,
    message_id: Annotated[
        list[str] | None, typer.Argument(help="MessageIds, or unique parts of them.")
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="All that were not delivered or whose fate is unknown.")
    ] = False,
    to: Annotated[
        str,
        typer.Option(
            "--to", help="With --failed: only to this partner.", autocompletion=complete_partner
        ),
    ] = "",
) -> Report:
    """Send messages again: the same bytes under the same MessageId, so nothing can be doubled.

    It is for messages that were not delivered or whose fate is unknown, and only within
    persistDuration, because the partner remembers ids that long. After an outage:
    oncewire resend --to globex --failed
    """

    from oncewire.entry.party.store import reading

    if not message_id and not failed:
        raise InvalidValue("it is not said what is meant", remedy="name messages, or say --failed")
    if to and not failed:
        raise InvalidValue("--to goes with --failed", remedy="say --failed too")
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

    async def send_again(verbs: Verbs) -> list[tuple[str, str]]:
        rows = []
        for each_id in dict.fromkeys(wanted):
            try:
                await verbs.resend(each_id, user_name())
                rows.append((each_id, ""))
            except OncewireError as problem:
                if not failed:
                    raise
                # One that cannot be sent any more keeps no other back.
                rows.append((each_id, problem.problem))
        return rows

    rows, at_rest = ask(settings, send_again) if wanted else ([], False)
    again = sum(not problem for _, problem in rows)
    said = f"{again} of {len(rows)} sent again." if rows else "Nothing has failed."
    later = " No handler runs: it takes effect with `oncewire serve`." if again and at_rest else ""
    return Report(
        {"resent": again, "refused": len(rows) - again},
        (Listing("done", ("what", "problem"), rows),),
        summary=said + later,
        exit_code=output.OK if again == len(rows) else output.WRONG,
    )


# Commands that are made from the table of verbs.

T = TypeVar("T")

GROUPS = {"clock": "When the machine's clock was set."}
"""What a word says that stands before several commands."""

_PARTNER = "The partner's name or PartyId, for what is unknown here; then ids are given whole."

_OPTION_TYPES = {"str": str, "int": int, "float": float, "bool": bool}


def command_of(verb: Verb[..., Any], command: Command) -> Callable[..., None]:
    """The function behind a command, with the parameters that its verb's arguments become."""

    def run(*, config: Path | None, json: bool, **given: Any) -> None:
        yes = given.pop("yes", True)
        output.answer(lambda: _work(verb, command, config, given, yes=yes), json=json)

    run.__name__, run.__doc__ = verb.name, command.help or verb.help
    parameters = [*_parameters(verb, command), output.parameter("config", Config, None)]
    parameters.append(output.parameter("json", Json, False))
    if command.asks is not None:
        said = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
        parameters.append(output.parameter("yes", said, False))
    return output.with_parameters(run, parameters)


def _parameters(verb: Verb[..., Any], command: Command) -> Iterator[Parameter]:
    """What its arguments become; what is named first on the line is no option."""
    named = {argument.name for argument in verb.arguments}
    for argument in verb.arguments:
        said = MEANINGS[argument.name]
        if argument.name in command.fixed:
            continue
        if argument.name == "message_id":
            named_ids = typer.Argument(help=said.help, autocompletion=complete_message)
            yield output.parameter("message_id", Annotated[list[str] | None, named_ids], None)
        elif argument.name == "channel" and "message_id" not in named:
            yield output.parameter("channel", Annotated[str, typer.Argument(help=said.help)])
        elif argument.name == "partner":
            # A partner who is asked about a message is not what is meant itself.
            whole = "channel" in named
            names, help_ = ("--partner", said.help) if whole else ("--to", _PARTNER)
            option = typer.Option(names, help=help_, autocompletion=complete_partner)
            yield output.parameter("partner", Annotated[str, option], "")
        else:
            kind = _OPTION_TYPES[argument.type.removesuffix(" | None")]
            option = typer.Option(help=said.help, min=said.least, max=said.most)
            # To a person nothing said is an empty text.
            usual = "" if argument.default is None else argument.default
            yield output.parameter(argument.name, Annotated[kind, option], usual)


def _work(
    verb: Verb[..., Any], command: Command, config: Path | None, given: dict[str, Any], *, yes: bool
) -> Report:
    """Find what is meant, have it done, and show what it is now."""
    from oncewire.entry.party.store import open_readers

    settings = output.loaded(config).settings
    if "by" in given:
        given["by"] = given["by"] or user_name()

    def done(calls: list[dict[str, Any]]) -> tuple[list[Any], bool]:
        async def each(verbs: Verbs) -> list[Any]:
            return [
                await verbs.perform(verb, verb.bind({**call, **command.fixed})) for call in calls
            ]

        return ask(settings, each, running=verb.needs is Need.HANDLER)

    if not {"message_id", "channel"} & set(given):
        results, at_rest = done([given])
        said = command.tell(results[0], None)
        return _report(command, [said], dict(said.facts), (), at_rest=at_rest)
    if not any(given.get(name) for name in ("message_id", "channel", "partner")):
        either = ", or a channel with --channel" if "channel" in given else ""
        either += ", or a partner with --partner" if "partner" in given else ""
        raise InvalidValue("it is not said what is meant", remedy=f"name messages{either}")
    readers = open_readers(settings)
    with readers.reader() as reader:
        # The arguments of each call: one for the channel, one for the partner, one for every
        # message that is named.
        options = dict(given)
        wanted, channel = options.pop("message_id", None), options.pop("channel", None)
        partner = options.pop("partner", None)
        to = None if "channel" in given else partner
        if to:
            options["partner"] = _agreed_with(settings, to)
        streams = [{"channel": find_channel(reader, channel)}] if channel else []
        streams += [{"partner": _agreed_with(settings, partner)}] if partner and not to else []
        messages = [{"message_id": _meant(reader, each_id, to)} for each_id in wanted or ()]
        calls = [{**named, **options} for named in (*streams, *messages)]
        questions = [] if yes else _questions(reader, command, calls)
    for question in questions:
        if not _is_terminal():
            raise NotAllowed(f"nobody was asked: {question}", remedy="say --yes if it is meant so")
        if not typer.confirm(f"{question}\nGive it up?", err=True):
            raise NotAllowed("it was not given up", remedy="mend the application: it is offered it")
    results, at_rest = done(calls)
    with readers.reader() as reader:
        told = [
            command.tell(result, reader.outgoing(call.get("message_id", "")))
            for call, result in zip(calls, results, strict=True)
        ]
        rows = [_row(reader, call, said, command) for call, said in zip(calls, told, strict=True)]
    readers.close()
    listing = Listing("done", ("what", "state", *told[0].facts), rows)
    return _report(command, told, {}, (listing,), at_rest=at_rest)


def _questions(reader: Reader, command: Command, calls: list[dict[str, Any]]) -> list[str]:
    """What is asked before it is done, for each message that arrived here and is not done with."""
    from oncewire.store.transition.rows import FINAL_INCOMING

    if command.asks is None:
        return []
    arrived = [
        kept
        for call in calls
        if reader.outgoing(call["message_id"]) is None
        for kept in reader.incoming(call["message_id"])
    ]
    return [command.asks(kept) for kept in arrived if kept.incoming.state not in FINAL_INCOMING]


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _agreed_with(settings: Settings, partner: str) -> str:
    from oncewire.entry.messages.submitting import find_agreement
    from oncewire.entry.party.agreements import load_readable

    return find_agreement(load_readable(settings), partner).cpa_id


def _meant(reader: Reader, wanted: str, to: str | None) -> str:
    """The message that is meant. Where a partner may be asked for one that is unknown here (`to`
    is a text), part of an id could be that of another."""
    if to:
        return wanted
    try:
        return find_id(reader, wanted)
    except UnknownMessage as unknown:
        if to is None:
            raise
        remedy = f"{unknown.remedy}; to ask a partner for what is unknown here: `oncewire ask "
        raise UnknownMessage(
            unknown.problem, remedy=f"{remedy}{quote(wanted)} --to PARTNER`"
        ) from None


def ask(
    settings: Settings, work: Callable[[Verbs], Awaitable[T]], *, running: bool = False
) -> tuple[T, bool]:
    """The result of asking whoever has the party's store, and whether no handler runs afterwards.
    `running`: something has to be sent or heard; where no handler runs, one runs meanwhile."""
    import asyncio

    from oncewire.entry.control.client import Remote
    from oncewire.entry.logs import only_errors
    from oncewire.entry.running.open_party import reach, reach_running

    async def asked() -> tuple[T, bool]:
        async with reach_running(settings) if running else reach(settings) as verbs:
            return await work(verbs), not isinstance(verbs, Remote)

    with only_errors():
        return asyncio.run(asked())


def _row(reader: Reader, call: dict[str, Any], said: Told, command: Command) -> tuple[Any, ...]:
    """What a call was about, where that stands now, and what is known of it besides."""
    message_id = call.get("message_id")
    if message_id is None:
        return (call.get("channel") or call["partner"], command.done, *said.facts.values())
    return (message_id, _state(reader, message_id), *said.facts.values())


def _state(reader: Reader, message_id: str) -> str:
    """Where a message stands: at its sender if that is us, else at its receiver."""
    sent = reader.outgoing(message_id)
    if sent is not None:
        return sent.outgoing.state.value
    return next((stored.incoming.state.value for stored in reader.incoming(message_id)), "")


def _report(
    command: Command,
    told: list[Told],
    facts: dict[str, Any],
    listings: tuple[Listing, ...],
    *,
    at_rest: bool,
) -> Report:
    sentences = list(dict.fromkeys(said.sentence for said in told if said.sentence))
    if command.done:
        sentences.insert(0, f"{command.done[0].upper()}{command.done[1:]}.")
    if at_rest and command.later:
        sentences.append("No handler runs: it takes effect with `oncewire serve`.")
    good = all(said.good for said in told)
    return Report(
        facts, listings, summary=" ".join(sentences), exit_code=output.OK if good else output.WRONG
    )


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("status")(status)
    app.command("incidents")(incidents)
    says = "Failures of what we sent that the application was not told of: take note of them."
    output.add_group(app, "notices", says, {"take": take, "confirm": confirm}, itself=listed)
    app.command("resend")(resend)
    groups: dict[str, typer.Typer] = {}
    for verb in TABLE.values():
        for command in verb.commands:
            if not isinstance(command, Command):
                continue
            group, _, name = command.name.rpartition(" ")
            if group and group not in groups:
                groups[group] = typer.Typer(help=GROUPS[group], no_args_is_help=True)
                app.add_typer(groups[group], name=group)
            groups.get(group, app).command(name)(command_of(verb, command))
