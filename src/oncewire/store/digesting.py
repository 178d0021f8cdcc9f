"""Digesting: the SHA-256 of much that comes in pieces, made while its reader goes on."""

from __future__ import annotations

import hashlib

from oncewire.store.behind import Behind
from oncewire.store.spool_contract import Digest

SHORT = 64 * 1024
"""Bytes of a piece that are digested before another thread would have begun."""


class Digesting:
    """One digest that grows."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._behind = Behind("digesting")

    def update(self, piece: bytes) -> None:
        """So much more."""
        if len(piece) < SHORT:
            self._behind.settle()
            self._digest.update(piece)
        else:
            self._behind.do(self._digest.update, piece)

    def copy(self) -> Digest:
        """The digest of what came so far, to go on with elsewhere."""
        self._behind.settle()
        return self._digest.copy()

    def hexdigest(self) -> str:
        """The digest of what came so far."""
        self._behind.settle()
        return self._digest.hexdigest()
