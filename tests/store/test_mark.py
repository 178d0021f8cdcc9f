"""The mark of a store: noted after the commit, never ahead of it, and known again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from oncewire.errors import StoreGone, StoreProblem, StoreReplaced
from oncewire.store.records import StoreMark
from oncewire.store.sqlite import store as sqlite
from oncewire.store.sqlite.connection import check_mark
from oncewire.store.sqlite.store import SqliteStore
from tests.store.samples import row


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def opened(path: Path) -> Callable[..., tuple[SqliteStore, list[StoreMark]]]:
    """Opens the store; what it has noted since."""

    def open_it(known: StoreMark | None = None) -> tuple[SqliteStore, list[StoreMark]]:
        noted: list[StoreMark] = []
        return SqliteStore(path, node="a", known=known, note=noted.append), noted

    return open_it


Opened = Callable[..., tuple[SqliteStore, list[StoreMark]]]


def write(store: SqliteStore, rows: int = 1, *, commit: bool = True) -> None:
    with store.transition() as transaction:
        transaction.journal([row("started")] * rows)
    if commit:
        store.commit()


def test_a_mark_is_noted_at_the_opening_with_the_first_commit_and_at_the_close(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, noted = opened()
    assert [mark.journal for mark in noted] == [0]
    write(store)
    assert [mark.journal for mark in noted] == [0, 1]
    write(store)
    assert [mark.journal for mark in noted] == [0, 1]
    store.close()
    assert [mark.journal for mark in noted] == [0, 1, 2]
    assert len({mark.store_id for mark in noted}) == 1
    # Nothing happened: there is nothing to note.
    store, again = opened(noted[-1])
    store.close()
    assert again == []
    monkeypatch.setattr(sqlite, "MARK_EVERY", 0.0)
    store, noted = opened(noted[-1])
    for _ in range(3):
        write(store)
    assert [mark.journal for mark in noted] == [3, 4, 5]
    store.close()


def test_what_was_never_committed_is_not_noted(opened: Opened) -> None:
    store, noted = opened()
    write(store)
    write(store, 5, commit=False)
    # A step over many rows has written them, and nobody commits.
    with store.transition() as transaction:
        transaction.sweep(10, 10)
    assert store._connection is not None
    store.close()
    assert noted[-1].journal == 1


def test_each_store_is_another_one(tmp_path: Path) -> None:
    marks: list[StoreMark] = []
    for name in ("one.db", "two.db"):
        SqliteStore(tmp_path / name, node="a", note=marks.append).close()
    assert marks[0].store_id != marks[1].store_id


def test_a_store_that_is_replaced_while_it_is_open_is_not_gone_on_with(
    path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "MARK_EVERY", 0.0)
    store, noted = opened()
    write(store)
    store.close()
    old = path.read_bytes()
    store, noted = opened(noted[-1])
    write(store)
    for end in ("", "-wal", "-shm"):
        Path(f"{path}{end}").unlink()
    path.write_bytes(old)
    with store.transition() as transaction:
        transaction.journal([row("started")])
    with pytest.raises(StoreReplaced, match="removed or replaced"):
        store.commit()
    with pytest.raises(StoreReplaced, match="is older"), store.transition():
        pass
    store.close()
    # It let go of the file, so that the right one can be opened.
    SqliteStore(path, node="a").close()


@pytest.mark.requirement("STO-1")
def test_nothing_is_committed_to_a_file_that_was_taken_away(path: Path, opened: Opened) -> None:
    """SQLite writes on into a deleted file; what it holds is gone with the process."""
    store, _ = opened()
    write(store)
    away = path.with_name("away")
    path.rename(away)
    with store.transition() as transaction:
        transaction.journal([row("started")])
    with pytest.raises(StoreReplaced, match="removed or replaced"):
        store.commit()
    with pytest.raises(StoreReplaced, match="is gone"), store.transition():
        pass
    # Put back, it is the same store again.
    away.rename(path)
    write(store)
    store.close()


def test_the_chain_tells_two_histories_of_one_store_apart(path: Path, opened: Opened) -> None:
    store, noted = opened()
    write(store)
    store.close()
    twin = path.with_name("twin.db")
    shutil.copyfile(path, twin)
    store, mine = opened(noted[-1])
    write(store, 2)
    store.close()
    other = SqliteStore(twin, node="a")
    with other.transition() as transaction:
        transaction.journal([row("stopped")] * 2)
    other.commit()
    other.close()
    check_mark(path, mine[-1])
    check_mark(twin, noted[-1])
    for _ in range(2):
        with pytest.raises(StoreReplaced, match="another history"):
            check_mark(twin, mine[-1])
        other = SqliteStore(twin, node="a")
        write(other, 3)
        other.close()


def test_what_is_no_store_is_told_as_that(path: Path) -> None:
    mark = StoreMark("a" * 32, 5, "00" * 32)
    made = apsw.Connection(str(path))
    made.execute("CREATE TABLE theirs (x)")
    made.close()
    with pytest.raises(StoreProblem, match="another program"):
        check_mark(path, mark)
    path.unlink()
    loop = path.with_name("loop")
    loop.symlink_to(loop)
    with pytest.raises(StoreGone):
        check_mark(loop, mark)
