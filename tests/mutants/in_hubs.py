"""Bugs of hubs, and the tests that must notice each."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_HOPS = "tests/handler/hub/test_hop_by_hop.py::"
_HUB = "tests/handler/hub/test_hub.py::"
_PROXY = "tests/handler/test_proxy.py::"
_RELAY = "tests/handler/hub/test_relay.py::"
_ROUTING = "tests/handler/hub/test_routing.py::"
_STRANDED = "tests/handler/hub/test_stranded.py::"

_MIDWAY = "tests/handler/hub/test_midway.py::"

IN_HUBS: tuple[Mutant, ...] = (
    Mutant(
        "send on in a circle what names us among its hops",
        "oncewire.handler.hub.passing:check_way",
        "passed = any((_is_sender(before.own, hop) for hop in message.routing))",
        "passed = False",
        tests=(_ROUTING + "test_what_comes_back_to_a_hub_is_not_sent_on_again",),
    ),
    Mutant(
        "a hub believes any number of hops",
        "oncewire.handler.hub.passing:check_way",
        "if len(message.routing) > HOPS_MAX:\n"
        "    raise Inconsistent(f'it has made {len(message.routing)} hops, and no more than {HOPS_MAX} are believed', location=WAY, remedy='look for hubs that send it to each other')",
        "if False:\n"
        "    raise Inconsistent(f'it has made {len(message.routing)} hops, and no more than {HOPS_MAX} are believed', location=WAY, remedy='look for hubs that send it to each other')",
        tests=(_ROUTING + "test_too_many_hops_are_refused",),
    ),
    Mutant(
        "a hub's default way goes before the service's",
        "oncewire.agreement.agreement:Agreements.toward",
        "if name in agreement.partner.behind_services:\n    return agreement",
        "if agreement.partner.behind_all:\n    return agreement",
        requirement="HOP-5",
        tests=(_ROUTING + "test_the_way_is_found_by_party_then_by_service_then_by_default",),
    ),
    Mutant(
        "send on what is for us",
        "oncewire.handler.hub.next_hop:is_stranded",
        "if incoming.state is not IncomingState.HELD or context.is_ours(tx, stored):\n"
        "    return False",
        "if incoming.state is not IncomingState.HELD:\n    return False",
        tests=("tests/handler/hub/test_stranded.py::test_what_is_for_us_is_never_sent_on",),
    ),
    Mutant(
        "forget where a message came from that was passed on",
        "oncewire.handler.hub.passing:pass_on",
        "if is_answer(message):\n"
        "    _post(context, tx, message, route, parcel, source, asked=asked)\n"
        "    return NOTHING\n"
        "_remember(context, tx, message, ahead, before, source)",
        "if is_answer(message):\n"
        "    _post(context, tx, message, route, parcel, source, asked=asked)\n"
        "    return NOTHING",
        requirement="HOP-7 ACK-4 ACK-12",
        tests=(_PROXY + "test_the_acknowledgement_of_the_to_party_comes_back",),
    ),
    Mutant(
        "take an answer from behind a hub for a stranger's",
        "oncewire.handler.receiving.agreement_match:_from_behind",
        "if agreement.via is None and about.relayed_from is None and (not beyond):\n"
        "    return None",
        "if True:\n    return None",
        requirement="HOP-5 RM-16",
        tests=(_PROXY + "test_the_acknowledgement_of_the_to_party_comes_back",),
    ),
    Mutant(
        "try on at a hub what its From Party hears was refused",
        "oncewire.handler.receiving.signals:settle_passing",
        "stored.outgoing.state not in FINAL_OUTGOING",
        "False",
        requirement="HOP-9",
        tests=(
            "tests/handler/hub/test_hub.py::test_a_hub_sends_no_more_what_it_tells_the_from_party_was_refused",
        ),
    ),
    Mutant(
        "judge an answer from behind a hub by another agreement that leads there",
        "oncewire.handler.receiving.agreement_match:_from_behind",
        "kept or agreement_of_hop(context, tx, about)",
        "agreement_of_hop(context, tx, about)",
        requirement="RM-17",
        tests=(_PROXY + "test_it_is_heard_although_only_another_agreement_leads_to_the_hub",),
    ),
    Mutant(
        "acknowledge a copy of what was passed on",
        "oncewire.handler.receiving.receive:_take_for_others",
        "passed = known is not None and known.passed_on",
        "passed = False",
        requirement="HOP-6",
        tests=(_PROXY + "test_a_copy_that_asks_for_more_is_passed_on_too",),
    ),
    Mutant(
        "begin the next hop before the previous one is complete",
        "oncewire.handler.receiving.arrive:Arriving._first",
        "reply = None",
        "reply = None\n"
        "if answer is not None and (not self.final) and (not judgement.held) and self.ahead:\n"
        "    self._hub.send_on(stored, self.ahead, kept_open=relays)",
        requirement="HOP-1",
        tests=(_HUB + "test_the_next_hop_begins_when_the_previous_one_is_complete",),
    ),
    Mutant(
        "let the acknowledgement of every intermediary through",
        "oncewire.handler.receiving.receive:_take_for_others",
        "asked is not None and acks and all((ack.actor is Actor.NEXT_MSH for ack in acks))",
        "False",
        requirement="HOP-12",
        tests=(_PROXY + "test_of_all_intermediaries_the_initiator_hears_the_first",),
    ),
    Mutant(
        "drop a held message whose way on is gone",
        "oncewire.handler.hub.next_hop:go_on",
        "open_incident(context, tx, Raise(problem, incoming.message_id), incoming)",
        "tx.save_incoming(_forwarded(stored.incoming))",
        requirement="HOP-8",
        tests=(_STRANDED + "test_it_goes_on_in_order_when_the_agreement_is_back",),
    ),
    Mutant(
        "give a stranded message up and tell nobody",
        "oncewire.handler.runtime.engine:Engine.abandon",
        "if not abandon_stranded(self.context, tx, message_id, by):\n"
        "    operate.abandon_message(self.context, tx, message_id, by)",
        "if True:\n    operate.abandon_message(self.context, tx, message_id, by)",
        requirement="HOP-9",
        tests=(_STRANDED + "test_the_from_party_is_told_when_it_is_given_up",),
    ),
    Mutant(
        "close the connection of a synchronous request at a hub",
        "oncewire.protocol.hops:awaits_onward",
        "return plan.signals",
        "return False",
        requirement="SYNC-2 SYNC-11 SYNC-16",
        tests=(_RELAY + "test_the_response_comes_back_through_hubs",),
    ),
    Mutant(
        "leave a hub's own acknowledgement out of the reply",
        "oncewire.handler.hub.passing:relay",
        "if own is not None:\n"
        "    parcels.insert(0, own.parcel)\n"
        "elif not parcels:\n"
        "    return previous.come_back()",
        "if own is not None:\n"
        "    parcels = parcels or [own.parcel]\n"
        "elif not parcels:\n"
        "    return previous.come_back()",
        requirement="SYNC-8",
        tests=(_RELAY + "test_acknowledgement_of_the_hop_and_response_in_one_reply",),
    ),
    Mutant(
        "wait for the next hop as long as the initiator waits",
        "oncewire.protocol.synchronous:onward_patience",
        "return min(inner.sync_timeout, patience(outer))",
        "return inner.sync_timeout",
        requirement="SYNC-17",
        tests=("tests/protocol/test_hops.py::test_the_inner_exchange_ends_before_the_outer_one",),
    ),
    Mutant(
        "acknowledge at a hub what has failed already",
        "oncewire.handler.hub.passing:Upstream.beside",
        "return self.acknowledge() if failed is None else self.report(failed)",
        "return self.acknowledge()",
        requirement="HOP-9 SYNC-12",
        tests=(_RELAY + "test_what_has_failed_already_is_not_acknowledged",),
    ),
    Mutant(
        "wait at a hub for a receipt that nobody asked of the To Party",
        "oncewire.handler.receiving.signals:_settle",
        "stored.relayed_from is not None and (proof is Proof.HOP or of_hop)",
        "stored.relayed_from is not None and proof is Proof.HOP",
        requirement="HOP-8 ACK-19",
        tests=(_HOPS + "test_of_a_notice_only_the_hop_is_acknowledged",),
    ),
    Mutant(
        "what is stranded goes on in the order against that in which it came",
        "oncewire.handler.hub.next_hop:resume_stranded_hops",
        "sorted(stranded, key=lambda kept: _place(context, tx, kept.incoming))",
        "reversed(stranded)",
        requirement="SW-10",
        tests=(_STRANDED + "test_it_goes_on_in_the_order_of_its_numbers_however_it_came",),
    ),
    Mutant(
        "what is stranded goes on by its numbers as if they never wrapped",
        "oncewire.handler.hub.next_hop:_place",
        "(channel.key, incoming.epoch or 0, -behind)",
        "(channel.key, incoming.epoch or 0, incoming.number)",
        requirement="SEQ-12",
        tests=(_STRANDED + "test_it_goes_on_in_the_order_of_its_numbers_however_it_came",),
    ),
    Mutant(
        "give the acknowledgement of a hop back as a receipt",
        "oncewire.handler.hub.passing:is_receipt",
        "acknowledgment.from_party is not None and acknowledgment.actor is Actor.TO_PARTY_MSH and (asked.facts.to_party in map(str, acknowledgment.from_party.ids))",
        "acknowledgment.from_party is not None and asked.facts.to_party in map(str, acknowledgment.from_party.ids)",
        requirement="HOP-12",
        tests=(_HOPS + "test_of_a_notice_only_the_hop_is_acknowledged",),
    ),
    Mutant(
        "let the To Party's word go back by today's agreements alone",
        "oncewire.handler.receiving.receive:_take_for_others",
        "ahead = ahead or way_back(context, tx, message, asked)",
        "pass",
        requirement="HOP-5 RM-16",
        tests=(_HOPS + "test_the_to_partys_word_goes_back_though_the_way_is_gone",),
    ),
    Mutant(
        "a notice that nobody acknowledges is sent once",
        "oncewire.handler.hub.next_hop:tell_from_party",
        "notice_terms(terms)",
        "structs.replace(notice_terms(terms), reliable=False)",
        requirement="HOP-9 ERR-8",
        tests=(_MIDWAY + "test_a_notice_that_nobody_acknowledges_is_owed_until_it_is_taken",),
    ),
    Mutant(
        "a notice that was taken is sent until somebody acknowledges it",
        "oncewire.handler.sending.transmit:transmission_over",
        "last_word = _is_unacknowledged(context, tx, stored)",
        "last_word = False",
        requirement="HOP-9",
        tests=(_MIDWAY + "test_a_notice_that_nobody_acknowledges_is_owed_until_it_is_taken",),
    ),
    Mutant(
        "a hub lets a notice pass and forgets it",
        "oncewire.handler.hub.passing:_post",
        "if asked is not None and message.kind is MessageKind.ERROR:\n"
        "    _owe(context, tx, message, route, parcel)\n"
        "else:\n"
        "    context.state.actions.append(post)",
        "if False:\n"
        "    _owe(context, tx, message, route, parcel)\n"
        "else:\n"
        "    context.state.actions.append(post)",
        requirement="HOP-9",
        tests=(_MIDWAY + "test_a_hub_on_the_way_of_a_notice_owes_it_too",),
    ),
)
