"""`oncewire serve`: run a party's handler until it is told to stop."""

from __future__ import annotations

import json as jsonlib
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.output import Json, Report
from oncewire.entry.cli.place import Config, Set, loaded

if TYPE_CHECKING:
    from oncewire.entry.verbs import Running


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("serve")(serve)


def serve(
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No ready line and no closing words.")
    ] = False,
    config: Config = None,
    settings: Set = None,
    json: Json = False,
) -> None:
    """Run the party's handler: send what is due, receive, deliver. Stop it with Ctrl-C.

    The ready line goes to standard output, logs to standard error or to log.file. SIGTERM and
    SIGINT stop it gracefully; even a kill -9 loses nothing.
    """

    def work() -> Report:
        import asyncio

        from oncewire.entry.logs import start_logging
        from oncewire.entry.serving import serve as run

        found = loaded(config, settings).settings
        log = found.log
        start_logging(log.level, log.form.value, None if log.file is None else found.path(log.file))

        def ready(running: Running) -> None:
            if not quiet:
                _say_ready(found.party.name, running.url, json=json)

        status = asyncio.run(run(found, ready))
        summary = "" if quiet else f"{status.party} stopped. Whatever was under way is kept."
        return Report(status.as_dict() if json and not quiet else {}, summary=summary)

    output.answer(work, json=json)


def _say_ready(party: str, url: str, *, json: bool) -> None:
    """One line, for whoever waits for it: a person or a program that started us."""
    line = f"{party} listens at {url}  (stop it with Ctrl-C)"
    if json:
        line = jsonlib.dumps({"event": "ready", "party": party, "url": url, "pid": os.getpid()})
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
