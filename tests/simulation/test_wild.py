"""Wild worlds: a sample of their seeds in every run, twenty thousand in a soak."""

from __future__ import annotations

import json
import multiprocessing
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import pytest

from oncewire.agreement.toml import read_toml
from oncewire.lab.cli.simulate import run_seed
from oncewire.lab.simulation.connection import START
from oncewire.lab.simulation.draw import DIALECTS, FLOWS, draw
from oncewire.lab.simulation.papers import Paper, papers_of, tables_of
from oncewire.lab.simulation.plan import VALUES, Held, Plan, held_by
from oncewire.lab.simulation.world import Coverage, Result, Tally, World, options_of, shrink
from oncewire.protocol.terms import Terms

SAMPLE, BATCH = 200, 20
SOAK, SOAK_BATCH = 20_000, 1_000

# Everything that can be drawn, by the name it is counted by when it happens.
HAPPENINGS = {
    "lose", "repeat", "delay", "damage", "busy", "cut", "silent cut", "crash", "full disk",
    "clock set", "application refuses", "application forgets", "slow application",
    "agreement replaced", "agreement ended", "agreement removed", "agreement listed",
    "agreement unaddressed", "operator pause", "operator restart", "operator abandon",
    "operator resend", "operator ask", "operator reuse", "tale slander", "tale pause",
    "incident met", "transport failed", "transport taken again",
}  # fmt: skip


def told(result: Result) -> str:
    """A broken promise, and the smallest world that breaks it."""
    first = result.violations[0]
    small = shrink(draw(result.plan.seed), [first])
    return f"{small.plan.command}\n  {first.predicate} {first.kind}: {first.sentence}"


def judge(results: list[Result]) -> None:
    broken = [result for result in results if result.violations]
    assert not broken, "\n".join(
        [*(told(one) for one in broken[:2]), *(one.plan.command for one in broken[2:])]
    )


@pytest.mark.requirement("RM-2", "RM-17", "DUP-10", "HOP-1", "HOP-9", "ERR-5", "STO-3")
@pytest.mark.parametrize("first", range(0, SAMPLE, BATCH))
def test_a_sample_of_wild_worlds_breaks_no_promise(first: int) -> None:
    judge([run_seed(seed) for seed in range(first, first + BATCH)])


@pytest.mark.parametrize(
    "seed",
    [
        8,
        81,
        103,
        124,
        323,
        329,
        350,
        358,
        398,
        475,
        498,
        530,
        613,
        680,
        816,
        928,
        945,
        982,
        1128,
        1177,
        1272,
        1294,
        1375,
        1392,
        1456,
        1625,
        1976,
        1984,
        2108,
        2175,
        2240,
        2495,
        2586,
        3097,
        3143,
        3156,
        3491,
        3923,
        4082,
        4365,
        4997,
        5577,
        5580,
        5698,
        5980,
        7850,
        8939,
        9767,
        9969,
        11379,
        12277,
        12999,
        15152,
        15769,
        15886,
        16951,
        17566,
        17823,
        19338,
        18200,
        991003,
        4001751,
        4002732,
        4002859,
        4004197,
        4006589,
        4007922,
        4009699,
        5002326,
        5003048,
        5003399,
        5102103,
        5102570,
        5103342,
        5103650,
        5104138,
        6101969,
        7300820,
        8102262,
        8105165,
        8126061,
        8127924,
        8202397,
        8226576,
        8227058,
        8401837,
        8403410,
        8404866,
        8407993,
        8408746,
        8600279,
        8600608,
        8661426,
        8742363,
        8783848,
        9501711,
        9600509,
        9800879,
        1655,
        9901168,
        9901389,
        10026559,
        10200866,
        10202007,
        10207677,
        10502751,
        10625485,
        20017680,
        20022090,
        20025803,
        30005914,
        30007983,
        32900523,
        35017424,
        35100679,
        77100231,
        77102046,
    ],
)
def test_seeds_that_broke_a_promise_once(seed: int) -> None:
    """What each of them showed has a test of its own; a change of the draw may show it anew."""
    judge([run_seed(seed)])


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, SOAK, SOAK_BATCH))
def test_wild_worlds_at_length(first: int) -> None:
    context = multiprocessing.get_context("spawn")
    tally = Tally()
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        for result in pool.map(run_seed, range(first, first + SOAK_BATCH), chunksize=20):
            tally.add(result)
    print(f"options: {dict(sorted(tally.options.items()))}")
    print(f"happened: {dict(sorted(tally.happened.items()))}")
    print(f"{tally.cpu_seconds / tally.worlds:.3f} core-seconds a world")
    assert not HAPPENINGS - set(tally.happened), HAPPENINGS - set(tally.happened)
    judge(tally.broken)


