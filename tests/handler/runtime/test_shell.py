"""The turns of a handler go on, whatever one of them meets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from oncewire.agreement.agreement import Agreements
from oncewire.errors import AgreementProblem, HandlerFailed
from oncewire.handler.actions import Action, Post, Source, Submission
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.runtime import failures
from oncewire.handler.runtime.commit_loop import SUBMIT, TURN_COMMITS, TURN_FEW, CommitLoop
from oncewire.handler.runtime.engine import Engine
from oncewire.journal.row import Row
from oncewire.lab.simulation.plan import Options
from oncewire.message.envelope import Payload
from oncewire.message.ids import Service
from tests.handler.network import Network, Stores
from tests.handler.test_one_turn import Statements
from tests.simulation.given import CPA_ID, world_of


def order(number: int) -> Submission:
    document = Payload.of("order", "text/plain", b"order")
    return Submission(
        "alpha-beta", Service("urn:test:orders"), "New", (document,), message_id=f"m-{number}"
    )


async def test_an_action_that_fails_keeps_no_other_from_leaving() -> None:
    left: list[Action] = []

    def perform(action: Action) -> None:
        left.append(action)
        raise RuntimeError("software we do not control")

    pair = Network.pair()
    shell = CommitLoop(pair.alpha, perform)
    shell.start()
    for number in range(3):
        wanted = shell.do("submit", lambda number=number: pair.alpha.submit(order(number)))  # type: ignore[misc]
        accepted = await asyncio.wait_for(wanted, 60)
        assert accepted.message_id == f"m-{number}"
    assert [action.message_id for action in left if isinstance(action, Post)] == [
        "m-0",
        "m-1",
        "m-2",
    ]
    await shell.stop()


async def test_a_loop_that_waits_for_verbs_has_no_second_task() -> None:
    """It waits once for every message of a partner who sends one after the other."""
    pair = Network.pair()
    shell = CommitLoop(pair.alpha, lambda action: None)
    here = asyncio.all_tasks()
    shell.start()
    await shell.do("look", lambda: None)
    await asyncio.sleep(0.05)
    assert [task.get_name() for task in asyncio.all_tasks() - here] == ["oncewire turns"]
    await shell.stop()


async def test_a_turn_that_takes_long_lets_others_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many verbs wait and however long each takes, the loop waits for one of them."""
    pair = Network.pair()
    shell = CommitLoop(pair.alpha, lambda action: None)
    seconds = [0.0]
    monkeypatch.setattr(
        "oncewire.handler.runtime.commit_loop.monotonic", lambda: seconds[0], raising=False
    )
    done: list[str] = []

    def slow(number: int) -> None:
        seconds[0] += 1.0
        done.append(f"verb {number}")

    verbs = [asyncio.ensure_future(shell.do("look", lambda n=n: slow(n))) for n in range(3)]  # type: ignore[misc]
    await asyncio.sleep(0)
    shell.start()
    while not verbs[-1].done():
        await asyncio.sleep(0)
        done.append("loop")
    assert [one for one in done if one != "loop"] == ["verb 0", "verb 1", "verb 2"]
    assert all(
        "loop" in done[done.index(f"verb {n}") : done.index(f"verb {n + 1}")] for n in (0, 1)
    )
    await shell.stop()


