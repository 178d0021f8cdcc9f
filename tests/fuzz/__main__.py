"""Fuzz the reader: `python -m tests.fuzz --cases 100000 --seed 7`, or one case with `--case`."""

import argparse
import signal
import sys
import time
from types import FrameType

from tests.fuzz.cases import Tally, data_of, run
from tests.fuzz.seeds import captures

HANG_SECONDS = 60
"""A case takes a millisecond; one that takes a minute hangs."""


def _hangs(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"no answer within {HANG_SECONDS} seconds")


def main(arguments: list[str]) -> int:
    """Run the cases; 1 when one of them broke, with the command that replays it."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=20260105)
    parser.add_argument("--case", type=int, help="replay this one and show its bytes")
    chosen = parser.parse_args(arguments)
    good = captures()
    tally = Tally()
    if chosen.case is not None:
        print(data_of(chosen.seed, chosen.case, good))
        run(chosen.seed, chosen.case, good, tally)
        print(dict(tally.outcomes))
        return 0
    signal.signal(signal.SIGALRM, _hangs)
    started = time.monotonic()
    for number in range(chosen.cases):
        signal.alarm(HANG_SECONDS)
        try:
            run(chosen.seed, number, good, tally)
        except Exception as error:  # noqa: BLE001 - any escape is what we look for
            signal.alarm(0)
            print(f"case {number} broke: {type(error).__name__}: {error}")
            print(f"replay: python -m tests.fuzz --seed {chosen.seed} --case {number}")
            return 1
    signal.alarm(0)
    spent = time.monotonic() - started
    print(f"{chosen.cases:,} cases, seed {chosen.seed}, {chosen.cases / spent:,.0f} a second")
    for outcome, count in tally.outcomes.most_common():
        print(f"  {count:>8,}  {outcome}")
    print(f"  {tally.by_template:>8,}  read by a template")
    print(f"  at most {tally.most_buffered:,} bytes held, {tally.most_tags:,} tags visited")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
