"""Servers of files that lie, and partners who write what they should not into our folder: the
parcels of others are taken, nothing else is touched, and nobody waits or listens without end."""

import asyncio
import contextlib
import itertools
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from oncewire.transport.contract import Delivery, OutcomeKind, Reply
from oncewire.transport.files import ftp as ftp_module
from oncewire.transport.files import remote
from oncewire.transport.files import transport as folder_reader
from oncewire.transport.files.ftp import ftp_transport
from oncewire.transport.files.remote import Connections, Place, Remote
from oncewire.transport.files.sftp import sftp_transport
from oncewire.transport.files.transport import FileTransport, FolderReader
from tests.transport.exchange import cargo
from tests.transport.file_servers import ftp_server, ftp_settings, sftp_server, sftp_settings
from tests.waiting import until

pytestmark = pytest.mark.long

GOOD = b"Content-Type: text/xml\r\nContent-Length: 7\r\n\r\n<good/>"


class Taker:
    """A handler that refuses by its length what is too long, and reads everything else."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    async def __call__(self, delivery: Delivery) -> Reply:
        if (delivery.length or 0) > 1_000_000:
            return Reply(413, body=b"too long")
        try:
            self.taken.append(b"".join([piece async for piece in delivery.body]))
        except OSError:
            return Reply(503)
        return Reply(204)


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "SCANNED_MAX", 5000, raising=False)
    monkeypatch.setattr(folder_reader, "PATIENCE", 0.5, raising=False)
    monkeypatch.setattr(folder_reader, "LISTING_REST", 0.0)
    monkeypatch.setattr(ftp_module, "PATIENCE", 2.0, raising=False)


@contextlib.asynccontextmanager
async def looking(transport: FileTransport) -> AsyncIterator[Taker]:
    taker = Taker()
    await transport.start(taker)
    try:
        yield taker
    finally:
        await transport.stop()


# --- SFTP ----------------------------------------------------------------------------------------


class _Liar(asyncssh.SFTPServer):
    """The library's own server, on a folder that is only told of."""

    lie = ""
    told = 0
    touched: list[bytes] = []  # noqa: RUF012
    files: dict[bytes, bytes] = {}  # noqa: RUF012

    async def scandir(self, path: bytes) -> AsyncIterator[asyncssh.SFTPName]:
        regular = asyncssh.SFTPAttrs(permissions=stat.S_IFREG | 0o600)
        for name in list(self.files):
            yield asyncssh.SFTPName(name, attrs=regular)
        if self.lie == "endless":
            for number in itertools.count():
                type(self).told += 1
                yield asyncssh.SFTPName(b"junk-%d" % number, attrs=regular)
        if self.lie == "names":
            for name in (
                b"../up.parcel", b"a/b.parcel", b"nul\0.parcel", b"\xff\xfe.parcel", b"..parcel",
                b"x" * 60_000 + b".parcel", b"line\n.parcel", b".parcel", b"\xc3\xbc.parcel",
            ):  # fmt: skip
                yield asyncssh.SFTPName(name, attrs=regular)
            link = asyncssh.SFTPAttrs(permissions=stat.S_IFLNK | 0o777)
            yield asyncssh.SFTPName(b"link.parcel", attrs=link)
            yield asyncssh.SFTPName(b"typeless.parcel", attrs=asyncssh.SFTPAttrs())

    def rename(self, oldpath: bytes, newpath: bytes) -> None:
        self.touched.extend((oldpath, newpath))
        content = self.files.pop(oldpath.rpartition(b"/")[2], None)
        if content is None:
            raise asyncssh.SFTPNoSuchFile("no such file")
        self.files[newpath.rpartition(b"/")[2]] = content

    posix_rename = rename

    def remove(self, path: bytes) -> None:
        self.touched.append(path)
        self.files.pop(path.rpartition(b"/")[2], None)

    def open(self, path: bytes, _flags: int, _attrs: asyncssh.SFTPAttrs) -> Any:
        self.touched.append(path)
        return self.files[path.rpartition(b"/")[2]]

    async def read(self, file_obj: Any, offset: int, size: int) -> bytes:
        if offset < len(file_obj):
            # More than was asked for, or as much as there is.
            return bytes(file_obj[offset:])
        if self.lie in {"longer", "endless file"}:
            return b"\0" * size
        if self.lie == "trickle" and file_obj != GOOD:
            await asyncio.sleep(0.1)
            return b"x"
        return b""

    def close(self, file_obj: Any) -> None:
        pass


