"""Door: where a transport's deliveries come in, and what goes back on their connections."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from time import thread_time

from oncewire.errors import StoreProblem, TransportProblem
from oncewire.handler.answering.answer import NOTHING, Answer, Awaited
from oncewire.handler.arriving.expected import Expected
from oncewire.handler.arriving.inbound import Inbound, TooLarge, take_in
from oncewire.handler.loop.relaying import Relaying
from oncewire.handler.loop.shell import Shell
from oncewire.handler.reading import TooLong
from oncewire.handler.sealing.seal import whole_parcel
from oncewire.handler.source import Source
from oncewire.message.instant import SECOND
from oncewire.store.records import StoredParcel
from oncewire.transport.contract import Allowance, Delivery, Reply
from oncewire.wire.glance import named_in
from oncewire.wire.received import Received

logger = logging.getLogger("oncewire.handler")

RETRY_AFTER = 30
"""Seconds a sender is asked to wait while the store cannot take anything."""


Trouble = Callable[[StoreProblem], Awaitable[None]]
"""Tells whoever looks after the handler what the store cannot do."""


class _Connection:
    """A connection that brought something, and may wait for the response to it."""

    __slots__ = ("_gone", "key", "woken")

    def __init__(self, gone: asyncio.Future[None] | None) -> None:
        self._gone = gone
        # Sender and MessageId of the request that it waits for.
        self.key: tuple[str, str] | None = None
        self.woken = asyncio.Event()

    @property
    def is_gone(self) -> bool:
        """Whether the peer has hung up."""
        return self._gone is not None and self._gone.done()

    async def wait(self, seconds: float) -> None:
        """Until it is woken, or has gone, or time is up."""
        if self._gone is not None:
            self._gone.add_done_callback(lambda _: self.woken.set())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.woken.wait(), seconds)


class Door:
    """Takes what arrives, and keeps connections open for the responses to their requests."""

    def __init__(self, shell: Shell, relaying: Relaying, trouble: Trouble) -> None:
        self._shell = shell
        self._trouble = trouble
        self._relaying = relaying
        self._engine = shell.engine
        self._kill = shell.engine.node.kill
        # Connections that wait for the response to their request, by its sender and MessageId.
        self._replying: dict[tuple[str, str], list[_Connection]] = {}
        shell.engine.node.replying = self._replying.keys()
        self._stopping = False

    def stop(self) -> None:
        """Nobody waits any longer."""
        self._stopping = True
        for waiting in self._replying.values():
            for connection in waiting:
                connection.woken.set()

    def reply_is_there(self, sender: str, message_id: str) -> bool:
        """Wake the connections that wait for it; False: none does any more."""
        waiting = self._replying.get((sender, message_id), ())
        for connection in waiting:
            connection.woken.set()
        return bool(waiting)

    async def take(self, delivery: Delivery) -> Reply:
        """The transports' door. Whatever is wrong becomes a reply; nothing is raised but what
        the transport itself has to say of the body."""
        source = Source(
            delivery.transport,
            delivery.can_answer,
            delivery.peer.address,
            delivery.peer.certificate,
        )
        self._kill.reach("read before body")
        try:
            inbound = await take_in(self._engine.node, delivery, self._expects)
        except TooLarge as problem:
            return Reply(413, "text/plain", body=str(problem).encode(), refused=True)
        except TooLong:
            return Reply(503, retry_after=RETRY_AFTER, refused=True)
        except StoreProblem as problem:
            return await self._come_back(problem)
        kept, connection = False, _Connection(delivery.gone)
        try:
            answer, known = await self._receive(inbound, source, delivery.allowance, connection)
            kept = not answer.refused
            if answer.awaited is not None:
                answer = await self._reply_in_time(answer.awaited, connection)
            return self._reply(answer, known=known)
        except StoreProblem as problem:
            # Not stored, so not acknowledged: the sender keeps it and comes back.
            return await self._come_back(problem)
        except TransportProblem:
            # Its sender is over his budget: the transport tells him.
            raise
        except Exception:
            logger.exception("an arrival failed", extra={"address": source.address})
            return Reply(500)
        finally:
            self._forget(connection)
            # From here on its row names the file, or nobody ever will.
            self._let_go(inbound.stored, kept=kept)

    async def _come_back(self, problem: StoreProblem) -> Reply:
        """The store cannot: a sender is sent away for a while, and somebody here is told why."""
        await self._trouble(problem)
        return Reply(503, retry_after=RETRY_AFTER)

    async def _expects(self, header: Received) -> Expected:
        return await self._shell.do("look", lambda: self._engine.expects(header))

    async def _receive(
        self, inbound: Inbound, source: Source, allowance: Allowance, connection: _Connection
    ) -> tuple[Answer, bool]:
        """What goes back, and whether a partner is there."""
        known = False

        def receive() -> Answer:
            nonlocal known
            # Those before it in this turn may have used up what there was for all of them.
            allowance.spend(0.0)
            began = thread_time()
            try:
                taken = self._engine.receive(
                    inbound.parcel, source, inbound.stored, inbound.reading
                )
                known = taken.partner_is_there
                if taken.awaited is not None:
                    # Within the turn: what nobody waits for is not given to the application.
                    self._register(taken.awaited, connection)
                return taken
            finally:
                # It is over: what it cost counts against whatever comes next.
                with contextlib.suppress(TransportProblem):
                    allowance.spend(thread_time() - began)

        aside = allowance.is_strangers
        # Of a large one nobody looks at the beginning a second time.
        named = not aside and not inbound.stored.spooled
        names = named_in(inbound.parcel.body) if named else ()
        return await self._relaying.receive(receive, names=names, aside=aside), known

    def _let_go(self, parcel: StoredParcel, *, kept: bool) -> None:
        spool = self._engine.node.store.spool
        for name in parcel.spooled:
            if kept:
                spool.let_go(name)
            else:
                spool.give_back(name)

    def _register(self, awaited: Awaited, connection: _Connection) -> None:
        connection.key = awaited.sender, awaited.message_id
        self._replying.setdefault(connection.key, []).append(connection)

    def _forget(self, connection: _Connection) -> None:
        """It waits no more."""
        key, connection.key = connection.key, None
        if key is None:
            return
        waiting = self._replying[key]
        waiting.remove(connection)
        if not waiting:
            del self._replying[key]

    async def _reply_in_time(self, awaited: Awaited, connection: _Connection) -> Answer:
        """Wait until the application answered a request, or time is up, or nobody waits there."""
        # A reply of the very turn that looks is not missed: it is registered already.
        answer = await self._shell.do("look", lambda: self._engine.reply_to(awaited))
        if answer is None and not self._stopping:
            await connection.wait(awaited.patience / SECOND)
            answer = await self._shell.do("look", lambda: self._engine.reply_to(awaited))
        if answer is None and connection.is_gone:
            self._forget(connection)
            await self._shell.do("overdue", lambda: self._engine.left_alone(awaited))
            return NOTHING
        if answer is None:
            answer = await self._shell.do("overdue", lambda: self._engine.overdue(awaited))
        return answer

    def _reply(self, answer: Answer, *, known: bool) -> Reply:
        refused = answer.refused
        if answer.parcel is None:
            return Reply(
                answer.status, retry_after=answer.retry_after, known=known, refused=refused
            )
        parcel = whole_parcel(self._engine.node, answer.parcel)
        return Reply(
            answer.status,
            parcel.content_type,
            parcel.headers,
            parcel.body,
            known=known,
            refused=refused,
        )
