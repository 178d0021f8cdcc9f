"""Door: where a transport's deliveries come in, and what goes back on their connections."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from time import thread_time
from typing import TYPE_CHECKING

from oncewire.errors import OncewireError, StoreProblem, TransportProblem
from oncewire.handler.actions import Action, Post, PostOn, Relay, Source
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.receiving.inbound import Expected, Inbound, TooLarge, hear, take_in
from oncewire.handler.sending.answer import NOTHING, Answer, Awaited
from oncewire.handler.sending.transmit import Transmission
from oncewire.handler.spool_reading import TooLong
from oncewire.message.instant import SECOND
from oncewire.store.records import StoredParcel
from oncewire.transport.contract import Allowance, AttemptOutcome, Delivery, OutcomeKind, Reply
from oncewire.wire.codec import named_in
from oncewire.wire.parcel import Received

if TYPE_CHECKING:
    from oncewire.handler.runtime.commit_loop import CommitLoop

# Connections: requests that wait for the application's response or, at a hub, for what the next hop
# says (SYNC-11).
#
# They end with the process, and the peer sees that they break. What they wait for is stored, or
# can be asked for again.


@dataclass(eq=False, slots=True)
class Connection:
    """One of them, and what has come back for it so far."""

    awaited: Awaited
    wake: Callable[[], None]
    said: list[Relay] = field(default_factory=list)


class Connections:
    """All that wait now, by the request's sender and MessageId; copies wait together."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], list[Connection]] = {}

    @property
    def requests(self) -> Collection[tuple[str, str]]:
        """What they wait for; a view that stays true."""
        return self._open.keys()

    def open(self, awaited: Awaited, wake: Callable[[], None]) -> Connection:
        """One more waits; `wake` is called when something is there for it."""
        connection = Connection(awaited, wake)
        self._open.setdefault((awaited.sender, awaited.message_id), []).append(connection)
        return connection

    def close(self, connection: Connection) -> bool:
        """Stop waiting on a connection; False: it waited no more."""
        key = (connection.awaited.sender, connection.awaited.message_id)
        waiting = self._open.get(key, [])
        if connection not in waiting:
            return False
        waiting.remove(connection)
        if not waiting:
            del self._open[key]
        return True

    def give(self, relay: Relay) -> bool:
        """Hand over what came back; False: no connection waits for it any more."""
        for connection in self._open.get((relay.sender, relay.message_id), ()):
            connection.said.append(relay)
        return self.wake(relay.sender, relay.message_id)

    def wake(self, sender: str, message_id: str) -> bool:
        """Something is there for a request; False: no connection waits for it any more."""
        waiting = list(self._open.get((sender, message_id), ()))
        for connection in waiting:
            connection.wake()
        return bool(waiting)

    def wake_all(self) -> None:
        """Time is up for everybody."""
        for waiting in self._open.values():
            for connection in waiting:
                connection.wake()


