"""Failures are told until the application took the notice, and notices cause no notices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from oncewire.entry.control.client import LocalHandler
from oncewire.errors import UnknownMessage
from oncewire.handler.actions import Notice, Submission
from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.handler.perform import load_channel, perform
from oncewire.handler.runtime import offers
from oncewire.handler.runtime.engine import Engine
from oncewire.handler.runtime.handler import Handler
from oncewire.lab.simulation.plan import Options
from oncewire.message.envelope import Error
from oncewire.message.ids import Service
from oncewire.message.instant import MILLISECOND, MINUTE, SECOND
from oncewire.protocol.sender import error_arrived
from oncewire.protocol.states import OutgoingState
from oncewire.store.contract import Store
from oncewire.store.memory.store import MemoryStore
from tests.handler.network import Network, Stores
from tests.handler.running import Wire, context_of
from tests.handler.runtime.test_shell import failed_at_a_hub, told_of
from tests.simulation.given import world_of
from tests.waiting import until

FAILS = """[delivery]
timeout = "PT1S"
retry_interval = "PT1S"
retries = 0
on_exhausted = "fail_message"
"""
ORDER = "order-1@alpha"


@pytest.fixture
def pair(stores: Stores) -> Iterator[Network]:
    """alpha's order is lost, and nobody comes for the notice."""
    pair = Network.pair("ebms2", FAILS, store=stores, lose_request=lambda post: True, hears=False)
    pair.send(1)
    pair.pass_time(2 * SECOND)
    yield pair
    pair.close()


def state_of(engine: Engine, message_id: str = ORDER) -> OutgoingState:
    with engine.context.transition() as tx:
        stored = tx.outgoing(message_id)
    assert stored is not None
    return stored.outgoing.state


# --- owed until taken --------------------------------------------------------------------------


@pytest.mark.requirement("RTY-14", "RM-2")
def test_a_notice_that_nobody_took_is_told_again_after_a_crash(pair: Network) -> None:
    (notice,) = pair.alpha.notices(10)
    assert (notice.message_id, notice.severity.value) == (ORDER, "Warning")
    assert "failed" in pair.kinds("alpha")
    assert "notified" not in pair.kinds("alpha"), "nobody was told yet"
    assert [one.kind for one in pair.verify().violations] == ["unnotified"]
    pair.crash("alpha")
    assert pair.alpha.notices(10) == [notice], "the same, under the same id"
    assert pair.alpha.confirm_notice(notice.notice_id)
    pair.crash("alpha")
    # It died before that was stored.
    assert pair.alpha.notices(10) == [notice]
    assert pair.alpha.confirm_notice(notice.notice_id)
    pair.settle("alpha")
    pair.crash("alpha")
    assert pair.alpha.notices(10) == []
    assert not pair.alpha.confirm_notice(notice.notice_id), "twice is the same as once"
    assert pair.kinds("alpha").count("notified") == 1
    assert pair.verify().clean, pair.verify().violations


def test_a_failure_that_is_none_any_more_is_not_told(pair: Network) -> None:
    (notice,) = pair.alpha.notices(10)
    pair.lose_request = lambda post: False
    pair.alpha.resume(message_id=ORDER)
    pair.settle("alpha")
    pair.pass_time(MILLISECOND)
    assert state_of(pair.alpha) is OutgoingState.DELIVERED
    assert pair.alpha.notices(10) == []
    assert not pair.alpha.owes(notice.notice_id)
    assert not pair.alpha.confirm_notice(notice.notice_id)
    assert "notified" not in pair.kinds("alpha")


def test_a_second_failure_has_a_notice_of_its_own(pair: Network) -> None:
    (first,) = pair.alpha.notices(10)
    pair.alpha.resume(message_id=ORDER)
    pair.settle("alpha")
    pair.pass_time(*[2 * SECOND] * 2)
    (second,) = pair.alpha.notices(10)
    assert second.notice_id != first.notice_id
    assert not pair.alpha.confirm_notice(first.notice_id), "an old word does not settle a new one"
    assert pair.alpha.owes(second.notice_id)
    for name in (ORDER, "nobody#1"):
        with pytest.raises(UnknownMessage, match="there is no notice"):
            pair.alpha.confirm_notice(name)


