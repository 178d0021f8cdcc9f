"""Relaying: a hub's waiting connections in the event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence

from oncewire.errors import OncewireError
from oncewire.handler.actions import Action, Post, PostOn, Relay
from oncewire.handler.answering.answer import Answer
from oncewire.handler.arriving.heard import hear
from oncewire.handler.loop.connections import Connection, Connections
from oncewire.handler.loop.shell import Shell
from oncewire.handler.sending.transmit import Transmission
from oncewire.message.instant import SECOND
from oncewire.store.records import StoredParcel
from oncewire.transport.contract import AttemptOutcome, OutcomeKind

UNDER_WAY_MAX = 256
"""Exchanges with a next hop at once that a connection waits for."""

Carry = Callable[[str, str, StoredParcel, float], Awaitable[AttemptOutcome]]


class Relaying:
    """Keeps the connections of requests open until their next hop has spoken."""

    def __init__(
        self,
        shell: Shell,
        carry: Carry,
        perform: Callable[[Action], None],
        spawn: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        self._shell, self._carry, self._perform, self._spawn = shell, carry, perform, spawn
        self._connections = Connections()
        self._under_way = asyncio.Semaphore(UNDER_WAY_MAX)
        shell.engine.node.relaying = self._connections.requests

    async def receive(
        self, verb: Callable[[], Answer], *, names: Sequence[str] = (), aside: bool = False
    ) -> Answer:
        """Take an arrival in, and wait for its next hop if its answer says so. `names`: MessageIds
        that it seems to name. `aside`: after all others that have arrived."""
        spoken = asyncio.Event()
        opened: list[Connection] = []

        def take() -> Answer:
            answer = verb()
            if answer.relayed is not None:
                # Within the turn: what is sent on leaves after it, so no reply is missed.
                opened.append(self._connections.open(answer.relayed, spoken.set))
            return answer

        try:
            answer = await self._shell.do("receive", take, names=names, aside=aside)
            for connection in opened:
                answer = await self._wait(connection, spoken)
            return answer
        finally:
            for connection in opened:
                self._connections.close(connection)

    async def _wait(self, connection: Connection, spoken: asyncio.Event) -> Answer:
        awaited = connection.awaited
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(spoken.wait(), awaited.patience / SECOND)
        engine = self._shell.engine
        return await self._shell.do("relay", lambda: engine.relay(awaited, connection.said))

    def post_on(self, post: PostOn) -> None:
        """Carry a message to the next hop, and take in what comes back."""
        for name in post.parcel.spooled:
            # Nothing here keeps its bytes, so its files stay until it has left.
            self._shell.engine.node.store.spool.use(name)
        self._spawn(self._exchange(post))

    async def _exchange(self, post: PostOn) -> None:
        try:
            async with self._under_way:
                outcome = await self._carry(
                    post.transport, post.address, post.parcel, post.timeout / SECOND
                )
        finally:
            for name in post.parcel.spooled:
                self._shell.engine.node.store.spool.let_go(name)
        ended = Transmission(
            post.message_id,
            0,
            sent=outcome.kind is OutcomeKind.SENT,
            certain=outcome.kind is OutcomeKind.REFUSED,
            reason=outcome.reason,
            retry_after=outcome.retry_after,
            address=post.address,
        )
        engine = self._shell.engine
        reply = await hear(engine.node, outcome)
        await self._try("onward over", lambda: engine.onward_over(post, ended, reply))

    def give(self, relay: Relay) -> None:
        """Let what came back leave where it is waited for, or else on its own."""
        post = relay.instead
        if not self._connections.give(relay):
            if post is not None:
                self._perform(post)
        elif isinstance(post, Post):
            ended = Transmission(post.message_id, post.attempt, sent=True)
            engine = self._shell.engine
            self._spawn(self._try("outcome", lambda: engine.transmission_over(ended)))

    def wake_all(self) -> None:
        """The handler stops: whoever waits is told what is known."""
        self._connections.wake_all()

    async def _try(self, step: str, verb: Callable[[], None]) -> None:
        """What is not stored now its sender brings up again; the connections wait no longer."""
        try:
            await self._shell.do(step, verb)
        except OncewireError:
            self._connections.wake_all()
