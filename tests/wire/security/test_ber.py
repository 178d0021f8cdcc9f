"""BER as senders write it, and as nobody should."""

import pytest

from oncewire.wire.security.smime import INTEGER, OCTETS, SEQUENCE, Cursor


def test_strings_come_whole_and_in_pieces() -> None:
    pieces = b"\x24\x80\x04\x02ab\x24\x03\x04\x01c\x04\x00\x00\x00"
    for written, meant in ((b"\x04\x03abc", b"abc"), (pieces, b"abc"), (b"\x04\x00", b"")):
        cursor = Cursor(written)
        assert cursor.octets() == meant
        cursor.finish()


def test_an_element_is_left_behind_whatever_is_in_it() -> None:
    inner = b"\x30\x80\x02\x01\x05\x30\x80\x00\x00\x04\x01x\x00\x00\x02\x01\x07"
    cursor = Cursor(b"\x30" + bytes((len(inner),)) + inner)
    cursor.enter(SEQUENCE)
    cursor.enter(SEQUENCE)
    assert cursor.primitive(INTEGER) == b"\x05"
    cursor.leave()
    assert cursor.primitive(INTEGER) == b"\x07"
    assert cursor.tag() is None
    cursor.leave()
    cursor.finish()


@pytest.mark.parametrize(
    "written",
    [
        b"",
        b"\x04",
        b"\x04\x05abc",
        b"\x04\x80abc\x00\x00",
        b"\x04\x89" + b"\xff" * 9,
        b"\x04\x88" + b"\xff" * 8 + b"abc",
        b"\x24\x80\x04\x01a",
        b"\x24\x03\x04\x05abcdef",
        b"\x24\x80\x02\x01\x01\x00\x00",
        b"\x1f\x81\x01\x00",
        b"\x24\x80" * 100,
    ],
)
def test_what_is_no_string_is_told_as_one_error(written: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Cursor(written).octets(OCTETS)


def test_neither_depth_nor_count_is_kept_in_memory() -> None:
    for hostile in (b"\x30\x80" * 500_000, b"\x30\x80" + b"\x05\x00" * 500_000):
        with pytest.raises(ValueError, match=r"\w"):
            Cursor(hostile).skip()
