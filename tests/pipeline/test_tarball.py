"""Members of a tar file: those that `tarfile` finds, and a damaged header is never passed over."""

import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncewire.pipeline.sources.archive import _sum, contents, data_of, members, pieces

FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)


def written(files: list[tuple[str, bytes]], how: int = tarfile.PAX_FORMAT) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=how) as bundle:
        for name, data in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            bundle.addfile(entry, io.BytesIO(data))
    return target.getvalue()


def found(data: bytes) -> list[tuple[str, bytes]]:
    opened = io.BytesIO(data)
    return [(member.name, data_of(opened, member)) for member in members(opened)]


NAMES = st.text(st.sampled_from("ab/é0"), min_size=1, max_size=140).map(
    lambda text: "f" + text.replace("//", "/").strip("/")
)


@given(
    st.lists(st.tuples(NAMES, st.binary(max_size=1_100)), max_size=6),
    st.sampled_from(FORMATS[1:]),
)
def test_the_same_members_as_tarfile_finds(files: list[tuple[str, bytes]], how: int) -> None:
    assert found(written(files, how)) == files


@pytest.mark.parametrize("size", [0, 1, 255, 256])
@pytest.mark.parametrize("byte", [0, 1, 32, 255])
def test_a_header_is_summed_exactly(size: int, byte: int) -> None:
    assert _sum(bytes([byte] * size)) == byte * size


@pytest.mark.parametrize("how", FORMATS)
def test_links_and_folders_are_no_members(how: int) -> None:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=how) as bundle:
        for name, kind in (("folder", tarfile.DIRTYPE), ("link", tarfile.SYMTYPE)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, "folder"
            bundle.addfile(entry)
        entry = tarfile.TarInfo("file")
        entry.size = 3
        bundle.addfile(entry, io.BytesIO(b"abc"))
    assert found(target.getvalue()) == [("file", b"abc")]


@pytest.mark.parametrize("long", [False, True], ids=["plain", "extended"])
def test_a_header_that_is_none_is_told_with_its_place(tmp_path: Path, long: bool) -> None:
    name = "n" * (130 if long else 3)
    data = bytearray(written([(f"{name}{number}.mime", b"x" * 600) for number in range(5)]))
    with tarfile.open(fileobj=io.BytesIO(data)) as bundle:
        broken = bundle.getmembers()[3].offset
    data[broken + 5] ^= 0xFF
    (tmp_path / "a.tar").write_bytes(data)
    rows = [one for piece in pieces(str(tmp_path)) for one in contents(piece)]
    assert [one.problem for one in rows[:3]] == ["", "", ""]
    assert len(rows) == 4
    assert "damaged" in rows[3].problem
    assert str(broken) in rows[3].problem


def test_a_member_that_is_cut_is_told(tmp_path: Path) -> None:
    data = written([("a.mime", b"x" * 600), ("b.mime", b"y" * 600)])
    (tmp_path / "a.tar").write_bytes(data[: 512 + 1_024 + 512 + 100])
    rows = [one for piece in pieces(str(tmp_path)) for one in contents(piece)]
    assert [one.problem for one in rows] == ["", "it ends after 100 of 600 bytes"]
