"""A lake in a bucket, on a real S3 server: the same tables as on disk, and one writer wins.

A writer that is killed anywhere leaves a whole version.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
import pyarrow.dataset as ds
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from oncewire.entry.cli.lake import archive_at, book_at
from oncewire.errors import JournalProblem, NotAllowed, StoreGone
from oncewire.pipeline import jobs
from oncewire.pipeline.lake import delta, proof, storage
from oncewire.pipeline.lake.lake import Lake, storage_of
from oncewire.pipeline.lake.tables import OPEN
from oncewire.pipeline.sources.journal_source import open_book
from oncewire.pipeline.sources.oncewire import OncewireSource
from tests.buckets import Buckets, serving
from tests.pipeline.books import make_store, small_year, tables, take_in_here

pytestmark = pytest.mark.long

ROWS = small_year()[1]["globex"]
PLACE = "s3://lakes/of/globex"


class Killed(BaseException):
    """As if the process had ended here."""


@pytest.fixture(scope="module")
def server() -> Iterator[Buckets]:
    with serving() as made:
        yield made


@pytest.fixture(autouse=True)
def environment(server: Buckets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.empty("lakes")
    for name, value in {**server.environment, storage.COPIES: str(tmp_path / "copies")}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "globex.db", "globex", ROWS[:200])


def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> Lake:
    """The lake as another machine has it, with a copy of its own."""
    monkeypatch.setenv(storage.COPIES, str(tmp_path / name))
    return Lake(PLACE)


def taken_in(lake: Lake, book: Path) -> None:
    with lake.writing() as version:
        lake.publish(take_in_here(lake, version, book))


def content(lake: Lake) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table."""
    version = lake.current()
    found = {}
    for table in sorted(version.tables):
        folders = lake.folders(version, table)
        rows = [row for one in folders for row in ds.dataset(one).to_table().to_pylist()]
        found[table] = sorted(rows, key=repr)
    return found


