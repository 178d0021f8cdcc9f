"""An application that will not take a message: somebody is called once, and let off later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from oncewire.agreement.agreements import Agreements
from oncewire.agreement.toml.reader import read_toml
from oncewire.errors import NotAllowed, StoreFull
from oncewire.handler.actions import Notice
from oncewire.handler.delivering.application import GivenMessage
from oncewire.handler.handler import Handler
from oncewire.handler.loop import offers
from oncewire.handler.node import Node
from oncewire.handler.sending.submit import Submission
from oncewire.handler.world import RealWorld
from oncewire.journal.row import Row
from oncewire.store.memory.store import MemoryStore
from oncewire.store.records import Incident
from tests.handler.memory_wire import SYNC, Wire, delivery_of, order
from tests.handler.pair import agreement_text


class Fussy:
    """It takes nothing until it is told to."""

    batch = 4
    hears = True

    def __init__(self) -> None:
        self.takes = False
        self.offered: list[str] = []
        self.answers: list[Submission] = []

    async def deliver(self, taken: GivenMessage) -> Sequence[Submission] | None:
        self.offered.append(taken.message_id)
        if not self.takes:
            raise ValueError("the warehouse is closed")
        return self.answers

    async def notify(self, notice: Notice) -> None:
        raise AssertionError(notice)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries come quickly after each other."""
    monkeypatch.setattr(offers, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(offers, "LONGEST_PAUSE", 0.002)
    monkeypatch.setattr(offers, "REFUSALS_MAX", 4)


def handler_of(store: MemoryStore, application: Fussy, wire: Wire) -> Handler:
    agreement = read_toml(agreement_text("beta", "alpha", "ebms2", SYNC))
    node = Node("beta", store, Agreements([agreement]), RealWorld())
    return Handler(node, {"http": wire}, application=application)


def incidents(store: MemoryStore, *, open_only: bool = True) -> list[Incident]:
    with store.reader() as reader:
        return reader.incidents(open_only=open_only)


def rows(store: MemoryStore, kind: str) -> list[Row]:
    with store.reader() as reader:
        return [row for row in reader.journal_since(0, 10_000) if row.kind == kind]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.002)


async def test_the_operator_is_called_once_and_let_off_when_it_is_taken() -> None:
    store, application, wire = MemoryStore("beta"), Fussy(), Wire()
    async with handler_of(store, application, wire):
        await wire.deliver(delivery_of(order()))
        await until(lambda: len(application.offered) >= 3)
        assert incidents(store) == []
        await until(lambda: len(application.offered) >= 12)
        (incident,) = incidents(store)
        assert incident.message_id == "order-1@alpha"
        assert "the warehouse is closed" in incident.reason
        assert len(rows(store, "incident")) == 1
        application.takes = True
        await until(lambda: rows(store, "confirmed"))
        assert incidents(store) == []
        assert len(rows(store, "resolved")) == 1


async def test_a_restart_neither_forgets_nor_repeats_the_call() -> None:
    store, application, wire = MemoryStore("beta"), Fussy(), Wire()
    async with handler_of(store, application, wire):
        await wire.deliver(delivery_of(order()))
        await until(lambda: incidents(store))
    application.offered.clear()
    async with handler_of(store, application, wire):
        await until(lambda: len(application.offered) >= 8)
        assert len(rows(store, "incident")) == 1
        application.takes = True
        await until(lambda: rows(store, "confirmed"))
        assert incidents(store) == []


async def test_what_was_dealt_with_by_hand_is_offered_no_more() -> None:
    store, application, wire = MemoryStore("beta"), Fussy(), Wire()
    async with handler_of(store, application, wire) as handler:
        await wire.deliver(delivery_of(order()))
        await until(lambda: incidents(store))
        with pytest.raises(NotAllowed, match="was received here"):
            await handler.operate(lambda engine: engine.resume(message_id="order-1@alpha"))
        confirmed = await handler.operate(
            lambda engine: engine.confirm("urn:test:alpha", "order-1@alpha", by="pat")
        )
        assert confirmed
        assert incidents(store) == []
        offers = len(application.offered)
        assert handler._hand_over is not None
        # Its place is free again.
        await until(lambda: handler._hand_over is not None and handler._hand_over._offered == 0)
        assert len(application.offered) <= offers + 1
        assert incidents(store) == []


async def test_a_full_store_is_not_the_applications_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    store, application, wire = MemoryStore("beta"), Fussy(), Wire()
    application.takes = True
    async with handler_of(store, application, wire) as handler:
        tries = 0

        def full(*_: object) -> bool:
            nonlocal tries
            tries += 1
            raise StoreFull("full")

        with monkeypatch.context() as trouble:
            trouble.setattr(handler.engine, "confirm", full)
            await wire.deliver(delivery_of(order()))
            await until(lambda: tries >= 10)
            assert incidents(store) == []
        await until(lambda: rows(store, "confirmed"))
    # It was given once: only the note of it had to be repeated.
    assert application.offered == ["order-1@alpha"]
