"""Bugs in the fine print: small conditions that a tired hand drops, each seen by one test."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_NAMING = "tests/agreement/test_naming.py"
_RULES = "tests/agreement/test_rules.py"
_WAYS = "tests/entry/delivery/test_ways.py"
_ACCEPTED_UNDER = "tests/handler/receiving/test_accepted_under.py"
_CLAIMS = "tests/handler/test_claims.py"
_CLOCK = "tests/handler/runtime/test_clock.py"
_HUB = "tests/handler/hub/test_hub.py"
_MIDWAY = "tests/handler/hub/test_midway.py"
_NOTICES = "tests/handler/delivering/test_notices.py"
_ONWARD = "tests/handler/hub/test_onward.py"
_OPERATE = "tests/handler/runtime/test_operate.py"
_ORIGINAL = "tests/handler/receiving/test_original.py"
_PAUSE = "tests/handler/test_pause.py"
_RELAY = "tests/handler/hub/test_relay.py"
_RESTART = "tests/handler/test_restart.py"
_RETAIN = "tests/handler/runtime/test_retain.py"
_SIGNED = "tests/handler/test_signed.py"
_TRIALS = "tests/handler/test_trials.py"
_STRANDED = "tests/handler/hub/test_stranded.py"
_ASK = "tests/entry/cli/test_ask.py"
_TAKEN_BACK = "tests/handler/test_taken_back.py"
_TROUBLE = "tests/handler/test_trouble.py"
_UNDONE = "tests/handler/test_undone_tick.py"
_UNPROVEN = "tests/handler/test_unproven.py"
_WINDOWS_AT_WORK = "tests/handler/test_windows_at_work.py"
_BROKEN_MESSAGES = "tests/journal/test_broken_messages.py"
_STORE_OUTGOING = "tests/store/test_outgoing.py"
_SPOOL = "tests/store/test_spool.py"
_BUDGET = "tests/transport/test_budget.py"
_HTTP_SERVER = "tests/transport/test_http_server.py"
_LIMITS = "tests/wire/test_limits.py"

FINE_PRINT_SENDING: tuple[Mutant, ...] = (
    Mutant(
        "what was let go on in a commit that failed waits for ever",
        "oncewire.handler.runtime.engine:Engine._put_back",
        "state.timeline.undo()\nrecheck_waiting(context)",
        "state.timeline.undo()\nstate.troubled |= dict.fromkeys(state.trouble_changed, 0)",
        tests=(f"{_TROUBLE}::test_what_goes_on_in_a_commit_that_fails_goes_on_with_the_next_one",),
    ),
    Mutant(
        "what a tick had taken from memory goes with the store that was gone meanwhile",
        "oncewire.handler.runtime.engine:Engine.tick",
        "self._put_back()",
        "pass",
        tests=(f"{_UNDONE}::test_answers_are_posted_though_the_store_was_gone_meanwhile",),
    ),
    Mutant(
        "what was set aside in a commit that failed has no incident, and waits for ever",
        "oncewire.handler.sending.transmit:set_aside",
        "context.state.trouble_changed.append(message_id)",
        "pass",
        tests=(f"{_TROUBLE}::test_what_is_set_aside_in_a_commit_that_fails_is_set_aside_again",),
    ),
    Mutant(
        "a channel that the operator paused has no incident",
        "oncewire.handler.runtime.operate:pause_channel",
        "open_incident(context, tx, Raise(said, channel=key))",
        "pass",
        requirement="OPS-1",
        tests=(f"{_OPERATE}::test_a_channel_that_was_paused_has_an_incident_until_it_is_resumed",),
    ),
    Mutant(
        "what waited while a channel was paused waits on",
        "oncewire.handler.runtime.operate:resume_channel",
        "context.state.admissions[key] = None",
        "pass",
        requirement="RTY-13",
        tests=(f"{_OPERATE}::test_what_waited_for_a_paused_channel_is_sent_when_it_is_resumed",),
    ),
    Mutant(
        "a pause that is lifted stays for what an earlier end of it put off",
        "oncewire.handler.runtime.operate:_lift_pause",
        "context.now() < timer <= receiver.paused_until",
        "timer == receiver.paused_until",
        requirement="RTY-8",
        tests=(
            f"{_PAUSE}::test_the_end_of_two_pauses_puts_every_timer_of_a_suspended_channel_back",
        ),
    ),
    Mutant(
        "two words to resume send a message twice",
        "oncewire.handler.runtime.operate:_start_again",
        "in_flight and step.outgoing.state is OutgoingState.OUTSTANDING",
        "False",
        requirement="RTY-1",
        tests=(f"{_OPERATE}::test_what_is_under_way_is_not_sent_once_more_for_it",),
    ),
    Mutant(
        "a pause that is lifted resends what goes to others",
        "oncewire.handler.runtime.operate:_lift_pause",
        "behind = [kept for kept in map(tx.outgoing, due) if kept is not None and kept.peer == peer]",
        "behind = [kept for kept in map(tx.outgoing, due) if kept is not None]",
        requirement="RTY-8",
        tests=(f"{_PAUSE}::test_a_pause_that_is_lifted_sends_nothing_to_anybody_else",),
    ),
    Mutant(
        "the notice of a removed message was never there",
        "oncewire.handler.delivering.notices:find_owed",
        "if mark and any((gone.sender is None for gone in tx.removed(message_id))):\n"
        "    return None",
        "if False:\n    return None",
        tests=(f"{_RETAIN}::test_the_notice_of_a_removed_message_was_taken",),
    ),
    Mutant(
        "a failure that was settled by hand is told all the same",
        "oncewire.handler.runtime.offers:Telling._tell.turn",
        "(yield (await self._loop.do('look', lambda: engine.owes(notice_id))))",
        "(yield True)",
        tests=(f"{_NOTICES}::test_what_was_settled_by_hand_meanwhile_is_not_told",),
    ),
    Mutant(
        "a hub that has a message is taken for the To Party",
        "oncewire.handler.receiving.signals:_learn_status",
        "ack_arrived(stored.outgoing, channel, terms, ack_id=ack_id, by='status', proof=proof)",
        "ack_arrived(stored.outgoing, channel, terms, ack_id=ack_id, by='status')",
        requirement="HOP-9",
        tests=(f"{_TAKEN_BACK}::test_a_hub_that_said_it_has_the_message_may_give_it_back",),
    ),
    Mutant(
        "a DeliveryFailure behind another error loses its name",
        "oncewire.handler.receiving.reports:_told_together",
        "lead = next((error for error in fatal if error.code == 'DeliveryFailure'), fatal[0])",
        "lead = fatal[0]",
        requirement="HOP-9",
        tests=(
            f"{_TAKEN_BACK}::test_a_hubs_acknowledgement_that_its_report_overtook_delivers_nothing",
        ),
    ),
    Mutant(
        "a report names the agreement that leads to its hub today",
        "oncewire.handler.receiving.agreement_match:_completed",
        "ours = about.relayed_from is None",
        "ours = False",
        requirement="ERR-5",
        tests=(
            f"{_TAKEN_BACK}::test_a_hubs_report_is_heard_although_only_another_agreement_leads_there",
        ),
    ),
    Mutant(
        "an application is given trials",
        "oncewire.handler.receiving.reports:is_for_us",
        "return kind is MessageKind.ERROR or is_trial(message_id)",
        "return kind is MessageKind.ERROR",
        tests=(f"{_TRIALS}::test_a_trial_is_delivered_and_reaches_no_application_and_no_count",),
    ),
    Mutant(
        "business hides behind a trial's service",
        "oncewire.message.envelope:is_named_rightly",
        "return is_trial(message_id) is (service == TRIAL_SERVICE)",
        "return is_trial(message_id) or service != TRIAL_SERVICE",
        tests=(f"{_TRIALS}::test_its_receiver_takes_none_that_is_one_by_half",),
    ),
    Mutant(
        "a notice is judged by whatever leads to its hub today",
        "oncewire.handler.receiving.reports:take_it",
        "agreement = context.agreement_kept(tx, stored.agreement_id)",
        "agreement = None",
        requirement="ERR-5",
        tests=(
            f"{_STRANDED}::test_a_notice_is_heard_although_only_another_agreement_leads_to_the_hub",
        ),
    ),
    Mutant(
        "a refused response settles what it refers to",
        "oncewire.handler.receiving.receive:_settle_refused",
        "header = replace(message.header, ref_to_message_id=None)",
        "header = message.header",
        tests=(
            f"{_ACCEPTED_UNDER}::test_an_acknowledgement_counts_on_a_response_that_comes_too_late",
        ),
    ),
    Mutant(
        "some of the digests prove a receipt",
        "oncewire.wire.security.references:check_acknowledged",
        "problem = f'the acknowledgment says nothing about {what}'",
        "continue",
        requirement="ACK-17",
        tests=(f"{_SIGNED}::test_a_signed_acknowledgement_of_other_digests_settles_nothing",),
    ),
    Mutant(
        "a hub sends what it reported as failed",
        "oncewire.handler.runtime.operate:check_resumable",
        "if stored.relayed_from is not None and stored.facts.kind is MessageKind.NORMAL:\n"
        "    raise NotAllowed(f'the failure of {message_id} was reported to {stored.relayed_from}', remedy='its From Party decides whether to send it again')",
        "if False:\n"
        "    raise NotAllowed(f'the failure of {message_id} was reported to {stored.relayed_from}', remedy='its From Party decides whether to send it again')",
        requirement="HOP-9",
        tests=(
            f"{_OPERATE}::test_what_a_hub_reported_as_failed_it_does_not_send_behind_its_senders_back",
        ),
    ),
    Mutant(
        "what was delivered may be resumed",
        "oncewire.handler.runtime.operate:check_resumable",
        "if state is OutgoingState.DELIVERED and (not stands):\n"
        "    raise NotAllowed(f'message {message_id} was delivered: its receiver acknowledged it', remedy=f'a receiver that has it drops a copy under the same id; `oncewire ask {quote(message_id)}` asks whether it still has it. If it has lost it since, as when an older backup was restored there, or is to process the document once more, send the document as a new message')",
        "if False:\n"
        "    raise NotAllowed(f'message {message_id} was delivered: its receiver acknowledged it', remedy=f'a receiver that has it drops a copy under the same id; `oncewire ask {quote(message_id)}` asks whether it still has it. If it has lost it since, as when an older backup was restored there, or is to process the document once more, send the document as a new message')",
        tests=(f"{_OPERATE}::test_what_was_delivered_is_not_sent_again",),
    ),
    Mutant(
        "a hub that sent a message on knows that it arrived",
        "oncewire.handler.receiving.signals:_learn_status",
        "response.status not in (MessageStatus.RECEIVED, MessageStatus.PROCESSED)",
        "response.status is MessageStatus.NOT_RECOGNIZED",
        requirement="OPS-2",
        tests=(f"{_TAKEN_BACK}::test_a_hub_that_has_sent_it_on_does_not_know_that_it_arrived",),
    ),
    Mutant(
        "what a receiver says of an earlier message of the id settles the refused one",
        "oncewire.handler.receiving.signals:_learn_status",
        "if is_id_taken(stored.outgoing.reason):\n"
        "    problem = 'it is about the earlier message of this id'",
        "if False:\n    problem = 'it is about the earlier message of this id'",
        requirement="OPS-2",
        tests=(
            f"{_ASK}::test_what_was_refused_for_its_id_points_to_the_question_and_stays_refused",
        ),
    ),
    Mutant(
        "what a copy of the request brought again counts for nothing",
        "oncewire.protocol.states:Outgoing.copies",
        "self.attempts - self.attempts_lost + self.repeats",
        "self.attempts - self.attempts_lost",
        requirement="ERR-9",
        tests=("tests/handler/receiving/test_original.py",),
    ),
    Mutant(
        "a copy that was certainly lost may have arrived",
        "oncewire.handler.receiving.signals:_is_passing",
        "outgoing.copies",
        "outgoing.attempts",
        tests=(f"{_CLAIMS}::test_a_fault_ends_a_message_only_where_it_can_be_believed",),
    ),
    Mutant(
        "what not even a timer could be set for is stuck for ever",
        "oncewire.handler.sending.transmit:look_again",
        "try:\n"
        "    with context.transition() as tx:\n"
        "        stored = tx.outgoing(message_id)\n"
        "except StoreDamaged:\n"
        "    context.state.troubled[message_id] = now + LOOK_AGAIN\n"
        "    continue\n"
        "context.state.stuck.discard(message_id)",
        "try:\n"
        "    with context.transition() as tx:\n"
        "        stored = tx.outgoing(message_id)\n"
        "except StoreDamaged:\n"
        "    context.state.troubled[message_id] = now + LOOK_AGAIN\n"
        "    continue",
        tests=(f"{_TROUBLE}::test_a_message_without_its_terms_is_passed_over",),
    ),
    Mutant(
        "a reply that was damaged is believed",
        "oncewire.handler.receiving.inbound:heard",
        "if not is_intact(reply):\n"
        "    raise ReadFault((MimeProblem('the reply was damaged on its way'),))",
        "if reply is None:\n"
        "    raise ReadFault((MimeProblem('the reply was damaged on its way'),))",
        tests=(f"{_CLAIMS}::test_a_reply_that_was_damaged_on_its_way_is_a_failed_attempt",),
    ),
    Mutant(
        "acknowledgements that wait stay where they were when the time moves",
        "oncewire.handler.context:ProcessState.shift",
        "(due + by, sender, message_id)",
        "(due, sender, message_id)",
        tests=(f"{_CLOCK}::test_whatever_is_waited_for_moves_with_an_accepted_time",),
    ),
    Mutant(
        "looks at messages in trouble stay where they were when the time moves",
        "oncewire.handler.context:ProcessState.shift",
        "self.troubled = {subject: until and until + by for subject, until in self.troubled.items()}",
        "pass",
        tests=(f"{_CLOCK}::test_whatever_is_waited_for_moves_with_an_accepted_time",),
    ),
    Mutant(
        "the look at gaps stays where it was when the time moves",
        "oncewire.handler.context:ProcessState.shift",
        "self.gaps_due_at += by",
        "pass",
        tests=(f"{_CLOCK}::test_whatever_is_waited_for_moves_with_an_accepted_time",),
    ),
    Mutant(
        "the sweep stays where it was when the time moves",
        "oncewire.handler.context:ProcessState.shift",
        "self.sweep_due_at += by",
        "pass",
        tests=(f"{_CLOCK}::test_whatever_is_waited_for_moves_with_an_accepted_time",),
    ),
    Mutant(
        "counts of refusals stay where they were when the time moves",
        "oncewire.handler.context:ProcessState.shift",
        "self.ticked_at += by\nself.refusals.shift(by)",
        "self.ticked_at += by",
        tests=(f"{_CLOCK}::test_whatever_is_waited_for_moves_with_an_accepted_time",),
    ),
    Mutant(
        "nobody wakes to write down what was refused",
        "oncewire.handler.runtime.retention:next_wake",
        "(context.state.refusals.due_at, context.state.contacts.due_at)",
        "(context.state.contacts.due_at,)",
        tests=(f"{_CLOCK}::test_whatever_is_waited_for_moves_with_an_accepted_time",),
    ),
    Mutant(
        "the rest of the answers waits for something else to happen",
        "oncewire.handler.runtime.retention:next_wake",
        "if context.state.timeline.restless or context.state.repost_after is not None:\n    return now",
        "if context.state.timeline.restless:\n    return now",
        requirement="STO-3",
        tests=(f"{_RESTART}::test_answers_that_are_owed_are_posted_a_number_at_a_time",),
    ),
)

FINE_PRINT_RECEIVING: tuple[Mutant, ...] = (
    Mutant(
        "a refused message counts as one that arrived whole",
        "oncewire.handler.receiving.agreement_match:is_known",
        "return stored.incoming.state is not IncomingState.REFUSED",
        "return True",
        tests=(
            f"{_ACCEPTED_UNDER}::test_a_damaged_copy_of_what_was_refused_is_answered_like_any_other",
        ),
    ),
    Mutant(
        "anybody hears what became of a removed message",
        "oncewire.handler.receiving.signals:_status",
        "gone.sender in partner",
        "gone.sender is not None",
        requirement="OPS-2",
        tests=(f"{_RETAIN}::test_nobody_else_hears_what_became_of_a_message",),
    ),
    Mutant(
        "a message may refer to what another partner was sent",
        "oncewire.handler.receiving.agreement_match:check_reference",
        "if sent is not None and is_receiver(agreement, sent):\n    return",
        "if sent is not None:\n    return",
        tests=(f"{_CLAIMS}::test_a_reference_to_what_another_partner_was_sent_is_unknown",),
    ),
    Mutant(
        "a request is closed while the application has it",
        "oncewire.handler.sending.respond:overdue",
        "if request.stored.incoming.state is not IncomingState.HANDED_OVER:\n"
        "    _close(context, tx, request.stored, TIMEOUT_MESSAGE)",
        "_close(context, tx, request.stored, TIMEOUT_MESSAGE)",
        requirement="SYNC-18",
        tests=(
            f"{_ORIGINAL}::test_a_request_that_the_application_has_is_not_taken_from_it_when_time_is_up",
        ),
    ),
    Mutant(
        "a reply stays under way after its commit failed",
        "oncewire.handler.runtime.engine:Engine.commit",
        "if isinstance(action, PostReply):\n"
        "    post = action.post\n"
        "elif isinstance(action, Relay):\n"
        "    post = action.instead",
        "if isinstance(action, Relay):\n    post = action.instead",
        tests=(f"{_ORIGINAL}::test_a_reply_whose_commit_failed_is_not_under_way",),
    ),
    Mutant(
        "anybody hears what became of a message",
        "oncewire.handler.receiving.signals:_status",
        "found = [stored for stored in tx.incoming_by_id(request.ref_to_message_id) if stored.facts.from_party in partner or stored.peer == peer_label(agreement)]",
        "found = [stored for stored in tx.incoming_by_id(request.ref_to_message_id)]",
        requirement="OPS-2",
        tests=(f"{_RETAIN}::test_nobody_else_hears_what_became_of_a_message",),
    ),
    Mutant(
        "an error about other content is the answer that is owed",
        "oncewire.handler.receiving.arrive:Arriving._refused",
        "stored = replace(stored, answer=None)",
        "pass",
        tests=(f"{_CLAIMS}::test_an_error_about_other_content_is_not_the_answer_that_is_owed",),
    ),
    Mutant(
        "a refused number lets nothing go that waited for it",
        "oncewire.handler.receiving.arrive:Arriving._refused",
        "if judgement.channel is not None:\n    release(context, tx, judgement.channel.key, judgement.deliver)",
        "pass",
        requirement="SW-10",
        tests=(f"{_WINDOWS_AT_WORK}::test_a_refused_number_lets_go_what_waited_for_it",),
    ),
    Mutant(
        "what is held for us goes on when its agreement is gone",
        "oncewire.handler.context:HandlerContext.is_ours",
        "return kept is not None and to_party in map(str, kept.own.party.ids)",
        "return False",
        requirement="RM-17",
        tests=(
            f"{_ACCEPTED_UNDER}::test_what_is_held_for_us_is_ours_whatever_became_of_the_agreement",
        ),
    ),
    Mutant(
        "who gave an acknowledgement beside a signature is believed",
        "oncewire.wire.codec:_backed",
        "return tuple((structs.replace(ack, from_party=None) if ack.actor is Actor.NEXT_MSH else ack for ack in message.acknowledgments if ack.actor is not Actor.NEXT_MSH or ack.ref_to_message_id == meant))",
        "return tuple((ack for ack in message.acknowledgments if ack.actor is not Actor.NEXT_MSH or ack.ref_to_message_id == meant))",
        requirement="ACK-18",
        tests=(
            f"{_UNPROVEN}::test_an_acknowledgement_beside_a_signature_is_its_signers_whatever_name_it_gives",
        ),
    ),
    Mutant(
        "nobody wakes for an acknowledgement that found nothing to ride on",
        "oncewire.handler.runtime.retention:next_wake",
        "if context.state.acks_waiting:\n    looks = min(looks, context.state.acks_waiting[0][0])",
        "pass",
        tests=(f"{_CLOCK}::test_whatever_is_waited_for_moves_with_an_accepted_time",),
    ),
    Mutant(
        "what is sent to somebody else answers the request",
        "oncewire.handler.sending.respond:Request.is_answered_by",
        "return peer_label(agreement_called(self.context, response.cpa_id)) == self.stored.peer",
        "return True",
        tests=(f"{_ORIGINAL}::test_what_is_sent_to_somebody_else_answers_no_request",),
    ),
)

FINE_PRINT_AT_HUBS: tuple[Mutant, ...] = (
    Mutant(
        "a hub's response stays under way after its commit failed",
        "oncewire.handler.runtime.engine:Engine.commit",
        "if isinstance(action, Relay):\n    post = action.instead",
        "pass",
        tests=(f"{_RELAY}::test_a_response_that_a_hub_could_not_store_is_not_under_way",),
    ),
    Mutant(
        "a hub calls certain what may have arrived",
        "oncewire.handler.hub.passing:Upstream.given_up",
        "severity = Severity.ERROR if certain else Severity.WARNING",
        "severity = Severity.ERROR",
        requirement="ERR-9",
        tests=(f"{_RELAY}::test_what_has_failed_already_is_not_acknowledged",),
    ),
    Mutant(
        "a next hop that says nothing has failed",
        "oncewire.handler.receiving.receive:receive_onward",
        "if ended.sent:\n    nothing_more(context, tx, post.message_id)\n    return",
        "pass",
        requirement="HOP-7",
        tests=(f"{_RELAY}::test_a_next_hop_that_takes_it_and_says_nothing_is_no_failure",),
    ),
    Mutant(
        "a hub that heard nothing says that all is well",
        "oncewire.handler.hub.passing:relay",
        "return _together(context, parcels) if said else Answer(504)",
        "return _together(context, parcels)",
        requirement="SYNC-17",
        tests=(f"{_RELAY}::test_one_that_only_passes_on_has_no_word_of_its_own_when_time_is_up",),
    ),
    Mutant(
        "the word to come back later is the answer that is owed",
        "oncewire.handler.hub.passing:HubArrival._say",
        "kept = answer if answer.kind is MessageKind.ACKNOWLEDGMENT else None",
        "kept = answer",
        requirement="HOP-4",
        tests=(f"{_HUB}::test_the_word_to_come_back_later_is_not_the_answer_that_is_owed",),
    ),
    Mutant(
        "a copy goes on beside what is still under way",
        "oncewire.handler.hub.passing:pass_again",
        "if copy.outgoing.state is not OutgoingState.DELIVERED:\n    return False",
        "if False:\n    return False",
        tests=(f"{_HUB}::test_a_copy_of_what_is_still_under_way_is_not_sent_on_beside_it",),
    ),
    Mutant(
        "a stranded notice that is given up is told in another",
        "oncewire.handler.hub.next_hop:abandon_stranded",
        "if owes_failure_notice(stored.facts.kind, reliable=True):\n"
        "    notice_id = tell_from_party(context, tx, message, transmitted=False, reason=reason)\n"
        "    notes.append(Note(Notified('Error'), message_id, notice_id))",
        "if True:\n"
        "    notice_id = tell_from_party(context, tx, message, transmitted=False, reason=reason)\n"
        "    notes.append(Note(Notified('Error'), message_id, notice_id))",
        requirement="ERR-8",
        tests=(f"{_STRANDED}::test_of_a_notice_that_is_given_up_nobody_is_told",),
    ),
    Mutant(
        "a neighbour is not told of what it sent on",
        "oncewire.handler.receiving.signals:_status",
        "found = [stored for stored in tx.incoming_by_id(request.ref_to_message_id) if stored.facts.from_party in partner or stored.peer == peer_label(agreement)]",
        "found = [stored for stored in tx.incoming_by_id(request.ref_to_message_id) if stored.facts.from_party in partner]",
        requirement="OPS-2",
        tests=(f"{_HUB}::test_a_neighbour_is_told_what_became_of_what_it_sent_on",),
    ),
    Mutant(
        "an answer goes back whoever brought it",
        "oncewire.handler.hub.passing:pass_back",
        "if ahead is None or before is None:\n"
        "    raise ValueNotRecognized(f'no agreement leads to {(asked.peer if ahead else asked.facts.to_party)} any more', location='//MessageData/RefToMessageId', remedy='put back the agreement that the message came or went under')\n"
        "check_connection(context, ahead, source)",
        "if ahead is None or before is None:\n"
        "    raise ValueNotRecognized(f'no agreement leads to {(asked.peer if ahead else asked.facts.to_party)} any more', location='//MessageData/RefToMessageId', remedy='put back the agreement that the message came or went under')",
        requirement="HOP-5",
        tests=(f"{_HUB}::test_an_answer_goes_back_only_if_it_came_over_the_agreed_connection",),
    ),
    Mutant(
        "a hub lets the next message pass those that wait",
        "oncewire.handler.hub.next_hop:send_onward",
        "if channel.places(route.terms) < 1 or tx.waiting(key, 1):\n"
        "    draft, files = relayed_draft(stored.parcel)\n"
        "    tx.add_outgoing(copy, parcel=None, draft=draft, files=files)\n"
        "    return",
        "if channel.places(route.terms) < 1:\n"
        "    draft, files = relayed_draft(stored.parcel)\n"
        "    tx.add_outgoing(copy, parcel=None, draft=draft, files=files)\n"
        "    return",
        requirement="HOP-1",
        tests=(f"{_ONWARD}::test_what_waits_at_a_hub_goes_before_what_comes_in_the_same_turn",),
    ),
    Mutant(
        "a hub's copy that waited has the time of its entry alone",
        "oncewire.handler.sending.transmit:enter",
        "channel, stamp = channel.stamp(now)",
        "pass",
        tests=(f"{_ONWARD}::test_what_waits_at_a_hub_goes_before_what_comes_in_the_same_turn",),
    ),
    Mutant(
        "a copy waits for a next hop that has given up",
        "oncewire.handler.hub.passing:HubArrival.waits_again",
        "copy.outgoing.state in _GIVEN_UP",
        "copy.outgoing.state is OutgoingState.NOT_DELIVERED",
        requirement="HOP-9",
        tests=(f"{_RELAY}::test_a_copy_of_what_has_failed_already_waits_for_nobody",),
    ),
    Mutant(
        "a hub's notice is not later than what its stream had before",
        "oncewire.handler.hub.next_hop:tell_from_party",
        "tx.save_sending_channel(channel)",
        "pass",
        requirement="HOP-9 SEQ-8",
        tests=(f"{_ONWARD}::test_a_hubs_notices_follow_each_other_though_its_clock_was_set_back",),
    ),
    Mutant(
        "what was refused is taken once that is long ago",
        "oncewire.handler.receiving.arrive:Arriving.take",
        "check_not_refused(self.tx, sender, self.agreement, arrival.message_id)",
        "pass",
        requirement="RM-2",
        tests=(f"{_RETAIN}::test_what_was_refused_is_not_taken_later_under_another_agreement",),
    ),
    Mutant(
        "a hub's notice is sent once where replies are synchronous",
        "oncewire.handler.hub.next_hop:tell_from_party",
        "structs.replace(route.terms, sync_mode=SyncReplyMode.NONE, ack_requested=asked)",
        "structs.replace(route.terms, ack_requested=asked)",
        requirement="SYNC-18",
        tests=(f"{_MIDWAY}::test_a_hubs_notice_is_repeated_although_replies_are_synchronous",),
    ),
    Mutant(
        "what lies behind a neighbour needs no certificate of its",
        "oncewire.handler.receiving.receive:_take_for_others",
        '"A hub\'s part: pass it on, or store it and take over the duty to deliver."\n'
        "check_connection(context, resolution.agreement, source, resolution.accepted_at)",
        '"A hub\'s part: pass it on, or store it and take over the duty to deliver."',
        requirement="HOP-5",
        tests=(
            f"{_HUB}::test_a_neighbour_that_is_known_by_its_certificate_shows_it_for_what_lies_behind",
        ),
    ),
)

FINE_PRINT_OUTSIDE: tuple[Mutant, ...] = (
    Mutant(
        "best effort is sent where duplicates are always stopped",
        "oncewire.agreement.rules:takes_best_effort",
        "terms.numbered or stated or rules.ack is Requested.ALWAYS or (rules.duplicate_elimination is Requested.ALWAYS)",
        "terms.numbered or stated or rules.ack is Requested.ALWAYS",
        tests=(
            f"{_RULES}::test_best_effort_contradicts_an_agreement_that_always_eliminates_duplicates",
        ),
    ),
    Mutant(
        "a handler nobody heard of is called as it wrote itself",
        "oncewire.agreement.agreement:sender_of",
        "Party(tuple(sorted(party.ids, key=str)), party.role)",
        "Party(party.ids, party.role)",
        requirement="DUP-1",
        tests=(f"{_NAMING}::test_a_sender_has_one_name_whatever_the_order_of_its_ids",),
    ),
    Mutant(
        "the hub of an agreement is called as it wrote itself",
        "oncewire.agreement.agreement:sender_of",
        "if via is not None and via.party is not None and via.party.shares_id_with(party):\n"
        "    return Party(via.party.ids, party.role)",
        "pass",
        requirement="DUP-1",
        tests=(f"{_NAMING}::test_a_sender_has_one_name_whatever_the_order_of_its_ids",),
    ),
    Mutant(
        "what was read before the timers moved is taken for stored",
        "oncewire.store.transition.transaction:WorkTransaction.shift_timers",
        "self._work.step_over().shift_timers(by)\nself._work.clear_rows()",
        "self._work.step_over().shift_timers(by)",
        tests=(f"{_STORE_OUTGOING}::test_what_is_saved_after_the_timers_moved_is_kept_as_it_is",),
    ),
    Mutant(
        "the connection that came last is thrown out first",
        "oncewire.transport.listener:Listener._throw_out",
        "min(waiting, key=lambda item: item[:2])",
        "max(waiting, key=lambda item: item[:2])",
        tests=(f"{_HTTP_SERVER}::test_when_full_the_longest_idle_makes_room",),
    ),
    Mutant(
        "who has just come is thrown out again",
        "oncewire.transport.listener:Listener._throw_out",
        "not guest.busy and guest.transport is not None and (guest.since < old)",
        "not guest.busy and guest.transport is not None",
        tests=(f"{_HTTP_SERVER}::test_a_connection_that_has_just_come_keeps_its_place",),
    ),
    Mutant(
        "a file has its name before it is on the disk",
        "oncewire.entry.files:placed",
        "file.flush()\nos.fsync(handle)",
        "file.flush()",
        tests=(f"{_WAYS}::test_a_file_has_its_name_when_its_content_is_on_the_disk",),
    ),
    Mutant(
        "a file's name is not on the disk",
        "oncewire.entry.files:placed",
        "try:\n"
        "    with os.fdopen(handle, 'wb') as file:\n"
        "        fcntl.flock(handle, fcntl.LOCK_EX)\n"
        "        if mode is not None:\n"
        "            os.fchmod(handle, mode)\n"
        "        yield file\n"
        "        file.flush()\n"
        "        os.fsync(handle)\n"
        "        os.replace(half, path.name, src_dir_fd=folder, dst_dir_fd=folder)\n"
        "except BaseException:\n"
        "    with contextlib.suppress(OSError):\n"
        "        os.unlink(half, dir_fd=folder)\n"
        "    raise\n"
        "os.fsync(folder)",
        "try:\n"
        "    with os.fdopen(handle, 'wb') as file:\n"
        "        fcntl.flock(handle, fcntl.LOCK_EX)\n"
        "        if mode is not None:\n"
        "            os.fchmod(handle, mode)\n"
        "        yield file\n"
        "        file.flush()\n"
        "        os.fsync(handle)\n"
        "        os.replace(half, path.name, src_dir_fd=folder, dst_dir_fd=folder)\n"
        "except BaseException:\n"
        "    with contextlib.suppress(OSError):\n"
        "        os.unlink(half, dir_fd=folder)\n"
        "    raise\n"
        "pass",
        tests=(f"{_WAYS}::test_a_file_has_its_name_when_its_content_is_on_the_disk",),
    ),
    Mutant(
        "a file that cannot be named stays half",
        "oncewire.entry.files:placed",
        "with contextlib.suppress(OSError):\n    os.unlink(half, dir_fd=folder)",
        "with contextlib.suppress(OSError):\n    pass",
        tests=(f"{_WAYS}::test_a_file_that_cannot_have_its_name_leaves_nothing",),
    ),
    Mutant(
        "a file is written through a link",
        "oncewire.entry.files:placed",
        "os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW",
        "os.O_WRONLY | os.O_CREAT",
        tests=(f"{_WAYS}::test_nothing_is_written_through_a_link_that_others_put_there",),
    ),
    Mutant(
        "a file that somebody still writes is removed",
        "oncewire.entry.files:_is_left",
        "if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():\n"
        "    return False\n"
        "fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():\n    return False",
        tests=(f"{_WAYS}::test_what_a_killed_process_had_begun_goes_when_it_is_put_again",),
    ),
    Mutant(
        "a backup is made where a link leads",
        "oncewire.entry.running.backup:_begun",
        "if half.is_symlink():\n    half.unlink()",
        "pass",
        tests=(
            (
                "tests/entry/running/test_backup.py::"
                "test_a_backup_is_not_made_where_somebody_elses_link_leads"
            ),
        ),
    ),
    Mutant(
        "two senders with one id write one file",
        "oncewire.entry.delivery.directory:name_of",
        "key = f'{message.sender}\\x00{message.message_id}'",
        "key = message.message_id",
        requirement="DUP-1",
        tests=(f"{_WAYS}::test_two_senders_may_use_one_message_id",),
    ),
    Mutant(
        "two senders with one id are one event",
        "oncewire.entry.delivery.webhook:event_id",
        "f'{sender}\\x00{message_id}'.encode",
        "message_id.encode",
        requirement="DUP-1",
        tests=(f"{_WAYS}::test_two_senders_may_use_one_message_id",),
    ),
    Mutant(
        "a redirect takes the document",
        "oncewire.entry.delivery.webhook:SignedPosts.post",
        "200 <= status < 300",
        "200 <= status < 400",
        tests=(f"{_WAYS}::test_only_2xx_takes_an_event",),
    ),
    Mutant(
        "the document goes wherever the webhook points",
        "oncewire.entry.delivery.webhook:SignedPosts.post",
        "self._open().post(self._url, data=body.sent() if gaps else b''.join(body.pieces()), headers=headers, allow_redirects=False, timeout=aiohttp.ClientTimeout(total=self._timeout + body.size / SLOWEST))",
        "self._open().post(self._url, data=body.sent() if gaps else b''.join(body.pieces()), headers=headers, allow_redirects=True, timeout=aiohttp.ClientTimeout(total=self._timeout + body.size / SLOWEST))",
        tests=(f"{_WAYS}::test_only_2xx_takes_an_event",),
    ),
    Mutant(
        "a second failure is the event of the first",
        "oncewire.entry.delivery.webhook:failure_of",
        "notice.notice_id",
        "notice.message_id",
        tests=(f"{_WAYS}::test_each_failure_of_a_message_is_an_event_of_its_own",),
    ),
    Mutant(
        "parts within parts are not counted",
        "oncewire.wire.reader:MultipartReader._start_part",
        "MultipartReader(headers.params.get('boundary', ''), self._sink, self._limits, depth=self._depth + 1, work=self.work, begin=self._part_begin if self._placed and plain else None)",
        "MultipartReader(headers.params.get('boundary', ''), self._sink, self._limits, depth=self._depth + 1, begin=self._part_begin if self._placed and plain else None)",
        tests=(f"{_LIMITS}::test_parts_within_parts_count_like_all_others",),
    ),
    Mutant(
        "a header line of a part may never end",
        "oncewire.wire.reader:MultipartReader._read_headers",
        "self._line_bytes + len(buffer) > self._limits.part_header_bytes",
        "self._line_bytes > self._limits.part_header_bytes",
        tests=(
            f"{_LIMITS}::test_a_header_line_of_a_part_that_never_ends_is_stopped_while_it_arrives",
        ),
    ),
    Mutant(
        "what a partner costs is taken from the strangers",
        "oncewire.transport.budget:Budgets.spend",
        "if stranger:\n"
        "    self._processor.add(seconds, self.limits.processor, now)\n"
        "    self._free_at = max(self._free_at, now) + seconds * REST_FOR_EACH\n"
        "    self._check_processor(address, now)",
        "self._processor.add(seconds, self.limits.processor, now)\n"
        "self._check_processor(address, now)",
        tests=(f"{_BUDGET}::test_what_a_partner_costs_is_not_taken_from_the_strangers",),
    ),
    Mutant(
        "who is being answered is idle",
        "oncewire.transport.listener:Listener._sweep",
        "not guest.busy and guest.transport is not None and (now - guest.since > patience)",
        "guest.transport is not None and now - guest.since > patience",
        tests=(f"{_HTTP_SERVER}::test_who_is_being_answered_is_not_idle",),
    ),
    Mutant(
        "a body that breaks off leaves a file",
        "oncewire.store.spool:FileSpool.put",
        "BaseException",
        "OSError",
        tests=(
            f"{_SPOOL}::test_a_sender_that_breaks_off_leaves_nothing_and_is_not_the_stores_fault",
        ),
    ),
    Mutant(
        "what a restart made a node forget is not told",
        "oncewire.journal.predicates.receiver:_judge_memory",
        "row.peer",
        "row.boot",
        requirement="DUP-2",
        tests=(f"{_BROKEN_MESSAGES}::test_a_broken_promise_is_told_once",),
    ),
)

IN_FINE_PRINT: tuple[Mutant, ...] = (
    *FINE_PRINT_SENDING,
    *FINE_PRINT_RECEIVING,
    *FINE_PRINT_AT_HUBS,
    *FINE_PRINT_OUTSIDE,
)
