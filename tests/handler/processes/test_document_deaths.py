"""kill -9 of either side and of the hub between them, in the middle of a document of 200 parts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from oncewire.journal.row import Row
from oncewire.store.sqlite.reader import SqliteReaders
from tests.handler.processes.plays import three_parties
from tests.handler.processes.stage import Stage

SIZE = 1000
PARTIES = ("alpha", "hub", "beta")


@pytest.mark.long
@pytest.mark.requirement("BIG-6", "HOP-8")
@pytest.mark.parametrize(
    ("parts", "deaths"),
    [(40, 3), pytest.param(200, 50, marks=pytest.mark.soak)],
    ids=["some", "many"],
)
def test_deaths_on_the_way_lose_nothing_and_repeat_nothing(
    stage: Stage, parts: int, deaths: int
) -> None:
    three_parties(stage, 1, extra=f"[payload]\nmax_size = {SIZE}\n", size=parts * SIZE)
    for name in reversed(PARTIES):
        _start(stage, name)
    for number in range(deaths):
        _wait_for(stage.folder / "alpha.db", (number + 1) * parts // (deaths + 2))
        name = PARTIES[number % len(PARTIES)]
        stage.kill(name)
        _start(stage, name)
    stage.settle("beta", 1)
    stage.stop()
    verdict = stage.verdict()
    verdict.assert_once("alpha", "beta", 1, parts * SIZE)
    assert verdict.count("joined") == 1
    assert verdict.report.parts == parts
    for name in ("alpha", "hub"):
        _assert_nothing_repeated([row for row in verdict.rows if row.node == name], parts)
    print(f"{deaths} deaths: {verdict.count('sent')} attempts for {2 * parts} hops of parts")


def _start(stage: Stage, name: str) -> None:
    run = stage.start(name)
    run.wait("its start", lambda: run.started)


def _wait_for(store: Path, acknowledged: int) -> None:
    """Until the sender knows of so many parts; a party that died may take its time."""
    until = time.monotonic() + 30
    while _acknowledged(store) < acknowledged and time.monotonic() < until:
        time.sleep(0.1)


def _acknowledged(store: Path) -> int:
    readers = SqliteReaders(store)
    try:
        with readers.reader() as reader:
            return sum(row.kind == "acknowledged" for row in reader.journal_since(0, 1_000_000))
    finally:
        readers.close()


def _assert_nothing_repeated(rows: list[Row], parts: int) -> None:
    """What was acknowledged, and is known to be, goes out no more."""
    settled: set[str | None] = set()
    for row in sorted(rows, key=lambda row: row.seq):
        assert row.kind != "sent" or row.message_id not in settled, row
        if row.kind == "acknowledged":
            settled.add(row.message_id)
    assert len(settled) >= parts
