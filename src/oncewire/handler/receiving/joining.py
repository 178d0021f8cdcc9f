"""Joining: a document whose parts are all here is handed to the application, once, or refused.

Before: what is to be put together is read from the rows of its parts (`plan_join`). Then the work
is done, outside of any turn (`put_together`). After: the document is a received message of its
own, under its SplitId, and the part that made it complete gets its answer (`finish_join`); or that
part is refused, the document is given up and nothing of it is left (`refuse_join`).
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from msgspec.structs import replace

from oncewire.errors import DeliveryFailure, EbxmlError, Inconsistent, MimeProblem, StoreDamaged
from oncewire.handler.actions import PostReply, Ready
from oncewire.handler.context import HandlerContext
from oncewire.handler.delivering.view import View, accepted, read_view, write_view
from oncewire.handler.encryption import slices_of
from oncewire.handler.facts import words_of
from oncewire.handler.perform import follow
from oncewire.handler.receiving.gathering import (
    attachment_of,
    check_split_id,
    hand_to_document,
    is_early,
    latest_of,
    parts_of,
    settle_claims,
)
from oncewire.handler.route import FRAGMENT_ENCODING, Bounds
from oncewire.handler.sending.answer import answer_error, post_signal
from oncewire.handler.sending.parts import RANGE, WHOLE_DIGEST
from oncewire.handler.sending.respond import Request
from oncewire.journal.identity import document_digest, identity_digest
from oncewire.message.envelope import Error, Message, Payload, Reference, Stretch
from oncewire.message.instant import SECOND, Instant
from oncewire.message.payload import attachment_in, message_named
from oncewire.protocol import notes
from oncewire.protocol.documents import DocumentState, SplitDocument
from oncewire.protocol.notes import Note
from oncewire.protocol.receiver import close_number, hold_deadline
from oncewire.protocol.states import Incoming, IncomingEvent, IncomingState
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import SpoolSlice, StoredIncoming, StoredParcel
from oncewire.store.spool_contract import Spool
from oncewire.wire.limits import Limits, beyond
from oncewire.wire.mime.compression import Inflater
from oncewire.wire.mime.multipart import decoder, is_identity, part_of, reference_to
from oncewire.wire.parcel import PartPlace

PIECE = 256 * 1024
"""Bytes of a document that are in memory at once."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Where a part lies that travelled as base64, or encoded in another way."""

    body: tuple[bytes | SpoolSlice, ...]
    encoding: str


