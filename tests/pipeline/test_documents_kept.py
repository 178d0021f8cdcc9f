"""The table `documents`: each document that a store has, lost, or has no longer as it was."""

from __future__ import annotations

import hashlib
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.dataset as ds
import pytest
from msgspec.structs import replace

from oncewire.entry.party.settings import load
from oncewire.entry.running import kept
from oncewire.entry.running.kept import kept_of
from oncewire.errors import JournalProblem, NotAllowed, StoreDamaged
from oncewire.handler.actions import Post
from oncewire.message.envelope import Payload
from oncewire.message.instant import MINUTE
from oncewire.pipeline import jobs
from oncewire.pipeline.lake.lake import Lake
from oncewire.pipeline.lake.tables import OPEN
from oncewire.pipeline.reports import documents
from oncewire.pipeline.reports.documents import Checked, check_documents
from oncewire.protocol.documents import DocumentState
from oncewire.store.sqlite.store import SqliteStore
from tests.entry.terminal import run_json
from tests.handler.network import Network

pytestmark = pytest.mark.spark

YEARS_LATER = 32_503_680_000_000_000
LIMIT = 1_100_000
PARTS = f'[wire]\nextensions = ["split", "compression"]\n[payload]\nmax_size = {LIMIT}\n'
GZIP, ZSTD = (f'{PARTS}compress = "{name}"\n' for name in ("gzip", "zstd"))
DICE = random.Random(11)
SENT = {
    "removed": b"removed",
    "given up": DICE.randbytes(2 * LIMIT),
    "closed": b"nobody here can read it",
    "small": b"a small order",
    "large": DICE.randbytes(LIMIT - 10_000),
    "one file": DICE.randbytes(LIMIT - 10_000),
    "parts": DICE.randbytes(2 * LIMIT),
    "gzip": DICE.randbytes(1_500_000).hex().encode(),
    "zstd": DICE.randbytes(1_500_000).hex().encode(),
    "two in parts": DICE.randbytes(1_500_000).hex().encode(),
    "small altered": b"an order of 100 pieces",
    "large altered": DICE.randbytes(LIMIT - 10_000),
    "gzip altered": DICE.randbytes(1_500_000).hex().encode(),
    "file gone": DICE.randbytes(2 * LIMIT),
    "one part lost": DICE.randbytes(2 * LIMIT),
}
SECOND = {"small": b"not really", "two in parts": b"a picture " * 1_000}
"""The second documents of messages that have two."""
AS_AGREED = {"gzip": GZIP, "gzip altered": GZIP, "two in parts": GZIP, "zstd": ZSTD}


def name_of(what: str) -> str:
    return f"{what.replace(' ', '-')}@alpha"


class Scene(NamedTuple):
    """Two parties' folders at rest, and a lake with their journals."""

    folder: Path
    lake: Lake

    def check(self, spark: Any, **more: Any) -> Checked:
        shelves = {
            name: partial(kept_of, load(self.folder / name, environ={}).settings)
            for name in ("alpha", "beta")
        }
        return check_documents(spark, self.lake, shelves, 1_700_000_000_000_000, **more)

    def rows(self) -> dict[tuple[str, str], list[dict[str, Any]]]:
        """Of each side and message the rows of its documents."""
        lake = self.lake
        files = lake.files(lake.current(), OPEN["documents"].entries(lake.current()))
        found: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in ds.dataset(files, format="parquet").to_table().to_pylist():
            found.setdefault((row["direction"], row["message_id"]), []).append(row)
        return found


