"""Mutants of what stands on the wire; tests with real handlers must notice them."""

# The replaced text is the product's own, as long as its lines are.
# ruff: noqa: E501

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ANSWERS = "oncewire.wire.answers"
_RM078 = "oncewire.wire.drafts.rm078"
_MS09X = "oncewire.wire.drafts.ms09x"
_BLOCKS = "oncewire.wire.drafts.blocks"
_NAMES = "oncewire.wire.drafts.blocks"

_SIGNALS = "tests/handler/answering/test_signals_on_the_wire.py"
_HEADERS = "tests/handler/test_headers_on_the_wire.py"

IN_WIRE: tuple[Mutant, ...] = (
    Mutant(
        "a signal goes to itself: the ends of the hop are not exchanged",
        _ANSWERS,
        "            return receiver, sender\n",
        "            return sender, receiver\n",
        requirement="ACK-4 ACK-12",
        tests=(f"{_SIGNALS}::test_a_signal_goes_back_between_the_ends_of_the_hop",),
    ),
    Mutant(
        "a signal names no message",
        _ANSWERS,
        "        ref_to_message_id=facts.message_id,\n        semantics=",
        "        ref_to_message_id=None,\n        semantics=",
        requirement="ACK-3",
        tests=(f"{_SIGNALS}::test_a_signal_names_its_message_agreement_and_conversation",),
    ),
    Mutant(
        "a signal opens a conversation of its own",
        _ANSWERS,
        "        conversation_id=facts.conversation_id or facts.message_id,\n",
        "        conversation_id=facts.message_id,\n",
        requirement="ACK-5 ERR-3",
        tests=(f"{_SIGNALS}::test_a_signal_names_its_message_agreement_and_conversation",),
    ),
    Mutant(
        "a signal of v0-078 has a service and an action",
        _RM078,
        "    if message.kind is MessageKind.NORMAL:\n        if header.service",
        "    if message.kind is not MessageKind.NORMAL:\n"
        "        service = '<ServiceInterface>urn:x</ServiceInterface><Action>Ack</Action>'\n"
        "    else:\n        if header.service",
        requirement="ACK-6",
        tests=(
            f"{_SIGNALS}::test_a_signal_of_v0_078_has_its_type_and_no_service_action_or_payload",
        ),
    ),
    Mutant(
        "an acknowledgement of v0-078 calls itself Normal",
        _RM078,
        '    MessageKind.ACKNOWLEDGMENT: "Acknowledgement",\n',
        '    MessageKind.ACKNOWLEDGMENT: "Normal",\n',
        requirement="ACK-7",
        tests=(
            f"{_SIGNALS}::test_a_signal_of_v0_078_has_its_type_and_no_service_action_or_payload",
        ),
    ),
    Mutant(
        "an acknowledgement is itself reliable",
        _ANSWERS,
        "        ref_to_message_id=facts.message_id,\n        semantics=DeliverySemantics.BEST_EFFORT,\n",
        "        ref_to_message_id=facts.message_id,\n        semantics=DeliverySemantics.ONCE_AND_ONLY_ONCE,\n",
        requirement="ACK-8",
        tests=(f"{_SIGNALS}::test_an_acknowledgement_is_itself_not_reliable",),
    ),
    Mutant(
        "an acknowledgement that no agreement covers is answered with an error",
        "oncewire.handler.arriving.receive",
        "    if message.kind in ANSWERS:\n",
        "    if message.kind is MessageKind.ERROR:\n",
        requirement="ACK-9",
        tests=(f"{_SIGNALS}::test_nothing_answers_an_acknowledgement",),
    ),
    Mutant(
        "an acknowledgement of 2001 has the service of errors",
        _ANSWERS,
        "    return _DRAFT_SIGNALS[kind]\n",
        "    return _DRAFT_SIGNALS[MessageKind.ERROR]\n",
        requirement="ACK-10",
        tests=(f"{_SIGNALS}::test_an_acknowledgement_of_2001_has_its_service_and_action",),
    ),
    Mutant(
        "a typed acknowledgement has the action of the untyped one",
        _ANSWERS,
        "        action = _type(actor).value\n",
        "        action = None\n",
        requirement="ACK-11",
        tests=(f"{_SIGNALS}::test_an_acknowledgement_of_2001_has_its_service_and_action",),
    ),
    Mutant(
        "a reliable message that does not ask is not acknowledged",
        "oncewire.protocol.receiver",
        "    return AckOwed(True, receipt, message.asks_ack_of(Actor.NEXT_MSH))\n",
        "    hop_wish = message.asks_ack_of(Actor.NEXT_MSH)\n"
        "    asked = AckRequest.NONE is not receipt or hop_wish is not AckRequest.NONE\n"
        "    return AckOwed(asked, receipt, hop_wish)\n",
        requirement="ACK-2",
        tests=(f"{_SIGNALS}::test_a_reliable_message_is_acknowledged_whether_it_asks_or_not",),
    ),
    Mutant(
        "only an Acknowledgment element acknowledges",
        "oncewire.handler.answering.signals",
        "    if message.header.ref_to_message_id is not None:\n        references.append",
        "    if message.acknowledgments:\n        references.append",
        requirement="ACK-15 RM-16",
        tests=(f"{_SIGNALS}::test_a_reliable_message_is_acknowledged_whether_it_asks_or_not",),
    ),
    Mutant(
        "any word is a kind of acknowledgement",
        _BLOCKS,
        "    value = ACK_REQUESTS.get(word.lower())\n    if value is None:\n",
        "    value = ACK_REQUESTS.get(word.lower(), AckRequest.NONE)\n    if value is None:\n",
        requirement="ACK-13",
        tests=(f"{_SIGNALS}::test_ack_requested_has_three_words",),
    ),
    Mutant(
        "an Acknowledgment does not say who gives it",
        _ANSWERS,
        "        from_party=Party(own.ids) if own is not None and own.role is not None else own,\n",
        "        from_party=None,\n",
        requirement="ACK-17 ACK-18",
        tests=(f"{_SIGNALS}::test_the_acknowledgment_element_says_when_and_by_whom",),
    ),
    Mutant(
        "every Acknowledgment has a type",
        _MS09X,
        "    kind = type_of(answer).value if form.ack_typed else None\n",
        "    kind = type_of(answer).value\n",
        requirement="ACK-19",
        tests=(f"{_SIGNALS}::test_the_acknowledgment_element_says_when_and_by_whom",),
    ),
    Mutant(
        "a leg of v0-078 names its sender twice",
        _RM078,
        '    receiver = hop.receiver_id or PartyId(hop.receiver_uri or "")\n',
        "    receiver = sender\n",
        requirement="HDR-1",
        tests=(f"{_HEADERS}::test_every_leg_of_v0_078_names_both_handlers",),
    ),
    Mutant(
        "an unreliable message of v0-078 names the receiver only",
        _RM078,
        "        f\"<SenderID{optional_attribute('context', sender.type)}>\"\n"
        '        f"{identifier(sender.value)}</SenderID>"\n',
        "        + (f'<SenderID>{identifier(sender.value)}</SenderID>' if number else '') +\n",
        requirement="HDR-2",
        tests=(f"{_HEADERS}::test_every_leg_of_v0_078_names_both_handlers",),
    ),
    Mutant(
        "a reliable message of v0-078 has no number",
        _RM078,
        "    if hop.sequence is not None:\n        number",
        "    if hop.sequence is None:\n        number",
        requirement="HDR-3",
        tests=(f"{_HEADERS}::test_every_leg_of_v0_078_names_both_handlers",),
    ),
    Mutant(
        "semantics of v0-078 in the words of 2001",
        _RM078,
        '    DeliverySemantics.ONCE_AND_ONLY_ONCE: "AtMostOnce",\n',
        '    DeliverySemantics.ONCE_AND_ONLY_ONCE: "OnceAndOnlyOnce",\n',
        requirement="HDR-8",
        tests=(f"{_HEADERS}::test_the_semantics_stand_where_the_dialect_has_them",),
    ),
    Mutant(
        "AtMostOnce is read as not reliable",
        "oncewire.wire.drafts.blocks",
        '"atmostonce": DeliverySemantics.ONCE_AND_ONLY_ONCE',
        '"atmostonce": DeliverySemantics.BEST_EFFORT',
        requirement="RM-4",
        tests=(f"{_HEADERS}::test_the_semantics_stand_where_the_dialect_has_them",),
    ),
    Mutant(
        "a message of best effort is acknowledged",
        "oncewire.protocol.receiver",
        "    if not terms.runs_protocol:\n        return NOTHING_OWED\n    hop = message.last_hop\n",
        "    hop = message.last_hop\n",
        requirement="RM-5 RM-6",
        tests=(f"{_HEADERS}::test_the_semantics_stand_where_the_dialect_has_them",),
    ),
    Mutant(
        "the hop of 2001 has its ends exchanged",
        _MS09X,
        '        f"<SenderURI>{identifier(hop.sender_uri)}</SenderURI>"\n'
        '        f"<ReceiverURI>{identifier(hop.receiver_uri)}</ReceiverURI>"\n',
        '        f"<SenderURI>{identifier(hop.receiver_uri)}</SenderURI>"\n'
        '        f"<ReceiverURI>{identifier(hop.sender_uri)}</ReceiverURI>"\n',
        requirement="HDR-5 RM-12",
        tests=(f"{_HEADERS}::test_the_hop_of_2001_names_both_ends_and_its_time",),
    ),
    Mutant(
        "the synchronous wish stands before the quality of service",
        _MS09X,
        "{_message_data(header)}{_quality(message)}{_sync(header)}",
        "{_message_data(header)}{_sync(header)}{_quality(message)}",
        requirement="HDR-6 SYNC-15",
        tests=(f"{_HEADERS}::test_the_children_of_the_header_stand_in_their_order",),
    ),
    Mutant(
        "foreign elements are dropped",
        _BLOCKS,
        "        header=replace(message.header, foreign=own),\n",
        "        header=message.header,\n",
        requirement="HDR-7",
        tests=(f"{_HEADERS}::test_a_foreign_element_is_taken_without_knowing_it",),
    ),
    Mutant(
        "a sender of v0-078 gets a body in the response",
        "oncewire.wire.answers",
        "    return dialect is not Dialect.RM_078\n",
        "    return True\n",
        requirement="TRN-2",
        tests=(
            "tests/handler/test_http.py::test_a_response_to_v0_078_has_no_body_whatever_was_posted",
        ),
    ),
)
