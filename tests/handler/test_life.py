"""A long life on SQLite and a real spool: memory, files, rows and handles stay as they are."""

from __future__ import annotations

import gc
import random
import sqlite3
import tracemalloc
from dataclasses import dataclass
from pathlib import Path

import pytest

from oncewire.handler.runtime import retention
from oncewire.message.instant import HOUR, MINUTE, SECOND
from oncewire.store.sqlite.store import SqliteStore
from tests.handler.damage import SpoolingPair
from tests.handler.network import TestWorld

SEED = 20010129
LARGE = 1_100_000

# Everything is over within minutes, so that hours show whether it goes.
AGREED = (
    '[delivery]\ntimeout = "PT10S"\nretry_interval = "PT10S"\nretries = 20\n'
    'persist_duration = "PT10M"\n'
)


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is of a party's life at one moment."""

    memory: int
    handles: int
    messages: int
    rows: int
    pages: int
    files: int


class Life:
    """Two parties, a network that loses every fifth exchange, and a clock that runs fast."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.luck, self.sent, self.taken = folder, random.Random(SEED), 0, 0
        self.pair = SpoolingPair.pair(
            "window",
            AGREED,
            lose_request=lambda post: self.luck.random() < 0.1,
            lose_answer=lambda attempt: self.luck.random() < 0.1,
            store=lambda name: SqliteStore(folder / f"{name}.db", node=name),
        )

    def live(self, minutes: int) -> None:
        for _ in range(minutes):
            for _ in range(2):
                self._send(large=self.sent % 20 == 0)
            self.pair.pass_time(*[10 * SECOND] * 6)
            self.taken += len(self.pair.take())
            # What the hand that carries remembers is no part of the life.
            pair = self.pair
            for kept in (pair.answers, pair.actions, pair.notices, pair.line, pair.record):
                kept.clear()  # type: ignore[attr-defined]
            if self.luck.random() < 0.02:
                self.pair.crash(self.luck.choice(("alpha", "beta")))
        self._trim()

    def _send(self, *, large: bool) -> None:
        self.sent += 1
        data = f"order {self.sent} ".encode().ljust(LARGE if large else 40, b".")
        self.pair.send(self.sent, data)

    def _trim(self) -> None:
        """The lake has taken the journal over, up to half an hour ago."""
        for name, engine in self.pair.engines.items():
            world = engine.context.world
            assert isinstance(world, TestWorld)
            with engine.context.store.reader() as reader:
                last = reader.last_seq()
            with engine.context.store.transition() as tx:
                tx.trim_journal(world.time - HOUR // 2, last)
            self.pair.settle(name)

    def size(self) -> Size:
        gc.collect()
        messages = rows = pages = files = 0
        for name in ("alpha", "beta"):
            with sqlite3.connect(self.folder / f"{name}.db") as connection:
                for table in ("outgoing", "incoming"):
                    messages += connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for table in ("journal_row", "removed", "message", "incident"):
                    rows += connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                pages += connection.execute("PRAGMA page_count").fetchone()[0]
            connection.close()
            files += len(list((self.folder / f"{name}.db.spool").iterdir()))
        handles = len(list(Path("/proc/self/fd").iterdir()))
        return Size(tracemalloc.get_traced_memory()[0], handles, messages, rows, pages, files)


def lived(folder: Path, quarters: int, minutes: int) -> tuple[Size, Size, Life]:
    """The sizes when everything has come and gone once, and at the end."""
    life = Life(folder)
    tracemalloc.start()
    try:
        life.live(2 * minutes)
        early = life.size()
        for _ in range(quarters):
            life.live(minutes)
        return early, life.size(), life
    finally:
        tracemalloc.stop()


def assert_flat(early: Size, late: Size, life: Life) -> None:
    assert late.handles <= early.handles
    assert late.messages <= 1.5 * early.messages
    assert late.rows <= 1.5 * early.rows
    assert late.pages <= 2 * early.pages
    assert late.files <= early.files + 4
    assert late.memory <= early.memory + 2_000_000
    # And it was a life: nearly all of it arrived, once and in order.
    assert life.taken >= 0.95 * life.sent
    assert life.pair.verify(healed=False).violations == ()
    life.pair.close()


@pytest.mark.long
def test_an_hour_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "SWEEP_EVERY", 5 * MINUTE)
    assert_flat(*lived(tmp_path, 2, 20))


@pytest.mark.soak
def test_a_day_leaves_nothing_behind(tmp_path: Path) -> None:
    assert_flat(*lived(tmp_path, 22, 60))
