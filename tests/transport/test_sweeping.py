"""What a writer began and could not finish is taken away later, by itself; nobody else's is."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oncewire.transport.contract import Cargo, OutcomeKind
from oncewire.transport.files import transport as sweeping
from oncewire.transport.files.remote import new_id, part_name, part_of, writer_mark
from tests.transport.exchange import Receiver, cargo
from tests.transport.file_servers import Mood
from tests.transport.test_server_faults import on_files
from tests.waiting import until

pytestmark = pytest.mark.long
OURS, THEIRS = writer_mark("oncewire"), writer_mark("somebody")
HOUR = 3600 * 1_000_000


def begun(mark: str, ago: int) -> str:
    """The name of a file that a writer began so long ago."""
    made = new_id(mark)
    return part_name(f"{int(made[:16]) - ago:016d}{made[16:]}")


@pytest.mark.parametrize("way", ["ftp", "sftp"])
@pytest.mark.requirement("TRN-4")
@pytest.mark.within(30)
async def test_only_what_we_began_long_ago_is_removed(way: str, tmp_path: Path) -> None:
    async with on_files(way, tmp_path, Mood(), Receiver()) as (transport, address, inbox):
        old = begun(OURS, 2 * HOUR)
        kept = [begun(OURS, HOUR // 2), begun(THEIRS, 48 * HOUR), ".begun.part", ".part"]
        for name in (old, *kept):
            (inbox / name).write_bytes(b"half")
        outcome = await transport.send(cargo(b"<a/>"), address, timeout=20)
        assert outcome.kind is OutcomeKind.SENT
        await until(lambda: not (inbox / old).exists())
        await until(lambda: sorted(kept) == sorted(file.name for file in inbox.iterdir()))


@pytest.mark.parametrize("way", ["ftp", "sftp"])
@pytest.mark.requirement("TRN-4")
@pytest.mark.within(120)
async def test_what_a_broken_connection_left_goes_and_what_is_being_written_stays(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "SAFE", 0.0)
    monkeypatch.setattr(sweeping, "EVERY", 0.0)
    mood = Mood(breaks=True)

    receiver, swept = Receiver(), asyncio.Event()
    async with on_files(way, tmp_path, mood, receiver) as (transport, address, inbox):
        outcome = await transport.send(cargo(b"x" * 300_000), address, timeout=5)
        assert outcome.kind is OutcomeKind.REFUSED
        mood.breaks = False
        slow = asyncio.create_task(transport.send(_held(swept), address, timeout=60))
        await until(lambda: any(_long(file) for file in inbox.iterdir()))
        left = part_name(new_id(OURS))
        (inbox / left).write_bytes(b"half of what a process before us wrote")
        # Whoever sends looks what was left, now also beside one that is being written.
        outcome = await transport.send(cargo(b"<whole/>"), address, timeout=60)
        assert outcome.kind is OutcomeKind.SENT
        await until(lambda: not (inbox / left).exists())
        outcome = await transport.send(cargo(b"<another/>"), address, timeout=60)
        assert outcome.kind is OutcomeKind.SENT
        swept.set()
        assert (await slow).kind is OutcomeKind.SENT
        await until(lambda: not list(inbox.iterdir()))
        assert {len(taken.body) for taken in receiver.taken} == {8, 10, 3_000_000}


def _held(swept: asyncio.Event) -> Cargo:
    """A cargo that is not written to its end before that."""

    async def chunks() -> AsyncIterator[bytes]:
        yield b"y" * 100_000
        await swept.wait()
        yield b"y" * 2_900_000

    return Cargo("text/xml", (), 3_000_000, chunks)


def _long(file: Path) -> bool:
    try:
        return file.stat().st_size > 50_000
    except OSError:
        return False


def test_a_name_says_whose_it_is_and_since_when() -> None:
    before = time.time_ns() // 1000
    name = part_name(new_id(OURS))
    found = part_of(name, OURS)
    assert found is not None
    assert before <= found[1] <= time.time_ns() // 1000
    assert part_of(name, THEIRS) is None
    for other in (name[1:], f"{name}x", name.replace(".part", ".parcel"), "..part", ".a.part"):
        assert part_of(other, OURS) is None
