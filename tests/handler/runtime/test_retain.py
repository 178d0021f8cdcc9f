"""Retention from the running handler: what goes, what stays, and what a late copy meets."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml
from oncewire.entry.messages.stored import parts_of
from oncewire.errors import NotAllowed, StoreFull, StoreProblem, UnknownMessage
from oncewire.handler.actions import PostAnswer, Source, Submission
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.runtime import retention
from oncewire.handler.runtime.engine import Engine
from oncewire.handler.sending import seal
from oncewire.journal.history import ladder
from oncewire.message.envelope import (
    Header,
    Message,
    MessageKind,
    MessageStatus,
    Payload,
    StatusRequest,
)
from oncewire.message.form import Dialect
from oncewire.message.ids import Party, Service
from oncewire.message.instant import DAY, HOUR, MINUTE, SECOND, Duration
from oncewire.protocol.notes import HoldLifted, HoldSet, Kind, Trimmed
from oncewire.protocol.states import OutgoingState
from oncewire.store.memory.store import MemoryStore
from oncewire.wire import codec
from oncewire.wire.ebms2.blocks import SIGNAL_SERVICE
from oncewire.wire.parcel import Parcel
from tests.handler.network import Network, Stores, TestWorld, agreement_text

KEPT = DAY
TERMS = '[delivery]\ntimeout = "PT1S"\nretry_interval = "PT1S"\nretries = 2\n'
MakePair = Callable[..., Network]


@pytest.fixture
def pair_of(stores: Stores) -> Iterator[MakePair]:
    """Makes pairs whose stores are of one kind."""
    made: list[Network] = []

    def make(profile: str = "ebms2", extra: str = TERMS, **more: object) -> Network:
        pair = Network.pair(profile, extra, store=stores, **more)  # type: ignore[arg-type]
        made.append(pair)
        return pair

    yield make
    for pair in made:
        pair.close()


def sweep(pair: Network, name: str) -> None:
    """A turn in which the sweep is due, whatever the hour."""
    pair.engines[name].context.state.sweep_due_at = 0
    pair.engines[name].tick()
    pair.settle(name)


def wait(pair: Network, duration: Duration) -> None:
    """Let time pass without a tick."""
    for engine in pair.engines.values():
        assert isinstance(engine.context.world, TestWorld)
        engine.context.world.time += duration


def kept(engine: Engine) -> set[str]:
    """Ids of every message that is still there, sent or received."""
    with engine.context.store.reader() as reader:
        sent = {one.outgoing.message_id for one in reader.outgoing_list(limit=1000)}
        return sent | {one.incoming.message_id for one in reader.incoming_list(limit=1000)}


# --- when ---


def test_a_sweep_comes_soon_after_the_start_and_then_every_hour(pair_of: MakePair) -> None:
    pair = pair_of()
    node = pair.beta.context
    begun = node.now()
    assert node.state.sweep_due_at == begun + retention.FIRST_SWEEP <= begun + 5 * MINUTE
    node.state.gaps_due_at = begun + DAY
    assert pair.beta.next_wake() == node.state.sweep_due_at
    wait(pair, retention.FIRST_SWEEP)
    pair.beta.tick()
    assert node.state.sweep_due_at == node.now() + HOUR
    node.state.gaps_due_at = begun + DAY
    # Then the files, in a turn of their own.
    pair.settle("beta")
    assert pair.beta.next_wake() == node.state.clean_due_at == node.now() + SECOND
    wait(pair, SECOND)
    pair.beta.tick()
    node.state.gaps_due_at = begun + DAY
    assert pair.beta.next_wake() == node.state.sweep_due_at


def test_one_turn_removes_a_batch_and_the_next_goes_on(
    pair_of: MakePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 4)
    pair = pair_of()
    pair.send_all(range(10))
    pair.take()
    wait(pair, KEPT)
    left = []
    pair.beta.context.state.sweep_due_at = 0
    for _ in range(3):
        assert pair.beta.next_wake() is not None
        assert (pair.beta.next_wake() or 0) <= pair.beta.context.now()
        pair.beta.tick()
        pair.settle("beta")
        left.append(len(kept(pair.beta)))
    assert left == [6, 2, 0]
    assert pair.beta.context.state.sweep_due_at == pair.beta.context.now() + HOUR


def test_a_sweep_whose_commit_failed_is_tried_again_soon() -> None:
    pair = Network.pair("ebms2", TERMS)
    pair.send()
    pair.take()
    wait(pair, KEPT)
    store = pair.beta.context.store
    assert isinstance(store, MemoryStore)
    pair.beta.context.state.sweep_due_at = 0
    pair.beta.tick()
    store.fail_next_commit(StoreFull("full"))
    with pytest.raises(StoreFull):
        pair.beta.commit()
    assert kept(pair.beta) == {"order-1@alpha"}
    assert pair.beta.context.state.sweep_due_at == pair.beta.context.now() + MINUTE
    pair.pass_time(MINUTE)
    assert kept(pair.beta) == set()


class SetWorld(TestWorld):
    """Somebody may set the clock that people read; the other one runs on."""

    set_by = 0

    def now(self) -> int:
        return super().now() + self.set_by


def test_a_clock_that_was_set_neither_hastens_nor_stops_retention() -> None:
    pair = Network.pair("ebms2", TERMS)
    pair.send()
    pair.take()
    node, world = pair.beta.context, SetWorld("beta")
    node.world = world
    pair.pass_time(MINUTE)
    assert node.state.sweep_due_at == node.now() + HOUR
    # By mistake, and mended half an hour later: nothing was believed of it.
    world.set_by = 365 * DAY
    pair.pass_time(HOUR // 2)
    assert kept(pair.beta) == {"order-1@alpha"}
    assert node.state.sweep_due_at == node.now() + HOUR // 2
    world.set_by = 0
    pair.pass_time(HOUR // 2 - 1)
    assert node.state.sweep_due_at == node.now() + 1
    assert node.state.gaps_due_at <= node.now() + MINUTE
    pair.pass_time(1)
    assert node.state.sweep_due_at == node.now() + HOUR
    pair.pass_time(KEPT)
    assert kept(pair.beta) == set()


@pytest.mark.requirement("STO-7")
@pytest.mark.parametrize("by", [-365 * DAY, 365 * DAY])
def test_nothing_is_removed_while_the_clock_is_in_doubt(by: Duration) -> None:
    pair = Network.pair("ebms2", TERMS)
    pair.send()
    pair.take()
    node, world = pair.beta.context, SetWorld("beta")
    node.world = world
    pair.pass_time(MINUTE)
    world.set_by = by
    # By the line of time that waits go by it is long due, and so is the sweep.
    pair.pass_time(KEPT + DAY)
    assert node.in_doubt
    assert node.state.sweep_due_at < node.now()
    assert kept(pair.beta) == {"order-1@alpha"}
    assert (pair.beta.next_wake() or 0) > node.now(), "what may not be done keeps nobody busy"
    world.set_by = 0
    pair.pass_time(MINUTE)
    assert kept(pair.beta) == set()


# --- the border ---


@pytest.mark.requirement("STO-7", "DUP-1", "RM-15")
@pytest.mark.parametrize("profile", ["ebms2", "window"])
def test_a_copy_one_microsecond_before_and_after_the_end(pair_of: MakePair, profile: str) -> None:
    pair = pair_of(profile)
    sent = pair.send()
    copy = pair.sent(sent.message_id)
    assert pair.take() == [sent.message_id]
    wait(pair, KEPT - 1)
    for name in ("alpha", "beta"):
        sweep(pair, name)
        assert kept(pair.engines[name]) == {sent.message_id}
    first, count = pair.answers[0], len(pair.answers)
    pair.deliver("beta", copy)
    # Known by its row, and answered with the very bytes of the first answer.
    assert pair.answers[count:] == [first]
    wait(pair, 1)
    for name in ("alpha", "beta"):
        sweep(pair, name)
        assert kept(pair.engines[name]) == set()
    count = len(pair.answers)
    pair.deliver("beta", copy)
    # Known by what is remembered: no row comes back, and the acknowledgement is a new one.
    (late,) = pair.answers[count:]
    assert late != first
    assert kept(pair.beta) == set()
    assert pair.take() == []
    assert pair.kinds("beta").count("received") == pair.kinds("beta").count("confirmed") == 1
    assert pair.kinds("beta").count("duplicate") == 2
    assert pair.verify().clean


def test_a_late_copy_with_other_content_is_refused(pair_of: MakePair) -> None:
    pair = pair_of()
    sent = pair.send()
    copy = pair.sent(sent.message_id)
    pair.take()
    wait(pair, KEPT)
    sweep(pair, "beta")
    forged = Parcel(copy.content_type, copy.body.replace(b"order 1", b"order 2"), ())
    pair.deliver("beta", forged)
    assert b"Inconsistent" in pair.answers[-1]
    assert pair.take() == []
    assert kept(pair.beta) == set()


def test_a_refused_message_is_judged_anew(pair_of: MakePair) -> None:
    pair = pair_of()
    pair.lose_request = lambda post: True
    sent = pair.send(time_to_live=10 * SECOND)
    copy = pair.sent(sent.message_id)
    wait(pair, 11 * SECOND)
    pair.deliver("beta", copy)
    wait(pair, KEPT)
    sweep(pair, "beta")
    assert kept(pair.beta) == set()
    pair.deliver("beta", copy)
    assert pair.kinds("beta").count("refused") == 2
    assert b"TimeToLiveExpired" in pair.answers[-1]


@pytest.mark.requirement("RM-2", "DUP-1")
@pytest.mark.parametrize("order", ["order 1", "order 2"])
def test_what_was_refused_is_not_taken_later_under_another_agreement(
    pair_of: MakePair, order: str
) -> None:
    """Its sender was told that it is not delivered, and the agreement has no TimeToLive today."""
    pair = pair_of()
    pair.lose_request = lambda post: True
    sent = pair.send()
    copy = pair.sent(sent.message_id)
    pair.agree("beta", "ebms2", TERMS + 'time_to_live = "PT10S"\n')
    wait(pair, 11 * SECOND)
    pair.deliver("beta", copy)
    assert pair.kinds("beta").count("refused") == 1
    pair.agree("beta", "ebms2", TERMS)
    wait(pair, KEPT)
    sweep(pair, "beta")
    assert kept(pair.beta) == set()
    late = Parcel(copy.content_type, copy.body.replace(b"order 1", order.encode()), ())
    pair.deliver("beta", late)
    assert b"was refused before" in pair.answers[-1]
    assert (pair.take(), pair.kinds("beta").count("received")) == ([], 0)


def test_a_request_that_was_closed_unanswered_stays_unanswered(pair_of: MakePair) -> None:
    pair = pair_of()
    sent = pair.send()
    copy = pair.sent(sent.message_id)
    with pair.beta.context.store.transition() as tx:
        (stored,) = tx.incoming_by_id(sent.message_id)
        tx.save_incoming(stored.incoming.closed())
    pair.settle("beta")
    wait(pair, KEPT)
    sweep(pair, "beta")
    count = len(pair.answers)
    pair.deliver("beta", copy)
    assert (pair.answers[count:], pair.take()) == ([], [])
    pair.alpha.ask_status(sent.message_id)
    pair.settle("alpha")
    assert b"NotRecognized" in pair.answers[-1]


@pytest.mark.requirement("DUP-1")
def test_where_copies_are_messages_a_late_one_is_one_too(pair_of: MakePair) -> None:
    pair = pair_of(extra=TERMS + '[duplicate]\nelimination = "never"\n')
    sent = pair.send()
    copy = pair.sent(sent.message_id)
    assert len(pair.take()) == 1
    wait(pair, KEPT)
    sweep(pair, "beta")
    pair.deliver("beta", copy)
    assert pair.take() == [sent.message_id]


def test_an_id_that_was_sent_is_not_sent_again(pair_of: MakePair) -> None:
    pair = pair_of()
    sent = pair.send()
    assert pair.send().repeated
    pair.take()
    wait(pair, KEPT)
    sweep(pair, "alpha")
    with pytest.raises(NotAllowed, match="removed by retention"):
        pair.send()
    with pytest.raises(UnknownMessage, match="ended as delivered and was removed by retention"):
        pair.alpha.resume(message_id=sent.message_id)


def test_confirming_what_is_gone_is_the_same_as_confirming_once(pair_of: MakePair) -> None:
    pair = pair_of()
    sent = pair.send()
    pair.take()
    wait(pair, KEPT)
    sweep(pair, "beta")
    assert pair.beta.confirm("urn:test:alpha", sent.message_id) is False
    with pytest.raises(UnknownMessage):
        pair.beta.confirm("urn:test:mallory", sent.message_id)


@pytest.mark.requirement("OPS-2", "STO-6")
def test_whoever_asks_about_a_removed_message_hears_what_became_of_it(pair_of: MakePair) -> None:
    pair = pair_of(lose_answer=lambda count: True)
    sent = pair.send()
    pair.take()
    received_at = pair.beta.context.now()
    wait(pair, KEPT)
    sweep(pair, "beta")
    pair.lose_answer = lambda count: False
    pair.alpha.ask_status(sent.message_id)
    pair.settle("alpha")
    told = [codec.read(Parcel("text/xml", body)).message.status_response for body in pair.answers]
    (status,) = [one for one in told if one is not None]
    assert (status.status, status.timestamp) == (MessageStatus.PROCESSED, received_at)
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED


@pytest.mark.requirement("OPS-2")
@pytest.mark.parametrize("removed", [False, True])
def test_nobody_else_hears_what_became_of_a_message(pair_of: MakePair, removed: bool) -> None:
    pair = pair_of()
    sent = pair.send()
    pair.take()
    if removed:
        wait(pair, KEPT)
        sweep(pair, "beta")
    assert kept(pair.beta) == (set() if removed else {sent.message_id})
    with_gamma = read_toml(
        agreement_text("beta", "gamma", "ebms2").replace("alpha-beta", "beta-gamma")
    )
    node = pair.beta.context
    node.agreements = Agreements([*node.agreements, with_gamma])
    header = Header(
        from_party=Party.of("urn:test:gamma"),
        to_party=Party.of("urn:test:beta"),
        cpa_id="beta-gamma",
        conversation_id="talk",
        service=Service(SIGNAL_SERVICE),
        action="StatusRequest",
        message_id="question@gamma",
        timestamp=node.now(),
    )
    request = StatusRequest(sent.message_id)
    question = Message(Dialect.EBMS2, MessageKind.STATUS_REQUEST, header, status_request=request)
    pair.beta.receive(codec.write(question, with_gamma.form), Source("http", can_answer=True))
    (post,) = [one for one in pair.beta.commit() if isinstance(one, PostAnswer)]
    told = codec.read(whole_parcel(node, post.parcel)).message.status_response
    assert told is not None
    assert (told.status, told.timestamp) == (MessageStatus.NOT_RECOGNIZED, None)


def test_the_notice_of_a_removed_message_was_taken(pair_of: MakePair) -> None:
    failing = TERMS + 'on_exhausted = "fail_message"\n'
    pair = pair_of(extra=failing, lose_request=lambda post: True)
    sent = pair.send()
    pair.pass_time(*[2 * SECOND] * 5)
    (notice,) = pair.notices
    # Its incident is closed, so that nothing keeps it.
    pair.alpha.abandon(sent.message_id)
    wait(pair, 3 * KEPT)
    sweep(pair, "alpha")
    assert kept(pair.alpha) == set()
    assert not pair.alpha.confirm_notice(notice.notice_id), "to say so twice is the same as once"
    with pytest.raises(UnknownMessage):
        pair.alpha.confirm_notice(sent.message_id + "x#1")


# --- what stays ---


@pytest.mark.requirement("STO-5")
def test_what_the_application_has_not_confirmed_stays(pair_of: MakePair) -> None:
    pair = pair_of()
    pair.send_all((1, 2))
    assert len(pair.beta.hand_over(1, 10 * KEPT)) == 1
    pair.settle("beta")
    wait(pair, 5 * KEPT)
    sweep(pair, "beta")
    assert kept(pair.beta) == {"order-1@alpha", "order-2@alpha"}
    pair.crash("beta")
    sweep(pair, "beta")
    assert sorted(pair.take()) == ["order-1@alpha", "order-2@alpha"]
    sweep(pair, "beta")
    assert kept(pair.beta) == set()
    assert pair.verify().clean


def test_what_waits_for_its_operator_stays(pair_of: MakePair) -> None:
    pair = pair_of("window", lose_request=lambda post: True)
    pair.send_all((1, 2))
    pair.pass_time(*[SECOND] * 5)
    wait(pair, 3 * KEPT)
    for _ in range(3):
        pair.pass_time(SECOND)
        sweep(pair, "alpha")
    with pair.alpha.context.store.reader() as reader:
        (incident,) = reader.incidents()
        (first, second) = reversed(reader.outgoing_list())
    # The one has its outcome, the other one waits behind it; neither may go.
    assert first.outgoing.state is OutgoingState.UNKNOWN
    assert second.outgoing.state is OutgoingState.WAITING
    assert incident.message_id == first.outgoing.message_id
    pair.lose_request = lambda post: False
    pair.alpha.abandon(first.outgoing.message_id)
    pair.settle("alpha")
    assert pair.take() == ["order-2@alpha"]
    sweep(pair, "alpha")
    assert kept(pair.alpha) == {"order-2@alpha"}
    assert pair.verify().clean


@pytest.mark.requirement("RM-2")
def test_what_failed_stays_until_somebody_has_looked_at_it(pair_of: MakePair) -> None:
    pair = pair_of(lose_request=lambda post: True)
    sent = pair.send()
    pair.pass_time(*[SECOND] * 5)
    wait(pair, 3 * KEPT)
    sweep(pair, "alpha")
    assert kept(pair.alpha) == {sent.message_id}
    with pytest.raises(NotAllowed):
        pair.alpha.resume(message_id=sent.message_id)
    # Past persistDuration it cannot be sent again; the operator can only take note of it.
    pair.alpha.abandon(sent.message_id)
    pair.settle("alpha")
    assert pair.incidents() == []
    with pytest.raises(NotAllowed, match="already"):
        pair.alpha.abandon(sent.message_id)
    sweep(pair, "alpha")
    assert kept(pair.alpha) == set()
    assert pair.verify().clean


def test_an_incident_of_a_message_that_is_done_with_can_be_closed(pair_of: MakePair) -> None:
    pair = pair_of()
    sent = pair.send()
    with pair.beta.context.transition() as tx:
        tx.open_incident(
            pair.beta.context.now(), "its response was not sent", sent.message_id, None
        )
    with pytest.raises(NotAllowed, match="was received here"):
        pair.beta.abandon(sent.message_id)
    pair.settle("beta")
    (taken,) = pair.beta.hand_over(1, SECOND)
    with pair.beta.context.store.transition() as tx:
        stored = tx.incoming(taken.sender, taken.message_id)
        assert stored is not None
        tx.save_incoming(stored.incoming.confirmed(pair.beta.context.now()))
    pair.settle("beta")
    wait(pair, KEPT)
    sweep(pair, "beta")
    assert kept(pair.beta) == {sent.message_id}
    pair.beta.abandon(sent.message_id)
    pair.settle("beta")
    with pytest.raises(NotAllowed, match="was received here"):
        pair.beta.abandon(sent.message_id)
    sweep(pair, "beta")
    assert kept(pair.beta) == set()


@pytest.mark.requirement("STO-9", "DUP-6")
def test_a_response_is_there_for_as_long_as_a_copy_may_ask_for_it(pair_of: MakePair) -> None:
    pair = pair_of(extra=TERMS + '[duplicate]\nanswer = "most_recent"\n')
    sent = pair.send()
    copy = pair.sent(sent.message_id)
    (taken,) = pair.beta.hand_over(1, 30 * SECOND)
    answer = Submission(
        "alpha-beta",
        Service("urn:test:orders"),
        "Confirm",
        (Payload.of("answer", "text/plain", b"yes"),),
        conversation_id="talk",
        message_id="answer@beta",
        ref_to_message_id=sent.message_id,
    )
    pair.beta.confirm(taken.sender, taken.message_id, [answer])
    pair.settle("beta")
    wait(pair, KEPT - 1)
    sweep(pair, "beta")
    count = len(pair.answers)
    pair.deliver("beta", copy)
    assert b"Confirm" in pair.answers[count]
    wait(pair, 1)
    sweep(pair, "beta")
    sweep(pair, "beta")
    assert kept(pair.beta) == set()


# --- owed answers ---


def test_an_answer_that_cannot_be_posted_is_owed_for_persist_duration(pair_of: MakePair) -> None:
    pair = pair_of(lose_answer=lambda count: True)
    sent = pair.send()
    pair.take()

    def owed() -> int:
        with pair.beta.context.store.transition() as tx:
            return len(tx.answers_owed(10))

    wait(pair, KEPT - 1)
    sweep(pair, "beta")
    assert owed() == 1
    # A restart tries once more, and a copy is still answered.
    posted = len(pair.answers)
    pair.crash("beta")
    assert len(pair.answers) == posted + 1
    wait(pair, 1)
    sweep(pair, "beta")
    assert owed() == 0
    assert kept(pair.beta) == set()
    assert sent.message_id not in kept(pair.beta)
    assert pair.verify(healed=False).clean


def test_a_start_does_not_post_what_nobody_waits_for(
    pair_of: MakePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    pair = pair_of(lose_answer=lambda count: True)
    pair.send_all(range(5))
    wait(pair, KEPT)
    posted = len(pair.answers)
    pair.crash("beta")
    assert len(pair.answers) == posted
    # The messages themselves wait for the application as before.
    assert len(pair.take()) == 5


# --- crashes ---


def test_a_sweep_that_dies_before_its_commit_never_happened(pair_of: MakePair) -> None:
    pair = pair_of()
    sent = pair.send()
    copy = pair.sent(sent.message_id)
    pair.take()
    wait(pair, KEPT)
    pair.beta.context.state.sweep_due_at = 0
    pair.beta.tick()
    pair.crash("beta")
    assert kept(pair.beta) == {sent.message_id}
    pair.deliver("beta", copy)
    assert pair.take() == []
    sweep(pair, "beta")
    pair.crash("beta")
    assert kept(pair.beta) == set()
    pair.deliver("beta", copy)
    assert pair.take() == []
    assert pair.verify().clean


# --- the spool ---


@pytest.fixture
def spooling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every parcel of ours is a file of the spool."""
    monkeypatch.setattr(seal, "SPOOL_ABOVE", 0)


