"""One channel with nine tenths of the messages against ten equal ones, without Spark.

    python -m bench.skew [messages]

Runs the folds of `verify` in this process and takes the processor time of each task that Spark
would run on two cores: messages are divided evenly whatever their channel is, a channel of a node
is one task. Says how long two cores would work on them, as Spark hands tasks out, in order. It does
not depend on what else the machine does, as `bench.pipeline_runs` does, which measures the same on
Spark.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from itertools import groupby

from bench.pipeline_runs import AIM_HOT, skewed
from oncewire.journal.check import fold_ledger
from oncewire.journal.predicates.channel import KINDS
from oncewire.journal.predicates.context import CONTEXT_KINDS, Context
from oncewire.journal.row import Row
from oncewire.lab.sample_year.generate import rows_of_year
from oncewire.pipeline.judging.channels import fold_channel
from oncewire.pipeline.judging.extent import Judging

MESSAGES, CORES, PASSES = 10_000, 2, 3
SHARES = {"even": [0.1] * 10, "hot": [0.9] + [0.1 / 9] * 9}


def tasks(rows: Sequence[Row]) -> tuple[float, list[float]]:
    """Processor seconds of all messages, and of each channel of each node."""
    few = [row for row in rows if row.kind in CONTEXT_KINDS]
    judging = Judging(Context.gather(few, healed=True), ended=True)
    by_message = sorted(
        (row for row in rows if row.message_id is not None),
        key=lambda row: (row.message_id or "", row.node, row.seq),
    )
    begin = time.process_time()
    for _ in fold_ledger(iter(by_message), judging.context):
        pass
    messages = time.process_time() - begin
    by_channel = sorted(
        (
            row
            for row in rows
            if row.channel is not None and (row.kind in KINDS or row.terms_id is not None)
        ),
        key=lambda row: (row.channel or "", row.node, row.seq),
    )
    each = []
    for _, group in groupby(by_channel, lambda row: (row.channel, row.node)):
        fed = [(row, None) for row in group]
        begin = time.process_time()
        fold_channel(fed, judging)
        each.append(time.process_time() - begin)
    return messages, each


def makespan(messages: float, each: Sequence[float]) -> float:
    """Until when some cores work: messages first, in equal parts, then channels; the largest
    channel comes last, which is the worst order."""
    busy = [messages / CORES] * CORES
    for task in sorted(each):
        busy[busy.index(min(busy))] += task
    return max(busy)


def main(arguments: list[str]) -> None:
    messages = int(arguments[0]) if arguments else MESSAGES
    years = {name: list(rows_of_year(skewed(messages, some))) for name, some in SHARES.items()}
    best: dict[str, tuple[float, list[float]]] = {}
    for _ in range(PASSES):
        for name, rows in years.items():
            found = tasks(rows)
            if name not in best or sum(found[1]) < sum(best[name][1]):
                best[name] = found
    for name, (of_messages, each) in best.items():
        print(
            f"{name:>5}: {len(years[name]):,} rows, messages {of_messages:.2f} s, channels "
            f"{sum(each):.2f} s, the largest {max(each):.2f} s; "
            f"two cores {makespan(of_messages, each):.2f} s"
        )
    ratio = makespan(*best["hot"]) / makespan(*best["even"])
    total = [of_messages + sum(each) for of_messages, each in (best["hot"], best["even"])]
    print(
        f"a hot channel on two cores: {ratio:.2f} of the even case (aim <= {AIM_HOT}), "
        f"processor {total[0] / total[1]:.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
