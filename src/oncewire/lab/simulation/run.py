"""One run: a world from options and a seed, traffic through it, and the checker's word on it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace

from oncewire.agreement.agreements import Agreements
from oncewire.handler.submission import Submission
from oncewire.journal.check import JournalReport, check_journal
from oncewire.journal.predicates.context import Violation
from oncewire.journal.predicates.sender import untold
from oncewire.journal.row import Row
from oncewire.lab.simulation.actor import Actor
from oncewire.lab.simulation.network import (
    CPA_ID,
    START,
    Clock,
    Network,
    Options,
    agreements_of,
    names,
)
from oncewire.message import Payload, Service
from oncewire.message.instant import HOUR, MINUTE, SECOND, Duration

PACE: Duration = SECOND // 2
OPERATOR: Duration = 2 * MINUTE
HEALED_FOR: Duration = 6 * HOUR
"""Long enough for every timer of the agreements to run out after the network has healed."""

TROUBLE: Duration = 30 * MINUTE
"""How long after the last submission the faults go on, at most."""

EXPECTED_FAULTS = ("loss", "duplicate", "reorder", "corrupt", "crash", "partition", "disk_full")


@dataclass(frozen=True, slots=True)
class Result:
    """What a run was and what came of it."""

    seed: int
    options: Options
    messages: int
    delivered: int
    notified: int
    report: JournalReport
    faults: Counter[str] = field(default_factory=Counter)
    transitions: int = 0
    simulated_seconds: float = 0.0
    wall_seconds: float = 0.0

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Broken promises, and rows nobody can judge."""
        return (*self.report.violations, *self.report.quarantined)

    @property
    def replay(self) -> str:
        """The command that runs exactly this again."""
        return f"oncewire simulate --seed {self.seed} {self.options.as_flags()}".strip()

    def as_dict(self) -> dict[str, object]:
        """Plain values for people and programs."""
        kinds = self.report.kinds
        return {
            "seed": self.seed,
            "messages": self.messages,
            "delivered": self.delivered,
            "notified": self.notified,
            "lost": kinds.get("lost", 0),
            "duplicated": kinds.get("twice", 0),
            "misordered": kinds.get("out_of_order", 0),
            "violations": len(self.violations),
            "found": [
                {
                    "predicate": violation.predicate,
                    "kind": violation.kind,
                    "message_id": violation.message_id,
                    "sentence": violation.sentence,
                }
                for violation in self.violations
            ],
            "faults": dict(sorted(self.faults.items())),
            "transitions": self.transitions,
            "simulated_seconds": round(self.simulated_seconds, 3),
            "wall_seconds": round(self.wall_seconds, 3),
            "replay": self.replay,
        }


class Simulation:
    """The nodes of one run and what happens between them."""

    def __init__(self, options: Options, seed: int) -> None:
        self.options, self.seed = options, seed
        self.clock = Clock(seed)
        self.faults: Counter[str] = Counter(dict.fromkeys(EXPECTED_FAULTS, 0))
        self.network = Network(self.clock, options, self.faults)
        self._actors: dict[str, Actor] = {}
        for name in names(options):
            agreements = Agreements(agreements_of(name, options))
            self._actors[name] = Actor(name, agreements, self.clock, self.network, self)

    def actor(self, name: str) -> Actor:
        """The node of that name."""
        return self._actors[name]

    @property
    def actors(self) -> list[Actor]:
        """All nodes, from buyer to seller."""
        return list(self._actors.values())

    def run(self) -> Result:
        """Submit, suffer, heal, finish, judge."""
        began = time.perf_counter()
        self._schedule()
        self._suffer()
        self.network.healed = True
        self._finish(self.clock.now)
        rows = self.rows()
        report = check_journal(rows, healed=True, calm=self.calm)
        # What the nodes call told, their applications' own books must know of.
        books = {actor.name: set(actor.notices) for actor in self.actors}
        found = (*report.violations, *untold(rows, books))
        report = replace(report, violations=found)
        return Result(
            self.seed,
            self.options,
            self.options.messages,
            _count(rows, "confirmed"),
            _count(rows, "notified"),
            report,
            self.faults,
            sum(actor.transitions for actor in self.actors),
            (self.clock.now - START) / SECOND,
            time.perf_counter() - began,
        )

    @property
    def calm(self) -> bool:
        """Whether no fault was injected: then nothing may be told as failed (L3)."""
        return not any(self.faults.values())

    def rows(self) -> list[Row]:
        """The journals of all nodes."""
        return [row for actor in self.actors for row in actor.journal()]

    def _schedule(self) -> None:
        buyer = self.actor("buyer")
        for number in range(self.options.messages):
            submission = Submission(
                CPA_ID,
                Service("urn:sim:orders"),
                "PlaceOrder",
                (Payload.of(f"order-{number}", "text/plain", f"order {number}".encode()),),
                conversation_id="year",
                message_id=f"order-{number}@buyer",
            )
            self.clock.after(number * PACE, lambda item=submission: buyer.submit(item))  # type: ignore[misc]
        self.actor("seller").consume()
        self.clock.after(OPERATOR, self._operate)

    def _operate(self) -> None:
        for actor in self.actors:
            actor.operate()
        self.clock.after(OPERATOR, self._operate)

    def _until(self, instant: int) -> None:
        while self.clock.now < instant and self.clock.step():
            pass

    def _suffer(self) -> None:
        """Run with every fault until all is said and done, or the trouble has lasted enough."""
        submitted = START + self.options.messages * PACE
        while self.clock.now < submitted + TROUBLE:
            self._until(self.clock.now + MINUTE)
            if self.clock.now > submitted and self._is_quiet():
                return

    def _finish(self, since: int) -> None:
        """Run on until nothing is outstanding, or every timer had its time."""
        while self.clock.now < since + HEALED_FOR:
            self._until(self.clock.now + MINUTE)
            if self._is_quiet():
                return

    def _is_quiet(self) -> bool:
        for actor in self.actors:
            with actor.store.reader() as reader:
                counts = reader.counts()
                if reader.incidents() or reader.notices_owed(1):
                    return False
            busy = ("out.waiting", "out.outstanding", "out.suspended", "in.held", "in.ready")
            if not actor.up or any(counts.get(name) for name in (*busy, "in.handed_over")):
                return False
        return True


def _count(rows: list[Row], kind: str) -> int:
    """Orders of the buyer to which that happened; failure notices of hubs do not count."""
    ids = {row.message_id for row in rows if row.kind == kind}
    return len(
        [
            message_id
            for message_id in ids
            if message_id is not None and message_id.endswith("@buyer")
        ]
    )


def simulate(options: Options, seed: int) -> Result:
    """Run one seed."""
    return Simulation(options, seed).run()
