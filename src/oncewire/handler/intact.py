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

from oncewire.wire.parcel import Parcel

NAME = "Content-Digest"
_SHA256 = re.compile(r"sha-256=:([A-Za-z0-9+/=]{44}):")


def with_digest(parcel: Parcel) -> Parcel:
    """The parcel with the digest of its body beside it."""
    digest = base64.b64encode(hashlib.sha256(parcel.body).digest()).decode()
    kept = tuple(one for one in parcel.headers if one[0].lower() != NAME.lower())
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
