"""Relay: mail goes out through one server of ours, each message as a transaction of its own."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from oncewire.errors import TransportProblem
from oncewire.transport.contract import AttemptOutcome, Cargo, OutcomeKind
from oncewire.transport.smtp.mail import mail_address, write_mail

if TYPE_CHECKING:
    import aiosmtplib

_REASON_LENGTH = 300


class MailTls(StrEnum):
    """How the connection to our mail server is protected."""

    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """The mail server that takes our mail, and who we are to it."""

    sender: str
    host: str
    port: int = 587
    tls: MailTls = MailTls.STARTTLS
    # Whom to believe; None: the system's authorities.
    context: ssl.SSLContext | None = None
    user: str = ""
    password: str = ""
    connections: int = 8
    # Larger ones are refused here: a mail is in memory as a whole, on every server on its way.
    max_size: int = 64 * 1024 * 1024


class SmtpRelay:
    """Hands mails to the server; TransportProblem at once if the settings cannot be used."""

    def __init__(self, settings: RelaySettings) -> None:
        self.settings = settings
        mail_address(f"mailto:{settings.sender}")
        self._places = asyncio.Semaphore(settings.connections)

    async def send(self, cargo: Cargo, address: str, *, timeout: float) -> AttemptOutcome:
        """One mail to one mailbox. What the server has taken is sent; what it refused, or never
        heard of, is not; a connection that breaks in between leaves it unknown."""
        try:
            mailbox = mail_address(address)
            content = await self._content(cargo, mailbox)
        except TransportProblem as problem:
            return AttemptOutcome(OutcomeKind.REFUSED, str(problem)[:_REASON_LENGTH])
        return await self._transact(mailbox, content, timeout)

    async def _content(self, cargo: Cargo, mailbox: str) -> bytes:
        if cargo.size > self.settings.max_size:
            raise TransportProblem(
                f"{cargo.size} bytes are more than a mail may have ({self.settings.max_size})",
                remedy="agree on another transport for large documents",
            )
        body = b"".join([piece async for piece in cargo.chunks()])
        if len(body) != cargo.size:
            raise TransportProblem(f"the cargo is not {cargo.size} bytes long as it said")
        sender = self.settings.sender
        return write_mail(
            cargo.content_type,
            cargo.headers,
            body,
            sender=sender,
            recipient=mailbox,
            # Each attempt is a mail of its own: servers drop a second mail of the same id, and
            # with it the attempt.
            message_id=f"{uuid.uuid4().hex}@{sender.rpartition('@')[2].strip('[]')}",
        )

    async def probe(self, address: str, *, timeout: float) -> AttemptOutcome:
        """Whether our mail server would take a mail for the address."""
        try:
            mailbox = mail_address(address)
        except TransportProblem as problem:
            return AttemptOutcome(OutcomeKind.REFUSED, str(problem)[:_REASON_LENGTH])
        return await self._transact(mailbox, None, timeout)

    async def _transact(
        self, mailbox: str, content: bytes | None, timeout: float
    ) -> AttemptOutcome:
        import aiosmtplib

        handed_over = False
        try:
            async with asyncio.timeout(timeout), self._places, self._connected() as client:
                await client.mail(self.settings.sender)
                await client.rcpt(mailbox)
                if content is not None:
                    handed_over = True
                    await client.data(content)
        except aiosmtplib.SMTPResponseException as refusal:
            # It said no, so it has no copy.
            text = f"SMTP {refusal.code} {refusal.message}"
            return AttemptOutcome(OutcomeKind.REFUSED, text[:_REASON_LENGTH])
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            kind = OutcomeKind.UNKNOWN if handed_over else OutcomeKind.REFUSED
            return AttemptOutcome(kind, _words(error)[:_REASON_LENGTH])
        return AttemptOutcome(OutcomeKind.SENT)

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[aiosmtplib.SMTP]:
        import aiosmtplib

        chosen = self.settings
        client = aiosmtplib.SMTP(
            hostname=chosen.host,
            port=chosen.port,
            use_tls=chosen.tls is MailTls.TLS,
            # True: without STARTTLS nothing is said to it, least of all a password.
            start_tls=chosen.tls is MailTls.STARTTLS,
            tls_context=chosen.context,
            username=chosen.user or None,
            password=chosen.password or None,
        )
        await client.connect()
        try:
            yield client
        finally:
            # The mail is taken or it is not; how the connection ends says nothing of it.
            with contextlib.suppress(aiosmtplib.SMTPException, OSError):
                async with asyncio.timeout(5):
                    await client.quit()
            client.close()


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    return str(error) or type(error).__name__
