"""Mailbox: mail that a server keeps for us is fetched from it, each as a delivery (IMAP).

A mail is removed from the mailbox when its parcel is stored, and not before: whoever dies in
between finds it there again, and the handler knows its message. What will never be taken is flagged
and left to people. A mailbox has one reader: IMAP knows no claim that two of them could make.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oncewire.transport.contract import OnDelivery, Peer, Verdict
from oncewire.transport.smtp.listener import MailDoor
from oncewire.transport.smtp.relay import MailTls

if TYPE_CHECKING:
    from imapclient import IMAPClient

logger = logging.getLogger("oncewire.imap")

_WANTED = ["UNDELETED", "UNFLAGGED"]


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


class MailboxReader:
    """Looks into one mailbox again and again."""

    def __init__(self, settings: MailboxSettings) -> None:
        self.settings = settings
        self._task: asyncio.Task[None] | None = None
        self._client: IMAPClient | None = None
        self._out = False

    def start(self, on_delivery: OnDelivery) -> None:
        """Begin to look; a server that is not there is waited for."""
        self._task = asyncio.get_running_loop().create_task(self._run(MailDoor(on_delivery)))

    async def stop(self) -> None:
        """Look no more; what was not removed is found again by the next start."""
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
                self._out = False
            except Exception as problem:  # noqa: BLE001  (servers and libraries are not ours)
                # Whatever it is, the next look finds the same mails; said once, for it comes again.
                self._hang_up()
                if not self._out:
                    told = str(problem) or type(problem).__name__
                    logger.warning(f"a mailbox cannot be read: {told[:200]}")
                self._out = True
            await asyncio.sleep(self.settings.every)

    async def look(self, door: MailDoor) -> None:
        """Take what is there now."""
        client = self._client
        if client is None:
            client = await asyncio.to_thread(self._connect)
            self._client = client
        found = await asyncio.to_thread(_sizes, client, self.settings.folder)
        for mail_id, size in sorted(found.items()):
            await self._take(client, mail_id, size, door)

    async def _take(self, client: IMAPClient, mail_id: int, size: int, door: MailDoor) -> None:
        verdict = Verdict.REFUSED
        # As a mail it is longer than its parcel by a third, and its headers.
        if size <= self.settings.max_size * 3 // 2:
            content = await asyncio.to_thread(_content, client, mail_id)
            if content is None:
                return
            verdict = await door.take(content, Peer(address=self.settings.host))
        if verdict is Verdict.TAKEN:
            await asyncio.to_thread(_remove, client, mail_id)
        elif verdict is Verdict.REFUSED:
            logger.warning("a mail is not taken", extra={"uid": mail_id, "bytes": size})
            await asyncio.to_thread(client.add_flags, [mail_id], [b"\\Flagged"])

    def _connect(self) -> IMAPClient:
        from imapclient import IMAPClient, SocketTimeout

        said = self.settings
        context = said.context or ssl.create_default_context()
        client = IMAPClient(
            said.host,
            said.port,
            ssl=said.tls is MailTls.TLS,
            ssl_context=context,
            timeout=SocketTimeout(connect=20.0, read=said.patience),
        )
        try:
            if said.tls is MailTls.STARTTLS:
                # It fails where the server has none: a password goes over TLS or not at all.
                client.starttls(context)
            client.login(said.user, said.password)
        except BaseException:
            _close(client)
            raise
        return client

    def _hang_up(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            _close(client)


# What one thread does at a time.


def _sizes(client: IMAPClient, folder: str) -> dict[int, int]:
    """The mails that are to be taken, with their sizes."""
    # Selected anew: what came since is told only then, or to those who ask for it.
    client.select_folder(folder)
    found = client.search(_WANTED)
    if not found:
        return {}
    told: dict[int, dict[bytes, Any]] = client.fetch(found, ["RFC822.SIZE"])
    return {mail_id: int(said[b"RFC822.SIZE"]) for mail_id, said in told.items()}


def _content(client: IMAPClient, mail_id: int) -> bytes | None:
    """A whole mail, which is not marked as read by that; None: somebody took it away."""
    told: dict[int, dict[bytes, Any]] = client.fetch([mail_id], ["BODY.PEEK[]"])
    content = told.get(mail_id, {}).get(b"BODY[]")
    return None if content is None else bytes(content)


def _remove(client: IMAPClient, mail_id: int) -> None:
    client.delete_messages([mail_id])
    # With its number alone where the server can: mails that others marked are theirs.
    client.expunge([mail_id] if client.has_capability("UIDPLUS") else None)


def _close(client: IMAPClient) -> None:
    with contextlib.suppress(Exception):
        client.shutdown()
