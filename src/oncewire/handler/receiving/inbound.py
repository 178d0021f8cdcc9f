"""Inbound: a body that streams in. Small ones are kept in memory, large ones never are.

A large body goes into the spool as it comes. Its header is read first, and who is not expected
under any agreement is refused there: the rest of it costs nothing.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from msgspec import Struct

from oncewire.agreement.resolve import Resolution, resolve
from oncewire.errors import EbxmlError, MimeProblem, OncewireError, SoapFault
from oncewire.handler.content_digest import is_intact, stated_digest
from oncewire.handler.context import HandlerContext
from oncewire.handler.encryption import ENCRYPTED_BYTES_MAX, SpooledParcel
from oncewire.handler.spool_reading import SPOOL_ABOVE, Reading, RefusedByTerms, TooLong
from oncewire.message.envelope import Message, MessageKind
from oncewire.protocol.hops import HopDuty, hop_duty
from oncewire.protocol.notes import NO_MESSAGE
from oncewire.store.contract import Transaction
from oncewire.store.records import SpoolSlice, StoredParcel
from oncewire.store.spool_contract import Digest, Spool, SpoolFile
from oncewire.transport.contract import AttemptOutcome, Delivery
from oncewire.wire import codec
from oncewire.wire.codec import HeaderRead, Reader, read_all
from oncewire.wire.limits import Limits
from oncewire.wire.parcel import Parcel, PartialHeader, ReadFault, Received
from oncewire.wire.templates.envelope import EnvelopeTemplates

# Expected: whether anybody here waits for a message, judged by its header alone.
#
# Nothing is proved yet, so nothing is promised: the message is judged in full when it is whole. But
# whom no agreement names, and who does not repeat or answer anything that we know, is refused now.


PASSED_BYTES_MAX = 256 * 1024 * 1024
"""The largest payload that a hub passes on without storing it: it has it in memory. What it stores
and forwards stays in its file."""

ENCRYPTED_FACTOR = 2
"""What is encrypted travels as base64 in XML, a third larger and with its keys around it."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the agreement says of a message that is on its way in."""

    # Why it is not taken; None: it may come.
    error: EbxmlError | SoapFault | None = None
    # The most bytes that a payload of it may have as it travels, where that is agreed.
    max_size: int | None = None


def expected(context: HandlerContext, tx: Transaction, received: Received) -> Expected:
    """Whether the rest of a message may come."""
    message = received.message
    try:
        resolution = resolve(context.agreements, message, receiving=True, now=context.now())
    except (EbxmlError, SoapFault) as error:
        # A copy, or an answer, belongs under the agreement of what it repeats or answers.
        return Expected() if _is_about_known(tx, message) else Expected(error)
    passed = resolution.at_hop and hop_duty(message, resolution.terms) is HopDuty.PROXY
    return Expected(max_size=_max_size(resolution, passed=passed))


def _is_about_known(tx: Transaction, message: Message) -> bool:
    message_id, reference = message.header.message_id, message.header.ref_to_message_id
    if tx.incoming_by_id(message_id) or tx.removed(message_id):
        return True
    if reference is None:
        return False
    return tx.outgoing(reference) is not None or bool(tx.incoming_by_id(reference))


def _max_size(resolution: Resolution, *, passed: bool) -> int | None:
    size = resolution.terms.max_size
    if resolution.security.encrypt:
        # It is opened in memory.
        plain = ENCRYPTED_BYTES_MAX if size is None else min(size, ENCRYPTED_BYTES_MAX)
        return plain * ENCRYPTED_FACTOR + 65_536
    if passed:
        # Nothing of it is stored that its onward copy could lie in.
        return PASSED_BYTES_MAX if size is None else min(size, PASSED_BYTES_MAX)
    return size


# Intake: one large body on its way into the spool, read as it passes, nothing of it held.
#
# The header is read as soon as it is there, so the agreement can be asked before the rest comes.
# Digests are made on the way. What cannot be read is not kept: the file goes at once.


