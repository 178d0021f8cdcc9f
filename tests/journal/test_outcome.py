"""The fold of a message's rows to its outcome, from one node's rows and from several nodes'."""

import pytest

from oncewire.journal.outcome import MessageOutcome, elapsed, fold_outcome
from oncewire.journal.row import Row
from oncewire.protocol import notes
from oncewire.protocol.notes import Kind
from oncewire.protocol.states import Outcome
from oncewire.protocol.synchronous import TIMEOUT_MESSAGE
from tests.journal.changes import find
from tests.journal.histories import BEST_EFFORT, PLAIN, World, digest
from tests.journal.scenarios import SCENARIOS


def outcome_of(rows: list[Row], message_id: str = "m1", node: str | None = None) -> MessageOutcome:
    chosen = [row for row in rows if row.message_id == message_id and node in (None, row.node)]
    outcome = fold_outcome(chosen)
    assert outcome is not None
    return outcome


@pytest.mark.requirement("RM-2")
@pytest.mark.parametrize(
    ("scenario", "node", "expected", "reason"),
    [
        ("plain", None, Outcome.DELIVERED, "ack"),
        ("plain", "acme", Outcome.DELIVERED, "ack"),
        ("plain", "globex", Outcome.DELIVERED, "received"),
        ("refused", None, Outcome.NOT_DELIVERED, "ValueNotRecognized"),
        ("refused", "globex", Outcome.NOT_DELIVERED, "ValueNotRecognized"),
        ("closed_unanswered", None, Outcome.NOT_DELIVERED, TIMEOUT_MESSAGE),
        ("closed_unanswered", "globex", Outcome.NOT_DELIVERED, TIMEOUT_MESSAGE),
        ("closed_unanswered", "acme", Outcome.UNKNOWN, "rejected"),
        ("conflicting_copy", "globex", Outcome.DELIVERED, "received"),
        ("unknown", None, Outcome.UNKNOWN, "no acknowledgement after 3 attempts"),
        ("unknown_then_late_ack", None, Outcome.DELIVERED, "ack"),
        ("settled_by_status", None, Outcome.DELIVERED, "status"),
        ("expired_unsent", None, Outcome.NOT_DELIVERED, "TimeToLive has passed"),
        ("hub_gives_up", None, Outcome.UNKNOWN, "DeliveryFailure"),
        ("hub_gives_up", "hub", Outcome.UNKNOWN, "no acknowledgement after 3 attempts"),
        ("hub", "hub", Outcome.DELIVERED, "ack"),
        ("suspended_and_resumed", None, Outcome.DELIVERED, "ack"),
    ],
)
def test_each_reliable_message_has_one_outcome(
    scenario: str, node: str | None, expected: Outcome, reason: str
) -> None:
    outcome = outcome_of(SCENARIOS[scenario]().rows, node=node)
    assert (outcome.outcome, outcome.reason) == (expected, reason)
    assert outcome.final
    assert outcome.reliable


@pytest.mark.requirement("OPS-4")
def test_a_best_effort_message_ends_as_sent_and_no_more() -> None:
    rows = SCENARIOS["best_effort"]().rows
    for message_id in ("m1", "m2"):
        outcome = outcome_of(rows, message_id)
        assert (outcome.outcome, outcome.reliable) == (Outcome.SENT, False)


@pytest.mark.requirement("OPS-4")
def test_terms_settle_what_is_best_effort_when_they_are_at_hand() -> None:
    world = World(PLAIN)
    world.submit("m1")
    world.send("m1")
    rows = [row._replace(terms_id="t") for row in world.rows if row.message_id == "m1"]
    known = fold_outcome(rows, {"t": BEST_EFFORT})
    assert known is not None
    assert known.outcome is Outcome.SENT
    assert outcome_of(rows).outcome is Outcome.IN_FLIGHT


