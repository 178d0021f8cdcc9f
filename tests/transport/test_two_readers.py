"""Two handlers on one folder, one of them killed again and again: each parcel is taken by one of
them, once, and none is lost. And what a reader does with files that are not what they should be."""

import asyncio
import random
from pathlib import Path

import pytest

from oncewire.transport.contract import Delivery, OutcomeKind, Reply
from oncewire.transport.files import transport as folder_reader
from oncewire.transport.files.remote import claimed_name, ready_name, refused_name
from oncewire.transport.files.sftp import sftp_transport
from oncewire.transport.files.transport import FileTransport
from tests.transport.exchange import Receiver, cargo
from tests.transport.file_servers import sftp_server, sftp_settings


class Keeper:
    """A handler as far as a transport sees it: what it stored it knows again."""

    def __init__(self, chance: random.Random, dies: float = 0.0) -> None:
        self.stored: set[bytes] = set()
        self.copies = 0
        self.died = asyncio.Event()
        self.deaths = 0
        self._chance, self._dies = chance, dies

    async def take(self, delivery: Delivery) -> Reply:
        body = b"".join([piece async for piece in delivery.body])
        if self._chance.random() < self._dies:
            return await self._die()
        self.copies += body in self.stored
        self.stored.add(body)
        if self._chance.random() < self._dies:
            # Stored, and the file is still there.
            return await self._die()
        return Reply(204)

    async def _die(self) -> Reply:
        self.deaths += 1
        self.died.set()
        await asyncio.Event().wait()
        raise AssertionError


async def dies_and_comes_back(keeper: Keeper, make: object, bodies: set[bytes]) -> None:
    """A handler of one name and one store that is killed whenever it stands at a bad moment."""
    while True:
        transport: FileTransport = make()  # type: ignore[operator]
        keeper.died.clear()
        await transport.start(keeper.take)
        try:
            await asyncio.wait_for(keeper.died.wait(), 0.3)
        except TimeoutError:
            if not bodies:
                return
        finally:
            await transport.stop()


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.requirement("TRN-4")
@pytest.mark.within(100)
async def test_each_parcel_is_taken_by_one_of_them_once(seed: int, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "beta").mkdir(parents=True)
    chance = random.Random(seed)

    async with sftp_server(root, tmp_path) as (port, known):
        address = f"sftp://127.0.0.1:{port}/beta"
        mortal, steady = Keeper(chance, 0.1), Keeper(chance)
        bodies = {f"parcel {number}".encode() for number in range(120)}
        left = set(bodies)

        def made(reader: str, every: float) -> FileTransport:
            return sftp_transport(**sftp_settings(known, inbox=address, reader=reader, every=every))

        other = made("steady", 0.2)
        killed = asyncio.create_task(
            dies_and_comes_back(mortal, lambda: made("mortal", 0.02), left)
        )
        sender = sftp_transport(**sftp_settings(known))
        await sender.start(Receiver())
        for sent, body in enumerate(sorted(bodies)):
            outcome = await sender.send(cargo(body), address, timeout=20)
            assert outcome.kind is OutcomeKind.SENT
            # While they take, more come.
            await asyncio.sleep(0.005)
            if sent == 40:
                # However slow this machine is: it is killed before the other one takes over.
                while mortal.deaths < 3:
                    await asyncio.sleep(0.02)
                await other.start(steady.take)
        while mortal.stored | steady.stored != bodies:
            await asyncio.sleep(0.02)
        left.clear()
        await killed
        await other.stop()
        await sender.stop()
        assert not mortal.stored & steady.stored, "one parcel was taken by both"
        assert not steady.copies
        assert not list((root / "beta").iterdir()), "something was left behind"


async def looked(receiver: Receiver, folder: Path, times: int = 1) -> None:
    """A reader that looks into the folder so often."""
    async with sftp_server(folder.parent, folder.parent.parent) as (port, known):
        address = f"sftp://127.0.0.1:{port}/beta"
        transport = sftp_transport(**sftp_settings(known, inbox=address, reader="me", every=3600))
        assert transport._reader is not None
        for _ in range(times):
            await transport._reader.look(receiver)
        await transport.stop()


def whole(body: bytes, length: int | None = None) -> bytes:
    said = len(body) if length is None else length
    return f"Content-Type: text/xml\r\nContent-Length: {said}\r\n\r\n".encode() + body


async def test_a_file_that_is_cut_off_is_looked_at_again_and_then_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_reader, "TRIES", 4)
    folder = tmp_path / "root" / "beta"
    folder.mkdir(parents=True)
    (folder / ready_name("half")).write_bytes(whole(b"<a/>", 100))
    (folder / ready_name("head")).write_bytes(b"Content-Type: text/xml\r\n")
    receiver = Receiver()
    await looked(receiver, folder, 3)
    assert not receiver.taken
    assert {file.name for file in folder.iterdir()} == {
        claimed_name("half", "me"),
        claimed_name("head", "me"),
    }
    await looked(receiver, folder, 4)
    assert not receiver.taken
    assert {file.name for file in folder.iterdir()} == {refused_name("half"), refused_name("head")}


async def test_what_grows_is_taken_when_it_is_whole(tmp_path: Path) -> None:
    folder = tmp_path / "root" / "beta"
    folder.mkdir(parents=True)
    (folder / ready_name("grows")).write_bytes(whole(b"<a", 4))
    receiver = Receiver()
    await looked(receiver, folder, 2)
    (folder / claimed_name("grows", "me")).write_bytes(whole(b"<a/>"))
    await looked(receiver, folder)
    assert [taken.body for taken in receiver.taken] == [b"<a/>"]
    assert not list(folder.iterdir())


async def test_others_files_folders_and_links_are_left_alone(tmp_path: Path) -> None:
    folder, outside = tmp_path / "root" / "beta", tmp_path / "outside"
    folder.mkdir(parents=True)
    outside.write_bytes(whole(b"<secret/>"))
    (folder / ready_name("link")).symlink_to(outside)
    (folder / ready_name("folder")).mkdir()
    (folder / claimed_name("theirs", "somebody")).write_bytes(whole(b"<theirs/>"))
    (folder / ".begun.part").write_bytes(whole(b"<begun/>"))
    (folder / "notes.txt").write_bytes(b"hello")
    (folder / "..parcel").write_bytes(whole(b"<dots/>"))
    before = sorted(file.name for file in folder.iterdir())
    receiver = Receiver()
    await looked(receiver, folder, 2)
    assert not receiver.taken
    assert sorted(file.name for file in folder.iterdir()) == before


async def test_what_is_no_parcel_is_refused_once(tmp_path: Path) -> None:
    folder = tmp_path / "root" / "beta"
    folder.mkdir(parents=True)
    (folder / ready_name("junk")).write_bytes(b"\0" * 300_000)
    (folder / ready_name("two")).write_bytes(b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab")
    (folder / ready_name("no")).write_bytes(b"Content-Type: text/xml\r\n\r\n<a/>")
    receiver = Receiver()
    await looked(receiver, folder)
    assert not receiver.taken
    assert {file.name for file in folder.iterdir()} == {
        refused_name(name) for name in ("junk", "two", "no")
    }
