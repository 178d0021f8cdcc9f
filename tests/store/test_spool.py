"""Large payloads as files named by their hash."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from oncewire.errors import InvalidValue, StoreDamaged, StoreFull, StoreGone, StoreProblem
from oncewire.store import spool as write_through
from oncewire.store.bucket_spool import UNCLAIMED_AGE, Bucket, BucketSpool, bring
from oncewire.store.memory.store import MemorySpool
from oncewire.store.spool import FileSpool
from oncewire.store.spool_contract import OnItsWay, Spool
from tests.buckets import Buckets, serving
from tests.waiting import until, wait_until

MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def server() -> Iterator[Buckets]:
    with serving() as made:
        yield made


@pytest.fixture
def bucket(server: Buckets, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty one."""
    server.empty("spools")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return "s3://spools/of/acme"


@pytest.fixture(params=["memory", "files", "bucket"])
def spool(request: pytest.FixtureRequest, tmp_path: Path) -> Spool:
    if request.param == "bucket":
        return BucketSpool(tmp_path / "spool", request.getfixturevalue("bucket"))
    return MemorySpool() if request.param == "memory" else FileSpool(tmp_path / "spool")


def _content(spool: Spool, name: str) -> bytes:
    with spool.open(name) as file:
        return file.read()


@pytest.mark.parametrize("chunks", [[], [b""], [b"one"], [b"one", b"", b"two" * 100_000]])
def test_a_file_is_named_by_its_hash(spool: Spool, chunks: list[bytes]) -> None:
    whole = b"".join(chunks)
    name, size = spool.put(iter(chunks))
    assert name == hashlib.sha256(whole).hexdigest()
    assert size == len(whole)
    assert _content(spool, name) == whole
    # The same content is the same file.
    assert spool.put([whole]) == (name, size)
    # It was put twice, so it is let go twice.
    spool.let_go(name)
    assert spool.remove_unreferenced(set()) == 0
    spool.let_go(name)
    assert spool.remove_unreferenced(set()) == 1


@pytest.mark.parametrize(
    "name",
    ["", "x", "../" + "a" * 61, "a" * 63, "a" * 65, "A" * 64, "a" * 64 + "\n", "/" + "a" * 63],
)
def test_no_other_name_is_ever_opened(spool: Spool, name: str) -> None:
    with pytest.raises(InvalidValue):
        spool.open(name)


def test_a_missing_file_is_said_to_be_missing(spool: Spool) -> None:
    with pytest.raises(StoreProblem, match="a" * 64):
        spool.open("a" * 64)


@pytest.mark.parametrize("instead", ["pipe", "link to a pipe", "folder", "link to nothing"])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, instead: str) -> None:
    """Who opens a pipe waits for its writer: nobody would hear of the message it stands for."""
    spool = FileSpool(tmp_path / "spool")
    name, _ = spool.put([b"content"])
    path = tmp_path / "spool" / name
    path.unlink()
    if instead == "folder":
        path.mkdir()
    elif instead == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path / "pipe")
        if instead == "link to a pipe":
            os.mkfifo(tmp_path / "pipe")
    found = Future[Exception]()

    def look() -> None:
        with pytest.raises(StoreDamaged) as problem:
            spool.open(name)
        found.set_result(problem.value)

    threading.Thread(target=look, daemon=True).start()
    assert name in str(found.result(10))


def test_only_files_that_nobody_names_are_removed(spool: Spool) -> None:
    kept, _ = spool.put([b"kept"])
    gone, _ = spool.put([b"gone"])
    spool.let_go(kept)
    spool.let_go(gone)
    assert spool.remove_unreferenced({kept, "f" * 64}) == 1
    assert _content(spool, kept) == b"kept"
    with pytest.raises(StoreProblem):
        spool.open(gone)
    assert spool.remove_unreferenced({kept}) == 0


