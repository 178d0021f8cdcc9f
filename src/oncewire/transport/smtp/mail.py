"""Mail: a parcel as the text of one mail, and back (ebMS 2.0 Appendix B.3).

Mail carries lines of seven-bit text. Messages that are agreed to go by mail are written that way
(`wire.codec`), and their bytes are the mail's body as they are. Any other body travels as base64 of
the whole, which is undone before anybody reads it: what arrives is always what was sent.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from email.utils import formatdate

from oncewire.errors import MimeProblem, TransportProblem
from oncewire.transport.header_block import LINE_MAX, gather_block, read_block, write_block
from oncewire.wire.mime.headers import parameters
from oncewire.wire.mime.transfer import base64_lines, decoder

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
    """A mail that comes: the parcel in it, and what the mail says of itself."""

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
        """Whether a machine answered that nobody asked (RFC 3834)."""
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
                piece = await self._next()
            except Exception as problem:
                self._trouble = problem
                raise
            if piece:
                return piece
        raise StopAsyncIteration

    def check(self) -> None:
        """Raise what went wrong while it was read, if anything did."""
        if self._trouble is not None:
            raise self._trouble

    async def _next(self) -> bytes:
        piece, self._first = self._first, b""
        piece = piece or await anext(self._pieces, b"")
        self._over = not piece
        content = self._undo.feed(piece) if piece else self._undo.finish()
        if self._undo.foreign:
            raise MimeProblem(
                "base64 is damaged", location="MIME", remedy="send the mail again, whole"
            )
        return content


async def open_mail(pieces: AsyncIterator[bytes]) -> Mail:
    """The parcel of a mail; MimeProblem where it cannot be found in it, perhaps only while its
    body is read."""
    block, rest = await gather_block(pieces)
    headers = read_block(rest if block is None else block)
    encoding = headers.pop("content-transfer-encoding", "").strip().lower()
    body = MailBody(b"" if block is None else rest, pieces, encoding)
    return Mail(headers.get("content-type", ""), headers, body)
