"""Handlers of the test's own process, for commands and programs to talk to."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from oncewire.entry.control.client import LocalHandler
from oncewire.entry.party.settings import Settings, load
from oncewire.entry.running.serving import Prepared, prepare, serving

T = TypeVar("T")


class Served:
    """Handlers of this process, each started and stopped by name, in a thread of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loop = asyncio.new_event_loop()
        self._doors: dict[str, AbstractAsyncContextManager[LocalHandler]] = {}
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def start(self, name: str) -> LocalHandler:
        settings = load(self.folder / name, environ={}).settings
        door = serving(settings, self.do(_prepared(settings)))
        self._doors[name] = door
        return self.do(door.__aenter__())

    def stop(self, name: str) -> None:
        self.do(self._doors.pop(name).__aexit__(None, None, None))

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def close(self) -> None:
        for name in list(self._doors):
            self.stop(name)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def _prepared(settings: Settings) -> Prepared:
    return prepare(settings)


@contextmanager
def both_served(parties: Path) -> Iterator[Served]:
    """The handlers of acme and globex run."""
    found = Served(parties)
    try:
        for name in ("acme", "globex"):
            found.start(name)
        yield found
    finally:
        found.close()