async def test_who_stands_aside_comes_after_the_others_and_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many strangers wait, a partner waits for one of them; and the other way round."""
    pair = Network.pair()
    shell = CommitLoop(pair.alpha, lambda action: None)
    seconds = [0.0]
    monkeypatch.setattr("oncewire.handler.runtime.commit_loop.monotonic", lambda: seconds[0])
    done: list[str] = []

    def slow(name: str) -> None:
        seconds[0] += 1.0
        done.append(name)

    def ask(name: str, *, aside: bool) -> asyncio.Future[None]:
        return asyncio.ensure_future(shell.do("look", lambda: slow(name), aside=aside))

    verbs = [ask(f"stranger {n}", aside=True) for n in range(3)]
    verbs += [ask(f"partner {n}", aside=False) for n in range(2)]
    await asyncio.sleep(0)
    shell.turn()
    assert done == ["partner 0", "stranger 0"]
    shell.turn()
    assert done[2:] == ["partner 1", "stranger 1"]
    # Who stops lets all of them have their turn.
    shell.start()
    await shell.stop()
    await asyncio.gather(*verbs)
    assert done[4:] == ["stranger 2"]


async def test_a_commit_that_fails_for_any_reason_is_told_to_those_who_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Network.pair()
    shell = CommitLoop(pair.alpha, lambda action: None)
    shell.start()

    def broken() -> list[Action]:
        raise RuntimeError("nobody thought of this")

    with monkeypatch.context() as trouble:
        trouble.setattr(pair.alpha, "commit", broken)
        with pytest.raises(RuntimeError):
            await asyncio.wait_for(shell.do("submit", lambda: pair.alpha.submit(order(1))), 60)
    # Nobody knows what the store has of that turn: there is no other one.
    with pytest.raises(HandlerFailed):
        await asyncio.wait_for(shell.do("submit", lambda: pair.alpha.submit(order(2))), 60)
    await shell.stop()


def failed_at_a_hub(prepare: Callable[[Engine], None]) -> Engine:
    """A hub that took a message over, and gave it up after `prepare`."""
    simulation = world_of(Options(hops=2), seed=1)
    buyer, hub = simulation.machine("buyer"), simulation.machine("hub1").engine
    document = Payload.of("order", "text/plain", b"order")
    order = Submission(CPA_ID, Service("urn:sim:orders"), "New", (document,), message_id="m-1")
    buyer.engine.submit(order)
    (post,) = [one for one in buyer.engine.commit() if isinstance(one, Post)]
    parcel = whole_parcel(buyer.engine.context, post.parcel)
    hub.receive(parcel, Source("http", can_answer=True))
    hub.commit()
    prepare(hub)
    hub.abandon("m-1")
    hub.commit()
    return hub


def told_of(hub: Engine) -> tuple[list[Row], list[str]]:
    """What it recorded as told, and the reasons of its incidents."""
    with hub.context.store.reader() as reader:
        rows = [row for row in reader.journal_since(0, 1_000) if row.kind == "notified"]
        return rows, [incident.reason for incident in reader.incidents()]


@pytest.mark.requirement("HOP-9")
def test_a_hub_says_that_it_told_when_the_notice_is_stored() -> None:
    hub = failed_at_a_hub(lambda hub: None)
    (row,), incidents = told_of(hub)
    assert row.message_id == "m-1"
    assert not [reason for reason in incidents if "could not be reported" in reason]
    assert row.ref_to is not None
    with hub.context.transition() as tx:
        notice = tx.outgoing(row.ref_to)
    assert notice is not None
    assert notice.facts.ref_to == "m-1"


def _nobody_leads_back(hub: Engine) -> None:
    hub.context.agreements = Agreements(
        [one for one in hub.context.agreements if "buyer" not in str(one.partner.party)]
    )


@pytest.mark.requirement("HOP-9")
def test_a_failure_that_cannot_be_reported_is_the_operators_business(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unable(*_: object) -> None:
        raise AgreementProblem("there is no key to sign the notice with")

    monkeypatch.setattr(failures, "report_failure", unable)
    told, reasons = told_of(failed_at_a_hub(lambda hub: None))
    assert any("could not be reported" in reason for reason in reasons), reasons
    assert not told


@pytest.mark.requirement("HOP-9")
def test_where_no_agreement_leads_back_any_more_the_one_it_came_under_does() -> None:
    hub = failed_at_a_hub(_nobody_leads_back)
    (row,), _ = told_of(hub)
    assert row.ref_to is not None
    with hub.context.transition() as tx:
        notice = tx.outgoing(row.ref_to)
    assert notice is not None
    assert notice.facts.to_party == "urn:sim:buyer"


@pytest.mark.requirement("HOP-9")
def test_a_hub_that_knows_no_way_back_does_not_say_that_it_told() -> None:
    def nor_was_one_kept(hub: Engine) -> None:
        _nobody_leads_back(hub)
        hub.context.agreement_kept = lambda *_: None  # type: ignore[method-assign]

    told, reasons = told_of(failed_at_a_hub(nor_was_one_kept))
    assert any("no agreement leads back" in reason for reason in reasons), reasons
    assert not told


@pytest.mark.parametrize(("durable", "taken"), [(0.0, TURN_FEW), (0.02, 20), (1.0, 100)])
async def test_a_turn_is_as_long_as_its_commit_is_worth(
    monkeypatch: pytest.MonkeyPatch, durable: float, taken: int
) -> None:
    """Where the disk is quick what is done leaves soon, so that the partner need not wait for it;
    where it is slow one commit serves many."""
    pair = Network.pair()
    shell = CommitLoop(pair.alpha, lambda action: None)
    seconds = [0.0]
    monkeypatch.setattr("oncewire.handler.runtime.commit_loop.monotonic", lambda: seconds[0])
    monkeypatch.setattr(pair.alpha.context.store, "durable_seconds", durable / TURN_COMMITS)

    def quick() -> None:
        seconds[0] += 0.001

    verbs = [asyncio.ensure_future(shell.do("look", quick)) for _ in range(200)]
    await asyncio.sleep(0)
    shell.turn()
    assert seconds[0] == pytest.approx(taken / 1000, abs=0.0015)
    for _ in range(20):
        shell.turn()
    await asyncio.gather(*verbs)


async def test_who_stands_aside_is_not_forgotten_by_short_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Network.pair()
    shell = CommitLoop(pair.alpha, lambda action: None)
    monkeypatch.setattr("oncewire.handler.runtime.commit_loop.TURN_SECONDS", 60.0)
    others = [asyncio.ensure_future(shell.do("look", lambda: None)) for _ in range(2 * TURN_FEW)]
    aside = asyncio.ensure_future(shell.do("look", lambda: "seen", aside=True))
    await asyncio.sleep(0)
    shell.turn()
    assert await asyncio.wait_for(aside, 60) == "seen"
    shell.turn()
    await asyncio.gather(*others)


async def test_what_is_durable_can_be_looked_at_between_turns() -> None:
    pair = Network.pair()
    shell = CommitLoop(pair.alpha, lambda action: None)
    assert shell.look(lambda: 7) == 7
    shell.fail(RuntimeError("broken"))
    with pytest.raises(HandlerFailed):
        shell.look(lambda: 7)


async def test_memory_that_ends_while_somebody_looks_ends_the_turns() -> None:
    pair = Network.pair()
    shell = CommitLoop(pair.alpha, lambda action: None)
    ended: list[asyncio.Task[None]] = []
    shell.start(ended.append)

    def looked() -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        shell.look(looked)
    for _ in range(1000):
        await asyncio.sleep(0)
    assert [type(task.exception()) for task in ended] == [MemoryError]
    assert shell.failed is not None


async def test_submissions_of_one_turn_are_looked_up_together(
    on_disk: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Network.pair(store=on_disk)
    shell = CommitLoop(pair.alpha, lambda action: None)
    statements = Statements(pair.alpha.context.store)
    monkeypatch.setattr("oncewire.handler.runtime.commit_loop.TURN_SECONDS", 60.0)
    unnamed = replace(order(0), message_id=None)
    verbs = [
        asyncio.ensure_future(shell.do(SUBMIT, lambda: pair.alpha.submit(unnamed)))
        for _ in range(TURN_FEW)
    ]
    await asyncio.sleep(0)
    shell.turn()
    accepted = await asyncio.gather(*verbs)
    assert len({one.message_id for one in accepted}) == TURN_FEW
    assert len(statements.reading) < TURN_FEW, statements.reading
    pair.close()
