"""Content digests: whether a body arrived as it was sent.

Our parcels carry a Content-Digest (RFC 9530) as a header of the transport. A body that does
not match it was damaged on the way: it is turned away before anything in it is believed, and
the sender tries again. Partners who do not know the header ignore it.

A body that is made of stored pieces and files of the spool is not read to store it. What is kept
with it then is a digest of its pieces and of the names of its files, which are digests themselves;
the digest of the whole is made when it is read to be sent.
"""

from __future__ import annotations

import base64
import hashlib
import re

from msgspec.structs import replace

from oncewire.errors import StoreDamaged
from oncewire.store.records import StoredIncoming, StoredParcel
from oncewire.wire.parcel import Parcel

NAME = "Content-Digest"
_OF_PIECES = "oncewire-pieces"
_SHA256 = re.compile(r"sha-256=:([A-Za-z0-9+/=]{44}):")


def headers_with_digest(parcel: Parcel) -> tuple[tuple[str, str], ...]:
    """The headers of a parcel, with the digest of its body."""
    others = [header for header in parcel.headers if header[0].lower() != "content-digest"]
    digest = base64.b64encode(hashlib.sha256(parcel.body).digest()).decode()
    return (*others, (NAME, f"sha-256=:{digest}:"))


def with_digest(parcel: Parcel) -> Parcel:
    """The parcel with the digest of its body beside it."""
    return replace(parcel, headers=headers_with_digest(parcel))


def with_pieces_digest(parcel: StoredParcel) -> StoredParcel:
    """A parcel of pieces and files, with the digest by which they are known again."""
    return replace(parcel, headers=(*_others(parcel), (NAME, _pieces_digest(parcel))))


def is_of_pieces(parcel: StoredParcel) -> bool:
    """Whether the digest that is kept with a parcel is that of its pieces."""
    return any(name == NAME and value.startswith(_OF_PIECES) for name, value in parcel.headers)


def with_body_digest(parcel: StoredParcel, digest: bytes) -> StoredParcel:
    """The parcel as it is sent, with the digest of its body."""
    stated = f"sha-256=:{base64.b64encode(digest).decode()}:"
    return replace(parcel, headers=(*_others(parcel), (NAME, stated)))


def _pieces_digest(parcel: StoredParcel) -> str:
    digest = hashlib.sha256()
    for part in parcel.body:
        if isinstance(part, bytes):
            digest.update(b"%d:" % len(part) + part)
        else:
            digest.update(f"{part.name} {part.offset} {part.length};".encode())
    return f"{_OF_PIECES}=:{base64.b64encode(digest.digest()).decode()}:"


def _others(parcel: StoredParcel) -> tuple[tuple[str, str], ...]:
    return tuple(header for header in parcel.headers if header[0].lower() != NAME.lower())


def stated_digest(parcel: Parcel) -> str | None:
    """The SHA-256 that a parcel names for its body, in base64; None when it names none."""
    stated = parcel.header(NAME)
    match = _SHA256.search(stated) if stated else None
    return None if match is None else match.group(1)


def is_intact(parcel: Parcel) -> bool:
    """False when the parcel names a digest that its body does not have."""
    stated = stated_digest(parcel)
    if stated is None:
        return True
    return base64.b64encode(hashlib.sha256(parcel.body).digest()).decode() == stated


def check_kept(parcel: StoredParcel, message_id: str) -> None:
    """Refuse to send bytes of ours that are not those that were stored (S15).

    What lies in the spool is checked when it is read: it may be long.
    """
    if is_of_pieces(parcel):
        if parcel != with_pieces_digest(parcel):
            raise changed(message_id)
        return
    if any(not isinstance(part, bytes) for part in parcel.body):
        return
    body = b"".join(part for part in parcel.body if isinstance(part, bytes))
    if not is_intact(Parcel(parcel.content_type, body, parcel.headers)):
        raise changed(message_id)


def with_whole_answer(stored: StoredIncoming) -> StoredIncoming:
    """A message with the answer it got, unless the bytes of that have changed: then it is
    answered anew, for what would go back is not what was said."""
    try:
        if stored.answer is not None:
            check_kept(stored.answer.parcel, stored.incoming.message_id)
    except StoreDamaged:
        return replace(stored, answer=None)
    return stored


def changed(message_id: str) -> StoreDamaged:
    """The error for stored bytes that are not those that were stored."""
    return StoreDamaged(
        f"the stored bytes of message {message_id} have changed",
        message_id=message_id,
        remedy="put them back from a backup, or give the message up with `oncewire abandon`",
    )
