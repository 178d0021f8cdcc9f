"""A broker as one transport: what is sent lies there until the receiver has stored it.

SENT is said when the receiver's acknowledgement, which it gives after its commit, was reported: by
then the parcel is gone from the stream. That the broker took it means that it is under way. So its
word can stand for a delivery (RM-7); that it gave up is a non-delivery that it reports (RM-8).
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import hashlib
import json
import logging
import re
import ssl
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncewire.errors import OncewireError, TransportProblem
from oncewire.transport.budget import ReaderShare, ReaderVisit
from oncewire.transport.contract import (
    AttemptOutcome,
    Cargo,
    Delivery,
    OnDelivery,
    Outage,
    OutcomeKind,
    Peer,
    Reply,
    Verdict,
    verdict_of,
    write_block,
)

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext
    from nats.js.api import StreamConfig


# Stream: where a broker keeps parcels until their receiver has them, and what it must promise.
#
# A message leaves such a stream only when its receiver acknowledges it: the stream is made so that
# messages are never discarded, never expire and cannot be deleted. A message that is gone was
# therefore taken.


CONSUMER = "oncewire"
"""The one consumer of a stream; several handlers may share it."""

REMEMBERED = 48 * 3600.0
"""Seconds for which the broker recognises a parcel that is published twice."""

ACK_WAIT = 15.0
"""Seconds after which the broker hands a parcel in again of whose receiver it hears nothing. Its
delivery was lost with a connection, or that handler died: one that works on it says so meanwhile.
A sender's attempt waits longer than this, or it would call a parcel unknown that is on its way."""

MONITOR_MAX = 1024 * 1024
"""Most bytes of an answer of the broker's monitoring."""

_SUBJECT = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


def subject_of(address: str) -> str:
    """The subject that an address names; TransportProblem where it is none."""
    scheme, _, subject = address.partition(":")
    if scheme.lower() != "nats" or len(subject) > 200 or not _SUBJECT.fullmatch(subject):
        raise TransportProblem(
            f"{address[:128]!r} is no address at a broker",
            remedy="write nats:subject, with letters, digits, -, _ and dots between words",
        )
    return subject


def stream_name(subject: str) -> str:
    """The stream of a subject."""
    return "ONCEWIRE-" + subject.replace(".", "-")


async def make_stream(js: JetStreamContext, subject: str, max_deliver: int) -> None:
    """Make the stream and the consumer of our own subject, and check them."""
    from nats.js import api, errors

    name = stream_name(subject)
    # One that is there already may be made otherwise; whether it will do is looked at below.
    with contextlib.suppress(errors.BadRequestError):
        await js.add_stream(
            name=name,
            subjects=[subject],
            retention=api.RetentionPolicy.WORK_QUEUE,
            storage=api.StorageType.FILE,
            discard=api.DiscardPolicy.NEW,
            duplicate_window=REMEMBERED,
            deny_delete=True,
            deny_purge=True,
        )
    check_stream((await js.stream_info(name)).config, subject)
    await js.add_consumer(
        name,
        durable_name=CONSUMER,
        ack_policy=api.AckPolicy.EXPLICIT,
        ack_wait=ACK_WAIT,
        max_deliver=max_deliver,
        max_ack_pending=256,
        # Every acknowledgement is told of, so that senders need not ask.
        sample_freq="100",
    )


def check_stream(config: StreamConfig, subject: str) -> None:
    """Raise TransportProblem where a parcel for that subject may leave the stream before its
    receiver has it, or where the stream does not recognise one that is published twice."""
    from nats.js import api

    wrong = [
        words
        for words, is_so in (
            ("it keeps messages in memory", config.storage != api.StorageType.FILE),
            (
                "messages do not leave it when they are acknowledged",
                config.retention != api.RetentionPolicy.WORK_QUEUE,
            ),
            ("it discards old messages for new ones", config.discard != api.DiscardPolicy.NEW),
            ("it keeps only so many messages of a subject", (config.max_msgs_per_subject or 0) > 0),
            ("messages expire", bool(config.max_age)),
            ("messages may say when they expire", bool(config.allow_msg_ttl)),
            ("a message may replace those before it", bool(config.allow_rollup_hdrs)),
            (f"it does not take {subject}", config.subjects != [subject]),
            (
                f"it forgets in less than {REMEMBERED / 3600:.0f} hours what it has had",
                (config.duplicate_window or 0) < REMEMBERED,
            ),
            ("it may be purged", not config.deny_purge),
            ("messages may be deleted", not config.deny_delete),
            ("it acknowledges nothing", bool(config.no_ack)),
        )
        if is_so
    ]
    if wrong:
        raise TransportProblem(
            f"the stream {config.name} loses messages: {', '.join(wrong)}",
            remedy="let the receiver's handler make it, or change it",
        )