def clean(pair: Network, name: str) -> None:
    """A turn in which the spool is looked at."""
    pair.engines[name].context.state.clean_due_at = 0
    pair.engines[name].tick()
    pair.settle(name)


def files(engine: Engine) -> set[str]:
    """Names of the files that are there; those the store names are among them."""
    spool, names = engine.context.store.spool, set()
    with engine.context.store.reader() as reader:
        named = reader.spooled()
    for name in named:
        spool.open(name).close()
    if isinstance(engine.context.store, MemoryStore):
        names = set(engine.context.store.spool._files)
    else:
        names = {path.name for path in spool._directory.iterdir()}  # type: ignore[attr-defined]
    assert named <= names
    return names


@pytest.mark.usefixtures("spooling")
def test_files_go_after_their_messages(pair_of: MakePair) -> None:
    pair = pair_of()
    pair.send_all((1, 2))
    pair.take()
    clean(pair, "alpha")
    assert len(files(pair.alpha)) == 2
    wait(pair, KEPT)
    sweep(pair, "alpha")
    # Not in the same turn: it may still be undone.
    assert len(files(pair.alpha)) == 2
    wait(pair, SECOND)
    pair.alpha.tick()
    assert files(pair.alpha) == set()


@pytest.mark.usefixtures("spooling")
def test_a_file_outlives_a_sweep_that_was_undone(pair_of: MakePair) -> None:
    pair = pair_of()
    sent = pair.send()
    pair.take()
    wait(pair, KEPT)
    pair.alpha.context.state.sweep_due_at = 0
    pair.alpha.tick()
    # The sweep is not committed; somebody cleans before it is, and then the process dies.
    pair.alpha.context.state.clean_due_at = 0
    pair.alpha.tick()
    pair.crash("alpha")
    assert kept(pair.alpha) == {sent.message_id}
    assert pair.sent(sent.message_id).body
    clean(pair, "alpha")
    assert len(files(pair.alpha)) == 1


