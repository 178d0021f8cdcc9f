"""One connection to our mail server: the library speaks SMTP, and the bounds are ours.

The library keeps each line of a mail as an object of its own, which takes some twenty times the
bytes of the mail, and holds the event loop until it has read all that is there. So the text of a
mail is read here: as it comes, in pieces, and within the time limits that HTTP has for a body.
Other tasks have a turn between two commands. Work for strangers is counted as processor time, and
their next command is not read before their turn.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any, AnyStr, Protocol

from aiosmtpd.smtp import SMTP, TLSSetupException

from oncewire.errors import TransportProblem
from oncewire.transport.budget import Budgets, in_steps
from oncewire.transport.contract import Peer
from oncewire.transport.listener import ListenerLimits, Lost, Patience

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