@pytest.fixture(scope="module")
def scene(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("documents")
    exchange(folder)
    lake = Lake(folder / "lake")
    stores = [folder / name / "data" / "oncewire.db" for name in ("alpha", "beta")]
    jobs.run(spark, lake, stores)
    return Scene(folder, lake)


def exchange(folder: Path) -> None:
    """alpha sends all of it, beta takes it; then some of what they keep is changed."""

    def store(name: str) -> SqliteStore:
        place = folder / name / "data"
        place.mkdir(parents=True, exist_ok=True)
        (folder / name / "oncewire.toml").write_text(f'[party]\nname = "{name}"\n')
        return SqliteStore(place / "oncewire.db", node=name, spool=place / "spool")

    pair = Network.pair("ebms2", PARTS, store=store)
    for what, data in SENT.items():
        for name in ("alpha", "beta"):
            pair.agree(name, "ebms2", AS_AGREED.get(what, PARTS))
        pair.lose_request = is_second if what in ("given up", "one part lost") else lambda _: False
        payloads: tuple[Payload, ...] = (Payload.of("order", "text/plain", data, f"{what}.txt"),)
        if len(data) > 1_000_000 and what != "one file":
            name, _ = pair.alpha.context.store.spool.put((data,))
            payloads = (replace(payloads[0], data=None, spooled=name),)
        if what in SECOND:
            payloads += (Payload.of("picture", "image/png", SECOND[what]),)
        pair.send(payloads=payloads, message_id=name_of(what))
        pair.take()
        if what == "given up":
            while not is_given_up(pair, name_of(what)):
                pair.pass_time(MINUTE)
        if what == "removed":
            for engine in pair.engines.values():
                with engine.context.store.transition() as tx:
                    assert tx.sweep(YEARS_LATER, 100) == 1
                engine.context.store.commit()
    pair.close()
    spoil(folder)


def is_second(post: Post) -> bool:
    """Whether it is the second of two parts."""
    return any(b"2-of-2." in piece for piece in post.parcel.body if isinstance(piece, bytes))


def is_given_up(pair: Network, split_id: str) -> bool:
    """Whether beta has given a document up."""
    with pair.beta.context.store.reader() as reader:
        (part,) = reader.incoming(f"1-of-2.{split_id}")
        document = reader.document(part.incoming.sender, split_id)
    return document is not None and document.state is DocumentState.FAILED


def spoil(folder: Path) -> None:
    """Change what lies in rows and in files of the spool, on both sides."""
    harms = {"small altered": flip, "large altered": flip, "gzip altered": flip, "file gone": None}
    for name, table, key in (("alpha", "outgoing", "position"), ("beta", "incoming", "row")):
        with closing(sqlite3.connect(folder / name / "data" / "oncewire.db")) as store:
            for what, harm in harms.items():
                (place, layout, body) = store.execute(
                    f"SELECT {key}, layout, body FROM {table}_bytes JOIN {table} USING ({key}) "
                    f"JOIN message ON message.id = {table}.message WHERE message_id = ?",
                    (name_of(what),),
                ).fetchone()
                files = (folder / name / "data" / "spool").iterdir()
                lies = [file for file in files if file.name in (layout or "")]
                for file in lies:
                    data = file.read_bytes()
                    file.unlink()
                    if harm is not None:
                        file.write_bytes(harm(data, data[len(data) // 2 :][:8]))
                if not lies:
                    changed = flip(body, SENT[what][-8:])
                    change = f"UPDATE {table}_bytes SET body = ? WHERE {key} = ?"
                    store.execute(change, (changed, place))
            draft = "UPDATE outgoing_bytes SET content_type = NULL, draft = x''"
            unread = draft if name == "alpha" else "UPDATE incoming_bytes SET view = NULL"
            wanted = f"SELECT {key} FROM {table} JOIN message ON message.id = {table}.message"
            statement = f"{unread} WHERE {key} = ({wanted} WHERE message_id = ?)"
            assert store.execute(statement, (name_of("closed"),)).rowcount == 1
            store.commit()


def flip(data: bytes, near: bytes) -> bytes:
    """Another byte in some bytes."""
    at = data.rindex(near)
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.fixture(scope="module")
def checked(spark: Any, scene: Scene) -> Checked:
    return scene.check(spark)


WHOLE = dict.fromkeys(
    ("small", "large", "one file", "parts", "gzip", "zstd", "two in parts"), "whole"
)
WRONG = {
    "small altered": "altered", "large altered": "altered", "gzip altered": "altered",
    "file gone": "missing", "removed": "removed", "closed": "closed",
}  # fmt: skip
EXPECTED = {
    "out": {**WHOLE, **WRONG, "one part lost": "whole", "given up": "whole"},
    "in": {**WHOLE, **WRONG, "one part lost": "parts_missing", "given up": "given_up"},
}


@pytest.mark.parametrize("direction", ["out", "in"])
@pytest.mark.parametrize("what", SENT)
def test_each_side_says_what_became_of_each_document(
    scene: Scene, checked: Checked, direction: str, what: str
) -> None:
    rows = scene.rows()[direction, name_of(what)]
    verdict = EXPECTED[direction][what]
    assert {row["verdict"] for row in rows} == {verdict}, rows
    assert len(rows) == (2 if what in SECOND else 1)
    row, *more = sorted(rows, key=lambda row: row["number"] or 0)
    for second in more:
        assert second["sha256_stored"] == hashlib.sha256(SECOND[what]).hexdigest()
        assert (second["media_type"], second["file_name"]) == ("image/png", None)
    assert row["node"] == {"out": "alpha", "in": "beta"}[direction]
    assert row["partner"] == {"out": "urn:test:beta", "in": "urn:test:alpha"}[direction]
    digest = hashlib.sha256(SENT[what]).hexdigest()
    assert bool(row["problem"]) == (verdict != "whole")
    if verdict == "whole":
        assert row["sha256_announced"] == row["sha256_stored"] == digest
    if verdict in ("whole", "altered"):
        assert row["file_name"] == f"{what}.txt"
        assert row["media_type"] == "text/plain"
        assert row["document_bytes"] == len(SENT[what])
    if verdict == "altered":
        assert row["sha256_stored"] != digest
    if what == "large altered":
        assert row["sha256_announced"] == digest
        assert row["sha256_stored"] is not None


@pytest.mark.parametrize("direction", ["out", "in"])
@pytest.mark.parametrize(
    ("what", "parts", "compression"),
    [("small", 1, None), ("large", 1, None), ("parts", 2, None), ("gzip", 2, "gzip"),
     ("zstd", 2, "zstd")],
)  # fmt: skip
def test_a_row_says_how_a_document_travelled(
    scene: Scene, checked: Checked, direction: str, what: str, parts: int, compression: str | None
) -> None:
    row = min(scene.rows()[direction, name_of(what)], key=lambda row: row["number"])
    assert (row["parts"], row["parts_here"], row["compression"]) == (parts, parts, compression)
    size = len(SENT[what])
    if compression is None:
        assert row["size_bytes"] == size
    else:
        assert LIMIT < row["size_bytes"] < 0.7 * size
        other = scene.rows()["in" if direction == "out" else "out", name_of(what)]
        assert row["size_bytes"] == other[0]["size_bytes"]


def test_of_a_part_that_is_missing_it_is_said_how_many_are_here(
    scene: Scene, checked: Checked
) -> None:
    (row,) = scene.rows()["in", name_of("one part lost")]
    assert (row["parts"], row["parts_here"]) == (2, 1)
    assert row["problem"] == "1 of its 2 parts are here."
    assert row["number"] is row["sha256_stored"] is None


def test_the_verdicts_are_counted(checked: Checked) -> None:
    assert checked.verdicts == {
        "altered": 6, "closed": 2, "given_up": 1, "missing": 2, "parts_missing": 1, "removed": 2,
        "whole": 20,
    }  # fmt: skip
    assert checked.documents == 34


def test_bytes_are_given_on_request_alone_and_no_more_than_was_said(
    spark: Any, scene: Scene, checked: Checked, tmp_path: Path
) -> None:
    names = OPEN["documents"].schema.fieldNames()
    assert "data" not in names
    assert all(list(row) == names for rows in scene.rows().values() for row in rows)
    most = len(SENT["gzip"])
    assert scene.check(spark, data=tmp_path / "bytes", data_max=most).verdicts == checked.verdicts
    assert all(list(row) == names for rows in scene.rows().values() for row in rows)
    with_bytes = spark.read.parquet(str(tmp_path / "bytes"))
    assert with_bytes.columns == [*names, "data"]
    for row in with_bytes.collect():
        what = row.message_id.partition("@")[0].replace("-", " ")
        sent = {1: SENT[what], 2: SECOND.get(what)}.get(row.number)
        # Of two documents the first has taken all the room.
        room = (what, row.number) != ("two in parts", 2)
        assert row.data == (sent if row.verdict == "whole" and room else None), row.message_id
    assert (tmp_path / "bytes").stat().st_mode & 0o077 == 0
    with pytest.raises(NotAllowed, match="is there already"):
        scene.check(spark, data=tmp_path / "bytes")


def test_stores_are_read_by_tasks(
    spark: Any, scene: Scene, checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def here(*_: object, **__: object) -> None:
        raise StoreDamaged("the driver reads no store")

    monkeypatch.setattr(kept, "contents_of", here)
    monkeypatch.setattr(documents, "_digested", here)
    assert scene.check(spark).verdicts == checked.verdicts


def test_a_node_that_the_lake_does_not_know_is_refused(spark: Any, scene: Scene) -> None:
    shelf: Callable[..., Any] = iter
    with pytest.raises(JournalProblem, match="no journal of gamma"):
        check_documents(spark, scene.lake, {"gamma": shelf}, 0)


def test_the_command_says_how_many_are_whole(spark: Any, scene: Scene) -> None:
    words: list[str | Path] = ["--lake", scene.lake.root, "--store", scene.folder / "alpha"]
    said = run_json("pipeline", "documents", *words, exit_code=1)
    assert said["verdicts"] == {"altered": 3, "closed": 1, "missing": 1, "removed": 1, "whole": 11}
    assert said["summary"] == "Whole: 11 of 17 documents; 4 altered or missing"
    question = "SELECT DISTINCT node FROM documents WHERE verdict = 'whole'"
    found = run_json("pipeline", "sql", question, "--lake", scene.lake.root)
    assert found["answer"] == [{"node": "alpha"}]
