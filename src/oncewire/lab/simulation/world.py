"""World: runs one plan: submit, let faults happen, heal, settle, try once more, judge;
with what its operators do, and which terms many worlds had in force."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, product

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.keys import BY_TARGET
from oncewire.errors import InvalidValue, OncewireError
from oncewire.handler.actions import Source
from oncewire.handler.perform import WAY
from oncewire.handler.sending.answer import signal_route
from oncewire.journal.predicates.context import Violation
from oncewire.journal.row import Row
from oncewire.lab.simulation.connection import START, Clock, Links
from oncewire.lab.simulation.judge import judge
from oncewire.lab.simulation.machine import Machine, Surroundings, document_of, submission_of
from oncewire.lab.simulation.papers import (
    Paper,
    contradiction,
    cpa_id_of,
    is_readable,
    is_sound,
    papers_of,
)
from oncewire.lab.simulation.plan import (
    BUYER,
    HAUNTED,
    SELLER,
    Change,
    Claim,
    ClockStep,
    Deed,
    Ending,
    Harm,
    Held,
    Ledger,
    Meddling,
    Mishap,
    Order,
    Plan,
    Said,
    Tale,
    Turn,
    held_by,
)
from oncewire.message.envelope import DeliverySemantics, Error, MessageKind, Severity
from oncewire.message.instant import MINUTE, SECOND, Duration, Instant
from oncewire.protocol.terms import Scope
from oncewire.wire import codec
from oncewire.wire.answers import Envelope, error_message_for
from oncewire.wire.parcel import PartialHeader

# Interventions: what operators do about incidents, agreements and messages; false reports.


LEFT_ALONE = 12
"""How often an operator leaves a failed transport to the probes before resuming it."""


class Operator:
    """Meets every open incident of one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._met: Counter[tuple[str | None, str | None]] = Counter()

    def meet(self) -> None:
        """Resume what can go on, abandon what cannot."""
        with self._machine.store.reader() as reader:
            incidents = reader.incidents()
        for incident in incidents:
            self._resolve(incident.message_id, incident.channel)

    def _resolve(self, message_id: str | None, channel: str | None) -> None:
        machine, engine = self._machine, self._machine.engine
        self._met[message_id, channel] += 1
        if (channel or "").startswith(WAY) and self._met[message_id, channel] <= LEFT_ALONE:
            # The handler probes a transport that failed, and takes it up again by itself.
            return
        tired = self._met[message_id, channel] > machine.setting.patience
        if message_id is not None and tired:
            self._abandon(message_id)
        elif channel is not None:
            with machine.store.reader() as reader:
                sending = reader.sending_channel(channel) if tired else None
            if sending is not None and sending.suspended_by is not None:
                self._abandon(sending.suspended_by)
            else:
                self._do("resume", lambda: engine.resume(channel=channel))
        elif message_id is None:
            # The incident is about the clock; operators accept it once it is right.
            if machine.world.offset == 0:
                machine.accept_clock()
        elif self._do("resume", lambda: engine.resume(message_id=message_id)) is Ending.RAISED:
            # Too late to send again under its id (C37): what is left is to give it up. What the
            # application refuses cannot be sent again either.
            self._abandon(message_id)
        machine.ledger.happened["incident met"] += 1

    def _abandon(self, message_id: str) -> None:
        machine, engine = self._machine, self._machine.engine
        machine.ledger.abandoned.add((machine.name, message_id))
        self._do("abandon", lambda: engine.abandon(message_id, f"operator of {machine.name}"))

    def _do(self, what: str, verb: Callable[[], object]) -> Ending:
        return self._machine.turn(f"operate {what}", verb, (OncewireError,))


# --- agreements ---------------------------------------------------------------------------------


