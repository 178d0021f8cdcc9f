"""A large document through two handlers, each a process of its own: flat memory, one file at each
side, and the same bytes at the end. How fast it is nobody asks here."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from oncewire.lab.bench import document
from oncewire.lab.bench.figures import Configuration, Figure, Plan
from tests.parts import missing

MEGABYTE = 1024 * 1024
GIGABYTE = 1024 * MEGABYTE
PEAK_MB = 256
"""The most that either process may ever hold."""

FOLDER = 1.1
"""The most that may lie in either data folder, in documents."""


def passed(folder: Path, size: int, *, signed: bool) -> Figure:
    """It arrived as it was: `measure` compares the digests."""
    path = folder / "document.bin"
    digest = document.make_document(path, size)
    wanted = replace(Configuration(), signed=signed)
    return document.measure(folder, path, digest, wanted, repeats=1)


def check(figure: Figure) -> None:
    assert 0 < figure.more["sender_peak_mb"] <= PEAK_MB
    assert 0 < figure.more["receiver_peak_mb"] <= PEAK_MB
    assert 1 <= figure.more["largest_folder"] < FOLDER
    assert figure.ratio > 0


@pytest.mark.process
@pytest.mark.long
@pytest.mark.parametrize("signed", [False, True], ids=["plain", "signed"])
def test_100_megabytes_pass_in_flat_memory(tmp_path: Path, signed: bool) -> None:
    check(passed(tmp_path, 100 * MEGABYTE, signed=signed))


@pytest.mark.soak
@pytest.mark.process
@pytest.mark.parametrize("signed", [False, True], ids=["plain", "signed"])
def test_10_gigabytes_pass_in_flat_memory(tmp_path: Path, signed: bool) -> None:
    needed = 7 * 10 * GIGABYTE
    if shutil.disk_usage(tmp_path).free < needed:
        missing(f"{needed // GIGABYTE} GB of disk")
    folder = tmp_path / "passing"
    folder.mkdir()
    try:
        check(passed(folder, 10 * GIGABYTE, signed=signed))
    finally:
        # What lies there is kept for three runs, and fills the disk with the first.
        shutil.rmtree(folder)


@pytest.mark.soak
@pytest.mark.process
def test_the_benchmark_tells_what_small_messages_feel() -> None:
    found = document.run(Configuration(), Plan(repeats=1), 64 * MEGABYTE)
    plain, signed = found.figures
    assert plain.more.keys() >= {"small_p99_ms", "small_beside_p99_ms", "take_mb_per_s"}
    assert signed.what == "64 MB, signed"
    assert "small messages a second" in found.findings[0]
