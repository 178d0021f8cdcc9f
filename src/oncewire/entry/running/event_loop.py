"""The event loop of a handler: uvloop where it is installed, Python's own where it is not."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


YOUNG = 20_000
"""So many values are made before it is looked which of them refer to each other in a circle. Few of
ours do, and each message is some hundred values: Python's 700 are looked through for nothing."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a handler to its end."""
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
    # What was loaded to begin with stays for good.
    gc.freeze()
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    ended: T = uvloop.run(work)
    return ended
