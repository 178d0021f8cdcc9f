"""Submit: an application's document is read, and becomes a stored message that is due."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import BinaryIO

from msgspec.structs import replace

from oncewire.agreement.agreement import Agreement, Requested
from oncewire.agreement.resolve import binding_to_send, endpoint_type
from oncewire.agreement.rules import sends_synchronously
from oncewire.errors import InvalidValue, NotAllowed, NotHere, OncewireError
from oncewire.handler.actions import Accepted, PostAnswer, Submission
from oncewire.handler.context import BODY_MAX, NOWHERE, HandlerContext, KillPoints
from oncewire.handler.encryption import ENCRYPTED_BYTES_MAX, whole_parcel
from oncewire.handler.facts import facts_of
from oncewire.handler.perform import stream_to_join, stream_to_number
from oncewire.handler.route import Route, addresses_for, route_under
from oncewire.handler.sending.outgoing_document import (
    OutgoingDocument,
    check_splittable,
    compressed_key,
    is_whole,
    needs_parts,
    put_into_spool,
    store_document,
    write_contents,
)
from oncewire.handler.sending.seal import store_outgoing, unpack_draft
from oncewire.handler.spool_reading import LONG_PIECE, SPOOL_ABOVE
from oncewire.journal.identity import identity_digest
from oncewire.message.envelope import (
    TRIAL_SERVICE,
    Acknowledgment,
    AckRequested,
    Actor,
    DeliverySemantics,
    Error,
    ErrorList,
    Header,
    Message,
    MessageKind,
    Payload,
    Reference,
    is_trial,
)
from oncewire.message.form import AckRequest, SyncReplyMode
from oncewire.message.instant import SECOND, Duration, Instant, format_instant
from oncewire.message.payload import DistantPayload
from oncewire.protocol.terms import OnExhausted
from oncewire.store.contract import Transaction
from oncewire.store.records import StoredOutgoing
from oncewire.store.spool_contract import Spool
from oncewire.wire import codec
from oncewire.wire.limits import DEFAULT_LIMITS

PAYLOAD_BYTES_MAX = BODY_MAX - 2 * DEFAULT_LIMITS.header_bytes
"""Bytes of all payloads of a message: with what is around them a body that a handler takes."""

TRIAL_PAUSE: Duration = 3 * SECOND
"""Between two attempts of a trial, since a person waits for it."""


def route_to_send(agreement: Agreement, submission: Submission) -> Route:
    """The binding, the terms and the way of a submission."""
    opens = submission.ref_to_message_id is None
    binding = binding_to_send(agreement, submission.service, submission.action)
    terms = binding.terms
    if submission.best_effort and terms.reliable:
        terms = replace(terms, reliable=False, numbered=False, ordered=False)
    if terms.synchronous and not sends_synchronously(binding, opens=opens):
        # No caller waits on its connection, so it is repeated like any other (SYNC-18).
        terms = replace(terms, sync_mode=SyncReplyMode.NONE)
    if submission.service == TRIAL_SERVICE:
        # A trial is repeated within seconds, and given up by itself.
        hasty = replace(
            terms,
            timeout=TRIAL_PAUSE,
            retry_interval=TRIAL_PAUSE,
            retries=4,
            on_exhausted=OnExhausted.FAIL_MESSAGE,
        )
        terms = hasty if hasty.longest_retry < terms.persist_duration else terms
    return route_under(agreement, binding, terms)


def check_sizes(submission: Submission, route: Route) -> bool:
    """Refuse what the partner would refuse, more than was agreed or than a handler takes; returns
    whether it travels in parts. Sizes that are not known yet are checked once they are."""
    payloads = submission.payloads
    if route.terms.max_size is not None and needs_parts(payloads, route.terms):
        check_splittable(payloads, route)
        return True
    together = sum([payload.size for payload in payloads])
    if together > PAYLOAD_BYTES_MAX:
        raise InvalidValue(
            f"the payloads have {together:,} bytes together, more than {PAYLOAD_BYTES_MAX:,}",
            remedy="send them in several messages, or agree on parts (payload.max_size)",
        )
    if route.security.encrypt and together > ENCRYPTED_BYTES_MAX:
        raise InvalidValue(
            f"the payloads have {together:,} bytes together, and no more than "
            f"{ENCRYPTED_BYTES_MAX:,} are encrypted",
            remedy="send them in several messages, encrypt them before you hand them in, or agree "
            "on TLS instead of security.encrypt",
        )
    return False


def submit(
    context: HandlerContext,
    tx: Transaction,
    submission: Submission,
    acknowledgments: tuple[Acknowledgment, ...] = (),
    warnings: tuple[Error, ...] = (),
) -> Accepted:
    """Build, number if there is a place, store, and begin the first attempt.

    `acknowledgments` and `warnings` ride on it: they answer the message that it responds to
    (ACK-16, ERR-10); on a document in parts only warnings do.
    """
    known = None if submission.message_id is None else tx.outgoing(submission.message_id)
    if known is not None:
        return _repeated(context, tx, known, submission)
    agreement, now = agreement_called(context, submission.cpa_id), context.now()
    if submission.ref_to_message_id is None and not agreement.in_force(now):
        # What answers a message is owed to it, whatever has ended since.
        raise _not_in_force(agreement, now)
    route = route_to_send(agreement, submission)
    in_parts = _check(submission, route)
    conversation_id = submission.conversation_id or context.world.new_id()
    message_id = submission.message_id
    if message_id is None:
        message_id = context.fresh_message_id()
    else:
        _check_unused(tx, message_id)
    key = stream_to_join(context, tx, route.channel_of(conversation_id), route.terms)
    stamp = now
    if key is not None:
        # On a numbered stream strictly later than the message before it.
        channel = stream_to_number(context, tx, key, route.terms)
        channel, stamp = channel.stamp(now)
        tx.save_sending_channel(channel)
    message = _compose(submission, route, message_id, conversation_id, stamp, now)
    if acknowledgments and not in_parts:
        message = replace(message, acknowledgments=acknowledgments)
    if warnings:
        message = replace(message, error_list=ErrorList(warnings))
    if in_parts:
        contents = put_into_spool(context, submission.payloads, route)
        store_document(context, tx, message, facts_of(message), route, contents)
    else:
        purpose = endpoint_type(message.kind, reply=submission.ref_to_message_id is not None)
        addresses = route.addresses(route.terms.transports, purpose)
        store_outgoing(context, tx, message, route, key, addresses)
    return Accepted(message_id, conversation_id)


def _check(submission: Submission, route: Route) -> bool:
    """`check_sizes`, once every document has been read: of others there are no bytes to send."""
    in_parts = check_sizes(submission, route)
    for payload in submission.payloads:
        if not payload.digest and not in_parts:
            problem = f"nobody has read payload {payload.content_id} yet"
            raise InvalidValue(problem, remedy="hand the submission in with `send`")
    return in_parts


def agreement_called(context: HandlerContext, cpa_id: str) -> Agreement:
    """The agreement an application names."""
    found = context.agreements.by_cpa_id(cpa_id)
    if not found:
        raise NotHere(
            f"there is no agreement {cpa_id!r}",
            remedy="name one that `oncewire agreement show` lists",
        )
    return found[0]


def _not_in_force(agreement: Agreement, now: Instant) -> NotAllowed:
    """The refusal of what the partner would refuse: nothing is agreed for today."""
    begins, name = agreement.start, f"agreement {agreement.cpa_id}"
    if begins is not None and now < begins:
        return NotAllowed(
            f"{name} begins at {format_instant(begins)}",
            remedy="send it then, or agree on another period",
        )
    ended = "" if agreement.end is None else format_instant(agreement.end)
    return NotAllowed(f"{name} ended at {ended}", remedy="agree on a new period")


def _repeated(
    context: HandlerContext, tx: Transaction, known: StoredOutgoing, submission: Submission
) -> Accepted:
    """A submission that was accepted before: its answer was lost, its message was not.

    It is composed once more as it was then, under the agreement of then and at that time. If
    the application gave the same, it is the same message down to its identity; what it left to
    us is not compared. Anything else under the id would be accepted and never sent.
    """
    facts, message_id = known.facts, known.outgoing.message_id
    agreement = context.agreement_kept(tx, known.agreement_id)
    if agreement is None:
        agreement = agreement_called(context, submission.cpa_id)
    named = submission.cpa_id in (agreement.cpa_id, *agreement.also_known_as)
    route, then = route_to_send(agreement, submission), known.outgoing.submitted_at
    _check(submission, route)
    conversation_id = submission.conversation_id or facts.conversation_id
    message = _compose(submission, route, message_id, conversation_id, facts.timestamp, then)
    # Earlier versions sent the Service as its caller named it, and not as it is agreed.
    as_called = replace(message, header=replace(message.header, service=submission.service))
    same = facts.digest in (identity_digest(message), identity_digest(as_called)) or (
        facts.digest == _digest_warned(context, tx, known, message)
    )
    if known.relayed_from is not None or not named or not same:
        raise InvalidValue(
            f"MessageId {message_id} was used for another message",
            remedy="give every message an id of its own; to repeat a submission, give what was "
            "given before",
        )
    return Accepted(message_id, facts.conversation_id, repeated=True)


def _digest_warned(
    context: HandlerContext, tx: Transaction, known: StoredOutgoing, message: Message
) -> str:
    """The identity of the message with the warnings that ride on the first one."""
    parcel = tx.outgoing_parcel(known.outgoing.message_id)
    if is_whole(known):
        whole = unpack_draft(OutgoingDocument.read(parcel, known.outgoing.message_id).draft)
    elif parcel is not None:
        whole = whole_parcel(context, parcel)
    else:
        whole = unpack_draft(tx.draft(known.outgoing.message_id) or b"")
    return identity_digest(replace(message, error_list=codec.read(whole).message.error_list))


def _check_unused(tx: Transaction, message_id: str) -> None:
    """Refuse an id that was sent before: its receiver may have forgotten it as well, and then
    the same document would arrive a second time."""
    for gone in tx.removed(message_id):
        if gone.sender is None:
            raise NotAllowed(
                f"message {message_id} was sent from here on {format_instant(gone.at)} and "
                f"removed by retention on {format_instant(gone.removed_at)}",
                remedy=f"`oncewire why {message_id}` tells what became of it; give a new message "
                "an id of its own",
            )


def _compose(
    submission: Submission,
    route: Route,
    message_id: str,
    conversation_id: str,
    stamp: Instant,
    now: Instant,
) -> Message:
    """The message's values, before a number is known.

    Its lifetime counts from `now`. The timestamp may lie ahead of that, by as much as the clock
    was set back: it has to be later than the one before.
    """
    agreement, binding, terms = route.agreement, route.binding, route.terms
    lifetime = submission.time_to_live or terms.time_to_live
    once = terms.reliable and terms.duplicate_elimination
    runs, receipt = terms.runs_protocol, terms.ack_requested
    asks_sync = terms.synchronous and submission.ref_to_message_id is None
    header = Header(
        from_party=agreement.own.party.acting_as(binding.from_role),
        to_party=agreement.partner.party.acting_as(binding.to_role),
        cpa_id=agreement.cpa_id,
        conversation_id=conversation_id,
        # What is agreed, whatever its caller calls it: the partner knows it by its type, too.
        service=binding.service or submission.service,
        action=submission.action,
        message_id=message_id,
        timestamp=stamp,
        ref_to_message_id=submission.ref_to_message_id,
        time_to_live=None if lifetime is None else now + lifetime,
        semantics=DeliverySemantics.ONCE_AND_ONLY_ONCE if once else DeliverySemantics.BEST_EFFORT,
        # At most once without acknowledgements is a combination of its own (ebMS 2.0 §6.6).
        duplicate_elimination=once or binding.rules.duplicate_elimination is Requested.ALWAYS,
        delivery_receipt_requested=receipt if runs and receipt is not AckRequest.NONE else None,
        sync_reply=terms.sync_mode if asks_sync else None,
    )
    wishes = ((Actor.TO_PARTY_MSH, receipt), (Actor.NEXT_MSH, terms.hop_ack_requested))
    message = Message(
        agreement.form.dialect,
        MessageKind.NORMAL,
        header,
        (route.hop(stamp, None if once else AckRequest.NONE),),
        ack_requested=tuple(
            [
                AckRequested(actor, wish is AckRequest.SIGNED)
                for actor, wish in wishes
                if runs and wish is not AckRequest.NONE
            ]
        ),
        manifest=tuple([Reference(f"cid:{each.content_id}") for each in submission.payloads]),
        payloads=submission.payloads,
    )
    return codec.as_stated(message)


def send_copy(context: HandlerContext, tx: Transaction, message_id: str) -> None:
    """Let the stored bytes of a trial leave again, beside its own attempts."""
    stored, parcel = tx.outgoing(message_id), tx.outgoing_parcel(message_id)
    if stored is None or parcel is None or not is_trial(message_id):
        raise NotAllowed(
            f"message {message_id} is no trial that was sent", remedy="copy none but trials"
        )
    transports = context.terms_of(tx, stored.outgoing.terms_id).transports
    ways = list(addresses_for(context, tx, stored, transports).items())
    if ways:
        tx.save_outgoing(stored.outgoing.repeated())
        context.state.actions.append(PostAnswer(*ways[0], parcel, others=tuple(ways[1:])))


# Handing in: documents are read and compressed in a thread, before a turn makes messages of them.
#
# Small ones go into memory, large ones into the spool, piece by piece. A turn then only names
# them: whatever an application hands in, and however slowly it comes, nothing else waits for it.
# Every submission comes this way: of a command, of a program, and of an application that answers.


@dataclass(slots=True)
class SpooledContent:
    """See `Content`: a document that lies in the spool already, and is in use there until somebody
    takes it or gives it back."""

    spool: Spool
    name: str
    size: int
    taken: bool = False

    def open(self) -> BinaryIO:
        """See `Content`."""
        return self.spool.open(self.name)

    def give_back(self) -> None:
        """It will not be taken any more."""
        if not self.taken:
            self.taken = True
            self.spool.give_back(self.name)


@dataclass(slots=True)
class HandedIn:
    """Submissions whose documents are at hand; the files of the spool that they name are in use
    until one says what became of them."""

    spool: Spool
    submissions: tuple[Submission, ...]
    kill: KillPoints = NOWHERE
    files: list[str] = field(default_factory=list)
    # Whether what was committed names them.
    kept: bool = False

    def read(self) -> None:
        """Have every document at hand. Blocks while they are read; what goes wrong leaves
        nothing behind."""
        try:
            self.submissions = tuple(map(self._read, self.submissions))
        except BaseException:
            self.let_go()
            raise

    def let_go(self) -> None:
        """Release the spool files: to the stored messages, or for removal."""
        files, self.files = self.files, []
        for name in files:
            if self.kept:
                self.spool.let_go(name)
            else:
                self.spool.give_back(name)

    def _read(self, submission: Submission) -> Submission:
        room = SPOOL_ABOVE
        payloads = []
        for payload in submission.payloads:
            taken = self._taken(payload, room)
            room -= len(taken.data or b"")
            payloads.append(taken)
        return replace(submission, payloads=tuple(payloads))

    def _taken(self, payload: Payload, room: int) -> Payload:
        """The payload with its bytes, or where in the spool they lie; `room`: so many may be held
        in memory."""
        if not isinstance(payload, DistantPayload):
            if payload.size <= room or payload.spooled is not None:
                return payload
            with payload.open() as file:
                name, size = self._put(b"", file)
            return replace(payload, size=size, digest=name, data=None, spooled=name)
        if isinstance(payload.content, SpooledContent) and not payload.content.taken:
            payload.content.taken = True
            name, size = payload.content.name, payload.content.size
            self.files.append(name)
            made = Payload(payload.content_id, "", size, name, spooled=name)
            return self._same(payload, made)
        with payload.content.open() as file:
            begun = _read(file, room + 1)
            if len(begun) <= room:
                return self._same(payload, Payload.of(payload.content_id, "", begun))
            name, size = self._put(begun, file)
        made = Payload(payload.content_id, "", size, name, spooled=name)
        return self._same(payload, made)

    def _put(self, begun: bytes, file: BinaryIO) -> tuple[str, int]:
        unfinished = self.spool.begin()
        try:
            unfinished.write(begun)
            left = DEFAULT_LIMITS.document_bytes - len(begun)
            while piece := file.read(LONG_PIECE):
                left -= len(piece)
                if left < 0:
                    raise InvalidValue(
                        f"a document has more than {DEFAULT_LIMITS.document_bytes:,} bytes",
                        remedy="hand it in as several documents",
                    )
                unfinished.write(piece)
            self.kill.reach("spool before fsync")
            name, size = unfinished.finish()
            self.kill.reach("spool after fsync")
        except BaseException:
            unfinished.abandon()
            raise
        self.files.append(name)
        return name, size

    def _same(self, given: DistantPayload, made: Payload) -> Payload:
        if given.digest and given.digest != made.digest:
            raise InvalidValue(
                f"the bytes of payload {given.content_id!r} are not what its digest says",
                remedy="hand it in as it is now",
            )
        return replace(made, media_type=given.media_type, mime_headers=given.mime_headers)


def _read(file: BinaryIO, size: int) -> bytes:
    """Read `size` bytes, or all there are: a pipe gives them as they come."""
    pieces: list[bytes] = []
    while size > 0 and (piece := file.read(min(size, LONG_PIECE))):
        if not isinstance(piece, bytes):
            raise InvalidValue("a document is a file of text", remedy="open it with mode 'rb'")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _is_at_hand(submission: Submission) -> bool:
    """Whether every document is small and in memory."""
    size = 0
    for payload in submission.payloads:
        size += payload.size
        if size > SPOOL_ABOVE or isinstance(payload, DistantPayload):
            return False
    return True


def is_ready(context: HandlerContext, submission: Submission) -> bool:
    """Whether a turn can take a submission as it is: nothing is to be read or compressed."""
    return not submission.payloads or (
        _is_at_hand(submission) and _to_compress(context, submission) is None
    )


@asynccontextmanager
async def handed_in(
    context: HandlerContext, submissions: Sequence[Submission]
) -> AsyncIterator[HandedIn]:
    """The submissions with their documents at hand, and compressed where that is agreed, for as
    long as it takes to store them; the caller sets `kept` once they are stored."""
    handed = HandedIn(context.store.spool, tuple(submissions), context.kill)
    if not all(map(_is_at_hand, submissions)):
        reading = asyncio.ensure_future(asyncio.to_thread(handed.read))
        try:
            await asyncio.shield(reading)
        except asyncio.CancelledError:
            # The thread cannot be cancelled; its files are released when it ends.
            reading.add_done_callback(lambda _over: handed.let_go())
            raise
    try:
        async with AsyncExitStack() as compressing:
            for submission in handed.submissions:
                await compressing.enter_async_context(_compressed(context, submission))
            yield handed
    finally:
        handed.let_go()


@asynccontextmanager
async def _compressed(context: HandlerContext, submission: Submission) -> AsyncIterator[None]:
    """A submission has its compressed form at hand for as long as it takes to store it."""
    payloads = submission.payloads
    route = _to_compress(context, submission)
    if route is None:
        yield
        return
    check_splittable(payloads, route)
    contents = await asyncio.to_thread(write_contents, context, payloads, route)
    key = compressed_key(payloads, route)
    waiting = context.state.compressed.setdefault(key, [])
    waiting.append(contents)
    try:
        yield
    finally:
        # What the turn did not take, because it was refused or known, is given back.
        if contents in waiting:
            waiting.remove(contents)
            for content in contents:
                context.store.spool.give_back(content.name)
        if not waiting:
            context.state.compressed.pop(key, None)


def _to_compress(context: HandlerContext, submission: Submission) -> Route | None:
    """The route of a submission that is compressed before its turn, since that takes long; None:
    it is not, or nothing is agreed for it, which its turn says."""
    try:
        agreement = agreement_called(context, submission.cpa_id)
        if all(each.terms.compress_encoding is None for each in agreement.bindings()):
            return None
        route = route_to_send(agreement, submission)
    except OncewireError:
        return None
    terms = route.terms
    compressed = terms.compress_encoding is not None and needs_parts(submission.payloads, terms)
    return route if compressed else None
