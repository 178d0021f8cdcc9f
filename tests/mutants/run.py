"""Run one mutant: load the product with its bug, run its world, say which promise broke.

`python -m tests.mutants.run "never resend"` ends with status 0 when the bug was caught.
The bug is put into the module's source as it is imported, in this process only.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

from tests.mutants.catalogue import MUTANTS, Mutant

SEEDS = range(1, 13)


class Infect(importlib.abc.MetaPathFinder):
    """Finds one module and changes its source before it is compiled."""

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

    def get_code(self, fullname: str) -> object:
        source = self.get_data(self.path).decode()
        if source.count(self.mutant.old) != 1:
            sys.exit(f"the text of mutant {self.mutant.name!r} is not in {fullname} exactly once")
        return compile(source.replace(self.mutant.old, self.mutant.new), self.path, "exec")


def caught(mutant: Mutant) -> str | None:
    """The promise that was seen broken, or None when the bug survived every seed."""
    sys.meta_path.insert(0, Infect(mutant))
    from oncewire.simulation.options import Options
    from oncewire.simulation.run import simulate

    options = Options(**eval(f"dict({mutant.world})", {}))
    for seed in SEEDS:
        result = simulate(options, seed)
        for violation in result.violations:
            if violation.predicate in mutant.caught_by:
                return f"{violation.predicate} {violation.kind} (seed {seed})"
    return None


def main() -> None:
    """Run the mutant named on the command line."""
    mutant = next(one for one in MUTANTS if one.name == sys.argv[1])
    found = caught(mutant)
    if found is None:
        sys.exit(f"{mutant.name}: survived {len(SEEDS)} seeds")
    print(f"{mutant.name}: {found}")


if __name__ == "__main__":
    main()
