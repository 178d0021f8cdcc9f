"""Timers and journal tell the same time, however slowly the process runs."""

from __future__ import annotations

import pytest

from oncewire.message.instant import HOUR, MILLISECOND, SECOND
from tests.handler.network import Network, TestWorld

RETRIES = 6


class BusyWorld(TestWorld):
    """Time passes between two looks at a clock, as it does on a busy machine."""

    pace = 0

    def now(self) -> int:
        self.time += self.pace
        return super().now()

    def mono(self) -> int:
        self.time += self.pace
        return super().mono()


def busy_pair() -> tuple[Network, BusyWorld]:
    terms = f'[delivery]\ntimeout = "PT1S"\nretry_interval = "PT1S"\nretries = {RETRIES}\n'
    pair = Network.pair("ebms2", terms, lose_answer=lambda count: count <= RETRIES)
    world = BusyWorld("alpha")
    pair.alpha.context.world = world
    return pair, world


@pytest.mark.requirement("RTY-1", "RTY-2")
def test_no_attempt_looks_early_because_the_one_before_was_written_late() -> None:
    pair, world = busy_pair()
    world.pace = 50 * MILLISECOND
    sent = pair.send()
    for attempt in range(RETRIES):
        # Busy at every other attempt.
        world.pace = attempt % 2 * 50 * MILLISECOND
        while pair.kinds("alpha").count("sent") < attempt + 2:
            pair.pass_time(5 * MILLISECOND)
    assert pair.take() == [sent.message_id]
    assert pair.verify().clean, pair.verify().violations


def test_a_transition_happens_at_one_instant() -> None:
    pair, world = busy_pair()
    world.pace = MILLISECOND
    node = pair.alpha.context
    with node.transition():
        assert node.now() == node.now()
    assert node.now() < node.now()


def test_the_time_does_not_follow_a_clock_that_was_set() -> None:
    pair, world = busy_pair()
    node = pair.alpha.context
    before, stood = node.now(), world.mono()
    world.mono = lambda: stood  # type: ignore[method-assign]
    world.time += SECOND // 2
    # What is this small is no correction but the time between two looks.
    pair.alpha.tick()
    assert node.now() == before
    world.time += HOUR
    pair.alpha.tick()
    assert node.now() == before
    pair.alpha.accept_clock()
    assert node.now() == before + HOUR + SECOND // 2
