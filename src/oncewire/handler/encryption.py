"""Encryption: payloads that only the partner may read, where encryption is agreed.

ebMS 2.0 signs a payload and then encrypts it; other handlers, and earlier versions of this one, do
it the other way round. What is sent follows the agreement; what comes is read either way: the
digests that were signed tell which it was. Nothing is opened before the signature's own value has
proved whose it is, and a payload that cannot be opened is answered like one that was changed, so
that an attacker learns nothing of a key or of a document by asking often.

The stored bytes stay as they travelled; the identity of a message is that of its plain payloads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric import rsa
from msgspec.structs import replace

from oncewire.errors import AgreementProblem, SecurityFailure
from oncewire.handler.content_digest import is_of_pieces, with_digest
from oncewire.message.envelope import Message, Payload
from oncewire.message.form import EncryptionSyntax, Security, SecurityOrder
from oncewire.store.records import SpoolSlice, StoredParcel
from oncewire.store.spool_contract import Spool
from oncewire.wire import codec
from oncewire.wire.limits import Limits
from oncewire.wire.parcel import Parcel, Received
from oncewire.wire.security import algorithms, smime
from oncewire.wire.security.certificates import load_certificate
from oncewire.wire.security.encryption import (
    DATA_URIS,
    KEY_URIS,
    EncryptionChoice,
    EncryptionPolicy,
    decrypt_part,
    encrypt_part,
)
from oncewire.wire.security.references import (
    PartDigests,
    SignedReference,
    bare_content_id,
    signature_parts,
)

if TYPE_CHECKING:
    from oncewire.handler.context import HandlerContext
    from oncewire.wire.codec import Signer

# Spooled: a parcel whose body lies in the spool and is fetched only by who needs all of it.


PIECE = 64 * 1024
"""Bytes that are fetched at once where only the beginning of a body is asked for."""


class SpooledParcel(Parcel, frozen=True, kw_only=True):
    """A parcel whose body lies in the spool; most readers need only its headers."""

    lies: StoredParcel
    spool: Spool

    @classmethod
    def of(cls, stored: StoredParcel, spool: Spool) -> SpooledParcel:
        """The parcel that is stored there."""
        return cls(stored.content_type, b"", stored.headers, lies=stored, spool=spool)

    @property  # type: ignore[misc]  # a field in Parcel, read on demand here
    def body(self) -> bytes:
        """All of it, in memory: for a hub that passes it on, and for what is encrypted."""
        return whole_body(self.spool, self.lies)

    def carrying(self, received: Received) -> Received:
        """A message that was read while its body passed by, with this for its parcel."""
        return replace(received, parcel=self)


def at_hand(received: Received, message: Message, limits: Limits) -> Message:
    """The message with the bytes of its payloads, fetched where they have passed by."""
    if all(payload.data is not None for payload in message.payloads):
        return message
    again = codec.read(received.parcel, limits).message
    data = {payload.content_id: payload.data for payload in again.payloads}
    return replace(
        message,
        payloads=tuple(
            replace(each_payload, data=data.get(each_payload.content_id))
            for each_payload in message.payloads
        ),
    )


def head_of(spool: Spool, stored: StoredParcel, limits: Limits) -> Received | None:
    """What the header of a stored parcel says; no more of the body is fetched than it takes."""
    reader = codec.Reader(stored.content_type, stored.headers, limits)
    for piece in pieces_of(spool, stored):
        for event in reader.feed(piece):
            if isinstance(event, codec.HeaderRead):
                return event.received
    return None


def read_head(spool: Spool, stored: StoredParcel, limits: Limits) -> Received:
    """What a stored parcel says in its header; its payloads, where they lie in the spool, are not
    looked at."""
    found = head_of(spool, stored, limits) if stored.spooled else None
    if found is None:
        return read_stored(spool, stored, limits)
    return SpooledParcel.of(stored, spool).carrying(found)


def read_stored(spool: Spool, stored: StoredParcel, limits: Limits) -> Received:
    """The message in a stored parcel. Payloads of one that lies in the spool have no data: they
    pass by, and their digests are made on the way."""
    if not stored.spooled:
        body = whole_body(spool, stored)
        return codec.read(Parcel(stored.content_type, body, stored.headers), limits)
    reader = codec.Reader(stored.content_type, stored.headers, limits)
    for piece in pieces_of(spool, stored):
        reader.feed(piece)
    return SpooledParcel.of(stored, spool).carrying(reader.finish()[1])


def pieces_of(spool: Spool, stored: StoredParcel) -> Iterator[bytes]:
    """The body of a stored parcel, a little at a time."""
    for part in stored.body:
        if isinstance(part, bytes):
            yield part
            continue
        with spool.open(part.name) as spooled:
            spooled.seek(part.offset)
            left = part.length
            while left > 0 and (piece := spooled.read(min(PIECE, left))):
                left -= len(piece)
                yield piece


def body_slice(spool: Spool, stored: StoredParcel, offset: int, length: int) -> bytes:
    """Bytes of a stored parcel's body, `length` from `offset` on or as many as there are; no
    others are fetched."""
    found = []
    for part in stored.body:
        size = part.length if isinstance(part, SpoolSlice) else len(part)
        begin, end = max(0, offset), min(size, offset + length)
        if begin < end:
            if isinstance(part, bytes):
                found.append(part[begin:end])
            else:
                with spool.open(part.name) as spooled:
                    spooled.seek(part.offset + begin)
                    found.append(spooled.read(end - begin))
        offset -= size
    return b"".join(found)


def slices_of(stored: StoredParcel, offset: int, length: int) -> tuple[bytes | SpoolSlice, ...]:
    """Like `body_slice`, but says where the bytes lie instead of fetching them."""
    found: list[bytes | SpoolSlice] = []
    for part in stored.body:
        size = part.length if isinstance(part, SpoolSlice) else len(part)
        begin, end = max(0, offset), min(size, offset + length)
        if begin < end:
            if isinstance(part, bytes):
                found.append(part[begin:end])
            else:
                found.append(SpoolSlice(part.name, part.offset + begin, end - begin))
        offset -= size
    return tuple(found)


def whole_body(spool: Spool, stored: StoredParcel) -> bytes:
    """The bytes of a stored parcel in one piece; for messages that fit in memory."""
    pieces = []
    for part in stored.body:
        if isinstance(part, bytes):
            pieces.append(part)
        else:
            with spool.open(part.name) as spooled:
                spooled.seek(part.offset)
                pieces.append(spooled.read(part.length))
    return b"".join(pieces)


ENCRYPTED_BYTES_MAX = 128 * 1024 * 1024
"""Bytes of all payloads of a message that is encrypted, as they are meant: it is encrypted and
opened in memory."""

ENCRYPTED_TYPE = "application/xml"
_MARK = b"EncryptedData"
_HEAD = 512


def encrypt_payloads(spool: Spool, message: Message, security: Security) -> Message:
    """The message with its payloads encrypted for the partner. It is done in memory: larger ones
    than ENCRYPTED_BYTES_MAX are not taken from an application."""
    if not security.encrypt or not message.payloads:
        return message
    certificates = security.partner_encryption_certificates or security.partner_certificates
    if not certificates:
        raise AgreementProblem(
            "encryption is agreed, but no certificate of the partner is named",
            key="security.partner_encryption_certificates",
            remedy="name the certificate the partner decrypts with",
        )
    # The newest is named last; an old one stays valid for reading only.
    recipient = load_certificate(certificates[-1])
    if security.encryption_syntax is EncryptionSyntax.SMIME:
        return replace(
            message,
            payloads=tuple(
                Payload.of(
                    payload.content_id,
                    smime.MEDIA_TYPE,
                    smime.envelop(
                        _to_close(spool, payload), payload.media_type, recipient, payload.file_name
                    ),
                )
                for payload in message.payloads
            ),
        )
    choice = EncryptionChoice(
        _name(DATA_URIS, security.encryption_algorithm), _name(KEY_URIS, security.key_transport)
    )
    return replace(
        message,
        payloads=tuple(
            Payload.of(
                payload.content_id,
                ENCRYPTED_TYPE,
                encrypt_part(_to_close(spool, payload), recipient, payload.media_type, choice),
                # XML Encryption has no place for it, so it stands on the part, as others write it.
                payload.file_name,
            )
            for payload in message.payloads
        ),
    )


def signer_over(signer: Signer | None, message: Message, security: Security) -> Signer | None:
    """The signer of a message that was given to be sent: over its payloads as they are meant, or,
    where that was agreed, over what travels."""
    if signer is None or not security.encrypt or security.order is SecurityOrder.ENCRYPT_FIRST:
        return signer
    return lambda envelope, _closed: signer(envelope, message.payloads)


def _to_close(spool: Spool, payload: Payload) -> bytes:
    if payload.spooled is None:
        return _content(payload)
    with spool.open(payload.spooled) as spooled:
        return spooled.read()


def _content(payload: Payload) -> bytes:
    if payload.data is None:
        raise SecurityFailure(
            "a payload that is not at hand cannot be encrypted",
            location=f"cid:{payload.content_id}",
        )
    return payload.data


class Opening:
    """The payloads of one received message, which may have to be opened before what was signed
    of them can be compared."""

    def __init__(self, context: HandlerContext, received: Received, security: Security) -> None:
        self._context = context
        self._received = received
        self._security = security
        self._closed = security.encrypt and bool(received.message.payloads)
        self._opened = False

    @property
    def received(self) -> Received:
        """The message, with its payloads as they were signed."""
        return self._received

    def parts(self, signed: Sequence[SignedReference]) -> Sequence[PartDigests]:
        """The digests that are compared with the signed ones."""
        travelled = signature_parts(self._received)
        if not self._closed or _all_are(signed, travelled):
            return travelled
        whole = at_hand(self._received, self._received.message, self._context.limits)
        names = {reference.digest_name for reference in signed}
        payloads, digests = [], []
        for payload in whole.payloads:
            try:
                plain = _opened(self._context, payload, self._security)
                data = _content(plain)
            except SecurityFailure:
                # It ends like one whose content is another than what was signed, and no sooner.
                plain, data = payload, hashlib.sha256(_content(payload)).digest()
            payloads.append(plain)
            found = {name: algorithms.digest(name, data) for name in names}
            digests.append(PartDigests(payload.content_id, found))
        self._opened = True
        message = replace(whole, payloads=tuple(payloads))
        self._received = replace(self._received, message=message)
        return digests

    def plain(self, believed: Message) -> Message:
        """What is believed of the message, with its payloads as the partner meant them."""
        if not self._closed or self._opened:
            return believed
        whole = at_hand(self._received, believed, self._context.limits)
        opened = (_opened(self._context, payload, self._security) for payload in whole.payloads)
        return replace(believed, payloads=tuple(opened))


def is_closed(payload: Payload) -> bool:
    """Whether a part looks encrypted, in either way."""
    return _MARK in _content(payload)[:_HEAD] or smime.is_enveloped(payload.media_type)


def closed_for_others(
    context: HandlerContext, received: Received, signed: Sequence[SignedReference]
) -> Sequence[PartDigests]:
    """The digests a hub compares: of what is encrypted, and not for it, it believes those that
    were signed."""
    travelled = signature_parts(received)
    if _all_are(signed, travelled):
        return travelled
    message = at_hand(received, received.message, context.limits)
    closed = {
        bare_content_id(payload.content_id) for payload in message.payloads if is_closed(payload)
    }
    believed = {
        reference.content_id: PartDigests(
            reference.content_id, {reference.digest_name: reference.digest}
        )
        for reference in signed
        if reference.content_id in closed and reference.content_id is not None
    }
    return [believed.get(bare_content_id(part.content_id), part) for part in travelled]


def _all_are(signed: Sequence[SignedReference], parts: Sequence[PartDigests]) -> bool:
    """Whether what was signed of the parts is what they are."""
    known = {bare_content_id(part.content_id): part.digests for part in parts}
    return all(
        reference.same_digest(known.get(reference.content_id, {}).get(reference.digest_name))
        for reference in signed
        if reference.content_id is not None
    )


def _opened(context: HandlerContext, payload: Payload, security: Security) -> Payload:
    data = _content(payload)
    enveloped = security.encryption_syntax is EncryptionSyntax.SMIME
    closed = smime.is_enveloped(payload.media_type) if enveloped else _MARK in data[:_HEAD]
    if not closed:
        raise SecurityFailure(
            "the agreement asks for encrypted payloads, this one is not",
            location=f"cid:{payload.content_id}",
        )
    key = context.keys.signing_key if context.keys is not None else None
    if context.keys is None or not isinstance(key, rsa.RSAPrivateKey):
        raise AgreementProblem(
            "encryption is agreed, but this handler has no RSA key to decrypt with",
            key="security.encrypt",
            remedy="give the handler an RSA key and certificate",
        )
    if enveloped:
        meant = smime.open_envelope(data, context.keys.certificate, key)
        name = meant.file_name or payload.file_name
        return Payload.of(payload.content_id, meant.media_type, meant.content, name)
    policy = EncryptionPolicy()
    older = {"rsa-1_5"} if security.allow_rsa_1_5 else set()
    policy = EncryptionPolicy(
        policy.data | {_name(DATA_URIS, security.encryption_algorithm)},
        policy.keys | {_name(KEY_URIS, security.key_transport)} | older,
    )
    plain = decrypt_part(data, key, policy)
    media_type = plain.mime_type or ENCRYPTED_TYPE
    return Payload.of(payload.content_id, media_type, plain.content, payload.file_name)


def _name(names: dict[str, str], uri: str) -> str:
    for name, known in names.items():
        if known == uri:
            return name
    raise AgreementProblem(
        f"encryption with {uri!r} is not offered",
        key="security.encryption_algorithm",
        remedy=f"agree on one of {', '.join(sorted(names.values()))}",
    )


def whole_parcel(context: HandlerContext, stored: StoredParcel) -> Parcel:
    """A stored parcel with its body in one piece; for messages that fit in memory."""
    parcel = Parcel(stored.content_type, whole_body(context.store.spool, stored), stored.headers)
    return with_digest(parcel) if is_of_pieces(stored) else parcel