@pytest.mark.usefixtures("spooling")
def test_bytes_that_are_not_committed_yet_stay(pair_of: MakePair) -> None:
    pair = pair_of()
    submission = Submission("alpha-beta", Service("urn:test:orders"), "New", message_id="m@alpha")
    pair.alpha.submit(submission)
    # In the very turn of a submission the spool is looked at.
    pair.alpha.context.state.clean_due_at = 0
    pair.alpha.tick()
    pair.settle("alpha")
    assert len(files(pair.alpha)) == 1
    assert pair.sent("m@alpha").body


@pytest.mark.usefixtures("spooling")
def test_what_a_crash_before_the_commit_left_is_cleared_away(pair_of: MakePair) -> None:
    pair = pair_of()
    submission = Submission("alpha-beta", Service("urn:test:orders"), "New", message_id="m@alpha")
    pair.alpha.submit(submission)
    pair.crash("alpha")
    assert len(files(pair.alpha)) == 1
    clean(pair, "alpha")
    assert files(pair.alpha) == set()


@pytest.mark.usefixtures("spooling")
def test_what_a_refused_commit_left_is_cleared_away() -> None:
    pair = Network.pair("ebms2", TERMS)
    submission = Submission("alpha-beta", Service("urn:test:orders"), "New", message_id="m@alpha")
    store = pair.alpha.context.store
    assert isinstance(store, MemoryStore)
    pair.alpha.submit(submission)
    store.fail_next_commit(StoreFull("full"))
    with pytest.raises(StoreProblem):
        pair.alpha.commit()
    clean(pair, "alpha")
    assert files(pair.alpha) == set()
    # The application tries again, with the same bytes under the same name.
    pair.alpha.submit(submission)
    clean(pair, "alpha")
    assert pair.sent("m@alpha").body