def test_what_is_not_finished_is_in_flight_and_says_what_it_waits_for() -> None:
    world = World()
    world.submit("m1")
    assert outcome_of(world.rows).reason == "queued"
    world.send("m1")
    waiting = outcome_of(world.rows)
    assert (waiting.outcome, waiting.reason, waiting.final) == (Outcome.IN_FLIGHT, "waiting", False)
    world.note(Kind.SUSPENDED, "m1")
    assert outcome_of(world.rows).reason == "suspended"
    world.note(Kind.RESUMED, "m1")
    assert outcome_of(world.rows).reason == "waiting"


def test_a_best_effort_message_that_was_not_sent_is_queued() -> None:
    world = World(BEST_EFFORT)
    world.submit("m1")
    outcome = outcome_of(world.rows)
    assert (outcome.outcome, outcome.reason) == (Outcome.IN_FLIGHT, "queued")


def test_the_receiver_settles_what_the_sender_left_open() -> None:
    rows = SCENARIOS["plain"]().rows
    without_ack = [row for row in rows if row.kind != Kind.ACKNOWLEDGED]
    outcome = outcome_of(without_ack)
    assert (outcome.outcome, outcome.reason) == (Outcome.DELIVERED, "received")
    late = SCENARIOS["unknown_then_late_ack"]().rows
    unacknowledged = [row for row in late if row.kind != Kind.ACKNOWLEDGED]
    assert outcome_of(unacknowledged).outcome is Outcome.DELIVERED
    assert outcome_of(unacknowledged, node="acme").outcome is Outcome.UNKNOWN


def test_figures_of_a_message_that_was_resent() -> None:
    outcome = outcome_of(SCENARIOS["lost_ack"]().rows)
    assert (outcome.attempts, outcome.resends, outcome.duplicates_stopped) == (2, 1, 1)
    assert (outcome.handed_over, outcome.confirmed) == (1, 1)
    assert (outcome.sender, outcome.receiver) == ("acme", "globex")
    assert (outcome.digest, outcome.size) == (digest("m1"), 2_000)
    assert not outcome.late_ack
    assert not outcome.notified


def test_instants_and_latency_are_each_of_one_node() -> None:
    rows = SCENARIOS["plain"]().rows
    outcome = outcome_of(rows)
    for kind, at in (
        (Kind.SUBMITTED, outcome.submitted_at),
        (Kind.SENT, outcome.first_sent_at),
        (Kind.ACKNOWLEDGED, outcome.acknowledged_at),
        (Kind.RECEIVED, outcome.received_at),
        (Kind.HANDED_OVER, outcome.handed_over_at),
        (Kind.CONFIRMED, outcome.confirmed_at),
    ):
        assert at == find(rows, kind)[0].at
    submitted, acknowledged = find(rows, Kind.SUBMITTED)[0], find(rows, Kind.ACKNOWLEDGED)[0]
    assert outcome.latency == acknowledged.mono - submitted.mono


def test_within_one_boot_of_the_machine_a_restart_changes_no_clock() -> None:
    """The steady clock counts on while a process is started again, and nobody can set it."""
    first = Row(1, 9_000, 50, "m1.a", "acme", Kind.SENT.value)
    second = Row(2, 1_000, 80, "m1.b", "acme", Kind.SENT.value)
    assert elapsed(first, second) == 30
    assert elapsed(first, second._replace(boot="m2.b")) == -8_000
    assert elapsed(first._replace(boot="a"), second._replace(boot="b")) == -8_000


def test_latency_across_a_restart_is_on_the_utc_clock() -> None:
    rows = SCENARIOS["sender_crashes_between_attempts"]().rows
    submitted, acknowledged = find(rows, Kind.SUBMITTED)[0], find(rows, Kind.ACKNOWLEDGED)[0]
    assert outcome_of(rows).latency == acknowledged.at - submitted.at


def test_a_late_ack_and_a_notice_are_told() -> None:
    outcome = outcome_of(SCENARIOS["unknown_then_late_ack"]().rows)
    assert outcome.late_ack
    assert outcome.notified
    assert outcome.failed_at is not None


