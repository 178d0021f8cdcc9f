"""Names of documents: what travels, and what is left of one that anybody may have written."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncewire.message.envelope import Payload
from oncewire.message.file_name import HEADER, NAME_BYTES_MAX, disposition, name_in, safe_name


@pytest.mark.parametrize(
    ("written", "safe"),
    [
        ("order.xml", "order.xml"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\x\\offer.pdf", "offer.pdf"),
        ("/", ""),
        ("..", ""),
        (".bashrc", "bashrc"),
        ("-rf", "rf"),
        ("a\r\nX-Evil: 1", "aX-Evil_ 1"),
        ("nul\x00.txt", "_nul.txt"),
        ("CON", "_CON"),
        ("com1.xml", "_com1.xml"),
        ("comma.xml", "comma.xml"),
        ("a<b>c|d?.txt", "a_b_c_d_.txt"),
        ("$(rm -r *).sh", "_(rm -r _).sh"),
        # The name of a program that looks like a picture: the direction of writing turns.
        ("evil\u202egpj.exe", "evilgpj.exe"),
        ("zero\u200bwidth.txt", "zerowidth.txt"),
        ("Übersicht März.ods", "Übersicht März.ods"),
        ("U\u0308bersicht.ods", "Übersicht.ods"),
        ("trailing. . ", "trailing"),
        ("x" * 300 + ".xml", "x" * (NAME_BYTES_MAX - 4) + ".xml"),
        ("ü" * 300, "ü" * (NAME_BYTES_MAX // 2)),
    ],
)
def test_a_name_is_no_more_than_a_name(written: str, safe: str) -> None:
    assert safe_name(written) == safe


@given(st.text(max_size=300) | st.text(string.printable, max_size=300))
def test_any_name_travels_as_it_is_safe(written: str) -> None:
    safe = safe_name(written)
    assert safe_name(safe) == safe
    assert len(safe.encode()) <= NAME_BYTES_MAX
    assert "/" not in safe
    assert safe not in (".", "..")
    headers = disposition(written)
    assert name_in(headers) == safe
    for _, value in headers:
        assert value.isascii()
        assert value.isprintable()


@given(st.text(max_size=5000))
def test_any_header_is_read_without_harm(value: str) -> None:
    found = name_in(((HEADER, value),), value)
    assert found == safe_name(found)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ('attachment; filename="order.xml"', "order.xml"),
        ("attachment; filename=order.xml", "order.xml"),
        ('inline; FileName="a \\"b\\".xml"', "a _b_.xml"),
        ("attachment; filename=\"x.xml\"; filename*=UTF-8''%E2%82%AC%20rates.xml", "€ rates.xml"),
        ("attachment; filename*=iso-8859-1''%FCber.txt", "über.txt"),
        ('attachment; filename*0="long"; filename*1="er.txt"', "longer.txt"),
        ("attachment; filename*0*=utf-8''%C3%BC; filename*1=\"ber.txt\"", "über.txt"),
        ('attachment; filename="=?utf-8?B?w7xiZXIudHh0?="', "über.txt"),
        ("attachment; filename*=utf-8''..%2F..%2Fpasswd", "passwd"),
        ("attachment", ""),
        ("attachment; filename=", ""),
    ],
)
def test_a_name_is_read_as_anybody_writes_it(value: str, name: str) -> None:
    assert name_in((("content-disposition", value),)) == name


def test_older_senders_write_it_beside_the_media_type() -> None:
    assert name_in((), 'application/pdf; name="offer.pdf"') == "offer.pdf"
    assert name_in((), "application/pdf") == ""


def test_a_payload_knows_its_name() -> None:
    assert Payload.of("a@b", "text/plain", b"", "../x.txt").file_name == "x.txt"
    assert Payload.of("a@b", "text/plain", b"").file_name == ""
