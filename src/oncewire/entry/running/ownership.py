"""Ownership: which process has a party's store open for writing, and waiting for one's turn.

There are never two writers of one store. Who comes while another has it asks that one through
its control socket, or waits a little until the store is free.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from oncewire.entry.control.client import Remote
from oncewire.entry.control.language import socket_path
from oncewire.entry.running import assemble
from oncewire.errors import StoreProblem

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings


PATIENCE = 15.0
"""Seconds to wait for a handler that starts, or a command that ends."""


_PAUSE = 0.05


_STRIKES = 3


T = TypeVar("T")


async def running_or(settings: Settings, make: Callable[[], T]) -> Remote | T:
    """The running handler, or what `make` makes of the store once it is free."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE
    strikes = 0
    while True:
        remote = await Remote.connect(socket_path(settings))
        if remote is not None:
            return remote
        try:
            return make()
        except StoreProblem:
            # Somebody has it: a handler that is about to listen, or another command. One that
            # let go of it in this very moment is no reason to give up either.
            owned = is_owned(assemble.store_path(settings))
            strikes = 0 if owned else strikes + 1
            if loop.time() > deadline or strikes >= _STRIKES:
                raise
        await asyncio.sleep(_PAUSE)


def owner_of(path: Path) -> int:
    """The process that says it has the store open for writing; 0: it cannot be read."""
    try:
        return int(path.with_name(path.name + ".owner").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def is_owned(path: Path) -> bool:
    """Whether a process has the store open for writing."""
    try:
        handle = os.open(path.with_name(path.name + ".owner"), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
