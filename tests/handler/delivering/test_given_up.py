"""An operator gives up a document that the application refuses: it is lost, and nobody hides that.

What a person confirms by hand is told apart from what the application confirms itself.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from oncewire.errors import NotAllowed
from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.runtime import offers
from oncewire.handler.runtime.handler import Handler
from oncewire.handler.runtime.retention import sweep
from oncewire.journal.check import check_journal
from oncewire.journal.history import explain, ladder
from oncewire.journal.outcome import fold_outcome
from oncewire.journal.row import Row
from oncewire.message.instant import DAY, SECOND
from oncewire.protocol import notes
from oncewire.protocol.states import IncomingState
from oncewire.store.memory.store import MemoryStore
from tests.handler.network import Network, Stores
from tests.handler.running import Wire, delivery_of, free_port, order, order_parcel, serving
from tests.handler.runtime.test_hand_over import Fussy, handler_of, incidents, rows, until

ALPHA, ORDER, SECOND_ORDER = "urn:test:alpha", "order-1@alpha", "order-2@alpha"


@pytest.fixture
def pair(stores: Stores) -> Network:
    """beta's application was given an order, and does not take it; another follows in order."""
    pair = Network.pair("window", "", store=stores)
    pair.send(1)
    pair.beta.hand_over(1, 30 * SECOND)
    pair.settle("beta")
    assert pair.beta.refused(ALPHA, ORDER, "it is full")
    pair.settle("beta")
    pair.send(2)
    return pair


def rows_of(pair: Network, message_id: str = ORDER, name: str = "beta") -> list[Row]:
    with pair.engines[name].context.store.reader() as reader:
        return reader.journal_of(message_id)


def state_of(pair: Network) -> IncomingState:
    with pair.beta.context.store.reader() as reader:
        (stored,) = reader.incoming(ORDER)
    return stored.incoming.state


def give_up(pair: Network) -> None:
    pair.beta.abandon(ORDER, by="pat")
    pair.settle("beta")


def open_incidents(pair: Network) -> list[str]:
    return [incident.reason for incident in pair.incidents("beta")]


@pytest.mark.requirement("RM-2")
def test_who_gave_it_up_is_in_its_row_and_its_incident_is_closed(pair: Network) -> None:
    give_up(pair)
    (row,) = [one for one in rows_of(pair) if one.kind == "abandoned"]
    assert notes.Abandoned.read(row.detail).by == "pat"
    assert "confirmed" not in [one.kind for one in rows_of(pair)]
    assert state_of(pair) is IncomingState.CLOSED
    assert open_incidents(pair) == []


def test_verify_counts_it_as_lost_and_says_who_gave_it_up(pair: Network) -> None:
    give_up(pair)
    pair.take()
    for report in (pair.verify(), pair.verify(healed=False)):
        lost = [found for found in report.violations if found.message_id == ORDER]
        assert [(found.predicate, found.kind, found.node) for found in lost] == [
            ("S4", "lost", "beta")
        ]
        assert "given up by pat" in lost[0].sentence
    # From the receiver's own journal alone it is told as well.
    with pair.beta.context.store.reader() as reader:
        alone = check_journal(reader.journal_since(0, 10_000), healed=True)
    assert [(found.kind, found.message_id) for found in alone.violations] == [("lost", ORDER)]


def test_why_says_who_gave_it_up(pair: Network) -> None:
    give_up(pair)
    told = explain(rows_of(pair))
    assert told.startswith("Lost: ")
    assert "pat gave it up" in told
    assert "confirmed it." not in told
    assert "given up by pat" in [step.text for step in ladder(rows_of(pair))][-2]
    outcome = fold_outcome(rows_of(pair))
    assert outcome is not None
    assert (outcome.given_up_by, outcome.confirmed, outcome.confirmed_by) == ("pat", 0, None)


def test_what_follows_in_order_goes_on(pair: Network) -> None:
    give_up(pair)
    assert pair.take() == [SECOND_ORDER]
    pair.pass_time(60 * SECOND)
    assert pair.take() == [], "it is given to nobody, however late"
    assert [found.kind for found in pair.verify().violations] == ["lost"]


def test_a_copy_is_answered_as_before_and_never_handed_over(pair: Network) -> None:
    before = pair.answers[0]
    give_up(pair)
    with pair.alpha.context.store.reader() as reader:
        parcel = reader.outgoing_parcel(ORDER)
    assert parcel is not None
    answer = pair.deliver("beta", whole_parcel(pair.alpha.context, parcel))
    given = answer.parcel
    again = pair.answers[-1] if given is None else whole_parcel(pair.beta.context, given).body
    assert again == before
    pair.crash("beta")
    assert pair.take() == [SECOND_ORDER]
    assert [row.kind for row in rows_of(pair)].count("handed_over") == 1


def test_the_application_cannot_confirm_what_was_given_up(pair: Network) -> None:
    give_up(pair)
    for _ in range(2):
        with pytest.raises(NotAllowed, match="was given up"):
            pair.beta.confirm(ALPHA, ORDER)
    assert "confirmed" not in [one.kind for one in rows_of(pair)]
    with pytest.raises(NotAllowed):
        pair.beta.abandon(ORDER, by="sam")


@pytest.mark.requirement("STO-7")
def test_retention_removes_it_like_any_other_that_ended(pair: Network) -> None:
    give_up(pair)
    pair.take()
    pair.pass_time(400 * DAY)
    with pair.beta.context.transition() as tx:
        sweep(pair.beta.context, tx)
    pair.beta.commit()
    with pair.beta.context.store.reader() as reader:
        assert reader.incoming(ORDER) == []
    with pytest.raises(NotAllowed, match="was given up"):
        pair.beta.confirm(ALPHA, ORDER)


