"""Header against agreement, value by value, under each of the four policies."""

import pytest
from msgspec.structs import replace

from oncewire.agreement.resolve import Resolution, resolve
from oncewire.agreement.rules import takes_best_effort
from oncewire.errors import EbxmlError, Inconsistent, NotSupported
from oncewire.message.envelope import (
    AckRequested,
    Actor,
    DeliverySemantics,
    Message,
    MessageKind,
    SequenceNumber,
    Severity,
)
from oncewire.message.form import AckRequest, ReliableMessagingMethod, SyncReplyMode
from tests.agreement import samples
from tests.agreement.samples import NOW

ONCE, BEST = DeliverySemantics.ONCE_AND_ONLY_ONCE, DeliverySemantics.BEST_EFFORT


def _resolve(message: Message, profile: str, rest: str = "") -> Resolution:
    return resolve([samples.agreement(profile, rest)], message, receiving=True, now=NOW)


def _refused(message: Message, profile: str, rest: str = "") -> EbxmlError:
    with pytest.raises(EbxmlError) as caught:
        _resolve(message, profile, rest)
    assert caught.value.severity == "Error"
    return caught.value


def _policy(letter: str, more: str = "") -> str:
    return f'[delivery]\nheader_conflict = "{letter}"\n{more}'


@pytest.mark.parametrize("rule", ["always", "perMessage"])
def test_best_effort_contradicts_an_agreement_that_always_eliminates_duplicates(rule: str) -> None:
    said = f'[ack]\nrequest = "perMessage"\n[duplicate]\nelimination = "{rule}"\n'
    agreement = samples.agreement("ebms2", _policy("d") + said)
    assert takes_best_effort(agreement.sending) is (rule == "perMessage")


# --- policies a to d (CPA-8..12) ---------------------------------------------------------------


@pytest.mark.requirement("CPA-1", "CPA-8")
@pytest.mark.parametrize("letter", "abcd")
@pytest.mark.parametrize("reliable", [True, False])
def test_a_silent_header_leaves_it_to_the_agreement(letter: str, reliable: bool) -> None:
    rest = _policy(letter, f"reliable = {str(reliable).lower()}\n")
    found = _resolve(samples.draft_message(), "ms-0.9x", rest)
    assert found.terms.reliable is reliable
    assert found.warnings == ()


@pytest.mark.requirement("CPA-1")
@pytest.mark.parametrize("letter", "abcd")
def test_a_header_that_repeats_the_agreement_is_no_conflict(letter: str) -> None:
    found = _resolve(samples.draft_message(semantics=ONCE), "ms-0.9x", _policy(letter))
    assert found.terms.reliable
    assert found.warnings == ()


@pytest.mark.requirement("CPA-9")
def test_policy_a_takes_the_header() -> None:
    found = _resolve(samples.draft_message(semantics=BEST), "ms-0.9x", _policy("a"))
    assert not found.terms.reliable
    assert found.terms.ack_requested is AckRequest.NONE
    assert found.warnings == ()


@pytest.mark.requirement("CPA-10")
def test_policy_b_takes_the_header_and_warns() -> None:
    found = _resolve(samples.draft_message(semantics=BEST), "ms-0.9x", _policy("b"))
    assert not found.terms.reliable
    (warning,) = found.warnings
    assert (warning.code, warning.severity) == ("Inconsistent", Severity.WARNING)
    assert warning.location == "//Header/QualityOfServiceInfo/@deliverySemantics"


@pytest.mark.requirement("CPA-11")
def test_policy_c_takes_the_agreement_and_warns() -> None:
    found = _resolve(samples.draft_message(semantics=BEST), "ms-0.9x", _policy("c"))
    assert found.terms.reliable
    (warning,) = found.warnings
    assert (warning.code, warning.severity) == ("Inconsistent", Severity.WARNING)


@pytest.mark.requirement("CPA-12")
def test_policy_d_refuses() -> None:
    error = _refused(samples.draft_message(semantics=BEST), "ms-0.9x", _policy("d"))
    assert isinstance(error, Inconsistent)
    assert error.location == "//Header/QualityOfServiceInfo/@deliverySemantics"