def change(world: Surroundings, event: Change) -> None:
    """The sides of a change take their new paper and start again with it."""
    world.ledger.happened[f"agreement {event.turn.value}"] += 1
    for side in event.sides:
        machine = world.machine(side)
        paper = machine.papers.get(event.cpa_id)
        if paper is None:
            continue
        if event.turn is Turn.REPLACED:
            amended = paper.amended(event.said)
            # Two changes may contradict each other; then the second is not made.
            paper = amended if is_readable(amended) else paper
        elif event.turn is Turn.ENDED:
            paper = replace(paper, end=world.clock.now)
        elif event.turn is Turn.LISTED:
            paper = replace(paper, listed=True)
        elif event.turn is Turn.UNADDRESSED:
            paper = replace(paper, unaddressed=True)
        machine.papers[event.cpa_id] = None if event.turn is Turn.REMOVED else paper
        machine.restart()


def mend(world: Surroundings, cpa_id: str, sides: tuple[str, ...]) -> None:
    """Put the first papers back."""
    for side in sides:
        machine = world.machine(side)
        first = {paper.cpa_id: paper for paper in papers_of(world.plan.setting, side)}
        if machine.papers.get(cpa_id) != first[cpa_id]:
            machine.papers[cpa_id] = first[cpa_id]
            machine.restart()


def mend_all(world: Surroundings) -> None:
    """Put the first papers back where the two sides of an agreement differ, where both have come to
    contradict themselves, one after the other, or where a hub has none."""
    for cpa_id in sorted(
        {cpa_id for each_machine in world.machines for cpa_id in each_machine.papers}
    ):
        sides = [each_machine for each_machine in world.machines if cpa_id in each_machine.papers]
        papers = [each_machine.papers[cpa_id] for each_machine in sides]
        hub = any(each_machine.name in world.plan.setting.way for each_machine in sides)
        if (
            len({_content(each_paper) for each_paper in papers}) > 1
            or (hub and not all(map(is_usable, papers)))
            or any(paper is not None and contradiction(paper.agreement) for paper in papers)
        ):
            mend(world, cpa_id, tuple(each_machine.name for each_machine in sides))
    for machine in world.machines:
        for cpa_id, paper in list(machine.papers.items()):
            if paper is not None and paper.via is not None:
                _mend_first_hop(world, machine, paper, cpa_id)


def _mend_first_hop(world: Surroundings, machine: Machine, paper: Paper, cpa_id: str) -> None:
    """Numbers that count per hop are agreed on between an end and its hub, whatever the two ends
    have changed between themselves; where they differ no message can pass, and all is as it was."""
    hub = world.machine(paper.via or "")
    hop_id = "-".join(sorted((hub.name, machine.name)))
    beside = hub.papers.get(hop_id)
    if beside is None or _numbering(paper) == _numbering(beside):
        return
    mend(world, hop_id, (hub.name,))
    mend(
        world,
        cpa_id,
        tuple(
            each_machine.name for each_machine in world.machines if cpa_id in each_machine.papers
        ),
    )


def _numbering(paper: Paper) -> object:
    terms = paper.agreement.sending.terms
    per_hop = terms.numbered and terms.scope is not Scope.CONVERSATION
    return (terms.scope, terms.numbers) if per_hop else None


def is_usable(paper: Paper | None) -> bool:
    """Whether messages can still be sent under a paper."""
    return paper is not None and not (paper.end or paper.listed or paper.unaddressed)


def _content(paper: Paper | None) -> object:
    """What the two sides of an agreement have to have in common."""
    if paper is None:
        return None
    return tuple(sorted(map(repr, paper.said))), paper.end, paper.listed, paper.unaddressed


# --- deeds and tales ----------------------------------------------------------------------------


