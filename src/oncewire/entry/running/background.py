"""Background: a party's handler as a process of its own, or as a unit of systemd."""

from __future__ import annotations

import json
import os
import pwd
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from oncewire.entry.files import PRIVATE_FOLDER, make_folder
from oncewire.entry.party.settings import Settings
from oncewire.entry.party.store import is_owned, store_path
from oncewire.errors import InvalidValue, NotAllowed, TransportProblem

START_SECONDS = 60.0
STOP_SECONDS = 30.0
DRAIN_SECONDS = 90.0
END_SECONDS = 10.0
"""How long a process may take to end after its last word."""


class NotStarted(TransportProblem):
    """The handler did not start; it ended with `exit_code`, if it ended by itself."""

    def __init__(self, problem: str, *, remedy: str, exit_code: int | None) -> None:
        super().__init__(problem, remedy=remedy)
        self.exit_code = exit_code


def log_file(settings: Settings) -> Path:
    """Where a handler in the background writes what it would write to the terminal."""
    named = settings.log.file
    return settings.path(named) if named is not None else store_path(settings).parent / "serve.log"


def start(settings: Settings, given: list[str]) -> str:
    """Start the handler; returns its ready line once everything listens."""
    path = log_file(settings)
    make_folder(store_path(settings).parent, PRIVATE_FOLDER)
    # -P: as in the foreground, no module is taken from the folder that one happens to stand in.
    command = [sys.executable, "-P", "-m", "oncewire", "serve", "--json", "--detached"]
    command += ["-c", str(settings.folder)]
    for option in given:
        command += ["--set", option]
    with path.open("ab") as log:
        process = subprocess.Popen(  # noqa: S603  (our own command, with checked settings)
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            # Neither Ctrl-C in this terminal nor its end is meant for the handler.
            start_new_session=True,
        )
    line = _first_line(process)
    if '"ready"' in line:
        return line
    problem, remedy = _problem(line)
    raise NotStarted(
        f"the handler of {settings.party.name} did not start: {problem}",
        remedy=remedy or f"run it in the foreground to see why, or look into {path}",
        exit_code=_ended(process, END_SECONDS if line else 0),
    )


def _ended(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """The status it ends with by itself; None if it has to be ended."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def _first_line(process: subprocess.Popen[bytes]) -> str:
    """What the process says first; all of it, if it ends at once."""
    assert process.stdout is not None  # noqa: S101
    ready, _, _ = select.select([process.stdout], [], [], START_SECONDS)
    if not ready:
        return ""
    line = process.stdout.readline().decode("utf-8", "replace")
    if '"ready"' not in line:
        line += process.stdout.read().decode("utf-8", "replace")
    return line


def _problem(said: str) -> tuple[str, str]:
    """What it said was wrong, and what to do about it where it said so."""
    try:
        first = json.loads(said)["problems"][0]
        return str(first["problem"]), str(first.get("next", ""))
    except (ValueError, LookupError, TypeError, AttributeError):
        return said.strip()[:300] or "it said nothing", ""


def stop(settings: Settings, pid: int, *, drain: bool = False) -> None:
    """Stop the process gracefully and wait until it has ended: what it lets go of before that is
    its store, while a call of the application may still be under way. `drain`: when all that it has
    begun is done."""
    patience = DRAIN_SECONDS if drain else STOP_SECONDS
    try:
        os.kill(pid, signal.SIGUSR1 if drain else signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError:
        raise NotAllowed(
            f"process {pid} belongs to somebody else", remedy="stop it as that user"
        ) from None
    deadline = time.monotonic() + patience
    while is_owned(store_path(settings)) or _lives(pid):
        if time.monotonic() > deadline:
            raise TransportProblem(
                f"process {pid} has not stopped within {patience:.0f} seconds",
                remedy="an application that has not returned from a call keeps it; "
                f"`kill -9 {pid}` loses nothing that was stored",
            )
        time.sleep(0.05)


def _lives(pid: int) -> bool:
    """Whether the process runs. One that has ended, and that its parent has not asked for, does
    not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2][1] != "Z"
    except ProcessLookupError:
        return False
    except OSError:
        # Where the system has no such files.
        return True


# Unit: a party's handler as a service of systemd.
#
# `oncewire serve` tells systemd when it listens and that its loop turns, so a handler that hangs
# is started anew. The service may write where the settings say and to nothing else.

_UNIT = """\
[Unit]
Description=Oncewire, the business messages of {party}
Documentation=man:systemd.service(5)
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
User={user}
{environment}ExecStart={python} -m oncewire serve --quiet --config {folder}
ExecReload=/bin/kill -HUP $MAINPID
WorkingDirectory={folder}
Restart=always
RestartSec=2
WatchdogSec=60
TimeoutStopSec=60
UMask=0077
ReadWritePaths={written}
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp={private_tmp}
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
NoNewPrivileges=yes
CapabilityBoundingSet={capabilities}
AmbientCapabilities={capabilities}
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
"""

_PRIVILEGED = 1024
"""Ports below this one need a capability."""


def unit_of(settings: Settings) -> str:
    """The unit file of a party; its handler runs as the user who owns the folder."""
    folder = settings.folder.resolve()
    written = [settings.store.path.parent, settings.store.spool, settings.application.folder]
    if settings.log.file is not None:
        written.append(settings.log.file.parent)
    if settings.admin.port:
        written.append(settings.admin.access_log.parent)
    paths = [folder, *(settings.path(path).resolve() for path in written)]
    outside = [path for path in paths[1:] if not path.is_relative_to(folder)]
    modules = os.environ.get("PYTHONPATH", "") if settings.application.function else ""
    for path in (sys.executable, modules, *map(str, paths)):
        if any(character in path for character in " \"'\\%$\n"):
            raise InvalidValue(
                f"systemd would not read the path {path!r} as it is",
                remedy="use a folder without spaces, quotes, backslashes, percent and dollar signs",
            )
    low = 0 < settings.http.port < _PRIVILEGED
    return _UNIT.format(
        party=settings.party.name,
        user=pwd.getpwuid(Path(folder).stat().st_uid).pw_name,
        # A function of the application is found as here.
        environment=f"Environment=PYTHONPATH={modules}\n" if modules else "",
        # Files below /tmp would be hidden from it.
        private_tmp="no" if any(path.is_relative_to("/tmp") for path in paths) else "yes",  # noqa: S108
        python=sys.executable,
        folder=folder,
        written=" ".join(map(str, dict.fromkeys([folder, *outside]))),
        capabilities="CAP_NET_BIND_SERVICE" if low else "",
    )