class Intake:
    """Feed it the body in a thread; look at `header` and `fault` in between.

    It may be abandoned while a thread still works on it. Then that thread clears up when it is
    done: a file that is closed under a writer's hands may be another one's a moment later.
    """

    def __init__(
        self, spool: Spool, content_type: str, headers: tuple[tuple[str, str], ...], limits: Limits
    ) -> None:
        self._spool = spool
        self._head = Parcel(content_type, b"", headers)
        self._stated = stated_digest(self._head)
        # Of what is not written any more; until then the file makes its own.
        self._digest: Digest | None = None
        self._limits = limits
        self._reader: Reader | None = None
        self._file: SpoolFile | None = None
        self._name: str | None = None
        self._at_work = threading.Lock()
        self._abandoned = False
        # The header, once it is read; nothing in it is believed yet.
        self.header: Received | None = None
        # Why the body is refused, once that is known.
        self.fault: ReadFault | None = None

    @property
    def over(self) -> bool:
        """Whether the rest need not be heard: it is refused, and no digest was stated that
        could show that it was only damaged on its way."""
        return self.fault is not None and self._stated is None

    def begin(self) -> None:
        """Open the file and the reader; StoreFull or StoreGone if there is no place."""
        with self._working():
            self._file = self._spool.begin()
            try:
                self._reader = Reader(self._head.content_type, self._head.headers, self._limits)
            except ReadFault as fault:
                self._refuse(fault)

    def feed(self, pieces: Iterable[bytes]) -> None:
        """Take what came."""
        with self._working():
            # Many small pieces would cost many small steps.
            self._take(b"".join(pieces))

    def _take(self, piece: bytes) -> None:
        if self._reader is None or self._file is None:
            if self._digest is None:
                self._digest = hashlib.sha256()
            self._digest.update(piece)
            return
        self._file.write(piece)
        try:
            for event in self._reader.feed(piece):
                if isinstance(event, HeaderRead):
                    self.header = event.received
        except ReadFault as fault:
            too_large = getattr(fault.error, "location", "") == "payload_bytes"
            self._refuse(RefusedByTerms.of(fault) if too_large else fault)

    def refuse(self, error: EbxmlError | SoapFault) -> None:
        """The agreement does not want it, or its sender is unknown here. Waits for the disk."""
        with self._working():
            if self.header is not None and self.fault is None:
                known = PartialHeader.of(self.header.message)
                header = self.header
                self._refuse(RefusedByTerms((error,), known, header.envelope, header.notes))

    def limit_payloads(self, size: int) -> None:
        """No payload may have more bytes than that."""
        if self._reader is not None:
            self._reader.limit_payloads(size)

    def finish(self) -> tuple[StoredParcel, Reading, Parcel]:
        """The body is over, or its connection: where it lies, and what it says."""
        with self._working():
            return self._finish()

    def _finish(self) -> tuple[StoredParcel, Reading, Parcel]:
        intact = self._stated is None or self._stated == base64.b64encode(self._made()).decode()
        received: Received | None = None
        if self._reader is not None and intact:
            try:
                _, received = self._reader.finish()
            except ReadFault as fault:
                self._refuse(fault)
        head = self._head
        if received is None or self._file is None:
            self._clear()
            nothing = StoredParcel(head.content_type, head.headers, ())
            return nothing, Reading(self.fault if intact else None, intact), head
        self._name, size = self._file.finish()
        self._file = None
        stored = StoredParcel(head.content_type, head.headers, (SpoolSlice(self._name, 0, size),))
        parcel = SpooledParcel.of(stored, self._spool)
        return stored, Reading(parcel.carrying(received)), parcel

    def _made(self) -> bytes:
        """The digest of all that came."""
        made = self._digest if self._file is None else self._file.digest()
        return (made or hashlib.sha256()).digest()

    def abandon(self) -> None:
        """Forget all of it, now or as soon as no thread works on it. Waits for the disk."""
        self._abandoned = True
        if self._at_work.acquire(blocking=False):
            try:
                self._clear()
            finally:
                self._at_work.release()

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        try:
            with self._at_work:
                yield
        finally:
            # A caller that abandoned it meanwhile could not clear up; later ones can by themselves.
            if self._abandoned:
                self.abandon()

    def _refuse(self, fault: ReadFault) -> None:
        # The frames it passed hold what came of the body; they are not needed.
        fault.__traceback__ = fault.__context__ = None
        self.fault = fault
        if self._file is not None:
            self._digest = self._file.digest()
        self._clear()

    def _clear(self) -> None:
        self._reader = None
        file, self._file = self._file, None
        name, self._name = self._name, None
        if file is not None:
            file.abandon()
        if name is not None:
            self._spool.give_back(name)


T = TypeVar("T")

READ_AT_ONCE = 64 * 1024
"""Bodies up to this size are read in their turn: that is quicker than handing them to a thread."""

BATCH = 1024 * 1024
"""Bytes that are handed to a thread together: of a large body one batch is heard, one is read and
one is on its way to the disk, and no more is in memory."""

