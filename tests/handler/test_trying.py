"""Trying an agreement out: what a partner cannot do is told apart from a partner that is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from oncewire.handler.runtime.trying import Tried, Trying

COPY = Tried("a copy", False, "it is not answered: a sender that lost the answer waits")


class Partner:
    """A handler whose partner answers so many pings, and none after that."""

    def __init__(self, pongs: int) -> None:
        self.pongs = pongs

    async def ping(self, cpa_id: str, timeout: float) -> bool:
        self.pongs -= 1
        return self.pongs >= 0

    @property
    def loop(self) -> Partner:
        return self

    async def operate(self, decide: Any) -> None:
        """There is nothing to forget."""


class OneCopy(Trying):
    """A ping, a copy that nobody answers, and more that would be tried."""

    async def _steps(self) -> AsyncIterator[Tried]:
        yield await self._ping()
        yield COPY
        yield Tried("a late copy", True, "it is known")


def tried(pongs: int) -> list[Tried]:
    handler: Any = Partner(pongs)
    return asyncio.run(OneCopy(handler, "alpha-beta", 0.01).run())


def test_a_partner_that_is_there_and_does_not_answer_has_a_fault() -> None:
    assert [(one.what, one.works) for one in tried(2)] == [
        ("ping", True),
        ("a copy", False),
        ("a late copy", True),
    ]
    assert COPY in tried(2)


def test_a_partner_that_went_away_is_blamed_for_nothing_else() -> None:
    found = tried(1)
    assert [(one.what, one.works) for one in found] == [
        ("ping", True),
        ("a copy", None),
        ("ping again", False),
        ("the rest", None),
    ]
    assert "answered at first" in found[2].finding
    assert "not answered: a sender" not in found[1].finding
