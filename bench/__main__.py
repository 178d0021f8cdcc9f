"""Run the benchmarks one after the other: all of them, or those that are named.

Each is a process of its own and prints ratios taken within one run, because machines are
shared and absolute figures move.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main(names: list[str]) -> int:
    """Run `bench/NAME.py` for every name; the exit status is the worst of theirs."""
    known = sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(known)}")
        return 2
    worst = 0
    for name in names or known:
        print(f"\n== {name}", flush=True)
        ran = subprocess.run([sys.executable, "-m", f"bench.{name}"], check=False)
        worst = max(worst, abs(ran.returncode))
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
