"""The ends of the control socket: who asks a handler that runs elsewhere, and who answers there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import socket
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from inspect import BoundArguments
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from oncewire.entry.control import language as control
from oncewire.entry.control import values
from oncewire.entry.control.language import ControlFrame
from oncewire.entry.control.values import checked
from oncewire.entry.control.verb import Method, Need, Permission, Verb
from oncewire.entry.control.verbs import TABLE, PartyVerbs, Status, Verbs
from oncewire.entry.delivery.received_message import ReceivedMessage
from oncewire.entry.messages.documents import Document, payloads_of
from oncewire.entry.messages.outlook import incidents_of
from oncewire.entry.messages.submitting import AS_AGREED, SendOptions, find_agreement, submission_of
from oncewire.entry.party.agreements import AgreementFolder
from oncewire.entry.party.names import Names
from oncewire.entry.party.settings import Settings
from oncewire.entry.party.store import is_owned, socket_path, store_path
from oncewire.errors import (
    HandlerFailed,
    InvalidValue,
    NotAllowed,
    NotHere,
    OncewireError,
    StoreProblem,
    TransportProblem,
)
from oncewire.handler.actions import Accepted, Notice, Submission
from oncewire.handler.delivering.deliver import LEASE, GivenMessage
from oncewire.handler.runtime.engine import Engine
from oncewire.handler.runtime.operate import find_outgoing
from oncewire.handler.sending.submit import handed_in
from oncewire.message.instant import Duration, Instant
from oncewire.protocol.states import Outcome, outcome_in
from oncewire.store.contract import Reader
from oncewire.store.spool_contract import Spool

if TYPE_CHECKING:
    from oncewire.handler.runtime.handler import Handler


R = TypeVar("R")
T = TypeVar("T")

CONNECTIONS = 64
"""Requests under way at once; the handler's commit serves all of them together."""

BUSY_SECONDS = 10.0
"""How long a handler may take to let a caller in: others came first."""

LONGEST_PAUSE = 0.5
"""Seconds between two tries to get in, at most."""

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


_UNSURE = (
    "look with `oncewire outbox` whether it was done; a message that is sent again under the same "
    "MessageId cannot arrive twice"
)
_REMEDY = {
    Permission.LOOK: "ask again",
    Permission.SUBMIT: _UNSURE,
    Permission.TAKE: _UNSURE,
    Permission.OPERATE: _UNSURE,
}