@pytest.mark.requirement("STO-3")
def test_a_sender_that_is_deaf_to_its_partner_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown is an honest outcome; that the partner's word came and was ignored shows more."""
    monkeypatch.setattr(
        "oncewire.handler.receiving.agreement_match.place_as_answer", lambda *_: None
    )
    assert "deaf" in {one.kind for one in run_seed(85).violations}


# --- the draw -----------------------------------------------------------------------------------


def test_one_seed_is_one_world() -> None:
    # One with crashes, a clock that is set and an agreement that changes.
    seed = next(seed for seed in range(1, 400) if len(set(map(type, draw(seed).events))) > 3)
    assert draw(seed) == draw(seed)
    first, second = World(draw(seed)), World(draw(seed))
    assert first.run().violations == second.run().violations
    rows = [[row for one in world.machines for row in one.rows()] for world in (first, second)]
    assert rows[0] == rows[1]
    assert draw(seed + 1) != draw(seed)


def test_what_is_taken_away_leaves_the_rest_as_it_was() -> None:
    plan = draw(3)
    part = plan.only((0, 2), (1,))
    assert part.orders == (plan.orders[0], plan.orders[2])
    assert part.events == (plan.events[1],)
    assert part.command == ("oncewire simulate --wild --seed 3 --only-messages 0,2 --only-events 1")
    assert plan.only((), ()).command.endswith("--only-messages none --only-events none")


def _as_file(paper: Paper) -> str:
    """The agreement file that the tables of a paper are those of."""
    table = tables_of(paper)
    lines = [
        f"{key} = {json.dumps(said)}" for key, said in table.items() if type(said) in (str, bool)
    ]
    for section, values in table.items():
        if isinstance(values, dict):
            lines += [f"[{section}]"] + [
                f"{key} = {json.dumps(said)}" for key, said in values.items()
            ]
    for entry in table.get("actions", ()):
        lines += ["[[actions]]"] + [f"{key} = {json.dumps(said)}" for key, said in entry.items()]
    return "\n".join(lines)


def test_what_a_world_agrees_on_could_stand_in_a_file() -> None:
    settings = [draw(seed).setting for seed in range(40)]
    papers = [paper for each in settings for node in each.nodes for paper in papers_of(each, node)]
    papers += [replace(papers[0], end=START, listed=True), replace(papers[0], unaddressed=True)]
    assert any(paper.signed for paper in papers)
    assert any(paper.via for paper in papers)
    for paper in papers:
        assert read_toml(_as_file(paper)) == paper.agreement


def held(seeds: range) -> set[Held]:
    found: set[Held] = set()
    for seed in seeds:
        setting = draw(seed).setting
        papers = [paper for node in setting.nodes for paper in papers_of(setting, node)]
        found |= {held_by(paper.agreement.sending.terms) for paper in papers}
    return found


def test_every_term_takes_part() -> None:
    coverage = Coverage.of(held(range(250)))
    assert coverage.terms == len(Terms.__struct_fields__)
    values = Counter(value.partition("=")[0] for pair in coverage.covered for value in set(pair))
    assert set(values) == {*Terms.__struct_fields__}
    several = {one.partition("=")[0] for one in _varied(coverage)}
    assert several == {*Terms.__struct_fields__}


