"""`oncewire serve`: run a party's handler until it is told to stop."""

from __future__ import annotations

import io
import json as jsonlib
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.output import Config, Json, Listing, Report
from oncewire.errors import HandlerFailed, OncewireError

if TYPE_CHECKING:
    from oncewire.entry.control.client import LocalHandler
    from oncewire.entry.party.settings import Settings


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("serve")(serve)
    app.command("stop")(stop)


@output.answers
def serve(
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No ready line and no closing words.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="In the background; returns once it listens.")
    ] = False,
    detached: Annotated[bool, typer.Option("--detached", hidden=True)] = False,
    drain: Annotated[
        bool,
        typer.Option(
            "--drain",
            help="Have the running handler take no new work, finish what it has begun, and end.",
        ),
    ] = False,
    systemd: Annotated[
        bool, typer.Option("--systemd", help="Print a unit file for systemd, and run nothing.")
    ] = False,
    config: Config = None,
    settings: output.Set = None,
    json: Json = False,
) -> Report:
    """Run the party's handler: send what is due, receive, deliver. Stop it with Ctrl-C.

    The ready line goes to standard output, logs to standard error or to log.file. SIGTERM and
    SIGINT stop it gracefully; even a kill -9 loses nothing.

    Example: oncewire serve --systemd > /etc/systemd/system/acme.service
    """

    from oncewire.entry.admin.server import admin_port
    from oncewire.entry.logs import start_logging
    from oncewire.entry.party.settings import flags_of
    from oncewire.entry.running import serving
    from oncewire.entry.running.alerting import alerting_of
    from oncewire.entry.running.serving import serve as run

    found = output.loaded(config, settings).settings
    if systemd:
        from oncewire.entry.running.background import unit_of

        return Report(text=unit_of(found))
    if drain:
        # The handler ends when it has done what it has begun; others go on with the rest.
        party, pid, ended = _stopped(found.folder, drain=True)
        said = f"{party} has ended as process {pid}." if ended else "None was running."
        return Report({"party": party, "pid": pid, "stopped": ended}, summary=said)
    if detach:
        return _detached(found, settings or [])
    log = found.log
    start_logging(log.level, log.form.value, None if log.file is None else found.path(log.file))

    waiting = Waiting(log.form.value) if detached else None

    def ready(running: LocalHandler) -> None:
        if waiting is not None:
            waiting.speak_to()
        if not quiet:
            _say_ready(found.party.name, running.url, json=json)
        if waiting is not None:
            waiting.let_go()

    try:
        port = admin_port(found, flags_of(settings or ()))
        status = serving.run(run(found, ready, (alerting_of,), port))
    except Exception as failure:
        if waiting is not None and waiting.is_there:
            # It hears why there is no ready line.
            waiting.speak_to()
        elif waiting is not None and isinstance(failure, HandlerFailed):
            # Nobody listens any more, and the log has it.
            raise typer.Exit(failure.exit_code) from failure
        raise
    if quiet or detached:
        raise typer.Exit(output.OK)
    summary = f"{status.party} stopped. Whatever was under way is kept."
    if json:
        _say_line({"ok": True, **asdict(status), "summary": summary})
        raise typer.Exit(output.OK)
    return Report({}, summary=summary)


def _say_ready(party: str, url: str, *, json: bool) -> None:
    """One line, for the person or the program that started us."""
    if json:
        _say_line({"event": "ready", "party": party, "url": url, "pid": os.getpid()})
        return
    sys.stdout.write(f"{party} listens at {url}  (stop it with Ctrl-C)\n")
    sys.stdout.flush()


def _say_line(said: dict[str, Any]) -> None:
    """Words of a process that runs on, or did: its log may go the same way, a line each."""
    sys.stdout.write(jsonlib.dumps(said, ensure_ascii=False) + "\n")
    sys.stdout.flush()


class Waiting:
    """The process that started a detached handler, and waits for its ready line on our standard
    output.

    An application may print before that line, and goes on afterwards, when that process listens no
    more: what it prints goes where the log goes, line by line.
    """

    def __init__(self, form: str) -> None:
        from oncewire.entry.logs import Printed

        self.is_there = True
        self._own, self._place = sys.stdout, os.dup(1)
        sys.stdout.flush()
        os.dup2(2, 1)
        if form == "json":
            sys.stdout = Printed()
        elif isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)
        self._printed = sys.stdout

    def speak_to(self) -> None:
        """Say the next words to it."""
        sys.stdout.flush()
        sys.stdout = self._own
        os.dup2(self._place, 1)

    def let_go(self) -> None:
        """It has what it waited for."""
        sys.stdout.flush()
        os.dup2(2, 1)
        os.close(self._place)
        sys.stdout, self.is_there = self._printed, False


def _detached(settings: Settings, given: list[str]) -> Report:
    from oncewire.entry.party.store import find_restored
    from oncewire.entry.running.background import log_file, start

    ready = jsonlib.loads(start(settings, given))
    hints = [f"oncewire stop {output.typed(settings.folder)}"]
    summary = f"{settings.party.name} listens at {ready['url']}."
    restored = find_restored(settings)
    if restored is not None:
        hints.insert(0, f"oncewire doctor{output.at_party(settings)}")
        summary += f" It was restored {restored}."
    return Report(
        {
            "party": settings.party.name,
            "url": ready["url"],
            "pid": ready["pid"],
            "log": str(log_file(settings)),
        },
        summary=summary,
        hints=tuple(hints),
    )


@output.answers
def stop(
    parties: Annotated[
        list[Path] | None, typer.Argument(help="Folders of parties; none: this party.")
    ] = None,
    config: Config = None,
) -> Report:
    """Stop handlers gracefully, wherever they were started. What is under way is kept."""

    rows, failed = [], []
    named = [*(parties or ()), *((config,) if config else ())]
    for folder in named or [None]:
        try:
            rows.append(_stopped(folder))
        except OncewireError as error:
            if len(named) < 2:
                raise
            # The others are to be stopped all the same, and told of.
            failed.append(error)
    stopped = sum(1 for row in rows if row[2])
    return Report(
        listings=(Listing("parties", ("party", "pid", "stopped"), rows),),
        problems=tuple(output.problem_of(error) for error in failed),
        summary=f"{stopped} stopped." if stopped or failed else "None was running.",
        exit_code=output.exit_code_of(failed[0]) if failed else output.OK,
    )


def _stopped(folder: Path | None, *, drain: bool = False) -> tuple[str, int | None, bool]:
    """The party, the process it ran as, and whether that was stopped."""
    from oncewire.entry.cli.operator import running
    from oncewire.entry.running import background

    settings = output.loaded(folder).settings
    status = running(settings)
    if status is None:
        return settings.party.name, None, False
    background.stop(settings, status.pid, drain=drain)
    return settings.party.name, status.pid, True
