"""L3: a world that calls itself calm has no excuse."""

import pytest

from oncewire.protocol import notes
from oncewire.protocol.notes import Kind
from tests.journal.changes import drop, find, judged
from tests.journal.scenarios import SCENARIOS

CALM = (
    "plain",
    "window",
    "hub",
    "hub_in_a_stream",
    "hub_that_passes_on",
    "transparent_hub",
    "signed",
    "split",
    "silent_reset",
    "one_id_of_two_parties",
)


@pytest.mark.parametrize("name", CALM)
def test_a_calm_world_is_clean(name: str) -> None:
    assert judged(SCENARIOS[name]().rows, healed=True, calm=True).clean


@pytest.mark.parametrize(
    "name",
    ["unknown", "refused", "expired_unsent", "connection_refused", "suspended_and_resumed"],
)
def test_whoever_is_told_of_a_failure_is_told_wrong(name: str) -> None:
    rows = SCENARIOS[name]().rows
    assert judged(rows, healed=True).clean
    report = judged(rows, healed=True, calm=True)
    assert ("L3", "wrong_outcome") in {(one.predicate, one.kind) for one in report.violations}


def test_an_acknowledgement_that_is_thrown_away_is_told() -> None:
    world = SCENARIOS["plain"]()
    said = notes.Refused("ValueNotRecognized", signal="acknowledgement")
    world.node("acme").add(Kind.REFUSED, "ack-of-m1-by-globex", ref_to="m1", said=said)
    (found,) = judged(world.rows, healed=True, calm=True).violations
    assert (found.predicate, found.message_id, found.node) == ("L3", "ack-of-m1-by-globex", "acme")


def test_a_signal_that_is_refused_is_no_message_that_was_not_delivered() -> None:
    world = SCENARIOS["plain"]()
    before = judged(world.rows, healed=True)
    said = notes.Refused("ValueNotRecognized", signal="acknowledgement")
    world.node("acme").add(Kind.REFUSED, "ack-of-m7-by-globex", ref_to="m7", said=said)
    after = judged(world.rows, healed=True)
    assert (after.messages, after.outcomes) == (before.messages, before.outcomes)
    # What else is known of that id counts; and a message that was refused is one.
    world.node("acme").add(Kind.REFUSED, "m8", said=notes.Refused("ValueNotRecognized"))
    world.node("acme").add(Kind.REFUSED, "m8", said=said)
    counted = judged(world.rows, healed=True)
    assert counted.messages == before.messages + 1
    assert counted.outcomes["not_delivered"] == before.outcomes["not_delivered"] + 1


def test_best_effort_arrives_too() -> None:
    report = judged(SCENARIOS["best_effort"]().rows, healed=True, calm=True)
    told = [(one.predicate, one.kind, one.message_id) for one in report.violations]
    # Nobody confirms m1, and m2 never came.
    assert told == [("L3", "lost", "m1"), ("L3", "lost", "m2")]


def test_one_cause_is_told_once() -> None:
    rows = SCENARIOS["plain"]().rows
    globex = [row for row in rows if row.node == "globex" and row.message_id is not None]
    lost = drop(rows, *globex, *find(rows, Kind.ACKNOWLEDGED))
    (found,) = judged(lost, healed=True, calm=True).violations
    assert (found.predicate, found.kind) == ("S4", "lost")