def meddle(world: Surroundings, event: Meddling, order: Order) -> None:
    """Do what the event says; the handler may refuse it."""
    machine = world.machine(order.sender)
    engine = machine.engine
    world.ledger.happened[f"operator {event.deed.value}"] += 1
    if event.deed is Deed.ABANDON:
        world.ledger.abandoned.add((machine.name, order.message_id))
    if event.deed is Deed.REUSE:
        _reuse(machine, order)
        return
    with machine.store.reader() as reader:
        stored = reader.outgoing(order.message_id)
    channel = None if stored is None else stored.outgoing.channel
    verbs = {
        Deed.ABANDON: lambda: engine.abandon(order.message_id),
        Deed.RESEND: lambda: engine.resume(message_id=order.message_id),
        Deed.ASK: lambda: engine.ask_status(order.message_id),
    }
    if channel is not None:
        key = channel
        verbs[Deed.PAUSE] = lambda: engine.pause(key, "the operator wants it so")
        verbs[Deed.RESTART] = lambda: engine.restart(key)
    if event.deed in verbs:
        machine.turn(f"operate {event.deed.value}", verbs[event.deed], (OncewireError,))


def _reuse(machine: Machine, order: Order) -> None:
    """Another document of the same length under a known id must not be accepted."""
    with machine.store.reader() as reader:
        known = reader.outgoing(order.message_id) is not None
    if not known or order.size == 0:
        return
    other = document_of(order).swapcase()
    ending = machine.turn(
        "submit", lambda: machine.engine.submit(submission_of(order, other)), (OncewireError,)
    )
    if ending is Ending.DONE:
        sentence = "Another document under its id was accepted, and will never be sent."
        machine.ledger.broke("thrown away", sentence, machine.name, order.message_id)


def claim(world: Surroundings, event: Claim, order: Order) -> None:
    """A partner tells the sender of an order something about it."""
    speaker = order.receiver
    code, severity = "TransientError", Severity.WARNING
    if event.tale is Tale.SLANDER:
        speaker = _stranger(world, order)
        code, severity = "DeliveryFailure", Severity.ERROR
    listener = world.machine(order.sender)
    agreement = _agreement_with(world.machine(speaker), order.sender) if speaker else None
    if agreement is None or not listener.up:
        return
    seconds = event.seconds if event.tale is Tale.PAUSE else None
    # As if the speaker had just refused the order.
    about = PartialHeader(
        dialect=agreement.form.dialect,
        kind=MessageKind.NORMAL,
        from_party=agreement.partner.party,
        to_party=agreement.own.party,
        cpa_id=agreement.cpa_id,
        conversation_id="tales",
        message_id=order.message_id,
        semantics=DeliverySemantics.BEST_EFFORT,
    )
    envelope = Envelope(
        f"tale-{event.order}-{event.at}@{speaker}",
        world.clock.now,
        agreement.form,
        own=agreement.own.party,
        hop=signal_route(agreement, MessageKind.ERROR).hop(world.clock.now),
    )
    error = Error(code, severity, "", "so it is said", min_retry_secs=seconds)
    report = error_message_for(about, (error,), envelope)
    try:
        parcel = codec.write(report, agreement.form)
    except InvalidValue:
        # The wire format cannot express such a claim.
        return
    world.ledger.happened[f"tale {event.tale.value}"] += 1
    source = Source("http", can_answer=True, address=f"http://{speaker}")
    listener.door.arrive(parcel, source, lambda _: None)


def _stranger(world: Surroundings, order: Order) -> str:
    """A partner of the sender that never saw the order. Where nothing is signed, a name that the
    sender does not know may be that of a handler behind its hub."""
    setting = world.plan.setting
    if order.sender != BUYER or not setting.third:
        return ""
    other = next(end for end in setting.ends if end not in (BUYER, order.receiver))
    return other if _agreement_with(world.machine(BUYER), other) is not None else ""


def _agreement_with(machine: Machine, partner: str) -> Agreement | None:
    other = machine.name if partner == BUYER else partner
    paper = machine.papers.get(cpa_id_of(other))
    return None if paper is None or paper.signed else paper.agreement


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
        self._operators = [Operator(machine) for machine in self.machines]

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
        mend_all(self)
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
                self._at(event.at, partial(change, self, event))
                if event.lasts is not None:
                    end = event.at + event.lasts
                    self._at(end, partial(mend, self, event.cpa_id, event.sides))
            elif isinstance(event, Meddling) and event.order in orders:
                self._at(event.at, partial(meddle, self, event, orders[event.order]))
            elif isinstance(event, Claim) and event.order in orders:
                self._at(event.at, partial(claim, self, event, orders[event.order]))
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
            if not is_usable(paper):
                continue
            for sender, receiver in ((BUYER, partner), (partner, BUYER)):
                number += 1
                order = Order(number, sender, receiver, 0)
                self.probes.append(order)
                self._submit(order)


