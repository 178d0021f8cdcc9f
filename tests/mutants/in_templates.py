"""Mutants of templates: each would make one say something else than the full way, or learn what it
must not."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ENVELOPE = "oncewire.wire.templates.envelope"
_SIGNATURE = "oncewire.wire.templates.envelope"
_SLOTTED = "oncewire.wire.templates.slotted"
_TESTS = "tests/wire/templates/test_envelope_templates.py"
_SIGNED = "tests/wire/templates/test_signature_templates.py"
_ALIKE = "tests/wire/templates/test_equivalence.py::test_an_envelope_like_another_is_read_alike"
_AT_WORK = "tests/handler/receiving/test_templates_at_work.py"

IN_TEMPLATES: tuple[Mutant, ...] = (
    Mutant(
        "any character may stand in an id that a template reads",
        f"{_ENVELOPE}:_id",
        "0 < len(value) <= ID_LENGTH_MAX and (not value.translate(None, _ID))",
        "0 < len(value) <= ID_LENGTH_MAX and value.isascii()",
        tests=(_ALIKE,),
    ),
    Mutant(
        "a leap second is read by a template",
        _ENVELOPE,
        "'([01]\\\\d|2[0-3]){0}[0-5]\\\\d{0}[0-5]\\\\d'",
        "'([01]\\\\d|2[0-3]){0}[0-5]\\\\d{0}[0-6]\\\\d'",
        tests=(_ALIKE,),
    ),
    Mutant(
        "what follows a slot is not compared",
        f"{_SLOTTED}:SlottedOctets.match",
        "if end < 0 or not octets.startswith(piece, end):\n    return None",
        "if end < 0:\n    return None",
        tests=(_ALIKE,),
    ),
    Mutant(
        "what stands behind the last byte of a template is not seen",
        f"{_SLOTTED}:SlottedOctets.match",
        "return found if at == len(octets) else None",
        "return found",
        tests=(_ALIKE,),
    ),
    Mutant(
        "a template forgets the rules between elements",
        f"{_ENVELOPE}:EnvelopeTemplate.read",
        "'order' in self._plan and next(ebms2_rules.broken(message), None) is not None",
        "'order' in self._plan and False",
        tests=(f"{_TESTS}::test_a_number_beyond_its_rules_is_left_to_the_full_reader",),
    ),
    Mutant(
        "a template is kept untried",
        f"{_ENVELOPE}:learned",
        "return template if same else None",
        "return template",
        tests=(f"{_TESTS}::test_a_template_that_says_something_else_is_not_kept",),
    ),
    Mutant(
        "what an acknowledgment is about stays in the template",
        _ENVELOPE,
        "('acknowledgments', '*', 'ref_to_message_id')",
        "('acknowledgments', '*', 'timestamp')",
        tests=(
            _ALIKE,
            f"{_AT_WORK}::test_messages_and_acknowledgments_are_read_by_templates",
        ),
    ),
    Mutant(
        "a template is made of a signature that could not differ",
        f"{_ENVELOPE}:learned",
        "not template.has_own_id or (base.signed and b'signaturevalue' not in names)",
        "not template.has_own_id",
        tests=(f"{_TESTS}::test_a_signature_without_a_value_teaches_nothing",),
    ),
    Mutant(
        "the digests of a signed acknowledgment stay in the template",
        _ENVELOPE,
        "('acknowledgments', '*', 'references', '*', 'digest_value')",
        "('acknowledgments', '*', 'references', '*', 'uri')",
        tests=(
            _ALIKE,
            f"{_TESTS}::test_what_a_signed_acknowledgment_has_digests_of_is_read_from_its_slots",
        ),
    ),
    Mutant(
        "one partner takes the room of all",
        f"{_SLOTTED}:TemplateCache.keep",
        "self._of_one",
        "self._most",
        tests=(f"{_TESTS}::test_a_partner_has_his_own_places_and_the_one_used_last_stays",),
    ),
    Mutant(
        "the cache of templates has no bound",
        f"{_SLOTTED}:TemplateCache.keep",
        "if len(everyone) >= self._most:\n    self._forget(everyone)",
        "pass",
        tests=(f"{_TESTS}::test_the_table_is_bounded",),
    ),
    Mutant(
        "strangers teach",
        "oncewire.handler.receiving.receive:receive_message",
        "'Take one message that could be read.'\nmessage = received.message",
        "'Take one message that could be read.'\n"
        "context.caches.templates.envelopes.learn(received, 'anybody', context.limits)\n"
        "message = received.message",
        tests=(f"{_AT_WORK}::test_a_stranger_teaches_nothing",),
    ),
    Mutant(
        "templates that are turned off are made all the same",
        f"{_SLOTTED}:TemplateCache.is_due",
        "self._enabled and offered & offered - 1 == 0",
        "offered & offered - 1 == 0",
        tests=(f"{_TESTS}::test_templates_can_be_turned_off",),
    ),
    Mutant(
        "how an envelope is signed may differ from its template",
        f"{_SIGNATURE}:SignatureTemplate.signature",
        "self._value is None or any((slots[number] != text for number, text in self._fixed))",
        "self._value is None",
        tests=(f"{_SIGNED}::test_how_something_is_signed_is_no_text_that_may_differ",),
    ),
    Mutant(
        "the digest of an envelope is not compared where a template fits",
        f"{_SIGNATURE}:SignatureTemplate.verify",
        "if not covering.same_digest(algorithms.digest(covering.digest_name, octets)):\n"
        "    return None",
        "if not octets and (not covering.same_digest(algorithms.digest(covering.digest_name, octets))):\n"
        "    return None",
        tests=(f"{_SIGNED}::test_every_check_is_made_of_what_is_known_too",),
    ),
    Mutant(
        "the parts of an envelope are not compared where a template fits",
        f"{_SIGNATURE}:SignatureTemplate.verify",
        "digests = signature.part_digests(found, parts)\n"
        "signature.check_part_digests(found.references, digests)",
        "digests = signature.part_digests(found, parts)",
        tests=(f"{_SIGNED}::test_every_check_is_made_of_what_is_known_too",),
    ),
    Mutant(
        "the certificate of a signer is not checked again where a template fits",
        f"{_SIGNATURE}:SignatureTemplate.verify",
        "certificate = signature.signer_of(found, trust, now, policy)",
        "certificate = trust.pinned[0]",
        tests=(
            f"{_SIGNED}::test_every_check_is_made_of_what_is_known_too",
            f"{_SIGNED}::test_no_forgery_is_accepted_by_what_was_learned",
        ),
    ),
    Mutant(
        "a comment is text to a template",
        f"{_SLOTTED}:SlottedBytes.is_plain",
        "b'<!' not in document",
        "document",
        tests=(f"{_SIGNED}::test_what_no_pattern_is_made_of",),
    ),
    Mutant(
        "a byte that looks like a slot is a slot",
        f"{_SLOTTED}:SlottedBytes.key",
        "(self.markup, self.texts, len(self.slots))",
        "(self.markup, 0, 0)",
        tests=(f"{_SIGNED}::test_bytes_that_look_like_slots_are_told_from_them",),
    ),
)