@pytest.mark.requirement("CPA-9", "CPA-10", "CPA-11", "CPA-12")
@pytest.mark.parametrize(
    ("letter", "mode", "warned"),
    [("a", "RESPONSE", False), ("b", "RESPONSE", True), ("c", "ACKS", True), ("d", None, False)],
)
def test_the_policies_hold_for_the_synchronous_mode_too(
    letter: str, mode: str | None, warned: bool
) -> None:
    rest = _policy(letter, 'reliable = false\n[sync]\nmode = "AcksOnly"\n')
    message = samples.draft_message(sync_reply=SyncReplyMode.SIGNALS_AND_RESPONSE)
    if mode is None:
        assert _refused(message, "ms-0.9x", rest).location == "//Header/SyncReply"
        return
    found = _resolve(message, "ms-0.9x", rest)
    wanted = {
        "RESPONSE": SyncReplyMode.SIGNALS_AND_RESPONSE,
        "ACKS": SyncReplyMode.MSH_SIGNALS_ONLY,
    }
    assert found.terms.sync_mode is wanted[mode]
    assert bool(found.warnings) is warned


# --- acknowledgements --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "asked", "accepted"),
    [
        ("always", AckRequest.UNSIGNED, True),
        ("always", None, False),
        ("never", AckRequest.UNSIGNED, False),
        ("never", None, True),
        ("perMessage", AckRequest.UNSIGNED, True),
        ("perMessage", AckRequest.SIGNED, True),
        ("perMessage", None, True),
    ],
)
def test_ack_requested_against_always_never_and_per_message(
    rule: str, asked: AckRequest | None, accepted: bool
) -> None:
    rest = f'[ack]\nrequest = "{rule}"\n'
    message = samples.message() if asked is None else samples.asking(asked)
    if not accepted:
        error = _refused(message, "ebms2", rest)
        assert (error.code, error.location) == ("Inconsistent", "//Header/AckRequested")
        return
    terms = _resolve(message, "ebms2", rest).terms
    assert terms.ack_requested is (asked or AckRequest.NONE)
    assert terms.reliable is (asked is not None)


@pytest.mark.parametrize("asked", [AckRequest.UNSIGNED, AckRequest.SIGNED])
@pytest.mark.parametrize("rule", ["always", "never", "perMessage"])
def test_the_kind_of_acknowledgement_against_the_agreement(rule: str, asked: AckRequest) -> None:
    rest = f'[ack]\nrequest = "always"\nsignature = "{rule}"\n'
    fits = rule == "perMessage" or (rule == "always") is (asked is AckRequest.SIGNED)
    if fits:
        assert _resolve(samples.asking(asked), "ebms2", rest).terms.ack_requested is asked
        return
    error = _refused(samples.asking(asked), "ebms2", rest)
    assert (error.code, error.location) == ("Inconsistent", "//Header/AckRequested/@signed")


def test_an_agreement_that_wins_adds_the_acknowledgement_itself() -> None:
    rest = '[ack]\nrequest = "always"\nsignature = "always"\n' + _policy("c")
    found = _resolve(samples.message(), "ebms2", rest)
    assert found.terms.ack_requested is AckRequest.SIGNED
    assert found.terms.reliable
    assert len(found.warnings) == 1


def test_a_request_to_the_next_handler_where_it_was_ruled_out() -> None:
    message = replace(
        samples.asking(duplicate_elimination=True),
        ack_requested=(AckRequested(), AckRequested(Actor.NEXT_MSH)),
    )
    error = _refused(message, "digikoppeling-osb-rm")
    assert isinstance(error, NotSupported)
    assert error.location == "//Header/AckRequested/@actor"
    terms = _resolve(message, "ebms2").terms
    assert terms.hop_ack_requested is AckRequest.UNSIGNED


def test_forward_reliable_wants_the_next_handlers_acknowledgement() -> None:
    forward = "nhs-forward-reliable"
    right = samples.asking(actor=Actor.NEXT_MSH, duplicate_elimination=True)
    terms = _resolve(right, forward).terms
    assert (terms.hop_ack_requested, terms.ack_requested) == (AckRequest.UNSIGNED, AckRequest.NONE)
    assert terms.reliable
    wrong = samples.asking(actor=Actor.TO_PARTY_MSH, duplicate_elimination=True)
    assert _refused(wrong, forward).location == "//Header/AckRequested"


