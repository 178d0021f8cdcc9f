"""`kill -9` before and after each durable step and each departure of bytes, in every role."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from oncewire.handler.context import POINTS
from tests.handler.processes.conftest import SEED
from tests.handler.processes.deaths import Case, case, play, step_of
from tests.handler.processes.proxy import Wires
from tests.handler.processes.stage import Nursery, Stage

AT_ONCE = 3
"""Plays side by side; each of them mostly waits for timers."""

ALL = ("start", "stop", "read", "receive")
SENDER = (*ALL, "submit", "spool", "post", "outcome", "tick", "operate")
RECEIVER = (*ALL, "spool", "answer", "answer left", "take", "confirm")
HUB = (*ALL, "answer", "answer left", "post", "outcome", "tick")

# An acknowledgement on the connection of its message: the sender reads it as the outcome, and
# the receiver has sent nothing else.
ROLES = (
    ("alpha", "window", SENDER),
    ("beta", "window", RECEIVER),
    ("alpha", "synchronous", ("post", "outcome")),
    ("beta", "synchronous", ("receive", "take", "confirm")),
    # The response in the commit that confirms the order: what is asked again is answered once.
    ("alpha", "responding", ("post", "outcome", "confirm")),
    ("beta", "responding", ("receive", "take", "confirm", "outcome")),
    ("hub", "hub", HUB),
    # A document in parts: what has arrived is not asked for again, and it is joined once.
    ("alpha", "parts", ("submit", "post", "outcome", "tick")),
    ("beta", "parts", ("receive", "join", "take")),
)

ONCE_IN_A_LIFE = ("start", "stop", "operate")
AT_MOST = {"tick": 3, "outcome": 5, "spool": 6, "take": 1} | dict.fromkeys(ONCE_IN_A_LIFE, 1)
"""How often some points are surely reached; the others as often as there are orders. What follows
a confirmed message on its channel is taken in the commit that confirms it."""


def points_of(*steps: str) -> list[str]:
    """The points before and after these steps."""
    return [point for point in POINTS if step_of(point) in steps]


def deaths(count: int, world: int = 0) -> list[Case]:
    """One death at every point of every role, the count-th time that it is reached."""
    return [
        case(victim, mode, point, 1 + (count - 1) % AT_MOST.get(step, count), world)
        for victim, mode, steps in ROLES
        for step in steps
        for point in points_of(step)
    ]


def double_deaths() -> list[Case]:
    """Dead again while the first death is being taken up, and once more where it died first."""
    cases = []
    for one in deaths(2, world=1):
        cases += [
            Case(one.victim, one.mode, (*one.deaths, ("start before commit", 1))),
            Case(one.victim, one.mode, (*one.deaths, ("start after commit", 1))),
        ]
        if one.step not in ONCE_IN_A_LIFE:
            cases.append(Case(one.victim, one.mode, one.deaths * 2))
    return cases


DOUBLE = [
    Case(victim, mode, tuple((point, 1) for point in points))
    for victim, mode, *points in (
        ("alpha", "window", "submit after commit", "start before commit", "start after commit"),
        ("alpha", "window", "post after send", "start after commit", "tick before commit"),
        ("alpha", "window", "receive before commit", "start before commit", "receive after commit"),
        ("beta", "window", "receive after commit", "start before commit", "start after commit"),
        ("beta", "window", "take after commit", "start after commit", "take after commit"),
        (
            "beta",
            "synchronous",
            "confirm before commit",
            "start before commit",
            "take after commit",
        ),
        ("hub", "hub", "receive after commit", "start after commit", "post before send"),
        ("hub", "hub", "outcome before commit", "start before commit", "outcome before commit"),
    )
]


class Troupe:
    """Plays the chosen cases side by side; a test waits for its own."""

    def __init__(self, nursery: Nursery, wires: Wires, folder: Path) -> None:
        self._nursery, self._wires, self._folder = nursery, wires, folder
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self.plays: dict[Case, Future[None]] = {}
        self.kills = 0

    def add(self, one: Case) -> None:
        self.plays[one] = self._pool.submit(self._play, one, len(self.plays))

    def _play(self, one: Case, number: int) -> None:
        folder = self._folder / f"{number}-{one.victim}-{one.step.replace(' ', '-')}"
        folder.mkdir()
        # Each case has trouble of its own, the same one each time.
        stage = Stage(self._nursery, self._wires, folder, SEED + zlib.crc32(str(one).encode()))
        try:
            play(stage, one)
            self.kills += len(one.deaths)
        except Exception as error:
            error.add_note(f"{one}, seed {stage.seed}")
            raise
        finally:
            stage.close()

    def end(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        print(f"{self.kills} kills at named points, each of them reached")


@pytest.fixture(scope="module")
def troupe(
    request: pytest.FixtureRequest,
    nursery: Nursery,
    wires: Wires,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Troupe]:
    """Every case that this session will ask for is under way from the start."""
    troupe = Troupe(nursery, wires, tmp_path_factory.mktemp("deaths"))
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.path == request.path:
            one = item.callspec.params.get("one") if hasattr(item, "callspec") else None
            if isinstance(one, Case):
                troupe.add(one)
    yield troupe
    troupe.end()


def test_every_point_is_somebodys_death() -> None:
    killed = {point for one in deaths(2) for point in one.points}
    assert killed == set(POINTS)


@pytest.mark.requirement("STO-1", "STO-3", "RM-13", "RM-18", "DUP-2", "DUP-10", "HOP-8")
@pytest.mark.parametrize("one", deaths(2), ids=str)
def test_a_party_that_dies_there_finishes_after_a_restart(troupe: Troupe, one: Case) -> None:
    troupe.plays[one].result()


@pytest.mark.requirement("STO-3")
@pytest.mark.parametrize("one", DOUBLE, ids=str)
def test_a_party_that_dies_again_while_it_recovers(troupe: Troupe, one: Case) -> None:
    troupe.plays[one].result()


@pytest.mark.soak
@pytest.mark.parametrize(
    "one", [one for count in range(1, 21) for one in deaths(count, world=count)], ids=str
)
def test_twenty_deaths_at_every_point(troupe: Troupe, one: Case) -> None:
    troupe.plays[one].result()


@pytest.mark.soak
@pytest.mark.parametrize("one", double_deaths(), ids=str)
def test_two_deaths_at_every_point(troupe: Troupe, one: Case) -> None:
    troupe.plays[one].result()
