"""Reach: find who does a party's work now, so that there are never two writers of its store.

The handler that runs is asked through its control socket. Where none runs, the caller becomes
the writer for as long as it needs: at rest, or as a handler if something must be sent. Who
comes while another command has the store waits a little for it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from oncewire.entry import assemble
from oncewire.entry.control import socket_path
from oncewire.entry.control_client import Remote
from oncewire.entry.verbs import AtRest, Running
from oncewire.errors import StoreProblem

if TYPE_CHECKING:
    from oncewire.entry.settings import Settings

PATIENCE = 15.0
"""Seconds to wait for a handler that starts, or a command that ends."""

_PAUSE = 0.05
_STRIKES = 3

T = TypeVar("T")


@asynccontextmanager
async def reach(settings: Settings) -> AsyncIterator[Remote | AtRest]:
    """The running handler, or the store itself if there is none."""
    found = await first(settings, lambda: AtRest(assemble.make_engine(settings)))
    try:
        yield found
    finally:
        await found.close()


@asynccontextmanager
async def reach_running(settings: Settings) -> AsyncIterator[Remote | Running]:
    """The running handler, or one that runs in this process for the time being."""
    from oncewire.entry.serving import prepare, serving

    found = await first(settings, lambda: prepare(settings))
    if not isinstance(found, Remote):
        async with serving(settings, found, passing=True) as running:
            yield running
        return
    try:
        yield found
    finally:
        await found.close()


async def first(settings: Settings, make: Callable[[], T]) -> Remote | T:
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


async def tell_running(settings: Settings) -> None:
    """Let the handler that runs, if one does, read the files of its party anew."""
    remote = await Remote.connect(socket_path(settings))
    if remote is None:
        return
    try:
        await remote.reload()
    finally:
        await remote.close()


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
