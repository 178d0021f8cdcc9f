"""Sweeping: what a writer began on a server and could not finish is taken away, later.

A connection that breaks leaves half a file under a name that nobody looks at. Its writer is in that
name, so it alone removes it, also after it was started anew; what others are writing is theirs.
"""

from __future__ import annotations

import asyncio
import logging
import time

from oncewire.transport.files import parcel_file as named
from oncewire.transport.files.remote import Connections, Place

logger = logging.getLogger("oncewire.files")

SAFE = 3600.0
"""Seconds after which nobody writes any more what he began then."""

EVERY = 3600.0
"""Seconds after which a folder is looked at again."""


class Sweeping:
    """The files of one writer that are not finished."""

    def __init__(self, connections: Connections, mark: str) -> None:
        self._connections, self._mark = connections, mark
        self._writing: set[str] = set()
        self._looked: dict[Place, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def new_id(self) -> str:
        """The name of a file that is being written from now on."""
        file_id = named.new_id(self._mark)
        self._writing.add(file_id)
        return file_id

    def ended(self, file_id: str) -> None:
        """It is not written any more, whatever became of it."""
        self._writing.discard(file_id)

    def begin(self, place: Place) -> None:
        """Look at a folder that can be reached, unless that was done not long ago."""
        now = time.monotonic()
        if now - self._looked.get(place, -EVERY) < EVERY:
            return
        self._looked[place] = now
        task = asyncio.get_running_loop().create_task(self._sweep(place))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sweep(self, place: Place) -> None:
        try:
            async with self._connections.to(place) as remote:
                names = await remote.names(place.folder, self._is_left)
                for name in names:
                    await remote.remove(place.path(name))
                    logger.info("a file that was never finished is removed", extra={"file": name})
        except Exception as problem:  # noqa: BLE001  (servers and libraries are not ours)
            # It may be a folder into which one may write and not look; then that is its owner's.
            logger.info(
                "files that were never finished are left",
                extra={"address": place.folder, "problem": str(problem)[:200]},
            )

    def _is_left(self, name: str) -> bool:
        found = named.part_of(name, self._mark)
        if found is None or found[0] in self._writing:
            return False
        return time.time_ns() // 1000 - found[1] > SAFE * 1_000_000

    async def stop(self) -> None:
        """Leave the rest to the next start."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
