"""Somebody sets the machine's clock: waits stay as long as agreed, and nothing expires in doubt."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from oncewire.errors import NotAllowed, StoreFull
from oncewire.handler.perform import open_incident, resolve_incidents
from oncewire.handler.runtime import retention
from oncewire.handler.world import CORRECTION, RealWorld
from oncewire.message.instant import DAY, HOUR, MINUTE, SECOND, Duration
from oncewire.protocol.notes import ClockSet, Raise, Resolve
from oncewire.protocol.states import OutgoingState
from oncewire.store.memory.store import MemoryStore
from tests.handler.network import Network, Stores, TestWorld

YEAR = 365 * DAY
RETRIES = '[delivery]\ntimeout = "PT60S"\nretry_interval = "PT60S"\nretries = 3\n'
LIFETIME = '[delivery]\ntime_to_live = "PT20S"\ntimeout = "PT60S"\nretries = 9\n'


class SetWorld(TestWorld):
    """Somebody may set the clock that people read; the other one runs on."""

    set_by: Duration = 0
    booted = "one"

    def now(self) -> int:
        return super().now() + self.set_by

    def machine(self) -> str:
        return self.booted


class SetPair(Network):
    """Both parties on machines whose clocks can be set."""

    def __post_init__(self) -> None:
        self.clock = SetWorld
        super().__post_init__()

    def set_clock(self, by: Duration, *names: str) -> None:
        for name in names or ("alpha",):
            self.world(name).set_by = by

    def seconds_of(self, kind: str) -> list[int]:
        first = self.rows(kind)[0].mono
        return [(row.mono - first) // SECOND for row in self.rows(kind)]

    def verdicts(self) -> list[str]:
        return [ClockSet.read(row.detail).verdict for row in self.rows("clock_set")]

    def accept(self) -> None:
        self.alpha.accept_clock()
        self.settle("alpha")


def nothing_arrives(_attempt: int) -> bool:
    return True


@pytest.mark.long
@pytest.mark.requirement("RTY-1", "RTY-2", "RTY-18")
@pytest.mark.parametrize("by", [HOUR, -HOUR, 2 * DAY, -10 * YEAR, 10 * YEAR])
@pytest.mark.parametrize("answer", ["put right", "accepted", "left"])
def test_resends_keep_their_pace_when_the_clock_is_set(
    by: Duration, answer: str, stores: Stores
) -> None:
    pair = SetPair.pair("ebms2", RETRIES, lose_request=nothing_arrives, store=stores)
    pair.send()
    for second in range(1, 300):
        pair.pass_time(SECOND)
        if second == 5:
            pair.set_clock(by)
        if second == 65 and answer == "put right":
            pair.set_clock(0)
        if second == 65 and answer == "accepted":
            pair.accept()
            # PersistDuration is a matter of UTC; here only the waits are.
            if by >= DAY:
                return
    assert pair.seconds_of("sent") == [0, 60, 120, 180]
    assert pair.state() is OutgoingState.UNKNOWN
    pair.close()


@pytest.mark.long
@pytest.mark.parametrize("by", [HOUR, -HOUR, 2 * DAY, -10 * YEAR])
def test_a_restart_changes_nothing_of_that(by: Duration, stores: Stores) -> None:
    pair = SetPair.pair("ebms2", RETRIES, lose_request=nothing_arrives, store=stores)
    pair.send()
    for second in range(1, 300):
        pair.pass_time(SECOND)
        if second == 5:
            pair.set_clock(by)
        if second in (20, 70):
            pair.crash("alpha")
        if second == 100:
            pair.set_clock(0)
    assert pair.seconds_of("sent") == [0, 60, 120, 180]
    assert pair.verdicts() == ["in doubt", "agreed"]
    assert len(pair.reasons()) == 1  # of the message, whose retries were used up
    pair.close()


def test_two_days_ahead_for_three_seconds_fail_nothing() -> None:
    pair = SetPair.pair("ebms2", RETRIES, lose_request=nothing_arrives)
    pair.send_all((1, 2, 3))
    pair.pass_time(SECOND)
    pair.set_clock(2 * DAY)
    pair.pass_time(*[SECOND] * 3)
    assert "the clock was set by +172800 s" in pair.reasons()[0]
    pair.set_clock(0)
    pair.pass_time(SECOND)
    assert pair.reasons() == []
    assert pair.verdicts() == ["in doubt", "agreed"]
    assert {pair.state(number) for number in (1, 2, 3)} == {OutgoingState.OUTSTANDING}
    pair.lose_request = lambda post: False
    pair.pass_time(MINUTE)
    assert {pair.state(number) for number in (1, 2, 3)} == {OutgoingState.DELIVERED}
    assert pair.notices == []


@pytest.mark.parametrize("by", [HOUR, -HOUR])
def test_no_verdict_of_expiry_while_the_clock_is_in_doubt(by: Duration) -> None:
    pair = SetPair.pair("ebms2", LIFETIME, lose_request=nothing_arrives)
    pair.send()
    pair.pass_time(SECOND)
    pair.set_clock(by)
    pair.pass_time(*[SECOND] * 120)
    assert pair.state() is OutgoingState.OUTSTANDING
    # Nor is it sent after its time, as far as that is known.
    assert len(pair.rows("sent")) == 1
    pair.set_clock(0)
    pair.pass_time(SECOND)
    pair.pass_time(SECOND)
    assert pair.state() is OutgoingState.UNKNOWN
    assert pair.verify(healed=False).clean


@pytest.mark.requirement("HDR-9", "SW-4")
def test_what_waits_for_its_place_does_not_expire_while_the_clock_is_in_doubt() -> None:
    pair = SetPair.pair("rm-0.78", '[delivery]\ntimeout = "PT1M"\nretries = 9\n')
    pair.lose_answer = nothing_arrives
    pair.send(1)
    pair.send(2, time_to_live=20 * SECOND)
    pair.set_clock(HOUR)
    pair.pass_time(SECOND)
    pair.lose_answer = lambda number: False
    # The first is acknowledged now, and there is a place for the second.
    pair.pass_time(MINUTE)
    assert pair.state(1) is OutgoingState.DELIVERED
    assert pair.state(2) is OutgoingState.WAITING
    pair.set_clock(0)
    pair.pass_time(MINUTE)
    assert pair.state(2) is OutgoingState.NOT_DELIVERED
    assert pair.verify(healed=False).clean


@pytest.mark.requirement("SW-10", "RTY-18")
def test_no_gap_is_given_up_while_the_clock_is_in_doubt() -> None:
    pair = SetPair.pair("window")
    pair.send(1)
    pair.lose_request = nothing_arrives
    pair.send(2)
    pair.lose_request = lambda post: False
    pair.send(3)
    assert pair.take() == ["order-1@alpha"]
    later_at_beta(pair, YEAR)
    assert pair.take() == [], "order 2 may still come"
    later_at_beta(pair, 0)
    assert pair.take() == ["order-3@alpha"]


@pytest.mark.requirement("BIG-6", "RTY-18")
def test_no_document_is_given_up_while_the_clock_is_in_doubt() -> None:
    pair = SetPair.pair("ms-0.9x", "[payload]\nmax_size = 1000\n")

    def under_way() -> int:
        with pair.beta.context.transition() as tx:
            return len(tx.open_documents())

    posts = count()
    pair.lose_request = lambda post: next(posts) > 0
    pair.send(1, b"x" * 3_000)
    assert under_way() == 1
    later_at_beta(pair, YEAR)
    assert under_way() == 1, "the other parts may still come"
    later_at_beta(pair, 0)
    assert under_way() == 0


def later_at_beta(pair: SetPair, by: Duration) -> None:
    """A year passes at beta alone, whose clock is off by so much."""
    pair.set_clock(by, "beta")
    pair.world("beta").time += YEAR
    for _ in range(2):
        pair.beta.tick()
        pair.settle("beta")
    assert pair.beta.context.in_doubt is bool(by)


def test_an_accepted_time_is_the_time() -> None:
    pair = SetPair.pair("ebms2", LIFETIME, lose_request=nothing_arrives)
    pair.send()
    pair.set_clock(HOUR)
    pair.pass_time(SECOND)
    assert pair.state() is OutgoingState.OUTSTANDING
    pair.accept()
    assert pair.verdicts() == ["in doubt", "accepted"]
    assert pair.reasons() == []
    assert pair.alpha.context.now() == pair.world().now()
    pair.pass_time(SECOND)
    assert pair.state() is OutgoingState.UNKNOWN
    with pytest.raises(NotAllowed, match="not in doubt"):
        pair.accept()


def test_a_doubt_that_another_handler_closed_is_told_again() -> None:
    """Handlers of one store share the incident, and each has a clock of its own."""
    pair = SetPair.pair()
    engine = pair.alpha

    def look_around() -> list[str]:
        with engine.context.transition() as tx:
            retention.call_again(engine.context, tx)
        pair.settle("alpha")
        return pair.reasons()

    assert look_around() == []
    pair.set_clock(HOUR)
    pair.pass_time(SECOND)
    told = pair.reasons()
    assert look_around() == told
    with engine.context.transition() as tx:
        resolve_incidents(engine.context, tx, Resolve())
    pair.settle("alpha")
    assert pair.reasons() == []
    assert look_around() == told
    pair.accept()
    assert look_around() == []


def test_whatever_is_waited_for_moves_with_an_accepted_time() -> None:
    pair = SetPair.pair()
    node = pair.alpha.context
    now = node.now()
    node.state.acks_waiting = [(now + 2 * MINUTE, "urn:test:beta", "m")]
    node.state.troubled = {"m": now + 3 * MINUTE, "may go on": 0}
    node.state.gaps_due_at, node.state.sweep_due_at, node.state.clean_due_at = (
        now + minutes * MINUTE for minutes in (4, 5, 6)
    )
    assert pair.alpha.next_wake() == now + 2 * MINUTE
    node.state.refusals.count("Inconsistent", "192.0.2.1", "odd", None, now)
    counted = node.state.refusals.due_at
    assert counted is not None
    assert pair.alpha.next_wake() == min(counted, now + 2 * MINUTE)
    pair.set_clock(-HOUR)
    pair.alpha.context.now()
    pair.accept()
    assert node.state.refusals.due_at == counted - HOUR
    assert node.now() == now - HOUR
    assert node.state.acks_waiting == [(now - HOUR + 2 * MINUTE, "urn:test:beta", "m")]
    assert node.state.troubled == {"m": now - HOUR + 3 * MINUTE, "may go on": 0}
    dues = (node.state.gaps_due_at, node.state.sweep_due_at, node.state.clean_due_at)
    assert dues == tuple(now - HOUR + minutes * MINUTE for minutes in (4, 5, 6))


def test_a_lifetime_counts_from_now_whatever_the_stream_was_stamped_with() -> None:
    pair = SetPair.pair("window", '[delivery]\ntime_to_live = "PT20S"\n')
    pair.set_clock(HOUR, "alpha", "beta")
    pair.pass_time(SECOND)
    pair.accept()
    pair.beta.accept_clock()
    pair.send(1)
    pair.take()
    pair.set_clock(0, "alpha", "beta")
    pair.pass_time(SECOND)
    pair.accept()
    pair.lose_request = nothing_arrives
    pair.send(2)
    with pair.alpha.context.store.reader() as reader:
        stored = reader.outgoing("order-2@alpha")
    assert stored is not None
    assert stored.outgoing.expires_at == pair.alpha.context.now() + 20 * SECOND
    # Along a stream timestamps rise all the same.
    assert stored.facts.timestamp > pair.alpha.context.now() + 59 * MINUTE
    pair.pass_time(*[SECOND] * 30)
    assert pair.state(2) is OutgoingState.UNKNOWN


def test_a_lease_lasts_as_long_as_was_said(stores: Stores) -> None:
    for by in (HOUR, -HOUR):
        pair = SetPair.pair("ebms2", store=lambda name, by=by: stores(f"{name}{by > 0}"))
        pair.send()
        assert len(pair.beta.hand_over(1, 30 * SECOND)) == 1
        pair.settle("beta")
        pair.set_clock(by, "beta")
        pair.pass_time(20 * SECOND)
        pair.beta.accept_clock()
        pair.settle("beta")
        assert pair.beta.hand_over(1, 30 * SECOND) == []
        pair.pass_time(9 * SECOND)
        assert pair.beta.hand_over(1, 30 * SECOND) == []
        pair.pass_time(SECOND)
        assert len(pair.beta.hand_over(1, 30 * SECOND)) == 1
        pair.settle("beta")
        pair.close()


def test_slow_drift_raises_no_incident() -> None:
    pair = SetPair.pair("ebms2", RETRIES, lose_request=nothing_arrives)
    pair.send()
    for minute in range(1, 24 * 60):
        pair.pass_time(MINUTE)
        # A clock that is slewed, or that nobody ever sets: 500 in a million.
        pair.set_clock(-minute * MINUTE // 2_000)
    assert set(pair.verdicts()) == {"corrected"}
    assert pair.seconds_of("sent") == [0, 60, 120, 180]
    assert abs(pair.alpha.context.now() - pair.world().now()) <= 2 * SECOND


@pytest.mark.parametrize("by", [CORRECTION, -CORRECTION, 2 * SECOND])
def test_a_small_step_is_followed(by: Duration) -> None:
    pair = SetPair.pair("ebms2", RETRIES, lose_request=nothing_arrives)
    pair.send()
    pair.set_clock(by)
    assert (pair.alpha.next_wake() or 0) <= pair.alpha.context.now()
    pair.pass_time(*[SECOND] * 70)
    assert pair.verdicts() == ["corrected"]
    assert pair.reasons() == []
    assert pair.alpha.context.now() == pair.world().now()
    assert pair.seconds_of("sent") == [0, 60]


def test_the_incident_is_told_once_and_the_handler_is_not_kept_busy() -> None:
    pair = SetPair.pair("ebms2", LIFETIME, lose_request=nothing_arrives)
    pair.send()
    pair.set_clock(HOUR)
    pair.pass_time(*[SECOND] * 100)
    assert len(pair.rows("clock_set")) == 1
    assert len(pair.rows("incident")) == 1
    # Its time is over and nothing may be done about it now.
    assert pair.alpha.next_wake() == pair.alpha.context.state.ticked_at + SECOND


def test_a_commit_that_fails_leaves_the_time_as_it_was() -> None:
    pair = SetPair.pair("ebms2", RETRIES, lose_request=nothing_arrives)
    pair.send()
    pair.set_clock(HOUR)
    pair.pass_time(SECOND)
    store, before = pair.alpha.context.store, pair.alpha.context.now()
    assert isinstance(store, MemoryStore)
    store.fail_next_commit(StoreFull("full"))
    pair.alpha.accept_clock()
    with pytest.raises(StoreFull):
        pair.alpha.commit()
    assert pair.alpha.context.now() == before
    assert pair.alpha.context.in_doubt
    pair.accept()
    assert pair.alpha.context.now() == before + HOUR


# --- restarts -----------------------------------------------------------------------------------


def restarted(pair: SetPair, *, after: Duration, boot: str, by: Duration) -> None:
    """Alpha's machine or process stood still for that long, and its clock was set meanwhile."""
    world = pair.world()
    world.time += after
    world.booted = boot
    world.set_by = by
    pair.crash("alpha")


