"""Shrink: the fewest messages and faults that still break the promise.

Delta debugging over the two lists of a plan: take out halves, then quarters, then single items, as
long as the same kind of promise is still broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from oncewire.journal.predicates.violation import Violation
from oncewire.simulation.wild.plan import Plan
from oncewire.simulation.wild.world import Result, run

RUNS_MAX = 400
"""Worlds tried at most; what is left then is small enough to read."""


def _kinds(violations: Iterable[Violation]) -> set[tuple[str, str]]:
    return {(violation.predicate, violation.kind) for violation in violations}


def shrink(plan: Plan, violations: Iterable[Violation]) -> Result:
    """The smallest world found in which a promise of these kinds is still broken."""
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