@pytest.mark.usefixtures("spooling")
def test_many_files_go_a_part_at_a_time(pair_of: MakePair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "FILES", 2)
    pair = pair_of()
    pair.send_all(range(5))
    pair.take()
    wait(pair, KEPT)
    sweep(pair, "alpha")
    left = []
    for _ in range(4):
        wait(pair, MINUTE)
        pair.alpha.tick()
        pair.settle("alpha")
        left.append(len(files(pair.alpha)))
    assert left == [3, 1, 0, 0]


# --- the journal ---


def trimmed(pair: Network, before: Duration, through: int = 10**9) -> int:
    """All that one verb removes from beta's journal."""
    removed = 0
    while gone := pair.beta.trim_journal(before, through, "pat"):
        pair.settle("beta")
        removed += gone
    pair.settle("beta")
    return removed


def positions(pair: Network) -> list[int]:
    return [row.seq for row in pair.rows(at="beta") if row.kind != Kind.TRIMMED]


def test_the_journal_loses_its_beginning_and_says_who_took_it(pair_of: MakePair) -> None:
    pair = pair_of()
    pair.send(0)
    pair.take()
    wait(pair, 400 * DAY)
    sweep(pair, "beta")
    old = pair.rows(at="beta")
    pair.send(1)
    pair.take()
    now = pair.beta.context.now()
    assert trimmed(pair, now - DAY, through=3) == 3
    assert positions(pair)[0] == 4
    assert trimmed(pair, now - DAY) == len(old) - 3
    assert positions(pair)[0] == old[-1].seq + 1
    said = [Trimmed.read(row.detail) for row in pair.rows(Kind.TRIMMED, at="beta")]
    assert said == [Trimmed(3, 3, "pat"), Trimmed(len(old) - 3, old[-1].seq, "pat")]
    assert trimmed(pair, now - DAY) == 0
    assert {found.kind for found in pair.verify().quarantined} == {"trimmed"}
    assert not pair.verify().violations