async def check_server(monitor: str) -> None:
    """Raise TransportProblem where the broker acknowledges a parcel before it is on its disk."""
    import aiohttp

    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
            session.get(f"{monitor.rstrip('/')}/jsz?config=true") as response,
        ):
            said = bytearray()
            async for piece in response.content.iter_chunked(65_536):
                said += piece
                if len(said) > MONITOR_MAX:
                    raise ValueError("it says more than anybody asked for")
            told: dict[str, Any] = dict(json.loads(said))
    except (aiohttp.ClientError, OSError, ValueError, TypeError) as error:
        raise TransportProblem(
            f"the broker does not say how it stores: {error}",
            remedy="set broker.monitor to the address of its monitoring (http_port)",
        ) from error
    if not told.get("config", {}).get("sync_always"):
        raise TransportProblem(
            "the broker acknowledges before its disk has it",
            remedy="set sync_interval: always in the jetstream block of its configuration",
        )


# Connection: to one broker, which is waited for while it is away and not used while it is not to
# be trusted.


WAITED_FOR = 5.0
"""Seconds that a start waits for a broker; after that the connection is made in the background."""

LINE_MAX = 64 * 1024
"""Most bytes of a protocol line; the longest is the INFO line of the server and its cluster."""

PARCEL_MAX = 64 * 1024 * 1024
"""Bytes of one message: NATS allows no server more."""

_AGAIN = 2.0
_LOOK = 0.1


@dataclass(frozen=True, slots=True)
class BrokerAccount:
    """What a connection to the broker is made with: where it is, and who we are to it."""

    # `tls://` says nothing to a server without TLS; `nats://` takes it where the server has it.
    url: str
    # Its monitoring, which tells whether it syncs before it acknowledges.
    monitor: str
    subject: str = ""
    user: str = ""
    password: str = ""
    credentials: Path | None = None
    # How often a parcel is handed in that its receiver does not take.
    max_deliver: int = 50
    # Seconds after which it is handed in again to one that could not store it.
    later: float = 10.0
    # Whom to believe; None: the system's authorities.
    context: ssl.SSLContext | None = None


