"""Ports of loopback for tests: each is lent once, and never to two workers."""

from __future__ import annotations

import os
import random
import re
import socket

FIRST, LAST = 12_000, 32_000
"""Below those that the system gives to connections: one of them could take a port while the party
that listens on it is not up yet, or dead and about to come back."""

WORKERS = 8
"""Among how many workers the ports are shared out."""

_lent: set[int] = set()


def free_port() -> int:
    """A port that nobody listens on, and that no other test of this run is given."""
    number = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0) % WORKERS
    share = (LAST - FIRST) // WORKERS
    while True:
        port = random.SystemRandom().randrange(share) + FIRST + number * share
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _lent:
            _lent.add(port)
            return port
