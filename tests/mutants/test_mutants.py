"""Every deliberate bug is caught: the proof proves something."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.collection import ALL
from tests.mutants.put_back import PUT_BACK, PutBack
from tests.parts import ROOT

Hatchery = subprocess.Popen[str]


@pytest.fixture(scope="module")
def hatchery() -> Iterator[Hatchery]:
    """The process that runs mutants, each in a child of its own so that its bug goes with it."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.mutants.hatchery"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    assert len(ALL) >= 80
    assert len({mutant.name for mutant in ALL}) == len(ALL)


def test_no_module_of_mutants_is_left_out() -> None:
    folder = Path(__file__).parent
    named = re.findall(
        r"^from tests\.mutants\.(in_\w+)", text_of(folder / "collection.py"), re.MULTILINE
    )
    assert sorted(named) == sorted(path.stem for path in folder.glob("in_*.py"))


def test_each_says_what_must_notice_it() -> None:
    assert [one.name for one in ALL if bool(one.tests) == bool(one.caught_by)] == []


def test_each_finds_its_place_and_is_a_program() -> None:
    """Also those that `make test` does not run: a change of the code must not lose any. What
    cannot be compiled fails everywhere, and shows of no test that it would notice."""
    lost = []
    for one in ALL:
        try:
            compile(one.put_into(text_of(one.source)), one.name, "exec", dont_inherit=True)
        except (LookupError, SyntaxError, OSError) as problem:
            lost.append(str(problem))
    assert lost == []


def test_the_tests_that_must_notice_are_there() -> None:
    lost = []
    for one in ALL:
        for named in one.tests:
            file, *inner = named.partition("[")[0].split("::")
            path = ROOT / file
            words = words_of(path) if path.is_file() else ""
            if not path.exists() or not all(is_defined(name, words) for name in inner):
                lost.append(f"{one.name}: {named}")
    assert lost == []


def words_of(path: Path) -> str:
    """A file's text, and that of the tests' own modules from which its classes may inherit."""
    text = text_of(path)
    shared = re.findall(r"^from (tests(?:\.\w+)+) import", text, re.MULTILINE)
    paths = [ROOT / f"{name.replace('.', '/')}.py" for name in shared]
    return "\n".join((text, *(text_of(one) for one in paths if one.is_file())))


def is_defined(name: str, source: str) -> bool:
    """Whether a function or a class of that name is in the source; Hypothesis makes cases of
    machines by assignment."""
    pattern = rf"^\s*(?:(?:async )?def |class )?{name}\b(?=[(:]| =)"
    return re.search(pattern, source, re.MULTILINE) is not None


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("put_back", PUT_BACK, ids=lambda one: one.what)
def test_a_bug_of_old_can_be_put_back(put_back: PutBack) -> None:
    """`python -m tests.mutants.put_back` looks for them in wild worlds, which takes minutes."""
    put_back.mutant.put_into(text_of(put_back.mutant.source))


EVERY = [
    pytest.param(mutant.name, marks=() if mutant.is_sampled else pytest.mark.soak) for mutant in ALL
]


def test_every_mutant_is_run_by_one_of_both() -> None:
    """`make test` leaves out exactly what is marked `soak`, and `make soak` runs exactly that."""
    assert [case.values for case in EVERY] == [(mutant.name,) for mutant in ALL]
    marks = [[mark.name for mark in case.marks] for case in EVERY]
    assert all(mark in ([], ["soak"]) for mark in marks)
    sampled = [mutant for mutant in ALL if mutant.is_sampled]
    assert marks.count([]) == len(sampled)
    assert len(ALL) / 7 < len(sampled) < len(ALL) / 3
    # What a world shows and what tests notice, wherever there are more than a few.
    assert any(mutant.caught_by for mutant in sampled)
    many = Counter(mutant.package for mutant in ALL)
    assert {name for name, count in many.items() if count > 5} <= {one.package for one in sampled}


@pytest.mark.parametrize("name", EVERY)
def test_mutant_is_caught(name: str, hatchery: Hatchery) -> None:
    assert hatchery.stdin is not None
    assert hatchery.stdout is not None
    hatchery.stdin.write(name + "\n")
    hatchery.stdin.flush()
    said = json.loads(hatchery.stdout.readline())
    assert said["problem"] is None, said["problem"]
    assert said["caught"] is not None, f"{name}: survived"
