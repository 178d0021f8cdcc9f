"""Incidents, the retention sweep, legal holds and the journal's end."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from oncewire.journal.identity import unchained
from oncewire.message.instant import DAY, seconds
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import FINAL_OUTGOING, IncomingState, OutgoingState, Phase
from oncewire.store.contract import Store
from oncewire.store.memory.store import MemoryStore
from oncewire.store.records import Incident, Removed
from oncewire.store.transition.rows import FINAL_INCOMING, STORED_INCOMING
from tests.store.backends import Backend
from tests.store.samples import (
    CONFIRMED,
    DELIVERED,
    HANDED_OVER,
    ORDERED_ID,
    OUTSTANDING,
    READY,
    UNKNOWN,
    add,
    answer,
    everything,
    received,
    row,
    sent,
    undone,
)

# --- incidents ---


def test_an_incident_is_opened_once(store: Store) -> None:
    with store.transition() as transaction:
        assert transaction.open_incident(1, "first", "a", "c") == 1
        assert transaction.open_incident(2, "again", "a", "c") == 1
        assert transaction.open_incident(3, "message alone", "a", None) == 2
        assert transaction.open_incident(4, "channel alone", None, "c") == 3
        assert not transaction.has_incident(None, None)
        assert not transaction.has_incident("a", "d")
        assert transaction.has_incident("a", "c")
        assert transaction.open_incident(5, "node", None, None) == 4
        assert transaction.open_incident(6, "node", None, None) == 4
    store.commit()
    with store.reader() as reader:
        assert reader.incidents() == [
            Incident(1, 1, "first", "a", "c"),
            Incident(2, 3, "message alone", "a", None),
            Incident(3, 4, "channel alone", None, "c"),
            Incident(4, 5, "node", None, None),
        ]


def test_incidents_are_resolved_by_message_or_by_channel(store: Store) -> None:
    with store.transition() as transaction:
        for message_id, channel in (("a", "c"), ("a", None), ("b", "c"), (None, "d"), (None, None)):
            transaction.open_incident(1, "trouble", message_id, channel)
        assert transaction.resolve_incidents(5, "x", "y") == []
        assert transaction.resolve_incidents(6, "a", None) == [1, 2]
        assert transaction.resolve_incidents(7, "a", "c") == [3]
        assert transaction.resolve_incidents(8, None, "d") == [4]
        assert transaction.resolve_incidents(9, None, None) == [5]
        assert transaction.resolve_incidents(9, None, None) == []
        # A resolved one is over: the same trouble later is a new incident.
        assert transaction.open_incident(10, "again", "a", "c") == 6
    store.commit()
    with store.reader() as reader:
        resolved = [(one.id, one.resolved_at) for one in reader.incidents(open_only=False)]
        assert resolved == [(1, 6), (2, 6), (3, 7), (4, 8), (5, 9), (6, None)]
        assert [one.id for one in reader.incidents()] == [6]


# --- sweep ---


def _left(store: Store) -> set[str]:
    with store.reader() as reader:
        return {stored.outgoing.message_id for stored in reader.outgoing_list()} | {
            stored.incoming.message_id for stored in reader.incoming_list()
        }


def _sweep(store: Store, now: int, limit: int = 100) -> int:
    with store.transition() as transaction:
        gone = transaction.sweep(now, limit)
    store.commit()
    return gone


@pytest.mark.requirement("STO-7")
def test_messages_are_kept_for_persist_duration(store: Store) -> None:
    with store.transition() as transaction:
        add(transaction, sent("sent", state=DELIVERED, submitted_at=10, first_sent_at=50))
        add(transaction, sent("unsent", state=OutgoingState.NOT_DELIVERED, submitted_at=20))
        transaction.add_incoming(received("got", state=CONFIRMED, received_at=30))
    assert _sweep(store, 19 + DAY) == 0
    assert _sweep(store, 20 + DAY) == 1
    assert _left(store) == {"sent", "got"}
    assert _sweep(store, 49 + DAY) == 1
    assert _left(store) == {"sent"}
    assert _sweep(store, 50 + DAY) == 1
    assert _left(store) == set()


@pytest.mark.requirement("STO-8")
def test_what_the_agreement_keeps_longer_is_kept_longer(store: Store) -> None:
    with store.transition() as transaction:
        add(transaction, sent("a", state=DELIVERED, terms_id=ORDERED_ID, first_sent_at=0))
        transaction.add_incoming(received("b", state=CONFIRMED, terms_id=ORDERED_ID, received_at=0))
    assert _sweep(store, DAY + seconds(100) - 1) == 0
    assert _sweep(store, DAY + seconds(100)) == 2


@pytest.mark.requirement("STO-5")
def test_only_final_messages_are_removed(store: Store) -> None:
    with store.transition() as transaction:
        for state in OutgoingState:
            add(transaction, sent(f"out-{state.value}", state=state))
        for received_state in STORED_INCOMING:
            transaction.add_incoming(received(f"in-{received_state.value}", state=received_state))
    assert _sweep(store, 10 * DAY) == len(FINAL_OUTGOING) + len(FINAL_INCOMING)
    assert _left(store) == {
        *("out-waiting", "out-outstanding", "out-suspended"),
        *("in-held", "in-ready", "in-gathered", "in-handed_over"),
    }


def test_what_is_owed_stays(store: Store) -> None:
    with store.transition() as transaction:
        add(transaction, sent("notice", state=UNKNOWN, notice_owed=True))
        transaction.add_incoming(received("answer", state=CONFIRMED, answer=answer(owed=True)))
    assert _sweep(store, 10 * DAY) == 0
    with store.transition() as transaction:
        transaction.save_outgoing(sent("notice", state=UNKNOWN).outgoing)
        transaction.save_answer("buyer", "answer", answer())
    assert _sweep(store, 10 * DAY) == 2


def test_what_a_channel_still_waits_for_stays(store: Store) -> None:
    # Number 1 failed without an answer: the operator abandons or resumes it by its id.
    channel = SendingChannel("c", epoch=1, next_number=3, first_unsettled=1, phase=Phase.RUNNING)
    with store.transition() as transaction:
        for number, state in enumerate((DELIVERED, UNKNOWN, UNKNOWN)):
            numbered: dict[str, Any] = {"terms_id": ORDERED_ID, "epoch": 1, "number": number}
            add(transaction, sent(f"m{number}", state=state, channel="c", **numbered))
        add(transaction, sent("free", state=UNKNOWN, channel="never saved"))
        add(transaction, sent("cause", state=UNKNOWN, channel="d"))
        transaction.save_sending_channel(channel)
        transaction.save_sending_channel(SendingChannel("d").suspend("trouble", "cause"))
    # The limit counts what is removed, not what is looked at.
    assert _sweep(store, 10 * DAY, limit=1) == 1
    assert _sweep(store, 10 * DAY, limit=1) == 1
    assert _sweep(store, 10 * DAY, limit=1) == 0
    assert _left(store) == {"m1", "m2", "cause"}
    with store.transition() as transaction:
        transaction.save_sending_channel(
            SendingChannel("c", epoch=1, next_number=3, first_unsettled=3, phase=Phase.RUNNING)
        )
        transaction.save_sending_channel(SendingChannel("d"))
    assert _sweep(store, 10 * DAY) == 3


def test_what_an_open_incident_names_stays(store: Store) -> None:
    with store.transition() as transaction:
        add(transaction, sent("out", state=UNKNOWN))
        transaction.add_incoming(received("in", state=CONFIRMED))
        transaction.open_incident(1, "nobody knows", "out", "c")
        transaction.open_incident(1, "nobody knows", "in", None)
    # Only its operator can say what is to become of it, and only by its id.
    assert _sweep(store, 10 * DAY) == 0
    with store.transition() as transaction:
        transaction.resolve_incidents(2, "out", None)
    assert _sweep(store, 10 * DAY) == 1
    assert _left(store) == {"in"}
    with store.transition() as transaction:
        transaction.resolve_incidents(2, "in", None)
    assert _sweep(store, 10 * DAY) == 1


@pytest.mark.requirement("STO-9")
def test_a_response_stays_while_the_message_it_answers_is_kept(store: Store) -> None:
    with store.transition() as transaction:
        # The request is kept longer than its response would be.
        add(transaction, sent("response", state=DELIVERED, ref_to="request", submitted_at=0))
        add(transaction, sent("other", state=DELIVERED, ref_to="unknown", submitted_at=0))
        request = received("request", state=CONFIRMED, terms_id=ORDERED_ID, received_at=0)
        transaction.add_incoming(request)
    assert _sweep(store, DAY + 1) == 1
    assert _left(store) == {"response", "request"}
    assert _sweep(store, DAY + seconds(100)) == 1
    assert _left(store) == {"response"}
    assert _sweep(store, DAY + seconds(100)) == 1


def test_a_removed_message_is_remembered_while_the_journal_names_it(backend: Backend) -> None:
    store = backend.store
    with store.transition() as transaction:
        transaction.remember_agreement("x", "text")
        first = sent("a", state=UNKNOWN, submitted_at=5, first_sent_at=7)
        add(transaction, replace(first, agreement_id="x"))
        add(transaction, sent("b", state=OutgoingState.NOT_DELIVERED, submitted_at=5))
        arrived = received("a", state=CONFIRMED, received_at=9)
        transaction.add_incoming(replace(arrived, agreement_id="x"))
        transaction.add_incoming(received("a", sender="abe", state=IncomingState.REFUSED))
        add(transaction, sent("unnamed", state=DELIVERED))
        transaction.journal([row("submitted", "a", at=1), row("submitted", "b", at=2)])
        transaction.journal([row("received", "a", at=3)])
        assert transaction.removed("a") == []
    assert _sweep(store, 10 * DAY) == 5
    sent_from_here = Removed("a", None, "d" * 64, "unknown", 7, 10 * DAY, "x")
    seen = [
        sent_from_here,
        Removed("a", "abe", "d" * 64, "refused", 100, 10 * DAY),
        Removed("a", "buyer", "d" * 64, "confirmed", 9, 10 * DAY, "x"),
    ]
    store = backend.crash()
    with store.transition() as transaction:
        assert transaction.removed("a") == seen
        assert [one.at for one in transaction.removed("b")] == [5]
        assert transaction.removed("unnamed") == transaction.removed("never") == []
        transaction.trim_journal(3, 100)
        assert transaction.removed("a") == seen
        assert transaction.removed("b") == []
        # The store lets an id be used again; what was is not forgotten by it.
        add(transaction, sent("a", state=DELIVERED))
        assert transaction.removed("a") == seen
    store.commit()
    assert _sweep(store, 20 * DAY) == 1
    with store.reader() as reader:
        assert reader.removed("a")[0] == Removed("a", None, "d" * 64, "delivered", 100, 20 * DAY)
        assert reader.removed("never") == []
        assert reader.last_removal() == 20 * DAY
    with store.transition() as transaction:
        assert transaction.trim_journal(100, 100) == 1
        assert transaction.removed("a") == []
    store.commit()
    with store.reader() as reader:
        assert reader.last_removal() is None


def test_answers_are_overdue_when_persist_duration_has_passed(store: Store) -> None:
    with store.transition() as transaction:
        for name, at in (("late", 20), ("early", 10)):
            waits = answer(f"ack of {name}", owed=True)
            transaction.add_incoming(received(name, received_at=at, answer=waits))
        # What is kept longer is not waited for longer.
        waits = answer("ack", owed=True)
        transaction.add_incoming(
            received("kept", terms_id=ORDERED_ID, received_at=15, answer=waits)
        )
        transaction.add_incoming(received("told", received_at=0, answer=answer()))
    store.commit()

    def overdue(now: int, limit: int = 10) -> list[str]:
        with store.transition() as transaction:
            found = transaction.answers_overdue(now, limit)
            assert all(one.answered and one.parcel is None for one in found)
            return [one.incoming.message_id for one in found]

    assert overdue(DAY + 9) == []
    assert overdue(DAY + 10) == ["early"]
    assert overdue(DAY + 15) == ["early", "kept"]
    assert overdue(DAY + 20) == ["late", "early", "kept"]
    assert overdue(DAY + 20, 1) == ["late"]


def test_a_sweep_takes_the_oldest_first_and_no_more_than_its_limit(store: Store) -> None:
    with store.transition() as transaction:
        for name, at in (("a", 30), ("b", 10), ("c", 20)):
            add(transaction, sent(name, state=DELIVERED, first_sent_at=at))
            transaction.add_incoming(received(name.upper(), state=CONFIRMED, received_at=at))
    assert _sweep(store, 10 * DAY, limit=0) == 0
    for expected in (["b", "c"], ["a", "B"], ["C", "A"]):
        before = _left(store)
        assert _sweep(store, 10 * DAY, limit=2) == 2
        assert before - _left(store) == set(expected)
    assert _sweep(store, 10 * DAY, limit=2) == 0


@pytest.mark.requirement("STO-8")
def test_a_legal_hold_keeps_a_message(backend: Backend) -> None:
    store = backend.store
    with store.transition() as transaction:
        add(transaction, sent("a", state=DELIVERED))
        transaction.add_incoming(received("a", state=CONFIRMED))
        transaction.add_incoming(received("a", sender="thief", state=CONFIRMED))
        transaction.add_incoming(received("b", state=READY))
        assert transaction.hold("a", True)
        assert transaction.hold("b", True)
        assert not transaction.hold("x", True)
        # Later steps do not lift it.
        transaction.save_incoming(received("b", state=CONFIRMED).incoming)
        transaction.save_answer("buyer", "b", answer())
        transaction.save_outgoing(sent("a", state=DELIVERED, late=True).outgoing)
    store.commit()
    store = backend.crash()
    assert _sweep(store, 10 * DAY) == 0
    with store.transition() as transaction:
        assert transaction.hold("a", False)
    assert _sweep(store, 10 * DAY) == 3
    assert _left(store) == {"b"}


def test_a_removed_message_is_gone_and_its_journal_is_not(store: Store) -> None:
    with store.transition() as transaction:
        add(transaction, sent("a", state=DELIVERED, ref_to="q", channel="c"))
        transaction.add_incoming(received("b", state=CONFIRMED))
        transaction.journal([row("submitted", "a"), row("received", "b")])
    assert _sweep(store, 10 * DAY) == 2
    with store.transition() as transaction:
        assert transaction.outgoing("a") is None
        assert transaction.outgoing_parcel("a") is None
        assert transaction.incoming("buyer", "b") is None
        assert transaction.incoming_by_id("b") == []
        assert transaction.responses_to("q", "seller") == []
        assert not transaction.hold("a", True)
        # The id may be used again, at a new position: positions never come back.
        assert add(transaction, sent("a")).position == 2
        assert transaction.add_incoming(received("b")) is None
        again = transaction.incoming("buyer", "b")
        assert again is not None
        assert again.row == 2
    store.commit()
    view = everything(store)
    assert [r.message_id for r in view["journal"]] == ["a", "b"]
    assert view["counts"]["out.delivered"] == view["counts"]["in.confirmed"] == 0


def test_a_sweep_can_be_undone(store: Store) -> None:
    with store.transition() as transaction:
        add(transaction, sent("a", state=DELIVERED))
        transaction.add_incoming(received("b", state=CONFIRMED))
    store.commit()
    before = everything(store)
    with undone(store) as transaction:
        assert transaction.sweep(10 * DAY, 10) == 2
    with store.transition() as transaction:
        assert transaction.outgoing("a") is not None
        assert transaction.incoming("buyer", "b") is not None
    assert everything(store) == before


# --- journal ---


def test_the_store_numbers_the_journal(store: Store) -> None:
    rows = [row("started"), row("submitted", "a", at=5, detail="{}"), row("sent", "a", attempt=1)]
    with store.transition() as transaction:
        transaction.journal(rows)
        transaction.journal(iter([row("submitted", "b")]))
        transaction.journal([])
    store.commit()
    with store.reader() as reader:
        assert reader.journal_since(0, 2) == [rows[0]._replace(seq=1), rows[1]._replace(seq=2)]
        assert [r.seq for r in reader.journal_since(2, 10)] == [3, 4]
        assert reader.journal_since(4, 10) == []
        assert reader.journal_of("a") == [rows[1]._replace(seq=2), rows[2]._replace(seq=3)]
        assert reader.journal_of("x") == []
        assert reader.last_seq() == 4


def test_the_journal_says_where_it_lies_and_how_much_of_it_is_there(backend: Backend) -> None:
    store = backend.store
    with store.reader() as reader:
        assert reader.journal_span(0, 9) == (0, 0, 0, 0)
    with store.transition() as transaction:
        transaction.journal([row("sent", f"m{at}", at=at) for at in range(1, 7)])
    store.commit()
    with store.transition() as transaction:
        assert transaction.trim_journal(3, 6) == 2
    store.commit()
    chained = 0 if isinstance(store, MemoryStore) else 3
    with store.reader() as reader:
        assert reader.journal_span(0, 4) == (3, 6, chained, 2)
        assert reader.journal_span(4, 4) == (3, 6, chained, 0)


def test_a_database_keeps_the_head_before_each_row_and_behind_the_last(backend: Backend) -> None:
    store = backend.store
    with store.transition() as transaction:
        transaction.journal([row("sent", f"m{at}", at=at) for at in range(1, 7)])
    store.commit()
    with store.reader() as reader:
        rows, heads = reader.journal_since(0, 10), reader.journal_heads(0, 10)
        assert unchained(rows, heads) == []
        edited = [each._replace(peer="forged") if each.seq in (2, 6) else each for each in rows]
        if isinstance(store, MemoryStore):
            assert heads == {}
            return
        assert sorted(heads) == [1, 2, 3, 4, 5, 6, 7]
        assert unchained(edited, heads) == [2, 6]
        # A page has the head behind its last row where one row more is asked for.
        assert unchained(edited[1:3], reader.journal_heads(1, 3)) == [2]


def test_every_column_of_a_row_comes_back(backend: Backend) -> None:
    full = row(
        "sent", "a", at=3, ref_to="r", terms_id="t", channel="c", epoch=1, sequence_number=2,
        attempt=3, hop=4, peer="p", transport="http", digest="d" * 64, size=5, detail='{"a":1}',
    )  # fmt: skip
    with backend.store.transition() as transaction:
        transaction.journal([full])
    backend.store.commit()
    with backend.crash().reader() as reader:
        assert reader.journal_since(0, 1) == [full._replace(seq=1)]


def test_the_journal_is_trimmed_up_to_what_was_taken(store: Store) -> None:
    with store.transition() as transaction:
        # The clock went back in between: the row of 99 stays until its own time has come.
        transaction.journal([row("sent", f"m{at}", at=at) for at in (1, 2, 99, 3, 4)])
        assert transaction.trim_journal(4, 3) == 2
    store.commit()
    with store.reader() as reader:
        assert [r.seq for r in reader.journal_since(0, 10)] == [3, 4, 5]
        assert reader.journal_of("m1") == []
    with store.transition() as transaction:
        assert transaction.trim_journal(4, 100) == 1
        assert transaction.trim_journal(1000, 100) == 2
        assert transaction.trim_journal(1000, 100) == 0
    store.commit()
    with store.reader() as reader:
        assert reader.journal_since(0, 10) == []
        assert reader.last_seq() == 5
    with store.transition() as transaction:
        transaction.journal([row("sent", "m1")])
    store.commit()
    with store.reader() as reader:
        assert [r.seq for r in reader.journal_of("m1")] == [6]


def test_a_seq_is_never_used_again(backend: Backend) -> None:
    with backend.store.transition() as transaction:
        transaction.journal([row("sent", "a")])
        transaction.trim_journal(10, 10)
    backend.store.commit()
    store = backend.reopen()
    with store.transition() as transaction:
        transaction.journal([row("sent", "a")])
    store.commit()
    with store.reader() as reader:
        assert [r.seq for r in reader.journal_since(0, 10)] == [2]


def test_a_name_outlives_the_journal_while_a_message_has_it(store: Store) -> None:
    with store.transition() as transaction:
        add(transaction, sent("a"))
        transaction.add_incoming(received("b", state=HANDED_OVER))
        transaction.journal([row("submitted", "a"), row("received", "b"), row("refused", "c")])
    store.commit()
    with store.transition() as transaction:
        assert transaction.trim_journal(10, 10) == 3
    store.commit()
    with store.transition() as transaction:
        assert transaction.outgoing("a") is not None
        assert transaction.incoming("buyer", "b") is not None
        transaction.journal([row("sent", "a")])
        transaction.save_outgoing(sent("a", state=OUTSTANDING).outgoing)
    store.commit()
    with store.reader() as reader:
        assert [r.message_id for r in reader.journal_since(0, 10)] == ["a"]
