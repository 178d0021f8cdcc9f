"""The identity digest: equal for copies of one message, different for everything else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from oncewire.journal.identity import identity_digest
from oncewire.message.envelope import (
    AckRequested,
    DeliverySemantics,
    Error,
    ErrorList,
    Header,
    Message,
    MessageKind,
    Payload,
    Reference,
    RoutingHeader,
    SequenceNumber,
    Severity,
    Split,
)
from oncewire.message.form import AckRequest, Dialect, SyncReplyMode
from oncewire.message.ids import Party, PartyId, Service

HEADER = Header(
    from_party=Party.of("urn:a", "duns", "Buyer"),
    to_party=Party.of("urn:b", "duns", "Seller"),
    cpa_id="cpa-1",
    conversation_id="conversation-1",
    service=Service("urn:services:orders", "uri"),
    action="NewOrder",
    message_id="m1@a",
    timestamp=1_000,
    ref_to_message_id="m0@b",
    time_to_live=2_000,
    semantics=DeliverySemantics.ONCE_AND_ONLY_ONCE,
    split=Split("doc-1", 1, 3),
    descriptions=(("en", "an order"),),
    foreign=(b"<x/>",),
)
MESSAGE = Message(
    Dialect.EBMS2,
    MessageKind.NORMAL,
    HEADER,
    payloads=(
        Payload.of("one", "application/xml", b"<order/>"),
        Payload.of("two", "text/plain", b"hello"),
    ),
)


def _with_header(**changes: object) -> Message:
    return replace(MESSAGE, header=replace(HEADER, **changes))  # type: ignore[arg-type]


DIFFERENT = {
    "from id": _with_header(from_party=Party.of("urn:c", "duns", "Buyer")),
    "from type": _with_header(from_party=Party.of("urn:a", None, "Buyer")),
    "from role": _with_header(from_party=Party.of("urn:a", "duns")),
    "two from ids": _with_header(
        from_party=Party((PartyId("urn:a", "duns"), PartyId("urn:b")), "Buyer")
    ),
    "to id": _with_header(to_party=Party.of("urn:c", "duns", "Seller")),
    "cpa": _with_header(cpa_id="cpa-2"),
    "conversation": _with_header(conversation_id="conversation-2"),
    "service": _with_header(service=Service("urn:services:invoices", "uri")),
    "service type": _with_header(service=Service("urn:services:orders")),
    "no service": _with_header(service=None),
    "action": _with_header(action="CancelOrder"),
    "no action": _with_header(action=None),
    "message id": _with_header(message_id="m2@a"),
    "timestamp": _with_header(timestamp=1_001),
    "reference": _with_header(ref_to_message_id=None),
    "time to live": _with_header(time_to_live=None),
    "semantics": _with_header(semantics=None),
    "split number": _with_header(split=Split("doc-1", 2, 3)),
    "split total": _with_header(split=Split("doc-1", 1, 2)),
    "no split": _with_header(split=None),
    "description": _with_header(descriptions=(("en", "another order"),)),
    "no description": _with_header(descriptions=()),
    "no foreign": _with_header(foreign=()),
    "foreign": _with_header(foreign=(b"<y/>",)),
    "foreign in two": _with_header(foreign=(b"<x", b"/>")),
    "payload bytes": replace(
        MESSAGE,
        payloads=(Payload.of("one", "application/xml", b"<odder/>"), MESSAGE.payloads[1]),
    ),
    "payload type": replace(
        MESSAGE, payloads=(Payload.of("one", "text/xml", b"<order/>"), MESSAGE.payloads[1])
    ),
    "payload order": replace(MESSAGE, payloads=MESSAGE.payloads[::-1]),
    "payload missing": replace(MESSAGE, payloads=MESSAGE.payloads[:1]),
    "errors": replace(MESSAGE, error_list=ErrorList((Error("Unknown"),))),
    "severity": replace(MESSAGE, error_list=ErrorList((Error("Unknown", Severity.WARNING),))),
}

SAME = {
    "routing": replace(MESSAGE, routing=(RoutingHeader(sender_uri="urn:a", receiver_uri="urn:b"),)),
    "number": replace(MESSAGE, order=SequenceNumber(7)),
    "dialect": replace(MESSAGE, dialect=Dialect.MS_09X),
    "hop block": replace(MESSAGE, ack_requested=(AckRequested(),)),
    "receipt": _with_header(delivery_receipt_requested=AckRequest.SIGNED),
    "sync": _with_header(sync_reply=SyncReplyMode.RESPONSE_ONLY, sync_reply_as_agreed=True),
    "elimination": _with_header(duplicate_elimination=True),
    "manifest": replace(MESSAGE, manifest=(Reference("cid:one"),)),
    "content id and encoding": replace(
        MESSAGE,
        payloads=(
            replace(MESSAGE.payloads[0], content_id="other", content_encoding="gzip"),
            replace(MESSAGE.payloads[1], data=None, spooled="file", mime_headers=(("X", "y"),)),
        ),
    ),
}


@pytest.mark.requirement("DUP-3")
@pytest.mark.parametrize("name", sorted(DIFFERENT))
def test_another_message_has_another_digest(name: str) -> None:
    assert identity_digest(DIFFERENT[name]) != identity_digest(MESSAGE)


def test_all_those_messages_differ_from_each_other() -> None:
    assert len({identity_digest(message) for message in DIFFERENT.values()}) == len(DIFFERENT)


@pytest.mark.requirement("DUP-3", "DUP-9")
@pytest.mark.parametrize("name", sorted(SAME))
def test_a_copy_has_the_same_digest(name: str) -> None:
    assert identity_digest(SAME[name]) == identity_digest(MESSAGE)


def test_it_is_said_of_every_value_of_a_header_whether_it_makes_another_message() -> None:
    """A new one belongs into DIFFERENT or into SAME."""
    changed = [message.header for message in (*DIFFERENT.values(), *SAME.values())]
    assert [
        name
        for name in Header.__struct_fields__
        if all(getattr(header, name) == getattr(HEADER, name) for header in changed)
    ] == []


def test_the_digest_is_the_same_on_every_machine_and_run() -> None:
    assert identity_digest(MESSAGE) == (
        "1c83cbcf72e2250b23cbd41609a80d52d2612c73577e947c5ae73e59e3842b00"
    )


ids = st.text(st.sampled_from("a:1;-2"), min_size=1, max_size=6)


@given(st.lists(ids, min_size=4, max_size=4), st.lists(ids, min_size=4, max_size=4))
def test_no_two_headers_collide_by_concatenation(one: list[str], other: list[str]) -> None:
    def digest(values: list[str]) -> str:
        cpa_id, conversation_id, message_id, action = values
        return identity_digest(
            _with_header(
                cpa_id=cpa_id,
                conversation_id=conversation_id,
                message_id=message_id,
                action=action,
            )
        )

    assert (digest(one) == digest(other)) == (one == other)


def test_a_description_that_is_no_proper_text_is_still_told_apart() -> None:
    assert identity_digest(_with_header(descriptions=(("en", "\ud800"),)))