class Connection:
    """One connection to the broker, which reconnects by itself, and the broker's trouble."""

    def __init__(self, settings: BrokerAccount) -> None:
        self.settings = settings
        self.client: Client | None = None
        self.trouble = "it was not asked yet"
        self._opening: asyncio.Task[None] | None = None
        self._heard_once = False
        self._outage = Outage(logger)
        # What the connection complained of last.
        self._complaint = ""

    async def open(self) -> None:
        """Connect; TransportProblem if the broker answers and must not be used. Where it is away,
        the connection is made in the background."""
        if self.settings.subject:
            subject_of(f"nats:{self.settings.subject}")
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._opening = asyncio.get_running_loop().create_task(self._open(first))
        done, _ = await asyncio.wait({first}, timeout=WAITED_FOR)
        if done:
            first.result()
        else:
            self.trouble = "the broker is away"
            self._outage.begins("the broker is away, and is waited for")
            # This start no longer waits; `_open` goes on without it.
            first.cancel()

    async def _open(self, first: asyncio.Future[None]) -> None:
        """Connect, and check again whether the broker can be trusted whenever that is not known."""
        while True:
            try:
                await self._connect()
                if self.trouble and self.client is not None and self.client.is_connected:
                    await self._trust()
            except TransportProblem as problem:
                if not first.done():
                    first.set_exception(problem)
                    return
                if self.trouble != str(problem):
                    logger.error("the broker is not used", extra={"problem": str(problem)})
                self.trouble = str(problem)
                await asyncio.sleep(_AGAIN)
            else:
                if not first.done():
                    first.set_result(None)
                await asyncio.sleep(_LOOK)

    async def _connect(self) -> None:
        from nats.errors import Error

        if self.client is not None:
            return
        said, client = self.settings, _client()
        tls = {} if said.context is None else {"tls": said.context}
        try:
            await client.connect(
                said.url,
                user=said.user or None,
                password=said.password or None,
                user_credentials=str(said.credentials) if said.credentials else None,
                connect_timeout=5,
                allow_reconnect=True,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.5,
                reconnected_cb=self._reconnected,
                error_cb=self._error,
                **tls,
            )
        except (Error, OSError, ValueError) as error:
            raise TransportProblem(f"the broker cannot be used: {_words(error)}") from error
        self._heard_once = True
        self.client = client
        self._outage.ends("the broker is back")

    async def _error(self, error: Exception) -> None:
        """Called by the library for each error of the connection; one that would come again ends
        the first attempt."""
        from nats.errors import Error, NoServersError, StaleConnectionError, UnexpectedEOF

        words = _words(error)
        lost = isinstance(error, (OSError, UnexpectedEOF, StaleConnectionError))
        if lost or self.client is None or not self.client.is_connected:
            self._outage.begins("the broker is away, and is waited for", problem=words)
        elif words != self._complaint:
            logger.info("the broker's connection has trouble", extra={"problem": words})
        self._complaint = words
        away = isinstance(error, (NoServersError, TimeoutError))
        if not self._heard_once and not away and isinstance(error, (Error, ssl.SSLError)):
            raise TransportProblem(
                f"the broker cannot be used: {_words(error)}",
                remedy="look at broker.url, broker.authorities and who we are to it",
            )

    async def _trust(self) -> None:
        """Check that the server syncs before it acknowledges, and make our own stream."""
        from nats.errors import Error

        await check_server(self.settings.monitor)
        if self.settings.subject:
            try:
                await make_stream(
                    self.stream_context(), self.settings.subject, self.settings.max_deliver
                )
            except (Error, OSError, TimeoutError) as error:
                raise TransportProblem(f"the broker cannot be used: {_words(error)}") from error
        self.trouble = ""

    async def _reconnected(self) -> None:
        """Check the broker again: it may be another server, or have another configuration."""
        self.trouble = "it is asked again how it stores"
        self._outage.ends("the broker is back")

    def stream_context(self) -> JetStreamContext:
        """The JetStream context of the connection; TransportProblem while there is none."""
        if self.client is None:
            raise TransportProblem("the broker is away")
        return self.client.jetstream()

    async def until_ready(self) -> JetStreamContext:
        """Wait until the broker is connected and trusted."""
        # What was under way when the last run ended is taken up before this one has connected.
        while self.client is None or not self.client.is_connected or self.trouble:
            await asyncio.sleep(_LOOK)
        return self.client.jetstream()

    async def close(self) -> None:
        """End the connection, or the attempt to connect."""
        if self._opening is not None:
            self._opening.cancel()
        client, self.client = self.client, None
        if client is not None:
            with contextlib.suppress(Exception):
                await client.close()


def _client() -> Any:
    from nats.aio.client import Client
    from nats.errors import Error, ProtocolError
    from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

    class Bounded(Parser):
        """A parser that bounds what the library would otherwise buffer without limit."""

        async def parse(self, data: bytes = b"") -> None:
            await super().parse(data)
            in_line = self.state == AWAITING_CONTROL_LINE
            if (in_line and len(self.buf) > LINE_MAX) or self.needed > PARCEL_MAX:
                raise ProtocolError("nats: the server says more than anybody asked for")

    class Guarded(Client):
        """Refuses a server without the TLS that is asked for; the library would go on."""

        def _connect_command(self) -> bytes:
            server = self._current_server
            wanted = server is not None and server.uri.scheme == "tls"
            if wanted and not self._server_info.get("tls_required"):
                raise Error("the server offers no TLS")
            command: bytes = super()._connect_command()
            return command

    client = Guarded()
    client._ps = Bounded(client)  # noqa: SLF001  (the library has no other door to it)
    return client


