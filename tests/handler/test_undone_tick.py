"""A tick whose commit fails is repeated as a whole: what it had taken from memory is done again."""

from __future__ import annotations

from types import ModuleType

import pytest

from oncewire.errors import StoreFull, StoreGone
from oncewire.handler.receiving import receive
from oncewire.handler.sending import respond
from oncewire.message.envelope import MessageKind
from oncewire.message.instant import MINUTE, SECOND
from oncewire.protocol.notes import Note, Stopped
from tests.handler.network import Network
from tests.handler.runtime.test_clock import SetPair
from tests.handler.runtime.test_clock_at_the_edge import refused
from tests.handler.test_restart import owe_answers


def fail(pair: Network, name: str) -> None:
    """The commit of the next tick fails: the disk is full."""
    engine = pair.engines[name]
    engine.context.store.fail_next_commit(StoreFull("full"))  # type: ignore[attr-defined]
    with engine.context.transition() as tx:
        engine.context.write(tx, [Note(Stopped())])
    engine.tick()
    with pytest.raises(StoreFull):
        engine.commit()


def test_refusals_are_counted_once() -> None:
    pair = SetPair.pair()
    refused(pair, 0, 3)
    pair.world("beta").time += MINUTE
    fail(pair, "beta")
    pair.pass_time(MINUTE, MINUTE, MINUTE)
    with pair.beta.context.store.reader() as reader:
        assert [one.count for one in reader.refusals(100)] == [3]
    assert pair.beta.context.state.refusals.counted == ()


@pytest.mark.parametrize("writes", [1, 2])
def test_refusals_of_the_turn_that_writes_the_counts_are_counted(writes: int) -> None:
    pair = SetPair.pair()
    refused(pair, 0, 3)
    engine = pair.beta
    with engine.context.transition() as tx:
        for _ in range(writes):
            engine.context.state.refusals.write(tx, engine.context.now())
    # The same turn refuses two more.
    refused(pair, 3, 2)
    pair.pass_time(MINUTE, MINUTE)
    with engine.context.store.reader() as reader:
        assert [one.count for one in reader.refusals(100)] == [5]
    assert engine.context.state.refusals.counted == ()


def test_answers_of_an_earlier_run_are_posted(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Network.pair("ebms2", lose_answer=lambda count: True)
    monkeypatch.setattr("oncewire.handler.receiving.receive.REPOSTED", 2)
    owe_answers(pair, 5)
    pair.crash("beta")
    assert len(pair.answers) == 2
    fail(pair, "beta")
    for _ in range(5):
        pair.beta.tick()
        pair.settle("beta")
    assert len(set(pair.answers)) == 5


# Where nothing else was to be kept, the commit after a tick that the store cut short does not fail.


def gone_once(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> None:
    """The database is away when this function would read it, and back at once."""
    fails_once(monkeypatch, module, name, [StoreGone("gone")])


def fails_once(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, failures: list[Exception]
) -> None:
    """The function raises these first, one each time, and works from then on."""
    read = getattr(module, name)

    def once(*what: object) -> object:
        if failures:
            raise failures.pop()
        return read(*what)

    monkeypatch.setattr(module, name, once)


def test_answers_are_posted_though_the_store_was_gone_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Network.pair("ebms2", lose_answer=lambda count: True)
    monkeypatch.setattr(receive, "REPOSTED", 2)
    owe_answers(pair, 5)
    pair.crash("beta")
    gone_once(monkeypatch, receive, "agreement_of_hop")
    with pytest.raises(StoreGone):
        pair.beta.tick()
    for _ in range(5):
        pair.settle("beta")
        pair.beta.tick()
    assert len(set(pair.answers)) == 5


def test_an_acknowledgement_that_waited_leaves_though_the_store_was_gone_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asking = Network.asking("ebms2", '[ack]\nbundling = "piggyback"\nwait = "PT1S"\n')
    asking.arrive(asking.order())
    gone_once(monkeypatch, respond, "ack_waits")
    asking.world("beta").time += 2 * SECOND
    with pytest.raises(StoreGone):
        asking.beta.tick()
    for _ in range(2):
        asking.settle("beta")
        asking.beta.tick()
    (left,) = asking.left_messages("beta")
    assert left.kind is MessageKind.ACKNOWLEDGMENT


def test_an_answer_that_cannot_be_posted_again_is_told_to_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pair = Network.pair("ebms2", lose_answer=lambda count: True)
    monkeypatch.setattr(receive, "REPOSTED", 2)
    owe_answers(pair, 5)
    pair.crash("beta")
    failures = [ValueError("broken")]
    fails_once(monkeypatch, receive, "agreement_of_hop", failures)
    for _ in range(5):
        pair.settle("beta")
        pair.beta.tick()
    assert failures == []
    assert "answers are not posted again" in caplog.messages
    # Those of the next batches leave.
    assert len(set(pair.answers)) >= 3
