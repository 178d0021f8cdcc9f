"""A service manager is told how the handler is; one that does not listen keeps nobody waiting."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from oncewire.entry.running.serving import keep_told, tell
from tests.handler.runtime.test_supervisor import handler

OLD = b"STATUS=of somebody else"


class Busy:
    """A manager that has as many words before it as the kernel keeps for it."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as another:
            another.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    another.sendto(OLD, str(path))
        self._socket.setblocking(False)

    def heard(self) -> list[str]:
        """It listens at last: what is new in what it was told."""
        words = []
        with suppress(BlockingIOError):
            while True:
                words.append(self._socket.recv(4096))
        return [word.decode() for word in words if word != OLD]

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Busy]:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "20000000")
    found = Busy(tmp_path / "notify")
    yield found
    found.close()


def test_nobody_waits_for_a_manager_that_does_not_listen(busy: Busy) -> None:
    said: list[bool] = []
    telling = threading.Thread(target=lambda: said.append(tell("WATCHDOG=1")), daemon=True)
    telling.start()
    telling.join(20)
    assert said == [False]
    assert busy.heard() == []
    assert tell("WATCHDOG=1")
    assert busy.heard() == ["WATCHDOG=1"]


def test_that_everything_listens_is_said_until_it_is_heard(busy: Busy) -> None:
    async def run() -> list[str]:
        one = handler()
        await one.start()
        telling = asyncio.ensure_future(keep_told(one.supervisor))
        # The handler goes on meanwhile.
        for _ in range(3):
            await one.supervisor.probe(20)
        assert not telling.done()
        words: list[str] = []
        async with asyncio.timeout(30):
            while len(words) < 2:
                words += busy.heard()
                await asyncio.sleep(0)
        telling.cancel()
        await one.stop()
        return words

    assert asyncio.run(run()) == ["READY=1", "WATCHDOG=1"]


def test_nobody_is_told_where_nobody_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert tell("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/at/all")
    assert tell("READY=1")
