"""Peers: whom messages went to and came from, noted as their batches pass by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from oncewire.journal.outcome import MessageOutcome
from oncewire.journal.trace import JOINED, RECEIVED, SUBMITTED
from oncewire.pipeline.extents import Way

if TYPE_CHECKING:
    import pyarrow as pa

_NOWHERE: dict[str, str | None] = {}


class Peers:
    """A few facts of a message that its outcome does not keep.

    They are taken from whole columns, and forgotten when they are asked for.
    """

    __slots__ = ("_from_peer", "_to_peer")

    def __init__(self) -> None:
        self._to_peer: dict[str, str | None] = {}
        self._from_peer: dict[str, dict[str, str | None]] = {}

    def note(self, batch: pa.RecordBatch) -> None:
        """One more batch."""
        import pyarrow.compute as pc

        kinds = batch["kind"]
        self._to_peer.update(values_of(batch, pc.equal(kinds, SUBMITTED), "message_id", "peer"))
        # A document is received when it is joined.
        came = pc.or_(pc.equal(kinds, RECEIVED), pc.equal(kinds, JOINED))
        for message_id, node, peer in values_of(batch, came, "message_id", "node", "peer"):
            self._from_peer.setdefault(message_id, {})[node] = peer

    def to(self, message_id: str) -> str | None:
        """Whom it was submitted for."""
        return self._to_peer.pop(message_id, None)

    def of(self, message_id: str, receiver: str | None) -> str | None:
        """Whom the receiver has it from."""
        return self._from_peer.pop(message_id, _NOWHERE).get(receiver or "")

    def way(self, outcome: MessageOutcome | None) -> Way:
        """The way of a message."""
        if outcome is None:
            return Way(None, None, None, None, None)
        to = self.to(outcome.message_id)
        return way_of(outcome, self.of(outcome.message_id, outcome.receiver), to)


def way_of(outcome: MessageOutcome, from_peer: str | None, to_peer: str | None) -> Way:
    """The way of a message whose peers are known."""
    partner = to_peer if outcome.sender else from_peer
    return Way(outcome.sender, outcome.receiver, partner, outcome.channel, outcome.terms_id)


def values_of(batch: pa.RecordBatch, mask: pa.Array, *names: str) -> Iterator[tuple[Any, ...]]:
    """Some columns of the rows that a mask chooses."""
    return zip(*(batch[name].filter(mask).to_pylist() for name in names), strict=True)
