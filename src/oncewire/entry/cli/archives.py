"""`oncewire pipeline journal`: the raw messages that another handler left, as its journal."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.output import Json, Listing, Report
from oncewire.entry.cli.pipeline import SHOWN_MAX, archive_at
from oncewire.entry.cli.spark import Master, Settings, session, settings_of
from oncewire.entry.files import number_of

if TYPE_CHECKING:
    from oncewire.pipeline.sources.archived import Journaled


def register(app: typer.Typer) -> None:
    """Add the command to the group `pipeline`."""
    for group in app.registered_groups:
        if group.name == "pipeline" and group.typer_instance is not None:
            group.typer_instance.command("journal")(journal)


@output.answers
def journal(
    archive: Annotated[
        list[Path],
        typer.Argument(help="Raw messages: folders, tar and zip bundles, mailboxes, files."),
    ],
    party: Annotated[
        list[str],
        typer.Option(help="Whose archive it is: a PartyId, a handler's address; may be repeated."),
    ],
    to: Annotated[Path, typer.Option("--to", help="New folder for the journal.")],
    node: Annotated[
        str | None, typer.Option(help="What the handler is called; otherwise the first --party.")
    ] = None,
    master: Master = "",
    conf: Settings = None,
    json: Json = False,
) -> Report:
    """Make a journal of the raw messages that another handler left, of whatever vendor.

    `run` and `reconcile` take it as a book: --store FOLDER. It has what messages show: who sent
    what to whom, when, how often, and what was acknowledged or refused. What cannot be read is
    named, and the rest goes on.
    """

    archives = [archive_at(path) for path in archive]
    with session(master, settings_of(conf), json=json) as (spark, tell):
        from oncewire.pipeline.sources import archived

        found = archived.journal(spark, archives, to, party, node=node, tell=tell)
    return _report(found, to, json=json)


def _report(found: Journaled, folder: Path, *, json: bool) -> Report:
    """What became of an archive."""
    counts = {
        name: found.kinds.get(kind, 0)
        for name, kind in (
            ("submitted", "submitted"),
            ("sent", "sent"),
            ("received", "received"),
            ("duplicates", "duplicate"),
            ("acknowledged", "acknowledged"),
            ("acknowledgements_sent", "ack_sent"),
            ("rejected", "rejected"),
            ("refused", "refused"),
        )
    }
    unread = list(found.unreadable)
    return Report(
        facts={
            "node": found.node,
            "journal": str(folder),
            "rows": found.rows,
            "messages": found.messages,
            **counts,
            "between_others": found.strange,
            "about_no_message": found.other,
            "unreadable": found.unread,
        },
        listings=(
            Listing(
                "unread", ("file", "problem"), unread if json else unread[:SHOWN_MAX], "Unreadable"
            ),
        ),
        summary=f"{number_of(found.messages, 'message')} of {found.node} in "
        f"{number_of(found.rows, 'row')}"
        + (f", {number_of(found.unread, 'file')} could not be read" if found.unread else ""),
        hints=(f"oncewire pipeline run --store {quote(str(folder))} --lake LAKE",),
    )
