"""Mutant: one deliberate bug, and what must notice it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from tests.parts import ROOT

SHARE = 5
"""One mutant of so many is run by `make test`, all others by `make soak`."""

PLAIN = "messages=40"
"""The options of a simulated world in which most bugs show."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug: the text it replaces, and the world or the tests that must turn red.

    A world is judged by the promises of `caught_by`. Where `tests` are named they are run
    instead, and at least one of them must fail: a bug that only stops them from being
    collected counts as a mistake in the mutant, not as caught.
    """

    name: str
    module: str
    old: str
    new: str
    # Predicates of the journal's checker, any of which may catch it.
    caught_by: tuple[str, ...] = ()
    world: str = PLAIN
    # The row of docs/requirements.csv that the bug breaks; several are separated by a space.
    requirement: str = ""
    # Tests, as pytest names them, any of which may catch it.
    tests: tuple[str, ...] = ()

    @property
    def is_sampled(self) -> bool:
        """Whether `make test` runs it: its name alone decides, whatever other mutants there are."""
        return crc32(self.name.encode()) % SHARE == 0

    @property
    def source(self) -> Path:
        """The file that the bug is put into."""
        return ROOT / "src" / Path(*self.module.split(".")).with_suffix(".py")

    @property
    def package(self) -> str:
        """The package of the product that the bug sits in."""
        return self.module.split(".")[1]

    @property
    def requirements(self) -> tuple[str, ...]:
        """The rows of the catalogue that the bug breaks."""
        return tuple(self.requirement.split())