class Remote(Verbs):
    """The handler behind a control socket."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[_Streams] = []
        self._turns = asyncio.Semaphore(CONNECTIONS)

    @classmethod
    async def connect(cls, path: Path) -> Remote | None:
        """The handler at that path, or None if none listens there."""
        remote = cls(path)
        try:
            remote._idle.append(await remote._open())
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        except OSError as error:
            raise TransportProblem(
                f"the control socket {path} cannot be used: {error.strerror}",
                remedy="run the command as the user whose handler it is",
            ) from None
        return remote

    async def close(self) -> None:
        """Close every connection."""
        while self._idle:
            _, writer = self._idle.pop()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _open(self) -> _Streams:
        loop, pause = asyncio.get_running_loop(), 0.01
        until = loop.time() + BUSY_SECONDS
        while True:
            try:
                connection = self._connected()
                break
            except BlockingIOError:
                # So many wait to be let in that the kernel keeps no more of them.
                if loop.time() >= until:
                    raise TransportProblem(
                        f"the handler is busy: it let nobody in for {BUSY_SECONDS:.0f} seconds",
                        remedy="nothing was asked of it yet; try again",
                    ) from None
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return await asyncio.open_unix_connection(sock=connection, limit=control.LINE_MAX)

    def _connected(self) -> socket.socket:
        # A Unix socket is connected at once or not at all, so there is no wait here; the event loop
        # would take "not now" for "under way", and a full queue for a connection.
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            with control.short_name(self._path) as name:
                connection.connect(name)
        except BaseException:
            connection.close()
            raise
        return connection

    async def submit(self, submission: Submission) -> Accepted:
        """Have a submission stored that was checked here."""
        return await self.send(submission)

    async def perform(self, method: Method[..., R], given: BoundArguments) -> R:
        """Have it done by the handler."""
        verb = TABLE[method.name]
        request = values.request_frame(verb, checked(verb, given))
        answer = await self._exchange(request, _REMEDY[verb.permission])
        result: R = values.read_answer(verb, answer)
        return result

    async def _exchange(self, request: ControlFrame, remedy: str) -> ControlFrame:
        """One question, one answer, on a connection that has no other user meanwhile."""
        async with self._turns:
            try:
                streams = self._idle.pop() if self._idle else await self._open()
                answer = await self._over(streams, request)
            except (OSError, asyncio.IncompleteReadError):
                answer = None
            if answer is None:
                raise TransportProblem("the handler stopped before it answered", remedy=remedy)
            self._idle.append(streams)
        if answer.values.get("ok") is not True:
            raise control.read_error(answer.values)
        return answer

    async def _over(self, streams: _Streams, request: ControlFrame) -> ControlFrame | None:
        reader, writer = streams
        try:
            await control.write_frame(writer, request)
            return await control.read_frame(reader)
        except BaseException:
            # An answer that comes later must not be taken for that of the next question.
            writer.close()
            raise


# Reaching: who comes while another process has the store asks that one through its control
# socket, or waits a little until the store is free.

PATIENCE = 15.0
"""Seconds to wait for a handler that starts, or a command that ends."""

_PAUSE = 0.05

_STRIKES = 3


async def running_or(settings: Settings, make: Callable[[], T]) -> Remote | T:
    """The running handler, or what `make` makes of the store once it is free."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE
    strikes = 0
    while True:
        remote = await Remote.connect(socket_path(settings))
        if remote is not None:
            return remote
        try:
            return make()
        except StoreProblem:
            # It is in use: by a handler that is about to listen, or another command. One that
            # let go of it in this very moment is no reason to give up either.
            owned = is_owned(store_path(settings))
            strikes = 0 if owned else strikes + 1
            if loop.time() > deadline or strikes >= _STRIKES:
                raise
        await asyncio.sleep(_PAUSE)


async def tell_running(settings: Settings) -> None:
    """Let the handler that runs, if one does, read the files of its party anew."""
    remote = await Remote.connect(socket_path(settings))
    if remote is None:
        return
    try:
        await remote.reload()
    finally:
        await remote.close()


# The two that do verbs in this process: a handler that runs, and an engine without a handler, which
# stores what it is given and leaves sending to the next handler.

PROBE = 4.0
"""Seconds within which a handler that lives takes a turn."""


class _Here(Verbs):
    """What a local handler and an offline store share: the engine, the settings, and the names of
    partners as the party's files have them now."""

    def __init__(self, engine: Engine, settings: Settings | None) -> None:
        self.engine, self.settings = engine, settings
        self._folder = None if settings is None else AgreementFolder(settings)

    def _condition(self, outage: tuple[Instant, str] | None = None) -> Status:
        """What the store has of the party, and what it cannot keep."""
        store = self.engine.context.store
        with store.reader() as reader:
            counts, incidents = reader.counts(), len(incidents_of(reader, outage))
        return Status(store.node(), False, 0, "", counts, incidents, outage=outage)

    def names(self) -> Names:
        """See `VerbBackend`."""
        if self._folder is None:
            return Names()
        try:
            return Names(self._folder.readable().kept, self.settings)
        except NotHere:
            # The folder of the agreements is gone; what was agreed holds.
            return Names((), self.settings)

    def agreed_with(self, partner: str) -> str:
        """See `VerbBackend`."""
        known = self.engine.context.agreements.by_cpa_id(partner)
        return known[0].cpa_id if known else self.names().agreement(partner)

    def seen(self, see: Callable[[Reader, Names, Instant], T]) -> T:
        """What is seen of the engine's store, as it is committed."""
        context = self.engine.context
        with context.store.reader() as reader:
            return see(reader, self.names(), context.now())


