"""Applications that come late: epochs end faster than they take, and nothing is called a gap."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncewire.lab.simulation.plan import SELLER, Mood, Options, Whim, plan_of
from oncewire.lab.simulation.world import World
from oncewire.message.instant import SECOND

SHORT = '[delivery]\non_exhausted = "fail_message"\ntime_to_live = "PT20S"\n'
SHORTER = '[delivery]\non_exhausted = "fail_message"\ntime_to_live = "PT8S"\n'
GIVING_UP = Options(messages=60, loss=0.4, reorder=0.5, abandon=1.0, agreement=SHORT)
WORLDS = {
    "lost": GIVING_UP,
    "late": Options(
        messages=60,
        loss=0.1,
        duplicate=0.4,
        reorder=0.6,
        crash=0,
        partition=0,
        disk_full=0,
        agreement=SHORTER,
        retry_interval=SECOND,
        retries=1,
        abandon=0.5,
    ),
    "lost, and numbers that wrap": Options(
        messages=60,
        loss=0.5,
        partition=0,
        disk_full=0,
        window=2,
        agreement=SHORTER + "[sequence]\nrange = [1, 6]\n",
        timeout=2 * SECOND,
        retry_interval=SECOND,
        persist_duration=60 * SECOND,
        abandon=1,
    ),
}
SEEDS = range(900200, 900240)
TAKES = 4 * SECOND
"""How long the seller's application has each message before it takes the next."""


def slow(options: Options, seed: int) -> World:
    """A world whose seller is called with one message at a time and takes its time with each."""
    plan = plan_of(options, seed)
    called = replace(plan.setting, called=(SELLER,))
    whims = tuple(Whim(order.number, Mood.SLOW, TAKES) for order in plan.orders)
    return World(replace(plan, setting=called, events=(*plan.events, *whims)))


def epochs_behind(simulation: World) -> int:
    """How many epochs had begun at the seller, at most, when it handed over an older one's."""
    began: list[int] = []
    behind = 0
    for row in simulation.machine("seller").rows():
        if row.kind == "epoch_began":
            began.append(row.epoch or 0)
        elif row.kind == "handed_over" and row.epoch is not None:
            behind = max(behind, sum(epoch > row.epoch for epoch in began))
    return behind


@pytest.mark.parametrize("name", WORLDS)
def test_two_epochs_may_begin_before_a_hand_over(name: str) -> None:
    """The first seed that shows it is enough; which one that is depends on every timer."""
    for seed in SEEDS:
        simulation = slow(WORLDS[name], seed)
        result = simulation.run()
        assert not result.violations, (result.plan.command, result.violations[:3])
        if epochs_behind(simulation) >= 2:
            return
    pytest.fail("no world showed it: choose others")


@pytest.mark.soak
def test_many_worlds_that_give_up() -> None:
    for seed in range(900200, 900300):
        result = slow(GIVING_UP, seed).run()
        assert not result.violations, (result.plan.command, result.violations[:3])