@pytest.mark.requirement("CPA-2", "HOP-10")
@pytest.mark.parametrize("asked", list(AckRequest))
def test_a_draft_obeys_the_routing_header_and_never_the_agreement(asked: AckRequest) -> None:
    rest = '[ack]\nhop_request = "Signed"\n'
    terms = _resolve(samples.draft_message(hop_ack=asked), "ms-0.9x", rest).terms
    assert terms.hop_ack_requested is asked


@pytest.mark.requirement("CPA-2", "CPA-3", "CPA-7", "RM-5")
def test_the_method_is_the_headers_and_must_be_supported() -> None:
    message = samples.draft_message()
    hop = replace(message.routing[0], method=ReliableMessagingMethod.TRANSPORT)
    by_transport = replace(message, routing=(hop,))
    error = _refused(by_transport, "ms-0.9x")
    assert isinstance(error, NotSupported)
    assert error.location == "//RoutingHeader/@reliableMessagingMethod"
    ebxml = "http://www.ebxml.org/namespaces/reliableMessaging"
    rest = f'[delivery]\nmethods_supported = ["{ebxml}", "urn:ex:queue"]\n'
    terms = _resolve(by_transport, "ms-0.9x", rest).terms
    assert terms.method is ReliableMessagingMethod.TRANSPORT
    assert not terms.runs_protocol
    # An agreement for Transport does not change a header that says nothing of it.
    rest = f'[delivery]\nmethod = "Transport"\nmethods_supported = ["{ebxml}", "urn:ex:queue"]\n'
    assert _resolve(message, "ms-0.9x", rest).terms.method is ReliableMessagingMethod.EBXML
    only = '[delivery]\nmethods_supported = ["urn:ex:queue"]\n'
    assert _refused(message, "ms-0.9x", only).code == "NotSupported"


@pytest.mark.requirement("RM-7")
def test_a_header_that_cannot_name_a_method_says_nothing_against_the_transports() -> None:
    rest = '[delivery]\nmethod = "Transport"\n[ack]\nrequest = "whenStated"\n'
    rest += '[duplicate]\nelimination = "never"\n'
    silent = samples.message(semantics=DeliverySemantics.BEST_EFFORT)
    terms = _resolve(silent, "ebms2", rest).terms
    assert terms.reliable
    assert not terms.runs_protocol


# --- receipts, duplicates ----------------------------------------------------------------------


@pytest.mark.requirement("CPA-13", "CPA-14")
@pytest.mark.parametrize("provided", ["Signed", "Unsigned", "Both", "None"])
@pytest.mark.parametrize("asked", [None, *AckRequest])
def test_a_receipt_that_cannot_be_given_is_not_supported(
    provided: str, asked: AckRequest | None
) -> None:
    rest = f'[delivery]\nreceipt_provided = "{provided}"\n'
    message = samples.draft_message(delivery_receipt_requested=asked)
    impossible = asked in (AckRequest.SIGNED, AckRequest.UNSIGNED) and provided not in (
        "Both",
        asked.value,
    )
    if impossible:
        assert isinstance(_refused(message, "ms-0.9x", rest), NotSupported)
        return
    terms = _resolve(message, "ms-0.9x", rest).terms
    assert terms.ack_requested is (AckRequest.UNSIGNED if asked is None else asked)


@pytest.mark.parametrize("rule", ["always", "never", "perMessage"])
@pytest.mark.parametrize("stated", [True, False])
def test_duplicate_elimination_against_the_agreement(rule: str, stated: bool) -> None:
    rest = f'[duplicate]\nelimination = "{rule}"\n'
    message = samples.asking(duplicate_elimination=stated)
    if rule == "perMessage" or (rule == "always") is stated:
        assert _resolve(message, "ebms2", rest).terms.duplicate_elimination is stated
        return
    error = _refused(message, "ebms2", rest)
    assert error.location == "//Header/MessageHeader/DuplicateElimination"


def test_a_draft_has_no_word_for_duplicate_elimination_and_eliminates() -> None:
    assert _resolve(samples.draft_message(), "ms-0.9x").terms.duplicate_elimination


