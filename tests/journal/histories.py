"""Histories for tests: nodes that write journal rows as a correct handler would.

Every node has a clock of its own, hours apart from the others, so that a predicate that compares
two nodes' clocks goes red.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from oncewire.journal.row import Row
from oncewire.message.form import AckRequest
from oncewire.message.instant import HOUR, SECOND, Duration, seconds
from oncewire.protocol import notes
from oncewire.protocol.notes import Detail, Kind, write_terms
from oncewire.protocol.sequence import SequenceRange
from oncewire.protocol.terms import FlowMode, OnExhausted, Terms

PLAIN = Terms(timeout=seconds(10), retries=2, retry_interval=seconds(20))
"""Reliable, not numbered: three attempts in all."""

ORDERED = replace(
    PLAIN,
    numbered=True,
    ordered=True,
    flow=FlowMode.WINDOW,
    window=4,
    numbers=SequenceRange(0, 9),
    on_exhausted=OnExhausted.SUSPEND_CHANNEL,
)
"""The slides' example: M = 10, W = 4."""

BEST_EFFORT = replace(PLAIN, reliable=False, ack_requested=AckRequest.NONE)

CHANNEL = "acme>globex"
EPOCH_START = 1_767_225_600 * SECOND


@dataclass
class HandlerContext:
    """One handler's journal."""

    name: str
    world: World
    skew: Duration
    boots: int = 1
    booted_at: int = 0
    rows: list[Row] = field(default_factory=list)
    position: int = 0

    def add(self, kind: Kind, message_id: str | None = None, **columns: Any) -> Row:
        said = columns.pop("said", None)
        if isinstance(said, Detail):
            columns["detail"] = said.write()
        self.position += 1
        row = Row(
            self.position,
            EPOCH_START + self.skew + self.world.time,
            self.world.time - self.booted_at,
            f"{self.name}-{self.boots}",
            self.name,
            kind.value,
            message_id,
            **columns,
        )
        self.rows.append(row)
        return row

    def start(self) -> None:
        self.add(Kind.STARTED, said=notes.Started("0.1.0", parties=(f"urn:party:{self.name}",)))

    def restart(self) -> None:
        """A crash: no STOPPED row, and a new monotonic clock."""
        self.boots += 1
        self.booted_at = self.world.time - 7
        self.start()

    @property
    def party(self) -> str:
        return f"urn:party:{self.name}"


