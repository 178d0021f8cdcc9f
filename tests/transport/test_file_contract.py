"""SFTP, FTP and FTPS under the contract that every transport answers to."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from oncewire.transport.contract import Delivery, Reply, Transport
from oncewire.transport.files.ftp import ftp_transport
from oncewire.transport.files.sftp import sftp_transport
from oncewire.transport.files.transport import FileTransport
from oncewire.transport.http.tls import Identity, PeerTls, client_context
from tests.transport.contract_checks import TransportContract
from tests.transport.exchange import Certificates, Receiver
from tests.transport.file_servers import ftp_server, ftp_settings, sftp_server, sftp_settings

OnDelivery = Callable[[Delivery], Awaitable[Reply]]
Made = AsyncIterator[tuple[Transport, Transport, str]]


@contextlib.asynccontextmanager
async def started(
    sending: FileTransport, taking: FileTransport, receiver: OnDelivery, address: str
) -> Made:
    await sending.start(Receiver())
    await taking.start(receiver)
    try:
        yield sending, taking, address
    finally:
        await sending.stop()
        await taking.stop()


class _OfFiles(TransportContract):
    many = 40

    @pytest.fixture(autouse=True)
    def _folders(self, tmp_path: Path) -> None:
        self.folder, self.root = tmp_path, tmp_path / "root"
        (self.root / "beta").mkdir(parents=True)


class TestSftp(_OfFiles):
    @contextlib.asynccontextmanager
    async def pair(self, receiver: OnDelivery) -> Made:
        async with sftp_server(self.root, self.folder) as (port, known):
            address = f"sftp://127.0.0.1:{port}/beta"
            taking = sftp_transport(**sftp_settings(known, inbox=address))
            sending = sftp_transport(**sftp_settings(known))
            async with started(sending, taking, receiver, address) as made:
                yield made

    def nowhere(self) -> str:
        return "sftp://127.0.0.1:9/beta"


class TestFtp(_OfFiles):
    scheme = "ftp"
    identity: Identity | None = None

    @contextlib.asynccontextmanager
    async def pair(self, receiver: OnDelivery) -> Made:
        with ftp_server(self.root, self.identity) as port:
            address = f"{self.scheme}://127.0.0.1:{port}/beta"
            context = None
            if self.identity is not None:
                context = client_context(PeerTls(trusted=(self.world.pem,)))
            taking = ftp_transport(**ftp_settings(inbox=address, context=context))
            sending = ftp_transport(**ftp_settings(context=context))
            async with started(sending, taking, receiver, address) as made:
                yield made

    def nowhere(self) -> str:
        return f"{self.scheme}://127.0.0.1:9/beta"


@pytest.mark.long
class TestFtps(TestFtp):
    scheme = "ftps"

    @pytest.fixture(autouse=True)
    def _certificates(self, tmp_path: Path) -> None:
        self.world = Certificates(tmp_path)
        self.identity = self.world.identity("localhost")
