"""Received messages: duplicates, answers, positions and leases."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from oncewire.errors import InvalidValue, UnknownMessage
from oncewire.message.envelope import MessageKind
from oncewire.protocol.states import Incoming, IncomingState
from oncewire.store.contract import Store
from oncewire.store.records import (
    MessageFacts,
    SpoolSlice,
    StoredAnswer,
    StoredIncoming,
    StoredParcel,
)
from tests.store.backends import Backend
from tests.store.samples import (
    CONFIRMED,
    HANDED_OVER,
    HELD,
    READY,
    TERMS_ID,
    add,
    answer,
    parcel,
    received,
    sent,
)

FULL = StoredIncoming(
    Incoming(
        "buyer",
        "full@example",
        digest="d" * 64,
        terms_id=TERMS_ID,
        received_at=1,
        state=CONFIRMED,
        channel="c",
        epoch=2,
        number=3,
        hand_overs=4,
        lease_until=5,
        confirmed_at=6,
    ),
    MessageFacts(
        "cpa",
        "talk",
        "from",
        "to",
        "service",
        "action",
        -5,
        "ref",
        MessageKind.PING,
        "e" * 64,
        99,
        "split",
        2,
        3,
    ),
    peer="hub",
    transport="smtp",
    parcel=StoredParcel("multipart/related", (("A", "1"),), (b"x", SpoolSlice("a" * 64, 0, 5))),
    answer=StoredAnswer(
        "ack",
        MessageKind.ERROR,
        StoredParcel("text/xml", (("B", "2"),), (SpoolSlice("b" * 64, 1, 2), b"y")),
        owed=True,
    ),
    hop=3,
    view=b"what was accepted",
    answered=True,
)
"""No field has its default, so that none can be mixed up or forgotten."""


def _ids(found: list[StoredIncoming]) -> list[str]:
    return [stored.incoming.message_id for stored in found]


@pytest.mark.requirement("STO-4", "STO-5", "STO-6")
def test_every_value_comes_back(backend: Backend) -> None:
    with backend.store.transition() as transaction:
        assert transaction.add_incoming(FULL) is None
        assert transaction.incoming("buyer", "full@example") == replace(FULL, row=1)
    backend.store.commit()
    with backend.crash().transition() as transaction:
        assert transaction.incoming("buyer", "full@example") == replace(FULL, row=1)
    with backend.store.reader() as reader:
        assert reader.incoming_list() == [replace(FULL, row=1, parcel=None, answer=None, view=None)]


@pytest.mark.requirement("DUP-2")
def test_the_first_of_two_copies_wins(store: Store) -> None:
    first = received("a", answer=answer("first"))
    with store.transition() as transaction:
        assert transaction.add_incoming(first) is None
    # The second copy comes in another transition of the same commit.
    with store.transition() as transaction:
        known = transaction.add_incoming(received("a", digest="e" * 64, answer=answer("second")))
        assert known == replace(first, position=1, row=1)
    store.commit()
    with store.transition() as transaction:
        assert transaction.add_incoming(received("a")) == replace(first, position=1, row=1)
        # A copy used up no number.
        assert transaction.add_incoming(received("b")) is None
        later = transaction.incoming("buyer", "b")
        assert later is not None
        assert (later.position, later.row) == (2, 2)


@pytest.mark.requirement("DUP-1")
def test_another_partner_cannot_use_up_an_id(store: Store) -> None:
    with store.transition() as transaction:
        assert transaction.add_incoming(received("a", sender="buyer")) is None
        assert transaction.add_incoming(received("a", sender="thief")) is None
        assert transaction.incoming("nobody", "a") is None
        found = transaction.incoming_by_id("a")
        assert [stored.incoming.sender for stored in found] == ["buyer", "thief"]
        assert transaction.incoming_by_id("b") == []


def test_a_message_is_stored_in_the_state_it_got(store: Store) -> None:
    with pytest.raises(InvalidValue), store.transition() as transaction:
        transaction.add_incoming(received("a", state=IncomingState.ARRIVING))
    with store.transition() as transaction:
        assert transaction.incoming("buyer", "a") is None


def test_a_message_may_come_without_bytes(store: Store) -> None:
    bare = replace(received("a"), parcel=None)
    with store.transition() as transaction:
        transaction.add_incoming(bare)
        assert transaction.incoming("buyer", "a") == replace(bare, position=1, row=1)
        transaction.save_answer("buyer", "a", answer())
        assert transaction.incoming("buyer", "a") == replace(
            bare, position=1, row=1, answer=answer(), answered=True
        )


def test_saving_what_is_not_there_is_refused(store: Store) -> None:
    with store.transition() as transaction:
        transaction.add_incoming(received("a"))
    for sender, message_id in (("buyer", "b"), ("thief", "a")):
        with pytest.raises(UnknownMessage), store.transition() as transaction:
            transaction.save_incoming(received(message_id, sender=sender).incoming)
        with pytest.raises(UnknownMessage), store.transition() as transaction:
            transaction.save_answer(sender, message_id, answer())


def test_positions_are_given_when_a_message_becomes_ready_for_the_first_time(store: Store) -> None:
    with store.transition() as transaction:
        for name, state in (("a", HELD), ("b", READY), ("c", HELD), ("d", CONFIRMED)):
            transaction.add_incoming(received(name, state=state))
        assert _ids(transaction.ready(0, 10)) == ["b"]
        for name in "ca":
            transaction.save_incoming(received(name).incoming)
        assert _ids(transaction.ready(0, 10)) == ["b", "c", "a"]
        positions = [transaction.incoming("buyer", name) for name in "bcad"]
        assert [stored and stored.position for stored in positions] == [1, 2, 3, 0]
        # Handed over, lost and ready again: the place stays.
        transaction.save_incoming(received("b", state=HANDED_OVER, lease_until=5).incoming)
        transaction.save_incoming(received("b").incoming)
        assert _ids(transaction.ready(0, 10)) == ["b", "c", "a"]
        transaction.add_incoming(received("e"))
        later = transaction.incoming("buyer", "e")
        assert later is not None
        assert later.position == 4


def test_ready_finds_lost_leases_in_their_place(store: Store) -> None:
    with store.transition() as transaction:
        for name in "abcdef":
            transaction.add_incoming(received(name))
        transaction.save_incoming(received("a", state=HANDED_OVER, lease_until=50).incoming)
        transaction.save_incoming(received("c", state=HANDED_OVER, lease_until=40).incoming)
        transaction.save_incoming(received("d", state=HANDED_OVER).incoming)
        transaction.save_incoming(received("e", state=CONFIRMED, lease_until=1).incoming)
        assert _ids(transaction.ready(39, 10)) == ["b", "f"]
        assert _ids(transaction.ready(40, 10)) == ["b", "c", "f"]
        assert _ids(transaction.ready(50, 10)) == ["a", "b", "c", "f"]
        assert _ids(transaction.ready(50, 2)) == ["a", "b"]
        assert _ids(transaction.ready(39, 1)) == ["b"]
        assert transaction.ready(50, 0) == []
        assert _ids(transaction.given(39)) == ["c", "a"]
        assert _ids(transaction.given(40)) == ["a"]
        assert transaction.given(50) == []
    assert store.next_wake() == 40


def test_ready_messages_need_no_wake_up(store: Store) -> None:
    with store.transition() as transaction:
        transaction.add_incoming(received("a"))
        transaction.add_incoming(received("b", state=HANDED_OVER))
    assert store.next_wake() is None


def test_held_messages_come_in_order_of_arrival(store: Store) -> None:
    with store.transition() as transaction:
        for name, state in (("b", HELD), ("a", HELD), ("c", READY), ("d", HELD)):
            transaction.add_incoming(received(name, state=state))
        assert _ids(transaction.held(10)) == ["b", "a", "d"]
        assert _ids(transaction.held(2)) == ["b", "a"]
        transaction.save_incoming(received("b").incoming)
        assert _ids(transaction.held(10)) == ["a", "d"]


def test_saving_the_same_state_again_changes_nothing(store: Store) -> None:
    with store.transition() as transaction:
        transaction.add_incoming(received("a"))
        before = transaction.incoming("buyer", "a")
    store.commit()
    with store.transition() as transaction:
        transaction.save_incoming(received("a").incoming)
        assert transaction.incoming("buyer", "a") == before


def test_an_answer_that_left_is_owed_no_more() -> None:
    assert answer(owed=True).delivered() == answer()


@pytest.mark.requirement("STO-9")
def test_answers_are_set_replaced_and_no_longer_owed(backend: Backend) -> None:
    store = backend.store
    with store.transition() as transaction:
        for name in "abc":
            transaction.add_incoming(received(name))
        transaction.save_answer("buyer", "c", answer("1", owed=True))
        transaction.save_answer("buyer", "a", answer("2", owed=True))
        assert _ids(transaction.answers_owed(10)) == ["a", "c"]
        assert _ids(transaction.answers_owed(1)) == ["a"]
        # Lists have no bytes: there may be many.
        assert [one.answered for one in transaction.answers_owed(10)] == [True, True]
        assert _ids(transaction.answers_owed(10, transaction.answers_owed(1)[0].row)) == ["c"]
        assert transaction.answer("buyer", "c") == answer("1", owed=True)
        transaction.save_answer("buyer", "c", answer("1", owed=False))
        assert _ids(transaction.answers_owed(10)) == ["a"]
        transaction.save_answer("buyer", "a", answer("3", body=b"another"))
    store.commit()
    with backend.crash().transition() as transaction:
        assert transaction.answers_owed(10) == []
        for name, expected in (
            ("a", answer("3", body=b"another")),
            ("b", None),
            ("c", answer("1")),
        ):
            stored = transaction.incoming("buyer", name)
            assert stored is not None
            assert stored.answer == expected
            assert stored.parcel == parcel()


@pytest.mark.parametrize(
    "state", [state for state in IncomingState if state is not IncomingState.ARRIVING]
)
def test_every_state_can_be_stored(store: Store, state: IncomingState) -> None:
    with store.transition() as transaction:
        transaction.add_incoming(received("a", state=state))
        stored = transaction.incoming("buyer", "a")
        assert stored is not None
        assert stored.incoming.state is state
    store.commit()
    with store.reader() as reader:
        assert reader.counts()[f"in.{state.value}"] == 1


def test_one_id_may_be_sent_and_received(store: Store) -> None:
    # A hub keeps the message it received and its onward copy under one MessageId (HOP-8).
    with store.transition() as transaction:
        transaction.add_incoming(received("a"))
        add(transaction, sent("a"))
        assert transaction.incoming("buyer", "a") is not None
        assert transaction.outgoing("a") is not None
