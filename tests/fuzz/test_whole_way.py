"""Slices of the fuzzer that reaches the whole way; the millions are run by `make soak`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.fuzz.whole_way import InProcess, over_sockets

SEED = 2_000


def in_process(seed: int, cases: int) -> InProcess:
    fuzzing = InProcess(seed)
    for number in range(cases):
        try:
            fuzzing.run(number)
        except Exception as error:
            raise AssertionError(f"case {number} of seed {seed} broke") from error
    return fuzzing


@pytest.mark.long
def test_a_harmed_body_is_refused_or_taken_and_raises_nothing() -> None:
    fuzzing = in_process(SEED, 1_500)
    assert sum(fuzzing.outcomes.values()) == 1_500
    # Mutations that all fail, or all pass, would show nothing.
    assert fuzzing.outcomes["taken"] > 75
    assert fuzzing.outcomes["refused"] > 75


async def on_sockets(folder: Path, seed: int, cases: int) -> None:
    step = min(cases, 5_000)
    async with over_sockets(folder, seed) as fuzzing:
        for begin in range(0, cases, step):
            await fuzzing.run(range(begin, min(cases, begin + step)))
    assert sum(fuzzing.outcomes.values()) == cases
    assert fuzzing.outcomes["200"] > cases // 20
    assert fuzzing.outcomes["400"] + fuzzing.outcomes["500"] > cases // 20


@pytest.mark.long
def test_whatever_comes_over_a_socket_is_answered_in_time(tmp_path: Path) -> None:
    asyncio.run(on_sockets(tmp_path, SEED, 400))


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_ten_million_bodies(part: int) -> None:
    in_process(3_000 + part, 1_000_000)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_a_million_requests_over_sockets(part: int, tmp_path: Path) -> None:
    asyncio.run(on_sockets(tmp_path, 4_000 + part, 100_000))
