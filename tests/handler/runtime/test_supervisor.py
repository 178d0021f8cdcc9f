"""No task of a handler ends unnoticed, and one that takes no turns does not answer a probe."""

from __future__ import annotations

import asyncio
import logging

import pytest

from oncewire.agreement.agreement import Agreements
from oncewire.entry.control.client import LocalHandler
from oncewire.errors import HandlerFailed, StoreGone, StoreProblem
from oncewire.handler.context import HandlerContext
from oncewire.handler.runtime.commit_loop import AGAIN, Outages, Pulse
from oncewire.handler.runtime.handler import Handler
from oncewire.handler.world import RealWorld
from oncewire.store.memory.store import MemoryStore
from tests.waiting import until


def handler() -> Handler:
    return Handler(HandlerContext("alpha", MemoryStore("alpha"), Agreements(), RealWorld()), {})


async def _raise(problem: BaseException) -> None:
    raise problem


@pytest.mark.parametrize("problem", [KeyError("ours"), MemoryError()])
async def test_a_task_that_ends_by_a_fault_ends_the_handler(
    problem: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    one = handler()
    await one.start()
    one.supervisor.spawn(_raise(problem))
    one.supervisor.spawn(_raise(problem))
    why = await asyncio.wait_for(one.supervisor.failed(), 60)
    assert (why.exit_code, type(problem).__name__ in why.problem) == (70, True)
    with pytest.raises(HandlerFailed):
        await LocalHandler(one).notices()
    assert (await LocalHandler(one).status()).running is False
    await one.stop()
    assert [record.levelno for record in caplog.records].count(logging.CRITICAL) == 1


async def test_nobody_waits_for_a_turn_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    one = handler()
    await one.start()

    def commit() -> None:
        raise KeyError("ours")

    monkeypatch.setattr(one.engine, "commit", commit)
    waiting = [asyncio.ensure_future(LocalHandler(one).notices()) for _ in range(3)]
    done, _ = await asyncio.wait(waiting, timeout=60)
    assert len(done) == 3
    assert all(task.exception() is not None for task in done)
    await asyncio.wait_for(one.supervisor.failed(), 60)


async def test_a_verb_that_runs_out_of_memory_ends_the_handler() -> None:
    one = handler()
    await one.start()

    def verb(engine: object) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        await one.loop.operate(verb)
    await asyncio.wait_for(one.supervisor.failed(), 60)


async def test_a_fault_of_one_verb_is_its_caller_s() -> None:
    one = handler()
    await one.start()

    def verb(engine: object) -> None:
        raise KeyError("ours")

    with pytest.raises(KeyError):
        await one.loop.operate(verb)
    assert await LocalHandler(one).notices() == []
    assert (await LocalHandler(one).status()).running is True
    await one.stop()


async def test_a_handler_that_takes_no_turns_is_not_called_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = handler()
    await one.start()
    monkeypatch.setattr("oncewire.entry.control.client.PROBE", 0.05)
    monkeypatch.setattr(one.supervisor._loop, "_take_turns", None)
    monkeypatch.setattr(one.supervisor._loop, "_awake", asyncio.Event())
    monkeypatch.setattr(one.supervisor._loop, "turn", lambda: None)
    found = await LocalHandler(one).status()
    assert found.running is False
    assert "no turn" in found.stuck


def test_the_pulse_remembers_the_latest_beat_of_a_minute() -> None:
    pulse = Pulse()
    assert pulse.lag == 0.0
    pulse.note(1.0, 0.7)
    pulse.note(2.0, -0.1)
    assert pulse.lag == 0.7
    pulse.note(62.0, 0.2)
    assert pulse.lag == 0.2


def test_an_outage_is_told_at_once_and_then_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    outages = Outages("the store does not answer", lambda: now[0])
    for _ in range(5):
        outages.say(StoreGone("gone"))
    outages.say(StoreProblem("other"))
    assert len(caplog.records) == 2
    now[0] = AGAIN
    outages.say(StoreGone("gone"))
    assert getattr(caplog.records[-1], "repeats") == 4  # noqa: B009


async def test_a_store_that_does_not_answer_is_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop looks at its timers twice a turn."""

    def rest() -> None:
        raise StoreGone("gone")

    async with handler() as one:
        monkeypatch.setattr(one.engine, "rest", rest)
        for _ in range(5):
            await one.loop.do("look", lambda: None)
    said = [record for record in caplog.records if "does not answer" in record.message]
    assert len(said) == 1


async def test_a_store_that_is_away_for_a_while_does_not_end_the_probes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = HandlerContext("alpha", MemoryStore("alpha"), Agreements(), RealWorld())
    one = Handler(context, {}, probe_every=1)
    await one.start()
    commit, failed = one.engine.commit, 0

    def sometimes() -> object:
        nonlocal failed
        failed += 1
        if failed % 2:
            raise StoreGone("away")
        return commit()

    monkeypatch.setattr(one.engine, "commit", sometimes)
    await until(lambda: failed > 20)
    assert one.loop.failed is None
    monkeypatch.undo()
    await one.stop()
