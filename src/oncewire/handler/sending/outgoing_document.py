"""OutgoingDocument: a document of ours as the store keeps it while its parts are sent.

Its row has no bytes that travel. They are the header that all its parts share, as a draft, and the
files of its payloads in the spool, already compressed where that is agreed: a part is a few bytes
of its own around a range of such a file, so the document is there once, however often it is sent.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from msgspec.structs import replace

from oncewire.errors import InvalidValue, StoreDamaged
from oncewire.handler.context import HandlerContext
from oncewire.handler.facts import words_of
from oncewire.handler.perform import (
    first_attempt,
    journal_submitted,
    perform,
    stream_to_join,
    stream_to_number,
)
from oncewire.handler.route import FRAGMENT_ENCODING, Bounds, Route, addresses_for, check_to_send
from oncewire.handler.sending.seal import draft_of, route_of, seal, unpack_draft
from oncewire.journal.identity import document_digest
from oncewire.message.envelope import Message, Payload, Reference
from oncewire.message.form import Extension, PartsForm
from oncewire.message.payload import Attachment, naming
from oncewire.protocol.documents import (
    DocumentState,
    SplitDocument,
    fragments_needed,
    index_acknowledged,
    is_document,
    nth_part,
    part_id,
    part_size,
    parts_needed,
)
from oncewire.protocol.notes import Acknowledged, Effect, Note
from oncewire.protocol.sender import SenderStep
from oncewire.protocol.states import Outgoing, OutgoingEvent, OutgoingState, Proof
from oncewire.protocol.terms import FlowMode, Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import MessageFacts, SpoolSlice, StoredOutgoing, StoredParcel
from oncewire.store.spool_contract import Spool
from oncewire.wire import codec
from oncewire.wire.mime.compression import ENCODINGS, compressed
from oncewire.wire.mime.multipart import TRANSFER, reference_to

CONTENT_TYPE = "application/x-oncewire-document"
"""Of a row whose bytes are no message."""

_HEADER, _ACTION = "payload", "fragment-action"


@dataclass(frozen=True, slots=True)
class Content:
    """One payload of a document, and the file that it travels from."""

    content_id: str
    media_type: str
    # Of the payload as it was handed in.
    size: int
    # Of the file, which is named by its digest.
    name: str
    length: int
    # How it was compressed into that file; None: it is the payload itself.
    encoding: str | None = None
    mime_headers: tuple[tuple[str, str], ...] = ()
    # It is small enough to travel whole, in the message that names the fragments of the others.
    inline: bool = False


@dataclass(frozen=True, slots=True)
class OutgoingDocument:
    """A document as it was handed in."""

    draft: bytes
    contents: tuple[Content, ...]
    # The Action of its fragments (`mid:`); None: its parts say themselves what they are part of.
    fragment_action: str | None = None

    @property
    def travelling(self) -> tuple[Content, ...]:
        """The payloads that are cut into parts."""
        return tuple(content for content in self.contents if not content.inline)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each of them that travel."""
        return tuple(content.length for content in self.travelling)

    def stored(self) -> StoredParcel:
        """The parcel that the store keeps for it."""
        headers = tuple((_HEADER, json.dumps(asdict(content))) for content in self.contents)
        if self.fragment_action is not None:
            headers = ((_ACTION, self.fragment_action), *headers)
        files = (SpoolSlice(content.name, 0, content.length) for content in self.contents)
        return StoredParcel(CONTENT_TYPE, headers, (self.draft, *files))

    @classmethod
    def read(cls, parcel: StoredParcel | None, message_id: str) -> OutgoingDocument:
        """What the store kept. StoreDamaged where that is not what was written."""
        try:
            if parcel is None or parcel.content_type != CONTENT_TYPE:
                raise ValueError("it has no parts")
            draft, *_ = parcel.body
            contents = [json.loads(value) for name, value in parcel.headers if name == _HEADER]
            if not isinstance(draft, bytes):
                raise TypeError("it has no header")
            action = next((value for name, value in parcel.headers if name == _ACTION), None)
            return cls(draft, tuple(_content(values) for values in contents), action)
        except (ValueError, TypeError, KeyError) as problem:
            raise StoreDamaged(
                f"the stored document {message_id} is damaged: {problem}",
                message_id=message_id,
                remedy="put its row back from a backup, or give it up with `oncewire abandon`",
            ) from problem


