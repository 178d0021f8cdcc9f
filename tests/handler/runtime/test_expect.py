"""What the verbs of a turn will ask for is found at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from oncewire.errors import StoreGone
from oncewire.handler.actions import Action, Source
from oncewire.handler.runtime import commit_loop as shell_module
from oncewire.handler.runtime.commit_loop import TURN_FEW, CommitLoop
from oncewire.store.memory.store import MemoryStore
from oncewire.wire.codec import named_in
from oncewire.wire.parcel import Parcel
from tests.handler.network import Network, Stores
from tests.handler.test_one_turn import Statements

MANY = TURN_FEW
"""As many as every turn takes."""


@pytest.fixture(autouse=True)
def turns_last_as_long_as_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell_module, "TURN_SECONDS", 60.0)


def _parcels(pair: Network) -> list[Parcel]:
    return [pair.order(number) for number in range(MANY)]


async def _take(pair: Network, parcels: Sequence[Parcel], *, named: bool) -> list[int]:
    """beta takes all of them in one turn; the statuses of its answers."""

    def perform(_: Action) -> None: ...

    shell = CommitLoop(pair.beta, perform)
    source = Source("http", can_answer=True)
    taking = [
        asyncio.ensure_future(
            shell.do(
                "receive",
                lambda parcel=parcel: pair.beta.receive(parcel, source),  # type: ignore[misc]
                names=named_in(parcel.body) if named else (),
            )
        )
        for parcel in parcels
    ]
    await asyncio.sleep(0)
    shell.turn()
    return [answer.status for answer in await asyncio.gather(*taking)]


@pytest.mark.parametrize("named", [True, False])
def test_arrivals_of_one_turn_are_looked_up_together(on_disk: Stores, named: bool) -> None:
    pair = Network.pair(lose_request=lambda post: True, store=on_disk)
    parcels = _parcels(pair)
    statements = Statements(pair.beta.context.store)
    assert asyncio.run(_take(pair, parcels, named=named)) == [204] * MANY
    asked = statements.reading
    # A few are asked for the turn itself, and one for each sender, however many arrive.
    assert len(asked) <= (12 if named else MANY + 12), "\n".join(asked)
    assert named or len(asked) > MANY
    pair.close()


def test_whoever_is_not_found_ahead_is_told_himself() -> None:
    pair = Network.pair(lose_request=lambda post: True)
    parcels = _parcels(pair)
    store = pair.beta.context.store
    assert isinstance(store, MemoryStore)
    store.fail_next_transition(StoreGone("broken"))
    assert asyncio.run(_take(pair, parcels, named=True)) == [204] * MANY
