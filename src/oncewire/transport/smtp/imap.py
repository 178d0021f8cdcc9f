"""IMAP: one connection to the server that keeps our mail, with an end to all that it may say.

The library waits for whatever a server announces, and keeps whatever it says. So every answer has
a measure here, in bytes and in seconds, and a server that goes beyond it is left.
"""

from __future__ import annotations

import contextlib
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oncewire.transport.smtp.relay import MailTls

if TYPE_CHECKING:
    from imapclient import IMAPClient

ANSWER_MAX = 1024 * 1024
"""Bytes of an answer that holds no mail."""

NUMBERS_MAX = 8 * 1024 * 1024
"""Bytes of the answer to which mails there are: the numbers of a million mails."""

LISTED_MAX = 10_000
"""Mails that are taken in one look; the others come when these are gone."""

PART = 1024 * 1024
"""Bytes of a mail that are fetched at once."""

SLOWEST = 64 * 1024
"""Bytes in a second at which a mail may come, in addition to the patience for any answer."""

_WANTED = ["UNDELETED", "UNFLAGGED"]
_PIECE = 64 * 1024


@dataclass(frozen=True, slots=True)
class MailboxSettings:
    """The server that keeps our mail, and who we are to it."""

    host: str
    user: str
    password: str = ""
    port: int = 993
    tls: MailTls = MailTls.TLS
    # Whom to believe; None: the system's authorities.
    context: ssl.SSLContext | None = None
    folder: str = "INBOX"
    every: float = 30.0
    max_size: int = 64 * 1024 * 1024
    # Seconds that the server has for one answer.
    patience: float = 60.0


class Measure:
    """What the server may still say to the question it was asked."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._bytes, self._until = 0, 0.0

    def begin(self, mail: int = 0, *, answer: int | None = None) -> None:
        """A question is asked, whose answer may hold so many bytes of a mail."""
        self._bytes = (ANSWER_MAX if answer is None else answer) + mail
        self._until = time.monotonic() + self._patience + mail / SLOWEST

    def take(self, count: int) -> None:
        """So many bytes come."""
        if count > self._bytes:
            raise OSError("the mail server says more than it was asked for")
        if time.monotonic() > self._until:
            raise TimeoutError("the mail server takes too long to answer")
        self._bytes -= count


class ImapBox:
    """One mailbox that is open. Its methods wait, each in a thread and one at a time."""

    def __init__(self, settings: MailboxSettings) -> None:
        self._folder, self._measure = settings.folder, Measure(settings.patience)
        self._measure.begin()
        self._client = _connected(settings, self._measure)
        try:
            if settings.tls is MailTls.STARTTLS:
                # It fails where the server has none: a password goes over TLS or not at all.
                self._client.starttls(settings.context or ssl.create_default_context())
            self._client.login(settings.user, settings.password)
        except BaseException:
            self.close()
            raise

    def select(self) -> None:
        """Look into the folder, whatever it holds."""
        self._measure.begin()
        self._client.select_folder(self._folder)

    def wanted(self, last: frozenset[int] = frozenset()) -> list[int]:
        """The mails that are to be taken, the oldest first, but those of `last` after all others;
        no more than LISTED_MAX. Their numbers hold until this is asked again."""
        # Selected anew: what came since is told only then, or to those who ask for it.
        self.select()
        self._measure.begin(answer=NUMBERS_MAX)
        found = set(self._client.search(_WANTED))
        return sorted(found, key=lambda mail_id: (mail_id in last, mail_id))[:LISTED_MAX]

    def sizes(self, mail_ids: list[int]) -> dict[int, int]:
        """The size of each of these; of one that the server says nothing of, there is none."""
        self._measure.begin()
        told = self._client.fetch(mail_ids, ["RFC822.SIZE"])
        said = ((mail_id, told.get(mail_id, {}).get(b"RFC822.SIZE")) for mail_id in mail_ids)
        return {mail_id: size for mail_id, size in said if isinstance(size, int) and size >= 0}

    def part(self, mail_id: int, start: int) -> bytes | None:
        """PART bytes of a mail, or what is left of it; it is not marked as read by that. None:
        somebody took it away."""
        self._measure.begin(PART)
        wanted = f"BODY.PEEK[]<{start}.{PART}>"
        told: dict[int, dict[bytes, Any]] = self._client.fetch([mail_id], [wanted])
        content = told.get(mail_id, {}).get(b"BODY[]<%d>" % start)
        return content if isinstance(content, bytes) else None

    def remove(self, mail_id: int) -> None:
        """Take a mail away."""
        self._measure.begin()
        self._client.delete_messages([mail_id])
        # With its number alone where the server can: mails that others marked are theirs.
        self._measure.begin()
        self._client.expunge([mail_id] if self._client.has_capability("UIDPLUS") else None)

    def flag(self, mail_id: int) -> None:
        """Leave a mail to people."""
        self._measure.begin()
        self._client.add_flags([mail_id], [b"\\Flagged"])

    def close(self) -> None:
        """End the connection; whoever waits for the server does not any more."""
        with contextlib.suppress(Exception):
            self._client.shutdown()


def _connected(settings: MailboxSettings, measure: Measure) -> IMAPClient:
    from imapclient import IMAPClient, SocketTimeout
    from imapclient.imap4 import IMAP4WithTimeout
    from imapclient.tls import IMAP4_TLS

    class Measured:
        """How the library reads, with a measure."""

        file: Any

        def read(self, size: int) -> bytes:
            pieces: list[bytes] = []
            while size:
                # No more than one look at the line, so that the time is looked at too.
                piece = self.file.read1(min(size, _PIECE))
                if not piece:
                    break
                measure.take(len(piece))
                pieces.append(piece)
                size -= len(piece)
            return b"".join(pieces)

        def readline(self) -> bytes:
            pieces: list[bytes] = []
            while True:
                ahead = self.file.peek(1)
                piece = self.file.read1((ahead.find(b"\n") + 1) or len(ahead) or 1)
                measure.take(len(piece))
                pieces.append(piece)
                if not piece or piece.endswith(b"\n"):
                    return b"".join(pieces)

    class Plain(Measured, IMAP4WithTimeout):  # type: ignore[misc]
        pass

    class Protected(Measured, IMAP4_TLS):  # type: ignore[misc]
        pass

    class Client(IMAPClient):  # type: ignore[misc]
        def _create_IMAP4(self) -> Any:  # noqa: N802
            wait = self._timeout.connect
            if self.ssl:
                return Protected(self.host, self.port, self.ssl_context, wait)
            return Plain(self.host, self.port, wait)

    return Client(
        settings.host,
        settings.port,
        ssl=settings.tls is MailTls.TLS,
        ssl_context=settings.context or ssl.create_default_context(),
        timeout=SocketTimeout(connect=min(20.0, settings.patience), read=settings.patience),
    )
