"""Tally: what a run of many wild worlds has tried: options, faults, and pairs of terms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from oncewire.simulation.wild.coverage import Coverage
from oncewire.simulation.wild.papers import Paper
from oncewire.simulation.wild.plan import BUYER, SELLER, Plan
from oncewire.simulation.wild.values import Held
from oncewire.simulation.wild.world import Result


@dataclass(slots=True)
class Tally:
    """Adds up results; what stands still is counted as well as what went wrong."""

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
    yield f"operator {setting.manner.value}"
    for name in setting.called:
        yield f"called application ({name})"