def test_a_clock_that_was_set_while_the_process_was_down_is_in_doubt() -> None:
    for by in (HOUR, -HOUR):
        pair = SetPair.pair("ebms2", RETRIES)
        restarted(pair, after=MINUTE, boot="one", by=by)
        assert pair.alpha.context.in_doubt
        assert pair.verdicts() == ["in doubt"]


@pytest.mark.parametrize("about", [Raise("?", "order-1@alpha"), Raise("?", channel="a>b")])
def test_an_incident_of_something_else_is_not_taken_for_the_clocks(about: Raise) -> None:
    pair = SetPair.pair("ebms2", RETRIES)
    with pair.alpha.context.transition() as tx:
        open_incident(pair.alpha.context, tx, about)
    pair.settle("alpha")
    restarted(pair, after=MINUTE, boot="one", by=0)
    pair.pass_time(SECOND)
    assert pair.reasons() == ["?"]
    assert pair.verdicts() == []


def test_a_start_in_doubt_gives_no_answer_up_that_is_owed() -> None:
    pair = SetPair.pair("ebms2", RETRIES, lose_answer=nothing_arrives)
    pair.send()

    def owed_after_a_start(by: Duration) -> int:
        pair.set_clock(by, "beta")
        pair.crash("beta")
        with pair.beta.context.transition() as tx:
            return len(tx.answers_owed(10))

    pair.world("beta").time += YEAR
    assert owed_after_a_start(YEAR) == 1
    assert pair.beta.context.in_doubt
    assert owed_after_a_start(0) == 0