def test_an_ack_after_a_resume_is_not_late() -> None:
    world = World()
    world.submit("m1")
    world.retry_until_exhausted("m1")
    world.fail("m1", "unknown", "exhausted")
    world.note(Kind.RESUMED, "m1")
    world.send("m1", 4)
    world.acknowledged("m1")
    assert not outcome_of(world.rows).late_ack


def test_the_to_partys_acknowledgement_counts_before_a_hubs() -> None:
    rows = SCENARIOS["hub"]().rows
    end_to_end = find(rows, Kind.ACKNOWLEDGED, node="acme")[1]
    assert outcome_of(rows).acknowledged_at == end_to_end.at
    by_hub_alone = [row for row in rows if row is not end_to_end and row.node == "acme"]
    hop = find(rows, Kind.ACKNOWLEDGED, node="acme")[0]
    assert outcome_of(by_hub_alone).acknowledged_at == hop.at


def test_a_numbered_message_keeps_its_place() -> None:
    outcome = outcome_of(SCENARIOS["window"]().rows, "m12")
    assert (outcome.channel, outcome.epoch, outcome.sequence_number) == ("acme>globex", 1, 2)


def test_a_part_is_confirmed_by_its_document_and_the_document_by_itself() -> None:
    rows = SCENARIOS["split"]().rows
    part, document = outcome_of(rows, "part1"), outcome_of(rows, "doc")
    assert part.confirmed_at == find(rows, Kind.HANDED_OVER, "part1")[0].at
    assert (document.outcome, document.confirmed) == (Outcome.DELIVERED, 1)
    assert document.digest == "sha-of-doc"


def test_no_rows_no_outcome() -> None:
    assert fold_outcome([]) is None


def test_a_hub_that_took_the_message_speaks_when_the_sender_is_not_heard() -> None:
    world = World()
    world.node("hub").add(Kind.FORWARDED, "m1", terms_id="t", digest="d")
    world.node("globex").add(Kind.DUPLICATE, "m1", said=notes.Duplicate("original"))
    outcome = outcome_of(world.rows)
    assert (outcome.outcome, outcome.reason) == (Outcome.IN_FLIGHT, "queued")
    assert (outcome.sender, outcome.receiver, outcome.digest) == ("hub", "globex", "d")
    assert outcome.duplicates_stopped == 1


def test_a_message_of_which_only_an_incident_is_known_is_in_flight() -> None:
    world = World()
    world.node("acme").add(Kind.INCIDENT, "m1", said=notes.Incident("1", "odd"))
    outcome = outcome_of(world.rows)
    assert (outcome.outcome, outcome.sender, outcome.receiver) == (Outcome.IN_FLIGHT, None, None)


def test_a_hub_that_promised_nothing_knows_only_that_it_left() -> None:
    world = World()
    world.node("hub").add(Kind.PASSED_ON, "m1", ref_to="m0", peer="urn:party:acme")
    alone = outcome_of(world.rows)
    assert (alone.outcome, alone.reason, alone.reliable) == (Outcome.SENT, "passed_on", False)
    # Beside the books of those who know, it says nothing.
    world.deliver("m1")
    assert outcome_of(world.rows).outcome is Outcome.DELIVERED


@pytest.mark.requirement("SYNC-18")
def test_a_request_that_came_again_after_it_was_closed_is_there() -> None:
    world = SCENARIOS["closed_unanswered"]()
    world.receive("m1")
    assert outcome_of(world.rows, node="globex").outcome is Outcome.DELIVERED


@pytest.mark.requirement("RM-2")
def test_what_was_given_up_where_it_had_arrived_is_not_delivered() -> None:
    world = World()
    world.submit("m1")
    world.send("m1")
    world.receive("m1")
    world.ack("m1")
    world.acknowledged("m1")
    world.node("globex").add(Kind.ABANDONED, "m1", said=notes.Abandoned("pat"))
    for node in ("globex", None):
        outcome = outcome_of(world.rows, node=node)
        assert (outcome.outcome, outcome.reason) == (Outcome.NOT_DELIVERED, "given up by pat")
    assert outcome_of(world.rows, node="acme").outcome is Outcome.DELIVERED