Piece: TypeAlias = bytes | SpoolSlice | Encoded
"""The bytes of one part, or where they lie."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """One payload of a document: the bytes of its parts, in order, and what is said of it."""

    # Its name, media type and other headers; size and digest are found by joining.
    payload: Payload
    body: tuple[Piece, ...]
    # How it was compressed; None: not at all.
    encoding: str | None = None
    # Size and SHA-256 of all that travelled, and size before the compression, where that is told.
    size: int | None = None
    digest: str | None = None
    original_size: int | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """A payload that is whole."""

    payload: Payload
    body: tuple[bytes | SpoolSlice, ...]


def put_together(spool: Spool, contents: Iterable[Pieces], limits: Limits) -> tuple[Joined, ...]:
    """Every payload, checked. Raises the error that its sender is told of if one is not what was
    split, or more than is taken. New files are in use; the caller lets them go."""
    joined: list[Joined] = []
    made: list[str] = []
    left = limits.document_bytes
    try:
        for content in contents:
            whole = _join(spool, content, limits, left, made)
            left -= whole.payload.size
            joined.append(whole)
    except BaseException:
        for name in made:
            spool.give_back(name)
        raise
    return tuple(joined)


def made_files(joined: Iterable[Joined], contents: Iterable[Pieces]) -> list[str]:
    """The files that came to be by joining."""
    before = {
        piece.name
        for content in contents
        for piece in content.body
        if isinstance(piece, SpoolSlice)
    }
    return [
        piece.name
        for whole in joined
        for piece in whole.body
        if isinstance(piece, SpoolSlice) and piece.name not in before
    ]


def _join(spool: Spool, content: Pieces, limits: Limits, left: int, made: list[str]) -> Joined:
    travelled = _Travelled(spool, content)
    lies = tuple(piece for piece in content.body if not isinstance(piece, Encoded))
    if content.encoding is None and len(lies) == len(content.body):
        digest, size = hashlib.sha256(), 0
        for piece in travelled:
            digest.update(piece)
            size += len(piece)
            if size > left:
                raise beyond("a document is too large", "document_bytes", left, mime=True)
        payload = replace(content.payload, size=size, digest=digest.hexdigest(), data=None)
        return Joined(payload, lies)
    file = spool.begin()
    try:
        for piece in _undone(content, travelled, limits, left):
            file.write(piece)
        name, size = file.finish()
    except BaseException:
        file.abandon()
        raise
    made.append(name)
    payload = replace(content.payload, size=size, digest=name, data=None)
    return Joined(payload, (SpoolSlice(name, 0, size),))


def _undone(
    content: Pieces, travelled: Iterable[bytes], limits: Limits, left: int
) -> Iterator[bytes]:
    """What travelled, decompressed where it was compressed."""
    if content.encoding is None:
        size = 0
        for piece in travelled:
            size += len(piece)
            if size > left:
                raise beyond("a document is too large", "document_bytes", left, mime=True)
            yield piece
        return
    inflater = Inflater(content.encoding, limits, size_max=left)
    for piece in travelled:
        yield from inflater.feed(piece)
    yield from inflater.finish()
    if content.original_size not in (None, inflater.size):
        raise MimeProblem(
            f"the payload {content.payload.content_id} has {inflater.size:,} bytes, "
            f"{content.original_size:,} were told",
            location=f"cid:{content.payload.content_id}",
            remedy="send the document again",
        )


class _Travelled:
    """The bytes of the parts one after the other; at their end they are what was split, or an error
    is raised."""

    def __init__(self, spool: Spool, content: Pieces) -> None:
        self._spool, self._content = spool, content

    def __iter__(self) -> Iterator[bytes]:
        content, digest, size = self._content, hashlib.sha256(), 0
        for piece in _read(self._spool, content.body):
            digest.update(piece)
            size += len(piece)
            yield piece
        name = content.payload.content_id
        if content.size not in (None, size):
            raise Inconsistent(
                f"the parts of payload {name} have {size:,} bytes, {content.size:,} were told",
                location="//SplitNumber",
                remedy="send the document again, all of its parts",
            )
        if content.digest not in (None, "", digest.hexdigest()):
            raise MimeProblem(
                f"the parts of payload {name} are not what was split: their digest is another",
                location=f"cid:{name}",
                remedy="send the document again",
            )


def _read(spool: Spool, body: Iterable[Piece]) -> Iterator[bytes]:
    for piece in body:
        if isinstance(piece, bytes):
            yield piece
            continue
        if isinstance(piece, Encoded):
            undo = decoder(piece.encoding)
            for data in _read(spool, piece.body):
                yield undo.feed(data)
            yield undo.finish()
            continue
        with spool.open(piece.name) as spooled:
            spooled.seek(piece.offset)
            left = piece.length
            while left > 0:
                data = spooled.read(min(PIECE, left))
                if not data:
                    raise _cut_off(piece)
                left -= len(data)
                yield data


def _cut_off(piece: SpoolSlice) -> StoreDamaged:
    return StoreDamaged(
        f"spool file {piece.name} is shorter than it was",
        remedy="restore it from a copy of the spool directory",
    )


# Pieces: the parts of a document as they are stored, and which of its payloads each is of.
#
# Parts say themselves which of how many they are, and where in a payload they lie; or another
# message names them in their order (`mid:`), and says of what file they are.


_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18})")
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/=]{44}):")
_OURS = frozenset({RANGE.lower(), WHOLE_DIGEST.lower()})


@dataclass(frozen=True, slots=True)
class PartRead:
    """One part: its payload, what is said of it, and where its bytes lie."""

    message: Message
    payload: Payload
    reference: Reference | None
    body: tuple[Piece, ...]
    # It was compressed before it was cut, whatever its reference has no word for.
    encoding: str | None = None

    @property
    def stretch(self) -> Stretch | None:
        """Which bytes of the payload these are. What the header says counts before what is said
        beside the part, which no signature covers."""
        if self.reference is not None and self.reference.stretch is not None:
            return self.reference.stretch
        told = {name.lower(): value for name, value in self.payload.mime_headers}
        found = _RANGE.fullmatch(told.get(RANGE.lower(), "").strip())
        if found is None:
            return None
        digest = _DIGEST.search(told.get(WHOLE_DIGEST.lower(), ""))
        whole = "" if digest is None else base64.b64decode(digest.group(1)).hex()
        return Stretch(int(found.group(1)), int(found.group(2)), whole)


def read_part(context: HandlerContext, tx: Transaction, listed: StoredIncoming) -> PartRead:
    """A part that is stored; what may stand beside it in its message is not looked at."""
    found = read_payloads(context, tx, listed)
    return found[attachment_of(found[0].message) or 0]


def read_payloads(
    context: HandlerContext, tx: Transaction, listed: StoredIncoming
) -> list[PartRead]:
    """Every payload of a stored message, and where it lies."""
    stored = tx.incoming(listed.incoming.sender, listed.incoming.message_id) or listed
    found: list[PartRead] = []
    if stored.view is not None and stored.parcel is not None:
        view = read_view(stored.view)
        for payload, place in view.parts():
            lies = slices_of(stored.parcel, place.offset, place.length)
            coded = not is_identity(place.encoding)
            body = (Encoded(lies, place.encoding),) if coded else lies
            found.append(PartRead(view.message, payload, reference_of(view.message, payload), body))
        return found
    message = accepted(context, stored)
    for payload in message.payloads:
        name, length = context.store.spool.put((payload.data or b"",))
        context.state.spooled.append(name)
        body = (SpoolSlice(name, 0, length),)
        found.append(PartRead(message, payload, reference_of(message, payload), body))
    return found


def reference_of(message: Message, payload: Payload) -> Reference | None:
    """What the Manifest says of a payload."""
    for reference in message.manifest:
        name = reference.content_id
        if name is not None and part_of(name, (payload.content_id,)) is not None:
            return reference
    return None


def contents(document: SplitDocument, parts: Sequence[PartRead], terms: Terms) -> Iterator[Pieces]:
    """The payloads that the parts are of. Parts of one payload have its Content-ID, and say where
    in it they lie; where they do not say, all are of one payload (slides)."""
    silent = all(part.stretch is None for part in parts)
    groups: list[list[PartRead]] = []
    for part in parts:
        stretch = part.stretch
        begins = not silent and stretch is not None and stretch.offset == 0
        same = groups and (silent or groups[-1][0].payload.content_id == part.payload.content_id)
        if groups and same and not (begins and part.payload.size):
            groups[-1].append(part)
        else:
            groups.append([part])
    names = [group[0].payload.content_id for group in groups]
    if len(set(names)) < len(names):
        raise _do_not_fit(document, "two of its payloads have one Content-ID")
    for group in groups:
        yield _pieces(document, group, terms.compress_encoding)


def _pieces(document: SplitDocument, group: list[PartRead], agreed: str | None) -> Pieces:
    first, end = group[0], 0
    for part in group:
        stretch = part.stretch
        told = (stretch.size, stretch.digest) if stretch else None
        if stretch is not None and stretch.offset != end:
            raise _do_not_fit(document, "its parts leave gaps, or lie over each other")
        if told != ((first.stretch.size, first.stretch.digest) if first.stretch else None):
            raise _do_not_fit(document, "its parts tell different things of the whole")
        end += part.payload.size
    made = first.reference.compression if first.reference is not None else None
    encoding = made.encoding if made is not None else first.payload.content_encoding
    encoding = first.encoding or encoding
    told_headers = first.payload.mime_headers
    headers = tuple(pair for pair in told_headers if pair[0].lower() not in _OURS)
    # Who says where in the document a part lies means the whole of it; what else is compressed is
    # the application's, unless that was agreed.
    told_so = made is not None or first.encoding is not None
    ours = told_so or first.stretch is not None or encoding == agreed
    undone = encoding if ours else None
    kept = None if undone else first.payload.content_encoding
    payload = replace(first.payload, data=None, content_encoding=kept, mime_headers=headers)
    whole = first.stretch
    return Pieces(
        payload,
        tuple(piece for part in group for piece in part.body),
        undone,
        None if whole is None else whole.size,
        None if whole is None else whole.digest,
        made.original_size if made is not None and undone else None,
    )


def _do_not_fit(document: SplitDocument, problem: str) -> Inconsistent:
    return Inconsistent(
        f"document {document.split_id} cannot be put together: {problem}",
        location="//SplitNumber",
        remedy="send the document again, under a SplitId of its own",
    )


# --- a message names them ------------------------------------------------------------------------


def index_of(context: HandlerContext, tx: Transaction, document: SplitDocument) -> Message | None:
    """The message that names the parts of a document; None: they say themselves what they are."""
    stored = tx.incoming(*document.key)
    if stored is None or stored.incoming.state is not IncomingState.GATHERED:
        return None
    return accepted(context, stored) if stored.view is None else read_view(stored.view).message


def contents_named(
    document: SplitDocument, index: Message, here: Sequence[PartRead], fragments: Sequence[PartRead]
) -> Iterator[Pieces]:
    """The payloads of a document whose message names its fragments, in the order of its Manifest:
    what follows each other there under one file name is one payload."""
    # Of each: the file, and whether a fragment is among them.
    groups: list[tuple[str | None, list[PartRead]]] = []
    left, coming = {part.payload.content_id: part for part in here}, iter(fragments)
    for reference in index.manifest:
        part = _referred(reference, left, coming)
        if part is None:
            continue
        said = attachment_in(reference)
        file = None if said is None else said.file_name
        encoding = FRAGMENT_ENCODING if said is not None and said.compressed else None
        part = dataclasses.replace(part, encoding=encoding)
        if groups and file is not None and groups[-1][0] == file:
            groups[-1][1].append(part)
        else:
            groups.append((file, [part]))
    groups += [(None, [part]) for part in left.values()]
    inline = {id(part.message) for part in here}
    names: set[str] = set()
    for _, group in groups:
        whole = all(id(part.message) in inline for part in group)
        # What is not in fragments is the application's as it is.
        bare = [dataclasses.replace(part, encoding=None) for part in group] if whole else group
        pieces = _pieces(document, bare, None)
        yield dataclasses.replace(pieces, payload=_named_once(pieces.payload, names))


def _referred(
    reference: Reference, left: dict[str, PartRead], coming: Iterator[PartRead]
) -> PartRead | None:
    """The payload that a reference is to: of the message itself, or the next fragment."""
    if message_named(reference) is not None:
        return next(coming, None)
    found = None if reference.content_id is None else part_of(reference.content_id, tuple(left))
    return None if found is None else left.pop(found)


def _named_once(payload: Payload, names: set[str]) -> Payload:
    """Fragments of several files may have one Content-ID; the payloads of a document may not."""
    name, count = payload.content_id, 1
    while name in names:
        count += 1
        name = f"{count}.{payload.content_id}"[:255]
    names.add(name)
    return payload if name == payload.content_id else replace(payload, content_id=name)


logger = logging.getLogger("oncewire.handler")

CONTENT_TYPE = "application/x-oncewire-joined"
"""Of a row whose bytes are payloads one after the other; its view says where each lies."""


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """What a document is to be made of."""

    document: SplitDocument
    # The first part, or the message that names all parts: its header is the document's.
    first: Message
    contents: tuple[Pieces, ...]
    limits: Limits
    named: bool = False


def plan_join(
    context: HandlerContext, tx: Transaction, sender: str, split_id: str
) -> JoinPlan | None:
    """What is to be put together; None: nothing any more. Raises the error that its sender is told
    of where the parts do not fit together."""
    document = tx.document(sender, split_id)
    if document is None or document.state is not DocumentState.JOINING:
        return None
    terms = context.terms_of(tx, document.terms_id)
    limits = Bounds.of(context.limits, terms).limits
    index = index_of(context, tx, document)
    listed = parts_of(tx, document, index)
    if index is not None:
        here = read_payloads(context, tx, listed[0])
        fragments = [read_part(context, tx, each) for each in listed[1:]]
        named = tuple(contents_named(document, index, here, fragments))
        return JoinPlan(document, index, named, limits, named=True)
    parts = [read_part(context, tx, each) for each in listed]
    return JoinPlan(document, parts[0].message, tuple(contents(document, parts, terms)), limits)


# --- it is whole ---------------------------------------------------------------------------------


def finish_join(
    context: HandlerContext, tx: Transaction, plan: JoinPlan, joined: tuple[Joined, ...]
) -> None:
    """The document is whole: it is the application's, and its sender is told so."""
    document = tx.document(*plan.document.key)
    if document is None or document.state is not DocumentState.JOINING:
        return
    try:
        if not plan.named:
            check_split_id(tx, *document.key)
    except Inconsistent as error:
        _give_up(context, tx, document, error)
        return
    index = plan.first if plan.named else None
    parts = parts_of(tx, document, index)
    settle_claims(tx, document, index)
    message = _whole(plan, joined)
    row = _row(context, document, parts[0], message, joined)
    if plan.named:
        # The message that named the parts has its own row, by which its copies are known.
        key = f"{document.sender} {context.world.new_id()}"
        row = replace(row, incoming=replace(row.incoming, sender=key))
    last = tx.incoming(document.sender, document.last_part) if document.last_part else None
    request = None if last is None else Request.read(context, tx, last)
    _hand_over(
        context, tx, [part for part in parts if part.incoming.message_id != document.split_id]
    )
    for listed in parts:
        _end(tx, context, listed, IncomingEvent.JOINED, IncomingState.CONFIRMED)
    tx.add_incoming(row, words_of(message.payloads))
    digest = document_digest([payload.digest for payload in message.payloads])
    context.write(
        tx,
        [Note(notes.Joined(document.total), document.split_id)],
        terms_id=document.terms_id,
        peer=row.facts.from_party,
        digest=digest,
        size=row.facts.size,
    )
    tx.save_document(document.moved(DocumentState.WHOLE))
    context.state.actions.append(Ready(1))
    if request is not None and request.owed.owed:
        request.save_ack()
        context.state.actions.append(PostReply(document.sender, document.last_part))


