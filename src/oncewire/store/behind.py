"""Behind: a step on a large file that is taken while whoever asked for it goes on.

To digest a gigabyte takes as long as to write it, and to bring it to the disk as long again. Each
of these goes on in a thread of its own, one step behind, so all of them together take as long as
the longest.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import thread_time
from typing import ParamSpec

P = ParamSpec("P")

THREADS = 4

# What other threads worked for each, as far as it waited for them.
_by_others = threading.local()


def worked() -> float:
    """Seconds of a processor that went into what this thread does, by itself or one behind."""
    return thread_time() + getattr(_by_others, "seconds", 0.0)


@functools.cache
def _room(work: str) -> ThreadPoolExecutor:
    # Work that waits for other work must not take its threads.
    return ThreadPoolExecutor(THREADS, thread_name_prefix=work)


class Behind:
    """Steps of one kind of work on one file, in their order, one at a time."""

    def __init__(self, work: str) -> None:
        self._work = work
        self._under_way: Future[float] | None = None

    def do(self, step: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Take this step as soon as the one before it is done. Raises what that one raised."""
        self.settle()
        self._under_way = _room(self._work).submit(_measured, step, *args, **kwargs)

    def settle(self) -> None:
        """No step is under way any more. Raises what the last one raised, once."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            _by_others.seconds = getattr(_by_others, "seconds", 0.0) + under_way.result()


def _measured(step: Callable[P, None], /, *args: P.args, **kwargs: P.kwargs) -> float:
    began = worked()
    step(*args, **kwargs)
    return worked() - began
