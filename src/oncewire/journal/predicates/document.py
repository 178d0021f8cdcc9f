"""S13, split: a document is handed over whole, once, from all its parts, and equal to the original.

The key is the SplitId. Its rows are the parts' SUBMITTED and RECEIVED rows and their HANDED_OVER
to the document (all name it in their detail), and the document's own SUBMITTED, ACKNOWLEDGED by its
parts, JOINED, HANDED_OVER and, where its receiver gave it up, REFUSED.
"""

from __future__ import annotations

from oncewire.errors import JournalProblem
from oncewire.journal.predicates.context import (
    EVIDENT,
    Context,
    Violation,
    ViolationKind,
    unreadable,
)
from oncewire.journal.row import Row
from oncewire.journal.trace import ACKNOWLEDGED, JOINED, RECEIVED, REFUSED, SUBMITTED
from oncewire.protocol import notes


class _Joining:
    """What one node did with the parts of one document."""

    __slots__ = (
        "given_up",
        "joined",
        "joins",
        "node",
        "parts",
        "parts_handed",
        "since",
        "submitted",
        "total",
        "until",
        "whole",
    )

    def __init__(self, row: Row) -> None:
        self.node = row.node
        self.since = self.until = row.at
        self.parts: dict[int | None, set[str | None]] = {}
        self.parts_handed: set[str | None] = set()
        self.total: int | None = None
        self.joined: Row | None = None
        self.joins = 0
        self.whole = self.given_up = False
        # What its sender submitted of it: parts by their number, None for the document itself.
        self.submitted: set[int | None] = set()


class DocumentFold:
    """Feed the rows of one SplitId in order of (node, seq), then finish."""

    __slots__ = ("_arrived", "_context", "_digest", "_found", "_nodes", "_split_id")

    def __init__(self, context: Context, split_id: str) -> None:
        self._context = context
        self._split_id = split_id
        self._found: list[Violation] = []
        self._nodes: dict[str, _Joining] = {}
        self._digest: str | None = None
        # The sender says that it arrived, by the word of its receiver.
        self._arrived = False

    def feed(self, row: Row) -> None:
        """One more row of the document."""
        node = self._nodes.get(row.node)
        if node is None:
            node = self._nodes[row.node] = _Joining(row)
        node.until = row.at
        try:
            self._take(node, row)
        except JournalProblem as problem:
            self._found.append(unreadable(str(problem), message_id=row.message_id, node=row.node))

    def _take(self, node: _Joining, row: Row) -> None:
        if row.kind == SUBMITTED:
            said = notes.Submitted.read(row.detail)
            node.submitted.add(said.split_number)
            self._digest = said.document_digest or self._digest
        elif row.kind == ACKNOWLEDGED:
            if 1 in node.submitted and None not in node.submitted:
                # Both are of one commit, so none of them was cleared away alone.
                sentence = "Its parts were submitted and it arrived, but it was never submitted."
                self._note(node, ViolationKind.INVENTED, sentence)
            self._arrived = self._arrived or not notes.Acknowledged.read(row.detail).hop
        elif row.kind == RECEIVED:
            part = notes.Received.read(row.detail)
            node.total = part.split_total
            node.parts.setdefault(part.split_number, set()).add(row.message_id)
        elif row.kind == JOINED:
            self._joined(node, row)
        elif row.kind == REFUSED:
            if node.joined is not None:
                self._note(node, ViolationKind.TWICE, "It was joined, and given up after that.")
            node.given_up = True
        elif row.message_id != self._split_id:
            node.parts_handed.add(row.message_id)
            number = notes.HandedOver.read(row.detail).split_number
            if number is not None:
                node.parts.setdefault(number, set()).add(row.message_id)
            if not any(row.message_id in ids for ids in node.parts.values()):
                sentence = f"It was given {row.message_id}, which is no part of it."
                self._note(node, ViolationKind.INVENTED, sentence)
        else:
            if node.joined is None:
                self._note(node, ViolationKind.INCOMPLETE, "It was handed over, but not joined.")
            node.whole = True

    def _joined(self, node: _Joining, row: Row) -> None:
        node.joins += 1
        node.joined = row
        if node.joins > 1:
            self._note(node, ViolationKind.TWICE, "It was joined twice.")
            return
        total = notes.Joined.read(row.detail).total
        missing = [number for number in range(1, total + 1) if number not in node.parts]
        if missing or total != (node.total or total):
            self._note(
                node,
                ViolationKind.INCOMPLETE,
                f"It was joined from {len(node.parts)} of {node.total or total} parts.",
            )
        waiting = sorted(
            number or 0
            for number, ids in node.parts.items()
            if not ids & {*node.parts_handed, self._split_id}
        )
        if waiting and not missing:
            sentence = f"It was joined before the turn of its part {waiting[0]} had come."
            self._note(node, ViolationKind.INCOMPLETE, sentence)
        repeated = sorted(number or 0 for number, ids in node.parts.items() if len(ids) > 1)
        if repeated:
            self._note(node, ViolationKind.TWICE, f"Part {repeated[0]} was counted more than once.")

    def finish(self) -> list[Violation]:
        """Every promise about this document that its rows show broken."""
        for node in self._nodes.values():
            joined = node.joined
            if joined is not None and self._digest not in (None, joined.digest):
                self._note(
                    node, ViolationKind.ALTERED, "The joined document differs from the one split."
                )
            if not self._context.is_healed(node.since, (node.node,)) or node.whole:
                continue
            if node.given_up:
                continue
            if joined is not None:
                self._note(node, ViolationKind.LOST, "It was joined, but never handed over.")
            elif self._arrived and node.parts_handed:
                sentence = "Its sender was told that it arrived, but it was never joined."
                self._note(node, ViolationKind.LOST, sentence)
            elif node.total is not None and len(node.parts_handed) >= node.total:
                self._note(node, ViolationKind.LOST, "All its parts came, but it was never joined.")
        return self._found

    def _note(self, node: _Joining, kind: ViolationKind, sentence: str) -> None:
        if kind.value not in EVIDENT and self._is_doubted(node):
            return
        self._found.append(Violation("S13", kind.value, self._split_id, None, node.node, sentence))

    def _is_doubted(self, node: _Joining) -> bool:
        """Whether a row that is missing, or was set aside, may be one of the document's."""
        context = self._context
        known = {
            self._split_id,
            *node.parts_handed,
            *(message_id for ids in node.parts.values() for message_id in ids),
        }
        return context.has_hole((node.node,), node.since, node.until) or bool(
            context.doubted & known
        )
