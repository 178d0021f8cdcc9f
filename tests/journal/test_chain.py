"""The chain over a journal: one head depends on every row before it, and on nothing else."""

import hashlib
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from oncewire.journal.identity import START, last_head, link, links, row_text, unchained
from oncewire.journal.row import COLUMNS, Row
from oncewire.protocol.notes import Kind

ROW = Row(7, 1_000, 2_000, "machine.boot", "acme", "sent", message_id="m-1", attempt=1)

values = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=6))
some_rows = st.lists(st.tuples(*[values] * 3), max_size=6)


def test_a_head_can_be_made_again_by_hand() -> None:
    text = "7;1000;2000;12:machine.boot4:acme4:sent3:m-1-----1;------"
    assert row_text(ROW) == text
    assert link(START, ROW) == hashlib.sha256(bytes(32) + text.encode()).digest()


def test_each_column_counts() -> None:
    others: dict[str, Any] = {
        name: (value or 0) + 1 if isinstance(value, int) else "other"
        for name, value in zip(COLUMNS, ROW, strict=True)
    }
    heads = {link(START, ROW._replace(**{name: other})) for name, other in others.items()}
    assert len(heads | {link(START, ROW)}) == len(COLUMNS) + 1


@given(some_rows, some_rows)
def test_other_rows_make_another_head(one: list[Any], other: list[Any]) -> None:
    assert (last_head(START, one) == last_head(START, other)) == (one == other)


@given(some_rows)
def test_heads_lead_from_one_to_the_next(rows: list[Any]) -> None:
    heads = links(START, rows)
    assert heads[0] == START
    assert heads[-1] == last_head(START, rows)
    for row, (before, behind) in zip(rows, pairwise(heads), strict=True):
        assert link(before, row) == behind


def test_a_value_is_written_as_a_store_gives_it_back() -> None:
    assert row_text((Kind.SENT, True)) == row_text(("sent", 1))


def test_what_looks_alike_is_not() -> None:
    assert row_text(("a", "b")) != row_text(("ab", ""))
    assert row_text(("",)) != row_text((None,))
    assert row_text((12, 3)) != row_text((1, 23))
    assert row_text(("1;",)) != row_text((1,))
    # A text that no encoding has, as a broken peer may have sent one.
    assert link(START, ("\ud800",)) != link(START, ("?",))


def test_a_row_that_was_changed_is_named_and_no_other_is() -> None:
    rows = [ROW._replace(seq=seq, message_id=f"m-{seq}") for seq in range(1, 9)]
    heads = dict(enumerate(links(START, rows), start=1))
    assert unchained(rows, heads) == []
    edited = [row._replace(peer="forged") if row.seq in (3, 8) else row for row in rows]
    assert unchained(edited, heads) == [3, 8]
    # What was cleared away, or written before rows were chained, proves nothing.
    assert unchained(edited[4:], heads) == [8]
    assert unchained(edited, {seq: head for seq, head in heads.items() if seq > 3}) == [8]
    assert unchained(edited[:2] + edited[3:], heads) == [8]
