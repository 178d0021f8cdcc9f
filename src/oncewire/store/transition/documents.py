"""Documents that travel in parts: the part of a transition that concerns them."""

from __future__ import annotations

from oncewire.protocol.documents import UNFINISHED, SplitDocument
from oncewire.store.schedule import document_keep_until
from oncewire.store.transition.incoming import IncomingSteps
from oncewire.store.transition.rows import DocumentRow


class DocumentSteps(IncomingSteps):
    """See `contract.Transaction`, whose docstrings hold here."""

    __slots__ = ()

    def document(self, sender: str, split_id: str) -> SplitDocument | None:
        work, key = self._work, (sender, split_id)
        row = work.look_up(work.documents, key, work.backend.document)
        return None if row is None else row.document

    def save_document(self, document: SplitDocument) -> None:
        terms = self.known_terms(document.terms_id)
        self.document(*document.key)
        row = DocumentRow(document, document_keep_until(document, terms))
        self._work.documents.put(document.key, row)

    def gathered(self, sender: str) -> tuple[int, int]:
        table = self._work.documents
        if sender not in table.gathered:
            table.count_gathered(sender, self._work.backend.gathered(sender))
        return table.gathered[sender]

    def open_documents(self) -> list[SplitDocument]:
        table = self._work.documents
        for row in self._work.backend.open_documents():
            if row.document.key not in table.rows:
                table.learn(row.document.key, row)
        found = [row.document for _, row in table.present()]
        live = [each for each in found if each.sender and each.state in UNFINISHED]
        return sorted(live, key=lambda document: (document.begun_at, document.key))
