"""Large documents: which bytes travel in which part, and what parts may come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from oncewire.errors import DeliveryFailure, Inconsistent, InvalidValue, NotAllowed
from oncewire.message.envelope import SPLIT_TOTAL_MAX, Split
from oncewire.protocol.documents import (
    DocumentState,
    SplitDocument,
    check_part,
    is_document,
    nth_part,
    part_id,
    parts_needed,
    parts_under_way,
)
from tests.protocol.samples import PLAIN

LIMITED = replace(PLAIN, max_size=100, compress_encoding="gzip")
OPEN = SplitDocument("buyer", "doc", 3, "terms", 0)


@pytest.mark.requirement("BIG-1", "BIG-2")
def test_only_what_is_too_large_is_a_document() -> None:
    assert is_document((101,), LIMITED)
    assert is_document((3, 101), LIMITED)
    assert not is_document((100, 100), LIMITED)
    assert not is_document((10**9,), replace(LIMITED, max_size=None))


@pytest.mark.requirement("BIG-3", "BIG-5")
@given(st.lists(st.integers(0, 2_000), min_size=1, max_size=4), st.integers(1, 400))
def test_parts_cover_every_payload_once_and_keep_to_the_limit(sizes: list[int], limit: int) -> None:
    total = parts_needed(tuple(sizes), limit)
    parts = [nth_part(tuple(sizes), limit, number) for number in range(1, total + 1)]
    assert all(part.length <= limit for part in parts)
    for payload, size in enumerate(sizes):
        end = 0
        for part in parts:
            if part.payload == payload:
                assert part.offset == end
                end += part.length
        assert end == size
    assert [part.payload for part in parts] == sorted(part.payload for part in parts)
    with pytest.raises(InvalidValue, match="there is no part"):
        nth_part(tuple(sizes), limit, total + 1)


def test_too_many_parts_are_refused() -> None:
    with pytest.raises(InvalidValue, match="needs 1,000,001 parts") as caught:
        parts_needed((SPLIT_TOTAL_MAX + 1,), 1)
    assert "larger MaxSize" in caught.value.remedy


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(InvalidValue, match="negative"):
        parts_needed((-1,), 10)


@pytest.mark.requirement("BIG-4")
def test_each_part_has_an_id_of_its_own() -> None:
    assert len({part_id("doc@here", number, 12) for number in range(1, 13)}) == 12


@pytest.mark.requirement("BIG-6")
@given(st.integers(1, 12).flatmap(lambda total: st.permutations(range(1, total + 1))))
def test_parts_are_counted_once_in_any_order(order: list[int]) -> None:
    document = SplitDocument("buyer", "doc", len(order), "terms", 0)
    for number in order:
        assert not document.complete
        assert number in document.missing
        document = document.add(number, 10)
        assert document.add(number, 10) is document
    assert document.complete
    assert document.done == ((1, len(order)),)
    assert document.size == 10 * len(order)
    assert list(document.missing) == []


@pytest.mark.requirement("BIG-6")
def test_two_messages_cannot_be_the_same_part() -> None:
    check_part(None, Split("doc", 1, 3))
    check_part(OPEN.add(1), Split("doc", 2, 3))
    with pytest.raises(Inconsistent, match="part 1 of document doc came in two messages"):
        check_part(OPEN.add(1), Split("doc", 1, 3))


@pytest.mark.requirement("BIG-5")
def test_parts_must_agree_on_their_total() -> None:
    with pytest.raises(Inconsistent, match="says Total 4, earlier parts 3"):
        check_part(OPEN.add(1), Split("doc", 2, 4))


def test_a_document_that_was_given_up_takes_no_part() -> None:
    with pytest.raises(DeliveryFailure, match="given up"):
        check_part(OPEN.moved(DocumentState.FAILED), Split("doc", 2, 3))


def test_what_is_over_stays_over() -> None:
    whole = OPEN.moved(DocumentState.JOINING).moved(DocumentState.WHOLE)
    with pytest.raises(NotAllowed, match="cannot become open"):
        whole.moved(DocumentState.OPEN)


@pytest.mark.parametrize(
    ("size", "parts"), [(1, 8), (1_000_000, 8), (4 * 2**20, 4), (8 * 2**20, 2), (2**40, 2)]
)
def test_so_many_parts_are_under_way_as_a_turn_can_make(size: int, parts: int) -> None:
    assert parts_under_way(size) == parts
