"""Terms of the sample year: every pair of policy values that can stand together does somewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from typing import Any

from oncewire.errors import OncewireError
from oncewire.message.header import AckRequest
from oncewire.message.instant import HOUR, seconds
from oncewire.protocol.sequence import SLIDES_RANGE, SequenceRange
from oncewire.protocol.terms import (
    DuplicateAnswer,
    FlowMode,
    OnExhausted,
    OnGap,
    ResetRule,
    RetryCount,
    Terms,
)

# Short ranges, so that numbers wrap around many times in a year.
DIMENSIONS: Mapping[str, tuple[Any, ...]] = {
    "shape": ("plain", "numbered", "ordered", "stop_and_wait", "unrestricted", "best_effort"),
    "way": ("direct", "hub"),
    "window": (2, 4, 16),
    "numbers": (SequenceRange(0, 63), SequenceRange(1, 40), SLIDES_RANGE),
    "reset": tuple(ResetRule),
    "retries": (3, 1, 0),
    "timeout": (seconds(60), seconds(10), seconds(300)),
    "retry_interval": (seconds(120), seconds(30)),
    "retries_counted": tuple(RetryCount),
    "transports": (("http",), ("http", "smtp")),
    "ack_requested": (AckRequest.UNSIGNED, AckRequest.SIGNED),
    "on_exhausted": tuple(OnExhausted),
    "time_to_live": (None, 6 * HOUR),
    "duplicate_answer": tuple(DuplicateAnswer),
    "signed": (False, True),
}

BOUND = ("shape", "way", "window", "numbers", "reset")
"""The dimensions whose values do not all go together."""


@dataclass(frozen=True, slots=True)
class Deal:
    """One choice of values: the terms, and what is no part of them."""

    terms: Terms
    hub: bool
    signed: bool


@cache
def deals() -> tuple[Deal, ...]:
    """Deals in which every possible pair of values occurs."""
    return tuple(deal for choice in _choices() if (deal := _deal(choice)) is not None)


def _deal(choice: Mapping[str, Any]) -> Deal | None:
    """The deal of a choice; None where the values contradict each other."""
    shape = choice["shape"]
    numbered = shape not in ("plain", "best_effort")
    if choice["way"] == "hub" and shape != "plain":
        return None
    flow = FlowMode.WINDOW
    if shape in ("plain", "unrestricted", "best_effort"):
        flow = FlowMode.UNRESTRICTED
    elif shape == "stop_and_wait":
        flow = FlowMode.STOP_AND_WAIT
    try:
        terms = Terms(
            reliable=shape != "best_effort",
            numbered=numbered,
            ordered=numbered and shape != "numbered",
            flow=flow,
            on_gap=OnGap.REJECT if shape == "stop_and_wait" else OnGap.BUFFER,
            **{name: choice[name] for name in DIMENSIONS if name not in ("shape", "way", "signed")},
        )
    except OncewireError:
        return None
    return Deal(terms, choice["way"] == "hub", choice["signed"])


def _choices() -> Iterator[dict[str, Any]]:
    """Greedy: begin with a pair that is missing, and add what covers most of the others."""
    missing = {
        (one, a, other, b)
        for one, other in combinations(DIMENSIONS, 2)
        for a in range(len(DIMENSIONS[one]))
        for b in range(len(DIMENSIONS[other]))
    }
    while missing:
        seed = min(missing)
        chosen = _filled({seed[0]: seed[1], seed[2]: seed[3]}, missing)
        if chosen is None:
            missing.discard(seed)  # Values that never stand together.
            continue
        missing -= _pairs(chosen)
        yield {name: DIMENSIONS[name][index] for name, index in chosen.items()}


def _filled(
    start: dict[str, int], missing: set[tuple[str, int, str, int]]
) -> dict[str, int] | None:
    chosen = dict(start)
    for name in DIMENSIONS:
        if name in chosen:
            continue
        best = [
            (len(_pairs({**chosen, name: index}) & missing), -index)
            for index in range(len(DIMENSIONS[name]))
            if _possible({**chosen, name: index})
        ]
        if not best:
            return None
        chosen[name] = -max(best)[1]
    return chosen if _possible(chosen) else None


def _possible(chosen: Mapping[str, int]) -> bool:
    """Whether the values chosen so far go together with any values of the rest."""
    free = [name for name in BOUND if name not in chosen]
    return any(
        _deal({name: DIMENSIONS[name][{**chosen, **rest}.get(name, 0)] for name in DIMENSIONS})
        is not None
        for values in product(*(range(len(DIMENSIONS[name])) for name in free))
        for rest in (dict(zip(free, values, strict=True)),)
    )


def _pairs(chosen: Mapping[str, int]) -> set[tuple[str, int, str, int]]:
    named = [(name, chosen[name]) for name in DIMENSIONS if name in chosen]
    return {(one, a, other, b) for (one, a), (other, b) in combinations(named, 2)}
