"""Queries for people: lists, counts, channels and what the spool is made of."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from oncewire.message.envelope import TRIAL_MARK
from oncewire.protocol.receiving import Held, ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.sequence import SequenceRange
from oncewire.protocol.states import IncomingState, OutgoingState, Phase
from oncewire.store.contract import Store
from oncewire.store.records import SpoolSlice, StoredAnswer, StoredParcel
from oncewire.store.transition.rows import STORED_INCOMING
from tests.store.samples import (
    CONFIRMED,
    DELIVERED,
    HELD,
    OUTSTANDING,
    READY,
    UNKNOWN,
    WAITING,
    add,
    answer,
    facts,
    received,
    row,
    sent,
)

GATHERED = IncomingState.GATHERED


@pytest.fixture
def filled(store: Store) -> Store:
    """Nine messages each way, in three states each."""
    with store.transition() as transaction:
        for number in range(9):
            add(
                transaction, sent(f"o{number}", state=(WAITING, OUTSTANDING, DELIVERED)[number % 3])
            )
            transaction.add_incoming(
                received(f"i{number}", state=(HELD, READY, CONFIRMED)[number % 3])
            )
    store.commit()
    return store


def test_lists_begin_with_the_newest(filled: Store) -> None:
    with filled.reader() as reader:
        assert [stored.position for stored in reader.outgoing_list()] == list(range(9, 0, -1))
        assert [stored.position for stored in reader.outgoing_list(limit=2)] == [9, 8]
        assert [stored.position for stored in reader.outgoing_list(before=3)] == [2, 1]
        assert reader.outgoing_list(before=1) == []
        assert [stored.row for stored in reader.incoming_list(limit=3, before=8)] == [7, 6, 5]
        assert len(reader.incoming_list()) == 9
        assert all(stored.parcel is None for stored in reader.incoming_list())


def test_a_reader_knows_the_terms_of_a_message(filled: Store) -> None:
    with filled.reader() as reader:
        (stored, *_) = reader.outgoing_list()
        terms = reader.terms(stored.outgoing.terms_id)
        assert terms is not None
        assert terms.terms_id == stored.outgoing.terms_id
        assert reader.terms("no such terms") is None


def test_what_was_refused_is_found_by_a_part_of_its_id(filled: Store) -> None:
    with filled.transition() as transaction:
        transaction.journal(
            [
                row("refused", "early@buyer"),
                row("received", "i1"),
                row("refused", f"{TRIAL_MARK}1@buyer"),
                row("refused", "late@buyer"),
                row("refused", "early@buyer"),
                row("refused"),
            ]
        )
    filled.commit()
    with filled.reader() as reader:
        assert reader.refused_ids("@buyer", 100) == ["late@buyer", "early@buyer"]
        assert reader.refused_ids("rly@", 100) == ["early@buyer"]
        # Only so many of the newest ids are looked at, however long the journal is.
        assert reader.refused_ids("@buyer", 1) == ["late@buyer"]
        assert reader.refused_ids("i1", 100) == []
        assert reader.refused_ids("%", 100) == []


def test_lists_can_be_of_some_states(filled: Store) -> None:
    with filled.reader() as reader:
        found = reader.outgoing_list(states=[DELIVERED, WAITING, DELIVERED], limit=4)
        assert [stored.outgoing.message_id for stored in found] == ["o8", "o6", "o5", "o3"]
        found = reader.outgoing_list(states=[DELIVERED, WAITING], before=4)
        assert [stored.outgoing.message_id for stored in found] == ["o2", "o0"]
        assert reader.outgoing_list(states=[UNKNOWN]) == []
        received_ = reader.incoming_list(states=(READY,), limit=2)
        assert [stored.incoming.message_id for stored in received_] == ["i7", "i4"]
        received_ = reader.incoming_list(states=(READY, HELD), before=3)
        assert [stored.incoming.message_id for stored in received_] == ["i1", "i0"]


def test_the_oldest_without_an_outcome_come_first(filled: Store) -> None:
    with filled.reader() as reader:
        states = [one.state for one in reader.oldest_unsettled(2)]
        every = reader.oldest_unsettled(100)
        listed = reader.outgoing_list(states=(WAITING, OUTSTANDING))
    assert states == [WAITING, WAITING, OUTSTANDING, OUTSTANDING]
    told = {(one.peer, one.outgoing.channel, one.outgoing.submitted_at) for one in listed}
    assert {(one.peer, one.channel, one.submitted_at) for one in every} == told
    assert len(every) == 6


def test_a_store_says_what_it_takes_of_its_disk(store: Store) -> None:
    before = store.space()
    name, _ = store.spool.put([b"x" * 1000])
    space = store.space()
    store.spool.give_back(name)
    if space.free is None:
        assert space == before
        return
    assert space.spool == before.spool + 1000
    assert space.total is not None
    assert 0 < space.free < space.total
    assert space.database > 0


def test_counts_name_every_state(filled: Store) -> None:
    with filled.reader() as reader:
        counts = reader.counts()
    names = {f"out.{state.value}" for state in OutgoingState}
    assert set(counts) == names | {f"in.{state.value}" for state in STORED_INCOMING}
    assert "in.arriving" not in counts
    assert {name for name, number in counts.items() if number} == {
        *("out.waiting", "out.outstanding", "out.delivered"),
        *("in.held", "in.ready", "in.confirmed"),
    }
    assert sum(counts.values()) == 18


def test_parts_are_not_counted_where_their_document_is(filled: Store) -> None:
    part = facts(split_id="doc", split_number=1, split_total=2)
    with filled.reader() as reader:
        before = reader.counts()
    with filled.transition() as transaction:
        add(transaction, replace(sent("p1", state=OUTSTANDING), facts=part))
        add(transaction, replace(sent("hub", state=WAITING), facts=part, relayed_from="a"))
        for name, state in (("q1", CONFIRMED), ("q2", HELD), ("q3", GATHERED)):
            transaction.add_incoming(replace(received(name, state=state), facts=part))
    filled.commit()
    with filled.reader() as reader:
        after = reader.counts()
        assert reader.parts_counted() == {
            "out.outstanding": 1,
            "in.confirmed": 1,
            "in.gathered": 1,
        }
    more = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    # Those that a hub sends on, and those that wait for an earlier number, are messages here.
    assert more == {"out.waiting": 1, "in.held": 1}


HELD_NUMBERS = (Held(5, "m5"), Held(6, "m6", refused=True), Held(7, "m7", handed=True))


def test_channels_come_by_key(store: Store) -> None:
    sending = [
        SendingChannel("a"),
        SendingChannel(
            *("b", 1, 2, 3, frozenset({5, 9, 7}), 4, Phase.OPENING, True, "why", "m1", 55, 66),
            SequenceRange(1, 9),
        ),
    ]
    receiving = [
        ReceivingChannel("x", 1, 2, 3, 4, HELD_NUMBERS, 7, 8, SequenceRange(0, 99), 10),
        ReceivingChannel("y"),
    ]
    with store.transition() as transaction:
        for channel in reversed(sending):
            transaction.save_sending_channel(channel)
        for held in reversed(receiving):
            transaction.save_receiving_channel(held)
        assert transaction.sending_channel("b") == sending[1]
        assert transaction.receiving_channel("x") == receiving[0]
        assert transaction.sending_channel("x") is None
        assert transaction.receiving_channel("a") is None
    store.commit()
    with store.reader() as reader:
        assert reader.channels() == (sending, receiving)
    with store.transition() as transaction:
        transaction.save_sending_channel(SendingChannel("a", epoch=3, phase=Phase.RUNNING))
        transaction.save_sending_channel(SendingChannel("a", epoch=4, phase=Phase.RUNNING))
        assert transaction.sending_channel("a") == SendingChannel("a", epoch=4, phase=Phase.RUNNING)
    store.commit()
    with store.reader() as reader:
        assert reader.channels()[0][0] == SendingChannel("a", epoch=4, phase=Phase.RUNNING)


def test_spooled_names_every_file_in_use(store: Store) -> None:
    def made_of(*digits: str) -> StoredParcel:
        return StoredParcel("x", (), (b"y", *(SpoolSlice(d * 64, 0, 1) for d in digits)))

    with store.transition() as transaction:
        transaction.add_outgoing(sent("a"), parcel=made_of("a", "b"), draft=None)
        transaction.add_outgoing(sent("b"), parcel=None, draft=b"x")
        transaction.add_incoming(received("c", body=made_of("b", "c")))
        reply = StoredAnswer("r", answer().kind, made_of("d"))
        transaction.add_incoming(received("e", answer=reply))
        transaction.add_incoming(received("f", answer=answer()))
    with store.reader() as reader:
        assert reader.spooled() == set()
    store.commit()
    with store.reader() as reader:
        assert reader.spooled() == {digit * 64 for digit in "abcd"}


def test_the_files_of_a_draft_are_in_use_until_a_parcel_takes_its_place(store: Store) -> None:
    slices = (SpoolSlice("a" * 64, 0, 5), SpoolSlice("b" * 64, 2, 7))
    waiting = sent("w")
    with store.transition() as transaction:
        transaction.add_outgoing(waiting, parcel=None, draft=b"draft", files=slices)
    store.commit()
    with store.reader() as reader:
        assert reader.spooled() == {"a" * 64, "b" * 64}
        # It has no bytes yet, wherever its documents lie.
        assert reader.outgoing_parcel("w") is None
    with store.transition() as transaction:
        assert transaction.outgoing_parcel("w") is None
        assert transaction.draft("w") == b"draft"
        made = StoredParcel("x", (), (b"y", slices[0]))
        transaction.save_outgoing(waiting.outgoing, parcel=made)
    store.commit()
    with store.reader() as reader:
        assert reader.spooled() == {"a" * 64}
        assert reader.outgoing_parcel("w") == made


def test_several_views_may_be_open(store: Store) -> None:
    with store.reader() as one, store.reader() as other:
        assert one.last_seq() == other.last_seq() == 0


# --- one message ---


def test_a_message_is_found_by_its_id_however_many_came_after(store: Store) -> None:
    body = StoredParcel("text/xml", (("A", "1"),), (b"a", SpoolSlice("a" * 64, 1, 2)))
    with store.transition() as transaction:
        first = transaction.add_outgoing(sent("x", state=DELIVERED), parcel=body, draft=None)
        transaction.add_outgoing(sent("w"), parcel=None, draft=b"draft")
        transaction.add_incoming(received("x", answer=answer(owed=True), body=body))
        transaction.add_incoming(received("x", sender="other"))
        for number in range(150):
            add(transaction, sent(f"later {number}"))
            transaction.add_incoming(received(f"later {number}"))
        found = transaction.incoming_by_id("x")
    with store.reader() as reader:
        # Not committed yet.
        assert reader.outgoing("x") is None
    store.commit()
    with store.reader() as reader:
        assert reader.outgoing("x") == first
        assert reader.outgoing_parcel("x") == body
        assert reader.outgoing_parcel("w") is None
        assert reader.incoming("x") == found
        assert [one.incoming.sender for one in found] == ["buyer", "other"]
        assert found[0].parcel == body
        assert reader.outgoing("y") is reader.outgoing_parcel("y") is None
        assert reader.incoming("y") == []


@pytest.mark.requirement("STO-8")
def test_a_legal_hold_can_be_seen(store: Store) -> None:
    with store.transition() as transaction:
        add(transaction, sent("a", state=DELIVERED))
        transaction.add_incoming(received("b", state=CONFIRMED))
        transaction.add_incoming(received("b", sender="other", state=CONFIRMED))
    for name in ("a", "b"):
        for held in (True, False):
            with store.transition() as transaction:
                transaction.hold(name, held)
            store.commit()
            with store.reader() as reader:
                assert reader.on_hold(name) is held
                assert not reader.on_hold("c")
