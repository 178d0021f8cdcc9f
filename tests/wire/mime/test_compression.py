"""Compressed payloads come back whole, and damaged or swollen ones do not."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncewire.errors import InvalidValue, MimeProblem
from oncewire.wire.mime.compression import ENCODINGS, Inflater, compressed


@pytest.mark.requirement("BIG-1")
@pytest.mark.parametrize("encoding", ENCODINGS)
@given(data=st.data())
def test_what_is_compressed_comes_back(encoding: str, data: st.DataObject) -> None:
    pieces = data.draw(st.lists(st.binary(max_size=300), max_size=10))
    small = b"".join(compressed(pieces, encoding))
    inflater = Inflater(encoding)
    size = data.draw(st.integers(1, 50))
    whole = b""
    for start in range(0, len(small), size):
        whole += b"".join(inflater.feed(small[start : start + size]))
    whole += b"".join(inflater.finish())
    assert whole == b"".join(pieces)
    assert inflater.size == len(whole)


def test_the_same_content_gives_the_same_bytes() -> None:
    once, again = (b"".join(compressed([b"abc" * 1000])) for _ in range(2))
    assert once == again
    assert gzip.decompress(once) == b"abc" * 1000


def test_a_large_but_honest_text_is_let_through() -> None:
    text = b"".join(b"line %d of an order\n" % n for n in range(200_000))
    inflater = Inflater("gzip")
    whole = b"".join(inflater.feed(b"".join(compressed([text])))) + b"".join(inflater.finish())
    assert whole == text


def test_a_size_may_be_agreed() -> None:
    inflater = Inflater("gzip", size_max=100)
    with pytest.raises(MimeProblem) as caught:
        list(inflater.feed(gzip.compress(b"x" * 101)))
    assert caught.value.location == "payload_bytes"


@pytest.mark.parametrize(
    "damaged",
    [b"not gzip at all", gzip.compress(b"x" * 100)[:-5], gzip.compress(b"x") + b"more", b""],
    ids=["no gzip", "cut", "more after it", "nothing"],  # The bytes themselves hold the hour.
)
def test_damage_is_refused(damaged: bytes) -> None:
    inflater = Inflater("gzip")
    with pytest.raises(MimeProblem, match="damaged"):
        _all(inflater, damaged)


def _all(inflater: Inflater, data: bytes) -> bytes:
    return b"".join(inflater.feed(data)) + b"".join(inflater.finish())


def test_an_unknown_encoding_is_refused_on_both_sides() -> None:
    with pytest.raises(MimeProblem):
        Inflater("br")
    with pytest.raises(InvalidValue):
        list(compressed([b""], "br"))
