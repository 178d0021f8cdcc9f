"""HAProxy in front of the handlers of one party."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests import parts

CONFIG = """\
defaults
    mode http
    timeout connect 2s
    timeout client 60s
    timeout server 60s
    option redispatch
    option http-buffer-request
    retries 3
    retry-on conn-failure 503
frontend partners
    bind 127.0.0.1:{port}
    default_backend handlers
backend handlers
    balance roundrobin
{servers}
"""


class Balancer:
    """Takes each request to one of the handlers that listen."""

    def __init__(self, file: Path, port: int, handlers: list[int]) -> None:
        program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
        if program is None:
            parts.missing("no HAProxy; `make setup` says how to install it")
        servers = "\n".join(
            f"    server s{number} 127.0.0.1:{number} check inter 200ms fall 1 rise 1"
            for number in handlers
        )
        file.write_text(CONFIG.format(port=port, servers=servers))
        with file.with_suffix(".log").open("wb") as log:
            self._process = subprocess.Popen(
                [program, "-db", "-f", str(file)], stdout=log, stderr=log
            )

    def close(self) -> None:
        """Take it away."""
        self._process.terminate()
        self._process.wait()
