"""Commands that are made from the table of verbs: what is meant is found, the verb is done by
whoever has the store, and what became of it is shown.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.completion import complete_message, complete_partner
from oncewire.entry.cli.output import (
    Config,
    Json,
    Listing,
    Report,
    find_channel,
    find_id,
    loaded,
)
from oncewire.entry.control.verb import Argument, Command, Need, Told, Verb
from oncewire.entry.control.verbs import MEANINGS, TABLE, user_name
from oncewire.errors import InvalidValue, NotAllowed, UnknownMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oncewire.entry.party.settings import Settings
    from oncewire.store.contract import Reader

GROUPS = {"clock": "When the machine's clock was set."}
"""What a word says that stands before several commands."""

_PARTNER = "The partner's name or PartyId, for what is unknown here; then ids are given whole."

_YES = "Do not ask."

_OPTION_TYPES = {"str": str, "int": int, "float": float, "bool": bool}


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
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


def command_of(verb: Verb[..., Any], command: Command) -> Callable[..., None]:
    """The function behind a command, with the parameters that its verb's arguments become."""

    def run(*, config: Path | None, json: bool, **given: Any) -> None:
        yes = given.pop("yes", True)
        output.answer(lambda: _work(verb, command, config, given, yes=yes), json=json)

    parameters = [*_parameters(verb, command), ("config", Config, None), ("json", Json, False)]
    if command.asks is not None:
        parameters.append(("yes", Annotated[bool, typer.Option("--yes", help=_YES)], False))
    kind = inspect.Parameter.KEYWORD_ONLY
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, kind, default=default, annotation=annotation)
            for name, annotation, default in parameters
        ]
    )
    run.__annotations__ = {name: annotation for name, annotation, _ in parameters}
    run.__name__, run.__doc__ = verb.name, command.help or verb.help
    return run


def _parameters(verb: Verb[..., Any], command: Command) -> Iterator[tuple[str, Any, Any]]:
    """(Name, annotation, default) of each; what is named first on the line is no option."""
    named = {argument.name for argument in verb.arguments}
    for argument in verb.arguments:
        said = MEANINGS[argument.name]
        if argument.name in command.fixed:
            continue
        if argument.name == "message_id":
            named_ids = typer.Argument(help=said.help, autocompletion=complete_message)
            yield "message_id", Annotated[list[str] | None, named_ids], None
        elif argument.name == "channel" and "message_id" not in named:
            yield "channel", Annotated[str, typer.Argument(help=said.help)], inspect.Parameter.empty
        elif argument.name == "partner":
            # A partner who is asked about a message is not what is meant itself.
            whole = "channel" in named
            option = typer.Option(
                "--partner" if whole else "--to",
                help=said.help if whole else _PARTNER,
                autocompletion=complete_partner,
            )
            yield "partner", Annotated[str, option], ""
        else:
            kind = _OPTION_TYPES[argument.type.removesuffix(" | None")]
            option = typer.Option(help=said.help, min=said.least, max=said.most)
            yield argument.name, Annotated[kind, option], _default(argument)


def _default(argument: Argument) -> Any:
    # To a person nothing said is an empty text.
    return "" if argument.default is None else argument.default


def _work(
    verb: Verb[..., Any],
    command: Command,
    config: Path | None,
    given: dict[str, Any],
    *,
    yes: bool,
) -> Report:
    """Find what is meant, have it done, and show what it is now."""
    from oncewire.entry.running.assemble import open_readers

    settings = loaded(config).settings
    if "by" in given:
        given["by"] = given["by"] or user_name()
    if not {"message_id", "channel"} & set(given):
        results, at_rest = _done(settings, verb, command, [given])
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
    _ask(questions)
    results, at_rest = _done(settings, verb, command, calls)
    with readers.reader() as reader:
        told = [
            command.tell(result, reader.outgoing(call.get("message_id", "")))
            for call, result in zip(calls, results, strict=True)
        ]
        rows = [_row(reader, call, said) for call, said in zip(calls, told, strict=True)]
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


def _ask(questions: list[str]) -> None:
    """Ask a person; where none can be asked, or says no, nothing is done."""
    for question in questions:
        if not _is_terminal():
            raise NotAllowed(f"nobody was asked: {question}", remedy="say --yes if it is meant so")
        if not typer.confirm(f"{question}\nGive it up?", err=True):
            raise NotAllowed("it was not given up", remedy="mend the application: it is offered it")


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


def _done(
    settings: Settings, verb: Verb[..., Any], command: Command, calls: list[dict[str, Any]]
) -> tuple[list[Any], bool]:
    """What comes of each call, and whether no handler runs."""
    import asyncio

    from oncewire.entry.control.client import OfflineStore
    from oncewire.entry.logs import only_errors
    from oncewire.entry.running.open_party import reach, reach_running

    async def run() -> tuple[list[Any], bool]:
        door = reach_running(settings) if verb.needs is Need.HANDLER else reach(settings)
        async with door as verbs:
            results = [
                await verbs.perform(verb, verb.bind({**call, **command.fixed})) for call in calls
            ]
            return results, isinstance(verbs, OfflineStore)

    with only_errors():
        return asyncio.run(run())


def _row(reader: Reader, call: dict[str, Any], said: Told) -> tuple[Any, ...]:
    """What a call was about, where that stands now, and what is known of it besides."""
    message_id = call.get("message_id")
    if message_id is None:
        return (call.get("channel") or call["partner"], "", *said.facts.values())
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
        facts,
        listings,
        summary=" ".join(sentences),
        exit_code=output.OK if good else output.WRONG,
    )
