"""Document: one large file from the application of one handler to that of another.

The figure is megabytes in a second until its acknowledgement is stored; the limit is the same file
copied through the same HTTP stacks with an fsync at either end, by turns with it. Beside it stand
what either process held in memory, what lies in either data folder, and what small messages that
pass at the same time feel of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median

from oncewire.errors import StoreProblem
from oncewire.lab.bench.child import Child
from oncewire.lab.bench.exchange import SIDE
from oncewire.lab.bench.figures import Configuration, Figure, Outcome, Plan
from oncewire.lab.bench.parties import RECEIVER, SENDER, make_pair

COPYING = "oncewire.lab.bench.copying"
MEGABYTE = 1024 * 1024
SIZE = 1024 * MEGABYTE
"""Bytes of the document, unless another size is asked for."""

SMALL_RATE = 20
"""Small messages in a second."""

LIMIT_WORDS = "the same file copied through the same HTTP stacks, with an fsync at either end"


def make_document(path: Path, size: int) -> str:
    """Make a file of that many random bytes, which do not compress; returns its digest."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        left = size
        while left > 0:
            piece = os.urandom(min(left, MEGABYTE))
            digest.update(piece)
            file.write(piece)
            left -= len(piece)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def bytes_in(folder: Path) -> int:
    """The size of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@contextlib.contextmanager
def open_copying(folder: Path) -> Iterator[Child]:
    """The limit's sender, with its receiver behind it."""
    with (
        Child(COPYING, folder) as receiver,
        Child(COPYING, folder, receiver.first["port"]) as sender,
    ):
        yield sender


def measure(
    folder: Path, document: Path, digest: str, configuration: Configuration, repeats: int
) -> Figure:
    """One configuration, by turns with its limit."""
    size = document.stat().st_size
    parties, copies = folder / configuration.words(), folder / "copies"
    copies.mkdir(exist_ok=True)
    make_pair(parties, configuration)
    rates, limits, largest = [], [], 0.0
    with (
        open_copying(copies) as limit,
        Child(SIDE, parties / RECEIVER) as receiver,
        Child(SIDE, parties / SENDER) as sender,
    ):
        for number in range(1, repeats + 1):
            limits.append(size / MEGABYTE / limit.ask("copy", path=str(document))["seconds"])
            sent = sender.ask("document", path=str(document))
            rates.append(size / MEGABYTE / sent["seconds"])
            # The sender keeps what it sent until retention: one file, however often it is sent.
            kept = [bytes_in(parties / SENDER / "data") / size]
            kept.append(bytes_in(parties / RECEIVER / "data") / size / number)
            largest = max(largest, *kept)
            taken = receiver.ask("collect", folder=str(folder / "taken"))
            if taken["digests"] != [digest]:
                raise StoreProblem(
                    f"the document that arrived is another one: {taken['digests']}",
                    remedy="keep both parties' folders and report it",
                )
        held = {SENDER: sender.ask("spent"), RECEIVER: receiver.ask("spent")}
    more = {f"{side}_peak_mb": float(spent["peak_mb"]) for side, spent in held.items()}
    more["largest_folder"] = round(largest, 4)
    more["take_mb_per_s"] = round(size / MEGABYTE / taken["seconds"], 1)
    words = f"{size // MEGABYTE} MB, {'signed' if configuration.signed else 'unsigned'}"
    return Figure(words, tuple(rates), tuple(limits), more)


def small_beside(
    folder: Path, document: Path, configuration: Configuration, repeats: int
) -> dict[str, float]:
    """The p99 of small messages in milliseconds, alone and while documents pass, by turns; the
    middle ones of all turns, and how many times as long one was as the other in its turn."""
    parties = folder / "beside"
    make_pair(parties, configuration)
    alone, beside = [], []
    with (
        Child(SIDE, parties / RECEIVER) as receiver,
        Child(SIDE, parties / SENDER) as sender,
        Child(SIDE, parties / SENDER) as pusher,
    ):
        seconds = sender.ask("document", path=str(document))["seconds"]
        asked = {"rate": SMALL_RATE, "seconds": max(3.0, seconds)}
        for _ in range(repeats):
            alone.append(pusher.ask("trickle", **asked)["p99_ms"])
            with ThreadPoolExecutor(1) as pool:
                pushing = pool.submit(pusher.ask, "trickle", **asked)
                while not pushing.done():
                    sender.ask("document", path=str(document))
                    receiver.ask("collect", folder=str(folder / "taken"))
                beside.append(pushing.result()["p99_ms"])
    times = median(one / other for one, other in zip(beside, alone, strict=True))
    return {
        "small_p99_ms": round(median(alone), 1),
        "small_beside_p99_ms": round(median(beside), 1),
        "small_times": round(times, 1),
    }


def size_of(configuration: Configuration) -> int:
    """The size that was asked for, if it is a large one; else SIZE."""
    return configuration.size if configuration.size > MEGABYTE else SIZE


def run(configuration: Configuration, plan: Plan, size: int = SIZE) -> Outcome:
    """The document plain and signed, and small messages beside it."""
    with tempfile.TemporaryDirectory(prefix="oncewire-bench-") as name:
        folder = Path(name)
        document = folder / "document.bin"
        digest = make_document(document, size)
        plain = measure(folder, document, digest, configuration, plan.repeats)
        signed = replace(configuration, signed=True)
        also = measure(folder, document, digest, signed, plan.repeats)
        beside = small_beside(folder, document, configuration, plan.repeats)
    plain.more.update(beside)
    told = (
        f"{SMALL_RATE} small messages a second: p99 {beside['small_p99_ms']} ms alone, "
        f"{beside['small_beside_p99_ms']} ms while documents pass, "
        f"{beside['small_times']} times as long"
    )
    figures = (plain, also)
    documents = plain.rate * MEGABYTE / size
    return Outcome("document", "megabytes", LIMIT_WORDS, figures, None, (), (told,), documents)
