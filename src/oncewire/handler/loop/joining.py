"""Joining: documents whose parts are all stored are put together, while everything else goes on.

One at a time: what takes long is the disk, and two documents at once take longer than one after the
other.
"""

from __future__ import annotations

import asyncio
import logging

from oncewire.errors import EbxmlError, OncewireError, StoreProblem
from oncewire.handler.actions import Join
from oncewire.handler.documents.joining import made_files, put_together
from oncewire.handler.engine import Engine
from oncewire.handler.loop.shell import Shell

logger = logging.getLogger("oncewire.handler")


def join_at_once(engine: Engine, wanted: Join) -> None:
    """Put a document together where nobody else has to wait for that."""
    plan = engine.join_plan(wanted)
    if plan is None:
        return
    try:
        joined = put_together(engine.node.store.spool, plan.contents, plan.limits)
    except EbxmlError as error:
        engine.not_joined(wanted, error)
        return
    except StoreProblem as problem:
        engine.trouble(problem, wanted.split_id)
        return
    engine.joined(plan, joined, made_files(joined, plan.contents))


class Joining:
    """The same beside a running handler, in a thread."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._turn = asyncio.Lock()
        # Those that wait for their turn, or have it.
        self._wanted: set[Join] = set()

    async def join(self, wanted: Join) -> None:
        """Put one document together; what cannot be done now is done after the next start."""
        if wanted in self._wanted:
            return
        self._wanted.add(wanted)
        try:
            async with self._turn:
                await self._join(wanted)
        finally:
            self._wanted.discard(wanted)

    async def _join(self, wanted: Join) -> None:
        engine, shell = self._shell.engine, self._shell
        node = engine.node
        try:
            plan = await shell.do("join", lambda: engine.join_plan(wanted))
            if plan is None:
                return
            node.kill.reach("join before work")
            joined = await asyncio.to_thread(
                put_together, node.store.spool, plan.contents, plan.limits
            )
            made = made_files(joined, plan.contents)
            node.kill.reach("join after work")
            await shell.do("join", lambda: engine.joined(plan, joined, made))
        except EbxmlError as error:
            refused = error
            await shell.do("join", lambda: engine.not_joined(wanted, refused))
        except StoreProblem as problem:
            trouble = problem
            await shell.do("join", lambda: engine.trouble(trouble, wanted.split_id))
        except OncewireError:
            logger.exception("a document is not joined", extra={"message_id": wanted.split_id})