def _hand_over(context: HandlerContext, tx: Transaction, parts: Sequence[StoredIncoming]) -> None:
    """Give the document those that are not its own yet, in the order of their stream."""
    waiting = [part for part in parts if not part.incoming.hand_overs]
    waiting.sort(key=lambda part: _place_in_stream(tx, part.incoming))
    for part in waiting:
        hand_to_document(context, tx, part)


def _place_in_stream(tx: Transaction, incoming: Incoming) -> tuple[int, int]:
    epoch, number = incoming.epoch or 0, incoming.number or 0
    channel = tx.receiving_channel(incoming.channel) if incoming.channel else None
    if channel is None or channel.numbers is None or channel.epoch != epoch:
        return epoch, number
    # Numbers wrap around: the one that is furthest behind the next expected one came first.
    return epoch, -channel.numbers.distance(number, channel.expected)


def _end(
    tx: Transaction,
    context: HandlerContext,
    listed: StoredIncoming,
    event: IncomingEvent,
    to: IncomingState,
) -> None:
    confirmed = context.now() if to is IncomingState.CONFIRMED else None
    ended = listed.incoming.moved(event, to, confirmed_at=confirmed, hand_overs=1)
    tx.save_incoming(ended, forget=to is not IncomingState.CONFIRMED)


