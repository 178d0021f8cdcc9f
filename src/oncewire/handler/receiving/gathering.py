"""Gathering: parts of a document arrive, in any order, and wait for each other.

A part is judged, stored and answered like any message. It is not handed to the application but to
its document, and the part that comes last is answered only when the document is whole, also where
some wait for their turn: so what its sender is told of it is true of the document.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from msgspec import structs

from oncewire.errors import (
    DeliveryFailure,
    EbxmlError,
    Inconsistent,
    NotSupported,
    ValueNotRecognized,
)
from oncewire.handler.actions import Join
from oncewire.handler.context import HandlerContext
from oncewire.handler.perform import journal_received
from oncewire.handler.route import Bounds
from oncewire.message.envelope import Header, Message, Split, is_trial
from oncewire.message.form import ID_LENGTH_MAX, Form
from oncewire.message.instant import Instant
from oncewire.message.payload import attachment_in, message_named
from oncewire.protocol.documents import UNFINISHED, DocumentState, SplitDocument, check_part
from oncewire.protocol.notes import HandedOver
from oncewire.protocol.states import IncomingState
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import MessageFacts, SpoolSlice, StoredIncoming, StoredParcel

# Claims: messages that another names by `mid:`, and that wait for it or it for them.
#
# A fragment says nothing of its document, so the message that names fragments (the index) claims
# them. What it names and is not here yet gets a note under the fragment's id, by which it is known
# when it comes. A fragment that comes before its index is known by its Action, and waits as the
# first of two parts of a document that no manifest has named yet.


_NOTE = "mid:"
_CLAIMED = 3
"""What a note tells of a fragment that was named: its index, its ordinal, and how many parts."""


def note_key(message_id: str) -> str:
    """The SplitId under which is noted what is known of a fragment."""
    key = _NOTE + message_id
    return key if len(key) <= ID_LENGTH_MAX else _NOTE + sha256(message_id.encode()).hexdigest()


def is_early(split_id: str) -> bool:
    """Whether that is a fragment which no manifest had named when it came."""
    return split_id.startswith(_NOTE)


def named_in(message: Message) -> tuple[str, ...]:
    """MessageIds of the fragments that a message names, in their order."""
    found = (message_named(reference) for reference in message.manifest)
    return tuple(name for name in found if name is not None)


def split_by_name(tx: Transaction, sender: str, message: Message, form: Form) -> Split | None:
    """Of which document a message is a part, and which: fragments are numbered as their index
    names them, and it comes behind them. None: of none."""
    message_id, named = message.header.message_id, named_in(message)
    if named:
        return Split(message_id, len(named) + 1, len(named) + 1)
    claimed = _claimed_as(tx, sender, message_id)
    if claimed is not None:
        return claimed
    if message.header.action == form.fragment_action and attachment_of(message) is not None:
        return Split(note_key(message_id), 1, 2)
    return None


def split_begun(tx: Transaction, sender: str, message: Message) -> Split | None:
    """The same where fragments are not agreed, or not any more: a message that names what waits
    for it, or that is waited for."""
    count, _ = tx.gathered(sender)
    if not count:
        # Known without a look at the store: most partners have none under way.
        return None
    message_id, named = message.header.message_id, named_in(message)
    if not named:
        return _claimed_as(tx, sender, message_id)
    begun = tx.document(sender, message_id) is not None or early(tx, sender, message)
    return Split(message_id, len(named) + 1, len(named) + 1) if begun else None


def _claimed_as(tx: Transaction, sender: str, message_id: str) -> Split | None:
    """Which part of which document a message is because another has named it."""
    note = tx.document(sender, note_key(message_id))
    if note is None or note.state is not DocumentState.WHOLE or len(note.about) != _CLAIMED:
        return None
    index, number, total = note.about
    return Split(index, int(number), int(total))


def attachment_of(message: Message) -> int | None:
    """Which payload of a fragment is the fragment, from 0: Spine puts a word of HL7 before it."""
    names = [payload.content_id for payload in message.payloads]
    for reference in message.manifest:
        name = reference.content_id
        if name in names and attachment_in(reference) is not None:
            return names.index(name)
    return None


def early(tx: Transaction, sender: str, message: Message) -> dict[int, SplitDocument]:
    """Notes of fragments that a message names and that are here already, by their ordinal."""
    found: dict[int, SplitDocument] = {}
    for number, name in enumerate(named_in(message), 1):
        note, stored = tx.document(sender, note_key(name)), tx.incoming(sender, name)
        waits = stored is not None and stored.incoming.state is IncomingState.GATHERED
        if waits and note is not None and note.state is DocumentState.OPEN:
            found[number] = note
    return found


def check_claims(tx: Transaction, sender: str, message: Message, about: tuple[str, ...]) -> None:
    """Refuse an index that names what cannot be a fragment of its document, and what cannot be a
    fragment. `about`: what it says of the document."""
    named, message_id = named_in(message), message.header.message_id
    if is_trial(message_id):
        problem = "a trial neither names fragments nor is one"
        raise _refusal(ValueNotRecognized, problem, message_id)
    if not named and not message.payloads:
        raise _refusal(Inconsistent, "a fragment has no payload", message_id)
    if len(set(named)) < len(named) or message_id in named:
        raise _refusal(Inconsistent, "the Manifest names a message twice, or its own", message_id)
    note = tx.document(sender, note_key(message_id)) if named else None
    if note is not None:
        raise _nested(message_id)
    for name in named:
        _check_claim(tx, sender, name, about)


def _check_claim(tx: Transaction, sender: str, name: str, about: tuple[str, ...]) -> None:
    note = tx.document(sender, note_key(name))
    if note is not None and note.state is DocumentState.OPEN and note.about != about:
        problem = f"the fragment {name} is of another conversation, Service, CPAId, From or To"
        raise _refusal(Inconsistent, problem, name)
    if note is not None and note.state is DocumentState.WHOLE:
        raise _refusal(Inconsistent, f"another message names the fragment {name} too", name)
    if note is not None and note.state is DocumentState.FAILED:
        problem = f"the fragment {name} was given up: nobody named it in time"
        raise _refusal(DeliveryFailure, problem, name)
    if tx.document(sender, name) is not None:
        raise _nested(name)
    if note is None and tx.incoming(sender, name) is not None:
        problem = f"the message {name} was the application's before it was named as a fragment"
        raise _refusal(Inconsistent, problem, name)
    if note is None and any(gone.sender == sender for gone in tx.removed(name)):
        problem = f"the message {name} is not kept any more that is named as a fragment"
        raise _refusal(DeliveryFailure, problem, name)


def _nested(name: str) -> EbxmlError:
    problem = f"the fragment {name} names fragments itself, which is not put together here"
    return _refusal(NotSupported, problem, name)


def _refusal(kind: type[EbxmlError], problem: str, name: str) -> EbxmlError:
    remedy = "name each fragment once, in one message, with the fragments or before them"
    return kind(problem, location=f"{_NOTE}{name}", remedy=remedy)


def claim(
    context: HandlerContext, tx: Transaction, document: SplitDocument, message: Message
) -> SplitDocument:
    """Note of every fragment that an index names whose it is; those that are here are its
    document's from now on."""
    named, here = named_in(message), early(tx, document.sender, message)
    if message.header.split is not None:
        return document
    total = str(len(named) + 1)
    # Each of them may come persistDuration after the one before.
    until = context.now() + len(named) * context.terms_of(tx, document.terms_id).persist_duration
    for number, name in enumerate(named, 1):
        note = here.get(number) or SplitDocument(
            document.sender, note_key(name), 2, document.terms_id, context.now()
        )
        about = (document.split_id, str(number), total)
        claimed = structs.replace(
            note, size=0, about=about, latest_at=until, state=DocumentState.WHOLE
        )
        tx.save_document(claimed)
        stored = tx.incoming(document.sender, name) if number in here else None
        if stored is not None:
            document = document.add(number, here[number].size)
            hand_to_document(context, tx, stored, Split(document.split_id, number, len(named) + 1))
    return document