async def _woken(event: asyncio.Event, awaited: Awaited) -> None:
    """Until it is woken, or time is up."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(awaited.patience / SECOND):
            await event.wait()


# Relaying: a hub's waiting connections in the event loop.


UNDER_WAY_MAX = 256
"""Exchanges with a next hop at once that a connection waits for."""

Carry = Callable[[str, str, StoredParcel, float], Awaitable[AttemptOutcome]]


class Relaying:
    """Keeps the connections of requests open until their next hop has spoken."""

    def __init__(
        self,
        loop: CommitLoop,
        carry: Carry,
        perform: Callable[[Action], None],
        spawn: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        self._loop, self._carry, self._perform, self._spawn = loop, carry, perform, spawn
        self._connections = Connections()
        self._under_way = asyncio.Semaphore(UNDER_WAY_MAX)
        loop.engine.context.state.relaying = self._connections.requests

    async def receive(
        self, verb: Callable[[], Answer], *, names: Sequence[str] = (), aside: bool = False
    ) -> Answer:
        """Take an arrival in, and wait for its next hop if its answer says so. `names`: MessageIds
        that it seems to name. `aside`: after all others that have arrived."""
        opened: list[tuple[Connection, asyncio.Event]] = []

        def take() -> Answer:
            answer = verb()
            if answer.relayed is not None:
                # Within the turn: what is sent on leaves after it, so no reply is missed.
                spoken = asyncio.Event()
                opened.append((self._connections.open(answer.relayed, spoken.set), spoken))
            return answer

        try:
            answer = await self._loop.do("receive", take, names=names, aside=aside)
            for connection, spoken in opened:
                answer = await self._wait(connection, spoken)
            return answer
        finally:
            for connection, _ in opened:
                self._connections.close(connection)

    async def _wait(self, connection: Connection, spoken: asyncio.Event) -> Answer:
        awaited = connection.awaited
        await _woken(spoken, awaited)
        engine = self._loop.engine
        return await self._loop.do("relay", lambda: engine.relay(awaited, connection.said))

    def post_on(self, post: PostOn) -> None:
        """Carry a message to the next hop, and take in what comes back."""
        for name in post.parcel.spooled:
            # Nothing here keeps its bytes, so its files stay until it has left.
            self._loop.engine.context.store.spool.use(name)
        self._spawn(self._exchange(post))

    async def _exchange(self, post: PostOn) -> None:
        try:
            async with self._under_way:
                outcome = await self._carry(
                    post.transport, post.address, post.parcel, post.timeout / SECOND
                )
        finally:
            for name in post.parcel.spooled:
                self._loop.engine.context.store.spool.let_go(name)
        ended = Transmission(
            post.message_id,
            0,
            sent=outcome.kind is OutcomeKind.SENT,
            certain=outcome.kind is OutcomeKind.REFUSED,
            reason=outcome.reason,
            retry_after=outcome.retry_after,
            address=post.address,
        )
        engine = self._loop.engine
        reply = await hear(engine.context, outcome)
        await self._try("onward over", lambda: engine.onward_over(post, ended, reply))

    def give(self, relay: Relay) -> None:
        """Let what came back leave where it is waited for, or else on its own."""
        post = relay.instead
        if not self._connections.give(relay):
            if post is not None:
                self._perform(post)
        elif isinstance(post, Post):
            ended = Transmission(post.message_id, post.attempt, sent=True)
            engine = self._loop.engine
            self._spawn(self._try("outcome", lambda: engine.transmission_over(ended)))

    def wake_all(self) -> None:
        """The handler stops: connections that wait are told what is known."""
        self._connections.wake_all()

    async def _try(self, step: str, verb: Callable[[], None]) -> None:
        """What is not stored now its sender brings up again; the connections wait no longer."""
        try:
            await self._loop.do(step, verb)
        except OncewireError:
            self._connections.wake_all()


logger = logging.getLogger("oncewire.handler")

RETRY_AFTER = 30
"""Seconds a sender is asked to wait while the store cannot take anything."""


Trouble = Callable[[StoreProblem], Awaitable[None]]
"""Tells the operator what the store cannot do."""


class Door:
    """Takes what arrives, and keeps connections open for the responses to their requests."""

    def __init__(self, loop: CommitLoop, relaying: Relaying, trouble: Trouble) -> None:
        self._loop = loop
        self._trouble = trouble
        self._relaying = relaying
        self._engine = loop.engine
        self._kill = loop.engine.context.kill
        # Those that wait for the response to their request.
        self._replying = Connections()
        loop.engine.context.state.replying = self._replying.requests
        self._stopping = False

    def stop(self) -> None:
        """No connection waits any longer."""
        self._stopping = True
        self._replying.wake_all()

    def reply_is_there(self, sender: str, message_id: str) -> bool:
        """Wake the connections that wait for it; False: none does any more."""
        return self._replying.wake(sender, message_id)

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
        if self._engine.context.drains:
            # A balancer takes it to another handler, or its sender comes again.
            return Reply(503, retry_after=1)
        try:
            inbound = await take_in(self._engine.context, delivery, self._expects)
        except TooLarge as problem:
            return Reply(413, "text/plain", body=str(problem).encode(), refused=True)
        except TooLong:
            return Reply(503, retry_after=RETRY_AFTER, refused=True)
        except StoreProblem as problem:
            return await self._come_back(problem)
        kept, opened, woken = False, list[Connection](), asyncio.Event()

        def wait(awaited: Awaited) -> None:
            opened.append(self._replying.open(awaited, woken.set))

        try:
            answer, known = await self._receive(inbound, source, delivery.allowance, wait)
            kept = not answer.refused
            for connection in opened:
                answer = await self._reply_in_time(connection, woken, delivery.gone)
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
            for connection in opened:
                self._replying.close(connection)
            # From here on its row names the file, or no row ever will.
            spool = self._engine.context.store.spool
            for name in inbound.stored.spooled:
                (spool.let_go if kept else spool.give_back)(name)

    async def _come_back(self, problem: StoreProblem) -> Reply:
        """The store cannot: a sender is sent away for a while, and the operator is told why."""
        await self._trouble(problem)
        return Reply(503, retry_after=RETRY_AFTER)

    async def _expects(self, header: Received) -> Expected:
        return await self._loop.do("look", lambda: self._engine.expects(header))

    async def _receive(
        self,
        inbound: Inbound,
        source: Source,
        allowance: Allowance,
        wait: Callable[[Awaited], None],
    ) -> tuple[Answer, bool]:
        """What goes back, and whether a partner is there; `wait` is called for what it awaits."""
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
                    # Within the turn: what no connection waits for is not given to the application.
                    wait(taken.awaited)
                return taken
            finally:
                # It is over: what it cost counts against whatever comes next.
                with contextlib.suppress(TransportProblem):
                    allowance.spend(thread_time() - began)

        aside = allowance.is_strangers
        # The beginning of a large one is not looked at a second time.
        named = not aside and not inbound.stored.spooled
        names = named_in(inbound.parcel.body) if named else ()
        return await self._relaying.receive(receive, names=names, aside=aside), known

    async def _reply_in_time(
        self, connection: Connection, woken: asyncio.Event, gone: asyncio.Future[None] | None
    ) -> Answer:
        """Wait until the application answered a request, or time is up, or it was closed. `gone`:
        the peer has hung up."""
        awaited = connection.awaited
        # A reply of the very turn that looks is not missed: it is registered already.
        answer = await self._loop.do("look", lambda: self._engine.reply_to(awaited))
        if answer is None and not self._stopping:
            if gone is not None:
                gone.add_done_callback(lambda _: woken.set())
            await _woken(woken, awaited)
            answer = await self._loop.do("look", lambda: self._engine.reply_to(awaited))
        if answer is None and gone is not None and gone.done():
            self._replying.close(connection)
            await self._loop.do("overdue", lambda: self._engine.left_alone(awaited))
            return NOTHING
        if answer is None:
            answer = await self._loop.do("overdue", lambda: self._engine.overdue(awaited))
        return answer

    def _reply(self, answer: Answer, *, known: bool) -> Reply:
        refused = answer.refused
        if answer.parcel is None:
            return Reply(
                answer.status, retry_after=answer.retry_after, known=known, refused=refused
            )
        parcel = whole_parcel(self._engine.context, answer.parcel)
        return Reply(
            answer.status,
            parcel.content_type,
            parcel.headers,
            parcel.body,
            known=known,
            refused=refused,
        )
