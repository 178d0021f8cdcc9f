"""Handler: start, stop and the verbs of an application, over the transports that carry parcels."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from types import TracebackType
from typing import BinaryIO, TypeVar

from oncewire.errors import (
    HandlerFailed,
    OncewireError,
    StoreDamaged,
    StoreFull,
    StoreGone,
    StoreProblem,
    TransportProblem,
)
from oncewire.handler.actions import (
    Accepted,
    Action,
    Join,
    Notice,
    Ponged,
    Post,
    PostAnswer,
    PostOn,
    PostReply,
    Ready,
    Refused,
    Relay,
    Settled,
    StatusTold,
    Submission,
    Warned,
)
from oncewire.handler.content_digest import is_of_pieces, stated_digest, with_body_digest
from oncewire.handler.context import IN_FLIGHT_MAX, HandlerContext, KillPoints
from oncewire.handler.delivering.deliver import LEASE, Application, GivenMessage
from oncewire.handler.encryption import pieces_of
from oncewire.handler.perform import STORE
from oncewire.handler.receiving.inbound import hear
from oncewire.handler.runtime.beside import Hearing
from oncewire.handler.runtime.commit_loop import SUBMIT, CommitLoop, Outages, Supervisor
from oncewire.handler.runtime.door import Door, Relaying
from oncewire.handler.runtime.engine import Engine
from oncewire.handler.runtime.offers import HandOver, Telling
from oncewire.handler.runtime.operate import find_outgoing
from oncewire.handler.runtime.upkeep import (
    PROBE_EVERY,
    QUIET,
    Joining,
    OutageIncident,
    Probing,
    try_spool,
)
from oncewire.handler.sending.submit import handed_in, is_ready
from oncewire.handler.sending.transmit import Transmission, set_aside
from oncewire.handler.spool_reading import check_file
from oncewire.message.envelope import StatusResponse
from oncewire.message.instant import SECOND, Duration, Instant
from oncewire.protocol.states import FINAL_OUTGOING, OutgoingState
from oncewire.store.contract import Fellows
from oncewire.store.records import SpoolSlice, StoredParcel
from oncewire.store.spool_contract import Spool
from oncewire.transport.contract import AttemptOutcome, Cargo, OutcomeKind, Transport
from oncewire.wire.parcel import Parcel

# Carrier: stored bytes go out over the transports, as they were stored or not at all.

CHUNK = 256 * 1024

_NO_LEASE = "the lease of this handler has run out: another one may send it"


def check_files(spool: Spool, parcel: StoredParcel) -> StoredParcel:
    """The parcel as it is sent. A file of the spool is named by its digest: what has changed is
    not sent. The digest of a body that is made of pieces is made as they are checked. Of a range
    of a document's file the parcel says the digest itself: it is its own, not the document's."""
    stated = stated_digest(Parcel(parcel.content_type, b"", parcel.headers))
    if len(parcel.body) > 1 and stated is not None:
        digest = hashlib.sha256()
        for piece in pieces_of(spool, parcel):
            digest.update(piece)
        if base64.b64encode(digest.digest()).decode() != stated:
            raise StoreDamaged(
                f"the spool file {', '.join(parcel.spooled)} has changed",
                remedy="put it back from a backup, or give its message up with `oncewire abandon`",
            )
        return parcel
    body = hashlib.sha256() if is_of_pieces(parcel) else None
    for part in parcel.body:
        if isinstance(part, SpoolSlice):
            check_file(spool, part.name, None if body is None else _of_range(part, body.update))
        elif body is not None:
            body.update(part)
    return parcel if body is None else with_body_digest(parcel, body.digest())


def _of_range(part: SpoolSlice, take: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Gives on, of a file that is read from its beginning, what lies in that range."""
    position = 0

    def look(piece: bytes) -> None:
        nonlocal position
        begin = max(0, part.offset - position)
        end = max(0, part.offset + part.length - position)
        take(piece[begin:end])
        position += len(piece)

    return look


