"""Two handlers, each a process with a store of its own, read one folder on a server, and one of
them is killed again and again while it holds a claim: each parcel is stored by one of them, once.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import random
from collections import Counter
from collections.abc import AsyncIterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from oncewire.journal.check import check_journal
from oncewire.journal.row import Row
from oncewire.protocol.notes import Kind
from oncewire.store.sqlite.store import SqliteStore
from oncewire.transport.contract import OutcomeKind
from tests.handler.processes import folder_party
from tests.handler.processes.folder_party import NAMES, handler, read_on
from tests.handler.test_other_transports import document
from tests.transport.file_servers import ftp_server, sftp_server

pytestmark = [pytest.mark.process, pytest.mark.long]

_CHILDREN = multiprocessing.get_context("forkserver")


@contextlib.asynccontextmanager
async def server(way: str, folder: Path) -> AsyncIterator[tuple[dict[str, str], Path]]:
    root = folder / "root"
    for name in NAMES:
        (root / name).mkdir(parents=True)
    if way == "sftp":
        async with sftp_server(root, folder) as (port, known):
            yield {name: f"sftp://127.0.0.1:{port}/{name}" for name in NAMES}, known
    else:
        with ftp_server(root) as port:
            yield {name: f"ftp://127.0.0.1:{port}/{name}" for name in NAMES}, folder


def rows_of(folder: Path, reader: str) -> list[Row]:
    store = SqliteStore(folder / f"{reader}.db", node=reader)
    try:
        with store.reader() as reading:
            return reading.journal_since(0, 10_000_000)
    finally:
        store.close()


class Mortal:
    """The reader that is killed whenever it holds a claim, a moment later or earlier."""

    def __init__(self, folder: Path, arguments: tuple[object, ...], chance: random.Random) -> None:
        self._inbox, self._arguments, self._chance = folder / "root" / "beta", arguments, chance
        self.deaths = self.with_a_claim = 0
        self.process = self._born()

    def _born(self) -> BaseProcess:
        process = _CHILDREN.Process(target=read_on, args=self._arguments, daemon=True)
        process.start()
        return process

    def claims(self) -> set[str]:
        return {file.name for file in self._inbox.iterdir() if ".claimed-mortal" in file.name}

    async def live_and_die(self) -> None:
        """Until this very process has claimed something; what the last one held is not its own."""
        inherited = self.claims()
        while not self.claims() - inherited:
            await asyncio.sleep(0.001)
        await asyncio.sleep(self._chance.random() * self._chance.choice((0.0, 0.01, 0.05)))
        self.process.kill()
        await asyncio.to_thread(self.process.join)
        self.deaths += 1
        self.with_a_claim += bool(self.claims())
        self.process = self._born()


@pytest.mark.parametrize(
    ("parcels", "deaths"),
    [
        pytest.param(60, 4, marks=pytest.mark.within(100)),
        pytest.param(600, 60, marks=[pytest.mark.soak, pytest.mark.within(660)]),
    ],
)
@pytest.mark.parametrize("way", ["ftp", "sftp"])
@pytest.mark.requirement("TRN-4")
async def test_each_parcel_is_stored_by_one_of_them_once(
    way: str, parcels: int, deaths: int, tmp_path: Path
) -> None:
    _CHILDREN.set_forkserver_preload([folder_party.__name__])
    chance = random.Random(f"{way} {deaths}")
    inbox = tmp_path / "root" / "beta"
    async with server(way, tmp_path) as (addresses, known):
        steady = _CHILDREN.Process(
            target=read_on, args=(tmp_path, "steady", addresses, known), daemon=True
        )
        mortal = Mortal(tmp_path, (tmp_path, "mortal", addresses, known), chance)
        steady.start()
        made, way_out = handler(tmp_path, "alpha", "alpha", addresses, known)
        async with made as alpha:
            sent, enough = [], asyncio.Event()

            async def sending() -> None:
                # While they are born and die, more comes.
                while len(sent) < parcels or not enough.is_set():
                    sent.append((await alpha.send(document(len(sent)))).message_id)
                    # However slow the machine is, none waits so long that it is given up.
                    while way_out.ended.total() < len(sent):
                        await asyncio.sleep(0.01)

            busy = asyncio.create_task(sending())
            for _ in range(deaths):
                await mortal.live_and_die()
            enough.set()
            await busy
            assert set(way_out.ended) == {OutcomeKind.SENT}
            while any(inbox.iterdir()):
                await asyncio.sleep(0.05)
        for process in (steady, mortal.process):
            process.kill()
            process.join()
    assert mortal.with_a_claim, "it never died with a claim, so this shows nothing"
    stored: Counter[str] = Counter()
    for reader in ("steady", "mortal"):
        rows = rows_of(tmp_path, reader)
        assert not check_journal(rows, healed=False).violations
        assert Kind.DUPLICATE not in {row.kind for row in rows} or reader == "mortal"
        received = [str(row.message_id) for row in rows if row.kind == Kind.RECEIVED]
        assert received, f"{reader} took nothing, so this shows nothing"
        stored.update(received)
    print(f"{len(sent)} parcels, {mortal.deaths} deaths, {mortal.with_a_claim} with a claim")
    assert stored == Counter(sent)