@pytest.mark.parametrize("letter", ["a", "b", "c", "d"])
@pytest.mark.parametrize("rule", ["always", "perMessage", "whenStated"])
def test_once_and_only_once_is_the_drafts_word_for_duplicate_elimination(
    rule: str, letter: str
) -> None:
    rest = f'[delivery]\nheader_conflict = "{letter}"\n[duplicate]\nelimination = "{rule}"\n'
    found = _resolve(samples.draft_message(semantics=ONCE), "ms-0.9x", rest)
    assert found.terms.duplicate_elimination
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("acks", "duplicates", "semantics"),
    [(True, True, ONCE), (True, False, None), (False, True, None), (False, False, BEST)],
)
def test_the_semantics_that_ebms2_implies_are_no_second_opinion(
    acks: bool, duplicates: bool, semantics: DeliverySemantics | None
) -> None:
    """The reader fills in what the elements amount to; the rules for them decide alone."""
    plain = samples.message(duplicate_elimination=duplicates, semantics=semantics)
    message = replace(plain, ack_requested=(AckRequested(),) if acks else ())
    terms = _resolve(message, "ebms2").terms
    assert (terms.reliable, terms.duplicate_elimination) == (acks, duplicates)


# --- synchronous replies -----------------------------------------------------------------------


@pytest.mark.requirement("SYNC-13")
@pytest.mark.parametrize("letter", "abcd")
def test_a_synchronous_wish_that_was_not_agreed_is_refused_under_every_policy(letter: str) -> None:
    for message, profile in (
        (samples.message(sync_reply_as_agreed=True), "ebms2"),
        (samples.draft_message(sync_reply=SyncReplyMode.MSH_SIGNALS_ONLY), "ms-0.9x"),
        (samples.draft_message(sync_reply_as_agreed=True), "ms-0.9x"),
    ):
        error = _refused(message, profile, _policy(letter))
        assert (error.code, error.location) == ("Inconsistent", "//Header/SyncReply")


SYNC = '[sync]\nmode = "signalsAndResponse"\n'


def test_sync_reply_is_as_agreed() -> None:
    terms = _resolve(samples.message(sync_reply_as_agreed=True), "ebms2", SYNC).terms
    assert terms.sync_mode is SyncReplyMode.SIGNALS_AND_RESPONSE


def test_a_missing_sync_reply_is_inconsistent_where_the_agreement_wants_it() -> None:
    assert _refused(samples.message(), "ebms2", SYNC).location == "//Header/SyncReply"
    relaxed = SYNC + 'request = "perMessage"\n'
    assert _resolve(samples.message(), "ebms2", relaxed).terms.sync_mode is SyncReplyMode.NONE


@pytest.mark.requirement("SYNC-14")
def test_a_reply_needs_no_sync_reply_and_must_not_have_one() -> None:
    reply = samples.message(ref_to_message_id="m-0")
    assert _resolve(reply, "ebms2", SYNC).terms.sync_mode is SyncReplyMode.NONE
    mode = SyncReplyMode.SIGNALS_AND_RESPONSE
    asking = samples.draft_message(ref_to_message_id="m-0", sync_reply=mode)
    assert _refused(asking, "ms-0.9x", SYNC).code == "Inconsistent"


def test_in_ebms_2_0_a_reply_may_ask_for_a_synchronous_reply_of_its_own() -> None:
    """SYNC-14 is the sync paper's rule; NHS Spine's replies, for one, do ask."""
    asking = samples.message(ref_to_message_id="m-0", sync_reply_as_agreed=True)
    mode = SyncReplyMode.SIGNALS_AND_RESPONSE
    assert _resolve(asking, "ebms2", SYNC).terms.sync_mode is mode
    held = SYNC + "replies = false\n"
    assert _refused(asking, "ebms2", held).code == "Inconsistent"


@pytest.mark.requirement("CPA-8", "CPA-17")
def test_a_silent_draft_header_replies_as_agreed() -> None:
    terms = _resolve(samples.draft_message(), "ms-0.9x", SYNC).terms
    assert terms.sync_mode is SyncReplyMode.SIGNALS_AND_RESPONSE


