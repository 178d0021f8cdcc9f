"""What journals call told, against what the applications' own books know."""

import pytest

from oncewire.journal.predicates.sender import untold
from oncewire.protocol.notes import Kind
from tests.journal.changes import change, find
from tests.journal.scenarios import SCENARIOS


@pytest.mark.requirement("RTY-14")
def test_what_no_application_took_was_not_told() -> None:
    rows = SCENARIOS["unknown"]().rows
    assert list(untold(rows, {"acme": {"m1"}})) == []
    (found,) = untold(rows, {"acme": ()})
    assert (found.predicate, found.kind, found.node) == ("told", "untold", "acme")
    assert found.message_id == find(rows, Kind.NOTIFIED)[0].message_id


def test_where_there_is_no_book_nothing_is_compared() -> None:
    rows = SCENARIOS["unknown"]().rows
    assert list(untold(rows, {"globex": ()})) == []


@pytest.mark.requirement("HOP-9")
def test_a_hubs_notice_is_a_message_and_no_applications_matter() -> None:
    rows = SCENARIOS["unknown"]().rows
    told = change(rows, find(rows, Kind.NOTIFIED)[0], ref_to="n1")
    assert list(untold(told, {"acme": ()})) == []
