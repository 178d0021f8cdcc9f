"""Acknowledgements owed, receipts that can be given, and what a duplicate is answered with."""

import pytest
from msgspec.structs import replace

from oncewire.errors import NotSupported
from oncewire.message.envelope import AckRequested, Actor, DeliverySemantics, Message, MessageKind
from oncewire.message.form import AckRequest, ReliableMessagingMethod
from oncewire.message.instant import SECOND
from oncewire.protocol.receiver import (
    NOTHING_OWED,
    AckOwed,
    DuplicateReply,
    ack_owed,
    answer_duplicate,
    check_receipt,
    ride_patience,
)
from oncewire.protocol.terms import AckBundling, DuplicateAnswer, NoResponse, ReceiptProvided
from tests.protocol.samples import PLAIN, TIMEOUT, hop, message

# --- owed or not --------------------------------------------------------------------------


@pytest.mark.requirement("ACK-1", "ACK-2", "RM-4", "RM-5")
def test_a_reliable_message_is_acknowledged_whether_it_asks_or_not() -> None:
    assert ack_owed(message(), PLAIN, final=True) == AckOwed(True)
    asking = message(routing=(hop(ack_requested=AckRequest.UNSIGNED),))
    assert ack_owed(asking, PLAIN, final=True).owed


@pytest.mark.requirement("RM-6")
@pytest.mark.parametrize("semantics", [DeliverySemantics.BEST_EFFORT, None])
def test_an_unreliable_message_is_not_acknowledged(semantics: DeliverySemantics | None) -> None:
    settled = replace(PLAIN, reliable=False)
    assert ack_owed(message(semantics=semantics), settled, final=True) is NOTHING_OWED


@pytest.mark.requirement("CPA-8")
def test_where_the_header_is_silent_the_terms_say_whether_it_is_owed() -> None:
    assert ack_owed(message(semantics=None), PLAIN, final=True).owed


@pytest.mark.requirement("RM-5")
def test_a_message_that_asks_for_an_acknowledgement_is_reliable_in_ebms2() -> None:
    asking = message(ack_requested=(AckRequested(),), semantics=None)
    assert ack_owed(asking, PLAIN, final=True) == AckOwed(True, AckRequest.UNSIGNED)


@pytest.mark.requirement("ACK-8", "ACK-9")
@pytest.mark.parametrize(
    "kind", [kind for kind in MessageKind if kind not in (MessageKind.NORMAL, MessageKind.ERROR)]
)
def test_nothing_is_owed_for_an_acknowledgement_or_another_signal(kind: MessageKind) -> None:
    signal = message(kind)
    assert not signal.reliable
    assert ack_owed(signal, PLAIN, final=True) is NOTHING_OWED


@pytest.mark.requirement("ERR-8")
def test_a_reliable_failure_notice_is_acknowledged() -> None:
    assert ack_owed(message(MessageKind.ERROR), PLAIN, final=True).owed


@pytest.mark.requirement("RM-7")
def test_nothing_is_owed_where_the_transport_is_trusted() -> None:
    delegated = replace(PLAIN, method=ReliableMessagingMethod.TRANSPORT)
    assert ack_owed(message(), delegated, final=True) is NOTHING_OWED
    by_hop = message(routing=(hop(method=ReliableMessagingMethod.TRANSPORT),))
    assert ack_owed(by_hop, PLAIN, final=True) is NOTHING_OWED


# --- what it must contain -----------------------------------------------------------------


@pytest.mark.requirement("ACK-13", "ACK-14", "ACK-15", "HOP-10")
@pytest.mark.parametrize(
    ("asked", "element", "signed"),
    [
        (AckRequest.NONE, False, False),
        (AckRequest.UNSIGNED, True, False),
        (AckRequest.SIGNED, True, True),
    ],
)
def test_the_element_is_there_when_asked_for_and_signed_when_so_asked(
    asked: AckRequest, element: bool, signed: bool
) -> None:
    owed = ack_owed(message(routing=(hop(ack_requested=asked),)), PLAIN, final=True)
    assert (owed.owed, owed.element, owed.signed) == (True, element, signed)


@pytest.mark.requirement("HDR-5")
def test_the_last_routing_header_asks() -> None:
    first, last = hop(ack_requested=AckRequest.SIGNED), hop()
    assert not ack_owed(message(routing=(first, last)), PLAIN, final=True).element


@pytest.mark.requirement("HOP-11", "CPA-13")
def test_a_receipt_is_the_to_partys_and_not_a_hubs() -> None:
    asking = message(delivery_receipt_requested=AckRequest.SIGNED)
    assert ack_owed(asking, PLAIN, final=True).receipt is AckRequest.SIGNED
    assert ack_owed(asking, PLAIN, final=False).receipt is AckRequest.NONE


@pytest.mark.parametrize(
    ("actor", "final", "receipt", "next_hop"),
    [
        (Actor.TO_PARTY_MSH, True, AckRequest.SIGNED, AckRequest.NONE),
        (Actor.TO_PARTY_MSH, False, AckRequest.NONE, AckRequest.NONE),
        (Actor.NEXT_MSH, True, AckRequest.NONE, AckRequest.SIGNED),
        (Actor.NEXT_MSH, False, AckRequest.NONE, AckRequest.SIGNED),
    ],
)
def test_each_handler_answers_what_it_was_asked(
    actor: Actor, final: bool, receipt: AckRequest, next_hop: AckRequest
) -> None:
    asking = message(ack_requested=(AckRequested(actor, signed=True),))
    owed = ack_owed(asking, PLAIN, final=final)
    assert (owed.receipt, owed.hop_receipt) == (receipt, next_hop)


# --- receipts the agreement provides ------------------------------------------------------


