"""Intact: whether a body arrived as it was sent.

Our parcels carry a Content-Digest (RFC 9530) as a header of the transport. A body that does
not match it was damaged on the way: it is turned away before anything in it is believed, and
the sender tries again. Partners who do not know the header ignore it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace

from oncewire.errors import StoreDamaged
from oncewire.store.records import StoredIncoming, StoredParcel
from oncewire.wire.parcel import Parcel

NAME = "Content-Digest"
_SHA256 = re.compile(r"sha-256=:([A-Za-z0-9+/=]{44}):")


def with_digest(parcel: Parcel) -> Parcel:
    """The parcel with the digest of its body beside it."""
    digest = base64.b64encode(hashlib.sha256(parcel.body).digest()).decode()
    kept = tuple(header for header in parcel.headers if header[0].lower() != NAME.lower())
    return replace(parcel, headers=(*kept, (NAME, f"sha-256=:{digest}:")))


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
    if any(not isinstance(part, bytes) for part in parcel.body):
        return
    body = b"".join(part for part in parcel.body if isinstance(part, bytes))
    if not is_intact(Parcel(parcel.content_type, body, parcel.headers)):
        raise changed(message_id)


def with_whole_answer(stored: StoredIncoming) -> StoredIncoming:
    """A message with the answer it got, unless the bytes of that have changed: then it is
    answered anew, for what would go back is nobody's word."""
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