def _whole(plan: JoinPlan, joined: tuple[Joined, ...]) -> Message:
    header = replace(plan.first.header, message_id=plan.document.split_id, split=None)
    payloads = tuple(whole.payload for whole in joined)
    references = tuple(Reference(reference_to(payload.content_id)) for payload in payloads)
    return replace(plan.first, header=header, manifest=references, payloads=payloads)


def _row(
    context: HandlerContext,
    document: SplitDocument,
    part: StoredIncoming,
    message: Message,
    joined: tuple[Joined, ...],
) -> StoredIncoming:
    places, offset = [], 0
    for whole in joined:
        places.append(PartPlace(offset, whole.payload.size))
        offset += whole.payload.size
    digest = identity_digest(message)
    incoming = Incoming(
        document.sender,
        document.split_id,
        digest,
        document.terms_id,
        context.now(),
        channel=document.channel,
    ).moved(IncomingEvent.ARRIVED, IncomingState.READY)
    facts = replace(
        part.facts,
        timestamp=message.header.timestamp,
        digest=digest,
        size=offset,
        split_number=None,
    )
    body = tuple(piece for whole in joined for piece in whole.body)
    return StoredIncoming(
        incoming,
        facts,
        part.peer,
        part.transport,
        StoredParcel(CONTENT_TYPE, (), body),
        position=document.position,
        hop=part.hop,
        agreement_id=part.agreement_id,
        view=write_view(View(message, tuple(places))),
    )


