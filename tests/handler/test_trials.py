"""Trials: they run as any message does, the handler itself takes them, and nobody counts them."""

from __future__ import annotations

import pytest

from oncewire.handler.actions import Submission
from oncewire.handler.context import Trial
from oncewire.handler.sending.submit import send_copy
from oncewire.journal.check import check_journal, fold_ledger
from oncewire.journal.predicates.context import Context
from oncewire.message.envelope import TRIAL_ACTION, TRIAL_MARK, TRIAL_SERVICE, Payload
from oncewire.message.ids import Service
from oncewire.protocol.states import OutgoingState
from tests.handler.network import Network

TRIAL_ID = f"{TRIAL_MARK}1@alpha"


def submit(pair: Network, **changes: object) -> Trial:
    values: dict[str, object] = {
        "cpa_id": "alpha-beta",
        "service": TRIAL_SERVICE,
        "action": TRIAL_ACTION,
        "payloads": (Payload.of("trial", "text/plain", b"trial"),),
        "conversation_id": "talk",
        "message_id": TRIAL_ID,
    }
    trial = pair.alpha.context.state.trials[TRIAL_ID] = Trial()
    pair.alpha.submit(Submission(**(values | changes)))  # type: ignore[arg-type]
    pair.settle("alpha")
    return trial


@pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x", "rm-0.78"])
def test_a_trial_is_delivered_and_reaches_no_application_and_no_count(profile: str) -> None:
    pair = Network.pair(profile)
    trial = submit(pair)
    assert pair.state(TRIAL_ID) is OutgoingState.DELIVERED
    assert len(trial.heard) == 1
    assert pair.take() == []
    for engine in (pair.alpha, pair.beta):
        with engine.context.store.reader() as reader:
            assert not any(reader.counts().values())
            assert reader.outgoing_list() == []
            assert reader.incoming_list() == []
            assert reader.journal_of(TRIAL_ID)
    judged = pair.verify()
    assert judged.clean
    assert judged.messages == 0


def test_one_that_was_held_behind_another_is_taken_when_its_turn_comes() -> None:
    pair = Network.pair("ebms2", "[sequence]\nordered = true\n")
    first = pair.send(1)
    pair.lose_request = lambda post: True
    order = pair.send(2)
    pair.lose_request = lambda post: False
    submit(pair)
    with pair.beta.context.store.reader() as reader:
        (held,) = reader.incoming(TRIAL_ID)
    assert held.incoming.state.value == "held"
    pair.pass_time()
    assert pair.take() == [first.message_id, order.message_id]
    with pair.beta.context.store.reader() as reader:
        (taken,) = reader.incoming(TRIAL_ID)
    assert taken.incoming.state.value == "confirmed"
    assert pair.verify().clean


def test_a_copy_of_it_is_known_at_its_receiver() -> None:
    pair = Network.pair()
    trial = submit(pair)
    with pair.alpha.context.transition() as tx:
        send_copy(pair.alpha.context, tx, TRIAL_ID)
    pair.settle("alpha")
    assert len(trial.heard) == 2
    assert trial.heard[0] == trial.heard[1]
    assert "duplicate" in pair.kinds("beta")
    assert pair.verify().clean


@pytest.mark.parametrize(
    "changes",
    [
        {"service": Service("urn:test:orders"), "action": "New"},
        {"message_id": "order-9@alpha"},
    ],
    ids=["an id without the service", "the service without an id"],
)
def test_its_receiver_takes_none_that_is_one_by_half(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, object]
) -> None:
    monkeypatch.setattr(
        "oncewire.handler.actions.is_named_rightly", lambda message_id, service: True
    )
    pair = Network.pair()
    submit(pair, **changes)
    message_id = str(changes.get("message_id", TRIAL_ID))
    assert pair.state(message_id) is OutgoingState.NOT_DELIVERED
    assert pair.take() == []


def test_of_one_that_fails_no_application_is_told() -> None:
    pair = Network.pair()
    pair.lose_request = lambda post: True
    submit(pair)
    for _ in range(8):
        pair.pass_time()
    assert pair.state(TRIAL_ID) is OutgoingState.UNKNOWN
    assert pair.notices == []
    assert pair.verify().clean


def test_every_promise_is_judged_of_a_trial_though_no_ledger_has_it() -> None:
    pair = Network.pair()
    submit(pair)
    rows = []
    for engine in (pair.alpha, pair.beta):
        with engine.context.store.reader() as reader:
            rows += reader.journal_since(0, 1_000)
    lost = [row for row in rows if row.kind not in ("handed_over", "confirmed")]
    # As if they had never been written: no hole tells of them.
    whole = [
        row._replace(seq=place)
        for node in ("alpha", "beta")
        for place, row in enumerate((row for row in lost if row.node == node), 1)
    ]
    report = check_journal(whole, healed=True)
    assert {found.kind for found in report.violations} & {"lost", "unconfirmed"}
    assert report.messages == 0
    # In a lake that grows, what came of a trial before is not there any more.
    later = [row for row in rows if row.kind == "acknowledged"]
    assert list(fold_ledger(later, Context.gather(later, healed=True))) == []