class _ReadAhead:
    """A file that is read in a thread, a piece ahead of the taker of the pieces."""

    def __init__(self, file: BinaryIO, length: int) -> None:
        self._file, self._left = file, length
        self._reading: asyncio.Future[bytes] | None = None
        self._begin()

    def _begin(self) -> None:
        if self._left > 0:
            wanted = asyncio.to_thread(self._file.read, min(CHUNK, self._left))
            self._reading = asyncio.ensure_future(wanted)

    async def next(self) -> bytes:
        """The next piece; none after the last one, or where the file ends too soon."""
        if self._reading is None:
            return b""
        # A caller that stops waiting does not stop the thread.
        piece = await asyncio.shield(self._reading)
        self._reading = None
        self._left -= len(piece)
        if piece:
            self._begin()
        return piece

    async def end(self) -> None:
        """Until no thread reads it: only then may it be closed."""
        if self._reading is not None:
            await asyncio.wait((self._reading,))
            # What came of it is not asked for any more.
            if not self._reading.cancelled():
                self._reading.exception()


class Carrier:
    """Carries parcels whose bytes lie in rows and in the spool."""

    def __init__(
        self, spool: Spool, transports: Mapping[str, Transport], fellows: Fellows | None = None
    ) -> None:
        self._spool, self._transports, self._fellows = spool, transports, fellows
        # Large messages on their way: bytes that were given to the transport, and of how many.
        self.transfers: dict[str, tuple[int, int]] = {}

    def use(self, parcel: StoredParcel) -> None:
        """Its files stay until it has left, even if its message goes first: a proxy keeps
        none at all, and the last attempt of one may last longer than its retention."""
        for name in parcel.spooled:
            self._spool.use(name)

    def let_go(self, parcel: StoredParcel) -> None:
        """Release the files of a parcel that has left."""
        for name in parcel.spooled:
            self._spool.let_go(name)

    async def carry(
        self,
        name: str,
        address: str,
        parcel: StoredParcel,
        timeout: float,
        once: str = "",
        message_id: str = "",
        begin_within: float | None = None,
    ) -> AttemptOutcome:
        """Send a parcel; `once` and `begin_within` are the cargo's. Raises StoreDamaged when its
        files are not what they were. How far a large one is stands in `transfers`, under its
        MessageId."""
        transport = self._transports.get(name)
        if transport is None:
            return AttemptOutcome(OutcomeKind.REFUSED, f"this handler has no transport {name}")
        if parcel.spooled:
            parcel = await asyncio.to_thread(check_files, self._spool, parcel)
        first = parcel.body[0] if len(parcel.body) == 1 else None
        whole = first if isinstance(first, bytes) else None
        size, chunks = parcel.size, partial(self._chunks, parcel, message_id)
        may_leave = None if self._fellows is None else self._may_leave
        cargo = Cargo(
            *(parcel.content_type, parcel.headers, size, chunks, once, whole, begin_within),
            may_leave,
        )
        if may_leave is not None and not may_leave():
            return AttemptOutcome(OutcomeKind.REFUSED, _NO_LEASE)
        try:
            if parcel.spooled and message_id:
                self.transfers[message_id] = 0, size
            return await transport.send(cargo, address, timeout=timeout)
        finally:
            self.transfers.pop(message_id, None)

    def _may_leave(self) -> bool:
        return self._fellows is None or self._fellows.stands

    async def _chunks(self, parcel: StoredParcel, message_id: str) -> AsyncIterator[bytes]:
        """The stored bytes, piece by piece; a large payload is read from the spool."""
        for part in parcel.body:
            if not self._may_leave():
                raise TransportProblem(_NO_LEASE)
            if not isinstance(part, SpoolSlice):
                self._note(message_id, len(part))
                yield part
                continue
            with self._spool.open(part.name) as spooled:
                spooled.seek(part.offset)
                ahead = _ReadAhead(spooled, part.length)
                try:
                    while chunk := await ahead.next():
                        if not self._may_leave():
                            raise TransportProblem(_NO_LEASE)
                        self._note(message_id, len(chunk))
                        yield chunk
                finally:
                    await ahead.end()

    def _note(self, message_id: str, count: int) -> None:
        """Count bytes of a message that leave."""
        if message_id in self.transfers:
            sent, size = self.transfers[message_id]
            self.transfers[message_id] = sent + count, size


logger = logging.getLogger("oncewire.handler")

T = TypeVar("T")

ANSWERS_MAX = 256
"""Acknowledgements and other signals under way at once."""

