"""Over a year of any size, `verify` and the ledger name exactly what was planted, and no more."""

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import functions as f
from typer.testing import CliRunner

from oncewire.lab.sample_year.plan import RECIPES, make_plan
from oncewire.pipeline.lake.lake import Lake
from tests.entry.terminal import command_line
from tests.pipeline.books import PROMISES, assert_hard_places
from tests.pipeline.published import read_ledger

pytestmark = pytest.mark.spark

Key = Counter[tuple[str, str]]


def command(*words: str) -> tuple[int, dict]:
    answer = CliRunner().invoke(command_line(), ["pipeline", *words, "--json"])
    assert answer.stdout, answer.output
    return answer.exit_code, json.loads(answer.stdout)


def pairs(found: list[dict]) -> Key:
    return Counter((one["kind"], one["message_id"]) for one in found)


@pytest.mark.parametrize("seed", [1, 23, 456])
@pytest.mark.parametrize("messages", [10_000, 20_000, 50_000])
def test_a_year_has_a_fault_of_every_recipe(messages: int, seed: int) -> None:
    plan = make_plan(messages, seed)
    planted = Counter(
        force.misbehaviour
        for stream in plan.streams
        for force in stream.forces.values()
        if force.misbehaviour
    )
    assert set(planted) == {recipe.misbehaviour for recipe in RECIPES}
    assert {kind for kind, _ in plan.violations} == PROMISES


@pytest.mark.soak
@pytest.mark.parametrize(("messages", "seed", "days"), [(10_000, 20, 40), (1_000_000, 6, 365)])
def test_verify_and_the_ledger_find_exactly_what_was_planted(
    spark, tmp_path: Path, messages: int, seed: int, days: int
) -> None:
    folder, answers = tmp_path / "lake", tmp_path / "key.json"
    print(f"{messages} messages, seed {seed}")
    code, made = command(
        "generate", "--messages", str(messages), "--seed", str(seed), "--days", str(days),
        "--output", str(folder), "--violations", str(answers),
    )  # fmt: skip
    assert code == 0
    planted = pairs(json.loads(answers.read_text(encoding="utf-8")))
    assert {kind for kind, _ in planted} == PROMISES

    code, checked = command("verify", "--lake", str(folder))
    assert code == 1
    found = pairs(checked["violations"])
    assert planted - found == Counter(), "missed"
    assert found - planted == Counter(), "invented"
    assert checked["rows"] == made["rows"]
    assert checked["rows_quarantined"] == 0
    assert len(checked["findings"]) == len(checked["violations"])

    code, _ = command("run", "--lake", str(folder))
    assert code == 0
    lake = Lake(folder)
    ledger = read_ledger(spark, lake, lake.current())
    broken = ledger.where(f.col("verdict").isin(sorted(PROMISES)))
    verdicts = Counter(tuple(row) for row in broken.select("verdict", "message_id").collect())
    assert verdicts == planted
    told = ledger.where("findings is not null").select(f.explode("findings").alias("one"))
    listed = Counter(tuple(row) for row in told.select("one.kind", "one.message_id").collect())
    assert listed == planted
    assert ledger.count() == checked["messages"] + checked["parts"]
    assert_hard_places(spark, lake)
