"""Verbs: what people and programs may ask of a party, whoever does it for them.

Three answer to the same verbs: a handler that runs in this process (`Running`), the one that
runs in another (`control_client.Remote`), and an engine at rest (`AtRest`), which stores what
it is given and leaves sending to the next handler.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from oncewire.entry.delivery.received_message import ReceivedMessage
from oncewire.errors import HandlerFailed, NotAllowed
from oncewire.handler.actions import Notice
from oncewire.handler.engine import Engine
from oncewire.handler.handler import LEASE, Handler
from oncewire.handler.sending.submit import Accepted, Submission
from oncewire.handler.upkeep.operate import find_outgoing
from oncewire.message.instant import Duration
from oncewire.protocol.states import FINAL_OUTGOING, OutgoingState
from oncewire.store.contract import Store

T = TypeVar("T")

PROBE = 4.0
"""Seconds within which a handler that lives takes a turn."""


@dataclass(frozen=True, slots=True)
class Status:
    """How a party is doing."""

    party: str
    # Whether a handler runs; without one nothing is sent or received.
    running: bool
    pid: int
    url: str = ""
    # Messages in each state: out.delivered, in.confirmed, ...
    counts: dict[str, int] = field(default_factory=dict)
    incidents: int = 0
    # It runs only until the command that started it is done.
    passing: bool = False
    # The longest that anything waited for its turn within the last minute, in milliseconds.
    lag_ms: int = 0
    # Why it is not called running although its process is there.
    stuck: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "party": self.party,
            "running": self.running,
            "pid": self.pid,
            "url": self.url,
            "counts": dict(self.counts),
            "incidents": self.incidents,
            "passing": self.passing,
            "lag_ms": self.lag_ms,
            "stuck": self.stuck,
        }


class Verbs(Protocol):
    """Each returns when what it says is durable, or raises why it is not so."""

    async def send(self, submission: Submission) -> Accepted:
        """Take a document: from now on it is sent, or somebody is told."""

    async def wait(self, message_id: str, timeout: float) -> OutgoingState | None:
        """The outcome of a message, or None when it has none within so many seconds."""

    async def take(self, limit: int) -> list[ReceivedMessage]:
        """Hand messages to the caller, who confirms each before its lease ends."""

    async def confirm(self, sender: str, message_id: str) -> bool:
        """The caller has the message; False when that was known already."""

    async def notices(self, limit: int) -> list[Notice]:
        """Failures that nobody was told of yet; each comes again until it is confirmed."""

    async def confirm_notice(self, notice_id: str) -> bool:
        """The caller knows of the failure; False when it is not owed any more."""

    async def resume(self, *, message_id: str | None = None, channel: str | None = None) -> None:
        """The trouble of a message or a channel is over: go on."""

    async def pause(self, channel: str, reason: str) -> None:
        """Stop sending on a channel until it is resumed."""

    async def abandon(self, message_id: str) -> None:
        """Give a message up."""

    async def resend(self, message_id: str) -> None:
        """Send the same bytes under the same MessageId again, which cannot duplicate."""

    async def restart(self, channel: str) -> None:
        """Begin the numbering of a channel anew, where that confuses nobody."""

    async def hold(self, message_id: str, held: bool) -> None:
        """Keep a message beyond its time, or (False) no longer."""

    async def accept_clock(self) -> None:
        """The machine's clock was set and is right: go on by it."""

    async def reload(self) -> int:
        """Read agreements, certificates and keys anew; returns how many agreements there are."""

    async def status(self) -> Status:
        """How the party is doing."""


class Reloads(Protocol):
    """What reads the files of a party anew."""

    async def reload(self) -> int:
        """See `Verbs`."""


def read_status(store: Store, *, pid: int = 0, url: str = "", passing: bool = False) -> Status:
    """The status of a store's party; a pid says that its handler runs there."""
    with store.reader() as reader:
        counts, incidents = reader.counts(), len(reader.incidents())
    return Status(store.node(), pid > 0, pid, url, counts, incidents, passing)


