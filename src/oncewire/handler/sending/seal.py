"""Seal: a message's values become the bytes that are stored, sent and sent again.

Bytes are made exactly once, when everything they say is known: at submission, or, on a
numbered stream, when the message enters the window. Until then a waiting message is kept
as a draft, which is the same message without its number.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping

from msgspec.structs import replace

from oncewire.agreement.agreement import Direction
from oncewire.agreement.resolve import find_binding
from oncewire.errors import AgreementProblem, SecurityFailure, StoreProblem
from oncewire.handler.content_digest import (
    headers_with_digest,
    with_body_digest,
    with_pieces_digest,
)
from oncewire.handler.context import HandlerContext
from oncewire.handler.encryption import (
    SpooledParcel,
    body_slice,
    encrypt_payloads,
    read_head,
    signer_over,
    slices_of,
)
from oncewire.handler.facts import facts_of, words_of
from oncewire.handler.perform import begin, journal_submitted, stream_to_number
from oncewire.handler.route import (
    Route,
    agreement_for,
    route_under,
    stamped,
    stamps_at_entry,
    with_number,
)
from oncewire.handler.spool_reading import SPOOL_ABOVE, check_file
from oncewire.message.envelope import Message, Payload, SequenceNumber
from oncewire.message.form import AckRequest, Form, Security
from oncewire.message.instant import Instant
from oncewire.protocol.sender import enter_window
from oncewire.protocol.states import Outgoing
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Transaction
from oncewire.store.records import SpoolSlice, StoredOutgoing, StoredParcel
from oncewire.store.spool_contract import Spool
from oncewire.wire import codec, splice
from oncewire.wire.parcel import Parcel, Received
from oncewire.wire.security import algorithms
from oncewire.wire.security.references import PartDigests
from oncewire.wire.security.signature import SigningChoice

MAIL = "smtp"
"""The transport that carries seven bits only."""

_LIES = "Oncewire-Spooled"
"""What a draft says of a payload that lies in the spool: the name of its file, its size, its
Content-ID."""

_BODY = "Oncewire-Body"
"""What a hub's draft says of a body that lies in the spool: file, offset, length."""

_RESTORE = "restore the store from a backup"

FRONT = 4 * 1024 * 1024
"""Of a body so much is read to find its header: a reader holds back less than this before it."""

_OF_THE_MESSAGE = frozenset({"soapaction", "mime-version", "subject"})
"""Headers of a transport that say something of the message. All others belong to the
connection they came on: its length, its host, its credentials."""


def seal(
    context: HandlerContext, message: Message, route: Route, *, sign: bool = False
) -> StoredParcel:
    """The bytes of a message whose values are final, signed and encrypted where that is agreed."""
    if route.security.encrypt or not any(payload.spooled for payload in message.payloads):
        return sealed(context, written(context, message, route, sign=sign))
    signer = signer_for(context, route.security) if sign or route.security.sign else None
    if MAIL in route.terms.transports:
        return _encoded(context, message, route.form, signer)
    parcel = codec.lay_out(message, route.form, signer=signer)
    # A parcel around files that lie in the spool already: nothing of them is copied.
    body = tuple(
        part if isinstance(part, bytes) else SpoolSlice(part.spooled or "", 0, part.size)
        for part in parcel.body
    )
    return with_pieces_digest(StoredParcel(parcel.content_type, parcel.headers, body))


def written(
    context: HandlerContext, message: Message, route: Route, *, sign: bool = False
) -> Parcel:
    """`seal` in memory, for a message whose payloads are in memory or encrypted there."""
    security, hidden = route.security, message
    signer = signer_for(context, security) if sign or security.sign else None
    if security.encrypt:
        hidden = encrypt_payloads(context.store.spool, message, security)
        signer = signer_over(signer, message, security)
    # The bytes are the same on every transport (C26), so that any of them can be mail.
    mail = MAIL in route.terms.transports
    return codec.write(hidden, route.form, signer=signer, mail=mail)


