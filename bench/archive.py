"""What reading an archive costs a core beyond the codec, step by step, without Spark.

    python -m bench.archive [messages]

Each step does what the one before does and one thing more, over the same messages, in processor
time of this process; the quickest of several passes counts. The last step is what a task of
`format("ebxml")` does, all but the way of its batches to Spark (`bench.pipeline` has that too).
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from oncewire.journal.identity import identity_digest
from oncewire.lab.sample_year.generate import _write_bundle
from oncewire.lab.sample_year.plan import make_plan
from oncewire.message.form import Validation
from oncewire.pipeline.lake.columns import ENVELOPES, arrow
from oncewire.pipeline.lake.tables import batches_of
from oncewire.pipeline.sources.archive import Content, contents, pieces
from oncewire.pipeline.sources.ebxml import ROWS_PER_BATCH, rows_of_content
from oncewire.wire import codec
from oncewire.wire.inspection import open_capture
from oncewire.wire.parcel import Received

MESSAGES, PASSES, AIM = 2_000, 7, 0.7


def steps(archive: Path) -> dict[str, Callable[[], object]]:
    """Each step by its name, as a pass over the whole archive."""
    held = [content for piece in pieces(str(archive)) for content in contents(piece)]

    def read(content: Content) -> tuple[Received, ...]:
        return codec.read_all(open_capture(content.data).parcel, validation=Validation.REPORT)

    def digested(content: Content) -> None:
        hashlib.sha256(content.data).hexdigest()
        for received in read(content):
            identity_digest(received.message)

    def rows(found: Iterator[Content]) -> Iterator[tuple[object, ...]]:
        for content in found:
            yield from rows_of_content(content)

    def again() -> Iterator[Content]:
        return (content for piece in pieces(str(archive)) for content in contents(piece))

    schema = arrow(ENVELOPES)
    return {
        "codec alone": lambda: [None for content in held if read(content) is None],
        "and digests": lambda: [digested(content) for content in held],
        "and rows": lambda: sum(1 for _ in rows(iter(held))),
        "and batches": lambda: sum(
            batch.num_rows for batch in batches_of(rows(iter(held)), schema, ROWS_PER_BATCH)
        ),
        "and the bundle": lambda: sum(
            batch.num_rows for batch in batches_of(rows(again()), schema, ROWS_PER_BATCH)
        ),
    }


def seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def main(arguments: list[str]) -> None:
    messages = int(arguments[0]) if arguments else MESSAGES
    with tempfile.TemporaryDirectory(prefix="oncewire-bench-") as folder:
        _write_bundle(Path(folder) / "messages.tar", make_plan(messages, 1), 0, messages)
        every = steps(Path(folder))
        # One pass of each in turn, so that what else the machine does hits them alike.
        passes = [{name: seconds(work) for name, work in every.items()} for _ in range(PASSES)]
        best = {name: min(one[name] for one in passes) for name in every}
    alone = best["codec alone"]
    for name, took in best.items():
        print(f"{name:>16}: {took / messages * 1e6:7.1f} us a message, {alone / took:.2f}")
    print(f"aim: {AIM} of the codec's rate", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