def _asks(kind: AckRequest | None) -> Message:
    return message(delivery_receipt_requested=kind)


@pytest.mark.requirement("CPA-13", "CPA-14")
@pytest.mark.parametrize(
    ("provided", "satisfied"),
    [
        (ReceiptProvided.BOTH, {AckRequest.SIGNED, AckRequest.UNSIGNED}),
        (ReceiptProvided.SIGNED, {AckRequest.SIGNED}),
        (ReceiptProvided.UNSIGNED, {AckRequest.UNSIGNED}),
        (ReceiptProvided.NONE, set()),
    ],
)
def test_a_receipt_that_cannot_be_given_is_not_supported(
    provided: ReceiptProvided, satisfied: set[AckRequest]
) -> None:
    terms = replace(PLAIN, receipt_provided=provided)
    check_receipt(_asks(None), terms)
    check_receipt(_asks(AckRequest.NONE), terms)
    for asked in (AckRequest.SIGNED, AckRequest.UNSIGNED):
        if asked in satisfied:
            check_receipt(_asks(asked), terms)
            continue
        with pytest.raises(NotSupported, match=asked.value) as caught:
            check_receipt(_asks(asked), terms)
        assert (caught.value.code, caught.value.severity) == ("NotSupported", "Error")


# --- an acknowledgement that waits for a response to ride on -------------------------------


@pytest.mark.requirement("ACK-16")
@pytest.mark.parametrize(
    ("bundling", "agreed", "waits"),
    [
        (AckBundling.STANDALONE, 0, 0),
        (AckBundling.STANDALONE, 5 * SECOND, 0),
        (AckBundling.AUTO, 0, 0),
        (AckBundling.AUTO, 5 * SECOND, 5 * SECOND),
        (AckBundling.PIGGYBACK, 0, TIMEOUT // 2),
        (AckBundling.PIGGYBACK, 5 * SECOND, 5 * SECOND),
        # Its sender would resend meanwhile.
        (AckBundling.PIGGYBACK, 10 * TIMEOUT, TIMEOUT // 2),
    ],
)
def test_an_acknowledgement_waits_as_long_as_agreed_and_no_resend_is_due(
    bundling: AckBundling, agreed: int, waits: int
) -> None:
    terms = replace(PLAIN, ack_bundling=bundling, ack_wait=agreed)
    assert ride_patience(terms) == waits
    assert ride_patience(replace(terms, reliable=False)) == 0


# --- the answer to a duplicate ------------------------------------------------------------


def _reply(policy: DuplicateAnswer, *, answered: bool, responded: bool) -> DuplicateReply:
    terms = replace(PLAIN, duplicate_answer=policy)
    return answer_duplicate(terms, answered=answered, responded=responded, owed=True)


@pytest.mark.requirement("DUP-5")
def test_original_repeats_the_answer_first_given() -> None:
    assert (
        _reply(DuplicateAnswer.ORIGINAL, answered=True, responded=True)
        is DuplicateReply.STORED_ANSWER
    )


@pytest.mark.requirement("DUP-6")
def test_most_recent_repeats_the_latest_response() -> None:
    policy = DuplicateAnswer.MOST_RECENT
    assert _reply(policy, answered=True, responded=True) is DuplicateReply.LATEST_RESPONSE
    assert _reply(policy, answered=True, responded=False) is DuplicateReply.STORED_ANSWER


@pytest.mark.requirement("DUP-4", "SEQ-6", "ACK-1")
@pytest.mark.parametrize("policy", list(DuplicateAnswer))
def test_a_repeat_is_answered_with_an_acknowledgement(policy: DuplicateAnswer) -> None:
    assert _reply(policy, answered=True, responded=False) is DuplicateReply.STORED_ANSWER
    assert _reply(policy, answered=False, responded=False) is DuplicateReply.NEW_ACK


@pytest.mark.requirement("DUP-5", "DUP-6")
@pytest.mark.parametrize(
    ("policy", "reply"),
    [
        (DuplicateAnswer.ORIGINAL, DuplicateReply.FIRST_RESPONSE),
        (DuplicateAnswer.FRESH_ACK, DuplicateReply.FIRST_RESPONSE),
        (DuplicateAnswer.MOST_RECENT, DuplicateReply.LATEST_RESPONSE),
    ],
)
def test_a_response_answers_where_nothing_else_was_stored(
    policy: DuplicateAnswer, reply: DuplicateReply
) -> None:
    assert _reply(policy, answered=False, responded=True) is reply


@pytest.mark.requirement("DUP-7")
def test_a_duplicate_without_an_answer_may_be_ignored_by_agreement() -> None:
    terms = replace(PLAIN, duplicate_no_response=NoResponse.IGNORE)
    reply = answer_duplicate(terms, answered=False, responded=False, owed=True)
    assert reply is DuplicateReply.NOTHING


@pytest.mark.requirement("DUP-4", "DUP-7")
@pytest.mark.parametrize("agreed", list(NoResponse))
def test_where_the_response_may_not_be_repeated_its_acknowledgement_is(agreed: NoResponse) -> None:
    terms = replace(PLAIN, duplicate_no_response=agreed)
    reply = answer_duplicate(terms, answered=False, responded=False, owed=True, kept=True)
    assert reply is DuplicateReply.NEW_ACK
    unasked = answer_duplicate(terms, answered=False, responded=False, owed=False, kept=True)
    assert unasked is DuplicateReply.NOTHING


@pytest.mark.requirement("DUP-11", "RM-6")
def test_a_repeated_best_effort_message_is_not_answered() -> None:
    reply = answer_duplicate(PLAIN, answered=False, responded=False, owed=False)
    assert reply is DuplicateReply.NOTHING
