"""Unit: a party's handler as a service of systemd.

`oncewire serve` tells systemd when it listens and that its loop turns, so a handler that hangs is
started anew. The service may write where the settings say and to nothing else.
"""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

from oncewire.entry.party.settings import Settings
from oncewire.errors import InvalidValue

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
