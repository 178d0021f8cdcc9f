"""Files as a transport, on a server of the test's own: what it does while others are slow."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from oncewire.transport.contract import OutcomeKind
from oncewire.transport.files.remote import Place, Remote, ServerRefused, ready_name
from oncewire.transport.files.transport import FileTransport
from tests.transport.exchange import Receiver, cargo
from tests.waiting import until


class Shelf:
    """A server in memory, which can be made slow or full."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.may_write = asyncio.Event()
        self.may_write.set()
        # What a look at a folder ends with, once.
        self.surprises: list[Exception] = []

    async def connect(self, _place: Place) -> Remote:
        return _Line(self)


class _Line:
    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    async def alive(self) -> bool:
        return True

    async def names(self, folder: str, wanted: Callable[[str], bool]) -> list[str]:
        if self._shelf.surprises:
            raise self._shelf.surprises.pop()
        names = [path.rpartition("/")[2] for path in self._shelf.files if path.startswith(folder)]
        return [name for name in names if wanted(name)]

    async def read(self, path: str) -> AsyncIterator[bytes]:
        yield self._shelf.files[path]

    async def write(self, path: str, pieces: AsyncIterator[bytes]) -> None:
        await self._shelf.may_write.wait()
        self._shelf.files[path] = b"".join([piece async for piece in pieces])

    async def rename(self, old: str, new: str) -> None:
        if old not in self._shelf.files:
            raise ServerRefused("no such file")
        self._shelf.files[new] = self._shelf.files.pop(old)

    async def remove(self, path: str) -> None:
        if self._shelf.files.pop(path, None) is None:
            raise ServerRefused("no such file")

    async def close(self) -> None:
        pass


PARCEL = b"Content-Type: text/xml\r\nContent-Length: 4\r\n\r\n<a/>"


def on(shelf: Shelf) -> FileTransport:
    return FileTransport(
        "sftp", {"sftp": 22}, shelf.connect, inbox="sftp://shelf/me", reader="me", every=0.001
    )


@pytest.mark.within(20)
async def test_a_thousand_that_wait_to_be_sent_keep_nobody_from_reading() -> None:
    """The answers to them lie in our own folder."""

    shelf, receiver = Shelf(), Receiver()
    shelf.may_write.clear()
    transport = on(shelf)
    await transport.start(receiver)
    sends = [
        asyncio.create_task(transport.send(cargo(b"<b/>"), "sftp://shelf/you", timeout=30))
        for _ in range(1000)
    ]
    await asyncio.sleep(0)
    shelf.files[f"/me/{ready_name('answer')}"] = PARCEL
    await until(lambda: bool(receiver.taken))
    shelf.may_write.set()
    outcomes = await asyncio.gather(*sends)
    assert {outcome.kind for outcome in outcomes} == {OutcomeKind.SENT}
    await transport.stop()


@pytest.mark.within(20)
async def test_whatever_a_server_says_the_folder_is_looked_into_again() -> None:
    """A library that fails on what a server says must not end the reader."""

    shelf, receiver = Shelf(), Receiver()
    shelf.surprises += [ValueError("not UTF-8"), KeyError("type"), OSError("gone")]
    shelf.files[f"/me/{ready_name('parcel')}"] = PARCEL
    transport = on(shelf)
    await transport.start(receiver)
    await until(lambda: bool(receiver.taken))
    await until(lambda: not shelf.files)
    await transport.stop()
