"""Turns: what several works cost, taken by turns, so that what disturbs one disturbs all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

Works = Mapping[str, Callable[[], object]]


def by_turns(works: Works, seconds: float, repeats: int = 1) -> list[dict[str, float]]:
    """Microseconds of each work, the best of many short turns; once for each repeat.

    Counted is the processor's time of this thread, so that a busy machine costs precision only.
    """
    return [_round(works, seconds / repeats) for _ in range(repeats)]


def _round(works: Works, seconds: float) -> dict[str, float]:
    best = dict.fromkeys(works, float("inf"))
    end = time.perf_counter() + seconds
    while True:
        for name, work in works.items():
            begin = time.thread_time()
            for _ in range(5):
                work()
            best[name] = min(best[name], (time.thread_time() - begin) / 5 * 1e6)
        if time.perf_counter() >= end:
            return best
