"""Sent messages: their bytes, their order and the queries that find what is to be done."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from oncewire.errors import InvalidValue, NotAllowed, UnknownMessage
from oncewire.message.envelope import MessageKind, SequenceStatus
from oncewire.message.instant import DAY
from oncewire.protocol.sending import SendingChannel
from oncewire.protocol.states import Outgoing, OutgoingState, Proof
from oncewire.store.contract import Store
from oncewire.store.records import MessageFacts, SpoolSlice, StoredOutgoing, StoredParcel
from tests.store.backends import Backend
from tests.store.samples import (
    DELIVERED,
    ORDERED_ID,
    OUTSTANDING,
    SUSPENDED,
    TERMS_ID,
    UNKNOWN,
    add,
    parcel,
    sent,
)

FULL = StoredOutgoing(
    Outgoing(
        "full@example",
        ORDERED_ID,
        submitted_at=1,
        channel="c",
        state=SUSPENDED,
        epoch=2,
        number=3,
        status=SequenceStatus.RESET,
        attempts=4,
        attempts_here=5,
        attempts_lost=6,
        transport=7,
        resumes=8,
        first_sent_at=9,
        last_sent_at=10,
        next_attempt_at=11,
        expires_at=12,
        reason="why – not",
        notice_owed=True,
        late=True,
        failures=13,
        proved_by=Proof.HOP,
        taken_back=True,
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
        MessageKind.ERROR,
        "e" * 64,
        99,
        "split",
        2,
        3,
    ),
    peer="hub",
    relayed_from="origin",
    hop=2,
)
"""No field has its default, so that none can be mixed up or forgotten."""


def _ids(found: list[StoredOutgoing]) -> list[str]:
    return [stored.outgoing.message_id for stored in found]


@pytest.mark.requirement("STO-1")
def test_every_value_comes_back(backend: Backend) -> None:
    body = StoredParcel(
        "multipart/related",
        (("A", "1"), ("A", "ü")),
        (b"head", SpoolSlice("a" * 64, 5, 100), b"", SpoolSlice("b" * 64, 0, 7), b"tail"),
    )
    with backend.store.transition() as transaction:
        stored = transaction.add_outgoing(FULL, parcel=body, draft=None)
        assert stored == replace(FULL, position=1)
        assert transaction.outgoing("full@example") == stored
        assert transaction.outgoing_parcel("full@example") == body
    backend.store.commit()
    with backend.crash().transition() as transaction:
        assert transaction.outgoing("full@example") == stored
        assert transaction.outgoing_parcel("full@example") == body
        assert transaction.draft("full@example") is None
    assert body.size == 4 + 100 + 7 + 4


@pytest.mark.parametrize(
    "body", [(), (b"",), (b"one",), (b"one", b"two"), (SpoolSlice("c" * 64, 0, 1),)]
)
def test_a_parcel_is_cut_as_it_was(store: Store, body: tuple[bytes | SpoolSlice, ...]) -> None:
    kept = StoredParcel("text/xml", (), body)
    with store.transition() as transaction:
        transaction.add_outgoing(sent("a"), parcel=kept, draft=None)
        assert transaction.outgoing_parcel("a") == kept


def test_positions_follow_submission(store: Store) -> None:
    positions = []
    for name in "cab":
        with store.transition() as transaction:
            positions.append(add(transaction, sent(name)).position)
        store.commit()
    assert positions == [1, 2, 3]


def test_a_message_id_is_used_once(store: Store) -> None:
    with store.transition() as transaction:
        add(transaction, sent("a"))
    with pytest.raises(NotAllowed, match="a was submitted before"), store.transition() as again:
        add(again, sent("a", submitted_at=7))
    with store.transition() as transaction:
        assert transaction.outgoing("a") == replace(sent("a"), position=1)


@pytest.mark.parametrize(("bytes_", "draft"), [(None, None), (parcel(), b"draft")])
def test_exactly_one_of_parcel_and_draft_is_given(
    store: Store, bytes_: StoredParcel | None, draft: bytes | None
) -> None:
    with pytest.raises(InvalidValue), store.transition() as transaction:
        transaction.add_outgoing(sent("a"), parcel=bytes_, draft=draft)
    assert not store.pending()


def test_a_parcel_takes_the_drafts_place(store: Store) -> None:
    with store.transition() as transaction:
        transaction.add_outgoing(sent("a"), parcel=None, draft=b"values")
        assert transaction.draft("a") == b"values"
        assert transaction.outgoing_parcel("a") is None
        transaction.save_outgoing(sent("a", attempts=1).outgoing)
        assert transaction.draft("a") == b"values"
        transaction.save_outgoing(sent("a", attempts=2).outgoing, parcel=parcel(b"built"))
        assert transaction.draft("a") is None
        assert transaction.outgoing_parcel("a") == parcel(b"built")
        # Later steps leave the bytes alone.
        transaction.save_outgoing(sent("a", attempts=3).outgoing)
        assert transaction.outgoing_parcel("a") == parcel(b"built")


def test_nothing_is_known_of_an_unknown_message(store: Store) -> None:
    with store.transition() as transaction:
        assert transaction.outgoing("a") is None
        assert transaction.outgoing_parcel("a") is None
        assert transaction.draft("a") is None
        # A name that only the journal or the other direction knows is still unknown here.
        assert transaction.responses_to("a", "seller") == []
    for name in ("a", "b"):
        with pytest.raises(UnknownMessage), store.transition() as transaction:
            transaction.save_outgoing(sent(name).outgoing)


def test_saving_replaces_the_state_and_nothing_else(store: Store) -> None:
    with store.transition() as transaction:
        before = transaction.add_outgoing(FULL, parcel=parcel(), draft=None)
        state = replace(
            FULL.outgoing, state=DELIVERED, status=None, notice_owed=False, late=False, reason=""
        )
        transaction.save_outgoing(state)
        assert transaction.outgoing("full@example") == replace(before, outgoing=state)


def test_saving_the_same_state_again_changes_nothing(store: Store) -> None:
    with store.transition() as transaction:
        before = add(transaction, sent("a"))
    store.commit()
    with store.transition() as transaction:
        transaction.save_outgoing(sent("a").outgoing)
        assert transaction.outgoing("a") == before


def test_a_state_saved_unseen_replaces_every_value(backend: Backend) -> None:
    # Whoever saves without reading first, or twice in a row, gets what was said last.
    with backend.store.transition() as transaction:
        transaction.add_outgoing(FULL, parcel=parcel(), draft=None)
    backend.store.commit()
    plain = Outgoing("full@example", TERMS_ID, 7)
    with backend.store.transition() as transaction:
        transaction.save_outgoing(replace(plain, attempts=9))
        transaction.save_outgoing(plain)
    backend.store.commit()
    with backend.crash().transition() as transaction:
        stored = transaction.outgoing("full@example")
        assert stored == replace(FULL, outgoing=plain, position=1)


def test_waiting_messages_come_in_order_of_submission(store: Store) -> None:
    with store.transition() as transaction:
        for name, channel in (("a", "c"), ("b", "d"), ("e", "c"), ("f", None), ("g", "c")):
            add(transaction, sent(name, channel=channel))
        add(transaction, sent("h", channel="c", state=OUTSTANDING))
        assert _ids(transaction.waiting("c", 10)) == ["a", "e", "g"]
        assert _ids(transaction.waiting("c", 2)) == ["a", "e"]
        assert transaction.waiting("c", 0) == []
        assert transaction.waiting("x", 10) == []


@pytest.mark.requirement("SEQ-5")
def test_live_messages_come_in_order_of_epoch_and_entry(store: Store) -> None:
    with store.transition() as transaction:
        for name in ("a", "b", "c", "d", "e"):
            add(transaction, sent(name, channel="c"))
    # Numbers wrap around, so they do not tell the order; nor does submission.
    steps = [("b", 1, 99_999_999), ("a", 1, 0), ("d", 2, 0), ("c", 1, 1)]
    for name, epoch, number in steps:
        with store.transition() as transaction:
            transaction.save_outgoing(
                sent(name, channel="c", state=OUTSTANDING, epoch=epoch, number=number).outgoing
            )
    with store.transition() as transaction:
        assert _ids(transaction.live("c")) == ["b", "a", "c", "d"]
        # Suspension and resumption do not change the place.
        transaction.save_outgoing(
            sent("b", channel="c", state=SUSPENDED, epoch=1, number=99_999_999).outgoing
        )
        assert _ids(transaction.live("c")) == ["b", "a", "c", "d"]
        transaction.save_outgoing(
            sent("b", channel="c", state=UNKNOWN, epoch=1, number=99_999_999).outgoing
        )
        assert _ids(transaction.live("c")) == ["a", "c", "d"]
        transaction.save_outgoing(
            sent("b", channel="c", state=OUTSTANDING, epoch=1, number=99_999_999).outgoing
        )
        assert _ids(transaction.live("c")) == ["b", "a", "c", "d"]
        assert transaction.live("x") == []
        add(transaction, sent("f", channel="c", state=OUTSTANDING))
        assert _ids(transaction.live("c")) == ["f", "b", "a", "c", "d"]


def test_due_messages_come_earliest_first(store: Store) -> None:
    with store.transition() as transaction:
        for name, at in (("a", 30), ("b", 10), ("c", 20), ("d", 10), ("e", 40), ("f", None)):
            add(transaction, sent(name, state=OUTSTANDING, next_attempt_at=at))
        add(transaction, sent("w", next_attempt_at=1))
        add(transaction, sent("x", state=SUSPENDED, next_attempt_at=1))
        add(transaction, sent("y", state=DELIVERED, next_attempt_at=1))
        assert transaction.due(30, 10) == ["b", "d", "c", "a"]
        assert transaction.due(29, 10) == ["b", "d", "c"]
        assert transaction.due(30, 2) == ["b", "d"]
        assert transaction.due(9, 10) == []
        assert transaction.due(30, 0) == []


@pytest.mark.requirement("RTY-8", "RTY-12")
def test_nothing_is_due_on_a_channel_that_stands(store: Store) -> None:
    channel = SendingChannel("c")
    with store.transition() as transaction:
        add(transaction, sent("a", channel="c", state=OUTSTANDING, next_attempt_at=10))
        add(transaction, sent("b", channel="d", state=OUTSTANDING, next_attempt_at=15))
        add(transaction, sent("e", channel="c", state=OUTSTANDING, next_attempt_at=30))
        # A channel nobody saved yet holds nothing back.
        assert transaction.due(20, 10) == ["a", "b"]
        transaction.save_sending_channel(channel.suspend("retries used up"))
        assert transaction.due(100, 10) == ["b"]
        assert store.next_wake() == 15
    with store.transition() as transaction:
        # A message that comes while it stands waits too.
        add(transaction, sent("g", channel="c", state=OUTSTANDING, next_attempt_at=1))
        assert transaction.due(100, 10) == ["b"]
        transaction.save_sending_channel(channel.resume())
        assert transaction.due(100, 10) == ["g", "a", "b", "e"]
    with store.transition() as transaction:
        transaction.save_sending_channel(channel.pause(25))
        assert transaction.due(24, 10) == ["b"]
        # From the end of the pause on they count, in order of submission.
        assert transaction.due(25, 10) == ["b", "a", "g"]
        assert transaction.due(30, 10) == ["b", "a", "g", "e"]
        transaction.save_sending_channel(channel.pause(50))
        assert transaction.due(49, 10) == ["b"]
        assert transaction.due(50, 10) == ["b", "a", "e", "g"]
        transaction.save_sending_channel(replace(channel.pause(50), epoch=4))
        assert transaction.due(50, 10) == ["b", "a", "e", "g"]


@pytest.mark.parametrize("by", [1_000, -7])
def test_timers_move_with_the_clock_and_deadlines_do_not(store: Store, by: int) -> None:
    with store.transition() as transaction:
        add(transaction, sent("a", state=OUTSTANDING, next_attempt_at=10, expires_at=90))
        add(transaction, sent("b", channel="c", state=OUTSTANDING, next_attempt_at=20))
        add(transaction, sent("d", channel="s", state=OUTSTANDING, next_attempt_at=20))
        add(transaction, sent("y", state=DELIVERED, next_attempt_at=1))
        transaction.save_sending_channel(SendingChannel("c").pause(30))
        transaction.save_sending_channel(SendingChannel("s").suspend("trouble"))
        transaction.save_sending_channel(SendingChannel("idle"))
    store.commit()
    with store.transition() as transaction:
        # Saved in the same turn and not written yet.
        transaction.save_sending_channel(SendingChannel("late").pause(40))
        transaction.shift_timers(by)
    store.commit()
    with store.transition() as transaction:
        found = {one: transaction.outgoing(one) for one in "abdy"}
        timers = {one: row.outgoing.next_attempt_at for one, row in found.items() if row}
        assert timers == {"a": 10 + by, "b": 20 + by, "d": 20 + by, "y": 1}
        assert transaction.due(29 + by, 10) == ["a"]
        assert transaction.due(30 + by, 10) == ["a", "b"]
        assert transaction.expired(89, 10) == []
        assert transaction.expired(90, 10) == ["a"]
        channels = {one: transaction.sending_channel(one) for one in ("c", "s", "idle", "late")}
        pauses = {one: channel.paused_until for one, channel in channels.items() if channel}
        assert pauses == {"c": 30 + by, "s": 0, "idle": 0, "late": 40 + by}
    assert store.next_wake() == min(10 + by, 90)


def test_what_is_saved_after_the_timers_moved_is_kept_as_it_is(backend: Backend) -> None:
    """A store may remember what it read before they moved, and write only what differs."""
    store = backend.store
    with store.transition() as transaction:
        add(transaction, sent("a", state=OUTSTANDING, next_attempt_at=10))
    store.commit()
    with store.transition() as transaction:
        known = transaction.outgoing("a")
        assert known is not None
        transaction.shift_timers(1_000)
        transaction.save_outgoing(known.outgoing)
    store.commit()
    with backend.crash().transition() as transaction:
        assert transaction.due(10, 10) == ["a"]
        assert transaction.outgoing("a") == known


def test_a_message_that_left_the_window_does_not_come_back_when_the_channel_does(
    store: Store,
) -> None:
    channel = SendingChannel("c")
    with store.transition() as transaction:
        add(transaction, sent("a", channel="c", state=OUTSTANDING, next_attempt_at=10))
        add(transaction, sent("b", channel="c", state=OUTSTANDING, next_attempt_at=10))
        add(transaction, sent("d", channel="c", state=SUSPENDED, next_attempt_at=10))
        transaction.save_sending_channel(channel.suspend("x"))
        transaction.save_outgoing(sent("a", channel="c", state=DELIVERED).outgoing)
        transaction.save_sending_channel(channel)
        assert transaction.due(100, 10) == ["b"]


@pytest.mark.requirement("RTY-17")
def test_expired_messages_are_found_by_their_deadline(store: Store) -> None:
    with store.transition() as transaction:
        add(transaction, sent("never"))
        add(transaction, sent("late", expires_at=200))
        add(transaction, sent("early", expires_at=100))
        add(transaction, sent("same", expires_at=100))
        add(transaction, sent("sent", state=OUTSTANDING, first_sent_at=50))
        add(transaction, sent("held", state=SUSPENDED, expires_at=150, first_sent_at=1))
        add(transaction, sent("done", state=DELIVERED, expires_at=1))
        assert transaction.expired(99, 10) == []
        assert transaction.expired(100, 10) == ["early", "same"]
        assert transaction.expired(200, 10) == ["early", "same", "held", "late"]
        assert transaction.expired(200, 1) == ["early"]
        # persistDuration counts from the first sending.
        assert transaction.expired(50 + DAY - 1, 10)[-1] == "late"
        assert transaction.expired(50 + DAY, 10)[-1] == "sent"
        transaction.save_outgoing(sent("early", state=UNKNOWN, expires_at=100).outgoing)
        assert transaction.expired(100, 10) == ["same"]
        # A resumed message has its deadline again.
        transaction.save_outgoing(sent("early", state=OUTSTANDING, expires_at=100).outgoing)
        assert transaction.expired(100, 10) == ["early", "same"]


def test_notices_are_owed_until_they_are_given(store: Store) -> None:
    with store.transition() as transaction:
        for name in "abc":
            add(transaction, sent(name, state=UNKNOWN, notice_owed=name != "b"))
        assert _ids(transaction.notices_owed(10)) == ["a", "c"]
        assert _ids(transaction.notices_owed(1)) == ["a"]
        (first,) = transaction.notices_owed(1)
        assert _ids(transaction.notices_owed(10, first.position)) == ["c"]
        assert _ids(transaction.notices_owed(10, first.position + 10)) == []
    store.commit()
    with store.reader() as reader:
        assert _ids(reader.notices_owed(10)) == ["a", "c"]
        assert _ids(reader.notices_owed(10, first.position)) == ["c"]
    with store.transition() as transaction:
        transaction.save_outgoing(sent("a", state=UNKNOWN).outgoing)
        assert _ids(transaction.notices_owed(10)) == ["c"]


@pytest.mark.requirement("STO-9", "DUP-6")
def test_responses_are_found_by_what_they_answer(store: Store) -> None:
    with store.transition() as transaction:
        add(transaction, sent("unsent-2", ref_to="q"))
        add(transaction, sent("second", ref_to="q", first_sent_at=20, state=OUTSTANDING))
        add(transaction, sent("elsewhere", ref_to="q", peer="hub", first_sent_at=1))
        add(transaction, sent("first", ref_to="q", first_sent_at=10, state=DELIVERED))
        add(transaction, sent("other", ref_to="p", first_sent_at=10))
        add(transaction, sent("unsent-1", ref_to="q"))
        add(transaction, sent("plain"))
        # Clocks lie: the order in which they were sent is the store's own (C15).
        expected = ["second", "first", "unsent-2", "unsent-1"]
        assert _ids(transaction.responses_to("q", "seller")) == expected
        assert _ids(transaction.responses_to("q", "hub")) == ["elsewhere"]
        assert transaction.responses_to("x", "seller") == []
        transaction.save_outgoing(sent("unsent-1", state=OUTSTANDING, first_sent_at=15).outgoing)
        expected = ["second", "first", "unsent-1", "unsent-2"]
        assert _ids(transaction.responses_to("q", "seller")) == expected


@pytest.mark.requirement("STO-3")
def test_the_next_wake_is_the_earliest_timer(store: Store) -> None:
    assert store.next_wake() is None
    with store.transition() as transaction:
        add(transaction, sent("a"))
        add(transaction, sent("done", state=DELIVERED, next_attempt_at=1, expires_at=1))
    assert store.next_wake() is None
    with store.transition() as transaction:
        add(transaction, sent("b", expires_at=500))
    assert store.next_wake() == 500
    with store.transition() as transaction:
        add(transaction, sent("c", state=OUTSTANDING, next_attempt_at=300))
    assert store.next_wake() == 300
    store.commit()
    assert store.next_wake() == 300
    with store.transition() as transaction:
        transaction.save_outgoing(sent("c", state=OUTSTANDING, next_attempt_at=700).outgoing)
    assert store.next_wake() == 500


@pytest.mark.parametrize("state", list(OutgoingState))
def test_every_state_can_be_stored(store: Store, state: OutgoingState) -> None:
    with store.transition() as transaction:
        stored = add(transaction, sent("a", state=state, terms_id=TERMS_ID))
        assert transaction.outgoing("a") == stored
    store.commit()
    with store.reader() as reader:
        assert reader.counts()[f"out.{state.value}"] == 1
