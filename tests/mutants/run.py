"""Run mutants: load the product with a bug in it and say what noticed.

`python -m tests.mutants.run "never resend"` ends with status 0 when the bug was caught. The
bug is put into the module's syntax tree as it is imported, in that process only.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType

import pytest

from tests.mutants.collection import ALL
from tests.mutants.mutant import Mutant

SEEDS = range(1, 13)


class Infect(importlib.abc.MetaPathFinder):
    """Finds one module and changes it before it is compiled."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.mutant.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.origin is not None
        loader = Infected(name, spec.origin)
        loader.mutant = self.mutant
        return importlib.util.spec_from_file_location(name, spec.origin, loader=loader)


class Infected(importlib.machinery.SourceFileLoader):
    """The module with the bug in it; never cached."""

    mutant: Mutant

    def get_code(self, fullname: str) -> CodeType:
        try:
            infected = self.mutant.put_into(self.get_data(self.path).decode())
        except LookupError as lost:
            sys.exit(str(lost))
        return compile(infected, self.path, "exec", dont_inherit=True)


def caught(mutant: Mutant) -> str | None:
    """What noticed the bug, or None when it survived."""
    loaded = [name for name in sys.modules if name.partition(".")[0] == "oncewire"]
    if loaded:
        sys.exit(f"the product is loaded already, without the bug: {loaded[0]}")
    sys.meta_path.insert(0, Infect(mutant))
    return _caught_by_tests(mutant) if mutant.tests else _caught_in_world(mutant)


def _caught_in_world(mutant: Mutant) -> str | None:
    """The promise that a simulated world saw broken."""
    from oncewire.lab.simulation.plan import Options, plan_of
    from oncewire.lab.simulation.world import run

    options = Options(**eval(f"dict({mutant.world})", {}))
    for seed in SEEDS:
        for violation in run(plan_of(options, seed)).violations:
            if violation.predicate in mutant.caught_by:
                return f"{violation.predicate} {violation.kind} (seed {seed})"
    return None


class _Listener:
    """Hears which tests failed, and whether any could not be collected."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.uncollected: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.when == "call":
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.uncollected.append(report.nodeid)


def _caught_by_tests(mutant: Mutant) -> str | None:
    """The first of its tests that failed."""
    listener = _Listener()
    said = io.StringIO()
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts="]
    options += ["--import-mode=importlib", "--no-header", *mutant.tests]
    with contextlib.redirect_stdout(said):
        status = pytest.main(options, plugins=[listener])
    if listener.uncollected or status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        sys.exit(f"the tests of {mutant.name!r} did not run:\n{said.getvalue()[-2000:]}")
    return listener.failed[0] if listener.failed else None


def main() -> None:
    """Run the mutant named on the command line."""
    name = " ".join(sys.argv[1:])
    mutant = next((one for one in ALL if one.name == name), None)
    if mutant is None:
        sys.exit(f"there is no mutant named {name!r}; the names are in tests/mutants/in_*.py")
    found = caught(mutant)
    if found is None:
        sys.exit(f"{mutant.name}: survived")
    print(f"{mutant.name}: {found}")


if __name__ == "__main__":
    main()
