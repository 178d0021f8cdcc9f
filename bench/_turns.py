"""A party of a benchmark that tells where its turns on PostgreSQL spend their time.

    python -m bench._turns FOLDER

It is `oncewire.lab.bench.side`, with a clock around the lock, what is done under it and the commit.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from oncewire.lab.bench import side
from oncewire.store.postgresql.session import PostgresSession

TOLD = ("turns", "waited", "held", "held_processor", "committed", "loop")
"""Turns that had the lock, and seconds: until it was there, with it, the processor's of those, and
of them those of the commit; and of the event loop's thread, all that it worked."""


class TimedSession(PostgresSession):
    """Adds up the seconds of all turns of the process."""

    totals = dict.fromkeys(TOLD, 0.0)
    _began = (0.0, 0.0)

    def _lock_turn(self, statement: str) -> Any:
        began = time.perf_counter()
        found = super()._lock_turn(statement)
        self._began = time.perf_counter(), time.thread_time()
        self.totals["waited"] += self._began[0] - began
        return found

    def _ended(self) -> None:
        self.totals["turns"] += 1
        self.totals["held"] += time.perf_counter() - self._began[0]
        self.totals["held_processor"] += time.thread_time() - self._began[1]

    def let_go(self) -> None:
        held = self._in_turn
        super().let_go()
        if held:
            self._ended()

    def commit(self) -> None:
        began = time.perf_counter()
        super().commit()
        self.totals["committed"] += time.perf_counter() - began
        self._ended()


class TimedSide(side.Side):
    """Tells them with what else it has spent."""

    async def _spent(self, task: side.Task) -> side.Task:
        now = {"loop": time.thread_time()}
        return await super()._spent(task) | TimedSession.totals | now


def main() -> None:
    """The entry point of the process."""
    from oncewire.store.postgresql import store

    store.PostgresSession = TimedSession  # type: ignore[misc]
    side.Side = TimedSide  # type: ignore[misc]
    side.main(sys.argv[1:])


if __name__ == "__main__":
    main()