@pytest.mark.requirement("OPS-4")
def test_best_effort_that_fails_is_told_to_nobody() -> None:
    pair = Network.pair("ebms2")
    pair.alpha.context.at_rest = True
    pair.send(1, best_effort=True, time_to_live=SECOND)
    pair.pass_time(2 * SECOND)
    assert state_of(pair.alpha) is OutgoingState.NOT_DELIVERED
    assert pair.notices == pair.alpha.notices(10) == []
    assert "notified" not in pair.kinds("alpha")


# --- an application that is called -------------------------------------------------------------


class Bureau:
    """It hears of failures, and refuses as often as it is told to."""

    batch, hears = 4, True

    def __init__(self, refusals: int = 0) -> None:
        self.refusals, self.heard = refusals, list[Notice]()

    async def deliver(self, taken: GivenMessage) -> Sequence[Submission] | None:
        raise AssertionError(taken)

    async def notify(self, notice: Notice) -> None:
        self.heard.append(notice)
        if self.refusals:
            self.refusals -= 1
            raise ValueError("the bureau is closed")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(offers, "LONGEST_PAUSE", 0.002)
    monkeypatch.setattr(offers, "REFUSALS_MAX", 4)


def handler_of(store: Store, application: Bureau) -> Handler:
    wire = Wire()
    wire.gate.set()
    return Handler(context_of("alpha", store, FAILS), {"http": wire}, application=application)


def kinds(store: Store) -> list[str]:
    with store.reader() as reader:
        return [row.kind for row in reader.journal_since(0, 10_000)]


async def fail_one(handler: Handler) -> str:
    submission = Submission("alpha-beta", Service("urn:test:orders"), "New", time_to_live=DAYS)
    sent = await handler.send(submission)
    await handler.loop.operate(lambda engine: engine.abandon(sent.message_id))
    return sent.message_id


DAYS = 3 * 24 * 60 * MINUTE


@pytest.mark.requirement("RTY-14")
async def test_an_application_is_told_until_it_took_the_notice(hasty: None) -> None:
    store, bureau = MemoryStore("alpha"), Bureau(refusals=10)
    async with handler_of(store, bureau) as handler:
        message_id = await fail_one(handler)
        await until(lambda: "notified" in kinds(store))
        assert {one.message_id for one in bureau.heard} == {message_id}
        assert len({one.notice_id for one in bureau.heard}) == 1
        assert len(bureau.heard) == 11
        # Somebody was called about it, once, and let off when it was taken.
        assert kinds(store).count("incident") == 1
        with store.reader() as reader:
            assert reader.incidents() == []
            (over,) = reader.incidents(open_only=False)
        assert "does not take the notice" in over.reason
        assert await LocalHandler(handler).notices() == []


async def test_a_process_that_dies_before_the_notice_was_taken_tells_it_again(hasty: None) -> None:
    store, bureau = MemoryStore("alpha"), Bureau(refusals=10**9)
    handler = handler_of(store, bureau)
    async with handler:
        await fail_one(handler)
        await until(lambda: len(bureau.heard) >= 6)
        assert "notified" not in kinds(store)
    after = Bureau()
    async with handler_of(store, after):
        await until(lambda: "notified" in kinds(store))
    assert [one.notice_id for one in after.heard] == [bureau.heard[0].notice_id]


async def test_one_refused_notice_holds_up_no_other_and_may_be_settled_by_hand(hasty: None) -> None:
    store, bureau = MemoryStore("alpha"), Bureau()
    refused: list[str] = []

    async def notify(notice: Notice) -> None:
        bureau.heard.append(notice)
        if notice.message_id in refused:
            raise ValueError("not this one")

    bureau.notify = notify  # type: ignore[method-assign]
    async with handler_of(store, bureau) as handler:
        refused.append("first@alpha")
        submission = Submission(
            "alpha-beta", Service("urn:test:orders"), "New", message_id="first@alpha"
        )
        await handler.send(submission)
        await handler.loop.operate(lambda engine: engine.abandon("first@alpha"))
        second = await fail_one(handler)
        await until(lambda: kinds(store).count("notified") == 1)
        assert second in {one.message_id for one in bureau.heard}
        await until(lambda: "incident" in kinds(store))
        (waiting,) = await LocalHandler(handler).notices()
        assert await LocalHandler(handler).confirm_notice(waiting.notice_id)
        with store.reader() as reader:
            assert reader.incidents() == []
        await until(lambda: handler._telling is not None and not handler._telling._offered)