def settle_claims(tx: Transaction, document: SplitDocument, index: Message | None) -> None:
    """The fragments of a document are not awaited any more: their notes go with it."""
    for name in () if index is None else named_in(index):
        note = tx.document(document.sender, note_key(name))
        if note is not None:
            tx.save_document(structs.replace(note, latest_at=document.latest_at))


def latest_of(early_ones: Iterable[SplitDocument]) -> dict[tuple[str, ...], Instant]:
    """When the latest came of the fragments that belong together, for all that is known of them:
    those of one sender and one conversation."""
    found: dict[tuple[str, ...], Instant] = {}
    for note in early_ones:
        group = (note.sender, *note.about)
        found[group] = max(found.get(group, 0), note.latest_at)
    return found


def hand_to_document(
    context: HandlerContext, tx: Transaction, stored: StoredIncoming, split: Split | None = None
) -> None:
    """A part is its document's: that is its hand-over, and its confirmation too. `split`: which
    part of which, where it was not known when it came."""
    incoming = structs.replace(stored.incoming, hand_overs=1)
    tx.save_incoming(incoming)
    what = HandedOver(split_id=stored.facts.split_id)
    if split is not None:
        what = HandedOver(split_id=split.split_id, split_number=split.number)
    journal_received(context, tx, stored, what, incoming, incoming.digest)