def names_fragments(parcel: StoredParcel | None) -> bool:
    """Whether a message of the document's own will name its parts, or is there already."""
    if parcel is None:
        return False
    return parcel.content_type != CONTENT_TYPE or any(name == _ACTION for name, _ in parcel.headers)


def _content(values: dict[str, object]) -> Content:
    pairs = values.pop("mime_headers")
    headers = tuple((str(name), str(value)) for name, value in pairs)  # type: ignore[attr-defined]
    return Content(**values, mime_headers=headers)  # type: ignore[arg-type]


def has_parts(stored: StoredOutgoing) -> bool:
    """Whether a row of ours is a document that travels in parts."""
    facts = stored.facts
    return facts.split_id == stored.outgoing.message_id and facts.split_number is None


def is_whole(stored: StoredOutgoing) -> bool:
    """Whether a row of ours is a document of which only the parts travel, now at least: the message
    that names fragments goes out when they have arrived, and is then like any other."""
    return has_parts(stored) and not stored.outgoing.attempts


def is_part(stored: StoredOutgoing) -> bool:
    """Whether a row of ours is a part of a document that was split here: what a hub passes on
    is a message like any other to it."""
    return stored.facts.split_number is not None and stored.relayed_from is None


# Fragments: a document as NHS Spine sends it, named together by the document's own message.
#
# Each fragment is a message that carries a range of a file as base64, and says nothing of what it
# is a range of. When the last of them is acknowledged the document's message goes out, whose
# Manifest names them by their MessageIds (`mid:`), in their order. So it never names what did not
# arrive, and what its sender is told of it is true of the document.


def as_fragment(
    content: Content, payload: Payload, told: tuple[tuple[str, str], ...]
) -> tuple[Payload, Reference]:
    """The payload of a fragment, and its reference; `told`: what it says of the whole."""
    headers = (*content.mime_headers, *told, TRANSFER)
    said = _attachment(content, payload.size)
    return replace(payload, mime_headers=headers), said.described(reference_to(payload.content_id))


def _attachment(content: Content, length: int) -> Attachment:
    """What a reference to a fragment says: the same of all of one payload, but for the length."""
    named = Payload(
        content.content_id, content.media_type, 0, content.name, mime_headers=content.mime_headers
    )
    return Attachment(
        named.file_name or content.content_id,
        content.media_type,
        compressed=content.encoding is not None,
        large=True,
        length=length,
    )


def is_named_apart(tx: Transaction, whole: StoredOutgoing) -> bool:
    """Whether a message of the document's own names its parts, so that they alone end nothing."""
    return not is_whole(whole) or names_fragments(tx.outgoing_parcel(whole.outgoing.message_id))


def index_heard_of(
    tx: Transaction, whole: StoredOutgoing, step: SenderStep, proof: Proof, ack_id: str
) -> SenderStep:
    """What an acknowledgement of a message does to it, where that names fragments: it says that
    the document is there if they are, and no more than is known of them."""
    document = tx.document("", whole.outgoing.message_id) if has_parts(whole) else None
    if document is None or step.outgoing.state is not OutgoingState.DELIVERED or not step.effects:
        return step
    if not document.complete:
        return index_acknowledged(whole.outgoing, proof, ack_id)
    if _rests_on_hubs(tx, document) and not whole.outgoing.taken_back:
        return replace(step, effects=tuple(map(_not_final, step.effects)))
    return step


