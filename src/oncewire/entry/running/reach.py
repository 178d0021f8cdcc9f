"""Reach: find who does a party's work now, so that there are never two writers of its store.

The handler that runs is asked through its control socket. Where none runs, the caller becomes
the writer for as long as it needs: at rest, or as a handler if something must be sent. Who
comes while another command has the store waits a little for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from oncewire.entry.control.client import Remote
from oncewire.entry.control.doers import AtRest, Running
from oncewire.entry.control.language import socket_path
from oncewire.entry.running import assemble
from oncewire.entry.running.ownership import running_or
from oncewire.entry.running.serving import prepare, serving

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings


@asynccontextmanager
async def reach(settings: Settings) -> AsyncIterator[Remote | AtRest]:
    """The running handler, or the store itself if there is none."""
    found = await running_or(settings, lambda: AtRest(assemble.make_engine(settings)))
    try:
        yield found
    finally:
        await found.close()


@asynccontextmanager
async def reach_running(settings: Settings) -> AsyncIterator[Remote | Running]:
    """The running handler, or one that runs in this process for the time being."""
    found = await running_or(settings, lambda: prepare(settings))
    if not isinstance(found, Remote):
        async with serving(settings, found, passing=True) as running:
            yield running
        return
    try:
        yield found
    finally:
        await found.close()


async def tell_running(settings: Settings) -> None:
    """Let the handler that runs, if one does, read the files of its party anew."""
    remote = await Remote.connect(socket_path(settings))
    if remote is None:
        return
    try:
        await remote.reload()
    finally:
        await remote.close()
