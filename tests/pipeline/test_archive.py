"""Archives: every message becomes a row, and whatever cannot be read becomes one too."""

import gzip
import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncewire.journal.identity import identity_digest
from oncewire.lab.sample_year.generate import parcel
from oncewire.lab.sample_year.plan import make_plan
from oncewire.pipeline.lake.columns import ENVELOPES
from oncewire.pipeline.sources.archive import Content, Found, contents, pieces
from oncewire.pipeline.sources.ebxml import rows_of_content
from oncewire.wire import codec
from oncewire.wire.inspection import open_capture

PLAN = make_plan(100, 3)
NAMES = ENVELOPES.fieldNames()


def everything(root: Path, **options) -> list[dict]:
    return [
        dict(zip(NAMES, row, strict=True))
        for piece in pieces(str(root), **options)
        for content in contents(piece)
        for row in rows_of_content(content)
    ]


def write_folder(folder: Path, count: int) -> None:
    for number in range(count):
        place = folder / f"day-{number % 3}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:04d}.mime").write_bytes(parcel(PLAN, number))


def write_tar(path: Path, count: int, mode: str = "w") -> None:
    with tarfile.open(path, mode) as bundle:
        for number in range(count):
            data = parcel(PLAN, number)
            entry = tarfile.TarInfo("deep/" * 30 + f"{number}.mime")
            entry.size = len(data)
            bundle.addfile(entry, io.BytesIO(data))


def write_zip(path: Path, count: int) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("folder/", "")
        for number in range(count):
            bundle.writestr(f"{number}.mime", parcel(PLAN, number))


def test_a_message_says_what_its_header_says() -> None:
    data = parcel(PLAN, 5)
    found = Found("x.mime", len(data), 17)
    row = dict(zip(NAMES, next(rows_of_content(Content(found, None, data))), strict=True))
    message = codec.read(open_capture(data).parcel).message
    assert row["readable"] is True
    assert row["message_id"] == message.header.message_id
    assert row["digest"] == identity_digest(message)
    assert row["payload_count"] == 1
    assert row["payload_bytes"] == message.payloads[0].size
    assert row["sent_at"] == message.header.timestamp
    assert row["reliable"] is True
    assert row["dialect"] == "ebms2"
    assert (row["file"], row["modified"], row["position"]) == ("x.mime", 17, 0)


@pytest.mark.parametrize("form", ["folder", "tar", "tgz", "zip"])
def test_every_form_of_archive_holds_the_same_messages(tmp_path: Path, form: str) -> None:
    if form == "folder":
        write_folder(tmp_path / "a", 30)
    elif form == "zip":
        write_zip(tmp_path / "a.zip", 30)
    else:
        write_tar(tmp_path / f"a.{form}", 30, "w:gz" if form == "tgz" else "w")
    rows = everything(tmp_path)
    assert all(row["readable"] for row in rows)
    wanted = sorted(PLAN.message_id(number % len(PLAN.streams), number // len(PLAN.streams))
                    for number in range(30))  # fmt: skip
    assert sorted(row["message_id"] for row in rows) == wanted


@pytest.mark.parametrize("form", ["folder", "tar", "zip"])
def test_small_pieces_share_a_large_archive(tmp_path: Path, form: str) -> None:
    if form == "folder":
        write_folder(tmp_path / "a", 40)
    elif form == "zip":
        write_zip(tmp_path / "a.zip", 40)
    else:
        write_tar(tmp_path / "a.tar", 40)
    cut = list(pieces(str(tmp_path), piece_bytes=20_000))
    assert len(cut) > 3
    ids = [row["message_id"] for row in everything(tmp_path, piece_bytes=20_000)]
    assert len(ids) == len(set(ids)) == 40


def test_very_many_small_files_are_few_pieces(tmp_path: Path) -> None:
    for number in range(2_000):
        (tmp_path / f"{number}.xml").write_bytes(b"<a/>")
    assert len(list(pieces(str(tmp_path)))) == 1


def test_the_corpus_becomes_rows(corpus: Path, corpus_files: list[Path]) -> None:
    rows = everything(corpus)
    assert {row["file"] for row in rows} == {str(path) for path in corpus_files}
    assert sum(row["readable"] for row in rows) >= 15
    for row in rows:
        assert row["readable"] or (row["code"] and row["problem"]), row["file"]


@given(st.binary(max_size=400))
def test_whatever_the_bytes_there_is_a_row(data: bytes) -> None:
    rows = list(rows_of_content(Content(Found("f", len(data), 0), None, data)))
    assert rows
    for row in rows:
        named = dict(zip(NAMES, row, strict=True))
        assert named["readable"] or named["problem"]


@given(st.data())
def test_a_truncated_message_is_a_row(data: st.DataObject) -> None:
    whole = parcel(PLAN, 3)
    cut = whole[: data.draw(st.integers(0, len(whole) - len(b"--\r\n") - 1))]
    (row,) = rows_of_content(Content(Found("f", len(cut), 0), None, cut))
    named = dict(zip(NAMES, row, strict=True))
    # Where only the closing boundary is missing it may be read, and that is said.
    assert not named["readable"] or named["closed"] is False


def test_damaged_bundles_are_rows(tmp_path: Path) -> None:
    write_tar(tmp_path / "cut.tar", 20)
    whole = (tmp_path / "cut.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[: len(whole) // 2])
    write_zip(tmp_path / "cut.zip", 5)
    whole = (tmp_path / "cut.zip").read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[:-80])
    (tmp_path / "bad.tgz").write_bytes(gzip.compress(b"x" * 2_000)[:40])
    (tmp_path / "none.tar").write_bytes(b"")
    (tmp_path / "text.zip").write_bytes(b"not a zip")
    rows = everything(tmp_path)
    broken = {Path(row["file"]).name for row in rows if not row["readable"]}
    assert broken >= {"cut.tar", "cut.zip", "bad.tgz", "text.zip"}
    whole_ones = [row for row in rows if row["readable"]]
    assert len(whole_ones) >= 8  # What stands before the break is read.


def test_a_zip_entry_with_a_wrong_checksum_is_a_row(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as bundle:
        bundle.writestr("1.mime", parcel(PLAN, 1))
        bundle.writestr("2.mime", parcel(PLAN, 2))
    data = bytearray((tmp_path / "a.zip").read_bytes())
    data[200] ^= 0xFF
    (tmp_path / "a.zip").write_bytes(data)
    rows = everything(tmp_path)
    assert [row["readable"] for row in rows] == [False, True]
    assert rows[0]["member"] == "1.mime"


def test_a_file_that_may_not_be_read_or_is_too_large_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "large.mime").write_bytes(b"x" * 5_000)
    (tmp_path / "dangling.mime").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe.mime")
    found = {
        Path(content.found.path).name: content.problem
        for piece in pieces(str(tmp_path))
        for content in contents(piece, largest=1_000)
    }
    assert "maxBytes" in found["large.mime"]
    assert "cannot be opened" in found["dangling.mime"]
    assert "no regular file" in found["pipe.mime"]


def test_known_files_are_passed_over(tmp_path: Path) -> None:
    write_folder(tmp_path, 6)
    seen = frozenset(
        (row["file"], row["file_size"], row["modified"]) for row in everything(tmp_path)
    )
    assert everything(tmp_path, known=seen) == []
    changed = next(tmp_path.rglob("*.mime"))
    changed.write_bytes(parcel(PLAN, 50))
    os.utime(changed, ns=(1, 1))
    assert [row["file"] for row in everything(tmp_path, known=seen)] == [str(changed)]