def test_rows_of_a_kept_message_and_all_behind_them_stay(pair_of: MakePair) -> None:
    """A journal with a hole in it could not be told from one that somebody has cut."""
    pair = pair_of()
    ids = [pair.send(number).message_id for number in range(3)]
    pair.take()
    pair.beta.hold(ids[1], held=True)
    pair.settle("beta")
    wait(pair, 400 * DAY)
    sweep(pair, "beta")
    assert kept(pair.beta) == {ids[1]}
    first = pair.rows(at="beta", of=ids[1])[0].seq
    trimmed(pair, pair.beta.context.now())
    assert positions(pair)[0] == first
    assert positions(pair) == list(range(first, positions(pair)[-1] + 1))


def test_the_journal_says_who_set_and_who_lifted_a_hold(pair_of: MakePair) -> None:
    pair = pair_of("window")
    message_id = pair.send(1).message_id
    pair.take()
    for name, engine in (("alpha", pair.alpha), ("beta", pair.beta)):
        engine.hold(message_id, held=True, by="pat")
        pair.settle(name)
        engine.hold(message_id, held=False, by="kim")
        pair.settle(name)
        rows = pair.rows(at=name, of=message_id)
        stream = next((row.channel, row.epoch, row.sequence_number) for row in rows if row.epoch)
        held, lifted = rows[-2:]
        assert HoldSet.read(held.detail).by == "pat"
        assert HoldLifted.read(lifted.detail).by == "kim"
        assert {(row.channel, row.epoch, row.sequence_number) for row in rows[-2:]} == {stream}
    report = pair.verify()
    assert not report.violations
    assert not report.quarantined
    told = " ".join(step.text for step in ladder(pair.rows(of=message_id)))
    assert "put under legal hold by pat" in told
    assert "its legal hold was lifted by kim" in told