def _rests_on_hubs(tx: Transaction, document: SplitDocument) -> bool:
    """Whether a hub may still take back what it said of a fragment."""
    names = (part_id(document.split_id, n, document.total) for n in range(1, document.total + 1))
    parts = (part.outgoing for part in map(tx.outgoing, names) if part is not None)
    return any(
        part.state is not OutgoingState.DELIVERED or part.proved_by is Proof.HOP for part in parts
    )


def _not_final(effect: Effect) -> Effect:
    if isinstance(effect, Note) and isinstance(effect.what, Acknowledged):
        return replace(effect, what=replace(effect.what, hop=True))
    return effect


def may_be_named(stored: StoredOutgoing, document: SplitDocument) -> bool:
    """Whether the message that names the fragments is to go out: they are all there, and it did
    not."""
    return (
        document.complete
        and document.state in (DocumentState.OPEN, DocumentState.WHOLE)
        and stored.outgoing.state is OutgoingState.OUTSTANDING
        and is_whole(stored)
    )


def enter_index(
    context: HandlerContext,
    tx: Transaction,
    stored: StoredOutgoing,
    document: SplitDocument,
    terms: Terms,
) -> None:
    """Give the document's own message its bytes and its first attempt."""
    message_id, parcel = stored.outgoing.message_id, tx.outgoing_parcel(stored.outgoing.message_id)
    outgoing = stored.outgoing
    if parcel is None or parcel.content_type == CONTENT_TYPE:
        original = OutgoingDocument.read(parcel, message_id)
        if original.fragment_action is None:
            return
        message = codec.read(unpack_draft(original.draft)).message
        inline = tuple(_inline(content) for content in original.contents if content.inline)
        message = replace(message, manifest=_manifest(original, document, terms), payloads=inline)
        composed = codec.as_stated(message)
        parcel = seal(context, composed, route_of(context, stored, terms, composed))
        outgoing = replace(outgoing, expires_at=composed.header.time_to_live)
        whole = document.moved(DocumentState.WHOLE)
        # From now on it is kept: what is heard of it may come long after its first fragment.
        tx.save_document(replace(whole, latest_at=context.now()))
    addresses = addresses_for(context, tx, stored, terms.transports)
    due = SenderStep(replace(outgoing, next_attempt_at=context.now()), None, ())
    step = first_attempt(context, tx, stored, due, terms, context.now(), addresses)
    perform(context, tx, stored, None, step, terms, parcel=parcel, addresses=addresses)


def _inline(content: Content) -> Payload:
    return Payload(
        content.content_id,
        content.media_type,
        content.size,
        content.name,
        spooled=content.name,
        mime_headers=content.mime_headers,
    )


