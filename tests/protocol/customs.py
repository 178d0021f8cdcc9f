"""The customs of a model world: which trouble may happen in it, drawn from its seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from oncewire.message.instant import SECOND
from oncewire.protocol.sequence import SequenceRange
from oncewire.protocol.terms import FlowMode, OnExhausted, OnGap, ResetRule, RetryCount, Terms


@dataclass
class Customs:
    """What may happen in one world; drawn from the seed, or set by a test."""

    terms: Terms
    messages: int = 12
    steps: int = 120
    loss: float = 0.2
    doubling: float = 0.2
    hiding: float = 0.1
    lifetimes: float = 0.0
    fates: tuple[str, ...] = ("ok",)
    abandons: bool = False
    restarts: bool = False
    # The sender loses its database.
    forgets: bool = False
    # The receiver gives up waiting for a gap while the sender may still fill it.
    releases: bool = False
    transients: float = 0.0
    stamped_at_entry: bool = False


def draw_customs(rng: random.Random) -> Customs:
    """A small range so that numbers wrap around all the time, and any mix of trouble."""
    window = rng.randint(1, 3)
    first = rng.choice([0, 0, 1, 3])
    # From the least that the window allows (2W) to a few more.
    numbers = SequenceRange(first, first + 2 * window - 1 + rng.choice([0, 1, 2, 5]))
    strict = window == 1 and rng.random() < 0.5
    flow = FlowMode.STOP_AND_WAIT if strict else FlowMode.WINDOW
    resets = list(ResetRule) if window == 1 else [ResetRule.FIRST_WINDOW, ResetRule.FIRST_MESSAGE]
    terms = Terms(
        numbered=True,
        ordered=True,
        flow=flow,
        window=window,
        numbers=numbers,
        on_gap=OnGap.REJECT if strict else OnGap.BUFFER,
        reset=rng.choice(resets),
        timeout=10 * SECOND,
        retry_interval=10 * SECOND,
        retries=rng.randint(0, 3),
        retries_counted=rng.choice(list(RetryCount)),
        transports=("http", "smtp")[: rng.randint(1, 2)],
        persist_duration=rng.choice([45, 120, 100_000]) * SECOND,
        on_exhausted=rng.choice(list(OnExhausted)),
    )
    kind = rng.random() < 0.3
    unkind = ("ok", "ok", "ok", "ok", "refused", "unsafe", "doubtful", "hub")
    return Customs(
        terms,
        messages=rng.randint(3, 30),
        steps=rng.randint(20, 300),
        loss=rng.choice([0.0, 0.1, 0.3, 0.6]),
        doubling=rng.choice([0.0, 0.2, 0.5]),
        hiding=rng.choice([0.0, 0.1, 0.3]),
        lifetimes=0.0 if kind else rng.choice([0.0, 0.1, 0.4]),
        fates=("ok",) if kind else unkind[: rng.randint(1, len(unkind))],
        abandons=not kind and rng.random() < 0.7,
        restarts=rng.random() < 0.5,
        forgets=rng.random() < 0.3,
        releases=not kind and rng.random() < 0.3,
        transients=rng.choice([0.0, 0.1]),
        stamped_at_entry=rng.random() < 0.3,
    )
