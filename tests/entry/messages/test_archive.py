"""Recorded exchanges are paired by their names, whatever they are kept in."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from oncewire.entry.messages import stored as archive
from oncewire.entry.messages.stored import exchanges
from oncewire.errors import InvalidValue, NotHere

FILES = {
    "order-17.request.http": b"ask 17",
    "order-17.response.http": b"say 17",
    "order-18-request.xml": b"ask 18",
    "order-18-response.txt.http": b"other",
    "deep/a_req.mime": b"ask a",
    "deep/a_resp.xml": b"say a",
    "deep/b_req.mime": b"ask b",
    "alone.xml": b"ask alone",
    "Answer of nobody.md": b"skipped",
    ".hidden/x.request": b"skipped",
    "README.txt": b"skipped",
    "requester.xml": b"ask requester",
}
EXPECTED = {
    "order-17.request.http": (b"ask 17", b"say 17"),
    "order-18-request.xml": (b"ask 18", None),
    "deep/a_req.mime": (b"ask a", b"say a"),
    "deep/b_req.mime": (b"ask b", None),
    "alone.xml": (b"ask alone", None),
    "requester.xml": (b"ask requester", None),
}


def in_folder(place: Path) -> Path:
    for name, data in FILES.items():
        (place / "f" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "f" / name).write_bytes(data)
    return place / "f"


def in_zip(place: Path) -> Path:
    with zipfile.ZipFile(place / "x.zip", "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in FILES.items():
            made.writestr(name, data)
    return place / "x.zip"


def in_tar(place: Path) -> Path:
    with tarfile.open(place / "x.tar.gz", "w:gz") as made:
        for name, data in FILES.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("evil.request")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        made.addfile(link)
    return place / "x.tar.gz"


@pytest.mark.parametrize("make", [in_folder, in_zip, in_tar])
def test_exchanges_are_found_in_anything(tmp_path: Path, make: object) -> None:
    assert callable(make)
    found = {
        one.name: (one.request(), one.answer() if one.answer else None)
        for one in exchanges(make(tmp_path))
    }
    assert found == EXPECTED


def test_one_file_is_one_request(tmp_path: Path) -> None:
    (tmp_path / "m.xml").write_bytes(b"<a/>")
    (one,) = exchanges(tmp_path / "m.xml")
    assert one.request() == b"<a/>"
    assert one.answer is None


def test_a_link_in_a_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "a.request").symlink_to(tmp_path / "secret")
    assert exchanges(tmp_path / "f") == ()


def test_what_is_not_there_or_damaged_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotHere):
        exchanges(tmp_path / "none")
    whole = in_tar(tmp_path).read_bytes()
    (tmp_path / "cut.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidValue, match="damaged tar"):
        exchanges(tmp_path / "cut.tar.gz")


def test_archives_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = in_zip(tmp_path)
    monkeypatch.setattr(archive, "FILE_MAX", 5)
    (first, *_) = exchanges(place)
    with pytest.raises(InvalidValue, match="more than 5 bytes"):
        first.request()
    monkeypatch.setattr(archive, "FILES_MAX", 3)
    with pytest.raises(InvalidValue, match="more than 3 files"):
        exchanges(place)