def _manifest(
    original: OutgoingDocument, document: SplitDocument, terms: Terms
) -> tuple[Reference, ...]:
    """A reference for each payload that is here, and for each fragment of the others, in order."""
    limit, number = part_size(terms, base64=True), 0
    found: list[Reference] = []
    for content in original.contents:
        if content.inline:
            found.append(Reference(reference_to(content.content_id)))
            continue
        for _ in range(max(1, -(-content.length // limit))):
            number += 1
            part = nth_part(original.sizes, limit, number)
            href = naming(part_id(document.split_id, number, document.total))
            found.append(_attachment(content, part.length).described(href))
    return tuple(found)


# Splitting: a submission that is too large becomes a document in the spool, and its plan.
#
# Compression comes first, and only what is still too large is split (BIG-2). The files are written
# before the turn that names them, in a thread where there is one: a document may take minutes.

# Bounds: how large a document may become here, by the handler's own limits and by what two parties
# agreed, whichever is less.


PIECE = 256 * 1024
"""Bytes of a document that are in memory at once while it is compressed."""


def needs_parts(payloads: tuple[Payload, ...], terms: Terms) -> bool:
    """Whether a submission is too large to travel as it is."""
    return is_document(tuple(payload.size for payload in payloads), terms)


def check_splittable(payloads: tuple[Payload, ...], route: Route) -> None:
    """Refuse a submission that is too large where no part of it could be sent or joined."""
    terms, form = route.terms, route.form
    largest = max(payloads, key=lambda payload: payload.size)
    problem = (
        f"payload {largest.file_name or largest.content_id} has {largest.size:,} bytes, and no "
        f"more than {terms.max_size:,} are agreed"
    )
    if not form.splits:
        raise InvalidValue(
            problem,
            remedy='agree on a larger payload.max_size, or on parts (wire.extensions = ["split"])',
        )
    if not terms.reliable:
        raise InvalidValue(
            f"{problem}; what is sent without acknowledgements is not split, for a part that is "
            "lost would be missed by nobody",
            remedy="send it reliably, or agree on a larger payload.max_size",
        )
    if terms.synchronous:
        raise InvalidValue(
            f"{problem}; a document in parts has no connection on which its response could come "
            "back",
            remedy="agree on sync.mode = none or mshSignalsOnly, or on a larger payload.max_size",
        )
    mid = form.parts is PartsForm.MID
    if mid and (terms.numbered or terms.flow is not FlowMode.UNRESTRICTED):
        raise InvalidValue(
            f"{problem}; fragments (payload.parts) have no place in a numbered stream",
            remedy="agree on sequence.numbered = false and flow.mode = unrestricted",
        )
    in_header = mid or form.carries_in_header(Extension.SPLIT)
    if route.security.sign and len(payloads) > 1 and not in_header:
        raise InvalidValue(
            f"{problem}; of which payload a part is would be told beside it, where no signature "
            "covers it",
            remedy="send each payload as a document of its own",
        )
    encoding = terms.compress_encoding
    if encoding is not None and encoding not in ENCODINGS:
        raise InvalidValue(
            f"{problem}; {encoding} is agreed (payload.compress), which is not known here",
            remedy="agree on one of " + ", ".join(ENCODINGS),
        )
    if mid and encoding not in (None, FRAGMENT_ENCODING):
        raise InvalidValue(
            f"{problem}; fragments are compressed by gzip or not at all, {encoding} is agreed",
            remedy="agree on payload.compress = gzip, or none",
        )


def put_into_spool(
    context: HandlerContext, payloads: tuple[Payload, ...], route: Route
) -> tuple[Content, ...]:
    """Write each payload as it will travel, or take what `handed_in` has written in a thread. The
    files are in use: `state.spooled` gets them, or the caller gives them back."""
    ready = context.state.compressed.get(compressed_key(payloads, route))
    return ready.pop() if ready else write_contents(context, payloads, route)


def compressed_key(payloads: tuple[Payload, ...], route: Route) -> tuple[object, ...]:
    """What the files of a document are known by until its turn: its payloads, and every value of
    the agreement that decides how they are written. Two partners may be sent the same document."""
    ids = tuple((payload.content_id, payload.digest) for payload in payloads)
    return (ids, route.terms.max_size, _encoding(route), route.form.parts)


def _encoding(route: Route) -> str | None:
    """How a large payload is compressed; None where its receiver could not be told."""
    form = route.form
    told = form.parts is PartsForm.MID or form.carries_in_header(Extension.COMPRESSION)
    if not told and (route.security.sign or not form.carries(Extension.COMPRESSION)):
        # What no signature covers is not believed, and the document would stay compressed.
        return None
    return route.terms.compress_encoding


def write_contents(
    context: HandlerContext, payloads: tuple[Payload, ...], route: Route
) -> tuple[Content, ...]:
    """Write each payload as it will travel; may be called in any thread."""
    terms, form = route.terms, route.form
    spool, encoding = context.store.spool, _encoding(route)
    mid = form.parts is PartsForm.MID
    contents: list[Content] = []
    try:
        for payload in payloads:
            large = payload.size > (terms.max_size or payload.size)
            ratio = Bounds.of(context.limits, terms).limits.compression_ratio
            content = _spooled_content(spool, payload, encoding if large else None, ratio)
            contents += [dataclasses.replace(content, inline=mid and not large)]
        original = OutgoingDocument(b"", tuple(contents), form.fragment_action if mid else None)
        size = sum(payload.size for payload in payloads)
        check_to_send(context.limits, terms, size, _count_parts(original, terms))
    except BaseException:
        for content in contents:
            spool.give_back(content.name)
        raise
    return tuple(contents)


def _count_parts(original: OutgoingDocument, terms: Terms) -> int:
    """Into how many messages it is cut."""
    mid = original.fragment_action is not None
    needed = fragments_needed if mid else parts_needed
    return needed(original.sizes, part_size(terms, base64=mid))


def _spooled_content(spool: Spool, payload: Payload, encoding: str | None, ratio: int) -> Content:
    told = payload.mime_headers
    if encoding is not None:
        name, length = spool.put(compressed(_bytes_of(spool, payload), encoding))
        # What swells as a bomb does would be taken for one.
        if length < payload.size <= length * ratio:
            facts = (payload.content_id, payload.media_type, payload.size)
            return Content(*facts, name, length, encoding, told)
        spool.give_back(name)
    if payload.spooled is not None:
        # It is there already; another use of it is counted as another `put` would be.
        spool.use(payload.spooled)
        name, length = payload.spooled, payload.size
    else:
        name, length = spool.put(_bytes_of(spool, payload))
    return Content(payload.content_id, payload.media_type, payload.size, name, length, None, told)


def _bytes_of(spool: Spool, payload: Payload) -> Iterator[bytes]:
    if payload.data is not None:
        yield payload.data
        return
    with spool.open(payload.spooled or "") as spooled:
        while piece := spooled.read(PIECE):
            yield piece


def store_document(
    context: HandlerContext,
    tx: Transaction,
    message: Message,
    facts: MessageFacts,
    route: Route,
    contents: tuple[Content, ...],
) -> None:
    """Store a composed message that is too large, so that its parts are sent as there are places.

    It stands in its stream like any other message, and what follows it there waits for its parts.
    """
    header, terms, now = message.header, route.terms, context.now()
    message_id = header.message_id
    context.state.spooled += [content.name for content in contents]
    bare = replace(message, payloads=(), manifest=())
    draft, _ = draft_of(bare, route.form)
    mid = route.form.parts is PartsForm.MID
    original = OutgoingDocument(draft, contents, route.form.fragment_action if mid else None)
    total = _count_parts(original, terms)
    key = stream_to_join(context, tx, route.channel_of(header.conversation_id), terms)
    terms_id = context.keep_terms(tx, terms)
    outgoing = Outgoing(message_id, terms_id, now, key, expires_at=header.time_to_live)
    stored = StoredOutgoing(
        outgoing,
        replace(facts, split_id=message_id, split_total=total),
        route.peer,
        hop=len(message.routing),
        agreement_id=context.keep_agreement(tx, route.agreement),
    )
    tx.save_document(SplitDocument("", message_id, total, terms_id, now, channel=key))
    digest = document_digest([payload.digest for payload in message.payloads])
    journal_submitted(context, tx, stored, header, document_digest=digest)
    words = words_of(message.payloads)
    if key is None:
        # There is no window that its parts could wait for.
        moved = outgoing.moved(OutgoingEvent.WINDOW_ENTERED, expires_at=None)
        fresh = replace(stored, outgoing=moved)
        tx.add_outgoing(fresh, parcel=original.stored(), draft=None, words=words)
        context.state.releasing[message_id] = None
        return
    channel = stream_to_number(context, tx, key, terms)
    # Its parts are later than it, and what follows it is later than they.
    tx.save_sending_channel(replace(channel, last_stamp=channel.last_stamp + total))
    tx.add_outgoing(stored, parcel=original.stored(), draft=None, words=words)
    context.state.admissions[key] = None
