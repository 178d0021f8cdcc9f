"""Whoever is over his budget is sent away before his message costs anything more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oncewire.handler.runtime.handler import Handler
from oncewire.transport.budget import OverBudget
from oncewire.transport.contract import Unlimited
from tests.handler.running import Wire, context_of, delivery_of, order_parcel


class Spent(Unlimited):
    """The allowance of a peer whose processor time is used up by what came before."""

    def spend(self, _seconds: float) -> None:
        raise OverBudget(429, "requests from here cost too much", 5)


async def test_who_is_over_his_budget_when_his_turn_comes_is_told_so(tmp_path: Path) -> None:
    """Many may have come in before the first of them showed what they cost."""
    wire, parcel = Wire(), order_parcel(extra="")
    node = context_of("beta", tmp_path / "beta.db")
    async with Handler(node, {"http": wire}) as handler:
        wire.gate.set()
        with pytest.raises(OverBudget):
            await wire.deliver(replace(delivery_of(parcel), allowance=Spent()))
        assert await handler.take(10) == []
        reply = await wire.deliver(delivery_of(parcel))
        assert reply.status in (200, 204)
        assert [one.message_id for one in await handler.take(10)] == ["order-1@alpha"]
