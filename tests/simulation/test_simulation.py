"""The simulated world itself: it replays, it injects what it says, and it finds nothing."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

from oncewire.lab.simulation.plan import Options, faults_of
from oncewire.lab.simulation.world import Result
from tests.simulation.given import simulate, world_of

HUBS = Options(messages=200, hops=3, loss=0.3, duplicate=0.2, reorder=0.3, crash=0.01)
STORM = Options(messages=50, loss=0.9, retries=200, reorder=0.3)


def run_many(options: Options, seeds: range) -> list[Result]:
    """One process a core: a run is one thread of pure computation."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        return list(pool.map(partial(simulate, options), seeds))


def judge(results: list[Result], options: Options) -> None:
    broken = [result for result in results if result.violations]
    told = "\n".join(
        f"{result.plan.command}\n  {result.violations[0].sentence}" for result in broken[:5]
    )
    assert not broken, told
    faults = faults_of(sum((one.happened for one in results), Counter()))
    print("faults injected:", faults)
    assert all(faults.values()), faults
    for result in results:
        assert result.delivered + result.notified >= options.messages, result.plan.command


def test_one_seed_replays_one_run_exactly() -> None:
    options = Options(messages=30, hops=2, crash=0.02, corrupt=0.05)
    first, second = world_of(options, 7), world_of(options, 7)
    first.run()
    second.run()
    assert first.rows() == second.rows()
    other = world_of(options, 8)
    other.run()
    assert other.rows() != first.rows()


@pytest.mark.requirement("RM-2", "STO-3", "DUP-10", "HOP-1", "HOP-5", "SW-9", "SW-10")
def test_hubs_over_a_bad_network_with_crashes() -> None:
    """200 messages, 3 hops, 30 % loss, 20 % copies, 30 % late, crashes on every node."""
    results = [simulate(HUBS, seed) for seed in range(1, 7)]
    judge(results, HUBS)
    steps = {name for result in results for name in result.happened if name.startswith("crash ")}
    for step in ("submit", "receive", "outcome", "tick", "answer left", "take", "confirm"):
        assert {f"crash before {step}", f"crash after {step}"} <= steps, sorted(steps)


@pytest.mark.soak
def test_hubs_over_a_bad_network_at_length() -> None:
    judge(run_many(HUBS, range(1, 1001)), HUBS)


@pytest.mark.soak
def test_nine_of_ten_transfers_lost() -> None:
    judge(run_many(STORM, range(1, 101)), STORM)


PROFILES = {
    "rm-0.78, stop-and-wait": Options(messages=40, profile="rm-0.78", flow="stop-and-wait"),
    "rm-0.78 through hubs": Options(
        messages=30, profile="rm-0.78", flow="stop-and-wait", hops=3, loss=0.3
    ),
    "ebms2, unrestricted": Options(messages=60, profile="ebms2", flow="unrestricted"),
    "ebms2, synchronous acks": Options(
        messages=60,
        profile="ebms2",
        flow="unrestricted",
        agreement='[sync]\nmode = "mshSignalsOnly"\n[delivery]\non_exhausted = "fail_message"\n',
    ),
    "tiny range that wraps all the time": Options(
        messages=60,
        window=3,
        retries=3,
        abandon=0.2,
        agreement="[sequence]\nrange = [0, 7]\n",
    ),
    "few retries, operators who give up": Options(
        messages=40, retries=1, loss=0.4, abandon=0.5, hops=2
    ),
    "ebms2 through a hub": Options(
        messages=40, hops=2, loss=0.3, retries=3, profile="ebms2", flow="unrestricted"
    ),
    "transient until forwarded": Options(
        messages=30, hops=2, hop_mode="transient_until_forwarded", retries=30
    ),
    "short lives": Options(
        messages=40,
        loss=0.3,
        reorder=0.5,
        abandon=1.0,
        agreement='[delivery]\ntime_to_live = "PT20S"\n',
    ),
}


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_keep_their_promises(name: str) -> None:
    for seed in range(1, 4):
        result = simulate(PROFILES[name], seed)
        told = [violation.sentence for violation in result.violations[:3]]
        assert not told, (result.plan.command, told)


@pytest.mark.soak
@pytest.mark.parametrize("name", PROFILES)
def test_profiles_keep_their_promises_at_length(name: str) -> None:
    broken = [one for one in run_many(PROFILES[name], range(4, 201)) if one.violations]
    assert not broken, [(one.plan.command, one.violations[0].sentence) for one in broken[:5]]
