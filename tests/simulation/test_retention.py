"""Sweeps in the middle of traffic, crashes and full disks; copies that come long after the end."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from oncewire.handler.runtime import retention
from oncewire.handler.sending import seal
from oncewire.journal.check import check_journal
from oncewire.lab.simulation.connection import Arrive, Links, Turned
from oncewire.lab.simulation.plan import Options
from oncewire.lab.simulation.world import World
from oncewire.message.instant import HOUR, MINUTE, SECOND, Duration
from tests.simulation.given import world_of

KEPT: Duration = 2 * MINUTE
WORLDS = {
    "window": Options(messages=60, retries=4, crash=0.02, disk_full=0.02, persist_duration=KEPT),
    "tiny range, one hub": Options(
        messages=60,
        hops=2,
        window=3,
        retries=4,
        crash=0.02,
        disk_full=0.02,
        abandon=0.3,
        persist_duration=KEPT,
        agreement="[sequence]\nrange = [0, 7]\n",
    ),
    "unnumbered": Options(
        messages=60,
        profile="ebms2",
        flow="unrestricted",
        retries=4,
        duplicate=0.4,
        reorder=0.5,
        crash=0.02,
        disk_full=0.02,
        persist_duration=KEPT,
    ),
    "failing": Options(
        messages=60,
        profile="ebms2",
        flow="unrestricted",
        retries=1,
        loss=0.5,
        abandon=0.5,
        crash=0.02,
        persist_duration=MINUTE,
        agreement='[delivery]\non_exhausted = "fail_message"\n',
    ),
}


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention is always at work, and every parcel of ours is a file of the spool."""
    monkeypatch.setattr(retention, "FIRST_SWEEP", SECOND)
    monkeypatch.setattr(retention, "SWEEP_EVERY", 3 * SECOND)
    monkeypatch.setattr(retention, "BATCH", 3)
    monkeypatch.setattr(seal, "SPOOL_ABOVE", 0)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Of every third transfer the network brings a copy when everybody has forgotten it."""
    seen: Counter[str] = Counter()
    carry, chance = Links.carry, random.Random(1)

    def haunted(
        self: Links, sender: str, receiver: str, body: bytes, arrive: Arrive, *more: Turned
    ) -> None:
        carry(self, sender, receiver, body, arrive, *more)
        if chance.random() < 0.3:

            def haunt() -> None:
                seen["late copies"] += 1
                arrive(body)

            self.clock.after(2 * KEPT + chance.randrange(HOUR), haunt)

    monkeypatch.setattr(Links, "carry", haunted)
    return seen


def left(simulation: World) -> dict[str, int]:
    """How many messages each node still has."""
    found = {}
    for machine in simulation.machines:
        with machine.store.reader() as reader:
            found[machine.name] = sum(reader.counts().values())
            # Whatever is kept is whole.
            for name in reader.spooled():
                machine.store.spool.open(name).close()
    return found


@pytest.mark.requirement("STO-3", "STO-7", "DUP-10")
@pytest.mark.parametrize("name", WORLDS)
def test_sweeps_amid_everything_break_no_promise(name: str, late: Counter[str]) -> None:
    swept = crashes = 0
    for seed in range(1, 6):
        simulation = world_of(WORLDS[name], seed)
        result = simulation.run()
        told = [violation.sentence for violation in result.violations[:3]]
        assert not told, (name, seed, told)
        with simulation.machine("seller").store.reader() as reader:
            swept += reader.last_removal() is not None
        crashes += result.happened["crash"]
        # Hours later, with copies from the past all along, nothing has come back to life.
        end = simulation.clock.now + 3 * HOUR
        while simulation.clock.now < end and simulation.clock.step():
            pass
        report = check_journal(simulation.rows(), healed=True)
        assert report.clean, (name, seed, [one.sentence for one in report.violations[:3]])
        confirmed = [row.message_id for row in simulation.rows() if row.kind == "confirmed"]
        assert len(confirmed) == len(set(confirmed))
        assert set(left(simulation).values()) == {0}, (name, seed, left(simulation))
    print(f"{name}: {crashes} crashes, {late['late copies']} late copies")
    # A world may end before its first sweep, where partners answer soon.
    assert swept >= 4
    assert crashes > 10
    assert late["late copies"] > 100


def test_every_file_goes_in_the_end(late: Counter[str]) -> None:
    simulation = world_of(WORLDS["unnumbered"], 7)
    assert not simulation.run().violations
    end = simulation.clock.now + 3 * HOUR
    while simulation.clock.now < end and simulation.clock.step():
        pass
    assert [machine.store.spool._files for machine in simulation.machines] == [{}, {}]
    assert late["late copies"]