# --- it never will be ----------------------------------------------------------------------------


def refuse_join(
    context: HandlerContext, tx: Transaction, sender: str, split_id: str, error: EbxmlError
) -> None:
    """The parts are no document: it is given up, and a connection that waits is told why."""
    document = tx.document(sender, split_id)
    if document is not None and document.state is DocumentState.JOINING:
        _give_up(context, tx, document, error)


def _give_up(
    context: HandlerContext, tx: Transaction, document: SplitDocument, error: EbxmlError
) -> None:
    index = index_of(context, tx, document)
    parts = parts_of(tx, document, index)
    settle_claims(tx, document, index)
    last = tx.incoming(document.sender, document.last_part) if document.last_part else None
    request = None if last is None else Request.read(context, tx, last)
    code, place, problem = error.code, error.location or None, str(error.problem)[:500]
    refused = notes.Refused(code, location=place, problem=problem, split_id=document.split_id)
    peer = parts[0].peer if parts else None
    context.write(tx, [Note(refused, document.split_id)], terms_id=document.terms_id, peer=peer)
    taken = [part for part in parts if part.incoming.state is IncomingState.GATHERED]
    # What was acknowledged is its document's, and shares its fate.
    theirs = [part for part in taken if part.incoming.message_id != document.split_id]
    _hand_over(context, tx, [part for part in theirs if part.answered])
    for listed in parts:
        if listed.incoming.state is IncomingState.HELD:
            # The turn of a part is not awaited any more, nor what follows it.
            key = listed.incoming.channel
            channel = None if key is None else tx.receiving_channel(key)
            if channel is not None:
                follow(context, tx, *close_number(listed.incoming, channel))
        is_last = listed.incoming.message_id == document.last_part and request is not None
        to = IncomingState.REFUSED if is_last else IncomingState.CLOSED
        _end(tx, context, listed, IncomingEvent.NOT_JOINED, to)
    if request is not None:
        _answer(context, tx, request, error, refused)
    tx.save_document(document.moved(DocumentState.FAILED))
    context.state.refusals.count(code, peer or "", problem, document.split_id, context.now())
    # What it lay in goes as soon as that is durable.
    context.state.clean_due_at = min(context.state.clean_due_at, context.now() + SECOND)
    logger.warning(
        "a document is given up", extra={"message_id": document.split_id, "problem": problem}
    )


