"""Mutants of agreements and of header against agreement, noticed by handlers that run under them."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RULES = "oncewire.agreement.rules"
_SUBMIT = "oncewire.handler.sending.submit"

_TESTS = "tests/handler/test_agreement_at_work.py"
_ACCEPTED = "tests/handler/receiving/test_accepted_under.py"
_NAMES = "tests/handler/test_addresses_and_roles.py"
_EXPORT = "tests/agreement/cppa/test_export.py"
_WRITTEN = "tests/entry/party/test_other_transports.py"

IN_AGREEMENT: tuple[Mutant, ...] = (
    Mutant(
        "the lifetime of a message is always the agreed one",
        f"{_SUBMIT}:_compose",
        "submission.time_to_live or terms.time_to_live",
        "terms.time_to_live or submission.time_to_live",
        requirement="CPA-1",
        tests=(f"{_TESTS}::test_a_lifetime_is_set_by_the_agreement_and_by_the_message",),
    ),
    Mutant(
        "a silent header means best effort",
        f"{_RULES}:_reliable",
        "stated = None if semantics is None else semantics is DeliverySemantics.ONCE_AND_ONLY_ONCE",
        "stated = semantics is DeliverySemantics.ONCE_AND_ONLY_ONCE",
        requirement="CPA-8",
        tests=(f"{_TESTS}::test_where_the_header_is_silent_the_agreement_governs",),
    ),
    Mutant(
        "an Acknowledgment element is given to whoever did not ask for one",
        "oncewire.wire.answers:acknowledgment_for",
        "received.dialect is Dialect.MS_09X and _asked(received, actor) is not AckRequest.NONE",
        "received.dialect is Dialect.MS_09X",
        requirement="CPA-2 ACK-14",
        tests=(f"{_TESTS}::test_what_is_asked_of_the_hop_is_read_from_the_header_alone",),
    ),
    Mutant(
        "a header states its time-out",
        "oncewire.wire.drafts.writer:write_ms09x",
        "f'''<?xml version=\"1.0\" encoding=\"UTF-8\"?>\\n<ebXMLHeader xmlns=\"{n.NAMESPACE}\" version=\"{n.MS_VERSION}\">{n.write_manifest(message)}<Header>{_party('From', header.from_party, 'type')}{_party('To', header.to_party, 'type')}<CPAId>{identifier(header.cpa_id)}</CPAId><ConversationId>{identifier(header.conversation_id)}</ConversationId><Service{optional_attribute('type', header.service.type)}>{identifier(header.service.value)}</Service><Action>{identifier(header.action)}</Action>{_message_data(header, 'Timestamp', written_moment)}{_quality(message)}{_sync(header)}{n.foreign(message)}</Header>'''",
        "f'''<?xml version=\"1.0\" encoding=\"UTF-8\"?>\\n<ebXMLHeader xmlns=\"{n.NAMESPACE}\" version=\"{n.MS_VERSION}\">{n.write_manifest(message)}<Header>{_party('From', header.from_party, 'type')}{_party('To', header.to_party, 'type')}<CPAId>{identifier(header.cpa_id)}</CPAId><ConversationId>{identifier(header.conversation_id)}</ConversationId><Service{optional_attribute('type', header.service.type)}>{identifier(header.service.value)}</Service><Action>{identifier(header.action)}</Action><Timeout>7</Timeout>{_message_data(header, 'Timestamp', written_moment)}{_quality(message)}{_sync(header)}{n.foreign(message)}</Header>'''",
        requirement="CPA-3",
        tests=(f"{_TESTS}::test_times_and_retries_are_the_agreements_and_no_header_has_them",),
    ),
    Mutant(
        "a number of seconds is read as minutes",
        "oncewire.message.kinds:read_duration",
        "raw * SECOND",
        "raw * MINUTE",
        requirement="CPA-4",
        tests=(f"{_TESTS}::test_times_and_retries_are_the_agreements_and_no_header_has_them",),
    ),
    Mutant(
        "persistDuration does not end the resends",
        "oncewire.protocol.states:Outgoing.deadline",
        "self.first_sent_at is not None and terms.reliable",
        "self.first_sent_at is not None and (not terms.reliable)",
        requirement="CPA-6",
        tests=(f"{_TESTS}::test_persist_duration_is_a_duration_and_ends_the_resends",),
    ),
    Mutant(
        "every reliable messaging method is supported",
        f"{_RULES}:_method",
        "if not binding.rules.supports(hop.method):\n"
        "    raise NotSupported(f'reliableMessagingMethod {hop.method.value} is not among those agreed', location=METHOD, remedy='use a method of reliableMessagingMethodsSupported')",
        "if hop.method is None:\n"
        "    raise NotSupported(f'reliableMessagingMethod {hop.method.value} is not among those agreed', location=METHOD, remedy='use a method of reliableMessagingMethodsSupported')",
        requirement="CPA-7",
        tests=(f"{_TESTS}::test_a_method_that_is_not_listed_is_not_supported",),
    ),
    Mutant(
        "a receipt of any kind satisfies a wish for another",
        "oncewire.protocol.receiver:check_receipt",
        "if provided is ReceiptProvided.BOTH or provided.value == asked.value:\n    return",
        "if provided is not ReceiptProvided.NONE:\n    return",
        requirement="CPA-13",
        tests=(f"{_TESTS}::test_a_receipt_that_is_not_provided_is_refused",),
    ),
    Mutant(
        "a receipt that is not provided is promised",
        "oncewire.protocol.receiver:check_receipt",
        "if provided is ReceiptProvided.BOTH or provided.value == asked.value:\n    return",
        "if provided is ReceiptProvided.BOTH or provided.value == asked.value:\n    return\nreturn",
        requirement="CPA-14",
        tests=(f"{_TESTS}::test_a_receipt_that_is_not_provided_is_refused",),
    ),
    Mutant(
        "a lifetime is judged as if all clocks were exact",
        "oncewire.protocol.receiver:_expired",
        "now <= arrival.expires_at + terms.time_accuracy",
        "now <= arrival.expires_at",
        requirement="CPA-15",
        tests=(f"{_TESTS}::test_a_lifetime_is_judged_as_exactly_as_the_clocks_are",),
    ),
    Mutant(
        "the channel's Characteristics are not read",
        "oncewire.agreement.cppa.document:read_channel",
        "'Characteristics'",
        "'Nothing'",
        requirement="CPA-17",
        tests=(f"{_TESTS}::test_the_channels_characteristics_say_what_comes_back_at_once",),
    ),
    Mutant(
        "a copy is judged by today's agreement",
        "oncewire.handler.receiving.receive:receive_message",
        "original = copied(context, tx, message) if stored_now and (not new) else None",
        "original = None",
        requirement="RM-17",
        tests=(f"{_ACCEPTED}::test_a_copy_of_what_was_delivered_gets_its_answer_again",),
    ),
    Mutant(
        "after the end nothing that answers is believed",
        "oncewire.handler.receiving.agreement_match:place",
        "if received.message.kind is not MessageKind.NORMAL:\n"
        "    earlier = place_as_answer(context, tx, received, source)\n"
        "    if earlier is not None:\n"
        "        return earlier",
        "if False:\n"
        "    earlier = place_as_answer(context, tx, received, source)\n"
        "    if earlier is not None:\n"
        "        return earlier",
        tests=(
            f"{_ACCEPTED}::test_an_acknowledgement_is_believed_under_the_terms_of_what_it_acknowledges",
        ),
    ),
    Mutant(
        "a known id needs no proof",
        "oncewire.handler.authentication:_verified",
        "if security.require_signature:\n"
        "    raise SecurityFailure('the agreement asks for a signature, the message has none', location='//Header/Signature')",
        "if security.require_signature and accepted_at is None:\n"
        "    raise SecurityFailure('the agreement asks for a signature, the message has none', location='//Header/Signature')",
        tests=(f"{_ACCEPTED}::test_who_cannot_prove_that_he_repeats_is_told_nothing",),
    ),
    Mutant(
        "who cannot prove that he repeats a message is told what is wrong",
        "oncewire.handler.receiving.receive:receive_message",
        "if original is not None:\n"
        "    _journal_refused(context, tx, PartialHeader.of(message), error, source)\n"
        "    told = NOTHING\n"
        "    if isinstance(error, SoapFault):\n"
        "        fault = RefusedByTerms((error,), PartialHeader.of(message))\n"
        "        told = answer_unread(context, fault, source, received)\n"
        "    return replace(told, refused=True)",
        "if original is None:\n"
        "    _journal_refused(context, tx, PartialHeader.of(message), error, source)\n"
        "    told = NOTHING\n"
        "    if isinstance(error, SoapFault):\n"
        "        fault = RefusedByTerms((error,), PartialHeader.of(message))\n"
        "        told = answer_unread(context, fault, source, received)\n"
        "    return replace(told, refused=True)",
        tests=(f"{_ACCEPTED}::test_who_cannot_prove_that_he_repeats_is_told_nothing",),
    ),
    Mutant(
        "a revoked certificate is good for what is under way",
        "oncewire.handler.authentication:_verified",
        "is_withdrawn(context.agreements.withdrawn, verified.certificate)",
        "False",
        tests=(f"{_ACCEPTED}::test_a_revoked_certificate_proves_nothing_at_once",),
    ),
    Mutant(
        "another document under a used id is taken for the first",
        f"{_SUBMIT}:_repeated",
        "facts.digest in (identity_digest(message), identity_digest(as_called))",
        "facts.size == sum((payload.size for payload in message.payloads))",
        tests=(f"{_ACCEPTED}::test_another_message_under_a_used_id_is_refused",),
    ),
    Mutant(
        "the Service is sent as its caller names it, without its type",
        f"{_SUBMIT}:_compose",
        "binding.service or submission.service",
        "submission.service",
        tests=(f"{_NAMES}::test_the_service_that_is_agreed_is_sent_whatever_its_caller_called_it",),
    ),
    Mutant(
        "a CPA that is written says how a party sends, and not how it receives",
        "oncewire.agreement.cppa.writer:_channel",
        "f'<tns:DocExchange tns:docExchangeId=\"{name}.d\">{_sender(binding, prefix, shown)}{_receiver(taken, prefix, shown)}</tns:DocExchange>'",
        "f'<tns:DocExchange tns:docExchangeId=\"{name}.d\">{_sender(binding, prefix, shown)}</tns:DocExchange>'",
        tests=(f"{_EXPORT}::test_others_take_it",),
    ),
    Mutant(
        "a CPA that is written is silent about signatures",
        "oncewire.agreement.cppa.writer:_business",
        "_flag(said.non_repudiation or _signed(binding))",
        "_flag(said.non_repudiation)",
        tests=(f"{_EXPORT}::test_signed_and_encrypted_messages_are_said_to_be_so",),
    ),
    Mutant(
        "a CPA that nobody changed is written anew",
        "oncewire.entry.party.agreements:export_cpa",
        "came is not None and _says_as_much(came, agreement)",
        "came is not None and False",
        tests=(
            "tests/entry/test_foreign_cpa.py::test_a_cpa_that_was_imported_is_exported_as_it_came",
        ),
    ),
    Mutant(
        "what the file says over its CPA is kept from the partner",
        "oncewire.entry.party.agreements:_says_as_much",
        "return without_routing(made) == without_routing(agreement)",
        "return True",
        tests=(
            "tests/entry/test_foreign_cpa.py::test_what_the_file_says_over_its_cpa_is_exported",
        ),
    ),
    Mutant(
        "ids are forgotten before the last transport was tried",
        "oncewire.entry.party.partners:_remembered_long_enough",
        "if not terms.runs_protocol or terms.longest_retry <= terms.persist_duration:\n"
        "    return text",
        "if terms.persist_duration:\n    return text",
        tests=(f"{_WRITTEN}::test_two_transports_are_remembered_for_longer_than_both_are_tried",),
    ),
    Mutant(
        "an agreement that our own check calls wrong is written",
        "oncewire.entry.party.partners:_refuse_dangers",
        "if finding.severity is not Severity.HINT and (not (accepted or named)):\n"
        "    raise AgreementProblem(finding.sentence, key=key, remedy=finding.fix)",
        "if False:\n    raise AgreementProblem(finding.sentence, key=key, remedy=finding.fix)",
        tests=(f"{_WRITTEN}::test_what_our_own_check_calls_wrong_is_not_written",),
    ),
)
