"""Run benchmarks one after the other: those that are named, or those of `oncewire bench`.

A name that stands in this folder is a process of its own; everything else is for `oncewire bench`,
which keeps its history and pictures in `bench/results`. All print ratios taken within one run,
because machines are shared and absolute figures move.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main(names: list[str]) -> int:
    """Run `bench/NAME.py` for every name; the exit status is the worst of theirs."""
    known = {path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_")}
    if not known & set(names):
        command = [sys.executable, "-m", "oncewire", "bench", *names]
        return subprocess.run([*command, "--results", FOLDER / "results"], check=False).returncode
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(sorted(known))}")
        return 2
    worst = 0
    for name in names:
        print(f"\n== {name}", flush=True)
        ran = subprocess.run([sys.executable, "-m", f"bench.{name}"], check=False)
        worst = max(worst, abs(ran.returncode))
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
