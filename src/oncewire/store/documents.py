"""Documents in the store's contract: what a transition does with those that travel in parts."""

from __future__ import annotations

from typing import Protocol

from oncewire.protocol.documents import SplitDocument
from oncewire.store.records import StoredIncoming


class Documents(Protocol):
    """A part of `contract.Transaction`; its docstrings bind as those there do."""

    def document(self, sender: str, split_id: str) -> SplitDocument | None:
        """How far a document is; the sender of one that is sent from here is empty."""

    def save_document(self, document: SplitDocument) -> None:
        """Insert or replace. Raises NotAllowed when its terms are not kept."""

    def open_documents(self) -> list[SplitDocument]:
        """Received documents that are neither whole nor given up, in order of their beginning,
        then of their key."""

    def gathered(self, sender: str) -> tuple[int, int]:
        """How many documents of that sender `open_documents` has, and the bytes of their parts
        that are stored; told without a look at each."""

    def parts(self, sender: str, split_id: str) -> list[StoredIncoming]:
        """HELD and GATHERED messages that are parts of a received document, by ordinal; listed,
        without their bytes."""
