"""Waiting in tests: until something is so, or until the test says what is so instead."""

import asyncio
import time
from collections.abc import Callable

PATIENCE = 120.0
"""Seconds that the slowest machine may need."""


def _silent() -> str:
    return "it did not come"


def wait_until(is_so: Callable[[], object], tell: Callable[[], object] = _silent) -> None:
    """Look again and again; `tell` says what was found instead."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, tell()
        time.sleep(0.02)


async def until(is_so: Callable[[], object], tell: Callable[[], object] = _silent) -> None:
    """`wait_until` in an event loop."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, tell()
        await asyncio.sleep(0.005)
