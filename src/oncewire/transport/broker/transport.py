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
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oncewire.errors import OncewireError, TransportProblem
from oncewire.transport.broker import stream as streams
from oncewire.transport.broker.connection import BrokerSettings, Connection
from oncewire.transport.budget import ReaderShare, ReaderVisit
from oncewire.transport.contract import (
    AttemptOutcome,
    Cargo,
    Delivery,
    OnDelivery,
    OutcomeKind,
    Peer,
    Reply,
    Verdict,
    verdict_of,
)
from oncewire.transport.header_block import write_block

if TYPE_CHECKING:
    from nats.js import JetStreamContext

logger = logging.getLogger("oncewire.broker")

NAME = "broker"
LOOK_EVERY = 5.0
"""Seconds after which a parcel is looked for whose report may have been missed."""

_REASON_LENGTH = 300
_AT_ONCE = 32
_PIECE = 256 * 1024
_MEMORY = 64 * 1024 * 1024
_LOST = "the broker lost the stream, so nobody knows whether it was taken"


@dataclass(frozen=True, slots=True)
class _Stream:
    """One stream; another one of the same name was made at another time."""

    name: str
    subject: str
    created: datetime.datetime | None


class BrokerTransport:
    """Publishes parcels, waits until they are taken, and takes those of our own subject."""

    name = NAME
    can_answer = False

    def __init__(self, settings: BrokerSettings) -> None:
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
        subject = streams.subject_of(address)
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
                info = await js.stream_info(streams.stream_name(subject))
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
        streams.check_stream(info.config, subject)
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
        """Have reports about a stream wake those who wait."""
        client = self._connection.client
        if stream in self._heard or client is None:
            return
        self._heard.add(stream)
        name = f"{stream}.{streams.CONSUMER}"
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
        """Wait until the receiver has acknowledged it; returns why that will not be, or nothing."""
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
        """What is wrong where a parcel may have gone otherwise than by being taken: with the whole
        stream, or because somebody changed it."""
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
            streams.check_stream(info.config, stream.subject)
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

        name = streams.stream_name(subject)
        places = asyncio.Semaphore(_AT_ONCE)
        pull = None
        while pull is None:
            js = await self._connection.until_ready()
            try:
                pull = await js.pull_subscribe_bind(streams.CONSUMER, name)
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
            # A parcel comes as a whole, and how large it is nobody knows before.
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
            await asyncio.sleep(streams.ACK_WAIT / 3)
            for message in tuple(self._in_work.values()):
                with contextlib.suppress(Error, OSError):
                    await message.in_progress()

    async def stop(self) -> None:
        """Take no more; who waits for a report waits again after the next start."""
        for task in (*self._tasks, *self._sends):
            task.cancel()
        await self._connection.close()


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