def test_after_a_boot_of_the_machine_utc_is_believed_but_never_before_the_last_row() -> None:
    pair = SetPair.pair("ebms2", RETRIES)
    restarted(pair, after=MINUTE, boot="two", by=HOUR)
    assert not pair.alpha.context.in_doubt
    assert pair.alpha.context.now() == pair.world().now()
    restarted(pair, after=MINUTE, boot="three", by=-DAY)
    assert pair.alpha.context.in_doubt
    # The time service comes up late: any time after the last row may be right.
    pair.set_clock(5 * HOUR)
    pair.pass_time(SECOND)
    assert pair.reasons() == []
    assert pair.verdicts() == ["in doubt", "agreed"]
    assert pair.alpha.context.now() == pair.world().now()
    # From here on it is a time like any other.
    pair.set_clock(9 * HOUR)
    pair.pass_time(SECOND)
    assert pair.alpha.context.in_doubt


def test_after_a_boot_of_the_machine_a_doubt_stays_until_the_operator_knows() -> None:
    pair = SetPair.pair("ebms2", LIFETIME, lose_request=nothing_arrives)
    pair.send()
    pair.set_clock(2 * DAY)
    pair.pass_time(SECOND)
    restarted(pair, after=MINUTE, boot="two", by=2 * DAY)
    pair.pass_time(MINUTE)
    assert pair.alpha.context.in_doubt
    assert pair.state() is OutgoingState.OUTSTANDING
    pair.accept()
    pair.pass_time(SECOND)
    assert not pair.alpha.context.in_doubt
    assert pair.state() is OutgoingState.UNKNOWN


