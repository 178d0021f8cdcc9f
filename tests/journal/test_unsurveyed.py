"""The folds by themselves: what they say of rows that nobody has looked over before them."""

from __future__ import annotations

from collections.abc import ValuesView

import pytest
from msgspec.structs import replace

from oncewire.journal import check
from oncewire.journal import row as contract
from oncewire.journal.check import check_journal
from oncewire.journal.predicates import channel as sending
from oncewire.journal.predicates.context import Context, terms_digest
from oncewire.journal.row import Row, problem_of
from oncewire.message.instant import HOUR
from oncewire.protocol.notes import Kind
from oncewire.protocol.terms import Terms
from tests.journal.changes import change, find, numbered, repeat
from tests.journal.histories import ORDERED, World
from tests.journal.scenarios import SCENARIOS

NONSENSE = '{"outcome":7}'


@pytest.mark.parametrize(
    ("scenario", "kind", "message_id"),
    [
        ("unknown", Kind.FAILED, "m1"),
        ("transient", Kind.TRANSIENT, "m0"),
        ("split", Kind.JOINED, "doc"),
    ],
)
def test_each_fold_says_what_it_cannot_read(
    monkeypatch: pytest.MonkeyPatch, scenario: str, kind: Kind, message_id: str
) -> None:
    """A second line behind the contract of a row: whatever passes that stops nobody's judgement."""
    monkeypatch.setattr(check, "problem_of", lambda row: None)
    rows = SCENARIOS[scenario]().rows
    spoilt = change(rows, find(rows, kind, message_id)[0], detail=NONSENSE)
    report = check_journal(spoilt, healed=False)
    assert {found.kind for found in report.quarantined} == {"unreadable"}
    assert message_id in {found.message_id for found in report.quarantined}
    assert report.violations == ()
    assert report.messages == check_journal(rows, healed=False).messages


def test_a_message_that_cannot_be_read_has_no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "problem_of", lambda row: None)
    rows = SCENARIOS["unknown"]().rows
    report = check_journal(change(rows, find(rows, Kind.FAILED)[0], detail=NONSENSE), healed=False)
    assert not report.outcomes
    assert report.extents == {"in_doubt": 1}


# --- the contract -------------------------------------------------------------------------------


def test_what_is_remembered_of_details_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "_KNOWN_MAX", 3)
    monkeypatch.setattr(contract, "_known", {})
    for count in range(10):
        row = Row(1, 1, 1, "boot", "acme", "failed", "m1", detail=f'{{"outcome":{count}}}')
        assert f'"outcome":{count}' in str(problem_of(row))
        assert len(contract._known) <= 3


def test_a_detail_where_the_kind_has_none_is_nobodys_trouble() -> None:
    assert problem_of(Row(1, 1, 1, "boot", "acme", "stopped", detail="in a hurry")) is None


# --- the context --------------------------------------------------------------------------------


def test_terms_without_an_id_explain_nothing() -> None:
    row = Row(1, 1, 1, "boot", "acme", "terms", detail="{}")
    context = Context.gather([row], healed=True)
    assert (context.terms, context.problems) == ({}, [])
    assert terms_digest("{") is None


def test_nothing_is_settled_on_a_node_whose_end_nobody_knows() -> None:
    context = Context(healed=False, through={"acme": 2**60})
    assert context.is_healed(0, ("acme",))
    assert not context.is_healed(0, ("globex",))
    assert context.horizon(("globex",), None) is None


# --- journals that are copies -------------------------------------------------------------------


def test_how_long_anything_may_be_under_way_is_asked_of_all_terms_once() -> None:
    """It is asked for every message, and there are as many terms as there are agreements."""

    class Watched(dict[str, Terms]):
        passes = 0

        def values(self) -> ValuesView[Terms]:
            self.passes += 1
            return super().values()

    watched = Watched(brief=replace(ORDERED, persist_duration=HOUR))
    context = Context(healed=False, terms=watched)
    for _ in range(100):
        assert context.wait_of(None) == 2 * HOUR
    assert watched.passes == 1
    watched["long"] = replace(ORDERED, persist_duration=5 * HOUR)
    assert context.wait_of(None) == 10 * HOUR
    assert context.wait_of(watched["brief"]) == 6 * HOUR
    assert watched.passes == 2


def test_what_is_missing_or_set_aside_in_a_copy_is_told_of_nobody() -> None:
    rows = SCENARIOS["window"]().rows
    copy = [row._replace(node="a-copy") for row in rows if row.node == "globex"][:-8]
    copy = [row for row in copy if row.seq != 9]
    copy[10] = copy[10]._replace(kind="teleported")
    report = check_journal([*rows, *copy], healed=True)
    assert [(found.kind, found.node) for found in report.quarantined] == [("copied", "a-copy")]
    assert not report.violations
    assert report.extents == {"judged": report.messages}


