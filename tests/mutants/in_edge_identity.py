"""Mutants of who is believed: whose word a message is, what of it is seen, and what it settles."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SIGNED = "tests/handler/test_signed.py"
_IDENTITY = "tests/handler/test_identity.py"
_VIEW = "tests/handler/test_verified_view.py"
_UNPROVEN = "tests/handler/test_unproven.py"
_FRESH = "tests/handler/receiving/test_fresh.py"
_MEETING = "tests/entry/test_meeting.py"
_ONCE = "tests/wire/test_once.py"
_FORGED = "tests/wire/security/test_parcel_forgeries.py"
_SECURE = "oncewire.handler.authentication"
_VERIFIED = "oncewire.wire.codec"
_ACCEPTED = "oncewire.handler.delivering.view"

IN_EDGE_IDENTITY: tuple[Mutant, ...] = (
    Mutant(
        "what proves the receipt of a message is thrown away",
        "oncewire.handler.receiving.signals:_settle",
        "if signed:\n"
        "    tx.keep_receipt(reference, StoredReceipt(message.header.message_id, context.now(), kept))",
        "if False:\n"
        "    tx.keep_receipt(reference, StoredReceipt(message.header.message_id, context.now(), kept))",
        requirement="ACK-14",
        tests=(
            f"{_SIGNED}::test_the_signed_acknowledgement_that_proved_receipt_is_kept_as_it_came",
        ),
    ),
    # --- who it is from ---
    Mutant(
        "the sender is the id that stands first",
        "oncewire.handler.facts:facts_under",
        "sender_name(agreement, message.header.from_party)",
        "str(message.header.from_party)",
        requirement="DUP-1",
        tests=(
            f"{_IDENTITY}::test_one_message_id_with_its_ids_in_any_order_is_delivered_once",
            f"{_IDENTITY}::test_a_hub_knows_a_copy_by_whom_it_is_from",
        ),
    ),
    Mutant(
        "the receiver is the id that stands first",
        "oncewire.handler.facts:facts_under",
        "receiver_name(receiver, message.header.to_party)",
        "str(message.header.to_party)",
        tests=(f"{_IDENTITY}::test_the_receiver_is_we_by_the_agreements_name",),
    ),
    Mutant(
        "the application is shown a sender as he wrote himself",
        f"{_ACCEPTED}:as_agreed",
        "if agreement is None:\n    return header",
        "if True:\n    return header",
        tests=(f"{_IDENTITY}::test_the_sender_is_the_partner_who_signed",),
    ),
    Mutant(
        "what was filed under another id of its sender is forgotten",
        "oncewire.handler.receiving.agreement_match:_names",
        "return own if sender == own[0] else (sender,)",
        "return (sender,)",
        tests=(f"{_IDENTITY}::test_a_message_that_was_filed_under_another_of_its_ids_is_a_copy",),
    ),
    # --- what is seen of it ---
    Mutant(
        "parts that nobody signed are seen",
        f"{_VERIFIED}:read_verified",
        "payloads = _signed_parts(received.message, verified)",
        "payloads = received.message.payloads",
        tests=(f"{_VIEW}::test_the_application_sees_what_was_signed",),
    ),
    Mutant(
        "signed parts are seen in the order they came",
        f"{_VERIFIED}:_signed_parts",
        "return tuple((structs.replace(parts[reference.content_id], content_encoding=None, mime_headers=_name_only(parts[reference.content_id])) for reference in verified.references if reference.content_id is not None))",
        "return tuple((structs.replace(parts[reference.content_id], content_encoding=None, mime_headers=_name_only(parts[reference.content_id])) for reference in sorted(verified.references, key=lambda one: list(parts).index(one.content_id) if one.content_id else -1) if reference.content_id is not None))",
        tests=(f"{_FORGED}::test_no_forgery_is_seen_as_anything_but_the_original",),
    ),
    Mutant(
        "headers of a part that nobody signed are seen",
        f"{_VERIFIED}:_signed_parts",
        "structs.replace(parts[reference.content_id], content_encoding=None, mime_headers=_name_only(parts[reference.content_id]))",
        "structs.replace(parts[reference.content_id], content_encoding=None)",
        tests=(f"{_VIEW}::test_the_application_sees_what_was_signed",),
    ),
    Mutant(
        "a changed media type makes another message",
        f"{_ACCEPTED}:digest_of_copy",
        "if digest == first or stored.parcel is None:\n    return digest",
        "if True:\n    return digest",
        tests=(f"{_VIEW}::test_a_media_type_that_somebody_changed_makes_no_other_message",),
    ),
    Mutant(
        "any signature is called verified",
        "oncewire.handler.receiving.arrive:received_note",
        "final and is_verified(received, resolution.security)",
        "final and received.signed",
        tests=(f"{_VIEW}::test_a_signature_that_nobody_checked_is_not_called_verified",),
    ),
    Mutant(
        "a part of the Manifest need not be signed",
        "oncewire.wire.security.wrapping:check_parts",
        "if content_id not in signed:\n"
        "    raise SecurityFailure(f'part {content_id[:120]!r} of the Manifest is not signed', location=f'cid:{content_id[:120]}')",
        "if not content_id:\n"
        "    raise SecurityFailure(f'part {content_id[:120]!r} of the Manifest is not signed', location=f'cid:{content_id[:120]}')",
        tests=(f"{_VIEW}::test_a_part_of_the_manifest_that_is_not_signed_is_refused_by_name",),
    ),
    # --- whose word it is ---
    Mutant(
        "anybody is answered as the partner he names",
        "oncewire.handler.sending.answer:answer_unread",
        "stranger = not is_authentic(context, agreement, source, received)",
        "stranger = False",
        tests=(
            f"{_UNPROVEN}::test_an_unproven_message_gets_no_signed_answer",
            f"{_UNPROVEN}::test_an_unsigned_post_ends_nothing_over_sockets",
        ),
    ),
    Mutant(
        "anybody is told what was agreed",
        "oncewire.handler.sending.answer:answer_unread",
        "stranger and by_terms",
        "False and by_terms",
        tests=("tests/handler/receiving/test_discreet.py::test_one_word_for_all_reasons",),
    ),
    Mutant(
        "whoever sends a recorded message again is known as its sender",
        "oncewire.handler.receiving.receive:_of_partner",
        "before != after",
        "before == before",
        tests=(f"{_FRESH}::test_a_message_shows_where_its_sender_is_and_its_copies_do_not",),
    ),
    Mutant(
        "of two elements where one may stand either is read",
        "oncewire.wire.ebms2.blocks:find_repeated",
        "tag in seen",
        "tag not in once",
        tests=(f"{_ONCE}::test_an_element_of_ebms2_that_may_stand_once_is_refused_twice",),
    ),
    Mutant(
        "who proves himself is answered as a stranger",
        "oncewire.handler.receiving.receive:_refuse",
        "answer_unread(context, fault, source, received)",
        "answer_unread(context, fault, source)",
        tests=(f"{_UNPROVEN}::test_who_proves_himself_is_told_what_is_wrong_in_signed_words",),
    ),
    Mutant(
        "anybody's fault ends a message",
        "oncewire.handler.receiving.signals:receive_fault",
        "if agreement is None or not is_authentic(context, agreement, source):\n"
        "    claim = Claim('fault', f'SOAP:{fault.code}', f'unproven: {words_of(fault)}', stored.peer)\n"
        "    ignore(context, tx, claim, message_id)\n"
        "    return False",
        "if agreement is None:\n"
        "    claim = Claim('fault', f'SOAP:{fault.code}', f'unproven: {words_of(fault)}', stored.peer)\n"
        "    ignore(context, tx, claim, message_id)\n"
        "    return False",
        tests=(
            f"{_UNPROVEN}::test_a_claim_that_proves_nothing_changes_nothing",
            "tests/handler/test_claims.py::test_a_fault_ends_a_message_only_where_it_can_be_believed",
        ),
    ),
    Mutant(
        "a reply proves itself by coming back",
        f"{_SECURE}:_check_reply",
        "if not source.secured:\n"
        "    raise SecurityFailure('the agreement knows its partner by a certificate, and the reply came without TLS', remedy='agree on an https address for the partner')",
        "if source is None:\n"
        "    raise SecurityFailure('the agreement knows its partner by a certificate, and the reply came without TLS', remedy='agree on an https address for the partner')",
        tests=(f"{_UNPROVEN}::test_what_a_reply_proves",),
    ),
    Mutant(
        "a reply speaks for every partner",
        f"{_SECURE}:_check_reply",
        "if not any((agreement.is_reached_at(source.address) for agreement in agreements)):\n"
        "    raise SecurityFailure(\"the agreement knows its partner by a certificate, and the reply came from an address that is not the partner's\", remedy='let the partner itself say so')",
        "if not agreements:\n"
        "    raise SecurityFailure(\"the agreement knows its partner by a certificate, and the reply came from an address that is not the partner's\", remedy='let the partner itself say so')",
        tests=(
            f"{_UNPROVEN}::test_a_reply_of_one_partner_says_nothing_for_another",
            f"{_UNPROVEN}::test_a_reply_of_one_partner_brings_no_document_of_another",
        ),
    ),
    Mutant(
        "fetch the whole body for each acknowledgement",
        "oncewire.handler.receiving.signals:_is_proven",
        "if sent is None or not sent.signed:\n"
        "    sent = read_stored(context.store.spool, parcel, context.limits)",
        "if sent is not acks:\n    sent = read_stored(context.store.spool, parcel, context.limits)",
        tests=(
            f"{_UNPROVEN}::test_a_signed_acknowledgement_is_compared_with_the_header_that_was_sent",
        ),
    ),
    Mutant(
        "a reply over TLS proves nothing",
        "oncewire.handler.actions:replied",
        "Source(REPLY, address=address, secured=address.lower().startswith('https:'))",
        "Source(REPLY, address=address)",
        tests=(f"{_UNPROVEN}::test_a_reply_counts_where_the_connection_was_the_partners",),
    ),
    Mutant(
        "mail needs no proof where the partner is known by its connection",
        f"{_SECURE}:check_connection",
        "if source.transport != 'http' and agreement.receiving.security.require_signature:\n"
        "    return",
        "if source.transport != 'http':\n    return",
        tests=(f"{_UNPROVEN}::test_mail_shows_no_certificate",),
    ),
    Mutant(
        "an acknowledgement beside a signature counts",
        f"{_VERIFIED}:_backed",
        "ack.actor is not Actor.NEXT_MSH or ack.ref_to_message_id == meant",
        "ack.actor is not Actor.NEXT_MSH or ack.ref_to_message_id",
        tests=(f"{_UNPROVEN}::test_an_acknowledgement_beside_a_signature_counts_for_nothing_else",),
    ),
    Mutant(
        "whatever passes a hub settles its copy",
        "oncewire.handler.receiving.receive:_take_for_others",
        "if is_authentic(context, resolution.agreement, source, received):\n"
        "    signals.settle_passing(context, tx, message, resolution, kept)",
        "if True:\n    signals.settle_passing(context, tx, message, resolution, kept)",
        tests=(
            f"{_UNPROVEN}::test_what_passes_through_a_hub_settles_its_copy_only_if_it_is_proven",
        ),
    ),
    Mutant(
        "a hub answers for what anybody sends in a neighbour's name",
        "oncewire.handler.receiving.receive:_take_for_others",
        "if resolution.agreement.partner.is_named_by(header.from_party) and (not is_answer(message)):\n"
        "    check_passing(context, received, resolution, source)",
        "if resolution.agreement.partner.is_named_by(header.from_party) and (not is_answer(message)):\n"
        "    pass",
        tests=(f"{_UNPROVEN}::test_a_hub_takes_nothing_upon_itself_in_a_neighbours_name",),
    ),
    Mutant(
        "a partner without any proof is not warned of where its replies are plain",
        "oncewire.agreement.check.exposure:recognition",
        "not signed and agreement.partner.client_certificates",
        "signed and (not signed)",
        tests=("tests/agreement/check/test_check.py::test_what_shows_no_certificate_is_warned_of",),
    ),
    # --- the trace that is left ---
    Mutant(
        "what is ignored leaves no trace",
        "oncewire.handler.receiving.reports:ignore",
        "if not is_told(count):\n    return",
        "if count:\n    return",
        tests=(f"{_UNPROVEN}::test_a_claim_that_proves_nothing_changes_nothing",),
    ),
    Mutant(
        "everything that is ignored is written down",
        "oncewire.handler.receiving.reports:ignore",
        "if not is_told(count):\n    return",
        "if False:\n    return",
        tests=(f"{_UNPROVEN}::test_the_trace_of_claims_is_bounded",),
    ),
    Mutant(
        "a refused signal is no part of the story of its message",
        "oncewire.handler.receiving.receive:_journal_refused",
        "if about is not None and tx.outgoing(about) is not None:\n"
        "    word = word_for(known.kind)\n"
        "    claim = Claim(word, code, error.problem, peer, known.message_id, source.transport)\n"
        "    ignore(context, tx, claim, about)\n"
        "    if known.kind is not MessageKind.NORMAL:\n"
        "        return",
        "if False:\n"
        "    word = word_for(known.kind)\n"
        "    claim = Claim(word, code, error.problem, peer, known.message_id, source.transport)\n"
        "    ignore(context, tx, claim, about)\n"
        "    if known.kind is not MessageKind.NORMAL:\n"
        "        return",
        tests=(f"{_UNPROVEN}::test_a_signal_apart_counts_with_the_agreed_certificate",),
    ),
    Mutant(
        "why says nothing of what was ignored",
        "oncewire.journal.history:explain",
        "return f'{why}{changed}{_ignored(told)}{_called(told, outcome.receiver)}'",
        "return why",
        tests=(f"{_UNPROVEN}::test_a_claim_that_proves_nothing_changes_nothing",),
    ),
    Mutant(
        "what is counted has no bound",
        "oncewire.handler.context:Tally.count",
        "name = ''",
        "pass",
        tests=("tests/handler/test_tally.py::test_there_is_a_bound",),
    ),
    # --- who becomes a partner ---
    Mutant(
        "a fingerprint tells of the newest certificate alone",
        "oncewire.entry.party.folder:Card.fingerprints",
        "return fingerprints_of(self.certificate)",
        "return fingerprints_of(self.certificate)[-1:]",
        tests=(
            f"{_MEETING}::test_every_certificate_that_becomes_believed_is_asked_of_by_telephone",
        ),
    ),
    Mutant(
        "an acceptance changes what we invited with",
        "oncewire.entry.party.invitation:_refuse_other_terms",
        "if said != meant:\n"
        "    raise InvalidValue(f'the acceptance of {told.card.name} says {said}, and we invited with {meant}', remedy='ask the partner whether it changed that; to agree on it, invite anew')",
        "if not said:\n"
        "    raise InvalidValue(f'the acceptance of {told.card.name} says {said}, and we invited with {meant}', remedy='ask the partner whether it changed that; to agree on it, invite anew')",
        tests=(f"{_MEETING}::test_an_acceptance_says_yes_to_what_we_invited_with_and_no_more",),
    ),
    Mutant(
        "an invitation without signatures is taken like any other",
        "oncewire.entry.party.invitation:accept",
        "without and (not insecure)",
        "not without and insecure is None",
        tests=(
            f"{_MEETING}::test_what_is_less_than_secure_is_agreed_by_nobody_who_did_not_say_so",
        ),
    ),
    Mutant(
        "a stranger's card takes the PartyId of a partner",
        "oncewire.entry.party.partners:_refuse_claims",
        "if is_its:\n"
        "    raise NotAllowed(f'{card.party_id} is our partner {kept.file.stem} already, and this card calls itself {card.name}', remedy='ask the partner by another way; a second agreement with one party is begun with `oncewire agreement new`')",
        "if not card.party_id:\n"
        "    raise NotAllowed(f'{card.party_id} is our partner {kept.file.stem} already, and this card calls itself {card.name}', remedy='ask the partner by another way; a second agreement with one party is begun with `oncewire agreement new`')",
        tests=(f"{_MEETING}::test_nobody_becomes_a_partner_under_what_is_another_s",),
    ),
)
