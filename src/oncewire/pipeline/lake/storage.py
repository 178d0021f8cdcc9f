"""Where a lake is kept: a folder, or a bucket of an object store that a folder is a copy of.

A lake works on files in a folder, whatever it is kept in. What differs is how a version becomes the
published one so that all of it is there or nothing, and how there is but one writer; that is here.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from oncewire.errors import JournalProblem, NotAllowed, StoreGone
from oncewire.pipeline.lake import version as crash
from oncewire.pipeline.lake.delta import CHECKPOINT, LAST_CHECKPOINT, LOG
from oncewire.pipeline.lake.tables import OPEN
from oncewire.pipeline.lake.version import (
    CURRENT_FILE,
    Version,
    force_folders,
    parquet_files,
    safe_name,
    write_forced,
)

if TYPE_CHECKING:
    from obstore.store import S3Store


VERSIONS = "versions"
"""The folder of the versions' own files."""

LAYERS = ("bronze", "silver", "gold")
"""The folders of the tables."""


class Storage(Protocol):
    """What keeps one lake."""

    name: str
    """Its name for people."""
    root: Path
    """The folder in which its files are read and written."""

    def refresh(self) -> None:
        """Bring the published version into the folder."""

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """The only writer, as far as that can be known beforehand; NotAllowed for a second one."""
        yield

    def publish(self, version: Version, before: Version) -> None:
        """Make a version the current one. NotAllowed if another writer was quicker: then nothing
        has happened."""

    def shown(self) -> None:
        """Note that other tools' logs of the version are in the folder."""

    def keep(self, path: str) -> None:
        """Keep one more small file of the folder."""

    def bring(self, path: str) -> None:
        """Bring such a file into the folder, if it is kept."""

    def sweep(self, version: Version) -> None:
        """Remove what only earlier versions had, beyond what is removed in the folder."""


def made_since(version: Version, before: Version) -> set[str]:
    """The directories that a version has and the one before has not."""
    return version.paths - before.paths


def version_name(version: Version) -> str:
    """The file of a version."""
    return f"{version.number:08d}.json"


# A lake in a folder: a lock for its writer, files forced to disk, and a pointer that is renamed.
#
# The lock, the force and the rename are the file system's: one that is shared over a network must
# know them.


LOCK = ".lock"


