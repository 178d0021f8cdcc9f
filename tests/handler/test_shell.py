"""The turns of a handler go on, whatever one of them meets."""

from __future__ import annotations

import asyncio

import pytest

from oncewire.errors import AgreementProblem
from oncewire.handler import engine as engine_module
from oncewire.handler.actions import Action, Post
from oncewire.handler.seal import whole_parcel
from oncewire.handler.shell import Shell
from oncewire.handler.source import Source
from oncewire.handler.submit import Submission
from oncewire.message import Payload, Service
from oncewire.simulation.options import Options
from oncewire.simulation.run import Simulation
from oncewire.simulation.topology import CPA_ID
from tests.handler.pair import Pair


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

    pair = Pair()
    shell = Shell(pair.alpha, perform)
    shell.start()
    for number in range(3):
        wanted = shell.do("submit", lambda number=number: pair.alpha.submit(order(number)))  # type: ignore[misc]
        accepted = await asyncio.wait_for(wanted, 10)
        assert accepted.message_id == f"m-{number}"
    assert [action.message_id for action in left if isinstance(action, Post)] == [
        "m-0",
        "m-1",
        "m-2",
    ]
    await shell.stop()


async def test_a_commit_that_fails_for_any_reason_is_told_to_those_who_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Pair()
    shell = Shell(pair.alpha, lambda action: None)
    shell.start()

    def broken() -> list[Action]:
        raise RuntimeError("nobody thought of this")

    with monkeypatch.context() as trouble:
        trouble.setattr(pair.alpha, "commit", broken)
        with pytest.raises(RuntimeError):
            await asyncio.wait_for(shell.do("submit", lambda: pair.alpha.submit(order(1))), 10)
    accepted = await asyncio.wait_for(shell.do("submit", lambda: pair.alpha.submit(order(2))), 10)
    assert accepted.message_id == "m-2"
    await shell.stop()


@pytest.mark.requirement("HOP-9")
def test_a_failure_that_cannot_be_reported_is_the_operators_business(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulation = Simulation(Options(hops=2), seed=1)
    buyer, hub = simulation.actor("buyer"), simulation.actor("hub1").engine
    document = Payload.of("order", "text/plain", b"order")
    order = Submission(CPA_ID, Service("urn:sim:orders"), "New", (document,), message_id="m-1")
    buyer.engine.submit(order)
    (post,) = [one for one in buyer.engine.commit() if isinstance(one, Post)]
    parcel = whole_parcel(buyer.engine.node, post.parcel)
    hub.receive(parcel, Source("http", can_answer=True))
    hub.commit()

    def unable(*_: object) -> None:
        raise AgreementProblem("there is no key to sign the notice with")

    monkeypatch.setattr(engine_module, "report_failure", unable)
    hub.abandon("m-1")
    hub.commit()
    with hub.node.store.reader() as reader:
        reasons = [incident.reason for incident in reader.incidents()]
    assert any("could not be reported" in reason for reason in reasons), reasons
