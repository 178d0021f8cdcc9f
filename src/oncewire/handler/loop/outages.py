"""Outages: what a handler cannot do for a while, told once, and that it is over.

A store that cannot be written fails for every arrival. Each of them says so would fill the log;
none of them would leave nobody the wiser. And an incident that stays open when its cause has ended
is one that operators learn to pass over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import Any

from oncewire.errors import OncewireError
from oncewire.handler.engine import Engine
from oncewire.store.spool_contract import Spool

logger = logging.getLogger("oncewire.handler")

AGAIN = 60.0
"""Seconds until the same trouble is told again, with how often it came meanwhile."""

KINDS_MAX = 64

QUIET = 60.0
"""Seconds without trouble of the store after which it is tried: twice what senders are asked to
wait, so that those who were sent away have come back."""

LOOK_EVERY = 5.0
"""Seconds between two looks whether it is over."""

ROOM = 16
"""Megabytes that the disk must take before it is called free again. That a small row can be kept,
such as that of an incident, proves nothing of a body."""

Operate = Callable[[Callable[[Engine], object]], Awaitable[Any]]
"""Has an engine do something; see `Handler.operate`."""


class Outages:
    """Tells of each kind of trouble at once, and of its repeats in one line a minute."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._told: dict[str, tuple[float, int]] = {}

    def say(self, problem: OncewireError) -> None:
        """Log it, unless it was just logged."""
        # One for each kind: a text may name another message each time.
        kind, now = type(problem).__name__, self._now()
        at, repeats = self._told.get(kind, (-AGAIN, 0))
        if now - at < AGAIN:
            self._told[kind] = at, repeats + 1
            return
        if len(self._told) >= KINDS_MAX:
            self._told.clear()
        self._told[kind] = now, 0
        logger.error(
            "senders are sent away: the store cannot take or give what they need",
            extra={"problem": str(problem), "repeats": repeats},
        )


class Outage:
    """The incident of a trouble that ends by itself: closed when the trouble has not come for a
    while and `works` raises nothing."""

    def __init__(
        self,
        operate: Operate,
        channel: str,
        quiet: float,
        works: Callable[[], None] = lambda: None,
    ) -> None:
        self._operate, self._channel, self._quiet, self._works = operate, channel, quiet, works
        self._came = monotonic()
        self._open = False

    def came(self) -> None:
        """The trouble is there, and so will be its incident."""
        self._came, self._open = monotonic(), True

    async def run(self) -> None:
        """For as long as the handler lives; what an earlier run left open is its business too."""
        try:
            self._open = await self._operate(lambda engine: engine.is_called(self._channel))
        except OncewireError:
            self._open = True
        while True:
            await asyncio.sleep(min(LOOK_EVERY, self._quiet))
            came = self._came
            if not self._open or monotonic() - came < self._quiet:
                continue
            try:
                await asyncio.to_thread(self._works)
                if came == self._came:
                    await self._operate(partial(Engine.resume, channel=self._channel))
                    self._open = came != self._came
            except OncewireError as problem:
                logger.debug("it is not over", extra={"problem": str(problem)})


def try_spool(spool: Spool) -> None:
    """Write a large file and take it back; raises StoreFull or StoreGone."""
    name, _ = spool.put(bytes(1024 * 1024) for _ in range(ROOM))
    spool.give_back(name)
