"""The N-th write, fsync or byte of space fails, for every N until a run passes cleanly.

What `commit()` reported durable is there afterwards, what it refused is not: in the running
store, after a proper restart, and in what the files hold if the process dies right then.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncewire.errors import StoreFull, StoreGone, StoreProblem
from oncewire.protocol.sending import SendingChannel
from oncewire.store.contract import Store, Transaction
from oncewire.store.sqlite import store as sqlite
from oncewire.store.sqlite.store import SqliteStore
from tests.store.faulty_vfs import FaultyVfs
from tests.store.samples import (
    CONFIRMED,
    DELIVERED,
    OUTSTANDING,
    add,
    everything,
    parcel,
    prepare,
    received,
    row,
    sent,
)

GROUPS = 3
FAULTS = ["write", "sync", "full"]
EXPECTED: dict[str, type[StoreProblem]] = {"write": StoreGone, "sync": StoreGone, "full": StoreFull}
SEED = 20010106


SOUND = FaultyVfs()
"""A file system without faults, for looking at what is left."""


@pytest.fixture
def vfs() -> Iterator[FaultyVfs]:
    made = FaultyVfs()
    yield made
    made.unregister()


@pytest.fixture(autouse=True)
def small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints happen in a short run too, so that they fail as well."""
    monkeypatch.setattr(sqlite, "CHECKPOINT_PAGES", 24)


def _open(path: Path, vfs: FaultyVfs = SOUND) -> SqliteStore:
    return SqliteStore(path, node="node", vfs=vfs.name)


def _made(path: Path) -> None:
    """A store with the samples' terms."""
    store = _open(path)
    prepare(store)
    store.close()


def _group(store: Store, number: int) -> None:
    """Three transitions that wait for one commit."""
    chance = random.Random(SEED + number)
    for place in "abc":
        with store.transition() as transaction:
            name = f"{number}{place}"
            # Random bytes: a page that is in the file by coincidence would be written by luck.
            body = parcel(chance.randbytes(5_000))
            stored = sent(name, state=OUTSTANDING, next_attempt_at=number, channel="c")
            transaction.add_outgoing(stored, parcel=body, draft=None)
            transaction.add_incoming(received(name))
            transaction.save_sending_channel(SendingChannel("c", used=number))
            transaction.journal([row("submitted", name), row("received", name)])
    store.commit()


def _names(store: Store) -> list[str]:
    view = everything(store)
    names = [stored.outgoing.message_id for stored in reversed(view["outgoing"])]
    # Every table tells the same story, and the numbers have no gap.
    assert [stored.incoming.message_id for stored in reversed(view["incoming"])] == names
    assert [r.message_id for r in view["journal"]] == [name for name in names for _ in range(2)]
    assert [r.seq for r in view["journal"]] == list(range(1, 2 * len(names) + 1))
    if names:
        assert view["channels"][0] == [SendingChannel("c", used=int(names[-1][:-1]))]
    return names


def _files_now(path: Path, folder: Path) -> Path:
    """What a process that dies now leaves behind."""
    folder.mkdir()
    for suffix in ("", "-wal"):
        source = path.with_name(path.name + suffix)
        if source.exists():
            shutil.copy(source, folder / source.name)
    return folder / path.name


def _expected(durable: list[int]) -> list[str]:
    return [f"{number}{place}" for number in durable for place in "abc"]


def _run(path: Path, vfs: FaultyVfs, fault: str, number: int, *, for_ever: bool) -> tuple[int, int]:
    """One run with one fault; returns how often it struck and how many groups were refused."""
    folder = path.parent
    store = _open(path, vfs)
    durable: list[int] = []
    vfs.fail(fault, number, for_ever=for_ever)
    refused = 0
    for group in range(GROUPS):
        try:
            _group(store, group)
        except EXPECTED[fault]:
            refused += 1
            assert not store.pending()
            copy = _files_now(path, folder / f"crash-{group}")
            died = _open(copy)
            assert _names(died) == _expected(durable)
            died.close()
        else:
            durable.append(group)
    struck = vfs.struck
    vfs.heal()
    assert _names(store) == _expected(durable)
    # When the trouble is over the store goes on by itself.
    _group(store, GROUPS)
    durable.append(GROUPS)
    assert _names(store) == _expected(durable)
    store.close()
    store = _open(path)
    assert _names(store) == _expected(durable)
    store.close()
    return struck, refused