def parts_of(
    tx: Transaction, document: SplitDocument, index: Message | None
) -> list[StoredIncoming]:
    """HELD and GATHERED parts of a document, in their order; those of an index behind it, also
    those that came before it."""
    listed = tx.parts(*document.key)
    if index is None:
        return listed
    found = (tx.incoming(document.sender, name) for name in named_in(index))
    fragments = [
        each for each in found if each is not None and each.incoming.state is IncomingState.GATHERED
    ]
    return [*(each for each in listed if each.incoming.message_id == document.split_id), *fragments]


INLINE = 16 * 1024
"""Bodies of parts up to this size stay in their rows; larger ones are files, of which the document
is made without being copied."""


def is_gathered(tx: Transaction, sender: str, message_id: str) -> bool:
    """Whether the id is that of a document whose parts are waited for, or put together."""
    count, _ = tx.gathered(sender)
    # Known without a look at the store: most partners have none under way.
    document = tx.document(sender, message_id) if count else None
    return document is not None and document.state in UNFINISHED


def check_id(tx: Transaction, sender: str, message_id: str, header: Header) -> None:
    """Refuse a message under the id of a document: the document will be a message under it."""
    own = header.split is not None and header.split.split_id == message_id
    if own or is_gathered(tx, sender, message_id):
        raise Inconsistent(
            f"MessageId {message_id} is the SplitId of a document",
            location="//MessageData/MessageId",
            remedy="give every message, part and document an id of its own",
        )


def about_document(header: Header, facts: MessageFacts) -> tuple[str, ...]:
    """What a part says of its document, in the order of `ABOUT`; parties by their agreed names.
    A fragment has an Action of its own, and refers to nothing."""
    split = header.split is not None
    return (
        *(facts.cpa_id, facts.from_party, header.from_party.role or ""),
        *(facts.to_party, header.to_party.role or ""),
        *(facts.conversation_id, facts.service),
        *((facts.action, facts.ref_to or "") if split else ()),
    )


def check_gathering(
    context: HandlerContext,
    tx: Transaction,
    sender: str,
    message: Message,
    split: Split,
    facts: MessageFacts,
    terms: Terms,
) -> None:
    """Refuse a part that contradicts those before it, or is more than is taken of anybody."""
    known, about = tx.document(sender, split.split_id), about_document(message.header, facts)
    _check_name(message, split)
    check_part(known, split, about)
    if known is None:
        check_split_id(tx, sender, split.split_id)
    if message.header.split is None:
        check_claims(tx, sender, message, about)
    elif named_in(message):
        raise NotSupported(
            f"part {split.number} names fragments, and is one of a document itself",
            location="//SplitNumber",
            remedy="send a document as parts, or as fragments that another message names",
        )
    elif len(message.payloads) != 1:
        raise Inconsistent(
            f"part {split.number} has {len(message.payloads)} payloads",
            location="//SplitNumber",
            remedy="send each part of a document as the one payload of its message",
        )
    _check_bounds(Bounds.of(context.limits, terms), tx, known, sender, split, message)


def _check_name(message: Message, split: Split) -> None:
    """Refuse a document that is called as fragments are which no manifest names."""
    named = message.header.split is not None or split.split_id == message.header.message_id
    if named and is_early(split.split_id):
        raise ValueNotRecognized(
            f"the id of a document, {split.split_id}, begins like a reference to a message",
            location="//SplitId",
            remedy="send the document under another id",
        )


def check_split_id(tx: Transaction, sender: str, split_id: str) -> None:
    """Refuse a document under the id of a message: one of the two would be lost."""
    taken = tx.incoming(sender, split_id) is not None
    if taken or any(gone.sender == sender for gone in tx.removed(split_id)):
        raise Inconsistent(
            f"SplitId {split_id} is the id of another message or document",
            location="//SplitId",
            remedy="give every document a SplitId of its own",
        )