@contextlib.asynccontextmanager
async def lying_sftp(
    lie: str, folder: Path, monkeypatch: pytest.MonkeyPatch, files: dict[bytes, bytes]
) -> AsyncIterator[tuple[type[_Liar], FileTransport]]:
    kind = type("Liar", (_Liar,), {"lie": lie, "files": files, "touched": []})
    monkeypatch.setattr("tests.transport.file_servers._Sftp", lambda chan, _root, _mood: kind(chan))
    async with sftp_server(folder, folder) as (port, known):
        inbox = f"sftp://127.0.0.1:{port}/beta"
        yield kind, sftp_transport(**sftp_settings(known, inbox=inbox, reader="me"))


@pytest.mark.parametrize("lie", ["endless", "names", "longer", "endless file", "trickle"])
@pytest.mark.requirement("TRN-4")
@pytest.mark.within(25)
async def test_a_lying_sftp_server_keeps_no_parcel_from_being_taken(
    lie: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {b"good.parcel": GOOD}
    if lie in {"endless file", "trickle"}:
        length = b": 99999999999" if lie == "endless file" else b": 99999"
        files[b"bad.parcel"] = GOOD.replace(b": 7", length)

    async with (
        lying_sftp(lie, tmp_path, monkeypatch, files) as (server, transport),
        looking(transport) as taker,
    ):
        await until(lambda: b"<good/>" in taker.taken)
        await until(lambda: not any(b"good" in name for name in files))
        before = server.told
        files[b"later.parcel"] = GOOD
        # Whatever the other file does, the next look comes.
        await until(lambda: taker.taken.count(b"<good/>") == 2)
        assert not before or before < 50_000
        if lie == "endless file":
            await until(lambda: b"bad.refused" in files)
    names = {path.rpartition(b"/")[2].partition(b".")[0] for path in server.touched}
    assert names <= {b"good", b"later", b"bad"}
    assert all(path.startswith(b"/beta/") for path in server.touched)


@pytest.mark.parametrize("way", ["sftp", "ftp"])
@pytest.mark.within(10)
async def test_a_name_that_is_no_text_keeps_no_parcel_from_being_taken(
    way: str, tmp_path: Path
) -> None:
    """Whoever may write into our folder may write such a name, on any server."""
    root = tmp_path / way
    inbox = root / "beta"
    inbox.mkdir(parents=True)
    (inbox / "good.parcel").write_bytes(GOOD)
    Path(f"{inbox}/\udcff\udcfe.parcel").write_bytes(GOOD)
    async with contextlib.AsyncExitStack() as stack:
        if way == "sftp":
            port, known = await stack.enter_async_context(sftp_server(root, tmp_path))
            at = f"sftp://127.0.0.1:{port}/beta"
            transport = sftp_transport(**sftp_settings(known, inbox=at))
        else:
            port = stack.enter_context(ftp_server(root))
            transport = ftp_transport(**ftp_settings(inbox=f"ftp://127.0.0.1:{port}/beta"))
        taker = await stack.enter_async_context(looking(transport))
        await until(lambda: not (inbox / "good.parcel").exists() and bool(taker.taken))
        await until(lambda: len(list(inbox.iterdir())) == 1)


# --- FTP -----------------------------------------------------------------------------------------


_ANSWERS = {"USER": b"331 who\r\n", "PASS": b"230 in\r\n", "RNFR": b"350 and\r\n"}


class LyingFtp:
    """A server that speaks just enough FTP."""

    def __init__(self, lie: str, files: dict[str, bytes]) -> None:
        self.lie, self.files = lie, files
        self.told, self.elsewhere = 0, 0
        self._decoy = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[int]:
        async def decoyed(_reader: Any, writer: asyncio.StreamWriter) -> None:
            self.elsewhere += 1
            writer.close()

        decoy = await asyncio.start_server(decoyed, "127.0.0.2", 0)
        self._decoy = decoy.sockets[0].getsockname()[1]
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            decoy.close()

    async def _talk(self, lines: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        streams: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
        with contextlib.suppress(OSError):
            out.write(b"220 hello\r\n")
            renamed = ""
            while line := (await lines.readline()).decode().strip():
                verb, _, what = line.partition(" ")
                what = what.rpartition("/")[2]
                if verb == "RNFR":
                    renamed = what
                await self._answer(verb, what, renamed, out, streams)
                await out.drain()
        out.close()

    async def _answer(
        self, verb: str, what: str, renamed: str, out: asyncio.StreamWriter, streams: Any
    ) -> None:
        if verb == "EPSV" and self.lie == "bounce":
            out.write(b"502 no\r\n")
        elif verb == "PASV":
            high, low = divmod(self._decoy, 256)
            out.write(f"227 (127,0,0,2,{high},{low})\r\n".encode())
        elif verb == "EPSV":
            await self._open(out, streams)
        elif verb == "NOOP" and self.lie == "endless answer":
            while True:
                self.told += 1
                out.write(b"200-and so on\r\n" * 100)
                await out.drain()
        elif verb in {"MLSD", "RETR"}:
            out.write(b"150 here\r\n")
            stream = await streams.get()
            with contextlib.suppress(OSError):
                await self._send(verb, what, stream)
            stream.close()
            out.write(b"226 done\r\n")
        elif verb == "RNTO":
            found = self.files.pop(renamed, None)
            if found is not None:
                self.files[what] = found
            out.write(b"550 no\r\n" if found is None else b"250 done\r\n")
        elif verb == "DELE":
            self.files.pop(what, None)
            out.write(b"250 done\r\n")
        else:
            out.write(_ANSWERS.get(verb, b"200 done\r\n"))

    async def _open(self, out: asyncio.StreamWriter, streams: Any) -> None:
        async def opened(_reader: Any, writer: asyncio.StreamWriter) -> None:
            await streams.put(writer)

        data = await asyncio.start_server(opened, "127.0.0.1", 0)
        # Another machine, if somebody listens to that.
        host = "1|127.0.0.2" if self.lie == "elsewhere" else "|"
        port = data.sockets[0].getsockname()[1]
        told = "|)(|" if self.lie == "no port" else f"|{host}|{port}|"
        out.write(f"229 ({told})\r\n".encode())

    async def _send(self, verb: str, what: str, stream: asyncio.StreamWriter) -> None:
        if verb == "MLSD":
            for name in self.files:
                stream.write(f"type=file; {name}\r\n".encode())
            if self.lie == "garbage":
                stream.write(b"\xff\xfe\r\n; \r\n\r\ntype; x\r\n type=file\r\n")
                stream.write(b"type=file; ../up.parcel\r\ntype=file; nul\0.parcel\r\n")
                stream.write(b"type=OS.unix=slink; link.parcel\r\nlink2.parcel\r\n")
            while self.lie == "endless":
                self.told += 1000
                stream.write(b"type=file; junk\r\n" * 1000)
                await stream.drain()
            return
        content = self.files.get(what, b"")
        stream.write(content)
        await stream.drain()
        while self.lie == "longer":
            stream.write(b"\0" * 65536)
            await stream.drain()
        while self.lie == "trickle" and content != GOOD:
            stream.write(b"x")
            await stream.drain()
            await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    "lie",
    ["endless", "garbage", "longer", "trickle", "endless answer", "bounce", "no port", "elsewhere"],
)
@pytest.mark.requirement("TRN-4")
@pytest.mark.within(15)
async def test_a_lying_ftp_server_keeps_no_parcel_from_being_taken(lie: str) -> None:
    files = {"good.parcel": GOOD}
    if lie == "trickle":
        files["bad.parcel"] = GOOD.replace(b": 7", b": 99999")
    server = LyingFtp(lie, files)
    async with server.running() as port:
        address = f"ftp://127.0.0.1:{port}/beta"
        transport = ftp_transport(**ftp_settings(inbox=address, reader="me", patience=2.0))
        async with looking(transport) as taker:
            if lie in {"bounce", "no port", "elsewhere"}:
                # It cannot be used, and nobody was connected to but itself.
                outcome = await transport.send(cargo(b"<a/>"), address, timeout=5)
                assert outcome.kind is OutcomeKind.REFUSED
                await asyncio.sleep(0.2)
                assert not taker.taken
                assert not server.elsewhere
                return
            await until(lambda: b"<good/>" in taker.taken)
            await until(lambda: not any("good" in name for name in files))
            files["later.parcel"] = GOOD
            await until(lambda: taker.taken.count(b"<good/>") == 2)
            assert not server.elsewhere


async def test_a_folder_full_of_names_leaves_the_processor_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While names come, the reader rests for longer than they took."""
    spent, rests = 0.0, []

    async def slept(seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr(remote, "thread_time", lambda: spent)
    monkeypatch.setattr(asyncio, "sleep", slept)

    async with asyncio.timeout(30) as limit:
        before = limit.when()
        listing = remote.Listing(lambda _name: False, limit)
        for number in range(4000):
            spent += 0.00005
            assert await listing.add(f"junk-{number}", is_file=True)
        # The server need not be quicker for that.
        assert limit.when() == pytest.approx((before or 0.0) + sum(rests))
    assert sum(rests) > 2 * spent
    assert len(rests) == 4000 // remote.AT_A_STRETCH


# --- forgeries -----------------------------------------------------------------------------------


class Folder:
    """A folder in memory, over connections that never fail."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    async def alive(self) -> bool:
        return True

    async def names(self, _folder: str, wanted: Any) -> list[str]:
        return [name for name in self.files if wanted(name)]

    async def read(self, path: str) -> AsyncIterator[bytes]:
        yield self.files[path.rpartition("/")[2]]

    async def rename(self, old: str, new: str) -> None:
        self.files[new.rpartition("/")[2]] = self.files.pop(old.rpartition("/")[2])

    async def remove(self, path: str) -> None:
        del self.files[path.rpartition("/")[2]]

    async def write(self, path: str, _pieces: AsyncIterator[bytes]) -> None:
        pytest.fail(f"{path} is written, where files are only read")

    async def close(self) -> None:
        pass


async def test_forged_files_leave_the_processor_to_others() -> None:
    """A reader that refuses what it finds rests in between, and a folder of thousands of files
    makes no thousands of tasks."""
    files = {f"{number:05}.parcel": GOOD for number in range(9000)}
    most = 0

    def refused() -> int:
        return sum(name.endswith(".refused") for name in files)

    async def refuse(delivery: Delivery) -> Reply:
        nonlocal most
        most = max(most, len(asyncio.all_tasks()))
        async for _ in delivery.body:
            pass
        return Reply(400, body=b"no", refused=True)

    async def connect(_place: Place) -> Remote:
        return Folder(files)

    place = Place("sftp", "here", 22, "/in")
    reader = FolderReader("sftp", place, Connections(connect), "me", 0.01)
    reader.start(refuse)
    await until(lambda: refused() >= 12)
    # After each it rests for a tenth of a second; four are taken at once.
    assert refused() < 100
    await reader.stop()
    assert most < 20


async def test_a_folder_whose_names_take_long_is_looked_into_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(folder_reader, "LISTING_REST", 2.0)

    looks = []

    class Slow(Folder):
        async def names(self, _folder: str, wanted: Any) -> list[str]:
            looks.append(time.monotonic())
            await asyncio.sleep(0.2)
            return []

    async def connect(_place: Place) -> Remote:
        return Slow({})

    place = Place("sftp", "here", 22, "/in")
    reader = FolderReader("sftp", place, Connections(connect), "me", 0.01)
    reader.start(Taker())
    await until(lambda: len(looks) == 3)
    await reader.stop()
    # The names themselves, and then a rest of twice that.
    assert looks[2] - looks[0] > 1.1