def _encoded(
    context: HandlerContext, message: Message, form: Form, signer: codec.Signer | None
) -> StoredParcel:
    """A parcel for mail, whose payloads lie in the spool and travel as base64: another file."""
    spool = context.store.spool
    with contextlib.ExitStack() as opened:
        sources = {
            payload.content_id: opened.enter_context(spool.open(payload.spooled))
            for payload in message.payloads
            if payload.spooled is not None
        }
        stream = codec.write_stream(message, form, sources, signer=signer, mail=True)
        name, length = spool.put(stream.chunks)
    context.state.spooled.append(name)
    slices = (SpoolSlice(name, 0, length),)
    # A file of the spool is named by its SHA-256.
    whole = StoredParcel(stream.content_type, stream.headers, slices)
    return with_body_digest(whole, bytes.fromhex(name))


def stored_parcel(parcel: Parcel) -> StoredParcel:
    """A small parcel of our own that no store keeps, with the digest of its body."""
    return StoredParcel(parcel.content_type, headers_with_digest(parcel), (parcel.body,))


def sealed(context: HandlerContext, parcel: Parcel) -> StoredParcel:
    """A parcel of our own, with the digest by which its receiver knows it is intact.

    A large body becomes a file of the spool, fsynced before the commit that names it.
    """
    headers = headers_with_digest(parcel)
    if len(parcel.body) <= SPOOL_ABOVE:
        return StoredParcel(parcel.content_type, headers, (parcel.body,))
    context.kill.reach("spool before fsync")
    name, length = context.store.spool.put((parcel.body,))
    context.state.spooled.append(name)
    context.kill.reach("spool after fsync")
    return StoredParcel(parcel.content_type, headers, (SpoolSlice(name, 0, length),))


def draft_of(message: Message, form: Form) -> tuple[bytes, tuple[SpoolSlice, ...]]:
    """A waiting message, kept in its own dialect without number or signature; and the files of
    the spool that it speaks of. Payloads that lie there are empty in it."""
    hollow = [
        replace(payload, size=0, data=b"") if payload.spooled else payload
        for payload in message.payloads
    ]
    parcel = codec.write(replace(message, payloads=tuple(hollow)), form)
    lie = [payload for payload in message.payloads if payload.spooled]
    named = tuple(
        (_LIES, f"{payload.spooled} {payload.size} {payload.content_id}") for payload in lie
    )
    files = tuple(SpoolSlice(payload.spooled or "", 0, payload.size) for payload in lie)
    return pack_draft(replace(parcel, headers=(*parcel.headers, *named))), files


def drafted(parcel: Parcel, message: Message) -> Message:
    """The message of a draft, with the payloads that lie in the spool."""
    lie = {}
    for name, value in parcel.headers:
        if name == _LIES:
            spooled, size, content_id = value.split(" ", 2)
            lie[content_id] = (spooled, int(size))
    if not lie:
        return message
    payloads = tuple(
        replace(
            payload,
            size=lie[payload.content_id][1],
            digest=lie[payload.content_id][0],
            data=None,
            spooled=lie[payload.content_id][0],
        )
        if payload.content_id in lie
        else payload
        for payload in message.payloads
    )
    return replace(message, payloads=payloads)


def pack_draft(parcel: Parcel) -> bytes:
    """A parcel as one run of bytes: its Content-Type, its headers, an empty line, its body."""
    lines = [parcel.content_type, *(f"{name}: {value}" for name, value in parcel.headers)]
    return "\n".join(lines).encode() + b"\n\n" + parcel.body


def unpack_draft(draft: bytes) -> Parcel:
    """The parcel that `pack_draft` was given."""
    head, _, body = draft.partition(b"\n\n")
    first, *rest = head.decode().split("\n")
    headers = tuple((name, value) for name, _, value in (line.partition(": ") for line in rest))
    return Parcel(first, body, headers)


