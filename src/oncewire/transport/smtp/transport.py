"""SMTP as one transport: out through our mail server, in at our own door, or from a mailbox."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from oncewire.transport.budget import Call, ReaderShare, ReaderVisit, Unserved
from oncewire.transport.contract import (
    AttemptOutcome,
    Cargo,
    OnDelivery,
    Outage,
    OutcomeKind,
    Peer,
    Verdict,
    verdict_of,
)
from oncewire.transport.smtp.listener import NAME, ListenerSettings, MailDoor, SmtpListener
from oncewire.transport.smtp.relay import MailTls, RelaySettings, SmtpRelay

if TYPE_CHECKING:
    from imapclient import IMAPClient


# Mailbox: mail that a server keeps for us is fetched from it, each as a delivery (IMAP).
#
# A mail is removed from the mailbox when its parcel is stored, and not before: a reader that dies
# in between finds the mail again, and the handler drops its message as a duplicate. A mail that
# will never be taken is flagged and left to people. A mailbox has one reader, because IMAP has no
# way for two readers to claim mails.


# IMAP: one connection to the server that keeps our mail, with an end to all that it may say.
#
# The library waits for whatever a server announces, and keeps whatever it says. So every answer
# has a measure here, in bytes and in seconds, and a server that goes beyond it is left.


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
    """How many bytes, and how long, the server may still answer a command."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._bytes, self._until = 0, 0.0

    def begin(self, mail: int = 0, *, answer: int | None = None) -> None:
        """Begin a command whose answer may hold that many bytes of a mail."""
        self._bytes = (ANSWER_MAX if answer is None else answer) + mail
        self._until = time.monotonic() + self._patience + mail / SLOWEST

    def take(self, count: int) -> None:
        """Count bytes that arrive; an error where they are too many or too slow."""
        if count > self._bytes:
            raise OSError("the mail server says more than it was asked for")
        if time.monotonic() > self._until:
            raise TimeoutError("the mail server takes too long to answer")
        self._bytes -= count


class ImapBox:
    """One open mailbox. Its methods block; each is called in a thread, one at a time."""

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
        """Open the folder."""
        self._measure.begin()
        self._client.select_folder(self._folder)

    def wanted(self, last: frozenset[int] = frozenset()) -> list[int]:
        """The ids of mails to take, oldest first, with those of `last` at the end; at most
        LISTED_MAX. The ids are valid until the next call."""
        # Selected anew: what came since is told only then, or to those who ask for it.
        self.select()
        self._measure.begin(answer=NUMBERS_MAX)
        found = set(self._client.search(_WANTED))
        return sorted(found, key=lambda mail_id: (mail_id in last, mail_id))[:LISTED_MAX]

    def sizes(self, mail_ids: list[int]) -> dict[int, int]:
        """The size of each of these mails; one whose size the server does not tell is left out."""
        self._measure.begin()
        told = self._client.fetch(mail_ids, ["RFC822.SIZE"])
        said = ((mail_id, told.get(mail_id, {}).get(b"RFC822.SIZE")) for mail_id in mail_ids)
        return {mail_id: size for mail_id, size in said if isinstance(size, int) and size >= 0}

    def part(self, mail_id: int, start: int) -> bytes | None:
        """PART bytes of a mail, or what is left of it, without marking it as read. None: another
        program removed the mail."""
        self._measure.begin(PART)
        wanted = f"BODY.PEEK[]<{start}.{PART}>"
        told: dict[int, dict[bytes, Any]] = self._client.fetch([mail_id], [wanted])
        content = told.get(mail_id, {}).get(b"BODY[]<%d>" % start)
        return content if isinstance(content, bytes) else None

    def remove(self, mail_id: int) -> None:
        """Remove a mail."""
        self._measure.begin()
        self._client.delete_messages([mail_id])
        # With its number alone where the server can: mails that others marked are theirs.
        self._measure.begin()
        self._client.expunge([mail_id] if self._client.has_capability("UIDPLUS") else None)

    def flag(self, mail_id: int) -> None:
        """Flag a mail, which leaves it to people."""
        self._measure.begin()
        self._client.add_flags([mail_id], [b"\\Flagged"])

    def close(self) -> None:
        """End the connection; a thread that waits for the server gets an error."""
        with contextlib.suppress(Exception):
            self._client.shutdown()


def _connected(settings: MailboxSettings, measure: Measure) -> IMAPClient:
    from imapclient import IMAPClient, SocketTimeout
    from imapclient.imap4 import IMAP4WithTimeout
    from imapclient.tls import IMAP4_TLS

    class Measured:
        """The library's reading of the socket, counted by a measure."""

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


logger = logging.getLogger("oncewire.imap")

AT_ONCE = 200
"""Mails whose sizes are asked for at once: a question has to fit into a line."""


