"""A stencil gives what the writer gives, whatever stands in its blanks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from oncewire.errors import InvalidValue
from oncewire.message import (
    AckRequested,
    Actor,
    Dialect,
    Header,
    Message,
    MessageKind,
    Party,
    Service,
)
from oncewire.message.form import Form
from oncewire.wire import answers, codec
from oncewire.wire.answers import Envelope
from oncewire.wire.parcel import Parcel
from oncewire.wire.templates.acknowledgment import AckFields, stencil_of
from tests.wire.strategies import ids

HEADER = Header(
    Party.of("urn:a"), Party.of("urn:b"), "cpa", "talk", Service("urn:s"), "Do", "m@a", 7
)
ASKING = Message(
    Dialect.EBMS2,
    MessageKind.NORMAL,
    HEADER,
    ack_requested=(AckRequested(Actor.TO_PARTY_MSH, signed=False),),
)
FIRST = AckFields("1@b", "m@a", "talk", 1_763_287_000_123_456)


def _written(blanks: AckFields) -> Parcel:
    header = replace(
        HEADER, message_id=blanks.ref_to_message_id, conversation_id=blanks.conversation_id
    )
    envelope = Envelope(blanks.message_id, blanks.now, Form())
    ack = answers.acknowledgment_for(replace(ASKING, header=header), envelope)
    return codec.write(ack, Form())


STENCIL = stencil_of(_written, FIRST)


@settings(max_examples=150, deadline=None)
@given(st.builds(AckFields, ids, ids, ids, st.integers(0, 4_000_000_000_000_000)))
def test_it_gives_what_the_writer_gives(blanks: AckFields) -> None:
    assert STENCIL is not None
    try:
        expected = _written(blanks)
    except InvalidValue as problem:
        with pytest.raises(InvalidValue, match=str(problem)[:20].replace("'", ".")):
            STENCIL.filled(blanks)
    else:
        assert STENCIL.filled(blanks) == expected


def test_what_differs_otherwise_has_none() -> None:
    written = 0

    def counting(blanks: AckFields) -> Parcel:
        nonlocal written
        written += 1
        return replace(_written(blanks), headers=(("Number", str(written)),))

    assert stencil_of(counting, FIRST) is None


def test_what_counts_a_value_has_none() -> None:
    def measuring(blanks: AckFields) -> Parcel:
        parcel = _written(blanks)
        return replace(parcel, body=parcel.body + b"%d" % len(blanks.ref_to_message_id))

    assert stencil_of(measuring, FIRST) is None


def test_what_cannot_be_written_has_none() -> None:
    def refusing(blanks: AckFields) -> Parcel:
        if "<" in blanks.message_id:
            raise InvalidValue("no such ids", remedy="take another")
        return _written(blanks)

    assert stencil_of(refusing, FIRST) is None
