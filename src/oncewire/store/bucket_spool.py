"""The spool in a bucket of an object store, for handlers on several machines.

A file counts when it is in the bucket. It is written on the disk first, and stays there as a copy
for a while; a file that another handler put is brought to the disk before it is read. That takes
as long as the network does, so it is done in threads: who asks in an event loop for a file that is
not here yet, or puts one by `put_unblocked`, is told so (OnItsWay), and has it when it asks again.
`put` waits for the bucket, in an event loop too.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import uuid4

from oncewire.errors import InvalidValue, OncewireError, StoreDamaged, StoreGone, StoreProblem
from oncewire.store.spool import (
    MARK,
    NAME,
    SHARED_AGE,
    UNFINISHED,
    FileSpool,
    check_name,
    check_owner,
    store_trouble,
)
from oncewire.store.spool_contract import OnItsWay

if TYPE_CHECKING:
    from obstore.store import S3Store

_PLACE = re.compile(r"s3://([a-z0-9][a-z0-9.-]+)(?:/(.*))?")

COPY_AGE = 24 * 3600.0
"""Seconds that the copy of a file stays after it was put or read last."""

THREADS = 4
"""How many files come and go at once."""

UNCLAIMED_AGE = 60.0
"""Seconds after which a file that was put ahead is given back: whoever wanted it is gone."""


class Bucket:
    """Files in a bucket, under their names. Every method blocks."""

    def __init__(self, url: str) -> None:
        found = _PLACE.fullmatch(url)
        if found is None:
            raise InvalidValue(
                f"store.bucket is {url!r}, which names no bucket",
                remedy="write it as s3://BUCKET or s3://BUCKET/PREFIX",
            )
        self.url = url
        lacking = StoreProblem(
            "a spool in a bucket needs the package obstore, which is not installed",
            remedy="pip install 'oncewire[s3]'",
        )
        prefix = (found[2] or "").strip("/")
        self._objects: S3Store = open_bucket(found[1], prefix, timedelta(seconds=10), lacking)

    def check(self) -> None:
        """See that it is there: of a bucket that is not, every file would seem to be lost."""
        import obstore

        with self._reached():
            next(iter(obstore.list(self._objects, chunk_size=1)), None)

    def put(self, name: str, file: Path) -> None:
        """Keep a file under that name; one that is there is replaced."""
        import obstore

        with self._reached():
            obstore.put(self._objects, name, file)

    def fetch(self, name: str, file: Path) -> None:
        """Write a file's content to the disk. Raises StoreDamaged where there is none, or another
        than its name says."""
        import obstore

        digest = hashlib.sha256()
        with store_trouble(), file.open("xb") as here, self._reached():
            try:
                found = obstore.get(self._objects, name)
            except FileNotFoundError:
                raise StoreDamaged(
                    f"spool file {name} is not in {self.url}",
                    remedy="restore it from a copy of the bucket",
                ) from None
            for piece in found.stream():
                here.write(piece)
                digest.update(piece)
        if digest.hexdigest() != name:
            raise StoreDamaged(
                f"spool file {name} in {self.url} has changed",
                remedy="restore it from a copy of the bucket",
            )

    def mark(self, name: str, node: str) -> None:
        """See `FileSpool.mark`."""
        import obstore

        others = [other for other in self.names() if other.startswith(MARK)]
        with self._reached():
            for other in others:
                check_owner(bytes(obstore.get(self._objects, other).bytes()), node, self.url)
            obstore.put(self._objects, name, node.encode())

    def has_mark(self, name: str) -> bool:
        """See `FileSpool.has_mark`."""
        return self.changed_at(name) is not None

    def changed_at(self, name: str) -> float | None:
        """When a file was put last, in seconds since 1970; None: it is not there."""
        import obstore

        with self._reached():
            try:
                return obstore.head(self._objects, name)["last_modified"].timestamp()
            except FileNotFoundError:
                return None

    def names(self) -> dict[str, float]:
        """Every file, and when it was put last."""
        import obstore

        with self._reached():
            return {
                found["path"].rpartition("/")[2]: found["last_modified"].timestamp()
                for some in obstore.list(self._objects)
                for found in some
            }

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        import obstore

        with self._reached(), suppress(FileNotFoundError):
            obstore.delete(self._objects, name)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, FileNotFoundError) as error:
            raise StoreGone(
                f"{self.url} cannot be reached: {str(error).splitlines()[0][:200]}",
                remedy="see AWS_ENDPOINT_URL, AWS_REGION and the credentials in the environment",
            ) from None


def bring(bucket: Bucket, folder: Path, name: str) -> Path:
    """The copy of a file in a folder, which is fetched where it is not there. Blocks."""
    file = folder / check_name(name)
    if not file.is_file():
        coming = folder / f"{os.getpid()}-{uuid4().hex}{UNFINISHED}"
        try:
            bucket.fetch(name, coming)
            with store_trouble():
                coming.replace(file)
        finally:
            coming.unlink(missing_ok=True)
    return file


class BucketSpool(FileSpool):
    """See `spool_contract.Spool`. `shared`: others have the bucket too, each with a folder of its
    own for the copies; then a file stays for a while after it was put, as in a shared folder."""

    def __init__(self, folder: Path, url: str, *, shared: bool = False) -> None:
        super().__init__(folder, shared=shared)
        self._bucket = Bucket(url)
        self._bucket.check()
        self.mark, self.has_mark = self._bucket.mark, self._bucket.has_mark  # type: ignore[method-assign]
        self._threads = ThreadPoolExecutor(THREADS, "oncewire bucket")
        self._coming: dict[str, Future[Path]] = {}
        # Files that were put ahead, and when. A put may wait for a removal, so that it must not
        # stand before that removal in one queue.
        self._putting = ThreadPoolExecutor(THREADS, "oncewire bucket put")
        self._ahead: dict[str, tuple[float, Future[tuple[str, int]]]] = {}
        # What lay in the bucket when it was listed last, and when each was put.
        self._listed: dict[str, float] = {}
        self._listing: Future[dict[str, float]] | None = None
        self._going: set[str] = set()
        self._gone = threading.Condition(self._lock)

    def _name(self, path: Path, name: str) -> None:
        # That there is no copy here is no sign that this file is new.
        with self._lock:
            in_doubt = not self._shared and name not in self._in_use
        known = in_doubt and self._bucket.changed_at(name) is not None
        super()._name(path, name)
        try:
            with self._gone:
                if known:
                    self._made.discard(name)
                # It is counted as in use, so it will not be chosen again.
                self._gone.wait_for(lambda: name not in self._going)
            self._bucket.put(name, self._directory / name)
        except BaseException:
            self.give_back(name)
            raise

    def put_unblocked(self, body: bytes) -> tuple[str, int]:
        """See `spool_contract.Spool`."""
        if not _in_event_loop():
            return self.put((body,))
        with self._lock:
            left = [
                name
                for name, (began, going) in self._ahead.items()
                if going.done() and time() - began > UNCLAIMED_AGE
            ]
            gone = [self._ahead.pop(name)[1] for name in left]
        for name, going in zip(left, gone, strict=True):
            if going.exception() is None:
                self.give_back(name)
        name = self.name_of((body,))
        with self._lock:
            if name not in self._ahead:
                self._ahead[name] = time(), self._putting.submit(self.put, (body,))
            _, going = self._ahead[name]
            if not going.done():
                raise OnItsWay(name, going)
            del self._ahead[name]
        return going.result()

    def give_back(self, name: str) -> None:
        """See `spool_contract.Spool`."""
        with self._lock:
            made = name in self._made
        super().give_back(name)
        with self._lock:
            over = made and name not in self._made and name not in self._in_use
            over = over and name not in self._going
            if over:
                self._going.add(name)
        if over:
            self._do(self._remove_there, name)

    def open(self, name: str) -> BinaryIO:
        """See `spool_contract.Spool`."""
        self._bring(name)
        return super().open(name)

    def path(self, name: str) -> Path | None:
        """See `spool_contract.Spool`, and `open`."""
        self._bring(name)
        return super().path(name)

    def _bring(self, name: str) -> None:
        """Have the copy here."""
        file = self._directory / check_name(name)
        if file.is_file():
            with suppress(OSError):
                os.utime(file)
            return
        with self._lock:
            coming = self._coming.get(name)
            if coming is None:
                coming = self._threads.submit(bring, self._bucket, self._directory, name)
                self._coming[name] = coming
        if _in_event_loop() and not coming.done():
            raise OnItsWay(name, coming)
        try:
            coming.result()
        finally:
            with self._lock:
                self._coming.pop(name, None)

    def remove_unreferenced(self, referenced: set[str], limit: int | None = None) -> int:
        """See `spool_contract.Spool`. In an event loop it goes by what the bucket held when it was
        listed last, and what it finds is removed by threads."""
        found = 0
        # The files that there are, here and in the bucket.
        with store_trouble():
            names = {file.name for file in self._directory.iterdir()}
        if not _in_event_loop():
            self._listed = self._bucket.names()
        elif self._listing is None or self._listing.done():
            if self._listing is not None and self._listing.exception() is None:
                self._listed = self._listing.result()
            self._listing = self._threads.submit(self._bucket.names)
        for name in sorted(filter(NAME.fullmatch, (names | self._listed.keys()) - referenced)):
            if found == limit:
                break
            with self._lock:
                if name in self._in_use or name in self._going or self._is_young(name):
                    continue
                self._going.add(name)
            found += 1
            self._do(self._remove_there, name)
        with suppress(OSError), os.scandir(self._directory) as files:
            for file in files:
                with self._lock, suppress(OSError):
                    if (
                        NAME.fullmatch(file.name) is not None
                        and file.name not in self._in_use
                        and time() - file.stat().st_mtime > COPY_AGE
                    ):
                        self._removal.remove(self._directory / file.name)
        return found

    def _is_young(self, name: str) -> bool:
        put_at = self._listed.get(name, 0.0)
        return self._is_fresh(self._directory / name) or (
            self._shared and time() - put_at < SHARED_AGE
        )

    def _remove_there(self, name: str) -> None:
        """Remove a file, unless another handler put it meanwhile."""
        try:
            put_at = self._bucket.changed_at(name) if self._shared else None
            if put_at is None or time() - put_at >= SHARED_AGE:
                self._bucket.remove(name)
                self._listed.pop(name, None)
                with suppress(OSError):
                    self._removal.remove(self._directory / name)
        finally:
            with self._gone:
                self._going.discard(name)
                self._gone.notify_all()

    def _do(self, work: Any, name: str) -> None:
        """Do it now, or in a thread where an event loop would wait for it."""
        if _in_event_loop():
            self._threads.submit(work, name)
        else:
            with suppress(StoreProblem):
                # What cannot be removed now is found by the next cleaning.
                work(name)


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def open_bucket(bucket: str, prefix: str, within: timedelta, lacking: OncewireError) -> S3Store:
    """The objects of a bucket below a prefix. A request is tried again within that time; `lacking`
    is raised where the package that reaches them is not installed."""
    try:
        from obstore.store import S3Store
    except ImportError:
        raise lacking from None
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    options: Any = {"allow_http": True} if endpoint.startswith("http://") else {}
    retry: Any = {"max_retries": 3, "retry_timeout": within}
    return S3Store(bucket, prefix=prefix or None, client_options=options, retry_config=retry)
