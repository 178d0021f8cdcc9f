"""Relay: mail goes out through one server of ours, each message as a transaction of its own."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import uuid
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from email.utils import formatdate
from enum import StrEnum
from typing import TYPE_CHECKING

from oncewire.errors import MimeProblem, TransportProblem
from oncewire.transport.contract import (
    LINE_MAX,
    AttemptOutcome,
    Cargo,
    OutcomeKind,
    gather_block,
    read_block,
    write_block,
)
from oncewire.wire.mime.multipart import base64_lines, decoder, parameters

if TYPE_CHECKING:
    import aiosmtplib


# Mail: a parcel as the text of one mail, and back (ebMS 2.0 Appendix B.3).
#
# Mail carries lines of seven-bit text. Messages that are agreed to go by mail are written that way
# (`wire.codec`), and their bytes are the mail's body as they are. Any other body travels as base64
# of the whole, which is undone before the body is read: what arrives is always what was sent.


# What a local part may be without quotes, and a domain or a literal address (RFC 5321 §4.1.2).
_ADDRESS = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
    r"@(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f.:IPv]+\])"
)
# Bytes that some server on the way would change: all but tab, line end and visible ASCII.
_UNSAFE = re.compile(rb"[^\t\r\n -~]|\r(?!\n)|(?<!\r)\n")
# Headers that the mail has of its own.
_OWN = frozenset(
    {"from", "to", "date", "message-id", "content-type", "content-transfer-encoding",
     "mime-version", "subject", "bcc", "cc", "sender", "reply-to", "return-path", "received"}
)  # fmt: skip


def mail_address(address: str) -> str:
    """The mailbox of a `mailto:` address; TransportProblem where it is none, or more than one."""
    scheme, _, mailbox = address.partition(":")
    mailbox = mailbox.removeprefix("//")
    if scheme.lower() != "mailto" or len(mailbox) > 254 or not _ADDRESS.fullmatch(mailbox):
        raise TransportProblem(
            f"{address[:128]!r} is no address for mail", remedy="write mailto:somebody@example.org"
        )
    return mailbox


def is_mail_safe(body: bytes) -> bool:
    """Whether every mail server passes the body on byte by byte."""
    if not body.endswith(b"\r\n") or _UNSAFE.search(body):
        return False
    return all(len(line) <= LINE_MAX for line in body.split(b"\r\n"))


def write_mail(
    content_type: str,
    headers: Iterable[tuple[str, str]],
    body: bytes,
    *,
    sender: str,
    recipient: str,
    message_id: str,
) -> bytes:
    """One mail with the parcel in it. TransportProblem where a header would not stay one line."""
    as_it_is = is_mail_safe(body)
    lines = [
        ("From", f"<{sender}>"),
        ("To", f"<{recipient}>"),
        ("Date", formatdate()),
        ("Message-ID", f"<{message_id}>"),
        ("Subject", "ebXML"),
        ("MIME-Version", "1.0"),
        ("Content-Type", content_type),
        ("Content-Transfer-Encoding", "7bit" if as_it_is else "base64"),
        *(header for header in headers if header[0].lower() not in _OWN),
    ]
    return write_block(lines) + b"\r\n" + (body if as_it_is else base64_lines(body))


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail that arrives: its parcel, and the mail's own headers."""

    content_type: str
    headers: dict[str, str]
    body: MailBody

    @property
    def is_report(self) -> bool:
        """Whether a mail server tells what became of a mail of ours (RFC 3464)."""
        kind, told = parameters(self.content_type)
        return kind == "multipart/report" or "delivery-status" in told.get("report-type", "")

    @property
    def is_automatic(self) -> bool:
        """Whether a machine answered by itself, such as an absence note (RFC 3834)."""
        said = self.headers.get("auto-submitted", "no").strip().lower()
        return said not in {"", "no", "auto-generated"}


class MailBody:
    """The parcel's body as it comes, with the mail's transfer encoding undone piece by piece: a
    mail is never in memory as a whole."""

    def __init__(self, first: bytes, pieces: AsyncIterator[bytes], encoding: str) -> None:
        self._first, self._pieces = first, pieces
        self._undo = decoder(encoding)
        self._over = False
        self._trouble: Exception | None = None

    def __aiter__(self) -> MailBody:
        return self

    async def __anext__(self) -> bytes:
        while not self._over:
            self.check()
            try:
                raw, self._first = self._first, b""
                raw = raw or await anext(self._pieces, b"")
                self._over = not raw
                piece = self._undo.feed(raw) if raw else self._undo.finish()
                if self._undo.foreign:
                    raise MimeProblem(
                        "base64 is damaged", location="MIME", remedy="send the mail again, whole"
                    )
            except Exception as problem:
                self._trouble = problem
                raise
            if piece:
                return piece
        raise StopAsyncIteration

    def check(self) -> None:
        """Raise the error that ended the reading, if one did."""
        if self._trouble is not None:
            raise self._trouble


async def open_mail(pieces: AsyncIterator[bytes]) -> Mail:
    """The parcel of a mail; MimeProblem where it cannot be found in it, perhaps only while its
    body is read."""
    block, rest = await gather_block(pieces)
    headers = read_block(rest if block is None else block)
    encoding = headers.pop("content-transfer-encoding", "").strip().lower()
    body = MailBody(b"" if block is None else rest, pieces, encoding)
    return Mail(headers.get("content-type", ""), headers, body)


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
        return await self.transact(mailbox, content, timeout)

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
        return await self.transact(mailbox, None, timeout)

    async def transact(self, mailbox: str, content: bytes | None, timeout: float) -> AttemptOutcome:
        """Hand a mail to the server; without content, see whether it would take one."""
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