def relayed_draft(stored: StoredParcel) -> tuple[bytes, tuple[SpoolSlice, ...]]:
    """A received message that waits to go on, and the files of the spool that it lies in."""
    files = tuple(part for part in stored.body if isinstance(part, SpoolSlice))
    body = b"".join(part for part in stored.body if isinstance(part, bytes))
    if files and body:
        raise StoreProblem("a received body is in its row and in files", remedy=_RESTORE)
    named = tuple((_BODY, f"{each.name} {each.offset} {each.length}") for each in files)
    return pack_draft(Parcel(stored.content_type, body, (*stored.headers, *named))), files


def relayed(context: HandlerContext, parcel: Parcel) -> Received:
    """The message of such a draft; of one that lies in files only the header is read."""
    files = [value.split(" ") for name, value in parcel.headers if name == _BODY]
    if not files:
        return codec.read(parcel)
    body = tuple(SpoolSlice(name, int(offset), int(length)) for name, offset, length in files)
    headers = tuple(pair for pair in parcel.headers if pair[0] != _BODY)
    lies = StoredParcel(parcel.content_type, headers, body)
    return read_head(context.store.spool, lies, context.limits)


def build_numbered(
    context: HandlerContext,
    tx: Transaction,
    stored: StoredOutgoing,
    outgoing: Outgoing,
    terms: Terms,
    stamp: Instant,
) -> StoredParcel:
    """The bytes of a waiting message that has just got its number.

    A hub's onward copy is the received bytes with this hop's routing spliced in; our own
    message is written anew from its draft, which never left.
    """
    draft = tx.draft(outgoing.message_id)
    if draft is None:
        raise StoreProblem(
            f"message {outgoing.message_id} waits for its number but has no draft",
            remedy="restore the store from a backup",
        )
    parcel = unpack_draft(draft)
    received = relayed(context, parcel) if stored.relayed_from is not None else codec.read(parcel)
    route = route_of(context, stored, terms, received.message)
    sequence = sequence_of(outgoing, terms)
    if stored.relayed_from is not None:
        return onward_parcel(context, received, route, sequence, stamp, kept=True)
    message = drafted(parcel, received.message)
    if stamps_at_entry(terms):
        message = stamped(message, stamp)
    if sequence is not None:
        message = with_number(message, sequence, terms)
    return seal(context, message, route)


def route_of(
    context: HandlerContext, stored: StoredOutgoing, terms: Terms, message: Message
) -> Route:
    """The hop of a stored message, under the terms it was stored with."""
    agreement = agreement_for(context, stored.facts.cpa_id, stored.peer)
    if agreement is None:
        raise AgreementProblem(
            f"no agreement leads to {stored.peer} any more",
            key="cpa_id",
            remedy=f"put back the agreement that message {stored.outgoing.message_id} runs under",
        )
    return route_under(agreement, find_binding(agreement, Direction.SEND, message), terms)


def sequence_of(outgoing: Outgoing, terms: Terms) -> SequenceNumber | None:
    """The number that goes on the wire; a stream may be numbered for its sender only."""
    if outgoing.number is None or not terms.numbered:
        return None
    return SequenceNumber(outgoing.number, outgoing.status)


def onward_parcel(
    context: HandlerContext,
    received: Received,
    route: Route,
    sequence: SequenceNumber | None,
    now: Instant,
    *,
    asks: AckRequest | None = None,
    kept: bool = False,
) -> StoredParcel:
    """Received bytes with this hop's routing spliced in, every other byte as it was.

    `asks`: what the next handler is asked to acknowledge; None: as the hop's agreement says.
    `kept`: the received message is in the store, so that this one may lie in its file.
    """
    hop = replace(route.hop(now), sequence=sequence)
    if asks is not None:
        hop = replace(hop, ack_requested=asks)
    parcel = received.parcel
    spliced = splice.next_hop(received.envelope, hop, route.form, received.charset)
    own = tuple(header for header in parcel.headers if header[0].lower() in _OF_THE_MESSAGE)
    if isinstance(parcel, SpooledParcel) and kept:
        return _around_file(context, parcel.lies, spliced, own)
    came = Parcel(parcel.content_type, parcel.body, own)
    return sealed(context, splice.with_envelope(came, spliced))


