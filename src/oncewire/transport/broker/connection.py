"""Connection: to one broker, which is waited for while it is away and not used while it is not to
be trusted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncewire.errors import TransportProblem
from oncewire.transport.broker import stream as streams
from oncewire.transport.outage import Outage

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext

logger = logging.getLogger("oncewire.broker")

WAITED_FOR = 5.0
"""Seconds that a start waits for a broker; after that it comes when it comes."""

LINE_MAX = 64 * 1024
"""Bytes of a line that a broker says; the longest says who it is and which others it knows."""

PARCEL_MAX = 64 * 1024 * 1024
"""Bytes of one message: NATS allows no server more."""

_AGAIN = 2.0
_LOOK = 0.1


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The broker, who we are to it, and the subject that is ours."""

    # `tls://` says nothing to a server without TLS; `nats://` takes it where the server has it.
    url: str
    # Its monitoring, which tells whether it syncs before it acknowledges.
    monitor: str
    subject: str = ""
    user: str = ""
    password: str = ""
    credentials: Path | None = None
    # How often a parcel is handed in that its receiver does not take.
    max_deliver: int = 50
    # Seconds after which it is handed in again to one that could not store it.
    later: float = 10.0
    # Whom to believe; None: the system's authorities.
    context: ssl.SSLContext | None = None


class Connection:
    """One connection, which comes back by itself, and what is wrong with the broker behind it."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.client: Client | None = None
        self.trouble = "it was not asked yet"
        self._opening: asyncio.Task[None] | None = None
        self._heard_once = False
        self._outage = Outage(logger)
        # What the connection complained of last.
        self._complaint = ""

    async def open(self) -> None:
        """Connect; TransportProblem if the broker is there and not one to be used. One that is
        away is waited for, but not here."""
        if self.settings.subject:
            streams.subject_of(f"nats:{self.settings.subject}")
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._opening = asyncio.get_running_loop().create_task(self._open(first))
        done, _ = await asyncio.wait({first}, timeout=WAITED_FOR)
        if done:
            first.result()
        else:
            self.trouble = "the broker is away"
            self._outage.begins("the broker is away, and is waited for")
            # Nobody hears any more how it ends.
            first.cancel()

    async def _open(self, first: asyncio.Future[None]) -> None:
        """Connect, and from then on ask whether it is to be trusted whenever that is not known."""
        while True:
            try:
                await self._connect()
                if self.trouble and self.client is not None and self.client.is_connected:
                    await self._trust()
            except TransportProblem as problem:
                if not first.done():
                    first.set_exception(problem)
                    return
                if self.trouble != str(problem):
                    logger.error("the broker is not used", extra={"problem": str(problem)})
                self.trouble = str(problem)
                await asyncio.sleep(_AGAIN)
            else:
                if not first.done():
                    first.set_result(None)
                await asyncio.sleep(_LOOK)

    async def _connect(self) -> None:
        from nats.errors import Error

        if self.client is not None:
            return
        said, client = self.settings, _client()
        tls = {} if said.context is None else {"tls": said.context}
        try:
            await client.connect(
                said.url,
                user=said.user or None,
                password=said.password or None,
                user_credentials=str(said.credentials) if said.credentials else None,
                connect_timeout=5,
                allow_reconnect=True,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.5,
                reconnected_cb=self._reconnected,
                error_cb=self._error,
                **tls,
            )
        except (Error, OSError, ValueError) as error:
            raise TransportProblem(f"the broker cannot be used: {_words(error)}") from error
        self._heard_once = True
        self.client = client
        self._outage.ends("the broker is back")

    async def _error(self, error: Exception) -> None:
        """Called for each trouble of the connection; what would be the same the next time ends the
        first attempt."""
        from nats.errors import Error, NoServersError, StaleConnectionError, UnexpectedEOF

        words = _words(error)
        lost = isinstance(error, (OSError, UnexpectedEOF, StaleConnectionError))
        if lost or self.client is None or not self.client.is_connected:
            self._outage.begins("the broker is away, and is waited for", problem=words)
        elif words != self._complaint:
            logger.info("the broker's connection has trouble", extra={"problem": words})
        self._complaint = words
        away = isinstance(error, (NoServersError, TimeoutError))
        if not self._heard_once and not away and isinstance(error, (Error, ssl.SSLError)):
            raise TransportProblem(
                f"the broker cannot be used: {_words(error)}",
                remedy="look at broker.url, broker.authorities and who we are to it",
            )

    async def _trust(self) -> None:
        """Whether the server keeps what it says it has, and our own stream does."""
        from nats.errors import Error

        await streams.check_server(self.settings.monitor)
        if self.settings.subject:
            try:
                await streams.make_stream(
                    self.stream_context(), self.settings.subject, self.settings.max_deliver
                )
            except (Error, OSError, TimeoutError) as error:
                raise TransportProblem(f"the broker cannot be used: {_words(error)}") from error
        self.trouble = ""

    async def _reconnected(self) -> None:
        """It may be another server, or the same one with another configuration."""
        self.trouble = "it is asked again how it stores"
        self._outage.ends("the broker is back")

    def stream_context(self) -> JetStreamContext:
        """What streams are asked for over; TransportProblem while there is no connection."""
        if self.client is None:
            raise TransportProblem("the broker is away")
        return self.client.jetstream()

    async def until_ready(self) -> JetStreamContext:
        """Wait until the broker is there and to be trusted."""
        # What was under way when the last run ended is taken up before this one has connected.
        while self.client is None or not self.client.is_connected or self.trouble:
            await asyncio.sleep(_LOOK)
        return self.client.jetstream()

    async def close(self) -> None:
        """End it, or the attempt to have it."""
        if self._opening is not None:
            self._opening.cancel()
        client, self.client = self.client, None
        if client is not None:
            with contextlib.suppress(Exception):
                await client.close()


def _client() -> Any:
    from nats.aio.client import Client
    from nats.errors import Error, ProtocolError
    from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

    class Bounded(Parser):
        """The library keeps whatever comes until a line ends, or a message is whole."""

        async def parse(self, data: bytes = b"") -> None:
            await super().parse(data)
            in_line = self.state == AWAITING_CONTROL_LINE
            if (in_line and len(self.buf) > LINE_MAX) or self.needed > PARCEL_MAX:
                raise ProtocolError("nats: the server says more than anybody asked for")

    class Guarded(Client):
        """The library goes on without TLS where the server offers none, password and all."""

        def _connect_command(self) -> bytes:
            server = self._current_server
            wanted = server is not None and server.uri.scheme == "tls"
            if wanted and not self._server_info.get("tls_required"):
                raise Error("the server offers no TLS")
            command: bytes = super()._connect_command()
            return command

    client = Guarded()
    client._ps = Bounded(client)  # noqa: SLF001  (the library has no other door to it)
    return client


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
