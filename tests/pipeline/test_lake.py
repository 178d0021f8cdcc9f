"""The lake: a version is there whole or not at all, and nothing that is read is swept away."""

import json
import os
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oncewire.errors import JournalProblem, NotAllowed
from oncewire.pipeline.lake.columns import VIOLATIONS
from oncewire.pipeline.lake.lake import Lake, TableFile
from oncewire.pipeline.lake.version import (
    CURRENT_FILE,
    READABLE_FOR,
    Entry,
    NodeState,
    Version,
    safe_name,
)


def write(lake: Lake, path: str, rows: int = 3, **more) -> Entry:
    folder = lake.root / path
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"a": list(range(rows))}), folder / "part-0.parquet")
    return Entry(path, rows, **more)


def test_a_version_reads_as_it_was_written(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    entry = write(lake, "bronze/journal/acme/1-9", key="acme", first=1, last=9)
    version = Version().adding("journal", entry).with_node("acme", NodeState(9, 5, "b", 4))
    published = lake.publish(version)
    assert published.number == 1
    assert lake.current() == published
    assert lake.current().rows("journal") == 3
    assert lake.folders(lake.current(), "journal") == [str(tmp_path / entry.path)]


def test_nothing_is_published_until_the_pointer_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    first = lake.publish(Version().adding("t", write(lake, "gold/t/1")))
    later = first.adding("t", write(lake, "gold/t/2"))
    replace = Path.replace

    def die(self: Path, target: Path) -> Path:
        if target.name == CURRENT_FILE:
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        lake.publish(later)
    assert lake.current() == first
    monkeypatch.undo()
    assert lake.publish(later).number == 2
    assert lake.current().rows("t") == 6


def test_everything_is_on_disk_before_the_pointer_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    entries = [write(lake, f"gold/ledger/closed/v1/part={day}", key=str(day)) for day in range(20)]
    (tmp_path / "gold/ledger/closed/v1/_SUCCESS").touch()
    forced: list[str] = []
    fsync = os.fsync

    def note(handle: int) -> None:
        forced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", note)
    lake.publish(Version().adding("t", *entries))
    pointer = next(n for n, path in enumerate(forced) if CURRENT_FILE in path)
    before = forced[:pointer]
    assert forced[pointer + 1] == str(tmp_path)
    # Their directories, and every directory that names one of these: each once. The files were
    # forced by the tasks that wrote them.
    expected = ["gold", "gold/ledger", "gold/ledger/closed", "gold/ledger/closed/v1"]
    expected += [entry.path for entry in entries]
    names = [path for path in before if "versions" not in path]
    assert sorted(names) == sorted([str(tmp_path), *(str(tmp_path / one) for one in expected)])
    # What is published already is not forced again.
    forced.clear()
    lake.publish(lake.current().adding("t", write(lake, "gold/ledger/closed/v2/part=1")))
    assert not [path for path in forced if "/v1" in path]
    assert any(path.endswith("v2/part=1") for path in forced)


def test_a_file_is_on_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def note(handle: int) -> None:
        order.append(Path(f"/proc/self/fd/{handle}").readlink().suffix or "folder")
        fsync(handle)

    def rename(self: Path, target: Path) -> Path:
        order.append(f"becomes {target.name}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(Path, "replace", rename)
    file = TableFile(tmp_path, "violations", "gold/violations/_data/1", VIOLATIONS)
    file.add([("p", "k", None, None, None, "s")])
    assert file.close().rows == 1
    assert order == [".new", "becomes part-0.parquet", "folder"]


def replaced(lake: Lake, count: int, seconds_ago: float) -> Version:
    """Versions of one directory each, the last of which was published that long ago."""
    version = Version()
    for number in range(1, count + 1):
        version = lake.publish(version.with_table("t", [write(lake, f"gold/t/{number}")]))
    then = time.time() - seconds_ago
    for file in (lake.root / "versions").glob("*.json"):
        os.utime(file, (then, then))
    return version


def test_sweeping_leaves_this_version_and_the_one_before(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    replaced(lake, 3, READABLE_FOR + 1)
    orphan = lake.root / "bronze/journal/acme/1-5"
    (orphan / "_temporary/0").mkdir(parents=True)
    (orphan / "part-0.parquet").write_bytes(b"half")
    half = lake.root / "gold/ledger/closed/v9/part=2025-01-01"
    half.mkdir(parents=True)
    (half / "part-0.parquet").write_bytes(b"half")
    assert lake.sweep(lake.current()) == 3
    assert not orphan.exists()
    assert not half.exists()
    assert sorted(path.name for path in (lake.root / "gold/t").iterdir()) == ["2", "3"]
    assert sorted(path.stem for path in (lake.root / "versions").glob("*.json")) == [
        "00000002",
        "00000003",
    ]
    assert lake.current().number == 3


def test_a_version_can_be_read_for_as_long_as_the_lake_was_told(tmp_path: Path) -> None:
    """The lake remembers it from version to version."""
    lake = Lake(tmp_path)
    lake.publish(Version(readable_for=7 * 86_400.0))
    for number in range(1, 4):
        made = lake.current().with_table("t", [write(lake, f"gold/t/{number}")])
        lake.publish(made)
    for days, left in ((6, ["1", "2", "3"]), (8, ["2", "3"])):
        for file in (lake.root / "versions").glob("*.json"):
            os.utime(file, (time.time() - days * 86_400,) * 2)
        lake.sweep(lake.current())
        assert sorted(path.name for path in (lake.root / "gold/t").iterdir()) == left


def test_a_version_can_be_read_for_a_while_however_many_follow(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    version = replaced(lake, 5, READABLE_FOR + 1)
    # The third lost its place a moment ago, the second long before.
    for number in (4, 5):
        os.utime(lake.root / f"versions/{number:08d}.json")
    lake.sweep(version)
    assert sorted(path.name for path in (lake.root / "gold/t").iterdir()) == ["3", "4", "5"]
    assert lake.version(3).rows("t") == 3
    with pytest.raises(JournalProblem, match="does not keep version 2"):
        lake.version(2)


def test_a_version_of_the_future_keeps_nothing(tmp_path: Path) -> None:
    """A clock that was wrong for a while must not let a lake grow until that time comes."""
    lake = Lake(tmp_path)
    lake.sweep(replaced(lake, 3, -3_600))
    assert sorted(path.name for path in (lake.root / "gold/t").iterdir()) == ["2", "3"]


def test_what_is_not_all_there_is_told_and_not_read_in_part(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    entries = [write(lake, f"gold/t/{number}") for number in (1, 2)]
    version = lake.publish(Version().with_table("t", entries))
    assert len(lake.files(version, entries)) == 2
    shutil.rmtree(lake.root / "gold/t/1")
    with pytest.raises(JournalProblem, match="gold/t/1 of version 1 is gone"):
        lake.files(version, entries)


def test_a_version_that_is_swept_while_it_is_looked_at_is_told(tmp_path: Path) -> None:
    """Half of a directory may have been gone when its files were listed."""
    lake = Lake(tmp_path)
    version = lake.publish(Version().with_table("t", [write(lake, "gold/t/1")]))
    (lake.root / "versions/00000001.json").unlink()
    with pytest.raises(JournalProblem, match=r"version 1 .* is not kept any more") as told:
        lake.files(version, version.tables["t"])
    assert "read again" in told.value.remedy


def test_a_divided_table_is_kept_part_by_part(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    days = [write(lake, f"gold/l/v1/part={day}", key=day) for day in ("d1", "d2")]
    write(lake, "gold/l/v1/part=d3")
    version = lake.publish(Version().with_table("l", days))
    assert lake.sweep(version) == 1
    assert sorted(path.name for path in (lake.root / "gold/l/v1").iterdir()) == [
        "part=d1",
        "part=d2",
    ]


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.writing(), pytest.raises(NotAllowed, match="another run"), lake.writing():
        pass
    with lake.writing():
        pass  # The lock is free again.


def test_an_equal_path_takes_the_place_of_the_old_one() -> None:
    version = Version().adding("t", Entry("a", 1), Entry("b", 2)).adding("t", Entry("a", 5))
    assert version.tables["t"] == (Entry("b", 2), Entry("a", 5))
    assert version.adding("t", Entry("c", 0)).rows("t") == 7


def test_a_lake_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(JournalProblem, match="no lake"):
        Lake(tmp_path).current()
    lake = Lake(tmp_path)
    version = lake.publish(Version())
    file = tmp_path / "versions" / "00000001.json"
    values = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**values, "journal_version": 99}), encoding="utf-8")
    with pytest.raises(JournalProblem, match="version 99"):
        lake.current()
    file.write_text("{", encoding="utf-8")
    with pytest.raises(JournalProblem, match="cannot be read"):
        lake.current()
    assert version.number == 1


def test_names_of_nodes_make_safe_folders() -> None:
    names = ["acme", "../../etc", "a/b", "a_b", "", ".hidden", "urn:party:acme", "名前"]
    made = [safe_name(name) for name in names]
    assert len(set(made)) == len(names)
    for one in made:
        assert "/" not in one
        assert one[0] not in "._"
