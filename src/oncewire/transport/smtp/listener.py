"""Listener: mail for us comes in, each as a delivery; what is not for us is not taken.

The mail is answered for when its parcel is stored: a sender whose connection breaks before that
sends it again. Servers on the way repeat mails, too; the handler knows their messages again by
their MessageId. What strangers and partners may take of this machine is bounded as under HTTP:
connections by `transport.listener`, mails by `transport.budget`, and both before a mail is read.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from oncewire.errors import MimeProblem, TransportProblem
from oncewire.transport.budget import (
    BudgetLimits,
    Budgets,
    Handshakes,
    OverBudget,
    Seldom,
    TurnedAway,
    Unserved,
    Visit,
    in_steps,
)
from oncewire.transport.contract import (
    Allowance,
    Delivery,
    OnDelivery,
    Peer,
    Reply,
    Verdict,
    verdict_of,
)
from oncewire.transport.listener import Guest, Listener, ListenerLimits, Lost
from oncewire.transport.smtp.relay import MailBody, mail_address, open_mail

if TYPE_CHECKING:
    from oncewire.transport.smtp.connection import MailConnection

logger = logging.getLogger("oncewire.smtp")

NAME = "smtp"

_ANSWERS = {
    Verdict.TAKEN: "250 taken",
    Verdict.LATER: "451 not now, come back",
    Verdict.REFUSED: "554 not taken",
}
_FULL = b"421 too many connections, come back\r\n"
_CLOSING = "421 closing"
_REPORT_MAX = 64 * 1024

STRANGERS_REST = 4 * 1024 * 1024
"""Bytes of a stranger's mail that are still heard after it was refused; then we hang up."""


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """Where mail comes in, and for whom."""

    mailbox: str
    host: str = "127.0.0.1"
    # 0: any that is free.
    port: int = 0
    tls: ssl.SSLContext | None = None
    max_size: int = 64 * 1024 * 1024
    # A connection has a minute until its next mail begins. A mail server opens no more of them
    # at once than 20, unless it is told to.
    limits: ListenerLimits = field(
        default_factory=lambda: ListenerLimits(
            header_wait=60.0, idle_wait=60.0, connections=200, per_address=32
        )
    )
    budget: BudgetLimits = field(default_factory=BudgetLimits)


class MailDoor:
    """Takes mails from wherever they come, and says what became of each."""

    def __init__(self, on_delivery: OnDelivery) -> None:
        self._on_delivery = on_delivery
        self._seldom = Seldom(monotonic)

    async def take(self, pieces: AsyncIterator[bytes], peer: Peer, allowance: Allowance) -> Reply:
        """Hand one mail in as it comes. Errors of reading the pieces are raised."""
        try:
            mail = await open_mail(pieces)
            if mail.is_report or mail.is_automatic:
                # Only a hint: a stranger can send one too, and the acknowledgement is what counts.
                told = await _told_in(mail.body)
                self._log("a mail server tells of a mail of ours", peer, report=told)
                return Reply(204)
            reply = await self._on_delivery(
                Delivery(
                    NAME,
                    mail.content_type,
                    mail.headers,
                    mail.body,
                    peer=peer,
                    allowance=allowance,
                )
            )
            mail.body.check()
        except MimeProblem as problem:
            self._log("a mail cannot be read", peer, problem=str(problem))
            return Reply(400, "text/plain", body=str(problem).encode(), refused=True)
        return reply

    def _log(self, event: str, peer: Peer, **facts: str) -> None:
        repeats = self._seldom.again(event)
        if repeats is not None:
            logger.warning(event, extra={"address": peer.address, "repeats": repeats, **facts})


async def _told_in(body: MailBody) -> str:
    """What a report says, in a line that can stand in a log."""
    wanted = ("final-recipient", "action", "status", "diagnostic-code")
    content = bytearray()
    async for piece in body:
        content += piece[: _REPORT_MAX - len(content)]
    text = content.decode("ascii", "replace")
    lines = [line.strip() for line in text.splitlines() if line.lower().startswith(wanted)]
    return "; ".join(line for line in lines if line.isprintable())[:300]