def run(plan: Plan) -> Result:
    """Run one plan."""
    return World(plan).run()


# Coverage: which values of two terms were in force together, and which never can be.
#
# Two values of two terms make a pair. A pair that no world had is looked for: if no sound agreement
# can be written that holds both, it is a contradiction and not a hole.


_DURATIONS = frozenset(
    {"timeout", "retry_interval", "persist_duration", "time_to_live", "time_accuracy",
     "sync_timeout", "keep", "ack_wait"}
)  # fmt: skip

# Terms that follow from rules and have no key of their own.
_FOLLOWING: dict[str, tuple[Said, ...]] = {
    'ack_requested="None"': ((("ack.actor", "nextMSH"),), (("ack.request", "never"),)),
    'ack_requested="Signed"': ((("ack.signature", "always"),),),
    "duplicate_elimination=false": ((("duplicate.elimination", "never"),),),
}

_GROUNDS: tuple[Said, ...] = tuple(
    (("flow.mode", flow), *numbers)
    for flow, numbers in product(
        ("unrestricted", "window", "stop-and-wait"),
        (
            (),
            (("sequence.numbered", False), ("sequence.ordered", False)),
            (("sequence.numbered", True), ("flow.window", 2), ("sequence.scope", "pair")),
            (("sequence.numbered", True), ("sequence.scope", "pair"), ("sequence.reset", "silent")),
        ),
    )
)


@dataclass(frozen=True, slots=True)
class Coverage:
    """Pairs that some agreement had, out of all that values of two terms can make."""

    covered: frozenset[tuple[str, str]]
    conceivable: frozenset[tuple[str, str]]
    terms: int
    values: int

    @classmethod
    def of(cls, held: Iterable[Held]) -> Coverage:
        """What these sets of values cover."""
        covered: set[tuple[str, str]] = set()
        by_term: dict[str, set[str]] = defaultdict(set)
        for values in held:
            covered.update(combinations(sorted(values), 2))
            for value in values:
                by_term[value.partition("=")[0]].add(value)
        conceivable = {
            (min(one, other), max(one, other))
            for term, another in combinations(by_term, 2)
            for one, other in product(by_term[term], by_term[another])
        }
        return cls(
            frozenset(covered),
            frozenset(conceivable),
            len(by_term),
            sum(map(len, by_term.values())),
        )

    def missing(self) -> list[tuple[str, str]]:
        """Pairs that a sound agreement can hold, and none did."""
        return sorted(pair for pair in self.conceivable - self.covered if _is_possible(*pair))


def _is_possible(one: str, other: str) -> bool:
    """Whether some sound agreement holds both values."""
    for profile, ground, first, second in product(
        ("ebms2", "ms-0.9x", "rm-0.78"), _GROUNDS, _spellings(one), _spellings(other)
    ):
        merged = dict((*ground, *first, *second))
        if profile == "ebms2":
            merged["wire.extensions"] = ("hop_sequence", "routing", "transient_error")
        paper = Paper("any", BUYER, SELLER, profile, tuple(merged.items()))
        if is_sound(paper) and {one, other} <= held_by(paper.agreement.sending.terms):
            return True
    return False


def _spellings(value: str) -> tuple[Said, ...]:
    """How an agreement says a value of a term."""
    if value in _FOLLOWING:
        return _FOLLOWING[value]
    name, _, text = value.partition("=")
    key, plain = BY_TARGET.get(f"terms.{name}"), json.loads(text)
    if key is None or plain is None:
        return ((),)
    if name in _DURATIONS:
        plain = plain / SECOND
    return (((key.name, tuple(plain) if isinstance(plain, list) else plain),),)


