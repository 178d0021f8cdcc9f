"""SMTP under the contract that every transport answers to, plain and with STARTTLS."""

import contextlib
import math
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from oncewire.transport.contract import Delivery, Reply, Transport
from oncewire.transport.http.tls import PeerTls, client_context, server_context
from oncewire.transport.listener import ListenerLimits
from oncewire.transport.smtp.listener import ListenerSettings
from oncewire.transport.smtp.relay import MailTls, RelaySettings
from oncewire.transport.smtp.transport import SmtpTransport
from tests.transport.contract_checks import TransportContract
from tests.transport.exchange import Certificates, Receiver

OnDelivery = Callable[[Delivery], Awaitable[Reply]]


@contextlib.asynccontextmanager
async def mailing(
    receiver: OnDelivery, *, tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None
) -> AsyncIterator[tuple[Transport, Transport, str]]:
    """A handler that takes mail for beta, and one whose mail server is that one."""
    server, client = tls or (None, None)
    # However slow the machine is, its loop counts as in time.
    patient = ListenerLimits(late=math.inf)
    settings = ListenerSettings("beta@beta.example", tls=server, limits=patient)
    taking = SmtpTransport(listener=settings)
    await taking.start(receiver)
    way = MailTls.NONE if tls is None else MailTls.STARTTLS
    relay = RelaySettings("alpha@alpha.example", "127.0.0.1", taking.port, way, client)
    sending = SmtpTransport(relay)
    await sending.start(Receiver())
    try:
        yield sending, taking, "mailto:beta@beta.example"
    finally:
        await sending.stop()
        await taking.stop()


class TestSmtp(TransportContract):
    # Our own mail server has a mail in memory as a whole, whatever its size.
    megabytes = 2

    def pair(
        self, receiver: OnDelivery
    ) -> contextlib.AbstractAsyncContextManager[tuple[Transport, Transport, str]]:
        return mailing(receiver)

    def nowhere(self) -> str:
        return "mailto:nobody@beta.example"


@pytest.mark.long
class TestSmtpWithStartTls(TestSmtp):
    many = 30

    @pytest.fixture(autouse=True)
    def _certificates(self, tmp_path: Path) -> None:
        self.world = Certificates(tmp_path)

    def pair(
        self, receiver: OnDelivery
    ) -> contextlib.AbstractAsyncContextManager[tuple[Transport, Transport, str]]:
        server = server_context(self.world.server())
        client = client_context(PeerTls(trusted=(self.world.pem,)))
        return mailing(receiver, tls=(server, client))
