"""`oncewire notices`: failures that nobody was told of yet, and taking note of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.listing import LOOKED_AT, Names, at_party, has_store, moment
from oncewire.entry.cli.output import Json, Listing, Report, here
from oncewire.entry.cli.place import Config, loaded

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="At most so many.")]
_EMPTY = "Everybody was told of every failure."


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    notices = typer.Typer(
        help="Failures of what we sent that the application was not told of: take note of them.",
        invoke_without_command=True,
    )
    notices.callback()(listed)
    notices.command("take")(take)
    notices.command("confirm")(confirm)
    app.add_typer(notices, name="notices")


def listed(
    context: typer.Context, limit: Limit = 50, config: Config = None, json: Json = False
) -> None:
    """List messages that failed and of which the application was not told yet, oldest first."""
    if context.invoked_subcommand is not None:
        return

    def work() -> Report:
        from oncewire.entry.running.assemble import open_readers
        from oncewire.handler.delivering.notices import notice_of

        settings = loaded(config).settings
        columns = ("submitted", "notice_id", "to", "action", "outcome", "reason")
        if not has_store(settings):
            return Report(listings=(Listing("notices", columns, (), empty=_EMPTY),))
        with open_readers(settings).reader() as reader:
            found = reader.notices_owed(limit)
        name = Names(settings)
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

    output.answer(work, json=json)


def take(
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write each notice into this folder, then confirm it."),
    ] = None,
    limit: Limit = 100,
    config: Config = None,
    json: Json = False,
) -> None:
    """Take notices. With --out they become files and are confirmed; without, they are shown.

    What is not confirmed is shown again the next time.
    """

    def work() -> Report:
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

    output.answer(work, json=json)


async def _take(settings: Settings, limit: int, out: Path | None) -> list[tuple[Any, ...]]:
    from oncewire.entry.delivery.directory import put_notice
    from oncewire.entry.delivery.received_message import notice_facts
    from oncewire.entry.files import make_folder
    from oncewire.entry.running.reach import reach

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


def confirm(
    notice_ids: Annotated[
        list[str], typer.Argument(help="Notices as `oncewire notices` names them, or parts.")
    ],
    config: Config = None,
    json: Json = False,
) -> None:
    """Say that you know of a failure: nobody is told of it again. Saying it twice is harmless."""

    def work() -> Report:
        import asyncio

        settings = loaded(config).settings
        rows = asyncio.run(_confirm(settings, notice_ids))
        return Report(
            listings=(Listing("confirmed", ("notice_id", "first"), rows),), summary="Confirmed."
        )

    output.answer(work, json=json)


async def _confirm(settings: Settings, wanted: list[str]) -> list[tuple[str, bool]]:
    from oncewire.entry.running.assemble import open_readers
    from oncewire.entry.running.reach import reach
    from oncewire.handler.delivering.notices import notice_of

    readers = open_readers(settings)
    with readers.reader() as reader:
        owed = [notice_of(stored.outgoing).notice_id for stored in reader.notices_owed(LOOKED_AT)]
    readers.close()
    async with reach(settings) as verbs:
        found = [_meant(message_id, owed) for message_id in wanted]
        return [(message_id, await verbs.confirm_notice(message_id)) for message_id in found]


def _meant(wanted: str, owed: list[str]) -> str:
    """The notice that is meant: the only one that waits and has the text in its id, else itself."""
    found = [message_id for message_id in owed if wanted in message_id]
    return found[0] if len(found) == 1 else wanted