def test_what_the_application_was_never_offered_is_not_given_up(pair: Network) -> None:
    with pytest.raises(NotAllowed, match="has not been offered"):
        pair.beta.abandon(SECOND_ORDER, by="pat")
    assert "abandoned" not in [one.kind for one in rows_of(pair, SECOND_ORDER)]


def test_the_operator_is_told_to_mend_the_application(pair: Network) -> None:
    (reason,) = open_incidents(pair)
    assert "mend the application" in reason
    with pytest.raises(NotAllowed) as raised:
        pair.beta.resume(message_id=ORDER)
    assert "mend the application" in (raised.value.remedy or "")
    assert "inbox confirm" not in (raised.value.remedy or "")


@pytest.mark.requirement("OPS-1")
def test_a_confirmation_by_hand_is_told_apart(pair: Network) -> None:
    assert pair.beta.confirm(ALPHA, ORDER, by="pat")
    pair.settle("beta")
    (row,) = [one for one in rows_of(pair) if one.kind == "confirmed"]
    assert notes.Confirmed.read(row.detail).by == "pat"
    told = explain(rows_of(pair))
    assert "pat confirmed it by hand" in told
    assert "the application confirmed it" not in told
    assert "confirmed by hand by pat" in [step.text for step in ladder(rows_of(pair))]
    assert pair.take() == [SECOND_ORDER]
    (own,) = [one for one in rows_of(pair, SECOND_ORDER) if one.kind == "confirmed"]
    assert own.detail is None
    assert "the application confirmed it" in explain(rows_of(pair, SECOND_ORDER))
    assert pair.verify().violations == ()


def test_who_gave_up_a_sent_message_is_in_its_row_too() -> None:
    pair = Network.pair("ebms2", lose_request=lambda post: True)
    pair.send(1)
    pair.alpha.abandon(ORDER, by="pat")
    pair.settle("alpha")
    (row,) = [one for one in rows_of(pair, name="alpha") if one.kind == "abandoned"]
    assert notes.Abandoned.read(row.detail).by == "pat"


# --- an application that is called --------------------------------------------------------------


class Choosy(Fussy):
    """It takes every message but one."""

    def __init__(self, refused: str) -> None:
        super().__init__()
        self.refused = refused

    async def deliver(self, taken: GivenMessage) -> None:
        self.offered.append(taken.message_id)
        if taken.message_id == self.refused:
            raise ValueError("not this one")


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next try would come in an hour: whoever goes on did not wait for it."""
    monkeypatch.setattr(offers, "FIRST_PAUSE", 3600.0)
    monkeypatch.setattr(offers, "LONGEST_PAUSE", 3600.0)


async def test_its_offer_ends_at_once_and_the_next_one_of_its_channel_goes_on(
    tmp_path: Path, slow: None
) -> None:
    """Over sockets, in order: the next message waits for the one that is refused."""
    ports = {"alpha": free_port(), "beta": free_port()}
    application = Choosy("")
    async with (
        serving(
            tmp_path, "beta", "alpha", ports, profile="window", extra="", application=application
        ) as beta,
        serving(tmp_path, "alpha", "beta", ports, profile="window", extra="") as alpha,
    ):
        application.refused = "first@alpha"
        await alpha.send(order(1, message_id="first@alpha"))
        await until(lambda: application.offered == ["first@alpha"])
        await alpha.send(order(2, message_id="second@alpha"))
        await alpha.wait("second@alpha", 30)
        await beta.loop.operate(lambda engine: engine.abandon("first@alpha", by="pat"))
        await until(lambda: application.offered == ["first@alpha", "second@alpha"])
        await until(lambda: beta._hand_over is not None and beta._hand_over._over == {})


async def test_what_was_given_up_is_never_offered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither while the handler runs, nor by the next one."""
    monkeypatch.setattr(offers, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(offers, "LONGEST_PAUSE", 0.002)
    monkeypatch.setattr(offers, "REFUSALS_MAX", 4)
    store, application, wire = MemoryStore("beta"), Fussy(), Wire()
    handler = handler_of(store, application, wire)
    async with handler:
        await wire.deliver(delivery_of(order_parcel()))
        await until(lambda: incidents(store))
        await handler.loop.operate(lambda engine: engine.abandon(ORDER, by="pat"))
        assert handler._hand_over is not None
        await until(lambda: handler._hand_over is not None and handler._hand_over._over == {})
        offered = len(application.offered)
        await asyncio.sleep(0.05)
        assert len(application.offered) == offered
        assert incidents(store) == []
    application.offered.clear()
    async with handler_of(store, application, wire):
        await asyncio.sleep(0.05)
    assert application.offered == []
    assert [row.message_id for row in rows(store, "abandoned")] == [ORDER]


async def test_a_call_that_succeeds_after_it_was_given_up_confirms_nothing() -> None:
    store, wire = MemoryStore("beta"), Wire()
    called, go_on = asyncio.Event(), asyncio.Event()
    application = Fussy()

    async def deliver(taken: GivenMessage) -> None:
        application.offered.append(taken.message_id)
        called.set()
        await go_on.wait()

    application.deliver = deliver  # type: ignore[method-assign,assignment]
    handler: Handler
    async with handler_of(store, application, wire) as handler:
        await wire.deliver(delivery_of(order_parcel()))
        await called.wait()
        await handler.loop.operate(lambda engine: engine.abandon(ORDER, by="pat"))
        go_on.set()
        await until(lambda: handler._hand_over is not None and handler._hand_over._over == {})
        assert rows(store, "confirmed") == []
        assert application.offered == [ORDER]
