"""`oncewire backup`: a whole copy of a party, taken while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.output import Json, Report, here
from oncewire.entry.cli.place import Config, loaded, now
from oncewire.entry.number import number_of


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("backup")(backup)


def backup(
    folder: Annotated[Path, typer.Argument(help="The folder to make; it must not be there yet.")],
    check: Annotated[
        bool, typer.Option("--check", help="Take none; see whether that one is whole.")
    ] = False,
    config: Config = None,
    json: Json = False,
) -> None:
    """Copy the party, its messages, keys and agreements into a folder, and read it back.

    The handler may go on meanwhile. The copy is a party's folder: to restore, stop the handler,
    put the copy in the folder's place and start it (see docs/backup.md).
    """

    def work() -> Report:
        from oncewire.entry.running.backup import check_backup, take_backup

        found = (
            check_backup(folder) if check else take_backup(loaded(config).settings, folder, now())
        )
        return Report(
            {
                "folder": str(found.folder),
                "kept": found.kept,
                "journal_rows": found.journal,
                "files": found.files,
                "bytes": found.size,
            },
            summary=f"{here(found.folder)} is whole: "
            f"{number_of(found.kept, 'message', 'is')} kept in it.",
        )

    output.answer(work, json=json)