logger = logging.getLogger("oncewire.broker")

NAME = "broker"
LOOK_EVERY = 5.0
"""Seconds after which a sender asks for a parcel itself, in case its report was missed."""

_REASON_LENGTH = 300
_AT_ONCE = 32
_PIECE = 256 * 1024
_MEMORY = 64 * 1024 * 1024
_LOST = "the broker lost the stream, so nobody knows whether it was taken"


@dataclass(frozen=True, slots=True)
class _Stream:
    """One stream; `created` tells it from another one that was made under the same name."""

    name: str
    subject: str
    created: datetime.datetime | None


class BrokerTransport:
    """Publishes parcels, waits until they are taken, and takes those of our own subject."""

    name = NAME
    can_answer = False

    def __init__(self, settings: BrokerAccount) -> None:
        self.settings = settings
        self._connection = Connection(settings)
        self._tasks: set[asyncio.Task[None]] = set()
        # Who waits for a report, by stream and place in it.
        self._waiting: dict[tuple[str, int], asyncio.Future[str]] = {}
        self._heard: set[str] = set()
        self._sends: set[asyncio.Task[Any]] = set()
        # Parcels that our handler is storing, by the subject that each is acknowledged at.
        self._in_work: dict[str, Any] = {}

    async def start(self, on_delivery: OnDelivery) -> None:
        """Connect, and begin to take; TransportProblem if the broker is not one to be trusted. One
        that is away is waited for."""
        try:
            await self._connection.open()
        except BaseException:
            await self.stop()
            raise
        if self.settings.subject:
            self._keep(self._take_all(self.settings.subject, on_delivery))
            self._keep(self._say_in_work())

    def _keep(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- out ---

    async def send(self, cargo: Cargo, address: str, *, timeout: float) -> AttemptOutcome:
        """Publish, and wait until it was taken; see `Transport`. A broker that is away is waited
        for: what it knows already it does not take twice."""
        task = asyncio.current_task()
        if task is not None:
            self._sends.add(task)
        published = False
        try:
            async with asyncio.timeout(timeout):
                async with asyncio.timeout(cargo.begin_within):
                    js, subject = await self._ready(address)
                    body = b"".join([piece async for piece in cargo.chunks()])
                    headers = self._headers(cargo, body)
                    stream = await self._stream_of(js, subject)
                    await self._hear(stream.name)
                published = True
                place = await self._publish(js, subject, body, headers)
                del body
                reported = await self._until_gone(js, stream, place)
        except TimeoutError:
            kind = OutcomeKind.UNKNOWN if published else OutcomeKind.REFUSED
            return AttemptOutcome(kind, "not taken in time" if published else self._away())
        except TransportProblem as problem:
            return AttemptOutcome(OutcomeKind.REFUSED, str(problem)[:_REASON_LENGTH])
        finally:
            self._sends.discard(task)
        if reported:
            return AttemptOutcome(OutcomeKind.UNKNOWN, reported[:_REASON_LENGTH])
        return AttemptOutcome(OutcomeKind.SENT)

    def _away(self) -> str:
        return self._connection.trouble or "the broker is away"

    async def _ready(self, address: str) -> tuple[JetStreamContext, str]:
        subject = subject_of(address)
        return await self._connection.until_ready(), subject

    def _headers(self, cargo: Cargo, body: bytes) -> dict[str, str]:
        if len(body) != cargo.size:
            raise TransportProblem(f"the cargo is not {cargo.size} bytes long as it said")
        client = self._connection.client
        limit = client.max_payload if client is not None else 0
        if len(body) > limit - 65_536:
            raise TransportProblem(
                f"{len(body)} bytes are more than the broker takes ({limit})",
                remedy="raise max_payload there, or agree on another transport",
            )
        headers = {"Content-Type": cargo.content_type, **dict(cargo.headers)}
        write_block(headers.items())
        # Published again because nothing was heard, it is one parcel to the broker. So is one that
        # it answers for, in whichever run; any other is resent for its receiver to see.
        known_by = f"{cargo.once}\n".encode() + body if cargo.once else uuid.uuid4().bytes
        headers["Nats-Msg-Id"] = hashlib.sha256(known_by).hexdigest()
        return headers

    async def _stream_of(self, js: JetStreamContext, subject: str) -> _Stream:
        from nats.errors import Error
        from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

        while True:
            try:
                info = await js.stream_info(stream_name(subject))
                break
            except NotFoundError as error:
                raise TransportProblem(
                    f"nobody takes {subject} at the broker",
                    remedy="start the receiver's handler once",
                ) from error
            except (Error, OSError, TimeoutError) as error:
                if isinstance(error, APIError) and not isinstance(error, ServiceUnavailableError):
                    problem = f"the broker does not answer: {_words(error)}"
                    raise TransportProblem(problem) from error
                # It went away just now, or is not all there yet: nothing has left.
                await asyncio.sleep(0.2)
                js = await self._connection.until_ready()
        check_stream(info.config, subject)
        return _Stream(str(info.config.name), subject, info.created)

    async def _publish(
        self, js: JetStreamContext, subject: str, body: bytes, headers: dict[str, str]
    ) -> int:
        from nats.errors import Error
        from nats.js.errors import APIError

        while True:
            try:
                taken = await js.publish(subject, body, headers=headers, timeout=5)
            except APIError as error:
                raise TransportProblem(f"the broker refused it: {_words(error)}") from error
            except (Error, OSError, TimeoutError) as error:
                # It may have it: published again, it is still one.
                logger.debug("published again", extra={"problem": _words(error)})
                await asyncio.sleep(0.5)
            else:
                return taken.seq

    async def _hear(self, stream: str) -> None:
        """Subscribe to the broker's reports about a stream; they wake the senders that wait."""
        client = self._connection.client
        if stream in self._heard or client is None:
            return
        self._heard.add(stream)
        name = f"{stream}.{CONSUMER}"
        await client.subscribe(f"$JS.EVENT.METRIC.CONSUMER.ACK.{name}", cb=self._on_report)
        advisory = f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{name}"
        await client.subscribe(advisory, cb=self._on_report)

    async def _on_report(self, report: Any) -> None:
        try:
            told = json.loads(report.data)
            key = (str(told["stream"]), int(told["stream_seq"]))
        except (ValueError, KeyError, TypeError):
            return
        waiting = self._waiting.get(key)
        if waiting is not None and not waiting.done():
            gave_up = "max_deliver" in str(told.get("type", ""))
            waiting.set_result(f"the broker gave up after {told.get('deliveries')} deliveries"
                               if gave_up else "")  # fmt: skip

    async def _until_gone(self, js: JetStreamContext, stream: _Stream, place: int) -> str:
        """Wait until the receiver has acknowledged the parcel; returns why it never will, or ""."""
        key = (stream.name, place)
        pause = 0.0
        while True:
            future = self._waiting.setdefault(key, asyncio.get_running_loop().create_future())
            if await self._is_gone(js, stream.name, place):
                self._waiting.pop(key, None)
                return await self._lost(js, stream)
            done, _ = await asyncio.wait({future}, timeout=LOOK_EVERY)
            if done:
                self._waiting.pop(key, None)
                if future.result():
                    return future.result()
                # It is told a moment before it is gone.
                pause = min(pause + 0.01, 0.5)
                await asyncio.sleep(pause)

    async def _is_gone(self, js: JetStreamContext, stream: str, place: int) -> bool:
        from nats.errors import Error
        from nats.js.errors import NotFoundError

        try:
            await js.get_msg(stream, place)
        except NotFoundError:
            return True
        except (Error, OSError, TimeoutError):
            pass
        return False

    async def _lost(self, js: JetStreamContext, stream: _Stream) -> str:
        """Why a parcel may have left the stream without being taken: the stream was lost, or its
        settings were changed. Empty where neither happened."""
        from nats.errors import Error
        from nats.js.errors import NotFoundError

        while True:
            try:
                info = await js.stream_info(stream.name)
            except NotFoundError:
                return _LOST
            except (Error, OSError, TimeoutError):
                await asyncio.sleep(0.2)
            else:
                break
        if info.created != stream.created:
            return _LOST
        try:
            check_stream(info.config, stream.subject)
        except TransportProblem as problem:
            # It was sound when the parcel was published; what it is now may have cost the parcel.
            return str(problem)
        return ""

    async def probe(self, address: str, *, timeout: float) -> AttemptOutcome:
        """Whether the broker is there and the receiver's stream is; see `Transport`."""
        try:
            async with asyncio.timeout(timeout):
                js, subject = await self._ready(address)
                await self._stream_of(js, subject)
        except TimeoutError:
            return AttemptOutcome(OutcomeKind.REFUSED, self._away())
        except TransportProblem as problem:
            return AttemptOutcome(OutcomeKind.REFUSED, str(problem)[:_REASON_LENGTH])
        return AttemptOutcome(OutcomeKind.SENT)

    # --- in ---

    async def _take_all(self, subject: str, on_delivery: OnDelivery) -> None:
        from nats.errors import Error

        name = stream_name(subject)
        places = asyncio.Semaphore(_AT_ONCE)
        pull = None
        while pull is None:
            js = await self._connection.until_ready()
            try:
                pull = await js.pull_subscribe_bind(CONSUMER, name)
            except (Error, OSError, TimeoutError) as error:
                logger.debug("the broker is asked again", extra={"problem": _words(error)})
                await asyncio.sleep(1)

        taking: dict[asyncio.Task[None], int] = {}
        share = ReaderShare()

        async def each(message: Any) -> None:
            try:
                await self._take(message, on_delivery, share)
            finally:
                places.release()

        while True:
            await places.acquire()
            await share.turn()
            # A parcel comes as a whole, and its size is not known before.
            while sum(taking.values()) > _MEMORY:
                await asyncio.wait(taking, return_when=asyncio.FIRST_COMPLETED)
            try:
                (message,) = await pull.fetch(1, timeout=5)
            except (Error, OSError, TimeoutError):
                # Nothing is there, or the broker is away.
                places.release()
                await asyncio.sleep(0.05)
                continue
            task = self._keep(each(message))
            taking[task] = len(message.data)
            task.add_done_callback(taking.pop)

    async def _take(self, message: Any, on_delivery: OnDelivery, share: ReaderShare) -> None:
        from nats.errors import Error

        async def body() -> AsyncIterator[bytes]:
            for start in range(0, len(message.data), _PIECE):
                yield message.data[start : start + _PIECE]

        headers = {name.lower(): value for name, value in (message.headers or {}).items()}
        verdict = Verdict.LATER
        reply: Reply | None = None
        self._in_work[message.reply] = message
        with ReaderVisit(share) as visit:
            delivery = Delivery(
                NAME,
                headers.get("content-type", ""),
                headers,
                body(),
                len(message.data),
                Peer(address=message.subject),
                allowance=visit,
            )
            try:
                reply = await on_delivery(delivery)
                verdict = verdict_of(reply)
            except OncewireError as problem:
                logger.warning("a parcel was not taken", extra={"problem": str(problem)})
            finally:
                del self._in_work[message.reply]
                share.note(reply, visit)
        with contextlib.suppress(Error, OSError):
            if verdict is Verdict.TAKEN:
                await message.ack()
            else:
                # To let it go would look as if it had been taken. Handed in often enough in vain,
                # the broker reports that it was not delivered.
                await message.nak(delay=self.settings.later if verdict is Verdict.LATER else 0.1)

    async def _say_in_work(self) -> None:
        """Tell the broker of parcels that take long to store, so that it does not hand them in
        again."""
        from nats.errors import Error

        while True:
            await asyncio.sleep(ACK_WAIT / 3)
            for message in tuple(self._in_work.values()):
                with contextlib.suppress(Error, OSError):
                    await message.in_progress()

    async def stop(self) -> None:
        """Take no more parcels; senders that wait for a report wait again after the next start."""
        for task in (*self._tasks, *self._sends):
            task.cancel()
        await self._connection.close()


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
