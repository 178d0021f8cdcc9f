"""Listener: mail for us comes in, each as a delivery; what is not for us is not taken.

The mail is answered for when its parcel is stored: a sender whose connection breaks before that
sends it again. Servers on the way repeat mails, too. One that was taken already, the same to the
last byte under the same Message-ID, is taken again and handed to nobody; repeats of the message in
another mail are the handler's, which knows them by their MessageId.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from oncewire.errors import OncewireError, TransportProblem
from oncewire.transport.budget import BudgetLimits, Budgets, OverBudget, Visit
from oncewire.transport.contract import Delivery, OnDelivery, Peer, Reply, Verdict, verdict_of
from oncewire.transport.smtp.mail import Mail, mail_address, read_mail

logger = logging.getLogger("oncewire.smtp")

NAME = "smtp"
REMEMBERED = 20_000
"""Mails whose repeats are known; those of before a restart are not."""

_PIECE = 256 * 1024
_ANSWERS = {
    Verdict.TAKEN: "250 taken",
    Verdict.LATER: "451 not now, come back",
    Verdict.REFUSED: "554 not taken",
}


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """Where mail comes in, and for whom."""

    mailbox: str
    host: str = "127.0.0.1"
    # 0: any that is free.
    port: int = 0
    tls: ssl.SSLContext | None = None
    max_size: int = 64 * 1024 * 1024
    connections: int = 200
    budget: BudgetLimits = field(default_factory=BudgetLimits)


class MailDoor:
    """Takes mails from wherever they come, and says what became of each."""

    def __init__(self, on_delivery: OnDelivery) -> None:
        self._on_delivery = on_delivery
        self._taken: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    async def take(self, content: bytes, peer: Peer, visit: Visit | None = None) -> Verdict:
        """Hand one mail in."""
        try:
            mail = read_mail(content)
        except OncewireError as problem:
            logger.warning("a mail cannot be read", extra={"problem": str(problem)})
            return Verdict.REFUSED
        if mail.is_report or mail.is_automatic:
            # A hint and no more: anybody can send one, and the acknowledgement is what counts.
            logger.warning(
                "a mail server tells of a mail of ours",
                extra={"address": peer.address, "report": _told_in(mail)},
            )
            return Verdict.TAKEN
        key = (mail.message_id, hashlib.sha256(mail.body).digest())
        if mail.message_id and key in self._taken:
            return Verdict.TAKEN
        verdict = verdict_of(await self._hand_in(mail, peer, visit))
        if verdict is Verdict.TAKEN and mail.message_id:
            self._taken[key] = None
            while len(self._taken) > REMEMBERED:
                self._taken.popitem(last=False)
        return verdict

    async def _hand_in(self, mail: Mail, peer: Peer, visit: Visit | None) -> Reply:
        async def body() -> AsyncIterator[bytes]:
            for start in range(0, len(mail.body), _PIECE):
                yield mail.body[start : start + _PIECE]

        more: dict[str, Any] = {} if visit is None else {"allowance": visit}
        return await self._on_delivery(
            Delivery(NAME, mail.content_type, mail.headers, body(), len(mail.body), peer, **more)
        )


def _told_in(mail: Mail) -> str:
    """What a report says, in a line that can stand in a log."""
    wanted = ("final-recipient", "action", "status", "diagnostic-code")
    text = mail.body[:65_536].decode("ascii", "replace")
    lines = [line.strip() for line in text.splitlines() if line.lower().startswith(wanted)]
    return "; ".join(line for line in lines if line.isprintable())[:300]


class SmtpListener:
    """A mail server for one mailbox."""

    def __init__(self, settings: ListenerSettings) -> None:
        self.settings = settings
        self._mailbox = mail_address(f"mailto:{settings.mailbox}").lower()
        self._budgets = Budgets(settings.budget)
        self._server: asyncio.Server | None = None
        self._door: MailDoor | None = None
        self._open: set[Any] = set()
        self._working: set[asyncio.Task[str]] = set()

    @property
    def port(self) -> int:
        """Where it listens; 0: it does not."""
        if self._server is None or not self._server.sockets:
            return 0
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self, on_delivery: OnDelivery) -> None:
        """Begin to listen; TransportProblem if the port cannot be had."""
        self._door = MailDoor(on_delivery)
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self._protocol, self.settings.host, self.settings.port
            )
        except OSError as error:
            raise TransportProblem(
                f"mail cannot be taken at {self.settings.host} port {self.settings.port}: {error}",
                remedy="choose another smtp.port, or end who uses it",
            ) from error

    def _protocol(self) -> asyncio.Protocol:
        from aiosmtpd.smtp import SMTP

        opened = self._open
        limit = self.settings.connections

        class Bounded(SMTP):
            """A connection that is counted, and turned away where there are too many."""

            def connection_made(self, transport: Any) -> None:
                # Called again when TLS begins on it.
                if len(opened) >= limit and self not in opened:
                    transport.write(b"421 too many connections, come back\r\n")
                    transport.close()
                    return
                opened.add(self)
                super().connection_made(transport)

            def connection_lost(self, error: Exception | None) -> None:
                if self in opened:
                    opened.discard(self)
                    super().connection_lost(error)

        return Bounded(
            self,
            data_size_limit=self.settings.max_size * 3 // 2,
            hostname=self._mailbox.rpartition("@")[2],
            ident="Oncewire",
            tls_context=self.settings.tls,
            require_starttls=self.settings.tls is not None,
            timeout=60,
            loop=asyncio.get_running_loop(),
        )

    # aiosmtpd calls these by name.

    async def handle_RCPT(  # noqa: N802
        self, _server: Any, _session: Any, envelope: Any, address: str, _options: list[str]
    ) -> str:
        """Mail for us alone: nobody's relay, and one recipient to each mail."""
        if address.lower() != self._mailbox:
            return "550 5.1.1 nobody of that name here"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        """Take a mail; its sender hears of it when it is stored."""
        if self._door is None:
            return "421 closing"
        peer = Peer(address=str(session.peer[0]))
        # Its own task: a sender that leaves before it is answered stops nothing half-way.
        work = asyncio.ensure_future(self._take(self._door, bytes(envelope.content), peer))
        self._working.add(work)
        work.add_done_callback(self._working.discard)
        return await asyncio.shield(work)

    async def _take(self, door: MailDoor, content: bytes, peer: Peer) -> str:
        try:
            visit = await self._budgets.enter(peer)
        except OverBudget as over:
            return f"451 {over.problem}"[:500]
        try:
            verdict = await door.take(content, peer, visit)
        except OverBudget as over:
            return f"451 {over.problem}"[:500]
        finally:
            visit.leave()
        if verdict is Verdict.REFUSED:
            self._budgets.refused(peer)
        return _ANSWERS[verdict]

    async def handle_exception(self, error: Exception) -> str:
        """Whatever it is, the sender keeps its mail."""
        logger.error("a mail could not be taken", exc_info=error)
        return "451 a fault here, come back"

    async def stop(self) -> None:
        """Take no more mail, and let those that are being stored end."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        self._door = None
        if self._working:
            await asyncio.wait(self._working, timeout=5)
        for connection in list(self._open):
            connection.transport.close()
