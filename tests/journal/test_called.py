"""What stands still while an operator is called is no loss; what is gone afterwards is."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from oncewire.journal.row import Row
from oncewire.protocol import notes
from oncewire.protocol.notes import Kind
from tests.journal.changes import change, drop, find, insert, judged
from tests.journal.histories import ORDERED, World
from tests.journal.scenarios import SCENARIOS


def told(rows: list[Row]) -> list[tuple[str, str, str | None]]:
    report = judged(rows, healed=True)
    assert not report.quarantined
    return [(found.predicate, found.kind, found.node) for found in report.violations]


HELD = [("stranded_at_a_hub", "hub"), ("withheld", "globex")]
WAYS = ["with the sender's journal", "seen by its holder alone"]


def held(name: str, node: str, way: str) -> tuple[list[Row], Row]:
    """The rows of a scenario, and the one that says that its operator was called."""
    rows = SCENARIOS[name]().rows
    if way == WAYS[1]:
        rows = [row for row in rows if row.node == node]
    return rows, find(rows, Kind.INCIDENT)[0]


@pytest.mark.requirement("HOP-8")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "node"), HELD)
def test_while_the_operator_is_called_nothing_is_lost(name: str, node: str, way: str) -> None:
    rows, incident = held(name, node, way)
    assert told(rows) == []
    assert told(drop(rows, incident)) == [("S4", "lost", node)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "node"), HELD)
def test_an_incident_that_is_resolved_excuses_nothing(name: str, node: str, way: str) -> None:
    rows, incident = held(name, node, way)
    resolved = incident._replace(kind=Kind.RESOLVED, detail=notes.Resolved("1").write())
    rows = insert(rows, incident, resolved)
    assert told(rows) == [("S4", "lost", node)]
    again = insert(rows, find(rows, Kind.RESOLVED)[0], incident)
    assert told(again) == [], "called once more"


@pytest.mark.parametrize(("name", "node"), HELD)
def test_what_was_given_up_does_not_wait(name: str, node: str) -> None:
    rows, incident = held(name, node, WAYS[0])
    given_up = incident._replace(kind=Kind.ABANDONED, detail=None)
    assert told(insert(rows, incident, given_up)) == [("S4", "lost", node)]


@pytest.mark.requirement("HOP-9")
def test_what_a_hub_gave_up_is_not_lost_if_it_told_the_from_party() -> None:
    """The notice is a message of its own: whether it came is not asked of this one."""
    rows, incident = held(*HELD[0], WAYS[0])
    given_up = incident._replace(kind=Kind.ABANDONED, detail=None)
    said = notes.Failed("not_delivered", "abandoned").write()
    failed = incident._replace(kind=Kind.FAILED, detail=said)
    rows = insert(rows, incident, given_up)
    rows = insert(rows, find(rows, Kind.ABANDONED)[0], failed)
    assert told(rows) == [("S4", "lost", "hub")], "nobody was told"
    notified = incident._replace(kind=Kind.NOTIFIED, detail=notes.Notified("Error").write())
    assert told(insert(rows, find(rows, Kind.FAILED)[0], notified)) == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "node"), HELD)
def test_an_incident_of_another_message_excuses_nothing(name: str, node: str, way: str) -> None:
    rows, incident = held(name, node, way)
    assert told(change(rows, incident, message_id="other")) == [("S4", "lost", node)]


@pytest.mark.parametrize(("name", "node"), HELD)
def test_an_incident_of_another_node_excuses_nothing(name: str, node: str) -> None:
    rows, incident = held(name, node, WAYS[0])
    elsewhere = insert(drop(rows, incident), find(rows, Kind.ACKNOWLEDGED)[0], incident)
    assert find(elsewhere, Kind.INCIDENT)[0].node == "acme"
    assert told(elsewhere) == [("S4", "lost", node)]


def test_the_resolution_of_another_message_leaves_it_called() -> None:
    rows, incident = held(*HELD[0], WAYS[1])
    resolved = incident._replace(
        kind=Kind.RESOLVED, message_id="other", detail=notes.Resolved("2").write()
    )
    assert told(insert(rows, incident, resolved)) == []


# --- behind one that cannot go on --------------------------------------------------------------


def stream(*epochs: int, begin: int = 8) -> list[Row]:
    """Messages of an ordered stream, each in that epoch of its receiver's; the application has
    the first of them, the operator was called because of the second."""
    world = World(ORDERED)
    numbers: dict[int, int] = {}
    for index, epoch in enumerate(epochs):
        name, number = f"m{index}", numbers.get(epoch, begin) % 10
        numbers[epoch] = number + 1
        world.submit(name)
        world.number(name, number, epoch + 1, status="Reset" if number == begin else "Continue")
        world.send(name)
        world.receive(name, epoch=epoch)
        world.ack(name)
        world.acknowledged(name)
        if index == 0:
            world.hand_over(name)
            world.confirm(name)
    world.node("globex").add(
        Kind.INCIDENT,
        "m1",
        said=notes.Incident("1", "it cannot be read"),
        **world.places["m1@globex"],
    )
    return world.rows


def lost(rows: list[Row]) -> list[str | None]:
    report = judged(rows, healed=True)
    assert not report.quarantined
    return [found.message_id for found in report.violations if found.kind == "lost"]


@pytest.mark.parametrize("way", WAYS)
def test_behind_one_that_cannot_go_on_nothing_is_lost(way: str) -> None:
    """Numbers wrap around on the way: 8, 9, 0, 1."""
    rows = stream(0, 0, 0, 0)
    if way == WAYS[1]:
        rows = [row for row in rows if row.node == "globex"]
    (incident,) = find(rows, Kind.INCIDENT)
    # Its holder alone cannot tell that the turn of the others had come.
    gone = ["m1", "m2", "m3"] if way == WAYS[0] else ["m1"]
    assert lost(rows) == []
    assert lost(drop(rows, incident)) == gone
    resolved = incident._replace(kind=Kind.RESOLVED, detail=notes.Resolved("1").write())
    assert lost(insert(rows, incident, resolved)) == gone


def test_what_stands_before_it_or_elsewhere_is_lost() -> None:
    rows = stream(0, 0, 0, 0)
    (incident,) = find(rows, Kind.INCIDENT)
    behind = ["m2", "m3"]
    assert lost(drop(rows, incident)) == ["m1", *behind]
    # As if the operator had been called because of the last one.
    last = incident._replace(message_id="m3", sequence_number=1)
    assert lost(insert(drop(rows, incident), rows[rows.index(incident) - 1], last)) == ["m1", "m2"]
    assert lost(change(rows, incident, channel="another")) == behind
    assert lost(change(rows, incident, epoch=1)) == behind
    assert lost(change(rows, incident, epoch=None, sequence_number=None)) == behind


def test_at_a_hub_each_to_party_waits_for_itself_alone() -> None:
    rows = stream(0, 0, 0)
    other = notes.Received(to_party="urn:party:initech")
    (m2,) = find(rows, Kind.RECEIVED, "m2")
    rows = change(rows, m2, said=other)
    (started,) = find(rows, Kind.STARTED, node="acme")
    declared = notes.Started.read(started.detail)
    rows = change(
        rows, started, said=replace(declared, parties=(*declared.parties, "urn:party:initech"))
    )
    assert lost(rows) == ["m2"]


@pytest.mark.parametrize("way", WAYS)
def test_an_epoch_waits_for_the_one_before(way: str) -> None:
    rows = stream(0, 0, 1, 1, begin=0)
    if way == WAYS[1]:
        rows = [row for row in rows if row.node == "globex"]
    (incident,) = find(rows, Kind.INCIDENT)
    assert lost(rows) == []
    assert lost(drop(rows, incident))[:2] == ["m1", "m2"]