class Running:
    """A handler of this process."""

    def __init__(
        self, handler: Handler, *, passing: bool = False, reloading: Reloads | None = None
    ) -> None:
        self.handler, self.passing, self._reloading = handler, passing, reloading
        self.url = ""

    async def send(self, submission: Submission) -> Accepted:
        """See `Verbs`."""
        return await self.handler.send(submission)

    async def wait(self, message_id: str, timeout: float) -> OutgoingState | None:
        """See `Verbs`."""
        return await self.handler.wait(message_id, timeout)

    async def take(self, limit: int) -> list[ReceivedMessage]:
        """See `Verbs`."""
        return [ReceivedMessage.of(given) for given in await self.handler.take(limit)]

    async def confirm(self, sender: str, message_id: str) -> bool:
        """See `Verbs`."""
        return await self.handler.confirm(sender, message_id)

    async def notices(self, limit: int) -> list[Notice]:
        """See `Verbs`."""
        return await self.handler.notices(limit)

    async def confirm_notice(self, notice_id: str) -> bool:
        """See `Verbs`."""
        return await self.handler.confirm_notice(notice_id)

    async def resume(self, *, message_id: str | None = None, channel: str | None = None) -> None:
        """See `Verbs`."""
        await self.handler.resume(message_id=message_id, channel=channel)

    async def pause(self, channel: str, reason: str) -> None:
        """See `Verbs`."""
        await self.handler.pause(channel, reason)

    async def abandon(self, message_id: str) -> None:
        """See `Verbs`."""
        await self.handler.abandon(message_id)

    async def resend(self, message_id: str) -> None:
        """See `Verbs`."""
        await self.handler.resume(message_id=message_id)

    async def restart(self, channel: str) -> None:
        """See `Verbs`."""
        await self.handler.restart(channel)

    async def hold(self, message_id: str, held: bool) -> None:
        """See `Verbs`."""
        await self.handler.operate(lambda engine: engine.hold(message_id, held=held))

    async def accept_clock(self) -> None:
        """See `Verbs`."""
        await self.handler.operate(Engine.accept_clock)

    async def status(self) -> Status:
        """See `Verbs`."""
        store = self.handler.engine.node.store
        try:
            lag = await self.handler.supervisor.probe(PROBE)
        except (TimeoutError, HandlerFailed) as problem:
            why = str(problem) or f"it has taken no turn for {PROBE:.0f} seconds"
            return Status(store.node(), False, os.getpid(), self.url, stuck=why)
        found = read_status(store, pid=os.getpid(), url=self.url, passing=self.passing)
        return replace(found, lag_ms=round(lag * 1000))

    async def reload(self) -> int:
        """See `Verbs`."""
        return 0 if self._reloading is None else await self._reloading.reload()


class AtRest:
    """The party's store without a handler: everything but sending and receiving."""

    def __init__(self, engine: Engine, lease: Duration = LEASE) -> None:
        self.engine, self.lease = engine, lease

    def _do(self, verb: Callable[[], T]) -> T:
        result = verb()
        # What would leave now is found again from the stored state when a handler starts.
        self.engine.commit()
        return result

    async def send(self, submission: Submission) -> Accepted:
        """See `Verbs`; the message is sent once a handler runs."""
        return self._do(lambda: self.engine.submit(submission))

    async def wait(self, message_id: str, timeout: float) -> OutgoingState | None:  # noqa: ARG002
        """See `Verbs`: without a handler nothing happens, so only what is final is known."""
        with self.engine.node.store.transition() as tx:
            state = find_outgoing(tx, message_id).outgoing.state
        return state if state in FINAL_OUTGOING else None

    async def take(self, limit: int) -> list[ReceivedMessage]:
        """See `Verbs`."""
        taken = self._do(lambda: self.engine.hand_over(limit, self.lease))
        return [ReceivedMessage.of(given) for given in taken]

    async def confirm(self, sender: str, message_id: str) -> bool:
        """See `Verbs`."""
        return self._do(lambda: self.engine.confirm(sender, message_id))

    async def notices(self, limit: int) -> list[Notice]:
        """See `Verbs`."""
        return self._do(lambda: self.engine.notices(limit))

    async def confirm_notice(self, notice_id: str) -> bool:
        """See `Verbs`."""
        return self._do(lambda: self.engine.confirm_notice(notice_id))

    async def resume(self, *, message_id: str | None = None, channel: str | None = None) -> None:
        """See `Verbs`."""
        self._do(lambda: self.engine.resume(message_id=message_id, channel=channel))

    async def pause(self, channel: str, reason: str) -> None:
        """See `Verbs`."""
        self._do(lambda: self.engine.pause(channel, reason))

    async def abandon(self, message_id: str) -> None:
        """See `Verbs`."""
        self._do(lambda: self.engine.abandon(message_id))

    async def resend(self, message_id: str) -> None:
        """See `Verbs`; it leaves once a handler runs."""
        self._do(lambda: self.engine.resume(message_id=message_id))

    async def restart(self, channel: str) -> None:
        """See `Verbs`."""
        self._do(lambda: self.engine.restart(channel))

    async def hold(self, message_id: str, held: bool) -> None:
        """See `Verbs`; without a handler nothing is removed anyway."""
        self._do(lambda: self.engine.hold(message_id, held=held))

    async def accept_clock(self) -> None:
        """See `Verbs`."""
        self._do(self.engine.accept_clock)

    async def status(self) -> Status:
        """See `Verbs`."""
        return read_status(self.engine.node.store)

    async def reload(self) -> int:
        """See `Verbs`; whoever opens the party next reads them anyway."""
        return len(self.engine.node.agreements)

    async def close(self) -> None:
        """Let another process have the store."""
        self.engine.node.store.close()


def need_channel_or_message(message_id: str | None, channel: str | None) -> None:
    """A resumption names one of them, not both and not neither."""
    if (message_id is None) == (channel is None):
        raise NotAllowed("it is not said what to resume", remedy="name one message or one channel")