def _around_file(
    context: HandlerContext,
    stored: StoredParcel,
    envelope: bytes,
    headers: tuple[tuple[str, str], ...],
) -> StoredParcel:
    """A parcel that lies in the spool, with another header: the rest of it stays where it lies."""
    begin = body_slice(context.store.spool, stored, 0, FRONT)
    # The encoding of a bare header stands among its own.
    parcel = Parcel(stored.content_type, begin, stored.headers)
    front, end = splice.front_with(parcel, envelope, context.limits)
    rest = slices_of(stored, end, stored.size - end)
    return with_pieces_digest(StoredParcel(stored.content_type, headers, (front, *rest)))


def store_outgoing(
    context: HandlerContext,
    tx: Transaction,
    message: Message,
    route: Route,
    key: str | None,
    addresses: Mapping[str, str] | None = None,
) -> None:
    """Store a composed message and, if its stream `key` has a place, begin its first attempt.

    `addresses`: where it goes by each transport, if that is known.
    """
    now, terms, header = context.now(), route.terms, message.header
    outgoing = Outgoing(
        header.message_id, context.keep_terms(tx, terms), now, key, expires_at=header.time_to_live
    )
    stored = StoredOutgoing(
        outgoing,
        facts_of(message),
        route.peer,
        hop=len(message.routing),
        agreement_id=context.keep_agreement(tx, route.agreement),
    )
    journal_submitted(context, tx, stored, header, best_effort=not terms.reliable)
    words = words_of(message.payloads, route.binding.rules.index)
    channel = None
    if key is not None:
        channel = stream_to_number(context, tx, key, terms)
        if channel.places(terms) < 1 or tx.waiting(key, 1):
            draft, files = draft_of(message, route.form)
            tx.add_outgoing(stored, parcel=None, draft=draft, files=files, words=words)
            # What waits before it may be a document, which it need not wait for.
            context.state.admissions[key] = None
            return
    entered = enter_window(outgoing, channel, terms, now)
    if entered.outgoing.number is not None:
        number = SequenceNumber(entered.outgoing.number, entered.outgoing.status)
        message = with_number(message, number, terms)
    parcel = seal(context, message, route)
    begin(context, tx, stored, channel, entered, terms, parcel, addresses, words)


# Signing: what of a message is digested, and how, as the agreement says.


def signer_for(context: HandlerContext, security: Security) -> codec.Signer:
    """The function that signs an envelope of ours as the agreement says."""
    keys = context.keys
    if keys is None:
        raise AgreementProblem(
            "a signature is agreed, but this handler has no signing key",
            key="security.sign",
            remedy="give the handler a key and certificate, or agree on unsigned messages",
        )
    choice = _choice(
        security.signature_algorithm, security.digest_algorithm, security.canonicalization
    )

    def sign(envelope: bytes, payloads: tuple[Payload, ...]) -> bytes:
        spool = context.store.spool
        parts = [_digests(spool, payload, choice.digest) for payload in payloads]
        templates = context.caches.templates.signatures
        return templates.sign(envelope, parts, keys.signing_key, keys.certificate, choice).envelope

    return sign


def _choice(algorithm: str, digest: str, canonicalization: str) -> SigningChoice:
    return SigningChoice(
        algorithms.signature_name(algorithm),
        algorithms.digest_name(digest),
        algorithms.canonical_name(canonicalization),
    )


def _digests(spool: Spool, payload: Payload, name: str) -> PartDigests:
    """A payload's digest for our own signature; SHA-256 is at hand, others need the bytes."""
    digests = {"sha256": bytes.fromhex(payload.digest)}
    if name not in digests and payload.spooled is not None:
        made = hashlib.new(name, usedforsecurity=False)
        check_file(spool, payload.spooled, made.update)
        digests[name] = made.digest()
    elif name not in digests:
        if payload.data is None:
            raise SecurityFailure(
                f"the digest {name} of a payload is not at hand",
                location=f"cid:{payload.content_id}",
                remedy="agree on sha256",
            )
        digests[name] = algorithms.digest(name, payload.data)
    return PartDigests(payload.content_id, digests)
