"""Every deliberate bug is caught: the proof proves something."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.parts import ROOT


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    assert len(MUTANTS) >= 40
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("name", [mutant.name for mutant in MUTANTS])
def test_mutant_is_caught(name: str) -> None:
    """In a process of its own, so that the bug goes with it."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.mutants.run", name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-2000:]
