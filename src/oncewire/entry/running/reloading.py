"""Reloading: agreements, certificates and keys are taken over while the handler runs.

The files of a party are looked at every second. What changed takes effect with the next message:
a partner that was added is known, one whose certificate was revoked is believed no more, also on
connections that are open already. A file that cannot be read changes nothing: what it said before
stays in force, the log and an incident say so.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from oncewire.entry.party.agreements import (
    AGREEMENT,
    FILES,
    AgreementFolder,
    Kept,
    Readable,
    Stamp,
    stamp_of,
)
from oncewire.entry.running.assemble import in_force, keys_of
from oncewire.entry.running.transports import client_settings, server_settings
from oncewire.errors import OncewireError, StoreDamaged
from oncewire.handler.runtime.engine import Engine
from oncewire.transport.http.transport import HttpTransport

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings
    from oncewire.handler.runtime.handler import Handler

logger = logging.getLogger("oncewire.serve")

LOOK_EVERY = 1.0

Seen = tuple[tuple[Path, Stamp], ...]


class Reloading:
    """Keeps a running handler in step with the files of its party."""

    def __init__(self, settings: Settings, handler: Handler) -> None:
        self._settings, self._handler = settings, handler
        self._agreements = AgreementFolder(settings)
        self._in_force: dict[Path, Kept] = {}
        self._seen: Seen = ()
        self._bad: set[str] = set()

    async def run(self) -> None:
        """Look for changes for ever."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if await asyncio.to_thread(self._has_changed):
                await self._take_over()

    async def begin(self) -> None:
        """Note what the handler was started with."""
        self._seen = self._look()
        found = self._agreements.readable()
        self._in_force = {kept.file: kept for kept in found.kept}
        # Somebody may have mended a file while nobody ran.
        self._bad = await self._handler.loop.operate(_told_of)
        await self._tell(_unread(found))

    async def reload(self) -> int:
        """Read every file again and take it over; returns how many agreements are in force."""
        self._agreements.forget()
        return await self._take_over()

    async def _take_over(self) -> int:
        """The same, of agreements only those that have changed."""
        self._seen = await asyncio.to_thread(self._look)
        found = self._agreements.readable()
        # Where a file cannot be read, what was agreed before holds.
        still = [self._in_force[file] for file in found.problems if file in self._in_force]
        kept = [*found.kept, *still]
        context = self._handler.engine.context
        try:
            context.agreements = in_force(self._settings, kept)
        except (OncewireError, OSError, ValueError) as problem:
            await self._tell(_unread(found) | {FILES: problem})
            return len(self._in_force)
        self._in_force = {paper.file: paper for paper in kept}
        logger.info("agreements were read anew", extra={"count": len(kept)})
        trouble = self._take_certificates(kept)
        await self._tell(_unread(found) | trouble)
        return len(kept)

    def _take_certificates(self, kept: list[Kept]) -> dict[str, Exception]:
        """Our keys, and whom the connections believe: all of it or none, and then why not.

        What is agreed holds either way, so that a file of one partner that cannot be read keeps
        no other from being revoked.
        """
        try:
            keys = keys_of(self._settings)
            for transport in self._handler.transports.values():
                if isinstance(transport, HttpTransport):
                    transport.renew(
                        server_settings(self._settings, kept), client_settings(self._settings, kept)
                    )
        except (OncewireError, OSError, ValueError) as problem:
            return {FILES: problem}
        self._handler.engine.context.keys = keys
        logger.info("keys and certificates were read anew")
        return {}

    def _has_changed(self) -> bool:
        return self._look() != self._seen or self._agreements.has_changed()

    def _look(self) -> Seen:
        """Our own key and certificate, and those of partners."""
        settings = self._settings
        folder = settings.path(settings.keys.partners)
        files = [settings.path(settings.keys.certificate), settings.path(settings.keys.key)]
        files += sorted(folder.iterdir()) if folder.is_dir() else []
        return tuple((file, stamp_of(file)) for file in files)

    async def _tell(self, bad: dict[str, Exception]) -> None:
        """Call the operator for files that cannot be taken over, and no more for those that can."""
        for channel, problem in bad.items():
            if channel not in self._bad:
                logger.error("files are not taken over", extra={"problem": str(problem)})
                await self._call(channel, problem)
        for channel in self._bad - set(bad):
            over = partial(Engine.resume, channel=channel)
            with contextlib.suppress(OncewireError):
                await self._handler.loop.operate(over)
        self._bad = set(bad)

    async def _call(self, channel: str, problem: Exception) -> None:
        trouble = StoreDamaged(str(problem)[:500], channel=channel)
        # Where the store cannot keep an incident, the log has it.
        with contextlib.suppress(OncewireError):
            await self._handler.loop.operate(lambda engine: engine.trouble(trouble))


def _told_of(engine: Engine) -> set[str]:
    """The channels of files that an operator was called for."""
    with engine.context.store.reader() as reader:
        channels = {incident.channel or "" for incident in reader.incidents()}
    return {channel for channel in channels if channel == FILES or channel.startswith(AGREEMENT)}


def _unread(found: Readable) -> dict[str, Exception]:
    """The agreements that cannot be read, by the channel under which an operator hears of each."""
    return {f"{AGREEMENT}{file.name}": error for file, error in found.problems.items()}
