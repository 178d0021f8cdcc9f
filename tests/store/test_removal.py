"""Large files leave the disk in pieces, and only where nobody has them any more."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from oncewire.store import spool as removal
from oncewire.store.spool import LARGE, STEP, WAITING_MAX, FileSpool, Removal


class Watched:
    """How long files were when a piece had been taken from them, until the last of one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.closed = threading.Semaphore(0)
        sync, close = os.fsync, os.close

        def synced(handle: int) -> None:
            self.sizes.append(os.fstat(handle).st_size)
            sync(handle)

        def closing(handle: int) -> None:
            close(handle)
            if threading.current_thread().name == "removal":
                self.closed.release()

        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "close", closing)

    def until_gone(self) -> None:
        assert self.closed.acquire(timeout=60)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def large_file(path: Path, size: int = LARGE + 1) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
    return path


def test_a_large_file_goes_in_pieces(tmp_path: Path, watched: Watched) -> None:
    path = large_file(tmp_path / "large")
    Removal().remove(path)
    assert not path.exists()
    watched.until_gone()
    assert watched.sizes == [LARGE + 1 - STEP * step for step in range(1, 5)] + [0]


def test_a_small_file_goes_at_once(tmp_path: Path, watched: Watched) -> None:
    path = large_file(tmp_path / "small", LARGE - 1)
    Removal().remove(path)
    assert not path.exists()
    Removal().remove(path)
    assert watched.sizes == []


def test_to_whoever_reads_it_a_file_stays_whole(tmp_path: Path, watched: Watched) -> None:
    path = large_file(tmp_path / "large")
    with path.open("rb") as reader:
        Removal().remove(path)
        watched.until_gone()
        assert len(reader.read()) == LARGE + 1
    assert watched.sizes == []


def test_a_file_with_another_name_stays_whole_under_it(tmp_path: Path, watched: Watched) -> None:
    path, other = large_file(tmp_path / "large"), tmp_path / "other"
    other.hardlink_to(path)
    Removal().remove(path)
    watched.until_gone()
    assert other.stat().st_size == LARGE + 1


def test_what_loses_its_name_to_another_goes_in_pieces_too(
    tmp_path: Path, watched: Watched
) -> None:
    path, target = tmp_path / "new", large_file(tmp_path / "old")
    path.write_bytes(b"new")
    Removal().replace(path, target)
    assert target.read_bytes() == b"new"
    assert not path.exists()
    watched.until_gone()
    assert watched.sizes[-1] == 0


def test_what_cannot_be_removed_is_told_and_keeps_all_it_has(
    tmp_path: Path, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = large_file(tmp_path / "large")

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(PermissionError):
        Removal().remove(path)
    watched.until_gone()
    assert path.stat().st_size == LARGE + 1


def held_handles() -> int:
    """Handles of this process on files that lost their names."""
    handles = (handle for handle in Path("/proc/self/fd").iterdir() if handle.exists())
    return sum(str(handle.readlink()).endswith(" (deleted)") for handle in handles)


def test_files_that_wait_do_not_take_all_handles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cleaning removes thousands at once, and a slow disk takes a minute for them."""
    gate, closed = threading.Event(), threading.Semaphore(0)

    def shrink(_: int) -> None:
        assert gate.wait(60)
        closed.release()

    monkeypatch.setattr(removal, "_shrink", shrink)
    waiting, before = Removal(), held_handles()
    for number in range(WAITING_MAX + 9):
        waiting.remove(large_file(tmp_path / str(number)))
    held = held_handles() - before
    gate.set()
    for _ in range(held):
        assert closed.acquire(timeout=60)
    assert held == WAITING_MAX
    assert not list(tmp_path.iterdir())
    # There is room again for the next one.
    waiting.remove(large_file(tmp_path / "next"))
    assert closed.acquire(timeout=60)


def test_a_system_without_another_thread_lets_go_of_a_file_by_itself(
    tmp_path: Path, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, before = Removal(), held_handles()

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as crowded:
        crowded.setattr(threading.Thread, "start", refused)
        waiting.remove(large_file(tmp_path / "large"))
    assert held_handles() == before
    assert not list(tmp_path.iterdir())
    waiting.remove(large_file(tmp_path / "later"))
    watched.until_gone()
    assert watched.sizes[-1] == 0


def test_a_handle_that_cannot_be_closed_does_not_end_the_others(
    tmp_path: Path, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, close, complained = Removal(), os.close, threading.Event()

    def closing(handle: int) -> None:
        close(handle)
        if threading.current_thread().name == "removal" and not complained.is_set():
            complained.set()
            raise OSError(5, "on purpose")

    monkeypatch.setattr(os, "close", closing)
    for name in ("one", "two"):
        waiting.remove(large_file(tmp_path / name))
    watched.until_gone()
    watched.until_gone()
    assert complained.is_set()
    assert watched.sizes.count(0) == 2


LOOKED_INTO = """
import fcntl, os, sys
from oncewire.store.spool import _is_alone

handle = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.unlink(sys.argv[1])
real = fcntl.fcntl

def between(handle, command, argument):
    if command == fcntl.F_SETLEASE and argument == fcntl.F_UNLCK:
        # Whoever looks into it now would have to wait until the lease is over.
        try:
            os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK)
        except BlockingIOError:
            print("looked")
    return real(handle, command, argument)

fcntl.fcntl = between
print(_is_alone(handle))
"""


@pytest.mark.process
@pytest.mark.skipif(not hasattr(fcntl, "F_SETLEASE"), reason="no such lease here")
def test_who_looks_into_a_file_meanwhile_does_not_end_the_process(tmp_path: Path) -> None:
    """The system tells the holder of a lease by a signal, of which a process dies by default."""
    command = [sys.executable, "-c", LOOKED_INTO, str(tmp_path / "file")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != -signal.SIGIO
    assert ended.stdout.split() == ["looked", "True"]


def test_whoever_cleans_waits_for_no_large_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "LARGE", 1)
    monkeypatch.setattr(removal, "WAITING_MAX", 2)
    gate = threading.Event()
    shrink = removal._shrink

    def held(handle: int) -> None:
        assert gate.wait(60)
        shrink(handle)

    monkeypatch.setattr(removal, "_shrink", held)
    spool = FileSpool(tmp_path)
    for number in range(5):
        name, _ = spool.put([bytes([number])])
        spool.let_go(name)
    assert spool.remove_unreferenced(set()) == 5
    assert len(list(tmp_path.iterdir())) == 3
    gate.set()
    while list(tmp_path.iterdir()):
        spool.remove_unreferenced(set())
