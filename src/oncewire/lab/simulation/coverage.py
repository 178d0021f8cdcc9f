"""Coverage: which values of two terms were in force together, and which never can be.

Two values of two terms make a pair. A pair that no world had is looked for: if no sound agreement
can be written that holds both, it is a contradiction and not a hole.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, product

from oncewire.agreement.keys import BY_TARGET
from oncewire.journal.predicates.context import Violation
from oncewire.lab.simulation.papers import Paper, is_sound
from oncewire.lab.simulation.plan import BUYER, SELLER, Held, Plan, Said, held_by
from oncewire.lab.simulation.world import Result, run
from oncewire.message.instant import SECOND

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