class MailboxReader:
    """Polls one mailbox and takes its mails."""

    def __init__(self, settings: MailboxSettings) -> None:
        self.settings = settings
        self._task: asyncio.Task[None] | None = None
        self._box: ImapBox | None = None
        self._outage = Outage(logger)
        self._share = ReaderShare()
        # Mails at which a look broke off: they come last, so that others do not wait for them.
        self._trouble: set[int] = set()

    def start(self, on_delivery: OnDelivery) -> None:
        """Begin to poll; a server that is away is waited for."""
        self._task = asyncio.get_running_loop().create_task(self._run(MailDoor(on_delivery)))

    async def stop(self) -> None:
        """Stop polling; the next start finds mails that were not removed."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            # Whatever a thread waits for on the connection ends with it.
            self._hang_up()
            await asyncio.wait({task})

    async def _run(self, door: MailDoor) -> None:
        while True:
            try:
                await self.look(door)
                self._outage.ends("a mailbox can be read again")
            except Exception as problem:  # noqa: BLE001  (servers and libraries are not ours)
                # Whatever it is, the next look finds the same mails; said once, for it comes again.
                self._hang_up()
                self._outage.begins(f"a mailbox cannot be read: {_words(problem)}")
            await asyncio.sleep(self.settings.every)

    async def look(self, door: MailDoor) -> None:
        """Take the mails that are there now."""
        box = self._box
        if box is None:
            box = self._box = await asyncio.to_thread(ImapBox, self.settings)
        found = await asyncio.to_thread(box.wanted, frozenset(self._trouble))
        self._trouble &= set(found)
        for start in range(0, len(found), AT_ONCE):
            some = found[start : start + AT_ONCE]
            sizes = await asyncio.to_thread(box.sizes, some)
            for mail_id in some:
                if mail_id in sizes:
                    self._trouble.add(mail_id)
                    await self._take(box, mail_id, sizes[mail_id], door)
                    self._trouble.discard(mail_id)

    async def _take(self, box: ImapBox, mail_id: int, size: int, door: MailDoor) -> None:
        await self._share.turn()
        verdict = Verdict.REFUSED
        # As a mail it is longer than its parcel by a third, and its headers.
        limit = self.settings.max_size * 3 // 2
        first = await asyncio.to_thread(box.part, mail_id, 0) if size <= limit else b""
        if first is None:
            return
        with ReaderVisit(self._share) as visit:
            reply = None
            if first:
                pieces = self._parts(box, mail_id, first, limit)
                reply = await door.take(pieces, Peer(address=self.settings.host), visit)
                verdict = verdict_of(reply)
            self._share.note(reply, visit)
        if verdict is Verdict.TAKEN:
            await asyncio.to_thread(box.remove, mail_id)
        elif verdict is Verdict.REFUSED:
            logger.warning("a mail is not taken", extra={"uid": mail_id, "bytes": size})
            await asyncio.to_thread(box.flag, mail_id)

    async def _parts(
        self, box: ImapBox, mail_id: int, first: bytes, limit: int
    ) -> AsyncIterator[bytes]:
        """A mail, part by part: only one part of it is in memory at a time."""
        start, part = 0, first
        while part:
            start += len(part)
            if start > limit:
                raise OSError("a mail is longer than the mail server said")
            yield part
            if len(part) < PART:
                return
            fetched = await asyncio.to_thread(box.part, mail_id, start)
            if fetched is None:
                raise OSError("a mail went while it was read")
            part = fetched

    def _hang_up(self) -> None:
        box, self._box = self._box, None
        if box is not None:
            box.close()


async def probe_mailbox(settings: MailboxSettings, *, timeout: float) -> AttemptOutcome:
    """Whether the mailbox can be opened, in the terms of `Transport.probe`."""
    asked = replace(settings, patience=min(timeout, settings.patience))

    def look() -> None:
        box = ImapBox(asked)
        try:
            box.select()
        finally:
            box.close()

    try:
        await asyncio.to_thread(look)
    except Exception as problem:  # noqa: BLE001  (servers and libraries are not ours)
        return AttemptOutcome(OutcomeKind.REFUSED, _words(problem))
    return AttemptOutcome(OutcomeKind.SENT)


def _words(problem: Exception) -> str:
    said = str(problem) or type(problem).__name__
    return "".join(letter if letter.isprintable() else "?" for letter in said)[:200]


class SmtpTransport:
    """Every message, acknowledgement and error is a mail (TRN-3); none is answered on the
    connection that brought it (TRN-5)."""

    name = NAME
    can_answer = False

    def __init__(
        self,
        relay: RelaySettings | None = None,
        listener: ListenerSettings | None = None,
        mailbox: MailboxSettings | None = None,
    ) -> None:
        self._relay = SmtpRelay(relay) if relay is not None else None
        self._listener = SmtpListener(listener) if listener is not None else None
        self._mailbox = MailboxReader(mailbox) if mailbox is not None else None

    @property
    def port(self) -> int:
        """The port on which mail comes in; 0: none."""
        return self._listener.port if self._listener is not None else 0

    def on_turned_away(self, call: Call) -> None:
        """Set what is called when our mail server sends partners away."""
        if self._listener is not None:
            self._listener.turned_away.call = call

    def unserved(self) -> Counter[Unserved]:
        """How many our listener did not serve."""
        return Counter() if self._listener is None else self._listener.turned_away.counts

    async def start(self, on_delivery: OnDelivery) -> None:
        """Begin to take mail; TransportProblem if that cannot be."""
        if self._listener is not None:
            await self._listener.start(on_delivery)
        if self._mailbox is not None:
            self._mailbox.start(on_delivery)

    async def send(self, cargo: Cargo, address: str, *, timeout: float) -> AttemptOutcome:
        """Send one mail; see `Transport`."""
        if self._relay is None:
            return _no_relay()
        return await self._relay.send(cargo, address, timeout=timeout)

    async def probe(self, address: str, *, timeout: float) -> AttemptOutcome:
        """Whether our mail server takes mail for the address; see `Transport`."""
        if self._relay is None:
            return _no_relay()
        return await self._relay.probe(address, timeout=timeout)

    async def stop(self) -> None:
        """Take no more mail."""
        if self._listener is not None:
            await self._listener.stop()
        if self._mailbox is not None:
            await self._mailbox.stop()


def _no_relay() -> AttemptOutcome:
    return AttemptOutcome(OutcomeKind.REFUSED, "no mail server is set up: smtp.relay is empty")
