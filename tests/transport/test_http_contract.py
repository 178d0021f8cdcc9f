"""HTTP and HTTPS under the contract that every transport answers to."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from oncewire.transport.contract import Delivery, Reply, Transport
from oncewire.transport.http.client import HttpClientSettings
from oncewire.transport.http.tls import ClientCertificates
from oncewire.transport.http.transport import HttpTransport
from tests.transport.contract_checks import TransportContract
from tests.transport.exchange import LOOPBACK, Certificates, Receiver, endpoint

OnDelivery = Callable[[Delivery], Awaitable[Reply]]


class TestHttp(TransportContract):
    @contextlib.asynccontextmanager
    async def pair(self, receiver: OnDelivery) -> AsyncIterator[tuple[Transport, Transport, str]]:
        sender = HttpTransport(client=HttpClientSettings(addresses=LOOPBACK))
        await sender.start(Receiver())
        async with endpoint(receiver) as listening:
            yield sender, listening, listening.url
        await sender.stop()

    def nowhere(self) -> str:
        # The discard port: nobody listens there on a machine that runs tests.
        return "http://127.0.0.1:9/msh"


class TestHttps(TransportContract):
    @pytest.fixture(autouse=True)
    def _certificates(self, tmp_path: Path) -> None:
        self.world = Certificates(tmp_path)

    @contextlib.asynccontextmanager
    async def pair(self, receiver: OnDelivery) -> AsyncIterator[tuple[Transport, Transport, str]]:
        ours = self.world.identity("buyer.example")
        sender = HttpTransport(client=self.world.client(identity=ours))
        await sender.start(Receiver())
        tls = self.world.server(clients=ClientCertificates.REQUIRED)
        async with endpoint(receiver, tls=tls) as listening:
            yield sender, listening, listening.url
        await sender.stop()

    def nowhere(self) -> str:
        return "https://127.0.0.1:9/msh"