@pytest.mark.long
@pytest.mark.requirement("STO-1", "STO-3")
@pytest.mark.parametrize("for_ever", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_nth_failure(tmp_path: Path, vfs: FaultyVfs, fault: str, for_ever: bool) -> None:
    _made(tmp_path / "store.db")
    number, struck, refusals = 0, 1, 0
    while struck:
        number += 1
        assert number < 2_000
        folder = tmp_path / f"run-{number}"
        folder.mkdir()
        shutil.copy(tmp_path / "store.db", folder / "store.db")
        struck, refused = _run(folder / "store.db", vfs, fault, number, for_ever=for_ever)
        refusals += refused
        shutil.rmtree(folder)
    # The fault really struck, and was seen; the last run was clean.
    assert number > 5
    assert refusals >= number // 4


@pytest.mark.requirement("STO-3", "STO-7")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_sweep_happens_whole_or_not_at_all(tmp_path: Path, vfs: FaultyVfs, fault: str) -> None:
    path = tmp_path / "store.db"
    store = _open(path)
    prepare(store)
    with store.transition() as transaction:
        for place in "abc":
            # Random bytes: a page that is in the file by coincidence would be written by luck.
            body = parcel(random.Random(f"{SEED}{place}").randbytes(9_000))
            done = sent(place, state=DELIVERED)
            transaction.add_outgoing(done, parcel=body, draft=None)
            transaction.add_incoming(received(place, state=CONFIRMED, body=body))
            transaction.journal([row("submitted", place), row("received", place)])
    store.commit()
    before = everything(store)
    store.close()
    number, struck, refusals = 0, 1, 0
    while struck:
        number += 1
        folder = tmp_path / f"run-{number}"
        folder.mkdir()
        shutil.copy(path, folder / "store.db")
        store = _open(folder / "store.db", vfs)
        vfs.fail(fault, number)
        expected = before
        try:
            with store.transition() as transaction:
                assert transaction.sweep(10**18, 100) == 6
            store.commit()
        except EXPECTED[fault]:
            refusals += 1
        else:
            expected = everything(store)
            assert sum(expected["counts"].values()) == 0
            assert [len(expected[place][-1]) for place in "abc"] == [2, 2, 2]
        struck = vfs.struck
        died = _open(_files_now(folder / "store.db", folder / "crash"))
        assert everything(died) == expected
        died.close()
        vfs.heal()
        assert everything(store) == expected
        store.close()
    # The fault really struck, and was seen; the last run was clean.
    assert number > 1
    assert refusals >= 1


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_store_that_cannot_be_made_can_be_made_later(
    tmp_path: Path, vfs: FaultyVfs, fault: str
) -> None:
    number, struck = 0, 1
    while struck:
        number += 1
        path = tmp_path / f"{number}.db"
        vfs.fail(fault, number)
        try:
            store = _open(path, vfs)
        except StoreProblem:
            assert vfs.struck
            store = _open(path, vfs)
        struck = vfs.struck
        vfs.heal()
        prepare(store)
        _group(store, 0)
        store.close()
        store = _open(path)
        assert _names(store) == _expected([0])
        store.close()
    assert number > 3


@pytest.mark.parametrize("reads", range(1, 12))
def test_a_page_that_cannot_be_read_fails_the_transition_and_what_waits_with_it(
    tmp_path: Path, vfs: FaultyVfs, reads: int
) -> None:
    path = tmp_path / "store.db"
    _made(path)
    store = _open(path, vfs)
    _group(store, 0)
    with store.transition() as transaction:
        add(transaction, sent("1a"))
    assert store._connection is not None
    store._connection.pragma("shrink_memory")
    vfs.fail("read", reads, for_ever=True)
    failed = False
    try:
        with store.transition() as transaction:
            transaction.outgoing("0a")
            transaction.incoming("buyer", "0b")
            transaction.open_incident(1, "trouble", None, None)
            transaction.sweep(10**18, 10)
    except StoreGone:
        failed = True
        with pytest.raises(StoreGone):
            store.commit()
    vfs.heal()
    if not failed:
        store.close()
        return
    assert _names(store) == _expected([0])
    _group(store, 1)
    assert _names(store) == _expected([0, 1])
    store.close()


def test_whoever_swallows_a_failure_is_told_at_the_end_of_the_transition(
    tmp_path: Path, vfs: FaultyVfs
) -> None:
    path = tmp_path / "store.db"
    _made(path)
    store = _open(path, vfs)
    swallowed = False

    def swallow(transaction: Transaction) -> None:
        nonlocal swallowed
        vfs.fail("read", 1)
        try:
            transaction.open_incident(1, "trouble", None, None)
        except StoreGone:
            swallowed = True

    assert store._connection is not None
    store._connection.pragma("shrink_memory")
    with pytest.raises(StoreGone), store.transition() as transaction:
        swallow(transaction)
    assert swallowed
    assert not store.pending()
    store.close()


def test_a_statement_that_is_cut_off_ends_what_waits_with_it(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    _made(path)
    store = _open(path)
    with store.transition() as transaction:
        add(transaction, sent("0a"))
    assert store._connection is not None
    store._connection.set_progress_handler(lambda: True, 1)
    with pytest.raises(StoreGone, match="interrupted"), store.transition() as transaction:
        transaction.due(1, 1)
    with pytest.raises(StoreGone):
        store.commit()
    assert _names(store) == []
    _group(store, 0)
    assert _names(store) == _expected([0])
    store.close()


def test_asking_for_the_next_wake_may_fail_too(tmp_path: Path, vfs: FaultyVfs) -> None:
    path = tmp_path / "store.db"
    _made(path)
    store = _open(path, vfs)
    with store.transition() as transaction:
        add(transaction, sent("0a"))
    assert store._connection is not None
    store._connection.pragma("shrink_memory")
    vfs.fail("read", 1, for_ever=True)
    with pytest.raises(StoreGone):
        store.next_wake()
    with pytest.raises(StoreGone):
        store.commit()
    vfs.heal()
    assert store.next_wake() is None
    assert _names(store) == []
    store.close()


def test_a_view_that_cannot_be_read_says_so(tmp_path: Path, vfs: FaultyVfs) -> None:
    path = tmp_path / "store.db"
    _made(path)
    store = _open(path, vfs)
    _group(store, 0)
    vfs.fail("read", 1, for_ever=True)
    with pytest.raises(StoreGone), store.reader():
        pass
    vfs.heal()
    with store.reader() as reader:
        assert reader.last_seq() == 6
    with store.reader() as reader:
        vfs.fail("read", 1, for_ever=True)
        with pytest.raises(StoreGone):
            reader.incidents()
    vfs.heal()
    assert _names(store) == _expected([0])
    store.close()


def test_a_store_that_stays_broken_can_still_be_closed(tmp_path: Path, vfs: FaultyVfs) -> None:
    path = tmp_path / "store.db"
    _made(path)
    store = _open(path, vfs)
    _group(store, 0)
    vfs.fail("sync", 1, for_ever=True)
    with pytest.raises(StoreGone):
        _group(store, 1)
    with pytest.raises(StoreGone), store.transition():
        pass
    store.close()
    vfs.heal()
    store = _open(path)
    assert _names(store) == _expected([0])
    store.close()


@pytest.mark.long
@pytest.mark.requirement("STO-1", "STO-2")
def test_the_power_fails_at_every_write(tmp_path: Path, vfs: FaultyVfs) -> None:
    path = tmp_path / "store.db"
    _made(path)
    store = _open(path, vfs)
    chance = random.Random(SEED)
    durable: list[int] = []
    images = 0

    def look() -> None:
        nonlocal images
        images += 1
        folder = tmp_path / f"image-{images}"
        folder.mkdir()
        vfs.cut_power(folder, chance)
        left = _open(folder / "store.db")
        # The group in the middle of its commit is there whole or not at all.
        now = len(durable)
        assert _names(left) in (_expected(durable), _expected([*durable, now])), f"seed {SEED}"
        left.close()
        shutil.rmtree(folder)

    for group in range(6):
        vfs.watch = look
        _group(store, group)
        vfs.watch = None
        durable.append(group)
        # Reported durable: from now on it is there.
        look()
    assert images > 100
    store.close()