# --- S1 -----------------------------------------------------------------------------------------


def test_what_came_through_a_hub_that_kept_nothing_has_no_known_origin() -> None:
    """The submission has other content, and the hub does not say whom it has the message from."""
    rows = SCENARIOS["hub_that_passes_on"]().rows
    rows = [row for row in rows if row.node != "acme"]
    assert check_journal(numbered(rows), healed=True).violations == ()


# --- streams ------------------------------------------------------------------------------------


def received(world: World) -> list[Row]:
    return [row for row in world.rows if row.node == "globex"]


def kinds(rows: list[Row]) -> dict[str, int]:
    return dict(check_journal(rows, healed=False).kinds)


def stream(count: int) -> World:
    """An ordered stream whose messages arrive and are handed over one by one."""
    world = World(ORDERED)
    for index in range(count):
        world.number(f"m{index}", index % 10, status="Reset" if index < 4 else "Continue")
        world.arrive(f"m{index}")
    return world


def test_a_skip_behind_a_hole_does_not_say_where_the_stream_is() -> None:
    rows = received(stream(8))
    last = find(rows, Kind.CONFIRMED, "m3")[0]
    gone = range(last.seq + 1, find(rows, Kind.RECEIVED, "m6")[0].seq)
    skipped = find(rows, Kind.RECEIVED, "m6")[0]
    rows = [row for row in rows if row.seq not in gone]
    rows = [row for row in rows if row.message_id != "m6" or row.kind == Kind.RECEIVED]
    rows = change(rows, skipped, kind=Kind.SKIPPED.value, detail='{"reason":"never came"}')
    report = check_journal(rows, healed=False)
    assert {found.kind for found in report.quarantined} == {"hole"}
    assert report.violations == ()


def test_a_hand_over_without_a_number_uses_one_up() -> None:
    rows = received(stream(6))
    handed = find(rows, Kind.HANDED_OVER, "m2")[0]
    assert kinds(change(rows, handed, sequence_number=None)) == {}
    assert kinds(change(rows, handed, sequence_number=77)) == {"contradiction": 1}
    arrived = find(rows, Kind.RECEIVED, "m2")[0]
    both = change(change(rows, handed, sequence_number=77), arrived, sequence_number=77)
    assert kinds(both) == {"gap": 1}


def test_a_message_that_is_handed_over_again_leaves_its_stream_as_it_was() -> None:
    rows = received(stream(6))
    again = repeat(rows, find(rows, Kind.HANDED_OVER, "m2")[0])
    assert kinds(again) == {"twice": 1}


def test_a_run_that_comes_late_is_told_once() -> None:
    world = World(ORDERED)
    for index in range(4):
        world.number(f"m{index}", index, status="Reset")
        world.receive(f"m{index}")
    for index in (0, 3, 1, 2):
        world.hand_over(f"m{index}")
    assert kinds(received(world)) == {"out_of_order": 1}


def test_a_run_of_numbers_that_are_used_again_is_told_once() -> None:
    world = stream(5)
    for index in (1, 2, 3):
        world.number(f"other{index}", index)
        world.arrive(f"other{index}")
    world.number("m5", 5)
    world.arrive("m5")
    assert kinds(received(world)) == {"repeated_number": 1}


def sent(*numbers: tuple[str, int], acknowledged: str = "") -> list[Row]:
    """What a sender writes that gives these numbers; one is acknowledged at once."""
    world = World(ORDERED)
    for index, (message_id, number) in enumerate(numbers):
        world.number(message_id, number, status="Reset" if index < 4 else "Continue")
        if message_id == acknowledged:
            world.acknowledged(message_id)
    return world.rows


def wrong_numbers(rows: list[Row]) -> list[str]:
    return [
        found.kind
        for found in check_journal(rows, healed=False).violations
        if found.predicate == "S8"
    ]


def test_a_wrong_number_is_told_once_whatever_was_settled_meanwhile() -> None:
    jump = [("m0", 0), ("m1", 1), ("m2", 3), ("m3", 3)]
    assert wrong_numbers(sent(*jump)) == ["gap"]
    assert wrong_numbers(sent(*jump, acknowledged="m2")) == ["gap"]


def test_a_message_whose_wrong_number_is_written_twice_is_told_once() -> None:
    assert wrong_numbers(sent(("m0", 0), ("m1", 3), ("m1", 6))) == ["gap"]


def test_of_those_that_were_told_only_the_last_are_kept_in_mind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = [("m0", 0), ("m1", 3), ("m2", 6), ("m1", 9)]
    assert wrong_numbers(sent(*wrong)) == ["gap", "gap"]
    monkeypatch.setattr(sending, "TOLD_MAX", 1)
    assert wrong_numbers(sent(*wrong)) == ["gap", "gap", "gap"]
