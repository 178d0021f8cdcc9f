"""TransactionManager: what one costs, and what a commit that fails leaves in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest

from oncewire.errors import StoreDamaged, StoreGone
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Store
from oncewire.store.sqlite.store import SqliteStore
from oncewire.store.transition import work
from oncewire.store.transition.turns import TransactionManager
from tests.store.backends import Backend
from tests.store.samples import (
    CONFIRMED,
    DELIVERED,
    HANDED_OVER,
    OUTSTANDING,
    add,
    answer,
    everything,
    prepare,
    received,
    row,
    sent,
    undone,
)

MANY = 64


@pytest.fixture
def sqlite(tmp_path: Path) -> Any:
    store = SqliteStore(tmp_path / "store.db", node="node")
    prepare(store)
    yield store
    store.close()


def _live(store: Store, step: int, names: list[str]) -> None:
    """One turn in the life of some messages, each in a transition of its own."""
    store.next_wake()
    for name in names:
        with store.transition() as tx:
            if step == 0:
                add(tx, sent(name, state=OUTSTANDING, channel="c", next_attempt_at=5))
                tx.add_incoming(received(name))
                tx.save_sending_channel(SendingChannel("c", used=len(name)))
            elif step == 1:
                assert tx.outgoing(name) is not None
                tx.save_outgoing(
                    sent(name, state=OUTSTANDING, channel="c", first_sent_at=5).outgoing
                )
                assert name in {one.incoming.message_id for one in tx.ready(9, 100)}
                tx.save_incoming(received(name, state=HANDED_OVER, lease_until=9).incoming)
            else:
                tx.save_outgoing(sent(name, state=DELIVERED, channel="c", first_sent_at=5).outgoing)
                tx.save_incoming(received(name, state=CONFIRMED).incoming)
            tx.journal([row("submitted", name), row("received", name)])


def test_a_turn_costs_a_handful_of_statements_however_many_are_in_it(sqlite: SqliteStore) -> None:
    names = [f"m{number}" for number in range(MANY)]
    costs = []
    for step in range(3):
        before = sqlite._session.count
        _live(sqlite, step, names)
        sqlite.commit()
        costs.append(sqlite._session.count - before)
    # The first turn also looks what is live, and the first commit for the last number.
    # Each new MessageId is looked for once.
    assert costs[0] < 24 + MANY, costs
    assert max(costs[1:]) < 14, costs
    counts = everything(sqlite)["counts"]
    assert (counts["out.delivered"], counts["in.confirmed"]) == (MANY, MANY)


def test_a_turn_is_one_transaction(sqlite: SqliteStore) -> None:
    ran: list[str] = []

    def note(_cursor: Any, statement: str, _bindings: Any) -> bool:
        ran.append(statement)
        return True

    sqlite._session.cursor.exec_trace = note
    _live(sqlite, 0, [f"m{number}" for number in range(MANY)])
    assert not [statement for statement in ran if not statement.startswith(("SELECT", "PRAGMA"))]
    sqlite.commit()
    assert (ran.count("BEGIN IMMEDIATE"), ran.count("COMMIT")) == (1, 1)
    assert not [statement for statement in ran if "SAVEPOINT" in statement]


def test_a_turn_that_only_looks_writes_nothing(sqlite: SqliteStore) -> None:
    _live(sqlite, 0, ["a"])
    sqlite.commit()
    sqlite.next_wake()
    before = sqlite._session.count
    for _ in range(10):
        sqlite.next_wake()
        with sqlite.transition() as tx:
            assert tx.due(9, 10) == ["a"]
            assert [one.incoming.message_id for one in tx.ready(9, 10)] == ["a"]
            assert tx.outgoing("a") is not None
        sqlite.commit()
    # Only whether somebody else wrote is asked.
    assert sqlite._session.count - before == 20


@pytest.mark.requirement("STO-1", "STO-3")
@pytest.mark.parametrize("every", [1, 2, 3, 5])
def test_every_nth_commit_fails_and_nothing_of_it_stays_in_memory(
    backend: Backend, every: int
) -> None:
    commits = refusals = 0
    for group in range(4):
        names = [f"{group}{place}" for place in "abc"]
        for step in range(3):
            for again in range(2):
                commits += 1
                before = everything(backend.store)
                _live(backend.store, step, names)
                if again or commits % every:
                    backend.store.commit()
                    break
                backend.break_commit()
                with pytest.raises(StoreGone):
                    backend.store.commit()
                refusals += 1
                assert everything(backend.store) == before
                _same_without_memory(backend.store, names)
        _same_without_memory(backend.store, names)
    assert refusals >= 12 // (every + 1)
    after = everything(backend.store)
    assert after["counts"]["out.delivered"] == after["counts"]["in.confirmed"] == 12
    assert [one.seq for one in after["journal"]] == list(range(1, 73))
    assert everything(backend.crash()) == after


def _same_without_memory(store: Store, names: list[str]) -> None:
    """Whoever holds nothing in memory reads the same."""
    assert isinstance(store, TransactionManager)
    seen = []
    for _ in range(2):
        with store.transition() as tx:
            seen.append(
                [
                    *[(tx.outgoing(name), tx.outgoing_parcel(name)) for name in names],
                    *[(tx.draft(name), tx.incoming("buyer", name)) for name in names],
                    tx.due(99, 99),
                    tx.ready(99, 99),
                    tx.live("c"),
                    tx.sending_channel("c"),
                ]
            )
        wake = store.next_wake()
        assert store._work is not None
        store._work.clear()
        assert store.next_wake() == wake
    assert seen[0] == seen[1]


def test_what_is_undone_is_what_it_was_before(backend: Backend) -> None:
    terms = Terms(retries=7)
    with backend.store.transition() as tx:
        tx.add_incoming(received("a", answer=answer("1", body=b"first")))
        tx.remember_terms(terms)
    backend.store.commit()
    store = backend.reopen()
    with undone(store) as tx:
        # Neither was read before it was changed.
        tx.save_answer("buyer", "a", answer("2", body=b"second"))
        tx.hold("a", True)
    with store.transition() as tx:
        assert tx.answer("buyer", "a") == answer("1", body=b"first")
        stored = tx.incoming("buyer", "a")
        assert stored is not None
        assert stored.answer == answer("1", body=b"first")
        assert tx.terms(terms.terms_id) == terms


def test_what_does_not_fit_is_read_back(
    sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "LIVE_MAX", 5)
    names = [f"m{number}" for number in range(8)]
    for number, name in enumerate(names):
        sqlite.next_wake()
        with sqlite.transition() as tx:
            add(tx, sent(name, state=OUTSTANDING, channel="c", next_attempt_at=5 + number))
        sqlite.commit()
    assert sqlite.next_wake() == 5
    with sqlite.transition() as tx:
        assert tx.due(99, 100) == names
        assert tx.due(99, 3) == names[:3]
        assert [one.outgoing.message_id for one in tx.live("c")] == names
    for name in names:
        with sqlite.transition() as tx:
            tx.add_incoming(received(name))
        sqlite.commit()
    with sqlite.transition() as tx:
        assert [one.incoming.message_id for one in tx.ready(9, 100)] == names


def test_damaged_terms_stay_damaged_where_their_mending_is_undone(
    sqlite: SqliteStore, tmp_path: Path
) -> None:
    terms = Terms(retries=7)
    with sqlite.transition() as tx:
        tx.remember_terms(terms)
    sqlite.commit()
    other = apsw.Connection(str(tmp_path / "store.db"))
    other.execute("UPDATE terms SET content = '{}' WHERE terms_id = ?", (terms.terms_id,))
    other.close()
    with undone(sqlite) as tx:
        assert not tx.remember_terms(terms)
        assert tx.terms(terms.terms_id) == terms
    with pytest.raises(StoreDamaged), sqlite.transition() as tx:
        tx.terms(terms.terms_id)


def test_a_sweep_is_undone_alone(store: Store) -> None:
    with store.transition() as tx:
        add(tx, sent("old", state=DELIVERED))
    store.commit()
    with store.transition() as tx:
        add(tx, sent("kept"))
    with undone(store) as tx:
        add(tx, sent("undone"))
        assert tx.sweep(10**18, 10) == 1
        add(tx, sent("undone too"))
    with store.transition() as tx:
        add(tx, sent("kept too"))
    store.commit()
    names = {one.outgoing.message_id: one.position for one in everything(store)["outgoing"]}
    assert names == {"old": 1, "kept": 2, "kept too": 3}


def test_whoever_else_writes_is_noticed(sqlite: SqliteStore, tmp_path: Path) -> None:
    _live(sqlite, 0, ["a"])
    sqlite.commit()
    sqlite.next_wake()
    other = apsw.Connection(str(tmp_path / "store.db"))
    other.execute("UPDATE outgoing SET due_at = 77, next_attempt_at = 77, reason = 'by hand'")
    other.close()
    assert sqlite.next_wake() == 77
    with sqlite.transition() as tx:
        stored = tx.outgoing("a")
        assert stored is not None
        assert stored.outgoing.reason == "by hand"
        assert tx.due(76, 10) == []
    # Nothing was committed here since.
    other = apsw.Connection(str(tmp_path / "store.db"))
    other.execute("UPDATE incoming_bytes SET view = x'01'")
    other.close()
    with sqlite.transition() as tx:
        arrived = tx.incoming("buyer", "a")
        assert arrived is not None
        assert arrived.view == b"\x01"