def test_no_hold_is_said_to_be_lifted_that_was_not_set(pair_of: MakePair) -> None:
    pair = pair_of()
    message_id = pair.send(1).message_id
    for held, by in ((False, "kim"), (True, "pat"), (True, "kim"), (False, "pat"), (False, "kim")):
        pair.alpha.hold(message_id, held=held, by=by)
        pair.settle("alpha")
    rows = pair.rows(Kind.HOLD_SET, at="alpha") + pair.rows(Kind.HOLD_LIFTED, at="alpha")
    assert [HoldSet.read(row.detail).by for row in rows] == ["pat", "kim", "pat"]


def test_a_hold_keeps_the_parts_of_its_document(pair_of: MakePair) -> None:
    """What the receiver signed for are the parts."""
    split = '[wire]\nextensions = ["split"]\n[payload]\nmax_size = 1000\n'
    pair = pair_of(extra=TERMS + split)
    for number in (1, 2):
        pair.send(number, bytes(3000))
    pair.take()
    parts = {f"{part}-of-3.order-1@alpha" for part in (1, 2, 3)}
    for name, engine in pair.engines.items():
        engine.hold("order-1@alpha", held=True)
        pair.settle(name)
    wait(pair, 400 * DAY)
    for name, engine in pair.engines.items():
        sweep(pair, name)
        assert kept(engine) == parts | {"order-1@alpha"}
        with engine.context.store.reader() as reader:
            assert set(parts_of(reader, "order-1@alpha")[0]) == parts
            assert reader.document("", "order-2@alpha") is None
        engine.hold("order-1@alpha", held=False)
        pair.settle(name)
    wait(pair, DAY)
    for name, engine in pair.engines.items():
        sweep(pair, name)
        assert kept(engine) == set()


def test_a_large_journal_goes_in_batches(
    pair_of: MakePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "TRIMMED_AT_ONCE", 4)
    pair = pair_of()
    for number in range(3):
        pair.send(number)
    pair.take()
    wait(pair, 400 * DAY)
    sweep(pair, "beta")
    assert pair.beta.trim_journal(pair.beta.context.now(), 10**9) == 4
    pair.settle("beta")
    trimmed(pair, pair.beta.context.now())
    assert pair.rows(at="beta")[-1].seq > 10
    assert {row.kind for row in pair.rows(at="beta")} == {Kind.TRIMMED}
