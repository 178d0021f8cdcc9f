"""`oncewire resend`: send messages again that failed, by their ids or all of a partner's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.listing import Names, complete_partner, find_id
from oncewire.entry.cli.output import Json, Listing, Report
from oncewire.entry.cli.place import Config, loaded

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings
    from oncewire.store.contract import Reader

AT_MOST = 100_000
"""Messages that one command sends again."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("resend")(resend)


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
    json: Json = False,
) -> None:
    """Send messages again: the same bytes under the same MessageId, so nothing can be doubled.

    It is for messages that were not delivered or whose fate is unknown, and only within
    persistDuration, because the partner remembers ids that long. After an outage:
    oncewire resend --to globex --failed
    """

    def work() -> Report:
        from oncewire.entry.running.assemble import open_readers
        from oncewire.errors import InvalidValue

        if not message_id and not failed:
            raise InvalidValue(
                "it is not said what is meant", remedy="name messages, or say --failed"
            )
        if to and not failed:
            raise InvalidValue("--to goes with --failed", remedy="say --failed too")
        settings = loaded(config).settings
        readers = open_readers(settings)
        with readers.reader() as reader:
            wanted = [find_id(reader, each_id) for each_id in message_id or ()]
            if failed:
                wanted += _failed(settings, reader, to)
        readers.close()
        return _sent_again(settings, list(dict.fromkeys(wanted)), all_at_once=failed)

    output.answer(work, json=json)


def _failed(settings: Settings, reader: Reader, to: str) -> list[str]:
    """What failed, in the order in which it was submitted."""
    from oncewire.protocol.states import OutgoingState

    states = (OutgoingState.NOT_DELIVERED, OutgoingState.UNKNOWN)
    name = Names(settings)
    found = reader.outgoing_list(states=states, limit=AT_MOST)
    return [
        stored.outgoing.message_id
        for stored in reversed(found)
        if not to
        or to in (stored.facts.to_party, stored.facts.cpa_id)
        or to == name(stored.facts.to_party, stored.facts.cpa_id)
    ]


def _sent_again(settings: Settings, wanted: list[str], *, all_at_once: bool) -> Report:
    import asyncio

    from oncewire.entry.control.doers import AtRest
    from oncewire.entry.running.logs import only_errors
    from oncewire.entry.running.reach import reach
    from oncewire.errors import OncewireError

    async def run() -> tuple[list[tuple[str, str]], bool]:
        rows = []
        async with reach(settings) as verbs:
            for each_id in wanted:
                try:
                    await verbs.resend(each_id)
                    rows.append((each_id, ""))
                except OncewireError as problem:
                    if not all_at_once:
                        raise
                    # One that cannot be sent any more keeps no other back.
                    rows.append((each_id, problem.problem))
            return rows, isinstance(verbs, AtRest)

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