@pytest.mark.requirement("SYNC-4")
def test_response_only_leaves_no_room_for_acknowledgements() -> None:
    only = '[sync]\nmode = "responseOnly"\n'
    message = samples.draft_message(sync_reply=SyncReplyMode.RESPONSE_ONLY)
    assert _refused(message, "ms-0.9x", only).code == "Inconsistent"
    plain = samples.draft_message(sync_reply=SyncReplyMode.RESPONSE_ONLY, semantics=BEST)
    assert _resolve(plain, "ms-0.9x", only).terms.sync_mode is SyncReplyMode.RESPONSE_ONLY
    # ebMS 2.0 lets the acknowledgement ride inside the response.
    assert _resolve(samples.asking(sync_reply_as_agreed=True), "ebms2", only)
    alone = only + '[ack]\nbundling = "standalone"\n'
    error = _refused(samples.asking(sync_reply_as_agreed=True), "ebms2", alone)
    assert error.code == "Inconsistent"


# --- numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("letter", "numbered", "warned"), [("a", False, 0), ("b", False, 1), ("c", None, 0),
                                       ("d", None, 0)],
)  # fmt: skip
def test_a_missing_number_under_each_policy(
    letter: str, numbered: bool | None, warned: int
) -> None:
    message = samples.draft_message(semantics=ONCE)
    rest = _policy(letter)
    if numbered is None:
        error = _refused(message, "window", rest)
        # The word SequenceNumber would make the sender fill a gap that is not there.
        assert "SequenceNumber" not in error.location
        return
    found = _resolve(message, "window", rest)
    assert found.terms.numbered is numbered
    assert found.channel is None
    assert len(found.warnings) == warned


def test_a_number_nobody_agreed_on() -> None:
    message = samples.draft_message(semantics=ONCE, number=SequenceNumber(3))
    found = _resolve(message, "ms-0.9x")
    assert (found.terms.numbered, found.terms.ordered) == (True, False)
    assert found.channel == "alpha>beta"
    ignored = _resolve(message, "ms-0.9x", _policy("c"))
    assert ignored.channel is None
    assert len(ignored.warnings) == 1


def test_an_unreliable_message_has_no_place_in_a_stream() -> None:
    message = samples.draft_message(semantics=BEST, number=SequenceNumber(3))
    found = _resolve(message, "window")
    assert found.channel is None
    assert not found.terms.numbered


def test_an_order_the_agreement_cannot_keep_is_not_supported() -> None:
    rest = '[sequence]\nscope = "triple"\n[delivery]\ntransports = ["http", "smtp"]\n'
    message = replace(samples.asking(duplicate_elimination=True), order=SequenceNumber(0))
    error = _refused(message, "ebms2", rest)
    assert (error.code, error.location) == ("NotSupported", "//Header/MessageOrder")


@pytest.mark.parametrize(("numbers", "window"), [("[0, 99]", 50), ("[0, 999]", 100)])
def test_an_order_that_only_the_header_asks_for_has_a_window_of_half_the_numbers(
    numbers: str, window: int
) -> None:
    rest = f'[sequence]\nrange = {numbers}\n[flow]\nmode = "unrestricted"\n'
    message = replace(samples.asking(duplicate_elimination=True), order=SequenceNumber(0))
    found = _resolve(message, "ebms2", rest)
    assert (found.terms.ordered, found.terms.window) == (True, window)


# --- signals -----------------------------------------------------------------------------------


@pytest.mark.requirement("ACK-8")
def test_signals_run_under_no_rules_but_a_failure_notice_stays_reliable() -> None:
    always = '[ack]\nrequest = "always"\n'
    for kind in MessageKind:
        if kind is MessageKind.NORMAL:
            continue
        signal = replace(samples.message(), kind=kind)
        found = _resolve(signal, "ebms2", always)
        assert not found.terms.reliable
        assert found.terms.sync_mode is SyncReplyMode.NONE
    notice = replace(
        samples.draft_message(semantics=ONCE, number=SequenceNumber(1)), kind=MessageKind.ERROR
    )
    found = _resolve(notice, "window")
    assert found.terms.reliable
    assert found.channel == "alpha>beta"
    plain = replace(samples.draft_message(semantics=ONCE), kind=MessageKind.ERROR)
    assert _resolve(plain, "window").channel is None


def test_equal_headers_share_one_terms_id() -> None:
    ids = {
        _resolve(samples.asking(message_id=f"m-{count}"), "ebms2").terms.terms_id
        for count in range(5)
    }
    assert len(ids) == 1
