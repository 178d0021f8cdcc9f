"""HTTP(S) as one transport: the endpoint and the client under the contract."""

from __future__ import annotations

from collections import Counter

from oncewire.transport.budget import Call, Unserved
from oncewire.transport.contract import AttemptOutcome, Cargo, OnDelivery
from oncewire.transport.http.client import HttpClient, HttpClientSettings
from oncewire.transport.http.server import HttpServer, HttpServerSettings
from oncewire.transport.http.tls import PeerTls


class HttpTransport:
    """Sends by POST and, if it has server settings, listens at one endpoint.

    A reply comes back on the connection of its request, so it can carry synchronous replies
    (TRN-5). Without server settings it only sends.
    """

    name = "http"
    can_answer = True

    def __init__(
        self, server: HttpServerSettings | None = None, client: HttpClientSettings | None = None
    ) -> None:
        self._server = HttpServer(server) if server is not None else None
        self._client = HttpClient(client)

    @property
    def url(self) -> str:
        """The address of our endpoint; empty if this transport does not listen."""
        return self._server.url if self._server is not None else ""

    @property
    def connections(self) -> int:
        """How many connections to our endpoint are open."""
        return self._server.connections if self._server is not None else 0

    def set_peer(self, address: str, tls: PeerTls) -> None:
        """Use these certificates towards an address from now on."""
        self._client.set_peer(address, tls)

    def on_turned_away(self, call: Call) -> None:
        """Set what is called when our endpoint sends partners away."""
        if self._server is not None:
            self._server.turned_away.call = call

    def unserved(self) -> Counter[Unserved]:
        """How many our endpoint did not serve."""
        return Counter() if self._server is None else self._server.turned_away.counts

    def renew(self, server: HttpServerSettings, client: HttpClientSettings) -> None:
        """Use other certificates from the next connection on: ours, and whom we believe."""
        self._client.renew(client)
        if self._server is not None:
            self._server.renew(server)

    async def start(self, on_delivery: OnDelivery) -> None:
        """Open the client's pool and begin to listen; TransportProblem if that cannot be."""
        await self._client.start()
        try:
            if self._server is not None:
                await self._server.start(on_delivery)
        except BaseException:
            await self._client.close()
            raise

    async def send(self, cargo: Cargo, address: str, *, timeout: float) -> AttemptOutcome:
        """POST the cargo to the address and say how it ended."""
        return await self._client.send(cargo, address, timeout=timeout)

    async def probe(self, address: str, *, timeout: float) -> AttemptOutcome:
        """Whether a server answers at that address; see `Transport`."""
        return await self._client.probe(address, timeout=timeout)

    async def stop(self) -> None:
        """Finish what is under way, close the endpoint and the pool."""
        if self._server is not None:
            await self._server.stop()
        await self._client.close()