def _answer(
    context: HandlerContext,
    tx: Transaction,
    request: Request,
    error: EbxmlError,
    refused: notes.Refused,
) -> None:
    """Refuse the part that made the document complete; its copies get the same answer."""
    incoming, errors = request.stored.incoming, (Error.of(error),)
    note = Note.about(incoming, replace(refused, split_id=None))
    context.write(
        tx, [note], terms_id=incoming.terms_id, peer=request.stored.peer, digest=incoming.digest
    )
    answer = answer_error(context, request.message, request.agreement, errors, request.plan)
    if answer is None:
        return
    tx.save_answer(incoming.sender, incoming.message_id, answer)
    if answer.owed:
        key = {"sender": incoming.sender, "message_id": incoming.message_id}
        post_signal(context, request.agreement, answer, **key)
    context.state.actions.append(PostReply(incoming.sender, incoming.message_id))


def give_up_incomplete(context: HandlerContext) -> None:
    """Forget documents of which a part is missing that is not sent any more."""
    with context.transition() as tx:
        waiting = tx.open_documents()
    latest = latest_of(each for each in waiting if is_early(each.split_id))
    for document in waiting:
        trouble = context.isolated_step(partial(_give_up_if_late, context, document, latest))
        if trouble is not None:
            # Looked at again with the next look; the others are not delayed.
            extra = {"message_id": document.split_id}
            logger.error("a document cannot be given up", extra=extra, exc_info=trouble)


def _give_up_if_late(
    context: HandlerContext,
    document: SplitDocument,
    latest: Mapping[tuple[str, ...], Instant],
    tx: Transaction,
) -> None:
    terms = context.terms_of(tx, document.terms_id)
    came = document.latest_at
    if is_early(document.split_id):
        # The message that names it goes out when all of them are there, and may be
        # persistDuration under way.
        came = latest[document.sender, *document.about] + terms.persist_duration
    late = context.now() >= hold_deadline(came, terms)
    if document.state is not DocumentState.OPEN or not late:
        return
    missing = document.total - document.count
    problem = (
        f"{missing:,} of {document.total:,} parts of document {document.split_id} did not "
        "come within persistDuration"
    )
    if is_early(document.split_id):
        problem = "no message named a fragment within persistDuration"
    _give_up(context, tx, document, DeliveryFailure(problem, location="//SplitNumber"))
