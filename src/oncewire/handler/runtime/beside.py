"""Beside: handlers that share one store. What each claims of it, and what a commit lets the others
know.

`store.contract.Fellows` says how claims, leases and words are kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from oncewire.errors import OncewireError
from oncewire.handler.actions import (
    Action,
    Decided,
    Notice,
    Ponged,
    Post,
    PostAnswer,
    PostReply,
    Ready,
    Settled,
    StatusTold,
)
from oncewire.handler.context import HandlerContext
from oncewire.message.envelope import StatusResponse
from oncewire.message.instant import SECOND, Duration
from oncewire.protocol.states import OutgoingState
from oncewire.store.contract import Fellows

logger = logging.getLogger("oncewire.handler")

LOOK_EVERY: Duration = SECOND
"""How often a handler looks whether another one is over."""

RELOAD = "reload"
"""The word by which every handler reads the files of its party again."""


@contextmanager
def claimed(context: HandlerContext, fellows: Fellows) -> Iterator[None]:
    """Have the commit within claim what leaves after it, and tell the others. Where it fails, none
    of that is under way."""
    state = context.state
    answers = {
        (post.sender, post.message_id)
        for post in state.actions
        if isinstance(post, PostAnswer) and post.message_id
    } - state.answering
    delegated = {
        post.message_id for post in state.actions if isinstance(post, Post) and post.delegated
    } - state.delegated
    state.answering |= answers
    state.delegated |= delegated
    fellows.hold(
        {
            "send": [("", message_id) for message_id in state.in_flight | state.delegated],
            "answer": state.answering,
            "offer": state.offering,
            "notice": [("", notice_id) for notice_id in state.telling],
            "join": state.joining,
            "reply": state.replying,
            "ping": [("", message_id) for message_id in state.pings],
            "ask": state.asked,
        }
    )
    fellows.tell(filter(None, map(_words_of, state.actions)))
    try:
        yield
    except BaseException:
        state.answering -= answers
        state.delegated -= delegated
        state.offering.difference_update(state.offered)
        raise
    finally:
        state.offered.clear()


def _words_of(action: Action) -> tuple[str, ...] | None:
    """What the others hear of an action; nothing of what concerns this process alone."""
    if isinstance(action, Settled):
        return "settled", action.message_id, action.state.value
    if isinstance(action, PostReply):
        return "reply", action.sender, action.message_id
    if isinstance(action, Ponged):
        return "pong", action.message_id
    if isinstance(action, StatusTold):
        return "status", action.cpa_id, msgspec.json.encode(action.response).decode()
    if isinstance(action, Decided):
        return "decided", action.sender, action.message_id
    if isinstance(action, Ready):
        return ("ready",)
    return ("notice",) if isinstance(action, Notice) else None


def _action_of(kind: str, *values: str) -> Action | None:
    """The same from there; None: it is no action."""
    if kind == "settled":
        return Settled(values[0], OutgoingState(values[1]))
    if kind == "reply":
        return PostReply(values[0], values[1])
    if kind == "pong":
        return Ponged(values[0])
    if kind == "status":
        return StatusTold(msgspec.json.decode(values[1], type=StatusResponse), values[0])
    if kind == "decided":
        return Decided(values[0], values[1])
    return Ready(1) if kind == "ready" else None


class Hearing:
    """Hears what the other handlers tell, for as long as this one lives."""

    def __init__(
        self, fellows: Fellows, perform: Callable[[Action], None], wake: Callable[[], None]
    ) -> None:
        self._fellows, self._perform, self._wake = fellows, perform, wake
        # Called when the files of the party are to be read again.
        self.reload: Callable[[], None] | None = None

    async def run(self) -> None:
        """Listen, and listen again when the server was away."""
        while True:
            try:
                await self._listen()
            except OncewireError as problem:
                logger.debug("others are not heard", extra={"problem": str(problem)})
            await asyncio.sleep(LOOK_EVERY / SECOND)

    async def _listen(self) -> None:
        loop, spoken = asyncio.get_running_loop(), asyncio.Event()
        heard = await asyncio.to_thread(self._fellows.listen)
        loop.add_reader(heard, spoken.set)
        try:
            # Whatever was said before was not heard.
            self._wake()
            while True:
                self.take(self._fellows.heard())
                await spoken.wait()
                spoken.clear()
        finally:
            loop.remove_reader(heard)

    def take(self, said: Iterable[tuple[str, ...]]) -> None:
        """Do what is to be done here about what others did."""
        for words in said:
            try:
                action = _action_of(*words)
            except (ValueError, IndexError, msgspec.MsgspecError):
                # Of a later version, perhaps.
                continue
            if action is not None:
                self._perform(action)
            elif words[0] == "notice":
                self._wake()
            elif words[0] == RELOAD and self.reload is not None:
                self.reload()
