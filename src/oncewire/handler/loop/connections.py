"""Connections: requests that wait at a hub for what the next hop says (SYNC-11).

They live as long as the process: when it dies they break, and whoever waits on the other end
knows it. What they wait for is stored, or can be asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from oncewire.handler.actions import Relay
from oncewire.handler.answering.answer import Awaited


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
        """It waits no more; False: it did not wait any more."""
        key = (connection.awaited.sender, connection.awaited.message_id)
        waiting = self._open.get(key, [])
        if connection not in waiting:
            return False
        waiting.remove(connection)
        if not waiting:
            del self._open[key]
        return True

    def give(self, relay: Relay) -> bool:
        """Hand over what came back; False: nobody waits for it any more."""
        waiting = self._open.get((relay.sender, relay.message_id), ())
        for connection in waiting:
            connection.said.append(relay)
            connection.wake()
        return bool(waiting)

    def wake_all(self) -> None:
        """Time is up for everybody."""
        for waiting in self._open.values():
            for connection in waiting:
                connection.wake()
