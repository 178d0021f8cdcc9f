"""`oncewire simulate --wild` at the command line."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.main import build
from oncewire.lab.cli.simulate import ONLY_WILD, WITH_WILD
from oncewire.lab.simulation.draw import draw
from tests.entry.terminal import run, run_json
from tests.parts import ROOT


@pytest.mark.long
def test_worlds_are_counted_by_what_they_were() -> None:
    told = run_json("simulate", "--wild", "--seeds", "1:4")
    assert told["worlds"] == 3
    assert told["seeds"] == "1..3"
    assert told["violations"] == 0
    assert sum(count for name, count in told["options"].items() if name.startswith("dialect")) == 3
    assert told["terms"] > 30
    assert told["pairs"] > 500
    assert run_json("simulate", "--wild", "--seeds", "1..3")["options"] == told["options"]


def test_a_part_of_a_world_runs_alone() -> None:
    assert len(draw(3).orders) > 1
    told = run_json("simulate", "--wild", "--seed", "3", "--only-messages", "0")
    assert told["messages"] == 1
    told = run_json(
        "simulate", "--wild", "--seed", "3", "--only-messages", "none", "--only-events", "none"
    )
    assert told["messages"] == 0


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--only-messages", "99"), "does not choose among"),
        (("--only-events", "one"), "does not choose among"),
        (("--seeds", "5:5"), "no range of seeds"),
        (("--seeds", "9..3"), "no range of seeds"),
        (("--loss", "0.2"), "--loss would count for nothing: the seed draws it"),
        (("--hop-mode", "x", "--window", "3"), "--hop-mode, --window would count for nothing"),
    ],
)
def test_a_slip_is_told(words: tuple[str, ...], cause: str) -> None:
    result = run("simulate", "--wild", "--seed", "3", *words, exit_code=output.BAD_INPUT)
    assert cause in result.stderr


def test_every_option_counts_in_a_wild_world_or_is_refused() -> None:
    """Or a new one would be passed over in silence."""
    command: Any = typer.main.get_command(build())
    names = {each.name for each in command.commands["simulate"].params}
    assert names - {"help"} >= WITH_WILD > ONLY_WILD
    drawn = names - WITH_WILD - {"help"}
    assert {"loss", "messages", "profile", "agreement_text"} <= drawn
    for name in drawn:
        flag = "--" + name.replace("_", "-")
        result = run("simulate", "--wild", flag, "1", exit_code=output.BAD_INPUT)
        assert f"{flag} would count for nothing" in result.stderr


@pytest.mark.parametrize("flag", ["--only-messages", "--only-events", "--jobs"])
def test_what_chooses_among_a_wild_seed_is_not_passed_over_without_it(flag: str) -> None:
    result = run("simulate", "--messages", "1", flag, "2", exit_code=output.BAD_INPUT)
    assert "--wild" in result.stderr


def test_the_commands_of_the_page_can_be_run() -> None:
    page = (ROOT / "docs" / "internals" / "simulation.md").read_text(encoding="utf-8")
    lines = [line.split()[1:] for line in page.splitlines() if line.startswith("    oncewire ")]
    chosen = [words for words in lines if "--only-messages" in words]
    assert chosen
    for words in chosen:
        assert run_json(*words)["violations"] == 0


@pytest.mark.long
def test_a_broken_promise_ends_with_the_command_that_shows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oncewire.handler.runtime.engine.Engine.notices", lambda self, limit: [])
    seed = next(
        seed
        for seed in range(1, 200)
        if any(getattr(event, "turn", "") == "unaddressed" for event in draw(seed).events)
    )
    found = run_json("simulate", "--wild", "--seeds", f"{seed}:{seed + 6}", exit_code=output.WRONG)
    assert found["violations"] > 0
    [first, *_] = found["replay"]
    assert "--only-messages" in first
    again = run_json(*first.split()[1:], exit_code=output.WRONG)
    assert again["found"][0]["kind"] == found["found"][0]["kind"]
