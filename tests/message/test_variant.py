"""A variant is what `dataclasses.replace` makes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncewire.errors import InvalidValue
from oncewire.message import Header, Party, Service
from oncewire.message.quick import variant
from oncewire.protocol.states import Outgoing, OutgoingState

HEADER = Header(Party.of("urn:a"), Party.of("urn:b"), "cpa", "talk", Service("urn:s"), "Do", "m", 7)


def test_it_equals_what_replace_makes() -> None:
    outgoing = Outgoing("m", "t", 5)
    changes = {"state": OutgoingState.DELIVERED, "attempts": 3, "next_attempt_at": None}
    assert variant(outgoing, **changes) == replace(outgoing, **changes)  # type: ignore[arg-type]
    assert variant(HEADER, timestamp=8, ref_to_message_id="n") == replace(
        HEADER, timestamp=8, ref_to_message_id="n"
    )
    assert variant(outgoing) == outgoing
    assert variant(outgoing) is not outgoing


def test_its_values_are_checked_as_those_of_any_other() -> None:
    with pytest.raises(InvalidValue, match="MessageId"):
        variant(HEADER, message_id="")


def test_a_field_that_is_not_there_cannot_change() -> None:
    with pytest.raises(AttributeError):
        variant(HEADER, colour="blue")
