"""Every deliberate bug is caught: the proof proves something."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
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


def test_each_says_what_must_notice_it() -> None:
    assert [one.name for one in ALL if bool(one.tests) == bool(one.caught_by)] == []


@pytest.mark.parametrize("put_back", PUT_BACK, ids=lambda one: one.what)
def test_a_bug_of_old_can_be_put_back(put_back: PutBack) -> None:
    """`python -m tests.mutants.put_back` looks for them in wild worlds, which takes minutes."""
    module = ROOT / "src" / Path(*put_back.mutant.module.split(".")).with_suffix(".py")
    assert module.read_text(encoding="utf-8").count(put_back.mutant.old) == 1


@pytest.mark.parametrize("name", [mutant.name for mutant in ALL])
def test_mutant_is_caught(name: str, hatchery: Hatchery) -> None:
    assert hatchery.stdin is not None
    assert hatchery.stdout is not None
    hatchery.stdin.write(name + "\n")
    hatchery.stdin.flush()
    said = json.loads(hatchery.stdout.readline())
    assert said["problem"] is None, said["problem"]
    assert said["caught"] is not None, f"{name}: survived"
