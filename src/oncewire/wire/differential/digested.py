"""Digested: one ds:Reference of a signed acknowledgement, with gaps for the part and its digest.

A message keeps such an element as it was written. So the gaps of its envelope are gaps of it too;
where they lie in it is found by what stands there, and tried like the rest of a mould.
"""

from __future__ import annotations

import base64
from typing import Any

from oncewire.message import SignedDigest


class Digested:
    """The reference of a learned envelope; `part` and `digest` are the places of what differs among
    the values of another one, None for what does not."""

    __slots__ = ("_base", "_digest", "_part", "_pieces")

    def __init__(self, base: SignedDigest, part: int | None, digest: int | None) -> None:
        self._base = base
        self._part, self._digest = part, digest
        xml = base.xml
        name = base.uri.partition(":")[2].encode() if part is not None else b""
        value = base64.b64encode(base.digest_value) if digest is not None else b""
        # An attribute stands before the content.
        begin, found, rest = xml.partition(name) if name else (b"", b"", xml)
        middle, _, end = rest.partition(value) if value else (rest, b"", b"")
        self._pieces = (begin if found else b"", middle, end)

    def cast(self, values: list[Any]) -> SignedDigest:
        """The reference of an envelope with those values."""
        base = self._base
        if self._part is None and self._digest is None:
            return base
        begin, middle, end = self._pieces
        uri, digest, name, value = base.uri, base.digest_value, b"", b""
        if self._part is not None:
            uri = values[self._part]
            name = uri[4:].encode()
        if self._digest is not None:
            value = values[self._digest]
            digest = base64.b64decode(value)
        xml = b"".join((begin, name, middle, value, end))
        return SignedDigest(uri, base.digest_method, digest, xml)