Expects = Callable[[Received], Awaitable[Expected]]
"""Asks the agreements about a header, before the rest of its message is taken."""


class TooLarge(OncewireError):
    """The body is larger than this handler takes."""


@dataclass(frozen=True, slots=True)
class Inbound:
    """A body that arrived: its bytes, or where in the spool they lie.

    Its file is in use; the taker of the body lets it go, or gives it back.
    """

    parcel: Parcel
    stored: StoredParcel
    # What it says, where that was read as it came.
    reading: Reading | None = None


async def take_in(
    context: HandlerContext, delivery: Delivery, expects: Expects | None = None
) -> Inbound:
    """Read the body to its end, or to where it is refused. Nothing of it is believed yet."""
    if delivery.length is not None and delivery.length > context.body_max:
        raise TooLarge(f"a body of {delivery.length} bytes is more than {context.body_max}")
    pieces: list[bytes] = []
    size = 0
    async for chunk in delivery.body:
        size += len(chunk)
        _check_size(context, size)
        roomy = delivery.allowance.hold(len(chunk))
        pieces.append(chunk)
        if size > (SPOOL_ABOVE if roomy else READ_AT_ONCE):
            return await _Streaming(context, delivery, expects).take(pieces, size)
    context.kill.reach("read after body")
    content_type, headers = _told(delivery)
    body = b"".join(pieces)
    parcel = Parcel(content_type, body, headers)
    stored = StoredParcel(parcel.content_type, headers, (body,))
    if size <= READ_AT_ONCE:
        return Inbound(parcel, stored)
    reading, seconds = await context.state.reading_room.do(lambda: _read(context, parcel))
    delivery.allowance.spend(seconds)
    return Inbound(parcel, stored, reading)


def _told(delivery: Delivery) -> tuple[str, tuple[tuple[str, str], ...]]:
    """What stands around a body, as it can be stored: not every transport knows what its bytes
    mean, and one header must not spoil the commit of everybody's messages."""
    headers = tuple(
        [
            pair if pair[0].isascii() and pair[1].isascii() else (_text(pair[0]), _text(pair[1]))
            for pair in delivery.headers.items()
        ]
    )
    return _text(delivery.content_type), headers


def _text(said: str) -> str:
    return said if said.isascii() else said.encode("utf-8", "replace").decode("utf-8")


def _check_size(context: HandlerContext, size: int) -> None:
    if size > context.body_max:
        raise TooLarge(f"the body has more than {context.body_max} bytes")


def _read(context: HandlerContext, parcel: Parcel) -> Reading:
    if not is_intact(parcel):
        return Reading(None, intact=False)
    try:
        return Reading(
            codec.read(parcel, context.limits, templates=context.caches.templates.envelopes)
        )
    except ReadFault as fault:
        fault.__traceback__ = None
        return Reading(fault)


class _Streaming:
    """A body that is too large to be held."""

    def __init__(
        self, context: HandlerContext, delivery: Delivery, expects: Expects | None
    ) -> None:
        self._context = context
        self._delivery = delivery
        self._expects = expects
        content_type, headers = _told(delivery)
        self._intake = Intake(context.store.spool, content_type, headers, context.limits)
        self._asked = False
        # Bytes of the last batch: they may still be on their way to the disk.
        self._unwritten = 0

    async def take(self, pieces: list[bytes], size: int) -> Inbound:
        """Read on after the first pieces, a batch at a time, until the end or a refusal."""
        context, intake = self._context, self._intake
        try:
            await self._do(intake.begin)
            await self._feed(pieces)
            await self._hear(size)
            context.kill.reach("read after body")
            context.kill.reach("spool before fsync")
            stored, reading, parcel = await self._do(intake.finish)
            self._wrote(0)
            context.kill.reach("spool after fsync")
            context.state.proofs.fresh(stored.spooled, context.now())
        except BaseException:
            # It waits for what is on its way to the disk, and must not do so in the loop; whoever
            # is called off a second time does not wait for it either.
            await asyncio.shield(asyncio.to_thread(intake.abandon))
            raise
        return Inbound(parcel, stored, reading)

    async def _hear(self, size: int) -> None:
        """What comes after so many bytes: while a thread takes one batch, the next is heard."""
        pieces: list[bytes] = []
        held = 0
        feeding: asyncio.Future[None] | None = None
        try:
            async for chunk in self._delivery.body:
                size += len(chunk)
                _check_size(self._context, size)
                if feeding is not None and feeding.done():
                    feeding.result()
                if self._intake.over:
                    break
                roomy = self._delivery.allowance.hold(len(chunk))
                pieces.append(chunk)
                held += len(chunk)
                if held >= BATCH or not roomy:
                    if feeding is not None:
                        await feeding
                    feeding = asyncio.ensure_future(self._feed(pieces))
                    pieces, held = [], 0
                    if not roomy:
                        await feeding
            if feeding is not None:
                await feeding
        finally:
            # A caller that leaves in the middle waits for no thread; its outcome is not asked for.
            if feeding is not None and not feeding.cancel() and not feeding.cancelled():
                feeding.exception()
        await self._feed(pieces)

    async def _feed(self, pieces: list[bytes]) -> None:
        batch, size = tuple(pieces), sum(map(len, pieces))
        pieces.clear()
        if self._intake.fault is None:
            self._delivery.allowance.spool(size)
        await self._do(lambda: self._intake.feed(batch))
        self._wrote(size)
        header = self._intake.header
        if header is None or self._asked or self._expects is None:
            return
        self._asked = True
        expected = await self._expects(header)
        error = expected.error
        if error is not None:
            await self._do(lambda: self._intake.refuse(error))
        elif expected.max_size is not None:
            self._intake.limit_payloads(expected.max_size)

    def _wrote(self, following: int) -> None:
        """A batch is not held any more when the one that follows it was taken."""
        self._delivery.allowance.hold(-self._unwritten)
        self._unwritten = following

    async def _do(self, work: Callable[[], T]) -> T:
        spool = self._context.store.spool

        def measured() -> tuple[T, float]:
            began = spool.worked()
            done = work()
            return done, spool.worked() - began

        (done, seconds), _ = await self._context.state.reading_room.do(measured)
        self._delivery.allowance.spend(seconds)
        return done


