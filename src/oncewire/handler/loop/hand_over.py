"""Hand-over: push what arrived to an application that is called, in order per channel.

A message is handed over when the application is called with it, and not before: what waits for
the application to be free is nobody's yet, and may still be closed. The application has `batch`
places. Whoever has a place takes one message from the store in the commit that confirms the one
before, so a place costs one commit for each message.

A message of a channel is offered until the application takes it, and only then the next one of
that channel; other channels go on meanwhile. After a crash the next start finds what was handed
over and offers it again, marked `redelivered`.

A message that is refused again and again holds up what comes behind it (see `offers`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from oncewire.errors import OncewireError
from oncewire.handler.actions import Decided
from oncewire.handler.delivering.application import Application, GivenMessage
from oncewire.handler.delivering.deliver import FOR_EVER
from oncewire.handler.loop.offers import IDLE, Offer, Offers
from oncewire.handler.loop.shell import Shell
from oncewire.handler.sending.handing_in import handed_in
from oncewire.handler.sending.submit import Submission
from oncewire.message.instant import Duration

logger = logging.getLogger("oncewire.handler")

KEPT: Duration = FOR_EVER // 2
"""The lease of a message that this process itself offers to an application."""


class HandOver(Offers):
    """Offers messages to one application; `ready` says that there may be more of them."""

    def __init__(self, application: Application, shell: Shell, ready: asyncio.Event) -> None:
        super().__init__()
        self._application, self._shell, self._ready = application, shell, ready
        self._places = asyncio.Semaphore(max(1, application.batch))
        # Of every message that is offered, by sender and MessageId: set when a person decided
        # about it.
        self._over: dict[tuple[str, str], asyncio.Event] = {}

    async def run(self) -> None:
        """Offer what is ready, as long as there are places for it, until `stop`."""
        while not self._stopping.is_set():
            places = await self._all_free()
            self._ready.clear()
            taken = await self._taken(places)
            for given in taken:
                self._spawn(self._hand_over(given))
            for _ in range(places - len(taken)):
                self._places.release()
            if not taken:
                await self._wait(self._ready, IDLE)

    async def stop(self) -> None:
        """See `Offers`."""
        self._stopping.set()
        self._ready.set()
        await super().stop()

    async def _all_free(self) -> int:
        """Occupy every place that is free, one at least; returns how many."""
        await self._places.acquire()
        places = 1
        while not self._places.locked():
            await self._places.acquire()
            places += 1
        return places

    async def _taken(self, places: int) -> list[GivenMessage]:
        try:
            return await self._shell.do("take", lambda: self._take(places))
        except OncewireError as problem:
            logger.warning("nothing could be taken", extra={"problem": str(problem)})
            return []

    def _take(self, places: int) -> list[GivenMessage]:
        """Hand over what the application is called with right after the commit. The lease does
        not end: what is offered stays ours until a restart."""
        if self._stopping.is_set():
            return []
        engine = self._shell.engine
        taken = engine.hand_over(places, KEPT, one_by_one=True)
        if engine.node.proofs.wanted:
            self._spawn(self._prove())
        return taken

    async def _prove(self) -> None:
        """Read the files of what was passed over; then it is given."""
        node = self._shell.engine.node
        await node.proofs.read(node.now())
        self._ready.set()

    def end(self, decided: Decided) -> None:
        """A person decided about a message: it is not offered again, and the next one goes on."""
        over = self._over.get((decided.sender, decided.message_id))
        if over is not None:
            over.set()

    async def _hand_over(self, taken: GivenMessage) -> None:
        """Offer one message, which comes with a place, until it is taken and that is stored."""
        engine, sender, message_id = self._shell.engine, taken.sender, taken.message_id
        # Whether this message has a place at the application, and whether it needs to be asked
        # for: right after its hand-over, and once the application has it, it need not.
        place, known = True, True
        # Whether there may be something for another place when it is over: its channel is free.
        frees = True
        over = self._over[sender, message_id] = asyncio.Event()

        @asynccontextmanager
        async def turn() -> AsyncIterator[bool]:
            nonlocal place, known
            if not place:
                await self._places.acquire()
                place = True
            try:
                yield known or (
                    not over.is_set()
                    and await self._shell.do(
                        "look", lambda: engine.still_offered(sender, message_id)
                    )
                )
            finally:
                if place:
                    place = False
                    self._places.release()

        async def give() -> Sequence[Submission]:
            nonlocal known
            known = False
            said = await self._application.deliver(taken) or ()
            known = True
            return said

        async def keep(said: Sequence[Submission]) -> None:
            nonlocal place, frees
            async with handed_in(engine.node, said) as handed:
                ready = handed.submissions

                def confirm() -> tuple[bool, list[GivenMessage]]:
                    new = engine.confirm(sender, message_id, ready)
                    return new, self._following()

                handed.kept, following = await self._shell.do("confirm", confirm)
            for given in following:
                # It has the place from now on.
                place = False
                self._spawn(self._hand_over(given))
                frees = taken.channel not in (None, given.channel)

        async def refused(reason: str) -> bool:
            return await self._shell.do(
                "operate", lambda: engine.refused(sender, message_id, reason)
            )

        complaint = "the application did not take a message"
        try:
            await self._until_taken(Offer(message_id, complaint, turn, give, keep, refused, over))
        finally:
            del self._over[sender, message_id]
            if frees:
                self._ready.set()

    def _following(self) -> list[GivenMessage]:
        """The message that the place of a confirmed one is for next; none where the store has
        a trouble, for that is not the confirmed one's."""
        try:
            return self._take(1)
        except OncewireError as problem:
            logger.warning("nothing could be taken", extra={"problem": str(problem)})
            return []
