"""Large files leave the disk in pieces, and only where nobody has them any more."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from oncewire.store.removal import LARGE, STEP, Removal


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