class LocalHandler(_Here):
    """A handler of this process."""

    def __init__(
        self,
        handler: Handler,
        *,
        passing: bool = False,
        reload: Callable[[], Awaitable[int]] | None = None,
        settings: Settings | None = None,
    ) -> None:
        """`reload`: reads the files of the party anew."""
        super().__init__(handler.engine, settings)
        self.here, self.handler = self, handler
        self.passing, self._reload = passing, reload
        self.url = ""
        # Why the admin port does not come up; empty: it does, or there is none.
        self.admin_problem: Callable[[], str] = str
        # See `VerbBackend`.
        self.submit, self.operate, self.taken = handler.send, handler.loop.operate, handler.taken

    async def perform(self, method: Method[..., R], given: BoundArguments) -> R:
        """Do it here."""
        if isinstance(method, Verb):
            body: Callable[..., Coroutine[Any, Any, R]] = method.body
            return await body(self, **checked(method, given).arguments)
        return await method.body(self, *given.args, **given.kwargs)

    @property
    def lease(self) -> Duration:
        """See `VerbBackend`."""
        return self.handler.lease

    @property
    def arrivals(self) -> int:
        """See `VerbBackend`."""
        return self.handler.arrivals

    async def arrival(self, seen: int, timeout: float) -> bool:
        """See `VerbBackend`."""
        await self.handler.arrival(seen, timeout)
        return True

    async def look(self, see: Callable[[Reader, Names, Instant], T]) -> T:
        """See `VerbBackend`; beside the loop, for a search may take its time."""
        return await asyncio.to_thread(self.seen, see)

    async def outcome(self, message_id: str, timeout: float) -> Outcome | None:
        """See `VerbBackend`."""
        state = await self.handler.wait(message_id, timeout)
        return None if state is None else outcome_in(state)

    async def condition(self) -> Status:
        """See `VerbBackend`; one that takes no turns is not called running."""
        store = self.handler.engine.context.store
        try:
            lag = await self.handler.supervisor.probe(PROBE)
        except (TimeoutError, HandlerFailed) as problem:
            why = str(problem) or f"it has taken no turn for {PROBE:.0f} seconds"
            return Status(store.node(), False, os.getpid(), self.url, stuck=why)
        return replace(
            self._condition(self.handler.outage),
            running=True,
            pid=os.getpid(),
            url=self.url,
            passing=self.passing,
            transfers=self.handler.transfers(),
            refusals=self.handler.refusals(),
            lag_ms=round(lag * 1000),
            admin=self.admin_problem(),
        )

    async def read_anew(self) -> int:
        """See `VerbBackend`."""
        return 0 if self._reload is None else await self._reload()


