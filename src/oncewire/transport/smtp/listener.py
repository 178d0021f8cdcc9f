"""Listener: mail for us comes in, each as a delivery; what is not for us is not taken.

The mail is answered for when its parcel is stored: a sender whose connection breaks before that
sends it again. Servers on the way repeat mails, too; the handler knows their messages again by
their MessageId. What strangers and partners may take of this machine is bounded as under HTTP:
connections by `transport.listener`, mails by `transport.budget`, and both before a mail is read.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, AnyStr, Protocol

from aiosmtpd.smtp import SMTP, TLSSetupException

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
from oncewire.transport.listener import Guest, Listener, ListenerLimits, Lost, Patience
from oncewire.transport.smtp.relay import mail_address, open_mail

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
                # What a report says, in a line that can stand in a log.
                wanted = ("final-recipient", "action", "status", "diagnostic-code")
                content = bytearray()
                async for piece in mail.body:
                    content += piece[: _REPORT_MAX - len(content)]
                text = content.decode("ascii", "replace")
                lines = [
                    line.strip() for line in text.splitlines() if line.lower().startswith(wanted)
                ]
                told = "; ".join(line for line in lines if line.isprintable())[:300]
                self._log("a mail server tells of a mail of ours", peer, report=told)
                return Reply(204)
            reply = await self._on_delivery(
                Delivery(
                    NAME, mail.content_type, mail.headers, mail.body, peer=peer, allowance=allowance
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
        from oncewire.transport.smtp.listener import MailConnection

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


# One connection to our mail server: the library speaks SMTP, and the bounds are ours.
#
# The library keeps each line of a mail as an object of its own, which takes some twenty times the
# bytes of the mail, and holds the event loop until it has read all that is there. So the text of
# a mail is read here: as it comes, in pieces, and within the time limits that HTTP has for a
# body. Other tasks have a turn between two commands. Work for strangers is counted as processor
# time, and their next command is not read before their turn.

# Lines about what strangers send, a few for each command.
logging.getLogger("mail.log").setLevel(logging.CRITICAL)

ANSWERS_MAX = 100
"""Lines that we answer before a mail comes; a peer that wants more does not bring one."""

SECONDS_FOR_A_CONNECTION = 6e-4
"""Processor time to make a connection and to end it."""

SECONDS_FOR_A_HANDSHAKE = 2e-3
"""Processor time of a TLS handshake."""

SECONDS_FOR_A_READ = 3e-5
"""Processor time of one read of the socket; each byte of it costs SECONDS_FOR_A_BYTE more."""

SECONDS_FOR_A_BYTE = 1e-9

_END = b"\r\n.\r\n"
# A path of RFC 5321 §4.1.2 and what follows it; no mailbox here needs quotes.
_PATH = re.compile(r"\s*(?:<([^<>\s]*)>|([^<>\s]+))(.*)", re.DOTALL)


class MailHost(Protocol):
    """What a connection needs of its listener."""

    @property
    def budgets(self) -> Budgets:
        """The budgets of all peers."""

    async def take(self, connection: MailConnection) -> tuple[str, bool]:
        """Take a mail; returns the answer, and whether the connection goes on after it."""

    def failed(self, peer: Peer, error: Exception) -> str:
        """Note that a command failed; returns the answer to its sender."""


class MailText:
    """What follows DATA, piece by piece, to the line that is a dot alone (RFC 5321 §4.5.2)."""

    def __init__(self, reader: asyncio.StreamReader, connection: MailConnection) -> None:
        self._reader, self._most = reader, connection.most
        self._turn, self._patience = connection.turn, Patience(connection.limits)
        self.size = 0
        # A line end whose next character may be a dot. It begins with the one that was fed.
        self._held = b""
        self._begun = self.over = False
        # What its sender is told where it breaks off.
        self.broken = ""

    def __aiter__(self) -> MailText:
        return self

    async def __anext__(self) -> bytes:
        while not self.over and not self.broken:
            text = self._plain(await self._more())
            if text:
                return text
        if self.broken:
            raise TransportProblem("the mail did not come whole", remedy="send it again")
        raise StopAsyncIteration

    async def drain(self, most: int) -> None:
        """Read and drop the rest of a refused mail, so that its sender hears the answer; at most
        `most` more bytes."""
        said, self.broken, self._most = self.broken, "", self.size + most
        while not self.over and not self.broken:
            await self._more()
        self.broken = said

    async def _more(self) -> bytes:
        """The next piece of the mail, without its end."""
        # That he waits for us is nothing to be impatient about.
        await self._turn()
        try:
            async with self._patience.waiting():
                piece = (await self._reader.readuntil(_END))[:-3]
                self.over = True
        except asyncio.LimitOverrunError as found:
            # It lies there already, up to where the end may begin.
            piece = await self._reader.read(found.consumed)
        except TimeoutError:
            self.broken = "421 4.4.2 the mail came too slowly"
            return b""
        except (asyncio.IncompleteReadError, OSError):
            self.broken = "421 4.4.2 the mail was cut off"
            return b""
        self._patience.came(len(piece))
        self.size += len(piece)
        if self.size > self._most:
            self.broken = f"552 5.3.4 a mail may have {self._most} bytes"
            return b""
        return piece

    def _plain(self, piece: bytes) -> bytes:
        """The text with the dots removed that SMTP puts before dots (RFC 5321 §4.5.2)."""
        text = self._held + piece
        held = 0 if self.over else 2 if text.endswith(b"\r\n") else 1 if text.endswith(b"\r") else 0
        self._held = text[len(text) - held :]
        text = text[: len(text) - held].replace(b"\r\n.", b"\r\n")
        if not self._begun and text:
            # The line end that stands before the first line.
            self._begun, text = True, text[2:]
        return text


class MailConnection(SMTP):
    """See the module; the listener closes those that are idle for too long."""

    def __init__(
        self, host: MailHost, lost: Lost, limits: ListenerLimits, most: int, **more: Any
    ) -> None:
        super().__init__(
            host,
            data_size_limit=most,
            ident="Oncewire",
            # We offer no login.
            auth_exclude_mechanism=["LOGIN", "PLAIN"],
            # The library would end a large mail that comes steadily, and let a silent peer stay
            # who says NOOP now and then.
            timeout=24 * 3600,
            loop=asyncio.get_running_loop(),
            **more,
        )
        self._host, self._lost, self.limits, self.most = host, lost, limits, most
        self._answers = 0
        self._gone = self._starting_tls = False
        self._peer = Peer()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`. The library calls it, too, when TLS has begun."""
        if self.transport is None:
            where = transport.get_extra_info("peername")
            self._peer = Peer(str(where[0]) if where else "")
            self.spend(SECONDS_FOR_A_CONNECTION)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self.spend(SECONDS_FOR_A_READ + len(data) * SECONDS_FOR_A_BYTE)
        super().data_received(data)

    async def _handle_client(self) -> None:
        await self.turn()
        await in_steps(super()._handle_client(), self.spend, self.turn)

    def spend(self, seconds: float) -> None:
        """Count processor time."""
        self._host.budgets.charge(self._peer, seconds)

    async def turn(self) -> None:
        """Wait until more may be done for the peer. The library's reader pauses its transport
        meanwhile, so that only a little is buffered."""
        await self._host.budgets.turn(self._peer)

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`. The library calls it, too, and then asyncio does."""
        if not self._gone:
            self._gone = True
            super().connection_lost(error)
            self._lost(self)

    def shut(self) -> None:
        """End the connection now."""
        if isinstance(self.transport, asyncio.WriteTransport):
            self.transport.abort()

    async def push(self, status: AnyStr) -> None:
        """Answer, and let other tasks work before the next command is read."""
        await super().push(status)
        self._answers += 1
        if self._answers > ANSWERS_MAX:
            self._writer.write(b"421 4.7.0 too many commands\r\n")
            self._writer.close()
        if not self._starting_tls:
            await asyncio.sleep(0)

    async def handle_exception(self, error: Exception) -> str:
        """Answer any error as a failure, so that the sender keeps its mail."""
        cause = error.__cause__ if isinstance(error, TLSSetupException) else None
        return self._host.failed(self._peer, cause if isinstance(cause, Exception) else error)

    def _getaddr(self, arg: str) -> tuple[str | None, str | None]:
        """The mailbox and what follows it. The library reads it as the header of a mail, comments
        in comments and all, which takes a hundred times as long."""
        found = _PATH.fullmatch(arg)
        if found is None:
            return None, None
        return found[1] or found[2] or "<>", found[3]

    async def smtp_STARTTLS(self, arg: str) -> None:  # noqa: N802
        """Begin TLS. One whose connection ended meanwhile is not told so by the library."""
        if self._tls_protocol is not None:
            # The library would begin it again within itself.
            await self.push("503 5.5.1 TLS has begun")
            return
        self.spend(SECONDS_FOR_A_HANDSHAKE)
        # After our answer the next bytes are TLS, so no wait for a turn comes in between.
        self._starting_tls = True
        try:
            await super().smtp_STARTTLS(arg)
        finally:
            self._starting_tls = False
        if self._original_transport is not None and self._original_transport.is_closing():
            self.connection_lost(None)

    async def smtp_DATA(self, arg: str) -> None:  # noqa: N802
        """Take a mail, if there is one to come."""
        if await self.check_helo_needed():
            return
        if self.envelope is None or not self.envelope.rcpt_tos:
            await self.push("503 Error: need RCPT command")
            return
        if arg:
            await self.push("501 Syntax: DATA")
            return
        answer, goes_on = await self._host.take(self)
        self._set_post_data_state()  # type: ignore[no-untyped-call]
        self._answers = 0
        await self.push(answer)
        if not goes_on:
            self._writer.close()

    async def text(self) -> MailText | None:
        """Ask for the text of a mail; None: its sender did not wait to be asked, or has left."""
        # We offer no PIPELINING: bytes that come unasked were put there by an attacker on the way,
        # or by the sender to have them taken for commands.
        if self._reader._buffer or self._reader.at_eof():  # type: ignore[attr-defined]  # noqa: SLF001  (as the library does)
            return None
        # So the end is found in one way, also before the first line.
        self._reader.feed_data(b"\r\n")
        await self.push("354 End data with <CR><LF>.<CR><LF>")
        return MailText(self._reader, self)