def test_a_lake_is_the_same_on_disk_and_in_a_bucket(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, there = Lake(tmp_path / "lake"), Lake(PLACE)
    assert not there.exists
    for rows in (ROWS[200:300], ROWS[300:400]):
        for lake in (disk, there):
            taken_in(lake, store)
        make_store(store, "globex", rows)
    other = elsewhere(tmp_path, monkeypatch, "another machine")
    assert content(disk) == content(there) == content(other)
    assert other.root != there.root
    taken_in(other, store)
    taken_in(disk, store)
    assert content(there) == content(other) == content(disk)
    assert proof.check_lake(there, there.current()).unchanged
    assert proof.check_book(other, other.current(), open_book(store)).unchanged
    assert not Path("s3:").exists()


def test_every_job_makes_the_same_of_both(spark, tmp_path: Path, store: Path) -> None:
    disk, there = Lake(tmp_path / "lake"), Lake(PLACE)
    for more in (ROWS[200:300], []):
        done = [jobs.run(spark, lake, [store]) for lake in (disk, there)]
        assert done[0] == done[1]
        make_store(store, "globex", more)
    assert tables(spark, disk) == tables(spark, there)


def test_a_lake_in_a_bucket_is_a_book_and_nothing_else_there_is(store: Path) -> None:
    taken_in(Lake(PLACE), store)
    # The command line has made a path of it, with one slash.
    root = book_at(Path(PLACE))
    assert open_book(root).node == "globex"
    # The source reads it by its name, as it reads a folder.
    source = OncewireSource({"path": PLACE, "table": "journal"})
    reader = source.reader(source.schema())
    assert sum(len(batch) for part in reader.partitions() for batch in reader.read(part)) == 200
    with pytest.raises(JournalProblem, match="there is no lake at s3://lakes/none"):
        book_at(Path("s3://lakes/none"))
    with pytest.raises(NotAllowed, match="s3://lakes/raw is not a folder") as refused:
        archive_at(Path("s3://lakes/raw"))
    assert "copy them into a folder" in refused.value.remedy
    with pytest.raises(NotAllowed, match="hdfs://a/b is not a folder"):
        book_at(Path("hdfs://a/b"))


def test_other_tools_read_the_bucket_without_a_copy(store: Path, server: Buckets) -> None:
    import deltalake

    lake = Lake(PLACE)
    taken_in(lake, store)
    options = {"endpoint_url": server.address, "allow_http": "true", "aws_region": "us-east-1"}
    version = lake.current()
    for name in ("messages", "attempts"):
        table = deltalake.DeltaTable(f"{PLACE}/{OPEN[name].root}", storage_options=options)
        assert table.to_pyarrow_table().num_rows == version.rows(name)


def test_the_log_in_a_bucket_is_summed_up_and_its_beginning_goes(
    tmp_path: Path, store: Path, server: Buckets, monkeypatch: pytest.MonkeyPatch
) -> None:
    import deltalake

    monkeypatch.setattr(delta, "CHECKPOINT_EVERY", 2)
    first = Lake(PLACE)
    with first.writing() as version:
        first.publish(replace(version, readable_for=0.0))
    for start in range(200, 380, 20):
        # Each time another machine, whose copy has none of the log yet.
        lake = elsewhere(tmp_path, monkeypatch, f"machine-{start}")
        taken_in(lake, store)
        make_store(store, "globex", ROWS[start : start + 20])
    found = obstore.list(lake.storage._objects, "silver/messages/_delta_log/")  # type: ignore[attr-defined]
    names = sorted(one["path"].rsplit("/", 1)[1] for some in found for one in some)
    assert len(names) < 8
    assert f"{0:020d}.json" not in names
    options = {"endpoint_url": server.address, "allow_http": "true", "aws_region": "us-east-1"}
    table = deltalake.DeltaTable(f"{PLACE}/silver/messages", storage_options=options)
    assert table.to_pyarrow_table().num_rows == lake.current().rows("messages")


def test_of_two_writers_one_wins_and_the_other_has_changed_nothing(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = Lake(PLACE), elsewhere(tmp_path, monkeypatch, "another machine")
    for rows in (ROWS[200:300], ROWS[300:400]):
        others = [row._replace(node="other") for row in rows]
        more = make_store(tmp_path / f"{rows[0].seq}.db", "other", others)
        with one.writing() as ours, other.writing() as theirs:
            mine = take_in_here(one, ours, store)
            # The same range, and more that the first has not.
            lost = take_in_here(other, theirs, store, more)
            one.publish(mine)
            won = content(one)
            with pytest.raises(NotAllowed, match="meanwhile"):
                other.publish(lost)
        assert content(other) == won == content(one)
        make_store(store, "globex", rows)
    taken_in(other, store)
    assert content(one) == content(other)
    assert other.current().rows("journal") == 400


def test_a_writer_that_is_killed_anywhere_leaves_a_whole_version(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = Lake(tmp_path / "lake")
    taken_in(Lake(PLACE), store)
    taken_in(reference, store)
    before = content(Lake(PLACE))
    make_store(store, "globex", ROWS[200:300])
    taken_in(reference, store)
    after = content(reference)
    real, steps = obstore.put, 0

    def killed(*values: Any, **more: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed
        return real(*values, **more)

    while True:
        left = steps
        lake = elsewhere(tmp_path, monkeypatch, f"machine-{steps}")
        monkeypatch.setattr(obstore, "put", killed)
        try:
            taken_in(lake, store)
            ended = True
        except Killed:
            ended = False
        monkeypatch.setattr(obstore, "put", real)
        found = content(elsewhere(tmp_path, monkeypatch, f"reader-{steps}"))
        if found != before:
            assert found == after
            break
        assert not ended
        steps += 1
    assert steps > 5
    # The one that was killed behind the pointer did not come to show it; the next run does.
    last = elsewhere(tmp_path, monkeypatch, f"machine-{steps}")
    taken_in(last, store)
    assert content(last) == after
    shown = list(obstore.list(last.storage._objects, "silver/messages/_delta_log/"))  # type: ignore[attr-defined]
    assert sum(map(len, shown)) == 2


def test_what_no_version_names_goes_after_a_day(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(PLACE)
    objects = lake.storage._objects  # type: ignore[attr-defined]
    obstore.put(objects, "gold/ledger/left/part-0.parquet", b"left by a killed writer")
    for start in (200, 220, 240, 260):
        taken_in(lake, store)
        make_store(store, "globex", ROWS[start : start + 20])

    def paths() -> set[str]:
        return {found["path"] for some in obstore.list(objects) for found in some}

    assert "gold/ledger/left/part-0.parquet" in paths()
    assert len([path for path in paths() if path.startswith("versions/")]) == 4
    rows = content(lake)
    monkeypatch.setattr(storage, "LEFT_FOR", timedelta(seconds=-5))
    before = paths()
    lake.sweep(lake.current())
    # All others can be read for a while, however old their objects are.
    assert paths() == before - {"gold/ledger/left/part-0.parquet"}
    lake.sweep(replace(lake.current(), readable_for=-5.0))
    assert len([path for path in paths() if path.startswith("versions/")]) == 2
    assert content(elsewhere(tmp_path, monkeypatch, "another machine")) == rows


def test_a_version_that_was_signed_is_followed_by_others(store: Path) -> None:
    lake = Lake(PLACE)
    for start in (200, 220, 240):
        taken_in(lake, store)
        proof.sign_version(lake, lake.current(), ec.generate_private_key(ec.SECP256R1()))
        make_store(store, "globex", ROWS[start : start + 20])
    assert lake.current().number == 3


def test_what_is_missing_or_out_of_reach_is_said(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(PLACE)
    with pytest.raises(JournalProblem, match="there is no lake at s3://lakes/of/globex"):
        lake.current()
    taken_in(lake, store)
    objects = lake.storage._objects  # type: ignore[attr-defined]
    (gone, *_) = [
        found["path"] for some in obstore.list(objects, "bronze/journal/") for found in some
    ]
    obstore.delete(objects, gone)
    with pytest.raises(JournalProblem, match="is gone, and a version names it"):
        elsewhere(tmp_path, monkeypatch, "another machine").current()
    with pytest.raises(StoreGone, match="s3://nowhere/lake cannot be reached"):
        Lake("s3://nowhere/lake").writing().__enter__()


@pytest.mark.parametrize("place", ["gs://bucket/lake", "s3a://bucket/lake", "hdfs://host/lake"])
def test_other_places_are_refused_at_once(place: str) -> None:
    with pytest.raises(NotAllowed, match="s3://BUCKET/PREFIX"):
        storage_of(Path(place))
