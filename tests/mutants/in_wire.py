"""Mutants of what stands on the wire; tests with real handlers must notice them."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ANSWERS = "oncewire.wire.answers"
_WRITER = "oncewire.wire.drafts.writer"
_BLOCKS = "oncewire.wire.drafts.blocks"
_NAMES = "oncewire.wire.drafts.blocks"

_SIGNALS = "tests/handler/receiving/test_signals_on_the_wire.py"
_HEADERS = "tests/handler/test_headers_on_the_wire.py"

IN_WIRE: tuple[Mutant, ...] = (
    Mutant(
        "a signal goes to itself: the ends of the hop are not exchanged",
        f"{_ANSWERS}:_parties",
        "(receiver, sender)",
        "(sender, receiver)",
        requirement="ACK-4 ACK-12",
        tests=(f"{_SIGNALS}::test_a_signal_goes_back_between_the_ends_of_the_hop",),
    ),
    Mutant(
        "a signal names no message",
        f"{_ANSWERS}:_header",
        "Header(from_party=from_party, to_party=to_party, cpa_id=facts.cpa_id or UNKNOWN_CPA, conversation_id=facts.conversation_id or facts.message_id, service=service, action=action or usual, message_id=envelope.message_id, timestamp=envelope.now, ref_to_message_id=facts.message_id, semantics=DeliverySemantics.BEST_EFFORT)",
        "Header(from_party=from_party, to_party=to_party, cpa_id=facts.cpa_id or UNKNOWN_CPA, conversation_id=facts.conversation_id or facts.message_id, service=service, action=action or usual, message_id=envelope.message_id, timestamp=envelope.now, ref_to_message_id=None, semantics=DeliverySemantics.BEST_EFFORT)",
        requirement="ACK-3",
        tests=(f"{_SIGNALS}::test_a_signal_names_its_message_agreement_and_conversation",),
    ),
    Mutant(
        "a signal opens a conversation of its own",
        f"{_ANSWERS}:_header",
        "Header(from_party=from_party, to_party=to_party, cpa_id=facts.cpa_id or UNKNOWN_CPA, conversation_id=facts.conversation_id or facts.message_id, service=service, action=action or usual, message_id=envelope.message_id, timestamp=envelope.now, ref_to_message_id=facts.message_id, semantics=DeliverySemantics.BEST_EFFORT)",
        "Header(from_party=from_party, to_party=to_party, cpa_id=facts.cpa_id or UNKNOWN_CPA, conversation_id=facts.message_id, service=service, action=action or usual, message_id=envelope.message_id, timestamp=envelope.now, ref_to_message_id=facts.message_id, semantics=DeliverySemantics.BEST_EFFORT)",
        requirement="ACK-5 ERR-3",
        tests=(f"{_SIGNALS}::test_a_signal_names_its_message_agreement_and_conversation",),
    ),
    Mutant(
        "a signal of v0-078 has a service and an action",
        f"{_WRITER}:write_rm078",
        "if message.kind is MessageKind.NORMAL:\n"
        "    if header.service is None or header.action is None:\n"
        "        raise InvalidValue('an rm-0.78 message names no ServiceInterface or no Action', remedy='name both')\n"
        "    service = f\"<ServiceInterface{optional_attribute('type', header.service.type)}>{identifier(header.service.value)}</ServiceInterface><Action>{identifier(header.action)}</Action>\"",
        "if message.kind is not MessageKind.NORMAL:\n"
        "    service = '<ServiceInterface>urn:x</ServiceInterface><Action>Ack</Action>'\n"
        "else:\n"
        "    if header.service is None or header.action is None:\n"
        "        raise InvalidValue('an rm-0.78 message names no ServiceInterface or no Action', remedy='name both')\n"
        "    service = f\"<ServiceInterface{optional_attribute('type', header.service.type)}>{identifier(header.service.value)}</ServiceInterface><Action>{identifier(header.action)}</Action>\"",
        requirement="ACK-6",
        tests=(
            f"{_SIGNALS}::test_a_signal_of_v0_078_has_its_type_and_no_service_action_or_payload",
        ),
    ),
    Mutant(
        "an acknowledgement of v0-078 calls itself Normal",
        _WRITER,
        "'Acknowledgement'",
        "'Normal'",
        requirement="ACK-7",
        tests=(
            f"{_SIGNALS}::test_a_signal_of_v0_078_has_its_type_and_no_service_action_or_payload",
        ),
    ),
    Mutant(
        "an acknowledgement is itself reliable",
        f"{_ANSWERS}:_header",
        "DeliverySemantics.BEST_EFFORT",
        "DeliverySemantics.ONCE_AND_ONLY_ONCE",
        requirement="ACK-8",
        tests=(f"{_SIGNALS}::test_an_acknowledgement_is_itself_not_reliable",),
    ),
    Mutant(
        "an acknowledgement that no agreement covers is answered with an error",
        "oncewire.handler.receiving.receive:_refuse",
        "message.kind in ANSWERS",
        "message.kind is MessageKind.ERROR",
        requirement="ACK-9",
        tests=(f"{_SIGNALS}::test_nothing_answers_an_acknowledgement",),
    ),
    Mutant(
        "an acknowledgement of 2001 has the service of errors",
        f"{_ANSWERS}:_service",
        "_DRAFT_SIGNALS[kind]",
        "_DRAFT_SIGNALS[MessageKind.ERROR]",
        requirement="ACK-10",
        tests=(f"{_SIGNALS}::test_an_acknowledgement_of_2001_has_its_service_and_action",),
    ),
    Mutant(
        "a typed acknowledgement has the action of the untyped one",
        f"{_ANSWERS}:acknowledgment_for",
        "action = _type(actor).value",
        "action = None",
        requirement="ACK-11",
        tests=(f"{_SIGNALS}::test_an_acknowledgement_of_2001_has_its_service_and_action",),
    ),
    Mutant(
        "a reliable message that does not ask is not acknowledged",
        "oncewire.protocol.receiver:ack_owed",
        "return AckOwed(True, receipt, message.asks_ack_of(Actor.NEXT_MSH))",
        "hop_wish = message.asks_ack_of(Actor.NEXT_MSH)\n"
        "asked = AckRequest.NONE is not receipt or hop_wish is not AckRequest.NONE\n"
        "return AckOwed(asked, receipt, hop_wish)",
        requirement="ACK-2",
        tests=(f"{_SIGNALS}::test_a_reliable_message_is_acknowledged_whether_it_asks_or_not",),
    ),
    Mutant(
        "only an Acknowledgment element acknowledges",
        "oncewire.handler.receiving.reports:acknowledged",
        "if message.header.ref_to_message_id is not None:\n"
        "    references.append(message.header.ref_to_message_id)",
        "if message.acknowledgments:\n    references.append(message.header.ref_to_message_id)",
        requirement="ACK-15 RM-16",
        tests=(f"{_SIGNALS}::test_a_reliable_message_is_acknowledged_whether_it_asks_or_not",),
    ),
    Mutant(
        "any word is a kind of acknowledgement",
        f"{_BLOCKS}:ack_request",
        "ACK_REQUESTS.get(word.lower())",
        "ACK_REQUESTS.get(word.lower(), AckRequest.NONE)",
        requirement="ACK-13",
        tests=(f"{_SIGNALS}::test_ack_requested_has_three_words",),
    ),
    Mutant(
        "an Acknowledgment does not say who gives it",
        f"{_ANSWERS}:acknowledgment_of",
        "Acknowledgment(timestamp=envelope.now, ref_to_message_id=received.header.message_id, from_party=Party(own.ids) if own is not None and own.role is not None else own, actor=actor, signed=bool(references) or _asked(received, actor) is AckRequest.SIGNED, type=_type(actor) if typed else None, references=references)",
        "Acknowledgment(timestamp=envelope.now, ref_to_message_id=received.header.message_id, from_party=None, actor=actor, signed=bool(references) or _asked(received, actor) is AckRequest.SIGNED, type=_type(actor) if typed else None, references=references)",
        requirement="ACK-17 ACK-18",
        tests=(f"{_SIGNALS}::test_the_acknowledgment_element_says_when_and_by_whom",),
    ),
    Mutant(
        "every Acknowledgment has a type",
        f"{_WRITER}:_acknowledgment",
        "kind = type_of(answer).value if form.ack_typed else None",
        "kind = type_of(answer).value",
        requirement="ACK-19",
        tests=(f"{_SIGNALS}::test_the_acknowledgment_element_says_when_and_by_whom",),
    ),
    Mutant(
        "a leg of v0-078 names its sender twice",
        f"{_WRITER}:rm078_hop",
        "receiver = hop.receiver_id or PartyId(hop.receiver_uri or '')",
        "receiver = sender",
        requirement="HDR-1",
        tests=(f"{_HEADERS}::test_every_leg_of_v0_078_names_both_handlers",),
    ),
    Mutant(
        "an unreliable message of v0-078 names the receiver only",
        f"{_WRITER}:rm078_hop",
        "return f\"<RoutingHeader{declarations}><SenderID{optional_attribute('context', sender.type)}>{identifier(sender.value)}</SenderID><ReceiverID{optional_attribute('context', receiver.type)}>{identifier(receiver.value)}</ReceiverID>{_instance(hop)}{number}</RoutingHeader>\"",
        "return f'<RoutingHeader{declarations}>' + (f'<SenderID>{identifier(sender.value)}</SenderID>' if number else '') + f\"<ReceiverID{optional_attribute('context', receiver.type)}>{identifier(receiver.value)}</ReceiverID>{_instance(hop)}{number}</RoutingHeader>\"",
        requirement="HDR-2",
        tests=(f"{_HEADERS}::test_every_leg_of_v0_078_names_both_handlers",),
    ),
    Mutant(
        "a reliable message of v0-078 has no number",
        f"{_WRITER}:rm078_hop",
        "hop.sequence is not None",
        "hop.sequence is None",
        requirement="HDR-3",
        tests=(f"{_HEADERS}::test_every_leg_of_v0_078_names_both_handlers",),
    ),
    Mutant(
        "semantics of v0-078 in the words of 2001",
        _WRITER,
        "'AtMostOnce'",
        "'OnceAndOnlyOnce'",
        requirement="HDR-8",
        tests=(f"{_HEADERS}::test_the_semantics_stand_where_the_dialect_has_them",),
    ),
    Mutant(
        "AtMostOnce is read as not reliable",
        "oncewire.wire.drafts.blocks",
        "{'onceandonlyonce': DeliverySemantics.ONCE_AND_ONLY_ONCE, 'exactlyonce': DeliverySemantics.ONCE_AND_ONLY_ONCE, 'atmostonce': DeliverySemantics.ONCE_AND_ONLY_ONCE, 'besteffort': DeliverySemantics.BEST_EFFORT, 'unspecified': DeliverySemantics.BEST_EFFORT}",
        "{'onceandonlyonce': DeliverySemantics.ONCE_AND_ONLY_ONCE, 'exactlyonce': DeliverySemantics.ONCE_AND_ONLY_ONCE, 'atmostonce': DeliverySemantics.BEST_EFFORT, 'besteffort': DeliverySemantics.BEST_EFFORT, 'unspecified': DeliverySemantics.BEST_EFFORT}",
        requirement="RM-4",
        tests=(f"{_HEADERS}::test_the_semantics_stand_where_the_dialect_has_them",),
    ),
    Mutant(
        "a message of best effort is acknowledged",
        "oncewire.protocol.receiver:ack_owed",
        "if not terms.runs_protocol:\n    return NOTHING_OWED",
        "pass",
        requirement="RM-5 RM-6",
        tests=(f"{_HEADERS}::test_the_semantics_stand_where_the_dialect_has_them",),
    ),
    Mutant(
        "the hop of 2001 has its ends exchanged",
        f"{_WRITER}:ms09x_hop",
        "f\"<RoutingHeader{declarations}{optional_attribute('ackRequested', asked)}{optional_attribute('reliableMessagingMethod', method)}><SenderURI>{identifier(hop.sender_uri)}</SenderURI><ReceiverURI>{identifier(hop.receiver_uri)}</ReceiverURI>\"",
        "f\"<RoutingHeader{declarations}{optional_attribute('ackRequested', asked)}{optional_attribute('reliableMessagingMethod', method)}><SenderURI>{identifier(hop.receiver_uri)}</SenderURI><ReceiverURI>{identifier(hop.sender_uri)}</ReceiverURI>\"",
        requirement="HDR-5 RM-12",
        tests=(f"{_HEADERS}::test_the_hop_of_2001_names_both_ends_and_its_time",),
    ),
    Mutant(
        "the synchronous wish stands before the quality of service",
        f"{_WRITER}:write_ms09x",
        "f'''<?xml version=\"1.0\" encoding=\"UTF-8\"?>\\n<ebXMLHeader xmlns=\"{n.NAMESPACE}\" version=\"{n.MS_VERSION}\">{n.write_manifest(message)}<Header>{_party('From', header.from_party, 'type')}{_party('To', header.to_party, 'type')}<CPAId>{identifier(header.cpa_id)}</CPAId><ConversationId>{identifier(header.conversation_id)}</ConversationId><Service{optional_attribute('type', header.service.type)}>{identifier(header.service.value)}</Service><Action>{identifier(header.action)}</Action>{_message_data(header, 'Timestamp', written_moment)}{_quality(message)}{_sync(header)}{n.foreign(message)}</Header>'''",
        "f'''<?xml version=\"1.0\" encoding=\"UTF-8\"?>\\n<ebXMLHeader xmlns=\"{n.NAMESPACE}\" version=\"{n.MS_VERSION}\">{n.write_manifest(message)}<Header>{_party('From', header.from_party, 'type')}{_party('To', header.to_party, 'type')}<CPAId>{identifier(header.cpa_id)}</CPAId><ConversationId>{identifier(header.conversation_id)}</ConversationId><Service{optional_attribute('type', header.service.type)}>{identifier(header.service.value)}</Service><Action>{identifier(header.action)}</Action>{_message_data(header, 'Timestamp', written_moment)}{_sync(header)}{_quality(message)}{n.foreign(message)}</Header>'''",
        requirement="HDR-6 SYNC-15",
        tests=(f"{_HEADERS}::test_the_children_of_the_header_stand_in_their_order",),
    ),
    Mutant(
        "foreign elements are dropped",
        f"{_BLOCKS}:with_foreign",
        "return replace(message, header=replace(message.header, foreign=own), manifest=tuple((replace(reference, foreign=foreign) if foreign else reference for reference, foreign in zip(message.manifest, references, strict=True))), acknowledgments=tuple((replace(answer, references=given) if given else answer for answer, given in zip(message.acknowledgments, digests, strict=True))))",
        "return replace(message, header=message.header, manifest=tuple((replace(reference, foreign=foreign) if foreign else reference for reference, foreign in zip(message.manifest, references, strict=True))), acknowledgments=tuple((replace(answer, references=given) if given else answer for answer, given in zip(message.acknowledgments, digests, strict=True))))",
        requirement="HDR-7",
        tests=(f"{_HEADERS}::test_a_foreign_element_is_taken_without_knowing_it",),
    ),
    Mutant(
        "a sender of v0-078 gets a body in the response",
        "oncewire.wire.answers:has_replies",
        "return dialect is not Dialect.RM_078",
        "return True",
        requirement="TRN-2",
        tests=(
            "tests/handler/test_http.py::test_a_response_to_v0_078_has_no_body_whatever_was_posted",
        ),
    ),
)
