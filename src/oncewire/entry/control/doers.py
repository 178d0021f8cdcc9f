"""Doers: the two that do what a verb says in this process, a handler that runs and an engine at
rest, which stores what it is given and leaves sending to the next handler.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from dataclasses import replace
from inspect import BoundArguments
from typing import Any, NoReturn, Protocol, TypeVar

from oncewire.entry.control.arguments import checked
from oncewire.entry.control.verb import Method, Need, Verb
from oncewire.entry.control.verbs import Status, Verbs
from oncewire.errors import HandlerFailed, NotAllowed
from oncewire.handler.delivering.application import GivenMessage
from oncewire.handler.engine import Engine
from oncewire.handler.handler import LEASE, Handler
from oncewire.handler.sending.handing_in import submitted
from oncewire.handler.sending.submit import Accepted, Submission
from oncewire.handler.upkeep.operate import find_outgoing
from oncewire.journal.outcome import Outcome, outcome_in
from oncewire.message.instant import Duration
from oncewire.store.contract import Store

R = TypeVar("R")
T = TypeVar("T")

PROBE = 4.0
"""Seconds within which a handler that lives takes a turn."""


class Reloads(Protocol):
    """What reads the files of a party anew."""

    async def reload(self) -> int:
        """See `Verbs`."""


def read_status(store: Store, *, pid: int = 0, url: str = "", passing: bool = False) -> Status:
    """The status of a store's party; a pid says that its handler runs there."""
    with store.reader() as reader:
        counts, incidents = reader.counts(), len(reader.incidents())
    return Status(store.node(), pid > 0, pid, url, counts, incidents, passing)


class Running(Verbs):
    """A handler of this process."""

    def __init__(
        self, handler: Handler, *, passing: bool = False, reloading: Reloads | None = None
    ) -> None:
        self.here, self.handler = self, handler
        self.passing, self._reloading = passing, reloading
        self.url = ""

    async def perform(self, method: Method[..., R], given: BoundArguments) -> R:
        """Do it here."""
        if isinstance(method, Verb):
            body: Callable[..., Coroutine[Any, Any, R]] = method.body
            return await body(self, **checked(method, given).arguments)
        return await method.body(self, *given.args, **given.kwargs)

    @property
    def lease(self) -> Duration:
        """See `Here`."""
        return self.handler.lease

    async def submit(self, submission: Submission) -> Accepted:
        """See `Here`."""
        return await self.handler.send(submission)

    async def operate(self, decide: Callable[[Engine], T], step: str = "operate") -> T:
        """See `Here`."""
        return await self.handler.operate(decide, step)

    async def taken(
        self, take: Callable[[Engine, int], list[GivenMessage]], limit: int
    ) -> list[GivenMessage]:
        """See `Here`."""
        return await self.handler.taken(take, limit)

    async def outcome(self, message_id: str, timeout: float) -> Outcome | None:
        """See `Here`."""
        state = await self.handler.wait(message_id, timeout)
        return None if state is None else outcome_in(state)

    async def condition(self) -> Status:
        """See `Here`; one that takes no turns is not called running."""
        store = self.handler.engine.node.store
        try:
            lag = await self.handler.supervisor.probe(PROBE)
        except (TimeoutError, HandlerFailed) as problem:
            why = str(problem) or f"it has taken no turn for {PROBE:.0f} seconds"
            return Status(store.node(), False, os.getpid(), self.url, stuck=why)
        found = read_status(store, pid=os.getpid(), url=self.url, passing=self.passing)
        return replace(found, lag_ms=round(lag * 1000), transfers=self.handler.transfers())

    async def read_anew(self) -> int:
        """See `Here`."""
        return 0 if self._reloading is None else await self._reloading.reload()


class AtRest(Verbs):
    """The party's store without a handler: everything but sending and receiving."""

    def __init__(self, engine: Engine, lease: Duration = LEASE) -> None:
        self.here = self
        self.engine, self.lease = engine, lease

    async def perform(self, method: Method[..., R], given: BoundArguments) -> R:
        """Do it here, unless it needs a handler."""
        if isinstance(method, Verb):
            given = checked(method, given)
            if method.needs is Need.HANDLER:
                _need_handler(method.name)
        return await method.body(self, *given.args, **given.kwargs)

    @property
    def handler(self) -> Handler:
        """See `Here`."""
        _need_handler("this")

    async def submit(self, submission: Submission) -> Accepted:
        """See `Here`."""

        async def store(given: Submission) -> Accepted:
            return await self.operate(lambda engine: engine.submit(given))

        return await submitted(self.engine.node, submission, store)

    async def operate(self, decide: Callable[[Engine], T], step: str = "") -> T:  # noqa: ARG002
        """See `Here`; what would leave now is found again when a handler starts."""
        result = decide(self.engine)
        self.engine.commit()
        return result

    async def taken(
        self, take: Callable[[Engine, int], list[GivenMessage]], limit: int
    ) -> list[GivenMessage]:
        """See `Here`."""
        return await self.operate(lambda engine: take(engine, limit))

    async def outcome(self, message_id: str, timeout: float) -> Outcome | None:  # noqa: ARG002
        """See `Here`: without a handler nothing happens, so only what is final is known."""
        with self.engine.node.store.transition() as tx:
            return outcome_in(find_outgoing(tx, message_id).outgoing.state)

    async def condition(self) -> Status:
        """See `Here`."""
        return read_status(self.engine.node.store)

    async def read_anew(self) -> int:
        """See `Here`; whoever opens the party next reads them anyway."""
        return len(self.engine.node.agreements)

    async def close(self) -> None:
        """Let another process have the store."""
        self.engine.node.store.close()


def _need_handler(verb: str) -> NoReturn:
    raise NotAllowed(
        f"{verb} needs a handler that runs, and none does", remedy="start `oncewire serve`"
    )
