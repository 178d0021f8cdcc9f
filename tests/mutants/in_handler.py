"""Mutants of the handler, its store and its transport that named tests must notice."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_PROMISES = "tests/handler/test_promises_at_work.py"
_EXCHANGE = "tests/handler/test_exchange.py"
_BEST_EFFORT = "tests/handler/receiving/test_best_effort_refused.py"
_CLAIMS = "tests/handler/test_claims.py"
_SIGNALS = "oncewire.handler.receiving.signals"
_ANSWERS = "oncewire.wire.answers"

IN_HANDLER: tuple[Mutant, ...] = (
    Mutant(
        "a hub gives what it passes on an id of its own",
        "oncewire.handler.hub.next_hop:send_onward",
        "Outgoing(message.header.message_id, context.keep_terms(tx, route.terms), context.now(), key, expires_at=message.header.time_to_live)",
        "Outgoing(f'{context.name}-{message.header.message_id}', context.keep_terms(tx, route.terms), context.now(), key, expires_at=message.header.time_to_live)",
        requirement="RM-10",
        tests=(f"{_PROMISES}::test_one_id_names_a_message_on_its_whole_way",),
    ),
    Mutant(
        "any acknowledgement completes what is outstanding",
        f"{_SIGNALS}:settle_references",
        "stored = tx.outgoing(reference)",
        "stored = tx.outgoing(reference) or tx.outgoing('order-1@alpha')\n"
        "if stored is not None and stored.outgoing.attempts == 0:\n"
        "    stored = tx.outgoing('order-1@alpha')",
        requirement="RM-14",
        tests=(f"{_PROMISES}::test_an_acknowledgement_of_something_else_changes_nothing",),
    ),
    Mutant(
        "an acknowledgement means that the application has it",
        "oncewire.handler.receiving.arrive:Arriving._first",
        "deliver, old = (judgement.deliver, 0)",
        "deliver, old = (judgement.deliver, 0)\n"
        "if self.final and (not judgement.held):\n"
        "    stored = replace(stored, incoming=stored.incoming.handed_over(0).confirmed(0))",
        requirement="RM-3 RM-1",
        tests=(f"{_EXCHANGE}::test_a_message_is_delivered_once_under_every_profile",),
    ),
    Mutant(
        "transmit first, save when there is time",
        "oncewire.handler.runtime.engine:Engine.commit",
        "if fellows is None:\n"
        "    context.store.commit()\n"
        "else:\n"
        "    with beside.claimed(context, fellows):\n"
        "        if context.store.pending() or fellows.wants_turn:\n"
        "            context.store.commit()",
        "if not context.state.actions:\n    context.store.commit()",
        requirement="RM-11",
        tests=(f"{_EXCHANGE}::test_nothing_leaves_before_the_commit",),
    ),
    Mutant(
        "ids are remembered by the process alone",
        "oncewire.handler.receiving.arrive:Arriving.take",
        "known = known_as(self.tx, sender, self.agreement, message.header.message_id)",
        "known = known_as(self.tx, sender, self.agreement, message.header.message_id)\n"
        "if known is not None and known.incoming.received_at <= self.context.state.timeline._state.origin:\n"
        "    known = None",
        requirement="DUP-1",
        tests=(f"{_PROMISES}::test_the_id_of_every_reliable_message_outlives_the_process",),
    ),
    Mutant(
        "a copy without a stored response is acknowledged whatever was agreed",
        "oncewire.protocol.receiver:answer_duplicate",
        "if owed and (kept or terms.duplicate_no_response is NoResponse.ACK):\n"
        "    return DuplicateReply.NEW_ACK",
        "if owed:\n    return DuplicateReply.NEW_ACK",
        requirement="DUP-7",
        tests=(f"{_PROMISES}::test_a_copy_for_which_no_response_is_stored",),
    ),
    Mutant(
        "repeats of best effort pass",
        "oncewire.protocol.terms:Terms.repeats_pass",
        "not self.duplicate_elimination and (self.reliable or not self.best_effort_filter)",
        "not self.reliable or not self.duplicate_elimination",
        requirement="DUP-11",
        tests=(f"{_PROMISES}::test_a_repeated_best_effort_message_reaches_the_application_once",),
    ),
    Mutant(
        "a copy gets an acknowledgement of its own",
        "oncewire.protocol.receiver:answer_duplicate",
        "if answered:\n    return DuplicateReply.STORED_ANSWER",
        "if answered and (not owed):\n    return DuplicateReply.STORED_ANSWER",
        requirement="DUP-5 DUP-8",
        tests=(
            f"{_EXCHANGE}::test_many_copies_of_one_message_give_one_delivery_and_equal_answers",
        ),
    ),
    Mutant(
        "a copy is never answered",
        "oncewire.handler.receiving.arrive:Arriving._copy",
        "return self._duplicate(known, owed, plan)",
        "self._duplicate(known, owed, plan)\nself.context.state.actions.clear()\nreturn NOTHING",
        requirement="DUP-10",
        tests=(f"{_EXCHANGE}::test_the_acknowledgement_lost_k_times",),
    ),
    Mutant(
        "a failure notice comes from the To Party",
        f"{_ANSWERS}:delivery_failure_for",
        "envelope.own or facts.to_party",
        "facts.to_party or envelope.own",
        requirement="ERR-6",
        tests=(f"{_PROMISES}::test_a_hub_that_cannot_deliver_tells_the_from_party",),
    ),
    Mutant(
        "an error message has the service of acknowledgements",
        f"{_ANSWERS}:_service",
        "_DRAFT_SIGNALS[kind]",
        "_DRAFT_SIGNALS[MessageKind.ACKNOWLEDGMENT]",
        requirement="ERR-7",
        tests=(f"{_PROMISES}::test_a_hub_that_cannot_deliver_tells_the_from_party",),
    ),
    Mutant(
        "a failure notice is sent once and forgotten",
        f"{_ANSWERS}:delivery_failure_for",
        "replace(_header(facts, facts.last_hop, envelope, MessageKind.ERROR, dialect), from_party=own, to_party=facts.from_party, semantics=DeliverySemantics.BEST_EFFORT if dialect is Dialect.EBMS2 else facts.semantics)",
        "replace(_header(facts, facts.last_hop, envelope, MessageKind.ERROR, dialect), from_party=own, to_party=facts.from_party, semantics=DeliverySemantics.BEST_EFFORT)",
        requirement="ERR-8",
        tests=(f"{_PROMISES}::test_a_hub_that_cannot_deliver_tells_the_from_party",),
    ),
    Mutant(
        "every failure is certain",
        f"{_ANSWERS}:delivery_failure_for",
        "Error('DeliveryFailure', Severity.WARNING if transmitted else Severity.ERROR, '', description)",
        "Error('DeliveryFailure', Severity.ERROR, '', description)",
        requirement="ERR-9",
        tests=(f"{_PROMISES}::test_the_notice_says_whether_the_message_was_ever_transmitted",),
    ),
    Mutant(
        "a stale connection is a failed attempt",
        "oncewire.transport.http.pool:Pool.find",
        "if found.is_open and (not found.has_news()):\n    return found",
        "if found.is_open:\n    return found",
        requirement="RTY-5",
        tests=(
            "tests/transport/test_http_client.py",
            f"{_PROMISES}::test_a_connection_that_went_stale_costs_no_attempt",
        ),
    ),
    Mutant(
        "what is swept is as old as the message, not as its persistDuration",
        "oncewire.handler.runtime.retention:sweep",
        "tx.sweep(now, BATCH)",
        "tx.sweep(now + 60 * MINUTE, BATCH)",
        requirement="STO-7",
        tests=(
            "tests/handler/runtime/test_retain.py::test_a_copy_one_microsecond_before_and_after_the_end",
        ),
    ),
    Mutant(
        "responses are not found by what they answer",
        "oncewire.store.transition.tables:OutgoingTable._index_keys",
        "(ref_to, stored.peer)",
        "(key, stored.peer)",
        requirement="STO-9 DUP-6",
        tests=("tests/store/test_outgoing.py::test_responses_are_found_by_what_they_answer",),
    ),
    Mutant(
        "the time of receipt is not told",
        f"{_SIGNALS}:_status",
        "received_at = found[0].incoming.received_at",
        "received_at = None",
        requirement="OPS-2",
        tests=("tests/handler/receiving/test_conform.py::test_the_status_of_a_message_follows_it",),
    ),
    Mutant(
        "best effort is called delivered",
        "oncewire.protocol.sender:_transmit",
        "to = OutgoingState.OUTSTANDING if terms.reliable else OutgoingState.SENT",
        "to = OutgoingState.OUTSTANDING",
        requirement="OPS-4",
        tests=(
            "tests/handler/test_communities.py::test_best_effort_is_sent_once_and_never_acknowledged",
        ),
    ),
    Mutant(
        "the hops of a message are not journaled",
        "oncewire.handler.perform:perform_effects",
        "context.write(tx, notes, terms_id=outgoing.terms_id, hop=stored.hop or None, peer=stored.peer)",
        "context.write(tx, notes, terms_id=outgoing.terms_id, hop=None, peer=stored.peer)",
        requirement="OPS-3",
        tests=(
            "tests/handler/hub/test_hub.py::test_every_hop_leaves_its_routing_header_and_nothing_else",
        ),
    ),
    Mutant(
        "any partner may acknowledge",
        f"{_SIGNALS}:settle_references",
        "if stored is None or not is_receiver(resolution.agreement, stored):\n"
        "    ignore_stray(context, tx, message, resolution.agreement, reference, stored)\n"
        "else:\n"
        "    _settle(context, tx, message, stored, resolution.agreement, kept)",
        "if stored is None:\n"
        "    ignore_stray(context, tx, message, resolution.agreement, reference, stored)\n"
        "else:\n"
        "    _settle(context, tx, message, stored, resolution.agreement, kept)",
        requirement="RM-14",
        tests=(f"{_CLAIMS}::test_only_the_partner_it_went_to_can_say_that_it_arrived",),
    ),
    Mutant(
        "any partner's status answer settles",
        f"{_SIGNALS}:_learn_status",
        "if stored is None or not is_receiver(resolution.agreement, stored):\n"
        "    ignore_stray(context, tx, message, resolution.agreement, reference, stored)\n"
        "    return",
        "if stored is None:\n"
        "    ignore_stray(context, tx, message, resolution.agreement, reference, stored)\n"
        "    return",
        requirement="RM-14",
        tests=(f"{_CLAIMS}::test_only_the_partner_it_went_to_can_say_that_it_arrived",),
    ),
    Mutant(
        "a retry overtakes its own slow attempt",
        "oncewire.handler.sending.transmit:transmit_due",
        "free = [due_id for due_id in due if due_id not in context.state.in_flight and due_id not in context.state.stuck and (('', due_id) not in elsewhere)]",
        "free = [due_id for due_id in due if due_id not in context.state.stuck and (('', due_id) not in elsewhere)]",
        requirement="RTY-1",
        tests=(f"{_CLAIMS}::test_a_slow_attempt_is_not_overtaken_by_its_own_retry",),
    ),
    Mutant(
        "an expired waiting message is still numbered",
        "oncewire.handler.sending.transmit:_admit_one.bring_in",
        "context.now() < deadline",
        "context.now() > 0",
        requirement="HDR-9",
        tests=(f"{_CLAIMS}::test_a_message_that_expired_while_it_waited_uses_no_number",),
    ),
    Mutant(
        "a garbage reply counts as sent",
        "oncewire.handler.receiving.receive:receive_reply",
        "failed",
        "ended",
        requirement="RTY-6",
        tests=(f"{_CLAIMS}::test_a_reply_that_is_no_message_is_a_failed_attempt",),
    ),
    Mutant(
        "an unsent answer counts as delivered",
        "oncewire.handler.runtime.engine:Engine.answer_left",
        "if not sent or not answer.message_id:\n    return",
        "if not answer.message_id:\n    return",
        requirement="DUP-8",
        tests=(f"{_CLAIMS}::test_an_answer_that_could_not_be_sent_stays_owed",),
    ),
    Mutant(
        "an HTTP refusal counts as certain",
        "oncewire.handler.runtime.handler:Handler._post",
        "Transmission(post.message_id, post.attempt, sent=outcome.kind is OutcomeKind.SENT, certain=outcome.kind is OutcomeKind.REFUSED and outcome.reply is None, reason=outcome.reason, retry_after=outcome.retry_after, address=post.address, transport=post.transport)",
        "Transmission(post.message_id, post.attempt, sent=outcome.kind is OutcomeKind.SENT, certain=outcome.kind is OutcomeKind.REFUSED, reason=outcome.reason, retry_after=outcome.retry_after, address=post.address, transport=post.transport)",
        requirement="ERR-9",
        tests=(f"{_CLAIMS}::test_a_status_that_refuses_one_copy_proves_nothing_of_another",),
    ),
    Mutant(
        "hop numbers are judged by the header's timestamp",
        "oncewire.handler.receiving.arrive:stamp_of",
        "per_hop and hop is not None and (hop.timestamp is not None)",
        "not per_hop and hop is not None and (hop.timestamp is not None)",
        requirement="SEQ-15",
        tests=(f"{_CLAIMS}::test_the_numbers_of_a_hop_are_told_apart_by_the_times_of_the_hop",),
    ),
    Mutant(
        "an attempt stays under way after its commit failed",
        "oncewire.handler.runtime.engine:Engine.commit",
        "state.in_flight.discard",
        "state.in_flight.add",
        requirement="RTY-18",
        tests=(f"{_CLAIMS}::test_an_attempt_whose_commit_failed_was_never_begun",),
    ),
    Mutant(
        "an error about a best-effort message vanishes",
        "oncewire.protocol.sender:_refused_best_effort",
        "if error.severity is Severity.WARNING or outgoing.reason:\n"
        "    return SenderStep(outgoing, channel)",
        "if error.severity is not None:\n    return SenderStep(outgoing, channel)",
        requirement="ERR-2",
        tests=(f"{_BEST_EFFORT}::test_a_refusal_is_a_row_and_the_outcome_stays_sent",),
    ),
    Mutant(
        "every error about a best-effort message is a row and an event",
        "oncewire.protocol.sender:_refused_best_effort",
        "if error.severity is Severity.WARNING or outgoing.reason:\n"
        "    return SenderStep(outgoing, channel)",
        "if error.severity is Severity.WARNING:\n    return SenderStep(outgoing, channel)",
        tests=(f"{_BEST_EFFORT}::test_a_second_error_changes_nothing",),
    ),
    Mutant(
        "nobody hears that a best-effort message was refused",
        "oncewire.handler.runtime.failures:tell_failures",
        "context.state.actions.append(Refused(notices.refusal_of(stored.outgoing)))\ncontinue",
        "continue",
        requirement="ERR-2",
        tests=(f"{_BEST_EFFORT}::test_no_notice_is_owed_and_its_application_is_told_once",),
    ),
)
