"""The traceability report counts what the tests name, and refuses what it does not know."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.parts import ROOT, script

requirements = script("requirements")

SAMPLE = """
import pytest
from pytest import mark

pytestmark = pytest.mark.requirement("AA-1")

@pytest.mark.requirement("AA-2", "BB-1")
def test_two(): ...

class TestMore:
    @mark.requirement("BB-1")
    async def test_inside(self): ...

@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.requirement("BB-3"))])
def test_param(x): ...
"""

MUTANTS = """
Mutant("by place", "m", "old", "new", ("S1",), "world", "AA-1")
Mutant("by name", "m", "old", "new", tests=("x",), requirement="AA-2 BB-1")
Mutant("none", "m", "old", "new", ("S1",))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "tests" / "deep").mkdir(parents=True)
    (tmp_path / "tests" / "deep" / "test_sample.py").write_text(SAMPLE)
    rows = ["id,level,dialect,behaviour,source"]
    rows += [
        f'{row},MUST,all,"Says, something.",x' for row in ("AA-1", "AA-2", "BB-1", "BB-3", "BB-10")
    ]
    (tmp_path / "requirements.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


def _arguments(project: Path, *more: str) -> list[str]:
    return [
        "--catalogue",
        str(project / "requirements.csv"),
        "--tests",
        str(project / "tests"),
        *more,
    ]


def test_the_catalogue_has_its_184_rows() -> None:
    assert len(requirements.catalogue(ROOT / "docs" / "requirements.csv")) == 184


@pytest.fixture(scope="module")
def coverage() -> Any:
    """What our own tests and mutants name."""
    rows = requirements.catalogue(ROOT / "docs" / "requirements.csv")
    return requirements.collect(rows, ROOT / "tests")


@pytest.mark.long
def test_no_test_of_ours_names_an_unknown_row(coverage: Any) -> None:
    assert coverage.problems == []


def test_every_must_that_stands_now_is_reached_and_has_a_mutant(coverage: Any) -> None:
    assert coverage.unproven() == []


def test_every_form_of_the_marker_is_read(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert requirements.main(_arguments(project, "--json")) == 0
    report = json.loads(capsys.readouterr().out)
    file = "tests/deep/test_sample.py"
    assert report["requirements"] == {
        "AA-1": [file],
        "AA-2": [f"{file}::test_two"],
        "BB-1": [f"{file}::test_two", f"{file}::TestMore::test_inside"],
        "BB-3": [f"{file}::test_param"],
        "BB-10": [],
    }
    assert report["groups"]["BB"] == {
        "rows": 3,
        "tested": 2,
        "rule": 2,
        "reached": 0,
        "mutant": 0,
    }
    assert (report["tested"], report["total"], report["untested"]) == (4, 5, ["BB-10"])


def test_a_row_is_reached_where_a_handler_runs_and_broken_by_a_mutant(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "tests" / "handler").mkdir()
    (project / "tests" / "handler" / "test_real.py").write_text(SAMPLE)
    (project / "tests" / "mutants").mkdir()
    (project / "tests" / "mutants" / "catalogue.py").write_text(MUTANTS)
    assert requirements.main(_arguments(project, "--json")) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["mutants"] == {
        "AA-1": ["by place"],
        "AA-2": ["by name"],
        "BB-1": ["by name"],
        "BB-3": [],
        "BB-10": [],
    }
    assert report["groups"]["BB"] == {
        "rows": 3,
        "tested": 2,
        "rule": 2,
        "reached": 2,
        "mutant": 1,
    }
    assert report["unproven"] == ["BB-3", "BB-10"]
    assert (report["reached"], report["with_mutant"]) == (4, 3)


def test_the_table_ends_with_the_count(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert requirements.main(_arguments(project)) == 0
    out = capsys.readouterr().out
    assert out.rstrip().endswith(
        "of 5 requirements 4 have tests, 0 are reached by a handler, 0 have a mutant"
    )
    assert "BB             3     2        0       0" in out


@pytest.mark.parametrize(
    ("marker", "sentence"),
    [
        ('"AA-9"', "unknown requirement 'AA-9'"),
        ('"aa-1"', "unknown requirement 'aa-1'"),
        ("*ROWS", "the marker wants ids as plain strings"),
        ("NAME", "the marker wants ids as plain strings"),
        ("", "the marker wants ids as plain strings"),
    ],
)
def test_a_marker_that_proves_nothing_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str], marker: str, sentence: str
) -> None:
    bad = f"import pytest\n\n@pytest.mark.requirement({marker})\ndef test_x(): ...\n"
    (project / "tests" / "test_bad.py").write_text(bad)
    assert requirements.main(_arguments(project)) == 1
    assert f"tests/test_bad.py:3: {sentence}" in capsys.readouterr().err


def test_a_row_listed_twice_is_refused(project: Path) -> None:
    with (project / "requirements.csv").open("a") as rows:
        rows.write("AA-1,MUST,all,Again.,x\n")
    with pytest.raises(SystemExit, match="listed twice: AA-1"):
        requirements.main(_arguments(project))
