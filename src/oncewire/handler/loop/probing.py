"""Probing: transports that messages have left are tried again, with nothing on board."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from oncewire.errors import OncewireError
from oncewire.handler.loop.shell import Shell
from oncewire.handler.sending.ways import LeftWay, left_ways, take_again, take_up
from oncewire.message.instant import SECOND, Duration
from oncewire.transport.contract import OutcomeKind, Transport

logger = logging.getLogger("oncewire.handler")

PROBE_EVERY: Duration = 30 * SECOND
_TIMEOUT = 20.0


class Probing:
    """Probes what was left until it works again."""

    def __init__(self, shell: Shell, transports: Mapping[str, Transport], every: Duration) -> None:
        self._shell, self._transports, self._every = shell, transports, every

    async def run(self) -> None:
        """For as long as the handler lives."""
        node = self._shell.engine.node
        await self._shell.do("look", lambda: take_up(node))
        while True:
            await asyncio.sleep(self._every / SECOND)
            if node.left:
                ways = await self._shell.do("look", lambda: left_ways(node))
                await asyncio.gather(*map(self._probe, ways))

    async def _probe(self, way: LeftWay) -> None:
        transport = self._transports.get(way.transport)
        if transport is None:
            return
        try:
            outcome = await transport.probe(way.address, timeout=_TIMEOUT)
        except Exception:
            # Of this probe alone: the next one may find another answer.
            logger.exception("a probe failed", extra={"transport": way.transport})
            return
        if outcome.kind is not OutcomeKind.SENT:
            return
        logger.info("a transport works again", extra={"peer": way.peer, "transport": way.transport})
        node = self._shell.engine.node
        try:
            await self._shell.do("probe", lambda: take_again(node, way))
        except OncewireError as problem:
            # The incident stays open; the next probe brings it up again.
            logger.warning("a step was not stored", extra={"problem": str(problem)})
            node.left.add((way.peer, way.transport))