class Folder:
    """A folder on a file system; see `Storage`, whose docstrings hold here."""

    def __init__(self, root: Path) -> None:
        self.root, self.name = root, str(root)

    def refresh(self) -> None:
        pass

    @contextmanager
    def claimed(self) -> Iterator[None]:
        # The system lifts the lock when the process dies, however it does.
        (self.root / VERSIONS).mkdir(parents=True, exist_ok=True)
        handle = os.open(self.root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise NotAllowed(
                    f"another run writes to the lake at {self.name}",
                    remedy="wait for it; one lake has one writer",
                ) from None
            yield
        finally:
            os.close(handle)

    def publish(self, version: Version, before: Version) -> None:
        force_folders(self.root, made_since(version, before))
        name = version_name(version)
        (self.root / VERSIONS).mkdir(parents=True, exist_ok=True)
        write_forced(self.root / VERSIONS / name, version.as_text())
        crash.reached("before_publishing")
        write_forced(self.root / CURRENT_FILE, name + "\n")
        crash.reached("after_publishing")

    def shown(self) -> None:
        pass

    def keep(self, path: str) -> None:
        pass

    def bring(self, path: str) -> None:
        pass

    def sweep(self, version: Version) -> None:
        pass


# A lake in a bucket: objects that are written once, and one pointer that is put on a condition.
#
#     PREFIX/CURRENT                            names the published version; put only if it is still
#                                               the one that the writer began with
#     PREFIX/versions/00000012-<digest>.json    the version, and every file of its directories
#     PREFIX/<directory>/<name>.<digest>.parquet    and so on
#
# Every object is named by its content, so two writers never put different bytes under one name, and
# the writer whose pointer is rejected has changed nothing. What a killed writer left is removed
# after a day. A run works in a copy of the lake, a folder that is brought up to date with the
# objects it lacks; Delta's logs are in the bucket too, so other tools read it without a copy.
#
# Access, region and endpoint are those that the environment says (`AWS_ACCESS_KEY_ID` and the
# like).


COPIES = "ONCEWIRE_LAKE_COPIES"
"""Names the folder for copies of lakes that are in buckets; otherwise it is the user's cache."""

LEFT_FOR = timedelta(days=1)
"""How long an object that no version names is kept: a writer at work may have put it."""

FETCHED = "FETCHED"
"""Beside the versions of the copy: the object of the one that it is a copy of."""

AT_ONCE = 8

Files = dict[str, list[tuple[str, int]]]
"""The files of each directory, by their names below it, with their sizes."""


class Bucket:
    """A prefix of a bucket; see `Storage`, whose docstrings hold here."""

    def __init__(self, bucket: str, prefix: str) -> None:
        from oncewire.store.bucket_spool import open_bucket

        self.name = f"s3://{bucket}/{prefix}".rstrip("/")
        copies = os.environ.get(COPIES) or Path.home() / ".cache" / "oncewire" / "lakes"
        self.root = Path(copies) / safe_name(self.name)
        self._folder = Folder(self.root)
        lacking = NotAllowed(
            "a lake in a bucket needs the package obstore, which is not installed",
            remedy="pip install 'oncewire[s3]'",
        )
        self._objects: S3Store = open_bucket(bucket, prefix, timedelta(seconds=30), lacking)
        self._tag: str | None = None
        self._is_writer = False
        self._objects_of: dict[str, set[str]] = {}
        """Objects of each kept version: a stream sweeps with every batch and reads each once."""

    # --- reading ---

    def refresh(self) -> None:
        # A writer goes on from the version that it began with.
        if not self._is_writer:
            self._fetch()

    def _fetch(self) -> None:
        found = self._get(CURRENT_FILE)
        self._tag = None if found is None else found[1]
        if found is None:
            (self.root / CURRENT_FILE).unlink(missing_ok=True)
            return
        name, here = found[0].decode().strip(), self.root / CURRENT_FILE
        if here.is_file() and self._noted() == name:
            return
        version, files = self._version(name)
        (self.root / VERSIONS).mkdir(parents=True, exist_ok=True)
        with _many() as pool:
            list(pool.map(lambda path: self._fetch_directory(path, files[path]), files))
            list(pool.map(self._fetch_log, {table.root for table in OPEN.values()}))
        self._arrived(version, name)

    def _arrived(self, version: Version, name: str) -> None:
        """Make a version that was fetched the current one of the folder."""
        (self.root / VERSIONS / FETCHED).unlink(missing_ok=True)
        write_forced(self.root / VERSIONS / version_name(version), version.as_text())
        write_forced(self.root / CURRENT_FILE, version_name(version) + "\n")
        write_forced(self.root / VERSIONS / FETCHED, name + "\n")

    def _version(self, name: str) -> tuple[Version, Files]:
        found = self._get(f"{VERSIONS}/{name}")
        try:
            if found is None:
                raise JournalProblem("it is not there")
            said = json.loads(found[0])
            return Version.of_text(json.dumps(said["version"])), said["files"]
        except (JournalProblem, ValueError, KeyError, TypeError) as error:
            raise JournalProblem(
                f"version {name} of {self.name} cannot be read: {error}",
                remedy="CURRENT names a version; see that the object is there and whole",
            ) from None

    def _fetch_directory(self, path: str, files: Iterable[tuple[str, int]]) -> None:
        """Make a directory of the copy what the version says that it is."""
        folder, wanted = self.root / path, dict(files)
        for file in parquet_files(folder):
            if file.relative_to(folder).as_posix() not in wanted:
                file.unlink()
        for name, size in wanted.items():
            file = folder / name
            if not file.is_file() or file.stat().st_size != size:
                self._download(f"{path}/{name}", file)

    def _fetch_log(self, table: str) -> None:
        for found in self._list(f"{table}/{LOG}/"):
            file = self.root / found["path"]
            # What names the last checkpoint is the one file of a log that is replaced.
            stays = file.name != LAST_CHECKPOINT
            if not stays or not file.is_file() or file.stat().st_size != found["size"]:
                self._download(found["path"], file)
                # By its age a commit is cleared away.
                written = found["last_modified"].timestamp()
                os.utime(file, (written, written))

    def _noted(self) -> str:
        file = self.root / VERSIONS / FETCHED
        return file.read_text(encoding="utf-8").strip() if file.is_file() else ""

    # --- writing ---

    @contextmanager
    def claimed(self) -> Iterator[None]:
        with self._folder.claimed():
            self._fetch()
            self._is_writer = True
            try:
                yield
            finally:
                self._is_writer = False

    def publish(self, version: Version, before: Version) -> None:
        known: Files = {}
        if before.number:
            known = self._version(self._noted())[1]
        paths = version.paths
        files = {path: known[path] for path in paths if path in known}
        with _many() as pool:
            new = sorted(paths - set(known))
            files |= dict(zip(new, pool.map(self._upload_directory, new), strict=True))
        text = json.dumps({"version": json.loads(version.as_text()), "files": files}, indent=1)
        name = f"{version.number:08d}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
        self._put(f"{VERSIONS}/{name}", text.encode())
        crash.reached("before_publishing")
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        mode: Any = "create" if self._tag is None else {"e_tag": self._tag}
        try:
            self._tag = self._put(CURRENT_FILE, f"{name}\n".encode(), mode)
        except (AlreadyExistsError, PreconditionError):
            raise NotAllowed(
                f"another run has published to {self.name} meanwhile, and nothing of this one",
                remedy="run again: it goes on from what the other has published",
            ) from None
        crash.reached("after_publishing")
        self._arrived(version, name)

    def _upload_directory(self, path: str) -> list[tuple[str, int]]:
        folder, found = self.root / path, []
        for file in parquet_files(folder):
            content = file.read_bytes()
            named = _named_by(file, content)
            name = named.relative_to(folder).as_posix()
            self._put(f"{path}/{name}", content)
            found.append((name, len(content)))
        return found

    def shown(self) -> None:
        for table in OPEN.values():
            self._show_log(self.root / table.root / LOG)

    def _show_log(self, log: Path) -> None:
        """A commit before the checkpoint that sums it up, and that before it is named."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        below = log.relative_to(self.root).as_posix()
        there = {found["path"].rsplit("/", 1)[1] for found in self._list(f"{below}/")}
        here = {file.name: file for file in log.glob("[0-9]*")}
        for name in sorted(set(here) - there, key=lambda name: (name[:20], name[20:] != ".json")):
            # Another writer that found the log behind may have shown the same.
            with _unless(AlreadyExistsError):
                self._put(f"{below}/{name}", here[name].read_bytes(), "create")
            if name.endswith(CHECKPOINT):
                self._put(f"{below}/{LAST_CHECKPOINT}", (log / LAST_CHECKPOINT).read_bytes())
        first = min((name[:20] for name in here), default="")
        gone = [f"{below}/{name}" for name in there if name[:20].isdigit() and name[:20] < first]
        if gone:
            # A writer that was killed may have left the name of one that goes now.
            self._put(f"{below}/{LAST_CHECKPOINT}", (log / LAST_CHECKPOINT).read_bytes())
            with self._reached():
                obstore.delete(self._objects, gone)

    def keep(self, path: str) -> None:
        self._put(path, (self.root / path).read_bytes())

    def bring(self, path: str) -> None:
        if self._get(path) is not None:
            self._download(path, self.root / path)

    def sweep(self, version: Version) -> None:
        kept = self._kept(version)
        before = datetime.now(UTC) - LEFT_FOR
        gone = [
            found["path"]
            for folder in (*LAYERS, VERSIONS)
            for found in self._list(f"{folder}/")
            if found["path"] not in kept
            and f"/{LOG}/" not in found["path"]
            and found["last_modified"] < before
        ]
        if gone:
            import obstore

            with self._reached():
                obstore.delete(self._objects, gone)

    def _kept(self, version: Version) -> set[str]:
        """The objects of this version, of the one before and of those that lost their place a short
        while ago: themselves, their signatures, and their files."""
        found = {each["path"]: each["last_modified"] for each in self._list(f"{VERSIONS}/")}
        lately = datetime.now(UTC) - timedelta(seconds=version.readable_for)
        numbers = {version.number, version.number - 1}
        numbers |= {_number(path) - 1 for path, put_at in found.items() if put_at > lately}
        kept = {path for path in found if _number(path) in numbers}
        names = {path.rsplit("/", 1)[1] for path in kept if path.endswith(".json")}
        self._objects_of = {name: self._objects_of.get(name) or self._named(name) for name in names}
        return kept.union(*self._objects_of.values())

    def _named(self, name: str) -> set[str]:
        """The files that a version names, as objects."""
        files = self._version(name)[1]
        return {f"{path}/{each}" for path in files for each, _ in files[path]}

    # --- objects ---

    def _get(self, path: str) -> tuple[bytes, str] | None:
        import obstore

        with self._reached():
            try:
                found = obstore.get(self._objects, path)
                return bytes(found.bytes()), str(found.meta["e_tag"])
            except FileNotFoundError:
                return None

    def _put(self, path: str, content: bytes, mode: Any = "overwrite") -> str:
        import obstore

        with self._reached():
            return str(obstore.put(self._objects, path, content, mode=mode)["e_tag"])

    def _list(self, prefix: str) -> list[Any]:
        import obstore

        with self._reached():
            return [found for some in obstore.list(self._objects, prefix) for found in some]

    def _download(self, path: str, file: Path) -> None:
        found = self._get(path)
        if found is None:
            raise JournalProblem(
                f"{path} of {self.name} is gone, and a version names it",
                remedy="restore the object; nothing of Oncewire removes one that a version names",
            )
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_name(f".{file.name}.new")
        beside.write_bytes(found[0])
        beside.replace(file)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        try:
            yield
        except (AlreadyExistsError, PreconditionError):
            raise
        except BaseError as error:
            raise StoreGone(
                f"{self.name} cannot be reached: {str(error).splitlines()[0][:200]}",
                remedy="see AWS_ENDPOINT_URL, AWS_REGION and the credentials in the environment",
            ) from None


@contextmanager
def _unless(*errors: type[Exception]) -> Iterator[None]:
    try:
        yield
    except errors:
        return


def _many() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(AT_ONCE)


def _number(path: str) -> int:
    """Of the version that an object is, or is the signature of."""
    return int(path.rsplit("/", 1)[1][:8])


def _named_by(file: Path, content: bytes) -> Path:
    """The file, with its content's digest in its name."""
    digest = hashlib.sha256(content).hexdigest()[:16]
    if file.name.endswith(f".{digest}.parquet"):
        return file
    named = file.with_name(f"{file.name.removesuffix('.parquet')}.{digest}.parquet")
    shutil.move(file, named)
    return named
