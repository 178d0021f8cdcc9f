"""Many messages over each transport while it loses, repeats, delays and doubts: each arrives once.

The transports and their servers are real; what goes wrong is drawn from a seed. A few messages in
every run, a thousand with `make soak`.
"""

import asyncio
import contextlib
import random
from pathlib import Path

import pytest

from oncewire.journal.check import check_journal
from oncewire.protocol.states import OutgoingState
from oncewire.transport.contract import AttemptOutcome, Cargo, OnDelivery, OutcomeKind, Transport
from tests.handler.running import journal
from tests.handler.test_fallback import both_ways
from tests.handler.test_other_transports import NAMES, WAYS, by_ftps, by_mailbox, document


def patient(count: int) -> str:
    """Timers that leave so many messages the time to travel once: a resend of what is only slow
    makes everything slower."""
    wait = f"PT{max(1, count // 50)}S"
    return f'[delivery]\ntimeout = "{wait}"\nretry_interval = "{wait}"\nretries = 200\n'


pytestmark = [pytest.mark.process, pytest.mark.long]
EVERY_WAY = {**WAYS, "ftps": by_ftps, "imap": by_mailbox}
COUNTS = [
    pytest.param(30, marks=pytest.mark.within(90)),
    pytest.param(1000, marks=[pytest.mark.soak, pytest.mark.within(1060)]),
]


class Faulty:
    """A transport with bad luck."""

    def __init__(self, inner: Transport, chance: random.Random) -> None:
        self._inner, self._chance = inner, chance
        self.name, self.can_answer = inner.name, inner.can_answer

    async def start(self, on_delivery: OnDelivery) -> None:
        await self._inner.start(on_delivery)

    async def send(self, cargo: Cargo, address: str, *, timeout: float) -> AttemptOutcome:
        luck = self._chance.random()
        if luck < 0.1:
            # Taken, and lost behind the back of whoever took it.
            return AttemptOutcome(OutcomeKind.SENT)
        if luck < 0.15:
            return AttemptOutcome(OutcomeKind.REFUSED, "nobody there")
        if luck < 0.3:
            await asyncio.sleep(self._chance.random())
        outcome = await self._inner.send(cargo, address, timeout=timeout)
        if luck > 0.9:
            outcome = await self._inner.send(cargo, address, timeout=timeout)
        elif luck > 0.8:
            outcome = AttemptOutcome(OutcomeKind.UNKNOWN, "the answer was lost")
        return outcome

    async def probe(self, address: str, *, timeout: float) -> AttemptOutcome:
        return await self._inner.probe(address, timeout=timeout)

    async def stop(self) -> None:
        await self._inner.stop()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("way", EVERY_WAY)
async def test_each_message_arrives_once(way: str, count: int, tmp_path: Path) -> None:
    chance = random.Random(f"{way} {count}")
    async with EVERY_WAY[way](tmp_path, patient(count)) as world:
        for name in NAMES:
            world.ways[name] = {
                kind: Faulty(transport, chance) for kind, transport in world.ways[name].items()
            }
        async with world.running() as (alpha, beta):
            sent = [await alpha.send(document(number)) for number in range(count)]
            for each in sent:
                assert await alpha.wait(each.message_id, 300) is OutgoingState.DELIVERED
            taken = []
            while some := await beta.take(100):
                taken += [given.message_id for given in some]
            assert sorted(taken) == sorted(each.message_id for each in sent)
            for handler in (alpha, beta):
                assert not check_journal(journal(handler), healed=False).violations


@pytest.mark.parametrize("count", COUNTS)
async def test_a_line_that_dies_half_way_and_comes_back_costs_nothing(
    count: int, tmp_path: Path
) -> None:
    async with both_ways(tmp_path) as (handlers, lines):
        alpha, beta = handlers["alpha"], handlers["beta"]
        sent = []
        for number in range(count):
            if number == count // 3:
                lines["alpha"].before = lines["beta"].before = True
            if number == 2 * count // 3:
                # However slow it is: until the way is left, nothing was shown.
                while not alpha.engine.context.state.left:
                    await asyncio.sleep(0.02)
                lines["alpha"].before = lines["beta"].before = False
            sent.append(await alpha.send(document(number)))
            await asyncio.sleep(0.01)
        for each in sent:
            assert await alpha.wait(each.message_id, 60) is OutgoingState.DELIVERED
        taken = []
        while some := await beta.take(100):
            taken += [given.message_id for given in some]
        assert sorted(taken) == sorted(each.message_id for each in sent)
        ways = [row.transport for row in journal(alpha) if row.kind == "sent"]
        assert {"http", "smtp"} <= set(ways)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(20):
                while alpha.engine.context.state.left:
                    await asyncio.sleep(0.05)
        last = await alpha.send(document(count))
        assert await alpha.wait(last.message_id, 30) is OutgoingState.DELIVERED
        assert [row.transport for row in journal(alpha) if row.kind == "sent"][-1] == "http"
        for handler in (alpha, beta):
            assert not check_journal(journal(handler), healed=False).violations