DRAIN_LOOK = 0.1
"""Seconds between two looks whether a handler that drains is done."""


_STAYS = frozenset({OutgoingState.DELIVERED, OutgoingState.SENT})
"""Outcomes that only another outcome can follow."""


@dataclass(eq=False, slots=True)
class _Waiter:
    """A caller that waits for an outcome."""

    woken: asyncio.Future[None]
    # The outcome that was told last; None: the time is up.
    state: OutgoingState | None = None

    def wake(self) -> None:
        """There is an outcome, or no more time to wait for one."""
        if not self.woken.done():
            self.woken.set_result(None)


class Handler:
    """One Message Service Handler. Use it as `async with Handler(...) as handler`."""

    def __init__(
        self,
        context: HandlerContext,
        transports: Mapping[str, Transport],
        *,
        application: Application | None = None,
        kill: KillPoints | None = None,
        lease: Duration = LEASE,
        probe_every: Duration = PROBE_EVERY,
    ) -> None:
        self.engine = Engine(context)
        self.transports = dict(transports)
        self.lease = lease
        self._kill = context.kill = kill or KillPoints()
        self.loop = CommitLoop(self.engine, self._perform, self._kill)
        context.application_called = application is not None
        context.state.proofs.beside = True
        self.supervisor = Supervisor(self.loop)
        self._spawn = self.supervisor.spawn
        # Reliable messages find a place here at once (see `HandlerContext.room`); of the others,
        # which are sent and forgotten, any number may come.
        self._sending = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._answering = asyncio.Semaphore(ANSWERS_MAX)
        self._waiting: dict[str, list[_Waiter]] = {}
        self._pinged: dict[str, asyncio.Future[None]] = {}
        self._asking: dict[tuple[str, str], list[asyncio.Future[StatusResponse]]] = {}
        self._carrier = Carrier(context.store.spool, self.transports, context.store.fellows)
        self._relaying = Relaying(self.loop, self._carrier.carry, self._perform, self._spawn)
        self._joining = Joining(self.loop)
        self._outages = Outages(
            "senders are sent away: the store cannot take or give what they need"
        )
        spool = context.store.spool
        self._outage = OutageIncident(self.loop, STORE, QUIET, lambda: try_spool(spool))
        self.loop.not_stored = self._note_outage
        self._door = Door(self.loop, self._relaying, self._call_operator)
        self._probing = Probing(self.loop, self.transports, probe_every)
        self._ready = asyncio.Event()
        # The event loop it runs in, for callers in other threads; None: it does not run.
        self.event_loop: asyncio.AbstractEventLoop | None = None
        # How often something became ready, and who waits for that.
        self.arrivals, self._awaiting = 0, asyncio.Event()
        fellows = context.store.fellows
        self.hearing = None if fellows is None else Hearing(fellows, self._hear, self._wake)
        self._hand_over = self._telling = None
        if application is not None:
            self._hand_over = HandOver(application, self.loop, self._ready)
            if application.hears:
                self._telling = Telling(application, self.loop)

    # --- life ---

    async def start(self) -> None:
        """Take up what the last run left, listen, and begin to send."""
        self.supervisor.start()
        await self.loop.do("start", self.engine.start)
        for transport in self.transports.values():
            await transport.start(self._door.take)
        for offers in (self._hand_over, self._telling):
            if offers is not None:
                offers.ended = self.supervisor.ended
                self._spawn(offers.run())
        self.supervisor.keep(self._probing.run())
        self.supervisor.keep(self._outage.run())
        if self.hearing is not None:
            self.supervisor.keep(self.hearing.run())
        self._ready.set()
        self.event_loop = asyncio.get_running_loop()

    async def stop(self) -> None:
        """Stop listening, let transmissions under way end, record a graceful stop."""
        self.event_loop = None
        for offers in (self._hand_over, self._telling):
            if offers is not None:
                await offers.stop()
        self._relaying.wake_all()
        self._door.stop()
        for transport in self.transports.values():
            await transport.stop()
        await self.supervisor.finish(5)
        # One that failed has nothing true to say any more.
        with contextlib.suppress(HandlerFailed):
            await self.loop.do("stop", self.engine.stop)
        await self.loop.stop()
        self.engine.context.state.reading_room.close()
        self.engine.context.store.close()

    async def __aenter__(self) -> Handler:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    # --- verbs ---

    async def send(self, submission: Submission) -> Accepted:
        """Take a document: when this returns, it is stored and will be sent or told of."""
        engine = self.engine
        if is_ready(engine.context, submission):
            return await self.loop.do(SUBMIT, lambda: engine.submit(submission))
        async with handed_in(engine.context, (submission,)) as handed:
            (ready,) = handed.submissions
            accepted = await self.loop.do(SUBMIT, lambda: engine.submit(ready))
            # What was submitted before has its own files.
            handed.kept = not accepted.repeated
            return accepted

    async def wait(self, message_id: str, timeout: float) -> OutgoingState | None:
        """The outcome of a message, or None when it has none within the time."""
        # What is under way has no outcome yet.
        if message_id not in self.engine.context.state.in_flight:
            state = self.loop.look(lambda: self._state(message_id))
            if state in FINAL_OUTGOING:
                return state
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop.create_future())
        waiting = self._waiting.setdefault(message_id, [])
        waiting.append(waiter)
        expiry = loop.call_later(timeout, waiter.wake)
        try:
            await waiter.woken
            if waiter.state is None or waiter.state in _STAYS:
                return waiter.state
            # One turn may have gone on from there: what counts is what is stored.
            return self.loop.look(lambda: self._state(message_id))
        finally:
            expiry.cancel()
            waiting.remove(waiter)
            if not waiting:
                del self._waiting[message_id]

    def _state(self, message_id: str) -> OutgoingState:
        with self.engine.context.store.transition() as tx:
            return find_outgoing(tx, message_id).outgoing.state

    def transfers(self) -> dict[str, tuple[int, int]]:
        """Large messages on their way, by MessageId: bytes that have left, and of how many."""
        return dict(self._carrier.transfers)

    def refusals(self) -> dict[str, tuple[int, Instant, str]]:
        """Messages that the application is offered and refuses, by MessageId: how often, when
        last, and what it raised then."""
        return {} if self._hand_over is None else dict(self._hand_over.refusals)

    async def take(self, limit: int = 16) -> list[GivenMessage]:
        """Hand messages to the caller, who confirms each within the lease."""
        return await self.taken(lambda engine, room: engine.hand_over(room, self.lease), limit)

    async def taken(
        self, take: Callable[[Engine, int], list[GivenMessage]], limit: int
    ) -> list[GivenMessage]:
        """What `take` hands over, and after that what it passes over for want of a proof."""
        context = self.engine.context
        given = await self.loop.do("take", lambda: take(self.engine, limit))
        left = limit - len(given)
        if left > 0 and await context.state.proofs.read(context.now()):
            given += await self.loop.do("take", lambda: take(self.engine, left))
        return given

    async def arrival(self, seen: int, timeout: float) -> None:
        """Return when more became ready than was seen, or when the time is over."""
        if self.arrivals == seen:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._awaiting.wait(), timeout)

    async def confirm(
        self, sender: str, message_id: str, responses: Sequence[Submission] = ()
    ) -> bool:
        """The caller has the message, and answers it; saying so twice is the same as once."""
        async with handed_in(self.engine.context, responses) as handed:
            new = await self.loop.do(
                "confirm", lambda: self.engine.confirm(sender, message_id, handed.submissions)
            )
            handed.kept = new
            return new

    async def ping(self, cpa_id: str, timeout: float) -> bool:
        """Whether the partner's handler answers a Ping within the time; TransportProblem: the
        Ping certainly did not reach it, and why."""
        pinged: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def ask() -> str:
            message_id = self.engine.ping(cpa_id)
            self._pinged[message_id] = pinged
            return message_id

        message_id = await self.loop.do("ping", ask)
        try:
            await asyncio.wait_for(pinged, timeout)
        except TimeoutError:
            return False
        finally:
            self._pinged.pop(message_id, None)
            self.engine.context.state.pings.discard(message_id)
        return True

    async def ask_status(
        self, message_id: str, timeout: float, cpa_id: str | None = None
    ) -> StatusResponse | None:
        """What the receiver of a message says became of it; None when it says nothing within
        the time. `wait` tells if that settles the message. For a message that is unknown here an
        agreement says whom to ask."""
        future: asyncio.Future[StatusResponse] = asyncio.get_running_loop().create_future()

        def ask() -> tuple[str, str]:
            asked = self.engine.ask_status(message_id, cpa_id), message_id
            self._asking.setdefault(asked, []).append(future)
            return asked

        asked = await self.loop.do("ask status", ask)
        try:
            return await asyncio.wait_for(future, timeout)
        except TimeoutError:
            return None
        finally:
            # An answer takes the whole list away; who gave up before takes only himself.
            asking = self._asking.get(asked, [])
            if future in asking:
                asking.remove(future)
            if not asking:
                self._asking.pop(asked, None)
                self.engine.context.state.asked.discard(asked)

    # --- handlers beside this one ---

    def _hear(self, action: Action) -> None:
        """Another handler did something that may concern this one."""
        if isinstance(action, PostReply):
            self._door.reply_is_there(action.sender, action.message_id)
        else:
            self._perform(action)

    def _wake(self) -> None:
        """There may be something to do that nothing else tells of."""
        self._ready.set()
        if self._telling is not None:
            self._telling.due.set()

    async def drain(self, patience: float) -> None:
        """Take no new work, and return when what was begun is done, or time is up."""
        fellows, state = self.engine.context.store.fellows, self.engine.context.state
        if fellows is None:
            return
        fellows.draining = True
        deadline = asyncio.get_running_loop().time() + patience
        while asyncio.get_running_loop().time() < deadline and any(
            (
                *(state.in_flight, state.delegated, state.answering, state.offering),
                *(state.telling, state.joining, state.replying, state.relaying),
            )
        ):
            await asyncio.sleep(DRAIN_LOOK)

    # --- what leaves ---

    def _perform(self, action: Action) -> None:
        if isinstance(action, Post):
            self._carrier.use(action.parcel)
            self._spawn(self._post(action))
        elif isinstance(action, PostAnswer):
            self._carrier.use(action.parcel)
            self._spawn(self._post_answer(action))
        elif isinstance(action, PostReply):
            self._let_reply(action)
        elif isinstance(action, PostOn):
            self._relaying.post_on(action)
        elif isinstance(action, Relay):
            self._relaying.give(action)
        elif isinstance(action, Settled):
            for waiter in self._waiting.get(action.message_id, ()):
                waiter.state = action.state
                waiter.wake()
        elif isinstance(action, Ponged):
            pinged = self._pinged.pop(action.message_id, None)
            if pinged is not None and not pinged.done():
                pinged.set_result(None)
        elif isinstance(action, StatusTold):
            asked = action.cpa_id, action.response.ref_to_message_id
            for future in self._asking.pop(asked, ()):
                if not future.done():
                    future.set_result(action.response)
        elif isinstance(action, Notice | Refused | Warned):
            self._tell(action)
        elif isinstance(action, Join):
            self._spawn(self._joining.join(action))
        elif isinstance(action, Ready):
            self._ready.set()
            self.arrivals += 1
            self._awaiting.set()
            self._awaiting = asyncio.Event()
        elif self._hand_over is not None:
            self._hand_over.end(action)

    def _tell(self, said: Notice | Refused | Warned) -> None:
        """Log what became of a message, and let the application hear of it."""
        if isinstance(said, Notice):
            failed = {"message_id": said.message_id, "outcome": said.outcome.value}
            logger.warning("a message failed", extra=failed)
            if self._telling is not None:
                self._telling.due.set()
            return
        if isinstance(said, Warned):
            logger.warning("a partner warns about a message", extra=asdict(said))
            return
        notice = said.notice
        logger.warning(
            "a message that was sent with best effort was refused",
            extra={"message_id": notice.message_id, "reason": notice.reason},
        )
        if self._telling is not None:
            self._telling.tell_of(said)

    async def _post(self, post: Post) -> None:
        async with contextlib.nullcontext() if post.delegated else self._sending:
            self._kill.reach("post before send")
            damaged: StoreDamaged | None = None
            try:
                outcome = await self._carrier.carry(
                    post.transport,
                    post.address,
                    post.parcel,
                    post.timeout / SECOND,
                    post.message_id if post.delegated else "",
                    post.message_id,
                    None if post.begin_within is None else post.begin_within / SECOND,
                )
            except StoreDamaged as problem:
                damaged, outcome = problem, AttemptOutcome(OutcomeKind.REFUSED, str(problem))
            except Exception as problem:
                # Of this attempt alone: the next one may find another answer.
                logger.exception("an attempt failed", extra={"message_id": post.message_id})
                outcome = AttemptOutcome(
                    OutcomeKind.UNKNOWN, f"a fault of ours: {type(problem).__name__}"
                )
            finally:
                self._carrier.let_go(post.parcel)
            self._kill.reach("post after send")
        ended = Transmission(
            post.message_id,
            post.attempt,
            sent=outcome.kind is OutcomeKind.SENT,
            # A status that refuses one copy says nothing of another that the network made.
            certain=outcome.kind is OutcomeKind.REFUSED and outcome.reply is None,
            reason=outcome.reason,
            retry_after=outcome.retry_after,
            address=post.address,
            transport=post.transport,
        )
        reply = await hear(self.engine.context, outcome)
        names = () if reply is None else (post.message_id, *reply.names)
        await self._try("outcome", lambda: self.engine.transmission_over(ended, reply), names)
        if damaged is not None:
            why = damaged
            await self._try("outcome", lambda: set_aside(self.engine.context, post.message_id, why))

    def _let_reply(self, reply: PostReply) -> None:
        """Wake the connections that wait; where none does any more, send it on its own."""
        here = self._door.reply_is_there(reply.sender, reply.message_id)
        waited = here or reply.elsewhere
        if reply.post is None:
            return
        if not waited:
            self._perform(reply.post)
            return
        ended = Transmission(reply.post.message_id, reply.post.attempt, sent=True)
        self._spawn(self._try("outcome", lambda: self.engine.transmission_over(ended)))

    async def _post_answer(self, post: PostAnswer) -> None:
        async with self._answering:
            self._kill.reach("answer before send")
            try:
                # One way after the other, until one takes it: a signal that comes twice is one
                # signal.
                outcome = AttemptOutcome(OutcomeKind.REFUSED)
                for transport, address in post.ways:
                    outcome = await self._carrier.carry(transport, address, post.parcel, 30.0)
                    if outcome.kind is OutcomeKind.SENT:
                        break
            except StoreDamaged as problem:
                await self._call_operator(problem, post.message_id)
                return
            except Exception:
                logger.exception("an answer was not sent", extra={"message_id": post.message_id})
                return
            finally:
                self._carrier.let_go(post.parcel)
                self.engine.context.state.answering.discard((post.sender, post.message_id))
            self._kill.reach("answer after send")
        pinged = self._pinged.get(post.ping_id)
        if pinged is not None and outcome.kind is OutcomeKind.REFUSED and not pinged.done():
            words = f"the partner's handler was not reached: {outcome.reason}"
            pinged.set_exception(TransportProblem(words))
        sent, reply = outcome.kind is OutcomeKind.SENT, await hear(self.engine.context, outcome)
        await self._try(
            "answer left", lambda: self.engine.answer_left(post, sent=sent, reply=reply)
        )

    async def _try(self, step: str, verb: Callable[[], object], names: Sequence[str] = ()) -> None:
        """Run a verb whose failure only means that a timer will bring the matter up again."""
        try:
            await self.loop.do(step, verb, names=names)
        except OncewireError as problem:
            logger.warning("a step was not stored", extra={"step": step, "problem": str(problem)})

    def _note_outage(self, problem: StoreProblem) -> None:
        if isinstance(problem, StoreFull | StoreGone):
            self._outage.came(problem)

    @property
    def outage(self) -> tuple[Instant, str] | None:
        """Since when the store cannot keep anything, and why; None: it can, as far as is known."""
        return self._outage.trouble

    async def _call_operator(self, problem: StoreProblem, message_id: str | None = None) -> None:
        """Log a trouble of the store and open its incident, if the store can keep one."""
        self._outages.say(problem)
        self._note_outage(problem)
        with contextlib.suppress(OncewireError):
            await self.loop.do("operate", lambda: self.engine.trouble(problem, message_id))
