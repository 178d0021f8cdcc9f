"""Mutants of synchronous replies, hops and transports that tests with real handlers must notice."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SYNC = "oncewire.protocol.synchronous"
_ANSWER = "oncewire.handler.sending.answer"

_MODES = "tests/handler/test_sync_modes.py"
_HAND_OVER = "tests/handler/runtime/test_hand_over.py"
_REPLY = "tests/handler/receiving/test_reply.py"
_HUB = "tests/handler/hub/test_hub.py"
_ORIGINAL = "tests/handler/receiving/test_original.py"
_WORK = "tests/handler/test_agreement_at_work.py"
_HEADERS = "tests/handler/test_headers_on_the_wire.py"

IN_SYNC: tuple[Mutant, ...] = (
    Mutant(
        "a copy of a request answers for every response that it ever had",
        "oncewire.handler.sending.answer:was_given",
        "_carried(context, tx, stored.answer)",
        "tx.responses_to(stored.incoming.message_id, stored.peer)",
        requirement="DUP-5 SYNC-8",
        tests=(
            f"{_ORIGINAL}::test_what_became_of_a_later_response_changes_no_copy_of_the_first_answer",
        ),
    ),
    Mutant(
        "the response beside an acknowledgement is not counted as given again",
        "oncewire.handler.sending.answer:_carried",
        "ids = [received.message.header.message_id for received in both]",
        "ids = []",
        requirement="DUP-5 SYNC-8",
        tests=(
            f"{_ORIGINAL}::test_what_became_of_a_later_response_changes_no_copy_of_the_first_answer",
        ),
    ),
    Mutant(
        "acknowledgements never come back on the connection",
        f"{_SYNC}:SyncPlan.signals",
        "return self.mode is not SyncReplyMode.NONE",
        "return False",
        requirement="SYNC-1 SYNC-3",
        tests=(f"{_WORK}::test_the_channels_characteristics_say_what_comes_back_at_once",),
    ),
    Mutant(
        "a response alone is promised although an acknowledgement is due",
        f"{_SYNC}:_check_wish",
        "mode is SyncReplyMode.RESPONSE_ONLY",
        "mode is None",
        requirement="SYNC-4",
        tests=(f"{_MODES}::test_a_response_alone_is_refused_where_an_acknowledgement_is_due",),
    ),
    Mutant(
        "the response never waits for its connection",
        f"{_SYNC}:SyncPlan.response",
        "return self.mode in _WITH_RESPONSE",
        "return False",
        requirement="SYNC-5",
        tests=(f"{_REPLY}::test_the_response_comes_back_with_the_acknowledgement_in_it",),
    ),
    Mutant(
        "the response comes back and its acknowledgement does not",
        "oncewire.wire.answers:acknowledgment_of",
        "Acknowledgment(timestamp=envelope.now, ref_to_message_id=received.header.message_id, from_party=Party(own.ids) if own is not None and own.role is not None else own, actor=actor, signed=bool(references) or _asked(received, actor) is AckRequest.SIGNED, type=_type(actor) if typed else None, references=references)",
        "Acknowledgment(timestamp=envelope.now, ref_to_message_id=received.header.message_id, from_party=Party(own.ids) if own is not None and own.role is not None else own, actor=Actor.NEXT_MSH, signed=bool(references) or _asked(received, actor) is AckRequest.SIGNED, type=_type(actor) if typed else None, references=references)",
        requirement="SYNC-6 SYNC-7",
        tests=(f"{_MODES}::test_both_acknowledgements_that_are_due_are_in_the_response",),
    ),
    Mutant(
        "the wish for a synchronous reply stays out of the header",
        "oncewire.handler.sending.submit:_compose",
        "terms.sync_mode if asks_sync else None",
        "None",
        requirement="SYNC-9",
        tests=(f"{_HEADERS}::test_the_children_of_the_header_stand_in_their_order",),
    ),
    Mutant(
        "a wish that the transport cannot grant is ignored without a word",
        f"{_SYNC}:plan_reply",
        "SyncPlan(SyncReplyMode.NONE, warning=_ignored())",
        "SyncPlan(SyncReplyMode.NONE)",
        requirement="SYNC-10",
        tests=(
            "tests/handler/receiving/test_conform.py::test_over_mail_the_same_message_is_acknowledged_by_itself_with_a_warning",
        ),
    ),
    Mutant(
        "every transport is believed to carry a reply",
        f"{_SYNC}:plan_reply",
        "if not can_answer:\n    return SyncPlan(SyncReplyMode.NONE, warning=_ignored())",
        "pass",
        requirement="TRN-5",
        tests=(
            "tests/handler/receiving/test_conform.py::test_over_mail_the_same_message_is_acknowledged_by_itself_with_a_warning",
        ),
    ),
    Mutant(
        "a synchronous wish that nobody agreed to is granted",
        "oncewire.agreement.rules:_sync",
        "asks and agreed is SyncReplyMode.NONE and (not at_hop)",
        "False and (not at_hop)",
        requirement="SYNC-13",
        tests=(f"{_MODES}::test_a_wish_nobody_agreed_to_is_refused_on_the_connection",),
    ),
    Mutant(
        "a reply may ask for a synchronous reply",
        f"{_SYNC}:_check_wish",
        "message.header.ref_to_message_id is not None and (not replies_may_ask)",
        "message.header.ref_to_message_id is None and False",
        requirement="SYNC-14",
        tests=(f"{_MODES}::test_a_reply_that_asks_for_a_synchronous_reply_is_refused",),
    ),
    Mutant(
        "a synchronous request is repeated although none may be",
        "oncewire.protocol.terms:Terms.resends",
        "self.retries if self.runs_protocol and (not self.never_repeated) else 0",
        "self.retries if self.runs_protocol else 0",
        requirement="SYNC-18",
        tests=("tests/protocol/test_attempts.py", _REPLY),
    ),
    Mutant(
        "an ErrorURI is taken in a synchronous exchange",
        f"{_SYNC}:_check_wish",
        "hop is not None and hop.error_uri is not None",
        "hop is None and message is None",
        requirement="SYNC-19",
        tests=(f"{_MODES}::test_an_error_uri_is_refused_on_the_connection",),
    ),
    Mutant(
        "a hub signs itself as the sender before it",
        "oncewire.handler.route:Route.hop",
        "self.sender_uri",
        "self.receiver_uri",
        requirement="HOP-2",
        tests=(f"{_HUB}::test_every_hop_leaves_its_routing_header_and_nothing_else",),
    ),
    Mutant(
        "a hub that asks to come back later acknowledges at once",
        "oncewire.protocol.hops:hop_duty",
        "HopDuty.UNTIL_FORWARDED",
        "HopDuty.RESPONSIBLE",
        requirement="HOP-4",
        tests=(f"{_HUB}::test_with_transient_errors_the_acknowledgement_means_the_seller_has_it",),
    ),
    Mutant(
        "a hub acknowledges in the name of the To Party",
        "oncewire.wire.answers:_parties",
        "(receiver, sender)",
        "(facts.to_party or receiver, sender)",
        requirement="HOP-11",
        tests=(
            "tests/handler/test_promises_at_work.py::test_a_hub_acknowledges_as_one_end_of_its_hop",
        ),
    ),
    Mutant(
        "an acknowledgement goes into the response of a POST that did not ask for it",
        f"{_ANSWER}:post_or_reply",
        "if plan.signals and source.can_answer:\n    return Answer(200, answer.parcel)",
        "if source.can_answer:\n    return Answer(200, answer.parcel)",
        requirement="TRN-1 TRN-2",
        tests=(
            "tests/handler/receiving/test_signals_on_the_wire.py::test_the_response_to_a_post_is_empty",
        ),
    ),
    Mutant(
        "a request whose connection has gone is given to the application",
        "oncewire.handler.delivering.deliver:hand_over",
        "if is_over(stored):\n    settled += 1\n    continue",
        "if False:\n    settled += 1\n    continue",
        requirement="SYNC-18",
        tests=(
            f"{_REPLY}::test_what_could_not_be_closed_in_time_is_closed_when_it_would_be_given",
        ),
    ),
    Mutant(
        "a refused request is offered again although nobody waits for its response",
        "oncewire.handler.runtime.engine:Engine.still_offered",
        "return not close_if_alone(self.context, tx, stored)",
        "return True",
        requirement="SYNC-18",
        tests=(
            f"{_REPLY}::test_what_the_application_refused_is_not_offered_again_when_its_connection_has_gone",
        ),
    ),
    Mutant(
        "nobody hears that the initiator hung up",
        "oncewire.transport.http.server:ServerConnection.connection_lost",
        "self._request.body.end('the body was cut off')\nself._request.gone.set_result(None)",
        "self._request.body.end('the body was cut off')",
        requirement="SYNC-18",
        tests=(f"{_REPLY}::test_what_was_asked_by_somebody_who_hung_up_is_never_given",),
    ),
    Mutant(
        "messages are handed over before the application is called with them",
        "oncewire.handler.runtime.offers:HandOver._take",
        "engine.hand_over(places, ENDLESS, one_by_one=True)",
        "engine.hand_over(places + 8, ENDLESS, one_by_one=True)",
        requirement="SYNC-18",
        tests=(
            f"{_HAND_OVER}::test_a_message_is_handed_over_when_the_application_is_called_with_it",
        ),
    ),
    Mutant(
        "two messages of a channel are given at once",
        "oncewire.handler.delivering.deliver:hand_over",
        "if channel in busy:\n    passed += 1\n    withheld.add(_key(stored))\n    continue",
        "if False:\n    passed += 1\n    withheld.add(_key(stored))\n    continue",
        requirement="SW-10",
        tests=(f"{_HAND_OVER}::test_one_message_of_a_channel_at_a_time_and_the_others_beside_it",),
    ),
)