@dataclass(slots=True)
class Tally:
    """What a run of many wild worlds has tried: options, faults, and pairs of terms."""

    worlds: int = 0
    messages: int = 0
    delivered: int = 0
    notified: int = 0
    simulated_seconds: float = 0.0
    cpu_seconds: float = 0.0
    options: Counter[str] = field(default_factory=Counter)
    happened: Counter[str] = field(default_factory=Counter)
    broken: list[Result] = field(default_factory=list)
    _held: set[Held] = field(default_factory=set)

    def add(self, result: Result) -> None:
        """Count one world."""
        self.worlds += 1
        self.messages += result.messages
        self.delivered += result.delivered
        self.notified += result.notified
        self.simulated_seconds += result.simulated_seconds
        self.cpu_seconds += result.cpu_seconds
        self.options.update(options_of(result.plan))
        self.happened.update(result.happened)
        self._held |= result.held
        if result.violations:
            self.broken.append(result)

    def coverage(self) -> Coverage:
        """The pairs of values of two terms that were in force together somewhere."""
        return Coverage.of(self._held)


def options_of(plan: Plan) -> Iterator[str]:
    """What a world was, in words to count by."""
    setting = plan.setting
    agreement = Paper("any", BUYER, SELLER, setting.profile, setting.said, signed=False).agreement
    terms = agreement.sending.terms
    yield "calm" if setting.calm else "trouble"
    yield f"leaning {setting.leaning.value}"
    yield f"dialect {agreement.form.dialect.value}"
    yield f"flow {terms.flow.value}"
    yield f"hubs {setting.hubs}"
    if setting.hubs:
        yield f"hop {terms.hop_mode.value}"
    yield f"sync {terms.sync_mode.value}"
    yield "two partners" if setting.third else "one partner"
    if setting.signed:
        yield "signed"
    if any(order.best_effort for order in plan.orders):
        yield "best effort beside reliable"
    for order in plan.orders:
        yield f"reply {order.reply.value}"
    yield f"operator resumes {setting.patience} times"
    for name in setting.called:
        yield f"called application ({name})"


RUNS_MAX = 400
"""Worlds tried at most; what is left then is small enough to read."""


def _kinds(violations: Iterable[Violation]) -> set[tuple[str, str]]:
    return {(violation.predicate, violation.kind) for violation in violations}


def shrink(plan: Plan, violations: Iterable[Violation]) -> Result:
    """The smallest world found in which a promise of these kinds is still broken.

    Delta debugging over the two lists of a plan: take out halves, then quarters, then single items.
    """
    wanted = _kinds(violations)
    best = [run(plan)]
    left = [RUNS_MAX]
    orders, events = tuple(range(len(plan.orders))), tuple(range(len(plan.events)))

    def breaks(orders: tuple[int, ...], events: tuple[int, ...]) -> bool:
        if left[0] <= 0:
            return False
        left[0] -= 1
        tried = run(plan.only(orders, events))
        if not _kinds(tried.violations) & wanted:
            return False
        best[0] = tried
        return True

    while left[0] > 0:
        before = (orders, events)
        kept = orders
        events = _fewest(events, lambda some, kept=kept: breaks(kept, some))  # type: ignore[misc]
        held = events
        orders = _fewest(orders, lambda some, held=held: breaks(some, held))  # type: ignore[misc]
        if (orders, events) == before:
            break
    return best[0]


def _fewest(items: tuple[int, ...], breaks: Callable[[tuple[int, ...]], bool]) -> tuple[int, ...]:
    """Items none of which can be taken away alone."""
    if items and breaks(()):
        return ()
    size = max(1, len(items) // 2)
    while items:
        for start in range(0, len(items), size):
            fewer = items[:start] + items[start + size :]
            if fewer and breaks(fewer):
                items = fewer
                break
        else:
            if size == 1:
                break
            size = max(1, size // 2)
    return items
