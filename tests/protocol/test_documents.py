"""Large documents: compress first, split only if still too large, join once."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncewire.errors import DeliveryFailure, Inconsistent, InvalidValue
from oncewire.message.header import SPLIT_TOTAL_MAX, Split
from oncewire.protocol.documents import Joining, Part, plan_split, should_compress
from tests.protocol.samples import PLAIN

LIMITED = replace(PLAIN, max_size=100, compress_encoding="gzip")


@pytest.mark.requirement("BIG-1", "BIG-2")
def test_compression_comes_first_and_only_where_needed() -> None:
    assert should_compress(101, LIMITED)
    assert not should_compress(100, LIMITED)
    assert not should_compress(101, replace(LIMITED, compress_encoding=None))
    assert not should_compress(10**9, replace(LIMITED, max_size=None))


@pytest.mark.requirement("BIG-2")
@pytest.mark.parametrize("size", [0, 1, 100])
def test_what_fits_travels_whole(size: int) -> None:
    assert plan_split(size, LIMITED) == (Part(1, 1, 0, size),)
    assert plan_split(10**9, PLAIN) == (Part(1, 1, 0, 10**9),)


@pytest.mark.requirement("BIG-3", "BIG-5")
@given(st.integers(0, 5_000), st.integers(1, 400))
def test_parts_cover_the_document_once_and_keep_to_the_limit(size: int, limit: int) -> None:
    parts = plan_split(size, replace(PLAIN, max_size=limit))
    assert [part.number for part in parts] == list(range(1, len(parts) + 1))
    assert {part.total for part in parts} == {len(parts)}
    assert all(part.length <= limit for part in parts)
    end = 0
    for part in parts:
        assert part.offset == end
        end += part.length
    assert end == size


def test_too_many_parts_are_refused() -> None:
    with pytest.raises(DeliveryFailure, match="needs 1000001 parts") as caught:
        plan_split(SPLIT_TOTAL_MAX + 1, replace(PLAIN, max_size=1))
    assert "larger MaxSize" in caught.value.remedy


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(InvalidValue, match="negative"):
        plan_split(-1, PLAIN)


# --- joining ------------------------------------------------------------------------------


@pytest.mark.requirement("BIG-4", "BIG-6")
@given(st.integers(1, 12).flatmap(lambda total: st.permutations(range(1, total + 1))))
def test_parts_join_in_ordinal_order_whatever_their_arrival(order: list[int]) -> None:
    total = len(order)
    joining = Joining.begin(Split("doc", order[0], total))
    for number in order:
        assert not joining.complete
        assert number in joining.missing
        joining = joining.add(Split("doc", number, total), f"m{number}")
        # A copy of a part counts once.
        assert joining.add(Split("doc", number, total), f"m{number}") is joining
    assert joining.complete
    assert list(joining.missing) == []
    assert joining.in_order() == tuple(f"m{number}" for number in range(1, total + 1))


@pytest.mark.requirement("BIG-6")
def test_two_messages_cannot_be_the_same_part() -> None:
    joining = Joining.begin(Split("doc", 1, 2)).add(Split("doc", 1, 2), "m1")
    with pytest.raises(Inconsistent, match="part 1 of document doc came in two messages"):
        joining.add(Split("doc", 1, 2), "m2")


@pytest.mark.requirement("BIG-5")
def test_parts_must_agree_on_their_total() -> None:
    joining = Joining.begin(Split("doc", 1, 2)).add(Split("doc", 1, 2), "m1")
    with pytest.raises(Inconsistent, match="says Total 3, earlier parts 2"):
        joining.add(Split("doc", 2, 3), "m2")
