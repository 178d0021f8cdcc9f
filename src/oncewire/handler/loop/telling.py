"""Telling: the application hears of its messages that failed, each failure until it took it.

The store knows what is owed, so that after a crash everything that was not taken is told
again. Notices keep no order, and one that is refused holds up no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from oncewire.errors import OncewireError
from oncewire.handler.actions import Notice, Refused
from oncewire.handler.delivering.application import Application
from oncewire.handler.loop.offers import IDLE, OFFERED_MAX, Offer, Offers
from oncewire.handler.loop.shell import Shell

logger = logging.getLogger("oncewire.handler")


class Telling(Offers):
    """Tells one application; `due` says that there may be more to tell."""

    def __init__(self, application: Application, shell: Shell) -> None:
        super().__init__()
        self._application, self._shell = application, shell
        self._turns = asyncio.Semaphore(max(1, application.batch))
        self._offered: set[str] = set()
        self.due = asyncio.Event()

    async def run(self) -> None:
        """Tell what is owed until `stop`."""
        while not self._stopping.is_set():
            self.due.clear()
            for notice in await self._owed():
                self._offered.add(notice.notice_id)
                self._spawn(self._tell(notice))
            await self._wait(self.due, IDLE)

    async def stop(self) -> None:
        """See `Offers`."""
        self._stopping.set()
        self.due.set()
        await super().stop()

    async def _owed(self) -> list[Notice]:
        try:
            found = await self._shell.do("look", lambda: self._shell.engine.notices(OFFERED_MAX))
        except OncewireError as problem:
            logger.warning("nothing could be told", extra={"problem": str(problem)})
            return []
        return [notice for notice in found if notice.notice_id not in self._offered]

    def tell_of(self, refused: Refused) -> None:
        """Tell of a best-effort message that was refused, until the application takes it, has
        refused to `REFUSALS_MAX` times, or this process ends: it is owed to nobody (C34)."""
        notice = refused.notice
        if notice.notice_id in self._offered or len(self._offered) >= OFFERED_MAX:
            return
        self._offered.add(notice.notice_id)
        self._spawn(self._tell_of(notice))

    async def _tell_of(self, notice: Notice) -> None:
        @asynccontextmanager
        async def turn() -> AsyncIterator[bool]:
            async with self._turns:
                yield True

        async def give() -> None:
            await self._application.notify(notice)

        async def keep(_said: None) -> None:
            """There is nothing to store."""

        async def refused(_reason: str) -> bool:
            return False

        complaint = "the application did not take the news of a refusal"
        try:
            await self._until_taken(Offer(notice.message_id, complaint, turn, give, keep, refused))
        finally:
            self._offered.discard(notice.notice_id)

    async def _tell(self, notice: Notice) -> None:
        engine, notice_id = self._shell.engine, notice.notice_id

        @asynccontextmanager
        async def turn() -> AsyncIterator[bool]:
            async with self._turns:
                # While it was refused the message may have been acknowledged, or sent again.
                yield await self._shell.do("look", lambda: engine.owes(notice_id))

        async def give() -> None:
            await self._application.notify(notice)

        async def keep(_said: None) -> None:
            await self._shell.do("told", lambda: engine.confirm_notice(notice_id))

        async def refused(reason: str) -> bool:
            return await self._shell.do("operate", lambda: engine.notice_refused(notice_id, reason))

        complaint = "the application did not take the notice of a failure"
        try:
            await self._until_taken(Offer(notice.message_id, complaint, turn, give, keep, refused))
        finally:
            self._offered.discard(notice_id)
            self.due.set()