def test_what_is_in_use_stays_although_nobody_names_it(spool: Spool) -> None:
    name, _ = spool.put([b"not committed yet"])
    assert spool.remove_unreferenced(set()) == 0
    # Somebody reads it, and the commit that would have named it never came.
    spool.use(name)
    spool.let_go(name)
    assert spool.remove_unreferenced(set()) == 0
    assert _content(spool, name) == b"not committed yet"
    spool.let_go(name)
    assert spool.remove_unreferenced(set()) == 1


def test_no_more_files_are_removed_at_once_than_allowed(spool: Spool) -> None:
    for number in range(5):
        spool.let_go(spool.put([b"%d" % number])[0])
    assert [spool.remove_unreferenced(set(), 2) for _ in range(4)] == [2, 2, 1, 0]


def test_a_file_that_somebody_took_away_meanwhile_is_removed_all_the_same(tmp_path: Path) -> None:
    spool = FileSpool(tmp_path)
    names = [spool.put([content])[0] for content in (b"one", b"two")]
    for name in names:
        spool.let_go(name)

    class Taking(set[str]):
        def __contains__(self, name: object) -> bool:
            (tmp_path / str(name)).unlink()
            return False

    spool.remove_unreferenced(Taking())
    assert list(tmp_path.iterdir()) == []


def test_a_put_that_failed_leaves_nothing_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = FileSpool(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", None)
        broken.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(5, "on purpose")))
        with pytest.raises(StoreGone):
            spool.put([b"x"])
    spool.let_go(spool.put([b"x"])[0])
    assert spool.remove_unreferenced(set()) == 1


def test_putting_and_removing_at_once_never_loses_a_body(tmp_path: Path) -> None:
    """One thread puts the same few bodies again and again, as retries of a sender do, another
    one clears away what nobody names: what was put is there until it is let go."""
    spool = FileSpool(tmp_path)
    done = threading.Event()
    removed = 0

    def clear() -> None:
        nonlocal removed
        while not done.is_set():
            removed += spool.remove_unreferenced(set())

    sweeper = threading.Thread(target=clear)
    sweeper.start()
    try:
        number = 0
        # Until both really met, however seldom the other one had its turn.
        while number < 150 or removed <= 10:
            number += 1
            content = b"body %d" % (number % 3)
            name, _ = spool.put([content])
            assert _content(spool, name) == content
            spool.let_go(name)
    finally:
        done.set()
        sweeper.join()


def test_what_a_crash_left_half_written_is_cleared_away(tmp_path: Path) -> None:
    spool = FileSpool(tmp_path)
    name, _ = spool.put([b"whole"])
    (tmp_path / "4711-1.part").write_bytes(b"ha")
    (tmp_path / "somebody's notes").write_text("not ours")
    assert FileSpool(tmp_path).remove_unreferenced({name}) == 0
    assert {path.name for path in tmp_path.iterdir()} == {name, "somebody's notes"}


def test_a_file_being_written_is_left_alone(tmp_path: Path) -> None:
    spool = FileSpool(tmp_path)

    def chunks() -> Iterator[bytes]:
        yield b"one"
        assert spool.remove_unreferenced(set()) == 0
        # A second one at the same time gets a name of its own.
        assert _content(spool, spool.put([b"between"])[0]) == b"between"
        yield b"two"

    name, _ = spool.put(chunks())
    assert _content(spool, name) == b"onetwo"