@dataclass
class World:
    """Nodes and the time that passes for all of them; each sees it on its own clock."""

    terms: Terms = PLAIN
    time: int = 0
    nodes: dict[str, HandlerContext] = field(default_factory=dict)
    acks: int = 0
    places: dict[str, dict[str, Any]] = field(default_factory=dict)

    def node(self, name: str) -> HandlerContext:
        if name not in self.nodes:
            node = HandlerContext(name, self, (len(self.nodes) * 5 - 3) * HOUR)
            self.nodes[name] = node
            node.start()
            self.agree(node)
        return self.nodes[name]

    def agree(self, node: HandlerContext, terms: Terms | None = None) -> None:
        terms = terms or self.terms
        node.add(Kind.TERMS, terms_id=terms.terms_id, detail=write_terms(terms))

    def wait(self, duration: Duration) -> None:
        self.time += duration

    @property
    def rows(self) -> list[Row]:
        return [row for node in self.nodes.values() for row in node.rows]

    # --- what a sender writes ---

    def submit(self, message_id: str, to: str = "globex", at: str = "acme", **facts: Any) -> None:
        node = self.node(at)
        said = notes.Submitted(
            from_party=node.party,
            to_party=f"urn:party:{to}",
            best_effort=not self.terms.reliable,
            **facts,
        )
        node.add(
            Kind.SUBMITTED,
            message_id,
            terms_id=self.terms.terms_id,
            channel=CHANNEL if self.terms.numbered else None,
            peer=f"urn:party:{to}",
            digest=digest(message_id),
            size=2_000,
            said=said,
        )

    def number(
        self,
        message_id: str,
        number: int,
        epoch: int = 1,
        status: str = "Continue",
        at: str = "acme",
    ) -> None:
        self.places[message_id] = place = {
            "channel": CHANNEL,
            "epoch": epoch,
            "sequence_number": number,
        }
        self.node(at).add(
            Kind.NUMBERED,
            message_id,
            terms_id=self.terms.terms_id,
            said=notes.Numbered(status),
            **place,
        )

    def send(
        self,
        message_id: str,
        attempt: int = 1,
        to: str = "globex",
        at: str = "acme",
        way: str = "http",
    ) -> None:
        self.wait(1_000)
        self.node(at).add(
            Kind.SENT,
            message_id,
            attempt=attempt,
            transport=way,
            peer=f"urn:party:{to}",
            hop=2 if at == "hub" else 1,
            **self.places.get(message_id, {}),
        )

    def acknowledged(
        self, message_id: str, by: str = "globex", at: str = "acme", **facts: Any
    ) -> None:
        self.wait(1_000)
        self.node(at).add(
            Kind.ACKNOWLEDGED,
            message_id,
            ref_to=f"ack-of-{message_id}-by-{by}",
            peer=f"urn:party:{by}",
            said=notes.Acknowledged(**facts),
            **self.places.get(message_id, {}),
        )

    def note(self, kind: Kind, message_id: str | None, at: str = "acme", **columns: Any) -> None:
        place = self.places.get(message_id, {}) if message_id is not None else {}
        self.node(at).add(kind, message_id, **{**place, **columns})

    def fail(self, message_id: str, outcome: str, reason: str, at: str = "acme") -> None:
        self.note(Kind.FAILED, message_id, at, said=notes.Failed(outcome, reason))
        severity = "Error" if outcome == "not_delivered" else "Warning"
        self.note(Kind.NOTIFIED, message_id, at, said=notes.Notified(severity))

    # --- what a receiver writes ---

    def receive(
        self, message_id: str, at: str = "globex", of: str = "acme", epoch: int = 0, **facts: Any
    ) -> None:
        self.wait(1_000)
        place = dict(self.places.get(message_id, {}))
        if place:
            # A receiver counts epochs by itself, from 0.
            place["epoch"] = epoch
            self.places[f"{message_id}@{at}"] = place
        self.node(at).add(
            Kind.RECEIVED,
            message_id,
            terms_id=self.terms.terms_id,
            peer=f"urn:party:{of}",
            digest=digest(message_id),
            size=2_000,
            said=notes.Received(**facts),
            **place,
        )

    def ack(self, message_id: str, to: str = "acme", at: str = "globex") -> None:
        self.node(at).add(
            Kind.ACK_SENT, message_id, ref_to=f"ack-of-{message_id}-by-{at}", peer=f"urn:party:{to}"
        )

    def duplicate(self, message_id: str, at: str = "globex") -> None:
        self.wait(1_000)
        self.node(at).add(
            Kind.DUPLICATE,
            message_id,
            digest=digest(message_id),
            said=notes.Duplicate("original"),
        )

    def hand_over(self, message_id: str, at: str = "globex", **facts: Any) -> None:
        self.wait(1_000)
        self.node(at).add(
            Kind.HANDED_OVER,
            message_id,
            terms_id=self.terms.terms_id,
            digest=digest(message_id),
            said=notes.HandedOver(**facts),
            **self.places.get(f"{message_id}@{at}", {}),
        )

    def confirm(self, message_id: str, at: str = "globex") -> None:
        self.node(at).add(Kind.CONFIRMED, message_id)

    # --- whole exchanges ---

    def deliver(self, message_id: str) -> None:
        """The plain way of one message, from submission to confirmation."""
        self.submit(message_id)
        self.send(message_id)
        self.arrive(message_id)
        self.acknowledged(message_id)

    def arrive(self, message_id: str, epoch: int = 0, **facts: Any) -> None:
        self.receive(message_id, epoch=epoch, **facts)
        self.ack(message_id)
        self.hand_over(message_id)
        self.confirm(message_id)

    def retry_until_exhausted(self, message_id: str, at: str = "acme", way: str = "http") -> None:
        first = 1 + sum(
            row.kind == Kind.SENT and row.message_id == message_id for row in self.node(at).rows
        )
        for attempt in range(3):
            self.send(message_id, first + attempt, at=at, way=way)
            self.wait(self.terms.timeout if attempt == 0 else self.terms.retry_interval)
        self.note(Kind.EXHAUSTED, message_id, at, transport=way)


def digest(message_id: str) -> str:
    return f"sha-of-{message_id}"