# ReadReply: what came back on a connection of ours, and what it says.
#
# Whoever answers us may say as much as whoever sends us something, and is trusted no more. So what
# is long is read beside the event loop here too, under the same deadline.


class ReadReply(Struct, frozen=True):
    """A reply that was read: its messages, or why there are none."""

    parcel: Parcel
    found: tuple[Received, ...] | ReadFault

    def messages(self) -> tuple[Received, ...]:
        """The messages, or the ReadFault that says why there are none."""
        if isinstance(self.found, ReadFault):
            raise self.found
        return self.found

    @property
    def names(self) -> list[str]:
        """MessageIds of the messages in it that are to be stored."""
        found = () if isinstance(self.found, ReadFault) else self.found
        messages = [received.message for received in found]
        return [each.header.message_id for each in messages if each.kind is MessageKind.NORMAL]


Reply: TypeAlias = Parcel | ReadReply
"""What came back; a long one is read already."""


def heard(reply: Reply, limits: Limits, templates: EnvelopeTemplates) -> ReadReply:
    """A reply and what it says: a message, or several in one body (SYNC-8)."""
    if isinstance(reply, ReadReply):
        return reply
    try:
        if not is_intact(reply):
            raise ReadFault((MimeProblem("the reply was damaged on its way"),))
        return ReadReply(reply, read_all(reply, limits, templates=templates))
    except ReadFault as fault:
        # The frames it passed hold what came; they are not needed.
        fault.__traceback__ = fault.__context__ = None
        return ReadReply(reply, fault)


def no_message(fault: OncewireError, reply: Reply, address: str, status: str = "") -> str:
    """In words, what came from an address where a message was awaited. `status`: as HTTP has it,
    where that is not success."""
    came = (reply.parcel if isinstance(reply, ReadReply) else reply).content_type
    media = came.partition(";")[0].strip().lower()
    if not status or not media or "xml" in media:
        what = f"{NO_MESSAGE}: {fault.problem}"
    else:
        what = f"{NO_MESSAGE} but {media}"
    return f"{status} from {address}, and {what}; is its path right?" if status else what


async def hear(context: HandlerContext, outcome: AttemptOutcome) -> ReadReply | None:
    """What came back with an attempt, if it has a body."""
    reply = outcome.reply
    if reply is None or not reply.body:
        return None
    parcel = Parcel(reply.content_type, reply.body, reply.headers)
    if len(parcel.body) <= READ_AT_ONCE:
        return heard(parcel, context.limits, context.caches.templates.envelopes)
    try:
        reading = context.state.reading_room.do(
            lambda: heard(parcel, context.limits, context.caches.templates.envelopes)
        )
        return (await reading)[0]
    except TooLong as problem:
        return ReadReply(parcel, ReadFault((MimeProblem(problem.problem),)))