class OfflineStore(_Here):
    """The party's store without a handler: everything but sending and receiving."""

    arrivals = 0

    def __init__(
        self, engine: Engine, lease: Duration = LEASE, settings: Settings | None = None
    ) -> None:
        super().__init__(engine, settings)
        self.here, self.lease = self, lease

    async def perform(self, method: Method[..., R], given: BoundArguments) -> R:
        """Do it here, unless it needs a handler."""
        if isinstance(method, Verb):
            given = checked(method, given)
            if method.needs is Need.HANDLER:
                raise _needs_handler(method.name)
        return await method.body(self, *given.args, **given.kwargs)

    @property
    def handler(self) -> Handler:
        """See `VerbBackend`."""
        raise _needs_handler("this")

    async def submit(self, submission: Submission) -> Accepted:
        """See `VerbBackend`."""
        async with handed_in(self.engine.context, (submission,)) as handed:
            (ready,) = handed.submissions
            accepted = await self.operate(lambda engine: engine.submit(ready))
            # What was submitted before has its own files.
            handed.kept = not accepted.repeated
            return accepted

    async def operate(self, decide: Callable[[Engine], T], step: str = "") -> T:  # noqa: ARG002
        """See `VerbBackend`; what would leave now is found again when a handler starts."""
        result = decide(self.engine)
        self.engine.commit()
        return result

    async def taken(
        self, take: Callable[[Engine, int], list[GivenMessage]], limit: int
    ) -> list[GivenMessage]:
        """See `VerbBackend`."""
        return await self.operate(lambda engine: take(engine, limit))

    async def arrival(self, seen: int, timeout: float) -> bool:  # noqa: ARG002
        """See `VerbBackend`: nothing arrives without a handler."""
        return False

    async def look(self, see: Callable[[Reader, Names, Instant], T]) -> T:
        """See `VerbBackend`."""
        return self.seen(see)

    async def outcome(self, message_id: str, timeout: float) -> Outcome | None:  # noqa: ARG002
        """See `VerbBackend`: without a handler nothing happens, so only what is final is known."""
        with self.engine.context.store.transition() as tx:
            return outcome_in(find_outgoing(tx, message_id).outgoing.state)

    async def condition(self) -> Status:
        """See `VerbBackend`."""
        return self._condition()

    async def read_anew(self) -> int:
        """See `VerbBackend`; the next process that opens the party reads them anyway."""
        return len(self.engine.context.agreements)

    async def close(self) -> None:
        """Let another process have the store."""
        self.engine.context.store.close()


def _needs_handler(verb: str) -> NotAllowed:
    return NotAllowed(
        f"{verb} needs a handler that runs, and none does", remedy="start `oncewire serve`"
    )


# A program's end: the verbs in handier words, over whoever does them.


class Reached:
    """What an open party and its blocking twin share: who does the verbs, and for how long."""

    def __init__(self, settings: Settings, verbs: Remote | LocalHandler) -> None:
        self.verbs, self.agreements = verbs, AgreementFolder(settings)
        self._name, self._closed = settings.party.name, False
        self.transports = settings.transports

    def close(self) -> None:
        """Take no more verbs: the handler that did them is gone."""
        self._closed = True

    def check_open(self) -> None:
        """Refuse a call that would never be answered."""
        if self._closed:
            raise NotAllowed(
                f"the party {self._name} is closed",
                remedy="call it inside the `with` block that opened it",
            )


class PartyFace(PartyVerbs):
    """What a program may ask, with and without an event loop: the verbs of the table, and here
    those that a program has in handier words than the control socket."""

    _reached: Reached

    @Method
    async def send(
        self,
        to: str,
        *documents: Document,
        media_type: str = "",
        options: SendOptions | None = None,
    ) -> Accepted:
        """Send documents to a partner as one message; when this returns, it is stored.

        `to` is the partner's name or PartyId. A document is bytes, a Path, a file that is open for
        reading bytes, or a Payload; a message without any has its action alone to say, which the
        standard allows. A program that may repeat a call after a crash gives `options` a
        message_id of its own: the same id with the same content is accepted again and sent once.
        """
        _given("to", to, str, "name the partner first, then the documents")
        wishes = AS_AGREED if options is None else options
        _given("options", wishes, SendOptions, "give oncewire.SendOptions(...)")
        agreement = find_agreement(self._reached.agreements.readable(to), to)
        payloads = payloads_of(documents, media_type)
        there = self._reached.transports
        return await self._reached.verbs.submit(submission_of(agreement, payloads, wishes, there))

    @Method
    async def submit(self, submission: Submission) -> Accepted:
        """Send a submission that is at hand, such as `message.response(...)`."""
        return await self._reached.verbs.send(submission)

    @Method
    async def confirm(self, message: ReceivedMessage) -> bool:
        """Say that you have a message that `take` gave: it is not handed out again.

        True when that was new; saying it twice is harmless.
        """
        _given("message", message, ReceivedMessage, "give the message that `take` returned")
        return await self._reached.verbs.confirm(message.sender, message.message_id)

    @Method
    async def confirm_notice(self, notice: Notice) -> bool:
        """Say that you know of a failure that `notices` told: it is not told again.

        True when it was still owed; saying it twice is harmless.
        """
        _given("notice", notice, Notice, "give the notice that `notices` returned")
        return await self._reached.verbs.confirm_notice(notice.notice_id)


