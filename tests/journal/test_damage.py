"""Damaged journals of real handlers: what is wrong is told, once, and nothing else is."""

from __future__ import annotations

import random

import pytest

from oncewire.journal.check import check_journal
from oncewire.journal.predicates.message import Extent
from oncewire.journal.row import MANDATORY, Row, problem_of
from oncewire.message.instant import DAY
from oncewire.protocol.notes import Kind
from tests.journal.changes import numbered
from tests.journal.damages import DAMAGES, Damage, last_node
from tests.journal.worlds import NAMES, renamed, rows_of


def test_there_are_enough_of_them() -> None:
    assert len({one.do for one in DAMAGES}) >= 100
    assert len({one.name for one in DAMAGES}) == len(DAMAGES)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_an_undamaged_world_is_clean(name: str) -> None:
    report = check_journal(rows_of(name), healed=True)
    assert report.clean, (*report.violations, *report.quarantined)
    assert set(report.extents) == {Extent.JUDGED}
    assert check_journal(renamed(rows_of(name), "other/"), healed=True).clean


@pytest.mark.parametrize("one", DAMAGES, ids=lambda one: one.name)
def test_a_damage_is_told_and_nothing_else_is(one: Damage) -> None:
    report = check_journal(one.rows(), healed=True)
    found = [*report.violations, *report.quarantined]
    assert sorted((each.predicate, each.kind) for each in found) == one.told, found
    assert not report.clean


def test_what_could_not_be_judged_is_counted() -> None:
    node = last_node(rows_of("plain"))
    rows = [row for row in rows_of("plain") if row.node != node or not 40 <= row.seq <= 90]
    report = check_journal(rows, healed=True)
    assert 0 < report.extents[Extent.IN_DOUBT] < report.messages
    assert sum(report.extents.values()) == report.messages


def test_a_hole_excuses_only_what_was_under_way_with_it() -> None:
    """A message of another month is judged as ever."""
    rows = [row for row in rows_of("plain") if row.kind != "confirmed" or row.seq < 60]
    node = last_node(rows)
    early = [row for row in rows if row.node == node][:3]
    later = [row if row in early else row._replace(at=row.at + 60 * DAY) for row in rows]
    later = [row for row in numbered(later) if (row.node, row.seq) != (node, 2)]
    report = check_journal(later, healed=True)
    assert [found.kind for found in report.quarantined] == ["hole"]
    assert report.kinds["unconfirmed"] > 5


def test_the_original_of_two_equal_journals_is_the_one_that_goes_further() -> None:
    rows = rows_of("plain")
    node = last_node(rows)
    for name, kept in (("a-copy", node), ("z-copy", node)):
        copy = [row._replace(node=name) for row in rows if row.node == node][:-10]
        report = check_journal([*rows, *copy], healed=True)
        assert [found.node for found in report.quarantined] == [name]
        assert kept in report.quarantined[0].sentence


@pytest.mark.long
@pytest.mark.parametrize("name", ["window", "laps", "hub", "plain", "failing"])
def test_whatever_rows_are_missing_that_they_are_is_all_that_is_told(name: str) -> None:
    """Wherever the hole lies and however large it is, while the journal goes on behind it."""
    rows, chance = rows_of(name), random.Random(name)
    ends = {row.node: row.seq for row in rows}
    for _ in range(40):
        row, count = chance.choice(rows), chance.choice((1, 1, 2, 10, 50))
        if row.seq == 1 or row.seq + count > ends[row.node]:
            continue
        gone = range(row.seq, row.seq + count)
        left = [one for one in rows if one.node != row.node or one.seq not in gone]
        report = check_journal(left, healed=True)
        found = [*report.violations, *report.quarantined]
        assert [one.kind for one in found] == ["hole"], (row, count, found)


# --- the contract of a row --------------------------------------------------------------------


def test_every_kind_has_its_mandatory_columns() -> None:
    assert set(MANDATORY) == {kind.value for kind in Kind}


@pytest.mark.parametrize("name", NAMES)
def test_what_handlers_write_keeps_the_contract(name: str) -> None:
    assert [problem_of(row) for row in rows_of(name)] == [None] * len(rows_of(name))


def test_a_row_without_what_its_kind_needs_breaks_it() -> None:
    row = Row(1, 1, 1, "boot", "acme", "confirmed")
    assert problem_of(row) == "a row 'confirmed' lacks its message_id"
    assert problem_of(row._replace(kind="conformed", message_id="m1")) == (
        "no journal of this version has the kind 'conformed'"
    )
    assert "no calendar" in str(problem_of(row._replace(at=-1, message_id="m1")))
    sent = Row(1, 1, 1, "boot", "acme", "failed", "m1", detail='{"outcome":7,"reason":"x"}')
    assert "`$.outcome`" in str(problem_of(sent))
    assert problem_of(sent) == problem_of(sent), "what is remembered of a detail is the same"


def test_a_thousand_holes_are_told_as_fewer() -> None:
    rows = [Row(seq * 2, 1, 1, "b", "acme", "stopped") for seq in range(1, 5_000)]
    report = check_journal(rows, healed=True)
    assert 500 < len(report.quarantined) <= 1_000
