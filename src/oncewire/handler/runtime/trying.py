"""Trying an agreement out: a partner is sent what can go wrong, and what it makes of it is told.

All of it are trials, which reach no application and no count. A partner whose handler knows no
trials refuses them, as it may; then what can be asked of any handler is all that is tried.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oncewire.errors import InvalidValue, OncewireError
from oncewire.handler.actions import Submission
from oncewire.handler.context import Trial
from oncewire.handler.sending.submit import agreement_called, send_copy
from oncewire.message.envelope import TRIAL_ACTION, TRIAL_MARK, TRIAL_SERVICE, Payload
from oncewire.message.form import AckRequest
from oncewire.protocol.states import OutgoingState
from oncewire.protocol.synchronous import awaits_response

if TYPE_CHECKING:
    from oncewire.agreement.agreement import Agreement
    from oncewire.handler.runtime.engine import Engine
    from oncewire.handler.runtime.handler import Handler

LARGE = 4 * 1024 * 1024
"""Bytes of the large document, where no smaller ones are agreed."""
LOOK_EVERY = 0.05
_DONE, _BROKEN, _NOT_TRIED = True, False, None
_NOBODY = "nobody is there, so nothing else was sent"


@dataclass(frozen=True, slots=True)
class Tried:
    """One thing that was tried with a partner, and how it went.

    `what`: what was tried.
    `works`: whether it works; None: it could not be tried.
    `finding`: in words.
    """

    what: str
    works: bool | None
    finding: str


@dataclass(slots=True)
class Trying:
    """One run through everything that can be tried with one partner."""

    handler: Handler
    cpa_id: str
    timeout: float
    made: dict[str, Trial] = field(default_factory=dict)

    async def run(self) -> list[Tried]:
        """Try it all, and leave nothing behind that would have to be cleared away."""
        try:
            return await self._found()
        finally:
            await self.handler.loop.operate(self._forget)

    async def _found(self) -> list[Tried]:
        """What each step found, until the partner is gone: its absence is no fault of what was
        tried meanwhile."""
        found: list[Tried] = []
        async for tried in self._steps():
            if tried.works is _BROKEN and found and found[0].works is _DONE:
                again = await self._ping()
                if again.works is _BROKEN:
                    unknown = "nothing is known of it: the partner went away meanwhile"
                    gone = f"its handler answered at first, and does not any more: {again.finding}"
                    found.append(Tried(tried.what, _NOT_TRIED, unknown))
                    found.append(Tried("ping again", _BROKEN, gone))
                    found.append(Tried("the rest", _NOT_TRIED, _NOBODY))
                    break
            found.append(tried)
        return found

    async def _steps(self) -> AsyncIterator[Tried]:
        agreement = agreement_called(self.handler.engine.context, self.cpa_id)
        there = await self._ping()
        yield there
        if there.works is _BROKEN:
            yield Tried("the rest", _NOT_TRIED, _NOBODY)
            return
        hindrance = _hindrance(agreement)
        if hindrance:
            yield Tried("messages", _NOT_TRIED, hindrance)
            return
        first, message = await self._message(agreement)
        yield message
        if message.works is not _DONE:
            yield await self._status(first)
            yield Tried("the rest", _NOT_TRIED, "no plain message was acknowledged")
            return
        yield self._signed(agreement, first)
        yield await self._status(first)
        yield await self._copied("a copy", first)
        yield await self._lost()
        yield await self._large(agreement)
        yield await self._copied("a late copy", first)

    def _forget(self, engine: Engine) -> None:
        for message_id in self.made:
            engine.context.state.trials.pop(message_id, None)
            # Of one that did not get through, an incident may be open that needs no attention.
            with suppress(OncewireError):
                engine.abandon(message_id)

    # --- what is tried ---

    async def _ping(self) -> Tried:
        try:
            heard = await self.handler.ping(self.cpa_id, self.timeout)
        except InvalidValue as problem:
            # Not every dialect has the question.
            return Tried("ping", _NOT_TRIED, f"it cannot be asked: {problem.problem}")
        except OncewireError as problem:
            return Tried("ping", _BROKEN, problem.problem)
        if heard:
            return Tried("ping", _DONE, "its handler is there and knows us")
        return Tried("ping", _BROKEN, f"no Pong came within {self.timeout:g} s")

    async def _message(self, agreement: Agreement) -> tuple[str, Tried]:
        message_id = await self._send(b"<trial/>")
        state = await self.handler.wait(message_id, self.timeout)
        if state is OutgoingState.DELIVERED:
            return message_id, Tried("a message", _DONE, "it arrived and was acknowledged")
        if state is OutgoingState.SENT and not agreement.sending.terms.reliable:
            said = "it was sent; acknowledgements are not agreed, so nobody knows more"
            return message_id, Tried("a message", _NOT_TRIED, said)
        reason = await self._reason(message_id, state)
        if state is OutgoingState.NOT_DELIVERED and _is_of_trials(reason):
            said = f"its handler takes no trials, as it may: {reason}"
            return message_id, Tried("a message", _NOT_TRIED, said)
        return message_id, Tried("a message", _BROKEN, reason)

    def _signed(self, agreement: Agreement, message_id: str) -> Tried:
        terms, security = agreement.sending.terms, agreement.sending.security
        if not security.sign:
            return Tried("signatures", _NOT_TRIED, "none are agreed")
        with self.handler.engine.context.store.reader() as reader:
            receipt = reader.receipt(message_id)
        if terms.ack_requested is not AckRequest.SIGNED:
            return Tried("signatures", _DONE, "it took our signature; its own is not asked for")
        if receipt is None:
            return Tried("signatures", _BROKEN, "what it acknowledged with proves nothing")
        said = "it took our signature, and signed for exactly what was sent"
        return Tried("signatures", _DONE, said)

    async def _status(self, message_id: str) -> Tried:
        try:
            told = await self.handler.ask_status(message_id, self.timeout)
        except OncewireError as problem:
            return Tried("status", _NOT_TRIED, f"it cannot be asked: {problem.problem}")
        if told is None:
            return Tried("status", _BROKEN, "it does not say what became of a message")
        return Tried("status", _DONE, f"it says of the message: {told.status.value}")

    async def _copied(self, what: str, message_id: str) -> Tried:
        trial = self.made[message_id]
        before = len(trial.heard)

        def copy(engine: Engine) -> None:
            with engine.context.transition() as tx:
                send_copy(engine.context, tx, message_id)

        await self.handler.loop.operate(copy)
        if not await self._heard(trial, before + 1):
            return Tried(what, _BROKEN, "it is not answered: a sender that lost the answer waits")
        if trial.heard[-1] == trial.heard[0]:
            return Tried(what, _DONE, "it is known, and answered as the first one was")
        return Tried(what, _DONE, "it is answered anew; whether it was taken twice, only it knows")

    async def _lost(self) -> Tried:
        what = "a lost acknowledgement"
        message_id = await self._send(b"<trial/>", lose=1)
        state = await self.handler.wait(message_id, self.timeout)
        answers = len(self.made[message_id].heard)
        if state is OutgoingState.DELIVERED and answers > 1:
            return Tried(what, _DONE, "the message was sent again, and acknowledged again")
        return Tried(what, _BROKEN, await self._reason(message_id, state))

    async def _large(self, agreement: Agreement) -> Tried:
        size = min(agreement.sending.terms.max_size or LARGE, LARGE)
        message_id = await self._send(b"<trial>" + b" " * max(0, size - 15) + b"</trial>")
        state = await self.handler.wait(message_id, self.timeout)
        if state is OutgoingState.DELIVERED:
            return Tried("a large message", _DONE, f"{size:,} bytes arrived")
        return Tried("a large message", _BROKEN, await self._reason(message_id, state))

    # --- how ---

    async def _send(self, data: bytes, lose: int = 0) -> str:
        message_id = f"{TRIAL_MARK}{uuid.uuid4()}@{self.handler.engine.context.name}"
        self.made[message_id] = trial = Trial(lose)
        submission = Submission(
            self.cpa_id,
            TRIAL_SERVICE,
            TRIAL_ACTION,
            (Payload.of("trial", "application/xml", data),),
            # A conversation of its own, so that no business waits behind it.
            conversation_id=message_id,
            message_id=message_id,
        )

        def submit(engine: Engine) -> None:
            engine.context.state.trials[message_id] = trial
            engine.submit(submission)

        await self.handler.loop.operate(submit, "submit")
        return message_id

    async def _heard(self, trial: Trial, count: int) -> bool:
        ends = time.monotonic() + self.timeout
        while len(trial.heard) < count and time.monotonic() < ends:
            await asyncio.sleep(LOOK_EVERY)
        return len(trial.heard) >= count

    async def _reason(self, message_id: str, state: OutgoingState | None) -> str:
        if state is None:
            return f"no acknowledgement came within {self.timeout:g} s"
        with self.handler.engine.context.store.reader() as reader:
            stored = reader.outgoing(message_id)
        why = "" if stored is None else stored.outgoing.reason
        return why or f"it ended as {state.value}"


def _is_of_trials(reason: str) -> bool:
    """Whether a message was refused for its service or action, and for nothing else."""
    code, _, words = reason.partition(":")
    named = "Service" in words or "Action" in words
    return named and code in ("ValueNotRecognized", "NotSupported", "Inconsistent")


def _hindrance(agreement: Agreement) -> str:
    """Why trials cannot be sent under an agreement; empty: they can."""
    if awaits_response(agreement.sending.terms):
        return "each message wants a response of an application, which trials never reach"
    return ""
