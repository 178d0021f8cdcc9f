"""Memory and SQLite run the same random steps; everything readable is equal at all times."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from oncewire.errors import OncewireError, StoreGone
from oncewire.message.envelope import SequenceStatus
from oncewire.message.instant import DAY
from oncewire.protocol.receiving import Held, ReceivingChannel
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import OutgoingState, Phase, Proof
from oncewire.protocol.terms import Terms
from oncewire.store.contract import Store, Transaction
from oncewire.store.records import SpoolSlice, StoredParcel, StoredReceipt
from oncewire.store.transition.rows import STORED_INCOMING
from oncewire.store.transition.turns import TransactionManager
from tests.examples import examples
from tests.store.backends import Backend, MemoryBackend, SqliteBackend
from tests.store.samples import (
    ORDERED_ID,
    TERMS_ID,
    Trouble,
    answer,
    everything,
    parcel,
    prepare,
    received,
    row,
    sent,
)

T = TypeVar("T")

IDS = st.sampled_from([f"m{number}" for number in range(7)])
CHANNELS = st.sampled_from(["c", "d"])
PEERS = st.sampled_from(["buyer", "seller"])
INSTANTS = st.integers(0, 30)
MAYBE = st.none() | INSTANTS
FAR = st.sampled_from([0, 15, DAY, DAY + 15, 3 * DAY])
LIMITS = st.integers(0, 5)
TERMS = st.sampled_from([TERMS_ID, ORDERED_ID, "unknown"])
NUMBERS = st.none() | st.integers(0, 3)

outgoing_values = st.fixed_dictionaries(
    {
        "terms_id": TERMS,
        "submitted_at": INSTANTS,
        "channel": st.none() | CHANNELS,
        "state": st.sampled_from(OutgoingState),
        "epoch": NUMBERS,
        "number": NUMBERS,
        "status": st.sampled_from([None, *SequenceStatus]),
        "attempts": st.integers(0, 3),
        "first_sent_at": MAYBE,
        "next_attempt_at": MAYBE,
        "expires_at": MAYBE,
        "notice_owed": st.booleans(),
        "late": st.booleans(),
        "failures": st.integers(0, 2),
        "proved_by": st.sampled_from([None, *Proof]),
        "taken_back": st.booleans(),
        "reason": st.sampled_from(["", "why"]),
    }
)
incoming_values = st.fixed_dictionaries(
    {
        "terms_id": TERMS,
        "received_at": INSTANTS,
        "state": st.sampled_from(STORED_INCOMING),
        "lease_until": MAYBE,
        "hand_overs": st.integers(0, 2),
        "channel": st.none() | CHANNELS,
        "number": NUMBERS,
    }
)
answers = st.builds(
    answer, st.sampled_from(["x", "y"]), owed=st.booleans(), body=st.binary(max_size=3)
)
parcels = st.builds(
    StoredParcel,
    st.just("text/xml"),
    st.sampled_from([(), (("A", "1"), ("B", "ü"))]),
    st.lists(st.binary(max_size=3) | st.just(SpoolSlice("a" * 64, 1, 2)), max_size=3).map(tuple),
)
receipts = st.builds(StoredReceipt, st.sampled_from(["x", "y"]), INSTANTS, parcels)
begun = st.builds(
    SendingChannel,
    CHANNELS,
    epoch=st.integers(1, 2),
    phase=st.sampled_from([phase for phase in Phase if phase is not Phase.UNBEGUN]),
    next_number=st.integers(0, 4),
    first_unsettled=st.integers(0, 3),
    settled=st.frozensets(st.integers(0, 5), max_size=3),
    suspended=st.booleans(),
    suspended_by=st.none() | IDS,
    paused_until=st.sampled_from([0, 0, 5, 20]),
)
sending = begun | st.builds(SendingChannel, CHANNELS, paused_until=st.sampled_from([0, 5]))
receiving = st.builds(
    ReceivingChannel,
    CHANNELS,
    furthest=NUMBERS,
    held=st.lists(st.builds(Held, st.integers(0, 4), IDS, refused=st.booleans()), max_size=3).map(
        tuple
    ),
)
Step = Callable[[Transaction], Any]


def _steps() -> st.SearchStrategy[Step]:
    """One call of a transaction, as a function that either store can be given to."""

    def call(name: str, *arguments: st.SearchStrategy[Any], **named: st.SearchStrategy[Any]) -> Any:
        return st.builds(
            lambda given, words: lambda tx: getattr(tx, name)(*given, **words),
            st.tuples(*arguments),
            st.fixed_dictionaries(named),
        )

    stored_out = st.builds(
        lambda name, peer, ref, values: sent(name, peer=peer, ref_to=ref, **values),
        IDS,
        PEERS,
        st.none() | IDS,
        outgoing_values,
    )
    stored_in = st.builds(
        lambda name, sender, reply, body, values: received(
            name, sender=sender, answer=reply, body=body, **values
        ),
        IDS,
        PEERS,
        st.none() | answers,
        parcels,
        incoming_values,
    )
    out_state = stored_out.map(lambda stored: stored.outgoing)
    rows = st.builds(row, st.sampled_from(["sent", "received"]), st.none() | IDS, at=INSTANTS)
    return st.one_of(
        call("add_outgoing", stored_out, parcel=parcels, draft=st.none()),
        call("add_outgoing", stored_out, parcel=st.none(), draft=st.binary(max_size=3)),
        call("save_outgoing", out_state),
        call("save_outgoing", out_state, parcel=parcels),
        call("keep_receipt", IDS, receipts),
        call("add_incoming", stored_in),
        call("save_incoming", stored_in.map(lambda stored: stored.incoming)),
        call("save_answer", PEERS, IDS, answers),
        call("save_sending_channel", sending),
        call("save_receiving_channel", receiving),
        call("remember_terms", st.builds(Terms, retries=st.integers(0, 4))),
        call("journal", st.lists(rows, max_size=3)),
        call("open_incident", INSTANTS, st.just("why"), st.none() | IDS, st.none() | CHANNELS),
        call("resolve_incidents", INSTANTS, st.none() | IDS, st.none() | CHANNELS),
        call("shift_timers", st.sampled_from([-7, -1, 3, 12])),
        call("has_incident", st.none() | IDS, st.none() | CHANNELS),
        call("sweep", FAR, LIMITS),
        call("hold", IDS, st.booleans()),
        call("trim_journal", INSTANTS, st.integers(0, 40)),
    )


def _outcome(action: Callable[[], T]) -> T | type[BaseException]:
    try:
        return action()
    except OncewireError as error:
        return type(error)


def _seen(tx: Transaction) -> list[Any]:
    """Everything a transition can read."""
    seen: list[Any] = []
    for number in range(7):
        name = f"m{number}"
        seen += [tx.outgoing(name), tx.outgoing_parcel(name), tx.draft(name)]
        seen += [tx.incoming("buyer", name), tx.incoming("seller", name), tx.incoming_by_id(name)]
        seen += [tx.responses_to(name, "buyer"), tx.responses_to(name, "seller")]
    for channel in ("c", "d"):
        seen += [tx.waiting(channel, 3), tx.waiting(channel, 100), tx.live(channel)]
        seen += [tx.sending_channel(channel), tx.receiving_channel(channel)]
    for now in (0, 5, 20, DAY, DAY + 15, 2 * DAY):
        seen += [tx.due(now, 3), tx.due(now, 100), tx.expired(now, 100), tx.ready(now, 100)]
        seen += [tx.ready(now, 2)]
        seen += [tx.answers_overdue(now, 100), tx.answers_overdue(now, 1)]
    seen += [tx.notices_owed(2, 1), tx.notices_owed(100), tx.answers_owed(100), tx.held(100)]
    seen += [tx.removed(f"m{number}") for number in range(7)]
    seen += [tx.terms(Terms(retries=number).terms_id) for number in range(5)]
    return seen


class SideBySide(RuleBasedStateMachine):
    """Both stores, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="side-by-side-"))
        self.backends: list[Backend] = [MemoryBackend(), SqliteBackend(self.folder)]

    @property
    def stores(self) -> list[Store]:
        return [backend.store for backend in self.backends]

    def same(self, outcomes: list[Any]) -> None:
        assert outcomes[0] == outcomes[1]

    @initialize()
    def begin(self) -> None:
        for store in self.stores:
            prepare(store)

    @rule(steps=st.lists(_steps(), min_size=1, max_size=6))
    def transition(self, steps: list[Step]) -> None:
        def run(store: Store) -> list[Any]:
            with store.transition() as tx:
                return [step(tx) for step in steps]

        self.same([_outcome(lambda store=store: run(store)) for store in self.stores])  # type: ignore[misc]

    @rule(steps=st.lists(_steps(), min_size=1, max_size=4))
    def undone(self, steps: list[Step]) -> None:
        for store in self.stores:
            with suppress(Trouble, OncewireError), store.transition() as tx:
                for step in steps:
                    step(tx)
                raise Trouble

    @rule()
    def commit(self) -> None:
        for store in self.stores:
            store.commit()

    @rule()
    def refused(self) -> None:
        for backend in self.backends:
            # Values that were saved as they are need no commit.
            with backend.store.transition() as tx:
                tx.open_incident(0, "a change", None, "a channel of its own")
            backend.break_commit()
            assert _outcome(backend.store.commit) is StoreGone

    @rule()
    def crash(self) -> None:
        for backend in self.backends:
            backend.crash()

    @rule()
    def restart(self) -> None:
        for backend in self.backends:
            backend.reopen()

    @rule()
    def look(self) -> None:
        seen = []
        for store in self.stores:
            with store.transition() as tx:
                seen.append(_seen(tx))
        self.same(seen)

    @rule()
    def look_twice(self) -> None:
        """What is held in memory is what anybody would read who holds nothing."""
        for store in self.stores:
            store.commit()
            store.next_wake()
            seen = []
            for _ in range(2):
                with store.transition() as tx:
                    seen.append(_seen(tx))
                assert isinstance(store, TransactionManager)
                assert store._work is not None
                store._work.clear()
            assert seen[0] == seen[1]

    @rule(
        states=st.lists(st.sampled_from(OutgoingState), max_size=3),
        incoming=st.lists(st.sampled_from(STORED_INCOMING), max_size=3),
        limit=LIMITS,
        before=st.none() | st.integers(1, 10),
        seq=st.integers(0, 20),
    )
    def list_messages(self, **asked: Any) -> None:
        answers_ = []
        for store in self.stores:
            with store.reader() as reader:
                bounds = {"limit": asked["limit"], "before": asked["before"]}
                answers_.append(
                    [
                        reader.outgoing_list(states=asked["states"], **bounds),
                        reader.incoming_list(states=asked["incoming"], **bounds),
                        reader.journal_since(asked["seq"], asked["limit"]),
                        [reader.journal_of(f"m{number}") for number in range(7)],
                        reader.incidents(),
                    ]
                )
        self.same(answers_)

    @invariant()
    def equal(self) -> None:
        self.same([everything(store) for store in self.stores])
        self.same([store.next_wake() for store in self.stores])
        # Saving what is there already is a change to one and none to the other.
        memory, sqlite = (store.pending() for store in self.stores)
        assert memory or not sqlite

    def teardown(self) -> None:
        for backend in self.backends:
            backend.close()
        shutil.rmtree(self.folder)


SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]

TestSideBySide = SideBySide.TestCase
TestSideBySide.settings = settings(
    max_examples=examples(25), stateful_step_count=25, suppress_health_check=SLOW
)


@pytest.mark.soak
def test_side_by_side_for_long() -> None:
    run_state_machine_as_test(
        SideBySide,
        settings=settings(max_examples=2_000, stateful_step_count=50, suppress_health_check=SLOW),
    )


def test_a_sample_differs_where_it_should() -> None:
    # The comparison itself can fail: two stores with different content are not equal.
    one, other = MemoryBackend(), MemoryBackend()
    for backend in (one, other):
        prepare(backend.store)
    with one.store.transition() as tx:
        tx.add_outgoing(replace(sent("a"), hop=1), parcel=parcel(), draft=None)
    one.store.commit()
    assert everything(one.store) != everything(other.store)
