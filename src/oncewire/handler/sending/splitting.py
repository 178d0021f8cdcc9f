"""Splitting: a submission that is too large becomes a document in the spool, and its plan.

Compression comes first, and only what is still too large is split (BIG-2). The files are written
before the turn that names them, in a thread where there is one: a document may take minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from msgspec import structs

from oncewire.errors import InvalidValue
from oncewire.handler.context import HandlerContext
from oncewire.handler.perform import journal_submitted
from oncewire.handler.route import Route
from oncewire.handler.searchable import words_of
from oncewire.handler.sending.outgoing_document import Content, OutgoingDocument
from oncewire.handler.sending.seal import draft_of
from oncewire.journal.identity import document_digest
from oncewire.message.envelope import Message
from oncewire.message.form import Extension, PartsForm
from oncewire.message.payload import Payload
from oncewire.protocol.documents import (
    SplitDocument,
    fragments_needed,
    is_document,
    part_size,
    parts_needed,
)
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import Outgoing, OutgoingEvent
from oncewire.protocol.terms import FlowMode, Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import MessageFacts, StoredOutgoing
from oncewire.store.spool_contract import Spool
from oncewire.wire.limits import Limits, beyond
from oncewire.wire.mime.compression import ENCODINGS, compressed

# Bounds: how large a document may become here, by the handler's own limits and by what two parties
# agreed, whichever is less.


_AGREED = {
    "document_bytes": ("max_document", "payload.max_document"),
    "document_parts": ("max_parts", "payload.max_parts"),
    "compression_ratio": ("max_ratio", "payload.max_ratio"),
    "gathered_bytes": ("quota", "payload.quota"),
}
"""Of a limit: the term that may say less, and the key that it is agreed by."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one agreement, and what each of them is called."""

    limits: Limits
    names: dict[str, str]

    @classmethod
    def of(cls, limits: Limits, terms: Terms) -> Bounds:
        """Of a handler, under these terms."""
        names: dict[str, str] = {}
        for limit, (term, key) in _AGREED.items():
            agreed = getattr(terms, term)
            if agreed is not None and agreed < getattr(limits, limit):
                limits = replace(limits, **{limit: agreed})
                names[limit] = key
        return cls(limits, names)

    def check(self, limit: str, found: int, what: str, *, mime: bool = False) -> None:
        """Refuse more than a bound; `what`: in words, with the number."""
        bound: int = getattr(self.limits, limit)
        if found > bound:
            raise beyond(what, self.names.get(limit, limit), bound, mime=mime)


def check_to_send(limits: Limits, terms: Terms, size: int, parts: int) -> None:
    """Refuse a document that its receiver would refuse; `parts` 0: not counted yet."""
    bounds = Bounds.of(limits, terms)
    for limit, found, what in (
        ("document_bytes", size, "bytes"),
        ("document_parts", parts, "parts"),
    ):
        bound: int = getattr(bounds.limits, limit)
        if found > bound:
            name = bounds.names.get(limit, limit)
            raise InvalidValue(
                f"the document has {found:,} {what}, and no more than {bound:,} are taken ({name})",
                remedy=f"agree on more ({_AGREED[limit][1]}), or send it as several documents",
            )


PIECE = 256 * 1024
"""Bytes of a document that are in memory at once while it is compressed."""

FRAGMENT_ENCODING = "gzip"
"""The one compression that a Manifest with `mid:` references has a word for."""


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
    """Write each payload as it will travel, or take what `handing_in` has written in a thread. The
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
            content = _content(spool, payload, encoding if large else None, ratio)
            contents += [replace(content, inline=mid and not large)]
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


def _content(spool: Spool, payload: Payload, encoding: str | None, ratio: int) -> Content:
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
    bare = structs.replace(message, payloads=(), manifest=())
    draft, _ = draft_of(bare, route.form)
    mid = route.form.parts is PartsForm.MID
    original = OutgoingDocument(draft, contents, route.form.fragment_action if mid else None)
    total = _count_parts(original, terms)
    key = route.channel_of(header.conversation_id)
    terms_id = context.keep_terms(tx, terms)
    outgoing = Outgoing(message_id, terms_id, now, key, expires_at=header.time_to_live)
    stored = StoredOutgoing(
        outgoing,
        structs.replace(facts, split_id=message_id, split_total=total),
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
        fresh = structs.replace(stored, outgoing=moved)
        tx.add_outgoing(fresh, parcel=original.stored(), draft=None, words=words)
        context.state.releasing[message_id] = None
        return
    channel = tx.sending_channel(key) or SendingChannel.open(key, terms)
    # Its parts are later than it, and what follows it is later than they.
    tx.save_sending_channel(structs.replace(channel, last_stamp=channel.last_stamp + total))
    tx.add_outgoing(stored, parcel=original.stored(), draft=None, words=words)
    context.state.admissions[key] = None
