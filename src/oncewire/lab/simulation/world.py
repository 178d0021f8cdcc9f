"""World: runs one plan: submit, let faults happen, heal, settle, try once more, judge."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from oncewire.journal.predicates.context import Violation
from oncewire.journal.row import Row
from oncewire.lab.simulation import interventions
from oncewire.lab.simulation.application import document_of, submission_of
from oncewire.lab.simulation.connection import START, Clock, Links
from oncewire.lab.simulation.judge import judge
from oncewire.lab.simulation.machine import Machine
from oncewire.lab.simulation.papers import Paper, cpa_id_of, papers_of
from oncewire.lab.simulation.plan import (
    BUYER,
    HAUNTED,
    Change,
    Claim,
    ClockStep,
    Harm,
    Held,
    Ledger,
    Meddling,
    Mishap,
    Order,
    Plan,
    held_by,
)
from oncewire.message.instant import MINUTE, SECOND, Duration, Instant

OPERATOR: Duration = 20 * SECOND
"""How often the operator looks."""

PROBED: Duration = 3 * MINUTE
"""How long a message may take in a world that has healed."""


_BUSY = ("out.waiting", "out.outstanding", "out.suspended", "in.held", "in.ready", "in.handed_over")


@dataclass(frozen=True, slots=True)
class Result:
    """What a world was and what came of it."""

    plan: Plan
    violations: tuple[Violation, ...]
    happened: Counter[str] = field(default_factory=Counter)
    held: frozenset[Held] = frozenset()
    messages: int = 0
    delivered: int = 0
    notified: int = 0
    transitions: int = 0
    simulated_seconds: float = 0.0
    cpu_seconds: float = 0.0


class World:
    """The nodes of one plan and what happens between them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.clock = Clock()
        self.ledger = Ledger()
        self.links = Links(self.clock, plan.seed, plan.events)
        self.probes: list[Order] = []
        self._machines: dict[str, Machine] = {}
        for name in plan.setting.nodes:
            self._machines[name] = Machine(name, self)
        self._operators = [interventions.Operator(machine) for machine in self.machines]

    def machine(self, name: str) -> Machine:
        """The node of that name."""
        return self._machines[name]

    @property
    def machines(self) -> list[Machine]:
        """All nodes."""
        return list(self._machines.values())

    def run(self) -> Result:
        """Run the plan to its end and judge it."""
        began = time.process_time()
        self._schedule()
        self._until(START + self.plan.trouble_until)
        self._finish(self.plan.lingers)
        # Everything works again, and agreements that do not fit together are put right.
        self.links.healed = True
        interventions.mend_all(self)
        self._finish(self._longest() if self.plan.settles is None else self.plan.settles)
        # A pause that a partner asked for is kept, up to what the terms allow.
        if any(
            isinstance(event, Claim) or (isinstance(event, Mishap) and event.harm is Harm.BUSY)
            for event in self.plan.events
        ):
            self._until(self.clock.now + self._longest() // 2)
        if self.plan.probed:
            self._probe()
            self._finish(PROBED)
        if any(isinstance(event, Mishap) and event.by == HAUNTED for event in self.plan.events):
            # Copies from long ago find a world that has forgotten them.
            self._until(self.clock.now + HAUNTED)
            self._finish(PROBED)
        violations = judge(self)
        self.ledger.happened += self.links.happened
        rows = self.rows()
        ids = {order.message_id for order in self.plan.orders}
        return Result(
            self.plan,
            violations,
            self.ledger.happened,
            frozenset(held_by(paper.agreement.sending.terms) for paper in self._papers()),
            len(ids),
            len(ids & {row.message_id for row in rows if row.kind == "confirmed"}),
            len(ids & {row.message_id for row in rows if row.kind == "notified"}),
            sum(machine.turns for machine in self.machines),
            (self.clock.now - START) / SECOND,
            time.process_time() - began,
        )

    def rows(self) -> list[Row]:
        """The journals of all nodes."""
        return [row for machine in self.machines for row in machine.rows()]

    def _papers(self) -> list[Paper]:
        """Every paper of the beginning and every one of now."""
        setting = self.plan.setting
        papers = [paper for machine in self.machines for paper in machine.papers.values() if paper]
        return papers + [paper for name in setting.nodes for paper in papers_of(setting, name)]

    # --- the course of things ---

    def _schedule(self) -> None:
        for order in self.plan.orders:
            self._at(order.at, partial(self._submit, order))
        orders = {order.number: order for order in self.plan.orders}
        for event in self.plan.events:
            if isinstance(event, ClockStep):
                machine = self.machine(event.node)
                self._at(event.at, partial(self._set_clock, machine, event.by))
                self._at(event.at + event.lasts, partial(machine.set_clock, -event.by))
            elif isinstance(event, Change):
                self._at(event.at, partial(interventions.change, self, event))
                if event.lasts is not None:
                    end = event.at + event.lasts
                    self._at(end, partial(interventions.mend, self, event.cpa_id, event.sides))
            elif isinstance(event, Meddling) and event.order in orders:
                self._at(event.at, partial(interventions.meddle, self, event, orders[event.order]))
            elif isinstance(event, Claim) and event.order in orders:
                self._at(event.at, partial(interventions.claim, self, event, orders[event.order]))
        self.clock.after(OPERATOR, self._operate)

    def _at(self, at: Duration, event: Callable[[], None]) -> None:
        self.clock.at(START + at, event)

    def _set_clock(self, machine: Machine, by: Duration) -> None:
        self.ledger.happened["clock set"] += 1
        machine.set_clock(by)

    def _submit(self, order: Order) -> None:
        submission = submission_of(order, document_of(order))
        self.machine(order.sender).application.submit(submission)

    def _operate(self) -> None:
        for operator in self._operators:
            operator.meet()
        self.clock.after(OPERATOR, self._operate)

    def _until(self, instant: Instant) -> None:
        while self.clock.now < instant and self.clock.step():
            pass

    def _longest(self) -> Duration:
        """Long enough for every timer of every agreement to run out, and for operators to resume
        each message in turn until they give it up."""
        terms = [paper.agreement.sending.terms for paper in self._papers()]
        persist = max(each.persist_duration for each in terms)
        tried = max(each.timeout + each.retries * each.retry_interval for each in terms)
        patience = self.plan.setting.patience * len(self.plan.orders) * (OPERATOR + tried)
        return 2 * persist + 20 * MINUTE + patience

    def _finish(self, limit: Duration) -> None:
        """Run on until nothing is outstanding, or every timer had its time."""
        end = self.clock.now + limit
        while self.clock.now < end:
            self._until(min(end, self.clock.now + 5 * SECOND))
            if self._is_quiet():
                return

    def _is_quiet(self) -> bool:
        if any(not machine.up or machine.application.busy for machine in self.machines):
            return False
        for machine in self.machines:
            with machine.store.reader() as reader:
                if reader.incidents() or reader.notices_owed(1):
                    return False
                counts, parts = reader.counts(), reader.parts_counted()
            if any(counts.get(name) or parts.get(name) for name in _BUSY):
                return False
        return True

    def _probe(self) -> None:
        """After all trouble one more message each way: nothing may be left that stops it."""
        number = max(1_000, len(self.plan.orders))
        for partner in self.plan.setting.ends[1:]:
            paper = self.machine(BUYER).papers.get(cpa_id_of(partner))
            if not interventions.is_usable(paper):
                continue
            for sender, receiver in ((BUYER, partner), (partner, BUYER)):
                number += 1
                order = Order(number, sender, receiver, 0)
                self.probes.append(order)
                self._submit(order)


def run(plan: Plan) -> Result:
    """Run one plan."""
    return World(plan).run()
