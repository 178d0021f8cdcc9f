"""Ledger: what a wild world itself knows to be true, whatever the journals say of it.

The journals are the product's own words. Here stands what was handed in and out at the edges, what
was raised, and at which true instant each row was written, whatever a node's clock said.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from oncewire.journal.predicates.violation import Violation
from oncewire.message.instant import Instant


@dataclass(slots=True)
class Ledger:
    """Everything worth keeping of one run."""

    # What applications handed in, by MessageId.
    documents: dict[str, bytes] = field(default_factory=dict)
    # Why a submission was not accepted, by MessageId.
    refused: dict[str, str] = field(default_factory=dict)
    # What applications were shown: by node and MessageId, each time.
    shown: dict[tuple[str, str], list[bytes]] = field(default_factory=lambda: defaultdict(list))
    # Failures that an application heard of, by node.
    told: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    # What operators gave up where it had arrived, by node and MessageId.
    given_up: set[tuple[str, str]] = field(default_factory=set)
    # The true instant of each journal row, by node and seq.
    written_at: dict[tuple[str, int], Instant] = field(default_factory=dict)
    # Replies on connections, by node and the request's MessageId, each different one once.
    replies: dict[tuple[str, str], list[bytes]] = field(default_factory=lambda: defaultdict(list))
    # When a connection that waited for a response ended without one, by node and request.
    left_alone: dict[tuple[str, str], Instant] = field(default_factory=dict)
    # Parcels that carry an ErrorList, as they left: sender, receiver, body.
    reports: list[tuple[str, str, bytes]] = field(default_factory=list)
    # Seen while the world ran.
    found: list[Violation] = field(default_factory=list)
    # What happened of all that was drawn, and what else: counted by name.
    happened: Counter[str] = field(default_factory=Counter)
    _said: set[tuple[str | None, ...]] = field(default_factory=set)

    def broke(self, kind: str, sentence: str, node: str, message_id: str | None = None) -> None:
        """A promise was seen broken; the same thing is told once."""
        key = (kind, node, message_id, sentence if message_id is None else None)
        if key not in self._said:
            self._said.add(key)
            self.found.append(Violation("edge", kind, message_id, None, node, sentence))

    def raised(self, node: str, step: str, problem: Exception) -> None:
        """A step of a handler ended in an exception that nobody there expects."""
        words = f"{step} raised {type(problem).__name__}: {str(problem)[:160]}"
        self.broke("raised", words, node)
