"""An application that will not take a message: somebody is called once, and let off later."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from oncewire.errors import NotAllowed, StoreFull
from oncewire.handler.actions import Notice, Submission
from oncewire.handler.delivering.deliver import Application, GivenMessage
from oncewire.handler.runtime import offers
from oncewire.handler.runtime.handler import Handler
from oncewire.journal.row import Row
from oncewire.store.memory.store import MemoryStore
from oncewire.store.records import Incident
from oncewire.wire.parcel import Parcel
from tests.handler.network import Network
from tests.handler.running import SYNC, Wire, context_of, delivery_of, order_parcel
from tests.waiting import until


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


def handler_of(
    store: MemoryStore, application: Application, wire: Wire, extra: str = SYNC
) -> Handler:
    return Handler(context_of("beta", store, extra), {"http": wire}, application=application)


def orders_of(talk: str, count: int, extra: str) -> list[Parcel]:
    """Orders of alpha in one conversation, as they were on their way."""
    pair = Network.pair("ebms2", extra)
    ids = [f"{talk}-{number}@alpha" for number in range(1, count + 1)]
    for number, message_id in enumerate(ids, 1):
        data = f"{talk} {number}".encode()
        pair.send(data=data, conversation_id=talk, message_id=message_id)
    return [pair.sent(message_id) for message_id in ids]


def incidents(store: MemoryStore, *, open_only: bool = True) -> list[Incident]:
    with store.reader() as reader:
        return reader.incidents(open_only=open_only)


def rows(store: MemoryStore, kind: str) -> list[Row]:
    with store.reader() as reader:
        return [row for row in reader.journal_since(0, 10_000) if row.kind == kind]


async def test_the_operator_is_called_once_and_let_off_when_it_is_taken() -> None:
    store, wire = MemoryStore("beta"), Wire()
    open_then: list[int] = []

    class Watched(Fussy):
        async def deliver(self, taken: GivenMessage) -> Sequence[Submission] | None:
            open_then.append(len(incidents(store)))
            return await super().deliver(taken)

    application = Watched()
    async with handler_of(store, application, wire):
        await wire.deliver(delivery_of(order_parcel()))
        await until(lambda: len(application.offered) >= 12)
        assert open_then[:6] == [0, 0, 0, 0, 1, 1]
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
        await wire.deliver(delivery_of(order_parcel()))
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
        await wire.deliver(delivery_of(order_parcel()))
        await until(lambda: incidents(store))
        with pytest.raises(NotAllowed, match="was received here"):
            await handler.loop.operate(lambda engine: engine.resume(message_id="order-1@alpha"))
        confirmed = await handler.loop.operate(
            lambda engine: engine.confirm("urn:test:alpha", "order-1@alpha", by="pat")
        )
        assert confirmed
        assert incidents(store) == []
        offers = len(application.offered)
        assert handler._hand_over is not None
        # Its place is free again.
        await until(lambda: handler._hand_over is not None and not handler._hand_over._tasks)
        assert len(application.offered) <= offers + 1
        assert incidents(store) == []


class Busy:
    """It takes what it is called with when its door opens."""

    hears = True

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.called: list[GivenMessage] = []
        self.inside = self.most = 0
        self.door = asyncio.Event()

    async def deliver(self, taken: GivenMessage) -> None:
        self.called.append(taken)
        self.inside += 1
        self.most = max(self.most, self.inside)
        await self.door.wait()
        await asyncio.sleep(0.001)
        self.inside -= 1

    async def notify(self, notice: Notice) -> None:
        raise AssertionError(notice)


@pytest.mark.parametrize("batch", [1, 3])
async def test_a_message_is_handed_over_when_the_application_is_called_with_it(batch: int) -> None:
    store, application, wire = MemoryStore("beta"), Busy(batch), Wire()
    async with handler_of(store, application, wire):
        for number in range(1, 8):
            await wire.deliver(delivery_of(order_parcel(number)))
        await until(lambda: len(application.called) == batch)
        # Whatever else the handler does meanwhile.
        await asyncio.sleep(0.1)
        given = [row.message_id for row in rows(store, "handed_over")]
        assert given == [taken.message_id for taken in application.called]
        assert len(given) == batch
        application.door.set()
        await until(lambda: len(rows(store, "confirmed")) == 7)
        given = [row.message_id for row in rows(store, "handed_over")]
        assert given == [taken.message_id for taken in application.called]
        assert application.most == batch


async def test_only_what_the_application_was_called_with_comes_again_as_redelivered() -> None:
    store, wire = MemoryStore("beta"), Wire()
    first = Busy(batch=1)
    handler = handler_of(store, first, wire)
    await handler.start()
    for number in range(1, 5):
        await wire.deliver(delivery_of(order_parcel(number)))
    await until(lambda: first.called)
    store.crash()
    second = Busy(batch=1)
    second.door.set()
    async with handler_of(store, second, wire):
        await until(lambda: len(rows(store, "confirmed")) == 4)
    assert [taken.redelivered for taken in second.called] == [True, False, False, False]


async def test_one_message_of_a_channel_at_a_time_and_the_others_beside_it() -> None:
    store, application, wire = MemoryStore("beta"), Busy(batch=3), Wire()
    ordered = "[sequence]\nordered = true\n"
    sent = {talk: orders_of(talk, 3, ordered) for talk in ("one", "two")}
    async with handler_of(store, application, wire, ordered):
        for parcel in (*sent["one"], *sent["two"]):
            await wire.deliver(delivery_of(parcel))
        await until(lambda: len(application.called) == 2)
        await asyncio.sleep(0.05)
        assert len(application.called) == 2
        assert len({taken.channel for taken in application.called}) == 2
        assert len(rows(store, "handed_over")) == 2
        application.door.set()
        await until(lambda: len(rows(store, "confirmed")) == 6)
    for talk in ("one", "two"):
        numbers = [
            taken.message_id for taken in application.called if taken.header.conversation_id == talk
        ]
        assert numbers == sorted(numbers)
        assert len(numbers) == 3


async def test_a_refused_message_keeps_no_place_at_the_application() -> None:
    """It waits for its next offer outside; others are given meanwhile."""
    store, wire = MemoryStore("beta"), Wire()
    application = Fussy()
    application.batch = 1
    async with handler_of(store, application, wire):
        for number in (1, 2, 3):
            await wire.deliver(delivery_of(order_parcel(number)))
        await until(lambda: len(set(application.offered)) == 3)
        application.takes = True
        await until(lambda: len(rows(store, "confirmed")) == 3)
    assert [row for row in rows(store, "handed_over") if "redelivered" in (row.detail or "")] == []


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
            await wire.deliver(delivery_of(order_parcel()))
            await until(lambda: tries >= 10)
            assert incidents(store) == []
        await until(lambda: rows(store, "confirmed"))
    # It was given once: only the note of it had to be repeated.
    assert application.offered == ["order-1@alpha"]