class SmtpListener:
    """A mail server for one mailbox."""

    def __init__(self, settings: ListenerSettings) -> None:
        self.settings = settings
        self._mailbox = mail_address(f"mailto:{settings.mailbox}").lower()
        self.budgets = Budgets(settings.budget)
        self.turned_away = TurnedAway(monotonic)
        self._handshakes = Handshakes(monotonic)
        self._seldom = Seldom(monotonic)
        self._listener: Listener | None = None
        self._door: MailDoor | None = None
        self._working: set[asyncio.Task[tuple[str, bool]]] = set()

    @property
    def port(self) -> int:
        """The port on which it listens; 0: it does not listen."""
        if self._listener is None or not self._listener.addresses:
            return 0
        return self._listener.addresses[0][1]

    async def start(self, on_delivery: OnDelivery) -> None:
        """Begin to listen; TransportProblem if the port cannot be had."""
        # The library takes a tenth of a second to load, which holds the event loop: so load it now
        # and not with the first connection.
        from oncewire.transport.smtp.connection import MailConnection

        self._door = MailDoor(on_delivery)
        listener = Listener(
            self.settings.host,
            self.settings.port,
            # It begins on a connection that is there already (STARTTLS).
            tls=None,
            limits=self.settings.limits,
            full=_FULL,
            is_known=self.budgets.is_known,
            turned_away=self.turned_away,
        )
        try:
            await listener.start(partial(self._connection, MailConnection))
        except TransportProblem as problem:
            raise TransportProblem(
                f"mail cannot be taken: {problem.problem}",
                remedy="choose another smtp.port, or end who uses it",
            ) from problem
        self._listener = listener

    def _connection(self, make: type[MailConnection], lost: Lost) -> MailConnection:
        settings = self.settings
        return make(
            self,
            lost,
            settings.limits,
            # As a mail it is longer than its parcel by a third, and its headers.
            settings.max_size * 3 // 2,
            hostname=self._mailbox.rpartition("@")[2],
            tls_context=settings.tls,
            require_starttls=settings.tls is not None,
        )

    # The library calls this by its name.
    async def handle_RCPT(  # noqa: N802
        self, _server: Any, _session: Any, envelope: Any, address: str, _options: list[str]
    ) -> str:
        """Take mail for our own mailbox only: we relay nothing."""
        if address.lower() != self._mailbox:
            return "550 5.1.1 no mailbox of that name here"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    def failed(self, peer: Peer, error: Exception) -> str:
        """A command failed, or TLS did; see `MailHost`."""
        if isinstance(error, (ssl.SSLError, OSError, TimeoutError)):
            self._handshakes.failed(peer, error)
            self.turned_away.counts[Unserved.HANDSHAKE] += 1
        elif (repeats := self._seldom.again(type(error))) is not None:
            logger.error(
                "a mail server could not be answered", exc_info=error, extra={"repeats": repeats}
            )
        return "451 a fault here, come back"

    async def take(self, connection: MailConnection) -> tuple[str, bool]:
        """Take a mail; its sender hears of it when it is stored. See `MailHost`."""
        # Its own task: a sender that leaves before it is answered stops nothing half-way.
        work = asyncio.ensure_future(self._take(connection))
        self._working.add(work)
        work.add_done_callback(self._working.discard)
        return await asyncio.shield(work)

    async def _take(self, connection: MailConnection) -> tuple[str, bool]:
        guest = self._listener.guest(connection) if self._listener is not None else None
        if guest is None or self._door is None:
            return _CLOSING, False
        guest.requests += 1
        guest.busy = True
        try:
            work = self._take_within(connection, guest, self._door)
            return await in_steps(work, connection.spend)
        finally:
            guest.busy = False
            guest.since = asyncio.get_running_loop().time()

    async def _take_within(
        self, connection: MailConnection, guest: Guest, door: MailDoor
    ) -> tuple[str, bool]:
        """Take a mail within the budgets of its sender: a place first, then its text."""
        peer = guest.peer
        try:
            visit = await self.budgets.enter(peer)
        except OverBudget as over:
            return self._over(peer, over), True
        try:
            text = await connection.text()
            if text is None:
                self.budgets.refused(peer)
                return "503 5.5.1 wait for the answer to DATA", False
            reply: Reply | OverBudget
            try:
                reply = await door.take(text, peer, visit)
            except OverBudget as over:
                reply = over
            except TransportProblem:
                # What is wrong with its text is told below.
                reply = Reply(400, refused=True)
            known = not visit.is_strangers
            await text.drain(connection.most if known else STRANGERS_REST)
            return self._ended(peer, reply, visit, text.broken), text.over
        except ConnectionError:
            return _CLOSING, False
        except Exception:
            logger.exception("a mail could not be taken")
            return "451 a fault here, come back", False
        finally:
            visit.leave()

    def _ended(self, peer: Peer, reply: Reply | OverBudget, visit: Visit, broken: str) -> str:
        if broken or isinstance(reply, OverBudget):
            self.budgets.refused(peer, visit.spent)
        if broken:
            return broken
        if isinstance(reply, OverBudget):
            return self._over(peer, reply)
        self.budgets.note(peer, reply, visit)
        return _ANSWERS[verdict_of(reply)]

    def _over(self, peer: Peer, over: OverBudget) -> str:
        known = self.budgets.is_known(peer)
        self.turned_away.count(peer, over.problem, known=known, status=over.status)
        return f"451 {over.problem}"[:500]

    async def stop(self) -> None:
        """Take no more mail, and wait for those that are being stored."""
        self._door = None
        if self._working:
            await asyncio.wait(self._working, timeout=5)
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.stop()
        # Nothing is handed in any more whose sender waits for his turn.
        for work in list(self._working):
            work.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)