def test_a_clock_a_little_behind_the_last_row_is_only_corrected() -> None:
    pair = SetPair.pair("ebms2", RETRIES)
    restarted(pair, after=SECOND, boot="two", by=-5 * SECOND)
    assert not pair.alpha.context.in_doubt
    assert pair.reasons() == []
    assert pair.alpha.context.now() == pair.world().now()


# --- looking at the clocks ------------------------------------------------------------------------


def test_a_process_that_is_put_aside_between_two_looks_is_not_a_clock_that_was_set() -> None:
    class Slow(SetWorld):
        aside: Duration = 0

        def now(self) -> int:
            self.time += self.aside
            return super().now()

    pair = SetPair.pair("ebms2", RETRIES)
    world = Slow("alpha")
    pair.alpha.context.world = world
    world.aside = MINUTE
    pair.pass_time(*[SECOND] * 5)
    assert pair.rows("clock_set") == []


def test_a_machine_that_slept_has_slept_by_both_clocks() -> None:
    pair = SetPair.pair("ebms2", RETRIES, lose_request=nothing_arrives)
    pair.send()
    pair.world().time += HOUR
    pair.pass_time(SECOND)
    assert pair.rows("clock_set") == []
    assert pair.seconds_of("sent") == [0, 3601]


def test_the_steady_clock_counts_since_the_machine_was_booted() -> None:
    first, second = RealWorld(), RealWorld()
    assert first.machine() == second.machine() != ""
    uptime = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    assert abs(first.mono() / SECOND - uptime) < 60


def test_without_such_a_clock_each_process_counts_for_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("oncewire.handler.world._BOOT_ID", tmp_path / "nowhere")
    world = RealWorld()
    assert world.machine() == ""
    assert 0 <= world.mono() < MINUTE