async def test_what_was_settled_by_hand_meanwhile_is_not_told(hasty: None) -> None:
    store, bureau = MemoryStore("alpha"), Bureau()
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def notify(notice: Notice) -> None:
        bureau.heard.append(notice)
        asked.set()
        await go_on.wait()
        raise ValueError("the bureau is closed")

    bureau.notify = notify  # type: ignore[method-assign]
    async with handler_of(store, bureau) as handler:
        await fail_one(handler)
        await asked.wait()
        (waiting,) = await LocalHandler(handler).notices()
        assert await LocalHandler(handler).confirm_notice(waiting.notice_id)
        go_on.set()
        await until(lambda: handler._telling is not None and not handler._telling._offered)
    assert len(bureau.heard) == 1


async def test_where_nobody_is_called_the_notice_waits(hasty: None) -> None:
    store, bureau = MemoryStore("alpha"), Bureau()
    bureau.hears = False  # type: ignore[misc]
    async with handler_of(store, bureau) as handler:
        message_id = await fail_one(handler)
        (notice,) = await LocalHandler(handler).notices()
        assert notice.message_id == message_id
        assert bureau.heard == []
        assert "notified" not in kinds(store)


# --- notices about notices ---------------------------------------------------------------------


def notice_at(hub: Engine) -> str:
    (row,), _ = told_of(hub)
    assert row.ref_to is not None
    return row.ref_to


def refuse(engine: Engine, message_id: str) -> None:
    """The receiver of a message answers it with an error."""
    node = engine.context
    with node.transition() as tx:
        stored = tx.outgoing(message_id)
        assert stored is not None
        terms = node.terms_of(tx, stored.outgoing.terms_id)
        channel = load_channel(tx, stored.outgoing)
        error = Error("NotSupported", description="no notices, please")
        step = error_arrived(stored.outgoing, channel, terms, node.now(), error=error, error_id="e")
        perform(node, tx, stored, channel, step, terms)
    engine.commit()


@pytest.mark.requirement("ERR-8")
def test_the_failure_of_a_hubs_notice_is_an_incident_and_no_other_notice() -> None:
    hub = failed_at_a_hub(lambda hub: None)
    notice = notice_at(hub)
    refuse(hub, notice)
    rows, incidents = told_of(hub)
    assert [row.message_id for row in rows] == ["m-1"], "told of the order alone"
    assert any("a notice about m-1 could not be delivered" in one for one in incidents)
    assert hub.notices(10) == []
    with hub.context.store.reader() as reader:
        assert {one.outgoing.message_id for one in reader.outgoing_list()} == {"m-1", notice}


@pytest.mark.requirement("ERR-8")
def test_an_operator_who_abandons_a_notice_knows_it_already() -> None:
    hub = failed_at_a_hub(lambda hub: None)
    notice = notice_at(hub)
    hub.abandon(notice)
    hub.commit()
    rows, incidents = told_of(hub)
    assert [row.message_id for row in rows] == ["m-1"]
    assert incidents == []


@pytest.mark.long
@pytest.mark.requirement("ERR-8")
def test_on_a_way_of_hubs_that_fails_no_notice_speaks_of_a_notice() -> None:
    options = Options(
        messages=30,
        hops=4,
        loss=0.6,
        retries=1,
        abandon=1.0,
        crash=0.0,
        corrupt=0.0,
        agreement='[delivery]\non_exhausted="fail_message"\n',
    )
    simulation = world_of(options, 900_000)
    result = simulation.run()
    submitted = [
        row
        for row in simulation.rows()
        if row.kind == "submitted" and '"notice":true' in (row.detail or "")
    ]
    notices = {row.message_id for row in submitted}
    assert notices
    assert [row for row in submitted if row.ref_to in notices] == []
    assert [one for one in result.violations if one.predicate == "told"] == []