@pytest.mark.parametrize("problem", [ConnectionResetError, ValueError, KeyboardInterrupt])
def test_a_sender_that_breaks_off_leaves_nothing_and_is_not_the_stores_fault(
    tmp_path: Path, problem: type[BaseException]
) -> None:
    spool = FileSpool(tmp_path)

    def chunks() -> Iterator[bytes]:
        yield b"one"
        raise problem

    with pytest.raises(problem):
        spool.put(chunks())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EIO, StoreGone)],
)
@pytest.mark.parametrize("step", [1, 2])
def test_a_disk_that_fails_leaves_no_file_to_rely_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    expected: type[StoreProblem],
    step: int,
) -> None:
    spool = FileSpool(tmp_path)
    real, calls = os.fsync, 0

    def fsync(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls == step:
            raise OSError(number, os.strerror(number))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(expected):
        spool.put([b"x"])
    assert calls == step
    assert list(tmp_path.iterdir()) == []
    # Once the disk works again, so does the spool.
    assert _content(spool, spool.put([b"x"])[0]) == b"x"


def test_a_folder_that_is_gone_is_said_to_be_gone(tmp_path: Path) -> None:
    spool = FileSpool(tmp_path / "spool")
    (tmp_path / "spool").rmdir()
    with pytest.raises(StoreGone):
        spool.put([b"x"])


def test_content_comes_before_its_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(handle: int) -> None:
        steps.append(
            "directory" if Path(f"/proc/self/fd/{handle}").readlink() == tmp_path else "file"
        )
        real_fsync(handle)

    def replace(path: Path, target: Any) -> Path:
        steps.append("rename")
        return real_replace(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    FileSpool(tmp_path).put([b"x"])
    assert steps == ["file", "rename", "directory"]


# --- pieces, and what nobody took --------------------------------------------------------------


def _files(spool: Spool) -> int:
    """How many finished files a cleaning would find that nobody uses."""
    return spool.remove_unreferenced(set())


def test_a_file_that_grows_is_found_when_it_is_finished(spool: Spool) -> None:
    growing = spool.begin()
    whole = b""
    for number in range(5):
        piece = b"%d" % number * 1000
        growing.write(piece)
        whole += piece
    name, size = growing.finish()
    assert (name, size) == (hashlib.sha256(whole).hexdigest(), len(whole))
    assert _content(spool, name) == whole
    # It counts as put.
    assert _files(spool) == 0
    spool.let_go(name)
    assert _files(spool) == 1


def test_an_abandoned_file_leaves_nothing(spool: Spool, tmp_path: Path) -> None:
    growing = spool.begin()
    growing.write(b"half of it")
    growing.abandon()
    growing.abandon()
    assert _files(spool) == 0
    if isinstance(spool, FileSpool):
        assert list((tmp_path / "spool").iterdir()) == []


def test_a_file_is_abandoned_whatever_its_last_step_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing = FileSpool(tmp_path).begin()

    def write(_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(growing, "_put", write)
    growing.write(b"half of it")
    growing.abandon()
    assert list(tmp_path.iterdir()) == []
    assert growing._file.closed


def test_what_is_given_back_is_gone_at_once(spool: Spool) -> None:
    name, _ = spool.put([b"refused"])
    spool.give_back(name)
    with pytest.raises(StoreProblem):
        spool.open(name)
    assert _files(spool) == 0


def test_what_anybody_kept_stays_when_others_give_it_back(spool: Spool) -> None:
    name, _ = spool.put([b"the same bytes"])
    spool.put([b"the same bytes"])
    spool.put([b"the same bytes"])
    spool.give_back(name)
    assert _content(spool, name) == b"the same bytes"
    # One of them is committed, and so lets it go.
    spool.let_go(name)
    spool.give_back(name)
    assert _content(spool, name) == b"the same bytes"
    # It was there before this one came.
    spool.put([b"the same bytes"])
    spool.give_back(name)
    assert _content(spool, name) == b"the same bytes"
    assert spool.remove_unreferenced({name}) == 0


def test_copies_that_are_all_given_back_go_with_the_last(spool: Spool) -> None:
    name, _ = spool.put([b"twice refused"])
    spool.put([b"twice refused"])
    spool.give_back(name)
    assert _content(spool, name) == b"twice refused"
    spool.give_back(name)
    with pytest.raises(StoreProblem):
        spool.open(name)


def test_a_large_file_goes_to_the_disk_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it at its end would hold up every commit beside it."""
    brought: list[int] = []

    def sync(handle: int) -> None:
        brought.append(os.fstat(handle).st_size)

    monkeypatch.setattr(write_through, "_sync", sync)
    name, size = FileSpool(tmp_path / "spool").put(bytes(MEGABYTE) for _ in range(20))
    assert size == 20 * MEGABYTE
    # It is written on meanwhile.
    assert len(brought) == 2
    assert brought[0] >= 8 * MEGABYTE
    assert brought[1] >= 16 * MEGABYTE
    assert len(name) == 64


def test_a_disk_that_is_full_says_so_as_a_large_file_goes_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sync(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(write_through, "_sync", sync)
    folder = tmp_path / "spool"
    with pytest.raises(StoreFull):
        FileSpool(folder).put(bytes(MEGABYTE) for _ in range(20))
    assert list(folder.iterdir()) == []


# --- in a bucket --------------------------------------------------------------------------------


def _two(tmp_path: Path, bucket: str) -> tuple[BucketSpool, BucketSpool]:
    """The spools of two handlers beside each other, each with a folder of its own."""
    one, other = (BucketSpool(tmp_path / name, bucket, shared=True) for name in ("one", "other"))
    return one, other


def test_what_one_handler_puts_another_reads(tmp_path: Path, bucket: str) -> None:
    one, other = _two(tmp_path, bucket)
    name, _ = one.put([b"for both" * MEGABYTE])
    assert _content(other, name) == b"for both" * MEGABYTE
    assert other.path(name) == tmp_path / "other" / name
    # And so does a command that only looks.
    (tmp_path / "looking").mkdir()
    assert bring(Bucket(bucket), tmp_path / "looking", name).read_bytes()[:8] == b"for both"


def test_in_an_event_loop_nobody_waits_for_the_bucket(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = _two(tmp_path, bucket)
    name, _ = one.put([b"for both"])
    held, fetch = threading.Event(), Bucket.fetch

    def slow(self: Bucket, name: str, file: Path) -> None:
        assert held.wait(60)
        fetch(self, name, file)

    monkeypatch.setattr(Bucket, "fetch", slow)

    async def ask() -> bytes:
        for _ in range(3):
            with pytest.raises(StoreGone, match="on its way"):
                other.open(name)
        held.set()
        while True:
            try:
                return _content(other, name)
            except StoreGone:
                await asyncio.sleep(0.01)

    assert asyncio.run(asyncio.wait_for(ask(), 60)) == b"for both"

    async def ask_for_nothing() -> None:
        while True:
            try:
                other.open("a" * 64)
            except StoreGone:
                await asyncio.sleep(0.01)

    # What is nowhere is not waited for without end.
    with pytest.raises(StoreDamaged, match="is not in"):
        asyncio.run(asyncio.wait_for(ask_for_nothing(), 60))


def test_what_another_handler_may_be_about_to_name_stays(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = _two(tmp_path, bucket)
    name, _ = one.put([b"not committed yet"])
    one.let_go(name)
    assert other.remove_unreferenced(set()) == 0
    assert _content(other, name) == b"not committed yet"
    other_end = time.time() + 2 * write_through.SHARED_AGE
    monkeypatch.setattr("oncewire.store.bucket_spool.time", lambda: other_end)
    monkeypatch.setattr("oncewire.store.spool.time", lambda: other_end)
    one.use(name)
    assert one.remove_unreferenced(set()) == 0
    one.let_go(name)
    assert one.remove_unreferenced({name}) == 0
    assert one.remove_unreferenced(set()) == 1
    assert Bucket(bucket).names() == {}


def test_a_cleaning_in_an_event_loop_leaves_the_work_to_threads(
    tmp_path: Path, bucket: str
) -> None:
    spool = BucketSpool(tmp_path, bucket)
    names = [spool.put([b"%d" % number])[0] for number in range(3)]
    for name in names:
        spool.let_go(name)
        (tmp_path / name).unlink()

    async def clean() -> int:
        return spool.remove_unreferenced({names[0]})

    # First it is seen what there is.
    wait_until(lambda: asyncio.run(clean()) == 2)
    wait_until(lambda: set(Bucket(bucket).names()) == {names[0]})


def test_copies_are_forgotten_and_fetched_again(tmp_path: Path, bucket: str) -> None:
    spool = BucketSpool(tmp_path, bucket)
    name, _ = spool.put([b"kept for long"])
    spool.let_go(name)
    os.utime(tmp_path / name, (0, 0))
    assert spool.remove_unreferenced({name}) == 0
    assert not (tmp_path / name).exists()
    # Who puts and gives back what is there already takes nothing away.
    spool.put([b"kept for long"])
    spool.give_back(name)
    (tmp_path / name).unlink(missing_ok=True)
    assert _content(spool, name) == b"kept for long"


def test_a_bucket_that_is_not_there_or_was_tampered_with(tmp_path: Path, bucket: str) -> None:
    one, other = _two(tmp_path, bucket)
    name, _ = one.put([b"content"])
    (tmp_path / "forged").write_bytes(b"forged")
    Bucket(bucket).put(name, tmp_path / "forged")
    with pytest.raises(StoreDamaged, match="has changed"):
        other.open(name)
    assert list((tmp_path / "other").iterdir()) == []
    with pytest.raises(InvalidValue, match="names no bucket"):
        Bucket("https://spools/of/acme")
    with pytest.raises(StoreGone, match="cannot be reached"):
        BucketSpool(tmp_path / "gone", "s3://nowhere")


def test_a_bucket_that_goes_away_leaves_no_file_to_rely_on(
    tmp_path: Path, bucket: str, server: Buckets
) -> None:
    spool = BucketSpool(tmp_path, bucket)
    server.empty()
    with pytest.raises(StoreGone, match="cannot be reached"):
        spool.put([b"x"])
    assert list(tmp_path.iterdir()) == []
    server.empty("spools")
    assert _content(spool, spool.put([b"x"])[0]) == b"x"


async def _put_soon(spool: BucketSpool, body: bytes) -> tuple[str, int]:
    """As a turn does it that is taken again when the file is there."""
    while True:
        try:
            return spool.put_unblocked(body)
        except OnItsWay as going:
            with contextlib.suppress(StoreProblem):
                await asyncio.wrap_future(going.coming)


def test_bytes_that_can_be_handed_in_again_are_put_without_waiting(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, body = BucketSpool(tmp_path, bucket), b"a part" * 20_000
    held, put, puts = threading.Event(), Bucket.put, list[str]()

    def slow(self: Bucket, name: str, file: Path) -> None:
        assert held.wait(60)
        puts.append(name)
        put(self, name, file)

    monkeypatch.setattr(Bucket, "put", slow)

    async def ask() -> tuple[str, int]:
        for _ in range(3):
            with pytest.raises(OnItsWay):
                spool.put_unblocked(body)
        held.set()
        return await asyncio.wait_for(_put_soon(spool, body), 60)

    name, size = asyncio.run(ask())
    assert (size, puts) == (len(body), [name])
    assert Bucket(bucket).names().keys() == {name}
    # It is in use once, by whoever asked.
    assert spool.remove_unreferenced(set()) == 0
    spool.let_go(name)
    assert spool.remove_unreferenced(set()) == 1
    # Where nothing is blocked there is nothing to ask twice.
    assert spool.put_unblocked(body) == (name, size)


async def test_what_could_not_be_put_ahead_is_told_and_tried_anew(
    tmp_path: Path, bucket: str, server: Buckets
) -> None:
    spool = BucketSpool(tmp_path, bucket)
    server.empty()
    with pytest.raises(StoreGone, match="cannot be reached"):
        await _put_soon(spool, b"x")
    server.empty("spools")
    name, _ = await _put_soon(spool, b"x")
    assert _content(spool, name) == b"x"


async def test_what_was_put_ahead_for_nobody_is_given_back(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = BucketSpool(tmp_path, bucket)
    with pytest.raises(OnItsWay) as going:
        spool.put_unblocked(b"of one who went away")
    await asyncio.wrap_future(going.value.coming)
    kept, _ = await _put_soon(spool, b"of one who waits")
    assert len(Bucket(bucket).names()) == 2
    later = time.time() + UNCLAIMED_AGE + 1
    monkeypatch.setattr("oncewire.store.bucket_spool.time", lambda: later)
    await _put_soon(spool, b"of one who comes later")
    await until(lambda: len(Bucket(bucket).names()) == 2)
    assert kept in Bucket(bucket).names()
