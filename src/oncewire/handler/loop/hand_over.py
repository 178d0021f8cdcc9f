"""Hand-over: push what arrived to an application that is called, in order per channel.

A message of a channel is offered until the application takes it, and only then the next one
of that channel; other channels go on meanwhile. What is offered stays leased to this process:
after a crash the next start finds it and offers it again, marked `redelivered`.

A message that is refused again and again holds up what comes behind it (see `offers`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

from oncewire.errors import OncewireError
from oncewire.handler.actions import Decided
from oncewire.handler.delivering.application import Application, GivenMessage
from oncewire.handler.delivering.deliver import FOR_EVER
from oncewire.handler.loop.offers import IDLE, OFFERED_MAX, Offer, Offers
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
        self._streams: dict[str, deque[GivenMessage]] = {}
        # Of what is offered or waits for its turn, by sender and MessageId: set when a person
        # decided about it.
        self._over: dict[tuple[str, str], asyncio.Event] = {}
        self._turns = asyncio.Semaphore(max(1, application.batch))
        self._offered = 0

    async def run(self) -> None:
        """Offer what is ready until `stop`."""
        while not self._stopping.is_set():
            self._ready.clear()
            room = OFFERED_MAX - self._offered
            taken = await self._taken(room) if room > 0 else []
            for given in taken:
                self._offer(given)
            if not taken:
                await self._wait(self._ready, IDLE)

    async def stop(self) -> None:
        """See `Offers`."""
        self._stopping.set()
        self._ready.set()
        await super().stop()

    async def _taken(self, room: int) -> list[GivenMessage]:
        """Take without a lease that ends: what is offered stays ours until a restart."""
        limit, engine = min(room, max(1, self._application.batch)), self._shell.engine
        try:
            taken = await self._shell.do("take", lambda: engine.hand_over(limit, KEPT))
            if engine.node.proofs.wanted:
                self._spawn(self._prove())
            return taken
        except OncewireError as problem:
            logger.warning("nothing could be taken", extra={"problem": str(problem)})
            return []

    async def _prove(self) -> None:
        """Read the files of what was passed over; then it is given."""
        node = self._shell.engine.node
        await node.proofs.read(node.now())
        self._ready.set()

    def _offer(self, taken: GivenMessage) -> None:
        # A message without a channel has no order to keep: it is a stream of its own.
        stream = taken.channel or f"{taken.sender}\0{taken.message_id}"
        self._offered += 1
        self._over[taken.sender, taken.message_id] = asyncio.Event()
        queue = self._streams.get(stream)
        if queue is not None:
            queue.append(taken)
            return
        self._streams[stream] = deque([taken])
        self._spawn(self._drain(stream))

    async def _drain(self, stream: str) -> None:
        queue = self._streams[stream]
        try:
            while queue and not self._stopping.is_set():
                await self._hand_over(queue[0])
                self._forget(queue.popleft())
        finally:
            while queue:
                self._forget(queue.popleft())
            del self._streams[stream]
            self._ready.set()

    def _forget(self, taken: GivenMessage) -> None:
        self._offered -= 1
        self._over.pop((taken.sender, taken.message_id), None)

    def end(self, decided: Decided) -> None:
        """A person decided about a message: it is not offered again, and the next one goes on."""
        over = self._over.get((decided.sender, decided.message_id))
        if over is not None:
            over.set()

    async def _hand_over(self, taken: GivenMessage) -> None:
        """Offer one message until it is taken and that is stored."""
        engine, sender, message_id = self._shell.engine, taken.sender, taken.message_id

        over = self._over[sender, message_id]

        async def give() -> Sequence[Submission] | None:
            async with self._turns:
                if over.is_set():
                    return None
                return await self._application.deliver(taken) or ()

        async def keep(said: Sequence[Submission] | None) -> None:
            if said is None:
                return
            async with handed_in(engine.node, said) as handed:
                ready = handed.submissions
                handed.kept = await self._shell.do(
                    "confirm", lambda: engine.confirm(sender, message_id, ready)
                )

        async def refused(reason: str) -> bool:
            return await self._shell.do(
                "operate", lambda: engine.refused(sender, message_id, reason)
            )

        complaint = "the application did not take a message"
        await self._until_taken(Offer(message_id, complaint, give, keep, refused, over))
