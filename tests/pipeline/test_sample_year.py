"""The year that is generated: honest where nothing is planted, broken exactly where it is."""

from collections import Counter
from itertools import combinations, product
from pathlib import Path

import pytest

from oncewire.journal.check import JournalReport, check_journal
from oncewire.lab.sample_year import plan as pairwise
from oncewire.lab.sample_year.generate import rows_of_year, units, write_unit
from oncewire.lab.sample_year.plan import DAYS_MIN, RECIPES, YEAR, Plan, make_plan
from oncewire.message.instant import DAY, MINUTE
from oncewire.protocol import notes
from oncewire.protocol.notes import Kind
from tests.pipeline.books import PROMISES


def judged(plan: Plan) -> JournalReport:
    settled = plan.end - 2 * DAY - MINUTE
    return check_journal(rows_of_year(plan), healed=False, healed_before=settled)


def test_every_kind_of_violation_has_a_recipe() -> None:
    assert {recipe.kind for recipe in RECIPES} == PROMISES


@pytest.mark.long
def test_every_possible_pair_of_values_occurs() -> None:
    names = list(pairwise.DIMENSIONS)
    chosen = [
        {
            **{name: getattr(deal.terms, name) for name in names if hasattr(deal.terms, name)},
            "way": "hub" if deal.hub else "direct",
            "signed": deal.signed,
            "shape": _shape(deal.terms),
        }
        for deal in pairwise.deals()
    ]
    covered = {
        (one, deal[one], other, deal[other])
        for deal in chosen
        for one, other in combinations(names, 2)
    }
    possible = set()
    for bound in product(*(pairwise.DIMENSIONS[name] for name in pairwise.BOUND)):
        fixed = dict(zip(pairwise.BOUND, bound, strict=True))
        for one, other in combinations(names, 2):
            for a, b in product(_values(one, fixed), _values(other, fixed)):
                choice = {name: values[0] for name, values in pairwise.DIMENSIONS.items()}
                if pairwise._deal({**choice, **fixed, one: a, other: b}) is not None:
                    possible.add((one, a, other, b))
    assert len(possible) > 500
    assert possible - covered == set()


def _values(name: str, fixed: dict) -> tuple:
    return (fixed[name],) if name in fixed else pairwise.DIMENSIONS[name]


def _shape(terms) -> str:
    if not terms.numbered:
        return "plain" if terms.reliable else "best_effort"
    if not terms.ordered:
        return "numbered"
    return {"stop-and-wait": "stop_and_wait", "unrestricted": "unrestricted"}.get(
        terms.flow.value, "ordered"
    )


@pytest.mark.long
@pytest.mark.parametrize(("seed", "days"), [(1, YEAR), (2, YEAR), (3, DAYS_MIN)])
def test_the_checker_finds_what_was_planted_and_nothing_else(seed: int, days: int) -> None:
    plan = make_plan(6_000, seed, days)
    report = judged(plan)
    found = Counter((one.kind, one.message_id) for one in report.violations)
    planted = Counter(plan.violations)
    print(f"seed {seed}: {len(plan.violations)} planted, {report.messages} messages")
    assert planted - found == Counter()
    assert found - planted == Counter()
    assert not report.quarantined
    assert len({kind for kind, _ in plan.violations}) >= 20
    assert {"delivered", "not_delivered", "unknown", "sent"} <= set(report.outcomes)


@pytest.fixture(scope="module")
def large_plan() -> Plan:
    """A year of a million messages; only planned, not written."""
    return make_plan(1_000_000, 6)


@pytest.mark.long
@pytest.mark.parametrize("stream", [2, 6, 20, 66, 152, 2175])
def test_trouble_right_before_a_fault_does_not_undo_it(large_plan: Plan, stream: int) -> None:
    """Retries filled the window that was to be exceeded, or the epoch ended where it mattered."""
    plan = large_plan
    rows = rows_of_year(plan, [stream])
    report = check_journal(rows, healed=False, healed_before=plan.end - 2 * DAY - MINUTE)
    forces = plan.streams[stream].forces
    assert len(report.violations) == sum(bool(force.misbehaviour) for force in forces.values())
    assert {(one.kind, one.message_id) for one in report.violations} <= set(plan.violations)


def test_it_asks_the_protocol_and_not_the_judge() -> None:
    """A rule that the judge and the generator shared would be judged by itself."""
    folder = Path(pairwise.__file__).parent
    for module in folder.glob("*.py"):
        text = module.read_text(encoding="utf-8")
        assert "journal.predicates" not in text, module.name
        assert "journal.check" not in text, module.name


def test_best_effort_is_sent_once_and_some_of_it_never_arrives() -> None:
    plan = make_plan(6_000, 1)
    chosen = [stream.index for stream in plan.streams if not stream.terms.reliable]
    kinds = Counter(row.kind for row in rows_of_year(plan, chosen))
    assert kinds[Kind.SENT] == kinds[Kind.SUBMITTED] > kinds[Kind.RECEIVED] > 100
    assert kinds[Kind.HANDED_OVER] >= kinds[Kind.RECEIVED] == kinds[Kind.CONFIRMED]
    assert not kinds[Kind.ACK_SENT]
    assert not kinds[Kind.ACKNOWLEDGED]


@pytest.mark.long
def test_a_year_has_what_years_have() -> None:
    plan = make_plan(6_000, 1)
    rows = list(rows_of_year(plan))
    kinds = Counter(row.kind for row in rows)
    for kind in (
        Kind.DUPLICATE, Kind.REFUSED, Kind.SKIPPED, Kind.EPOCH_BEGAN, Kind.JOINED, Kind.FORWARDED,
        Kind.SUSPENDED, Kind.RESUMED, Kind.TRANSIENT, Kind.EXPIRED, Kind.SEND_FAILED,
    ):  # fmt: skip
        assert kinds[kind.value], kind
    details = Counter(word for row in rows for word in ("redelivered", '"late":true')
                      if word in (row.detail or ""))  # fmt: skip
    assert set(details) == {"redelivered", '"late":true'}
    wraps = {
        (row.node, row.channel, row.epoch)
        for row in rows
        if row.kind == Kind.NUMBERED and row.sequence_number == 63
    }
    assert wraps, "no stream of the short range wrapped around"
    assert len({row.boot for row in rows}) > len(plan.handlers)
    # Every node's positions run from 1 without a hole, in the order of its clock.
    for node in {row.node for row in rows}:
        own = [row for row in rows if row.node == node]
        assert [row.seq for row in own] == list(range(1, len(own) + 1))


def test_one_seed_is_one_year_and_another_seed_another() -> None:
    plan = make_plan(300, 5)
    backwards = [write_unit(plan, unit) for unit in reversed(range(units(plan)))]
    forwards = [write_unit(plan, unit) for unit in range(units(plan))]
    assert forwards == backwards[::-1]
    assert (
        plan.violations != make_plan(300, 6).violations or plan.streams != make_plan(300, 6).streams
    )


@pytest.mark.parametrize("messages", [1, 9, 57])
def test_a_tiny_year_is_clean_or_told(messages: int) -> None:
    plan = make_plan(messages, 1)
    report = judged(plan)
    assert Counter((one.kind, one.message_id) for one in report.violations) == Counter(
        plan.violations
    )
    submitted = [
        notes.Submitted.read(row.detail) for row in rows_of_year(plan) if row.kind == Kind.SUBMITTED
    ]
    assert sum(not said.is_part for said in submitted) == messages
