"""Deaths: one play in which one party is killed at named points, restarted, and finishes."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from tests.handler.processes.plays import FAST, three_parties, two_parties
from tests.handler.processes.proxy import BAD, Luck
from tests.handler.processes.stage import Stage, Verdict

ORDERS = 12
LARGE = 1_200_000
"""A document that does not fit into a row and goes to the spool."""

IN_PARTS = 4_500
"""A document of five parts."""

WORSE = Luck(0.2, 0.2, 0.05, 0.05, 0.1, 0.0, 0.2)
"""Half of all exchanges go wrong: the timers have much to do."""

# An operator is called when two retries were not enough.
FEW = FAST.replace("retries = 2000", "retries = 1")


@dataclass(frozen=True, slots=True)
class Case:
    """Who dies where, in which play. `deaths`: one after the other, each (point, count)."""

    victim: str
    mode: str
    deaths: tuple[tuple[str, int], ...]
    # The same death in another world: a number of the seed.
    world: int = 0

    @property
    def points(self) -> list[str]:
        """The points of all deaths."""
        return [point for point, _ in self.deaths]

    @property
    def step(self) -> str:
        """What the victim is doing when it dies for the first time."""
        return step_of(self.points[0])

    @property
    def steps(self) -> set[str]:
        """What the victim is doing at each of its deaths."""
        return {step_of(point) for point in self.points}

    def __str__(self) -> str:
        deaths = ", ".join(f"{point} {count}" for point, count in self.deaths)
        world = f", world {self.world}" if self.world else ""
        return f"{self.victim} {self.mode}: {deaths}{world}"

    @property
    def orders(self) -> int:
        """Enough of them for every count."""
        return max(
            6 if self.step == "spool" else ORDERS, 4 + max(count for _, count in self.deaths)
        )


def step_of(point: str) -> str:
    """`answer left before commit` is a point of the step `answer left`."""
    return point.rsplit(" ", 2)[0]


def case(victim: str, mode: str, point: str, count: int = 1, world: int = 0) -> Case:
    """A case with one death."""
    return Case(victim, mode, ((point, count),), world)


def play(stage: Stage, case: Case) -> Verdict:
    """Play it to its end, and see that nothing was lost, repeated or out of order."""
    orders = case.orders
    if case.step == "operate":
        _operated(stage, case)
    else:
        _cast(stage, case)
        _begin(stage, case)
    for point, count in case.deaths[1:]:
        stage.start_to_die(case.victim, point, count)
        stage.assert_died(case.victim, point)
    stage.start(case.victim)
    stage.settle("beta", orders)
    stage.stop()
    verdict = stage.verdict()
    size = stage.parties["alpha"].size
    again = verdict.assert_once("alpha", "beta", orders, size)
    if case.mode in ("window", "hub", "parts"):
        verdict.assert_in_order("beta")
    if case.mode == "responding":
        verdict.assert_answered("alpha", orders)
    boots = {row.boot for row in verdict.rows if row.node == case.victim}
    # Who dies in its first turn, before it is stored, leaves no trace of that boot.
    first_turn = case.step in ("start", "submit") or case.deaths[0] == ("tick before commit", 1)
    assert len(boots) >= 2 or first_turn, boots
    if case.mode == "window" and {"take after commit", "confirm before commit"} & {*case.points}:
        # Nobody knows whether the application has it: it is given again, and says so.
        assert again >= 1
    return verdict


def _cast(stage: Stage, case: Case) -> None:
    # A timer that runs out and an attempt that fails must come often enough to die of.
    luck = WORSE if {"tick", "outcome"} & case.steps else BAD
    if case.mode == "hub":
        three_parties(stage, case.orders, luck=luck)
        return
    two_parties(
        stage,
        case.mode,
        case.orders,
        luck=luck,
        called=case.mode == "synchronous",
        batch=1,
        take=1,
        size=LARGE if "spool" in case.steps else IN_PARTS if case.mode == "parts" else 40,
    )


def _begin(stage: Stage, case: Case) -> None:
    """Start everybody, and let the victim die for the first time."""
    point, count = case.deaths[0]
    for name in stage.parties:
        if name != case.victim:
            stage.start(name)
    if case.step == "start":
        # What is to be taken up was left by another death, at no point in particular.
        _work_a_little(stage, case.victim)
        stage.kill(case.victim)
    victim = stage.start_to_die(case.victim, point, count)
    if case.step == "stop":
        victim.wait("some work", lambda: bool(victim.counts))
        victim.signal(signal.SIGTERM)
    stage.assert_died(case.victim, point)


def _work_a_little(stage: Stage, name: str) -> None:
    run = stage.start(name)
    run.wait("some work", lambda: bool(run.counts))


def _operated(stage: Stage, case: Case) -> None:
    """The receiver is away until the sender's channel is suspended and an operator steps in."""
    extra = FEW + '[flow]\nmode = "window"\nwindow = 8\n'
    two_parties(stage, "window", case.orders, luck=None, extra=extra, operator=True)
    point, count = case.deaths[0]
    stage.start_to_die(case.victim, point, count)
    stage.assert_died(case.victim, point)
    stage.start("beta")