def _check_bounds(
    bounds: Bounds,
    tx: Transaction,
    known: SplitDocument | None,
    sender: str,
    split: Split,
    message: Message,
) -> None:
    size = sum(payload.size for payload in message.payloads)
    parts = f"a document has {split.total:,} parts"
    bounds.check("document_parts", split.total, parts)
    so_far = size + (0 if known is None else known.size)
    stretches = [each.stretch.size for each in message.manifest if each.stretch is not None]
    whole = max([so_far, *stretches])
    bounds.check("document_bytes", whole, f"a document has {whole:,} bytes", mime=True)
    count, held = tx.gathered(sender)
    if known is None:
        more = f"{count + 1:,} documents would wait for their other parts"
        bounds.check("gathered_documents", count + 1, more)
    held += size
    what = f"{held:,} bytes of documents would wait for their other parts"
    bounds.check("gathered_bytes", held, what, mime=True)


def completes(tx: Transaction, sender: str, split: Split, message: Message) -> bool:
    """Whether the document has all its parts with this one; some may wait for their turn."""
    known = tx.document(sender, split.split_id)
    count = len(early(tx, sender, message)) if known is None else known.count
    return count + 1 >= split.total


def in_spool(context: HandlerContext, parcel: StoredParcel) -> StoredParcel:
    """The bytes of a part where a document can be made of them."""
    body = parcel.body[0] if len(parcel.body) == 1 else b""
    if not isinstance(body, bytes) or len(body) <= INLINE:
        return parcel
    name, length = context.store.spool.put_unblocked(body)
    context.state.spooled.append(name)
    return structs.replace(parcel, body=(SpoolSlice(name, 0, length),))


def gather(
    context: HandlerContext,
    tx: Transaction,
    stored: StoredIncoming,
    message: Message,
    split: Split,
    *,
    last: bool,
) -> None:
    """Note a part that is stored. `last`: the document is complete with it, and it waits for its
    answer."""
    incoming = stored.incoming
    document = tx.document(incoming.sender, split.split_id) or SplitDocument(
        incoming.sender,
        split.split_id,
        split.total,
        incoming.terms_id,
        context.now(),
        about=about_document(message.header, stored.facts),
    )
    document = claim(context, tx, document, message)
    document = structs.replace(
        document.add(split.number, stored.facts.size),
        latest_at=context.now(),
        last_part=incoming.message_id if last else "",
        channel=incoming.channel,
    )
    tx.save_document(document)
    if incoming.state is IncomingState.GATHERED:
        gathered(context, tx, stored)


def gathered(context: HandlerContext, tx: Transaction, stored: StoredIncoming) -> None:
    """The turn of a part has come: it is its document's, which may be complete with it."""
    incoming, split_id = stored.incoming, stored.facts.split_id or ""
    document = tx.document(incoming.sender, split_id)
    if document is None or document.state is not DocumentState.OPEN:
        return
    if is_early(split_id):
        # No manifest has named it yet.
        return
    if not document.last_part and incoming.message_id != split_id:
        # Otherwise it is complete, and what its sender hears of the last part decides over all
        # whose turn came with it.
        hand_to_document(context, tx, stored)
    if not document.complete:
        return
    parts = tx.parts(incoming.sender, split_id)
    if all(part.incoming.state is not IncomingState.HELD for part in parts):
        joining = structs.replace(document.moved(DocumentState.JOINING), position=tx.take_place())
        tx.save_document(joining)
        begin(context, joining)


def begin(context: HandlerContext, document: SplitDocument) -> None:
    """Have a document put together after the commit. What follows it in order waits until a
    commit has made it whole (`forget_joined`)."""
    context.state.joining[document.key] = (document.channel, document.position)
    context.state.actions.append(Join(*document.key))


def forget_joined(context: HandlerContext) -> None:
    """After a commit: nothing waits any more for what it made whole, or gave up."""
    with context.transition() as tx:
        for key in list(context.state.joining):
            document = tx.document(*key)
            if document is None or document.state is not DocumentState.JOINING:
                del context.state.joining[key]


def begin_all(context: HandlerContext, tx: Transaction) -> None:
    """After a restart: what was not put together yet."""
    for document in tx.open_documents():
        if document.state is DocumentState.JOINING and (
            document.key not in context.elsewhere("join")
        ):
            begin(context, document)