def _given(name: str, value: object, kind: type, remedy: str) -> None:
    """Refuse an argument that is of another kind than it must be."""
    if not isinstance(value, kind):
        raise InvalidValue(f"{name} is no {kind.__name__}: {repr(value)[:32]}", remedy=remedy)


# The handler's end of the control socket.


logger = logging.getLogger("oncewire.control")


LOOK_EVERY = 0.5
"""Seconds after which it is looked whether the caller still waits for an answer."""


class ControlServer:
    """Serves the verbs of a running handler to other processes of the same user."""

    def __init__(self, path: Path, verbs: Verbs, spool: Spool | None = None) -> None:
        """`spool`: where large documents go as they come."""
        self._path, self._verbs, self._spool = path, verbs, spool
        self._server: asyncio.Server | None = None
        self._guests: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to listen."""
        listener = control.listening_socket(self._path)
        self._server = await asyncio.start_unix_server(
            self._welcome, sock=listener, limit=control.LINE_MAX
        )

    async def stop(self) -> None:
        """Stop listening; callers that wait for an outcome are let go."""
        if self._server is None:
            return
        self._path.unlink(missing_ok=True)
        self._server.close()
        guests = list(self._guests)
        for guest in guests:
            guest.cancel()
        await asyncio.gather(*guests, return_exceptions=True)
        self._server = None

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._guests.add(task)
            task.add_done_callback(self._guests.discard)
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            logger.debug("a command left early")
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                frame = await control.read_frame(reader, self._spool)
            except InvalidValue as error:
                # What follows on this connection cannot be told from what went wrong.
                await control.write_frame(writer, control.error_frame(error))
                return
            if frame is None:
                return
            verb = TABLE.get(str(frame.values.get("verb")))
            answering = self.answer(frame)
            # Whether it may take as long as its caller says; any other ends by itself soon.
            waits = verb is not None and any(
                argument.name == "timeout" for argument in verb.arguments
            )
            try:
                answer = await (_while_there(writer, answering) if waits else answering)
            finally:
                control.give_back(frame.parts)
            try:
                await control.write_frame(writer, answer)
            except InvalidValue as error:
                await control.write_frame(writer, control.error_frame(error))

    async def answer(self, frame: ControlFrame) -> ControlFrame:
        """Do what a request asks for; what goes wrong is an answer too."""
        name = str(frame.values.get("verb"))
        try:
            verb = TABLE.get(name)
            if verb is None:
                raise control.unreadable(f"the handler knows no verb {name[:32]!r}")
            result = await self._verbs.perform(verb, values.read_request(verb, frame))
            return values.answer_frame(verb, result)
        except OncewireError as error:
            return control.error_frame(error)
        except Exception as error:
            logger.exception("a command failed", extra={"verb": name})
            return control.error_frame(OncewireError(f"a fault in the handler itself: {error}"))


async def _while_there(writer: asyncio.StreamWriter, work: Coroutine[Any, Any, T]) -> T:
    """What comes of it, unless the caller hangs up first."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=LOOK_EVERY))[0]:
            if _hung_up(writer):
                raise ConnectionResetError
        return task.result()
    finally:
        task.cancel()


def _hung_up(writer: asyncio.StreamWriter) -> bool:
    """Whether the other side is gone altogether. That it will ask nothing more, as a shell's pipe
    says before it reads the answer, is another matter."""
    if writer.is_closing():
        return True
    poll = select.poll()
    poll.register(writer.get_extra_info("socket").fileno(), 0)
    return any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))
