"""`python -m tests.mutants`: run every mutant and print how many were caught, by package."""

from __future__ import annotations

import sys
from collections import Counter

from tests.mutants.collection import ALL
from tests.mutants.hatchery import hatch


def main() -> int:
    """Run them all; 1 when one survived."""
    planted: Counter[str] = Counter()
    killed: Counter[str] = Counter()
    for mutant in ALL:
        planted[mutant.package] += 1
        said = hatch(mutant.name)
        killed[mutant.package] += said["caught"] is not None
        print(
            f"{mutant.package:<11}{mutant.name}: {said['caught'] or said['problem'] or 'SURVIVED'}"
        )
    print(f"\n{'package':<11}{'planted':>8}{'caught':>8}")
    for package in sorted(planted):
        print(f"{package:<11}{planted[package]:>8}{killed[package]:>8}")
    print(f"{'all':<11}{planted.total():>8}{killed.total():>8}")
    return 0 if planted == killed else 1


if __name__ == "__main__":
    sys.exit(main())
