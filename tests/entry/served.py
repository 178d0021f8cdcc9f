"""Handlers of the test's own process, for commands and programs to talk to."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Self, TypeVar

from oncewire.entry.control.client import LocalHandler
from oncewire.entry.party.settings import Settings, load
from oncewire.entry.running.serving import Prepared, prepare, serving

T = TypeVar("T")


class Served:
    """Handlers of this process, each started and stopped by name, in a thread of their own."""

    def __init__(self, folder: Path, *names: str) -> None:
        """`names`: who is started when a `with` begins, which stops all at its end."""
        self.folder, self._names = folder, names
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

    def __enter__(self) -> Self:
        try:
            for name in self._names:
                self.start(name)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def close(self) -> None:
        for name in list(self._doors):
            self.stop(name)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def _prepared(settings: Settings) -> Prepared:
    return prepare(settings)
