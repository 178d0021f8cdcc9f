"""Mailbox: mail that a server keeps for us is fetched from it, each as a delivery (IMAP).

A mail is removed from the mailbox when its parcel is stored, and not before: whoever dies in
between finds it there again, and the handler knows its message. What will never be taken is flagged
and left to people. A mailbox has one reader: IMAP knows no claim that two of them could make.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace

from oncewire.transport.budget import ReaderShare, ReaderVisit
from oncewire.transport.contract import (
    AttemptOutcome,
    OnDelivery,
    OutcomeKind,
    Peer,
    Verdict,
    verdict_of,
)
from oncewire.transport.outage import Outage
from oncewire.transport.smtp import imap
from oncewire.transport.smtp.imap import ImapBox, MailboxSettings
from oncewire.transport.smtp.listener import MailDoor

logger = logging.getLogger("oncewire.imap")

AT_ONCE = 200
"""Mails whose sizes are asked for at once: a question has to fit into a line."""


class MailboxReader:
    """Looks into one mailbox again and again."""

    def __init__(self, settings: MailboxSettings) -> None:
        self.settings = settings
        self._task: asyncio.Task[None] | None = None
        self._box: ImapBox | None = None
        self._outage = Outage(logger)
        self._share = ReaderShare()
        # Mails at which a look broke off: they come last, so that they keep nobody waiting.
        self._trouble: set[int] = set()

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
                self._outage.ends("a mailbox can be read again")
            except Exception as problem:  # noqa: BLE001  (servers and libraries are not ours)
                # Whatever it is, the next look finds the same mails; said once, for it comes again.
                self._hang_up()
                self._outage.begins(f"a mailbox cannot be read: {_words(problem)}")
            await asyncio.sleep(self.settings.every)

    async def look(self, door: MailDoor) -> None:
        """Take what is there now."""
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
        """A mail, part by part: never more of it than that is in memory."""
        start, part = 0, first
        while part:
            start += len(part)
            if start > limit:
                raise OSError("a mail is longer than the mail server said")
            yield part
            if len(part) < imap.PART:
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
    """Whether the mailbox can be looked into, as `Transport.probe` says it of an address."""
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
