"""Accepted: a stored message as it was accepted.

The store keeps the bytes as they travelled. Accepted was a view of them: what the signature
covers, and decrypted. The view was stored with its bytes where its parts lie in them (`view`);
then they are cut out, and nothing is parsed. Otherwise the bytes are read again. Either way its
identity digest was stored with it, so whoever reads them knows which view that was, whatever has
become of certificates and agreements since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from oncewire.agreement.agreement import Direction
from oncewire.agreement.naming import receiver_of, sender_of
from oncewire.agreement.resolve import find_binding
from oncewire.errors import EbxmlError, MimeProblem, OncewireError, StoreProblem
from oncewire.handler.delivering.part_content import JoinedContent, PartContent
from oncewire.handler.delivering.view import View, read_view
from oncewire.handler.node import Node
from oncewire.handler.route import agreement_for
from oncewire.handler.sealing.confide import Opening
from oncewire.handler.sealing.seal import SPOOL_ABOVE, whole_parcel
from oncewire.handler.sealing.spooled import body_slice, slices_of
from oncewire.journal.identity import identity_digest
from oncewire.message.envelope import Message
from oncewire.message.form import Security
from oncewire.message.header import Header
from oncewire.message.payload import Content, Payload, distant
from oncewire.store.records import StoredIncoming, StoredParcel
from oncewire.store.spool_contract import Spool
from oncewire.wire import codec
from oncewire.wire.mime.transfer import decoded, is_identity
from oncewire.wire.received import PartPlace
from oncewire.wire.security import signature
from oncewire.wire.security.verified import read_verified


def accepted(node: Node, stored: StoredIncoming, *, at_once: bool = False) -> Message:
    """The view that was accepted, or the error that there is none any more. NotProved: a large
    one has to be read first, unless it is to be read at once."""
    if stored.parcel is None:
        raise StoreProblem(
            f"message {stored.incoming.message_id} has no bytes",
            remedy="restore the store from a backup",
        )
    if stored.view is not None:
        if not _is_proved(node, stored.parcel, at_once=at_once):
            raise _changed(stored, "put its bytes back from a backup")
        return _cut_out(node, stored, stored.parcel, read_view(stored.view))
    received = codec.read(whole_parcel(node, stored.parcel), node.limits)
    opening = Opening(node, received, _security_of(node, received.message, stored))
    for message in map(opening.plain, _views(node, opening)):
        if _is_accepted(message, stored):
            return message
    raise _changed(
        stored, "put back the agreement and the key it arrived under, or its bytes from a backup"
    )


def _cut_out(node: Node, stored: StoredIncoming, parcel: StoredParcel, view: View) -> Message:
    """The message of its view, with the parts that lie in its bytes: they and it must be what was
    accepted, and it the message of its row. Of a large body no more than a little is held."""
    payloads: list[Payload] = []
    room = SPOOL_ABOVE
    for payload, place in view.parts():
        lies = None if payload.size <= room else _part_content(node.store.spool, parcel, place)
        if lies is not None:
            payloads.append(distant(payload, lies))
            continue
        room -= payload.size
        travelled = body_slice(node.store.spool, parcel, place.offset, place.length)
        data = part_data(payload, place, travelled)
        if data is None:
            raise _changed(stored, "put its bytes back from a backup")
        payloads.append(replace(payload, data=data))
    message = replace(view.message, payloads=tuple(payloads))
    if not _is_accepted(message, stored):
        raise _changed(stored, "put its row back from a backup")
    return message


def part_data(payload: Payload, place: PartPlace, travelled: bytes) -> bytes | None:
    """What a part carries, of what lies in its place; None: it is not what was accepted."""
    try:
        data = decoded(place.encoding, travelled, lenient=True)
    except MimeProblem:
        return None
    same = len(data) == payload.size and hashlib.sha256(data).hexdigest() == payload.digest
    return data if same else None


def _is_proved(node: Node, parcel: StoredParcel, *, at_once: bool) -> bool:
    """Whether the files of a parcel are what they were."""
    files = parcel.spooled
    return not files or node.proofs.hold(files, node.now(), at_once=at_once)


def _part_content(spool: Spool, parcel: StoredParcel, place: PartPlace) -> Content | None:
    """Where in files of the spool a part lies; None: some of it lies elsewhere."""
    found = []
    for piece in slices_of(parcel, place.offset, place.length):
        if isinstance(piece, bytes):
            return None
        opened = partial(spool.open, piece.name)
        path = spool.path(piece.name)
        found.append(PartContent(opened, piece.offset, piece.length, place.encoding, path))
    if len(found) == 1:
        return found[0]
    # What is encoded cannot be undone piece by piece; a document in parts is not.
    return JoinedContent(tuple(found)) if found and is_identity(place.encoding) else None


def _changed(stored: StoredIncoming, remedy: str) -> StoreProblem:
    message_id = stored.incoming.message_id
    return StoreProblem(
        f"the bytes of message {message_id} no longer say what was accepted", remedy=remedy
    )


def digest_of_copy(node: Node, stored: StoredIncoming, copy: Message, digest: str) -> str:
    """The identity digest by which a signed copy is judged: its own, or that of the first one
    if it differs from it in nothing that is signed.

    Media types stand outside a signature (§4.1.3). Somebody on the way changed them in one of
    the two, and must not make its sender believe that the message was refused (S9).
    """
    first = stored.incoming.digest
    if digest == first or stored.parcel is None:
        return digest
    try:
        # What was written down says it; no byte of a payload is needed.
        first_one = (
            accepted(node, stored) if stored.view is None else read_view(stored.view).message
        )
        types = [payload.media_type for payload in first_one.payloads]
    except OncewireError:
        return digest
    if len(types) != len(copy.payloads):
        return digest
    given = zip(copy.payloads, types, strict=True)
    alike = tuple(replace(payload, media_type=name) for payload, name in given)
    return first if identity_digest(replace(copy, payloads=alike)) == first else digest


def as_agreed(node: Node, stored: StoredIncoming, header: Header) -> Header:
    """The header with its parties as the agreement names them: whoever reads the first id of a
    sender reads the one that was proved, and not one that was written before it."""
    agreement = node.agreement_accepted(stored)
    if agreement is None:
        # Accepted by a version that kept none.
        return header
    return replace(
        header,
        from_party=sender_of(agreement, header.from_party),
        to_party=receiver_of(agreement.own, header.to_party),
    )


def _is_accepted(message: Message, stored: StoredIncoming) -> bool:
    """Whether it is what was accepted, and the message that the row names."""
    named = message.header.message_id == stored.incoming.message_id
    return named and identity_digest(message) == stored.incoming.digest


def _views(node: Node, opening: Opening) -> Iterator[Message]:
    """What a signature covers comes first: the rest of a message is anybody's word."""
    received = opening.received
    if received.signed:
        try:
            covered = signature.covered(received.envelope, opening.parts)
        except EbxmlError:
            # Nobody here checks signatures of this sender, and this one is not for us.
            pass
        else:
            believed = read_verified(opening.received, covered, node.limits).message
            yield believed
            # Versions before this one left the parts in the order in which they came.
            places = [payload.content_id for payload in received.message.payloads]
            order = sorted(believed.payloads, key=lambda payload: places.index(payload.content_id))
            yield replace(believed, payloads=tuple(order))
    yield opening.received.message


def _security_of(node: Node, message: Message, stored: StoredIncoming) -> Security:
    """By what its payloads were closed: as was agreed when it was accepted."""
    agreement = node.agreement_accepted(stored)
    if agreement is None:
        agreement = agreement_for(node, stored.facts.cpa_id, stored.peer)
    if agreement is None:
        return Security()
    return find_binding(agreement, Direction.RECEIVE, message).security
