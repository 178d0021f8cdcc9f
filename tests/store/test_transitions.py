"""Transitions and commits: what is kept, what is undone, and what a crash loses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from oncewire.errors import NotAllowed, StoreGone, UnknownMessage
from oncewire.protocol.receiving import Held, ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import Phase
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Store, Transaction
from tests.store.backends import Backend
from tests.store.samples import OUTSTANDING, TERMS, add, everything, received, row, sent, undone


def test_a_store_knows_its_node(backend: Backend) -> None:
    assert backend.store.node() == "node"
    assert backend.reopen().node() == "node"


def test_a_transition_sees_its_own_changes_and_those_before_it(store: Store) -> None:
    with store.transition() as transaction:
        add(transaction, sent("a"))
        assert transaction.outgoing("a") is not None
    with store.transition() as transaction:
        assert transaction.outgoing("a") is not None
        assert transaction.outgoing("b") is None


def test_readers_see_committed_state_only(store: Store) -> None:
    before = everything(store)
    with store.transition() as transaction:
        add(transaction, sent("a"))
        transaction.journal([row("submitted", "a")])
        transaction.save_sending_channel(SendingChannel("c"))
    assert everything(store) == before
    store.commit()
    after = everything(store)
    assert [stored.outgoing.message_id for stored in after["outgoing"]] == ["a"]
    assert after["last"] == 1
    assert after["channels"] == ([SendingChannel("c")], [])


def test_a_view_stays_as_it_was_opened(store: Store) -> None:
    with store.reader() as reader:
        with store.transition() as transaction:
            add(transaction, sent("a"))
            transaction.journal([row("submitted", "a")])
        assert reader.last_seq() == 0
        store.commit()
        assert reader.last_seq() == 0
        assert reader.outgoing_list() == []
        with store.reader() as later:
            assert later.last_seq() == 1
            assert len(later.outgoing_list()) == 1
    with store.reader() as reader:
        assert reader.last_seq() == 1


def test_a_view_is_of_the_moment_it_was_opened_not_of_the_first_question(store: Store) -> None:
    with store.reader() as reader:
        with store.transition() as transaction:
            add(transaction, sent("a"))
        store.commit()
        assert reader.outgoing_list() == []


def test_a_view_outlives_a_crash_without_changing(backend: Backend) -> None:
    with backend.store.transition() as transaction:
        transaction.journal([row("started")])
    backend.store.commit()
    with backend.store.reader() as reader, backend.store.reader() as other:
        with backend.store.transition() as transaction:
            transaction.journal([row("stopped")])
        backend.crash()
        with backend.store.transition() as transaction:
            transaction.journal([row("started"), row("stopped")])
        backend.store.commit()
        assert reader.last_seq() == other.last_seq() == 1


def test_an_exception_undoes_exactly_its_transition(store: Store) -> None:
    with store.transition() as transaction:
        add(transaction, sent("a"))
        transaction.save_sending_channel(SendingChannel("c", epoch=1, phase=Phase.RUNNING))
        transaction.journal([row("submitted", "a")])
    with undone(store) as transaction:
        add(transaction, sent("b"))
        transaction.save_sending_channel(SendingChannel("c", epoch=2, phase=Phase.RUNNING))
        transaction.save_sending_channel(SendingChannel("d"))
        transaction.save_receiving_channel(ReceivingChannel("e"))
        transaction.remember_terms(Terms(retries=9))
        transaction.journal([row("submitted", "b")])
        transaction.open_incident(1, "trouble", "b", None)
        transaction.add_incoming(received("i"))
    with store.transition() as transaction:
        assert transaction.outgoing("a") is not None
        assert transaction.outgoing("b") is None
        assert transaction.incoming("buyer", "i") is None
        assert transaction.sending_channel("c") == SendingChannel("c", epoch=1, phase=Phase.RUNNING)
        assert transaction.sending_channel("d") is None
        assert transaction.receiving_channel("e") is None
        assert transaction.terms(Terms(retries=9).terms_id) is None
        # Numbers of the undone transition are given again: there is no gap.
        assert add(transaction, sent("c")).position == 2
        transaction.journal([row("submitted", "c")])
    store.commit()
    with store.reader() as reader:
        assert [(r.seq, r.message_id) for r in reader.journal_since(0, 10)] == [(1, "a"), (2, "c")]
        assert reader.incidents(open_only=False) == []
        assert reader.channels() == ([SendingChannel("c", epoch=1, phase=Phase.RUNNING)], [])
        assert reader.journal_of("b") == []


def test_a_name_of_an_undone_transition_can_be_used_again(store: Store) -> None:
    for _ in range(2):
        with undone(store) as transaction:
            transaction.journal([row("submitted", "a")])
    with store.transition() as transaction:
        transaction.journal([row("submitted", "a")])
    store.commit()
    with store.reader() as reader:
        assert [r.seq for r in reader.journal_of("a")] == [1]


def test_several_changes_of_one_row_are_undone_together(store: Store) -> None:
    with store.transition() as transaction:
        first = add(transaction, sent("a"))
    with undone(store) as transaction:
        for attempts in range(3):
            transaction.save_outgoing(
                sent("a", state=OUTSTANDING, attempts=attempts, next_attempt_at=attempts).outgoing
            )
        assert transaction.due(10, 10) == ["a"]
    with store.transition() as transaction:
        assert transaction.outgoing("a") == first
        assert transaction.due(10, 10) == []


def test_transitions_do_not_nest(store: Store) -> None:
    with store.transition() as transaction:
        add(transaction, sent("a"))
        with pytest.raises(NotAllowed), store.transition():
            pass
        with pytest.raises(NotAllowed):
            store.commit()
    store.commit()
    assert everything(store)["counts"]["out.waiting"] == 1


def test_pending_tells_whether_there_is_something_to_commit(store: Store) -> None:
    assert not store.pending()
    with store.transition() as transaction:
        transaction.due(0, 1)
    assert not store.pending()
    with undone(store) as transaction:
        add(transaction, sent("a"))
    assert not store.pending()
    with store.transition() as transaction:
        transaction.save_sending_channel(SendingChannel("c"))
    assert store.pending()
    store.commit()
    assert not store.pending()
    with store.transition() as transaction:
        transaction.save_receiving_channel(ReceivingChannel("c"))
    assert store.pending()
    store.commit()
    # With nothing to do a commit does nothing.
    store.commit()
    assert not store.pending()


def test_nothing_is_kept_of_a_transition_that_only_reads_before_one_that_fails(
    store: Store,
) -> None:
    with store.transition() as transaction:
        add(transaction, sent("a"))
    with store.transition() as transaction:
        assert transaction.outgoing("a") is not None
    with pytest.raises(UnknownMessage), store.transition() as transaction:
        transaction.save_outgoing(sent("zzz").outgoing)
    assert store.pending()
    store.commit()
    assert everything(store)["counts"]["out.waiting"] == 1


def test_an_agreement_is_kept_once_and_with_what_was_accepted_under_it(backend: Backend) -> None:
    store = backend.store
    under = replace(received("i"), agreement_id="a1")
    missing = "agreement a1 is not kept"
    with pytest.raises(NotAllowed, match=missing), store.transition() as transaction:
        transaction.add_incoming(under)
    with pytest.raises(NotAllowed, match=missing), store.transition() as transaction:
        add(transaction, replace(sent("o"), agreement_id="a1"))
    with undone(store) as transaction:
        assert transaction.remember_agreement("a1", "one")
        add(transaction, replace(sent("o"), agreement_id="a1"))
    with store.transition() as transaction:
        assert transaction.agreement("a1") is None
        assert transaction.remember_agreement("a1", "the text")
        assert not transaction.remember_agreement("a1", "the text")
        transaction.add_incoming(under)
        add(transaction, replace(sent("o"), agreement_id="a1"))
    store.commit()
    store = backend.crash()
    with store.transition() as transaction:
        assert transaction.agreement("a1") == "the text"
        assert transaction.agreement("a2") is None
        assert not transaction.remember_agreement("a1", "the text")
        for kept in (transaction.outgoing("o"), transaction.incoming("buyer", "i")):
            assert kept is not None
            assert kept.agreement_id == "a1"
    with store.reader() as reader:
        assert reader.agreement("a1") == "the text"
        assert reader.agreement("a2") is None


@pytest.mark.requirement("STO-1", "STO-3")
def test_a_crash_loses_nothing_that_was_committed_and_all_that_was_not(backend: Backend) -> None:
    store = backend.store
    held = ReceivingChannel("r", held=(Held(3, "x"), Held(4, "y", refused=True)))
    with store.transition() as transaction:
        add(transaction, sent("a", state=OUTSTANDING, next_attempt_at=5))
        transaction.save_sending_channel(SendingChannel("c", settled=frozenset({3, 5})))
        transaction.save_receiving_channel(held)
        transaction.add_incoming(received("i"))
        transaction.journal([row("submitted", "a"), row("received", "i")])
        transaction.open_incident(1, "trouble", "a", "c")
    store.commit()
    before = everything(store)
    with store.transition() as transaction:
        add(transaction, sent("b"))
        transaction.add_incoming(received("j"))
        transaction.journal([row("submitted", "b")])
        transaction.save_sending_channel(SendingChannel("c", epoch=7, phase=Phase.RUNNING))
        transaction.resolve_incidents(2, "a", None)
    store = backend.crash()
    assert everything(store) == before
    assert not store.pending()
    with store.transition() as transaction:
        assert transaction.due(5, 10) == ["a"]
        assert transaction.terms(TERMS.terms_id) == TERMS
        assert transaction.receiving_channel("r") == held
        assert transaction.sending_channel("c") == SendingChannel("c", settled=frozenset({3, 5}))
        # Numbers go on where the committed ones ended.
        assert add(transaction, sent("b")).position == 2
        transaction.journal([row("submitted", "b")])
    store.commit()
    assert everything(store)["last"] == 3


def test_a_crash_inside_a_transition_loses_it(backend: Backend) -> None:
    store = backend.store
    before = everything(store)
    with undone(store) as transaction:
        add(transaction, sent("a"))
        transaction.journal([row("submitted", "a")])
        store = backend.crash()
    assert everything(store) == before
    with store.transition() as transaction:
        add(transaction, sent("a"))
    store.commit()
    assert everything(store)["counts"]["out.waiting"] == 1


@pytest.mark.requirement("STO-3")
def test_closing_undoes_what_is_not_committed(backend: Backend) -> None:
    store = backend.store
    with store.transition() as transaction:
        add(transaction, sent("a"))
    store.commit()
    with store.transition() as transaction:
        add(transaction, sent("b"))
    store = backend.reopen()
    assert [stored.outgoing.message_id for stored in everything(store)["outgoing"]] == ["a"]


@pytest.mark.requirement("STO-1")
def test_a_failed_commit_undoes_every_transition_in_it(backend: Backend) -> None:
    store = backend.store
    with store.transition() as transaction:
        add(transaction, sent("kept"))
        transaction.journal([row("submitted", "kept")])
    store.commit()
    before = everything(store)
    for name in ("a", "b"):
        with store.transition() as transaction:
            add(transaction, sent(name, state=OUTSTANDING, next_attempt_at=1))
            transaction.save_sending_channel(SendingChannel(name))
            transaction.remember_terms(Terms(retries=9))
            transaction.journal([row("submitted", name)])
    backend.break_commit()
    with pytest.raises(StoreGone):
        store.commit()
    assert not store.pending()
    assert everything(store) == before
    assert store.next_wake() is None
    # The store goes on, and its numbers have no gap.
    with store.transition() as transaction:
        assert transaction.outgoing("a") is None
        assert transaction.sending_channel("a") is None
        assert transaction.terms(Terms(retries=9).terms_id) is None
        assert add(transaction, sent("a")).position == 2
        transaction.journal([row("submitted", "a")])
    store.commit()
    assert everything(store)["last"] == 2
    assert [r.seq for r in everything(backend.crash())["journal"]] == [1, 2]


def test_attempts_under_way_wake_nobody(store: Store) -> None:
    with store.transition() as transaction:
        for number, name in enumerate("abc"):
            add(transaction, sent(name, state=OUTSTANDING, next_attempt_at=number))
    for _ in range(2):
        assert store.next_wake() == 0
        assert store.next_wake({"a"}) == 1
        assert store.next_wake({"b"}) == 0
        assert store.next_wake({"a", "b"}) == 2
        assert store.next_wake({"a", "b", "c"}) is None
        store.commit()


def test_a_failure_inside_a_transition_fails_what_was_kept_before_it(backend: Backend) -> None:
    store = backend.store
    before = everything(store)
    with store.transition() as transaction:
        add(transaction, sent("a"))
    backend.break_transition()
    with pytest.raises(StoreGone), store.transition() as transaction:
        transaction.open_incident(1, "trouble", None, None)
    assert store.pending()
    # Nobody may build on what is lost before its callers were told.
    with pytest.raises(StoreGone), store.transition() as transaction:
        pass
    with pytest.raises(StoreGone):
        store.commit()
    assert not store.pending()
    assert everything(store) == before
    with store.transition() as transaction:
        add(transaction, sent("a"))
    store.commit()
    assert everything(store)["counts"]["out.waiting"] == 1


def test_a_failure_inside_the_first_transition_concerns_nobody_else(backend: Backend) -> None:
    store = backend.store
    backend.break_transition()
    with pytest.raises(StoreGone), store.transition() as transaction:
        transaction.open_incident(1, "trouble", None, None)
    assert not store.pending()
    store.commit()
    with store.transition() as transaction:
        add(transaction, sent("a"))
    store.commit()
    assert everything(store)["counts"]["out.waiting"] == 1


def test_terms_are_kept_once(store: Store) -> None:
    terms = Terms(retries=7, transports=("http", "smtp"))
    with store.transition() as transaction:
        assert transaction.terms(terms.terms_id) is None
        assert transaction.remember_terms(terms)
        assert not transaction.remember_terms(terms)
        assert transaction.terms(terms.terms_id) == terms
    store.commit()
    with store.transition() as transaction:
        assert not transaction.remember_terms(terms)


def test_terms_survive(backend: Backend) -> None:
    terms = Terms(retries=7, transports=("http", "smtp"))
    with backend.store.transition() as transaction:
        transaction.remember_terms(terms)
    backend.store.commit()
    with backend.crash().transition() as transaction:
        assert transaction.terms(terms.terms_id) == terms


@pytest.mark.parametrize("step", ["add outgoing", "add incoming", "save incoming", "save outgoing"])
def test_a_message_needs_terms_that_are_kept(store: Store, step: str) -> None:
    with store.transition() as transaction:
        add(transaction, sent("a"))
        transaction.add_incoming(received("i"))
    steps: dict[str, Callable[[Transaction], object]] = {
        "add outgoing": lambda tx: add(tx, sent("b", terms_id="0000")),
        "save outgoing": lambda tx: tx.save_outgoing(sent("a", terms_id="0000").outgoing),
        "add incoming": lambda tx: tx.add_incoming(received("j", terms_id="0000")),
        "save incoming": lambda tx: tx.save_incoming(received("i", terms_id="0000").incoming),
    }
    with pytest.raises(NotAllowed, match="0000"), store.transition() as transaction:
        steps[step](transaction)
    store.commit()
    counts = everything(store)["counts"]
    assert (counts["out.waiting"], counts["in.ready"]) == (1, 1)