def _varied(coverage: Coverage) -> set[str]:
    """Values of terms that have more than one."""
    values = {value for pair in coverage.covered for value in pair}
    names = Counter(value.partition("=")[0] for value in values)
    return {value for value in values if names[value.partition("=")[0]] > 1}


def test_a_pair_that_is_missing_is_told_from_one_that_contradicts_itself() -> None:
    coverage = Coverage.of(held(range(30)))
    missing = coverage.missing()
    assert missing
    assert not set(missing) & coverage.covered
    contradicting = coverage.conceivable - coverage.covered - set(missing)
    # Numbers are agreed for reliable messages only (HDR-3).
    assert ("numbered=true", "reliable=false") in contradicting


@pytest.mark.soak
def test_two_thousand_seeds_have_every_pair_of_terms() -> None:
    coverage = Coverage.of(held(range(2_000)))
    missing = coverage.missing()
    print(f"{coverage.terms} terms, {coverage.values} values, {len(coverage.covered)} pairs")
    assert len(missing) <= 10, missing


def test_calm_worlds_go_through_dialects_flows_and_hop_modes() -> None:
    options: Counter[str] = Counter()
    for seed in range(0, 1_080, 10):
        plan = draw(seed)
        assert plan.setting.calm
        assert not plan.events
        options.update(options_of(plan))
    wanted = [f"dialect {one}" for one in DIALECTS]
    wanted += [f"flow {one}" for one in FLOWS]
    wanted += [f"hop {one}" for one in VALUES["hop.mode"]]
    wanted += ["hubs 0", "hubs 1", "hubs 2"]
    assert not [name for name in wanted if options[name] < 10], options


def test_whatever_is_drawn_happens() -> None:
    happened: Counter[str] = Counter()
    for seed in range(1, 400):
        if set(happened) >= HAPPENINGS:
            break
        plan = draw(seed)
        if _brings_something_new(plan, happened):
            happened += World(plan).run().happened
    assert not HAPPENINGS - set(happened), HAPPENINGS - set(happened)


def _brings_something_new(plan: Plan, happened: Counter[str]) -> bool:
    """Whether a plan names something that was not seen yet; the others need not be run."""
    words = {
        word
        for event in plan.events
        for word in (
            getattr(getattr(event, name, None), "value", "")
            for name in ("harm", "mood", "turn", "deed", "tale")
        )
        if word
    }
    words |= {type(event).__name__ for event in plan.events}
    seen = " ".join(happened)
    return any(word not in seen for word in words)


# --- shrinking ----------------------------------------------------------------------------------


def test_a_world_shrinks_to_what_breaks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Applications that never hear of a failure are found, and little is left of their world."""
    monkeypatch.setattr("oncewire.handler.runtime.engine.Engine.notices", lambda self, limit: [])
    broken = next(result for seed in range(1, 200) if (result := run_seed(seed)).violations)
    plan = draw(broken.plan.seed)
    small = shrink(plan, broken.violations[:1])
    first = broken.violations[0]
    assert (first.predicate, first.kind) in {(one.predicate, one.kind) for one in small.violations}
    assert small.plan.kept is not None
    assert len(small.plan.orders) + len(small.plan.events) < len(plan.orders) + len(plan.events)
    # The command runs exactly what is left.
    again = World(plan.only(*small.plan.kept)).run()
    assert again.violations == small.violations


def test_nothing_that_is_left_can_be_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = draw(next(seed for seed in range(1, 200) if len(draw(seed).events) > 8))
    guilty = (plan.events[2], plan.events[7])

    def run(tried: Plan) -> Result:
        breaks = all(one in tried.events for one in guilty) and plan.orders[1] in tried.orders
        found = Result(tried, ())
        return Result(tried, _violations()) if breaks else found

    monkeypatch.setattr("oncewire.lab.simulation.world.run", run)
    small = shrink(plan, _violations())
    assert small.plan.events == guilty
    assert small.plan.orders == (plan.orders[1],)


def _violations():  # type: ignore[no-untyped-def]
    from oncewire.journal.predicates.context import Violation

    return (Violation("S4", "lost", None, None, None, "It is lost."),)
